/* unit/server_unit.h - shared by the tests of handlers at a server: the server, in a thread. */
#ifndef MST_UNIT_SERVER_UNIT_H
#define MST_UNIT_SERVER_UNIT_H

#include "unit/store_unit.h"

#include "handler/hosted.h"

struct fixture {
    struct mst__hosted *hosted;
    struct mst__endpoint endpoint;
    char text[64];
};

/* At the endpoint that it has had before, unless it is the first one. */
static inline void server_start(struct fixture *f)
{
    struct mst_log log = {0};
    assert_ok(mst__hosted_start(&f->endpoint, &log, &f->hosted, &err));
}

static inline int fixture_open(void **state)
{
    static struct fixture f;
    f = (struct fixture){.endpoint = {.host = "127.0.0.1"}};
    server_start(&f);
    f.endpoint.port = (uint16_t)mst__hosted_port(f.hosted);
    (void)snprintf(f.text, sizeof f.text, "127.0.0.1:%u", (unsigned)f.endpoint.port);
    *state = &f;
    return 0;
}

static inline int fixture_close(void **state)
{
    struct fixture *f = *state;
    mst__hosted_stop(f->hosted);
    return 0;
}

#endif /* MST_UNIT_SERVER_UNIT_H */
