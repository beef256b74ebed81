/* agent/keeper.c - starts workers and reports their ends, in a process of its own.
 *
 * The agent has threads when it forks the keeper, so the keeper allocates nothing and uses no
 * stdio. All signals are blocked in the keeper. */
#include "agent/keeper.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/exec.h"
#include "base/limits.h"

#define ENTRIES_SIZE 4096
#define NAME "worker-keeper" /* at most 15 characters */

struct keeper {
    const struct mst__spawn_worker *spawns;
    pid_t *pids; /* 0 = not running */
    uint32_t count, running_count;
    const sigset_t *mask;    /* signals that workers block */
    int words_fd, orders_fd; /* to the agent, and from it */
    int child_fd;            /* readable when a child has ended */
    bool is_orphan;          /* the agent is gone */
    bool has_last;           /* the end of the last worker is not reported yet */
    int64_t sweep_ms;        /* deadline for the processes that are left */
    struct mst__keeper_word last;
};

/* --- processes that workers leave behind --- */

/* Returns the parent of process @pid, or 0 if the process does not exist or has ended. */
static pid_t parent_of(const char *pid)
{
    char path[40];
    char line[512];
    (void)snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (fd >= 0) {
        (void)close(fd); /* it was only read */
    }
    line[size < 0 ? 0 : size] = '\0';
    const char *name_end = strrchr(line, ')'); /* the name may have any characters */
    bool is_whole = name_end != NULL && strlen(name_end) > 4;
    return !is_whole || name_end[2] == 'Z' ? 0 : (pid_t)strtol(name_end + 4, NULL, 10);
}

/* A directory entry in the kernel's layout. */
struct entry {
    uint64_t inode;
    int64_t offset;
    unsigned short size;
    unsigned char kind;
    char name[];
};

void mst__keeper_kill_children(void)
{
    _Alignas(struct entry) char entries[ENTRIES_SIZE];
    int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pid_t self = getpid();
    long size;
    while (fd >= 0 && (size = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0) {
        for (long at = 0; at < size;) {
            const struct entry *entry = (const struct entry *)(entries + at);
            if (isdigit((unsigned char)entry->name[0]) && parent_of(entry->name) == self) {
                (void)kill((pid_t)strtol(entry->name, NULL, 10), SIGKILL); /* it may have ended */
            }
            at += entry->size;
        }
    }
    /* Without /proc no child is found, and the caller waits until its deadline. */
    if (fd >= 0) {
        (void)close(fd); /* it was only read */
    }
}

bool mst__keeper_is_childless(void)
{
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0) {
            return errno == ECHILD;
        }
        if (info.si_pid == 0) {
            return false;
        }
    }
}

/* --- workers --- */

static void send_signal(const struct keeper *keeper, const struct mst__keeper_order *order)
{
    for (uint32_t i = 0; i < keeper->count; i++) {
        pid_t pid = keeper->pids[i];
        if (pid != 0 && (order->worker == UINT32_MAX || order->worker == i)) {
            (void)kill(order->to_group ? -pid : pid, order->signal); /* it may have ended */
        }
    }
}

/* The agent is gone: kill all workers. */
static void be_orphan(struct keeper *keeper)
{
    if (!keeper->is_orphan) {
        keeper->is_orphan = true;
        keeper->sweep_ms = mst__clock_deadline_ms(MST_GROUP_SWEEP_MS);
        send_signal(keeper, &(struct mst__keeper_order){
                                .worker = UINT32_MAX, .signal = SIGKILL, .to_group = true});
    }
}

static void say(struct keeper *keeper, const struct mst__keeper_word *word)
{
    if (!keeper->is_orphan && write(keeper->words_fd, word, sizeof *word) < 0) {
        be_orphan(keeper);
    }
}

static void start(struct keeper *keeper)
{
    for (uint32_t i = 0; i < keeper->count; i++) {
        struct mst__keeper_word word = {.kind = MST_KEEPER_STARTED, .worker = i};
        struct mst__spawn_worker spawn = keeper->spawns[i];
        spawn.mask = keeper->mask;
        if (mst__spawn_worker(&spawn, &word.pid, &word.err) != 0) {
            word.kind = MST_KEEPER_FAILED;
            say(keeper, &word);
            return;
        }
        keeper->pids[i] = word.pid;
        keeper->running_count++;
        say(keeper, &word);
    }
}

static void end_worker(struct keeper *keeper, uint32_t worker, const siginfo_t *info)
{
    bool is_exit = info->si_code == CLD_EXITED;
    const struct mst__keeper_word word = {
        .kind = MST_KEEPER_ENDED,
        .worker = worker,
        .status = is_exit ? info->si_status : 0,
        .signal = is_exit ? 0 : info->si_status,
    };
    keeper->pids[worker] = 0;
    keeper->running_count--;
    if (keeper->running_count > 0) {
        say(keeper, &word);
        return;
    }
    keeper->has_last = true;
    keeper->last = word;
    keeper->sweep_ms = mst__clock_deadline_ms(MST_GROUP_SWEEP_MS);
}

/* Reap all children that have ended, workers and others. */
static void collect(struct keeper *keeper)
{
    siginfo_t info = {0};
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
        uint32_t worker = 0;
        while (worker < keeper->count && keeper->pids[worker] != info.si_pid) {
            worker++;
        }
        if (worker < keeper->count) {
            /* Until the process is reaped, no other process group can have its number. */
            (void)kill(-info.si_pid, SIGKILL); /* the group may be empty */
        }
        siginfo_t ignored;
        if (waitid(P_PID, (id_t)info.si_pid, &ignored, WEXITED | WNOHANG) != 0) {
            return;
        }
        if (worker < keeper->count) {
            end_worker(keeper, worker, &info);
        }
        info = (siginfo_t){0};
    }
}

/* --- the process --- */

/* Name the process after its task, also in its command line. With that of the agent, whoever kills
 * all processes that have "muster" or the name of the program there would kill agent and keeper at
 * once. The texts of the agent's command line are gone afterwards: no worker can be started. */
static void change_name(void)
{
    char part[ENTRIES_SIZE];
    size_t room = 0;
    ssize_t size = 0;
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    do {
        size = fd < 0 ? 0 : read(fd, part, sizeof part);
        room += size > 0 ? (size_t)size : 0;
    } while (size > 0);
    if (fd >= 0) {
        (void)close(fd); /* it was only read */
    }
    if (room >= sizeof NAME) {
        memset(program_invocation_name, 0, room); /* the arguments follow it without a gap */
        memcpy(program_invocation_name, NAME, sizeof NAME);
    }
    (void)prctl(PR_SET_NAME, NAME);
}

/* Close all descriptors of the agent except the two pipes, such as its connections and its ends of
 * the workers' pipes. */
static void shed(struct keeper *keeper)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3 && null_fd >= 0; fd++) {
        (void)dup2(null_fd, fd); /* they are not used */
    }
    /* Move both away first: one may have the number that the other gets. */
    int words_fd = fcntl(keeper->words_fd, F_DUPFD_CLOEXEC, 5);
    int orders_fd = fcntl(keeper->orders_fd, F_DUPFD_CLOEXEC, 5);
    keeper->words_fd = dup2(words_fd, 3);
    keeper->orders_fd = dup2(orders_fd, 4);
    mst__exec_close_from(5);
    sigset_t child;
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    keeper->child_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Wait for an order or the end of a child, or until the processes that are left must be checked. */
static void wait_for_news(struct keeper *keeper)
{
    bool looks = keeper->running_count == 0 || keeper->is_orphan || keeper->child_fd < 0;
    struct pollfd fds[] = {{.fd = keeper->is_orphan ? -1 : keeper->orders_fd, .events = POLLIN},
                           {.fd = keeper->child_fd, .events = POLLIN}};
    (void)poll(fds, 2, looks ? MST_GROUP_LOOK_MS : -1); /* everything is checked in any case */
    struct signalfd_siginfo info;
    ssize_t size = read(keeper->child_fd, &info, sizeof info);
    (void)size; /* ended children are reaped in any case */
    struct mst__keeper_order order;
    while (!keeper->is_orphan && (size = read(keeper->orders_fd, &order, sizeof order)) >= 0) {
        if (size == sizeof order) {
            send_signal(keeper, &order);
        } else {
            be_orphan(keeper);
        }
    }
}

static _Noreturn void keep(struct keeper *keeper)
{
    (void)setpgid(0, 0); /* signals to the agent's process group are not for the keeper */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* works: the agent is a subreaper, too */
    start(keeper);
    change_name();
    shed(keeper);
    for (;;) {
        collect(keeper);
        bool is_late = mst__clock_ms() >= keeper->sweep_ms;
        if (keeper->running_count == 0 && (is_late || mst__keeper_is_childless())) {
            break;
        }
        if (keeper->is_orphan && is_late) {
            break; /* a process cannot be killed */
        }
        if (keeper->running_count == 0 || keeper->is_orphan) {
            mst__keeper_kill_children();
        }
        wait_for_news(keeper);
    }
    if (keeper->has_last) {
        say(keeper, &keeper->last);
    }
    _exit(0);
}

int mst__keeper_start(const struct mst__spawn_worker *spawns,
                      pid_t *pids,
                      uint32_t count,
                      struct mst__keeper_pipes *ret_pipes,
                      struct mst_err *reterr)
{
    int words[2];
    int orders[2];
    sigset_t all;
    sigset_t before;
    if (pipe2(words, O_CLOEXEC) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "pipe");
    }
    if (pipe2(orders, O_CLOEXEC | O_NONBLOCK) != 0) {
        int rv = mst__fail(reterr, MST_ESYS, errno, "pipe");
        (void)close(words[0]);
        (void)close(words[1]);
        return rv;
    }
    struct keeper keeper = {.spawns = spawns,
                            .pids = pids,
                            .count = count,
                            .mask = &before,
                            .words_fd = words[1],
                            .orders_fd = orders[0]};
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* cannot fail */
    pid_t pid = fork();
    int reason = errno;
    if (pid == 0) {
        (void)close(words[0]);
        (void)close(orders[1]);
        keep(&keeper);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)close(words[1]);
    (void)close(orders[0]);
    *ret_pipes = (struct mst__keeper_pipes){.words_fd = words[0], .orders_fd = orders[1]};
    if (pid < 0) {
        mst__keeper_let_go(ret_pipes);
        return mst__fail(reterr, MST_ESYS, reason, "fork");
    }
    return 0;
}

void mst__keeper_let_go(const struct mst__keeper_pipes *pipes)
{
    (void)close(pipes->words_fd);
    (void)close(pipes->orders_fd);
}
