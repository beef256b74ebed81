/* unit/core/core_unit.h - a small world for sessions: one record behind a store that serves one
 * request at a time, nodes with clocks of their own, virtual time. */
#ifndef MST_UNIT_CORE_UNIT_H
#define MST_UNIT_CORE_UNIT_H

#include <muster/error.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/prng.h"
#include "core/session.h"
#include "unit/unit.h"

#define WORLD_WALL_US 1765782711000000
#define WORLD_NODES_MAX 256

static inline struct mst__node node_named(const char *addr, int64_t pid)
{
    return (struct mst__node){.addr = mst_bytes_str(addr), .pid = pid, .local_id = 0};
}

static inline struct mst__settings settings_of(int64_t nodes_min, int64_t nodes_max)
{
    return (struct mst__settings){
        .nodes_min = nodes_min,
        .nodes_max = nodes_max,
        .join_us = 600000000,
        .last_call_us = 30000000,
        .close_us = 30000000,
        .heartbeat_us = 5000000,
        .keep_alive_interval_us = 5000000,
        .keep_alive_max_attempt = 3,
        .clock_skew_us = 60000000,
    };
}

/* Enter @node in @state; asserts that there is memory. */
static inline mst__peer_id state_enter(struct mst__state *state, struct mst__node node)
{
    mst__peer_id id;
    assert_int_equal(mst__state_obtain(state, &node, &id), 0);
    return id;
}

static inline void state_add_participant(struct mst__state *state,
                                         struct mst__node node,
                                         int64_t rank,
                                         int64_t stamp_us)
{
    mst__peer_id id = state_enter(state, node);
    assert_int_equal(mst__state_put_participant(state, id, rank), 0);
    assert_int_equal(mst__state_put_heartbeat(state, id, stamp_us), 0);
}

/* The session's answer to one event must be 0. */
static inline struct mst__effect session_feed(struct mst__session *session,
                                              const struct mst__session_event *event,
                                              int64_t now_us,
                                              int64_t now_mono_us)
{
    struct mst__effect effect;
    assert_int_equal(
        mst__session_step(session, event, now_us, now_mono_us, (uint64_t)now_mono_us, &effect), 0);
    return effect;
}

static inline struct mst_buffer token_of(uint64_t number)
{
    struct mst_buffer token = {(uint8_t *)mst__memdup(&number, sizeof number), sizeof number};
    assert_non_null(token.data);
    return token;
}

enum actor_stage { ACTOR_IDLE, ACTOR_ASKING, ACTOR_ANSWERED, ACTOR_WAITING, ACTOR_DEAD };

struct actor {
    struct mst__session session;
    char name[32];
    enum actor_stage stage;
    struct mst__effect effect;
    int64_t next_us; /* when the next thing happens */
    bool is_woken;
    int64_t wall_us; /* its wall clock minus the world's monotonic one */
    /* The answer under way. */
    enum mst__event_kind answer;
    struct mst__state answer_state;
    uint64_t answer_version;
    int64_t done_us;
    bool is_done;
    struct mst__outcome outcome;
};

struct world {
    struct mst__state record;
    uint64_t version; /* 0 = there is no record */
    int64_t now_us;   /* monotonic */
    int64_t trip_us;  /* one way */
    int64_t service_us;
    int64_t server_free_us;
    bool can_watch;
    struct mst__prng prng;
    struct actor *actors;
    size_t count;
};

static inline void world_open(struct world *world, bool can_watch, uint64_t seed)
{
    *world =
        (struct world){.now_us = 1000000, .can_watch = can_watch, .trip_us = 50, .service_us = 100};
    mst__state_init(&world->record);
    mst__prng_init(&world->prng, seed);
    world->actors = calloc(WORLD_NODES_MAX, sizeof *world->actors);
    assert_non_null(world->actors);
}

static inline void world_close(struct world *world)
{
    for (size_t i = 0; i < world->count; i++) {
        mst__session_close(&world->actors[i].session);
        mst__state_close(&world->actors[i].answer_state);
    }
    mst__state_close(&world->record);
    free(world->actors);
}

static inline struct actor *world_add(struct world *world, struct mst__settings settings)
{
    assert_true(world->count < WORLD_NODES_MAX);
    struct actor *actor = &world->actors[world->count];
    (void)snprintf(actor->name, sizeof actor->name, "n%03zu", world->count);
    struct mst__session_options options = {
        .node = node_named(actor->name, 1),
        .settings = settings,
        .dialect = MST_RECORD_D4,
        .can_watch = world->can_watch,
    };
    assert_int_equal(mst__session_init(&actor->session, &options), 0);
    mst__state_init(&actor->answer_state);
    actor->wall_us = WORLD_WALL_US;
    world->count++;
    return actor;
}

/* Execute the effect of the session. */
static inline void actor_follow(struct world *world, struct actor *actor)
{
    switch (actor->effect.kind) {
        case MST_EFFECT_READ:
        case MST_EFFECT_WRITE: {
            int64_t arrives_us = world->now_us + world->trip_us;
            int64_t starts_us =
                arrives_us > world->server_free_us ? arrives_us : world->server_free_us;
            world->server_free_us = starts_us + world->service_us;
            actor->stage = ACTOR_ASKING;
            actor->next_us = world->server_free_us;
            break;
        }
        case MST_EFFECT_WAIT:
            assert_true(actor->effect.until_us > world->now_us);
            actor->stage = ACTOR_WAITING;
            actor->next_us = actor->effect.until_us;
            break;
        case MST_EFFECT_DONE:
            actor->stage = ACTOR_IDLE;
            actor->is_done = true;
            actor->done_us = world->now_us;
            actor->outcome = actor->effect.outcome;
            break;
    }
    actor->is_woken = false;
}

static inline void actor_feed(struct world *world,
                              struct actor *actor,
                              const struct mst__session_event *event)
{
    assert_int_equal(mst__session_step(&actor->session, event, actor->wall_us + world->now_us,
                                       world->now_us, mst__prng_next(&world->prng), &actor->effect),
                     0);
    actor_follow(world, actor);
}

static inline void actor_begin(struct world *world,
                               struct actor *actor,
                               enum mst__operation operation,
                               int64_t timeout_us)
{
    assert_int_equal(actor->stage, ACTOR_IDLE);
    actor->is_done = false;
    struct mst__session_event event = {
        .kind = MST_EVENT_BEGIN,
        .operation = operation,
        .deadline_us = world->now_us + timeout_us,
    };
    actor_feed(world, actor, &event);
}

static inline void world_changed(struct world *world)
{
    for (size_t i = 0; world->can_watch && i < world->count; i++) {
        struct actor *actor = &world->actors[i];
        int64_t told_us = world->now_us + world->trip_us;
        if (actor->stage == ACTOR_WAITING && actor->effect.wants_change &&
            told_us < actor->next_us) {
            actor->next_us = told_us;
            actor->is_woken = true;
        }
    }
}

/* The store executes the request of @actor; the answer is on its way. */
static inline void world_serve(struct world *world, struct actor *actor)
{
    bool is_write = actor->effect.kind == MST_EFFECT_WRITE;
    bool has_record = world->version != 0;
    if (is_write) {
        uint64_t version = 0;
        if (actor->effect.has_token) {
            assert_int_equal(actor->effect.token.size, sizeof version);
            memcpy(&version, actor->effect.token.data, sizeof version);
        }
        if (version == world->version) {
            assert_int_equal(mst__state_copy(&world->record, actor->effect.state), 0);
            world->version++;
            actor->answer = MST_EVENT_WON;
            world_changed(world);
        } else {
            actor->answer = has_record ? MST_EVENT_LOST : MST_EVENT_ABSENT;
        }
    } else {
        actor->answer = has_record ? MST_EVENT_READ : MST_EVENT_READ_NONE;
    }
    actor->answer_version = world->version;
    assert_int_equal(mst__state_copy(&actor->answer_state, &world->record), 0);
    actor->stage = ACTOR_ANSWERED;
    actor->next_us = world->now_us + world->trip_us;
}

static inline void actor_answer(struct world *world, struct actor *actor)
{
    struct mst_buffer token = token_of(actor->answer_version);
    bool is_none = actor->answer == MST_EVENT_READ_NONE || actor->answer == MST_EVENT_ABSENT;
    struct mst__session_event event = {
        .kind = actor->answer,
        .state = is_none || actor->answer == MST_EVENT_WON ? NULL : &actor->answer_state,
        .token = is_none ? NULL : &token,
    };
    actor_feed(world, actor, &event);
    mst__free(token.data);
}

/* Let one thing happen, up to @until_us. False when nothing does. */
static inline bool world_step(struct world *world, int64_t until_us)
{
    struct actor *first = NULL;
    for (size_t i = 0; i < world->count; i++) {
        struct actor *actor = &world->actors[i];
        if (actor->stage != ACTOR_IDLE && actor->stage != ACTOR_DEAD &&
            (first == NULL || actor->next_us < first->next_us)) {
            first = actor;
        }
    }
    if (first == NULL || first->next_us > until_us) {
        world->now_us = until_us > world->now_us ? until_us : world->now_us;
        return false;
    }
    world->now_us = first->next_us > world->now_us ? first->next_us : world->now_us;
    if (first->stage == ACTOR_ASKING) {
        world_serve(world, first);
    } else if (first->stage == ACTOR_ANSWERED) {
        actor_answer(world, first);
    } else {
        struct mst__session_event event = {.kind =
                                               first->is_woken ? MST_EVENT_WOKEN : MST_EVENT_TIME};
        actor_feed(world, first, &event);
    }
    return true;
}

static inline bool world_all_done(const struct world *world)
{
    for (size_t i = 0; i < world->count; i++) {
        if (!world->actors[i].is_done && world->actors[i].stage != ACTOR_DEAD) {
            return false;
        }
    }
    return true;
}

/* Run until all operations have ended, or for @limit_us. */
static inline bool world_run(struct world *world, int64_t limit_us)
{
    int64_t until_us = world->now_us + limit_us;
    while (!world_all_done(world)) {
        if (!world_step(world, until_us)) {
            return false;
        }
    }
    return true;
}

#endif /* MST_UNIT_CORE_UNIT_H */
