/* core/session_wait.h - how long a session waits, and for what. Pure. */
#ifndef MST_CORE_SESSION_WAIT_H
#define MST_CORE_SESSION_WAIT_H

#include "base/prng.h"
#include "core/session.h"

/* The longest hold before a write. */
#define MST_HOLD_US_MAX 2000000

/* How long to delay a write because others are likely to write now as well, or were just faster; 0
 * = not at all. */
int64_t mst__session_hold_us(const struct mst__session *session,
                             enum mst__action action,
                             struct mst__prng *prng);

/* How long to wait before the first read because the nodes of the group are likely to come now as
 * well; 0 = not at all. That saves the hold before the first write and the read before it. */
int64_t mst__session_spread_us(const struct mst__session *session,
                               int64_t now_us,
                               struct mst__prng *prng);

/* When the time of the operation is over. A participant does not give up in the middle of a last
 * call: leaving would end it for all others, and nodes that time out one after the other would
 * never meet. The last call adds at most its own length. */
int64_t mst__session_deadline_us(const struct mst__session *session);

/* When to read the record again if nothing wakes us; after @now_us. All monotonic. */
int64_t mst__session_poll_us(const struct mst__session *session,
                             int64_t now_us,
                             struct mst__prng *prng);

/* How many changes need not wake us: this many nodes must enter before the awaited event can
 * happen. Unforeseen events, such as a close, are then found by polling; so this is for a storm, in
 * which waking all nodes is expensive, and 0 when it is over. */
int64_t mst__session_skip(const struct mst__session *session, int64_t now_us);

/* The longest wait while changes are skipped. */
#define MST_SKIP_US_MAX 1000000

/* The time between two reads in which changes are collected while a round forms. */
int64_t mst__session_gather_us(const struct mst__session *session);

#endif /* MST_CORE_SESSION_WAIT_H */
