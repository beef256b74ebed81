/* core/legacy_watch.c - the operations of a legacy rendezvous besides entering a round: keeping
 * alive, looking, watching, closing, leaving. */
#include <muster/error.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/number.h"
#include "core/legacy_self.h"

/* Pause after a failed refresh. */
#define BEAT_AGAIN_US 500000

/* --- what has changed --- */

static bool changes_is_our_round(const struct mst__legacy *legacy)
{
    return legacy->exists && legacy->doc.status == MST_LEGACY_FINAL &&
           legacy->doc.version == legacy->version;
}

void mst__legacy_changes(const struct mst__legacy *legacy, struct mst__legacy_changes *ret_changes)
{
    *ret_changes = (struct mst__legacy_changes){
        .is_known = legacy->is_known,
        .expelled = legacy->is_member && legacy->is_expelled,
    };
    if (!legacy->is_known) {
        return;
    }
    const struct mst__legacy_doc *doc = &legacy->doc;
    ret_changes->closed = legacy->exists && doc->status == MST_LEGACY_CLOSED;
    bool is_ours = legacy->is_member && changes_is_our_round(legacy);
    ret_changes->is_over = legacy->is_member && !is_ours && !ret_changes->closed;
    ret_changes->lost_count = is_ours ? legacy->lost_count : 0;
    if (legacy->exists && doc->status == MST_LEGACY_FINAL) {
        int64_t waiting = doc->waiting_count;
        bool is_full = (int64_t)doc->participant_count >= legacy->options.nodes_max;
        bool is_listed = mst__legacy_is_listed(legacy, legacy->changed_us);
        for (size_t i = 0; is_listed && i < doc->waiting.count; i++) {
            waiting -= !mst__legacy_is_node_listed(legacy, doc->waiting.items[i]);
        }
        /* A waiting member has left the round, so there is room. */
        for (size_t i = 0; i < doc->waiting.count; i++) {
            is_full = is_full && mst__legacy_doc_rank(doc, doc->waiting.items[i]) < 0;
        }
        ret_changes->waiting_count = is_full || waiting < 0 ? 0 : waiting;
    }
    if (ret_changes->is_over && ret_changes->waiting_count == 0) {
        ret_changes->waiting_count = 1;
    }
}

/* Find the members of our round that are gone, by the listed keys. */
static int changes_count(struct mst__legacy *legacy)
{
    size_t world = (size_t)legacy->world;
    uint8_t *lost = mst__calloc(world + 1, 1);
    if (lost == NULL) {
        return MST_ENOMEM;
    }
    mst__free(legacy->lost);
    legacy->lost = lost;
    legacy->lost_count = 0;
    for (size_t rank = 0; rank < world; rank++) {
        mst__legacy_nonce nonce = mst__legacy_doc_node(&legacy->doc, rank);
        bool has_left = nonce != 0 && mst__legacy_nonces_find(&legacy->doc.left, nonce) >= 0;
        if (has_left || !mst__legacy_is_rank_listed(legacy, (int64_t)rank)) {
            lost[rank] = 1;
            legacy->lost_count++;
        }
    }
    if (legacy->rank < legacy->world && lost[legacy->rank] != 0) {
        legacy->is_expelled = true;
    }
    return 0;
}

static bool changes_differ(const struct mst__legacy_changes *a, const struct mst__legacy_changes *b)
{
    return a->closed != b->closed || a->expelled != b->expelled || a->is_over != b->is_over ||
           a->waiting_count != b->waiting_count || a->lost_count != b->lost_count;
}

/* --- keeping alive --- */

/* The last answered refresh reached etcd before its answer did. */
static bool beat_is_lost(const struct mst__legacy *legacy, int64_t now_us)
{
    return now_us >= legacy->rank_done_us + (MST_LEGACY_TTL_KEY + 1) * MST_LEGACY_SECOND_US;
}

/* Refresh a key if it is due. Returns whether a request is set. */
static bool others_beat(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    if (legacy->is_member && !legacy->is_expelled && beat_is_lost(legacy, turn->now_us)) {
        legacy->is_expelled = true;
    }
    if (turn->now_us < mst__legacy_beat_us(legacy)) {
        return false;
    }
    bool is_rank = legacy->is_member && !legacy->is_expelled &&
                   turn->now_us >= legacy->rank_us + MST_LEGACY_BEAT_US;
    legacy->beat_try_us = turn->now_us + BEAT_AGAIN_US;
    if (is_rank) {
        MST_ASSERT(legacy->rank_version == legacy->version);
        (void)mst__legacy_ask_plain(turn, MST_ASK_RANK_BEAT); /* cannot fail */
        return true;
    }
    return mst__legacy_ask_job_beat(turn);
}

static int others_beat_end(struct mst__legacy_turn *turn)
{
    return others_beat(turn) ? 0 : mst__legacy_end(turn, MST_LEGACY_OK);
}

/* --- looking and watching --- */

/* List the keys if that is needed. Returns whether a request is set. */
static bool others_list(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    const struct mst__legacy_doc *doc = &legacy->doc;
    if (!legacy->exists || doc->status != MST_LEGACY_FINAL) {
        return false;
    }
    bool is_new = !mst__legacy_is_listed(legacy, legacy->changed_us) &&
                  (doc->waiting.count > 0 || doc->left.count > 0);
    if (is_new || !mst__legacy_is_listed(legacy, legacy->status_us) ||
        (turn->now_us >= legacy->look_us && !mst__legacy_is_listed(legacy, legacy->look_us))) {
        (void)mst__legacy_ask_list(turn); /* cannot fail */
        return true;
    }
    if (turn->now_us >= legacy->look_us) {
        legacy->look_us = mst__legacy_expiry_us(legacy, turn->now_us);
    }
    return false;
}

static int others_look(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    if (!legacy->is_known) {
        return mst__legacy_ask_doc(turn);
    }
    bool needs_list = legacy->exists && legacy->doc.status == MST_LEGACY_FINAL &&
                      !mst__legacy_is_listed(legacy, legacy->read_us);
    if (needs_list) {
        return mst__legacy_ask_list(turn);
    }
    if (legacy->is_member && changes_is_our_round(legacy)) {
        int rv = changes_count(legacy);
        if (rv != 0) {
            return rv;
        }
    }
    return mst__legacy_end(turn, MST_LEGACY_OK);
}

/* Remove lost nodes from the waiting ones: members would restart for them in vain. */
static int watch_clean(struct mst__legacy_turn *turn, bool *ret_asked)
{
    struct mst__legacy *legacy = turn->legacy;
    *ret_asked = false;
    if (!legacy->is_member || !changes_is_our_round(legacy) || legacy->doc.waiting.count == 0) {
        return 0;
    }
    bool is_changed;
    int rv = mst__legacy_edit_waiting(legacy, &is_changed);
    if (rv == 0 && is_changed) {
        *ret_asked = true;
        return mst__legacy_ask_swap(turn);
    }
    return rv;
}

static int others_watch(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    if (others_beat(turn)) {
        return 0;
    }
    struct mst__legacy_changes changes;
    mst__legacy_changes(legacy, &changes);
    if (changes.expelled && !legacy->told.expelled) {
        legacy->told.expelled = true;
        return mst__legacy_end(turn, MST_LEGACY_OK);
    }
    if (turn->now_us >= legacy->deadline_us) {
        return mst__legacy_end(turn, MST_LEGACY_TIMEOUT);
    }
    if (!legacy->is_known) {
        return mst__legacy_ask_doc(turn);
    }
    if (others_list(turn)) {
        return 0;
    }
    int rv = 0;
    bool is_asked;
    if (legacy->is_member && changes_is_our_round(legacy)) {
        rv = changes_count(legacy);
    }
    rv = rv != 0 ? rv : watch_clean(turn, &is_asked);
    if (rv != 0 || is_asked) {
        return rv;
    }
    mst__legacy_changes(legacy, &changes);
    if (changes_differ(&changes, &legacy->told)) {
        legacy->told = changes;
        return mst__legacy_end(turn, MST_LEGACY_OK);
    }
    int64_t until_us = mst__legacy_beat_us(legacy);
    return mst__legacy_wait(turn, mst__min(until_us, legacy->look_us));
}

/* --- closing and leaving --- */

static int others_close(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    if (turn->now_us >= legacy->deadline_us) {
        return mst__legacy_end(turn, MST_LEGACY_TIMEOUT);
    }
    if (!legacy->is_known) {
        return mst__legacy_ask_doc(turn);
    }
    if (!legacy->exists) {
        mst__legacy_doc_close(&legacy->next);
        legacy->next.status = MST_LEGACY_CLOSED;
        return mst__legacy_ask_create(turn);
    }
    if (legacy->doc.status == MST_LEGACY_CLOSED) {
        return mst__legacy_end(turn, MST_LEGACY_OK);
    }
    int rv = mst__legacy_doc_copy(&legacy->next, &legacy->doc);
    legacy->next.status = MST_LEGACY_CLOSED;
    return rv != 0 ? rv : mst__legacy_ask_swap(turn);
}

static int others_leave(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    if (!legacy->is_member) {
        return mst__legacy_end(turn, MST_LEGACY_OK);
    }
    if (turn->now_us >= legacy->deadline_us) {
        return mst__legacy_end(turn, MST_LEGACY_TIMEOUT);
    }
    if (legacy->rank_version != 0) {
        return mst__legacy_ask_plain(turn, MST_ASK_RANK_DROP);
    }
    if (!legacy->is_known) {
        return mst__legacy_ask_doc(turn);
    }
    mst__legacy_nonce nonce = legacy->options.nonce;
    if (!changes_is_our_round(legacy) || legacy->doc.left.count > 0) {
        /* The round is over, or another node has left it: the end of our key is enough. */
        legacy->is_member = false;
        return mst__legacy_end(turn, MST_LEGACY_OK);
    }
    /* Muster nodes learn it from the document at once, peers from the end of our key. */
    int rv = mst__legacy_doc_copy(&legacy->next, &legacy->doc);
    if (rv == 0) {
        rv = mst__legacy_nonces_add(&legacy->next.left, nonce);
    }
    return rv != 0 ? rv : mst__legacy_ask_swap(turn);
}

static int others_setup(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    switch ((enum mst__legacy_ask)legacy->ask) {
        case MST_ASK_JOB:
            /* It exists: renew its TTL. */
            if (!legacy->has_job) {
                return mst__legacy_ask_plain(turn, MST_ASK_JOB_BEAT);
            }
            break;
        case MST_ASK_JOB_BEAT:
            if (!legacy->has_job) {
                return mst__legacy_ask_plain(turn, MST_ASK_JOB);
            }
            break;
        case MST_ASK_COUNTER_NEW:
            return mst__legacy_end(turn, MST_LEGACY_OK);
        default:
            return mst__legacy_ask_plain(turn, MST_ASK_JOB);
    }
    legacy->is_counter_absent = true;
    return mst__legacy_ask_counter(turn);
}

int mst__legacy_others(struct mst__legacy_turn *turn)
{
    switch (turn->legacy->operation) {
        case MST_LEGACY_OP_SETUP:
            return others_setup(turn);
        case MST_LEGACY_OP_LOOK:
            return others_look(turn);
        case MST_LEGACY_OP_WATCH:
            return others_watch(turn);
        case MST_LEGACY_OP_BEAT:
            return others_beat_end(turn);
        case MST_LEGACY_OP_CLOSE:
            return others_close(turn);
        case MST_LEGACY_OP_LEAVE:
        case MST_LEGACY_OP_NEXT:
            break;
    }
    MST_ASSERT(turn->legacy->operation == MST_LEGACY_OP_LEAVE);
    return others_leave(turn);
}
