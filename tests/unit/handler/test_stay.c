/* unit/handler/test_stay.c - a node that serves other jobs stays for them at its end. */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/limits.h"
#include "codec/pickle.h"
#include "handler/stay.h"
#include "unit/node_unit.h"
#include "unit/server_unit.h"

/* Time for two looks, or three. */
#define LOOKS_MS 600

#define ALONE "last_call_timeout=1ms,keep_alive_interval=60,join_timeout=20"

/* Of the node that serves, and of the other one. */
static const char *const backends[][2] = {{"muster", "muster"},
                                          {"muster", "c10d"},
                                          {"c10d", "muster"},
                                          {"c10d", "c10d"}};
#define PAIRS_COUNT (sizeof backends / sizeof backends[0])

/* --- events --- */

struct told {
    char host[300];   /* the sentence of the event of this name */
    char linger[400]; /* the last one */
    int lingers;
};

static void on_event(void *arg, const struct mst_event *event)
{
    struct told *told = arg;
    if (strcmp(event->name, "host") == 0) {
        (void)snprintf(told->host, sizeof told->host, "%s", event->message);
    }
    if (strcmp(event->name, "linger") == 0) {
        (void)snprintf(told->linger, sizeof told->linger, "%s", event->message);
        told->lingers++;
    }
}

/* --- nodes --- */

struct server_node {
    struct mst_handler *handler;
    struct told told;
    char endpoint[60];
};

/* A node of a job for up to @max. */
static struct mst_handler *node_of(const char *backend,
                                   const char *endpoint,
                                   const char *run_id,
                                   int64_t max,
                                   const char *options,
                                   struct told *told)
{
    struct mst_params *params = NULL;
    struct mst_handler *handler = NULL;
    assert_ok(unit_params(backend, endpoint, run_id, 1, max, NULL, &params, &err));
    assert_ok(mst_params_parse(params, ALONE, &err));
    assert_ok(mst_params_parse(params, options, &err));
    if (told != NULL) {
        mst_params_on_event(params, on_event, told);
    }
    assert_ok(mst_handler_new(params, &handler, &err));
    mst_params_free(params);
    return handler;
}

static struct mst_handler *node_new(const char *backend,
                                    const char *endpoint,
                                    const char *run_id,
                                    const char *options,
                                    struct told *told)
{
    return node_of(backend, endpoint, run_id, 2, options, told);
}

static void enter(struct mst_handler *handler)
{
    struct mst_rendezvous round = {.size = sizeof round};
    assert_ok(mst_handler_next(handler, PLENTY_MS, &round, &err));
    mst_store_close(round.store);
}

/* A node of the job `own` that serves, in its round. */
static void server_node_open(struct server_node *node, const char *backend, const char *options)
{
    char text[200];
    *node = (struct server_node){.handler = NULL};
    (void)snprintf(text, sizeof text, "is_host=1%s", options);
    node->handler = node_new(backend, "127.0.0.1:0", "own", text, &node->told);
    const char *port = strstr(node->told.host, "127.0.0.1:");
    assert_non_null(port);
    assert_int_equal(sscanf(port, "%59[0-9.:]", node->endpoint), 1);
    node->endpoint[strlen(node->endpoint) - 1] = '\0'; /* the colon behind the port */
    enter(node->handler);
}

/* --- tests --- */

static void nobody_else(void **state)
{
    (void)state;
    for (size_t i = 0; i < PAIRS_COUNT; i++) {
        const char *const *pair = backends[i];
        struct server_node node;
        server_node_open(&node, pair[0], "");
        assert_ok(mst_handler_linger(node.handler, PLENTY_MS, &err));
        assert_int_equal(node.told.lingers, 0);
        /* It has left its round, and can enter the next one. */
        enter(node.handler);
        mst_handler_free(node.handler);
    }
}

static void another_job(void **state)
{
    (void)state;
    for (size_t i = 0; i < PAIRS_COUNT; i++) {
        const char *const *pair = backends[i];
        struct server_node node;
        server_node_open(&node, pair[0], ",linger=20ms");
        struct mst_handler *other = node_new(pair[1], node.endpoint, "other", "is_host=0", NULL);
        enter(other);
        assert_fails(mst_handler_linger(node.handler, -1, &err), MST_ETIMEOUT,
                     "run 'other' (1 node)");
        assert_int_equal(node.told.lingers, 2); /* at the beginning and at the end */
        assert_non_null(strstr(node.told.linger, "run 'other' (1 node)"));
        assert_non_null(strstr(node.told.linger, "no longer"));
        mst_handler_cancel(node.handler);
        assert_fails(mst_handler_linger(node.handler, PLENTY_MS, &err), MST_ECANCELED, "");
        assert_non_null(strstr(node.told.linger, "still serves"));
        assert_ok(mst_handler_linger(other, 0, &err)); /* it does not serve */
        assert_fails(mst_handler_linger(node.handler, 0, &err), MST_ETIMEOUT, "");
        node.told.lingers = 0;
        assert_fails(mst_handler_linger(node.handler, LOOKS_MS, &err), MST_ETIMEOUT, "");
        assert_int_equal(node.told.lingers, 1); /* however often it looks */
        assert_ok(mst_handler_leave(other, &err));
        assert_ok(mst_handler_linger(node.handler, PLENTY_MS, &err));
        mst_handler_free(other);
        mst_handler_free(node.handler);
    }
}

/* The rest of its own job needs the server, too. */
static void own_job(void **state)
{
    (void)state;
    for (size_t i = 0; i < PAIRS_COUNT; i++) {
        const char *const *pair = backends[i];
        if (strcmp(pair[0], pair[1]) != 0) {
            continue;
        }
        struct server_node node;
        server_node_open(&node, pair[0], "");
        struct mst_handler *other = node_new(pair[1], node.endpoint, "own", "is_host=0", NULL);
        assert_ok(mst_handler_begin(other, PLENTY_MS, &err));
        mst_notice_free(take_notice(node.handler, MST_NOTICE_WAITING));
        assert_fails(mst_handler_linger(node.handler, 10, &err), MST_ETIMEOUT,
                     "run 'own' (1 node)");
        mst_handler_free(other);
        assert_ok(mst_handler_linger(node.handler, PLENTY_MS, &err));
        mst_handler_free(node.handler);
    }
}

/* A record with the heartbeats of @count nodes, in base64. */
static void make_record(size_t count, bool is_closed, struct mst__buf *ret_text)
{
    struct mst__state record;
    struct mst__buf pickle;
    mst__buf_init(&pickle, MST_PICKLE_SIZE_MAX);
    mst__buf_init(ret_text, MST_PICKLE_SIZE_MAX);
    mst__state_init(&record);
    record.dialect = MST_RECORD_D4;
    record.closed = is_closed;
    for (size_t i = 0; i < count; i++) {
        const struct mst__node node = {.addr = STR("node"), .pid = 1, .local_id = (int64_t)i};
        mst__peer_id id = 0;
        assert_ok(mst__state_obtain(&record, &node, &id));
        assert_ok(mst__state_put_heartbeat(&record, id, mst__clock_wall_us()));
    }
    assert_ok(mst__pickle_write(&pickle, &record));
    assert_ok(mst__base64_write(ret_text, mst__buf_bytes(&pickle)));
    mst__state_close(&record);
    mst__buf_close(&pickle);
}

static void put_record(const struct fixture *f, const char *key, size_t count, bool is_closed)
{
    char url[MST_HOSTED_URL_SIZE];
    struct mst__buf text;
    struct mst_store *store = NULL;
    make_record(count, is_closed, &text);
    (void)snprintf(url, sizeof url, "tcp://%s", f->text); /* fits */
    assert_ok(mst_store_open(url, NULL, PLENTY_MS, &store, &err));
    assert_ok(mst_store_set(store, mst_bytes_str(key), mst__buf_bytes(&text), PLENTY_MS, &err));
    mst_store_close(store);
    mst__buf_close(&text);
}

/* The nodes of a closed rendezvous read that, a little later, and their record goes. */
static void *read_last_words(void *arg)
{
    const struct fixture *f = arg;
    char url[MST_HOSTED_URL_SIZE];
    struct mst_store *store = NULL;
    bool existed = false;
    struct mst_err own;                                   /* a record that stays fails the test */
    (void)snprintf(url, sizeof url, "tcp://%s", f->text); /* fits */
    (void)poll(NULL, 0, 2 * SHORT_MS);
    if (mst_store_open(url, NULL, PLENTY_MS, &store, &own) == 0) {
        (void)mst_store_delete(store, STR("torch.rendezvous.job0"), PLENTY_MS, &existed, &own);
        mst_store_close(store);
    }
    return NULL;
}

/* Which of the keys at a server are records, and what these say. */
static void records(void **state)
{
    const struct fixture *f = *state;
    const struct mst__events events = {.run_id = "own", .node = "node"};
    struct mst__owner owner;
    assert_ok(mst__owner_init(&owner, NULL, NULL, &err));
    struct mst__stay stay = {.hosted = f->hosted,
                             .server = &f->endpoint,
                             .where = f->text,
                             .owner = &owner,
                             .events = &events,
                             .records_ms = PLENTY_MS};
    put_record(f, "torch.rendezvous.own", 7, true);
    put_record(f, "torch.rendezvous.a.work/restarts", 7, false);
    put_record(f, "torch.rendezvous.a.12/key/more", 7, false);
    put_record(f, "torch.rendezvous.", 7, false);
    put_record(f, "elsewhere", 7, false);
    put_record(f, "torch.rendezvous.empty", 0, false);
    assert_ok(mst__stay(&stay, PLENTY_MS, &err));
    assert_int_equal(stay.needs.nodes, 0);
    put_record(f, "torch.rendezvous.1/b.x/2", 2, false);
    assert_fails(mst__stay(&stay, 0, &err), MST_ETIMEOUT, "run '1/b.x/2' (2 nodes) still needs");
    for (int i = 0; i < 4; i++) {
        char key[40];
        (void)snprintf(key, sizeof key, "torch.rendezvous.job%d", i);
        put_record(f, key, 1, false);
    }
    assert_fails(mst__stay(&stay, 0, &err), MST_ETIMEOUT, " and 2 more still needs");
    assert_int_equal(stay.needs.nodes, 6);
    assert_int_equal(stay.needs.parting, 0);
    /* Nobody writes a heartbeat any more: the nodes are dead. */
    stay.records_ms = 50;
    assert_ok(mst__stay(&stay, PLENTY_MS, &err));
    stay.records_ms = PLENTY_MS;
    put_record(f, "torch.rendezvous.job0", 3, true);
    assert_fails(mst__stay(&stay, 0, &err), MST_ETIMEOUT, "still needs");
    assert_int_equal(stay.needs.nodes, 5);
    assert_int_equal(stay.needs.parting, 3);
    /* They may read that it is closed before the server goes. */
    pthread_t thread;
    struct mst_buffer value = {0};
    assert_int_equal(pthread_create(&thread, NULL, read_last_words, (void *)(uintptr_t)f), 0);
    mst__stay_part(&stay, NULL, NULL);
    assert_fails(
        mst_store_try_get(stay.store, STR("torch.rendezvous.job0"), PLENTY_MS, &value, &err),
        MST_ENOTFOUND, "job0");
    assert_int_equal(pthread_join(thread, NULL), 0);
    mst__stay_close(&stay);
    mst__owner_close(&owner);
}

/* A server that hangs serves nobody: the node does not stay for it. */
static void hung_server(void **state)
{
    struct fixture *f = *state;
    const struct mst__events events = {.run_id = "own", .node = "node"};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct mst__endpoint endpoint = {.host = "127.0.0.1"};
    socklen_t size = sizeof address;
    struct mst__owner owner;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 4), 0); /* it accepts nothing */
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    endpoint.port = ntohs(address.sin_port);
    assert_ok(mst__owner_init(&owner, NULL, NULL, &err));
    struct mst__stay stay = {.hosted = f->hosted,
                             .server = &endpoint,
                             .where = "hung",
                             .owner = &owner,
                             .events = &events,
                             .records_ms = PLENTY_MS};
    assert_fails(mst__stay(&stay, PLENTY_MS, &err), MST_ECONN, "the server of this node at hung");
    mst__stay_close(&stay);
    mst__owner_close(&owner);
    assert_int_equal(close(fd), 0);
}

/* Of many jobs the first three are named, their spares count, and nodes of a job that has ended
 * need the server no more. */
static void many_jobs(void **state)
{
    static const char *const ids[] = {"one", "two", "three", "four"};
    struct mst_handler *nodes[4];
    struct server_node server;
    (void)state;
    server_node_open(&server, "muster", "");
    for (size_t i = 0; i < 4; i++) {
        nodes[i] = node_of("muster", server.endpoint, ids[i], 1, "is_host=0,node_name=b", NULL);
        enter(nodes[i]);
    }
    struct mst_handler *spare =
        node_of("muster", server.endpoint, "one", 1, "is_host=0,node_name=c", NULL);
    assert_ok(mst_handler_begin(spare, PLENTY_MS, &err));
    assert_fails(mst_handler_linger(server.handler, 10, &err), MST_ETIMEOUT, " and 1 more");
    size_t named = 0;
    for (const char *at = err.msg; (at = strstr(at, "run '")) != NULL; at++) {
        named++;
    }
    assert_int_equal(named, 3);
    for (size_t i = 1; i < 4; i++) {
        assert_ok(mst_handler_set_closed(nodes[i], &err));
    }
    int64_t end_ms = mst__clock_deadline_ms(PLENTY_MS);
    do { /* until the spare has come */
        assert_true(mst__clock_ms() < end_ms);
    } while (mst_handler_linger(server.handler, 10, &err) == MST_ETIMEOUT &&
             strstr(err.msg, "(2 nodes)") == NULL);
    assert_fails(mst_handler_linger(server.handler, 10, &err), MST_ETIMEOUT,
                 "run 'one' (2 nodes) still needs");
    assert_ok(mst_handler_set_closed(nodes[0], &err));
    assert_ok(mst_handler_linger(server.handler, PLENTY_MS, &err));
    mst_handler_free(spare);
    for (size_t i = 0; i < 4; i++) {
        mst_handler_free(nodes[i]);
    }
    mst_handler_free(server.handler);
}

static void options(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct mst_params *params = NULL;
        struct mst_handler *handler = NULL;
        assert_ok(unit_params(backends[3 * i][0], "127.0.0.1:0", "own", 1, 2, NULL, &params, &err));
        assert_ok(mst_params_parse(params, "is_host=1,linger=-1", &err));
        assert_fails(mst_handler_new(params, &handler, &err), MST_EINVAL, "linger");
        mst_params_free(params);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_else),
        cmocka_unit_test(another_job),
        cmocka_unit_test(own_job),
        cmocka_unit_test(many_jobs),
        cmocka_unit_test_setup_teardown(records, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(hung_server, fixture_open, fixture_close),
        cmocka_unit_test(options),
    };
    return MST_RUN_TESTS(tests);
}
