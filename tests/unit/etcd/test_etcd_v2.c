/* unit/etcd/test_etcd_v2.c - the v2 API, spoken with real etcds. */
#include "etcd/v2.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/until.h"
#include "unit/etcd_unit.h"
#include "unit/unit.h"

/* Long enough for a busy machine; only a failure waits that long. */
#define PLENTY_MS 30000
/* For events that must not happen: a passing test takes this long. */
#define SHORT_MS 100

#define STR(text) mst_bytes_str(text)

static const char *const with_v2[] = {"--enable-v2", NULL};

/* For all tests that do not harm it; each has keys of its own. */
static struct etcd_unit shared;
static struct mst__v2 *shared_v2;

/* Those of one test, and the client that is in use: stopped even when the test fails. */
static struct etcd_unit own[3];
static struct mst__v2 *v2;
static struct mst__v2_answer answer;
static struct mst_err err;

#define assert_ok(call)                                                     \
    do {                                                                    \
        err = (struct mst_err){0};                                          \
        int assert_rv = (call);                                             \
        if (assert_rv != 0) {                                               \
            fail_msg("%s: %s: %s", #call, mst_errname(assert_rv), err.msg); \
        }                                                                   \
    } while (0)

#define assert_fails(call, wanted, part)                                                  \
    do {                                                                                  \
        err = (struct mst_err){0};                                                        \
        int assert_rv = (call);                                                           \
        if (assert_rv != (wanted) || err.code != assert_rv || !strstr(err.msg, (part))) { \
            fail_msg("%s gives %s: %s", #call, mst_errname(assert_rv), err.msg);          \
        }                                                                                 \
    } while (0)

static struct mst__until soon(void)
{
    return mst__until_in(PLENTY_MS);
}

/* A client of the first @count of @ports. */
static struct mst__v2 *client_of(struct mst__http_options options,
                                 const uint16_t *ports,
                                 size_t count)
{
    struct mst__endpoint endpoints[3];
    for (size_t i = 0; i < count; i++) {
        endpoints[i] = (struct mst__endpoint){.host = "127.0.0.1", .port = ports[i]};
    }
    options.endpoints = endpoints;
    options.endpoint_count = count;
    struct mst__v2 *client = NULL;
    assert_ok(mst__v2_new(&options, &client, &err));
    return client;
}

static struct mst__v2 *client_with(struct mst__http_options options, uint16_t port)
{
    return client_of(options, &port, 1);
}

static struct mst__v2 *open_client(uint16_t port)
{
    return client_with((struct mst__http_options){0}, port);
}

static struct mst__v2_write write_of(const char *key, const char *value)
{
    struct mst__v2_write write = {.key = key, .value = STR(value), .ttl_s = MST_V2_NO_TTL};
    return write;
}

static void put(const char *key, const char *value)
{
    struct mst__v2_write write = write_of(key, value);
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_OK);
}

static void get(const char *key)
{
    assert_ok(mst__v2_get(v2, key, false, true, soon(), &answer, &err));
}

static void assert_value(const char *key, const char *wanted)
{
    get(key);
    assert_int_equal(answer.code, MST_V2_OK);
    assert_bytes_str(mst_bytes_of(answer.node.value.data, answer.node.value.size), wanted);
}

/* --- keys --- */

static void test_put(void **state)
{
    (void)state;
    struct mst__v2_write write = write_of("put/a", "one");
    write.condition = MST_V2_IF_PRESENT;
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_NOT_FOUND);
    assert_string_equal(answer.cause, "/put");
    assert_string_equal(answer.message, "Key not found");

    write.condition = MST_V2_IF_ABSENT;
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_OK);
    assert_int_equal(answer.action, MST_V2_CREATE);
    assert_true(answer.is_created);
    assert_false(answer.has_previous);
    assert_string_equal(answer.node.key, "/put/a");
    assert_int_equal(answer.node.modified, answer.index);
    uint64_t created = answer.node.created;
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_EXISTS);
    assert_int_equal(answer.index, created);

    write.condition = MST_V2_IF_PRESENT;
    write.value = STR("two");
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    assert_int_equal(answer.action, MST_V2_UPDATE);
    assert_false(answer.is_created);
    assert_true(answer.has_previous);
    assert_bytes_str(mst_bytes_of(answer.previous.value.data, answer.previous.value.size), "one");
    assert_int_equal(answer.node.created, created);

    put("/put/a", "three");
    assert_int_equal(answer.action, MST_V2_SET);
    assert_value("//put///a/", "three");
    assert_int_equal(answer.action, MST_V2_GET);
    assert_false(answer.node.is_dir);
    assert_false(answer.node.has_ttl);
    get("/put/none");
    assert_int_equal(answer.code, MST_V2_NOT_FOUND);
}

static void test_compare(void **state)
{
    (void)state;
    put("/cas", "one");
    uint64_t index = answer.node.modified;
    struct mst__v2_write write = write_of("/cas", "two");
    write.condition = MST_V2_IF_VALUE;
    write.previous_value = STR("other");
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_COMPARE_FAILED);
    assert_string_equal(answer.cause, "[other != one]");
    write.previous_value = STR("one");
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_OK);
    assert_int_equal(answer.action, MST_V2_COMPARE_AND_SWAP);

    write.condition = MST_V2_IF_INDEX;
    write.previous_index = index;
    write.value = STR("three");
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_COMPARE_FAILED);
    get("/cas");
    write.previous_index = answer.node.modified;
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_OK);
    assert_value("/cas", "three");

    /* Requests that etcd would refuse, or execute without a condition. */
    write.previous_index = 0;
    assert_fails(mst__v2_put(v2, &write, soon(), &answer, &err), MST_EINVAL, "index 0");
    write.condition = MST_V2_IF_VALUE;
    write.previous_value = STR("");
    assert_fails(mst__v2_put(v2, &write, soon(), &answer, &err), MST_EINVAL, "empty value");
    assert_value("/cas", "three");
}

static void test_delete(void **state)
{
    (void)state;
    put("/delete/a", "one");
    struct mst__v2_write write = write_of("/delete/a", "");
    write.condition = MST_V2_IF_VALUE;
    write.previous_value = STR("o&ne");
    assert_ok(mst__v2_delete(v2, &write, false, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_COMPARE_FAILED);
    assert_string_equal(answer.cause, "[o&ne != one]");
    write.previous_value = STR("one");
    assert_ok(mst__v2_delete(v2, &write, false, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_OK);
    assert_int_equal(answer.action, MST_V2_COMPARE_AND_DELETE);
    assert_bytes_str(mst_bytes_of(answer.previous.value.data, answer.previous.value.size), "one");
    write.condition = MST_V2_ALWAYS;
    assert_ok(mst__v2_delete(v2, &write, false, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_NOT_FOUND);

    put("/delete/b/c", "x");
    write = write_of("/delete/b", "");
    assert_ok(mst__v2_delete(v2, &write, false, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_NOT_FILE);
    write.is_dir = true;
    assert_ok(mst__v2_delete(v2, &write, false, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_DIR_NOT_EMPTY);
    assert_ok(mst__v2_delete(v2, &write, true, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_OK);
    assert_int_equal(answer.action, MST_V2_DELETE);
    assert_true(answer.node.is_dir);
    write = write_of("/", "");
    assert_ok(mst__v2_delete(v2, &write, true, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_ROOT);
}

static void test_directories(void **state)
{
    (void)state;
    struct mst__v2_write write = write_of("/dirs/d", "");
    write.is_dir = true;
    write.condition = MST_V2_IF_ABSENT;
    write.ttl_s = 7200;
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    assert_true(answer.is_created);
    assert_true(answer.node.is_dir);
    assert_true(answer.node.has_ttl);
    assert_int_equal(answer.node.ttl_s, 7200);
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_EXISTS);
    put("/dirs/d/b", "2");
    put("/dirs/d/c/x", "3");
    put("/dirs/d/a", "1");
    put("/dirs/d/_hidden", "4");

    get("/dirs/d");
    assert_int_equal(answer.node.node_count, 3);
    assert_string_equal(answer.node.nodes[0].key, "/dirs/d/a");
    assert_string_equal(answer.node.nodes[1].key, "/dirs/d/b");
    assert_string_equal(answer.node.nodes[2].key, "/dirs/d/c");
    assert_true(answer.node.nodes[2].is_dir);
    assert_int_equal(answer.node.nodes[2].node_count, 0);
    assert_ok(mst__v2_get(v2, "/dirs/d", true, false, soon(), &answer, &err));
    assert_int_equal(answer.node.nodes[2].node_count, 1);
    const struct mst_buffer *value = &answer.node.nodes[2].nodes[0].value;
    assert_bytes_str(mst_bytes_of(value->data, value->size), "3");
    assert_ok(mst__v2_get(v2, "", true, false, soon(), &answer, &err));
    assert_string_equal(answer.node.key, "");
    assert_true(answer.node.is_dir);

    write = write_of("/dirs/d/a/below", "x");
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_NOT_DIR);
    write.key = "/";
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_ROOT);
}

/* Text is preserved in keys and values; other bytes are not sent. */
static void test_text(void **state)
{
    (void)state;
    static const char *const odd[] = {"", "+ &=%/?#;\"\\\n\t", "\xc3\xa4\xf0\x9f\x98\x80", "a%2Fb",
                                      "{\"status\": \"setup\"}"};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        put("/text/value", odd[i]);
        assert_value("/text/value", odd[i]);
    }
    for (size_t i = 1; i < sizeof odd / sizeof odd[0]; i++) {
        char key[64];
        (void)snprintf(key, sizeof key, "/text/%s", odd[i]);
        put(key, "x");
        assert_string_equal(answer.node.key, key);
        assert_value(key, "x");
    }
    put("/text/+++a==", "base64");
    assert_value("/text/+++a==", "base64");
    struct mst__v2_write write = write_of("/text/nul", "");
    write.value = mst_bytes_of("a\0b", 3);
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    assert_bytes(mst_bytes_of(answer.node.value.data, answer.node.value.size), write.value);

    static char large[1 << 20];
    memset(large, '=', sizeof large - 1); /* three times as long on the wire */
    put("/text/large", large);
    assert_value("/text/large", large);

    write = write_of("/text/bad", "\xff");
    assert_fails(mst__v2_put(v2, &write, soon(), &answer, &err), MST_EINVAL, "UTF-8");
    write = write_of("/text/\xff", "x");
    assert_fails(mst__v2_put(v2, &write, soon(), &answer, &err), MST_EINVAL, "UTF-8");
    write = write_of("/text/../bad", "x");
    assert_fails(mst__v2_put(v2, &write, soon(), &answer, &err), MST_EINVAL, "'..'");
    assert_fails(mst__v2_get(v2, "./bad", false, false, soon(), &answer, &err), MST_EINVAL, "'.'");
    get("/bad");
    assert_int_equal(answer.code, MST_V2_NOT_FOUND);
}

static void test_write_refused(void **state)
{
    (void)state;
    struct mst__v2_write write = write_of("/refused", "x");
    write.is_refresh = true;
    write.ttl_s = 5;
    assert_fails(mst__v2_put(v2, &write, soon(), &answer, &err), MST_EINVAL, "no value");
    write.value = STR("");
    write.ttl_s = MST_V2_NO_TTL;
    assert_fails(mst__v2_put(v2, &write, soon(), &answer, &err), MST_EINVAL, "TTL");
    write = write_of("/refused", "x");
    write.is_dir = true;
    assert_fails(mst__v2_put(v2, &write, soon(), &answer, &err), MST_EINVAL, "value");
    write = write_of("/refused", "x");
    write.ttl_s = -2;
    assert_fails(mst__v2_put(v2, &write, soon(), &answer, &err), MST_EINVAL, "negative");
    struct mst__http_options options = {.user = "a:b"};
    struct mst__v2 *other = NULL;
    assert_fails(mst__v2_new(&options, &other, &err), MST_EINVAL, "colon");
}

/* --- waiting --- */

static void test_wait(void **state)
{
    (void)state;
    put("/wait/a", "0");
    uint64_t index = answer.index;
    /* From history, each event in its turn. */
    put("/wait/a", "1");
    put("/wait/other", "x");
    put("/wait/a", "2");
    uint64_t last = answer.index;
    for (const char *wanted = "012"; *wanted != '\0'; wanted++) {
        assert_ok(mst__v2_wait(v2, "/wait/a", false, index, soon(), &answer, &err));
        assert_int_equal(answer.code, MST_V2_OK);
        assert_int_equal(answer.node.value.data[0], *wanted);
        assert_int_equal(answer.index, answer.node.modified);
        index = answer.index + 1;
    }
    assert_int_equal(index, last + 1);
    assert_fails(mst__v2_wait(v2, "/wait/a", false, index, mst__until_in(SHORT_MS), &answer, &err),
                 MST_ETIMEOUT, "127.0.0.1");
    assert_ok(mst__v2_wait(v2, "/wait", true, last - 1, soon(), &answer, &err));
    assert_string_equal(answer.node.key, "/wait/other");
    /* A watch of a directory alone does not see changes below it. */
    assert_fails(mst__v2_wait(v2, "/wait", false, last - 1, mst__until_in(SHORT_MS), &answer, &err),
                 MST_ETIMEOUT, "127.0.0.1");
}

struct waiter {
    pthread_t thread;
    const char *key;
    uint64_t from;
    int wake_fd;
    int rv;
    struct mst_err err;
    struct mst__v2_answer answer;
};

static void *waiter_run(void *arg)
{
    struct waiter *waiter = arg;
    struct mst__until until = mst__until_by(waiter->wake_fd, PLENTY_MS);
    mst__v2_answer_init(&waiter->answer);
    waiter->rv =
        mst__v2_wait(v2, waiter->key, false, waiter->from, until, &waiter->answer, &waiter->err);
    return NULL;
}

/* Start it, and come back when its poll has been sent by @client. */
static void waiter_start(struct waiter *waiter, const struct mst__v2 *client)
{
    uint64_t before = mst__v2_requests(client);
    assert_int_equal(pthread_create(&waiter->thread, NULL, waiter_run, waiter), 0);
    struct mst__until until = soon();
    while (mst__v2_requests(client) == before) {
        assert_true(!mst__until_is_over(until));
        (void)mst__until_pause(-1, mst__clock_us() + 1000);
    }
}

static void waiter_join(struct waiter *waiter, int wanted)
{
    assert_int_equal(pthread_join(waiter->thread, NULL), 0);
    if (waiter->rv != wanted) {
        fail_msg("wait gives %s: %s", mst_errname(waiter->rv), waiter->err.msg);
    }
}

static void test_wait_woken(void **state)
{
    (void)state;
    put("/woken/a", "0");
    struct waiter waiter = {.key = "/woken/a", .from = answer.index + 1, .wake_fd = -1};
    waiter_start(&waiter, v2);
    put("/woken/a", "1");
    uint64_t index = answer.index;
    waiter_join(&waiter, 0);
    assert_int_equal(waiter.answer.index, index);
    assert_bytes_str(mst_bytes_of(waiter.answer.node.value.data, waiter.answer.node.value.size),
                     "1");
    assert_true(waiter.answer.has_previous);
    mst__v2_answer_close(&waiter.answer);

    waiter.from = index + 1;
    waiter.wake_fd = eventfd(0, EFD_CLOEXEC);
    waiter_start(&waiter, v2);
    assert_int_equal(eventfd_write(waiter.wake_fd, 1), 0);
    waiter_join(&waiter, MST_ECANCELED);
    (void)close(waiter.wake_fd);
    mst__v2_answer_close(&waiter.answer);
}

/* A refresh keeps the value and wakes no watcher; a write without a TTL removes it. */
static void test_ttl(void **state)
{
    (void)state;
    struct mst__v2_write write = write_of("/ttl/a", "x");
    write.ttl_s = 100;
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    uint64_t index = answer.index;
    struct mst__v2_write refresh = {
        .key = "/ttl/a", .condition = MST_V2_IF_PRESENT, .is_refresh = true, .ttl_s = 200};
    assert_ok(mst__v2_put(v2, &refresh, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_OK);
    assert_value("/ttl/a", "x");
    assert_true(answer.node.has_ttl);
    assert_true(answer.node.ttl_s > 100 && answer.node.ttl_s <= 200);
    assert_fails(
        mst__v2_wait(v2, "/ttl/a", false, index + 1, mst__until_in(SHORT_MS), &answer, &err),
        MST_ETIMEOUT, "127.0.0.1");
    put("/ttl/a", "y");
    get("/ttl/a");
    assert_false(answer.node.has_ttl);
    refresh.key = "/ttl/none";
    assert_ok(mst__v2_put(v2, &refresh, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_NOT_FOUND);

    write.key = "/ttl/short";
    write.ttl_s = 1;
    assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
    assert_ok(mst__v2_wait(v2, "/ttl/short", false, answer.index + 1, soon(), &answer, &err));
    assert_int_equal(answer.action, MST_V2_EXPIRE);
    assert_true(answer.has_previous);
    get("/ttl/short");
    assert_int_equal(answer.code, MST_V2_NOT_FOUND);
}

/* Refreshes of another key push our events out of the history. */
static void test_index_cleared(void **state)
{
    (void)state;
    put("/cleared/a", "x");
    uint64_t index = answer.index;
    struct mst__v2_write refresh = {.key = "/cleared/busy", .ttl_s = 100};
    assert_ok(mst__v2_put(v2, &refresh, soon(), &answer, &err));
    refresh.is_refresh = true;
    refresh.condition = MST_V2_IF_PRESENT;
    for (int i = 0; i < 1100; i++) {
        assert_ok(mst__v2_put(v2, &refresh, soon(), &answer, &err));
        assert_int_equal(answer.code, MST_V2_OK);
    }
    assert_ok(mst__v2_wait(v2, "/cleared/a", false, index + 1, soon(), &answer, &err));
    assert_int_equal(answer.code, MST_V2_INDEX_CLEARED);
    assert_true(answer.index >= index + 1100);
    /* Read, and wait from there. */
    assert_value("/cleared/a", "x");
    struct waiter waiter = {.key = "/cleared/a", .from = answer.index + 1, .wake_fd = -1};
    waiter_start(&waiter, v2);
    put("/cleared/a", "y");
    waiter_join(&waiter, 0);
    mst__v2_answer_close(&waiter.answer);
}

/* --- servers that fail --- */

static void test_off(void **state)
{
    (void)state;
    etcd_unit_start(&own[0], false, NULL);
    v2 = open_client(own[0].port);
    struct mst__v2_write write = write_of("/a", "x");
    assert_fails(mst__v2_get(v2, "/a", false, false, soon(), &answer, &err), MST_ENOTSUP,
                 "--enable-v2");
    assert_non_null(strstr(err.msg, "3.6"));
    assert_fails(mst__v2_put(v2, &write, soon(), &answer, &err), MST_ENOTSUP, "--enable-v2");
    assert_fails(mst__v2_wait(v2, "/a", false, 0, soon(), &answer, &err), MST_ENOTSUP,
                 "--enable-v2");
}

static void test_restart(void **state)
{
    (void)state;
    struct etcd_unit *etcd = &own[0];
    etcd_unit_start(etcd, false, with_v2);
    v2 = open_client(etcd->port);
    static const int signals[] = {SIGKILL, SIGTERM};
    for (size_t i = 0; i < 2; i++) {
        put("/a", "x");
        struct waiter waiter = {.key = "/a", .from = answer.index + 1, .wake_fd = -1};
        waiter_start(&waiter, v2);
        etcd_unit_end(etcd, signals[i]);
        waiter_join(&waiter, MST_ECONN);
        mst__v2_answer_close(&waiter.answer);
        /* No server answers: the write has certainly not happened. */
        struct mst__v2_write write = write_of("/a", "y");
        assert_fails(mst__v2_put(v2, &write, soon(), &answer, &err), MST_ECONN, "127.0.0.1");
        etcd_unit_again(etcd, true);
        assert_value("/a", "x");
    }
}

static void test_stopped(void **state)
{
    (void)state;
    struct etcd_unit *etcd = &own[0];
    etcd_unit_start(etcd, false, with_v2);
    v2 = open_client(etcd->port);
    put("/a", "x");
    uint64_t requests = mst__v2_requests(v2);
    etcd_unit_pause(etcd);
    struct mst__v2_write write = write_of("/a", "y");
    struct mst__until until = mst__until_in(SHORT_MS);
    assert_fails(mst__v2_put(v2, &write, until, &answer, &err), MST_EUNKNOWN, "127.0.0.1");
    assert_int_equal(mst__v2_requests(v2), requests + 1);
    until = mst__until_in(SHORT_MS);
    assert_fails(mst__v2_get(v2, "/a", false, true, until, &answer, &err), MST_ETIMEOUT,
                 "127.0.0.1");
    assert_int_equal(kill(etcd->pid, SIGCONT), 0);
    /* It was unknown indeed: either is right, and one of them it is. */
    get("/a");
    assert_int_equal(answer.code, MST_V2_OK);
    assert_true(answer.node.value.data[0] == 'x' || answer.node.value.data[0] == 'y');
}

/* The member that is the client's current endpoint. */
static struct etcd_unit *current_member(void)
{
    for (size_t i = 0; i < 3; i++) {
        char where[64];
        (void)snprintf(where, sizeof where, "http://127.0.0.1:%u", own[i].port);
        if (strcmp(where, mst__v2_where(v2)) == 0) {
            return &own[i];
        }
    }
    fail_msg("%s is no member", mst__v2_where(v2));
    return NULL;
}

/* A write that may meet an election: read, and send it again if need be. */
static void put_surely(const char *key, const char *value)
{
    struct mst__v2_write write = write_of(key, value);
    for (int i = 0; i < 5; i++) {
        int rv = mst__v2_put(v2, &write, soon(), &answer, &err);
        if (rv == 0) {
            return;
        }
        assert_int_equal(rv, MST_EUNKNOWN);
        get(key);
        if (answer.code == MST_V2_OK && strcmp((char *)answer.node.value.data, value) == 0) {
            return;
        }
    }
    fail_msg("%s", err.msg);
}

static void test_cluster(void **state)
{
    (void)state;
    etcd_unit_start_cluster(own, 3, false, with_v2);
    const uint16_t ports[] = {own[0].port, own[1].port, own[2].port};
    v2 = client_of((struct mst__http_options){0}, ports, 3);
    put("/a", "one");
    /* One dies, and is never missed. */
    struct etcd_unit *first = current_member();
    etcd_unit_end(first, SIGKILL);
    assert_value("/a", "one");
    assert_ptr_not_equal(current_member(), first);
    put_surely("/a", "two");
    assert_value("/a", "two");

    /* Two members have no quorum: the result of a write is unknown. */
    etcd_unit_end(current_member(), SIGKILL);
    struct mst__v2_write write = write_of("/a", "three");
    assert_fails(mst__v2_put(v2, &write, soon(), &answer, &err), MST_EUNKNOWN, "127.0.0.1");
    assert_fails(mst__v2_get(v2, "/a", false, true, mst__until_in(1000), &answer, &err),
                 MST_ETIMEOUT, "127.0.0.1");
    assert_ok(mst__v2_get(v2, "/a", false, false, soon(), &answer, &err));
    assert_bytes_str(mst_bytes_of(answer.node.value.data, answer.node.value.size), "two");

    etcd_unit_again(first, true);
    put_surely("/a", "four");
    assert_value("/a", "four");
}

/* --- who may --- */

/* One call of the administration. */
static void administer(struct mst__http *http,
                       enum mst__http_method method,
                       const char *path,
                       const char *body)
{
    struct mst__http_request request = {
        .method = method, .path = path, .body = STR(body), .content_type = "application/json"};
    struct mst__http_response response;
    mst__http_response_init(&response);
    assert_ok(mst__http_call(http, &request, soon(), &response, &err));
    if (response.status != 200 && response.status != 201) {
        fail_msg("%s: status %d", path, response.status);
    }
    mst__http_response_close(&response);
}

static void test_auth(void **state)
{
    (void)state;
    etcd_unit_start(&own[0], false, with_v2);
    struct mst__endpoint endpoint = {.host = "127.0.0.1", .port = own[0].port};
    struct mst__http_options options = {
        .endpoints = &endpoint, .endpoint_count = 1, .user = "root", .password = "r:pw"};
    struct mst__http *http = NULL;
    assert_ok(mst__http_new(&options, &http, &err));
    administer(http, MST_HTTP_PUT, "/v2/auth/users/root",
               "{\"user\": \"root\", \"password\": \"r:pw\"}");
    administer(http, MST_HTTP_PUT, "/v2/auth/users/tr",
               "{\"user\": \"tr\", \"password\": \"trpw\"}");
    administer(http, MST_HTTP_PUT, "/v2/auth/enable", "");
    administer(http, MST_HTTP_DELETE, "/v2/auth/roles/guest", "");
    mst__http_free(http);

    static const struct {
        const char *user;
        const char *password;
        bool is_allowed;
    } cases[] = {{NULL, NULL, false},
                 {"root", "secret", false},
                 {"root", NULL, false},
                 {"tr", "trpw", false}, /* has no role */
                 {"root", "r:pw", true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        options.user = cases[i].user;
        options.password = cases[i].password;
        v2 = client_with(options, own[0].port);
        struct mst__v2_write write = write_of("/a", "x");
        if (cases[i].is_allowed) {
            assert_ok(mst__v2_put(v2, &write, soon(), &answer, &err));
            assert_int_equal(answer.code, MST_V2_OK);
        } else {
            assert_fails(mst__v2_put(v2, &write, soon(), &answer, &err), MST_EAUTH,
                         "Insufficient credentials");
            assert_null(strstr(err.msg, "secret"));
            assert_fails(mst__v2_wait(v2, "/a", false, 0, soon(), &answer, &err), MST_EAUTH,
                         "Insufficient credentials");
        }
        mst__v2_free(v2);
        v2 = shared_v2;
    }
}

/* --- the program --- */

static int start_shared(void **state)
{
    (void)state;
    mst__v2_answer_init(&answer);
    if (etcd_unit_is_there()) {
        etcd_unit_start(&shared, false, with_v2);
        shared_v2 = open_client(shared.port);
        v2 = shared_v2;
    }
    return 0;
}

static int stop_own(void **state)
{
    (void)state;
    if (v2 != shared_v2) {
        mst__v2_free(v2);
        v2 = shared_v2;
    }
    for (size_t i = 0; i < 3; i++) {
        etcd_unit_stop(&own[i]);
    }
    return 0;
}

static int stop_shared(void **state)
{
    (void)state;
    mst__v2_answer_close(&answer);
    mst__v2_free(shared_v2);
    etcd_unit_stop(&shared);
    return 0;
}

static void test_no_etcd(void **state)
{
    (void)state;
    MST_SKIP("there is no etcd in $PATH");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_delete),
        cmocka_unit_test(test_directories),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_write_refused),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_wait_woken),
        cmocka_unit_test(test_ttl),
        cmocka_unit_test(test_index_cleared),
        cmocka_unit_test_teardown(test_off, stop_own),
        cmocka_unit_test_teardown(test_restart, stop_own),
        cmocka_unit_test_teardown(test_stopped, stop_own),
        cmocka_unit_test_teardown(test_cluster, stop_own),
        cmocka_unit_test_teardown(test_auth, stop_own),
    };
    if (!etcd_unit_is_there()) {
        const struct CMUnitTest none[] = {cmocka_unit_test(test_no_etcd)};
        return MST_RUN_TESTS(none);
    }
    int failed = cmocka_run_group_tests(tests, start_shared, stop_shared);
    return mst__unit_end(sizeof tests / sizeof tests[0], failed);
}
