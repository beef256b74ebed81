/* unit/core/test_authority_model.c - random histories of nodes and authorities, checked after
 * every step; allocations that fail; the cost of ten thousand members. */
#include "unit/core/authority_unit.h"

#define NODES_MAX 12
#define STEPS_MAX 300
#define SEEDS 400
#define ROUNDS_MAX 4096

/* --- a small world --- */

enum model_mode { MODEL_OUT, MODEL_WAIT, MODEL_IN };

/* A node: the wishes and knowledge of its process. */
struct model_node {
    char name[16];
    uint64_t incarnation;
    enum model_mode mode;
    bool is_paused;         /* lives and does nothing */
    bool is_called;         /* it must come back, or others wait */
    struct mst__claim told; /* what it knows */
    uintptr_t conn;         /* 0 = not connected */
    mst__authority_id id;   /* what the connection stands for */
};

struct model {
    struct mst__authority authority;
    struct mst__prng prng;
    struct model_node nodes[NODES_MAX];
    uint32_t nodes_count;
    uint32_t nodes_min, nodes_max;
    int64_t last_call_us;
    int64_t now_us;
    int64_t beat_us; /* of the last heartbeats */
    uint64_t epoch;
    uintptr_t conn_last;
    bool is_closed;
    bool has_words; /* nodes finish and fail */
    struct mst__budget budget;
    /* Every round ever sealed. */
    uint64_t sealed_epochs[ROUNDS_MAX];
    int64_t sealed_rounds[ROUNDS_MAX];
    size_t sealed_count;
};

static uint64_t model_below(struct model *model, uint64_t bound)
{
    return mst__prng_below(&model->prng, bound);
}

static void model_start_authority(struct model *model)
{
    struct mst__authority_options options = {
        .epoch = ++model->epoch,
        .expiry_us = 15 * SECOND_US,
        .grace_us = SECOND_US,
        .reclaim_us = 3 * SECOND_US,
        .return_us = model->epoch % 2 == 0 ? INT64_MAX : 40 * SECOND_US,
        .members_max = 64,
        .hash_key = {9},
    };
    mst__authority_init(&model->authority, &options);
}

static void model_init(struct model *model, uint64_t seed)
{
    *model = (struct model){.now_us = 1000};
    mst__prng_init(&model->prng, seed);
    model->nodes_count = (uint32_t)(2 + model_below(model, NODES_MAX - 1));
    model->nodes_min = (uint32_t)(1 + model_below(model, model->nodes_count));
    model->nodes_max = model->nodes_min + (uint32_t)model_below(model, 4);
    model->last_call_us = (int64_t)model_below(model, 20) * SECOND_US;
    model->has_words = seed % 2 == 0;
    model->budget = (struct mst__budget){.is_limited = model_below(model, 2) == 0,
                                         .restarts_max = (uint32_t)model_below(model, 4),
                                         .window_us = (int64_t)model_below(model, 2) * SECOND_US};
    for (uint32_t i = 0; i < model->nodes_count; i++) {
        (void)snprintf(model->nodes[i].name, sizeof model->nodes[i].name, "node%u", i);
    }
    model_start_authority(model);
}

static struct model_node *model_behind(struct model *model, const void *driver)
{
    for (uint32_t i = 0; i < model->nodes_count; i++) {
        if (driver != NULL && model->nodes[i].conn == (uintptr_t)driver) {
            return &model->nodes[i];
        }
    }
    return NULL;
}

/* Whether the job has ended by itself. */
static void model_note_end(struct model *model)
{
    const struct mst__authority *authority = &model->authority;
    if (authority->phase == MST_AUTHORITY_CLOSED && authority->outcome != MST_JOB_OUTCOME_ASKED) {
        assert_true(model->has_words);
        model->is_closed = true;
    }
}

/* --- what nodes are told --- */

/* @is_again: sent to it alone, and it may know. */
static void model_told_sealed(struct model *model,
                              const struct mst__authority_member *member,
                              bool is_again)
{
    const struct mst__authority *authority = &model->authority;
    struct model_node *node = model_behind(model, member->driver);
    if (node == NULL) {
        return;
    }
    bool is_known = node->told.epoch == authority->round_epoch &&
                    node->told.round == authority->round && node->told.rank == member->rank;
    if (is_again && is_known && node->mode == MODEL_IN) {
        node->is_called = authority->waiting_told > 0;
        return;
    }
    assert_int_equal(node->mode, MODEL_WAIT);
    assert_true(authority->round > node->told.round);
    node->told = (struct mst__claim){
        .epoch = authority->round_epoch,
        .round = authority->round,
        .world = authority->world,
        .rank = member->rank,
    };
    node->mode = MODEL_IN;
    node->is_called = is_again && authority->waiting_told > 0;
}

static void model_check_seal(struct model *model, const struct mst__authority_effect *effect)
{
    assert_true(effect->epoch == model->epoch);
    assert_true(effect->world >= model->nodes_min);
    assert_true(effect->world <= model->nodes_max);
    for (size_t i = 0; i < model->sealed_count; i++) {
        bool is_epoch = model->sealed_epochs[i] == effect->epoch;
        assert_true(!is_epoch || model->sealed_rounds[i] < effect->round);
    }
    assert_true(model->sealed_count < ROUNDS_MAX);
    model->sealed_epochs[model->sealed_count] = effect->epoch;
    model->sealed_rounds[model->sealed_count++] = effect->round;
    /* No connected node in good standing is left behind in an older round. */
    for (uint32_t i = 0; i < model->nodes_count; i++) {
        const struct model_node *node = &model->nodes[i];
        const struct mst__authority_member *member =
            node->conn == 0 ? NULL : mst__authority_get(&model->authority, node->id);
        bool is_behind =
            member != NULL && member->driver == (void *)node->conn && node->mode == MODEL_IN;
        assert_false(is_behind);
    }
    for (uint32_t rank = 0; rank < effect->world; rank++) {
        const struct mst__authority_member *member = mst__authority_ranked(&model->authority, rank);
        assert_non_null(member);
        assert_int_equal(member->rank, rank); /* of each another one, then */
    }
}

static void model_call(struct model *model)
{
    uint32_t cursor = 0;
    const struct mst__authority_member *member;
    while ((member = mst__authority_next_holder(&model->authority, &cursor)) != NULL) {
        struct model_node *node = model_behind(model, member->driver);
        if (node != NULL) {
            /* It may have been absent when the round was sealed, and back now that it is over. */
            assert_true(node->mode == MODEL_IN ? node->told.round == model->authority.round
                                               : node->told.round < model->authority.round);
            node->is_called = true;
        }
    }
}

static void model_told_waiting(struct model *model, const struct mst__authority_effect *effect)
{
    struct model_node *node = model_behind(model, effect->driver);
    if (node == NULL) {
        return;
    }
    assert_int_equal(node->mode, MODEL_WAIT);
    bool is_full = effect->world >= model->nodes_max;
    assert_int_equal(is_full, effect->kind == MST_TOLD_SPARE);
    if (effect->round > node->told.round) {
        node->told = (struct mst__claim){
            .epoch = effect->epoch,
            .round = effect->round,
            .world = effect->world,
            .rank = MST_AUTHORITY_RANK_NONE,
        };
    }
}

static void model_told(struct model *model, const struct mst__authority_effect *effect)
{
    struct model_node *node = model_behind(model, effect->driver);
    uint32_t cursor = 0;
    const struct mst__authority_member *member;
    switch (effect->kind) {
        case MST_TOLD_SEALED:
            if (effect->id != MST_AUTHORITY_NOBODY) {
                model_told_sealed(model, mst__authority_get(&model->authority, effect->id), true);
                break;
            }
            model_check_seal(model, effect);
            while ((member = mst__authority_next_holder(&model->authority, &cursor)) != NULL) {
                model_told_sealed(model, member, false);
            }
            break;
        case MST_TOLD_QUEUED:
        case MST_TOLD_SPARE:
            model_told_waiting(model, effect);
            break;
        case MST_TOLD_EXPELLED:
            if (node != NULL) {
                node->conn = 0;
                node->mode = node->mode == MODEL_OUT ? MODEL_OUT : MODEL_WAIT;
            }
            break;
        case MST_TOLD_REOPENED:
            if (node != NULL) {
                node->is_called = true;
                break;
            }
            model_call(model);
            break;
        case MST_TOLD_LOST:
            assert_true(effect->lost_count > 0);
            for (size_t i = 0; i < effect->lost_count; i++) {
                member = mst__authority_ranked(&model->authority, effect->lost[i]);
                assert_true(member == NULL || !member->is_finished);
            }
            model_call(model);
            break;
        case MST_TOLD_WAITING:
            assert_true(effect->world < model->nodes_max);
            if (node != NULL) {
                node->is_called = effect->waiting_count > 0;
            } else if (effect->waiting_count > 0) {
                model_call(model);
            }
            break;
        case MST_TOLD_CLOSED:
            assert_true(model->is_closed);
            break;
    }
}

static void model_drain(struct model *model)
{
    struct mst__authority_effect effect;
    mst__authority_check(&model->authority);
    model_note_end(model);
    while (mst__authority_next_effect(&model->authority, &effect)) {
        model_told(model, &effect);
    }
    mst__authority_check(&model->authority);
    bool is_closed = model->authority.phase == MST_AUTHORITY_CLOSED;
    assert_int_equal(is_closed, model->is_closed);
}

/* --- what nodes do --- */

static void model_cut(struct model *model, struct model_node *node)
{
    if (node->conn != 0) {
        (void)step_cut(&model->authority, node->id, (void *)node->conn, model->now_us);
        node->conn = 0;
    }
}

/* Announce over a new connection or, if there is one and @keeps, over that. */
static void model_announce(struct model *model, struct model_node *node, bool keeps)
{
    uintptr_t conn = keeps && node->conn != 0 ? node->conn : ++model->conn_last;
    struct mst__announcement said = {
        .name = mst_bytes_str(node->name),
        .incarnation = node->incarnation,
        .session = node->incarnation * 3,
        .address = mst_bytes_str(node->name),
        .nodes_min = model->nodes_min,
        .nodes_max = model->nodes_max,
        .last_call_us = model->last_call_us,
        .pinned_rank = MST_AUTHORITY_RANK_NONE,
        .budget = model->budget,
        .claim = node->told,
        .driver = (void *)conn,
    };
    said.claim.holds = node->mode == MODEL_IN;
    struct mst_err err;
    int rv = step_announce(&model->authority, &said, model->now_us, &err);
    enum mst__refusal refusal = model->authority.refusal;
    if (rv == 0) {
        node->conn = conn;
        node->id = model->authority.announced;
        return;
    }
    model_note_end(model);
    bool is_expected = model->is_closed ? refusal == MST_REFUSAL_CLOSED
                                        : refusal == MST_REFUSAL_CLAIM && said.claim.holds;
    if (!is_expected) {
        fail_msg("%s was refused: %s", node->name, err.msg);
    }
    node->conn = 0;
    node->mode = model->is_closed ? MODEL_OUT : MODEL_WAIT;
}

/* It may have been called from a round that it never heard of. */
static void model_come_back(struct model *model, struct model_node *node)
{
    bool is_called = node->is_called && node->mode != MODEL_OUT && !node->is_paused;
    if (node->mode == MODEL_IN || is_called) {
        node->mode = MODEL_WAIT;
        node->is_called = false;
        model_announce(model, node, true);
    }
}

/* A new process of the node. */
static void model_start_node(struct model *model, struct model_node *node)
{
    node->incarnation++;
    node->mode = MODEL_WAIT;
    node->is_called = false;
    node->is_paused = false;
    node->told = (struct mst__claim){.round = 0};
    if (model_below(model, 2) == 0) {
        model_cut(model, node);
    }
    node->conn = 0;
    model_announce(model, node, false);
}

static void model_kill(struct model *model, struct model_node *node, bool is_silent)
{
    if (!is_silent) {
        model_cut(model, node);
    }
    node->conn = 0;
    node->mode = MODEL_OUT;
}

/* Find the authority again, with a new connection. */
static void model_reconnect(struct model *model, struct model_node *node)
{
    if (node->mode != MODEL_OUT && node->conn == 0 && !node->is_paused) {
        model_announce(model, node, false);
    }
}

static void model_beat(struct model *model)
{
    for (uint32_t i = 0; i < model->nodes_count; i++) {
        struct model_node *node = &model->nodes[i];
        if (node->conn == 0 || node->is_paused) {
            continue;
        }
        int rv = step_heard(&model->authority, node->id, model->now_us);
        if (rv != 0) {
            assert_int_equal(rv, MST_ENOTFOUND);
            (void)step_cut(&model->authority, node->id, (void *)node->conn, model->now_us);
            node->conn = 0;
            node->mode = MODEL_WAIT;
        }
    }
}

static void model_pass(struct model *model, int64_t time_us)
{
    int64_t end_us = model->now_us + time_us;
    while (model->now_us < end_us) {
        int64_t due_us = mst__authority_due_us(&model->authority);
        int64_t next_us = due_us < end_us ? due_us : end_us;
        int64_t beat_us = model->beat_us + SECOND_US;
        next_us = beat_us < next_us ? beat_us : next_us;
        model->now_us = next_us > model->now_us ? next_us : model->now_us + 1;
        if (model->now_us >= beat_us) {
            model->beat_us = model->now_us;
            model_beat(model);
        }
        step_time(&model->authority, model->now_us);
        model_drain(model);
    }
}

/* The work of a node is done, or has failed. */
static void model_say(struct model *model, struct model_node *node, bool is_failed)
{
    if (node->mode != MODEL_IN || node->conn == 0 || node->is_paused) {
        return;
    }
    const struct mst__cause cause = {.status = 1, .text = mst_bytes_str(node->name)};
    int rv = is_failed ? step_word(&model->authority, node->id, node->told.epoch, node->told.round,
                                   &cause, model->now_us)
                       : step_word(&model->authority, node->id, node->told.epoch, node->told.round,
                                   NULL, model->now_us);
    assert_true(rv == 0 || rv == MST_ENOTFOUND || rv == MST_ESTATE);
    const struct mst__budget *budget = &model->budget;
    assert_true(!budget->is_limited || model->authority.restarts <= budget->restarts_max);
}

/* The authority is gone with its state; all nodes must find the next one. */
static void model_restart_authority(struct model *model)
{
    mst__authority_close(&model->authority);
    model->is_closed = false;
    model_start_authority(model);
    for (uint32_t i = 0; i < model->nodes_count; i++) {
        model->nodes[i].conn = 0;
        model->nodes[i].id = MST_AUTHORITY_NOBODY;
    }
}

static void model_step(struct model *model)
{
    struct model_node *node = &model->nodes[model_below(model, model->nodes_count)];
    uint64_t kind = model_below(model, 100);
    bool is_up = node->mode != MODEL_OUT;
    if (kind < 22) {
        if (!is_up || kind < 4) {
            model_start_node(model, node);
        }
    } else if (kind < 28) {
        model_kill(model, node, kind < 25);
    } else if (kind < 34) {
        model_cut(model, node);
    } else if (kind < 50) {
        model_reconnect(model, node);
    } else if (kind < 53) {
        node->is_paused = !node->is_paused;
    } else if (kind < 57) {
        if (is_up && node->conn != 0) {
            (void)step_session(&model->authority, MST_AUTHORITY_EVENT_LEFT, node->id,
                               model->now_us);
            node->conn = 0;
            node->mode = MODEL_OUT;
        }
    } else if (kind < 75) {
        if (node->is_called || kind < 58) {
            model_come_back(model, node);
        }
    } else if (kind < 78) {
        if (is_up) {
            model_announce(model, node, kind == 75); /* repeat its last message */
        }
    } else if (kind == 78) {
        model_restart_authority(model);
    } else if (kind == 79 && model_below(model, 20) == 0) {
        model->is_closed = true;
        (void)step_shut(&model->authority, "done", "x", model->now_us);
    } else if (kind >= 80 && kind < 86 && model->has_words) {
        model_say(model, node, kind == 80);
    } else {
        model_pass(model, (int64_t)model_below(model, 1000) * 10000);
    }
    mst__authority_check(&model->authority);
    if (model_below(model, 3) != 0) {
        model_drain(model); /* else a batch of events before the effects are taken */
    }
}

/* --- what must come true when nothing happens any more --- */

static void model_settle(struct model *model)
{
    model_drain(model);
    /* Lost nodes are noticed, then there may be a last call; and some time for reactions. */
    int64_t enough_us = 15 * SECOND_US + model->last_call_us + 3 * SECOND_US;
    for (int64_t passed_us = 0; passed_us < enough_us; passed_us += 200000) {
        for (uint32_t i = 0; i < model->nodes_count; i++) {
            struct model_node *node = &model->nodes[i];
            node->is_paused = false;
            model_reconnect(model, node);
            if (node->is_called) {
                model_come_back(model, node);
            } else if (model->has_words) {
                model_say(model, node, false);
            }
            model_drain(model);
        }
        model_pass(model, 200000);
    }
    uint32_t living = 0;
    uint32_t in = 0;
    for (uint32_t i = 0; i < model->nodes_count; i++) {
        const struct model_node *node = &model->nodes[i];
        living += node->mode != MODEL_OUT;
        in += node->mode == MODEL_IN;
        assert_true(node->mode != MODEL_IN || node->told.round == model->authority.round);
    }
    if (model->is_closed) {
        return;
    }
    assert_false(model->has_words && living >= model->nodes_min);
    assert_int_equal(model->authority.living_count, living);
    if (living < model->nodes_min) {
        assert_int_equal(model->authority.released_count, 0); /* finished nodes are not waited
                                                               * for */
        assert_int_equal(in, 0);
        return;
    }
    assert_int_equal(model->authority.phase, MST_AUTHORITY_RUNNING);
    assert_int_equal(in, living < model->nodes_max ? living : model->nodes_max);
    assert_int_equal(model->authority.world, in);
}

static void model_run(uint64_t seed)
{
    struct model model;
    model_init(&model, seed);
    for (uint32_t i = 0; i < STEPS_MAX; i++) {
        model_step(&model);
    }
    model_settle(&model);
    mst__authority_close(&model.authority);
}

/* The current history, to reproduce a failure. */
static uint64_t seed_now;

static void random_histories(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        seed_now = seed;
        model_run(seed);
    }
    seed_now = 0;
}

/* --- allocations that fail --- */

/* A history that meets every allocation: the first, growth, a replacement, a claim of a large
 * round. A failed step is repeated, because it has changed nothing. */
static bool sweep_once(unsigned long nth)
{
    struct unit_run run;
    run_init_epoch(&run, 2, 40, 8);
    mst__mem_fail_nth(nth);
    for (uint32_t i = 0; i < 60; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "n%u", i % 50);
        struct mst__announcement said = run_announcement(&run, name);
        said.driver = &run;
        said.incarnation = i;
        if (i == 20) {
            said.claim = (struct mst__claim){.epoch = 5, .round = 3, .world = 400, .rank = 399};
        }
        uint32_t used = run.authority.used_count;
        uint32_t living = run.authority.living_count;
        int64_t round = run.authority.round;
        int rv = step_announce(&run.authority, &said, run.now_us, &run.err);
        mst__authority_check(&run.authority);
        if (rv != 0) {
            assert_int_equal(rv, MST_ENOMEM);
            assert_int_equal(run.authority.refusal, MST_REFUSAL_MEMORY);
            assert_int_equal(run.authority.used_count, used);
            assert_int_equal(run.authority.living_count, living);
            assert_true(run.authority.round == round);
            i--;
        }
        struct mst__authority_effect effect;
        while (mst__authority_next_effect(&run.authority, &effect)) {
        }
    }
    bool has_failed = mst__mem_failed();
    mst__mem_fail_nth(0);
    step_settle(&run.authority, run.now_us);
    mst__authority_check(&run.authority);
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RUNNING);
    assert_int_equal(run.authority.world, 40);
    assert_true(run.authority.round == 4);
    run_close(&run);
    return has_failed;
}

static void every_allocation_fails(void **state)
{
    (void)state;
    unsigned long nth = 1;
    while (sweep_once(nth)) {
        nth++;
    }
    assert_true(nth > 100);

    struct unit_run run;
    run_init_epoch(&run, 1, 1, 8);
    mst__mem_fail_nth(1);
    assert_int_equal(step_restore(&run.authority, 7, 1, 1, run.now_us), 0);
    assert_false(mst__mem_failed());
    mst__mem_fail_nth(0);
    run_close(&run);
}

/* --- ten thousand --- */

#define MANY 10000

static void many_members(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, MANY);
    struct mst__authority *authority = &run.authority;
    static char names[MANY][16];
    static mst__authority_id ids[MANY];
    uint64_t seal_steps = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        (void)snprintf(names[i], sizeof names[i], "node%u", (i * 7919) % MANY);
        struct mst__announcement said = run_announcement(&run, names[i]);
        uint64_t before = authority->stats.steps;
        assert_int_equal(step_announce(authority, &said, run.now_us, &run.err), 0);
        ids[i] = authority->announced;
        uint64_t steps = authority->stats.steps - before;
        if (i + 1 < MANY) {
            assert_true(steps <= 4);
        } else {
            seal_steps = steps;
        }
    }
    assert_true(authority->phase == MST_AUTHORITY_RUNNING);
    assert_true(seal_steps < MANY * 24); /* log2(10,000) is 13.3 */
    /* One effect tells them all. */
    struct mst__authority_effect effect;
    assert_true(mst__authority_next_effect(authority, &effect));
    assert_int_equal(effect.kind, MST_TOLD_SEALED);
    assert_int_equal(effect.world, MANY);
    assert_false(mst__authority_next_effect(authority, &effect));
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(mst__authority_get(authority, ids[i])->rank, (i * 7919) % MANY);
    }
    /* A heartbeat visits no other member and allocates nothing. */
    mst__mem_fail_nth(1);
    uint64_t before = authority->stats.steps;
    run.now_us += SECOND_US;
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(step_heard(authority, ids[i], run.now_us), 0);
    }
    assert_true(authority->stats.steps - before <= 2 * MANY);
    /* Nor does a loss, and two effects tell them all. */
    before = authority->stats.steps;
    assert_int_equal(step_session(authority, MST_AUTHORITY_EVENT_DEAD, ids[17], run.now_us), 0);
    assert_true(authority->stats.steps - before <= 4);
    assert_true(mst__authority_next_effect(authority, &effect));
    assert_int_equal(effect.kind, MST_TOLD_LOST);
    assert_int_equal(effect.lost_count, 1);
    assert_true(mst__authority_next_effect(authority, &effect));
    assert_int_equal(effect.kind, MST_TOLD_REOPENED);
    assert_false(mst__authority_next_effect(authority, &effect));
    assert_false(mst__mem_failed());
    mst__mem_fail_nth(0);
    mst__authority_check(authority);
    /* Members of the table, arrays, name and index entry of each, on average. */
    assert_true(authority->memory_used / MANY < 700);
    run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories),
        cmocka_unit_test(every_allocation_fails),
        cmocka_unit_test(many_members),
    };
    int rv = MST_RUN_TESTS(tests);
    if (seed_now != 0) {
        (void)printf("the history with seed %" PRIu64 " failed\n", seed_now);
    }
    return rv;
}
