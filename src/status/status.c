/* status/status.c - the public calls: a look, a watch, closing. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/require.h"
#include "handler/handler.h"
#include "handler/params.h"
#include "handler/registry.h"
#include "status/look.h"

/* A look that is kept open. */
struct mst_status_watch {
    const struct mst__look_ops *ops;
    void *self; /* NULL = not open */
    struct mst_params *params;
    int64_t nodes_min, nodes_max;
    bool has_seen;
    uint64_t seen; /* the mark of the last report */
};

/* How a job of @backend is looked at. */
static int find_ops(const char *backend,
                    const struct mst__look_ops **ret_ops,
                    struct mst_err *reterr)
{
    int rv = mst__backend_look(backend, ret_ops, reterr);
    if (rv != 0 || *ret_ops != NULL) {
        return rv;
    }
    if (mst__backend_can(backend, MST_BACKEND_GIVEN)) {
        return mst__fail(reterr, MST_ENOTSUP, 0,
                         "a rendezvous of backend '%.60s' has no record: rank and size of every "
                         "node are given",
                         backend);
    }
    *ret_ops = &mst__look_handler;
    return 0;
}

int mst__look_absent(const struct mst_params *params,
                     const char *summary,
                     struct mst__snapshot **ret_snapshot,
                     struct mst_err *reterr)
{
    struct mst__snapshot *snapshot =
        mst__snapshot_new(mst_params_backend(params), mst_bytes_str(mst_params_run_id(params)));
    if (snapshot != NULL) {
        snapshot->status.summary = mst__snapshot_text(snapshot, mst_bytes_str(summary));
    }
    if (snapshot == NULL || snapshot->code != 0) {
        mst__snapshot_free(snapshot);
        return mst__fail(reterr, MST_ENOMEM, 0, "status");
    }
    *ret_snapshot = snapshot;
    return 0;
}

/* --- watching --- */

static void watch_disconnect(struct mst_status_watch *watch)
{
    if (watch->self != NULL) {
        watch->ops->close(watch->self);
        watch->self = NULL;
    }
}

static int watch_look(struct mst_status_watch *watch,
                      int64_t timeout_ms,
                      struct mst__snapshot **ret_snapshot,
                      struct mst_err *reterr)
{
    int rv = 0;
    if (watch->self == NULL) {
        rv = watch->ops->open(watch->params, watch->nodes_min, watch->nodes_max, &watch->self,
                              reterr);
    }
    if (rv == 0) {
        rv = watch->ops->read(watch->self, timeout_ms, ret_snapshot, reterr);
        if (rv != 0) {
            watch_disconnect(watch); /* reopened next time */
        }
    }
    return rv;
}

int mst_status_watch_new(const struct mst_params *params,
                         struct mst_status_watch **ret_watch,
                         struct mst_err *reterr)
{
    MST_REQUIRE(params, reterr);
    MST_REQUIRE(ret_watch, reterr);
    struct mst_status_watch *watch = mst__calloc(1, sizeof *watch);
    if (watch == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "a look at a rendezvous");
    }
    int rv = find_ops(mst_params_backend(params), &watch->ops, reterr);
    if (rv == 0) {
        rv = mst__params_copy(params, &watch->params, reterr);
    }
    if (rv == 0) {
        watch->nodes_min = mst_params_nodes_min(params);
        watch->nodes_max = mst_params_nodes_max(params);
        if (watch->nodes_max == 0) {
            /* The parser of the options needs limits. */
            rv = mst_params_set_nodes(watch->params, 1, 1, reterr);
        }
    }
    if (rv == 0) {
        rv = watch->ops->open(watch->params, watch->nodes_min, watch->nodes_max, &watch->self,
                              reterr);
    }
    if (rv != 0) {
        mst_status_watch_free(watch);
        return rv;
    }
    *ret_watch = watch;
    return 0;
}

void mst_status_watch_free(struct mst_status_watch *watch)
{
    if (watch != NULL) {
        watch_disconnect(watch);
        mst_params_free(watch->params);
        mst__free(watch);
    }
}

int mst_status_watch_next(struct mst_status_watch *watch,
                          int64_t interval_ms,
                          int64_t look_ms,
                          int64_t timeout_ms,
                          struct mst_status **ret_status,
                          struct mst_err *reterr)
{
    MST_REQUIRE(watch, reterr);
    MST_REQUIRE(ret_status, reterr);
    int64_t deadline_ms = timeout_ms < 0 ? INT64_MAX : mst__clock_deadline_ms(timeout_ms);
    for (;;) {
        struct mst__snapshot *snapshot = NULL;
        int rv = watch_look(watch, look_ms, &snapshot, reterr);
        if (rv != 0) {
            return rv;
        }
        uint64_t mark = mst__snapshot_mark(&snapshot->status);
        if (!watch->has_seen || mark != watch->seen) {
            watch->has_seen = true;
            watch->seen = mark;
            *ret_status = &snapshot->status;
            return 0;
        }
        mst__snapshot_free(snapshot);
        int64_t left_ms = mst__clock_left_ms(deadline_ms);
        if (left_ms <= 0) {
            return mst__fail(reterr, MST_ETIMEOUT, 0, "nothing has changed");
        }
        int64_t pause_ms = mst__min(interval_ms, left_ms);
        (void)poll(NULL, 0, pause_ms > 60000 ? 60000 : (int)pause_ms); /* may wake early */
    }
}

/* --- one look --- */

int mst_status_job(const struct mst_params *params,
                   int64_t timeout_ms,
                   struct mst_status **ret_status,
                   struct mst_err *reterr)
{
    MST_REQUIRE(params, reterr);
    MST_REQUIRE(ret_status, reterr);
    struct mst_status_watch *watch = NULL;
    struct mst__snapshot *snapshot = NULL;
    int rv = mst_status_watch_new(params, &watch, reterr);
    if (rv == 0) {
        rv = watch_look(watch, timeout_ms, &snapshot, reterr);
    }
    mst_status_watch_free(watch);
    if (rv == 0) {
        *ret_status = &snapshot->status;
    }
    return rv;
}

int mst_status_members(const struct mst_params *params,
                       const struct mst_rendezvous *round,
                       int64_t timeout_ms,
                       struct mst_status **ret_status,
                       struct mst_err *reterr)
{
    MST_REQUIRE(params, reterr);
    MST_REQUIRE(round, reterr);
    MST_REQUIRE(ret_status, reterr);
    struct mst_status *status = NULL;
    int rv = mst_status_job(params, timeout_ms, &status, reterr);
    if (rv == 0 &&
        !mst__snapshot_keep_round(mst__snapshot_of(status), round->epoch, round->round)) {
        rv = mst__fail(reterr, MST_ESTATE, 0,
                       "rendezvous '%.60s' is not in round %lld any more: %.60s",
                       mst_params_run_id(params), (long long)round->round, status->summary);
    }
    if (rv != 0) {
        mst_status_free(status);
        return rv;
    }
    *ret_status = status;
    return 0;
}

int mst_handler_members(struct mst_handler *handler,
                        int64_t timeout_ms,
                        struct mst_status **ret_status,
                        struct mst_err *reterr)
{
    MST_REQUIRE(handler, reterr);
    MST_REQUIRE(ret_status, reterr);
    struct mst_rendezvous round;
    mst_rendezvous_init(&round, sizeof round);
    int rv = mst_handler_round(handler, &round, reterr);
    if (rv != 0) {
        return rv;
    }
    mst_store_close(round.store);
    const struct mst_params *params = mst__handler_params(handler);
    return params == NULL ? mst__fail(reterr, MST_ENOTSUP, 0, "a handler without parameters")
                          : mst_status_members(params, &round, timeout_ms, ret_status, reterr);
}

/* --- closing --- */

/* Defaults for missing options of the backend: be quick, and do not serve a store. */
static int set_defaults(struct mst_params *params, int64_t timeout_ms, struct mst_err *reterr)
{
    static const char *const timeouts[] = {"join_timeout", "close_timeout", "read_timeout"};
    const char *backend = mst_params_backend(params);
    char text[32];
    (void)snprintf(text, sizeof text, "%lldms", (long long)timeout_ms); /* fits */
    int rv = 0;
    if (mst__backend_has_option(backend, "serve")) {
        rv = mst_params_set(params, "serve", "never", reterr);
    }
    for (size_t i = 0; i < sizeof timeouts / sizeof timeouts[0] && rv == 0; i++) {
        if (mst__backend_has_option(backend, timeouts[i]) &&
            mst_params_text(params, timeouts[i], NULL) == NULL) {
            rv = mst_params_set(params, timeouts[i], text, reterr);
        }
    }
    return rv;
}

static int close_by_handler(struct mst_params *params, int64_t timeout_ms, struct mst_err *reterr)
{
    struct mst_handler *handler = NULL;
    int rv = set_defaults(params, timeout_ms, reterr);
    if (rv == 0) {
        rv = mst_handler_new(params, &handler, reterr);
    }
    if (rv == 0) {
        rv = mst_handler_set_closed(handler, reterr);
    }
    mst_handler_free(handler);
    return rv;
}

int mst_status_close(const struct mst_params *params,
                     const char *reason,
                     const char *owner,
                     int64_t timeout_ms,
                     struct mst_err *reterr)
{
    MST_REQUIRE(params, reterr);
    struct mst_status_watch *watch = NULL;
    struct mst__snapshot *snapshot = NULL;
    int rv = mst_status_watch_new(params, &watch, reterr);
    if (rv == 0 && watch->ops->shut == NULL && reason != NULL) {
        rv = mst__fail(reterr, MST_ENOTSUP, 0, "backend '%.40s' cannot store a reason",
                       mst_params_backend(params));
    }
    if (rv == 0) {
        /* A misspelt id should not make a new rendezvous. */
        rv = watch_look(watch, timeout_ms, &snapshot, reterr);
    }
    if (rv == 0 && !snapshot->status.exists) {
        rv = mst__fail(reterr, MST_ENOTFOUND, 0, "there is no rendezvous '%.60s' at '%.80s': %s",
                       mst_params_run_id(params), mst_params_endpoint(params),
                       snapshot->status.summary);
    }
    if (rv == 0 && watch->ops->shut != NULL) {
        rv = watch->ops->shut(watch->self, reason == NULL ? "" : reason, owner == NULL ? "" : owner,
                              timeout_ms, reterr);
    } else if (rv == 0) {
        rv = close_by_handler(watch->params, timeout_ms, reterr);
    }
    mst__snapshot_free(snapshot);
    mst_status_watch_free(watch);
    return rv;
}
