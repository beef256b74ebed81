/* unit/core/authority_unit.h - an authority with short names for events of nodes, and a log of
 * its effects, as text. */
#ifndef MST_UNIT_AUTHORITY_UNIT_H
#define MST_UNIT_AUTHORITY_UNIT_H

#include <inttypes.h>
#include <muster/error.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/prng.h"
#include "core/authority.h"
#include "unit/unit.h"

#define SECOND_US 1000000
#define UNIT_EPOCH 7

/* One authority, its time, and the text of all effects since the last look. */
struct unit_run {
    struct mst__authority authority;
    int64_t now_us;
    uint32_t nodes_min, nodes_max;
    int64_t last_call_us;
    const char *rank_by;
    struct mst__budget budget;
    enum mst__refusal refusal;
    struct mst_err err;
    bool is_fixed;
    bool has_starts; /* in the log, too: restarts before a round, and why it begins */
    char log[4096];
    size_t log_size;
};

static inline void run_init_epoch(struct unit_run *run, uint32_t min, uint32_t max, uint64_t epoch)
{
    *run = (struct unit_run){
        .now_us = 100 * SECOND_US,
        .nodes_min = min,
        .nodes_max = max,
        .last_call_us = 30 * SECOND_US,
        .rank_by = "",
    };
    const struct mst__authority_options options = {
        .epoch = epoch,
        .expiry_us = 15 * SECOND_US,
        .grace_us = SECOND_US,
        .reclaim_us = 5 * SECOND_US,
        .return_us = INT64_MAX,
        .members_max = 100000 > MST_AUTHORITY_MEMBERS_MAX ? MST_AUTHORITY_MEMBERS_MAX : 100000,
        .hash_key = {1, 2, 3},
    };
    mst__authority_init(&run->authority, &options);
}

static inline void run_init(struct unit_run *run, uint32_t min, uint32_t max)
{
    run_init_epoch(run, min, max, UNIT_EPOCH);
}

static inline void run_close(struct unit_run *run)
{
    mst__authority_close(&run->authority);
}

static inline struct mst__announcement run_announcement(const struct unit_run *run,
                                                        const char *name)
{
    /* The driver pointer is never followed; the name identifies the node. */
    return (struct mst__announcement){
        .name = mst_bytes_str(name),
        .incarnation = 1,
        .session = 1,
        .address = mst_bytes_str(name),
        .nodes_min = run->nodes_min,
        .nodes_max = run->nodes_max,
        .last_call_us = run->last_call_us,
        .rank_by = mst_bytes_str(run->rank_by),
        .budget = run->budget,
        .is_fixed = run->is_fixed,
        .pinned_rank = MST_AUTHORITY_RANK_NONE,
        .driver = (void *)(uintptr_t)name,
    };
}

static inline void run_print(struct unit_run *run, const char *format, ...) MST_PRINTF(2, 3);

static inline void run_print(struct unit_run *run, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int count = vsnprintf(run->log + run->log_size, sizeof run->log - run->log_size, format, args);
    va_end(args);
    assert_true(count >= 0);
    run->log_size += (size_t)count;
    assert_true(run->log_size < sizeof run->log);
}

static inline const char *member_text(const struct mst__authority_member *member)
{
    return member == NULL ? "?" : (const char *)mst__authority_name(member).data;
}

/* If nodes say their workers: " [first of world, first in the role of its world]". */
static inline void run_print_workers(struct unit_run *run, const struct mst__worker_ranks *ranks)
{
    if (run->authority.settings.has_workers) {
        run_print(run, " [%" PRIu32 " of %" PRIu32 ", %" PRIu32 " of %" PRIu32 "]", ranks->first,
                  ranks->world, ranks->role_first, ranks->role_world);
    }
}

static inline void run_print_holders(struct unit_run *run)
{
    uint32_t cursor = 0;
    const struct mst__authority_member *member;
    while ((member = mst__authority_next_holder(&run->authority, &cursor)) != NULL) {
        run_print(run, " %s=%" PRIu32, member_text(member), member->rank);
        run_print_workers(run, &member->worker_ranks);
    }
}

static inline void run_print_effect(struct unit_run *run,
                                    const struct mst__authority_effect *effect)
{
    const char *to = effect->driver == NULL ? "all" : (const char *)effect->driver;
    switch (effect->kind) {
        case MST_TOLD_SEALED:
            run_print(run, "sealed %" PRIu64 "/%" PRId64 " of %" PRIu32 " at %s", effect->epoch,
                      effect->round, effect->world, (const char *)effect->address.data);
            if (effect->id == MST_AUTHORITY_NOBODY) {
                run_print_holders(run);
            } else {
                run_print(run, " %s=%" PRIu32, to, effect->rank);
                run_print_workers(run, &effect->worker_ranks);
            }
            if (run->has_starts) {
                run_print(run, ", %" PRIu32 " %s", effect->restarts,
                          mst__job_start_name(effect->start));
            }
            break;
        case MST_TOLD_QUEUED:
            run_print(run, "queued %s", to);
            break;
        case MST_TOLD_SPARE:
            run_print(run, "spare %s", to);
            break;
        case MST_TOLD_EXPELLED:
            assert_non_null(effect->text);
            run_print(run, "expelled %s", to);
            break;
        case MST_TOLD_LOST:
            run_print(run, "lost");
            for (size_t i = 0; i < effect->lost_count; i++) {
                run_print(run, " %s=%" PRIu32,
                          member_text(mst__authority_ranked(&run->authority, effect->lost[i])),
                          effect->lost[i]);
            }
            break;
        case MST_TOLD_REOPENED:
            assert_int_equal(effect->has_cause, effect->why == MST_AUTHORITY_WHY_FAILED);
            run_print(run, "reopened %" PRId64 " %s %s", effect->round_next,
                      mst__authority_why_name(effect->why),
                      effect->id == MST_AUTHORITY_NOBODY
                          ? member_text(mst__authority_ranked(&run->authority, effect->rank))
                          : to);
            break;
        case MST_TOLD_WAITING:
            run_print(run, "waiting %" PRIu32, effect->waiting_count);
            break;
        case MST_TOLD_CLOSED:
            assert_int_equal(effect->has_cause, effect->outcome == MST_JOB_OUTCOME_FAILED);
            if (effect->outcome == MST_JOB_OUTCOME_ASKED) {
                run_print(run, "closed by %s: %s", effect->owner, effect->text);
            } else {
                run_print(run, "%s: %s", mst__job_outcome_name(effect->outcome), effect->text);
            }
            break;
    }
    run_print(run, "; ");
}

static inline void run_drain(struct unit_run *run)
{
    mst__authority_check(&run->authority);
    struct mst__authority_effect effect;
    while (mst__authority_next_effect(&run->authority, &effect)) {
        run_print_effect(run, &effect);
    }
    mst__authority_check(&run->authority);
}

/* The effects since the last call. */
#define assert_told(run, wanted)                 \
    do {                                         \
        run_drain(run);                          \
        assert_string_equal((run)->log, wanted); \
        (run)->log_size = 0;                     \
        (run)->log[0] = '\0';                    \
    } while (0)

/* Feed an event of the session @id without further fields. */
static inline int step_session(struct mst__authority *authority,
                               enum mst__authority_event_kind kind,
                               mst__authority_id id,
                               int64_t now_us)
{
    const struct mst__authority_event event = {.kind = kind, .now_us = now_us, .id = id};
    return mst__authority_step(authority, &event, NULL);
}

static inline int step_heard(struct mst__authority *authority, mst__authority_id id, int64_t now_us)
{
    return step_session(authority, MST_AUTHORITY_EVENT_HEARD, id, now_us);
}

static inline void step_time(struct mst__authority *authority, int64_t heard_us)
{
    assert_int_equal(step_session(authority, MST_AUTHORITY_EVENT_TIME, 0, heard_us), 0);
}

static inline int step_cut(struct mst__authority *authority,
                           mst__authority_id id,
                           const void *driver,
                           int64_t now_us)
{
    const struct mst__authority_event event = {
        .kind = MST_AUTHORITY_EVENT_DISCONNECTED, .now_us = now_us, .id = id, .driver = driver};
    return mst__authority_step(authority, &event, NULL);
}

/* The work of @id in a round is done or, with a @cause, has failed. */
static inline int step_word(struct mst__authority *authority,
                            mst__authority_id id,
                            uint64_t epoch,
                            int64_t round,
                            const struct mst__cause *cause,
                            int64_t now_us)
{
    const struct mst__authority_event event = {.kind = cause == NULL ? MST_AUTHORITY_EVENT_FINISHED
                                                                     : MST_AUTHORITY_EVENT_FAILED,
                                               .now_us = now_us,
                                               .id = id,
                                               .epoch = epoch,
                                               .round = round,
                                               .cause = cause};
    return mst__authority_step(authority, &event, NULL);
}

static inline int step_leaving(struct mst__authority *authority,
                               mst__authority_id id,
                               int64_t round,
                               int64_t in_us,
                               int64_t now_us)
{
    const struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_LEAVING,
                                               .now_us = now_us,
                                               .id = id,
                                               .epoch = authority->round_epoch,
                                               .round = round,
                                               .in_us = in_us};
    return mst__authority_step(authority, &event, NULL);
}

static inline int step_shut(struct mst__authority *authority,
                            const char *reason,
                            const char *owner,
                            int64_t now_us)
{
    const struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_SHUT,
                                               .now_us = now_us,
                                               .reason = mst_bytes_str(reason),
                                               .owner = mst_bytes_str(owner)};
    return mst__authority_step(authority, &event, NULL);
}

static inline int step_restore(struct mst__authority *authority,
                               uint64_t epoch,
                               int64_t round,
                               uint32_t world,
                               int64_t now_us)
{
    const struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_RESTORED,
                                               .now_us = now_us,
                                               .epoch = epoch,
                                               .round = round,
                                               .world = world};
    return mst__authority_step(authority, &event, NULL);
}

static inline void step_settle(struct mst__authority *authority, int64_t now_us)
{
    assert_int_equal(step_session(authority, MST_AUTHORITY_EVENT_SETTLED, 0, now_us), 0);
}

static inline int step_announce(struct mst__authority *authority,
                                const struct mst__announcement *announcement,
                                int64_t now_us,
                                struct mst_err *reterr)
{
    const struct mst__authority_event event = {
        .kind = MST_AUTHORITY_EVENT_ANNOUNCED, .now_us = now_us, .announcement = announcement};
    return mst__authority_step(authority, &event, reterr);
}

static inline int run_say(struct unit_run *run, const struct mst__announcement *announcement)
{
    int rv = step_announce(&run->authority, announcement, run->now_us, &run->err);
    run->refusal = run->authority.refusal;
    assert_int_equal(rv == 0, run->refusal == MST_REFUSAL_NONE);
    if (rv == 0) {
        assert_true(run->authority.announced ==
                    mst__authority_find(&run->authority, announcement->name));
    }
    run_drain(run);
    return rv;
}

static inline void run_join(struct unit_run *run, const char *name)
{
    struct mst__announcement announcement = run_announcement(run, name);
    if (run_say(run, &announcement) != 0) {
        fail_msg("'%s' was refused: %s", name, run->err.msg);
    }
}

/* The knowledge of the member @name. */
static inline struct mst__claim run_claim(const struct unit_run *run, const char *name)
{
    const struct mst__authority *authority = &run->authority;
    const struct mst__authority_member *member =
        mst__authority_get(authority, mst__authority_find(authority, mst_bytes_str(name)));
    return (struct mst__claim){
        .epoch = authority->round_epoch,
        .round = authority->round,
        .world = authority->world,
        .rank = member == NULL ? MST_AUTHORITY_RANK_NONE : member->rank,
    };
}

static inline void run_back(struct unit_run *run, const char *name)
{
    struct mst__announcement announcement = run_announcement(run, name);
    announcement.claim = run_claim(run, name);
    if (run_say(run, &announcement) != 0) {
        fail_msg("'%s' was refused: %s", name, run->err.msg);
    }
}

static inline mst__authority_id run_id(const struct unit_run *run, const char *name)
{
    mst__authority_id id = mst__authority_find(&run->authority, mst_bytes_str(name));
    assert_true(id != MST_AUTHORITY_NOBODY);
    return id;
}

static inline void run_leave(struct unit_run *run, const char *name)
{
    assert_int_equal(
        step_session(&run->authority, MST_AUTHORITY_EVENT_LEFT, run_id(run, name), run->now_us), 0);
    run_drain(run);
}

static inline void run_lose(struct unit_run *run, const char *name)
{
    assert_int_equal(
        step_session(&run->authority, MST_AUTHORITY_EVENT_DEAD, run_id(run, name), run->now_us), 0);
    run_drain(run);
}

/* The work of @name in the current round is done. */
static inline int run_finish(struct unit_run *run, const char *name)
{
    int rv = step_word(&run->authority, run_id(run, name), run->authority.round_epoch,
                       run->authority.round, NULL, run->now_us);
    run_drain(run);
    return rv;
}

/* It has failed with @status. */
static inline int run_fail(struct unit_run *run, const char *name, int32_t status)
{
    const struct mst__cause cause = {.worker = 1, .status = status, .text = mst_bytes_str("boom")};
    int rv = step_word(&run->authority, run_id(run, name), run->authority.round_epoch,
                       run->authority.round, &cause, run->now_us);
    run_drain(run);
    return rv;
}

static inline void run_cut(struct unit_run *run, const char *name)
{
    mst__authority_id id = run_id(run, name);
    const void *driver = mst__authority_get(&run->authority, id)->driver;
    assert_int_equal(step_cut(&run->authority, id, driver, run->now_us), 0);
    run_drain(run);
}

/* All connected nodes are heard. */
static inline void run_beat(struct unit_run *run)
{
    uint32_t cursor = 0;
    const struct mst__authority_member *member;
    while ((member = mst__authority_next_member(&run->authority, &cursor)) != NULL) {
        if (member->driver != NULL && member->place != MST_PLACE_GONE) {
            mst__authority_id id = mst__authority_id_of(&run->authority, member);
            assert_int_equal(step_heard(&run->authority, id, run->now_us), 0);
        }
    }
}

/* Let time pass, with ticks when they are due and, if they are @alive, heartbeats every second. */
static inline void run_pass(struct unit_run *run, int64_t time_us, bool alive)
{
    int64_t end_us = run->now_us + time_us;
    int64_t beat_us = run->now_us;
    for (;;) {
        int64_t due_us = mst__authority_due_us(&run->authority);
        int64_t next_us = due_us < end_us ? due_us : end_us;
        if (alive && beat_us + SECOND_US <= next_us) {
            beat_us += SECOND_US;
            run->now_us = beat_us;
            run_beat(run);
            continue;
        }
        run->now_us = next_us > run->now_us ? next_us : run->now_us;
        step_time(&run->authority, run->now_us);
        run_drain(run);
        if (run->now_us >= end_us && mst__authority_due_us(&run->authority) > end_us) {
            return;
        }
    }
}

#endif /* MST_UNIT_AUTHORITY_UNIT_H */
