/* unit/wire/golden_job.c - the bytes of each message of a job, as releases write them.
 *
 * No two fields of a message have the same value, so that an exchange shows. */
#include <assert.h>
#include <string.h>

#include "base/limits.h"
#include "unit/golden_bytes.h"
#include "wire/job.h"

/* --- values --- */

static struct mst_bytes text(const char *string)
{
    return mst_bytes_str(string);
}

static const struct mst__label labels[] = {
    {{(const uint8_t *)"rack", 4}, {(const uint8_t *)"r17", 3}},
    {{(const uint8_t *)"host", 4}, {(const uint8_t *)"", 0}},
};

static struct mst__job_end end_with(enum mst__job_outcome outcome)
{
    return (struct mst__job_end){
        .outcome = (uint32_t)outcome,
        .has_cause = true,
        .cause = {.rank = 1001,
                  .worker = 1002,
                  .status = -1003,
                  .signal = 1004,
                  .wall_us = -1005,
                  .node = text("cause-node"),
                  .text = text("cause-text"),
                  .report = text("cause\n\treport")},
    };
}

static struct mst__job_message announce(bool is_new)
{
    struct mst__job_message message = {.type = MST_JOB_ANNOUNCE};
    message.u.announce = (struct mst__job_announce){
        .version = 101,
        .run_id = text("run-id"),
        .heartbeat_us = 102,
        .announcement =
            {.name = text("name"),
             .incarnation = UINT64_MAX - 103,
             .session = 104,
             .expiry_us = INT64_MAX - 105,
             .address = text("address:106"),
             .labels = labels,
             .labels_count = is_new ? 2 : 0,
             .nodes_min = 107,
             .nodes_max = 108,
             .last_call_us = 109,
             .rank_by = text("rack,host"),
             .pinned_rank = 110,
             .budget = {.is_limited = is_new, .restarts_max = is_new ? 111 : 0, .window_us = 112},
             .claim = {.epoch = 113, .round = 114, .world = 115, .rank = 116, .holds = is_new},
             .has_wall = !is_new,
             .wall_us = -117,
             .is_fixed = !is_new,
             .workers = 118,
             .role = text("role")},
        .is_new = is_new,
    };
    return message;
}

static struct mst__job_message lost(void)
{
    struct mst__job_message message = {.type = MST_JOB_LOST};
    message.u.lost = (struct mst__job_lost){
        .round = 201,
        .count = 202,
        .named = 2,
        .ranks = {203, 204},
        .names = {text("name-203"), text("")},
        .total = 205,
    };
    return message;
}

static struct mst__job_message status(bool has_cause)
{
    struct mst__job_message message = {.type = MST_JOB_STATUS_TOLD};
    message.u.status = (struct mst__job_status){
        .run_id = text("run-id"),
        .phase = MST_AUTHORITY_CLOSED,
        .epoch = 301,
        .round = 302,
        .round_next = 303,
        .world = 304,
        .nodes_min = 305,
        .nodes_max = 306,
        .last_call_us = 307,
        .sentence = text("sentence"),
        .reason = text("reason"),
        .owner = text("owner"),
        .member_count = 308,
        .is_cut = !has_cause,
        .members = text("members"),
        .heartbeat_us = 309,
        .end = has_cause ? end_with(MST_JOB_OUTCOME_FAILED) : (struct mst__job_end){.outcome = 1},
        .budget = {.is_limited = has_cause, .restarts_max = has_cause ? 310 : 0, .window_us = 311},
        .restarts = 312,
        .finished = 313,
        .last_call_left_us = 314,
        .details = text("details"),
        .restarts_total = 315,
    };
    message.u.status.end.cause.report = text(""); /* a status has none */
    return message;
}

static struct mst__job_message in_round(enum mst__job_type type)
{
    struct mst__job_message message = {.type = type};
    message.u.round =
        (struct mst__job_round){.epoch = UINT64_MAX - 401, .round = 402, .world = 403};
    if (type == MST_JOB_SEALED) {
        message.u.round.address = text("address:404");
        message.u.round.rank = 405;
        message.u.round.restarts = 406;
        message.u.round.start = MST_JOB_START_FAILED;
        message.u.round.worker_ranks = (struct mst__worker_ranks){407, 408, 409, 410};
    }
    return message;
}

static struct mst__job_message of_text(enum mst__job_type type)
{
    return (struct mst__job_message){.type = type, .u.text = text("rest")};
}

static struct mst__job_message question(void)
{
    return (struct mst__job_message){.type = MST_JOB_STATUS,
                                     .u.question = {.run_id = text("run-id"), .version = 501}};
}

static struct mst__job_message closing(void)
{
    return (struct mst__job_message){
        .type = MST_JOB_CLOSE,
        .u.close = {.run_id = text("run-id"), .reason = text("reason"), .owner = text("owner")}};
}

static struct mst__job_message closed(void)
{
    return (struct mst__job_message){.type = MST_JOB_CLOSED,
                                     .u.closed = {.reason = text("reason"),
                                                  .owner = text("owner"),
                                                  .end = end_with(MST_JOB_OUTCOME_FAILED)}};
}

static struct mst__job_message restart(void)
{
    struct mst__job_message message = {.type = MST_JOB_RESTART};
    message.u.restart = (struct mst__job_restart){
        .epoch = 601, .round = 602, .cause = end_with(MST_JOB_OUTCOME_FAILED).cause};
    message.u.restart.cause.rank = 0; /* the authority knows both */
    message.u.restart.cause.node = text("");
    return message;
}

static struct mst__job_message refused(void)
{
    struct mst__job_message message = {.type = MST_JOB_REFUSED};
    message.u.refused.code = MST_EFINISHED;
    message.u.refused.refusal = MST_REFUSAL_SETTINGS;
    message.u.refused.text = text("refused-text");
    message.u.refused.end = end_with(MST_JOB_OUTCOME_FINISHED);
    return message;
}

static struct mst__job_message reopened(void)
{
    struct mst__job_message message = {.type = MST_JOB_REOPENED};
    message.u.reopened.round_next = 701;
    message.u.reopened.why = MST_AUTHORITY_WHY_FAILED;
    message.u.reopened.rank = 702;
    message.u.reopened.name = text("name-702");
    message.u.reopened.end = end_with(MST_JOB_OUTCOME_ASKED);
    return message;
}

static const struct mst__job_member member = {
    .name = {(const uint8_t *)"name", 4},
    .address = {(const uint8_t *)"address:801", 11},
    .standing = MST_STANDING_FINISHED,
    .rank = 802,
    .incarnation = 803,
    .silent_us = -804,
    .has_skew = true,
    .skew_us = -805,
};

static const struct mst__job_entry entry = {
    .run_id = {(const uint8_t *)"run-id", 6},
    .phase = MST_AUTHORITY_RUNNING,
    .epoch = 901,
    .round = 902,
    .world = 903,
    .nodes_min = 904,
    .nodes_max = 905,
    .members = 906,
    .waiting = 907,
    .spares = 908,
    .finished = 909,
    .outcome = MST_JOB_OUTCOME_FINISHED,
    .reason = {(const uint8_t *)"reason", 6},
};

static struct mst__job_detail detail(void)
{
    struct mst__job_detail made = {.gone = MST_JOB_GONE_FINISHED, .labels_count = 2};
    memcpy(made.labels, labels, sizeof labels);
    return made;
}

/* Numbers on the wire, and what they mean. */
enum number_kind {
    NUMBER_TYPE,
    NUMBER_PHASE,
    NUMBER_STANDING,
    NUMBER_WHY,
    NUMBER_OUTCOME,
    NUMBER_START,
    NUMBER_GONE,
};

static const uint8_t numbers[][2] = {
#define NUMBER_OF_TYPE(name, number, text) {NUMBER_TYPE, MST_JOB_##name},
    MST_JOB_TYPE_MAP(NUMBER_OF_TYPE)
#undef NUMBER_OF_TYPE
        {NUMBER_PHASE, MST_AUTHORITY_OPEN},
    {NUMBER_PHASE, MST_AUTHORITY_RECLAIMING},
    {NUMBER_PHASE, MST_AUTHORITY_RUNNING},
    {NUMBER_PHASE, MST_AUTHORITY_CLOSED},
    {NUMBER_STANDING, MST_STANDING_GATHERED},
    {NUMBER_STANDING, MST_STANDING_QUEUED},
    {NUMBER_STANDING, MST_STANDING_SPARE},
    {NUMBER_STANDING, MST_STANDING_MEMBER},
    {NUMBER_STANDING, MST_STANDING_CALLED},
    {NUMBER_STANDING, MST_STANDING_GONE},
    {NUMBER_STANDING, MST_STANDING_FINISHED},
#define NUMBER_OF_WHY(name, text) {NUMBER_WHY, MST_AUTHORITY_WHY_##name},
    MST_AUTHORITY_WHY_MAP(NUMBER_OF_WHY)
#undef NUMBER_OF_WHY
        {NUMBER_OUTCOME, MST_JOB_OUTCOME_ASKED},
    {NUMBER_OUTCOME, MST_JOB_OUTCOME_FINISHED},
    {NUMBER_OUTCOME, MST_JOB_OUTCOME_FAILED},
    {NUMBER_START, MST_JOB_START_UNKNOWN},
    {NUMBER_START, MST_JOB_START_FIRST},
    {NUMBER_START, MST_JOB_START_JOINED},
    {NUMBER_START, MST_JOB_START_LOST},
    {NUMBER_START, MST_JOB_START_LEFT},
    {NUMBER_START, MST_JOB_START_FAILED},
    {NUMBER_START, MST_JOB_START_ASKED},
    {NUMBER_GONE, MST_JOB_GONE_NOT},
    {NUMBER_GONE, MST_JOB_GONE_LOST},
    {NUMBER_GONE, MST_JOB_GONE_LEFT},
    {NUMBER_GONE, MST_JOB_GONE_FINISHED},
};

/* Refusals have numbers without names; these are those of 0.2.0. */
static_assert(MST_REFUSAL_CLOSED == 1 && MST_REFUSAL_SETTINGS == 2 && MST_REFUSAL_STALE == 3 &&
                  MST_REFUSAL_TWIN == 4 && MST_REFUSAL_CLAIM == 5 && MST_REFUSAL_MALFORMED == 6 &&
                  MST_REFUSAL_FULL == 7 && MST_REFUSAL_MEMORY == 8,
              "what a node of 0.2.0 reads");

/* --- values as text --- */

static void tell_cause(struct mst__buf *to, const struct mst__cause *cause)
{
    TELL_UINT(to, cause, rank);
    TELL_UINT(to, cause, worker);
    TELL_INT(to, cause, status);
    TELL_UINT(to, cause, signal);
    TELL_INT(to, cause, wall_us);
    TELL_TEXT(to, cause, node);
    TELL_TEXT(to, cause, text);
    TELL_TEXT(to, cause, report);
}

static void tell_end(struct mst__buf *to, const struct mst__job_end *end)
{
    TELL_UINT(to, end, outcome);
    TELL_BOOL(to, end, has_cause);
    if (end->has_cause) {
        tell_cause(to, &end->cause);
    }
}

static void tell_labels(struct mst__buf *to, const struct mst__label *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        TELL_TEXT(to, &from[i], key);
        TELL_TEXT(to, &from[i], value);
    }
}

/* The labels are at @from, because reading does not fill those of the announcement. */
static void tell_announce(struct mst__buf *to,
                          const struct mst__job_announce *said,
                          const struct mst__label *from)
{
    const struct mst__announcement *node = &said->announcement;
    TELL_UINT(to, said, version);
    TELL_TEXT(to, said, run_id);
    TELL_INT(to, said, heartbeat_us);
    TELL_TEXT(to, node, name);
    TELL_UINT(to, node, incarnation);
    TELL_UINT(to, node, session);
    TELL_INT(to, node, expiry_us);
    TELL_TEXT(to, node, address);
    tell_labels(to, from, node->labels_count);
    TELL_UINT(to, node, nodes_min);
    TELL_UINT(to, node, nodes_max);
    TELL_INT(to, node, last_call_us);
    TELL_TEXT(to, node, rank_by);
    TELL_UINT(to, node, pinned_rank);
    TELL_BOOL(to, node, budget.is_limited);
    TELL_UINT(to, node, budget.restarts_max);
    TELL_INT(to, node, budget.window_us);
    TELL_UINT(to, node, claim.epoch);
    TELL_INT(to, node, claim.round);
    TELL_UINT(to, node, claim.world);
    TELL_UINT(to, node, claim.rank);
    TELL_BOOL(to, node, claim.holds);
    TELL_BOOL(to, node, has_wall);
    TELL_INT(to, node, wall_us);
    TELL_BOOL(to, node, is_fixed);
    TELL_BOOL(to, said, is_new);
    TELL_UINT(to, node, workers);
    TELL_TEXT(to, node, role);
}

static void tell_lost(struct mst__buf *to, const struct mst__job_lost *said)
{
    TELL_INT(to, said, round);
    TELL_UINT(to, said, count);
    for (uint32_t i = 0; i < said->named; i++) {
        golden_line(to, "rank %" PRIu32 " '%.*s'", said->ranks[i], (int)said->names[i].size,
                    (const char *)said->names[i].data);
    }
    TELL_UINT(to, said, total);
}

static void tell_status(struct mst__buf *to, const struct mst__job_status *said)
{
    TELL_TEXT(to, said, run_id);
    TELL_UINT(to, said, phase);
    TELL_UINT(to, said, epoch);
    TELL_INT(to, said, round);
    TELL_INT(to, said, round_next);
    TELL_UINT(to, said, world);
    TELL_UINT(to, said, nodes_min);
    TELL_UINT(to, said, nodes_max);
    TELL_INT(to, said, last_call_us);
    TELL_TEXT(to, said, sentence);
    TELL_TEXT(to, said, reason);
    TELL_TEXT(to, said, owner);
    TELL_UINT(to, said, member_count);
    TELL_BOOL(to, said, is_cut);
    TELL_TEXT(to, said, members);
    TELL_INT(to, said, heartbeat_us);
    tell_end(to, &said->end);
    TELL_BOOL(to, said, budget.is_limited);
    TELL_UINT(to, said, budget.restarts_max);
    TELL_INT(to, said, budget.window_us);
    TELL_UINT(to, said, restarts);
    TELL_UINT(to, said, finished);
    TELL_INT(to, said, last_call_left_us);
    TELL_TEXT(to, said, details);
    TELL_UINT(to, said, restarts_total);
}

static void tell_round(struct mst__buf *to, const struct mst__job_round *said, bool is_sealed)
{
    TELL_UINT(to, said, epoch);
    TELL_INT(to, said, round);
    TELL_UINT(to, said, world);
    if (is_sealed) {
        TELL_UINT(to, said, rank);
        TELL_TEXT(to, said, address);
        TELL_UINT(to, said, restarts);
        TELL_UINT(to, said, start);
        TELL_UINT(to, said, worker_ranks.first);
        TELL_UINT(to, said, worker_ranks.world);
        TELL_UINT(to, said, worker_ranks.role_first);
        TELL_UINT(to, said, worker_ranks.role_world);
    }
}

static void tell_member(struct mst__buf *to, const struct mst__job_member *said)
{
    TELL_TEXT(to, said, name);
    TELL_TEXT(to, said, address);
    TELL_UINT(to, said, standing);
    TELL_UINT(to, said, rank);
    TELL_UINT(to, said, incarnation);
    TELL_INT(to, said, silent_us);
    TELL_BOOL(to, said, has_skew);
    TELL_INT(to, said, skew_us);
}

static void tell_entry(struct mst__buf *to, const struct mst__job_entry *said)
{
    TELL_TEXT(to, said, run_id);
    TELL_UINT(to, said, phase);
    TELL_UINT(to, said, epoch);
    TELL_INT(to, said, round);
    TELL_UINT(to, said, world);
    TELL_UINT(to, said, nodes_min);
    TELL_UINT(to, said, nodes_max);
    TELL_UINT(to, said, members);
    TELL_UINT(to, said, waiting);
    TELL_UINT(to, said, spares);
    TELL_UINT(to, said, finished);
    TELL_UINT(to, said, outcome);
    TELL_TEXT(to, said, reason);
}

static void tell_detail(struct mst__buf *to, const struct mst__job_detail *said)
{
    TELL_UINT(to, said, gone);
    tell_labels(to, said->labels, said->labels_count);
}

static const char *number_name(uint8_t kind, uint8_t number)
{
    switch ((enum number_kind)kind) {
        case NUMBER_TYPE:
            return mst__job_type_name((enum mst__job_type)number);
        case NUMBER_PHASE:
            return mst__authority_phase_name((enum mst__authority_phase)number);
        case NUMBER_STANDING:
            return mst__authority_standing_name((enum mst__authority_standing)number);
        case NUMBER_WHY:
            return mst__authority_why_name((enum mst__authority_why)number);
        case NUMBER_OUTCOME:
            return mst__job_outcome_name((enum mst__job_outcome)number);
        case NUMBER_START:
            return mst__job_start_name((enum mst__job_start)number);
        case NUMBER_GONE:
            return mst__job_gone_name((enum mst__job_gone)number);
    }
    return NULL;
}

static void tell_numbers(struct mst__buf *to, struct mst_bytes from)
{
    static const char *const kinds[] = {"type",    "phase", "standing", "why",
                                        "outcome", "start", "gone"};
    for (; from.size >= 2; from = mst__bytes_skip(from, 2)) {
        const char *name = number_name(from.data[0], from.data[1]);
        golden_line(to, "%s %u '%s'", kinds[from.data[0]], from.data[1], name == NULL ? "?" : name);
    }
}

/* Messages that have fields of their own. */
static void tell_small(struct mst__buf *to, const struct mst__job_message *message)
{
    switch (message->type) {
        case MST_JOB_HEARTBEAT:
            TELL_BOOL(to, message, u.heartbeat.wants_pong);
            break;
        case MST_JOB_CLOSE:
            TELL_TEXT(to, message, u.close.run_id);
            TELL_TEXT(to, message, u.close.reason);
            TELL_TEXT(to, message, u.close.owner);
            break;
        case MST_JOB_STATUS:
            TELL_TEXT(to, message, u.question.run_id);
            TELL_UINT(to, message, u.question.version);
            break;
        case MST_JOB_CLOSED:
            TELL_TEXT(to, message, u.closed.reason);
            TELL_TEXT(to, message, u.closed.owner);
            tell_end(to, &message->u.closed.end);
            break;
        case MST_JOB_WELCOME:
            TELL_UINT(to, message, u.welcome.version);
            TELL_UINT(to, message, u.welcome.epoch);
            TELL_BOOL(to, message, u.welcome.has_skew);
            TELL_INT(to, message, u.welcome.skew_us);
            TELL_TEXT(to, message, u.welcome.server);
            break;
        case MST_JOB_REFUSED:
            TELL_INT(to, message, u.refused.code);
            TELL_UINT(to, message, u.refused.refusal);
            TELL_TEXT(to, message, u.refused.text);
            tell_end(to, &message->u.refused.end);
            break;
        case MST_JOB_REOPENED:
            TELL_INT(to, message, u.reopened.round_next);
            TELL_UINT(to, message, u.reopened.why);
            TELL_UINT(to, message, u.reopened.rank);
            TELL_TEXT(to, message, u.reopened.name);
            tell_end(to, &message->u.reopened.end);
            break;
        case MST_JOB_FINISH:
            TELL_UINT(to, message, u.finish.epoch);
            TELL_INT(to, message, u.finish.round);
            TELL_INT(to, message, u.finish.status);
            TELL_TEXT(to, message, u.finish.text);
            break;
        case MST_JOB_RESTART:
            TELL_UINT(to, message, u.restart.epoch);
            TELL_INT(to, message, u.restart.round);
            tell_cause(to, &message->u.restart.cause);
            break;
        case MST_JOB_LEAVING:
            TELL_UINT(to, message, u.leaving.epoch);
            TELL_INT(to, message, u.leaving.round);
            TELL_INT(to, message, u.leaving.in_us);
            break;
        default:
            break;
    }
}

static void tell_message(struct mst__buf *to,
                         const struct mst__job_message *message,
                         const struct mst__label *from)
{
    golden_line(to, "type %d %s", (int)message->type, mst__job_type_name(message->type));
    switch (message->type) {
        case MST_JOB_ANNOUNCE:
            tell_announce(to, &message->u.announce, from);
            break;
        case MST_JOB_SEALED:
        case MST_JOB_QUEUED:
        case MST_JOB_SPARE:
            tell_round(to, &message->u.round, message->type == MST_JOB_SEALED);
            break;
        case MST_JOB_WAITING:
            TELL_UINT(to, message, u.waiting.count);
            break;
        case MST_JOB_LOST:
            tell_lost(to, &message->u.lost);
            break;
        case MST_JOB_STATUS_TOLD:
            tell_status(to, &message->u.status);
            break;
        case MST_JOB_JOBS_TOLD:
            TELL_TEXT(to, message, u.list.server);
            TELL_UINT(to, message, u.list.total);
            TELL_UINT(to, message, u.list.count);
            TELL_TEXT(to, message, u.list.jobs);
            TELL_BOOL(to, message, u.list.gives_way);
            break;
        case MST_JOB_EXPELLED:
        case MST_JOB_STORE:
        case MST_JOB_STORE_END:
            TELL_TEXT(to, message, u.text);
            break;
        default:
            tell_small(to, message);
            break;
    }
}

/* --- pieces --- */

static const char *const names[] = {
    "announce", "announce_fixed", "heartbeat",   "leave",       "close",      "status",
    "store",    "finish",         "restart",     "welcome",     "refused",    "sealed",
    "queued",   "spare",          "waiting",     "lost",        "reopened",   "closed",
    "expelled", "status_told",    "status_cut",  "pong",        "store_end",  "jobs_told",
    "give_way", "leaving",        "item_member", "item_detail", "item_entry", "numbers",
};
#define MESSAGES_COUNT 26
#define PIECES_COUNT (sizeof names / sizeof names[0])

static const char *piece_name(size_t index)
{
    return names[index];
}

static struct mst__job_message message_at(size_t index)
{
    const struct mst__job_message all[] = {
        announce(true),
        announce(false),
        {.type = MST_JOB_HEARTBEAT, .u.heartbeat = {.wants_pong = true}},
        {.type = MST_JOB_LEAVE},
        closing(),
        question(),
        of_text(MST_JOB_STORE),
        {.type = MST_JOB_FINISH, .u.finish = {11, 12, -13, text("finish-text")}},
        restart(),
        {.type = MST_JOB_WELCOME, .u.welcome = {21, 22, true, -23, text("server-24")}},
        refused(),
        in_round(MST_JOB_SEALED),
        in_round(MST_JOB_QUEUED),
        in_round(MST_JOB_SPARE),
        {.type = MST_JOB_WAITING, .u.waiting = {.count = 31}},
        lost(),
        reopened(),
        closed(),
        of_text(MST_JOB_EXPELLED),
        status(true),
        status(false),
        {.type = MST_JOB_PONG},
        of_text(MST_JOB_STORE_END),
        {.type = MST_JOB_JOBS_TOLD, .u.list = {text("server-41"), 42, 43, text("jobs"), true}},
        {.type = MST_JOB_GIVE_WAY},
        {.type = MST_JOB_LEAVING, .u.leaving = {51, 52, 53}},
    };
    static_assert(sizeof all / sizeof all[0] == MESSAGES_COUNT, "a name for each");
    return all[index];
}

static void piece_write(size_t index, struct mst__buf *bytes)
{
    const char *name = piece_name(index);
    int rv = 0;
    if (index < MESSAGES_COUNT) {
        const struct mst__job_message message = message_at(index);
        rv = mst__job_write(bytes, &message);
    } else if (strcmp(name, "item_member") == 0) {
        rv = mst__job_member_write(bytes, &member);
    } else if (strcmp(name, "item_detail") == 0) {
        const struct mst__job_detail made = detail();
        rv = mst__job_detail_write(bytes, &made);
    } else if (strcmp(name, "item_entry") == 0) {
        rv = mst__job_entry_write(bytes, &entry);
    } else {
        rv = mst__buf_append(bytes, mst_bytes_of(numbers, sizeof numbers));
    }
    if (rv != 0) {
        (void)fprintf(stderr, "%s: cannot be written: %d\n", name, rv);
    }
}

static void piece_tell(size_t index, struct mst__buf *to)
{
    const char *name = piece_name(index);
    if (index < MESSAGES_COUNT) {
        const struct mst__job_message message = message_at(index);
        tell_message(to, &message, labels);
    } else if (strcmp(name, "item_member") == 0) {
        tell_member(to, &member);
    } else if (strcmp(name, "item_detail") == 0) {
        const struct mst__job_detail made = detail();
        tell_detail(to, &made);
    } else if (strcmp(name, "item_entry") == 0) {
        tell_entry(to, &entry);
    } else {
        tell_numbers(to, mst_bytes_of(numbers, sizeof numbers));
    }
}

static bool piece_read(const char *name, struct mst_bytes bytes, struct mst__buf *to)
{
    bool is_read = true;
    if (strcmp(name, "item_member") == 0) {
        struct mst__job_member got;
        is_read = mst__job_member_next(&bytes, &got) && bytes.size == 0;
        tell_member(to, &got);
    } else if (strcmp(name, "item_detail") == 0) {
        struct mst__job_detail got;
        is_read = mst__job_detail_next(&bytes, &got) && bytes.size == 0;
        tell_detail(to, &got);
    } else if (strcmp(name, "item_entry") == 0) {
        struct mst__job_entry got;
        is_read = mst__job_entry_next(&bytes, &got) && bytes.size == 0;
        tell_entry(to, &got);
    } else if (strcmp(name, "numbers") == 0) {
        tell_numbers(to, bytes);
    } else {
        struct mst__job_message got;
        struct mst_err err = {0};
        size_t size = 0;
        is_read = mst__job_read(bytes, MST_MIB(1), &got, &size, &err) == 1 && size == bytes.size;
        if (is_read) {
            tell_message(to, &got, got.u.announce.labels);
        }
    }
    return is_read;
}

/* Each number of @before is one of @now. */
static bool numbers_keep(struct mst_bytes before, struct mst_bytes now)
{
    for (; before.size >= 2; before = mst__bytes_skip(before, 2)) {
        size_t at = 0;
        while (at < now.size && memcmp(now.data + at, before.data, 2) != 0) {
            at += 2;
        }
        if (at >= now.size) {
            return false;
        }
    }
    return true;
}

/* A later release may append fields to a message. Items of a list cannot grow: nothing tells where
 * one ends. */
static bool piece_keeps(const char *name, struct mst_bytes before, struct mst_bytes now)
{
    if (strcmp(name, "numbers") == 0) {
        return numbers_keep(before, now);
    }
    if (strncmp(name, "item_", 5) == 0 || before.size < 4 || now.size < 4) {
        return mst__bytes_equal(before, now);
    }
    return mst__load_u32(now.data) == now.size - 4 &&
           mst__bytes_start_with(mst__bytes_skip(now, 4), mst__bytes_skip(before, 4));
}

int main(int argc, char **argv)
{
    static const struct golden_format format = {
        .count = PIECES_COUNT,
        .name = piece_name,
        .write = piece_write,
        .tell = piece_tell,
        .read = piece_read,
        .keeps = piece_keeps,
    };
    return golden_main(argc, argv, &format);
}
