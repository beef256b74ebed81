/* handler/view.h - what a handler tells its application: the present state, as the owner has
 * published it, and notices, one for each change that the application has not heard of.
 *
 * A notice is a flag and an order; what it says is read from the state when it is taken. So there
 * is one of each kind at most, and notices that nobody takes cost nothing. */
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

/* All but @owner is guarded by its lock. */
struct mst__view {
    struct mst__owner *owner;
    struct mst_changes now;
    int64_t round;
    struct mst__view_node *lost; /* of the round, in the order in which they were told */
    size_t lost_count;
    size_t lost_told;
    struct mst_err trouble; /* why the state may be old */
    bool is_old;
    struct mst_err failure; /* why the begun round does not come */
    bool has_closed;        /* we have closed the rendezvous ourselves */

    uint64_t order;                  /* of the last notice */
    uint64_t orders[MST_VIEW_KINDS]; /* of those that wait; 0 = none */
};

void mst__view_init(struct mst__view *view, struct mst__owner *owner);
void mst__view_close(struct mst__view *view);

/* Nothing is joined any more, so there is nothing to tell. In a task: what the owner saw while it
 * watched must not come after this. */
void mst__view_reset(struct mst__view *view);

/* The round that was begun is there, or will not be. The owner, with the lock held. */
void mst__view_complete(struct mst__view *view, int64_t round);
void mst__view_fail(struct mst__view *view, const struct mst_err *err);

/* It will not be, because the job has ended: a failure that follows tells how. NULL = nobody knows
 * that it has. The owner. */
void mst__view_ended(struct mst__view *view,
                     const struct mst__job_end *end,
                     struct mst_bytes reason);

/* Take back what was told of the begun round. */
void mst__view_forget(struct mst__view *view);

/* One more member of the round is gone, unless it is known; the count is published. The owner. */
void mst__view_lost(struct mst__view *view, struct mst_bytes name, int64_t rank, bool has_left);

/* This is how it is now. The owner. */
void mst__view_publish(struct mst__view *view, const struct mst_changes *changes);

/* The state may be old, for the reason @err, or with NULL is not any more. The owner. */
void mst__view_reach(struct mst__view *view, const struct mst_err *err);

bool mst__view_is_old(struct mst__view *view);

/* We have closed the rendezvous ourselves, which the owner may not know yet. For good. */
void mst__view_set_closed(struct mst__view *view);
bool mst__view_has_closed(const struct mst__view *view);

/* What is known while a round is joined: whether one is. Without it nothing is written. */
bool mst__view_get(struct mst__view *view, struct mst_changes *ret_changes);

/* What mst_handler_poll and mst_handler_take do. 0, MST_ETIMEOUT, MST_ECANCELED, MST_ENOMEM. */
int mst__view_poll(struct mst__view *view,
                   int64_t timeout_ms,
                   struct mst_changes *ret,
                   struct mst_err *reterr);
int mst__view_take(struct mst__view *view,
                   int64_t timeout_ms,
                   struct mst_notice **ret_notice,
                   struct mst_err *reterr);

#endif /* MST_HANDLER_VIEW_H */
