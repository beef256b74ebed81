/* handler/view.h - a handler's view for its application: the present state, as published by the
 * owner, and notices, one for each change that the application has not heard of.
 *
 * A notice is a flag and an order; its content is read from the state when it is taken. So there
 * is at most one of each kind, and notices that are never taken cost nothing. */
#ifndef MST_HANDLER_VIEW_H
#define MST_HANDLER_VIEW_H

#include <muster/rendezvous.h>

#include "handler/owner.h"
#include "handler/work.h"

#define MST_VIEW_KINDS (MST_NOTICE_REACHABLE + 1)

struct mst__view_node {
    char *name;
    int64_t rank; /* -1 = not known */
    bool has_left;
};

/* The lock of @owner guards all but @owner. */
struct mst__view {
    struct mst__owner *owner;
    struct mst_changes now;
    int64_t round;               /* -1 = none is complete */
    struct mst__view_node *lost; /* of the round, in the order of the news */
    size_t lost_count;
    size_t lost_told;
    struct mst_err trouble; /* why the state may be old */
    bool is_old;
    struct mst_err failure; /* why the begun round failed */
    bool has_closed;        /* we have closed the rendezvous ourselves */

    uint64_t order;                  /* of the last notice */
    uint64_t orders[MST_VIEW_KINDS]; /* of waiting notices; 0 = none */
};

void mst__view_init(struct mst__view *view, struct mst__owner *owner);
void mst__view_close(struct mst__view *view);

/* No round is joined any more: drop all notices. In a task, so that nothing that the owner saw
 * while it watched comes after this. */
void mst__view_reset(struct mst__view *view);

/* The begun round is complete, or has failed. The owner, with the lock held. */
void mst__view_complete(struct mst__view *view, int64_t round);
void mst__view_fail(struct mst__view *view, const struct mst_err *err);

/* The begun round will not come, because the job has ended; the failure that follows says how.
 * NULL = it has not ended, or that is not known. The owner. */
void mst__view_ended(struct mst__view *view,
                     const struct mst__job_end *end,
                     struct mst_bytes reason);

/* Drop the result of the begun round. Returns whether the application was not told it yet. */
bool mst__view_forget(struct mst__view *view);

/* Another member of the round is gone; no effect if it is known, or without a name and a rank (-1).
 * Publishes the count. The owner. */
void mst__view_lost(struct mst__view *view, struct mst_bytes name, int64_t rank, bool has_left);

/* Publish the state. The owner. */
void mst__view_publish(struct mst__view *view, const struct mst_changes *changes);

/* The state may be out of date because of @err; NULL = it is up to date again. The owner. */
void mst__view_reach(struct mst__view *view, const struct mst_err *err);

bool mst__view_is_old(struct mst__view *view);

/* We have closed the rendezvous, even if the owner does not know yet. It stays so. */
void mst__view_set_closed(struct mst__view *view);
bool mst__view_has_closed(const struct mst__view *view);

/* Copy the state of the joined round. Returns false, and writes nothing, if no round is joined. */
bool mst__view_get(struct mst__view *view, struct mst_changes *ret_changes);

/* mst_handler_poll and mst_handler_take. Return 0, MST_ETIMEOUT, MST_ECANCELED, MST_ENOMEM. */
int mst__view_poll(struct mst__view *view,
                   int64_t timeout_ms,
                   struct mst_changes *ret,
                   struct mst_err *reterr);
int mst__view_take(struct mst__view *view,
                   int64_t timeout_ms,
                   struct mst_notice **ret_notice,
                   struct mst_err *reterr);

#endif /* MST_HANDLER_VIEW_H */
