/* net/job_story.c - log lines about a job. */
#include "net/job_story.h"

#include <stdio.h>

static void story_complete(const struct mst__story *story,
                           enum mst__authority_why why,
                           int64_t took_us)
{
    const struct mst__authority *authority = story->authority;
    char seconds[40] = "";
    if (took_us >= 0) {
        (void)snprintf(seconds, sizeof seconds, " seconds=%.3f", (double)took_us / 1e6); /* fits */
    }
    mst__log(story->log, MST_LOG_INFO, "job.complete", "run=%s round=%lld nodes=%u%s why=%s",
             MST_LOG_TEXT(story->run_id), (long long)authority->round, authority->world, seconds,
             MST_LOG_TEXT(mst__authority_why_name(why)));
}

static void story_reopened(const struct mst__story *story,
                           enum mst__authority_why why,
                           int64_t round)
{
    const struct mst__authority *authority = story->authority;
    uint32_t rank = authority->reopened_rank;
    const struct mst__authority_member *first =
        rank == MST_AUTHORITY_RANK_NONE ? NULL : mst__authority_ranked(authority, rank);
    char name[MST_LOG_QUOTE_SIZE];
    mst__log(story->log, MST_LOG_INFO, "job.reopened", "run=%s round=%lld next=%lld why=%s node=%s",
             MST_LOG_TEXT(story->run_id), (long long)authority->round, (long long)round,
             mst__authority_why_name(why),
             mst__log_quote(first == NULL ? mst_bytes_str("") : mst__authority_name(first), name));
}

static void story_closed(const struct mst__story *story, int64_t round)
{
    static const char *const events[MST_JOB_OUTCOME_COUNT] = {
        [MST_JOB_OUTCOME_ASKED] = "job.closed",
        [MST_JOB_OUTCOME_FINISHED] = "job.finished",
        [MST_JOB_OUTCOME_FAILED] = "job.failed",
    };
    const struct mst__authority *authority = story->authority;
    mst__log(story->log, MST_LOG_INFO, events[authority->outcome],
             "run=%s round=%lld by=%s reason=%s restarts=%u", MST_LOG_TEXT(story->run_id),
             (long long)round, MST_LOG_TEXT(authority->close_owner),
             MST_LOG_TEXT(authority->close_reason), authority->restarts);
}

void mst__story_moved(const struct mst__story *story,
                      enum mst__authority_phase from,
                      enum mst__authority_phase to,
                      enum mst__authority_why why,
                      int64_t round,
                      int64_t took_us)
{
    switch (to) {
        case MST_AUTHORITY_OPEN:
            story_reopened(story, why, round);
            return;
        case MST_AUTHORITY_RECLAIMING:
            mst__log(story->log, MST_LOG_INFO, "job.claimed", "run=%s round=%lld nodes=%u",
                     MST_LOG_TEXT(story->run_id), (long long)round, story->authority->world);
            return;
        case MST_AUTHORITY_RUNNING:
            if (from == MST_AUTHORITY_RECLAIMING) {
                mst__log(story->log, MST_LOG_INFO, "job.resumed", "run=%s round=%lld nodes=%u",
                         MST_LOG_TEXT(story->run_id), (long long)round, story->authority->world);
            } else {
                story_complete(story, why, took_us);
            }
            return;
        case MST_AUTHORITY_CLOSED:
            story_closed(story, round);
            return;
    }
}

/* The event name for the end of a node's session. */
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

void mst__story_ended(const struct mst__story *story,
                      const struct mst__authority_member *member,
                      enum mst__authority_ended how,
                      uint32_t count)
{
    const struct mst__authority *authority = story->authority;
    if (member == NULL) {
        mst__log(story->log, MST_LOG_INFO, ended_event(how), "run=%s cause=%s round=%lld count=%u",
                 MST_LOG_TEXT(story->run_id), mst__authority_ended_name(how),
                 (long long)authority->round, count);
        return;
    }
    char name[MST_LOG_QUOTE_SIZE];
    char rank[16] = "-";
    if (member->rank != MST_AUTHORITY_RANK_NONE) {
        (void)snprintf(rank, sizeof rank, "%u", member->rank); /* fits */
    }
    mst__log(story->log, MST_LOG_INFO, ended_event(how),
             "run=%s node=%s cause=%s standing=%s round=%lld rank=%s", MST_LOG_TEXT(story->run_id),
             mst__log_quote(mst__authority_name(member), name), mst__authority_ended_name(how),
             mst__authority_standing_name(mst__authority_standing(authority, member)),
             (long long)authority->round, rank);
}

const char *mst__story_node(const struct mst__story *story,
                            mst__authority_id id,
                            char ret_text[MST_LOG_QUOTE_SIZE])
{
    const struct mst__authority_member *member = mst__authority_get(story->authority, id);
    return mst__log_quote(member == NULL ? mst_bytes_str("") : mst__authority_name(member),
                          ret_text);
}

void mst__story_failed(const struct mst__story *story,
                       mst__authority_id id,
                       int64_t round,
                       const struct mst__cause *cause)
{
    const struct mst__authority *authority = story->authority;
    bool is_first = authority->round == round && (authority->phase == MST_AUTHORITY_RUNNING ||
                                                  authority->phase == MST_AUTHORITY_RECLAIMING);
    char name[MST_LOG_QUOTE_SIZE];
    char text[MST_LOG_QUOTE_SIZE];
    char worker[16] = "-";
    if (cause->worker != MST_CAUSE_WORKER_NONE) {
        (void)snprintf(worker, sizeof worker, "%u", cause->worker); /* fits */
    }
    mst__log(story->log, MST_LOG_INFO, "node.failed",
             "run=%s node=%s round=%lld first=%s worker=%s status=%d signal=%u text=%s",
             MST_LOG_TEXT(story->run_id), mst__story_node(story, id, name), (long long)round,
             is_first ? "yes" : "no", worker, cause->status, cause->signal,
             mst__log_quote(cause->text, text));
}

void mst__story_forgotten(const struct mst__story *story)
{
    mst__log(story->log, MST_LOG_INFO, "job.forgotten", "run=%s round=%lld",
             MST_LOG_TEXT(story->run_id), (long long)story->authority->round);
}
