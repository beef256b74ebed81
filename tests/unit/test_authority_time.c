/* unit/test_authority_time.c - when silence counts: drivers that are stopped, and what had arrived
 * before it was read. */
#include "core/listening.h"
#include "unit/authority_unit.h"

/* --- until when everything was read --- */

static void timer_decides_nothing(void **state)
{
    (void)state;
    struct mst__listening listening;
    mst__listening_init(&listening);
    assert_int_equal(mst__listening_judge(&listening, 100, 99), MST_LISTENING_LATER);
    /* The timer is due, and nothing was read since. */
    assert_int_equal(mst__listening_judge(&listening, 100, 100), MST_LISTENING_POLL);
    mst__listening_poll(&listening, 500);
    /* What new connections have brought is read by the next poll only. */
    assert_int_equal(mst__listening_judge(&listening, 100, 501), MST_LISTENING_POLL);
    mst__listening_poll(&listening, 502);
    assert_int_equal(mst__listening_judge(&listening, 100, 503), MST_LISTENING_DUE);
    assert_int_equal(mst__listening_judge(&listening, 500, 503), MST_LISTENING_DUE);
    assert_int_equal(mst__listening_judge(&listening, 501, 503), MST_LISTENING_POLL);
    assert_int_equal(mst__listening_judge(&listening, INT64_MAX, 503), MST_LISTENING_LATER);
}

/* A poll that waits says nothing of the time in which it has waited. */
static void long_poll(void **state)
{
    (void)state;
    struct mst__listening listening;
    mst__listening_init(&listening);
    mst__listening_poll(&listening, 100);
    mst__listening_poll(&listening, 101);
    assert_int_equal(mst__listening_judge(&listening, 5000, 6000), MST_LISTENING_POLL);
    assert_int_equal(listening.heard_us, 100);
}

/* --- the authority --- */

/* Somebody else is heard of while the words of one who lives are still unread. */
static void judged_as_of_what_was_read(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 3);
    run_join(&run, "a");
    run_join(&run, "b");
    run_join(&run, "c");
    assert_told(&run, "sealed 7/1 of 3 at a a=0 b=1 c=2; ");
    int64_t begun_us = run.now_us;
    int64_t due_us = begun_us + 15 * SECOND_US;
    assert_int_equal(mst__authority_due_us(&run.authority), due_us);
    run.now_us = due_us + SECOND_US;
    assert_int_equal(mst__authority_heartbeat(&run.authority, run_id(&run, "a"), run.now_us), 0);
    (void)mst__authority_tick(&run.authority, due_us - 1);
    assert_told(&run, "");
    assert_int_equal(mst__authority_heartbeat(&run.authority, run_id(&run, "b"), run.now_us), 0);
    (void)mst__authority_tick(&run.authority, due_us);
    assert_told(&run, "expelled c; lost c=2; reopened 2 lost c; ");
    assert_int_equal(mst__authority_due_us(&run.authority), run.now_us + 15 * SECOND_US);
    run_close(&run);
}

/* However long a driver was stopped: who has not said anything meanwhile is lost, when all that has
 * arrived was read. Who has no connection is waited for a moment longer. */
static void stopped_driver(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 3);
    run_join(&run, "a");
    run_join(&run, "b");
    run_join(&run, "c");
    assert_told(&run, "sealed 7/1 of 3 at a a=0 b=1 c=2; ");
    run_pass(&run, 10 * SECOND_US, true);
    run_cut(&run, "c");
    run.now_us += 3600 * (int64_t)SECOND_US;
    assert_int_equal(mst__authority_heartbeat(&run.authority, run_id(&run, "a"), run.now_us), 0);
    (void)mst__authority_tick(&run.authority, run.now_us);
    assert_told(&run, "expelled b; lost b=1; reopened 2 lost b; ");
    run_pass(&run, SECOND_US - 1, false);
    assert_told(&run, "");
    run_pass(&run, 1, false);
    assert_told(&run, "lost c=2; ");
    run_close(&run);
}

/* So are the places of a round that is being taken over. */
static void stopped_while_reclaiming(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 2);
    struct mst__announcement said = run_announcement(&run, "a");
    said.claim = (struct mst__claim){.epoch = 3, .round = 5, .world = 2, .rank = 0, .holds = true};
    assert_int_equal(run_say(&run, &said), 0);
    run.now_us += 7 * SECOND_US;
    (void)mst__authority_tick(&run.authority, run.now_us);
    run_pass(&run, SECOND_US - 1, false);
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RECLAIMING);
    said = run_announcement(&run, "b");
    said.claim = (struct mst__claim){.epoch = 3, .round = 5, .world = 2, .rank = 1, .holds = true};
    assert_int_equal(run_say(&run, &said), 0);
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RUNNING);
    assert_told(&run, "");
    run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timer_decides_nothing),      cmocka_unit_test(long_poll),
        cmocka_unit_test(judged_as_of_what_was_read), cmocka_unit_test(stopped_driver),
        cmocka_unit_test(stopped_while_reclaiming),
    };
    return MST_RUN_TESTS(tests);
}
