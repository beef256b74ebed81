/* core/session_result.h - what a session may tell of a round: whether a result is certain, and what
 * has become of the round since. Pure. */
#ifndef MST_CORE_SESSION_RESULT_H
#define MST_CORE_SESSION_RESULT_H

#include "core/session.h"

/**
 * Whether the record certainly shows the complete round, in which this node takes part, as it was
 * when it was completed.
 *
 * The peers tell whatever they happen to read, and who reads after another participant has left is
 * told a smaller world than the others. Participants only ever leave a complete round, so that
 * nobody has left if their number is that of the completion. We know that number when we completed
 * the round, when one of ours did and left its seal, and when the group is as large as it may be.
 * If a peer completed a smaller one, the ranks have no hole, everybody that we saw before is there,
 * nobody waits who might have left, and the last call was over or nearly so. Members that have
 * finished and are gone count as if they were there: the round goes on without them.
 *
 * Returns 0, or MST_ENOMEM.
 */
int mst__session_is_certain(struct mst__session *session, bool *ret_is_certain);

/* How many members the round has, those included that have finished and are gone. */
int64_t mst__session_world(const struct mst__session *session);

#endif /* MST_CORE_SESSION_RESULT_H */
