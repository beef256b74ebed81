/* agent/spawn.h - a worker as a process: a session of its own, which dies with us.
 *
 * libuv can start processes and lacks what a worker needs: a session, a signal when its parent
 * dies, CPUs to run on. */
#ifndef MST_AGENT_SPAWN_H
#define MST_AGENT_SPAWN_H

#include <muster/error.h>
#include <signal.h>
#include <sys/types.h>

struct mst__cpu_set;

struct mst__spawn_worker {
    char *const *argv;               /* the program is looked for in PATH */
    char *const *environment;        /* ended by NULL */
    const char *cwd;                 /* NULL = ours */
    int output_fd, error_fd;         /* its descriptors 1 and 2 */
    const struct mst__cpu_set *cpus; /* NULL = ours */
    const sigset_t *mask;            /* signals that it blocks; NULL = ours */
};

/* Start it, in the thread with which it dies. 0, or MST_ESYS with the errno of what has failed,
 * exec included. Waits until the program is executed. */
int mst__spawn_worker(const struct mst__spawn_worker *worker,
                      pid_t *ret_pid,
                      struct mst_err *reterr);

/* The status of a shell for a program that cannot be run for the reason @err: 126, 127. */
int mst__spawn_status(const struct mst_err *err);

#endif /* MST_AGENT_SPAWN_H */
