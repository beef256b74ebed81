/* cli/job.c - `muster ps`, `restart`, `drain` and `stop`: commands for a running job, through the
 * store where it meets. */
#include "cli/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/control_store.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/unicode.h"
#include "cli/log.h"
#include "handler/registry.h"

#define TIMEOUT_MS 10000 /* of each step */

/* `muster stop` waits this long for the end of the agents. It looks at them after pauses. A look
 * has a limit: nobody answers any more when the last agent has served and ended. */
#define STOP_END_MS 60000
#define STOP_PAUSE_MS 50
#define STOP_LOOK_MS 2000

#define TABLE_SIZE_MAX MST_MIB(64)
#define STATE_WIDTH 8 /* of a column of `muster ps` */

/* --- the job --- */

static int open_store(struct mst__cli_job *job, struct mst_err *reterr)
{
    const char *backend = mst_params_backend(job->params);
    if (job->needs_queue && mst__control_store_kind(backend) == MST_CONTROL_ETCD) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "agents of backend '%.40s' send no logs, those of muster and c10d do; %s",
                         backend, job->instead);
    }
    struct mst_err err;
    int rv =
        mst__control_store_open(job->params, mst__until_in(job->timeout_ms), &job->store, &err);
    if (rv == MST_ENOTSUP) {
        return mst__fail(reterr, MST_EINVAL, 0, "%s; %s", err.msg, job->instead);
    }
    return rv == 0 ? 0 : mst__err_pass(reterr, rv, &err);
}

static bool open_job(struct mst__cli_job *job, int *ret_exit)
{
    struct mst_err err;
    mst__rdzv_complete(&job->rdzv);
    if (!mst__rdzv_params(&job->rdzv, 0, 0, NULL, &job->params, ret_exit)) {
        return false;
    }
    if (open_store(job, &err) != 0) {
        *ret_exit = mst__cli_job_fail(job, &err);
        return false;
    }
    return true;
}

static void close_job(struct mst__cli_job *job)
{
    mst_store_close(job->store);
    mst_params_free(job->params);
}

int mst__cli_job_fail(const struct mst__cli_job *job, const struct mst_err *err)
{
    return mst__rdzv_fail(&job->rdzv, job->params, err);
}

int mst__cli_job_main(struct mst__cli_job *job,
                      const struct mst__usage *usage,
                      const struct mst__cli_job_act *act,
                      int argc,
                      char **argv)
{
    int arguments = 0;
    int exit_code = MST_EXIT_OK;
    if (!mst__options_parse(usage, argc, argv, &arguments, &exit_code)) {
        return exit_code;
    }
    const char *missing = act->missing == NULL ? NULL : act->missing(act->arg);
    if (missing != NULL) {
        return mst__cli_usage_error(usage->command, "%s", missing);
    }
    job->end_ms = job->timeout_ms > 0 ? job->timeout_ms : STOP_END_MS;
    job->timeout_ms = job->timeout_ms > 0 ? job->timeout_ms : TIMEOUT_MS;
    if (open_job(job, &exit_code)) {
        exit_code = act->fn(job, argv[arguments], act->arg);
    }
    close_job(job);
    return exit_code;
}

int mst__cli_job_ask(const struct mst__cli_job *job,
                     const struct mst__control_command *command,
                     struct mst_buffer *ret_node,
                     struct mst_err *reterr)
{
    char key[MST_CONTROL_KEY_SIZE];
    struct mst__buf text;
    int64_t number = 0;
    mst__buf_init(&text, MST_CONTROL_TEXT_SIZE_MAX);
    int rv = mst__control_write(command, &text);
    rv = rv == 0 ? mst_store_add(job->store, mst_bytes_str(MST_CONTROL_COUNT), 1, job->timeout_ms,
                                 &number, reterr)
                 : mst__fail(reterr, rv, 0, "command to the job");
    (void)snprintf(key, sizeof key, "commands/%" PRId64, number);
    rv = rv == 0 ? mst_store_set(job->store, mst_bytes_str(key), mst__buf_bytes(&text),
                                 job->timeout_ms, reterr)
                 : rv;
    mst__buf_close(&text);
    if (rv != 0) {
        return rv;
    }
    (void)snprintf(key, sizeof key, "replies/%" PRId64, number);
    rv = mst_store_get(job->store, mst_bytes_str(key), job->timeout_ms, ret_node, reterr);
    if (rv == MST_ETIMEOUT) {
        return command->kind == MST_CONTROL_DRAIN
                   ? mst__fail(reterr, rv, 0,
                               "no node '%.100s' of the job answers; muster ps shows its nodes",
                               command->node)
                   : mst__fail(reterr, rv, 0, "no node of the job answers");
    }
    bool existed;
    struct mst_err ignored; /* on failure, the reply stays in the store */
    (void)mst_store_delete(job->store, mst_bytes_str(key), job->timeout_ms, &existed, &ignored);
    return rv;
}

/* --- ps --- */

/* Whether the job has lost the node. The key of a lost node stays in the store. An authority
 * forgets lost nodes at the next round, so a node that it does not know is lost. Without an
 * authority, a node between two rounds is unknown for a moment, and not lost, until the job is
 * closed: then there are no further rounds. */
static bool is_lost(const struct mst_status *status, const char *name)
{
    for (size_t i = 0; status != NULL && i < status->node_count; i++) {
        if (strcmp(status->nodes[i]->name, name) == 0) {
            return status->nodes[i]->standing == MST_STATUS_NODE_GONE;
        }
    }
    bool tells_all = status != NULL && (status->epoch != 0 || status->phase == MST_STATUS_CLOSED);
    return tells_all && !status->is_cut;
}

/* Append what a node has written, in one line: a program sees the members of a later version, too.
 * Outside of strings, control characters can only be blanks. */
static void put_json(struct mst__buf *table, int *rv, struct mst_bytes text)
{
    while (text.size > 0) {
        uint32_t c = 0;
        size_t size = mst__unicode_next(text, &c);
        if (size == 0) {
            mst__text_put(table, rv, "\\ufffd");
        } else if (c == '\n' || c == '\r' || c == '\t') {
            mst__text_put(table, rv, " ");
        } else if (!mst__unicode_is_shown(c)) {
            mst__text_put(table, rv, "\\u%04x", (unsigned)c); /* none has more digits */
        } else if (*rv == 0) {
            *rv = mst__buf_append(table, mst_bytes_of(text.data, size));
        }
        text = mst__bytes_skip(text, size == 0 ? 1 : size);
    }
    mst__text_put(table, rv, "\n");
}

static void put_names(struct mst__buf *table, int *rv, const struct mst__control_node *node)
{
    (void)mst__text_put_foreign(table, rv, mst_bytes_str(node->host));
    mst__text_put(table, rv, " ");
    (void)mst__text_put_foreign(table, rv, mst_bytes_str(node->node));
    mst__text_put(table, rv, "\n");
}

static void put_node(struct mst__buf *table,
                     int *rv,
                     const struct mst__control_node *node,
                     struct mst_bytes workers,
                     const struct mst_status *status)
{
    struct mst__control_worker worker;
    bool lost = is_lost(status, node->node);
    while (mst__control_worker_next(&workers, &worker)) {
        mst__text_put(table, rv,
                      "%6" PRId64 " %6" PRId64 " %8" PRId64 " %-8s %4" PRId64 " %8" PRId64 " ",
                      worker.rank, worker.local_rank, worker.pid,
                      lost                ? "lost"
                      : worker.is_running ? "running"
                                          : "ended",
                      node->generation, node->restarts);
        put_names(table, rv, node);
    }
    if (node->workers_count == 0) {
        mst__text_put(table, rv, "%6s %6s %8s ", "-", "-", "-");
        size_t length =
            mst__text_put_foreign(table, rv, mst_bytes_str(lost ? "lost" : node->phase));
        mst__text_put(table, rv, "%*s %4" PRId64 " %8" PRId64 " ",
                      (int)(length < STATE_WIDTH ? STATE_WIDTH - length : 0), "", node->generation,
                      node->restarts);
        put_names(table, rv, node);
    }
}

/* The stored state of a node. */
struct said {
    struct mst_buffer text;
    int64_t group_rank;
};

static int compare_said(const void *a, const void *b)
{
    int64_t first = ((const struct said *)a)->group_rank;
    int64_t second = ((const struct said *)b)->group_rank;
    return first < second ? -1 : first > second ? 1 : 0;
}

static bool is_node(struct mst_bytes key)
{
    static const char nodes[] = MST_CONTROL_NODES;
    return key.size > sizeof nodes - 1 && memcmp(key.data, nodes, sizeof nodes - 1) == 0;
}

static int read_nodes(const struct mst__cli_job *job,
                      struct said **ret_said,
                      size_t *ret_count,
                      struct mst_err *reterr)
{
    struct mst_keys keys = {0};
    int rv = mst_store_list(job->store, job->timeout_ms, &keys, reterr);
    struct said *said = rv == 0 ? mst__calloc(keys.count + 1, sizeof *said) : NULL;
    size_t count = 0;
    if (rv == 0 && said == NULL) {
        rv = mst__fail(reterr, MST_ENOMEM, 0, "%zu nodes", keys.count);
    }
    for (size_t i = 0; i < keys.count && rv == 0; i++) {
        struct mst__control_node node;
        struct mst_bytes workers;
        if (is_node(keys.keys[i]) && mst_store_try_get(job->store, keys.keys[i], job->timeout_ms,
                                                       &said[count].text, reterr) == 0) {
            (void)mst__control_node_read(mst_bytes_of(said[count].text.data, said[count].text.size),
                                         &node, &workers);
            said[count++].group_rank = node.group_rank;
        } /* else the node has just left */
    }
    mst_keys_free(&keys);
    if (count > 0) {
        qsort(said, count, sizeof *said, compare_said);
    }
    *ret_said = said;
    *ret_count = count;
    return rv;
}

static void free_nodes(struct said *said, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mst_buffer_free(&said[i].text);
    }
    mst__free(said);
}

/* The function of a mst__cli_job_act, like restart, drain and stop. */
static int show(const struct mst__cli_job *job, const char *argument, void *arg)
{
    bool is_json = *(const bool *)arg;
    (void)argument; /* NULL */
    struct said *said = NULL;
    size_t count = 0;
    struct mst_status *status = NULL;
    struct mst_err err;
    struct mst__buf table;
    mst__buf_init(&table, TABLE_SIZE_MAX);
    int rv = read_nodes(job, &said, &count, &err);
    if (rv == 0) {
        (void)mst_status_job(job->params, job->timeout_ms, &status,
                             NULL); /* on failure, no node counts as lost */
    }
    int put = 0;
    if (rv == 0 && !is_json) {
        mst__text_put(&table, &put, "%6s %6s %8s %-8s %4s %8s %s\n", "RANK", "LOCAL", "PID",
                      "STATE", "GEN", "RESTARTS", "HOST NODE");
    }
    for (size_t i = 0; i < count && rv == 0; i++) {
        struct mst_bytes text = mst_bytes_of(said[i].text.data, said[i].text.size);
        struct mst__control_node node;
        struct mst_bytes workers;
        if (!mst__control_node_read(text, &node, &workers)) {
            continue; /* no node has written this */
        }
        if (is_json) {
            put_json(&table, &put, text);
        } else {
            put_node(&table, &put, &node, workers, status);
        }
    }
    int exit_code = MST_EXIT_OK;
    if (rv == 0 && put != 0) {
        rv = mst__fail(&err, put, 0, "table of workers");
    }
    rv = rv == 0 ? mst__cli_write(mst__buf_bytes(&table), &err) : rv;
    if (rv != 0) {
        exit_code = mst__cli_job_fail(job, &err);
    } else if (count == 0) {
        mst__cli_say("muster: job '%s' has no agent", mst_params_run_id(job->params));
        exit_code = MST_EXIT_ABSENT;
    }
    mst__buf_close(&table);
    mst_status_free(status);
    free_nodes(said, count);
    return exit_code;
}

int mst__cli_ps(int argc, char **argv)
{
    struct mst__cli_job job = MST_CLI_JOB_DEFAULTS("muster ps", "`muster status` shows the nodes");
    bool is_json = false;
    const struct mst__option options[] = {
        MST_CLI_JOB_OPTIONS(job),
        {"json", NULL, "One object of JSON per node.", MST_OPTION_FLAG, &is_json, 0, 0},
    };
    const struct mst__usage usage = {
        .command = job.rdzv.command,
        .synopsis = "--rdzv-id ID [--rdzv-endpoint ENDPOINT] [options]",
        .text = "Show the workers of a job that `muster run` has started, on all of its nodes. "
                "Exit status: 0, 2 wrong arguments, 3 no agent is running, 4 timeout, 5 no "
                "connection.",
        .options = options,
        .options_count = sizeof options / sizeof options[0],
    };
    const struct mst__cli_job_act act = {.fn = show, .arg = &is_json};
    return mst__cli_job_main(&job, &usage, &act, argc, argv);
}

/* --- restart and drain --- */

static int ask(const struct mst__cli_job *job,
               const struct mst__control_command *command,
               const char *done)
{
    struct mst_buffer node = {0};
    struct mst_err err;
    if (mst__cli_job_ask(job, command, &node, &err) != 0) {
        return mst__cli_job_fail(job, &err);
    }
    mst__cli_say("muster: %s%s", done, (const char *)node.data);
    mst_buffer_free(&node);
    return MST_EXIT_OK;
}

static int restart(const struct mst__cli_job *job, const char *argument, void *arg)
{
    (void)argument; /* both are NULL */
    (void)arg;
    return ask(job, &(struct mst__control_command){.kind = MST_CONTROL_RESTART},
               "workers are restarted by ");
}

int mst__cli_restart(int argc, char **argv)
{
    struct mst__cli_job job = MST_CLI_JOB_DEFAULTS(
        "muster restart", "a worker that fails restarts all, if --max-restarts allows it");
    const struct mst__option options[] = {MST_CLI_JOB_OPTIONS(job)};
    const struct mst__usage usage = {
        .command = job.rdzv.command,
        .synopsis = "--rdzv-id ID [--rdzv-endpoint ENDPOINT] [options]",
        .text = "Stop the workers of a job on all nodes, and start them again in a new round. "
                "Workers are given notice if the job was started with --notice-signal. It costs "
                "none of the job's restarts. Exit status: 0 under way, 2 wrong arguments, 4 no "
                "node answers, 5 no connection.",
        .options = options,
        .options_count = sizeof options / sizeof options[0],
    };
    const struct mst__cli_job_act act = {.fn = restart};
    return mst__cli_job_main(&job, &usage, &act, argc, argv);
}

struct draining {
    struct mst__control_command command;
    bool is_forced;
};

/* What a drain leaves of a job. Spares and other waiting nodes remain, too. */
struct remains {
    int64_t present, leaving; /* nodes; those that are drained already leave, too */
    int64_t nodes_min;
    bool has_node; /* somebody takes the command */
};

static void count_said(struct remains *remains,
                       const struct mst__control_node *node,
                       const char *name)
{
    bool is_meant = strcmp(node->node, name) == 0 || strcmp(node->host, name) == 0;
    remains->has_node = remains->has_node || is_meant;
    remains->leaving += is_meant || node->is_leaving ? 1 : 0;
    remains->nodes_min =
        node->nodes_min > remains->nodes_min ? node->nodes_min : remains->nodes_min;
}

static int count_remains(const struct mst__cli_job *job,
                         const char *name,
                         struct remains *ret_remains,
                         struct mst_err *reterr)
{
    struct said *said = NULL;
    size_t count = 0;
    struct mst_status *status = NULL;
    *ret_remains = (struct remains){0};
    int rv = read_nodes(job, &said, &count, reterr);
    rv = rv == 0 ? mst_status_job(job->params, job->timeout_ms, &status, reterr) : rv;
    for (size_t i = 0; i < count && rv == 0; i++) {
        struct mst__control_node node;
        struct mst_bytes workers;
        struct mst_bytes text = mst_bytes_of(said[i].text.data, said[i].text.size);
        if (mst__control_node_read(text, &node, &workers) && !is_lost(status, node.node)) {
            count_said(ret_remains, &node, name);
        }
    }
    if (rv == 0) {
        ret_remains->present = (int64_t)(status->node_count - status->gone_count);
        if (status->is_cut && status->world_size > ret_remains->present) {
            ret_remains->present = status->world_size;
        }
        ret_remains->nodes_min = status->nodes_min > 0 ? status->nodes_min : ret_remains->nodes_min;
    }
    mst_status_free(status);
    free_nodes(said, count);
    return rv;
}

static int drain(const struct mst__cli_job *job, const char *argument, void *arg)
{
    struct draining *draining = arg;
    struct remains remains;
    struct mst_err err;
    if (count_remains(job, argument, &remains, &err) != 0) {
        return mst__cli_job_fail(job, &err);
    }
    int64_t left = remains.present - remains.leaving;
    if (remains.has_node && left < remains.nodes_min) {
        mst__cli_say("muster: job '%s' needs %" PRId64 " node%s and would have %" PRId64
                     ": it would stop and wait for others%s",
                     mst_params_run_id(job->params), remains.nodes_min,
                     mst__text_plural((uint64_t)remains.nodes_min), left < 0 ? 0 : left,
                     draining->is_forced ? "" : "; --force drains nevertheless");
        if (!draining->is_forced) {
            return MST_EXIT_FAILED;
        }
    }
    (void)snprintf(draining->command.node, sizeof draining->command.node, "%s", argument);
    return ask(job, &draining->command, "leaves the job: ");
}

int mst__cli_drain(int argc, char **argv)
{
    struct mst__cli_job job =
        MST_CLI_JOB_DEFAULTS("muster drain", "send SIGTERM to `muster run` on that node");
    struct draining draining = {.command = {.kind = MST_CONTROL_DRAIN, .within_ms = -1}};
    const struct mst__option options[] = {
        MST_CLI_JOB_OPTIONS(job),
        {"within", "DURATION",
         "How long workers have to save their work. Default: as --notice of the job says.",
         MST_OPTION_DURATION, &draining.command.within_ms, 0, (int64_t)366 * 86400 * 1000},
        {"force", NULL, "Drain also if too few nodes remain, so that the job stops and waits.",
         MST_OPTION_FLAG, &draining.is_forced, 0, 0},
    };
    const struct mst__usage usage = {
        .command = job.rdzv.command,
        .synopsis = "--rdzv-id ID [--rdzv-endpoint ENDPOINT] [options] NODE",
        .text =
            "Have a node leave its job: its workers are stopped, its agent ends with the "
            "status of --preempt-status, and the others go on without it. Refused without --force "
            "if they, spares included, are fewer than the job's minimum. NODE is the name of a "
            "node, or of its host, as `muster ps` shows them. Exit status: 0 under way, 1 too "
            "few nodes would remain, 2 wrong arguments, 4 no such node answers, 5 no connection.",
        .options = options,
        .options_count = sizeof options / sizeof options[0],
        .arguments_min = 1,
        .arguments_max = 1,
    };
    const struct mst__cli_job_act act = {.fn = drain, .arg = &draining};
    return mst__cli_job_main(&job, &usage, &act, argc, argv);
}

/* --- stop --- */

/* Whether @key belongs to a node that is gone according to @status. */
static bool is_leftover(const struct mst_status *status, struct mst_bytes key)
{
    char name[MST_CONTROL_KEY_SIZE];
    size_t before = sizeof MST_CONTROL_NODES - 1;
    (void)snprintf(name, sizeof name, "%.*s", (int)(key.size - before),
                   (const char *)key.data + before);
    return is_lost(status, name);
}

/* Count the agents that run. Most remove their key at their end; of the keys that are left, an
 * authority knows which belong to nodes that are gone: lost, or too busy to remove their key. */
static int count_agents(const struct mst__cli_job *job, size_t *ret_count, struct mst_err *reterr)
{
    struct mst_keys keys = {0};
    struct mst_status *status = NULL;
    size_t count = 0;
    int rv = mst_store_list(job->store, STOP_LOOK_MS, &keys, reterr);
    if (rv != 0) {
        return rv;
    }
    if (keys.count > 0) {
        (void)mst_status_job(job->params, STOP_LOOK_MS, &status,
                             NULL); /* on failure, no node counts as gone */
    }
    for (size_t i = 0; i < keys.count; i++) {
        count += is_node(keys.keys[i]) && !is_leftover(status, keys.keys[i]) ? 1 : 0;
    }
    *ret_count = count;
    mst_status_free(status);
    mst_keys_free(&keys);
    return 0;
}

/* Wait until all agents have ended. */
static int await_end(const struct mst__cli_job *job, struct mst_err *reterr)
{
    const char *backend = mst_params_backend(job->params);
    bool is_etcd = mst__control_store_kind(backend) == MST_CONTROL_ETCD;
    int64_t deadline_ms = mst__clock_deadline_ms(job->end_ms);
    size_t count = 0;
    for (;;) {
        int rv = count_agents(job, &count, reterr);
        if (rv == MST_ECONN && !is_etcd) {
            if (count > 1) { /* one of them has served, and may have been the last */
                mst__cli_say("muster: the server has ended, %zu agents ran a moment before", count);
            }
            return 0;
        }
        if (rv != 0 && rv != MST_ECONN && rv != MST_ETIMEOUT) {
            return rv;
        }
        if (rv == 0 && count == 0) {
            return 0;
        }
        if (mst__clock_ms() >= deadline_ms) {
            return rv != 0 ? rv
                           : mst__fail(reterr, MST_ETIMEOUT, 0, "%zu agent%s still running", count,
                                       count == 1 ? " is" : "s are");
        }
        (void)usleep(STOP_PAUSE_MS * 1000); /* a signal ends this process */
    }
}

static int stop(const struct mst__cli_job *job, const char *argument, void *arg)
{
    const char *reason = *(const char *const *)arg;
    (void)argument; /* NULL */
    char owner[300];
    char host[128] = "";
    const char *user = getenv("USER");
    struct mst_err err;
    (void)gethostname(host, sizeof host - 1); /* on failure, the name is empty */
    (void)snprintf(owner, sizeof owner, "muster stop, %.120s%s%s", user == NULL ? "" : user,
                   user == NULL ? "" : "@", host); /* fits */
    bool has_reason = mst__backend_can(mst_params_backend(job->params), MST_BACKEND_REASONS);
    int rv =
        mst_status_close(job->params, has_reason ? reason : NULL, owner, job->timeout_ms, &err);
    rv = rv == 0 ? await_end(job, &err) : rv;
    return rv == 0 ? MST_EXIT_OK : mst__cli_job_fail(job, &err);
}

int mst__cli_stop(int argc, char **argv)
{
    struct mst__cli_job job = MST_CLI_JOB_DEFAULTS("muster stop", "`muster close` ends the job");
    const char *reason = "asked to by muster stop";
    const struct mst__option options[] = {
        MST_CLI_JOB_OPTIONS_WITH(job, "How long to wait for the job to answer, and then for its "
                                      "agents to end. Default 10s and 60s."),
        {"reason", "TEXT", "The reason, which agents print. Backends muster and etcd-v3 only.",
         MST_OPTION_TEXT, &reason, 0, 0},
    };
    const struct mst__usage usage = {
        .command = job.rdzv.command,
        .synopsis = "--rdzv-id ID [--rdzv-endpoint ENDPOINT] [options]",
        .text = "Stop a job: its rendezvous is closed, workers on all nodes are told to stop and "
                "killed after their grace, and agents end with status 8. Waits for that. "
                "Exit status: 0 stopped, 2 wrong arguments, 3 no such job, 4 "
                "agents are still running, 5 no connection.",
        .options = options,
        .options_count = sizeof options / sizeof options[0],
    };
    const struct mst__cli_job_act act = {.fn = stop, .arg = &reason};
    return mst__cli_job_main(&job, &usage, &act, argc, argv);
}
