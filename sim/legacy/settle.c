/* sim/legacy/settle.c - what must come true once the faults have stopped.
 *
 *     FORMING --> RESTING --> WORKING --> AGAIN --> LEAVING --> over
 *                               |           |          |
 *                               +-- each of the three only in some runs
 *
 * Rules:
 * `formed`: some time after the faults, or after the last node that gave up, all nodes are in one
 *           round, and stay there.
 * `again`: a round of muster nodes alone forms anew within two seconds when they all enter again.
 * `left`: members notice within two seconds that one of them has left. */
#include <inttypes.h>

#include "sim/legacy/legacy.h"

#define SECOND_US INT64_C(1000000)
#define AGAIN_US (2 * SECOND_US)
/* Until all nodes, also the one that was stopped last, know of the faults. */
#define NEWS_US (MST_SIM_LEGACY_FREEZE_US_MAX + 2 * SECOND_US)
#define REST_US (16 * SECOND_US)
/* More than the TTL of the job's directory. */
#define WORK_US (5 * MST_LEGACY_TTL_JOB / 4 * SECOND_US)
#define LOOK_US 20000
#define LOOK_WORKING_US (10 * SECOND_US)

/* Whether all nodes are in the stored round, or know that it is closed. */
static bool settle_is_formed(const struct mst__sim_legacy *sim)
{
    const struct mst__legacy_doc *doc = mst__sim_v2_doc(sim);
    int64_t up = 0;
    int64_t holding = 0;
    int64_t ended = 0;
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        const struct mst__sim_legacy_node *node = &sim->nodes[i];
        up += !node->is_odd;
        ended += !node->is_odd && node->app == MST_SIM_LEGACY_ENDED;
        holding += !node->is_odd && node->app == MST_SIM_LEGACY_HOLDING && doc != NULL &&
                   doc->status == MST_LEGACY_FINAL && doc->version == node->version;
    }
    if (sim->is_closed) {
        return ended == up;
    }
    int64_t wanted = up < sim->plan.nodes_max ? up : sim->plan.nodes_max;
    return up < sim->plan.nodes_min ||
           (holding == wanted && doc != NULL && (int64_t)doc->participant_count == wanted);
}

static void settle_again(struct mst__sim_legacy *sim)
{
    mst__sim_legacy_say(sim, UINT32_MAX, "everybody enters again");
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        if (!sim->nodes[i].is_odd) {
            sim->nodes[i].wants_next = true;
            (void)mst__sim_legacy_interrupt(sim, &sim->nodes[i]); /* or at the next wait */
        }
    }
}

/* Whether the group has had its time to form. A node whose join timeout ends takes the round below
 * the minimum and so begins another last call. Most nodes began to join before the faults stopped,
 * and may do that one after the other; but not for ever. */
static bool settle_is_late(const struct mst__sim_legacy *sim)
{
    int64_t since_us = sim->gave_up_us > sim->calm_us ? sim->gave_up_us : sim->calm_us;
    int64_t last_us = sim->calm_us + 2 * sim->plan.join_us + sim->plan.bound_us;
    return sim->now_us - since_us > sim->plan.bound_us || sim->now_us > last_us;
}

/* One member leaves, and the others have to learn it from the document at once. */
static void settle_leave(struct mst__sim_legacy *sim)
{
    uint32_t count = sim->plan.nodes;
    sim->leaver = (uint32_t)mst__sim_legacy_below(sim, (int64_t)count);
    while (sim->nodes[sim->leaver].app != MST_SIM_LEGACY_HOLDING) {
        sim->leaver = (sim->leaver + 1) % count;
    }
    struct mst__sim_legacy_node *node = &sim->nodes[sim->leaver];
    mst__sim_legacy_say(sim, node->index, "has to leave");
    sim->leave_version = node->version;
    node->wants_leave = true;
    (void)mst__sim_legacy_interrupt(sim, node); /* or at the next wait */
}

/* Members that go on as if nobody had left. */
static uint32_t settle_deaf(const struct mst__sim_legacy *sim)
{
    uint32_t deaf = 0;
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        const struct mst__sim_legacy_node *node = &sim->nodes[i];
        deaf += !node->is_odd && node->app == MST_SIM_LEGACY_HOLDING &&
                node->version == sim->leave_version;
    }
    return deaf;
}

/* --- one after the other --- */

static bool settle_is_pure(const struct mst__sim_legacy *sim)
{
    return sim->plan.torch == 0 && !sim->is_closed;
}

/* Go on with the first of the remaining parts that this run has. */
static void settle_next(struct mst__sim_legacy *sim)
{
    uint32_t up = sim->plan.nodes - (sim->plan.has_odd ? 1 : 0);
    sim->since_us = sim->now_us;
    switch (sim->part) {
        case MST_SIM_LEGACY_FORMING:
            sim->part = MST_SIM_LEGACY_RESTING;
            return;
        case MST_SIM_LEGACY_RESTING:
            sim->part = MST_SIM_LEGACY_WORKING;
            if (sim->plan.is_long && !sim->is_closed) {
                mst__sim_legacy_say(sim, UINT32_MAX, "the job works for hours");
                return;
            }
            break;
        case MST_SIM_LEGACY_WORKING:
            sim->part = MST_SIM_LEGACY_AGAIN;
            if (settle_is_pure(sim) && up == (uint32_t)sim->plan.nodes_max) {
                settle_again(sim);
                return;
            }
            break;
        case MST_SIM_LEGACY_AGAIN:
            sim->part = MST_SIM_LEGACY_LEAVING;
            if (settle_is_pure(sim) && sim->plan.has_leaver && up >= sim->plan.nodes_min) {
                settle_leave(sim);
                return;
            }
            break;
        case MST_SIM_LEGACY_LEAVING:
            sim->is_over = true;
            return;
    }
    settle_next(sim);
}

static void settle_look_forming(struct mst__sim_legacy *sim, bool is_formed)
{
    if (is_formed && sim->now_us - sim->calm_us > NEWS_US) {
        sim->stats.settle_permille = 1000 * (sim->now_us - sim->calm_us) / sim->plan.bound_us;
        mst__sim_legacy_say(sim, UINT32_MAX, "the group has formed");
        settle_next(sim);
    } else if (settle_is_late(sim)) {
        mst__sim_legacy_break(sim, "formed", "not within %" PRId64 " s",
                              sim->plan.bound_us / SECOND_US);
    }
}

void mst__sim_legacy_settle(struct mst__sim_legacy *sim)
{
    bool is_formed = settle_is_formed(sim);
    int64_t lasts_us = sim->now_us - sim->since_us;
    bool is_done = false;
    switch (sim->part) {
        case MST_SIM_LEGACY_FORMING:
            settle_look_forming(sim, is_formed);
            break;
        case MST_SIM_LEGACY_RESTING:
        case MST_SIM_LEGACY_WORKING:
            if (!is_formed) {
                mst__sim_legacy_break(sim, "formed", "and then no longer");
            }
            is_done = lasts_us > (sim->part == MST_SIM_LEGACY_RESTING ? REST_US : WORK_US);
            break;
        case MST_SIM_LEGACY_AGAIN:
            is_done = lasts_us > 1000 && is_formed &&
                      sim->nodes[sim->plan.nodes - 1].began_us >= sim->since_us;
            if (!is_done && lasts_us > AGAIN_US) {
                mst__sim_legacy_break(sim, "again", "not within %" PRId64 " s",
                                      AGAIN_US / SECOND_US);
            }
            break;
        case MST_SIM_LEGACY_LEAVING:
            is_done = settle_deaf(sim) == 0;
            if (!is_done && lasts_us > AGAIN_US) {
                mst__sim_legacy_break(sim, "left", "n%" PRIu32 " has left, %" PRIu32 " go on",
                                      sim->leaver, settle_deaf(sim));
            }
            break;
    }
    if (is_done) {
        settle_next(sim);
    }
    struct mst__sim_legacy_event event = {.kind = MST_SIM_LEGACY_LOOK};
    mst__sim_legacy_after(sim, sim->part == MST_SIM_LEGACY_WORKING ? LOOK_WORKING_US : LOOK_US,
                          event);
}
