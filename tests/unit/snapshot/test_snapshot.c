/* unit/snapshot/test_snapshot.c - snapshots of jobs: from messages of an authority and from
 * records, sorted, compared, as JSON in one part and in many; folded names; without memory. */
#include "base/mem.h"
#include "snapshot/fold.h"
#include "snapshot/snapshot.h"
#include "unit/unit.h"
#include "wire/job_status.h"

#define EXPIRY_US 15000000

/* --- an authority to look at --- */

static struct mst__authority authority;
static struct mst__job_status_room room;
static int drivers[16]; /* connections, each another address */

static int teardown(void **state)
{
    (void)state;
    mst__authority_close(&authority);
    mst__job_status_room_close(&room);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    const struct mst__authority_options options = {.epoch = 7,
                                                   .expiry_us = EXPIRY_US,
                                                   .grace_us = 1000000,
                                                   .reclaim_us = 1000000,
                                                   .return_us = INT64_MAX,
                                                   .members_max = 100};
    mst__authority_init(&authority, &options);
    mst__job_status_room_init(&room, MST_KIB(64));
    return 0;
}

/* @number is part of the name: n10 comes after n2. */
static mst__authority_id announce(int number,
                                  uint32_t nodes_min,
                                  uint32_t nodes_max,
                                  int64_t now_us)
{
    char name[16];
    struct mst_err err = {0};
    const struct mst__label labels[] = {{mst_bytes_str("rack"), mst_bytes_str("r\"1")}};
    (void)snprintf(name, sizeof name, "n%d", number);
    const struct mst__announcement said = {
        .name = mst_bytes_str(name),
        .incarnation = 1,
        .session = 1 + (uint64_t)number,
        .contact = 1 + (uint64_t)number,
        .address = mst_bytes_str("host:1"),
        .labels = labels,
        .labels_count = number == 2 ? 1 : 0,
        .has_wall = number == 2,
        .wall_us = 5000000,
        .wall_here_us = 2000000,
        .nodes_min = nodes_min,
        .nodes_max = nodes_max,
        .last_call_us = 5000000,
        .pinned_rank = MST_AUTHORITY_RANK_NONE,
        .budget = {.is_limited = true, .restarts_max = 3, .window_us = 60000000},
        .claim = {.rank = MST_AUTHORITY_RANK_NONE},
        .driver = &drivers[number],
    };
    const struct mst__authority_event event = {
        .kind = MST_AUTHORITY_EVENT_ANNOUNCED, .now_us = now_us, .announcement = &said};
    assert_int_equal(mst__authority_step(&authority, &event, &err), 0);
    return authority.announced;
}

static struct mst__snapshot *look_as(uint32_t version, int64_t now_us, int *ret_code)
{
    struct mst__job_status status;
    mst__job_status_fill(&authority, version, now_us, true, &room, &status);
    status.run_id = mst_bytes_str("job");
    status.heartbeat_us = 1000000;
    return mst__snapshot_of_job("muster", &status, ret_code);
}

static struct mst__snapshot *look(int64_t now_us)
{
    int code;
    struct mst__snapshot *snapshot = look_as(MST_JOB_VERSION, now_us, &code);
    assert_int_equal(code, 0);
    return snapshot;
}

static void assert_node(const struct mst_status *status,
                        size_t index,
                        const char *name,
                        enum mst_status_standing standing,
                        int64_t rank)
{
    assert_true(index < status->node_count);
    const struct mst_status_node *node = status->nodes[index];
    assert_string_equal(node->name, name);
    assert_int_equal(node->standing, standing);
    assert_int_equal(node->rank, rank);
}

/* A round gathers, runs, has a queue and spares, loses one and is closed. */
static void life_of_a_job(void **state)
{
    (void)state;
    mst__authority_id ten = announce(10, 2, 3, 1000000);
    struct mst__snapshot *snapshot = look(2000000);
    const struct mst_status *status = &snapshot->status;
    assert_true(status->exists);
    assert_int_equal(status->phase, MST_STATUS_OPEN);
    assert_int_equal(status->needed, 1);
    assert_false(status->has_last_call);
    assert_int_equal(status->waiting_count, 1);
    assert_int_equal(status->restarts_left, 3);
    assert_int_equal(status->restarts_window_ms, 60000);
    assert_int_equal(status->nodes[0]->heard_ms, 1000);
    assert_false(status->nodes[0]->is_late);
    mst__snapshot_free(snapshot);

    announce(2, 2, 3, 2000000);
    snapshot = look(3000000);
    status = &snapshot->status;
    assert_int_equal(status->needed, 0);
    assert_true(status->has_last_call);
    assert_int_equal(status->last_call_ms, 4000);
    assert_node(status, 0, "n2", MST_STATUS_NODE_GATHERED, -1); /* in natural order */
    assert_node(status, 1, "n10", MST_STATUS_NODE_GATHERED, -1);
    assert_true(status->nodes[1]->is_late); /* 2 s, and it beats every second */
    assert_int_equal(status->nodes[0]->label_count, 1);
    assert_string_equal(status->nodes[0]->labels[0].key, "rack");
    assert_string_equal(status->nodes[0]->labels[0].value, "r\"1");
    assert_true(status->nodes[0]->has_skew);
    assert_int_equal(status->nodes[0]->skew_ms, 3000);
    assert_false(status->nodes[1]->has_skew);
    mst__snapshot_free(snapshot);
    snapshot = look(2000000);
    assert_true(snapshot->status.nodes[0]->has_heard); /* just now */
    assert_int_equal(snapshot->status.nodes[0]->heard_ms, 0);
    mst__snapshot_free(snapshot);

    announce(1, 2, 3, 3000000);
    announce(5, 2, 3, 3000000);
    snapshot = look(3000000);
    status = &snapshot->status;
    assert_int_equal(status->phase, MST_STATUS_RUNNING);
    assert_int_equal(status->round, 1);
    assert_int_equal(status->round_next, 2);
    assert_int_equal(status->epoch, 7);
    assert_int_equal(status->world_size, 3);
    assert_int_equal(status->member_count, 3);
    assert_int_equal(status->spare_count, 1);
    assert_node(status, 0, "n1", MST_STATUS_NODE_MEMBER, 0);
    assert_node(status, 2, "n10", MST_STATUS_NODE_MEMBER, 2);
    assert_node(status, 3, "n5", MST_STATUS_NODE_SPARE, -1);
    mst__snapshot_free(snapshot);

    assert_int_equal(mst__authority_step(&authority,
                                         &(struct mst__authority_event){
                                             .kind = MST_AUTHORITY_EVENT_LEFT,
                                             .now_us = 4000000,
                                             .id = ten,
                                         },
                                         NULL),
                     0);
    snapshot = look(4000000);
    status = &snapshot->status;
    assert_int_equal(status->gone_count, 1);
    assert_node(status, status->node_count - 1, "n10", MST_STATUS_NODE_GONE, 2);
    assert_string_equal(status->nodes[status->node_count - 1]->cause, "left");
    mst__snapshot_free(snapshot);
}

/* A node that is not there any more is not late, however long ago it went. */
static void gone_nodes_are_not_late(void **state)
{
    (void)state;
    announce(1, 2, 2, 1000000);
    mst__authority_id two = announce(2, 2, 2, 1000000);
    const struct mst__authority_event left = {
        .kind = MST_AUTHORITY_EVENT_LEFT, .now_us = 2000000, .id = two};
    assert_int_equal(mst__authority_step(&authority, &left, NULL), 0);
    struct mst__snapshot *snapshot = look(9000000);
    const struct mst_status *status = &snapshot->status;
    assert_node(status, 0, "n1", MST_STATUS_NODE_CALLED, 0);
    assert_true(status->nodes[0]->is_late);
    assert_node(status, 1, "n2", MST_STATUS_NODE_GONE, 1);
    assert_false(status->nodes[1]->is_late);
    mst__snapshot_free(snapshot);
}

/* A job that is closed during the last call of its round waits for nobody any more. */
static void closed_in_the_last_call(void **state)
{
    (void)state;
    announce(1, 1, 2, 1000000);
    struct mst__snapshot *snapshot = look(2000000);
    assert_true(snapshot->status.has_last_call);
    mst__snapshot_free(snapshot);
    const struct mst__authority_event shut = {.kind = MST_AUTHORITY_EVENT_SHUT,
                                              .now_us = 3000000,
                                              .reason = mst_bytes_str("why"),
                                              .owner = mst_bytes_str("who")};
    assert_int_equal(mst__authority_step(&authority, &shut, NULL), 0);
    snapshot = look(4000000);
    assert_int_equal(snapshot->status.phase, MST_STATUS_CLOSED);
    assert_false(snapshot->status.has_last_call);
    assert_int_equal(snapshot->status.last_call_ms, 0);
    mst__snapshot_free(snapshot);
}

static void end_of_a_job(void **state)
{
    (void)state;
    mst__authority_id one = announce(1, 1, 1, 1000000);
    const struct mst__cause cause = {.rank = MST_AUTHORITY_RANK_NONE,
                                     .worker = 4,
                                     .signal = 9,
                                     .wall_us = 5,
                                     .text = mst_bytes_str("out of memory")};
    const struct mst__authority_event failed = {
        .kind = MST_AUTHORITY_EVENT_FAILED,
        .now_us = 2000000,
        .id = one,
        .epoch = 7,
        .round = 1,
        .cause = &cause,
    };
    assert_int_equal(mst__authority_step(&authority, &failed, NULL), 0);
    const struct mst__authority_event shut = {
        .kind = MST_AUTHORITY_EVENT_SHUT,
        .now_us = 3000000,
        .reason = mst_bytes_str("why"),
        .owner = mst_bytes_str("who"),
    };
    assert_int_equal(mst__authority_step(&authority, &shut, NULL), 0);
    struct mst__snapshot *snapshot = look(3000000);
    const struct mst_status *status = &snapshot->status;
    assert_int_equal(status->phase, MST_STATUS_CLOSED);
    assert_int_equal(status->outcome, MST_OUTCOME_CLOSED);
    assert_int_equal(status->needed, 0);
    assert_string_equal(status->reason, "why");
    assert_string_equal(status->closed_by, "who");
    assert_int_equal(status->restarts, 1);
    assert_int_equal(status->restarts_total, 1);
    assert_int_equal(status->restarts_left, 2);
    assert_non_null(status->cause);
    assert_string_equal(status->cause->node, "n1");
    assert_int_equal(status->cause->rank, 0);
    assert_int_equal(status->cause->worker, 4);
    assert_int_equal(status->cause->signal, 9);
    assert_int_equal(status->cause->time_us, 5);
    assert_string_equal(status->cause->text, "out of memory");
    assert_non_null(strstr(status->failure, "signal 9"));
    mst__snapshot_free(snapshot);
}

/* Passing time is no change, until a node is late. */
static void what_is_a_change(void **state)
{
    (void)state;
    announce(1, 2, 3, 1000000);
    struct mst__snapshot *before = look(1000000);
    struct mst__snapshot *after = look(1100000);
    uint64_t mark = mst__snapshot_mark(&before->status);
    assert_true(mst__snapshot_mark(&after->status) == mark);
    mst__snapshot_free(before);
    mst__snapshot_free(after);
    after = look(9000000);
    assert_true(mst__snapshot_mark(&after->status) != mark);
    mst__snapshot_free(after);
    announce(2, 2, 3, 1000000);
    after = look(1100000);
    assert_true(mst__snapshot_mark(&after->status) != mark);
    mst__snapshot_free(after);
}

/* Each of these is a change; what follows from the time is none. */
static void what_is_in_the_mark(void **state)
{
    (void)state;
    announce(1, 2, 3, 1000000);
    struct mst__snapshot *snapshot = look(1000000);
    struct mst_status *status = &snapshot->status;
    struct mst_status_node node = *status->nodes[0];
    const struct mst_status_node *const nodes[] = {&node};
    const struct mst_status was = *status;
    const struct mst_status_node node_was = node;
    status->nodes = nodes;
    uint64_t mark = mst__snapshot_mark(status);
#define CHANGES(where, value)                            \
    do {                                                 \
        (where) = (value);                               \
        assert_true(mst__snapshot_mark(status) != mark); \
        *status = was;                                   \
        node = node_was;                                 \
        status->nodes = nodes;                           \
        assert_true(mst__snapshot_mark(status) == mark); \
    } while (0)
    CHANGES(status->exists, false);
    CHANGES(status->phase, MST_STATUS_CLOSED);
    CHANGES(status->epoch, 8);
    CHANGES(status->round, 9);
    CHANGES(status->round_next, 9);
    CHANGES(status->world_size, 9);
    CHANGES(status->nodes_min, 1);
    CHANGES(status->nodes_max, 9);
    CHANGES(status->has_last_call, true);
    CHANGES(status->finished, 1);
    CHANGES(status->restarts_total, 1);
    CHANGES(status->restarts_max, 9);
    CHANGES(status->outcome, MST_OUTCOME_FAILED);
    CHANGES(status->is_cut, true);
    CHANGES(status->reason, "why");
    CHANGES(status->document, "frozen");
    CHANGES(status->dialect, "D1");
    CHANGES(node.standing, MST_STATUS_NODE_GONE);
    CHANGES(node.rank, 0);
    CHANGES(node.incarnation, 2);
    CHANGES(node.is_late, true);
    CHANGES(node.name, "n2");
    CHANGES(node.address, "host:2");
#undef CHANGES
    status->last_call_ms++;
    node.heard_ms++;
    assert_true(mst__snapshot_mark(status) == mark);
    mst__snapshot_free(snapshot);
}

/* A node is late after one and a half intervals; if they are not known, or there are none, never.
 */
static void lateness(void **state)
{
    (void)state;
    assert_false(mst__snapshot_is_late(1500000, 1000000));
    assert_true(mst__snapshot_is_late(1500001, 1000000));
    assert_false(mst__snapshot_is_late(INT64_MAX, 0));
    assert_false(mst__snapshot_is_late(INT64_MAX, INT64_MAX));
}

/* What is left of a budget is counted in its window, not from the beginning of the job. And a cause
 * may have no rank and no worker. */
static void budget_and_cause(void **state)
{
    (void)state;
    int code;
    struct mst__job_status told;
    announce(1, 2, 3, 1000000);
    mst__job_status_fill(&authority, MST_JOB_VERSION, 1000000, true, &room, &told);
    told.restarts = 1;
    told.restarts_total = 8;
    told.end.has_cause = true;
    told.end.cause = (struct mst__cause){.rank = MST_AUTHORITY_RANK_NONE,
                                         .worker = MST_CAUSE_WORKER_NONE,
                                         .wall_us = 7,
                                         .text = mst_bytes_str("lost")};
    struct mst__snapshot *snapshot = mst__snapshot_of_job("muster", &told, &code);
    assert_int_equal(code, 0);
    assert_int_equal(snapshot->status.restarts_left, 2);
    assert_int_equal(snapshot->status.cause->rank, -1);
    assert_int_equal(snapshot->status.cause->worker, -1);
    assert_int_equal(snapshot->status.cause->time_us, 7);
    mst__snapshot_free(snapshot);
}

/* Missing knowledge gives a shorter snapshot; a list of another version does no harm. */
static void older_versions(void **state)
{
    (void)state;
    int code;
    announce(2, 2, 3, 1000000);
    struct mst__snapshot *snapshot = look_as(MST_JOB_VERSION_FINISH, 1000000, &code);
    assert_int_equal(code, 0);
    assert_int_equal(snapshot->status.node_count, 1);
    assert_int_equal(snapshot->status.nodes[0]->label_count, 0);
    mst__snapshot_free(snapshot);
}

/* A list that lies about its size has as many nodes as there are. */
static void lying_counts(void **state)
{
    (void)state;
    int code;
    struct mst__job_status status;
    announce(1, 2, 3, 1000000);
    mst__job_status_fill(&authority, MST_JOB_VERSION, 1000000, true, &room, &status);
    status.member_count = UINT32_MAX;
    struct mst__snapshot *snapshot = mst__snapshot_of_job("muster", &status, &code);
    assert_int_equal(code, 0);
    assert_int_equal(snapshot->status.node_count, 1);
    mst__snapshot_free(snapshot);
    status.members = mst_bytes_of(status.members.data, status.members.size - 1);
    snapshot = mst__snapshot_of_job("muster", &status, &code);
    assert_int_equal(code, 0);
    assert_int_equal(snapshot->status.node_count, 0);
    mst__snapshot_free(snapshot);
}

static bool is_member(void *arg, const struct mst_status_node *node)
{
    (void)arg;
    return node->standing == MST_STATUS_NODE_MEMBER && node->rank > 0;
}

static void filtered(void **state)
{
    (void)state;
    for (int i = 1; i <= 4; i++) {
        announce(i, 2, 3, 1000000);
    }
    struct mst__snapshot *snapshot = look(1000000);
    struct mst_status *status = &snapshot->status;
    mst_status_filter(status, is_member, NULL);
    assert_int_equal(status->node_count, 2);
    assert_int_equal(status->member_count, 2);
    assert_int_equal(status->spare_count, 0);
    assert_node(status, 0, "n2", MST_STATUS_NODE_MEMBER, 1);
    mst__snapshot_free(snapshot);
}

/* Ranks of a round, also of gone members, and of no node outside of it. */
static void members_of_a_round(void **state)
{
    (void)state;
    for (int i = 1; i <= 4; i++) {
        (void)announce(i, 2, 3, 1000000);
    }
    const struct mst__authority_event left = {
        .kind = MST_AUTHORITY_EVENT_LEFT,
        .now_us = 2000000,
        .id = mst__authority_find(&authority, mst_bytes_str("n1"))};
    assert_int_equal(mst__authority_step(&authority, &left, NULL), 0);
    struct mst__snapshot *snapshot = look(2000000);
    assert_false(mst__snapshot_keep_round(snapshot, 7, 2));
    assert_false(mst__snapshot_keep_round(snapshot, 8, 1));
    assert_int_equal(snapshot->status.node_count, 4);
    assert_true(mst__snapshot_keep_round(snapshot, 7, 1));
    assert_int_equal(snapshot->status.node_count, 3);
    assert_node(&snapshot->status, 0, "n1", MST_STATUS_NODE_GONE, 0);
    assert_node(&snapshot->status, 1, "n2", MST_STATUS_NODE_CALLED, 1);
    assert_node(&snapshot->status, 2, "n3", MST_STATUS_NODE_CALLED, 2);
    mst__snapshot_free(snapshot);
}

/* --- JSON --- */

/* In parts of every size it is the same. */
static void json_in_parts(void **state)
{
    (void)state;
    for (int i = 1; i <= 5; i++) {
        announce(i, 2, 3, 1000000);
    }
    struct mst__snapshot *snapshot = look(1000000);
    struct mst_buffer whole = {0};
    struct mst_err err = {0};
    assert_int_equal(mst_status_json(&snapshot->status, &whole, &err), 0);
    assert_non_null(strstr((char *)whole.data, "\"participants\":[{\"node\":\"n1\","));
    assert_non_null(strstr((char *)whole.data, "\"labels\":{\"rack\":\"r\\\"1\"}"));
    assert_non_null(strstr((char *)whole.data, "\"spares\":[{\"node\":\"n4\","));
    assert_non_null(strstr((char *)whole.data, "\"gone\":[]"));
    for (size_t size = 1; size < 600; size += 7) {
        struct mst__json_writer json;
        struct mst__snapshot_cursor cursor = {0};
        size_t parts = 1;
        mst__json_writer_init(&json, MST_MIB(1));
        for (; !mst__snapshot_json(&snapshot->status, size, &cursor, &json); parts++) {
        }
        assert_bytes(mst__buf_bytes(&json.text), mst_bytes_of(whole.data, whole.size));
        assert_true(parts > 1);
        mst__json_writer_close(&json);
    }
    mst_buffer_free(&whole);
    mst__snapshot_free(snapshot);
}

/* The whole text: scripts read each member of it. */
static void json_as_scripts_read_it(void **state)
{
    (void)state;
    announce(1, 2, 2, 1000000);
    announce(2, 2, 2, 1000000);
    struct mst__snapshot *snapshot = look(3000000);
    struct mst_status *status = &snapshot->status;
    struct mst_cause cause = {.node = "n1",
                              .rank = 0,
                              .worker = 0,
                              .exit_status = 3,
                              .signal = 9,
                              .time_us = 7,
                              .text = "why"};
    struct mst_buffer json = {0};
    status->cause = &cause;
    status->failure = "all of it";
    status->restarts_left = 0;
    status->is_cut = true;
    assert_int_equal(mst_status_json(status, &json, NULL), 0);
    assert_bytes_str(mst_bytes_of(json.data, json.size),
                     "{\"run_id\":\"job\",\"backend\":\"muster\",\"exists\":true,"
                     "\"phase\":\"running\",\"epoch\":7,\"round\":1,\"round_next\":2,"
                     "\"world_size\":2,\"complete\":true,\"closed\":false,\"closed_by\":\"\","
                     "\"reason\":\"\",\"outcome\":null,\"cause\":{\"node\":\"n1\",\"rank\":0,"
                     "\"worker\":0,\"status\":3,\"signal\":9,\"time_us\":7,\"text\":\"why\","
                     "\"sentence\":\"all of it\"},\"nodes_min\":2,\"nodes_max\":2,"
                     "\"needed\":0,\"last_call_ms\":null,\"finished\":0,\"restarts\":0,"
                     "\"restarts_total\":0,\"restarts_max\":3,\"restarts_left\":0,"
                     "\"restarts_window_ms\":60000,\"dialect\":null,\"status\":null,"
                     "\"participants\":[{\"node\":\"n1\",\"addr\":\"host:1\","
                     "\"standing\":\"member\",\"rank\":0,\"heartbeat_age_ms\":2000,"
                     "\"late\":true,\"clock_skew_ms\":null,\"pid\":null,\"local_id\":null,"
                     "\"labels\":{},\"cause\":null},{\"node\":\"n2\",\"addr\":\"host:1\","
                     "\"standing\":\"member\",\"rank\":1,\"heartbeat_age_ms\":2000,"
                     "\"late\":true,\"clock_skew_ms\":3000,\"pid\":null,\"local_id\":null,"
                     "\"labels\":{\"rack\":\"r\\\"1\"},\"cause\":null}],\"waiting\":[],"
                     "\"spares\":[],\"gone\":[],\"truncated\":true,"
                     "\"summary\":\"round 1 runs with 2 nodes\"}");
    mst_buffer_free(&json);
    status->phase = MST_STATUS_RECLAIMING;
    status->cause = NULL;
    status->has_last_call = true;
    status->restarts_left = -1;
    mst_status_filter(status, is_member, NULL);
    assert_int_equal(mst_status_json(status, &json, NULL), 0);
    assert_bytes_str(mst_bytes_of(json.data, json.size),
                     "{\"run_id\":\"job\",\"backend\":\"muster\",\"exists\":true,"
                     "\"phase\":\"reclaiming\",\"epoch\":7,\"round\":1,\"round_next\":2,"
                     "\"world_size\":2,\"complete\":true,\"closed\":false,\"closed_by\":\"\","
                     "\"reason\":\"\",\"outcome\":null,\"cause\":null,\"nodes_min\":2,"
                     "\"nodes_max\":2,\"needed\":0,\"last_call_ms\":0,\"finished\":0,"
                     "\"restarts\":0,\"restarts_total\":0,\"restarts_max\":3,"
                     "\"restarts_left\":null,\"restarts_window_ms\":60000,\"dialect\":null,"
                     "\"status\":null,\"participants\":[{\"node\":\"n2\",\"addr\":\"host:1\","
                     "\"standing\":\"member\",\"rank\":1,\"heartbeat_age_ms\":2000,"
                     "\"late\":true,\"clock_skew_ms\":3000,\"pid\":null,\"local_id\":null,"
                     "\"labels\":{\"rack\":\"r\\\"1\"},\"cause\":null}],\"waiting\":[],"
                     "\"spares\":[],\"gone\":[],\"truncated\":true,"
                     "\"summary\":\"round 1 runs with 2 nodes\"}");
    mst_buffer_free(&json);
    mst__snapshot_free(snapshot);
}

static void list_of_jobs(void **state)
{
    (void)state;
    struct mst__buf jobs;
    struct mst__job_entry entry;
    int code;
    announce(1, 2, 3, 1000000);
    mst__buf_init(&jobs, MST_KIB(64));
    mst__job_entry_fill(&authority, &entry);
    entry.finished = 2;
    entry.phase = MST_AUTHORITY_CLOSED;
    entry.outcome = MST_JOB_OUTCOME_FAILED;
    for (int i = 0; i < 3; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "j%d", i);
        entry.run_id = mst_bytes_str(name);
        assert_int_equal(mst__job_entry_write(&jobs, &entry), 0);
    }
    const struct mst__job_list told = {
        .server = mst_bytes_str("0.9"), .total = 10, .count = 3, .jobs = mst__buf_bytes(&jobs)};
    struct mst_status_list *list = mst__snapshot_of_jobs(&told, &code);
    assert_int_equal(code, 0);
    assert_int_equal(list->job_count, 3);
    assert_int_equal(list->job_total, 10);
    assert_string_equal(list->server, "0.9");
    assert_string_equal(list->jobs[2]->run_id, "j2");
    assert_int_equal(list->jobs[2]->waiting, 1);
    assert_int_equal(list->jobs[2]->finished, 2);
    assert_int_equal(list->jobs[2]->nodes_max, 3);
    struct mst_buffer whole = {0};
    assert_int_equal(mst_status_list_json(list, &whole, NULL), 0);
    assert_bytes_str(mst_bytes_of(whole.data, whole.size),
                     "{\"server\":\"0.9\",\"total\":10,\"jobs\":[{\"run_id\":\"j0\","
                     "\"phase\":\"closed\",\"epoch\":7,\"round\":0,\"world_size\":0,"
                     "\"nodes_min\":2,\"nodes_max\":3,\"participants\":0,\"waiting\":1,"
                     "\"spares\":0,\"finished\":2,\"outcome\":\"failed\",\"reason\":\"\"},"
                     "{\"run_id\":\"j1\",\"phase\":\"closed\",\"epoch\":7,\"round\":0,"
                     "\"world_size\":0,\"nodes_min\":2,\"nodes_max\":3,\"participants\":0,"
                     "\"waiting\":1,\"spares\":0,\"finished\":2,\"outcome\":\"failed\","
                     "\"reason\":\"\"},{\"run_id\":\"j2\",\"phase\":\"closed\",\"epoch\":7,"
                     "\"round\":0,\"world_size\":0,\"nodes_min\":2,\"nodes_max\":3,"
                     "\"participants\":0,\"waiting\":1,\"spares\":0,\"finished\":2,"
                     "\"outcome\":\"failed\",\"reason\":\"\"}]}");
    struct mst__json_writer json;
    struct mst__snapshot_cursor cursor = {0};
    mst__json_writer_init(&json, MST_KIB(64));
    while (!mst__snapshot_list_json(list, 1, &cursor, &json)) {
    }
    assert_bytes(mst__buf_bytes(&json.text), mst_bytes_of(whole.data, whole.size));
    mst__json_writer_close(&json);
    mst_buffer_free(&whole);
    mst_status_list_free(list);
    mst__buf_close(&jobs);
}

/* --- records --- */

static void record(void **state)
{
    (void)state;
    struct mst__state record;
    const struct mst__settings settings = {.nodes_min = 3,
                                           .nodes_max = 4,
                                           .keep_alive_interval_us = 5000000,
                                           .keep_alive_max_attempt = 3};
    int code;
    mst__state_init(&record);
    for (int64_t i = 0; i < 2; i++) {
        const struct mst__node node = {.addr = mst_bytes_str(i == 0 ? "b" : "a"), .pid = 4};
        mst__peer_id id;
        assert_int_equal(mst__state_obtain(&record, &node, &id), 0);
        assert_int_equal(mst__state_put_participant(&record, id, i), 0);
        assert_int_equal(mst__state_put_heartbeat(&record, id, 1000000 + i * 9000000), 0);
    }
    struct mst__snapshot *snapshot = mst__snapshot_of_record("c10d", mst_bytes_str("job"), &record,
                                                             true, &settings, 10000000, &code);
    assert_int_equal(code, 0);
    const struct mst_status *status = &snapshot->status;
    assert_int_equal(status->phase, MST_STATUS_OPEN);
    assert_int_equal(status->needed, 1);
    assert_int_equal(status->member_count, 2);
    assert_node(status, 0, "a_4_0", MST_STATUS_NODE_GATHERED, -1);
    assert_int_equal(status->nodes[0]->heard_ms, 0);
    assert_true(status->nodes[1]->is_late);
    assert_non_null(strstr(status->summary, "waiting for 1 more node (2 of min 3)"));
    mst__snapshot_free(snapshot);

    record.complete = true;
    snapshot = mst__snapshot_of_record("c10d", mst_bytes_str("job"), &record, true, &settings,
                                       10000000, &code);
    status = &snapshot->status;
    assert_int_equal(status->phase, MST_STATUS_RUNNING);
    assert_int_equal(status->world_size, 2);
    assert_int_equal(status->needed, 0);
    assert_node(status, 0, "b_4_0", MST_STATUS_NODE_MEMBER, 0);
    mst__snapshot_free(snapshot);
    mst__state_close(&record);
}

/* Participants a, b, … of a record, of whom the first was last heard at @heard_us, and the others
 * now. */
static void make_record(struct mst__state *record, int count, int64_t heard_us, int64_t now_us)
{
    mst__state_init(record);
    for (int i = 0; i < count; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        const struct mst__node node = {.addr = mst_bytes_str(name), .pid = 4};
        mst__peer_id id;
        assert_int_equal(mst__state_obtain(record, &node, &id), 0);
        assert_int_equal(mst__state_put_participant(record, id, i), 0);
        assert_int_equal(mst__state_put_heartbeat(record, id, i == 0 ? heard_us : now_us), 0);
    }
}

#define RECORD_NOW_US INT64_C(100000000)

static struct mst__snapshot *look_at(const struct mst__state *record)
{
    int code;
    const struct mst__settings settings = {.nodes_min = 2,
                                           .nodes_max = 4,
                                           .keep_alive_interval_us = 5000000,
                                           .keep_alive_max_attempt = 3};
    struct mst__snapshot *snapshot = mst__snapshot_of_record("c10d", mst_bytes_str("job"), record,
                                                             true, &settings, RECORD_NOW_US, &code);
    assert_int_equal(code, 0);
    return snapshot;
}

/* A record gathers, begins its last call, waits for its end, is complete and closed. */
static void life_of_a_record(void **state)
{
    (void)state;
    struct mst__state record;
    make_record(&record, 2, RECORD_NOW_US - 15000000, RECORD_NOW_US);
    record.round = 6;
    record.has_deadline = true;
    record.deadline_us = RECORD_NOW_US + 2500000;
    struct mst__snapshot *snapshot = look_at(&record);
    const struct mst_status *status = &snapshot->status;
    assert_int_equal(status->round, 6);
    assert_int_equal(status->round_next, 6);
    assert_int_equal(status->world_size, 0);
    assert_int_equal(status->outcome, MST_OUTCOME_NONE);
    assert_true(status->has_last_call);
    assert_int_equal(status->last_call_ms, 2500);
    assert_int_equal(status->nodes[0]->heard_ms, 15000);
    assert_true(status->nodes[0]->is_late);
    /* After exactly 15 s it is late, and not silent for too long. */
    assert_string_equal(status->summary, "Round 6 is waiting for up to 2 more nodes (2 of max 4) "
                                         "until the last call ends in 2.5 s.");
    mst__snapshot_free(snapshot);

    record.deadline_us = RECORD_NOW_US - 1500000;
    snapshot = look_at(&record);
    assert_int_equal(snapshot->status.last_call_ms, -1500);
    assert_string_equal(snapshot->status.summary,
                        "The last call of round 6 ended 1.5 s ago; it is waiting for one of its 2 "
                        "participants to complete it.");
    mst__snapshot_free(snapshot);

    record.closed = true;
    snapshot = look_at(&record);
    status = &snapshot->status;
    assert_int_equal(status->phase, MST_STATUS_CLOSED);
    assert_int_equal(status->outcome, MST_OUTCOME_CLOSED);
    assert_false(status->has_last_call);
    assert_int_equal(status->last_call_ms, 0);
    mst__snapshot_free(snapshot);

    record.closed = false;
    record.has_deadline = false;
    record.complete = true;
    snapshot = look_at(&record);
    assert_int_equal(snapshot->status.round_next, 7);
    assert_int_equal(snapshot->status.world_size, 2);
    mst__snapshot_free(snapshot);
    mst__state_close(&record);

    make_record(&record, 4, RECORD_NOW_US, RECORD_NOW_US);
    record.has_deadline = true;
    record.deadline_us = RECORD_NOW_US + 2500000;
    snapshot = look_at(&record);
    assert_string_equal(snapshot->status.summary,
                        "Round 0 has the nodes that it needs (4) and is waiting for more until "
                        "the last call ends in 2.5 s.");
    mst__snapshot_free(snapshot);
    mst__state_close(&record);
}

/* A node that has never sent a heartbeat is silent, too. */
static void silent_participants(void **state)
{
    (void)state;
    struct mst__state record;
    const struct mst__settings settings = {
        .nodes_min = 1, .keep_alive_interval_us = 5000000, .keep_alive_max_attempt = 3};
    int code;
    mst__state_init(&record);
    for (int64_t i = 0; i < 3; i++) {
        const struct mst__node node = {.addr = mst_bytes_str("a"), .pid = 4, .local_id = i};
        mst__peer_id id;
        assert_int_equal(mst__state_obtain(&record, &node, &id), 0);
        assert_int_equal(mst__state_put_participant(&record, id, i), 0);
        if (i > 0) {
            assert_int_equal(mst__state_put_heartbeat(&record, id, i * 10000000), 0);
        }
    }
    struct mst__snapshot *snapshot = mst__snapshot_of_record("c10d", mst_bytes_str("job"), &record,
                                                             true, &settings, 26000000, &code);
    assert_int_equal(code, 0);
    assert_non_null(
        strstr(snapshot->status.summary, "2 participants have been silent for more than 15 s."));
    mst__snapshot_free(snapshot);
    mst__state_close(&record);
}

/* --- names --- */

static void folded(void **state)
{
    (void)state;
    static const struct {
        const char *names; /* with blanks between them */
        const char *told;
    } cases[] = {
        {"a", "a"},
        {"n1 n2", "n1, n2"},
        {"n1 n2 n3", "n[1-3]"},
        {"n8 n9 n10 n11", "n[8-11]"},
        {"n08 n09 n10", "n[08-10]"},
        {"n8 n09 n10", "n8, n09, n10"},
        {"n98 n99 n100", "n[98-100]"},
        {"n098 n099 n100", "n[098-100]"},
        {"n0 n1 n2", "n[0-2]"},
        {"n1 n3 n5", "n1, n3, n5"},
        {"n1 n2 n3 n7 n8 n9 x", "n[1-3], n[7-9], x"},
        {"r1n1 r1n2 r1n3 r2n1 r2n2 r2n3", "r1n[1-3], r2n[1-3]"},
        {"n1.east2 n2.east2 n3.east2", "n[1-3].east2"},
        {"n1 n1 n2 n2 n3", "n[1-3]"},
        {"n1 n1 x", "n1, x"},
        {"a1b1 a1b2 a1b3 a2b3 a3b3", "a1b[1-3], a2b3, a3b3"},
        {"1 2 3", "[1-3]"},
        {"n999999998 n999999999 n1000000000", "n999999998, n999999999, n1000000000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst_bytes names[16];
        size_t count = 0;
        for (const char *rest = cases[i].names; *rest != '\0';) {
            names[count++] = mst_bytes_of(rest, strcspn(rest, " "));
            rest += names[count - 1].size;
            rest += *rest == ' ' ? 1 : 0;
        }
        struct mst__buf text;
        int rv = 0;
        mst__buf_init(&text, MST_KIB(4));
        mst__fold_put(&text, &rv, names, count);
        assert_int_equal(rv, 0);
        assert_bytes_str(mst__buf_bytes(&text), cases[i].told);
        mst__buf_close(&text);
    }
}

static void folded_many(void **state)
{
    (void)state;
    static char texts[2000][8];
    static struct mst_bytes names[2000];
    struct mst__buf text;
    int rv = 0;
    for (int i = 0; i < 2000; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "n%d", i < 1999 ? i + 1 : 5000);
        names[i] = mst_bytes_str(texts[i]);
    }
    mst__buf_init(&text, MST_KIB(4));
    mst__fold_put(&text, &rv, names, 2000);
    assert_bytes_str(mst__buf_bytes(&text), "n[1-1999], n5000");
    mst__buf_clear(&text);
    for (int i = 0; i < 2000; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "n%d", 2 * i);
        names[i] = mst_bytes_str(texts[i]);
    }
    mst__fold_put(&text, &rv, names, 2000);
    struct mst_bytes told = mst__buf_bytes(&text);
    static const char end[] = ", n38 and 1980 more";
    assert_true(told.size > sizeof end);
    assert_bytes_str(mst__bytes_skip(told, told.size - (sizeof end - 1)), end);
    mst__buf_close(&text);
}

static void hosts(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"a_1_2", "a"},   {"a_b_1_2", "a_b"}, {"a", "a"},       {"a_1", "a_1"},
        {"_1_2", "_1_2"}, {"a_1_x", "a_1_x"}, {"a__2", "a__2"}, {"", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_bytes_str(mst__fold_host(mst_bytes_str(cases[i][0])), cases[i][1]);
    }
}

/* --- without memory --- */

static void without_memory(void **state)
{
    (void)state;
    int code = MST_ENOMEM;
    for (int i = 1; i <= 5; i++) {
        announce(i, 2, 3, 1000000);
    }
    struct mst__job_status status;
    mst__job_status_fill(&authority, MST_JOB_VERSION, 1000000, true, &room, &status);
    for (unsigned long nth = 1; code == MST_ENOMEM; nth++) {
        mst__mem_fail_nth(nth);
        struct mst__snapshot *snapshot = mst__snapshot_of_job("muster", &status, &code);
        bool has_failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        assert_int_equal(code, has_failed ? MST_ENOMEM : 0);
        assert_true((snapshot == NULL) == has_failed);
        mst__snapshot_free(snapshot);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(life_of_a_job, setup, teardown),
        cmocka_unit_test_setup_teardown(gone_nodes_are_not_late, setup, teardown),
        cmocka_unit_test_setup_teardown(closed_in_the_last_call, setup, teardown),
        cmocka_unit_test_setup_teardown(end_of_a_job, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_a_change, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_in_the_mark, setup, teardown),
        cmocka_unit_test(lateness),
        cmocka_unit_test_setup_teardown(budget_and_cause, setup, teardown),
        cmocka_unit_test_setup_teardown(older_versions, setup, teardown),
        cmocka_unit_test_setup_teardown(lying_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(filtered, setup, teardown),
        cmocka_unit_test_setup_teardown(members_of_a_round, setup, teardown),
        cmocka_unit_test_setup_teardown(json_in_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(json_as_scripts_read_it, setup, teardown),
        cmocka_unit_test_setup_teardown(list_of_jobs, setup, teardown),
        cmocka_unit_test(record),
        cmocka_unit_test(life_of_a_record),
        cmocka_unit_test(silent_participants),
        cmocka_unit_test(folded),
        cmocka_unit_test(folded_many),
        cmocka_unit_test(hosts),
        cmocka_unit_test_setup_teardown(without_memory, setup, teardown),
    };
    return MST_RUN_TESTS(tests);
}
