/* unit/store/test_store.c - every call of every store: in the process, in a file, behind a server,
 * with and without prefixes; from several threads; and with allocations that fail. */
#include "unit/store/store_suite.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"

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
    mst_server_options_init(&options, sizeof options);
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
    (void)suite_on_wait_teardown(state); /* returns 0 */
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

static void test_values(void **state)
{
    on_each(state, suite_values);
}

static void test_numbers(void **state)
{
    on_each(state, suite_numbers);
}

static void test_compare_and_set(void **state)
{
    on_each(state, suite_compare_and_set);
}

static void test_several_keys(void **state)
{
    on_each(state, suite_several_keys);
}

static void test_timeouts(void **state)
{
    on_each(state, suite_timeouts);
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
        assert_bytes_str(mst_bytes_of(value.data, value.size), "one");
        mst_buffer_free(&value);
        assert_ok(mst_store_queue_pop(store, STR("q"), false, PLENTY_MS, &value, &err));
        assert_int_equal(value.size, 0);
        mst_buffer_free(&value);
        assert_fails(mst_store_queue_pop(store, STR("q"), true, SHORT_MS, &value, &err),
                     MST_ETIMEOUT, "");
        /* A key of that name satisfies the wait, but is not an item. */
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

static void test_prefixes(void **state)
{
    (void)state;
    suite_prefixes("hash:");
}

/* As many keys as one call may have, and one more. */
static void test_most_keys(void **state)
{
    (void)state;
    const size_t count = MST_ITEMS_MAX;
    struct mst_store *store = open_store("hash:");
    struct mst_bytes *keys = calloc(count + 1, sizeof *keys);
    bool exist = false;
    assert_non_null(keys);
    for (size_t i = 0; i <= count; i++) {
        keys[i] = STR("k");
    }
    assert_ok(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err));
    assert_ok(mst_store_check(store, keys, count, PLENTY_MS, &exist, &err));
    assert_true(exist);
    assert_fails(mst_store_check(store, keys, count + 1, PLENTY_MS, &exist, &err), MST_ELIMIT,
                 "131073 keys");
    free(keys);
    mst_store_close(store);
}

static void test_limits(void **state)
{
    struct fixture *fixture = *state;
    suite_limits("hash:", false);
    suite_limits(fixture->tcp, true);
    suite_limits(fixture->file, false);
}

/* --- threads --- */

static void test_threads(void **state)
{
    on_each(state, suite_threads);
}

/* Every item goes to exactly one of the clients that wait for the queue. */
static void test_threads_pop(void **state)
{
    struct fixture *fixture = *state;
    const char *urls[] = {"hash:", fixture->tcp};
    for (size_t u = 0; u < 2; u++) {
        struct mst_store *store = open_store(urls[u]);
        struct suite_waiter waiters[4];
        for (size_t i = 0; i < 4; i++) {
            waiters[i] = (struct suite_waiter){.store = store, .key = "q", .is_pop = true};
            assert_int_equal(
                pthread_create(&waiters[i].thread, NULL, suite_wait_for_value, &waiters[i]), 0);
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

static void test_barriers(void **state)
{
    on_each(state, suite_barriers);
    on_each(state, suite_barriers_again);
}

/* However many threads wait on a handle, the call that releases them goes through. */
static void test_any_number_waits(void **state)
{
    struct fixture *fixture = *state;
    enum { WAITERS = 2 * MST_POOL_MAX };
    struct mst_store *store = open_store(fixture->tcp);
    struct suite_waiter *waiters = calloc(WAITERS, sizeof *waiters);
    assert_non_null(waiters);
    for (size_t i = 0; i < WAITERS; i++) {
        waiters[i] = (struct suite_waiter){.store = store, .key = "pool"};
        assert_int_equal(
            pthread_create(&waiters[i].thread, NULL, suite_wait_for_value, &waiters[i]), 0);
    }
    struct mst_store_stats stats = {.size = sizeof stats};
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    do {
        assert_true(mst__clock_ms() < deadline_ms);
        (void)poll(NULL, 0, 1);
        assert_int_equal(mst_store_get_stats(store, &stats), 0);
    } while (stats.connects < WAITERS);
    assert_string_equal(stats.dialect, "C");
    assert_string_equal(stats.peer, fixture->tcp);
    assert_ok(mst_store_set(store, STR("pool"), STR("x"), PLENTY_MS / 2, &err));
    for (size_t i = 0; i < WAITERS; i++) {
        assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
        assert_int_equal(waiters[i].rv, 0);
        assert_string_equal(waiters[i].got, "x");
    }
    mst_store_close(store);
    free(waiters);
}

/* --- handles --- */

static void test_interrupt(void **state)
{
    struct fixture *fixture = *state;
    on_each(state, suite_interrupt);
    on_each(state, suite_on_wait);
    on_each(state, suite_interrupt_in_order);
    on_each(state, suite_interrupt_barrier);
    const char *urls[] = {"hash:", fixture->tcp, fixture->unix_url};
    for (size_t i = 0; i < 3; i++) {
        struct mst_store *store = open_store(urls[i]);
        suite_interrupt_pop(store);
        mst_store_close(store);
    }
}

static void test_clone(void **state)
{
    on_each(state, suite_clone);
}

/* Each has connections of its own, and both speak of where they lead. */
static void test_clone_connects(void **state)
{
    struct fixture *fixture = *state;
    struct mst_store *store = open_store(fixture->tcp_prefix);
    struct mst_store *clone = NULL;
    assert_ok(mst_store_clone(store, &clone, &err));
    struct mst_store_stats stats;
    mst_store_stats_init(&stats, sizeof stats);
    assert_int_equal(mst_store_get_stats(clone, &stats), 0);
    assert_int_equal(stats.connects, 0);
    assert_ok(mst_store_set(clone, STR("k"), STR("v"), PLENTY_MS, &err));
    assert_int_equal(mst_store_get_stats(clone, &stats), 0);
    assert_int_equal(stats.connects, 1);
    assert_string_equal(mst_store_url(clone), fixture->tcp);
    assert_bytes_str(mst_store_key_prefix(clone), "p/q");
    mst_store_close(clone);
    mst_store_close(store);
    struct mst_store *file = open_store("file:///tmp/muster%20test%3F?prefix=");
    assert_string_equal(mst_store_url(file), "file:///tmp/muster%20test%3F");
    assert_non_null(mst_store_key_prefix(file).data);
    assert_int_equal(mst_store_key_prefix(file).size, 0);
    mst_store_close(file);
}

/* The store adds the slash before PyTorch's keys, unless it is told otherwise. */
static void test_bare_keys(void **state)
{
    struct fixture *fixture = *state;
    const char *urls[] = {fixture->tcp, fixture->file};
    for (size_t i = 0; i < 2; i++) {
        struct mst_store_options options;
        mst_store_options_init(&options, sizeof options);
        options.bare_keys = true;
        struct mst_store *raw = NULL;
        assert_ok(mst_store_open(urls[i], &options, PLENTY_MS, &raw, &err));
        struct mst_store *store = open_store(urls[i]);
        assert_ok(mst_store_set(store, STR("k"), STR("torch's"), PLENTY_MS, &err));
        assert_value(raw, "/k", STR("torch's"));
        assert_absent(raw, "k");
        assert_ok(mst_store_set(raw, STR("init/"), STR("2"), PLENTY_MS, &err));
        assert_absent(store, "init/");
        struct mst_keys keys = {0};
        assert_ok(mst_store_list(raw, PLENTY_MS, &keys, &err));
        assert_int_equal(keys.count, 2);
        mst_keys_free(&keys);
        mst_store_close(store);
        mst_store_close(raw);
    }
}

static void test_fork(void **state)
{
    on_each(state, suite_fork);
}

/* --- out of memory --- */

static void test_out_of_memory(void **state)
{
    struct fixture *fixture = *state;
    char file_prefix[160];
    (void)snprintf(file_prefix, sizeof file_prefix, "%s?prefix=oom", fixture->file);
    suite_out_of_memory("hash:", true, NULL);
    suite_out_of_memory("hash:?prefix=p", true, NULL);
    suite_out_of_memory(file_prefix, false, fixture->path);
    suite_out_of_memory(fixture->tcp_prefix, true, NULL);
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
        cmocka_unit_test(test_most_keys),
        cmocka_unit_test_setup_teardown(test_limits, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_threads, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_threads_pop, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_barriers, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_any_number_waits, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_interrupt, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_clone, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_clone_connects, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_bare_keys, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_fork, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_out_of_memory, fixture_open, fixture_close),
    };
    return MST_RUN_TESTS(tests);
}
