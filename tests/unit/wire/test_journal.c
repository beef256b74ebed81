/* unit/wire/test_journal.c - records of a journal: written, read, damaged, and replayed. */
#include "base/limits.h"
#include "unit/core/authority_unit.h"
#include "wire/replay.h"
#include "wire/visit.h"

#define JOB 3

/* A journal beside an authority, and how far it was replayed. */
struct unit_journal {
    struct unit_run run;
    struct mst__journal journal;
    struct mst__replay replay;
    size_t fed;
    char story[4096]; /* of the replay */
    size_t story_size;
};

static void story_add(struct unit_journal *unit, const char *format, ...) MST_PRINTF(2, 3);

static void story_add(struct unit_journal *unit, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int count = vsnprintf(unit->story + unit->story_size, sizeof unit->story - unit->story_size,
                          format, args);
    va_end(args);
    unit->story_size += (size_t)count;
    assert_true(unit->story_size < sizeof unit->story);
}

static void on_begun(void *arg, const struct mst__journal_begin *begin)
{
    story_add(arg, "begun %.*s; ", (int)begin->software.size, (const char *)begin->software.data);
}

static void on_founded(void *arg, const struct mst__replay_job *job)
{
    story_add(arg, "founded %s with %" PRIu32 "; ", job->run_id, job->authority.living_count);
}

static void on_missing(void *arg, const struct mst__replay_job *job, uint64_t count)
{
    story_add(arg, "missing %" PRIu64 " of %s; ", count, job->run_id);
}

static void on_forgotten(void *arg, const struct mst__replay_job *job)
{
    story_add(arg, "forgotten %s; ", job->run_id);
}

static void on_answered(void *arg,
                        const struct mst__replay_job *job,
                        const struct mst__authority_event *event,
                        int rv,
                        const struct mst_err *err)
{
    (void)job;
    (void)err;
    story_add(arg, "%s%s; ", mst__authority_event_name(event->kind), rv == 0 ? "" : " failed");
}

static void on_moved(void *arg,
                     const struct mst__replay_job *job,
                     enum mst__authority_phase from,
                     enum mst__authority_phase to,
                     enum mst__authority_why why,
                     int64_t round)
{
    (void)job;
    (void)from;
    story_add(arg, "[%s %" PRId64 " %s] ", mst__authority_phase_name(to), round,
              mst__authority_why_name(why));
}

static void unit_open(struct unit_journal *unit, uint32_t min, uint32_t max)
{
    *unit = (struct unit_journal){.fed = 0};
    run_init(&unit->run, min, max);
    mst__journal_init(&unit->journal, MST_MIB(1));
    const struct mst__replay_listener listener = {.begun = on_begun,
                                                  .founded = on_founded,
                                                  .missing = on_missing,
                                                  .forgotten = on_forgotten,
                                                  .answered = on_answered,
                                                  .moved = on_moved,
                                                  .arg = unit};
    mst__replay_init(&unit->replay, &listener);
    const struct mst__journal_begin begin = {.version = MST_JOURNAL_VERSION,
                                             .software = mst_bytes_str("test"),
                                             .wall_us = 1000000,
                                             .now_us = unit->run.now_us};
    assert_int_equal(mst__journal_write_begin(&unit->journal, &begin), 0);
}

static void unit_close(struct unit_journal *unit)
{
    mst__replay_close(&unit->replay);
    mst__journal_close(&unit->journal);
    run_close(&unit->run);
}

static void unit_state(struct unit_journal *unit)
{
    assert_int_equal(
        mst__journal_write_job(&unit->journal, JOB, mst_bytes_str("train"), &unit->run.authority),
        0);
}

static void unit_mark(struct unit_journal *unit, enum mst__journal_kind kind, uint64_t count)
{
    assert_int_equal(mst__journal_write_mark(&unit->journal, JOB, kind, count), 0);
}

/* Feed @event to the authority, and write it. */
static int unit_step(struct unit_journal *unit, struct mst__authority_event event, uint64_t contact)
{
    struct mst__authority *authority = &unit->run.authority;
    event.now_us = unit->run.now_us;
    int rv = mst__authority_step(authority, &event, &unit->run.err);
    bool is_starved = rv != 0 && event.kind == MST_AUTHORITY_EVENT_ANNOUNCED &&
                      authority->refusal == MST_REFUSAL_MEMORY;
    assert_int_equal(mst__journal_write_event(&unit->journal, JOB, &event, contact, is_starved), 0);
    struct mst__authority_effect effect;
    bool has_effect = true;
    while (has_effect) {
        has_effect = mst__authority_next_effect(authority, &effect);
        unit_mark(unit, MST_JOURNAL_TAKEN, 0);
    }
    unit->run.now_us += 1000;
    return rv;
}

/* Announce @name over a connection of its own. */
static int unit_join(struct unit_journal *unit, const char *name, uint64_t contact)
{
    static const struct mst__label labels[] = {{{(const uint8_t *)"rack", 4}, {NULL, 0}}};
    struct mst__announcement said = run_announcement(&unit->run, name);
    said.contact = contact;
    said.labels = labels;
    said.labels_count = 1;
    const struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_ANNOUNCED,
                                               .announcement = &said};
    return unit_step(unit, event, 0);
}

/* Replay the records since the last call; returns the first error. */
static int unit_replay(struct unit_journal *unit)
{
    int rv = 0;
    while (rv == 0 && unit->fed < mst__buf_size(&unit->journal.output)) {
        struct mst_bytes all = mst__buf_bytes(&unit->journal.output);
        struct mst_bytes fields;
        size_t size = 0;
        assert_int_equal(mst__journal_read(mst_bytes_of(all.data + unit->fed, all.size - unit->fed),
                                           &fields, &size),
                         1);
        rv = mst__replay_take(&unit->replay, fields);
        unit->fed += size;
    }
    return rv;
}

/* The replay has come to the same state, byte for byte. */
static void assert_same(struct unit_journal *unit)
{
    struct mst__journal states[2];
    const struct mst__replay_job *job = mst__replay_job(&unit->replay, JOB);
    assert_non_null(job);
    const struct mst__authority *authorities[2] = {&unit->run.authority, &job->authority};
    for (size_t i = 0; i < 2; i++) {
        mst__journal_init(&states[i], MST_MIB(1));
        assert_int_equal(
            mst__journal_write_job(&states[i], JOB, mst_bytes_str("train"), authorities[i]), 0);
    }
    assert_int_equal(mst__buf_size(&states[0].output), mst__buf_size(&states[1].output));
    assert_memory_equal(mst__buf_bytes(&states[0].output).data,
                        mst__buf_bytes(&states[1].output).data, mst__buf_size(&states[0].output));
    mst__journal_close(&states[0]);
    mst__journal_close(&states[1]);
}

static struct mst__authority_event of_session(struct unit_journal *unit,
                                              enum mst__authority_event_kind kind,
                                              const char *name)
{
    return (struct mst__authority_event){.kind = kind, .id = run_id(&unit->run, name)};
}

/* All kinds of events, in an authority of which the journal has the beginning. */
static void replays(void **state)
{
    (void)state;
    struct unit_journal unit;
    unit_open(&unit, 2, 3);
    unit_state(&unit);
    assert_int_equal(unit_join(&unit, "a", 1), 0);
    assert_int_equal(unit_join(&unit, "b", 2), 0);
    assert_int_equal(unit_join(&unit, "c", 3), 0);
    assert_int_equal(unit_step(&unit, of_session(&unit, MST_AUTHORITY_EVENT_HEARD, "a"), 0), 0);
    struct mst__authority_event event = of_session(&unit, MST_AUTHORITY_EVENT_DISCONNECTED, "b");
    event.driver = mst__authority_get(&unit.run.authority, event.id)->driver;
    assert_int_equal(unit_step(&unit, event, 2), 0);
    const struct mst__cause cause = {
        .worker = 1, .status = -7, .wall_us = -1, .text = mst_bytes_str("boom")};
    event = of_session(&unit, MST_AUTHORITY_EVENT_FAILED, "c");
    event.epoch = UNIT_EPOCH;
    event.round = 1;
    event.cause = &cause;
    assert_int_equal(unit_step(&unit, event, 0), 0);
    unit.run.now_us += 2 * SECOND_US;
    event = (struct mst__authority_event){.kind = MST_AUTHORITY_EVENT_TIME};
    assert_int_equal(unit_step(&unit, event, 0), 0);
    assert_int_equal(unit_step(&unit, of_session(&unit, MST_AUTHORITY_EVENT_LEFT, "c"), 0), 0);
    event = (struct mst__authority_event){.kind = MST_AUTHORITY_EVENT_SHUT,
                                          .reason = mst_bytes_str("done"),
                                          .owner = mst_bytes_str("x")};
    assert_int_equal(unit_step(&unit, event, 0), 0);
    assert_int_equal(unit_join(&unit, "d", 4), MST_ECLOSED);
    unit_mark(&unit, MST_JOURNAL_FORGOTTEN, 0);
    size_t end = mst__buf_size(&unit.journal.output);
    unit.journal.output.end -= MST_JOURNAL_HEAD_SIZE + 2; /* all but the last */
    assert_int_equal(unit_replay(&unit), 0);
    assert_string_equal(unit.story,
                        "begun test; founded train with 0; announced; announced; [running 1 full] "
                        "announced; heard; disconnected; [open 2 lost] failed; time; left; "
                        "[closed 1 asked] shut; announced failed; ");
    assert_same(&unit);
    unit.journal.output.end = end;
    unit.story_size = 0;
    assert_int_equal(unit_replay(&unit), 0);
    assert_string_equal(unit.story, "forgotten train; ");
    assert_null(mst__replay_job(&unit.replay, JOB));
    unit_close(&unit);
}

/* A journal that begins late has the state, with all pending notices. */
static void goes_on_from_a_state(void **state)
{
    (void)state;
    struct unit_journal unit;
    unit_open(&unit, 2, 3);
    run_join(&unit.run, "a");
    run_join(&unit.run, "b");
    run_join(&unit.run, "c");
    run_leave(&unit.run, "a");
    run_join(&unit.run, "e");
    assert_int_equal(run_fail(&unit.run, "b", 3), MST_ESTATE);
    struct mst__announcement said = run_announcement(&unit.run, "b");
    said.incarnation = 2;
    said.session = 2;
    assert_int_equal(step_announce(&unit.run.authority, &said, unit.run.now_us, NULL), 0);
    unit_state(&unit);
    unit_mark(&unit, MST_JOURNAL_GAP, 9);
    /* The notice that b was replaced is still pending. */
    assert_int_equal(unit_replay(&unit), 0);
    assert_same(&unit);
    unit.run.now_us += 2 * SECOND_US;
    struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_TIME};
    assert_int_equal(unit_step(&unit, event, 0), 0);
    assert_int_equal(unit_join(&unit, "f", 9), 0);
    unit_state(&unit);
    assert_int_equal(unit_replay(&unit), 0);
    assert_same(&unit);
    assert_string_equal(unit.story, "begun test; founded train with 3; missing 9 of train; time; "
                                    "announced; founded train with 4; ");
    unit_close(&unit);
}

/* An announcement that was refused for want of memory is refused in the replay as well. */
static void starves_again(void **state)
{
    (void)state;
    struct unit_journal unit;
    unit_open(&unit, 2, 3);
    unit_state(&unit);
    mst__mem_fail_nth(1);
    assert_int_equal(unit_join(&unit, "a", 1), MST_ENOMEM);
    mst__mem_fail_nth(0);
    assert_int_equal(unit_join(&unit, "b", 2), 0);
    assert_int_equal(unit_replay(&unit), 0);
    assert_string_equal(unit.story,
                        "begun test; founded train with 0; announced failed; announced; ");
    assert_same(&unit);
    unit_close(&unit);
}

/* Without memory a state is not read, and nothing of it is left. */
static void restores_or_fails(void **state)
{
    (void)state;
    struct unit_journal unit;
    unit_open(&unit, 1, 3);
    run_join(&unit.run, "a");
    run_join(&unit.run, "b");
    unit_state(&unit);
    struct mst__replay_listener listener = {.arg = NULL};
    int rv = MST_ENOMEM;
    for (size_t nth = 1; rv == MST_ENOMEM; nth++) {
        struct mst_bytes rest = mst__buf_bytes(&unit.journal.output);
        struct mst__replay replay;
        mst__replay_init(&replay, &listener);
        mst__mem_fail_nth(nth);
        rv = 0;
        while (rv == 0 && rest.size > 0) {
            struct mst_bytes fields;
            size_t size = 0;
            assert_int_equal(mst__journal_read(rest, &fields, &size), 1);
            rv = mst__replay_take(&replay, fields);
            rest = mst_bytes_of(rest.data + size, rest.size - size);
        }
        assert_int_equal(rv != 0, mst__mem_failed());
        mst__mem_fail_nth(0);
        mst__replay_close(&replay);
        assert_true(nth < 100);
    }
    assert_int_equal(rv, 0);
    unit_close(&unit);
}

/* An incomplete record is not read yet; a damaged one is noticed. */
static void knows_damage(void **state)
{
    (void)state;
    struct unit_journal unit;
    unit_open(&unit, 1, 1);
    uint8_t record[200];
    struct mst_bytes begin = mst__buf_bytes(&unit.journal.output);
    assert_true(begin.size < sizeof record);
    memcpy(record, begin.data, begin.size);
    struct mst_bytes fields;
    size_t size = 0;
    for (size_t have = 0; have < begin.size; have++) {
        assert_int_equal(mst__journal_read(mst_bytes_of(record, have), &fields, &size), 0);
    }
    assert_int_equal(mst__journal_read(mst_bytes_of(record, begin.size), &fields, &size), 1);
    assert_int_equal(size, begin.size);
    for (size_t i = 0; i < begin.size; i++) {
        record[i] ^= 4;
        assert_true(mst__journal_read(mst_bytes_of(record, begin.size), &fields, &size) <= 0);
        record[i] ^= 4;
    }
    unit_close(&unit);
}

/* Records that are out of place, or refer to missing entries, are refused. */
static void refuses(void **state)
{
    (void)state;
    struct unit_journal unit;
    unit_open(&unit, 1, 2);
    unit_mark(&unit, MST_JOURNAL_TAKEN, 0);
    assert_int_equal(unit_replay(&unit), MST_EPROTO);
    run_join(&unit.run, "a");
    unit_state(&unit);
    assert_int_equal(unit_replay(&unit), 0);
    /* The state once more, without its second record. */
    size_t from = mst__buf_size(&unit.journal.output);
    unit_state(&unit);
    struct mst_bytes all = mst__buf_bytes(&unit.journal.output);
    int rv = 0;
    for (size_t i = 0; rv == 0; i++) {
        struct mst_bytes fields;
        size_t size = 0;
        assert_true(from < all.size);
        assert_int_equal(
            mst__journal_read(mst_bytes_of(all.data + from, all.size - from), &fields, &size), 1);
        rv = i == 1 ? 0 : mst__replay_take(&unit.replay, fields);
        from += size;
    }
    assert_int_equal(rv, MST_EPROTO);
    assert_null(mst__replay_job(&unit.replay, JOB));
    /* A later version of the format, and none. */
    for (int version = 0; version < 2; version++) {
        mst__buf_clear(&unit.journal.output);
        const struct mst__journal_begin begin = {.version =
                                                     version == 0 ? 0 : MST_JOURNAL_VERSION + 1,
                                                 .software = mst_bytes_str("later")};
        unit.fed = 0;
        assert_int_equal(mst__journal_write_begin(&unit.journal, &begin), 0);
        assert_int_equal(unit_replay(&unit), MST_EPROTO);
    }
    unit_close(&unit);
}

/* Numbers of a later or a broken journal do not wrap around, and no time is beyond the largest. */
static void large_numbers(void **state)
{
    (void)state;
    static const uint8_t wide[] = {0x80, 0x80, 0x80, 0x80, 0x10};
    static const uint8_t endless[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                      0x80, 0x80, 0x80, 0x80, 0x01};
    uint32_t narrow = 0;
    uint64_t number = 0;
    struct mst__visitor visitor = {.input = mst_bytes_of(wide, sizeof wide), .is_compact = true};
    mst__visit_u64(&visitor, &number);
    assert_int_equal(visitor.rv, 0);
    assert_true(number == (uint64_t)UINT32_MAX + 1);
    visitor = (struct mst__visitor){.input = mst_bytes_of(wide, sizeof wide), .is_compact = true};
    mst__visit_u32(&visitor, &narrow);
    assert_int_equal(visitor.rv, MST_EPROTO);
    visitor =
        (struct mst__visitor){.input = mst_bytes_of(endless, sizeof endless), .is_compact = true};
    mst__visit_u64(&visitor, &number);
    assert_int_equal(visitor.rv, MST_EPROTO);
    struct unit_journal unit;
    unit_open(&unit, 1, 1);
    struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_TIME,
                                         .now_us = MST_JOURNAL_TIME_MAX};
    assert_int_equal(mst__journal_write_event(&unit.journal, JOB, &event, 0, false), 0);
    event.now_us++;
    assert_int_equal(mst__journal_write_event(&unit.journal, JOB, &event, 0, false), MST_ELIMIT);
    unit_close(&unit);
}

/* A state without room is not written in part. */
static void no_room(void **state)
{
    (void)state;
    struct unit_journal unit;
    unit_open(&unit, 1, 2);
    run_join(&unit.run, "a");
    size_t before = mst__buf_size(&unit.journal.output);
    unit_state(&unit);
    size_t whole = mst__buf_size(&unit.journal.output);
    for (size_t max = before; max < whole; max++) {
        mst__buf_truncate(&unit.journal.output, before);
        unit.journal.output.size_max = max;
        assert_int_equal(
            mst__journal_write_job(&unit.journal, JOB, mst_bytes_str("train"), &unit.run.authority),
            MST_ELIMIT);
        assert_int_equal(mst__buf_size(&unit.journal.output), before);
    }
    unit_close(&unit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays),       cmocka_unit_test(goes_on_from_a_state),
        cmocka_unit_test(starves_again), cmocka_unit_test(knows_damage),
        cmocka_unit_test(refuses),       cmocka_unit_test(restores_or_fails),
        cmocka_unit_test(no_room),       cmocka_unit_test(large_numbers),
    };
    return MST_RUN_TESTS(tests);
}
