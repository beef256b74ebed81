/* cli/status.c - `muster status`: shows the nodes of a job, or the jobs of a server.
 * <muster/status.h> has the data; this file has the options and the output. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/rdzv.h"
#include "cli/status_table.h"
#include "handler/registry.h"

#define COMMAND "muster status"

static const char status_text[] =
    "Show the nodes of a job: rank, standing, time since the last word, and what the round waits "
    "for. Without --rdzv-id, list the jobs of a server. With backend muster, the server reports "
    "it. With the others, the stored record is read; nothing is joined or changed, and PyTorch of "
    "any release may have written it. In a large job, nodes with the same standing share a "
    "line.\nExit status: 0 shown, 1 failed, 2 wrong arguments, 3 no such job, 4 timeout, 5 no "
    "connection, 10 the stored data is not a rendezvous.";

struct status {
    struct mst__rdzv rdzv;
    const char *nodes;
    int64_t nodes_min, nodes_max; /* 0 = not given */
    int64_t timeout_ms;
    int64_t interval_ms;
    bool json;
    bool watch;
    bool all;
    const char *expect_text; /* NULL = not given */
    const char *state_text;
    const char *node_text;
    struct mst_expected *expected;
    struct mst_expected *shown; /* for --node */
    bool exists;                /* result of the last look */
};

/* --- output --- */

static int print_text(const struct mst__buf *text, int code, struct mst_err *reterr)
{
    return code != 0 ? mst__fail(reterr, code, 0, "status")
                     : mst__cli_write(mst__buf_bytes(text), reterr);
}

/* Print one line of JSON, and free it. */
static int print_json(struct mst_buffer *json, struct mst_err *reterr)
{
    int rv = mst__cli_write(mst_bytes_of(json->data, json->size), reterr);
    mst_buffer_free(json);
    return rv == 0 ? mst__cli_write(mst_bytes_str("\n"), reterr) : rv;
}

static bool keep(void *arg, const struct mst_status_node *node)
{
    const struct status *status = arg;
    const char *state = status->state_text;
    if (status->shown != NULL && !mst_expected_has(status->shown, node->name)) {
        return false;
    }
    return state == NULL || strcmp(state, mst_status_standing_name(node->standing)) == 0 ||
           (strcmp(state, "late") == 0 && node->is_late);
}

static int print_job(struct status *status,
                     struct mst_status *job,
                     bool is_terminal,
                     struct mst_err *reterr)
{
    status->exists = job->exists;
    int rv = status->expected == NULL ? 0 : mst_status_expect(job, status->expected, reterr);
    if (rv != 0) {
        return rv;
    }
    mst_status_filter(job, keep, status);
    if (status->json) {
        struct mst_buffer json = {0};
        rv = mst_status_json(job, &json, reterr);
        return rv == 0 ? print_json(&json, reterr) : rv;
    }
    struct mst__buf text;
    int code = 0;
    mst__buf_init(&text, MST_SNAPSHOT_JSON_SIZE_MAX);
    mst__text_put(&text, &code, "%s", is_terminal ? "\033[H\033[2J" : ""); /* clear the screen */
    mst__status_table(job, status->all, &text, &code);
    mst__text_put(&text, &code, "%s", status->watch && !is_terminal ? "\n" : "");
    rv = print_text(&text, code, reterr);
    mst__buf_close(&text);
    return rv;
}

/* --- the command --- */

/* On a terminal, print also while nothing changes, because the ages grow. */
static int show_on_terminal(struct status *status,
                            const struct mst_params *params,
                            struct mst_err *reterr)
{
    for (;;) {
        struct mst_status *job = NULL;
        int rv = mst_status_job(params, status->timeout_ms, &job, reterr);
        if (rv == 0) {
            rv = print_job(status, job, true, reterr);
            mst_status_free(job);
        }
        if (rv != 0) {
            return rv;
        }
        (void)poll(NULL, 0, (int)status->interval_ms); /* waking early is harmless */
    }
}

/* Print once, or at every change until a signal. */
static int show(struct status *status, const struct mst_params *params, struct mst_err *reterr)
{
    struct mst_status_watch *watch = NULL;
    int rv = mst_status_watch_new(params, &watch, reterr);
    do {
        struct mst_status *job = NULL;
        if (rv == 0) {
            rv = mst_status_watch_next(watch, status->interval_ms, status->timeout_ms, -1, &job,
                                       reterr);
        }
        if (rv == 0) {
            rv = print_job(status, job, false, reterr);
            mst_status_free(job);
        }
    } while (rv == 0 && status->watch);
    mst_status_watch_free(watch);
    return rv;
}

static int status_with(struct status *status)
{
    struct mst_params *params = NULL;
    struct mst_err err;
    int exit_code = MST_EXIT_OK;
    if (!mst__rdzv_params(&status->rdzv, status->nodes_min, status->nodes_max, NULL, &params,
                          &exit_code)) {
        return exit_code;
    }
    const char *backend = mst_params_backend(params);
    bool has_names = mst__backend_can(backend, MST_BACKEND_NAMES);
    if ((status->expected != NULL || status->shown != NULL) && !has_names) {
        exit_code = mst__cli_usage_error(COMMAND, "--%s: nodes of backend '%.40s' have no names",
                                         status->expected != NULL ? "expect" : "node", backend);
        mst_params_free(params);
        return exit_code;
    }
    bool is_terminal = status->watch && !status->json && isatty(STDOUT_FILENO) == 1;
    int rv = is_terminal ? show_on_terminal(status, params, &err) : show(status, params, &err);
    if (rv == MST_ENOTSUP && mst__backend_can(backend, MST_BACKEND_GIVEN)) {
        (void)mst__cli_fail(&err);
        exit_code = MST_EXIT_ABSENT;
    } else if (rv != 0) {
        exit_code = mst__rdzv_fail(&status->rdzv, params, &err);
    } else if (!status->exists) {
        exit_code = MST_EXIT_ABSENT;
    }
    mst_params_free(params);
    return exit_code;
}

/* Without an id: list the jobs of the server. */
static int list_jobs(const struct status *status)
{
    struct mst_status_list *list = NULL;
    struct mst_err err;
    struct mst__buf text;
    int code = 0;
    int rv = mst_status_jobs(status->rdzv.endpoint, status->timeout_ms, &list, &err);
    mst__buf_init(&text, MST_SNAPSHOT_JSON_SIZE_MAX);
    if (rv == 0 && status->json) {
        struct mst_buffer json = {0};
        rv = mst_status_list_json(list, &json, &err);
        rv = rv == 0 ? print_json(&json, &err) : rv;
    } else if (rv == 0) {
        mst__status_list_table(list, &text, &code);
        rv = print_text(&text, code, &err);
    }
    mst__buf_close(&text);
    mst_status_list_free(list);
    if (rv == 0) {
        return MST_EXIT_OK;
    }
    struct mst_params *params = NULL;
    if (mst_params_new("muster", "all", &params, NULL) == 0) {
        (void)mst_params_set_endpoint(params, status->rdzv.endpoint, NULL); /* without it there is
                                                                               no advice */
    }
    int exit_code = mst__rdzv_fail(&status->rdzv, params, &err);
    mst_params_free(params);
    return exit_code;
}

/* Parse the words of the options; false if one is invalid. */
static bool read_words(struct status *status, int *ret_exit)
{
    struct mst_err err;
    if (status->nodes != NULL &&
        !mst__rdzv_nodes(status->nodes, &status->nodes_min, &status->nodes_max)) {
        *ret_exit = mst__cli_usage_error(
            COMMAND, "--nnodes %s: give MIN:MAX, such as 2:4, or one number", status->nodes);
        return false;
    }
    if (status->expect_text != NULL &&
        mst_expected_new(status->expect_text, &status->expected, &err) != 0) {
        *ret_exit = mst__cli_usage_error(COMMAND, "--expect: %s", err.msg);
        return false;
    }
    if (status->node_text != NULL &&
        mst_expected_new(status->node_text, &status->shown, &err) != 0) {
        *ret_exit = mst__cli_usage_error(COMMAND, "--node: %s", err.msg);
        return false;
    }
    bool is_state = status->state_text == NULL || strcmp(status->state_text, "late") == 0;
#define IS_STATE(number, name, text) is_state = is_state || strcmp(status->state_text, text) == 0;
    MST_STATUS_STANDING_MAP(IS_STATE)
    if (!is_state) {
        *ret_exit = mst__cli_usage_error(
            COMMAND,
            "--state: '%s' is not gathered, queued, spare, member, called, finished, gone "
            "or late",
            status->state_text);
    }
    return is_state;
}

int mst__cli_status(int argc, char **argv)
{
    struct status status = {
        .rdzv = {MST_RDZV_DEFAULTS(COMMAND)},
        .timeout_ms = 10000,
        .interval_ms = 500,
    };
    const struct mst__option options[] = {
        MST_RDZV_OPTIONS(status.rdzv,
                         "Which job. Default: MUSTER_RDZV_ID, else all that a server of "
                         "muster has."),
        {"nnodes", "MIN:MAX",
         "The limits that the nodes were given, which a record does not contain: the number of "
         "missing nodes is then shown.",
         MST_OPTION_TEXT, &status.nodes, 0, 0},
        {"expect", "NODES",
         "Which nodes should be there, by their names or hosts, such as node[1-20],master: then "
         "the "
         "missing are named.",
         MST_OPTION_TEXT, &status.expect_text, 0, 0},
        {"all", NULL, "Print a line for each node of a large job.", MST_OPTION_FLAG, &status.all, 0,
         0},
        {"state", "STATE",
         "Only nodes that are gathered, queued, spare, member, called, finished, gone or late.",
         MST_OPTION_TEXT, &status.state_text, 0, 0},
        {"node", "NODES", "Only these nodes, by their names or hosts, such as node[1-20],master.",
         MST_OPTION_TEXT, &status.node_text, 0, 0},
        {"json", NULL, "Print one line of JSON instead of a table.", MST_OPTION_FLAG, &status.json,
         0, 0},
        {"watch", NULL, "Print again whenever the job changes, until interrupted.", MST_OPTION_FLAG,
         &status.watch, 0, 0},
        {"interval", "DURATION", "With --watch: time between two looks. Default 500ms.",
         MST_OPTION_DURATION, &status.interval_ms, 1, 3600000},
        {"timeout", "DURATION", "Limit for one look, connecting included. Default 10s.",
         MST_OPTION_DURATION, &status.timeout_ms, 1, (int64_t)86400 * 1000},
    };
    const struct mst__usage usage = {
        .command = COMMAND,
        .synopsis = "[--rdzv-endpoint ENDPOINT] [options]\n"
                    "--rdzv-id ID [--rdzv-endpoint ENDPOINT] [options]",
        .text = status_text,
        .options = options,
        .options_count = sizeof options / sizeof options[0],
    };
    int arguments = 0;
    int exit_code = MST_EXIT_OK;
    if (!mst__options_parse(&usage, argc, argv, &arguments, &exit_code)) {
        return exit_code;
    }
    mst__rdzv_complete(&status.rdzv);
    bool is_list = status.rdzv.run_id == NULL && !mst__rdzv_is_url(&status.rdzv) &&
                   mst__backend_can(mst__rdzv_backend(&status.rdzv), MST_BACKEND_LISTS);
    if (is_list && status.watch) {
        return mst__cli_usage_error(COMMAND, "--watch is for one job: give --rdzv-id");
    }
    if (read_words(&status, &exit_code)) {
        exit_code = is_list ? list_jobs(&status) : status_with(&status);
    }
    mst_expected_free(status.expected);
    mst_expected_free(status.shown);
    return exit_code;
}
