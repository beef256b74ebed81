/* core/authority.c - the phases of a run: gathering, sealing, giving way, taking over.
 *
 * Invariants: while a round runs, all its members hold it; as soon as one does not, the next one is
 * open. A round is sealed only when no member holds the last one, with a number above all claims.
 * Nothing here allocates: the table has room for a round of all its members. */
#include "core/authority.h"

#include <string.h>

#include "base/number.h"
#include "core/authority_members.h"
#include "core/authority_moves.h"
#include "core/authority_ranks.h"
#include "core/saturate.h"

/* --- time --- */

static bool authority_is_blocked(const struct mst__authority *authority)
{
    return authority->held_count > 0 || authority->unknown_count > 0;
}

static uint32_t authority_present_count(const struct mst__authority *authority)
{
    return authority->waiting_count - authority->waiting_absent_count;
}

/* The number of waiting nodes to report to the members of a running round that has room. */
static uint32_t authority_waiting_wanted(const struct mst__authority *authority)
{
    bool has_room = authority->settings.is_set &&
                    authority->world < mst__authority_nodes_max(authority) &&
                    authority->finished_count == 0 && authority->released_count == 0;
    return has_room ? authority_present_count(authority) : 0;
}

static int64_t authority_waiting_due_us(const struct mst__authority *authority)
{
    uint32_t wanted = authority_waiting_wanted(authority);
    if (authority->phase != MST_AUTHORITY_RUNNING || wanted == authority->waiting_told) {
        return INT64_MAX;
    }
    bool is_first = wanted == 0 || authority->waiting_told == 0;
    return is_first ? authority->now_us
                    : mst__saturate_add(authority->waiting_told_us, MST_AUTHORITY_WAITING_US);
}

/* INT64_MAX means never, whatever the start. */
static int64_t time_after(int64_t from_us, int64_t limit_us)
{
    return limit_us == INT64_MAX ? INT64_MAX : mst__saturate_add(from_us, limit_us);
}

static int64_t list_due_us(const struct mst__authority *authority,
                           const struct mst__authority_list *list,
                           int64_t limit_us)
{
    return list->first == MST_INDEX_NONE
               ? INT64_MAX
               : time_after(mst__members_at(authority, list->first)->heard_us, limit_us);
}

/* When the grace of the absent members is over. */
static int64_t authority_absent_due_us(const struct mst__authority *authority)
{
    return mst__max(authority->listen_us,
                    list_due_us(authority, &authority->absent, authority->options.grace_us));
}

static int64_t authority_reclaim_due_us(const struct mst__authority *authority)
{
    return authority->unknown_count > 0 ? mst__max(authority->listen_us, authority->reclaim_us)
                                        : INT64_MAX;
}

/* The next deadline. */
static int64_t authority_deadline_us(const struct mst__authority *authority)
{
    int64_t due_us = authority_absent_due_us(authority);
    int64_t silent_us = 0;
    (void)mst__members_next_silent(authority, &silent_us); /* only the time is needed */
    due_us = mst__min(due_us, silent_us);
    if (authority->phase == MST_AUTHORITY_CLOSED) {
        return due_us;
    }
    due_us = mst__min(due_us, authority_reclaim_due_us(authority));
    if (authority->phase == MST_AUTHORITY_OPEN) {
        if (authority->held_count > 0) {
            due_us = mst__min(due_us, authority->return_us);
        }
        bool can_seal = !authority_is_blocked(authority) &&
                        authority_present_count(authority) >= authority->settings.nodes_min;
        if (can_seal) {
            due_us = mst__min(due_us, authority->last_call_us);
        }
    }
    return due_us;
}

int64_t mst__authority_due_us(const struct mst__authority *authority)
{
    return mst__min(authority_deadline_us(authority), authority_waiting_due_us(authority));
}

/* Take the time of an event. */
static void authority_enter(struct mst__authority *authority, int64_t now_us)
{
    int64_t due_us = mst__max(authority_deadline_us(authority), authority->now_us);
    if (mst__saturate_subtract(now_us, due_us) > MST_AUTHORITY_LATE_US) {
        authority->listen_us = mst__saturate_add(now_us, MST_AUTHORITY_LATE_US);
    }
    authority->now_us = mst__max(authority->now_us, now_us);
}

/* --- life --- */

void mst__authority_init(struct mst__authority *authority,
                         const struct mst__authority_options *options)
{
    MST_ASSERT(options->epoch > 0);
    MST_ASSERT(options->members_max > 0);
    MST_ASSERT(options->members_max <= MST_AUTHORITY_MEMBERS_MAX);
    *authority = (struct mst__authority){
        .options = *options,
        .phase = MST_AUTHORITY_OPEN,
        .now_us = INT64_MIN,
        .listen_us = INT64_MIN,
        .reclaim_us = INT64_MAX,
        .last_call_us = INT64_MAX,
        .return_us = INT64_MAX,
        .reopened_rank = MST_AUTHORITY_RANK_NONE,
        .free_first = MST_INDEX_NONE,
        .absent = {MST_INDEX_NONE, MST_INDEX_NONE},
        .pending = {MST_INDEX_NONE, MST_INDEX_NONE},
    };
    for (unsigned i = 0; i < MST_AUTHORITY_EXPIRIES_MAX; i++) {
        authority->present[i].members =
            (struct mst__authority_list){MST_INDEX_NONE, MST_INDEX_NONE};
    }
    mst__map_init(&authority->names, sizeof(uint32_t), options->hash_key);
}

void mst__authority_close(struct mst__authority *authority)
{
    mst__members_close(authority);
    *authority = (struct mst__authority){.phase = MST_AUTHORITY_CLOSED};
}

/* --- moves --- */

void mst__authority_move(struct mst__authority *authority,
                         enum mst__authority_phase to,
                         enum mst__authority_why why)
{
    /* From the row to the column: open, reclaiming, running, closed. */
    static const bool is_allowed[4][4] = {
        [MST_AUTHORITY_OPEN] = {false, true, true, true},
        [MST_AUTHORITY_RECLAIMING] = {true, true, true, true},
        [MST_AUTHORITY_RUNNING] = {true, true, false, true},
        [MST_AUTHORITY_CLOSED] = {false, false, false, false},
    };
    enum mst__authority_phase from = authority->phase;
    MST_ASSERT(is_allowed[from][to]);
    authority->phase = to;
    if (authority->options.trace != NULL) {
        int64_t round =
            to == MST_AUTHORITY_OPEN ? mst__authority_round_next(authority) : authority->round;
        authority->options.trace(authority->options.trace_arg, from, to, why, round);
    }
    if (to == MST_AUTHORITY_RUNNING) {
        MST_ASSERT(authority->held_count + authority->released_count == authority->world);
        MST_ASSERT(authority->unknown_count == 0);
    }
    MST_ASSERT(to != MST_AUTHORITY_RECLAIMING || authority->unknown_count > 0);
}

int64_t mst__authority_round_next(const struct mst__authority *authority)
{
    int64_t highest =
        authority->round > authority->round_floor ? authority->round : authority->round_floor;
    return highest + 1;
}

void mst__authority_reopen(struct mst__authority *authority,
                           enum mst__authority_why why,
                           uint32_t rank)
{
    if (!mst__authority_is_whole(authority)) {
        return;
    }
    authority->survivors_count = authority->waiting_count;
    authority->reopened_order = authority->order_next;
    authority->reopened_why = why;
    authority->reopened_rank = rank;
    authority->is_reopen_pending = true;
    authority->return_us = time_after(authority->now_us, authority->options.return_us);
    authority->last_call_us = INT64_MAX;
    authority->waiting_told = 0;
    mst__authority_move(authority, MST_AUTHORITY_OPEN, why);
    mst__authority_call_finished(authority);
}

/* --- places --- */

static bool member_is_survivor(const struct mst__authority *authority,
                               const struct mst__authority_member *member)
{
    return member->is_returned || member->order < authority->reopened_order;
}

static void waiting_add(struct mst__authority *authority,
                        const struct mst__authority_member *member,
                        uint32_t by)
{
    /* Unsigned: @by is 1, or UINT32_MAX for minus one. */
    authority->waiting_count += by;
    if (member->is_absent) {
        authority->waiting_absent_count += by;
    }
    if (member->rank != MST_AUTHORITY_RANK_NONE) {
        authority->waiting_back_count += by;
    }
    if (authority->phase == MST_AUTHORITY_OPEN && member_is_survivor(authority, member)) {
        authority->survivors_count += by;
    }
}

void mst__authority_wait(struct mst__authority *authority, struct mst__authority_member *member)
{
    MST_ASSERT(member->place == MST_PLACE_FREE || member->place == MST_PLACE_HOLDING);
    member->place = MST_PLACE_WAITING;
    waiting_add(authority, member, 1);
}

void mst__authority_come_back(struct mst__authority *authority,
                              struct mst__authority_member *member)
{
    MST_ASSERT(member->place == MST_PLACE_HOLDING);
    mst__authority_unfinish(authority, member);
    authority->held_count--;
    mst__authority_reopen(authority, MST_AUTHORITY_WHY_RETURNED, member->rank);
    member->is_returned = true;
    mst__authority_wait(authority, member);
}

/* End a member's session. The caller drops the rest of it. */
static void member_end(struct mst__authority *authority,
                       struct mst__authority_member *member,
                       enum mst__authority_ended how)
{
    bool has_finished = member->is_finished;
    how = has_finished ? MST_AUTHORITY_ENDED_FINISHED : how;
    bool is_lost = how != MST_AUTHORITY_ENDED_LEFT && !has_finished;
    if (authority->options.ended != NULL) {
        authority->options.ended(authority->options.trace_arg, member, how, 1);
    }
    bool was_holding = member->place == MST_PLACE_HOLDING;
    if (was_holding) {
        authority->held_count--;
    } else {
        MST_ASSERT(member->place == MST_PLACE_WAITING);
        waiting_add(authority, member, UINT32_MAX);
    }
    mst__members_unlink(authority, member);
    member->place = MST_PLACE_GONE;
    member->is_absent = false;
    member->is_lost = is_lost;
    member->pending = 0;
    member->heard_us = authority->now_us;
    if (!mst__members_is_ranked(authority, member)) {
        mst__members_unname(authority, member);
    }
    authority->living_count--;
    if (authority->living_count == 0) {
        authority->settings.is_set = false;
        authority->first_world = 0; /* other nodes begin anew */
    }
    authority->stats.losses += is_lost;
    authority->stats.leaves += !is_lost && !has_finished;
    if (has_finished) {
        authority->finished_count--;
        authority->released_count++;
    } else if (was_holding) {
        if (is_lost) {
            MST_ASSERT(authority->lost_count < authority->world);
            authority->lost[authority->lost_count++] = member->rank;
        }
        mst__authority_reopen(authority, is_lost ? MST_AUTHORITY_WHY_LOST : MST_AUTHORITY_WHY_LEFT,
                              member->rank);
    }
}

void mst__authority_expel(struct mst__authority *authority,
                          struct mst__authority_member *member,
                          enum mst__expelled why)
{
    static const enum mst__authority_ended hows[] = {
        [MST_EXPELLED_SILENT] = MST_AUTHORITY_ENDED_SILENT,
        [MST_EXPELLED_REPLACED] = MST_AUTHORITY_ENDED_REPLACED,
        [MST_EXPELLED_OVER] = MST_AUTHORITY_ENDED_OVER,
        [MST_EXPELLED_LATE] = MST_AUTHORITY_ENDED_LATE,
    };
    bool is_cut = why == MST_EXPELLED_SILENT && member->is_absent;
    member_end(authority, member, is_cut ? MST_AUTHORITY_ENDED_DISCONNECTED : hows[why]);
    member->expelled = (uint8_t)why;
    if (member->driver != NULL) {
        mst__members_notify(authority, member, MST_TOLD_EXPELLED);
    }
    mst__members_drop(authority, member);
}

void mst__authority_part(struct mst__authority *authority,
                         struct mst__authority_member *member,
                         enum mst__authority_ended how)
{
    member_end(authority, member, how);
    member->driver = NULL;
    mst__members_drop(authority, member);
}

enum mst__authority_standing mst__authority_standing(const struct mst__authority *authority,
                                                     const struct mst__authority_member *member)
{
    bool is_open = authority->phase == MST_AUTHORITY_OPEN;
    switch (member->place) {
        case MST_PLACE_HOLDING:
            if (is_open) {
                return MST_STANDING_CALLED;
            }
            return member->is_finished ? MST_STANDING_FINISHED : MST_STANDING_MEMBER;
        case MST_PLACE_WAITING:
            if (is_open || authority->phase == MST_AUTHORITY_CLOSED) {
                return MST_STANDING_GATHERED;
            }
            return authority->world < mst__authority_nodes_max(authority) ? MST_STANDING_QUEUED
                                                                          : MST_STANDING_SPARE;
        case MST_PLACE_FREE:
        case MST_PLACE_GONE:
            break;
    }
    return MST_STANDING_GONE;
}

void mst__authority_count_standings(const struct mst__authority *authority,
                                    uint32_t ret_counts[MST_STANDING_COUNT])
{
    const struct mst__authority_member holding = {.place = MST_PLACE_HOLDING};
    const struct mst__authority_member finished = {.place = MST_PLACE_HOLDING, .is_finished = true};
    const struct mst__authority_member waiting = {.place = MST_PLACE_WAITING};
    memset(ret_counts, 0, MST_STANDING_COUNT * sizeof *ret_counts);
    ret_counts[mst__authority_standing(authority, &holding)] +=
        authority->held_count - authority->finished_count;
    ret_counts[mst__authority_standing(authority, &finished)] += authority->finished_count;
    ret_counts[mst__authority_standing(authority, &waiting)] += authority->waiting_count;
}

void mst__authority_tell_standing(struct mst__authority *authority,
                                  struct mst__authority_member *member)
{
    /* A node that is told the round with all others need not be told separately; nor of a round
     * that it has claimed itself. */
    bool is_own = authority->round_epoch == authority->options.epoch;
    switch (mst__authority_standing(authority, member)) {
        case MST_STANDING_QUEUED:
            mst__members_notify(authority, member, MST_TOLD_QUEUED);
            break;
        case MST_STANDING_SPARE:
            mst__members_notify(authority, member, MST_TOLD_SPARE);
            break;
        case MST_STANDING_MEMBER:
        case MST_STANDING_FINISHED:
            if (is_own && !authority->is_seal_pending) {
                mst__members_notify(authority, member, MST_TOLD_SEALED);
            } else if (authority->waiting_told > 0) {
                mst__members_notify(authority, member, MST_TOLD_WAITING);
            }
            break;
        case MST_STANDING_CALLED:
            if (!authority->is_reopen_pending) {
                mst__members_notify(authority, member, MST_TOLD_REOPENED);
            }
            break;
        case MST_STANDING_GATHERED:
        case MST_STANDING_GONE:
            break;
    }
}

/* --- sealing --- */

/* Forget the members of the last round; gone ones are no longer remembered. */
static void round_forget(struct mst__authority *authority)
{
    for (uint32_t i = 0; i < authority->members_count; i++) {
        struct mst__authority_member *member = &authority->members[i];
        if (member->place == MST_PLACE_GONE) {
            mst__members_unname(authority, member);
            mst__members_drop(authority, member);
        } else if (member->place != MST_PLACE_FREE) {
            member->rank = MST_AUTHORITY_RANK_NONE;
            member->is_returned = false;
            MST_ASSERT(!member->is_finished);
        }
    }
    authority->stats.steps += authority->members_count;
    authority->waiting_back_count = 0;
    authority->survivors_count = 0;
    authority->released_count = 0;
    mst__places_clear(authority);
    authority->lost_count = 0;
    authority->lost_told = 0;
    authority->lost_unlisted = 0;
    authority->lost_unlisted_told = 0;
    authority->is_reopen_pending = false;
    authority->leaving_us = 0;
    authority->waiting_told = 0;
    authority->last_call_us = INT64_MAX;
    authority->return_us = INT64_MAX;
}

/* Tell the waiting nodes their new standing. */
static void authority_tell_waiting(struct mst__authority *authority)
{
    if (authority->waiting_count == 0) {
        return;
    }
    for (uint32_t i = 0; i < authority->members_count; i++) {
        struct mst__authority_member *member = &authority->members[i];
        if (member->place == MST_PLACE_WAITING && !member->is_absent) {
            mst__authority_tell_standing(authority, member);
        }
    }
    authority->stats.steps += authority->members_count;
}

/* Why a round of @count members begins. */
static enum mst__job_start authority_start(const struct mst__authority *authority, uint32_t count)
{
    switch (authority->reopened_why) {
        case MST_AUTHORITY_WHY_NONE:
            return MST_JOB_START_FIRST;
        case MST_AUTHORITY_WHY_LOST:
            return MST_JOB_START_LOST;
        case MST_AUTHORITY_WHY_LEFT:
            return MST_JOB_START_LEFT;
        case MST_AUTHORITY_WHY_FAILED:
            return MST_JOB_START_FAILED;
        default: /* a member has come back by itself */
            return count > authority->waiting_back_count ? MST_JOB_START_JOINED
                                                         : MST_JOB_START_ASKED;
    }
}

static void authority_seal(struct mst__authority *authority, enum mst__authority_why why)
{
    uint32_t *chosen = authority->arrays + authority->arrays_capacity;
    uint32_t *work = chosen + authority->arrays_capacity;
    uint32_t *roster = work + authority->arrays_capacity;
    uint32_t count_max = mst__authority_nodes_max(authority);
    uint32_t count = mst__authority_choose(authority, count_max, chosen, work);
    MST_ASSERT(count >= authority->settings.nodes_min);
    MST_ASSERT(count <= authority->settings.nodes_max);
    MST_ASSERT(!authority_is_blocked(authority));
    mst__authority_assign(authority, chosen, count, work, roster);
    int64_t round = mst__authority_round_next(authority);
    authority->round_restarts = authority->restarts_total;
    authority->round_start = authority_start(authority, count);
    round_forget(authority);
    for (uint32_t rank = 0; rank < count; rank++) {
        struct mst__authority_member *member = mst__members_at(authority, roster[rank]);
        mst__places_set(authority, rank, roster[rank]);
        member->place = MST_PLACE_HOLDING;
        member->rank = rank;
        member->worker_ranks = (struct mst__worker_ranks){.first = 0};
        member->leaving_us = 0;
        member->pending = 0;
    }
    if (authority->settings.has_workers) {
        mst__authority_number_workers(authority, roster, count, chosen, work);
    }
    authority->stats.steps += count;
    authority->waiting_count -= count;
    authority->round = round;
    authority->round_epoch = authority->options.epoch;
    authority->world = count;
    authority->first_world = authority->first_world == 0 ? count : authority->first_world;
    authority->held_count = count;
    authority->sealed_us = authority->now_us;
    authority->is_seal_pending = true;
    MST_ASSERT(authority->finished_count == 0);
    authority->stats.seals++;
    mst__authority_move(authority, MST_AUTHORITY_RUNNING, why);
    authority_tell_waiting(authority);
}

/* Whether no node is waited for any more: all members of the last round are back, or all processes
 * that were present at its end are back and enough. */
static bool authority_is_everybody_back(const struct mst__authority *authority)
{
    if (authority->round == 0 || authority->waiting_absent_count > 0) {
        return false;
    }
    return authority->waiting_back_count == authority->world ||
           authority->survivors_count >= authority->settings.nodes_min;
}

static void authority_gather(struct mst__authority *authority)
{
    if (!authority->settings.is_set || authority->waiting_count < authority->settings.nodes_min) {
        authority->last_call_us = INT64_MAX;
        return;
    }
    if (authority->last_call_us == INT64_MAX) {
        authority->last_call_us =
            mst__saturate_add(authority->now_us, authority->settings.last_call_us);
    }
    uint32_t present_count = authority_present_count(authority);
    if (authority_is_blocked(authority) || present_count < authority->settings.nodes_min) {
        return;
    }
    if (present_count >= mst__authority_nodes_max(authority)) {
        authority_seal(authority, MST_AUTHORITY_WHY_FULL);
    } else if (authority_is_everybody_back(authority)) {
        authority_seal(authority, MST_AUTHORITY_WHY_BACK);
    } else if (authority->now_us >= authority->last_call_us) {
        authority_seal(authority, MST_AUTHORITY_WHY_LAST_CALL);
    }
}

void mst__authority_advance(struct mst__authority *authority)
{
    if (authority->phase == MST_AUTHORITY_RECLAIMING && authority->unknown_count == 0) {
        mst__authority_move(authority, MST_AUTHORITY_RUNNING, MST_AUTHORITY_WHY_WHOLE);
    }
    bool is_whole = mst__authority_is_whole(authority);
    uint32_t finished = authority->finished_count + authority->released_count;
    if (is_whole && finished == authority->world) {
        mst__authority_finish(authority);
    }
    if (authority->phase == MST_AUTHORITY_OPEN) {
        uint32_t left = authority->living_count + authority->unknown_count;
        if (authority->released_count > 0 && left < authority->settings.nodes_min) {
            mst__authority_give_out(authority);
        } else {
            authority_gather(authority);
        }
    }
}

/* --- taking over --- */

/* Make a round of another authority the current one; room was reserved. */
void mst__authority_adopt(struct mst__authority *authority,
                          uint64_t epoch,
                          int64_t round,
                          uint32_t world)
{
    MST_ASSERT(world > 0);
    MST_ASSERT(!authority->is_seal_pending); /* what it has sealed itself is never given up */
    for (uint32_t i = 0; i < authority->members_count; i++) {
        struct mst__authority_member *member = &authority->members[i];
        if (member->place == MST_PLACE_HOLDING) {
            mst__authority_expel(authority, member, MST_EXPELLED_OVER);
        }
    }
    round_forget(authority);
    authority->round = round;
    authority->round_epoch = epoch;
    authority->world = world;
    /* No round was larger than the first one if that matters, so the largest known is nearest. */
    authority->first_world = world > authority->first_world ? world : authority->first_world;
    authority->unknown_count = world;
    authority->reclaim_us = time_after(authority->now_us, authority->options.reclaim_us);
    authority->sealed_us = authority->now_us;
    mst__authority_move(authority, MST_AUTHORITY_RECLAIMING, MST_AUTHORITY_WHY_CLAIMED);
    authority_tell_waiting(authority);
}

static int authority_restore(struct mst__authority *authority,
                             uint64_t epoch,
                             int64_t round,
                             uint32_t world)
{
    bool is_fresh = authority->phase == MST_AUTHORITY_OPEN && authority->round == 0 &&
                    authority->stats.announcements == 0;
    bool is_valid = round > 0 && round <= MST_AUTHORITY_ROUND_MAX && epoch > 0 &&
                    epoch <= MST_AUTHORITY_EPOCH_MAX && world > 0 &&
                    world <= authority->options.members_max;
    if (!is_fresh || !is_valid) {
        return MST_EINVAL;
    }
    mst__authority_adopt(authority, epoch, round, world);
    return 0;
}

/* Members that have not claimed their places are lost. There may be far more of them than members
 * here. */
static void authority_give_up(struct mst__authority *authority)
{
    uint32_t first = MST_AUTHORITY_RANK_NONE;
    uint32_t listed = 0;
    if (authority->options.ended != NULL) {
        authority->options.ended(authority->options.trace_arg, NULL, MST_AUTHORITY_ENDED_UNCLAIMED,
                                 authority->unknown_count);
    }
    MST_ASSERT(authority->lost_count + authority->held_count <= authority->arrays_capacity);
    uint32_t room = authority->arrays_capacity - authority->lost_count - authority->held_count;
    for (uint32_t rank = 0; listed < authority->unknown_count && rank < authority->world; rank++) {
        if (mst__places_get(authority, rank) != MST_INDEX_NONE) {
            continue;
        }
        first = first == MST_AUTHORITY_RANK_NONE ? rank : first;
        if (listed == room) {
            break;
        }
        authority->lost[authority->lost_count++] = rank;
        listed++;
    }
    authority->lost_unlisted = authority->unknown_count - listed;
    authority->stats.steps += listed;
    authority->stats.losses += authority->unknown_count;
    authority->unknown_count = 0;
    mst__authority_reopen(authority, MST_AUTHORITY_WHY_LOST, first);
}

static void authority_settle(struct mst__authority *authority)
{
    if (authority->phase != MST_AUTHORITY_CLOSED && authority->unknown_count > 0) {
        authority_give_up(authority);
    }
    mst__authority_advance(authority);
}

/* --- sessions --- */

static int member_heard(struct mst__authority *authority, struct mst__authority_member *member)
{
    if (member->is_absent) {
        return MST_EINVAL;
    }
    mst__members_unlink(authority, member);
    mst__members_link(authority, member);
    authority->stats.heartbeats++;
    return 0;
}

static int authority_disconnect(struct mst__authority *authority,
                                struct mst__authority_member *member,
                                const void *driver)
{
    if (member == NULL || member->driver != driver) {
        return MST_ENOTFOUND;
    }
    member->driver = NULL;
    member->pending = 0;
    if (!mst__members_is_living(member)) {
        return MST_ENOTFOUND; /* there is no connection to tell it */
    }
    if (member->is_absent) {
        return 0;
    }
    mst__members_unlink(authority, member);
    member->is_absent = true;
    mst__members_link(authority, member);
    authority->waiting_absent_count += member->place == MST_PLACE_WAITING;
    return 0;
}

void mst__authority_attach(struct mst__authority *authority,
                           struct mst__authority_member *member,
                           void *driver)
{
    mst__members_unlink(authority, member);
    if (member->is_absent) {
        authority->waiting_absent_count -= member->place == MST_PLACE_WAITING;
        member->is_absent = false;
    }
    mst__members_link(authority, member);
    member->driver = driver;
}

/* --- time --- */

/* Members that had been silent for too long at @heard_us are lost. */
static void authority_expire(struct mst__authority *authority, int64_t heard_us)
{
    struct mst__authority_member *silent;
    int64_t due_us = 0;
    while ((silent = mst__members_next_silent(authority, &due_us)) != NULL && due_us <= heard_us) {
        mst__authority_expel(authority, silent, MST_EXPELLED_SILENT);
    }
    while (authority_absent_due_us(authority) <= heard_us) {
        mst__authority_expel(authority, mst__members_at(authority, authority->absent.first),
                             MST_EXPELLED_SILENT);
    }
}

/* The time of members that hold a round that is over has passed. */
static void authority_call_off(struct mst__authority *authority)
{
    uint32_t cursor = 0;
    const struct mst__authority_member *member;
    while ((member = mst__authority_next_holder(authority, &cursor)) != NULL) {
        uint32_t index = mst__members_index(authority, member);
        mst__authority_expel(authority, mst__members_at(authority, index), MST_EXPELLED_LATE);
        authority->stats.steps++;
    }
}

static void authority_pass(struct mst__authority *authority, int64_t heard_us)
{
    authority_expire(authority, heard_us);
    if (authority->phase == MST_AUTHORITY_CLOSED) {
        return;
    }
    if (authority_reclaim_due_us(authority) <= heard_us) {
        authority_give_up(authority);
    }
    bool is_late = authority->phase == MST_AUTHORITY_OPEN && heard_us >= authority->return_us;
    if (is_late) {
        authority_call_off(authority);
    }
    mst__authority_advance(authority);
}

/* --- events --- */

/* The events of the session @member. */
static int authority_step_session(struct mst__authority *authority,
                                  struct mst__authority_member *member,
                                  const struct mst__authority_event *event)
{
    bool has_left = event->kind == MST_AUTHORITY_EVENT_LEFT;
    if (member == NULL || !mst__members_is_living(member)) {
        return MST_ENOTFOUND;
    }
    switch (event->kind) {
        case MST_AUTHORITY_EVENT_HEARD:
            return member_heard(authority, member);
        case MST_AUTHORITY_EVENT_FINISHED:
        case MST_AUTHORITY_EVENT_FAILED:
        case MST_AUTHORITY_EVENT_LEAVING:
            return mst__authority_hear_word(authority, member, event);
        default:
            mst__authority_part(authority, member,
                                has_left ? MST_AUTHORITY_ENDED_LEFT : MST_AUTHORITY_ENDED_DEAD);
            mst__authority_advance(authority);
            return 0;
    }
}

int mst__authority_step(struct mst__authority *authority,
                        const struct mst__authority_event *event,
                        struct mst_err *reterr)
{
    authority_enter(authority, event->now_us);
    switch (event->kind) {
        case MST_AUTHORITY_EVENT_ANNOUNCED:
            return mst__authority_announce(authority, event->announcement, reterr);
        case MST_AUTHORITY_EVENT_KEPT:
            return mst__authority_announce_kept(authority, event->announcement, reterr);
        case MST_AUTHORITY_EVENT_DISCONNECTED:
            return authority_disconnect(authority, mst__members_get(authority, event->id),
                                        event->driver);
        case MST_AUTHORITY_EVENT_SHUT:
            return mst__authority_shut(authority, event->reason, event->owner);
        case MST_AUTHORITY_EVENT_TIME:
            authority_pass(authority, event->now_us);
            return 0;
        case MST_AUTHORITY_EVENT_RESTORED:
            return authority_restore(authority, event->epoch, event->round, event->world);
        case MST_AUTHORITY_EVENT_SETTLED:
            authority_settle(authority);
            return 0;
        case MST_AUTHORITY_EVENT_HEARD:
        case MST_AUTHORITY_EVENT_FINISHED:
        case MST_AUTHORITY_EVENT_FAILED:
        case MST_AUTHORITY_EVENT_LEAVING:
        case MST_AUTHORITY_EVENT_LEFT:
        case MST_AUTHORITY_EVENT_DEAD:
            break;
    }
    return authority_step_session(authority, mst__members_get(authority, event->id), event);
}

/* --- effects --- */

static const char *expelled_text(enum mst__expelled why)
{
    switch (why) {
        case MST_EXPELLED_SILENT:
            return "nothing was heard of this node for too long; it has to announce itself again";
        case MST_EXPELLED_REPLACED:
            return "replaced by a newer process of this node, which has announced itself";
        case MST_EXPELLED_OVER:
            return "the round of this node is over, others claim a later one; it has to announce "
                   "itself for the next";
        case MST_EXPELLED_LATE:
            return "this node did not come back in time from a round that is over; it has to "
                   "announce itself again";
    }
    return "";
}

static void effect_fill(const struct mst__authority *authority,
                        enum mst__authority_effect_kind kind,
                        struct mst__authority_effect *ret_effect)
{
    *ret_effect = (struct mst__authority_effect){
        .kind = kind,
        .id = MST_AUTHORITY_NOBODY,
        .epoch = authority->round_epoch,
        .round = authority->round,
        .round_next = mst__authority_round_next(authority),
        .world = authority->world,
        .rank = MST_AUTHORITY_RANK_NONE,
        .why = authority->reopened_why,
        .outcome = authority->outcome,
    };
    bool has_cause = kind == MST_TOLD_CLOSED     ? authority->outcome == MST_JOB_OUTCOME_FAILED
                     : kind == MST_TOLD_REOPENED ? ret_effect->why == MST_AUTHORITY_WHY_FAILED
                                                 : false;
    if (has_cause) {
        ret_effect->has_cause = true;
        ret_effect->cause = mst__authority_cause(authority);
    }
    if (kind == MST_TOLD_SEALED) {
        const struct mst__authority_member *first = mst__authority_ranked(authority, 0);
        ret_effect->address = first == NULL ? mst_bytes_of("", 0) : mst__authority_address(first);
        ret_effect->restarts = authority->round_restarts;
        ret_effect->start = authority->round_start;
    } else if (kind == MST_TOLD_REOPENED) {
        ret_effect->rank = authority->reopened_rank;
    }
}

/* Whether a notice is still true, after later events. */
static bool notice_is_true(const struct mst__authority *authority,
                           const struct mst__authority_member *member,
                           enum mst__authority_effect_kind kind)
{
    enum mst__authority_standing standing = mst__authority_standing(authority, member);
    switch (kind) {
        case MST_TOLD_SEALED:
            return member->place == MST_PLACE_HOLDING;
        case MST_TOLD_QUEUED:
            return standing == MST_STANDING_QUEUED;
        case MST_TOLD_SPARE:
            return standing == MST_STANDING_SPARE;
        case MST_TOLD_EXPELLED:
            return standing == MST_STANDING_GONE;
        case MST_TOLD_REOPENED:
            return standing == MST_STANDING_CALLED;
        case MST_TOLD_WAITING:
            return standing == MST_STANDING_MEMBER || standing == MST_STANDING_FINISHED;
        case MST_TOLD_LOST:
        case MST_TOLD_CLOSED:
            break;
    }
    return false;
}

static bool effect_to_one(struct mst__authority *authority,
                          struct mst__authority_effect *ret_effect)
{
    enum mst__authority_effect_kind kind;
    struct mst__authority_member *member;
    do {
        member = mst__members_next_notice(authority, &kind);
        if (member == NULL) {
            return false;
        }
    } while (!notice_is_true(authority, member, kind));
    effect_fill(authority, kind, ret_effect);
    ret_effect->id = mst__authority_id_of(authority, member);
    ret_effect->driver = member->driver;
    if (kind == MST_TOLD_SEALED || kind == MST_TOLD_WAITING) {
        ret_effect->rank = member->rank;
        ret_effect->worker_ranks = member->worker_ranks;
        ret_effect->waiting_count = authority->waiting_told;
        if (mst__authority_standing(authority, member) == MST_STANDING_CALLED) {
            mst__members_notify(authority, member, MST_TOLD_REOPENED);
        }
    } else if (kind == MST_TOLD_REOPENED) {
        ret_effect->lost = authority->lost;
        ret_effect->lost_count = authority->lost_told;
        ret_effect->lost_unlisted = authority->lost_unlisted_told;
        ret_effect->lost_total = authority->lost_told + authority->lost_unlisted_told;
    } else if (kind == MST_TOLD_EXPELLED) {
        ret_effect->text = expelled_text((enum mst__expelled)member->expelled);
        member->driver = NULL;
        mst__members_drop(authority, member);
    }
    return true;
}

/* Effects for all that hold a round that is over. */
static bool effect_of_end(struct mst__authority *authority,
                          struct mst__authority_effect *ret_effect)
{
    if (authority->phase != MST_AUTHORITY_OPEN || authority->held_count == 0) {
        return false;
    }
    if (authority->lost_told < authority->lost_count ||
        authority->lost_unlisted_told < authority->lost_unlisted) {
        effect_fill(authority, MST_TOLD_LOST, ret_effect);
        ret_effect->lost = authority->lost + authority->lost_told;
        ret_effect->lost_count = authority->lost_count - authority->lost_told;
        ret_effect->lost_unlisted = authority->lost_unlisted - authority->lost_unlisted_told;
        ret_effect->lost_total = authority->lost_count + authority->lost_unlisted;
        authority->lost_told = authority->lost_count;
        authority->lost_unlisted_told = authority->lost_unlisted;
        return true;
    }
    if (authority->is_reopen_pending) {
        authority->is_reopen_pending = false;
        effect_fill(authority, MST_TOLD_REOPENED, ret_effect);
        return true;
    }
    return false;
}

bool mst__authority_next_effect(struct mst__authority *authority,
                                struct mst__authority_effect *ret_effect)
{
    if (authority->is_seal_pending) {
        authority->is_seal_pending = false;
        if (authority->held_count > 0) {
            effect_fill(authority, MST_TOLD_SEALED, ret_effect);
            return true;
        }
    }
    if (effect_to_one(authority, ret_effect) || effect_of_end(authority, ret_effect)) {
        return true;
    }
    if (authority_waiting_due_us(authority) <= authority->now_us) {
        authority->waiting_told = authority_waiting_wanted(authority);
        authority->waiting_told_us = authority->now_us;
        effect_fill(authority, MST_TOLD_WAITING, ret_effect);
        ret_effect->waiting_count = authority->waiting_told;
        return true;
    }
    if (authority->is_close_pending) {
        authority->is_close_pending = false;
        effect_fill(authority, MST_TOLD_CLOSED, ret_effect);
        ret_effect->text = authority->close_reason;
        ret_effect->owner = authority->close_owner;
        return true;
    }
    return false;
}
