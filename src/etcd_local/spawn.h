/* etcd_local/spawn.h - start a program that gets nothing of ours but what it is given: no
 * descriptors, no blocked or ignored signals, no terminal. */
#ifndef MST_ETCD_LOCAL_SPAWN_H
#define MST_ETCD_LOCAL_SPAWN_H

#include <muster/error.h>
#include <stdbool.h>
#include <sys/types.h>

struct mst__spawn {
    char *const *argv;        /* argv[0] is the path of the program */
    char *const *environment; /* NULL = ours */
    int input_fd;             /* -1 = nothing to read */
    int output_fd;            /* of stdout and stderr; -1 = thrown away */
    /* Killed when the *thread* that starts it ends, however that happens. Otherwise it may outlive
     * us, in a session of its own and deaf to SIGHUP, SIGINT and SIGTERM. */
    bool dies_with_thread;
};

/**
 * Start it, in a process group of its own. The caller collects its end with waitpid.
 *
 * Returns 0; MST_ESYS with errno in reterr->sys, also when the program cannot be executed.
 */
int mst__spawn(const struct mst__spawn *spawn, pid_t *ret_pid, struct mst_err *reterr);

#endif /* MST_ETCD_LOCAL_SPAWN_H */
