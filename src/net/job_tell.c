/* net/job_tell.c - encodes effects of an authority as frames.
 *
 * A message to all members is encoded once, collected with the next ones for the same audience, and
 * written to each connection in one piece; only the ranks in a SEALED differ. */
#include "net/job_tell.h"

#include "base/assert.h"
#include "base/log.h"
#include "net/server.h"

enum audience {
    AUDIENCE_NONE,
    AUDIENCE_HOLDERS, /* the nodes that hold the round */
    AUDIENCE_ALL,
};

/* Collected frames for one audience. */
struct tell {
    struct mst__job *job;
    enum audience audience;
    size_t sealed_at; /* position of the SEALED in the shared buffer, if sealed_size > 0 */
    size_t sealed_size;
};

static struct mst__jobs *tell_jobs(const struct tell *tell)
{
    return &tell->job->server->jobs;
}

static void tell_one(struct tell *tell, const struct mst__authority_member *member)
{
    struct mst__jobs *jobs = tell_jobs(tell);
    if (member->driver == NULL) {
        return; /* not connected; it will ask when it comes again */
    }
    if (tell->sealed_size > 0) {
        mst__job_patch_ranks(jobs->shared.memory + jobs->shared.start + tell->sealed_at,
                             tell->sealed_size, member->rank, &member->worker_ranks);
    }
    mst__conn_tell(member->driver, mst__buf_bytes(&jobs->shared));
    jobs->told++;
}

/* Send the collected frames. */
static void tell_flush(struct tell *tell)
{
    struct mst__jobs *jobs = tell_jobs(tell);
    const struct mst__authority *authority = &tell->job->authority;
    const struct mst__authority_member *member;
    uint32_t cursor = 0;
    if (mst__buf_size(&jobs->shared) > 0 && tell->audience == AUDIENCE_HOLDERS) {
        while ((member = mst__authority_next_holder(authority, &cursor)) != NULL) {
            tell_one(tell, member);
        }
    } else if (mst__buf_size(&jobs->shared) > 0) {
        while ((member = mst__authority_next_member(authority, &cursor)) != NULL) {
            tell_one(tell, member);
        }
    }
    mst__buf_clear(&jobs->shared);
    tell->audience = AUDIENCE_NONE;
    tell->sealed_size = 0;
}

/* Add @message for @audience. */
static void tell_many(struct tell *tell,
                      enum audience audience,
                      const struct mst__job_message *message)
{
    struct mst__jobs *jobs = tell_jobs(tell);
    bool is_sealed = message->type == MST_JOB_SEALED;
    if (tell->audience != audience || (is_sealed && tell->sealed_size > 0)) {
        tell_flush(tell);
    }
    size_t at = mst__buf_size(&jobs->shared);
    if (mst__job_write(&jobs->shared, message) != 0) {
        /* No memory for a frame. A node that misses one must not continue unaware. */
        mst__log(&tell->job->server->options.log, MST_LOG_ERROR, "job.untold", "run=%s what=%s",
                 MST_LOG_TEXT(tell->job->run_id), mst__job_type_name(message->type));
        const struct mst__authority_member *member;
        uint32_t cursor = 0;
        while ((member = mst__authority_next_member(&tell->job->authority, &cursor)) != NULL) {
            if (member->driver != NULL) {
                mst__conn_give_up(member->driver, MST_WHY_MEMORY,
                                  "no memory for what is to be told");
            }
        }
        return;
    }
    tell->audience = audience;
    if (is_sealed) {
        tell->sealed_at = at;
        tell->sealed_size = mst__buf_size(&jobs->shared) - at;
    }
}

/* Send @message to one connection, after all frames collected so far. */
static void tell_single(struct tell *tell, void *driver, const struct mst__job_message *message)
{
    struct mst__jobs *jobs = tell_jobs(tell);
    tell_flush(tell);
    if (driver == NULL) {
        return;
    }
    if (mst__job_write(&jobs->shared, message) != 0) {
        mst__conn_give_up(driver, MST_WHY_MEMORY, "no memory for what is to be told");
    } else {
        mst__conn_tell(driver, mst__buf_bytes(&jobs->shared));
        jobs->told++;
    }
    mst__buf_clear(&jobs->shared);
}

static struct mst__job_message round_message(enum mst__job_type type,
                                             const struct mst__authority_effect *effect)
{
    return (struct mst__job_message){
        .type = type,
        .u.round = {.epoch = effect->epoch,
                    .round = effect->round,
                    .world = effect->world,
                    .rank = effect->rank,
                    .address = effect->address,
                    .restarts = effect->restarts,
                    .start = (uint32_t)effect->start,
                    .worker_ranks = effect->worker_ranks},
    };
}

/* Send to the member that @effect names, or to all that hold the round. */
static void tell_whom(struct tell *tell,
                      const struct mst__authority_effect *effect,
                      const struct mst__job_message *message)
{
    if (effect->id == MST_AUTHORITY_NOBODY) {
        tell_many(tell, AUDIENCE_HOLDERS, message);
    } else {
        tell_single(tell, effect->driver, message);
    }
}

static void tell_waiting(struct tell *tell, const struct mst__authority_effect *effect)
{
    const struct mst__job_message message = {.type = MST_JOB_WAITING,
                                             .u.waiting = {.count = effect->waiting_count}};
    tell_whom(tell, effect, &message);
}

static void tell_lost(struct tell *tell, const struct mst__authority_effect *effect)
{
    if (effect->lost_total == 0) {
        return;
    }
    struct mst__job_message message = {.type = MST_JOB_LOST};
    struct mst__job_lost *lost = &message.u.lost;
    lost->round = effect->round;
    lost->count = (uint32_t)(effect->lost_count + effect->lost_unlisted);
    lost->total = (uint32_t)effect->lost_total;
    for (size_t i = 0; i < effect->lost_count && lost->named < MST_JOB_NAMES_MAX; i++) {
        const struct mst__authority_member *member =
            mst__authority_ranked(&tell->job->authority, effect->lost[i]);
        lost->ranks[lost->named] = effect->lost[i];
        lost->names[lost->named] = member == NULL ? mst_bytes_str("") : mst__authority_name(member);
        lost->named++;
    }
    tell_whom(tell, effect, &message);
}

static void tell_reopened(struct tell *tell, const struct mst__authority_effect *effect)
{
    const struct mst__authority *authority = &tell->job->authority;
    bool has_rank = effect->rank != MST_AUTHORITY_RANK_NONE;
    const struct mst__authority_member *first =
        has_rank ? mst__authority_ranked(authority, effect->rank) : NULL;
    const struct mst__job_message message = {
        .type = MST_JOB_REOPENED,
        .u.reopened = {.round_next = effect->round_next,
                       .why = (uint32_t)effect->why,
                       .rank = effect->rank,
                       .name = first == NULL ? mst_bytes_str("") : mst__authority_name(first),
                       .end = {.has_cause = effect->has_cause, .cause = effect->cause}},
    };
    if (effect->id != MST_AUTHORITY_NOBODY) {
        tell_lost(tell, effect); /* it may have missed that */
    }
    tell_whom(tell, effect, &message);
}

static void tell_expelled(struct tell *tell, const struct mst__authority_effect *effect)
{
    const struct mst__job_message message = {.type = MST_JOB_EXPELLED,
                                             .u.text = mst_bytes_str(effect->text)};
    tell_single(tell, effect->driver, &message);
    if (effect->driver != NULL) {
        mst__conn_unseat(effect->driver);
    }
}

static void tell_effect(struct tell *tell, const struct mst__authority_effect *effect)
{
    struct mst__job_message message;
    switch (effect->kind) {
        case MST_TOLD_SEALED:
            message = round_message(MST_JOB_SEALED, effect);
            tell_whom(tell, effect, &message);
            if (effect->id != MST_AUTHORITY_NOBODY && effect->waiting_count > 0) {
                tell_waiting(tell, effect);
            }
            break;
        case MST_TOLD_QUEUED:
        case MST_TOLD_SPARE:
            message = round_message(
                effect->kind == MST_TOLD_QUEUED ? MST_JOB_QUEUED : MST_JOB_SPARE, effect);
            tell_single(tell, effect->driver, &message);
            break;
        case MST_TOLD_EXPELLED:
            tell_expelled(tell, effect);
            break;
        case MST_TOLD_LOST:
            tell_lost(tell, effect);
            break;
        case MST_TOLD_REOPENED:
            tell_reopened(tell, effect);
            break;
        case MST_TOLD_WAITING:
            tell_waiting(tell, effect);
            break;
        case MST_TOLD_CLOSED:
            message =
                (struct mst__job_message){.type = MST_JOB_CLOSED,
                                          .u.closed = {.reason = mst_bytes_str(effect->text),
                                                       .owner = mst_bytes_str(effect->owner),
                                                       .end = {.outcome = (uint32_t)effect->outcome,
                                                               .has_cause = effect->has_cause,
                                                               .cause = effect->cause}}};
            tell_many(tell, AUDIENCE_ALL, &message);
            break;
    }
}

void mst__job_tell(struct mst__job *job)
{
    struct tell tell = {.job = job};
    struct mst__authority_effect effect;
    bool has_effect = true;
    while (has_effect) {
        mst__job_journal_before(job);
        has_effect = mst__authority_next_effect(&job->authority, &effect);
        mst__job_journal_mark(job, MST_JOURNAL_TAKEN);
        if (has_effect) {
            tell_effect(&tell, &effect);
        }
    }
    tell_flush(&tell);
}
