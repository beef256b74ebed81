/* handler/view.c - what has changed, and what of it was told. */
#include "handler/view.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"

void mst__view_init(struct mst__view *view, struct mst__owner *owner)
{
    *view = (struct mst__view){.owner = owner, .now.size = sizeof view->now};
    view->told = view->now;
}

/* With the lock held. */
static bool view_has_news(const struct mst__view *view)
{
    const struct mst_changes *now = &view->now;
    const struct mst_changes *told = &view->told;
    return now->nodes_waiting > told->nodes_waiting ||
           now->participants_lost > told->participants_lost || (now->closed && !told->closed) ||
           (now->expelled && !told->expelled) || (now->reopened && !told->reopened);
}

void mst__view_reset(struct mst__view *view)
{
    MST_ASSERT(pthread_equal(view->owner->thread, pthread_self()));
    mst__owner_lock(view->owner);
    view->owner->is_joined = false;
    view->is_known = false;
    view->now = (struct mst_changes){.size = sizeof view->now};
    view->told = view->now;
    view->err = (struct mst_err){0};
    if (!mst__owner_is_cancelled(view->owner)) {
        mst__owner_silence(view->owner->news_fd);
    }
    mst__owner_unlock(view->owner);
}

void mst__view_publish(struct mst__view *view, const struct mst_changes *changes)
{
    mst__owner_lock(view->owner);
    view->is_known = true;
    view->now = *changes;
    view->now.size = sizeof view->now;
    /* Fewer who wait are no news, but more than that will be. */
    if (view->told.nodes_waiting > changes->nodes_waiting) {
        view->told.nodes_waiting = changes->nodes_waiting;
    }
    if (view_has_news(view)) {
        mst__owner_ring(view->owner->news_fd);
    }
    mst__owner_unlock(view->owner);
}

void mst__view_unknown(struct mst__view *view, const struct mst_err *err)
{
    mst__owner_lock(view->owner);
    view->is_known = false;
    if (err != NULL) {
        view->err = *err;
    }
    mst__owner_unlock(view->owner);
}

void mst__view_set_closed(struct mst__view *view)
{
    mst__owner_lock(view->owner);
    view->has_closed = true;
    mst__owner_unlock(view->owner);
}

bool mst__view_has_closed(const struct mst__view *view)
{
    mst__owner_lock(view->owner);
    bool has_closed = view->has_closed;
    mst__owner_unlock(view->owner);
    return has_closed;
}

int mst__view_get(struct mst__view *view,
                  bool *ret_joined,
                  struct mst_changes *ret_changes,
                  struct mst_err *reterr)
{
    int rv = 0;
    mst__owner_lock(view->owner);
    *ret_joined = view->owner->is_joined;
    if (*ret_joined && view->is_known) {
        *ret_changes = view->now;
        ret_changes->closed = view->now.closed || view->has_closed;
    } else if (*ret_joined) {
        rv = view->err.code == 0 ? mst__fail(reterr, MST_ECONN, 0, "nothing has been heard yet")
                                 : mst__err_pass(reterr, view->err.code, &view->err);
    }
    mst__owner_unlock(view->owner);
    return rv;
}

/* What there is to tell at the moment; whether any of it is new. */
static bool view_look(struct mst__view *view, struct mst_changes *ret)
{
    size_t size = ret->size;
    mst__owner_lock(view->owner);
    *ret = view->now;
    bool has_news = view_has_news(view);
    view->told = view->now;
    if (!mst__owner_is_cancelled(view->owner)) {
        mst__owner_silence(view->owner->news_fd);
    }
    mst__owner_unlock(view->owner);
    ret->size = size;
    return has_news;
}

int mst__view_poll(struct mst__view *view,
                   int64_t timeout_ms,
                   struct mst_changes *ret,
                   struct mst_err *reterr)
{
    int64_t deadline_ms = mst__clock_deadline_ms(timeout_ms);
    for (;;) {
        if (mst__owner_is_cancelled(view->owner)) {
            return mst__owner_fail_cancelled(reterr);
        }
        if (view_look(view, ret)) {
            return 0;
        }
        if (!mst__owner_await_news(view->owner, deadline_ms)) {
            return mst__fail(reterr, MST_ETIMEOUT, 0, "nothing has changed");
        }
    }
}
