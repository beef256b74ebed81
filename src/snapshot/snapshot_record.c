/* snapshot/snapshot_record.c - a snapshot of a job from its record.
 *
 * Ages compare our wall clock with those of the nodes, so wrong clocks are visible. */
#include <inttypes.h>

#include "base/limits.h"
#include "base/text.h"
#include "core/expire.h"
#include "snapshot/snapshot.h"

#define NAME_SIZE 320 /* of a node, as shown */
#define SUMMARY_SIZE_MAX MST_KIB(4)

/* A summary that is being written. */
struct telling {
    const struct mst__state *state;
    const struct mst__settings *settings;
    int64_t now_us;
    struct mst__buf text;
    int rv;
};

static double seconds(int64_t us)
{
    return (double)us / 1e6;
}

static void tell_complete(struct telling *telling)
{
    const struct mst__state *state = telling->state;
    size_t count = state->participants.count;
    size_t waiting = state->waiting.count;
    if (waiting > 0) {
        mst__text_put(&telling->text, &telling->rv,
                      "%zu node%s %s waiting for the %zu participant%s of round %" PRId64
                      " to leave; then round %" PRId64 " begins.",
                      waiting, mst__text_plural(waiting), waiting == 1 ? "is" : "are", count,
                      mst__text_plural(count), state->round, state->round + 1);
    } else {
        mst__text_put(&telling->text, &telling->rv,
                      "Round %" PRId64 " is running with %zu node%s and waiting for nobody.",
                      state->round, count, mst__text_plural(count));
    }
}

/* The round has its minimum and waits for more for a while. */
static void tell_last_call(struct telling *telling)
{
    const struct mst__state *state = telling->state;
    size_t count = state->participants.count;
    int64_t nodes_max = telling->settings->nodes_max;
    int64_t left_us = state->deadline_us - telling->now_us;
    if (left_us < 0) {
        mst__text_put(
            &telling->text, &telling->rv,
            "The last call of round %" PRId64
            " ended %.1f s ago; it is waiting for one of its %zu participant%s to complete it.",
            state->round, seconds(-left_us), count, mst__text_plural(count));
    } else if (nodes_max > (int64_t)count) {
        int64_t more = nodes_max - (int64_t)count;
        mst__text_put(&telling->text, &telling->rv,
                      "Round %" PRId64 " is waiting for up to %" PRId64
                      " more node%s (%zu of max %" PRId64 ") until the last call ends in %.1f s.",
                      state->round, more, mst__text_plural((uint64_t)more), count, nodes_max,
                      seconds(left_us));
    } else {
        mst__text_put(&telling->text, &telling->rv,
                      "Round %" PRId64 " has the nodes that it needs (%zu) and is waiting for more "
                      "until the last call ends in %.1f s.",
                      state->round, count, seconds(left_us));
    }
}

static void tell_open(struct telling *telling)
{
    const struct mst__state *state = telling->state;
    size_t count = state->participants.count;
    int64_t nodes_min = telling->settings->nodes_min;
    if (state->has_deadline) {
        tell_last_call(telling);
    } else if (nodes_min > (int64_t)count) {
        int64_t more = nodes_min - (int64_t)count;
        mst__text_put(&telling->text, &telling->rv,
                      "Round %" PRId64 " is waiting for %" PRId64
                      " more node%s (%zu of min %" PRId64 ").",
                      state->round, more, mst__text_plural((uint64_t)more), count, nodes_min);
    } else if (count == 0) {
        mst__text_put(&telling->text, &telling->rv,
                      "Round %" PRId64 " is waiting for the first node.", state->round);
    } else if (nodes_min > 0) {
        mst__text_put(&telling->text, &telling->rv,
                      "Round %" PRId64 " is waiting for one of its %zu participant%s to begin the "
                      "last call.",
                      state->round, count, mst__text_plural(count));
    } else {
        mst__text_put(&telling->text, &telling->rv,
                      "Round %" PRId64 " is waiting for more nodes: %zu %s there, fewer than the "
                      "minimum.",
                      state->round, count, count == 1 ? "is" : "are");
    }
}

/* The number of nodes that have been silent for too long. */
static size_t count_silent(const struct telling *telling)
{
    const struct mst__state *state = telling->state;
    int64_t expiry_us = mst__expire_after_us(telling->settings);
    size_t count = 0;
    for (size_t i = 0; i < state->participants.count; i++) {
        const struct mst__peer *member = &state->members[state->participants.ids[i]];
        if (!member->has_heartbeat || telling->now_us - member->heartbeat_us > expiry_us) {
            count++;
        }
    }
    return count;
}

static void tell(struct telling *telling)
{
    const struct mst__state *state = telling->state;
    if (state->closed) {
        mst__text_put(&telling->text, &telling->rv,
                      "The rendezvous is closed: nobody can join it any more.");
        return;
    }
    if (state->complete) {
        tell_complete(telling);
    } else {
        tell_open(telling);
    }
    size_t silent = count_silent(telling);
    if (silent > 0) {
        mst__text_put(&telling->text, &telling->rv,
                      " %zu participant%s %s been silent for more than %.0f s.", silent,
                      mst__text_plural(silent), silent == 1 ? "has" : "have",
                      seconds(mst__expire_after_us(telling->settings)));
    }
    size_t spares = state->spares.count;
    if (spares > 0) {
        mst__text_put(&telling->text, &telling->rv, " %zu spare%s by.", spares,
                      spares == 1 ? " stands" : "s stand");
    }
}

static void take_members(struct mst__snapshot *snapshot,
                         const struct telling *telling,
                         const struct mst__peers *peers,
                         enum mst__snapshot_list list,
                         enum mst_status_standing standing)
{
    const struct mst__state *state = telling->state;
    for (size_t i = 0; i < peers->count; i++) {
        const struct mst__peer *member = &state->members[peers->ids[i]];
        struct mst_status_node *node = mst__snapshot_add(snapshot, list);
        if (node == NULL) {
            return;
        }
        char name[NAME_SIZE];
        mst__node_format(&member->node, name, sizeof name);
        node->name = mst__snapshot_text(snapshot, mst_bytes_str(name));
        node->address = mst__snapshot_text(snapshot, member->node.addr);
        node->standing = standing;
        node->pid = member->node.pid;
        node->local_id = member->node.local_id;
        node->rank = standing == MST_STATUS_NODE_MEMBER ? member->rank : -1;
        node->has_heard = member->has_heartbeat;
        if (member->has_heartbeat) {
            int64_t silent_us = telling->now_us - member->heartbeat_us;
            node->heard_ms = silent_us / 1000;
            node->is_late =
                mst__snapshot_is_late(silent_us, telling->settings->keep_alive_interval_us);
        }
    }
}

static void take_state(struct mst__snapshot *snapshot, const struct telling *telling)
{
    const struct mst__state *state = telling->state;
    struct mst_status *status = &snapshot->status;
    size_t count = state->participants.count;
    status->phase = state->closed     ? MST_STATUS_CLOSED
                    : state->complete ? MST_STATUS_RUNNING
                                      : MST_STATUS_OPEN;
    status->outcome = state->closed ? MST_OUTCOME_CLOSED : MST_OUTCOME_NONE;
    status->round = state->round;
    status->round_next = state->complete ? state->round + 1 : state->round;
    status->world_size = state->complete ? (int64_t)count : 0;
    bool is_open = status->phase == MST_STATUS_OPEN;
    int64_t more = telling->settings->nodes_min - (int64_t)count;
    status->needed = is_open && more > 0 ? more : 0;
    status->has_last_call = is_open && state->has_deadline; /* closing leaves it in the record */
    status->last_call_ms =
        status->has_last_call ? (state->deadline_us - telling->now_us) / 1000 : 0;
    mst__snapshot_expect_nodes(snapshot, count + state->waiting.count + state->spares.count);
    take_members(snapshot, telling, &state->participants, MST_SNAPSHOT_MEMBERS,
                 state->complete ? MST_STATUS_NODE_MEMBER : MST_STATUS_NODE_GATHERED);
    take_members(snapshot, telling, &state->waiting, MST_SNAPSHOT_WAITING, MST_STATUS_NODE_QUEUED);
    take_members(snapshot, telling, &state->spares, MST_SNAPSHOT_SPARES, MST_STATUS_NODE_SPARE);
}

struct mst__snapshot *mst__snapshot_of_record(const char *backend,
                                              struct mst_bytes run_id,
                                              const struct mst__state *state,
                                              bool has_state,
                                              const struct mst__settings *settings,
                                              int64_t now_us,
                                              int *ret_code)
{
    struct mst__snapshot *snapshot = mst__snapshot_new(backend, run_id);
    if (snapshot == NULL) {
        *ret_code = MST_ENOMEM;
        return NULL;
    }
    struct telling telling = {.state = state, .settings = settings, .now_us = now_us};
    struct mst_status *status = &snapshot->status;
    status->exists = true;
    status->nodes_min = settings->nodes_min;
    status->nodes_max = settings->nodes_max;
    if (has_state) {
        const char dialect[] = {'D', (char)('0' + (int)state->dialect), '\0'};
        status->dialect = mst__snapshot_text(snapshot, mst_bytes_str(dialect));
    }
    take_state(snapshot, &telling);
    mst__buf_init(&telling.text, SUMMARY_SIZE_MAX);
    tell(&telling);
    status->summary = mst__snapshot_text(snapshot, mst__buf_bytes(&telling.text));
    mst__buf_close(&telling.text);
    *ret_code = telling.rv != 0 ? telling.rv : mst__snapshot_end(snapshot);
    if (*ret_code != 0) {
        mst__snapshot_free(snapshot);
        return NULL;
    }
    return snapshot;
}
