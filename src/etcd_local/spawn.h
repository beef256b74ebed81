/* etcd_local/spawn.h - starts a program without our state: no descriptors but the given ones, no
 * blocked or ignored signals, no terminal. */
#ifndef MST_ETCD_LOCAL_SPAWN_H
#define MST_ETCD_LOCAL_SPAWN_H

#include <muster/error.h>
#include <stdbool.h>
#include <sys/types.h>

struct mst__spawn {
    char *const *argv;        /* argv[0] is the path of the program */
    char *const *environment; /* NULL = ours */
    int input_fd;             /* -1 = /dev/null */
    int output_fd;            /* stdout and stderr; -1 = /dev/null */
    /* Killed when the *thread* that starts it ends. Otherwise it may outlive us, in its own
     * session, and ignores SIGHUP, SIGINT and SIGTERM. */
    bool dies_with_thread;
};

/**
 * Start it in its own process group. The caller collects it with waitpid.
 *
 * Returns 0; MST_ESYS with errno in reterr->sys, also if the program cannot be executed.
 */
int mst__spawn(const struct mst__spawn *spawn, pid_t *ret_pid, struct mst_err *reterr);

#endif /* MST_ETCD_LOCAL_SPAWN_H */
