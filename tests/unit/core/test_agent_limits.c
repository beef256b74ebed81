/* unit/core/test_agent_limits.c - a launcher: heartbeats, pauses, budgets, outages. */
#include "unit/core/agent_unit.h"

static void hanging(void **state)
{
    (void)state;
    options.startup_us = 10 * SECOND_US;
    options.hang_us = 2 * SECOND_US;
    begin();
    run(0);
    assert_true(is_due_in(10 * SECOND_US));
    beats(0);
    assert_true(is_due_in(2 * SECOND_US));
    beats(1);
    pass(SECOND_US);
    beats(1);
    pass(SECOND_US - 1);
    assert_effects("");
    pass(1);
    assert_effects("restart 0:0/0; signal 15; ");
    assert_string_equal(agent.cause_text, "no heartbeat for 2 s");
    told_all();
    both_exit();
    assert_effects("want; ");
    run(1); /* nobody has sent a heartbeat in this generation */
    assert_true(is_due_in(10 * SECOND_US));
    pass(10 * SECOND_US - 1);
    assert_effects("");
    pass(1);
    assert_effects("restart 0:0/0; signal 15; ");
    assert_string_equal(agent.cause_text, "no heartbeat for 10 s");
    told_all();
    both_exit();
    assert_effects("want; ");
    run(2);
    pass(9 * SECOND_US);
    beats(0);
    pass(SECOND_US); /* the other one */
    assert_effects("restart 1:0/0; signal 15; ");
}

/* Heartbeats are of one worker in one generation. */
static void old_heartbeats(void **state)
{
    (void)state;
    options.hang_us = 10 * SECOND_US;
    begin();
    run(0);
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
    pass(8 * SECOND_US);
    beats(0);
    assert_true(is_due_in(10 * SECOND_US));
    pass(3 * SECOND_US);
    beats(1);
    assert_true(is_due_in(7 * SECOND_US));
    beats(0);
    assert_true(is_due_in(10 * SECOND_US));
    exits(0, 0, 0); /* a worker that has ended need not send any */
    beats(0);
    pass(9 * SECOND_US);
    beats(1);
    pass(10 * SECOND_US - 1);
    assert_effects("");
    over(MST_AGENT_REASON_LEAVE);
    exits(1, 0, TERM);
    assert_effects("signal 15; want; ");
    run(0);
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
    pass(30 * SECOND_US);
    assert_effects("");
}

static void pauses_grow(void **state)
{
    (void)state;
    options.workers_count = 1;
    options.pause_us = SECOND_US;
    options.pause_us_max = 3 * SECOND_US;
    begin();
    run(0);
    static const int64_t pauses_us[] = {SECOND_US, 2 * SECOND_US, 3 * SECOND_US, 3 * SECOND_US};
    for (uint32_t i = 0; i < 4; i++) {
        exits(0, 1, 0);
        told_all();
        happens(MST_AGENT_EVENT_SEALED);
        assigned(i + 1);
        assert_effects("restart 0:1/0; want; assign; ");
        assert_true(is_due_in(pauses_us[i]));
        pass(pauses_us[i] - 1);
        assert_effects("");
        assigned(i + 1); /* told twice: the pause does not begin again */
        assert_true(is_due_in(1));
        pass(1);
        assert_effects("start; ");
    }
    over(MST_AGENT_REASON_FAILURE); /* of another node: the same pause */
    exits(0, 0, TERM);
    happens(MST_AGENT_EVENT_SEALED);
    assigned(2);
    assert_true(is_due_in(2 * SECOND_US));
    over(MST_AGENT_REASON_LEAVE); /* in the pause */
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
    assert_effects("signal 15; want; assign; want; ");
    run(2); /* not for changes of membership */
    over(MST_AGENT_REASON_LEAVE);
    exits(0, 0, TERM);
    assert_effects("signal 15; want; ");
    run(4);
}

static void gives_up(void **state)
{
    (void)state;
    options.workers_count = 1;
    options.quick_us = 5 * SECOND_US;
    options.quick_max = 2;
    begin();
    fails_after(5 * SECOND_US - 1);
    assert_effects("restart 0:1/0; want; ");
    fails_after(5 * SECOND_US); /* this one has run for a while */
    assert_effects("restart 0:1/0; want; ");
    fails_after(0);
    assert_effects("restart 0:1/0; want; ");
    run(3);
    exits(0, 0, 0); /* success: others fail */
    over(MST_AGENT_REASON_LEAVE);
    assert_effects("finish; want; ");
    fails_after(0);
    assert_effects("restart 0:1/0; want; ");
    fails_after(5 * SECOND_US - 1);
    assert_effects("restart 0:1/0; close; want; ");
    closed(MST_JOB_OUTCOME_ASKED, NULL);
    assert_effects("end 1; ");

    options.quick_max = 0;
    begin();
    for (int i = 0; i < 20; i++) {
        fails_after(0);
        assert_effects("restart 0:1/0; want; ");
    }
    closed(MST_JOB_OUTCOME_ASKED, NULL);
    assert_effects("end 2; ");
}

/* Failures of others count, so that all nodes know why the job is closed; a node that has not
 * seen them hears that it was closed on request. */
static void others_give_up(void **state)
{
    (void)state;
    const struct mst__cause cause = {.rank = 3, .status = 4, .node = mst_bytes_str("other")};
    options.quick_us = 5 * SECOND_US;
    options.quick_max = 2;
    begin();
    for (uint32_t i = 0; i < 2; i++) {
        run(i);
        step((struct mst__agent_event){
            .kind = MST_AGENT_EVENT_OVER, .reason = MST_AGENT_REASON_FAILURE, .cause = &cause});
        exits(0, 0, TERM);
        exits(1, 0, TERM);
        assert_effects("signal 15; want; ");
    }
    closed(MST_JOB_OUTCOME_ASKED, NULL);
    assert_effects("end 1; ");
    assert_int_equal(agent.cause.status, 4);
    begin(); /* also of a generation whose workers have succeeded here */
    for (uint32_t i = 0; i < 2; i++) {
        run(i);
        over(MST_AGENT_REASON_FAILURE);
        both_exit();
        assert_effects("signal 15; want; ");
        run(i);
        exits(0, 0, 0);
        exits(1, 0, 0);
        over(MST_AGENT_REASON_FAILURE);
        assert_effects("finish; want; ");
        assert_int_equal(agent.quick_count, 1);
    }
    begin();
    run(0);
    closed(MST_JOB_OUTCOME_ASKED, NULL);
    exits(0, 0, TERM);
    exits(1, 0, TERM);
    assert_effects("signal 15; end 2; ");
}

/* A round that is over before this node's workers have run is no generation of them that failed. */
static void failures_before_the_start(void **state)
{
    (void)state;
    options.quick_us = 5 * SECOND_US;
    options.quick_max = 1;
    begin();
    happens(MST_AGENT_EVENT_SEALED);
    over(MST_AGENT_REASON_FAILURE);
    happens(MST_AGENT_EVENT_SEALED);
    assigned(1);
    over(MST_AGENT_REASON_LEAVE);
    over(MST_AGENT_REASON_FAILURE); /* it stops already */
    both_exit();
    assert_effects("assign; want; assign; start; signal 15; want; ");
    assert_int_equal(agent.quick_count, 0);
    closed(MST_JOB_OUTCOME_ASKED, NULL);
    assert_effects("end 2; ");
}

static void cut_off(void **state)
{
    (void)state;
    options.cut_us = 60 * SECOND_US;
    begin();
    run(0);
    for (int i = 0; i < 2; i++) {
        cut();
        assert_true(is_due_in(60 * SECOND_US));
        pass(59 * SECOND_US);
        happens(MST_AGENT_EVENT_AGAIN);
        assert_true(mst__agent_due_us(&agent) == INT64_MAX);
        pass(SECOND_US);
        assert_effects("");
    }
    cut();
    exits(0, 0, 0);
    pass(60 * SECOND_US - 1);
    assert_effects("");
    pass(1);
    assert_effects("signal 15; ");
    assert_true(is_due_in(30 * SECOND_US));
    exits(1, 0, 0);
    assert_effects("leave; end 9; ");
    assert_string_equal(agent.err.msg, "gone");
    assert_false(agent.is_alone);
    begin(); /* between the round and its workers */
    happens(MST_AGENT_EVENT_SEALED);
    cut();
    pass(60 * SECOND_US);
    assert_effects("assign; leave; end 9; ");
}

/* When the work is done, nobody can be told. It was a success nevertheless. */
static void cut_off_after_the_work(void **state)
{
    (void)state;
    begin();
    run(0);
    cut();
    exits(0, 0, 0);
    exits(1, 0, 0);
    assert_effects("finish; ");
    pass(10 * SECOND_US - 1);
    assert_effects("");
    pass(1);
    assert_effects("leave; end 0; ");
    assert_true(agent.is_alone);
    assert_true(agent.tells);
    assert_string_equal(agent.silence.msg, "gone");
    begin(); /* it was told, but not of the end of the others */
    run(0);
    exits(0, 0, 0);
    exits(1, 0, 0);
    told_all();
    pass(1000 * (int64_t)SECOND_US);
    assert_effects("finish; ");
    cut();
    pass(60 * SECOND_US - 1);
    assert_effects("");
    pass(1);
    assert_effects("leave; end 0; ");
    assert_true(agent.is_alone);
    assert_false(agent.tells);
    begin(); /* both in time */
    run(0);
    exits(0, 0, 0);
    exits(1, 0, 0);
    told_all();
    cut();
    happens(MST_AGENT_EVENT_AGAIN);
    closed(MST_JOB_OUTCOME_FINISHED, NULL);
    assert_effects("finish; end 0; ");
    assert_false(agent.is_alone);
    options.cut_us = 5 * SECOND_US; /* the shorter limit counts */
    begin();
    run(0);
    cut();
    exits(0, 0, 0);
    exits(1, 0, 0);
    pass(5 * SECOND_US);
    assert_effects("finish; leave; end 0; ");
}

/* Nobody hears that the work is done. It is said again, and not for ever. */
static void success_is_not_heard(void **state)
{
    (void)state;
    begin();
    run(0);
    exits(0, 0, 0);
    exits(1, 0, 0);
    pass(9 * SECOND_US);
    assert_effects("finish; ");
    untold();
    assert_true(is_due_in(SECOND_US));
    pass(SECOND_US - 1);
    untold(); /* told twice */
    assert_effects("");
    assert_true(is_due_in(1));
    pass(1);
    assert_effects("leave; end 0; ");
    assert_true(agent.effects[0].until_us == agent.now_us + 2 * SECOND_US);
    assert_true(agent.is_alone && agent.tells);
    assert_string_equal(agent.silence.msg, "silence");

    begin();
    run(0);
    exits(0, 0, 0);
    exits(1, 0, 0);
    for (int i = 0; i < 3; i++) {
        assert_effects("finish; ");
        untold();
        pass(SECOND_US);
    }
    assert_true(agent.effects[0].is_again);
    assert_effects("finish; ");
    told_all();
    untold(); /* of an earlier one */
    pass(10 * SECOND_US);
    assert_effects("");
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);

    begin(); /* nothing is known but that there is no answer */
    run(0);
    exits(0, 0, 0);
    exits(1, 0, 0);
    pass(10 * SECOND_US);
    assert_effects("finish; leave; end 0; ");
    assert_string_equal(agent.silence.msg, "no answer in time");

    begin(); /* the others need another round */
    run(0);
    exits(0, 0, 0);
    exits(1, 0, 0);
    untold();
    over(MST_AGENT_REASON_LEAVE);
    pass(10 * SECOND_US);
    assert_effects("finish; want; ");
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
    assert_false(agent.tells);
}

/* Nobody hears that a worker has failed. If that ends the job, the node does not wait for long. */
static void failure_is_not_heard(void **state)
{
    (void)state;
    options.restarts_max = 1;
    begin();
    run(1);
    cut();
    pass(59 * SECOND_US);
    exits(0, 7, 0);
    assert_effects("restart 0:7/0; signal 15; ");
    untold();
    assert_true(is_due_in(30 * SECOND_US)); /* it is not repeated while workers stop */
    pass(2 * SECOND_US);                    /* and the outage does not end the node */
    assert_effects("");
    exits(1, 0, TERM);
    assert_int_equal(agent.phase, MST_AGENT_TELLING);
    assert_effects("");
    pass(0);
    assert_effects("restart 0:7/0; ");
    pass(10 * SECOND_US - 1);
    assert_effects("");
    pass(1);
    assert_effects("leave; end 1; ");
    assert_int_equal(agent.cause.status, 7);
    assert_true(agent.is_alone && agent.tells);

    begin(); /* the job would go on: that is worth more time */
    run(0);
    exits(0, 7, 0);
    exits(1, 0, TERM);
    assert_effects("restart 0:7/0; signal 15; ");
    pass(60 * SECOND_US - 1);
    assert_effects("");
    pass(1);
    assert_effects("leave; end 1; ");

    begin(); /* it is heard in the end, or the others have gone on */
    run(0);
    exits(0, 7, 0);
    exits(1, 0, TERM);
    pass(59 * SECOND_US);
    told_all();
    assert_effects("restart 0:7/0; signal 15; want; ");
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
    run(0);
    exits(0, 7, 0);
    exits(1, 0, TERM);
    over(MST_AGENT_REASON_FAILURE);
    assert_effects("restart 0:7/0; signal 15; want; ");

    begin(); /* a signal, and the end of the job, do not wait for it */
    run(1);
    exits(0, 7, 0);
    exits(1, 0, TERM);
    signalled(TERM);
    assert_effects("restart 0:7/0; signal 15; leave; end 3; ");
    begin();
    run(1);
    exits(0, 7, 0);
    exits(1, 0, TERM);
    closed(MST_JOB_OUTCOME_FAILED, NULL);
    assert_effects("restart 0:7/0; signal 15; end 1; ");
    assert_false(agent.is_alone);
    options.cut_us = 5 * SECOND_US; /* the shorter limit counts */
    begin();
    run(1);
    exits(0, 7, 0);
    exits(1, 0, TERM);
    pass(5 * SECOND_US);
    assert_effects("restart 0:7/0; signal 15; leave; end 1; ");
}

/* An outage that is over is not why a report is not heard. */
static void outage_that_was_over(void **state)
{
    (void)state;
    options.workers_count = 1;
    begin();
    run(0);
    cut();
    happens(MST_AGENT_EVENT_AGAIN);
    exits(0, 7, 0);
    pass(60 * SECOND_US);
    assert_effects("restart 0:7/0; leave; end 1; ");
    assert_true(agent.is_alone);
    assert_string_equal(agent.silence.msg, "no answer in time");
}

/* The wait for a round has its own limit; that of an outage before it does not end the node. */
static void cut_off_before_a_wait(void **state)
{
    (void)state;
    options.cut_us = 60 * SECOND_US;
    begin();
    cut();
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
    run(0);
    cut();
    over(MST_AGENT_REASON_LEAVE);
    assert_true(is_due_in(30 * SECOND_US));
    both_exit();
    assert_effects("signal 15; want; ");
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
    pass(61 * SECOND_US);
    assert_effects("");
    happens(MST_AGENT_EVENT_SEALED);
    cut();
    over(MST_AGENT_REASON_LEAVE);
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
    assert_effects("assign; want; ");
    run(0);
    exits(0, 0, 0);
    exits(1, 0, 0);
    cut();
    over(MST_AGENT_REASON_LEAVE);
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
    pass(61 * SECOND_US);
    assert_effects("finish; want; ");
    run(0);
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
}

/* So many failures of this node, in a row or not; those of others do not count. */
static void excluded(void **state)
{
    (void)state;
    options.workers_count = 1;
    options.exclude_max = 2;
    begin();
    fails_after(0);
    assert_effects("restart 0:1/0; want; ");
    run(1);
    over(MST_AGENT_REASON_FAILURE);
    exits(0, 1, 0);
    assert_effects("signal 15; want; ");
    run(2);
    exits(0, 0, 0);
    over(MST_AGENT_REASON_LEAVE);
    assert_effects("finish; want; ");
    fails_after(0);
    assert_effects("restart 0:1/0; leave; end 8; ");
    begin(); /* it goes also if nobody hears why */
    fails_after(0);
    assert_effects("restart 0:1/0; want; ");
    run(1);
    exits(0, 1, 0);
    assert_effects("restart 0:1/0; ");
    pass(10 * SECOND_US);
    assert_effects("leave; end 8; ");
    assert_true(agent.is_alone);
    begin(); /* how the job ends tells more */
    fails_after(0);
    assert_effects("restart 0:1/0; want; ");
    run(1);
    exits(0, 1, 0);
    closed(MST_JOB_OUTCOME_FAILED, NULL);
    assert_effects("restart 0:1/0; end 1; ");
    options.exclude_max = 0;
    begin();
    for (int i = 0; i < 20; i++) {
        fails_after(0);
        assert_effects("restart 0:1/0; want; ");
    }
}

static void cannot_start(void **state)
{
    (void)state;
    begin();
    run(0);
    struct mst_err err;
    (void)mst__fail(&err, MST_ENOTFOUND, 0, "no such program");
    step((struct mst__agent_event){
        .kind = MST_AGENT_EVENT_UNSTARTED, .worker = 1, .status = 127, .err = &err});
    assert_effects("restart 1:127/0; signal 15; ");
    exits(0, 0, TERM);
    assert_effects("");
    told_all();
    assert_effects("leave; end 6; ");
    assert_string_equal(agent.err.msg, "no such program");
    assert_false(agent.is_alone);
    begin(); /* not even the first one */
    run(0);
    step((struct mst__agent_event){
        .kind = MST_AGENT_EVENT_UNSTARTED, .worker = 0, .status = 126, .err = &err});
    told_all();
    assert_effects("restart 0:126/0; leave; end 6; ");
}

static void no_round(void **state)
{
    (void)state;
    struct mst_err err;
    (void)mst__fail(&err, MST_ETIMEOUT, 0, "nobody came");
    begin();
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_REFUSED, .err = &err});
    assert_effects("leave; end 5; ");
    begin();
    for (int i = 1; i < MST_AGENT_UNASSIGNED_MAX; i++) {
        happens(MST_AGENT_EVENT_SEALED);
        step((struct mst__agent_event){.kind = MST_AGENT_EVENT_UNASSIGNED, .err = &err});
        assert_effects("assign; want; ");
    }
    happens(MST_AGENT_EVENT_SEALED);
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_UNASSIGNED, .err = &err});
    assert_effects("assign; leave; end 5; ");
    assert_string_equal(agent.err.msg, "nobody came");
    begin();
    for (int i = 1; i < 3 * MST_AGENT_UNASSIGNED_MAX; i++) { /* never so many in a row */
        happens(MST_AGENT_EVENT_SEALED);
        if (i % MST_AGENT_UNASSIGNED_MAX != 0) {
            step((struct mst__agent_event){.kind = MST_AGENT_EVENT_UNASSIGNED, .err = &err});
            assert_effects("assign; want; ");
            continue;
        }
        assigned(0);
        step((struct mst__agent_event){.kind = MST_AGENT_EVENT_UNASSIGNED, .err = &err}); /* late */
        over(MST_AGENT_REASON_LEAVE);
        both_exit();
        assert_effects("assign; start; signal 15; want; ");
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, reset)
    const struct CMUnitTest tests[] = {
        CASE(hanging),  CASE(old_heartbeats),         CASE(pauses_grow),
        CASE(gives_up), CASE(others_give_up),         CASE(failures_before_the_start),
        CASE(cut_off),  CASE(cut_off_after_the_work), CASE(cut_off_before_a_wait),
        CASE(excluded), CASE(outage_that_was_over),   CASE(cannot_start),
        CASE(no_round), CASE(success_is_not_heard),   CASE(failure_is_not_heard),
    };
#undef CASE
    return MST_RUN_TESTS(tests);
}
