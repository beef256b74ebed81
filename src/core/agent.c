/* core/agent.c - the launcher of one node: the effects of each event. */
#include "core/agent.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/number.h"
#include "core/saturate.h"

const char *mst__agent_phase_name(enum mst__agent_phase phase)
{
    static const char *const names[MST_AGENT_PHASE_COUNT] = {
#define NAME(name, text) text,
        MST_AGENT_PHASE_MAP(NAME)
#undef NAME
    };
    MST_ASSERT((size_t)phase < MST_AGENT_PHASE_COUNT);
    return names[phase];
}

const char *mst__agent_reason_name(enum mst__agent_reason reason)
{
    static const char *const names[MST_AGENT_REASON_COUNT] = {
#define NAME(name, text) text,
        MST_AGENT_REASON_MAP(NAME)
#undef NAME
    };
    MST_ASSERT((size_t)reason < MST_AGENT_REASON_COUNT);
    return names[reason];
}

const char *mst__agent_end_name(enum mst__agent_end end)
{
    static const char *const names[MST_AGENT_END_COUNT] = {
#define NAME(name, text) text,
        MST_AGENT_END_MAP(NAME)
#undef NAME
    };
    MST_ASSERT((size_t)end < MST_AGENT_END_COUNT);
    return names[end];
}

/* Whether phase @to may follow @from. */
static bool may_move(enum mst__agent_phase from, enum mst__agent_phase to)
{
#define TO(phase) (1U << MST_AGENT_##phase)
    static const unsigned allowed[MST_AGENT_PHASE_COUNT] = {
        [MST_AGENT_WAITING] = TO(STARTING) | TO(ENDED),
        [MST_AGENT_STARTING] = TO(WAITING) | TO(RUNNING) | TO(ENDED),
        [MST_AGENT_RUNNING] = TO(FINISHED) | TO(STOPPING),
        [MST_AGENT_FINISHED] = TO(WAITING) | TO(ENDED),
        [MST_AGENT_STOPPING] = TO(WAITING) | TO(TELLING) | TO(ENDED),
        [MST_AGENT_TELLING] = TO(WAITING) | TO(ENDED),
        [MST_AGENT_ENDED] = 0,
    };
#undef TO
    return (allowed[from] & 1U << to) != 0;
}

static void move_to(struct mst__agent *agent, enum mst__agent_phase phase)
{
    MST_ASSERT(may_move(agent->phase, phase));
    agent->phase = phase;
    agent->is_assigned = false;
    agent->notice_us = INT64_MAX;
    agent->kill_us = INT64_MAX;
    agent->stuck_us = INT64_MAX;
    agent->told_us = INT64_MAX;
    agent->is_killed = false;
}

static int64_t after(const struct mst__agent *agent, int64_t us)
{
    return mst__saturate_add(agent->now_us, us);
}

/* --- effects --- */

static void put(struct mst__agent *agent, struct mst__agent_effect effect)
{
    MST_ASSERT(agent->effects_count < MST_AGENT_EFFECTS_MAX);
    agent->effects[agent->effects_count++] = effect;
}

static void put_kind(struct mst__agent *agent, enum mst__agent_effect_kind kind)
{
    put(agent, (struct mst__agent_effect){.kind = kind, .worker = MST_AGENT_ALL});
}

static void put_signal(struct mst__agent *agent, uint32_t worker, uint32_t signal)
{
    put(agent,
        (struct mst__agent_effect){.kind = MST_AGENT_SIGNAL, .worker = worker, .signal = signal});
}

/* --- texts --- */

static void keep_text(char *to, size_t size, struct mst_bytes text)
{
    size_t count = text.size < size ? text.size : size - 1;
    if (count > 0) {
        memcpy(to, text.data, count);
    }
    to[count] = '\0';
}

static void keep_cause(struct mst__agent *agent, const struct mst__cause *cause)
{
    agent->cause = *cause;
    keep_text(agent->cause_node, sizeof agent->cause_node, cause->node);
    keep_text(agent->cause_text, sizeof agent->cause_text, cause->text);
    agent->cause.node = mst_bytes_str(agent->cause_node);
    agent->cause.text = mst_bytes_str(agent->cause_text);
    agent->cause.report = mst_bytes_str(""); /* the driver keeps it */
}

/* --- the end --- */

/* End as soon as no worker runs. The first reason counts, unless it is DRAINED or EXCLUDED: how the
 * job ends tells more than that this node would have left it. */
static void end_by(struct mst__agent *agent, enum mst__agent_end how)
{
    bool is_told =
        agent->ends && agent->end != MST_AGENT_END_DRAINED && agent->end != MST_AGENT_END_EXCLUDED;
    if (!is_told) {
        agent->end = how;
    }
    agent->ends = true;
}

/* Whether the job has ended, so that there is nothing to leave. */
static bool is_end_of_job(enum mst__agent_end end)
{
    return end == MST_AGENT_END_FINISHED || end == MST_AGENT_END_FAILED ||
           end == MST_AGENT_END_CLOSED;
}

static void go(struct mst__agent *agent)
{
    MST_ASSERT(agent->ends);
    move_to(agent, MST_AGENT_ENDED);
    if (!is_end_of_job(agent->end) || agent->is_alone) {
        put(agent, (struct mst__agent_effect){.kind = MST_AGENT_LEAVE,
                                              .worker = MST_AGENT_ALL,
                                              .until_us = after(agent, agent->options.leave_us)});
    }
    put_kind(agent, MST_AGENT_END);
}

/* --- reports --- */

/* Report how the work of this node has ended, or repeat that. */
static void put_report(struct mst__agent *agent, bool is_again)
{
    bool is_finish = agent->phase == MST_AGENT_FINISHED;
    agent->again_us = INT64_MAX;
    put(agent, (struct mst__agent_effect){.kind = is_finish ? MST_AGENT_FINISH : MST_AGENT_RESTART,
                                          .worker = MST_AGENT_ALL,
                                          .cause = is_finish ? NULL : &agent->cause,
                                          .is_again = is_again});
}

static void report(struct mst__agent *agent)
{
    agent->tells = true;
    if (agent->cut_us == INT64_MAX) {
        agent->silence = (struct mst_err){.code = 0};
    } /* else it is why the report may not arrive */
    put_report(agent, false);
}

/* The report has arrived, or the job has gone on without it. */
static void be_told(struct mst__agent *agent)
{
    agent->tells = false;
    agent->told_us = INT64_MAX;
    agent->again_us = INT64_MAX;
}

/* The report does not arrive: the work of this node, which has failed or is done, counts. */
static void end_alone(struct mst__agent *agent, enum mst__agent_end how)
{
    if (agent->silence.code == 0) {
        (void)mst__fail(&agent->silence, MST_ETIMEOUT, 0, "no answer in time");
    }
    agent->is_alone = true;
    if (!agent->ends) { /* else it would have left in any case */
        end_by(agent, how);
    }
    go(agent);
}

/* --- the end of this node's time --- */

/* When workers get notice of the end of this node's time; INT64_MAX = never. */
static int64_t last_notice_us(const struct mst__agent *agent)
{
    const struct mst__agent_options *options = &agent->options;
    if (options->end_us == 0 || options->notice_signal == 0) {
        return INT64_MAX;
    }
    return options->end_us > options->notice_us ? options->end_us - options->notice_us : 0;
}

/* From this time on the node enters no round; INT64_MAX = never. Its first workers may run also in
 * the time of the last notice: a short time is better than none. */
static int64_t entry_end_us(const struct mst__agent *agent)
{
    int64_t notice_us = last_notice_us(agent);
    return notice_us != INT64_MAX && agent->generation == 0 ? agent->options.end_us : notice_us;
}

/* No worker runs: there is no time left for another round. */
static void leave_in_time(struct mst__agent *agent)
{
    keep_text(agent->text, sizeof agent->text, mst_bytes_str("its time ends"));
    end_by(agent, MST_AGENT_END_DRAINED);
    go(agent);
}

/* --- stopping --- */

static void want(struct mst__agent *agent, enum mst__agent_reason reason)
{
    if (agent->now_us >= entry_end_us(agent)) {
        leave_in_time(agent);
        return;
    }
    move_to(agent, MST_AGENT_WAITING);
    be_told(agent);
    agent->cut_us = INT64_MAX; /* the wait for a round has its own limit */
    agent->reason = agent->generation == 0 ? MST_AGENT_REASON_FIRST : reason;
    put_kind(agent, MST_AGENT_WANT);
}

/* Generations fail so soon and so often that another one is useless. */
static bool has_given_up(const struct mst__agent *agent)
{
    const struct mst__agent_options *options = &agent->options;
    return options->quick_max > 0 && agent->quick_count >= options->quick_max;
}

/* Wait until the job has the report of the failure. If it may go on, that is worth as much time as
 * any outage. */
static void tell(struct mst__agent *agent)
{
    const struct mst__agent_options *options = &agent->options;
    bool is_last = agent->ends || agent->restarts >= options->restarts_max || has_given_up(agent);
    bool is_short = is_last && options->tell_us < options->cut_us;
    move_to(agent, MST_AGENT_TELLING);
    agent->told_us = after(agent, is_short ? options->tell_us : options->cut_us);
}

/* No worker runs: end, or want the next round; but first, a failure is told. A node that was asked
 * to go does not wait for that. */
static void go_on(struct mst__agent *agent, enum mst__agent_reason reason)
{
    bool is_failure = !agent->ends || agent->end == MST_AGENT_END_UNSTARTED ||
                      agent->end == MST_AGENT_END_EXCLUDED;
    if (agent->tells && is_failure) {
        tell(agent);
    } else if (agent->ends) {
        go(agent);
    } else {
        want(agent, reason);
    }
}

static void kill_all(struct mst__agent *agent)
{
    MST_ASSERT(agent->phase == MST_AGENT_STOPPING);
    agent->is_killed = true;
    agent->kill_us = INT64_MAX;
    agent->stuck_us = after(agent, agent->options.kill_us);
    put_kind(agent, MST_AGENT_KILL);
}

/* Tell all running workers to stop. @reason is that of the next generation, if the node goes on. */
static void stop(struct mst__agent *agent, enum mst__agent_reason reason, uint32_t signal)
{
    if (agent->drains && !agent->ends) {
        end_by(agent, MST_AGENT_END_DRAINED);
    }
    move_to(agent, MST_AGENT_STOPPING);
    agent->reason = reason;
    agent->kill_us = after(agent, agent->options.grace_us);
    if (agent->running_count == 0) {
        go_on(agent, reason);
    } else {
        put_signal(agent, MST_AGENT_ALL, signal);
    }
}

/* The node ends (agent->ends is set): stop the workers. */
static void stop_to_end(struct mst__agent *agent, uint32_t signal)
{
    if (agent->phase == MST_AGENT_RUNNING) {
        stop(agent, agent->reason, signal);
    } else if (agent->phase != MST_AGENT_STOPPING) {
        go(agent);
    }
}

/* --- notices --- */

static bool have_all_saved(const struct mst__agent *agent)
{
    for (uint32_t i = 0; i < agent->options.workers_count; i++) {
        const struct mst__agent_worker *worker = &agent->options.workers[i];
        if (worker->is_running && !worker->has_saved) {
            return false;
        }
    }
    return true;
}

/* The notice is over: its time has passed, or all workers have answered. */
static void end_notice(struct mst__agent *agent)
{
    stop(agent, agent->notice_reason, agent->options.stop_signal);
}

/* Stop workers without a failure: they may save their work first. */
static void plan(struct mst__agent *agent,
                 enum mst__agent_reason reason,
                 bool drains,
                 int64_t deadline_us)
{
    const struct mst__agent_options *options = &agent->options;
    bool is_first = agent->notice_us == INT64_MAX;
    int64_t until_us = is_first ? after(agent, options->notice_us) : agent->notice_us;
    agent->drains = agent->drains || drains; /* nothing that comes later takes it back */
    agent->notice_reason = reason;
    if (options->notice_signal == 0) {
        end_notice(agent);
        return;
    }
    agent->notice_us = mst__min(until_us, deadline_us);
    for (uint32_t i = 0; i < options->workers_count && is_first; i++) {
        options->workers[i].is_noticed = false;
        options->workers[i].has_saved = false;
    }
}

/* Give the worker notice, once. A worker that does not handle the signal yet would die of it. */
static void hears(struct mst__agent *agent, uint32_t index)
{
    struct mst__agent_worker *worker = &agent->options.workers[index];
    if (agent->notice_us != INT64_MAX && worker->is_running && !worker->is_noticed) {
        worker->is_noticed = true;
        put_signal(agent, index, agent->options.notice_signal);
    }
}

static void saved(struct mst__agent *agent, uint32_t index)
{
    struct mst__agent_worker *worker = &agent->options.workers[index];
    worker->has_saved = worker->is_noticed;
    if (agent->notice_us != INT64_MAX && have_all_saved(agent)) {
        end_notice(agent);
    }
}

/* --- failures --- */

/* The generation has failed, on this node or another. All nodes of the job count the same. */
static void count_failure(struct mst__agent *agent)
{
    bool is_quick = agent->now_us - agent->start_us < agent->options.quick_us;
    agent->quick_count = is_quick ? agent->quick_count + 1 : 0;
}

/* The work of this node has failed. Tell the job at once, so that other nodes stop meanwhile. An
 * outage does not end the node from now on: the report has its own limit. */
static void fail(struct mst__agent *agent, const struct mst__cause *cause)
{
    keep_cause(agent, cause);
    agent->failures++;
    report(agent);
    agent->cut_us = INT64_MAX;
    count_failure(agent);
    uint32_t exclude_max = agent->options.exclude_max;
    if (exclude_max > 0 && agent->failures >= exclude_max) {
        end_by(agent, MST_AGENT_END_EXCLUDED);
    }
    stop(agent, MST_AGENT_REASON_FAILURE, agent->options.stop_signal);
}

/* --- workers --- */

static void start(struct mst__agent *agent)
{
    move_to(agent, MST_AGENT_RUNNING);
    const struct mst__agent_options *options = &agent->options;
    for (uint32_t i = 0; i < options->workers_count; i++) {
        options->workers[i] =
            (struct mst__agent_worker){.is_running = true, .beat_us = agent->now_us};
    }
    agent->running_count = options->workers_count;
    agent->unassigned_count = 0;
    agent->generation++;
    agent->start_us = agent->now_us;
    put_kind(agent, MST_AGENT_START);
}

static void unstarted(struct mst__agent *agent, const struct mst__agent_event *event)
{
    MST_ASSERT(agent->phase == MST_AGENT_RUNNING);
    for (uint32_t i = event->worker; i < agent->options.workers_count; i++) {
        agent->options.workers[i].is_running = false;
        agent->running_count--;
    }
    agent->err = *event->err;
    end_by(agent, MST_AGENT_END_UNSTARTED);
    fail(agent, &(const struct mst__cause){
                    .rank = MST_AUTHORITY_RANK_NONE,
                    .worker = event->worker,
                    .status = event->status,
                    .wall_us = event->wall_us,
                    .text = mst_bytes_str(event->err->msg),
                });
}

static void exited(struct mst__agent *agent, const struct mst__agent_event *event)
{
    struct mst__agent_worker *worker = &agent->options.workers[event->worker];
    if (!worker->is_running) {
        return;
    }
    worker->is_running = false;
    agent->running_count--;
    bool is_last = agent->running_count == 0;
    if (agent->phase == MST_AGENT_STOPPING) {
        if (is_last) {
            go_on(agent, agent->reason);
        } /* the status of a worker that was told to stop does not count */
        return;
    }
    MST_ASSERT(agent->phase == MST_AGENT_RUNNING);
    if (event->status != 0 || event->signal != 0) {
        fail(agent, &(const struct mst__cause){
                        .rank = MST_AUTHORITY_RANK_NONE,
                        .worker = event->worker,
                        .status = event->status,
                        .signal = event->signal,
                        .wall_us = event->wall_us,
                        .text = event->text,
                    });
    } else if (agent->notice_us != INT64_MAX) {
        if (have_all_saved(agent)) {
            end_notice(agent);
        }
    } else if (is_last) {
        move_to(agent, MST_AGENT_FINISHED);
        agent->quick_count = 0;
        agent->told_us = after(agent, agent->options.tell_us);
        report(agent);
    }
}

/* When the next heartbeat of the worker is due; INT64_MAX = never. */
static int64_t beat_due_us(const struct mst__agent *agent, const struct mst__agent_worker *worker)
{
    const struct mst__agent_options *options = &agent->options;
    int64_t us = worker->has_beaten ? options->hang_us : options->startup_us;
    return worker->is_running ? mst__saturate_add(worker->beat_us, us) : INT64_MAX;
}

/* Find a worker that hangs, and fail because of it. Returns false if there is none. */
static bool find_hanging(struct mst__agent *agent, int64_t wall_us)
{
    const struct mst__agent_options *options = &agent->options;
    for (uint32_t i = 0; i < options->workers_count; i++) {
        const struct mst__agent_worker *worker = &options->workers[i];
        if (beat_due_us(agent, worker) > agent->now_us) {
            continue;
        }
        char text[80];
        int64_t us = worker->has_beaten ? options->hang_us : options->startup_us;
        (void)snprintf(text, sizeof text, "no heartbeat for %g s", (double)us / 1e6);
        fail(agent, &(const struct mst__cause){
                        .rank = MST_AUTHORITY_RANK_NONE,
                        .worker = i,
                        .wall_us = wall_us,
                        .text = mst_bytes_str(text),
                    });
        return true;
    }
    return false;
}

/* --- events --- */

/* The pause before the start; it doubles with each failure. */
static int64_t pause_us(const struct mst__agent *agent)
{
    const struct mst__agent_options *options = &agent->options;
    if (agent->reason != MST_AGENT_REASON_FAILURE) {
        return 0;
    }
    int64_t us = options->pause_us;
    for (uint32_t i = 1; i < agent->restarts && us < options->pause_us_max; i++) {
        us = mst__saturate_add(us, us);
    }
    return mst__min(us, options->pause_us_max);
}

static void assigned(struct mst__agent *agent, uint32_t restarts)
{
    if (agent->phase != MST_AGENT_STARTING || agent->is_assigned) {
        return;
    }
    agent->restarts = restarts;
    agent->is_assigned = true;
    agent->start_us = after(agent, pause_us(agent));
    if (agent->start_us <= agent->now_us) {
        start(agent);
    }
}

static void unassigned(struct mst__agent *agent, const struct mst_err *err)
{
    if (agent->phase != MST_AGENT_STARTING || agent->is_assigned) {
        return;
    }
    /* A member may be gone; the rendezvous reports that soon, or before the next attempt. */
    if (++agent->unassigned_count >= MST_AGENT_UNASSIGNED_MAX) {
        agent->err = *err;
        end_by(agent, MST_AGENT_END_REFUSED);
        go(agent);
        return;
    }
    want(agent, agent->reason);
}

/* A failure was told. If this node gives up, it closes the job now: nodes that hear of the closing
 * know the cause. */
static void told(struct mst__agent *agent)
{
    if (!agent->tells) {
        return;
    }
    be_told(agent);
    if (agent->phase == MST_AGENT_FINISHED) {
        return;
    }
    if (has_given_up(agent)) {
        put_kind(agent, MST_AGENT_CLOSE);
    }
    if (agent->phase == MST_AGENT_TELLING) {
        go_on(agent, agent->reason);
    }
}

static void untold(struct mst__agent *agent, const struct mst_err *err)
{
    if (agent->tells) {
        agent->silence = *err;
        agent->again_us = after(agent, agent->options.again_us);
    }
}

static void over(struct mst__agent *agent, const struct mst__agent_event *event)
{
    enum mst__agent_reason reason = event->reason;
    bool has_run = agent->phase == MST_AGENT_RUNNING || agent->phase == MST_AGENT_FINISHED;
    if (reason == MST_AGENT_REASON_FAILURE && event->cause != NULL) {
        keep_cause(agent, event->cause); /* the first failure, in the order of the job */
    }
    if (reason == MST_AGENT_REASON_FAILURE && has_run) {
        count_failure(agent); /* the failed node decides */
    }
    if (agent->phase == MST_AGENT_STARTING || agent->phase == MST_AGENT_FINISHED) {
        want(agent, reason);
    } else if (agent->phase == MST_AGENT_RUNNING) {
        stop(agent, reason, agent->options.stop_signal);
    } else if (agent->phase == MST_AGENT_TELLING) {
        told(agent); /* the answer to our report, or to another node's */
    }
}

static void cut(struct mst__agent *agent, const struct mst_err *err)
{
    if (agent->phase == MST_AGENT_STARTING || agent->phase == MST_AGENT_RUNNING ||
        agent->phase == MST_AGENT_FINISHED) {
        agent->err = *err;
        agent->silence = *err;
        agent->cut_us = after(agent, agent->options.cut_us);
    } else if (agent->phase == MST_AGENT_TELLING) {
        agent->silence = *err;
    }
}

static void others_wait(struct mst__agent *agent, uint32_t count)
{
    if (agent->options.on_join != MST_AGENT_JOIN_RESTART) {
        return;
    }
    bool is_noticed = agent->notice_us != INT64_MAX;
    if (agent->phase == MST_AGENT_STARTING && count > 0) {
        want(agent, MST_AGENT_REASON_JOIN);
    } else if (agent->phase == MST_AGENT_RUNNING && count > 0 && !is_noticed) {
        plan(agent, MST_AGENT_REASON_JOIN, false, INT64_MAX);
    } else if (is_noticed && count == 0 && agent->notice_reason == MST_AGENT_REASON_JOIN) {
        agent->notice_us = INT64_MAX; /* the waiting nodes are gone: nothing to stop for */
    }
}

static void closed(struct mst__agent *agent, const struct mst__agent_event *event)
{
    if (event->outcome == MST_JOB_OUTCOME_FAILED && event->cause != NULL) {
        keep_cause(agent, event->cause);
    }
    if (!agent->ends || agent->end != MST_AGENT_END_SIGNAL) {
        keep_text(agent->text, sizeof agent->text, event->text);
    }
    switch (event->outcome) {
        case MST_JOB_OUTCOME_FINISHED:
            end_by(agent, MST_AGENT_END_FINISHED);
            break;
        case MST_JOB_OUTCOME_FAILED:
            end_by(agent, MST_AGENT_END_FAILED);
            break;
        case MST_JOB_OUTCOME_ASKED:
            end_by(agent, has_given_up(agent) ? MST_AGENT_END_FAILED : MST_AGENT_END_CLOSED);
            break;
    }
    stop_to_end(agent, agent->options.stop_signal);
}

/* Workers get the signal that the agent got. Schedulers repeat theirs within milliseconds, so a
 * second one changes nothing, unless a person sent it. */
static void signalled(struct mst__agent *agent, uint32_t signal, bool hastens)
{
    bool is_second = agent->signal != 0;
    if (is_second) {
        if (hastens && agent->phase == MST_AGENT_STOPPING && !agent->is_killed) {
            kill_all(agent);
        }
        return;
    }
    agent->signal = signal;
    end_by(agent, MST_AGENT_END_SIGNAL);
    if (agent->phase == MST_AGENT_STOPPING && !agent->is_killed) {
        put_signal(agent, MST_AGENT_ALL, signal);
    }
    stop_to_end(agent, signal);
}

static void asked_to_restart(struct mst__agent *agent)
{
    if (agent->phase == MST_AGENT_RUNNING) {
        plan(agent, MST_AGENT_REASON_REQUEST, false, INT64_MAX);
    } else if (agent->phase == MST_AGENT_FINISHED) {
        want(agent, MST_AGENT_REASON_REQUEST);
    }
}

static void asked_to_leave(struct mst__agent *agent, int64_t deadline_us)
{
    if (agent->phase == MST_AGENT_RUNNING) {
        plan(agent, MST_AGENT_REASON_LEAVE, true, deadline_us);
        return;
    }
    end_by(agent, MST_AGENT_END_DRAINED);
    stop_to_end(agent, agent->options.stop_signal);
}

/* Killed workers do not end. That tells more than why they had to, unless the job is over. */
static void leave_workers(struct mst__agent *agent)
{
    agent->is_stuck = true;
    if (!agent->ends || !is_end_of_job(agent->end)) {
        agent->end = MST_AGENT_END_STUCK;
    }
    agent->ends = true;
    go(agent);
}

static void pass(struct mst__agent *agent, int64_t wall_us)
{
    if (agent->now_us >= agent->cut_us) {
        agent->cut_us = INT64_MAX;
        if (agent->phase == MST_AGENT_FINISHED) { /* success stays success */
            end_alone(agent, MST_AGENT_END_FINISHED);
            return;
        }
        end_by(agent, MST_AGENT_END_LOST);
        stop_to_end(agent, agent->options.stop_signal);
        return;
    }
    switch (agent->phase) {
        case MST_AGENT_WAITING:
        case MST_AGENT_STARTING:
            if (agent->now_us >= entry_end_us(agent)) {
                leave_in_time(agent);
            } else if (agent->is_assigned && agent->now_us >= agent->start_us) {
                start(agent);
            }
            return;
        case MST_AGENT_RUNNING:
            if (find_hanging(agent, wall_us)) {
                return;
            }
            if (agent->now_us >= agent->notice_us) {
                end_notice(agent);
            } else if (agent->now_us >= last_notice_us(agent) && !agent->drains) {
                plan(agent, MST_AGENT_REASON_LEAVE, true, agent->options.end_us);
            }
            return;
        case MST_AGENT_STOPPING:
            if (agent->now_us >= agent->kill_us) {
                kill_all(agent);
            } else if (agent->now_us >= agent->stuck_us) {
                leave_workers(agent);
            }
            return;
        case MST_AGENT_FINISHED:
        case MST_AGENT_TELLING:
            if (agent->now_us >= agent->told_us) {
                bool is_finish = agent->phase == MST_AGENT_FINISHED;
                end_alone(agent, is_finish ? MST_AGENT_END_FINISHED : MST_AGENT_END_FAILED);
            } else if (agent->now_us >= agent->again_us) {
                put_report(agent, true);
            }
            return;
        case MST_AGENT_ENDED:
            return;
    }
}

static void step_worker(struct mst__agent *agent, const struct mst__agent_event *event)
{
    MST_ASSERT(event->worker < agent->options.workers_count);
    struct mst__agent_worker *worker = &agent->options.workers[event->worker];
    if (event->kind == MST_AGENT_EVENT_EXITED) {
        exited(agent, event);
    } else if (event->kind == MST_AGENT_EVENT_BEAT) {
        worker->has_beaten = true;
        worker->beat_us = agent->now_us;
    } else if (event->kind == MST_AGENT_EVENT_HEARS) {
        hears(agent, event->worker);
    } else {
        saved(agent, event->worker);
    }
}

static void step_round(struct mst__agent *agent, const struct mst__agent_event *event)
{
    switch (event->kind) {
        case MST_AGENT_EVENT_SEALED:
            if (agent->phase == MST_AGENT_WAITING) {
                move_to(agent, MST_AGENT_STARTING);
                put_kind(agent, MST_AGENT_ASSIGN);
            }
            return;
        case MST_AGENT_EVENT_REFUSED:
            if (agent->phase == MST_AGENT_WAITING) {
                agent->err = *event->err;
                end_by(agent, MST_AGENT_END_REFUSED);
                go(agent);
            }
            return;
        case MST_AGENT_EVENT_ASSIGNED:
            assigned(agent, event->restarts);
            return;
        case MST_AGENT_EVENT_UNASSIGNED:
            unassigned(agent, event->err);
            return;
        case MST_AGENT_EVENT_TOLD:
            told(agent);
            return;
        case MST_AGENT_EVENT_UNTOLD:
            untold(agent, event->err);
            return;
        case MST_AGENT_EVENT_OVER:
            over(agent, event);
            return;
        case MST_AGENT_EVENT_WAITING:
            others_wait(agent, event->count);
            return;
        case MST_AGENT_EVENT_CUT:
            cut(agent, event->err);
            return;
        case MST_AGENT_EVENT_AGAIN:
            agent->cut_us = INT64_MAX;
            return;
        default:
            MST_ASSERT(event->kind == MST_AGENT_EVENT_CLOSED);
            closed(agent, event);
            return;
    }
}

void mst__agent_step(struct mst__agent *agent, const struct mst__agent_event *event)
{
    agent->effects_count = 0;
    agent->now_us = mst__max(event->now_us, agent->now_us);
    if (agent->phase == MST_AGENT_ENDED) {
        return;
    }
    switch (event->kind) {
        case MST_AGENT_EVENT_TIME:
            break;
        case MST_AGENT_EVENT_UNSTARTED:
            unstarted(agent, event);
            return;
        case MST_AGENT_EVENT_EXITED:
        case MST_AGENT_EVENT_BEAT:
        case MST_AGENT_EVENT_HEARS:
        case MST_AGENT_EVENT_SAVED:
            step_worker(agent, event);
            return;
        case MST_AGENT_EVENT_SIGNAL:
            signalled(agent, event->signal, event->hastens);
            return;
        case MST_AGENT_EVENT_RESTART:
            asked_to_restart(agent);
            return;
        case MST_AGENT_EVENT_DRAIN:
            asked_to_leave(agent, event->deadline_us);
            return;
        default:
            step_round(agent, event);
            return;
    }
    pass(agent, event->wall_us);
}

int64_t mst__agent_due_us(const struct mst__agent *agent)
{
    int64_t due_us = INT64_MAX;
    if (agent->phase == MST_AGENT_WAITING || agent->phase == MST_AGENT_STARTING) {
        due_us = entry_end_us(agent);
        due_us = agent->is_assigned && agent->start_us < due_us ? agent->start_us : due_us;
    } else if (agent->phase == MST_AGENT_STOPPING) {
        due_us = mst__min(agent->kill_us, agent->stuck_us);
    } else if (agent->phase == MST_AGENT_RUNNING) {
        int64_t end_us = agent->drains ? INT64_MAX : last_notice_us(agent);
        due_us = mst__min(agent->notice_us, end_us);
        for (uint32_t i = 0; i < agent->options.workers_count; i++) {
            int64_t beat_us = beat_due_us(agent, &agent->options.workers[i]);
            due_us = mst__min(beat_us, due_us);
        }
    } else if (agent->phase == MST_AGENT_FINISHED || agent->phase == MST_AGENT_TELLING) {
        due_us = mst__min(agent->told_us, agent->again_us);
    }
    return mst__min(due_us, agent->cut_us);
}

void mst__agent_init(struct mst__agent *agent,
                     const struct mst__agent_options *options,
                     int64_t now_us)
{
    MST_ASSERT(options->workers_count > 0);
    MST_ASSERT(options->stop_signal > 0);
    MST_ASSERT(options->notice_signal == 0 || options->notice_us > 0);
    *agent = (struct mst__agent){
        .options = *options,
        .phase = MST_AGENT_WAITING,
        .now_us = now_us,
        .notice_us = INT64_MAX,
        .kill_us = INT64_MAX,
        .stuck_us = INT64_MAX,
        .cut_us = INT64_MAX,
        .told_us = INT64_MAX,
        .again_us = INT64_MAX,
    };
    memset(options->workers, 0, options->workers_count * sizeof *options->workers);
    put_kind(agent, MST_AGENT_WANT);
}

const char *mst__agent_flaw(const struct mst__agent *agent)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < agent->options.workers_count; i++) {
        running += agent->options.workers[i].is_running;
    }
    bool is_active = agent->phase == MST_AGENT_RUNNING || agent->phase == MST_AGENT_STOPPING;
    bool is_stopping = agent->phase == MST_AGENT_STOPPING;
    if (running != agent->running_count) {
        return "its workers are not counted right";
    }
    if (running > 0 && !is_active && !agent->is_stuck) {
        return "workers run, and it does not know of them";
    }
    if (running == 0 && is_active) {
        return "no worker runs, and it waits for one";
    }
    bool is_telling = agent->phase == MST_AGENT_TELLING;
    if (agent->ends != (agent->phase == MST_AGENT_ENDED) && !is_stopping && !is_telling) {
        return "it ends, and goes on";
    }
    if (is_telling && !agent->tells) {
        return "it waits for a report that has arrived";
    }
    if (agent->tells && (is_telling || agent->phase == MST_AGENT_FINISHED) &&
        agent->told_us == INT64_MAX) {
        return "it waits for a report for ever";
    }
    if (agent->is_alone && agent->silence.code == 0) {
        return "it ends alone, and does not know why";
    }
    if (agent->phase != MST_AGENT_RUNNING && agent->notice_us != INT64_MAX) {
        return "a notice is given to nobody";
    }
    if (agent->drains && !agent->ends && agent->notice_us == INT64_MAX) {
        return "it has to leave, and forgot it";
    }
    if (is_stopping && (agent->kill_us == INT64_MAX) != agent->is_killed) {
        return "nobody kills its workers";
    }
    return NULL;
}

void mst__agent_check(const struct mst__agent *agent)
{
    MST_ASSERT(mst__agent_flaw(agent) == NULL);
}
