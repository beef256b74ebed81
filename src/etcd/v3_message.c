/* etcd/v3_message.c - requests and answers of the v3 API in the form of its JSON gateway.
 *
 * Pure. A missing member of an answer is zero. Only the revision in the header, which every answer
 * about keys has, must exist: an empty object from a proxy must not pass for "no such key". */
#include "etcd/v3_message.h"

#include "base/assert.h"
#include "base/base64.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/number.h"
#include "codec/pickle.h" /* base64 */
#include "etcd/json.h"

/* The gRPC codes that etcd uses. */
enum grpc_code {
    GRPC_CANCELED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16,
};

/* A range that ends with this key has no end. */
static const uint8_t zero_byte = 0;

/* --- requests --- */

/* Keep the first failure. */
static int first(int rv, int next)
{
    return rv != 0 ? rv : next;
}

/* 64-bit numbers are strings, which every gateway accepts. */
static int add_number(struct mst__json *json, const char *name, int64_t number)
{
    char text[MST_NUMBER_SIZE];
    size_t size = mst__number_format(number, text);
    return mst__json_add_text(json, name, mst_bytes_of(text, size));
}

static int add_word(struct mst__json *json, const char *name, const char *word)
{
    return mst__json_add_text(json, name, mst_bytes_str(word));
}

/* The key after all keys that begin with @prefix: increment the last byte that can be, and drop the
 * bytes after it. If there is none, the range has no end. */
static int add_prefix_end(struct mst__json *json, struct mst_bytes prefix)
{
    size_t size = prefix.size;
    while (size > 0 && prefix.data[size - 1] == UINT8_MAX) {
        size--;
    }
    if (size == 0) {
        return mst__json_add_base64(json, "range_end", mst_bytes_of(&zero_byte, 1));
    }
    char *end = mst__memdup(prefix.data, size);
    if (end == NULL) {
        return MST_ENOMEM;
    }
    end[size - 1] = (char)(uint8_t)(prefix.data[size - 1] + 1);
    int rv = mst__json_add_base64(json, "range_end", mst_bytes_of(end, size));
    mst__free(end);
    return rv;
}

static int add_span(struct mst__json *json, struct mst_bytes key, enum mst__v3_span span)
{
    if (span == MST_V3_KEY) {
        return key.size == 0 ? MST_EINVAL : mst__json_add_base64(json, "key", key);
    }
    struct mst_bytes start = key.size == 0 ? mst_bytes_of(&zero_byte, 1) : key;
    int rv = mst__json_add_base64(json, "key", start);
    return rv != 0 ? rv : add_prefix_end(json, key);
}

static int fill_range(struct mst__json *json, const struct mst__v3_range *range)
{
    int rv = add_span(json, range->key, range->span);
    if (range->limit < 0 || range->create_revision_max < 0) {
        return MST_EINVAL;
    }
    if (range->limit > 0) {
        rv = first(rv, add_number(json, "limit", range->limit));
    }
    if (range->sort != MST_V3_UNSORTED) {
        bool is_descending = range->sort == MST_V3_NEWEST_FIRST;
        bool is_by_key = range->sort == MST_V3_BY_KEY;
        rv = first(rv, add_word(json, "sort_order", is_descending ? "DESCEND" : "ASCEND"));
        rv = first(rv, add_word(json, "sort_target", is_by_key ? "KEY" : "CREATE"));
    }
    if (range->create_revision_max > 0) {
        rv = first(rv, add_number(json, "max_create_revision", range->create_revision_max));
    }
    if (range->is_keys_only) {
        rv = first(rv, mst__json_add_bool(json, "keys_only", true));
    }
    if (range->is_serializable) {
        rv = first(rv, mst__json_add_bool(json, "serializable", true));
    }
    return rv;
}

static int fill_put(struct mst__json *json, const struct mst__v3_put *put)
{
    if (put->key.size == 0 || put->lease < 0) {
        return MST_EINVAL;
    }
    int rv = mst__json_add_base64(json, "key", put->key);
    rv = first(rv, mst__json_add_base64(json, "value", put->value));
    if (put->lease != 0) {
        rv = first(rv, add_number(json, "lease", put->lease));
    }
    return rv;
}

static int fill_delete(struct mst__json *json, const struct mst__v3_delete *del)
{
    return add_span(json, del->key, del->span);
}

static int fill_compare(struct mst__json *json, const struct mst__v3_compare *compare)
{
    static const char *const targets[] = {
        [MST_V3_VERSION] = "VERSION", [MST_V3_CREATE] = "CREATE", [MST_V3_MOD] = "MOD",
        [MST_V3_VALUE] = "VALUE",     [MST_V3_LEASE] = "LEASE",
    };
    static const char *const relations[] = {
        [MST_V3_EQUAL] = "EQUAL",
        [MST_V3_GREATER] = "GREATER",
        [MST_V3_LESS] = "LESS",
        [MST_V3_NOT_EQUAL] = "NOT_EQUAL",
    };
    static const char *const members[] = {
        [MST_V3_VERSION] = "version",  [MST_V3_CREATE] = "create_revision",
        [MST_V3_MOD] = "mod_revision", [MST_V3_VALUE] = "value",
        [MST_V3_LEASE] = "lease",
    };
    int rv = add_span(json, compare->key, compare->span);
    rv = first(rv, add_word(json, "target", targets[compare->target]));
    rv = first(rv, add_word(json, "result", relations[compare->relation]));
    const char *member = members[compare->target];
    return first(rv, compare->target == MST_V3_VALUE
                         ? mst__json_add_base64(json, member, compare->value)
                         : add_number(json, member, compare->number));
}

static int fill_op(struct mst__json *json, const struct mst__v3_op *op)
{
    struct mst__json *inner = mst__json_new_object();
    int rv = inner == NULL ? MST_ENOMEM : 0;
    const char *name = "request_range";
    switch (op->kind) {
        case MST_V3_OP_RANGE:
            rv = first(rv, fill_range(inner, &op->u.range));
            break;
        case MST_V3_OP_PUT:
            name = "request_put";
            rv = first(rv, fill_put(inner, &op->u.put));
            break;
        case MST_V3_OP_DELETE:
            name = "request_delete_range";
            rv = first(rv, fill_delete(inner, &op->u.del));
            break;
    }
    return first(rv, mst__json_add(json, name, inner));
}

static int fill_compares(struct mst__json *json, const struct mst__v3_txn *txn)
{
    struct mst__json *list = mst__json_new_array();
    int rv = list == NULL ? MST_ENOMEM : 0;
    for (size_t i = 0; i < txn->compare_count && rv == 0; i++) {
        struct mst__json *item = mst__json_new_object();
        rv = item == NULL ? MST_ENOMEM : fill_compare(item, &txn->compares[i]);
        rv = first(rv, mst__json_add(list, NULL, item));
    }
    return first(rv, mst__json_add(json, "compare", list));
}

static int fill_ops(struct mst__json *json,
                    const char *name,
                    const struct mst__v3_op *ops,
                    size_t count)
{
    struct mst__json *list = mst__json_new_array();
    int rv = list == NULL ? MST_ENOMEM : 0;
    for (size_t i = 0; i < count && rv == 0; i++) {
        struct mst__json *item = mst__json_new_object();
        rv = item == NULL ? MST_ENOMEM : fill_op(item, &ops[i]);
        rv = first(rv, mst__json_add(list, NULL, item));
    }
    return first(rv, mst__json_add(json, name, list));
}

/* Append @json, which was built with the result @rv and is released here. */
static int finish(struct mst__buf *body, struct mst__json *json, int rv)
{
    rv = rv != 0 ? rv : mst__json_write(json, false, body);
    mst__json_free(json);
    return rv;
}

int mst__v3_write_range(struct mst__buf *body, const struct mst__v3_range *range)
{
    struct mst__json *json = mst__json_new_object();
    return finish(body, json, fill_range(json, range));
}

int mst__v3_write_put(struct mst__buf *body, const struct mst__v3_put *put)
{
    struct mst__json *json = mst__json_new_object();
    return finish(body, json, fill_put(json, put));
}

int mst__v3_write_delete(struct mst__buf *body, const struct mst__v3_delete *del)
{
    struct mst__json *json = mst__json_new_object();
    return finish(body, json, fill_delete(json, del));
}

int mst__v3_write_txn(struct mst__buf *body, const struct mst__v3_txn *txn)
{
    struct mst__json *json = mst__json_new_object();
    int rv = fill_compares(json, txn);
    rv = first(rv, fill_ops(json, "success", txn->success, txn->success_count));
    rv = first(rv, fill_ops(json, "failure", txn->failure, txn->failure_count));
    return finish(body, json, rv);
}

int mst__v3_write_lease(struct mst__buf *body, int64_t ttl_s, int64_t lease)
{
    if (ttl_s < 0 || lease < 0) {
        return MST_EINVAL;
    }
    struct mst__json *json = mst__json_new_object();
    int rv = ttl_s == 0 ? 0 : add_number(json, "TTL", ttl_s);
    return finish(body, json, first(rv, lease == 0 ? 0 : add_number(json, "ID", lease)));
}

int mst__v3_write_compact(struct mst__buf *body, int64_t revision)
{
    struct mst__json *json = mst__json_new_object();
    return finish(body, json, add_number(json, "revision", revision));
}

int mst__v3_write_authenticate(struct mst__buf *body, const char *user, const char *password)
{
    struct mst__json *json = mst__json_new_object();
    int rv = add_word(json, "name", user);
    return finish(body, json, first(rv, add_word(json, "password", password)));
}

int mst__v3_write_watch(struct mst__buf *body, const struct mst__v3_watched *watched, int64_t from)
{
    if (from < 0) {
        return MST_EINVAL;
    }
    size_t size_before = mst__buf_size(body);
    struct mst__json *inner = mst__json_new_object();
    int rv = add_span(inner, watched->key, watched->span);
    if (from > 0) {
        rv = first(rv, add_number(inner, "start_revision", from));
    }
    /* Request the revision at intervals when nothing happens, so that less can be compacted. */
    rv = first(rv, mst__json_add_bool(inner, "progress_notify", true));
    if (watched->is_without_puts) {
        struct mst__json *filters = mst__json_new_array();
        rv = first(rv, add_word(filters, NULL, "NOPUT"));
        rv = first(rv, mst__json_add(inner, "filters", filters));
    }
    struct mst__json *json = mst__json_new_object();
    rv = first(rv, mst__json_add(json, "create_request", inner));
    rv = finish(body, json, rv);
    rv = first(rv, mst__buf_append_u8(body, '\n'));
    if (rv != 0) {
        mst__buf_truncate(body, size_before);
    }
    return rv;
}

static bool has_write(const struct mst__v3_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (ops[i].kind != MST_V3_OP_RANGE) {
            return true;
        }
    }
    return false;
}

bool mst__v3_txn_is_read(const struct mst__v3_txn *txn)
{
    return !has_write(txn->success, txn->success_count) &&
           !has_write(txn->failure, txn->failure_count);
}

/* --- errors --- */

static bool contains(struct mst_bytes text, const char *part)
{
    return text.data != NULL && memmem(text.data, text.size, part, strlen(part)) != NULL;
}

/* Copy text from outside for a message: one line, printable. */
static void copy_message(struct mst_bytes text, char *ret_message, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < text.size && used < size - 1; i++) {
        uint8_t c = text.data[i];
        if (c == '\n' && i == text.size - 1) {
            break;
        }
        ret_message[used++] = c >= ' ' && c != 0x7f ? (char)c : '?';
    }
    ret_message[used] = '\0';
}

/* Judge codes that have several meanings by their text. */
static void judge_by_text(struct mst_bytes message, struct mst__v3_error *error)
{
    switch (error->grpc) {
        case GRPC_INVALID_ARGUMENT:
            if (contains(message, "user name is empty") ||
                contains(message, "revision of auth store is old")) {
                error->fate = MST_V3_TOKEN;
            } else if (contains(message, "authentication failed")) {
                error->code = MST_EAUTH;
            } else if (contains(message, "request is too large") ||
                       contains(message, "too many operations")) {
                error->code = MST_ELIMIT;
            }
            break;
        case GRPC_NOT_FOUND:
            /* Since 3.6 the gateway itself reports a missing path this way; etcd names what it did
             * not find. */
            if (mst__bytes_equal(message, mst_bytes_str("Not Found"))) {
                error->fate = MST_V3_NO_PATH;
                error->code = MST_ENOTSUP;
            }
            break;
        case GRPC_UNAVAILABLE:
            /* With needs_leader, this is reported before anything is done. */
            error->is_untried = mst__bytes_equal(message, mst_bytes_str("etcdserver: no leader"));
            break;
        default:
            break;
    }
}

void mst__v3_judge(int grpc, struct mst_bytes message, struct mst__v3_error *ret_error)
{
    *ret_error = (struct mst__v3_error){.fate = MST_V3_REFUSED, .code = MST_EINVAL, .grpc = grpc};
    copy_message(message, ret_error->message, sizeof ret_error->message);
    switch (grpc) {
        case GRPC_CANCELED:
        case GRPC_UNKNOWN:
        case GRPC_DEADLINE_EXCEEDED:
        case GRPC_ABORTED:
        case GRPC_INTERNAL:
        case GRPC_UNAVAILABLE:
            ret_error->fate = MST_V3_TRANSIENT;
            ret_error->code = MST_ECONN;
            break;
        case GRPC_UNAUTHENTICATED:
            ret_error->fate = MST_V3_TOKEN;
            ret_error->code = MST_EAUTH;
            break;
        case GRPC_PERMISSION_DENIED:
            ret_error->code = MST_EAUTH;
            break;
        case GRPC_NOT_FOUND:
            ret_error->code = MST_ENOTFOUND;
            break;
        case GRPC_RESOURCE_EXHAUSTED:
            ret_error->code = MST_ELIMIT;
            break;
        case GRPC_UNIMPLEMENTED:
            ret_error->code = MST_ENOTSUP;
            break;
        default:
            break;
    }
    judge_by_text(message, ret_error);
    if (ret_error->fate == MST_V3_TOKEN) {
        ret_error->code = MST_EAUTH;
    }
}

/* An answer that is not etcd's: only the status is known. */
static void judge_by_status(int status, struct mst_bytes body, struct mst__v3_error *ret_error)
{
    *ret_error = (struct mst__v3_error){.fate = MST_V3_REFUSED, .code = MST_EPROTO, .grpc = -1};
    char text[100];
    copy_message(body, text, sizeof text);
    (void)snprintf(ret_error->message, sizeof ret_error->message, "HTTP status %d, '%s'", status,
                   text); /* for people */
    if (status == 404) {
        ret_error->fate = MST_V3_NO_PATH;
        ret_error->code = MST_ENOTSUP;
    } else if (status == 401 || status == 403 || status == 407) {
        ret_error->code = MST_EAUTH;
    } else if (status == 408 || status == 429 || status >= 500) {
        ret_error->fate = MST_V3_TRANSIENT;
        ret_error->code = MST_ECONN;
    }
}

bool mst__v3_read_error(int status, struct mst_bytes body, struct mst__v3_error *ret_error)
{
    struct mst__json *json = NULL;
    int rv = mst__json_parse(body, &json, NULL);
    if (rv == MST_ENOMEM) {
        *ret_error = (struct mst__v3_error){.fate = MST_V3_REFUSED, .code = rv, .grpc = -1};
        return true;
    }
    const struct mst__json *error = mst__json_member(json, "error");
    if (status == 200 && rv == 0 && error == NULL) {
        mst__json_free(json);
        return false;
    }
    /* In a stream the error is an object in `error`; else `error` is text, or missing since 3.6. */
    const struct mst__json *where = mst__json_is_object(error) ? error : json;
    struct mst_bytes message = mst_bytes_of("", 0);
    int64_t grpc = 0;
    bool has_code = mst__json_int(mst__json_member(where, "grpc_code"), &grpc) ||
                    mst__json_int(mst__json_member(where, "code"), &grpc);
    if (!mst__json_text(mst__json_member(where, "message"), &message)) {
        (void)mst__json_text(error, &message); /* it may be missing */
    }
    if (has_code && grpc > 0 && grpc <= GRPC_UNAUTHENTICATED) {
        mst__v3_judge((int)grpc, message, ret_error);
    } else {
        judge_by_status(status, body, ret_error);
    }
    mst__json_free(json);
    return true;
}

/* --- answers --- */

/* Memory for @count items; NULL also for none. */
static int allocate(size_t count, size_t size, void **ret_items)
{
    *ret_items = count == 0 ? NULL : mst__calloc(count, size);
    return count > 0 && *ret_items == NULL ? MST_ENOMEM : 0;
}

void mst__v3_kv_close(struct mst__v3_kv *kv)
{
    mst_buffer_free(&kv->key);
    mst_buffer_free(&kv->value);
}

static void kvs_close(struct mst__v3_kvs *kvs)
{
    for (size_t i = 0; i < kvs->count; i++) {
        mst__v3_kv_close(&kvs->items[i]);
    }
    mst__free(kvs->items);
}

void mst__v3_result_init(struct mst__v3_result *result)
{
    *result = (struct mst__v3_result){0};
}

void mst__v3_result_close(struct mst__v3_result *result)
{
    for (size_t i = 0; i < result->range_count; i++) {
        kvs_close(&result->ranges[i]);
    }
    mst__free(result->ranges);
    mst__v3_result_init(result);
}

static void event_array_free(struct mst__v3_event *events, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mst__v3_kv_close(&events[i].kv);
    }
    mst__free(events);
}

void mst__v3_events_close(struct mst__v3_events *events)
{
    event_array_free(events->items, events->count);
    *events = (struct mst__v3_events){0};
}

static int fail_answer(struct mst_err *reterr, int code, const char *what)
{
    return mst__fail(reterr, code, 0, "the answer of etcd: %s",
                     code == MST_EPROTO ? what : mst_strerror(code));
}

/* An optional integer; another type is an error. */
static int take_int(const struct mst__json *json, const char *name, int64_t *ret, int rv)
{
    const struct mst__json *member = mst__json_member(json, name);
    *ret = 0;
    return first(rv, member == NULL || mst__json_int(member, ret) ? 0 : MST_EPROTO);
}

static int take_uint(const struct mst__json *json, const char *name, uint64_t *ret, int rv)
{
    const struct mst__json *member = mst__json_member(json, name);
    *ret = 0;
    return first(rv, member == NULL || mst__json_uint(member, ret) ? 0 : MST_EPROTO);
}

static int take_bool(const struct mst__json *json, const char *name, bool *ret, int rv)
{
    const struct mst__json *member = mst__json_member(json, name);
    *ret = false;
    return first(rv, member == NULL || mst__json_bool(member, ret) ? 0 : MST_EPROTO);
}

static int take_bytes(const struct mst__json *json, const char *name, struct mst_buffer *ret)
{
    const struct mst__json *member = mst__json_member(json, name);
    struct mst_bytes text = mst_bytes_of("", 0);
    if (member != NULL && !mst__json_text(member, &text)) {
        return MST_EPROTO;
    }
    struct mst__buf buf;
    mst__buf_init(&buf, text.size + 4);
    int rv = mst__base64_read(&buf, text);
    rv = rv != 0 ? rv : mst__buf_release(&buf, ret);
    mst__buf_close(&buf);
    return rv;
}

static int read_kv(const struct mst__json *json, struct mst__v3_kv *ret_kv)
{
    if (!mst__json_is_object(json)) {
        return MST_EPROTO;
    }
    int rv = take_int(json, "create_revision", &ret_kv->create_revision, 0);
    rv = take_int(json, "mod_revision", &ret_kv->mod_revision, rv);
    rv = take_int(json, "version", &ret_kv->version, rv);
    rv = take_int(json, "lease", &ret_kv->lease, rv);
    rv = rv != 0 ? rv : take_bytes(json, "key", &ret_kv->key);
    rv = rv != 0 ? rv : take_bytes(json, "value", &ret_kv->value);
    return rv != 0 ? rv : (ret_kv->key.size == 0 ? MST_EPROTO : 0);
}

/* @json has `kvs` and `more`. On error, @kvs has what was read. */
static int read_kvs(const struct mst__json *json, struct mst__v3_kvs *kvs)
{
    const struct mst__json *list = mst__json_member(json, "kvs");
    if (list != NULL && !mst__json_is_array(list)) {
        return MST_EPROTO;
    }
    size_t count = mst__json_count(list);
    void *items = NULL;
    int rv = allocate(count, sizeof *kvs->items, &items);
    if (rv != 0) {
        return rv;
    }
    kvs->items = items;
    kvs->count = count;
    rv = take_bool(json, "more", &kvs->is_more, 0);
    for (size_t i = 0; i < count && rv == 0; i++) {
        rv = read_kv(mst__json_at(list, i), &kvs->items[i]);
    }
    return rv;
}

/* The revision in the header, which every answer about keys has. */
static int read_revision(const struct mst__json *json, int64_t *ret_revision)
{
    int rv = take_int(mst__json_member(json, "header"), "revision", ret_revision, 0);
    return rv != 0 ? rv : (*ret_revision <= 0 ? MST_EPROTO : 0);
}

static int allocate_ranges(struct mst__v3_result *result, size_t count)
{
    void *ranges = NULL;
    int rv = allocate(count, sizeof *result->ranges, &ranges);
    result->ranges = ranges;
    result->range_count = rv == 0 ? count : 0;
    return rv;
}

enum answer { ANSWER_RANGE, ANSWER_PUT, ANSWER_DELETE };

static int read_answer(struct mst_bytes body,
                       enum answer answer,
                       struct mst__v3_result *result,
                       struct mst_err *reterr)
{
    struct mst__json *json = NULL;
    int rv = mst__json_parse(body, &json, reterr);
    if (rv != 0) {
        return mst__err_wrap(reterr, rv, "the answer of etcd");
    }
    rv = read_revision(json, &result->revision);
    if (rv == 0 && answer == ANSWER_RANGE) {
        rv = allocate_ranges(result, 1);
        rv = rv != 0 ? rv : read_kvs(json, &result->ranges[0]);
    }
    if (answer == ANSWER_DELETE) {
        rv = take_int(json, "deleted", &result->deleted, rv);
    }
    mst__json_free(json);
    if (rv != 0) {
        mst__v3_result_close(result);
        return fail_answer(reterr, rv, "unexpected content");
    }
    return 0;
}

int mst__v3_read_range(struct mst_bytes body, struct mst__v3_result *result, struct mst_err *reterr)
{
    return read_answer(body, ANSWER_RANGE, result, reterr);
}

int mst__v3_read_put(struct mst_bytes body, struct mst__v3_result *result, struct mst_err *reterr)
{
    return read_answer(body, ANSWER_PUT, result, reterr);
}

int mst__v3_read_delete(struct mst_bytes body,
                        struct mst__v3_result *result,
                        struct mst_err *reterr)
{
    return read_answer(body, ANSWER_DELETE, result, reterr);
}

/* The answer to one operation of a transaction. */
static int read_op(const struct mst__json *json,
                   const struct mst__v3_op *op,
                   struct mst__v3_kvs *kvs,
                   int64_t *deleted)
{
    static const char *const names[] = {
        [MST_V3_OP_RANGE] = "response_range",
        [MST_V3_OP_PUT] = "response_put",
        [MST_V3_OP_DELETE] = "response_delete_range",
    };
    const struct mst__json *inner = mst__json_member(json, names[op->kind]);
    if (!mst__json_is_object(inner)) {
        return MST_EPROTO;
    }
    if (op->kind == MST_V3_OP_RANGE) {
        return read_kvs(inner, kvs);
    }
    int64_t count = 0;
    int rv = op->kind == MST_V3_OP_DELETE ? take_int(inner, "deleted", &count, 0) : 0;
    if (rv == 0 && (count < 0 || count > INT64_MAX - *deleted)) {
        return MST_EPROTO;
    }
    *deleted += count;
    return rv;
}

int mst__v3_read_txn(struct mst_bytes body,
                     const struct mst__v3_txn *txn,
                     struct mst__v3_result *result,
                     struct mst_err *reterr)
{
    struct mst__json *json = NULL;
    int rv = mst__json_parse(body, &json, reterr);
    if (rv != 0) {
        return mst__err_wrap(reterr, rv, "the answer of etcd");
    }
    rv = read_revision(json, &result->revision);
    rv = take_bool(json, "succeeded", &result->succeeded, rv);
    const struct mst__v3_op *ops = result->succeeded ? txn->success : txn->failure;
    size_t count = result->succeeded ? txn->success_count : txn->failure_count;
    const struct mst__json *responses = mst__json_member(json, "responses");
    rv = first(rv, mst__json_count(responses) == count ? 0 : MST_EPROTO);
    rv = rv != 0 ? rv : allocate_ranges(result, count);
    for (size_t i = 0; i < count && rv == 0; i++) {
        rv = read_op(mst__json_at(responses, i), &ops[i], &result->ranges[i], &result->deleted);
    }
    mst__json_free(json);
    if (rv != 0) {
        mst__v3_result_close(result);
        return fail_answer(reterr, rv, "it does not match the transaction");
    }
    return 0;
}

static int read_lease_of(const struct mst__json *json,
                         struct mst__v3_lease *ret_lease,
                         struct mst_err *reterr)
{
    int rv = mst__json_is_object(json) ? 0 : MST_EPROTO;
    rv = take_int(json, "ID", &ret_lease->id, rv);
    rv = take_int(json, "TTL", &ret_lease->ttl_s, rv);
    if (rv != 0 || ret_lease->id == 0) {
        return fail_answer(reterr, MST_EPROTO, "no lease in it");
    }
    return 0;
}

int mst__v3_read_lease(struct mst_bytes body,
                       struct mst__v3_lease *ret_lease,
                       struct mst_err *reterr)
{
    struct mst__json *json = NULL;
    int rv = mst__json_parse(body, &json, reterr);
    rv = rv != 0 ? mst__err_wrap(reterr, rv, "the answer of etcd")
                 : read_lease_of(json, ret_lease, reterr);
    mst__json_free(json);
    return rv;
}

int mst__v3_read_keep_alive(struct mst_bytes body,
                            struct mst__v3_lease *ret_lease,
                            struct mst_err *reterr)
{
    const uint8_t *end = body.size == 0 ? NULL : memchr(body.data, '\n', body.size);
    struct mst_bytes line = end == NULL ? body : mst_bytes_of(body.data, (size_t)(end - body.data));
    struct mst__json *json = NULL;
    int rv = mst__json_parse(line, &json, reterr);
    rv = rv != 0 ? mst__err_wrap(reterr, rv, "the answer of etcd")
                 : read_lease_of(mst__json_member(json, "result"), ret_lease, reterr);
    mst__json_free(json);
    return rv;
}

int mst__v3_read_token(struct mst_bytes body, char **ret_token, struct mst_err *reterr)
{
    struct mst__json *json = NULL;
    int rv = mst__json_parse(body, &json, reterr);
    if (rv != 0) {
        return mst__err_wrap(reterr, rv, "the answer of etcd");
    }
    struct mst_bytes text = mst_bytes_of("", 0);
    bool is_fine = mst__json_text(mst__json_member(json, "token"), &text) && text.size > 0;
    for (size_t i = 0; i < text.size && is_fine; i++) {
        is_fine = text.data[i] > ' ' && text.data[i] < 0x7f;
    }
    if (!is_fine) {
        rv = fail_answer(reterr, MST_EPROTO, "no token in it");
    } else {
        char *token = mst__memdup(text.data, text.size);
        rv = token == NULL ? mst__fail(reterr, MST_ENOMEM, 0, "token of etcd") : 0;
        *ret_token = token;
    }
    mst__json_free(json);
    return rv;
}

int mst__v3_read_status(struct mst_bytes body,
                        struct mst__v3_status *ret_status,
                        struct mst_err *reterr)
{
    struct mst__json *json = NULL;
    int rv = mst__json_parse(body, &json, reterr);
    if (rv != 0) {
        return mst__err_wrap(reterr, rv, "the answer of etcd");
    }
    *ret_status = (struct mst__v3_status){0};
    struct mst_bytes version = mst_bytes_of("", 0);
    rv = mst__json_text(mst__json_member(json, "version"), &version) ? 0 : MST_EPROTO;
    copy_message(version, ret_status->version, sizeof ret_status->version);
    rv = take_uint(json, "leader", &ret_status->leader, rv);
    rv = take_uint(mst__json_member(json, "header"), "member_id", &ret_status->member, rv);
    rv = take_int(json, "dbSize", &ret_status->db_size, rv);
    mst__json_free(json);
    return rv == 0 ? 0 : fail_answer(reterr, rv, "no status in it");
}

/* --- the lines of a watch --- */

void mst__v3_line_close(struct mst__v3_line *line)
{
    event_array_free(line->events, line->event_count);
    line->events = NULL;
    line->event_count = 0;
}

/* PUT, which is usually omitted, or DELETE; as a name or a number. */
static int read_event_type(const struct mst__json *type, bool *ret_is_delete)
{
    struct mst_bytes name;
    int64_t number = 0;
    *ret_is_delete = false;
    if (type == NULL) {
        return 0;
    }
    if (mst__json_text(type, &name)) {
        *ret_is_delete = mst__bytes_equal(name, mst_bytes_str("DELETE"));
        return *ret_is_delete || mst__bytes_equal(name, mst_bytes_str("PUT")) ? 0 : MST_EPROTO;
    }
    if (!mst__json_int(type, &number) || number < 0 || number > 1) {
        return MST_EPROTO;
    }
    *ret_is_delete = number == 1;
    return 0;
}

static int read_events(const struct mst__json *list, struct mst__v3_line *line)
{
    if (list != NULL && !mst__json_is_array(list)) {
        return MST_EPROTO;
    }
    size_t count = mst__json_count(list);
    void *events = NULL;
    int rv = allocate(count, sizeof *line->events, &events);
    if (rv != 0) {
        return rv;
    }
    line->events = events;
    line->event_count = count;
    for (size_t i = 0; i < count && rv == 0; i++) {
        const struct mst__json *event = mst__json_at(list, i);
        rv = read_event_type(mst__json_member(event, "type"), &line->events[i].is_delete);
        rv = rv != 0 ? rv : read_kv(mst__json_member(event, "kv"), &line->events[i].kv);
        rv = rv != 0 ? rv : (line->events[i].kv.mod_revision <= 0 ? MST_EPROTO : 0);
    }
    return rv;
}

/* Why etcd ended a watch: there is only a text. */
static void judge_cancel(const struct mst__json *result, struct mst__v3_error *ret_error)
{
    struct mst_bytes reason = mst_bytes_str("no reason given");
    (void)mst__json_text(mst__json_member(result, "cancel_reason"), &reason); /* may be missing */
    /* With an expired token it says that the permission is missing, up to 3.5 at least. */
    bool is_token = contains(reason, "permission denied") || contains(reason, "auth token") ||
                    contains(reason, "user name is empty") || contains(reason, "auth store");
    mst__v3_judge(is_token ? GRPC_UNAUTHENTICATED : GRPC_UNAVAILABLE, reason, ret_error);
}

static int read_line_result(const struct mst__json *result, struct mst__v3_line *line)
{
    if (!mst__json_is_object(result)) {
        return MST_EPROTO;
    }
    bool is_created = false;
    bool is_canceled = false;
    const struct mst__json *header = mst__json_member(result, "header");
    int rv = take_int(header, "revision", &line->revision, 0);
    rv = take_uint(header, "member_id", &line->member, rv);
    rv = take_int(result, "watch_id", &line->watch_id, rv);
    rv = take_int(result, "compact_revision", &line->compact_revision, rv);
    rv = take_bool(result, "created", &is_created, rv);
    rv = take_bool(result, "canceled", &is_canceled, rv);
    rv = rv != 0 ? rv : read_events(mst__json_member(result, "events"), line);
    if (rv != 0) {
        return rv;
    }
    if (is_canceled) {
        line->kind = MST_V3_LINE_CANCELED;
        judge_cancel(result, &line->error);
    } else if (line->event_count > 0) {
        line->kind = MST_V3_LINE_EVENTS;
    } else {
        line->kind = is_created ? MST_V3_LINE_CREATED : MST_V3_LINE_PROGRESS;
    }
    return 0;
}

int mst__v3_read_line(struct mst_bytes text, struct mst__v3_line *ret_line, struct mst_err *reterr)
{
    *ret_line = (struct mst__v3_line){0};
    struct mst__json *json = NULL;
    int rv = mst__json_parse(text, &json, reterr);
    if (rv != 0) {
        return mst__err_wrap(reterr, rv, "watching etcd");
    }
    if (mst__json_member(json, "error") != NULL) {
        ret_line->kind = MST_V3_LINE_ERROR;
        (void)mst__v3_read_error(200, text, &ret_line->error); /* with this status it is one */
    } else {
        rv = read_line_result(mst__json_member(json, "result"), ret_line);
    }
    mst__json_free(json);
    return rv == 0 ? 0
                   : mst__fail(reterr, rv, 0, "watching etcd: %s",
                               rv == MST_EPROTO ? "malformed message" : mst_strerror(rv));
}
