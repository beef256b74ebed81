/* vectors/vectors_apply.c - a record and an action: the record afterwards.
 *
 * Where the peers fail with a KeyError over a member or a heartbeat that is not there, and leave
 * the record half changed, ours refuses and leaves it as it was. */
#include <muster/error.h>
#include <string.h>

#include "core/apply.h"
#include "vectors/vectors.h"

static int find_action(const char *name, enum mst__action *ret_action)
{
    for (int action = 0; action <= MST_ACTION_ERROR_NO_DEADLINE; action++) {
        if (name != NULL && strcmp(mst__action_name((enum mst__action)action), name) == 0) {
            *ret_action = (enum mst__action)action;
            return 0;
        }
    }
    return -1;
}

/* What comes with the changed record. */
static int compare_applied(const json_t *line,
                           enum mst__action action,
                           const struct mst__applied *applied,
                           const struct mst__settings *settings,
                           char *why,
                           size_t why_size)
{
    const char *error = vectors_text(line, "error");
    bool is_error = action == MST_ACTION_ERROR_CLOSED || action == MST_ACTION_ERROR_TIMEOUT;
    if (is_error != (error != NULL) ||
        (is_error && strcmp(vectors_action_name((int)action), error) != 0)) {
        return vectors_differ(why, why_size, "error '%s' of %s", error == NULL ? "none" : error,
                              mst__action_name(action));
    }
    if (applied->dirty != vectors_bool(line, "dirty")) {
        return vectors_differ(why, why_size, "dirty is %d", applied->dirty);
    }
    if (applied->delay_us != vectors_int(line, "delay")) {
        return vectors_differ(why, why_size, "delay is %lld", (long long)applied->delay_us);
    }
    const json_t *new_left = json_object_get(line, "new_left");
    if (applied->restarts_deadline != (new_left != NULL) ||
        (new_left != NULL && json_integer_value(new_left) != settings->join_us)) {
        return vectors_differ(why, why_size, "the deadline restarts: %d",
                              applied->restarts_deadline);
    }
    return 0;
}

static int apply_states(const json_t *line,
                        struct mst__state *state,
                        struct mst__state *wanted,
                        char *why,
                        size_t why_size)
{
    const json_t *result = json_object_get(line, "result");
    const char *error = vectors_text(line, "error");
    bool is_refused = error != NULL && strcmp(error, "key_error") == 0;
    bool is_same = json_is_string(result) || is_refused;
    struct mst__settings settings;
    struct mst__node node;
    enum mst__action action;
    if (vectors_read_settings(json_object_get(line, "settings"), &settings, why, why_size) != 0 ||
        vectors_read_state(json_object_get(line, "state"), state, why, why_size) != 0 ||
        vectors_read_state(is_same ? json_object_get(line, "state") : result, wanted, why,
                           why_size) != 0) {
        return -1;
    }
    if (vectors_read_node(json_object_get(line, "node"), &node) != 0 ||
        find_action(vectors_text(line, "action"), &action) != 0) {
        return vectors_differ(why, why_size, "no node or no such action");
    }
    struct mst__applied applied = {.dirty = false};
    int rv = mst__apply(state, action, &node, &settings, vectors_int(line, "now"), &applied);
    if (is_refused) {
        if (rv != MST_EINVAL || applied.dirty) {
            return vectors_differ(why, why_size, "not refused but %d", rv);
        }
    } else if (rv != 0) {
        return vectors_differ(why, why_size, "%s: %s", mst__action_name(action), mst_errname(rv));
    } else if (compare_applied(line, action, &applied, &settings, why, why_size) != 0) {
        return -1;
    }
    return vectors_compare_state(state, wanted, mst__action_name(action), why, why_size);
}

int vectors_apply_line(const json_t *line, char *why, size_t why_size)
{
    struct mst__state state;
    struct mst__state wanted;
    mst__state_init(&state);
    mst__state_init(&wanted);
    int rv = apply_states(line, &state, &wanted, why, why_size);
    mst__state_close(&state);
    mst__state_close(&wanted);
    return rv;
}
