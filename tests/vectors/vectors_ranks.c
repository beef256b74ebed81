/* vectors/vectors_ranks.c - participants in the order they came: their ranks. */
#include "vectors/vectors.h"

static int ranks_state(const json_t *line, struct mst__state *state, char *why, size_t why_size)
{
    const json_t *nodes = json_object_get(line, "nodes");
    const json_t *ranks = json_object_get(line, "ranks");
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        struct mst__node node;
        mst__peer_id id;
        if (vectors_read_node(json_array_get(nodes, i), &node) != 0 ||
            mst__state_obtain(state, &node, &id) != 0 ||
            mst__state_put_participant(state, id, 0) != 0) {
            return vectors_differ(why, why_size, "node %zu cannot be read", i);
        }
    }
    if (json_array_size(ranks) != state->participants.count) {
        return vectors_differ(why, why_size, "%zu ranks for %zu nodes", json_array_size(ranks),
                              state->participants.count);
    }
    if (mst__state_assign_ranks(state) != 0) {
        return vectors_differ(why, why_size, "out of memory");
    }
    for (size_t i = 0; i < state->participants.count; i++) {
        int64_t got = state->members[state->participants.ids[i]].rank;
        int64_t wanted = json_integer_value(json_array_get(ranks, i));
        if (got != wanted) {
            return vectors_differ(why, why_size, "node %zu has rank %lld, wanted %lld", i,
                                  (long long)got, (long long)wanted);
        }
    }
    return 0;
}

int vectors_ranks_line(const json_t *line, char *why, size_t why_size)
{
    struct mst__state state;
    mst__state_init(&state);
    int rv = ranks_state(line, &state, why, why_size);
    mst__state_close(&state);
    return rv;
}
