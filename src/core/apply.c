/* core/apply.c - actions on the record. Steps that can fail come first, so that an error leaves
 * the record unchanged. */
#include "core/apply.h"

#include <muster/error.h>

#include "base/assert.h"
#include "core/saturate.h"

void mst__apply_epilogue(struct mst__state *state, const struct mst__settings *settings)
{
    if (state->complete) {
        if (state->participants.count == 0) {
            state->complete = false;
            state->round = mst__saturate_add(state->round, 1);
        }
    } else if ((int64_t)state->participants.count < settings->nodes_min) {
        state->has_deadline = false;
        state->deadline_us = 0;
    }
}

static int apply_complete(struct mst__state *state)
{
    int rv = mst__state_assign_ranks(state);
    if (rv == 0) {
        state->complete = true;
        state->has_deadline = false;
        state->deadline_us = 0;
    }
    return rv;
}

static void apply_start_last_call(struct mst__state *state,
                                  const struct mst__settings *settings,
                                  int64_t now_us)
{
    state->has_deadline = true;
    state->deadline_us = mst__saturate_add(now_us, settings->last_call_us);
}

/* Store a heartbeat of @node; add the node if it is missing. */
static int apply_enter(struct mst__state *state,
                       const struct mst__node *node,
                       int64_t now_us,
                       mst__peer_id *ret_id)
{
    int rv = mst__state_obtain(state, node, ret_id);
    return rv != 0 ? rv : mst__state_put_heartbeat(state, *ret_id, now_us);
}

static int apply_add_participant(struct mst__state *state,
                                 const struct mst__node *node,
                                 const struct mst__settings *settings,
                                 int64_t now_us)
{
    mst__peer_id id;
    int rv = mst__state_obtain(state, node, &id);
    if (rv != 0) {
        return rv;
    }
    struct mst__peer before = state->members[id];
    rv = mst__state_put_participant(state, id, 0);
    if (rv == 0) {
        rv = mst__state_put_heartbeat(state, id, now_us);
    }
    int64_t count = (int64_t)state->participants.count;
    if (rv == 0 && count == settings->nodes_max) {
        rv = apply_complete(state);
    } else if (rv == 0 && count == settings->nodes_min) {
        /* A full group has no last call, even if the minimum is the maximum. */
        apply_start_last_call(state, settings, now_us);
    }
    if (rv == 0) {
        (void)mst__state_drop_waiting(state, id); /* if it waited */
        return 0;
    }
    if (!before.is_participant) {
        (void)mst__state_drop_participant(state, id); /* if it was added */
    }
    if (!before.has_heartbeat) {
        (void)mst__state_drop_heartbeat(state, id); /* the same */
    }
    state->members[id].rank = before.rank;
    state->members[id].heartbeat_us = before.heartbeat_us;
    return rv;
}

/* Add @node to the wait list or the redundancy list. */
static int apply_add_waiting(struct mst__state *state,
                             const struct mst__node *node,
                             int64_t now_us,
                             bool is_spare)
{
    mst__peer_id id;
    int rv = mst__state_obtain(state, node, &id);
    if (rv != 0) {
        return rv;
    }
    const struct mst__peer before = state->members[id];
    rv = is_spare ? mst__state_put_spare(state, id) : mst__state_put_waiting(state, id);
    if (rv != 0) {
        return rv;
    }
    rv = mst__state_put_heartbeat(state, id, now_us);
    if (rv != 0) {
        /* Remove only what was added here. */
        if (is_spare && !before.is_spare) {
            (void)mst__state_drop_spare(state, id);
        } else if (!is_spare && !before.is_waiting) {
            (void)mst__state_drop_waiting(state, id);
        }
        return rv;
    }
    if (!is_spare) {
        (void)mst__state_drop_spare(state, id); /* if it was one */
    }
    return 0;
}

/* Remove @node from the list of @action, and its heartbeat. */
static int apply_remove(struct mst__state *state,
                        const struct mst__node *node,
                        const struct mst__settings *settings,
                        enum mst__action action)
{
    mst__peer_id id = mst__state_find(state, node);
    if (id == MST_PEER_NONE || !state->members[id].has_heartbeat) {
        return MST_EINVAL;
    }
    bool was_there = false;
    if (action == MST_ACTION_REMOVE_FROM_PARTICIPANTS) {
        was_there = mst__state_drop_participant(state, id);
        if (was_there) {
            mst__apply_epilogue(state, settings);
        }
    } else if (action == MST_ACTION_REMOVE_FROM_WAIT_LIST) {
        was_there = mst__state_drop_waiting(state, id);
    } else {
        MST_ASSERT(action == MST_ACTION_REMOVE_FROM_REDUNDANCY_LIST);
        was_there = mst__state_drop_spare(state, id);
    }
    if (!was_there) {
        return MST_EINVAL;
    }
    (void)mst__state_drop_heartbeat(state, id); /* it exists */
    return 0;
}

int mst__apply(struct mst__state *state,
               enum mst__action action,
               const struct mst__node *node,
               const struct mst__settings *settings,
               int64_t now_us,
               struct mst__applied *ret_applied)
{
    struct mst__applied applied = {.dirty = mst__action_writes(action)};
    mst__peer_id id;
    int rv = 0;
    switch (action) {
        case MST_ACTION_KEEP_ALIVE:
            rv = apply_enter(state, node, now_us, &id);
            break;
        case MST_ACTION_ADD_TO_PARTICIPANTS:
            rv = apply_add_participant(state, node, settings, now_us);
            break;
        case MST_ACTION_ADD_TO_WAIT_LIST:
            rv = apply_add_waiting(state, node, now_us, false);
            break;
        case MST_ACTION_ADD_TO_REDUNDANCY_LIST:
            rv = apply_add_waiting(state, node, now_us, true);
            break;
        case MST_ACTION_REMOVE_FROM_REDUNDANCY_LIST:
            applied.restarts_deadline = true;
            rv = apply_remove(state, node, settings, action);
            break;
        case MST_ACTION_REMOVE_FROM_PARTICIPANTS:
        case MST_ACTION_REMOVE_FROM_WAIT_LIST:
            rv = apply_remove(state, node, settings, action);
            break;
        case MST_ACTION_MARK_RENDEZVOUS_COMPLETE:
            rv = apply_complete(state);
            break;
        case MST_ACTION_MARK_RENDEZVOUS_CLOSED:
            state->closed = true;
            break;
        case MST_ACTION_START_LAST_CALL:
            apply_start_last_call(state, settings, now_us);
            break;
        case MST_ACTION_SYNC:
            applied.delay_us = MST_SYNC_DELAY_US;
            break;
        case MST_ACTION_FINISH:
        case MST_ACTION_ERROR_CLOSED:
        case MST_ACTION_ERROR_TIMEOUT:
        case MST_ACTION_ERROR_GRACEFUL_EXIT:
        case MST_ACTION_ERROR_NO_DEADLINE:
            break;
    }
    if (rv == 0) {
        *ret_applied = applied;
    }
    return rv;
}
