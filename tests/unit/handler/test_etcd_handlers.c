/* unit/handler/test_etcd_handlers.c - the handlers `etcd` and `etcd-v2` at a real etcd: cases
 * that the command line does not show. */
#include "unit/etcd_unit.h"
#include "unit/round_suite.h"

#include <arpa/inet.h>
#include <muster/legacy.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "record/etcd_v2.h"
#include "unit/store/tap_unit.h"

static struct etcd_unit etcd;
static char endpoint[32];

static const char *const backends[] = {"etcd-v2", "etcd"};
#define EACH_BACKEND(at) for (size_t at = 0; at < 2; at++)

static void start_etcd(void)
{
    static const char *const arguments[] = {"--enable-v2", NULL};
    if (etcd_unit_is_there()) {
        etcd_unit_start(&etcd, false, arguments);
        (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", etcd.port);
    }
}

static void need_etcd(void)
{
    if (!etcd_unit_is_there()) {
        MST_SKIP("there is no etcd in $PATH");
    }
}

static struct mst_handler *new_handler(const char *backend,
                                       const char *run_id,
                                       int64_t min,
                                       int64_t max,
                                       const char *options)
{
    struct mst_params *params = NULL;
    struct mst_handler *handler = NULL;
    char id[64];
    (void)snprintf(id, sizeof id, "%s-%s", run_id, backend);
    assert_ok(unit_params(backend, endpoint, id, min, max, "127.0.0.1", &params, &err));
    assert_ok(mst_params_parse(params, options, &err));
    assert_ok(mst_handler_new(params, &handler, &err));
    mst_params_free(params);
    return handler;
}

/* One node that joins in a thread of its own. */
static void meet(struct node *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        node_start(&nodes[i]);
    }
    for (size_t i = 0; i < count; i++) {
        if (node_join(&nodes[i]) != 0) {
            fail_msg("%s", nodes[i].err.msg);
        }
        assert_int_equal(nodes[i].got.world_size, count);
    }
}

static void part(struct node *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mst_store_close(nodes[i].got.store);
        mst_handler_free(nodes[i].handler);
    }
}

/* Whether a server listens there. */
static bool is_port_taken(int port)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    bool is_taken = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    assert_int_equal(close(fd), 0);
    return is_taken;
}

/* --- tests --- */

static void two_meet(void **state)
{
    (void)state;
    need_etcd();
    EACH_BACKEND(at)
    {
        struct node nodes[2] = {{.rv = 0}, {.rv = 0}};
        for (size_t i = 0; i < 2; i++) {
            nodes[i].handler = new_handler(backends[at], "two", 2, 2, "");
            assert_string_equal(mst_handler_backend(nodes[i].handler), backends[at]);
        }
        bool is_closed = true;
        assert_ok(mst_handler_is_closed(nodes[0].handler, &is_closed, &err));
        assert_false(is_closed);
        meet(nodes, 2);
        assert_int_equal(nodes[0].got.rank + nodes[1].got.rank, 1);
        assert_string_equal(nodes[0].got.master_addr, "127.0.0.1");
        assert_string_equal(nodes[0].got.master_addr, nodes[1].got.master_addr);
        assert_int_equal(nodes[0].got.master_port, nodes[1].got.master_port);
        /* As with torch's handlers: only the newer one's agents serve the workers' store. */
        bool is_shared = strcmp(backends[at], "etcd-v2") == 0;
        for (size_t i = 0; i < 2; i++) {
            assert_int_equal(mst_handler_use_agent_store(nodes[i].handler), is_shared);
        }
        assert_int_equal(is_port_taken(nodes[0].got.master_port), is_shared);
        /* The store is one, and the round's own. */
        assert_ok(mst_store_set(nodes[0].got.store, STR("k"), STR("v"), PLENTY_MS, &err));
        assert_value(nodes[1].got.store, "k", STR("v"));
        int64_t waiting = -1;
        assert_ok(mst_handler_nodes_waiting(nodes[1].handler, &waiting, &err));
        assert_int_equal(waiting, 0);
        /* Closing reaches the other one by itself. */
        assert_ok(mst_handler_set_closed(nodes[0].handler, &err));
        struct mst_changes changes = {.size = sizeof changes};
        assert_ok(mst_handler_poll(nodes[1].handler, PLENTY_MS, &changes, &err));
        assert_true(changes.closed);
        assert_ok(mst_handler_is_closed(nodes[1].handler, &is_closed, &err));
        assert_true(is_closed);
        struct mst_rendezvous outcome = {.size = sizeof outcome};
        assert_fails(mst_handler_next(nodes[1].handler, -1, &outcome, &err), MST_ECLOSED, "closed");
        part(nodes, 2);
    }
}

/* Members go into the next round, with a newcomer, and nothing has to expire for that. */
static void again_with_one_more(void **state)
{
    (void)state;
    need_etcd();
    EACH_BACKEND(at)
    {
        struct node nodes[3] = {{.rv = 0}, {.rv = 0}, {.rv = 0}};
        for (size_t i = 0; i < 3; i++) {
            nodes[i].handler = new_handler(backends[at], "more", 2, 3, "last_call_timeout=200ms");
        }
        meet(nodes, 2);
        int64_t first = nodes[0].got.round;
        node_start(&nodes[2]);
        int64_t begin_ms = mst__clock_ms();
        for (size_t i = 0; i < 2; i++) {
            assert_true(fd_is_readable(nodes[i].handler, PLENTY_MS));
            struct mst_changes changes = {.size = sizeof changes};
            assert_ok(mst_handler_poll(nodes[i].handler, 0, &changes, &err));
            assert_int_equal(changes.nodes_waiting, 1);
            assert_int_equal(changes.participants_lost, 0);
            mst_store_close(nodes[i].got.store);
        }
        node_start(&nodes[0]);
        node_start(&nodes[1]);
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(node_join(&nodes[i]), 0);
            assert_int_equal(nodes[i].got.world_size, 3);
            assert_true(nodes[i].got.round > first);
        }
        assert_true(mst__clock_ms() - begin_ms < 5000);
        /* The names are those of this round. */
        assert_ok(mst_handler_leave(nodes[2].handler, &err));
        assert_lost(nodes[0].handler, mst_handler_node(nodes[2].handler), false);
        part(nodes, 3);
    }
}

static void leaving(void **state)
{
    (void)state;
    need_etcd();
    EACH_BACKEND(at)
    {
        struct node nodes[2] = {{.rv = 0}, {.rv = 0}};
        for (size_t i = 0; i < 2; i++) {
            nodes[i].handler = new_handler(backends[at], "leave", 2, 2, "");
        }
        meet(nodes, 2);
        assert_ok(mst_handler_leave(nodes[0].handler, &err));
        assert_lost(nodes[1].handler, mst_handler_node(nodes[0].handler), false);
        assert_false(glance(nodes[1].handler).expelled);
        assert_ok(mst_handler_leave(nodes[0].handler, &err)); /* not a member: fine */
        part(nodes, 2);
    }
}

static void cancelling(void **state)
{
    (void)state;
    need_etcd();
    EACH_BACKEND(at)
    {
        struct node node = {.handler = new_handler(backends[at], "cancel", 2, 2, "")};
        struct node others[2] = {{.rv = 0}, {.rv = 0}};
        node_start(&node);
        mst_handler_cancel(node.handler);
        assert_int_equal(node_join(&node), MST_ECANCELED);
        mst_handler_free(node.handler);
        /* Nothing of it is left in the way of others. */
        int64_t begin_ms = mst__clock_ms();
        for (size_t i = 0; i < 2; i++) {
            others[i].handler = new_handler(backends[at], "cancel", 2, 2, "");
        }
        meet(others, 2);
        assert_true(mst__clock_ms() - begin_ms < 8000);
        part(others, 2);
    }
}

static void rounds(void **state)
{
    (void)state;
    need_etcd();
    static const char *const all[] = {"etcd-v2", "etcd", "etcd-v3"};
    for (size_t at = 0; at < 3; at++) {
        const char *options = at == 2 ? "last_call_timeout=100ms" : "";
        round_suite(new_handler(all[at], "rounds", 2, 2, options),
                    new_handler(all[at], "rounds", 2, 2, options));
    }
}

/* An etcd that is silent until the lease of a node has expired has nothing to be told. */
static void leaving_without_a_lease(void **state)
{
    (void)state;
    need_etcd();
    struct node node = {.handler = new_handler("etcd-v3", "silent", 1, 1,
                                               "last_call_timeout=1ms,keep_alive_interval=1,"
                                               "keep_alive_max_attempt=2,close_timeout=60")};
    meet(&node, 1);
    etcd_unit_pause(&etcd);
    mst_notice_free(take_notice(node.handler, MST_NOTICE_UNREACHABLE));
    int64_t begin_ms = mst__clock_ms();
    int rv = mst_handler_leave(node.handler, &err);
    int64_t took_ms = mst__clock_ms() - begin_ms;
    assert_int_equal(kill(etcd.pid, SIGCONT), 0);
    assert_true(rv != 0);
    assert_in_range(took_ms, 0, 30000);
    part(&node, 1);
}

static void timing_out(void **state)
{
    (void)state;
    need_etcd();
    EACH_BACKEND(at)
    {
        struct node node = {.handler =
                                new_handler(backends[at], "late", 2, 3,
                                            at == 0 ? "join_timeout=1500ms" : "timeout=1500ms")};
        struct mst_rendezvous outcome = {.size = sizeof outcome};
        assert_fails(mst_handler_next(node.handler, -1, &outcome, &err), MST_ETIMEOUT,
                     "at least 2");
        mst_handler_free(node.handler);
    }
}

/* The name of an etcd may be known later: it is asked for as long as a node may take to join. */
static void unknown_name(void **state)
{
    (void)state;
    need_etcd();
    static const char *const all[] = {"etcd-v2", "etcd", "etcd-v3"};
    for (size_t at = 0; at < 3; at++) {
        struct mst_params *params = NULL;
        struct mst_handler *handler = NULL;
        struct mst_rendezvous outcome = {.size = sizeof outcome};
        assert_ok(
            unit_params(all[at], "nowhere.invalid", "unknown", 1, 1, "127.0.0.1", &params, &err));
        assert_ok(mst_handler_new(params, &handler, &err));
        mst_params_free(params);
        int64_t begin_ms = mst__clock_ms();
        int rv = mst_handler_next(handler, 1000, &outcome, &err);
        assert_in_range(mst__clock_ms() - begin_ms, 600, PLENTY_MS);
        assert_true(rv == MST_ERESOLVE || rv == MST_ECONN || rv == MST_ETIMEOUT);
        assert_non_null(strstr(err.msg, "nowhere.invalid"));
        mst_handler_free(handler);
    }
}

struct getter {
    struct mst_handler *handler;
    const char *name;
    int64_t timeout_ms;
    struct mst_buffer json;
    int rv;
};

static void *get_extra(void *arg)
{
    struct getter *getter = arg;
    getter->rv = mst_handler_get_extra(getter->handler, getter->name, getter->timeout_ms,
                                       &getter->json, NULL);
    return NULL;
}

/* What is set while a node waits for it is found. */
static void extra_data_comes_late(struct mst_handler *sets, struct mst_handler *gets)
{
    struct getter getter = {.handler = gets, .name = "late", .timeout_ms = PLENTY_MS};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, get_extra, &getter), 0);
    (void)poll(NULL, 0, 100); /* it waits by now; else it finds the data at once */
    assert_ok(mst_handler_set_extra(sets, "late", "4", PLENTY_MS, &err));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(getter.rv, 0);
    assert_string_equal((const char *)getter.json.data, "4");
    mst_buffer_free(&getter.json);
}

/* Who waits for data goes on when a round that was begun meanwhile is withdrawn. */
static void extra_data_is_awaited(struct mst_handler *gets)
{
    struct getter getter = {.handler = gets, .name = "never", .timeout_ms = 1000};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, get_extra, &getter), 0);
    (void)poll(NULL, 0, 100); /* it waits by now */
    assert_ok(mst_handler_begin(gets, -1, &err));
    assert_ok(mst_handler_abandon(gets, &err));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(getter.rv, MST_ETIMEOUT);
}

#define EXTRAS 10

static pthread_barrier_t extras_barrier; /* of two */

static void *set_extras(void *arg)
{
    struct getter *setter = arg;
    for (int i = 0; i < EXTRAS; i++) {
        char name[48];
        (void)snprintf(name, sizeof name, "%p.%d", arg, i);
        (void)pthread_barrier_wait(&extras_barrier); /* the other one goes on if it has failed */
        int rv = mst_handler_set_extra(setter->handler, name, "5", PLENTY_MS, NULL);
        setter->rv = setter->rv == 0 ? rv : setter->rv;
    }
    return NULL;
}

/* Nodes that set data at the same moment write to the same key; nothing of it is lost. */
static void extra_data_of_two(const struct node *nodes)
{
    struct getter setters[2];
    pthread_t threads[2];
    assert_int_equal(pthread_barrier_init(&extras_barrier, NULL, 2), 0);
    for (size_t i = 0; i < 2; i++) {
        setters[i] = (struct getter){.handler = nodes[i].handler};
        assert_int_equal(pthread_create(&threads[i], NULL, set_extras, &setters[i]), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(setters[i].rv, 0);
    }
    assert_int_equal(pthread_barrier_destroy(&extras_barrier), 0);
    for (int i = 0; i < 2 * EXTRAS; i++) {
        char name[48];
        struct mst_buffer json = {0};
        (void)snprintf(name, sizeof name, "%p.%d", (void *)&setters[i % 2], i / 2);
        assert_ok(mst_handler_get_extra(nodes[0].handler, name, PLENTY_MS, &json, &err));
        mst_buffer_free(&json);
    }
}

static void extra_data(void **state)
{
    (void)state;
    need_etcd();
    struct node nodes[2] = {{.rv = 0}, {.rv = 0}};
    struct mst_buffer json = {0};
    for (size_t i = 0; i < 2; i++) {
        nodes[i].handler = new_handler("etcd", "extra", 2, 2, "");
    }
    assert_fails(mst_handler_set_extra(nodes[0].handler, "a", "1", PLENTY_MS, &err), MST_EINVAL,
                 "none is joined");
    meet(nodes, 2);
    extra_data_of_two(nodes);
    assert_fails(mst_handler_get_extra(nodes[1].handler, "a", 100, &json, &err), MST_ETIMEOUT,
                 "'a'");
    assert_fails(mst_handler_set_extra(nodes[0].handler, "a", "{", PLENTY_MS, &err), MST_EINVAL,
                 "'a'");
    assert_ok(mst_handler_set_extra(nodes[0].handler, "a", "[1, \"x\"]", PLENTY_MS, &err));
    assert_ok(mst_handler_set_extra(nodes[1].handler, "b", "null", PLENTY_MS, &err));
    assert_ok(mst_handler_set_extra(nodes[1].handler, "c", "2", PLENTY_MS, &err));
    assert_ok(mst_handler_set_extra(nodes[0].handler, "c", "3", PLENTY_MS, &err));
    static const char *const wanted[][2] = {{"a", "[1,\"x\"]"}, {"b", "null"}, {"c", "3"}};
    for (size_t i = 0; i < 3; i++) {
        assert_ok(mst_handler_get_extra(nodes[1].handler, wanted[i][0], PLENTY_MS, &json, &err));
        assert_string_equal((const char *)json.data, wanted[i][1]);
        mst_buffer_free(&json);
    }
    extra_data_comes_late(nodes[0].handler, nodes[1].handler);
    /* Who waits for the next round has left this one. */
    mst_store_close(nodes[0].got.store);
    nodes[0].got.store = NULL;
    node_start(&nodes[0]);
    assert_true(fd_is_readable(nodes[1].handler, PLENTY_MS));
    assert_fails(mst_handler_set_extra(nodes[0].handler, "a", "1", PLENTY_MS, &err), MST_EINVAL,
                 "none is joined");
    mst_handler_cancel(nodes[0].handler);
    assert_int_equal(node_join(&nodes[0]), MST_ECANCELED);
    extra_data_is_awaited(nodes[1].handler);
    part(nodes, 2);
    struct mst_handler *other = new_handler("etcd-v2", "extra", 2, 2, "");
    assert_fails(mst_handler_set_extra(other, "a", "1", PLENTY_MS, &err), MST_ENOTSUP, "etcd-v2");
    assert_fails(mst_handler_get_extra(other, "a", PLENTY_MS, &json, &err), MST_ENOTSUP,
                 "no extra data");
    mst_handler_free(other);
}

/* An etcd that is away for less than the TTL of the keys costs no node its membership. */
static void etcd_restarts(void **state)
{
    (void)state;
    need_etcd();
    struct node nodes[4] = {{.rv = 0}, {.rv = 0}, {.rv = 0}, {.rv = 0}};
    for (size_t i = 0; i < 4; i++) {
        nodes[i].handler = new_handler(backends[i / 2], "restart", 2, 2, "");
    }
    meet(nodes, 2);
    meet(nodes + 2, 2);
    etcd_unit_end(&etcd, SIGKILL);
    for (size_t i = 0; i < 4; i++) {
        assert_unreachable(nodes[i].handler, "");
    }
    etcd_unit_again(&etcd, true);
    for (size_t i = 0; i < 4; i++) {
        mst_notice_free(take_notice(nodes[i].handler, MST_NOTICE_REACHABLE));
        struct mst_changes changes = {.size = sizeof changes};
        assert_fails(mst_handler_poll(nodes[i].handler, 0, &changes, &err), MST_ETIMEOUT, "");
        assert_false(changes.expelled);
        assert_int_equal(changes.participants_lost, 0);
    }
    part(nodes, 4);
}

/* Put a key, as it is, of the store that the jobs of etcd-v2 share. */
static void put_key(struct mst_store *all, const char *key)
{
    assert_ok(mst_store_set(all, mst_bytes_str(key), STR("old"), PLENTY_MS, &err));
}

static uint64_t index_now(struct mst__v2 *v2)
{
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    assert_ok(mst__v2_get(v2, "/", false, true, mst__until_in(PLENTY_MS), &answer, &err));
    uint64_t index = answer.index;
    mst__v2_answer_close(&answer);
    return index;
}

/* The record of a run has expired, the keys of its rounds have not; the next run of the same id
 * counts its rounds anew and does not see them. */
static void run_id_used_again(void **state)
{
    (void)state;
    need_etcd();
    struct mst__endpoint at = {.host = "127.0.0.1", .port = (uint16_t)etcd.port};
    const struct mst__http_options options = {.endpoints = &at, .endpoint_count = 1};
    struct mst__v2 *v2 = NULL;
    assert_ok(mst__v2_new(&options, &v2, &err));
    char url[80];
    (void)snprintf(url, sizeof url, "etcd2://127.0.0.1:%d" MST_ETCD_V2_STORE, etcd.port);
    struct mst_store *all = open_store(url);
    static const char *const others[] = {
        "torch.rendezvous.again-etcd-v2",      "torch.rendezvous.again-etcd-v2.0",
        "torch.rendezvous.again-etcd-v2.x/k",  "torch.rendezvous.again-etcd-v2.1.0/k",
        "torch.rendezvous.again-etcd-v20.0/k", "torch.rendezvous.other.0/k"};
    for (size_t i = 0; i < 6; i++) {
        put_key(all, others[i]);
    }
    for (int run = 0; run < 2; run++) {
        struct node node = {.handler = new_handler("etcd-v2", "again", 1, 1, "")};
        for (int round = 0; round < 3; round++) {
            meet(&node, 1);
            assert_int_equal(node.got.round, round);
            assert_absent(node.got.store, "k");
            assert_ok(mst_store_set(node.got.store, STR("k"), STR("v"), PLENTY_MS, &err));
            mst_store_close(node.got.store);
            node.got.store = NULL;
        }
        put_key(all, "torch.rendezvous.again-etcd-v2.work/restarts");
        part(&node, 1);
        const struct mst__v2_write record = {.key = MST_ETCD_V2_RECORD "again-etcd-v2",
                                             .ttl_s = MST_V2_NO_TTL};
        struct mst__v2_answer answer;
        mst__v2_answer_init(&answer);
        assert_ok(mst__v2_delete(v2, &record, false, mst__until_in(PLENTY_MS), &answer, &err));
        assert_int_equal(answer.code, MST_V2_OK);
        mst__v2_answer_close(&answer);
    }
    struct node node = {.handler = new_handler("etcd-v2", "again", 1, 1, "")};
    meet(&node, 1);
    assert_absent(all, "torch.rendezvous.again-etcd-v2.work/restarts");
    part(&node, 1);
    for (size_t i = 0; i < 6; i++) {
        assert_value(all, others[i], STR("old"));
    }
    mst_store_close(all);
    mst__v2_free(v2);
}

/* Keys written after the read that found no record belong to another, faster node. */
static void quicker_ones_keep_their_keys(void **state)
{
    (void)state;
    need_etcd();
    struct mst__endpoint at = {.host = "127.0.0.1", .port = (uint16_t)etcd.port};
    const struct mst__http_options options = {.endpoints = &at, .endpoint_count = 1};
    const struct mst_log log = {0};
    struct mst__v2 *v2 = NULL;
    assert_ok(mst__v2_new(&options, &v2, &err));
    char url[80];
    (void)snprintf(url, sizeof url, "etcd2://127.0.0.1:%d" MST_ETCD_V2_STORE, etcd.port);
    struct mst_store *all = open_store(url);
    put_key(all, "torch.rendezvous.quick.0/a");
    put_key(all, "torch.rendezvous.quick.0/b");
    uint64_t index = index_now(v2);
    put_key(all, "torch.rendezvous.quick.0/b");
    put_key(all, "torch.rendezvous.quick.0/c");
    assert_ok(mst__etcd_v2_sweep(v2, "quick", index, mst__until_in(PLENTY_MS), &log, &err));
    assert_absent(all, "torch.rendezvous.quick.0/a");
    assert_value(all, "torch.rendezvous.quick.0/b", STR("old"));
    assert_value(all, "torch.rendezvous.quick.0/c", STR("old"));
    mst_store_close(all);
    mst__v2_free(v2);
}

static void cancel_handler(void *arg)
{
    mst_handler_cancel(arg);
    (void)poll(NULL, 0, 3 * SHORT_MS); /* let the call hear it; the outcome is the same if not */
}

/* The call that reports is cancelled before it is known whether the etcd has the report: it is sent
 * all the same. */
static void cancelled_report_is_sent(void **state)
{
    (void)state;
    need_etcd();
    struct mst_params *params = NULL;
    struct node node = {.rv = 0};
    struct tap tap;
    char place[32];
    tap_open(&tap, etcd.port);
    (void)snprintf(place, sizeof place, "127.0.0.1:%u", (unsigned)tap.port);
    assert_ok(unit_params("etcd-v3", place, "said", 1, 1, "127.0.0.1", &params, &err));
    assert_ok(mst_params_parse(params, "keep_alive_interval=60", &err));
    assert_ok(mst_handler_new(params, &node.handler, &err));
    mst_params_free(params);
    meet(&node, 1);
    tap_set_before(&tap, "/kv/txn", TAP_CUT, cancel_handler, node.handler);
    assert_fails(mst_handler_finish(node.handler, 0, "", &err), MST_ECANCELED, "");
    assert_true(tap_is_done(&tap));
    struct mst_changes changes = {.size = sizeof changes};
    assert_ok(mst_handler_poll(node.handler, PLENTY_MS, &changes, &err));
    assert_true(changes.closed);
    assert_int_equal(changes.outcome, MST_OUTCOME_FINISHED);
    part(&node, 1);
    tap_close(&tap);
}

static void pause_etcd(void *arg)
{
    (void)arg;
    etcd_unit_pause(&etcd);
}

/* A close whose answer was lost, at an etcd that says nothing from then on: it may have been done,
 * and the caller is told so. */
static void close_may_be_done(void **state)
{
    (void)state;
    need_etcd();
    struct mst_params *params = NULL;
    struct mst_handler *handler = NULL;
    struct tap tap;
    char place[32];
    tap_open(&tap, etcd.port);
    (void)snprintf(place, sizeof place, "127.0.0.1:%u", (unsigned)tap.port);
    assert_ok(unit_params("etcd-v3", place, "shut", 1, 1, "127.0.0.1", &params, &err));
    assert_ok(mst_params_parse(params, "close_timeout=500ms", &err));
    assert_ok(mst_handler_new(params, &handler, &err));
    mst_params_free(params);
    tap_set_before(&tap, "/kv/txn", TAP_CUT, pause_etcd, NULL);
    int rv = mst_handler_set_closed(handler, &err);
    assert_int_equal(kill(etcd.pid, SIGCONT), 0);
    assert_int_equal(rv, MST_EUNKNOWN);
    assert_true(tap_is_done(&tap));
    mst_handler_free(handler);
    tap_close(&tap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_id_used_again),
        cmocka_unit_test(quicker_ones_keep_their_keys),
        cmocka_unit_test(two_meet),
        cmocka_unit_test(again_with_one_more),
        cmocka_unit_test(leaving),
        cmocka_unit_test(cancelling),
        cmocka_unit_test(cancelled_report_is_sent),
        cmocka_unit_test(close_may_be_done),
        cmocka_unit_test(rounds),
        cmocka_unit_test(leaving_without_a_lease),
        cmocka_unit_test(timing_out),
        cmocka_unit_test(unknown_name),
        cmocka_unit_test(extra_data),
        cmocka_unit_test(etcd_restarts),
    };
    start_etcd();
    int rv = MST_RUN_TESTS(tests);
    etcd_unit_stop(&etcd);
    return rv;
}
