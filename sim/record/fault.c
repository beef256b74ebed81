/* sim/record/fault.c - the adversary: faults, and their end. */
#include "base/assert.h"
#include "sim/record/record.h"

static uint32_t fault_weights(const struct mst__sim_plan *plan)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < MST_SIM_FAULT_COUNT; i++) {
        sum += plan->weights[i];
    }
    return sum;
}

static enum mst__sim_fault fault_draw(struct mst__sim_world *world, uint32_t sum)
{
    uint32_t left = (uint32_t)mst__sim_below(world, sum);
    size_t kind = 0;
    while (left >= world->plan.weights[kind]) {
        left -= world->plan.weights[kind++];
    }
    return (enum mst__sim_fault)kind;
}

static bool fault_partition(struct mst__sim_world *world, struct mst__sim_node *node)
{
    if (node->partition != 0) {
        return false;
    }
    node->partition = ++world->partitions;
    node->well_us = world->now_us;
    mst__sim_say_node(world, node, "is cut off from the store");
    mst__sim_after(
        world, 1 + mst__sim_below(world, world->plan.partition_us_max),
        (struct mst__sim_event){.kind = MST_SIM_HEAL, .node = node->index, .id = node->partition});
    return true;
}

void mst__sim_fault_heal(struct mst__sim_world *world, struct mst__sim_node *node)
{
    mst__sim_say_node(world, node, "reaches the store again");
    node->partition = 0;
    node->well_us = world->now_us;
    if (node->watch != 0) {
        /* TCP keep-alive shows that the connection is dead. */
        mst__sim_after(world, mst__sim_below(world, MST_SIM_SECOND_US),
                       (struct mst__sim_event){
                           .kind = MST_SIM_UNWATCHED, .node = node->index, .id = node->watch});
    }
}

static bool fault_freeze(struct mst__sim_world *world, struct mst__sim_node *node)
{
    int64_t time_us = 1 + mst__sim_below(world, world->plan.partition_us_max);
    mst__sim_say_node(world, node, "freezes for %lld ms", (long long)(time_us / 1000));
    node->paused_us = node->frozen_us > world->now_us ? node->paused_us : world->now_us;
    node->frozen_us = world->now_us + time_us;
    node->well_us = node->frozen_us;
    return true;
}

static bool fault_blackout(struct mst__sim_world *world)
{
    for (uint32_t i = 0; i < world->plan.nodes_count; i++) {
        struct mst__sim_node *node = &world->nodes[i];
        if (mst__sim_node_is_up(node)) {
            mst__sim_node_crash(world, node);
            node->is_coming = true;
            int64_t later_us = mst__sim_below(world, mst__sim_plan_expiry_us(&world->plan));
            mst__sim_after(world, later_us,
                           (struct mst__sim_event){.kind = MST_SIM_START, .node = i});
        }
    }
    return true;
}

static bool fault_step(struct mst__sim_world *world, struct mst__sim_node *node)
{
    int64_t most_us = world->plan.step_us_max;
    int64_t step_us = mst__sim_below(world, 2 * most_us + 1) - most_us;
    node->skew_us += step_us;
    mst__sim_say_node(world, node, "has its clock set by %+lld ms", (long long)(step_us / 1000));
    return true;
}

static bool fault_wipe(struct mst__sim_world *world)
{
    mst__sim_say(world, "store", "restarts and has lost everything");
    mst__sim_store_wipe(world);
    world->store.down_us = world->now_us + mst__sim_below(world, 2 * MST_SIM_SECOND_US);
    for (uint32_t i = 0; i < world->plan.nodes_count; i++) {
        struct mst__sim_node *node = &world->nodes[i];
        if (node->link != 0) {
            mst__sim_link_break(world, node, node->link);
        }
        if (node->watch != 0) {
            mst__sim_after(
                world, mst__sim_link_delay_us(world, node),
                (struct mst__sim_event){.kind = MST_SIM_UNWATCHED, .node = i, .id = node->watch});
        }
        node->well_us = world->store.down_us;
    }
    return true;
}

static bool fault_apply(struct mst__sim_world *world,
                        enum mst__sim_fault fault,
                        struct mst__sim_node *node)
{
    bool is_up = mst__sim_node_is_up(node);
    switch (fault) {
        case MST_SIM_FAULT_RESTART:
            return mst__sim_node_want(world, node, MST_SIM_JOINING);
        case MST_SIM_FAULT_CRASH:
            if (is_up) {
                mst__sim_node_crash(world, node);
            }
            return is_up;
        case MST_SIM_FAULT_REVIVE:
            if (is_up || node->pid == 0) {
                return false;
            }
            mst__sim_node_start(world, node);
            return true;
        case MST_SIM_FAULT_BLACKOUT:
            return fault_blackout(world);
        case MST_SIM_FAULT_FREEZE:
            return is_up && fault_freeze(world, node);
        case MST_SIM_FAULT_PARTITION:
            return is_up && fault_partition(world, node);
        case MST_SIM_FAULT_LEAVE:
            return mst__sim_node_want(world, node, MST_SIM_LEAVING);
        case MST_SIM_FAULT_CANCEL:
            return mst__sim_node_cancel(world, node);
        case MST_SIM_FAULT_STEP:
            return fault_step(world, node);
        case MST_SIM_FAULT_WIPE:
            return fault_wipe(world);
        case MST_SIM_FAULT_CLOSE:
            break;
    }
    MST_ASSERT(fault == MST_SIM_FAULT_CLOSE);
    /* Late, so that something has happened before. */
    return world->now_us > world->plan.active_us / 2 &&
           mst__sim_node_want(world, node, MST_SIM_CLOSING);
}

void mst__sim_fault_restart(struct mst__sim_world *world)
{
    const struct mst__sim_plan *plan = &world->plan;
    if (world->is_calm || plan->restart_us == 0) {
        return;
    }
    struct mst__sim_node *node = &world->nodes[mst__sim_below(world, (int64_t)plan->nodes_count)];
    if (fault_apply(world, MST_SIM_FAULT_RESTART, node)) {
        world->stats.faults[MST_SIM_FAULT_RESTART]++;
    }
    mst__sim_after(world, 1 + mst__sim_below(world, 2 * plan->restart_us),
                   (struct mst__sim_event){.kind = MST_SIM_RESTART});
}

void mst__sim_fault_strike(struct mst__sim_world *world)
{
    const struct mst__sim_plan *plan = &world->plan;
    uint32_t sum = fault_weights(plan);
    if (world->is_calm || sum == 0) {
        return;
    }
    enum mst__sim_fault fault = fault_draw(world, sum);
    struct mst__sim_node *node = &world->nodes[mst__sim_below(world, (int64_t)plan->nodes_count)];
    if (fault_apply(world, fault, node)) {
        world->stats.faults[fault]++;
    }
    mst__sim_after(world, 1 + mst__sim_below(world, 2 * plan->fault_us),
                   (struct mst__sim_event){.kind = MST_SIM_DISTURB});
}

void mst__sim_fault_calm(struct mst__sim_world *world)
{
    mst__sim_say(world, "all", "faults stop here");
    world->is_calm = true;
    world->calm_us = world->now_us;
    world->store.down_us = world->now_us;
    for (uint32_t i = 0; i < world->plan.nodes_count; i++) {
        struct mst__sim_node *node = &world->nodes[i];
        if (node->partition != 0) {
            mst__sim_fault_heal(world, node);
        }
        if (node->frozen_us > world->now_us) {
            node->frozen_us = world->now_us;
            node->well_us = world->now_us;
        }
        bool comes_back = node->is_coming || (world->plan.weights[MST_SIM_FAULT_REVIVE] > 0 &&
                                              mst__sim_below(world, 2) == 0);
        if (node->app == MST_SIM_DOWN && comes_back) {
            mst__sim_node_start(world, node);
        } else if (node->app == MST_SIM_PAUSED) {
            mst__sim_after(
                world, 0,
                (struct mst__sim_event){.kind = MST_SIM_TIMER, .node = i, .id = node->timer});
        }
    }
    mst__sim_settle_calm(world);
}
