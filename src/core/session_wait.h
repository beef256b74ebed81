/* core/session_wait.h - how long a session waits, and for what. Pure. */
#ifndef MST_CORE_SESSION_WAIT_H
#define MST_CORE_SESSION_WAIT_H

#include "base/prng.h"
#include "core/session.h"

/* No hold before a write is longer. */
#define MST_HOLD_US_MAX 2000000

/* How long to hold a write back because others are likely to do the same now, or have just been
 * quicker; 0 = not at all. */
int64_t mst__session_hold_us(const struct mst__session *session,
                             enum mst__action action,
                             struct mst__prng *prng);

/* How long to wait before the first reading, because those with whom this node shall meet are
 * likely to come now, too; 0 = not at all. The hold before the first write and the reading before
 * it are then saved. */
int64_t mst__session_spread_us(const struct mst__session *session,
                               int64_t now_us,
                               struct mst__prng *prng);

/* When the operation runs out of time. A participant does not give up in the middle of a last call:
 * leaving would end it for all others, and nodes whose times are over one after the other would
 * keep each other from ever meeting. The last call adds its own length at most. */
int64_t mst__session_deadline_us(const struct mst__session *session);

/* When to look at the record again if nothing wakes us; after @now_us. All monotonic. */
int64_t mst__session_poll_us(const struct mst__session *session,
                             int64_t now_us,
                             struct mst__prng *prng);

/* How many changes need not wake us: so many more nodes must enter before anything happens that
 * this one waits for. Something unforeseen, such as a closing, is then seen by looking now and
 * then; so this is for a storm, in which each wake-up of everybody costs much, and 0 when it is
 * over. */
int64_t mst__session_skip(const struct mst__session *session, int64_t now_us);

/* How long to wait at most when changes are skipped. */
#define MST_SKIP_US_MAX 1000000

/* The time between two readings in which changes are gathered while a round forms. */
int64_t mst__session_gather_us(const struct mst__session *session);

#endif /* MST_CORE_SESSION_WAIT_H */
