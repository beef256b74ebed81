/* authority/muster_watch.c - being in a round: what the authority tells, and what comes of it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "authority/muster_self.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/interrupt.h"
#include "base/log.h"

void mst__muster_begin_round(struct mst__muster *muster, const struct mst__job_round *round)
{
    muster->claim = (struct mst__claim){
        .epoch = round->epoch,
        .round = round->round,
        .world = round->world,
        .rank = round->rank,
        .holds = true,
    };
    muster->is_over = false;
    muster->is_waited_for = false;
    muster->left = 0;
    muster->changes = (struct mst_changes){.size = sizeof muster->changes};
    mst__view_publish(&muster->head.view, &muster->changes);
}

static void watch_event(struct mst__muster *muster, const char *name, const char *sentence)
{
    mst__event(&muster->events, name, MST_NODE_RUNNING, muster->claim.round,
               (int64_t)muster->claim.rank, "Node '%s', round %" PRId64 " of rendezvous '%s': %s",
               muster->node, muster->claim.round, muster->params->run_id, sentence);
}

/* --- what has changed --- */

/* Add @name to those who are lost, unless it is there; cut off when there are many. */
static void name_lost(struct mst__muster *muster, struct mst_bytes name)
{
    char *lost = muster->changes.lost;
    size_t used = strlen(lost);
    size_t room = sizeof muster->changes.lost - used;
    for (const char *at = lost; *at != '\0' && name.size > 0; at += strspn(at, " ")) {
        size_t size = strcspn(at, " ");
        if (mst__bytes_equal(mst_bytes(at, size), name)) {
            return;
        }
        at += size;
    }
    (void)snprintf(lost + used, room, "%s%.*s", used == 0 ? "" : " ", (int)name.size,
                   (const char *)name.data);
}

static void take_lost(struct mst__muster *muster, const struct mst__job_lost *lost)
{
    if (lost->round != muster->claim.round) {
        return; /* of a round that was over before */
    }
    for (uint32_t i = 0; i < lost->named; i++) {
        name_lost(muster, lost->names[i]);
    }
    int64_t total = (int64_t)lost->total + muster->left;
    if (total > muster->changes.participants_lost) {
        muster->changes.participants_lost = total;
    }
    char sentence[MST_EVENT_MESSAGE_SIZE / 2];
    (void)snprintf(sentence, sizeof sentence, "%" PRIu32 " lost: %.180s", lost->total,
                   muster->changes.lost); /* cut off when long */
    watch_event(muster, "lost", sentence);
}

static void take_waiting(struct mst__muster *muster, uint32_t count)
{
    bool is_more = muster->is_waited_for && count == 0;
    muster->changes.nodes_waiting = is_more ? 1 : (int64_t)count;
}

static void take_reopened(struct mst__muster *muster, const struct mst__job_message *message)
{
    if (muster->changes.reopened) {
        return; /* told again, on another connection */
    }
    muster->changes.reopened = true;
    enum mst__authority_why why = (enum mst__authority_why)message->u.reopened.why;
    struct mst_bytes name = message->u.reopened.name;
    if (why == MST_AUTHORITY_WHY_LEFT) {
        muster->left = 1;
        muster->changes.participants_lost++;
        name_lost(muster, name);
    } else if (why != MST_AUTHORITY_WHY_LOST) {
        /* Whoever it was waits for us now. */
        muster->is_waited_for = true;
        if (muster->changes.nodes_waiting == 0) {
            muster->changes.nodes_waiting = 1;
        }
    }
    char sentence[MST_EVENT_MESSAGE_SIZE / 2];
    (void)snprintf(sentence, sizeof sentence, "over, round %" PRId64 " gathers: %s, %.*s",
                   message->u.reopened.round_next, mst__authority_why_name(why),
                   (int)(name.size < 100 ? name.size : 100), (const char *)name.data);
    watch_event(muster, "reopened", sentence);
}

/* Our place in the round is not ours any more; @text says why. */
static void take_expelled(struct mst__muster *muster, struct mst_bytes text)
{
    char sentence[MST_EVENT_MESSAGE_SIZE / 2];
    (void)snprintf(sentence, sizeof sentence, "expelled: %.*s",
                   (int)(text.size < 200 ? text.size : 200), (const char *)text.data);
    watch_event(muster, "expelled", sentence);
    muster->changes.expelled = true;
    muster->claim.holds = false;
    muster->is_over = true;
    muster->beat_ms = INT64_MAX;
}

static void take_closed(struct mst__muster *muster, struct mst_bytes reason)
{
    if (muster->changes.closed) {
        return; /* the answer to our own CLOSE, and the news for everybody */
    }
    char sentence[MST_EVENT_MESSAGE_SIZE / 2];
    (void)snprintf(sentence, sizeof sentence, "closed: %.*s",
                   (int)(reason.size < 200 ? reason.size : 200), (const char *)reason.data);
    watch_event(muster, "closed", sentence);
    muster->changes.closed = true;
    struct mst_changes *changes = &muster->changes;
    (void)snprintf(changes->reason, sizeof changes->reason, "%.*s",
                   (int)(reason.size < sizeof changes->reason ? reason.size : 255),
                   (const char *)reason.data); /* cut off when long */
}

/* Our claim, on a new connection, was not accepted. False when another attempt may be. */
static bool take_refused(struct mst__muster *muster, const struct mst__job_message *message)
{
    switch ((enum mst__refusal)message->u.refused.refusal) {
        case MST_REFUSAL_CLOSED:
            take_closed(muster, message->u.refused.text);
            muster->is_over = true;
            muster->beat_ms = INT64_MAX;
            return true;
        case MST_REFUSAL_CLAIM:
        case MST_REFUSAL_STALE:
        case MST_REFUSAL_TWIN:
        case MST_REFUSAL_SETTINGS:
            take_expelled(muster, message->u.refused.text);
            return true;
        case MST_REFUSAL_NONE:
        case MST_REFUSAL_MALFORMED:
        case MST_REFUSAL_FULL:
        case MST_REFUSAL_MEMORY:
            break;
    }
    return false; /* no room, or the server of another job at its place */
}

/* --- watching --- */

/* The connection is gone or of no use. */
static void watch_drop(struct mst__muster *muster, const struct mst_err *err)
{
    mst__muster_drop(muster, err);
    if (muster->changes.closed) {
        muster->is_over = true; /* nothing more can come */
    }
}

static void watch_message(struct mst__muster *muster, const struct mst__job_message *message)
{
    struct mst_err err;
    switch (message->type) {
        case MST_JOB_WELCOME:
            mst__muster_welcomed(muster, message);
            break;
        case MST_JOB_LOST:
            take_lost(muster, &message->u.lost);
            break;
        case MST_JOB_WAITING:
            take_waiting(muster, message->u.waiting.count);
            break;
        case MST_JOB_REOPENED:
            take_reopened(muster, message);
            break;
        case MST_JOB_CLOSED:
            take_closed(muster, message->u.close.reason);
            break;
        case MST_JOB_EXPELLED:
            take_expelled(muster, message->u.text);
            break;
        case MST_JOB_REFUSED:
            if (!take_refused(muster, message)) {
                (void)mst__job_client_refused(message, &err);
                watch_drop(muster, &err);
                mst__view_unknown(&muster->head.view, &err);
                return;
            }
            break;
        default:
            return; /* answers; what was told to us before; what a later server says */
    }
    mst__view_publish(&muster->head.view, &muster->changes);
}

static void watch_connected(struct mst__muster *muster)
{
    struct mst__job_message message;
    struct mst_err err = {0};
    int rv = mst__muster_wait(muster, INT64_MAX, &message, &err);
    if (rv == 0) {
        watch_message(muster, &message);
    } else if (rv != MST_ECANCELED) {
        watch_drop(muster, &err);
    }
}

int mst__muster_close(struct mst__muster *muster,
                      const struct mst__job_message *question,
                      int64_t deadline_ms,
                      struct mst_err *reterr)
{
    struct mst_err err = {0};
    if (muster->client == NULL) {
        return mst__fail(reterr, MST_ECONN, 0, "%.60s: no connection", muster->where);
    }
    bool is_done = false;
    int rv = mst__job_client_send(muster->client, question, deadline_ms, &err);
    while (rv == 0 && !is_done) {
        struct mst__job_message message;
        rv = muster->client == NULL ? MST_ECONN
                                    : mst__muster_wait(muster, deadline_ms, &message, &err);
        if (rv == 0) {
            is_done = message.type == MST_JOB_CLOSED;
            watch_message(muster, &message);
        }
    }
    if (rv == 0) {
        return 0;
    }
    if (rv != MST_ETIMEOUT && muster->client != NULL) {
        watch_drop(muster, &err);
    }
    return mst__err_pass(reterr, rv == MST_ETIMEOUT ? rv : MST_ECONN, &err);
}

void mst__muster_watch(void *arg)
{
    struct mst__muster *muster = arg;
    struct mst_err err = {0};
    (void)mst__interrupt_by(muster->head.owner.stop_fd);
    if (muster->client != NULL) {
        watch_connected(muster);
    } else if (muster->is_over) {
        (void)mst__interrupt_pause(INT64_MAX); /* until the machine is wanted */
    } else {
        int rv = mst__muster_reach(muster, INT64_MAX, &err);
        if (rv != 0 && rv != MST_ECANCELED) {
            mst__view_unknown(&muster->head.view, &err);
        }
    }
    (void)mst__interrupt_by(-1);
}
