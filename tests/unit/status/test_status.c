/* unit/status/test_status.c - <muster/status.h> against a server in a thread: jobs of backends
 * `muster` and `c10d`, lists, watches, closing, and refusals. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "unit/node_unit.h"
#include "unit/server_unit.h"

#define CALM "last_call_timeout=10ms,join_timeout=20,keep_alive_interval=60"

static struct mst_params *params_of(const char *backend, const char *endpoint, const char *run_id)
{
    struct mst_params *params = NULL;
    assert_ok(mst_params_new(backend, run_id, &params, &err));
    assert_ok(mst_params_set_endpoint(params, endpoint, &err));
    return params;
}

static struct mst_status *look(const struct mst_params *params)
{
    struct mst_status *status = NULL;
    assert_ok(mst_status_job(params, PLENTY_MS, &status, &err));
    assert_int_equal(status->size, sizeof *status);
    return status;
}

/* A node that is in a round alone. */
static void node_open(struct node *node, const struct fixture *f, const char *backend)
{
    bool is_muster = strcmp(backend, "muster") == 0;
    char options[200];
    (void)snprintf(options, sizeof options, CALM ",serve=never%s",
                   is_muster ? ",node_name=n1,labels=rack=r1;row=2" : "");
    struct mst_params *params = node_params(backend, f->text, 1, 2, NULL, options);
    *node = (struct node){.rv = 0};
    assert_ok(mst_handler_new(params, &node->handler, &err));
    mst_params_free(params);
    node_start(node);
    assert_ok(node_join(node));
    node_drop_store(node);
}

static void job_of_each_backend(void **state)
{
    const struct fixture *f = *state;
    static const char *const backends[] = {"muster", "c10d"};
    for (size_t i = 0; i < 2; i++) {
        struct node node;
        struct mst_params *params = params_of(backends[i], f->text, "job");
        struct mst_status *status = look(params);
        assert_false(status->exists);
        assert_non_null(strstr(status->summary, "There is no such rendezvous"));
        mst_status_free(status);
        node_open(&node, f, backends[i]);
        status = look(params);
        assert_true(status->exists);
        assert_string_equal(status->backend, backends[i]);
        assert_string_equal(status->run_id, "job");
        assert_int_equal(status->phase, MST_STATUS_RUNNING);
        assert_int_equal(status->world_size, 1);
        assert_int_equal(status->member_count, 1);
        assert_string_equal(status->nodes[0]->name, mst_handler_node(node.handler));
        assert_int_equal(status->nodes[0]->rank, 0);
        assert_int_equal(status->nodes[0]->standing, MST_STATUS_NODE_MEMBER);
        assert_true(status->nodes[0]->has_heard);
        assert_int_equal(status->nodes[0]->label_count, i == 0 ? 2 : 0);
        assert_int_equal(status->nodes_max, i == 0 ? 2 : 0); /* a record does not know them */
        mst_status_free(status);
        mst_handler_free(node.handler);
        mst_params_free(params);
    }
}

/* The nodes of the round that a handler is in. */
static void members_of_a_round(void **state)
{
    const struct fixture *f = *state;
    static const char *const backends[] = {"muster", "c10d"};
    for (size_t i = 0; i < 2; i++) {
        struct node node;
        struct mst_status *status = NULL;
        struct mst_params *params = params_of(backends[i], f->text, "job");
        node_open(&node, f, backends[i]);
        assert_ok(mst_status_members(params, &node.got, PLENTY_MS, &status, &err));
        assert_int_equal(status->node_count, 1);
        assert_string_equal(status->nodes[0]->name, mst_handler_node(node.handler));
        assert_int_equal(status->nodes[0]->rank, 0);
        mst_status_free(status);
        status = NULL;
        node.got.round++;
        assert_fails(mst_status_members(params, &node.got, PLENTY_MS, &status, &err), MST_ESTATE,
                     "is not in round");
        assert_null(status);
        mst_handler_free(node.handler);
        mst_params_free(params);
    }
}

static void list_of_jobs(void **state)
{
    const struct fixture *f = *state;
    struct mst_status_list *list = NULL;
    struct node node;
    assert_ok(mst_status_jobs(f->text, PLENTY_MS, &list, &err));
    assert_int_equal(list->job_count, 0);
    mst_status_list_free(list);
    node_open(&node, f, "muster");
    assert_ok(mst_status_jobs(f->text, PLENTY_MS, &list, &err));
    assert_int_equal(list->job_count, 1);
    assert_int_equal(list->job_total, 1);
    assert_string_equal(list->jobs[0]->run_id, "job");
    assert_int_equal(list->jobs[0]->phase, MST_STATUS_RUNNING);
    assert_int_equal(list->jobs[0]->members, 1);
    assert_int_equal(list->jobs[0]->nodes_max, 2);
    mst_status_list_free(list);
    /* An unknown job is reported with similar run ids. */
    struct mst_params *params = params_of("muster", f->text, "jbo");
    struct mst_status *status = look(params);
    assert_non_null(strstr(status->summary, "similar: 'job'"));
    mst_status_free(status);
    mst_params_free(params);
    mst_handler_free(node.handler);
}

static void *join_later(void *arg)
{
    (void)poll(NULL, 0, 50);
    return node_run(arg);
}

static void watching(void **state)
{
    const struct fixture *f = *state;
    static const char *const backends[] = {"muster", "c10d"};
    for (size_t i = 0; i < 2; i++) {
        struct mst_status_watch *watch = NULL;
        struct mst_status *status = NULL;
        struct mst_params *params = params_of(backends[i], f->text, "job");
        assert_ok(mst_status_watch_new(params, &watch, &err));
        assert_ok(mst_status_watch_next(watch, 5, PLENTY_MS, 0, &status, &err));
        assert_false(status->exists);
        mst_status_free(status);
        assert_fails(mst_status_watch_next(watch, 5, PLENTY_MS, 20, &status, &err), MST_ETIMEOUT,
                     "nothing has changed");
        int64_t begin_ms = mst__clock_ms(); /* the time counts, not the interval */
        assert_fails(mst_status_watch_next(watch, PLENTY_MS, PLENTY_MS, 20, &status, &err),
                     MST_ETIMEOUT, "nothing has changed");
        assert_in_range(mst__clock_ms() - begin_ms, 20, PLENTY_MS / 2);
        struct node node = {.rv = 0};
        struct mst_params *own = node_params(backends[i], f->text, 1, 2, NULL, CALM ",serve=never");
        assert_ok(mst_handler_new(own, &node.handler, &err));
        mst_params_free(own);
        assert_int_equal(pthread_create(&node.thread, NULL, join_later, &node), 0);
        do {
            assert_ok(mst_status_watch_next(watch, 5, PLENTY_MS, PLENTY_MS, &status, &err));
            bool is_running = status->exists && status->phase == MST_STATUS_RUNNING;
            mst_status_free(status);
            if (is_running) {
                break;
            }
        } while (true);
        assert_ok(node_join(&node));
        node_drop_store(&node);
        mst_status_watch_free(watch);
        mst_handler_free(node.handler);
        mst_params_free(params);
    }
}

static void closing(void **state)
{
    const struct fixture *f = *state;
    static const char *const backends[] = {"muster", "c10d"};
    for (size_t i = 0; i < 2; i++) {
        struct node node;
        bool has_reason = i == 0;
        struct mst_params *params = params_of(backends[i], f->text, "job");
        assert_fails(mst_status_close(params, NULL, NULL, PLENTY_MS, &err), MST_ENOTFOUND,
                     "there is no rendezvous 'job'");
        node_open(&node, f, backends[i]);
        if (!has_reason) {
            assert_fails(mst_status_close(params, "why", NULL, PLENTY_MS, &err), MST_ENOTSUP,
                         "cannot store a reason");
        }
        assert_ok(mst_status_close(params, has_reason ? "why" : NULL, "me", PLENTY_MS, &err));
        assert_ok(mst_status_close(params, NULL, NULL, PLENTY_MS, &err)); /* again does no harm */
        struct mst_status *status = look(params);
        assert_int_equal(status->phase, MST_STATUS_CLOSED);
        assert_string_equal(status->reason, has_reason ? "why" : "");
        assert_string_equal(status->closed_by, has_reason ? "me" : "");
        mst_status_free(status);
        mst_handler_free(node.handler);
        mst_params_free(params);
    }
}

static void what_cannot_be_looked_at(void **state)
{
    (void)state;
    static const struct {
        const char *backend, *endpoint;
        int code;
        const char *said;
    } cases[] = {
        {"static", "127.0.0.1:1", MST_ENOTSUP, "has no record: rank and size"},
        {"zookeeper", "", MST_EINVAL, "unknown backend 'zookeeper'"},
        {"muster", "127.0.0.1:1", MST_ECONN, "127.0.0.1:1"},
        {"c10d", "127.0.0.1:1", MST_ECONN, "127.0.0.1:1"},
        {"muster", "a b", MST_EINVAL, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst_status *status = NULL;
        struct mst_params *params = params_of(cases[i].backend, cases[i].endpoint, "job");
        assert_fails(mst_status_job(params, SHORT_MS, &status, &err), cases[i].code, cases[i].said);
        assert_null(status);
        mst_params_free(params);
    }
    struct mst_status_list *list = NULL;
    assert_fails(mst_status_jobs("127.0.0.1:1", SHORT_MS, &list, &err), MST_ECONN, "127.0.0.1:1");
    assert_null(list);
    /* Unset limits are enough for a look. */
    struct mst_handler *handler = NULL;
    struct mst_params *params = params_of("muster", "127.0.0.1:1", "job");
    assert_fails(mst_handler_new(params, &handler, &err), MST_EINVAL, "nodes_min");
    mst_params_free(params);
}

/* A server that accepts no connection, whose backlog is full, or that answers none. */
struct silent {
    int fds[8];
    char endpoint[40];
};

static void silent_open(struct silent *silent, bool is_full)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    const size_t count = sizeof silent->fds / sizeof silent->fds[0];
    silent->fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(silent->fds[0], (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(silent->fds[0], is_full ? 0 : 100), 0);
    assert_int_equal(getsockname(silent->fds[0], (struct sockaddr *)&address, &size), 0);
    (void)snprintf(silent->endpoint, sizeof silent->endpoint, "127.0.0.1:%d",
                   ntohs(address.sin_port));
    for (size_t i = 1; i < count; i++) {
        silent->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (is_full) {
            (void)connect(silent->fds[i], (struct sockaddr *)&address, size); /* some will wait */
        }
    }
}

static void silent_close(struct silent *silent)
{
    for (size_t i = 0; i < sizeof silent->fds / sizeof silent->fds[0]; i++) {
        (void)close(silent->fds[i]);
    }
}

/* Every error of a server that does not answer has its endpoint. */
static void no_answer(void **state)
{
    static const char *const backends[] = {"muster", "c10d",
#ifdef MST_WITH_ETCD
                                           "etcd-v2", "etcd-v3", "etcd"
#endif
    };
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof backends / sizeof backends[0]); i++) {
        struct silent silent;
        struct mst_status *status = NULL;
        struct mst_status_list *list = NULL;
        silent_open(&silent, i % 2 == 0);
        struct mst_params *params = params_of(backends[i / 2], silent.endpoint, "job");
        int rv = mst_status_job(params, SHORT_MS, &status, &err);
        assert_true(rv == MST_ETIMEOUT || rv == MST_ECONN);
        assert_non_null(strstr(err.msg, silent.endpoint));
        rv = mst_status_close(params, NULL, NULL, SHORT_MS, &err);
        assert_true(rv == MST_ETIMEOUT || rv == MST_ECONN);
        assert_non_null(strstr(err.msg, silent.endpoint));
        if (i < 2) {
            assert_fails(mst_status_jobs(silent.endpoint, SHORT_MS, &list, &err), MST_ETIMEOUT,
                         silent.endpoint);
        }
        mst_params_free(params);
        silent_close(&silent);
    }
}

static void without_memory(void **state)
{
    const struct fixture *f = *state;
    static const char *const backends[] = {"muster", "c10d"};
    for (size_t i = 0; i < 2; i++) {
        struct node node;
        node_open(&node, f, backends[i]);
        struct mst_params *params = params_of(backends[i], f->text, "job");
        bool has_failed = true;
        for (unsigned long nth = 1; has_failed; nth++) {
            struct mst_status *status = NULL;
            mst__mem_fail_nth(nth);
            int rv = mst_status_job(params, PLENTY_MS, &status, &err);
            has_failed = mst__mem_failed();
            mst__mem_fail_nth(0);
            assert_int_equal(rv, has_failed ? MST_ENOMEM : 0);
            mst_status_free(status);
        }
        mst_params_free(params);
        mst_handler_free(node.handler);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(job_of_each_backend, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(members_of_a_round, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(list_of_jobs, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(watching, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(closing, fixture_open, fixture_close),
        cmocka_unit_test(what_cannot_be_looked_at),
        cmocka_unit_test(no_answer),
        cmocka_unit_test_setup_teardown(without_memory, fixture_open, fixture_close),
    };
    return MST_RUN_TESTS(tests);
}
