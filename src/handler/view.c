/* handler/view.c - the published state, and the changes that were told. */
#include "handler/view.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"

/* Of the oldest notice. */
#define FIRST_ORDER 1

void mst__view_init(struct mst__view *view, struct mst__owner *owner)
{
    *view = (struct mst__view){
        .owner = owner, .now.size = sizeof view->now, .round = -1, .order = FIRST_ORDER};
}

static void drop_lost(struct mst__view *view)
{
    for (size_t i = 0; i < view->lost_count; i++) {
        mst__free(view->lost[i].name);
    }
    mst__free(view->lost);
    view->lost = NULL;
    view->lost_count = 0;
    view->lost_told = 0;
}

void mst__view_close(struct mst__view *view)
{
    drop_lost(view);
}

/* --- the owner; with the lock held --- */

/* Whether there is a notice of @kind to tell. Changes that the owner sees before it has told that
 * the round is complete wait for that: the application does not know the round yet. */
static bool has_notice(const struct mst__view *view, size_t kind)
{
    return view->orders[kind] != 0 && (view->round >= 0 || kind == MST_NOTICE_FAILED);
}

static void notify(struct mst__view *view, enum mst_notice_kind kind)
{
    if (view->orders[kind] == 0) {
        view->orders[kind] = ++view->order;
    }
    if (has_notice(view, kind)) {
        mst__owner_ring(view->owner->news_fd);
    }
}

static bool has_any(const struct mst__view *view)
{
    bool has = false;
    for (size_t i = 0; i < MST_VIEW_KINDS; i++) {
        has = has || has_notice(view, i);
    }
    return has;
}

/* Drop the notice of @kind. */
static void withdraw(struct mst__view *view, enum mst_notice_kind kind)
{
    view->orders[kind] = 0;
    if (!has_any(view)) {
        mst__owner_silence(view->owner->news_fd);
    }
}

static bool should_return(const struct mst_changes *changes)
{
    return changes->nodes_waiting > 0 || changes->participants_lost > 0 || changes->reopened ||
           changes->expelled;
}

void mst__view_reset(struct mst__view *view)
{
    MST_ASSERT(pthread_equal(view->owner->thread, pthread_self()));
    mst__owner_lock(view->owner);
    view->owner->is_joined = false;
    view->now = (struct mst_changes){.size = sizeof view->now};
    view->round = -1;
    view->is_old = false;
    view->failure = (struct mst_err){0};
    drop_lost(view);
    memset(view->orders, 0, sizeof view->orders);
    mst__owner_silence(view->owner->news_fd);
    mst__owner_unlock(view->owner);
}

void mst__view_complete(struct mst__view *view, int64_t round)
{
    view->round = round;
    view->orders[MST_NOTICE_COMPLETE] = FIRST_ORDER; /* before changes that were seen meanwhile */
    mst__owner_ring(view->owner->news_fd);
}

void mst__view_fail(struct mst__view *view, const struct mst_err *err)
{
    view->failure = *err;
    notify(view, MST_NOTICE_FAILED);
}

void mst__view_ended(struct mst__view *view,
                     const struct mst__job_end *end,
                     struct mst_bytes reason)
{
    if (end == NULL) {
        return;
    }
    mst__owner_lock(view->owner);
    mst__work_ended(&view->now, end);
    (void)snprintf(view->now.reason, sizeof view->now.reason, "%.*s",
                   (int)(reason.size < sizeof view->now.reason ? reason.size : 255),
                   (const char *)reason.data); /* cut off when long */
    mst__owner_unlock(view->owner);
}

bool mst__view_forget(struct mst__view *view)
{
    mst__owner_lock(view->owner);
    bool was_pending =
        view->orders[MST_NOTICE_COMPLETE] != 0 || view->orders[MST_NOTICE_FAILED] != 0;
    withdraw(view, MST_NOTICE_COMPLETE);
    withdraw(view, MST_NOTICE_FAILED);
    mst__owner_unlock(view->owner);
    return was_pending;
}

void mst__view_lost(struct mst__view *view, struct mst_bytes name, int64_t rank, bool has_left)
{
    bool is_known = (name.size == 0 && rank < 0) || view->lost_count == MST_LOST_NAMES_MAX;
    for (size_t i = 0; i < view->lost_count && !is_known; i++) {
        const struct mst__view_node *lost = &view->lost[i];
        is_known = mst__bytes_equal(mst_bytes_str(lost->name), name) &&
                   (name.size > 0 || lost->rank == rank);
    }
    if (is_known) {
        return;
    }
    struct mst__view_node node = {.name = mst__memdup((const char *)name.data, name.size),
                                  .rank = rank,
                                  .has_left = has_left};
    mst__owner_lock(view->owner);
    struct mst__view_node *grown =
        node.name == NULL ? NULL : mst__realloc(view->lost, (view->lost_count + 1) * sizeof *grown);
    if (grown == NULL) {
        mst__free(node.name); /* it is counted, without a name */
    } else {
        view->lost = grown;
        view->lost[view->lost_count++] = node;
    }
    mst__owner_unlock(view->owner);
}

void mst__view_publish(struct mst__view *view, const struct mst_changes *changes)
{
    mst__owner_lock(view->owner);
    const struct mst_changes before = view->now;
    view->now = *changes;
    view->now.size = sizeof view->now;
    view->now.should_return = should_return(changes);
    /* Their order is that of the notices. */
    if (changes->closed && !before.closed) {
        notify(view, MST_NOTICE_CLOSED);
    }
    if (changes->participants_lost > before.participants_lost) {
        notify(view, MST_NOTICE_LOST);
    }
    if (changes->nodes_waiting > before.nodes_waiting) {
        notify(view, MST_NOTICE_WAITING);
    } else if (changes->nodes_waiting == 0) {
        withdraw(view, MST_NOTICE_WAITING);
    }
    if (changes->reopened && !before.reopened) {
        notify(view, MST_NOTICE_REOPENED);
    }
    if (changes->expelled && !before.expelled) {
        notify(view, MST_NOTICE_EXPELLED);
    }
    mst__owner_unlock(view->owner);
}

void mst__view_reach(struct mst__view *view, const struct mst_err *err)
{
    mst__owner_lock(view->owner);
    if (err == NULL && view->is_old) {
        view->is_old = false;
        notify(view, MST_NOTICE_REACHABLE);
    } else if (err != NULL && !view->is_old && view->owner->is_joined) {
        view->is_old = true;
        view->trouble = *err;
        withdraw(view, MST_NOTICE_REACHABLE);
        notify(view, MST_NOTICE_UNREACHABLE);
    }
    mst__owner_unlock(view->owner);
}

bool mst__view_is_old(struct mst__view *view)
{
    mst__owner_lock(view->owner);
    bool is_old = view->is_old;
    mst__owner_unlock(view->owner);
    return is_old;
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

/* --- the application --- */

bool mst__view_get(struct mst__view *view, struct mst_changes *ret_changes)
{
    mst__owner_lock(view->owner);
    bool is_joined = view->owner->is_joined;
    if (is_joined) {
        *ret_changes = view->now;
        ret_changes->closed = view->now.closed || view->has_closed;
    }
    mst__owner_unlock(view->owner);
    return is_joined;
}

/* The state, and whether it has changed since the last look. An mst__owner_look_fn. */
static int look_changes(void *self, void *arg, struct mst_err *reterr)
{
    struct mst__view *view = self;
    struct mst_changes *ret = arg;
    static const enum mst_notice_kind kinds[] = {MST_NOTICE_WAITING, MST_NOTICE_LOST,
                                                 MST_NOTICE_REOPENED, MST_NOTICE_EXPELLED,
                                                 MST_NOTICE_CLOSED};
    bool is_new = false;
    (void)reterr; /* nothing fails */
    mst__owner_lock(view->owner);
    *ret = view->now;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        is_new = is_new || view->orders[kinds[i]] != 0;
        withdraw(view, kinds[i]);
    }
    /* A poll does not return this, so it must not wake for it. */
    withdraw(view, MST_NOTICE_UNREACHABLE);
    withdraw(view, MST_NOTICE_REACHABLE);
    view->lost_told = view->lost_count;
    mst__owner_unlock(view->owner);
    return is_new ? 0 : MST_ETIMEOUT;
}

int mst__view_poll(struct mst__view *view,
                   int64_t timeout_ms,
                   struct mst_changes *ret,
                   struct mst_err *reterr)
{
    int rv = mst__owner_await(view->owner, timeout_ms, look_changes, view, ret, reterr);
    return rv == MST_ETIMEOUT ? mst__fail(reterr, rv, 0, "nothing has changed") : rv;
}

/* Copy the nodes that were not told yet, with their names behind them, into @notice. With the
 * lock held. */
static void give_nodes(struct mst__view *view, struct mst_notice *notice)
{
    size_t count = view->lost_count - view->lost_told;
    struct mst_node *nodes = (struct mst_node *)(void *)(notice + 1);
    char *text = (char *)(nodes + count);
    for (size_t i = 0; i < count; i++) {
        const struct mst__view_node *lost = &view->lost[view->lost_told + i];
        size_t size = strlen(lost->name) + 1;
        memcpy(text, lost->name, size);
        nodes[i] = (struct mst_node){.name = text, .rank = lost->rank, .has_left = lost->has_left};
        text += size;
    }
    notice->nodes = nodes;
    notice->node_count = count;
    view->lost_told = view->lost_count;
}

static size_t nodes_size(const struct mst__view *view)
{
    size_t size = 0;
    for (size_t i = view->lost_told; i < view->lost_count; i++) {
        size += sizeof(struct mst_node) + strlen(view->lost[i].name) + 1;
    }
    return size;
}

/* The notice of @kind. With the lock held. */
static struct mst_notice *make_notice(struct mst__view *view, enum mst_notice_kind kind)
{
    bool is_lost = kind == MST_NOTICE_LOST;
    bool is_trouble = kind == MST_NOTICE_FAILED || kind == MST_NOTICE_UNREACHABLE;
    struct mst_notice *notice = mst__calloc(1, sizeof *notice + (is_lost ? nodes_size(view) : 0));
    if (notice == NULL) {
        return NULL;
    }
    notice->size = sizeof *notice;
    notice->kind = kind;
    notice->round = view->round;
    notice->nodes_waiting = view->now.nodes_waiting;
    notice->nodes_lost = view->now.participants_lost;
    if (is_lost) {
        give_nodes(view, notice);
    } else if (is_trouble) {
        notice->err = kind == MST_NOTICE_FAILED ? view->failure : view->trouble;
    }
    if (kind == MST_NOTICE_UNREACHABLE) {
        return notice;
    }
    notice->outcome = view->now.outcome;
    notice->has_cause = view->now.has_cause;
    notice->cause = view->now.cause;
    memcpy(notice->reason, view->now.reason, sizeof notice->reason);
    return notice;
}

/* The oldest notice. An mst__owner_look_fn. */
static int look_notice(void *self, void *arg, struct mst_err *reterr)
{
    struct mst__view *view = self;
    struct mst_notice **ret = arg;
    size_t first = MST_VIEW_KINDS;
    mst__owner_lock(view->owner);
    for (size_t i = 0; i < MST_VIEW_KINDS; i++) {
        bool is_older = has_notice(view, i) &&
                        (first == MST_VIEW_KINDS || view->orders[i] < view->orders[first]);
        first = is_older ? i : first;
    }
    int rv = MST_ETIMEOUT;
    if (first < MST_VIEW_KINDS) {
        *ret = make_notice(view, (enum mst_notice_kind)first);
        rv = *ret == NULL ? MST_ENOMEM : 0;
    }
    if (rv == 0) {
        withdraw(view, (enum mst_notice_kind)first);
    }
    mst__owner_unlock(view->owner);
    return rv == MST_ENOMEM ? mst__fail(reterr, rv, 0, "notice") : rv;
}

int mst__view_take(struct mst__view *view,
                   int64_t timeout_ms,
                   struct mst_notice **ret_notice,
                   struct mst_err *reterr)
{
    int rv = mst__owner_await(view->owner, timeout_ms, look_notice, view, ret_notice, reterr);
    return rv == MST_ETIMEOUT ? mst__fail(reterr, rv, 0, "nothing has happened") : rv;
}
