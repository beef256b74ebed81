/* unit/core/test_core_session_times.c - when a session reads, beats and gives up: nothing is due
 * twice, early, or for ever. */
#include "core/session_wait.h"
#include "unit/core/session_unit.h"

/* All but b have sent a heartbeat. */
static void beat_others(struct mst__state *record)
{
    struct mst__node b = node_named("b", 1);
    for (size_t i = 0; i < record->heartbeats.count; i++) {
        struct mst__peer *member = &record->members[record->heartbeats.ids[i]];
        member->heartbeat_us += mst__node_compare(&member->node, &b) == 0 ? 0 : 1;
    }
}

/* Write the heartbeat that is due, if there is one; then it has to wait. */
static void beat_and_wait(struct bench *bench)
{
    if (bench->effect.kind == MST_EFFECT_WRITE) {
        (void)bench_won(bench);
    }
    assert_int_equal(bench->effect.kind, MST_EFFECT_WAIT);
}

static int64_t rest_us(const struct bench *bench)
{
    return bench->effect.until_us - bench->now_us;
}

/* --- spares --- */

/* A spare has no time limit, and is not busy when that of a join would be over. */
static void spares_rest(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(1, 1));
    mst__state_init(&record);
    record.complete = true;
    state_add_participant(&record, node_named("p", 1), 0, WORLD_WALL_US);
    make_waiting(&record, "b", true);
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    (void)bench_record(&bench, MST_EVENT_READ, &record);
    beat_and_wait(&bench);
    bench.now_us += 700 * (int64_t)SECOND;
    beat_others(&record);
    assert_int_equal(bench_event(&bench, MST_EVENT_TIME), MST_EFFECT_READ);
    (void)bench_record(&bench, MST_EVENT_READ, &record);
    beat_and_wait(&bench);
    assert_true(rest_us(&bench) > SECOND);
    mst__state_close(&record);
    bench_close(&bench);
}

/* It does not wait for the end of a last call that is over, in a group that is too large for it. */
static void last_calls_of_others_are_over(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(1, 3));
    mst__state_init(&record);
    static const char *const names[] = {"p", "q", "r", "s"};
    for (int i = 0; i < 4; i++) {
        state_add_participant(&record, node_named(names[i], 1), 0, WORLD_WALL_US);
    }
    record.has_deadline = true;
    make_waiting(&record, "b", true);
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    (void)bench_record(&bench, MST_EVENT_READ, &record);
    beat_and_wait(&bench);
    bench.now_us += 40 * (int64_t)SECOND;
    beat_others(&record);
    assert_int_equal(bench_event(&bench, MST_EVENT_TIME), MST_EFFECT_READ);
    (void)bench_record(&bench, MST_EVENT_READ, &record);
    beat_and_wait(&bench);
    assert_true(rest_us(&bench) > SECOND);
    mst__state_close(&record);
    bench_close(&bench);
}

/* --- the last call --- */

/* A participant whose time is over during the last call waits for its end, and completes it. */
static void the_last_call_is_waited_for(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(2, 4));
    make_round(&record, 2, false, WORLD_WALL_US);
    record.has_deadline = true;
    assert_int_equal(bench_feed(&bench,
                                (struct mst__session_event){
                                    .kind = MST_EVENT_BEGIN,
                                    .operation = MST_OPERATION_JOIN,
                                    .deadline_us = bench.now_us + 10 * SECOND,
                                }),
                     MST_EFFECT_READ);
    (void)bench_record(&bench, MST_EVENT_READ, &record);
    beat_and_wait(&bench);
    bench.now_us += 30 * (int64_t)SECOND + 1;
    beat_others(&record);
    assert_int_equal(bench_event(&bench, MST_EVENT_TIME), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
    assert_true(bench.effect.state->complete);
    assert_true(written_self(&bench)->is_participant);
    mst__state_close(&record);
    bench_close(&bench);
}

/* Each round has a last call of its own, even if its stamp is that of the round before. */
static void last_calls_of_rounds(void **unused)
{
    (void)unused;
    struct mst__settings settings = settings_of(1, 2);
    struct mst__observer observer;
    struct mst__state state;
    mst__observer_init(&observer);
    mst__state_init(&state);
    state.has_deadline = true;
    state.deadline_us = WORLD_WALL_US;
    for (int64_t round = 1; round <= 2; round++) {
        state.round = round;
        mst__observer_last_call(&observer, &state, round * SECOND);
        mst__observer_last_call(&observer, &state, round * SECOND + 1);
        assert_true(mst__observer_last_call_end_us(&observer, &settings) ==
                    round * SECOND + settings.last_call_us);
    }
    mst__state_close(&state);
    mst__observer_close(&observer);
}

/* Who cancels does not wait for its turn to write, as one of many that complete the round. */
static void cancelling_does_not_wait(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(2, 8));
    make_round(&record, 7, false, WORLD_WALL_US);
    record.has_deadline = true;
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    (void)bench_record(&bench, MST_EVENT_READ, &record);
    beat_and_wait(&bench);
    bench.now_us += 30 * (int64_t)SECOND + 1;
    beat_others(&record);
    assert_int_equal(bench_event(&bench, MST_EVENT_TIME), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WAIT);
    assert_int_equal(bench.session.wait, MST_WAIT_HOLD);
    assert_int_equal(bench_event(&bench, MST_EVENT_CANCEL), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
    assert_false(written_self(&bench)->is_participant);
    assert_false(bench.effect.state->complete);
    mst__state_close(&record);
    bench_close(&bench);
}

/* --- rounds --- */

/* Nodes that had finished in a round are not counted in the next one. */
static void finished_nodes_stay_in_their_round(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    struct mst__settings settings = settings_of(1, 3);
    settings.last_call_us = 0;
    bench_open(&bench, MST_SESSION_DEFAULT, settings);
    mst__state_init(&record);
    state_add_participant(&record, node_named("b", 1), 1, WORLD_WALL_US);
    record.complete = true;
    record.sealed_count = 3;
    bench.finished = 1; /* of two that are missing, so it leaves */
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
    assert_true(bench.effect.state->round == 1);
    bench.now_us += 1000;
    assert_int_equal(bench_won(&bench), MST_EFFECT_WRITE);
    assert_true(bench.effect.state->complete);
    assert_int_equal(bench_won(&bench), MST_EFFECT_DONE);
    assert_int_equal(bench.effect.outcome.result, MST_RESULT_OK);
    assert_true(bench.effect.outcome.world == 1);
    mst__state_close(&record);
    bench_close(&bench);
}

/* --- heartbeats and reads --- */

static struct mst__changes bench_changes(const struct bench *bench)
{
    struct mst__peers lost = {NULL, 0, 0};
    struct mst__changes changes;
    assert_int_equal(mst__session_changes(&bench->session, &lost, &changes), 0);
    mst__free(lost.ids);
    return changes;
}

/* A heartbeat is as old as its stamp, however long the store took to write it. And a node that is
 * not in the record has none to send. */
static void beats_are_as_old_as_their_stamps(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(2, 2));
    make_round(&record, 2, true, WORLD_WALL_US);
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_DONE);
    assert_int_equal(bench_begin(&bench, MST_OPERATION_KEEP_ALIVE), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
    int64_t stamped_us = bench.now_us;
    bench.now_us += 2 * SECOND;
    assert_int_equal(bench_won(&bench), MST_EFFECT_DONE);
    assert_true(bench_changes(&bench).beat_us == stamped_us + 5 * SECOND);
    struct mst__node b = node_named("b", 1);
    assert_true(mst__state_drop_heartbeat(&record, mst__state_find(&record, &b)));
    assert_true(mst__state_drop_participant(&record, mst__state_find(&record, &b)));
    poll_record(&bench, &record);
    assert_true(bench_changes(&bench).expelled);
    assert_true(bench_changes(&bench).beat_us == INT64_MAX);
    mst__state_close(&record);
    bench_close(&bench);
}

/* The next look at a silent member is when it is lost, not when a look is due anyway. A member that
 * has become a spare is not lost. */
static void silent_members_are_looked_at(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(2, 3));
    make_round(&record, 3, true, WORLD_WALL_US);
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_DONE);
    int64_t seen_us = bench.now_us;
    for (int i = 0; i < 2; i++) {
        bench.now_us += 6 * (int64_t)SECOND;
        poll_record(&bench, &record);
    }
    int64_t poll_us = bench_changes(&bench).poll_us;
    assert_true(poll_us > bench.now_us);
    assert_true(poll_us <= seen_us + 15 * (int64_t)SECOND + 1);
    struct mst__node c = node_named("c", 1);
    mst__peer_id id = mst__state_find(&record, &c);
    assert_true(mst__state_drop_participant(&record, id));
    assert_int_equal(mst__state_put_spare(&record, id), 0);
    poll_record(&bench, &record);
    assert_int_equal(bench_changes(&bench).lost_count, 0);
    mst__state_close(&record);
    bench_close(&bench);
}

/* Where nothing wakes it, a node reads less and less often while nothing changes. */
static void quiet_records_are_read_seldom(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(3, 3));
    bench.session.options.can_watch = false;
    make_round(&record, 2, false, WORLD_WALL_US);
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    (void)bench_record(&bench, MST_EVENT_READ, &record);
    beat_and_wait(&bench);
    mst__state_close(&record);
    assert_int_equal(mst__state_copy(&record, &bench.session.state), 0);
    int64_t end_us = bench.now_us + 4 * (int64_t)SECOND;
    uint64_t reads = bench.session.stats.reads;
    while (bench.effect.until_us < end_us) {
        bench.now_us = bench.effect.until_us;
        assert_int_equal(bench_event(&bench, MST_EVENT_TIME), MST_EFFECT_READ);
        bench.version--; /* the same token */
        assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WAIT);
    }
    assert_in_range(bench.session.stats.reads - reads, 5, 50);
    mst__state_close(&record);
    bench_close(&bench);
}

/* --- storms --- */

/* A quarter of the time of a join is for spreading the first reads, and no more. A node that waits
 * for many others is woken by the last of them, and gathers changes for a quarter of a second at
 * most, however slow the store is. */
static void storms_are_bounded(void **unused)
{
    (void)unused;
    struct bench bench;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(1000, 1000));
    struct mst__session *session = &bench.session;
    session->options.write_us = 3000;
    session->operation = MST_OPERATION_NEXT;
    session->deadline_us = bench.now_us + 4 * SECOND;
    int64_t most_us = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct mst__prng prng;
        mst__prng_init(&prng, seed);
        int64_t us = mst__session_spread_us(session, bench.now_us, &prng);
        most_us = us > most_us ? us : most_us;
    }
    assert_in_range(most_us, SECOND / 2, SECOND);
    session->changed_us = bench.now_us;
    assert_true(mst__session_skip(session, bench.now_us) == 999);
    state_add_participant(&session->state, node_named("a", 1), 0, WORLD_WALL_US);
    assert_true(mst__session_skip(session, bench.now_us) == 998);
    session->trip_last_us = 10 * (int64_t)SECOND;
    assert_true(mst__session_gather_us(session) == SECOND / 4);
    bench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spares_rest),
        cmocka_unit_test(last_calls_of_others_are_over),
        cmocka_unit_test(the_last_call_is_waited_for),
        cmocka_unit_test(last_calls_of_rounds),
        cmocka_unit_test(cancelling_does_not_wait),
        cmocka_unit_test(finished_nodes_stay_in_their_round),
        cmocka_unit_test(beats_are_as_old_as_their_stamps),
        cmocka_unit_test(silent_members_are_looked_at),
        cmocka_unit_test(quiet_records_are_read_seldom),
        cmocka_unit_test(storms_are_bounded),
    };
    return MST_RUN_TESTS(tests);
}
