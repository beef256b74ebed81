/* authority/muster.c - the handler `muster`: the server is the authority. The calls of the
 * application; see muster_self.h for who may do what.
 *
 * Joining takes one message and one answer, which also has the address of rank 0: each node
 * reserves a port for its workers while it waits, and announces it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "authority/muster_self.h"
#include "authority/wait.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "handler/bootstrap.h"
#include "handler/builtin.h"
#include "handler/host.h"
#include "handler/hosted.h"
#include "handler/work.h"
#include "store/store.h"
#include "wire/round_key.h"
#include "wire/wire.h"

/* Time to withdraw from a round. */
#define WITHDRAW_MS 1000

/* Idle time after which connections of the rounds' stores are closed: a server with ten thousand
 * nodes need not keep twice as many. */
#define STORE_IDLE_MS 30000

/* --- the server --- */

const struct mst__endpoint *mst__muster_server(const struct mst__muster *muster)
{
    /* Our own server needs no name and no route. One that has taken its place may listen at fewer
     * addresses. */
    bool is_near = muster->near != NULL && !mst__hosted_gave_way(muster->near);
    return is_near ? &muster->endpoint : &muster->settings.place.endpoint;
}

bool mst__muster_serves(const struct mst__muster *muster)
{
    return muster->hosted != NULL && !mst__hosted_gave_way(muster->hosted);
}

/* --- asking, on a connection of its own --- */

int mst__muster_ask_status(const struct mst__muster *muster,
                           int64_t timeout_ms,
                           struct mst__job_client **ret_client,
                           struct mst__job_status *ret_status,
                           struct mst_err *reterr)
{
    const struct mst__job_message question = {
        .type = MST_JOB_STATUS, .u.question.run_id = mst_bytes_str(muster->params->run_id)};
    struct mst__job_message answer;
    int rv = mst__job_client_ask(mst__muster_server(muster), &question, mst__until_in(timeout_ms),
                                 ret_client, &answer, reterr);
    if (rv == 0 && answer.type != MST_JOB_STATUS_TOLD) {
        mst__job_client_close(*ret_client);
        *ret_client = NULL;
        return mst__fail(reterr, MST_EPROTO, 0,
                         "job server %.60s: unexpected answer '%s' to a status request",
                         muster->where, mst__job_type_name(answer.type));
    }
    if (rv == 0) {
        *ret_status = answer.u.status;
    }
    return rv;
}

void mst__muster_count_nodes(const struct mst__muster *muster,
                             const struct mst__job_status *status,
                             int64_t *ret_others,
                             int64_t *ret_waiting)
{
    struct mst_bytes members = status->members;
    struct mst__job_member member;
    *ret_others = 0;
    *ret_waiting = 0;
    while (mst__job_member_next(&members, &member)) {
        bool is_living = member.standing != MST_STANDING_GONE;
        bool is_self = mst__bytes_equal(member.name, mst_bytes_str(muster->node));
        *ret_others += is_living && !is_self ? 1 : 0;
        *ret_waiting += member.standing == MST_STANDING_GATHERED ||
                                member.standing == MST_STANDING_QUEUED ||
                                member.standing == MST_STANDING_SPARE
                            ? 1
                            : 0;
    }
}

/* --- next: what the round has to offer --- */

/* Make the store of the server; it sends no request. */
static int prepare_store(struct mst__muster *muster, struct mst_err *reterr)
{
    const struct mst__endpoint *endpoint = mst__muster_server(muster);
    const struct mst__url url = {.scheme = MST_URL_TCP, .endpoint = *endpoint};
    struct mst_store_options options;
    mst_store_options_init(&options, sizeof options);
    options.log = muster->params->log;
    struct mst__storage *storage = NULL;
    struct mst_store *store = NULL;
    int rv = mst__tcp_new(&url, &options, &storage, reterr);
    rv = rv == 0 ? mst__store_first(storage, &store, reterr) : rv;
    if (rv == 0) {
        mst_store_close(muster->store); /* NULL, or its views keep it alive */
        muster->store = store;
        muster->store_endpoint = endpoint;
    }
    return rv;
}

/* Open the store of the round; it connects on first use. */
static int next_store(struct mst__muster *muster,
                      const struct mst__job_round *round,
                      struct mst_store **ret_store,
                      struct mst_err *reterr)
{
    char prefix[MST_ROUND_PREFIX_SIZE];
    mst__round_prefix(mst_bytes_str(muster->params->run_id), round->epoch, round->round, prefix);
    int rv =
        muster->store_endpoint == mst__muster_server(muster) ? 0 : prepare_store(muster, reterr);
    rv = rv != 0 ? rv : mst_store_prefix(muster->store, mst_bytes_str(prefix), ret_store, reterr);
    if (rv == 0) {
        mst__store_bind(*ret_store, round->epoch);
    }
    return rv;
}

/* Rank 0 also writes the address of the workers' store under the keys of other kinds of agents.
 * Our own nodes do not need it. */
static void next_publish(const struct mst__muster *muster,
                         struct mst_store *store,
                         const struct mst__endpoint *master)
{
    char port[16];
    (void)snprintf(port, sizeof port, "%d", master->port); /* fits */
    const struct mst_bytes keys[] = {mst_bytes_str("MASTER_ADDR"), mst_bytes_str("MASTER_PORT")};
    const struct mst_bytes values[] = {mst_bytes_str(master->host), mst_bytes_str(port)};
    struct mst_err err = {0};
    if (mst_store_multi_set(store, keys, values, 2, MST_MUSTER_SEND_MS, &err) != 0) {
        char detail[MST_LOG_QUOTE_SIZE];
        mst__log(&muster->params->log, MST_LOG_WARN, "bootstrap.unpublished", "node=%s detail=%s",
                 MST_LOG_TEXT(muster->node), mst__log_quote(mst_bytes_str(err.msg), detail));
    }
}

/* Fill in the outcome. In a task. */
static int next_outcome(struct mst__muster *muster,
                        struct mst_rendezvous *ret,
                        struct mst_err *reterr)
{
    const struct mst__job_round *round = &muster->round;
    struct mst__endpoint master = {.port = 0};
    /* A foreign node may announce an invalid address: then there is none. */
    bool is_told = muster->master[0] != '\0' &&
                   mst__endpoint_parse_default(round->address, -1, &master, NULL) == 0;
    struct mst_store *store = NULL;
    int rv = next_store(muster, round, &store, reterr);
    if (rv != 0) {
        return rv;
    }
    *ret = (struct mst_rendezvous){
        .size = ret->size,
        .round = round->round,
        .rank = (int64_t)round->rank,
        .world_size = (int64_t)round->world,
        .store = store,
        .master_port = is_told ? master.port : 0,
        .epoch = round->epoch,
        .restarts = round->restarts,
        .start = mst__work_start(round->start),
        .connected_us = muster->connected_us,
        .first_worker = round->worker_ranks.first,
        .workers = round->worker_ranks.world,
        .role_first_worker = round->worker_ranks.role_first,
        .role_workers = round->worker_ranks.role_world,
    };
    static_assert(sizeof ret->master_addr >= sizeof master.host, "a host fits");
    if (is_told) {
        memcpy(ret->master_addr, master.host, sizeof master.host);
    }
    if (is_told && round->rank == 0) {
        next_publish(muster, store, &master);
    }
    return 0;
}

/* --- next --- */

static void leave_within(struct mst__muster *muster, int64_t timeout_ms)
{
    muster->part_ms = timeout_ms;
    muster->part_rv = 0;
    mst__muster_step(muster, (struct mst__member_event){.kind = MST_MEMBER_EVENT_LEAVE});
}

static struct mst__wait wait_of(struct mst__muster *muster)
{
    return (struct mst__wait){.self = muster,
                              .member = &muster->member,
                              .where = muster->where,
                              .step = mst__muster_step,
                              .turn = mst__muster_turn};
}

static int muster_join(void *self,
                       int64_t timeout_ms,
                       struct mst_rendezvous *ret,
                       struct mst_err *reterr)
{
    struct mst__muster *muster = self;
    int reserved_fd = -1;
    const struct mst__wait wait = wait_of(muster);
    const struct mst__wait_place place = {.params = muster->params,
                                          .endpoint = &muster->settings.place.endpoint,
                                          .addr = muster->addr,
                                          .address = muster->address};
    muster->part_ms = WITHDRAW_MS; /* the others should not wait for us, nor we for long */
    muster->part_rv = 0;
    int rv = mst__wait_round(&wait, &place, timeout_ms, muster->settings.job.join_us, &reserved_fd,
                             reterr);
    if (rv == 0) {
        rv = next_outcome(muster, ret, reterr);
    }
    if (rv != 0) {
        leave_within(muster, WITHDRAW_MS);
    }
    if (reserved_fd >= 0) {
        (void)mst__fork_close(reserved_fd); /* the port is for the workers now */
    }
    return rv;
}

/* --- the other calls --- */

static int muster_look(void *self, bool *ret_closed, int64_t *ret_waiting, struct mst_err *reterr)
{
    struct mst__muster *muster = self;
    struct mst__job_client *client = NULL;
    struct mst__job_status status;
    int64_t others;
    *ret_closed = false;
    *ret_waiting = 0;
    int rv = mst__muster_ask_status(muster, muster->settings.place.read_timeout_ms, &client,
                                    &status, reterr);
    if (rv == 0) {
        *ret_closed = status.phase == MST_AUTHORITY_CLOSED;
        mst__muster_count_nodes(muster, &status, &others, ret_waiting);
    }
    mst__job_client_close(client);
    return rv == MST_ENOTFOUND ? 0 : rv; /* no node has been there yet */
}

/* Send @arg, a CLOSE, and wait until the rendezvous is closed, watching meanwhile. MST_ECONN:
 * there is no connection. A task. */
static int close_here(void *self, void *arg, struct mst_err *reterr)
{
    struct mst__muster *muster = self;
    const struct mst__member *member = &muster->member;
    struct mst__until until = mst__until_in(muster->settings.job.close_us / 1000);
    int rv = 0;
    if (member->phase == MST_MEMBER_CLOSED) {
        return 0; /* another node was faster */
    }
    if (muster->client == NULL || member->phase != MST_MEMBER_HOLDING) {
        rv = mst__fail(reterr, MST_ECONN, 0, "%.60s: no connection", muster->where);
    } else {
        rv = mst__job_client_send(muster->client, arg, until, reterr);
    }
    const struct mst__job_client *client = muster->client;
    while (rv == 0 && member->phase == MST_MEMBER_HOLDING) {
        mst__muster_turn(muster, until);
        if (muster->client != client) {
            rv = mst__fail(reterr, MST_ECONN, 0, "%.60s: the connection is lost", muster->where);
        } else if (mst__until_is_over(until)) {
            rv = mst__fail(reterr, MST_ETIMEOUT, 0, "%.60s does not answer", muster->where);
        }
    }
    return rv != 0 || member->phase == MST_MEMBER_CLOSED
               ? rv
               : mst__fail(reterr, MST_ECONN, 0, "expelled meanwhile");
}

/* Close on the existing connection, or on a new one. */
static int close_anyhow(struct mst__muster *muster,
                        struct mst__job_message *question,
                        struct mst_err *reterr)
{
    struct mst__until until = mst__until_in(muster->settings.job.close_us / 1000);
    if (mst__owner_try_begin(&muster->head.owner)) {
        int rv = mst__owner_run(&muster->head.owner, close_here, question, reterr);
        mst__owner_end(&muster->head.owner);
        if (rv != MST_ECONN) {
            return rv;
        }
    }
    struct mst__job_client *client = NULL;
    struct mst__job_message answer;
    int rv =
        mst__job_client_ask(mst__muster_server(muster), question, until, &client, &answer, reterr);
    mst__job_client_close(client);
    return rv;
}

static int close_for_good(struct mst__muster *muster,
                          const char *name,
                          const char *reason,
                          struct mst_err *reterr)
{
    struct mst__job_message question = {
        .type = MST_JOB_CLOSE,
        .u.close = {.run_id = mst_bytes_str(muster->params->run_id),
                    .reason = mst_bytes_str(reason),
                    .owner = mst_bytes_str(muster->node)},
    };
    struct mst_err err = {0};
    int rv = close_anyhow(muster, &question, &err);
    return mst__head_after_close(&muster->head, name, rv, &err, reterr);
}

static int muster_set_closed(void *self, struct mst_err *reterr)
{
    return close_for_good(self, "set_closed", "a node has closed it", reterr);
}

/* A task. */
static int leave_round(void *self, void *arg, struct mst_err *reterr)
{
    struct mst__muster *muster = self;
    const int64_t *timeout_ms = arg;
    bool is_in = muster->member.phase == MST_MEMBER_HOLDING;
    bool is_alone = muster->client == NULL;
    mst__owner_joined(&muster->head.owner, false);
    leave_within(muster, *timeout_ms);
    return is_in && (is_alone || muster->part_rv != 0)
               ? mst__fail(reterr, MST_ECONN, 0,
                           "%.60s: no connection; the others learn of it when the grace is over",
                           muster->where)
               : 0;
}

/* A task, with a struct mst__word. */
static int say_word(void *self, void *word, struct mst_err *reterr)
{
    struct mst__muster *muster = self;
    const struct mst__wait wait = wait_of(muster);
    return mst__wait_word(&wait, word, muster->settings.job.close_us / 1000, reterr);
}

static int muster_shutdown(void *self, struct mst_err *reterr)
{
    struct mst__muster *muster = self;
    int rv = close_for_good(muster, "shutdown", "the job is over", reterr);
    /* The next of another thread ends by itself when it hears that the rendezvous is closed. */
    if (!mst__owner_is_busy(&muster->head.owner)) {
        (void)mst__head_leave(muster, NULL); /* if it fails, the server sees that we are gone */
    }
    return rv;
}

/* --- making one --- */

void mst__muster_tell_host(struct mst__muster *muster)
{
    if (muster->hosted != NULL) {
        mst__event(&muster->events, "host", MST_NODE_INIT, -1, -1,
                   "Node '%s' is serving on %s: rendezvous '%s'.", muster->node, muster->where,
                   muster->params->run_id);
    }
}

void mst__muster_tell_way(struct mst__muster *muster)
{
    bool has_given_way = muster->hosted != NULL && !mst__muster_serves(muster);
    if (has_given_way && !muster->is_way_told) {
        muster->is_way_told = true;
        mst__event(&muster->events, "gave_way", MST_NODE_RUNNING, -1, -1,
                   "Node '%s' serves on %s no longer: a muster serve takes its place.",
                   muster->node, muster->where);
    }
}

static bool serves(void *self)
{
    const struct mst__muster *muster = self;
    return mst__muster_serves(muster) && !muster->is_private;
}

static void muster_free(void *self)
{
    struct mst__muster *muster = self;
    if (muster == NULL) {
        return;
    }
    mst__head_stop(&muster->head);
    mst__job_client_close(muster->client);
    mst__job_client_close(muster->early);
    mst__head_drop_round(&muster->head); /* a server that stops waits for its connections */
    mst_store_close(muster->store);      /* open stores keep it alive */
    if (serves(muster)) {
        mst__muster_part(muster);
    }
    mst__hosted_stop(muster->hosted);
    mst__head_close(&muster->head);
    mst_params_free(muster->params);
    mst__free(muster);
}

/* An mst__owner_watch_fn. */
static void watch(void *self)
{
    struct mst__muster *muster = self;
    mst__tcp_prune(muster->store, STORE_IDLE_MS);
    mst__muster_turn(muster, mst__until_by(muster->head.owner.stop_fd, INT64_MAX));
}

static const struct mst__head_ops muster_ops = {
    .connect = mst__muster_connect,
    .join = muster_join,
    .look = muster_look,
    .leave = leave_round,
    .say = say_word,
    .set_closed = muster_set_closed,
    .shutdown = muster_shutdown,
    .serves = serves,
    .linger = mst__muster_linger,
    .free = muster_free,
};

static int prepare(struct mst__muster *muster,
                   const struct mst_params *params,
                   struct mst_err *reterr)
{
    int rv = mst__head_init(&muster->head, &muster_ops, watch, muster, reterr);
    if (rv == 0) {
        rv = mst__params_copy(params, &muster->params, reterr);
    }
    if (rv == 0) {
        rv = mst__muster_read(muster->params, &muster->settings, reterr);
        muster->head.leave_ms = muster->settings.job.close_us / 1000;
    }
    if (rv == 0 && strlen(params->run_id) > MST_JOB_RUN_ID_SIZE_MAX) {
        rv = mst__fail(reterr, MST_EINVAL, 0, "run_id of %zu bytes, at most %d are allowed",
                       strlen(params->run_id), MST_JOB_RUN_ID_SIZE_MAX);
    }
    if (rv == 0) {
        mst__host_node_name(muster->settings.node_name, muster->params->local_addr,
                            sizeof muster->node, muster->node);
        mst__head_identify(&muster->head, muster->params, muster->node, &muster->events);
        muster->is_private = mst__endpoint_is_own(&muster->settings.place.endpoint) &&
                             muster->params->nodes_max == 1;
        rv = mst__hosted_begin(&muster->settings.place, muster->params, mst__until_at(INT64_MAX),
                               &muster->hosted, &muster->endpoint, &muster->is_open, reterr);
        muster->near = muster->hosted;
    }
    return rv == 0 ? prepare_store(muster, reterr) : rv;
}

int mst__muster_create(const struct mst_params *params,
                       void *arg,
                       struct mst_handler **ret_handler,
                       struct mst_err *reterr)
{
    (void)arg; /* the same for all */
    struct mst__muster *muster = mst__calloc(1, sizeof *muster);
    if (muster == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "rendezvous");
    }
    int rv = prepare(muster, params, reterr);
    if (rv == 0) {
        if (muster->hosted != NULL) {
            mst__hosted_place(muster->hosted, &muster->settings.place.endpoint);
        }
        (void)mst__endpoint_format(&muster->settings.place.endpoint, muster->where);
        mst__muster_member(muster);
        rv = mst__head_wrap(&muster->head, ret_handler, reterr);
    }
    if (rv != 0) {
        muster_free(muster);
        return rv;
    }
    mst__muster_tell_host(muster);
    return 0;
}
