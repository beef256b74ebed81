/* agent/signal_survived.h - whether a signal would end a process.
 *
 * The kernel knows: SIGUSR1, say, ends a process that neither handles, nor ignores, nor blocks it.
 * Workers install their handlers some time after their start. */
#ifndef MST_AGENT_SIGNAL_SURVIVED_H
#define MST_AGENT_SIGNAL_SURVIVED_H

#include <muster/types.h>
#include <stdbool.h>
#include <sys/types.h>

enum mst__survival {
    MST_SURVIVAL_NONE,
    MST_SURVIVAL_BLOCKED, /* it runs, and blocks the signal, perhaps for a moment only */
    MST_SURVIVAL_SURE,
};

/* Whether process @pid would survive @signal. True if the kernel does not tell (no /proc). Takes up
 * to 20 ms if the process computes with the signal blocked. */
bool mst__signal_is_survived(pid_t pid, int signal);

/* One look at a process with the text @status in /proc/PID/status. */
enum mst__survival mst__signal_survival_in(struct mst_bytes status, int signal);

#endif /* MST_AGENT_SIGNAL_SURVIVED_H */
