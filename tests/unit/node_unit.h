/* unit/node_unit.h - shared by the tests of handlers: nodes in threads. */
#ifndef MST_UNIT_NODE_UNIT_H
#define MST_UNIT_NODE_UNIT_H

#include "unit/store_unit.h"

#include <poll.h>
#include <pthread.h>

/* A node; the test owns its handler. */
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
    node->rv = mst_handler_next(node->handler, -1, &node->got, &node->err);
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

/* The present state; nothing has to have changed. */
static inline struct mst_changes glance(struct mst_handler *handler)
{
    struct mst_changes changes = {.size = sizeof changes};
    int rv = mst_handler_poll(handler, 0, &changes, &err);
    assert_true(rv == 0 || rv == MST_ETIMEOUT);
    return changes;
}

/* Wait for a notice of @kind; those of other kinds are dropped. */
static inline struct mst_notice *take_notice(struct mst_handler *handler, enum mst_notice_kind kind)
{
    struct mst_notice *notice = NULL;
    do {
        mst_notice_free(notice);
        notice = NULL;
        assert_ok(mst_handler_take(handler, PLENTY_MS, &notice, &err));
    } while (notice->kind != kind);
    return notice;
}

/* One node is lost, and it is called @name. */
static inline void assert_lost(struct mst_handler *handler, const char *name, bool has_left)
{
    struct mst_notice *notice = take_notice(handler, MST_NOTICE_LOST);
    assert_int_equal(notice->nodes_lost, 1);
    assert_int_equal(notice->node_count, 1);
    assert_string_equal(notice->nodes[0].name, name);
    assert_int_equal(notice->nodes[0].has_left, has_left);
    mst_notice_free(notice);
}

static inline bool fd_is_readable(struct mst_handler *handler, int timeout_ms)
{
    struct pollfd pollfd = {.fd = mst_handler_fd(handler), .events = POLLIN};
    return poll(&pollfd, 1, timeout_ms) == 1;
}

#endif /* MST_UNIT_NODE_UNIT_H */
