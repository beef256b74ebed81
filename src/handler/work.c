/* handler/work.c - reports of a node's work, and the news of the job's end. */
#include "handler/work.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/unicode.h"
#include "core/saturate.h"

/* --- words --- */

/* Copy @text to @to, up to @size_max bytes. What is no character becomes a blank, and in a sentence
 * also what cannot be shown. */
static struct mst_bytes put_text(char *to, size_t size_max, const char *text, bool is_sentence)
{
    struct mst_bytes rest = mst_bytes_str(text);
    size_t used = 0;
    while (rest.size > 0) {
        uint32_t c = 0;
        size_t size = mst__unicode_next(rest, &c);
        bool is_kept = size > 0 && (!is_sentence || mst__unicode_is_shown(c));
        size_t taken = is_kept ? size : 1;
        if (used + taken > size_max) {
            break;
        }
        memcpy(to + used, is_kept ? (const char *)rest.data : " ", taken);
        used += taken;
        rest = mst__bytes_skip(rest, size == 0 ? 1 : size);
    }
    to[used] = '\0';
    return mst_bytes_of(to, used);
}

static void word_text(struct mst__word *word, const char *text, const char *report)
{
    word->cause.text = put_text(word->text, MST_AUTHORITY_CAUSE_SIZE_MAX, text, true);
    word->cause.report = put_text(word->report, MST_AUTHORITY_REPORT_SIZE_MAX, report, false);
}

void mst__word_finish(struct mst__word *word, int status, const char *text)
{
    *word = (struct mst__word){
        .is_finish = true,
        .limit_ms = INT64_MAX,
        .cause = {.rank = MST_AUTHORITY_RANK_NONE,
                  .worker = MST_CAUSE_WORKER_NONE,
                  .status = status,
                  .wall_us = mst__clock_wall_us()},
    };
    word_text(word, text, NULL);
}

void mst__word_restart(struct mst__word *word, const struct mst_failure *failure)
{
    bool has_worker = failure->worker >= 0 && failure->worker < MST_CAUSE_WORKER_NONE;
    *word = (struct mst__word){
        .limit_ms = INT64_MAX,
        .cause = {.rank = MST_AUTHORITY_RANK_NONE,
                  .worker = has_worker ? (uint32_t)failure->worker : MST_CAUSE_WORKER_NONE,
                  .status = failure->exit_status,
                  .signal = failure->signal > 0 ? (uint32_t)failure->signal : 0,
                  .wall_us = failure->time_us == 0 ? mst__clock_wall_us() : failure->time_us},
    };
    word_text(word, failure->text, failure->report);
}

void mst__word_leaving(struct mst__word *word, int64_t in_ms)
{
    *word = (struct mst__word){
        .is_leaving = true, .in_us = mst__saturate_multiply(in_ms, 1000), .limit_ms = INT64_MAX};
}

struct mst__member_event mst__word_event(const struct mst__word *word)
{
    return (struct mst__member_event){
        .kind = word->is_leaving  ? MST_MEMBER_EVENT_LEAVING
                : word->is_finish ? MST_MEMBER_EVENT_FINISH
                                  : MST_MEMBER_EVENT_RESTART,
        .in_us = word->in_us,
        .status = word->cause.status,
        .text = word->cause.text,
        .cause = &word->cause,
    };
}

/* --- what is told --- */

enum mst_start mst__work_start(uint32_t start)
{
    static_assert(MST_START_ASKED == (int)MST_JOB_START_ASKED, "the same numbers");
    return start < MST_JOB_START_COUNT ? (enum mst_start)start : MST_START_UNKNOWN;
}

static void tell_text(char *to, size_t to_size, struct mst_bytes from)
{
    size_t size = from.size < to_size ? from.size : to_size - 1;
    if (size > 0) {
        memcpy(to, from.data, size);
    }
    to[size] = '\0';
}

void mst__work_reopened(struct mst_changes *changes, const struct mst__job_end *end)
{
    const struct mst__cause *cause = &end->cause;
    changes->has_cause = end->has_cause;
    if (!end->has_cause) {
        return;
    }
    changes->cause = (struct mst_cause){
        .rank = cause->rank == MST_AUTHORITY_RANK_NONE ? -1 : (int64_t)cause->rank,
        .worker = cause->worker == MST_CAUSE_WORKER_NONE ? -1 : (int64_t)cause->worker,
        .exit_status = cause->status,
        .signal = cause->signal > INT32_MAX ? 0 : (int)cause->signal,
        .time_us = cause->wall_us,
    };
    tell_text(changes->cause.node, sizeof changes->cause.node, cause->node);
    tell_text(changes->cause.text, sizeof changes->cause.text, cause->text);
    tell_text(changes->cause.report, sizeof changes->cause.report, cause->report);
}

void mst__work_ended(struct mst_changes *changes, const struct mst__job_end *end)
{
    switch ((enum mst__job_outcome)end->outcome) {
        case MST_JOB_OUTCOME_FINISHED:
            changes->outcome = MST_OUTCOME_FINISHED;
            break;
        case MST_JOB_OUTCOME_FAILED:
            changes->outcome = MST_OUTCOME_FAILED;
            break;
        case MST_JOB_OUTCOME_ASKED:
        default: /* of a later version: treated as closed */
            changes->outcome = MST_OUTCOME_CLOSED;
            break;
    }
    changes->closed = true;
    mst__work_reopened(changes, end);
}
