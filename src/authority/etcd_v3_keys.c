/* authority/etcd_v3_keys.c - names and documents. Another release or etcdctl may have written
 * them: unknown members are ignored, anything else that is invalid makes the document invalid. */
#include "authority/etcd_v3_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/percent.h"

#define ROOT "/muster/"

/* --- names --- */

/* @before, then @name escaped unless NULL, then @behind: heap, or NULL. */
static char *name_make(const char *before, const char *name, const char *behind)
{
    struct mst__buf buf;
    mst__buf_init(&buf, MST_ETCD_V3_TEXT_MAX);
    int rv = mst__buf_append(&buf, mst_bytes_str(before));
    if (rv == 0 && name != NULL) {
        rv = mst__percent_append(&buf, mst_bytes_str(name), MST_PERCENT_NAME);
    }
    if (rv == 0) {
        rv = mst__buf_append(&buf, mst_bytes_str(behind));
    }
    struct mst_bytes bytes = mst__buf_bytes(&buf);
    char *text = rv == 0 ? mst__memdup((const char *)bytes.data, bytes.size) : NULL;
    mst__buf_close(&buf);
    return text;
}

int mst__etcd_v3_keys_init(struct mst__etcd_v3_keys *keys, const char *run_id)
{
    *keys = (struct mst__etcd_v3_keys){.root = name_make(ROOT, run_id, "/")};
    if (keys->root == NULL) {
        return MST_ENOMEM;
    }
    keys->nodes = name_make(keys->root, NULL, "n/");
    keys->letters = name_make(keys->root, NULL, "a/");
    keys->round = name_make(keys->root, NULL, "round");
    keys->last = name_make(keys->root, NULL, "last");
    bool is_made =
        keys->nodes != NULL && keys->letters != NULL && keys->round != NULL && keys->last != NULL;
    return is_made ? 0 : MST_ENOMEM;
}

void mst__etcd_v3_keys_close(struct mst__etcd_v3_keys *keys)
{
    mst__free(keys->root);
    mst__free(keys->nodes);
    mst__free(keys->letters);
    mst__free(keys->round);
    mst__free(keys->last);
    *keys = (struct mst__etcd_v3_keys){0};
}

char *mst__etcd_v3_key_node(const struct mst__etcd_v3_keys *keys,
                            const char *name,
                            uint64_t session)
{
    char behind[MST_ETCD_V3_SESSION_SIZE + 2];
    (void)snprintf(behind, sizeof behind, "/%016" PRIx64, session); /* fits */
    return name_make(keys->nodes, name, behind);
}

char *mst__etcd_v3_key_letter(const struct mst__etcd_v3_keys *keys, uint64_t session)
{
    char behind[MST_ETCD_V3_SESSION_SIZE + 1];
    (void)snprintf(behind, sizeof behind, "%016" PRIx64, session); /* fits */
    return name_make(keys->letters, NULL, behind);
}

char *mst__etcd_v3_key_store(const struct mst__etcd_v3_keys *keys, int64_t round, uint64_t epoch)
{
    char behind[64];
    (void)snprintf(behind, sizeof behind, "kv/%" PRId64 ".%" PRIu64, round, epoch); /* fits */
    return name_make(keys->root, NULL, behind);
}

char *mst__etcd_v3_key_stores(const struct mst__etcd_v3_keys *keys, int64_t round)
{
    char behind[32];
    (void)snprintf(behind, sizeof behind, "kv/%" PRId64 ".", round); /* fits */
    return name_make(keys->root, NULL, behind);
}

static bool hex_read(struct mst_bytes text, uint64_t *ret_value)
{
    uint64_t value = 0;
    if (text.size != MST_ETCD_V3_SESSION_SIZE) {
        return false;
    }
    for (size_t i = 0; i < text.size; i++) {
        uint8_t digit = text.data[i];
        bool is_number = digit >= '0' && digit <= '9';
        if (!is_number && (digit < 'a' || digit > 'f')) {
            return false;
        }
        value = value << 4 | (uint64_t)(is_number ? digit - '0' : digit - 'a' + 10);
    }
    *ret_value = value;
    return true;
}

bool mst__etcd_v3_key_session(struct mst_bytes key, uint64_t *ret_session)
{
    if (key.size <= MST_ETCD_V3_SESSION_SIZE ||
        key.data[key.size - MST_ETCD_V3_SESSION_SIZE - 1] != '/') {
        return false;
    }
    return hex_read(
        mst_bytes_of(key.data + key.size - MST_ETCD_V3_SESSION_SIZE, MST_ETCD_V3_SESSION_SIZE),
        ret_session);
}

/* --- writing and reading --- */

static int session_add(struct mst__json *json, const char *name, uint64_t session)
{
    char text[MST_ETCD_V3_SESSION_SIZE + 1];
    (void)snprintf(text, sizeof text, "%016" PRIx64, session); /* fits */
    return mst__json_add_text(json, name, mst_bytes_str(text));
}

/* Append @json, which is released, to @buf, unless @rv is an error. */
static int json_finish(struct mst__json *json, int rv, struct mst__buf *buf)
{
    rv = json == NULL ? MST_ENOMEM : rv;
    if (rv == 0) {
        rv = mst__json_write(json, false, buf);
    }
    mst__json_free(json);
    return rv;
}

static int json_begin(struct mst_bytes text,
                      const char *what,
                      struct mst__json **ret_json,
                      struct mst_err *reterr)
{
    int rv = mst__json_parse(text, ret_json, reterr);
    if (rv != 0) {
        return mst__err_wrap(reterr, rv, "%s", what);
    }
    if (!mst__json_is_object(*ret_json)) {
        mst__json_free(*ret_json);
        return mst__fail(reterr, MST_EPROTO, 0, "%s: not a JSON object", what);
    }
    return 0;
}

static bool json_u32(const struct mst__json *json, const char *name, uint32_t *ret)
{
    uint64_t value;
    if (!mst__json_uint(mst__json_member(json, name), &value) || value > UINT32_MAX) {
        return false;
    }
    *ret = (uint32_t)value;
    return true;
}

static bool json_i64(const struct mst__json *json, const char *name, int64_t *ret)
{
    return mst__json_int(mst__json_member(json, name), ret);
}

/* Text that fits and has no control characters; missing text is empty. */
static bool json_text(const struct mst__json *json, const char *name, char *ret, size_t size)
{
    struct mst_bytes text = mst_bytes_str("");
    const struct mst__json *member = mst__json_member(json, name);
    if (member != NULL && !mst__json_text(member, &text)) {
        return false;
    }
    if (text.size >= size) {
        return false;
    }
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < 0x20) {
            return false;
        }
    }
    memcpy(ret, text.data, text.size);
    ret[text.size] = '\0';
    return true;
}

/* The index of @text among the names of an enumeration, or -1. */
static int word_find(struct mst_bytes text, const char *(*name_of)(int), int count)
{
    for (int i = 0; i < count; i++) {
        const char *name = name_of(i);
        if (strlen(name) == text.size && memcmp(name, text.data, text.size) == 0) {
            return i;
        }
    }
    return -1;
}

/* --- a node --- */

static int claim_add(struct mst__json *json, const struct mst__claim *claim)
{
    struct mst__json *child = mst__json_new_object();
    int rv = mst__json_add_uint_text(child, "epoch", claim->epoch);
    rv = rv == 0 ? mst__json_add_int(child, "round", claim->round) : rv;
    rv = rv == 0 ? mst__json_add_int(child, "world", claim->world) : rv;
    if (rv == 0 && claim->rank != MST_AUTHORITY_RANK_NONE) {
        rv = mst__json_add_int(child, "rank", claim->rank);
    }
    int added = mst__json_add(json, "claim", child);
    return rv == 0 ? added : rv;
}

static int labels_add(struct mst__json *json, const struct mst__announcement *said)
{
    struct mst__json *list = mst__json_new_array();
    int rv = list == NULL ? MST_ENOMEM : 0;
    for (size_t i = 0; i < said->labels_count && rv == 0; i++) {
        struct mst__json *pair = mst__json_new_array();
        rv = mst__json_add_text(pair, NULL, said->labels[i].key);
        rv = rv == 0 ? mst__json_add_text(pair, NULL, said->labels[i].value) : rv;
        int added = mst__json_add(list, NULL, pair);
        rv = rv == 0 ? added : rv;
    }
    int added = mst__json_add(json, "labels", list);
    return rv == 0 ? added : rv;
}

/* The common part of a report and a cause. */
static int failure_add(struct mst__json *json, const struct mst__cause *cause)
{
    int rv = mst__json_add_int(json, "status", cause->status);
    if (rv == 0 && cause->worker != MST_CAUSE_WORKER_NONE) {
        rv = mst__json_add_int(json, "worker", cause->worker);
    }
    rv = rv == 0 && cause->signal != 0 ? mst__json_add_int(json, "signal", cause->signal) : rv;
    rv = rv == 0 ? mst__json_add_int(json, "wall_us", cause->wall_us) : rv;
    return rv == 0 ? mst__json_add_text(json, "text", cause->text) : rv;
}

/* The report of a failure, beside it in the document. */
static int report_add(struct mst__json *json, struct mst_bytes report)
{
    return report.size == 0 ? 0 : mst__json_add_text(json, "report", report);
}

/* It belongs to the document. */
static bool report_get(const struct mst__json *json, struct mst_bytes *ret_report)
{
    const struct mst__json *report = mst__json_member(json, "report");
    return report == NULL || (mst__json_text(report, ret_report) &&
                              ret_report->size <= MST_AUTHORITY_REPORT_SIZE_MAX);
}

static int word_add(struct mst__json *json, const struct mst__etcd_v3_word *word)
{
    struct mst__json *child = mst__json_new_object();
    int rv =
        mst__json_add_text(child, "kind", mst_bytes_str(word->is_finish ? "finish" : "restart"));
    rv = rv == 0 ? mst__json_add_uint_text(child, "epoch", word->epoch) : rv;
    rv = rv == 0 ? mst__json_add_int(child, "round", word->round) : rv;
    rv = rv == 0 ? failure_add(child, &word->cause) : rv;
    int added = mst__json_add(json, "word", child);
    return rv == 0 ? added : rv;
}

static int workers_add(struct mst__json *json, const struct mst__announcement *said)
{
    int rv = mst__json_add_int(json, "workers", said->workers);
    return rv == 0 ? mst__json_add_text(json, "role", said->role) : rv;
}

static int budget_add(struct mst__json *json, const struct mst__budget *budget)
{
    int rv = mst__json_add_int(json, "restarts_max", budget->restarts_max);
    return rv == 0 ? mst__json_add_int(json, "window_us", budget->window_us) : rv;
}

int mst__etcd_v3_node_write(const struct mst__announcement *said,
                            const struct mst__etcd_v3_word *word,
                            bool has_left,
                            struct mst__buf *buf)
{
    struct mst__json *json = mst__json_new_object();
    int rv = mst__json_add_text(json, "name", said->name);
    rv = rv == 0 ? mst__json_add_text(json, "address", said->address) : rv;
    rv = rv == 0 ? mst__json_add_int(json, "min", said->nodes_min) : rv;
    rv = rv == 0 ? mst__json_add_int(json, "max", said->nodes_max) : rv;
    rv = rv == 0 ? mst__json_add_int(json, "last_call_us", said->last_call_us) : rv;
    rv = rv == 0 ? mst__json_add_text(json, "rank_by", said->rank_by) : rv;
    if (rv == 0 && said->pinned_rank != MST_AUTHORITY_RANK_NONE) {
        rv = mst__json_add_int(json, "rank", said->pinned_rank);
    }
    rv = rv == 0 && said->labels_count > 0 ? labels_add(json, said) : rv;
    rv = rv == 0 && said->claim.round > 0 ? claim_add(json, &said->claim) : rv;
    if (rv == 0 && said->incarnation > 0) {
        rv = mst__json_add_uint_text(json, "incarnation", said->incarnation);
    }
    rv = rv == 0 && said->has_wall ? mst__json_add_int(json, "wall_us", said->wall_us) : rv;
    rv = rv == 0 && said->budget.is_limited ? budget_add(json, &said->budget) : rv;
    rv = rv == 0 && said->is_fixed ? mst__json_add_bool(json, "fixed", true) : rv;
    rv = rv == 0 && said->workers > 0 ? workers_add(json, said) : rv;
    rv = rv == 0 && word->is_said ? word_add(json, word) : rv;
    rv = rv == 0 && word->is_said ? report_add(json, word->cause.report) : rv;
    rv = rv == 0 && has_left ? mst__json_add_bool(json, "left", true) : rv;
    return json_finish(json, rv, buf);
}

static bool claim_get(const struct mst__json *json, struct mst__claim *claim)
{
    *claim = (struct mst__claim){.rank = MST_AUTHORITY_RANK_NONE};
    if (json == NULL) {
        return true;
    }
    bool has_rank = mst__json_member(json, "rank") != NULL;
    return mst__json_uint(mst__json_member(json, "epoch"), &claim->epoch) &&
           json_i64(json, "round", &claim->round) && json_u32(json, "world", &claim->world) &&
           (!has_rank || json_u32(json, "rank", &claim->rank));
}

/* Texts belong to the document. */
static bool failure_get(const struct mst__json *json, struct mst__cause *cause)
{
    int64_t status = 0;
    bool has_worker = mst__json_member(json, "worker") != NULL;
    bool has_signal = mst__json_member(json, "signal") != NULL;
    *cause = (struct mst__cause){.rank = MST_AUTHORITY_RANK_NONE, .worker = MST_CAUSE_WORKER_NONE};
    bool is_right = json_i64(json, "status", &status) && status >= INT32_MIN &&
                    status <= INT32_MAX &&
                    (!has_worker || json_u32(json, "worker", &cause->worker)) &&
                    (!has_signal || json_u32(json, "signal", &cause->signal)) &&
                    json_i64(json, "wall_us", &cause->wall_us) &&
                    mst__json_text(mst__json_member(json, "text"), &cause->text) &&
                    cause->text.size <= MST_AUTHORITY_CAUSE_SIZE_MAX;
    cause->status = (int32_t)status;
    return is_right;
}

static bool word_get(const struct mst__json *json, struct mst__etcd_v3_word *word)
{
    struct mst_bytes kind;
    if (json == NULL) {
        return true;
    }
    bool is_right = mst__json_text(mst__json_member(json, "kind"), &kind) &&
                    mst__json_uint(mst__json_member(json, "epoch"), &word->epoch) &&
                    json_i64(json, "round", &word->round) && failure_get(json, &word->cause);
    word->is_finish = is_right && mst__bytes_equal(kind, mst_bytes_str("finish"));
    word->is_said =
        word->is_finish || (is_right && mst__bytes_equal(kind, mst_bytes_str("restart")));
    return is_right;
}

static bool budget_get(const struct mst__json *json, struct mst__budget *budget)
{
    budget->is_limited = mst__json_member(json, "restarts_max") != NULL;
    return !budget->is_limited || (json_u32(json, "restarts_max", &budget->restarts_max) &&
                                   json_i64(json, "window_us", &budget->window_us));
}

static bool workers_get(const struct mst__json *json, struct mst__announcement *said)
{
    return mst__json_member(json, "workers") == NULL ||
           (json_u32(json, "workers", &said->workers) &&
            mst__json_text(mst__json_member(json, "role"), &said->role));
}

static bool labels_get(struct mst__etcd_v3_node *node)
{
    const struct mst__json *list = mst__json_member(node->json, "labels");
    size_t count = mst__json_count(list);
    if (count > MST_AUTHORITY_LABELS_MAX) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const struct mst__json *pair = mst__json_at(list, i);
        if (!mst__json_text(mst__json_at(pair, 0), &node->labels[i].key) ||
            !mst__json_text(mst__json_at(pair, 1), &node->labels[i].value)) {
            return false;
        }
    }
    node->said.labels_count = count;
    return true;
}

int mst__etcd_v3_node_read(struct mst_bytes text,
                           struct mst__etcd_v3_node *ret_node,
                           struct mst_err *reterr)
{
    struct mst__etcd_v3_node node = {.said.pinned_rank = MST_AUTHORITY_RANK_NONE};
    int rv = json_begin(text, "announcement", &node.json, reterr);
    if (rv != 0) {
        return rv;
    }
    struct mst__announcement *said = &node.said;
    const struct mst__json *json = node.json;
    const struct mst__json *left = mst__json_member(json, "left");
    const struct mst__json *fixed = mst__json_member(json, "fixed");
    const struct mst__json *incarnation = mst__json_member(json, "incarnation");
    bool has_rank = mst__json_member(json, "rank") != NULL;
    said->has_wall = json_i64(json, "wall_us", &said->wall_us);
    bool is_right =
        mst__json_text(mst__json_member(json, "name"), &said->name) &&
        mst__json_text(mst__json_member(json, "address"), &said->address) &&
        mst__json_text(mst__json_member(json, "rank_by"), &said->rank_by) &&
        json_u32(json, "min", &said->nodes_min) && json_u32(json, "max", &said->nodes_max) &&
        json_i64(json, "last_call_us", &said->last_call_us) &&
        (!has_rank || json_u32(json, "rank", &said->pinned_rank)) && labels_get(&node) &&
        claim_get(mst__json_member(json, "claim"), &said->claim) &&
        (incarnation == NULL || mst__json_uint(incarnation, &said->incarnation)) &&
        budget_get(json, &said->budget) &&
        (fixed == NULL || mst__json_bool(fixed, &said->is_fixed)) && workers_get(json, said) &&
        word_get(mst__json_member(json, "word"), &node.word) &&
        report_get(json, &node.word.cause.report) &&
        (left == NULL || mst__json_bool(left, &node.has_left));
    if (!is_right) {
        mst__json_free(node.json);
        return mst__fail(reterr, MST_EPROTO, 0, "announcement: a member is missing or wrong");
    }
    *ret_node = node;
    ret_node->said.labels = ret_node->labels;
    return 0;
}

void mst__etcd_v3_node_close(struct mst__etcd_v3_node *node)
{
    mst__json_free(node->json);
    *node = (struct mst__etcd_v3_node){0};
}

/* --- the round --- */

const char *mst__etcd_v3_state_name(enum mst__etcd_v3_state state)
{
    static const char *const names[] = {"none", "running", "open", "closed"};
    return names[state];
}

static const char *state_name(int state)
{
    return mst__etcd_v3_state_name((enum mst__etcd_v3_state)state);
}

static const char *why_name(int why)
{
    return mst__authority_why_name((enum mst__authority_why)why);
}

void mst__etcd_v3_round_close(struct mst__etcd_v3_round *round)
{
    for (uint32_t rank = 0; round->seats != NULL && rank < round->world; rank++) {
        mst__free(round->seats[rank].name);
    }
    mst__free(round->seats);
    mst__free(round->is_gone);
    mst__free(round->is_finished);
    *round = (struct mst__etcd_v3_round){0};
}

/* Copy @flags, by rank; NULL = none. Returns 0 or MST_ENOMEM. */
static int flags_copy(const bool *flags, uint32_t world, bool **ret_flags)
{
    *ret_flags = NULL;
    if (flags == NULL) {
        return 0;
    }
    *ret_flags = mst__calloc(world + (size_t)1, sizeof **ret_flags);
    if (*ret_flags == NULL) {
        return MST_ENOMEM;
    }
    memcpy(*ret_flags, flags, world * sizeof *flags);
    return 0;
}

static int seats_copy(const struct mst__etcd_v3_round *from, struct mst__etcd_v3_round *to)
{
    to->seats = from->seats == NULL ? NULL : mst__calloc(from->world, sizeof *to->seats);
    if (from->seats != NULL && to->seats == NULL) {
        return MST_ENOMEM;
    }
    for (uint32_t rank = 0; from->seats != NULL && rank < from->world; rank++) {
        to->seats[rank] = from->seats[rank];
        to->seats[rank].name = mst__strdup(from->seats[rank].name);
        if (to->seats[rank].name == NULL) {
            return MST_ENOMEM;
        }
    }
    return 0;
}

int mst__etcd_v3_round_copy(const struct mst__etcd_v3_round *from,
                            struct mst__etcd_v3_round *ret_to)
{
    struct mst__etcd_v3_round to = *from;
    to.seats = NULL;
    to.is_finished = NULL;
    int rv = flags_copy(from->is_gone, from->world, &to.is_gone);
    rv = rv == 0 ? flags_copy(from->is_finished, from->world, &to.is_finished) : rv;
    rv = rv == 0 ? seats_copy(from, &to) : rv;
    if (rv != 0) {
        mst__etcd_v3_round_close(&to);
        return rv;
    }
    *ret_to = to;
    return 0;
}

uint32_t mst__etcd_v3_round_rank(const struct mst__etcd_v3_round *round, uint64_t session)
{
    for (uint32_t rank = 0; round->seats != NULL && rank < round->world; rank++) {
        if (round->seats[rank].session == session) {
            return rank;
        }
    }
    return MST_AUTHORITY_RANK_NONE;
}

/* Append the four numbers to @list. */
static int worker_ranks_add(struct mst__json *list, const struct mst__worker_ranks *ranks)
{
    const uint32_t numbers[] = {ranks->first, ranks->world, ranks->role_first, ranks->role_world};
    int rv = 0;
    for (size_t i = 0; i < 4 && rv == 0; i++) {
        rv = mst__json_add_int(list, NULL, numbers[i]);
    }
    return rv;
}

/* The @index-th four of @list; zeros without a list, from an older muster. */
static bool worker_ranks_get(const struct mst__json *list,
                             size_t index,
                             struct mst__worker_ranks *ranks)
{
    uint64_t numbers[4] = {0};
    bool is_right = true;
    for (size_t i = 0; i < 4 && is_right && list != NULL; i++) {
        is_right = mst__json_uint(mst__json_at(list, 4 * index + i), &numbers[i]) &&
                   numbers[i] <= UINT32_MAX;
    }
    *ranks = (struct mst__worker_ranks){.first = (uint32_t)numbers[0],
                                        .world = (uint32_t)numbers[1],
                                        .role_first = (uint32_t)numbers[2],
                                        .role_world = (uint32_t)numbers[3]};
    return is_right;
}

static int seats_add(struct mst__json *json, const struct mst__etcd_v3_round *round)
{
    struct mst__json *list = mst__json_new_array();
    int rv = list == NULL ? MST_ENOMEM : 0;
    for (uint32_t rank = 0; rank < round->world && rv == 0; rank++) {
        const struct mst__etcd_v3_seat *seat = &round->seats[rank];
        struct mst__json *pair = mst__json_new_array();
        rv = mst__json_add_text(pair, NULL, mst_bytes_str(seat->name));
        rv = rv == 0 ? session_add(pair, NULL, seat->session) : rv;
        int added = mst__json_add(list, NULL, pair);
        rv = rv == 0 ? added : rv;
    }
    int added = mst__json_add(json, "members", list);
    return rv == 0 ? added : rv;
}

/* The ranks of workers, in the order of the members. */
static int seats_workers_add(struct mst__json *json, const struct mst__etcd_v3_round *round)
{
    struct mst__json *list = mst__json_new_array();
    int rv = list == NULL ? MST_ENOMEM : 0;
    for (uint32_t rank = 0; rank < round->world && rv == 0; rank++) {
        rv = worker_ranks_add(list, &round->seats[rank].worker_ranks);
    }
    int added = mst__json_add(json, "workers", list);
    return rv == 0 ? added : rv;
}

/* Append @flags as spans of ranks: few or most ranks of a large round are short. */
static int flags_add(struct mst__json *json, const char *name, const bool *flags, uint32_t world)
{
    struct mst__json *list = mst__json_new_array();
    int rv = list == NULL ? MST_ENOMEM : 0;
    for (uint32_t rank = 0; rank < world && rv == 0; rank++) {
        if (!flags[rank]) {
            continue;
        }
        struct mst__json *span = mst__json_new_array();
        rv = mst__json_add_int(span, NULL, rank);
        while (rank + 1 < world && flags[rank + 1]) {
            rank++;
        }
        rv = rv == 0 ? mst__json_add_int(span, NULL, rank) : rv;
        int added = mst__json_add(list, NULL, span);
        rv = rv == 0 ? added : rv;
    }
    int added = mst__json_add(json, name, list);
    return rv == 0 ? added : rv;
}

struct mst__job_end mst__etcd_v3_round_end(const struct mst__etcd_v3_round *round)
{
    struct mst__job_end end = {
        .outcome = round->outcome, .has_cause = round->has_cause, .cause = round->cause};
    end.cause.node = mst_bytes_str(round->cause_node);
    end.cause.text = mst_bytes_str(round->cause_text);
    end.cause.report = mst_bytes_str(round->cause_report);
    return end;
}

static int cause_add(struct mst__json *json, const struct mst__etcd_v3_round *round)
{
    const struct mst__job_end end = mst__etcd_v3_round_end(round);
    struct mst__json *child = mst__json_new_object();
    int rv = mst__json_add_text(child, "node", end.cause.node);
    if (rv == 0 && end.cause.rank != MST_AUTHORITY_RANK_NONE) {
        rv = mst__json_add_int(child, "rank", end.cause.rank);
    }
    rv = rv == 0 ? failure_add(child, &end.cause) : rv;
    int added = mst__json_add(json, "cause", child);
    return rv == 0 ? added : rv;
}

static bool cause_get(const struct mst__json *json, struct mst__etcd_v3_round *round)
{
    struct mst__cause *cause = &round->cause;
    if (json == NULL) {
        return true;
    }
    bool has_rank = mst__json_member(json, "rank") != NULL;
    round->has_cause = failure_get(json, cause) &&
                       (!has_rank || json_u32(json, "rank", &cause->rank)) &&
                       json_text(json, "node", round->cause_node, sizeof round->cause_node) &&
                       json_text(json, "text", round->cause_text, sizeof round->cause_text);
    cause->text = mst_bytes_str(""); /* see mst__etcd_v3_round_end */
    return round->has_cause;
}

static const char *outcome_name(int outcome)
{
    return mst__job_outcome_name((enum mst__job_outcome)outcome);
}

static const char *start_name(int start)
{
    return mst__job_start_name((enum mst__job_start)start);
}

/* Add the end of work. */
static int work_add(struct mst__json *json, const struct mst__etcd_v3_round *round)
{
    int rv = 0;
    if (round->state == MST_ETCD_V3_CLOSED && round->outcome != MST_JOB_OUTCOME_ASKED) {
        rv = mst__json_add_text(json, "outcome", mst_bytes_str(outcome_name((int)round->outcome)));
    }
    if (rv == 0 && round->restarts > 0) {
        rv = mst__json_add_int(json, "restarts", round->restarts);
        rv = rv == 0 ? mst__json_add_int(json, "restarts_wall_us", round->restarts_wall_us) : rv;
        rv = rv == 0 ? mst__json_add_int(json, "restarts_total", round->restarts_total) : rv;
    }
    if (rv == 0 && round->restarts_before > 0) {
        rv = mst__json_add_int(json, "restarts_before", round->restarts_before);
    }
    if (rv == 0 && round->start != MST_JOB_START_UNKNOWN) {
        rv = mst__json_add_text(json, "start", mst_bytes_str(start_name((int)round->start)));
    }
    if (rv == 0 && round->finished_count > 0) {
        rv = flags_add(json, "finished_ranks", round->is_finished, round->world);
    }
    rv = rv == 0 && round->has_cause ? cause_add(json, round) : rv;
    return rv == 0 && round->has_cause ? report_add(json, mst_bytes_str(round->cause_report)) : rv;
}

/* Earlier releases do not write these. */
static bool restarts_get(const struct mst__json *json, struct mst__etcd_v3_round *round)
{
    struct mst_bytes start = mst_bytes_str(start_name(MST_JOB_START_UNKNOWN));
    const struct mst__json *total = mst__json_member(json, "restarts_total");
    const struct mst__json *before = mst__json_member(json, "restarts_before");
    const struct mst__json *member = mst__json_member(json, "start");
    round->restarts_total = round->restarts;
    bool is_right =
        (total == NULL || json_u32(json, "restarts_total", &round->restarts_total)) &&
        (before == NULL || json_u32(json, "restarts_before", &round->restarts_before)) &&
        (member == NULL || mst__json_text(member, &start));
    is_right = is_right && round->restarts <= round->restarts_total;
    int found = word_find(start, start_name, MST_JOB_START_COUNT);
    round->start = found < 0 ? MST_JOB_START_UNKNOWN : (enum mst__job_start)found;
    return is_right;
}

static bool work_get(const struct mst__json *json, struct mst__etcd_v3_round *round)
{
    struct mst_bytes outcome = mst_bytes_str(outcome_name(MST_JOB_OUTCOME_ASKED));
    const struct mst__json *member = mst__json_member(json, "outcome");
    bool has_restarts = mst__json_member(json, "restarts") != NULL;
    if (member != NULL && !mst__json_text(member, &outcome)) {
        return false;
    }
    int found = word_find(outcome, outcome_name, MST_JOB_OUTCOME_COUNT);
    struct mst_bytes report = mst_bytes_str("");
    if (!report_get(json, &report)) {
        return false;
    }
    memcpy(round->cause_report, report.data, report.size);
    round->cause_report[report.size] = '\0';
    /* Unknown, of a later release: closed. */
    round->outcome = found < 0 ? MST_JOB_OUTCOME_ASKED : (enum mst__job_outcome)found;
    return cause_get(mst__json_member(json, "cause"), round) &&
           (!has_restarts || (json_u32(json, "restarts", &round->restarts) &&
                              json_i64(json, "restarts_wall_us", &round->restarts_wall_us))) &&
           restarts_get(json, round);
}

int mst__etcd_v3_round_write(const struct mst__etcd_v3_round *round, struct mst__buf *buf)
{
    struct mst__json *json = mst__json_new_object();
    int rv =
        mst__json_add_text(json, "state", mst_bytes_str(mst__etcd_v3_state_name(round->state)));
    rv = rv == 0 ? mst__json_add_uint_text(json, "epoch", round->epoch) : rv;
    rv = rv == 0 ? mst__json_add_int(json, "round", round->round) : rv;
    rv = rv == 0 ? mst__json_add_int(json, "before", round->before) : rv;
    rv = rv == 0 ? mst__json_add_int(json, "world", round->world) : rv;
    if (rv == 0 && round->first_world > round->world) {
        rv = mst__json_add_int(json, "first", round->first_world);
    }
    rv = rv == 0 ? mst__json_add_text(json, "address", mst_bytes_str(round->address)) : rv;
    if (rv == 0 && round->state == MST_ETCD_V3_OPEN) {
        /* Nodes of earlier releases do not know this reason; the cause shows that it is a
         * failure. */
        enum mst__authority_why why =
            round->why == MST_AUTHORITY_WHY_FAILED ? MST_AUTHORITY_WHY_RETURNED : round->why;
        rv = mst__json_add_text(json, "why", mst_bytes_str(why_name((int)why)));
        rv = rv == 0 ? mst__json_add_int(json, "gone_count", round->gone_count) : rv;
        rv = rv == 0 ? mst__json_add_text(json, "gone", mst_bytes_str(round->gone)) : rv;
        rv = rv == 0 && round->is_gone != NULL
                 ? flags_add(json, "gone_ranks", round->is_gone, round->world)
                 : rv;
    }
    if (rv == 0 && round->state == MST_ETCD_V3_CLOSED) {
        rv = mst__json_add_text(json, "reason", mst_bytes_str(round->reason));
        rv = rv == 0 ? mst__json_add_text(json, "owner", mst_bytes_str(round->owner)) : rv;
    }
    rv = rv == 0 ? work_add(json, round) : rv;
    rv = rv == 0 && round->waiting > 0 ? mst__json_add_int(json, "waiting", round->waiting) : rv;
    rv = rv == 0 && round->seats != NULL ? seats_add(json, round) : rv;
    bool has_workers = round->seats != NULL && round->seats[0].worker_ranks.world > 0;
    rv = rv == 0 && has_workers ? seats_workers_add(json, round) : rv;
    return json_finish(json, rv, buf);
}

/* Returns 0, MST_EPROTO, MST_ENOMEM; the seats read so far belong to the round. */
static int seats_get(const struct mst__json *list,
                     const struct mst__json *workers,
                     struct mst__etcd_v3_round *round)
{
    if (list == NULL) {
        round->is_sharded = round->world > 0;
        return 0;
    }
    if (mst__json_count(list) != round->world) {
        return MST_EPROTO;
    }
    round->seats = mst__calloc(round->world + (size_t)1, sizeof *round->seats);
    if (round->seats == NULL) {
        return MST_ENOMEM;
    }
    for (uint32_t rank = 0; rank < round->world; rank++) {
        const struct mst__json *pair = mst__json_at(list, rank);
        struct mst_bytes name;
        struct mst_bytes session;
        if (!mst__json_text(mst__json_at(pair, 0), &name) ||
            !mst__json_text(mst__json_at(pair, 1), &session) ||
            !worker_ranks_get(workers, rank, &round->seats[rank].worker_ranks) ||
            name.size > MST_AUTHORITY_NAME_SIZE_MAX || memchr(name.data, 0, name.size) != NULL ||
            !hex_read(session, &round->seats[rank].session)) {
            return MST_EPROTO;
        }
        round->seats[rank].name = mst__memdup((const char *)name.data, name.size);
        if (round->seats[rank].name == NULL) {
            return MST_ENOMEM;
        }
    }
    return 0;
}

/* Like seats_get; also counts the set flags. */
static int flags_get(const struct mst__json *list,
                     uint32_t world,
                     bool **ret_flags,
                     uint32_t *ret_count)
{
    size_t count = mst__json_count(list);
    if (count == 0) {
        return 0;
    }
    *ret_flags = mst__calloc(world + (size_t)1, sizeof **ret_flags);
    if (*ret_flags == NULL) {
        return MST_ENOMEM;
    }
    int64_t rank = 0; /* they ascend, so a list never costs more than its ranks */
    for (size_t i = 0; i < count; i++) {
        const struct mst__json *span = mst__json_at(list, i);
        int64_t first;
        int64_t last;
        if (!mst__json_int(mst__json_at(span, 0), &first) ||
            !mst__json_int(mst__json_at(span, 1), &last) || first < rank || last < first ||
            last >= (int64_t)world) {
            return MST_EPROTO;
        }
        for (rank = first; rank <= last; rank++) {
            (*ret_flags)[rank] = true;
            ++*ret_count;
        }
    }
    return 0;
}

/* Everything except the seats and the gone members. */
static bool round_get(const struct mst__json *json, struct mst__etcd_v3_round *round)
{
    struct mst_bytes state;
    struct mst_bytes why = mst_bytes_str("none");
    if (!mst__json_text(mst__json_member(json, "state"), &state)) {
        return false;
    }
    int found = word_find(state, state_name, MST_ETCD_V3_CLOSED + 1);
    const struct mst__json *reason = mst__json_member(json, "why");
    int cause = reason != NULL && !mst__json_text(reason, &why)
                    ? -1
                    : word_find(why, why_name, MST_AUTHORITY_WHY_ASKED + 1);
    bool has_waiting = mst__json_member(json, "waiting") != NULL;
    bool has_gone = mst__json_member(json, "gone_count") != NULL;
    bool has_first = mst__json_member(json, "first") != NULL;
    bool is_right =
        found >= 0 && cause >= 0 &&
        mst__json_uint(mst__json_member(json, "epoch"), &round->epoch) &&
        json_i64(json, "round", &round->round) && json_i64(json, "before", &round->before) &&
        json_u32(json, "world", &round->world) &&
        (!has_first || json_u32(json, "first", &round->first_world)) &&
        json_text(json, "address", round->address, sizeof round->address) &&
        (!has_waiting || json_u32(json, "waiting", &round->waiting)) &&
        (!has_gone || json_u32(json, "gone_count", &round->gone_count)) &&
        json_text(json, "gone", round->gone, sizeof round->gone) && work_get(json, round) &&
        json_text(json, "reason", round->reason, sizeof round->reason) &&
        json_text(json, "owner", round->owner, sizeof round->owner);
    if (!is_right) {
        return false;
    }
    round->state = (enum mst__etcd_v3_state)found;
    round->first_world = has_first ? round->first_world : round->world;
    bool has_failed = round->state == MST_ETCD_V3_OPEN && round->has_cause;
    round->why = has_failed ? MST_AUTHORITY_WHY_FAILED : (enum mst__authority_why)cause;
    bool is_sealed = round->state == MST_ETCD_V3_RUNNING || round->state == MST_ETCD_V3_OPEN;
    return round->round >= 0 && round->round <= MST_AUTHORITY_ROUND_MAX &&
           round->world <= MST_AUTHORITY_MEMBERS_MAX && round->first_world >= round->world &&
           round->first_world <= MST_AUTHORITY_MEMBERS_MAX &&
           (round->world > 0) == (round->round > 0) && (round->epoch > 0) == (round->round > 0) &&
           (!is_sealed || round->round > 0);
}

int mst__etcd_v3_round_read(struct mst_bytes text,
                            struct mst__etcd_v3_round *ret_round,
                            struct mst_err *reterr)
{
    struct mst__json *json = NULL;
    struct mst__etcd_v3_round round = {0};
    int rv = json_begin(text, "the round", &json, reterr);
    if (rv != 0) {
        return rv;
    }
    rv = round_get(json, &round) ? seats_get(mst__json_member(json, "members"),
                                             mst__json_member(json, "workers"), &round)
                                 : MST_EPROTO;
    uint32_t ignored = 0; /* gone_count is stored apart */
    if (rv == 0) {
        rv = flags_get(mst__json_member(json, "gone_ranks"), round.world, &round.is_gone, &ignored);
    }
    if (rv == 0) {
        rv = flags_get(mst__json_member(json, "finished_ranks"), round.world, &round.is_finished,
                       &round.finished_count);
    }
    mst__json_free(json);
    if (rv != 0) {
        mst__etcd_v3_round_close(&round);
        return mst__fail(reterr, rv, 0,
                         rv == MST_ENOMEM ? "the round"
                                          : "the round: a member is missing or wrong");
    }
    *ret_round = round;
    return 0;
}

/* --- letters --- */

static const char *letter_name(int kind)
{
    static const char *const names[] = {"none", "rank", "refused", "expelled"};
    return names[kind];
}

static int letter_workers_add(struct mst__json *json, const struct mst__worker_ranks *ranks)
{
    struct mst__json *list = mst__json_new_array();
    int rv = list == NULL ? MST_ENOMEM : worker_ranks_add(list, ranks);
    int added = mst__json_add(json, "workers", list);
    return rv == 0 ? added : rv;
}

int mst__etcd_v3_letter_write(const struct mst__etcd_v3_letter *letter, struct mst__buf *buf)
{
    struct mst__json *json = mst__json_new_object();
    int rv = mst__json_add_text(json, "kind", mst_bytes_str(letter_name((int)letter->kind)));
    if (rv == 0 && letter->kind == MST_ETCD_V3_LETTER_RANK) {
        rv = mst__json_add_uint_text(json, "epoch", letter->epoch);
        rv = rv == 0 ? mst__json_add_int(json, "round", letter->round) : rv;
        rv = rv == 0 ? mst__json_add_int(json, "rank", letter->rank) : rv;
        rv = rv == 0 ? mst__json_add_text(json, "name", mst_bytes_str(letter->name)) : rv;
        bool has_workers = letter->worker_ranks.world > 0;
        rv = rv == 0 && has_workers ? letter_workers_add(json, &letter->worker_ranks) : rv;
    }
    if (rv == 0 && letter->kind != MST_ETCD_V3_LETTER_RANK) {
        rv = mst__json_add_int(json, "code", letter->code);
        rv = rv == 0 ? mst__json_add_text(json, "text", mst_bytes_str(letter->text)) : rv;
    }
    return json_finish(json, rv, buf);
}

int mst__etcd_v3_letter_read(struct mst_bytes text,
                             struct mst__etcd_v3_letter *ret_letter,
                             struct mst_err *reterr)
{
    struct mst__json *json = NULL;
    struct mst__etcd_v3_letter letter = {0};
    int rv = json_begin(text, "a letter", &json, reterr);
    if (rv != 0) {
        return rv;
    }
    struct mst_bytes word = mst_bytes_str("");
    bool has_word = mst__json_text(mst__json_member(json, "kind"), &word);
    int kind = has_word ? word_find(word, letter_name, MST_ETCD_V3_LETTER_EXPELLED + 1) : -1;
    letter.kind = kind < 0 ? MST_ETCD_V3_LETTER_NONE : (enum mst__etcd_v3_letter_kind)kind;
    int64_t code = 0;
    bool is_right = kind > 0;
    if (kind == MST_ETCD_V3_LETTER_RANK) {
        is_right = mst__json_uint(mst__json_member(json, "epoch"), &letter.epoch) &&
                   json_i64(json, "round", &letter.round) && json_u32(json, "rank", &letter.rank) &&
                   json_text(json, "name", letter.name, sizeof letter.name) &&
                   worker_ranks_get(mst__json_member(json, "workers"), 0, &letter.worker_ranks);
    } else if (kind > 0) {
        is_right = json_i64(json, "code", &code) && code <= 0 && code > -1000 &&
                   json_text(json, "text", letter.text, sizeof letter.text);
    }
    letter.code = (int)code;
    mst__json_free(json);
    if (!is_right) {
        return mst__fail(reterr, MST_EPROTO, 0, "a letter: a member is missing or wrong");
    }
    *ret_letter = letter;
    return 0;
}
