/* sim/record/node.c - a program that takes part: what it wants, its keep-alives, its reactions.
 *
 *              start              told a round            change, restart
 *      DOWN ---------> JOINING ----------------> HOLDING -----------------> JOINING
 *        ^                |  ^                      |
 *        | crash          |  +-------- PAUSED <-----+--- LEAVING (and a cancelled join)
 *        |                v
 *   anywhere            ENDED   when it is told that the rendezvous is closed
 *
 * One session, one operation at a time, as a handler does it. A failed operation is tried again
 * after a growing delay; a join always from its beginning, with leaving. */
#include "base/assert.h"
#include "base/limits.h"
#include "base/mem.h"
#include "sim/record/record.h"

#define RETRY_US 50000
#define RETRY_US_MAX 1000000
#define PEER_POLL_US MST_SIM_SECOND_US
#define WALL_US INT64_C(1700000000000000)

int64_t mst__sim_node_mono_us(const struct mst__sim_world *world, const struct mst__sim_node *node)
{
    return world->now_us + world->now_us * node->drift_ppm / (int64_t)MST_SIM_MILLION + 1000000000;
}

static int64_t node_wall_us(const struct mst__sim_world *world, const struct mst__sim_node *node)
{
    return mst__sim_node_mono_us(world, node) + WALL_US + node->skew_us;
}

bool mst__sim_node_is_up(const struct mst__sim_node *node)
{
    return node->app != MST_SIM_DOWN;
}

void mst__sim_node_init(struct mst__sim_world *world, uint32_t index)
{
    const struct mst__sim_plan *plan = &world->plan;
    struct mst__sim_node *node = &world->nodes[index];
    *node = (struct mst__sim_node){
        .index = index,
        .is_coming = true,
        .drift_ppm = mst__sim_below(world, 2 * plan->drift_ppm_max + 1) - plan->drift_ppm_max,
        .skew_us = mst__sim_below(world, 2 * plan->skew_us_max + 1) - plan->skew_us_max,
    };
    mst__buf_init(&node->pickle, MST_PICKLE_SIZE_MAX);
    mst__buf_init(&node->desired, MST_VALUE_SIZE_DEFAULT);
    mst__buf_init(&node->expected, MST_VALUE_SIZE_DEFAULT);
    mst__buf_init(&node->output, MST_MESSAGE_SIZE_MAX);
}

static void node_close_session(struct mst__sim_world *world, struct mst__sim_node *node)
{
    if (node->has_session) {
        const struct mst__session_stats *stats = &node->session.stats;
        world->stats.reads += stats->reads;
        world->stats.writes += stats->writes;
        world->stats.losses += stats->losses;
        world->stats.doubts += stats->doubts;
        mst__session_close(&node->session);
        node->has_session = false;
    }
}

void mst__sim_node_close(struct mst__sim_world *world, struct mst__sim_node *node)
{
    node_close_session(world, node);
    mst__buf_close(&node->pickle);
    mst__buf_close(&node->desired);
    mst__buf_close(&node->expected);
    mst__buf_close(&node->output);
}

/* Set the node's only timer, in real time. */
static void node_set_timer(struct mst__sim_world *world,
                           struct mst__sim_node *node,
                           int64_t delay_us)
{
    node->timer++;
    mst__sim_after(
        world, delay_us < 0 ? 0 : delay_us,
        (struct mst__sim_event){.kind = MST_SIM_TIMER, .node = node->index, .id = node->timer});
}

/* The same, at @until_us of the node's own clock. */
static void node_set_alarm(struct mst__sim_world *world,
                           struct mst__sim_node *node,
                           int64_t until_us)
{
    int64_t delay_us = until_us - mst__sim_node_mono_us(world, node);
    if (delay_us > 3600 * MST_SIM_SECOND_US) {
        delay_us = 3600 * MST_SIM_SECOND_US;
    }
    node_set_timer(world, node, delay_us - delay_us * node->drift_ppm / (int64_t)MST_SIM_MILLION);
}

static void node_effect(struct mst__sim_world *world,
                        struct mst__sim_node *node,
                        const struct mst__effect *effect);

static void node_step(struct mst__sim_world *world,
                      struct mst__sim_node *node,
                      const struct mst__session_event *event)
{
    struct mst__effect effect;
    int rv = mst__session_step(&node->session, event, node_wall_us(world, node),
                               mst__sim_node_mono_us(world, node), mst__prng_next(&world->prng),
                               &effect);
    if (rv != 0) {
        mst__sim_break(world, "step", "n%u: the session refuses event %d with %d", node->index,
                       (int)event->kind, rv);
        return;
    }
    node_effect(world, node, &effect);
}

static void node_begin(struct mst__sim_world *world,
                       struct mst__sim_node *node,
                       enum mst__operation operation)
{
    static const char *const names[] = {"exit", "join", "close", "keep-alive", "poll", "next"};
    const struct mst__settings *settings = &node->session.options.settings;
    int64_t time_us = settings->join_us;
    if (operation == MST_OPERATION_CLOSE) {
        time_us = settings->close_us;
    } else if (operation == MST_OPERATION_KEEP_ALIVE || operation == MST_OPERATION_POLL) {
        time_us = settings->heartbeat_us;
    }
    mst__sim_say_node(world, node, "begins %s", names[operation]);
    node->operation = operation;
    node->began_us = world->now_us;
    struct mst__session_event event = {
        .kind = MST_EVENT_BEGIN,
        .operation = operation,
        .deadline_us = mst__sim_node_mono_us(world, node) + time_us,
    };
    node_step(world, node, &event);
}

/* --- in a round --- */

static void node_end(struct mst__sim_world *world, struct mst__sim_node *node, const char *why)
{
    mst__sim_say_node(world, node, "ends: %s", why);
    node->app = MST_SIM_ENDED;
    node->well_us = world->now_us;
    mst__sim_settle_look(world);
}

/* The program's reaction to the changes. True if it has ended or entered the next round. */
static bool node_react(struct mst__sim_world *world,
                       struct mst__sim_node *node,
                       const struct mst__changes *changes)
{
    if (!changes->is_known) {
        return false;
    }
    if (changes->closed) {
        node_end(world, node, "closed");
        return true;
    }
    bool has_reason = changes->expelled || changes->lost_count > 0 || changes->waiting_count > 0;
    if (!has_reason) {
        node->is_reacting = false;
        return false;
    }
    if (!node->is_reacting) {
        mst__sim_say_node(world, node, "sees expelled=%d lost=%zu waiting=%zu", changes->expelled,
                          changes->lost_count, changes->waiting_count);
        node->is_reacting = true;
        node->react_us = world->now_us + mst__sim_below(world, world->plan.reaction_us_max);
    }
    if (node->react_us > world->now_us) {
        return false;
    }
    node->is_reacting = false;
    node->app = MST_SIM_JOINING;
    node_begin(world, node, MST_OPERATION_NEXT);
    return true;
}

static int64_t node_earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void node_hold(struct mst__sim_world *world, struct mst__sim_node *node)
{
    struct mst__peers lost = {NULL, 0, 0};
    struct mst__changes changes;
    int rv = mst__session_changes(&node->session, &lost, &changes);
    mst__free(lost.ids);
    MST_ASSERT(rv == 0);
    int64_t mono_us = mst__sim_node_mono_us(world, node);
    bool is_exact = node->session.options.mode == MST_SESSION_EXACT;
    int64_t beat_us = is_exact ? node->beat_us : changes.beat_us;
    int64_t poll_us = is_exact ? node->poll_us : changes.poll_us;
    if (!is_exact && (node->has_notice || !changes.is_known)) {
        poll_us = changes.poll_us_min;
    }
    if (node_react(world, node, &changes)) {
        return;
    }
    if (beat_us <= mono_us) {
        node->beat_us = mono_us + node->session.options.settings.keep_alive_interval_us;
        node_begin(world, node, MST_OPERATION_KEEP_ALIVE);
    } else if (poll_us <= mono_us) {
        node->poll_us = mono_us + PEER_POLL_US;
        node_begin(world, node, MST_OPERATION_POLL);
    } else {
        node_set_alarm(world, node, node_earlier(beat_us, poll_us));
        if (node->is_reacting) {
            int64_t until_us = mono_us + node->react_us - world->now_us;
            node_set_alarm(world, node, node_earlier(node_earlier(beat_us, poll_us), until_us));
        }
    }
}

/* --- results --- */

/* No operation is running: begin the next one. */
static void node_idle(struct mst__sim_world *world, struct mst__sim_node *node)
{
    if (node->app == MST_SIM_DOWN || node->app == MST_SIM_ENDED) {
        return;
    }
    if (!node->is_created) {
        mst__sim_client_create(world, node);
        node_set_timer(world, node, world->plan.read_timeout_us);
        return;
    }
    switch (node->app) {
        case MST_SIM_PAUSED:
            node->app = MST_SIM_JOINING;
            node->well_us = world->now_us;
            node_begin(world, node, MST_OPERATION_NEXT);
            return;
        case MST_SIM_JOINING:
            node_begin(world, node, MST_OPERATION_NEXT);
            return;
        case MST_SIM_CLOSING:
            node_begin(world, node, MST_OPERATION_CLOSE);
            return;
        case MST_SIM_LEAVING:
            node_begin(world, node, MST_OPERATION_EXIT);
            return;
        case MST_SIM_HOLDING:
            node_hold(world, node);
            return;
        case MST_SIM_DOWN:
        case MST_SIM_ENDED:
            break;
    }
}

static void node_pause(struct mst__sim_world *world, struct mst__sim_node *node)
{
    node->app = MST_SIM_PAUSED;
    node->well_us = world->now_us;
    int64_t longest_us = mst__sim_plan_expiry_us(&world->plan);
    node_set_timer(world, node, world->is_calm ? 0 : mst__sim_below(world, longest_us));
}

static void node_joined(struct mst__sim_world *world,
                        struct mst__sim_node *node,
                        const struct mst__outcome *outcome)
{
    mst__sim_say_node(world, node, "told round %lld: rank %lld of %lld", (long long)outcome->round,
                      (long long)outcome->rank, (long long)outcome->world);
    world->stats.returns++;
    node->app = MST_SIM_HOLDING;
    node->round = outcome->round;
    node->round_epoch = node->epoch;
    node->is_reacting = false;
    int64_t mono_us = mst__sim_node_mono_us(world, node);
    node->beat_us = mono_us + node->session.options.settings.keep_alive_interval_us;
    node->poll_us = mono_us + PEER_POLL_US;
    if (!world->is_calm && mst__sim_chance(world, world->plan.hasty_ppm)) {
        node->app = mst__sim_below(world, 2) == 0 ? MST_SIM_LEAVING : MST_SIM_JOINING;
    }
    mst__sim_check_told(world, node, outcome);
    mst__sim_settle_look(world);
}

static int64_t node_retry_us(struct mst__sim_world *world, struct mst__sim_node *node)
{
    int64_t longest_us = (int64_t)RETRY_US << (node->failures < 5 ? node->failures : 5);
    node->failures++;
    return 1 + mst__sim_below(world, node_earlier(longest_us, RETRY_US_MAX));
}

static void node_done(struct mst__sim_world *world,
                      struct mst__sim_node *node,
                      const struct mst__outcome *outcome)
{
    static const char *const names[] = {"ok",         "closed", "timeout",  "graceful exit",
                                        "connection", "state",  "cancelled"};
    mst__sim_say_node(world, node, "is done: %s", names[outcome->result]);
    if (outcome->result == MST_RESULT_CONNECTION) {
        node_set_timer(world, node, node_retry_us(world, node));
        return;
    }
    node->failures = 0;
    bool is_exact = node->session.options.mode == MST_SESSION_EXACT;
    if (outcome->result == MST_RESULT_STATE && !is_exact) {
        mst__sim_break(world, "state", "n%u finds a record that does not make sense", node->index);
        return;
    }
    if (outcome->result == MST_RESULT_TIMEOUT && world->is_calm &&
        node->began_us < world->calm_us) {
        world->gave_up_us = world->now_us;
    }
    bool is_closed =
        outcome->result == MST_RESULT_CLOSED || outcome->result == MST_RESULT_GRACEFUL_EXIT;
    if (is_closed || (node->operation == MST_OPERATION_CLOSE && outcome->result == MST_RESULT_OK)) {
        node_end(world, node, "closed");
    } else if (outcome->result == MST_RESULT_CANCELLED ||
               (node->operation == MST_OPERATION_EXIT && outcome->result == MST_RESULT_OK)) {
        node_pause(world, node);
    } else if (node->operation == MST_OPERATION_NEXT && outcome->result == MST_RESULT_OK) {
        node_joined(world, node, outcome);
        node_set_timer(world, node, 0);
    } else {
        node_set_timer(world, node, outcome->result == MST_RESULT_OK ? 0 : RETRY_US);
    }
}

/* The record has changed while the session waits. */
static void node_wake(struct mst__sim_world *world, struct mst__sim_node *node)
{
    if (!node->session.wants_change) {
        return;
    }
    node->has_notice = false;
    if (node->skip > 0) {
        node->skip--;
        return;
    }
    node_step(world, node, &(struct mst__session_event){.kind = MST_EVENT_WOKEN});
}

static void node_effect(struct mst__sim_world *world,
                        struct mst__sim_node *node,
                        const struct mst__effect *effect)
{
    switch (effect->kind) {
        case MST_EFFECT_READ:
        case MST_EFFECT_WRITE:
            node->has_notice = false; /* notices from here on are news */
            mst__sim_client_effect(world, node, effect);
            node_set_timer(world, node, world->plan.read_timeout_us);
            return;
        case MST_EFFECT_WAIT:
            node_set_alarm(world, node, effect->until_us);
            node->skip = effect->skip;
            if (node->has_notice) {
                node_wake(world, node);
            }
            return;
        case MST_EFFECT_DONE:
            break;
    }
    MST_ASSERT(effect->kind == MST_EFFECT_DONE);
    node_done(world, node, &effect->outcome);
}

/* --- what happens to it --- */

void mst__sim_node_start(struct mst__sim_world *world, struct mst__sim_node *node)
{
    MST_ASSERT(node->app == MST_SIM_DOWN);
    const struct mst__sim_plan *plan = &world->plan;
    node->pid = mst__sim_check_born(world, node->index);
    char address[24];
    (void)snprintf(address, sizeof address, "host%u",
                   plan->is_one_address ? 0 : node->index); /* it fits */
    struct mst__session_options options = {
        .node = {.addr = mst_bytes_str(address), .pid = node->pid},
        .settings = plan->settings[node->index],
        .mode = plan->is_exact[node->index] ? MST_SESSION_EXACT : MST_SESSION_DEFAULT,
        .dialect = plan->dialect,
        .can_watch = plan->can_watch[node->index],
        .write_us = plan->is_exact[node->index] ? 0 : plan->write_us,
    };
    int rv = mst__session_init(&node->session, &options);
    MST_ASSERT(rv == 0);
    node->has_session = true;
    node->is_coming = false;
    node->app = MST_SIM_JOINING;
    node->is_created = false;
    node->ask = MST_SIM_ASK_NONE;
    node->failures = 0;
    node->has_notice = false;
    node->paused_us = 0;
    node->frozen_us = 0;
    node->well_us = world->now_us;
    mst__sim_say_node(world, node, "starts");
    if (options.can_watch) {
        mst__sim_link_watch(world, node);
    }
    node_idle(world, node);
}

void mst__sim_node_crash(struct mst__sim_world *world, struct mst__sim_node *node)
{
    mst__sim_say_node(world, node, "crashes");
    node_close_session(world, node);
    mst__sim_link_close(world, node);
    if (node->watch != 0) {
        mst__sim_after(world, mst__sim_link_delay_us(world, node),
                       (struct mst__sim_event){.kind = MST_SIM_CLOSED, .id = node->watch});
        node->watch = 0;
    }
    node->app = MST_SIM_DOWN;
    node->timer++;
    struct mst__sim_life *life = mst__sim_check_life(world, node->pid);
    life->is_over = true;
    life->over_us = world->now_us;
}

void mst__sim_node_broken(struct mst__sim_world *world, struct mst__sim_node *node)
{
    mst__sim_say_node(world, node, "has lost its connection");
    node->well_us = world->now_us;
    mst__sim_link_close(world, node);
    enum mst__sim_ask ask = node->ask;
    node->ask = MST_SIM_ASK_NONE;
    if (ask == MST_SIM_ASK_CREATE) {
        node_set_timer(world, node, node_retry_us(world, node));
    } else if (ask == MST_SIM_ASK_WRITE && world->plan.looks) {
        mst__sim_client_look(world, node);
        node_set_timer(world, node, world->plan.read_timeout_us);
    } else if (ask != MST_SIM_ASK_NONE) {
        node_step(world, node, &(struct mst__session_event){.kind = MST_EVENT_FAILED});
    }
}

void mst__sim_node_timer(struct mst__sim_world *world, struct mst__sim_node *node)
{
    if (node->ask != MST_SIM_ASK_NONE) {
        mst__sim_node_broken(world, node); /* it gives up */
    } else if (node->session.phase == MST_SESSION_WAITING) {
        node_step(world, node, &(struct mst__session_event){.kind = MST_EVENT_TIME});
    } else {
        node_idle(world, node);
    }
}

void mst__sim_node_reply(struct mst__sim_world *world,
                         struct mst__sim_node *node,
                         const struct mst__sim_event *event)
{
    if (node->ask == MST_SIM_ASK_NONE || event->id != node->link ||
        event->request != node->request) {
        world->stats.late++;
        return;
    }
    node->epoch = event->epoch;
    bool is_get = node->ask == MST_SIM_ASK_READ || node->ask == MST_SIM_ASK_LOOK;
    struct mst__command command = {.op = is_get ? MST_OP_GET : MST_OP_COMPARE_SET};
    struct mst__wire_limits limits = mst__wire_limits(MST_KEY_SIZE_DEFAULT, MST_VALUE_SIZE_DEFAULT);
    struct mst__reply reply;
    size_t size;
    struct mst_err err;
    int rv = mst__wire_read_reply(&command, &limits, mst_bytes_of(event->bytes, event->size),
                                  &reply, &size, &err);
    if (rv != MST_WIRE_REQUEST || size != event->size) {
        mst__sim_break(world, "wire", "an answer was not understood: %d", rv);
        return;
    }
    bool is_for_nobody = node->ask == MST_SIM_ASK_CREATE;
    struct mst__state state;
    mst__state_init(&state);
    struct mst_buffer token = {NULL, 0};
    struct mst__session_event fed;
    if (mst__sim_client_answer(world, node, reply.bytes, &state, &token, &fed)) {
        node->failures = 0;
        node_step(world, node, &fed);
    } else if (is_for_nobody) {
        node_idle(world, node);
    } else {
        node_set_timer(world, node, world->plan.read_timeout_us);
    }
    mst__state_close(&state);
    mst__free(token.data);
}

void mst__sim_node_notice(struct mst__sim_world *world, struct mst__sim_node *node)
{
    node->has_notice = true;
    if (node->ask != MST_SIM_ASK_NONE) {
        return;
    }
    if (node->session.phase == MST_SESSION_WAITING) {
        node_wake(world, node);
    } else if (node->app == MST_SIM_HOLDING) {
        node_hold(world, node);
    }
}

bool mst__sim_node_want(struct mst__sim_world *world,
                        struct mst__sim_node *node,
                        enum mst__sim_app app)
{
    bool is_idle = node->has_session && node->session.phase == MST_SESSION_IDLE;
    if (node->app != MST_SIM_HOLDING || !is_idle) {
        return false;
    }
    node->app = app;
    node_set_timer(world, node, 0);
    return true;
}

bool mst__sim_node_cancel(struct mst__sim_world *world, struct mst__sim_node *node)
{
    bool is_waiting = node->has_session && node->session.phase == MST_SESSION_WAITING;
    bool is_frozen = world->now_us < node->frozen_us;
    if (node->app != MST_SIM_JOINING || !is_waiting || is_frozen ||
        node->session.options.mode == MST_SESSION_EXACT) {
        return false;
    }
    mst__sim_say_node(world, node, "cancels");
    node->well_us = world->now_us;
    node_step(world, node, &(struct mst__session_event){.kind = MST_EVENT_CANCEL});
    return true;
}
