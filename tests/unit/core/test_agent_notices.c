/* unit/core/test_agent_notices.c - a launcher: notices, drains, the end of its time. */
#include "unit/core/agent_unit.h"

static int with_notice(void **state)
{
    (void)reset(state);
    options.notice_signal = USR1;
    options.notice_us = 60 * SECOND_US;
    return 0;
}

static void workers_save_first(void **state)
{
    (void)state;
    begin();
    run(0);
    hears(0); /* there is no notice yet */
    assert_effects("");
    others_wait(1);
    hears(0);
    hears(1);
    hears(0);
    assert_effects("signal 10@0; signal 10@1; ");
    others_wait(2);
    assert_effects("");
    others_wait(0); /* they have gone away */
    hears(0);
    pass(61 * SECOND_US);
    assert_effects("");
    others_wait(1);
    hears(0);
    hears(1);
    assert_effects("signal 10@0; signal 10@1; ");
    saves(0);
    assert_effects("");
    exits(1, 0, 0); /* is an answer, too */
    assert_effects("signal 15; ");
    exits(0, 0, TERM);
    assert_effects("want; ");
    run(0);
    others_wait(1);
    pass(60 * SECOND_US - 1);
    assert_effects("");
    pass(1);
    assert_effects("signal 15; ");
}

/* Who has saved its work because of a notice that was taken back has to save it again. */
static void saved_too_early(void **state)
{
    (void)state;
    begin();
    run(0);
    others_wait(1);
    hears(0);
    saves(0);
    assert_effects("signal 10@0; ");
    others_wait(0);
    others_wait(1);
    hears(0);
    hears(1);
    assert_effects("signal 10@0; signal 10@1; ");
    saves(1);
    assert_effects("");
    saves(0);
    assert_effects("signal 15; ");
}

/* The signal would end a worker that has no handler yet. */
static void deaf_workers(void **state)
{
    (void)state;
    begin();
    run(0);
    drain(INT64_MAX);
    assert_effects("");
    hears(1);
    assert_effects("signal 10@1; ");
    saves(0); /* to an earlier notice */
    saves(1);
    assert_effects("");
    hears(0);
    assert_effects("signal 10@0; ");
    saves(0);
    assert_effects("signal 15; ");
    hears(0);
    saves(0); /* too late */
    assert_effects("");
    both_exit();
    assert_effects("leave; end 4; ");

    begin(); /* a worker that has ended gets none, and nobody waits for it */
    run(0);
    others_wait(1);
    exits(0, 0, 0);
    hears(0);
    hears(1);
    assert_effects("signal 10@1; ");
    saves(1);
    assert_effects("signal 15; ");
    exits(1, 0, 0);
    assert_effects("want; ");
    run(0); /* the next generation has not got it either */
    others_wait(1);
    hears(0);
    assert_effects("signal 10@0; ");
    exits(0, 0, 0);
    exits(1, 0, 0);
    assert_effects("want; ");
}

static void drained(void **state)
{
    (void)state;
    begin();
    run(0);
    drain(10 * SECOND_US);
    others_wait(0);
    assert_true(is_due_in(10 * SECOND_US));
    drain(INT64_MAX); /* the earlier limit stays */
    assert_true(is_due_in(10 * SECOND_US));
    drain(5 * SECOND_US);
    assert_true(is_due_in(5 * SECOND_US));
    pass(5 * SECOND_US);
    assert_effects("signal 15; ");
    both_exit();
    assert_effects("leave; end 4; ");

    begin();
    run(0);
    drain(100 * SECOND_US); /* no longer than the notice of the options */
    assert_true(is_due_in(60 * SECOND_US));

    begin();
    drain(INT64_MAX);
    assert_effects("leave; end 4; ");
    begin();
    happens(MST_AGENT_EVENT_SEALED);
    drain(INT64_MAX);
    assert_effects("assign; leave; end 4; ");
    begin();
    run(0);
    exits(0, 0, 0);
    exits(1, 0, 0);
    drain(INT64_MAX);
    assert_effects("finish; leave; end 4; ");
    assert_string_equal(agent.text, "");
}

/* Whatever happens in the time of the notice, the node leaves. */
static void drain_is_sticky(void **state)
{
    (void)state;
    static const enum mst__agent_reason reasons[] = {MST_AGENT_REASON_FAILURE,
                                                     MST_AGENT_REASON_JOIN, MST_AGENT_REASON_LEAVE};
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        begin();
        run(0);
        drain(INT64_MAX);
        over(reasons[i]); /* another node is lost, say */
        assert_effects("signal 15; ");
        both_exit();
        assert_effects("leave; end 4; ");
    }
    begin(); /* a worker of this node fails */
    run(0);
    drain(INT64_MAX);
    exits(0, 1, 0);
    assert_effects("restart 0:1/0; signal 15; ");
    exits(1, 0, TERM); /* it does not wait until that is told */
    assert_effects("leave; end 4; ");

    begin(); /* nodes wait, and go away */
    run(0);
    others_wait(1);
    drain(INT64_MAX);
    others_wait(0);
    assert_true(is_due_in(60 * SECOND_US));
    pass(60 * SECOND_US);
    both_exit();
    assert_effects("signal 15; leave; end 4; ");

    begin(); /* somebody asks for new generations before and after it */
    run(0);
    happens(MST_AGENT_EVENT_RESTART);
    drain(INT64_MAX);
    happens(MST_AGENT_EVENT_RESTART);
    others_wait(1);
    others_wait(0);
    hears(0);
    hears(1);
    saves(0);
    saves(1);
    both_exit();
    assert_effects("signal 10@0; signal 10@1; signal 15; leave; end 4; ");

    begin(); /* how the job ends tells more, and so does a signal */
    run(0);
    drain(INT64_MAX);
    closed(MST_JOB_OUTCOME_FINISHED, NULL);
    both_exit();
    assert_effects("signal 15; end 0; ");
    begin();
    run(0);
    drain(INT64_MAX);
    signalled(TERM);
    both_exit();
    assert_effects("signal 15; leave; end 3; ");
    begin();
    run(0);
    drain(INT64_MAX);
    over(MST_AGENT_REASON_LEAVE);
    closed(MST_JOB_OUTCOME_FAILED, NULL);
    both_exit();
    assert_effects("signal 15; end 1; ");
    begin(); /* the next one begins anew */
    run(0);
    over(MST_AGENT_REASON_LEAVE);
    both_exit();
    assert_effects("signal 15; want; ");
}

/* A request is not taken back when waiting nodes go away, one by a waiting node is. */
static void notices_overlap(void **state)
{
    (void)state;
    begin();
    run(0);
    others_wait(1);
    pass(10 * SECOND_US);
    happens(MST_AGENT_EVENT_RESTART);
    others_wait(0);
    assert_true(is_due_in(50 * SECOND_US)); /* the first notice counts */
    pass(50 * SECOND_US);
    both_exit();
    assert_effects("signal 15; want; ");
    run(0);
    assert_int_equal(agent.reason, MST_AGENT_REASON_REQUEST);
    happens(MST_AGENT_EVENT_RESTART);
    others_wait(1);
    others_wait(0);
    assert_true(is_due_in(60 * SECOND_US));
    over(MST_AGENT_REASON_FAILURE); /* the reason is the one that counts in the end */
    both_exit();
    assert_effects("signal 15; want; ");
    run(1);
    assert_int_equal(agent.reason, MST_AGENT_REASON_FAILURE);
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);

    others_wait(1);
    drain(INT64_MAX);
    others_wait(0); /* the newcomers are gone, the node has to leave as before */
    assert_true(is_due_in(60 * SECOND_US));
    pass(60 * SECOND_US);
    both_exit();
    assert_effects("signal 15; leave; end 4; ");
}

/* The machine is taken away at a time that is known: notice that long before it. */
static void taken_away(void **state)
{
    (void)state;
    options.end_us = 300 * (int64_t)SECOND_US;
    begin();
    run(0);
    assert_true(mst__agent_due_us(&agent) == 240 * (int64_t)SECOND_US);
    pass(140 * SECOND_US - 1);
    assert_false(agent.drains);
    pass(1);
    assert_true(agent.drains);
    hears(0);
    assert_effects("signal 10@0; ");
    assert_true(mst__agent_due_us(&agent) == 300 * (int64_t)SECOND_US);
    pass(60 * SECOND_US);
    assert_effects("signal 15; ");
    both_exit();
    assert_effects("leave; end 4; ");
}

/* Without a notice option there is none: the scheduler has its own signals. A newcomer's notice
 * becomes that of the end. */
static void taken_away_otherwise(void **state)
{
    (void)state;
    options.end_us = 300 * (int64_t)SECOND_US;
    options.notice_signal = 0;
    begin();
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
    run(0);
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
    pass(300 * SECOND_US);
    over(MST_AGENT_REASON_LEAVE);
    both_exit();
    assert_effects("signal 15; want; ");
    options.notice_signal = USR1;
    begin();
    run(0);
    pass(100 * SECOND_US);
    others_wait(1);
    pass(40 * SECOND_US);
    others_wait(0);
    assert_effects("");
    pass(20 * SECOND_US);
    both_exit();
    assert_effects("signal 15; leave; end 4; ");
}

/* Two nodes have the same end: when the first one leaves, the second one does not wait for it. */
static void no_time_for_a_round(void **state)
{
    (void)state;
    options.end_us = 300 * (int64_t)SECOND_US;
    begin();
    run(0);
    pass(140 * SECOND_US);
    over(MST_AGENT_REASON_LEAVE);
    both_exit();
    assert_effects("signal 15; leave; end 4; ");

    begin(); /* it waits when the time comes, or exchanges ranks, or pauses */
    run(0);
    over(MST_AGENT_REASON_LEAVE);
    both_exit();
    assert_effects("signal 15; want; ");
    assert_true(is_due_in(140 * SECOND_US));
    pass(140 * SECOND_US - 1);
    assert_effects("");
    pass(1);
    assert_effects("leave; end 4; ");
    assert_string_equal(agent.text, "its time ends");

    options.pause_us = options.pause_us_max = 20 * SECOND_US;
    begin();
    run(0);
    over(MST_AGENT_REASON_FAILURE);
    both_exit();
    happens(MST_AGENT_EVENT_SEALED);
    assert_effects("signal 15; want; assign; ");
    pass(139 * SECOND_US);
    assigned(1);
    assert_true(is_due_in(SECOND_US));
    pass(SECOND_US);
    assert_effects("leave; end 4; ");

    begin(); /* its work is done: it waits for the others, but does not run again */
    run(0);
    exits(0, 0, 0);
    exits(1, 0, 0);
    told_all();
    assert_effects("finish; ");
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
    pass(200 * SECOND_US);
    assert_effects("");
    over(MST_AGENT_REASON_LEAVE);
    assert_effects("leave; end 4; ");
}

/* The first workers run also in the time of the last notice: that may be all the time there is. */
static void short_time(void **state)
{
    (void)state;
    options.end_us = 110 * (int64_t)SECOND_US;
    begin();
    assert_true(is_due_in(10 * SECOND_US));
    pass(5 * SECOND_US);
    run(0);
    assert_true(mst__agent_due_us(&agent) <= agent.now_us);
    pass(0);
    assert_true(is_due_in(5 * SECOND_US));
    pass(5 * SECOND_US);
    both_exit();
    assert_effects("signal 15; leave; end 4; ");
    begin();
    pass(10 * SECOND_US);
    assert_effects("leave; end 4; ");
    options.end_us = SECOND_US; /* before the notice could begin: at once */
    begin();
    pass(0);
    assert_effects("leave; end 4; ");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, with_notice)
    const struct CMUnitTest tests[] = {
        CASE(workers_save_first),   CASE(deaf_workers),        CASE(drained),
        CASE(drain_is_sticky),      CASE(notices_overlap),     CASE(taken_away),
        CASE(taken_away_otherwise), CASE(no_time_for_a_round), CASE(short_time),
        CASE(saved_too_early),
    };
#undef CASE
    return MST_RUN_TESTS(tests);
}
