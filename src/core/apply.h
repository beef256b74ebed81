/* core/apply.h - applies an action to the record. Pure. */
#ifndef MST_CORE_APPLY_H
#define MST_CORE_APPLY_H

#include "core/decide.h"

/* How long the peers wait before they read again. */
#define MST_SYNC_DELAY_US 1000000

struct mst__applied {
    bool dirty;             /* the record must be written */
    int64_t delay_us;       /* wait before the next decision; 0 = none */
    bool restarts_deadline; /* the deadline of the operation becomes now + join_us */
};

/**
 * Apply @action of @node to @state at @now_us (wall clock).
 *
 * Returns 0; MST_EINVAL if @node or its heartbeat must be removed and does not exist; MST_ENOMEM;
 * MST_ELIMIT if there is no room for another member. On error the record is unchanged.
 */
int mst__apply(struct mst__state *state,
               enum mst__action action,
               const struct mst__node *node,
               const struct mst__settings *settings,
               int64_t now_us,
               struct mst__applied *ret_applied);

/* Clean up after participants have been removed: an empty round makes room for the next one, and a
 * group below the minimum has no last call. */
void mst__apply_epilogue(struct mst__state *state, const struct mst__settings *settings);

#endif /* MST_CORE_APPLY_H */
