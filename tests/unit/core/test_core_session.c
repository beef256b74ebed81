/* unit/core/test_core_session.c - a session alone: its effects, and its reactions to answers. */
#include "core/session_wait.h"
#include "unit/core/session_unit.h"

/* --- the exact mode --- */

/* A reading of exactly one second ago is fresh to the peers. */
static void the_peers_cache(void **unused)
{
    (void)unused;
    struct bench bench;
    bench_open(&bench, MST_SESSION_EXACT, settings_of(1, 2));
    assert_int_equal(bench_begin(&bench, MST_OPERATION_POLL), MST_EFFECT_READ);
    assert_int_equal(bench_event(&bench, MST_EVENT_READ_NONE), MST_EFFECT_DONE);
    bench.now_us += SECOND;
    assert_int_equal(bench_begin(&bench, MST_OPERATION_POLL), MST_EFFECT_DONE);
    bench.now_us += 1;
    assert_int_equal(bench_begin(&bench, MST_OPERATION_POLL), MST_EFFECT_READ);
    assert_int_equal(bench_event(&bench, MST_EVENT_FAILED), MST_EFFECT_DONE);
    assert_int_equal(bench.effect.outcome.result, MST_RESULT_CONNECTION);
    bench_close(&bench);
}

/* --- results --- */

struct seal_case {
    const char *what;
    int count; /* participants of the complete record: a, b, ... */
    int hole;  /* this rank is one too high */
    int64_t seal_round, seal_count;
    bool has_waiting;
    bool is_certain;
    bool is_early;           /* much of the last call was left */
    int64_t completed_count; /* b itself had once completed a round of that number, elsewhere */
    int64_t finished;        /* who are gone */
};

/* b saw a, b and c gathering in round 2, with room for 4; then the record shows a complete
 * round. */
static void run_seal_case(const struct seal_case *c)
{
    struct bench bench;
    struct mst__state open;
    struct mst__state complete;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(2, 4));
    bench.session.completed_round = 2;
    bench.session.completed_count = c->completed_count;
    make_round(&open, 3, false, WORLD_WALL_US);
    open.has_deadline = true;
    make_round(&complete, c->count, true, WORLD_WALL_US);
    if (c->has_waiting) {
        make_waiting(&complete, "w", false);
    }
    open.round = complete.round = 2;
    complete.sealed_round = c->seal_round;
    complete.sealed_count = c->seal_count;
    for (int i = 0; c->hole >= 0 && i < c->count; i++) {
        complete.members[i].rank += i >= c->hole ? 1 : 0;
    }
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    /* Its own beat is not known to it, so it makes one. */
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &open), MST_EFFECT_WRITE);
    assert_int_equal(bench_won(&bench), MST_EFFECT_WAIT);
    bench.now_us += c->is_early ? 1000 : 25 * SECOND;
    assert_int_equal(bench_event(&bench, MST_EVENT_WOKEN), MST_EFFECT_READ);
    bool is_less = c->seal_round == 2 && c->seal_count > c->count;
    assert_int_equal(mst__session_misses_members(&bench.session, &complete), is_less);
    bench.finished = c->finished;
    enum mst__effect_kind effect = bench_record(&bench, MST_EVENT_READ, &complete);
    if (c->is_certain) {
        assert_int_equal(effect, MST_EFFECT_DONE);
        assert_int_equal(bench.effect.outcome.result, MST_RESULT_OK);
        assert_true(bench.effect.outcome.round == 2);
        assert_true(bench.effect.outcome.world == c->count + c->finished);
        assert_true(bench.effect.outcome.rank == 1);
    } else {
        /* It leaves and waits for the next round, in one write. */
        if (effect != MST_EFFECT_WRITE) {
            print_error("%s: told a doubtful world\n", c->what);
        }
        assert_int_equal(effect, MST_EFFECT_WRITE);
        assert_false(written_self(&bench)->is_participant);
        assert_true(written_self(&bench)->is_waiting);
        assert_int_equal(bench.session.stats.doubts, 1);
        assert_int_equal(bench_won(&bench), MST_EFFECT_WAIT);
    }
    mst__state_close(&open);
    mst__state_close(&complete);
    bench_close(&bench);
}

static void doubtful_worlds_are_not_told(void **unused)
{
    (void)unused;
    static const struct seal_case cases[] = {
        {"a peer completed it, all are there", 3, -1, 0, 0, false, true, false, 0, 0},
        {"so early that it must have been full", 3, -1, 0, 0, false, false, true, 0, 0},
        {"one that was seen is gone", 2, -1, 0, 0, false, false, false, 0, 0},
        {"a rank is missing", 3, 2, 0, 0, false, false, false, 0, 0},
        {"as many as there may be", 4, -1, 0, 0, true, true, true, 0, 0},
        {"a rank is missing though full", 4, 3, 0, 0, false, false, true, 0, 0},
        {"sealed with as many", 3, -1, 2, 3, true, true, true, 0, 0},
        {"sealed with more", 3, -1, 2, 4, false, false, false, 0, 0},
        {"sealed with more than in a store that is gone", 3, -1, 2, 4, false, false, false, 3, 0},
        {"the seal of another round", 3, -1, 1, 4, false, true, false, 0, 0},
        {"one waits who may have left", 3, -1, 0, 0, true, false, false, 0, 0},
        {"the one that is gone has finished", 3, 2, 2, 4, true, true, true, 0, 1},
        {"of two that are gone one has finished", 2, -1, 2, 4, true, false, false, 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_seal_case(&cases[i]);
    }
}

/* A store that has lost its data begins again with round 0: our knowledge of the old one is
 * void. */
static void a_lost_record_is_forgotten(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(2, 2));
    make_round(&record, 1, false, WORLD_WALL_US);
    record.round = 5;
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
    assert_int_equal(bench_won(&bench), MST_EFFECT_DONE);
    assert_true(bench.session.completed_round == 5);
    assert_true(bench.session.completed_count == 2);
    record.round = 4;
    assert_int_equal(bench_begin(&bench, MST_OPERATION_POLL), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_DONE);
    assert_true(bench.session.completed_count == 0);
    bench.session.completed_count = 2;
    assert_int_equal(bench_begin(&bench, MST_OPERATION_POLL), MST_EFFECT_READ);
    assert_int_equal(bench_event(&bench, MST_EVENT_READ_NONE), MST_EFFECT_DONE);
    assert_true(bench.session.completed_count == 0);
    mst__state_close(&record);
    bench_close(&bench);
}

/* A peer whose clock is far ahead ends every last call early; we do not leave for ever. */
static void insisting_on_the_last_call_has_an_end(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state open;
    struct mst__state complete;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(2, 4));
    make_round(&open, 2, false, WORLD_WALL_US);
    open.has_deadline = true;
    make_round(&complete, 2, true, WORLD_WALL_US);
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    enum mst__effect_kind effect = bench_record(&bench, MST_EVENT_READ, &open);
    for (unsigned i = 0; effect != MST_EFFECT_DONE; i++) {
        assert_true(i <= MST_SESSION_INSIST_MAX);
        assert_int_equal(bench.session.stats.doubts, i);
        if (effect == MST_EFFECT_WRITE) {
            effect = bench_won(&bench);
        }
        assert_int_equal(effect, MST_EFFECT_WAIT);
        complete.round = open.round;
        bench.now_us += 1000;
        assert_int_equal(bench_event(&bench, MST_EVENT_WOKEN), MST_EFFECT_READ);
        effect = bench_record(&bench, MST_EVENT_READ, &complete);
        if (effect == MST_EFFECT_WRITE) {
            /* It leaves, and the next round gathers with it. */
            assert_int_equal(bench_won(&bench), MST_EFFECT_WAIT);
            open.round++;
            bench.now_us += 1000;
            assert_int_equal(bench_event(&bench, MST_EVENT_WOKEN), MST_EFFECT_READ);
            effect = bench_record(&bench, MST_EVENT_READ, &open);
        }
    }
    assert_int_equal(bench.effect.outcome.result, MST_RESULT_OK);
    assert_int_equal(bench.session.stats.doubts, MST_SESSION_INSIST_MAX);
    mst__state_close(&open);
    mst__state_close(&complete);
    bench_close(&bench);
}

/* A node that waits while others fill the round would make them form anew for ever: it stops
 * waiting, and they are not told. */
static void who_waits_in_vain_stops_waiting(void **unused)
{
    (void)unused;
    static const enum mst__record_dialect dialects[] = {MST_RECORD_D1, MST_RECORD_D4};
    for (size_t i = 0; i < 2; i++) {
        struct bench bench;
        struct mst__state record;
        make_round(&record, 1, true, WORLD_WALL_US);
        record.dialect = dialects[i];
        make_waiting(&record, "b", false);
        bench_open(&bench, MST_SESSION_DEFAULT, settings_of(1, 1));
        assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
        assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
        assert_int_equal(bench.effect.state->waiting.count, 0);
        assert_int_equal(bench.effect.state->spares.count, dialects[i] == MST_RECORD_D4);
        bench_close(&bench);
        /* a, with room for one and for two. */
        for (int64_t nodes_max = 1; nodes_max <= 2; nodes_max++) {
            struct mst__peers lost = {NULL, 0, 0};
            struct mst__changes changes;
            bench_open(&bench, MST_SESSION_DEFAULT, settings_of(1, nodes_max));
            poll_record(&bench, &record);
            assert_int_equal(mst__session_changes(&bench.session, &lost, &changes), 0);
            assert_int_equal(changes.waiting_count, nodes_max - 1);
            mst__free(lost.ids);
            bench_close(&bench);
        }
        mst__state_close(&record);
    }
}

/* We count c as lost and are about to write that, when a peer completes the round with it: the
 * rest without c is not the world that the peer reports. */
static void the_dead_of_a_complete_round_make_it_doubtful(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(2, 4));
    make_round(&record, 3, false, WORLD_WALL_US);
    record.has_deadline = true;
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
    assert_int_equal(bench_won(&bench), MST_EFFECT_WAIT);
    enum mst__effect_kind effect = MST_EFFECT_WAIT;
    for (int second = 1; second <= 15; second++) {
        if (effect == MST_EFFECT_WRITE) {
            effect = bench_won(&bench);
        }
        assert_int_equal(effect, MST_EFFECT_WAIT);
        bench.now_us += SECOND;
        record.members[0].heartbeat_us++; /* a beats, c does not */
        assert_int_equal(bench_event(&bench, MST_EVENT_WOKEN), MST_EFFECT_READ);
        effect = bench_record(&bench, MST_EVENT_READ, &record);
    }
    assert_int_equal(effect, MST_EFFECT_WRITE);
    assert_int_equal(bench.effect.state->participants.count, 2);
    record.complete = true;
    for (int i = 0; i < 3; i++) {
        record.members[i].rank = i;
    }
    effect = bench_record(&bench, MST_EVENT_LOST, &record);
    assert_int_equal(bench.session.stats.doubts, 1);
    assert_int_equal(effect, MST_EFFECT_WAIT);
    assert_int_equal(bench_hold(&bench, &record), MST_EFFECT_WRITE);
    assert_false(written_self(&bench)->is_participant);
    mst__state_close(&record);
    bench_close(&bench);
}

/* A node that completes a round leaves the seal and may return the result at once. */
static void completing_seals(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(2, 2));
    mst__state_init(&record);
    record.round = 7;
    state_add_participant(&record, node_named("a", 1), 0, WORLD_WALL_US);
    assert_int_equal(bench_begin(&bench, MST_OPERATION_NEXT), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
    assert_true(bench.effect.state->complete);
    assert_true(bench.effect.state->sealed_round == 7);
    assert_true(bench.effect.state->sealed_count == 2);
    assert_int_equal(bench_won(&bench), MST_EFFECT_DONE);
    assert_true(bench.effect.outcome.rank == 1);
    assert_true(bench.effect.outcome.world == 2);
    assert_true(bench.effect.outcome.round == 7);
    mst__state_close(&record);
    bench_close(&bench);
}

/* --- spares and foreign limits --- */

/* Others form a group larger than our maximum: wait beside it and do not spin. */
static void a_larger_group_than_ours(void **unused)
{
    (void)unused;
    for (int complete = 0; complete < 2; complete++) {
        struct bench bench;
        struct mst__state record;
        bench_open(&bench, MST_SESSION_DEFAULT, settings_of(1, 3));
        mst__state_init(&record);
        record.complete = complete == 1;
        static const char *const names[] = {"p", "q", "r", "s"};
        for (int i = 0; i < 4; i++) {
            state_add_participant(&record, node_named(names[i], 1), i, WORLD_WALL_US);
        }
        assert_int_equal(bench_begin(&bench, MST_OPERATION_NEXT), MST_EFFECT_READ);
        assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
        assert_true(written_self(&bench)->is_spare);
        assert_int_equal(bench_won(&bench), MST_EFFECT_WAIT);
        /* The next reading finds the same, and us in it. */
        make_waiting(&record, "b", true);
        bench.now_us += SECOND;
        assert_int_equal(bench_event(&bench, MST_EVENT_WOKEN), MST_EFFECT_READ);
        assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WAIT);
        /* Two go, there is room, and the time for joining starts again. */
        for (int i = 0; i < 2; i++) {
            struct mst__node node = node_named(names[i], 1);
            mst__peer_id id = mst__state_find(&record, &node);
            assert_true(mst__state_drop_participant(&record, id));
            assert_true(mst__state_drop_heartbeat(&record, id));
        }
        for (int i = 2; i < 4; i++) {
            struct mst__node node = node_named(names[i], 1);
            record.members[mst__state_find(&record, &node)].heartbeat_us++;
        }
        bench.now_us += 700 * (int64_t)SECOND;
        assert_int_equal(bench_event(&bench, MST_EVENT_WOKEN), MST_EFFECT_READ);
        assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
        assert_false(written_self(&bench)->is_spare);
        assert_int_equal(written_self(&bench)->is_waiting, complete == 1);
        assert_int_equal(written_self(&bench)->is_participant, complete == 0);
        assert_true(bench.session.deadline_us == bench.now_us + 600 * (int64_t)SECOND);
        mst__state_close(&record);
        bench_close(&bench);
    }
}

/* Others filled the round that it waited for: it becomes a spare, or they would form anew for its
 * sake for ever. */
static void left_over_nodes_become_spares(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(1, 2));
    mst__state_init(&record);
    record.complete = true;
    state_add_participant(&record, node_named("p", 1), 0, WORLD_WALL_US);
    assert_int_equal(bench_begin(&bench, MST_OPERATION_NEXT), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
    assert_true(written_self(&bench)->is_waiting);
    assert_int_equal(bench_won(&bench), MST_EFFECT_WAIT);
    state_add_participant(&record, node_named("q", 1), 1, WORLD_WALL_US);
    make_waiting(&record, "b", false);
    bench.now_us += SECOND;
    assert_int_equal(bench_event(&bench, MST_EVENT_WOKEN), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
    assert_false(written_self(&bench)->is_waiting);
    assert_true(written_self(&bench)->is_spare);
    assert_true(written_self(&bench)->has_heartbeat);
    assert_int_equal(bench_won(&bench), MST_EFFECT_WAIT);
    mst__state_close(&record);
    bench_close(&bench);
}

/* Records of 1.13 have no spares, and a missing last call is begun instead of fatal. */
static void records_of_113(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(2, 2));
    mst__state_init(&record);
    record.dialect = MST_RECORD_D1;
    record.complete = true;
    state_add_participant(&record, node_named("p", 1), 0, WORLD_WALL_US);
    state_add_participant(&record, node_named("q", 1), 1, WORLD_WALL_US);
    assert_int_equal(bench_begin(&bench, MST_OPERATION_NEXT), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WAIT);
    bench.now_us += 600 * (int64_t)SECOND + 1;
    assert_int_equal(bench_event(&bench, MST_EVENT_TIME), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_DONE);
    assert_int_equal(bench.effect.outcome.result, MST_RESULT_TIMEOUT);
    mst__state_close(&record);

    make_round(&record, 2, false, WORLD_WALL_US);
    record.dialect = MST_RECORD_D1;
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
    assert_true(bench.effect.state->has_deadline);
    assert_int_equal(bench.effect.state->dialect, MST_RECORD_D1);
    assert_int_equal(bench_won(&bench), MST_EFFECT_WAIT);
    /* And ended when it is over, by our own clock. */
    bench.wall_us -= 900 * (int64_t)SECOND;
    bench.now_us += 30 * (int64_t)SECOND + 1;
    assert_int_equal(bench_event(&bench, MST_EVENT_TIME), MST_EFFECT_READ);
    struct mst__state current;
    mst__state_init(&current);
    assert_int_equal(mst__state_copy(&current, &bench.session.state), 0);
    struct mst__node a = node_named("a", 1);
    current.members[mst__state_find(&current, &a)].heartbeat_us++;
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &current), MST_EFFECT_WRITE);
    assert_true(bench.effect.state->complete);
    mst__state_close(&current);
    mst__state_close(&record);
    bench_close(&bench);
}

/* --- where writing is slow --- */

/* Nodes that come at once read at different times, and write after their read. */
static void first_readings_are_spread(void **unused)
{
    (void)unused;
    int64_t latest_us = 0;
    for (int i = 0; i < 200; i++) {
        struct bench bench;
        bench_open(&bench, MST_SESSION_DEFAULT, settings_of(64, 64));
        bench.session.options.write_us = 3000;
        bench.now_us += i; /* another seed */
        assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_WAIT);
        assert_false(bench.effect.wants_change);
        int64_t spread_us = bench.effect.until_us - bench.now_us;
        assert_in_range(spread_us, 1, 64 * 3000);
        latest_us = spread_us > latest_us ? spread_us : latest_us;
        bench.now_us = bench.effect.until_us;
        assert_int_equal(bench_event(&bench, MST_EVENT_TIME), MST_EFFECT_READ);
        assert_int_equal(bench_event(&bench, MST_EVENT_READ_NONE), MST_EFFECT_WRITE);
        bench_close(&bench);
    }
    assert_true(latest_us > 64 * 3000 / 2);
}

static void few_and_late_ones_are_not_spread(void **unused)
{
    (void)unused;
    struct bench bench;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(4, 64));
    bench.session.options.write_us = 3000;
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    bench_close(&bench);
    /* A node with hardly any time left does not spend it on this. */
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(64, 64));
    bench.session.options.write_us = 3000;
    struct mst__session_event event = {.kind = MST_EVENT_BEGIN,
                                       .operation = MST_OPERATION_JOIN,
                                       .deadline_us = bench.now_us + 400};
    assert_int_equal(bench_feed(&bench, event), MST_EFFECT_WAIT);
    assert_in_range(bench.effect.until_us - bench.now_us, 1, 100);
    bench_close(&bench);
}

/* A node that enters and loses waits and reads: the record found then is of no use. */
static void a_loser_reads_after_its_wait(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(4, 4));
    bench.session.options.write_us = 3000;
    mst__state_init(&record);
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    assert_int_equal(bench_event(&bench, MST_EVENT_READ_NONE), MST_EFFECT_WRITE);
    assert_true(bench.effect.may_be_unread);
    assert_int_equal(bench_event(&bench, MST_EVENT_LOST_UNREAD), MST_EFFECT_WAIT);
    assert_int_equal(bench.session.stats.losses, 1);
    assert_false(bench.session.is_known);
    state_add_participant(&record, node_named("a", 1), 0, WORLD_WALL_US);
    assert_int_equal(bench_hold(&bench, &record), MST_EFFECT_WRITE);
    assert_int_equal(bench.effect.state->participants.count, 2);
    assert_int_equal(bench.session.losses, 1);
    assert_int_equal(bench_won(&bench), MST_EFFECT_WAIT);
    assert_int_equal(bench.session.losses, 0); /* the next write waits no longer than the first */
    mst__state_close(&record);
    bench_close(&bench);
}

/* A node in the record must know the result. */
static void members_want_to_know_what_they_lost_to(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(2, 4));
    bench.session.options.write_us = 3000;
    make_round(&record, 2, false, WORLD_WALL_US);
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
    assert_false(bench.effect.may_be_unread);
    struct mst__effect effect;
    struct mst__session_event event = {.kind = MST_EVENT_LOST_UNREAD};
    assert_int_equal(mst__session_step(&bench.session, &event, 0, bench.now_us, 0, &effect),
                     MST_EINVAL);
    mst__state_close(&record);
    bench_close(&bench);
}

/* --- leaving and failing --- */

/* Leaving a round and waiting for the next are one write; when it is lost, neither has happened. */
static void leaving_and_waiting_are_one(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(1, 4));
    make_round(&record, 3, true, WORLD_WALL_US);
    record.sealed_count = 3;
    assert_int_equal(bench_begin(&bench, MST_OPERATION_NEXT), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
    assert_false(written_self(&bench)->is_participant);
    assert_true(written_self(&bench)->is_waiting);
    /* The round that it is to leave must not become the result. */
    assert_int_equal(bench_record(&bench, MST_EVENT_LOST, &record), MST_EFFECT_WAIT);
    assert_int_equal(bench_hold(&bench, &record), MST_EFFECT_WRITE);
    assert_true(written_self(&bench)->is_waiting);
    assert_int_equal(bench_event(&bench, MST_EVENT_FAILED), MST_EFFECT_DONE);
    assert_int_equal(bench.effect.outcome.result, MST_RESULT_CONNECTION);
    assert_int_equal(bench_begin(&bench, MST_OPERATION_NEXT), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
    assert_int_equal(bench_won(&bench), MST_EFFECT_WAIT);
    bench.now_us += SECOND;
    assert_int_equal(bench_event(&bench, MST_EVENT_WOKEN), MST_EFFECT_READ);
    assert_int_equal(bench_event(&bench, MST_EVENT_BROKEN), MST_EFFECT_DONE);
    assert_int_equal(bench.effect.outcome.result, MST_RESULT_STATE);
    mst__state_close(&record);
    bench_close(&bench);
}

static void cancelling_takes_entries_back(void **unused)
{
    (void)unused;
    for (int place = 0; place < 3; place++) { /* participant, waiting, spare */
        struct bench bench;
        struct mst__state record;
        bench_open(&bench, MST_SESSION_DEFAULT, settings_of(2, 2));
        mst__state_init(&record);
        if (place > 0) {
            record.complete = true;
            state_add_participant(&record, node_named("p", 1), 0, WORLD_WALL_US);
        }
        if (place == 2) {
            state_add_participant(&record, node_named("q", 1), 1, WORLD_WALL_US);
        }
        assert_int_equal(bench_begin(&bench, MST_OPERATION_NEXT), MST_EFFECT_READ);
        assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
        assert_int_equal(bench_won(&bench), MST_EFFECT_WAIT);
        mst__state_close(&record);
        assert_int_equal(mst__state_copy(&record, &bench.session.state), 0);
        bench.now_us += 1000;
        assert_int_equal(bench_event(&bench, MST_EVENT_CANCEL), MST_EFFECT_READ);
        assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
        const struct mst__peer *self = written_self(&bench);
        assert_false(self->is_participant || self->is_waiting || self->is_spare ||
                     self->has_heartbeat);
        assert_int_equal(bench_won(&bench), MST_EFFECT_DONE);
        assert_int_equal(bench.effect.outcome.result, MST_RESULT_CANCELLED);
        mst__state_close(&record);
        bench_close(&bench);
    }
}

/* Unexpected events are refused; their state and token are released. */
static void wrong_events_are_refused(void **unused)
{
    (void)unused;
    struct bench bench;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(1, 2));
    struct mst__effect effect;
    struct mst__state state;
    make_round(&state, 1, false, WORLD_WALL_US);
    struct mst_buffer token = token_of(1);
    struct mst__session_event event = {.kind = MST_EVENT_READ, .state = &state, .token = &token};
    assert_int_equal(mst__session_step(&bench.session, &event, 0, 0, 0, &effect), MST_EINVAL);
    assert_int_equal(state.members_count, 0);
    assert_null(token.data);
    event = (struct mst__session_event){.kind = MST_EVENT_TIME};
    assert_int_equal(mst__session_step(&bench.session, &event, 0, 0, 0, &effect), MST_EINVAL);
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    event = (struct mst__session_event){.kind = MST_EVENT_BEGIN, .operation = MST_OPERATION_JOIN};
    assert_int_equal(mst__session_step(&bench.session, &event, 0, 0, 0, &effect), MST_EINVAL);
    event = (struct mst__session_event){.kind = MST_EVENT_READ}; /* without a record */
    assert_int_equal(mst__session_step(&bench.session, &event, 0, 0, 0, &effect), MST_EINVAL);
    assert_int_equal(bench_event(&bench, MST_EVENT_READ_NONE), MST_EFFECT_WRITE);
    /* A vanished record is not a round: begin anew, after a pause. */
    assert_int_equal(bench_event(&bench, MST_EVENT_ABSENT), MST_EFFECT_WAIT);
    assert_int_equal(bench.session.state.participants.count, 0);
    assert_false(bench.session.has_token);
    bench_close(&bench);
}

/* --- heartbeats and changes --- */

/* Heartbeats are due by our own clock, and each stamp differs from the last one. */
static void beats_do_not_mind_the_wall_clock(void **unused)
{
    (void)unused;
    struct bench bench;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(1, 1));
    assert_int_equal(bench_begin(&bench, MST_OPERATION_NEXT), MST_EFFECT_READ);
    assert_int_equal(bench_event(&bench, MST_EVENT_READ_NONE), MST_EFFECT_WRITE);
    assert_int_equal(bench_won(&bench), MST_EFFECT_DONE);
    int64_t stamp_us = bench.session.state.members[0].heartbeat_us;
    struct mst__peers lost = {NULL, 0, 0};
    struct mst__changes changes;
    for (int beat = 0; beat < 4; beat++) {
        assert_int_equal(mst__session_changes(&bench.session, &lost, &changes), 0);
        assert_true(changes.beat_us == bench.now_us + 5 * SECOND);
        struct mst__state record;
        mst__state_init(&record);
        assert_int_equal(mst__state_copy(&record, &bench.session.state), 0);
        bench.now_us += 5 * SECOND - 1;
        assert_int_equal(bench_begin(&bench, MST_OPERATION_KEEP_ALIVE), MST_EFFECT_READ);
        assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_DONE);
        bench.now_us += 1;
        /* The clock stands still, goes back, goes forth. */
        bench.wall_us = beat == 0   ? stamp_us - bench.now_us
                        : beat == 1 ? WORLD_WALL_US - 900 * (int64_t)SECOND
                        : beat == 2 ? WORLD_WALL_US + 900 * (int64_t)SECOND
                                    : WORLD_WALL_US;
        assert_int_equal(bench_begin(&bench, MST_OPERATION_KEEP_ALIVE), MST_EFFECT_READ);
        assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_WRITE);
        assert_true(written_self(&bench)->heartbeat_us != stamp_us);
        stamp_us = written_self(&bench)->heartbeat_us;
        assert_int_equal(bench_won(&bench), MST_EFFECT_DONE);
        mst__state_close(&record);
    }
    mst__free(lost.ids);
    bench_close(&bench);
}

/* How many members are missed. */
static size_t count_lost(const struct bench *bench)
{
    struct mst__peers lost = {NULL, 0, 0};
    struct mst__changes changes;
    assert_int_equal(mst__session_changes(&bench->session, &lost, &changes), 0);
    mst__free(lost.ids);
    return changes.lost_count;
}

/* Nobody is missed for what may have been written since the record was asked for, while a request
 * was under way that failed, or since a change that was told of. */
static void late_answers_blame_nobody(void **unused)
{
    (void)unused;
    enum { LATE, FAILED, PAST };
    for (int why = LATE; why <= PAST; why++) {
        struct bench bench;
        struct mst__state record;
        bench_open(&bench, MST_SESSION_DEFAULT, settings_of(3, 3));
        make_round(&record, 3, true, WORLD_WALL_US);
        assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
        assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_DONE);
        for (int i = 0; i < 2; i++) {
            bench.now_us += 7 * (int64_t)SECOND;
            poll_record(&bench, &record);
        }
        bench.now_us += why == PAST ? 2 * (int64_t)SECOND : 0;
        assert_int_equal(bench_begin(&bench, MST_OPERATION_POLL), MST_EFFECT_READ);
        bench.now_us += why == PAST ? 0 : 2 * (int64_t)SECOND;
        if (why == FAILED) {
            assert_int_equal(bench_event(&bench, MST_EVENT_FAILED), MST_EFFECT_DONE);
            poll_record(&bench, &record);
        } else {
            bench.is_past = why == PAST;
            assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_DONE);
            bench.is_past = false;
        }
        assert_int_equal(count_lost(&bench), 0);
        bench.now_us += SECOND;
        poll_record(&bench, &record);
        assert_int_equal(count_lost(&bench), 2);
        mst__state_close(&record);
        bench_close(&bench);
    }
}

static void changes_are_told(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__state record;
    struct mst__peers lost = {NULL, 0, 0};
    struct mst__changes changes;
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(3, 3));
    assert_int_equal(mst__session_changes(&bench.session, &lost, &changes), 0);
    assert_false(changes.is_known);
    make_round(&record, 3, true, WORLD_WALL_US);
    assert_int_equal(bench_begin(&bench, MST_OPERATION_JOIN), MST_EFFECT_READ);
    assert_int_equal(bench_record(&bench, MST_EVENT_READ, &record), MST_EFFECT_DONE);
    assert_int_equal(mst__session_changes(&bench.session, &lost, &changes), 0);
    assert_true(changes.is_known);
    assert_false(changes.expelled || changes.closed);
    assert_int_equal(changes.lost_count + changes.waiting_count, 0);
    /* A full group has no room for a waiting node. */
    make_waiting(&record, "w", false);
    poll_record(&bench, &record);
    assert_int_equal(mst__session_changes(&bench.session, &lost, &changes), 0);
    assert_int_equal(changes.waiting_count, 0);
    struct mst__node w = node_named("w", 1);
    assert_true(mst__state_drop_waiting(&record, mst__state_find(&record, &w)));
    /* c leaves to wait; a is gone for good. */
    struct mst__node a = node_named("a", 1);
    struct mst__node c = node_named("c", 1);
    assert_true(mst__state_drop_participant(&record, mst__state_find(&record, &c)));
    assert_int_equal(mst__state_put_waiting(&record, mst__state_find(&record, &c)), 0);
    assert_true(mst__state_drop_participant(&record, mst__state_find(&record, &a)));
    record.closed = true;
    poll_record(&bench, &record);
    assert_int_equal(mst__session_changes(&bench.session, &lost, &changes), 0);
    assert_true(changes.closed);
    assert_false(changes.expelled);
    assert_int_equal(changes.waiting_count, 1);
    assert_int_equal(changes.lost_count, 1);
    assert_int_equal(mst__node_compare(&bench.session.joined.members[lost.ids[0]].node, &a), 0);
    /* We are thrown out. */
    struct mst__node b = node_named("b", 1);
    assert_true(mst__state_drop_participant(&record, mst__state_find(&record, &b)));
    poll_record(&bench, &record);
    assert_int_equal(mst__session_changes(&bench.session, &lost, &changes), 0);
    assert_true(changes.expelled);
    mst__free(lost.ids);
    mst__state_close(&record);
    bench_close(&bench);
}

/* --- waiting --- */

static void holds_are_bounded(void **unused)
{
    (void)unused;
    struct bench bench;
    struct mst__prng prng;
    mst__prng_init(&prng, 5);
    bench_open(&bench, MST_SESSION_DEFAULT, settings_of(2, 1000));
    struct mst__session *session = &bench.session;
    enum mst__action add = MST_ACTION_ADD_TO_PARTICIPANTS;
    assert_true(mst__session_hold_us(session, add, &prng) == 0);
    assert_true(mst__session_hold_us(session, MST_ACTION_KEEP_ALIVE, &prng) == 0);
    int64_t longest_us[40] = {0};
    for (unsigned losses = 1; losses < 40; losses++) {
        session->losses = losses;
        session->trip_last_us = 200;
        for (int i = 0; i < 200; i++) {
            int64_t hold_us = mst__session_hold_us(session, add, &prng);
            assert_true(hold_us > 0 && hold_us <= MST_HOLD_US_MAX);
            longest_us[losses] = hold_us > longest_us[losses] ? hold_us : longest_us[losses];
        }
    }
    assert_true(longest_us[1] < 10000); /* two that met by chance */
    assert_true(longest_us[2] > longest_us[1]);
    assert_true(longest_us[4] > longest_us[2]);
    /* Never longer than half the interval, so that our own heartbeat is not late. */
    session->options.settings.keep_alive_interval_us = 100000;
    session->losses = 30;
    session->trip_last_us = 1000000;
    for (int i = 0; i < 200; i++) {
        assert_true(mst__session_hold_us(session, add, &prng) <= 50000);
    }
    /* The more are missing, the longer. */
    session->losses = 0;
    session->options.settings = settings_of(128, 128);
    int64_t sum_us = 0;
    for (int i = 0; i < 200; i++) {
        sum_us += mst__session_hold_us(session, add, &prng);
    }
    assert_true(sum_us / 200 > 128 * 300 && sum_us / 200 < 128 * 2400);
    bench_close(&bench);
}

/* --- memory --- */

/* Run a join into a full round, and a doubtful one, with the nth allocation failing. The value is
 * whether it failed; the session must work afterwards in any case. */
static bool run_with_failure(unsigned long nth)
{
    struct mst__session_options options = {
        .node = node_named("b", 1),
        .settings = settings_of(3, 3),
        .dialect = MST_RECORD_D4,
    };
    struct mst__session session;
    mst__mem_fail_nth(nth);
    int rv = mst__session_init(&session, &options);
    bool has_failed = mst__mem_failed();
    for (int step = 0; rv == 0 && step < 6; step++) {
        struct mst__state record;
        struct mst_buffer token = {NULL, 0};
        struct mst__effect effect = {.kind = MST_EFFECT_DONE};
        struct mst__session_event event = {
            .kind = MST_EVENT_BEGIN, .operation = MST_OPERATION_NEXT, .deadline_us = SECOND};
        mst__mem_fail_nth(0); /* allocations of the test itself do not fail */
        mst__state_init(&record);
        if (session.phase == MST_SESSION_READING) {
            make_round(&record, 3, true, WORLD_WALL_US);
            struct mst__node b = node_named("b", 1);
            assert_true(mst__state_drop_participant(&record, mst__state_find(&record, &b)));
            record.complete = false;
            token = token_of(1);
            event = (struct mst__session_event){
                .kind = MST_EVENT_READ, .state = &record, .token = &token};
        } else if (session.phase == MST_SESSION_WRITING) {
            token = token_of(2);
            event = (struct mst__session_event){.kind = MST_EVENT_WON, .token = &token};
        }
        /* Count on from where the sweep was. */
        mst__mem_fail_nth(has_failed ? 0 : nth);
        rv = mst__session_step(&session, &event, WORLD_WALL_US, step, 0, &effect);
        has_failed = has_failed || mst__mem_failed();
        mst__mem_fail_nth(0);
        assert_true(rv == 0 || rv == MST_ENOMEM);
        assert_null(token.data);
        assert_int_equal(record.members_count, 0);
        if (rv != 0) {
            assert_true(has_failed);
            assert_int_equal(session.phase, MST_SESSION_IDLE);
            assert_false(session.is_dirty);
            rv = 0;
        } else if (effect.kind == MST_EFFECT_DONE) {
            assert_int_equal(effect.outcome.result, MST_RESULT_OK);
            assert_true(effect.outcome.world == 3);
            break;
        }
        assert_int_not_equal(step, 5);
    }
    mst__session_close(&session);
    return has_failed;
}

static void failing_allocations(void **unused)
{
    (void)unused;
    unsigned long nth = 1;
    while (run_with_failure(nth)) {
        nth++;
        assert_true(nth < 1000);
    }
    assert_true(nth > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_peers_cache),
        cmocka_unit_test(doubtful_worlds_are_not_told),
        cmocka_unit_test(a_lost_record_is_forgotten),
        cmocka_unit_test(insisting_on_the_last_call_has_an_end),
        cmocka_unit_test(who_waits_in_vain_stops_waiting),
        cmocka_unit_test(the_dead_of_a_complete_round_make_it_doubtful),
        cmocka_unit_test(completing_seals),
        cmocka_unit_test(a_larger_group_than_ours),
        cmocka_unit_test(left_over_nodes_become_spares),
        cmocka_unit_test(records_of_113),
        cmocka_unit_test(first_readings_are_spread),
        cmocka_unit_test(few_and_late_ones_are_not_spread),
        cmocka_unit_test(a_loser_reads_after_its_wait),
        cmocka_unit_test(members_want_to_know_what_they_lost_to),
        cmocka_unit_test(leaving_and_waiting_are_one),
        cmocka_unit_test(cancelling_takes_entries_back),
        cmocka_unit_test(wrong_events_are_refused),
        cmocka_unit_test(beats_do_not_mind_the_wall_clock),
        cmocka_unit_test(late_answers_blame_nobody),
        cmocka_unit_test(changes_are_told),
        cmocka_unit_test(holds_are_bounded),
        cmocka_unit_test(failing_allocations),
    };
    return MST_RUN_TESTS(tests);
}
