/* cli/close.c - `muster close`: closes a rendezvous. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/rdzv.h"
#include "handler/registry.h"

#define COMMAND "muster close"

static const char close_text[] =
    "Close a rendezvous permanently. Current and future joiners are told; members of a round stay "
    "in it. The rendezvous must exist. Closing it again does no harm.\nExit status: 0 closed, 1 "
    "failed, 2 wrong arguments, 3 no such rendezvous, 4 timeout, 5 no connection, 10 the stored "
    "data is not a rendezvous.";

/* The name of the user who closes it, as shown to all nodes. */
static void name_owner(char *ret_text, size_t size)
{
    char host[128] = "";
    const char *user = getenv("USER");
    (void)gethostname(host, sizeof host - 1); /* empty on failure */
    (void)snprintf(ret_text, size, "muster close, %.120s%s%s", user == NULL ? "" : user,
                   user == NULL ? "" : "@", host); /* fits */
}

static int close_with(const struct mst__rdzv *rdzv,
                      const struct mst_params *params,
                      const char *reason,
                      int64_t timeout_ms)
{
    char owner[300];
    struct mst_err err;
    const char *backend = mst_params_backend(params);
    bool has_reason = mst__backend_can(backend, MST_BACKEND_REASONS);
    if (reason != NULL && !has_reason) {
        return mst__cli_usage_error(COMMAND, "--reason: backend '%.40s' cannot store one", backend);
    }
    name_owner(owner, sizeof owner);
    int rv =
        mst_status_close(params, reason == NULL && has_reason ? "asked to by muster close" : reason,
                         owner, timeout_ms, &err);
    return rv == 0 ? MST_EXIT_OK : mst__rdzv_fail(rdzv, params, &err);
}

int mst__cli_close(int argc, char **argv)
{
    struct mst__rdzv rdzv = {MST_RDZV_DEFAULTS(COMMAND)};
    int64_t timeout_ms = 10000;
    const char *reason = NULL;
    const struct mst__option options[] = {
        MST_RDZV_OPTIONS(rdzv, "Which job. Required, here or as MUSTER_RDZV_ID."),
        {"reason", "TEXT",
         "The reason, which all nodes are told. Backends muster and etcd-v3 only.", MST_OPTION_TEXT,
         &reason, 0, 0},
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
    if (!mst__options_parse(&usage, argc, argv, &arguments, &exit_code)) {
        return exit_code;
    }
    mst__rdzv_complete(&rdzv);
    if (!mst__rdzv_params(&rdzv, 0, 0, NULL, &params, &exit_code)) {
        return exit_code;
    }
    exit_code = close_with(&rdzv, params, reason, timeout_ms);
    mst_params_free(params);
    return exit_code;
}
