/* vectors/vectors_read.c - parses nodes, settings and states of the lines. */
#include <string.h>

#include "core/decide.h"
#include "vectors/vectors.h"

int64_t vectors_int(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

bool vectors_bool(const json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}

const char *vectors_text(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

const char *vectors_action_name(int action)
{
    switch (action) {
        case MST_ACTION_ERROR_CLOSED:
            return "closed";
        case MST_ACTION_ERROR_TIMEOUT:
            return "timeout";
        case MST_ACTION_ERROR_GRACEFUL_EXIT:
            return "graceful_exit";
        case MST_ACTION_ERROR_NO_DEADLINE:
            return "type_error";
        case MST_ACTION_START_LAST_CALL:
            return NULL; /* the peers do not have it */
        default:
            return mst__action_name((enum mst__action)action);
    }
}

int vectors_read_node(const json_t *json, struct mst__node *ret_node)
{
    const json_t *addr = json_array_get(json, 0);
    const json_t *pid = json_array_get(json, 1);
    const json_t *local_id = json_array_get(json, 2);
    if (!json_is_string(addr) || !json_is_integer(pid) || !json_is_integer(local_id)) {
        return -1;
    }
    *ret_node = (struct mst__node){
        .addr = mst_bytes_of(json_string_value(addr), json_string_length(addr)),
        .pid = json_integer_value(pid),
        .local_id = json_integer_value(local_id),
    };
    return 0;
}

int vectors_read_settings(const json_t *json,
                          struct mst__settings *ret_settings,
                          char *why,
                          size_t why_size)
{
    static const char *const needed[] = {"min", "max", "last_call", "keep_alive_interval",
                                         "keep_alive_max_attempt"};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (!json_is_integer(json_object_get(json, needed[i]))) {
            return vectors_differ(why, why_size, "no settings with '%s'", needed[i]);
        }
    }
    *ret_settings = (struct mst__settings){
        .nodes_min = vectors_int(json, "min"),
        .nodes_max = vectors_int(json, "max"),
        .join_us = vectors_int(json, "join"),
        .last_call_us = vectors_int(json, "last_call"),
        .close_us = vectors_int(json, "close"),
        .heartbeat_us = vectors_int(json, "heartbeat"),
        .keep_alive_interval_us = vectors_int(json, "keep_alive_interval"),
        .keep_alive_max_attempt = vectors_int(json, "keep_alive_max_attempt"),
    };
    return 0;
}

enum list { LIST_PARTICIPANTS, LIST_WAITING, LIST_SPARES, LIST_HEARTBEATS };

/* One of the four lists; a map has pairs of node and value. */
static int read_list(const json_t *json, enum list list, struct mst__state *state)
{
    bool is_map = list == LIST_PARTICIPANTS || list == LIST_HEARTBEATS;
    for (size_t i = 0; i < json_array_size(json); i++) {
        const json_t *item = json_array_get(json, i);
        struct mst__node node;
        mst__peer_id id;
        if (vectors_read_node(is_map ? json_array_get(item, 0) : item, &node) != 0 ||
            mst__state_obtain(state, &node, &id) != 0) {
            return -1;
        }
        int64_t value = is_map ? json_integer_value(json_array_get(item, 1)) : 0;
        int rv = list == LIST_PARTICIPANTS ? mst__state_put_participant(state, id, value)
                 : list == LIST_HEARTBEATS ? mst__state_put_heartbeat(state, id, value)
                 : list == LIST_WAITING    ? mst__state_put_waiting(state, id)
                                           : mst__state_put_spare(state, id);
        if (rv != 0) {
            return -1;
        }
    }
    return 0;
}

int vectors_read_state(const json_t *json, struct mst__state *ret_state, char *why, size_t why_size)
{
    const json_t *spares = json_object_get(json, "redundancy_list");
    const json_t *deadline = json_object_get(json, "deadline");
    ret_state->round = vectors_int(json, "round");
    ret_state->complete = vectors_bool(json, "complete");
    ret_state->closed = vectors_bool(json, "closed");
    ret_state->has_deadline = json_is_integer(deadline);
    ret_state->deadline_us = json_integer_value(deadline);
    ret_state->dialect = spares == NULL ? MST_RECORD_D1 : MST_RECORD_D4;
    if (!json_is_array(json_object_get(json, "participants")) ||
        read_list(json_object_get(json, "participants"), LIST_PARTICIPANTS, ret_state) != 0 ||
        read_list(json_object_get(json, "wait_list"), LIST_WAITING, ret_state) != 0 ||
        read_list(spares, LIST_SPARES, ret_state) != 0 ||
        read_list(json_object_get(json, "last_heartbeats"), LIST_HEARTBEATS, ret_state) != 0) {
        return vectors_differ(why, why_size, "a state that cannot be read");
    }
    return 0;
}

int vectors_compare_state(const struct mst__state *got,
                          const struct mst__state *wanted,
                          const char *what,
                          char *why,
                          size_t why_size)
{
    if (mst__state_equal(got, wanted)) {
        return 0;
    }
    return vectors_differ(
        why, why_size,
        "%s: round %lld/%lld complete %d/%d closed %d/%d deadline %lld/%lld participants %zu/%zu "
        "waiting %zu/%zu spares %zu/%zu heartbeats %zu/%zu (ours/wanted), or their content",
        what, (long long)got->round, (long long)wanted->round, got->complete, wanted->complete,
        got->closed, wanted->closed, got->has_deadline ? (long long)got->deadline_us : -1,
        wanted->has_deadline ? (long long)wanted->deadline_us : -1, got->participants.count,
        wanted->participants.count, got->waiting.count, wanted->waiting.count, got->spares.count,
        wanted->spares.count, got->heartbeats.count, wanted->heartbeats.count);
}
