/* core/apply.h - what an action does to the record. Pure. */
#ifndef MST_CORE_APPLY_H
#define MST_CORE_APPLY_H

#include "core/decide.h"

/* How long the peers wait before they look again. */
#define MST_SYNC_DELAY_US 1000000

struct mst__applied {
    bool dirty;             /* the record has to be written */
    int64_t delay_us;       /* wait before the next decision; 0 = none */
    bool restarts_deadline; /* the operation's deadline is now + join_us from here on */
};

/**
 * Carry out @action of @node in @state at @now_us (wall clock).
 *
 * Returns 0; MST_EINVAL when @node or its heartbeat is to be removed and is not there; MST_ENOMEM;
 * MST_ELIMIT when there is no room for another member. On error the record says what it said
 * before.
 */
int mst__apply(struct mst__state *state,
               enum mst__action action,
               const struct mst__node *node,
               const struct mst__settings *settings,
               int64_t now_us,
               struct mst__applied *ret_applied);

/* What follows when participants have been removed: an emptied round makes room for the next one,
 * and a group below the minimum has no last call. */
void mst__apply_epilogue(struct mst__state *state, const struct mst__settings *settings);

#endif /* MST_CORE_APPLY_H */
