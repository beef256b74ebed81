/* cli/close.c - `muster close`: nobody can join a rendezvous any more. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/look_job.h"
#include "cli/rdzv.h"

#define COMMAND "muster close"

static const char close_text[] =
    "Mark a rendezvous as closed, for good and for everybody: who waits to join it and who tries "
    "to "
    "is told so. Those who are in a round stay in it. It has to exist; closing it again does no "
    "harm.\n"
    "Exit status: 0 it is closed, 1 failed, 2 wrong arguments, 3 there is none, 4 timeout, 5 no "
    "connection, 10 what is stored is no rendezvous.";

/* Whether there is something to close; a misspelt id should not make a new rendezvous. */
static int check_exists(const struct mst_params *params, int64_t timeout_ms, struct mst_err *reterr)
{
    struct mst__look look = {0};
    int rv = mst__look_open(&look, params, timeout_ms, reterr);
    if (rv == 0) {
        rv = mst__look_read(&look, timeout_ms, NULL, reterr);
    }
    if (rv == 0 && !look.exists) {
        rv = mst__fail(reterr, MST_ENOTFOUND, 0, "there is no rendezvous '%.60s' at '%.80s'",
                       mst_params_run_id(params), mst_params_endpoint(params));
    }
    mst__look_close(&look);
    return rv;
}

/* Options of the backend that were not given: be quick, and do not serve a store. */
static int set_defaults(struct mst_params *params, int64_t timeout_ms, struct mst_err *reterr)
{
    static const char *const timeouts[] = {"join_timeout", "close_timeout", "read_timeout"};
    const char *backend = mst_params_backend(params);
    char text[32];
    (void)snprintf(text, sizeof text, "%lldms", (long long)timeout_ms); /* fits */
    int rv = 0;
    if (strcmp(backend, "c10d") == 0) {
        rv = mst_params_set(params, "serve", "never", reterr);
    }
    /* The legacy handler has the last of these alone. */
    size_t i = strcmp(backend, "etcd") == 0 ? 2 : 0;
    for (; i < sizeof timeouts / sizeof timeouts[0] && rv == 0; i++) {
        if (mst_params_text(params, timeouts[i], NULL) == NULL) {
            rv = mst_params_set(params, timeouts[i], text, reterr);
        }
    }
    return rv;
}

/* The authority keeps the reason. */
static int close_job(const struct mst__rdzv *rdzv,
                     const struct mst_params *params,
                     const char *reason,
                     int64_t timeout_ms)
{
    struct mst_err err;
    int rv = mst__look_job_shut(params, reason == NULL ? "asked to by muster close" : reason,
                                timeout_ms, &err);
    return rv == 0 ? MST_EXIT_OK : mst__rdzv_fail(rdzv, params, &err);
}

static int close_with(const struct mst__rdzv *rdzv,
                      struct mst_params *params,
                      const char *reason,
                      int64_t timeout_ms)
{
    struct mst_handler *handler = NULL;
    struct mst_err err;
    const char *backend = mst_params_backend(params);
    if (mst__rdzv_has_authority(backend)) {
        return close_job(rdzv, params, reason, timeout_ms);
    }
    if (reason != NULL) {
        return mst__cli_usage_error(COMMAND, "--reason: backend '%.40s' has no place for it",
                                    backend);
    }
    int rv = check_exists(params, timeout_ms, &err);
    if (rv == 0) {
        rv = set_defaults(params, timeout_ms, &err);
    }
    if (rv == 0) {
        rv = mst_handler_new(params, &handler, &err);
    }
    if (rv == 0) {
        rv = mst_handler_set_closed(handler, &err);
    }
    mst_handler_free(handler);
    return rv == 0 ? MST_EXIT_OK : mst__rdzv_fail(rdzv, params, &err);
}

int mst__cli_close(int argc, char **argv)
{
    struct mst__rdzv rdzv = {MST_RDZV_DEFAULTS(COMMAND)};
    int64_t timeout_ms = 10000;
    const char *reason = NULL;
    const struct mst__option options[] = {
        MST_RDZV_OPTIONS(rdzv),
        {"reason", "TEXT",
         "Why: everybody who is told that it is closed is told this, too. Of backends muster and "
         "etcd-v3 only.",
         MST_OPTION_TEXT, &reason, 0, 0},
        {"timeout", "DURATION", "How long each step may take, connecting included. Default 10s.",
         MST_OPTION_DURATION, &timeout_ms, 1, (int64_t)86400 * 1000},
    };
    const struct mst__usage usage = {
        .command = COMMAND,
        .synopsis = "--rdzv-id ID [--rdzv-endpoint ENDPOINT] [options]",
        .text = close_text,
        .options = options,
        .options_count = sizeof options / sizeof options[0],
    };
    int arguments = 0;
    int exit_code = MST_EXIT_OK;
    struct mst_params *params = NULL;
    if (!mst__options_parse(&usage, argc, argv, &arguments, &exit_code) ||
        !mst__rdzv_params(&rdzv, 1, mst__rdzv_is_url(&rdzv) ? 0 : 1, NULL, &params, &exit_code)) {
        return exit_code;
    }
    exit_code = close_with(&rdzv, params, reason, timeout_ms);
    mst_params_free(params);
    return exit_code;
}
