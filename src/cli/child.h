/* cli/child.h - a command that runs below us and does not outlive us. */
#ifndef MST_CLI_CHILD_H
#define MST_CLI_CHILD_H

#include <muster/error.h>
#include <stdbool.h>
#include <sys/types.h>

/* A variable of its environment, besides our own ones. */
struct mst__variable {
    const char *name;
    const char *value;
};

struct mst__child {
    pid_t pid; /* 0 = none */
    int exit_code;
};

/**
 * Start @argv[0], looked for in PATH, with @variables in its environment, in a process group of its
 * own. It is killed when the calling thread ends, however that happens.
 *
 * Returns 0; MST_ESYS with errno in reterr->sys, ENOENT when there is no such command; MST_ENOMEM.
 */
int mst__child_start(char *const *argv,
                     const struct mst__variable *variables,
                     size_t variables_count,
                     struct mst__child *ret_child,
                     struct mst_err *reterr);

/* Whether it has ended; then pid is 0, and exit_code is its exit status or 128 + signal. */
bool mst__child_ended(struct mst__child *child);

/* End it and everything in its process group: SIGTERM, and SIGKILL after @grace_ms. Returns once it
 * has ended. @wake_fd becomes readable upon SIGCHLD. None running is fine. */
void mst__child_stop(struct mst__child *child, int64_t grace_ms, int wake_fd);

#endif /* MST_CLI_CHILD_H */
