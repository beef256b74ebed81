/* net/listen.c - the addresses that the server listens on. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/endpoint.h"
#include "base/err.h"
#include "base/fork.h"
#include "base/log.h"
#include "net/server.h"

/* With several addresses and port 0, the first one chooses the port; if it is in use on another
 * address, try again. */
#define LISTEN_PORT_TRIES 16

/* --- accepting --- */

static void open_spare(struct mst_server *server)
{
    /* -1: no descriptor is left */
    server->spare_fd = mst__fork_own(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

/* There are no descriptors left. Accept with the reserved one and close at once; otherwise the loop
 * would spin. */
static void turn_away(const struct mst__listener *listener)
{
    struct mst_server *server = listener->server;
    struct mst__stream stream = {.fd = -1};
    struct mst__stream_name peer;
    if (server->spare_fd >= 0) {
        (void)mst__fork_close(server->spare_fd); /* nothing was written */
    }
    (void)mst__stream_accept(&listener->io.stream, &stream, &peer); /* a failure changes nothing */
    mst__stream_close(&stream);
    open_spare(server);
}

static void complain(const struct mst__listener *listener, int reason)
{
    struct mst_server *server = listener->server;
    int64_t now_ms = (int64_t)uv_now(&server->loop);
    if (now_ms - server->accept_complaint_ms < 1000) {
        return; /* one line per second is enough */
    }
    server->accept_complaint_ms = now_ms;
    mst__log(&server->options.log, MST_LOG_ERROR, "accept.failed",
             "listener=%s connections=%zu detail=%s", MST_LOG_TEXT(listener->address),
             server->conns_count, MST_LOG_TEXT(uv_strerror(-reason)));
}

/* Accept connections, up to the limit of one turn of the loop. */
static void on_callers(struct mst__polled *polled, bool can_read, bool can_write)
{
    (void)can_read; /* only reading is requested */
    (void)can_write;
    struct mst__listener *listener = (struct mst__listener *)polled;
    struct mst_server *server = listener->server;
    while (polled->wants_read && server->turns.accepts < MST_ACCEPTS_MAX) {
        struct mst__stream stream;
        struct mst__stream_name peer;
        int rv = mst__stream_accept(&polled->stream, &stream, &peer);
        if (rv == -EAGAIN) {
            return;
        }
        server->turns.accepts++;
        if (rv == 0) {
            mst__conn_accept(listener, stream, &peer);
            continue;
        }
        complain(listener, -rv);
        if (rv == -EMFILE || rv == -ENFILE) {
            turn_away(listener);
        }
        return;
    }
}

/* --- addresses --- */

/* Add a listener for @stream, which is taken. */
static int listener_add(struct mst_server *server,
                        struct mst__stream stream,
                        struct mst__listener **ret_listener,
                        struct mst_err *reterr)
{
    int rv = server->listeners_count == MST_LISTENERS_MAX
                 ? mst__fail(reterr, MST_ELIMIT, 0, "more than %d addresses to listen on",
                             MST_LISTENERS_MAX)
                 : 0;
    struct mst__listener *listener = &server->listeners[server->listeners_count];
    if (rv == 0) {
        *listener = (struct mst__listener){.server = server,
                                           .io = {.on_ready = on_callers, .stream = stream}};
        rv = mst__polled_want(&server->poller, &listener->io, true, false);
        rv = rv == 0 ? 0 : mst__fail(reterr, MST_ESYS, -rv, "poll a socket to listen on");
    }
    if (rv != 0) {
        mst__stream_close(&stream);
        return rv;
    }
    server->listeners_count++;
    /* The address that the kernel has chosen; the port of the first TCP address. */
    int port = 0;
    (void)mst__stream_local(&stream, listener->address, &port); /* empty on failure */
    server->port = server->port == 0 ? port : server->port;
    *ret_listener = listener;
    return 0;
}

static void set_port(struct sockaddr *address, int port)
{
    if (address->sa_family == AF_INET) {
        ((struct sockaddr_in *)(void *)address)->sin_port = htons((uint16_t)port);
    } else {
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons((uint16_t)port);
    }
}

static int open_address(struct mst_server *server,
                        const struct sockaddr *address,
                        size_t size,
                        bool ipv6_only,
                        struct mst_err *reterr)
{
    struct mst__stream stream;
    struct mst__listener *listener = NULL;
    int rv = mst__stream_listen(address, size, ipv6_only, &stream);
    if (rv != 0) {
        char text[MST_ADDRESS_SIZE];
        mst__address_format(address, size, text);
        return mst__fail(reterr, MST_ESYS, -rv, "listen on '%s'", text);
    }
    rv = listener_add(server, stream, &listener, reterr);
    if (rv == 0 && address->sa_family == AF_UNIX) {
        listener->has_path = true;
    }
    return rv;
}

static int open_tcp(struct mst_server *server,
                    struct sockaddr *address,
                    size_t size,
                    int port,
                    bool ipv6_only,
                    struct mst_err *reterr)
{
    set_port(address, port);
    return open_address(server, address, size, ipv6_only, reterr);
}

/* Remove a socket file without a listener, left over from a killed server. */
static void remove_stale_socket(const struct sockaddr_un *address)
{
    struct stat info;
    struct mst__stream stream = {.fd = -1};
    if (lstat(address->sun_path, &info) == 0 && S_ISSOCK(info.st_mode) &&
        mst__stream_connect((const struct sockaddr *)address, sizeof *address, &stream) ==
            -ECONNREFUSED) {
        (void)unlink(address->sun_path); /* bind reports it if it is still there */
    }
    mst__stream_close(&stream);
}

static int open_unix(struct mst_server *server, const char *path, struct mst_err *reterr)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path[0] == '\0' || strlen(path) >= sizeof address.sun_path) {
        return mst__fail(reterr, MST_EINVAL, 0, "unix socket '%s': path empty or too long", path);
    }
    memcpy(address.sun_path, path, strlen(path));
    remove_stale_socket(&address);
    return open_address(server, (const struct sockaddr *)&address, sizeof address, false, reterr);
}

static int open_fd(struct mst_server *server, int fd, struct mst_err *reterr)
{
    struct mst__stream stream;
    struct mst__listener *listener = NULL;
    int rv = mst__stream_listen_fd(fd, &stream);
    if (rv == -EPROTOTYPE) {
        return mst__fail(reterr, MST_EINVAL, 0, "descriptor %d to listen on is not a stream socket",
                         fd);
    }
    if (rv != 0) {
        return mst__fail(reterr, MST_EINVAL, -rv, "descriptor %d to listen on", fd);
    }
    return listener_add(server, stream, &listener, reterr);
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

/* `*`: one socket for both families, or IPv4 only if the kernel has no IPv6. */
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
    struct mst_bytes unix_scheme = mst_bytes_str(MST_ENDPOINT_UNIX);
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
    /* Beside a wildcard of IPv4, the wildcard of IPv6 must not include IPv4. */
    bool ipv6_only = options->ipv6_only || has_host(options, "0.0.0.0") || strcmp(host, "::") != 0;
    for (struct addrinfo *info = found; info != NULL && rv == 0; info = info->ai_next) {
        port = server->port != 0 ? server->port : options->port;
        rv = open_tcp(server, info->ai_addr, info->ai_addrlen, port, ipv6_only, reterr);
    }
    freeaddrinfo(found);
    return rv;
}

/* The loopback addresses: IPv4 is mandatory, IPv6 is not. */
static int open_loopback(struct mst_server *server,
                         const struct mst_server_options *options,
                         struct mst_err *reterr)
{
    int rv = open_host(server, options, "127.0.0.1", reterr);
    if (rv != 0) {
        return rv;
    }
    rv = open_host(server, options, "::1", reterr);
    bool is_missing = rv != 0 && (mst__err_is_errno(reterr, EADDRNOTAVAIL) ||
                                  mst__err_is_errno(reterr, EAFNOSUPPORT));
    return is_missing ? 0 : rv;
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
        if (listener->io.stream.fd < 0) {
            continue;
        }
        mst__polled_close(&server->poller, &listener->io);
        if (listener->has_path) {
            (void)unlink(listener->address + strlen("unix:")); /* it may be gone already */
        }
    }
    if (server->spare_fd >= 0) {
        (void)mst__fork_close(server->spare_fd); /* nothing was written */
        server->spare_fd = -1;
    }
}

int mst__listen_open(struct mst_server *server,
                     const struct mst_server_options *options,
                     struct mst_err *reterr)
{
    /* The cause is used below. */
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
        server->listeners_count = 0;
        server->port = 0;
    }
    open_spare(server);
    if (rv != 0 && reterr != NULL) {
        *reterr = err;
    }
    return rv;
}
