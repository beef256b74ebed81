/* sim/record/history.c - the history of a run as text: virtual time in seconds, node, event. */
#include <stdarg.h>

#include "base/assert.h"
#include "sim/record/record.h"

static void say_head(struct mst__sim_world *world, const char *who)
{
    (void)fprintf(world->history, "[%4lld.%06lld] %-6s ", /* an error cannot be reported here */
                  (long long)(world->now_us / MST_SIM_SECOND_US),
                  (long long)(world->now_us % MST_SIM_SECOND_US), who);
}

void mst__sim_say(struct mst__sim_world *world, const char *who, const char *format, ...)
{
    if (world->history == NULL) {
        return;
    }
    say_head(world, who);
    va_list arguments;
    va_start(arguments, format);
    (void)vfprintf(world->history, format, arguments); /* the same for all of these */
    va_end(arguments);
    (void)fputc('\n', world->history);
}

void mst__sim_name(const struct mst__sim_world *world, int64_t pid, char ret_name[24])
{
    const struct mst__sim_check *check = &world->check;
    if (pid <= 0 || (size_t)pid > check->lives_count) {
        (void)snprintf(ret_name, 24, "?%lld", (long long)pid); /* cut off at worst */
        return;
    }
    uint32_t node = check->lives[pid - 1].node;
    unsigned life = 0;
    for (int64_t i = 0; i < pid; i++) {
        life += check->lives[i].node == node ? 1 : 0;
    }
    if (life == 1) {
        (void)snprintf(ret_name, 24, "n%u", node); /* it fits */
    } else {
        (void)snprintf(ret_name, 24, "n%u.%u", node, life); /* the same */
    }
}

void mst__sim_say_node(struct mst__sim_world *world,
                       const struct mst__sim_node *node,
                       const char *format,
                       ...)
{
    if (world->history == NULL) {
        return;
    }
    char name[24];
    mst__sim_name(world, node->pid, name);
    say_head(world, name);
    va_list arguments;
    va_start(arguments, format);
    (void)vfprintf(world->history, format, arguments);
    va_end(arguments);
    (void)fputc('\n', world->history);
}

static void say_list(struct mst__sim_world *world,
                     const char *title,
                     const struct mst__peers *members,
                     bool has_ranks)
{
    const struct mst__state *state = &world->check.state;
    if (members->count == 0) {
        return;
    }
    (void)fputs(title, world->history);
    for (size_t i = 0; i < members->count; i++) {
        const struct mst__peer *member = &state->members[members->ids[i]];
        char name[24];
        mst__sim_name(world, member->node.pid, name);
        (void)fprintf(world->history, " %s", name);
        if (has_ranks) {
            (void)fprintf(world->history, "=%lld", (long long)member->rank);
        }
    }
}

void mst__sim_say_record(struct mst__sim_world *world, const struct mst__sim_conn *conn)
{
    if (world->history == NULL) {
        return;
    }
    const struct mst__state *state = &world->check.state;
    char name[24];
    mst__sim_name(world, conn->pid, name);
    say_head(world, "store");
    (void)fprintf(world->history, "%s writes round %lld %s%s%s:", name, (long long)state->round,
                  state->complete ? "complete" : "open", state->closed ? ", closed" : "",
                  state->has_deadline ? ", last call" : "");
    say_list(world, "", &state->participants, state->complete);
    say_list(world, "; waiting", &state->waiting, false);
    say_list(world, "; spare", &state->spares, false);
    (void)fputc('\n', world->history);
}

void mst__sim_say_plan(struct mst__sim_world *world)
{
    if (world->history == NULL) {
        return;
    }
    const struct mst__sim_plan *plan = &world->plan;
    const struct mst__settings *settings = &plan->settings[0];
    (void)fprintf(world->history,
                  "seed %llu: %zu nodes, %lld to %lld%s, last call %lld s, beat every %lld s, dead "
                  "after %lld s, join within %lld s, record D%d, wire %s\n",
                  (unsigned long long)plan->seed, plan->nodes_count, (long long)settings->nodes_min,
                  (long long)settings->nodes_max, plan->is_unequal ? " or so" : "",
                  (long long)(settings->last_call_us / MST_SIM_SECOND_US),
                  (long long)(settings->keep_alive_interval_us / MST_SIM_SECOND_US),
                  (long long)(mst__sim_plan_expiry_us(plan) / MST_SIM_SECOND_US),
                  (long long)(settings->join_us / MST_SIM_SECOND_US), (int)plan->dialect,
                  mst__dialect_name(plan->wire));
    (void)fprintf(
        world->history,
        "network: %lld us, slow %u ppm up to %lld ms, cut before %u ppm and after %u "
        "ppm, given up after %lld ms; clocks: skew %lld s, drift %lld ppm\n",
        (long long)plan->latency_us, plan->slow_ppm, (long long)(plan->slow_us / 1000),
        plan->cut_before_ppm, plan->cut_after_ppm, (long long)(plan->read_timeout_us / 1000),
        (long long)(plan->skew_us_max / MST_SIM_SECOND_US), (long long)plan->drift_ppm_max);
    (void)fprintf(world->history, "for %lld s: restarts every %lld ms, faults every %lld ms:",
                  (long long)(plan->active_us / MST_SIM_SECOND_US),
                  (long long)(plan->restart_us / 1000), (long long)(plan->fault_us / 1000));
    for (size_t i = 0; i < MST_SIM_FAULT_COUNT; i++) {
        if (plan->weights[i] > 0) {
            (void)fprintf(world->history, " %s %u", mst__sim_fault_name((enum mst__sim_fault)i),
                          plan->weights[i]);
        }
    }
    (void)fputs("\nnodes:", world->history);
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct mst__settings *own = &plan->settings[i];
        (void)fprintf(world->history, " n%u(%s%s%+lld ms", i, plan->is_exact[i] ? "peer " : "",
                      plan->can_watch[i] ? "watch " : "",
                      (long long)(world->nodes[i].skew_us / 1000));
        if (plan->is_unequal) {
            (void)fprintf(world->history, " %lld:%lld", (long long)own->nodes_min,
                          (long long)own->nodes_max);
        }
        (void)fputc(')', world->history);
    }
    (void)fputc('\n', world->history);
}
