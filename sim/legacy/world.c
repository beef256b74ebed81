/* sim/legacy/world.c - the world of the legacy machine: time, the network, nodes and their
 * programs, faults, rules.
 *
 * The rules are in check.c, what must come true after the faults in settle.c; one more is here:
 * `busy`: no node sends requests in a loop. */
#include "sim/legacy/legacy.h"

#include <inttypes.h>
#include <stdarg.h>

#include "base/assert.h"
#include "base/mem.h"

#define SECOND_US INT64_C(1000000)
#define CALL_US (3 * SECOND_US) /* the timeout of a node */
#define BUSY_MAX 200            /* requests of one node in a second: more means a loop */

/* --- small things --- */

int64_t mst__sim_legacy_below(struct mst__sim_legacy *sim, int64_t bound)
{
    return bound <= 0 ? 0 : (int64_t)mst__prng_below(&sim->prng, (uint64_t)bound);
}

static bool sim_chance(struct mst__sim_legacy *sim, uint32_t ppm)
{
    return mst__sim_legacy_below(sim, 1000000) < (int64_t)ppm;
}

void mst__sim_legacy_say(struct mst__sim_legacy *sim, uint32_t node, const char *format, ...)
{
    if (sim->history == NULL) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    (void)fprintf(sim->history, "[%12.6f] ", (double)sim->now_us / 1e6);
    if (node == UINT32_MAX) {
        (void)fprintf(sim->history, "etcd ");
    } else {
        (void)fprintf(sim->history, "%c%" PRIu32 ".%" PRIu32 " ",
                      sim->nodes[node].is_torch ? 't' : 'm', node, sim->nodes[node].life);
    }
    (void)vfprintf(sim->history, format, arguments);
    (void)fprintf(sim->history, "\n");
    va_end(arguments);
}

void mst__sim_legacy_break(struct mst__sim_legacy *sim, const char *rule, const char *format, ...)
{
    if (sim->rule != NULL) {
        return;
    }
    sim->rule = rule;
    sim->is_over = true;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(sim->broken, sizeof sim->broken, format, arguments);
    va_end(arguments);
}

static bool event_is_before(const struct mst__sim_legacy_event *a,
                            const struct mst__sim_legacy_event *b)
{
    return a->time_us != b->time_us ? a->time_us < b->time_us : a->order < b->order;
}

void mst__sim_legacy_after(struct mst__sim_legacy *sim,
                           int64_t delay_us,
                           struct mst__sim_legacy_event event)
{
    if (sim->event_count == sim->event_capacity) {
        sim->event_capacity = sim->event_capacity == 0 ? 256 : 2 * sim->event_capacity;
        sim->events = mst__realloc(sim->events, sim->event_capacity * sizeof *sim->events);
        MST_ASSERT(sim->events != NULL);
    }
    event.time_us = sim->now_us + (delay_us < 0 ? 0 : delay_us);
    event.order = sim->order++;
    size_t at = sim->event_count++;
    while (at > 0 && event_is_before(&event, &sim->events[(at - 1) / 2])) {
        sim->events[at] = sim->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->events[at] = event;
}

static struct mst__sim_legacy_event event_pop(struct mst__sim_legacy *sim)
{
    struct mst__sim_legacy_event first = sim->events[0];
    struct mst__sim_legacy_event last = sim->events[--sim->event_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= sim->event_count) {
            break;
        }
        if (child + 1 < sim->event_count &&
            event_is_before(&sim->events[child + 1], &sim->events[child])) {
            child++;
        }
        if (!event_is_before(&sim->events[child], &last)) {
            break;
        }
        sim->events[at] = sim->events[child];
        at = child;
    }
    if (sim->event_count > 0) {
        sim->events[at] = last;
    }
    return first;
}

/* --- the network --- */

static int64_t net_delay_us(struct mst__sim_legacy *sim)
{
    if (!sim->is_calm && sim_chance(sim, sim->plan.slow_ppm)) {
        return mst__sim_legacy_below(sim, 6 * SECOND_US);
    }
    return 100 + mst__sim_legacy_below(sim, sim->plan.delay_us_max);
}

void mst__sim_legacy_reply(struct mst__sim_legacy *sim,
                           const struct mst__sim_v2_request *request,
                           struct mst__sim_v2_answer *answer)
{
    bool is_lost = !sim->is_calm && sim_chance(sim, sim->plan.lost_ppm);
    bool is_cut = sim->nodes[request->node].cut_us > sim->now_us;
    if (is_lost || is_cut || request->serial == 0) {
        sim->stats.late++;
        mst__sim_v2_answer_free(answer);
        return;
    }
    struct mst__sim_legacy_event event = {.kind = MST_SIM_LEGACY_ANSWER,
                                          .node = request->node,
                                          .life = request->life,
                                          .serial = request->serial,
                                          .answer = answer};
    mst__sim_legacy_after(sim, net_delay_us(sim), event);
}

void mst__sim_legacy_send(struct mst__sim_legacy *sim,
                          struct mst__sim_legacy_node *node,
                          struct mst__sim_v2_request *request)
{
    node->serial = ++sim->serials;
    request->node = node->index;
    request->life = node->life;
    request->serial = node->serial;
    if (sim->now_us - node->busy_us >= SECOND_US) {
        node->busy_us = sim->now_us;
        node->busy_count = 0;
    }
    if (++node->busy_count > BUSY_MAX) {
        mst__sim_legacy_break(sim, "busy", "n%" PRIu32 " sends %d requests in a second",
                              node->index, BUSY_MAX);
    }
    sim->stats.reads += request->verb != MST_SIM_V2_PUT;
    sim->stats.writes += request->verb == MST_SIM_V2_PUT;
    struct mst__sim_legacy_event event = {
        .node = node->index, .life = node->life, .serial = node->serial};
    if (sim->down_us > sim->now_us) {
        mst__sim_v2_request_free(request);
        event.kind = MST_SIM_LEGACY_REFUSED;
        mst__sim_legacy_after(sim, net_delay_us(sim), event);
        return;
    }
    bool is_wait = request->verb >= MST_SIM_V2_WAIT;
    bool is_lost = !sim->is_calm && sim_chance(sim, sim->plan.lost_ppm);
    if (is_lost || node->cut_us > sim->now_us) {
        mst__sim_v2_request_free(request);
    } else {
        event.kind = MST_SIM_LEGACY_ARRIVE;
        event.request = request;
        mst__sim_legacy_after(sim, net_delay_us(sim), event);
        event.request = NULL;
    }
    if (!is_wait) {
        event.kind = MST_SIM_LEGACY_GIVE_UP;
        mst__sim_legacy_after(sim, CALL_US, event);
    }
}

void mst__sim_legacy_timer(struct mst__sim_legacy *sim,
                           struct mst__sim_legacy_node *node,
                           int64_t until_us)
{
    node->serial = ++sim->serials;
    struct mst__sim_legacy_event event = {.kind = MST_SIM_LEGACY_TIMER,
                                          .node = node->index,
                                          .life = node->life,
                                          .serial = node->serial};
    mst__sim_legacy_after(sim, until_us - sim->now_us, event);
}

/* --- a node of muster's --- */

static void node_feed(struct mst__sim_legacy *sim,
                      struct mst__sim_legacy_node *node,
                      struct mst__legacy_event event);

static void node_begin(struct mst__sim_legacy *sim,
                       struct mst__sim_legacy_node *node,
                       enum mst__legacy_operation operation,
                       int64_t limit_us)
{
    static const char *const names[] = {"setup", "next", "look", "watch", "beat", "close", "leave"};
    if (operation != MST_LEGACY_OP_WATCH) {
        mst__sim_legacy_say(sim, node->index, "begins %s", names[operation]);
    }
    node->operation = operation;
    node->began_us = sim->now_us;
    struct mst__legacy_event event = {.kind = MST_LEGACY_EVENT_BEGIN,
                                      .operation = operation,
                                      .deadline_us = sim->now_us + limit_us};
    node_feed(sim, node, event);
}

static void node_pause(struct mst__sim_legacy *sim,
                       struct mst__sim_legacy_node *node,
                       int64_t delay_us)
{
    node->app = MST_SIM_LEGACY_PAUSED;
    mst__sim_legacy_timer(sim, node, sim->now_us + delay_us);
}

static void node_next(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    node->app = MST_SIM_LEGACY_JOINING;
    node->wants_next = false;
    node_begin(sim, node, MST_LEGACY_OP_NEXT, sim->plan.join_us);
}

/* In a round: the program's next step after an operation. */
static void node_hold(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    struct mst__legacy_changes changes;
    mst__legacy_changes(&node->machine, &changes);
    if (changes.closed) {
        node->app = MST_SIM_LEGACY_ENDED;
    } else if (node->wants_leave) {
        node->wants_leave = false;
        node_begin(sim, node, MST_LEGACY_OP_LEAVE, 5 * SECOND_US);
    } else if (node->wants_next || changes.expelled || changes.is_over ||
               changes.waiting_count > 0 || changes.lost_count > 0) {
        mst__sim_legacy_say(
            sim, node->index, "restarts: expelled=%d over=%d waiting=%" PRId64 " lost=%zu",
            changes.expelled, changes.is_over, changes.waiting_count, changes.lost_count);
        node_next(sim, node);
    } else {
        node_begin(sim, node, MST_LEGACY_OP_WATCH, 20 * SECOND_US);
    }
}

static void node_done(struct mst__sim_legacy *sim,
                      struct mst__sim_legacy_node *node,
                      const struct mst__legacy_outcome *outcome)
{
    static const char *const names[] = {"ok",         "closed",   "timeout", "cancelled",
                                        "connection", "mismatch", "state"};
    if (node->operation != MST_LEGACY_OP_WATCH) {
        mst__sim_legacy_say(sim, node->index, "ends with %s", names[outcome->result]);
    }
    if (outcome->result == MST_LEGACY_STATE) {
        mst__sim_legacy_break(sim, "legal", "n%" PRIu32 " cannot read the document", node->index);
    }
    if (outcome->result == MST_LEGACY_RESULT_CLOSED) {
        if (!sim->is_closed) {
            mst__sim_legacy_break(sim, "closed", "n%" PRIu32 " is told so", node->index);
        }
        node->app = MST_SIM_LEGACY_ENDED;
        return;
    }
    if (sim->is_calm && outcome->result == MST_LEGACY_TIMEOUT &&
        node->operation == MST_LEGACY_OP_NEXT) {
        sim->gave_up_us = sim->now_us;
    }
    if (outcome->result != MST_LEGACY_OK && node->operation == MST_LEGACY_OP_NEXT) {
        mst__sim_legacy_gave_up(sim, node);
    }
    if (node->wants_close) {
        node->wants_close = false;
        node_begin(sim, node, MST_LEGACY_OP_CLOSE, 10 * SECOND_US);
        return;
    }
    if (node->operation == MST_LEGACY_OP_NEXT && outcome->result == MST_LEGACY_OK) {
        mst__sim_legacy_told(sim, node, outcome->version, outcome->rank, outcome->world);
    }
    if (node->operation == MST_LEGACY_OP_LEAVE) {
        node_pause(sim, node, SECOND_US + mst__sim_legacy_below(sim, 3 * SECOND_US));
    } else if (node->app == MST_SIM_LEGACY_HOLDING) {
        node_hold(sim, node);
    } else if (node->operation == MST_LEGACY_OP_SETUP && outcome->result == MST_LEGACY_OK) {
        node_next(sim, node);
    } else {
        node_pause(sim, node, SECOND_US / 2 + mst__sim_legacy_below(sim, SECOND_US));
    }
}

/* The request of @effect. */
static struct mst__sim_v2_request *node_request(const struct mst__legacy_effect *effect)
{
    static const enum mst__sim_v2_verb verbs[] = {
        [MST_LEGACY_GET] = MST_SIM_V2_GET,       [MST_LEGACY_PUT] = MST_SIM_V2_PUT,
        [MST_LEGACY_DELETE] = MST_SIM_V2_DELETE, [MST_LEGACY_LIST] = MST_SIM_V2_LIST,
        [MST_LEGACY_WAIT] = MST_SIM_V2_WAIT,
    };
    struct mst__sim_v2_request *request = mst__sim_v2_request_new();
    request->verb = verbs[effect->kind];
    request->key = mst__strdup(effect->key);
    MST_ASSERT(request->key != NULL);
    request->condition = effect->condition;
    request->previous_index = effect->previous_index;
    request->has_doc = effect->doc != NULL;
    int rv = effect->doc == NULL ? 0 : mst__legacy_doc_copy(&request->doc, effect->doc);
    MST_ASSERT(rv == 0);
    MST_ASSERT(effect->value.size < sizeof request->value);
    if (effect->value.size > 0) {
        memcpy(request->value, effect->value.data, effect->value.size);
    }
    request->ttl_s = effect->ttl_s;
    request->is_dir = effect->is_dir;
    request->is_refresh = effect->is_refresh;
    request->from_index = effect->from_index;
    return request;
}

static void node_feed(struct mst__sim_legacy *sim,
                      struct mst__sim_legacy_node *node,
                      struct mst__legacy_event event)
{
    struct mst__legacy_effect effect = {.kind = MST_LEGACY_DONE};
    int rv =
        mst__legacy_step(&node->machine, &event, sim->now_us, mst__prng_next(&sim->prng), &effect);
    MST_ASSERT(rv == 0);
    node->effect = effect.kind;
    if (effect.kind == MST_LEGACY_DONE) {
        struct mst__legacy_outcome outcome = effect.outcome;
        node_done(sim, node, &outcome);
        return;
    }
    if (effect.kind == MST_LEGACY_PAUSE) {
        mst__sim_legacy_timer(sim, node, effect.until_us);
    } else {
        mst__sim_legacy_send(sim, node, node_request(&effect));
        if (effect.kind == MST_LEGACY_WAIT) {
            struct mst__sim_legacy_event timer = {.kind = MST_SIM_LEGACY_TIMER,
                                                  .node = node->index,
                                                  .life = node->life,
                                                  .serial = node->serial};
            mst__sim_legacy_after(sim, effect.until_us - sim->now_us, timer);
        }
    }
}

static bool node_is_waiting(const struct mst__sim_legacy_node *node)
{
    return node->has_machine && node->machine.phase == MST_LEGACY_WAITING;
}

bool mst__sim_legacy_interrupt(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    bool is_watch = node->operation == MST_LEGACY_OP_WATCH &&
                    (node->wants_next || node->wants_close || node->wants_leave);
    bool is_next =
        node->operation == MST_LEGACY_OP_NEXT && (node->wants_cancel || node->wants_close);
    if (node->is_torch || !node_is_waiting(node) || (!is_watch && !is_next)) {
        return false;
    }
    node->wants_cancel = false;
    node_feed(sim, node, (struct mst__legacy_event){.kind = MST_LEGACY_EVENT_CANCEL});
    return true;
}

static void node_answer(struct mst__sim_legacy *sim,
                        struct mst__sim_legacy_node *node,
                        struct mst__sim_v2_answer *answer)
{
    if (node->is_torch) {
        mst__sim_torch_feed(sim, node, answer, false);
        return;
    }
    struct mst__legacy_event event = {
        .kind = MST_LEGACY_EVENT_ANSWER,
        .code = answer->code,
        .index = answer->index,
        .modified = answer->modified,
        .doc = answer->has_doc ? &answer->doc : NULL,
        .value = mst_bytes_str(answer->value),
        .entries = answer->entries,
        .entry_count = answer->entry_count,
    };
    node_feed(sim, node, event);
    (void)mst__sim_legacy_interrupt(sim, node); /* now or at the next wait */
}

/* The answer is missing, or etcd was down. */
static void node_failed(struct mst__sim_legacy *sim,
                        struct mst__sim_legacy_node *node,
                        bool is_refused)
{
    if (node->is_torch) {
        mst__sim_torch_feed(sim, node, NULL, true);
        return;
    }
    bool is_write = node->effect == MST_LEGACY_PUT || node->effect == MST_LEGACY_DELETE;
    node_feed(sim, node,
              (struct mst__legacy_event){.kind = is_write && !is_refused
                                                     ? MST_LEGACY_EVENT_UNKNOWN
                                                     : MST_LEGACY_EVENT_FAILED});
}

static void node_time(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    if (node->is_torch) {
        mst__sim_torch_feed(sim, node, NULL, false);
    } else if (node_is_waiting(node)) {
        node_feed(sim, node, (struct mst__legacy_event){.kind = MST_LEGACY_EVENT_TIME});
    } else if (node->app == MST_SIM_LEGACY_PAUSED) {
        node_next(sim, node);
    }
}

static void node_crash(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    mst__sim_legacy_say(sim, node->index, "crashes");
    if (node->has_machine) {
        sim->stats.losses += node->machine.stats.losses;
        mst__legacy_close(&node->machine);
        node->has_machine = false;
    }
    mst__legacy_doc_close(&node->torch.doc);
    node->torch = (struct mst__sim_torch){.at = MST_TORCH_IDLE};
    node->app = MST_SIM_LEGACY_DOWN;
    node->life++;
}

static void node_start(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    if (node->app != MST_SIM_LEGACY_DOWN) {
        return;
    }
    mst__sim_legacy_say(sim, node->index, "starts");
    node->version = 0;
    node->wants_cancel = node->wants_close = node->wants_next = node->wants_leave = false;
    if (node->is_torch) {
        mst__sim_torch_begin(sim, node);
        return;
    }
    struct mst__legacy_options options = {
        .prefix = "torchelastic//p2p/",
        .run_id = "s",
        .nonce = mst__prng_next(&sim->prng) | 1,
        .nodes_min = node->is_odd ? 1 : sim->plan.nodes_min,
        .nodes_max = sim->plan.nodes_max + (node->is_odd && sim->plan.nodes_min == 1),
        .last_call_us = sim->plan.last_call_us,
    };
    int rv = mst__legacy_init(&node->machine, &options);
    MST_ASSERT(rv == 0);
    node->has_machine = true;
    node->app = MST_SIM_LEGACY_PAUSED;
    node_begin(sim, node, MST_LEGACY_OP_SETUP, 10 * SECOND_US);
}

/* --- faults --- */

static void fault_come_back(struct mst__sim_legacy *sim,
                            struct mst__sim_legacy_node *node,
                            int64_t delay_us)
{
    struct mst__sim_legacy_event event = {.kind = MST_SIM_LEGACY_START, .node = node->index};
    mst__sim_legacy_after(sim, delay_us, event);
}

static void fault_count(struct mst__sim_legacy *sim, enum mst__sim_fault fault)
{
    sim->stats.faults[fault]++;
}

static void fault_strike(struct mst__sim_legacy *sim)
{
    struct mst__sim_legacy_node *node =
        &sim->nodes[mst__sim_legacy_below(sim, (int64_t)sim->plan.nodes)];
    switch (mst__sim_legacy_below(sim, 8)) {
        case 0:
        case 1:
            if (node->app != MST_SIM_LEGACY_DOWN) {
                fault_count(sim, MST_SIM_FAULT_CRASH);
                node_crash(sim, node);
                fault_come_back(sim, node, mst__sim_legacy_below(sim, 20 * SECOND_US));
            }
            break;
        case 2:
            fault_count(sim, MST_SIM_FAULT_FREEZE);
            node->frozen_us =
                sim->now_us + mst__sim_legacy_below(sim, MST_SIM_LEGACY_FREEZE_US_MAX);
            node->woken_us = node->frozen_us;
            mst__sim_legacy_say(sim, node->index, "is stopped");
            break;
        case 3:
            fault_count(sim, MST_SIM_FAULT_PARTITION);
            node->cut_us = sim->now_us + mst__sim_legacy_below(sim, 14 * SECOND_US);
            mst__sim_legacy_say(sim, node->index, "is cut off");
            break;
        case 4:
            fault_count(sim, MST_SIM_FAULT_BLACKOUT);
            sim->down_us = sim->now_us + mst__sim_legacy_below(sim, 8 * SECOND_US);
            mst__sim_legacy_say(sim, UINT32_MAX, "goes down");
            mst__sim_v2_hangup(sim);
            break;
        case 5:
            fault_count(sim, MST_SIM_FAULT_RESTART);
            node->wants_next = true;
            (void)mst__sim_legacy_interrupt(sim, node); /* or at the next wait */
            break;
        case 6:
            node->wants_cancel = node->operation == MST_LEGACY_OP_NEXT;
            node->wants_leave = node->app == MST_SIM_LEGACY_HOLDING;
            fault_count(sim, node->wants_leave ? MST_SIM_FAULT_LEAVE : MST_SIM_FAULT_CANCEL);
            (void)mst__sim_legacy_interrupt(sim, node); /* the same */
            break;
        default:
            node->wants_close = !node->is_torch && sim_chance(sim, sim->plan.close_ppm);
            if (node->wants_close) {
                fault_count(sim, MST_SIM_FAULT_CLOSE);
            }
            (void)mst__sim_legacy_interrupt(sim, node); /* the same */
    }
}

static void fault_calm(struct mst__sim_legacy *sim)
{
    mst__sim_legacy_say(sim, UINT32_MAX, "the faults stop");
    sim->is_calm = true;
    sim->calm_us = sim->now_us;
    sim->down_us = 0;
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        struct mst__sim_legacy_node *node = &sim->nodes[i];
        node->cut_us = 0;
        node->frozen_us = 0;
        node->wants_next = node->wants_close = node->wants_cancel = node->wants_leave = false;
        if (node->is_odd) {
            node_crash(sim, node);
        } else if (node->app == MST_SIM_LEGACY_DOWN) {
            node_start(sim, node);
        } else if (node->is_torch) {
            /* A fault may have ended its thread, and it does not notice. */
            node_crash(sim, node);
            node_start(sim, node);
        }
    }
}

/* --- running --- */

static void plan_draw(struct mst__sim_legacy *sim)
{
    struct mst__sim_legacy_plan *plan = &sim->plan;
    plan->nodes = 1 + (uint32_t)mst__sim_legacy_below(sim, MST_SIM_LEGACY_NODES_MAX - 1);
    plan->has_odd = sim_chance(sim, 250000) && plan->nodes > 1;
    uint32_t equal = plan->nodes - (plan->has_odd ? 1 : 0);
    plan->torch = sim_chance(sim, 400000) ? (uint32_t)mst__sim_legacy_below(sim, equal) : 0;
    plan->has_odd = plan->has_odd && plan->torch == 0; /* peers do not check limits */
    equal = plan->nodes - (plan->has_odd ? 1 : 0);
    plan->nodes_min = 1 + mst__sim_legacy_below(sim, equal);
    plan->nodes_max =
        sim_chance(sim, 500000) ? (int64_t)equal : plan->nodes_min + mst__sim_legacy_below(sim, 4);
    if (plan->torch > 0 && plan->nodes_max < (int64_t)equal) {
        plan->nodes_max = equal; /* peers that wait for a full round end it again and again */
    }
    plan->nodes_max = plan->nodes_max < plan->nodes_min ? plan->nodes_min : plan->nodes_max;
    /* Peers without a last call shut each other out again and again. */
    plan->last_call_us = (plan->torch > 0 ? 2 : 0) * SECOND_US;
    plan->last_call_us += mst__sim_legacy_below(sim, 12) * SECOND_US;
    plan->join_us =
        30 * SECOND_US + 3 * plan->last_call_us + mst__sim_legacy_below(sim, 60 * SECOND_US);
    plan->delay_us_max = 500 + mst__sim_legacy_below(sim, 20000);
    plan->lost_ppm = sim_chance(sim, 700000) ? (uint32_t)mst__sim_legacy_below(sim, 50000) : 0;
    plan->slow_ppm = (uint32_t)mst__sim_legacy_below(sim, 20000);
    plan->fault_us = SECOND_US + mst__sim_legacy_below(sim, 10 * SECOND_US);
    plan->close_ppm = sim_chance(sim, 300000) ? 500000 : 0;
    plan->active_us = 20 * SECOND_US + mst__sim_legacy_below(sim, 60 * SECOND_US);
    /* Of muster nodes alone: the expiry of a key and of a `setup` or frozen document, a last
     * call without its leader and a new one; and a program that does not retry at once. */
    plan->bound_us = 20 * SECOND_US + 2 * plan->last_call_us;
    if (plan->torch > 0) {
        plan->bound_us = 100 * SECOND_US + 6 * plan->last_call_us;
    }
}

static void run_event(struct mst__sim_legacy *sim, struct mst__sim_legacy_event *event)
{
    struct mst__sim_legacy_node *node = &sim->nodes[event->node];
    bool is_for_node = event->kind == MST_SIM_LEGACY_ANSWER ||
                       event->kind == MST_SIM_LEGACY_GIVE_UP ||
                       event->kind == MST_SIM_LEGACY_REFUSED ||
                       event->kind == MST_SIM_LEGACY_TIMER || event->kind == MST_SIM_LEGACY_BEAT;
    if (is_for_node && event->life != node->life) {
        mst__sim_v2_answer_free(event->answer);
        return;
    }
    if (is_for_node && node->frozen_us > sim->now_us) {
        mst__sim_legacy_after(sim, node->frozen_us - sim->now_us, *event);
        return;
    }
    bool is_current = event->serial == node->serial;
    switch (event->kind) {
        case MST_SIM_LEGACY_ARRIVE:
            if (sim->down_us > sim->now_us) {
                mst__sim_v2_request_free(event->request);
            } else {
                mst__sim_v2_serve(sim, event->request);
            }
            return;
        case MST_SIM_LEGACY_ANSWER:
            if (is_current) {
                node->serial = 0;
                node_answer(sim, node, event->answer);
            }
            mst__sim_v2_answer_free(event->answer);
            return;
        case MST_SIM_LEGACY_GIVE_UP:
        case MST_SIM_LEGACY_REFUSED:
            if (is_current) {
                node->serial = 0;
                node_failed(sim, node, event->kind == MST_SIM_LEGACY_REFUSED);
            }
            return;
        case MST_SIM_LEGACY_TIMER:
            if (is_current) {
                node->serial = 0;
                node_time(sim, node);
            }
            return;
        case MST_SIM_LEGACY_BEAT:
            if (event->serial == node->torch.beat_timer) {
                mst__sim_torch_beat(sim, node);
            }
            return;
        case MST_SIM_LEGACY_START:
            if (!(sim->is_calm && node->is_odd)) {
                node_start(sim, node);
            }
            return;
        case MST_SIM_LEGACY_EXPIRE:
            mst__sim_v2_expire(sim);
            return;
        case MST_SIM_LEGACY_FAULT:
            if (!sim->is_calm) {
                fault_strike(sim);
                mst__sim_legacy_after(sim, mst__sim_legacy_below(sim, 2 * sim->plan.fault_us),
                                      *event);
            }
            return;
        case MST_SIM_LEGACY_CALM:
            fault_calm(sim);
            return;
        case MST_SIM_LEGACY_LOOK:
            mst__sim_legacy_settle(sim);
    }
}

static void run_begin(struct mst__sim_legacy *sim)
{
    plan_draw(sim);
    const struct mst__sim_legacy_plan *plan = &sim->plan;
    for (uint32_t i = 0; i < plan->nodes; i++) {
        struct mst__sim_legacy_node *node = &sim->nodes[i];
        node->index = i;
        node->is_odd = plan->has_odd && i == 0;
        node->is_torch = i >= plan->nodes - plan->torch;
        fault_come_back(sim, node, mst__sim_legacy_below(sim, 10 * SECOND_US));
    }
    mst__sim_legacy_say(sim, UINT32_MAX,
                        "%" PRIu32 " nodes, %" PRIu32 " of them torch's, %s odd, min %" PRId64
                        " max %" PRId64 " last call %" PRId64 " s",
                        plan->nodes, plan->torch, plan->has_odd ? "one" : "none", plan->nodes_min,
                        plan->nodes_max, plan->last_call_us / SECOND_US);
    /* Peers need it and create it in their constructor. */
    struct mst__sim_v2_request *request = mst__sim_v2_request_new();
    request->verb = MST_SIM_V2_PUT;
    request->key = mst__strdup("/torchelastic/p2p/run_s/rdzv/version_counter");
    MST_ASSERT(request->key != NULL);
    request->value[0] = '0';
    mst__sim_v2_serve(sim, request);
    mst__sim_legacy_after(sim, plan->fault_us,
                          (struct mst__sim_legacy_event){.kind = MST_SIM_LEGACY_FAULT});
    mst__sim_legacy_after(sim, plan->active_us,
                          (struct mst__sim_legacy_event){.kind = MST_SIM_LEGACY_CALM});
    mst__sim_legacy_after(sim, plan->active_us + 1,
                          (struct mst__sim_legacy_event){.kind = MST_SIM_LEGACY_LOOK});
}

bool mst__sim_legacy_run(struct mst__sim_legacy *ret_sim, uint64_t seed, FILE *history)
{
    struct mst__sim_legacy *sim = ret_sim;
    memset(sim, 0, sizeof *sim);
    sim->history = history;
    mst__prng_init(&sim->prng, seed);
    /* Not drawn, so that what a seed means stays. */
    sim->plan.has_leaver = seed % 2 == 0;
    sim->plan.is_long = seed % 50 == 0;
    run_begin(sim);
    while (!sim->is_over && sim->event_count > 0) {
        struct mst__sim_legacy_event event = event_pop(sim);
        sim->now_us = event.time_us;
        sim->stats.events++;
        run_event(sim, &event);
    }
    sim->stats.virtual_us = sim->now_us;
    if (sim->rule != NULL) {
        mst__sim_legacy_say(sim, UINT32_MAX, "rule %s is broken: %s", sim->rule, sim->broken);
    }
    return sim->rule == NULL;
}

void mst__sim_legacy_close(struct mst__sim_legacy *sim)
{
    for (size_t i = 0; i < sim->event_count; i++) {
        mst__sim_v2_request_free(sim->events[i].request);
        mst__sim_v2_answer_free(sim->events[i].answer);
    }
    mst__free(sim->events);
    mst__free(sim->rounds);
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        if (sim->nodes[i].has_machine) {
            sim->stats.losses += sim->nodes[i].machine.stats.losses;
            mst__legacy_close(&sim->nodes[i].machine);
        }
        mst__legacy_doc_close(&sim->nodes[i].torch.doc);
    }
    mst__legacy_doc_close(&sim->before);
    mst__sim_v2_close(&sim->v2);
}
