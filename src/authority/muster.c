/* authority/muster.c - the handler `muster`: one authority, the server, decides for all nodes; the
 * calls of the application. muster_self.h says who may do what.
 *
 * To join is one message, and so is the answer, which also tells where rank 0 is: each node keeps a
 * port free for its workers while it waits, and says which. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "authority/muster_self.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/mem.h"
#include "handler/bootstrap.h"
#include "handler/builtin.h"
#include "handler/host.h"
#include "handler/hosting.h"
#include "store/store.h"
#include "wire/round_key.h"
#include "wire/wire.h"

/* For those who are waited for in vain: to ask why, and to take leave. */
#define WHY_MS 1000
#define WITHDRAW_MS 1000

/* How long the server of a closed rendezvous outlives its end, and how often it looks whether it
 * has to. */
#define LINGER_MS 2500
#define LINGER_LOOK_US 20000

/* --- asking, on a connection of its own --- */

/* What is known of the run, for as long as @ret_client is open. MST_ENOTFOUND: nobody was there. */
static int ask_status(const struct mst__muster *muster,
                      int64_t timeout_ms,
                      struct mst__job_client **ret_client,
                      struct mst__job_status *ret_status,
                      struct mst_err *reterr)
{
    const struct mst__job_message question = {
        .type = MST_JOB_STATUS, .u.close.run_id = mst_bytes_str(muster->params->run_id)};
    struct mst__job_message answer;
    int rv = mst__job_client_ask(&muster->endpoint, &question, mst__clock_deadline_ms(timeout_ms),
                                 ret_client, &answer, reterr);
    if (rv == 0 && answer.type != MST_JOB_STATUS_TOLD) {
        mst__job_client_close(*ret_client);
        *ret_client = NULL;
        return mst__fail(reterr, MST_EPROTO, 0, "job server %.60s: '%s' instead of a status",
                         muster->where, mst__job_type_name(answer.type));
    }
    if (rv == 0) {
        *ret_status = answer.u.status;
    }
    return rv;
}

/* How @name stands in @status; MST_STANDING_GONE when it is not there. */
static enum mst__authority_standing status_standing(const struct mst__job_status *status,
                                                    const char *name)
{
    struct mst_bytes members = status->members;
    struct mst__job_member member;
    while (mst__job_member_next(&members, &member)) {
        if (mst__bytes_equal(member.name, mst_bytes_str(name)) &&
            member.standing != MST_STANDING_GONE) {
            return (enum mst__authority_standing)member.standing;
        }
    }
    return MST_STANDING_GONE;
}

/* How many there are besides us, and how many of all wait for a round. */
static void status_count(const struct mst__job_status *status,
                         const char *name,
                         int64_t *ret_others,
                         int64_t *ret_waiting)
{
    struct mst_bytes members = status->members;
    struct mst__job_member member;
    *ret_others = 0;
    *ret_waiting = 0;
    while (mst__job_member_next(&members, &member)) {
        bool is_living = member.standing != MST_STANDING_GONE;
        bool is_self = mst__bytes_equal(member.name, mst_bytes_str(name));
        *ret_others += is_living && !is_self ? 1 : 0;
        *ret_waiting += member.standing == MST_STANDING_GATHERED ||
                                member.standing == MST_STANDING_QUEUED ||
                                member.standing == MST_STANDING_SPARE
                            ? 1
                            : 0;
    }
}

/* --- next: waiting --- */

/* One next under way. */
struct next {
    struct mst__muster *muster;
    int64_t deadline_ms;
    bool is_spare;
    bool is_patient; /* was one when the time was last looked at */
    bool is_done;
    struct mst__job_round round; /* as it was sealed; the address is below */
    char master[MST_ENDPOINT_TEXT_SIZE];
    struct mst_err connect_err; /* why there is no connection */
};

static int next_fail_closed(const struct next *next,
                            struct mst_bytes reason,
                            struct mst_bytes owner,
                            struct mst_err *reterr)
{
    return mst__fail(reterr, next->is_spare ? MST_ESPARE : MST_ECLOSED, 0, "closed by '%.*s': %.*s",
                     (int)(owner.size < 60 ? owner.size : 60), (const char *)owner.data,
                     (int)reason.size, (const char *)reason.data);
}

/* The round that runs has no place for us at the moment. */
static void next_stand_by(struct next *next, const struct mst__job_message *message)
{
    struct mst__muster *muster = next->muster;
    const struct mst__job_round *round = &message->u.round;
    next->is_spare = message->type == MST_JOB_SPARE;
    next->is_patient = next->is_spare;
    if (round->round > muster->claim.round) {
        muster->claim = (struct mst__claim){
            .epoch = round->epoch,
            .round = round->round,
            .world = round->world,
            .rank = MST_AUTHORITY_RANK_NONE,
        };
    }
    mst__event(&muster->events, next->is_spare ? "spare" : "queued", MST_NODE_RUNNING, round->round,
               -1,
               "Node '%s' %s: round %" PRId64 " of rendezvous '%s' runs with %" PRIu32 " nodes%s.",
               muster->node, next->is_spare ? "is a spare" : "waits", round->round,
               muster->params->run_id, round->world, next->is_spare ? " and is full" : "");
}

static void next_sealed(struct next *next, const struct mst__job_round *round)
{
    if (round->round <= next->muster->claim.round) {
        return; /* the one that we come from, told again */
    }
    next->round = *round;
    (void)snprintf(next->master, sizeof next->master, "%.*s",
                   (int)(round->address.size < sizeof next->master ? round->address.size : 0),
                   (const char *)round->address.data);
    next->round.address = mst_bytes_str(next->master);
    next->is_done = true;
}

/* 0, or why this next is over. */
static int next_message(struct next *next,
                        const struct mst__job_message *message,
                        struct mst_err *reterr)
{
    struct mst__muster *muster = next->muster;
    struct mst_err err = {0};
    switch (message->type) {
        case MST_JOB_WELCOME:
            mst__muster_welcomed(muster, message);
            return 0;
        case MST_JOB_REFUSED:
            if (message->u.refused.refusal == MST_REFUSAL_CLAIM) {
                return 0; /* that we were still in a round, said just before we wanted another */
            }
            if (message->u.refused.code == MST_ECLOSED && next->is_spare) {
                (void)mst__job_client_refused(message, reterr);
                return mst__err_wrap(reterr, MST_ESPARE, "a spare");
            }
            return mst__job_client_refused(message, reterr);
        case MST_JOB_CLOSED:
            return next_fail_closed(next, message->u.close.reason, message->u.close.owner, reterr);
        case MST_JOB_SEALED:
            next_sealed(next, &message->u.round);
            return 0;
        case MST_JOB_QUEUED:
        case MST_JOB_SPARE:
            next_stand_by(next, message);
            return 0;
        case MST_JOB_REOPENED: /* of a round that we may never have heard of */
        case MST_JOB_EXPELLED: /* of a session that is over; a newer process would be refused */
            if (mst__muster_announce(muster, &err) != 0) {
                mst__muster_drop(muster, &err);
            }
            return 0;
        default:
            return 0; /* of the round that we come from, or of a later server */
    }
}

/* The time is over: ask for whom we wait. A spare is not late, and goes on; when it is none any
 * more it has all the time that the others have. */
static int next_late(struct next *next, struct mst_err *reterr)
{
    struct mst__muster *muster = next->muster;
    int64_t join_ms = muster->settings.job.join_us / 1000;
    struct mst__job_client *client = NULL;
    struct mst__job_status status;
    int rv = ask_status(muster, WHY_MS, &client, &status, NULL);
    if (rv != 0) {
        return mst__owner_is_cancelled(&muster->head.owner)
                   ? mst__owner_fail_cancelled(reterr)
                   : mst__fail(reterr, MST_ETIMEOUT, 0, "no round within %lld ms; %.60s is silent",
                               (long long)join_ms, muster->where);
    }
    bool is_spare = status_standing(&status, muster->node) == MST_STANDING_SPARE;
    if (is_spare || next->is_patient) {
        next->deadline_ms = mst__clock_deadline_ms(join_ms);
        next->is_patient = is_spare;
    } else {
        rv = mst__fail(reterr, MST_ETIMEOUT, 0, "no round within %lld ms: %.*s", (long long)join_ms,
                       (int)status.sentence.size, (const char *)status.sentence.data);
    }
    mst__job_client_close(client);
    return rv;
}

/* Have a connection. Whoever serves may come last. */
static int next_reach(struct next *next, struct mst_err *reterr)
{
    struct mst__muster *muster = next->muster;
    struct mst_err err = {0};
    int rv = mst__muster_reach(muster, next->deadline_ms, &err);
    if (rv == 0 || rv == MST_ENOTSUP || rv == MST_ENOMEM || rv == MST_ELIMIT) {
        return rv == 0 ? 0 : mst__err_pass(reterr, rv, &err);
    }
    if (mst__owner_is_cancelled(&muster->head.owner)) {
        return mst__owner_fail_cancelled(reterr);
    }
    if (mst__clock_ms() >= next->deadline_ms) {
        const struct mst_err *why = next->connect_err.code != 0 ? &next->connect_err : &err;
        return mst__err_pass(reterr, MST_ECONN, why);
    }
    next->connect_err = err;
    return 0;
}

/* Wait until a round is sealed with us. In the owner. */
static int next_wait(struct next *next, struct mst_err *reterr)
{
    struct mst__muster *muster = next->muster;
    int rv = 0;
    while (rv == 0 && !next->is_done) {
        if (mst__owner_is_cancelled(&muster->head.owner)) {
            return mst__owner_fail_cancelled(reterr);
        }
        rv = next_reach(next, reterr);
        if (rv != 0 || muster->client == NULL) {
            continue;
        }
        struct mst__job_message message;
        struct mst_err err = {0};
        int got = mst__muster_wait(muster, next->deadline_ms, &message, &err);
        if (got == 0) {
            rv = next_message(next, &message, reterr);
        } else if (got == MST_ETIMEOUT) {
            rv = next_late(next, reterr);
        } else if (got != MST_ECANCELED) {
            next->connect_err = err;
            mst__muster_drop(muster, &err);
        }
    }
    return rv;
}

/* --- next: what the round has to offer --- */

static void store_prefix(const struct mst__muster *muster,
                         const struct mst__job_round *round,
                         char ret_text[MST_ROUND_PREFIX_SIZE])
{
    mst__round_prefix(mst_bytes_str(muster->params->run_id), round->epoch, round->round, ret_text);
}

/* The keys of the round; connected when the application uses it, unless it can go through our own
 * connection. */
static int next_store(const struct mst__muster *muster,
                      const struct mst__job_round *round,
                      struct mst_store **ret_store,
                      struct mst_err *reterr)
{
    char prefix[MST_ROUND_PREFIX_SIZE];
    store_prefix(muster, round, prefix);
    return mst_store_prefix(muster->store, mst_bytes_str(prefix), ret_store, reterr);
}

/* Append a SET of the round's key @name to @requests. */
static int put_set(struct mst__buf *requests,
                   const char *prefix,
                   const char *name,
                   struct mst_bytes value)
{
    char key[MST_ROUND_PREFIX_SIZE + 32];
    (void)snprintf(key, sizeof key, "/%s/%s", prefix, name); /* fits */
    const struct mst__command set = {.op = MST_OP_SET, .key = mst_bytes_str(key), .value = value};
    return mst__wire_write_request(requests, MST_DIALECT_C, &set);
}

/* Rank 0 writes where the workers' store is also where agents of other kinds look for it. Nobody
 * waits for this. It goes the way of all requests to the store, for between the parts of another
 * one there is no place for it. */
static void next_publish(struct mst__muster *muster,
                         const struct mst__job_round *round,
                         const struct mst__endpoint *master)
{
    char prefix[MST_ROUND_PREFIX_SIZE];
    char port[16];
    store_prefix(muster, round, prefix);
    (void)snprintf(port, sizeof port, "%d", master->port); /* fits */
    struct mst__buf requests;
    mst__buf_init(&requests, MST_JOB_SIZE_MAX);
    int rv = put_set(&requests, prefix, "MASTER_ADDR", mst_bytes_str(master->host));
    rv = rv == 0 ? put_set(&requests, prefix, "MASTER_PORT", mst_bytes_str(port)) : rv;
    struct mst_err err = {0};
    if (rv == 0) {
        rv = mst__tcp_post(muster->store, mst__buf_bytes(&requests),
                           mst__clock_deadline_ms(MST_MUSTER_SEND_MS), &err);
    }
    if (rv == 0 && muster->client != NULL && mst__job_client_pump(muster->client, &err) != 0) {
        mst__muster_drop(muster, &err); /* and the owner makes another one */
    }
    if (rv != 0) {
        mst__log(&muster->params->log, MST_LOG_WARN, "bootstrap.unpublished", "node=%s code=%s",
                 MST_LOG_TEXT(muster->node), mst_errname(rv));
    }
    mst__buf_close(&requests);
}

/* Fill in the outcome. In the owner. */
static int next_outcome(const struct next *next, struct mst_rendezvous *ret, struct mst_err *reterr)
{
    struct mst__muster *muster = next->muster;
    const struct mst__job_round *round = &next->round;
    struct mst__endpoint master = {.port = 0};
    /* An address that is none is a foreign node's, and nobody has told then. */
    bool is_told = next->master[0] != '\0' &&
                   mst__endpoint_parse_default(mst_bytes_str(next->master), -1, &master, NULL) == 0;
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
    };
    static_assert(sizeof ret->master_addr >= sizeof master.host, "a host fits");
    if (is_told) {
        memcpy(ret->master_addr, master.host, sizeof master.host);
    }
    if (is_told && round->rank == 0) {
        next_publish(muster, round, &master);
    }
    return 0;
}

/* --- next --- */

/* A task. */
static int next_join(void *self, void *ret_arg, struct mst_err *reterr)
{
    struct mst__muster *muster = self;
    struct mst_rendezvous *ret = ret_arg;
    mst__owner_joined(&muster->head.owner, false);
    if (mst__owner_is_cancelled(&muster->head.owner)) {
        return mst__owner_fail_cancelled(reterr);
    }
    struct next next = {
        .muster = muster,
        .deadline_ms = mst__clock_deadline_ms(muster->settings.job.join_us / 1000),
    };
    muster->claim.holds = false;
    muster->is_over = false;
    int reserved_fd = -1;
    (void)mst__interrupt_by(muster->head.owner.cancel_fd);
    int rv = mst__bootstrap_reserve(muster->params->local_addr, &muster->settings.place.endpoint,
                                    muster->addr, &reserved_fd, muster->address, reterr);
    if (rv == 0 && muster->client != NULL) {
        struct mst_err err = {0};
        if (mst__muster_announce(muster, &err) != 0) {
            mst__muster_drop(muster, &err);
        }
    }
    rv = rv == 0 ? next_wait(&next, reterr) : rv;
    (void)mst__interrupt_by(-1);
    if (rv == 0) {
        rv = next_outcome(&next, ret, reterr);
    }
    if (rv == 0) {
        muster->sealed_ms = mst__clock_ms();
        mst__muster_begin_round(muster, &next.round);
        mst__owner_joined(&muster->head.owner, true);
    }
    if (rv != 0 && muster->client != NULL) {
        /* Nobody should wait for us. What stays of us the server notices by itself. */
        (void)mst__muster_part(muster, mst__clock_deadline_ms(WITHDRAW_MS), NULL);
    }
    if (reserved_fd >= 0) {
        (void)close(reserved_fd); /* the port is the workers' now */
    }
    return rv;
}

static int muster_next(void *self, struct mst_rendezvous *ret, struct mst_err *reterr)
{
    struct mst__muster *muster = self;
    int rv = mst__owner_begin(&muster->head.owner, true, reterr);
    if (rv == 0) {
        mst__view_reset(&muster->head.view);
        rv = mst__owner_run(&muster->head.owner, next_join, ret, reterr);
        mst__owner_end(&muster->head.owner);
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
    int rv = ask_status(muster, muster->settings.place.read_timeout_ms, &client, &status, reterr);
    if (rv == 0) {
        *ret_closed = status.phase == MST_AUTHORITY_CLOSED;
        status_count(&status, muster->node, &others, ret_waiting);
    }
    mst__job_client_close(client);
    return rv == MST_ENOTFOUND ? 0 : rv; /* nobody has been there yet */
}

/* A task. */
static int close_here(void *self, void *arg, struct mst_err *reterr)
{
    struct mst__muster *muster = self;
    return mst__muster_close(muster, arg,
                             mst__clock_deadline_ms(muster->settings.job.close_us / 1000), reterr);
}

/* Close on the connection that there is, or else on one for this alone. */
static int close_anyhow(struct mst__muster *muster,
                        struct mst__job_message *question,
                        struct mst_err *reterr)
{
    int64_t deadline_ms = mst__clock_deadline_ms(muster->settings.job.close_us / 1000);
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
        mst__job_client_ask(&muster->endpoint, question, deadline_ms, &client, &answer, reterr);
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
static int leave_round(void *self, void *unused, struct mst_err *reterr)
{
    struct mst__muster *muster = self;
    (void)unused;
    bool is_in = muster->claim.holds && !muster->is_over;
    int rv = 0;
    mst__owner_joined(&muster->head.owner, false);
    if (is_in || muster->client != NULL) {
        rv = mst__muster_part(muster, mst__clock_deadline_ms(muster->settings.job.close_us / 1000),
                              reterr);
    }
    muster->claim.holds = false;
    return rv;
}

/* Leave the round, if there is one. */
static int muster_leave(void *self, struct mst_err *reterr)
{
    struct mst__muster *muster = self;
    int rv = mst__owner_begin(&muster->head.owner, false, reterr);
    MST_ASSERT(rv == 0); /* it cannot be cancelled */
    rv = mst__owner_run(&muster->head.owner, leave_round, NULL, reterr);
    mst__owner_end(&muster->head.owner);
    return rv;
}

static int muster_shutdown(void *self, struct mst_err *reterr)
{
    struct mst__muster *muster = self;
    int rv = close_for_good(muster, "shutdown", "the job is over", reterr);
    /* Another thread's next ends by itself, for it is told that all is closed. */
    if (!mst__owner_is_busy(&muster->head.owner)) {
        (void)muster_leave(muster, NULL); /* who cannot be told sees that we are gone */
    }
    return rv;
}

/* --- making one --- */

/* How many others are there who should know of the end before we go: none, unless the rendezvous is
 * closed or the round has only just begun. */
static int64_t linger_for(const struct mst__muster *muster)
{
    struct mst__job_client *client = NULL;
    struct mst__job_status status;
    int64_t others = 0;
    int64_t waiting;
    if (ask_status(muster, LINGER_MS, &client, &status, NULL) != 0) {
        return 0;
    }
    bool is_new = muster->sealed_ms != 0 && mst__clock_ms() - muster->sealed_ms < LINGER_MS;
    if (status.phase == MST_AUTHORITY_CLOSED || is_new) {
        status_count(&status, muster->node, &others, &waiting);
    }
    mst__job_client_close(client);
    return others;
}

/* With us goes the server. Those who have not read yet what it has told them would take that for a
 * failure, so we stay until all have left, or had the time to. */
static void linger(const struct mst__muster *muster)
{
    int64_t until_ms = mst__clock_deadline_ms(LINGER_MS);
    while (mst__clock_ms() < until_ms && linger_for(muster) > 0) {
        (void)mst__interrupt_pause(mst__clock_ns() / 1000 + LINGER_LOOK_US); /* nothing does */
    }
}

static void muster_free(void *self)
{
    struct mst__muster *muster = self;
    if (muster == NULL) {
        return;
    }
    mst__owner_stop(&muster->head.owner);
    mst__job_client_close(muster->client);
    mst_store_close(muster->store); /* what was handed out holds what is behind it */
    if (muster->hosted != NULL) {
        linger(muster);
    }
    mst__hosted_stop(muster->hosted);
    mst__head_close(&muster->head);
    mst_params_free(muster->params);
    mst__free(muster);
}

static const struct mst__head_ops muster_head_ops = {
    .next = muster_next,
    .look = muster_look,
    .leave = muster_leave,
};

static const struct mst_handler_ops muster_ops = {
    .size = sizeof muster_ops,
    .next = mst__head_next,
    .free = muster_free,
    .backend = mst__head_backend,
    .run_id = mst__head_run_id,
    .is_closed = mst__head_is_closed,
    .set_closed = muster_set_closed,
    .nodes_waiting = mst__head_nodes_waiting,
    .poll = mst__head_poll,
    .fd = mst__head_fd,
    .cancel = mst__head_cancel,
    .shutdown = muster_shutdown,
    .leave = mst__head_leave,
    .node = mst__head_node,
};

/* Who we are. A given name is the node's, also after a restart; else it is the process's and the
 * handler's own. */
static void name_node(struct mst__muster *muster)
{
    if (muster->settings.node_name != NULL) {
        (void)snprintf(muster->node, sizeof muster->node, "%s", muster->settings.node_name);
    } else {
        mst__host_node_name(muster->params->local_addr, sizeof muster->node, muster->node);
    }
    muster->incarnation = (uint64_t)mst__clock_wall_us(); /* a later start has a larger one */
    muster->session = mst__clock_random_u64();
    mst__head_identify(&muster->head, muster->params, muster->node, &muster->events);
}

/* The store of the server, which nothing is asked of yet. */
static int prepare_store(struct mst__muster *muster, struct mst_err *reterr)
{
    const struct mst__url url = {.scheme = MST_URL_TCP, .endpoint = muster->endpoint};
    struct mst_store_options options;
    mst_store_options_init(&options);
    options.log = muster->params->log;
    struct mst__backend *backend = NULL;
    int rv = mst__tcp_new(&url, &options, &backend, reterr);
    return rv == 0 ? mst__store_first(backend, &muster->store, reterr) : rv;
}

static int prepare(struct mst__muster *muster,
                   const struct mst_params *params,
                   struct mst_err *reterr)
{
    muster->beat_ms = INT64_MAX;
    muster->answer_ms = INT64_MAX;
    muster->is_hurried = true;
    mst__prng_init(&muster->prng, mst__clock_random_u64());
    mst__backoff_init(&muster->backoff, MST_MUSTER_AGAIN_MS, MST_MUSTER_AGAIN_MS_MAX);
    int rv = mst__head_init(&muster->head, &muster_head_ops, mst__muster_watch, muster, reterr);
    if (rv == 0) {
        rv = mst__params_copy(params, &muster->params, reterr);
    }
    if (rv == 0) {
        rv = mst__muster_read(muster->params, &muster->settings, reterr);
    }
    if (rv == 0 && strlen(params->run_id) > MST_JOB_RUN_ID_SIZE_MAX) {
        rv = mst__fail(reterr, MST_EINVAL, 0, "run_id of %zu bytes, at most %d are allowed",
                       strlen(params->run_id), MST_JOB_RUN_ID_SIZE_MAX);
    }
    if (rv == 0) {
        name_node(muster);
        rv = mst__hosting_begin(&muster->settings.place, muster->params, &muster->hosted,
                                &muster->endpoint, reterr);
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
            /* Which may have been any. */
            muster->settings.place.endpoint.port = (uint16_t)mst__hosted_port(muster->hosted);
        }
        (void)mst__endpoint_format(&muster->settings.place.endpoint, muster->where);
        rv = mst_handler_wrap(&muster_ops, muster, ret_handler, reterr);
    }
    if (rv != 0) {
        muster_free(muster);
        return rv;
    }
    if (muster->hosted != NULL) {
        mst__event(&muster->events, "host", MST_NODE_INIT, -1, -1,
                   "Node '%s' is serving on %s: rendezvous '%s'.", muster->node, muster->where,
                   params->run_id);
    }
    return 0;
}
