/* core/authority_describe.c - a run in one sentence, and whether it is as it must be. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/authority_members.h"
#include "core/authority_moves.h"
#include "core/saturate.h"

/* --- one sentence --- */

struct sentence {
    char *text;
    size_t size;
    size_t used;
};

static void sentence_add(struct sentence *sentence, const char *format, ...) MST_PRINTF(2, 3);

static void sentence_add(struct sentence *sentence, const char *format, ...)
{
    if (sentence->used + 1 >= sentence->size) {
        return;
    }
    va_list args;
    va_start(args, format);
    int count =
        vsnprintf(sentence->text + sentence->used, sentence->size - sentence->used, format, args);
    va_end(args);
    if (count > 0) {
        sentence->used += (size_t)count;
    }
    if (sentence->used >= sentence->size) {
        sentence->used = sentence->size - 1;
    }
}

/* "1.5 s" */
static void sentence_add_time(struct sentence *sentence, int64_t time_us)
{
    int64_t tenths = time_us <= 0 ? 0 : (time_us + 99999) / 100000;
    sentence_add(sentence, "%" PRId64 ".%" PRId64 " s", tenths / 10, tenths % 10);
}

typedef bool (*describe_pick_fn)(const struct mst__authority *authority,
                                 const struct mst__authority_member *member);

static bool pick_called(const struct mst__authority *authority,
                        const struct mst__authority_member *member)
{
    (void)authority;
    return member->place == MST_PLACE_HOLDING;
}

static bool pick_waiting(const struct mst__authority *authority,
                         const struct mst__authority_member *member)
{
    (void)authority;
    return member->place == MST_PLACE_WAITING;
}

static bool pick_absent(const struct mst__authority *authority,
                        const struct mst__authority_member *member)
{
    (void)authority;
    return mst__members_is_living(member) && member->is_absent;
}

static bool pick_at_work(const struct mst__authority *authority,
                         const struct mst__authority_member *member)
{
    (void)authority;
    return member->place == MST_PLACE_HOLDING && !member->is_finished;
}

/* In the last round, and not here. */
static bool pick_missing(const struct mst__authority *authority,
                         const struct mst__authority_member *member)
{
    return member->place == MST_PLACE_GONE && mst__members_is_ranked(authority, member);
}

/* "<before>node1, node2 and 7 more", or nothing when there is none. */
static void sentence_add_names(struct sentence *sentence,
                               const struct mst__authority *authority,
                               const char *before,
                               describe_pick_fn pick)
{
    uint32_t cursor = 0;
    size_t count = 0;
    const struct mst__authority_member *member;
    while ((member = mst__authority_next_member(authority, &cursor)) != NULL) {
        if (!pick(authority, member)) {
            continue;
        }
        if (count < MST_AUTHORITY_NAMES_TOLD) {
            sentence_add(sentence, "%s%s", count == 0 ? before : ", ",
                         (const char *)mst__authority_name(member).data);
            if (member->place == MST_PLACE_GONE) {
                sentence_add(sentence, "%s",
                             member->is_lost       ? " (lost)"
                             : member->is_finished ? " (finished)"
                                                   : " (left)");
            }
        }
        count++;
    }
    if (count > MST_AUTHORITY_NAMES_TOLD) {
        sentence_add(sentence, " and %zu more", count - MST_AUTHORITY_NAMES_TOLD);
    }
}

/* ": ranks 0, 5 and 7 more" */
static void sentence_add_unclaimed(struct sentence *sentence,
                                   const struct mst__authority *authority)
{
    size_t count = 0;
    for (uint32_t rank = 0; rank < authority->world; rank++) {
        if (mst__places_get(authority, rank) != MST_INDEX_NONE) {
            continue;
        }
        if (count < MST_AUTHORITY_NAMES_TOLD) {
            sentence_add(sentence, "%s%" PRIu32, count == 0 ? " with rank " : ", ", rank);
        }
        count++;
    }
    if (count > MST_AUTHORITY_NAMES_TOLD) {
        sentence_add(sentence, " and %zu more", count - MST_AUTHORITY_NAMES_TOLD);
    }
}

static void describe_open(struct sentence *sentence,
                          const struct mst__authority *authority,
                          int64_t now_us)
{
    const struct mst__authority_settings *settings = &authority->settings;
    sentence_add(sentence, "round %" PRId64 " is open: ", mst__authority_round_next(authority));
    if (authority->living_count == 0 && authority->unknown_count == 0) {
        sentence_add(sentence, "nobody is here");
        sentence_add_names(sentence, authority, "; of the last round: ", pick_missing);
        return;
    }
    sentence_add(sentence, "%" PRIu32 " wait", authority->waiting_count);
    if (authority->held_count > 0) {
        sentence_add(sentence, ", %" PRIu32 " of round %" PRId64 " have not come back",
                     authority->held_count, authority->round);
        sentence_add_names(sentence, authority, ": ", pick_called);
    }
    if (authority->unknown_count > 0) {
        sentence_add(sentence, ", %" PRIu32 " of round %" PRId64 " may come for ",
                     authority->unknown_count, authority->round);
        sentence_add_time(sentence, mst__saturate_subtract(authority->reclaim_us, now_us));
        sentence_add(sentence, " more: those");
        sentence_add_unclaimed(sentence, authority);
    }
    if (authority->waiting_count < settings->nodes_min) {
        sentence_add(sentence, ", %" PRIu32 " more are needed for the minimum of %" PRIu32,
                     settings->nodes_min - authority->waiting_count, settings->nodes_min);
    } else if (authority->last_call_us != INT64_MAX) {
        sentence_add(sentence, ", last call for ");
        sentence_add_time(sentence, mst__saturate_subtract(authority->last_call_us, now_us));
        sentence_add(sentence, " more, up to %" PRIu32 " nodes", settings->nodes_max);
    }
    sentence_add_names(sentence, authority, "; connection lost: ", pick_absent);
    sentence_add_names(sentence, authority, "; gone since the last round: ", pick_missing);
}

static void describe_round(struct sentence *sentence, const struct mst__authority *authority)
{
    sentence_add(sentence, "round %" PRId64 " runs with %" PRIu32 " nodes", authority->round,
                 authority->world);
    uint32_t finished = authority->finished_count + authority->released_count;
    if (finished > 0) {
        sentence_add(sentence, ", %" PRIu32 " have finished", finished);
        sentence_add_names(sentence, authority, "; at work: ", pick_at_work);
    }
    if (authority->waiting_count > 0) {
        bool is_full = authority->world >= authority->settings.nodes_max;
        sentence_add(sentence, is_full ? "; %" PRIu32 " stand by" : "; %" PRIu32 " want in",
                     authority->waiting_count);
        sentence_add_names(sentence, authority, ": ", pick_waiting);
    }
    sentence_add_names(sentence, authority, "; connection lost: ", pick_absent);
}

static void describe_closed(struct sentence *sentence, const struct mst__authority *authority)
{
    if (authority->outcome == MST_JOB_OUTCOME_ASKED) {
        sentence_add(sentence, "closed by '%s': %s", authority->close_owner,
                     authority->close_reason);
    } else {
        sentence_add(sentence, "%s: %s", mst__job_outcome_name(authority->outcome),
                     authority->close_reason);
    }
}

void mst__authority_describe(const struct mst__authority *authority,
                             int64_t now_us,
                             char *ret_text,
                             size_t ret_size)
{
    struct sentence sentence = {.text = ret_text, .size = ret_size};
    if (ret_size == 0) {
        return;
    }
    ret_text[0] = '\0';
    switch (authority->phase) {
        case MST_AUTHORITY_OPEN:
            describe_open(&sentence, authority, now_us);
            break;
        case MST_AUTHORITY_RECLAIMING:
            sentence_add(&sentence,
                         "round %" PRId64 " is taken over: %" PRIu32 " of %" PRIu32
                         " nodes are here, for ",
                         authority->round, authority->held_count, authority->world);
            sentence_add_time(&sentence, mst__saturate_subtract(authority->reclaim_us, now_us));
            sentence_add(&sentence, " more it waits for those");
            sentence_add_unclaimed(&sentence, authority);
            break;
        case MST_AUTHORITY_RUNNING:
            describe_round(&sentence, authority);
            break;
        case MST_AUTHORITY_CLOSED:
            describe_closed(&sentence, authority);
            break;
    }
}

/* --- what must be true --- */

static uint32_t check_list(const struct mst__authority *authority,
                           const struct mst__authority_list *list,
                           bool is_absent)
{
    uint32_t count = 0;
    uint32_t prev = MST_INDEX_NONE;
    int64_t heard_us = INT64_MIN;
    for (uint32_t at = list->first; at != MST_INDEX_NONE;) {
        const struct mst__authority_member *member = mst__members_at(authority, at);
        MST_ASSERT(mst__members_is_living(member));
        MST_ASSERT(member->is_absent == is_absent);
        MST_ASSERT(member->is_linked);
        MST_ASSERT(member->prev == prev);
        MST_ASSERT(member->heard_us >= heard_us);
        heard_us = member->heard_us;
        prev = at;
        at = member->next;
        count++;
    }
    MST_ASSERT(list->last == prev);
    return count;
}

static void check_member(const struct mst__authority *authority,
                         const struct mst__authority_member *member)
{
    bool is_living = mst__members_is_living(member);
    const struct mst__authority_member *named =
        mst__members_named(authority, mst__authority_name(member));
    MST_ASSERT(member->is_named == (named == member));
    MST_ASSERT(!is_living || member->is_named);
    MST_ASSERT(is_living || member->is_named || member->is_listed);
    bool is_ranked = mst__members_is_ranked(authority, member);
    MST_ASSERT(!is_living || is_ranked == (member->rank != MST_AUTHORITY_RANK_NONE));
    MST_ASSERT(member->place != MST_PLACE_HOLDING || is_ranked);
    MST_ASSERT(member->place != MST_PLACE_GONE || member->is_named == is_ranked);
    MST_ASSERT(!member->is_absent || member->driver == NULL);
    MST_ASSERT(!member->is_absent || is_living);
    bool is_exempt = member->is_finished && mst__authority_is_whole(authority);
    MST_ASSERT(member->is_linked == (is_living && !is_exempt));
    MST_ASSERT(!member->is_finished || member->place != MST_PLACE_WAITING);
}

static void check_members(const struct mst__authority *authority)
{
    uint32_t counted[MST_STANDING_COUNT];
    mst__authority_count_standings(authority, counted);
    uint32_t used = 0;
    uint32_t held = 0;
    uint32_t finished = 0;
    uint32_t waiting = 0;
    uint32_t absent = 0;
    uint32_t back = 0;
    uint32_t survivors = 0;
    uint32_t cursor = 0;
    const struct mst__authority_member *member;
    while ((member = mst__authority_next_member(authority, &cursor)) != NULL) {
        check_member(authority, member);
        if (mst__members_is_living(member)) {
            counted[mst__authority_standing(authority, member)]--;
        }
        used++;
        held += member->place == MST_PLACE_HOLDING;
        finished += member->place == MST_PLACE_HOLDING && member->is_finished;
        if (member->place == MST_PLACE_WAITING) {
            waiting++;
            absent += member->is_absent;
            back += member->rank != MST_AUTHORITY_RANK_NONE;
            survivors += member->is_returned || member->order < authority->reopened_order;
        }
    }
    for (unsigned i = 0; i < MST_STANDING_COUNT; i++) {
        MST_ASSERT(counted[i] == 0);
    }
    MST_ASSERT(used == authority->used_count);
    MST_ASSERT(held == authority->held_count);
    MST_ASSERT(finished == authority->finished_count);
    MST_ASSERT(waiting == authority->waiting_count);
    MST_ASSERT(absent == authority->waiting_absent_count);
    MST_ASSERT(back == authority->waiting_back_count);
    MST_ASSERT(held + waiting == authority->living_count);
    MST_ASSERT(authority->phase != MST_AUTHORITY_OPEN || survivors == authority->survivors_count);
}

void mst__authority_check(const struct mst__authority *authority)
{
    uint32_t living = check_list(authority, &authority->present, false);
    living += check_list(authority, &authority->absent, true);
    living += mst__authority_is_whole(authority) ? authority->finished_count : 0;
    MST_ASSERT(living == authority->living_count);
    check_members(authority);
    uint32_t unclaimed = 0;
    for (uint32_t rank = 0; rank < authority->world; rank++) {
        const struct mst__authority_member *member = mst__authority_ranked(authority, rank);
        MST_ASSERT(member == NULL || member->rank == rank);
        MST_ASSERT(member == NULL || member->place != MST_PLACE_FREE);
        unclaimed += mst__places_get(authority, rank) == MST_INDEX_NONE;
    }
    MST_ASSERT(authority->unknown_count == 0 || authority->unknown_count == unclaimed);
    MST_ASSERT(authority->lost_told <= authority->lost_count);
    MST_ASSERT(authority->lost_count + authority->lost_unlisted <= authority->world);
    MST_ASSERT(authority->released_count <= authority->world);
    bool is_whole = authority->held_count + authority->unknown_count + authority->released_count ==
                    authority->world;
    if (authority->phase == MST_AUTHORITY_RUNNING) {
        MST_ASSERT(is_whole && authority->unknown_count == 0);
    } else if (authority->phase == MST_AUTHORITY_RECLAIMING) {
        MST_ASSERT(is_whole && authority->unknown_count > 0);
    }
    MST_ASSERT(authority->living_count == 0 || authority->settings.is_set);
}
