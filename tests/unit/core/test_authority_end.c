/* unit/core/test_authority_end.c - the authority machine: nodes that finish and work that fails,
 * before and after losses, leaves and newcomers. */
#include "unit/core/authority_unit.h"

#define BOOM(node, rank) "node '" node "' (rank " rank "), worker 1: exit status 7: boom"

/* A round of a, b and c; at least @min, at most @max. */
static void run_three(struct unit_run *run, uint32_t min, uint32_t max)
{
    run_init(run, min, max);
    run_join(run, "a");
    run_join(run, "b");
    run_join(run, "c");
    run_pass(run, 30 * SECOND_US, true);
    assert_told(run, "sealed 7/1 of 3 at a a=0 b=1 c=2; ");
}

static uint32_t standing_count(const struct unit_run *run, enum mst__authority_standing standing)
{
    uint32_t counts[MST_STANDING_COUNT];
    mst__authority_count_standings(&run->authority, counts);
    return counts[standing];
}

/* --- finish --- */

static void all_finish(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 3, 3);
    run_join(&run, "d");
    assert_told(&run, "spare d; ");
    assert_int_equal(run_finish(&run, "b"), 0);
    assert_int_equal(run_finish(&run, "b"), 0); /* repeated: nothing changes */
    assert_int_equal(run_finish(&run, "a"), 0);
    assert_int_equal(standing_count(&run, MST_STANDING_FINISHED), 2);
    assert_int_equal(standing_count(&run, MST_STANDING_MEMBER), 1);
    char text[200];
    mst__authority_describe(&run.authority, run.now_us, text, sizeof text);
    assert_string_equal(text, "round 1 runs with 3 nodes, 2 finished; at work: c; 1 on standby: d");
    assert_told(&run, "");
    assert_int_equal(run_finish(&run, "c"), 0);
    assert_told(&run, "finished: all 3 nodes of round 1; ");
    assert_int_equal(run.authority.phase, MST_AUTHORITY_CLOSED);
    assert_int_equal(run.authority.stats.finishes, 3);
    /* Newcomers are told, too. */
    struct mst__announcement late = run_announcement(&run, "e");
    assert_int_equal(run_say(&run, &late), MST_EFINISHED);
    assert_int_equal(run.refusal, MST_REFUSAL_CLOSED);
    assert_string_equal(run.err.msg, "the job has finished: all 3 nodes of round 1");
    run_close(&run);
}

/* Silent, cut off, dead or gone: a finished member is not lost, and the round goes on. */
static void finished_is_not_lost(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 3, 3);
    assert_int_equal(run_finish(&run, "a"), 0);
    assert_int_equal(run_finish(&run, "b"), 0);
    run_cut(&run, "b");
    for (int i = 0; i < 100; i++) { /* of a, too, nothing is heard */
        run.now_us += SECOND_US;
        assert_int_equal(step_heard(&run.authority, run_id(&run, "c"), run.now_us), 0);
        step_time(&run.authority, run.now_us);
    }
    assert_told(&run, "");
    run_join(&run, "b");
    assert_told(&run, "sealed 7/1 of 3 at a b=1; ");
    run_leave(&run, "a");
    run_lose(&run, "b");
    assert_told(&run, "");
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RUNNING);
    assert_int_equal(run.authority.stats.losses, 0);
    assert_int_equal(run.authority.living_count, 1);
    assert_int_equal(run_finish(&run, "c"), 0);
    assert_told(&run, "finished: all 3 nodes of round 1; ");
    run_close(&run);
}

/* Other members are lost as usual, and the round is over for all. */
static void loss_after_finish(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 2, 3);
    assert_int_equal(run_finish(&run, "a"), 0);
    run_lose(&run, "c");
    assert_told(&run, "lost c=2; reopened 2 lost c; ");
    assert_int_equal(run_finish(&run, "b"), MST_ESTATE); /* too late */
    run_back(&run, "b");
    assert_told(&run, "");
    /* It is waited for, as it lives. */
    assert_int_equal(standing_count(&run, MST_STANDING_CALLED), 1);
    run_back(&run, "a");
    assert_told(&run, "sealed 7/2 of 2 at a a=0 b=1; ");
    assert_int_equal(run.authority.finished_count, 0);
    assert_int_equal(run_finish(&run, "a"), 0);
    assert_int_equal(run_finish(&run, "b"), 0);
    assert_told(&run, "finished: all 2 nodes of round 2; ");
    run_close(&run);
}

/* Work that fails because a peer is gone uses no restart, in any order of the news. */
static void failure_of_a_lost_peer(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 3);
    run.budget = (struct mst__budget){.is_limited = true};
    run_join(&run, "a");
    run_join(&run, "b");
    run_join(&run, "c");
    assert_told(&run, "sealed 7/1 of 3 at a a=0 b=1 c=2; ");
    run_cut(&run, "c");
    assert_int_equal(run_fail(&run, "a", 7), 0);
    assert_told(&run, "reopened 2 lost c; ");
    assert_int_equal(run_fail(&run, "b", 7), MST_ESTATE);
    assert_int_equal(run.authority.restarts_total, 0);
    run_back(&run, "a");
    run_back(&run, "b");
    assert_told(&run, ""); /* c may be about to come back */
    run_pass(&run, SECOND_US, true);
    assert_told(&run, "sealed 7/2 of 2 at a a=0 b=1; ");
    /* All are there: it is a failure. */
    assert_int_equal(run_fail(&run, "a", 7), 0);
    assert_told(&run, "failed: " BOOM("a", "0") "; ");
    run_close(&run);
}

/* Nor does one while another member has said that it leaves, in its round and about now. */
static void failure_beside_a_leaving_node(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 3);
    run.budget = (struct mst__budget){.is_limited = true};
    run_join(&run, "a");
    run_join(&run, "b");
    run_join(&run, "c");
    assert_told(&run, "sealed 7/1 of 3 at a a=0 b=1 c=2; ");
    struct mst__authority *authority = &run.authority;
    assert_int_equal(step_leaving(authority, run_id(&run, "c"), 2, 0, run.now_us), MST_ESTATE);
    assert_int_equal(step_leaving(authority, run_id(&run, "c"), 1, 5 * SECOND_US, run.now_us), 0);
    assert_told(&run, "");
    run_pass(&run, 5 * SECOND_US, true);
    assert_int_equal(run_fail(&run, "a", 7), 0);
    assert_told(&run, "reopened 2 left c; ");
    assert_int_equal(authority->restarts_total, 0);
    run_back(&run, "a");
    run_back(&run, "b");
    assert_told(&run, ""); /* its workers may still run */
    run_leave(&run, "c");
    assert_told(&run, "sealed 7/2 of 2 at a a=0 b=1; ");
    /* One that stays although it has said so. */
    assert_int_equal(step_leaving(authority, run_id(&run, "b"), 2, -1, run.now_us), 0);
    run_pass(&run, 15 * SECOND_US, true);
    assert_int_equal(authority->phase, MST_AUTHORITY_RUNNING);
    run.now_us += 1;
    assert_int_equal(run_fail(&run, "a", 7), 0);
    assert_told(&run, "failed: " BOOM("a", "0") "; ");
    run_close(&run);
}

/* Its own failure is one, and what it said of a round ends with that. */
static void failure_of_a_leaving_node(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 2, 3);
    assert_int_equal(step_leaving(&run.authority, run_id(&run, "c"), 1, INT64_MAX, run.now_us), 0);
    assert_int_equal(run_fail(&run, "c", 7), 0);
    assert_told(&run, "reopened 2 failed c; ");
    run_back(&run, "a");
    run_back(&run, "b");
    run_back(&run, "c");
    assert_told(&run, "sealed 7/2 of 3 at a a=0 b=1 c=2; ");
    assert_int_equal(step_leaving(&run.authority, run_id(&run, "a"), 2, 0, run.now_us), 0);
    assert_int_equal(run_fail(&run, "a", 7), 0);
    assert_told(&run, "reopened 3 failed a; ");
    run_close(&run);
}

/* A finished member that is gone is not waited for. */
static void gone_is_released(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 2, 3);
    assert_int_equal(run_finish(&run, "a"), 0);
    run_cut(&run, "a");
    run_pass(&run, SECOND_US, true);
    assert_int_equal(run_fail(&run, "c", 7), 0);
    assert_told(&run, "reopened 2 failed c; ");
    run_back(&run, "b");
    run_back(&run, "c");
    assert_told(&run, "sealed 7/2 of 2 at c c=0 b=1; ");
    run_close(&run);
}

/* Unless it has been away for a moment only: then it has its grace to come again. */
static void cut_is_called_back(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 3, 3);
    assert_int_equal(run_finish(&run, "a"), 0);
    run_cut(&run, "a");
    assert_int_equal(run_fail(&run, "c", 7), 0);
    struct mst__announcement again = run_announcement(&run, "a");
    again.claim = run_claim(&run, "a");
    again.claim.holds = true;
    assert_int_equal(run_say(&run, &again), 0);
    assert_told(&run, "reopened 2 failed c; reopened 2 failed a; ");
    run_cut(&run, "a");
    run_pass(&run, SECOND_US, true);
    assert_told(&run, "failed: " BOOM("c", "2") "; ");
    run_close(&run);
}

/* So it has when the driver was stopped: its word may be unread. */
static void called_back_by_a_stopped_driver(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 3, 3);
    assert_int_equal(run_finish(&run, "a"), 0);
    run_cut(&run, "a");
    run.now_us += 3600 * (int64_t)SECOND_US;
    assert_int_equal(run_fail(&run, "c", 7), 0);
    assert_told(&run, "reopened 2 failed c; ");
    run_back(&run, "a");
    assert_int_equal(run.authority.phase, MST_AUTHORITY_OPEN);
    run_close(&run);
}

/* Too few are left because others have finished: the job ends with the cause of that round. */
static void too_few_after_failure(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 3, 3);
    assert_int_equal(run_finish(&run, "a"), 0);
    run_leave(&run, "a");
    assert_int_equal(run_fail(&run, "c", 7), 0);
    assert_told(&run, "failed: " BOOM("c", "2") "; ");
    assert_int_equal(run.authority.cause.rank, 2);
    run_close(&run);
}

static void too_few_after_loss(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 3, 3);
    assert_int_equal(run_finish(&run, "a"), 0);
    run_cut(&run, "a");
    run_pass(&run, SECOND_US, true);
    run_lose(&run, "b");
    assert_told(&run, "failed: node 'b' (rank 1): lost; 1 nodes that had finished are gone, and 1 "
                      "are fewer than the minimum of 3; ");
    run_close(&run);
    /* Also if it goes after it was called back, in any way. */
    for (int how = 0; how < 3; how++) {
        run_three(&run, 2, 3);
        assert_int_equal(run_finish(&run, "a"), 0);
        run_lose(&run, "b");
        assert_told(&run, "lost b=1; reopened 2 lost b; ");
        run_back(&run, "c");
        if (how == 0) {
            run_leave(&run, "a");
        } else if (how == 1) {
            run_cut(&run, "a");
            run_pass(&run, 2 * SECOND_US, true);
        } else {
            run_lose(&run, "a");
        }
        assert_told(&run, "failed: node 'b' (rank 1): lost; 1 nodes that had finished are gone, "
                          "and 1 are fewer than the minimum of 2; ");
        assert_int_equal(run.authority.stats.losses, 1);
        run_close(&run);
    }
}

/* A spare takes the place of a finished member that is gone. */
static void spare_for_the_finished(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 3, 3);
    run_join(&run, "d");
    assert_told(&run, "spare d; ");
    assert_int_equal(run_finish(&run, "a"), 0);
    run_leave(&run, "a");
    run_lose(&run, "b");
    assert_told(&run, "failed: node 'b' (rank 1): lost; 1 nodes that had finished are gone, and 2 "
                      "are fewer than the minimum of 3; ");
    run_close(&run);
    run_three(&run, 3, 3);
    run_join(&run, "d");
    run_join(&run, "e");
    assert_told(&run, "spare d; spare e; ");
    assert_int_equal(run_finish(&run, "a"), 0);
    run_leave(&run, "a");
    run_lose(&run, "b");
    run_back(&run, "c");
    assert_told(&run, "lost b=1; reopened 2 lost b; sealed 7/2 of 3 at d d=0 e=1 c=2; ");
    run_close(&run);
}

/* A new process of a finished node waits, and disturbs no member. */
static void finished_and_started_again(void **state)
{
    (void)state;
    struct unit_run run;
    for (int is_gone = 0; is_gone < 2; is_gone++) {
        run_three(&run, 2, 4);
        assert_int_equal(run_finish(&run, "a"), 0);
        if (is_gone == 1) {
            run_leave(&run, "a");
        }
        struct mst__announcement again = run_announcement(&run, "a");
        again.incarnation = 2;
        again.session = 2;
        assert_int_equal(run_say(&run, &again), 0);
        /* Although there is room, the others are not asked to give way. */
        assert_told(&run, is_gone == 1 ? "queued a; " : "expelled a; queued a; ");
        assert_int_equal(run.authority.released_count, 1);
        assert_null(mst__authority_ranked(&run.authority, 0));
        assert_int_equal(run_finish(&run, "b"), 0);
        assert_int_equal(run_finish(&run, "c"), 0);
        assert_told(&run, "finished: all 3 nodes of round 1; ");
        run_close(&run);
    }
}

/* When the round is over, a new process of a finished node is that node: nothing is missing but
 * what was lost, and the job waits for that. */
static void finished_and_started_for_the_next(void **state)
{
    (void)state;
    struct unit_run run;
    for (int is_gone = 0; is_gone < 2; is_gone++) {
        run_three(&run, 3, 3);
        run_join(&run, "d");
        assert_int_equal(run_finish(&run, "a"), 0);
        if (is_gone == 1) {
            run_leave(&run, "a");
        }
        assert_int_equal(run_fail(&run, "b", 7), 0);
        assert_told(&run, "spare d; reopened 2 failed b; ");
        struct mst__announcement again = run_announcement(&run, "a");
        again.incarnation = 2;
        again.session = 2;
        assert_int_equal(run_say(&run, &again), 0);
        assert_told(&run, is_gone == 1 ? "" : "expelled a; ");
        assert_int_equal(run.authority.released_count, 0);
        run_lose(&run, "d");
        run_lose(&run, "c");
        assert_int_equal(run.authority.phase, MST_AUTHORITY_OPEN);
        run_back(&run, "b");
        run_join(&run, "c");
        run_pass(&run, 30 * SECOND_US, true);
        assert_int_equal(run.authority.phase, MST_AUTHORITY_RUNNING);
        run_close(&run);
    }
}

/* Nor to newcomers after a member has finished; those that were told are told again. */
static void newcomers_wait_for_the_end(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 2, 5);
    run_join(&run, "d");
    assert_told(&run, "queued d; waiting 1; ");
    assert_int_equal(run_finish(&run, "a"), 0);
    assert_told(&run, "waiting 0; ");
    run_join(&run, "e");
    assert_told(&run, "queued e; ");
    /* When the round is over all the same they are in the next one. */
    run_back(&run, "b");
    run_back(&run, "a");
    run_back(&run, "c");
    assert_told(&run, "reopened 2 returned b; sealed 7/2 of 5 at a a=0 b=1 c=2 d=3 e=4; ");
    run_close(&run);
}

static void finish_of_another_round(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 3, 3);
    mst__authority_id id = run_id(&run, "a");
    assert_int_equal(step_word(&run.authority, id, 7, 2, NULL, run.now_us), MST_ESTATE);
    assert_int_equal(step_word(&run.authority, id, 6, 1, NULL, run.now_us), MST_ESTATE);
    run_join(&run, "d");
    assert_told(&run, "spare d; ");
    assert_int_equal(run_finish(&run, "d"), MST_ESTATE);
    run_leave(&run, "a");
    assert_int_equal(step_word(&run.authority, id, 7, 1, NULL, run.now_us), MST_ENOTFOUND);
    assert_int_equal(run.authority.finished_count, 0);
    run_close(&run);
}

/* After a restart of the authority all say it again. */
static void finish_is_repeated(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 2);
    struct mst__announcement said = run_announcement(&run, "a");
    said.claim = (struct mst__claim){.epoch = 5, .round = 9, .world = 2, .rank = 0, .holds = true};
    assert_int_equal(run_say(&run, &said), 0);
    assert_int_equal(run_finish(&run, "a"), 0);
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RECLAIMING);
    run_leave(&run, "a");
    said = run_announcement(&run, "b");
    said.claim = (struct mst__claim){.epoch = 5, .round = 9, .world = 2, .rank = 1, .holds = true};
    assert_int_equal(run_say(&run, &said), 0);
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RUNNING);
    assert_int_equal(run_finish(&run, "b"), 0);
    assert_told(&run, "finished: all 2 nodes of round 9; ");
    run_close(&run);
}

/* A closed run without nodes is forgotten: finished members are not kept for ever. */
static void finished_expire_when_closed(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 3, 3);
    assert_int_equal(run_finish(&run, "a"), 0);
    assert_int_equal(run_finish(&run, "b"), 0);
    run_cut(&run, "b");
    assert_int_equal(run_finish(&run, "c"), 0);
    run_pass(&run, 20 * SECOND_US, false);
    assert_int_equal(run.authority.living_count, 0);
    run_close(&run);
}

/* --- failures --- */

static void all_back(struct unit_run *run)
{
    run_back(run, "a");
    run_back(run, "b");
    run_back(run, "c");
}

static void budget_in_total(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 3, 3);
    run.budget = (struct mst__budget){.is_limited = true, .restarts_max = 2};
    run.has_starts = true;
    run_join(&run, "a");
    run_join(&run, "b");
    run_join(&run, "c");
    assert_told(&run, "sealed 7/1 of 3 at a a=0 b=1 c=2, 0 first; ");
    assert_int_equal(run_fail(&run, "b", 7), 0);
    assert_int_equal(run_fail(&run, "a", 1), MST_ESTATE); /* follows from the first */
    assert_told(&run, "reopened 2 failed b; ");
    assert_int_equal(run.authority.cause.status, 7);
    assert_int_equal(run.authority.restarts, 1);
    all_back(&run);
    assert_told(&run, "sealed 7/2 of 3 at a a=0 b=1 c=2, 1 failed; ");
    /* Losses and leaves are free. */
    run_lose(&run, "c");
    run_join(&run, "c");
    run_back(&run, "a");
    run_back(&run, "b");
    assert_told(&run, "lost c=2; reopened 3 lost c; sealed 7/3 of 3 at a a=0 b=1 c=2, 1 lost; ");
    assert_int_equal(run.authority.restarts, 1);
    run.now_us += 3600 * (int64_t)SECOND_US;
    run_beat(&run);
    assert_int_equal(run_fail(&run, "c", 2), 0);
    all_back(&run);
    assert_told(&run, "reopened 4 failed c; sealed 7/4 of 3 at a a=0 b=1 c=2, 2 failed; ");
    assert_int_equal(run_fail(&run, "a", 7), 0);
    assert_told(&run, "failed: " BOOM("a", "0") "; ");
    assert_int_equal(run.authority.restarts, 2);
    assert_int_equal(run_fail(&run, "b", 9), MST_ESTATE);
    struct mst__announcement late = run_announcement(&run, "d");
    assert_int_equal(run_say(&run, &late), MST_ECLOSED);
    assert_string_equal(run.err.msg, "the job has failed: " BOOM("a", "0"));
    run_close(&run);
}

/* The reason for a round and the restarts before it are the same for all members, also for one
 * that hears of it when it is over. */
static void starts(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 3);
    run.has_starts = true;
    run_join(&run, "a");
    run_join(&run, "b");
    run_pass(&run, run.last_call_us, true);
    assert_told(&run, "sealed 7/1 of 2 at a a=0 b=1, 0 first; ");
    run_join(&run, "c");
    run_back(&run, "a");
    run_back(&run, "b");
    assert_told(&run, "queued c; waiting 1; reopened 2 returned a; "
                      "sealed 7/2 of 3 at a a=0 b=1 c=2, 0 joined; ");
    run_back(&run, "c");
    run_back(&run, "a");
    run_back(&run, "b");
    assert_told(&run, "reopened 3 returned c; sealed 7/3 of 3 at a a=0 b=1 c=2, 0 asked; ");
    run_leave(&run, "c");
    run_join(&run, "d");
    run_back(&run, "a");
    run_back(&run, "b");
    assert_told(&run, "reopened 4 left c; sealed 7/4 of 3 at a a=0 b=1 d=2, 0 left; ");
    assert_int_equal(run_fail(&run, "b", 7), 0);
    assert_told(&run, "reopened 5 failed b; ");
    run_join(&run, "d"); /* it knows nothing of the round */
    assert_told(&run, "sealed 7/4 of 3 at a d=2, 0 left; reopened 5 failed d; ");
    run_close(&run);
}

static void no_restarts(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 2);
    run.budget = (struct mst__budget){.is_limited = true};
    run_join(&run, "a");
    run_join(&run, "b");
    assert_told(&run, "sealed 7/1 of 2 at a a=0 b=1; ");
    assert_int_equal(run_fail(&run, "b", 7), 0);
    assert_told(&run, "failed: " BOOM("b", "1") "; ");
    assert_string_equal(run.authority.close_owner, "b");
    run_close(&run);
}

/* The window begins with the first restart, and then anew with the first behind it. */
static void budget_in_a_window(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 1);
    run.budget =
        (struct mst__budget){.is_limited = true, .restarts_max = 2, .window_us = 10 * SECOND_US};
    run_join(&run, "a");
    for (int i = 0; i < 5; i++) {
        assert_int_equal(run_fail(&run, "a", 7), 0);
        run_back(&run, "a");
        assert_int_equal(run_fail(&run, "a", 7), 0);
        run_back(&run, "a");
        run_pass(&run, 10 * SECOND_US, true);
    }
    assert_int_equal(run.authority.stats.restarts, 10);
    assert_int_equal(run.authority.round_restarts, 10); /* of all windows */
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RUNNING);
    assert_int_equal(run_fail(&run, "a", 7), 0);
    run_back(&run, "a");
    run_pass(&run, 9 * SECOND_US, true);
    assert_int_equal(run_fail(&run, "a", 7), 0);
    run_back(&run, "a");
    assert_int_equal(run_fail(&run, "a", 7), 0);
    assert_int_equal(run.authority.phase, MST_AUTHORITY_CLOSED);
    assert_int_equal(run.authority.outcome, MST_JOB_OUTCOME_FAILED);
    run_close(&run);
}

/* A window that is longer than the machine runs begins with the first restart, too. */
static void budget_in_a_long_window(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 1);
    int64_t window_us = run.now_us + 50 * SECOND_US;
    run.budget =
        (struct mst__budget){.is_limited = true, .restarts_max = 1, .window_us = window_us};
    run_join(&run, "a");
    assert_int_equal(run_fail(&run, "a", 7), 0);
    run_back(&run, "a");
    run_pass(&run, window_us - 1, true);
    assert_int_equal(run_fail(&run, "a", 7), 0);
    assert_int_equal(run.authority.phase, MST_AUTHORITY_CLOSED);
    run_close(&run);
}

static void all_agree_on_the_budget(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 4);
    run.budget = (struct mst__budget){.is_limited = true, .restarts_max = 3};
    run_join(&run, "a");
    const struct mst__budget others[] = {
        {.is_limited = false},
        {.is_limited = true, .restarts_max = 2},
        {.is_limited = true, .restarts_max = 3, .window_us = SECOND_US},
    };
    for (size_t i = 0; i < 3; i++) {
        struct mst__announcement said = run_announcement(&run, "b");
        said.budget = others[i];
        assert_int_equal(run_say(&run, &said), MST_EINVAL);
        assert_int_equal(run.refusal, MST_REFUSAL_SETTINGS);
        assert_non_null(strstr(run.err.msg, "this run has 3 restarts, as node 'a' said"));
    }
    struct mst__announcement said = run_announcement(&run, "b");
    said.budget.window_us = -1;
    assert_int_equal(run_say(&run, &said), MST_EINVAL);
    assert_int_equal(run.refusal, MST_REFUSAL_MALFORMED);
    run_close(&run);
}

/* A node that was cut off hears the cause when it comes again; texts have their limits. */
static void cause_is_told_again(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 3, 3);
    char text[600];
    memset(text, 'x', sizeof text);
    const struct mst__cause cause = {
        .worker = MST_CAUSE_WORKER_NONE, .signal = 9, .text = mst_bytes_of(text, sizeof text)};
    assert_int_equal(step_word(&run.authority, run_id(&run, "b"), 7, 1, &cause, run.now_us), 0);
    struct mst__authority_effect effect;
    assert_true(mst__authority_next_effect(&run.authority, &effect));
    assert_int_equal(effect.kind, MST_TOLD_REOPENED);
    run_cut(&run, "a"); /* before it could read that */
    struct mst__announcement said = run_announcement(&run, "a");
    said.claim = run_claim(&run, "a");
    said.claim.holds = true;
    assert_int_equal(run_say(&run, &said), 0);
    const struct mst__cause told = mst__authority_cause(&run.authority);
    assert_int_equal(told.rank, 1);
    assert_bytes_str(told.node, "b");
    assert_int_equal(told.text.size, MST_AUTHORITY_CAUSE_SIZE_MAX);
    char sentence[40];
    mst__cause_describe(&told, sentence, sizeof sentence);
    assert_string_equal(sentence, "node 'b' (rank 1): signal 9: xxxxxxxxxx");
    struct mst__cause both = told;
    both.status = 137;
    both.text = mst_bytes_str("");
    mst__cause_describe(&both, sentence, sizeof sentence);
    assert_string_equal(sentence, "node 'b' (rank 1): signal 9");
    assert_told(&run, "reopened 2 failed a; ");
    run_close(&run);
}

/* A finished member that then reports a failure has failed. */
static void failed_after_finish(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 3, 3);
    assert_int_equal(run_finish(&run, "a"), 0);
    assert_int_equal(run_fail(&run, "a", 7), 0);
    assert_told(&run, "reopened 2 failed a; ");
    all_back(&run);
    assert_told(&run, "sealed 7/2 of 3 at a a=0 b=1 c=2; ");
    assert_int_equal(run_finish(&run, "a"), 0);
    assert_int_equal(run_fail(&run, "a", 7), 0);
    run_leave(&run, "a"); /* so that it is waited for */
    assert_told(&run, "reopened 3 failed a; ");
    assert_int_equal(run.authority.phase, MST_AUTHORITY_OPEN);
    run_close(&run);
}

/* Long names are cut off, so that a sentence has room for the rest; a status may be negative. */
static void causes_in_one_sentence(void **state)
{
    (void)state;
    char name[100];
    char wanted[200];
    char sentence[200];
    memset(name, 'n', sizeof name);
    const struct mst__cause cause = {.node = mst_bytes_of(name, sizeof name),
                                     .rank = MST_AUTHORITY_RANK_NONE,
                                     .worker = 0,
                                     .status = -9,
                                     .text = mst_bytes_str("why")};
    mst__cause_describe(&cause, sentence, sizeof sentence);
    (void)snprintf(wanted, sizeof wanted, "node '%.60s', worker 0: exit status -9: why", name);
    assert_string_equal(sentence, wanted);
}

/* A member that fails while it has no connection itself has failed; it was not lost. */
static void failed_while_cut_off(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 3, 3);
    run_cut(&run, "a");
    assert_int_equal(run_fail(&run, "a", 7), 0);
    assert_told(&run, "reopened 2 failed a; ");
    assert_int_equal(run.authority.stats.restarts, 1);
    run_close(&run);
}

/* --- what is said of it --- */

static void assert_described(const struct unit_run *run, const char *wanted)
{
    char text[600];
    mst__authority_describe(&run->authority, run->now_us, text, sizeof text);
    assert_string_equal(text, wanted);
}

/* Work that is done counts when its node has gone. Members without a connection are named, and of
 * many names the first. Times are rounded up: none is over before it is. */
static void described(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run, 3, 3);
    assert_int_equal(run_finish(&run, "a"), 0);
    run_cut(&run, "a");
    run_pass(&run, SECOND_US, true);
    assert_int_equal(run_finish(&run, "b"), 0);
    run_leave(&run, "b");
    run_cut(&run, "c");
    assert_told(&run, "");
    assert_described(&run, "round 1 runs with 3 nodes, 2 finished; at work: c; connection lost: "
                           "a, c");
    run_close(&run);

    static const char *const names[] = {"d", "e", "f", "g", "h", "i", "j", "k"};
    run_three(&run, 3, 3);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        run_join(&run, names[i]);
    }
    assert_described(&run, "round 1 runs with 3 nodes; 8 on standby: d, e, f, g, h and 3 more");
    run_close(&run);

    run_init(&run, 1, 2);
    run_join(&run, "a");
    run_pass(&run, 10 * SECOND_US + 1, true);
    assert_described(&run, "round 1 is open: 1 waiting, last call for 20.0 s more, up to 2 nodes");
    run_close(&run);
}

/* After a restart some of the round are not known yet, and may come for a while. */
static void described_after_a_restart(void **state)
{
    (void)state;
    struct unit_run run;
    run_init_epoch(&run, 3, 3, 8);
    struct mst__announcement said = run_announcement(&run, "b");
    said.claim = (struct mst__claim){.epoch = 7, .round = 4, .world = 3, .rank = 1, .holds = true};
    assert_int_equal(run_say(&run, &said), 0);
    said.claim.holds = false; /* it wants another round */
    assert_int_equal(run_say(&run, &said), 0);
    run_pass(&run, SECOND_US, true);
    assert_described(&run,
                     "round 5 is open: 1 waiting, 2 of round 4 may come for 4.0 s more: those "
                     "with rank 0, 2, 2 more needed for the minimum of 3");
    run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_finish),
        cmocka_unit_test(finished_is_not_lost),
        cmocka_unit_test(loss_after_finish),
        cmocka_unit_test(failure_of_a_lost_peer),
        cmocka_unit_test(failure_beside_a_leaving_node),
        cmocka_unit_test(failure_of_a_leaving_node),
        cmocka_unit_test(gone_is_released),
        cmocka_unit_test(cut_is_called_back),
        cmocka_unit_test(called_back_by_a_stopped_driver),
        cmocka_unit_test(too_few_after_failure),
        cmocka_unit_test(too_few_after_loss),
        cmocka_unit_test(spare_for_the_finished),
        cmocka_unit_test(finished_and_started_again),
        cmocka_unit_test(finished_and_started_for_the_next),
        cmocka_unit_test(newcomers_wait_for_the_end),
        cmocka_unit_test(finish_of_another_round),
        cmocka_unit_test(finish_is_repeated),
        cmocka_unit_test(finished_expire_when_closed),
        cmocka_unit_test(budget_in_total),
        cmocka_unit_test(starts),
        cmocka_unit_test(no_restarts),
        cmocka_unit_test(budget_in_a_window),
        cmocka_unit_test(budget_in_a_long_window),
        cmocka_unit_test(all_agree_on_the_budget),
        cmocka_unit_test(causes_in_one_sentence),
        cmocka_unit_test(failed_while_cut_off),
        cmocka_unit_test(described),
        cmocka_unit_test(described_after_a_restart),
        cmocka_unit_test(cause_is_told_again),
        cmocka_unit_test(failed_after_finish),
    };
    return MST_RUN_TESTS(tests);
}
