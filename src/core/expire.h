/* core/expire.h - who in the record is dead, and whether the last call is over.
 *
 * Pure. The peers compare stamps with their own wall clock, so that a wrong clock kills the living
 * and ends the last call early. An observer trusts only its own monotonic clock:
 *
 * - A node is dead when its stamp has not *changed* for longer than interval × attempts while we
 *   were reading. What the stamp says does not matter, so that no clock, however wrong or stepped,
 *   can kill. Only time in which we read regularly counts: when nobody could reach the store,
 *   nobody could beat, and nobody is blamed for it.
 * - A node that does not say in the record that it is muster's may be torch's, whose interval is
 *   five seconds, whatever ours is, unless it was told otherwise, and whose beats come up to three
 *   seconds after it. It is not dead before that, however short the times are.
 * - A stamp that is older than the expiry and clock_skew together makes us suspicious of a node
 *   that we have never seen beat: it gets the time of one beat and not of all attempts. That clears
 *   away sooner what a crashed job left behind. It is not dead at first sight, whatever its stamp
 *   says: it, or we, may have a clock that is off by more, and a living node beats in that time.
 * - The last call ends last_call after we first saw this deadline, and the one that has set it sees
 *   it first. So a fast clock ends nothing early and a slow one delays nothing; a node that has
 *   come in the middle of it waits longer than the others, who are there to end it. The deadline's
 *   own time is not looked at: it would only say how far the clocks are apart.
 *
 * A node whose stamps show a clock far from ours is reported as skewed and not expelled. */
#ifndef MST_CORE_EXPIRE_H
#define MST_CORE_EXPIRE_H

#include "base/map.h"
#include "core/settings.h"
#include "core/state.h"

/* How long a node may be silent: interval × attempts. */
int64_t mst__expire_after_us(const struct mst__settings *settings);

/* How long a node that has beaten may be silent where the silence is measured: a little less, for
 * others are to be told within the time that was configured, and telling takes time, too. Of one
 * that may be torch's (@is_ours is false) a beat may take its interval, which may be torch's five
 * seconds, and three seconds: so much it has in any case. */
int64_t mst__expire_patience_us(const struct mst__settings *settings, bool is_ours);

/**
 * Remove from @state everybody whose stamp is older than that at @now_us (wall clock), as the peers
 * do. @dead is emptied and gets their ids in the order of the heartbeats; its memory is the
 * caller's, to be released with mst__free.
 *
 * Returns 0, or MST_ENOMEM, then @state is unchanged.
 */
int mst__expire_by_stamp(struct mst__state *state,
                         const struct mst__settings *settings,
                         int64_t now_us,
                         struct mst__peers *dead);

/* What an observer knows of one node. */
struct mst__observed {
    int64_t stamp_us;
    int64_t changed_us; /* of the observer's own time */
    bool has_changed;   /* it was seen to beat */
    bool is_skewed;     /* its clock is far from ours */
    int64_t skew_us;    /* by so much at least: above 0 = ahead of us. 0 unless skewed */
    uint64_t read;      /* the last reading that had it */
};

struct mst__observer {
    struct mst__map nodes; /* to struct mst__observed */
    int64_t watched_us;    /* the observer's own time: monotonic, without gaps between readings */
    int64_t read_us;       /* monotonic time of the last reading */
    uint64_t reads;
    int64_t next_us; /* monotonic time when the next node would be dead; INT64_MAX = none */
    size_t skewed_count;
    bool has_deadline;
    int64_t deadline_round; /* the last call that was seen, and since when */
    int64_t deadline_us;
    int64_t deadline_seen_us;
};

void mst__observer_init(struct mst__observer *observer);
void mst__observer_close(struct mst__observer *observer);

/**
 * Take note of a record that was read just now, and remove from @state who is dead, but never
 * @self. @now_us is the wall clock, @now_mono_us the monotonic one. @dead as above.
 *
 * Returns 0, or MST_ENOMEM, then @state is unchanged and the observer knows less than it could.
 */
int mst__observer_read(struct mst__observer *observer,
                       struct mst__state *state,
                       const struct mst__node *self,
                       const struct mst__settings *settings,
                       int64_t now_us,
                       int64_t now_mono_us,
                       struct mst__peers *dead);

/* Take note of the last call in @state, also of one that we are about to set. */
void mst__observer_last_call(struct mst__observer *observer,
                             const struct mst__state *state,
                             int64_t now_mono_us);

/* When the last call that was noted ends, on the monotonic clock. It is over after that. There
 * must be one. */
int64_t mst__observer_last_call_end_us(const struct mst__observer *observer,
                                       const struct mst__settings *settings);

/* What is known of @node, or NULL. Valid until the next reading. */
const struct mst__observed *mst__observer_find(const struct mst__observer *observer,
                                               const struct mst__node *node);

#endif /* MST_CORE_EXPIRE_H */
