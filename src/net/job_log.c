/* net/job_log.c - what an authority decides as log lines and counters. */
#include "net/job_log.h"

#include <string.h>

#include "base/log.h"
#include "net/server.h"

static const struct mst_log *job_log(const struct mst__job *job)
{
    return &job->server->options.log;
}

static double seconds(int64_t us)
{
    return (double)us / 1e6;
}

/* The first node was accepted. That may complete a round at once, and this comes before it. */
static void log_founded(struct mst__job *job)
{
    const struct mst__announcement *announcement = job->life.announcement;
    if (job->life.is_founded || announcement == NULL) {
        return;
    }
    char name[MST_LOG_QUOTE_SIZE];
    job->life.is_founded = true;
    mst__log(job_log(job), MST_LOG_INFO, "job.founded", "run=%s epoch=%llu node=%s min=%u max=%u",
             MST_LOG_TEXT(job->run_id), (unsigned long long)job->authority.options.epoch,
             mst__log_quote(announcement->name, name), announcement->nodes_min,
             announcement->nodes_max);
}

static void log_complete(struct mst__job *job, enum mst__authority_why why)
{
    static const int64_t bounds_us[] = {
#define BOUND_US(text, us) (us),
        MST_JOB_SECONDS_MAP(BOUND_US)
#undef BOUND_US
    };
    static_assert(sizeof bounds_us / sizeof bounds_us[0] + 1 == MST_JOB_SECONDS_COUNT,
                  "one more for what is beyond them");
    const struct mst__authority *authority = &job->authority;
    struct mst__jobs *jobs = &job->server->jobs;
    int64_t open_us = job->life.open_us < authority->now_us ? job->life.open_us : authority->now_us;
    int64_t took_us = authority->now_us - open_us;
    size_t bucket = 0;
    while (bucket < MST_JOB_SECONDS_COUNT - 1 && took_us > bounds_us[bucket]) {
        bucket++;
    }
    jobs->seconds[bucket]++;
    jobs->tally.rounds++;
    jobs->tally.gathering_us += (uint64_t)took_us;
    job->life.tally.rounds++;
    job->life.tally.gathering_us += (uint64_t)took_us;
    mst__log(job_log(job), MST_LOG_INFO, "job.complete",
             "run=%s round=%lld nodes=%u seconds=%.3f why=%s", MST_LOG_TEXT(job->run_id),
             (long long)authority->round, authority->world, seconds(took_us),
             MST_LOG_TEXT(mst__authority_why_name(why)));
}

static void log_reopened(const struct mst__job *job, enum mst__authority_why why, int64_t round)
{
    const struct mst__authority *authority = &job->authority;
    uint32_t rank = authority->reopened_rank;
    const struct mst__authority_member *first =
        rank == MST_AUTHORITY_RANK_NONE ? NULL : mst__authority_ranked(authority, rank);
    char name[MST_LOG_QUOTE_SIZE];
    mst__log(job_log(job), MST_LOG_INFO, "job.reopened",
             "run=%s round=%lld next=%lld why=%s node=%s", MST_LOG_TEXT(job->run_id),
             (long long)authority->round, (long long)round, mst__authority_why_name(why),
             mst__log_quote(first == NULL ? mst_bytes_str("") : mst__authority_name(first), name));
}

static void log_closed(struct mst__job *job, int64_t round)
{
    static const char *const events[MST_JOB_OUTCOME_COUNT] = {
        [MST_JOB_OUTCOME_ASKED] = "job.closed",
        [MST_JOB_OUTCOME_FINISHED] = "job.finished",
        [MST_JOB_OUTCOME_FAILED] = "job.failed",
    };
    const struct mst__authority *authority = &job->authority;
    job->life.tally.outcomes[authority->outcome]++;
    job->server->jobs.tally.outcomes[authority->outcome]++;
    mst__log(job_log(job), MST_LOG_INFO, events[authority->outcome],
             "run=%s round=%lld by=%s reason=%s restarts=%u", MST_LOG_TEXT(job->run_id),
             (long long)round, MST_LOG_TEXT(authority->close_owner),
             MST_LOG_TEXT(authority->close_reason), authority->restarts);
}

/* The phase has changed. */
static void on_move(void *arg,
                    enum mst__authority_phase from,
                    enum mst__authority_phase to,
                    enum mst__authority_why why,
                    int64_t round)
{
    struct mst__job *job = arg;
    const struct mst__authority *authority = &job->authority;
    log_founded(job);
    switch (to) {
        case MST_AUTHORITY_OPEN:
            log_reopened(job, why, round);
            job->life.tally.restarts += why == MST_AUTHORITY_WHY_FAILED;
            job->server->jobs.tally.restarts += why == MST_AUTHORITY_WHY_FAILED;
            job->life.open_us = authority->living_count > 0 ? authority->now_us : INT64_MAX;
            return;
        case MST_AUTHORITY_RECLAIMING:
            mst__log(job_log(job), MST_LOG_INFO, "job.claimed", "run=%s round=%lld nodes=%u",
                     MST_LOG_TEXT(job->run_id), (long long)round, authority->world);
            return;
        case MST_AUTHORITY_RUNNING:
            if (from == MST_AUTHORITY_RECLAIMING) {
                mst__log(job_log(job), MST_LOG_INFO, "job.resumed", "run=%s round=%lld nodes=%u",
                         MST_LOG_TEXT(job->run_id), (long long)round, authority->world);
            } else {
                log_complete(job, why);
            }
            /* Who still waits, or comes, waits for the next one. */
            job->life.open_us = INT64_MAX;
            return;
        case MST_AUTHORITY_CLOSED:
            log_closed(job, round);
            return;
    }
}

/* What became of a node, as its line calls it. */
static const char *ended_event(enum mst__authority_ended how)
{
    switch (how) {
        case MST_AUTHORITY_ENDED_LEFT:
        case MST_AUTHORITY_ENDED_FINISHED:
            return "node.left";
        case MST_AUTHORITY_ENDED_DISCONNECTED:
        case MST_AUTHORITY_ENDED_SILENT:
        case MST_AUTHORITY_ENDED_DEAD:
        case MST_AUTHORITY_ENDED_UNCLAIMED:
            return "node.lost";
        case MST_AUTHORITY_ENDED_REPLACED:
        case MST_AUTHORITY_ENDED_OVER:
        case MST_AUTHORITY_ENDED_LATE:
            break;
    }
    return "node.expelled";
}

static void on_ended(void *arg,
                     const struct mst__authority_member *member,
                     enum mst__authority_ended how,
                     uint32_t count)
{
    struct mst__job *job = arg;
    const struct mst__authority *authority = &job->authority;
    job->life.tally.ended[how] += count;
    job->server->jobs.tally.ended[how] += count;
    if (member == NULL) {
        mst__log(job_log(job), MST_LOG_INFO, ended_event(how),
                 "run=%s cause=%s round=%lld count=%u", MST_LOG_TEXT(job->run_id),
                 mst__authority_ended_name(how), (long long)authority->round, count);
        return;
    }
    if (authority->living_count == 1) {
        job->life.open_us = INT64_MAX; /* it was the last */
    }
    char name[MST_LOG_QUOTE_SIZE];
    char rank[16] = "-";
    if (member->rank != MST_AUTHORITY_RANK_NONE) {
        (void)snprintf(rank, sizeof rank, "%u", member->rank); /* fits */
    }
    mst__log(job_log(job), MST_LOG_INFO, ended_event(how),
             "run=%s node=%s cause=%s standing=%s round=%lld rank=%s", MST_LOG_TEXT(job->run_id),
             mst__log_quote(mst__authority_name(member), name), mst__authority_ended_name(how),
             mst__authority_standing_name(mst__authority_standing(authority, member)),
             (long long)authority->round, rank);
}

void mst__job_log_init(struct mst__job *job, struct mst__authority_options *options)
{
    job->life.open_us = INT64_MAX;
    options->trace = on_move;
    options->ended = on_ended;
    options->trace_arg = job;
}

void mst__job_log_announcing(struct mst__job *job, const struct mst__announcement *announcement)
{
    job->life.announcement = announcement;
}

void mst__job_log_announced(struct mst__job *job, bool is_accepted)
{
    const struct mst__authority *authority = &job->authority;
    if (is_accepted) {
        log_founded(job);
    }
    bool waits = authority->phase == MST_AUTHORITY_OPEN && authority->living_count > 0;
    if (waits && job->life.open_us == INT64_MAX) {
        job->life.open_us = authority->now_us;
    }
    job->life.announcement = NULL;
}

/* The name of the node @id, quoted. */
static const char *node_text(const struct mst__job *job,
                             mst__authority_id id,
                             char ret_text[MST_LOG_QUOTE_SIZE])
{
    const struct mst__authority_member *member = mst__authority_get(&job->authority, id);
    return mst__log_quote(member == NULL ? mst_bytes_str("") : mst__authority_name(member),
                          ret_text);
}

void mst__job_log_finish(const struct mst__job *job,
                         mst__authority_id id,
                         const struct mst__job_finish *finish)
{
    char name[MST_LOG_QUOTE_SIZE];
    char text[MST_LOG_QUOTE_SIZE];
    mst__log(job_log(job), MST_LOG_INFO, "node.finished",
             "run=%s node=%s round=%lld status=%d text=%s", MST_LOG_TEXT(job->run_id),
             node_text(job, id, name), (long long)finish->round, finish->status,
             mst__log_quote(finish->text, text));
}

void mst__job_log_restart(const struct mst__job *job,
                          mst__authority_id id,
                          const struct mst__job_restart *restart)
{
    const struct mst__authority *authority = &job->authority;
    const struct mst__cause *cause = &restart->cause;
    bool is_first =
        authority->round == restart->round &&
        (authority->phase == MST_AUTHORITY_RUNNING || authority->phase == MST_AUTHORITY_RECLAIMING);
    char name[MST_LOG_QUOTE_SIZE];
    char text[MST_LOG_QUOTE_SIZE];
    char worker[16] = "-";
    if (cause->worker != MST_CAUSE_WORKER_NONE) {
        (void)snprintf(worker, sizeof worker, "%u", cause->worker); /* fits */
    }
    mst__log(job_log(job), MST_LOG_INFO, "node.failed",
             "run=%s node=%s round=%lld first=%s worker=%s status=%d signal=%u text=%s",
             MST_LOG_TEXT(job->run_id), node_text(job, id, name), (long long)restart->round,
             is_first ? "yes" : "no", worker, cause->status, cause->signal,
             mst__log_quote(cause->text, text));
}

void mst__job_log_forgotten(const struct mst__job *job)
{
    mst__log(job_log(job), MST_LOG_INFO, "job.forgotten", "run=%s round=%lld",
             MST_LOG_TEXT(job->run_id), (long long)job->authority.round);
}

/* --- the metrics page --- */

static void measure_job(const struct mst__job *job, struct mst__jobs_metrics *metrics)
{
    struct mst__job_metrics found = {
        .run_id = mst_bytes_of(job->run_id, job->run_id_size),
        .tally = job->life.tally,
    };
    mst__authority_count_standings(&job->authority, found.standings);
    for (unsigned i = 0; i < MST_STANDING_COUNT; i++) {
        metrics->standings[i] += found.standings[i];
    }
    metrics->members += job->authority.living_count;
    if (job->authority.living_count == 0) {
        return;
    }
    if (metrics->jobs_count == MST_METRICS_JOBS_MAX ||
        job->run_id_size > MST_METRICS_RUN_ID_SIZE_MAX) {
        metrics->jobs_unlisted++;
    } else {
        metrics->jobs[metrics->jobs_count++] = found;
    }
}

void mst__jobs_measure(const struct mst_server *server, struct mst__jobs_metrics *ret_metrics)
{
    const struct mst__jobs *jobs = &server->jobs;
    *ret_metrics = (struct mst__jobs_metrics){
        .runs = mst__map_count(&jobs->map),
        .tally = jobs->tally,
    };
    memcpy(ret_metrics->seconds, jobs->seconds, sizeof ret_metrics->seconds);
    for (void *value = mst__map_first(&jobs->map); value != NULL; value = mst__map_next(value)) {
        measure_job(*(struct mst__job **)value, ret_metrics);
    }
}
