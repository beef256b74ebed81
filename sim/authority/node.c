/* sim/authority/node.c - a program that takes part: it joins, is in a round, comes back when it
 * must, leaves, crashes and starts again. The same for both engines. */
#include <inttypes.h>

#include "base/mem.h"
#include "sim/authority/authority.h"

#define SECOND_US MST_SIM_SECOND_US

bool mst__sim_auth_is_up(const struct mst__sim_auth_node *node)
{
    return node->app == MST_SIM_AUTH_JOINING || node->app == MST_SIM_AUTH_HOLDING;
}

static bool is_muster(const struct mst__sim_auth *sim)
{
    return sim->plan.engine == MST_SIM_AUTH_MUSTER;
}

void mst__sim_auth_node_arm(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    int64_t due_us = mst__member_due_us(&node->member);
    int64_t keeper_us = is_muster(sim) ? INT64_MAX : mst__sim_auth_keeper_due_us(node);
    due_us = keeper_us < due_us ? keeper_us : due_us;
    int64_t work_us = mst__sim_auth_work_due_us(node);
    due_us = work_us < due_us ? work_us : due_us;
    due_us = node->react_us < due_us ? node->react_us : due_us;
    int64_t launch_us = mst__sim_auth_launch_due_us(node);
    due_us = launch_us < due_us ? launch_us : due_us;
    node->timer = ++sim->serials;
    if (due_us != INT64_MAX) {
        mst__sim_auth_at(sim, due_us, MST_SIM_AUTH_TIMER,
                         (struct mst__sim_event){
                             .node = node->index, .id = node->timer, .pid = (int64_t)node->life});
    }
}

void mst__sim_auth_node_come(struct mst__sim_auth *sim,
                             struct mst__sim_auth_node *node,
                             int64_t delay_us)
{
    if (!node->is_coming) {
        node->is_coming = true;
        int64_t time_us = sim->now_us + delay_us;
        if (!sim->is_calm && time_us > sim->plan.active_us) {
            time_us = sim->plan.active_us;
        }
        mst__sim_auth_at(sim, time_us, MST_SIM_AUTH_START,
                         (struct mst__sim_event){.node = node->index});
    }
}

void mst__sim_auth_node_start(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    uint32_t index = node->index;
    uint32_t life = node->life + 1;
    mst__free(node->round);
    mst__sim_auth_launch_free(node);
    *node = (struct mst__sim_auth_node){
        .index = index,
        .life = life,
        .incarnation = sim->plan.has_jumps ? 1 + (uint64_t)mst__sim_auth_below(sim, 100) : life,
        .is_odd = node->is_odd,
        .session = ++sim->serials << 32 | life,
        .skew_us = node->skew_us,
        .cut_us = node->cut_us,
        .accepted = node->accepted,
        .frozen_us = 0,
        .bad_us = sim->now_us,
        .react_us = INT64_MAX,
        .beat_us = INT64_MAX,
        .answer_us = INT64_MAX,
        .retry_us = INT64_MAX,
        .app = MST_SIM_AUTH_AWAY,
    };
    mst__sim_auth_work_stop(node);
    mst__sim_auth_member_begin(sim, node);
    mst__sim_auth_say(sim, index, "starts");
    if (sim->plan.has_agents) {
        mst__sim_auth_launch_begin(sim, node);
    } else {
        mst__sim_auth_node_next(sim, node);
    }
}

void mst__sim_auth_node_crash(struct mst__sim_auth *sim,
                              struct mst__sim_auth_node *node,
                              bool is_silent)
{
    mst__sim_auth_say(sim, node->index, is_silent ? "is gone without a word" : "crashes");
    if (node->link != NULL) {
        mst__sim_auth_link_close(sim, node->link, false, is_silent);
        node->link = NULL;
    }
    mst__sim_auth_lead_end(sim, node);
    mst__sim_auth_launch_free(node); /* its workers die with it */
    node->app = MST_SIM_AUTH_DOWN;
    node->timer = ++sim->serials;
    node->frozen_us = 0;
    node->react_us = INT64_MAX;
}

void mst__sim_auth_node_next(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (node->launcher != NULL) {
        mst__sim_auth_launch_ask(sim, node);
        mst__sim_auth_node_arm(sim, node);
        return;
    }
    mst__sim_auth_say(sim, node->index, "enters, knows round %" PRId64, node->member.claim.round);
    node->app = MST_SIM_AUTH_JOINING;
    node->react_us = INT64_MAX;
    mst__sim_auth_work_stop(node);
    mst__sim_auth_member_want(sim, node);
    mst__sim_auth_node_arm(sim, node);
}

void mst__sim_auth_node_part(struct mst__sim_auth *sim,
                             struct mst__sim_auth_node *node,
                             int64_t away_us)
{
    if (node->launcher != NULL) {
        mst__sim_auth_launch_signal(sim, node, away_us);
        return;
    }
    mst__sim_auth_say(sim, node->index, "leaves");
    node->app = MST_SIM_AUTH_AWAY;
    node->react_us = INT64_MAX;
    mst__sim_auth_member_leave(sim, node);
    mst__sim_auth_node_arm(sim, node);
    mst__sim_auth_node_come(sim, node, away_us);
}

void mst__sim_auth_node_shut(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    mst__sim_auth_say(sim, node->index, "closes the run");
    if (is_muster(sim)) {
        mst__sim_auth_client_shut(sim, node);
    } else {
        mst__sim_auth_keeper_shut(sim, node);
    }
}

void mst__sim_auth_node_timer(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (node->react_us <= sim->now_us && mst__sim_auth_is_up(node)) {
        mst__sim_auth_node_next(sim, node);
    }
    mst__sim_auth_work_wake(sim, node);
    if (node->launcher != NULL) {
        mst__sim_auth_launch_wake(sim, node);
    }
    if (node->app == MST_SIM_AUTH_DONE) {
        return;
    }
    mst__sim_auth_member_wake(sim, node);
    if (!is_muster(sim)) {
        mst__sim_auth_keeper_wake(sim, node);
    }
    mst__sim_auth_node_arm(sim, node);
}

/* --- what it is told --- */

void mst__sim_auth_node_sealed(struct mst__sim_auth *sim,
                               struct mst__sim_auth_node *node,
                               const struct mst__job_round *round)
{
    mst__sim_auth_say(sim, node->index, "is rank %" PRIu32 " of %" PRIu32 " in round %" PRId64,
                      round->rank, round->world, round->round);
    node->app = MST_SIM_AUTH_HOLDING;
    node->react_us = INT64_MAX;
    if (node->launcher != NULL) {
        mst__sim_auth_launch_sealed(sim, node, round);
    } else {
        mst__sim_auth_work_begin(sim, node);
    }
    sim->stats.returns++;
}

void mst__sim_auth_node_react(struct mst__sim_auth *sim,
                              struct mst__sim_auth_node *node,
                              bool is_waiting)
{
    if (node->react_us == INT64_MAX) {
        node->react_us = sim->now_us + mst__sim_auth_below(sim, sim->plan.reaction_us_max);
        node->reacts_to_waiting = is_waiting;
    } else if (!is_waiting) {
        node->reacts_to_waiting = false;
    }
}

void mst__sim_auth_node_expelled(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    mst__sim_auth_say(sim, node->index, "has lost its place");
    node->bad_us = node->bad_us < sim->now_us ? sim->now_us : node->bad_us;
    mst__sim_auth_node_react(sim, node, false);
}

void mst__sim_auth_node_ended(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    mst__sim_auth_say(sim, node->index, "hears that all is closed");
    if (!sim->was_closed) {
        mst__sim_auth_break(sim, "closed", "node %" PRIu32 " is told that all is closed",
                            node->index);
    }
    node->app = MST_SIM_AUTH_ENDED;
    node->react_us = INT64_MAX;
    mst__sim_auth_member_leave(sim, node);
    mst__sim_auth_node_arm(sim, node);
}
