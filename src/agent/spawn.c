/* agent/spawn.c - fork and exec of a worker.
 *
 * We have threads, so between the two the child does nothing but system calls. All signals are
 * blocked there until their handlers, which are ours, are gone: one that ran in the child would
 * write to a pipe that is the parent's, too. */
#include "agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/numa.h"
#include "base/err.h"
#include "base/exec.h"

/* --- in the child --- */

/* What we catch is ours, and that we ignore a closed pipe. What the one above us ignores stays. */
static void become_default_signals(void)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    for (int number = 1; number < NSIG; number++) {
        struct sigaction now;
        if (sigaction(number, NULL, &now) == 0 &&
            (number == SIGPIPE || now.sa_handler != SIG_IGN)) {
            (void)sigaction(number, &usual, NULL); /* some cannot be changed, and need not be */
        }
    }
}

/* Make @fd what the child has at @at. Both are above 2, or the same. */
static bool become_fd(int fd, int at)
{
    return (fd == at ? fcntl(fd, F_SETFD, 0) : dup2(fd, at)) >= 0;
}

static _Noreturn void become(const struct mst__spawn_worker *worker,
                             pid_t parent,
                             const sigset_t *mask,
                             int report_fd)
{
    report_fd = fcntl(report_fd, F_DUPFD_CLOEXEC, 3);
    int output_fd = fcntl(worker->output_fd, F_DUPFD_CLOEXEC, 3);
    int error_fd = fcntl(worker->error_fd, F_DUPFD_CLOEXEC, 3);
    bool is_ready = output_fd >= 0 && error_fd >= 0 && become_fd(output_fd, STDOUT_FILENO) &&
                    become_fd(error_fd, STDERR_FILENO);
    (void)setsid(); /* cannot fail for a process that leads no group */
    is_ready = is_ready && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
    if (getppid() != parent) {
        _exit(127); /* too late for that signal, and nobody is left to tell */
    }
    if (is_ready && worker->cwd != NULL) {
        is_ready = chdir(worker->cwd) == 0;
    }
    if (is_ready && worker->cpus != NULL) {
        int reason = mst__cpu_set_bind(worker->cpus);
        errno = reason;
        is_ready = reason == 0;
    }
    become_default_signals();
    (void)pthread_sigmask(SIG_SETMASK, mask, NULL); /* cannot fail */
    if (is_ready) {
        (void)execvpe(worker->argv[0], worker->argv, worker->environment);
    }
    mst__exec_failed(report_fd);
}

/* --- in the parent --- */

static pid_t fork_blocked(const struct mst__spawn_worker *worker, int report_fd, int *ret_errno)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* cannot fail */
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        become(worker, parent, &before, report_fd);
    }
    *ret_errno = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

int mst__spawn_worker(const struct mst__spawn_worker *worker,
                      pid_t *ret_pid,
                      struct mst_err *reterr)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "pipe");
    }
    int reason = 0;
    pid_t pid = fork_blocked(worker, report[1], &reason);
    (void)close(report[1]);
    int rv = pid < 0 ? mst__fail(reterr, MST_ESYS, reason, "fork") : 0;
    if (rv == 0) {
        rv = mst__exec_await(report[0], pid, worker->argv[0], reterr);
    }
    (void)close(report[0]);
    if (rv == 0) {
        *ret_pid = pid;
    }
    return rv;
}

int mst__spawn_status(const struct mst_err *err)
{
    return mst__err_is_errno(err, ENOENT) ? 127 : 126;
}
