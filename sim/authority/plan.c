/* sim/authority/plan.c - the plan of a run of the authority machine, from a seed. Each kind of
 * fault is on in some seeds and off in others. */
#include "base/assert.h"
#include "sim/authority/authority.h"

#define SECOND_US MST_SIM_SECOND_US

static int64_t draw_range(struct mst__sim_auth *sim, int64_t low, int64_t high)
{
    MST_ASSERT(low <= high);
    return low + mst__sim_auth_below(sim, high - low + 1);
}

static bool draw_percent(struct mst__sim_auth *sim, int64_t percent)
{
    return mst__sim_auth_below(sim, 100) < percent;
}

static void draw_nodes(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_plan *plan = &sim->plan;
    plan->engine = draw_percent(sim, 33) ? MST_SIM_AUTH_V3 : MST_SIM_AUTH_MUSTER;
    int64_t kind = mst__sim_auth_below(sim, 500);
    int64_t count = draw_range(sim, 2, 9);
    if (kind < 2 && plan->engine == MST_SIM_AUTH_MUSTER) {
        count = draw_range(sim, 500, MST_SIM_AUTH_NODES_MAX);
    } else if (kind < 100) {
        count = draw_range(sim, 10, 40);
    }
    plan->nodes = (uint32_t)count;
    int64_t low = draw_percent(sim, 50) ? draw_range(sim, 1, count) : (count + 1) / 2;
    int64_t high = draw_percent(sim, 30) ? low : draw_range(sim, low, count + 1);
    plan->nodes_min = (uint32_t)low;
    plan->nodes_max = (uint32_t)high;
    plan->last_call_us = draw_percent(sim, 30) ? 0 : draw_range(sim, 1, 8 * SECOND_US);
    bool is_small = count <= MST_SIM_AUTH_V3_NODES_MAX && plan->engine == MST_SIM_AUTH_MUSTER;
    plan->has_odd = is_small && draw_percent(sim, 8);
    plan->has_racks = draw_percent(sim, 20);
    plan->has_pinned = draw_percent(sim, 20);
}

static void draw_engine(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_plan *plan = &sim->plan;
    bool is_large = plan->nodes > 100;
    plan->beat_us = is_large ? 5 * SECOND_US : draw_range(sim, SECOND_US / 2, 3 * SECOND_US);
    plan->expiry_us = 3 * plan->beat_us;
    plan->grace_us = draw_range(sim, SECOND_US / 5, 3 * SECOND_US);
    plan->reclaim_us = draw_range(sim, SECOND_US, 10 * SECOND_US);
    plan->forget_us = draw_percent(sim, 50) ? 600 * SECOND_US : draw_range(sim, 1, 5) * SECOND_US;
    plan->latency_us =
        draw_percent(sim, 50) ? draw_range(sim, 20, 2000) : draw_range(sim, 2000, 100000);
    plan->slow_ppm = draw_percent(sim, 50) ? (uint32_t)draw_range(sim, 1, 50000) : 0;
    plan->slow_us = plan->expiry_us / 4;
    plan->twice_ppm = draw_percent(sim, 40) ? (uint32_t)draw_range(sim, 10000, 300000) : 0;
    plan->skew_us_max = draw_percent(sim, 50) ? 3600 * SECOND_US : 0;
    plan->steps_back = draw_percent(sim, 10);
    plan->start_us_max =
        draw_percent(sim, 50) ? SECOND_US / 10 : draw_range(sim, 1, 10) * SECOND_US;
    plan->reaction_us_max = draw_range(sim, 1, draw_percent(sim, 50) ? SECOND_US : 50000);
    plan->join_us = draw_percent(sim, 80) ? 600 * SECOND_US : draw_range(sim, 5, 30) * SECOND_US;
    plan->outage_us_max = draw_range(sim, SECOND_US, 4 * plan->expiry_us);
    plan->active_us = (is_large ? 15 : draw_range(sim, 20, 90)) * SECOND_US;
    plan->fault_us = draw_range(sim, SECOND_US / 4, is_large ? 3 * SECOND_US : 8 * SECOND_US);
}

static void draw_faults(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_plan *plan = &sim->plan;
    for (size_t i = 0; i < MST_SIM_AUTH_FAULTS; i++) {
        plan->weights[i] = draw_percent(sim, 50) ? (uint32_t)draw_range(sim, 1, 100) : 0;
    }
    plan->weights[MST_SIM_AUTH_FAULT_SHUT] = draw_percent(sim, 5) ? 5 : 0;
    plan->weights[MST_SIM_AUTH_FAULT_EXODUS] = draw_percent(sim, 15) ? 10 : 0;
    plan->weights[MST_SIM_AUTH_FAULT_BLACKOUT] = draw_percent(sim, 15) ? 10 : 0;
    plan->weights[MST_SIM_AUTH_FAULT_REVIVE] = 50;
}

static void draw_work(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_plan *plan = &sim->plan;
    plan->has_work = draw_percent(sim, 50);
    plan->is_old = plan->has_work && plan->engine == MST_SIM_AUTH_MUSTER && draw_percent(sim, 4);
    plan->work_us_max = draw_range(sim, 1, draw_percent(sim, 50) ? 60 : 10) * SECOND_US;
    plan->fail_ppm = draw_percent(sim, 70) ? (uint32_t)draw_range(sim, 1, 500000) : 0;
    plan->end_ppm = draw_percent(sim, 70) ? (uint32_t)draw_range(sim, 1, MST_SIM_MILLION) : 0;
    if (plan->is_old) {
        plan->end_ppm = 0; /* with version 1, a node that ends is lost */
    }
    plan->budget.is_limited = plan->has_work && draw_percent(sim, 70);
    if (plan->budget.is_limited) {
        plan->budget.restarts_max = (uint32_t)draw_range(sim, 0, 6);
        plan->budget.window_us = draw_percent(sim, 50) ? draw_range(sim, 1, 20) * SECOND_US : 0;
    }
}

/* Launchers always have work. */
static void draw_agents(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_plan *plan = &sim->plan;
    plan->has_work = true;
    plan->is_old = false;
    plan->has_odd = false;
    plan->fail_ppm = draw_percent(sim, 70) ? (uint32_t)draw_range(sim, 1, 300000) : 0;
    plan->stop_us_max = draw_range(sim, 1, SECOND_US);
    plan->stop_grace_us = draw_range(sim, SECOND_US / 10, 3 * SECOND_US);
    plan->hang_us = draw_percent(sim, 30) ? plan->work_us_max + SECOND_US : INT64_MAX;
    plan->notice_us = draw_percent(sim, 30) ? draw_range(sim, 1, 2 * SECOND_US) : 0;
    plan->pause_us = draw_percent(sim, 30) ? draw_range(sim, 1, SECOND_US) : 0;
    plan->cut_us = draw_percent(sim, 50) ? draw_range(sim, 1, 30) * SECOND_US : 600 * SECOND_US;
    plan->quick_max = draw_percent(sim, 20) ? (uint32_t)draw_range(sim, 2, 5) : 0;
    plan->gives_way = draw_percent(sim, 70);
    int64_t wave_us = plan->stop_grace_us + plan->notice_us + 4 * plan->pause_us + SECOND_US;
    plan->bound_us += 4 * wave_us;
}

void mst__sim_auth_draw(struct mst__sim_auth *sim, uint64_t seed)
{
    struct mst__sim_auth_plan *plan = &sim->plan;
    draw_nodes(sim);
    draw_engine(sim);
    draw_faults(sim);
    plan->has_jumps = plan->engine == MST_SIM_AUTH_MUSTER && draw_percent(sim, 30);
    /* The time to notice lost nodes or to release places, a last call, and the same again for a
     * round that was sealed meanwhile. */
    int64_t wave_us = 3 * plan->reaction_us_max + 20 * plan->latency_us;
    plan->bound_us = 2 * plan->expiry_us + plan->grace_us + plan->reclaim_us +
                     2 * plan->last_call_us + 3 * wave_us + 8 * SECOND_US;
    draw_work(sim);
    if (plan->has_agents) {
        draw_agents(sim);
    }
    if (plan->has_work) {
        /* Programs that end make rounds end, up to once per node. */
        plan->bound_us += 4 * (plan->bound_us + plan->work_us_max);
    }
    plan->is_fixed = !plan->is_old && draw_percent(sim, 20);
    /* Not drawn, so that it changes nothing else in a seed. */
    plan->has_patient = plan->engine == MST_SIM_AUTH_MUSTER && !plan->has_agents &&
                        plan->nodes <= MST_SIM_AUTH_V3_NODES_MAX && seed % 3 == 0;
}
