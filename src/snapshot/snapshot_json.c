/* snapshot/snapshot_json.c - writes snapshots as JSON, in small parts. */
#include <muster/types.h>

#include "base/err.h"
#include "base/limits.h"
#include "base/require.h"
#include "snapshot/snapshot.h"

/* A negative number, or an empty text, means none. */
static void put_number(struct mst__json_writer *json,
                       const char *name,
                       bool is_known,
                       int64_t value)
{
    if (is_known) {
        mst__json_put_number(json, name, value);
    } else {
        mst__json_put_null(json, name);
    }
}

static void put_text(struct mst__json_writer *json, const char *name, const char *value)
{
    if (value[0] != '\0') {
        mst__json_put_text(json, name, mst_bytes_str(value));
    } else {
        mst__json_put_null(json, name);
    }
}

static void put_outcome(struct mst__json_writer *json, enum mst_outcome outcome)
{
    put_text(json, "outcome", outcome == MST_OUTCOME_NONE ? "" : mst_status_outcome_name(outcome));
}

static void put_node(struct mst__json_writer *json, const struct mst_status_node *node)
{
    mst__json_put_begin(json, NULL, '{');
    put_text(json, "node", node->name);
    put_text(json, "addr", node->address);
    put_text(json, "standing", mst_status_standing_name(node->standing));
    put_number(json, "rank", node->rank >= 0, node->rank);
    put_number(json, "heartbeat_age_ms", node->has_heard, node->heard_ms);
    mst__json_put_bool(json, "late", node->is_late);
    put_number(json, "clock_skew_ms", node->has_skew, node->skew_ms);
    put_number(json, "pid", node->pid >= 0, node->pid);
    put_number(json, "local_id", node->local_id >= 0, node->local_id);
    mst__json_put_begin(json, "labels", '{');
    for (size_t i = 0; i < node->label_count; i++) {
        mst__json_put_text(json, node->labels[i].key, mst_bytes_str(node->labels[i].value));
    }
    mst__json_put_end(json, '}');
    put_text(json, "cause", node->cause);
    mst__json_put_end(json, '}');
}

static void put_cause(struct mst__json_writer *json, const struct mst_status *status)
{
    const struct mst_cause *cause = status->cause;
    if (cause == NULL) {
        mst__json_put_null(json, "cause");
        return;
    }
    mst__json_put_begin(json, "cause", '{');
    put_text(json, "node", cause->node);
    put_number(json, "rank", cause->rank >= 0, cause->rank);
    put_number(json, "worker", cause->worker >= 0, cause->worker);
    mst__json_put_number(json, "status", cause->exit_status);
    mst__json_put_number(json, "signal", cause->signal);
    mst__json_put_number(json, "time_us", cause->time_us);
    mst__json_put_text(json, "text", mst_bytes_str(cause->text));
    mst__json_put_text(json, "sentence", mst_bytes_str(status->failure));
    mst__json_put_end(json, '}');
}

static void put_head(struct mst__json_writer *json, const struct mst_status *status)
{
    bool is_closed = status->exists && status->phase == MST_STATUS_CLOSED;
    bool is_complete = status->exists && (status->phase == MST_STATUS_RUNNING ||
                                          status->phase == MST_STATUS_RECLAIMING);
    mst__json_put_text(json, "run_id", mst_bytes_str(status->run_id));
    mst__json_put_text(json, "backend", mst_bytes_str(status->backend));
    mst__json_put_bool(json, "exists", status->exists);
    put_text(json, "phase", status->exists ? mst_status_phase_name(status->phase) : "");
    mst__json_put_number(json, "epoch", (int64_t)status->epoch);
    mst__json_put_number(json, "round", status->round);
    mst__json_put_number(json, "round_next", status->round_next);
    mst__json_put_number(json, "world_size", status->world_size);
    mst__json_put_bool(json, "complete", is_complete);
    mst__json_put_bool(json, "closed", is_closed);
    mst__json_put_text(json, "closed_by", mst_bytes_str(status->closed_by));
    mst__json_put_text(json, "reason", mst_bytes_str(status->reason));
    put_outcome(json, status->outcome);
    put_cause(json, status);
    mst__json_put_number(json, "nodes_min", status->nodes_min);
    mst__json_put_number(json, "nodes_max", status->nodes_max);
    mst__json_put_number(json, "needed", status->needed);
    put_number(json, "last_call_ms", status->has_last_call, status->last_call_ms);
    mst__json_put_number(json, "finished", status->finished);
    mst__json_put_number(json, "restarts", status->restarts);
    mst__json_put_number(json, "restarts_total", status->restarts_total);
    put_number(json, "restarts_max", status->restarts_max >= 0, status->restarts_max);
    put_number(json, "restarts_left", status->restarts_left >= 0, status->restarts_left);
    mst__json_put_number(json, "restarts_window_ms", status->restarts_window_ms);
    put_text(json, "dialect", status->dialect);
    put_text(json, "status", status->document);
}

static void put_tail(struct mst__json_writer *json, const struct mst_status *status)
{
    mst__json_put_bool(json, "truncated", status->is_cut);
    if (status->has_expected) {
        mst__json_put_begin(json, "missing", '[');
        for (size_t i = 0; i < status->missing_count; i++) {
            mst__json_put_text(json, NULL, mst_bytes_str(status->missing[i]));
        }
        mst__json_put_end(json, ']');
    }
    mst__json_put_text(json, "summary", mst_bytes_str(status->summary));
    mst__json_put_end(json, '}');
}

bool mst__snapshot_json(const struct mst_status *status,
                        size_t size,
                        struct mst__snapshot_cursor *cursor,
                        struct mst__json_writer *json)
{
    static const char *const names[MST_SNAPSHOT_LIST_COUNT] = {"participants", "waiting", "spares",
                                                               "gone"};
    const size_t counts[MST_SNAPSHOT_LIST_COUNT] = {status->member_count, status->waiting_count,
                                                    status->spare_count, status->gone_count};
    size_t before = mst__buf_size(&json->text);
    if (!cursor->is_begun) {
        mst__json_put_begin(json, NULL, '{');
        put_head(json, status);
        mst__json_put_begin(json, names[0], '[');
        cursor->is_begun = true;
    }
    size_t end = 0; /* end of the current list */
    for (unsigned list = 0; list <= cursor->list && list < MST_SNAPSHOT_LIST_COUNT; list++) {
        end += counts[list];
    }
    while (json->code == 0 && !cursor->is_done && mst__buf_size(&json->text) - before < size) {
        if (cursor->node < end) {
            put_node(json, status->nodes[cursor->node++]);
            continue;
        }
        mst__json_put_end(json, ']');
        cursor->list++;
        if (cursor->list < MST_SNAPSHOT_LIST_COUNT) {
            mst__json_put_begin(json, names[cursor->list], '[');
            end += counts[cursor->list];
        } else {
            put_tail(json, status);
            cursor->is_done = true;
        }
    }
    return cursor->is_done || json->code != 0;
}

static void put_entry(struct mst__json_writer *json, const struct mst_status_entry *entry)
{
    mst__json_put_begin(json, NULL, '{');
    mst__json_put_text(json, "run_id", mst_bytes_str(entry->run_id));
    put_text(json, "phase", mst_status_phase_name(entry->phase));
    mst__json_put_number(json, "epoch", (int64_t)entry->epoch);
    mst__json_put_number(json, "round", entry->round);
    mst__json_put_number(json, "world_size", entry->world_size);
    mst__json_put_number(json, "nodes_min", entry->nodes_min);
    mst__json_put_number(json, "nodes_max", entry->nodes_max);
    mst__json_put_number(json, "participants", entry->members);
    mst__json_put_number(json, "waiting", entry->waiting);
    mst__json_put_number(json, "spares", entry->spares);
    mst__json_put_number(json, "finished", entry->finished);
    put_outcome(json, entry->outcome);
    mst__json_put_text(json, "reason", mst_bytes_str(entry->reason));
    mst__json_put_end(json, '}');
}

bool mst__snapshot_list_json(const struct mst_status_list *list,
                             size_t size,
                             struct mst__snapshot_cursor *cursor,
                             struct mst__json_writer *json)
{
    size_t before = mst__buf_size(&json->text);
    if (!cursor->is_begun) {
        mst__json_put_begin(json, NULL, '{');
        mst__json_put_text(json, "server", mst_bytes_str(list->server));
        mst__json_put_number(json, "total", list->job_total);
        mst__json_put_begin(json, "jobs", '[');
        cursor->is_begun = true;
    }
    while (json->code == 0 && cursor->node < list->job_count &&
           mst__buf_size(&json->text) - before < size) {
        put_entry(json, list->jobs[cursor->node++]);
    }
    if (cursor->node == list->job_count && !cursor->is_done) {
        mst__json_put_end(json, ']');
        mst__json_put_end(json, '}');
        cursor->is_done = true;
    }
    return cursor->is_done || json->code != 0;
}

/* --- the whole at once --- */

static int release(struct mst__json_writer *json,
                   struct mst_buffer *ret_json,
                   struct mst_err *reterr)
{
    int rv = json->code != 0 ? json->code : mst__buf_release(&json->text, ret_json);
    mst__json_writer_close(json);
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "a snapshot as JSON");
}

int mst_status_json(const struct mst_status *status,
                    struct mst_buffer *ret_json,
                    struct mst_err *reterr)
{
    MST_REQUIRE(status, reterr);
    MST_REQUIRE(ret_json, reterr);
    struct mst__json_writer json;
    struct mst__snapshot_cursor cursor = {0};
    mst__json_writer_init(&json, MST_SNAPSHOT_JSON_SIZE_MAX);
    (void)mst__snapshot_json(status, SIZE_MAX, &cursor, &json); /* all in one part */
    return release(&json, ret_json, reterr);
}

int mst_status_list_json(const struct mst_status_list *list,
                         struct mst_buffer *ret_json,
                         struct mst_err *reterr)
{
    MST_REQUIRE(list, reterr);
    MST_REQUIRE(ret_json, reterr);
    struct mst__json_writer json;
    struct mst__snapshot_cursor cursor = {0};
    mst__json_writer_init(&json, MST_SNAPSHOT_JSON_SIZE_MAX);
    (void)mst__snapshot_list_json(list, SIZE_MAX, &cursor, &json); /* all in one part */
    return release(&json, ret_json, reterr);
}
