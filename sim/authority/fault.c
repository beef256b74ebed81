/* sim/authority/fault.c - faults of nodes, connections, server and store, and their end. */
#include <inttypes.h>

#include "sim/authority/authority.h"

#define SECOND_US MST_SIM_SECOND_US

/* The longest time that nodes are away or down. */
#define LEAVING_US_MAX (3 * SECOND_US)
#define AWAY_US_MAX (5 * SECOND_US)

static struct mst__sim_auth_node *fault_any(struct mst__sim_auth *sim)
{
    return mst__sim_auth_node(sim, (uint32_t)mst__sim_auth_below(sim, sim->plan.nodes));
}

/* A running node, sometimes an authority; NULL = none. */
static struct mst__sim_auth_node *fault_up(struct mst__sim_auth *sim)
{
    if (sim->plan.engine == MST_SIM_AUTH_V3 && mst__sim_auth_chance(sim, 400000)) {
        for (uint32_t i = 0; i < sim->plan.nodes; i++) {
            if (sim->nodes[i].lead != NULL) {
                return &sim->nodes[i];
            }
        }
    }
    for (int tries = 0; tries < 8; tries++) {
        struct mst__sim_auth_node *node = fault_any(sim);
        if (mst__sim_auth_is_up(node)) {
            return node;
        }
    }
    return NULL;
}

/* No outage outlives the faults. */
static int64_t fault_until_us(const struct mst__sim_auth *sim, int64_t time_us)
{
    return time_us > sim->plan.active_us ? sim->plan.active_us : time_us;
}

static int64_t fault_outage_us(struct mst__sim_auth *sim)
{
    int64_t outage_us = 1 + mst__sim_auth_below(sim, sim->plan.outage_us_max);
    return fault_until_us(sim, sim->now_us + outage_us);
}

static void disturbed(struct mst__sim_auth_node *node, int64_t until_us)
{
    node->bad_us = node->bad_us < until_us ? until_us : node->bad_us;
}

static void disturbed_all(struct mst__sim_auth *sim, int64_t until_us)
{
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        disturbed(&sim->nodes[i], until_us);
    }
}

static void fault_crash(struct mst__sim_auth *sim, struct mst__sim_auth_node *node, bool is_silent)
{
    mst__sim_auth_node_crash(sim, node, is_silent);
    if (mst__sim_auth_chance(sim, 500000)) {
        mst__sim_auth_node_come(sim, node, mst__sim_auth_below(sim, AWAY_US_MAX));
    }
}

static void fault_blackout(struct mst__sim_auth *sim)
{
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        struct mst__sim_auth_node *node = &sim->nodes[i];
        if (mst__sim_auth_is_up(node) && mst__sim_auth_chance(sim, 900000)) {
            mst__sim_auth_node_crash(sim, node, mst__sim_auth_chance(sim, 300000));
            mst__sim_auth_node_come(sim, node, mst__sim_auth_below(sim, AWAY_US_MAX));
        }
    }
}

/* All nodes leave; a run without nodes may be forgotten. */
static void fault_exodus(struct mst__sim_auth *sim)
{
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        struct mst__sim_auth_node *node = &sim->nodes[i];
        if (mst__sim_auth_is_up(node) && node->frozen_us <= sim->now_us) {
            mst__sim_auth_node_part(sim, node,
                                    AWAY_US_MAX / 2 + mst__sim_auth_below(sim, AWAY_US_MAX));
        }
    }
}

/* Cut one node, or several, off the network. */
static void fault_partition(struct mst__sim_auth *sim)
{
    int64_t until_us = fault_outage_us(sim);
    uint32_t percent = mst__sim_auth_chance(sim, 500000) ? 0 : 40;
    struct mst__sim_auth_node *one = fault_any(sim);
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        struct mst__sim_auth_node *node = &sim->nodes[i];
        bool is_cut = node->cut_us > sim->now_us; /* delayed messages stay in order */
        if (!is_cut && (node == one || mst__sim_auth_chance(sim, percent * 10000))) {
            node->cut_us = until_us;
            disturbed(node, until_us);
            mst__sim_auth_say(sim, i, "is cut off until %.3f", (double)node->cut_us / 1e6);
        }
    }
}

/* Some nodes come to the next server as new processes, which know nothing; others come late. */
static void fault_scatter(struct mst__sim_auth *sim)
{
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        struct mst__sim_auth_node *node = &sim->nodes[i];
        if (!mst__sim_auth_is_up(node) || node->cut_us > sim->now_us) {
            continue;
        }
        if (mst__sim_auth_chance(sim, 500000)) {
            mst__sim_auth_node_crash(sim, node, false);
            mst__sim_auth_node_come(sim, node, mst__sim_auth_below(sim, SECOND_US));
        } else {
            node->cut_us = fault_outage_us(sim);
            disturbed(node, node->cut_us);
        }
    }
}

static void fault_server(struct mst__sim_auth *sim)
{
    int64_t until_us =
        mst__sim_auth_chance(sim, 300000) ? fault_outage_us(sim) : sim->now_us + SECOND_US / 4;
    until_us = fault_until_us(sim, until_us);
    mst__sim_auth_say(sim, MST_SIM_AUTH_NOBODY, "is gone until %.3f", (double)until_us / 1e6);
    disturbed_all(sim, until_us);
    sim->stats.faults[MST_SIM_FAULT_WIPE]++;
    if (sim->plan.engine == MST_SIM_AUTH_V3) {
        mst__sim_auth_store_down(sim, until_us);
        return;
    }
    if (mst__sim_auth_chance(sim, 200000)) {
        fault_scatter(sim);
    }
    mst__sim_auth_server_stop(sim);
    sim->server.down_us = until_us;
    sim->server.frozen_us = 0;
    mst__sim_auth_server_start(sim);
}

static void fault_freeze_server(struct mst__sim_auth *sim)
{
    if (sim->plan.engine == MST_SIM_AUTH_V3) {
        mst__sim_auth_store_unwatch(sim);
        return;
    }
    if (sim->server.frozen_us > sim->now_us) {
        return;
    }
    /* This disturbs no node: their messages wait in the sockets. */
    sim->server.froze_us = sim->now_us;
    sim->server.frozen_us = fault_outage_us(sim);
    mst__sim_auth_say(sim, MST_SIM_AUTH_NOBODY, "stops until %.3f",
                      (double)sim->server.frozen_us / 1e6);
    sim->stats.faults[MST_SIM_FAULT_FREEZE]++;
}

/* The connection breaks: messages under way are lost, and the ends notice at different times. */
static void fault_tear(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    struct mst__sim_auth_link *link = node->link;
    if (sim->plan.engine == MST_SIM_AUTH_V3) {
        mst__sim_auth_store_unwatch_one(sim, node->index);
        return;
    }
    if (link == NULL) {
        return;
    }
    mst__sim_auth_say(sim, node->index, "its connection is torn");
    disturbed(node, sim->now_us);
    link->is_torn = true;
    int64_t late_us =
        mst__sim_auth_chance(sim, 500000) ? 1000 : mst__sim_auth_below(sim, SECOND_US);
    mst__sim_auth_at(sim, sim->now_us + mst__sim_auth_below(sim, late_us),
                     MST_SIM_AUTH_HANGUP_SERVER,
                     (struct mst__sim_event){.node = node->index, .id = link->id});
    mst__sim_auth_client_drop(sim, node);
}

/* The node gives its connection up while its messages are still under way. */
static void fault_stall(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    struct mst__sim_auth_link *link = node->link;
    if (link == NULL) {
        return;
    }
    disturbed(node, sim->now_us);
    link->stalled_us =
        fault_until_us(sim, sim->now_us + mst__sim_auth_below(sim, 2 * sim->plan.expiry_us));
    link->to_server_us =
        link->to_server_us < link->stalled_us ? link->stalled_us : link->to_server_us;
    mst__sim_auth_say(sim, node->index, "what it says is held back until %.3f",
                      (double)link->stalled_us / 1e6);
    if (mst__sim_auth_chance(sim, 300000)) {
        mst__sim_auth_node_next(sim, node); /* its last message on that connection */
    }
    mst__sim_auth_client_drop(sim, node);
}

/* As if a firewall had forgotten the connection. */
static void fault_hole(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (node->link != NULL) {
        mst__sim_auth_say(sim, node->index, "nothing passes its connection any more");
        disturbed(node, sim->now_us);
        node->link->is_torn = true;
        node->link->is_hole = true;
    }
}

static void fault_freeze(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    node->frozen_us = fault_outage_us(sim);
    disturbed(node, node->frozen_us);
    mst__sim_auth_say(sim, node->index, "%sis stopped until %.3f",
                      node->lead != NULL ? "(authority) " : "", (double)node->frozen_us / 1e6);
    sim->stats.faults[MST_SIM_FAULT_FREEZE]++;
}

/* A member may say that it leaves. */
static bool fault_announces(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    bool can = sim->plan.engine == MST_SIM_AUTH_MUSTER && node->launcher == NULL &&
               node->app == MST_SIM_AUTH_HOLDING && mst__sim_auth_chance(sim, 500000);
    if (can) {
        int64_t in_us = mst__sim_auth_below(sim, LEAVING_US_MAX);
        mst__sim_auth_say(sim, node->index, "says that it leaves in %" PRId64 " ms", in_us / 1000);
        mst__sim_auth_member_step(
            sim, node,
            (struct mst__member_event){.kind = MST_MEMBER_EVENT_LEAVING, .in_us = in_us});
    }
    return can;
}

static void fault_on(struct mst__sim_auth *sim,
                     struct mst__sim_auth_node *node,
                     enum mst__sim_auth_fault fault)
{
    switch (fault) {
        case MST_SIM_AUTH_FAULT_AGAIN:
            sim->stats.faults[MST_SIM_FAULT_RESTART]++;
            mst__sim_auth_node_next(sim, node);
            return;
        case MST_SIM_AUTH_FAULT_CRASH:
        case MST_SIM_AUTH_FAULT_VANISH:
            sim->stats.faults[MST_SIM_FAULT_CRASH]++;
            fault_crash(sim, node, fault == MST_SIM_AUTH_FAULT_VANISH);
            return;
        case MST_SIM_AUTH_FAULT_FREEZE:
            fault_freeze(sim, node);
            return;
        case MST_SIM_AUTH_FAULT_LEAVE:
            sim->stats.faults[MST_SIM_FAULT_LEAVE]++;
            if (fault_announces(sim, node)) {
                return; /* whether it does leave is another fault */
            }
            mst__sim_auth_node_part(sim, node, mst__sim_auth_below(sim, AWAY_US_MAX));
            return;
        case MST_SIM_AUTH_FAULT_CANCEL:
            if (node->app == MST_SIM_AUTH_JOINING) {
                sim->stats.faults[MST_SIM_FAULT_CANCEL]++;
                mst__sim_auth_node_part(sim, node, mst__sim_auth_below(sim, SECOND_US / 10));
            }
            return;
        case MST_SIM_AUTH_FAULT_SHUT:
            sim->stats.faults[MST_SIM_FAULT_CLOSE]++;
            mst__sim_auth_node_shut(sim, node);
            return;
        case MST_SIM_AUTH_FAULT_TEAR:
            fault_tear(sim, node);
            return;
        case MST_SIM_AUTH_FAULT_STALL:
            fault_stall(sim, node);
            return;
        case MST_SIM_AUTH_FAULT_HOLE:
            fault_hole(sim, node);
            return;
        default:
            return;
    }
}

static enum mst__sim_auth_fault fault_draw(struct mst__sim_auth *sim)
{
    const uint32_t *weights = sim->plan.weights;
    int64_t sum = 0;
    for (size_t i = 0; i < MST_SIM_AUTH_FAULTS; i++) {
        sum += weights[i];
    }
    int64_t at = mst__sim_auth_below(sim, sum);
    size_t fault = 0;
    while (at >= (int64_t)weights[fault]) {
        at -= weights[fault++];
    }
    return (enum mst__sim_auth_fault)fault;
}

void mst__sim_auth_strike(struct mst__sim_auth *sim)
{
    enum mst__sim_auth_fault fault = fault_draw(sim);
    struct mst__sim_auth_node *node;
    switch (fault) {
        case MST_SIM_AUTH_FAULT_REVIVE:
            node = fault_any(sim);
            if (node->app == MST_SIM_AUTH_DOWN) {
                sim->stats.faults[MST_SIM_FAULT_REVIVE]++;
                mst__sim_auth_node_come(sim, node, 0);
            }
            return;
        case MST_SIM_AUTH_FAULT_BLACKOUT:
            sim->stats.faults[MST_SIM_FAULT_BLACKOUT]++;
            fault_blackout(sim);
            return;
        case MST_SIM_AUTH_FAULT_EXODUS:
            fault_exodus(sim);
            return;
        case MST_SIM_AUTH_FAULT_PARTITION:
            sim->stats.faults[MST_SIM_FAULT_PARTITION]++;
            fault_partition(sim);
            return;
        case MST_SIM_AUTH_FAULT_SERVER:
            fault_server(sim);
            return;
        case MST_SIM_AUTH_FAULT_SERVER_FREEZE:
            fault_freeze_server(sim);
            return;
        default:
            node = fault_up(sim);
            if (node != NULL && node->frozen_us <= sim->now_us) {
                fault_on(sim, node, fault);
            }
            return;
    }
}

void mst__sim_auth_calm(struct mst__sim_auth *sim)
{
    mst__sim_auth_say(sim, MST_SIM_AUTH_NOBODY, "the faults stop");
    sim->is_calm = true;
    sim->calm_us = sim->now_us;
    sim->plan.join_us = INT64_MAX / 4;
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        struct mst__sim_auth_node *node = &sim->nodes[i];
        node->member.join_us = INT64_MAX;
        node->member.timeout_us = INT64_MAX; /* for a node that stops being a spare */
        if (mst__sim_auth_is_up(node) && node->is_odd) {
            mst__sim_auth_node_crash(sim, node, false);
        } else if (node->app == MST_SIM_AUTH_DOWN && mst__sim_auth_chance(sim, 500000)) {
            mst__sim_auth_node_come(sim, node, 0);
        }
    }
    mst__sim_auth_at(sim, sim->now_us + SECOND_US, MST_SIM_AUTH_LOOK,
                     (struct mst__sim_event){.bytes = NULL});
}
