/* core/session_result.h - whether a session's result is certain, and what has become of its round.
 * Pure. */
#ifndef MST_CORE_SESSION_RESULT_H
#define MST_CORE_SESSION_RESULT_H

#include "core/session.h"

/**
 * Whether the record certainly shows the complete round of this node as it was completed.
 *
 * The peers report what they happen to read; a peer that reads after another participant has left
 * reports a smaller world than the others. Participants only leave a complete round, so none has
 * left if their number is that of the completion. We know that number if we completed the round, if
 * one of ours did and left its seal, and if the group has its maximum size. If a peer completed a
 * smaller one: the ranks have no gap, all nodes that we saw before are there, no node waits that
 * might have left, and the last call was over or nearly so. Members that have finished and are gone
 * count as present: the round goes on without them.
 *
 * Returns 0, or MST_ENOMEM.
 */
int mst__session_is_certain(struct mst__session *session, bool *ret_is_certain);

/* The number of members of the round, including those that have finished and are gone. */
int64_t mst__session_world(const struct mst__session *session);

#endif /* MST_CORE_SESSION_RESULT_H */
