/* unit/core/test_core_world.c - many sessions on one record: storms, deaths, wrong clocks. */
#include "unit/core/core_unit.h"

#define SECOND 1000000
#define MINUTE (60 * (int64_t)SECOND)

static void world_add_many(struct world *world, size_t count, struct mst__settings settings)
{
    for (size_t i = 0; i < count; i++) {
        (void)world_add(world, settings);
    }
}

static void world_begin_all(struct world *world)
{
    for (size_t i = 0; i < world->count; i++) {
        struct actor *actor = &world->actors[i];
        actor->session.stats = (struct mst__session_stats){.reads = 0};
        if (actor->stage == ACTOR_IDLE) {
            actor_begin(world, actor, MST_OPERATION_NEXT, 600 * (int64_t)SECOND);
        }
    }
}

/* All living nodes have the same round and world, and each rank once. */
static void assert_agreement(const struct world *world, int64_t round, int64_t wanted)
{
    bool has_rank[WORLD_NODES_MAX] = {false};
    for (size_t i = 0; i < world->count; i++) {
        const struct actor *actor = &world->actors[i];
        if (actor->stage == ACTOR_DEAD) {
            continue;
        }
        assert_true(actor->is_done);
        assert_int_equal(actor->outcome.result, MST_RESULT_OK);
        assert_true(actor->outcome.round == round);
        assert_true(actor->outcome.world == wanted);
        assert_true(actor->outcome.rank >= 0 && actor->outcome.rank < wanted);
        assert_false(has_rank[actor->outcome.rank]);
        has_rank[actor->outcome.rank] = true;
    }
}

static double attempts_per_node(const struct world *world)
{
    uint64_t writes = 0;
    for (size_t i = 0; i < world->count; i++) {
        writes += world->actors[i].session.stats.writes;
    }
    return (double)writes / (double)world->count;
}

/* Let the idle nodes beat and poll as a handler would, to the hundredth of a second. */
static void world_live(struct world *world, int64_t duration_us)
{
    int64_t end_us = world->now_us + duration_us;
    struct mst__peers lost = {NULL, 0, 0};
    while (world->now_us < end_us) {
        int64_t until_us = world->now_us + 10000;
        while (world_step(world, until_us)) {
        }
        for (size_t i = 0; i < world->count; i++) {
            struct actor *actor = &world->actors[i];
            struct mst__changes changes;
            if (actor->stage != ACTOR_IDLE) {
                continue;
            }
            assert_int_equal(mst__session_changes(&actor->session, &lost, &changes), 0);
            if (world->now_us >= changes.beat_us) {
                actor_begin(world, actor, MST_OPERATION_KEEP_ALIVE, 5 * SECOND);
            } else if (world->now_us >= changes.poll_us ||
                       (world->can_watch && world->now_us >= changes.poll_us_min &&
                        actor->answer_version != world->version)) {
                actor_begin(world, actor, MST_OPERATION_POLL, 5 * SECOND);
            }
        }
    }
    (void)world_run(world, SECOND); /* what is under way */
    mst__free(lost.ids);
}

/* 128 nodes come at once: at most three attempts each, and all agree. Then all leave and come
 * again, as they do when a node waits: two changes each. */
static void a_storm_of_128(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        for (int can_watch = 0; can_watch < 2; can_watch++) {
            struct world world;
            world_open(&world, can_watch == 1, seed);
            world_add_many(&world, 128, settings_of(128, 128));
            int64_t begun_us = world.now_us;
            world_begin_all(&world);
            assert_true(world_run(&world, 30 * SECOND));
            assert_agreement(&world, 0, 128);
            assert_true(attempts_per_node(&world) <= 3);
            assert_true(world.now_us - begun_us < (can_watch == 1 ? 400000 : 2000000));
            world_begin_all(&world);
            assert_true(world_run(&world, 30 * SECOND));
            assert_agreement(&world, 1, 128);
            assert_true(attempts_per_node(&world) <= 4);
            world_close(&world);
        }
    }
}

/* Two nodes meet within milliseconds where changes wake them. */
static void two_nodes_meet(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world world;
        world_open(&world, true, seed);
        world_add_many(&world, 2, settings_of(2, 2));
        actor_begin(&world, &world.actors[0], MST_OPERATION_NEXT, 600 * (int64_t)SECOND);
        assert_false(world_run(&world, (int64_t)seed * 300000)); /* it waits for the other one */
        int64_t begun_us = world.now_us;
        actor_begin(&world, &world.actors[1], MST_OPERATION_NEXT, 600 * (int64_t)SECOND);
        assert_true(world_run(&world, SECOND));
        assert_agreement(&world, 0, 2);
        assert_true(world.now_us - begun_us < 10000);
        world_close(&world);
    }
}

/* Clocks off by minutes, some of them stepped on the way: the last call has the right length, no
 * node is expelled, all agree. */
static void wrong_clocks(void **unused)
{
    (void)unused;
    static const int64_t offs_us[] = {0, 20 * SECOND, -20 * SECOND, 15 * MINUTE, -15 * MINUTE};
    for (size_t first = 0; first < 5; first++) {
        for (int can_watch = 0; can_watch < 2; can_watch++) {
            struct world world;
            world_open(&world, can_watch == 1, first + 1);
            world_add_many(&world, 5, settings_of(2, 6));
            for (size_t i = 0; i < 5; i++) {
                world.actors[i].wall_us += offs_us[(first + i) % 5];
            }
            int64_t begun_us = world.now_us;
            world_begin_all(&world);
            assert_false(world_run(&world, 15 * SECOND));
            world.actors[1].wall_us += 15 * MINUTE;
            world.actors[2].wall_us -= 15 * MINUTE;
            assert_true(world_run(&world, 20 * SECOND));
            assert_agreement(&world, 0, 5);
            assert_true(world.now_us - begun_us >= 30 * SECOND);
            assert_true(world.now_us - begun_us <= 32 * SECOND);
            world_live(&world, 20 * SECOND);
            world.actors[3].wall_us += 15 * MINUTE;
            world.actors[4].wall_us -= 15 * MINUTE;
            world_live(&world, 40 * SECOND);
            assert_int_equal(world.record.participants.count, 5);
            struct mst__peers lost = {NULL, 0, 0};
            for (size_t i = 0; i < 5; i++) {
                struct mst__changes changes;
                assert_int_equal(mst__session_changes(&world.actors[i].session, &lost, &changes),
                                 0);
                assert_true(changes.is_known);
                assert_false(changes.expelled);
                assert_int_equal(changes.lost_count, 0);
                assert_true(world.actors[i].session.observer.skewed_count > 0);
            }
            mst__free(lost.ids);
            world_close(&world);
        }
    }
}

/* A node dies: the others are told within the expiry and form again without it. */
static void a_death_is_told_and_survived(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct world world;
        struct mst__settings settings = settings_of(2, 3);
        settings.keep_alive_interval_us = SECOND;
        settings.keep_alive_max_attempt = 2;
        settings.last_call_us = SECOND / 2;
        world_open(&world, true, seed);
        world_add_many(&world, 3, settings);
        world_begin_all(&world);
        assert_true(world_run(&world, SECOND));
        assert_agreement(&world, 0, 3);
        world_live(&world, 3 * SECOND + (int64_t)seed * 100000);
        world.actors[1].stage = ACTOR_DEAD;
        int64_t died_us = world.now_us;
        struct mst__peers lost = {NULL, 0, 0};
        struct mst__changes changes = {.lost_count = 0};
        while (changes.lost_count == 0) {
            assert_true(world.now_us - died_us <= 2 * SECOND + 50000);
            world_live(&world, 10000);
            assert_int_equal(mst__session_changes(&world.actors[0].session, &lost, &changes), 0);
        }
        assert_int_equal(
            mst__node_compare(&world.actors[0].session.joined.members[lost.ids[0]].node,
                              &world.actors[1].session.options.node),
            0);
        int64_t told_us = world.now_us;
        world_begin_all(&world);
        assert_true(world_run(&world, 3 * SECOND));
        assert_agreement(&world, 1, 2);
        assert_true(world.now_us - told_us < SECOND);
        mst__free(lost.ids);
        world_close(&world);
    }
}

/* Nodes that die while a round forms delay it by no more than the expiry. */
static void deaths_while_forming(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct world world;
        world_open(&world, seed % 2 == 0, seed);
        world_add_many(&world, 6, settings_of(4, 4));
        for (size_t i = 0; i < 3; i++) {
            actor_begin(&world, &world.actors[i], MST_OPERATION_NEXT, 600 * (int64_t)SECOND);
        }
        assert_false(world_run(&world, 2 * SECOND));
        world.actors[0].stage = ACTOR_DEAD;
        world.actors[1].stage = ACTOR_DEAD;
        int64_t died_us = world.now_us;
        assert_false(world_run(&world, 16 * SECOND)); /* until they are out of the record */
        for (size_t i = 3; i < 6; i++) {
            actor_begin(&world, &world.actors[i], MST_OPERATION_NEXT, 600 * (int64_t)SECOND);
        }
        assert_true(world_run(&world, 10 * SECOND));
        assert_agreement(&world, 0, 4);
        assert_true(world.now_us - died_us < 20 * SECOND);
        world_close(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_storm_of_128),       cmocka_unit_test(two_nodes_meet),
        cmocka_unit_test(wrong_clocks),         cmocka_unit_test(a_death_is_told_and_survived),
        cmocka_unit_test(deaths_while_forming),
    };
    return MST_RUN_TESTS(tests);
}
