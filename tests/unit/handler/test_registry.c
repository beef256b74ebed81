/* unit/handler/test_registry.c - backends by name, and calls on a handler whose backend has few
 * operations. */
#include "unit/store_unit.h"

#include <muster/backend.h>
#include <muster/status.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

static atomic_int alive; /* handlers that have been made and not freed */

static int toy_next(void *self,
                    int64_t timeout_ms,
                    struct mst_rendezvous *ret,
                    struct mst_err *reterr)
{
    assert_int_equal(timeout_ms, -1);
    (void)reterr;
    assert_int_equal(ret->size, sizeof *ret);
    ret->round = 7;
    ret->rank = 1;
    ret->world_size = 2;
    (void)snprintf(ret->master_addr, sizeof ret->master_addr, "%s", (const char *)self);
    ret->master_port = 29500;
    return mst_store_open("hash:", NULL, PLENTY_MS, &ret->store, reterr);
}

static void toy_free(void *self)
{
    (void)self;
    atomic_fetch_sub(&alive, 1);
}

static const char *toy_backend(void *self)
{
    return self;
}

static bool toy_use_agent_store(void *self)
{
    (void)self;
    return true;
}

static int toy_poll(void *self, int64_t timeout_ms, struct mst_changes *ret, struct mst_err *reterr)
{
    (void)self;
    (void)reterr;
    assert_int_equal(timeout_ms, 5);
    ret->nodes_waiting = 3;
    ret->closed = true;
    return 0;
}

static bool toy_closed; /* the job of toy-named is */

static int toy_set_closed(void *self, struct mst_err *reterr)
{
    (void)self;
    (void)reterr;
    toy_closed = true;
    return 0;
}

static int toy_is_closed(void *self, bool *ret, struct mst_err *reterr)
{
    (void)self;
    (void)reterr;
    *ret = toy_closed;
    return 0;
}

static int toy_nodes_waiting(void *self, int64_t *ret, struct mst_err *reterr)
{
    (void)self;
    (void)reterr;
    *ret = 3;
    return 0;
}

static const struct mst_handler_ops least_ops = {
    .size = sizeof least_ops,
    .next = toy_next,
    .free = toy_free,
};
static const struct mst_handler_ops named_ops = {
    .size = sizeof named_ops,
    .next = toy_next,
    .free = toy_free,
    .backend = toy_backend,
    .poll = toy_poll,
    .use_agent_store = toy_use_agent_store,
    .is_closed = toy_is_closed,
    .set_closed = toy_set_closed,
    .nodes_waiting = toy_nodes_waiting,
};

/* @arg is the operations; the handler's self is its name. */
static int create(const struct mst_params *params,
                  void *arg,
                  struct mst_handler **ret_handler,
                  struct mst_err *reterr)
{
    (void)params;
    static char name[] = "toy-named";
    int rv = mst_handler_wrap(arg, name, ret_handler, reterr);
    atomic_fetch_add(&alive, rv == 0 ? 1 : 0);
    return rv;
}

static int create_fails(const struct mst_params *params,
                        void *arg,
                        struct mst_handler **ret_handler,
                        struct mst_err *reterr)
{
    (void)params;
    (void)arg;
    (void)ret_handler;
    *reterr = (struct mst_err){.code = MST_ECONN, .msg = "nobody there"};
    return MST_ECONN;
}

static int create_nothing(const struct mst_params *params,
                          void *arg,
                          struct mst_handler **ret_handler,
                          struct mst_err *reterr)
{
    (void)params;
    (void)arg;
    (void)ret_handler;
    (void)reterr;
    return 0;
}

/* Add a backend that does not list its options. */
static int add(const char *name, mst_handler_creator creator, void *arg, struct mst_err *reterr)
{
    struct mst_backend backend;
    mst_backend_init(&backend, sizeof backend);
    backend.name = name;
    backend.creator = creator;
    backend.arg = arg;
    return mst_registry_add(&backend, reterr);
}

/* A custom backend says what it can do, and has a status as far as its handler knows it. */
static void custom_status(void **state)
{
    (void)state;
    struct mst_backend backend;
    mst_backend_init(&backend, sizeof backend);
    backend.name = "toy-named";
    backend.creator = create;
    backend.arg = (void *)(uintptr_t)&named_ops;
    backend.capabilities = MST_BACKEND_SHARED | MST_BACKEND_COMMANDS;
    assert_int_equal(mst_backend_capabilities("toy-named"), 0);
    assert_ok(mst_registry_add(&backend, &err));
    assert_int_equal(mst_backend_capabilities("toy-named"),
                     MST_BACKEND_SHARED | MST_BACKEND_COMMANDS);
    assert_int_equal(mst_backend_capabilities("static"), MST_BACKEND_SHARED | MST_BACKEND_GIVEN);
    assert_int_equal(mst_backend_capabilities(NULL), 0);
    struct mst_params *params = NULL;
    struct mst_status *status = NULL;
    assert_ok(unit_params("toy-named", "", "job", 1, 1, NULL, &params, &err));
    assert_ok(mst_status_job(params, PLENTY_MS, &status, &err));
    assert_true(status->exists);
    assert_int_equal(status->phase, MST_STATUS_OPEN);
    assert_string_equal(status->summary, "The rendezvous is open; 3 nodes wait for a round.");
    mst_status_free(status);
    assert_fails(mst_status_close(params, "why", NULL, PLENTY_MS, &err), MST_ENOTSUP, "a reason");
    assert_false(toy_closed);
    assert_ok(mst_status_close(params, NULL, NULL, PLENTY_MS, &err));
    assert_ok(mst_status_job(params, PLENTY_MS, &status, &err));
    assert_int_equal(status->phase, MST_STATUS_CLOSED);
    assert_int_equal(status->outcome, MST_OUTCOME_CLOSED);
    mst_status_free(status);
    mst_params_free(params);
    assert_int_equal(alive, 0);
}

static int make(const char *backend, struct mst_handler **ret_handler)
{
    struct mst_params *params = NULL;
    int rv = unit_params(backend, "", "job", 1, 1, NULL, &params, &err);
    if (rv == 0) {
        rv = mst_handler_new(params, ret_handler, &err);
    }
    mst_params_free(params);
    return rv;
}

static void adding(void **state)
{
    (void)state;
    void *least = (void *)(uintptr_t)&least_ops;
    void *named = (void *)(uintptr_t)&named_ops;
    assert_ok(add("toy", create, least, &err));
    assert_ok(add("toy", create, least, &err));
    assert_fails(add("toy", create_fails, least, &err), MST_EINVAL, "'toy'");
    assert_fails(add("toy", create, named, &err), MST_EINVAL, "'toy'");
    assert_fails(add("static", create, least, &err), MST_EINVAL, "'static'");
    assert_fails(add("", create, least, &err), MST_EINVAL, "name");
    assert_fails(add("none", NULL, NULL, &err), MST_EINVAL, "'none'");
    /* Failed attempts have changed nothing. */
    struct mst_handler *handler = NULL;
    assert_ok(make("toy", &handler));
    mst_handler_free(handler);
    assert_int_equal(atomic_load(&alive), 0);
}

static void making(void **state)
{
    (void)state;
    void *named = (void *)(uintptr_t)&named_ops;
    struct mst_handler *handler = NULL;
    assert_fails(make("zookeeper", &handler), MST_EINVAL, "unknown backend 'zookeeper'");
    assert_non_null(strstr(err.msg, "static"));
    assert_fails(make("statik", &handler), MST_EINVAL, "did you mean 'static'");
    assert_ok(add("toy-broken", create_fails, NULL, &err));
    assert_fails(make("toy-broken", &handler), MST_ECONN, "nobody there");
    assert_ok(add("toy-empty", create_nothing, NULL, &err));
    assert_fails(make("toy-empty", &handler), MST_EINVAL, "no handler");
    /* A handler must have the requested name; another one is freed again. */
    assert_ok(add("toy-alias", create, named, &err));
    assert_fails(make("toy-alias", &handler), MST_EINVAL, "'toy-alias' calls itself 'toy-named'");
    assert_int_equal(atomic_load(&alive), 0);
    assert_null(handler);
    assert_ok(add("toy-named", create, named, &err));
    assert_ok(make("toy-named", &handler));
    assert_int_equal(atomic_load(&alive), 1);
    assert_string_equal(mst_handler_backend(handler), "toy-named");
    assert_string_equal(mst_handler_run_id(handler), "job");
    assert_true(mst_handler_use_agent_store(handler));
    mst_handler_free(handler);
    assert_int_equal(atomic_load(&alive), 0);
}

static void calls(void **state)
{
    (void)state;
    struct mst_handler *handler = NULL;
    assert_ok(add("toy-named", create, (void *)(uintptr_t)&named_ops, &err));
    assert_ok(make("toy-named", &handler));
    struct mst_rendezvous got = {.size = sizeof got};
    assert_ok(mst_handler_next(handler, -1, &got, &err));
    assert_int_equal(got.round, 7);
    assert_int_equal(got.rank, 1);
    assert_int_equal(got.world_size, 2);
    assert_string_equal(got.master_addr, "toy-named");
    assert_int_equal(got.master_port, 29500);
    assert_non_null(got.store);
    mst_store_close(got.store);
    /* A caller that knows less gets less, and nothing leaks. */
    struct mst_rendezvous less = {.size = offsetof(struct mst_rendezvous, store), .master_port = 1};
    assert_ok(mst_handler_next(handler, -1, &less, &err));
    assert_int_equal(less.world_size, 2);
    assert_int_equal(less.size, offsetof(struct mst_rendezvous, store));
    assert_int_equal(less.master_port, 1);
    less.size = 0;
    assert_fails(mst_handler_next(handler, -1, &less, &err), MST_EINVAL, "mst_rendezvous_init");
    /* A newer caller finds zeros in fields that this library does not know. */
    struct {
        struct mst_rendezvous known;
        uint64_t unknown;
    } more = {.unknown = 5};
    mst_rendezvous_init(&more.known, sizeof more);
    more.unknown = 5;
    assert_ok(mst_handler_next(handler, -1, &more.known, &err));
    assert_int_equal(more.known.size, sizeof more);
    assert_int_equal(more.known.world_size, 2);
    assert_int_equal(more.unknown, 0);
    mst_store_close(more.known.store);
    struct mst_changes changes;
    mst_changes_init(&changes, sizeof changes);
    assert_ok(mst_handler_poll(handler, 5, &changes, &err));
    assert_int_equal(changes.nodes_waiting, 3);
    assert_true(changes.closed);
    changes.size = 3;
    assert_fails(mst_handler_poll(handler, 5, &changes, &err), MST_EINVAL, "mst_changes_init");
    mst_handler_free(handler);
    mst_handler_free(NULL);
}

/* A backend that lists its options: others are refused before the creator is called. */
static void options_of_a_backend(void **state)
{
    (void)state;
    char first[] = "first";
    const char *options[] = {first, "second"};
    struct {
        struct mst_backend known;
        int unknown;
    } backend;
    mst_backend_init(&backend.known, sizeof backend);
    backend.known.name = "toy-options";
    backend.known.creator = create;
    backend.known.arg = (void *)(uintptr_t)&least_ops;
    backend.known.options = options;
    backend.known.options_count = 2;
    backend.unknown = 1;
    assert_fails(mst_registry_add(&backend.known, &err), MST_ENOTSUP, "newer");
    backend.unknown = 0;
    assert_ok(mst_registry_add(&backend.known, &err));
    first[0] = 'F'; /* it was copied */
    options[1] = NULL;
    size_t count = 0;
    const char *const *names = mst_backend_options("toy-options", &count);
    assert_int_equal(count, 2);
    assert_string_equal(names[0], "first");
    assert_string_equal(names[1], "second");

    struct mst_params *params = NULL;
    struct mst_handler *handler = NULL;
    assert_ok(unit_params("toy-options", "", "job", 1, 1, NULL, &params, &err));
    assert_ok(mst_params_set(params, "second", "x", &err));
    assert_ok(mst_handler_new(params, &handler, &err));
    mst_handler_free(handler);
    assert_ok(mst_params_set(params, "secnd", "x", &err));
    assert_fails(mst_handler_new(params, &handler, &err), MST_EINVAL, "did you mean 'second'?");
    mst_params_unset(params, "secnd");
    assert_ok(mst_handler_new(params, &handler, &err));
    mst_handler_free(handler);
    mst_params_free(params);
}

/* A binding needs this to pass only known options. */
static void options_of_all_backends(void **state)
{
    (void)state;
    static const struct {
        const char *backend, *option;
    } cases[] = {
        {"muster", "node_name"},          {"c10d", "store_type"}, {"static", "rank"},
#ifdef MST_WITH_ETCD
        {"etcd-v2", "heartbeat_timeout"}, {"etcd-v3", "labels"},  {"etcd", "etcd_prefix"},
#endif
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t count = 0;
        const char *const *names = mst_backend_options(cases[i].backend, &count);
        size_t found = 0;
        for (size_t at = 0; at < count; at++) {
            found += strcmp(names[at], cases[i].option) == 0 ? 1 : 0;
        }
        assert_int_equal(found, 1);
    }
    size_t count = 1;
    assert_null(mst_backend_options("no-such", &count));
    assert_int_equal(count, 0);
    assert_null(mst_backend_options(NULL, &count));
    assert_ok(add("toy", create, (void *)(uintptr_t)&least_ops, &err));
    assert_null(mst_backend_options("toy", &count)); /* it does not say */
}

/* Without an operation no node waits, nothing is closed, there is no fd. */
static void silent_backend(void **state)
{
    (void)state;
    struct mst_handler *handler = NULL;
    assert_ok(add("toy", create, (void *)(uintptr_t)&least_ops, &err));
    assert_ok(make("toy", &handler));
    assert_string_equal(mst_handler_backend(handler), "toy");
    assert_string_equal(mst_handler_run_id(handler), "job");
    bool closed = true;
    int64_t waiting = 1;
    assert_ok(mst_handler_is_closed(handler, &closed, &err));
    assert_false(closed);
    assert_ok(mst_handler_nodes_waiting(handler, &waiting, &err));
    assert_int_equal(waiting, 0);
    assert_ok(mst_handler_set_closed(handler, &err));
    assert_ok(mst_handler_shutdown(handler, &err));
    assert_int_equal(mst_handler_fd(handler), -1);
    assert_false(mst_handler_use_agent_store(handler));
    mst_handler_cancel(handler);
    struct mst_changes changes = {.size = sizeof changes, .nodes_waiting = 5};
    int64_t start_ms = mst__clock_ms();
    assert_fails(mst_handler_poll(handler, SHORT_MS, &changes, &err), MST_ETIMEOUT, "");
    assert_true(mst__clock_ms() - start_ms >= SHORT_MS);
    assert_int_equal(changes.nodes_waiting, 0);
    mst_handler_free(handler);
}

static void wrapping(void **state)
{
    (void)state;
    struct mst_handler *handler = NULL;
    static char name[] = "toy-named";
    /* A newer program's operations may have more entries, if this library need not call them. */
    struct {
        struct mst_handler_ops known;
        void (*unknown)(void);
    } more;
    mst_handler_ops_init(&more.known, sizeof more);
    more.known = named_ops;
    more.known.size = sizeof more;
    assert_ok(mst_handler_wrap(&more.known, name, &handler, &err));
    atomic_fetch_add(&alive, 1);
    mst_handler_free(handler);
    more.unknown = abort;
    assert_fails(mst_handler_wrap(&more.known, name, &handler, &err), MST_ENOTSUP, "newer");
    struct mst_handler_ops ops = least_ops;
    ops.size = offsetof(struct mst_handler_ops, free);
    assert_fails(mst_handler_wrap(&ops, NULL, &handler, &err), MST_EINVAL, "next and free");
    ops.size = sizeof ops;
    ops.free = NULL;
    assert_fails(mst_handler_wrap(&ops, NULL, &handler, &err), MST_EINVAL, "next and free");
    /* An older program's operations end earlier; memory behind them is not read. */
    ops = named_ops;
    ops.size = offsetof(struct mst_handler_ops, poll);
    assert_ok(mst_handler_wrap(&ops, name, &handler, &err));
    atomic_fetch_add(&alive, 1);
    assert_string_equal(mst_handler_backend(handler), "toy-named");
    assert_false(mst_handler_use_agent_store(handler));
    mst_handler_free(handler);
    assert_int_equal(atomic_load(&alive), 0);
}

/* --- threads --- */

#define THREADS 4
#define NAMES 8

static void *add_and_make(void *arg)
{
    int *failures = arg;
    for (int i = 0; i < NAMES; i++) {
        char name[32];
        struct mst_handler *handler = NULL;
        struct mst_params *params = NULL;
        (void)snprintf(name, sizeof name, "shared-%d", i);
        if (add(name, create, (void *)(uintptr_t)&least_ops, NULL) != 0 ||
            unit_params(name, "", "job", 1, 1, NULL, &params, NULL) != 0 ||
            mst_handler_new(params, &handler, NULL) != 0) {
            (*failures)++;
        }
        mst_params_free(params);
        mst_handler_free(handler);
    }
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    pthread_t ids[THREADS];
    int failures[THREADS] = {0};
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&ids[i], NULL, add_and_make, &failures[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(ids[i], NULL), 0);
        assert_int_equal(failures[i], 0);
    }
    assert_int_equal(atomic_load(&alive), 0);
}

static void out_of_memory(void **state)
{
    (void)state;
    struct mst_params *params = NULL;
    assert_ok(add("toy", create, (void *)(uintptr_t)&least_ops, &err));
    assert_ok(unit_params("toy", "", "job", 1, 1, NULL, &params, &err));
    bool failed = true;
    unsigned long nth = 1;
    for (; failed; nth++) {
        struct mst_handler *handler = NULL;
        mst__mem_fail_nth(nth);
        int rv = mst_handler_new(params, &handler, NULL);
        failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        assert_int_equal(rv, failed ? MST_ENOMEM : 0);
        mst_handler_free(handler);
        assert_int_equal(atomic_load(&alive), 0);
    }
    assert_int_equal(nth, 8);
    mst_params_free(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(custom_status),
        cmocka_unit_test(adding),
        cmocka_unit_test(making),
        cmocka_unit_test(calls),
        cmocka_unit_test(wrapping),
        cmocka_unit_test(silent_backend),
        cmocka_unit_test(options_of_a_backend),
        cmocka_unit_test(options_of_all_backends),
        cmocka_unit_test(threads),
        cmocka_unit_test(out_of_memory),
    };
    return MST_RUN_TESTS(tests);
}
