/* handler/head.h - the first member of every handler: the owner of its machine, its view, its
 * events, and the calls that all handlers share. */
#ifndef MST_HANDLER_HEAD_H
#define MST_HANDLER_HEAD_H

#include <muster/backend.h>

#include "handler/bootstrap.h"
#include "handler/events.h"
#include "handler/owner.h"
#include "handler/params.h"
#include "handler/view.h"

/* The operations of a handler: parts of calls, whose errors the caller reports as events, and
 * whole calls, which are entries of struct mst_handler_ops. */
struct mst__head_ops {
    /* Join the next round within @timeout_ms; below 0, within the time that the options give. A
     * task. If it is cancelled it ends soon, and the node is in no round. */
    int (*join)(void *self, int64_t timeout_ms, struct mst_rendezvous *ret, struct mst_err *reterr);
    /* Connect before the first round, until a struct mst__until. A task. NULL = nothing to do. */
    mst__owner_task_fn connect;
    /* Request the present state. No round is joined, so the owner does not watch it. */
    int (*look)(void *self, bool *ret_closed, int64_t *ret_waiting, struct mst_err *reterr);
    /* Leave the round, if there is one, within an int64_t of milliseconds. A task. NULL =
     * nothing to leave. */
    mst__owner_task_fn leave;
    /* Report a struct mst__word. A task. MST_EINVAL without a round. */
    mst__owner_task_fn say;
    /* Whether this node serves others, and the call to serve until no node needs it; the node is in
     * no round then. Both NULL = it serves nobody. */
    bool (*serves)(void *self);
    int (*linger)(void *self, int64_t timeout_ms, struct mst_err *reterr);
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
    const struct mst__head_ops *ops; /* NULL = only the view and cancelling are used */
    struct mst__owner owner;
    struct mst__view view;
    int64_t leave_ms; /* how long leaving may take; the handler's own */

    /* With the owner's lock: the begun round and the joined round. */
    int64_t timeout_ms;
    struct mst_rendezvous round; /* its store is NULL: no round */
    int rv;                      /* result of the last begun round */
    struct mst_err err;

    /* The handler's own, see mst__head_identify. */
    const struct mst_params *params;
    const struct mst__events *events;
    const struct mst__bootstrap *bootstrap; /* NULL = agents share no store with their workers */
};

/* @watch and @self are as in mst__owner_init. Returns 0 or MST_ESYS; @head must be closed in
 * both cases. */
int mst__head_init(struct mst__head *head,
                   const struct mst__head_ops *ops,
                   mst__owner_watch_fn watch,
                   void *self,
                   struct mst_err *reterr);

/* Set the identity: node @node of the rendezvous @params. Fills in @events. All three must
 * outlive @head. */
void mst__head_identify(struct mst__head *head,
                        const struct mst_params *params,
                        const char *node,
                        struct mst__events *events);

/* Leave the round, or stop entering one, and end the thread. No call may be under way. */
void mst__head_stop(struct mst__head *head);

/* Close the store of the round and the connections that only it uses. The thread must have
 * ended. */
void mst__head_drop_round(struct mst__head *head);

/* The thread must have ended. */
void mst__head_close(struct mst__head *head);

/* The call @name closes the rendezvous and has ended with @rv and @err: publish the result and
 * send the event. Returns @rv, with @err in @reterr. */
int mst__head_after_close(struct mst__head *head,
                          const char *name,
                          int rv,
                          struct mst_err *err,
                          struct mst_err *reterr);

/* The public handler of @head, with the operations in its ops and those that can be built from
 * them. See mst_handler_wrap. */
int mst__head_wrap(struct mst__head *head,
                   struct mst_handler **ret_handler,
                   struct mst_err *reterr);

/* Entries of struct mst_handler_ops. @self is the handler; its head is its first member. */
int mst__head_leave(void *self, struct mst_err *reterr);

int mst__head_finish(void *self, int status, const char *text, struct mst_err *reterr);
int mst__head_restart(void *self, const struct mst_failure *failure, struct mst_err *reterr);
int mst__head_leaving(void *self, int64_t in_ms, struct mst_err *reterr);

/* The same within @timeout_ms, if the handler does not allow less. */
int mst__head_leave_within(void *self, int64_t timeout_ms, struct mst_err *reterr);
int mst__head_finish_within(void *self,
                            int status,
                            const char *text,
                            int64_t timeout_ms,
                            struct mst_err *reterr);
int mst__head_leaving_within(void *self, int64_t in_ms, int64_t timeout_ms, struct mst_err *reterr);
int mst__head_restart_within(void *self,
                             const struct mst_failure *failure,
                             int64_t timeout_ms,
                             struct mst_err *reterr);

/* An entry of struct mst_handler_ops as well. */
bool mst__head_use_agent_store(void *self);

#endif /* MST_HANDLER_HEAD_H */
