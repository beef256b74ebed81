/* sim/authority/world.c - the world of the authority machine: time, events, history.
 *
 * Rules:
 * `seal`: a round has min to max members, each once, and a number above all before it.
 * `told`: a node hears what was sealed and nothing else.
 * `fixed`: in a job that does not grow, no round is larger than the first one.
 * `sticky`, `pinned`, `order`, `admission`: ranks and places are given by the rules of
 * core/authority_ranks.h.
 * `grow`: the round numbers of a node only grow.
 * `beside`: no round is sealed while a reachable node is in another one.
 * `alive`: no reachable node is lost.
 * `stale`: a node that claims a place has it in the current round.
 * `closed`: closing is final.
 * `finish`: a job has finished when all its members have finished, and a finished member is not
 * lost.
 * `budget`: failures begin no more rounds than allowed, and no job fails before that.
 * `restarts`: all members of a round hear the same number of restarts before it.
 * `cause`: a failure is blamed on the member that has reported it, a loss on one that is gone.
 * While another member at work has no connection, its loss is the cause.
 * `outcome`: all nodes hear the same outcome and the same first cause.
 * `fence`: only the holder of the oldest key writes.
 * `driver`: nothing is sent over a closed connection.
 * `rest`: some time after the faults, all nodes are in place or the job has ended, and that does
 * not change.
 * `endless`: a run ends. */
#include "sim/authority/authority.h"

#include <inttypes.h>
#include <stdarg.h>

#include "base/assert.h"
#include "base/mem.h"

#define SECOND_US MST_SIM_SECOND_US
#define EVENTS_MAX 20000000

/* --- small things --- */

int64_t mst__sim_auth_below(struct mst__sim_auth *sim, int64_t bound)
{
    return bound <= 0 ? 0 : (int64_t)mst__prng_below(&sim->prng, (uint64_t)bound);
}

bool mst__sim_auth_chance(struct mst__sim_auth *sim, uint32_t ppm)
{
    return ppm > 0 && mst__sim_auth_below(sim, MST_SIM_MILLION) < (int64_t)ppm;
}

void mst__sim_auth_say(struct mst__sim_auth *sim, uint32_t node, const char *format, ...)
{
    if (sim->history == NULL) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    (void)fprintf(sim->history, "[%12.6f] ", (double)sim->now_us / 1e6); /* for people */
    if (node == MST_SIM_AUTH_NOBODY) {
        (void)fprintf(sim->history, "%s ",
                      sim->plan.engine == MST_SIM_AUTH_MUSTER ? "server" : "etcd");
    } else {
        (void)fprintf(sim->history, "n%" PRIu32 ".%" PRIu32 " ", node, sim->nodes[node].life);
    }
    (void)vfprintf(sim->history, format, arguments);
    (void)fprintf(sim->history, "\n");
    va_end(arguments);
}

void mst__sim_auth_break(struct mst__sim_auth *sim, const char *rule, const char *format, ...)
{
    if (sim->rule != NULL) {
        return;
    }
    sim->rule = rule;
    sim->is_over = true;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(sim->broken, sizeof sim->broken, format, arguments); /* cut off if long */
    va_end(arguments);
}

void mst__sim_auth_at(struct mst__sim_auth *sim,
                      int64_t time_us,
                      enum mst__sim_auth_kind kind,
                      struct mst__sim_event event)
{
    event.time_us = time_us < sim->now_us ? sim->now_us : time_us;
    event.kind = kind;
    mst__sim_queue_push(&sim->queue, event);
}

int64_t mst__sim_auth_delay(struct mst__sim_auth *sim)
{
    const struct mst__sim_auth_plan *plan = &sim->plan;
    int64_t delay_us = plan->latency_us / 2 + mst__sim_auth_below(sim, plan->latency_us) + 1;
    if (!sim->is_calm && mst__sim_auth_chance(sim, plan->slow_ppm)) {
        delay_us += mst__sim_auth_below(sim, plan->slow_us);
    }
    return delay_us;
}

void *mst__sim_auth_copy(const void *data, size_t size)
{
    void *copy = mst__malloc(size);
    MST_ASSERT(copy != NULL);
    memcpy(copy, data, size);
    return copy;
}

struct mst__sim_auth_node *mst__sim_auth_node(struct mst__sim_auth *sim, uint32_t index)
{
    MST_ASSERT(index < sim->plan.nodes);
    return &sim->nodes[index];
}

/* --- the loop --- */

/* Until when the receiver of @event is frozen; 0 = it is not. */
static int64_t event_held_us(const struct mst__sim_auth *sim, const struct mst__sim_event *event)
{
    switch ((enum mst__sim_auth_kind)event->kind) {
        case MST_SIM_AUTH_TO_NODE:
        case MST_SIM_AUTH_HANGUP_NODE:
        case MST_SIM_AUTH_TIMER:
        case MST_SIM_AUTH_ANSWER:
        case MST_SIM_AUTH_WATCH:
            return sim->nodes[event->node].frozen_us;
        case MST_SIM_AUTH_TURN:
            return sim->server.frozen_us;
        default:
            return 0;
    }
}

static void run_timer(struct mst__sim_auth *sim, const struct mst__sim_event *event)
{
    struct mst__sim_auth_node *node = mst__sim_auth_node(sim, event->node);
    if (event->id == node->timer && event->pid == (int64_t)node->life) {
        mst__sim_auth_node_timer(sim, node);
    }
}

static void run_start(struct mst__sim_auth *sim, uint32_t index)
{
    struct mst__sim_auth_node *node = mst__sim_auth_node(sim, index);
    bool is_wanted = !(sim->is_calm && node->is_odd);
    node->is_coming = false;
    /* A launcher that has left comes back as another process. */
    bool is_new =
        node->app == MST_SIM_AUTH_DOWN || (node->app == MST_SIM_AUTH_AWAY && sim->plan.has_agents);
    if (is_new && is_wanted) {
        mst__sim_auth_node_start(sim, node);
    } else if (node->app == MST_SIM_AUTH_AWAY && is_wanted) {
        mst__sim_auth_node_next(sim, node);
    }
}

static void run_event(struct mst__sim_auth *sim, struct mst__sim_event *event)
{
    switch ((enum mst__sim_auth_kind)event->kind) {
        case MST_SIM_AUTH_TO_SERVER:
        case MST_SIM_AUTH_TO_NODE:
        case MST_SIM_AUTH_HANGUP_SERVER:
        case MST_SIM_AUTH_HANGUP_NODE:
            mst__sim_auth_link_arrive(sim, event);
            return;
        case MST_SIM_AUTH_TURN:
            if (event->request == sim->server.starts) {
                mst__sim_auth_server_turn(sim);
            }
            return;
        case MST_SIM_AUTH_DUE:
            if (event->id == sim->server.due) {
                mst__sim_auth_server_due(sim);
            }
            return;
        case MST_SIM_AUTH_TIMER:
            run_timer(sim, event);
            return;
        case MST_SIM_AUTH_START:
            run_start(sim, event->node);
            return;
        case MST_SIM_AUTH_FAULT:
            if (!sim->is_calm) {
                mst__sim_auth_strike(sim);
                mst__sim_auth_at(sim,
                                 sim->now_us + mst__sim_auth_below(sim, 2 * sim->plan.fault_us),
                                 MST_SIM_AUTH_FAULT, (struct mst__sim_event){.bytes = NULL});
            }
            return;
        case MST_SIM_AUTH_CALM:
            mst__sim_auth_calm(sim);
            return;
        case MST_SIM_AUTH_LOOK:
            mst__sim_auth_look(sim);
            return;
        case MST_SIM_AUTH_ASK:
            mst__sim_auth_store_ask(sim, event);
            return;
        case MST_SIM_AUTH_ANSWER:
        case MST_SIM_AUTH_WATCH:
            mst__sim_auth_keeper_heard(sim, event);
            return;
        case MST_SIM_AUTH_LEASE:
            if (event->id == sim->store.lease_timer) {
                mst__sim_auth_store_expire(sim);
            }
            return;
    }
}

static void run_begin(struct mst__sim_auth *sim, uint64_t seed)
{
    mst__sim_auth_draw(sim, seed);
    const struct mst__sim_auth_plan *plan = &sim->plan;
    sim->nodes = mst__calloc(plan->nodes, sizeof *sim->nodes);
    MST_ASSERT(sim->nodes != NULL);
    mst__buf_init(&sim->frame, MST_MIB(1));
    mst__buf_init(&sim->server.shared, MST_MIB(1));
    mst__buf_init(&sim->server.replies, MST_MIB(1));
    mst__sim_auth_journal_open(sim, seed);
    sim->server.epoch = 1000;
    mst__sim_auth_server_start(sim);
    for (uint32_t i = 0; i < plan->nodes; i++) {
        struct mst__sim_auth_node *node = &sim->nodes[i];
        node->index = i;
        node->is_odd = plan->has_odd && i == plan->nodes - 1;
        node->skew_us = mst__sim_auth_below(sim, 2 * plan->skew_us_max + 1) - plan->skew_us_max;
        mst__sim_auth_node_come(sim, node, mst__sim_auth_below(sim, plan->start_us_max));
    }
    mst__sim_auth_say(
        sim, MST_SIM_AUTH_NOBODY,
        "%" PRIu32 " nodes%s, min %" PRIu32 " max %" PRIu32 ", last call %.3f s, expiry %.3f s",
        plan->nodes, plan->has_odd ? ", one of them odd" : "", plan->nodes_min, plan->nodes_max,
        (double)plan->last_call_us / 1e6, (double)plan->expiry_us / 1e6);
    mst__sim_auth_at(sim, plan->fault_us, MST_SIM_AUTH_FAULT,
                     (struct mst__sim_event){.bytes = NULL});
    mst__sim_auth_at(sim, plan->active_us, MST_SIM_AUTH_CALM,
                     (struct mst__sim_event){.bytes = NULL});
}

static bool run(struct mst__sim_auth *sim, uint64_t seed, bool has_agents, FILE *history)
{
    memset(sim, 0, sizeof *sim);
    sim->history = history;
    sim->plan.has_agents = has_agents;
    mst__prng_init(&sim->prng, seed);
    run_begin(sim, seed);
    struct mst__sim_event event;
    while (!sim->is_over && mst__sim_queue_pop(&sim->queue, &event)) {
        sim->now_us = event.time_us;
        if (++sim->stats.events > EVENTS_MAX) {
            mst__sim_auth_break(sim, "endless", "%d events and no end", EVENTS_MAX);
        }
        int64_t held_us = event_held_us(sim, &event);
        if (held_us > sim->now_us) {
            event.time_us = held_us;
            mst__sim_queue_push(&sim->queue, event);
            continue;
        }
        run_event(sim, &event);
        mst__free(event.bytes);
    }
    mst__sim_auth_journal_end(sim);
    sim->stats.virtual_us = sim->now_us;
    if (sim->rule != NULL) {
        mst__sim_auth_say(sim, MST_SIM_AUTH_NOBODY, "rule %s is broken: %s", sim->rule,
                          sim->broken);
    }
    return sim->rule == NULL;
}

bool mst__sim_auth_run(struct mst__sim_auth *ret_sim, uint64_t seed, FILE *history)
{
    return run(ret_sim, seed, false, history);
}

bool mst__sim_auth_run_agents(struct mst__sim_auth *ret_sim, uint64_t seed, FILE *history)
{
    return run(ret_sim, seed, true, history);
}

void mst__sim_auth_close(struct mst__sim_auth *sim)
{
    sim->history = NULL;
    mst__sim_queue_close(&sim->queue);
    for (size_t i = 0; i < sim->links_count; i++) {
        mst__free(sim->links[i]);
    }
    mst__free(sim->links);
    for (size_t i = 0; i < sim->seals_count; i++) {
        mst__free(sim->seals[i].seats);
    }
    mst__free(sim->seals);
    mst__free(sim->ends);
    mst__sim_auth_work_forget(sim);
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        mst__sim_auth_lead_end(sim, &sim->nodes[i]);
        mst__free(sim->nodes[i].round);
        mst__sim_auth_launch_free(&sim->nodes[i]);
    }
    mst__free(sim->store.owners);
    mst__free(sim->nodes);
    if (sim->server.has_job) {
        mst__authority_close(&sim->server.authority);
    }
    for (size_t i = 0; i < sim->server.inbox_count; i++) {
        mst__free(sim->server.inbox[i].bytes);
    }
    mst__free(sim->server.inbox);
    mst__free(sim->server.roster.nodes);
    mst__buf_close(&sim->server.shared);
    mst__buf_close(&sim->server.replies);
    mst__buf_close(&sim->frame);
    mst__sim_auth_journal_close(sim);
}
