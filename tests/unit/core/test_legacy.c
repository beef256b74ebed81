/* unit/core/test_legacy.c - the machine of the legacy rendezvous against a small model of etcd's
 * keys, and step by step against a script. */
#include "unit/core/legacy_unit.h"

/* --- scenarios --- */

static void test_setup_makes_what_peers_need(void **state)
{
    (void)state;
    struct world *world = world_new();
    struct actor *actor = world_join(world, 1, 1, 0);
    for (int i = 0; i < 2; i++) {
        actor_begin(world, actor, MST_LEGACY_OP_SETUP, SECOND_US);
        assert_true(world_run(world, SECOND_US));
        assert_int_equal(actor->outcome.result, MST_LEGACY_OK);
    }
    const struct key *job = world_find(world, "/p/run_j");
    assert_non_null(job);
    assert_true(job->has_ttl);
    assert_int_equal((job->expires_us - world->now_us) / SECOND_US, MST_LEGACY_TTL_JOB - 1);
    const struct key *counter = world_find(world, "/p/run_j/rdzv/version_counter");
    assert_non_null(counter);
    assert_string_equal(counter->value, "0");
    assert_true(mst__legacy_beat_us(&actor->machine) > world->now_us + 3500 * SECOND_US);
    world_free(world);
}

/* The job's directory, and all that is in it, lives as long as a node that has set it up: a member
 * that watches, or a spare that waits. */
static void test_directory_lives_as_long_as_the_job(void **state)
{
    (void)state;
    for (size_t keeper = 0; keeper < 2; keeper++) {
        struct world *world = world_new();
        struct actor *member = world_join(world, 1, 1, 0);
        struct actor *spare = world_join(world, 1, 1, 0);
        actor_begin(world, &world->actors[keeper], MST_LEGACY_OP_SETUP, SECOND_US);
        assert_true(world_run(world, SECOND_US));
        actor_begin(world, member, MST_LEGACY_OP_NEXT, 60 * SECOND_US);
        assert_true(world_run(world, 5 * SECOND_US));
        assert_int_equal(member->outcome.result, MST_LEGACY_OK);
        actor_begin(world, spare, MST_LEGACY_OP_NEXT, 4 * MST_LEGACY_TTL_JOB * SECOND_US);
        int64_t end_us = world->now_us + 3 * MST_LEGACY_TTL_JOB * SECOND_US;
        while (world->now_us < end_us) {
            if (member->is_done) {
                actor_begin(world, member, MST_LEGACY_OP_WATCH, 60 * SECOND_US);
            }
            assert_false(world_run(world, 60 * SECOND_US));
            const struct key *job = world_find(world, "/p/run_j");
            assert_non_null(job);
            assert_true(job->expires_us - world->now_us > MST_LEGACY_TTL_JOB / 3 * SECOND_US);
        }
        assert_false(member->machine.is_expelled);
        assert_false(spare->is_done);
        world_free(world);
    }
}

/* The bar: the peers need 5.5 s and 137 requests per node. */
static void test_many_nodes_need_little(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 5, 16, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct world *world = world_new();
        for (int64_t k = 0; k < sizes[i]; k++) {
            (void)world_join(world, sizes[i], sizes[i], 30 * SECOND_US);
        }
        world_next(world);
        assert_true(world_run(world, 60 * SECOND_US));
        world_check(world, sizes[i]);
        uint64_t requests = 0;
        for (size_t k = 0; k < world->actor_count; k++) {
            requests += world->actors[k].machine.stats.requests;
        }
        (void)printf("%" PRId64 " nodes: %" PRId64 " ms, %.1f requests per node\n", sizes[i],
                     world->now_us / 1000, (double)requests / (double)sizes[i]);
        assert_true(world->now_us < 1100000);
        assert_true(requests < (uint64_t)(45 * sizes[i]));
        const struct mst__legacy_doc *doc = world_doc(world);
        assert_int_equal(doc->status, MST_LEGACY_FINAL);
        assert_int_equal(doc->keep_alive_count, sizes[i]);
        assert_false(world_find(world, ACTIVE)->has_ttl);
        world_free(world);
    }
}

static void test_all_enter_again_at_once(void **state)
{
    (void)state;
    struct world *world = world_new();
    for (int i = 0; i < 3; i++) {
        (void)world_join(world, 3, 3, 30 * SECOND_US);
    }
    for (int64_t round = 1; round <= 4; round++) {
        int64_t began_us = world->now_us;
        world_next(world);
        assert_true(world_run(world, 2 * SECOND_US));
        assert_true(world->now_us - began_us < 2 * SECOND_US);
        world_check(world, 3);
        assert_int_equal(world->actors[0].outcome.version, round);
        world->now_us += 3 * SECOND_US;
    }
    world_free(world);
}

static void test_last_call_lets_others_in(void **state)
{
    (void)state;
    struct world *world = world_new();
    for (int i = 0; i < 2; i++) {
        (void)world_join(world, 2, 5, 8 * SECOND_US);
    }
    world_next(world);
    assert_false(world_run(world, 5 * SECOND_US));
    assert_int_equal(world_doc(world)->status, MST_LEGACY_JOINABLE);
    assert_true(world_find(world, ACTIVE)->has_ttl);
    struct actor *late = world_join(world, 2, 5, 8 * SECOND_US);
    actor_begin(world, late, MST_LEGACY_OP_NEXT, 60 * SECOND_US);
    assert_true(world_run(world, 10 * SECOND_US));
    world_check(world, 3);
    assert_in_range(world->now_us, 8 * SECOND_US, 9 * SECOND_US);
    world_free(world);
}

/* The node that began the last call dies: the others end it, and it does not begin anew. */
static void test_last_call_survives_its_leader(void **state)
{
    (void)state;
    struct world *world = world_new();
    for (int i = 0; i < 3; i++) {
        (void)world_join(world, 2, 5, 15 * SECOND_US);
    }
    world_next(world);
    assert_false(world_run(world, 2 * SECOND_US));
    for (size_t i = 0; i < 3; i++) {
        if (world->actors[i].machine.is_caller) {
            world->actors[i].is_alive = false;
        }
    }
    assert_true(world_run(world, 28 * SECOND_US));
    world_check(world, 2);
    world_free(world);
}

/* A node that died below the minimum: the next node gets its seat. */
static void test_phantom_below_the_minimum(void **state)
{
    (void)state;
    struct world *world = world_new();
    for (int i = 0; i < 2; i++) {
        (void)world_join(world, 3, 3, 0);
    }
    world_next(world);
    assert_false(world_run(world, SECOND_US));
    assert_int_equal(world_doc(world)->participant_count, 2);
    world->actors[0].is_alive = false;
    assert_false(world_run(world, 13 * SECOND_US));
    assert_int_equal(world_doc(world)->status, MST_LEGACY_JOINABLE);
    assert_int_equal(world_doc(world)->participant_count, 1);
    for (int i = 0; i < 2; i++) {
        struct actor *actor = world_join(world, 3, 3, 0);
        actor_begin(world, actor, MST_LEGACY_OP_NEXT, 60 * SECOND_US);
    }
    int64_t began_us = world->now_us;
    assert_true(world_run(world, 2 * SECOND_US));
    assert_true(world->now_us - began_us < SECOND_US);
    world_check(world, 3);
    world_free(world);
}

/* One dies during the last call, at any time before its end: with it the round had its minimum,
 * without it it is not complete until another one comes. */
static void test_death_in_the_last_call(void **state)
{
    (void)state;
    for (int64_t dies_us = 0; dies_us < 3 * SECOND_US; dies_us += SECOND_US / 10) {
        struct world *world = world_new();
        for (int i = 0; i < 3; i++) {
            (void)world_join(world, 3, 4, 12 * SECOND_US);
        }
        world_next(world);
        assert_false(world_run(world, SECOND_US + dies_us));
        assert_int_equal(world_doc(world)->participant_count, 3);
        world->actors[dies_us / (SECOND_US / 10) % 3].is_alive = false;
        assert_false(world_run(world, 25 * SECOND_US));
        assert_int_equal(world_doc(world)->status, MST_LEGACY_JOINABLE);
        assert_int_equal(world_doc(world)->participant_count, 2);
        struct actor *actor = world_join(world, 3, 4, 12 * SECOND_US);
        actor_begin(world, actor, MST_LEGACY_OP_NEXT, 60 * SECOND_US);
        assert_true(world_run(world, 16 * SECOND_US));
        world_check(world, 3);
        world_free(world);
    }
}

/* One dies after the round was frozen, before it has confirmed: no need to wait for the document to
 * expire longer than for its key. */
static void test_death_in_frozen(void **state)
{
    (void)state;
    struct world *world = world_new();
    for (int i = 0; i < 3; i++) {
        (void)world_join(world, 3, 4, 2 * SECOND_US);
    }
    world_next(world);
    while (world_find(world, ACTIVE) == NULL || world_doc(world)->status != MST_LEGACY_FROZEN) {
        assert_false(world_run(world, 100));
    }
    world->actors[1].is_alive = false;
    struct actor *actor = world_join(world, 3, 4, 2 * SECOND_US);
    actor_begin(world, actor, MST_LEGACY_OP_NEXT, 60 * SECOND_US);
    int64_t began_us = world->now_us;
    assert_true(world_run(world, 30 * SECOND_US));
    world_check(world, 3);
    assert_true(world->now_us - began_us < 14 * SECOND_US);
    world_free(world);
}

/* A member dies: the others hear its name when its key has expired, and enter again. */
static void test_death_in_final(void **state)
{
    (void)state;
    struct world *world = world_new();
    for (int i = 0; i < 3; i++) {
        (void)world_join(world, 2, 3, 0);
    }
    world_next(world);
    assert_true(world_run(world, 5 * SECOND_US));
    world_check(world, 3);
    struct actor *dead = &world->actors[1];
    dead->is_alive = false;
    int64_t began_us = world->now_us;
    for (size_t i = 0; i < 3; i += 2) {
        actor_begin(world, &world->actors[i], MST_LEGACY_OP_WATCH, 60 * SECOND_US);
    }
    assert_true(world_run(world, 30 * SECOND_US));
    assert_true(world->now_us - began_us < 12 * SECOND_US);
    struct mst__legacy_changes changes;
    mst__legacy_changes(&world->actors[0].machine, &changes);
    assert_int_equal(changes.lost_count, 1);
    assert_int_equal(world->actors[0].machine.lost[dead->outcome.rank], 1);
    assert_false(changes.expelled);
    world_next(world);
    assert_true(world_run(world, 5 * SECOND_US));
    world_check(world, 2);
    assert_true(world->now_us - began_us < 15 * SECOND_US);
    world_free(world);
}

static void test_leaving_is_told_at_once(void **state)
{
    (void)state;
    struct world *world = world_new();
    for (int i = 0; i < 2; i++) {
        (void)world_join(world, 2, 2, 0);
    }
    world_next(world);
    assert_true(world_run(world, 5 * SECOND_US));
    struct actor *leaver = &world->actors[0];
    struct actor *other = &world->actors[1];
    actor_begin(world, other, MST_LEGACY_OP_WATCH, 60 * SECOND_US);
    int64_t began_us = world->now_us;
    actor_begin(world, leaver, MST_LEGACY_OP_LEAVE, 5 * SECOND_US);
    assert_true(world_run(world, 5 * SECOND_US));
    assert_true(world->now_us - began_us < SECOND_US / 2);
    struct mst__legacy_changes changes;
    mst__legacy_changes(&other->machine, &changes);
    assert_int_equal(changes.lost_count, 1);
    world_free(world);
}

/* A newcomer is announced; when it dies, the members do not restart in vain. */
static void test_waiter_that_dies_does_not_count(void **state)
{
    (void)state;
    struct world *world = world_new();
    struct actor *member = world_join(world, 1, 2, 0);
    world_next(world);
    assert_true(world_run(world, 5 * SECOND_US));
    struct actor *waiter = world_join(world, 1, 2, 0);
    actor_begin(world, waiter, MST_LEGACY_OP_NEXT, 60 * SECOND_US);
    assert_false(world_run(world, SECOND_US));
    assert_int_equal(world_doc(world)->waiting_count, 1);
    waiter->is_alive = false;
    world->now_us += 7 * SECOND_US; /* its key will have expired, ours is refreshed in time */
    actor_begin(world, member, MST_LEGACY_OP_BEAT, SECOND_US);
    assert_true(world_run(world, SECOND_US));
    assert_int_equal(member->outcome.result, MST_LEGACY_OK);
    assert_false(member->machine.is_expelled);
    world->now_us += 4 * SECOND_US;
    world_expire(world);
    actor_begin(world, member, MST_LEGACY_OP_LOOK, SECOND_US);
    assert_true(world_run(world, SECOND_US));
    struct mst__legacy_changes changes;
    mst__legacy_changes(&member->machine, &changes);
    assert_int_equal(changes.waiting_count, 0);
    /* And a watching member removes the entry, for the peers. */
    actor_begin(world, member, MST_LEGACY_OP_WATCH, SECOND_US);
    (void)world_run(world, 2 * SECOND_US);
    assert_int_equal(world_doc(world)->waiting_count, 0);
    world_free(world);
}

static void test_timeout_takes_the_entry_back(void **state)
{
    (void)state;
    struct world *world = world_new();
    struct actor *one = world_join(world, 3, 3, 0);
    struct actor *two = world_join(world, 3, 3, 0);
    actor_begin(world, one, MST_LEGACY_OP_NEXT, 4 * SECOND_US);
    actor_begin(world, two, MST_LEGACY_OP_NEXT, 8 * SECOND_US);
    assert_false(world_run(world, 5 * SECOND_US));
    assert_true(one->is_done);
    assert_int_equal(one->outcome.result, MST_LEGACY_TIMEOUT);
    assert_int_equal(world_doc(world)->participant_count, 1);
    assert_true(world_run(world, 5 * SECOND_US));
    assert_int_equal(two->outcome.result, MST_LEGACY_TIMEOUT);
    assert_null(world_find(world, ACTIVE));
    for (size_t i = 0; i < world->count; i++) {
        assert_null(strstr(world->keys[i].name, "muster_"));
    }
    world_free(world);
}

/* The answer to a write of the document is lost, at each point in turn: no node is in twice. */
static void test_lost_answers(void **state)
{
    (void)state;
    for (unsigned nth = 0; nth < 8; nth++) {
        struct world *world = world_new();
        for (int i = 0; i < 3; i++) {
            (void)world_join(world, 3, 3, 0);
        }
        world_next(world);
        unsigned seen = 0;
        while (!world_run(world, 50)) {
            unsigned swaps = 0;
            for (size_t i = 0; i < 3; i++) {
                swaps += (unsigned)world->actors[i].machine.stats.swaps;
            }
            bool is_due = swaps >= nth && seen == 0;
            for (size_t i = 0; is_due && i < 3; i++) {
                world->actors[i].is_cut = true;
                seen = 1;
            }
            assert_true(world->now_us < 5 * SECOND_US);
        }
        world_check(world, 3);
        assert_int_equal(world->actors[0].outcome.version, 1);
        world_free(world);
    }
}

static void test_other_limits_are_refused(void **state)
{
    (void)state;
    struct world *world = world_new();
    for (int i = 0; i < 2; i++) {
        (void)world_join(world, 2, 2, 0);
    }
    world_next(world);
    assert_true(world_run(world, 5 * SECOND_US));
    struct actor *odd = world_join(world, 1, 3, 0);
    actor_begin(world, odd, MST_LEGACY_OP_NEXT, 60 * SECOND_US);
    assert_true(world_run(world, 5 * SECOND_US));
    assert_int_equal(odd->outcome.result, MST_LEGACY_MISMATCH);
    assert_int_equal(odd->outcome.theirs_min, 2);
    assert_int_equal(odd->outcome.theirs_max, 2);
    assert_int_equal(world_doc(world)->waiting_count, 0);
    /* The dead have no limits. */
    world->now_us += 11 * SECOND_US;
    world_expire(world);
    actor_begin(world, odd, MST_LEGACY_OP_NEXT, 60 * SECOND_US);
    assert_true(world_run(world, 5 * SECOND_US));
    assert_int_equal(odd->outcome.result, MST_LEGACY_OK);
    assert_int_equal(odd->outcome.world, 1);
    world_free(world);
}

static void test_closing(void **state)
{
    (void)state;
    struct world *world = world_new();
    struct actor *one = world_join(world, 2, 2, 0);
    struct actor *two = world_join(world, 2, 2, 0);
    actor_begin(world, one, MST_LEGACY_OP_NEXT, 60 * SECOND_US);
    assert_false(world_run(world, SECOND_US));
    actor_begin(world, two, MST_LEGACY_OP_CLOSE, 5 * SECOND_US);
    assert_true(world_run(world, 5 * SECOND_US));
    assert_int_equal(two->outcome.result, MST_LEGACY_OK);
    assert_int_equal(one->outcome.result, MST_LEGACY_RESULT_CLOSED);
    assert_int_equal(world_doc(world)->status, MST_LEGACY_CLOSED);
    assert_int_equal(world_doc(world)->version, 1);
    actor_begin(world, two, MST_LEGACY_OP_NEXT, 5 * SECOND_US);
    assert_true(world_run(world, 5 * SECOND_US));
    assert_int_equal(two->outcome.result, MST_LEGACY_RESULT_CLOSED);
    world_free(world);
    /* Where there is nothing it can be closed, too. */
    world = world_new();
    one = world_join(world, 2, 2, 0);
    actor_begin(world, one, MST_LEGACY_OP_CLOSE, 5 * SECOND_US);
    assert_true(world_run(world, 5 * SECOND_US));
    assert_int_equal(world_doc(world)->status, MST_LEGACY_CLOSED);
    assert_false(world_find(world, ACTIVE)->has_ttl);
    world_free(world);
}

/* --- step by step --- */

/* Keys are refreshed, and failures are reported when the TTL has certainly passed. */
static void script_beats(struct mst__legacy *machine)
{
    assert_true(mst__legacy_beat_us(machine) < 4 * SECOND_US);
    struct mst__legacy_event beat = {.kind = MST_LEGACY_EVENT_BEGIN,
                                     .operation = MST_LEGACY_OP_BEAT,
                                     .deadline_us = 60 * SECOND_US};
    int64_t now_us = 4 * SECOND_US;
    int attempts = 0;
    for (; !machine->is_expelled; now_us += SECOND_US / 2) {
        struct mst__legacy_effect effect = script(machine, beat, now_us);
        if (effect.kind == MST_LEGACY_PUT) {
            assert_true(effect.is_refresh);
            assert_int_equal(effect.condition, MST_LEGACY_IF_PRESENT);
            attempts++;
            effect = script(machine, (struct mst__legacy_event){.kind = MST_LEGACY_EVENT_UNKNOWN},
                            now_us);
            assert_int_equal(effect.outcome.result, MST_LEGACY_CONNECTION);
        }
        assert_true(now_us < 20 * SECOND_US);
    }
    int64_t silent_us = now_us - SECOND_US / 2 - machine->rank_done_us;
    assert_in_range(silent_us, (MST_LEGACY_TTL_KEY + 1) * SECOND_US,
                    (MST_LEGACY_TTL_KEY + 2) * SECOND_US);
    assert_true(attempts > 5);
}

/* From a frozen document to the end. */
static void script_finish(struct mst__legacy *machine, struct mst__legacy_effect effect)
{
    while (effect.kind == MST_LEGACY_WAIT) {
        effect = script(machine, (struct mst__legacy_event){.kind = MST_LEGACY_EVENT_TIME},
                        effect.until_us);
    }
    assert_int_equal(effect.kind, MST_LEGACY_LIST);
    assert_string_equal(effect.key, "/torchelastic/p2p/run_x/rdzv/v_42");
    struct mst__legacy_entry entry = {.name = "rank_0", .has_ttl = true, .ttl_s = 10};
    struct mst__legacy_event list = answer(0, 0);
    list.index = 13;
    list.entries = &entry;
    list.entry_count = 1;
    effect = script(machine, list, 100000);
    assert_int_equal(effect.doc->status, MST_LEGACY_FINAL);
    assert_int_equal(effect.ttl_s, MST_LEGACY_NO_TTL);
    assert_string_equal(effect.doc->keep_alives[0], "/torchelastic/p2p/run_x/rdzv/v_42/rank_0");
    effect = script(machine, answer(0, 14), 100001);
    assert_string_equal(effect.key, "/torchelastic/p2p/run_x/rdzv/v_42/kv");
    assert_true(effect.is_dir);
    effect = script(machine, answer(105, 14), 100002);
    assert_int_equal(effect.kind, MST_LEGACY_DONE);
    assert_int_equal(effect.outcome.version, 42);
}

/* One node alone: the requests as the peers would see them. */
static void test_requests_of_one_node(void **state)
{
    (void)state;
    struct mst__legacy machine;
    struct mst__legacy_options options = {.prefix = "/torchelastic/p2p/",
                                          .run_id = "x",
                                          .nonce = 0xabc,
                                          .nodes_min = 1,
                                          .nodes_max = 1};
    assert_int_equal(mst__legacy_init(&machine, &options), 0);
    struct mst__legacy_effect effect =
        script(&machine,
               (struct mst__legacy_event){.kind = MST_LEGACY_EVENT_BEGIN,
                                          .operation = MST_LEGACY_OP_NEXT,
                                          .deadline_us = 60 * SECOND_US},
               0);
    assert_int_equal(effect.kind, MST_LEGACY_GET);
    assert_string_equal(effect.key, "/torchelastic/p2p/run_x/rdzv/active_version");
    effect = script(&machine, answer(100, 1), 1);
    assert_int_equal(effect.kind, MST_LEGACY_PUT);
    assert_int_equal(effect.condition, MST_LEGACY_IF_ABSENT);
    assert_int_equal(effect.ttl_s, 5);
    assert_int_equal(effect.doc->status, MST_LEGACY_SETUP);
    effect = script(&machine, answer(0, 2), 2);
    assert_string_equal(effect.key, "/torchelastic/p2p/run_x/rdzv/version_counter");
    struct mst__legacy_event counter = answer(0, 9);
    counter.value = mst_bytes_str("41");
    effect = script(&machine, counter, 3);
    assert_int_equal(effect.condition, MST_LEGACY_IF_INDEX);
    assert_int_equal(effect.previous_index, 9);
    assert_bytes_str(effect.value, "42");
    effect = script(&machine, answer(0, 10), 4);
    assert_string_equal(effect.key, "/torchelastic/p2p/run_x/rdzv/v_42/muster_0000000000000abc");
    assert_int_equal(effect.ttl_s, 10);
    effect = script(&machine, answer(0, 11), 5);
    assert_int_equal(effect.doc->status, MST_LEGACY_FROZEN);
    assert_int_equal(effect.doc->version, 42);
    assert_int_equal(effect.doc->participant_count, 1);
    assert_true(effect.doc->has_keep_alives);
    assert_int_equal(effect.previous_index, 2);
    assert_int_equal(effect.ttl_s, 10);
    effect = script(&machine, answer(0, 12), 6);
    assert_string_equal(effect.key, "/torchelastic/p2p/run_x/rdzv/v_42/rank_0");
    assert_int_equal(effect.condition, MST_LEGACY_ALWAYS);
    assert_int_equal(effect.value.size, 0);
    assert_int_equal(effect.ttl_s, 10);
    script_finish(&machine, script(&machine, answer(0, 13), 7));
    script_beats(&machine);
    mst__legacy_close(&machine);
}

static void test_events_out_of_place(void **state)
{
    (void)state;
    struct mst__legacy machine;
    struct mst__legacy_options options = {
        .prefix = "", .run_id = "x", .nonce = 1, .nodes_min = 1, .nodes_max = 1};
    assert_int_equal(mst__legacy_init(&machine, &options), 0);
    assert_string_equal(machine.job, "/run_x");
    struct mst__legacy_effect effect;
    for (int kind = MST_LEGACY_EVENT_ANSWER; kind <= MST_LEGACY_EVENT_CANCEL; kind++) {
        struct mst__legacy_event event = {.kind = (enum mst__legacy_event_kind)kind};
        assert_int_equal(mst__legacy_step(&machine, &event, 0, 1, &effect), MST_EINVAL);
    }
    mst__legacy_close(&machine);
}

/* --- ranks --- */

/* Peers keep their ranks when a node is removed; the last one moves up if it is ours. */
static void test_unseat(void **state)
{
    (void)state;
    struct mst__legacy_doc doc;
    mst__legacy_doc_init(&doc);
    static const mst__legacy_nonce nodes[] = {11, 0, 12, 13};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(mst__legacy_doc_append(&doc, nodes[i]), 0);
    }
    assert_false(mst__legacy_doc_is_ours(&doc));
    assert_true(mst__legacy_doc_unseat(&doc, 11));
    assert_int_equal(doc.participant_count, 3);
    assert_int_equal(mst__legacy_doc_rank(&doc, 13), 0);
    assert_int_equal(mst__legacy_doc_rank(&doc, 12), 2);
    assert_int_equal(mst__legacy_doc_node(&doc, 1), 0);
    assert_true(mst__legacy_doc_unseat(&doc, 12));
    assert_false(mst__legacy_doc_unseat(&doc, 13)); /* behind it is a peer */
    assert_int_equal(doc.participant_count, 2);
    assert_int_equal(mst__legacy_doc_rank(&doc, 13), 0);
    mst__legacy_doc_close(&doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_setup_makes_what_peers_need),
        cmocka_unit_test(test_directory_lives_as_long_as_the_job),
        cmocka_unit_test(test_many_nodes_need_little),
        cmocka_unit_test(test_all_enter_again_at_once),
        cmocka_unit_test(test_last_call_lets_others_in),
        cmocka_unit_test(test_last_call_survives_its_leader),
        cmocka_unit_test(test_phantom_below_the_minimum),
        cmocka_unit_test(test_death_in_the_last_call),
        cmocka_unit_test(test_death_in_frozen),
        cmocka_unit_test(test_death_in_final),
        cmocka_unit_test(test_leaving_is_told_at_once),
        cmocka_unit_test(test_waiter_that_dies_does_not_count),
        cmocka_unit_test(test_timeout_takes_the_entry_back),
        cmocka_unit_test(test_lost_answers),
        cmocka_unit_test(test_other_limits_are_refused),
        cmocka_unit_test(test_closing),
        cmocka_unit_test(test_requests_of_one_node),
        cmocka_unit_test(test_events_out_of_place),
        cmocka_unit_test(test_unseat),
    };
    return MST_RUN_TESTS(tests);
}
