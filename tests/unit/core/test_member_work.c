/* unit/core/test_member_work.c - the machine of a node of an authority: reports of finished and
 * failed work. */
#include "unit/core/member_unit.h"

/* In a round of an authority that knows the words. */
static void at_work(void)
{
    in_round(1);
    hear_welcome(MST_JOB_VERSION);
    effects_are("");
}

/* Cut off and connected again; the claim is under way. */
static void cut_and_claim(void)
{
    disconnect(MST_ECONN);
    effects_are("notice:disconnected");
    kind(MST_MEMBER_EVENT_TIME);
    kind(MST_MEMBER_EVENT_CONNECTED);
    effects_are("send:announce");
    struct mst__job_message message;
    mst__member_message(&member, &member.effects[0], &message);
    assert_true(message.u.announce.announcement.claim.holds);
}

static void says_that_it_has_finished_until_the_end(void **state)
{
    (void)state;
    at_work();
    finish();
    effects_are("send:finish send:heartbeat");
    struct mst__job_message message;
    mst__member_message(&member, &member.effects[0], &message);
    assert_int_equal(message.u.finish.epoch, 9);
    assert_int_equal(message.u.finish.round, 1);
    assert_int_equal(message.u.finish.status, 3);
    assert_bytes_str(message.u.finish.text, "done");
    for (int i = 0; i < 3; i++) {
        cut_and_claim();
        hear_welcome(MST_JOB_VERSION);
        effects_are("notice:connected send:finish send:heartbeat");
    }
    const struct mst__job_message closed = {
        .type = MST_JOB_CLOSED,
        .u.closed = {.reason = mst_bytes_str("all"), .end.outcome = MST_JOB_OUTCOME_FINISHED}};
    step((struct mst__member_event){.kind = MST_MEMBER_EVENT_HEARD, .message = &closed});
    effects_are("notice:closed");
    assert_int_equal(member.effects[0].end->outcome, MST_JOB_OUTCOME_FINISHED);
}

static void leaving(int64_t in_us)
{
    step((struct mst__member_event){.kind = MST_MEMBER_EVENT_LEAVING, .in_us = in_us});
}

/* Until its round is over; what is left of the time is told again. */
static void says_that_it_leaves(void **state)
{
    (void)state;
    at_work();
    leaving(5 * SECOND_US);
    effects_are("send:leaving send:heartbeat");
    struct mst__job_message message;
    mst__member_message(&member, &member.effects[0], &message);
    assert_int_equal(message.u.leaving.epoch, 9);
    assert_int_equal(message.u.leaving.round, 1);
    assert_int_equal(message.u.leaving.in_us, 5 * SECOND_US);
    assert_false(mst__member_is_heard(&member));
    hear_type(MST_JOB_PONG);
    assert_true(mst__member_is_heard(&member));
    finish();
    effects_are("send:finish send:heartbeat");
    now_us += 2 * SECOND_US;
    cut_and_claim();
    int64_t left_us = member.leaving_us - now_us;
    assert_true(left_us <= 3 * SECOND_US);
    hear_welcome(MST_JOB_VERSION);
    effects_are("notice:connected send:leaving send:finish send:heartbeat");
    mst__member_message(&member, &member.effects[1], &message);
    assert_int_equal(message.u.leaving.in_us, left_us);
    now_us += 10 * SECOND_US; /* longer than it has said */
    leaving(0);
    effects_are("send:leaving send:heartbeat");
    mst__member_message(&member, &member.effects[0], &message);
    assert_int_equal(message.u.leaving.in_us, 0);
    hear((struct mst__job_message){.type = MST_JOB_REOPENED});
    effects_are("notice:reopened");
    cut_and_claim();
    hear_welcome(MST_JOB_VERSION);
    effects_are("notice:connected");
    leaving(0);
    effects_are("");
}

/* An earlier version is not told, and nobody waits for it. A node that comes back after all leaves
 * nothing behind. */
static void leaves_unsaid(void **state)
{
    (void)state;
    in_round(1);
    hear_welcome(MST_JOB_VERSION_LEAVING - 1);
    leaving(SECOND_US);
    effects_are("");
    assert_true(mst__member_is_heard(&member));
    (void)reset(state);
    leaving(SECOND_US); /* outside of a round */
    effects_are("");
    at_work();
    disconnect(MST_ECONN);
    leaving(SECOND_US);
    assert_true(mst__member_has_word(&member));
    want(INT64_MAX);
    assert_false(mst__member_has_word(&member));
}

/* A report is heard when the authority answers the heartbeat behind it; an earlier answer does not
 * count, nor one on another connection. */
static void is_heard_by_an_answer(void **state)
{
    (void)state;
    at_work();
    assert_true(mst__member_is_heard(&member));
    do {
        now_us = mst__member_due_us(&member);
        kind(MST_MEMBER_EVENT_TIME);
    } while (!member.effects[0].wants_pong);
    finish();
    effects_are("send:finish send:heartbeat");
    assert_true(member.effects[1].wants_pong);
    assert_false(mst__member_has_word(&member));
    assert_false(mst__member_is_heard(&member));
    hear_type(MST_JOB_PONG);
    hear((struct mst__job_message){.type = MST_JOB_WAITING});
    assert_false(mst__member_is_heard(&member));
    cut_and_claim();
    assert_false(mst__member_is_heard(&member));
    hear_welcome(MST_JOB_VERSION);
    assert_false(mst__member_is_heard(&member));
    hear_type(MST_JOB_PONG);
    assert_true(mst__member_is_heard(&member));
    hear_type(MST_JOB_PONG); /* nobody has asked */
    restart();
    assert_false(mst__member_is_heard(&member));
    hear((struct mst__job_message){.type = MST_JOB_REOPENED,
                                   .u.reopened.why = MST_AUTHORITY_WHY_FAILED});
    assert_true(mst__member_is_heard(&member)); /* the round is over */
}

/* Reports made without a connection are sent on the next one. */
static void finishes_while_cut_off(void **state)
{
    (void)state;
    at_work();
    disconnect(MST_ECONN);
    finish();
    effects_are("");
    kind(MST_MEMBER_EVENT_TIME);
    kind(MST_MEMBER_EVENT_CONNECTED);
    hear_welcome(MST_JOB_VERSION);
    effects_are("notice:connected send:finish send:heartbeat");
    /* The round is over all the same: it comes back, and has not finished the next one. */
    hear((struct mst__job_message){.type = MST_JOB_REOPENED,
                                   .u.reopened.why = MST_AUTHORITY_WHY_FAILED});
    effects_are("notice:reopened");
    cut_and_claim();
    hear_welcome(MST_JOB_VERSION);
    effects_are("notice:connected");
    finish(); /* too late */
    restart();
    effects_are("");
    want(INT64_MAX);
    effects_are("send:announce");
}

static void says_that_it_has_failed(void **state)
{
    (void)state;
    at_work();
    restart();
    effects_are("send:restart send:heartbeat");
    struct mst__job_message message;
    mst__member_message(&member, &member.effects[0], &message);
    assert_int_equal(message.u.restart.round, 1);
    assert_int_equal(message.u.restart.cause.worker, 2);
    assert_int_equal(message.u.restart.cause.signal, 9);
    assert_bytes_str(message.u.restart.cause.text, "boom");
    finish();
    effects_are(""); /* it has failed */
    want(INT64_MAX);
    effects_are("send:announce");
    mst__member_message(&member, &member.effects[0], &message);
    assert_false(message.u.announce.announcement.claim.holds);
    hear_welcome(MST_JOB_VERSION); /* so earlier messages were heard, too */
    disconnect(MST_ECONN);
    kind(MST_MEMBER_EVENT_TIME);
    kind(MST_MEMBER_EVENT_CONNECTED);
    mst__member_message(&member, &member.effects[0], &message);
    assert_false(message.u.announce.announcement.claim.holds);
    hear_welcome(MST_JOB_VERSION);
    effects_are("notice:connected");
}

/* It is unknown whether a failure was heard: the place is claimed once more to report it. */
static void a_failure_outlives_its_connection(void **state)
{
    (void)state;
    at_work();
    restart();
    want(INT64_MAX);
    effects_are("send:announce");
    cut_and_claim();
    hear_welcome(MST_JOB_VERSION);
    effects_are("notice:connected send:restart send:heartbeat send:announce");
    struct mst__job_message message;
    mst__member_message(&member, &member.effects[2], &message);
    assert_false(message.u.announce.announcement.claim.holds);
    /* It was heard, and the place is given up. */
    cut_and_claim();
    hear_refused(MST_ESTATE, MST_REFUSAL_CLAIM);
    effects_are("send:announce");
    mst__member_message(&member, &member.effects[0], &message);
    assert_false(message.u.announce.announcement.claim.holds);
    hear_welcome(MST_JOB_VERSION);
    effects_are("notice:connected");
    hear_round(MST_JOB_SEALED, 2, 0);
    effects_are("sealed");
    assert_int_equal(member.restart, MST_MEMBER_WORD_NONE);
}

/* It fails while its claim is under way. */
static void a_failure_waits_for_the_claim(void **state)
{
    (void)state;
    at_work();
    cut_and_claim();
    restart();
    effects_are("");
    want(INT64_MAX);
    effects_are("");
    hear_welcome(MST_JOB_VERSION);
    effects_are("notice:connected send:restart send:heartbeat send:announce");
}

/* A server of version 1 does not know the reports, and does not get them. */
static void an_earlier_version_is_not_told(void **state)
{
    (void)state;
    in_round(1);
    hear_welcome(1);
    finish();
    effects_are("notice:unsaid");
    assert_int_equal(member.effects[0].err->code, MST_ENOTSUP);
    restart();
    effects_are("notice:unsaid");
    disconnect(MST_ECONN);
    restart();
    want(INT64_MAX);
    kind(MST_MEMBER_EVENT_TIME);
    kind(MST_MEMBER_EVENT_CONNECTED);
    hear_welcome(1);
    effects_are("notice:connected notice:unsaid send:announce");
}

static void who_waits_hears_how_the_job_has_ended(void **state)
{
    (void)state;
    struct mst__job_message closed = {.type = MST_JOB_CLOSED,
                                      .u.closed = {.reason = mst_bytes_str("all 3 nodes")}};
    announced(INT64_MAX);
    hear_round(MST_JOB_SPARE, 4, 0);
    closed.u.closed.end.outcome = MST_JOB_OUTCOME_FINISHED;
    hear(closed);
    assert_int_equal(member.err.code, MST_EFINISHED);
    assert_string_equal(member.err.msg, "the job has finished: all 3 nodes");
    announced(INT64_MAX);
    hear_round(MST_JOB_SPARE, 5, 0);
    closed.u.closed.end.outcome = MST_JOB_OUTCOME_FAILED;
    closed.u.closed.reason = mst_bytes_str("node 'a': signal 9");
    /* Its effects point into it. */
    step((struct mst__member_event){.kind = MST_MEMBER_EVENT_HEARD, .message = &closed});
    assert_int_equal(member.err.code, MST_ECLOSED);
    assert_string_equal(member.err.msg, "the job has failed: node 'a': signal 9");
    assert_int_equal(member.effects[0].kind, MST_MEMBER_FAILED);
    assert_int_equal(member.effects[0].end->outcome, MST_JOB_OUTCOME_FAILED);
    announced(INT64_MAX);
    hear_refused(MST_EFINISHED, MST_REFUSAL_CLOSED);
    assert_int_equal(member.err.code, MST_EFINISHED);
    /* In a round, on a new connection. */
    in_round(6);
    const struct mst__job_message refused = {
        .type = MST_JOB_REFUSED,
        .u.refused = {.code = MST_ECLOSED,
                      .refusal = MST_REFUSAL_CLOSED,
                      .end = {.outcome = MST_JOB_OUTCOME_FAILED, .has_cause = true}}};
    step((struct mst__member_event){.kind = MST_MEMBER_EVENT_HEARD, .message = &refused});
    effects_are("notice:closed");
    assert_true(member.effects[0].end->has_cause);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(says_that_it_has_finished_until_the_end, reset),
        cmocka_unit_test_setup(says_that_it_leaves, reset),
        cmocka_unit_test_setup(leaves_unsaid, reset),
        cmocka_unit_test_setup(is_heard_by_an_answer, reset),
        cmocka_unit_test_setup(finishes_while_cut_off, reset),
        cmocka_unit_test_setup(says_that_it_has_failed, reset),
        cmocka_unit_test_setup(a_failure_outlives_its_connection, reset),
        cmocka_unit_test_setup(a_failure_waits_for_the_claim, reset),
        cmocka_unit_test_setup(an_earlier_version_is_not_told, reset),
        cmocka_unit_test_setup(who_waits_hears_how_the_job_has_ended, reset),
    };
    return MST_RUN_TESTS(tests);
}
