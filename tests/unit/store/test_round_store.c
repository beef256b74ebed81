/* unit/store/test_round_store.c - the stores of a node's rounds at the server that is its
 * authority: all operations, and that they do not disturb the node. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/limits.h"
#include "handler/hosted.h"
#include "net/job_client.h"
#include "unit/store/store_suite.h"
#include "wire/wire.h"

#define CALM "last_call_timeout=50ms,is_host=0,join_timeout=20"

/* As a store asks for all that it is allowed to. */
#define VALUE_SIZE MST_VALUE_SIZE_DEFAULT

#define FDS_MAX 256 /* more than this process has */

/* --- fixture: a server --- */

struct fixture {
    struct mst__hosted *hosted;
    int held_fd; /* keeps its port while no server has it */
    struct mst__endpoint endpoint;
    char text[64];
    char url[MST_HOSTED_URL_SIZE];
};

static void server_start(struct fixture *f)
{
    struct mst_log log = {0};
    assert_ok(mst__hosted_start(&f->endpoint, &log, &f->hosted, &err));
}

static void server_stop(struct fixture *f)
{
    mst__hosted_stop(f->hosted);
    f->hosted = NULL;
}

static int fixture_open(void **state)
{
    static struct fixture f;
    f = (struct fixture){.endpoint = {.host = "127.0.0.1"}};
    f.endpoint.port = hold_port(&f.held_fd);
    server_start(&f);
    (void)snprintf(f.text, sizeof f.text, "127.0.0.1:%u", (unsigned)f.endpoint.port);
    (void)mst__hosted_url(f.hosted, f.url);
    *state = &f;
    return 0;
}

static int fixture_close(void **state)
{
    struct fixture *f = *state;
    server_stop(f);
    assert_int_equal(close(f->held_fd), 0);
    return 0;
}

/* How many connections to the server this process has. */
static size_t count_connections(const struct fixture *f)
{
    size_t count = 0;
    for (int fd = 0; fd < FDS_MAX; fd++) {
        struct sockaddr_in peer;
        struct tcp_info info;
        socklen_t peer_size = sizeof peer;
        socklen_t info_size = sizeof info;
        if (getpeername(fd, (struct sockaddr *)&peer, &peer_size) == 0 &&
            peer.sin_family == AF_INET && ntohs(peer.sin_port) == f->endpoint.port &&
            getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &info_size) == 0) {
            count += info.tcpi_state == TCP_ESTABLISHED;
        }
    }
    return count;
}

static void await_connections(const struct fixture *f, size_t count)
{
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (count_connections(f) != count) {
        assert_true(mst__clock_ms() < deadline_ms);
        (void)poll(NULL, 0, 1);
    }
}

/* --- a node --- */

struct node {
    struct mst_handler *handler;
    struct mst_rendezvous got;
    atomic_int cuts;        /* how often it has lost its connection */
    const char *noted_name; /* the event at which it writes this into the store of its round */
    atomic_int noted_rv;
};

static void on_event(void *arg, const struct mst_event *event)
{
    struct node *node = arg;
    if (strcmp(event->name, "disconnected") == 0) {
        atomic_fetch_add(&node->cuts, 1);
    }
    if (node->noted_name != NULL && strcmp(event->name, node->noted_name) == 0) {
        atomic_store(&node->noted_rv, mst_store_set(node->got.store, STR("noted"), STR(event->name),
                                                    PLENTY_MS, NULL));
    }
}

static void node_next(struct node *node)
{
    mst_store_close(node->got.store);
    node->got = (struct mst_rendezvous){.size = sizeof node->got};
    assert_ok(mst_handler_next(node->handler, -1, &node->got, &err));
}

/* A round of one. */
static void node_open(struct node *node, const struct fixture *f, const char *options)
{
    struct mst_params *params = NULL;
    *node = (struct node){.handler = NULL};
    assert_ok(unit_params("muster", f->text, "job", 1, 1, NULL, &params, &err));
    assert_ok(mst_params_parse(params, CALM, &err));
    assert_ok(mst_params_parse(params, options, &err));
    mst_params_on_event(params, on_event, node);
    assert_ok(mst_handler_new(params, &node->handler, &err));
    mst_params_free(params);
    node_next(node);
}

static void node_close(struct node *node)
{
    mst_store_close(node->got.store);
    mst_handler_free(node->handler);
}

static uint64_t connects(const struct node *node)
{
    struct mst_store_stats stats = {.size = sizeof stats};
    assert_int_equal(mst_store_get_stats(node->got.store, &stats), 0);
    return stats.connects;
}

static void assert_undisturbed(const struct node *node)
{
    struct mst_changes changes = {.size = sizeof changes};
    assert_fails(mst_handler_poll(node->handler, 0, &changes, &err), MST_ETIMEOUT, "");
    assert_int_equal(atomic_load(&node->cuts), 0);
}

/* A value in which a piece at a wrong place would be seen. */
static struct mst_bytes make_value(size_t size)
{
    uint8_t *value = malloc(size);
    assert_non_null(value);
    uint32_t state = 1;
    for (size_t i = 0; i < size; i++) {
        state = state * 1664525 + 1013904223;
        value[i] = (uint8_t)(state >> 24);
    }
    return mst_bytes_of(value, size);
}

/* A thread that waits for the value of a key. */
static void waiter_start(struct suite_waiter *waiter, struct mst_store *store, const char *key)
{
    *waiter = (struct suite_waiter){.store = store, .key = key};
    assert_int_equal(pthread_create(&waiter->thread, NULL, suite_wait_for_value, waiter), 0);
}

static void waiter_join(struct suite_waiter *waiter, const char *wanted)
{
    assert_int_equal(pthread_join(waiter->thread, NULL), 0);
    assert_int_equal(waiter->rv, 0);
    assert_string_equal(waiter->got, wanted);
}

/* --- operations --- */

static void run_suite(const struct fixture *f, void (*suite)(struct mst_store *))
{
    struct node node;
    node_open(&node, f, "keep_alive_interval=60");
    bool existed;
    assert_ok(mst_store_delete(node.got.store, STR("MASTER_ADDR"), PLENTY_MS, &existed, &err));
    assert_ok(mst_store_delete(node.got.store, STR("MASTER_PORT"), PLENTY_MS, &existed, &err));
    suite(node.got.store);
    if (suite != suite_numbers) { /* in which a request is refused, which ends a connection */
        assert_int_equal(connects(&node), 1);
    }
    await_connections(f, 2); /* the node's, and one for its stores */
    assert_undisturbed(&node);
    node_close(&node);
}

static void values(void **state)
{
    run_suite(*state, suite_values);
}

static void numbers(void **state)
{
    run_suite(*state, suite_numbers);
}

static void compare_and_set(void **state)
{
    run_suite(*state, suite_compare_and_set);
}

static void several_keys(void **state)
{
    run_suite(*state, suite_several_keys);
}

static void timeouts(void **state)
{
    run_suite(*state, suite_timeouts);
}

static void suite_queues(struct mst_store *store)
{
    int64_t number = -1;
    bool existed = false;
    struct mst_buffer value = {0};
    assert_ok(mst_store_queue_push(store, STR("q"), STR("one"), PLENTY_MS, &err));
    assert_ok(mst_store_queue_push(store, STR("q"), STR("two"), PLENTY_MS, &err));
    assert_ok(mst_store_queue_len(store, STR("q"), PLENTY_MS, &number, &err));
    assert_int_equal(number, 2);
    assert_ok(mst_store_queue_pop(store, STR("q"), true, PLENTY_MS, &value, &err));
    assert_bytes_str(mst_bytes_of(value.data, value.size), "one");
    mst_buffer_free(&value);
    assert_ok(mst_store_append(store, STR("key"), STR("a"), PLENTY_MS, &err));
    assert_ok(mst_store_append(store, STR("key"), STR("b"), PLENTY_MS, &err));
    assert_value(store, "key", STR("ab"));
    struct mst_keys keys = {0};
    assert_ok(mst_store_list(store, PLENTY_MS, &keys, &err));
    assert_int_equal(keys.count, 1);
    mst_keys_free(&keys);
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &number, &err));
    assert_true(number >= 1);
    assert_ok(mst_store_barrier(store, STR("bar"), 1, PLENTY_MS, &err));
    assert_ok(mst_store_delete(store, STR("key"), PLENTY_MS, &existed, &err));
    assert_true(existed);
    assert_absent(store, "key");
}

static void queues_and_the_rest(void **state)
{
    run_suite(*state, suite_queues);
}

static void several_threads(void **state)
{
    struct fixture *f = *state;
    struct node node;
    node_open(&node, f, "keep_alive_interval=60");
    suite_threads(node.got.store);
    suite_barriers(node.got.store);
    assert_undisturbed(&node);
    node_close(&node);
}

/* A waiting thread keeps its connection; another thread gets another one. */
static void one_waits_while_another_sets(void **state)
{
    struct fixture *f = *state;
    struct node node;
    node_open(&node, f, "keep_alive_interval=60");
    struct suite_waiter waiter;
    waiter_start(&waiter, node.got.store, "key");
    assert_ok(mst_store_set(node.got.store, STR("key"), STR("value"), PLENTY_MS, &err));
    waiter_join(&waiter, "value");
    assert_undisturbed(&node);
    node_close(&node);
}

static void large_values(void **state)
{
    struct fixture *f = *state;
    struct node node;
    node_open(&node, f, "keep_alive_interval=60");
    struct mst_bytes value = make_value(VALUE_SIZE);
    static const size_t sizes[] = {1, 65535, 65536, 65537, 1000000, VALUE_SIZE};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct mst_bytes part = mst_bytes_of(value.data, sizes[i]);
        assert_ok(mst_store_set(node.got.store, STR("key"), part, PLENTY_MS, &err));
        assert_value(node.got.store, "key", part);
    }
    struct mst_bytes keys[] = {STR("a"), STR("b"), STR("c")};
    struct mst_bytes values[] = {value, value, value};
    assert_ok(mst_store_multi_set(node.got.store, keys, values, 3, PLENTY_MS, &err));
    struct mst_buffer got[3] = {{0}};
    assert_ok(mst_store_multi_get(node.got.store, keys, 3, PLENTY_MS, got, &err));
    for (size_t i = 0; i < 3; i++) {
        assert_bytes(mst_bytes_of(got[i].data, got[i].size), value);
        mst_buffer_free(&got[i]);
    }
    assert_int_equal(connects(&node), 1);
    assert_undisturbed(&node);
    free((void *)(uintptr_t)value.data);
    node_close(&node);
}

/* The store outlives rounds, and its connection does. */
static void round_after_round(void **state)
{
    struct fixture *f = *state;
    struct node node;
    node_open(&node, f, "keep_alive_interval=60");
    struct mst_store *before = NULL;
    for (int i = 0; i < 5; i++) {
        assert_value(node.got.store, "MASTER_ADDR", STR("127.0.0.1"));
        assert_absent(node.got.store, "key");
        assert_ok(mst_store_set(node.got.store, STR("key"), STR("value"), PLENTY_MS, &err));
        if (before != NULL) {
            assert_value(before, "key", STR("value"));
            mst_store_close(before);
        }
        before = node.got.store;
        node.got.store = NULL;
        node_next(&node);
    }
    assert_int_equal(connects(&node), 1);
    mst_store_close(before);
    before = node.got.store;
    node.got.store = NULL;
    assert_int_equal(count_connections(f), 2);
    struct suite_waiter waiter;
    waiter_start(&waiter, before, "late");
    node_next(&node);
    assert_value(node.got.store, "MASTER_ADDR", STR("127.0.0.1"));
    assert_ok(mst_store_set(before, STR("late"), STR("value"), PLENTY_MS, &err));
    waiter_join(&waiter, "value");
    assert_undisturbed(&node);
    mst_store_close(before);
    node_close(&node);
}

/* The owner of the node reports events. A callback may use the store. */
static void from_an_event(void **state)
{
    struct fixture *f = *state;
    struct node node;
    node_open(&node, f, "keep_alive_interval=60");
    atomic_store(&node.noted_rv, 1);
    node.noted_name = "closed";
    const struct mst__job_message question = {.type = MST_JOB_CLOSE, .u.close.run_id = STR("job")};
    struct mst__job_client *client = NULL;
    struct mst__job_message answer;
    assert_ok(mst__job_client_ask(&f->endpoint, &question, mst__until_in(PLENTY_MS), &client,
                                  &answer, &err));
    mst__job_client_close(client);
    struct mst_changes changes = {.size = sizeof changes};
    assert_ok(mst_handler_poll(node.handler, PLENTY_MS, &changes, &err)); /* called after the
                                                                           * event */
    assert_true(changes.closed);
    assert_int_equal(atomic_load(&node.noted_rv), 0);
    assert_value(node.got.store, "noted", STR("closed"));
    node_close(&node);
}

/* --- what goes wrong --- */

/* The server has no word for a request that it does not like. It costs a connection of the store,
 * and not that of the node. */
static void refused(void **state)
{
    struct fixture *f = *state;
    struct node node;
    node_open(&node, f, "keep_alive_interval=60");
    assert_ok(mst_store_set(node.got.store, STR("key"), STR("no number"), PLENTY_MS, &err));
    for (int i = 0; i < 3; i++) {
        int64_t sum;
        assert_fails(mst_store_add(node.got.store, STR("key"), 1, PLENTY_MS, &sum, &err), MST_ETYPE,
                     "not a number");
        assert_value(node.got.store, "key", STR("no number"));
    }
    await_connections(f, 2);
    uint64_t before = connects(&node);
    assert_value(node.got.store, "key", STR("no number"));
    assert_int_equal(connects(&node), before);
    assert_undisturbed(&node);
    node_close(&node);
}

static void assert_gone(struct mst_store *store)
{
    static const char why[] = "the server restarted: the keys of this round are gone";
    int64_t sum = 0;
    assert_fails(mst_store_add(store, STR("ticket"), 1, PLENTY_MS, &sum, &err), MST_ECLOSED, why);
    assert_fails(mst_store_set(store, STR("key"), STR("value"), PLENTY_MS, &err), MST_ECLOSED, why);
    assert_fails(mst_store_barrier(store, STR("barrier"), 1, PLENTY_MS, &err), MST_ECLOSED, why);
}

/* The keys of a round end with its server. Each call says so, also those that were waiting, and
 * those of views and clones. */
static void server_restarts(void **state)
{
    struct fixture *f = *state;
    struct node node;
    node_open(&node, f, "keep_alive_interval=60");
    struct mst_store *view = NULL;
    struct mst_store *clone = NULL;
    struct suite_waiter waiter;
    int64_t sum = 0;
    assert_ok(mst_store_add(node.got.store, STR("ticket"), 5, PLENTY_MS, &sum, &err));
    waiter_start(&waiter, node.got.store, "key");
    server_stop(f);
    int64_t began_ms = mst__clock_ms();
    struct mst_buffer value = {0};
    int rv = mst_store_try_get(node.got.store, STR("other"), 200, &value, &err);
    assert_true(rv == MST_ECONN || rv == MST_ETIMEOUT);
    assert_true(mst__clock_ms() - began_ms < PLENTY_MS / 2);
    server_start(f);
    assert_int_equal(pthread_join(waiter.thread, NULL), 0);
    assert_int_equal(waiter.rv, MST_ECLOSED);
    assert_ok(mst_store_prefix(node.got.store, STR("p"), &view, &err));
    assert_ok(mst_store_clone(node.got.store, &clone, &err));
    assert_gone(node.got.store);
    assert_gone(view);
    assert_gone(clone);
    mst_store_close(view);
    mst_store_close(clone);
    /* The refused calls have stored nothing, and keep their connection. */
    struct mst_store *all = open_store(f->url);
    assert_ok(mst_store_num_keys(all, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, 0);
    mst_store_close(all);
    uint64_t before = connects(&node);
    assert_gone(node.got.store);
    assert_int_equal(connects(&node), before);
    /* The next round has a store again. */
    node_next(&node);
    assert_ok(mst_store_add(node.got.store, STR("ticket"), 1, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, 1);
    node_close(&node);
}

static void after_the_handler(void **state)
{
    struct fixture *f = *state;
    struct node node;
    node_open(&node, f, "keep_alive_interval=60");
    assert_ok(mst_store_set(node.got.store, STR("key"), STR("value"), PLENTY_MS, &err));
    mst_handler_free(node.handler);
    node.handler = NULL;
    assert_value(node.got.store, "key", STR("value"));
    assert_int_equal(connects(&node), 1);
    await_connections(f, 1);
    node_close(&node);
}

static void after_leaving(void **state)
{
    struct fixture *f = *state;
    struct node node;
    node_open(&node, f, "keep_alive_interval=60");
    assert_ok(mst_store_set(node.got.store, STR("key"), STR("value"), PLENTY_MS, &err));
    assert_ok(mst_handler_leave(node.handler, &err));
    assert_value(node.got.store, "key", STR("value"));
    assert_int_equal(connects(&node), 1);
    node_close(&node);
}

/* How long ago the server has heard of the only node. */
static int64_t ask_silence_us(const struct fixture *f)
{
    const struct mst__job_message question = {.type = MST_JOB_STATUS,
                                              .u.question.run_id = STR("job")};
    struct mst__job_client *client = NULL;
    struct mst__job_message answer;
    assert_ok(mst__job_client_ask(&f->endpoint, &question, mst__until_in(PLENTY_MS), &client,
                                  &answer, &err));
    assert_int_equal(answer.type, MST_JOB_STATUS_TOLD);
    struct mst_bytes members = answer.u.status.members;
    struct mst__job_member member;
    assert_true(mst__job_member_next(&members, &member));
    int64_t silence_us = member.silent_us;
    mst__job_client_close(client);
    return silence_us;
}

/* The server counts a silent node as lost. Do @what again and again until the server has heard
 * the node five times: each time its silence is shorter than before. */
static void assert_heard(struct fixture *f,
                         const struct node *node,
                         void (*what)(const struct node *node, struct mst_bytes value),
                         struct mst_bytes value)
{
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    int64_t before_us = 0;
    for (int heard = 0; heard < 5;) {
        assert_true(mst__clock_ms() < deadline_ms);
        int64_t silence_us = ask_silence_us(f);
        heard += silence_us < before_us ? 1 : 0;
        before_us = silence_us;
        what(node, value);
    }
    assert_undisturbed(node);
}

static void do_nothing(const struct node *node, struct mst_bytes value)
{
    (void)node;
    (void)value;
    (void)poll(NULL, 0, 1);
}

static void heard_while_it_waits(void **state)
{
    struct fixture *f = *state;
    struct node node;
    struct suite_waiter waiter;
    node_open(&node, f, "keep_alive_interval=100ms,keep_alive_max_attempt=400");
    waiter_start(&waiter, node.got.store, "key");
    assert_heard(f, &node, do_nothing, STR(""));
    assert_ok(mst_store_set(node.got.store, STR("key"), STR("value"), PLENTY_MS, &err));
    waiter_join(&waiter, "value");
    node_close(&node);
}

static void get_value(const struct node *node, struct mst_bytes value)
{
    assert_value(node->got.store, "key", value);
}

/* The same while its store is never at rest. */
static void heard_while_it_is_busy(void **state)
{
    struct fixture *f = *state;
    struct node node;
    node_open(&node, f, "keep_alive_interval=100ms,keep_alive_max_attempt=400");
    struct mst_bytes value = make_value(VALUE_SIZE);
    assert_ok(mst_store_set(node.got.store, STR("key"), value, PLENTY_MS, &err));
    assert_heard(f, &node, get_value, value);
    free((void *)(uintptr_t)value.data);
    node_close(&node);
}

#define WITH_SERVER(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(values),
        WITH_SERVER(numbers),
        WITH_SERVER(compare_and_set),
        WITH_SERVER(several_keys),
        WITH_SERVER(timeouts),
        WITH_SERVER(queues_and_the_rest),
        WITH_SERVER(several_threads),
        WITH_SERVER(one_waits_while_another_sets),
        WITH_SERVER(large_values),
        WITH_SERVER(round_after_round),
        WITH_SERVER(from_an_event),
        WITH_SERVER(refused),
        WITH_SERVER(server_restarts),
        WITH_SERVER(after_the_handler),
        WITH_SERVER(after_leaving),
        WITH_SERVER(heard_while_it_waits),
        WITH_SERVER(heard_while_it_is_busy),
    };
    return MST_RUN_TESTS(tests);
}
