/* agent/spawn.c - fork and exec of a worker. */
#include "agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "agent/numa.h"
#include "base/err.h"
#include "base/exec.h"

/* --- in the child --- */

/* Returns -1 with errno on failure. */
static int open_input(const struct mst__spawn_worker *worker)
{
    int input_fd = mst__exec_move_fd(worker->input_fd);
    return input_fd >= 0 ? input_fd : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void worker_exec(const void *arg, pid_t parent, const sigset_t *mask)
{
    const struct mst__spawn_worker *worker = arg;
    int input_fd = open_input(worker);
    int output_fd = mst__exec_move_fd(worker->output_fd);
    int error_fd = mst__exec_move_fd(worker->error_fd);
    (void)setsid(); /* cannot fail for a process that leads no group */
    bool is_ready = mst__exec_die_with(parent) && input_fd >= 0 && output_fd >= 0 &&
                    error_fd >= 0 && mst__exec_become_fd(input_fd, STDIN_FILENO) &&
                    mst__exec_become_fd(output_fd, STDOUT_FILENO) &&
                    mst__exec_become_fd(error_fd, STDERR_FILENO);
    if (is_ready && worker->cwd != NULL) {
        is_ready = chdir(worker->cwd) == 0;
    }
    if (is_ready && worker->cpus != NULL) {
        int reason = mst__cpu_set_bind(worker->cpus);
        errno = reason;
        is_ready = reason == 0;
    }
    if (is_ready) {
        mst__exec_allow_signals(worker->mask != NULL ? worker->mask : mask);
        (void)execvpe(worker->argv[0], worker->argv, worker->environment);
    }
}

/* --- in the parent --- */

int mst__spawn_worker(const struct mst__spawn_worker *worker,
                      pid_t *ret_pid,
                      struct mst_err *reterr)
{
    return mst__exec_start(worker_exec, worker, worker->argv[0], ret_pid, reterr);
}

int mst__spawn_status(const struct mst_err *err)
{
    return mst__err_is_errno(err, ENOENT) ? 127 : 126;
}
