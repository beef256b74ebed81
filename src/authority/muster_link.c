/* authority/muster_link.c - the connection to the authority: made, announced on, kept alive.
 *
 * The server hears us all the time and answers only when asked, with every few heartbeats, so that
 * both ends notice when the other one is gone without a word.
 *
 * It is the only connection of a node whose program asks one thing at a time of the stores of its
 * rounds: their requests go through its lane (net/lane.h). The store has other ways when nobody has
 * the machine, or there is no connection. */
#include <unistd.h>

#include "authority/muster_self.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "core/expire.h"

/* The time for one attempt to connect. */
#define CONNECT_MS 5000

/* How long a program may leave the replies that it has asked for unread, at most and as a part of
 * the time after which the server gives us up: while they wait we hear nothing else. */
#define STALL_MS_MAX 2000
#define STALL_PART 4

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t expiry_ms(const struct mst__muster *muster)
{
    int64_t ms = mst__expire_after_us(&muster->settings.job) / 1000;
    return ms < 1 ? 1 : ms;
}

/* Send without being interrupted, for half a message would be the end of the connection. */
static int link_send(struct mst__muster *muster,
                     const struct mst__job_message *message,
                     struct mst_err *reterr)
{
    int before = mst__interrupt_by(-1);
    int rv = mst__job_client_send(muster->client, message,
                                  mst__clock_deadline_ms(MST_MUSTER_SEND_MS), reterr);
    (void)mst__interrupt_by(before);
    return rv;
}

/* --- the lane --- */

/* Let the store use the connection. Without that it has ones of its own. */
static void link_lane(struct mst__muster *muster)
{
    struct mst_err err = {0};
    int fd = -1;
    int64_t stall_ms = least(STALL_MS_MAX, expiry_ms(muster) / STALL_PART + 1);
    int rv = mst__job_client_lane(muster->client, stall_ms, &fd, &err);
    if (rv == 0) {
        rv = mst__tcp_adopt(muster->store, fd, mst__job_client_peer(muster->client), &err);
        if (rv != 0) {
            (void)close(fd); /* and the near end sees that */
        }
    }
    if (rv != 0) {
        char detail[MST_LOG_QUOTE_SIZE];
        mst__log(&muster->params->log, MST_LOG_WARN, "rendezvous.no_lane", "node=%s detail=%s",
                 MST_LOG_TEXT(muster->node), mst__log_quote(mst_bytes_str(err.msg), detail));
    }
}

/* What the store is told through the connection: whether @message was that. */
static bool link_take_store(struct mst__muster *muster, const struct mst__job_message *message)
{
    if (message->type == MST_JOB_STORE_END) {
        char detail[MST_LOG_QUOTE_SIZE];
        mst__log(&muster->params->log, MST_LOG_DEBUG, "rendezvous.store_refused",
                 "node=%s detail=%s", MST_LOG_TEXT(muster->node),
                 mst__log_quote(message->u.text, detail));
        return true;
    }
    if (message->type == MST_JOB_STORE_REPLY) {
        link_lane(muster);
        return true;
    }
    return false;
}

/* --- making it --- */

static bool link_pause(struct mst__muster *muster, int64_t deadline_ms)
{
    if (muster->is_hurried) {
        muster->is_hurried = false;
        return true;
    }
    return mst__backoff_pause(&muster->backoff, deadline_ms);
}

int mst__muster_announce(struct mst__muster *muster, struct mst_err *reterr)
{
    const struct mst__muster_settings *settings = &muster->settings;
    const struct mst__settings *job = &settings->job;
    const struct mst__job_message message = {
        .type = MST_JOB_ANNOUNCE,
        .u.announce = {.version = MST_JOB_VERSION,
                       .run_id = mst_bytes_str(muster->params->run_id),
                       .heartbeat_us = job->keep_alive_interval_us,
                       .expiry_us = expiry_ms(muster) * 1000,
                       .announcement = {.name = mst_bytes_str(muster->node),
                                        .incarnation = muster->incarnation,
                                        .session = muster->session,
                                        .address = mst_bytes_str(muster->address),
                                        .labels = settings->labels,
                                        .labels_count = settings->labels_count,
                                        .nodes_min = (uint32_t)job->nodes_min,
                                        .nodes_max = (uint32_t)job->nodes_max,
                                        .last_call_us = job->last_call_us,
                                        .rank_by = mst_bytes_str(settings->rank_by),
                                        .pinned_rank = settings->pinned_rank,
                                        .claim = muster->claim,
                                        .has_wall = true,
                                        .wall_us = mst__clock_wall_us()}},
    };
    int rv = link_send(muster, &message, reterr);
    /* An announcement is answered; and the first heartbeats of many come at different times. */
    int64_t interval_ms = job->keep_alive_interval_us / 1000 + 1;
    int64_t first_ms =
        interval_ms / 2 + (int64_t)mst__prng_below(&muster->prng, (uint64_t)interval_ms / 2 + 1);
    muster->beat_ms = mst__clock_deadline_ms(first_ms);
    muster->answer_ms = mst__clock_deadline_ms(expiry_ms(muster));
    muster->beats = 0;
    return rv;
}

int mst__muster_reach(struct mst__muster *muster, int64_t deadline_ms, struct mst_err *reterr)
{
    if (muster->client != NULL) {
        return 0;
    }
    if (!link_pause(muster, deadline_ms)) {
        return mst__interrupt_is_pending()
                   ? mst__fail(reterr, MST_ECANCELED, 0, "cancelled")
                   : mst__fail(reterr, MST_ETIMEOUT, 0, "%.60s: no connection", muster->where);
    }
    muster->is_welcome = false;
    int64_t until_ms = least(deadline_ms, mst__clock_deadline_ms(CONNECT_MS));
    int rv = mst__job_client_open(&muster->endpoint, until_ms, &muster->client, reterr);
    if (rv == 0) {
        rv = mst__muster_announce(muster, reterr);
        if (rv != 0) {
            mst__job_client_close(muster->client);
            muster->client = NULL;
        }
    }
    if (rv == 0) {
        link_lane(muster);
    }
    return rv;
}

void mst__muster_welcomed(struct mst__muster *muster, const struct mst__job_message *message)
{
    if (muster->is_cut_told) {
        mst__log(&muster->params->log, MST_LOG_INFO, "rendezvous.connected", "node=%s server=%s",
                 MST_LOG_TEXT(muster->node), MST_LOG_TEXT(muster->where));
        mst__event(&muster->events, "connected", MST_NODE_RUNNING, -1, -1,
                   "Node '%s' has its connection to %s again.", muster->node, muster->where);
    }
    if (message->u.welcome.has_skew) {
        mst__log(&muster->params->log, MST_LOG_DEBUG, "rendezvous.skew", "node=%s skew_us=%lld",
                 MST_LOG_TEXT(muster->node), (long long)message->u.welcome.skew_us);
    }
    muster->is_welcome = true;
    muster->is_cut_told = false;
    mst__backoff_init(&muster->backoff, MST_MUSTER_AGAIN_MS, MST_MUSTER_AGAIN_MS_MAX);
}

/* --- keeping it alive --- */

static int link_beat(struct mst__muster *muster, struct mst_err *reterr)
{
    bool wants_pong = ++muster->beats >= muster->settings.job.keep_alive_max_attempt;
    const struct mst__job_message message = {.type = MST_JOB_HEARTBEAT,
                                             .u.heartbeat = {.wants_pong = wants_pong}};
    muster->beat_ms = mst__clock_deadline_ms(muster->settings.job.keep_alive_interval_us / 1000);
    if (wants_pong) {
        muster->beats = 0;
        muster->answer_ms = least(muster->answer_ms, mst__clock_deadline_ms(expiry_ms(muster)));
    }
    return link_send(muster, &message, reterr);
}

int mst__muster_wait(struct mst__muster *muster,
                     int64_t deadline_ms,
                     struct mst__job_message *ret_message,
                     struct mst_err *reterr)
{
    MST_ASSERT(muster->client != NULL);
    for (;;) {
        int64_t until_ms = least(least(deadline_ms, muster->beat_ms), muster->answer_ms);
        /* First of all what has come: after a pause of this process it tells why. */
        int rv = mst__job_client_receive(muster->client, until_ms, ret_message, reterr);
        int64_t now_ms = mst__clock_ms();
        if (rv == 0 && !link_take_store(muster, ret_message)) {
            muster->answer_ms = INT64_MAX;
            return 0;
        }
        if (rv != MST_ETIMEOUT && rv != 0) {
            return rv;
        }
        /* The answer may be behind a large reply to the store. */
        int64_t alive_ms = mst__job_client_heard_ms(muster->client) + expiry_ms(muster);
        if (now_ms >= muster->answer_ms && now_ms < alive_ms) {
            muster->answer_ms = alive_ms;
        }
        if (now_ms >= muster->answer_ms) {
            return mst__fail(reterr, MST_ECONN, 0, "job server %.60s: no answer for %lld ms",
                             muster->where, (long long)expiry_ms(muster));
        }
        if (now_ms >= muster->beat_ms) {
            rv = link_beat(muster, reterr);
            if (rv != 0) {
                return rv == MST_ETIMEOUT ? MST_ECONN : rv;
            }
        }
        if (now_ms >= deadline_ms) {
            return mst__fail(reterr, MST_ETIMEOUT, 0, "deadline passed");
        }
    }
}

/* --- ending it --- */

void mst__muster_drop(struct mst__muster *muster, const struct mst_err *err)
{
    mst__job_client_close(muster->client);
    muster->client = NULL;
    muster->is_hurried = muster->is_welcome;
    if (!muster->is_cut_told) {
        char detail[MST_LOG_QUOTE_SIZE];
        mst__log(&muster->params->log, MST_LOG_WARN, "rendezvous.disconnected", "node=%s detail=%s",
                 MST_LOG_TEXT(muster->node), mst__log_quote(mst_bytes_str(err->msg), detail));
        mst__event(&muster->events, "disconnected", MST_NODE_RUNNING, -1, -1,
                   "Node '%s' has lost its connection: %s", muster->node, err->msg);
        muster->is_cut_told = true;
    }
}

int mst__muster_part(struct mst__muster *muster, int64_t deadline_ms, struct mst_err *reterr)
{
    const struct mst__job_message message = {.type = MST_JOB_LEAVE};
    if (muster->client == NULL) {
        return mst__fail(reterr, MST_ECONN, 0,
                         "%.60s: no connection; the others are told when our time to come back is "
                         "over",
                         muster->where);
    }
    int rv = link_send(muster, &message, reterr);
    mst__job_client_finish(muster->client, deadline_ms);
    muster->client = NULL;
    muster->is_hurried = true;
    muster->beat_ms = INT64_MAX;
    muster->answer_ms = INT64_MAX;
    return rv == 0 ? 0 : mst__err_wrap(reterr, MST_ECONN, "leave");
}
