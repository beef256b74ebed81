/* unit/wire/golden_journal.c - the bytes of each record of a journal, as releases write them.
 *
 * No two fields of a record have the same value, as far as an authority can have such a state. */
#include "core/authority_members.h"
#include "unit/core/authority_unit.h"
#include "unit/golden_bytes.h"
#include "wire/replay.h"

#define JOB 17
#define LAST_US 1000 /* time of the record before each piece */

/* --- records about events --- */

static struct mst_bytes text(const char *string)
{
    return mst_bytes_str(string);
}

static const struct mst__label labels[] = {
    {{(const uint8_t *)"rack", 4}, {(const uint8_t *)"r17", 3}},
    {{(const uint8_t *)"host", 4}, {(const uint8_t *)"", 0}},
};

static struct mst__journal_event event_at(enum mst__authority_event_kind kind)
{
    struct mst__journal_event record = {.event = {.kind = kind, .now_us = LAST_US + 701}};
    record.event.id = (mst__authority_id)703 << 32 | 702;
    record.contact = kind == MST_AUTHORITY_EVENT_DISCONNECTED ? 704 : 0;
    if (kind == MST_AUTHORITY_EVENT_SHUT) {
        record.event.reason = text("reason");
        record.event.owner = text("owner");
    } else if (kind == MST_AUTHORITY_EVENT_FINISHED || kind == MST_AUTHORITY_EVENT_FAILED ||
               kind == MST_AUTHORITY_EVENT_RESTORED || kind == MST_AUTHORITY_EVENT_LEAVING) {
        record.event.epoch = UINT64_MAX - 705;
        record.event.round = 706;
        record.event.world = kind == MST_AUTHORITY_EVENT_RESTORED ? 707 : 0;
        record.event.in_us = kind == MST_AUTHORITY_EVENT_LEAVING ? 739 : 0;
    }
    record.cause = (struct mst__cause){.worker = 708,
                                       .status = -709,
                                       .signal = 710,
                                       .wall_us = -711,
                                       .text = text("cause-text"),
                                       .report = text("cause\nreport")};
    record.announcement = (struct mst__announcement){
        .name = text("name"),
        .incarnation = 721,
        .session = 722,
        .contact = 723,
        .expiry_us = 724,
        .address = text("address:725"),
        .labels = labels,
        .labels_count = 2,
        .nodes_min = 726,
        .nodes_max = 727,
        .last_call_us = 728,
        .rank_by = text("rack,host"),
        .pinned_rank = 729,
        .budget = {.is_limited = true, .restarts_max = 730, .window_us = 731},
        .is_fixed = kind == MST_AUTHORITY_EVENT_KEPT,
        .claim = {.epoch = 732, .round = 733, .world = 734, .rank = 735, .holds = true},
        .has_wall = kind == MST_AUTHORITY_EVENT_ANNOUNCED,
        .wall_us = -736,
        .wall_here_us = -737,
        .workers = 738,
        .role = text("role"),
    };
    record.is_starved = kind == MST_AUTHORITY_EVENT_ANNOUNCED;
    return record;
}

static void tell_announcement(struct mst__buf *to,
                              const struct mst__announcement *said,
                              const struct mst__label *from)
{
    TELL_UINT(to, said, contact);
    TELL_INT(to, said, wall_here_us);
    TELL_INT(to, said, expiry_us);
    TELL_TEXT(to, said, name);
    TELL_UINT(to, said, incarnation);
    TELL_UINT(to, said, session);
    TELL_TEXT(to, said, address);
    TELL_UINT(to, said, nodes_min);
    TELL_UINT(to, said, nodes_max);
    TELL_INT(to, said, last_call_us);
    TELL_TEXT(to, said, rank_by);
    TELL_UINT(to, said, pinned_rank);
    TELL_UINT(to, said, claim.epoch);
    TELL_INT(to, said, claim.round);
    TELL_UINT(to, said, claim.world);
    TELL_UINT(to, said, claim.rank);
    TELL_BOOL(to, said, claim.holds);
    TELL_BOOL(to, said, has_wall);
    TELL_INT(to, said, wall_us);
    for (size_t i = 0; i < said->labels_count; i++) {
        TELL_TEXT(to, &from[i], key);
        TELL_TEXT(to, &from[i], value);
    }
    TELL_BOOL(to, said, budget.is_limited);
    TELL_UINT(to, said, budget.restarts_max);
    TELL_INT(to, said, budget.window_us);
    TELL_BOOL(to, said, is_fixed);
    TELL_UINT(to, said, workers);
    TELL_TEXT(to, said, role);
}

static void tell_event(struct mst__buf *to, const struct mst__journal_event *record)
{
    const struct mst__authority_event *event = &record->event;
    golden_line(to, "job %d, event %d %s", JOB, (int)event->kind,
                mst__authority_event_name(event->kind));
    TELL_INT(to, event, now_us);
    switch (event->kind) {
        case MST_AUTHORITY_EVENT_ANNOUNCED:
        case MST_AUTHORITY_EVENT_KEPT:
            TELL_BOOL(to, record, is_starved);
            tell_announcement(to, &record->announcement, record->announcement.labels);
            return;
        case MST_AUTHORITY_EVENT_RESTORED:
            TELL_UINT(to, event, epoch);
            TELL_INT(to, event, round);
            TELL_UINT(to, event, world);
            return;
        case MST_AUTHORITY_EVENT_SHUT:
            TELL_TEXT(to, event, reason);
            TELL_TEXT(to, event, owner);
            return;
        case MST_AUTHORITY_EVENT_TIME:
        case MST_AUTHORITY_EVENT_SETTLED:
            return;
        default:
            TELL_UINT(to, event, id & UINT32_MAX);
            TELL_UINT(to, event, id >> 32);
            break;
    }
    if (event->kind == MST_AUTHORITY_EVENT_DISCONNECTED) {
        TELL_UINT(to, record, contact);
    } else if (event->kind == MST_AUTHORITY_EVENT_FINISHED ||
               event->kind == MST_AUTHORITY_EVENT_FAILED ||
               event->kind == MST_AUTHORITY_EVENT_LEAVING) {
        TELL_UINT(to, event, epoch);
        TELL_INT(to, event, round);
    }
    if (event->kind == MST_AUTHORITY_EVENT_LEAVING) {
        TELL_INT(to, event, in_us);
    }
    if (event->kind == MST_AUTHORITY_EVENT_FAILED) {
        TELL_UINT(to, record, cause.worker);
        TELL_INT(to, record, cause.status);
        TELL_UINT(to, record, cause.signal);
        TELL_INT(to, record, cause.wall_us);
        TELL_TEXT(to, record, cause.text);
        TELL_TEXT(to, record, cause.report);
    }
}

static const struct mst__journal_begin begin = {
    .version = 1, /* of every release so far */
    .software = {(const uint8_t *)"software", 8},
    .wall_us = -601,
    .now_us = 602,
};

static void tell_begin(struct mst__buf *to, const struct mst__journal_begin *from)
{
    TELL_UINT(to, from, version);
    TELL_TEXT(to, from, software);
    TELL_INT(to, from, wall_us);
    TELL_INT(to, from, now_us);
}

/* --- records about a state --- */

/* A new process of @name comes while the notice to the old one waits. */
static void replace(struct unit_run *run, const char *name)
{
    struct mst__announcement said = run_announcement(run, name);
    said.incarnation = 2;
    said.session = 2;
    said.labels = labels;
    said.labels_count = 2;
    assert_int_equal(step_announce(&run->authority, &said, run->now_us, NULL), 0);
}

/* Values of no consequence, so that no two fields are equal. @is_late chooses those of flags. */
static void make_distinct(struct mst__authority *authority, bool is_late)
{
    authority->now_us = 110000001;
    authority->listen_us = 110000002;
    authority->sealed_us = 110000003;
    authority->round_floor = 4;
    authority->reclaim_us = 110000005;
    authority->last_call_us = 110000006;
    authority->return_us = 110000007;
    authority->reopened_rank = 8;
    authority->waiting_told_us = 110000009;
    authority->waiting_told = 10;
    authority->lost_told = is_late ? 1 : 0;
    authority->lost_unlisted = 0;
    authority->is_seal_pending = !is_late;
    authority->is_reopen_pending = false;
    authority->is_close_pending = is_late;
    authority->restarts_us = 110000011;
    authority->restarts = 12;
    authority->restarts_total = 13;
    authority->round_restarts = 9;
    authority->round_start = MST_JOB_START_LEFT;
    authority->first_world = 15;
    authority->settings.is_fixed = is_late;
    authority->settings.has_workers = !is_late;
    authority->leaving_us = 110000019;
    authority->settings.last_call_us = 110000016;
    authority->settings.budget =
        (struct mst__budget){.is_limited = true, .restarts_max = 17, .window_us = 18};
    authority->has_cause = !is_late;
    authority->cause =
        (struct mst__cause){.rank = 19, .worker = 20, .status = -21, .signal = 22, .wall_us = -23};
    (void)snprintf(authority->settings.rank_by, sizeof authority->settings.rank_by, "rack");
    (void)snprintf(authority->settings.setter, sizeof authority->settings.setter, "setter");
    (void)snprintf(authority->cause_node, sizeof authority->cause_node, "cause-node");
    (void)snprintf(authority->cause_text, sizeof authority->cause_text, "cause-text");
    (void)snprintf(authority->cause_report, sizeof authority->cause_report, "cause-report");
    (void)snprintf(authority->close_reason, sizeof authority->close_reason, "reason");
    (void)snprintf(authority->close_owner, sizeof authority->close_owner, "owner");
    for (uint32_t i = 0; i < authority->members_count; i++) {
        struct mst__authority_member *member = &authority->members[i];
        if (member->place == MST_PLACE_FREE) {
            continue;
        }
        member->pinned_rank = 1000 + i;
        member->incarnation = 1100 + i;
        member->session = 1200 + i;
        member->contact = 1300 + i;
        for (uint32_t k = 0; k < MST_AUTHORITY_REPLACED_MAX; k++) {
            member->replaced[k] = 2000 + 100 * k + i;
        }
        member->skew_us = -1400 - (int64_t)i;
        member->has_skew = i % 2 == 0;
        member->workers = 1500 + i;
        member->leaving_us = 2400 + (int64_t)i;
        member->worker_ranks = (struct mst__worker_ranks){1600 + i, 1700 + i, 1800 + i, 1900 + i};
        member->expelled = member->place == MST_PLACE_GONE ? 2 : 1;
        member->driver = member->driver == NULL ? NULL : (void *)(uintptr_t)member->contact;
    }
}

/* A job in its second round, with lost, finished, released, absent and waiting nodes, free entries,
 * and notices that nobody has taken yet. */
static void make_state(struct unit_run *run, bool is_late)
{
    static const char *const first[] = {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"};
    run_init(run, 2, 9);
    run->authority.options.reclaim_us = 5500000;
    run->authority.options.grace_us = 1500000;
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++) {
        run_join(run, first[i]);
        run->now_us += 1;
    }
    run_join(run, "n9");
    run_leave(run, "n9");
    run_leave(run, "n0");
    for (size_t i = 1; i < sizeof first / sizeof first[0]; i++) {
        run_back(run, first[i]);
        run->now_us += 1;
    }
    run_join(run, "n10"); /* the second round is full */
    assert_int_equal(run_finish(run, "n1"), 0);
    assert_int_equal(run_finish(run, "n2"), 0);
    run_leave(run, "n2");
    run_join(run, "n11");
    run_join(run, "n12");
    assert_int_equal(run->authority.phase, MST_AUTHORITY_RUNNING);
    run_cut(run, "n3");
    run->now_us += 1;
    run_cut(run, "n4");
    run->now_us += 1;
    run_cut(run, "n12");
    replace(run, "n11");
    replace(run, "n10");
    if (is_late) {
        run_lose(run, "n5");
        replace(run, "n6");
        run_back(run, "n7");
        run_lose(run, "n8");
    }
    make_distinct(&run->authority, is_late);
}

/* A new authority takes over a round of 40, of which three have claimed their places. */
static void make_reclaiming(struct unit_run *run)
{
    static const char *const names[] = {"m0", "m1", "m2"};
    run_init(run, 2, 9);
    assert_int_equal(step_restore(&run->authority, 5, 6, 40, run->now_us), 0);
    for (uint32_t i = 0; i < 3; i++) {
        struct mst__announcement said = run_announcement(run, names[i]);
        said.claim =
            (struct mst__claim){.epoch = 5, .round = 6, .world = 40, .rank = 2 * i, .holds = true};
        assert_int_equal(run_say(run, &said), 0);
    }
    assert_int_equal(run->authority.phase, MST_AUTHORITY_RECLAIMING);
    make_distinct(&run->authority, false);
    run->authority.is_seal_pending = false;
    run->authority.is_reopen_pending = true;
}

/* The same, when the others have not claimed their places in time. */
static void make_unclaimed(struct unit_run *run)
{
    make_reclaiming(run);
    run->authority.is_reopen_pending = false;
    step_settle(&run->authority, run->authority.now_us);
    assert_true(run->authority.lost_unlisted > 1);
    run->authority.lost_unlisted_told = 1;
}

/* Nodes that may be silent for different times. */
static void make_patience(struct unit_run *run)
{
    static const char *const names[] = {"p0", "p1", "p2", "p3", "p4", "p5"};
    run_init(run, 2, 9);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct mst__announcement said = run_announcement(run, names[i]);
        said.expiry_us = (int64_t)(20 + i / 2) * SECOND_US;
        assert_int_equal(run_say(run, &said), 0);
    }
    make_distinct(&run->authority, false);
}

/* State @index: an authority, which the caller closes. */
#define STATES_COUNT 5
static void make_any(struct unit_run *run, size_t index)
{
    if (index < 2) {
        make_state(run, index == 1);
    } else if (index == 2) {
        make_reclaiming(run);
    } else if (index == 3) {
        make_unclaimed(run);
    } else {
        make_patience(run);
    }
}

/* The fields of an authority that a journal has. */
static void tell_job(struct mst__buf *to, const struct mst__authority *authority)
{
    TELL_UINT(to, authority, options.epoch);
    TELL_INT(to, authority, options.expiry_us);
    TELL_INT(to, authority, options.grace_us);
    TELL_INT(to, authority, options.reclaim_us);
    TELL_INT(to, authority, options.return_us);
    TELL_UINT(to, authority, options.members_max);
    TELL_UINT(to, authority, phase);
    TELL_UINT(to, authority, outcome);
    TELL_INT(to, authority, now_us);
    TELL_INT(to, authority, listen_us);
    TELL_BOOL(to, authority, settings.is_set);
    TELL_UINT(to, authority, settings.nodes_min);
    TELL_UINT(to, authority, settings.nodes_max);
    TELL_INT(to, authority, settings.last_call_us);
    TELL_BOOL(to, authority, settings.budget.is_limited);
    TELL_UINT(to, authority, settings.budget.restarts_max);
    TELL_INT(to, authority, settings.budget.window_us);
    TELL_CHARS(to, authority, settings.rank_by);
    TELL_CHARS(to, authority, settings.setter);
    TELL_UINT(to, authority, round_epoch);
    TELL_INT(to, authority, round);
    TELL_INT(to, authority, sealed_us);
    TELL_INT(to, authority, round_floor);
    TELL_INT(to, authority, reclaim_us);
    TELL_UINT(to, authority, world);
    TELL_UINT(to, authority, unknown_count);
    TELL_UINT(to, authority, released_count);
    TELL_UINT(to, authority, survivors_count);
    TELL_UINT(to, authority, reopened_order);
    TELL_INT(to, authority, last_call_us);
    TELL_INT(to, authority, return_us);
    TELL_UINT(to, authority, reopened_why);
    TELL_UINT(to, authority, reopened_rank);
    TELL_UINT(to, authority, order_next);
    TELL_UINT(to, authority, lost_told);
    TELL_UINT(to, authority, lost_unlisted);
    TELL_UINT(to, authority, lost_unlisted_told);
    TELL_INT(to, authority, waiting_told_us);
    TELL_UINT(to, authority, waiting_told);
    TELL_BOOL(to, authority, is_seal_pending);
    TELL_BOOL(to, authority, is_reopen_pending);
    TELL_BOOL(to, authority, is_close_pending);
    TELL_BOOL(to, authority, has_cause);
    TELL_INT(to, authority, restarts_us);
    TELL_UINT(to, authority, restarts);
    TELL_UINT(to, authority, cause.rank);
    TELL_UINT(to, authority, cause.worker);
    TELL_INT(to, authority, cause.status);
    TELL_UINT(to, authority, cause.signal);
    TELL_INT(to, authority, cause.wall_us);
    TELL_CHARS(to, authority, cause_node);
    TELL_CHARS(to, authority, cause_text);
    TELL_CHARS(to, authority, close_reason);
    TELL_CHARS(to, authority, close_owner);
    TELL_UINT(to, authority, members_count);
    TELL_UINT(to, authority, restarts_total);
    TELL_UINT(to, authority, round_restarts);
    TELL_UINT(to, authority, round_start);
    TELL_BOOL(to, authority, settings.is_fixed);
    TELL_UINT(to, authority, first_world);
    TELL_BOOL(to, authority, settings.has_workers);
    TELL_CHARS(to, authority, cause_report);
    TELL_INT(to, authority, leaving_us);
}

static void tell_member(struct mst__buf *to,
                        const struct mst__authority *authority,
                        const struct mst__authority_member *member)
{
    golden_line(to, "entry %" PRIu32, mst__members_index(authority, member));
    golden_line(to, "place %d", (int)member->place);
    TELL_UINT(to, member, generation);
    TELL_UINT(to, member, pending_next);
    if (member->place == MST_PLACE_FREE) {
        return;
    }
    TELL_BOOL(to, member, is_listed);
    TELL_BOOL(to, member, is_linked);
    TELL_BOOL(to, member, is_absent);
    TELL_BOOL(to, member, is_lost);
    TELL_BOOL(to, member, is_named);
    TELL_BOOL(to, member, is_returned);
    TELL_BOOL(to, member, is_finished);
    TELL_BOOL(to, member, has_skew);
    TELL_UINT(to, member, pending);
    TELL_UINT(to, member, expelled);
    TELL_UINT(to, member, prev);
    TELL_UINT(to, member, next);
    TELL_UINT(to, member, rank);
    TELL_UINT(to, member, pinned_rank);
    TELL_UINT(to, member, incarnation);
    TELL_UINT(to, member, session);
    TELL_UINT(to, member, contact);
    for (size_t i = 0; i < MST_AUTHORITY_REPLACED_MAX; i++) {
        golden_line(to, "replaced[%zu] %" PRIu64, i, member->replaced[i]);
    }
    TELL_UINT(to, member, order);
    TELL_INT(to, member, heard_us);
    TELL_INT(to, member, skew_us);
    golden_line(to, "driver %" PRIuPTR, (uintptr_t)member->driver);
    struct mst_bytes name = mst__authority_name(member);
    struct mst_bytes address = mst__authority_address(member);
    golden_line(to, "name '%.*s'", (int)name.size, (const char *)name.data);
    golden_line(to, "address '%.*s'", (int)address.size, (const char *)address.data);
    for (size_t i = 0; i < member->labels_count; i++) {
        const struct mst__label label = mst__authority_label(member, i);
        TELL_TEXT(to, &label, key);
        TELL_TEXT(to, &label, value);
    }
    TELL_INT(to, member, expiry_us);
    TELL_UINT(to, member, patience);
    struct mst_bytes role = mst__authority_role(member);
    golden_line(to, "workers %" PRIu32 " of role '%.*s'", member->workers, (int)role.size,
                (const char *)role.data);
    TELL_UINT(to, member, worker_ranks.first);
    TELL_UINT(to, member, worker_ranks.world);
    TELL_UINT(to, member, worker_ranks.role_first);
    TELL_UINT(to, member, worker_ranks.role_world);
    TELL_INT(to, member, leaving_us);
}

static void tell_lists(struct mst__buf *to, const struct mst__authority *authority)
{
    for (uint32_t i = 0; i < authority->lost_count; i++) {
        golden_line(to, "lost %" PRIu32, authority->lost[i]);
    }
    for (uint32_t rank = 0; rank < authority->world; rank++) {
        uint32_t place = mst__places_get(authority, rank);
        if (place != MST_INDEX_NONE) {
            golden_line(to, "rank %" PRIu32 " at %" PRIu32, rank, place);
        }
    }
    for (unsigned i = 0; i < MST_AUTHORITY_EXPIRIES_MAX; i++) {
        const struct mst__authority_patience *present = &authority->present[i];
        golden_line(to, "present %u: %" PRIu32 " to %" PRIu32 ", expiry_us %" PRId64, i,
                    present->members.first, present->members.last, present->expiry_us);
    }
    TELL_UINT(to, authority, absent.first);
    TELL_UINT(to, authority, absent.last);
    TELL_UINT(to, authority, pending.first);
    TELL_UINT(to, authority, pending.last);
    TELL_UINT(to, authority, free_first);
}

static void tell_state(struct mst__buf *to, const struct mst__authority *authority)
{
    golden_line(to, "job %d train", JOB);
    tell_job(to, authority);
    for (uint32_t i = 0; i < authority->members_count; i++) {
        tell_member(to, authority, &authority->members[i]);
    }
    tell_lists(to, authority);
}

/* --- pieces --- */

#define STATES_FIRST 4
#define EVENTS_FIRST (STATES_FIRST + STATES_COUNT)
#define PIECES_COUNT (EVENTS_FIRST + MST_AUTHORITY_EVENT_COUNT)

static const char *piece_name(size_t index)
{
    static const char *const names[EVENTS_FIRST] = {
        "begin",
        "taken",
        "gap",
        "forgotten",
        "state",
        "state_late",
        "state_reclaiming",
        "state_unclaimed",
        "state_patience",
    };
    return index < EVENTS_FIRST
               ? names[index]
               : mst__authority_event_name((enum mst__authority_event_kind)(index - EVENTS_FIRST));
}

static enum mst__journal_kind mark_of(size_t index)
{
    static const enum mst__journal_kind kinds[] = {MST_JOURNAL_TAKEN, MST_JOURNAL_GAP,
                                                   MST_JOURNAL_FORGOTTEN};
    return kinds[index - 1];
}

static void write_event(struct mst__journal *journal, enum mst__authority_event_kind kind)
{
    struct mst__journal_event record = event_at(kind);
    if (kind == MST_AUTHORITY_EVENT_ANNOUNCED || kind == MST_AUTHORITY_EVENT_KEPT) {
        record.event.announcement = &record.announcement;
    } else if (kind == MST_AUTHORITY_EVENT_FAILED) {
        record.event.cause = &record.cause;
    }
    assert_int_equal(
        mst__journal_write_event(journal, JOB, &record.event, record.contact, record.is_starved),
        0);
}

static void piece_write(size_t index, struct mst__buf *bytes)
{
    struct mst__journal journal;
    mst__journal_init(&journal, MST_MIB(1));
    journal.last_us = LAST_US;
    if (index == 0) {
        assert_int_equal(mst__journal_write_begin(&journal, &begin), 0);
    } else if (index < STATES_FIRST) {
        assert_int_equal(mst__journal_write_mark(&journal, JOB, mark_of(index), 801), 0);
    } else if (index < EVENTS_FIRST) {
        struct unit_run run;
        make_any(&run, index - STATES_FIRST);
        assert_int_equal(
            mst__journal_write_job(&journal, JOB, mst_bytes_str("train"), &run.authority), 0);
        run_close(&run);
    } else {
        write_event(&journal, (enum mst__authority_event_kind)(index - EVENTS_FIRST));
    }
    assert_int_equal(mst__buf_append(bytes, mst__buf_bytes(&journal.output)), 0);
    mst__journal_close(&journal);
}

static void tell_mark(struct mst__buf *to, enum mst__journal_kind kind, uint64_t count)
{
    golden_line(to, "job %d, kind %d", JOB, (int)kind);
    if (kind == MST_JOURNAL_GAP) {
        golden_line(to, "count %" PRIu64, count);
    }
}

static void piece_tell(size_t index, struct mst__buf *to)
{
    if (index == 0) {
        tell_begin(to, &begin);
    } else if (index < STATES_FIRST) {
        tell_mark(to, mark_of(index), 801);
    } else if (index < EVENTS_FIRST) {
        struct unit_run run;
        make_any(&run, index - STATES_FIRST);
        tell_state(to, &run.authority);
        run_close(&run);
    } else {
        const struct mst__journal_event record =
            event_at((enum mst__authority_event_kind)(index - EVENTS_FIRST));
        tell_event(to, &record);
    }
}

/* Read @record; those of a state go to @state and @authority. */
static bool read_record(const struct mst__journal_record *record,
                        struct mst__journal_state *state,
                        struct mst__authority *authority,
                        struct mst__buf *to)
{
    static const struct mst__authority_options options = {.epoch = 0};
    if (record->kind == MST_JOURNAL_BEGIN) {
        tell_begin(to, &record->u.begin);
        return true;
    }
    if (record->job != JOB) {
        return false;
    }
    if (record->kind == MST_JOURNAL_EVENT) {
        struct mst__journal_event event = record->u.event;
        event.announcement.labels = record->u.event.labels;
        tell_event(to, &event);
        return true;
    }
    if (record->kind > MST_JOURNAL_READY) {
        tell_mark(to, record->kind, record->u.count);
        return true;
    }
    int rv = mst__journal_restore(state, record, &options, authority);
    if (rv == 0 && record->kind == MST_JOURNAL_JOB) {
        rv = mst__bytes_equal(state->run_id, mst_bytes_str("train")) ? 0 : MST_EPROTO;
    }
    if (rv == 0 && state->is_ready) {
        tell_state(to, authority);
    }
    return rv == 0;
}

static bool piece_read(const char *name, struct mst_bytes bytes, struct mst__buf *to)
{
    struct mst__journal_state state = {.has_begun = false};
    struct mst__authority authority;
    int64_t last_us = LAST_US;
    bool is_read = true;
    (void)name;
    while (is_read && bytes.size > 0) {
        struct mst_bytes fields;
        struct mst__journal_record record;
        size_t size = 0;
        is_read = mst__journal_read(bytes, &fields, &size) == 1 &&
                  mst__journal_decode(fields, &last_us, &record) == 0 &&
                  read_record(&record, &state, &authority, to);
        bytes = mst__bytes_skip(bytes, size);
    }
    if (state.has_begun) {
        mst__authority_close(&authority);
    }
    return is_read;
}

/* A later release may append fields to a record. */
static bool piece_keeps(const char *name, struct mst_bytes before, struct mst_bytes now)
{
    (void)name;
    while (before.size > 0 && now.size > 0) {
        struct mst_bytes fields[2];
        size_t sizes[2];
        if (mst__journal_read(before, &fields[0], &sizes[0]) != 1 ||
            mst__journal_read(now, &fields[1], &sizes[1]) != 1 ||
            !mst__bytes_start_with(fields[1], fields[0])) {
            return false;
        }
        before = mst__bytes_skip(before, sizes[0]);
        now = mst__bytes_skip(now, sizes[1]);
    }
    return before.size == 0 && now.size == 0;
}

int main(int argc, char **argv)
{
    static const struct golden_format format = {
        .count = PIECES_COUNT,
        .name = piece_name,
        .write = piece_write,
        .tell = piece_tell,
        .read = piece_read,
        .keeps = piece_keeps,
    };
    return golden_main(argc, argv, &format);
}
