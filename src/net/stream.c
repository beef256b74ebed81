/* net/stream.c - streams over TCP and unix sockets. */
#include "net/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fork.h"

/* The kernel limits it to net.core.somaxconn. */
#define STREAM_BACKLOG 65535

struct option {
    int level, name, value;
};

/* They affect speed only, so failures are ignored. */
static void set_options(int fd, const struct option *options, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                         sizeof options[i].value);
    }
}

static bool is_inet(int family)
{
    return family == AF_INET || family == AF_INET6;
}

/* --- names --- */

static struct mst__stream_name name_of(const struct sockaddr_storage *address)
{
    struct mst__stream_name name = {.family = (uint8_t)address->ss_family};
    if (name.family == AF_INET) {
        const struct sockaddr_in *in4 = (const struct sockaddr_in *)(const void *)address;
        name.port = in4->sin_port;
        memcpy(name.address, &in4->sin_addr, sizeof in4->sin_addr);
    } else if (name.family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;
        name.port = in6->sin6_port;
        name.scope = in6->sin6_scope_id;
        memcpy(name.address, &in6->sin6_addr, sizeof in6->sin6_addr);
    }
    return name;
}

void mst__stream_name_format(const struct mst__stream_name *name, char ret_text[MST_ADDRESS_SIZE])
{
    if (name->family == AF_INET) {
        struct sockaddr_in in4 = {.sin_family = AF_INET, .sin_port = name->port};
        memcpy(&in4.sin_addr, name->address, sizeof in4.sin_addr);
        mst__address_format((const struct sockaddr *)&in4, sizeof in4, ret_text);
    } else if (name->family == AF_INET6) {
        struct sockaddr_in6 in6 = {
            .sin6_family = AF_INET6, .sin6_port = name->port, .sin6_scope_id = name->scope};
        memcpy(&in6.sin6_addr, name->address, sizeof in6.sin6_addr);
        mst__address_format((const struct sockaddr *)&in6, sizeof in6, ret_text);
    } else {
        (void)snprintf(ret_text, MST_ADDRESS_SIZE, "unix:");
    }
}

int mst__stream_local(const struct mst__stream *stream,
                      char ret_text[MST_ADDRESS_SIZE],
                      int *ret_port)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    if (getsockname(stream->fd, (struct sockaddr *)&address, &size) != 0) {
        return -errno;
    }
    mst__address_format((const struct sockaddr *)&address, size, ret_text);
    *ret_port = is_inet(address.ss_family) ? ntohs(name_of(&address).port) : 0;
    return 0;
}

/* --- opening --- */

/* Make @fd listen: 0 or an error. Accepted sockets inherit the options, which saves calls. */
static int listener_start(int fd, int family)
{
    static const struct option options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 60}, {IPPROTO_TCP, TCP_KEEPINTVL, 15},
        {IPPROTO_TCP, TCP_KEEPCNT, 4},
    };
    if (is_inet(family)) {
        set_options(fd, options, sizeof options / sizeof options[0]);
    }
    return listen(fd, STREAM_BACKLOG) == 0 ? 0 : -errno;
}

int mst__stream_listen(const struct sockaddr *address,
                       size_t size,
                       bool ipv6_only,
                       struct mst__stream *ret_listener)
{
    const int yes = 1;
    const int only = ipv6_only ? 1 : 0;
    int family = address->sa_family;
    struct mst__stream listener = {
        .fd = mst__fork_own(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0))};
    int rv = listener.fd < 0 ? -errno : 0;
    if (rv == 0 && is_inet(family) &&
        setsockopt(listener.fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0) {
        rv = -errno;
    }
    if (rv == 0 && family == AF_INET6 &&
        setsockopt(listener.fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only) != 0) {
        rv = -errno;
    }
    if (rv == 0 && bind(listener.fd, address, (socklen_t)size) != 0) {
        rv = -errno;
    }
    rv = rv == 0 ? listener_start(listener.fd, family) : rv;
    if (rv != 0) {
        mst__stream_close(&listener);
        return rv;
    }
    *ret_listener = listener;
    return 0;
}

int mst__stream_listen_fd(int fd, struct mst__stream *ret_listener)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    int type = 0;
    socklen_t type_size = sizeof type;
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) != 0) {
        return -errno;
    }
    if (type != SOCK_STREAM) {
        return -EPROTOTYPE;
    }
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        return -errno;
    }
    int rv = listener_start(fd, address.ss_family);
    if (rv == 0) {
        ret_listener->fd = mst__fork_own(fd);
    }
    return rv;
}

int mst__stream_accept(const struct mst__stream *listener,
                       struct mst__stream *ret_stream,
                       struct mst__stream_name *ret_peer)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    int fd =
        accept4(listener->fd, (struct sockaddr *)&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        /* A failure of one connection does not concern the next one. */
        return errno == EWOULDBLOCK || errno == EINTR || errno == ECONNABORTED ? -EAGAIN : -errno;
    }
    ret_stream->fd = mst__fork_own(fd);
    *ret_peer = name_of(&address);
    return 0;
}

int mst__stream_connect(const struct sockaddr *address, size_t size, struct mst__stream *ret_stream)
{
    /* Both affect speed only. */
    static const struct option options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
    };
    int fd =
        mst__fork_own(socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd < 0) {
        return -errno;
    }
    if (is_inet(address->sa_family)) {
        set_options(fd, options, sizeof options / sizeof options[0]);
    }
    /* An interrupted connect continues in the background, as one in progress. */
    if (connect(fd, address, (socklen_t)size) != 0 && errno != EINPROGRESS && errno != EINTR) {
        int reason = errno;
        (void)mst__fork_close(fd); /* nothing was written */
        return -reason;
    }
    ret_stream->fd = fd;
    return 0;
}

/* On one machine, a port without a listener can become the source port of the connection to it.
 * Then we are connected to ourselves. */
static bool is_self_connected(int fd)
{
    struct sockaddr_storage here = {0};
    struct sockaddr_storage there = {0};
    socklen_t here_size = sizeof here;
    socklen_t there_size = sizeof there;
    if (getsockname(fd, (struct sockaddr *)&here, &here_size) != 0 ||
        getpeername(fd, (struct sockaddr *)&there, &there_size) != 0 || here.ss_family == AF_UNIX) {
        return false;
    }
    return here_size == there_size && memcmp(&here, &there, here_size) == 0;
}

int mst__stream_connected(const struct mst__stream *stream)
{
    int reason = 0;
    socklen_t size = sizeof reason;
    struct pollfd pollfd = {.fd = stream->fd, .events = POLLOUT};
    if (poll(&pollfd, 1, 0) == 0) {
        return -EAGAIN;
    }
    if (getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &reason, &size) != 0) {
        reason = errno;
    }
    return reason == 0 && is_self_connected(stream->fd) ? -ECONNREFUSED : -reason;
}

/* --- bytes --- */

short mst__stream_events(const struct mst__stream *stream, bool reads, bool writes)
{
    (void)stream; /* this kind of stream polls for what is wanted */
    return (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
}

static ssize_t fail_or_again(void)
{
    return errno == EWOULDBLOCK || errno == EINTR ? -EAGAIN : -errno;
}

ssize_t mst__stream_read(const struct mst__stream *stream, void *memory, size_t size)
{
    ssize_t got = recv(stream->fd, memory, size, 0);
    return got >= 0 ? got : fail_or_again();
}

ssize_t mst__stream_write(const struct mst__stream *stream, struct mst_bytes bytes)
{
    ssize_t took = send(stream->fd, bytes.data, bytes.size, MSG_NOSIGNAL);
    return took >= 0 ? took : fail_or_again();
}

int mst__stream_has_input(const struct mst__stream *stream)
{
    uint8_t byte;
    ssize_t got = recv(stream->fd, &byte, sizeof byte, MSG_PEEK);
    if (got != 0) {
        return got > 0 ? 1 : fail_or_again() == -EAGAIN ? 0 : -errno;
    }
    return -EPIPE;
}

size_t mst__stream_unsent(const struct mst__stream *stream)
{
    int unsent = 0;
    return ioctl(stream->fd, SIOCOUTQ, &unsent) == 0 && unsent > 0 ? (size_t)unsent : 0;
}

int mst__stream_end(const struct mst__stream *stream, bool reads)
{
    return shutdown(stream->fd, reads ? SHUT_RDWR : SHUT_WR) == 0 ? 0 : -errno;
}

/* --- who can call, who has called --- */

/* An address without its port, IPv4 mapped to IPv6. */
static struct in6_addr plain_of(const struct mst__stream_name *name)
{
    struct in6_addr plain = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (name->family == AF_INET6) {
        memcpy(&plain, name->address, sizeof plain);
    } else {
        memcpy(&plain.s6_addr[12], name->address, 4);
    }
    return plain;
}

static bool is_loopback(const struct mst__stream_name *name)
{
    struct in6_addr plain = plain_of(name);
    return name->family == AF_UNIX || IN6_IS_ADDR_LOOPBACK(&plain) ||
           (IN6_IS_ADDR_V4MAPPED(&plain) && plain.s6_addr[12] == 127);
}

static bool is_same(const struct mst__stream_name *left, const struct mst__stream_name *right)
{
    struct in6_addr a = plain_of(left);
    struct in6_addr b = plain_of(right);
    return memcmp(&a, &b, sizeof a) == 0;
}

/* Whether an interface of this machine has the address of @name. */
static bool is_of_interface(const struct mst__stream_name *name)
{
    struct ifaddrs *interfaces = NULL;
    bool is_ours = false;
    if (getifaddrs(&interfaces) != 0) {
        return false;
    }
    for (const struct ifaddrs *at = interfaces; at != NULL && !is_ours; at = at->ifa_next) {
        if (at->ifa_addr == NULL || !is_inet(at->ifa_addr->sa_family)) {
            continue;
        }
        struct sockaddr_storage address = {0};
        memcpy(&address, at->ifa_addr,
               at->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                  : sizeof(struct sockaddr_in6));
        struct mst__stream_name own = name_of(&address);
        is_ours = is_same(name, &own);
    }
    freeifaddrs(interfaces);
    return is_ours;
}

enum mst__stream_peer mst__stream_peer(const struct mst__stream *stream)
{
    struct sockaddr_storage here = {0};
    struct sockaddr_storage there = {0};
    socklen_t here_size = sizeof here;
    socklen_t there_size = sizeof there;
    if (getsockname(stream->fd, (struct sockaddr *)&here, &here_size) != 0 ||
        getpeername(stream->fd, (struct sockaddr *)&there, &there_size) != 0) {
        return MST_STREAM_ELSEWHERE;
    }
    struct mst__stream_name called = name_of(&here);
    struct mst__stream_name peer = name_of(&there);
    if (is_loopback(&called)) {
        return MST_STREAM_LOOPBACK;
    }
    /* The source of a call to ourselves is the same address, or another one of ours. */
    return is_same(&called, &peer) || is_of_interface(&peer) ? MST_STREAM_HERE
                                                             : MST_STREAM_ELSEWHERE;
}

bool mst__stream_is_loopback(const struct mst__stream *listener)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    if (getsockname(listener->fd, (struct sockaddr *)&address, &size) != 0) {
        return false;
    }
    struct mst__stream_name name = name_of(&address);
    return is_loopback(&name);
}

void mst__stream_close(struct mst__stream *stream)
{
    if (stream->fd >= 0) {
        (void)mst__fork_close(stream->fd); /* the descriptor is gone in any case */
        stream->fd = -1;
    }
}
