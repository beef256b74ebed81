/* unit/handler/view_unit.h - a view, and what it tells its application. */
#ifndef MST_UNIT_VIEW_UNIT_H
#define MST_UNIT_VIEW_UNIT_H

#include <poll.h>

#include "handler/view.h"
#include "unit/unit.h"

static struct mst__owner owner;
static struct mst__view view;

static inline void watch(void *self)
{
    (void)self;
}

static inline int start(void **state)
{
    struct mst_err err;
    (void)state;
    assert_int_equal(mst__owner_init(&owner, watch, NULL, &err), 0);
    mst__view_init(&view, &owner);
    return 0;
}

static inline int stop(void **state)
{
    (void)state;
    mst__owner_stop(&owner);
    mst__view_close(&view);
    mst__owner_close(&owner);
    return 0;
}

static inline void assert_notice(enum mst_notice_kind kind, int64_t round)
{
    struct mst_notice *notice;
    struct mst_err err;
    struct pollfd news = {.fd = owner.news_fd, .events = POLLIN};
    assert_int_equal(poll(&news, 1, 0), 1);
    assert_int_equal(mst__view_take(&view, 0, &notice, &err), 0);
    assert_int_equal(notice->kind, kind);
    assert_int_equal(notice->round, round);
    mst_notice_free(notice);
}

/* Nothing to take, and nothing that wakes an event loop. */
static inline void assert_nothing(void)
{
    struct mst_notice *notice;
    struct mst_err err;
    struct pollfd news = {.fd = owner.news_fd, .events = POLLIN};
    assert_int_equal(poll(&news, 1, 0), 0);
    assert_int_equal(mst__view_take(&view, 0, &notice, &err), MST_ETIMEOUT);
}

static inline void complete(int64_t round)
{
    mst__owner_lock(&owner);
    owner.is_joined = true;
    mst__view_complete(&view, round);
    mst__owner_unlock(&owner);
}

static inline void forget(void)
{
    owner.thread = pthread_self(); /* only the owner may reset */
    mst__view_reset(&view);
}

#endif /* MST_UNIT_VIEW_UNIT_H */
