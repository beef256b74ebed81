/* handler/host.c - this machine's addresses. */
#include "handler/host.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/resolve.h"

/* An address that leads back here answers at once; another one may never answer. */
#define LOOP_TIMEOUT_MS 200

/* How often to check whether a port is taken. */
#define TAKEN_LOOK_MS 20

/* The first handler of a process draws its number from this range. Among a thousand containers
 * with the same host name and process id, two have the same number in one of two thousand cases.
 * With all handlers that a process can have, numbers stay within 31 bits, the short form in
 * records. */
#define LOCAL_ID_SPAN ((uint64_t)1 << 30)

/* An address without port and zone, IPv4 mapped to IPv6. */
struct plain {
    struct in6_addr bytes;
};

static bool to_plain(const struct sockaddr *address, struct plain *ret_plain)
{
    if (address == NULL) {
        return false;
    }
    if (address->sa_family == AF_INET6) {
        ret_plain->bytes = ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        return true;
    }
    if (address->sa_family != AF_INET) {
        return false;
    }
    const struct in_addr *in4 = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
    *ret_plain = (struct plain){.bytes.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(&ret_plain->bytes.s6_addr[12], in4, 4);
    return true;
}

static bool plain_is_ipv4(const struct plain *plain)
{
    return IN6_IS_ADDR_V4MAPPED(&plain->bytes);
}

static bool plain_is_loopback(const struct plain *plain)
{
    return plain_is_ipv4(plain) ? plain->bytes.s6_addr[12] == 127
                                : IN6_IS_ADDR_LOOPBACK(&plain->bytes);
}

static bool plain_is_any(const struct plain *plain)
{
    static const uint8_t none[4];
    return plain_is_ipv4(plain) ? memcmp(&plain->bytes.s6_addr[12], none, 4) == 0
                                : IN6_IS_ADDR_UNSPECIFIED(&plain->bytes);
}

/* Valid on one link only, so others cannot use it: 169.254/16, fe80::/10. */
static bool plain_is_link_local(const struct plain *plain)
{
    return plain_is_ipv4(plain) ? plain->bytes.s6_addr[12] == 169 && plain->bytes.s6_addr[13] == 254
                                : IN6_IS_ADDR_LINKLOCAL(&plain->bytes);
}

static bool is_interface_address(const struct ifaddrs *interfaces, const struct plain *plain)
{
    for (const struct ifaddrs *at = interfaces; at != NULL; at = at->ifa_next) {
        struct plain mine;
        if (to_plain(at->ifa_addr, &mine) && memcmp(&mine, plain, sizeof mine) == 0) {
            return true;
        }
    }
    return false;
}

static int list_interfaces(struct ifaddrs **ret_interfaces, struct mst_err *reterr)
{
    if (getifaddrs(ret_interfaces) != 0) {
        int code = errno == ENOMEM ? MST_ENOMEM : MST_ESYS;
        return mst__fail(reterr, code, errno, "list the addresses of this machine");
    }
    return 0;
}

/* --- is it me? --- */

/* Connect a socket to @listener, which is bound to @size bytes of @address. Returns whether the
 * connection arrives. */
static bool arrives(int listener, const struct sockaddr_storage *address, socklen_t size)
{
    bool arrived = false;
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    if (connect(fd, (const struct sockaddr *)address, size) == 0 || errno == EINPROGRESS) {
        struct pollfd waiting = {.fd = listener, .events = POLLIN};
        int accepted = -1;
        if (poll(&waiting, 1, LOOP_TIMEOUT_MS) == 1) {
            accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        }
        arrived = accepted >= 0;
        if (accepted >= 0) {
            (void)close(accepted); /* nothing was written */
        }
    }
    (void)close(fd);
    return arrived;
}

/* Whether @address leads back here although no interface has it. Being able to bind it does not
 * prove that: some machines can bind any address. */
static bool leads_back(const struct addrinfo *info)
{
    struct sockaddr_storage address = {0};
    socklen_t size = info->ai_addrlen;
    memcpy(&address, info->ai_addr, size);
    if (address.ss_family == AF_INET) {
        ((struct sockaddr_in *)(void *)&address)->sin_port = 0;
    } else {
        ((struct sockaddr_in6 *)(void *)&address)->sin6_port = 0;
    }
    int listener = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0) {
        return false;
    }
    bool is_me = bind(listener, (const struct sockaddr *)&address, size) == 0 &&
                 listen(listener, 1) == 0 &&
                 getsockname(listener, (struct sockaddr *)&address, &size) == 0 &&
                 arrives(listener, &address, size);
    (void)close(listener);
    return is_me;
}

static bool any_is_me(const struct addrinfo *addresses, const struct ifaddrs *interfaces)
{
    for (const struct addrinfo *at = addresses; at != NULL; at = at->ai_next) {
        struct plain plain;
        if (!to_plain(at->ai_addr, &plain) || plain_is_any(&plain)) {
            continue;
        }
        if (plain_is_loopback(&plain) || is_interface_address(interfaces, &plain) ||
            leads_back(at)) {
            return true;
        }
    }
    return false;
}

static bool is_my_name(const char *host)
{
    char name[MST_HOST_SIZE] = "";
    /* A name that does not fit cannot equal the endpoint's either. */
    return gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' &&
           strcasecmp(name, host) == 0;
}

/* Whether @host, which nobody knows, begins our full name: a pod knows its own name before the name
 * server does. */
static bool begins_my_name(const char *host, struct mst__until until)
{
    struct mst__endpoint me = {.port = 0};
    char full[MST_HOST_SIZE];
    size_t size = strlen(host);
    return gethostname(me.host, sizeof me.host - 1) == 0 && me.host[0] != '\0' &&
           mst__resolve_name(&me, until, full, NULL) == 0 && strncasecmp(full, host, size) == 0 &&
           (full[size] == '\0' || full[size] == '.');
}

int mst__host_is_me(const struct mst__endpoint *endpoint,
                    struct mst__until until,
                    bool *ret_is_me,
                    struct mst_err *reterr)
{
    bool is_unix = mst__endpoint_path(endpoint) != NULL;
    if (is_unix || mst__host_is_loopback(endpoint->host)) {
        *ret_is_me = !is_unix; /* see host.h */
        return 0;
    }
    struct addrinfo *addresses = NULL;
    int rv = mst__resolve(endpoint, until, &addresses, reterr);
    if (rv != 0) {
        bool is_unknown = rv == MST_ERESOLVE || rv == MST_ETIMEOUT;
        *ret_is_me =
            is_unknown && (is_my_name(endpoint->host) || begins_my_name(endpoint->host, until));
        return *ret_is_me ? 0 : rv;
    }
    struct ifaddrs *interfaces = NULL;
    rv = list_interfaces(&interfaces, reterr);
    if (rv == 0) {
        *ret_is_me = any_is_me(addresses, interfaces) || is_my_name(endpoint->host);
        freeifaddrs(interfaces);
    }
    freeaddrinfo(addresses);
    return rv;
}

/* --- where to listen --- */

/* Parse @host as an address; false for names. */
static bool read_literal(const char *host, struct plain *ret_plain)
{
    struct in_addr in4;
    if (inet_pton(AF_INET, host, &in4) == 1) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = in4};
        return to_plain((const struct sockaddr *)&address, ret_plain);
    }
    char text[MST_HOST_SIZE];
    (void)snprintf(text, sizeof text, "%.*s", (int)strcspn(host, "%"), host); /* without the zone */
    return inet_pton(AF_INET6, text, &ret_plain->bytes) == 1;
}

bool mst__host_is_loopback(const char *host)
{
    struct plain plain;
    return strcasecmp(host, "localhost") == 0 ||
           (read_literal(host, &plain) && plain_is_loopback(&plain));
}

void mst__host_listen(const struct mst__endpoint *endpoint, char ret_host[MST_HOST_SIZE])
{
    const char *host = "*";
    struct plain plain;
    struct ifaddrs *interfaces = NULL;
    if (strcasecmp(endpoint->host, "localhost") == 0) {
        host = "";
    } else if (mst__endpoint_path(endpoint) != NULL || mst__host_is_loopback(endpoint->host)) {
        host = endpoint->host;
    } else if (read_literal(endpoint->host, &plain) && list_interfaces(&interfaces, NULL) == 0) {
        if (is_interface_address(interfaces, &plain)) {
            host = endpoint->host;
        }
        freeifaddrs(interfaces);
    }
    (void)snprintf(ret_host, MST_HOST_SIZE, "%s", host); /* no longer than the endpoint's */
}

/* Whether a socket listens at @address. A socket that is only bound for reuse does not conflict;
 * only a listener does. */
static bool is_listened_at(const struct addrinfo *address)
{
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    int one = 1;
    bool is_taken = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
                    bind(fd, address->ai_addr, address->ai_addrlen) != 0 && errno == EADDRINUSE;
    (void)close(fd); /* nothing was written */
    return is_taken;
}

bool mst__host_is_taken(const struct mst__endpoint *endpoint, int64_t wait_ms)
{
    struct mst__until until = mst__until_in(wait_ms);
    struct addrinfo *addresses = NULL;
    if (mst__resolve(endpoint, until, &addresses, NULL) != 0) {
        return false;
    }
    bool is_taken = false;
    for (;;) {
        for (const struct addrinfo *at = addresses; at != NULL && !is_taken; at = at->ai_next) {
            is_taken = is_listened_at(at);
        }
        if (is_taken || mst__clock_ms() + TAKEN_LOOK_MS >= until.deadline_ms) {
            break;
        }
        (void)poll(NULL, 0, TAKEN_LOOK_MS); /* ending early does no harm */
    }
    freeaddrinfo(addresses);
    return is_taken;
}

/* --- what to tell others --- */

static bool format_host(const struct sockaddr *address,
                        socklen_t size,
                        char ret_host[MST_HOST_SIZE])
{
    return getnameinfo(address, size, ret_host, MST_HOST_SIZE, NULL, 0, NI_NUMERICHOST) == 0;
}

/* The address from which the kernel would send to @to. connect() on a datagram socket sends
 * nothing; it only looks up the route. */
static bool source_for(const struct sockaddr *to,
                       socklen_t to_size,
                       struct plain *ret_plain,
                       char ret_host[MST_HOST_SIZE])
{
    struct sockaddr_storage from = {0};
    socklen_t size = sizeof from;
    int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    bool found = connect(fd, to, to_size) == 0 &&
                 getsockname(fd, (struct sockaddr *)&from, &size) == 0 &&
                 to_plain((const struct sockaddr *)&from, ret_plain) &&
                 format_host((const struct sockaddr *)&from, size, ret_host);
    (void)close(fd);
    return found;
}

/* Our address on the default route, if there is one. The destinations are reserved for
 * documentation. */
static bool source_for_world(char ret_host[MST_HOST_SIZE])
{
    struct sockaddr_in in4 = {.sin_family = AF_INET, .sin_port = htons(9)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
    (void)inet_pton(AF_INET, "192.0.2.1", &in4.sin_addr); /* a valid address; the same below */
    (void)inet_pton(AF_INET6, "2001:db8::1", &in6.sin6_addr);
    struct plain plain;
    return (source_for((const struct sockaddr *)&in4, sizeof in4, &plain, ret_host) &&
            !plain_is_loopback(&plain)) ||
           (source_for((const struct sockaddr *)&in6, sizeof in6, &plain, ret_host) &&
            !plain_is_loopback(&plain));
}

/* The first address of an interface that others can use, IPv4 first. */
static bool interface_for_world(const struct ifaddrs *interfaces, char ret_host[MST_HOST_SIZE])
{
    for (int family = 0; family < 2; family++) {
        for (const struct ifaddrs *at = interfaces; at != NULL; at = at->ifa_next) {
            struct plain plain;
            if ((at->ifa_flags & IFF_UP) == 0 || !to_plain(at->ifa_addr, &plain) ||
                plain_is_loopback(&plain) || plain_is_link_local(&plain) ||
                plain_is_ipv4(&plain) != (family == 0)) {
                continue;
            }
            socklen_t size = family == 0 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
            if (format_host(at->ifa_addr, size, ret_host)) {
                return true;
            }
        }
    }
    return false;
}

int mst__host_advertise(const struct mst__endpoint *endpoint,
                        struct mst__until until,
                        const struct mst_log *log,
                        char ret_host[MST_HOST_SIZE],
                        struct mst_err *reterr)
{
    if (mst__endpoint_path(endpoint) != NULL) {
        (void)snprintf(ret_host, MST_HOST_SIZE, "127.0.0.1"); /* all nodes are here */
        return 0;
    }
    struct addrinfo *addresses = NULL;
    int rv = mst__resolve_patiently(endpoint, until, log, &addresses, reterr);
    if (rv != 0) {
        return rv;
    }
    bool may_be_loopback = mst__host_is_loopback(endpoint->host);
    char host[MST_HOST_SIZE] = "127.0.0.1";
    bool found = false;
    for (const struct addrinfo *at = addresses; at != NULL && !found; at = at->ai_next) {
        struct plain plain;
        found = source_for(at->ai_addr, at->ai_addrlen, &plain, host) &&
                (may_be_loopback || !plain_is_loopback(&plain));
    }
    freeaddrinfo(addresses);
    struct ifaddrs *interfaces = NULL;
    if (!found && !source_for_world(host)) {
        rv = list_interfaces(&interfaces, reterr);
        if (rv == 0 && !interface_for_world(interfaces, host)) {
            (void)snprintf(host, sizeof host, "127.0.0.1"); /* there is no other */
        }
        freeifaddrs(interfaces);
    }
    if (rv == 0) {
        memcpy(ret_host, host, sizeof host);
    }
    return rv;
}

void mst__host_name(const char *local_addr, size_t size, char *ret_name)
{
    if (local_addr != NULL && local_addr[0] != '\0') {
        (void)snprintf(ret_name, size, "%s", local_addr); /* cut off when long */
    } else if (gethostname(ret_name, size - 1) != 0) {
        (void)snprintf(ret_name, size, "localhost");
    }
    ret_name[size - 1] = '\0';
}

int64_t mst__host_local_id(void)
{
    static atomic_int_fast64_t next; /* 0 = not drawn yet */
    int_fast64_t none = 0;
    int_fast64_t first = 1 + (int_fast64_t)(mst__clock_random_u64() % LOCAL_ID_SPAN);
    (void)atomic_compare_exchange_strong(&next, &none, first); /* another thread was quicker */
    return atomic_fetch_add(&next, 1);
}

void mst__host_node_name(const char *given, const char *local_addr, size_t size, char *ret_name)
{
    char host[MST_HOST_SIZE];
    if (given != NULL) {
        (void)snprintf(ret_name, size, "%s", given);
        return;
    }
    mst__host_name(local_addr, sizeof host, host);
    (void)snprintf(ret_name, size, "%.200s_%ld_%" PRId64, host, (long)getpid(),
                   mst__host_local_id()); /* cut off when long */
}
