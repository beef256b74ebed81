/* Messages of etcd's v3 API: requests, and answers of a real etcd 3.4 (tests/vectors/etcd), of
 * 3.6, and malformed ones. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "etcd/json.h"
#include "etcd/v3_message.h"
#include "unit/store_unit.h"

#define BYTES(text) mst_bytes_of((text), sizeof(text) - 1)
#define HEADER "\"header\":{\"cluster_id\":\"1\",\"member_id\":\"2\",\"revision\":\"7\"}"

static const char *vectors_dir;
static struct mst__buf body;

static int set_up(void **state)
{
    (void)state;
    mst__buf_init(&body, 1 << 20);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mst__buf_close(&body);
    return 0;
}

/* --- requests --- */

static void assert_written(int rv, const char *wanted)
{
    assert_int_equal(rv, 0);
    assert_bytes_str(mst__buf_bytes(&body), wanted);
    mst__buf_clear(&body);
}

static void test_write_range(void **state)
{
    (void)state;
    struct mst__v3_range range = {.key = BYTES("/j/a")};
    assert_written(mst__v3_write_range(&body, &range), "{\"key\":\"L2ovYQ==\"}");
    range = (struct mst__v3_range){.key = BYTES("/j/"),
                                   .span = MST_V3_PREFIX,
                                   .limit = 1,
                                   .sort = MST_V3_NEWEST_FIRST,
                                   .create_revision_max = INT64_MAX,
                                   .is_keys_only = true,
                                   .is_serializable = true};
    assert_written(mst__v3_write_range(&body, &range),
                   "{\"key\":\"L2ov\",\"range_end\":\"L2ow\",\"limit\":\"1\","
                   "\"sort_order\":\"DESCEND\",\"sort_target\":\"CREATE\","
                   "\"max_create_revision\":\"9223372036854775807\","
                   "\"keys_only\":true,\"serializable\":true}");
    range = (struct mst__v3_range){.key = BYTES("a"), .sort = MST_V3_OLDEST_FIRST};
    assert_written(mst__v3_write_range(&body, &range),
                   "{\"key\":\"YQ==\",\"sort_order\":\"ASCEND\",\"sort_target\":\"CREATE\"}");
    range.sort = MST_V3_BY_KEY;
    assert_written(mst__v3_write_range(&body, &range),
                   "{\"key\":\"YQ==\",\"sort_order\":\"ASCEND\",\"sort_target\":\"KEY\"}");
}

/* The end of a prefix: a byte that cannot be raised is dropped; if none can, there is no end. */
static void test_write_prefix(void **state)
{
    (void)state;
    struct mst__v3_delete del = {.key = BYTES("a\xff\xff"), .span = MST_V3_PREFIX};
    assert_written(mst__v3_write_delete(&body, &del), "{\"key\":\"Yf//\",\"range_end\":\"Yg==\"}");
    del.key = BYTES("a\xfe");
    assert_written(mst__v3_write_delete(&body, &del), "{\"key\":\"Yf4=\",\"range_end\":\"Yf8=\"}");
    del.key = BYTES("a\x00");
    assert_written(mst__v3_write_delete(&body, &del), "{\"key\":\"YQA=\",\"range_end\":\"YQE=\"}");
    del.key = BYTES("\xff\xff");
    assert_written(mst__v3_write_delete(&body, &del), "{\"key\":\"//8=\",\"range_end\":\"AA==\"}");
    del.key = BYTES("");
    assert_written(mst__v3_write_delete(&body, &del), "{\"key\":\"AA==\",\"range_end\":\"AA==\"}");
    del.span = MST_V3_KEY;
    assert_int_equal(mst__v3_write_delete(&body, &del), MST_EINVAL);
    assert_int_equal(mst__buf_size(&body), 0);
}

static void test_write_txn(void **state)
{
    (void)state;
    const struct mst__v3_compare compares[] = {
        {.key = BYTES("a"), .target = MST_V3_MOD, .relation = MST_V3_EQUAL, .number = 6},
        {.key = BYTES("a"), .target = MST_V3_CREATE, .relation = MST_V3_NOT_EQUAL},
        {.key = BYTES("a"), .target = MST_V3_VERSION, .relation = MST_V3_GREATER, .number = -1},
        {.key = BYTES("a"), .target = MST_V3_LEASE, .relation = MST_V3_LESS, .number = 1},
        {.key = BYTES("n/"), .span = MST_V3_PREFIX, .target = MST_V3_VALUE},
    };
    const struct mst__v3_op success[] = {
        {.kind = MST_V3_OP_PUT,
         .u.put = {.key = BYTES("a"), .value = BYTES("\0"), .lease = 2324035378493549003}},
        {.kind = MST_V3_OP_DELETE, .u.del = {.key = BYTES("b")}},
    };
    const struct mst__v3_op failure[] = {
        {.kind = MST_V3_OP_RANGE, .u.range = {.key = BYTES("a"), .limit = 2}},
    };
    struct mst__v3_txn txn = {compares, 5, success, 2, failure, 1};
    assert_written(
        mst__v3_write_txn(&body, &txn),
        "{\"compare\":["
        "{\"key\":\"YQ==\",\"target\":\"MOD\",\"result\":\"EQUAL\",\"mod_revision\":\"6\"},"
        "{\"key\":\"YQ==\",\"target\":\"CREATE\",\"result\":\"NOT_EQUAL\",\"create_revision\":"
        "\"0\"},"
        "{\"key\":\"YQ==\",\"target\":\"VERSION\",\"result\":\"GREATER\",\"version\":\"-1\"},"
        "{\"key\":\"YQ==\",\"target\":\"LEASE\",\"result\":\"LESS\",\"lease\":\"1\"},"
        "{\"key\":\"bi8=\",\"range_end\":\"bjA=\",\"target\":\"VALUE\",\"result\":\"EQUAL\","
        "\"value\":\"\"}],"
        "\"success\":[{\"request_put\":{\"key\":\"YQ==\",\"value\":\"AA==\","
        "\"lease\":\"2324035378493549003\"}},{\"request_delete_range\":{\"key\":\"Yg==\"}}],"
        "\"failure\":[{\"request_range\":{\"key\":\"YQ==\",\"limit\":\"2\"}}]}");
    assert_false(mst__v3_txn_is_read(&txn));
    txn.success = failure;
    txn.success_count = 1;
    assert_true(mst__v3_txn_is_read(&txn));
    txn.failure = success;
    txn.failure_count = 2;
    assert_false(mst__v3_txn_is_read(&txn));
}

static void test_write_others(void **state)
{
    (void)state;
    struct mst__v3_put put = {.key = BYTES("a")};
    assert_written(mst__v3_write_put(&body, &put), "{\"key\":\"YQ==\",\"value\":\"\"}");
    put.key = BYTES("");
    assert_int_equal(mst__v3_write_put(&body, &put), MST_EINVAL);
    assert_written(mst__v3_write_lease(&body, 10, 0), "{\"TTL\":\"10\"}");
    assert_written(mst__v3_write_lease(&body, 0, INT64_MAX), "{\"ID\":\"9223372036854775807\"}");
    assert_int_equal(mst__v3_write_lease(&body, 0, -1), MST_EINVAL);
    assert_written(mst__v3_write_compact(&body, 4), "{\"revision\":\"4\"}");
    assert_written(mst__v3_write_authenticate(&body, "t\"r", "p\\w"),
                   "{\"name\":\"t\\\"r\",\"password\":\"p\\\\w\"}");
    assert_int_equal(mst__v3_write_authenticate(&body, "\xff", "p"), MST_EINVAL);
    assert_int_equal(mst__buf_size(&body), 0);
}

/* Several in one body, each with its newline. */
static void test_write_watch(void **state)
{
    (void)state;
    struct mst__v3_watched watched = {.key = BYTES("/wt/"), .span = MST_V3_PREFIX};
    assert_int_equal(mst__v3_write_watch(&body, &watched, 20), 0);
    watched = (struct mst__v3_watched){.key = BYTES("a"), .is_without_puts = true};
    assert_written(mst__v3_write_watch(&body, &watched, 0),
                   "{\"create_request\":{\"key\":\"L3d0Lw==\",\"range_end\":\"L3d0MA==\","
                   "\"start_revision\":\"20\",\"progress_notify\":true}}\n"
                   "{\"create_request\":{\"key\":\"YQ==\",\"progress_notify\":true,"
                   "\"filters\":[\"NOPUT\"]}}\n");
    watched.key = BYTES("");
    assert_int_equal(mst__v3_write_watch(&body, &watched, 0), MST_EINVAL);
    assert_int_equal(mst__buf_size(&body), 0);
}

/* --- the vectors --- */

static struct mst__json *load(const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", vectors_dir, name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    struct mst__buf text;
    mst__buf_init(&text, 1 << 20);
    char piece[4096];
    size_t size;
    while ((size = fread(piece, 1, sizeof piece, file)) > 0) {
        assert_int_equal(mst__buf_append(&text, mst_bytes_of(piece, size)), 0);
    }
    (void)fclose(file); /* it was only read */
    struct mst__json *json = NULL;
    assert_ok(mst__json_parse(mst__buf_bytes(&text), &json, &err));
    mst__buf_close(&text);
    return json;
}

static struct mst_bytes text_of(const struct mst__json *json, const char *name)
{
    struct mst_bytes text = mst_bytes_of("", 0);
    (void)mst__json_text(mst__json_member(json, name), &text); /* may be missing */
    return text;
}

static const struct mst__json *vector_of(const struct mst__json *json, const char *name)
{
    const struct mst__json *vectors = mst__json_member(json, "vectors");
    for (size_t i = 0; i < mst__json_count(vectors); i++) {
        const struct mst__json *vector = mst__json_at(vectors, i);
        if (mst__bytes_equal(text_of(vector, "name"), mst_bytes_str(name))) {
            return vector;
        }
    }
    fail_msg("no vector '%s'", name);
    return NULL;
}

/* The body of the answer with this name. */
static struct mst_bytes answer_of(const struct mst__json *json, const char *name)
{
    struct mst_bytes text = mst_bytes_of("", 0);
    const struct mst__json *vector = vector_of(json, name);
    assert_true(
        mst__json_text(mst__json_member(mst__json_member(vector, "response"), "body"), &text));
    return text;
}

static int status_of(const struct mst__json *vector)
{
    int64_t status = 0;
    assert_true(
        mst__json_int(mst__json_member(mst__json_member(vector, "response"), "status"), &status));
    return (int)status;
}

static void assert_kv(const struct mst__v3_kv *kv,
                      const char *key,
                      const char *value,
                      int64_t create_revision,
                      int64_t mod_revision,
                      int64_t version)
{
    assert_bytes_str(mst_bytes_of(kv->key.data, kv->key.size), key);
    assert_bytes_str(mst_bytes_of(kv->value.data, kv->value.size), value);
    assert_int_equal(kv->value.data[kv->value.size], 0);
    assert_int_equal(kv->create_revision, create_revision);
    assert_int_equal(kv->mod_revision, mod_revision);
    assert_int_equal(kv->version, version);
}

static void test_read_range(void **state)
{
    (void)state;
    struct mst__json *json = load("v3_gateway.json");
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    assert_ok(mst__v3_read_range(answer_of(json, "range-prefix"), &result, &err));
    assert_int_equal(result.revision, 10);
    assert_int_equal(result.range_count, 1);
    assert_int_equal(result.ranges[0].count, 5);
    assert_false(result.ranges[0].is_more);
    assert_kv(&result.ranges[0].items[0], "/j/a", "two", 3, 6, 4);
    assert_kv(&result.ranges[0].items[4], "/j/empty", "", 7, 7, 1);
    mst__v3_result_close(&result);

    assert_ok(mst__v3_read_range(answer_of(json, "range-first-create"), &result, &err));
    assert_int_equal(result.ranges[0].count, 1);
    assert_true(result.ranges[0].is_more);
    mst__v3_result_close(&result);

    assert_ok(mst__v3_read_range(answer_of(json, "range-missing"), &result, &err));
    assert_int_equal(result.range_count, 1);
    assert_int_equal(result.ranges[0].count, 0);
    mst__v3_result_close(&result);

    assert_ok(mst__v3_read_range(answer_of(json, "range-lease"), &result, &err));
    assert_int_equal(result.ranges[0].items[0].lease, 2324035378493549003);
    mst__v3_result_close(&result);

    assert_ok(mst__v3_read_put(answer_of(json, "put-prevkv"), &result, &err));
    assert_int_equal(result.revision, 4);
    assert_ok(mst__v3_read_delete(answer_of(json, "delete"), &result, &err));
    assert_int_equal(result.deleted, 1);
    assert_ok(mst__v3_read_delete(answer_of(json, "delete-missing"), &result, &err));
    assert_int_equal(result.deleted, 0);
    mst__v3_result_close(&result);
    mst__json_free(json);
}

static const struct mst__v3_op op_range = {.kind = MST_V3_OP_RANGE};
static const struct mst__v3_op op_put = {.kind = MST_V3_OP_PUT};
static const struct mst__v3_op ops_delete_put[] = {{.kind = MST_V3_OP_DELETE},
                                                   {.kind = MST_V3_OP_PUT}};
static const struct mst__v3_op ops_range_range[] = {{.kind = MST_V3_OP_RANGE},
                                                    {.kind = MST_V3_OP_RANGE}};

static void test_read_txn(void **state)
{
    (void)state;
    struct mst__json *json = load("v3_gateway.json");
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    struct mst__v3_txn txn = {NULL, 0, &op_put, 1, &op_range, 1};
    assert_ok(mst__v3_read_txn(answer_of(json, "txn-cas-ok"), &txn, &result, &err));
    assert_true(result.succeeded);
    assert_int_equal(result.revision, 12);
    assert_int_equal(result.range_count, 1);
    assert_int_equal(result.ranges[0].count, 0);
    mst__v3_result_close(&result);

    /* `succeeded` is not there. */
    assert_ok(mst__v3_read_txn(answer_of(json, "txn-cas-fail"), &txn, &result, &err));
    assert_false(result.succeeded);
    assert_kv(&result.ranges[0].items[0], "/j/a", "three", 3, 12, 5);
    mst__v3_result_close(&result);

    txn = (struct mst__v3_txn){.success = ops_delete_put, .success_count = 2};
    assert_ok(mst__v3_read_txn(answer_of(json, "txn-value-version"), &txn, &result, &err));
    assert_int_equal(result.deleted, 1);
    assert_int_equal(result.range_count, 2);
    mst__v3_result_close(&result);

    txn = (struct mst__v3_txn){.success = ops_range_range, .success_count = 2};
    assert_ok(mst__v3_read_txn(answer_of(json, "txn-read-only"), &txn, &result, &err));
    assert_kv(&result.ranges[0].items[0], "/j/a", "three", 3, 12, 5);
    assert_kv(&result.ranges[1].items[0], "/j/c", "c", 9, 9, 1);
    mst__v3_result_close(&result);

    /* Answers to something else. */
    assert_fails(mst__v3_read_txn(answer_of(json, "txn-cas-ok"), &txn, &result, &err), MST_EPROTO,
                 "transaction");
    txn = (struct mst__v3_txn){.success = &op_range, .success_count = 1};
    assert_fails(mst__v3_read_txn(answer_of(json, "txn-cas-ok"), &txn, &result, &err), MST_EPROTO,
                 "transaction");
    mst__json_free(json);
}

static void test_read_others(void **state)
{
    (void)state;
    struct mst__json *json = load("v3_gateway.json");
    struct mst__v3_lease lease = {0};
    assert_ok(mst__v3_read_lease(answer_of(json, "lease-grant"), &lease, &err));
    assert_int_equal(lease.id, 2324035378493549003);
    assert_int_equal(lease.ttl_s, 10);
    assert_ok(mst__v3_read_lease(answer_of(json, "lease-ttl-missing"), &lease, &err));
    assert_int_equal(lease.ttl_s, -1);
    assert_ok(mst__v3_read_keep_alive(answer_of(json, "lease-keepalive"), &lease, &err));
    assert_int_equal(lease.ttl_s, 10);
    assert_ok(mst__v3_read_keep_alive(answer_of(json, "lease-keepalive-missing"), &lease, &err));
    assert_int_equal(lease.ttl_s, 0);
    struct mst__v3_status status;
    assert_ok(mst__v3_read_status(answer_of(json, "status"), &status, &err));
    assert_string_equal(status.version, "3.4.23");
    assert_true(status.leader == 3319814642761637952U);
    assert_true(status.member == 3319814642761637952U);
    assert_int_equal(status.db_size, 20480);
    mst__json_free(json);
    json = load("v3_auth.json");
    char *token = NULL;
    assert_ok(mst__v3_read_token(answer_of(json, "authenticate"), &token, &err));
    assert_string_equal(token, "cMsfmZSbSGhChTlK.35");
    mst__free(token);
    mst__json_free(json);
}

static const struct wanted_error {
    const char *file;
    const char *name;
    enum mst__v3_fate fate;
    int code;
    int grpc;
} wanted_errors[] = {
    {"v3_gateway.json", "put-urlsafe-b64", MST_V3_REFUSED, MST_EINVAL, 3},
    {"v3_gateway.json", "range-future-rev", MST_V3_REFUSED, MST_EINVAL, 11},
    {"v3_gateway.json", "txn-dup-key", MST_V3_REFUSED, MST_EINVAL, 3},
    {"v3_gateway.json", "txn-too-many", MST_V3_REFUSED, MST_ELIMIT, 3},
    {"v3_gateway.json", "lease-grant-dup", MST_V3_REFUSED, MST_EINVAL, 9},
    {"v3_gateway.json", "lease-revoke-missing", MST_V3_REFUSED, MST_ENOTFOUND, 5},
    {"v3_gateway.json", "put-bad-lease", MST_V3_REFUSED, MST_ENOTFOUND, 5},
    {"v3_gateway.json", "err-badenum", MST_V3_REFUSED, MST_EINVAL, 3},
    {"v3_gateway.json", "err-get-method", MST_V3_REFUSED, MST_EPROTO, -1},
    {"v3_gateway.json", "err-unknown-path", MST_V3_NO_PATH, MST_ENOTSUP, -1},
    {"v3_gateway.json", "err-v3alpha", MST_V3_NO_PATH, MST_ENOTSUP, -1},
    {"v3_gateway.json", "auth-disabled", MST_V3_REFUSED, MST_EINVAL, 9},
    {"v3_gateway.json", "range-compacted", MST_V3_REFUSED, MST_EINVAL, 11},
    {"v3_gateway.json", "err-too-big", MST_V3_REFUSED, MST_ELIMIT, 3},
    {"v3_gateway.json", "campaign-lock-election", MST_V3_TRANSIENT, MST_ECONN, 2},
    {"v3_auth.json", "noauth-put", MST_V3_TOKEN, MST_EAUTH, 3},
    {"v3_auth.json", "authenticate-bad", MST_V3_REFUSED, MST_EAUTH, 3},
    {"v3_auth.json", "put-with-bearer", MST_V3_TOKEN, MST_EAUTH, 16},
    {"v3_auth.json", "put-denied", MST_V3_REFUSED, MST_EAUTH, 7},
    {"cluster_errors.json", "v3-range-noquorum", MST_V3_TRANSIENT, MST_ECONN, 14},
    {"cluster_errors.json", "v3-put-noquorum", MST_V3_TRANSIENT, MST_ECONN, 2},
};

static void test_read_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wanted_errors / sizeof wanted_errors[0]; i++) {
        const struct wanted_error *wanted = &wanted_errors[i];
        struct mst__json *json = load(wanted->file);
        int status = status_of(vector_of(json, wanted->name));
        struct mst__v3_error error;
        assert_true(mst__v3_read_error(status, answer_of(json, wanted->name), &error));
        if (error.fate != wanted->fate || error.code != wanted->code ||
            error.grpc != wanted->grpc || error.message[0] == '\0' || error.is_untried) {
            fail_msg("%s: fate %d, %s, gRPC %d: %s", wanted->name, error.fate,
                     mst_errname(error.code), error.grpc, error.message);
        }
        mst__json_free(json);
    }
}

/* Every answer of the files is an answer or an error, never both. */
static void test_read_all(void **state)
{
    (void)state;
    static const char *const files[] = {"v3_gateway.json", "v3_auth.json", "cluster_errors.json"};
    size_t errors = 0;
    size_t answers = 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct mst__json *json = load(files[i]);
        const struct mst__json *vectors = mst__json_member(json, "vectors");
        for (size_t k = 0; k < mst__json_count(vectors); k++) {
            const struct mst__json *vector = mst__json_at(vectors, k);
            struct mst_bytes path = text_of(mst__json_member(vector, "request"), "path");
            const struct mst__json *response = mst__json_member(vector, "response");
            struct mst_bytes text;
            if (!mst__bytes_start_with(path, BYTES("/v3")) ||
                !mst__json_text(mst__json_member(response, "body"), &text)) {
                continue;
            }
            struct mst__v3_error error;
            int status = status_of(vector);
            bool is_error = mst__v3_read_error(status, text, &error);
            assert_int_equal(is_error, status != 200);
            errors += is_error ? 1 : 0;
            answers += is_error ? 0 : 1;
        }
        mst__json_free(json);
    }
    assert_true(errors > 20);
    assert_true(answers > 60);
}

/* --- other versions, and what nobody sends --- */

static void assert_error(int status,
                         const char *text,
                         enum mst__v3_fate fate,
                         int code,
                         const char *message)
{
    struct mst__v3_error error;
    assert_true(mst__v3_read_error(status, mst_bytes_str(text), &error));
    if (error.fate != fate || error.code != code || strcmp(error.message, message) != 0) {
        fail_msg("%s: fate %d, %s: %s", text, error.fate, mst_errname(error.code), error.message);
    }
}

static void test_error_shapes(void **state)
{
    (void)state;
    /* 3.6: no `error`, and status 400 where 3.4 has 412. */
    assert_error(404,
                 "{\"code\": 5, \"message\": \"etcdserver: requested lease not found\", "
                 "\"details\": []}",
                 MST_V3_REFUSED, MST_ENOTFOUND, "etcdserver: requested lease not found");
    assert_error(404, "{\"code\":5,\"message\":\"Not Found\",\"details\":[]}", MST_V3_NO_PATH,
                 MST_ENOTSUP, "Not Found");
    assert_error(400, "{\"code\":9,\"message\":\"etcdserver: lease already exists\"}",
                 MST_V3_REFUSED, MST_EINVAL, "etcdserver: lease already exists");
    assert_error(400, "{\"code\":3,\"message\":\"etcdserver: revision of auth store is old\"}",
                 MST_V3_TOKEN, MST_EAUTH, "etcdserver: revision of auth store is old");
    /* In a stream, both. */
    assert_error(200,
                 "{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"transport is "
                 "closing\",\"http_status\":\"Service Unavailable\"}}",
                 MST_V3_TRANSIENT, MST_ECONN, "transport is closing");
    assert_error(200, "{\"error\": {\"code\": 16, \"message\": \"x\", \"details\": []}}",
                 MST_V3_TOKEN, MST_EAUTH, "x");
    /* An error of a proxy. */
    assert_error(503, "<html>", MST_V3_TRANSIENT, MST_ECONN, "HTTP status 503, '<html>'");
    assert_error(502, "{\"code\":502,\"message\":\"x\"}", MST_V3_TRANSIENT, MST_ECONN,
                 "HTTP status 502, '{\"code\":502,\"message\":\"x\"}'");
    assert_error(403, "no\n", MST_V3_REFUSED, MST_EAUTH, "HTTP status 403, 'no'");
    assert_error(400, "", MST_V3_REFUSED, MST_EPROTO, "HTTP status 400, ''");
    assert_error(200, "a\001b", MST_V3_REFUSED, MST_EPROTO, "HTTP status 200, 'a?b'");
    struct mst__v3_error error;
    assert_false(mst__v3_read_error(200, BYTES("{}"), &error));
    /* Only a member that did not begin reports this. */
    mst__v3_judge(14, BYTES("etcdserver: no leader"), &error);
    assert_true(error.is_untried);
    mst__v3_judge(14, BYTES("etcdserver: request timed out"), &error);
    assert_false(error.is_untried);
    /* A long one is cut off. */
    char text[1000];
    memset(text, 'x', sizeof text);
    mst__v3_judge(2, mst_bytes_of(text, sizeof text), &error);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
}

/* What may pass is tried again; who is not allowed hears that. */
static void test_fates(void **state)
{
    (void)state;
    static const struct {
        int number; /* a status from 100 on, else a code of gRPC */
        enum mst__v3_fate fate;
        int code;
    } cases[] = {
        {401, MST_V3_REFUSED, MST_EAUTH},   {403, MST_V3_REFUSED, MST_EAUTH},
        {404, MST_V3_NO_PATH, MST_ENOTSUP}, {407, MST_V3_REFUSED, MST_EAUTH},
        {408, MST_V3_TRANSIENT, MST_ECONN}, {409, MST_V3_REFUSED, MST_EPROTO},
        {429, MST_V3_TRANSIENT, MST_ECONN}, {500, MST_V3_TRANSIENT, MST_ECONN},
        {504, MST_V3_TRANSIENT, MST_ECONN}, {1, MST_V3_TRANSIENT, MST_ECONN},
        {2, MST_V3_TRANSIENT, MST_ECONN},   {3, MST_V3_REFUSED, MST_EINVAL},
        {4, MST_V3_TRANSIENT, MST_ECONN},   {5, MST_V3_REFUSED, MST_ENOTFOUND},
        {7, MST_V3_REFUSED, MST_EAUTH},     {8, MST_V3_REFUSED, MST_ELIMIT},
        {9, MST_V3_REFUSED, MST_EINVAL},    {10, MST_V3_TRANSIENT, MST_ECONN},
        {11, MST_V3_REFUSED, MST_EINVAL},   {12, MST_V3_REFUSED, MST_ENOTSUP},
        {13, MST_V3_TRANSIENT, MST_ECONN},  {14, MST_V3_TRANSIENT, MST_ECONN},
        {16, MST_V3_TOKEN, MST_EAUTH},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__v3_error error;
        if (cases[i].number >= 100) {
            assert_true(mst__v3_read_error(cases[i].number, BYTES("<html>"), &error));
        } else {
            mst__v3_judge(cases[i].number, BYTES("x"), &error);
        }
        if (error.fate != cases[i].fate || error.code != cases[i].code) {
            fail_msg("%d: fate %d, %s", cases[i].number, error.fate, mst_errname(error.code));
        }
    }
}

/* Blanks, numbers as numbers, explicit zeros: all are allowed. */
static void test_read_verbose(void **state)
{
    (void)state;
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    struct mst__v3_txn txn = {NULL, 0, &op_put, 1, &op_range, 1};
    assert_ok(mst__v3_read_txn(
        mst_bytes_str("{ \"header\": {\"revision\": 9007199254740993}, \"succeeded\": false, "
                      "\"responses\": [ { \"response_range\": { \"kvs\": [ {\"key\": \"YQ==\", "
                      "\"lease\": 0, \"value\": \"\", \"version\": 1} ], \"more\": false, "
                      "\"count\": \"1\" } } ] }"),
        &txn, &result, &err));
    assert_false(result.succeeded);
    assert_int_equal(result.revision, 9007199254740993);
    assert_int_equal(result.ranges[0].count, 1);
    mst__v3_result_close(&result);
    struct mst__v3_line line;
    assert_ok(mst__v3_read_line(
        mst_bytes_str("{\"result\": {" HEADER ", \"watch_id\": \"0\", \"created\": false, "
                      "\"canceled\": false, \"compact_revision\": \"0\", \"events\": ["
                      "{\"type\": \"PUT\", \"kv\": {\"key\": \"YQ==\", \"mod_revision\": \"7\"}},"
                      "{\"type\": 1, \"kv\": {\"key\": \"YQ==\", \"mod_revision\": 8}}]}}"),
        &line, &err));
    assert_int_equal(line.kind, MST_V3_LINE_EVENTS);
    assert_int_equal(line.event_count, 2);
    assert_false(line.events[0].is_delete);
    assert_true(line.events[1].is_delete);
    assert_int_equal(line.events[1].kv.mod_revision, 8);
    mst__v3_line_close(&line);
}

static void test_read_malformed(void **state)
{
    (void)state;
    static const char *const ranges[] = {
        "",
        "[]",
        "{}", /* must not pass for "no such key" */
        "{\"header\":{}}",
        "{\"header\":{\"revision\":\"x\"}}",
        "{\"header\":{\"revision\":\"-1\"}}",
        "{\"header\":{\"revision\":\"9223372036854775808\"}}",
        "{\"header\":{\"revision\":1.5}}",
        "{" HEADER ",\"kvs\":{}}",
        "{" HEADER ",\"kvs\":[1]}",
        "{" HEADER ",\"kvs\":[{}]}",
        "{" HEADER ",\"kvs\":[{\"key\":\"YQ\"}]}",
        "{" HEADER ",\"kvs\":[{\"key\":1}]}",
        "{" HEADER ",\"kvs\":[{\"key\":\"YQ==\",\"lease\":\"a\"}]}",
        "{" HEADER ",\"kvs\":[{\"key\":\"YQ==\"},{\"key\":\"YQ==\",\"value\":true}]}",
        "{" HEADER ",\"more\":\"true\"}",
    };
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        assert_fails(mst__v3_read_range(mst_bytes_str(ranges[i]), &result, &err), MST_EPROTO,
                     "answer of etcd");
        assert_null(result.ranges);
    }
    struct mst__v3_lease lease;
    assert_fails(mst__v3_read_lease(BYTES("{" HEADER "}"), &lease, &err), MST_EPROTO, "no lease");
    assert_fails(mst__v3_read_keep_alive(BYTES("{\"ID\":\"1\"}"), &lease, &err), MST_EPROTO,
                 "no lease");
    char *token = NULL;
    assert_fails(mst__v3_read_token(BYTES("{\"token\":\"\"}"), &token, &err), MST_EPROTO, "token");
    assert_fails(mst__v3_read_token(BYTES("{\"token\":\"a\\r\\nb\"}"), &token, &err), MST_EPROTO,
                 "token");
    struct mst__v3_status status;
    assert_fails(mst__v3_read_status(BYTES("{}"), &status, &err), MST_EPROTO, "status");
    static const char *const lines[] = {
        "",
        "{}",
        "{\"result\":1}",
        "{\"result\":{\"events\":[{}]}}",
        "{\"result\":{\"events\":[{\"kv\":{\"key\":\"YQ==\"}}]}}",
        "{\"result\":{\"events\":[{\"type\":\"MOVE\",\"kv\":{\"key\":\"YQ==\"}}]}}",
        "{\"result\":{\"events\":[{\"type\":2,\"kv\":{\"key\":\"YQ==\"}}]}}",
        "{\"result\":{\"watch_id\":{}}}",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct mst__v3_line line;
        assert_fails(mst__v3_read_line(mst_bytes_str(lines[i]), &line, &err), MST_EPROTO,
                     "watching etcd");
        mst__v3_line_close(&line);
    }
}

/* --- watches --- */

/* The chunks of a response, joined as by the transport. */
static void dechunk(struct mst_bytes raw, struct mst__buf *ret_body)
{
    const char *at = (const char *)raw.data; /* the JSON's text has a NUL behind it */
    const char *end = at + raw.size;
    const char *head = strstr(at, "\r\n\r\n");
    at = strncmp(at, "HTTP/", 5) == 0 && head != NULL ? head + 4 : at;
    while (at < end && *at != '<') {
        char *behind = NULL;
        size_t size = strtoul(at, &behind, 16);
        at = behind + 2;
        assert_true(at + size <= end);
        assert_int_equal(mst__buf_append(ret_body, mst_bytes_of(at, size)), 0);
        at += size + 2;
    }
}

/* Read all lines of a recorded stream: `c`reated, `p`rogress, number of `e`vents, cancel by
 * compaction `x`, `E`rror. */
static void assert_stream(const struct mst__json *pieces, const char *wanted)
{
    char got[64] = "";
    size_t size = 0;
    for (size_t i = 0; i < mst__json_count(pieces); i++) {
        struct mst_bytes raw = mst_bytes_of("", 0);
        assert_true(mst__json_text(mst__json_at(mst__json_at(pieces, i), 1), &raw));
        dechunk(raw, &body);
    }
    struct mst_bytes rest = mst__buf_bytes(&body);
    while (rest.size > 0) {
        const uint8_t *end = memchr(rest.data, '\n', rest.size);
        size_t length = end == NULL ? rest.size : (size_t)(end - rest.data);
        struct mst__v3_line line;
        assert_ok(mst__v3_read_line(mst_bytes_of(rest.data, length), &line, &err));
        assert_true(size < sizeof got - 3);
        got[size++] = "cepxE"[line.kind];
        if (line.kind == MST_V3_LINE_EVENTS) {
            got[size++] = (char)('0' + line.event_count);
        }
        got[size] = '\0';
        assert_int_equal(line.kind == MST_V3_LINE_CANCELED, line.compact_revision != 0);
        mst__v3_line_close(&line);
        rest = mst__bytes_skip(rest, end == NULL ? length : length + 1);
    }
    assert_string_equal(got, wanted);
    mst__buf_clear(&body);
}

static void test_read_streams(void **state)
{
    (void)state;
    static const char *const wanted[][2] = {
        {"single-key", "ce1e1"},
        {"prefix-from-revision-prevkv", "ce3"},
        {"filters-noput", "ce1"},
        {"compacted", "cx"},
        {"two-creates-in-one-body", "cce1"},
        {"progress-request", "cp"},
        {"multi-event-txn", "ce2"},
        {"lease-expiry", "ce1"},
    };
    struct mst__json *json = load("v3_watch.json");
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const struct mst__json *vector = vector_of(json, wanted[i][0]);
        assert_stream(mst__json_member(vector, "received_raw_at_s"), wanted[i][1]);
    }
    mst__json_free(json);
    json = load("server_restart.json");
    const struct mst__json *raw = mst__json_member(json, "raw");
    assert_stream(mst__json_member(mst__json_member(raw, "SIGTERM"), "v3_watch"), "cE");
    assert_stream(mst__json_member(mst__json_member(raw, "SIGKILL"), "v3_watch"), "c");
    mst__json_free(json);
}

static void test_read_line(void **state)
{
    (void)state;
    struct mst__v3_line line;
    assert_ok(mst__v3_read_line(
        BYTES("{\"result\":{\"header\":{\"member_id\":\"9738038894873888102\",\"revision\":\"31\"},"
              "\"watch_id\":\"7\",\"events\":[{\"type\":\"DELETE\",\"kv\":{\"key\":\"YQ==\","
              "\"mod_revision\":\"31\"}},{\"kv\":{\"key\":\"Yg==\",\"create_revision\":\"2\","
              "\"mod_revision\":\"31\",\"version\":\"3\",\"value\":\"MQ==\",\"lease\":\"5\"}}]}}"),
        &line, &err));
    assert_int_equal(line.watch_id, 7);
    assert_int_equal(line.revision, 31);
    assert_true(line.member == 9738038894873888102U); /* beyond what is signed */
    assert_true(line.events[0].is_delete);
    assert_kv(&line.events[0].kv, "a", "", 0, 31, 0);
    assert_false(line.events[1].is_delete);
    assert_kv(&line.events[1].kv, "b", "1", 2, 31, 3);
    assert_int_equal(line.events[1].kv.lease, 5);
    mst__v3_line_close(&line);
    /* A watch that is not allowed: up to 3.5 also because of an expired token. */
    assert_ok(mst__v3_read_line(BYTES("{\"result\":{\"watch_id\":\"-1\",\"created\":true,"
                                      "\"canceled\":true,\"cancel_reason\":\"rpc error: code = "
                                      "PermissionDenied desc = etcdserver: permission denied\"}}"),
                                &line, &err));
    assert_int_equal(line.kind, MST_V3_LINE_CANCELED);
    assert_int_equal(line.error.fate, MST_V3_TOKEN);
    assert_ok(mst__v3_read_line(BYTES("{\"result\":{\"canceled\":true}}"), &line, &err));
    assert_int_equal(line.error.fate, MST_V3_TRANSIENT);
    assert_ok(
        mst__v3_read_line(BYTES("{\"error\":{\"grpc_code\":16,\"message\":\"t\"}}"), &line, &err));
    assert_int_equal(line.kind, MST_V3_LINE_ERROR);
    assert_int_equal(line.error.fate, MST_V3_TOKEN);
}

/* --- memory --- */

/* Run all of it with the n-th allocation failing, until none does. */
static void test_faults(void **state)
{
    (void)state;
    struct mst__v3_txn txn = {.success = ops_range_range, .success_count = 2};
    struct mst__json *json = load("v3_gateway.json");
    struct mst_bytes answer = answer_of(json, "txn-read-only");
    struct mst__v3_watched watched = {.key = BYTES("a"), .span = MST_V3_PREFIX};
    const char *text = "{\"result\":{" HEADER ",\"events\":[{\"kv\":{\"key\":\"YQ==\","
                       "\"value\":\"YQ==\",\"mod_revision\":\"7\"}}]}}";
    struct mst__sweep sweep = {0};
    while (sweep_next(&sweep)) {
        struct mst__v3_result result;
        struct mst__v3_line line;
        char *token = NULL;
        mst__v3_result_init(&result);
        mst__buf_close(&body);
        mst__buf_init(&body, 1 << 20);
        int rv = mst__v3_write_watch(&body, &watched, 1);
        assert_true(rv == 0 || mst__buf_size(&body) == 0);
        rv = rv != 0 ? rv : mst__v3_read_txn(answer, &txn, &result, NULL);
        int line_rv = mst__v3_read_line(mst_bytes_str(text), &line, NULL);
        rv = rv != 0 ? rv : line_rv;
        rv = rv != 0 ? rv : mst__v3_read_token(BYTES("{\"token\":\"a\"}"), &token, NULL);
        sweep_end(&sweep, rv);
        mst__v3_line_close(&line);
        mst__v3_result_close(&result);
        mst__free(token);
    }
    assert_true(sweep.failures > 8);
    mst__json_free(json);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    vectors_dir = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_write_range, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_write_prefix, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_write_txn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_write_others, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_write_watch, set_up, tear_down),
        cmocka_unit_test(test_read_range),
        cmocka_unit_test(test_read_txn),
        cmocka_unit_test(test_read_others),
        cmocka_unit_test(test_read_errors),
        cmocka_unit_test(test_read_all),
        cmocka_unit_test(test_error_shapes),
        cmocka_unit_test(test_fates),
        cmocka_unit_test(test_read_verbose),
        cmocka_unit_test(test_read_malformed),
        cmocka_unit_test_setup_teardown(test_read_streams, set_up, tear_down),
        cmocka_unit_test(test_read_line),
        cmocka_unit_test_setup_teardown(test_faults, set_up, tear_down),
    };
    return MST_RUN_TESTS(tests);
}
