/* cli/systemd.c - socket activation and readiness, see sd_listen_fds(3) and sd_notify(3). */
#include "cli/systemd.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/number.h"

#define SYSTEMD_FIRST_FD 3

static int64_t environment_number(const char *name)
{
    const char *text = getenv(name);
    int64_t number = 0;
    if (text == NULL || !mst__number_parse(mst_bytes_str(text), 0, INT32_MAX, &number)) {
        return 0;
    }
    return number;
}

size_t mst__systemd_listen_fds(void)
{
    bool is_for_us = environment_number("LISTEN_PID") == getpid();
    int64_t count = environment_number("LISTEN_FDS");
    (void)unsetenv("LISTEN_PID"); /* fails for malformed names only */
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    if (!is_for_us || count > MST_LISTENERS_MAX) {
        return 0;
    }
    for (int fd = SYSTEMD_FIRST_FD; fd < SYSTEMD_FIRST_FD + count; fd++) {
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* a bad descriptor is reported when it is used */
    }
    return (size_t)count;
}

/* The manager's socket; size 0 = none. Stored, because getenv is not allowed in signal handlers. */
static struct sockaddr_un notify_address;
static socklen_t notify_size;

void mst__systemd_init(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    if (path == NULL || path[0] == '\0' || strlen(path) >= sizeof notify_address.sun_path) {
        return;
    }
    notify_address.sun_family = AF_UNIX;
    memcpy(notify_address.sun_path, path, strlen(path));
    if (path[0] == '@') {
        notify_address.sun_path[0] = '\0'; /* the abstract namespace */
    }
    notify_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
}

void mst__systemd_notify(const char *state)
{
    if (notify_size == 0) {
        return;
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return;
    }
    /* On failure, the manager's own timeout applies. */
    (void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&notify_address,
                 notify_size);
    (void)close(fd);
}
