/* handler/handler.c - the public calls on a handler. Arguments and sizes are checked here; the
 * backend does the rest. */
#include "handler/handler.h"

#include <muster/backend.h>
#include <muster/legacy.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/require.h"
#include "base/sized.h"
#include "handler/head.h"
#include "handler/params.h"

struct mst_handler {
    struct mst_handler_ops ops;
    void *self;
    struct mst_params *params; /* it was made from these; NULL = not known */
    pid_t process;             /* the one that made it */
};

/* Whether @handler exists and belongs to this process: after fork, the child has no owner
 * thread. */
static bool is_ours(const struct mst_handler *handler)
{
    return handler != NULL && handler->process == getpid();
}

/* As MST_REQUIRE, and @handler must belong to this process. */
#define REQUIRE_OURS(handler, reterr)                                                         \
    do {                                                                                      \
        MST_REQUIRE(handler, reterr);                                                         \
        if (!is_ours(handler)) {                                                              \
            return mst__fail(reterr, MST_EINVAL, 0,                                           \
                             "%s with a handler that was made by another process", __func__); \
        }                                                                                     \
    } while (0)

static int unsupported(const struct mst_handler *handler, const char *what, struct mst_err *reterr)
{
    return mst__fail(reterr, MST_ENOTSUP, 0, "backend '%.60s' %s", mst_handler_backend(handler),
                     what);
}

void mst_rendezvous_init(struct mst_rendezvous *round, size_t size)
{
    mst__sized_init(round, size, NULL, 0);
}

void mst_changes_init(struct mst_changes *changes, size_t size)
{
    mst__sized_init(changes, size, NULL, 0);
}

void mst_handler_ops_init(struct mst_handler_ops *ops, size_t size)
{
    mst__sized_init(ops, size, NULL, 0);
}

void mst_failure_init(struct mst_failure *failure, size_t size)
{
    const struct mst_failure defaults = {.worker = -1};
    mst__sized_init(failure, size, &defaults, sizeof defaults);
}

int mst_handler_wrap(const struct mst_handler_ops *ops,
                     void *self,
                     struct mst_handler **ret_handler,
                     struct mst_err *reterr)
{
    MST_REQUIRE(ops, reterr);
    MST_REQUIRE(ret_handler, reterr);
    struct mst_handler_ops taken = {.size = sizeof taken}; /* missing in an older caller's = NULL */
    int rv = mst__sized_take(&taken, sizeof taken, ops, "mst_handler_ops", reterr);
    if (rv != 0) {
        return rv;
    }
    if (taken.next == NULL || taken.free == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "a handler needs at least next and free");
    }
    struct mst_handler *handler = mst__calloc(1, sizeof *handler);
    if (handler == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "handler");
    }
    handler->ops = taken;
    handler->self = self;
    handler->process = getpid();
    *ret_handler = handler;
    return 0;
}

int mst__handler_describe(struct mst_handler *handler,
                          const struct mst_params *params,
                          struct mst_err *reterr)
{
    mst_params_free(handler->params); /* set already if the creator called the registry */
    handler->params = NULL;
    return mst__params_copy(params, &handler->params, reterr);
}

const struct mst_params *mst__handler_params(const struct mst_handler *handler)
{
    return handler->params;
}

void mst_handler_free(struct mst_handler *handler)
{
    if (handler == NULL) {
        return;
    }
    if (is_ours(handler)) {
        handler->ops.free(handler->self);
    } /* in a child nothing: threads and connections are the parent's */
    mst_params_free(handler->params);
    mst__free(handler);
}

void mst_notice_free(struct mst_notice *notice)
{
    mst__free(notice);
}

static int cannot_begin(const struct mst_handler *handler, struct mst_err *reterr)
{
    return unsupported(handler, "cannot begin a round; it can wait for one", reterr);
}

int mst_handler_connect(struct mst_handler *handler, int64_t timeout_ms, struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    return handler->ops.connect == NULL ? 0
                                        : handler->ops.connect(handler->self, timeout_ms, reterr);
}

int mst_handler_linger(struct mst_handler *handler, int64_t timeout_ms, struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    return handler->ops.linger == NULL ? 0 : handler->ops.linger(handler->self, timeout_ms, reterr);
}

int mst_handler_begin(struct mst_handler *handler, int64_t timeout_ms, struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    return handler->ops.begin == NULL ? cannot_begin(handler, reterr)
                                      : handler->ops.begin(handler->self, timeout_ms, reterr);
}

int mst_handler_take(struct mst_handler *handler,
                     int64_t timeout_ms,
                     struct mst_notice **ret_notice,
                     struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    MST_REQUIRE(ret_notice, reterr);
    return handler->ops.take == NULL
               ? cannot_begin(handler, reterr)
               : handler->ops.take(handler->self, timeout_ms, ret_notice, reterr);
}

int mst_handler_await(struct mst_handler *handler,
                      int64_t timeout_ms,
                      bool *ret_is_over,
                      struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    MST_REQUIRE(ret_is_over, reterr);
    *ret_is_over = false;
    return handler->ops.await == NULL
               ? cannot_begin(handler, reterr)
               : handler->ops.await(handler->self, timeout_ms, ret_is_over, reterr);
}

int mst_handler_abandon(struct mst_handler *handler, struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    return handler->ops.abandon == NULL ? cannot_begin(handler, reterr)
                                        : handler->ops.abandon(handler->self, reterr);
}

/* Copy @found, the result of a call for a round, to the caller. */
static int give_round(int rv, struct mst_rendezvous *found, struct mst_rendezvous *ret)
{
    if (rv == 0 && ret->size < offsetof(struct mst_rendezvous, master_addr)) {
        mst_store_close(found->store); /* an older caller has no field for it */
    }
    if (rv == 0) {
        mst__sized_give(ret, found, sizeof *found);
    }
    return rv;
}

int mst_handler_round(struct mst_handler *handler,
                      struct mst_rendezvous *ret,
                      struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    MST_REQUIRE(ret, reterr);
    struct mst_rendezvous found = {.size = sizeof found};
    int rv = mst__sized_check(ret, "mst_rendezvous", reterr);
    if (rv == 0) {
        rv = handler->ops.round == NULL ? cannot_begin(handler, reterr)
                                        : handler->ops.round(handler->self, &found, reterr);
    }
    return give_round(rv, &found, ret);
}

int mst_handler_next(struct mst_handler *handler,
                     int64_t timeout_ms,
                     struct mst_rendezvous *ret,
                     struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    MST_REQUIRE(ret, reterr);
    struct mst_rendezvous found = {.size = sizeof found};
    int rv = mst__sized_check(ret, "mst_rendezvous", reterr);
    rv = rv == 0 ? handler->ops.next(handler->self, timeout_ms, &found, reterr) : rv;
    return give_round(rv, &found, ret);
}

int mst_handler_is_closed(struct mst_handler *handler, bool *ret, struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    MST_REQUIRE(ret, reterr);
    if (handler->ops.is_closed == NULL) {
        *ret = false;
        return 0;
    }
    return handler->ops.is_closed(handler->self, ret, reterr);
}

int mst_handler_set_closed(struct mst_handler *handler, struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    return handler->ops.set_closed == NULL ? 0 : handler->ops.set_closed(handler->self, reterr);
}

int mst_handler_nodes_waiting(struct mst_handler *handler, int64_t *ret, struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    MST_REQUIRE(ret, reterr);
    if (handler->ops.nodes_waiting == NULL) {
        *ret = 0;
        return 0;
    }
    return handler->ops.nodes_waiting(handler->self, ret, reterr);
}

/* The poll of a backend without changes: it waits for the whole time, so that a loop around it
 * does not spin. */
static int poll_nothing(int64_t timeout_ms, struct mst_err *reterr)
{
    int64_t deadline_ms = mst__clock_deadline_ms(timeout_ms);
    for (int64_t left_ms = timeout_ms; left_ms > 0; left_ms = mst__clock_left_ms(deadline_ms)) {
        /* If interrupted, the loop waits for the rest. */
        (void)poll(NULL, 0, left_ms > INT32_MAX ? INT32_MAX : (int)left_ms);
    }
    return mst__fail(reterr, MST_ETIMEOUT, 0, "nothing has changed");
}

int mst_handler_poll(struct mst_handler *handler,
                     int64_t timeout_ms,
                     struct mst_changes *ret,
                     struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    MST_REQUIRE(ret, reterr);
    int rv = mst__sized_check(ret, "mst_changes", reterr);
    if (rv != 0) {
        return rv;
    }
    struct mst_changes changes = {.size = sizeof changes};
    rv = handler->ops.poll == NULL ? poll_nothing(timeout_ms, reterr)
                                   : handler->ops.poll(handler->self, timeout_ms, &changes, reterr);
    if (rv == 0 || rv == MST_ETIMEOUT) {
        mst__sized_give(ret, &changes, sizeof changes);
    }
    return rv;
}

int mst_handler_fd(const struct mst_handler *handler)
{
    return !is_ours(handler) || handler->ops.fd == NULL ? -1 : handler->ops.fd(handler->self);
}

void mst_handler_cancel(struct mst_handler *handler)
{
    if (is_ours(handler) && handler->ops.cancel != NULL) {
        handler->ops.cancel(handler->self);
    }
}

const char *mst_handler_run_id(const struct mst_handler *handler)
{
    const char *run_id = NULL;
    if (handler != NULL && handler->ops.run_id != NULL) {
        run_id = handler->ops.run_id(handler->self);
    } else if (handler != NULL && handler->params != NULL) {
        run_id = mst_params_run_id(handler->params);
    }
    return run_id == NULL ? "" : run_id;
}

const char *mst_handler_backend(const struct mst_handler *handler)
{
    const char *backend = NULL;
    if (handler != NULL && handler->ops.backend != NULL) {
        backend = handler->ops.backend(handler->self);
    } else if (handler != NULL && handler->params != NULL) {
        backend = mst_params_backend(handler->params);
    }
    return backend == NULL ? "" : backend;
}

bool mst_handler_use_agent_store(const struct mst_handler *handler)
{
    return handler != NULL && handler->ops.use_agent_store != NULL &&
           handler->ops.use_agent_store(handler->self);
}

const char *mst_handler_node(const struct mst_handler *handler)
{
    const char *node = NULL;
    if (handler != NULL && handler->ops.node != NULL) {
        node = handler->ops.node(handler->self);
    }
    return node == NULL ? "" : node;
}

int mst_handler_set_extra(struct mst_handler *handler,
                          const char *name,
                          const char *json,
                          int64_t timeout_ms,
                          struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    MST_REQUIRE(name, reterr);
    MST_REQUIRE(json, reterr);
    return handler->ops.set_extra == NULL
               ? unsupported(handler, "has no extra data", reterr)
               : handler->ops.set_extra(handler->self, name, json, timeout_ms, reterr);
}

int mst_handler_get_extra(struct mst_handler *handler,
                          const char *name,
                          int64_t timeout_ms,
                          struct mst_buffer *ret_json,
                          struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    MST_REQUIRE(name, reterr);
    MST_REQUIRE(ret_json, reterr);
    return handler->ops.get_extra == NULL
               ? unsupported(handler, "has no extra data", reterr)
               : handler->ops.get_extra(handler->self, name, timeout_ms, ret_json, reterr);
}

int mst_handler_leave(struct mst_handler *handler, struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    return handler->ops.leave == NULL ? 0 : handler->ops.leave(handler->self, reterr);
}

int mst__handler_leave(struct mst_handler *handler, int64_t timeout_ms, struct mst_err *reterr)
{
    bool is_headed = is_ours(handler) && handler->ops.leave == mst__head_leave;
    return is_headed ? mst__head_leave_within(handler->self, timeout_ms, reterr)
                     : mst_handler_leave(handler, reterr);
}

int mst_handler_shutdown(struct mst_handler *handler, struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    return handler->ops.shutdown == NULL ? 0 : handler->ops.shutdown(handler->self, reterr);
}

/* --- work --- */

int mst_handler_finish(struct mst_handler *handler,
                       int status,
                       const char *text,
                       struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    return handler->ops.finish == NULL
               ? unsupported(handler, "cannot tell how work ends", reterr)
               : handler->ops.finish(handler->self, status, text == NULL ? "" : text, reterr);
}

int mst__handler_finish(struct mst_handler *handler,
                        int status,
                        const char *text,
                        int64_t timeout_ms,
                        struct mst_err *reterr)
{
    bool is_headed = is_ours(handler) && handler->ops.finish == mst__head_finish;
    return is_headed ? mst__head_finish_within(handler->self, status, text, timeout_ms, reterr)
                     : mst_handler_finish(handler, status, text, reterr);
}

int mst_handler_leaving(struct mst_handler *handler, int64_t in_ms, struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    return handler->ops.leaving == NULL
               ? unsupported(handler, "cannot tell that a node leaves", reterr)
               : handler->ops.leaving(handler->self, in_ms < 0 ? 0 : in_ms, reterr);
}

int mst__handler_leaving(struct mst_handler *handler,
                         int64_t in_ms,
                         int64_t timeout_ms,
                         struct mst_err *reterr)
{
    bool is_headed = is_ours(handler) && handler->ops.leaving == mst__head_leaving;
    return is_headed ? mst__head_leaving_within(handler->self, in_ms, timeout_ms, reterr)
                     : mst_handler_leaving(handler, in_ms, reterr);
}

int mst__handler_restart(struct mst_handler *handler,
                         const struct mst_failure *failure,
                         int64_t timeout_ms,
                         struct mst_err *reterr)
{
    bool is_headed = is_ours(handler) && handler->ops.restart == mst__head_restart;
    return is_headed ? mst__head_restart_within(handler->self, failure, timeout_ms, reterr)
                     : mst_handler_restart(handler, failure, reterr);
}

int mst_handler_restart(struct mst_handler *handler,
                        const struct mst_failure *failure,
                        struct mst_err *reterr)
{
    REQUIRE_OURS(handler, reterr);
    MST_REQUIRE(failure, reterr);
    struct mst_failure taken;
    mst_failure_init(&taken, sizeof taken);
    int rv = mst__sized_take(&taken, sizeof taken, failure, "mst_failure", reterr);
    if (rv != 0) {
        return rv;
    }
    taken.text = taken.text == NULL ? "" : taken.text;
    return handler->ops.restart == NULL ? unsupported(handler, "cannot tell how work ends", reterr)
                                        : handler->ops.restart(handler->self, &taken, reterr);
}
