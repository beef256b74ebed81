/* agent/spawn.h - starts a worker: a process with its own session, which dies with its parent.
 *
 * libuv can start a process with its own session, but not one that dies with its parent or runs on
 * chosen CPUs. */
#ifndef MST_AGENT_SPAWN_H
#define MST_AGENT_SPAWN_H

#include <muster/error.h>
#include <signal.h>
#include <sys/types.h>

struct mst__cpu_set;

struct mst__spawn_worker {
    char *const *argv;               /* the program is searched for in PATH */
    char *const *environment;        /* ended by NULL */
    const char *cwd;                 /* NULL = inherited */
    int input_fd;                    /* its descriptor 0; -1 = /dev/null */
    int output_fd, error_fd;         /* its descriptors 1 and 2 */
    const struct mst__cpu_set *cpus; /* NULL = inherited */
    const sigset_t *mask;            /* blocked signals; NULL = inherited */
};

/* Start @worker, and wait until it executes its program. It dies with the calling thread. Returns
 * 0, or MST_ESYS with the errno of the call that failed, which may be exec. */
int mst__spawn_worker(const struct mst__spawn_worker *worker,
                      pid_t *ret_pid,
                      struct mst_err *reterr);

/* The exit status of a shell for a program that fails to start with @err: 126 or 127. */
int mst__spawn_status(const struct mst_err *err);

#endif /* MST_AGENT_SPAWN_H */
