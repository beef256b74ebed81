/* unit/core/test_agent.c - the machine of a launcher, event by event. */
#include "core/agent.h"

#include <muster/error.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "unit/unit.h"

#define SECOND_US 1000000
#define TERM 15
#define USR1 10
#define INT 2

static struct mst__agent agent;
static struct mst__agent_worker workers[4];
static struct mst__agent_options options;
static char told[512];

static void print_effects(void)
{
    static const char *const names[] = {
        [MST_AGENT_WANT] = "want",       [MST_AGENT_ASSIGN] = "assign",
        [MST_AGENT_START] = "start",     [MST_AGENT_SIGNAL] = "signal",
        [MST_AGENT_KILL] = "kill",       [MST_AGENT_FINISH] = "finish",
        [MST_AGENT_RESTART] = "restart", [MST_AGENT_CLOSE] = "close",
        [MST_AGENT_LEAVE] = "leave",     [MST_AGENT_END] = "end",
    };
    size_t size = strlen(told);
    for (size_t i = 0; i < agent.effects_count; i++) {
        const struct mst__agent_effect *effect = &agent.effects[i];
        char detail[40] = "";
        if (effect->kind == MST_AGENT_SIGNAL) {
            (void)snprintf(detail, sizeof detail, " %u", effect->signal);
        } else if (effect->kind == MST_AGENT_RESTART) {
            (void)snprintf(detail, sizeof detail, " %u:%d/%u", effect->cause->worker,
                           effect->cause->status, effect->cause->signal);
        } else if (effect->kind == MST_AGENT_END) {
            (void)snprintf(detail, sizeof detail, " %d", (int)agent.end);
        }
        int count =
            snprintf(told + size, sizeof told - size, "%s%s; ", names[effect->kind], detail);
        assert_in_range(count, 1, (int)(sizeof told - size) - 1);
        size += (size_t)count;
    }
}

#define assert_effects(text)             \
    do {                                 \
        assert_string_equal(told, text); \
        told[0] = '\0';                  \
    } while (0)

static int reset(void **state)
{
    (void)state;
    options = (struct mst__agent_options){
        .workers = workers,
        .workers_count = 2,
        .stop_signal = TERM,
        .grace_us = 30 * SECOND_US,
        .kill_us = 5 * SECOND_US,
        .startup_us = INT64_MAX,
        .hang_us = INT64_MAX,
    };
    told[0] = '\0';
    return 0;
}

static void begin(void)
{
    mst__agent_init(&agent, &options, 100 * SECOND_US);
    print_effects();
    assert_effects("want; ");
}

static void step(struct mst__agent_event event)
{
    event.now_us = agent.now_us;
    mst__agent_step(&agent, &event);
    mst__agent_check(&agent);
    print_effects();
}

static void happens(enum mst__agent_event_kind kind)
{
    step((struct mst__agent_event){.kind = kind});
}

static void pass(int64_t us)
{
    struct mst__agent_event event = {.kind = MST_AGENT_EVENT_TIME, .now_us = agent.now_us + us};
    mst__agent_step(&agent, &event);
    mst__agent_check(&agent);
    print_effects();
}

static void assigned(uint32_t restarts)
{
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_ASSIGNED, .restarts = restarts});
}

static void exits(uint32_t worker, int32_t status, uint32_t signal)
{
    step((struct mst__agent_event){
        .kind = MST_AGENT_EVENT_EXITED, .worker = worker, .status = status, .signal = signal});
}

static void over(enum mst__agent_reason reason)
{
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_OVER, .reason = reason});
}

static void others_wait(uint32_t count)
{
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_WAITING, .count = count});
}

static void signalled(uint32_t signal)
{
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_SIGNAL, .signal = signal});
}

static void hastened(uint32_t signal)
{
    step((struct mst__agent_event){
        .kind = MST_AGENT_EVENT_SIGNAL, .signal = signal, .hastens = true});
}

static void closed(enum mst__job_outcome outcome, const struct mst__cause *cause)
{
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_CLOSED,
                                   .outcome = outcome,
                                   .cause = cause,
                                   .text = mst_bytes_str("why")});
}

/* The round is complete and the workers run. */
static void run(uint32_t restarts)
{
    happens(MST_AGENT_EVENT_SEALED);
    assert_effects("assign; ");
    assigned(restarts);
    assert_effects("start; ");
    assert_int_equal(agent.phase, MST_AGENT_RUNNING);
    assert_int_equal(agent.restarts, restarts);
}

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
    assert_effects("restart 0:0/11; want; ");
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

static void workers_save_first(void **state)
{
    (void)state;
    options.notice_signal = USR1;
    options.notice_us = 60 * SECOND_US;
    begin();
    run(0);
    others_wait(1);
    assert_effects("signal 10; ");
    others_wait(2);
    assert_effects("");
    others_wait(0); /* they have gone away */
    pass(61 * SECOND_US);
    assert_effects("");
    others_wait(1);
    assert_effects("signal 10; ");
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_SAVED, .worker = 0});
    assert_effects("");
    exits(1, 0, 0); /* is an answer, too */
    assert_effects("signal 15; ");
    exits(0, 0, TERM);
    assert_effects("want; ");
    run(0);
    others_wait(1);
    pass(60 * SECOND_US);
    assert_effects("signal 10; signal 15; ");
}

static void drained(void **state)
{
    (void)state;
    options.notice_signal = USR1;
    options.notice_us = 60 * SECOND_US;
    begin();
    run(0);
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_DRAIN,
                                   .deadline_us = agent.now_us + 10 * SECOND_US});
    assert_effects("signal 10; ");
    others_wait(0);
    assert_true(mst__agent_due_us(&agent) == agent.now_us + 10 * SECOND_US);
    pass(10 * SECOND_US);
    assert_effects("signal 15; ");
    exits(0, 0, 0);
    exits(1, 0, 0);
    assert_effects("leave; end 4; ");
}

/* The machine is taken away at a time that is known: notice that long before it. */
static void taken_away(void **state)
{
    (void)state;
    options.notice_signal = USR1;
    options.notice_us = 60 * SECOND_US;
    options.end_us = 300 * (int64_t)SECOND_US;
    begin();
    run(0);
    assert_true(mst__agent_due_us(&agent) == 240 * (int64_t)SECOND_US);
    pass(139 * SECOND_US);
    assert_effects("");
    pass(SECOND_US);
    assert_effects("signal 10; ");
    assert_true(mst__agent_due_us(&agent) == 300 * (int64_t)SECOND_US);
    pass(60 * SECOND_US);
    assert_effects("signal 15; ");
    exits(0, 0, 0);
    exits(1, 0, 0);
    assert_effects("leave; end 4; ");
}

/* Without a notice option there is none: the scheduler has its own signals. A newcomer's notice
 * becomes that of the end. */
static void taken_away_otherwise(void **state)
{
    (void)state;
    options.end_us = 300 * (int64_t)SECOND_US;
    begin();
    run(0);
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
    options.notice_signal = USR1;
    options.notice_us = 60 * SECOND_US;
    begin();
    run(0);
    pass(100 * SECOND_US);
    others_wait(1);
    assert_effects("signal 10; ");
    pass(40 * SECOND_US);
    others_wait(0);
    assert_effects("");
    pass(20 * SECOND_US);
    exits(0, 0, 0);
    exits(1, 0, 0);
    assert_effects("signal 15; leave; end 4; ");
}

static void hanging(void **state)
{
    (void)state;
    options.startup_us = 10 * SECOND_US;
    options.hang_us = 2 * SECOND_US;
    begin();
    run(0);
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_BEAT, .worker = 0});
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_BEAT, .worker = 1});
    pass(SECOND_US);
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_BEAT, .worker = 1});
    pass(SECOND_US);
    assert_effects("restart 0:0/0; signal 15; ");
    assert_string_equal(agent.cause_text, "no heartbeat for 2 s");
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
        happens(MST_AGENT_EVENT_SEALED);
        assigned(i + 1);
        assert_effects("restart 0:1/0; want; assign; ");
        assert_true(mst__agent_due_us(&agent) == agent.now_us + pauses_us[i]);
        pass(pauses_us[i]);
        assert_effects("start; ");
    }
    /* Not for changes of membership. */
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
    run(0);
    exits(0, 1, 0);
    assert_effects("restart 0:1/0; want; ");
    run(1);
    pass(6 * SECOND_US);
    exits(0, 1, 0);
    assert_effects("restart 0:1/0; want; ");
    run(2);
    exits(0, 1, 0);
    assert_effects("restart 0:1/0; want; ");
    run(3);
    exits(0, 1, 0);
    assert_effects("restart 0:1/0; close; want; ");
    closed(MST_JOB_OUTCOME_ASKED, NULL);
    assert_effects("end 1; ");
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
    begin();
    run(0);
    closed(MST_JOB_OUTCOME_ASKED, NULL);
    exits(0, 0, TERM);
    exits(1, 0, TERM);
    assert_effects("signal 15; end 2; ");
}

static void cut_off(void **state)
{
    (void)state;
    struct mst_err err;
    (void)mst__fail(&err, MST_ECONN, 0, "gone");
    options.cut_us = 60 * SECOND_US;
    begin();
    run(0);
    for (int i = 0; i < 2; i++) {
        step((struct mst__agent_event){.kind = MST_AGENT_EVENT_CUT, .err = &err});
        assert_true(mst__agent_due_us(&agent) == agent.now_us + 60 * SECOND_US);
        pass(59 * SECOND_US);
        happens(MST_AGENT_EVENT_AGAIN);
        assert_true(mst__agent_due_us(&agent) == INT64_MAX);
        pass(SECOND_US);
        assert_effects("");
    }
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_CUT, .err = &err});
    exits(0, 0, 0);
    pass(60 * SECOND_US);
    assert_effects("signal 15; ");
    exits(1, 0, 0);
    assert_effects("leave; end 9; ");
    /* When the work is done, too; but not while one waits for a round. */
    begin();
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_CUT, .err = &err});
    assert_true(mst__agent_due_us(&agent) == INT64_MAX);
    run(0);
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_CUT, .err = &err});
    exits(0, 0, 0);
    exits(1, 0, 0);
    pass(60 * SECOND_US);
    assert_effects("finish; leave; end 9; ");
}

static void excluded(void **state)
{
    (void)state;
    options.exclude_max = 1;
    begin();
    run(0);
    exits(0, 1, 0);
    exits(1, 0, TERM);
    assert_effects("restart 0:1/0; signal 15; leave; end 8; ");
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
    assert_effects("leave; end 6; ");
    assert_string_equal(agent.err.msg, "no such program");
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
        CASE(workers_save_first),
        CASE(drained),
        CASE(taken_away),
        CASE(taken_away_otherwise),
        CASE(hanging),
        CASE(pauses_grow),
        CASE(gives_up),
        CASE(others_give_up),
        CASE(cut_off),
        CASE(excluded),
        CASE(cannot_start),
        CASE(no_round),
    };
#undef CASE
    return MST_RUN_TESTS(tests);
}
