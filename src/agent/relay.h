/* agent/relay.h - agents on other hosts: started over ssh in a tree, with their output, signals and
 * statuses passed on.
 *
 * The process that the user starts is the root. On each host, ssh starts a relay, `muster run
 * --relay`. It reads its job from standard input (agent/hosts.h), runs the agent of that host as a
 * child, and starts relays on the hosts below. Output goes up as whole lines. Signals go down as
 * lines. The end of standard input means that the relay above is gone: everything stops. */
#ifndef MST_AGENT_RELAY_H
#define MST_AGENT_RELAY_H

#include "agent/hosts.h"
#include "agent/settings.h"

/* The signals to pass on: those that stop the agents, and those that do not. */
struct mst__relay_signals {
    struct mst__signal_list stop, forward;
    bool kills_on_second; /* any second signal ends the grace, not only Ctrl-C at a terminal */
};

/* Run @job to its end, and pass @signals on. The processes that it starts, and those below these,
 * die with the calling one. If @control_fd >= 0, the lines after the job's message are read from
 * it; @pending was read already. Returns the exit status, or MST_RELAY_LOST with @reterr if the job
 * could not start. */
int mst__relay_run(const struct mst__relay_job *job,
                   const struct mst__relay_signals *signals,
                   int control_fd,
                   struct mst_bytes pending,
                   struct mst_err *reterr);

/* Read a job's message from @fd into @input. *ret_size is its size; lines may follow it. Returns 0,
 * MST_EINVAL, MST_ESYS, MST_ENOMEM, MST_ECONN if the stream ends, or MST_ETIMEOUT if nothing comes
 * for @timeout_ms. */
int mst__relay_receive(int fd,
                       int timeout_ms,
                       struct mst__arena *arena,
                       struct mst__buf *input,
                       struct mst__relay_job *ret_job,
                       size_t *ret_size,
                       struct mst_err *reterr);

#endif /* MST_AGENT_RELAY_H */
