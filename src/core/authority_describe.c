/* core/authority_describe.c - a run in words: names of its states, its state in one sentence, and
 * the check of its invariants. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/authority_members.h"
#include "core/authority_moves.h"
#include "core/saturate.h"

/* --- names --- */

const char *mst__authority_ended_name(enum mst__authority_ended how)
{
    static const char *const names[MST_AUTHORITY_ENDED_COUNT] = {
#define ENDED_NAME(name, text) [MST_AUTHORITY_ENDED_##name] = (text),
        MST_AUTHORITY_ENDED_MAP(ENDED_NAME)
#undef ENDED_NAME
    };
    return names[how];
}

const char *mst__authority_why_name(enum mst__authority_why why)
{
    switch (why) {
#define WHY_NAME(name, text)       \
    case MST_AUTHORITY_WHY_##name: \
        return text;
        MST_AUTHORITY_WHY_MAP(WHY_NAME)
#undef WHY_NAME
    }
    return "undefined";
}

const char *mst__authority_phase_name(enum mst__authority_phase phase)
{
    static const char *const names[] = {"open", "reclaiming", "running", "closed"};
    return (size_t)phase < sizeof names / sizeof names[0] ? names[phase] : "undefined";
}

const char *mst__authority_event_name(enum mst__authority_event_kind kind)
{
    static const char *const names[MST_AUTHORITY_EVENT_COUNT] = {
#define EVENT_NAME(name, text) (text),
        MST_AUTHORITY_EVENT_MAP(EVENT_NAME)
#undef EVENT_NAME
    };
    return names[kind];
}

const char *mst__authority_standing_name(enum mst__authority_standing standing)
{
    static const char *const names[] = {"gathered", "queued", "spare",   "member",
                                        "called",   "gone",   "finished"};
    return (size_t)standing < MST_STANDING_COUNT ? names[standing] : "undefined";
}

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

/* In the last round, and absent. */
static bool pick_missing(const struct mst__authority *authority,
                         const struct mst__authority_member *member)
{
    return member->place == MST_PLACE_GONE && mst__members_is_ranked(authority, member);
}

/* "<before>node1, node2 and 7 more", or nothing if there is none. */
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
    sentence_add(sentence, "%" PRIu32 " waiting", authority->waiting_count);
    if (authority->held_count > 0) {
        sentence_add(sentence, ", %" PRIu32 " of round %" PRId64 " not back yet",
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
        sentence_add(sentence, ", %" PRIu32 " more needed for the minimum of %" PRIu32,
                     settings->nodes_min - authority->waiting_count, settings->nodes_min);
    } else if (authority->last_call_us != INT64_MAX) {
        sentence_add(sentence, ", last call for ");
        sentence_add_time(sentence, mst__saturate_subtract(authority->last_call_us, now_us));
        sentence_add(sentence, " more, up to %" PRIu32 " nodes",
                     mst__authority_nodes_max(authority));
    }
    sentence_add_names(sentence, authority, "; connection lost: ", pick_absent);
    sentence_add_names(sentence, authority, "; gone since the last round: ", pick_missing);
}

static void describe_round(struct sentence *sentence, const struct mst__authority *authority)
{
    sentence_add(sentence, "round %" PRId64 " runs with %" PRIu32 " node%s", authority->round,
                 authority->world, authority->world == 1 ? "" : "s");
    uint32_t finished = authority->finished_count + authority->released_count;
    if (finished > 0) {
        sentence_add(sentence, ", %" PRIu32 " finished", finished);
        sentence_add_names(sentence, authority, "; at work: ", pick_at_work);
    }
    if (authority->waiting_count > 0) {
        bool is_full = authority->world >= mst__authority_nodes_max(authority);
        sentence_add(sentence,
                     is_full ? "; %" PRIu32 " on standby" : "; %" PRIu32 " waiting to join",
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

/* --- invariants --- */

#define HOLDS(condition)       \
    do {                       \
        if (!(condition)) {    \
            return #condition; \
        }                      \
    } while (0)

/* @index is in the table, or none. */
static bool is_link(const struct mst__authority *authority, uint32_t index)
{
    return index < authority->members_count || index == MST_INDEX_NONE;
}

static const char *flaw_of_list(const struct mst__authority *authority,
                                const struct mst__authority_list *list,
                                bool is_absent,
                                uint32_t *count)
{
    uint32_t prev = MST_INDEX_NONE;
    int64_t heard_us = INT64_MIN;
    HOLDS(is_link(authority, list->first));
    for (uint32_t at = list->first; at != MST_INDEX_NONE;) {
        const struct mst__authority_member *member = mst__members_at(authority, at);
        HOLDS(mst__members_is_living(member));
        HOLDS(member->is_absent == is_absent);
        HOLDS(member->is_linked);
        HOLDS(member->prev == prev);
        HOLDS(member->heard_us >= heard_us);
        HOLDS((*count)++ < authority->members_count);
        heard_us = member->heard_us;
        prev = at;
        at = member->next;
    }
    HOLDS(list->last == prev);
    HOLDS(heard_us <= authority->now_us);
    return NULL;
}

static const char *flaw_of_present(const struct mst__authority *authority, uint32_t *count)
{
    const char *flaw = NULL;
    for (unsigned i = 0; i < MST_AUTHORITY_EXPIRIES_MAX && flaw == NULL; i++) {
        const struct mst__authority_patience *present = &authority->present[i];
        flaw = flaw_of_list(authority, &present->members, false, count);
        for (uint32_t at = present->members.first; at != MST_INDEX_NONE && flaw == NULL;) {
            const struct mst__authority_member *member = mst__members_at(authority, at);
            HOLDS(member->patience == i);
            HOLDS(member->expiry_us <= present->expiry_us);
            at = member->next;
        }
    }
    return flaw;
}

/* The list of notices and the list of free entries: linked in the same way. */
static const char *flaw_of_chains(const struct mst__authority *authority)
{
    uint32_t listed = 0;
    uint32_t last = MST_INDEX_NONE;
    HOLDS(is_link(authority, authority->pending.first));
    HOLDS(is_link(authority, authority->free_first));
    for (uint32_t at = authority->pending.first; at != MST_INDEX_NONE;) {
        const struct mst__authority_member *member = mst__members_at(authority, at);
        HOLDS(member->is_listed && member->place != MST_PLACE_FREE);
        HOLDS(listed++ < authority->members_count);
        last = at;
        at = member->pending_next;
    }
    HOLDS(authority->pending.last == last);
    uint32_t freed = 0;
    for (uint32_t at = authority->free_first; at != MST_INDEX_NONE;) {
        const struct mst__authority_member *member = mst__members_at(authority, at);
        HOLDS(member->place == MST_PLACE_FREE);
        HOLDS(freed++ < authority->members_count);
        at = member->pending_next;
    }
    HOLDS(freed + authority->used_count == authority->members_count);
    for (uint32_t i = 0; i < authority->members_count; i++) {
        listed -= mst__members_at(authority, i)->is_listed;
    }
    HOLDS(listed == 0);
    return NULL;
}

static const char *flaw_of_member(const struct mst__authority *authority,
                                  const struct mst__authority_member *member)
{
    bool is_living = mst__members_is_living(member);
    const struct mst__authority_member *named =
        mst__members_named(authority, mst__authority_name(member));
    HOLDS(member->is_named == (named == member));
    HOLDS(!is_living || member->is_named);
    HOLDS(is_living || member->is_named || member->is_listed);
    bool is_ranked = mst__members_is_ranked(authority, member);
    HOLDS(!is_living || is_ranked == (member->rank != MST_AUTHORITY_RANK_NONE));
    HOLDS(member->place != MST_PLACE_HOLDING || is_ranked);
    HOLDS(member->place != MST_PLACE_GONE || member->is_named == is_ranked);
    HOLDS(!member->is_absent || member->driver == NULL);
    HOLDS(!member->is_absent || is_living);
    bool is_exempt = member->is_finished && mst__authority_is_whole(authority);
    HOLDS(member->is_linked == (is_living && !is_exempt));
    HOLDS(!member->is_finished || member->place != MST_PLACE_WAITING);
    HOLDS(member->pending <= MST_TOLD_CLOSED + 1);
    HOLDS(member->expelled <= MST_EXPELLED_LATE);
    HOLDS(member->order < authority->order_next);
    return NULL;
}

static const char *flaw_of_members(const struct mst__authority *authority)
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
        const char *flaw = flaw_of_member(authority, member);
        if (flaw != NULL) {
            return flaw;
        }
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
        HOLDS(counted[i] == 0);
    }
    HOLDS(used == authority->used_count);
    HOLDS(held == authority->held_count);
    HOLDS(finished == authority->finished_count);
    HOLDS(authority->restarts <= authority->restarts_total);
    HOLDS(authority->round_restarts <= authority->restarts_total);
    HOLDS(waiting == authority->waiting_count);
    HOLDS(absent == authority->waiting_absent_count);
    HOLDS(back == authority->waiting_back_count);
    HOLDS(held + waiting == authority->living_count);
    HOLDS(authority->phase != MST_AUTHORITY_OPEN || survivors == authority->survivors_count);
    return NULL;
}

static const char *flaw_of_round(const struct mst__authority *authority)
{
    uint32_t unclaimed = 0;
    uint32_t released = 0;
    for (uint32_t rank = 0; rank < authority->world; rank++) {
        const struct mst__authority_member *member = mst__authority_ranked(authority, rank);
        HOLDS(member == NULL || member->rank == rank);
        HOLDS(member == NULL || member->place != MST_PLACE_FREE);
        uint32_t place = mst__places_get(authority, rank);
        unclaimed += place == MST_INDEX_NONE;
        released += place == MST_INDEX_RELEASED ||
                    (member != NULL && member->place == MST_PLACE_GONE && member->is_finished);
    }
    HOLDS(authority->unknown_count == 0 || authority->unknown_count == unclaimed);
    HOLDS(authority->lost_told <= authority->lost_count);
    HOLDS(authority->lost_unlisted_told <= authority->lost_unlisted);
    HOLDS(authority->released_count == released);
    uint64_t seated =
        (uint64_t)authority->held_count + authority->unknown_count + authority->released_count;
    HOLDS(seated + authority->lost_count + authority->lost_unlisted <= authority->world);
    HOLDS(authority->lost_count + authority->held_count <= authority->arrays_capacity);
    if (mst__authority_is_whole(authority)) {
        HOLDS(seated == authority->world);
        HOLDS((authority->unknown_count > 0) == (authority->phase == MST_AUTHORITY_RECLAIMING));
    }
    return NULL;
}

/* Check numbers before they are used as indices. */
static const char *flaw_of_numbers(const struct mst__authority *authority)
{
    const struct mst__authority_settings *settings = &authority->settings;
    uint32_t members_max = authority->options.members_max;
    HOLDS(authority->world <= members_max);
    HOLDS(authority->first_world <= members_max);
    HOLDS(authority->living_count <= members_max);
    HOLDS(authority->round >= 0 && authority->round <= MST_AUTHORITY_ROUND_MAX);
    HOLDS(authority->round_floor >= 0 && authority->round_floor <= MST_AUTHORITY_ROUND_MAX);
    HOLDS((authority->round == 0) == (authority->world == 0));
    HOLDS(authority->round == 0 || authority->round_epoch > 0);
    HOLDS(authority->living_count == 0 || settings->is_set);
    HOLDS(!settings->is_set || settings->nodes_min > 0);
    HOLDS(!settings->is_set || settings->nodes_min <= settings->nodes_max);
    HOLDS(!settings->is_set || settings->nodes_max <= members_max);
    for (uint32_t i = 0; i < authority->members_count; i++) {
        const struct mst__authority_member *member = &authority->members[i];
        HOLDS(member->patience < MST_AUTHORITY_EXPIRIES_MAX);
        HOLDS(member->workers <= MST_NPROC_MAX);
        HOLDS(is_link(authority, member->pending_next));
        HOLDS(member->place == MST_PLACE_FREE || is_link(authority, member->prev));
        HOLDS(member->place == MST_PLACE_FREE || is_link(authority, member->next));
    }
    return NULL;
}

const char *mst__authority_flaw(const struct mst__authority *authority)
{
    uint32_t linked = 0;
    const char *flaw = flaw_of_numbers(authority);
    flaw = flaw == NULL ? flaw_of_present(authority, &linked) : flaw;
    flaw = flaw == NULL ? flaw_of_list(authority, &authority->absent, true, &linked) : flaw;
    flaw = flaw == NULL ? flaw_of_chains(authority) : flaw;
    flaw = flaw == NULL ? flaw_of_members(authority) : flaw;
    flaw = flaw == NULL ? flaw_of_round(authority) : flaw;
    if (flaw == NULL) {
        bool is_whole = mst__authority_is_whole(authority);
        HOLDS(linked + (is_whole ? authority->finished_count : 0) == authority->living_count);
    }
    return flaw;
}

void mst__authority_check(const struct mst__authority *authority)
{
    const char *flaw = mst__authority_flaw(authority);
    if (flaw != NULL) {
        mst__assert_failed(flaw, __FILE__, __LINE__, __func__);
    }
}
