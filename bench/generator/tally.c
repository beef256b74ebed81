/* bench/generator/tally.c - requests and bytes over TCP of the nodes in this process. Both are
 * counted where they are sent; this file adds them up. */
#include "bench/generator/tally.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/carried.h"
#include "base/err.h"
#include "base/mem.h"
#include "handler/registry.h"
#include "net/client.h"
#include "store/store.h"
#ifdef MST_WITH_ETCD
#include "etcd/http.h"
#endif

/* How often to repeat the count if a connection was closed meanwhile. */
#define LOOKS_MAX 100

#define PORTS ((size_t)UINT16_MAX + 1)

struct mst__bench_tally mst__bench_tally(void)
{
    struct mst__store_totals store = mst__store_totals();
    struct mst__bench_tally tally = {
        .store_operations = store.operations,
        .store_waits = store.waits,
        .messages = mst__client_messages(),
    };
#ifdef MST_WITH_ETCD
    struct mst__http_totals http = mst__http_totals();
    tally.http_requests = http.requests;
    tally.http_watches = http.watches;
#endif
    return tally;
}

void mst__bench_tally_between(const struct mst__bench_tally *before,
                              const struct mst__bench_tally *after,
                              const char *backend,
                              uint64_t *ret_requests,
                              uint64_t *ret_watches)
{
    if (mst__backend_can(backend, MST_BACKEND_ETCD)) {
        *ret_requests = after->http_requests - before->http_requests;
        *ret_watches = after->http_watches - before->http_watches;
    } else if (mst__backend_can(backend, MST_BACKEND_LISTS)) {
        /* A server that knows the jobs hears of them in messages, not in keys. */
        *ret_requests = after->messages - before->messages;
        *ret_watches = 0; /* the server notifies unasked */
    } else {
        *ret_requests = after->store_operations - before->store_operations;
        *ret_watches = after->store_waits - before->store_waits;
    }
}

/* The local port of @fd; 0 if it has none. */
static uint16_t local_port(int fd)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        return 0;
    }
    switch (address.ss_family) {
        case AF_INET:
            return ntohs(((const struct sockaddr_in *)&address)->sin_port);
        case AF_INET6:
            return ntohs(((const struct sockaddr_in6 *)&address)->sin6_port);
        default:
            return 0;
    }
}

static bool is_listening(int fd)
{
    int is_it = 0;
    socklen_t size = sizeof is_it;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_it, &size) == 0 && is_it != 0;
}

/* Walk over all descriptors: with @is_first find the ports that are served here, else add the bytes
 * of the connections that were not accepted at one of them. */
static int look(bool is_first, bool is_served[PORTS], uint64_t *bytes, struct mst_err *reterr)
{
    DIR *directory = opendir("/proc/self/fd");
    if (directory == NULL) {
        return mst__fail(reterr, MST_ESYS, errno, "open '/proc/self/fd'");
    }
    for (const struct dirent *entry = readdir(directory); entry != NULL;
         entry = readdir(directory)) {
        int fd = entry->d_name[0] == '.' ? -1 : (int)strtol(entry->d_name, NULL, 10);
        uint16_t port = fd < 0 ? 0 : local_port(fd);
        if (port != 0 && is_first) {
            is_served[port] = is_served[port] || is_listening(fd);
        } else if (port != 0 && !is_served[port]) {
            *bytes += mst__carried(fd);
        }
    }
    (void)closedir(directory); /* it was only read */
    return 0;
}

int mst__bench_traffic(uint64_t *ret_bytes, struct mst_err *reterr)
{
    bool *is_served = mst__calloc(PORTS, sizeof *is_served);
    if (is_served == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "connections of this process");
    }
    int rv = look(true, is_served, NULL, reterr);
    bool is_whole = false;
    for (unsigned i = 0; i < LOOKS_MAX && rv == 0 && !is_whole; i++) {
        uint64_t closed = mst__carried_closed();
        *ret_bytes = closed;
        rv = look(false, is_served, ret_bytes, reterr);
        is_whole = mst__carried_closed() == closed; /* else one counts twice, or not at all */
    }
    mst__free(is_served);
    return rv == 0 && !is_whole
               ? mst__fail(reterr, MST_ESYS, 0, "connections are closed all the time")
               : rv;
}
