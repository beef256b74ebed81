/* etcd_local/spawn.c - fork and exec. */
#include "etcd_local/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "base/exec.h"

#define KERNEL_SIGNALS 64

/* --- in the child --- */

static void become_default_signals(bool is_deaf)
{
    /* Through the kernel's own interface: the C library hides two signals, and a parent may have
     * blocked or ignored them. Those that cannot be changed need no change. */
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

/* Make @fd the descriptor @at of the child; -1 = /dev/null. */
static bool become_fd(int fd, int at)
{
    if (fd < 0) {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    }
    return fd >= 0 && mst__exec_become_fd(fd, at);
}

static void spawn_exec(const void *arg, pid_t parent, const sigset_t *mask)
{
    const struct mst__spawn *spawn = arg;
    (void)mask; /* the child blocks none */
    /* The host program may have closed 0, 1 and 2. */
    int input_fd = mst__exec_move_fd(spawn->input_fd);
    int output_fd = mst__exec_move_fd(spawn->output_fd);
    bool is_ready = become_fd(input_fd, STDIN_FILENO) && become_fd(output_fd, STDOUT_FILENO) &&
                    become_fd(output_fd, STDERR_FILENO);
    if (spawn->dies_with_thread) {
        (void)setpgid(0, 0); /* cannot fail for a new process */
        is_ready = mst__exec_die_with(parent) && is_ready;
    } else {
        (void)setsid();
    }
    if (is_ready) {
        mst__exec_close_from_on_exec(3);
        become_default_signals(!spawn->dies_with_thread);
        (void)execve(spawn->argv[0], spawn->argv,
                     spawn->environment == NULL ? environ : spawn->environment);
    }
}

/* --- in the parent --- */

int mst__spawn(const struct mst__spawn *spawn, pid_t *ret_pid, struct mst_err *reterr)
{
    return mst__exec_start(spawn_exec, spawn, spawn->argv[0], ret_pid, reterr);
}
