/* core/legacy_edit.c - a node's changes to the document of a legacy rendezvous.
 *
 * A write does all that is due, for other nodes, too: every node with its own key enters, and
 * every node with the key of its rank is confirmed. Peers do that for themselves, one after the
 * other, and could have written every document in between. */
#include <muster/error.h>

#include "base/assert.h"
#include "base/limits.h"
#include "core/legacy_self.h"

static void edit_limits(struct mst__legacy *legacy)
{
    struct mst__legacy_doc *next = &legacy->next;
    next->has_muster = true;
    if (next->nodes_min == 0) {
        next->nodes_min = legacy->options.nodes_min;
        next->nodes_max = legacy->options.nodes_max;
    }
}

static void edit_freeze(struct mst__legacy_doc *next)
{
    next->status = MST_LEGACY_FROZEN;
    next->has_keep_alives = true;
}

int64_t mst__legacy_edit_ttl_s(const struct mst__legacy *legacy)
{
    const struct mst__legacy_doc *next = &legacy->next;
    switch (next->status) {
        case MST_LEGACY_SETUP:
            return MST_LEGACY_TTL_SETUP;
        case MST_LEGACY_JOINABLE:
            return (int64_t)next->participant_count >= legacy->options.nodes_min
                       ? MST_LEGACY_TTL_DOC
                       : MST_LEGACY_NO_TTL;
        case MST_LEGACY_FROZEN:
            return MST_LEGACY_TTL_DOC;
        case MST_LEGACY_FINAL:
        case MST_LEGACY_CLOSED:
        case MST_LEGACY_OTHER:
            break;
    }
    return MST_LEGACY_NO_TTL;
}

/* --- joining --- */

static bool join_is_dead(const struct mst__legacy *legacy, mst__legacy_nonce nonce)
{
    return nonce != 0 && nonce != legacy->options.nonce &&
           !mst__legacy_is_node_listed(legacy, nonce);
}

/* The next node with a key and without a seat; 0 = none. */
static mst__legacy_nonce join_pending(const struct mst__legacy *legacy, size_t *at)
{
    const struct mst__legacy_nonces *nodes = &legacy->listing.nodes;
    while (*at < nodes->count) {
        mst__legacy_nonce nonce = nodes->items[(*at)++];
        if (mst__legacy_doc_rank(&legacy->next, nonce) < 0) {
            return nonce;
        }
    }
    return 0;
}

/* A peer whose entry reached the minimum ends the last call without checking the count again, so
 * it must not fall below the minimum any more. */
static bool join_may_shrink(const struct mst__legacy *legacy)
{
    const struct mst__legacy_doc *next = &legacy->next;
    int64_t count = (int64_t)next->participant_count;
    return count != legacy->options.nodes_min || mst__legacy_doc_is_ours(next);
}

static int join_seats(struct mst__legacy *legacy, bool *ret_changed)
{
    struct mst__legacy_doc *next = &legacy->next;
    size_t at = 0;
    int rv = 0;
    for (size_t rank = 0; rv == 0 && rank < next->participant_count; rank++) {
        mst__legacy_nonce nonce = mst__legacy_doc_node(next, rank);
        mst__legacy_nonce heir = join_is_dead(legacy, nonce) ? join_pending(legacy, &at) : 0;
        if (heir != 0) {
            rv = mst__legacy_doc_seat(next, rank, heir);
            *ret_changed = true;
        }
    }
    while (rv == 0 && (int64_t)next->participant_count < legacy->options.nodes_max) {
        mst__legacy_nonce nonce = join_pending(legacy, &at);
        if (nonce == 0) {
            break;
        }
        rv = mst__legacy_doc_append(next, nonce);
        *ret_changed = true;
    }
    return rv;
}

static void join_bury(struct mst__legacy *legacy, bool *ret_changed)
{
    struct mst__legacy_doc *next = &legacy->next;
    for (size_t rank = next->participant_count; rank-- > 0;) {
        mst__legacy_nonce nonce = mst__legacy_doc_node(next, rank);
        if (join_is_dead(legacy, nonce) && join_may_shrink(legacy) &&
            mst__legacy_doc_unseat(next, nonce)) {
            *ret_changed = true;
        }
    }
}

int mst__legacy_edit_join(struct mst__legacy *legacy, bool freezes, bool *ret_changed)
{
    MST_ASSERT(legacy->doc.status == MST_LEGACY_JOINABLE);
    *ret_changed = false;
    int rv = mst__legacy_doc_copy(&legacy->next, &legacy->doc);
    if (rv == 0) {
        edit_limits(legacy);
        rv = join_seats(legacy, ret_changed);
    }
    if (rv != 0) {
        return rv;
    }
    join_bury(legacy, ret_changed);
    int64_t count = (int64_t)legacy->next.participant_count;
    bool is_enough = count >= legacy->options.nodes_min;
    if (count >= legacy->options.nodes_max || (is_enough && freezes)) {
        edit_freeze(&legacy->next);
        *ret_changed = true;
    }
    return 0;
}

int mst__legacy_edit_open(struct mst__legacy *legacy)
{
    struct mst__legacy_doc *next = &legacy->next;
    MST_ASSERT(legacy->claimed > 0);
    int rv = mst__legacy_doc_copy(next, &legacy->doc);
    if (rv != 0) {
        return rv;
    }
    next->status = MST_LEGACY_JOINABLE;
    next->version = legacy->claimed;
    next->creator = 0;
    edit_limits(legacy);
    next->participant_count = 0;
    rv = mst__legacy_doc_append(next, legacy->options.nonce);
    if (legacy->options.nodes_max == 1) {
        edit_freeze(next);
    }
    return rv;
}

/* --- confirming --- */

static bool confirm_has(const struct mst__legacy *legacy,
                        const struct mst__legacy_doc *doc,
                        size_t rank)
{
    for (size_t i = 0; i < doc->keep_alive_count; i++) {
        if (mst__legacy_path_rank(legacy, doc->keep_alives[i]) == (int64_t)rank) {
            return true;
        }
    }
    return false;
}

/* Find the confirmed ranks in one pass. */
static void confirm_ranks(const struct mst__legacy *legacy,
                          const struct mst__legacy_doc *doc,
                          uint8_t *ret_ranks)
{
    memset(ret_ranks, 0, doc->participant_count);
    for (size_t i = 0; i < doc->keep_alive_count; i++) {
        int64_t rank = mst__legacy_path_rank(legacy, doc->keep_alives[i]);
        if (rank >= 0 && rank < (int64_t)doc->participant_count) {
            ret_ranks[rank] = 1;
        }
    }
}

bool mst__legacy_has_dead(const struct mst__legacy *legacy)
{
    const struct mst__legacy_doc *doc = &legacy->doc;
    for (size_t rank = 0; rank < doc->participant_count; rank++) {
        mst__legacy_nonce nonce = mst__legacy_doc_node(doc, rank);
        if (join_is_dead(legacy, nonce) && !mst__legacy_is_rank_listed(legacy, (int64_t)rank) &&
            !confirm_has(legacy, doc, rank)) {
            return true;
        }
    }
    return false;
}

static int confirm_add(struct mst__legacy *legacy, size_t rank)
{
    char name[32] = "rank_";
    size_t size = strlen(name);
    char digits[24];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + rank % 10);
        rank /= 10;
    } while (rank > 0);
    while (count > 0) {
        name[size++] = digits[--count];
    }
    name[size] = '\0';
    bool fits =
        mst__legacy_path(legacy, legacy->doc.version, name, legacy->path, sizeof legacy->path);
    MST_ASSERT(fits);
    return mst__legacy_doc_add_keep_alive(&legacy->next, legacy->path);
}

int mst__legacy_edit_confirm(struct mst__legacy *legacy, bool *ret_changed)
{
    struct mst__legacy_doc *next = &legacy->next;
    MST_ASSERT(legacy->doc.status == MST_LEGACY_FROZEN);
    *ret_changed = false;
    int rv = mst__legacy_doc_copy(next, &legacy->doc);
    if (rv != 0) {
        return rv;
    }
    uint8_t confirmed[MST_MEMBERS_MAX];
    MST_ASSERT(next->participant_count <= MST_MEMBERS_MAX);
    confirm_ranks(legacy, next, confirmed);
    bool is_complete = next->participant_count > 0;
    for (size_t rank = 0; rv == 0 && rank < next->participant_count; rank++) {
        if (confirmed[rank] == 0 && mst__legacy_doc_node(next, rank) != 0 &&
            mst__legacy_is_rank_listed(legacy, (int64_t)rank)) {
            rv = confirm_add(legacy, rank);
            confirmed[rank] = 1;
            *ret_changed = true;
        }
        is_complete = is_complete && confirmed[rank] != 0;
    }
    if (rv == 0 && is_complete) {
        next->status = MST_LEGACY_FINAL;
        next->has_waiting = true;
        next->waiting_count = 0;
        *ret_changed = true;
    }
    return rv;
}

/* --- waiting for the next round --- */

static int announce_one(struct mst__legacy_doc *next, mst__legacy_nonce nonce, bool *ret_changed)
{
    if (mst__legacy_nonces_find(&next->waiting, nonce) >= 0) {
        return 0;
    }
    int rv = mst__legacy_nonces_add(&next->waiting, nonce);
    if (rv == 0) {
        next->has_waiting = true;
        next->waiting_count++;
        *ret_changed = true;
    }
    return rv;
}

int mst__legacy_edit_announce(struct mst__legacy *legacy, bool *ret_changed)
{
    struct mst__legacy_doc *next = &legacy->next;
    MST_ASSERT(legacy->doc.status == MST_LEGACY_FINAL);
    *ret_changed = false;
    int rv = mst__legacy_doc_copy(next, &legacy->doc);
    if (rv != 0) {
        return rv;
    }
    edit_limits(legacy);
    const struct mst__legacy_nonces *nodes = &legacy->listing.nodes;
    for (size_t i = 0; rv == 0 && i < nodes->count; i++) {
        if (mst__legacy_doc_rank(next, nodes->items[i]) < 0) {
            rv = announce_one(next, nodes->items[i], ret_changed);
        }
    }
    return rv != 0 ? rv : announce_one(next, legacy->options.nonce, ret_changed);
}

static void unannounce(struct mst__legacy_doc *next, mst__legacy_nonce nonce)
{
    mst__legacy_nonces_remove(&next->waiting, nonce);
    if (next->waiting_count > 0) {
        next->waiting_count--;
    }
}

int mst__legacy_edit_waiting(struct mst__legacy *legacy, bool *ret_changed)
{
    struct mst__legacy_doc *next = &legacy->next;
    *ret_changed = false;
    int rv = mst__legacy_doc_copy(next, &legacy->doc);
    for (size_t i = next->waiting.count; rv == 0 && i-- > 0;) {
        mst__legacy_nonce nonce = next->waiting.items[i];
        if (!mst__legacy_is_node_listed(legacy, nonce)) {
            unannounce(next, nonce);
            *ret_changed = true;
        }
    }
    return rv;
}

int mst__legacy_edit_withdraw(struct mst__legacy *legacy, bool *ret_changed)
{
    struct mst__legacy_doc *next = &legacy->next;
    mst__legacy_nonce nonce = legacy->options.nonce;
    *ret_changed = false;
    int rv = mst__legacy_doc_copy(next, &legacy->doc);
    if (rv != 0) {
        return rv;
    }
    if (next->status == MST_LEGACY_JOINABLE && mst__legacy_doc_rank(next, nonce) >= 0) {
        *ret_changed = join_may_shrink(legacy) && mst__legacy_doc_unseat(next, nonce);
    } else if (next->status == MST_LEGACY_FINAL &&
               mst__legacy_nonces_find(&next->waiting, nonce) >= 0) {
        unannounce(next, nonce);
        *ret_changed = true;
    } else if (next->status == MST_LEGACY_FINAL && mst__legacy_doc_rank(next, nonce) >= 0 &&
               mst__legacy_nonces_find(&next->left, nonce) < 0) {
        rv = mst__legacy_nonces_add(&next->left, nonce);
        *ret_changed = true;
    }
    return rv;
}
