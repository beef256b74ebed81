/* handler/view.h - what poll, fd, is_closed and nodes_waiting of a handler tell: the present
 * state as the owner has published it, and what of it the application has heard already. */
#ifndef MST_HANDLER_VIEW_H
#define MST_HANDLER_VIEW_H

#include <muster/rendezvous.h>

#include "handler/owner.h"

/* The fields but @turn are guarded by its lock. */
struct mst__view {
    struct mst__owner *owner;
    bool is_known; /* @now is how it is */
    struct mst_changes now;
    struct mst_changes told; /* as the last poll told it */
    struct mst_err err;      /* why it is not known */
    bool has_closed;         /* we have closed the rendezvous ourselves */
};

void mst__view_init(struct mst__view *view, struct mst__owner *owner);

/* Nothing is joined any more, so there is nothing to tell. In a task: what the owner saw while it
 * watched must not come after this. */
void mst__view_reset(struct mst__view *view);

/* This is how it is now. */
void mst__view_publish(struct mst__view *view, const struct mst_changes *changes);

/* How it is cannot be said any more, for this reason, or the last one if @err is NULL; what was
 * told stays told. */
void mst__view_unknown(struct mst__view *view, const struct mst_err *err);

/* We have closed the rendezvous ourselves, which the owner may not know yet. For good. */
void mst__view_set_closed(struct mst__view *view);
bool mst__view_has_closed(const struct mst__view *view);

/**
 * What is known while a round is joined. @ret_joined tells whether one is; only then there is more.
 *
 * Returns 0, or with a round the reason why nothing is known.
 */
int mst__view_get(struct mst__view *view,
                  bool *ret_joined,
                  struct mst_changes *ret_changes,
                  struct mst_err *reterr);

/* What mst_handler_poll does. 0, MST_ETIMEOUT, MST_ECANCELED. */
int mst__view_poll(struct mst__view *view,
                   int64_t timeout_ms,
                   struct mst_changes *ret,
                   struct mst_err *reterr);

#endif /* MST_HANDLER_VIEW_H */
