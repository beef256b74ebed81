/* unit/core/test_core_expire.c - the boundary values of the peers' clocks, and the observer,
 * which wrong clocks do not deceive. */
#include "core/decide.h"
#include "core/expire.h"
#include "unit/core/core_unit.h"

#define SECOND 1000000
#define MINUTE (60 * (int64_t)SECOND)

/* --- the peers' boundaries --- */

static enum mst__action decide_at(const struct mst__state *state,
                                  enum mst__operation operation,
                                  int64_t now_us,
                                  int64_t left_us)
{
    struct mst__node node = node_named("a", 1);
    struct mst__settings settings = settings_of(1, 3);
    struct mst__question question = {
        .state = state,
        .node = &node,
        .settings = &settings,
        .now_us = now_us,
        .left_us = left_us,
    };
    return mst__decide(&question, operation);
}

static void boundary_values(void **unused)
{
    (void)unused;
    struct mst__settings settings = settings_of(1, 3);
    struct mst__peers dead = {NULL, 0, 0};
    struct mst__state state;
    mst__state_init(&state);
    int64_t now_us = WORLD_WALL_US;
    state_add_participant(&state, node_named("a", 1), 0, now_us);
    /* A heartbeat of exactly 15 s is alive, one of a microsecond more is not. */
    assert_int_equal(mst__expire_by_stamp(&state, &settings, now_us + 15 * SECOND, &dead), 0);
    assert_int_equal(dead.count, 0);
    /* One of exactly 5 s is due. */
    assert_int_equal(decide_at(&state, MST_OPERATION_KEEP_ALIVE, now_us + 5 * SECOND, 1),
                     MST_ACTION_KEEP_ALIVE);
    assert_int_equal(decide_at(&state, MST_OPERATION_KEEP_ALIVE, now_us + 5 * SECOND - 1, 1),
                     MST_ACTION_FINISH);
    /* A last call that ends now is not over. */
    state.has_deadline = true;
    state.deadline_us = now_us;
    assert_int_equal(decide_at(&state, MST_OPERATION_JOIN, now_us, 1), MST_ACTION_SYNC);
    assert_int_equal(decide_at(&state, MST_OPERATION_JOIN, now_us + 1, 1),
                     MST_ACTION_MARK_RENDEZVOUS_COMPLETE);
    /* At its deadline an operation is not late; for 5 s it may take its entry back. */
    assert_int_equal(decide_at(&state, MST_OPERATION_JOIN, now_us, 0), MST_ACTION_SYNC);
    assert_int_equal(decide_at(&state, MST_OPERATION_JOIN, now_us, -1),
                     MST_ACTION_REMOVE_FROM_PARTICIPANTS);
    assert_int_equal(decide_at(&state, MST_OPERATION_JOIN, now_us, -5 * SECOND),
                     MST_ACTION_REMOVE_FROM_PARTICIPANTS);
    assert_int_equal(decide_at(&state, MST_OPERATION_JOIN, now_us, -5 * SECOND - 1),
                     MST_ACTION_ERROR_TIMEOUT);
    assert_int_equal(mst__expire_by_stamp(&state, &settings, now_us + 15 * SECOND + 1, &dead), 0);
    assert_int_equal(dead.count, 1);
    assert_int_equal(state.participants.count, 0);
    assert_false(state.has_deadline);
    mst__free(dead.ids);
    mst__state_close(&state);
}

/* Times at the ends of the range neither wrap around nor trap. */
static void extreme_times(void **unused)
{
    (void)unused;
    struct mst__settings settings = settings_of(1, 3);
    settings.keep_alive_interval_us = INT64_MAX;
    settings.last_call_us = INT64_MAX;
    settings.clock_skew_us = INT64_MAX;
    struct mst__peers dead = {NULL, 0, 0};
    struct mst__observer observer;
    struct mst__state state;
    mst__observer_init(&observer);
    mst__state_init(&state);
    state.round = INT64_MAX;
    state.has_deadline = true;
    state.deadline_us = INT64_MAX;
    struct mst__node self = node_named("self", 1);
    state_add_participant(&state, node_named("a", 1), 0, INT64_MIN);
    state_add_participant(&state, node_named("b", 1), 0, INT64_MAX);
    const struct mst__reading first = {.wall_us = INT64_MAX};
    const struct mst__reading last = {
        .wall_us = INT64_MIN, .now_us = INT64_MAX, .asked_us = INT64_MAX};
    assert_int_equal(mst__observer_read(&observer, &state, &self, &settings, &first, &dead), 0);
    assert_int_equal(mst__observer_read(&observer, &state, &self, &settings, &last, &dead), 0);
    assert_int_equal(dead.count, 0);
    assert_true(mst__observer_last_call_end_us(&observer, &settings) == INT64_MAX);
    assert_int_equal(mst__expire_by_stamp(&state, &settings, INT64_MIN, &dead), 0);
    settings.keep_alive_max_attempt = -1;
    assert_int_equal(mst__expire_by_stamp(&state, &settings, INT64_MAX, &dead), 0);
    mst__free(dead.ids);
    mst__state_close(&state);
    mst__observer_close(&observer);
}

/* --- the observer --- */

struct watch {
    struct mst__settings settings;
    struct mst__observer observer;
    struct mst__node self;
    struct mst__node other;
    int64_t now_us; /* monotonic; our wall clock is WORLD_WALL_US ahead */
    int64_t wall_us;
    int64_t trip_us; /* what the last request has taken */
    bool is_past;    /* what is read is a change that was told of */
    bool is_peer;    /* the other one does not say that it is ours */
    struct mst__peers dead;
};

static void watch_open(struct watch *watch)
{
    *watch = (struct watch){
        .settings = settings_of(1, 4),
        .self = node_named("self", 1),
        .other = node_named("other", 1),
        .wall_us = WORLD_WALL_US,
    };
    mst__observer_init(&watch->observer);
}

static void watch_close(struct watch *watch)
{
    mst__observer_close(&watch->observer);
    mst__free(watch->dead.ids);
}

/* Read a record in which the other one's stamp is @stamp_us; whether it is dead. */
static bool watch_read(struct watch *watch, int64_t stamp_us)
{
    struct mst__state state;
    mst__state_init(&state);
    state.complete = true;
    /* Our own stamp is ancient and never changes: we know that we are alive. */
    state_add_participant(&state, watch->self, 0, 0);
    state_add_participant(&state, watch->other, 1, stamp_us);
    if (!watch->is_peer) {
        mst__state_mark(&state, mst__state_find(&state, &watch->other));
    }
    const struct mst__reading reading = {.wall_us = watch->wall_us + watch->now_us,
                                         .now_us = watch->now_us,
                                         .asked_us = watch->now_us - watch->trip_us,
                                         .is_past = watch->is_past};
    assert_int_equal(mst__observer_read(&watch->observer, &state, &watch->self, &watch->settings,
                                        &reading, &watch->dead),
                     0);
    bool is_dead = watch->dead.count == 1;
    assert_int_equal(state.participants.count, is_dead ? 1 : 2);
    assert_int_equal(watch->dead.count, is_dead ? 1 : 0);
    mst__state_close(&state);
    return is_dead;
}

/* A node beats every five seconds with a clock that is off by @skew_us and steps by @step_us in the
 * middle; we look every second. It must never be dead while it beats, and be dead in time after. */
static void watch_clock(int64_t skew_us, int64_t step_us)
{
    struct watch watch;
    watch_open(&watch);
    int64_t stamp_us = 0;
    for (int second = 0; second <= 120; second++) {
        watch.now_us = second * (int64_t)SECOND;
        if (second % 5 == 0) {
            stamp_us = WORLD_WALL_US + watch.now_us + skew_us + (second >= 60 ? step_us : 0);
        }
        assert_false(watch_read(&watch, stamp_us));
        const struct mst__observed *observed = mst__observer_find(&watch.observer, &watch.other);
        assert_non_null(observed);
        int64_t off_us = skew_us + (second >= 60 ? step_us : 0);
        if (second >= 10) {
            assert_int_equal(observed->is_skewed, off_us > 6 * SECOND || off_us < -6 * SECOND);
            assert_int_equal(watch.observer.skewed_count, observed->is_skewed ? 1 : 0);
            assert_true(observed->skew_us * off_us >= 0);
        }
    }
    /* The last beat was at 120 s: alive until the end of our patience, which is 50 ms before the
     * 15 s are over, and dead a microsecond later. */
    for (int second = 121; second < 135; second++) {
        watch.now_us = second * (int64_t)SECOND;
        assert_false(watch_read(&watch, stamp_us));
    }
    watch.now_us = 135 * (int64_t)SECOND - 50000;
    assert_false(watch_read(&watch, stamp_us));
    assert_true(watch.observer.next_us == watch.now_us + 1);
    watch.now_us++;
    assert_true(watch_read(&watch, stamp_us));
    watch_close(&watch);
}

/* A stamp that was there before us may have any age; one from the future shows a wrong clock at
 * once, and an old one only if it has just been written. */
static void first_stamp(void **unused)
{
    (void)unused;
    static const struct {
        int64_t first_us, then_us; /* the stamp, from our wall clock on */
        int64_t skew_us[2];
    } cases[] = {
        {-60 * MINUTE, -60 * MINUTE, {0, 0}},
        {-60 * MINUTE, 0, {0, 0}},
        {60 * MINUTE, 60 * MINUTE, {60 * MINUTE, 60 * MINUTE}},
        {0, -60 * MINUTE, {0, -60 * MINUTE + 1 * SECOND}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct watch watch;
        watch_open(&watch);
        watch.settings.clock_skew_us = 120 * MINUTE; /* an old stamp does not count as silence */
        assert_false(watch_read(&watch, WORLD_WALL_US + cases[i].first_us));
        const struct mst__observed *observed = mst__observer_find(&watch.observer, &watch.other);
        assert_int_equal(observed->skew_us, cases[i].skew_us[0]);
        watch.now_us = 1 * SECOND;
        int64_t written_us = cases[i].then_us == cases[i].first_us ? 0 : watch.now_us;
        assert_false(watch_read(&watch, WORLD_WALL_US + cases[i].then_us + written_us));
        assert_int_equal(observed->skew_us, cases[i].skew_us[1]);
        assert_int_equal(observed->is_skewed, cases[i].skew_us[1] != 0);
        watch_close(&watch);
    }
}

static void wrong_clocks_kill_nobody(void **unused)
{
    (void)unused;
    static const int64_t skews_us[] = {0, 20 * SECOND, -20 * SECOND, 15 * MINUTE, -15 * MINUTE};
    for (size_t i = 0; i < sizeof skews_us / sizeof skews_us[0]; i++) {
        for (size_t k = 0; k < sizeof skews_us / sizeof skews_us[0]; k++) {
            watch_clock(skews_us[i], skews_us[k]);
        }
    }
}

/* The same when it is our own clock that is stepped. */
static void our_own_clock_may_step(void **unused)
{
    (void)unused;
    struct watch watch;
    watch_open(&watch);
    for (int second = 0; second <= 120; second++) {
        watch.now_us = second * (int64_t)SECOND;
        if (second == 40) {
            watch.wall_us += 15 * MINUTE;
        } else if (second == 80) {
            watch.wall_us -= 30 * MINUTE;
        }
        assert_false(watch_read(&watch, WORLD_WALL_US + watch.now_us / (5 * SECOND)));
    }
    watch_close(&watch);
}

/* The remains of an old job are removed sooner than by patience, but not at first sight: the
 * clock could be wrong. */
static void old_stamps_are_suspicious(void **unused)
{
    (void)unused;
    struct watch watch;
    watch_open(&watch);
    int64_t old_us = WORLD_WALL_US - 10 * MINUTE;
    assert_false(watch_read(&watch, old_us));
    watch.now_us = 7500000;
    assert_false(watch_read(&watch, old_us));
    watch.now_us++;
    assert_true(watch_read(&watch, old_us));
    /* Once it has beaten it is trusted like any other. */
    assert_false(watch_read(&watch, old_us + 1));
    int64_t beat_us = watch.now_us;
    watch.now_us = beat_us + 7500000;
    assert_false(watch_read(&watch, old_us + 1));
    watch.now_us = beat_us + 15 * SECOND - 50000;
    assert_false(watch_read(&watch, old_us + 1));
    watch.now_us++;
    assert_true(watch_read(&watch, old_us + 1));
    watch_close(&watch);
}

/* How long the other one may be silent after a beat, and if it was never seen to beat, by its old
 * stamp. */
static void assert_patience(bool is_peer, int64_t interval_us, int64_t beaten_us, int64_t old_us)
{
    for (int is_old = 0; is_old < 2; is_old++) {
        struct watch watch;
        watch_open(&watch);
        watch.is_peer = is_peer;
        watch.settings.keep_alive_interval_us = interval_us;
        watch.settings.keep_alive_max_attempt = 3;
        int64_t stamp_us = is_old == 1 ? WORLD_WALL_US - 10 * MINUTE : WORLD_WALL_US;
        int64_t end_us = is_old == 1 ? old_us : beaten_us;
        for (watch.now_us = 0; watch.now_us < end_us; watch.now_us += SECOND) {
            assert_false(watch_read(&watch, stamp_us));
        }
        watch.now_us = end_us;
        assert_false(watch_read(&watch, stamp_us));
        watch.now_us++;
        assert_true(watch_read(&watch, stamp_us));
        watch_close(&watch);
    }
}

/* torch's nodes send a heartbeat every five seconds, for any interval of ours, up to three
 * seconds late. */
static void torch_may_be_late(void **unused)
{
    (void)unused;
    assert_patience(false, SECOND, 2950000, 3 * SECOND);
    assert_patience(true, SECOND, 8 * SECOND, 8 * SECOND);
    assert_patience(false, 2 * SECOND, 5950000, 4500000);
    assert_patience(true, 2 * SECOND, 8 * SECOND, 8 * SECOND);
    assert_patience(true, 5 * SECOND, 14950000, 8 * SECOND);
    assert_patience(true, 20 * SECOND, 59950000, 30 * SECOND);
}

/* No node could send a heartbeat while the store was away, so none is lost for its silence. */
static void gaps_between_readings_do_not_count(void **unused)
{
    (void)unused;
    struct watch watch;
    watch_open(&watch);
    assert_false(watch_read(&watch, WORLD_WALL_US));
    watch.now_us = 5 * (int64_t)SECOND;
    assert_false(watch_read(&watch, WORLD_WALL_US));
    watch.now_us = 60 * (int64_t)SECOND; /* counts as seven and a half */
    assert_false(watch_read(&watch, WORLD_WALL_US));
    watch.now_us += 2450000;
    assert_false(watch_read(&watch, WORLD_WALL_US));
    watch.now_us++;
    assert_true(watch_read(&watch, WORLD_WALL_US));
    watch_close(&watch);
}

/* A store that takes four seconds for an answer takes them for the beats of others, too; and a beat
 * that was made after the request need not be in the answer. So that time does not count. */
static void answers_may_be_late(void **unused)
{
    (void)unused;
    struct watch watch;
    watch_open(&watch);
    for (int second = 0; second <= 14; second++) {
        watch.now_us = second * (int64_t)SECOND;
        assert_false(watch_read(&watch, WORLD_WALL_US));
    }
    watch.now_us = 18 * (int64_t)SECOND;
    watch.trip_us = 4 * (int64_t)SECOND;
    assert_false(watch_read(&watch, WORLD_WALL_US));
    assert_true(watch.observer.next_us == 19 * (int64_t)SECOND - 50000 + 1);
    /* Nor does that of a request that fails. */
    mst__observer_pass(&watch.observer, &watch.settings, watch.now_us, 22 * (int64_t)SECOND);
    watch.now_us = 23 * (int64_t)SECOND - 50000;
    watch.trip_us = 0;
    assert_false(watch_read(&watch, WORLD_WALL_US));
    watch.now_us++;
    assert_true(watch_read(&watch, WORLD_WALL_US));
    watch_close(&watch);
}

/* A change that was told of may be old: others are not missed for it. Who has changed in it is not
 * missed for longer. */
static void changes_may_be_old(void **unused)
{
    (void)unused;
    struct watch watch;
    watch_open(&watch);
    for (int second = 0; second <= 14; second += 7) {
        watch.now_us = second * (int64_t)SECOND;
        assert_false(watch_read(&watch, WORLD_WALL_US));
    }
    watch.is_past = true;
    watch.now_us = 16 * (int64_t)SECOND;
    assert_false(watch_read(&watch, WORLD_WALL_US));
    assert_true(watch.observer.next_us == 15 * SECOND - 50000 + 1); /* high time to read */
    watch.now_us = 18 * (int64_t)SECOND;
    assert_false(watch_read(&watch, WORLD_WALL_US + 1));
    assert_true(watch.observer.next_us == 33 * (int64_t)SECOND - 50000 + 1);
    watch.is_past = false;
    for (int second = 20; second < 33; second++) {
        watch.now_us = second * (int64_t)SECOND;
        assert_false(watch_read(&watch, WORLD_WALL_US + 1));
    }
    watch.now_us = 33 * (int64_t)SECOND - 50000 + 1;
    assert_true(watch_read(&watch, WORLD_WALL_US + 1));
    /* It stays lost. */
    watch.is_past = true;
    assert_true(watch_read(&watch, WORLD_WALL_US + 1));
    watch_close(&watch);
}

/* A node that vanishes is forgotten, and starts anew. */
static void the_observer_forgets(void **unused)
{
    (void)unused;
    struct watch watch;
    watch_open(&watch);
    assert_false(watch_read(&watch, WORLD_WALL_US));
    struct mst__state empty;
    mst__state_init(&empty);
    watch.now_us = 14 * (int64_t)SECOND;
    const struct mst__reading reading = {
        .wall_us = WORLD_WALL_US, .now_us = watch.now_us, .asked_us = watch.now_us};
    assert_int_equal(mst__observer_read(&watch.observer, &empty, &watch.self, &watch.settings,
                                        &reading, &watch.dead),
                     0);
    assert_null(mst__observer_find(&watch.observer, &watch.other));
    assert_true(watch.observer.next_us == INT64_MAX);
    watch.now_us = 16 * (int64_t)SECOND;
    assert_false(watch_read(&watch, WORLD_WALL_US));
    watch_close(&watch);
    mst__state_close(&empty);
}

/* The last call ends last_call after it was first seen, for any deadline and clock. */
static void the_last_call_goes_by_our_own_time(void **unused)
{
    (void)unused;
    static const int64_t skews_us[] = {0, 20 * SECOND, -20 * SECOND, 15 * MINUTE, -15 * MINUTE};
    struct mst__settings settings = settings_of(1, 4);
    for (size_t i = 0; i < sizeof skews_us / sizeof skews_us[0]; i++) {
        struct mst__observer observer;
        struct mst__state state;
        mst__observer_init(&observer);
        mst__state_init(&state);
        state.has_deadline = true;
        state.deadline_us = WORLD_WALL_US + skews_us[i];
        mst__observer_last_call(&observer, &state, 7);
        mst__observer_last_call(&observer, &state, 70);
        assert_true(mst__observer_last_call_end_us(&observer, &settings) == 7 + 30 * SECOND);
        state.deadline_us++; /* another one */
        mst__observer_last_call(&observer, &state, 700);
        assert_true(mst__observer_last_call_end_us(&observer, &settings) == 700 + 30 * SECOND);
        state.has_deadline = false;
        mst__observer_last_call(&observer, &state, 800);
        assert_false(observer.has_deadline);
        mst__state_close(&state);
        mst__observer_close(&observer);
    }
}

static void failing_allocations(void **unused)
{
    (void)unused;
    struct watch watch;
    watch_open(&watch);
    char text[300];
    memset(text, 'x', sizeof text - 1); /* too long for a key on the stack */
    text[sizeof text - 1] = 0;
    unsigned long failures = 0;
    for (int64_t pid = 0; pid < 40; pid++) {
        for (unsigned long nth = 1;; nth++) {
            struct mst__state state;
            mst__state_init(&state);
            state_add_participant(&state, node_named(text, pid), 0, 0);
            state_add_participant(&state, node_named("short", pid), 0, 0);
            mst__mem_fail_nth(nth);
            const struct mst__reading reading = {
                .wall_us = WORLD_WALL_US, .now_us = pid * SECOND, .asked_us = pid * SECOND};
            int rv = mst__observer_read(&watch.observer, &state, &watch.self, &watch.settings,
                                        &reading, &watch.dead);
            bool has_failed = mst__mem_failed();
            mst__mem_fail_nth(0);
            assert_int_equal(state.participants.count, 2);
            mst__state_close(&state);
            assert_int_equal(rv, has_failed ? MST_ENOMEM : 0);
            if (rv == 0) {
                break;
            }
            failures++;
        }
    }
    assert_true(failures > 40);
    watch_close(&watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boundary_values),
        cmocka_unit_test(extreme_times),
        cmocka_unit_test(first_stamp),
        cmocka_unit_test(wrong_clocks_kill_nobody),
        cmocka_unit_test(our_own_clock_may_step),
        cmocka_unit_test(old_stamps_are_suspicious),
        cmocka_unit_test(torch_may_be_late),
        cmocka_unit_test(gaps_between_readings_do_not_count),
        cmocka_unit_test(answers_may_be_late),
        cmocka_unit_test(changes_may_be_old),
        cmocka_unit_test(the_observer_forgets),
        cmocka_unit_test(the_last_call_goes_by_our_own_time),
        cmocka_unit_test(failing_allocations),
    };
    return MST_RUN_TESTS(tests);
}
