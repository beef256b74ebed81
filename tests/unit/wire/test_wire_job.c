/* unit/wire/test_wire_job.c - the messages of a job: each there and back, cut at every byte, with
 * every bit turned, from a later version, beyond the limits, and without memory. */
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "unit/unit.h"
#include "wire/job.h"
#include "wire/refusal.h"

#define SIZE_MAX_LARGE MST_KIB(128)

static const struct mst__label labels[] = {
    {{(const uint8_t *)"rack", 4}, {(const uint8_t *)"r1", 2}},
    {{(const uint8_t *)"host", 4}, {(const uint8_t *)"", 0}},
};

static struct mst_bytes text(const char *string)
{
    return mst_bytes_str(string);
}

static struct mst__job_message make_announce(void)
{
    struct mst__job_message message = {.type = MST_JOB_ANNOUNCE};
    message.u.announce = (struct mst__job_announce){
        .version = 7,
        .run_id = text("job"),
        .heartbeat_us = 5000000,
        .announcement = {.name = text("node0"),
                         .incarnation = UINT64_MAX,
                         .session = 3,
                         .expiry_us = INT64_MAX,
                         .address = text("[::1]:29400"),
                         .labels = labels,
                         .labels_count = 2,
                         .nodes_min = 2,
                         .nodes_max = 4,
                         .last_call_us = 1,
                         .rank_by = text("rack,host"),
                         .pinned_rank = MST_AUTHORITY_RANK_NONE,
                         .budget = {.is_limited = true, .restarts_max = 3, .window_us = 60},
                         .claim = {.epoch = 9, .round = 8, .world = 4, .rank = 3, .holds = true},
                         .has_wall = true,
                         .wall_us = -5,
                         .is_fixed = true,
                         .workers = 8,
                         .role = text("trainer")},
        .is_new = true,
    };
    return message;
}

static struct mst__job_message make_lost(void)
{
    struct mst__job_message message = {.type = MST_JOB_LOST};
    message.u.lost = (struct mst__job_lost){.round = 3, .count = 70, .named = 2, .total = 71};
    message.u.lost.ranks[0] = 5;
    message.u.lost.ranks[1] = 6;
    message.u.lost.names[0] = text("node5");
    message.u.lost.names[1] = text("");
    return message;
}

static struct mst__job_end make_end(enum mst__job_outcome outcome)
{
    return (struct mst__job_end){
        .outcome = (uint32_t)outcome,
        .has_cause = outcome == MST_JOB_OUTCOME_FAILED,
        .cause = {.rank = 5,
                  .worker = 1,
                  .status = -1,
                  .signal = 9,
                  .wall_us = -7,
                  .node = text("node5"),
                  .text = text("out of memory"),
                  .report = text("no memory")},
    };
}

static struct mst__job_message make_status(void)
{
    struct mst__job_message message = {.type = MST_JOB_STATUS_TOLD};
    message.u.status = (struct mst__job_status){
        .run_id = text("job"),
        .phase = 2,
        .epoch = 11,
        .round = 12,
        .round_next = 13,
        .world = 14,
        .nodes_min = 1,
        .nodes_max = 15,
        .last_call_us = 16,
        .sentence = text("all is well"),
        .reason = text("because"),
        .owner = text("me"),
        .member_count = 17,
        .is_cut = true,
        .members = text("not looked into here"),
        .heartbeat_us = 18,
        .end = make_end(MST_JOB_OUTCOME_FAILED),
        .budget = {.is_limited = true, .restarts_max = 19},
        .restarts = 20,
        .finished = 21,
        .last_call_left_us = 22,
        .details = text("nor here"),
        .restarts_total = 23,
    };
    return message;
}

static struct mst__job_message make_restart(void)
{
    struct mst__job_message message = {.type = MST_JOB_RESTART};
    message.u.restart = (struct mst__job_restart){
        .epoch = 9, .round = 8, .cause = make_end(MST_JOB_OUTCOME_FAILED).cause};
    return message;
}

/* One of each type, in the order of the map. */
#define MESSAGES_COUNT 24
static void make_all(struct mst__job_message ret_messages[MESSAGES_COUNT])
{
    const struct mst__job_round round = {
        .epoch = 1,
        .round = 2,
        .world = 3,
        .rank = 1,
        .address = text("a:1"),
        .restarts = 4,
        .start = MST_JOB_START_FAILED,
    };
    const struct mst__job_message all[] = {
        make_announce(),
        {.type = MST_JOB_HEARTBEAT, .u.heartbeat = {.wants_pong = true}},
        {.type = MST_JOB_LEAVE},
        {.type = MST_JOB_CLOSE,
         .u.close = {.run_id = text("job"), .reason = text("why"), .owner = text("who")}},
        {.type = MST_JOB_STATUS, .u.question = {.run_id = text("job"), .version = 2}},
        {.type = MST_JOB_STORE, .u.text = text("requests")},
        {.type = MST_JOB_FINISH, .u.finish = {9, 8, -3, text("done")}},
        make_restart(),
        {.type = MST_JOB_GIVE_WAY},
        {.type = MST_JOB_LEAVING, .u.leaving = {9, 8, 7}},
        {.type = MST_JOB_WELCOME, .u.welcome = {1, 5, true, -3, text("0.2")}},
        {.type = MST_JOB_REFUSED,
         .u.refused = {MST_EFINISHED, 1, text("no"), make_end(MST_JOB_OUTCOME_FINISHED)}},
        {.type = MST_JOB_SEALED, .u.round = round},
        {.type = MST_JOB_QUEUED, .u.round = {.epoch = 1, .round = 2, .world = 3}},
        {.type = MST_JOB_SPARE, .u.round = {.epoch = 4, .round = 5, .world = 6}},
        {.type = MST_JOB_WAITING, .u.waiting = {.count = 9}},
        make_lost(),
        {.type = MST_JOB_REOPENED,
         .u.reopened = {4, 5, 6, text("node6"), make_end(MST_JOB_OUTCOME_FAILED)}},
        {.type = MST_JOB_CLOSED,
         .u.closed = {.reason = text("why"),
                      .owner = text("who"),
                      .end = make_end(MST_JOB_OUTCOME_FAILED)}},
        {.type = MST_JOB_EXPELLED, .u.text = text("silent")},
        make_status(),
        {.type = MST_JOB_PONG},
        {.type = MST_JOB_STORE_END, .u.text = text("no requests here")},
        {.type = MST_JOB_JOBS_TOLD, .u.list = {text("0.2"), 9, 2, text("packed"), true}},
    };
    static_assert(sizeof all / sizeof all[0] == MESSAGES_COUNT, "one of each");
    memcpy(ret_messages, all, sizeof all);
}

static void write_message(struct mst__buf *frame, const struct mst__job_message *message)
{
    mst__buf_init(frame, MST_MIB(1));
    assert_int_equal(mst__job_write(frame, message), 0);
}

static void read_message(struct mst_bytes frame, struct mst__job_message *ret_message)
{
    struct mst_err err = {0};
    size_t size = 0;
    assert_int_equal(mst__job_read(frame, SIZE_MAX_LARGE, ret_message, &size, &err), 1);
    assert_int_equal(size, frame.size);
}

/* A message that is read and written again gives the same bytes: nothing is lost or made up. */
static void check_again(struct mst_bytes frame, const struct mst__job_message *read)
{
    struct mst__job_message message = *read;
    if (message.type == MST_JOB_ANNOUNCE) {
        message.u.announce.announcement.labels = message.u.announce.labels;
    }
    struct mst__buf again;
    write_message(&again, &message);
    assert_bytes(mst__buf_bytes(&again), frame);
    mst__buf_close(&again);
}

static void every_type(void **state)
{
    (void)state;
    struct mst__job_message messages[MESSAGES_COUNT];
    make_all(messages);
    int types = 0;
    for (int number = 0; number < 256; number++) {
        types += mst__job_type_name((enum mst__job_type)number) != NULL ? 1 : 0;
    }
    assert_int_equal(types, MESSAGES_COUNT);
    for (size_t i = 0; i < MESSAGES_COUNT; i++) {
        struct mst__buf frame;
        write_message(&frame, &messages[i]);
        struct mst_bytes bytes = mst__buf_bytes(&frame);
        assert_int_equal(mst__load_u32(bytes.data), bytes.size - 4);
        assert_int_equal(bytes.data[4], messages[i].type);
        struct mst__job_message message;
        read_message(bytes, &message);
        assert_int_equal(message.type, messages[i].type);
        check_again(bytes, &message);
        mst__buf_close(&frame);
    }
}

static void fields_of_announce(void **state)
{
    (void)state;
    struct mst__job_message said = make_announce();
    struct mst__buf frame;
    write_message(&frame, &said);
    struct mst__job_message message;
    read_message(mst__buf_bytes(&frame), &message);
    const struct mst__job_announce *announce = &message.u.announce;
    const struct mst__announcement *heard = &announce->announcement;
    assert_int_equal(announce->version, 7);
    assert_bytes_str(announce->run_id, "job");
    assert_int_equal(announce->announcement.expiry_us, INT64_MAX);
    assert_bytes_str(heard->name, "node0");
    assert_true(heard->incarnation == UINT64_MAX);
    assert_bytes_str(heard->address, "[::1]:29400");
    assert_int_equal(heard->labels_count, 2);
    assert_bytes_str(announce->labels[0].value, "r1");
    assert_bytes_str(announce->labels[1].key, "host");
    assert_int_equal(heard->nodes_max, 4);
    assert_bytes_str(heard->rank_by, "rack,host");
    assert_int_equal(heard->pinned_rank, MST_AUTHORITY_RANK_NONE);
    assert_int_equal(heard->claim.rank, 3);
    assert_true(heard->claim.holds);
    assert_int_equal(heard->wall_us, -5);
    mst__buf_close(&frame);
}

static void fields_of_others(void **state)
{
    (void)state;
    struct mst__job_message said = make_lost();
    struct mst__buf frame;
    write_message(&frame, &said);
    struct mst__job_message message;
    read_message(mst__buf_bytes(&frame), &message);
    assert_int_equal(message.u.lost.count, 70);
    assert_int_equal(message.u.lost.total, 71);
    assert_int_equal(message.u.lost.named, 2);
    assert_int_equal(message.u.lost.ranks[1], 6);
    assert_bytes_str(message.u.lost.names[0], "node5");
    mst__buf_close(&frame);
    said = (struct mst__job_message){
        .type = MST_JOB_REFUSED,
        .u.refused = {.code = MST_ESTATE, .refusal = 5, .text = text("over")}};
    write_message(&frame, &said);
    read_message(mst__buf_bytes(&frame), &message);
    assert_int_equal(message.u.refused.code, MST_ESTATE);
    assert_int_equal(message.u.refused.refusal, 5);
    assert_bytes_str(message.u.refused.text, "over");
    mst__buf_close(&frame);
}

static void cause_is(const struct mst__cause *cause, uint32_t rank, const char *node)
{
    assert_int_equal(cause->rank, rank);
    assert_bytes_str(cause->node, node);
    assert_int_equal(cause->worker, 1);
    assert_int_equal(cause->status, -1);
    assert_int_equal(cause->signal, 9);
    assert_int_equal(cause->wall_us, -7);
    assert_bytes_str(cause->text, "out of memory");
    assert_bytes_str(cause->report, "no memory");
}

/* Fields of version 2. */
static void fields_of_the_end(void **state)
{
    (void)state;
    struct mst__job_message messages[MESSAGES_COUNT];
    make_all(messages);
    for (size_t i = 0; i < MESSAGES_COUNT; i++) {
        struct mst__buf frame;
        write_message(&frame, &messages[i]);
        struct mst__job_message message;
        read_message(mst__buf_bytes(&frame), &message);
        switch (message.type) {
            case MST_JOB_ANNOUNCE:
                assert_true(message.u.announce.announcement.budget.is_limited);
                assert_int_equal(message.u.announce.announcement.budget.restarts_max, 3);
                assert_int_equal(message.u.announce.announcement.budget.window_us, 60);
                break;
            case MST_JOB_STATUS:
                assert_int_equal(message.u.question.version, 2);
                break;
            case MST_JOB_FINISH:
                assert_int_equal(message.u.finish.epoch, 9);
                assert_int_equal(message.u.finish.round, 8);
                assert_int_equal(message.u.finish.status, -3);
                assert_bytes_str(message.u.finish.text, "done");
                break;
            case MST_JOB_RESTART:
                assert_int_equal(message.u.restart.round, 8);
                message.u.restart.cause.rank = 5; /* neither is sent: the authority knows them */
                message.u.restart.cause.node = text("node5");
                cause_is(&message.u.restart.cause, 5, "node5");
                break;
            case MST_JOB_REFUSED:
                assert_int_equal(message.u.refused.code, MST_EFINISHED);
                assert_int_equal(message.u.refused.end.outcome, MST_JOB_OUTCOME_FINISHED);
                assert_false(message.u.refused.end.has_cause);
                break;
            case MST_JOB_REOPENED:
                assert_true(message.u.reopened.end.has_cause);
                cause_is(&message.u.reopened.end.cause, 5, "node5");
                break;
            case MST_JOB_CLOSED:
                assert_int_equal(message.u.closed.end.outcome, MST_JOB_OUTCOME_FAILED);
                cause_is(&message.u.closed.end.cause, 5, "node5");
                break;
            case MST_JOB_STATUS_TOLD:
                assert_int_equal(message.u.status.end.cause.report.size, 0); /* it has none */
                message.u.status.end.cause.report = text("no memory");
                cause_is(&message.u.status.end.cause, 5, "node5");
                assert_int_equal(message.u.status.budget.restarts_max, 19);
                assert_int_equal(message.u.status.restarts, 20);
                assert_int_equal(message.u.status.finished, 21);
                break;
            default:
                break;
        }
        mst__buf_close(&frame);
    }
}

/* How many bytes of @message the sixth version has added. */
static size_t added_sixth(const struct mst__job_message *message)
{
    switch (message->type) {
        case MST_JOB_ANNOUNCE:
            return 4 + 4 + 7;
        case MST_JOB_SEALED:
            return 4 * 4;
        case MST_JOB_RESTART:
        case MST_JOB_REOPENED:
        case MST_JOB_CLOSED:
        case MST_JOB_REFUSED:
            return 4 + 9;
        default:
            return 0;
    }
}

/* How many the fifth one has, or a release of it, too. */
static size_t added_fifth(const struct mst__job_message *message)
{
    bool has_one = message->type == MST_JOB_ANNOUNCE || message->type == MST_JOB_JOBS_TOLD;
    return added_sixth(message) + (has_one ? 1 : 0);
}

/* How many the fourth one has, too. */
static size_t added_fourth(const struct mst__job_message *message)
{
    return message->type == MST_JOB_SEALED        ? 4 + 4 + added_fifth(message)
           : message->type == MST_JOB_STATUS_TOLD ? 4
                                                  : added_fifth(message);
}

/* How many the third one has, too. */
static size_t added_last(const struct mst__job_message *message)
{
    size_t later = added_fourth(message);
    switch (message->type) {
        case MST_JOB_ANNOUNCE:
            return later + 1;
        case MST_JOB_STATUS_TOLD:
            return later + 8 + 4 + 8;
        default:
            return later;
    }
}

/* How many the second one has, too. */
static size_t added_size(const struct mst__job_message *message)
{
    const size_t cause_size = 1 + 4 + 4 + 5 + 4 + 4 + 4 + 8 + 4 + 13;
    switch (message->type) {
        case MST_JOB_ANNOUNCE:
            return 4 + 8 + added_last(message);
        case MST_JOB_STATUS:
            return 4;
        case MST_JOB_REFUSED:
            return 4 + 1 + added_last(message);
        case MST_JOB_REOPENED:
            return cause_size + added_last(message);
        case MST_JOB_CLOSED:
            return 4 + cause_size + added_last(message);
        case MST_JOB_STATUS_TOLD:
            return 4 + cause_size + 4 + 8 + 4 + 4 + added_last(message);
        default:
            return added_last(message);
    }
}

/* A message of version 1: it has no budget, and a closed job was closed on request. */
static void first_version(void **state)
{
    (void)state;
    struct mst__job_message messages[MESSAGES_COUNT];
    make_all(messages);
    for (size_t i = 0; i < MESSAGES_COUNT; i++) {
        struct mst__buf frame;
        write_message(&frame, &messages[i]);
        size_t size = mst__buf_size(&frame) - added_size(&messages[i]);
        mst__store_u32(frame.memory + frame.start, (uint32_t)size - 4);
        struct mst__job_message message;
        read_message(mst_bytes_of(mst__buf_bytes(&frame).data, size), &message);
        if (message.type == MST_JOB_ANNOUNCE) {
            assert_bytes_str(message.u.announce.labels[1].key, "host");
            assert_false(message.u.announce.announcement.budget.is_limited);
        } else if (message.type == MST_JOB_CLOSED) {
            assert_bytes_str(message.u.closed.owner, "who");
            assert_int_equal(message.u.closed.end.outcome, MST_JOB_OUTCOME_ASKED);
            assert_false(message.u.closed.end.has_cause);
        } else if (message.type == MST_JOB_REOPENED) {
            assert_bytes_str(message.u.reopened.name, "node6");
            assert_false(message.u.reopened.end.has_cause);
        } else if (message.type == MST_JOB_STATUS_TOLD) {
            assert_int_equal(message.u.status.heartbeat_us, 18);
            assert_int_equal(message.u.status.restarts, 0);
            assert_false(message.u.status.end.has_cause);
        } else if (message.type == MST_JOB_STATUS) {
            assert_int_equal(message.u.question.version, 0);
        }
        mst__buf_close(&frame);
    }
}

/* A message of version 2: without a flag for a new job, or the end of a last call. */
static void second_version(void **state)
{
    (void)state;
    struct mst__job_message messages[] = {make_announce(), make_status()};
    for (size_t i = 0; i < 2; i++) {
        struct mst__buf frame;
        struct mst__job_message message;
        write_message(&frame, &messages[i]);
        read_message(mst__buf_bytes(&frame), &message);
        if (i == 0) {
            assert_true(message.u.announce.is_new);
        } else {
            assert_int_equal(message.u.status.last_call_left_us, 22);
            assert_bytes_str(message.u.status.details, "nor here");
        }
        size_t size = mst__buf_size(&frame) - added_last(&messages[i]);
        mst__store_u32(frame.memory + frame.start, (uint32_t)size - 4);
        read_message(mst_bytes_of(mst__buf_bytes(&frame).data, size), &message);
        if (i == 0) {
            assert_int_equal(message.u.announce.announcement.budget.restarts_max, 3);
            assert_false(message.u.announce.is_new);
        } else {
            assert_int_equal(message.u.status.finished, 21);
            assert_true(message.u.status.last_call_left_us == INT64_MAX);
            assert_int_equal(message.u.status.details.size, 0);
        }
        mst__buf_close(&frame);
    }
}

/* A message of version 3: without the restarts before a round, and without is_fixed. */
static void third_version(void **state)
{
    (void)state;
    struct mst__job_message messages[MESSAGES_COUNT];
    make_all(messages);
    for (size_t i = 0; i < MESSAGES_COUNT; i++) {
        struct mst__buf frame;
        struct mst__job_message message;
        struct mst__job_message earlier;
        write_message(&frame, &messages[i]);
        read_message(mst__buf_bytes(&frame), &message);
        size_t size = mst__buf_size(&frame) - added_fourth(&messages[i]);
        mst__store_u32(frame.memory + frame.start, (uint32_t)size - 4);
        read_message(mst_bytes_of(mst__buf_bytes(&frame).data, size), &earlier);
        if (message.type == MST_JOB_SEALED) {
            assert_int_equal(message.u.round.restarts, 4);
            assert_int_equal(message.u.round.start, MST_JOB_START_FAILED);
            assert_int_equal(earlier.u.round.rank, 1);
            assert_int_equal(earlier.u.round.restarts, 0);
            assert_int_equal(earlier.u.round.start, MST_JOB_START_UNKNOWN);
        } else if (message.type == MST_JOB_STATUS_TOLD) {
            assert_int_equal(message.u.status.restarts_total, 23);
            assert_bytes_str(earlier.u.status.details, "nor here");
            assert_int_equal(earlier.u.status.restarts_total, 20); /* those of the budget */
        } else if (message.type == MST_JOB_ANNOUNCE) {
            assert_true(message.u.announce.announcement.is_fixed);
            assert_true(earlier.u.announce.is_new);
            assert_false(earlier.u.announce.announcement.is_fixed);
            assert_int_equal(message.u.announce.announcement.workers, 8);
            assert_bytes_str(message.u.announce.announcement.role, "trainer");
            assert_int_equal(earlier.u.announce.announcement.workers, 0);
            assert_int_equal(earlier.u.announce.announcement.role.size, 0);
        } else if (message.type == MST_JOB_JOBS_TOLD) {
            assert_true(message.u.list.gives_way);
            assert_bytes_str(earlier.u.list.jobs, "packed");
            assert_false(earlier.u.list.gives_way);
        }
        mst__buf_close(&frame);
    }
}

/* Packed entries are read as they were written, without those that were cut. */
static void packed_lists(void **state)
{
    (void)state;
    struct mst__buf buf;
    mst__buf_init(&buf, MST_KIB(64));
    struct mst__job_detail detail = {.gone = MST_JOB_GONE_LEFT, .labels_count = 2};
    memcpy(detail.labels, labels, sizeof labels);
    assert_int_equal(mst__job_detail_write(&buf, &detail), 0);
    struct mst_bytes whole = mst__buf_bytes(&buf);
    for (size_t size = 0; size <= whole.size; size++) {
        struct mst_bytes rest = mst_bytes_of(whole.data, size);
        struct mst__job_detail read = {.labels_count = 9};
        assert_true(mst__job_detail_next(&rest, &read) == (size == whole.size));
        assert_int_equal(read.labels_count, size == whole.size ? 2 : 0);
    }
    mst__buf_clear(&buf);
    const struct mst__job_entry entries[] = {
        {.run_id = text("a"), .phase = 1, .round = 2, .nodes_max = 3, .reason = text("why")},
        {.run_id = text("b"), .members = 4, .spares = 5, .outcome = 2},
    };
    assert_int_equal(mst__job_entry_write(&buf, &entries[0]), 0);
    assert_int_equal(mst__job_entry_write(&buf, &entries[1]), 0);
    struct mst_bytes rest = mst__buf_bytes(&buf);
    struct mst__job_entry entry;
    assert_true(mst__job_entry_next(&rest, &entry));
    assert_bytes_str(entry.run_id, "a");
    assert_bytes_str(entry.reason, "why");
    assert_int_equal(entry.round, 2);
    assert_true(mst__job_entry_next(&rest, &entry));
    assert_int_equal(entry.members, 4);
    assert_int_equal(entry.outcome, 2);
    assert_false(mst__job_entry_next(&rest, &entry));
    mst__buf_close(&buf);
}

static void ranks_are_patched(void **state)
{
    (void)state;
    struct mst__job_message said = {.type = MST_JOB_SEALED,
                                    .u.round = {.epoch = 1,
                                                .round = 2,
                                                .world = 70000,
                                                .rank = 0,
                                                .address = text("a:1"),
                                                .restarts = 7,
                                                .start = MST_JOB_START_LOST}};
    struct mst__buf frame;
    write_message(&frame, &said);
    mst__job_patch_ranks(frame.memory + frame.start, mst__buf_size(&frame), 65537,
                         &(struct mst__worker_ranks){11, 12, 13, 14});
    struct mst__job_message message;
    read_message(mst__buf_bytes(&frame), &message);
    assert_int_equal(message.u.round.rank, 65537);
    assert_int_equal(message.u.round.world, 70000);
    assert_int_equal(message.u.round.restarts, 7);
    assert_int_equal(message.u.round.start, MST_JOB_START_LOST);
    assert_bytes_str(message.u.round.address, "a:1");
    assert_int_equal(message.u.round.worker_ranks.first, 11);
    assert_int_equal(message.u.round.worker_ranks.world, 12);
    assert_int_equal(message.u.round.worker_ranks.role_first, 13);
    assert_int_equal(message.u.round.worker_ranks.role_world, 14);
    mst__buf_close(&frame);
}

/* Any beginning of a frame asks for more, and never for more than the whole. */
static void cut_off(void **state)
{
    (void)state;
    struct mst__job_message messages[MESSAGES_COUNT];
    make_all(messages);
    for (size_t i = 0; i < MESSAGES_COUNT; i++) {
        struct mst__buf frame;
        write_message(&frame, &messages[i]);
        struct mst_bytes bytes = mst__buf_bytes(&frame);
        for (size_t have = 0; have < bytes.size; have++) {
            struct mst__job_message message;
            struct mst_err err = {0};
            size_t size = 0;
            int rv = mst__job_read(mst_bytes_of(bytes.data, have), SIZE_MAX_LARGE, &message, &size,
                                   &err);
            assert_int_equal(rv, 0);
            assert_int_equal(size, have < MST_JOB_HEAD_SIZE ? MST_JOB_HEAD_SIZE : bytes.size);
        }
        mst__buf_close(&frame);
    }
}

/* A whole frame whose fields end too soon is malformed, unless it ends where an earlier version
 * does; extra bytes are fields of a later version. The exception: types whose last field is the
 * rest. */
static void too_short_and_too_long(void **state)
{
    (void)state;
    struct mst__job_message messages[MESSAGES_COUNT];
    make_all(messages);
    for (size_t i = 0; i < MESSAGES_COUNT; i++) {
        struct mst__buf frame;
        write_message(&frame, &messages[i]);
        bool has_rest = messages[i].type == MST_JOB_STORE ||
                        messages[i].type == MST_JOB_STORE_END ||
                        messages[i].type == MST_JOB_EXPELLED;
        struct mst__job_message message;
        struct mst_err err = {0};
        size_t whole = mst__buf_size(&frame);
        for (size_t size = MST_JOB_HEAD_SIZE; size < whole && !has_rest; size++) {
            if (size == whole - added_size(&messages[i]) ||
                size == whole - added_last(&messages[i]) ||
                size == whole - added_fourth(&messages[i]) ||
                size == whole - added_fifth(&messages[i]) ||
                size == whole - added_sixth(&messages[i])) {
                continue;
            }
            mst__store_u32(frame.memory + frame.start, (uint32_t)size - 4);
            size_t used = 0;
            struct mst_bytes cut = mst_bytes_of(mst__buf_bytes(&frame).data, size);
            assert_int_equal(mst__job_read(cut, SIZE_MAX_LARGE, &message, &used, &err), MST_EPROTO);
            assert_int_equal(err.code, MST_EPROTO);
        }
        assert_int_equal(mst__buf_append(&frame, text("later")), 0);
        mst__store_u32(frame.memory + frame.start, (uint32_t)whole + 1);
        read_message(mst__buf_bytes(&frame), &message);
        assert_int_equal(message.type, messages[i].type);
        mst__buf_close(&frame);
    }
}

/* With any bit turned it is a message, a beginning, or an error; and a message can be written. */
static void bits_turned(void **state)
{
    (void)state;
    struct mst__job_message messages[MESSAGES_COUNT];
    make_all(messages);
    for (size_t i = 0; i < MESSAGES_COUNT; i++) {
        struct mst__buf frame;
        write_message(&frame, &messages[i]);
        uint8_t *bytes = frame.memory + frame.start;
        size_t whole = mst__buf_size(&frame);
        for (size_t bit = 0; bit < whole * 8; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
            struct mst__job_message message;
            struct mst_err err = {0};
            size_t size = 0;
            int rv =
                mst__job_read(mst_bytes_of(bytes, whole), SIZE_MAX_LARGE, &message, &size, &err);
            assert_true(rv == 1 || rv == 0 || rv == MST_EPROTO || rv == MST_ELIMIT);
            if (rv < 0) {
                assert_int_equal(err.code, rv);
                assert_true(err.msg[0] != '\0');
            } else if (rv == 0) {
                assert_true(size > whole);
                assert_true(size <= SIZE_MAX_LARGE + 4);
            } else {
                assert_true(size <= whole);
            }
            bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
        }
        mst__buf_close(&frame);
    }
}

static int read_head(uint32_t size, uint8_t type, struct mst_err *reterr)
{
    uint8_t head[MST_JOB_HEAD_SIZE];
    mst__store_u32(head, size);
    head[4] = type;
    struct mst__job_message message;
    size_t used = 0;
    return mst__job_read(mst_bytes_of(head, sizeof head), SIZE_MAX_LARGE, &message, &used, reterr);
}

static void sizes(void **state)
{
    (void)state;
    struct mst_err err = {0};
    assert_int_equal(read_head(0, MST_JOB_PONG, &err), MST_EPROTO);
    assert_int_equal(read_head(1, 0, &err), MST_EPROTO);
    assert_int_equal(read_head(1, 255, &err), MST_EPROTO);
    assert_int_equal(read_head(MST_JOB_SIZE_MAX, MST_JOB_ANNOUNCE, &err), 0);
    assert_int_equal(read_head(MST_JOB_SIZE_MAX + 1, MST_JOB_ANNOUNCE, &err), MST_ELIMIT);
    assert_non_null(strstr(err.msg, "announce"));
    assert_int_equal(read_head(SIZE_MAX_LARGE, MST_JOB_STATUS_TOLD, &err), 0);
    assert_int_equal(read_head(SIZE_MAX_LARGE + 1, MST_JOB_STATUS_TOLD, &err), MST_ELIMIT);
    assert_int_equal(read_head(UINT32_MAX, MST_JOB_STATUS_TOLD, &err), MST_ELIMIT);
    assert_int_equal(read_head(SIZE_MAX_LARGE, MST_JOB_JOBS_TOLD, &err), 0);
    assert_int_equal(read_head(SIZE_MAX_LARGE + 1, MST_JOB_JOBS_TOLD, &err), MST_ELIMIT);
    assert_int_equal(read_head(MST_JOB_SIZE_MAX + 1, MST_JOB_STORE, &err), MST_ELIMIT);
}

static void counts(void **state)
{
    (void)state;
    struct mst__job_message message = make_announce();
    struct mst__label many[MST_AUTHORITY_LABELS_MAX + 1];
    for (size_t i = 0; i < MST_AUTHORITY_LABELS_MAX + 1; i++) {
        many[i] = labels[0];
    }
    message.u.announce.announcement.labels = many;
    message.u.announce.announcement.labels_count = MST_AUTHORITY_LABELS_MAX;
    struct mst__buf frame;
    write_message(&frame, &message);
    size_t size = mst__buf_size(&frame);
    message.u.announce.announcement.labels_count++;
    assert_int_equal(mst__job_write(&frame, &message), MST_ELIMIT);
    assert_int_equal(mst__buf_size(&frame), size); /* as it was */
    mst__buf_close(&frame);
    message = make_lost();
    message.u.lost.named = MST_JOB_NAMES_MAX;
    write_message(&frame, &message);
    message.u.lost.named++;
    assert_int_equal(mst__job_write(&frame, &message), MST_ELIMIT);
    mst__buf_close(&frame);
}

/* A byte that is neither yes nor no. */
static void maybe(void **state)
{
    (void)state;
    const struct mst__job_message message = {.type = MST_JOB_HEARTBEAT,
                                             .u.heartbeat.wants_pong = true};
    struct mst__job_message read;
    struct mst__buf frame;
    struct mst_err err = {0};
    size_t size = 0;
    write_message(&frame, &message);
    frame.memory[frame.start + MST_JOB_HEAD_SIZE] = 2;
    assert_int_equal(mst__job_read(mst__buf_bytes(&frame), SIZE_MAX_LARGE, &read, &size, &err),
                     MST_EPROTO);
    mst__buf_close(&frame);
}

/* In place of a reply: whole, in parts, with another message, or other bytes that begin alike. */
static void refusals(void **state)
{
    (void)state;
    struct mst__job_message message;
    struct mst__buf bytes;
    struct mst_err err = {0};
    size_t size = 0;
    mst__buf_init(&bytes, 1000);
    assert_int_equal(mst__wire_write_refusal(&bytes, MST_ELIMIT, MST_REFUSAL_FULL, text("full")),
                     0);
    struct mst_bytes whole = mst__buf_bytes(&bytes);
    for (size_t have = 1; have < whole.size; have++) {
        assert_int_equal(
            mst__wire_read_refusal(mst_bytes_of(whole.data, have), &message, &size, &err), 0);
        assert_in_range(size, have + 1, whole.size);
    }
    assert_int_equal(mst__wire_read_refusal(whole, &message, &size, &err), 1);
    assert_int_equal(size, whole.size);
    assert_int_equal(message.u.refused.code, MST_ELIMIT);
    assert_int_equal(message.u.refused.refusal, MST_REFUSAL_FULL);
    assert_bytes_str(message.u.refused.text, "full");
    bytes.memory[bytes.start + MST_WIRE_REFUSAL_HEAD_SIZE - 1]++;
    assert_int_equal(mst__wire_read_refusal(whole, &message, &size, &err), MST_ENOTFOUND);
    bytes.memory[bytes.start + MST_WIRE_REFUSAL_HEAD_SIZE - 1]--;
    mst__buf_truncate(&bytes, MST_WIRE_REFUSAL_HEAD_SIZE);
    const struct mst__job_message pong = {.type = MST_JOB_PONG};
    assert_int_equal(mst__job_write(&bytes, &pong), 0);
    assert_int_equal(mst__wire_read_refusal(mst__buf_bytes(&bytes), &message, &size, &err),
                     MST_EPROTO);
    mst__buf_close(&bytes);
    /* One that does not fit leaves what is there as it was. */
    mst__buf_init(&bytes, MST_WIRE_REFUSAL_HEAD_SIZE + 10);
    assert_int_equal(mst__buf_append(&bytes, text("reply")), 0);
    assert_int_equal(mst__wire_write_refusal(&bytes, MST_ELIMIT, MST_REFUSAL_FULL, text("full")),
                     MST_ELIMIT);
    assert_bytes_str(mst__buf_bytes(&bytes), "reply");
    mst__buf_close(&bytes);
}

static void members(void **state)
{
    (void)state;
    struct mst__buf packed;
    mst__buf_init(&packed, 1000);
    size_t count = 0;
    for (;; count++) {
        const struct mst__job_member member = {
            .name = text("node"),
            .address = text("host:1"),
            .standing = 3,
            .rank = (uint32_t)count,
            .incarnation = 7,
            .silent_us = 8,
            .has_skew = true,
            .skew_us = -9,
        };
        size_t before = mst__buf_size(&packed);
        int rv = mst__job_member_write(&packed, &member);
        if (rv != 0) {
            assert_int_equal(rv, MST_ELIMIT);
            assert_int_equal(mst__buf_size(&packed), before);
            break;
        }
    }
    assert_true(count > 10);
    struct mst_bytes rest = mst__buf_bytes(&packed);
    struct mst__job_member member;
    for (size_t i = 0; i < count; i++) {
        assert_true(mst__job_member_next(&rest, &member));
        assert_bytes_str(member.name, "node");
        assert_bytes_str(member.address, "host:1");
        assert_int_equal(member.rank, i);
        assert_int_equal(member.skew_us, -9);
    }
    assert_false(mst__job_member_next(&rest, &member));
    rest = mst__buf_bytes(&packed);
    rest.size = 20; /* within the first one */
    assert_false(mst__job_member_next(&rest, &member));
    mst__buf_close(&packed);
}

/* Fail the n-th allocation, until there are no more. */
static void without_memory(void **state)
{
    (void)state;
    struct mst__job_message messages[MESSAGES_COUNT];
    make_all(messages);
    size_t failures = 0;
    for (size_t i = 0; i < MESSAGES_COUNT; i++) {
        struct mst__sweep sweep = {0};
        while (sweep_next(&sweep)) {
            struct mst__buf frame;
            mst__buf_init(&frame, MST_MIB(1));
            int rv = mst__job_write(&frame, &messages[i]);
            sweep_end(&sweep, rv);
            assert_true(rv == 0 || mst__buf_size(&frame) == 0);
            mst__buf_close(&frame);
        }
        failures += sweep.failures;
    }
    assert_true(failures >= MESSAGES_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),
        cmocka_unit_test(fields_of_announce),
        cmocka_unit_test(fields_of_others),
        cmocka_unit_test(fields_of_the_end),
        cmocka_unit_test(first_version),
        cmocka_unit_test(second_version),
        cmocka_unit_test(third_version),
        cmocka_unit_test(packed_lists),
        cmocka_unit_test(ranks_are_patched),
        cmocka_unit_test(cut_off),
        cmocka_unit_test(too_short_and_too_long),
        cmocka_unit_test(bits_turned),
        cmocka_unit_test(sizes),
        cmocka_unit_test(counts),
        cmocka_unit_test(maybe),
        cmocka_unit_test(refusals),
        cmocka_unit_test(members),
        cmocka_unit_test(without_memory),
    };
    return MST_RUN_TESTS(tests);
}
