/* agent/run_calls.c - calls of the rendezvous that may block, made one by one in another thread. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/run_self.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/percent.h"
#include "base/thread.h"
#include "handler/handler.h"
#include "handler/registry.h"
#include "store/store.h"

/* Set by a node that was asked to restart all workers, with backends that have no authority to give
 * the reason. */
#define ASKED_KEY "muster.run/asked"
#define KEY_SIZE 60

/* --- in the other thread --- */

bool mst__run_is_shared(const struct mst__run *run)
{
    return mst__backend_can(run->settings->backend, MST_BACKEND_SHARED);
}

static int assign(struct mst__call *call)
{
    const struct mst__run *run = call->run;
    const struct mst__assign assign = {
        .round = &call->round,
        .role = run->settings->role,
        .nproc = run->settings->nproc,
        .timeout_ms = MST_AGENT_ASSIGN_MS,
    };
    return mst__assign(&assign, &call->assignment, &call->err);
}

/* Wait for the other nodes as torch's agents do, because there is no authority to report to. */
static int await_others(struct mst__call *call)
{
    const struct mst__run *run = call->run;
    struct mst_bytes last = mst_bytes_str("torchelastic/agent/terminal_state/last_member");
    int64_t count = 0;
    int rv = mst_store_add(run->round.store,
                           mst_bytes_str("torchelastic/agent/terminal_state/num_members"), 1,
                           MST_AGENT_TELL_MS, &count, &call->err);
    if (rv != 0 || count == run->round.world_size) {
        return rv != 0 ? rv
                       : mst_store_set(run->round.store, last, mst_bytes_str("1"),
                                       MST_AGENT_TELL_MS, &call->err);
    }
    return mst_store_wait(run->round.store, &last, 1, MST_AGENT_END_MS, &call->err);
}

static int say(struct mst__call *call, const char *key)
{
    const struct mst__run *run = call->run;
    return mst_store_set(run->round.store, mst_bytes_str(key),
                         mst_bytes_str(mst_handler_node(run->handler)), MST_AGENT_BLOCK_MS,
                         &call->err);
}

/* Whether a node of the round has set the key @name. */
static bool is_said(const struct mst__run *run, const char *name)
{
    struct mst_bytes key = mst_bytes_str(name);
    struct mst_err err;
    bool exists = false;
    return run->round.world_size > 1 &&
           mst_store_check(run->round.store, &key, 1, MST_AGENT_CHECK_MS, &exists, &err) == 0 &&
           exists;
}

static void work(struct mst__call *call)
{
    struct mst__run *run = call->run;
    switch (call->kind) {
        case MST_CALL_OPEN:
            call->rv = mst_handler_new(run->options->params, &run->handler, &call->err);
            return;
        case MST_CALL_BEGIN:
            call->rv = mst_handler_begin(run->handler, -1, &call->err);
            return;
        case MST_CALL_ASSIGN:
            call->rv = assign(call);
            return;
        case MST_CALL_FINISH:
            call->rv = mst_handler_finish(run->handler, 0, NULL, &call->err);
            return;
        case MST_CALL_AWAIT:
            call->rv = await_others(call);
            return;
        case MST_CALL_LEAVING:
            call->rv = mst__handler_leaving(run->handler, run->agent.options.grace_us / 1000,
                                            MST_AGENT_LEAVING_MS, &call->err);
            return;
        case MST_CALL_ASKED:
            call->rv = say(call, ASKED_KEY);
            return;
        case MST_CALL_WHY:
            call->is_said = is_said(run, ASKED_KEY);
            return;
        case MST_CALL_RESTART:
            call->rv = mst_handler_restart(run->handler, &call->failure, &call->err);
            return;
        case MST_CALL_CLOSE:
            call->rv = mst_handler_set_closed(run->handler, &call->err);
            return;
        case MST_CALL_LEAVE:
            call->rv =
                mst__handler_leave(run->handler, mst__clock_left_ms(call->until_ms), &call->err);
            return;
    }
}

static void *work_all(void *arg)
{
    struct mst__caller *caller = arg;
    pthread_mutex_lock(&caller->mutex);
    for (;;) {
        while (caller->call == NULL && !caller->is_ending) {
            pthread_cond_wait(&caller->cond, &caller->mutex);
        }
        struct mst__call *call = caller->call;
        if (call == NULL) {
            break;
        }
        pthread_mutex_unlock(&caller->mutex);
        work(call);
        pthread_mutex_lock(&caller->mutex);
        caller->call = NULL;
        (void)uv_async_send(&caller->async); /* cannot fail */
    }
    pthread_mutex_unlock(&caller->mutex);
    return NULL;
}

/* --- on the loop --- */

static void next_call(struct mst__run *run);

static void opened(struct mst__run *run, const struct mst__call *call)
{
    if (call->rv != 0) {
        run->ret->failure = MST_RUN_NOT_BEGUN;
        run->ret->err = call->err;
        run->is_ended = true;
        return;
    }
    mst__run_begin(run);
}

/* Make the URL of the round's store, for `muster store` and the library. */
static void name_store(struct mst__run *run)
{
    struct mst_bytes prefix = mst_store_key_prefix(run->round.store);
    int used = snprintf(run->store_url, sizeof run->store_url, "%s%s",
                        mst_store_url(run->round.store), prefix.size > 0 ? "?prefix=" : "");
    if (used >= 0 && (size_t)used < sizeof run->store_url) {
        (void)mst__percent_write(prefix, MST_PERCENT_NAME "/", run->store_url + used,
                                 sizeof run->store_url - (size_t)used);
    }
}

/* The exchange of ranks has ended, in the current round or in one that is over. */
static void assigned(struct mst__run *run, struct mst__call *call)
{
    if (call != run->assigning) {
        mst_store_close(call->round.store);
        return;
    }
    run->assigning = NULL;
    if (call->rv != 0) {
        mst_store_close(call->round.store);
        mst__run_step(
            run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_UNASSIGNED, .err = &call->err});
        return;
    }
    /* From now on the agents only leave word for each other, and do so also in the empty store of a
     * server that has restarted. */
    mst__store_bind(call->round.store, 0);
    run->prev_world_size = run->assignment.world_size;
    mst_store_close(run->round.store);
    run->round = call->round;
    run->assignment = call->assignment;
    name_store(run);
    mst__run_step(run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_ASSIGNED,
                                                 .restarts = (uint32_t)run->round.restarts});
    mst__run_listen(run); /* workers do not wait for this */
}

/* The call has reported how the work of this node has ended, or failed to. */
static void reported(struct mst__run *run, const struct mst__call *call)
{
    bool is_moot = call->rv == MST_EINVAL; /* this node is in no round: nobody expects its report */
    if (call->rv == 0 || is_moot || call->rv == MST_ENOTSUP) {
        mst__run_step(run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_TOLD});
        return;
    }
    if (call->rv != MST_ECANCELED && !run->is_untold_said) { /* else this node leaves */
        run->is_untold_said = true;
        mst__run_say(run, "muster: the %s of this node is not reported yet: %s",
                     call->kind == MST_CALL_FINISH ? "success" : "failure", call->err.msg);
    }
    mst__run_step(run,
                  (struct mst__agent_event){.kind = MST_AGENT_EVENT_UNTOLD, .err = &call->err});
}

/* Handle the result of a call. */
static void done(struct mst__run *run, struct mst__call *call)
{
    switch (call->kind) {
        case MST_CALL_OPEN:
            opened(run, call);
            return;
        case MST_CALL_ASSIGN:
            assigned(run, call);
            return;
        case MST_CALL_BEGIN:
            if (call->rv != 0) {
                mst__run_step(run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_REFUSED,
                                                             .err = &call->err});
            }
            return;
        case MST_CALL_FINISH:
            reported(run, call);
            if (call->rv == MST_ENOTSUP && !run->is_ended) {
                mst__run_call(run, mst__run_call_new(run, MST_CALL_AWAIT));
            }
            return;
        case MST_CALL_AWAIT:
            if (call->rv != 0) {
                mst__run_say(run, "muster: not all nodes have finished: %s", call->err.msg);
            }
            mst__run_step(run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_CLOSED,
                                                         .outcome = MST_JOB_OUTCOME_FINISHED});
            return;
        case MST_CALL_RESTART:
            if (call->rv == MST_ENOTSUP) { /* the backend has no reports: this node fails alone */
                mst__run_step(run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_CLOSED,
                                                             .outcome = MST_JOB_OUTCOME_FAILED});
            } else {
                reported(run, call);
            }
            return;
        case MST_CALL_ASKED:
            mst__run_step(run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_RESTART});
            return;
        case MST_CALL_WHY:
            run->was_asked = call->is_said;
            return;
        case MST_CALL_LEAVING:
        case MST_CALL_CLOSE:
        case MST_CALL_LEAVE:
            return;
    }
}

/* The first call is done, unless the wake-up was for an earlier one. */
static void on_done(uv_async_t *async)
{
    struct mst__run *run = async->data;
    struct mst__call *call = run->calls;
    pthread_mutex_lock(&run->caller.mutex);
    bool is_done = call != NULL && run->caller.call == NULL;
    pthread_mutex_unlock(&run->caller.mutex);
    if (!is_done) {
        return;
    }
    done(run, call);
    MST_ASSERT(run->calls == call);
    run->calls = call->next;
    mst__free(call);
    next_call(run);
}

/* Whether leaving ends the call: a report is sent, and its arrival is not waited for. */
static bool is_cut_short(const struct mst__call *call)
{
    return call->kind == MST_CALL_FINISH || call->kind == MST_CALL_RESTART ||
           call->kind == MST_CALL_AWAIT;
}

static void cut_short(struct mst__run *run)
{
    mst_handler_cancel(run->handler);
    mst_store_interrupt(run->round.store);
}

static void next_call(struct mst__run *run)
{
    struct mst__caller *caller = &run->caller;
    if (run->calls == NULL) {
        if (run->is_ended) {
            uv_stop(&run->loop);
        }
        return;
    }
    if (run->leaves && is_cut_short(run->calls)) {
        cut_short(run);
    }
    if (!caller->has_thread) {
        caller->has_thread = mst__thread_start(&caller->thread, work_all, caller) == 0;
    }
    pthread_mutex_lock(&caller->mutex);
    caller->call = run->calls;
    pthread_cond_signal(&caller->cond);
    pthread_mutex_unlock(&caller->mutex);
    if (!caller->has_thread) { /* no thread: the loop waits */
        work(run->calls);
        caller->call = NULL;
        (void)uv_async_send(&caller->async); /* cannot fail */
    }
}

int mst__caller_open(struct mst__run *run, struct mst_err *reterr)
{
    struct mst__caller *caller = &run->caller;
    int reason = -uv_async_init(&run->loop, &caller->async, on_done);
    if (reason != 0) {
        return mst__fail(reterr, MST_ESYS, reason, "wake-up of the loop");
    }
    caller->async.data = run;
    caller->has_async = true;
    (void)pthread_mutex_init(&caller->mutex, NULL); /* cannot fail */
    mst__cond_init(&caller->cond);
    return 0;
}

void mst__caller_close(struct mst__caller *caller)
{
    if (caller->has_thread) {
        pthread_mutex_lock(&caller->mutex);
        caller->is_ending = true;
        pthread_cond_signal(&caller->cond);
        pthread_mutex_unlock(&caller->mutex);
        (void)pthread_join(caller->thread, NULL); /* cannot fail: joined once */
    }
    if (caller->has_async) {
        (void)pthread_mutex_destroy(&caller->mutex); /* cannot fail: not locked */
        (void)pthread_cond_destroy(&caller->cond);
        uv_close((uv_handle_t *)&caller->async, NULL);
    }
}

struct mst__call *mst__run_call_new(struct mst__run *run, enum mst__call_kind kind)
{
    struct mst__call *call = mst__calloc(1, sizeof *call);
    MST_ASSERT(call != NULL); /* without a kilobyte there is no orderly end */
    call->kind = kind;
    call->run = run;
    return call;
}

void mst__run_call(struct mst__run *run, struct mst__call *call)
{
    struct mst__call **end = &run->calls;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = call;
    if (run->calls == call) {
        next_call(run);
    }
}

void mst__run_call_now(struct mst__run *run, struct mst__call *call)
{
    work(call);
    done(run, call);
    mst__free(call);
    if (run->is_ended && run->calls == NULL) {
        uv_stop(&run->loop);
    }
}

void mst__run_drop_assign(struct mst__run *run)
{
    if (run->assigning != NULL) {
        mst_store_interrupt(run->assigning->round.store);
        run->assigning = NULL;
    }
}

/* Whether the call, which has not begun, is useless for a node that leaves. */
static bool is_moot(const struct mst__call *call)
{
    return call->kind == MST_CALL_BEGIN || call->kind == MST_CALL_AWAIT ||
           call->kind == MST_CALL_WHY || call->kind == MST_CALL_ASKED;
}

void mst__run_leave(struct mst__run *run, int64_t until_us)
{
    struct mst__call *call = mst__run_call_new(run, MST_CALL_LEAVE);
    call->until_ms = until_us / 1000;
    run->leaves = true;
    mst__run_drop_assign(run);
    if (run->calls != NULL && is_cut_short(run->calls)) {
        cut_short(run);
    }
    for (struct mst__call **at = run->calls == NULL ? NULL : &run->calls->next;
         at != NULL && *at != NULL;) {
        struct mst__call *queued = *at;
        if (is_moot(queued)) {
            *at = queued->next;
            mst__free(queued);
        } else {
            at = &queued->next;
        }
    }
    mst__run_call(run, call);
}
