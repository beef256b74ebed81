/* handler/bootstrap.c - the workers' store, and how nodes learn its address. */
#include "handler/bootstrap.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/number.h"
#include "handler/host.h"
#include "store/store.h"

#define KEY_ADDR "MASTER_ADDR"
#define KEY_PORT "MASTER_PORT"

/* Time to find our own address; it includes a lookup of the endpoint's name. */
#define ADVERTISE_MS 10000

/* An address reserved for documentation: the route to it is the default route. */
#define NOWHERE "192.0.2.1"

/* torch's switch: with "1" the workers' rank 0 starts the store, and the agents do not. */
#define ENV_DISABLE_SHARE "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"

void mst__bootstrap_init(struct mst__bootstrap *bootstrap,
                         const char *local_addr,
                         const struct mst__endpoint *endpoint,
                         const struct mst_log *log)
{
    const char *disable = getenv(ENV_DISABLE_SHARE);
    *bootstrap = (struct mst__bootstrap){
        .local_addr = local_addr,
        .endpoint = {.host = NOWHERE, .port = 9},
        .log = *log,
        .is_shared = disable == NULL || strcmp(disable, "1") != 0,
    };
    if (endpoint != NULL) {
        bootstrap->endpoint = *endpoint;
    }
}

int mst__bootstrap_leave(struct mst__bootstrap *bootstrap, struct mst_err *reterr)
{
    return bootstrap->hosted == NULL ? 0 : mst__hosted_empty(bootstrap->hosted, reterr);
}

void mst__bootstrap_close(struct mst__bootstrap *bootstrap)
{
    mst__hosted_stop(bootstrap->hosted);
    bootstrap->hosted = NULL;
}

/* --- rank 0 --- */

/* Find the address that others use for this node; empty after an error. */
static int find_address(const char *local_addr,
                        const struct mst__endpoint *endpoint,
                        struct mst__until until,
                        const struct mst_log *log,
                        char ret_addr[MST_HOST_SIZE],
                        struct mst_err *reterr)
{
    ret_addr[0] = '\0';
    if (local_addr == NULL || local_addr[0] == '\0') {
        return mst__host_advertise(endpoint, until, log, ret_addr, reterr);
    }
    int size = snprintf(ret_addr, MST_HOST_SIZE, "%s", local_addr);
    if (size >= MST_HOST_SIZE) {
        ret_addr[0] = '\0';
        return mst__fail(reterr, MST_EINVAL, 0, "local address '%.60s…' is too long", local_addr);
    }
    return 0;
}

/* Bind a socket to a free port, in both families if the machine has both. */
static int bind_free(int *ret_fd, int *ret_port, struct mst_err *reterr)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6};
    struct sockaddr_in address4 = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int rv = 0;
    int fd = mst__fork_own(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    bool is_bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0;
    if (!is_bound) {
        if (fd >= 0) {
            (void)mst__fork_close(fd); /* never used */
        }
        size = sizeof address4;
        fd = mst__fork_own(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        is_bound = fd >= 0 && bind(fd, (struct sockaddr *)&address4, size) == 0;
    }
    bool is_v6 = size == sizeof address;
    struct sockaddr *bound = is_v6 ? (struct sockaddr *)&address : (struct sockaddr *)&address4;
    if (!is_bound || getsockname(fd, bound, &size) != 0) {
        rv = mst__fail(reterr, MST_ESYS, errno, "find a free port");
    } else {
        *ret_port = ntohs(is_v6 ? address.sin6_port : address4.sin_port);
        *ret_fd = fd;
    }
    if (rv != 0 && fd >= 0) {
        (void)mst__fork_close(fd); /* never used */
    }
    return rv;
}

int mst__bootstrap_reserve(const char *local_addr,
                           const struct mst__endpoint *endpoint,
                           struct mst__until until,
                           const struct mst_log *log,
                           char addr[MST_HOST_SIZE],
                           int *ret_fd,
                           char ret_address[MST_ENDPOINT_TEXT_SIZE],
                           struct mst_err *reterr)
{
    int port = 0;
    int rv = addr[0] == '\0' ? find_address(local_addr, endpoint, until, log, addr, reterr) : 0;
    if (rv == 0) {
        rv = bind_free(ret_fd, &port, reterr);
    }
    if (rv == 0) {
        struct mst__endpoint offered = {.port = (uint16_t)port};
        memcpy(offered.host, addr, sizeof offered.host);
        (void)mst__endpoint_format(&offered, ret_address);
    }
    return rv;
}

/* Find a port that is free now, as torch's agents do. */
static int find_port(int *ret_port, struct mst_err *reterr)
{
    int fd = -1;
    int rv = bind_free(&fd, ret_port, reterr);
    if (rv == 0) {
        (void)mst__fork_close(fd); /* never used */
    }
    return rv;
}

static int serve(struct mst__bootstrap *bootstrap,
                 int wake_fd,
                 struct mst__bootstrap_info *info,
                 struct mst_err *reterr)
{
    int rv =
        find_address(bootstrap->local_addr, &bootstrap->endpoint,
                     mst__until_by(wake_fd, ADVERTISE_MS), &bootstrap->log, info->addr, reterr);
    if (rv != 0) {
        return rv;
    }
    if (!bootstrap->is_shared) {
        return find_port(&info->port, reterr);
    }
    if (bootstrap->hosted == NULL) {
        struct mst__endpoint endpoint = {.port = 0};
        memcpy(endpoint.host, info->addr, sizeof endpoint.host);
        rv = mst__hosted_start(&endpoint, &bootstrap->log, &bootstrap->hosted, reterr);
        if (rv != 0) {
            return rv;
        }
    }
    info->port = mst__hosted_port(bootstrap->hosted);
    return 0;
}

static int publish(const struct mst__bootstrap_round *round,
                   const struct mst__bootstrap_info *info,
                   struct mst_err *reterr)
{
    char port[MST_NUMBER_SIZE];
    size_t port_size = mst__number_format(info->port, port);
    const struct mst_bytes keys[] = {mst_bytes_str(KEY_ADDR), mst_bytes_str(KEY_PORT)};
    const struct mst_bytes values[] = {mst_bytes_str(info->addr), mst_bytes_of(port, port_size)};
    return mst__store_multi_set(round->store, keys, values, 2,
                                mst__until_by(round->wake_fd, round->call_ms), reterr);
}

/* --- the others --- */

/* Get both keys; with @block, wait for them, else MST_ENOTFOUND. Every writer sets the port
 * last. */
static int read_values(const struct mst__bootstrap_round *round,
                       bool block,
                       struct mst__until until,
                       struct mst_buffer ret_values[2],
                       struct mst_err *reterr)
{
    const struct mst_bytes keys[] = {mst_bytes_str(KEY_ADDR), mst_bytes_str(KEY_PORT)};
    if (!round->is_by_key && block) {
        return mst__store_multi_get(round->store, keys, 2, until, ret_values, reterr);
    }
    int rv = 0;
    for (size_t i = 2; i > 0 && rv == 0; i--) {
        rv = mst__store_fetch(round->store, keys[i - 1], MST_OP_GET, block, until,
                              &ret_values[i - 1], reterr);
    }
    if (rv != 0) {
        mst_buffer_free(&ret_values[1]);
    }
    return rv;
}

/* The same, with looks at the round in between; they tell how long to wait on. */
static int await_values(const struct mst__bootstrap_round *round,
                        int64_t wait_ms,
                        struct mst_buffer ret_values[2],
                        struct mst_err *reterr)
{
    const struct mst__until end = mst__until_by(round->wake_fd, wait_ms);
    int rv = MST_ETIMEOUT;
    while (rv == MST_ETIMEOUT && !mst__until_is_over(end)) {
        int64_t look_ms = round->watch(round->self);
        if (look_ms == 0) {
            break;
        }
        rv = read_values(round, true, mst__until_sooner(end, look_ms), ret_values, reterr);
    }
    /* On a busy machine the time of each wait may be over before its answer is there: what rank 0
     * has told in time is found all the same. */
    return rv == MST_ETIMEOUT
               ? read_values(round, false, mst__until_by(round->wake_fd, round->call_ms),
                             ret_values, reterr)
               : rv;
}

static int read_info(const struct mst__bootstrap_round *round,
                     int64_t wait_ms,
                     struct mst__bootstrap_info *ret_info,
                     struct mst_err *reterr)
{
    struct mst_buffer values[2] = {{NULL, 0}, {NULL, 0}};
    int rv = await_values(round, wait_ms, values, reterr);
    if (rv != 0) {
        return rv;
    }
    int64_t port = 0;
    if (values[0].size == 0 || values[0].size >= sizeof ret_info->addr ||
        !mst__number_parse(mst_bytes_of(values[1].data, values[1].size), 0, 65535, &port)) {
        rv = mst__fail(reterr, MST_ESTATE, 0,
                       KEY_ADDR " and " KEY_PORT " of rank 0 are not an address and a port");
    } else {
        *ret_info = (struct mst__bootstrap_info){.port = (int)port};
        memcpy(ret_info->addr, values[0].data, values[0].size);
    }
    mst_buffer_free(&values[0]);
    mst_buffer_free(&values[1]);
    return rv;
}

/* A torch agent that stays rank 0 keeps its store and does not publish the address again. One
 * that publishes may do so a second after us, which is its polling interval. */
#define KNOWN_WAIT_MS 1500

static int find_out(struct mst__bootstrap *bootstrap,
                    const struct mst__bootstrap_round *round,
                    struct mst__bootstrap_info *ret_info,
                    struct mst_err *reterr)
{
    bool is_known = bootstrap->is_shared && !round->is_repeated &&
                    bootstrap->info.addr[0] != '\0' && strcmp(bootstrap->node, round->master) == 0;
    int64_t wait_ms = is_known && round->wait_ms > KNOWN_WAIT_MS ? KNOWN_WAIT_MS : round->wait_ms;
    struct mst_err err = {0};
    int64_t begin_ms = mst__clock_ms();
    int rv = read_info(round, wait_ms, ret_info, &err);
    if (rv == MST_ETIMEOUT || rv == MST_ENOTFOUND) {
        *ret_info = is_known ? bootstrap->info : (struct mst__bootstrap_info){.port = 0};
        char node[MST_LOG_QUOTE_SIZE];
        mst__log(&bootstrap->log, MST_LOG_WARN, "bootstrap.silent",
                 "master=%s waited_ms=%lld use=%s",
                 mst__log_quote(mst_bytes_str(round->master), node),
                 (long long)(mst__clock_ms() - begin_ms), is_known ? "earlier" : "nothing");
        return 0;
    }
    if (rv != 0) {
        return mst__err_pass(reterr, rv, &err);
    }
    bootstrap->info = *ret_info;
    (void)snprintf(bootstrap->node, sizeof bootstrap->node, "%s", round->master); /* fits */
    return 0;
}

int mst__bootstrap_run(struct mst__bootstrap *bootstrap,
                       const struct mst__bootstrap_round *round,
                       struct mst__bootstrap_info *ret_info,
                       struct mst_err *reterr)
{
    struct mst__bootstrap_info info = {.port = 0};
    int rv = 0;
    if (round->rank == 0) {
        rv = serve(bootstrap, round->wake_fd, &info, reterr);
        if (rv == 0) {
            rv = publish(round, &info, reterr);
        }
    } else {
        /* Every node has left the round in which we were rank 0, or this round would not exist. */
        mst__hosted_stop(bootstrap->hosted);
        bootstrap->hosted = NULL;
        rv = find_out(bootstrap, round, &info, reterr);
    }
    if (rv != 0) {
        return mst__err_wrap(reterr, rv, "bootstrap");
    }
    *ret_info = info;
    return 0;
}
