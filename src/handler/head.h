/* handler/head.h - what the handlers have in common, as the first member of each: who owns
 * its machine, what is told, who tells it; and the calls that are the same for all of them.
 */
#ifndef MST_HANDLER_HEAD_H
#define MST_HANDLER_HEAD_H

#include <muster/backend.h>

#include "handler/bootstrap.h"
#include "handler/events.h"
#include "handler/owner.h"
#include "handler/params.h"
#include "handler/view.h"

/* What is a handler's own: the parts of calls, whose errors are told as events by whoever calls
 * these, and whole calls, which are entries of struct mst_handler_ops. */
struct mst__head_ops {
    /* Take part in the next round, within @timeout_ms, or the time that the options say if that is
     * below 0. A task, which ends soon when it is cancelled: then we are in no round. */
    int (*join)(void *self, int64_t timeout_ms, struct mst_rendezvous *ret, struct mst_err *reterr);
    /* The present state, by asking: no round is joined, so that nobody watches it. */
    int (*look)(void *self, bool *ret_closed, int64_t *ret_waiting, struct mst_err *reterr);
    /* Leave the round, if there is one, within an int64_t of milliseconds. A task. NULL = nobody
     * misses us. */
    mst__owner_task_fn leave;
    /* Say a struct mst__word of the work. A task. MST_EINVAL without a round. */
    mst__owner_task_fn say;
    /* Whole calls; all but the last may be NULL. */
    int (*set_closed)(void *self, struct mst_err *reterr);
    int (*shutdown)(void *self, struct mst_err *reterr);
    bool (*use_agent_store)(void *self);
    int (*set_extra)(void *self,
                     const char *name,
                     const char *json,
                     int64_t timeout_ms,
                     struct mst_err *reterr);
    int (*get_extra)(void *self,
                     const char *name,
                     int64_t timeout_ms,
                     struct mst_buffer *ret_json,
                     struct mst_err *reterr);
    void (*free)(void *self);
};

struct mst__head {
    const struct mst__head_ops *ops; /* NULL = only what tells and cancels is used */
    struct mst__owner owner;
    struct mst__view view;
    int64_t leave_ms; /* how long leaving may take; the handler's own */

    /* With the lock of the owner: the round that is begun, and that which is joined. */
    int64_t timeout_ms;
    struct mst_rendezvous round; /* its store is NULL: there is none */
    int rv;                      /* what came of the one that was begun last */
    struct mst_err err;

    /* The handler's own, see mst__head_identify. */
    const struct mst_params *params;
    const struct mst__events *events;
    const struct mst__bootstrap *bootstrap; /* NULL = agents share no store with their workers */
};

/* @watch and @self are those of mst__owner_init. 0 or MST_ESYS; @head can be closed either way. */
int mst__head_init(struct mst__head *head,
                   const struct mst__head_ops *ops,
                   mst__owner_watch_fn watch,
                   void *self,
                   struct mst_err *reterr);

/* Say who we are: node @node of the rendezvous @params, and fill in @events, with which that is
 * told. All three live as long as @head. */
void mst__head_identify(struct mst__head *head,
                        const struct mst_params *params,
                        const char *node,
                        struct mst__events *events);

/* Leave, if we are in or on our way, and end the thread. No call is under way. */
void mst__head_stop(struct mst__head *head);

/* The thread has ended: close the store of the round, and connections that nobody else has. */
void mst__head_drop_round(struct mst__head *head);

/* The thread has ended. */
void mst__head_close(struct mst__head *head);

/* The call @name was to close the rendezvous and has ended with @rv and @err: remember and tell it.
 * Returns @rv, with @err in @reterr. */
int mst__head_after_close(struct mst__head *head,
                          const char *name,
                          int rv,
                          struct mst_err *err,
                          struct mst_err *reterr);

/* The public handler of @head, whose operations are those of its own and, of the rest, those that
 * make sense with them. As mst_handler_wrap. */
int mst__head_wrap(struct mst__head *head,
                   struct mst_handler **ret_handler,
                   struct mst_err *reterr);

/* Entries of struct mst_handler_ops. @self is the handler, and so its head. */
int mst__head_leave(void *self, struct mst_err *reterr);
bool mst__head_use_agent_store(void *self);

#endif /* MST_HANDLER_HEAD_H */
