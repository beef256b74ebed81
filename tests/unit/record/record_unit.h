/* unit/record/record_unit.h - shared by the tests of the dynamic handler: the record at a server
 * in a thread, and nodes. */
#ifndef MST_UNIT_RECORD_RECORD_UNIT_H
#define MST_UNIT_RECORD_RECORD_UNIT_H

#include <poll.h>

#include "base/clock.h"
#include "codec/pickle.h"
#include "record/c10d.h"
#include "unit/node_unit.h"
#include "unit/server_unit.h"

/* No node expires unless a test wants it; the last call is short. */
#define CALM "last_call_timeout=100ms,is_host=0"
/* A round that could be larger waits for those who are late on a busy machine. */
#define PATIENT "last_call_timeout=1,is_host=0"
/* Silent for longer than 0.75 s is dead; or than 2 s, where those who live must not be. */
#define QUICK "last_call_timeout=100ms,is_host=0,keep_alive_interval=250ms,keep_alive_max_attempt=3"
#define BEATING PATIENT ",keep_alive_interval=250ms,keep_alive_max_attempt=8"

/* --- the server --- */

static inline struct mst_store *server_store(const struct fixture *f)
{
    char url[MST_HOSTED_URL_SIZE];
    (void)snprintf(url, sizeof url, "tcp://%s", f->text); /* fits */
    return open_store(url);
}

/* The present record. */
static inline void read_record(const struct fixture *f, struct mst__state *ret_state)
{
    struct mst__record_home home;
    struct mst__stored stored = {0};
    assert_ok(mst__c10d_home_new(server_store(f), "job", "server", PLENTY_MS, &home, &err));
    assert_ok(home.ops->get_state(home.self, mst__until_in(PLENTY_MS), &stored, &err));
    assert_true(stored.exists);
    mst__state_init(ret_state);
    assert_ok(
        mst__pickle_read(mst_bytes_of(stored.record.data, stored.record.size), ret_state, &err));
    mst_buffer_free(&stored.record);
    mst_buffer_free(&stored.token);
    home.ops->close(home.self);
}

/* Until the record has so many participants and waiting nodes. */
static inline void await_record(const struct fixture *f, size_t participants, size_t waiting)
{
    struct mst_store *store = server_store(f);
    assert_ok(mst_store_wait(store,
                             &(struct mst_bytes){(const uint8_t *)"torch.rendezvous.job", 20}, 1,
                             PLENTY_MS, &err));
    struct mst_bytes sentinel = STR(MST_C10D_SENTINEL);
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    for (;;) {
        struct mst_buffer value = {0};
        assert_ok(mst_store_get(store, STR("torch.rendezvous.job"), PLENTY_MS, &value, &err));
        bool is_empty = mst__bytes_equal(mst_bytes_of(value.data, value.size), sentinel);
        mst_buffer_free(&value);
        if (!is_empty) {
            struct mst__state state;
            read_record(f, &state);
            bool is_there =
                state.participants.count == participants && state.waiting.count == waiting;
            mst__state_close(&state);
            if (is_there) {
                break;
            }
        }
        assert_true(mst__clock_ms() < deadline_ms);
        (void)poll(NULL, 0, 1);
    }
    mst_store_close(store);
}

/* --- nodes --- */

static inline struct mst_params *new_params(const char *endpoint,
                                            int64_t min,
                                            int64_t max,
                                            const char *name,
                                            const char *options)
{
    return node_params("c10d", endpoint, min, max, name, options);
}

static inline struct mst_handler *new_handler(const char *endpoint,
                                              int64_t min,
                                              int64_t max,
                                              const char *name,
                                              const char *options)
{
    struct mst_handler *handler = NULL;
    struct mst_params *params = new_params(endpoint, min, max, name, options);
    assert_ok(mst_handler_new(params, &handler, &err));
    mst_params_free(params);
    return handler;
}

#endif /* MST_UNIT_RECORD_RECORD_UNIT_H */
