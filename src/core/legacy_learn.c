/* core/legacy_learn.c - processes etcd's answers for the legacy machine.
 *
 * An installed document is the one that etcd had at its index. A list of keys tells nothing
 * about nodes that came after its request. */
#include <muster/error.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "core/legacy_self.h"

/* Believe the answers after so many that lag behind: etcd may have lost its data. */
#define STALE_MAX 50

void mst__legacy_listing_close(struct mst__legacy_listing *listing)
{
    mst__legacy_nonces_close(&listing->nodes);
    mst__legacy_nonces_close(&listing->others);
    mst__free(listing->node_ttls_s);
    mst__free(listing->rank_ttls_s);
    *listing = (struct mst__legacy_listing){.is_known = false};
}

/* --- what was listed --- */

bool mst__legacy_is_listed(const struct mst__legacy *legacy, int64_t since_us)
{
    return legacy->listing.is_known && legacy->listing.version == legacy->doc.version &&
           legacy->listing.asked_us >= since_us;
}

bool mst__legacy_is_rank_listed(const struct mst__legacy *legacy, int64_t rank)
{
    const struct mst__legacy_listing *listing = &legacy->listing;
    return rank >= 0 && rank < (int64_t)listing->rank_count && listing->rank_ttls_s[rank] >= 0;
}

bool mst__legacy_is_node_listed(const struct mst__legacy *legacy, mst__legacy_nonce nonce)
{
    return mst__legacy_nonces_find(&legacy->listing.nodes, nonce) >= 0 ||
           mst__legacy_nonces_find(&legacy->listing.others, nonce) >= 0;
}

bool mst__legacy_is_keep_alive_missing(const struct mst__legacy *legacy)
{
    const struct mst__legacy_doc *doc = &legacy->doc;
    for (size_t i = 0; i < doc->keep_alive_count; i++) {
        int64_t rank = mst__legacy_path_rank(legacy, doc->keep_alives[i]);
        if (rank >= 0 && !mst__legacy_is_rank_listed(legacy, rank)) {
            return true;
        }
    }
    return false;
}

/* Whether the key of @nonce matters for the document. */
static bool expiry_matters(const struct mst__legacy_doc *doc, mst__legacy_nonce nonce)
{
    if (doc->status == MST_LEGACY_FINAL) {
        return mst__legacy_nonces_find(&doc->waiting, nonce) >= 0;
    }
    return mst__legacy_doc_rank(doc, nonce) >= 0;
}

int64_t mst__legacy_expiry_us(const struct mst__legacy *legacy, int64_t now_us)
{
    const struct mst__legacy_listing *listing = &legacy->listing;
    int64_t ttl_s = MST_LEGACY_TTL_KEY;
    for (size_t i = 0; i < listing->rank_count; i++) {
        if (listing->rank_ttls_s[i] >= 0) {
            ttl_s = mst__min(ttl_s, listing->rank_ttls_s[i]);
        }
    }
    for (size_t i = 0; i < listing->nodes.count; i++) {
        mst__legacy_nonce nonce = listing->nodes.items[i];
        int64_t rank = mst__legacy_doc_rank(&legacy->doc, nonce);
        if (expiry_matters(&legacy->doc, nonce) && (legacy->doc.status != MST_LEGACY_FROZEN ||
                                                    !mst__legacy_is_rank_listed(legacy, rank))) {
            ttl_s = mst__min(ttl_s, listing->node_ttls_s[i]);
        }
    }
    return now_us + ttl_s * MST_LEGACY_SECOND_US + MST_LEGACY_EXPIRY_LATE_US;
}

static int listing_rank(struct mst__legacy_listing *listing, size_t rank, int64_t ttl_s)
{
    if (rank >= listing->rank_count) {
        int64_t *ttls = mst__realloc(listing->rank_ttls_s, (rank + 1) * sizeof *ttls);
        if (ttls == NULL) {
            return MST_ENOMEM;
        }
        listing->rank_ttls_s = ttls;
        while (listing->rank_count <= rank) {
            ttls[listing->rank_count++] = -1;
        }
    }
    listing->rank_ttls_s[rank] = ttl_s;
    return 0;
}

static bool listing_is_like_us(const struct mst__legacy *legacy, struct mst_bytes limits)
{
    char text[MST_LEGACY_LIMITS_SIZE];
    size_t size = mst__legacy_limits(legacy, text);
    return limits.size == size && memcmp(limits.data, text, size) == 0;
}

static int listing_node(struct mst__legacy *legacy,
                        mst__legacy_nonce nonce,
                        const struct mst__legacy_entry *entry)
{
    struct mst__legacy_listing *listing = &legacy->listing;
    if (!listing_is_like_us(legacy, entry->value)) {
        return mst__legacy_nonces_add(&listing->others, nonce);
    }
    int64_t *ttls = mst__realloc(listing->node_ttls_s, (listing->nodes.count + 1) * sizeof *ttls);
    if (ttls == NULL) {
        return MST_ENOMEM;
    }
    listing->node_ttls_s = ttls;
    ttls[listing->nodes.count] = entry->has_ttl ? entry->ttl_s : 0;
    return mst__legacy_nonces_add(&listing->nodes, nonce);
}

static int listing_entry(struct mst__legacy *legacy, const struct mst__legacy_entry *entry)
{
    struct mst_bytes name = mst_bytes_str(entry->name);
    int64_t rank;
    mst__legacy_nonce nonce;
    if (name.size > 5 && memcmp(name.data, "rank_", 5) == 0 &&
        mst__number_parse(mst_bytes_of(name.data + 5, name.size - 5), 0, MST_MEMBERS_MAX - 1,
                          &rank)) {
        return listing_rank(&legacy->listing, (size_t)rank, entry->has_ttl ? entry->ttl_s : 0);
    }
    if (name.size > 7 && memcmp(name.data, "muster_", 7) == 0 &&
        mst__legacy_nonce_parse(mst_bytes_of(name.data + 7, name.size - 7), &nonce)) {
        return listing_node(legacy, nonce, entry);
    }
    return 0;
}

static int answer_list(struct mst__legacy *legacy, const struct mst__legacy_event *event)
{
    struct mst__legacy_listing *listing = &legacy->listing;
    mst__legacy_listing_close(listing);
    for (size_t i = 0; event->code == 0 && i < event->entry_count; i++) {
        int rv = listing_entry(legacy, &event->entries[i]);
        if (rv != 0) {
            return rv;
        }
    }
    listing->is_known = true;
    listing->version = legacy->doc.version;
    listing->asked_us = legacy->asked_us;
    return 0;
}

/* --- what was answered --- */

/* Install @doc, which is taken; NULL = there is none. */
static void answer_install(struct mst__legacy_turn *turn,
                           struct mst__legacy_doc *doc,
                           uint64_t doc_index,
                           uint64_t index)
{
    struct mst__legacy *legacy = turn->legacy;
    bool was_known = legacy->exists && legacy->doc_index == doc_index;
    if (doc == NULL || doc->status != legacy->doc.status || doc->version != legacy->doc.version) {
        legacy->is_held = false;
        legacy->losses = 0;
        legacy->status_us = turn->now_us;
        legacy->look_us = turn->now_us + MST_LEGACY_TTL_KEY * MST_LEGACY_SECOND_US / 2 +
                          (int64_t)mst__prng_below(&turn->prng, 3000000);
    }
    if (!was_known || doc == NULL) {
        legacy->changed_us = turn->now_us;
    }
    legacy->is_known = true;
    legacy->exists = doc != NULL;
    legacy->read_us = turn->now_us;
    legacy->doc_index = doc_index;
    legacy->from_index = index + 1;
    legacy->seen_index = legacy->seen_index > index ? legacy->seen_index : index;
    if (doc != NULL) {
        mst__legacy_doc_move(&legacy->doc, doc);
    } else {
        mst__legacy_doc_close(&legacy->doc);
    }
    doc = &legacy->doc;
    bool is_enough = legacy->exists && doc->status == MST_LEGACY_JOINABLE &&
                     (int64_t)doc->participant_count >= legacy->options.nodes_min;
    if (!is_enough) {
        legacy->enough_version = 0;
    } else if (legacy->enough_version != doc->version) {
        legacy->enough_version = doc->version;
        legacy->enough_us = turn->now_us;
        legacy->is_caller = legacy->wrote_index == doc_index;
    }
}

/* The answer to a write of the document. */
static void answer_write(struct mst__legacy_turn *turn, const struct mst__legacy_event *event)
{
    struct mst__legacy *legacy = turn->legacy;
    legacy->is_held = false;
    if (event->code != 0) {
        legacy->stats.losses++;
        legacy->losses++;
        legacy->is_known = false;
        return;
    }
    legacy->losses = 0;
    legacy->wrote_index = event->modified;
    if (legacy->ask == MST_ASK_DROP) {
        answer_install(turn, NULL, 0,
                       event->modified > event->index ? event->modified : event->index);
        return;
    }
    legacy->is_cleaning = legacy->next.status == MST_LEGACY_FINAL &&
                          legacy->doc.status == MST_LEGACY_FROZEN &&
                          mst__legacy_doc_is_ours(&legacy->next) && legacy->old_versions[1] != 0;
    bool is_touch = legacy->next.status == legacy->doc.status &&
                    legacy->next.participant_count == legacy->doc.participant_count &&
                    legacy->next.keep_alive_count == legacy->doc.keep_alive_count;
    answer_install(turn, &legacy->next, event->modified, event->modified);
    if (is_touch) {
        return;
    }
    /* Other nodes follow soon, and one of us should let them all in. */
    legacy->gather_us = 2 * legacy->trip_us;
    legacy->gather_us = legacy->gather_us < 5000 ? 5000 : mst__min(legacy->gather_us, 50000);
    legacy->look_us = turn->now_us + legacy->gather_us;
}

static void answer_counter(struct mst__legacy *legacy, const struct mst__legacy_event *event)
{
    legacy->is_counter_absent = event->code == 100;
    legacy->counter_index = event->code == 0 ? event->modified : 0;
}

/* The answer to a write or refresh of one of our keys. */
static void answer_key(struct mst__legacy_turn *turn, const struct mst__legacy_event *event)
{
    struct mst__legacy *legacy = turn->legacy;
    bool is_there = event->code == 0;
    if (legacy->ask == MST_ASK_KEY || legacy->ask == MST_ASK_KEY_BEAT) {
        legacy->has_key = is_there;
        legacy->key_us = legacy->asked_us;
        return;
    }
    legacy->has_rank = is_there;
    legacy->rank_us = legacy->asked_us;
    legacy->rank_done_us = turn->now_us;
    if (legacy->is_member && !is_there) {
        legacy->is_expelled = true;
    }
}

bool mst__legacy_is_stale(struct mst__legacy *legacy, const struct mst__legacy_event *event)
{
    if (event->index >= legacy->seen_index) {
        legacy->stale_count = 0;
        return false;
    }
    if (legacy->stale_count < STALE_MAX) {
        legacy->stale_count++;
        return true;
    }
    legacy->seen_index = event->index;
    return false;
}

/* A long poll has ended with news. */
static void answer_wait(struct mst__legacy_turn *turn, const struct mst__legacy_event *event)
{
    struct mst__legacy *legacy = turn->legacy;
    if (event->code == 0) {
        answer_install(turn, event->doc, event->modified, event->modified);
    } else if (event->code == 100) {
        answer_install(turn, NULL, 0, event->index);
    } else {
        legacy->is_known = false;
    }
}

int mst__legacy_learn(struct mst__legacy_turn *turn, const struct mst__legacy_event *event)
{
    struct mst__legacy *legacy = turn->legacy;
    switch ((enum mst__legacy_ask)legacy->ask) {
        case MST_ASK_DOC:
            answer_install(turn, event->code == 0 ? event->doc : NULL, event->modified,
                           event->index);
            return 0;
        case MST_ASK_WAIT:
            answer_wait(turn, event);
            return 0;
        case MST_ASK_SWAP:
        case MST_ASK_CREATE:
        case MST_ASK_DROP:
            answer_write(turn, event);
            return 0;
        case MST_ASK_LIST:
            return answer_list(legacy, event);
        case MST_ASK_COUNTER:
            answer_counter(legacy, event);
            return 0;
        case MST_ASK_COUNTER_NEW:
            legacy->is_counter_absent = false;
            return 0;
        case MST_ASK_CLAIM:
            legacy->claimed = event->code == 0 ? legacy->counter_value + 1 : 0;
            legacy->counter_index = 0;
            return 0;
        case MST_ASK_KEY:
        case MST_ASK_KEY_BEAT:
        case MST_ASK_RANK:
        case MST_ASK_RANK_BEAT:
            answer_key(turn, event);
            return 0;
        case MST_ASK_KEY_DROP:
            legacy->is_withdrawn = true;
            legacy->has_key = false;
            return 0;
        case MST_ASK_RANK_DROP:
            legacy->has_rank = false;
            legacy->rank_version = 0;
            return 0;
        case MST_ASK_JOB:
        case MST_ASK_JOB_BEAT:
            legacy->has_job = event->code == 0;
            legacy->job_us = legacy->asked_us;
            return 0;
        case MST_ASK_STORE:
            legacy->is_store_made = true;
            return 0;
        case MST_ASK_CLEAN:
            legacy->is_cleaning = false;
            return 0;
        case MST_ASK_NONE:
        case MST_ASK_PAUSE:
            break;
    }
    MST_ASSERT(legacy->ask > MST_ASK_PAUSE); /* a request was sent */
    return 0;
}

bool mst__legacy_is_legal(struct mst__legacy *legacy, const struct mst__legacy_event *event)
{
    switch (event->code) {
        case 0:
            return legacy->ask != MST_ASK_COUNTER ||
                   mst__number_parse(event->value, 0, INT64_MAX - 1, &legacy->counter_value);
        case 100:
        case 101:
        case 105:
            return true;
        case 400:
        case 401:
            return legacy->ask == MST_ASK_WAIT;
        default:
            return false;
    }
}
