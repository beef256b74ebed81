/* static/static.c - the rendezvous with a known outcome: every node is given its rank and the
 * number of nodes, and only has to meet the others at one store.
 *
 * Rank 0 serves the store. Each node counts itself under the key with which PyTorch's stores count
 * their processes, so that its nodes and ours can form one group, and then waits until all have
 * come; of PyTorch's nodes, only the serving one waits. There is one round, and no heartbeats. */
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/endpoint.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/number.h"
#include "handler/builtin.h"
#include "handler/head.h"
#include "handler/hosted.h"
#include "store/store.h"

#define TIMEOUT_MS_DEFAULT 600000

/* PyTorch's key; unlike users' keys it has no leading slash. */
#define COUNT_KEY "init/"

/* How often the count is read. */
#define COUNT_MS_FIRST 10
#define COUNT_MS_MAX 250

/* The longest store call between two checks for a cancellation. It grows, because a slow network or
 * name server may need more. */
#define SLICE_MS_FIRST 500
#define SLICE_MS_MAX 4000

struct group {
    struct mst__head head;
    struct mst_params *params;
    struct mst__endpoint endpoint;
    int64_t rank;
    int64_t world_size;
    int64_t timeout_ms;
    char node[MST_HOST_SIZE + 32]; /* for events */
    struct mst__events events;

    /* Used by the owner. */
    struct mst__hosted *hosted;
    struct mst_store *store;
    struct mst_store *counter; /* the same without a slash before keys */
    bool counted;              /* this node is counted */
    bool complete;             /* all nodes are counted */
};

/* --- waiting --- */

/* Wait until cancelled or @deadline_ms, at most @timeout_ms; true if cancelled. */
static bool wait_cancelled(const struct group *group, int64_t timeout_ms, int64_t deadline_ms)
{
    int64_t left_ms = mst__min(mst__clock_left_ms(deadline_ms), timeout_ms);
    struct pollfd cancel = {.fd = group->head.owner.cancel_fd, .events = POLLIN};
    /* The descriptor is checked in any case. */
    (void)poll(&cancel, 1, left_ms < 0 ? 0 : left_ms > INT32_MAX ? INT32_MAX : (int)left_ms);
    return mst__owner_is_cancelled(&group->head.owner);
}

static int fail_cancelled(const struct group *group, struct mst_err *reterr)
{
    return mst__fail(reterr, MST_ECANCELED, 0, "rendezvous '%.60s' cancelled",
                     group->params->run_id);
}

/* The time limit of the next store call; 0 if the time is over. */
static int64_t next_slice(int64_t *slice_ms, int64_t deadline_ms)
{
    int64_t slice = *slice_ms;
    *slice_ms = slice * 2 > SLICE_MS_MAX ? SLICE_MS_MAX : slice * 2;
    return mst__min(mst__clock_left_ms(deadline_ms), slice);
}

/* --- meeting --- */

static int serve_store(struct group *group, struct mst_err *reterr)
{
    if (group->rank != 0 || group->hosted != NULL) {
        return 0;
    }
    int rv = mst__hosted_start(&group->endpoint, &group->params->log, &group->hosted, reterr);
    if (rv == 0) {
        group->endpoint.port = (uint16_t)mst__hosted_port(group->hosted);
        mst__event(&group->events, "host_store", MST_NODE_INIT, -1, group->rank,
                   "The node serves the store at port %u.", group->endpoint.port);
    }
    return rv;
}

/* Connect repeatedly: rank 0 may come last. */
static int open_store(struct group *group, int64_t deadline_ms, struct mst_err *reterr)
{
    if (group->store != NULL) {
        return 0;
    }
    char url[MST_HOSTED_URL_SIZE];
    char text[MST_ENDPOINT_TEXT_SIZE];
    (void)mst__endpoint_format(&group->endpoint, text);
    (void)snprintf(url, sizeof url, "tcp://%s", text); /* sized to fit */
    if (group->hosted != NULL) {
        (void)mst__hosted_url(group->hosted, url);
    }
    struct mst_store_options options;
    mst_store_options_init(&options, sizeof options);
    options.log = group->params->log;
    int64_t slice_ms = SLICE_MS_FIRST;
    int rv;
    do {
        if (mst__owner_is_cancelled(&group->head.owner)) {
            return fail_cancelled(group, reterr);
        }
        rv = mst_store_open(url, &options, next_slice(&slice_ms, deadline_ms), &group->store,
                            reterr);
    } while ((rv == MST_ETIMEOUT || rv == MST_ECONN || rv == MST_ERESOLVE) &&
             mst__clock_ms() < deadline_ms);
    if (rv == 0) {
        rv = mst__store_new(group->store->storage, mst_bytes_str(""), false, &group->counter,
                            reterr);
    }
    return rv == 0 ? 0
                   : mst__err_wrap(reterr, rv, "rank %" PRId64 " at '%.80s', which rank 0 serves",
                                   group->rank, text);
}

static int count_me(struct group *group,
                    int64_t deadline_ms,
                    int64_t *ret_count,
                    struct mst_err *reterr)
{
    if (group->counted) {
        return 0;
    }
    /* Not in slices: a second attempt might count twice. */
    int rv = mst_store_add(group->counter, mst_bytes_str(COUNT_KEY), 1,
                           mst__clock_left_ms(deadline_ms), ret_count, reterr);
    group->counted = rv == 0 || rv == MST_EUNKNOWN;
    return rv;
}

/* The number of nodes that have come. */
static int read_count(struct group *group,
                      int64_t timeout_ms,
                      int64_t *ret_count,
                      struct mst_err *reterr)
{
    struct mst_buffer value = {0};
    int rv =
        mst_store_try_get(group->counter, mst_bytes_str(COUNT_KEY), timeout_ms, &value, reterr);
    if (rv == 0 && !mst__number_parse_prefix(mst_bytes_of(value.data, value.size), ret_count)) {
        rv = mst__fail(reterr, MST_ETYPE, 0,
                       "key '" COUNT_KEY "' is not a number; does another program use this store?");
    }
    mst_buffer_free(&value);
    return rv;
}

static int wait_for_all(struct group *group, int64_t deadline_ms, struct mst_err *reterr)
{
    int64_t count = 0;
    int rv = count_me(group, deadline_ms, &count, reterr);
    int64_t pause_ms = COUNT_MS_FIRST;
    int64_t slice_ms = SLICE_MS_FIRST;
    while (rv == 0 && count < group->world_size) {
        int64_t slice = next_slice(&slice_ms, deadline_ms);
        if (slice == 0) {
            return mst__fail(reterr, MST_ETIMEOUT, 0,
                             "%" PRId64 " of %" PRId64 " nodes have come in time; have all been "
                             "started, with this endpoint?",
                             count, group->world_size);
        }
        rv = read_count(group, slice, &count, reterr);
        rv = rv == MST_ETIMEOUT ? 0 : rv;
        if (rv == 0 && count < group->world_size) {
            if (wait_cancelled(group, pause_ms, deadline_ms)) {
                return fail_cancelled(group, reterr);
            }
            pause_ms = pause_ms * 2 > COUNT_MS_MAX ? COUNT_MS_MAX : pause_ms * 2;
        }
    }
    return rv;
}

/* Agents of torch before 2.4 do not know that the workers meet at the endpoint: they read the
 * address in the store, where the agent of rank 0 writes it. */
static int publish(struct group *group, int64_t deadline_ms, struct mst_err *reterr)
{
    if (group->rank != 0) {
        return 0;
    }
    struct mst_store *store = NULL;
    int rv = mst_store_prefix(group->store, mst_bytes_str(group->params->run_id), &store, reterr);
    if (rv != 0) {
        return rv;
    }
    char port[MST_NUMBER_SIZE];
    size_t port_size = mst__number_format(group->endpoint.port, port);
    const struct mst_bytes keys[] = {mst_bytes_str("MASTER_ADDR"), mst_bytes_str("MASTER_PORT")};
    const struct mst_bytes values[] = {mst_bytes_str(group->endpoint.host),
                                       mst_bytes_of(port, port_size)};
    int64_t left_ms = mst__max(mst__clock_left_ms(deadline_ms), 1);
    rv = mst_store_multi_set(store, keys, values, 2, left_ms, reterr);
    mst_store_close(store);
    return rv;
}

static int meet(struct group *group, int64_t timeout_ms, struct mst_err *reterr)
{
    if (group->complete) {
        return 0;
    }
    int64_t deadline_ms = mst__clock_deadline_ms(timeout_ms);
    int rv = serve_store(group, reterr);
    if (rv == 0) {
        rv = open_store(group, deadline_ms, reterr);
    }
    if (rv == 0) {
        rv = publish(group, deadline_ms, reterr);
    }
    if (rv == 0) {
        rv = wait_for_all(group, deadline_ms, reterr);
    }
    group->complete = rv == 0;
    return rv;
}

/* --- the handler --- */

static int static_join(void *self,
                       int64_t timeout_ms,
                       struct mst_rendezvous *ret,
                       struct mst_err *reterr)
{
    struct group *group = self;
    int rv = meet(group, timeout_ms < 0 ? group->timeout_ms : timeout_ms, reterr);
    if (rv == 0) {
        rv = mst_store_prefix(group->store, mst_bytes_str(group->params->run_id), &ret->store,
                              reterr);
    }
    if (rv == 0) {
        ret->round = 0;
        ret->start = MST_START_FIRST;
        ret->rank = group->rank;
        ret->world_size = group->world_size;
        ret->master_port = group->endpoint.port;
        static_assert(sizeof ret->master_addr >= MST_HOST_SIZE, "a host fits");
        memcpy(ret->master_addr, group->endpoint.host, MST_HOST_SIZE);
    }
    return rv;
}

/* Nothing ever changes. An mst__owner_watch_fn. */
static void watch(void *self)
{
    const struct group *group = self;
    (void)mst__until_pause(group->head.owner.stop_fd, INT64_MAX); /* the caller checks why */
}

static bool static_use_agent_store(void *self)
{
    (void)self; /* the store exists before the workers do */
    return true;
}

static void static_free(void *self)
{
    struct group *group = self;
    if (group == NULL) {
        return;
    }
    mst__head_stop(&group->head);
    mst_store_close(group->counter);
    mst_store_close(group->store);
    mst__hosted_stop(group->hosted);
    mst__head_close(&group->head);
    mst_params_free(group->params);
    mst__free(group);
}

static const struct mst__head_ops static_ops = {
    .join = static_join,
    .use_agent_store = static_use_agent_store,
    .free = static_free,
};

/* --- making one --- */

static const char *const static_options[] = {"rank", "timeout"};
const struct mst__known mst__static_known = MST_KNOWN(static_options);

static int read_params(struct group *group, const struct mst_params *params, struct mst_err *reterr)
{
    int rv = mst__params_check_known(params, &mst__static_known, reterr);
    rv = rv == 0 ? mst__params_check_nodes(params->nodes_min, params->nodes_max, reterr) : rv;
    if (rv != 0) {
        return rv;
    }
    if (mst_params_text(params, "rank", NULL) == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "option 'rank' missing; a static rendezvous needs the rank of every node");
    }
    rv = mst_params_int(params, "rank", 0, &group->rank, reterr);
    if (rv != 0) {
        return rv;
    }
    if (params->endpoint[0] == '\0') {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "endpoint missing; give host:port of the node with rank 0");
    }
    rv = mst__endpoint_parse_default(mst_bytes_str(params->endpoint), -1, &group->endpoint, reterr);
    if (rv != 0) {
        return mst__err_wrap(reterr, rv, "endpoint '%.60s'", params->endpoint);
    }
    if (group->rank < 0 || group->rank >= params->nodes_max) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "option 'rank' is %" PRId64 ", with %" PRId64
                         " nodes it must be from 0 to %" PRId64,
                         group->rank, params->nodes_max, params->nodes_max - 1);
    }
    if (group->endpoint.port == 0 && params->nodes_max > 1) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "endpoint '%.60s': with port 0 the other nodes cannot find the store",
                         params->endpoint);
    }
    rv = mst_params_duration_ms(params, "timeout", TIMEOUT_MS_DEFAULT, &group->timeout_ms, reterr);
    if (rv == 0 && group->timeout_ms <= 0) {
        rv = mst__fail(reterr, MST_EINVAL, 0, "option 'timeout' must be longer than 0");
    }
    return rv;
}

/* Our name in events. */
static void name_node(struct group *group)
{
    char name[MST_HOST_SIZE] = "localhost";
    const char *host = group->params->local_addr;
    if (host == NULL && gethostname(name, sizeof name - 1) == 0) {
        host = name;
    }
    (void)snprintf(group->node, sizeof group->node, "%.*s_%ld_0", MST_HOST_SIZE - 1,
                   host == NULL ? "localhost" : host, (long)getpid()); /* sized to fit */
    mst__head_identify(&group->head, group->params, group->node, &group->events);
}

int mst__static_create(const struct mst_params *params,
                       void *arg,
                       struct mst_handler **ret_handler,
                       struct mst_err *reterr)
{
    (void)arg; /* the same for all */
    struct group *group = mst__calloc(1, sizeof *group);
    if (group == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "static rendezvous");
    }
    group->world_size = params->nodes_max;
    int rv = mst__head_init(&group->head, &static_ops, watch, group, reterr);
    if (rv == 0) {
        rv = read_params(group, params, reterr);
    }
    if (rv == 0) {
        rv = mst__params_copy(params, &group->params, reterr);
    }
    if (rv == 0) {
        name_node(group);
        rv = mst__head_wrap(&group->head, ret_handler, reterr);
    }
    if (rv != 0) {
        static_free(group);
    }
    return rv;
}
