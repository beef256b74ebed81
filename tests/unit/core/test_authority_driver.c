/* unit/core/test_authority_driver.c - the duties of an authority's driver, and its reports:
 * silence counts when all that had arrived was read, claims and members cost memory, ends have
 * causes. */
#include "core/listening.h"
#include "unit/core/authority_unit.h"

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
    /* The next poll reads the bytes of new connections. */
    assert_int_equal(mst__listening_judge(&listening, 100, 501), MST_LISTENING_POLL);
    mst__listening_poll(&listening, 502);
    assert_int_equal(mst__listening_judge(&listening, 100, 503), MST_LISTENING_DUE);
    assert_int_equal(mst__listening_judge(&listening, 500, 503), MST_LISTENING_DUE);
    assert_int_equal(mst__listening_judge(&listening, 501, 503), MST_LISTENING_POLL);
    assert_int_equal(mst__listening_judge(&listening, INT64_MAX, 503), MST_LISTENING_LATER);
}

/* A poll that waits tells nothing about the time of its wait. */
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

/* Another node is heard while the messages of a living one are still unread. */
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
    assert_int_equal(step_heard(&run.authority, run_id(&run, "a"), run.now_us), 0);
    step_time(&run.authority, due_us - 1);
    assert_told(&run, "");
    assert_int_equal(step_heard(&run.authority, run_id(&run, "b"), run.now_us), 0);
    step_time(&run.authority, due_us);
    assert_told(&run, "expelled c; lost c=2; reopened 2 lost c; ");
    assert_int_equal(mst__authority_due_us(&run.authority), run.now_us + 15 * SECOND_US);
    run_close(&run);
}

/* After any stop of the driver: a silent node is lost when all that had arrived was read. A node
 * without a connection gets a moment longer. */
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
    assert_int_equal(step_heard(&run.authority, run_id(&run, "a"), run.now_us), 0);
    step_time(&run.authority, run.now_us);
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
    step_time(&run.authority, run.now_us);
    run_pass(&run, SECOND_US - 1, false);
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RECLAIMING);
    said = run_announcement(&run, "b");
    said.claim = (struct mst__claim){.epoch = 3, .round = 5, .world = 2, .rank = 1, .holds = true};
    assert_int_equal(run_say(&run, &said), 0);
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RUNNING);
    assert_told(&run, "");
    run_close(&run);
}

/* --- which process a node is --- */

static int say_as(struct unit_run *run,
                  const char *name,
                  uint64_t incarnation,
                  uint64_t session,
                  uint64_t contact)
{
    struct mst__announcement said = run_announcement(run, name);
    said.incarnation = incarnation;
    said.session = session;
    said.contact = contact;
    int rv = run_say(run, &said);
    assert_true(rv == 0 || run->refusal == MST_REFUSAL_STALE);
    return rv;
}

/* Of two processes the one with the newer connection is the node, for any clocks. */
static void newer_contact_wins(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 2);
    assert_int_equal(say_as(&run, "a", 1000, 11, 5), 0);
    run_join(&run, "b");
    assert_told(&run, "sealed 7/1 of 2 at a a=0 b=1; ");
    assert_int_equal(say_as(&run, "a", 3, 12, 6), 0);
    assert_told(&run, "expelled a; lost a=0; reopened 2 lost a; ");
    run_back(&run, "b");
    assert_told(&run, "sealed 7/2 of 2 at a a=0 b=1; ");
    /* Late messages on an older connection replace no process. */
    assert_int_equal(say_as(&run, "a", 1000, 11, 5), MST_EEXPELLED);
    assert_int_equal(say_as(&run, "a", 2000, 10, 4), MST_EEXPELLED);
    /* The present process may have another connection, then the last one is the older one. */
    assert_int_equal(say_as(&run, "a", 3, 12, 8), 0);
    assert_told(&run, "sealed 7/2 of 2 at a a=0; ");
    assert_int_equal(say_as(&run, "a", 3, 12, 6), MST_EEXPELLED);
    /* A lost process comes back itself. */
    run_lose(&run, "a");
    assert_told(&run, "lost a=0; reopened 3 lost a; ");
    assert_int_equal(say_as(&run, "a", 3, 12, 6), MST_EEXPELLED);
    assert_int_equal(say_as(&run, "a", 3, 12, 9), 0);
    run_back(&run, "b");
    assert_told(&run, "sealed 7/3 of 2 at a a=0 b=1; ");
    run_close(&run);
}

/* Two living processes do not fight for a name: the replaced one does not come back. */
static void replaced_is_over(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 2);
    for (uint64_t i = 1; i <= MST_AUTHORITY_REPLACED_MAX + 1; i++) {
        assert_int_equal(say_as(&run, "a", 100 - i, 10 + i, i), 0);
        for (uint64_t before = 1; before < i; before++) {
            assert_int_equal(say_as(&run, "a", 100 - before, 10 + before, 50 + i), MST_EEXPELLED);
            assert_string_equal(run.err.msg, "replaced by a newer process of node 'a', at 'a'; "
                                             "nodes need different names");
        }
    }
    assert_int_equal(run.authority.living_count, 1);
    run_close(&run);
}

/* A process of @name holds a place in round 4 of an earlier authority. */
static int say_claim(struct unit_run *run,
                     const char *name,
                     uint64_t incarnation,
                     uint32_t rank,
                     uint32_t world)
{
    struct mst__announcement said = run_announcement(run, name);
    said.incarnation = incarnation;
    said.session = incarnation;
    said.claim = (struct mst__claim){
        .epoch = UNIT_EPOCH, .round = 4, .world = world, .rank = rank, .holds = true};
    return run_say(run, &said);
}

/* A newer process of a member has the place of that member, not one that nobody has claimed. */
static void claim_of_a_second_place(void **state)
{
    (void)state;
    struct unit_run run;
    run_init_epoch(&run, 1, 3, 8);
    assert_int_equal(say_claim(&run, "a", 1, 0, 3), 0);
    assert_int_equal(say_claim(&run, "a", 2, 2, 3), MST_EEXPELLED);
    assert_int_equal(run.refusal, MST_REFUSAL_CLAIM);
    assert_int_equal(say_claim(&run, "c", 1, 2, 3), 0);
    run_close(&run);
}

/* Members far from the first ones are found, also if nobody else has claimed a place. */
static void one_of_many_claims(void **state)
{
    (void)state;
    struct unit_run run;
    run_init_epoch(&run, 1, 1000, 8);
    assert_int_equal(say_claim(&run, "a", 1, 999, 1000), 0);
    uint32_t cursor = 0;
    const struct mst__authority_member *member =
        mst__authority_next_holder(&run.authority, &cursor);
    assert_non_null(member);
    assert_int_equal(member->rank, 999);
    assert_null(mst__authority_next_holder(&run.authority, &cursor));
    run_close(&run);
}

/* A process that does not say its session is not taken for one that was replaced. */
static void sessions_unsaid(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 2);
    for (uint64_t incarnation = 1; incarnation <= 3; incarnation++) {
        struct mst__announcement said = run_announcement(&run, "a");
        said.incarnation = incarnation;
        said.session = 0;
        assert_int_equal(run_say(&run, &said), 0);
    }
    assert_int_equal(run.authority.living_count, 1);
    run_close(&run);
}

/* A member that connects again may have missed that nodes wait. */
static void who_connects_again_hears_who_waits(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 3);
    run_join(&run, "a");
    run_pass(&run, 30 * SECOND_US, true);
    run_join(&run, "b");
    assert_told(&run, "sealed 7/1 of 1 at a a=0; queued b; waiting 1; ");
    run_cut(&run, "a");
    struct mst__announcement said = run_announcement(&run, "a");
    said.claim = run_claim(&run, "a");
    said.claim.holds = true;
    assert_int_equal(run_say(&run, &said), 0);
    assert_told(&run, "waiting 1; ");
    run_close(&run);
}

/* The last message of a process counts, also if a new authority first hears an older one, over a
 * closed connection. */
static void older_word_comes_first(void **state)
{
    (void)state;
    struct unit_run run;
    run_init_epoch(&run, 2, 3, 9);
    struct mst__announcement said = run_announcement(&run, "a");
    said.contact = 5;
    said.claim = (struct mst__claim){.epoch = 7, .round = 2, .rank = 0, .world = 3};
    assert_int_equal(run_say(&run, &said), 0);
    said.contact = 6;
    said.claim.round = 3;
    said.claim.holds = true;
    assert_int_equal(run_say(&run, &said), 0);
    assert_int_equal(run.authority.round, 3);
    assert_int_equal(run.authority.living_count, 1);
    assert_int_equal(run.authority.held_count, 1);
    /* On one connection messages come in order, so a process cannot send this. */
    said.claim.round = 4;
    assert_int_equal(run_say(&run, &said), MST_EEXPELLED);
    assert_int_equal(run.refusal, MST_REFUSAL_CLAIM);
    run_close(&run);
}

/* --- what a claim costs --- */

/* A round of any size with one member here costs as much as one member. */
static void claim_reserves_nothing(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 2);
    const uint32_t world = MST_AUTHORITY_MEMBERS_MAX;
    struct mst__announcement said = run_announcement(&run, "a");
    said.claim = (struct mst__claim){
        .epoch = 3, .round = 5, .world = world, .rank = world - 1, .holds = true};
    assert_int_equal(run_say(&run, &said), 0);
    assert_true(run.authority.memory_used < MST_KIB(9)); /* 512 KiB for all places */
    assert_true(run.authority.stats.steps < 1000);
    /* All others are lost: as many are listed as there is room for, and all are counted. */
    run.now_us += 5 * SECOND_US;
    step_time(&run.authority, run.now_us);
    struct mst__authority_effect effect;
    assert_true(mst__authority_next_effect(&run.authority, &effect));
    assert_int_equal(effect.kind, MST_TOLD_LOST);
    assert_int_equal(effect.lost_total, world - 1);
    assert_int_equal(effect.lost_count + effect.lost_unlisted, world - 1);
    assert_true(effect.lost_count > 0);
    for (uint32_t i = 0; i < effect.lost_count; i++) {
        assert_int_equal(effect.lost[i], i);
    }
    assert_true(mst__authority_next_effect(&run.authority, &effect));
    assert_int_equal(effect.kind, MST_TOLD_REOPENED);
    assert_int_equal(effect.rank, 0);
    /* And so is the former one. */
    run_lose(&run, "a");
    assert_told(&run, "");
    assert_int_equal(run.authority.lost[run.authority.lost_count - 1], world - 1);
    run_close(&run);
}

static int claim_round(struct unit_run *run, const char *name, int64_t round)
{
    struct mst__announcement said = run_announcement(run, name);
    said.claim = (struct mst__claim){
        .epoch = 3, .round = round, .world = 1, .rank = MST_AUTHORITY_RANK_NONE};
    return run_say(run, &said);
}

/* No claim makes the next round one that its own members cannot claim. */
static void claimed_rounds_are_bounded(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 1);
    run.last_call_us = 0;
    const int64_t step = MST_AUTHORITY_CLAIM_STEP_MAX;
    assert_int_equal(claim_round(&run, "a", INT64_MAX / 2), MST_EINVAL);
    assert_int_equal(run.refusal, MST_REFUSAL_MALFORMED);
    run_join(&run, "a");
    assert_told(&run, "sealed 7/1 of 1 at a a=0; ");
    assert_int_equal(claim_round(&run, "b", 2 + step), MST_EINVAL);
    assert_int_equal(run.refusal, MST_REFUSAL_MALFORMED);
    assert_int_equal(claim_round(&run, "b", 1 + step), 0);
    assert_int_equal(mst__authority_round_next(&run.authority), 2 + step);
    /* Up to the end, and there the members of the last round can still claim it. */
    run.authority.round_floor = MST_AUTHORITY_CLAIM_MAX - 1;
    assert_int_equal(claim_round(&run, "c", MST_AUTHORITY_CLAIM_MAX + 1), MST_EINVAL);
    assert_int_equal(claim_round(&run, "c", MST_AUTHORITY_CLAIM_MAX), 0);
    run_leave(&run, "b");
    run_leave(&run, "c");
    run_back(&run, "a");
    assert_true(run.authority.round == MST_AUTHORITY_CLAIM_MAX + 1);
    struct mst__announcement said = run_announcement(&run, "a");
    said.claim = run_claim(&run, "a");
    said.claim.holds = true;
    assert_int_equal(run_say(&run, &said), 0);
    run_close(&run);

    /* A new authority believes more, but nothing absurd. */
    run_init(&run, 1, 2);
    assert_int_equal(claim_round(&run, "a", MST_AUTHORITY_CLAIM_MAX + 1), MST_EINVAL);
    assert_int_equal(claim_round(&run, "a", MST_AUTHORITY_CLAIM_MAX), 0);
    struct mst__announcement late = run_announcement(&run, "b");
    late.claim = (struct mst__claim){.epoch = (uint64_t)INT64_MAX + 1, .round = 1, .world = 1};
    assert_int_equal(run_say(&run, &late), MST_EINVAL);
    run_close(&run);
}

static void restored_rounds_are_bounded(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 2);
    const int64_t most = MST_AUTHORITY_ROUND_MAX;
    struct mst__authority *authority = &run.authority;
    assert_int_equal(step_restore(authority, 1, most + 1, 2, run.now_us), MST_EINVAL);
    assert_int_equal(step_restore(authority, 0, 1, 2, run.now_us), MST_EINVAL);
    uint64_t epoch = (uint64_t)INT64_MAX + 1;
    assert_int_equal(step_restore(authority, epoch, 1, 2, run.now_us), MST_EINVAL);
    assert_int_equal(step_restore(authority, epoch - 1, most, 2, run.now_us), 0);
    assert_true(mst__authority_round_next(authority) == most + 1);
    run_close(&run);
}

static void memory_is_bounded(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 1000);
    char names[1000][8];
    uint32_t count = 0;
    int rv = 0;
    for (; count < 1000 && rv == 0; count += rv == 0) {
        (void)snprintf(names[count], sizeof names[count], "n%" PRIu32, count);
        struct mst__announcement said = run_announcement(&run, names[count]);
        said.memory_max = MST_KIB(64);
        rv = run_say(&run, &said);
        assert_true(run.authority.memory_used <= MST_KIB(64));
    }
    assert_int_equal(rv, MST_ELIMIT);
    assert_int_equal(run.refusal, MST_REFUSAL_MEMORY);
    assert_non_null(strstr(run.err.msg, "--max-memory"));
    assert_true(count > 100);
    assert_int_equal(run.authority.living_count, count);
    /* Their memory is discharged with them. */
    size_t full = run.authority.memory_used;
    for (uint32_t i = 0; i < count; i++) {
        run_leave(&run, names[i]);
    }
    assert_true(run.authority.memory_used < full - count * sizeof names[0]);
    run_join(&run, "again");
    run_close(&run);
}

/* Texts, name, entries and places share the room that is left: whatever that is, no announcement
 * uses more, and a refused one uses nothing for its texts. */
static void memory_is_reserved_first(void **state)
{
    (void)state;
    static char name[MST_AUTHORITY_NAME_SIZE_MAX + 1];
    static char address[MST_AUTHORITY_ADDRESS_SIZE_MAX + 1];
    memset(name, 'n', sizeof name - 1);
    memset(address, 'a', sizeof address - 1);
    size_t refused = 0;
    for (size_t room = 0; room < MST_KIB(8); room += 16) {
        struct unit_run run;
        run_init(&run, 2, 1000);
        run_join(&run, "first");
        size_t before = run.authority.memory_used;
        struct mst__announcement said = run_announcement(&run, name);
        said.address = mst_bytes_str(address);
        said.memory_max = before + room;
        int rv = run_say(&run, &said);
        assert_in_range(run.authority.memory_used, before, before + room);
        if (rv != 0) {
            refused++;
            assert_int_equal(run.refusal, MST_REFUSAL_MEMORY);
            assert_int_equal(run.authority.memory_used, before);
        } else { /* the texts are charged, and the name in the table as well */
            assert_true(run.authority.memory_used - before >= 2 * sizeof name + sizeof address);
        }
        run_close(&run);
    }
    assert_in_range(refused, 1, MST_KIB(8) / 16 - 1);
}

/* --- causes --- */

static void print_ended(void *arg,
                        const struct mst__authority_member *member,
                        enum mst__authority_ended how,
                        uint32_t count)
{
    run_print(arg, "%s %s %u", member_text(member), mst__authority_ended_name(how), count);
    run_print(arg, "; ");
}

/* The driver hears of every end of a session, with its cause. */
static void ends_have_causes(void **state)
{
    (void)state;
    struct unit_run run;
    run_init_epoch(&run, 1, 3, 8);
    run.authority.options.ended = print_ended;
    run.authority.options.trace_arg = &run;
    run.authority.options.return_us = 60 * SECOND_US;
    struct mst__announcement said = run_announcement(&run, "b");
    said.claim = (struct mst__claim){.epoch = 7, .round = 4, .world = 3, .rank = 1, .holds = true};
    assert_int_equal(run_say(&run, &said), 0);
    run_pass(&run, 5 * SECOND_US, true);
    assert_told(&run, "? unclaimed 2; lost ?=0 ?=2; reopened 5 lost ?; ");
    said = run_announcement(&run, "a");
    said.claim = (struct mst__claim){.epoch = 7, .round = 6, .world = 1, .rank = 0, .holds = true};
    assert_int_equal(run_say(&run, &said), 0);
    assert_told(&run, "b over 1; expelled b; ");
    struct mst__announcement again = run_announcement(&run, "a");
    again.incarnation = 2;
    char second[] = "a, again";
    again.driver = second;
    assert_int_equal(run_say(&run, &again), 0);
    assert_told(&run, "a replaced 1; sealed 8/7 of 1 at a a=0; expelled a; ");
    run_join(&run, "c");
    run_cut(&run, "c");
    run_pass(&run, SECOND_US, true);
    run_join(&run, "d");
    run_leave(&run, "d");
    run_join(&run, "e");
    run_lose(&run, "e");
    assert_told(&run, "queued c; waiting 1; waiting 0; c disconnected 1; queued d; waiting 1; "
                      "d left 1; waiting 0; queued e; waiting 1; e dead 1; waiting 0; ");
    run_join(&run, "f");
    run_pass(&run, 15 * SECOND_US, false);
    assert_told(&run,
                "queued f; waiting 1; a silent 1; f silent 1; expelled a, again; expelled f; ");
    run_join(&run, "g");
    run_join(&run, "h");
    run_pass(&run, 30 * SECOND_US, true);
    run_back(&run, "g");
    run_pass(&run, 60 * SECOND_US, true);
    assert_told(&run, "sealed 8/8 of 2 at g g=0 h=1; reopened 9 returned g; h late 1; "
                      "sealed 8/9 of 1 at g g=0; expelled h; ");
    run_close(&run);
}

/* --- silence --- */

static void run_say_expiry(struct unit_run *run, const char *name, int64_t expiry_us)
{
    struct mst__announcement said = run_announcement(run, name);
    said.expiry_us = expiry_us;
    assert_int_equal(run_say(run, &said), 0);
}

/* The time that a node allows for silence is its own, whoever is or was here, and the last one that
 * it has announced. */
static void patience(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 3, 3);
    run_join(&run, "a");
    run_say_expiry(&run, "b", (int64_t)3600 * SECOND_US);
    run_say_expiry(&run, "b", 20 * SECOND_US);
    run_say_expiry(&run, "c", 30 * SECOND_US);
    assert_told(&run, "sealed 7/1 of 3 at a a=0 b=1 c=2; ");
    run_pass(&run, 15 * SECOND_US - 1, false);
    assert_told(&run, "");
    run_pass(&run, 1, false);
    assert_told(&run, "expelled a; lost a=0; reopened 2 lost a; ");
    run_pass(&run, 5 * SECOND_US - 1, false);
    assert_told(&run, "");
    run_pass(&run, 1, false);
    assert_told(&run, "expelled b; lost b=1; ");
    run_pass(&run, 10 * SECOND_US - 1, false);
    assert_told(&run, "");
    run_pass(&run, 1, false);
    assert_told(&run, "expelled c; ");
    run_close(&run);
}

/* A stranger who may be silent for an hour, and is gone, takes nobody's patience with it. */
static void patience_of_a_stranger(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 2);
    run_say_expiry(&run, "stranger", (int64_t)3600 * SECOND_US);
    run_leave(&run, "stranger");
    run_join(&run, "a");
    run_join(&run, "b");
    assert_told(&run, "sealed 7/1 of 2 at a a=0 b=1; ");
    run_pass(&run, 14 * SECOND_US, false);
    assert_int_equal(step_heard(&run.authority, run_id(&run, "a"), run.now_us), 0);
    run_pass(&run, SECOND_US - 1, false);
    assert_told(&run, "");
    run_pass(&run, 1, false);
    assert_told(&run, "expelled b; lost b=1; reopened 2 lost b; ");
    run_close(&run);
}

/* More different expiries than are told apart: some may be silent for longer than they asked, none
 * is lost before its time, and the first ones keep theirs. */
static void patience_of_many(void **state)
{
    (void)state;
    struct unit_run run;
    const unsigned count = MST_AUTHORITY_EXPIRIES_MAX + 3;
    run_init(&run, count, count);
    char name[8];
    for (unsigned i = 0; i < count; i++) {
        /* 20, 40, … and then one in between, one beyond all and one below all. */
        static const int64_t late_s[] = {50, 400, 16};
        (void)snprintf(name, sizeof name, "n%u", i);
        run_say_expiry(&run, name,
                       (i < MST_AUTHORITY_EXPIRIES_MAX ? 20 * (int64_t)(i + 1)
                                                       : late_s[i - MST_AUTHORITY_EXPIRIES_MAX]) *
                           SECOND_US);
        mst__authority_check(&run.authority);
    }
    static const int64_t lost_s[] = {20, 40, 60, 80, 100, 120, 140, 400, 60, 400, 20};
    assert_int_equal(sizeof lost_s / sizeof lost_s[0], count);
    for (int64_t now_s = 1; now_s <= 400; now_s++) {
        run_pass(&run, SECOND_US, false);
        for (unsigned i = 0; i < count; i++) {
            (void)snprintf(name, sizeof name, "n%u", i);
            bool is_here =
                mst__authority_find(&run.authority, mst_bytes_str(name)) != MST_AUTHORITY_NOBODY;
            assert_int_equal(is_here, now_s < lost_s[i]);
        }
    }
    run_close(&run);
}

/* --- texts --- */

/* Labels have keys, and no text has control characters. All texts together, each with a NUL, take
 * up to their maximum, and not a byte more. */
static void texts_of_announcements(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 4);
    char text[MST_AUTHORITY_TEXT_SIZE_MAX];
    memset(text, 'x', sizeof text);
    const struct mst__label wrong[] = {
        {mst_bytes_str(""), mst_bytes_str("v")},
        {mst_bytes_str("k"), mst_bytes_str("\033v")},
        {mst_bytes_str("k\n"), mst_bytes_str("v")},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct mst__announcement said = run_announcement(&run, "a");
        said.labels = &wrong[i];
        said.labels_count = 1;
        assert_int_equal(run_say(&run, &said), MST_EINVAL);
        assert_int_equal(run.refusal, MST_REFUSAL_MALFORMED);
    }
    struct mst__announcement said = run_announcement(&run, "a");
    said.rank_by = mst_bytes_str("k\r");
    assert_int_equal(run_say(&run, &said), MST_EINVAL);
    said = run_announcement(&run, "a");
    said.name = mst_bytes_of(text, 255);
    said.address = mst_bytes_of(text, 255);
    said.role = mst_bytes_of(text, 255);
    for (size_t more = 0; more < 2; more++) { /* two NULs of a label, three of the others */
        const struct mst__label label = {
            mst_bytes_str("k"),
            mst_bytes_of(text, MST_AUTHORITY_TEXT_SIZE_MAX - 3 * 255 - 6 + (more == 0 ? 1 : 0))};
        said.labels = &label;
        said.labels_count = 1;
        assert_int_equal(run_say(&run, &said), more == 0 ? MST_ELIMIT : 0);
    }
    run_close(&run);
}

/* All agree on the last call and the budget, and a refusal says in which units. */
static void settings_of_announcements(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 4);
    run.budget =
        (struct mst__budget){.is_limited = true, .restarts_max = 3, .window_us = 60 * SECOND_US};
    run_join(&run, "a");
    for (int64_t more_us = -SECOND_US; more_us <= SECOND_US; more_us += 2 * SECOND_US) {
        struct mst__announcement said = run_announcement(&run, "b");
        said.last_call_us += more_us;
        assert_int_equal(run_say(&run, &said), MST_EINVAL);
        assert_int_equal(run.refusal, MST_REFUSAL_SETTINGS);
    }
    struct mst__announcement said = run_announcement(&run, "b");
    said.budget.is_limited = false;
    assert_int_equal(run_say(&run, &said), MST_EINVAL);
    assert_string_equal(run.err.msg, "node 'b' asks for any number of restarts, this run has 3 "
                                     "restarts in 60000 ms, as node 'a' said; all have to agree");
    /* And heartbeats are counted. */
    uint64_t heartbeats = run.authority.stats.heartbeats;
    assert_int_equal(step_heard(&run.authority, run_id(&run, "a"), run.now_us), 0);
    assert_int_equal(run.authority.stats.heartbeats, heartbeats + 1);
    run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patience),
        cmocka_unit_test(texts_of_announcements),
        cmocka_unit_test(settings_of_announcements),
        cmocka_unit_test(patience_of_a_stranger),
        cmocka_unit_test(patience_of_many),
        cmocka_unit_test(timer_decides_nothing),
        cmocka_unit_test(long_poll),
        cmocka_unit_test(judged_as_of_what_was_read),
        cmocka_unit_test(stopped_driver),
        cmocka_unit_test(stopped_while_reclaiming),
        cmocka_unit_test(claim_reserves_nothing),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(memory_is_reserved_first),
        cmocka_unit_test(claimed_rounds_are_bounded),
        cmocka_unit_test(restored_rounds_are_bounded),
        cmocka_unit_test(newer_contact_wins),
        cmocka_unit_test(claim_of_a_second_place),
        cmocka_unit_test(one_of_many_claims),
        cmocka_unit_test(sessions_unsaid),
        cmocka_unit_test(who_connects_again_hears_who_waits),
        cmocka_unit_test(older_word_comes_first),
        cmocka_unit_test(replaced_is_over),
        cmocka_unit_test(ends_have_causes),
    };
    return MST_RUN_TESTS(tests);
}
