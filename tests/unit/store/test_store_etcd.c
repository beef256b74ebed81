/* unit/store/test_store_etcd.c - the stores in a real etcd: every call of the common suite, how
 * keys lie in etcd, answers that are lost, an etcd that is away for a while, leases. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/until.h"
#include "etcd/v2.h"
#include "etcd/v3.h"
#include "store/store.h"
#include "unit/etcd_unit.h"
#include "unit/store/store_suite.h"
#include "unit/store/tap_unit.h"

static const char *const v2_argument[] = {"--enable-v2", NULL};

static struct etcd_unit etcd;
static struct tap tap;
static bool is_there;
static unsigned url_count; /* every store of this program has a root of its own */

static int group_setup(void **state)
{
    (void)state;
    is_there = etcd_unit_is_there();
    if (is_there) {
        etcd_unit_start(&etcd, false, v2_argument);
        tap_open(&tap, etcd.port);
    }
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    if (is_there) {
        tap_close(&tap);
        etcd_unit_stop(&etcd);
    }
    return 0;
}

#define NEEDS_ETCD()                              \
    do {                                          \
        if (!is_there) {                          \
            MST_SKIP("there is no etcd in PATH"); \
        }                                         \
    } while (0)

#define URL_SIZE 128

/* The URL of a fresh store. */
static const char *fresh(char url[URL_SIZE], const char *scheme, uint16_t port, const char *rest)
{
    (void)snprintf(url, URL_SIZE, "%s://127.0.0.1:%u/unit/%u%s", scheme, port, ++url_count, rest);
    return url;
}

static void on_each(void (*test)(struct mst_store *store))
{
    static const char *const rests[] = {"", "?prefix=p/q", "?lease=60"};
    char url[URL_SIZE];
    for (size_t i = 0; i < 6; i++) {
        const char *scheme = i % 2 == 0 ? "etcd2" : "etcd3";
        if (i == 4) {
            continue; /* no leases there */
        }
        struct mst_store *store = open_store(fresh(url, scheme, etcd.port, rests[i / 2]));
        test(store);
        mst_store_close(store);
    }
}

/* --- the suite --- */

static void test_suite(void **state)
{
    (void)state;
    NEEDS_ETCD();
    on_each(suite_values);
    on_each(suite_numbers);
    on_each(suite_compare_and_set);
    on_each(suite_several_keys);
    on_each(suite_timeouts);
    on_each(suite_barriers);
    on_each(suite_barriers_again);
}

static void test_suite_handles(void **state)
{
    (void)state;
    NEEDS_ETCD();
    on_each(suite_interrupt);
    on_each(suite_on_wait);
    on_each(suite_interrupt_in_order);
    on_each(suite_interrupt_barrier);
    on_each(suite_clone);
    on_each(suite_fork);
}

static void test_suite_threads(void **state)
{
    (void)state;
    NEEDS_ETCD();
    on_each(suite_threads);
}

static void test_suite_urls(void **state)
{
    (void)state;
    NEEDS_ETCD();
    char url[URL_SIZE];
    suite_prefixes(fresh(url, "etcd2", etcd.port, ""));
    suite_prefixes(fresh(url, "etcd3", etcd.port, ""));
    suite_limits(fresh(url, "etcd2", etcd.port, ""), false);
    suite_limits(fresh(url, "etcd3", etcd.port, ""), false);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    NEEDS_ETCD();
    char url[URL_SIZE];
    suite_out_of_memory(fresh(url, "etcd2", etcd.port, ""), false, NULL);
    suite_out_of_memory(fresh(url, "etcd3", etcd.port, ""), false, NULL);
}

static void no_queues(struct mst_store *store)
{
    int64_t count;
    assert_fails(mst_store_queue_len(store, STR("q"), PLENTY_MS, &count, &err), MST_ENOTSUP,
                 "has no queue_len");
    assert_fails(mst_store_queue_push(store, STR("q"), STR("v"), PLENTY_MS, &err), MST_ENOTSUP,
                 "has no queue_push");
}

/* Bytes of every kind, including all that give a `/` in base64 and one that would be hidden. */
static void odd_keys(struct mst_store *store)
{
    static const struct mst_bytes keys[] = {
        {(const uint8_t *)"ab?", 3},
        {(const uint8_t *)"ab?x", 4},
        {(const uint8_t *)"\xff\xff\xff", 3},
        {(const uint8_t *)"\xff", 1},
        {(const uint8_t *)"/", 1},
        {(const uint8_t *)"a/../b", 6},
        {(const uint8_t *)"_hidden", 7},
        {(const uint8_t *)"", 0},
        {(const uint8_t *)"YWI", 3},
        {(const uint8_t *)"%2F&=+ #", 8},
    };
    enum { COUNT = sizeof keys / sizeof keys[0] };
    for (size_t i = 0; i < COUNT; i++) {
        int64_t sum = 0;
        assert_ok(mst_store_add(store, keys[i], (int64_t)i, PLENTY_MS, &sum, &err));
    }
    /* All of them twice: a key that is waited for twice has come when it has come. */
    struct mst_bytes twice[2 * COUNT];
    memcpy(twice, keys, sizeof keys);
    memcpy(twice + COUNT, keys, sizeof keys);
    assert_ok(mst_store_wait(store, twice, 2 * COUNT, PLENTY_MS, &err));
    bool exist = false;
    assert_ok(mst_store_check(store, twice, 2 * COUNT, PLENTY_MS, &exist, &err));
    assert_true(exist);
    struct mst_keys list = {0};
    assert_ok(mst_store_list(store, PLENTY_MS, &list, &err));
    assert_int_equal(list.count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        size_t found = 0;
        for (size_t k = 0; k < COUNT; k++) {
            found += mst__bytes_equal(list.keys[k], keys[i]) ? 1 : 0;
        }
        assert_int_equal(found, 1);
        char text[8];
        (void)snprintf(text, sizeof text, "%u", (unsigned)i);
        struct mst_buffer value = {0};
        assert_ok(mst_store_get(store, keys[i], PLENTY_MS, &value, &err));
        assert_bytes_str(mst_bytes_of(value.data, value.size), text);
        mst_buffer_free(&value);
    }
    mst_keys_free(&list);
}

static void test_odd(void **state)
{
    (void)state;
    NEEDS_ETCD();
    on_each(no_queues);
    on_each(odd_keys);
}

/* More keys than one transaction takes, with doubles. */
static void many_keys(struct mst_store *store)
{
    enum { COUNT = 300 };
    char texts[COUNT][8];
    struct mst_bytes keys[COUNT];
    struct mst_bytes values[COUNT];
    struct mst_buffer found[COUNT] = {{0}};
    for (size_t i = 0; i < COUNT; i++) {
        /* 290 … 299 are 0 … 9 once more. */
        (void)snprintf(texts[i], sizeof texts[i], "k%u", (unsigned)(i % 290));
        keys[i] = STR(texts[i]);
        values[i] = i < 290 ? STR("first") : STR("second");
    }
    keys[1] = keys[0]; /* and one in the same transaction; k1 comes with 291 */
    values[1] = STR("again");
    assert_ok(mst_store_multi_set(store, keys, values, COUNT, PLENTY_MS, &err));
    assert_ok(mst_store_wait(store, keys, COUNT, PLENTY_MS, &err));
    assert_ok(mst_store_multi_get(store, keys, COUNT, PLENTY_MS, found, &err));
    for (size_t i = 0; i < COUNT; i++) {
        bool is_second = i < 10 || i >= 290;
        assert_bytes_str(mst_bytes_of(found[i].data, found[i].size),
                         is_second ? "second" : "first");
        mst_buffer_free(&found[i]);
    }
    int64_t count = 0;
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
    assert_int_equal(count, 290);
    struct mst_bytes more[COUNT + 1];
    memcpy(more, keys, sizeof keys);
    more[COUNT] = STR("missing");
    assert_fails(mst_store_wait(store, more, COUNT + 1, SHORT_MS, &err), MST_ETIMEOUT, "wait 'k0'");
}

/* More bytes than one transaction takes. */
static void large_values(struct mst_store *store)
{
    enum { COUNT = 4, SIZE = 600 * 1024 };
    static const char *const names[COUNT] = {"l0", "l1", "l2", "l3"};
    static char large[SIZE];
    struct mst_bytes keys[COUNT];
    struct mst_bytes values[COUNT];
    struct mst_buffer found[COUNT] = {{0}};
    memset(large, 'v', sizeof large);
    for (size_t i = 0; i < COUNT; i++) {
        keys[i] = STR(names[i]);
        values[i] = mst_bytes_of(large, sizeof large - i);
    }
    assert_ok(mst_store_multi_set(store, keys, values, COUNT, PLENTY_MS, &err));
    assert_ok(mst_store_multi_get(store, keys, COUNT, PLENTY_MS, found, &err));
    for (size_t i = 0; i < COUNT; i++) {
        assert_bytes(mst_bytes_of(found[i].data, found[i].size), values[i]);
        mst_buffer_free(&found[i]);
    }
}

static void test_many_keys(void **state)
{
    (void)state;
    NEEDS_ETCD();
    on_each(many_keys);
    on_each(large_values);
}

/* The first keys are set when the last is found to be too large. */
static void test_half_of_many(void **state)
{
    (void)state;
    NEEDS_ETCD();
    char url[URL_SIZE];
    size_t size = 2 * 1024 * 1024;
    uint8_t *large = calloc(1, size);
    struct mst_store *store = open_store(fresh(url, "etcd3", etcd.port, ""));
    const struct mst_bytes keys[] = {STR("small"), STR("large")};
    const struct mst_bytes values[] = {STR("v"), mst_bytes_of(large, size)};
    assert_non_null(large);
    assert_fails(mst_store_multi_set(store, keys + 1, values + 1, 1, PLENTY_MS, &err), MST_ELIMIT,
                 "exceed the limit of");
    assert_fails(mst_store_multi_set(store, keys, values, 2, PLENTY_MS, &err), MST_EUNKNOWN,
                 "some of the keys are set; then");
    assert_value(store, "small", STR("v"));
    assert_absent(store, "large");
    mst_store_close(store);
    free(large);
}

/* --- how keys lie in etcd --- */

static struct mst__http_options http_options(struct mst__endpoint *endpoint)
{
    *endpoint = (struct mst__endpoint){.host = "127.0.0.1", .port = etcd.port};
    return (struct mst__http_options){.endpoints = endpoint, .endpoint_count = 1};
}

static struct mst__v2 *open_v2(void)
{
    struct mst__endpoint endpoint;
    struct mst__http_options options = http_options(&endpoint);
    struct mst__v2 *v2 = NULL;
    assert_ok(mst__v2_new(&options, &v2, &err));
    return v2;
}

static struct mst__v3 *open_v3(void)
{
    struct mst__endpoint endpoint;
    struct mst__http_options options = http_options(&endpoint);
    struct mst__v3 *v3 = NULL;
    assert_ok(mst__v3_new(&options, &v3, &err));
    return v3;
}

static struct mst__until plenty(void)
{
    return mst__until_in(PLENTY_MS);
}

static void put_v2(struct mst__v2 *v2, const char *path, bool is_dir, const char *value)
{
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    struct mst__v2_write write = {
        .key = path, .is_dir = is_dir, .value = STR(value), .ttl_s = MST_V2_NO_TTL};
    assert_ok(mst__v2_put(v2, &write, plenty(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_OK);
    mst__v2_answer_close(&answer);
}

static void assert_v2(struct mst__v2 *v2, const char *path, const char *wanted)
{
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    assert_ok(mst__v2_get(v2, path, false, true, plenty(), &answer, &err));
    if (wanted == NULL) {
        assert_int_equal(answer.code, MST_V2_NOT_FOUND);
    } else {
        assert_int_equal(answer.code, MST_V2_OK);
        assert_bytes_str(mst_bytes_of(answer.node.value.data, answer.node.value.size), wanted);
    }
    mst__v2_answer_close(&answer);
}

static void test_layout_of_etcd2(void **state)
{
    (void)state;
    NEEDS_ETCD();
    struct mst__v2 *v2 = open_v2();
    char url[URL_SIZE];
    (void)snprintf(url, sizeof url, "etcd2://127.0.0.1:%u//layout//v2/", etcd.port);
    struct mst_store *store = open_store(url);
    /* Looking at a store that is not there makes none. */
    int64_t count = -1;
    assert_absent(store, "hello");
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
    assert_int_equal(count, 0);
    assert_v2(v2, "/layout", NULL);
    assert_ok(mst_store_set(store, STR("hello"), STR("\x01\xff"), PLENTY_MS, &err));
    assert_ok(mst_store_set(store, STR("ab?"), STR(""), PLENTY_MS, &err));
    assert_ok(mst_store_set(store, STR(""), STR("e"), PLENTY_MS, &err));
    assert_v2(v2, "/layout/v2/aGVsbG8=", "Af8=");
    assert_v2(v2, "/layout/v2/YWI-", "");
    assert_v2(v2, "/layout/v2/=", "ZQ==");
    /* Names that are neither ours nor torch's are not keys, nor are directories. */
    put_v2(v2, "/layout/v2/YWI", false, "x");
    put_v2(v2, "/layout/v2/aGVsbG9", false, "x");
    put_v2(v2, "/layout/v2/_hidden", false, "x");
    put_v2(v2, "/layout/v2/YWJj", true, "");
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
    assert_int_equal(count, 3);
    bool exist = true;
    struct mst_bytes abc = STR("abc");
    assert_ok(mst_store_check(store, &abc, 1, PLENTY_MS, &exist, &err));
    assert_false(exist);
    assert_fails(mst_store_set(store, abc, STR("v"), PLENTY_MS, &err), MST_EPROTO, "Not a file");
    struct mst_buffer value = {0};
    assert_fails(mst_store_try_get(store, abc, PLENTY_MS, &value, &err), MST_EPROTO,
                 "is a directory");
    /* Values that are not base64 are refused. */
    put_v2(v2, "/layout/v2/aGVsbG8=", false, "abc");
    assert_fails(mst_store_try_get(store, STR("hello"), PLENTY_MS, &value, &err), MST_EPROTO,
                 "not base64");
    mst_store_close(store);
    (void)snprintf(url, sizeof url, "etcd2://127.0.0.1:%u/layout/v2/YWI", etcd.port);
    store = open_store(url);
    assert_fails(mst_store_num_keys(store, PLENTY_MS, &count, &err), MST_EPROTO, "not a directory");
    assert_fails(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err), MST_EPROTO,
                 "Not a directory");
    mst_store_close(store);
    mst__v2_free(v2);
}

/* How many keys begin with @prefix; the value of the first, as text. */
static size_t count_v3(struct mst__v3 *v3, const char *prefix, char value[64])
{
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    struct mst__v3_range range = {.key = STR(prefix), .span = MST_V3_PREFIX};
    assert_ok(mst__v3_range(v3, &range, plenty(), &result, &err));
    size_t count = result.ranges[0].count;
    if (count > 0 && value != NULL) {
        (void)snprintf(value, 64, "%s", (const char *)result.ranges[0].items[0].value.data);
    }
    mst__v3_result_close(&result);
    return count;
}

static void test_layout_of_etcd3(void **state)
{
    (void)state;
    NEEDS_ETCD();
    struct mst__v3 *v3 = open_v3();
    char url[URL_SIZE];
    char value[64];
    (void)snprintf(url, sizeof url, "etcd3://127.0.0.1:%u/layout//v3/?prefix=p", etcd.port);
    struct mst_store *store = open_store(url);
    assert_ok(mst_store_set(store, STR("k"), STR("plain"), PLENTY_MS, &err));
    int64_t number = 0;
    assert_ok(mst_store_add(store, STR("n"), 4, PLENTY_MS, &number, &err));
    assert_int_equal(count_v3(v3, "/layout/v3/p/k", value), 1);
    assert_string_equal(value, "plain");
    assert_int_equal(count_v3(v3, "/layout/v3/p/n", value), 1);
    assert_string_equal(value, "4");
    /* The note of the writer is beside the keys, and removed in the end. */
    assert_int_equal(count_v3(v3, "/layout/v3!by/", value), 1);
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &number, &err));
    assert_int_equal(number, 2);
    mst_store_close(store);
    assert_int_equal(count_v3(v3, "/layout/v3!", NULL), 0);
    assert_int_equal(count_v3(v3, "/layout/v3/", NULL), 2);
    mst__v3_free(v3);
}

/* --- waiting --- */

struct watcher {
    struct mst_store *store;
    const char *value;
    int wake_fd;
    int rv;
    pthread_t thread;
};

static void *watch_change(void *arg)
{
    struct watcher *watcher = arg;
    struct mst_bytes value = STR(watcher->value == NULL ? "" : watcher->value);
    struct mst__until until = mst__until_by(watcher->wake_fd, PLENTY_MS);
    watcher->rv = mst__store_wait_change(watcher->store, STR("w"),
                                         watcher->value == NULL ? NULL : &value, until, NULL);
    return NULL;
}

static void watcher_start(struct watcher *watcher)
{
    assert_int_equal(pthread_create(&watcher->thread, NULL, watch_change, watcher), 0);
}

static void wait_change(struct mst_store *store)
{
    struct mst_bytes value = STR("1");
    struct watcher watcher = {.store = store, .wake_fd = -1};
    /* Until there is one. */
    watcher_start(&watcher);
    assert_ok(mst_store_set(store, STR("w"), value, PLENTY_MS, &err));
    assert_int_equal(pthread_join(watcher.thread, NULL), 0);
    assert_int_equal(watcher.rv, 0);
    /* Not while it is the same; at once when it differs. */
    assert_fails(mst__store_wait_change(store, STR("w"), &value, mst__until_in(SHORT_MS), &err),
                 MST_ETIMEOUT, "deadline");
    assert_ok(mst__store_wait_change(store, STR("w"), NULL, plenty(), &err));
    watcher.value = "1";
    watcher_start(&watcher);
    assert_ok(mst_store_delete(store, STR("w"), PLENTY_MS, NULL, &err));
    assert_int_equal(pthread_join(watcher.thread, NULL), 0);
    assert_int_equal(watcher.rv, 0);
    /* And a waiting call can be interrupted. */
    watcher.value = NULL;
    watcher.wake_fd = eventfd(0, EFD_CLOEXEC);
    watcher_start(&watcher);
    assert_int_equal(eventfd_write(watcher.wake_fd, 1), 0);
    assert_int_equal(pthread_join(watcher.thread, NULL), 0);
    assert_int_equal(watcher.rv, MST_ECANCELED);
    (void)close(watcher.wake_fd); /* an eventfd: nothing to lose */
}

static void test_wait_change(void **state)
{
    (void)state;
    NEEDS_ETCD();
    on_each(wait_change);
}

/* Wait until the tap has done its action. */
static void tap_wait(void)
{
    struct mst__until until = plenty();
    while (!tap_is_done(&tap)) {
        assert_true(!mst__until_is_over(until));
        (void)poll(NULL, 0, 2); /* between two looks */
    }
}

/* The connections of polls and watches are lost twice, and the key comes nevertheless. */
static void test_lost_polls(void **state)
{
    (void)state;
    NEEDS_ETCD();
    for (size_t i = 0; i < 2; i++) {
        char url[URL_SIZE];
        struct mst_store *store = open_store(fresh(url, i == 0 ? "etcd2" : "etcd3", tap.port, ""));
        tap_set(&tap, i == 0 ? "wait=true" : "create_request", TAP_CUT, 2);
        struct suite_waiter waiter = {.store = store, .key = "late"};
        assert_int_equal(pthread_create(&waiter.thread, NULL, suite_wait_for_value, &waiter), 0);
        tap_wait();
        assert_ok(mst_store_set(store, STR("late"), STR("come"), PLENTY_MS, &err));
        assert_int_equal(pthread_join(waiter.thread, NULL), 0);
        assert_int_equal(waiter.rv, 0);
        assert_string_equal(waiter.got, "come");
        mst_store_close(store);
    }
}

static void set_late(void *store)
{
    if (mst_store_set(store, STR("late"), STR("come"), PLENTY_MS, NULL) != 0) {
        abort();
    }
}

/* A poll hangs, as at a member that has vanished: the key is read again before the deadline. */
static void test_hung_poll(void **state)
{
    (void)state;
    NEEDS_ETCD();
    char url[URL_SIZE];
    struct mst_buffer value = {0};
    struct mst_store *store = open_store(fresh(url, "etcd2", tap.port, ""));
    url_count--; /* the same keys */
    struct mst_store *other = open_store(fresh(url, "etcd2", etcd.port, ""));
    tap_set_before(&tap, "wait=true", TAP_HANG, set_late, other);
    assert_ok(mst_store_get(store, STR("late"), 3000, &value, &err));
    assert_string_equal((const char *)value.data, "come");
    mst_buffer_free(&value);
    mst_store_close(other);
    mst_store_close(store);
}

static void fill_history(void *arg)
{
    struct mst__v2 *v2 = arg;
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    for (int i = 0; i < 1100; i++) {
        struct mst__v2_write write = {.key = "/elsewhere", .ttl_s = MST_V2_NO_TTL};
        if (mst__v2_put(v2, &write, plenty(), &answer, NULL) != 0) {
            abort();
        }
    }
    mst__v2_answer_close(&answer);
}

/* So much happens between reading and polling that etcd has forgotten it. */
static void test_cleared_history(void **state)
{
    (void)state;
    NEEDS_ETCD();
    struct mst__v2 *v2 = open_v2();
    char url[URL_SIZE];
    struct mst_store *store = open_store(fresh(url, "etcd2", tap.port, ""));
    tap_set_before(&tap, "wait=true", TAP_PASS, fill_history, v2);
    struct suite_waiter waiter = {.store = store, .key = "late"};
    assert_int_equal(pthread_create(&waiter.thread, NULL, suite_wait_for_value, &waiter), 0);
    tap_wait();
    assert_ok(mst_store_set(store, STR("late"), STR("come"), PLENTY_MS, &err));
    assert_int_equal(pthread_join(waiter.thread, NULL), 0);
    assert_string_equal(waiter.got, "come");
    mst_store_close(store);
    mst__v2_free(v2);
}

/* --- lost answers --- */

/* The bytes of a conditional write. */
static const char *needle_of(size_t i, bool exists)
{
    return i == 1 ? "request_put" : exists ? "prevIndex=" : "prevExist=false";
}

static void test_swallowed_add(void **state)
{
    (void)state;
    NEEDS_ETCD();
    for (size_t i = 0; i < 2; i++) {
        char url[URL_SIZE];
        struct mst_store *store = open_store(fresh(url, i == 0 ? "etcd2" : "etcd3", tap.port, ""));
        int64_t present = 0;
        for (int round = 0; round < 4; round++) {
            int64_t sum = -1;
            tap_set(&tap, needle_of(i, round > 0), TAP_SWALLOW, 1);
            err = (struct mst_err){0};
            int rv = mst_store_add(store, STR("n"), 7, PLENTY_MS, &sum, &err);
            tap_wait();
            /* etcd3 always knows; etcd2 reports if it does not. It was done exactly once. */
            present += 7;
            if (rv == 0) {
                assert_int_equal(sum, present);
            } else {
                assert_int_equal(rv, MST_EUNKNOWN);
                assert_int_equal(i, 0);
            }
            assert_ok(mst_store_add(store, STR("n"), 0, PLENTY_MS, &sum, &err));
            assert_int_equal(sum, present);
            /* A request that never arrived is sent again. */
            tap_set(&tap, needle_of(i, true), TAP_CUT, 1);
            assert_ok(mst_store_add(store, STR("n"), 1, PLENTY_MS, &sum, &err));
            assert_int_equal(sum, ++present);
        }
        mst_store_close(store);
    }
}

static void test_swallowed_others(void **state)
{
    (void)state;
    NEEDS_ETCD();
    for (size_t i = 0; i < 2; i++) {
        char url[URL_SIZE];
        struct mst_store *store = open_store(fresh(url, i == 0 ? "etcd2" : "etcd3", tap.port, ""));
        enum mst_compare_set outcome = MST_COMPARE_SET_ABSENT;
        const char *values[] = {"", "one", "two", "three"};
        for (size_t v = 0; v < 3; v++) {
            tap_set(&tap, needle_of(i, v > 0), TAP_SWALLOW, 1);
            assert_ok(mst_store_compare_set(store, STR("c"), STR(values[v]), STR(values[v + 1]),
                                            PLENTY_MS, &outcome, NULL, &err));
            assert_int_equal(outcome, MST_COMPARE_SET_DONE);
            tap_wait();
        }
        assert_value(store, "c", STR("three"));
        tap_set(&tap, i == 0 ? "value=" : "kv/put", TAP_SWALLOW, 1);
        assert_ok(mst_store_set(store, STR("s"), STR("set"), PLENTY_MS, &err));
        assert_value(store, "s", STR("set"));
        tap_set(&tap, needle_of(i, true), TAP_SWALLOW, 1);
        bool existed = false;
        err = (struct mst_err){0};
        int rv = mst_store_delete(store, STR("s"), PLENTY_MS, &existed, &err);
        assert_int_equal(rv, i == 0 ? MST_EUNKNOWN : 0);
        assert_int_equal(existed, i == 1);
        assert_absent(store, "s");
        tap_set(&tap, needle_of(i, true), TAP_SWALLOW, 1);
        err = (struct mst_err){0};
        rv = mst_store_append(store, STR("c"), STR("!"), PLENTY_MS, &err);
        assert_int_equal(rv, i == 0 ? MST_EUNKNOWN : 0);
        assert_value(store, "c", STR("three!"));
        mst_store_close(store);
    }
}

struct lossy_adder {
    struct mst_store *store;
    pthread_t thread;
    int done, unknown, failed;
};

#define LOSSY_ADDS 40

static void *add_lossy(void *arg)
{
    struct lossy_adder *adder = arg;
    for (int i = 0; i < LOSSY_ADDS; i++) {
        int64_t sum = 0;
        int rv = mst_store_add(adder->store, STR("n"), 1, PLENTY_MS, &sum, NULL);
        adder->done += rv == 0 ? 1 : 0;
        adder->unknown += rv == MST_EUNKNOWN ? 1 : 0;
        adder->failed += rv != 0 && rv != MST_EUNKNOWN ? 1 : 0;
    }
    return NULL;
}

/* Several threads add to the same number through a tap that loses many answers: every returned
 * sum counts, and with etcd3 there is no other. */
static void test_swallowed_in_a_crowd(void **state)
{
    (void)state;
    NEEDS_ETCD();
    for (size_t i = 0; i < 2; i++) {
        char url[URL_SIZE];
        struct mst_store *store = open_store(fresh(url, i == 0 ? "etcd2" : "etcd3", tap.port, ""));
        struct lossy_adder adders[4];
        tap_set(&tap, needle_of(i, true), TAP_SWALLOW, 25);
        for (size_t a = 0; a < 4; a++) {
            adders[a] = (struct lossy_adder){.store = store};
            assert_int_equal(pthread_create(&adders[a].thread, NULL, add_lossy, &adders[a]), 0);
        }
        int done = 0;
        int unknown = 0;
        for (size_t a = 0; a < 4; a++) {
            assert_int_equal(pthread_join(adders[a].thread, NULL), 0);
            assert_int_equal(adders[a].failed, 0);
            done += adders[a].done;
            unknown += adders[a].unknown;
        }
        assert_true(tap_is_done(&tap));
        assert_true(i == 0 || unknown == 0);
        int64_t sum = 0;
        assert_ok(mst_store_add(store, STR("n"), 0, PLENTY_MS, &sum, &err));
        assert_in_range(sum, done, done + unknown);
        mst_store_close(store);
    }
}

/* --- an etcd that is away --- */

/* Stopped for three seconds while one waits and another one adds, and killed and started again. */
static void test_away(void **state)
{
    (void)state;
    NEEDS_ETCD();
    for (size_t i = 0; i < 4; i++) {
        bool is_killed = i >= 2;
        char url[URL_SIZE];
        struct mst_store *store =
            open_store(fresh(url, i % 2 == 0 ? "etcd2" : "etcd3", etcd.port, ""));
        struct suite_waiter waiter = {.store = store, .key = "late"};
        assert_int_equal(pthread_create(&waiter.thread, NULL, suite_wait_for_value, &waiter), 0);
        struct lossy_adder adder = {.store = store};
        assert_int_equal(pthread_create(&adder.thread, NULL, add_lossy, &adder), 0);
        int64_t seen = 0;
        while (seen < 3) { /* it is under way */
            assert_ok(mst_store_add(store, STR("n"), 0, PLENTY_MS, &seen, &err));
        }
        if (is_killed) {
            etcd_unit_end(&etcd, SIGKILL);
            etcd_unit_again(&etcd, false);
        } else {
            etcd_unit_pause(&etcd);
            (void)poll(NULL, 0, 3000); /* what is tested */
            assert_int_equal(kill(etcd.pid, SIGCONT), 0);
        }
        assert_ok(mst_store_set(store, STR("late"), STR("come"), PLENTY_MS, &err));
        assert_int_equal(pthread_join(waiter.thread, NULL), 0);
        assert_int_equal(waiter.rv, 0);
        assert_int_equal(pthread_join(adder.thread, NULL), 0);
        assert_int_equal(adder.failed, 0);
        assert_true(i % 2 == 0 || adder.unknown == 0);
        int64_t sum = 0;
        assert_ok(mst_store_add(store, STR("n"), 0, PLENTY_MS, &sum, &err));
        assert_in_range(sum, adder.done, adder.done + adder.unknown);
        mst_store_close(store);
    }
}

static void test_nobody(void **state)
{
    (void)state;
    NEEDS_ETCD();
    char url[URL_SIZE];
    struct mst_store *store = NULL;
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(url, sizeof url, "etcd%u://127.0.0.1:1/x", (unsigned)i + 2);
        assert_fails(mst_store_open(url, NULL, 200, &store, &err), MST_ECONN, "127.0.0.1:1");
    }
    etcd_unit_end(&etcd, SIGKILL);
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(url, sizeof url, "etcd%u://127.0.0.1:%u/x", (unsigned)i + 2, etcd.port);
        assert_fails(mst_store_open(url, NULL, 200, &store, &err), MST_ECONN, "127.0.0.1");
    }
    etcd_unit_again(&etcd, true);
}

/* --- leases --- */

static const struct mst_store_options *logging(struct mst_store_options *options,
                                               mst_log_fn log,
                                               void *arg)
{
    mst_store_options_init(options, sizeof *options);
    options->log = (struct mst_log){.fn = log, .arg = arg, .level = MST_LOG_DEBUG};
    return options;
}

struct log_seen {
    atomic_int lost;
};

static void note_log(void *arg, enum mst_log_level level, const char *line)
{
    struct log_seen *seen = arg;
    if (level == MST_LOG_ERROR && strstr(line, "ev=store.lease_lost") != NULL) {
        atomic_fetch_add(&seen->lost, 1);
    }
}

static void test_lease(void **state)
{
    (void)state;
    NEEDS_ETCD();
    struct mst__v3 *v3 = open_v3();
    char value[64];
    char url[URL_SIZE];
    (void)snprintf(url, sizeof url, "etcd3://127.0.0.1:%u/leased?lease=2", etcd.port);
    struct mst_store *first = open_store(url);
    struct mst_store *second = open_store(url);
    assert_int_equal(count_v3(v3, "/leased!lease", value), 1);
    int64_t lease = strtoll(value, NULL, 10);
    assert_true(lease > 0);
    assert_ok(mst_store_set(first, STR("k"), STR("v"), PLENTY_MS, &err));
    mst_store_close(first);
    /* The other one keeps it, for longer than it was granted for. */
    (void)poll(NULL, 0, 4000); /* what is tested */
    assert_value(second, "k", STR("v"));
    mst_store_close(second);
    struct mst__until until = plenty();
    while (count_v3(v3, "/leased", NULL) > 0) {
        assert_true(!mst__until_is_over(until));
        (void)poll(NULL, 0, 50); /* between two looks */
    }
    mst__v3_free(v3);
}

static void test_lease_lost(void **state)
{
    (void)state;
    NEEDS_ETCD();
    struct mst__v3 *v3 = open_v3();
    char value[64];
    char url[URL_SIZE];
    struct log_seen seen = {0};
    struct mst_store_options options;
    for (int i = 0; i < 2; i++) {
        (void)snprintf(url, sizeof url, "etcd3://127.0.0.1:%u/lost%d?lease=%d", etcd.port, i,
                       i == 0 ? 3 : 600);
        struct mst_store *store = NULL;
        assert_ok(mst_store_open(url, logging(&options, note_log, &seen), PLENTY_MS, &store, &err));
        assert_ok(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err));
        (void)snprintf(url, sizeof url, "/lost%d!lease", i);
        assert_int_equal(count_v3(v3, url, value), 1);
        assert_ok(mst__v3_lease_revoke(v3, strtoll(value, NULL, 10), plenty(), &err));
        if (i == 0) {
            /* The keeper notices, */
            struct mst__until until = plenty();
            while (atomic_load(&seen.lost) == 0) {
                assert_true(!mst__until_is_over(until));
                (void)poll(NULL, 0, 20); /* between two looks */
            }
            struct mst_buffer got = {0};
            assert_fails(mst_store_try_get(store, STR("k"), PLENTY_MS, &got, &err), MST_ECLOSED,
                         "lease");
        }
        /* or the next write. */
        assert_fails(mst_store_set(store, STR("k"), STR("w"), PLENTY_MS, &err), MST_ECLOSED,
                     "lease");
        int64_t sum = 0;
        assert_fails(mst_store_add(store, STR("n"), 1, PLENTY_MS, &sum, &err), MST_ECLOSED,
                     "lease");
        assert_int_equal(atomic_load(&seen.lost), i + 1);
        mst_store_close(store);
    }
    mst__v3_free(v3);
}

/* --- opening --- */

static void test_v2_is_off(void **state)
{
    (void)state;
    NEEDS_ETCD();
    struct etcd_unit plain = {0};
    etcd_unit_start(&plain, false, NULL);
    char url[URL_SIZE];
    struct mst_store *store = NULL;
    (void)snprintf(url, sizeof url, "etcd2://127.0.0.1:%u/x", plain.port);
    assert_fails(mst_store_open(url, NULL, PLENTY_MS, &store, &err), MST_ENOTSUP, "enable-v2");
    etcd_unit_stop(&plain);
}

static void test_passwords(void **state)
{
    (void)state;
    struct mst_store *store = NULL;
    assert_int_equal(unsetenv("MUSTER_ETCD_PASSWORD"), 0);
    assert_fails(mst_store_open("etcd2://127.0.0.1:1/x?user=u", NULL, 100, &store, &err),
                 MST_EINVAL, "MUSTER_ETCD_PASSWORD");
    assert_fails(mst_store_open("etcd3://127.0.0.1:1/x?user=u&password_file=/none/at/all", NULL,
                                100, &store, &err),
                 MST_ESYS, "/none/at/all");
    assert_fails(mst_store_open("etcd3://127.0.0.1:1/x?user=u&password_file=/dev/zero", NULL, 100,
                                &store, &err),
                 MST_EINVAL, "does not begin with a password");
    assert_fails(mst_store_open("etcd3://u:secret@127.0.0.1:1/x", NULL, 100, &store, &err),
                 MST_EINVAL, "password_file");
    assert_null(strstr(err.msg, "secret"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suite),
        cmocka_unit_test_teardown(test_suite_handles, suite_on_wait_teardown),
        cmocka_unit_test(test_suite_threads),
        cmocka_unit_test(test_suite_urls),
        cmocka_unit_test(test_odd),
        cmocka_unit_test(test_many_keys),
        cmocka_unit_test(test_half_of_many),
        cmocka_unit_test(test_layout_of_etcd2),
        cmocka_unit_test(test_layout_of_etcd3),
        cmocka_unit_test(test_wait_change),
        cmocka_unit_test(test_lost_polls),
        cmocka_unit_test(test_hung_poll),
        cmocka_unit_test(test_cleared_history),
        cmocka_unit_test(test_swallowed_add),
        cmocka_unit_test(test_swallowed_others),
        cmocka_unit_test(test_swallowed_in_a_crowd),
        cmocka_unit_test(test_away),
        cmocka_unit_test(test_nobody),
        cmocka_unit_test(test_lease),
        cmocka_unit_test(test_lease_lost),
        cmocka_unit_test(test_v2_is_off),
        cmocka_unit_test(test_passwords),
        cmocka_unit_test(test_out_of_memory),
    };
    size_t count = sizeof tests / sizeof tests[0];
    return mst__unit_end(count, cmocka_run_group_tests(tests, group_setup, group_teardown));
}
