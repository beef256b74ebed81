/* unit/authority/test_muster.c - the handler `muster`: nodes in threads meet at a server, and
 * their notices; its options; the server gone and back; without memory. */
#include <inttypes.h>
#include <muster/wait.h>
#include <netinet/in.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "handler/handler.h"
#include "handler/muster_settings.h"
#include "net/job_client.h"
#include "unit/round_suite.h"
#include "unit/server_unit.h"

#define CALM "last_call_timeout=50ms,is_host=0,keep_alive_interval=60"

/* --- the server --- */

/* The number of members with this standing, by the server. */
static size_t count_standing(const struct fixture *f, enum mst__authority_standing standing)
{
    const struct mst__job_message question = {.type = MST_JOB_STATUS,
                                              .u.question.run_id = STR("job")};
    struct mst__job_client *client = NULL;
    struct mst__job_message answer;
    size_t count = 0;
    struct mst__until until = mst__until_in(PLENTY_MS);
    if (mst__job_client_ask(&f->endpoint, &question, until, &client, &answer, &err) != 0) {
        return 0; /* there is no job yet */
    }
    struct mst_bytes members = answer.u.status.members;
    struct mst__job_member member;
    while (mst__job_member_next(&members, &member)) {
        count += member.standing == standing ? 1 : 0;
    }
    mst__job_client_close(client);
    return count;
}

static void await_standing(const struct fixture *f,
                           enum mst__authority_standing standing,
                           size_t count)
{
    struct mst__until until = mst__until_in(PLENTY_MS);
    while (count_standing(f, standing) != count) {
        assert_true(!mst__until_is_over(until));
        (void)poll(NULL, 0, 1);
    }
}

/* --- nodes --- */

static struct mst_params *new_params(const char *endpoint,
                                     int64_t min,
                                     int64_t max,
                                     const char *options)
{
    return node_params("muster", endpoint, min, max, NULL, options);
}

static void node_open(struct node *node,
                      const struct fixture *f,
                      int64_t min,
                      int64_t max,
                      const char *name)
{
    char options[200];
    (void)snprintf(options, sizeof options, CALM ",join_timeout=20%s%s",
                   name[0] == '\0' ? "" : ",node_name=", name);
    struct mst_params *params = new_params(f->text, min, max, options);
    *node = (struct node){.rv = 0};
    assert_ok(mst_handler_new(params, &node->handler, &err));
    mst_params_free(params);
}

static void open_nodes(struct node *nodes, size_t count, const struct fixture *f, int64_t min)
{
    for (size_t i = 0; i < count; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "node%zu", i);
        node_open(&nodes[i], f, min, 4, name);
    }
}

/* All of @nodes enter the next round and get out of it with ranks by name; the stores are kept. */
static void meet(struct node *nodes, size_t count, int64_t round)
{
    for (size_t i = 0; i < count; i++) {
        node_drop_store(&nodes[i]);
        node_start(&nodes[i]);
    }
    for (size_t i = 0; i < count; i++) {
        if (node_join(&nodes[i]) != 0) {
            fail_msg("node %zu: %s", i, nodes[i].err.msg);
        }
        const struct mst_rendezvous *got = &nodes[i].got;
        assert_int_equal(got->round, round);
        assert_int_equal(got->world_size, count);
        assert_int_equal(got->rank, i);
        assert_string_equal(got->master_addr, "127.0.0.1");
        assert_int_equal(got->master_port, nodes[0].got.master_port);
        assert_true(got->master_port > 0);
        assert_true(got->epoch > 0);
        assert_true(got->epoch == nodes[0].got.epoch);
    }
}

static void close_nodes(struct node *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        node_drop_store(&nodes[i]);
        mst_handler_free(nodes[i].handler);
    }
}

/* --- meeting --- */

static void three_meet(void **state)
{
    struct fixture *f = *state;
    struct node nodes[3];
    open_nodes(nodes, 3, f, 3);
    meet(nodes, 3, 1);
    assert_string_equal(mst_handler_backend(nodes[0].handler), "muster");
    assert_string_equal(mst_handler_node(nodes[2].handler), "node2");
    assert_false(mst_handler_use_agent_store(nodes[0].handler));
    struct mst_changes changes = {.size = sizeof changes};
    assert_fails(mst_handler_poll(nodes[0].handler, SHORT_MS, &changes, &err), MST_ETIMEOUT, "");
    close_nodes(nodes, 3);
}

/* The store of a round has a connection of its own, and is shared by the nodes of that round. */
static void store_of_the_round(void **state)
{
    struct fixture *f = *state;
    struct node nodes[2];
    open_nodes(nodes, 2, f, 2);
    meet(nodes, 2, 1);
    assert_ok(mst_store_set(nodes[0].got.store, STR("key"), STR("value"), PLENTY_MS, &err));
    assert_value(nodes[1].got.store, "key", STR("value"));
    assert_value(nodes[1].got.store, "MASTER_ADDR", STR("127.0.0.1"));
    struct mst_store_stats stats = {.size = sizeof stats};
    assert_ok(mst_store_get_stats(nodes[0].got.store, &stats));
    assert_int_equal(stats.connects, 1);
    assert_string_equal(stats.dialect, "C");
    assert_non_null(strstr(stats.peer, f->text));
    char url[MST_HOSTED_URL_SIZE];
    char key[64];
    struct mst_store *all = open_store(mst__hosted_url(f->hosted, url));
    (void)snprintf(key, sizeof key, "muster.job.%" PRIu64 ".1/key", nodes[0].got.epoch);
    assert_value(all, key, STR("value"));
    mst_store_close(all);
    meet(nodes, 2, 2);
    assert_absent(nodes[0].got.store, "key");
    close_nodes(nodes, 2);
}

/* Keys of the last round stay, because a node may still read them; older ones are removed. */
static void keys_of_old_rounds_go(void **state)
{
    struct fixture *f = *state;
    struct node node;
    struct mst_store *stores[4] = {NULL};
    char url[MST_HOSTED_URL_SIZE];
    struct mst_store *all = open_store(mst__hosted_url(f->hosted, url));
    /* Of an earlier server: an old round, one that its nodes may still claim, and another run. */
    static const char *const strays[] = {"muster.job.1.1/old", "muster.job.1.9/key",
                                         "muster.other.1.1/key", "muster.job"};
    for (size_t i = 0; i < 4; i++) {
        assert_ok(mst_store_set(all, mst_bytes_str(strays[i]), STR("1"), PLENTY_MS, &err));
    }
    open_nodes(&node, 1, f, 1);
    for (size_t i = 0; i < 4; i++) {
        meet(&node, 1, (int64_t)i + 1);
        stores[i] = node.got.store;
        node.got.store = NULL;
        assert_ok(mst_store_set(stores[i], STR("key"), STR("value"), PLENTY_MS, &err));
    }
    /* Each round has two keys of the node and ours. */
    struct mst__until until = mst__until_in(PLENTY_MS);
    int64_t count = INT64_MAX;
    while (count > 9) {
        assert_true(!mst__until_is_over(until));
        (void)poll(NULL, 0, 1);
        assert_ok(mst_store_num_keys(all, PLENTY_MS, &count, &err));
    }
    assert_int_equal(count, 9);
    for (size_t i = 1; i < 4; i++) {
        assert_value(all, strays[i], STR("1"));
    }
    for (size_t i = 0; i < 4; i++) {
        if (i < 2) {
            assert_absent(stores[i], "key");
        } else {
            assert_value(stores[i], "key", STR("value"));
        }
        mst_store_close(stores[i]);
    }
    mst_store_close(all);
    close_nodes(&node, 1);
}

static void default_names_differ(void **state)
{
    struct fixture *f = *state;
    struct node nodes[2];
    node_open(&nodes[0], f, 1, 1, "");
    node_open(&nodes[1], f, 1, 1, "");
    assert_string_not_equal(mst_handler_node(nodes[0].handler), mst_handler_node(nodes[1].handler));
    close_nodes(nodes, 2);
}

/* --- changes --- */

static void late_one(void **state)
{
    struct fixture *f = *state;
    struct node nodes[3];
    open_nodes(nodes, 3, f, 2);
    meet(nodes, 2, 1);
    assert_false(fd_is_readable(nodes[0].handler, 0));
    node_start(&nodes[2]);
    for (size_t i = 0; i < 2; i++) {
        assert_true(fd_is_readable(nodes[i].handler, PLENTY_MS));
        struct mst_changes changes = poll_changes(nodes[i].handler);
        assert_int_equal(changes.nodes_waiting, 1);
        assert_int_equal(changes.participants_lost, 0);
        int64_t waiting = 0;
        assert_ok(mst_handler_nodes_waiting(nodes[i].handler, &waiting, &err));
        assert_int_equal(waiting, 1);
        assert_false(fd_is_readable(nodes[i].handler, 0));
    }
    /* The first one to come back tells the other that its round is over. */
    node_drop_store(&nodes[0]);
    node_start(&nodes[0]);
    struct mst_changes changes = poll_changes(nodes[1].handler);
    assert_true(changes.reopened);
    assert_true(changes.nodes_waiting > 0);
    node_drop_store(&nodes[1]);
    node_start(&nodes[1]);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(node_join(&nodes[i]), 0);
        assert_int_equal(nodes[i].got.round, 2);
        assert_int_equal(nodes[i].got.world_size, 3);
    }
    close_nodes(nodes, 3);
}

static void one_leaves(void **state)
{
    struct fixture *f = *state;
    struct node nodes[3];
    open_nodes(nodes, 3, f, 2);
    for (size_t i = 0; i < 3; i++) {
        assert_ok(mst_handler_leave(nodes[i].handler, &err)); /* nothing to leave yet */
    }
    meet(nodes, 3, 1);
    assert_ok(mst_handler_leave(nodes[1].handler, &err));
    for (size_t i = 0; i < 3; i += 2) {
        assert_lost(nodes[i].handler, "node1", true);
        mst_notice_free(take_notice(nodes[i].handler, MST_NOTICE_REOPENED));
        struct mst_changes changes = glance(nodes[i].handler);
        assert_int_equal(changes.participants_lost, 1);
        assert_true(changes.reopened);
        assert_true(changes.should_return);
        assert_false(changes.closed);
        assert_false(changes.expelled);
    }
    /* And it is welcome again. It comes first: the others would not wait for a node that has
     * left. */
    node_drop_store(&nodes[1]);
    node_start(&nodes[1]);
    await_standing(f, MST_STANDING_GATHERED, 1);
    for (size_t i = 0; i < 3; i += 2) {
        node_drop_store(&nodes[i]);
        node_start(&nodes[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(node_join(&nodes[i]), 0);
        assert_int_equal(nodes[i].got.round, 2);
        assert_int_equal(nodes[i].got.world_size, 3);
    }
    close_nodes(nodes, 3);
}

/* A handler that is freed leaves. */
static void one_is_freed(void **state)
{
    struct fixture *f = *state;
    struct node nodes[3];
    open_nodes(nodes, 3, f, 2);
    meet(nodes, 3, 1);
    close_nodes(&nodes[2], 1);
    for (size_t i = 0; i < 2; i++) {
        assert_lost(nodes[i].handler, "node2", true);
    }
    meet(nodes, 2, 2);
    close_nodes(nodes, 2);
}

/* A process with the name of another one takes its place. */
static void one_is_replaced(void **state)
{
    struct fixture *f = *state;
    struct node nodes[2];
    open_nodes(nodes, 2, f, 2);
    meet(nodes, 2, 1);
    struct node again;
    node_open(&again, f, 2, 4, "node1");
    node_start(&again);
    struct mst_changes changes = poll_changes(nodes[1].handler);
    assert_true(changes.expelled);
    assert_lost(nodes[0].handler, "node1", false);
    node_drop_store(&nodes[0]);
    node_start(&nodes[0]);
    assert_int_equal(node_join(&nodes[0]), 0);
    assert_int_equal(node_join(&again), 0);
    assert_int_equal(again.got.rank, 1);
    assert_int_equal(again.got.round, 2);
    /* A replaced process cannot come back. */
    node_drop_store(&nodes[1]);
    nodes[1].got = (struct mst_rendezvous){.size = sizeof nodes[1].got};
    assert_fails(mst_handler_next(nodes[1].handler, -1, &nodes[1].got, &err), MST_EEXPELLED,
                 "newer");
    close_nodes(&again, 1);
    close_nodes(nodes, 2);
}

/* --- the end --- */

static void closed(void **state)
{
    struct fixture *f = *state;
    struct node nodes[3];
    open_nodes(nodes, 3, f, 2);
    bool is_closed = true;
    assert_ok(mst_handler_is_closed(nodes[2].handler, &is_closed, &err)); /* there is no job yet */
    assert_false(is_closed);
    meet(nodes, 2, 1);
    assert_ok(mst_handler_set_closed(nodes[0].handler, &err));
    for (size_t i = 0; i < 2; i++) {
        assert_true(poll_changes(nodes[i].handler).closed);
    }
    for (size_t i = 0; i < 3; i++) { /* from what it was told, or by asking */
        assert_ok(mst_handler_is_closed(nodes[i].handler, &is_closed, &err));
        assert_true(is_closed);
    }
    struct mst_rendezvous got = {.size = sizeof got};
    assert_fails(mst_handler_next(nodes[2].handler, -1, &got, &err), MST_ECLOSED, "node0");
    assert_ok(mst_handler_shutdown(nodes[1].handler, &err)); /* again */
    close_nodes(nodes, 3);
}

static void closed_while_waiting(void **state)
{
    struct fixture *f = *state;
    struct node nodes[2];
    open_nodes(nodes, 2, f, 4);
    node_start(&nodes[0]);
    await_standing(f, MST_STANDING_GATHERED, 1);
    int64_t waiting = 0;
    assert_ok(mst_handler_nodes_waiting(nodes[1].handler, &waiting, &err));
    assert_int_equal(waiting, 1);
    assert_ok(mst_handler_shutdown(nodes[1].handler, &err));
    assert_int_equal(node_join(&nodes[0]), MST_ECLOSED);
    assert_non_null(strstr(nodes[0].err.msg, "the job is over"));
    close_nodes(nodes, 2);
}

static void closed_while_a_spare(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"member", "spare", "observer"};
    struct node nodes[3];
    for (size_t i = 0; i < 3; i++) {
        node_open(&nodes[i], f, 1, 1, names[i]);
    }
    meet(nodes, 1, 1);
    node_start(&nodes[1]);
    await_standing(f, MST_STANDING_SPARE, 1);
    int64_t waiting = 0;
    assert_ok(mst_handler_nodes_waiting(nodes[2].handler, &waiting, &err));
    assert_int_equal(waiting, 1);
    assert_ok(mst_handler_set_closed(nodes[0].handler, &err));
    assert_int_equal(node_join(&nodes[1]), MST_ESPARE);
    close_nodes(nodes, 3);
}

static void cancelled(void **state)
{
    struct fixture *f = *state;
    struct node nodes[2];
    open_nodes(nodes, 2, f, 2);
    node_start(&nodes[0]);
    await_standing(f, MST_STANDING_GATHERED, 1);
    mst_handler_cancel(nodes[0].handler);
    assert_int_equal(node_join(&nodes[0]), MST_ECANCELED);
    await_standing(f, MST_STANDING_GATHERED, 0); /* it has taken leave */
    meet(nodes, 2, 1);                           /* and comes back */
    close_nodes(nodes, 2);
}

static void cancel_handler(void *arg)
{
    mst_handler_cancel(arg);
}

/* By the thread itself, which hears it while it waits. */
static void cancelled_on_wait(void **state)
{
    struct fixture *f = *state;
    struct node node;
    struct mst_rendezvous got = {.size = sizeof got};
    struct mst_notice *notice = NULL;
    open_nodes(&node, 1, f, 2);
    mst_on_wait(cancel_handler, node.handler);
    assert_fails(mst_handler_next(node.handler, PLENTY_MS, &got, &err), MST_ECANCELED, "");
    assert_fails(mst_handler_take(node.handler, PLENTY_MS, &notice, &err), MST_ECANCELED, "");
    mst_on_wait(NULL, NULL);
    close_nodes(&node, 1);
}

static void rounds(void **state)
{
    struct fixture *f = *state;
    struct node nodes[2];
    open_nodes(nodes, 2, f, 2);
    round_suite(nodes[0].handler, nodes[1].handler);
}

/* The round is on the connection that was made before it. */
static void connected_early(void **state)
{
    struct fixture *f = *state;
    struct node node;
    struct mst_rendezvous got = {.size = sizeof got};
    open_nodes(&node, 1, f, 1);
    assert_ok(mst_handler_connect(node.handler, PLENTY_MS, &err));
    int64_t connected_us = mst__clock_us();
    assert_ok(mst_handler_connect(node.handler, 0, &err)); /* already */
    assert_ok(mst_handler_next(node.handler, PLENTY_MS, &got, &err));
    assert_true(got.connected_us > 0 && got.connected_us <= connected_us);
    mst_store_close(got.store);
    close_nodes(&node, 1);
}

/* The server of the early connection has restarted, or is not there. */
static void connected_too_early(void **state)
{
    struct fixture *f = *state;
    struct node node;
    struct mst_rendezvous got = {.size = sizeof got};
    open_nodes(&node, 1, f, 1);
    assert_ok(mst_handler_connect(node.handler, PLENTY_MS, &err));
    mst__hosted_stop(f->hosted);
    f->hosted = NULL;
    assert_fails(mst_handler_connect(node.handler, PLENTY_MS, &err), MST_ECONN, f->text);
    server_start(f);
    assert_ok(mst_handler_connect(node.handler, PLENTY_MS, &err));
    mst__hosted_stop(f->hosted);
    server_start(f);
    int64_t restarted_us = mst__clock_us();
    assert_ok(mst_handler_next(node.handler, PLENTY_MS, &got, &err));
    assert_true(got.connected_us >= restarted_us);
    mst_store_close(got.store);
    close_nodes(&node, 1);
}

/* A wait for a server that says nothing ends. */
static void connecting_is_cancelled(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct mst__stream listener;
    char endpoint[MST_ADDRESS_SIZE];
    int port;
    assert_int_equal(
        mst__stream_listen((const struct sockaddr *)&address, sizeof address, false, &listener), 0);
    assert_int_equal(mst__stream_local(&listener, endpoint, &port), 0);
    struct mst_params *params = new_params(endpoint, 1, 1, CALM);
    struct mst_handler *handler = NULL;
    assert_ok(mst_handler_new(params, &handler, &err));
    assert_fails(mst_handler_connect(handler, SHORT_MS, &err), MST_ETIMEOUT, endpoint);
    mst_handler_cancel(handler);
    assert_fails(mst_handler_connect(handler, PLENTY_MS, &err), MST_ECANCELED, "");
    mst_handler_free(handler);
    mst_params_free(params);
    mst__stream_close(&listener);
}

/* No server is there. */
static void cancelled_without_a_server(void **state)
{
    struct fixture *f = *state;
    struct node node;
    open_nodes(&node, 1, f, 2);
    mst__hosted_stop(f->hosted);
    f->hosted = NULL;
    node_start(&node);
    (void)poll(NULL, 0, SHORT_MS); /* let it try; the outcome is the same if it has not */
    mst_handler_cancel(node.handler);
    assert_int_equal(node_join(&node), MST_ECANCELED);
    close_nodes(&node, 1);
}

static void too_late(void **state)
{
    struct fixture *f = *state;
    struct mst_params *params = new_params(f->text, 2, 2, CALM ",join_timeout=100ms");
    struct mst_handler *handler = NULL;
    assert_ok(mst_handler_new(params, &handler, &err));
    struct mst_rendezvous got = {.size = sizeof got};
    assert_fails(mst_handler_next(handler, -1, &got, &err), MST_ETIMEOUT, "1 more needed");
    assert_int_equal(count_standing(f, MST_STANDING_GATHERED), 0);
    mst__hosted_stop(f->hosted);
    f->hosted = NULL;
    assert_fails(mst_handler_next(handler, -1, &got, &err), MST_ECONN, f->text);
    bool is_closed;
    assert_fails(mst_handler_is_closed(handler, &is_closed, &err), MST_ECONN, f->text);
    mst_handler_free(handler);
    mst_params_free(params);
}

/* --- the server goes and comes --- */

static void server_restarts(void **state)
{
    struct fixture *f = *state;
    struct node nodes[2];
    open_nodes(nodes, 2, f, 2);
    meet(nodes, 2, 1);
    mst__hosted_stop(f->hosted);
    f->hosted = NULL;
    assert_unreachable(nodes[0].handler, f->text);
    server_start(f);
    mst_notice_free(take_notice(nodes[0].handler, MST_NOTICE_REACHABLE));
    await_standing(f, MST_STANDING_MEMBER, 2); /* in the round in which they were */
    struct mst_changes changes = {.size = sizeof changes};
    for (size_t i = 0; i < 2; i++) {
        assert_fails(mst_handler_poll(nodes[i].handler, SHORT_MS, &changes, &err), MST_ETIMEOUT,
                     "");
    }
    uint64_t epoch = nodes[0].got.epoch;
    meet(nodes, 2, 2);
    assert_true(nodes[0].got.epoch > epoch);
    close_nodes(nodes, 2);
}

/* A report may have less time than the options give it: a launcher goes on without an answer. */
static void report_has_its_time(void **state)
{
    struct fixture *f = *state;
    struct node node;
    open_nodes(&node, 1, f, 1);
    meet(&node, 1, 1);
    mst__hosted_stop(f->hosted);
    f->hosted = NULL;
    int64_t begin_ms = mst__clock_ms();
    assert_fails(mst__handler_finish(node.handler, 0, "", SHORT_MS, &err), MST_ECONN,
                 "does not answer");
    assert_in_range(mst__clock_ms() - begin_ms, SHORT_MS, PLENTY_MS / 4);
    close_nodes(&node, 1);
}

/* A cancelled report says so, and not that the server is silent. */
static void report_is_cancelled(void **state)
{
    struct fixture *f = *state;
    struct node node;
    open_nodes(&node, 1, f, 1);
    meet(&node, 1, 1);
    mst__hosted_stop(f->hosted);
    f->hosted = NULL;
    mst_on_wait(cancel_handler, node.handler);
    assert_fails(mst__handler_finish(node.handler, 0, "", PLENTY_MS, &err), MST_ECANCELED, "");
    mst_on_wait(NULL, NULL);
    close_nodes(&node, 1);
}

/* --- options --- */

static void read_settings(const char *options, int64_t max, struct mst__muster_settings *settings)
{
    struct mst_params *params = new_params("host:1", 1, max, options);
    assert_ok(mst__muster_read(params, settings, &err));
    mst_params_free(params);
}

static void options(void **state)
{
    (void)state;
    struct mst__muster_settings settings;
    read_settings("keep_alive_interval=2", 4, &settings);
    assert_int_equal(settings.job.keep_alive_interval_us, 2000000);
    assert_int_equal(settings.job.keep_alive_max_attempt, 3);
    assert_int_equal(settings.labels_count, 0);
    assert_string_equal(settings.rank_by, "");
    assert_true(settings.pinned_rank == MST_AUTHORITY_RANK_NONE);
    assert_null(settings.node_name);
    assert_int_equal(settings.workers, 0);
    struct mst_params *params = new_params("host:1", 1, 4,
                                           "labels= rack=r1 ; host=a=b ;x=,rank_by= rack ; host "
                                           ",rank=3,workers=4096,role=a b");
    assert_ok(mst__muster_read(params, &settings, &err));
    assert_int_equal(settings.labels_count, 3);
    assert_bytes_str(settings.labels[0].key, "rack");
    assert_bytes_str(settings.labels[0].value, "r1");
    assert_bytes_str(settings.labels[1].value, "a=b");
    assert_bytes_str(settings.labels[2].value, "");
    assert_string_equal(settings.rank_by, "rack,host");
    assert_int_equal(settings.pinned_rank, 3);
    assert_int_equal(settings.workers, MST_NPROC_MAX);
    assert_string_equal(settings.role, "a b");
    mst_params_free(params);
}

static void wrong_options(void **state)
{
    (void)state;
    static const struct {
        const char *options, *said;
    } wrong[] = {
        {"labels=rack", "labels"},
        {"labels==x", "labels"},
        {"labels=a=b;;c=d", "labels"},
        {"rank_by=a;;b", "rank_by"},
        {"rank=4", "rank"},
        {"rank=-2", "rank"},
        {"rank=x", "rank"},
        {"workers=-1", "workers"},
        {"workers=4097", "workers"},
        {"role=a\tb", "role"},
        {"node_name=a b", "node_name"},
        {"nodename=x", "node_name"},
        {"zzzzzzzz=x", "max_restarts…"},
        {"store_type=tcp", "store_type"},
        {"state_dialect=D4", "state_dialect"},
        {"keep_alive_max_attempt=0", "keep_alive_max_attempt"},
    };
    struct mst__muster_settings settings;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct mst_params *params = new_params("host:1", 1, 4, wrong[i].options);
        assert_fails(mst__muster_read(params, &settings, &err), MST_EINVAL, wrong[i].said);
        mst_params_free(params);
    }
    struct mst_params *params =
        new_params("host:1", 1, (int64_t)MST_AUTHORITY_MEMBERS_MAX + 1, "is_host=0");
    assert_fails(mst__muster_read(params, &settings, &err), MST_EINVAL, "nodes_max");
    mst_params_free(params);
}

/* --- without memory --- */

/* Fail the n-th allocation of a node's whole life, until there are no more. It succeeds or
 * reports an error, and leaves nothing behind. */
static void without_memory(void **state)
{
    struct fixture *f = *state;
    struct mst_params *params = new_params(f->text, 1, 1, CALM ",join_timeout=20,labels=a=b");
    bool has_failed = true;
    size_t failures = 0;
    for (unsigned long nth = 1; has_failed; nth++) {
        struct mst_handler *handler = NULL;
        struct mst_rendezvous got = {.size = sizeof got};
        mst__mem_fail_nth(nth);
        int rv = mst_handler_new(params, &handler, &err);
        if (rv == 0) {
            rv = mst_handler_connect(handler, PLENTY_MS, &err);
        }
        if (rv == 0) {
            rv = mst_handler_next(handler, -1, &got, &err);
        }
        if (rv == 0) {
            rv = mst_store_set(got.store, STR("key"), STR("value"), PLENTY_MS, &err);
        }
        if (rv == 0) {
            rv = mst_handler_leave(handler, &err);
        }
        has_failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        if (rv != 0) {
            assert_true(has_failed);
            failures++;
        }
        mst_store_close(got.store);
        mst_handler_free(handler);
    }
    assert_true(failures > 5);
    mst_params_free(params);
}

#define WITH_SERVER(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(three_meet),
        WITH_SERVER(store_of_the_round),
        WITH_SERVER(keys_of_old_rounds_go),
        WITH_SERVER(default_names_differ),
        WITH_SERVER(late_one),
        WITH_SERVER(one_leaves),
        WITH_SERVER(one_is_freed),
        WITH_SERVER(one_is_replaced),
        WITH_SERVER(closed),
        WITH_SERVER(closed_while_waiting),
        WITH_SERVER(closed_while_a_spare),
        WITH_SERVER(rounds),
        WITH_SERVER(connected_early),
        WITH_SERVER(connected_too_early),
        cmocka_unit_test(connecting_is_cancelled),
        WITH_SERVER(cancelled),
        WITH_SERVER(cancelled_on_wait),
        WITH_SERVER(cancelled_without_a_server),
        WITH_SERVER(too_late),
        WITH_SERVER(server_restarts),
        WITH_SERVER(report_has_its_time),
        WITH_SERVER(report_is_cancelled),
        cmocka_unit_test(options),
        cmocka_unit_test(wrong_options),
        WITH_SERVER(without_memory),
    };
    return MST_RUN_TESTS(tests);
}
