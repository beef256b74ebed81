/* sim/authority/launch.c - launchers: the product's agent machine on top of a node's member
 * machine, with workers that succeed, fail, hang, stop slowly or not at all.
 *
 * Rules: a generation starts after the end of the last one ("generation"), with the restarts that
 * the checker has counted ("restarts"). A node finishes when all its workers have finished
 * ("told"). A failed job has the decided cause ("outcome"). The machine finds no flaw in itself
 * ("agent"). More rules are in launch_rules.c. That all nodes end is covered by other rules. */
#include <inttypes.h>

#include "base/assert.h"
#include "base/mem.h"
#include "sim/authority/launch.h"

#define SECOND_US MST_SIM_SECOND_US

static void step(struct mst__sim_auth *sim,
                 struct mst__sim_auth_node *node,
                 struct mst__agent_event event);

/* --- workers --- */

uint32_t mst__sim_launch_living(const struct mst__sim_auth_launcher *launcher)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < launcher->count; i++) {
        count += launcher->processes[i].lives;
    }
    return count;
}

static void start_workers(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    struct mst__sim_auth_launcher *launcher = node->launcher;
    const struct mst__sim_auth_plan *plan = &sim->plan;
    mst__sim_auth_say(sim, node->index,
                      "starts generation %" PRIu32 " as rank %" PRIu32 " of round %" PRId64,
                      launcher->agent.generation, launcher->rank, launcher->round);
    if (mst__sim_launch_living(launcher) > 0) {
        mst__sim_auth_break(sim, "generation", "node %" PRIu32 " starts workers beside old ones",
                            node->index);
    }
    mst__sim_auth_launch_check_restarts(sim, node, launcher->epoch, launcher->round,
                                        launcher->agent.restarts);
    for (uint32_t i = 0; i < launcher->count; i++) {
        bool hangs =
            !sim->is_calm && plan->hang_us != INT64_MAX && mst__sim_auth_chance(sim, 50000);
        launcher->processes[i] = (struct mst__sim_process){
            .lives = true,
            .fails = !sim->is_calm && mst__sim_auth_chance(sim, plan->fail_ppm / launcher->count),
            .is_stubborn = !sim->is_calm && mst__sim_auth_chance(sim, 100000),
            .answer_us = INT64_MAX,
            .end_us =
                hangs ? INT64_MAX : sim->now_us + 1 + mst__sim_auth_below(sim, plan->work_us_max),
        };
    }
    if (!sim->is_calm && mst__sim_auth_chance(sim, 5000)) {
        struct mst_err err = {.code = MST_ESYS, .msg = "no such program"};
        uint32_t failed = (uint32_t)mst__sim_auth_below(sim, launcher->count);
        for (uint32_t i = failed; i < launcher->count; i++) {
            launcher->processes[i].lives = false;
        }
        step(sim, node,
             (struct mst__agent_event){.kind = MST_AGENT_EVENT_UNSTARTED,
                                       .worker = failed,
                                       .status = ++sim->failures,
                                       .err = &err});
    }
}

/* Some workers answer a notice; half of them, so that chance is not needed. */
static void notify_worker(struct mst__sim_auth *sim,
                          struct mst__sim_auth_node *node,
                          uint32_t worker)
{
    struct mst__sim_process *process = &node->launcher->processes[worker];
    bool answers = (node->index + node->launcher->agent.generation) % 2 == 0;
    if (answers && !process->is_stubborn) {
        process->answer_us = sim->now_us + 1 + sim->plan.stop_us_max / (2 + (int64_t)worker);
    }
}

static void signal_workers(struct mst__sim_auth *sim,
                           struct mst__sim_auth_launcher *launcher,
                           uint32_t signal)
{
    for (uint32_t i = 0; i < launcher->count; i++) {
        struct mst__sim_process *process = &launcher->processes[i];
        if (process->lives && !process->is_stubborn) {
            int64_t end_us = sim->now_us + mst__sim_auth_below(sim, sim->plan.stop_us_max + 1);
            process->end_us = end_us < process->end_us ? end_us : process->end_us;
            process->signal = signal;
        }
    }
}

static void kill_workers(struct mst__sim_auth *sim, struct mst__sim_auth_launcher *launcher)
{
    for (uint32_t i = 0; i < launcher->count; i++) {
        struct mst__sim_process *process = &launcher->processes[i];
        int64_t end_us = sim->now_us + mst__sim_auth_below(sim, MST_SIM_LAUNCH_KILLED_US);
        if (process->lives && process->end_us > end_us) {
            process->end_us = end_us;
            process->signal = 9;
        }
    }
}

static void end_worker(struct mst__sim_auth *sim, struct mst__sim_auth_node *node, uint32_t worker)
{
    struct mst__sim_process *process = &node->launcher->processes[worker];
    bool has_failed = process->fails && process->signal == 0;
    process->lives = false;
    step(sim, node,
         (struct mst__agent_event){.kind = MST_AGENT_EVENT_EXITED,
                                   .worker = worker,
                                   .status = has_failed ? ++sim->failures : 0,
                                   .signal = process->signal,
                                   .wall_us = sim->now_us});
}

/* --- the end --- */

static void end(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    struct mst__sim_auth_launcher *launcher = node->launcher;
    enum mst__agent_end how = launcher->agent.end;
    mst__sim_auth_say(sim, node->index, "ends: %s", mst__agent_end_name(how));
    if (mst__sim_launch_living(launcher) > 0 && how != MST_AGENT_END_STUCK) {
        mst__sim_auth_break(sim, "generation", "node %" PRIu32 " ends before its workers",
                            node->index);
    }
    bool is_told = !launcher->agent.is_alone; /* else it goes away, and the job may go on */
    if (is_told && (how == MST_AGENT_END_FINISHED || how == MST_AGENT_END_FAILED ||
                    how == MST_AGENT_END_CLOSED)) {
        if (how == MST_AGENT_END_FAILED) {
            mst__sim_launch_rules_failed(sim, node);
        }
        mst__sim_auth_node_ended(sim, node);
        return;
    }
    node->app = MST_SIM_AUTH_AWAY;
    mst__sim_auth_node_come(sim, node, 1 + launcher->away_us);
}

/* --- effects --- */

/* Report a failure. Its number is the status of the worker; a hanging worker has no status, and the
 * failure gets a new number. */
static void restart(struct mst__sim_auth *sim,
                    struct mst__sim_auth_node *node,
                    const struct mst__cause *cause)
{
    struct mst__cause told = *cause;
    told.status = told.status == 0 ? ++sim->failures : told.status;
    told.report = told.text;
    mst__sim_auth_say(sim, node->index, "fails, number %" PRId32, told.status);
    mst__sim_auth_member_step(
        sim, node, (struct mst__member_event){.kind = MST_MEMBER_EVENT_RESTART, .cause = &told});
}

static void carry_out(struct mst__sim_auth *sim,
                      struct mst__sim_auth_node *node,
                      const struct mst__agent_effect *effect)
{
    struct mst__sim_auth_launcher *launcher = node->launcher;
    switch (effect->kind) {
        case MST_AGENT_WANT:
            launcher->inbox_count = 0; /* news of the last round */
            launcher->assign_us = INT64_MAX;
            node->app = MST_SIM_AUTH_JOINING;
            /* Engine etcd-v3: the news of the end comes only once, and may have been dropped. */
            node->has_to_read = node->has_to_read || node->round != NULL;
            mst__sim_auth_member_want(sim, node);
            return;
        case MST_AGENT_ASSIGN:
            launcher->assign_us =
                sim->now_us + mst__sim_auth_below(sim, 10 * sim->plan.latency_us + 1);
            launcher->assign_fails = !sim->is_calm && mst__sim_auth_chance(sim, 10000);
            return;
        case MST_AGENT_START:
            start_workers(sim, node);
            return;
        case MST_AGENT_SIGNAL:
            if (effect->worker != MST_AGENT_ALL) {
                notify_worker(sim, node, effect->worker);
            } else {
                signal_workers(sim, launcher, effect->signal);
            }
            return;
        case MST_AGENT_KILL:
            kill_workers(sim, launcher);
            return;
        case MST_AGENT_FINISH:
            if (mst__sim_launch_living(launcher) > 0) {
                mst__sim_auth_break(sim, "told", "node %" PRIu32 " has finished, its workers not",
                                    node->index);
            }
            mst__sim_auth_member_step(sim, node,
                                      (struct mst__member_event){.kind = MST_MEMBER_EVENT_FINISH});
            return;
        case MST_AGENT_RESTART:
            restart(sim, node, effect->cause);
            return;
        case MST_AGENT_CLOSE:
            mst__sim_auth_node_shut(sim, node);
            return;
        case MST_AGENT_LEAVE:
            node->app = MST_SIM_AUTH_AWAY;
            mst__sim_auth_member_leave(sim, node);
            return;
        case MST_AGENT_END:
            end(sim, node);
            return;
    }
}

static void step(struct mst__sim_auth *sim,
                 struct mst__sim_auth_node *node,
                 struct mst__agent_event event)
{
    struct mst__sim_auth_launcher *launcher = node->launcher;
    struct mst__agent_effect effects[MST_AGENT_EFFECTS_MAX];
    enum mst__agent_phase before = launcher->agent.phase;
    event.now_us = sim->now_us;
    mst__sim_launch_rules_before(launcher);
    mst__agent_step(&launcher->agent, &event);
    const char *flaw = mst__agent_flaw(&launcher->agent);
    if (flaw != NULL) {
        mst__sim_auth_break(sim, "agent", "node %" PRIu32 ": %s", node->index, flaw);
        return;
    }
    if (launcher->agent.phase != before) {
        mst__sim_auth_say(sim, node->index, "is %s", mst__agent_phase_name(launcher->agent.phase));
    }
    mst__sim_launch_rules_after(sim, node, &event);
    size_t count = launcher->agent.effects_count;
    for (size_t i = 0; i < count; i++) {
        effects[i] = launcher->agent.effects[i];
    }
    for (size_t i = 0; i < count && !sim->is_over; i++) {
        carry_out(sim, node, &effects[i]);
    }
    for (uint32_t i = 0; i < launcher->count && launcher->agent.notice_us != INT64_MAX; i++) {
        if (!launcher->workers[i].is_noticed && launcher->processes[i].lives) {
            step(sim, node, (struct mst__agent_event){.kind = MST_AGENT_EVENT_HEARS, .worker = i});
        }
    }
}

/* --- what it is told --- */

static void tell(struct mst__sim_auth *sim,
                 struct mst__sim_auth_node *node,
                 struct mst__agent_event event,
                 const struct mst__job_end *end)
{
    struct mst__sim_auth_launcher *launcher = node->launcher;
    if (launcher->agent.phase == MST_AGENT_ENDED) {
        return;
    }
    size_t at = 0; /* untaken news are merged with new ones, as in a handler */
    while (at < launcher->inbox_count && launcher->inbox[at].event.kind != event.kind) {
        at++;
    }
    MST_ASSERT(at < MST_SIM_LAUNCH_INBOX_MAX);
    launcher->inbox_count += at == launcher->inbox_count;
    struct mst__sim_news *news = &launcher->inbox[at];
    *news = (struct mst__sim_news){.event = event};
    if (end != NULL && end->has_cause) {
        news->has_cause = true;
        news->cause = end->cause;
        news->cause.node = mst_bytes_str("");
        news->cause.text = mst_bytes_str("");
    }
    if (launcher->inbox_count == 1) {
        launcher->take_us = sim->now_us + mst__sim_auth_below(sim, sim->plan.reaction_us_max + 1);
    }
    mst__sim_auth_node_arm(sim, node);
}

void mst__sim_auth_launch_sealed(struct mst__sim_auth *sim,
                                 struct mst__sim_auth_node *node,
                                 const struct mst__job_round *round)
{
    struct mst__sim_auth_launcher *launcher = node->launcher;
    launcher->restarts = round->restarts;
    launcher->epoch = round->epoch;
    launcher->round = round->round;
    launcher->rank = round->rank;
    tell(sim, node, (struct mst__agent_event){.kind = MST_AGENT_EVENT_SEALED}, NULL);
}

void mst__sim_auth_launch_failed(struct mst__sim_auth *sim,
                                 struct mst__sim_auth_node *node,
                                 const struct mst__member_effect *effect)
{
    static const struct mst_err refused = {.code = MST_ETIMEOUT};
    int code = effect->err->code;
    struct mst__agent_event event = {.kind = MST_AGENT_EVENT_REFUSED, .err = &refused};
    if (code == MST_ECLOSED || code == MST_ESPARE || code == MST_EFINISHED) {
        event.kind = MST_AGENT_EVENT_CLOSED;
        event.outcome = effect->end != NULL   ? (enum mst__job_outcome)effect->end->outcome
                        : code == MST_ECLOSED ? MST_JOB_OUTCOME_ASKED
                                              : MST_JOB_OUTCOME_FINISHED;
    }
    tell(sim, node, event, effect->end);
}

void mst__sim_auth_launch_notice(struct mst__sim_auth *sim,
                                 struct mst__sim_auth_node *node,
                                 const struct mst__member_effect *effect)
{
    static const struct mst_err cut = {.code = MST_ECONN};
    struct mst__agent_event event = {.kind = MST_AGENT_EVENT_OVER,
                                     .reason = MST_AGENT_REASON_LEAVE};
    const struct mst__job_end *end = NULL;
    switch (effect->notice) {
        case MST_MEMBER_NOTICE_CUT:
            event = (struct mst__agent_event){.kind = MST_AGENT_EVENT_CUT, .err = &cut};
            break;
        case MST_MEMBER_NOTICE_AGAIN:
            event.kind = MST_AGENT_EVENT_AGAIN;
            break;
        case MST_MEMBER_NOTICE_STANDBY:
        case MST_MEMBER_NOTICE_UNSAID:
            return;
        case MST_MEMBER_NOTICE_LOST:
        case MST_MEMBER_NOTICE_EXPELLED:
            break;
        case MST_MEMBER_NOTICE_REOPENED:
            end = &effect->message->u.reopened.end;
            event.reason = end->has_cause ? MST_AGENT_REASON_FAILURE : MST_AGENT_REASON_JOIN;
            break;
        case MST_MEMBER_NOTICE_WAITING:
            event = (struct mst__agent_event){.kind = MST_AGENT_EVENT_WAITING,
                                              .count = effect->message->u.waiting.count};
            break;
        case MST_MEMBER_NOTICE_CLOSED:
            end = effect->end;
            event = (struct mst__agent_event){.kind = MST_AGENT_EVENT_CLOSED,
                                              .outcome = (enum mst__job_outcome)end->outcome};
            break;
    }
    tell(sim, node, event, end);
}

void mst__sim_auth_launch_heard(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (node->launcher->agent.tells && mst__member_is_heard(&node->member)) {
        tell(sim, node, (struct mst__agent_event){.kind = MST_AGENT_EVENT_TOLD}, NULL);
    }
}

void mst__sim_auth_launch_ask(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    tell(sim, node, (struct mst__agent_event){.kind = MST_AGENT_EVENT_RESTART}, NULL);
}

void mst__sim_auth_launch_signal(struct mst__sim_auth *sim,
                                 struct mst__sim_auth_node *node,
                                 int64_t away_us)
{
    node->launcher->away_us = away_us;
    struct mst__agent_event event = {.kind = MST_AGENT_EVENT_SIGNAL, .signal = 15};
    if (mst__sim_auth_chance(sim, 300000)) {
        event = (struct mst__agent_event){.kind = MST_AGENT_EVENT_DRAIN,
                                          .deadline_us = sim->now_us + SECOND_US};
    }
    step(sim, node, event);
    mst__sim_auth_node_arm(sim, node);
}

/* --- time --- */

int64_t mst__sim_auth_launch_due_us(const struct mst__sim_auth_node *node)
{
    const struct mst__sim_auth_launcher *launcher = node->launcher;
    if (launcher == NULL || launcher->agent.phase == MST_AGENT_ENDED) {
        return INT64_MAX;
    }
    int64_t due_us = mst__agent_due_us(&launcher->agent);
    due_us = launcher->assign_us < due_us ? launcher->assign_us : due_us;
    if (launcher->inbox_count > 0 && launcher->take_us < due_us) {
        due_us = launcher->take_us;
    }
    for (uint32_t i = 0; i < launcher->count; i++) {
        const struct mst__sim_process *process = &launcher->processes[i];
        due_us = process->lives && process->end_us < due_us ? process->end_us : due_us;
        due_us = process->lives && process->answer_us < due_us ? process->answer_us : due_us;
    }
    return due_us;
}

static void take(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    struct mst__sim_auth_launcher *launcher = node->launcher;
    while (launcher->inbox_count > 0 && !sim->is_over) {
        struct mst__sim_news news = launcher->inbox[0];
        for (size_t i = 1; i < launcher->inbox_count; i++) {
            launcher->inbox[i - 1] = launcher->inbox[i];
        }
        launcher->inbox_count--;
        news.event.cause = news.has_cause ? &news.cause : NULL;
        step(sim, node, news.event);
    }
}

static void assigned(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    static const struct mst_err err = {.code = MST_ETIMEOUT};
    struct mst__sim_auth_launcher *launcher = node->launcher;
    launcher->assign_us = INT64_MAX;
    step(sim, node,
         (struct mst__agent_event){.kind = launcher->assign_fails ? MST_AGENT_EVENT_UNASSIGNED
                                                                  : MST_AGENT_EVENT_ASSIGNED,
                                   .restarts = (uint32_t)launcher->restarts,
                                   .err = &err});
}

void mst__sim_auth_launch_wake(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    struct mst__sim_auth_launcher *launcher = node->launcher;
    for (uint32_t i = 0; i < launcher->count; i++) {
        struct mst__sim_process *process = &launcher->processes[i];
        if (process->lives && process->end_us <= sim->now_us) {
            end_worker(sim, node, i);
        } else if (process->lives && process->answer_us <= sim->now_us) {
            process->answer_us = INT64_MAX;
            process->has_answered = true;
            step(sim, node, (struct mst__agent_event){.kind = MST_AGENT_EVENT_SAVED, .worker = i});
        }
    }
    if (launcher->assign_us <= sim->now_us) {
        assigned(sim, node);
    }
    if (launcher->inbox_count > 0 && launcher->take_us <= sim->now_us) {
        take(sim, node);
    }
    if (mst__agent_due_us(&launcher->agent) <= sim->now_us) {
        step(sim, node, (struct mst__agent_event){.kind = MST_AGENT_EVENT_TIME});
    }
    mst__sim_launch_rules_look(sim, node);
}

/* --- life --- */

void mst__sim_auth_launch_begin(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    const struct mst__sim_auth_plan *plan = &sim->plan;
    struct mst__sim_auth_launcher *launcher = mst__calloc(1, sizeof *launcher);
    MST_ASSERT(launcher != NULL);
    node->launcher = launcher;
    launcher->count = 1 + node->index % MST_SIM_LAUNCH_WORKERS_MAX;
    launcher->assign_us = INT64_MAX;
    mst__sim_launch_rules_init(&launcher->rules);
    const struct mst__agent_options options = {
        .workers = launcher->workers,
        .workers_count = launcher->count,
        .stop_signal = 15,
        .grace_us = plan->stop_grace_us,
        .kill_us = SECOND_US,
        .on_join = plan->gives_way ? MST_AGENT_JOIN_RESTART : MST_AGENT_JOIN_NEXT_RESTART,
        .notice_signal = plan->notice_us > 0 ? 10 : 0,
        .notice_us = plan->notice_us,
        .startup_us = plan->hang_us,
        .hang_us = plan->hang_us,
        .pause_us = plan->pause_us,
        .pause_us_max = 4 * plan->pause_us,
        .quick_us = plan->quick_max > 0 ? MST_SIM_LAUNCH_QUICK_US : 0,
        .quick_max = plan->quick_max,
        .cut_us = plan->cut_us,
        .tell_us = MST_SIM_LAUNCH_TELL_US,
        .again_us = SECOND_US / 2,
        .leave_us = 2 * SECOND_US,
        .restarts_max = plan->budget.is_limited ? plan->budget.restarts_max : UINT32_MAX,
    };
    mst__agent_init(&launcher->agent, &options, sim->now_us);
    struct mst__agent_effect want = launcher->agent.effects[0];
    carry_out(sim, node, &want);
    mst__sim_auth_node_arm(sim, node);
}

void mst__sim_auth_launch_free(struct mst__sim_auth_node *node)
{
    mst__free(node->launcher);
    node->launcher = NULL;
}
