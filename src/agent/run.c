/* agent/run.c - the loop of a launcher: feeds events to the machine and carries out its effects. */
#include "agent/run.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/report.h"
#include "agent/run_self.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"

/* --- events for programs --- */

static void note_phase(struct mst__run *run)
{
    struct mst__json_writer *line = mst__events_begin(&run->events, "phase");
    if (line != NULL) {
        mst__json_put_text(line, "phase", mst_bytes_str(mst__agent_phase_name(run->agent.phase)));
        mst__json_put_text(line, "reason",
                           mst_bytes_str(mst__agent_reason_name(run->agent.reason)));
        mst__json_put_number(line, "generation", run->agent.generation);
        mst__json_put_number(line, "round", run->round.round);
        mst__json_put_number(line, "restarts", run->agent.restarts);
        mst__events_end(&run->events);
    }
}

/* --- news for the user --- */

static void tell_wait(struct mst__run *run)
{
    const struct mst__agent *agent = &run->agent;
    bool is_waiting = agent->phase == MST_AGENT_WAITING;
    bool is_late = agent->end == MST_AGENT_END_REFUSED && agent->err.code == MST_ETIMEOUT;
    if (run->options->on_wait != NULL && is_waiting != run->is_waiting) {
        run->is_waiting = is_waiting;
        run->options->on_wait(run->options->on_wait_arg, is_waiting, is_late);
    }
}

/* The phase has changed from @before. */
static void tell_phase(struct mst__run *run, enum mst__agent_phase before)
{
    bool had_round =
        before == MST_AGENT_STARTING || before == MST_AGENT_RUNNING || before == MST_AGENT_FINISHED;
    bool stops = run->agent.phase == MST_AGENT_STOPPING || run->agent.phase == MST_AGENT_WAITING;
    note_phase(run);
    tell_wait(run);
    if (had_round && stops && !run->agent.ends) {
        mst__run_tell_stop(run);
    }
}

/* --- effects --- */

static void want(struct mst__run *run)
{
    mst__run_drop_assign(run);
    run->was_asked = false;
    if (run->agent.reason == MST_AGENT_REASON_JOIN && mst__run_is_shared(run)) {
        mst__run_call(run, mst__run_call_new(run, MST_CALL_WHY));
    }
    struct mst__call *call = mst__run_call_new(run, MST_CALL_BEGIN);
    if (run->calls == NULL) {
        mst__run_call_now(run, call); /* does not block */
    } else {
        mst__run_call(run, call); /* after the pending calls */
    }
}

/* The round is complete: get the ranks of its workers. */
static void assign(struct mst__run *run)
{
    struct mst__call *call = mst__run_call_new(run, MST_CALL_ASSIGN);
    struct mst_err err;
    mst_rendezvous_init(&call->round, sizeof call->round);
    if (mst_handler_round(run->handler, &call->round, &err) != 0) {
        mst__free(call);
        mst__run_step(run,
                      (struct mst__agent_event){.kind = MST_AGENT_EVENT_UNASSIGNED, .err = &err});
        return;
    }
    run->assigning = call;
    bool has_ranks = call->round.workers > 0 || call->round.world_size == 1;
    if (has_ranks && call->round.master_port != 0) {
        mst__run_call_now(run, call); /* does not block */
    } else {
        mst__run_call(run, call);
    }
}

/* The work of this node is done. In a standalone job only this process's own server must know, and
 * nothing else runs meanwhile. */
static void finish(struct mst__run *run)
{
    struct mst__call *call = mst__run_call_new(run, MST_CALL_FINISH);
    if (run->settings->is_standalone && run->calls == NULL) {
        mst__run_call_now(run, call);
    } else {
        mst__run_call(run, call);
    }
}

static void restart(struct mst__run *run, const struct mst__agent_effect *effect)
{
    const struct mst__cause *cause = effect->cause;
    struct mst__call *call = mst__run_call_new(run, MST_CALL_RESTART);
    if (!effect->is_again) {
        run->is_untold_said = false;
        mst__run_tell_failure(run, cause);
    }
    mst_failure_init(&call->failure, sizeof call->failure);
    mst__run_describe(run, cause, call->text);
    call->failure.worker = cause->worker;
    call->failure.exit_status = cause->status;
    call->failure.signal = (int)cause->signal;
    call->failure.time_us = cause->wall_us;
    call->failure.text = call->text;
    mst__report_shorten(mst__buf_bytes(&run->block), call->report, sizeof call->report);
    call->failure.report = call->report;
    mst__run_call(run, call);
}

static void end(struct mst__run *run)
{
    run->is_ended = true;
    mst__run_drop_assign(run); /* the others may never say their roles */
    if (run->calls == NULL) {
        uv_stop(&run->loop);
    }
}

static void carry_out(struct mst__run *run, const struct mst__agent_effect *effect)
{
    switch (effect->kind) {
        case MST_AGENT_WANT:
            want(run);
            return;
        case MST_AGENT_ASSIGN:
            assign(run);
            return;
        case MST_AGENT_START:
            mst__run_tell_start(run);
            mst__run_start(run);
            return;
        case MST_AGENT_SIGNAL:
            if (run->agent.notice_us != INT64_MAX) {
                mst__run_forget_ack(run, effect->worker);
            }
            mst__group_signal(&run->group, effect->worker, (int)effect->signal);
            return;
        case MST_AGENT_KILL:
            mst__group_kill(&run->group);
            return;
        case MST_AGENT_FINISH:
            finish(run);
            return;
        case MST_AGENT_RESTART:
            restart(run, effect);
            return;
        case MST_AGENT_CLOSE:
            mst__run_call(run, mst__run_call_new(run, MST_CALL_CLOSE));
            return;
        case MST_AGENT_LEAVE:
            mst__run_leave(run, effect->until_us);
            return;
        case MST_AGENT_END:
            end(run);
            return;
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct mst__run *run = timer->data;
    mst__run_look_beats(run);
    bool was_drained = run->agent.drains;
    mst__run_step(run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_TIME});
    if (!was_drained && run->agent.drains) {
        mst__run_say(run, "muster: the time of this node ends in %lld s; workers get notice",
                     (long long)(run->agent.options.end_us - mst__clock_us()) / 1000000);
    }
}

/* Nodes that wait for the workers to stop may go meanwhile. Notices only tell of more of them. */
static void look_waiting(struct mst__run *run)
{
    const struct mst__agent *agent = &run->agent;
    bool is_join = agent->notice_us != INT64_MAX && agent->notice_reason == MST_AGENT_REASON_JOIN;
    int64_t count = 0;
    struct mst_err ignored; /* the next look follows soon */
    if (is_join && mst_handler_nodes_waiting(run->handler, &count, &ignored) == 0 && count == 0) {
        mst__run_step(run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_WAITING});
    }
}

/* Look at workers: often for answers to a notice, and whether they can get it; four times per
 * timeout for heartbeats, which count from when they are seen. The timer of the machine checks
 * these once more. */
static void on_look(uv_timer_t *timer)
{
    struct mst__run *run = timer->data;
    look_waiting(run);
    mst__run_look_beats(run);
    mst__run_look_acks(run);
    mst__run_look_handlers(run);
}

static int64_t look_ms(const struct mst__run *run)
{
    int64_t hang_ms = run->settings->hang_ms;
    if (run->agent.phase != MST_AGENT_RUNNING) {
        return 0;
    }
    if (run->agent.notice_us != INT64_MAX) {
        return MST_AGENT_ACK_MS;
    }
    return hang_ms > 0 ? hang_ms / 4 + 1 : 0;
}

static void set_timers(struct mst__run *run)
{
    int64_t due_us = mst__agent_due_us(&run->agent);
    if (due_us == INT64_MAX) {
        (void)uv_timer_stop(&run->timer); /* cannot fail */
    } else {
        int64_t ms = (due_us - mst__clock_us() + 999) / 1000;
        uv_update_time(&run->loop);
        (void)uv_timer_start(&run->timer, on_timer, ms > 0 ? (uint64_t)ms : 0, 0);
    }
    uint64_t period_ms = (uint64_t)look_ms(run);
    if (period_ms == 0) {
        (void)uv_timer_stop(&run->look);
    } else if (!uv_is_active((uv_handle_t *)&run->look) ||
               uv_timer_get_repeat(&run->look) != period_ms) {
        bool is_notice = run->agent.notice_us != INT64_MAX; /* which begins now */
        (void)uv_timer_start(&run->look, on_look, is_notice ? 0 : period_ms, period_ms);
    }
}

/* Carry out a copy of the effects, because doing so causes further events. */
static void carry_out_all(struct mst__run *run)
{
    struct mst__agent_effect effects[MST_AGENT_EFFECTS_MAX];
    size_t count = run->agent.effects_count;
    memcpy(effects, run->agent.effects, sizeof effects);
    for (size_t i = 0; i < count; i++) {
        carry_out(run, &effects[i]);
    }
}

/* A leaving node tells the others before its workers end, because workers of other nodes may fail
 * then. The loop waits for the answer: the workers are signaled behind it. */
static void tell_leaving(struct mst__run *run)
{
    const struct mst__agent *agent = &run->agent;
    bool has_workers = agent->phase == MST_AGENT_RUNNING || agent->phase == MST_AGENT_STOPPING;
    bool goes = agent->ends
                    ? agent->end == MST_AGENT_END_SIGNAL || agent->end == MST_AGENT_END_DRAINED
                    : agent->drains;
    if (has_workers && goes && !run->is_leaving_told && run->round.world_size > 1) {
        run->is_leaving_told = true;
        struct mst__call *call = mst__run_call_new(run, MST_CALL_LEAVING);
        if (run->calls == NULL) {
            mst__run_call_now(run, call);
        } else {
            mst__run_call(run, call); /* another one may take long */
        }
    }
}

void mst__run_step(struct mst__run *run, struct mst__agent_event event)
{
    enum mst__agent_phase before = run->agent.phase;
    event.now_us = mst__clock_us();
    event.wall_us = mst__clock_wall_us();
    mst__agent_step(&run->agent, &event);
    if (run->agent.phase != before) {
        tell_phase(run, before);
    }
    tell_leaving(run);
    carry_out_all(run);
    set_timers(run);
    if (run->agent.phase != before || event.kind == MST_AGENT_EVENT_EXITED) {
        mst__run_publish(run);
    }
}

/* --- notices of the rendezvous --- */

static struct mst__cause cause_of(const struct mst_cause *told)
{
    return (struct mst__cause){
        .rank = told->rank < 0 ? MST_AUTHORITY_RANK_NONE : (uint32_t)told->rank,
        .worker = told->worker < 0 ? MST_CAUSE_WORKER_NONE : (uint32_t)told->worker,
        .status = told->exit_status,
        .signal = told->signal > 0 ? (uint32_t)told->signal : 0,
        .wall_us = told->time_us,
        .node = mst_bytes_str(told->node),
        .text = mst_bytes_str(told->text),
    };
}

/* Keep the report of the job's failure, to tell it if the job ends by this failure. A failure of
 * this node has a longer one here. */
static void keep_report(struct mst__run *run, const struct mst_notice *notice)
{
    const struct mst_cause *told = &notice->cause;
    bool is_own =
        run->has_own_block && told->rank == run->round.rank && told->time_us == run->own_wall_us;
    if (notice->has_cause && !is_own) {
        run->has_own_block = false;
        mst__buf_clear(&run->block);
        (void)mst__buf_append(&run->block,
                              mst_bytes_str(told->report)); /* else the cause is told */
    }
}

/* The job has ended, or there is no round for this node. */
static void hear_end(struct mst__run *run, const struct mst_notice *notice)
{
    const struct mst__cause cause = cause_of(&notice->cause);
    struct mst__agent_event event = {
        .kind = MST_AGENT_EVENT_CLOSED,
        .outcome = MST_JOB_OUTCOME_ASKED,
        .cause = notice->has_cause ? &cause : NULL,
        .text = mst_bytes_str(notice->reason),
        .err = &notice->err,
    };
    int code = notice->kind == MST_NOTICE_FAILED ? notice->err.code : MST_ECLOSED;
    /* Older torch agents close the rendezvous without a reason when all work is done. */
    bool is_torchs_end = notice->outcome == MST_OUTCOME_CLOSED && mst__run_is_shared(run) &&
                         run->agent.phase == MST_AGENT_FINISHED;
    if (notice->outcome == MST_OUTCOME_FAILED) {
        event.outcome = MST_JOB_OUTCOME_FAILED;
    } else if (notice->outcome == MST_OUTCOME_FINISHED || code == MST_EFINISHED ||
               code == MST_ESPARE || is_torchs_end) {
        event.outcome = MST_JOB_OUTCOME_FINISHED;
    } else if (code != MST_ECLOSED) {
        event.kind = MST_AGENT_EVENT_REFUSED;
    } else if (notice->reason[0] == '\0') {
        event.text = mst_bytes_str(notice->err.msg);
    }
    if (code != MST_ECANCELED) { /* else this node has canceled it */
        mst__run_step(run, event);
    }
}

/* The round is over, or a member is gone. */
static void hear_over(struct mst__run *run, const struct mst_notice *notice)
{
    const struct mst__cause cause = cause_of(&notice->cause);
    enum mst__agent_reason reason = notice->has_cause ? MST_AGENT_REASON_FAILURE
                                    : notice->nodes_lost > 0 || notice->kind == MST_NOTICE_EXPELLED
                                        ? MST_AGENT_REASON_LEAVE
                                        : MST_AGENT_REASON_JOIN;
    mst__run_tell_over(run, notice);
    mst__run_step(run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_OVER,
                                                 .reason = reason,
                                                 .cause = notice->has_cause ? &cause : NULL});
}

static void hear(struct mst__run *run, const struct mst_notice *notice)
{
    keep_report(run, notice);
    switch (notice->kind) {
        case MST_NOTICE_COMPLETE:
            mst__run_step(run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_SEALED});
            return;
        case MST_NOTICE_FAILED:
        case MST_NOTICE_CLOSED:
            hear_end(run, notice);
            return;
        case MST_NOTICE_WAITING:
            if (notice->has_cause) {
                hear_over(run, notice); /* the failed node waits for the others */
                return;
            }
            mst__run_step(run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_WAITING,
                                                         .count = (uint32_t)notice->nodes_waiting});
            return;
        case MST_NOTICE_LOST:
        case MST_NOTICE_REOPENED:
        case MST_NOTICE_EXPELLED:
            hear_over(run, notice);
            return;
        case MST_NOTICE_UNREACHABLE:
            mst__run_say(run, "muster: the rendezvous cannot be reached: %s", notice->err.msg);
            mst__run_step(
                run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_CUT, .err = &notice->err});
            return;
        case MST_NOTICE_REACHABLE:
            mst__run_say(run, "muster: the rendezvous can be reached again");
            mst__run_step(run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_AGAIN});
            return;
    }
}

static void on_news(uv_poll_t *poll, int status, int events)
{
    struct mst__run *run = poll->data;
    struct mst_notice *notice = NULL;
    struct mst_err err;
    (void)status;
    (void)events; /* notices are taken in any case */
    while (!run->is_ended && mst_handler_take(run->handler, 0, &notice, &err) == 0) {
        hear(run, notice);
        mst_notice_free(notice);
    }
}

/* --- life --- */

/* The end of this node's time, by the monotonic clock; 0 = not known. A time in the past does not
 * count: a job's variables do not change when it is given more time. */
static int64_t end_us(const struct mst__run_settings *settings)
{
    int64_t left_us = settings->end_time_s * 1000000 - mst__clock_wall_us();
    return settings->end_time_s == 0 || left_us <= 0 ? 0 : mst__clock_us() + left_us;
}

/* How many restarts of the job are known to be all. */
static uint32_t restarts_max(const struct mst__run_settings *settings)
{
    bool is_windowed = settings->max_restarts > 0 && settings->max_restarts_window_ms > 0;
    return is_windowed || settings->max_restarts > UINT32_MAX ? UINT32_MAX
                                                              : (uint32_t)settings->max_restarts;
}

static void init_agent(struct mst__run *run)
{
    const struct mst__run_settings *settings = run->settings;
    const struct mst__agent_options options = {
        .workers = run->agent.options.workers,
        .workers_count = (uint32_t)settings->nproc,
        .stop_signal = (uint32_t)settings->stop_signal,
        .grace_us = settings->grace_ms * 1000,
        .kill_us = (int64_t)MST_AGENT_KILL_MS * 1000,
        .on_join = settings->on_join == MST_ON_JOIN_RESTART ? MST_AGENT_JOIN_RESTART
                                                            : MST_AGENT_JOIN_NEXT_RESTART,
        .notice_signal = (uint32_t)settings->notice_signal,
        .notice_us = settings->notice_ms * 1000,
        .end_us = end_us(settings),
        .startup_us = settings->startup_ms == 0 ? INT64_MAX : settings->startup_ms * 1000,
        .hang_us = settings->hang_ms == 0 ? INT64_MAX : settings->hang_ms * 1000,
        .pause_us = settings->backoff_min_ms * 1000,
        .pause_us_max = settings->backoff_max_ms * 1000,
        .quick_us = settings->give_up_ms * 1000,
        .quick_max = (uint32_t)settings->give_up_count,
        .tell_us = (int64_t)MST_AGENT_TELL_MS * 1000,
        .again_us = (int64_t)MST_AGENT_AGAIN_MS * 1000,
        .leave_us = (int64_t)MST_AGENT_LEAVE_MS * 1000,
        .restarts_max = restarts_max(settings),
        .exclude_max = (uint32_t)settings->exclude_after,
        .cut_us = run->options->cut_ms * 1000,
    };
    mst__agent_init(&run->agent, &options, mst__clock_us());
}

void mst__run_begin(struct mst__run *run)
{
    int fd = mst_handler_fd(run->handler);
    if (fd >= 0) {
        int rv = uv_poll_init(&run->loop, &run->news, fd);
        MST_ASSERT(rv == 0);
        run->news.data = run;
        run->has_news = true;
        rv = uv_poll_start(&run->news, UV_READABLE, on_news);
        MST_ASSERT(rv == 0);
    }
    init_agent(run);
    run->has_agent = true;
    note_phase(run);
    tell_wait(run);
    carry_out_all(run);
    set_timers(run);
}

static int make_output(struct mst__run *run, struct mst_err *reterr)
{
    const struct mst__run_settings *settings = run->settings;
    const struct mst__output_options options = {
        .workers_count = (size_t)settings->nproc,
        .local_first = settings->local_first,
        .log_dir = settings->log_dir,
        .needs_files = settings->hang_ms > 0 || settings->startup_ms > 0, /* heartbeats */
        .keeps_logs = settings->keeps_logs,
        .run_id = settings->run_id,
        .role = settings->role,
        .hostname = settings->machine.hostname,
        .redirects = &settings->redirects,
        .tee = &settings->tee,
        .console_ranks = &settings->console_ranks,
        .stdout_filters = settings->stdout_filters,
        .stderr_filters = settings->stderr_filters,
        .prefix_template = settings->prefix_template,
        .is_json = settings->is_log_json,
        .stdout_fd = STDOUT_FILENO,
        .stderr_fd = STDERR_FILENO,
    };
    return mst__output_new(&run->loop, &options, &run->output, reterr);
}

/* --- timers of workers --- */

/* A mst__watchdog_own_fn: whether the process is in a worker's session. */
static bool is_own(void *arg, pid_t pid)
{
    const struct mst__run *run = arg;
    pid_t session = getsid(pid);
    for (uint32_t i = 0; i < run->group.count; i++) {
        if (run->group.pids[i] > 0 && run->group.pids[i] == session) {
            return true;
        }
    }
    return false;
}

/* A mst__watchdog_expired_fn. */
static void expired(void *arg, pid_t pid, int signal)
{
    struct mst__run *run = arg;
    mst__run_say(run, "muster: a timer of process %lld has expired%s", (long long)pid,
                 signal > 0 ? ", and it is killed" : "");
    struct mst__json_writer *line = mst__events_begin(&run->events, "timer");
    if (line != NULL) {
        mst__json_put_number(line, "worker_pid", pid);
        mst__json_put_number(line, "signal", signal);
        mst__events_end(&run->events);
    }
}

/* Make the pipe only if TORCHELASTIC_ENABLE_FILE_TIMER is 1, as torch's clients expect. */
static int open_watchdog(struct mst__run *run, struct mst_err *reterr)
{
    struct mst__env environment = run->settings->environment;
    const char *is_on = mst__env_get(environment, "TORCHELASTIC_ENABLE_FILE_TIMER");
    if (is_on == NULL || strcmp(is_on, "1") != 0) {
        return 0;
    }
    return mst__watchdog_open(&run->watchdog, &run->loop,
                              mst__env_get(environment, "TORCHELASTIC_TIMER_FILE"), is_own, expired,
                              run, reterr);
}

/* --- the check of this node --- */

/* The node has passed its check: prepare for workers, and open the rendezvous. */
static int open_rendezvous(struct mst__run *run, struct mst_err *reterr)
{
    const struct mst__run_settings *settings = run->settings;
    run->has_group = true;
    int rv = mst__group_init(&run->group, &run->loop, (uint32_t)settings->nproc, mst__run_ended,
                             run, reterr);
    run->group.signals_all = settings->signal_scope == MST_SIGNAL_SCOPE_GROUP;
    rv = rv == 0 ? mst__caller_open(run, reterr) : rv;
    if (rv == 0 && settings->is_standalone) {
        mst__run_call_now(run, mst__run_call_new(run, MST_CALL_OPEN)); /* there is no other node */
    } else if (rv == 0) {
        mst__run_call(run, mst__run_call_new(run, MST_CALL_OPEN));
    }
    return rv;
}

/* A mst__group_ended_fn. */
static void checked(void *arg, uint32_t worker, int status, int signal)
{
    struct mst__run *run = arg;
    (void)worker; /* the only one */
    mst__group_stop(&run->preflight);
    run->is_checking = false;
    if (status == 0 && signal == 0) {
        if (open_rendezvous(run, &run->ret->err) == 0) {
            return;
        }
    } else {
        run->ret->failure = MST_RUN_PREFLIGHT;
        (void)mst__fail(&run->ret->err, MST_ESYS, 0, "--preflight: '%.100s' has ended with %s %d",
                        run->settings->preflight, signal == 0 ? "status" : "signal",
                        signal == 0 ? status : signal);
    }
    run->is_ended = true;
    uv_stop(&run->loop);
}

/* Start the preflight command. The run continues when it has ended. */
static int check_node(struct mst__run *run, struct mst_err *reterr)
{
    char shell[] = "/bin/sh";
    char option[] = "-c";
    char *const argv[] = {shell, option, (char *)run->settings->preflight, NULL};
    const struct mst__spawn_worker spawn = {
        .argv = argv,
        .environment = run->options->environment,
        .cwd = run->settings->cwd,
        .input_fd = -1,             /* standard input is for rank 0 */
        .output_fd = STDERR_FILENO, /* stdout is for workers */
        .error_fd = STDERR_FILENO,
    };
    run->is_checking = true;
    uint32_t failed; /* the only one */
    int rv = mst__group_init(&run->preflight, &run->loop, 1, checked, run, reterr);
    return rv == 0 ? mst__group_start(&run->preflight, &spawn, &failed, reterr) : rv;
}

static int prepare(struct mst__run *run, struct mst_err *reterr)
{
    const struct mst__run_settings *settings = run->settings;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL); /* writes fail with EPIPE instead */
    int rv = mst__run_catch_signals(run, reterr);
    mst__run_watch_parent(run);
    rv = rv == 0 ? make_output(run, reterr) : rv;
    rv = rv == 0 ? mst__events_open(&run->events, settings->events, settings->machine.hostname,
                                    settings->run_id, reterr)
                 : rv;
    rv = rv == 0 ? open_watchdog(run, reterr) : rv;
    run->agent.options.workers =
        mst__calloc((size_t)settings->nproc, sizeof *run->agent.options.workers);
    run->beats_ns = mst__calloc((size_t)settings->nproc, sizeof *run->beats_ns);
    run->last_pids = mst__calloc((size_t)settings->nproc, sizeof *run->last_pids);
    if (rv == 0 &&
        (run->agent.options.workers == NULL || run->beats_ns == NULL || run->last_pids == NULL)) {
        rv = mst__fail(reterr, MST_ENOMEM, 0, "%lld workers", (long long)settings->nproc);
    }
    return rv;
}

static void tell_end(struct mst__run *run)
{
    const struct mst__agent *agent = &run->agent;
    struct mst__run_end *ret = run->ret;
    ret->failure = MST_RUN_WENT;
    ret->end = agent->end;
    ret->silence = agent->silence;
    ret->is_alone = agent->is_alone;
    ret->is_told = !agent->tells;
    ret->err = agent->err;
    ret->status = agent->cause.status;
    ret->signal = (int)(agent->end == MST_AGENT_END_SIGNAL ? agent->signal : agent->cause.signal);
    ret->goes_on = run->round.world_size > run->settings->nodes_min;
    (void)snprintf(ret->text, sizeof ret->text, "%s", agent->text);
}

static void close_handles(struct mst__run *run, bool is_success)
{
    for (size_t i = 0; i < run->signals_count; i++) {
        uv_close((uv_handle_t *)&run->signals[i], NULL);
    }
    mst__run_forget_parent(run);
    if (run->has_news) {
        uv_close((uv_handle_t *)&run->news, NULL);
    }
    uv_close((uv_handle_t *)&run->timer, NULL);
    uv_close((uv_handle_t *)&run->look, NULL);
    if (run->has_group) {
        mst__group_stop(&run->group);
    }
    mst__watchdog_stop(&run->watchdog);
    mst__control_free(run->control);
    mst__caller_close(&run->caller);
    if (run->is_checking) {
        mst__group_stop(&run->preflight);
    }
    if (run->output != NULL) {
        mst__output_free(run->output, is_success);
    }
    (void)uv_run(&run->loop, UV_RUN_DEFAULT); /* until all handles are closed */
    int rv = uv_loop_close(&run->loop);
    MST_ASSERT(rv == 0);
}

static void release(struct mst__run *run)
{
    bool is_success = run->has_agent && run->agent.end == MST_AGENT_END_FINISHED;
    if (run->output != NULL) {
        mst__output_drain(run->output, MST_AGENT_DRAIN_MS);
    }
    if (run->has_agent) {
        mst__run_hold_signals(run);
    }
    close_handles(run, is_success);
    mst__group_close(&run->group);
    mst__group_close(&run->preflight);
    mst__watchdog_close(&run->watchdog);
    mst__events_close(&run->events);
    mst_store_close(run->round.store);
    if (run->has_agent) {
        mst__run_linger(run);
    }
    mst_handler_free(run->handler);
    mst__arena_close(&run->arena);
    mst__buf_close(&run->block);
    mst__free(run->agent.options.workers);
    mst__free(run->beats_ns);
    mst__free(run->last_pids);
}

void mst__run(const struct mst__run_options *options, struct mst__run_end *ret_end)
{
    struct mst__run run = {.options = options, .settings = options->settings, .ret = ret_end};
    struct mst_err err = {0};
    *ret_end = (struct mst__run_end){.failure = MST_RUN_NOT_BEGUN};
    run.events.fd = -1;
    mst__buf_init(&run.block, MST_AGENT_BLOCK_SIZE_MAX);
    int rv = uv_loop_init(&run.loop);
    MST_ASSERT(rv == 0);
    (void)uv_timer_init(&run.loop, &run.timer); /* cannot fail */
    (void)uv_timer_init(&run.loop, &run.look);
    run.timer.data = &run;
    run.look.data = &run;
    rv = prepare(&run, &err);
    if (rv == 0 && run.settings->preflight != NULL) {
        rv = check_node(&run, &err);
    } else if (rv == 0) {
        rv = open_rendezvous(&run, &err);
    }
    if (rv != 0) {
        ret_end->err = err;
    } else {
        (void)uv_run(&run.loop, UV_RUN_DEFAULT);
        if (run.has_agent) {
            tell_end(&run);
            mst__run_report(&run);
        }
    }
    release(&run);
}
