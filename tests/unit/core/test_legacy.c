/* unit/core/test_legacy.c - the machine of the legacy rendezvous against a small model of etcd's
 * keys, which serves one request at a time in virtual time; and step by step against a script. */
#include <inttypes.h>
#include <muster/error.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/legacy.h"
#include "unit/unit.h"

#define NODES_MAX 64
#define KEYS_MAX 4096
#define SERVE_US 300
#define TRIP_US 500
#define SECOND_US INT64_C(1000000)
#define ACTIVE "/p/run_j/rdzv/active_version"

/* --- the model --- */

struct key {
    char name[128];
    char value[64];
    struct mst__legacy_doc doc;
    bool has_doc;
    bool has_ttl;
    int64_t expires_us;
    uint64_t modified;
};

struct actor {
    struct mst__legacy machine;
    struct mst__legacy_effect effect;
    char name[128]; /* of the effect, which is served later */
    struct mst__legacy_doc doc;
    char value[64];
    bool is_alive;
    bool is_done;
    bool is_cut; /* the next answer to a write of the document is lost */
    struct mst__legacy_outcome outcome;
    int64_t due_us; /* when its request is served, or its wait ends */
    int64_t done_us;
};

struct world {
    struct key keys[KEYS_MAX];
    size_t count;
    uint64_t index;
    int64_t now_us;
    int64_t free_us; /* when etcd can serve the next request */
    uint64_t seed;
    struct actor actors[NODES_MAX];
    size_t actor_count;
};

static struct world *world_new(void)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->index = 1;
    return world;
}

static void world_free(struct world *world)
{
    for (size_t i = 0; i < world->count; i++) {
        mst__legacy_doc_close(&world->keys[i].doc);
    }
    for (size_t i = 0; i < world->actor_count; i++) {
        mst__legacy_close(&world->actors[i].machine);
        mst__legacy_doc_close(&world->actors[i].doc);
    }
    free(world);
}

static struct key *world_find(struct world *world, const char *name)
{
    for (size_t i = 0; i < world->count; i++) {
        if (strcmp(world->keys[i].name, name) == 0) {
            return &world->keys[i];
        }
    }
    return NULL;
}

static void world_remove(struct world *world, struct key *key)
{
    world->index++;
    mst__legacy_doc_close(&key->doc);
    *key = world->keys[--world->count];
}

static struct key *world_put(struct world *world, const char *name, int64_t ttl_s)
{
    struct key *key = world_find(world, name);
    if (key == NULL) {
        assert_true(world->count < KEYS_MAX);
        key = &world->keys[world->count++];
        *key = (struct key){.has_doc = false};
        (void)snprintf(key->name, sizeof key->name, "%s", name);
    }
    key->modified = ++world->index;
    key->has_ttl = ttl_s >= 0;
    key->expires_us = world->now_us + ttl_s * SECOND_US;
    return key;
}

/* The document, which has to be there. */
static const struct mst__legacy_doc *world_doc(struct world *world)
{
    struct key *key = world_find(world, ACTIVE);
    if (key == NULL) {
        fail_msg("there is no document");
    }
    return &key->doc;
}

static struct actor *world_join(struct world *world, int64_t min, int64_t max, int64_t last_call_us)
{
    struct actor *actor = &world->actors[world->actor_count++];
    struct mst__legacy_options options = {
        .prefix = "p",
        .run_id = "j",
        .nonce = 1000 + world->actor_count,
        .nodes_min = min,
        .nodes_max = max,
        .last_call_us = last_call_us,
    };
    assert_int_equal(mst__legacy_init(&actor->machine, &options), 0);
    actor->is_alive = true;
    actor->is_done = true;
    return actor;
}

static void actor_feed(struct world *world, struct actor *actor, struct mst__legacy_event event)
{
    int rv = mst__legacy_step(&actor->machine, &event, world->now_us, ++world->seed * 7919,
                              &actor->effect);
    assert_int_equal(rv, 0);
    const struct mst__legacy_effect *effect = &actor->effect;
    if (effect->kind == MST_LEGACY_DONE) {
        actor->is_done = true;
        actor->outcome = effect->outcome;
        actor->done_us = world->now_us;
        return;
    }
    if (effect->key != NULL) {
        (void)snprintf(actor->name, sizeof actor->name, "%s", effect->key);
    }
    if (effect->doc != NULL) {
        assert_int_equal(mst__legacy_doc_copy(&actor->doc, effect->doc), 0);
    }
    (void)snprintf(actor->value, sizeof actor->value, "%.*s", (int)effect->value.size,
                   effect->value.size == 0 ? "" : (const char *)effect->value.data);
    if (effect->kind == MST_LEGACY_WAIT || effect->kind == MST_LEGACY_PAUSE) {
        actor->due_us = effect->until_us;
        return;
    }
    world->free_us = (world->free_us > world->now_us ? world->free_us : world->now_us) + SERVE_US;
    actor->due_us = world->free_us + TRIP_US;
}

static void actor_begin(struct world *world,
                        struct actor *actor,
                        enum mst__legacy_operation operation,
                        int64_t limit_us)
{
    actor->is_done = false;
    actor_feed(world, actor,
               (struct mst__legacy_event){.kind = MST_LEGACY_EVENT_BEGIN,
                                          .operation = operation,
                                          .deadline_us = world->now_us + limit_us});
}

/* Nodes that wait for the document hear of a change. */
static void world_tell(struct world *world)
{
    struct key *key = world_find(world, ACTIVE);
    for (size_t i = 0; i < world->actor_count; i++) {
        struct actor *actor = &world->actors[i];
        if (!actor->is_alive || actor->is_done || actor->effect.kind != MST_LEGACY_WAIT) {
            continue;
        }
        struct mst__legacy_doc doc;
        mst__legacy_doc_init(&doc);
        if (key != NULL) {
            assert_int_equal(mst__legacy_doc_copy(&doc, &key->doc), 0);
        }
        actor_feed(world, actor,
                   (struct mst__legacy_event){.kind = MST_LEGACY_EVENT_ANSWER,
                                              .code = key == NULL ? 100 : 0,
                                              .index = world->index,
                                              .modified = key == NULL ? 0 : key->modified,
                                              .doc = &doc});
        mst__legacy_doc_close(&doc);
    }
}

static int serve_check(const struct mst__legacy_effect *effect, const struct key *key)
{
    switch (effect->condition) {
        case MST_LEGACY_ALWAYS:
            return 0;
        case MST_LEGACY_IF_ABSENT:
            return key == NULL ? 0 : 105;
        case MST_LEGACY_IF_PRESENT:
            return key != NULL ? 0 : 100;
        case MST_LEGACY_IF_INDEX:
            assert_int_not_equal(effect->previous_index, 0);
            return key == NULL ? 100 : key->modified == effect->previous_index ? 0 : 101;
    }
    return 0;
}

/* Whether the document has changed. */
static bool serve_write(struct world *world, struct actor *actor, struct mst__legacy_event *event)
{
    const struct mst__legacy_effect *effect = &actor->effect;
    struct key *key = world_find(world, actor->name);
    event->code = serve_check(effect, key);
    bool is_delete = effect->kind == MST_LEGACY_DELETE;
    if (event->code == 0 && is_delete) {
        if (key == NULL) {
            event->code = 100;
        } else {
            world_remove(world, key);
        }
    } else if (event->code == 0) {
        key = world_put(world, actor->name, effect->ttl_s);
        event->modified = key->modified;
        if (effect->doc != NULL) {
            key->has_doc = true;
            assert_int_equal(mst__legacy_doc_copy(&key->doc, &actor->doc), 0);
        } else if (!effect->is_refresh) {
            (void)snprintf(key->value, sizeof key->value, "%s", actor->value);
        }
    }
    event->index = world->index;
    return event->code == 0 && strcmp(actor->name, ACTIVE) == 0;
}

static void serve_list(struct world *world,
                       struct actor *actor,
                       struct mst__legacy_entry *entries,
                       struct mst__legacy_event *event)
{
    size_t size = strlen(actor->name);
    for (size_t i = 0; i < world->count; i++) {
        struct key *key = &world->keys[i];
        if (strncmp(key->name, actor->name, size) == 0 && key->name[size] == '/') {
            entries[event->entry_count++] = (struct mst__legacy_entry){
                .name = key->name + size + 1,
                .value = mst_bytes_str(key->value),
                .has_ttl = key->has_ttl,
                .ttl_s = (key->expires_us - world->now_us + SECOND_US - 1) / SECOND_US,
            };
        }
    }
    event->entries = entries;
}

static void actor_serve(struct world *world, struct actor *actor)
{
    static struct mst__legacy_entry entries[KEYS_MAX];
    const struct mst__legacy_effect *effect = &actor->effect;
    if (effect->kind == MST_LEGACY_WAIT || effect->kind == MST_LEGACY_PAUSE) {
        actor_feed(world, actor, (struct mst__legacy_event){.kind = MST_LEGACY_EVENT_TIME});
        return;
    }
    struct mst__legacy_event event = {.kind = MST_LEGACY_EVENT_ANSWER, .index = world->index};
    struct mst__legacy_doc doc;
    mst__legacy_doc_init(&doc);
    bool is_changed = false;
    if (effect->kind == MST_LEGACY_GET) {
        struct key *key = world_find(world, actor->name);
        event.code = key == NULL ? 100 : 0;
        if (key != NULL) {
            event.modified = key->modified;
            event.value = mst_bytes_str(key->value);
            assert_int_equal(mst__legacy_doc_copy(&doc, &key->doc), 0);
            event.doc = &doc;
        }
    } else if (effect->kind == MST_LEGACY_LIST) {
        serve_list(world, actor, entries, &event);
    } else {
        is_changed = serve_write(world, actor, &event);
        if (actor->is_cut && strcmp(actor->name, ACTIVE) == 0) {
            actor->is_cut = false;
            event = (struct mst__legacy_event){.kind = MST_LEGACY_EVENT_UNKNOWN};
        }
    }
    actor_feed(world, actor, event);
    mst__legacy_doc_close(&doc);
    if (is_changed) {
        world_tell(world);
    }
}

static void world_expire(struct world *world)
{
    bool is_changed = false;
    for (size_t i = 0; i < world->count;) {
        struct key *key = &world->keys[i];
        if (key->has_ttl && key->expires_us <= world->now_us) {
            is_changed = is_changed || strcmp(key->name, ACTIVE) == 0;
            world_remove(world, key);
        } else {
            i++;
        }
    }
    if (is_changed) {
        world_tell(world);
    }
}

/* Until all that are alive are done, or @limit_us have passed: whether they are. */
static bool world_run(struct world *world, int64_t limit_us)
{
    int64_t end_us = world->now_us + limit_us;
    for (;;) {
        struct actor *next = NULL;
        for (size_t i = 0; i < world->actor_count; i++) {
            struct actor *actor = &world->actors[i];
            if (actor->is_alive && !actor->is_done &&
                (next == NULL || actor->due_us < next->due_us)) {
                next = actor;
            }
        }
        if (next == NULL) {
            return true;
        }
        int64_t time_us = next->due_us > world->now_us ? next->due_us : world->now_us;
        for (size_t i = 0; i < world->count; i++) {
            if (world->keys[i].has_ttl && world->keys[i].expires_us < time_us) {
                time_us = world->keys[i].expires_us;
                next = NULL;
            }
        }
        if (time_us > end_us) {
            world->now_us = end_us;
            return false;
        }
        world->now_us = time_us < world->now_us ? world->now_us : time_us;
        if (next == NULL) {
            world_expire(world);
        } else {
            actor_serve(world, next);
        }
    }
}

/* All of them are in one round with ranks of their own. */
static void world_check(const struct world *world, int64_t world_size)
{
    bool is_taken[NODES_MAX] = {false};
    int64_t version = 0;
    for (size_t i = 0; i < world->actor_count; i++) {
        const struct actor *actor = &world->actors[i];
        if (!actor->is_alive) {
            continue;
        }
        assert_int_equal(actor->outcome.result, MST_LEGACY_OK);
        assert_int_equal(actor->outcome.world, world_size);
        version = version == 0 ? actor->outcome.version : version;
        assert_int_equal(actor->outcome.version, version);
        assert_in_range(actor->outcome.rank, 0, world_size - 1);
        assert_false(is_taken[actor->outcome.rank]);
        is_taken[actor->outcome.rank] = true;
    }
}

static void world_next(struct world *world)
{
    for (size_t i = 0; i < world->actor_count; i++) {
        if (world->actors[i].is_alive) {
            actor_begin(world, &world->actors[i], MST_LEGACY_OP_NEXT, 60 * SECOND_US);
        }
    }
}

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

static struct mst__legacy_effect script(struct mst__legacy *machine,
                                        struct mst__legacy_event event,
                                        int64_t now_us)
{
    struct mst__legacy_effect effect;
    assert_int_equal(mst__legacy_step(machine, &event, now_us, 1, &effect), 0);
    return effect;
}

static struct mst__legacy_event answer(int code, uint64_t modified)
{
    return (struct mst__legacy_event){
        .kind = MST_LEGACY_EVENT_ANSWER, .code = code, .index = modified, .modified = modified};
}

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
