/* base/exec.c - fork, and report whether exec succeeded in the child. */
#include "base/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/syscalls.h"

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

#define FDS_MAX 65536

/* --- in the child --- */

bool mst__exec_die_with(pid_t parent)
{
    bool is_ready = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
    if (getppid() != parent) {
        _exit(127); /* too late for that signal, and it cannot be reported */
    }
    return is_ready;
}

void mst__exec_allow_signals(const sigset_t *mask)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    for (int number = 1; number < NSIG; number++) {
        struct sigaction now;
        /* Reset our handlers and our SIG_IGN of SIGPIPE; keep other ignored signals. */
        if (sigaction(number, NULL, &now) == 0 &&
            (number == SIGPIPE || now.sa_handler != SIG_IGN)) {
            (void)sigaction(number, &usual, NULL); /* some cannot be changed, and need not be */
        }
    }
    (void)pthread_sigmask(SIG_SETMASK, mask, NULL); /* cannot fail */
}

int mst__exec_move_fd(int fd)
{
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

bool mst__exec_become_fd(int fd, int at)
{
    return (fd == at ? fcntl(fd, F_SETFD, 0) : dup2(fd, at)) >= 0;
}

/* Before Linux 5.11 one by one. */
static int fds_end(void)
{
    struct rlimit limit = {.rlim_cur = 1024};
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur < FDS_MAX ? (int)limit.rlim_cur : FDS_MAX;
}

void mst__exec_close_from(int first)
{
    if (mst__close_range_from((unsigned)first, 0) != 0) {
        for (int fd = first, end = fds_end(); fd < end; fd++) {
            (void)close(fd); /* it may not be open */
        }
    }
}

void mst__exec_close_from_on_exec(int first)
{
    if (mst__close_range_from((unsigned)first, MST_CLOSE_RANGE_CLOEXEC) != 0) {
        for (int fd = first, end = fds_end(); fd < end; fd++) {
            (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
        }
    }
}

static _Noreturn void tell(int report_fd)
{
    int reason = errno;
    ssize_t written = write(report_fd, &reason, sizeof reason);
    (void)written; /* it cannot be reported */
    _exit(127);
}

/* --- in the parent --- */

static pid_t fork_blocked(mst__exec_fn become, const void *arg, int report_fd, int *ret_errno)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* cannot fail */
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        report_fd = mst__exec_move_fd(report_fd); /* before the child has its own 0, 1 and 2 */
        become(arg, parent, &before);
        tell(report_fd);
    }
    *ret_errno = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

static int await(int report_fd, pid_t pid, const char *program, struct mst_err *reterr)
{
    int reason = 0;
    ssize_t size;
    do {
        size = read(report_fd, &reason, sizeof reason);
    } while (size < 0 && errno == EINTR);
    if (size != sizeof reason) {
        return 0; /* closed by exec */
    }
    pid_t ended;
    do {
        ended = waitpid(pid, NULL, 0); /* it is at its end */
    } while (ended < 0 && errno == EINTR);
    return mst__fail(reterr, MST_ESYS, reason, "run '%.100s'", program);
}

int mst__exec_start(mst__exec_fn become,
                    const void *arg,
                    const char *program,
                    pid_t *ret_pid,
                    struct mst_err *reterr)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "pipe");
    }
    int reason = 0;
    pid_t pid = fork_blocked(become, arg, report[1], &reason);
    (void)close(report[1]);
    int rv = pid < 0 ? mst__fail(reterr, MST_ESYS, reason, "fork")
                     : await(report[0], pid, program, reterr);
    (void)close(report[0]);
    if (rv == 0) {
        *ret_pid = pid;
    }
    return rv;
}
