/* unit/authority/test_etcd_v3_authority.c - the authority of `etcd-v3`, which is fed from keys,
 * without an etcd: a table of keys stands in for it, with revisions as etcd counts them. */
#include <inttypes.h>
#include <string.h>

#include "authority/etcd_v3_authority.h"
#include "unit/unit.h"

/* --- a table of keys --- */

#define NODES_MAX 300

struct world {
    struct mst__etcd_v3_keys keys;
    struct mst__etcd_v3_authority authority;
    struct mst__etcd_v3_round round;
    struct mst__v3_kv nodes[NODES_MAX];
    size_t count;
    struct mst__v3_kv letters[NODES_MAX];
    size_t letters_count;
    int64_t revision;
    int64_t now_us;
    uint32_t min, max;
    bool is_fixed;
    uint64_t incarnation;          /* of the speaker; 0 = the create revision of its key */
    struct mst__etcd_v3_word word; /* and the report of its work */
};

static void world_init(struct world *world, uint32_t min, uint32_t max)
{
    memset(world, 0, sizeof *world);
    world->revision = 1;
    world->now_us = 1000000;
    world->min = min;
    world->max = max;
    assert_int_equal(mst__etcd_v3_keys_init(&world->keys, "job"), 0);
    mst__etcd_v3_authority_init(&world->authority);
}

static void kv_free(struct mst__v3_kv *kv)
{
    mst__free(kv->key.data);
    mst__free(kv->value.data);
}

static void world_close(struct world *world)
{
    for (size_t i = 0; i < world->count; i++) {
        kv_free(&world->nodes[i]);
    }
    for (size_t i = 0; i < world->letters_count; i++) {
        kv_free(&world->letters[i]);
    }
    mst__etcd_v3_round_close(&world->round);
    mst__etcd_v3_authority_close(&world->authority);
    mst__etcd_v3_keys_close(&world->keys);
}

static struct mst_buffer buffer_of(const void *data, size_t size)
{
    return (struct mst_buffer){.data = (uint8_t *)mst__memdup(data, size), .size = size};
}

/* Store what the authority wants until it wants nothing more. Returns how often. */
static int world_store(struct world *world)
{
    struct mst_err err;
    int64_t due_us;
    int count = 0;
    for (;;) {
        bool wants;
        struct mst__etcd_v3_round round;
        assert_int_equal(
            mst__etcd_v3_authority_tick(&world->authority, world->now_us, &due_us, &err), 0);
        mst__authority_check(&world->authority.machine);
        assert_int_equal(
            mst__etcd_v3_authority_wants(&world->authority, &world->round, &wants, &round), 0);
        if (!wants) {
            return count;
        }
        struct mst__buf buf;
        mst__buf_init(&buf, 1 << 20);
        assert_int_equal(mst__etcd_v3_round_write(&round, &buf), 0);
        mst__etcd_v3_round_close(&round);
        mst__etcd_v3_round_close(&world->round);
        assert_int_equal(mst__etcd_v3_round_read(mst__buf_bytes(&buf), &world->round, &err), 0);
        mst__buf_close(&buf);
        world->revision++;
        count++;
    }
}

static void world_put(struct world *world,
                      const char *name,
                      uint64_t session,
                      const struct mst__claim *claim,
                      bool has_left)
{
    const struct mst__announcement said = {
        .name = mst_bytes_str(name),
        .incarnation = world->incarnation,
        .address = mst_bytes_str(name),
        .nodes_min = world->min,
        .nodes_max = world->max,
        .last_call_us = 1000000,
        .rank_by = mst_bytes_str(""),
        .pinned_rank = MST_AUTHORITY_RANK_NONE,
        .claim = *claim,
        .is_fixed = world->is_fixed,
        .workers = 1 + (uint32_t)session % 3,
        .has_wall = true,
        .wall_us = 1,
    };
    struct mst__buf buf;
    mst__buf_init(&buf, 1 << 16);
    assert_int_equal(mst__etcd_v3_node_write(&said, &world->word, has_left, &buf), 0);
    char *key = mst__etcd_v3_key_node(&world->keys, name, session);
    size_t at = 0;
    while (at < world->count && strcmp((char *)world->nodes[at].key.data, key) != 0) {
        at++;
    }
    struct mst__v3_kv *kv = &world->nodes[at];
    world->revision++;
    if (at == world->count) {
        *kv = (struct mst__v3_kv){.key = buffer_of(key, strlen(key)),
                                  .create_revision = world->revision,
                                  .lease = (int64_t)session};
        world->count++;
    }
    mst__free(kv->value.data);
    kv->value = buffer_of(mst__buf_bytes(&buf).data, mst__buf_size(&buf));
    kv->mod_revision = world->revision;
    mst__free(key);
    mst__buf_close(&buf);
    if (world->authority.is_built) {
        const struct mst__v3_event event = {.kv = *kv};
        struct mst_err err;
        assert_int_equal(
            mst__etcd_v3_authority_event(&world->authority, &event, world->now_us, &err), 0);
    }
}

static void world_enter(struct world *world, const char *name, uint64_t session)
{
    const struct mst__claim none = {.rank = MST_AUTHORITY_RANK_NONE};
    world_put(world, name, session, &none, false);
}

/* The member of @session comes back from the round that is stored. */
static void world_return(struct world *world, const char *name, uint64_t session)
{
    const struct mst__claim claim = {
        .epoch = world->round.epoch,
        .round = world->round.round,
        .world = world->round.world,
        .rank = mst__etcd_v3_round_rank(&world->round, session),
    };
    world_put(world, name, session, &claim, false);
}

static void world_delete(struct world *world, uint64_t session)
{
    for (size_t i = 0; i < world->count; i++) {
        if (world->nodes[i].lease != (int64_t)session) {
            continue;
        }
        struct mst__v3_event event = {.is_delete = true, .kv = world->nodes[i]};
        memmove(&world->nodes[i], &world->nodes[i + 1],
                (world->count - i - 1) * sizeof world->nodes[0]);
        world->count--;
        world->revision++;
        struct mst_err err;
        if (world->authority.is_built) {
            assert_int_equal(
                mst__etcd_v3_authority_event(&world->authority, &event, world->now_us, &err), 0);
        }
        kv_free(&event.kv);
        return;
    }
    fail_msg("no node %" PRIu64, session);
}

/* Another node is the authority now, or this one reads everything again. */
static void world_build(struct world *world)
{
    const struct mst__v3_kvs nodes = {.items = world->nodes, .count = world->count};
    const struct mst__v3_kvs letters = {.items = world->letters, .count = world->letters_count};
    const struct mst__etcd_v3_stored stored = {
        .revision = world->revision,
        .nodes = &nodes,
        .letters = world->round.is_sharded ? &letters : NULL,
        .round = &world->round,
    };
    struct mst_err err;
    assert_int_equal(mst__etcd_v3_authority_build(&world->authority, &stored, world->now_us, &err),
                     0);
    mst__authority_check(&world->authority.machine);
}

/* --- what it decides --- */

static void test_seal_and_loss(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2, 3);
    world_enter(&world, "a", 1);
    world_build(&world);
    assert_int_equal(world_store(&world), 0);
    world_enter(&world, "b", 2);
    world_enter(&world, "c", 3);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.state, MST_ETCD_V3_RUNNING);
    assert_true(world.round.round == 1 && world.round.world == 3);
    assert_string_equal(world.round.address, "a");
    assert_int_equal(mst__etcd_v3_round_rank(&world.round, 3), 2);

    world_delete(&world, 2);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.state, MST_ETCD_V3_OPEN);
    assert_true(world.round.round == 1);
    assert_int_equal(world.round.gone_count, 1);
    assert_string_equal(world.round.gone, "b");
    assert_int_equal(world.round.why, MST_AUTHORITY_WHY_LOST);
    world_delete(&world, 3);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.gone_count, 2);
    assert_string_equal(world.round.gone, "b c");
    world_return(&world, "a", 1);
    assert_int_equal(world_store(&world), 0);
    world_enter(&world, "c", 4);
    world.now_us += 1000000; /* the last call */
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.state, MST_ETCD_V3_RUNNING);
    assert_true(world.round.round == 2 && world.round.before == 1 && world.round.world == 2);
    world_close(&world);
}

/* A key is read long after it was written: how far the clock of its node is off is not known. */
static void test_no_skew(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2, 2);
    world_enter(&world, "a", 1);
    world_build(&world);
    world_enter(&world, "b", 2);
    const struct mst__authority *machine = &world.authority.machine;
    assert_int_equal(machine->members_count, 2);
    for (uint32_t i = 0; i < machine->members_count; i++) {
        assert_false(machine->members[i].has_skew);
    }
    world_close(&world);
}

/* A job that does not grow: the size of its first round outlives the authority. */
static void test_fixed(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 1, 4);
    world.is_fixed = true;
    world_enter(&world, "a", 1);
    world_enter(&world, "b", 2);
    world_build(&world);
    world.now_us += 2000000; /* the last call */
    assert_int_equal(world_store(&world), 1);
    assert_true(world.round.world == 2 && world.round.first_world == 2);
    world_delete(&world, 2);
    assert_int_equal(world_store(&world), 1);
    world_return(&world, "a", 1);
    assert_int_equal(world_store(&world), 1);
    assert_true(world.round.world == 1 && world.round.first_world == 2);
    mst__etcd_v3_authority_close(&world.authority);
    world_build(&world);
    world_enter(&world, "c", 3);
    world_enter(&world, "d", 4);
    assert_true(world_store(&world) == 1 && world.round.waiting == 1);
    world_return(&world, "a", 1);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.state, MST_ETCD_V3_RUNNING);
    assert_true(world.round.world == 2 && world.round.first_world == 2);
    assert_true(world.round.seats[1].session == 3 && world.round.seats[1].worker_ranks.first == 2);
    world_close(&world);
}

/* --- work --- */

/* Three nodes, a to c with the sessions 1 to 3, in a round that needs @min. */
static void world_of_three_from(struct world *world, uint32_t min)
{
    static const char *const names[] = {"a", "b", "c"};
    world_init(world, min, 3);
    for (uint64_t i = 0; i < 3; i++) {
        world_enter(world, names[i], i + 1);
    }
    world_build(world);
    assert_int_equal(world_store(world), 1);
    assert_int_equal(world->round.state, MST_ETCD_V3_RUNNING);
}

static void world_of_three(struct world *world)
{
    world_of_three_from(world, 2);
}

/* The member of @session reports its work as done, or as failed with @status. */
static void world_say(struct world *world,
                      const char *name,
                      uint64_t session,
                      bool is_finish,
                      int32_t status)
{
    const struct mst__claim none = {.rank = MST_AUTHORITY_RANK_NONE};
    world->word = (struct mst__etcd_v3_word){
        .is_said = true,
        .is_finish = is_finish,
        .epoch = world->round.epoch,
        .round = world->round.round,
        .cause = {.worker = 1, .status = status, .wall_us = 1, .text = mst_bytes_str("boom")},
    };
    world_put(world, name, session, &none, false);
    world->word.is_said = false;
}

static void world_restart(struct world *world)
{
    mst__etcd_v3_authority_close(&world->authority);
    world_build(world);
}

/* A finished member that is gone is not lost, for any later authority; when all have finished,
 * the job has. */
static void test_finish(void **state)
{
    (void)state;
    for (int is_restarted = 0; is_restarted < 2; is_restarted++) {
        struct world world;
        world_of_three(&world);
        world_say(&world, "a", 1, true, 0);
        assert_int_equal(world_store(&world), 1);
        assert_int_equal(world.round.finished_count, 1);
        assert_true(world.round.is_finished[0]);
        world_delete(&world, 1);
        assert_int_equal(world_store(&world), 0);
        world_say(&world, "b", 2, true, 0);
        if (is_restarted == 1) {
            world_restart(&world); /* before it has written that */
        }
        assert_int_equal(world_store(&world), 1);
        assert_int_equal(world.round.state, MST_ETCD_V3_RUNNING);
        assert_int_equal(world.round.finished_count, 2);
        world_say(&world, "c", 3, true, 0);
        assert_int_equal(world_store(&world), 1);
        assert_int_equal(world.round.state, MST_ETCD_V3_CLOSED);
        assert_int_equal(world.round.outcome, MST_JOB_OUTCOME_FINISHED);
        assert_false(world.round.has_cause);
        world_close(&world);
    }
}

/* Of the members of a round that is over, those whose work was done are not lost. */
static void test_lost_beside_finished(void **state)
{
    (void)state;
    struct world world;
    world_of_three_from(&world, 1);
    world_say(&world, "a", 1, true, 0);
    world_delete(&world, 1);
    assert_int_equal(world_store(&world), 1);
    world_delete(&world, 2);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.state, MST_ETCD_V3_OPEN);
    assert_int_equal(world.round.gone_count, 1);
    assert_string_equal(world.round.gone, "b");
    world_close(&world);
}

/* In an etcd restored from another one, the stored epoch may be larger than the revision. */
static void test_restored(void **state)
{
    (void)state;
    struct world world;
    world_of_three(&world);
    world.round.epoch = (uint64_t)world.revision + 1000;
    world_restart(&world);
    assert_int_equal(world.authority.machine.options.epoch, world.round.epoch + 1);
    world_close(&world);
}

/* A failure opens the round with its cause and uses the budget. The next authority knows both,
 * and takes reports that the last one had no time for. */
static void test_failure(void **state)
{
    (void)state;
    for (int is_restarted = 0; is_restarted < 4; is_restarted++) {
        struct world world;
        world_of_three(&world);
        world_say(&world, "b", 2, false, 7);
        if ((is_restarted & 1) != 0) {
            world_restart(&world);
        }
        assert_int_equal(world_store(&world), 1);
        assert_int_equal(world.round.state, MST_ETCD_V3_OPEN);
        assert_int_equal(world.round.why, MST_AUTHORITY_WHY_FAILED);
        assert_int_equal(world.round.restarts, 1);
        assert_int_equal(world.round.gone_count, 0);
        struct mst__job_end end = mst__etcd_v3_round_end(&world.round);
        assert_true(end.has_cause);
        assert_int_equal(end.cause.rank, 1);
        assert_int_equal(end.cause.status, 7);
        assert_bytes_str(end.cause.node, "b");
        assert_bytes_str(end.cause.text, "boom");
        if ((is_restarted & 2) != 0) {
            world_restart(&world);
        }
        world_return(&world, "a", 1);
        world_return(&world, "b", 2);
        world_return(&world, "c", 3);
        assert_int_equal(world_store(&world), 1);
        assert_int_equal(world.round.state, MST_ETCD_V3_RUNNING);
        assert_int_equal(world.round.restarts, 1);
        assert_false(world.round.has_cause);
        assert_int_equal(world.authority.machine.restarts, 1);
        assert_int_equal(world.round.restarts_before, 1);
        assert_int_equal(world.round.start, MST_JOB_START_FAILED);
        world_restart(&world);
        assert_int_equal(world.authority.machine.restarts_total, 1);
        world_close(&world);
    }
}

static void test_failure_beyond_the_budget(void **state)
{
    (void)state;
    struct world world;
    world_of_three(&world);
    world.authority.machine.settings.budget =
        (struct mst__budget){.is_limited = true, .restarts_max = 0};
    world_say(&world, "c", 3, false, 7);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.state, MST_ETCD_V3_CLOSED);
    assert_int_equal(world.round.outcome, MST_JOB_OUTCOME_FAILED);
    struct mst__job_end end = mst__etcd_v3_round_end(&world.round);
    assert_true(end.has_cause);
    assert_int_equal(end.cause.rank, 2);
    world_restart(&world);
    assert_int_equal(world_store(&world), 0);
    world_close(&world);
}

/* A new process follows a finished one while the old key exists: the next authority does not
 * count it as lost, even if the finished one had entered again. */
static void test_finished_and_replaced(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        struct world world;
        world_of_three(&world);
        world_say(&world, "b", 2, true, 0);
        assert_int_equal(world_store(&world), 1);
        mst__etcd_v3_authority_close(&world.authority);
        if (is_back == 1) {
            world_return(&world, "b", 2);
        }
        world_enter(&world, "b", 9);
        world_build(&world);
        assert_int_equal(world_store(&world), 0);
        assert_int_equal(world.round.state, MST_ETCD_V3_RUNNING);
        assert_int_equal(world.round.finished_count, 1);
        world_say(&world, "a", 1, true, 0);
        world_say(&world, "c", 3, true, 0);
        assert_int_equal(world_store(&world), 1);
        assert_int_equal(world.round.outcome, MST_JOB_OUTCOME_FINISHED);
        world_close(&world);
    }
}

/* A round has failed, and all its nodes come with new sessions before there is another authority:
 * it seals the next round, and that one has not failed. */
static void test_failed_and_deserted(void **state)
{
    (void)state;
    struct world world;
    static const char *const names[] = {"a", "b", "c"};
    world_of_three(&world);
    world_say(&world, "b", 2, false, 7);
    assert_int_equal(world_store(&world), 1);
    mst__etcd_v3_authority_close(&world.authority);
    for (uint32_t rank = 0; rank < 3; rank++) {
        const struct mst__claim claim = {
            .epoch = world.round.epoch, .round = world.round.round, .world = 3, .rank = rank};
        world_delete(&world, rank + 1);
        world_put(&world, names[rank], rank + 11, &claim, false);
    }
    world_build(&world);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.state, MST_ETCD_V3_RUNNING);
    assert_int_equal(world.round.round, 2);
    assert_int_equal(world.round.start, MST_JOB_START_FAILED);
    assert_int_equal(world.round.restarts_before, 1);
    assert_int_equal(world.round.restarts_total, 1);
    world_close(&world);
}

/* A window of the budget that begins anew has another beginning, with the same count. */
static void test_window_begins_anew(void **state)
{
    (void)state;
    struct world world;
    world_of_three(&world);
    for (uint32_t i = 1; i < 4; i++) {
        world.authority.machine.settings.budget =
            (struct mst__budget){.is_limited = true, .restarts_max = 1, .window_us = 1000};
        world_say(&world, "b", 2, false, 7);
        assert_int_equal(world_store(&world), 1);
        assert_int_equal(world.round.state, MST_ETCD_V3_OPEN);
        assert_int_equal(world.round.restarts, 1);
        assert_int_equal(world.round.restarts_total, i);
        assert_int_equal(world.round.restarts_before, i - 1);
        assert_true(world.round.restarts_wall_us > 1);
        world.authority.machine.settings.budget = (struct mst__budget){.is_limited = false};
        world_return(&world, "a", 1);
        world_return(&world, "b", 2);
        world_return(&world, "c", 3);
        assert_int_equal(world_store(&world), 1);
        world.round.restarts_wall_us = 1;
        world.now_us += 1000;
    }
    world_close(&world);
}

/* The window is as old for the next authority as it was for the last one. */
static void test_window_outlives_the_authority(void **state)
{
    (void)state;
    struct world world;
    world_of_three(&world);
    world_say(&world, "b", 2, false, 7);
    assert_int_equal(world_store(&world), 1);
    world.round.restarts_wall_us -= 3600000000;
    world.now_us += 7200000000;
    world_restart(&world);
    assert_in_range(world.now_us - world.authority.machine.restarts_us, 3600000000, 3660000000);
    world_close(&world);
}

/* Its failure is in its key when it is back already: the next authority takes it for one. */
static void test_failed_and_back(void **state)
{
    (void)state;
    struct world world;
    world_of_three(&world);
    mst__etcd_v3_authority_close(&world.authority);
    const struct mst__claim claim = {
        .epoch = world.round.epoch, .round = world.round.round, .world = 3, .rank = 1};
    world.word = (struct mst__etcd_v3_word){
        .is_said = true,
        .epoch = world.round.epoch,
        .round = world.round.round,
        .cause = {.worker = 1, .status = 7, .text = mst_bytes_str("boom")},
    };
    world_put(&world, "b", 2, &claim, false);
    world.word.is_said = false;
    world_build(&world);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.state, MST_ETCD_V3_OPEN);
    assert_int_equal(world.round.why, MST_AUTHORITY_WHY_FAILED);
    assert_int_equal(world.round.restarts, 1);
    world_return(&world, "a", 1);
    world_return(&world, "c", 3);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.state, MST_ETCD_V3_RUNNING);
    assert_int_equal(world.round.round, 2);
    world_close(&world);
}

static void test_left_and_waiting(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 1, 2);
    world_enter(&world, "a", 1);
    world_build(&world);
    world.now_us += 1000000;
    assert_int_equal(world_store(&world), 1);
    world_enter(&world, "b", 2);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.waiting, 1);
    world_delete(&world, 2);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.waiting, 0);
    world_enter(&world, "b", 3);
    (void)world_store(&world);
    world_return(&world, "a", 1);
    assert_int_equal(world_store(&world), 1);
    assert_true(world.round.round == 2 && world.round.world == 2);
    const struct mst__claim none = {.rank = MST_AUTHORITY_RANK_NONE};
    world_put(&world, "b", 3, &none, true);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.why, MST_AUTHORITY_WHY_LEFT);
    assert_string_equal(world.round.gone, "b");
    world_delete(&world, 3); /* its key is deleted after its report */
    assert_int_equal(world_store(&world), 0);
    world_build(&world); /* and why the round is over is not forgotten */
    assert_int_equal(world_store(&world), 0);
    world_close(&world);
}

/* The authority may be built anew at any moment: no member hears anything, and the run goes on
 * as it would have. */
static void test_taken_over_at_every_step(void **state)
{
    (void)state;
    for (int step = 0; step < 8; step++) {
        struct world world;
        world_init(&world, 2, 3);
        world_enter(&world, "a", 1);
        world_build(&world);
        for (int at = 0; at < 8; at++) {
            switch (at) {
                case 0:
                    world_enter(&world, "b", 2);
                    break;
                case 1:
                    world_enter(&world, "c", 3);
                    break;
                case 2:
                    assert_int_equal(world.round.state, MST_ETCD_V3_RUNNING);
                    world_enter(&world, "spare", 4);
                    break;
                case 3:
                    assert_true(world.round.round == 1 && world.round.world == 3);
                    world_delete(&world, 2);
                    break;
                case 4:
                    assert_int_equal(world.round.state, MST_ETCD_V3_OPEN);
                    assert_string_equal(world.round.gone, "b");
                    world_return(&world, "a", 1);
                    break;
                case 5:
                    assert_true(world.round.round == 1);
                    world_return(&world, "c", 3);
                    break;
                case 6:
                    assert_int_equal(world.round.state, MST_ETCD_V3_RUNNING);
                    assert_true(world.round.round == 2 && world.round.world == 3);
                    assert_int_equal(mst__etcd_v3_round_rank(&world.round, 1), 0);
                    assert_int_equal(mst__etcd_v3_round_rank(&world.round, 3), 2);
                    assert_int_equal(mst__etcd_v3_round_rank(&world.round, 4), 1);
                    break;
                default:
                    break;
            }
            if (at == step) {
                world_build(&world); /* before the events were answered */
            }
            (void)world_store(&world);
            if (at == step) {
                uint64_t epoch = world.authority.machine.options.epoch;
                world_build(&world); /* and after */
                assert_int_equal(world_store(&world), 0);
                assert_true(world.authority.machine.options.epoch >= epoch);
            }
        }
        world_close(&world);
    }
}

/* No member of the last round is here: newcomers get the whole last call. */
static void test_next_job(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 1, 3);
    world_enter(&world, "a", 1);
    world_enter(&world, "b", 2);
    world_enter(&world, "c", 3);
    world_build(&world);
    assert_int_equal(world_store(&world), 1);
    mst__etcd_v3_authority_close(&world.authority);
    world_delete(&world, 1);
    world_delete(&world, 2);
    world_delete(&world, 3);
    world_enter(&world, "d", 4);
    world_build(&world);
    assert_int_equal(world_store(&world), 0);
    world.now_us += 500000;
    world_enter(&world, "e", 5);
    assert_int_equal(world_store(&world), 0);
    world.now_us += 500000;
    assert_int_equal(world_store(&world), 1);
    assert_true(world.round.round == 2 && world.round.world == 2);
    world_close(&world);
}

/* An older `round` was restored: a node that knows a later one is right, members of the older
 * one enter again, and the next one is above both. */
static void test_claim_of_a_later_round(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2, 3);
    world_enter(&world, "a", 1);
    world_enter(&world, "b", 2);
    world_build(&world);
    world.now_us += 1000000;
    assert_int_equal(world_store(&world), 1);
    mst__etcd_v3_authority_close(&world.authority);
    const struct mst__claim claim = {.epoch = 1, .round = 7, .world = 5, .rank = 4};
    world_put(&world, "c", 3, &claim, false);
    world_build(&world);
    assert_int_equal(world_store(&world), 0);
    assert_int_equal(world.authority.letters_count, 2);
    assert_int_equal(world.authority.letters[0].letter.kind, MST_ETCD_V3_LETTER_EXPELLED);
    world_delete(&world, 1);
    world_delete(&world, 2);
    world_enter(&world, "a", 4);
    world_enter(&world, "b", 5);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.state, MST_ETCD_V3_RUNNING);
    assert_true(world.round.round == 8 && world.round.world == 3);
    world_delete(&world, 5);
    assert_int_equal(world_store(&world), 1);
    assert_string_equal(world.round.gone, "b");
    world_close(&world);
}

static void test_letters(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2, 2);
    world_enter(&world, "a", 1);
    world_build(&world);
    world.max = 5;
    world_enter(&world, "strange", 2);
    assert_int_equal(world.authority.letters_count, 1);
    const struct mst__etcd_v3_outgoing *outgoing = &world.authority.letters[0];
    assert_true(outgoing->session == 2 && outgoing->lease == 2);
    assert_int_equal(outgoing->letter.kind, MST_ETCD_V3_LETTER_REFUSED);
    assert_int_equal(outgoing->letter.code, MST_EINVAL);
    assert_non_null(strstr(outgoing->letter.text, "asks for 2 to 5 nodes, this run has 2 to 2"));
    world.authority.letters_count = 0;
    world.max = 2;
    world_enter(&world, "b", 3);
    assert_int_equal(world_store(&world), 1);
    world_enter(&world, "b", 4); /* a new process of that node; the old key still exists */
    assert_int_equal(world.authority.letters_count, 1);
    outgoing = &world.authority.letters[0];
    assert_true(outgoing->session == 3);
    assert_int_equal(outgoing->letter.kind, MST_ETCD_V3_LETTER_EXPELLED);
    assert_int_equal(world_store(&world), 1);
    assert_string_equal(world.round.gone, "b");
    world_return(&world, "a", 1);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(mst__etcd_v3_round_rank(&world.round, 4), 1);
    world_delete(&world, 3); /* the old key goes */
    assert_int_equal(world_store(&world), 0);
    world_close(&world);
}

/* --- several processes of a node, several sessions of a process --- */

/* The keys of a dead process and of its successor are both there when the authority is built: the
 * round is sealed with the successor. */
static void test_ghost(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2, 3);
    world_enter(&world, "a", 1);
    world_enter(&world, "b", 2);
    world_enter(&world, "c", 3);
    world_enter(&world, "b", 4);
    world_build(&world);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.state, MST_ETCD_V3_RUNNING);
    assert_true(world.round.round == 1 && world.round.world == 3);
    assert_int_equal(mst__etcd_v3_round_rank(&world.round, 2), MST_AUTHORITY_RANK_NONE);
    assert_int_equal(mst__etcd_v3_round_rank(&world.round, 4), 1);
    assert_int_equal(world.authority.letters_count, 1);
    assert_true(world.authority.letters[0].session == 2);
    assert_int_equal(world.authority.letters[0].letter.kind, MST_ETCD_V3_LETTER_EXPELLED);
    world_build(&world); /* before the ghost's key goes, and after */
    assert_int_equal(world_store(&world), 0);
    world_delete(&world, 2);
    assert_int_equal(world_store(&world), 0);
    world_build(&world);
    assert_int_equal(world_store(&world), 0);
    world_close(&world);
}

/* A member's node comes with a new process, and the authority is built anew at some moment: the
 * round is over for good, the member is gone from it, and its successor does not sit in it. */
static void test_successor_of_a_member(void **state)
{
    (void)state;
    for (int step = 0; step < 4; step++) {
        struct world world;
        world_init(&world, 2, 2);
        world_enter(&world, "a", 1);
        world_enter(&world, "b", 2);
        world_build(&world);
        assert_int_equal(world_store(&world), 1);
        if (step == 1) {
            world_return(&world, "b", 2); /* not even if it had come back, unheard */
        }
        world_enter(&world, "b", 3);
        if (step < 2) {
            world_build(&world);
        }
        assert_int_equal(world_store(&world), 1);
        assert_int_equal(world.round.state, MST_ETCD_V3_OPEN);
        assert_true(world.round.round == 1);
        assert_int_equal(mst__etcd_v3_round_rank(&world.round, 2), 1);
        assert_int_equal(mst__etcd_v3_round_rank(&world.round, 3), MST_AUTHORITY_RANK_NONE);
        assert_int_equal(world.round.gone_count, 1);
        assert_string_equal(world.round.gone, "b");
        assert_true(world.round.is_gone[1]);
        if (step == 3) {
            world_delete(&world, 3); /* it dies before its predecessor's key has gone */
        }
        world_build(&world);
        assert_int_equal(world_store(&world), 0);
        assert_int_equal(world.authority.machine.phase, MST_AUTHORITY_OPEN);
        if (step == 3) {
            world_enter(&world, "b", 4);
        }
        world_return(&world, "a", 1);
        assert_int_equal(world_store(&world), 1);
        assert_int_equal(world.round.state, MST_ETCD_V3_RUNNING);
        assert_true(world.round.round == 2 && world.round.world == 2);
        assert_int_equal(mst__etcd_v3_round_rank(&world.round, step == 3 ? 4 : 3), 1);
        world_close(&world);
    }
}

/* A round that was sealed and is over before it could be stored: with those it was sealed with. */
static void test_over_before_it_was_stored(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2, 2);
    world_enter(&world, "a", 1);
    world_build(&world);
    world_enter(&world, "b", 2);
    world_enter(&world, "b", 3);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.state, MST_ETCD_V3_OPEN);
    assert_int_equal(mst__etcd_v3_round_rank(&world.round, 2), 1);
    assert_int_equal(mst__etcd_v3_round_rank(&world.round, 3), MST_AUTHORITY_RANK_NONE);
    world_build(&world);
    assert_int_equal(world_store(&world), 0);
    world_close(&world);
}

/* A process whose key could not be deleted enters again: the newer key counts, in any order of
 * the news, and is not refused because of the older one. */
static void test_one_process_twice(void **state)
{
    (void)state;
    for (int step = 0; step < 3; step++) {
        struct world world;
        world_init(&world, 2, 2);
        world_enter(&world, "a", 1);
        world_build(&world);
        world_enter(&world, "b", 2);
        assert_int_equal(world_store(&world), 1);
        world.incarnation = (uint64_t)world.nodes[1].create_revision;
        if (step == 0) {
            mst__etcd_v3_authority_close(&world.authority);
        }
        world_enter(&world, "b", 3);
        if (step == 0) {
            world_build(&world);
        }
        assert_int_equal(world.authority.letters_count, 0);
        assert_int_equal(world_store(&world), 1);
        assert_int_equal(world.round.state, MST_ETCD_V3_OPEN);
        assert_true(world.round.is_gone[1]);
        if (step == 1) {
            world_enter(&world, "b", 2); /* its report with the old key comes late */
        }
        if (step == 2) {
            world_delete(&world, 2);
        }
        world.incarnation = 0;
        world_return(&world, "a", 1);
        assert_int_equal(world_store(&world), 1);
        assert_true(world.round.round == 2 && world.round.world == 2);
        assert_int_equal(mst__etcd_v3_round_rank(&world.round, 3), 1);
        world_build(&world);
        assert_int_equal(world_store(&world), 0);
        world_close(&world);
    }
}

/* Ranks of a large round are in letters, and a successor finds them there. */
static void test_sharded(void **state)
{
    (void)state;
    static struct world world;
    const uint32_t count = MST_ETCD_V3_SEATS_MAX + 10;
    world_init(&world, count - 1, count);
    for (uint64_t i = 1; i <= count; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "n%" PRIu64, i);
        world_enter(&world, name, i);
    }
    world_build(&world);
    assert_int_equal(world_store(&world), 1);
    assert_true(world.round.is_sharded && world.round.seats == NULL);
    for (uint32_t rank = 0; rank < count; rank++) {
        const struct mst__etcd_v3_seat *seat = mst__etcd_v3_authority_seat(&world.authority, rank);
        struct mst__etcd_v3_letter letter = {.kind = MST_ETCD_V3_LETTER_RANK,
                                             .epoch = world.round.epoch,
                                             .round = world.round.round,
                                             .rank = rank};
        assert_int_equal(seat->worker_ranks.world, 2 * count + 1);
        (void)snprintf(letter.name, sizeof letter.name, "%s", seat->name);
        struct mst__buf buf;
        mst__buf_init(&buf, 1 << 12);
        assert_int_equal(mst__etcd_v3_letter_write(&letter, &buf), 0);
        char *key = mst__etcd_v3_key_letter(&world.keys, seat->session);
        world.letters[world.letters_count++] =
            (struct mst__v3_kv){.key = buffer_of(key, strlen(key)),
                                .value = buffer_of(mst__buf_bytes(&buf).data, mst__buf_size(&buf))};
        mst__free(key);
        mst__buf_close(&buf);
    }
    world_build(&world);
    assert_int_equal(world.authority.machine.phase, MST_AUTHORITY_RUNNING);
    assert_int_equal(world_store(&world), 0);
    mst__etcd_v3_authority_close(&world.authority);
    world_delete(&world, 7); /* while there was no authority */
    world_build(&world);
    assert_int_equal(world_store(&world), 1);
    assert_int_equal(world.round.state, MST_ETCD_V3_OPEN);
    assert_string_equal(world.round.gone, "n7");
    world_close(&world);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2, 2);
    world_enter(&world, "a", 1);
    world_enter(&world, "b", 2);
    const struct mst__v3_kvs nodes = {.items = world.nodes, .count = world.count};
    const struct mst__etcd_v3_stored stored = {
        .revision = world.revision, .nodes = &nodes, .round = &world.round};
    struct mst__sweep sweep = {0};
    while (sweep_next(&sweep)) {
        struct mst_err err = {0};
        struct mst__etcd_v3_round round = {0};
        bool wants = false;
        int rv = mst__etcd_v3_authority_build(&world.authority, &stored, world.now_us, &err);
        if (rv == 0) {
            rv = mst__etcd_v3_authority_wants(&world.authority, &world.round, &wants, &round);
        }
        sweep_end(&sweep, rv);
        mst__etcd_v3_round_close(&round);
        mst__etcd_v3_authority_close(&world.authority);
    }
    assert_true(sweep.failures > 5);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seal_and_loss),
        cmocka_unit_test(test_no_skew),
        cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_finish),
        cmocka_unit_test(test_lost_beside_finished),
        cmocka_unit_test(test_restored),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_failure_beyond_the_budget),
        cmocka_unit_test(test_window_begins_anew),
        cmocka_unit_test(test_window_outlives_the_authority),
        cmocka_unit_test(test_finished_and_replaced),
        cmocka_unit_test(test_failed_and_deserted),
        cmocka_unit_test(test_failed_and_back),
        cmocka_unit_test(test_left_and_waiting),
        cmocka_unit_test(test_taken_over_at_every_step),
        cmocka_unit_test(test_next_job),
        cmocka_unit_test(test_claim_of_a_later_round),
        cmocka_unit_test(test_letters),
        cmocka_unit_test(test_ghost),
        cmocka_unit_test(test_successor_of_a_member),
        cmocka_unit_test(test_over_before_it_was_stored),
        cmocka_unit_test(test_one_process_twice),
        cmocka_unit_test(test_sharded),
        cmocka_unit_test(test_no_memory),
    };
    return MST_RUN_TESTS(tests);
}
