/* unit/core/test_agent.c - the machine of a launcher, event by event: its phases. */
#include "unit/core/agent_unit.h"

static void all_succeed(void **state)
{
    (void)state;
    begin();
    run(0);
    assert_int_equal(agent.reason, MST_AGENT_REASON_FIRST);
    exits(1, 0, 0);
    assert_effects("");
    exits(1, 0, 0); /* told twice */
    exits(0, 0, 0);
    assert_effects("finish; ");
    assert_int_equal(agent.phase, MST_AGENT_FINISHED);
    assert_true(is_due_in(10 * SECOND_US));
    told_all();
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
    closed(MST_JOB_OUTCOME_FINISHED, NULL);
    assert_effects("end 0; ");
    happens(MST_AGENT_EVENT_SEALED);
    signalled(TERM);
    assert_effects("");
}

static void one_fails(void **state)
{
    (void)state;
    begin();
    run(0);
    exits(1, 7, 0);
    assert_effects("restart 1:7/0; signal 15; ");
    over(MST_AGENT_REASON_FAILURE); /* the answer to our own word */
    told_all();
    exits(0, 0, TERM);
    assert_effects("want; ");
    run(1);
    assert_int_equal(agent.generation, 2);
    assert_int_equal(agent.reason, MST_AGENT_REASON_FAILURE);
}

/* The job's cause counts, not ours, and all end alike. */
static void beyond_the_budget(void **state)
{
    (void)state;
    begin();
    run(0);
    exits(0, 1, 0);
    assert_effects("restart 0:1/0; signal 15; ");
    const struct mst__cause cause = {
        .rank = 3, .worker = 1, .signal = 9, .node = mst_bytes_str("other")};
    closed(MST_JOB_OUTCOME_FAILED, &cause);
    assert_effects("");
    exits(1, 0, TERM);
    assert_effects("end 1; ");
    assert_int_equal(agent.cause.rank, 3);
    assert_int_equal(agent.cause.signal, 9);
    assert_string_equal(agent.cause_node, "other");
}

static void last_one_fails(void **state)
{
    (void)state;
    options.workers_count = 1;
    begin();
    run(0);
    exits(0, 0, 11);
    assert_effects("restart 0:0/11; ");
    assert_int_equal(agent.phase, MST_AGENT_TELLING);
    told_all();
    assert_effects("want; ");
    told_all(); /* too late */
    assert_effects("");
}

static void peers_are_lost(void **state)
{
    (void)state;
    begin();
    run(0);
    over(MST_AGENT_REASON_LEAVE);
    assert_effects("signal 15; ");
    pass(29 * SECOND_US);
    assert_effects("");
    exits(0, 0, 0);
    pass(SECOND_US);
    assert_effects("kill; ");
    exits(1, 0, 9);
    assert_effects("want; ");
    run(0);
    assert_int_equal(agent.reason, MST_AGENT_REASON_LEAVE);
    assert_int_equal(agent.failures, 0);
    /* Before its workers run, a round has nothing to stop. */
    over(MST_AGENT_REASON_LEAVE);
    exits(0, 0, 0);
    exits(1, 0, 0);
    assert_effects("signal 15; want; ");
    happens(MST_AGENT_EVENT_SEALED);
    over(MST_AGENT_REASON_LEAVE);
    assert_effects("assign; want; ");
    assigned(0); /* of the round before */
    assert_effects("");
}

/* A finished node runs again if the others must. */
static void finished_runs_again(void **state)
{
    (void)state;
    begin();
    run(0);
    exits(0, 0, 0);
    exits(1, 0, 0);
    assert_effects("finish; ");
    over(MST_AGENT_REASON_FAILURE);
    assert_effects("want; ");
    run(1);
}

static void signals_in_each_phase(void **state)
{
    (void)state;
    begin();
    signalled(TERM);
    assert_effects("leave; end 3; ");
    assert_int_equal(agent.signal, TERM);

    begin();
    happens(MST_AGENT_EVENT_SEALED);
    signalled(INT);
    assert_effects("assign; leave; end 3; ");

    begin();
    run(0);
    signalled(INT);
    assert_effects("signal 2; ");
    exits(0, 0, INT);
    exits(1, 0, INT);
    assert_effects("leave; end 3; ");

    begin();
    run(0);
    exits(0, 0, 0);
    exits(1, 0, 0);
    signalled(TERM);
    assert_effects("finish; leave; end 3; ");

    begin();
    run(0);
    over(MST_AGENT_REASON_LEAVE);
    signalled(TERM);
    assert_effects("signal 15; signal 15; ");
    closed(MST_JOB_OUTCOME_FINISHED, NULL);
    exits(0, 0, TERM);
    exits(1, 0, TERM);
    assert_effects("leave; end 3; ");
}

/* A scheduler repeats its signal: the workers keep their grace. A person may end it. */
static void signals_repeated(void **state)
{
    (void)state;
    begin();
    run(0);
    hastened(INT); /* the first one hastens nothing */
    assert_effects("signal 2; ");
    signalled(INT);
    signalled(TERM);
    pass(29 * SECOND_US);
    signalled(TERM);
    assert_effects("");
    pass(SECOND_US);
    assert_effects("kill; ");

    begin();
    run(0);
    signalled(TERM);
    assert_effects("signal 15; ");
    hastened(INT);
    assert_effects("kill; ");
    hastened(INT);
    assert_effects("");
    assert_int_equal(agent.signal, TERM);
    exits(0, 0, 9);
    exits(1, 0, 9);
    assert_effects("leave; end 3; ");

    begin(); /* the job has ended before the first signal */
    run(0);
    closed(MST_JOB_OUTCOME_FAILED, NULL);
    signalled(TERM);
    signalled(TERM);
    assert_effects("signal 15; signal 15; ");
    exits(0, 0, 0);
    exits(1, 0, 0);
    assert_effects("end 1; ");
}

static void worker_is_stuck(void **state)
{
    (void)state;
    begin();
    run(0);
    over(MST_AGENT_REASON_LEAVE);
    exits(0, 0, 0);
    pass(30 * SECOND_US);
    assert_effects("signal 15; kill; ");
    assert_true(mst__agent_due_us(&agent) == agent.now_us + 5 * SECOND_US);
    pass(5 * SECOND_US);
    assert_effects("leave; end 7; ");
}

static void newcomer(void **state)
{
    (void)state;
    begin();
    run(0);
    others_wait(1);
    assert_effects("signal 15; ");
    exits(0, 0, TERM);
    exits(1, 0, TERM);
    assert_effects("want; ");
    run(0);
    assert_int_equal(agent.reason, MST_AGENT_REASON_JOIN);
}

static void newcomer_has_to_wait(void **state)
{
    (void)state;
    options.on_join = MST_AGENT_JOIN_NEXT_RESTART;
    begin();
    run(0);
    others_wait(1);
    assert_effects("");
    assert_int_equal(agent.phase, MST_AGENT_RUNNING);
}

/* Events that come too late, or too early, for the phase. */
static void untimely(void **state)
{
    (void)state;
    struct mst_err err;
    (void)mst__fail(&err, MST_ETIMEOUT, 0, "nobody came");
    const struct mst__agent_event refused = {.kind = MST_AGENT_EVENT_REFUSED, .err = &err};
    const struct mst__agent_event unassigned = {.kind = MST_AGENT_EVENT_UNASSIGNED, .err = &err};
    begin();
    over(MST_AGENT_REASON_LEAVE);
    others_wait(1);
    assigned(0);
    step(unassigned);
    happens(MST_AGENT_EVENT_RESTART);
    assert_effects("");
    happens(MST_AGENT_EVENT_SEALED);
    happens(MST_AGENT_EVENT_SEALED);
    step(refused);
    happens(MST_AGENT_EVENT_RESTART);
    assert_effects("assign; ");
    others_wait(0);
    assert_effects("");
    others_wait(1); /* with them the round is another one */
    assert_effects("want; ");
    run(0);
    assert_int_equal(agent.reason, MST_AGENT_REASON_FIRST);
    happens(MST_AGENT_EVENT_SEALED);
    step(refused);
    others_wait(0);
    assert_effects("");
    exits(0, 0, 0);
    exits(1, 0, 0);
    others_wait(1); /* the work of this node is done */
    step(refused);
    assert_effects("finish; ");
    happens(MST_AGENT_EVENT_RESTART);
    assert_effects("want; ");
    run(0);
    assert_int_equal(agent.reason, MST_AGENT_REASON_REQUEST);
    exits(0, 1, 0);
    happens(MST_AGENT_EVENT_RESTART);
    others_wait(1);
    over(MST_AGENT_REASON_LEAVE);
    happens(MST_AGENT_EVENT_SEALED);
    step(refused);
    assert_effects("restart 0:1/0; signal 15; ");
    told_all();
    exits(1, 9, 0); /* of a worker that was told to stop */
    assert_effects("want; ");
    assert_int_equal(agent.reason, MST_AGENT_REASON_FAILURE); /* the first one */
    assert_int_equal(agent.failures, 1);
    assert_int_equal(agent.cause.status, 1);
    mst__agent_step(&agent, &(struct mst__agent_event){.now_us = 1}); /* the time goes back */
    assert_true(agent.now_us > SECOND_US);
}

/* A node that waits lets newcomers in only with --on-join restart, before its workers run, too. */
static void newcomer_before_the_start(void **state)
{
    (void)state;
    options.on_join = MST_AGENT_JOIN_NEXT_RESTART;
    begin();
    happens(MST_AGENT_EVENT_SEALED);
    others_wait(1);
    assert_effects("assign; ");
    assigned(0);
    assert_effects("start; ");
}

/* The job ends while the workers stop, and in each other phase. */
static void closed_in_each_phase(void **state)
{
    (void)state;
    begin();
    closed(MST_JOB_OUTCOME_ASKED, NULL);
    assert_effects("end 2; ");
    assert_string_equal(agent.text, "why");
    begin();
    happens(MST_AGENT_EVENT_SEALED);
    closed(MST_JOB_OUTCOME_FAILED, NULL);
    assert_effects("assign; end 1; ");
    begin();
    run(0);
    signalled(TERM);
    closed(MST_JOB_OUTCOME_ASKED, NULL); /* the signal was first */
    assert_string_equal(agent.text, "");
    assert_true(is_due_in(30 * SECOND_US)); /* the grace goes on */
    pass(30 * SECOND_US - 1);
    assert_effects("signal 15; ");
    pass(1);
    assert_effects("kill; ");
    closed(MST_JOB_OUTCOME_ASKED, NULL);
    signalled(INT);
    assert_effects("");
    pass(5 * SECOND_US - 1);
    assert_effects("");
    exits(0, 0, 9);
    pass(1);
    assert_effects("leave; end 7; ");
    begin(); /* how the job ended tells more than a stuck worker */
    run(0);
    closed(MST_JOB_OUTCOME_FAILED, NULL);
    pass(30 * SECOND_US);
    pass(5 * SECOND_US);
    assert_effects("signal 15; kill; end 1; ");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, reset)
    const struct CMUnitTest tests[] = {
        CASE(all_succeed),
        CASE(one_fails),
        CASE(beyond_the_budget),
        CASE(last_one_fails),
        CASE(peers_are_lost),
        CASE(finished_runs_again),
        CASE(signals_in_each_phase),
        CASE(signals_repeated),
        CASE(worker_is_stuck),
        CASE(newcomer),
        CASE(newcomer_has_to_wait),
        CASE(untimely),
        CASE(newcomer_before_the_start),
        CASE(closed_in_each_phase),
    };
#undef CASE
    return MST_RUN_TESTS(tests);
}
