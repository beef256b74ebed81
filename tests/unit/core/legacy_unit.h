/* unit/core/legacy_unit.h - a small model of etcd's keys for machines of the legacy rendezvous: it
 * serves one request at a time, in virtual time. And answers to a machine, step by step. */
#ifndef MST_UNIT_LEGACY_UNIT_H
#define MST_UNIT_LEGACY_UNIT_H

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

static inline struct world *world_new(void)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->index = 1;
    return world;
}

static inline void world_free(struct world *world)
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

static inline struct key *world_find(struct world *world, const char *name)
{
    for (size_t i = 0; i < world->count; i++) {
        if (strcmp(world->keys[i].name, name) == 0) {
            return &world->keys[i];
        }
    }
    return NULL;
}

static inline void world_remove(struct world *world, struct key *key)
{
    world->index++;
    mst__legacy_doc_close(&key->doc);
    *key = world->keys[--world->count];
}

static inline struct key *world_put(struct world *world, const char *name, int64_t ttl_s)
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
static inline const struct mst__legacy_doc *world_doc(struct world *world)
{
    struct key *key = world_find(world, ACTIVE);
    if (key == NULL) {
        fail_msg("there is no document");
    }
    return &key->doc;
}

static inline struct actor *world_join(struct world *world,
                                       int64_t min,
                                       int64_t max,
                                       int64_t last_call_us)
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

static inline void actor_feed(struct world *world,
                              struct actor *actor,
                              struct mst__legacy_event event)
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

static inline void actor_begin(struct world *world,
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
static inline void world_tell(struct world *world)
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

static inline int serve_check(const struct mst__legacy_effect *effect, const struct key *key)
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

/* Delete the directory @name with all below it. Returns etcd's code. */
static inline int serve_delete_dir(struct world *world, const char *name)
{
    size_t size = strlen(name);
    int code = 100;
    for (size_t i = world->count; i-- > 0;) {
        struct key *key = &world->keys[i];
        if (strncmp(key->name, name, size) == 0 &&
            (key->name[size] == '/' || key->name[size] == '\0')) {
            world_remove(world, key);
            code = 0;
        }
    }
    return code;
}

/* Whether the document has changed. */
static inline bool serve_write(struct world *world,
                               struct actor *actor,
                               struct mst__legacy_event *event)
{
    const struct mst__legacy_effect *effect = &actor->effect;
    struct key *key = world_find(world, actor->name);
    event->code = serve_check(effect, key);
    bool is_delete = effect->kind == MST_LEGACY_DELETE;
    if (event->code == 0 && is_delete && effect->is_dir) {
        event->code = serve_delete_dir(world, actor->name);
    } else if (event->code == 0 && is_delete) {
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

static inline void serve_list(struct world *world,
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

static inline void actor_serve(struct world *world, struct actor *actor)
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

static inline void world_expire(struct world *world)
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
static inline bool world_run(struct world *world, int64_t limit_us)
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
static inline void world_check(const struct world *world, int64_t world_size)
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

static inline void world_next(struct world *world)
{
    for (size_t i = 0; i < world->actor_count; i++) {
        if (world->actors[i].is_alive) {
            actor_begin(world, &world->actors[i], MST_LEGACY_OP_NEXT, 60 * SECOND_US);
        }
    }
}

/* --- step by step --- */

static inline struct mst__legacy_effect script(struct mst__legacy *machine,
                                               struct mst__legacy_event event,
                                               int64_t now_us)
{
    struct mst__legacy_effect effect;
    assert_int_equal(mst__legacy_step(machine, &event, now_us, 1, &effect), 0);
    return effect;
}

static inline struct mst__legacy_event answer(int code, uint64_t modified)
{
    return (struct mst__legacy_event){
        .kind = MST_LEGACY_EVENT_ANSWER, .code = code, .index = modified, .modified = modified};
}

#endif /* MST_UNIT_LEGACY_UNIT_H */
