/* agent/signal_survived.h - whether a signal would end a process.
 *
 * The kernel knows: SIGUSR1, say, ends a process that neither handles, nor ignores, nor blocks it.
 * Workers install their handlers some time after their start. */
#ifndef MST_AGENT_SIGNAL_SURVIVED_H
#define MST_AGENT_SIGNAL_SURVIVED_H

#include <muster/types.h>
#include <stdbool.h>
#include <sys/types.h>

/* Whether process @pid would survive @signal. True if the kernel does not tell (no /proc). */
bool mst__signal_is_survived(pid_t pid, int signal);

/* The same for a process with the text @status in /proc/PID/status. */
bool mst__signal_is_survived_in(struct mst_bytes status, int signal);

#endif /* MST_AGENT_SIGNAL_SURVIVED_H */
