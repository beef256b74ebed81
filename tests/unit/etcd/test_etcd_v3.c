/* The v3 client against real etcds: every operation, watches over restarts, compaction, tokens,
 * members that hang or are cut off. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/until.h"
#include "etcd/v3_self.h"
#include "unit/etcd_unit.h"
#include "unit/store_unit.h"

#define BYTES(text) mst_bytes_of((text), sizeof(text) - 1)
#define MEMBERS 3

/* The server that most tests share, each with its own keys. */
static struct etcd_unit shared;
static struct mst__v3 *v3;
static struct mst__v3_result result;

static struct mst__until plenty(void)
{
    return mst__until_in(PLENTY_MS);
}

static struct mst__until soon(void)
{
    return mst__until_in(SHORT_MS);
}

static struct mst__v3 *connect_to(const struct etcd_unit *members,
                                  size_t count,
                                  const char *user,
                                  const char *password)
{
    struct mst__endpoint endpoints[MEMBERS];
    assert_true(count <= MEMBERS);
    for (size_t i = 0; i < count; i++) {
        endpoints[i] = (struct mst__endpoint){.host = "127.0.0.1", .port = members[i].port};
    }
    struct mst__http_options options = {
        .endpoints = endpoints, .endpoint_count = count, .user = user, .password = password};
    struct mst__v3 *client = NULL;
    assert_ok(mst__v3_new(&options, &client, &err));
    return client;
}

static int set_up(void **state)
{
    (void)state;
    if (!etcd_unit_is_there()) {
        return 0; /* NEED_ETCD skips */
    }
    if (shared.pid == 0) {
        etcd_unit_start(&shared, false, NULL);
    }
    v3 = connect_to(&shared, 1, NULL, NULL);
    mst__v3_result_init(&result);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mst__v3_result_close(&result);
    mst__v3_free(v3);
    v3 = NULL;
    return 0;
}

#define NEED_ETCD()                       \
    do {                                  \
        if (!etcd_unit_is_there()) {      \
            MST_SKIP("there is no etcd"); \
        }                                 \
    } while (0)

static int64_t put_by(struct mst__v3 *client, struct mst_bytes key, struct mst_bytes value)
{
    struct mst__v3_put put = {.key = key, .value = value};
    assert_ok(mst__v3_put(client, &put, plenty(), &result, &err));
    return result.revision;
}

static int64_t put(const char *key, const char *value)
{
    return put_by(v3, mst_bytes_str(key), mst_bytes_str(value));
}

static const struct mst__v3_kvs *get(struct mst__v3_range range)
{
    assert_ok(mst__v3_range(v3, &range, plenty(), &result, &err));
    assert_int_equal(result.range_count, 1);
    return &result.ranges[0];
}

static struct mst_bytes key_of(const struct mst__v3_kv *kv)
{
    return mst_bytes_of(kv->key.data, kv->key.size);
}

static struct mst_bytes value_of(const struct mst__v3_kv *kv)
{
    return mst_bytes_of(kv->value.data, kv->value.size);
}

/* --- keys --- */

static void test_keys(void **state)
{
    (void)state;
    NEED_ETCD();
    const struct mst__v3_kvs *kvs = get((struct mst__v3_range){.key = BYTES("keys/none")});
    assert_int_equal(kvs->count, 0);
    int64_t first = put_by(v3, BYTES("keys/\x00\xff"), BYTES("\x00v\xff"));
    int64_t second = put("keys/b", "");
    int64_t third = put("keys/a", "1");
    assert_int_equal(put("keys/a", "2"), third + 1);
    assert_int_equal(second, first + 1);

    kvs = get((struct mst__v3_range){.key = BYTES("keys/\x00\xff")});
    assert_int_equal(kvs->count, 1);
    assert_bytes(value_of(&kvs->items[0]), BYTES("\x00v\xff"));
    assert_int_equal(kvs->items[0].create_revision, first);
    assert_int_equal(kvs->items[0].version, 1);

    kvs = get((struct mst__v3_range){.key = BYTES("keys/"), .span = MST_V3_PREFIX});
    assert_int_equal(kvs->count, 3);
    assert_bytes_str(key_of(&kvs->items[1]), "keys/a");
    assert_int_equal(kvs->items[1].create_revision, third);
    assert_int_equal(kvs->items[1].mod_revision, third + 1);
    assert_int_equal(kvs->items[1].version, 2);
    assert_int_equal(kvs->items[2].value.size, 0);

    kvs = get((struct mst__v3_range){.key = BYTES("keys/"),
                                     .span = MST_V3_PREFIX,
                                     .sort = MST_V3_OLDEST_FIRST,
                                     .limit = 1,
                                     .is_keys_only = true});
    assert_int_equal(kvs->count, 1);
    assert_true(kvs->is_more);
    assert_bytes(key_of(&kvs->items[0]), BYTES("keys/\x00\xff"));
    assert_int_equal(kvs->items[0].value.size, 0);

    kvs = get((struct mst__v3_range){.key = BYTES("keys/"),
                                     .span = MST_V3_PREFIX,
                                     .sort = MST_V3_NEWEST_FIRST,
                                     .create_revision_max = third - 1,
                                     .is_serializable = true});
    assert_int_equal(kvs->count, 2);
    assert_bytes_str(key_of(&kvs->items[0]), "keys/b");

    struct mst__v3_delete del = {.key = BYTES("keys/"), .span = MST_V3_PREFIX};
    assert_ok(mst__v3_delete(v3, &del, plenty(), &result, &err));
    assert_int_equal(result.deleted, 3);
    assert_ok(mst__v3_delete(v3, &del, plenty(), &result, &err));
    assert_int_equal(result.deleted, 0);
}

/* Prefixes whose end is not just the next letter. */
static void test_prefixes(void **state)
{
    (void)state;
    NEED_ETCD();
    put_by(v3, BYTES("\xff\xff"), BYTES("1"));
    put_by(v3, BYTES("\xff\xff\xff"), BYTES("2"));
    put_by(v3, BYTES("\xff\xfe"), BYTES("3"));
    put_by(v3,
           BYTES("p\xff"
                 "a"),
           BYTES("4"));
    put_by(v3, BYTES("q"), BYTES("5"));
    struct mst__v3_range range = {.key = BYTES("\xff\xff"), .span = MST_V3_PREFIX};
    assert_int_equal(get(range)->count, 2);
    range.key = BYTES("p\xff");
    assert_int_equal(get(range)->count, 1);
    range.key = BYTES("");
    range.is_keys_only = true;
    assert_true(get(range)->count >= 5);
    range.span = MST_V3_KEY;
    assert_fails(mst__v3_range(v3, &range, plenty(), &result, &err), MST_EINVAL, "key is empty");
    struct mst__v3_delete del = {.key = BYTES("\xff"), .span = MST_V3_PREFIX};
    assert_ok(mst__v3_delete(v3, &del, plenty(), &result, &err));
    assert_int_equal(result.deleted, 3);
}

/* --- transactions --- */

static bool run_txn(const struct mst__v3_compare *compare)
{
    struct mst__v3_txn txn = {.compares = compare, .compare_count = 1};
    assert_ok(mst__v3_txn(v3, &txn, plenty(), &result, &err));
    return result.succeeded;
}

static void test_compares(void **state)
{
    (void)state;
    NEED_ETCD();
    int64_t revision = put("cmp/a", "x");
    struct mst__v3_compare compare = {
        .key = BYTES("cmp/a"), .target = MST_V3_MOD, .number = revision};
    assert_true(run_txn(&compare));
    compare.relation = MST_V3_NOT_EQUAL;
    assert_false(run_txn(&compare));
    compare.relation = MST_V3_LESS;
    assert_false(run_txn(&compare));
    compare.number++;
    assert_true(run_txn(&compare));
    compare = (struct mst__v3_compare){.key = BYTES("cmp/none"), .target = MST_V3_CREATE};
    assert_true(run_txn(&compare));
    compare.target = MST_V3_VERSION;
    compare.relation = MST_V3_GREATER;
    assert_false(run_txn(&compare));
    compare = (struct mst__v3_compare){
        .key = BYTES("cmp/a"), .target = MST_V3_VALUE, .value = BYTES("x")};
    assert_true(run_txn(&compare));
    compare.value = BYTES("");
    assert_false(run_txn(&compare));
    compare = (struct mst__v3_compare){.key = BYTES("cmp/a"), .target = MST_V3_LEASE};
    assert_true(run_txn(&compare));
    put("cmp/b", "y");
    compare = (struct mst__v3_compare){.key = BYTES("cmp/"),
                                       .span = MST_V3_PREFIX,
                                       .target = MST_V3_CREATE,
                                       .relation = MST_V3_LESS,
                                       .number = revision + 1};
    assert_false(run_txn(&compare));
    compare.number++;
    assert_true(run_txn(&compare));
}

static void test_txn(void **state)
{
    (void)state;
    NEED_ETCD();
    const struct mst__v3_compare compare = {.key = BYTES("txn/a"), .target = MST_V3_CREATE};
    const struct mst__v3_op success[] = {
        {.kind = MST_V3_OP_RANGE, .u.range = {.key = BYTES("txn/"), .span = MST_V3_PREFIX}},
        {.kind = MST_V3_OP_PUT, .u.put = {.key = BYTES("txn/a"), .value = BYTES("1")}},
        {.kind = MST_V3_OP_DELETE, .u.del = {.key = BYTES("txn/b")}},
        {.kind = MST_V3_OP_RANGE, .u.range = {.key = BYTES("txn/"), .span = MST_V3_PREFIX}},
    };
    const struct mst__v3_op failure = {.kind = MST_V3_OP_RANGE, .u.range.key = BYTES("txn/a")};
    struct mst__v3_txn txn = {&compare, 1, success, 4, &failure, 1};
    put("txn/b", "b");
    assert_ok(mst__v3_txn(v3, &txn, plenty(), &result, &err));
    assert_true(result.succeeded);
    assert_int_equal(result.deleted, 1);
    assert_int_equal(result.range_count, 4);
    assert_int_equal(result.ranges[0].count, 1);
    assert_bytes_str(key_of(&result.ranges[0].items[0]), "txn/b");
    assert_int_equal(result.ranges[1].count, 0);
    assert_int_equal(result.ranges[3].count, 1);
    assert_bytes_str(key_of(&result.ranges[3].items[0]), "txn/a");
    int64_t revision = result.revision;
    assert_ok(mst__v3_txn(v3, &txn, plenty(), &result, &err));
    assert_false(result.succeeded);
    assert_int_equal(result.range_count, 1);
    assert_int_equal(result.ranges[0].items[0].mod_revision, revision);
    assert_int_equal(result.revision, revision);

    const struct mst__v3_op twice[] = {success[1], success[1]};
    txn = (struct mst__v3_txn){.success = twice, .success_count = 2};
    assert_fails(mst__v3_txn(v3, &txn, plenty(), &result, &err), MST_EINVAL, "duplicate key");
    struct mst__v3_op many[MST_V3_TXN_MAX + 1];
    for (size_t i = 0; i < MST_V3_TXN_MAX + 1; i++) {
        many[i] = failure;
    }
    txn = (struct mst__v3_txn){.success = many, .success_count = MST_V3_TXN_MAX};
    assert_ok(mst__v3_txn(v3, &txn, plenty(), &result, &err));
    assert_int_equal(result.range_count, MST_V3_TXN_MAX);
    txn.success_count++;
    assert_fails(mst__v3_txn(v3, &txn, plenty(), &result, &err), MST_ELIMIT, "too many");
}

static void test_too_large(void **state)
{
    (void)state;
    NEED_ETCD();
    static char value[1600 << 10];
    struct mst__v3_put large = {.key = BYTES("large"), .value = mst_bytes_of(value, sizeof value)};
    assert_fails(mst__v3_put(v3, &large, plenty(), &result, &err), MST_ELIMIT, "too large");
    large.value.size = 1 << 20;
    assert_ok(mst__v3_put(v3, &large, plenty(), &result, &err));
    assert_int_equal(get((struct mst__v3_range){.key = BYTES("large")})->items[0].value.size,
                     1 << 20);
}

/* --- watching --- */

static struct mst__v3_watch *watch_one(struct mst__v3 *client,
                                       const char *key,
                                       enum mst__v3_span span,
                                       int64_t from)
{
    struct mst__v3_watched watched = {.key = mst_bytes_str(key), .span = span};
    struct mst__v3_watch *watch = NULL;
    assert_ok(mst__v3_watch_new(client, &watched, 1, from, &watch, &err));
    return watch;
}

/* The next event, which is alone: @value NULL = it is gone. */
static void expect(struct mst__v3_watch *watch,
                   const char *key,
                   const char *value,
                   int64_t revision)
{
    struct mst__v3_events events = {0};
    assert_ok(mst__v3_watch_next(watch, plenty(), &events, &err));
    assert_int_equal(events.count, 1);
    const struct mst__v3_event *event = &events.items[0];
    assert_bytes_str(key_of(&event->kv), key);
    assert_int_equal(event->is_delete, value == NULL);
    assert_bytes_str(value_of(&event->kv), value == NULL ? "" : value);
    if (revision != 0) {
        assert_int_equal(events.revision, revision);
    }
    mst__v3_events_close(&events);
}

static void expect_nothing(struct mst__v3_watch *watch)
{
    struct mst__v3_events events = {0};
    assert_fails(mst__v3_watch_next(watch, soon(), &events, &err), MST_ETIMEOUT, "no event");
}

static void test_watch(void **state)
{
    (void)state;
    NEED_ETCD();
    int64_t first = put("w/a", "1");
    int64_t second = put("w/b", "2");
    /* Past events, then new ones. */
    struct mst__v3_watch *watch = watch_one(v3, "w/", MST_V3_PREFIX, first);
    expect(watch, "w/a", "1", first);
    expect(watch, "w/b", "2", second);
    expect_nothing(watch);
    put("x", "not watched");
    struct mst__v3_delete del = {.key = BYTES("w/a")};
    assert_ok(mst__v3_delete(v3, &del, plenty(), &result, &err));
    expect(watch, "w/a", NULL, result.revision);
    /* One transaction is one piece. */
    const struct mst__v3_op ops[] = {
        {.kind = MST_V3_OP_PUT, .u.put = {.key = BYTES("w/c"), .value = BYTES("3")}},
        {.kind = MST_V3_OP_DELETE, .u.del = {.key = BYTES("w/b")}},
    };
    struct mst__v3_txn txn = {.success = ops, .success_count = 2};
    assert_ok(mst__v3_txn(v3, &txn, plenty(), &result, &err));
    struct mst__v3_events events = {0};
    assert_ok(mst__v3_watch_next(watch, plenty(), &events, &err));
    assert_int_equal(events.count, 2);
    assert_int_equal(events.revision, result.revision);
    mst__v3_events_close(&events);
    mst__v3_watch_close(watch);
}

/* Without a revision a watch reports events after its start, whenever that is. */
static void test_watch_from_now(void **state)
{
    (void)state;
    NEED_ETCD();
    int64_t before = put("wn", "before");
    struct mst__v3_watch *watch = watch_one(v3, "wn", MST_V3_KEY, 0);
    struct mst__v3_events events = {0};
    struct mst__until until = plenty();
    int rv;
    while ((rv = mst__v3_watch_next(watch, soon(), &events, &err)) == MST_ETIMEOUT &&
           !mst__until_is_over(until)) {
        put("wn", "after");
    }
    assert_int_equal(rv, 0);
    assert_true(events.revision > before);
    assert_bytes_str(value_of(&events.items[0].kv), "after");
    mst__v3_events_close(&events);
    mst__v3_watch_close(watch);
}

static void test_watch_several(void **state)
{
    (void)state;
    NEED_ETCD();
    int64_t from = put("ws/start", "") + 1;
    const struct mst__v3_watched watched[] = {
        {.key = BYTES("ws/a")},
        {.key = BYTES("ws/"), .span = MST_V3_PREFIX, .is_without_puts = true},
        {.key = BYTES("ws/b"), .span = MST_V3_PREFIX},
    };
    struct mst__v3_watch *watch = NULL;
    assert_ok(mst__v3_watch_new(v3, watched, 3, from, &watch, &err));
    expect_nothing(watch);
    expect(watch, "ws/a", "1", put("ws/a", "1"));
    put("ws/c", "a put that nobody wants");
    expect(watch, "ws/bb", "2", put("ws/bb", "2"));
    struct mst__v3_delete del = {.key = BYTES("ws/bb")};
    assert_ok(mst__v3_delete(v3, &del, plenty(), &result, &err));
    expect(watch, "ws/bb", NULL, result.revision); /* once, though two ranges have it */
    expect_nothing(watch);
    mst__v3_watch_close(watch);
}

static void test_watch_canceled(void **state)
{
    (void)state;
    NEED_ETCD();
    struct mst__v3_watch *watch = watch_one(v3, "wc", MST_V3_KEY, put("wc", "0") + 1);
    expect_nothing(watch);
    int fd = eventfd(1, EFD_CLOEXEC);
    assert_true(fd >= 0);
    struct mst__v3_events events = {0};
    assert_fails(mst__v3_watch_next(watch, mst__until_by(fd, PLENTY_MS), &events, &err),
                 MST_ECANCELED, "cancelled");
    (void)close(fd);
    expect(watch, "wc", "1", put("wc", "1"));
    mst__v3_watch_close(watch);
    struct mst__v3_watched watched = {.key = BYTES("")};
    assert_fails(mst__v3_watch_new(v3, &watched, 1, 0, &watch, &err), MST_EINVAL, "key is empty");
    assert_fails(mst__v3_watch_new(v3, &watched, 0, 0, &watch, &err), MST_EINVAL, "0 ranges");
}

/* --- leases --- */

static void test_leases(void **state)
{
    (void)state;
    NEED_ETCD();
    int64_t lease = 0;
    int64_t ttl_s = 0;
    assert_ok(mst__v3_lease_grant(v3, 60, plenty(), &lease, &ttl_s, &err));
    assert_true(lease > 0);
    assert_int_equal(ttl_s, 60);
    assert_ok(mst__v3_lease_keep_alive(v3, lease, plenty(), &ttl_s, &err));
    assert_int_equal(ttl_s, 60);
    assert_ok(mst__v3_lease_time_to_live(v3, lease, plenty(), &ttl_s, &err));
    assert_true(ttl_s > 30 && ttl_s <= 60);
    struct mst__v3_put leased = {.key = BYTES("lease/a"), .lease = lease};
    assert_ok(mst__v3_put(v3, &leased, plenty(), &result, &err));
    assert_int_equal(get((struct mst__v3_range){.key = BYTES("lease/a")})->items[0].lease, lease);
    assert_ok(mst__v3_lease_revoke(v3, lease, plenty(), &err));
    assert_int_equal(get((struct mst__v3_range){.key = BYTES("lease/a")})->count, 0);
    assert_fails(mst__v3_lease_revoke(v3, lease, plenty(), &err), MST_ENOTFOUND, "not found");
    assert_fails(mst__v3_lease_keep_alive(v3, lease, plenty(), &ttl_s, &err), MST_ENOTFOUND,
                 "gone");
    assert_fails(mst__v3_lease_time_to_live(v3, lease, plenty(), &ttl_s, &err), MST_ENOTFOUND,
                 "gone");
    assert_fails(mst__v3_put(v3, &leased, plenty(), &result, &err), MST_ENOTFOUND, "not found");

    lease = INT64_MAX;
    assert_ok(mst__v3_lease_grant(v3, 60, plenty(), &lease, &ttl_s, &err));
    assert_int_equal(lease, INT64_MAX);
    assert_fails(mst__v3_lease_grant(v3, 60, plenty(), &lease, &ttl_s, &err), MST_EINVAL,
                 "already exists");
    assert_ok(mst__v3_lease_revoke(v3, lease, plenty(), &err));
    assert_fails(mst__v3_lease_revoke(v3, 0, plenty(), &err), MST_EINVAL, "lease revoke");
}

static void test_lease_expires(void **state)
{
    (void)state;
    NEED_ETCD();
    int64_t lease = 0;
    int64_t ttl_s = 0;
    assert_ok(mst__v3_lease_grant(v3, 1, plenty(), &lease, &ttl_s, &err));
    assert_true(ttl_s >= 1 && ttl_s <= 3); /* etcd has a minimum */
    struct mst__v3_put leased = {.key = BYTES("expiry"), .value = BYTES("v"), .lease = lease};
    assert_ok(mst__v3_put(v3, &leased, plenty(), &result, &err));
    struct mst__v3_watch *watch = watch_one(v3, "expiry", MST_V3_KEY, result.revision);
    expect(watch, "expiry", "v", result.revision);
    expect(watch, "expiry", NULL, 0);
    assert_fails(mst__v3_lease_keep_alive(v3, lease, plenty(), &ttl_s, &err), MST_ENOTFOUND,
                 "gone");
    mst__v3_watch_close(watch);
}

static void test_status(void **state)
{
    (void)state;
    NEED_ETCD();
    struct mst__v3_status status;
    assert_ok(mst__v3_status(v3, plenty(), &status, &err));
    assert_memory_equal(status.version, "3.", 2);
    assert_true(status.leader != 0);
    assert_true(status.leader == status.member);
    assert_true(status.db_size > 0);
    uint64_t before = mst__v3_requests(v3);
    put("status", "1");
    assert_int_equal(mst__v3_requests(v3), before + 1);
    assert_non_null(strstr(mst__v3_where(v3), "127.0.0.1"));
}

/* --- memory --- */

/* A client, a write, a read and an event, with the first failure of these. */
static int do_all(void)
{
    struct mst__endpoint endpoint = {.host = "127.0.0.1", .port = shared.port};
    struct mst__http_options options = {
        .endpoints = &endpoint, .endpoint_count = 1, .user = "nobody", .password = "asks"};
    struct mst__v3 *client = NULL;
    struct mst__v3_watch *watch = NULL;
    struct mst__v3_watched watched = {.key = BYTES("faults"), .span = MST_V3_PREFIX};
    struct mst__v3_put write = {.key = BYTES("faults"), .value = BYTES("x")};
    struct mst__v3_range range = {.key = BYTES("faults")};
    struct mst__v3_events events = {0};
    int rv = mst__v3_new(&options, &client, &err);
    rv = rv != 0 ? rv : mst__v3_put(client, &write, plenty(), &result, &err);
    int64_t from = result.revision;
    rv = rv != 0 ? rv : mst__v3_watch_new(client, &watched, 1, from, &watch, &err);
    rv = rv != 0 ? rv : mst__v3_range(client, &range, plenty(), &result, &err);
    rv = rv != 0 ? rv : mst__v3_watch_next(watch, plenty(), &events, &err);
    bool is_whole = rv != 0 || (events.count == 1 && events.items[0].kv.value.size == 1);
    mst__v3_events_close(&events);
    mst__v3_watch_close(watch);
    mst__v3_free(client);
    return is_whole ? rv : MST_ESTATE;
}

static void test_faults(void **state)
{
    (void)state;
    NEED_ETCD();
    bool has_failed = true;
    unsigned long nth = 1;
    for (; has_failed; nth++) {
        mst__mem_fail_nth(nth);
        int rv = do_all();
        has_failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        /* A write whose answer finds no memory counts as unanswered. */
        if (has_failed ? rv != MST_ENOMEM && rv != MST_EUNKNOWN : rv != 0) {
            fail_msg("allocation %lu: %s: %s", nth, mst_errname(rv), err.msg);
        }
        if (has_failed) {
            assert_int_equal(err.code, rv);
        }
        mst__v3_result_close(&result);
    }
    assert_true(nth > 20);
}

/* --- restarts --- */

/* The watch survives the end of its etcd, clean or not, and reports what was missed. */
static void test_watch_restart(void **state)
{
    (void)state;
    NEED_ETCD();
    struct etcd_unit etcd;
    etcd_unit_start(&etcd, false, NULL);
    struct mst__v3 *client = connect_to(&etcd, 1, NULL, NULL);
    int64_t from = put_by(client, BYTES("r"), BYTES("0")) + 1;
    struct mst__v3_watch *watch = watch_one(client, "r", MST_V3_KEY, from);
    const int signals[] = {SIGTERM, SIGKILL};
    for (size_t i = 0; i < 2; i++) {
        expect(watch, "r", "1", put_by(client, BYTES("r"), BYTES("1")));
        expect_nothing(watch);
        etcd_unit_end(&etcd, signals[i]);
        struct mst__v3_events events = {0};
        assert_fails(mst__v3_watch_next(watch, mst__until_in(300), &events, &err), MST_ECONN,
                     "no stream");
        struct mst__v3_range range = {.key = BYTES("r")};
        assert_int_equal(mst__v3_range(client, &range, plenty(), &result, &err), MST_ECONN);
        struct mst__v3_put refused = {.key = BYTES("r")};
        assert_int_equal(mst__v3_put(client, &refused, plenty(), &result, &err), MST_ECONN);
        etcd_unit_again(&etcd, true);
        struct mst__v3 *other = connect_to(&etcd, 1, NULL, NULL);
        int64_t second = put_by(other, BYTES("r"), BYTES("2"));
        int64_t third = put_by(other, BYTES("r"), BYTES("3"));
        mst__v3_free(other);
        expect(watch, "r", "2", second);
        expect(watch, "r", "3", third);
        expect_nothing(watch);
    }
    /* It waits for an etcd that is starting. */
    etcd_unit_end(&etcd, SIGKILL);
    struct mst__v3_events events = {0};
    assert_fails(mst__v3_watch_next(watch, mst__until_in(300), &events, &err), MST_ECONN,
                 "no stream");
    etcd_unit_again(&etcd, true);
    int64_t last = put_by(client, BYTES("r"), BYTES("4"));
    etcd_unit_end(&etcd, SIGKILL);
    etcd_unit_again(&etcd, false);
    expect(watch, "r", "4", last);
    mst__v3_watch_close(watch);
    mst__v3_free(client);
    etcd_unit_stop(&etcd);
}

static void test_watch_compacted(void **state)
{
    (void)state;
    NEED_ETCD();
    struct etcd_unit etcd;
    etcd_unit_start(&etcd, false, NULL);
    struct mst__v3 *client = connect_to(&etcd, 1, NULL, NULL);
    int64_t first = put_by(client, BYTES("c"), BYTES("1"));
    struct mst__v3_watch *live = watch_one(client, "c", MST_V3_KEY, first);
    struct mst__v3_watch *late = watch_one(client, "c", MST_V3_KEY, first);
    expect(live, "c", "1", first);
    (void)put_by(client, BYTES("d"), BYTES("1"));
    int64_t last = put_by(client, BYTES("d"), BYTES("2"));
    assert_ok(mst__v3_compact(client, last, plenty(), &err));
    assert_fails(mst__v3_compact(client, last, plenty(), &err), MST_EINVAL, "compacted");
    /* A new watch is told, and a running one does not notice. */
    struct mst__v3_events events = {0};
    assert_fails(mst__v3_watch_next(late, plenty(), &events, &err), MST_ESTATE, "compacted");
    assert_fails(mst__v3_watch_next(late, plenty(), &events, &err), MST_ESTATE, "compacted");
    expect(live, "c", "2", put_by(client, BYTES("c"), BYTES("2")));
    /* Until it must start again and needs compacted events. */
    etcd_unit_end(&etcd, SIGKILL);
    etcd_unit_again(&etcd, true);
    (void)put_by(client, BYTES("c"), BYTES("3"));
    last = put_by(client, BYTES("c"), BYTES("4"));
    assert_ok(mst__v3_compact(client, last, plenty(), &err));
    assert_fails(mst__v3_watch_next(live, plenty(), &events, &err), MST_ESTATE, "compacted");
    mst__v3_watch_close(live);
    mst__v3_watch_close(late);
    mst__v3_free(client);
    etcd_unit_stop(&etcd);
}

/* --- users --- */

static void post(const struct etcd_unit *etcd, const char *path, const char *text)
{
    struct mst__endpoint endpoint = {.host = "127.0.0.1", .port = etcd->port};
    struct mst__http_options options = {.endpoints = &endpoint, .endpoint_count = 1};
    struct mst__http *http = NULL;
    assert_ok(mst__http_new(&options, &http, &err));
    struct mst__http_response response;
    mst__http_response_init(&response);
    struct mst__http_request request = {.method = MST_HTTP_POST,
                                        .path = path,
                                        .body = mst_bytes_str(text),
                                        .content_type = "application/json"};
    assert_ok(mst__http_call(http, &request, plenty(), &response, &err));
    assert_int_equal(response.status, 200);
    mst__http_response_close(&response);
    mst__http_free(http);
}

static void switch_auth_on(const struct etcd_unit *etcd)
{
    post(etcd, "/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"rootpw\"}");
    post(etcd, "/v3/auth/user/add", "{\"name\":\"tr\",\"password\":\"trpw\"}");
    post(etcd, "/v3/auth/role/add", "{\"name\":\"root\"}");
    post(etcd, "/v3/auth/role/add", "{\"name\":\"rw\"}");
    post(etcd, "/v3/auth/role/grant",
         "{\"name\":\"rw\",\"perm\":{\"permType\":\"READWRITE\",\"key\":\"L3JkenYv\","
         "\"range_end\":\"L3JkenYw\"}}"); /* the prefix /rdzv/ */
    post(etcd, "/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
    post(etcd, "/v3/auth/user/grant", "{\"user\":\"tr\",\"role\":\"rw\"}");
    post(etcd, "/v3/auth/enable", "{}");
}

static void test_auth(void **state)
{
    (void)state;
    NEED_ETCD();
    static const char *const arguments[] = {"--auth-token-ttl", "2", NULL};
    struct etcd_unit etcd;
    etcd_unit_start(&etcd, false, arguments);
    struct mst__v3 *client = connect_to(&etcd, 1, "tr", "trpw");
    (void)put_by(client, BYTES("/rdzv/a"), BYTES("0")); /* without authentication, too */
    switch_auth_on(&etcd);
    int64_t from = put_by(client, BYTES("/rdzv/a"), BYTES("1"));
    struct mst__v3_watch *watch = watch_one(client, "/rdzv/", MST_V3_PREFIX, from);
    expect(watch, "/rdzv/a", "1", from);

    struct mst__v3_put denied = {.key = BYTES("/other")};
    assert_fails(mst__v3_put(client, &denied, plenty(), &result, &err), MST_EAUTH,
                 "permission denied");
    struct mst__v3 *nobody = connect_to(&etcd, 1, NULL, NULL);
    assert_fails(mst__v3_put(nobody, &denied, plenty(), &result, &err), MST_EAUTH,
                 "requires a user");
    struct mst__v3_watch *forbidden = watch_one(nobody, "/rdzv/", MST_V3_PREFIX, from);
    struct mst__v3_events events = {0};
    assert_fails(mst__v3_watch_next(forbidden, plenty(), &events, &err), MST_EAUTH,
                 "requires a user");
    mst__v3_watch_close(forbidden);
    forbidden = watch_one(client, "/other", MST_V3_KEY, from);
    assert_fails(mst__v3_watch_next(forbidden, plenty(), &events, &err), MST_EAUTH,
                 "permission denied");
    mst__v3_watch_close(forbidden);
    mst__v3_free(nobody);
    struct mst__v3 *wrong = connect_to(&etcd, 1, "tr", "wrong");
    assert_fails(mst__v3_put(wrong, &denied, plenty(), &result, &err), MST_EAUTH,
                 "authenticate as 'tr'");
    mst__v3_free(wrong);

    /* Time passes without a call, and the token with it: refused, a new one, and again. */
    (void)put_by(client, BYTES("/rdzv/a"), BYTES("2"));
    uint64_t before = mst__v3_requests(client);
    (void)poll(NULL, 0, 4500);
    int64_t revision = put_by(client, BYTES("/rdzv/a"), BYTES("3"));
    assert_true(mst__v3_requests(client) >= before + 3);
    expect(watch, "/rdzv/a", "2", revision - 1);
    expect(watch, "/rdzv/a", "3", revision);
    /* A watch that must start again has an old token; after a restart the etcd does not know it. */
    etcd_unit_end(&etcd, SIGKILL);
    etcd_unit_again(&etcd, true);
    expect(watch, "/rdzv/a", "4", put_by(client, BYTES("/rdzv/a"), BYTES("4")));
    mst__v3_watch_close(watch);
    mst__v3_free(client);
    etcd_unit_stop(&etcd);
}

/* --- clusters --- */

static void test_member_hangs(void **state)
{
    (void)state;
    NEED_ETCD();
    struct etcd_unit members[MEMBERS];
    etcd_unit_start_cluster(members, MEMBERS, false, NULL);
    struct mst__v3 *client = connect_to(members, MEMBERS, NULL, NULL);
    struct mst__v3 *other = connect_to(&members[1], 2, NULL, NULL);
    int64_t from = put_by(client, BYTES("h"), BYTES("0")) + 1;
    struct mst__v3_watch *watch = watch_one(client, "h", MST_V3_KEY, from);
    mst__v3_watch_set_patience(watch, 300, 300);
    expect_nothing(watch);
    /* Its connection stays, and nothing comes any more. */
    etcd_unit_pause(&members[0]);
    struct mst__v3_result ignored;
    mst__v3_result_init(&ignored);
    struct mst__v3_range read = {.key = BYTES("h")};
    /* With the leader hanging there is none for a moment; the read waits for the new one. */
    assert_ok(mst__v3_range(other, &read, plenty(), &ignored, &err));
    mst__v3_result_close(&ignored);
    expect(watch, "h", "1", put_by(other, BYTES("h"), BYTES("1")));
    assert_int_equal(kill(members[0].pid, SIGCONT), 0);
    /* The member that took over dies. */
    expect(watch, "h", "2", put_by(other, BYTES("h"), BYTES("2")));
    etcd_unit_end(&members[1], SIGKILL);
    assert_ok(mst__v3_range(other, &read, plenty(), &result, &err));
    expect(watch, "h", "3", put_by(other, BYTES("h"), BYTES("3")));
    mst__v3_watch_close(watch);
    mst__v3_free(client);
    mst__v3_free(other);
    for (size_t i = 0; i < MEMBERS; i++) {
        etcd_unit_stop(&members[i]);
    }
}

static void test_no_quorum(void **state)
{
    (void)state;
    NEED_ETCD();
    struct etcd_unit members[2];
    etcd_unit_start_cluster(members, 2, false, NULL);
    struct mst__v3 *client = connect_to(members, 1, NULL, NULL);
    int64_t from = put_by(client, BYTES("q"), BYTES("0")) + 1;
    struct mst__v3_watch *watch = watch_one(client, "q", MST_V3_KEY, from);
    expect_nothing(watch);
    etcd_unit_end(&members[1], SIGKILL);
    /* The member reports it after missing the others long enough. */
    struct mst__v3_events events = {0};
    struct mst__until until = plenty();
    int rv = MST_ETIMEOUT;
    while (rv == MST_ETIMEOUT && !mst__until_is_over(until)) {
        rv = mst__v3_watch_next(watch, mst__until_in(1000), &events, &err);
    }
    assert_int_equal(rv, MST_ECONN);
    assert_non_null(strstr(err.msg, "no leader"));
    struct mst__v3_range range = {.key = BYTES("q")};
    assert_fails(mst__v3_range(client, &range, mst__until_in(500), &result, &err), MST_ETIMEOUT,
                 "no leader");
    /* A write that no member began has no unknown outcome. */
    struct mst__v3_put write = {.key = BYTES("q"), .value = BYTES("lost")};
    assert_fails(mst__v3_put(client, &write, mst__until_in(500), &result, &err), MST_ETIMEOUT,
                 "no leader");
    range.is_serializable = true;
    assert_ok(mst__v3_range(client, &range, plenty(), &result, &err));
    assert_bytes_str(value_of(&result.ranges[0].items[0]), "0");
    struct mst__v3_status status;
    assert_ok(mst__v3_status(client, plenty(), &status, &err));
    assert_true(status.leader == 0);
    etcd_unit_again(&members[1], true);
    expect(watch, "q", "1", put_by(client, BYTES("q"), BYTES("1")));
    mst__v3_watch_close(watch);
    mst__v3_free(client);
    etcd_unit_stop(&members[0]);
    etcd_unit_stop(&members[1]);
}

/* --- threads --- */

#define THREADS 4
#define ROUNDS 25

struct worker {
    pthread_t thread;
    unsigned number;
    int rv;
    struct mst_err err;
};

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct mst__v3_result own;
    mst__v3_result_init(&own);
    char key[32];
    (void)snprintf(key, sizeof key, "/rdzv/%u", worker->number);
    for (int i = 0; i < ROUNDS && worker->rv == 0; i++) {
        struct mst__v3_put write = {.key = mst_bytes_str(key), .value = BYTES("x")};
        worker->rv = mst__v3_put(v3, &write, plenty(), &own, &worker->err);
        struct mst__v3_range range = {.key = mst_bytes_str(key)};
        if (worker->rv == 0) {
            worker->rv = mst__v3_range(v3, &range, plenty(), &own, &worker->err);
        }
        if (worker->rv == 0 && own.ranges[0].items[0].version != i + 1) {
            worker->rv = MST_ESTATE;
        }
    }
    mst__v3_result_close(&own);
    return NULL;
}

/* Several threads share a client, its prefix and its token, which is renewed meanwhile; one more
 * watches them. */
static void test_threads(void **state)
{
    (void)state;
    NEED_ETCD();
    struct etcd_unit etcd;
    etcd_unit_start(&etcd, false, NULL);
    switch_auth_on(&etcd);
    mst__v3_free(v3);
    v3 = connect_to(&etcd, 1, "tr", "trpw");
    struct mst__v3_watch *watch = watch_one(v3, "/rdzv/", MST_V3_PREFIX, 1);
    struct worker workers[THREADS] = {0};
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].number = i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    size_t seen = 0;
    int64_t revision = 0;
    while (seen < (size_t)THREADS * ROUNDS) {
        struct mst__v3_events events = {0};
        assert_ok(mst__v3_watch_next(watch, plenty(), &events, &err));
        assert_true(events.revision > revision);
        revision = events.revision;
        seen += events.count;
        mst__v3_events_close(&events);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        if (workers[i].rv != 0) {
            fail_msg("thread %zu: %s: %s", i, mst_errname(workers[i].rv), workers[i].err.msg);
        }
    }
    expect_nothing(watch);
    mst__v3_watch_close(watch);
    etcd_unit_stop(&etcd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_keys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_prefixes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_compares, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_txn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_too_large, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_watch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_watch_from_now, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_watch_several, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_watch_canceled, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_leases, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lease_expires, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_status, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_faults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_watch_restart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_watch_compacted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_auth, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_member_hangs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_quorum, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_threads, set_up, tear_down),
    };
    int status = MST_RUN_TESTS(tests);
    etcd_unit_stop(&shared);
    return status;
}
