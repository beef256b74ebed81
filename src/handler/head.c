/* handler/head.c - the calls that are the same for all handlers. */
#include "handler/head.h"

#include "base/err.h"
#include "handler/work.h"

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

void mst__head_close(struct mst__head *head)
{
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

int mst__head_next(void *self, struct mst_rendezvous *ret, struct mst_err *reterr)
{
    struct mst__head *head = self;
    struct mst_err err = {0};
    mst__event_joining(head->events);
    int rv = head->ops->next(self, ret, &err);
    if (rv != 0) {
        return mst__event_failed(head->events, "next_rendezvous", rv, &err, reterr);
    }
    mst__event_joined(head->events, ret);
    return 0;
}

/* The present state: what the owner knows, and without a round by asking. */
static int look(struct mst__head *head,
                const char *name,
                bool *ret_closed,
                int64_t *ret_waiting,
                struct mst_err *reterr)
{
    struct mst_err err = {0};
    struct mst_changes changes;
    bool is_joined;
    int rv = mst__view_get(&head->view, &is_joined, &changes, &err);
    if (rv == 0 && is_joined) {
        *ret_closed = changes.closed;
        *ret_waiting = changes.nodes_waiting;
    } else if (rv == 0) {
        rv = head->ops->look(head, ret_closed, ret_waiting, &err);
    }
    return rv == 0 ? 0 : mst__event_failed(head->events, name, rv, &err, reterr);
}

int mst__head_is_closed(void *self, bool *ret, struct mst_err *reterr)
{
    int64_t waiting;
    return look(self, "is_closed", ret, &waiting, reterr);
}

int mst__head_nodes_waiting(void *self, int64_t *ret, struct mst_err *reterr)
{
    bool is_closed;
    return look(self, "num_nodes_waiting", &is_closed, ret, reterr);
}

int mst__head_leave(void *self, struct mst_err *reterr)
{
    struct mst__head *head = self;
    struct mst_err err = {0};
    int rv = head->ops->leave(self, &err);
    return rv == 0 ? 0 : mst__event_failed(head->events, "leave", rv, &err, reterr);
}

static int say(struct mst__head *head,
               const char *name,
               struct mst__word *word,
               struct mst_err *reterr)
{
    struct mst_err err = {0};
    int rv = mst__owner_begin(&head->owner, true, &err);
    if (rv == 0) {
        rv = mst__owner_run(&head->owner, head->ops->say, word, &err);
        mst__owner_end(&head->owner);
    }
    if (rv != 0) {
        return mst__event_failed(head->events, name, rv, &err, reterr);
    }
    mst__event(head->events, name, word->is_finish ? MST_NODE_SUCCEEDED : MST_NODE_FAILED, -1, -1,
               "The work of node '%s' for rendezvous '%s' %s%s%s.", head->events->node,
               head->events->run_id, word->is_finish ? "is done" : "has failed",
               word->text[0] == '\0' ? "" : ": ", word->text);
    return 0;
}

int mst__head_finish(void *self, int status, const char *text, struct mst_err *reterr)
{
    struct mst__word word;
    mst__word_finish(&word, status, text);
    return say(self, "finish", &word, reterr);
}

int mst__head_restart(void *self, const struct mst_failure *failure, struct mst_err *reterr)
{
    struct mst__word word;
    mst__word_restart(&word, failure);
    return say(self, "restart", &word, reterr);
}

/* --- what the head knows --- */

int mst__head_poll(void *self, int64_t timeout_ms, struct mst_changes *ret, struct mst_err *reterr)
{
    return mst__view_poll(&((struct mst__head *)self)->view, timeout_ms, ret, reterr);
}

int mst__head_fd(void *self)
{
    return ((struct mst__head *)self)->owner.news_fd;
}

void mst__head_cancel(void *self)
{
    mst__owner_cancel(&((struct mst__head *)self)->owner);
}

const char *mst__head_backend(void *self)
{
    return ((struct mst__head *)self)->params->backend;
}

const char *mst__head_run_id(void *self)
{
    return ((struct mst__head *)self)->params->run_id;
}

const char *mst__head_node(void *self)
{
    return ((struct mst__head *)self)->events->node;
}

bool mst__head_use_agent_store(void *self)
{
    const struct mst__bootstrap *bootstrap = ((struct mst__head *)self)->bootstrap;
    return bootstrap != NULL && bootstrap->is_shared;
}
