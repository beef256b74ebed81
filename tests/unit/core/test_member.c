/* unit/core/test_member.c - the machine of a node of an authority, event by event. */
#include "unit/core/member_unit.h"

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

/* Only every third heartbeat wants an answer, also behind the first one that does. */
static void few_heartbeats_want_answers(void **state)
{
    (void)state;
    in_round(1);
    for (int beat = 1; beat <= 12; beat++) {
        now_us = member.beat_us;
        kind(MST_MEMBER_EVENT_TIME);
        effects_are("send:heartbeat");
        assert_int_equal(member.effects[0].wants_pong, beat % 3 == 0);
        if (beat % 3 == 0) {
            hear_type(MST_JOB_PONG);
        }
    }
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
    hear((struct mst__job_message){.type = MST_JOB_CLOSED,
                                   .u.closed.reason = mst_bytes_str("done")});
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

/* A server that does not number workers would leave a launcher without their ranks. */
static void workers_need_ranks(void **state)
{
    (void)state;
    static const struct {
        struct mst__worker_ranks ranks;
        int code; /* 0 = accepted */
    } told[] = {
        {{0, 0, 0, 0}, MST_ENOTSUP}, /* an older muster decides behind an etcd */
        {{0, 3, 0, 3}, 0},
        {{1, 4, 1, 4}, 0},
        {{1, 3, 0, 3}, MST_EPROTO},
        {{0, 3, 1, 3}, MST_EPROTO},
        {{0, 2, 0, 2}, MST_EPROTO},
        {{UINT32_MAX, UINT32_MAX, 0, 3}, MST_EPROTO},
        {{0, UINT32_MAX, 0, UINT32_MAX}, MST_EPROTO},
    };
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        (void)reset(NULL);
        member.options.self.workers = 3;
        want(INT64_MAX);
        announced_as(false);
        hear_welcome(MST_JOB_VERSION_WORKERS);
        hear((struct mst__job_message){
            .type = MST_JOB_SEALED,
            .u.round = {
                .epoch = 9, .round = 1, .world = 2, .rank = 1, .worker_ranks = told[i].ranks}});
        effects_are(told[i].code == 0 ? "sealed" : "failed send:leave disconnect");
        assert_int_equal(member.err.code, told[i].code);
    }
    (void)reset(NULL);
    member.options.self.workers = 3;
    want(INT64_MAX);
    announced_as(false);
    hear_welcome(MST_JOB_VERSION_WORKERS - 1);
    effects_are("failed send:leave disconnect");
    assert_int_equal(member.err.code, MST_ENOTSUP);
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

/* Rounds that follow each other fast: the end of each crosses an announcement for the next. */
static void fast_rounds_are_followed_by_no_pauses(void **state)
{
    (void)state;
    in_round(1);
    for (int64_t round = 2; round < 100; round++) {
        want(INT64_MAX);
        hear_type(MST_JOB_REOPENED);
        effects_are("send:announce");
        hear_round(MST_JOB_SEALED, round, 1);
        effects_are("sealed");
    }
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
        cmocka_unit_test_setup(few_heartbeats_want_answers, reset),
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
        cmocka_unit_test_setup(finished_before_it_came, reset),
        cmocka_unit_test_setup(asks_for_a_new_job, reset),
        cmocka_unit_test_setup(does_not_grow, reset),
        cmocka_unit_test_setup(workers_need_ranks, reset),
        cmocka_unit_test_setup(news_of_a_round_make_it_announce_again, reset),
        cmocka_unit_test_setup(fast_rounds_are_followed_by_no_pauses, reset),
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
