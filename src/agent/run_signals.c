/* agent/run_signals.c - signals that the agent receives, and the end of its parent. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "agent/run_self.h"
#include "agent/terminal.h"
#include "base/err.h"
#include "base/syscalls.h"

static void take_stop(struct mst__run *run, int number, const char *why, bool hastens)
{
    if (run->has_agent && !run->is_ended) {
        mst__run_say(run, "muster: %s", why);
        mst__run_step(run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_SIGNAL,
                                                     .signal = (uint32_t)number,
                                                     .hastens = hastens});
        return;
    }
    if (run->leaves && !hastens) {
        return; /* the run is over but for telling the others, in MST_AGENT_LEAVE_MS at most */
    }
    /* Before the rendezvous no other node knows of this one; after it no worker runs. */
    mst__group_kill(&run->preflight);
    struct sigaction usual = {.sa_handler = SIG_DFL};
    (void)sigaction(number, &usual, NULL);
    (void)raise(number);
    _exit(128 + number); /* the signal did not end the process */
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct mst__run *run = handle->data;
    bool hastens = run->settings->kills_on_second || (number == SIGINT && mst__terminal_is_ours());
    take_stop(run, number, strsignal(number), hastens);
}

static void on_hasten(uv_signal_t *handle, int number)
{
    (void)number; /* MST_HASTEN_SIGNAL, which follows another signal */
    take_stop(handle->data, SIGTERM, strsignal(SIGTERM), true);
}

static void on_forward(uv_signal_t *handle, int number)
{
    struct mst__run *run = handle->data;
    if (run->has_agent) { /* else there is no worker yet */
        mst__run_forward(run, number);
    }
}

static int catch_signals(struct mst__run *run,
                         const struct mst__signal_list *list,
                         uv_signal_cb callback,
                         struct mst_err *reterr)
{
    for (size_t i = 0; i < list->count; i++) {
        uv_signal_t *handle = &run->signals[run->signals_count];
        int reason = uv_signal_init(&run->loop, handle);
        if (reason == 0) {
            run->signals_count++;
            handle->data = run;
            reason = uv_signal_start(handle, callback, list->numbers[i]);
        }
        if (reason != 0) {
            return mst__fail(reterr, MST_ESYS, -reason, "catch signal %d", list->numbers[i]);
        }
    }
    return 0;
}

int mst__run_catch_signals(struct mst__run *run, struct mst_err *reterr)
{
    const struct mst__signal_list hasten = {.numbers = {MST_HASTEN_SIGNAL}, .count = 1};
    int rv = catch_signals(run, &run->settings->stop_signals, on_signal, reterr);
    rv = rv == 0 ? catch_signals(run, &run->settings->forward_signals, on_forward, reterr) : rv;
    return rv == 0 ? catch_signals(run, &hasten, on_hasten, reterr) : rv;
}

/* --- the parent --- */

static void on_parent_end(uv_poll_t *handle, int status, int events)
{
    (void)status; /* the parent is gone, or cannot be watched, which does not happen */
    (void)events;
    struct mst__run *run = handle->data;
    (void)uv_poll_stop(handle); /* cannot fail */
    take_stop(run, SIGTERM, "mpirun is gone", false);
}

void mst__run_watch_parent(struct mst__run *run)
{
    const char *scheduler = run->settings->scheduler.name;
    /* mpirun ends the tasks of other machines by its daemons there. When it is killed, nobody ends
     * those of its own, which would go on without a launcher. */
    if (scheduler == NULL || strcmp(scheduler, "Open MPI") != 0) {
        return;
    }
    run->parent_fd = mst__pidfd_open(getppid());
    if (run->parent_fd < 0) {
        return;
    }
    if (uv_poll_init(&run->loop, &run->parent, run->parent_fd) != 0) {
        (void)close(run->parent_fd);
        return;
    }
    run->has_parent = true;
    run->parent.data = run;
    (void)uv_poll_start(&run->parent, UV_READABLE, on_parent_end); /* cannot fail */
}

void mst__run_forget_parent(struct mst__run *run)
{
    if (run->has_parent) {
        uv_close((uv_handle_t *)&run->parent, NULL);
        (void)close(run->parent_fd); /* opened for polling only */
    }
}
