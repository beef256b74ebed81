/* sim/record/world.c - one run: from a seed to its end, event by event. */
#include <stdarg.h>

#include "base/assert.h"
#include "base/mem.h"
#include "sim/record/record.h"

/* A run with more events is in an endless loop. */
#define WORLD_EVENTS_MAX 5000000U

void mst__sim_break(struct mst__sim_world *world, const char *rule, const char *format, ...)
{
    if (world->rule != NULL) {
        return;
    }
    world->rule = rule;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(world->broken, sizeof world->broken, format, arguments); /* cut off at worst */
    va_end(arguments);
    mst__sim_say(world, "BROKEN", "rule %s: %s", rule, world->broken);
}

int64_t mst__sim_below(struct mst__sim_world *world, int64_t bound)
{
    return bound <= 0 ? 0 : (int64_t)mst__prng_below(&world->prng, (uint64_t)bound);
}

bool mst__sim_chance(struct mst__sim_world *world, uint32_t ppm)
{
    return ppm > 0 && mst__prng_below(&world->prng, MST_SIM_MILLION) < ppm;
}

void mst__sim_after(struct mst__sim_world *world, int64_t delay_us, struct mst__sim_event event)
{
    MST_ASSERT(delay_us >= 0);
    event.time_us = world->now_us + delay_us;
    mst__sim_queue_push(&world->queue, event);
}

static void world_unwatched(struct mst__sim_world *world, struct mst__sim_node *node)
{
    node->watch = 0;
    if (mst__sim_node_is_up(node)) {
        mst__sim_link_watch(world, node);
    }
}

#define THAW_US 100000

/* Whether the receiver of @event is frozen; then it comes later. */
static bool world_defer(struct mst__sim_world *world, struct mst__sim_event *event)
{
    const struct mst__sim_node *node = &world->nodes[event->node];
    bool is_for_node = event->kind == MST_SIM_REPLY || event->kind == MST_SIM_BROKEN ||
                       event->kind == MST_SIM_NOTICE || event->kind == MST_SIM_UNWATCHED ||
                       event->kind == MST_SIM_TIMER;
    if (!is_for_node || node->frozen_us <= world->now_us) {
        return false;
    }
    /* In small steps: the end of the faults may end it earlier. */
    int64_t left_us = node->frozen_us - world->now_us;
    mst__sim_after(world, left_us < THAW_US ? left_us : THAW_US, *event);
    event->bytes = NULL; /* taken */
    return true;
}

static void world_dispatch(struct mst__sim_world *world, struct mst__sim_event *event)
{
    struct mst__sim_node *node = &world->nodes[event->node];
    if (world_defer(world, event)) {
        return;
    }
    switch ((enum mst__sim_event_kind)event->kind) {
        case MST_SIM_REQUEST:
            mst__sim_store_request(world, event);
            return;
        case MST_SIM_REPLY:
            mst__sim_node_reply(world, node, event);
            return;
        case MST_SIM_CLOSED:
            mst__sim_store_hangup(world, event->id);
            return;
        case MST_SIM_BROKEN:
            if (event->id == node->link) {
                mst__sim_node_broken(world, node);
            }
            return;
        case MST_SIM_WATCH:
            mst__sim_store_watch(world, event);
            return;
        case MST_SIM_NOTICE:
            if (event->id == node->watch) {
                mst__sim_node_notice(world, node);
            }
            return;
        case MST_SIM_UNWATCHED:
            if (event->id == node->watch) {
                world_unwatched(world, node);
            }
            return;
        case MST_SIM_TIMER:
            if (event->id == node->timer) {
                mst__sim_node_timer(world, node);
            }
            return;
        case MST_SIM_START:
            if (!mst__sim_node_is_up(node)) {
                mst__sim_node_start(world, node);
            }
            return;
        case MST_SIM_HEAL:
            if (event->id == node->partition) {
                mst__sim_fault_heal(world, node);
            }
            return;
        case MST_SIM_RESTART:
            mst__sim_fault_restart(world);
            return;
        case MST_SIM_DISTURB:
            mst__sim_fault_strike(world);
            return;
        case MST_SIM_CALM:
            mst__sim_fault_calm(world);
            return;
        case MST_SIM_END:
            break;
    }
    MST_ASSERT(event->kind == MST_SIM_END);
    mst__sim_settle_bound(world, event->id);
}

static void world_open(struct mst__sim_world *world, uint64_t seed)
{
    mst__sim_plan_draw(&world->plan, seed);
    mst__prng_init(&world->prng, ~seed);
    mst__sim_store_init(world);
    mst__sim_check_init(world);
    for (uint32_t i = 0; i < world->plan.nodes_count; i++) {
        mst__sim_node_init(world, i);
        int64_t start_us = mst__sim_below(world, world->plan.start_us_max);
        mst__sim_after(world, start_us, (struct mst__sim_event){.kind = MST_SIM_START, .node = i});
    }
    mst__sim_after(world, mst__sim_below(world, 2 * world->plan.restart_us),
                   (struct mst__sim_event){.kind = MST_SIM_RESTART});
    mst__sim_after(world, mst__sim_below(world, 2 * world->plan.fault_us),
                   (struct mst__sim_event){.kind = MST_SIM_DISTURB});
    mst__sim_after(world, world->plan.active_us, (struct mst__sim_event){.kind = MST_SIM_CALM});
    mst__sim_say_plan(world);
}

bool mst__sim_world_run(struct mst__sim_world *ret_world, uint64_t seed, FILE *history)
{
    struct mst__sim_world *world = ret_world;
    *world = (struct mst__sim_world){.history = history};
    world_open(world, seed);
    struct mst__sim_event event;
    while (world->rule == NULL && !world->is_over && mst__sim_queue_pop(&world->queue, &event)) {
        MST_ASSERT(event.time_us >= world->now_us);
        world->now_us = event.time_us;
        if (++world->stats.events > WORLD_EVENTS_MAX) {
            mst__sim_break(world, "endless", "%u events and no end", WORLD_EVENTS_MAX);
        }
        world_dispatch(world, &event);
        mst__free(event.bytes);
    }
    world->stats.virtual_us = world->now_us;
    return world->rule == NULL;
}

void mst__sim_world_close(struct mst__sim_world *world)
{
    world->history = NULL;
    for (uint32_t i = 0; i < world->plan.nodes_count; i++) {
        mst__sim_node_close(world, &world->nodes[i]);
    }
    mst__sim_store_close(world);
    mst__sim_check_close(world);
    mst__sim_queue_close(&world->queue);
}
