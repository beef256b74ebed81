/* etcd_local/spawn.c - fork and exec.
 *
 * We may have threads, so between the two the child does nothing but system calls. Signals are
 * blocked there until their handlers, which are ours, are gone. */
#include "etcd_local/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "base/exec.h"

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

#define KERNEL_SIGNALS 64

/* --- in the child --- */

static void become_default_signals(bool is_deaf)
{
    /* By the kernel's own interface: the C library hides two signals from us, and a process far
     * above us may have blocked or ignored them. Some cannot be changed, and need not be. */
    const struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        uint64_t mask;
    } usual = {.handler = SIG_DFL};
    for (int number = 1; number <= KERNEL_SIGNALS; number++) {
        (void)syscall(SYS_rt_sigaction, number, &usual, NULL, sizeof usual.mask);
    }
    if (is_deaf) {
        struct sigaction ignore = {.sa_handler = SIG_IGN};
        (void)sigaction(SIGHUP, &ignore, NULL);
        (void)sigaction(SIGINT, &ignore, NULL);
        (void)sigaction(SIGTERM, &ignore, NULL);
    }
    const uint64_t none = 0;
    (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof none);
}

/* The host program may have opened files without close-on-exec. */
static void become_closed(void)
{
    if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0) {
        return;
    }
    struct rlimit limit = {.rlim_cur = 1024}; /* before Linux 5.11 one by one */
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    for (int fd = 3; (rlim_t)fd < limit.rlim_cur && fd < 65536; fd++) {
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
}

/* Make @fd, or nothing, what the child has at @at. */
static bool become_fd(int fd, int at)
{
    if (fd < 0) {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    }
    return fd >= 0 && (fd == at ? fcntl(fd, F_SETFD, 0) : dup2(fd, at)) >= 0;
}

static _Noreturn void become(const struct mst__spawn *spawn, pid_t parent, int report_fd)
{
    /* Out of the way of 0, 1 and 2, which the host program may have closed. */
    report_fd = fcntl(report_fd, F_DUPFD_CLOEXEC, 3);
    int input_fd = spawn->input_fd < 0 ? -1 : fcntl(spawn->input_fd, F_DUPFD_CLOEXEC, 3);
    int output_fd = spawn->output_fd < 0 ? -1 : fcntl(spawn->output_fd, F_DUPFD_CLOEXEC, 3);
    bool is_ready = become_fd(input_fd, STDIN_FILENO) && become_fd(output_fd, STDOUT_FILENO) &&
                    become_fd(output_fd, STDERR_FILENO);
    if (spawn->dies_with_thread) {
        (void)setpgid(0, 0); /* cannot fail for a process that has just begun */
        is_ready = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && is_ready;
        if (getppid() != parent) {
            _exit(127); /* too late for that signal, and nobody is left to tell */
        }
    } else {
        (void)setsid();
    }
    become_closed();
    become_default_signals(!spawn->dies_with_thread);
    if (is_ready) {
        (void)execve(spawn->argv[0], spawn->argv,
                     spawn->environment == NULL ? environ : spawn->environment);
    }
    mst__exec_failed(report_fd);
}

/* --- in the parent --- */

static pid_t fork_blocked(const struct mst__spawn *spawn, int report_fd, int *ret_errno)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* cannot fail */
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        become(spawn, parent, report_fd);
    }
    *ret_errno = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

int mst__spawn(const struct mst__spawn *spawn, pid_t *ret_pid, struct mst_err *reterr)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "pipe");
    }
    int reason = 0;
    pid_t pid = fork_blocked(spawn, report[1], &reason);
    (void)close(report[1]);
    int rv = pid < 0 ? mst__fail(reterr, MST_ESYS, reason, "fork") : 0;
    if (rv == 0) {
        rv = mst__exec_await(report[0], pid, spawn->argv[0], reterr);
    }
    (void)close(report[0]);
    if (rv == 0) {
        *ret_pid = pid;
    }
    return rv;
}
