/* unit/authority/golden_etcd_v3.c - the documents that nodes of `etcd-v3` leave for each other, as
 * releases write them. */
#include <jansson.h>
#include <string.h>

#include "authority/etcd_v3_keys.h"
#include "base/mem.h"
#include "unit/golden_bytes.h"

/* --- values --- */

static struct mst_bytes text(const char *string)
{
    return mst_bytes_str(string);
}

static const struct mst__label labels[] = {
    {{(const uint8_t *)"rack", 4}, {(const uint8_t *)"r17", 3}},
    {{(const uint8_t *)"host", 4}, {(const uint8_t *)"", 0}},
};

static struct mst__cause cause(void)
{
    return (struct mst__cause){.rank = MST_AUTHORITY_RANK_NONE,
                               .worker = 101,
                               .status = -102,
                               .signal = 103,
                               .wall_us = 104,
                               .text = text("cause-text"),
                               .report = text("cause\n\treport")};
}

static void make_node(size_t index, struct mst__etcd_v3_node *node)
{
    *node = (struct mst__etcd_v3_node){.has_left = index == 1};
    node->said = (struct mst__announcement){
        .name = text("name"),
        .address = text("address:201"),
        .nodes_min = 202,
        .nodes_max = 203,
        .last_call_us = 204,
        .rank_by = text("rack,host"),
        .pinned_rank = MST_AUTHORITY_RANK_NONE,
        .claim = {.rank = MST_AUTHORITY_RANK_NONE},
    };
    if (index == 0) {
        return;
    }
    node->said.pinned_rank = 205;
    node->said.incarnation = UINT64_MAX - 206;
    node->said.labels = labels;
    node->said.labels_count = 2;
    node->said.claim =
        (struct mst__claim){.epoch = UINT64_MAX - 207, .round = 208, .world = 209, .rank = 210};
    node->said.has_wall = true;
    node->said.wall_us = 211;
    node->said.budget =
        (struct mst__budget){.is_limited = true, .restarts_max = 212, .window_us = 213};
    node->said.is_fixed = true;
    node->said.workers = 216;
    node->said.role = text("role");
    node->word = (struct mst__etcd_v3_word){
        .is_said = true, .is_finish = index == 2, .epoch = 214, .round = 215, .cause = cause()};
}

static char seat_a[] = "seat-a";
static char seat_b[] = "seat-b";
static char seat_c[] = "seat-c";
static struct mst__etcd_v3_seat seats[] = {
    {301, seat_a, {303, 304, 305, 306}},
    {UINT64_C(0xfedcba9876543210), seat_b, {307, 308, 309, 310}},
    {302, seat_c, {311, 312, 313, 314}}};
static bool is_gone[] = {false, true, true};
static bool is_finished[] = {true, false, false};

static void make_round(enum mst__etcd_v3_state state,
                       bool is_sharded,
                       bool has_failed,
                       struct mst__etcd_v3_round *round)
{
    *round = (struct mst__etcd_v3_round){.state = state};
    if (state == MST_ETCD_V3_NONE) {
        return;
    }
    *round = (struct mst__etcd_v3_round){
        .state = state,
        .epoch = UINT64_MAX - 401,
        .round = 402,
        .before = 403,
        .world = 3,
        .first_world = 5,
        .is_sharded = is_sharded,
        .seats = is_sharded ? NULL : seats,
        .address = "address:404",
        .waiting = state == MST_ETCD_V3_RUNNING ? 405 : 0,
        .is_finished = is_finished,
        .finished_count = 1,
        .restarts = 408,
        .restarts_wall_us = 409,
        .restarts_total = 410,
        .restarts_before = 411,
        .start = MST_JOB_START_LOST,
    };
    if (state == MST_ETCD_V3_OPEN) {
        round->why = has_failed ? MST_AUTHORITY_WHY_FAILED : MST_AUTHORITY_WHY_LEFT;
        round->gone_count = 406;
        round->is_gone = is_gone;
        (void)snprintf(round->gone, sizeof round->gone, "gone-names");
    } else if (state == MST_ETCD_V3_CLOSED) {
        round->outcome = MST_JOB_OUTCOME_FAILED;
        (void)snprintf(round->reason, sizeof round->reason, "reason");
        (void)snprintf(round->owner, sizeof round->owner, "owner");
    }
    if (has_failed) {
        round->has_cause = true;
        round->cause = cause();
        round->cause.rank = 407;
        (void)snprintf(round->cause_node, sizeof round->cause_node, "cause-node");
        (void)snprintf(round->cause_text, sizeof round->cause_text, "cause-text");
        (void)snprintf(round->cause_report, sizeof round->cause_report, "cause\n\treport");
    }
}

static struct mst__etcd_v3_letter letter(enum mst__etcd_v3_letter_kind kind)
{
    struct mst__etcd_v3_letter made = {.kind = kind};
    if (kind == MST_ETCD_V3_LETTER_RANK) {
        made.epoch = UINT64_MAX - 501;
        made.round = 502;
        made.rank = 503;
        (void)snprintf(made.name, sizeof made.name, "name");
        made.worker_ranks = (struct mst__worker_ranks){504, 505, 506, 507};
    } else {
        made.code = kind == MST_ETCD_V3_LETTER_REFUSED ? MST_EINVAL : MST_EEXPELLED;
        (void)snprintf(made.text, sizeof made.text, "text");
    }
    return made;
}

/* --- values as text --- */

static void tell_cause(struct mst__buf *to, const struct mst__cause *from)
{
    TELL_UINT(to, from, worker);
    TELL_INT(to, from, status);
    TELL_UINT(to, from, signal);
    TELL_INT(to, from, wall_us);
    TELL_TEXT(to, from, text);
    TELL_TEXT(to, from, report);
}

static void tell_node(struct mst__buf *to, const struct mst__etcd_v3_node *node)
{
    const struct mst__announcement *said = &node->said;
    TELL_TEXT(to, said, name);
    TELL_TEXT(to, said, address);
    TELL_UINT(to, said, nodes_min);
    TELL_UINT(to, said, nodes_max);
    TELL_INT(to, said, last_call_us);
    TELL_TEXT(to, said, rank_by);
    TELL_UINT(to, said, pinned_rank);
    for (size_t i = 0; i < said->labels_count; i++) {
        TELL_TEXT(to, &said->labels[i], key);
        TELL_TEXT(to, &said->labels[i], value);
    }
    TELL_UINT(to, said, claim.epoch);
    TELL_INT(to, said, claim.round);
    TELL_UINT(to, said, claim.world);
    TELL_UINT(to, said, claim.rank);
    TELL_UINT(to, said, incarnation);
    TELL_BOOL(to, said, has_wall);
    TELL_INT(to, said, wall_us);
    TELL_BOOL(to, said, budget.is_limited);
    TELL_UINT(to, said, budget.restarts_max);
    TELL_INT(to, said, budget.window_us);
    TELL_BOOL(to, said, is_fixed);
    TELL_UINT(to, said, workers);
    TELL_TEXT(to, said, role);
    TELL_BOOL(to, node, has_left);
    TELL_BOOL(to, node, word.is_said);
    if (node->word.is_said) {
        TELL_BOOL(to, node, word.is_finish);
        TELL_UINT(to, node, word.epoch);
        TELL_INT(to, node, word.round);
        tell_cause(to, &node->word.cause);
    }
}

static void tell_flags(struct mst__buf *to, const char *name, const bool *flags, uint32_t world)
{
    for (uint32_t rank = 0; flags != NULL && rank < world; rank++) {
        golden_line(to, "%s of %" PRIu32 " %s", name, rank, flags[rank] ? "true" : "false");
    }
}

static void tell_round(struct mst__buf *to, const struct mst__etcd_v3_round *round)
{
    golden_line(to, "state %s", mst__etcd_v3_state_name(round->state));
    TELL_UINT(to, round, epoch);
    TELL_INT(to, round, round);
    TELL_INT(to, round, before);
    TELL_UINT(to, round, world);
    TELL_UINT(to, round, first_world);
    TELL_BOOL(to, round, is_sharded);
    for (uint32_t rank = 0; round->seats != NULL && rank < round->world; rank++) {
        const struct mst__etcd_v3_seat *seat = &round->seats[rank];
        golden_line(to, "seat %" PRIu32 " '%s' %" PRIx64, rank, seat->name, seat->session);
        TELL_UINT(to, seat, worker_ranks.first);
        TELL_UINT(to, seat, worker_ranks.world);
        TELL_UINT(to, seat, worker_ranks.role_first);
        TELL_UINT(to, seat, worker_ranks.role_world);
    }
    TELL_CHARS(to, round, address);
    TELL_UINT(to, round, waiting);
    golden_line(to, "why %s", mst__authority_why_name(round->why));
    TELL_UINT(to, round, gone_count);
    TELL_CHARS(to, round, gone);
    tell_flags(to, "is_gone", round->is_gone, round->world);
    tell_flags(to, "is_finished", round->is_finished, round->world);
    TELL_UINT(to, round, finished_count);
    TELL_CHARS(to, round, reason);
    TELL_CHARS(to, round, owner);
    golden_line(to, "outcome %s", mst__job_outcome_name(round->outcome));
    const struct mst__job_end end = mst__etcd_v3_round_end(round);
    TELL_BOOL(to, &end, has_cause);
    if (end.has_cause) {
        TELL_UINT(to, &end, cause.rank);
        TELL_TEXT(to, &end, cause.node);
        tell_cause(to, &end.cause);
    }
    TELL_UINT(to, round, restarts);
    TELL_INT(to, round, restarts_wall_us);
    TELL_UINT(to, round, restarts_total);
    TELL_UINT(to, round, restarts_before);
    golden_line(to, "start %s", mst__job_start_name(round->start));
}

static void tell_letter(struct mst__buf *to, const struct mst__etcd_v3_letter *from)
{
    TELL_INT(to, from, kind);
    TELL_UINT(to, from, epoch);
    TELL_INT(to, from, round);
    TELL_UINT(to, from, rank);
    TELL_CHARS(to, from, name);
    TELL_UINT(to, from, worker_ranks.first);
    TELL_UINT(to, from, worker_ranks.world);
    TELL_UINT(to, from, worker_ranks.role_first);
    TELL_UINT(to, from, worker_ranks.role_world);
    TELL_INT(to, from, code);
    TELL_CHARS(to, from, text);
}

/* --- pieces --- */

static const char *const names[] = {
    "node_new",      "node_failed", "node_finished",  "round_none",
    "round_running", "round_open",  "round_failed",   "round_sharded",
    "round_closed",  "letter_rank", "letter_refused", "letter_expelled",
};
#define PIECES_COUNT (sizeof names / sizeof names[0])
#define ROUNDS_FIRST 3
#define LETTERS_FIRST 9

static const char *piece_name(size_t index)
{
    return names[index];
}

static void round_at(size_t index, struct mst__etcd_v3_round *round)
{
    static const enum mst__etcd_v3_state states[] = {MST_ETCD_V3_NONE,    MST_ETCD_V3_RUNNING,
                                                     MST_ETCD_V3_OPEN,    MST_ETCD_V3_OPEN,
                                                     MST_ETCD_V3_RUNNING, MST_ETCD_V3_CLOSED};
    bool has_failed =
        strcmp(names[index], "round_failed") == 0 || strcmp(names[index], "round_closed") == 0;
    make_round(states[index - ROUNDS_FIRST], strcmp(names[index], "round_sharded") == 0, has_failed,
               round);
}

static struct mst__etcd_v3_letter letter_at(size_t index)
{
    return letter((enum mst__etcd_v3_letter_kind)(MST_ETCD_V3_LETTER_RANK + index - LETTERS_FIRST));
}

static void piece_write(size_t index, struct mst__buf *bytes)
{
    int rv;
    if (index < ROUNDS_FIRST) {
        struct mst__etcd_v3_node node;
        make_node(index, &node);
        rv = mst__etcd_v3_node_write(&node.said, &node.word, node.has_left, bytes);
    } else if (index < LETTERS_FIRST) {
        struct mst__etcd_v3_round round;
        round_at(index, &round);
        rv = mst__etcd_v3_round_write(&round, bytes);
    } else {
        const struct mst__etcd_v3_letter made = letter_at(index);
        rv = mst__etcd_v3_letter_write(&made, bytes);
    }
    if (rv != 0) {
        (void)fprintf(stderr, "%s: cannot be written: %d\n", names[index], rv);
    }
}

static void piece_tell(size_t index, struct mst__buf *to)
{
    if (index < ROUNDS_FIRST) {
        struct mst__etcd_v3_node node;
        make_node(index, &node);
        tell_node(to, &node);
    } else if (index < LETTERS_FIRST) {
        struct mst__etcd_v3_round round;
        round_at(index, &round);
        tell_round(to, &round);
    } else {
        const struct mst__etcd_v3_letter made = letter_at(index);
        tell_letter(to, &made);
    }
}

static bool piece_read(const char *name, struct mst_bytes bytes, struct mst__buf *to)
{
    struct mst_err err = {0};
    int rv;
    if (strncmp(name, "node_", 5) == 0) {
        struct mst__etcd_v3_node node;
        rv = mst__etcd_v3_node_read(bytes, &node, &err);
        if (rv == 0) {
            tell_node(to, &node);
            mst__etcd_v3_node_close(&node);
        }
    } else if (strncmp(name, "round_", 6) == 0) {
        struct mst__etcd_v3_round round;
        rv = mst__etcd_v3_round_read(bytes, &round, &err);
        if (rv == 0) {
            tell_round(to, &round);
            mst__etcd_v3_round_close(&round);
        }
    } else {
        struct mst__etcd_v3_letter got;
        rv = mst__etcd_v3_letter_read(bytes, &got, &err);
        if (rv == 0) {
            tell_letter(to, &got);
        }
    }
    return rv == 0;
}

/* A later release may add members to a document. */
static bool piece_keeps(const char *name, struct mst_bytes before, struct mst_bytes now)
{
    (void)name;
    json_t *old = json_loadb((const char *)before.data, before.size, 0, NULL);
    json_t *new = json_loadb((const char *)now.data, now.size, 0, NULL);
    bool is_kept = old != NULL && new != NULL;
    const char *key;
    json_t *value;
    json_object_foreach(old, key, value)
    {
        is_kept = is_kept && json_equal(json_object_get(new, key), value);
    }
    json_decref(old);
    json_decref(new);
    return is_kept;
}

int main(int argc, char **argv)
{
    static const struct golden_format format = {
        .count = PIECES_COUNT,
        .is_text = true,
        .name = piece_name,
        .write = piece_write,
        .tell = piece_tell,
        .read = piece_read,
        .keeps = piece_keeps,
    };
    return golden_main(argc, argv, &format);
}
