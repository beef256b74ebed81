/* vectors/vectors_sequence.c - whole histories of several nodes on one record, step by step.
 *
 * Each node is a session in the exact mode. A step of a history is sync, decide, act: the
 * store's answer to the last effect of the session, or the beginning of an operation, or the end
 * of a wait. Afterwards the decision and the session's copy of the record must be those of the
 * line. */
#include <stdlib.h>
#include <string.h>

#include "core/session.h"
#include "vectors/vectors.h"

#define NODES_MAX 64
#define VERSIONS_MAX 4000

/* The store: every content it ever had, numbered from 1. */
struct store {
    struct mst__state *versions;
    size_t count;
    size_t current; /* 0 = there is no record */
    bool is_value;  /* tokens stand for the content, not for the number of the write */
};

struct node {
    struct mst__node name;
    struct mst__session session;
    struct mst__effect effect; /* the last one */
    bool has_begun;            /* the effect is one */
    size_t version;            /* the version of its copy; 0 = none */
    int64_t skew_us;
    bool has_result;
    struct mst__outcome result; /* of its last join */
};

struct history {
    const json_t *line;
    struct store store;
    struct node nodes[NODES_MAX];
    size_t nodes_count;
    int64_t t0_us;
    char *why;
    size_t why_size;
};

/* The use of the store in a step. */
struct access {
    const char *sync; /* cached, read, write */
    bool has_won;
    bool was_absent;
    size_t stored; /* the version it wrote; 0 = none */
    bool has_failed;
};

/* --- the store --- */

static bool store_matches(const struct store *store, size_t version)
{
    if (store->is_value) {
        return mst__state_equal(&store->versions[version], &store->versions[store->current]);
    }
    return version == store->current;
}

/* Whether it was replaced. */
static bool store_write(struct store *store,
                        const struct mst__state *state,
                        bool has_token,
                        size_t version)
{
    bool may_write =
        has_token ? store->current != 0 && store_matches(store, version) : store->current == 0;
    if (!may_write || store->count + 1 >= VERSIONS_MAX) {
        return false;
    }
    store->count++;
    mst__state_init(&store->versions[store->count]);
    if (mst__state_copy(&store->versions[store->count], state) != 0) {
        abort();
    }
    store->current = store->count;
    return true;
}

static size_t token_version(struct mst_bytes token)
{
    size_t version = 0;
    if (token.size == sizeof version) {
        memcpy(&version, token.data, sizeof version);
    }
    return version;
}

static struct mst_buffer make_token(size_t version)
{
    struct mst_buffer token = {malloc(sizeof version + 1), sizeof version};
    if (token.data == NULL) {
        abort();
    }
    memcpy(token.data, &version, sizeof version);
    token.data[token.size] = 0;
    return token;
}

/* --- one step of a node --- */

static int node_feed(struct history *history,
                     struct node *node,
                     int64_t t_us,
                     const struct mst__session_event *event)
{
    int rv = mst__session_step(&node->session, event, history->t0_us + t_us + node->skew_us, t_us,
                               0, &node->effect);
    node->has_begun = true;
    return rv == 0 ? 0
                   : vectors_differ(history->why, history->why_size, "t=%lld: the step returns %d",
                                    (long long)t_us, rv);
}

/* Feed the current content, with the matching event. */
static int node_feed_current(struct history *history,
                             struct node *node,
                             int64_t t_us,
                             enum mst__event_kind kind)
{
    struct mst__state state;
    mst__state_init(&state);
    if (kind != MST_EVENT_WON &&
        mst__state_copy(&state, &history->store.versions[history->store.current]) != 0) {
        abort();
    }
    struct mst_buffer token = make_token(history->store.current);
    node->version = history->store.current;
    struct mst__session_event event = {
        .kind = kind,
        .state = kind == MST_EVENT_WON ? NULL : &state,
        .token = &token,
    };
    return node_feed(history, node, t_us, &event);
}

static int node_read(struct history *history,
                     struct node *node,
                     int64_t t_us,
                     const char *fault,
                     struct access *access)
{
    access->sync = "read";
    if (fault != NULL) {
        access->has_failed = true;
        return node_feed(history, node, t_us,
                         &(struct mst__session_event){.kind = MST_EVENT_FAILED});
    }
    if (history->store.current == 0) {
        node->version = 0;
        return node_feed(history, node, t_us,
                         &(struct mst__session_event){.kind = MST_EVENT_READ_NONE});
    }
    return node_feed_current(history, node, t_us, MST_EVENT_READ);
}

static int node_write(struct history *history,
                      struct node *node,
                      int64_t t_us,
                      const char *fault,
                      struct access *access)
{
    struct store *store = &history->store;
    const struct mst__state *state = node->effect.state;
    bool is_replaced = false;
    access->sync = "write";
    if (fault == NULL || strcmp(fault, "set_applied") == 0) {
        is_replaced =
            store_write(store, state, node->effect.has_token, token_version(node->effect.token));
        access->stored = is_replaced ? store->current : 0;
    }
    if (fault != NULL) {
        access->has_failed = true;
        return node_feed(history, node, t_us,
                         &(struct mst__session_event){.kind = MST_EVENT_FAILED});
    }
    if (store->current == 0) {
        access->was_absent = true;
        node->version = 0;
        return node_feed(history, node, t_us,
                         &(struct mst__session_event){.kind = MST_EVENT_ABSENT});
    }
    access->has_won = is_replaced || (store->is_value &&
                                      mst__state_equal(&store->versions[store->current], state));
    return node_feed_current(history, node, t_us, access->has_won ? MST_EVENT_WON : MST_EVENT_LOST);
}

static enum mst__operation find_operation(const char *name)
{
    return strcmp(name, "exit") == 0         ? MST_OPERATION_EXIT
           : strcmp(name, "join") == 0       ? MST_OPERATION_JOIN
           : strcmp(name, "close") == 0      ? MST_OPERATION_CLOSE
           : strcmp(name, "keep_alive") == 0 ? MST_OPERATION_KEEP_ALIVE
                                             : MST_OPERATION_POLL;
}

/* Bring the session to its next decision. */
static int node_sync(struct history *history,
                     struct node *node,
                     const json_t *step,
                     struct access *access)
{
    int64_t t_us = vectors_int(step, "t");
    enum mst__operation operation = find_operation(vectors_text(step, "op"));
    access->sync = "cached";
    int rv = 0;
    if (node->session.phase == MST_SESSION_IDLE) {
        struct mst__session_event event = {
            .kind = MST_EVENT_BEGIN,
            .operation = operation,
            .deadline_us = t_us + vectors_int(step, "left"),
        };
        rv = node_feed(history, node, t_us, &event);
    } else if (node->session.phase == MST_SESSION_WAITING) {
        if (t_us < node->effect.until_us) {
            return vectors_differ(history->why, history->why_size,
                                  "t=%lld: the session waits until %lld", (long long)t_us,
                                  (long long)node->effect.until_us);
        }
        rv = node_feed(history, node, t_us, &(struct mst__session_event){.kind = MST_EVENT_TIME});
    }
    if (rv != 0) {
        return rv;
    }
    if (node->session.operation != operation) {
        return vectors_differ(history->why, history->why_size, "t=%lld: another operation goes on",
                              (long long)t_us);
    }
    const char *fault = vectors_text(step, "fault");
    bool is_write = strcmp(vectors_text(step, "sync"), "write") == 0;
    if (node->session.phase == MST_SESSION_READING) {
        rv = node_read(history, node, t_us, fault, access);
    } else if (node->session.phase == MST_SESSION_WRITING && is_write) {
        /* A write that was decided in this step belongs to the next one. */
        rv = node_write(history, node, t_us, fault, access);
    }
    return rv;
}

/* --- comparing --- */

static int compare_access(struct history *history,
                          const struct node *node,
                          const json_t *step,
                          const struct access *access)
{
    const json_t *won = json_object_get(step, "won");
    if (strcmp(access->sync, vectors_text(step, "sync")) != 0) {
        return vectors_differ(history->why, history->why_size, "sync is %s, wanted %s",
                              access->sync, vectors_text(step, "sync"));
    }
    if (won != NULL &&
        (json_is_null(won) ? !access->was_absent : access->has_won != json_is_true(won))) {
        return vectors_differ(history->why, history->why_size, "won is %d", access->has_won);
    }
    if (vectors_int(step, "ver") != (int64_t)node->version) {
        return vectors_differ(history->why, history->why_size, "based on %zu, wanted %lld",
                              node->version, (long long)vectors_int(step, "ver"));
    }
    const json_t *stored = json_object_get(step, "stored");
    if ((stored != NULL) != (access->stored != 0)) {
        return vectors_differ(history->why, history->why_size, "stored %zu", access->stored);
    }
    if (stored == NULL) {
        return 0;
    }
    struct mst__state wanted;
    mst__state_init(&wanted);
    int rv = vectors_read_state(stored, &wanted, history->why, history->why_size);
    if (rv == 0) {
        rv = vectors_compare_state(&history->store.versions[access->stored], &wanted, "stored",
                                   history->why, history->why_size);
    }
    mst__state_close(&wanted);
    return rv;
}

static int compare_dead(struct history *history, const struct node *node, const json_t *step)
{
    const json_t *dead = json_object_get(step, "dead");
    const struct mst__session *session = &node->session;
    if (session->dead.count != json_array_size(dead)) {
        return vectors_differ(history->why, history->why_size, "%zu are dead, wanted %zu",
                              session->dead.count, json_array_size(dead));
    }
    for (size_t i = 0; i < session->dead.count; i++) {
        size_t index = (size_t)json_integer_value(json_array_get(dead, i));
        if (index >= history->nodes_count ||
            mst__node_compare(&session->state.members[session->dead.ids[i]].node,
                              &history->nodes[index].name) != 0) {
            return vectors_differ(history->why, history->why_size, "dead number %zu differs", i);
        }
    }
    return 0;
}

static const char *result_name(enum mst__result result)
{
    static const char *const names[] = {"ok",         "closed", "timeout",  "graceful_exit",
                                        "connection", "state",  "cancelled"};
    return names[result];
}

static int compare_decision(struct history *history, const struct node *node, const json_t *step)
{
    const struct mst__session *session = &node->session;
    const char *action = vectors_text(step, "action");
    const char *error = vectors_text(step, "error");
    if (error != NULL) {
        if (node->effect.kind != MST_EFFECT_DONE ||
            strcmp(result_name(node->effect.outcome.result), error) != 0) {
            return vectors_differ(history->why, history->why_size, "no error %s", error);
        }
    } else if (action != NULL) {
        const char *got = vectors_action_name((int)session->action);
        bool is_end = node->effect.kind == MST_EFFECT_DONE;
        if (got == NULL || strcmp(got, action) != 0 || is_end != (strcmp(action, "FINISH") == 0)) {
            return vectors_differ(history->why, history->why_size, "decides %s, wanted %s",
                                  got == NULL ? "?" : got, action);
        }
    } else if ((int64_t)session->state.waiting.count != vectors_int(step, "waiting") ||
               session->state.closed != vectors_bool(step, "closed")) {
        return vectors_differ(history->why, history->why_size, "poll tells another thing");
    }
    return 0;
}

static int compare_copy(struct history *history, const struct node *node, const json_t *step)
{
    const struct mst__session *session = &node->session;
    const struct mst__state *state = &session->state;
    const size_t sizes[] = {state->participants.count, state->waiting.count, state->spares.count,
                            state->heartbeats.count};
    const json_t *wanted = json_object_get(step, "sizes");
    for (size_t i = 0; i < 4; i++) {
        if ((int64_t)sizes[i] != json_integer_value(json_array_get(wanted, i))) {
            return vectors_differ(history->why, history->why_size, "size %zu is %zu", i, sizes[i]);
        }
    }
    if (session->is_dirty != vectors_bool(step, "dirty") ||
        state->round != vectors_int(step, "round")) {
        return vectors_differ(history->why, history->why_size, "dirty is %d, round %lld",
                              session->is_dirty, (long long)state->round);
    }
    return 0;
}

static int run_step(struct history *history, const json_t *step)
{
    if (vectors_text(step, "event") != NULL) {
        history->store.current = 0; /* the only event there is: the record is wiped */
        return 0;
    }
    size_t index = (size_t)vectors_int(step, "n");
    if (index >= history->nodes_count || vectors_text(step, "op") == NULL ||
        vectors_text(step, "sync") == NULL) {
        return vectors_differ(history->why, history->why_size, "a step without node or operation");
    }
    struct node *node = &history->nodes[index];
    /* The base of the time left. A decision of this step may move the session's own. */
    bool goes_on = node->session.phase != MST_SESSION_IDLE;
    int64_t deadline_us = node->session.deadline_us;
    struct access access = {.sync = NULL};
    if (node_sync(history, node, step, &access) != 0) {
        return -1;
    }
    if (goes_on && json_object_get(step, "left") != NULL &&
        deadline_us - vectors_int(step, "t") != vectors_int(step, "left")) {
        return vectors_differ(history->why, history->why_size, "left is %lld",
                              (long long)(deadline_us - vectors_int(step, "t")));
    }
    if (node->effect.kind == MST_EFFECT_DONE && node->session.operation == MST_OPERATION_JOIN) {
        node->has_result = true;
        node->result = node->effect.outcome;
    }
    bool has_sanitized = !access.has_failed && access.sync[0] != 'c';
    if (compare_access(history, node, step, &access) != 0 ||
        (has_sanitized && compare_dead(history, node, step) != 0) ||
        compare_decision(history, node, step) != 0 || compare_copy(history, node, step) != 0) {
        return -1;
    }
    return 0;
}

/* The result of each node's last join, and the record at the end. */
static int compare_end(struct history *history)
{
    const json_t *final = json_object_get(history->line, "final");
    for (size_t i = 0; i < json_array_size(final); i++) {
        const json_t *wanted = json_array_get(final, i);
        const struct node *node = &history->nodes[vectors_int(wanted, "n")];
        const struct mst__outcome *got = &node->result;
        if (strcmp(vectors_text(wanted, "result"), "ok") == 0 &&
            (!node->has_result || got->result != MST_RESULT_OK ||
             got->rank != vectors_int(wanted, "rank") ||
             got->world != vectors_int(wanted, "world") ||
             got->round != vectors_int(wanted, "round"))) {
            return vectors_differ(history->why, history->why_size,
                                  "node %zu ends with rank %lld of %lld in round %lld", i,
                                  (long long)got->rank, (long long)got->world,
                                  (long long)got->round);
        }
    }
    const json_t *final_state = json_object_get(history->line, "final_state");
    if (json_is_null(final_state) != (history->store.current == 0)) {
        return vectors_differ(history->why, history->why_size, "the record at the end");
    }
    if (history->store.current == 0) {
        return 0;
    }
    struct mst__state wanted;
    mst__state_init(&wanted);
    int rv = vectors_read_state(final_state, &wanted, history->why, history->why_size);
    if (rv == 0) {
        rv = vectors_compare_state(&history->store.versions[history->store.current], &wanted,
                                   "the record at the end", history->why, history->why_size);
    }
    mst__state_close(&wanted);
    return rv;
}

/* --- a history --- */

static int open_nodes(struct history *history)
{
    const json_t *nodes = json_object_get(history->line, "nodes");
    const json_t *skews = json_object_get(history->line, "skew");
    const json_t *settings = json_object_get(history->line, "settings");
    if (json_array_size(nodes) > NODES_MAX) {
        return vectors_differ(history->why, history->why_size, "too many nodes");
    }
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        struct node *node = &history->nodes[i];
        struct mst__session_options options = {
            .mode = MST_SESSION_EXACT,
            .dialect = MST_RECORD_D4,
        };
        const json_t *own = json_is_array(settings) ? json_array_get(settings, i) : settings;
        if (vectors_read_node(json_array_get(nodes, i), &options.node) != 0 ||
            vectors_read_settings(own, &options.settings, history->why, history->why_size) != 0) {
            return vectors_differ(history->why, history->why_size, "node %zu or its settings", i);
        }
        node->name = options.node;
        node->skew_us = json_integer_value(json_array_get(skews, i));
        if (mst__session_init(&node->session, &options) != 0) {
            abort();
        }
        history->nodes_count++;
    }
    return 0;
}

static int run_history(struct history *history)
{
    if (open_nodes(history) != 0) {
        return -1;
    }
    const json_t *steps = json_object_get(history->line, "steps");
    for (size_t i = 0; i < json_array_size(steps); i++) {
        if (run_step(history, json_array_get(steps, i)) != 0) {
            char reason[500];
            (void)snprintf(reason, sizeof reason, "%s", history->why);
            return vectors_differ(history->why, history->why_size, "step %zu: %s", i, reason);
        }
    }
    return compare_end(history);
}

int vectors_sequence_line(const json_t *line, char *why, size_t why_size)
{
    struct history *history = calloc(1, sizeof *history);
    struct mst__state *versions = calloc(VERSIONS_MAX, sizeof *versions);
    if (history == NULL || versions == NULL) {
        abort();
    }
    const char *cas = vectors_text(line, "cas");
    history->line = line;
    history->t0_us = vectors_int(line, "t0");
    history->why = why;
    history->why_size = why_size;
    history->store.versions = versions;
    history->store.is_value = cas != NULL && strcmp(cas, "value") == 0;
    int rv = run_history(history);
    for (size_t i = 0; i < history->nodes_count; i++) {
        mst__session_close(&history->nodes[i].session);
    }
    for (size_t i = 1; i <= history->store.count; i++) {
        mst__state_close(&versions[i]);
    }
    free(versions);
    free(history);
    return rv;
}
