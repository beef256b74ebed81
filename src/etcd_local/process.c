/* etcd_local/process.c - a child process.
 *
 * Invariant: pid may be signalled while `has_ended` is false and the mutex is held, because only
 * our thread collects the process, under the same mutex, and sets `has_ended` there. */
#include "etcd_local/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/signal_name.h"
#include "base/syscalls.h"
#include "base/until.h"
#include "etcd_local/spawn.h"

/* Polling interval on a kernel without pidfd. */
#define LOOK_INTERVAL_MS 100

/* Room for its output while this program is stopped or busy. */
#define PIPE_SIZE (1 << 20)

struct mst__process {
    pthread_t thread;
    bool has_thread;
    struct mst__spawn spawn; /* borrowed until `started` */
    sem_t started;
    int start_rv;
    struct mst_err start_err;
    pid_t pid;
    int output_fd; /* its output; -1 = goes elsewhere, or at its end */
    int ended_fd;  /* readable once has_ended */

    pthread_mutex_t mutex; /* guards what follows */
    bool has_ended;
    struct mst__process_end end;
    char tail[2 * MST_PROCESS_TAIL_SIZE];
    size_t tail_size;
};

/* --- its output --- */

static void tail_append(struct mst__process *process, const char *data, size_t size)
{
    MST_ASSERT(size <= MST_PROCESS_TAIL_SIZE);
    (void)pthread_mutex_lock(&process->mutex);
    if (process->tail_size + size > sizeof process->tail) {
        size_t kept = MST_PROCESS_TAIL_SIZE;
        memmove(process->tail, process->tail + process->tail_size - kept, kept);
        process->tail_size = kept;
    }
    memcpy(process->tail + process->tail_size, data, size);
    process->tail_size += size;
    (void)pthread_mutex_unlock(&process->mutex);
}

/* Read the available output; close at its end. */
static void drain(struct mst__process *process)
{
    char data[MST_PROCESS_TAIL_SIZE];
    while (process->output_fd >= 0) {
        ssize_t size = read(process->output_fd, data, sizeof data);
        if (size > 0) {
            tail_append(process, data, (size_t)size);
        } else if (size == 0 || (errno != EINTR && errno != EAGAIN)) {
            (void)close(process->output_fd);
            process->output_fd = -1;
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

size_t mst__process_tail(struct mst__process *process, char ret_tail[MST_PROCESS_TAIL_SIZE + 1])
{
    (void)pthread_mutex_lock(&process->mutex);
    size_t size = process->tail_size;
    size = size > MST_PROCESS_TAIL_SIZE ? MST_PROCESS_TAIL_SIZE : size;
    memcpy(ret_tail, process->tail + process->tail_size - size, size);
    (void)pthread_mutex_unlock(&process->mutex);
    ret_tail[size] = '\0';
    return size;
}

/* --- its end --- */

/* Whether it is a zombie, or was already collected by other code of this program. */
static bool is_over(pid_t pid, siginfo_t *ret_info)
{
    int rv;
    do {
        *ret_info = (siginfo_t){0};
        rv = waitid(P_PID, (id_t)pid, ret_info, WEXITED | WNOHANG | WNOWAIT);
    } while (rv != 0 && errno == EINTR);
    return rv != 0 || ret_info->si_pid == pid;
}

static void collect(struct mst__process *process, const siginfo_t *info)
{
    struct mst__process_end end = {
        .is_known = info->si_pid == process->pid,
        .is_signal = info->si_code != CLD_EXITED,
        .number = info->si_status,
    };
    if (end.is_known) {
        /* Kill the rest of its group. Its process id stays ours until it is collected. */
        (void)kill(-process->pid, SIGKILL);
    }
    drain(process);
    (void)pthread_mutex_lock(&process->mutex);
    if (end.is_known) {
        pid_t pid;
        do {
            pid = waitpid(process->pid, NULL, 0);
        } while (pid < 0 && errno == EINTR);
    }
    process->end = end;
    process->has_ended = true;
    (void)pthread_mutex_unlock(&process->mutex);
    uint64_t one = 1;
    ssize_t written = write(process->ended_fd, &one, sizeof one);
    MST_ASSERT(written == sizeof one);
}

static void *process_thread(void *arg)
{
    struct mst__process *process = arg;
    process->start_rv = mst__spawn(&process->spawn, &process->pid, &process->start_err);
    bool is_started = process->start_rv == 0;
    /* Before it can be collected. */
    int pid_fd = is_started ? mst__pidfd_open(process->pid) : -1;
    (void)sem_post(&process->started);
    siginfo_t info;
    while (is_started && !is_over(process->pid, &info)) {
        struct pollfd fds[] = {
            {.fd = process->output_fd, .events = POLLIN},
            {.fd = pid_fd, .events = POLLIN},
        };
        (void)poll(fds, 2, pid_fd < 0 ? LOOK_INTERVAL_MS : -1); /* both are checked in any case */
        drain(process);
    }
    if (is_started) {
        collect(process, &info);
    }
    if (pid_fd >= 0) {
        (void)close(pid_fd);
    }
    return NULL;
}

bool mst__process_has_ended(struct mst__process *process, struct mst__process_end *ret_end)
{
    (void)pthread_mutex_lock(&process->mutex);
    siginfo_t info;
    bool has_ended = process->has_ended;
    bool is_ending = !has_ended && is_over(process->pid, &info);
    (void)pthread_mutex_unlock(&process->mutex);
    if (is_ending) {
        struct pollfd fd = {.fd = process->ended_fd, .events = POLLIN};
        while (poll(&fd, 1, -1) < 0 && errno == EINTR) {
        }
    }
    if (has_ended || is_ending) {
        (void)pthread_mutex_lock(&process->mutex);
        *ret_end = process->end;
        (void)pthread_mutex_unlock(&process->mutex);
    }
    return has_ended || is_ending;
}

int mst__process_wait(struct mst__process *process, struct mst__until until)
{
    return mst__until_ready(until, process->ended_fd, POLLIN);
}

static void send_signal(struct mst__process *process, int number)
{
    (void)pthread_mutex_lock(&process->mutex);
    if (!process->has_ended) {
        (void)kill(-process->pid, number); /* the group exists until it is collected */
    }
    (void)pthread_mutex_unlock(&process->mutex);
}

void mst__process_stop(struct mst__process *process, int64_t grace_ms)
{
    if (grace_ms > 0) {
        send_signal(process, SIGTERM);
    }
    if (mst__process_wait(process, mst__until_in(grace_ms)) != 0) {
        send_signal(process, SIGKILL);
        (void)mst__process_wait(process, mst__until_at(INT64_MAX)); /* SIGKILL always ends it */
    }
}

/* --- making one --- */

/* Signals are for the other threads of the program. */
static int start_thread(struct mst__process *process)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int reason = pthread_create(&process->thread, NULL, process_thread, process);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    process->has_thread = reason == 0;
    return reason;
}

static int start_with(struct mst__process *process, int output_fd, struct mst_err *reterr)
{
    int output[2] = {-1, -1};
    process->ended_fd = eventfd(0, EFD_CLOEXEC);
    if (process->ended_fd < 0) {
        return mst__fail(reterr, MST_ESYS, errno, "eventfd");
    }
    if (output_fd < 0) {
        if (pipe2(output, O_CLOEXEC) != 0) {
            return mst__fail(reterr, MST_ESYS, errno, "pipe");
        }
        process->output_fd = output[0];
        (void)fcntl(output[0], F_SETPIPE_SZ, PIPE_SIZE); /* a smaller pipe works, too */
        (void)fcntl(output[0], F_SETFL, O_NONBLOCK);
        output_fd = output[1];
    }
    process->spawn.output_fd = output_fd;
    int reason = start_thread(process);
    if (reason == 0) {
        while (sem_wait(&process->started) != 0) {
        }
        if (process->start_rv != 0 && reterr != NULL) {
            *reterr = process->start_err;
        }
    }
    if (output[1] >= 0) {
        (void)close(output[1]);
    }
    return reason != 0 ? mst__fail(reterr, MST_ESYS, reason, "thread") : process->start_rv;
}

int mst__process_start(char *const *argv,
                       char *const *environment,
                       int output_fd,
                       struct mst__process **ret_process,
                       struct mst_err *reterr)
{
    struct mst__process *process = mst__malloc(sizeof *process);
    if (process == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "process '%.100s'", argv[0]);
    }
    *process = (struct mst__process){
        .output_fd = -1,
        .ended_fd = -1,
        .spawn = {.argv = argv,
                  .environment = environment,
                  .input_fd = -1,
                  .dies_with_thread = true},
    };
    int rv = pthread_mutex_init(&process->mutex, NULL);
    MST_ASSERT(rv == 0);
    rv = sem_init(&process->started, 0, 0);
    MST_ASSERT(rv == 0);
    rv = start_with(process, output_fd, reterr);
    if (rv != 0) {
        mst__process_free(process);
        return rv;
    }
    *ret_process = process;
    return 0;
}

void mst__process_free(struct mst__process *process)
{
    if (process == NULL) {
        return;
    }
    if (process->has_thread) {
        if (process->start_rv == 0) {
            mst__process_stop(process, 0);
        }
        (void)pthread_join(process->thread, NULL);
    }
    if (process->output_fd >= 0) {
        (void)close(process->output_fd);
    }
    if (process->ended_fd >= 0) {
        (void)close(process->ended_fd);
    }
    (void)sem_destroy(&process->started);
    (void)pthread_mutex_destroy(&process->mutex);
    mst__free(process);
}

pid_t mst__process_pid(const struct mst__process *process)
{
    return process->pid;
}

/* --- words --- */

const char *mst__process_describe(const struct mst__process_end *end,
                                  char ret_text[MST_PROCESS_END_SIZE])
{
    if (!end->is_known) {
        (void)snprintf(ret_text, MST_PROCESS_END_SIZE,
                       "ended, and another part of this program has collected its exit status");
    } else if (end->is_signal) {
        const char *name = mst__signal_name(end->number);
        (void)snprintf(ret_text, MST_PROCESS_END_SIZE, "was killed by signal %d (%s)", end->number,
                       name == NULL ? "without a name" : name);
    } else {
        (void)snprintf(ret_text, MST_PROCESS_END_SIZE, "ended with exit status %d", end->number);
    }
    return ret_text;
}

const char *mst__process_last_words(const char *tail, char *ret_words, size_t size)
{
    MST_ASSERT(size > 0);
    size_t end = strlen(tail);
    while (end > 0 && (tail[end - 1] == '\n' || tail[end - 1] == ' ')) {
        end--;
    }
    size_t from = end; /* start of the part that fits, */
    size_t line = end; /* and of its first whole line */
    size_t cost = 0;
    for (size_t i = end; i > 0; i--) {
        cost += tail[i - 1] == '\n' ? 3 : 1;
        if (cost >= size) {
            break;
        }
        from = i - 1;
        line = from == 0 || tail[from - 1] == '\n' ? from : line;
    }
    from = line == end ? from : line;
    while (from < end && tail[from] == '\n') {
        from++;
    }
    size_t at = 0;
    for (size_t i = from; i < end; i++) {
        unsigned char c = (unsigned char)tail[i];
        if (c == '\n') {
            memcpy(ret_words + at, " | ", 3);
            at += 3;
        } else {
            ret_words[at++] = c < ' ' || c >= 0x7f ? '?' : (char)c;
        }
    }
    ret_words[at] = '\0';
    return ret_words;
}
