/* agent/signal_survived.c - reads what a process does with a signal from /proc. */
#include "agent/signal_survived.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATUS_SIZE 8192 /* it is a kilobyte or two */

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

bool mst__signal_is_survived_in(struct mst_bytes status, int signal)
{
    char text[STATUS_SIZE];
    size_t size = status.size < sizeof text ? status.size : sizeof text - 1;
    memcpy(text, status.data, size);
    text[size] = '\0';
    unsigned long long set =
        set_at(text, "\nSigBlk:") | set_at(text, "\nSigIgn:") | set_at(text, "\nSigCgt:");
    return is_harmless(signal) || (set >> (signal - 1) & 1) != 0;
}

bool mst__signal_is_survived(pid_t pid, int signal)
{
    char path[40];
    char status[STATUS_SIZE];
    (void)snprintf(path, sizeof path, "/proc/%lld/status", (long long)pid); /* fits */
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, status, sizeof status);
    if (fd >= 0) {
        (void)close(fd); /* it was only read */
    }
    return size <= 0 || mst__signal_is_survived_in(mst_bytes_of(status, (size_t)size), signal);
}
