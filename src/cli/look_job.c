/* cli/look_job.c - what the commands see of a rendezvous of backend `muster`: one question, one
 * answer. Ages are the server's, by its own clock. One of backend `etcd-v3` is told as well. */
#include "cli/look_job.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cli/look_v3.h"
#include "handler/muster_settings.h"
#include "net/job_client.h"

/* Clocks that differ by less than this are as good as equal. */
#define SKEW_US_SHOWN 1000000

/* The sentence of a failure. */
#define CAUSE_SIZE 512

struct mst__look_job {
    struct mst__muster_settings settings;
    const char *run_id;             /* the params' own */
    struct mst__look_v3 *v3;        /* NULL = it has a server, */
    struct mst__job_client *client; /* whose memory the status is in */
    struct mst__job_status status;
    struct mst__job_member *members; /* those of the status, sorted; heap */
    size_t members_count;
    struct mst__buf mark; /* what a change would change */
};

int mst__look_job_open(struct mst__look *look,
                       const struct mst_params *params,
                       struct mst_err *reterr)
{
    struct mst__look_job *job = mst__calloc(1, sizeof *job);
    if (job == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "rendezvous");
    }
    look->job = job;
    mst__buf_init(&job->mark, MST_MIB(64));
    job->run_id = mst_params_run_id(params);
    if (strcmp(mst_params_backend(params), "etcd-v3") == 0) {
        return mst__look_v3_open(params, &job->v3, reterr);
    }
    return mst__muster_read(params, &job->settings, reterr);
}

static void look_job_clear(struct mst__look_job *job)
{
    mst__job_client_close(job->client);
    job->client = NULL;
    mst__free(job->members);
    job->members = NULL;
    job->members_count = 0;
    job->status = (struct mst__job_status){.phase = MST_AUTHORITY_OPEN};
}

void mst__look_job_close(struct mst__look *look)
{
    struct mst__look_job *job = look->job;
    if (job == NULL) {
        return;
    }
    look_job_clear(job);
    mst__look_v3_close(job->v3);
    mst__buf_close(&job->mark);
    mst__free(job);
    look->job = NULL;
}

/* --- reading --- */

/* Members by rank, then those who wait, then spares, then those who are gone. */
static int order_of(const struct mst__job_member *member)
{
    switch ((enum mst__authority_standing)member->standing) {
        case MST_STANDING_MEMBER:
        case MST_STANDING_CALLED:
        case MST_STANDING_FINISHED:
            return 0;
        case MST_STANDING_GATHERED:
            return 1;
        case MST_STANDING_QUEUED:
            return 2;
        case MST_STANDING_SPARE:
            return 3;
        case MST_STANDING_GONE:
            break;
    }
    return 4;
}

static int compare_members(const void *a, const void *b)
{
    const struct mst__job_member *x = a;
    const struct mst__job_member *y = b;
    if (order_of(x) != order_of(y)) {
        return order_of(x) - order_of(y);
    }
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    size_t size = x->name.size < y->name.size ? x->name.size : y->name.size;
    int order = size == 0 ? 0 : memcmp(x->name.data, y->name.data, size);
    return order != 0 ? order : (x->name.size > y->name.size) - (x->name.size < y->name.size);
}

static int read_members(struct mst__look_job *job, struct mst_err *reterr)
{
    struct mst_bytes rest = job->status.members;
    size_t count = job->status.member_count;
    /* A member takes some bytes, so that this is no more than what came. */
    count = count < rest.size ? count : rest.size;
    job->members = mst__calloc(count + 1, sizeof *job->members);
    if (job->members == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "%zu members", count);
    }
    while (job->members_count < count &&
           mst__job_member_next(&rest, &job->members[job->members_count])) {
        job->members_count++;
    }
    qsort(job->members, job->members_count, sizeof *job->members, compare_members);
    return 0;
}

static void put(struct mst__buf *text, int *rv, const char *format, ...) MST_PRINTF(3, 4);

static void put(struct mst__buf *text, int *rv, const char *format, ...)
{
    char line[400];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    size_t size = length < 0 ? 0 : (size_t)length < sizeof line ? (size_t)length : sizeof line - 1;
    if (*rv == 0) {
        *rv = mst__buf_append(text, mst_bytes_of(line, size));
    }
}

/* All that makes a change, which is not the time that passes. */
static int make_mark(const struct mst__look_job *job, struct mst__buf *mark)
{
    const struct mst__job_status *status = &job->status;
    int rv = 0;
    put(mark, &rv, "%u %" PRIu64 " %" PRId64 " %" PRId64 " %u %u %u", status->phase, status->epoch,
        status->round, status->round_next, status->world, status->nodes_min, status->nodes_max);
    for (size_t i = 0; i < job->members_count; i++) {
        const struct mst__job_member *member = &job->members[i];
        put(mark, &rv, "\n%u %u %" PRIu64 " ", member->standing, member->rank, member->incarnation);
        rv = rv == 0 ? mst__buf_append(mark, member->name) : rv;
    }
    return rv;
}

static int ask(struct mst__look_job *job,
               const struct mst__job_message *question,
               int64_t timeout_ms,
               struct mst__job_message *ret_answer,
               struct mst_err *reterr)
{
    enum mst__job_type wanted =
        question->type == MST_JOB_STATUS ? MST_JOB_STATUS_TOLD : MST_JOB_CLOSED;
    look_job_clear(job);
    int rv = mst__job_client_ask(&job->settings.place.endpoint, question, mst__until_in(timeout_ms),
                                 &job->client, ret_answer, reterr);
    if (rv == 0 && ret_answer->type != wanted) {
        rv = mst__fail(reterr, MST_EPROTO, 0, "the server says '%s' instead of '%s'",
                       mst__job_type_name(ret_answer->type), mst__job_type_name(wanted));
    }
    return rv;
}

static int ask_status(struct mst__look_job *job,
                      int64_t timeout_ms,
                      struct mst__job_status *ret_status,
                      struct mst_err *reterr)
{
    const struct mst__job_message question = {
        .type = MST_JOB_STATUS,
        .u.close = {.run_id = mst_bytes_str(job->run_id), .version = MST_JOB_VERSION}};
    struct mst__job_message answer;
    if (job->v3 != NULL) {
        look_job_clear(job);
        return mst__look_v3_read(job->v3, timeout_ms, ret_status, reterr);
    }
    int rv = ask(job, &question, timeout_ms, &answer, reterr);
    if (rv == 0) {
        *ret_status = answer.u.status;
    }
    return rv;
}

int mst__look_job_read(struct mst__look *look,
                       int64_t timeout_ms,
                       bool *ret_changed,
                       struct mst_err *reterr)
{
    struct mst__look_job *job = look->job;
    struct mst__job_status status;
    int rv = ask_status(job, timeout_ms, &status, reterr);
    bool exists = rv == 0;
    if (rv != 0 && rv != MST_ENOTFOUND) {
        return rv;
    }
    rv = 0;
    struct mst__buf mark;
    mst__buf_init(&mark, MST_MIB(64));
    if (exists) {
        job->status = status;
        rv = read_members(job, reterr);
        if (rv == 0) {
            rv = make_mark(job, &mark);
            rv = rv == 0 ? 0 : mst__fail(reterr, rv, 0, "status");
        }
    }
    *ret_changed = !mst__bytes_equal(mst__buf_bytes(&mark), mst__buf_bytes(&job->mark));
    mst__buf_close(&job->mark);
    job->mark = mark;
    look->exists = exists;
    return rv;
}

void mst__look_job_group(const struct mst__look *look, struct mst__look_group *ret_group)
{
    const struct mst__look_job *job = look->job;
    enum mst__authority_phase phase = (enum mst__authority_phase)job->status.phase;
    ret_group->is_closed = phase == MST_AUTHORITY_CLOSED;
    ret_group->is_running = phase == MST_AUTHORITY_RUNNING || phase == MST_AUTHORITY_RECLAIMING;
    ret_group->round = ret_group->is_running ? job->status.round : job->status.round_next;
    for (size_t i = 0; i < job->members_count; i++) {
        int order = order_of(&job->members[i]);
        /* While a round is open, those who still hold the last one are not there yet. */
        ret_group->here += order == (ret_group->is_running ? 0 : 1) ? 1 : 0;
        ret_group->waiting += ret_group->is_running && order >= 1 && order <= 3 ? 1 : 0;
    }
}

void mst__look_job_nodes(const struct mst__look *look, mst__look_node_fn fn, void *arg)
{
    const struct mst__look_job *job = look->job;
    for (size_t i = 0; i < job->members_count; i++) {
        if (job->members[i].standing != MST_STANDING_GONE) {
            fn(arg, job->members[i].name);
        }
    }
}

/* --- telling --- */

static bool is_late(const struct mst__look_job *job, const struct mst__job_member *member)
{
    return member->standing != MST_STANDING_GONE &&
           mst__look_is_late(member->silent_us, job->status.heartbeat_us);
}

int mst__look_job_summary(const struct mst__look *look, struct mst__buf *text)
{
    const struct mst__job_status *status = &look->job->status;
    int rv = 0;
    (void)mst__cli_put_foreign(text, status->sentence, &rv);
    if (status->is_cut) {
        put(text, &rv, " There are more nodes than those %u.", status->member_count);
    }
    return rv;
}

static size_t names_width(const struct mst__look_job *job, bool is_address)
{
    size_t width = is_address ? 7 : 4;
    for (size_t i = 0; i < job->members_count; i++) {
        const struct mst__job_member *member = &job->members[i];
        size_t size = is_address ? member->address.size : member->name.size;
        width = size > width ? size : width;
    }
    return width;
}

static void put_column(struct mst__buf *text, int *rv, struct mst_bytes value, size_t width)
{
    size_t length = mst__cli_put_foreign(text, value, rv);
    put(text, rv, "%*s  ", (int)(length < width ? width - length : 0), "");
}

static void put_member(struct mst__buf *text,
                       int *rv,
                       const struct mst__look_job *job,
                       const struct mst__job_member *member,
                       size_t name_width,
                       size_t address_width)
{
    char rank[16] = "-";
    if (member->rank != MST_AUTHORITY_RANK_NONE) {
        (void)snprintf(rank, sizeof rank, "%u", member->rank); /* fits */
    }
    enum mst__authority_standing standing = (enum mst__authority_standing)member->standing;
    put(text, rv, "%-8s  %5s  ", mst__authority_standing_name(standing), rank);
    put_column(text, rv, member->name, name_width);
    put_column(text, rv, member->address, address_width);
    put(text, rv, member->silent_us < 0 ? "-" : "%.1f s ago", (double)member->silent_us / 1e6);
    if (is_late(job, member)) {
        put(text, rv, ", late");
    }
    if (member->has_skew && (member->skew_us > SKEW_US_SHOWN || member->skew_us < -SKEW_US_SHOWN)) {
        put(text, rv, ", its clock is %.1f s %s", (double)llabs(member->skew_us) / 1e6,
            member->skew_us > 0 ? "ahead" : "behind");
    }
    put(text, rv, "\n");
}

/* ", 1 of 3 restarts used"; and, on a line of its own, the last failure. */
static void put_restarts(struct mst__buf *text, int *rv, const struct mst__job_status *status)
{
    const struct mst__budget *budget = &status->budget;
    if (budget->is_limited) {
        put(text, rv, ", %u of %u restarts used", status->restarts, budget->restarts_max);
    } else if (status->restarts > 0) {
        put(text, rv, ", %u restarts", status->restarts);
    }
    if (status->end.has_cause) {
        char sentence[CAUSE_SIZE];
        mst__cause_describe(&status->end.cause, sentence, sizeof sentence);
        put(text, rv, "\nlast failure: ");
        (void)mst__cli_put_foreign(text, mst_bytes_str(sentence), rv);
    }
}

int mst__look_job_table(const struct mst__look *look, struct mst__buf *text)
{
    const struct mst__look_job *job = look->job;
    const struct mst__job_status *status = &job->status;
    enum mst__authority_phase phase = (enum mst__authority_phase)status->phase;
    int rv = 0;
    put(text, &rv, ": round %" PRId64 " of epoch %" PRIu64 ", %s", status->round, status->epoch,
        mst__authority_phase_name(phase));
    if (status->nodes_max > 0) {
        put(text, &rv, ", %u to %u nodes", status->nodes_min, status->nodes_max);
    }
    put_restarts(text, &rv, status);
    put(text, &rv, "\n");
    if (job->members_count > 0) {
        size_t name_width = names_width(job, false);
        size_t address_width = names_width(job, true);
        put(text, &rv, "%-8s  %5s  %-*s  %-*s  %s\n", "", "rank", (int)name_width, "node",
            (int)address_width, "address", "heard of");
        for (size_t i = 0; i < job->members_count; i++) {
            put_member(text, &rv, job, &job->members[i], name_width, address_width);
        }
    }
    return rv;
}

static void json_members(const struct mst__look_job *job,
                         struct mst__cli_json *json,
                         const char *name,
                         int order_first,
                         int order_last)
{
    mst__cli_json_begin(json, name, '[');
    for (size_t i = 0; i < job->members_count; i++) {
        const struct mst__job_member *member = &job->members[i];
        if (order_of(member) < order_first || order_of(member) > order_last) {
            continue;
        }
        enum mst__authority_standing standing = (enum mst__authority_standing)member->standing;
        mst__cli_json_begin(json, NULL, '{');
        mst__cli_json_text(json, "node", member->name);
        mst__cli_json_text(json, "addr", member->address);
        mst__cli_json_text(json, "standing", mst_bytes_str(mst__authority_standing_name(standing)));
        if (member->rank != MST_AUTHORITY_RANK_NONE) {
            mst__cli_json_number(json, "rank", member->rank);
        } else {
            mst__cli_json_null(json, "rank");
        }
        if (member->silent_us >= 0) {
            mst__cli_json_number(json, "heartbeat_age_ms", member->silent_us / 1000);
        } else {
            mst__cli_json_null(json, "heartbeat_age_ms");
        }
        mst__cli_json_bool(json, "late", is_late(job, member));
        if (member->has_skew) {
            mst__cli_json_number(json, "clock_skew_ms", member->skew_us / 1000);
        } else {
            mst__cli_json_null(json, "clock_skew_ms");
        }
        mst__cli_json_end(json, '}');
    }
    mst__cli_json_end(json, ']');
}

static void json_cause(struct mst__cli_json *json, const struct mst__job_end *end)
{
    const struct mst__cause *cause = &end->cause;
    if (!end->has_cause) {
        mst__cli_json_null(json, "cause");
        return;
    }
    mst__cli_json_begin(json, "cause", '{');
    mst__cli_json_text(json, "node", cause->node);
    if (cause->rank != MST_AUTHORITY_RANK_NONE) {
        mst__cli_json_number(json, "rank", cause->rank);
    } else {
        mst__cli_json_null(json, "rank");
    }
    if (cause->worker != MST_CAUSE_WORKER_NONE) {
        mst__cli_json_number(json, "worker", cause->worker);
    } else {
        mst__cli_json_null(json, "worker");
    }
    mst__cli_json_number(json, "status", cause->status);
    mst__cli_json_number(json, "signal", cause->signal);
    mst__cli_json_number(json, "time_us", cause->wall_us);
    mst__cli_json_text(json, "text", cause->text);
    mst__cli_json_end(json, '}');
}

static void json_end(struct mst__cli_json *json, const struct mst__job_status *status)
{
    enum mst__job_outcome outcome = (enum mst__job_outcome)status->end.outcome;
    if (status->phase == MST_AUTHORITY_CLOSED) {
        mst__cli_json_text(json, "outcome", mst_bytes_str(mst__job_outcome_name(outcome)));
    } else {
        mst__cli_json_null(json, "outcome");
    }
    json_cause(json, &status->end);
    mst__cli_json_number(json, "finished", status->finished);
    mst__cli_json_number(json, "restarts", status->restarts);
    if (status->budget.is_limited) {
        mst__cli_json_number(json, "restarts_max", status->budget.restarts_max);
    } else {
        mst__cli_json_null(json, "restarts_max");
    }
    mst__cli_json_number(json, "restarts_window_ms", status->budget.window_us / 1000);
}

void mst__look_job_json(const struct mst__look *look, struct mst__cli_json *json)
{
    const struct mst__look_job *job = look->job;
    const struct mst__job_status *status = &job->status;
    enum mst__authority_phase phase = (enum mst__authority_phase)status->phase;
    mst__cli_json_number(json, "epoch", (int64_t)status->epoch);
    mst__cli_json_number(json, "round", status->round);
    mst__cli_json_number(json, "world_size", status->world);
    mst__cli_json_text(json, "phase", mst_bytes_str(mst__authority_phase_name(phase)));
    mst__cli_json_bool(json, "complete",
                       phase == MST_AUTHORITY_RUNNING || phase == MST_AUTHORITY_RECLAIMING);
    mst__cli_json_bool(json, "closed", phase == MST_AUTHORITY_CLOSED);
    mst__cli_json_text(json, "closed_by", status->owner);
    mst__cli_json_text(json, "reason", status->reason);
    mst__cli_json_number(json, "nodes_min", status->nodes_min);
    mst__cli_json_number(json, "nodes_max", status->nodes_max);
    json_end(json, status);
    json_members(job, json, "participants", 0, 0);
    json_members(job, json, "waiting", 1, 2);
    json_members(job, json, "spares", 3, 3);
    json_members(job, json, "gone", 4, 4);
}

/* --- closing --- */

int mst__look_job_shut(const struct mst_params *params,
                       const char *reason,
                       int64_t timeout_ms,
                       struct mst_err *reterr)
{
    char host[128] = "";
    char owner[300];
    const char *user = getenv("USER");
    (void)gethostname(host, sizeof host - 1); /* then it is empty */
    (void)snprintf(owner, sizeof owner, "muster close, %.120s%s%s", user == NULL ? "" : user,
                   user == NULL ? "" : "@", host); /* fits */
    struct mst__look look = {0};
    bool has_changed;
    int rv = mst__look_job_open(&look, params, reterr);
    if (rv == 0) {
        rv = mst__look_job_read(&look, timeout_ms, &has_changed, reterr);
    }
    if (rv == 0 && !look.exists) {
        rv = mst__fail(reterr, MST_ENOTFOUND, 0, "there is no rendezvous '%.60s' at '%.80s'",
                       mst_params_run_id(params), mst_params_endpoint(params));
    }
    if (rv == 0 && look.job->v3 != NULL) {
        rv = mst__look_v3_shut(look.job->v3, reason, owner, timeout_ms, reterr);
    } else if (rv == 0) {
        const struct mst__job_message question = {
            .type = MST_JOB_CLOSE,
            .u.close = {.run_id = mst_bytes_str(mst_params_run_id(params)),
                        .reason = mst_bytes_str(reason),
                        .owner = mst_bytes_str(owner)},
        };
        struct mst__job_message answer;
        rv = ask(look.job, &question, timeout_ms, &answer, reterr);
    }
    mst__look_job_close(&look);
    return rv;
}
