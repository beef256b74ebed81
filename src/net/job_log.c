/* net/job_log.c - turns decisions of an authority into log lines and counters. */
#include "net/job_log.h"

#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "net/job_story.h"
#include "net/server.h"

static struct mst__story job_story(const struct mst__job *job)
{
    return (struct mst__story){
        .log = &job->server->options.log, .run_id = job->run_id, .authority = &job->authority};
}

/* --- the order of changes --- */

static void order_remove(struct mst__job *job)
{
    struct mst__jobs *jobs = &job->server->jobs;
    if (job->older != NULL) {
        job->older->newer = job->newer;
    }
    if (job->newer != NULL) {
        job->newer->older = job->older;
    } else if (jobs->newest == job) {
        jobs->newest = job->older;
    }
    job->older = NULL;
    job->newer = NULL;
}

/* A node of @job has come or gone, or its phase is another one. */
static void order_changed(struct mst__job *job)
{
    struct mst__jobs *jobs = &job->server->jobs;
    order_remove(job);
    job->older = jobs->newest;
    if (jobs->newest != NULL) {
        jobs->newest->newer = job;
    }
    jobs->newest = job;
}

/* --- the life of a job --- */

/* The first node was accepted. Logged before the round that it may complete. */
static void log_founded(struct mst__job *job)
{
    const struct mst__announcement *announcement = job->life.announcement;
    if (job->life.is_founded || announcement == NULL) {
        return;
    }
    char name[MST_LOG_QUOTE_SIZE];
    job->life.is_founded = true;
    mst__log(&job->server->options.log, MST_LOG_INFO, "job.founded",
             "run=%s epoch=%llu node=%s min=%u max=%u", MST_LOG_TEXT(job->run_id),
             (unsigned long long)job->authority.options.epoch,
             mst__log_quote(announcement->name, name), announcement->nodes_min,
             announcement->nodes_max);
}

/* Count a complete round. Returns how long it gathered. */
static int64_t count_complete(struct mst__job *job)
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
    int64_t open_us = mst__min(job->life.open_us, authority->now_us);
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
    return took_us;
}

/* The phase has changed. */
static void on_move(void *arg,
                    enum mst__authority_phase from,
                    enum mst__authority_phase to,
                    enum mst__authority_why why,
                    int64_t round)
{
    struct mst__job *job = arg;
    struct mst__jobs *jobs = &job->server->jobs;
    const struct mst__authority *authority = &job->authority;
    const struct mst__story story = job_story(job);
    int64_t took_us = -1;
    order_changed(job);
    log_founded(job);
    if (to == MST_AUTHORITY_OPEN) {
        job->life.tally.restarts += why == MST_AUTHORITY_WHY_FAILED;
        jobs->tally.restarts += why == MST_AUTHORITY_WHY_FAILED;
        job->life.open_us = authority->living_count > 0 ? authority->now_us : INT64_MAX;
    } else if (to == MST_AUTHORITY_RUNNING) {
        took_us = from == MST_AUTHORITY_RECLAIMING ? -1 : count_complete(job);
    } else if (to == MST_AUTHORITY_CLOSED) {
        job->life.tally.outcomes[authority->outcome]++;
        jobs->tally.outcomes[authority->outcome]++;
    }
    mst__story_moved(&story, from, to, why, round, took_us);
}

/* Remember a lost member of a round for its status. */
static void note_lost(struct mst__job *job,
                      const struct mst__authority_member *member,
                      enum mst__authority_ended how,
                      uint32_t count)
{
    bool is_lost = how == MST_AUTHORITY_ENDED_DISCONNECTED || how == MST_AUTHORITY_ENDED_SILENT ||
                   how == MST_AUTHORITY_ENDED_DEAD || how == MST_AUTHORITY_ENDED_UNCLAIMED ||
                   how == MST_AUTHORITY_ENDED_LATE;
    if (is_lost && member == NULL) {
        job->life.losses.unlisted += count; /* a place of a round that only its members knew */
    } else if (is_lost && member->rank != MST_AUTHORITY_RANK_NONE) {
        mst__job_losses_add(&job->life.losses, mst__authority_name(member), job->authority.round,
                            job->authority.now_us);
    }
}

static void on_ended(void *arg,
                     const struct mst__authority_member *member,
                     enum mst__authority_ended how,
                     uint32_t count)
{
    struct mst__job *job = arg;
    order_changed(job);
    job->life.tally.ended[how] += count;
    job->server->jobs.tally.ended[how] += count;
    note_lost(job, member, how, count);
    if (member != NULL && job->authority.living_count == 1) {
        job->life.open_us = INT64_MAX; /* it was the last round */
    }
    const struct mst__story story = job_story(job);
    mst__story_ended(&story, member, how, count);
}

void mst__job_log_init(struct mst__job *job, struct mst__authority_options *options)
{
    job->life.open_us = INT64_MAX;
    options->trace = on_move;
    options->ended = on_ended;
    options->trace_arg = job;
    order_changed(job);
}

void mst__job_log_announcing(struct mst__job *job, const struct mst__announcement *announcement)
{
    job->life.announcement = announcement;
}

void mst__job_log_announced(struct mst__job *job, bool is_accepted)
{
    const struct mst__authority *authority = &job->authority;
    if (is_accepted) {
        mst__job_losses_forget(&job->life.losses, job->life.announcement->name);
        order_changed(job);
        log_founded(job);
    }
    bool waits = authority->phase == MST_AUTHORITY_OPEN && authority->living_count > 0;
    if (waits && job->life.open_us == INT64_MAX) {
        job->life.open_us = authority->now_us;
    }
    job->life.announcement = NULL;
}

void mst__job_log_finish(const struct mst__job *job,
                         mst__authority_id id,
                         const struct mst__job_finish *finish)
{
    const struct mst__story story = job_story(job);
    char name[MST_LOG_QUOTE_SIZE];
    char text[MST_LOG_QUOTE_SIZE];
    mst__log(story.log, MST_LOG_INFO, "node.finished",
             "run=%s node=%s round=%lld status=%d text=%s", MST_LOG_TEXT(job->run_id),
             mst__story_node(&story, id, name), (long long)finish->round, finish->status,
             mst__log_quote(finish->text, text));
}

void mst__job_log_leaving(const struct mst__job *job,
                          mst__authority_id id,
                          const struct mst__job_leaving *leaving)
{
    const struct mst__story story = job_story(job);
    char name[MST_LOG_QUOTE_SIZE];
    mst__log(story.log, MST_LOG_INFO, "node.leaving", "run=%s node=%s round=%lld in_ms=%lld",
             MST_LOG_TEXT(job->run_id), mst__story_node(&story, id, name),
             (long long)leaving->round, (long long)leaving->in_us / 1000);
}

void mst__job_log_restart(const struct mst__job *job,
                          mst__authority_id id,
                          const struct mst__job_restart *restart)
{
    const struct mst__story story = job_story(job);
    mst__story_failed(&story, id, restart->round, &restart->cause);
}

void mst__job_log_forgotten(struct mst__job *job, bool has_story)
{
    order_remove(job);
    if (has_story) {
        const struct mst__story story = job_story(job);
        mst__story_forgotten(&story);
    }
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

void mst__jobs_measure(const struct mst_server *server,
                       struct mst__job_metrics *jobs,
                       struct mst__jobs_metrics *ret_metrics)
{
    *ret_metrics = (struct mst__jobs_metrics){
        .runs = mst__map_count(&server->jobs.map),
        .tally = server->jobs.tally,
        .jobs = jobs,
    };
    memcpy(ret_metrics->seconds, server->jobs.seconds, sizeof ret_metrics->seconds);
    for (const struct mst__job *job = server->jobs.newest; job != NULL; job = job->older) {
        measure_job(job, ret_metrics);
    }
}
