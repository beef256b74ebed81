/* sim/record/settle.c - the rules that must hold some time after the faults have stopped: dead
 * nodes are removed, a round is completed, and the group comes to rest with all nodes that fit.
 *
 * With unequal settings, or with peers whose clocks differ by much (compared with the last call,
 * or with their expiry), nothing is guaranteed. */
#include "sim/record/record.h"

/* The bounds, as ids of MST_SIM_END. */
enum { BOUND_DEAD, BOUND_ROUND, BOUND_REST, BOUND_QUIET };

static bool settle_is_promised(const struct mst__sim_plan *plan)
{
    bool peers_err =
        plan->exact_count > 0 &&
        (4 * plan->skew_us_max > plan->settings[0].last_call_us ||
         plan->skew_us_max > 2 * MST_SIM_SECOND_US || plan->weights[MST_SIM_FAULT_STEP] > 0 ||
         2 * (plan->skew_us_max + plan->settings[0].keep_alive_interval_us) >
             mst__sim_plan_expiry_us(plan));
    return !plan->is_unequal && !peers_err;
}

static size_t settle_up_count(const struct mst__sim_world *world)
{
    size_t count = 0;
    for (size_t i = 0; i < world->plan.nodes_count; i++) {
        enum mst__sim_app app = world->nodes[i].app;
        count += app != MST_SIM_DOWN && app != MST_SIM_ENDED ? 1 : 0;
    }
    return count;
}

/* The pid of a dead node in the record, 0 = none. */
static int64_t settle_dead(struct mst__sim_world *world)
{
    const struct mst__state *state = &world->check.state;
    for (size_t i = 0; world->check.has_record && i < state->heartbeats.count; i++) {
        int64_t pid = state->members[state->heartbeats.ids[i]].node.pid;
        if (mst__sim_check_life(world, pid)->is_over) {
            return pid;
        }
    }
    return 0;
}

/* Whether the round has no member of ours. A peer may complete a round with a dead node in it,
 * report the world without that node, and has no reason to enter another round. */
static bool settle_is_peers_only(struct mst__sim_world *world)
{
    const struct mst__state *state = &world->check.state;
    for (size_t i = 0; i < state->participants.count; i++) {
        int64_t pid = state->members[state->participants.ids[i]].node.pid;
        if (!world->plan.is_exact[mst__sim_check_life(world, pid)->node]) {
            return false;
        }
    }
    return true;
}

/* Why the group is not at rest; NULL = it is. */
static const char *settle_unrest(struct mst__sim_world *world)
{
    const struct mst__state *state = &world->check.state;
    const struct mst__settings *settings = &world->plan.settings[0];
    int64_t up = (int64_t)settle_up_count(world);
    if (up == 0) {
        return NULL;
    }
    if (!world->check.has_record) {
        return "there is no record";
    }
    if (state->closed) {
        return "not everybody knows that it is closed";
    }
    if (settle_dead(world) != 0) {
        return "a dead node is in the record";
    }
    if (up < settings->nodes_min) {
        return NULL;
    }
    int64_t members = up < settings->nodes_max ? up : settings->nodes_max;
    if (!state->complete || (int64_t)state->participants.count != members) {
        return "the round is not complete, or not with everybody";
    }
    if (members < settings->nodes_max && state->waiting.count > 0) {
        return "somebody waits";
    }
    const struct mst__sim_completion *completion =
        mst__sim_check_find(world, world->store.epoch, state->round);
    bool is_whole = completion != NULL && completion->count == state->participants.count;
    if (!is_whole && !settle_is_peers_only(world)) {
        return "the round has lost a participant";
    }
    for (size_t i = 0; i < state->participants.count; i++) {
        int64_t pid = state->members[state->participants.ids[i]].node.pid;
        const struct mst__sim_node *node = &world->nodes[mst__sim_check_life(world, pid)->node];
        if (node->app != MST_SIM_HOLDING || node->round != state->round ||
            node->round_epoch != world->store.epoch) {
            return "a participant was not told the round";
        }
    }
    return NULL;
}

/* The time to complete a round, if there are min nodes. */
static int64_t settle_round_us(const struct mst__sim_plan *plan)
{
    return mst__sim_plan_expiry_us(plan) + plan->settings[0].last_call_us +
           mst__sim_plan_slack_us(plan);
}

void mst__sim_settle_look(struct mst__sim_world *world)
{
    if (!world->is_calm || world->settled_us != 0 || !settle_is_promised(&world->plan) ||
        settle_unrest(world) != NULL) {
        return;
    }
    world->settled_us = world->now_us;
    int64_t bound_us = settle_round_us(&world->plan);
    world->stats.settle_permille = (world->now_us - world->calm_us) * 1000 / (2 * bound_us);
    mst__sim_say(world, "all", "at rest");
    mst__sim_after(world, world->plan.quiet_us,
                   (struct mst__sim_event){.kind = MST_SIM_END, .id = BOUND_QUIET});
}

void mst__sim_settle_calm(struct mst__sim_world *world)
{
    const struct mst__sim_plan *plan = &world->plan;
    int64_t expiry_us = mst__sim_plan_expiry_us(plan);
    int64_t slack_us = mst__sim_plan_slack_us(plan);
    int64_t round_us = settle_round_us(plan);
    mst__sim_after(world, expiry_us + slack_us,
                   (struct mst__sim_event){.kind = MST_SIM_END, .id = BOUND_DEAD});
    mst__sim_after(world, round_us,
                   (struct mst__sim_event){.kind = MST_SIM_END, .id = BOUND_ROUND});
    mst__sim_after(world, 2 * round_us,
                   (struct mst__sim_event){.kind = MST_SIM_END, .id = BOUND_REST});
    mst__sim_settle_look(world);
}

static void settle_round(struct mst__sim_world *world)
{
    const struct mst__sim_check *check = &world->check;
    bool has_enough = (int64_t)settle_up_count(world) >= world->plan.settings[0].nodes_min;
    bool is_new = check->completions_count > 0 &&
                  check->completions[check->completions_count - 1].time_us >= world->calm_us;
    if (has_enough && !is_new && !check->state.closed && settle_unrest(world) != NULL) {
        mst__sim_break(world, "no-round", "%zu nodes are up, %lld ms have passed and no round",
                       settle_up_count(world),
                       (long long)((world->now_us - world->calm_us) / 1000));
    }
}

/* A node whose join has timed out leaves and comes again, and the others begin anew: the bounds
 * hold from then on. That applies to joins from before the calm, at most one per node; otherwise
 * a group that never meets would not be found. */
static bool settle_begins_anew(struct mst__sim_world *world, uint64_t bound)
{
    if (world->gave_up_us <= world->calm_us || (bound != BOUND_ROUND && bound != BOUND_REST)) {
        return false;
    }
    int64_t later_us = world->gave_up_us - world->calm_us;
    int64_t due_us = later_us + settle_round_us(&world->plan);
    if (bound == BOUND_REST) {
        due_us += settle_round_us(&world->plan);
    }
    int64_t passed_us = world->now_us - world->calm_us;
    if (passed_us >= due_us) {
        return false;
    }
    mst__sim_after(world, due_us - passed_us,
                   (struct mst__sim_event){.kind = MST_SIM_END, .id = bound});
    return true;
}

void mst__sim_settle_bound(struct mst__sim_world *world, uint64_t bound)
{
    bool is_promised = settle_is_promised(&world->plan);
    if (bound == BOUND_QUIET || !is_promised) {
        world->is_over = bound == BOUND_QUIET || bound == BOUND_ROUND;
        const char *why = is_promised ? settle_unrest(world) : NULL;
        if (why != NULL) {
            mst__sim_break(world, "restless", "at rest and then not: %s", why);
        }
        return;
    }
    if (world->settled_us != 0 || settle_begins_anew(world, bound)) {
        return;
    }
    if (bound == BOUND_DEAD && settle_up_count(world) > 0 && settle_dead(world) != 0) {
        char name[24];
        mst__sim_name(world, settle_dead(world), name);
        mst__sim_break(world, "dead", "%s is dead and still in the record", name);
    } else if (bound == BOUND_ROUND) {
        settle_round(world);
    } else if (bound == BOUND_REST) {
        mst__sim_break(world, "unrest", "%s", settle_unrest(world));
    }
}
