/* authority/etcd_v3_watch.c - being in a round: what is stored, and what becomes of it for us. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "authority/etcd_v3_self.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/interrupt.h"
#include "base/log.h"

/* Between attempts, while the etcd cannot be reached. */
#define AGAIN_US 250000

/* For taking our lease back; it runs out if that fails. */
#define TIDY_MS 1000

static void watch_event(struct mst__etcd_v3 *self, const char *name, const char *sentence)
{
    mst__event(&self->events, name, MST_NODE_RUNNING, self->claim.round, (int64_t)self->claim.rank,
               "Node '%s', round %" PRId64 " of rendezvous '%s': %s", self->node, self->claim.round,
               self->params->run_id, sentence);
}

void mst__etcd_v3_begin_round(struct mst__etcd_v3 *self, uint32_t rank)
{
    self->claim = (struct mst__claim){
        .epoch = self->round.epoch,
        .round = self->round.round,
        .world = self->round.world,
        .rank = rank,
        .holds = true,
    };
    self->is_over = false;
    self->is_cut_told = false;
    self->is_unseen = true;
    self->changes = (struct mst_changes){.size = sizeof self->changes};
    mst__view_publish(&self->head.view, &self->changes);
}

void mst__etcd_v3_expelled(struct mst__etcd_v3 *self, const char *text)
{
    char sentence[MST_EVENT_MESSAGE_SIZE / 2];
    (void)snprintf(sentence, sizeof sentence, "expelled: %.200s", text); /* fits */
    watch_event(self, "expelled", sentence);
    self->changes.expelled = true;
    self->claim.holds = false;
    self->is_over = true;
    mst__view_publish(&self->head.view, &self->changes);
}

/* Whether the round says that our session has ended: by rank, for a name may be that of another
 * process. */
static bool is_gone(const struct mst__etcd_v3 *self)
{
    const struct mst__etcd_v3_round *round = &self->round;
    return round->is_gone != NULL && self->claim.rank < round->world &&
           round->is_gone[self->claim.rank];
}

/* Our round is over. */
static void take_open(struct mst__etcd_v3 *self)
{
    const struct mst__etcd_v3_round *round = &self->round;
    struct mst_changes *changes = &self->changes;
    char sentence[MST_EVENT_MESSAGE_SIZE];
    if ((int64_t)round->gone_count > changes->participants_lost) {
        changes->participants_lost = (int64_t)round->gone_count;
        memcpy(changes->lost, round->gone, sizeof changes->lost);
        (void)snprintf(sentence, sizeof sentence, "%" PRIu32 " gone: %.180s", round->gone_count,
                       round->gone); /* cut off when long */
        watch_event(self, "lost", sentence);
    }
    if (!changes->reopened) {
        (void)snprintf(sentence, sizeof sentence, "over, the next one gathers: %s",
                       mst__authority_why_name(round->why)); /* fits */
        watch_event(self, "reopened", sentence);
    }
    changes->reopened = true;
    bool is_waited_for =
        round->why != MST_AUTHORITY_WHY_LOST && round->why != MST_AUTHORITY_WHY_LEFT;
    changes->nodes_waiting = is_waited_for ? 1 : 0; /* whoever has come back waits for us */
}

static void take_closed(struct mst__etcd_v3 *self)
{
    char sentence[MST_EVENT_MESSAGE_SIZE];
    (void)snprintf(sentence, sizeof sentence, "closed by %.100s: %.200s", self->round.owner,
                   self->round.reason); /* fits */
    watch_event(self, "closed", sentence);
    self->changes.closed = true;
    static_assert(sizeof self->changes.reason >= sizeof self->round.reason, "it is never cut off");
    (void)snprintf(self->changes.reason, sizeof self->changes.reason, "%s", self->round.reason);
}

/* What `round` means for us, who are in one. */
static void take_state(struct mst__etcd_v3 *self)
{
    const struct mst__etcd_v3_round *round = &self->round;
    bool is_ours = round->round == self->claim.round && round->epoch == self->claim.epoch;
    if (round->state == MST_ETCD_V3_CLOSED) {
        if (!self->changes.closed) {
            take_closed(self);
        }
    } else if (is_ours && round->state == MST_ETCD_V3_RUNNING) {
        self->changes.nodes_waiting = (int64_t)round->waiting;
    } else if (is_ours && round->state == MST_ETCD_V3_OPEN) {
        if (is_gone(self)) {
            mst__etcd_v3_expelled(self, "the lease of this node was lost, or a newer process has "
                                        "come in its place");
            return;
        }
        take_open(self);
    } else if (round->round > self->claim.round) {
        if (mst__etcd_v3_rank(self) == MST_AUTHORITY_RANK_NONE) {
            mst__etcd_v3_expelled(self, "a later round was sealed without this node");
            return;
        }
        self->changes.reopened = true; /* another one has come back in our name */
    }
    mst__view_publish(&self->head.view, &self->changes);
}

/* The etcd does not answer. As long as our lease must be alive that is no news. */
static void watch_cut(struct mst__etcd_v3 *self, const struct mst_err *err)
{
    if (mst__clock_ms() >= self->alive_ms) {
        mst__view_unknown(&self->head.view, err);
    }
    if (!self->is_cut_told) {
        char detail[MST_LOG_QUOTE_SIZE];
        mst__log(&self->params->log, MST_LOG_WARN, "rendezvous.unreachable", "node=%s detail=%s",
                 MST_LOG_TEXT(self->node), mst__log_quote(mst_bytes_str(err->msg), detail));
        mst__event(&self->events, "keep_alive", MST_NODE_FAILED, self->claim.round, -1,
                   "Node '%s' could not reach rendezvous '%s': %s", self->node,
                   self->params->run_id, err->msg);
        self->is_cut_told = true;
    }
    (void)mst__interrupt_pause(mst__clock_ns() / 1000 + AGAIN_US); /* the caller sees */
}

void mst__etcd_v3_watch(void *arg)
{
    struct mst__etcd_v3 *self = arg;
    struct mst_err err = {0};
    (void)mst__interrupt_by(self->head.owner.stop_fd);
    if (self->is_over) {
        (void)mst__interrupt_pause(INT64_MAX); /* until the machine is wanted */
        (void)mst__interrupt_by(-1);
        return;
    }
    int rv = self->is_unseen ? 0 : mst__etcd_v3_step(self, INT64_MAX, &err);
    self->is_unseen = false;
    if (rv == 0 && self->letter.kind > MST_ETCD_V3_LETTER_RANK) {
        mst__etcd_v3_expelled(self, self->letter.text);
        (void)mst__interrupt_by(-1);
        (void)mst__etcd_v3_part(self, mst__clock_deadline_ms(TIDY_MS), &err);
        return;
    }
    if (rv == 0) {
        self->is_cut_told = false;
        take_state(self);
        if (self->is_over) {
            (void)mst__etcd_v3_forget(self, mst__clock_deadline_ms(TIDY_MS), &err);
        }
    } else if (rv == MST_ENOTFOUND) {
        mst__etcd_v3_expelled(self, err.msg);
    } else if (rv != MST_ECANCELED) {
        watch_cut(self, &err);
    }
    (void)mst__interrupt_by(-1);
}
