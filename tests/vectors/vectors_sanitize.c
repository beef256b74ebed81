/* vectors/vectors_sanitize.c - a record and a time: the record without lost nodes. */
#include "base/mem.h"
#include "core/expire.h"
#include "vectors/vectors.h"

static int sanitize_states(const json_t *line,
                           struct mst__state *state,
                           struct mst__state *wanted,
                           struct mst__peers *dead,
                           char *why,
                           size_t why_size)
{
    const json_t *result = json_object_get(line, "result");
    struct mst__settings settings;
    if (vectors_read_settings(json_object_get(line, "settings"), &settings, why, why_size) != 0 ||
        vectors_read_state(json_object_get(line, "state"), state, why, why_size) != 0 ||
        vectors_read_state(json_is_string(result) ? json_object_get(line, "state") : result, wanted,
                           why, why_size) != 0) {
        return -1;
    }
    if (mst__expire_by_stamp(state, &settings, vectors_int(line, "now"), dead) != 0) {
        return vectors_differ(why, why_size, "out of memory");
    }
    const json_t *dead_wanted = json_object_get(line, "dead");
    if (dead->count != json_array_size(dead_wanted)) {
        return vectors_differ(why, why_size, "%zu are dead, wanted %zu", dead->count,
                              json_array_size(dead_wanted));
    }
    for (size_t i = 0; i < dead->count; i++) {
        struct mst__node node;
        if (vectors_read_node(json_array_get(dead_wanted, i), &node) != 0 ||
            mst__node_compare(&state->members[dead->ids[i]].node, &node) != 0) {
            return vectors_differ(why, why_size, "dead number %zu is another one", i);
        }
    }
    return vectors_compare_state(state, wanted, "sanitized", why, why_size);
}

int vectors_sanitize_line(const json_t *line, char *why, size_t why_size)
{
    struct mst__state state;
    struct mst__state wanted;
    struct mst__peers dead = {NULL, 0, 0};
    mst__state_init(&state);
    mst__state_init(&wanted);
    int rv = sanitize_states(line, &state, &wanted, &dead, why, why_size);
    mst__state_close(&state);
    mst__state_close(&wanted);
    mst__free(dead.ids);
    return rv;
}
