/* sim/record/plan.c - the plan of a run, from a seed: nodes, settings, faults.
 *
 * Each kind of fault is on in some seeds and off in others, and its rate is drawn, so that rare
 * combinations occur as well as pure cases. */
#include "base/assert.h"
#include "core/saturate.h"
#include "sim/record/record.h"

#define SECOND MST_SIM_SECOND_US
/* The assumed time of a write to a disk. */
#define WRITE_US 3000

static int64_t draw_below(struct mst__prng *prng, int64_t bound)
{
    return bound <= 0 ? 0 : (int64_t)mst__prng_below(prng, (uint64_t)bound);
}

/* From @low to @high, both included. */
static int64_t draw_range(struct mst__prng *prng, int64_t low, int64_t high)
{
    MST_ASSERT(low <= high);
    return low + draw_below(prng, high - low + 1);
}

static bool draw_percent(struct mst__prng *prng, int64_t percent)
{
    return draw_below(prng, 100) < percent;
}

static int64_t draw_of(struct mst__prng *prng, const int64_t *values, size_t count)
{
    return values[draw_below(prng, (int64_t)count)];
}

#define DRAW_OF(prng, ...)                        \
    draw_of(prng, (const int64_t[]){__VA_ARGS__}, \
            sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static int64_t plan_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t mst__sim_plan_expiry_us(const struct mst__sim_plan *plan)
{
    return mst__expire_after_us(&plan->settings[0]);
}

int64_t mst__sim_plan_slack_us(const struct mst__sim_plan *plan)
{
    int64_t slack_us = plan->reaction_us_max + 2 * plan->read_timeout_us + plan->slow_us +
                       3 * plan->settings[0].keep_alive_interval_us + 3 * SECOND;
    /* The peers poll once a second, and send a heartbeat every second interval at worst. */
    return plan->exact_count > 0 ? slack_us + 10 * SECOND : slack_us;
}

static void draw_nodes(struct mst__sim_plan *plan, struct mst__prng *prng)
{
    int64_t kind = draw_below(prng, 100);
    int64_t count = draw_range(prng, 2, 6);
    if (kind == 99) {
        count = draw_range(prng, 13, MST_SIM_NODES_MAX);
    } else if (kind >= 75) {
        count = draw_range(prng, 5, 12);
    }
    plan->nodes_count = (size_t)count;
    plan->is_one_address = draw_percent(prng, 10);
    int64_t watching = DRAW_OF(prng, 0, 100, 50);
    bool has_exact = count <= 12 && draw_percent(prng, 20);
    for (size_t i = 0; i < plan->nodes_count; i++) {
        /* The last one is always ours. */
        plan->is_exact[i] = has_exact && i + 1 < plan->nodes_count && draw_percent(prng, 50);
        plan->exact_count += plan->is_exact[i] ? 1 : 0;
        plan->can_watch[i] = !plan->is_exact[i] && draw_percent(prng, watching);
    }
    plan->write_us = draw_percent(prng, 30) ? WRITE_US : 0;
    plan->dialect = MST_RECORD_D4;
    if (draw_percent(prng, 30)) {
        plan->dialect = (enum mst__record_dialect)draw_range(prng, MST_RECORD_D1, MST_RECORD_D3);
    }
    plan->wire = draw_percent(prng, 50) ? MST_DIALECT_C : MST_DIALECT_A;
}

static void draw_limits(struct mst__sim_plan *plan,
                        struct mst__prng *prng,
                        struct mst__settings *settings)
{
    int64_t count = (int64_t)plan->nodes_count;
    int64_t kind = draw_below(prng, 100);
    settings->nodes_max = count;
    if (kind < 20) {
        settings->nodes_max = draw_range(prng, count > 4 ? count - 3 : 1, count - 1);
    } else if (kind < 35) {
        settings->nodes_max = count + draw_range(prng, 1, 4);
    }
    settings->nodes_min = draw_range(prng, 1, plan_least(count, settings->nodes_max));
    if (kind >= 75) {
        settings->nodes_min = settings->nodes_max;
    }
}

static void draw_settings(struct mst__sim_plan *plan, struct mst__prng *prng)
{
    struct mst__settings settings = {
        .close_us = 30 * SECOND,
        .heartbeat_us = 5 * SECOND,
        .clock_skew_us = 60 * SECOND,
        .keep_alive_interval_us = DRAW_OF(prng, 1, 2, 5) * SECOND,
        .keep_alive_max_attempt = draw_range(prng, 2, 3),
        .last_call_us = DRAW_OF(prng, 1, 1, 1, 2, 2, 2, 5, 30) * SECOND,
    };
    draw_limits(plan, prng, &settings);
    if (plan->exact_count > 0) {
        /* The peers look once a second, at a record that may be a second old. */
        settings.last_call_us = DRAW_OF(prng, 3, 3, 5, 30) * SECOND;
        settings.keep_alive_max_attempt = 3;
    }
    if (plan->exact_count > 1) {
        /* Otherwise peers would expel each other: they send a heartbeat every second interval at
         * worst. */
        settings.keep_alive_interval_us = 5 * SECOND;
    }
    settings.join_us = 600 * SECOND;
    if (draw_percent(prng, 20)) {
        settings.join_us =
            3 * (mst__expire_after_us(&settings) + settings.last_call_us) + 20 * SECOND;
    }
    plan->is_unequal = draw_percent(prng, 10);
    for (size_t i = 0; i < plan->nodes_count; i++) {
        struct mst__settings *own = &plan->settings[i];
        *own = settings;
        if (plan->is_unequal) {
            own->nodes_min += draw_below(prng, 2);
            /* Peers spin without a pause if the group is larger than their maximum. */
            own->nodes_max += plan->is_exact[i] ? 1 : draw_below(prng, 2);
            own->nodes_min = plan_least(own->nodes_min, own->nodes_max);
            own->last_call_us += draw_below(prng, 2 * SECOND);
        }
    }
}

static void draw_network(struct mst__sim_plan *plan, struct mst__prng *prng)
{
    /* All nodes must be able to send a heartbeat, one after the other, in a fraction of the
     * interval. */
    int64_t slowest_us =
        plan->settings[0].keep_alive_interval_us / (25 * (int64_t)plan->nodes_count);
    plan->latency_us = plan_least(DRAW_OF(prng, 100, 500, 2000, 10000), slowest_us);
    plan->read_timeout_us = mst__sim_plan_expiry_us(plan) / DRAW_OF(prng, 1, 2, 4);
    if (draw_percent(prng, 40)) {
        plan->slow_ppm = (uint32_t)DRAW_OF(prng, 500, 5000, 30000);
        plan->slow_us = plan->read_timeout_us * DRAW_OF(prng, 1, 1, 3) / 2;
    }
    if (draw_percent(prng, 35)) {
        plan->cut_before_ppm = (uint32_t)DRAW_OF(prng, 500, 5000, 50000);
    }
    if (draw_percent(prng, 35)) {
        plan->cut_after_ppm = (uint32_t)DRAW_OF(prng, 500, 5000, 50000);
    }
    if (draw_percent(prng, 25)) {
        plan->twice_ppm = 10000;
    }
    plan->looks = draw_percent(prng, 50);
}

static void draw_clocks(struct mst__sim_plan *plan, struct mst__prng *prng)
{
    if (draw_percent(prng, 60)) {
        plan->skew_us_max = DRAW_OF(prng, 1, 2, 20, 900) * SECOND;
    }
    if (draw_percent(prng, 40)) {
        plan->drift_ppm_max = DRAW_OF(prng, 100, 1000, 10000);
    }
    plan->step_us_max = DRAW_OF(prng, 2, 20, 900) * SECOND;
}

static void draw_faults(struct mst__sim_plan *plan, struct mst__prng *prng)
{
    static const uint8_t chances[MST_SIM_FAULT_COUNT] = {
        [MST_SIM_FAULT_CRASH] = 50,  [MST_SIM_FAULT_REVIVE] = 80,    [MST_SIM_FAULT_BLACKOUT] = 10,
        [MST_SIM_FAULT_FREEZE] = 25, [MST_SIM_FAULT_PARTITION] = 35, [MST_SIM_FAULT_LEAVE] = 35,
        [MST_SIM_FAULT_CANCEL] = 25, [MST_SIM_FAULT_STEP] = 25,      [MST_SIM_FAULT_WIPE] = 12,
        [MST_SIM_FAULT_CLOSE] = 15,
    };
    static const uint8_t weights[MST_SIM_FAULT_COUNT] = {
        [MST_SIM_FAULT_CRASH] = 6,  [MST_SIM_FAULT_REVIVE] = 12,   [MST_SIM_FAULT_BLACKOUT] = 3,
        [MST_SIM_FAULT_FREEZE] = 6, [MST_SIM_FAULT_PARTITION] = 5, [MST_SIM_FAULT_LEAVE] = 8,
        [MST_SIM_FAULT_CANCEL] = 8, [MST_SIM_FAULT_STEP] = 5,      [MST_SIM_FAULT_WIPE] = 4,
        [MST_SIM_FAULT_CLOSE] = 2,
    };
    for (size_t i = 0; i < MST_SIM_FAULT_COUNT; i++) {
        bool is_on = draw_percent(prng, chances[i]);
        plan->weights[i] = is_on ? (uint32_t)draw_range(prng, 1, weights[i]) : 0;
    }
    if (plan->exact_count > 0) {
        /* Peers with a token restore a lost record, so no rule holds then. */
        plan->weights[MST_SIM_FAULT_WIPE] = 0;
    }
    int64_t unit_us = mst__sim_plan_expiry_us(plan) + plan->settings[0].last_call_us;
    plan->partition_us_max = 2 * mst__sim_plan_expiry_us(plan);
    plan->active_us = plan_least(draw_range(prng, 2, 6) * unit_us, 90 * SECOND);
    plan->fault_us = plan->active_us / draw_range(prng, 5, 25);
    if (draw_percent(prng, 85)) {
        plan->restart_us = DRAW_OF(prng, 50, 300, 2000, 10000) * 1000;
    }
    if (draw_percent(prng, 20)) {
        plan->hasty_ppm = (uint32_t)DRAW_OF(prng, 20000, 200000, 500000);
    }
    plan->start_us_max = draw_percent(prng, 30) ? plan->active_us / 2 : 300000;
    plan->reaction_us_max = DRAW_OF(prng, 1000, 100000, 2 * SECOND);
    if (draw_percent(prng, 12)) {
        plan->quiet_us = 3 * mst__sim_plan_expiry_us(plan) + 10 * SECOND;
    }
}

void mst__sim_plan_draw(struct mst__sim_plan *plan, uint64_t seed)
{
    struct mst__prng prng;
    mst__prng_init(&prng, seed);
    *plan = (struct mst__sim_plan){.seed = seed};
    draw_nodes(plan, &prng);
    draw_settings(plan, &prng);
    draw_network(plan, &prng);
    draw_clocks(plan, &prng);
    draw_faults(plan, &prng);
}
