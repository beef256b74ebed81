/* bench/generator/echo.c - the floor: connections with one echoed message each. Both sides make
 * only the necessary system calls. */
#include "bench/generator/echo.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#define EVENTS_MAX 512
#define BACKLOG 4096
/* The size of an announcement, and roughly of its answer. */
#define ECHO_SIZE 160

static int echo_listen(int *ret_port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(fd, BACKLOG) != 0 || getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        return -1;
    }
    *ret_port = ntohs(address.sin_port);
    return fd;
}

static void echo_accept(int epoll_fd, int listen_fd)
{
    for (;;) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            return; /* no more connections, or one that is gone */
        }
        int on = 1;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* affects speed only */
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
            _exit(1);
        }
    }
}

static void echo_answer(int fd)
{
    uint8_t bytes[4096];
    ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    if (got <= 0) {
        (void)close(fd); /* nothing was lost */
    } else if (send(fd, bytes, (size_t)got, MSG_NOSIGNAL) != got) {
        _exit(1); /* the parent notices */
    }
}

_Noreturn void mst__bench_echo_run(int port_fd)
{
    int port = 0;
    int listen_fd = echo_listen(&port);
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listen_fd};
    if (listen_fd < 0 || epoll_fd < 0 ||
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listen_fd, &event) != 0 ||
        write(port_fd, &port, sizeof port) != (ssize_t)sizeof port) {
        _exit(1);
    }
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int count = epoll_wait(epoll_fd, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == listen_fd) {
                echo_accept(epoll_fd, listen_fd);
            } else {
                echo_answer(events[i].data.fd);
            }
        }
    }
}

/* --- the other side --- */

struct echo {
    const struct mst__bench_target *target;
    size_t count, opened, echoed;
    int *fds;
    int epoll_fd;
};

static int echo_open_one(struct echo *echo, struct mst_err *reterr)
{
    static const uint8_t message[ECHO_SIZE];
    int fd = -1;
    int rv = mst__bench_connect(echo->target, &fd, reterr);
    if (rv != 0) {
        return rv;
    }
    echo->fds[echo->opened++] = fd;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(echo->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "watch a connection to '%s'", echo->target->name);
    }
    if (send(fd, message, sizeof message, MSG_NOSIGNAL) != (ssize_t)sizeof message) {
        return mst__fail(reterr, MST_ECONN, errno, "send to '%s'", echo->target->name);
    }
    return 0;
}

static int echo_serve(struct echo *echo, struct mst_err *reterr)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(echo->epoll_fd, events, EVENTS_MAX, MST_BENCH_SILENCE_MS);
    if (count == 0) {
        return mst__fail(reterr, MST_ETIMEOUT, 0, "the echo server is silent");
    }
    for (int i = 0; i < count; i++) {
        uint8_t bytes[ECHO_SIZE];
        /* Over the loopback interface, such a small message arrives in one piece. */
        if (recv(events[i].data.fd, bytes, sizeof bytes, MSG_DONTWAIT) != (ssize_t)sizeof bytes) {
            return mst__fail(reterr, MST_ECONN, errno, "no whole echo");
        }
        echo->echoed++;
    }
    return 0;
}

int mst__bench_echo(const struct mst__bench_target *target,
                    size_t count,
                    double *ret_seconds,
                    struct mst_err *reterr)
{
    struct echo echo = {.target = target, .count = count};
    echo.fds = mst__calloc(count, sizeof *echo.fds);
    echo.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int rv = echo.fds == NULL    ? mst__fail(reterr, MST_ENOMEM, 0, "%zu connections", count)
             : echo.epoll_fd < 0 ? mst__fail(reterr, MST_ESYS, errno, "epoll")
                                 : 0;
    int64_t begin_ns = mst__clock_ns();
    while (rv == 0 && echo.echoed < count) {
        if (echo.opened < count && echo.opened - echo.echoed < MST_BENCH_UNDER_WAY_MAX) {
            rv = echo_open_one(&echo, reterr);
        } else {
            rv = echo_serve(&echo, reterr);
        }
    }
    *ret_seconds = (double)(mst__clock_ns() - begin_ns) / 1e9;
    if (echo.fds != NULL) {
        mst__bench_hang_up_many(echo.fds, echo.opened);
    }
    if (echo.epoll_fd >= 0) {
        (void)close(echo.epoll_fd); /* holds nothing that could be lost */
    }
    mst__free(echo.fds);
    return rv;
}
