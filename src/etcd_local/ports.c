/* etcd_local/ports.c - free ports that stay reserved until etcd listens on them. */
#include "etcd_local/ports.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/err.h"

/* A port that is free on the first address may be taken on the second. */
#define HOLD_ATTEMPTS 32

static_assert(MST_PORTS_ADDRESSES_MAX * (sizeof "https://[]:65535," + NI_MAXHOST / 10) <
                  MST_PORTS_URLS_SIZE,
              "the URLs of all addresses, up to 100 characters each, fit");

static uint16_t *port_of(struct mst__ports_address *address)
{
    if (address->address.ss_family == AF_INET6) {
        return &((struct sockaddr_in6 *)(void *)&address->address)->sin6_port;
    }
    return &((struct sockaddr_in *)(void *)&address->address)->sin_port;
}

static bool is_any(const struct mst__ports_address *address)
{
    const void *any = &address->address;
    if (address->address.ss_family == AF_INET6) {
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)any)->sin6_addr);
    }
    return ((const struct sockaddr_in *)any)->sin_addr.s_addr == INADDR_ANY;
}

/* /etc/hosts may have a line twice, and etcd would listen twice. */
static bool is_new(const struct mst__port *port, const struct addrinfo *found)
{
    for (size_t i = 0; i < port->count; i++) {
        if (port->addresses[i].size == found->ai_addrlen &&
            memcmp(&port->addresses[i].address, found->ai_addr, found->ai_addrlen) == 0) {
            return false;
        }
    }
    return found->ai_family == AF_INET || found->ai_family == AF_INET6;
}

static int resolve(const char *host, struct mst__port *port, struct mst_err *reterr)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rv = getaddrinfo(host, NULL, &hints, &found);
    if (rv != 0) {
        return mst__fail_from(reterr, MST_ERESOLVE, MST_DOMAIN_GAI, rv,
                              "etcd: look up host '%.80s': %s", host, gai_strerror(rv));
    }
    for (struct addrinfo *at = found; at != NULL && port->count < MST_PORTS_ADDRESSES_MAX;
         at = at->ai_next) {
        if (is_new(port, at)) {
            struct mst__ports_address *address = &port->addresses[port->count++];
            *address = (struct mst__ports_address){.size = at->ai_addrlen};
            memcpy(&address->address, at->ai_addr, at->ai_addrlen);
        }
    }
    freeaddrinfo(found);
    return 0;
}

/* Bind a socket to @address. @ret_fd keeps it bound; @address gets its port. */
static int bind_one(struct mst__ports_address *address, int *ret_fd)
{
    int fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return errno;
    }
    int one = 1;
    struct sockaddr *raw = (struct sockaddr *)(void *)&address->address;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(fd, raw, address->size) != 0 || getsockname(fd, raw, &address->size) != 0) {
        int reason = errno;
        (void)close(fd);
        return reason;
    }
    *ret_fd = fd;
    return 0;
}

/* Whether the machine does not have this address; then it is skipped. */
static bool is_elsewhere(int reason)
{
    return reason == EADDRNOTAVAIL || reason == EAFNOSUPPORT;
}

/* One attempt on all addresses of @from. Returns 0, or an errno with nothing held. */
static int hold_once(const struct mst__port *from, uint16_t number, struct mst__port *ret_port)
{
    *ret_port = (struct mst__port){.number = number};
    int reason_last = EADDRNOTAVAIL;
    for (size_t i = 0; i < from->count; i++) {
        struct mst__ports_address address = from->addresses[i];
        *port_of(&address) = htons(ret_port->number);
        int reason = bind_one(&address, &ret_port->fds[ret_port->count]);
        if (reason == 0) {
            ret_port->number = ntohs(*port_of(&address));
            ret_port->addresses[ret_port->count++] = address;
        } else if (is_elsewhere(reason)) {
            reason_last = reason;
        } else {
            mst__port_release(ret_port);
            return reason;
        }
    }
    return ret_port->count > 0 ? 0 : reason_last;
}

int mst__port_hold(const char *host,
                   uint16_t number,
                   struct mst__port *ret_port,
                   struct mst_err *reterr)
{
    struct mst__port found = {0};
    int rv = resolve(host, &found, reterr);
    if (rv != 0) {
        return rv;
    }
    for (size_t i = 0; i < found.count; i++) {
        if (is_any(&found.addresses[i])) {
            return mst__fail(reterr, MST_EINVAL, 0,
                             "etcd: host '%.60s' means every address, and clients cannot connect "
                             "to that; give a name or an address of this machine",
                             host);
        }
    }
    int reason = 0;
    for (unsigned i = 0; i < HOLD_ATTEMPTS; i++) {
        reason = hold_once(&found, number, ret_port);
        if (reason != EADDRINUSE || number != 0) {
            break;
        }
    }
    if (is_elsewhere(reason)) {
        return mst__fail(reterr, MST_EINVAL, reason,
                         "etcd: host '%.80s' is not an address of this machine", host);
    }
    if (reason != 0) {
        return mst__fail(reterr, MST_ESYS, reason, "etcd: port %u of '%.80s'", (unsigned)number,
                         host);
    }
    return 0;
}

void mst__port_release(struct mst__port *port)
{
    for (size_t i = 0; i < port->count; i++) {
        if (port->fds[i] >= 0) {
            (void)close(port->fds[i]);
        }
        port->fds[i] = -1;
    }
}

const char *mst__port_urls(const struct mst__port *port,
                           bool is_tls,
                           char ret_urls[MST_PORTS_URLS_SIZE])
{
    size_t at = 0;
    for (size_t i = 0; i < port->count; i++) {
        const struct mst__ports_address *address = &port->addresses[i];
        char host[NI_MAXHOST] = "";
        int rv = getnameinfo((const struct sockaddr *)(const void *)&address->address,
                             address->size, host, sizeof host, NULL, 0, NI_NUMERICHOST);
        MST_ASSERT(rv == 0);
        bool is_ipv6 = address->address.ss_family == AF_INET6;
        int length = snprintf(ret_urls + at, MST_PORTS_URLS_SIZE - at, "%s%s://%s%.90s%s:%u",
                              i == 0 ? "" : ",", is_tls ? "https" : "http", is_ipv6 ? "[" : "",
                              host, is_ipv6 ? "]" : "", (unsigned)port->number);
        MST_ASSERT(length > 0);
        at += (size_t)length;
        MST_ASSERT(at < MST_PORTS_URLS_SIZE);
    }
    return ret_urls;
}
