/* core/session_result.c - certainty of results, and the changes since. */
#include "core/session_result.h"

#include <muster/error.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/mem.h"
#include "core/saturate.h"

/* How early, by our clock, peers may end the last call. */
#define RESULT_EARLY_US_MAX 10000000

/* Time between two polls if nothing wakes us, and if something does. */
#define CHANGES_POLL_US 1000000
#define CHANGES_POLL_US_WATCHING 5000000
/* Each heartbeat is a change: large groups process several of them together. */
#define CHANGES_NODES_FEW 8
#define CHANGES_US_PER_NODE 2000
#define CHANGES_US_MAX 1000000
/* A peer that writes all the time must not make us read all the time. */
#define CHANGES_US_MIN 1000

bool mst__session_misses_members(const struct mst__session *session, const struct mst__state *state)
{
    mst__peer_id self = mst__state_find(state, &session->options.node);
    return session->stage == MST_OPERATION_JOIN && state->complete &&
           state->sealed_round == state->round && state->sealed_count <= MST_MEMBERS_MAX &&
           (int64_t)state->participants.count < state->sealed_count && self != MST_PEER_NONE &&
           state->members[self].is_participant;
}

int64_t mst__session_world(const struct mst__session *session)
{
    MST_ASSERT(session->finished >= 0);
    return (int64_t)session->state.participants.count + session->finished;
}

/* Whether the ranks are 0 to @world - 1, each once. */
static int result_is_dense(const struct mst__state *state, int64_t world, bool *ret_is_dense)
{
    bool *is_taken = mst__calloc(world == 0 ? 1 : (size_t)world, sizeof *is_taken);
    if (is_taken == NULL) {
        return MST_ENOMEM;
    }
    *ret_is_dense = true;
    for (size_t i = 0; i < state->participants.count; i++) {
        int64_t rank = state->members[state->participants.ids[i]].rank;
        if (rank < 0 || rank >= world || is_taken[rank]) {
            *ret_is_dense = false;
            break;
        }
        is_taken[rank] = true;
    }
    mst__free(is_taken);
    return 0;
}

/* Whether all nodes that were seen in this round before its completion are in it. */
static bool result_has_everybody_seen(const struct mst__session *session)
{
    const struct mst__state *state = &session->state;
    const struct mst__state *before = &session->before;
    if (!session->has_before || before->round != state->round) {
        return false;
    }
    for (size_t i = 0; i < before->participants.count; i++) {
        const struct mst__node *node = &before->members[before->participants.ids[i]].node;
        mst__peer_id id = mst__state_find(state, node);
        if (id == MST_PEER_NONE || !state->members[id].is_participant) {
            return false;
        }
    }
    return true;
}

/* Whether the round can have been completed with fewer nodes than the maximum. That requires the
 * end of the last call, which peers judge by their own clocks. Before it, only the node that fills
 * the group completes it, and if fewer are there now, a node has left. Clocks may differ by more
 * than we allow, and then peers always end it too early for us; so we insist only a few times. */
static bool result_could_be_small(const struct mst__session *session)
{
    int64_t grant_us = session->options.settings.last_call_us / 2;
    grant_us = grant_us < RESULT_EARLY_US_MAX ? grant_us : RESULT_EARLY_US_MAX;
    return session->before_left_us <= grant_us;
}

int mst__session_is_certain(struct mst__session *session, bool *ret_is_certain)
{
    const struct mst__state *state = &session->state;
    int64_t count = mst__session_world(session);
    bool is_dense;
    int rv = result_is_dense(state, count, &is_dense);
    if (rv != 0) {
        return rv;
    }
    if (!is_dense || session->participants_read != state->participants.count) {
        *ret_is_certain = false;
    } else if (state->sealed_count > 0 && state->sealed_round == state->round) {
        *ret_is_certain = state->sealed_count == count;
    } else if (session->completed_count > 0 && session->completed_round == state->round) {
        *ret_is_certain = session->completed_count == count;
    } else if (count == session->options.settings.nodes_max) {
        *ret_is_certain = true;
    } else {
        bool is_whole = state->waiting.count == 0 && result_has_everybody_seen(session);
        bool is_early = is_whole && !result_could_be_small(session);
        bool insists = is_early && session->insisted < MST_SESSION_INSIST_MAX;
        session->insisted += insists ? 1 : 0;
        *ret_is_certain = is_whole && !insists;
    }
    return 0;
}

static int changes_lost(const struct mst__session *session, struct mst__peers *lost)
{
    const struct mst__state *state = &session->state;
    const struct mst__state *joined = &session->joined;
    if (lost->capacity < joined->participants.count) {
        mst__peer_id *ids = mst__realloc(lost->ids, joined->participants.count * sizeof *ids);
        if (ids == NULL) {
            return MST_ENOMEM;
        }
        lost->ids = ids;
        lost->capacity = joined->participants.count;
    }
    for (size_t i = 0; i < joined->participants.count; i++) {
        mst__peer_id id = joined->participants.ids[i];
        const struct mst__node *node = &joined->members[id].node;
        if (mst__node_compare(node, &session->options.node) == 0) {
            continue;
        }
        /* A node that left to wait for the next round is not lost; it counts as waiting. */
        mst__peer_id now = mst__state_find(state, node);
        MST_ASSERT(lost->count < lost->capacity);
        if (now == MST_PEER_NONE ||
            !(state->members[now].is_participant || state->members[now].is_waiting ||
              state->members[now].is_spare)) {
            lost->ids[lost->count++] = id;
        }
    }
    return 0;
}

int mst__session_changes(const struct mst__session *session,
                         struct mst__peers *lost,
                         struct mst__changes *ret_changes)
{
    const struct mst__state *state = &session->state;
    struct mst__changes changes = {.beat_us = INT64_MAX};
    lost->count = 0;
    changes.is_known = session->is_known;
    int64_t poll_us = session->options.can_watch ? CHANGES_POLL_US_WATCHING : CHANGES_POLL_US;
    changes.poll_us = mst__saturate_add(session->synced_us, poll_us);
    changes.poll_us_min = session->synced_us;
    if (!session->is_known) {
        *ret_changes = changes;
        return 0;
    }
    if (session->observer.next_us < changes.poll_us) {
        changes.poll_us = session->observer.next_us;
    }
    int64_t nodes = (int64_t)state->heartbeats.count;
    int64_t gather_us = nodes > CHANGES_NODES_FEW ? nodes * CHANGES_US_PER_NODE : CHANGES_US_MIN;
    changes.poll_us_min += gather_us < CHANGES_US_MAX ? gather_us : CHANGES_US_MAX;
    mst__peer_id self = mst__state_find(state, &session->options.node);
    if (self != MST_PEER_NONE && state->members[self].has_heartbeat && session->has_beat) {
        changes.beat_us =
            mst__saturate_add(session->beat_us, session->options.settings.keep_alive_interval_us);
    }
    changes.closed = state->closed;
    if ((int64_t)state->participants.count < session->options.settings.nodes_max) {
        changes.waiting_count = state->waiting.count;
    }
    if (session->has_joined) {
        bool is_same = state->round == session->joined.round && state->complete;
        changes.expelled =
            !is_same || self == MST_PEER_NONE || !state->members[self].is_participant;
        int rv = is_same ? changes_lost(session, lost) : 0;
        if (rv != 0) {
            return rv;
        }
        changes.lost_count = lost->count;
    }
    *ret_changes = changes;
    return 0;
}
