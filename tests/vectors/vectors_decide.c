/* vectors/vectors_decide.c - a record, a node, a time: the decision. */
#include <string.h>

#include "core/decide.h"
#include "vectors/vectors.h"

static int find_operation(const char *name, enum mst__operation *ret_operation)
{
    static const struct {
        const char *name;
        enum mst__operation operation;
    } operations[] = {
        {"join", MST_OPERATION_JOIN},
        {"exit", MST_OPERATION_EXIT},
        {"close", MST_OPERATION_CLOSE},
        {"keep_alive", MST_OPERATION_KEEP_ALIVE},
    };
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        if (name != NULL && strcmp(operations[i].name, name) == 0) {
            *ret_operation = operations[i].operation;
            return 0;
        }
    }
    return -1;
}

static int decide_state(const json_t *line, struct mst__state *state, char *why, size_t why_size)
{
    struct mst__settings settings;
    struct mst__node node;
    enum mst__operation operation;
    if (vectors_read_settings(json_object_get(line, "settings"), &settings, why, why_size) != 0 ||
        vectors_read_state(json_object_get(line, "state"), state, why, why_size) != 0) {
        return -1;
    }
    if (vectors_read_node(json_object_get(line, "node"), &node) != 0 ||
        find_operation(vectors_text(line, "op"), &operation) != 0) {
        return vectors_differ(why, why_size, "no node or no such operation");
    }
    const char *sem = vectors_text(line, "sem");
    struct mst__question question = {
        .state = state,
        .node = &node,
        .settings = &settings,
        .now_us = vectors_int(line, "now"),
        .left_us = vectors_int(line, "left"),
        .semantics =
            sem != NULL && strcmp(sem, "1.13") == 0 ? MST_SEMANTICS_113 : MST_SEMANTICS_NEWEST,
    };
    const char *got = vectors_action_name((int)mst__decide(&question, operation));
    const char *action = vectors_text(line, "action");
    const char *wanted = action != NULL ? action : vectors_text(line, "error");
    if (wanted == NULL || got == NULL || strcmp(got, wanted) != 0) {
        return vectors_differ(why, why_size, "%s decides %s, wanted %s (row %s)",
                              vectors_text(line, "op"), got == NULL ? "something else" : got,
                              wanted == NULL ? "nothing" : wanted,
                              vectors_text(line, "row") == NULL ? "?" : vectors_text(line, "row"));
    }
    return 0;
}

int vectors_decide_line(const json_t *line, char *why, size_t why_size)
{
    struct mst__state state;
    mst__state_init(&state);
    int rv = decide_state(line, &state, why, why_size);
    mst__state_close(&state);
    return rv;
}
