/* cli/run.c - `muster run`: settings become parameters of a rendezvous; the end of the run becomes
 * an exit status. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/run.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/number.h"
#include "cli/cli.h"
#include "cli/log.h"
#include "cli/rdzv.h"
#include "cli/run_hosts.h"
#include "cli/run_options.h"
#include "cli/waiting.h"
#include "handler/registry.h"

#define COMMAND "muster run"

/* How long the rendezvous may be out of reach: the default of read_timeout, the limit of a call. */
#define CUT_MS_DEFAULT 60000

/* --- parameters of the rendezvous --- */

/* Set the option @name, if the backend has it. */
static int set_option(const struct mst__run_settings *settings,
                      struct mst_params *params,
                      const char *name,
                      const char *value,
                      struct mst_err *reterr)
{
    return mst__backend_has_option(settings->backend, name)
               ? mst_params_set(params, name, value, reterr)
               : 0;
}

static int set_budget(const struct mst__run_settings *settings,
                      struct mst_params *params,
                      struct mst_err *reterr)
{
    char text[60];
    if (settings->max_restarts_window_ms == 0) {
        (void)snprintf(text, sizeof text, "%" PRId64, settings->max_restarts);
    } else {
        (void)snprintf(text, sizeof text, "%" PRId64 "/%" PRId64 "ms", settings->max_restarts,
                       settings->max_restarts_window_ms);
    }
    return set_option(settings, params, "max_restarts", text, reterr);
}

/* Set the rank that the node wants, or has with backend static. */
static int set_rank(const struct mst__run_settings *settings,
                    struct mst_params *params,
                    struct mst_err *reterr)
{
    char text[MST_NUMBER_SIZE];
    (void)snprintf(text, sizeof text, "%" PRId64, settings->node_rank); /* fits */
    return settings->node_rank < 0 ? 0 : set_option(settings, params, "rank", text, reterr);
}

/* An authority numbers the workers of all nodes. */
static int set_workers(const struct mst__run_settings *settings,
                       struct mst_params *params,
                       struct mst_err *reterr)
{
    char text[MST_NUMBER_SIZE];
    (void)snprintf(text, sizeof text, "%" PRId64, settings->nproc); /* fits */
    int rv = set_option(settings, params, "workers", text, reterr);
    return rv == 0 ? set_option(settings, params, "role", settings->role, reterr) : rv;
}

static int set_serve(const struct mst__run_settings *settings,
                     struct mst_params *params,
                     struct mst_err *reterr)
{
    const char *serve = settings->is_standalone ? "always" : settings->serve;
    char linger[MST_NUMBER_SIZE + sizeof "ms"];
    (void)snprintf(linger, sizeof linger, "%" PRId64 "ms", settings->linger_ms); /* fits */
    int rv = set_option(settings, params, "serve", serve, reterr);
    return rv == 0 ? set_option(settings, params, "linger", linger, reterr) : rv;
}

/* With --on-join never, no round is larger than the first one: later nodes wait until a member is
 * lost. */
static int set_growth(const struct mst__run_settings *settings,
                      struct mst_params *params,
                      struct mst_err *reterr)
{
    bool is_fixed = settings->on_join == MST_ON_JOIN_NEVER;
    return is_fixed ? set_option(settings, params, "grow", "0", reterr) : 0;
}

static int fill_params(const struct mst__run_settings *settings,
                       struct mst_params *params,
                       struct mst_err *reterr)
{
    int rv = mst_params_set_endpoint(params, settings->endpoint, reterr);
    rv = rv == 0 ? mst_params_set_nodes(params, settings->nodes_min, settings->nodes_max, reterr)
                 : rv;
    rv = rv == 0 ? mst_params_set_local_addr(params, settings->local_addr, reterr) : rv;
    rv = rv == 0 ? set_serve(settings, params, reterr) : rv;
    rv = rv == 0 ? set_rank(settings, params, reterr) : rv;
    rv = rv == 0 ? set_growth(settings, params, reterr) : rv;
    rv = rv == 0 ? set_workers(settings, params, reterr) : rv;
    rv = rv == 0 ? set_budget(settings, params, reterr) : rv;
    for (size_t i = 0; i < settings->rdzv_conf.count && rv == 0; i++) {
        rv = mst_params_parse(params, settings->rdzv_conf.values[i], reterr);
    }
    return rv;
}

/* Print the events of the handler that users need. */
static void on_event(void *arg, const struct mst_event *event)
{
    const struct mst__run_settings *settings = arg;
    bool is_served = strcmp(event->name, "host") == 0 && !settings->is_standalone;
    if (is_served || strcmp(event->name, "spare") == 0 || strcmp(event->name, "queued") == 0 ||
        strcmp(event->name, "linger") == 0 || strcmp(event->name, "gave_way") == 0) {
        mst__cli_say("muster: %s", event->message);
    }
}

/* A mst__run_wait_fn. */
static void on_wait(void *arg, bool is_waiting, bool is_late)
{
    if (is_waiting) {
        mst__waiting_begin(arg);
    } else {
        mst__waiting_end(arg, is_late);
    }
}

/* Whether this node reports its waits; if a console is shared, the first one does. */
static bool reports_waits(const struct mst__run_settings *settings)
{
    return settings->nodes_max > 1 &&
           (settings->node_rank <= 0 || !mst__run_shares_console(settings));
}

static int make_params(const struct mst__run_settings *settings,
                       struct mst_params **ret_params,
                       int64_t *ret_cut_ms,
                       struct mst_err *reterr)
{
    struct mst__cli_log_options log_options = {0};
    struct mst_log log;
    if (!mst__cli_log_level(settings->log_level, &log_options.level)) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "--log-level: '%s' is not debug, info, warn or error",
                         settings->log_level);
    }
    int rv = mst__cli_log_open(&log_options, &log, reterr);
    rv = rv == 0 ? mst_params_new(settings->backend, settings->run_id, ret_params, reterr) : rv;
    if (rv != 0) {
        return rv;
    }
    mst_params_log(*ret_params, &log);
    mst_params_on_event(*ret_params, on_event, (void *)settings); /* only read */
    rv = fill_params(settings, *ret_params, reterr);
    return rv == 0 ? mst_params_duration_ms(*ret_params, "read_timeout", CUT_MS_DEFAULT, ret_cut_ms,
                                            reterr)
                   : rv;
}

/* --- the end --- */

/* The exit status for the failed worker that is the cause. */
static int failed_exit(const struct mst__run_settings *settings, const struct mst__run_end *end)
{
    if (settings->is_exit_torchrun) {
        return MST_EXIT_FAILED;
    }
    if (end->signal != 0) {
        return MST_EXIT_SIGNAL + end->signal;
    }
    return end->status == 0 ? MST_EXIT_FAILED : end->status & 0xff;
}

/* The node has ended without an answer of the rendezvous. */
static void warn_alone(const struct mst__run_settings *settings, const struct mst__run_end *end)
{
    const char *what = end->end == MST_AGENT_END_FINISHED ? "the work of this node is done"
                                                          : "this node has failed";
    if (end->is_told) {
        mst__cli_say("muster: %s, as the others know. How the job ends is not known here: the "
                     "rendezvous at %s could not be reached: %s",
                     what, settings->endpoint, end->silence.msg);
        return;
    }
    mst__cli_say("muster: %s, and the others were not told: the rendezvous at %s could not be "
                 "reached. %s: %s",
                 what, settings->endpoint,
                 settings->nodes_max > 1
                     ? "They will take this node for lost, and restart without it"
                     : "It will take this node for lost",
                 end->silence.msg);
}

static int went_exit(const struct mst__run_settings *settings,
                     const struct mst_params *params,
                     const struct mst__run_end *end)
{
    const struct mst__rdzv rdzv = {.command = COMMAND,
                                   .backend = settings->backend,
                                   .endpoint = settings->endpoint,
                                   .run_id = settings->run_id};
    if (end->is_alone) {
        warn_alone(settings, end);
    }
    switch (end->end) {
        case MST_AGENT_END_FINISHED:
            return MST_EXIT_OK;
        case MST_AGENT_END_FAILED:
            return failed_exit(settings, end);
        case MST_AGENT_END_CLOSED:
            mst__cli_say("muster: the job was closed%s%s", end->text[0] == '\0' ? "" : ": ",
                         end->text);
            return MST_EXIT_CLOSED;
        case MST_AGENT_END_SIGNAL:
            return end->goes_on ? settings->preempt_status : MST_EXIT_SIGNAL + end->signal;
        case MST_AGENT_END_DRAINED:
            if (end->text[0] != '\0') {
                mst__cli_say("muster: this node leaves: %s", end->text);
            }
            return settings->preempt_status;
        case MST_AGENT_END_REFUSED:
            return mst__rdzv_fail(&rdzv, params, &end->err);
        case MST_AGENT_END_UNSTARTED:
            (void)mst__cli_fail(&end->err);
            return mst__err_is_errno(&end->err, ENOENT) ? MST_EXIT_NO_COMMAND
                                                        : MST_EXIT_NOT_RUNNABLE;
        case MST_AGENT_END_STUCK:
            return MST_EXIT_STUCK;
        case MST_AGENT_END_EXCLUDED:
            mst__cli_say("muster: this node leaves: %" PRId64 " failures were its workers'",
                         settings->exclude_after);
            return MST_EXIT_EXCLUDED;
        case MST_AGENT_END_LOST:
            mst__cli_say("muster: this node leaves: the rendezvous could not be reached for longer "
                         "than read_timeout of --rdzv-conf: %s",
                         end->err.msg);
            return MST_EXIT_CONNECT;
    }
    return MST_EXIT_FAILED;
}

static int exit_code_of(const struct mst__run_settings *settings,
                        const struct mst_params *params,
                        const struct mst__run_end *end)
{
    const struct mst__rdzv rdzv = {.command = COMMAND,
                                   .backend = settings->backend,
                                   .endpoint = settings->endpoint,
                                   .run_id = settings->run_id};
    switch (end->failure) {
        case MST_RUN_WENT:
            return went_exit(settings, params, end);
        case MST_RUN_PREFLIGHT:
            (void)mst__cli_fail(&end->err);
            return MST_EXIT_PREFLIGHT;
        case MST_RUN_NOT_BEGUN:
            break;
    }
    return mst__rdzv_fail(&rdzv, params, &end->err);
}

static int run(const struct mst__run_settings *settings)
{
    struct mst_params *params = NULL;
    struct mst_err err = {0};
    struct mst__run_options options = {.settings = settings, .environment = environ};
    struct mst__run_end end;
    struct mst__waiting *waiting = NULL;
    int rv = make_params(settings, &params, &options.cut_ms, &err);
    if (rv == 0 && reports_waits(settings)) {
        rv = mst__waiting_new(params, NULL, &waiting, &err);
        options.on_wait = on_wait;
    }
    options.params = params;
    options.on_wait_arg = waiting;
    int exit_code = MST_EXIT_OK;
    if (rv != 0) {
        exit_code =
            rv == MST_EINVAL ? mst__cli_usage_error(COMMAND, "%s", err.msg) : mst__cli_fail(&err);
    } else {
        mst__run(&options, &end);
        exit_code = exit_code_of(settings, params, &end);
    }
    mst__waiting_free(waiting);
    mst_params_free(params);
    return exit_code;
}

/* Returns an error for settings that contradict each other or the backend, or NULL. */
static const char *refused(const struct mst__run_settings *settings)
{
    const char *backend = settings->backend;
    bool is_given = mst__backend_can(backend, MST_BACKEND_GIVEN);
    if (settings->max_restarts > 0 && is_given) {
        return "--max-restarts: nodes of this backend cannot restart together; use muster";
    }
    if (settings->on_join == MST_ON_JOIN_NEVER && !is_given &&
        !mst__backend_has_option(backend, "grow")) {
        return "--on-join never: nodes of this backend admit themselves; muster, etcd-v3 and "
               "static can keep later nodes out";
    }
    if (settings->values[MST_SETTING_NODE_RANK].source == MST_SOURCE_OPTION &&
        !mst__backend_has_option(backend, "rank")) {
        return "--node-rank: this backend orders nodes by their names; muster, etcd-v3 and static "
               "use it";
    }
    bool is_watched = settings->hang_ms > 0 || settings->startup_ms > 0;
    if (is_watched && settings->log_dir != NULL && settings->log_dir[0] == '\0') {
        return "--hang-timeout, --startup-timeout: heartbeats are files, and --log-dir allows none";
    }
    return NULL;
}

/* Tell what the settings do not show to be wrong, but may well be. */
static void warn(const struct mst__run_settings *settings)
{
    const char *batch_nodes = settings->scheduler.batch_nodes.text;
    if (settings->end_time_is_unknown && settings->node_rank <= 0) {
        mst__cli_say("muster: no notice before the end of the Slurm job, which is not known: %s",
                     settings->end_time_none);
    }
    if (batch_nodes != NULL && settings->launch == MST_LAUNCH_NONE && settings->nodes_max > 1) {
        mst__cli_say("muster: this is the batch script of a Slurm job of %.20s nodes, and it runs "
                     "on one of them; srun or --launch srun would start agents on all",
                     batch_nodes);
    }
}

int mst__cli_run(int argc, char **argv)
{
    struct mst__run_settings settings;
    int exit_code = MST_EXIT_OK;
    if (fcntl(STDIN_FILENO, F_GETFD) < 0) { /* else a descriptor of ours would be workers' input */
        (void)open("/dev/null", O_RDONLY | O_CLOEXEC); /* takes the number that is free */
    }
    if (argc == 2 && strcmp(argv[1], "--relay") == 0) {
        return mst__cli_run_relay();
    }
    if (!mst__run_options_read(argc, argv, &settings, &exit_code)) {
        return exit_code;
    }
    const char *wrong = refused(&settings);
    warn(&settings);
    if (wrong != NULL) {
        exit_code = mst__cli_usage_error(COMMAND, "%s", wrong);
    } else if (settings.launch != MST_LAUNCH_NONE) {
        exit_code = mst__cli_run_hosts(&settings);
    } else {
        exit_code = run(&settings);
    }
    mst__run_settings_close(&settings);
    return exit_code;
}
