/* handler/head.c - the calls that all handlers share. */
#include "handler/head.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/number.h"
#include "handler/work.h"
#include "store/store.h"

/* Time to leave when the application frees a handler without leaving. */
#define LEAVE_MS_MAX 2000

/* Time to leave when the owner was busy for as long as leaving may take: most do it in one call. */
#define LEAVE_MS_MIN 200

int mst__head_init(struct mst__head *head,
                   const struct mst__head_ops *ops,
                   mst__owner_watch_fn watch,
                   void *self,
                   struct mst_err *reterr)
{
    *head = (struct mst__head){.ops = ops};
    mst__view_init(&head->view, &head->owner);
    return mst__owner_init(&head->owner, watch, self, reterr);
}

void mst__head_identify(struct mst__head *head,
                        const struct mst_params *params,
                        const char *node,
                        struct mst__events *events)
{
    *events = (struct mst__events){
        .fn = params->on_event,
        .arg = params->on_event_arg,
        .run_id = params->run_id,
        .node = node,
    };
    head->params = params;
    head->events = events;
}

void mst__head_stop(struct mst__head *head)
{
    bool was_begun = head->owner.has_thread && mst__owner_withdraw(&head->owner);
    (void)was_begun; /* a round that completed meanwhile is left below */
    bool can_leave = head->ops->leave != NULL && !mst__view_is_old(&head->view);
    if (can_leave && mst__owner_try_begin(&head->owner)) {
        int64_t timeout_ms = head->leave_ms < LEAVE_MS_MAX ? head->leave_ms : LEAVE_MS_MAX;
        struct mst_err ignored; /* our entry expires */
        (void)mst__owner_run(&head->owner, head->ops->leave, &timeout_ms, &ignored);
        mst__owner_end(&head->owner);
    }
    mst__owner_stop(&head->owner);
}

void mst__head_drop_round(struct mst__head *head)
{
    mst_store_close(head->round.store);
    head->round.store = NULL;
}

void mst__head_close(struct mst__head *head)
{
    mst__head_drop_round(head);
    mst__view_close(&head->view);
    mst__owner_close(&head->owner);
}

int mst__head_after_close(struct mst__head *head,
                          const char *name,
                          int rv,
                          struct mst_err *err,
                          struct mst_err *reterr)
{
    if (rv != 0) {
        return mst__event_failed(head->events, name, rv, err, reterr);
    }
    mst__view_set_closed(&head->view);
    mst__event_closed(head->events, name);
    return 0;
}

/* --- calls with a part of the handler's own --- */

/* Whether a round is begun now. If another thread begins one after this look, a task of ours comes
 * before it or waits for its end. */
static bool is_begun(struct mst__head *head)
{
    mst__owner_lock(&head->owner);
    bool is_begun = head->owner.is_begun;
    mst__owner_unlock(&head->owner);
    return is_begun;
}

static int head_connect(void *self, int64_t timeout_ms, struct mst_err *reterr)
{
    struct mst__head *head = self;
    struct mst__until until = mst__until_by(head->owner.cancel_fd, timeout_ms);
    int rv = mst__owner_begin(&head->owner, true, reterr);
    if (rv != 0) {
        return rv;
    }
    if (!is_begun(head)) {
        rv = mst__owner_run(&head->owner, head->ops->connect, &until, reterr);
    } /* else it is about to connect */
    mst__owner_end(&head->owner);
    return rv;
}

/* Enter the begun round. A task. */
static int join_round(void *self, void *unused, struct mst_err *unused_err)
{
    struct mst__head *head = self;
    struct mst_err err = {0};
    struct mst_err told = {0};
    struct mst_rendezvous round = {.size = sizeof round};
    (void)unused;
    (void)unused_err; /* errors become a notice */
    mst__view_reset(&head->view);
    mst__event_joining(head->events);
    int rv = mst__owner_is_cancelled(&head->owner)
                 ? mst__owner_fail_cancelled(&err)
                 : head->ops->join(self, head->timeout_ms, &round, &err);
    if (rv != 0) {
        rv = mst__event_failed(head->events, "next_rendezvous", rv, &err, &told);
    } else {
        mst__event_joined(head->events, &round);
    }
    mst__owner_lock(&head->owner);
    struct mst_store *store = head->round.store;
    head->round = round;
    head->rv = rv;
    head->err = told;
    head->owner.is_joined = rv == 0;
    mst__owner_unlock(&head->owner);
    mst_store_close(store);
    return rv;
}

static void tell_round(void *self)
{
    struct mst__head *head = self;
    if (head->rv == 0) {
        mst__view_complete(&head->view, head->round.round);
    } else {
        mst__view_fail(&head->view, &head->err);
    }
}

static int head_begin(void *self, int64_t timeout_ms, struct mst_err *reterr)
{
    struct mst__head *head = self;
    mst__owner_lock(&head->owner);
    if (!head->owner.is_begun) {
        head->timeout_ms = timeout_ms;
    }
    mst__owner_unlock(&head->owner);
    return mst__owner_want(&head->owner, join_round, tell_round, reterr);
}

static int head_round(void *self, struct mst_rendezvous *ret, struct mst_err *reterr)
{
    struct mst__head *head = self;
    mst__owner_lock(&head->owner);
    const struct mst_store *store = head->round.store;
    int rv = store == NULL || !head->owner.is_joined
                 ? mst__fail(reterr, MST_EINVAL, 0, "no round is joined")
                 : 0;
    if (rv == 0) {
        size_t size = ret->size;
        *ret = head->round;
        ret->size = size;
        rv = mst__store_copy(store, store->storage, &ret->store, reterr);
    }
    mst__owner_unlock(&head->owner);
    return rv;
}

/* Withdraw the begun round, and leave it if it completed before the application was told. */
static int withdraw(struct mst__head *head, struct mst_err *reterr)
{
    int rv = mst__owner_begin(&head->owner, false, reterr);
    MST_ASSERT(rv == 0); /* it cannot be cancelled */
    bool was_begun = mst__owner_withdraw(&head->owner);
    if (mst__view_forget(&head->view) || was_begun) {
        mst__owner_lock(&head->owner);
        bool is_joined = head->owner.is_joined;
        mst__owner_unlock(&head->owner);
        if (is_joined && head->ops->leave != NULL) {
            rv = mst__owner_run(&head->owner, head->ops->leave, &head->leave_ms, reterr);
        }
    }
    mst__owner_end(&head->owner);
    return rv;
}

static int head_abandon(void *self, struct mst_err *reterr)
{
    return withdraw(self, reterr);
}

static int head_await(void *self, int64_t timeout_ms, bool *ret_is_over, struct mst_err *reterr)
{
    struct mst__head *head = self;
    int rv = mst__owner_await_begun(&head->owner, timeout_ms, reterr);
    *ret_is_over = rv == 0;
    if (rv != 0) {
        return rv;
    }
    (void)mst__view_forget(&head->view); /* other threads that wait may have done so */
    mst__owner_lock(&head->owner);
    (void)mst__mem_fault_swap(head->owner.begun.fault); /* see mst__owner_want */
    if (head->rv != 0) {
        rv = mst__err_pass(reterr, head->rv, &head->err);
    } else if (!head->owner.is_joined) {
        rv = mst__fail(reterr, MST_EINVAL, 0, "no round is begun");
    }
    mst__owner_unlock(&head->owner);
    return rv;
}

static int head_next(void *self,
                     int64_t timeout_ms,
                     struct mst_rendezvous *ret,
                     struct mst_err *reterr)
{
    struct mst__head *head = self;
    bool is_over = true;
    int rv = head_begin(self, timeout_ms, reterr);
    rv = rv == 0 ? head_await(self, INT64_MAX, &is_over, reterr) : rv;
    if (!is_over) {
        struct mst_err ignored; /* we were cancelled, and our entry expires */
        (void)withdraw(head, &ignored);
        mst__owner_lock(&head->owner);
        if (head->rv == rv) {
            (void)mst__err_pass(reterr, rv, &head->err); /* names the rendezvous already */
        }
        mst__owner_unlock(&head->owner);
    }
    return rv == 0 ? head_round(self, ret, reterr) : rv;
}

static int head_take(void *self,
                     int64_t timeout_ms,
                     struct mst_notice **ret_notice,
                     struct mst_err *reterr)
{
    return mst__view_take(&((struct mst__head *)self)->view, timeout_ms, ret_notice, reterr);
}

/* The present state: from the owner, or without a round by a request. */
static int look(struct mst__head *head,
                const char *name,
                bool *ret_closed,
                int64_t *ret_waiting,
                struct mst_err *reterr)
{
    struct mst_err err = {0};
    struct mst_changes changes;
    if (mst__view_get(&head->view, &changes)) {
        *ret_closed = changes.closed;
        *ret_waiting = changes.nodes_waiting;
        return 0;
    }
    int rv = head->ops->look(head, ret_closed, ret_waiting, &err);
    return rv == 0 ? 0 : mst__event_failed(head->events, name, rv, &err, reterr);
}

static int head_is_closed(void *self, bool *ret, struct mst_err *reterr)
{
    int64_t waiting;
    return look(self, "is_closed", ret, &waiting, reterr);
}

static int head_nodes_waiting(void *self, int64_t *ret, struct mst_err *reterr)
{
    bool is_closed;
    return look(self, "num_nodes_waiting", &is_closed, ret, reterr);
}

/* Leave until @arg, an int64_t of milliseconds of the clock. A task. */
static int leave_by(void *self, void *arg, struct mst_err *reterr)
{
    struct mst__head *head = self;
    const int64_t *deadline_ms = arg;
    int64_t left_ms = mst__max(mst__clock_left_ms(*deadline_ms), LEAVE_MS_MIN);
    return head->ops->leave(self, &left_ms, reterr);
}

int mst__head_leave_within(void *self, int64_t timeout_ms, struct mst_err *reterr)
{
    struct mst__head *head = self;
    struct mst_err err = {0};
    int64_t deadline_ms = mst__clock_deadline_ms(timeout_ms);
    int rv = mst__owner_begin(&head->owner, false, &err);
    MST_ASSERT(rv == 0);                     /* it cannot be cancelled */
    (void)mst__owner_withdraw(&head->owner); /* whether there was one does not matter */
    (void)mst__view_forget(&head->view);
    rv = mst__owner_run(&head->owner, leave_by, &deadline_ms, &err);
    mst__owner_end(&head->owner);
    return rv == 0 ? 0 : mst__event_failed(head->events, "leave", rv, &err, reterr);
}

int mst__head_leave(void *self, struct mst_err *reterr)
{
    return mst__head_leave_within(self, ((struct mst__head *)self)->leave_ms, reterr);
}

/* A node that is still a member would wait for itself. */
static int head_linger(void *self, int64_t timeout_ms, struct mst_err *reterr)
{
    struct mst__head *head = self;
    struct mst_err ignored; /* our entry expires */
    if (!head->ops->serves(self)) {
        return 0;
    }
    (void)mst__head_leave(self, &ignored);
    return head->ops->linger(self, timeout_ms, reterr);
}

static int say(struct mst__head *head,
               const char *name,
               struct mst__word *word,
               struct mst_err *reterr)
{
    struct mst_err err = {0};
    int rv = mst__owner_begin(&head->owner, true, &err);
    if (rv == 0) {
        rv = is_begun(head) ? mst__fail(&err, MST_EINVAL, 0, "another round has begun")
                            : mst__owner_run(&head->owner, head->ops->say, word, &err);
        mst__owner_end(&head->owner);
    }
    if (rv != 0) {
        return mst__event_failed(head->events, name, rv, &err, reterr);
    }
    if (word->is_leaving) {
        mst__event(head->events, name, MST_NODE_RUNNING, -1, -1,
                   "Node '%s' is about to leave rendezvous '%s'.", head->events->node,
                   head->events->run_id);
        return 0;
    }
    mst__event(head->events, name, word->is_finish ? MST_NODE_SUCCEEDED : MST_NODE_FAILED, -1, -1,
               "The work of node '%s' for rendezvous '%s' %s%s%s.", head->events->node,
               head->events->run_id, word->is_finish ? "is done" : "has failed",
               word->text[0] == '\0' ? "" : ": ", word->text);
    return 0;
}

int mst__head_leaving_within(void *self, int64_t in_ms, int64_t timeout_ms, struct mst_err *reterr)
{
    struct mst__word word;
    mst__word_leaving(&word, in_ms);
    word.limit_ms = timeout_ms;
    return say(self, "leaving", &word, reterr);
}

int mst__head_leaving(void *self, int64_t in_ms, struct mst_err *reterr)
{
    return mst__head_leaving_within(self, in_ms, INT64_MAX, reterr);
}

int mst__head_finish_within(void *self,
                            int status,
                            const char *text,
                            int64_t timeout_ms,
                            struct mst_err *reterr)
{
    struct mst__word word;
    mst__word_finish(&word, status, text);
    word.limit_ms = timeout_ms;
    return say(self, "finish", &word, reterr);
}

int mst__head_finish(void *self, int status, const char *text, struct mst_err *reterr)
{
    return mst__head_finish_within(self, status, text, INT64_MAX, reterr);
}

int mst__head_restart_within(void *self,
                             const struct mst_failure *failure,
                             int64_t timeout_ms,
                             struct mst_err *reterr)
{
    struct mst__word word;
    mst__word_restart(&word, failure);
    word.limit_ms = timeout_ms;
    return say(self, "restart", &word, reterr);
}

int mst__head_restart(void *self, const struct mst_failure *failure, struct mst_err *reterr)
{
    return mst__head_restart_within(self, failure, INT64_MAX, reterr);
}

/* --- what the head knows --- */

static int head_poll(void *self,
                     int64_t timeout_ms,
                     struct mst_changes *ret,
                     struct mst_err *reterr)
{
    return mst__view_poll(&((struct mst__head *)self)->view, timeout_ms, ret, reterr);
}

static int head_fd(void *self)
{
    return ((struct mst__head *)self)->owner.news_fd;
}

static void head_cancel(void *self)
{
    mst__owner_cancel(&((struct mst__head *)self)->owner);
}

static const char *head_backend(void *self)
{
    return ((struct mst__head *)self)->params->backend;
}

static const char *head_run_id(void *self)
{
    return ((struct mst__head *)self)->params->run_id;
}

static const char *head_node(void *self)
{
    return ((struct mst__head *)self)->events->node;
}

bool mst__head_use_agent_store(void *self)
{
    const struct mst__bootstrap *bootstrap = ((struct mst__head *)self)->bootstrap;
    return bootstrap != NULL && bootstrap->is_shared;
}

/* --- making one --- */

int mst__head_wrap(struct mst__head *head, struct mst_handler **ret_handler, struct mst_err *reterr)
{
    const struct mst__head_ops *own = head->ops;
    bool can_look = own->look != NULL;
    bool can_say = own->say != NULL;
    const struct mst_handler_ops ops = {
        .size = sizeof ops,
        .next = head_next,
        .free = own->free,
        .backend = head_backend,
        .run_id = head_run_id,
        .is_closed = can_look ? head_is_closed : NULL,
        .set_closed = own->set_closed,
        .nodes_waiting = can_look ? head_nodes_waiting : NULL,
        .poll = head_poll,
        .fd = head_fd,
        .cancel = head_cancel,
        .use_agent_store = own->use_agent_store,
        .shutdown = own->shutdown,
        .leave = own->leave != NULL ? mst__head_leave : NULL,
        .node = head_node,
        .set_extra = own->set_extra,
        .get_extra = own->get_extra,
        .finish = can_say ? mst__head_finish : NULL,
        .restart = can_say ? mst__head_restart : NULL,
        .leaving = can_say ? mst__head_leaving : NULL,
        .begin = head_begin,
        .take = head_take,
        .round = head_round,
        .abandon = head_abandon,
        .await = head_await,
        .connect = own->connect != NULL ? head_connect : NULL,
        .linger = own->linger != NULL ? head_linger : NULL,
    };
    return mst_handler_wrap(&ops, head, ret_handler, reterr);
}
