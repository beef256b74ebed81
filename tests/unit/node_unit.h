/* unit/node_unit.h - what the tests of handlers share: nodes in threads. */
#ifndef MST_UNIT_NODE_UNIT_H
#define MST_UNIT_NODE_UNIT_H

#include "unit/store_unit.h"

#include <poll.h>
#include <pthread.h>

/* One who takes part; its handler is the test's. */
struct node {
    pthread_t thread;
    struct mst_handler *handler;
    struct mst_rendezvous got;
    int rv;
    struct mst_err err;
};

static inline void *node_run(void *arg)
{
    struct node *node = arg;
    node->got = (struct mst_rendezvous){.size = sizeof node->got};
    node->rv = mst_handler_next(node->handler, &node->got, &node->err);
    return NULL;
}

/* Enter the next round, in a thread. */
static inline void node_start(struct node *node)
{
    assert_int_equal(pthread_create(&node->thread, NULL, node_run, node), 0);
}

/* Wait for the round, and how that went. */
static inline int node_join(struct node *node)
{
    assert_int_equal(pthread_join(node->thread, NULL), 0);
    if (node->rv == 0) {
        assert_non_null(node->got.store);
    }
    return node->rv;
}

static inline void node_drop_store(struct node *node)
{
    mst_store_close(node->got.store);
    node->got.store = NULL;
}

static inline struct mst_params *node_params(const char *backend,
                                             const char *endpoint,
                                             int64_t min,
                                             int64_t max,
                                             const char *local_addr,
                                             const char *options)
{
    struct mst_params *params = NULL;
    assert_ok(unit_params(backend, endpoint, "job", min, max, local_addr, &params, &err));
    assert_ok(mst_params_parse(params, options, &err));
    return params;
}

static inline struct mst_changes poll_changes(struct mst_handler *handler)
{
    struct mst_changes changes = {.size = sizeof changes};
    assert_ok(mst_handler_poll(handler, PLENTY_MS, &changes, &err));
    return changes;
}

static inline bool fd_is_readable(struct mst_handler *handler, int timeout_ms)
{
    struct pollfd pollfd = {.fd = mst_handler_fd(handler), .events = POLLIN};
    return poll(&pollfd, 1, timeout_ms) == 1;
}

#endif /* MST_UNIT_NODE_UNIT_H */
