/* agent/run_report.c - messages of a run for the user. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/error_file.h"
#include "agent/report.h"
#include "agent/run_self.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/unicode.h"

#define SAY_SIZE 1200
#define END_SIZE 100
#define NAMED_MAX 8 /* lost nodes per notice that get a line each */

/* Variable with a path, to which torchrun copies the error file of the worker that failed first. */
#define OWN_ERROR_FILE "TORCHELASTIC_ERROR_FILE"

void mst__run_say(struct mst__run *run, const char *format, ...)
{
    char line[SAY_SIZE];
    struct mst__buf text;
    int rv = 0;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args); /* cut off when long */
    va_end(args);
    mst__buf_init(&text, sizeof line * MST_UNICODE_SHOWN_SIZE);
    (void)mst__text_put_foreign(&text, &rv, mst_bytes_str(line)); /* names and causes of others */
    if (rv == 0 && mst__buf_append_u8(&text, '\n') == 0) {
        mst__output_say(run->output, mst__buf_bytes(&text));
    }
    mst__buf_close(&text);
}

/* --- the job's life --- */

bool mst__run_shares_console(const struct mst__run_settings *settings)
{
    const char *who = mst__env_get(settings->environment, MST_REPORT_VARIABLE);
    return who != NULL && strcmp(who, "cause") == 0;
}

static bool tells_for_all(const struct mst__run *run)
{
    return run->round.rank == 0 || !mst__run_shares_console(run->settings);
}

/* Write "exit status 3" or "SIGSEGV". */
static void name_end(int status, int signal, struct mst_bytes text, char ret_text[END_SIZE])
{
    if (signal != 0) {
        mst__report_signal(signal, ret_text);
    } else if (status != 0) {
        (void)snprintf(ret_text, END_SIZE, "exit status %d", status);
    } else { /* it hangs */
        (void)snprintf(ret_text, END_SIZE, "%.*s", (int)text.size, (const char *)text.data);
    }
}

void mst__run_tell_failure(struct mst__run *run, const struct mst__cause *cause)
{
    char text[END_SIZE];
    name_end(cause->status, (int)cause->signal, cause->text, text);
    if (run->settings->max_restarts > 0) { /* otherwise the report follows */
        mst__run_say(run, "muster: worker %u (rank %lld) failed: %s", cause->worker,
                     (long long)run->assignment.first_rank + cause->worker, text);
    }
}

/* Tell that a worker of another node failed, once per round: several notices may have the cause. */
static void tell_their_failure(struct mst__run *run, const struct mst_cause *cause)
{
    char text[END_SIZE];
    bool is_ours = strcmp(cause->node, mst_handler_node(run->handler)) == 0;
    if (is_ours || run->told_round == run->round.round) {
        return;
    }
    run->told_round = run->round.round;
    name_end(cause->exit_status, cause->signal, mst_bytes_str(cause->text), text);
    mst__run_say(run, "muster: a worker of node '%s' failed: %s", cause->node, text);
}

static void tell_gone(struct mst__run *run, const struct mst_node *node)
{
    const char *how = node->has_left ? "has left" : "is lost";
    if (node->name[0] == '\0') { /* a restarted server knows only who has come back */
        mst__run_say(run, "muster: the node of rank %lld %s; its name is not known",
                     (long long)node->rank, how);
    } else {
        mst__run_say(run, "muster: node '%s' %s", node->name, how);
    }
}

void mst__run_tell_over(struct mst__run *run, const struct mst_notice *notice)
{
    if (!tells_for_all(run)) {
        return;
    }
    if (notice->has_cause) {
        tell_their_failure(run, &notice->cause);
    }
    if (notice->kind == MST_NOTICE_EXPELLED) {
        mst__run_say(run, "muster: this node has lost its place in round %lld",
                     (long long)notice->round);
    }
    if (notice->kind == MST_NOTICE_LOST && notice->node_count <= NAMED_MAX) {
        for (size_t i = 0; i < notice->node_count; i++) {
            tell_gone(run, &notice->nodes[i]);
        }
    } else if (notice->kind == MST_NOTICE_LOST) {
        mst__run_say(run, "muster: %zu nodes are gone", notice->node_count);
    }
}

void mst__run_tell_stop(struct mst__run *run)
{
    if (run->agent.reason == MST_AGENT_REASON_JOIN && tells_for_all(run)) {
        mst__run_say(run, "muster: a node joins; the workers restart");
    }
}

void mst__run_tell_start(struct mst__run *run)
{
    const struct mst__run_settings *settings = run->settings;
    char restarts[60] = "";
    if (run->agent.generation == 1 || !tells_for_all(run)) {
        return;
    }
    if (settings->max_restarts > 0) {
        (void)snprintf(restarts, sizeof restarts, ", %u of %lld restarts used", run->agent.restarts,
                       (long long)settings->max_restarts);
    }
    mst__run_say(run, "muster: generation %u starts: %lld node%s, world size %lld%s",
                 run->agent.generation, (long long)run->round.world_size,
                 run->round.world_size == 1 ? "" : "s", (long long)run->assignment.world_size,
                 restarts);
}

/* --- the report of a failure --- */

/* The last line that is not blank. */
static struct mst_bytes last_line(struct mst_bytes text)
{
    while (text.size > 0 && text.data[text.size - 1] <= ' ') {
        text.size--;
    }
    const uint8_t *line = text.size == 0 ? NULL : memrchr(text.data, '\n', text.size);
    size_t skipped = line == NULL ? 0 : (size_t)(line + 1 - text.data);
    return mst_bytes_of(text.data + skipped, text.size - skipped);
}

/* Write the failure in one line, for the job. */
static void make_sentence(const struct mst__failed_worker *failed,
                          char ret_text[MST_AUTHORITY_CAUSE_SIZE_MAX + 1])
{
    struct mst_bytes what = mst_bytes_str(failed->message);
    const uint8_t *end = what.size == 0 ? NULL : memchr(what.data, '\n', what.size);
    what.size = end == NULL ? what.size : (size_t)(end - what.data);
    if (what.size == 0) {
        what = last_line(failed->tail);
    }
    (void)snprintf(ret_text, MST_AUTHORITY_CAUSE_SIZE_MAX + 1, "rank %lld%s%.*s",
                   (long long)failed->rank, what.size == 0 ? "" : ": ",
                   (int)(what.size < 255 ? what.size : 255),
                   (const char *)what.data); /* cut off if long */
}

void mst__run_describe(struct mst__run *run,
                       const struct mst__cause *cause,
                       char ret_text[MST_AUTHORITY_CAUSE_SIZE_MAX + 1])
{
    uint32_t worker = cause->worker;
    const char *path = mst__output_path(run->output, worker, "error.json");
    struct mst__error_report report = {.message = ""};
    struct mst__buf tail;
    struct mst_err ignored; /* without the error file, stderr is reported */
    mst__buf_init(&tail, MST_AGENT_BLOCK_SIZE_MAX / 2);
    bool has_file = path != NULL && mst__error_file_read(path, &run->arena, &report, &ignored) == 0;
    if (!has_file) {
        (void)mst__output_tail(run->output, worker, &tail); /* as much as there is */
    }
    char known[MST_AUTHORITY_CAUSE_SIZE_MAX + 1]; /* such as "no heartbeat for 60 s" */
    (void)snprintf(known, sizeof known, "%.*s", (int)cause->text.size,
                   (const char *)cause->text.data);
    const struct mst__failed_worker failed = {
        .rank = run->assignment.first_rank + worker,
        .local_rank = run->settings->local_first + worker,
        .pid = run->last_pids[worker],
        .status = cause->status,
        .signal = (int)cause->signal,
        .wall_us = cause->wall_us,
        .host = run->settings->machine.hostname,
        .error_file = has_file ? path : NULL,
        .message = has_file ? report.message : known,
        .tail = mst__buf_bytes(&tail),
    };
    mst__buf_clear(&run->block);
    if (mst__report_block(&run->block, &failed) != 0) {
        mst__buf_truncate(&run->block, 0); /* too long, or no memory: only the sentence is left */
    }
    run->has_own_block = mst__buf_size(&run->block) > 0;
    run->own_wall_us = cause->wall_us;
    make_sentence(&failed, ret_text);
    const char *own = getenv(OWN_ERROR_FILE);
    if (has_file && own != NULL && own[0] != '\0') {
        (void)mst__error_file_copy(path, own, cause->status, &ignored);
    }
    mst__buf_close(&tail);
}

static void say_failed(struct mst__run *run)
{
    struct mst__buf text;
    mst__buf_init(&text, MST_REPORT_SIZE_MAX);
    if (mst__buf_size(&run->block) == 0) {
        (void)mst__report_cause(&run->block, &run->agent.cause);
    }
    if (mst__report(&text, run->settings->program[0], mst__buf_bytes(&run->block)) == 0) {
        mst__output_say(run->output, mst__buf_bytes(&text));
    }
    mst__buf_close(&text);
}

static void say_stuck(struct mst__run *run)
{
    for (uint32_t i = 0; i < run->group.count; i++) {
        if (run->group.pids[i] != 0) {
            mst__run_say(run, "muster: worker %u (pid %lld) does not end although it is killed", i,
                         (long long)run->group.pids[i]);
        }
    }
}

void mst__run_report(struct mst__run *run)
{
    const struct mst__agent *agent = &run->agent;
    struct mst__json_writer *line = mst__events_begin(&run->events, "end");
    if (line != NULL) {
        mst__json_put_text(line, "end", mst_bytes_str(mst__agent_end_name(agent->end)));
        mst__json_put_number(line, "restarts", agent->restarts);
        if (agent->end == MST_AGENT_END_FAILED) {
            mst__json_put_text(line, "node", agent->cause.node);
            mst__json_put_number(line, "worker", agent->cause.worker);
            mst__json_put_number(line, "exit_status", agent->cause.status);
            mst__json_put_number(line, "signal", agent->cause.signal);
        }
        mst__events_end(&run->events);
    }
    /* Of agents that share a console, only the one whose worker failed prints the report. */
    bool tells = run->has_own_block || !mst__run_shares_console(run->settings);
    if (agent->end == MST_AGENT_END_FAILED && tells) {
        say_failed(run);
    }
    say_stuck(run);
}
