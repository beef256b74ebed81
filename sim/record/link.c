/* sim/record/link.c - the network between a node and the store.
 *
 * A link is a connection: bytes arrive in order or not at all, and a new connection has a new
 * number. An answer is accepted only for its own request, as one connection per request stream
 * guarantees in reality; late answers are counted and dropped. */
#include "base/assert.h"
#include "base/mem.h"
#include "sim/record/record.h"

/* Pause between two attempts to watch. */
#define LINK_WATCH_RETRY_US 100000

int64_t mst__sim_link_delay_us(struct mst__sim_world *world, struct mst__sim_node *node)
{
    const struct mst__sim_plan *plan = &world->plan;
    if (!world->is_calm && mst__sim_chance(world, plan->slow_ppm)) {
        node->well_us = world->now_us + plan->slow_us;
        return mst__sim_below(world, plan->slow_us);
    }
    return plan->latency_us / 2 + mst__sim_below(world, plan->latency_us);
}

/* The arrival of a message that leaves now; never before that of an earlier one. */
static int64_t link_arrival_us(struct mst__sim_world *world,
                               struct mst__sim_node *node,
                               int64_t *last_us)
{
    int64_t arrival_us = world->now_us + mst__sim_link_delay_us(world, node);
    if (arrival_us <= *last_us) {
        arrival_us = *last_us + 1;
    }
    *last_us = arrival_us;
    return arrival_us;
}

static void link_open(struct mst__sim_world *world, struct mst__sim_node *node)
{
    node->link = ++world->links;
    node->link_epoch = world->store.epoch;
    node->request = 0;
    node->to_store_us = 0;
    node->to_node_us = 0;
    if (world->plan.wire == MST_DIALECT_C) {
        int rv = mst__wire_write_validate(&node->output);
        MST_ASSERT(rv == 0);
    }
}

void mst__sim_link_break(struct mst__sim_world *world, struct mst__sim_node *node, uint64_t link)
{
    node->well_us = world->now_us;
    mst__sim_after(
        world, mst__sim_link_delay_us(world, node),
        (struct mst__sim_event){.kind = MST_SIM_BROKEN, .node = node->index, .id = link});
}

static uint8_t *link_copy(struct mst_bytes bytes)
{
    uint8_t *copy = (uint8_t *)mst__memdup(bytes.data, bytes.size);
    MST_ASSERT(copy != NULL);
    return copy;
}

void mst__sim_link_send(struct mst__sim_world *world,
                        struct mst__sim_node *node,
                        const struct mst__command *command)
{
    mst__buf_clear(&node->output);
    if (node->link == 0) {
        link_open(world, node);
    }
    int rv = mst__wire_write_request(&node->output, world->plan.wire, command);
    MST_ASSERT(rv == 0);
    node->request++;
    if (node->partition != 0) {
        node->well_us = world->now_us;
        return; /* lost; the client will give up */
    }
    if (world->now_us < world->store.down_us) {
        mst__sim_link_break(world, node, node->link);
        return;
    }
    if (!world->is_calm && mst__sim_chance(world, world->plan.cut_before_ppm)) {
        mst__sim_link_break(world, node, node->link);
        return;
    }
    struct mst_bytes bytes = mst__buf_bytes(&node->output);
    struct mst__sim_event event = {
        .kind = MST_SIM_REQUEST,
        .node = node->index,
        .id = node->link,
        .pid = node->pid,
        .request = node->request,
        .epoch = node->link_epoch,
        .bytes = link_copy(bytes),
        .size = bytes.size,
    };
    int64_t arrival_us = link_arrival_us(world, node, &node->to_store_us);
    mst__sim_after(world, arrival_us - world->now_us, event);
}

void mst__sim_link_close(struct mst__sim_world *world, struct mst__sim_node *node)
{
    if (node->link == 0) {
        return;
    }
    if (node->partition == 0) {
        int64_t arrival_us = link_arrival_us(world, node, &node->to_store_us);
        mst__sim_after(world, arrival_us - world->now_us,
                       (struct mst__sim_event){.kind = MST_SIM_CLOSED, .id = node->link});
    }
    node->link = 0;
}

void mst__sim_link_reply(struct mst__sim_world *world,
                         const struct mst__sim_event *event,
                         struct mst_bytes bytes)
{
    struct mst__sim_node *node = &world->nodes[event->node];
    if (node->partition != 0) {
        node->well_us = world->now_us;
        return;
    }
    if (!world->is_calm && mst__sim_chance(world, world->plan.cut_after_ppm)) {
        mst__sim_link_break(world, node, event->id);
        return;
    }
    bool is_current = node->link == event->id;
    int64_t arrival_us = is_current ? link_arrival_us(world, node, &node->to_node_us)
                                    : world->now_us + mst__sim_link_delay_us(world, node);
    struct mst__sim_event reply = *event;
    reply.kind = MST_SIM_REPLY;
    reply.epoch = world->store.epoch;
    reply.size = bytes.size;
    reply.bytes = link_copy(bytes);
    mst__sim_after(world, arrival_us - world->now_us, reply);
    if (!world->is_calm && mst__sim_chance(world, world->plan.twice_ppm)) {
        reply.bytes = link_copy(bytes);
        int64_t later_us = mst__sim_below(world, 10 * world->plan.latency_us);
        mst__sim_after(world, arrival_us - world->now_us + later_us, reply);
    }
}

void mst__sim_link_watch(struct mst__sim_world *world, struct mst__sim_node *node)
{
    node->watch = ++world->links;
    if (node->partition != 0) {
        return; /* requested again after the partition */
    }
    bool is_refused = world->now_us < world->store.down_us ||
                      (!world->is_calm && mst__sim_chance(world, world->plan.cut_before_ppm));
    int64_t delay_us = mst__sim_link_delay_us(world, node);
    if (is_refused) {
        delay_us += LINK_WATCH_RETRY_US;
    }
    mst__sim_after(world, delay_us,
                   (struct mst__sim_event){.kind = is_refused ? MST_SIM_UNWATCHED : MST_SIM_WATCH,
                                           .node = node->index,
                                           .id = node->watch,
                                           .pid = node->pid,
                                           .epoch = world->store.epoch});
}
