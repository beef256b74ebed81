/* unit/core/test_authority_keep.c - the authority machine: what a successor takes over. */
#include "core/authority_keep.h"
#include "unit/core/authority_unit.h"

#define SESSIONS_MAX 4

/* A successor and what it finds stored. */
struct successor {
    struct unit_run run;
    struct mst__kept round;
    struct mst__kept_session sessions[SESSIONS_MAX];
    size_t count;
};

static int announce(void *arg, size_t index, const struct mst__claim *claim)
{
    struct successor *successor = arg;
    const struct mst__kept_session *session = &successor->sessions[index];
    struct mst__announcement said =
        run_announcement(&successor->run, (const char *)session->node.data);
    said.incarnation = session->incarnation;
    said.session = session->session;
    if (claim != NULL) {
        said.claim = *claim;
    } else if (session->rank != MST_AUTHORITY_RANK_NONE) {
        said.claim = (struct mst__claim){.epoch = successor->round.epoch,
                                         .round = successor->round.round,
                                         .world = successor->round.world,
                                         .rank = session->rank};
    }
    const struct mst__authority_event kept = {
        .kind = MST_AUTHORITY_EVENT_KEPT, .now_us = successor->run.now_us, .announcement = &said};
    int rv = mst__authority_step(&successor->run.authority, &kept, &successor->run.err);
    return rv == MST_EEXPELLED ? 0 : rv; /* an old process */
}

static int say(void *arg, size_t index)
{
    struct successor *successor = arg;
    const struct mst__kept_session *session = &successor->sessions[index];
    const struct mst__cause cause = {.worker = 1, .status = 7, .text = mst_bytes_str("boom")};
    const struct mst__authority *authority = &successor->run.authority;
    (void)step_word(&successor->run.authority, mst__authority_find(authority, session->node),
                    successor->round.epoch, successor->round.round,
                    session->has_failed ? &cause : NULL, successor->run.now_us);
    return 0;
}

/* Nobody is here yet: a round of a, b and c runs. */
static void successor_init(struct successor *successor)
{
    static const char *const names[] = {"a", "b", "c"};
    *successor = (struct successor){
        .round = {.epoch = 7, .round = 4, .world = 3, .first_world = 3},
        .count = 3,
    };
    run_init_epoch(&successor->run, 2, 4, 8);
    for (uint32_t rank = 0; rank < 3; rank++) {
        successor->sessions[rank] = (struct mst__kept_session){
            .node = mst_bytes_str(names[rank]), .incarnation = 1, .session = 1, .rank = rank};
    }
}

static void rebuild(struct successor *successor)
{
    const struct mst__kept_driver driver = {.arg = successor, .announce = announce, .say = say};
    assert_int_equal(mst__authority_rebuild(&successor->run.authority, &successor->round,
                                            successor->sessions, successor->count, &driver,
                                            successor->run.now_us),
                     0);
    mst__authority_check(&successor->run.authority);
}

/* The window of the budget began when it did for the predecessor. */
static void window_goes_on(void **state)
{
    (void)state;
    struct successor successor;
    successor_init(&successor);
    successor.run.budget =
        (struct mst__budget){.is_limited = true, .restarts_max = 1, .window_us = 60 * SECOND_US};
    successor.round.restarts = 1;
    successor.round.restarts_total = 1;
    successor.round.restarts_age_us = 59 * SECOND_US;
    rebuild(&successor);
    struct mst__kept kept;
    assert_true(mst__authority_kept(&successor.run.authority, &kept));
    assert_int_equal(kept.restarts, 1);
    assert_int_equal(kept.restarts_age_us, 59 * SECOND_US);
    run_pass(&successor.run, SECOND_US, true);
    assert_false(kept.has_cause);
    assert_int_equal(run_fail(&successor.run, "b", 7), 0);
    assert_told(&successor.run, "reopened 5 failed b; ");
    assert_true(mst__authority_kept(&successor.run.authority, &kept));
    assert_true(kept.has_cause);
    run_back(&successor.run, "a");
    run_back(&successor.run, "b");
    run_back(&successor.run, "c");
    assert_told(&successor.run, "sealed 8/5 of 3 at a a=0 b=1 c=2; ");
    assert_true(mst__authority_kept(&successor.run.authority, &kept));
    assert_false(kept.has_cause); /* of the round before */
    run_close(&successor.run);
    successor_init(&successor); /* a second failure in the window is the end */
    successor.run.budget =
        (struct mst__budget){.is_limited = true, .restarts_max = 1, .window_us = 60 * SECOND_US};
    successor.round.restarts = 1;
    successor.round.restarts_total = 1;
    successor.round.restarts_age_us = 58 * SECOND_US;
    rebuild(&successor);
    run_pass(&successor.run, SECOND_US, true);
    assert_int_equal(run_fail(&successor.run, "b", 7), 0);
    assert_int_equal(successor.run.authority.phase, MST_AUTHORITY_CLOSED);
    run_close(&successor.run);
}

/* A job that does not grow has the size of its first round, not that of a smaller one. */
static void first_size_is_known(void **state)
{
    (void)state;
    struct successor successor;
    successor_init(&successor);
    successor.run.is_fixed = true;
    successor.round.world = 2;
    successor.count = 2;
    rebuild(&successor);
    assert_int_equal(mst__authority_nodes_max(&successor.run.authority), 3);
    run_close(&successor.run);
}

/* Of two processes of a node the one that was started later counts, whatever their sessions. */
static void newest_process(void **state)
{
    (void)state;
    struct successor successor;
    successor_init(&successor);
    successor.sessions[1].session = 9;
    successor.sessions[3] = (struct mst__kept_session){.node = mst_bytes_str("b"),
                                                       .incarnation = 2,
                                                       .session = 5,
                                                       .rank = MST_AUTHORITY_RANK_NONE};
    successor.count = 4;
    rebuild(&successor);
    const struct mst__authority *authority = &successor.run.authority;
    assert_int_equal(mst__authority_get(authority, run_id(&successor.run, "b"))->incarnation, 2);
    run_close(&successor.run);
    /* It is there in time for the next round, too. */
    successor_init(&successor);
    successor.round.is_over = true;
    successor.round.why = MST_AUTHORITY_WHY_RETURNED;
    successor.sessions[0].is_back = true;
    successor.sessions[2].is_back = true;
    successor.sessions[1].session = 9;
    successor.sessions[1].is_ended = true;
    successor.sessions[3] = (struct mst__kept_session){.node = mst_bytes_str("b"),
                                                       .incarnation = 2,
                                                       .session = 5,
                                                       .rank = MST_AUTHORITY_RANK_NONE};
    successor.count = 4;
    rebuild(&successor);
    assert_int_equal(authority->round, 5);
    assert_int_equal(authority->world, 3);
    run_close(&successor.run);
}

/* The word of a session that has ended does not count, and who has finished before has. */
static void words(void **state)
{
    (void)state;
    struct successor successor;
    static const bool was_finished[3] = {true, false, false};
    successor_init(&successor);
    successor.round.is_finished = was_finished;
    successor.sessions[0].is_ended = true; /* finished, and gone */
    successor.sessions[1].has_word = true; /* finishes */
    successor.sessions[2].is_ended = true; /* failed, and was lost */
    successor.sessions[2].has_word = true;
    successor.sessions[2].has_failed = true;
    rebuild(&successor);
    const struct mst__authority *authority = &successor.run.authority;
    assert_int_equal(authority->finished_count, 1);
    assert_int_equal(authority->released_count, 1);
    assert_int_equal(authority->restarts_total, 0);
    assert_int_equal(authority->reopened_why, MST_AUTHORITY_WHY_LOST);
    bool is_finished[3] = {true, false, false};
    assert_int_equal(mst__authority_finished(authority, is_finished), 2);
    assert_true(is_finished[0] && is_finished[1] && !is_finished[2]);
    run_close(&successor.run);
}

/* Whose session in the round is over is gone, also if another process of the node is here. */
static void gone(void **state)
{
    (void)state;
    struct successor successor;
    successor_init(&successor);
    rebuild(&successor);
    run_lose(&successor.run, "c");
    const uint64_t sessions[] = {1, 2, 1};
    bool is_gone[3];
    assert_int_equal(mst__authority_gone(&successor.run.authority, sessions, is_gone), 2);
    assert_true(!is_gone[0] && is_gone[1] && is_gone[2]);
    run_close(&successor.run);
}

/* A successor knows the failure that has ended the round. */
static void cause_is_kept(void **state)
{
    (void)state;
    struct successor successor;
    successor_init(&successor);
    successor.round.is_over = true;
    successor.round.why = MST_AUTHORITY_WHY_FAILED;
    successor.round.has_cause = true;
    successor.round.cause = (struct mst__cause){.node = mst_bytes_str("b"),
                                                .rank = 1,
                                                .worker = 1,
                                                .status = 7,
                                                .text = mst_bytes_str("boom")};
    rebuild(&successor);
    struct mst__kept kept;
    assert_true(mst__authority_kept(&successor.run.authority, &kept));
    assert_true(kept.has_cause);
    assert_bytes_str(kept.cause.node, "b");
    assert_bytes_str(kept.cause.text, "boom");
    assert_int_equal(kept.cause.status, 7);
    run_close(&successor.run);
}

/* A process has one session: an older one, whose key is seen late, does not come back. */
static void older_session(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 3);
    struct mst__announcement said = run_announcement(&run, "a");
    said.session = 5;
    assert_int_equal(run_say(&run, &said), 0);
    said.session = 4;
    const struct mst__authority_event kept = {
        .kind = MST_AUTHORITY_EVENT_KEPT, .now_us = run.now_us, .announcement = &said};
    assert_int_equal(mst__authority_step(&run.authority, &kept, &run.err), MST_EEXPELLED);
    assert_int_equal(run.authority.refusal, MST_REFUSAL_STALE);
    assert_string_equal(run.err.msg, "this process has entered again since, with a newer session");
    run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(window_goes_on), cmocka_unit_test(first_size_is_known),
        cmocka_unit_test(newest_process), cmocka_unit_test(words),
        cmocka_unit_test(gone),           cmocka_unit_test(cause_is_kept),
        cmocka_unit_test(older_session),
    };
    return MST_RUN_TESTS(tests);
}
