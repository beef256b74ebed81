/* unit/static/test_static.c - the static rendezvous: nodes in threads meet at the store of rank
 * 0; and this machine's own addresses. */
#include "unit/round_suite.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "handler/host.h"
#include "handler/hosted.h"
#include "store/store.h"
#include "unit/store/tap_unit.h"

/* --- fixture: a port that nobody else gets --- */

struct fixture {
    int fd;
    char endpoint[32];
};

/* Bound, but not listening: the kernel gives the port to no other program, and a server that may
 * share the address can still take it. */
static int fixture_open(void **state)
{
    static struct fixture fixture;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int one = 1;
    fixture.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fixture.fd >= 0);
    assert_int_equal(setsockopt(fixture.fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    assert_int_equal(bind(fixture.fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fixture.fd, (struct sockaddr *)&address, &size), 0);
    (void)snprintf(fixture.endpoint, sizeof fixture.endpoint, "127.0.0.1:%u",
                   (unsigned)ntohs(address.sin_port));
    *state = &fixture;
    return 0;
}

static int fixture_close(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(close(fixture->fd), 0);
    return 0;
}

static struct mst_params *new_params(const char *endpoint, int64_t nodes, const char *options)
{
    return node_params("static", endpoint, nodes, nodes, NULL, options);
}

static struct mst_handler *new_handler(const char *endpoint, int64_t nodes, const char *options)
{
    struct mst_handler *handler = NULL;
    struct mst_params *params = new_params(endpoint, nodes, options);
    assert_ok(mst_handler_new(params, &handler, &err));
    mst_params_free(params);
    return handler;
}

/* --- meeting --- */

static void start_node(struct node *node, const char *endpoint, int64_t nodes, int rank)
{
    char options[40];
    (void)snprintf(options, sizeof options, "rank=%d,timeout=20", rank);
    *node = (struct node){.handler = new_handler(endpoint, nodes, options)};
    node_start(node);
}

#define NODES 4

/* When pauses that grew for ever would be longer than SOON_MS. */
#define LONG_MS 2800
#define SOON_MS 1800

/* Rank 0 comes last, so the others find no server at first. */
static void meeting(void **state)
{
    struct fixture *fixture = *state;
    struct node nodes[NODES];
    for (int rank = NODES - 1; rank >= 0; rank--) {
        start_node(&nodes[rank], fixture->endpoint, NODES, rank);
    }
    for (int rank = 0; rank < NODES; rank++) {
        struct node *node = &nodes[rank];
        if (node_join(node) != 0) {
            fail_msg("rank %d: %s", rank, node->err.msg);
        }
        assert_int_equal(node->got.rank, rank);
        assert_int_equal(node->got.world_size, NODES);
        assert_int_equal(node->got.round, 0);
        assert_string_equal(node->got.master_addr, "127.0.0.1");
        assert_int_equal(node->got.master_port, strtol(fixture->endpoint + 10, NULL, 10));
    }
    /* One store, under the run's id. */
    assert_ok(mst_store_set(nodes[1].got.store, STR("k"), STR("v"), PLENTY_MS, &err));
    assert_value(nodes[3].got.store, "k", STR("v"));
    char url[64];
    (void)snprintf(url, sizeof url, "tcp://%s", fixture->endpoint);
    struct mst_store *root = open_store(url);
    assert_value(root, "job/k", STR("v"));
    /* For agents that look there. */
    assert_value(root, "job/MASTER_ADDR", STR("127.0.0.1"));
    assert_value(root, "job/MASTER_PORT", mst_bytes_str(fixture->endpoint + 10));
    /* Counted as PyTorch's stores count: all once, under a key without a slash in front. */
    struct mst_store *raw = NULL;
    assert_ok(mst__store_new(root->storage, STR(""), false, &raw, &err));
    assert_value(raw, "init/", STR("4"));
    /* Once more: the same result at once, and no node is counted twice. */
    struct mst_rendezvous again = {.size = sizeof again};
    assert_ok(mst_handler_next(nodes[2].handler, -1, &again, &err));
    assert_int_equal(again.rank, 2);
    assert_value(again.store, "k", STR("v"));
    assert_value(raw, "init/", STR("4"));
    mst_store_close(raw);
    mst_store_close(again.store);
    mst_store_close(root);
    for (int rank = NODES - 1; rank >= 0; rank--) {
        mst_store_close(nodes[rank].got.store);
        mst_handler_free(nodes[rank].handler);
    }
}

/* A node that has waited for long looks as often as one that has waited for a second. */
static void last_one_after_long(void **state)
{
    struct fixture *fixture = *state;
    struct node nodes[2];
    start_node(&nodes[0], fixture->endpoint, 2, 0);
    (void)poll(NULL, 0, LONG_MS);
    start_node(&nodes[1], fixture->endpoint, 2, 1);
    assert_ok(node_join(&nodes[1]));
    int64_t begin_ms = mst__clock_ms();
    assert_ok(node_join(&nodes[0]));
    assert_in_range(mst__clock_ms() - begin_ms, 0, SOON_MS);
    for (size_t i = 2; i > 0; i--) {
        mst_store_close(nodes[i - 1].got.store);
        mst_handler_free(nodes[i - 1].handler);
    }
}

static void alone(void **state)
{
    (void)state;
    struct mst_handler *handler = new_handler("localhost:0", 1, "rank=0");
    assert_string_equal(mst_handler_backend(handler), "static");
    assert_string_equal(mst_handler_run_id(handler), "job");
    assert_true(mst_handler_use_agent_store(handler));
    struct mst_rendezvous got = {.size = sizeof got};
    assert_ok(mst_handler_next(handler, -1, &got, &err));
    assert_int_equal(got.world_size, 1);
    assert_true(got.master_port > 0);
    assert_string_equal(got.master_addr, "localhost");
    mst_store_close(got.store);
    bool closed = true;
    int64_t waiting = 1;
    assert_ok(mst_handler_set_closed(handler, &err));
    assert_ok(mst_handler_is_closed(handler, &closed, &err));
    assert_false(closed);
    assert_ok(mst_handler_nodes_waiting(handler, &waiting, &err));
    assert_int_equal(waiting, 0);
    assert_ok(mst_handler_shutdown(handler, &err));
    mst_handler_free(handler);
}

/* --- not meeting --- */

static void too_few(void **state)
{
    struct fixture *fixture = *state;
    struct mst_handler *handler = NULL;
    struct mst_params *params =
        node_params("static", fixture->endpoint, 1, 3, NULL, "rank=0,timeout=60ms");
    assert_ok(mst_handler_new(params, &handler, &err)); /* the minimum does not count */
    mst_params_free(params);
    struct mst_rendezvous got = {.size = sizeof got};
    assert_fails(mst_handler_next(handler, -1, &got, &err), MST_ETIMEOUT, "1 of 3 nodes");
    /* Tried again it is still one node, not two. */
    assert_fails(mst_handler_next(handler, -1, &got, &err), MST_ETIMEOUT, "1 of 3 nodes");
    assert_null(got.store);
    mst_handler_free(handler);
}

/* The time of the call counts, not that of the option. */
static void time_of_the_call(void **state)
{
    struct fixture *fixture = *state;
    struct mst_handler *handler = new_handler(fixture->endpoint, 2, "rank=0,timeout=20");
    struct mst_rendezvous got = {.size = sizeof got};
    int64_t begin_ms = mst__clock_ms();
    assert_fails(mst_handler_next(handler, SHORT_MS, &got, &err), MST_ETIMEOUT, "1 of 2 nodes");
    assert_fails(mst_handler_next(handler, 0, &got, &err), MST_ETIMEOUT, "of 2 nodes");
    assert_in_range(mst__clock_ms() - begin_ms, 0, PLENTY_MS / 4);
    mst_handler_free(handler);
}

/* The connection breaks when the node is counted: it is not counted again. */
static void counted_or_not(void **state)
{
    (void)state;
    struct mst__endpoint place = {.host = "127.0.0.1"};
    struct mst__hosted *server = NULL;
    struct mst_log silent = {0};
    struct tap tap;
    char endpoint[32];
    assert_ok(mst__hosted_start(&place, &silent, &server, &err));
    tap_open(&tap, (uint16_t)mst__hosted_port(server));
    tap_set(&tap, "init/", TAP_SWALLOW, 1);
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", (unsigned)tap.port);
    struct mst_handler *handler = new_handler(endpoint, 2, "rank=1,timeout=20");
    struct mst_rendezvous got = {.size = sizeof got};
    assert_fails(mst_handler_next(handler, -1, &got, &err), MST_EUNKNOWN, "");
    assert_true(tap_is_done(&tap));
    assert_fails(mst_handler_next(handler, SHORT_MS, &got, &err), MST_ETIMEOUT, "1 of 2 nodes");
    mst_handler_free(handler);
    tap_close(&tap);
    mst__hosted_stop(server);
}

/* A look at the count that takes too long is repeated, and the time for all of them goes on. */
static void slow_look(void **state)
{
    (void)state;
    struct mst__endpoint place = {.host = "127.0.0.1"};
    struct mst__hosted *server = NULL;
    struct mst_log silent = {0};
    struct tap tap;
    char endpoint[32];
    assert_ok(mst__hosted_start(&place, &silent, &server, &err));
    tap_open(&tap, (uint16_t)mst__hosted_port(server));
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", (unsigned)tap.port);
    struct mst_handler *handler = new_handler(endpoint, 2, "rank=1,timeout=20");
    struct mst_rendezvous got = {.size = sizeof got};
    assert_fails(mst_handler_next(handler, SHORT_MS, &got, &err), MST_ETIMEOUT, "1 of 2 nodes");
    tap_set(&tap, "init/", TAP_HANG, 1);
    assert_fails(mst_handler_next(handler, 700, &got, &err), MST_ETIMEOUT, "1 of 2 nodes");
    assert_true(tap_is_done(&tap));
    mst_handler_free(handler);
    tap_close(&tap);
    mst__hosted_stop(server);
}

/* Rank 0's machine takes connections and says nothing: the time is over all the same. */
static void silent_rank_0(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(listen(fixture->fd, 8), 0);
    struct mst_handler *handler = new_handler(fixture->endpoint, 2, "rank=1,timeout=600ms");
    struct mst_rendezvous got = {.size = sizeof got};
    int64_t begin_ms = mst__clock_ms();
    assert_int_not_equal(mst_handler_next(handler, -1, &got, &err), 0);
    assert_in_range(mst__clock_ms() - begin_ms, 590, 1300); /* the second attempt is cut short */
    mst_handler_free(handler);
}

static void no_rank_0(void **state)
{
    struct fixture *fixture = *state;
    struct mst_handler *handler = new_handler(fixture->endpoint, 2, "rank=1,timeout=60ms");
    struct mst_rendezvous got = {.size = sizeof got};
    err = (struct mst_err){0};
    int rv = mst_handler_next(handler, -1, &got, &err);
    assert_true(rv == MST_ECONN || rv == MST_ETIMEOUT);
    assert_non_null(strstr(err.msg, fixture->endpoint));
    assert_non_null(strstr(err.msg, "rank 0"));
    mst_handler_free(handler);
}

static void port_taken(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(listen(fixture->fd, 1), 0);
    struct mst_handler *handler = new_handler(fixture->endpoint, 2, "rank=0,timeout=5");
    struct mst_rendezvous got = {.size = sizeof got};
    assert_fails(mst_handler_next(handler, -1, &got, &err), MST_ESYS, fixture->endpoint);
    assert_int_equal(err.sys, EADDRINUSE);
    mst_handler_free(handler);
}

static void on_event(void *arg, const struct mst_event *event)
{
    if (strcmp(event->name, "host_store") == 0 && event->state == MST_NODE_INIT) {
        (void)sem_post(arg);
    }
}

/* A thread waits for nodes that never come, until it is called back. */
static void cancelling(void **state)
{
    struct fixture *fixture = *state;
    sem_t serving;
    assert_int_equal(sem_init(&serving, 0, 0), 0);
    struct mst_params *params = new_params(fixture->endpoint, 2, "rank=0,timeout=20");
    mst_params_on_event(params, on_event, &serving);
    struct node node = {0};
    assert_ok(mst_handler_new(params, &node.handler, &err));
    mst_params_free(params);
    assert_false(fd_is_readable(node.handler, 0));
    struct mst_changes changes = {.size = sizeof changes};
    assert_fails(mst_handler_poll(node.handler, 1, &changes, &err), MST_ETIMEOUT, "");
    node_start(&node);
    assert_int_equal(sem_wait(&serving), 0);
    int64_t start_ms = mst__clock_ms();
    mst_handler_cancel(node.handler);
    assert_int_equal(node_join(&node), MST_ECANCELED);
    assert_non_null(strstr(node.err.msg, "'job'"));
    assert_true(mst__clock_ms() - start_ms < 10000);
    suite_cancel(node.handler);
    suite_fork(node.handler);
    mst_handler_free(node.handler);
    assert_int_equal(sem_destroy(&serving), 0);
}

/* The same while there is no server yet. */
static void cancelling_the_search(void **state)
{
    struct fixture *fixture = *state;
    struct node node = {.handler = new_handler(fixture->endpoint, 2, "rank=1,timeout=20")};
    node_start(&node);
    (void)poll(NULL, 0, SHORT_MS); /* let it try; the outcome is the same if it has not */
    int64_t start_ms = mst__clock_ms();
    mst_handler_cancel(node.handler);
    assert_int_equal(node_join(&node), MST_ECANCELED);
    assert_in_range(mst__clock_ms() - start_ms, 0, PLENTY_MS / 2);
    mst_handler_free(node.handler);
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *endpoint, *options, *named;
    } cases[] = {
        {"h:1", "", "'rank' missing"},
        {"h:1", "rank=x", "'rank'"},
        {"h:1", "rank=2", "from 0 to 1"},
        {"h:1", "rank=-1", "from 0 to 1"},
        {"", "rank=0", "endpoint missing"},
        {"h", "rank=0", "port missing"},
        {"::1", "rank=0", "port missing"},
        {"h h:1", "rank=0", "'h h'"},
        {"h:0", "rank=0", "port 0"},
        {"h:1", "rank=0,timeout=0", "'timeout'"},
        {"h:1", "rank=0,timeot=5", "did you mean 'timeout'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst_handler *handler = NULL;
        struct mst_params *params = new_params(cases[i].endpoint, 2, cases[i].options);
        assert_fails(mst_handler_new(params, &handler, &err), MST_EINVAL, cases[i].named);
        mst_params_free(params);
    }
}

static void out_of_memory(void **state)
{
    struct fixture *fixture = *state;
    struct mst_params *params = new_params(fixture->endpoint, 1, "rank=0");
    bool failed = true;
    unsigned long nth = 1;
    for (; failed; nth++) {
        struct mst_handler *handler = NULL;
        struct mst_rendezvous got = {.size = sizeof got};
        mst__mem_fail_nth(nth);
        int rv = mst_handler_new(params, &handler, NULL);
        if (rv == 0) {
            rv = mst_handler_next(handler, -1, &got, NULL);
        }
        failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        /* Some allocations are not needed, and none is needed twice. */
        assert_true(rv == 0 || (failed && rv == MST_ENOMEM));
        mst_store_close(got.store);
        mst_handler_free(handler);
    }
    assert_true(nth > 10);
    mst_params_free(params);
}

/* --- this machine --- */

static const struct mst_log no_log;

static bool is_me(const char *host)
{
    struct mst__endpoint endpoint = {.port = 1};
    (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", host);
    bool answer = false;
    assert_ok(mst__host_is_me(&endpoint, mst__until_in(PLENTY_MS), &answer, &err));
    return answer;
}

/* An address of this machine that is not loopback, as text; false if it has none. */
static bool own_address(char ret_text[INET_ADDRSTRLEN])
{
    struct ifaddrs *interfaces = NULL;
    bool found = false;
    assert_int_equal(getifaddrs(&interfaces), 0);
    for (const struct ifaddrs *at = interfaces; at != NULL && !found; at = at->ifa_next) {
        if (at->ifa_addr != NULL && at->ifa_addr->sa_family == AF_INET) {
            const struct sockaddr_in *address = (const struct sockaddr_in *)(void *)at->ifa_addr;
            found = ntohl(address->sin_addr.s_addr) >> 24 != 127 &&
                    inet_ntop(AF_INET, &address->sin_addr, ret_text, INET_ADDRSTRLEN) != NULL;
        }
    }
    freeifaddrs(interfaces);
    return found;
}

static void host_is_me(void **state)
{
    (void)state;
    assert_true(is_me("localhost"));
    assert_true(is_me("127.0.0.1"));
    assert_true(is_me("127.9.8.7"));
    assert_true(is_me("::1"));
    assert_true(is_me("0:0:0:0:0:0:0:1"));
    assert_true(is_me("::ffff:127.0.0.1"));
    assert_false(is_me("192.0.2.1"));   /* reserved for documentation */
    assert_false(is_me("2001:db8::1")); /* as well */
    assert_false(is_me("0.0.0.0"));
    assert_false(is_me("::"));
    /* It cannot be resolved, without asking anybody. */
    struct mst__endpoint unknown = {.host = "a..b", .port = 1};
    bool answer = true;
    assert_fails(mst__host_is_me(&unknown, mst__until_in(PLENTY_MS), &answer, &err), MST_ERESOLVE,
                 "a..b");
    assert_false(answer);
    char name[MST_HOST_SIZE] = "";
    assert_int_equal(gethostname(name, sizeof name - 1), 0);
    assert_true(is_me(name));
}

static void host_own_address(void **state)
{
    (void)state;
    char address[INET_ADDRSTRLEN];
    if (!own_address(address)) {
        MST_SKIP("this machine has no address but loopback");
    }
    assert_true(is_me(address));
    struct mst__endpoint endpoint = {.port = 1};
    char host[MST_HOST_SIZE];
    (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", address);
    struct mst__until until = mst__until_in(PLENTY_MS);
    assert_ok(mst__host_advertise(&endpoint, until, &no_log, host, &err));
    assert_string_equal(host, address);
    mst__host_listen(&endpoint, host);
    assert_string_equal(host, address);
    /* Our own name may resolve to loopback; others must not get that. */
    assert_int_equal(gethostname(endpoint.host, sizeof endpoint.host - 1), 0);
    if (mst__host_advertise(&endpoint, until, &no_log, host, &err) == 0) {
        assert_false(mst__host_is_loopback(host));
    }
    mst__host_listen(&endpoint, host);
    assert_string_equal(host, "*");
}

static void host_loopback(void **state)
{
    (void)state;
    static const struct {
        const char *host, *listen, *advertise;
    } cases[] = {
        {"localhost", "", NULL},
        {"127.0.0.1", "127.0.0.1", "127.0.0.1"},
        {"127.0.0.5", "127.0.0.5", "127.0.0.1"},
        {"0.0.0.0", "*", NULL},
        {"192.0.2.1", "*", NULL},
        {"node-7", "*", NULL},
        {"unix:/run/socket", "unix:/run/socket", "127.0.0.1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__endpoint endpoint = {.port = 1};
        char host[MST_HOST_SIZE];
        (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", cases[i].host);
        mst__host_listen(&endpoint, host);
        assert_string_equal(host, cases[i].listen);
        if (cases[i].advertise != NULL) {
            struct mst__until until = mst__until_in(PLENTY_MS);
            assert_ok(mst__host_advertise(&endpoint, until, &no_log, host, &err));
            assert_string_equal(host, cases[i].advertise);
        }
    }
}

static void hosted(void **state)
{
    (void)state;
    static const char *const hosts[] = {"localhost", "127.0.0.1", "no-such-name"};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        struct mst__endpoint endpoint = {.port = 0};
        (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", hosts[i]);
        struct mst__hosted *server = NULL;
        struct mst_log silent = {0};
        assert_ok(mst__hosted_start(&endpoint, &silent, &server, &err));
        char url[MST_HOSTED_URL_SIZE];
        char wanted[MST_HOSTED_URL_SIZE];
        (void)snprintf(wanted, sizeof wanted, "tcp://127.0.0.1:%d", mst__hosted_port(server));
        assert_string_equal(mst__hosted_url(server, url), wanted);
        struct mst_store *store = open_store(url);
        assert_ok(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err));
        mst_store_close(store);
        mst__hosted_stop(server);
        store = NULL;
        assert_int_not_equal(mst_store_open(url, NULL, SHORT_MS, &store, NULL), 0);
    }
    mst__hosted_stop(NULL);
}

/* --- a socket of its own --- */

static void make_directory(char path[40])
{
    (void)snprintf(path, 40, "/tmp/muster-hosted-XXXXXX");
    assert_non_null(mkdtemp(path));
}

/* Serve on a socket of its own. Returns the path of its directory, in @ret_path. */
static struct mst__hosted *serve_own(char ret_path[MST_HOST_SIZE])
{
    struct mst__endpoint endpoint = {.host = "unix:"};
    const struct mst__endpoint given = endpoint;
    struct mst__hosted *server = NULL;
    assert_ok(mst__hosted_start(&endpoint, &no_log, &server, &err));
    mst__hosted_place(server, &endpoint);
    assert_int_equal(endpoint.port, 0);
    assert_int_equal(mst__hosted_port(server), 0);
    const char *path = mst__endpoint_path(&endpoint);
    assert_non_null(path);
    struct mst__hosted *other = NULL; /* which does not get in its way */
    assert_ok(mst__hosted_start(&given, &no_log, &other, &err));
    mst__hosted_stop(other);
    char *url = mst__endpoint_url(&endpoint);
    struct mst_store *store = open_store(url);
    assert_ok(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err));
    mst_store_close(store);
    mst__free(url);
    (void)snprintf(ret_path, MST_HOST_SIZE, "%.*s", (int)(strrchr(path, '/') - path), path);
    return server;
}

static void hosted_privately(void **state)
{
    char parent[40];
    char path[MST_HOST_SIZE];
    struct stat info;
    (void)state;
    make_directory(parent);
    mode_t mask = umask(0);
    assert_int_equal(setenv("TMPDIR", parent, 1), 0);
    struct mst__hosted *server = serve_own(path);
    (void)umask(mask);
    assert_int_equal(strncmp(path, parent, strlen(parent)), 0);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    mst__hosted_stop(server);
    assert_int_not_equal(stat(path, &info), 0);
    assert_int_equal(rmdir(parent), 0); /* nothing is left */
    assert_int_equal(unsetenv("TMPDIR"), 0);
}

/* A TMPDIR that cannot have sockets: none may be made there, or the name is too long, or it is not
 * absolute. */
static void hosted_elsewhere(void **state)
{
    char parent[40];
    char path[MST_HOST_SIZE];
    char longest[140];
    (void)state;
    make_directory(parent);
    int size = snprintf(longest, sizeof longest, "%s/", parent);
    assert_in_range(size, 1, 40);
    memset(longest + size, 'x', 90);
    longest[size + 90] = '\0';
    assert_int_equal(mkdir(longest, 0700), 0);
    const char *const places[] = {"/proc", longest, ".", "/no/such/place", ""};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        assert_int_equal(setenv("TMPDIR", places[i], 1), 0);
        mst__hosted_stop(serve_own(path));
        assert_int_equal(strncmp(path, "/tmp/muster_", 12), 0);
    }
    assert_int_equal(unsetenv("TMPDIR"), 0);
    assert_int_equal(rmdir(longest), 0);
    assert_int_equal(rmdir(parent), 0);
}

int main(void)
{
#define WITH_PORT(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        WITH_PORT(meeting),
        WITH_PORT(last_one_after_long),
        cmocka_unit_test(alone),
        WITH_PORT(too_few),
        WITH_PORT(time_of_the_call),
        cmocka_unit_test(counted_or_not),
        cmocka_unit_test(slow_look),
        WITH_PORT(silent_rank_0),
        WITH_PORT(no_rank_0),
        WITH_PORT(port_taken),
        WITH_PORT(cancelling),
        WITH_PORT(cancelling_the_search),
        cmocka_unit_test(refused),
        WITH_PORT(out_of_memory),
        cmocka_unit_test(host_is_me),
        cmocka_unit_test(host_own_address),
        cmocka_unit_test(host_loopback),
        cmocka_unit_test(hosted),
        cmocka_unit_test(hosted_privately),
        cmocka_unit_test(hosted_elsewhere),
    };
    return MST_RUN_TESTS(tests);
}
