/* unit/record/test_record.c - the dynamic handler: nodes in threads meet at a store, and their
 * notices: waiting nodes, lost nodes, closed. */
#include "unit/record/record_unit.h"
#include "unit/round_suite.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "codec/pickle.h"
#include "handler/bootstrap.h"
#include "handler/host.h"
#include "record/c10d.h"
#include "record/drive.h"

/* All of @nodes enter the next round and get out of it with ranks by name. */
static void meet(struct node *nodes, size_t count, int64_t round)
{
    for (size_t i = 0; i < count; i++) {
        node_start(&nodes[i]);
    }
    for (size_t i = 0; i < count; i++) {
        if (node_join(&nodes[i]) != 0) {
            fail_msg("node %zu: %s", i, nodes[i].err.msg);
        }
        assert_int_equal(nodes[i].got.round, round);
        assert_int_equal(nodes[i].got.world_size, count);
        assert_int_equal(nodes[i].got.rank, i);
        node_drop_store(&nodes[i]);
    }
}

static void open_nodes(struct fixture *f,
                       struct node *nodes,
                       size_t count,
                       int64_t min,
                       int64_t max,
                       const char *options)
{
    for (size_t i = 0; i < count; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "node%02zu", i);
        nodes[i] = (struct node){.handler = new_handler(f->text, min, max, name, options)};
    }
}

static void close_nodes(struct node *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mst_handler_free(nodes[i].handler);
    }
}

/* --- meeting --- */

static void two_meet(void **state)
{
    struct fixture *f = *state;
    struct node nodes[2];
    open_nodes(f, nodes, 2, 2, 2, CALM);
    node_start(&nodes[0]);
    await_record(f, 1, 0);
    /* The first node is woken when the second one comes, and does not find it by polling. */
    int64_t start_ms = mst__clock_ms();
    node_start(&nodes[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(node_join(&nodes[i]), 0);
        assert_int_equal(nodes[i].got.rank, i);
        assert_int_equal(nodes[i].got.world_size, 2);
        assert_int_equal(nodes[i].got.round, 0);
        assert_string_equal(nodes[i].got.master_addr, "node00");
        assert_int_equal(nodes[i].got.master_port, nodes[0].got.master_port);
    }
    assert_true(mst__clock_ms() - start_ms < 4000);
    assert_true(nodes[0].got.master_port > 0);
    /* They share the keys of the round, and others see them under its prefix. */
    assert_ok(mst_store_set(nodes[0].got.store, STR("k"), STR("v"), PLENTY_MS, &err));
    assert_value(nodes[1].got.store, "k", STR("v"));
    struct mst_store *store = server_store(f);
    assert_value(store, "torch.rendezvous.job.0/k", STR("v"));
    assert_value(store, "torch.rendezvous.job.0/MASTER_ADDR", STR("node00"));
    mst_store_close(store);
    char name[64];
    (void)snprintf(name, sizeof name, "node01_%ld_", (long)getpid());
    assert_non_null(strstr(mst_handler_node(nodes[1].handler), name));
    assert_string_equal(mst_handler_backend(nodes[0].handler), "c10d");
    assert_string_equal(mst_handler_run_id(nodes[0].handler), "job");
    for (int i = 0; i < 2; i++) {
        node_drop_store(&nodes[i]);
    }
    close_nodes(nodes, 2);
}

static void many_meet(void **state)
{
    struct fixture *f = *state;
    struct node nodes[24];
    open_nodes(f, nodes, 24, 24, 24, CALM);
    meet(nodes, 24, 0);
    meet(nodes, 24, 1);
    close_nodes(nodes, 24);
}

static void in_a_file(void **state)
{
    (void)state;
    char path[] = "/tmp/muster-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    struct node nodes[3];
    for (int i = 0; i < 3; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "node%02d", i);
        nodes[i] = (struct node){.handler = new_handler(path, 3, 3, name, "store_type=file")};
    }
    meet(nodes, 3, 0);
    meet(nodes, 3, 1);
    close_nodes(nodes, 3);
    assert_int_equal(unlink(path), 0);
}

/* The node that serves the store comes last, and serves while it lives. */
static void host_comes_last(void **state)
{
    struct fixture *f = *state;
    mst__hosted_stop(f->hosted);
    f->hosted = NULL;
    struct node nodes[2];
    nodes[0] = (struct node){.handler = new_handler(f->text, 2, 2, "node00", "is_host=0")};
    node_start(&nodes[0]);
    nodes[1] = (struct node){.handler = new_handler(f->text, 2, 2, "node01", "")};
    node_start(&nodes[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(node_join(&nodes[i]), 0);
        assert_int_equal(nodes[i].got.rank, i);
        node_drop_store(&nodes[i]);
    }
    close_nodes(nodes, 2);
}

static void nobody_else_comes(void **state)
{
    struct fixture *f = *state;
    struct node node = {.handler =
                            new_handler(f->text, 2, 2, "node00", "is_host=0,join_timeout=1")};
    node_start(&node);
    await_record(f, 1, 0);
    assert_int_equal(node_join(&node), MST_ETIMEOUT);
    assert_int_equal(node.err.code, MST_ETIMEOUT);
    assert_non_null(strstr(node.err.msg, "job"));
    struct mst__state record;
    read_record(f, &record);
    assert_int_equal(record.participants.count, 0); /* it has taken its entry back */
    mst__state_close(&record);
    mst_handler_free(node.handler);
}

static void no_store(void **state)
{
    struct fixture *f = *state;
    mst__hosted_stop(f->hosted);
    f->hosted = NULL;
    struct node node = {.handler =
                            new_handler(f->text, 1, 1, "node00", "is_host=0,join_timeout=200ms")};
    node_start(&node);
    assert_int_equal(node_join(&node), MST_ECONN);
    assert_non_null(strstr(node.err.msg, f->text));
    mst_handler_free(node.handler);
}

static void what_is_no_record(void **state)
{
    struct fixture *f = *state;
    struct mst_store *store = server_store(f);
    assert_ok(mst_store_set(store, STR("torch.rendezvous.job"), STR("b25l"), PLENTY_MS, &err));
    mst_store_close(store);
    struct node node = {.handler = new_handler(f->text, 1, 1, "node00", CALM)};
    node_start(&node);
    assert_int_equal(node_join(&node), MST_ESTATE);
    bool is_closed = false;
    assert_fails(mst_handler_is_closed(node.handler, &is_closed, &err), MST_ESTATE, "job");
    mst_handler_free(node.handler);
}

static void dialect_of_the_first(void **state)
{
    struct fixture *f = *state;
    struct node nodes[2];
    open_nodes(f, nodes, 2, 2, 2, CALM ",state_dialect=D1");
    meet(nodes, 2, 0);
    struct mst__state record;
    read_record(f, &record);
    assert_int_equal(record.dialect, MST_RECORD_D1);
    mst__state_close(&record);
    close_nodes(nodes, 2);
}

/* --- changes --- */

static void newcomer_is_let_in(void **state)
{
    struct fixture *f = *state;
    struct node nodes[3];
    open_nodes(f, nodes, 3, 2, 3, PATIENT);
    meet(nodes, 2, 0);
    assert_false(fd_is_readable(nodes[0].handler, 0));
    struct mst_changes changes = {.size = sizeof changes};
    assert_fails(mst_handler_poll(nodes[0].handler, 0, &changes, &err), MST_ETIMEOUT, "nothing");
    int64_t waiting = -1;
    assert_ok(mst_handler_nodes_waiting(nodes[0].handler, &waiting, &err));
    assert_int_equal(waiting, 0);

    node_start(&nodes[2]);
    for (int i = 0; i < 2; i++) {
        assert_true(fd_is_readable(nodes[i].handler, PLENTY_MS));
        changes = poll_changes(nodes[i].handler);
        assert_int_equal(changes.nodes_waiting, 1);
        assert_int_equal(changes.participants_lost, 0);
        assert_false(changes.closed);
        assert_false(changes.expelled);
        /* Reported once, and still in the state. */
        assert_false(fd_is_readable(nodes[i].handler, 0));
        assert_fails(mst_handler_poll(nodes[i].handler, SHORT_MS, &changes, &err), MST_ETIMEOUT,
                     "nothing");
        assert_int_equal(changes.nodes_waiting, 1);
        assert_ok(mst_handler_nodes_waiting(nodes[i].handler, &waiting, &err));
        assert_int_equal(waiting, 1);
    }
    node_start(&nodes[0]);
    node_start(&nodes[1]);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(node_join(&nodes[i]), 0);
        assert_int_equal(nodes[i].got.round, 1);
        assert_int_equal(nodes[i].got.rank, i);
        assert_int_equal(nodes[i].got.world_size, 3);
        node_drop_store(&nodes[i]);
    }
    close_nodes(nodes, 3);
}

/* A node that stops beating, without a word. */
static void dead_are_told_of(void **state)
{
    struct fixture *f = *state;
    struct node nodes[3];
    open_nodes(f, nodes, 3, 2, 3, BEATING);
    meet(nodes, 3, 0);
    char dead[300];
    (void)snprintf(dead, sizeof dead, "%s", mst_handler_node(nodes[1].handler));
    int64_t start_ms = mst__clock_ms();
    mst_handler_free(nodes[1].handler);
    struct node alive[2] = {nodes[0], nodes[2]};
    for (int i = 0; i < 2; i++) {
        assert_true(fd_is_readable(alive[i].handler, PLENTY_MS));
        assert_lost(alive[i].handler, dead, false);
        struct mst_changes changes = glance(alive[i].handler);
        assert_int_equal(changes.participants_lost, 1);
        assert_true(changes.should_return);
        assert_false(changes.expelled);
        assert_int_equal(changes.nodes_waiting, 0);
    }
    /* Expiry is 2 s after the last beat, and 15 s unless configured; the rest is for a busy
     * machine. */
    assert_true(mst__clock_ms() - start_ms < 10000);
    meet(alive, 2, 1);
    close_nodes(alive, 2);
}

static void who_leaves_is_gone_at_once(void **state)
{
    struct fixture *f = *state;
    struct node nodes[3];
    open_nodes(f, nodes, 3, 2, 3, PATIENT);
    meet(nodes, 3, 0);
    assert_ok(mst_handler_leave(nodes[2].handler, &err));
    assert_lost(nodes[0].handler, mst_handler_node(nodes[2].handler), false);
    assert_ok(mst_handler_leave(nodes[2].handler, &err));
    struct mst_changes own = {.size = sizeof own};
    assert_fails(mst_handler_poll(nodes[2].handler, 0, &own, &err), MST_ETIMEOUT, "nothing");
    meet(nodes, 3, 1);
    close_nodes(nodes, 3);
}

static void leaving_before_joining(void **state)
{
    struct fixture *f = *state;
    struct mst_handler *handler = new_handler(f->text, 1, 1, NULL, CALM);
    assert_ok(mst_handler_leave(handler, &err));
    mst_handler_free(handler);
}

/* Heartbeats continue while no call is made. */
static void nobody_is_expelled(void **state)
{
    struct fixture *f = *state;
    struct node nodes[6];
    open_nodes(f, nodes, 6, 6, 6, BEATING);
    meet(nodes, 6, 0);
    struct mst_changes changes = {.size = sizeof changes};
    assert_fails(mst_handler_poll(nodes[0].handler, 2500, &changes, &err), MST_ETIMEOUT, "nothing");
    for (int i = 0; i < 6; i++) {
        assert_fails(mst_handler_poll(nodes[i].handler, 0, &changes, &err), MST_ETIMEOUT,
                     "nothing");
    }
    close_nodes(nodes, 6);
}

static void expelled_are_told(void **state)
{
    struct fixture *f = *state;
    struct node node = {.handler = new_handler(f->text, 1, 1, "node00", CALM)};
    meet(&node, 1, 0);
    struct mst_store *store = server_store(f);
    bool existed = false;
    assert_ok(mst_store_delete(store, STR("torch.rendezvous.job"), PLENTY_MS, &existed, &err));
    mst_store_close(store);
    struct mst_changes changes = poll_changes(node.handler);
    assert_true(changes.expelled);
    meet(&node, 1, 0); /* a new record, so the first round again */
    mst_handler_free(node.handler);
}

/* --- closing --- */

static void close_is_seen_by_all(void **state)
{
    struct fixture *f = *state;
    struct node nodes[3];
    open_nodes(f, nodes, 3, 2, 2, CALM);
    bool is_closed = true;
    assert_ok(mst_handler_is_closed(nodes[2].handler, &is_closed, &err));
    assert_false(is_closed);
    meet(nodes, 2, 0);
    /* The third node is a spare: it waits, and the members are not told. */
    node_start(&nodes[2]);
    assert_ok(mst_handler_is_closed(nodes[0].handler, &is_closed, &err));
    assert_false(is_closed);
    struct mst__state record;
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    bool is_spare = false;
    while (!is_spare) {
        read_record(f, &record);
        is_spare = record.spares.count == 1;
        mst__state_close(&record);
        assert_true(mst__clock_ms() < deadline_ms);
    }
    assert_ok(mst_handler_set_closed(nodes[1].handler, &err));
    assert_ok(mst_handler_is_closed(nodes[1].handler, &is_closed, &err));
    assert_true(is_closed);
    struct mst_changes changes = poll_changes(nodes[0].handler);
    assert_true(changes.closed);
    assert_false(changes.expelled);
    assert_ok(mst_handler_is_closed(nodes[0].handler, &is_closed, &err));
    assert_true(is_closed);
    assert_int_equal(node_join(&nodes[2]), MST_ESPARE);
    node_start(&nodes[0]);
    assert_int_equal(node_join(&nodes[0]), MST_ECLOSED);
    assert_ok(mst_handler_shutdown(nodes[0].handler, &err));
    close_nodes(nodes, 3);
}

static void shutdown_closes(void **state)
{
    struct fixture *f = *state;
    struct node nodes[2];
    open_nodes(f, nodes, 2, 2, 2, CALM);
    meet(nodes, 2, 0);
    assert_ok(mst_handler_shutdown(nodes[0].handler, &err));
    assert_ok(mst_handler_shutdown(nodes[0].handler, &err));
    assert_true(poll_changes(nodes[1].handler).closed);
    close_nodes(nodes, 2);
}

/* --- cancelling --- */

static void cancelled_while_waiting(void **state)
{
    struct fixture *f = *state;
    struct node nodes[2];
    open_nodes(f, nodes, 2, 2, 2, CALM);
    node_start(&nodes[0]);
    await_record(f, 1, 0);
    mst_handler_cancel(nodes[0].handler);
    assert_int_equal(node_join(&nodes[0]), MST_ECANCELED);
    assert_int_equal(nodes[0].err.code, MST_ECANCELED);
    await_record(f, 0, 0);
    /* Not for good. */
    meet(nodes, 2, 0);
    assert_ok(mst_handler_leave(nodes[0].handler, &err));
    bool is_closed = true;
    assert_ok(mst_handler_is_closed(nodes[0].handler, &is_closed, &err));
    assert_false(is_closed);
    assert_ok(mst_handler_shutdown(nodes[0].handler, &err));
    node_start(&nodes[1]);
    assert_int_equal(node_join(&nodes[1]), MST_ECLOSED);
    close_nodes(nodes, 2);
}

static void cancelled_before_it_began(void **state)
{
    struct fixture *f = *state;
    struct node nodes[2];
    open_nodes(f, nodes, 2, 2, 2, CALM);
    mst_handler_cancel(nodes[0].handler);
    node_start(&nodes[0]);
    assert_int_equal(node_join(&nodes[0]), MST_ECANCELED);
    struct mst_changes changes = {.size = sizeof changes};
    mst_handler_cancel(nodes[1].handler);
    assert_fails(mst_handler_poll(nodes[1].handler, PLENTY_MS, &changes, &err), MST_ECANCELED, "");
    close_nodes(nodes, 2);
}

static void rounds(void **state)
{
    struct fixture *f = *state;
    round_suite(new_handler(f->text, 2, 2, "node00", CALM),
                new_handler(f->text, 2, 2, "node01", CALM));
}

/* The endpoint does not answer, although the kernel accepts connections. */
static void cancelled_before_a_silent_store(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    char endpoint[32];
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", (unsigned)ntohs(address.sin_port));
    struct node node = {.handler = new_handler(endpoint, 1, 1, "node00", "is_host=0")};
    node_start(&node);
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&pollfd, 1, PLENTY_MS), 1); /* it has connected and waits */
    mst_handler_cancel(node.handler);
    assert_int_equal(node_join(&node), MST_ECANCELED);
    mst_handler_free(node.handler);
    assert_int_equal(close(fd), 0);
}

static struct mst_handler *signalled;

static void on_signal(int number)
{
    (void)number;
    mst_handler_cancel(signalled);
}

static void cancelled_by_a_signal(void **state)
{
    struct fixture *f = *state;
    struct node node = {.handler = new_handler(f->text, 2, 2, "node00", CALM)};
    signalled = node.handler;
    struct sigaction action = {.sa_handler = on_signal};
    struct sigaction before;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    node_start(&node);
    await_record(f, 1, 0);
    assert_int_equal(pthread_kill(node.thread, SIGUSR1), 0);
    assert_int_equal(node_join(&node), MST_ECANCELED);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    mst_handler_free(node.handler);
}

/* --- a store that goes --- */

static void store_goes_and_comes_back(void **state)
{
    struct fixture *f = *state;
    struct node nodes[2];
    open_nodes(f, nodes, 2, 2, 2, QUICK ",heartbeat_timeout=300ms,read_timeout=300ms");
    meet(nodes, 2, 0);
    mst__hosted_stop(f->hosted);
    f->hosted = NULL;
    /* The watcher notices, and names the lost node. */
    assert_unreachable(nodes[0].handler, f->text);
    node_start(&nodes[1]);
    assert_int_equal(node_join(&nodes[1]), MST_ECONN);
    assert_non_null(strstr(nodes[1].err.msg, f->text));
    /* The store is back and empty: former members are out, and all meet again. */
    server_start(f);
    assert_true(poll_changes(nodes[0].handler).expelled);
    meet(nodes, 2, 0);
    close_nodes(nodes, 2);
}

/* --- bootstrap --- */

/* The workers' store has the address that rank 0 published, in every round. */
static void server_follows_rank_0(void **state)
{
    struct fixture *f = *state;
    struct node nodes[3];
    const char *names[] = {"127.0.0.3", "127.0.0.2", "127.0.0.1"};
    for (int i = 0; i < 3; i++) {
        nodes[i] = (struct node){.handler = new_handler(f->text, 1, 3, names[i], PATIENT)};
    }
    for (int count = 1; count <= 3; count++) {
        for (int i = 0; i < count; i++) {
            if (i == count - 1 || count > 1) {
                node_start(&nodes[i]);
            }
        }
        for (int i = 0; i < count; i++) {
            if (node_join(&nodes[i]) != 0) {
                fail_msg("%s", nodes[i].err.msg);
            }
            assert_int_equal(nodes[i].got.round, count - 1);
            /* The newest has the smallest address, and is rank 0. */
            assert_int_equal(nodes[i].got.rank, count - 1 - i);
            assert_string_equal(nodes[i].got.master_addr, names[count - 1]);
            assert_true(mst_handler_use_agent_store(nodes[i].handler));
            node_drop_store(&nodes[i]);
        }
        char url[400];
        (void)snprintf(url, sizeof url, "tcp://%s:%d", nodes[0].got.master_addr,
                       nodes[0].got.master_port);
        mst_store_close(open_store(url));
    }
    close_nodes(nodes, 3);
}

static struct mst_store *workers_store(const struct node *node)
{
    char url[400];
    (void)snprintf(url, sizeof url, "tcp://%s:%d", node->got.master_addr, node->got.master_port);
    return open_store(url);
}

/* The workers' store stays where it is and is empty in every round, for a worker that finds the
 * address of one of the round before waits for the dead. */
static void workers_store_is_empty(void **state)
{
    struct fixture *f = *state;
    struct node nodes[2];
    const char *names[] = {"127.0.0.1", "127.0.0.2"};
    for (int i = 0; i < 2; i++) {
        nodes[i] = (struct node){.handler = new_handler(f->text, 2, 2, names[i], CALM)};
    }
    int port = 0;
    for (int round = 0; round < 4; round++) {
        meet(nodes, 2, round);
        assert_true(round == 0 || nodes[1].got.master_port == port);
        port = nodes[1].got.master_port;
        struct mst_store *store = workers_store(&nodes[1]);
        int64_t count = -1;
        assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
        assert_int_equal(count, 0);
        assert_ok(mst_store_set(store, STR("rank0"), STR("10.0.0.1:4711"), PLENTY_MS, &err));
        assert_ok(mst_store_queue_push(store, STR("queue"), STR("item"), PLENTY_MS, &err));
        mst_store_close(store);
    }
    /* Not while the round is left: a node that has not noticed is still reading. */
    struct mst_store *store = workers_store(&nodes[1]);
    node_start(&nodes[1]);
    await_record(f, 1, 1);
    assert_value(store, "rank0", STR("10.0.0.1:4711"));
    node_start(&nodes[0]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(node_join(&nodes[i]), 0);
        node_drop_store(&nodes[i]);
    }
    assert_absent(store, "rank0");
    mst_store_close(store);
    close_nodes(nodes, 2);
}

/* Requests of a killed worker are not executed after the emptying. */
static void emptied_with_what_is_under_way(void **state)
{
    struct fixture *f = *state;
    struct mst_store *store = server_store(f);
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(f->endpoint.port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    /* VALIDATE, and a SET of `k` to `v`. */
    static const uint8_t request[] = {0, 0xce, 0xf7, 0x85, 0x3c, 1, 1, 0, 0, 0, 0, 0,
                                      0, 0,    'k',  1,    0,    0, 0, 0, 0, 0, 0, 'v'};
    for (int i = 0; i < 300; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
        assert_int_equal(write(fd, request, sizeof request), sizeof request);
        assert_ok(mst__hosted_empty(f->hosted, &err));
        int64_t count = -1;
        assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
        assert_int_equal(count, 0);
        assert_int_equal(close(fd), 0);
    }
    mst_store_close(store);
}

/* Rank 0 is gone after the round is complete and before it has published the address of the
 * workers' store: no node waits longer than it takes to notice. */
static void rank_0_dies_before_it_tells(void **state)
{
    struct fixture *f = *state;
    struct node node = {.handler = new_handler(f->text, 2, 2, "node01", QUICK)};
    struct mst__record_home home;
    assert_ok(mst__c10d_home_new(server_store(f), "job", "server", PLENTY_MS, &home, &err));
    const struct mst__session_options options = {
        .node = {.addr = STR("node00"), .pid = getpid(), .local_id = mst__host_local_id()},
        .settings = {.nodes_min = 2,
                     .nodes_max = 2,
                     .join_us = PLENTY_MS * 1000,
                     .last_call_us = 100000,
                     .heartbeat_us = PLENTY_MS * 1000,
                     .keep_alive_interval_us = 150000,
                     .keep_alive_max_attempt = 3},
        .mode = MST_SESSION_DEFAULT,
        .dialect = MST_RECORD_D4,
    };
    const struct mst__drive drive = {
        .home = &home, .events = &(struct mst__events){0}, .wake_fd = -1};
    struct mst__session session;
    struct mst__outcome outcome;
    assert_ok(mst__session_init(&session, &options));
    node_start(&node);
    assert_ok(mst__drive(&drive, &session, MST_OPERATION_NEXT,
                         mst__clock_us() + PLENTY_MS * INT64_C(1000), &outcome, &err));
    assert_int_equal(outcome.rank, 0);
    int64_t begin_ms = mst__clock_ms();
    assert_int_equal(node_join(&node), 0);
    assert_true(mst__clock_ms() - begin_ms < 15000); /* half of its wait */
    assert_string_equal(node.got.master_addr, "");
    assert_int_equal(poll_changes(node.handler).participants_lost, 1);
    node_drop_store(&node);
    mst__session_close(&session);
    home.ops->close(home.self);
    mst_handler_free(node.handler);
}

/* As struct mst__bootstrap_round wants it: rank 0 will not tell any more. */
static int64_t give_up(void *self)
{
    (void)self;
    return 0;
}

/* What rank 0 has told before it went is found, also by a node that was too slow to wait for it. */
static void what_was_told_is_found(void **state)
{
    struct fixture *f = *state;
    struct mst_store *store = server_store(f);
    for (int i = 0; i < 4; i++) {
        struct mst__bootstrap bootstrap;
        struct mst__bootstrap_info info;
        const struct mst__bootstrap_round round = {
            .store = store,
            .rank = 1,
            .master = "node00",
            .call_ms = PLENTY_MS,
            .wait_ms = PLENTY_MS,
            .is_by_key = i % 2 == 1,
            .wake_fd = -1,
            .watch = give_up,
        };
        mst__bootstrap_init(&bootstrap, "node01", NULL, &(const struct mst_log){.level = 0});
        assert_ok(mst__bootstrap_run(&bootstrap, &round, &info, &err));
        assert_string_equal(info.addr, i < 2 ? "" : "node00");
        assert_int_equal(info.port, i < 2 ? 0 : 4711);
        mst__bootstrap_close(&bootstrap);
        assert_ok(mst_store_set(store, STR("MASTER_ADDR"), STR("node00"), PLENTY_MS, &err));
        if (i > 0) {
            assert_ok(mst_store_set(store, STR("MASTER_PORT"), STR("4711"), PLENTY_MS, &err));
        }
    }
    mst_store_close(store);
}

/* As above: it may still tell. */
static int64_t look_soon(void *self)
{
    (void)self;
    return mst__clock_ms() + 10;
}

/* The address of an earlier round is for an agent of torch, which publishes it only once; only if
 * it is rank 0 again, and if its agents do not publish another one in every round. It is used soon:
 * nobody can tell whether another one comes. */
static void earlier_addresses(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *master;
        bool is_shared, is_repeated;
        bool is_known; /* the earlier address is used */
    } rows[] = {{"node00", true, false, true},
                {"node02", true, false, false},
                {"node00", true, true, false},
                {"node00", false, false, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mst_store *first = server_store(f);
        struct mst_store *second = NULL;
        struct mst__bootstrap bootstrap;
        struct mst__bootstrap_info info;
        struct mst__bootstrap_round round = {
            .store = first,
            .rank = 1,
            .master = "node00",
            .call_ms = PLENTY_MS,
            .wait_ms = rows[i].is_known ? PLENTY_MS : SHORT_MS,
            .is_repeated = rows[i].is_repeated,
            .wake_fd = -1,
            .watch = look_soon,
        };
        mst__bootstrap_init(&bootstrap, "node01", NULL, &(const struct mst_log){.level = 0});
        bootstrap.is_shared = rows[i].is_shared;
        assert_ok(mst_store_set(first, STR("MASTER_ADDR"), STR("node00"), PLENTY_MS, &err));
        assert_ok(mst_store_set(first, STR("MASTER_PORT"), STR("4711"), PLENTY_MS, &err));
        assert_ok(mst__bootstrap_run(&bootstrap, &round, &info, &err));
        assert_string_equal(info.addr, "node00");
        assert_ok(mst_store_prefix(first, STR("next"), &second, &err));
        round.store = second;
        round.master = rows[i].master;
        int64_t begin_ms = mst__clock_ms();
        assert_ok(mst__bootstrap_run(&bootstrap, &round, &info, &err));
        assert_true(mst__clock_ms() - begin_ms < PLENTY_MS / 2);
        assert_string_equal(info.addr, rows[i].is_known ? "node00" : "");
        assert_int_equal(info.port, rows[i].is_known ? 4711 : 0);
        mst__bootstrap_close(&bootstrap);
        mst_store_close(second);
        mst_store_close(first);
    }
}

/* A node that is no longer rank 0 serves no longer. */
static void former_rank_0(void **state)
{
    struct fixture *f = *state;
    struct mst_store *store = server_store(f);
    struct mst__bootstrap bootstrap;
    struct mst__bootstrap_info info;
    struct mst__bootstrap_round round = {.store = store,
                                         .master = "node00",
                                         .call_ms = PLENTY_MS,
                                         .wait_ms = PLENTY_MS,
                                         .wake_fd = -1,
                                         .watch = look_soon};
    mst__bootstrap_init(&bootstrap, "127.0.0.1", NULL, &(const struct mst_log){.level = 0});
    assert_ok(mst__bootstrap_run(&bootstrap, &round, &info, &err));
    assert_non_null(bootstrap.hosted);
    assert_int_equal(info.port, mst__hosted_port(bootstrap.hosted));
    round.rank = 1;
    assert_ok(mst__bootstrap_run(&bootstrap, &round, &info, &err));
    assert_null(bootstrap.hosted);
    mst__bootstrap_close(&bootstrap);
    mst_store_close(store);
}

static void without_sharing(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1", 1), 0);
    struct node nodes[2];
    open_nodes(f, nodes, 2, 2, 2, CALM);
    assert_int_equal(unsetenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE"), 0);
    meet(nodes, 2, 0);
    assert_false(mst_handler_use_agent_store(nodes[0].handler));
    assert_int_equal(nodes[0].got.master_port, nodes[1].got.master_port);
    assert_true(nodes[0].got.master_port > 0);
    close_nodes(nodes, 2);
}

/* --- events, threads, descriptors --- */

struct seen {
    pthread_mutex_t mutex;
    char names[2000];
};

static void on_event(void *arg, const struct mst_event *event)
{
    struct seen *seen = arg;
    assert_string_equal(event->run_id, "job");
    assert_true(event->time_us > 0);
    assert_true(event->message[0] != '\0');
    (void)pthread_mutex_lock(&seen->mutex);
    size_t at = strlen(seen->names);
    (void)snprintf(seen->names + at, sizeof seen->names - at, "%s:%d ", event->name,
                   (int)event->state);
    (void)pthread_mutex_unlock(&seen->mutex);
}

static void events_are_told(void **state)
{
    struct fixture *f = *state;
    static struct seen seen = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    struct mst_params *params = new_params(f->text, 1, 1, "node00", CALM);
    mst_params_on_event(params, on_event, &seen);
    struct node node = {0};
    assert_ok(mst_handler_new(params, &node.handler, &err));
    mst_params_free(params);
    meet(&node, 1, 0);
    assert_string_equal(seen.names, "next_rendezvous:1 add_to_participants:1 sync:1 "
                                    "next_rendezvous:1 ");
    seen.names[0] = '\0';
    assert_ok(mst_handler_shutdown(node.handler, &err));
    assert_string_equal(seen.names, "mark_rendezvous_closed:2 sync:1 shutdown:2 ");
    seen.names[0] = '\0';
    node_start(&node);
    assert_int_equal(node_join(&node), MST_ECLOSED);
    assert_string_equal(seen.names, "next_rendezvous:1 remove_from_participants:1 sync:1 "
                                    "next_rendezvous:3 ");
    mst_handler_free(node.handler);
}

/* Calls from everywhere at once while the group re-forms again and again. */
struct caller {
    pthread_t thread;
    struct mst_handler *handler;
    atomic_bool *is_over;
    int errors;
};

static void *call_around(void *arg)
{
    struct caller *caller = arg;
    struct mst_err ignored;
    while (!atomic_load(caller->is_over)) {
        bool is_closed = false;
        int64_t waiting = 0;
        struct mst_changes changes = {.size = sizeof changes};
        caller->errors += mst_handler_is_closed(caller->handler, &is_closed, &ignored) != 0;
        caller->errors += is_closed ? 1 : 0;
        caller->errors += mst_handler_nodes_waiting(caller->handler, &waiting, &ignored) != 0;
        int rv = mst_handler_poll(caller->handler, 1, &changes, &ignored);
        caller->errors += rv != 0 && rv != MST_ETIMEOUT;
    }
    return NULL;
}

static void from_many_threads(void **state)
{
    struct fixture *f = *state;
    struct node nodes[3];
    open_nodes(f, nodes, 3, 3, 3, BEATING);
    atomic_bool is_over;
    atomic_init(&is_over, false);
    struct caller callers[3];
    for (int i = 0; i < 3; i++) {
        callers[i] = (struct caller){.handler = nodes[i].handler, .is_over = &is_over};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_around, &callers[i]), 0);
    }
    for (int round = 0; round < 8; round++) {
        meet(nodes, 3, round);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
        assert_int_equal(callers[i].errors, 0);
    }
    close_nodes(nodes, 3);
}

static int count_entries(const char *path)
{
    DIR *directory = opendir(path);
    assert_non_null(directory);
    int count = 0;
    while (readdir(directory) != NULL) {
        count++;
    }
    assert_int_equal(closedir(directory), 0);
    return count;
}

static void nothing_is_left_behind(void **state)
{
    struct fixture *f = *state;
    struct node nodes[2];
    int fds = 0;
    int threads = 0;
    for (int i = 0; i < 3; i++) {
        open_nodes(f, nodes, 2, 2, 2, BEATING);
        meet(nodes, 2, i);
        assert_ok(mst_handler_leave(nodes[0].handler, &err));
        assert_ok(mst_handler_leave(nodes[1].handler, &err));
        close_nodes(nodes, 2);
        /* The server closes its ends when it sees ours gone: ask it something. */
        struct mst_store *store = server_store(f);
        assert_absent(store, "nothing");
        mst_store_close(store);
        if (i == 0) {
            threads = count_entries("/proc/self/task");
        }
    }
    assert_int_equal(count_entries("/proc/self/task"), threads);
    mst__hosted_stop(f->hosted);
    fds = count_entries("/proc/self/fd");
    server_start(f);
    open_nodes(f, nodes, 2, 2, 2, BEATING);
    meet(nodes, 2, 0);
    close_nodes(nodes, 2);
    mst__hosted_stop(f->hosted);
    f->hosted = NULL;
    assert_int_equal(count_entries("/proc/self/fd"), fds);
}

/* --- no memory --- */

/* Every allocation of a whole join and leave by its caller fails once. */
static void join_without_memory(void **state)
{
    struct fixture *f = *state;
    unsigned long failures = 0;
    for (unsigned long nth = 1;; nth++) {
        struct mst_handler *handler = new_handler(f->text, 1, 1, "node00", CALM);
        struct mst_rendezvous got = {.size = sizeof got};
        struct mst_err ignored;
        mst__mem_fail_nth(nth);
        int rv = mst_handler_next(handler, -1, &got, &ignored);
        int left = rv == 0 ? mst_handler_leave(handler, &ignored) : 0;
        bool failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        if (rv == 0) {
            mst_store_close(got.store);
        } else {
            assert_int_equal(rv, MST_ENOMEM);
            /* Its remains do not keep it from trying again. */
            assert_ok(mst_handler_next(handler, -1, &got, &err));
            mst_store_close(got.store);
        }
        assert_ok(mst_handler_leave(handler, &err));
        mst_handler_free(handler);
        if (!failed) {
            assert_int_equal(left, 0);
            break;
        }
        failures++;
    }
    assert_true(failures > 20);
}

int main(void)
{
#define WITH_SERVER(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        WITH_SERVER(two_meet),
        WITH_SERVER(many_meet),
        cmocka_unit_test(in_a_file),
        WITH_SERVER(host_comes_last),
        WITH_SERVER(nobody_else_comes),
        WITH_SERVER(no_store),
        WITH_SERVER(what_is_no_record),
        WITH_SERVER(dialect_of_the_first),
        WITH_SERVER(newcomer_is_let_in),
        WITH_SERVER(dead_are_told_of),
        WITH_SERVER(who_leaves_is_gone_at_once),
        WITH_SERVER(leaving_before_joining),
        WITH_SERVER(nobody_is_expelled),
        WITH_SERVER(expelled_are_told),
        WITH_SERVER(close_is_seen_by_all),
        WITH_SERVER(shutdown_closes),
        WITH_SERVER(rounds),
        WITH_SERVER(cancelled_while_waiting),
        WITH_SERVER(cancelled_before_it_began),
        cmocka_unit_test(cancelled_before_a_silent_store),
        WITH_SERVER(cancelled_by_a_signal),
        WITH_SERVER(store_goes_and_comes_back),
        WITH_SERVER(server_follows_rank_0),
        WITH_SERVER(workers_store_is_empty),
        WITH_SERVER(emptied_with_what_is_under_way),
        WITH_SERVER(rank_0_dies_before_it_tells),
        WITH_SERVER(what_was_told_is_found),
        WITH_SERVER(earlier_addresses),
        WITH_SERVER(former_rank_0),
        WITH_SERVER(without_sharing),
        WITH_SERVER(events_are_told),
        WITH_SERVER(from_many_threads),
        WITH_SERVER(nothing_is_left_behind),
        WITH_SERVER(join_without_memory),
    };
    return MST_RUN_TESTS(tests);
}
