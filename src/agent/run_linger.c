/* agent/run_linger.c - the end of a node that serves other jobs: it stays for them. Its own run is
 * over, so a signal only ends the stay. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "agent/run_self.h"

static struct mst_handler *volatile lingering;

static void on_signal(int number)
{
    int saved_errno = errno;
    (void)number; /* all of them end the stay */
    mst_handler_cancel(lingering);
    errno = saved_errno;
}

static sigset_t set_of(const struct mst__signal_list *list)
{
    sigset_t set;
    (void)sigemptyset(&set); /* these cannot fail: the numbers were checked */
    for (size_t i = 0; i < list->count; i++) {
        (void)sigaddset(&set, list->numbers[i]);
    }
    return set;
}

void mst__run_hold_signals(const struct mst__run *run)
{
    sigset_t stops = set_of(&run->settings->stop_signals);
    sigset_t forwards = set_of(&run->settings->forward_signals);
    (void)pthread_sigmask(SIG_BLOCK, &stops, NULL);
    (void)pthread_sigmask(SIG_BLOCK, &forwards, NULL);
}

static void catch_signals(const struct mst__run *run)
{
    sigset_t stops = set_of(&run->settings->stop_signals);
    for (size_t i = 0; i < run->settings->stop_signals.count; i++) {
        int number = run->settings->stop_signals.numbers[i];
        struct sigaction action = {.sa_handler = SIG_DFL};
        (void)sigaction(number, NULL, &action);
        if (action.sa_handler != SIG_IGN) { /* as with nohup */
            action = (struct sigaction){.sa_handler = on_signal};
            (void)sigaction(number, &action, NULL);
        }
    }
    (void)pthread_sigmask(SIG_UNBLOCK, &stops, NULL); /* one that has come meanwhile comes now */
}

void mst__run_linger(const struct mst__run *run)
{
    struct mst_err ignored; /* an event tells the user, and the run is over in any case */
    if (run->agent.end == MST_AGENT_END_SIGNAL) {
        return; /* it has no time, and the same signal may stop the others */
    }
    lingering = run->handler;
    catch_signals(run);
    (void)mst_handler_linger(run->handler, -1, &ignored);
    mst__run_hold_signals(run); /* the handler ends now */
}
