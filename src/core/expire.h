/* core/expire.h - finds lost nodes in the record, and the end of the last call.
 *
 * Pure. The peers compare stamps with their own wall clock, so that a wrong clock expels living
 * nodes and ends the last call early. An observer trusts only its own monotonic clock:
 *
 * - A node is lost when its stamp has not *changed* for longer than interval × attempts while we
 *   were reading. The value of the stamp does not matter, so no wrong or stepped clock can expel a
 *   node. Only time in which we read regularly counts, without the time of our requests: if we
 *   cannot reach the store, or it is slow, heartbeats of others are late as well, and no node is
 *   blamed for it. A heartbeat after a request may be missing in its answer.
 * - A node that is not marked as muster's may be torch's. Its interval counts as at least five
 *   seconds, torch's default, and its heartbeats may be three seconds late. It is not lost before
 *   that, however short our own times are.
 * - A node whose stamp we have never seen change, and whose stamp is older than expiry and
 *   clock_skew together, gets the time of one heartbeat instead of all attempts. That removes the
 *   remains of a crashed job sooner. It is not lost at first sight: its clock, or ours, may be off
 *   by more, and a living node sends a heartbeat in that time.
 * - The last call ends last_call after we first saw its deadline; the node that set it saw it
 *   first. So a fast clock ends nothing early and a slow one delays nothing. A node that came in
 *   the middle waits longer than the others, which end it. The value of the deadline is not used:
 *   it would only show how far the clocks are apart.
 *
 * A node whose stamps show a clock far from ours is reported as skewed and not expelled. */
#ifndef MST_CORE_EXPIRE_H
#define MST_CORE_EXPIRE_H

#include "base/map.h"
#include "core/settings.h"
#include "core/state.h"

/* How long a node may be silent: interval × attempts. */
int64_t mst__expire_after_us(const struct mst__settings *settings);

/* How long a node that has sent a heartbeat may be silent, as measured here: a little less than
 * interval × attempts, because others must be notified within that time. For a node that may be
 * torch's (@is_ours is false): at least torch's interval plus three seconds, as above. */
int64_t mst__expire_patience_us(const struct mst__settings *settings, bool is_ours);

/**
 * Remove from @state every node whose stamp is older than mst__expire_after_us at @now_us (wall
 * clock), as the peers do. @dead is emptied and gets their ids in the order of the heartbeats;
 * release its memory with mst__free.
 *
 * Returns 0, or MST_ENOMEM with @state unchanged.
 */
int mst__expire_by_stamp(struct mst__state *state,
                         const struct mst__settings *settings,
                         int64_t now_us,
                         struct mst__peers *dead);

/* An observer's knowledge of one node. */
struct mst__observed {
    int64_t stamp_us;
    int64_t changed_us; /* of the observer's own time */
    bool has_changed;   /* its stamp was seen to change */
    bool is_skewed;     /* its clock is far from ours */
    int64_t skew_us;    /* by at least this: above 0 = ahead of us. 0 unless skewed */
    uint64_t read;      /* the last read that had it */
};

struct mst__observer {
    struct mst__map nodes; /* to struct mst__observed */
    int64_t watched_us;    /* the observer's own time: monotonic, without gaps between reads, and
                              standing still while a request is under way */
    int64_t asked_us;      /* monotonic time of the last read: of its request, */
    int64_t read_us;       /* and of its answer */
    uint64_t reads;
    int64_t next_us; /* monotonic time when the next node is lost; INT64_MAX = none */
    size_t skewed_count;
    bool has_deadline;
    int64_t deadline_round; /* the last call that was seen, and since when */
    int64_t deadline_us;
    int64_t deadline_seen_us;
};

void mst__observer_init(struct mst__observer *observer);
void mst__observer_close(struct mst__observer *observer);

/* When a record was read. */
struct mst__reading {
    int64_t wall_us;  /* now, by the wall clock */
    int64_t now_us;   /* the same, monotonic */
    int64_t asked_us; /* of the request: all writes up to then are in the record; monotonic */
    bool is_past;     /* the record is a change that we were told of: nothing is known of the time
                         since the last read */
};

/* A request has ended that read nothing. */
void mst__observer_pass(struct mst__observer *observer,
                        const struct mst__settings *settings,
                        int64_t asked_us,
                        int64_t now_us);

/**
 * Process a record that was just read, and remove lost nodes from @state, except @self. @dead as
 * above.
 *
 * Returns 0, or MST_ENOMEM with @state unchanged and a part of the observations missing.
 */
int mst__observer_read(struct mst__observer *observer,
                       struct mst__state *state,
                       const struct mst__node *self,
                       const struct mst__settings *settings,
                       const struct mst__reading *reading,
                       struct mst__peers *dead);

/* Note the last call in @state, also one that we are about to set. */
void mst__observer_last_call(struct mst__observer *observer,
                             const struct mst__state *state,
                             int64_t now_mono_us);

/* When the noted last call ends, on the monotonic clock. There must be one. */
int64_t mst__observer_last_call_end_us(const struct mst__observer *observer,
                                       const struct mst__settings *settings);

/* The observations of @node, or NULL. Valid until the next read. */
const struct mst__observed *mst__observer_find(const struct mst__observer *observer,
                                               const struct mst__node *node);

#endif /* MST_CORE_EXPIRE_H */
