/* unit/test_store.c - every call of every store: in the process, in a file, behind a server, with
 * and without prefixes; from several threads; and with allocations that fail. */
#include "unit/store_unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"

/* --- fixture: a server, a directory, the URLs of all kinds of stores --- */

struct fixture {
    struct mst_server *server;
    pthread_t thread;
    char directory[64];
    char path[80], socket[80];
    char tcp[128], tcp_prefix[128], unix_url[128], file[128];
};

static void *serve(void *arg)
{
    int rv = mst_server_run(arg, NULL);
    return rv == 0 ? NULL : arg;
}

static int fixture_open(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    (void)snprintf(fixture->directory, sizeof fixture->directory, "/tmp/muster-test-XXXXXX");
    assert_non_null(mkdtemp(fixture->directory));
    (void)snprintf(fixture->path, sizeof fixture->path, "%s/store", fixture->directory);
    (void)snprintf(fixture->file, sizeof fixture->file, "file://%s", fixture->path);
    (void)snprintf(fixture->socket, sizeof fixture->socket, "%s/socket", fixture->directory);
    (void)snprintf(fixture->unix_url, sizeof fixture->unix_url, "unix://%s", fixture->socket);
    char unix_host[140];
    (void)snprintf(unix_host, sizeof unix_host, "unix:%s", fixture->socket);
    const char *hosts[] = {"127.0.0.1", unix_host};
    struct mst_server_options options;
    mst_server_options_init(&options);
    options.hosts = hosts;
    options.hosts_count = 2;
    options.port = 0;
    assert_ok(mst_server_new(&options, &fixture->server, &err));
    int port = mst_server_port(fixture->server);
    (void)snprintf(fixture->tcp, sizeof fixture->tcp, "tcp://127.0.0.1:%d", port);
    (void)snprintf(fixture->tcp_prefix, sizeof fixture->tcp_prefix, "tcp://127.0.0.1:%d/p/%%71",
                   port);
    assert_int_equal(pthread_create(&fixture->thread, NULL, serve, fixture->server), 0);
    *state = fixture;
    return 0;
}

static int fixture_close(void **state)
{
    struct fixture *fixture = *state;
    void *failed = NULL;
    mst_server_stop(fixture->server);
    assert_int_equal(pthread_join(fixture->thread, &failed), 0);
    assert_null(failed);
    mst_server_free(fixture->server);
    (void)unlink(fixture->path);
    (void)unlink(fixture->socket);
    assert_int_equal(rmdir(fixture->directory), 0);
    free(fixture);
    return 0;
}

/* Run @test on a fresh store of each kind. */
static void on_each(void **state, void (*test)(struct mst_store *store))
{
    struct fixture *fixture = *state;
    char file_prefix[160];
    (void)snprintf(file_prefix, sizeof file_prefix, "%s?prefix=pp", fixture->file);
    const char *urls[] = {"hash:",           "hash:?prefix=x",    fixture->file, file_prefix,
                          fixture->unix_url, fixture->tcp_prefix, fixture->tcp};
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        struct mst_store *store = open_store(urls[i]);
        test(store);
        /* The stores behind one server or file share it: leave nothing behind. */
        struct mst_keys keys = {0};
        assert_ok(mst_store_list(store, PLENTY_MS, &keys, &err));
        for (size_t k = 0; k < keys.count; k++) {
            assert_ok(mst_store_delete(store, keys.keys[k], PLENTY_MS, NULL, &err));
        }
        mst_keys_free(&keys);
        mst_store_close(store);
    }
}

/* --- calls --- */

static void values(struct mst_store *store)
{
    static const uint8_t odd[] = {0, 0xff, '\n', 0};
    assert_absent(store, "k");
    assert_ok(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err));
    assert_value(store, "k", STR("v"));
    assert_ok(mst_store_set(store, STR("k"), mst_bytes(odd, sizeof odd), PLENTY_MS, &err));
    assert_value(store, "k", mst_bytes(odd, sizeof odd));
    assert_ok(mst_store_set(store, STR("k"), mst_bytes(NULL, 0), PLENTY_MS, &err));
    assert_value(store, "k", mst_bytes(NULL, 0));
    /* The empty key is a key too, and so is one with a NUL. */
    assert_ok(mst_store_set(store, mst_bytes(NULL, 0), STR("empty"), PLENTY_MS, &err));
    assert_value(store, "", STR("empty"));
    assert_ok(mst_store_set(store, mst_bytes("a\0b", 3), STR("nul"), PLENTY_MS, &err));
    assert_absent(store, "a");
    bool existed = false;
    assert_ok(mst_store_delete(store, STR("k"), PLENTY_MS, &existed, &err));
    assert_true(existed);
    assert_ok(mst_store_delete(store, STR("k"), PLENTY_MS, &existed, &err));
    assert_false(existed);
    assert_absent(store, "k");
}

static void test_values(void **state)
{
    on_each(state, values);
}

static void numbers(struct mst_store *store)
{
    int64_t sum = 0;
    assert_ok(mst_store_add(store, STR("n"), 5, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, 5);
    assert_ok(mst_store_add(store, STR("n"), -7, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, -2);
    assert_value(store, "n", STR("-2"));
    assert_ok(mst_store_set(store, STR("n"), STR(" 12abc"), PLENTY_MS, &err));
    assert_ok(mst_store_add(store, STR("n"), 1, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, 13);
    assert_ok(mst_store_set(store, STR("text"), STR("abc"), PLENTY_MS, &err));
    assert_fails(mst_store_add(store, STR("text"), 1, PLENTY_MS, &sum, &err), MST_ETYPE, "'text'");
    assert_int_equal(sum, 13);
    assert_value(store, "text", STR("abc"));
}

static void test_numbers(void **state)
{
    on_each(state, numbers);
}

static void compare_and_set(struct mst_store *store)
{
    static const struct {
        const char *expected, *desired;
        enum mst_compare_set outcome;
        const char *value;
    } steps[] = {
        {"exp", "new", MST_COMPARE_SET_ABSENT, ""},   {"", "v1", MST_COMPARE_SET_DONE, "v1"},
        {"bad", "v2", MST_COMPARE_SET_DIFFERS, "v1"}, {"v1", "v2", MST_COMPARE_SET_DONE, "v2"},
        {"", "v3", MST_COMPARE_SET_DIFFERS, "v2"},    {"v2", "", MST_COMPARE_SET_DONE, ""},
        {"", "v4", MST_COMPARE_SET_DONE, "v4"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        enum mst_compare_set outcome = MST_COMPARE_SET_DONE;
        struct mst_buffer value = {0};
        assert_ok(mst_store_compare_set(store, STR("c"), STR(steps[i].expected),
                                        STR(steps[i].desired), PLENTY_MS, &outcome, &value, &err));
        assert_int_equal(outcome, steps[i].outcome);
        assert_bytes_str(mst_bytes(value.data, value.size), steps[i].value);
        mst_buffer_free(&value);
        if (i == 0) {
            assert_absent(store, "c");
        }
    }
    assert_value(store, "c", STR("v4"));
}

static void test_compare_and_set(void **state)
{
    on_each(state, compare_and_set);
}

static void several_keys(struct mst_store *store)
{
    struct mst_bytes keys[] = {STR("m1"), STR("m2"), STR("m3")};
    struct mst_bytes contents[] = {STR("a"), STR(""), STR("ccc")};
    bool exist = true;
    assert_ok(mst_store_check(store, keys, 3, PLENTY_MS, &exist, &err));
    assert_false(exist);
    assert_ok(mst_store_check(store, NULL, 0, PLENTY_MS, &exist, &err));
    assert_true(exist);
    assert_ok(mst_store_multi_set(store, keys, contents, 3, PLENTY_MS, &err));
    assert_ok(mst_store_multi_set(store, NULL, NULL, 0, PLENTY_MS, &err));
    assert_ok(mst_store_check(store, keys, 3, PLENTY_MS, &exist, &err));
    assert_true(exist);
    assert_ok(mst_store_wait(store, keys, 3, PLENTY_MS, &err));
    struct mst_buffer found[3] = {{0}};
    assert_ok(mst_store_multi_get(store, keys, 3, PLENTY_MS, found, &err));
    for (size_t i = 0; i < 3; i++) {
        assert_bytes(mst_bytes(found[i].data, found[i].size), contents[i]);
        mst_buffer_free(&found[i]);
    }
    assert_ok(mst_store_append(store, STR("m1"), STR("bc"), PLENTY_MS, &err));
    assert_ok(mst_store_append(store, STR("new"), STR("n"), PLENTY_MS, &err));
    assert_value(store, "m1", STR("abc"));
    assert_value(store, "new", STR("n"));
    struct mst_keys list = {0};
    assert_ok(mst_store_list(store, PLENTY_MS, &list, &err));
    assert_int_equal(list.count, 4);
    size_t seen = 0;
    for (size_t i = 0; i < list.count; i++) {
        assert_true(list.keys[i].size == 2 || list.keys[i].size == 3);
        seen += list.keys[i].data[0] == 'm' || list.keys[i].data[0] == 'n' ? 1 : 0;
    }
    assert_int_equal(seen, 4);
    mst_keys_free(&list);
    int64_t count = 0;
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
    assert_int_equal(count, 4);
}

static void test_several_keys(void **state)
{
    on_each(state, several_keys);
}

static void timeouts(struct mst_store *store)
{
    struct mst_bytes keys[] = {STR("here"), STR("nowhere")};
    assert_ok(mst_store_set(store, STR("here"), STR("1"), PLENTY_MS, &err));
    int64_t start_ms = mst__clock_ms();
    assert_fails(mst_store_wait(store, keys, 2, SHORT_MS, &err), MST_ETIMEOUT,
                 "wait 'here' and 1 more");
    struct mst_buffer value = {0};
    assert_fails(mst_store_get(store, keys[1], SHORT_MS, &value, &err), MST_ETIMEOUT, "");
    assert_fails(mst_store_multi_get(store, keys, 2, SHORT_MS, &value, &err), MST_ETIMEOUT, "");
    assert_null(value.data);
    assert_fails(mst_store_barrier(store, STR("bar"), 2, SHORT_MS, &err), MST_ETIMEOUT, "");
    int64_t took_ms = mst__clock_ms() - start_ms;
    assert_in_range(took_ms, 4 * SHORT_MS - 8, PLENTY_MS);
    /* The stream is in step: what was cancelled does not answer later questions. */
    assert_ok(mst_store_set(store, STR("nowhere"), STR("2"), PLENTY_MS, &err));
    assert_value(store, "nowhere", STR("2"));
    assert_ok(mst_store_wait(store, keys, 2, PLENTY_MS, &err));
}

static void test_timeouts(void **state)
{
    on_each(state, timeouts);
}

static void test_queues(void **state)
{
    struct fixture *fixture = *state;
    const char *urls[] = {"hash:?prefix=q", fixture->tcp};
    for (size_t i = 0; i < 2; i++) {
        struct mst_store *store = open_store(urls[i]);
        struct mst_buffer value = {0};
        int64_t count = -1;
        assert_fails(mst_store_queue_pop(store, STR("q"), false, PLENTY_MS, &value, &err),
                     MST_ENOTFOUND, "");
        assert_ok(mst_store_queue_push(store, STR("q"), STR("one"), PLENTY_MS, &err));
        assert_ok(mst_store_queue_push(store, STR("q"), STR(""), PLENTY_MS, &err));
        assert_ok(mst_store_queue_len(store, STR("q"), PLENTY_MS, &count, &err));
        assert_int_equal(count, 2);
        assert_ok(mst_store_queue_pop(store, STR("q"), true, PLENTY_MS, &value, &err));
        assert_bytes_str(mst_bytes(value.data, value.size), "one");
        mst_buffer_free(&value);
        assert_ok(mst_store_queue_pop(store, STR("q"), false, PLENTY_MS, &value, &err));
        assert_int_equal(value.size, 0);
        mst_buffer_free(&value);
        assert_fails(mst_store_queue_pop(store, STR("q"), true, SHORT_MS, &value, &err),
                     MST_ETIMEOUT, "");
        /* A key of that name satisfies the wait, but is no item. */
        assert_ok(mst_store_set(store, STR("q"), STR("value"), PLENTY_MS, &err));
        assert_fails(mst_store_queue_pop(store, STR("q"), true, SHORT_MS, &value, &err),
                     MST_ETIMEOUT, "");
        assert_ok(mst_store_delete(store, STR("q"), PLENTY_MS, NULL, &err));
        mst_store_close(store);
    }
    struct mst_store *file = open_store(fixture->file);
    int64_t count;
    assert_fails(mst_store_queue_len(file, STR("q"), PLENTY_MS, &count, &err), MST_ENOTSUP,
                 "queue_len");
    mst_store_close(file);
}

/* --- prefixes --- */

static void test_prefixes(void **state)
{
    (void)state;
    struct mst_store *root = open_store("hash:");
    struct mst_store *inner = NULL;
    struct mst_store *outer = NULL;
    struct mst_store *other = NULL;
    assert_ok(mst_store_prefix(root, STR("inner"), &inner, &err));
    assert_ok(mst_store_prefix(inner, STR("outer"), &outer, &err));
    assert_ok(mst_store_prefix(root, STR("inn"), &other, &err));
    assert_ok(mst_store_set(outer, STR("k"), STR("v"), PLENTY_MS, &err));
    assert_value(root, "inner/outer/k", STR("v"));
    assert_value(inner, "outer/k", STR("v"));
    /* A prefix that merely begins alike sees nothing of it. */
    struct mst_keys keys = {0};
    assert_ok(mst_store_list(other, PLENTY_MS, &keys, &err));
    assert_int_equal(keys.count, 0);
    mst_keys_free(&keys);
    int64_t count = 0;
    assert_ok(mst_store_num_keys(other, PLENTY_MS, &count, &err));
    assert_int_equal(count, 1);
    /* Either may be closed first. */
    mst_store_close(root);
    mst_store_close(inner);
    assert_value(outer, "k", STR("v"));
    /* Barriers under a prefix leave the keys that PyTorch's leave. */
    assert_ok(mst_store_barrier(outer, STR("b"), 1, PLENTY_MS, &err));
    assert_value(outer, "b/num_members", STR("1"));
    assert_value(outer, "b/last_member", STR("1"));
    mst_store_close(outer);
    mst_store_close(other);
}

static void test_limits(void **state)
{
    struct fixture *fixture = *state;
    const char *urls[] = {"hash:", fixture->tcp, fixture->file};
    for (size_t i = 0; i < 3; i++) {
        struct mst_store_options options;
        mst_store_options_init(&options);
        options.key_size_max = 16;
        options.value_size_max = 8;
        struct mst_store *store = NULL;
        assert_ok(mst_store_open(urls[i], &options, PLENTY_MS, &store, &err));
        assert_fails(mst_store_set(store, STR("k"), STR("123456789"), PLENTY_MS, &err), MST_ELIMIT,
                     "9 bytes");
        assert_fails(mst_store_set(store, STR("12345678901234567"), STR("v"), PLENTY_MS, &err),
                     MST_ELIMIT, "");
        struct mst_store *view = NULL;
        assert_fails(mst_store_prefix(store, STR("1234567890123456"), &view, &err), MST_ELIMIT, "");
        assert_ok(mst_store_set(store, STR("k"), STR("12345678"), PLENTY_MS, &err));
        if (i != 1) { /* a server has limits of its own */
            assert_fails(mst_store_append(store, STR("k"), STR("9"), PLENTY_MS, &err), MST_ELIMIT,
                         "");
        }
        assert_value(store, "k", STR("12345678"));
        assert_ok(mst_store_delete(store, STR("k"), PLENTY_MS, NULL, &err));
        mst_store_close(store);
        options.size = 3;
        assert_fails(mst_store_open(urls[i], &options, PLENTY_MS, &store, &err), MST_EINVAL, "");
        options.size = sizeof options;
        options.key_size_max = 0;
        assert_fails(mst_store_open(urls[i], &options, PLENTY_MS, &store, &err), MST_EINVAL, "");
    }
}

/* --- threads --- */

struct waiter {
    struct mst_store *store;
    pthread_t thread;
    const char *key;
    bool is_pop;
    int rv;
    char got[32];
};

static void *wait_for_value(void *arg)
{
    struct waiter *waiter = arg;
    struct mst_buffer value = {0};
    waiter->rv =
        waiter->is_pop
            ? mst_store_queue_pop(waiter->store, STR(waiter->key), true, PLENTY_MS, &value, NULL)
            : mst_store_get(waiter->store, STR(waiter->key), PLENTY_MS, &value, NULL);
    if (waiter->rv == 0) {
        (void)snprintf(waiter->got, sizeof waiter->got, "%s", (const char *)value.data);
    }
    mst_buffer_free(&value);
    return NULL;
}

struct adder {
    struct mst_store *store;
    pthread_t thread;
    int failures;
};

#define ADDERS 6
#define ADDS 50

static void *add_many(void *arg)
{
    struct adder *adder = arg;
    for (int i = 0; i < ADDS; i++) {
        int64_t sum;
        adder->failures +=
            mst_store_add(adder->store, STR("sum"), 1, PLENTY_MS, &sum, NULL) == 0 ? 0 : 1;
    }
    return NULL;
}

/* One thread waits for a key all the while; the others get on, and then let it go. */
static void threads(struct mst_store *store)
{
    struct waiter waiter = {.store = store, .key = "late"};
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_for_value, &waiter), 0);
    struct adder adders[ADDERS];
    for (size_t i = 0; i < ADDERS; i++) {
        adders[i] = (struct adder){.store = store};
        assert_int_equal(pthread_create(&adders[i].thread, NULL, add_many, &adders[i]), 0);
    }
    for (size_t i = 0; i < ADDERS; i++) {
        assert_int_equal(pthread_join(adders[i].thread, NULL), 0);
        assert_int_equal(adders[i].failures, 0);
    }
    int64_t sum = 0;
    assert_ok(mst_store_add(store, STR("sum"), 0, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, ADDERS * ADDS);
    assert_ok(mst_store_set(store, STR("late"), STR("come"), PLENTY_MS, &err));
    assert_int_equal(pthread_join(waiter.thread, NULL), 0);
    assert_int_equal(waiter.rv, 0);
    assert_string_equal(waiter.got, "come");
}

static void test_threads(void **state)
{
    on_each(state, threads);
}

/* Every item goes to exactly one of those who wait for the queue. */
static void test_threads_pop(void **state)
{
    struct fixture *fixture = *state;
    const char *urls[] = {"hash:", fixture->tcp};
    for (size_t u = 0; u < 2; u++) {
        struct mst_store *store = open_store(urls[u]);
        struct waiter waiters[4];
        for (size_t i = 0; i < 4; i++) {
            waiters[i] = (struct waiter){.store = store, .key = "q", .is_pop = true};
            assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_for_value, &waiters[i]),
                             0);
        }
        const char *items[] = {"0", "1", "2", "3"};
        for (size_t i = 0; i < 4; i++) {
            assert_ok(mst_store_queue_push(store, STR("q"), STR(items[i]), PLENTY_MS, &err));
        }
        unsigned seen = 0;
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
            assert_int_equal(waiters[i].rv, 0);
            seen |= 1u << (waiters[i].got[0] - '0');
        }
        assert_int_equal(seen, 15);
        mst_store_close(store);
    }
}

struct comer {
    struct mst_store *store;
    pthread_t thread;
    int rv;
};

static void *come_to_barrier(void *arg)
{
    struct comer *comer = arg;
    comer->rv = mst_store_barrier(comer->store, STR("bar"), 5, PLENTY_MS, NULL);
    return NULL;
}

static void barriers(struct mst_store *store)
{
    struct comer comers[5];
    for (size_t i = 0; i < 5; i++) {
        comers[i] = (struct comer){.store = store, .rv = -1};
        assert_int_equal(pthread_create(&comers[i].thread, NULL, come_to_barrier, &comers[i]), 0);
    }
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(pthread_join(comers[i].thread, NULL), 0);
        assert_int_equal(comers[i].rv, 0);
    }
}

static void test_barriers(void **state)
{
    on_each(state, barriers);
}

/* More threads than connections: those that find none wait for one. */
static void test_pool_is_bounded(void **state)
{
    struct fixture *fixture = *state;
    enum { WAITERS = MST_POOL_MAX };
    struct mst_store *store = open_store(fixture->tcp);
    struct waiter *waiters = calloc(WAITERS, sizeof *waiters);
    assert_non_null(waiters);
    for (size_t i = 0; i < WAITERS; i++) {
        waiters[i] = (struct waiter){.store = store, .key = "pool"};
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_for_value, &waiters[i]), 0);
    }
    struct mst_store_stats stats = {.size = sizeof stats};
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    do {
        assert_true(mst__clock_ms() < deadline_ms);
        assert_int_equal(mst_store_stats(store, &stats), 0);
    } while (stats.connects < WAITERS);
    assert_string_equal(stats.dialect, "C");
    assert_string_equal(stats.peer, fixture->tcp);
    /* Soon all of them are in use, and nobody else can have any in time... */
    struct mst_bytes key = STR("pool");
    do {
        assert_true(mst__clock_ms() < deadline_ms);
        bool exist;
        err = (struct mst_err){0};
        (void)mst_store_check(store, &key, 1, SHORT_MS, &exist, &err);
    } while (err.code != MST_ETIMEOUT || strstr(err.msg, "stayed in use") == NULL);
    /* ...until somebody else lets them go. */
    struct mst_store *another = open_store(fixture->tcp);
    assert_ok(mst_store_set(another, key, STR("x"), PLENTY_MS, &err));
    for (size_t i = 0; i < WAITERS; i++) {
        assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
        assert_int_equal(waiters[i].rv, 0);
    }
    assert_ok(mst_store_delete(another, key, PLENTY_MS, NULL, &err));
    mst_store_close(another);
    mst_store_close(store);
    free(waiters);
}

/* --- out of memory --- */

/* Every call once, each on keys of its own. Stops at the first error. */
static int all_calls(struct mst_store *store, bool has_queues, struct mst_err *reterr)
{
    struct mst_bytes keys[] = {STR("f1"), STR("f2")};
    struct mst_bytes contents[] = {STR("a"), STR("b")};
    struct mst_buffer found[2] = {{0}};
    struct mst_buffer value = {0};
    struct mst_keys list = {0};
    enum mst_compare_set outcome;
    int64_t number;
    bool flag;
    int rv = mst_store_set(store, keys[0], STR("value"), PLENTY_MS, reterr);
    rv = rv != 0 ? rv : mst_store_get(store, keys[0], PLENTY_MS, &value, reterr);
    mst_buffer_free(&value);
    rv = rv != 0 ? rv : mst_store_add(store, STR("fn"), 1, PLENTY_MS, &number, reterr);
    rv = rv != 0 ? rv : mst_store_multi_set(store, keys, contents, 2, PLENTY_MS, reterr);
    rv = rv != 0 ? rv : mst_store_check(store, keys, 2, PLENTY_MS, &flag, reterr);
    rv = rv != 0 ? rv : mst_store_wait(store, keys, 2, PLENTY_MS, reterr);
    rv = rv != 0 ? rv : mst_store_multi_get(store, keys, 2, PLENTY_MS, found, reterr);
    mst_buffer_free(&found[0]);
    mst_buffer_free(&found[1]);
    rv = rv != 0 ? rv
                 : mst_store_compare_set(store, keys[0], STR("a"), STR("c"), PLENTY_MS, &outcome,
                                         &value, reterr);
    mst_buffer_free(&value);
    rv = rv != 0 ? rv : mst_store_append(store, keys[0], STR("d"), PLENTY_MS, reterr);
    rv = rv != 0 ? rv : mst_store_list(store, PLENTY_MS, &list, reterr);
    mst_keys_free(&list);
    rv = rv != 0 ? rv : mst_store_num_keys(store, PLENTY_MS, &number, reterr);
    rv = rv != 0 ? rv : mst_store_barrier(store, STR("fb"), 1, PLENTY_MS, reterr);
    rv = rv != 0 ? rv : mst_store_delete(store, keys[0], PLENTY_MS, &flag, reterr);
    if (has_queues) {
        rv = rv != 0 ? rv : mst_store_queue_push(store, STR("fq"), STR("x"), PLENTY_MS, reterr);
        rv = rv != 0 ? rv : mst_store_queue_len(store, STR("fq"), PLENTY_MS, &number, reterr);
        rv = rv != 0 ? rv : mst_store_queue_pop(store, STR("fq"), false, PLENTY_MS, &value, reterr);
        mst_buffer_free(&value);
    }
    return rv;
}

/* Fail the n-th allocation of opening and of every call, for all n: an error that says so, or none
 * at all where the memory was not essential, and a store that works on. */
static void test_out_of_memory(void **state)
{
    struct fixture *fixture = *state;
    char file_prefix[160];
    (void)snprintf(file_prefix, sizeof file_prefix, "%s?prefix=oom", fixture->file);
    const char *urls[] = {"hash:", "hash:?prefix=p", file_prefix, fixture->tcp_prefix};
    for (size_t u = 0; u < sizeof urls / sizeof urls[0]; u++) {
        bool has_queues = u != 2;
        unsigned long opens_failed = 0;
        unsigned long calls_failed = 0;
        for (unsigned long nth = 1;; nth++) {
            assert_true(nth < 1000);
            struct mst_store *store = NULL;
            err = (struct mst_err){0};
            (void)unlink(fixture->path); /* a log that grew would need more memory every time */
            mst__mem_fail_nth(nth);
            int rv = mst_store_open(urls[u], NULL, PLENTY_MS, &store, &err);
            int open_rv = rv;
            rv = rv != 0 ? rv : all_calls(store, has_queues, &err);
            bool failed = mst__mem_failed();
            mst__mem_fail_nth(0);
            if (rv != 0 && (rv != MST_ENOMEM || !failed)) {
                fail_msg("%s: allocation %lu: %s", urls[u], nth, err.msg);
            }
            opens_failed += open_rv != 0 ? 1 : 0;
            calls_failed += open_rv == 0 && rv != 0 ? 1 : 0;
            if (open_rv == 0) {
                assert_ok(all_calls(store, has_queues, &err));
            }
            mst_store_close(store);
            if (!failed) {
                break;
            }
        }
        assert_true(opens_failed >= 2);
        assert_true(calls_failed >= 15);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_values, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_numbers, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_compare_and_set, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_several_keys, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_timeouts, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_queues, fixture_open, fixture_close),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test_setup_teardown(test_limits, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_threads, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_threads_pop, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_barriers, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_pool_is_bounded, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_out_of_memory, fixture_open, fixture_close),
    };
    return MST_RUN_TESTS(tests);
}
