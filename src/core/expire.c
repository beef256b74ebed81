/* core/expire.c - removes lost nodes: by stamps as the peers do, or by observing changes of
 * stamps. */
#include "core/expire.h"

#include <string.h>

#include <muster/error.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/number.h"
#include "core/apply.h"
#include "core/saturate.h"

/* The least allowance for a late heartbeat: the peers look once a second, and writing takes
 * time. */
#define EXPIRE_BEAT_LATE_US 2500000
/* The default interval of torch's nodes; 1.13 has no other. */
#define EXPIRE_PEER_BEAT_US 5000000
/* The allowance for torch's nodes: a second each for the timer that finds a heartbeat not yet
 * due, for a cached record, and for the read after a lost write. */
#define EXPIRE_PEER_LATE_US 3000000
/* The share of the expiry that is reserved for reporting the loss. */
#define EXPIRE_MARGIN_SHARE 32
#define EXPIRE_MARGIN_US_MAX 50000
/* The smallest skew that is reported. */
#define EXPIRE_SKEW_US 5000000

int64_t mst__expire_after_us(const struct mst__settings *settings)
{
    return mst__saturate_multiply(settings->keep_alive_interval_us,
                                  settings->keep_alive_max_attempt);
}

/* The assumed interval of a node that may be torch's: at least torch's default. */
static int64_t expire_peer_interval_us(const struct mst__settings *settings)
{
    int64_t interval_us = settings->keep_alive_interval_us;
    return mst__max(interval_us, EXPIRE_PEER_BEAT_US);
}

/* The time in which a living node sends one heartbeat. */
static int64_t expire_beat_us(const struct mst__settings *settings, bool is_ours)
{
    int64_t interval_us =
        is_ours ? settings->keep_alive_interval_us : expire_peer_interval_us(settings);
    int64_t half_us = interval_us / 2;
    int64_t late_us = is_ours ? EXPIRE_BEAT_LATE_US : EXPIRE_PEER_LATE_US;
    return mst__saturate_add(interval_us, mst__max(half_us, late_us));
}

int64_t mst__expire_patience_us(const struct mst__settings *settings, bool is_ours)
{
    int64_t after_us = mst__expire_after_us(settings);
    if (after_us == INT64_MAX) {
        return after_us; /* never */
    }
    int64_t share_us = after_us / EXPIRE_MARGIN_SHARE;
    after_us -= mst__min(share_us, EXPIRE_MARGIN_US_MAX);
    int64_t peer_us = mst__saturate_add(expire_peer_interval_us(settings), EXPIRE_PEER_LATE_US);
    return is_ours || after_us > peer_us ? after_us : peer_us;
}

/* Reserve room for all heartbeats in @dead, which is emptied. */
static int expire_reserve(const struct mst__state *state, struct mst__peers *dead)
{
    dead->count = 0;
    if (dead->capacity >= state->heartbeats.count) {
        return 0;
    }
    mst__peer_id *ids = mst__realloc(dead->ids, state->heartbeats.count * sizeof *ids);
    if (ids == NULL) {
        return MST_ENOMEM;
    }
    dead->ids = ids;
    dead->capacity = state->heartbeats.count;
    return 0;
}

static void expire_remove(struct mst__state *state,
                          const struct mst__settings *settings,
                          const struct mst__peers *dead)
{
    bool had_participant = false;
    for (size_t i = 0; i < dead->count; i++) {
        mst__peer_id id = dead->ids[i];
        bool had_heartbeat = mst__state_drop_heartbeat(state, id);
        MST_ASSERT(had_heartbeat);
        if (mst__state_drop_participant(state, id)) {
            had_participant = true;
        }
        (void)mst__state_drop_waiting(state, id); /* from any list */
        (void)mst__state_drop_spare(state, id);
    }
    if (had_participant) {
        mst__apply_epilogue(state, settings);
    }
}

int mst__expire_by_stamp(struct mst__state *state,
                         const struct mst__settings *settings,
                         int64_t now_us,
                         struct mst__peers *dead)
{
    int rv = expire_reserve(state, dead);
    if (rv != 0) {
        return rv;
    }
    int64_t oldest_us = mst__saturate_subtract(now_us, mst__expire_after_us(settings));
    for (size_t i = 0; i < state->heartbeats.count; i++) {
        mst__peer_id id = state->heartbeats.ids[i];
        if (state->members[id].heartbeat_us < oldest_us) {
            dead->ids[dead->count++] = id;
        }
    }
    expire_remove(state, settings, dead);
    return 0;
}

/* --- the observer --- */

void mst__observer_init(struct mst__observer *observer)
{
    static const uint8_t key[MST_SIPHASH_KEY_SIZE] = {'m', 'u', 's', 't', 'e', 'r'};
    *observer = (struct mst__observer){.next_us = INT64_MAX};
    mst__map_init(&observer->nodes, sizeof(struct mst__observed), key);
}

void mst__observer_close(struct mst__observer *observer)
{
    mst__map_close(&observer->nodes);
    mst__observer_init(observer);
}

/* Longer addresses are on the heap during a lookup. */
#define OBSERVER_KEY_SIZE 272

struct observer_key {
    uint8_t inside[OBSERVER_KEY_SIZE];
    uint8_t *bytes;
    size_t size;
};

static bool observer_key_open(struct observer_key *key, const struct mst__node *node)
{
    key->size = node->addr.size + 16;
    key->bytes = key->size <= sizeof key->inside ? key->inside : mst__malloc(key->size);
    if (key->bytes == NULL) {
        return false;
    }
    mst__store_u64(key->bytes, (uint64_t)node->pid);
    mst__store_u64(key->bytes + 8, (uint64_t)node->local_id);
    if (node->addr.size > 0) {
        memcpy(key->bytes + 16, node->addr.data, node->addr.size);
    }
    return true;
}

static void observer_key_close(struct observer_key *key)
{
    if (key->bytes != key->inside) {
        mst__free(key->bytes);
    }
}

/* The observations of @node, added if missing and if @adds; NULL = none, or out of memory. */
static struct mst__observed *observer_get(struct mst__observer *observer,
                                          const struct mst__node *node,
                                          bool adds,
                                          bool *ret_is_new)
{
    struct observer_key key;
    if (!observer_key_open(&key, node)) {
        return NULL;
    }
    struct mst__observed *observed =
        mst__map_get(&observer->nodes, mst_bytes_of(key.bytes, key.size));
    *ret_is_new = observed == NULL;
    if (observed == NULL && adds) {
        observed = mst__map_add(&observer->nodes, mst_bytes_of(key.bytes, key.size));
    }
    observer_key_close(&key);
    return observed;
}

const struct mst__observed *mst__observer_find(const struct mst__observer *observer,
                                               const struct mst__node *node)
{
    struct observer_key key;
    if (!observer_key_open(&key, node)) {
        return NULL;
    }
    const struct mst__observed *observed =
        mst__map_get(&observer->nodes, mst_bytes_of(key.bytes, key.size));
    observer_key_close(&key);
    return observed;
}

void mst__observer_pass(struct mst__observer *observer,
                        const struct mst__settings *settings,
                        int64_t asked_us,
                        int64_t now_us)
{
    int64_t gap_us = observer->reads == 0 ? 0 : asked_us - observer->read_us;
    MST_ASSERT(gap_us >= 0);
    MST_ASSERT(now_us >= asked_us);
    int64_t counts_us = expire_beat_us(settings, true);
    if (counts_us < 0) {
        counts_us = 0;
    }
    observer->watched_us += gap_us < counts_us ? gap_us : counts_us;
    observer->asked_us = asked_us;
    observer->read_us = now_us;
}

/* The minimum distance between our clock and that of a fresh stamp. A changed stamp was written
 * since the last read was requested, so it may look as old as that; one seen for the first time may
 * have any age. */
static int64_t observer_skew_us(int64_t stamp_us, int64_t now_us, bool is_new, int64_t gap_us)
{
    if (stamp_us > now_us) {
        return mst__saturate_subtract(stamp_us, now_us);
    }
    int64_t age_us = mst__saturate_subtract(now_us, stamp_us);
    return is_new || age_us <= gap_us ? 0 : -(age_us - gap_us);
}

static void observer_update(struct mst__observer *observer,
                            struct mst__observed *observed,
                            const struct mst__settings *settings,
                            int64_t stamp_us,
                            bool is_new,
                            const struct mst__reading *reading,
                            int64_t gap_us)
{
    observed->read = observer->reads;
    if (!is_new && observed->stamp_us == stamp_us) {
        return;
    }
    observed->has_changed = !is_new;
    observed->stamp_us = stamp_us;
    observed->changed_us = observer->watched_us + (reading->now_us - observer->read_us);
    int64_t limit_us = settings->keep_alive_interval_us > EXPIRE_SKEW_US
                           ? settings->keep_alive_interval_us
                           : EXPIRE_SKEW_US;
    int64_t skew_us = observer_skew_us(stamp_us, reading->wall_us, is_new, gap_us);
    observed->is_skewed = skew_us > limit_us || skew_us < -limit_us;
    observed->skew_us = observed->is_skewed ? skew_us : 0;
}

/* How long this node may be silent. */
static int64_t observer_patience_us(const struct mst__observed *observed,
                                    const struct mst__settings *settings,
                                    bool is_ours,
                                    int64_t now_us)
{
    int64_t patience_us = mst__expire_patience_us(settings, is_ours);
    int64_t after_us = mst__expire_after_us(settings);
    int64_t oldest_us =
        mst__saturate_subtract(now_us, mst__saturate_add(after_us, settings->clock_skew_us));
    if (observed->has_changed || observed->stamp_us >= oldest_us) {
        return patience_us;
    }
    int64_t beat_us = expire_beat_us(settings, is_ours);
    after_us = mst__max(after_us, patience_us);
    return mst__min(beat_us, after_us);
}

/* Forget nodes that are no longer in the record, and count the skewed ones. */
static void observer_sweep(struct mst__observer *observer)
{
    observer->skewed_count = 0;
    struct mst__observed *next;
    for (struct mst__observed *observed = mst__map_first(&observer->nodes); observed != NULL;
         observed = next) {
        next = mst__map_next(observed);
        if (observed->read != observer->reads) {
            mst__map_remove(&observer->nodes, observed);
        } else if (observed->is_skewed) {
            observer->skewed_count++;
        }
    }
}

int mst__observer_read(struct mst__observer *observer,
                       struct mst__state *state,
                       const struct mst__node *self,
                       const struct mst__settings *settings,
                       const struct mst__reading *reading,
                       struct mst__peers *dead)
{
    int rv = expire_reserve(state, dead);
    if (rv != 0) {
        return rv;
    }
    int64_t gap_us = observer->reads == 0 ? 0 : reading->now_us - observer->asked_us;
    if (!reading->is_past || observer->reads == 0) {
        mst__observer_pass(observer, settings, reading->asked_us, reading->now_us);
    }
    observer->reads++;
    observer->next_us = INT64_MAX;
    for (size_t i = 0; i < state->heartbeats.count; i++) {
        mst__peer_id id = state->heartbeats.ids[i];
        const struct mst__peer *member = &state->members[id];
        if (mst__node_compare(&member->node, self) == 0) {
            continue;
        }
        bool is_new;
        struct mst__observed *observed = observer_get(observer, &member->node, true, &is_new);
        if (observed == NULL) {
            dead->count = 0;
            return MST_ENOMEM;
        }
        observer_update(observer, observed, settings, member->heartbeat_us, is_new, reading,
                        gap_us);
        int64_t silent_us = observer->watched_us - observed->changed_us;
        int64_t patience_us =
            observer_patience_us(observed, settings, member->is_ours, reading->wall_us);
        if (silent_us > patience_us) {
            dead->ids[dead->count++] = id;
            continue;
        }
        int64_t left_us = mst__saturate_subtract(patience_us, silent_us);
        int64_t end_us = mst__saturate_add(observer->read_us, mst__saturate_add(left_us, 1));
        observer->next_us = mst__min(end_us, observer->next_us);
    }
    observer_sweep(observer);
    expire_remove(state, settings, dead);
    mst__observer_last_call(observer, state, reading->now_us);
    return 0;
}

void mst__observer_last_call(struct mst__observer *observer,
                             const struct mst__state *state,
                             int64_t now_mono_us)
{
    if (!state->has_deadline) {
        observer->has_deadline = false;
        return;
    }
    if (observer->has_deadline && observer->deadline_round == state->round &&
        observer->deadline_us == state->deadline_us) {
        return;
    }
    observer->has_deadline = true;
    observer->deadline_round = state->round;
    observer->deadline_us = state->deadline_us;
    observer->deadline_seen_us = now_mono_us;
}

int64_t mst__observer_last_call_end_us(const struct mst__observer *observer,
                                       const struct mst__settings *settings)
{
    MST_ASSERT(observer->has_deadline);
    return mst__saturate_add(observer->deadline_seen_us, settings->last_call_us);
}
