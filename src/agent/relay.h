/* agent/relay.h - agents on other hosts: started over ssh in a tree, with their output, signals and
 * statuses passed on.
 *
 * The process that the user starts is the root. On each host, ssh starts a relay, `muster run
 * --relay`, which gets its job over standard input (agent/hosts.h), runs the agent of that host as
 * a child, and starts relays on hosts below. What they write comes up as whole lines. Signals go
 * down as lines; the end of standard input means that whoever is above is gone, and stops
 * everything. */
#ifndef MST_AGENT_RELAY_H
#define MST_AGENT_RELAY_H

#include "agent/hosts.h"
#include "agent/settings.h"

/* Run @job to its end. Signals @signals are passed on. With @control_fd >= 0, jobs' lines behind
 * its description are read from there; @pending is what was read already. Returns the exit status;
 * @reterr tells what kept it from beginning, then it is MST_RELAY_LOST. */
int mst__relay_run(const struct mst__relay_job *job,
                   const struct mst__signal_list *signals,
                   int control_fd,
                   struct mst_bytes pending,
                   struct mst_err *reterr);

/* Read a job from @fd, until it is whole. 0, MST_EINVAL, MST_ESYS, MST_ENOMEM; MST_ECONN when the
 * stream ends. @input has what came, and @ret_size says where the lines behind the job begin. */
int mst__relay_receive(int fd,
                       struct mst__arena *arena,
                       struct mst__buf *input,
                       struct mst__relay_job *ret_job,
                       size_t *ret_size,
                       struct mst_err *reterr);

#endif /* MST_AGENT_RELAY_H */
