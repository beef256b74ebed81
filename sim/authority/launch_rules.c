/* sim/authority/launch_rules.c - the rules of launchers, judged by what the agent is told and does,
 * not by its state.
 *
 * A generation starts after the pause of its failure, and without one if nothing has failed
 * ("pause"). A planned stop comes with a notice, once for each worker, and ends with the notice's
 * time or the last answer; it is dropped if it was for nodes that have gone ("notice"). A node that
 * was drained starts no generation ("drain"). A node counts as lost if the rendezvous was out of
 * reach for so long ("lost"). It closes the job after so many generations that failed at once, and
 * only then ("give-up"). Each failure is reported, and the report may take its time ("told").
 * Workers end within the grace ("grace"). */
#include <inttypes.h>

#include "sim/authority/launch.h"

#define SLACK_US (2 * (int64_t)MST_SIM_LAUNCH_KILLED_US)

void mst__sim_launch_rules_init(struct mst__sim_launch_rules *rules)
{
    *rules = (struct mst__sim_launch_rules){
        .assigned_us = INT64_MAX,
        .notice_us = INT64_MAX,
        .drain_us = INT64_MAX,
        .cut_us = INT64_MAX,
        .tell_us = INT64_MAX,
        .over_us = INT64_MAX,
    };
}

static const struct mst__agent_effect *find_effect(const struct mst__agent *agent,
                                                   enum mst__agent_effect_kind kind)
{
    for (size_t i = 0; i < agent->effects_count; i++) {
        if (agent->effects[i].kind == kind && !agent->effects[i].is_again) {
            return &agent->effects[i];
        }
    }
    return NULL;
}

/* Whether @us has passed by more than the time that a process needs; a node that was stopped has
 * that time from then on. */
static bool is_past(const struct mst__sim_auth *sim,
                    const struct mst__sim_auth_node *node,
                    int64_t us)
{
    int64_t since_us = us < node->frozen_us ? node->frozen_us : us;
    return us != INT64_MAX && sim->now_us > since_us + SLACK_US;
}

static bool was(const struct mst__sim_launch_rules *rules, enum mst__agent_phase phase)
{
    return rules->was == phase;
}

/* --- failures --- */

static void count_failure(struct mst__sim_auth *sim, struct mst__sim_launch_rules *rules)
{
    bool is_quick = sim->now_us - rules->started_us < MST_SIM_LAUNCH_QUICK_US;
    rules->quick_count = is_quick ? rules->quick_count + 1 : 0;
    rules->is_after_failure = true;
}

static bool has_given_up(const struct mst__sim_auth *sim, const struct mst__sim_launch_rules *rules)
{
    return sim->plan.quick_max > 0 && rules->quick_count >= sim->plan.quick_max;
}

/* Why the next generation will start. */
static void follow_reason(struct mst__sim_auth *sim,
                          struct mst__sim_auth_launcher *launcher,
                          const struct mst__agent_event *event)
{
    struct mst__sim_launch_rules *rules = &launcher->rules;
    const struct mst__agent *agent = &launcher->agent;
    bool had_ranks = was(rules, MST_AGENT_RUNNING) || was(rules, MST_AGENT_FINISHED);
    bool has_round = had_ranks || was(rules, MST_AGENT_STARTING);
    if (find_effect(agent, MST_AGENT_RESTART) != NULL) {
        count_failure(sim, rules);
    } else if (event->kind == MST_AGENT_EVENT_OVER && has_round) {
        rules->is_after_failure = event->reason == MST_AGENT_REASON_FAILURE;
        if (rules->is_after_failure && had_ranks) {
            count_failure(sim, rules);
        }
    } else if (find_effect(agent, MST_AGENT_FINISH) != NULL) {
        rules->quick_count = 0;
    } else if ((had_ranks && agent->phase != rules->was) ||
               (event->kind == MST_AGENT_EVENT_WAITING && agent->phase != rules->was)) {
        rules->is_after_failure = false;
    }
}

static void judge_give_up(struct mst__sim_auth *sim, const struct mst__sim_auth_node *node)
{
    const struct mst__sim_launch_rules *rules = &node->launcher->rules;
    const struct mst__agent *agent = &node->launcher->agent;
    bool is_told = !rules->has_told && !agent->tells &&
                   (was(rules, MST_AGENT_STOPPING) || was(rules, MST_AGENT_TELLING));
    bool closes = find_effect(agent, MST_AGENT_CLOSE) != NULL;
    if (closes != (is_told && has_given_up(sim, rules))) {
        mst__sim_auth_break(sim, "give-up",
                            "node %" PRIu32 " %s the job after %" PRIu32
                            " generations that failed at once",
                            node->index, closes ? "closes" : "does not close", rules->quick_count);
    }
}

void mst__sim_launch_rules_failed(struct mst__sim_auth *sim, const struct mst__sim_auth_node *node)
{
    const struct mst__agent *agent = &node->launcher->agent;
    bool is_known = has_given_up(sim, &node->launcher->rules);
    for (size_t i = 0; i < sim->ends_count; i++) {
        const struct mst__sim_auth_end *end = &sim->ends[i];
        is_known =
            is_known || (end->outcome == MST_JOB_OUTCOME_FAILED &&
                         end->failure == agent->cause.status && end->rank == agent->cause.rank);
    }
    if (!is_known) {
        mst__sim_auth_break(sim, "outcome",
                            "node %" PRIu32 " tells failure %" PRId32 " of rank %" PRIu32
                            ", and that was not decided",
                            node->index, agent->cause.status, agent->cause.rank);
    }
}

/* --- reports --- */

static void judge_reports(struct mst__sim_auth *sim,
                          const struct mst__sim_auth_node *node,
                          const struct mst__agent_event *event)
{
    struct mst__sim_launch_rules *rules = &node->launcher->rules;
    const struct mst__agent *agent = &node->launcher->agent;
    bool is_telling = agent->phase == MST_AGENT_TELLING;
    if (event->kind == MST_AGENT_EVENT_EXITED && was(rules, MST_AGENT_RUNNING) &&
        event->status != 0 && find_effect(agent, MST_AGENT_RESTART) == NULL) {
        mst__sim_auth_break(sim, "told", "node %" PRIu32 " keeps a failure for itself",
                            node->index);
    }
    if (was(rules, MST_AGENT_TELLING) && agent->is_alone && sim->now_us < rules->tell_us) {
        mst__sim_auth_break(sim, "told", "node %" PRIu32 " gives up its report too soon",
                            node->index);
    }
    if (is_telling && !was(rules, MST_AGENT_TELLING)) {
        uint32_t restarts_max = agent->options.restarts_max;
        bool is_last = agent->ends || rules->restarts >= restarts_max || has_given_up(sim, rules);
        bool is_short = is_last && MST_SIM_LAUNCH_TELL_US < sim->plan.cut_us;
        rules->tell_us = sim->now_us + (is_short ? MST_SIM_LAUNCH_TELL_US : sim->plan.cut_us);
    } else if (!is_telling) {
        rules->tell_us = INT64_MAX;
    }
}

/* --- starts --- */

static int64_t pause_us(const struct mst__sim_auth *sim, const struct mst__sim_launch_rules *rules)
{
    int64_t us = sim->plan.pause_us;
    for (uint32_t i = 1; i < rules->restarts && i < 3; i++) {
        us *= 2;
    }
    return rules->is_after_failure ? us : 0;
}

static void judge_start(struct mst__sim_auth *sim, const struct mst__sim_auth_node *node)
{
    struct mst__sim_launch_rules *rules = &node->launcher->rules;
    const struct mst__agent *agent = &node->launcher->agent;
    if (find_effect(agent, MST_AGENT_START) == NULL) {
        return;
    }
    int64_t due_us = rules->assigned_us + (agent->generation == 1 ? 0 : pause_us(sim, rules));
    if (sim->now_us < due_us || is_past(sim, node, due_us)) {
        mst__sim_auth_break(sim, "pause",
                            "node %" PRIu32 " starts its workers %.6f s after it has its ranks, "
                            "not %.6f s",
                            node->index, (double)(sim->now_us - rules->assigned_us) / 1e6,
                            (double)(due_us - rules->assigned_us) / 1e6);
    }
    if (rules->must_leave) {
        mst__sim_auth_break(sim, "drain", "node %" PRIu32 " has to leave, and starts its workers",
                            node->index);
    }
    rules->started_us = sim->now_us;
    rules->over_us = INT64_MAX;
}

/* --- notices --- */

/* A planned stop of the workers is asked for. */
static void ask_to_stop(struct mst__sim_auth *sim,
                        struct mst__sim_auth_launcher *launcher,
                        const struct mst__agent_event *event)
{
    struct mst__sim_launch_rules *rules = &launcher->rules;
    bool is_join = event->kind == MST_AGENT_EVENT_WAITING;
    bool is_first = rules->notice_us == INT64_MAX;
    if (event->kind == MST_AGENT_EVENT_DRAIN) {
        rules->drain_us =
            event->deadline_us < rules->drain_us ? event->deadline_us : rules->drain_us;
    }
    if (is_first) {
        rules->notice_us = sim->now_us + sim->plan.notice_us;
        rules->is_notice_for_join = is_join;
        for (uint32_t i = 0; i < launcher->count; i++) {
            launcher->processes[i].is_noticed = false;
            launcher->processes[i].has_answered = false;
        }
    }
    rules->is_notice_for_join = rules->is_notice_for_join && is_join;
    rules->notice_us = rules->drain_us < rules->notice_us ? rules->drain_us : rules->notice_us;
}

/* The notice that the agent has to give. */
static void follow_notice(struct mst__sim_auth *sim,
                          struct mst__sim_auth_launcher *launcher,
                          const struct mst__agent_event *event)
{
    struct mst__sim_launch_rules *rules = &launcher->rules;
    bool is_running = was(rules, MST_AGENT_RUNNING);
    if (event->kind == MST_AGENT_EVENT_WAITING && is_running && sim->plan.gives_way) {
        if (event->count > 0) {
            ask_to_stop(sim, launcher, event);
        } else if (rules->is_notice_for_join) {
            rules->notice_us = INT64_MAX;
            rules->is_notice_for_join = false;
        }
    } else if (is_running &&
               (event->kind == MST_AGENT_EVENT_RESTART || event->kind == MST_AGENT_EVENT_DRAIN)) {
        ask_to_stop(sim, launcher, event);
    }
    rules->must_leave = rules->must_leave || event->kind == MST_AGENT_EVENT_DRAIN ||
                        event->kind == MST_AGENT_EVENT_SIGNAL;
}

static bool have_all_answered(const struct mst__sim_auth_launcher *launcher)
{
    for (uint32_t i = 0; i < launcher->count; i++) {
        if (launcher->processes[i].lives && !launcher->processes[i].has_answered) {
            return false;
        }
    }
    return true;
}

/* Whether the agent stops its workers now because that was planned. */
static bool is_planned_stop(const struct mst__sim_auth_launcher *launcher,
                            const struct mst__agent_event *event)
{
    const struct mst__agent *agent = &launcher->agent;
    bool is_news = event->kind == MST_AGENT_EVENT_OVER || event->kind == MST_AGENT_EVENT_CLOSED ||
                   event->kind == MST_AGENT_EVENT_SIGNAL;
    return was(&launcher->rules, MST_AGENT_RUNNING) && agent->phase != MST_AGENT_RUNNING &&
           agent->phase != MST_AGENT_FINISHED && !is_news &&
           find_effect(agent, MST_AGENT_RESTART) == NULL &&
           !(agent->ends && agent->end == MST_AGENT_END_LOST);
}

static void judge_notice(struct mst__sim_auth *sim,
                         const struct mst__sim_auth_node *node,
                         const struct mst__agent_event *event)
{
    struct mst__sim_launch_rules *rules = &node->launcher->rules;
    const struct mst__agent *agent = &node->launcher->agent;
    bool is_asked = rules->notice_us != INT64_MAX;
    bool is_over = is_asked && (sim->now_us >= rules->notice_us || sim->plan.notice_us == 0 ||
                                have_all_answered(node->launcher));
    if (is_planned_stop(node->launcher, event) && !is_over) {
        mst__sim_auth_break(sim, "notice", "node %" PRIu32 " stops its workers %s", node->index,
                            is_asked ? "before their notice is over" : "for no reason");
    }
    for (size_t i = 0; i < agent->effects_count; i++) {
        const struct mst__agent_effect *effect = &agent->effects[i];
        if (effect->kind != MST_AGENT_SIGNAL || effect->worker == MST_AGENT_ALL) {
            continue;
        }
        struct mst__sim_process *process = &node->launcher->processes[effect->worker];
        if (!is_asked || !process->lives || process->is_noticed) {
            mst__sim_auth_break(sim, "notice", "node %" PRIu32 " gives a worker notice %s",
                                node->index, process->is_noticed ? "again" : "for no reason");
        }
        process->is_noticed = true;
    }
    if (agent->phase != MST_AGENT_RUNNING) {
        rules->notice_us = INT64_MAX;
        rules->is_notice_for_join = false;
    } else if (is_asked && have_all_answered(node->launcher)) {
        mst__sim_auth_break(sim, "notice", "node %" PRIu32 " waits on when all have answered",
                            node->index);
    }
}

/* --- outages --- */

static void judge_outage(struct mst__sim_auth *sim,
                         const struct mst__sim_auth_node *node,
                         const struct mst__agent_event *event)
{
    struct mst__sim_launch_rules *rules = &node->launcher->rules;
    const struct mst__agent *agent = &node->launcher->agent;
    bool has_round = was(rules, MST_AGENT_STARTING) || was(rules, MST_AGENT_RUNNING) ||
                     was(rules, MST_AGENT_FINISHED);
    if (event->kind == MST_AGENT_EVENT_CUT && has_round) {
        rules->cut_us = sim->now_us;
    } else if (event->kind == MST_AGENT_EVENT_AGAIN || find_effect(agent, MST_AGENT_WANT) != NULL ||
               find_effect(agent, MST_AGENT_RESTART) != NULL) {
        rules->cut_us = INT64_MAX;
    }
    bool is_lost = agent->ends && !rules->has_ended && agent->end == MST_AGENT_END_LOST;
    if (is_lost && (rules->cut_us == INT64_MAX || sim->now_us < rules->cut_us + sim->plan.cut_us)) {
        mst__sim_auth_break(sim, "lost", "node %" PRIu32 " gives up a rendezvous that answers",
                            node->index);
    }
}

/* --- all --- */

void mst__sim_launch_rules_before(struct mst__sim_auth_launcher *launcher)
{
    const struct mst__agent *agent = &launcher->agent;
    launcher->rules.was = agent->phase;
    launcher->rules.has_told = !agent->tells;
    launcher->rules.has_ended = agent->ends;
}

void mst__sim_launch_rules_after(struct mst__sim_auth *sim,
                                 const struct mst__sim_auth_node *node,
                                 const struct mst__agent_event *event)
{
    struct mst__sim_auth_launcher *launcher = node->launcher;
    struct mst__sim_launch_rules *rules = &launcher->rules;
    if (event->kind == MST_AGENT_EVENT_ASSIGNED && was(rules, MST_AGENT_STARTING)) {
        rules->assigned_us = sim->now_us;
        rules->restarts = event->restarts;
    }
    follow_reason(sim, launcher, event);
    follow_notice(sim, launcher, event);
    judge_give_up(sim, node);
    judge_reports(sim, node, event);
    judge_start(sim, node);
    judge_notice(sim, node, event);
    judge_outage(sim, node, event);
    if (launcher->agent.phase == MST_AGENT_STOPPING && rules->over_us == INT64_MAX) {
        rules->over_us = sim->now_us;
    }
}

void mst__sim_launch_rules_look(struct mst__sim_auth *sim, const struct mst__sim_auth_node *node)
{
    const struct mst__sim_auth_launcher *launcher = node->launcher;
    const struct mst__sim_launch_rules *rules = &launcher->rules;
    enum mst__agent_phase phase = launcher->agent.phase;
    int64_t grace_us = rules->over_us == INT64_MAX || mst__sim_launch_living(launcher) == 0
                           ? INT64_MAX
                           : rules->over_us + sim->plan.stop_grace_us;
    if (is_past(sim, node, grace_us)) {
        mst__sim_auth_break(sim, "grace", "workers of node %" PRIu32 " live on", node->index);
    }
    if (phase == MST_AGENT_RUNNING && is_past(sim, node, rules->notice_us)) {
        mst__sim_auth_break(sim, "notice", "workers of node %" PRIu32 " run on", node->index);
    }
    if (is_past(sim, node, rules->tell_us)) {
        mst__sim_auth_break(sim, "told", "node %" PRIu32 " tells its failure for ever",
                            node->index);
    }
    bool is_cut = rules->cut_us != INT64_MAX && phase == MST_AGENT_RUNNING;
    if (is_cut && is_past(sim, node, rules->cut_us + sim->plan.cut_us)) {
        mst__sim_auth_break(sim, "lost", "node %" PRIu32 " waits for ever for a rendezvous",
                            node->index);
    }
}
