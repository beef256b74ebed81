/* cli/child.h - a command that runs as a child and does not outlive this process. */
#ifndef MST_CLI_CHILD_H
#define MST_CLI_CHILD_H

#include <muster/error.h>
#include <stdbool.h>
#include <sys/types.h>

/* A variable that the child gets in addition to the environment of this process. */
struct mst__variable {
    const char *name;
    const char *value;
};

struct mst__child {
    pid_t pid; /* 0 = none */
    int exit_code;
};

/**
 * Start @argv[0], found in PATH, with @variables in its environment and in its own process group.
 * The kernel kills the child when the calling thread ends, for any reason.
 *
 * Returns 0, MST_ENOMEM, or MST_ESYS with errno in reterr->sys: ENOENT if there is no such command.
 */
int mst__child_start(char *const *argv,
                     const struct mst__variable *variables,
                     size_t variables_count,
                     struct mst__child *ret_child,
                     struct mst_err *reterr);

/* Whether the child has ended. If so, sets pid to 0 and exit_code to its exit status, or to 128 +
 * signal. */
bool mst__child_ended(struct mst__child *child);

/* Stop the child and its process group: SIGTERM, then SIGKILL after @grace_ms. Returns when the
 * child has ended. @wake_fd must become readable at SIGCHLD. Does nothing if no child runs. */
void mst__child_stop(struct mst__child *child, int64_t grace_ms, int wake_fd);

#endif /* MST_CLI_CHILD_H */
