/* unit/core/test_member.c - the machine of a node of an authority, event by event. */
#include "core/member.h"

#include <string.h>

#include "base/err.h"
#include "unit/unit.h"

#define SECOND_US 1000000

static struct mst__member member;
static int64_t now_us;

static int reset(void **state)
{
    (void)state;
    const struct mst__member_options options = {
        .self = {.name = mst_bytes_str("a"), .nodes_min = 1, .nodes_max = 4},
        .run_id = mst_bytes_str("job"),
        .where = "server:1",
        .beat_us = 2 * SECOND_US,
        .expiry_us = 6 * SECOND_US,
        .beats_per_answer = 3,
        .seed = 7,
    };
    now_us = 100 * SECOND_US;
    mst__member_init(&member, &options);
    return 0;
}

static void step(struct mst__member_event event)
{
    event.now_us = now_us;
    mst__member_step(&member, &event);
    mst__member_check(&member);
}

static void kind(enum mst__member_event_kind event)
{
    step((struct mst__member_event){.kind = event});
}

static void want(int64_t timeout_us)
{
    step((struct mst__member_event){.kind = MST_MEMBER_EVENT_WANTED,
                                    .address = mst_bytes_str("a:1"),
                                    .timeout_us = timeout_us});
}

static void hear(struct mst__job_message message)
{
    step((struct mst__member_event){.kind = MST_MEMBER_EVENT_HEARD, .message = &message});
}

static void hear_type(enum mst__job_type type)
{
    hear((struct mst__job_message){.type = type});
}

static void hear_welcome(uint32_t version)
{
    hear((struct mst__job_message){.type = MST_JOB_WELCOME, .u.welcome.version = version});
}

static void hear_round(enum mst__job_type type, int64_t round, uint32_t rank)
{
    hear((struct mst__job_message){
        .type = type, .u.round = {.epoch = 9, .round = round, .world = 2, .rank = rank}});
}

static void hear_refused(int code, enum mst__refusal refusal)
{
    hear((struct mst__job_message){.type = MST_JOB_REFUSED,
                                   .u.refused = {.code = code,
                                                 .refusal = (uint32_t)refusal,
                                                 .text = mst_bytes_str("because")}});
}

static void disconnect(int code)
{
    struct mst_err err;
    (void)mst__fail(&err, code, 0, "cut");
    step((struct mst__member_event){.kind = MST_MEMBER_EVENT_DISCONNECTED, .err = &err});
}

/* The effects of the last step are these, as "send:announce notice:lost sealed". */
static void effects_are(const char *expected)
{
    static const char *const kinds[] = {"connect", "disconnect", "send",  "explain",
                                        "sealed",  "failed",     "notice"};
#define NOTICE_NAME(name, text) [MST_MEMBER_NOTICE_##name] = (text),
    static const char *const notices[] = {MST_MEMBER_NOTICE_MAP(NOTICE_NAME)};
#undef NOTICE_NAME
    char text[200] = "";
    for (size_t i = 0; i < member.effects_count; i++) {
        const struct mst__member_effect *effect = &member.effects[i];
        size_t used = strlen(text);
        const char *detail = effect->kind == MST_MEMBER_SEND     ? mst__job_type_name(effect->type)
                             : effect->kind == MST_MEMBER_NOTICE ? notices[effect->notice]
                                                                 : "";
        (void)snprintf(text + used, sizeof text - used, "%s%s%s%s", used > 0 ? " " : "",
                       kinds[effect->kind], detail[0] != '\0' ? ":" : "", detail);
    }
    assert_string_equal(text, expected);
}

/* Wanted, connected and announced. */
static void announced(int64_t timeout_us)
{
    want(timeout_us);
    effects_are("");
    assert_int_equal(mst__member_due_us(&member), now_us);
    kind(MST_MEMBER_EVENT_TIME);
    effects_are("connect");
    kind(MST_MEMBER_EVENT_CONNECTED);
    effects_are("send:announce");
    hear_type(MST_JOB_WELCOME);
    effects_are("");
}

static void in_round(int64_t round)
{
    announced(INT64_MAX);
    hear_round(MST_JOB_SEALED, round, 1);
    effects_are("sealed");
    assert_int_equal(member.phase, MST_MEMBER_HOLDING);
}

/* A hostile or broken server: the application would make room for so many nodes. */
static void refuses_impossible_rounds(void **state)
{
    static const uint32_t wrong[][2] = {/* world, rank */
                                        {UINT32_MAX, 0},
                                        {MST_AUTHORITY_MEMBERS_MAX + 1, 0},
                                        {0, 0},
                                        {3, 3},
                                        {2, UINT32_MAX}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        (void)reset(state);
        announced(INT64_MAX);
        hear((struct mst__job_message){
            .type = MST_JOB_SEALED,
            .u.round = {.epoch = 9, .round = 1, .world = wrong[i][0], .rank = wrong[i][1]}});
        effects_are("failed send:leave disconnect");
        assert_int_equal(member.effects[0].err->code, MST_EPROTO);
        assert_non_null(strstr(member.effects[0].err->msg, "is broken: it gave this node rank"));
        assert_int_equal(member.phase, MST_MEMBER_OUT);
    }
    (void)reset(state);
    announced(INT64_MAX);
    hear((struct mst__job_message){.type = MST_JOB_SEALED,
                                   .u.round = {.epoch = 9,
                                               .round = 1,
                                               .world = MST_AUTHORITY_MEMBERS_MAX,
                                               .rank = MST_AUTHORITY_MEMBERS_MAX - 1}});
    effects_are("sealed");
}

static void joins_and_comes_back(void **state)
{
    (void)state;
    in_round(1);
    assert_true(member.claim.holds);
    assert_int_equal(member.claim.rank, 1);
    want(INT64_MAX);
    effects_are("send:announce");
    struct mst__job_message message;
    mst__member_message(&member, &member.effects[0], &message);
    assert_int_equal(message.u.announce.announcement.claim.round, 1);
    assert_false(message.u.announce.announcement.claim.holds);
    assert_int_equal(message.u.announce.announcement.address.size, 3);
    hear_round(MST_JOB_SEALED, 1, 1); /* its last round, told again */
    effects_are("");
    hear_round(MST_JOB_SEALED, 2, 0);
    effects_are("sealed");
    kind(MST_MEMBER_EVENT_LEAVE);
    effects_are("send:leave disconnect");
    assert_true(member.effects[1].is_parting);
    assert_int_equal(member.phase, MST_MEMBER_OUT);
    assert_int_equal(mst__member_due_us(&member), INT64_MAX);
    kind(MST_MEMBER_EVENT_LEAVE);
    effects_are("");
}

static void claims_its_place_on_another_connection(void **state)
{
    (void)state;
    in_round(3);
    disconnect(MST_ECONN);
    effects_are("notice:disconnected");
    assert_int_equal(mst__member_due_us(&member), now_us); /* at once: it was a good one */
    kind(MST_MEMBER_EVENT_TIME);
    effects_are("connect");
    disconnect(MST_ECONN);
    effects_are(""); /* told already */
    assert_in_range(mst__member_due_us(&member), now_us + MST_MEMBER_AGAIN_US / 2,
                    now_us + MST_MEMBER_AGAIN_US);
    now_us = mst__member_due_us(&member);
    kind(MST_MEMBER_EVENT_TIME);
    kind(MST_MEMBER_EVENT_CONNECTED);
    effects_are("send:announce");
    struct mst__job_message message;
    mst__member_message(&member, &member.effects[0], &message);
    assert_true(message.u.announce.announcement.claim.holds);
    hear_type(MST_JOB_WELCOME);
    effects_are("notice:connected");
}

static void pauses_grow_up_to_a_bound(void **state)
{
    (void)state;
    want(INT64_MAX);
    int64_t last_us = 0;
    for (int i = 0; i < 40; i++) {
        kind(MST_MEMBER_EVENT_TIME);
        effects_are("connect");
        disconnect(MST_ECONN);
        last_us = mst__member_due_us(&member) - now_us;
        assert_in_range(last_us, MST_MEMBER_AGAIN_US / 2, MST_MEMBER_AGAIN_US_MAX);
        now_us += last_us;
    }
    assert_in_range(last_us, MST_MEMBER_AGAIN_US_MAX / 2, MST_MEMBER_AGAIN_US_MAX);
    /* A connection that works ends that. */
    kind(MST_MEMBER_EVENT_TIME);
    kind(MST_MEMBER_EVENT_CONNECTED);
    hear_type(MST_JOB_WELCOME);
    disconnect(MST_ECONN);
    kind(MST_MEMBER_EVENT_TIME);
    disconnect(MST_ECONN);
    assert_in_range(mst__member_due_us(&member) - now_us, 0, MST_MEMBER_AGAIN_US);
}

/* Nodes that have announced themselves together do not send their heartbeats together. */
static void first_heartbeats_are_spread(void **state)
{
    (void)state;
    struct mst__member_options others = member.options;
    int64_t sooner_us = INT64_MAX;
    int64_t later_us = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        others.seed = seed;
        mst__member_init(&member, &others);
        announced(INT64_MAX);
        int64_t beat_us = member.beat_us - now_us;
        assert_in_range(beat_us, SECOND_US, 2 * SECOND_US);
        sooner_us = beat_us < sooner_us ? beat_us : sooner_us;
        later_us = beat_us > later_us ? beat_us : later_us;
    }
    assert_true(later_us - sooner_us > SECOND_US / 2);
}

/* Connected and welcome, as soon as that is allowed. */
static void again(void)
{
    now_us = mst__member_due_us(&member);
    kind(MST_MEMBER_EVENT_TIME);
    effects_are("connect");
    kind(MST_MEMBER_EVENT_CONNECTED);
    effects_are("send:announce");
    hear_type(MST_JOB_WELCOME);
}

/* A server that ends each connection behind its WELCOME is not asked hundreds of times a second. */
static void brief_connections_are_followed_by_pauses(void **state)
{
    (void)state;
    announced(INT64_MAX);
    for (int i = 0; i < MST_MEMBER_BRIEF_MAX; i++) {
        disconnect(MST_ECONN);
        assert_int_equal(mst__member_due_us(&member), now_us);
        again();
    }
    int64_t began_us = now_us;
    for (int i = 0; i < 40; i++) {
        disconnect(MST_ECONN);
        assert_true(mst__member_due_us(&member) > now_us);
        again();
    }
    assert_true(now_us - began_us > 20 * (int64_t)SECOND_US);
    /* This one works again. */
    now_us += MST_MEMBER_BRIEF_US;
    hear_type(MST_JOB_WELCOME); /* of another announcement */
    disconnect(MST_ECONN);
    assert_int_equal(mst__member_due_us(&member), now_us);
    again();
    disconnect(MST_ECONN);
    assert_int_equal(mst__member_due_us(&member), now_us);
}

static void beats_and_gives_up_who_does_not_answer(void **state)
{
    (void)state;
    in_round(1);
    int asked = 0;
    int64_t asked_us = 0;
    for (int i = 0; i < 3; i++) {
        now_us = mst__member_due_us(&member);
        kind(MST_MEMBER_EVENT_TIME);
        effects_are("send:heartbeat");
        if (member.effects[0].wants_pong) {
            asked++;
            asked_us = now_us;
        }
    }
    assert_int_equal(asked, 1);
    /* Something else has come: the answer may be behind it. */
    now_us = asked_us + SECOND_US;
    kind(MST_MEMBER_EVENT_ALIVE);
    while (member.link == MST_MEMBER_WELCOME) {
        now_us = mst__member_due_us(&member);
        kind(MST_MEMBER_EVENT_TIME);
    }
    effects_are("disconnect notice:disconnected");
    assert_int_equal(now_us, asked_us + 7 * SECOND_US);
    assert_int_equal(member.phase, MST_MEMBER_HOLDING);
}

static void is_told_of_its_round_alone(void **state)
{
    (void)state;
    in_round(5);
    hear((struct mst__job_message){.type = MST_JOB_LOST, .u.lost = {.round = 4, .total = 1}});
    effects_are("");
    hear((struct mst__job_message){.type = MST_JOB_LOST, .u.lost = {.round = 5, .total = 1}});
    effects_are("notice:lost");
    hear((struct mst__job_message){.type = MST_JOB_WAITING, .u.waiting.count = 2});
    effects_are("notice:waiting");
    hear_type(MST_JOB_REOPENED);
    effects_are("notice:reopened");
    hear_type(MST_JOB_REOPENED);
    effects_are(""); /* told again, on another connection */
}

static void is_expelled_and_enters_again(void **state)
{
    (void)state;
    in_round(5);
    hear((struct mst__job_message){.type = MST_JOB_EXPELLED, .u.text = mst_bytes_str("silent")});
    effects_are("notice:expelled");
    assert_int_equal(member.phase, MST_MEMBER_EXPELLED);
    assert_int_equal(mst__member_due_us(&member), INT64_MAX); /* nothing to keep alive */
    disconnect(MST_ECONN);
    assert_int_equal(mst__member_due_us(&member), INT64_MAX);
    want(INT64_MAX);
    assert_int_equal(mst__member_due_us(&member), now_us);
}

static void a_refused_claim_is_the_end_of_the_place(void **state)
{
    (void)state;
    in_round(5);
    hear_refused(MST_ELIMIT, MST_REFUSAL_FULL);
    effects_are("disconnect notice:disconnected"); /* perhaps there is room later */
    assert_int_equal(member.phase, MST_MEMBER_HOLDING);
    kind(MST_MEMBER_EVENT_TIME);
    now_us = mst__member_due_us(&member);
    kind(MST_MEMBER_EVENT_TIME);
    kind(MST_MEMBER_EVENT_CONNECTED);
    hear_refused(MST_ESTATE, MST_REFUSAL_CLAIM);
    effects_are("notice:expelled");
    static const enum mst__refusal others[] = {MST_REFUSAL_STALE, MST_REFUSAL_TWIN,
                                               MST_REFUSAL_SETTINGS};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        (void)reset(NULL);
        in_round(5);
        hear_refused(MST_EEXPELLED, others[i]);
        effects_are("notice:expelled");
    }
}

/* A round of others in which it has no place: it keeps what it knows of its own. */
static void stands_by(void **state)
{
    (void)state;
    in_round(5);
    hear_type(MST_JOB_REOPENED);
    want(INT64_MAX);
    hear_round(MST_JOB_QUEUED, 5, 0);
    effects_are("notice:standby");
    assert_int_equal(member.claim.rank, 1);
    hear_round(MST_JOB_SPARE, 6, 0);
    effects_are("notice:standby");
    assert_int_equal(member.claim.round, 6);
    assert_int_equal(member.claim.rank, MST_AUTHORITY_RANK_NONE);
}

/* What was told of the connection is of one round of joining and holding. */
static void an_outage_ends_with_leaving(void **state)
{
    (void)state;
    in_round(5);
    disconnect(MST_ECONN);
    effects_are("notice:disconnected");
    kind(MST_MEMBER_EVENT_LEAVE);
    announced(INT64_MAX);
    disconnect(MST_ECONN);
    effects_are("notice:disconnected");
}

static void a_refusal_ends_the_wait(void **state)
{
    (void)state;
    announced(INT64_MAX);
    hear_refused(MST_ESTATE, MST_REFUSAL_CLAIM); /* of the place that it has given up */
    effects_are("");
    hear_refused(MST_EINVAL, MST_REFUSAL_SETTINGS);
    effects_are("failed send:leave disconnect");
    assert_int_equal(member.err.code, MST_EINVAL);
    assert_non_null(strstr(member.err.msg, "because"));
    assert_int_equal(member.phase, MST_MEMBER_OUT);
}

static void a_code_of_a_later_release_is_an_error_all_the_same(void **state)
{
    (void)state;
    static const int codes[] = {0, 1, -100000};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(reset(NULL), 0);
        announced(INT64_MAX);
        hear_refused(codes[i], MST_REFUSAL_NONE);
        effects_are("failed send:leave disconnect");
        assert_int_equal(member.err.code, MST_EPROTO);
    }
}

static void a_server_that_is_none_ends_the_wait(void **state)
{
    (void)state;
    static const int codes[] = {MST_ENOTSUP, MST_ENOMEM, MST_ELIMIT};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        want(INT64_MAX);
        kind(MST_MEMBER_EVENT_TIME);
        disconnect(codes[i]);
        effects_are("failed");
        assert_int_equal(member.err.code, codes[i]);
    }
}

static void the_end_of_the_job_is_told_once(void **state)
{
    (void)state;
    in_round(1);
    hear(
        (struct mst__job_message){.type = MST_JOB_CLOSED, .u.close.reason = mst_bytes_str("done")});
    effects_are("notice:closed");
    assert_int_equal(member.phase, MST_MEMBER_CLOSED);
    hear_type(MST_JOB_CLOSED);
    effects_are("");
    disconnect(MST_ECONN);
    assert_int_equal(mst__member_due_us(&member), INT64_MAX); /* nothing more can come */
}

static void a_spare_of_a_closed_job_has_not_failed(void **state)
{
    (void)state;
    announced(INT64_MAX);
    hear_round(MST_JOB_SPARE, 4, 0);
    effects_are("notice:standby");
    assert_int_equal(member.claim.round, 4);
    assert_int_equal(member.claim.rank, MST_AUTHORITY_RANK_NONE);
    hear_type(MST_JOB_CLOSED);
    assert_int_equal(member.err.code, MST_ESPARE);
}

static void finish(void)
{
    step((struct mst__member_event){
        .kind = MST_MEMBER_EVENT_FINISH, .status = 3, .text = mst_bytes_str("done")});
}

static void restart(void)
{
    const struct mst__cause cause = {.worker = 2, .signal = 9, .text = mst_bytes_str("boom")};
    step((struct mst__member_event){.kind = MST_MEMBER_EVENT_RESTART, .cause = &cause});
}

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
        .u.close = {.reason = mst_bytes_str("all"), .end.outcome = MST_JOB_OUTCOME_FINISHED}};
    step((struct mst__member_event){.kind = MST_MEMBER_EVENT_HEARD, .message = &closed});
    effects_are("notice:closed");
    assert_int_equal(member.effects[0].end->outcome, MST_JOB_OUTCOME_FINISHED);
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
                                      .u.close = {.reason = mst_bytes_str("all 3 nodes")}};
    announced(INT64_MAX);
    hear_round(MST_JOB_SPARE, 4, 0);
    closed.u.close.end.outcome = MST_JOB_OUTCOME_FINISHED;
    hear(closed);
    assert_int_equal(member.err.code, MST_EFINISHED);
    assert_string_equal(member.err.msg, "the job has finished: all 3 nodes");
    announced(INT64_MAX);
    hear_round(MST_JOB_SPARE, 5, 0);
    closed.u.close.end.outcome = MST_JOB_OUTCOME_FAILED;
    closed.u.close.reason = mst_bytes_str("node 'a': signal 9");
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

/* Connected, and announced for a new job or not. */
static void announced_as(bool is_new)
{
    struct mst__job_message message;
    kind(MST_MEMBER_EVENT_TIME);
    effects_are("connect");
    kind(MST_MEMBER_EVENT_CONNECTED);
    effects_are("send:announce");
    mst__member_message(&member, &member.effects[0], &message);
    assert_true(message.u.announce.is_new == is_new);
}

/* A job that has finished before this node was ever in it is another one. */
static void finished_before_it_came(void **state)
{
    (void)state;
    want(INT64_MAX);
    announced_as(false);
    hear_refused(MST_EFINISHED, MST_REFUSAL_CLOSED);
    effects_are("failed send:leave disconnect");
    assert_int_equal(member.err.code, MST_ECLOSED);
    assert_string_equal(member.err.msg, "because");
}

/* A node of a new job asks until the old one is gone, and is one of the job from then on. */
static void asks_for_a_new_job(void **state)
{
    (void)state;
    member.options.is_new = true;
    want(INT64_MAX);
    announced_as(true);
    hear_refused(MST_EFINISHED, MST_REFUSAL_CLOSED);
    effects_are("disconnect notice:disconnected"); /* with the sentence, once */
    now_us = mst__member_due_us(&member);
    announced_as(true);
    hear_refused(MST_ECLOSED, MST_REFUSAL_CLOSED);
    effects_are("disconnect");
    now_us = mst__member_due_us(&member);
    announced_as(true);
    hear_welcome(MST_JOB_VERSION);
    disconnect(MST_ECONN);
    now_us = mst__member_due_us(&member);
    announced_as(false);
    hear_refused(MST_EFINISHED, MST_REFUSAL_CLOSED);
    assert_int_equal(member.err.code, MST_EFINISHED);
    /* Other refusals are not like that. */
    (void)reset(NULL);
    member.options.is_new = true;
    want(INT64_MAX);
    announced_as(true);
    hear_refused(MST_EINVAL, MST_REFUSAL_SETTINGS);
    effects_are("failed send:leave disconnect");
}

/* A server that does not know such jobs would let the job grow. */
static void does_not_grow(void **state)
{
    (void)state;
    member.options.self.is_fixed = true;
    want(INT64_MAX);
    announced_as(false);
    hear_welcome(MST_JOB_VERSION_FIXED - 1);
    effects_are("failed send:leave disconnect");
    assert_int_equal(member.err.code, MST_ENOTSUP);
    (void)reset(NULL);
    member.options.self.is_fixed = true;
    want(INT64_MAX);
    announced_as(false);
    hear_welcome(MST_JOB_VERSION_FIXED);
    effects_are("");
}

static void news_of_a_round_make_it_announce_again(void **state)
{
    (void)state;
    announced(INT64_MAX);
    hear_type(MST_JOB_REOPENED);
    effects_are("send:announce");
    hear_type(MST_JOB_EXPELLED);
    effects_are("send:announce");
}

/* A server that answers each announcement with such news is not asked as fast as it answers. */
static void endless_news_are_followed_by_pauses(void **state)
{
    (void)state;
    announced(INT64_MAX);
    int64_t began_us = now_us;
    for (int i = 0; i < 100; i++) {
        hear_type(i % 2 == 0 ? MST_JOB_EXPELLED : MST_JOB_REOPENED);
        if (member.link == MST_MEMBER_APART) {
            effects_are("disconnect notice:disconnected");
            assert_non_null(strstr(member.link_err.msg, "server:1 answers announcements with"));
            again();
        }
    }
    assert_true(now_us - began_us > 20 * (int64_t)SECOND_US);
    /* After a while one such message is nothing special. */
    now_us += MST_MEMBER_BRIEF_US;
    hear_type(MST_JOB_EXPELLED);
    effects_are("send:announce");
}

static void explain(bool is_spare)
{
    step((struct mst__member_event){.kind = MST_MEMBER_EVENT_EXPLAINED,
                                    .is_spare = is_spare,
                                    .text = mst_bytes_str("1 of 2 is here")});
}

static void who_is_late_says_why(void **state)
{
    (void)state;
    announced(30 * SECOND_US);
    member.beat_us = INT64_MAX; /* its time does not count */
    now_us += 30 * SECOND_US;
    kind(MST_MEMBER_EVENT_TIME);
    effects_are("explain");
    explain(false);
    effects_are("failed send:leave disconnect");
    assert_int_equal(member.err.code, MST_ETIMEOUT);
    assert_string_equal(member.err.msg, "no round within 30000 ms: 1 of 2 is here");
}

/* The time before the event counts, and the error names the whole. */
static void time_that_is_spent(void **state)
{
    (void)state;
    step((struct mst__member_event){.kind = MST_MEMBER_EVENT_WANTED,
                                    .address = mst_bytes_str("a:1"),
                                    .timeout_us = 30 * SECOND_US,
                                    .spent_us = 29 * SECOND_US});
    assert_int_equal(member.join_us, now_us + SECOND_US);
    now_us += SECOND_US;
    kind(MST_MEMBER_EVENT_TIME);
    assert_int_equal(member.phase, MST_MEMBER_OUT);
    assert_non_null(strstr(member.err.msg, "30000 ms"));
}

static void a_spare_is_not_late(void **state)
{
    (void)state;
    announced(30 * SECOND_US);
    member.beat_us = INT64_MAX;
    now_us += 30 * SECOND_US;
    kind(MST_MEMBER_EVENT_TIME);
    explain(true);
    effects_are("");
    assert_int_equal(mst__member_due_us(&member), now_us + 30 * SECOND_US);
    now_us += 30 * SECOND_US;
    kind(MST_MEMBER_EVENT_TIME);
    explain(false); /* no spare any more: it has as much time as all */
    effects_are("");
    now_us += 30 * SECOND_US;
    kind(MST_MEMBER_EVENT_TIME);
    explain(false);
    assert_int_equal(member.err.code, MST_ETIMEOUT);
}

/* That it was a spare once does not count in the next wait, and each time is asked for anew. */
static void a_former_spare_is_late(void **state)
{
    (void)state;
    announced(30 * SECOND_US);
    member.beat_us = INT64_MAX;
    for (int i = 0; i < 2; i++) {
        now_us += 30 * SECOND_US;
        kind(MST_MEMBER_EVENT_TIME);
        effects_are("explain");
        explain(true);
    }
    kind(MST_MEMBER_EVENT_LEAVE);
    announced(30 * SECOND_US);
    member.beat_us = INT64_MAX;
    now_us += 30 * SECOND_US;
    kind(MST_MEMBER_EVENT_TIME);
    effects_are("explain");
    explain(false);
    assert_int_equal(member.err.code, MST_ETIMEOUT);
}

static void who_gets_no_explanation_fails_too(void **state)
{
    (void)state;
    announced(30 * SECOND_US);
    member.beat_us = INT64_MAX;
    now_us += 30 * SECOND_US;
    kind(MST_MEMBER_EVENT_TIME);
    now_us += MST_MEMBER_EXPLAIN_US;
    kind(MST_MEMBER_EVENT_TIME);
    effects_are("failed send:leave disconnect");
    assert_non_null(strstr(member.err.msg, "server:1 does not answer"));
    explain(true);
    effects_are(""); /* too late */
}

static void who_never_connected_fails_with_the_cause(void **state)
{
    (void)state;
    want(SECOND_US);
    kind(MST_MEMBER_EVENT_TIME);
    disconnect(MST_ERESOLVE);
    now_us += SECOND_US;
    kind(MST_MEMBER_EVENT_TIME);
    effects_are("failed");
    assert_int_equal(member.err.code, MST_ECONN);
    assert_string_equal(member.err.msg, "cut");
}

/* Any events in any order: the invariants hold. */
static void stands_any_history(void **state)
{
    (void)state;
    static const enum mst__job_type types[] = {MST_JOB_WELCOME,  MST_JOB_REFUSED, MST_JOB_SEALED,
                                               MST_JOB_QUEUED,   MST_JOB_SPARE,   MST_JOB_WAITING,
                                               MST_JOB_LOST,     MST_JOB_PONG,    MST_JOB_CLOSED,
                                               MST_JOB_EXPELLED, MST_JOB_REOPENED};
    struct mst__prng prng;
    mst__prng_init(&prng, 11);
    int64_t round = 0;
    for (int i = 0; i < 200000; i++) {
        now_us += (int64_t)mst__prng_below(&prng, SECOND_US);
        switch (mst__prng_below(&prng, 8)) {
            case 0:
                if (member.phase != MST_MEMBER_JOINING) {
                    want((int64_t)mst__prng_below(&prng, 60 * SECOND_US));
                }
                break;
            case 1:
                kind(mst__prng_below(&prng, 20) == 0 ? MST_MEMBER_EVENT_LEAVE
                                                     : MST_MEMBER_EVENT_CONNECTED);
                break;
            case 2:
                disconnect(mst__prng_below(&prng, 9) == 0 ? MST_ENOTSUP : MST_ECONN);
                break;
            case 3:
                explain(mst__prng_below(&prng, 2) == 0);
                break;
            case 4: {
                enum mst__job_type type = types[mst__prng_below(&prng, 11)];
                if (type == MST_JOB_REFUSED) {
                    hear_refused(MST_ESTATE, (enum mst__refusal)mst__prng_below(&prng, 9));
                } else if (type == MST_JOB_SEALED || type == MST_JOB_QUEUED ||
                           type == MST_JOB_SPARE) {
                    round += (int64_t)mst__prng_below(&prng, 2);
                    hear_round(type, round, (uint32_t)mst__prng_below(&prng, 2));
                } else if (type == MST_JOB_WELCOME) {
                    hear_welcome(1 + (uint32_t)mst__prng_below(&prng, 2));
                } else {
                    hear_type(type);
                }
                break;
            }
            case 5:
                if (mst__prng_below(&prng, 2) == 0) {
                    finish();
                } else {
                    restart();
                }
                break;
            default:
                kind(MST_MEMBER_EVENT_TIME);
                break;
        }
    }
    assert_true(round > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(joins_and_comes_back, reset),
        cmocka_unit_test_setup(refuses_impossible_rounds, reset),
        cmocka_unit_test_setup(claims_its_place_on_another_connection, reset),
        cmocka_unit_test_setup(pauses_grow_up_to_a_bound, reset),
        cmocka_unit_test_setup(brief_connections_are_followed_by_pauses, reset),
        cmocka_unit_test_setup(first_heartbeats_are_spread, reset),
        cmocka_unit_test_setup(beats_and_gives_up_who_does_not_answer, reset),
        cmocka_unit_test_setup(is_told_of_its_round_alone, reset),
        cmocka_unit_test_setup(is_expelled_and_enters_again, reset),
        cmocka_unit_test_setup(a_refused_claim_is_the_end_of_the_place, reset),
        cmocka_unit_test_setup(stands_by, reset),
        cmocka_unit_test_setup(an_outage_ends_with_leaving, reset),
        cmocka_unit_test_setup(a_refusal_ends_the_wait, reset),
        cmocka_unit_test_setup(a_code_of_a_later_release_is_an_error_all_the_same, reset),
        cmocka_unit_test_setup(a_server_that_is_none_ends_the_wait, reset),
        cmocka_unit_test_setup(the_end_of_the_job_is_told_once, reset),
        cmocka_unit_test_setup(a_spare_of_a_closed_job_has_not_failed, reset),
        cmocka_unit_test_setup(says_that_it_has_finished_until_the_end, reset),
        cmocka_unit_test_setup(is_heard_by_an_answer, reset),
        cmocka_unit_test_setup(finishes_while_cut_off, reset),
        cmocka_unit_test_setup(says_that_it_has_failed, reset),
        cmocka_unit_test_setup(a_failure_outlives_its_connection, reset),
        cmocka_unit_test_setup(a_failure_waits_for_the_claim, reset),
        cmocka_unit_test_setup(an_earlier_version_is_not_told, reset),
        cmocka_unit_test_setup(who_waits_hears_how_the_job_has_ended, reset),
        cmocka_unit_test_setup(finished_before_it_came, reset),
        cmocka_unit_test_setup(asks_for_a_new_job, reset),
        cmocka_unit_test_setup(does_not_grow, reset),
        cmocka_unit_test_setup(news_of_a_round_make_it_announce_again, reset),
        cmocka_unit_test_setup(endless_news_are_followed_by_pauses, reset),
        cmocka_unit_test_setup(time_that_is_spent, reset),
        cmocka_unit_test_setup(who_is_late_says_why, reset),
        cmocka_unit_test_setup(a_spare_is_not_late, reset),
        cmocka_unit_test_setup(a_former_spare_is_late, reset),
        cmocka_unit_test_setup(who_gets_no_explanation_fails_too, reset),
        cmocka_unit_test_setup(who_never_connected_fails_with_the_cause, reset),
        cmocka_unit_test_setup(stands_any_history, reset),
    };
    return MST_RUN_TESTS(tests);
}
