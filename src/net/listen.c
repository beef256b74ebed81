/* net/listen.c - where the server listens: exactly where it was asked to. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/log.h"
#include "net/server.h"

/* The kernel cuts it down to net.core.somaxconn. */
#define LISTEN_BACKLOG 65535

/* With several addresses and port 0 the first one chooses; if that is taken elsewhere, again. */
#define LISTEN_PORT_TRIES 16

/* Accept, unless there were enough in this turn of the loop: libuv does not go on before the last
 * one was accepted. */
static void listener_accept(struct mst__listener *listener)
{
    struct mst_server *server = listener->server;
    listener->is_waiting = ++server->turns.accepts > MST_ACCEPTS_MAX;
    if (listener->is_waiting) {
        mst__turns_want(server);
    } else {
        mst__conn_accept(listener);
    }
}

bool mst__listen_go_on(struct mst_server *server)
{
    bool is_done = true;
    for (size_t i = 0; i < server->listeners_count; i++) {
        struct mst__listener *listener = &server->listeners[i];
        if (listener->is_waiting && listener->is_open) {
            listener_accept(listener);
            is_done = is_done && !listener->is_waiting;
        }
    }
    return is_done;
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct mst__listener *listener = stream->data;
    struct mst_server *server = listener->server;
    if (status == 0) {
        listener_accept(listener);
        return;
    }
    /* Out of descriptors: libuv has turned the connection away. One line a second is enough. */
    int64_t now_ms = (int64_t)uv_now(&server->loop);
    if (now_ms - server->accept_complaint_ms >= 1000) {
        server->accept_complaint_ms = now_ms;
        mst__log(&server->options.log, MST_LOG_ERROR, "accept.failed",
                 "listener=%s connections=%zu detail=%s", MST_LOG_TEXT(listener->address),
                 server->conns_count, MST_LOG_TEXT(uv_strerror(status)));
    }
}

static int listener_add(struct mst_server *server,
                        bool is_unix,
                        int family,
                        struct mst__listener **ret_listener,
                        struct mst_err *reterr)
{
    if (server->listeners_count == MST_LISTENERS_MAX) {
        return mst__fail(reterr, MST_ELIMIT, 0, "more than %d addresses to listen on",
                         MST_LISTENERS_MAX);
    }
    struct mst__listener *listener = &server->listeners[server->listeners_count];
    *listener = (struct mst__listener){.server = server, .is_unix = is_unix};
    int rv = is_unix ? uv_pipe_init(&server->loop, &listener->uv.pipe, 0)
                     : uv_tcp_init_ex(&server->loop, &listener->uv.tcp, (unsigned)family);
    if (rv != 0) {
        return mst__fail(reterr, MST_ESYS, -rv, "socket to listen on");
    }
    listener->uv.handle.data = listener;
    listener->is_open = true;
    server->listeners_count++;
    *ret_listener = listener;
    return 0;
}

/* Accepted connections inherit these from the listening socket, which saves calls for each. Dead
 * peers are found by keep-alive probes, because silent ones must not be timed out. */
static void listener_set_options(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 60}, {IPPROTO_TCP, TCP_KEEPINTVL, 15},
        {IPPROTO_TCP, TCP_KEEPCNT, 4},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        /* None is needed for correct answers; a kernel without one costs speed only. */
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                         sizeof options[i].value);
    }
}

static int listener_start(struct mst__listener *listener, struct mst_err *reterr)
{
    int rv = uv_listen(&listener->uv.stream, LISTEN_BACKLOG, on_connection);
    if (rv != 0) {
        return mst__fail(reterr, MST_ESYS, -rv, "listen on '%s'", listener->address);
    }
    return 0;
}

/* Fill in the address that the kernel settled on; of the first TCP one, the port. */
static void listener_name(struct mst__listener *listener, int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        return;
    }
    mst__address_format((const struct sockaddr *)&address, size, listener->address);
    int port = 0;
    if (address.ss_family == AF_INET) {
        port = ntohs(((const struct sockaddr_in *)(const void *)&address)->sin_port);
    } else if (address.ss_family == AF_INET6) {
        port = ntohs(((const struct sockaddr_in6 *)(const void *)&address)->sin6_port);
    }
    if (port != 0 && listener->server->port == 0) {
        listener->server->port = port;
    }
}

static int listener_fd(const struct mst__listener *listener)
{
    uv_os_fd_t fd = -1;
    int rv = uv_fileno(&listener->uv.handle, &fd);
    MST_ASSERT(rv == 0);
    return fd;
}

static void set_port(struct sockaddr *address, int port)
{
    if (address->sa_family == AF_INET) {
        ((struct sockaddr_in *)(void *)address)->sin_port = htons((uint16_t)port);
    } else {
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons((uint16_t)port);
    }
}

static int open_tcp(struct mst_server *server,
                    struct sockaddr *address,
                    size_t size,
                    int port,
                    bool ipv6_only,
                    struct mst_err *reterr)
{
    set_port(address, port);
    struct mst__listener *listener = NULL;
    int rv = listener_add(server, false, address->sa_family, &listener, reterr);
    if (rv != 0) {
        return rv;
    }
    MST_ASSERT(listener != NULL);
    mst__address_format(address, size, listener->address);
    unsigned flags = address->sa_family == AF_INET6 && ipv6_only ? UV_TCP_IPV6ONLY : 0;
    rv = uv_tcp_bind(&listener->uv.tcp, address, flags);
    if (rv != 0) {
        return mst__fail(reterr, MST_ESYS, -rv, "bind '%s'", listener->address);
    }
    int fd = listener_fd(listener);
    listener_set_options(fd);
    rv = listener_start(listener, reterr);
    if (rv != 0) {
        return rv;
    }
    listener_name(listener, fd);
    return 0;
}

/* A socket file that nobody listens on is left over from a killed server. */
static void remove_stale_socket(const char *path)
{
    struct stat info;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path || lstat(path, &info) != 0 ||
        !S_ISSOCK(info.st_mode)) {
        return;
    }
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return;
    }
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0 &&
        errno == ECONNREFUSED) {
        (void)unlink(path); /* bind tells if it is still there */
    }
    (void)close(fd); /* nothing was written */
}

static int open_unix(struct mst_server *server, const char *path, struct mst_err *reterr)
{
    if (path[0] == '\0' || strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path) {
        return mst__fail(reterr, MST_EINVAL, 0, "unix socket '%s': path empty or too long", path);
    }
    remove_stale_socket(path);
    struct mst__listener *listener = NULL;
    int rv = listener_add(server, true, AF_UNIX, &listener, reterr);
    if (rv != 0) {
        return rv;
    }
    (void)snprintf(listener->address, sizeof listener->address, "unix:%s", path);
    rv = uv_pipe_bind(&listener->uv.pipe, path);
    if (rv != 0) {
        return mst__fail(reterr, MST_ESYS, -rv, "bind '%s'", listener->address);
    }
    return listener_start(listener, reterr);
}

static int open_fd(struct mst_server *server, int fd, struct mst_err *reterr)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    int type = 0;
    socklen_t type_size = sizeof type;
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) != 0) {
        return mst__fail(reterr, MST_EINVAL, errno, "descriptor %d to listen on", fd);
    }
    if (type != SOCK_STREAM) {
        return mst__fail(reterr, MST_EINVAL, 0, "descriptor %d to listen on is no stream socket",
                         fd);
    }
    bool is_unix = address.ss_family == AF_UNIX;
    struct mst__listener *listener = NULL;
    int rv = listener_add(server, is_unix, AF_UNSPEC, &listener, reterr);
    if (rv != 0) {
        return rv;
    }
    rv = is_unix ? uv_pipe_open(&listener->uv.pipe, fd) : uv_tcp_open(&listener->uv.tcp, fd);
    if (rv != 0) {
        return mst__fail(reterr, MST_ESYS, -rv, "descriptor %d to listen on", fd);
    }
    if (!is_unix) {
        listener_set_options(fd);
    }
    listener_name(listener, fd);
    return listener_start(listener, reterr);
}

/* --- names --- */

static bool has_host(const struct mst_server_options *options, const char *host)
{
    for (size_t i = 0; i < options->hosts_count; i++) {
        if (strcmp(options->hosts[i], host) == 0) {
            return true;
        }
    }
    return false;
}

/* `*`: one socket for both families, or IPv4 alone where the kernel has no IPv6. */
static int open_everywhere(struct mst_server *server, int port, struct mst_err *reterr)
{
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    int rv = open_tcp(server, (struct sockaddr *)&any6, sizeof any6, port, false, reterr);
    if (rv == 0 || !mst__err_is_errno(reterr, EAFNOSUPPORT)) {
        return rv;
    }
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_ANY)}};
    return open_tcp(server, (struct sockaddr *)&any4, sizeof any4, port, false, reterr);
}

static int open_host(struct mst_server *server,
                     const struct mst_server_options *options,
                     const char *host,
                     struct mst_err *reterr)
{
    struct mst_bytes unix_scheme = mst_bytes_str("unix:");
    if (mst__bytes_start_with(mst_bytes_str(host), unix_scheme)) {
        return open_unix(server, host + unix_scheme.size, reterr);
    }
    int port = server->port != 0 ? server->port : options->port;
    if (strcmp(host, "*") == 0) {
        return open_everywhere(server, port, reterr);
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    int rv = getaddrinfo(host, NULL, &hints, &found);
    if (rv != 0) {
        return mst__fail_from(reterr, MST_ERESOLVE, MST_DOMAIN_GAI, rv,
                              "host '%s' to listen on: %s", host, gai_strerror(rv));
    }
    /* Beside a wildcard of IPv4, the one of IPv6 must leave IPv4 alone. */
    bool ipv6_only = options->ipv6_only || has_host(options, "0.0.0.0") || strcmp(host, "::") != 0;
    for (struct addrinfo *info = found; info != NULL && rv == 0; info = info->ai_next) {
        port = server->port != 0 ? server->port : options->port;
        rv = open_tcp(server, info->ai_addr, info->ai_addrlen, port, ipv6_only, reterr);
    }
    freeaddrinfo(found);
    return rv;
}

/* The loopback addresses: IPv4's must be there, IPv6's need not. */
static int open_loopback(struct mst_server *server,
                         const struct mst_server_options *options,
                         struct mst_err *reterr)
{
    int rv = open_host(server, options, "127.0.0.1", reterr);
    if (rv != 0) {
        return rv;
    }
    rv = open_host(server, options, "::1", reterr);
    if (rv != 0 &&
        (mst__err_is_errno(reterr, EADDRNOTAVAIL) || mst__err_is_errno(reterr, EAFNOSUPPORT))) {
        struct mst__listener *failed = &server->listeners[server->listeners_count - 1];
        if (failed->is_open && mst__err_is_errno(reterr, EADDRNOTAVAIL)) {
            uv_close(&failed->uv.handle, NULL);
            failed->is_open = false;
            server->listeners_count--;
            (void)uv_run(&server->loop, UV_RUN_NOWAIT); /* lets the handle finish closing */
        }
        rv = 0;
    }
    return rv;
}

static int open_hosts(struct mst_server *server,
                      const struct mst_server_options *options,
                      struct mst_err *reterr)
{
    if (options->hosts_count == 0) {
        return open_loopback(server, options, reterr);
    }
    int rv = 0;
    for (size_t i = 0; i < options->hosts_count && rv == 0; i++) {
        rv = open_host(server, options, options->hosts[i], reterr);
    }
    return rv;
}

void mst__listen_close(struct mst_server *server)
{
    for (size_t i = 0; i < server->listeners_count; i++) {
        struct mst__listener *listener = &server->listeners[i];
        if (listener->is_open) {
            uv_close(&listener->uv.handle, NULL);
            listener->is_open = false;
        }
    }
}

int mst__listen_open(struct mst_server *server,
                     const struct mst_server_options *options,
                     struct mst_err *reterr)
{
    /* The cause is looked at below, so there has to be one. */
    struct mst_err err = {0};
    int rv = 0;
    for (size_t i = 0; i < options->listen_fds_count && rv == 0; i++) {
        rv = open_fd(server, options->listen_fds[i], &err);
    }
    for (int tries = 1; options->listen_fds_count == 0; tries++) {
        rv = open_hosts(server, options, &err);
        if (rv == 0 || options->port != 0 || !mst__err_is_errno(&err, EADDRINUSE) ||
            tries == LISTEN_PORT_TRIES) {
            break;
        }
        mst__listen_close(server);
        (void)uv_run(&server->loop, UV_RUN_NOWAIT); /* lets the handles finish closing */
        server->listeners_count = 0;
        server->port = 0;
    }
    if (rv != 0 && reterr != NULL) {
        *reterr = err;
    }
    return rv;
}
