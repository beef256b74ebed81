/* core/authority_end.c - the end of a job: all have finished, work has failed, or on request. */
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "core/authority_members.h"
#include "core/authority_moves.h"
#include "core/saturate.h"

/* Names in sentences are cut off at this length. */
#define NAME_TOLD 60

const char *mst__job_outcome_name(enum mst__job_outcome outcome)
{
    static const char *const names[MST_JOB_OUTCOME_COUNT] = {"asked", "finished", "failed"};
    return (size_t)outcome < MST_JOB_OUTCOME_COUNT ? names[outcome] : "undefined";
}

const char *mst__job_start_name(enum mst__job_start start)
{
    static const char *const names[MST_JOB_START_COUNT] = {"unknown", "first",  "joined", "lost",
                                                           "left",    "failed", "asked"};
    return (size_t)start < MST_JOB_START_COUNT ? names[start] : "undefined";
}

static void text_cut(char *to, struct mst_bytes from, size_t size_max)
{
    size_t size = from.size < size_max ? from.size : size_max;
    if (size > 0) {
        memcpy(to, from.data, size);
    }
    to[size] = '\0';
}

/* --- causes --- */

struct mst__cause mst__authority_cause(const struct mst__authority *authority)
{
    struct mst__cause cause = authority->cause;
    cause.node = mst_bytes_str(authority->cause_node);
    cause.text = mst_bytes_str(authority->cause_text);
    cause.report = mst_bytes_str(authority->cause_report);
    return cause;
}

void mst__cause_describe(const struct mst__cause *cause, char *ret_text, size_t ret_size)
{
    char rank[24] = "";
    char worker[24] = "";
    char how[32] = "";
    if (cause->rank != MST_AUTHORITY_RANK_NONE) {
        (void)snprintf(rank, sizeof rank, " (rank %u)", cause->rank); /* fits, as the next ones */
    }
    if (cause->worker != MST_CAUSE_WORKER_NONE) {
        (void)snprintf(worker, sizeof worker, ", worker %u", cause->worker);
    }
    if (cause->signal != 0) {
        (void)snprintf(how, sizeof how, ": signal %u", cause->signal);
    } else if (cause->status != 0) {
        (void)snprintf(how, sizeof how, ": exit status %d", cause->status);
    }
    int name_size = (int)(cause->node.size < NAME_TOLD ? cause->node.size : NAME_TOLD);
    (void)snprintf(ret_text, ret_size, "node '%.*s'%s%s%s%s%.*s", name_size,
                   (const char *)cause->node.data, rank, worker, how,
                   cause->text.size > 0 ? ": " : "", (int)cause->text.size,
                   (const char *)cause->text.data); /* cut off */
}

void mst__authority_take_cause(struct mst__authority *authority, const struct mst__cause *cause)
{
    authority->has_cause = true;
    authority->cause = *cause;
    text_cut(authority->cause_node, cause->node, MST_AUTHORITY_NAME_SIZE_MAX);
    text_cut(authority->cause_text, cause->text, MST_AUTHORITY_CAUSE_SIZE_MAX);
    text_cut(authority->cause_report, cause->report, MST_AUTHORITY_REPORT_SIZE_MAX);
}

/* Store @cause, of the member with @rank. */
static void cause_take(struct mst__authority *authority,
                       const struct mst__cause *cause,
                       uint32_t rank)
{
    const struct mst__authority_member *member =
        rank == MST_AUTHORITY_RANK_NONE ? NULL : mst__authority_ranked(authority, rank);
    struct mst__cause taken = *cause;
    taken.rank = rank;
    taken.node = member == NULL ? mst_bytes_str("") : mst__authority_name(member);
    mst__authority_take_cause(authority, &taken);
}

/* --- the end --- */

static void authority_end(struct mst__authority *authority,
                          enum mst__job_outcome outcome,
                          enum mst__authority_why why,
                          struct mst_bytes reason,
                          struct mst_bytes owner)
{
    authority->outcome = outcome;
    text_cut(authority->close_reason, reason, MST_AUTHORITY_REASON_SIZE_MAX);
    text_cut(authority->close_owner, owner, MST_AUTHORITY_NAME_SIZE_MAX);
    authority->is_close_pending = true;
    mst__authority_move(authority, MST_AUTHORITY_CLOSED, why);
    mst__authority_call_finished(authority);
}

int mst__authority_shut(struct mst__authority *authority,
                        struct mst_bytes reason,
                        struct mst_bytes owner)
{
    if (authority->phase == MST_AUTHORITY_CLOSED) {
        return MST_ECLOSED;
    }
    authority_end(authority, MST_JOB_OUTCOME_ASKED, MST_AUTHORITY_WHY_ASKED, reason, owner);
    return 0;
}

/* Close the job as failed, with the stored cause. */
static void authority_fail(struct mst__authority *authority)
{
    const struct mst__cause cause = mst__authority_cause(authority);
    char reason[MST_AUTHORITY_REASON_SIZE_MAX + 1];
    mst__cause_describe(&cause, reason, sizeof reason);
    authority_end(authority, MST_JOB_OUTCOME_FAILED, MST_AUTHORITY_WHY_FAILED,
                  mst_bytes_str(reason), cause.node);
}

void mst__authority_give_out(struct mst__authority *authority)
{
    if (authority->reopened_why != MST_AUTHORITY_WHY_FAILED) {
        char text[MST_AUTHORITY_CAUSE_SIZE_MAX + 1];
        (void)snprintf(text, sizeof text,
                       "%s; %u nodes that had finished are gone, and %u are fewer than the "
                       "minimum of %u",
                       mst__authority_why_name(authority->reopened_why), authority->released_count,
                       authority->living_count, authority->settings.nodes_min); /* fits */
        const struct mst__cause cause = {.worker = MST_CAUSE_WORKER_NONE,
                                         .text = mst_bytes_str(text)};
        cause_take(authority, &cause, authority->reopened_rank);
    }
    authority_fail(authority);
}

/* --- finished --- */

void mst__authority_unfinish(struct mst__authority *authority, struct mst__authority_member *member)
{
    if (!member->is_finished) {
        return;
    }
    MST_ASSERT(member->place == MST_PLACE_HOLDING);
    mst__members_unlink(authority, member);
    member->is_finished = false;
    authority->finished_count--;
    mst__members_link(authority, member);
}

void mst__authority_call_finished(struct mst__authority *authority)
{
    if (authority->finished_count == 0) {
        return;
    }
    bool is_closed = authority->phase == MST_AUTHORITY_CLOSED;
    int64_t grace_us = authority->options.grace_us;
    for (uint32_t i = 0; i < authority->members_count; i++) {
        struct mst__authority_member *member = mst__members_at(authority, i);
        if (member->place != MST_PLACE_HOLDING || !member->is_finished || member->is_linked) {
            continue;
        }
        /* A node whose connection has just ended may be about to connect again. */
        int64_t gone_us = mst__saturate_add(member->heard_us, grace_us);
        bool is_gone = member->is_absent && authority->now_us >= gone_us &&
                       authority->now_us >= authority->listen_us;
        mst__members_link(authority, member);
        if (is_gone && !is_closed) {
            mst__authority_part(authority, member, MST_AUTHORITY_ENDED_FINISHED);
        }
    }
    authority->stats.steps += authority->members_count;
}

void mst__authority_finish(struct mst__authority *authority)
{
    char reason[80];
    (void)snprintf(reason, sizeof reason, "all %u nodes of round %lld", authority->world,
                   (long long)authority->round); /* fits */
    authority_end(authority, MST_JOB_OUTCOME_FINISHED, MST_AUTHORITY_WHY_FINISHED,
                  mst_bytes_str(reason), mst_bytes_str(""));
}

/* --- finish and restart --- */

/* Use one restart of the budget; false if there is none. */
static bool budget_use(struct mst__authority *authority)
{
    const struct mst__budget *budget = &authority->settings.budget;
    int64_t end_us = mst__saturate_add(authority->restarts_us, budget->window_us);
    bool is_over = budget->window_us > 0 && authority->now_us >= end_us;
    if (authority->restarts == 0 || is_over) {
        authority->restarts = 0;
        authority->restarts_us = authority->now_us;
    }
    if (budget->is_limited && authority->restarts >= budget->restarts_max) {
        return false;
    }
    MST_ASSERT(authority->restarts <= authority->restarts_total);
    authority->restarts += authority->restarts < UINT32_MAX;
    authority->restarts_total += authority->restarts_total < UINT32_MAX;
    authority->stats.restarts++;
    return true;
}

static void member_finish(struct mst__authority *authority, struct mst__authority_member *member)
{
    MST_ASSERT(member->place == MST_PLACE_HOLDING);
    if (member->is_finished) {
        return;
    }
    mst__members_unlink(authority, member);
    member->is_finished = true;
    authority->finished_count++;
    MST_ASSERT(authority->finished_count <= authority->held_count);
    authority->stats.finishes++;
    mst__authority_advance(authority);
}

/* A member that is at work and has no connection; NULL = none. */
static const struct mst__authority_member *find_missing(struct mst__authority *authority)
{
    uint32_t index = authority->absent.first;
    while (index != UINT32_MAX) {
        const struct mst__authority_member *member = mst__members_at(authority, index);
        authority->stats.steps++;
        if (member->place == MST_PLACE_HOLDING) {
            return member;
        }
        index = member->next;
    }
    return NULL;
}

/* A member other than @self that has said that it leaves about now; NULL = none. */
static const struct mst__authority_member *find_leaving(struct mst__authority *authority,
                                                        const struct mst__authority_member *self)
{
    uint32_t cursor = 0;
    const struct mst__authority_member *member = NULL;
    if (authority->now_us > authority->leaving_us) {
        return NULL;
    }
    authority->stats.steps += authority->members_count;
    do {
        member = mst__authority_next_holder(authority, &cursor);
    } while (member != NULL && (member == self || authority->now_us > member->leaving_us));
    return member;
}

static void member_be_leaving(struct mst__authority *authority,
                              struct mst__authority_member *member,
                              int64_t in_us)
{
    in_us = mst__min(mst__max(in_us, 0), MST_AUTHORITY_LEAVING_US_MAX);
    int64_t leaves_us = mst__saturate_add(authority->now_us, in_us);
    member->leaving_us = mst__saturate_add(leaves_us, authority->options.expiry_us);
    authority->leaving_us = mst__max(authority->leaving_us, member->leaving_us);
}

/* Work that fails while another member is missing, or about to leave, usually fails because of
 * that: its peer does not answer any more. The round ends as with a loss or a leave, and no restart
 * is used. */
static void member_fail(struct mst__authority *authority,
                        struct mst__authority_member *member,
                        const struct mst__cause *cause)
{
    mst__authority_unfinish(authority, member);
    const struct mst__authority_member *missing = find_missing(authority);
    if (missing != NULL && missing != member) {
        mst__authority_reopen(authority, MST_AUTHORITY_WHY_LOST, missing->rank);
        mst__authority_advance(authority);
        return;
    }
    const struct mst__authority_member *leaving = find_leaving(authority, member);
    if (leaving != NULL) {
        mst__authority_reopen(authority, MST_AUTHORITY_WHY_LEFT, leaving->rank);
        mst__authority_advance(authority);
        return;
    }
    cause_take(authority, cause, member->rank);
    if (budget_use(authority)) {
        mst__authority_reopen(authority, MST_AUTHORITY_WHY_FAILED, member->rank);
        mst__authority_advance(authority);
    } else {
        authority_fail(authority);
    }
}

int mst__authority_hear_word(struct mst__authority *authority,
                             struct mst__authority_member *member,
                             const struct mst__authority_event *event)
{
    bool is_at_work = event->epoch == authority->round_epoch && event->round == authority->round &&
                      member->place == MST_PLACE_HOLDING && mst__authority_is_whole(authority);
    if (!is_at_work) {
        return MST_ESTATE;
    }
    if (event->kind == MST_AUTHORITY_EVENT_FINISHED) {
        member_finish(authority, member);
    } else if (event->kind == MST_AUTHORITY_EVENT_LEAVING) {
        member_be_leaving(authority, member, event->in_us);
    } else {
        member_fail(authority, member, event->cause);
    }
    return 0;
}
