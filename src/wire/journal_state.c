/* wire/journal_state.c - the whole state of an authority to records and back.
 *
 * Counts that follow from the members are not written but counted again. The rest is restored
 * exactly, links included, and must then be consistent (mst__authority_flaw): the file is
 * untrusted. */
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "core/authority_members.h"
#include "core/authority_moves.h"
#include "wire/journal_self.h"

/* --- fields --- */

#define VISIT_ENUM(visitor, field, type, last)        \
    do {                                              \
        uint32_t number = (uint32_t)(field);          \
        mst__visit_count((visitor), &number, (last)); \
        (field) = (type)number;                       \
    } while (0)

/* A text in an array with room for @size_max bytes and a NUL. */
static void visit_chars(struct mst__visitor *visitor, char *text, size_t size_max)
{
    struct mst_bytes bytes = mst_bytes_str(visitor->output != NULL ? text : "");
    mst__visit_text(visitor, &bytes);
    if (visitor->output != NULL) {
        return;
    }
    if (bytes.size > size_max || memchr(bytes.data, '\0', bytes.size) != NULL) {
        mst__visit_appended(visitor, MST_EPROTO);
        return;
    }
    MST_ASSERT(bytes.size <= size_max);
    memcpy(text, bytes.data, bytes.size);
    text[bytes.size] = '\0';
}

static void visit_options(struct mst__visitor *visitor, struct mst__authority_options *options)
{
    mst__visit_u64(visitor, &options->epoch);
    mst__visit_i64(visitor, &options->expiry_us);
    mst__visit_i64(visitor, &options->grace_us);
    mst__visit_i64(visitor, &options->reclaim_us);
    mst__visit_i64(visitor, &options->return_us);
    mst__visit_u32(visitor, &options->members_max);
}

static void visit_settings(struct mst__visitor *visitor, struct mst__authority_settings *settings)
{
    mst__visit_bool(visitor, &settings->is_set);
    mst__visit_u32(visitor, &settings->nodes_min);
    mst__visit_u32(visitor, &settings->nodes_max);
    mst__visit_i64(visitor, &settings->last_call_us);
    mst__visit_budget(visitor, &settings->budget);
    visit_chars(visitor, settings->rank_by, MST_AUTHORITY_RANK_BY_SIZE_MAX);
    visit_chars(visitor, settings->setter, MST_AUTHORITY_NAME_SIZE_MAX);
}

static void visit_round(struct mst__visitor *visitor, struct mst__authority *authority)
{
    mst__visit_u64(visitor, &authority->round_epoch);
    mst__visit_i64(visitor, &authority->round);
    mst__visit_i64(visitor, &authority->sealed_us);
    mst__visit_i64(visitor, &authority->round_floor);
    mst__visit_i64(visitor, &authority->reclaim_us);
    mst__visit_u32(visitor, &authority->world);
    mst__visit_u32(visitor, &authority->unknown_count);
    mst__visit_u32(visitor, &authority->released_count);
    mst__visit_u32(visitor, &authority->survivors_count);
    mst__visit_u64(visitor, &authority->reopened_order);
    mst__visit_i64(visitor, &authority->last_call_us);
    mst__visit_i64(visitor, &authority->return_us);
    VISIT_ENUM(visitor, authority->reopened_why, enum mst__authority_why,
               MST_AUTHORITY_WHY_FINISHED);
    mst__visit_u32(visitor, &authority->reopened_rank);
    mst__visit_u64(visitor, &authority->order_next);
}

static void visit_told(struct mst__visitor *visitor, struct mst__authority *authority)
{
    mst__visit_u32(visitor, &authority->lost_told);
    mst__visit_u32(visitor, &authority->lost_unlisted);
    mst__visit_u32(visitor, &authority->lost_unlisted_told);
    mst__visit_i64(visitor, &authority->waiting_told_us);
    mst__visit_u32(visitor, &authority->waiting_told);
    mst__visit_bool(visitor, &authority->is_seal_pending);
    mst__visit_bool(visitor, &authority->is_reopen_pending);
    mst__visit_bool(visitor, &authority->is_close_pending);
}

static void visit_failures(struct mst__visitor *visitor, struct mst__authority *authority)
{
    struct mst__cause *cause = &authority->cause;
    mst__visit_bool(visitor, &authority->has_cause);
    mst__visit_i64(visitor, &authority->restarts_us);
    mst__visit_u32(visitor, &authority->restarts);
    mst__visit_u32(visitor, &cause->rank);
    mst__visit_u32(visitor, &cause->worker);
    mst__visit_i32(visitor, &cause->status);
    mst__visit_u32(visitor, &cause->signal);
    mst__visit_i64(visitor, &cause->wall_us);
    visit_chars(visitor, authority->cause_node, MST_AUTHORITY_NAME_SIZE_MAX);
    visit_chars(visitor, authority->cause_text, MST_AUTHORITY_CAUSE_SIZE_MAX);
    visit_chars(visitor, authority->close_reason, MST_AUTHORITY_REASON_SIZE_MAX);
    visit_chars(visitor, authority->close_owner, MST_AUTHORITY_NAME_SIZE_MAX);
}

/* JOB, after run id and options. */
static void visit_job(struct mst__visitor *visitor,
                      struct mst__journal_state *state,
                      struct mst__authority *authority)
{
    VISIT_ENUM(visitor, authority->phase, enum mst__authority_phase, MST_AUTHORITY_CLOSED);
    VISIT_ENUM(visitor, authority->outcome, enum mst__job_outcome, MST_JOB_OUTCOME_COUNT - 1);
    mst__visit_i64(visitor, &authority->now_us);
    mst__visit_i64(visitor, &authority->listen_us);
    visit_settings(visitor, &authority->settings);
    visit_round(visitor, authority);
    visit_told(visitor, authority);
    visit_failures(visitor, authority);
    mst__visit_count(visitor, &state->members_left, 4 * MST_AUTHORITY_MEMBERS_MAX);
    mst__visit_count(visitor, &state->lost_left, MST_AUTHORITY_MEMBERS_MAX);
    mst__visit_count(visitor, &state->released_left, MST_AUTHORITY_MEMBERS_MAX);
    if (mst__visit_more(visitor)) { /* missing in the first journals */
        mst__visit_u32(visitor, &authority->restarts_total);
        mst__visit_u32(visitor, &authority->round_restarts);
        VISIT_ENUM(visitor, authority->round_start, enum mst__job_start, MST_JOB_START_COUNT - 1);
    } else {
        authority->restarts_total = authority->restarts;
    }
    if (mst__visit_more(visitor)) { /* the same */
        mst__visit_bool(visitor, &authority->settings.is_fixed);
        mst__visit_u32(visitor, &authority->first_world);
    }
    if (mst__visit_more(visitor)) { /* the same */
        mst__visit_bool(visitor, &authority->settings.has_workers);
        visit_chars(visitor, authority->cause_report, MST_AUTHORITY_REPORT_SIZE_MAX);
        mst__visit_i64(visitor, &authority->leaving_us);
    }
}

/* Flags as bits of one number. */
static void visit_flags(struct mst__visitor *visitor, bool *const *flags, unsigned count)
{
    uint32_t bits = 0;
    MST_ASSERT(count <= 32);
    for (unsigned i = 0; i < count; i++) {
        bits |= (uint32_t)(*flags[i] ? 1U << i : 0);
    }
    mst__visit_u32(visitor, &bits);
    for (unsigned i = 0; i < count; i++) {
        *flags[i] = (bits >> i & 1) != 0;
    }
}

/* MEMBER, without its text. A free entry has only the first three fields. */
static void visit_member(struct mst__visitor *visitor,
                         struct mst__authority_member *member,
                         bool *is_ranked,
                         bool *has_driver)
{
    VISIT_ENUM(visitor, member->place, enum mst__authority_place, MST_PLACE_GONE);
    mst__visit_u32(visitor, &member->generation);
    mst__visit_u32(visitor, &member->pending_next);
    if (member->place == MST_PLACE_FREE) {
        return;
    }
    bool *const flags[] = {&member->is_listed,
                           &member->is_linked,
                           &member->is_absent,
                           &member->is_lost,
                           &member->is_named,
                           &member->is_returned,
                           &member->is_finished,
                           &member->has_skew,
                           is_ranked,
                           has_driver};
    visit_flags(visitor, flags, sizeof flags / sizeof flags[0]);
    mst__visit_u8(visitor, &member->pending);
    mst__visit_u8(visitor, &member->expelled);
    mst__visit_u32(visitor, &member->prev);
    mst__visit_u32(visitor, &member->next);
    mst__visit_u32(visitor, &member->rank);
    mst__visit_u32(visitor, &member->pinned_rank);
    mst__visit_u64(visitor, &member->incarnation);
    mst__visit_u64(visitor, &member->session);
    mst__visit_u64(visitor, &member->contact);
    for (size_t i = 0; i < MST_AUTHORITY_REPLACED_MAX; i++) {
        mst__visit_u64(visitor, &member->replaced[i]);
    }
    mst__visit_u64(visitor, &member->order);
    mst__visit_i64(visitor, &member->heard_us);
    mst__visit_i64(visitor, &member->skew_us);
    uint32_t labels_count = member->labels_count;
    mst__visit_count(visitor, &labels_count, MST_AUTHORITY_LABELS_MAX);
    member->labels_count = (uint16_t)labels_count;
}

/* MEMBER, after its text. In the first journals all members have the expiry of the options, and no
 * workers. */
static void visit_member_late(struct mst__visitor *visitor,
                              const struct mst__authority *authority,
                              struct mst__authority_member *member,
                              struct mst_bytes *role)
{
    if (mst__visit_more(visitor)) {
        mst__visit_i64(visitor, &member->expiry_us);
        mst__visit_u8(visitor, &member->patience);
    } else {
        member->expiry_us = authority->options.expiry_us;
        member->patience = 0;
    }
    if (mst__visit_more(visitor)) {
        mst__visit_u32(visitor, &member->workers);
        mst__visit_text(visitor, role);
        mst__visit_worker_ranks(visitor, &member->worker_ranks);
        mst__visit_i64(visitor, &member->leaving_us);
    }
}

/* READY: where the lists begin and end. */
static void visit_lists(struct mst__visitor *visitor, struct mst__authority *authority)
{
    struct mst__authority_patience *present = authority->present;
    mst__visit_u32(visitor, &present[0].members.first);
    mst__visit_u32(visitor, &present[0].members.last);
    mst__visit_u32(visitor, &authority->absent.first);
    mst__visit_u32(visitor, &authority->absent.last);
    mst__visit_u32(visitor, &authority->pending.first);
    mst__visit_u32(visitor, &authority->pending.last);
    mst__visit_u32(visitor, &authority->free_first);
    bool has_more = mst__visit_more(visitor);
    present[0].expiry_us = has_more ? present[0].expiry_us : authority->options.expiry_us;
    for (unsigned i = 0; i < MST_AUTHORITY_EXPIRIES_MAX && has_more; i++) {
        if (i > 0) {
            mst__visit_u32(visitor, &present[i].members.first);
            mst__visit_u32(visitor, &present[i].members.last);
        }
        mst__visit_i64(visitor, &present[i].expiry_us);
    }
}

/* --- writing --- */

static uint32_t count_released(const struct mst__authority *authority)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < authority->world && authority->released_count > 0; rank++) {
        count += mst__places_get(authority, rank) == MST_INDEX_RELEASED;
    }
    return count;
}

static int write_job(struct mst__journal *journal,
                     uint32_t job,
                     struct mst_bytes run_id,
                     const struct mst__authority *authority)
{
    struct mst__journal_making making;
    struct mst__authority copy = *authority; /* visiting works in both directions and takes no
                                                constants */
    struct mst__journal_state state = {
        .members_left = authority->members_count,
        .lost_left = authority->lost_count,
        .released_left = count_released(authority),
    };
    mst__journal_make(&making, journal, MST_JOURNAL_JOB, job);
    mst__visit_text(&making.visitor, &run_id);
    visit_options(&making.visitor, &copy.options);
    visit_job(&making.visitor, &state, &copy);
    return mst__journal_made(&making);
}

static int write_member(struct mst__journal *journal,
                        uint32_t job,
                        const struct mst__authority *authority,
                        uint32_t index)
{
    struct mst__journal_making making;
    const struct mst__authority_member *member = mst__members_at(authority, index);
    struct mst__authority_member copy = *member;
    bool is_ranked = mst__members_is_ranked(authority, member);
    bool has_driver = member->driver != NULL;
    mst__journal_make(&making, journal, MST_JOURNAL_MEMBER, job);
    visit_member(&making.visitor, &copy, &is_ranked, &has_driver);
    if (member->place != MST_PLACE_FREE) {
        struct mst_bytes role = mst__authority_role(member);
        struct mst_bytes text = mst_bytes_of(member->text, member->text_size - role.size - 1);
        mst__visit_text(&making.visitor, &text);
        visit_member_late(&making.visitor, authority, &copy, &role);
    }
    return mst__journal_made(&making);
}

/* The lost ranks, in their order, or, with @is_released, the released ones. */
static int write_ranks(struct mst__journal *journal,
                       uint32_t job,
                       const struct mst__authority *authority,
                       bool is_released,
                       uint32_t left)
{
    int rv = 0;
    uint32_t at = 0;
    while (rv == 0 && left > 0) {
        struct mst__journal_making making;
        uint32_t count = left < MST_JOURNAL_RANKS_MAX ? left : MST_JOURNAL_RANKS_MAX;
        mst__journal_make(&making, journal, MST_JOURNAL_RANKS, job);
        mst__visit_bool(&making.visitor, &is_released);
        mst__visit_u32(&making.visitor, &count);
        for (uint32_t i = 0; i < count; i++, at++) {
            while (is_released && mst__places_get(authority, at) != MST_INDEX_RELEASED) {
                at++;
            }
            MST_ASSERT(at < (is_released ? authority->world : authority->lost_count));
            uint32_t rank = is_released ? at : authority->lost[at];
            mst__visit_u32(&making.visitor, &rank);
        }
        left -= count;
        rv = mst__journal_made(&making);
    }
    return rv;
}

int mst__journal_write_job(struct mst__journal *journal,
                           uint32_t job,
                           struct mst_bytes run_id,
                           const struct mst__authority *authority)
{
    size_t before = mst__buf_size(&journal->output);
    int rv = write_job(journal, job, run_id, authority);
    for (uint32_t i = 0; rv == 0 && i < authority->members_count; i++) {
        rv = write_member(journal, job, authority, i);
    }
    rv = rv == 0 ? write_ranks(journal, job, authority, false, authority->lost_count) : rv;
    rv = rv == 0 ? write_ranks(journal, job, authority, true, count_released(authority)) : rv;
    if (rv == 0) {
        struct mst__journal_making making;
        struct mst__authority copy = *authority;
        mst__journal_make(&making, journal, MST_JOURNAL_READY, job);
        visit_lists(&making.visitor, &copy);
        rv = mst__journal_made(&making);
    }
    if (rv != 0) {
        mst__buf_truncate(&journal->output, before);
    }
    return rv;
}

/* --- reading --- */

static int restore_job(struct mst__journal_state *state,
                       struct mst__visitor *visitor,
                       const struct mst__authority_options *given,
                       struct mst__authority *authority)
{
    struct mst__authority_options options = *given;
    mst__visit_text(visitor, &state->run_id);
    visit_options(visitor, &options);
    bool is_valid = visitor->rv == 0 && options.epoch > 0 && options.members_max > 0 &&
                    options.members_max <= MST_AUTHORITY_MEMBERS_MAX && state->run_id.size > 0 &&
                    state->run_id.size <= MST_JOB_RUN_ID_SIZE_MAX;
    if (state->has_begun || !is_valid) {
        return MST_EPROTO;
    }
    mst__authority_init(authority, &options);
    state->has_begun = true;
    visit_job(visitor, state, authority);
    return authority->now_us > MST_JOURNAL_TIME_MAX ? MST_EPROTO : visitor->rv;
}

/* Name, address and labels, each with a NUL after it, and nothing else. */
static bool text_is_whole(struct mst_bytes text, size_t labels_count)
{
    size_t pieces = 0;
    for (size_t i = 0; i < text.size; i++) {
        pieces += text.data[i] == '\0';
    }
    return text.size > 0 && text.size <= MST_AUTHORITY_TEXT_SIZE_MAX && text.data[0] != '\0' &&
           text.data[text.size - 1] == '\0' && pieces == 2 + 2 * labels_count;
}

static bool role_is_whole(struct mst_bytes role)
{
    return role.size <= MST_AUTHORITY_ROLE_SIZE_MAX && memchr(role.data, '\0', role.size) == NULL;
}

static int member_set_text(struct mst__authority *authority,
                           struct mst__authority_member *member,
                           struct mst_bytes text,
                           struct mst_bytes role)
{
    size_t size = text.size + role.size + 1;
    char *copy = mst__malloc(size);
    if (copy == NULL) {
        return MST_ENOMEM;
    }
    memcpy(copy, text.data, text.size);
    memcpy(copy + text.size, role.data, role.size);
    copy[size - 1] = '\0';
    authority->memory_used += size;
    member->role_size = (uint16_t)role.size;
    mst__members_set_text(authority, member, copy, (uint16_t)size);
    return 0;
}

/* Restore name and rank of @member, which is in the table. */
static int member_settle(struct mst__authority *authority,
                         struct mst__authority_member *member,
                         bool is_ranked)
{
    int rv = 0;
    if (member->is_named) {
        struct mst_bytes name = mst__authority_name(member);
        rv = mst__members_named(authority, name) != NULL
                 ? MST_EPROTO
                 : mst__members_reserve_name(authority, name);
        if (rv != 0) {
            member->is_named = false;
            return rv;
        }
        mst__members_name(authority, member);
    }
    if (is_ranked) {
        bool is_free = member->rank < authority->world &&
                       mst__places_get(authority, member->rank) == MST_INDEX_NONE;
        rv = is_free ? mst__places_reserve(authority, member->rank, 1) : MST_EPROTO;
    }
    if (is_ranked && rv == 0) {
        mst__places_set(authority, member->rank, mst__members_index(authority, member));
    }
    return rv;
}

static void member_count(struct mst__authority *authority,
                         const struct mst__authority_member *member)
{
    bool is_waiting = member->place == MST_PLACE_WAITING;
    bool is_holding = member->place == MST_PLACE_HOLDING;
    authority->used_count++;
    authority->living_count += is_waiting || is_holding;
    authority->held_count += is_holding;
    authority->finished_count += is_holding && member->is_finished;
    authority->waiting_count += is_waiting;
    authority->waiting_absent_count += is_waiting && member->is_absent;
    authority->waiting_back_count += is_waiting && member->rank != MST_AUTHORITY_RANK_NONE;
}

static int restore_member(struct mst__journal_state *state,
                          struct mst__visitor *visitor,
                          struct mst__authority *authority)
{
    struct mst__authority_member member = {.prev = MST_INDEX_NONE, .next = MST_INDEX_NONE};
    bool is_ranked = false;
    bool has_driver = false;
    struct mst_bytes text = mst_bytes_of("", 0);
    struct mst_bytes role = mst_bytes_of("", 0);
    visit_member(visitor, &member, &is_ranked, &has_driver);
    bool is_used = member.place != MST_PLACE_FREE;
    if (is_used) {
        mst__visit_text(visitor, &text);
        visit_member_late(visitor, authority, &member, &role);
    }
    bool is_valid = visitor->rv == 0 && state->members_left > 0 &&
                    (!is_used || (text_is_whole(text, member.labels_count) && role_is_whole(role)));
    if (!is_valid) {
        return MST_EPROTO;
    }
    int rv = mst__members_reserve(authority);
    if (rv != 0) {
        return rv;
    }
    state->members_left--;
    MST_ASSERT(authority->members_count < authority->members_capacity);
    member.driver = has_driver ? (void *)(uintptr_t)member.contact : NULL;
    struct mst__authority_member *at = &authority->members[authority->members_count++];
    *at = member;
    if (!is_used) {
        return 0;
    }
    member_count(authority, at);
    rv = member_set_text(authority, at, text, role);
    return rv == 0 ? member_settle(authority, at, is_ranked) : rv;
}

static int restore_ranks(struct mst__journal_state *state,
                         struct mst__visitor *visitor,
                         struct mst__authority *authority)
{
    bool is_released = false;
    uint32_t count = 0;
    mst__visit_bool(visitor, &is_released);
    mst__visit_count(visitor, &count, MST_JOURNAL_RANKS_MAX);
    uint32_t *left = is_released ? &state->released_left : &state->lost_left;
    bool has_room = is_released || count <= authority->arrays_capacity - authority->lost_count;
    if (visitor->rv != 0 || count > *left || state->members_left > 0 || !has_room) {
        return MST_EPROTO;
    }
    *left -= count;
    int rv = 0;
    for (uint32_t i = 0; i < count && rv == 0; i++) {
        uint32_t rank = 0;
        mst__visit_u32(visitor, &rank);
        if (visitor->rv != 0 || rank >= authority->world) {
            rv = MST_EPROTO;
        } else if (!is_released) {
            MST_ASSERT(authority->lost_count < authority->arrays_capacity);
            authority->lost[authority->lost_count++] = rank;
        } else {
            rv = mst__places_get(authority, rank) == MST_INDEX_NONE
                     ? mst__places_reserve(authority, rank, 1)
                     : MST_EPROTO;
            if (rv == 0) {
                mst__places_set(authority, rank, MST_INDEX_RELEASED);
            }
        }
    }
    return rv;
}

static int restore_lists(struct mst__journal_state *state,
                         struct mst__visitor *visitor,
                         struct mst__authority *authority)
{
    visit_lists(visitor, authority);
    bool is_whole = visitor->rv == 0 && state->members_left == 0 && state->lost_left == 0 &&
                    state->released_left == 0 && mst__authority_flaw(authority) == NULL;
    state->is_ready = is_whole;
    return is_whole ? 0 : MST_EPROTO;
}

int mst__journal_restore(struct mst__journal_state *state,
                         const struct mst__journal_record *record,
                         const struct mst__authority_options *options,
                         struct mst__authority *authority)
{
    struct mst__visitor visitor = {.input = record->u.rest, .is_compact = true};
    if (record->kind == MST_JOURNAL_JOB) {
        return restore_job(state, &visitor, options, authority);
    }
    if (!state->has_begun || state->is_ready) {
        return MST_EPROTO;
    }
    switch (record->kind) {
        case MST_JOURNAL_MEMBER:
            return restore_member(state, &visitor, authority);
        case MST_JOURNAL_RANKS:
            return restore_ranks(state, &visitor, authority);
        case MST_JOURNAL_READY:
            return restore_lists(state, &visitor, authority);
        default:
            return MST_EPROTO;
    }
}
