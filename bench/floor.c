/* bench/floor.c - a bare echo server: what the kernel alone costs.
 *
 * One thread, one epoll, nothing stored. A request starts with two little-endian u32, its own size
 * and the size of the reply it wants (the head counts); the reply is zeros. Requests that arrive
 * together are answered together. For the barrier storm, a reply can be held back until another
 * connection lets all of them go. `muster-bench store --protocol floor` sends requests of the sizes
 * that a real store would get.
 *
 *   floor PORT_FILE    listens on a free port of 127.0.0.1, writes it there, runs until killed */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"

#define HEAD_SIZE 8
#define REPLY_HOLD (UINT32_C(1) << 31)    /* one byte, when the next REPLY_RELEASE comes */
#define REPLY_RELEASE (UINT32_C(1) << 30) /* one byte to everyone held back, none to the sender */
#define EVENTS_MAX 1024
#define BUFFER_SIZE (1 << 20)
#define FDS_MAX (1 << 20)

/* What is missing of the request under way, and its unfinished head: by descriptor. */
struct conn {
    uint32_t skip;
    uint32_t reply;
    uint8_t head[HEAD_SIZE];
    uint8_t head_size;
};

static struct conn conns[FDS_MAX];
static int held[FDS_MAX]; /* those that wait for a release, each with one request */
static size_t held_count;
static uint8_t input[BUFFER_SIZE];
static uint8_t zeros[BUFFER_SIZE]; /* never written; const would put them into the file */

static _Noreturn void die(const char *what)
{
    (void)fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int listen_somewhere(const char *port_file)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, size) != 0 ||
        listen(fd, SOMAXCONN) != 0 || getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        die("listen");
    }
    /* Renamed when complete, so that nobody reads half a number. */
    char path[4096];
    (void)snprintf(path, sizeof path, "%s.new", port_file);
    FILE *file = fopen(path, "we");
    if (file == NULL || fprintf(file, "%d\n", ntohs(address.sin_port)) < 0 || fclose(file) != 0 ||
        rename(path, port_file) != 0) {
        die(port_file);
    }
    return fd;
}

static void accept_all(int epoll_fd, int listener)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            return; /* no more for now; an aborted one or too many are the client's problem */
        }
        int one = 1;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* only slower without */
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        if (fd >= FDS_MAX || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
            die("watch a connection");
        }
        conns[fd] = (struct conn){0};
    }
}

static void release_all(void)
{
    for (size_t i = 0; i < held_count; i++) {
        (void)send(held[i], zeros, 1, MSG_NOSIGNAL); /* one byte fits; or the peer has gone */
    }
    held_count = 0;
}

/* A request is complete; returns the size of the reply that is due now. */
static size_t answer(int fd, uint32_t reply)
{
    if ((reply & REPLY_HOLD) != 0) {
        held[held_count++] = fd;
        return 0;
    }
    if ((reply & REPLY_RELEASE) != 0) {
        release_all();
        return 0;
    }
    return reply;
}

/* Walk over what arrived; returns the size of the replies that are due. */
static size_t consume(int fd, size_t size)
{
    struct conn *conn = &conns[fd];
    size_t due = 0;
    for (size_t at = 0; at < size;) {
        if (conn->skip == 0) {
            const uint8_t *head = input + at;
            if (conn->head_size > 0 || size - at < HEAD_SIZE) {
                while (conn->head_size < HEAD_SIZE && at < size) {
                    conn->head[conn->head_size++] = input[at++];
                }
                if (conn->head_size < HEAD_SIZE) {
                    return due;
                }
                head = conn->head;
            } else {
                at += HEAD_SIZE;
            }
            conn->head_size = 0;
            conn->skip = mst__load_u32(head) - HEAD_SIZE;
            conn->reply = mst__load_u32(head + 4);
        }
        size_t part = size - at < conn->skip ? size - at : conn->skip;
        at += part;
        conn->skip -= (uint32_t)part;
        if (conn->skip == 0) {
            due += answer(fd, conn->reply);
        }
    }
    return due;
}

static void serve(int fd)
{
    ssize_t size = read(fd, input, sizeof input);
    if (size < 0 && errno == EAGAIN) {
        return;
    }
    size_t due = size > 0 ? consume(fd, (size_t)size) : 0;
    while (size > 0 && due > 0) {
        ssize_t sent = send(fd, zeros, due < sizeof zeros ? due : sizeof zeros, MSG_NOSIGNAL);
        if (sent < 0) {
            /* The client reads all the time, so a full socket is empty again soon. */
            if (errno == EAGAIN) {
                continue;
            }
            size = -1;
            break;
        }
        due -= (size_t)sent;
    }
    if (size <= 0) {
        (void)close(fd); /* the peer has gone already */
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: floor PORT_FILE\n");
        return 2;
    }
    int listener = listen_somewhere(argv[1]);
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[EVENTS_MAX] = {{.events = EPOLLIN, .data.fd = listener}};
    if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &events[0]) != 0) {
        die("epoll");
    }
    for (;;) {
        int count = epoll_wait(epoll_fd, events, EVENTS_MAX, -1);
        if (count < 0 && errno != EINTR) {
            die("epoll_wait");
        }
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == listener) {
                accept_all(epoll_fd, listener);
            } else {
                serve(events[i].data.fd);
            }
        }
    }
}
