/* core/legacy_next.c - entering a round of a legacy rendezvous: the next step, by the document.
 *
 *     (none) --create--> setup --open--> joinable --freeze--> frozen --confirm--> final --> done
 *        ^                 |                |                   |                   |
 *        +----expiry-------+----------------+--- expiry, drop --+---- drop ---------+
 *
 * Every decision depends on the current document only, so nothing is lost with a missing answer.
 * Only keys show whether a node lives: a muster node has muster_<nonce> from before it enters
 * until it has confirmed, then rank_<r>, like the peers. */
#include "base/assert.h"
#include "base/number.h"
#include "core/legacy_self.h"
#include "core/saturate.h"

/* Few enough to write at once. */
#define HOLD_FEW 4
/* The first guess after a loss, and how often it is doubled. */
#define HOLD_LOST 8
#define HOLD_LOST_BITS 4
#define SLOT_US_MIN 500
#define SLOT_US_MAX 2000
/* After this time the gathering node only looks for lost nodes. */
#define GATHER_US_MAX 400000

/* The node that began the last call refreshes and ends it; the others do so if it does not. */
#define TOUCH_US 5000000
#define TOUCH_OTHERS_US 7000000
#define CALL_OTHERS_US 1500000
#define SPREAD_US 1000000

/* A delay that is constant for one node and differs between nodes. */
static int64_t next_spread_us(const struct mst__legacy *legacy)
{
    return (int64_t)(legacy->options.nonce % SPREAD_US);
}

static bool next_is_gatherer(const struct mst__legacy *legacy)
{
    return legacy->wrote_index != 0 && legacy->wrote_index == legacy->doc_index;
}

void mst__legacy_next_begin(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    legacy->is_member = false;
    legacy->is_expelled = false;
    legacy->is_known = false;
    legacy->joined_version = 0;
    legacy->claimed = 0;
    legacy->counter_index = 0;
    legacy->is_counter_absent = false;
    legacy->enough_version = 0;
    legacy->is_store_made = false;
    legacy->is_cleaning = false;
    legacy->has_written = false;
    legacy->is_withdrawn = false;
    legacy->key_version = 0;
    legacy->has_key = false;
    legacy->rank_version = 0;
    legacy->has_rank = false;
    legacy->wrote_index = 0;
    legacy->listing.is_known = false;
}

/* --- holding and looking --- */

static int64_t hold_us(struct mst__legacy_turn *turn, int64_t contenders)
{
    const struct mst__legacy *legacy = turn->legacy;
    if (legacy->losses == 0 && contenders <= HOLD_FEW) {
        return 0;
    }
    if (legacy->losses > 0) {
        unsigned bits = legacy->losses - 1 < HOLD_LOST_BITS ? legacy->losses - 1 : HOLD_LOST_BITS;
        int64_t guess = (int64_t)HOLD_LOST << bits;
        contenders = mst__max(contenders, guess);
    }
    int64_t slot_us = mst__max(legacy->trip_us, SLOT_US_MIN);
    int64_t window_us = contenders * mst__min(slot_us, SLOT_US_MAX);
    return 1 + (int64_t)mst__prng_below(&turn->prng, (uint64_t)window_us);
}

/* Whether to wait before a write that @contenders, including us, want to make; the effect is
 * then set. Another node's write may replace ours. */
static bool next_hold(struct mst__legacy_turn *turn, int64_t contenders)
{
    struct mst__legacy *legacy = turn->legacy;
    if (!legacy->is_held) {
        bool is_gathering = next_is_gatherer(legacy) && legacy->look_us > turn->now_us &&
                            legacy->doc.status == MST_LEGACY_FROZEN;
        legacy->is_held = true;
        legacy->held_us = is_gathering ? legacy->look_us : turn->now_us + hold_us(turn, contenders);
    }
    if (turn->now_us >= legacy->held_us) {
        return false;
    }
    (void)mst__legacy_wait(turn, legacy->held_us); /* cannot fail */
    return true;
}

/* The listed keys need no write: look again later. */
static void next_looked(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    if (next_is_gatherer(legacy) && legacy->gather_us > 0 && legacy->gather_us < GATHER_US_MAX) {
        legacy->gather_us *= 2;
        legacy->look_us = turn->now_us + legacy->gather_us;
    } else {
        legacy->look_us = mst__legacy_expiry_us(legacy, turn->now_us);
    }
}

/* Whether to list the keys first, because the last list is older than @since_us; the effect is
 * then set. A list that was requested before the current document does not count: it may lack
 * the keys of newer nodes. */
static bool next_list(struct mst__legacy_turn *turn, int64_t since_us)
{
    const struct mst__legacy *legacy = turn->legacy;
    since_us = mst__max(since_us, legacy->changed_us);
    if (mst__legacy_is_listed(legacy, since_us)) {
        return false;
    }
    (void)mst__legacy_ask_list(turn); /* cannot fail */
    return true;
}

/* --- creating --- */

static int next_create(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    mst__legacy_doc_close(&legacy->next);
    legacy->next.has_muster = true;
    legacy->next.creator = legacy->options.nonce;
    legacy->claimed = 0;
    legacy->counter_index = 0;
    return mst__legacy_ask_create(turn);
}

static int next_setup(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    if (legacy->doc.creator != legacy->options.nonce) {
        return mst__legacy_wait(turn, INT64_MAX);
    }
    if (legacy->claimed == 0) {
        return mst__legacy_ask_counter(turn);
    }
    if (legacy->key_version != legacy->claimed || !legacy->has_key) {
        return mst__legacy_ask_key(turn, legacy->claimed);
    }
    int rv = mst__legacy_edit_open(legacy);
    return rv != 0 ? rv : mst__legacy_ask_swap(turn);
}

/* --- limits --- */

static bool limits_differ(const struct mst__legacy *legacy)
{
    const struct mst__legacy_doc *doc = &legacy->doc;
    return doc->has_muster && doc->nodes_min != 0 &&
           (doc->nodes_min != legacy->options.nodes_min ||
            doc->nodes_max != legacy->options.nodes_max);
}

/* Whether any node in the document, whose keys were listed, may live. */
static bool limits_have_life(const struct mst__legacy *legacy)
{
    const struct mst__legacy_doc *doc = &legacy->doc;
    for (size_t rank = 0; rank < doc->participant_count; rank++) {
        mst__legacy_nonce nonce = mst__legacy_doc_node(doc, rank);
        if (nonce == 0 || mst__legacy_is_node_listed(legacy, nonce) ||
            mst__legacy_is_rank_listed(legacy, (int64_t)rank)) {
            return true;
        }
    }
    return false;
}

/* The document has other limits: fail with MISMATCH, or if all its nodes are dead, drop it. */
static int next_mismatch(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    if (!mst__legacy_is_listed(legacy, legacy->changed_us)) {
        return mst__legacy_ask_list(turn);
    }
    if (!limits_have_life(legacy) || mst__legacy_is_keep_alive_missing(legacy)) {
        return mst__legacy_ask_drop(turn);
    }
    struct mst__legacy_outcome outcome = {
        .result = MST_LEGACY_MISMATCH,
        .theirs_min = legacy->doc.nodes_min,
        .theirs_max = legacy->doc.nodes_max,
    };
    mst__legacy_tidy(turn, outcome);
    return mst__legacy_next(turn);
}

/* --- joining --- */

/* We are not in: put our key, and let us and all others like us in. */
static int next_enter(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    const struct mst__legacy_doc *doc = &legacy->doc;
    if (legacy->key_version != doc->version || !legacy->has_key) {
        return mst__legacy_ask_key(turn, doc->version);
    }
    int64_t missing = legacy->options.nodes_min - (int64_t)doc->participant_count;
    if (next_hold(turn, missing)) {
        return 0;
    }
    if (next_list(turn, legacy->held_us)) {
        return 0;
    }
    if (!mst__legacy_is_node_listed(legacy, legacy->options.nonce)) {
        legacy->is_held = false;
        return mst__legacy_ask_key(turn, doc->version); /* it has expired */
    }
    bool is_changed;
    int rv = mst__legacy_edit_join(legacy, false, &is_changed);
    if (rv != 0) {
        return rv;
    }
    if (is_changed) {
        return mst__legacy_ask_swap(turn);
    }
    /* There is no room for us. */
    return mst__legacy_wait(turn, INT64_MAX);
}

/* We are in, and the minimum is reached: the last call. */
static int next_call(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    int64_t end_us = mst__saturate_add(legacy->enough_us, legacy->options.last_call_us);
    int64_t touch_us = legacy->changed_us + TOUCH_US;
    if (!legacy->is_caller) {
        end_us = mst__saturate_add(end_us, CALL_OTHERS_US + next_spread_us(legacy));
        touch_us = legacy->changed_us + TOUCH_OTHERS_US + next_spread_us(legacy);
    }
    bool is_over = turn->now_us >= end_us;
    bool is_changed = false;
    int rv = 0;
    if (is_over || turn->now_us >= legacy->look_us) {
        if (next_list(turn, is_over ? end_us : legacy->look_us)) {
            return 0;
        }
        rv = mst__legacy_edit_join(legacy, is_over, &is_changed);
        if (rv != 0 || is_changed) {
            return rv != 0 ? rv : mst__legacy_ask_swap(turn);
        }
        next_looked(turn);
    }
    if (turn->now_us >= touch_us) {
        rv = mst__legacy_doc_copy(&legacy->next, &legacy->doc);
        return rv != 0 ? rv : mst__legacy_ask_swap(turn);
    }
    return mst__legacy_wait(turn, mst__min(mst__min(end_us, touch_us), legacy->look_us));
}

static int next_joinable(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    const struct mst__legacy_doc *doc = &legacy->doc;
    if (limits_differ(legacy)) {
        return next_mismatch(turn);
    }
    if (mst__legacy_doc_rank(doc, legacy->options.nonce) < 0) {
        return next_enter(turn);
    }
    legacy->joined_version = doc->version;
    if ((int64_t)doc->participant_count >= legacy->options.nodes_min) {
        return next_call(turn);
    }
    if (turn->now_us >= legacy->look_us) {
        if (next_list(turn, legacy->look_us)) {
            return 0;
        }
        bool is_changed;
        int rv = mst__legacy_edit_join(legacy, false, &is_changed);
        if (rv != 0 || is_changed) {
            return rv != 0 ? rv : mst__legacy_ask_swap(turn);
        }
        next_looked(turn);
    }
    return mst__legacy_wait(turn, legacy->look_us);
}

/* --- confirming --- */

/* The number of muster nodes without confirmation. */
static int64_t frozen_missing(const struct mst__legacy *legacy, bool *ret_is_confirmed)
{
    const struct mst__legacy_doc *doc = &legacy->doc;
    int64_t missing = 0;
    for (size_t rank = 0; rank < doc->participant_count; rank++) {
        missing += mst__legacy_doc_node(doc, rank) != 0;
    }
    *ret_is_confirmed = false;
    for (size_t i = 0; i < doc->keep_alive_count; i++) {
        int64_t rank = mst__legacy_path_rank(legacy, doc->keep_alives[i]);
        *ret_is_confirmed = *ret_is_confirmed || rank == legacy->rank;
        missing -= rank >= 0 && mst__legacy_doc_node(doc, (size_t)rank) != 0;
    }
    return missing;
}

/* The keys were listed: write the confirmations. */
static int frozen_listed(struct mst__legacy_turn *turn, bool is_confirmed)
{
    struct mst__legacy *legacy = turn->legacy;
    if (!mst__legacy_is_rank_listed(legacy, legacy->rank)) {
        return mst__legacy_ask_rank(turn, legacy->doc.version, legacy->rank); /* it has expired */
    }
    if (mst__legacy_is_keep_alive_missing(legacy) || mst__legacy_has_dead(legacy)) {
        return mst__legacy_ask_drop(turn); /* a node is lost, so the round can never be complete */
    }
    bool is_changed;
    int rv = mst__legacy_edit_confirm(legacy, &is_changed);
    if (rv != 0 || is_changed) {
        return rv != 0 ? rv : mst__legacy_ask_swap(turn);
    }
    MST_ASSERT(is_confirmed);
    next_looked(turn);
    return mst__legacy_wait(turn, legacy->look_us);
}

static int next_frozen(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    const struct mst__legacy_doc *doc = &legacy->doc;
    int64_t rank = mst__legacy_doc_rank(doc, legacy->options.nonce);
    if (rank < 0) {
        return mst__legacy_wait(turn, INT64_MAX);
    }
    legacy->joined_version = doc->version;
    if (legacy->rank_version != doc->version || legacy->rank != rank || !legacy->has_rank) {
        return mst__legacy_ask_rank(turn, doc->version, rank);
    }
    bool is_confirmed;
    int64_t missing = frozen_missing(legacy, &is_confirmed);
    if (!is_confirmed) {
        if (next_hold(turn, missing)) {
            return 0;
        }
        return next_list(turn, legacy->held_us) ? 0 : frozen_listed(turn, false);
    }
    if (turn->now_us >= legacy->look_us) {
        return next_list(turn, legacy->look_us) ? 0 : frozen_listed(turn, true);
    }
    return mst__legacy_wait(turn, legacy->look_us);
}

/* --- a round that is final --- */

/* We are in the round: create the store's directory, clean up, return. */
static int next_finish(struct mst__legacy_turn *turn, int64_t rank)
{
    struct mst__legacy *legacy = turn->legacy;
    const struct mst__legacy_doc *doc = &legacy->doc;
    if (!legacy->has_rank) {
        /* The answer to our confirmation was lost, and another node has finished the round. Put
         * the key again, to know when it expires. */
        return mst__legacy_ask_rank(turn, doc->version, rank);
    }
    if (!legacy->is_store_made) {
        return mst__legacy_ask_plain(turn, MST_ASK_STORE);
    }
    if (legacy->is_cleaning) {
        return mst__legacy_ask_plain(turn, MST_ASK_CLEAN);
    }
    bool is_ours = mst__legacy_doc_is_ours(doc);
    legacy->old_versions[1] = is_ours ? legacy->old_versions[0] : 0;
    legacy->old_versions[0] = is_ours ? doc->version : 0;
    struct mst__legacy_outcome outcome = {
        .result = MST_LEGACY_OK,
        .version = doc->version,
        .rank = rank,
        .world = (int64_t)doc->participant_count,
    };
    legacy->is_member = true;
    legacy->version = outcome.version;
    legacy->rank = rank;
    legacy->world = outcome.world;
    legacy->lost_count = 0;
    legacy->told = (struct mst__legacy_changes){.is_known = true};
    legacy->key_version = 0;
    legacy->has_key = false;
    return mst__legacy_done(turn, outcome);
}

/* All members live, and we wait for the end of the round: announce us to them. */
static int next_announce(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    const struct mst__legacy_doc *doc = &legacy->doc;
    if (legacy->key_version != doc->version || !legacy->has_key) {
        return mst__legacy_ask_key(turn, doc->version);
    }
    if (next_hold(turn, 1)) {
        return 0;
    }
    bool is_changed;
    int rv = mst__legacy_edit_announce(legacy, &is_changed);
    MST_ASSERT(rv != 0 || is_changed);
    return rv != 0 ? rv : mst__legacy_ask_swap(turn);
}

static int next_final(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    const struct mst__legacy_doc *doc = &legacy->doc;
    int64_t rank = mst__legacy_doc_rank(doc, legacy->options.nonce);
    if (rank >= 0 && legacy->joined_version == doc->version) {
        return next_finish(turn, rank);
    }
    if (rank >= 0 && mst__legacy_doc_is_ours(doc)) {
        /* We leave, and all muster nodes learn it from the document. With a peer in the round,
         * it goes on until a key expires, so that the peer has time to ask. */
        return mst__legacy_ask_drop(turn);
    }
    if (limits_differ(legacy)) {
        return next_mismatch(turn);
    }
    /* While the round is final, the keep-alives do not change. */
    bool is_due = turn->now_us >= legacy->look_us;
    if (is_due || !mst__legacy_is_listed(legacy, legacy->status_us)) {
        if (!mst__legacy_is_listed(legacy, is_due ? legacy->look_us : legacy->status_us)) {
            return mst__legacy_ask_list(turn);
        }
        legacy->look_us = mst__legacy_expiry_us(legacy, turn->now_us);
    }
    if (mst__legacy_is_keep_alive_missing(legacy)) {
        return next_hold(turn, doc->waiting_count) ? 0 : mst__legacy_ask_drop(turn);
    }
    bool is_room = (int64_t)doc->participant_count < legacy->options.nodes_max || rank >= 0;
    if (is_room && mst__legacy_nonces_find(&doc->waiting, legacy->options.nonce) < 0) {
        return next_announce(turn);
    }
    return mst__legacy_wait(turn, legacy->look_us);
}

/* --- giving up --- */

void mst__legacy_tidy(struct mst__legacy_turn *turn, struct mst__legacy_outcome outcome)
{
    struct mst__legacy *legacy = turn->legacy;
    if (legacy->is_tidying) {
        return;
    }
    legacy->is_tidying = true;
    legacy->tidy_outcome = outcome;
    legacy->tidy_us = turn->now_us + MST_LEGACY_TIDY_US;
    legacy->is_known = false;
}

/* Our key is gone, so no other node lets us in. Remove our entries. */
static int next_tidy(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    const struct mst__legacy_doc *doc = &legacy->doc;
    if (turn->now_us >= legacy->tidy_us) {
        return mst__legacy_done(turn, legacy->tidy_outcome);
    }
    if (legacy->key_version != 0 && !legacy->is_withdrawn) {
        return mst__legacy_ask_plain(turn, MST_ASK_KEY_DROP);
    }
    if (legacy->key_version == 0 && !legacy->has_written) {
        return mst__legacy_done(turn, legacy->tidy_outcome);
    }
    if (!legacy->is_known) {
        return mst__legacy_ask_doc(turn);
    }
    int64_t rank = legacy->exists ? mst__legacy_doc_rank(doc, legacy->options.nonce) : -1;
    bool is_in = rank >= 0 && legacy->exists;
    if (is_in && doc->status == MST_LEGACY_FINAL && legacy->joined_version == doc->version) {
        if (legacy->tidy_outcome.result == MST_LEGACY_TIMEOUT) {
            return next_finish(turn, rank); /* complete at the last moment */
        }
        if (legacy->rank_version != 0) {
            return mst__legacy_ask_plain(turn, MST_ASK_RANK_DROP);
        }
    }
    bool is_creator =
        legacy->exists && doc->status == MST_LEGACY_SETUP && doc->creator == legacy->options.nonce;
    bool is_alone = is_in && doc->status == MST_LEGACY_JOINABLE && doc->participant_count == 1;
    if (is_creator || is_alone || (is_in && doc->status == MST_LEGACY_FROZEN)) {
        /* A frozen round can only become final with us. */
        return mst__legacy_ask_drop(turn);
    }
    bool is_changed = false;
    int rv = legacy->exists ? mst__legacy_edit_withdraw(legacy, &is_changed) : 0;
    if (rv != 0) {
        return rv;
    }
    return is_changed ? mst__legacy_ask_swap(turn) : mst__legacy_done(turn, legacy->tidy_outcome);
}

/* --- all of it --- */

/* Refresh our key and the job's directory if they are due. Returns whether a request is set. */
static bool next_beat(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    bool is_setup = !legacy->exists || legacy->doc.status == MST_LEGACY_SETUP;
    int64_t version = is_setup ? legacy->claimed : legacy->doc.version;
    bool has_rank = legacy->rank_version == version && legacy->has_rank && version != 0;
    if (has_rank && turn->now_us >= legacy->rank_us + MST_LEGACY_BEAT_US) {
        (void)mst__legacy_ask_plain(turn, MST_ASK_RANK_BEAT); /* cannot fail */
        return true;
    }
    bool has_key = legacy->key_version == version && legacy->has_key && version != 0;
    if (has_key && !has_rank && turn->now_us >= legacy->key_us + MST_LEGACY_BEAT_US) {
        (void)mst__legacy_ask_plain(turn, MST_ASK_KEY_BEAT); /* the same */
        return true;
    }
    /* Keys of another version, or no longer needed: let them expire. */
    legacy->has_key = has_key && !has_rank;
    legacy->has_rank = has_rank;
    return mst__legacy_ask_job_beat(turn); /* a spare may wait for hours */
}

int mst__legacy_next(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    if (!legacy->is_tidying && turn->now_us >= legacy->deadline_us) {
        struct mst__legacy_outcome outcome = {.result = MST_LEGACY_TIMEOUT};
        mst__legacy_tidy(turn, outcome);
    }
    if (legacy->is_tidying) {
        return next_tidy(turn);
    }
    if (!legacy->is_known) {
        return mst__legacy_ask_doc(turn);
    }
    if (next_beat(turn)) {
        return 0;
    }
    if (!legacy->exists) {
        return next_create(turn);
    }
    switch (legacy->doc.status) {
        case MST_LEGACY_SETUP:
            return next_setup(turn);
        case MST_LEGACY_JOINABLE:
            return next_joinable(turn);
        case MST_LEGACY_FROZEN:
            return next_frozen(turn);
        case MST_LEGACY_FINAL:
            return next_final(turn);
        case MST_LEGACY_CLOSED: {
            struct mst__legacy_outcome outcome = {.result = MST_LEGACY_RESULT_CLOSED};
            mst__legacy_tidy(turn, outcome);
            return next_tidy(turn);
        }
        case MST_LEGACY_OTHER:
            break;
    }
    /* An unknown status of a later release: wait for a known one. */
    return mst__legacy_wait(turn, INT64_MAX);
}
