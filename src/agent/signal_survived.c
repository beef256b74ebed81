/* agent/signal_survived.c - reads what a process does with a signal from /proc. */
#include "agent/signal_survived.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STATUS_SIZE 8192 /* it is a kilobyte or two */

/* How often, and with what pause, a process is looked at that may block a signal for a moment. */
#define LOOKS_MAX 20
#define LOOK_PAUSE_NS 1000000

/* Whether the usual effect of the signal leaves a process alive, see signal(7). */
static bool is_harmless(int signal)
{
    static const int harmless[] = {SIGCHLD, SIGCONT, SIGURG,  SIGWINCH,
                                   SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        if (signal == harmless[i]) {
            return true;
        }
    }
    return false;
}

/* The set of signals in the line that begins with @name; 0 = there is no such line. */
static unsigned long long set_at(const char *status, const char *name)
{
    const char *line = strstr(status, name);
    return line == NULL ? 0 : strtoull(line + strlen(name), NULL, 16);
}

static bool is_in(unsigned long long set, int signal)
{
    return (set >> (signal - 1) & 1) != 0;
}

enum mst__survival mst__signal_survival_in(struct mst_bytes status, int signal)
{
    char text[STATUS_SIZE];
    size_t size = status.size < sizeof text ? status.size : sizeof text - 1;
    memcpy(text, status.data, size);
    text[size] = '\0';
    if (is_harmless(signal) ||
        is_in(set_at(text, "\nSigIgn:") | set_at(text, "\nSigCgt:"), signal)) {
        return MST_SURVIVAL_SURE;
    }
    if (!is_in(set_at(text, "\nSigBlk:"), signal)) {
        return MST_SURVIVAL_NONE;
    }
    /* A process that sleeps with the signal blocked fetches it, as with sigwait(3). One that runs
     * may only have blocked all signals around a fork, say, and would die of it after that. */
    return strstr(text, "\nState:\tS") != NULL ? MST_SURVIVAL_SURE : MST_SURVIVAL_BLOCKED;
}

static enum mst__survival look(pid_t pid, int signal)
{
    char path[40];
    char status[STATUS_SIZE];
    (void)snprintf(path, sizeof path, "/proc/%lld/status", (long long)pid); /* fits */
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, status, sizeof status);
    if (fd >= 0) {
        (void)close(fd); /* it was only read */
    }
    return size <= 0 ? MST_SURVIVAL_SURE
                     : mst__signal_survival_in(mst_bytes_of(status, (size_t)size), signal);
}

bool mst__signal_is_survived(pid_t pid, int signal)
{
    const struct timespec pause = {.tv_nsec = LOOK_PAUSE_NS};
    enum mst__survival survival = look(pid, signal);
    for (int i = 1; survival == MST_SURVIVAL_BLOCKED && i < LOOKS_MAX; i++) {
        (void)nanosleep(&pause, NULL); /* a shorter pause does no harm */
        survival = look(pid, signal);
    }
    return survival != MST_SURVIVAL_NONE;
}
