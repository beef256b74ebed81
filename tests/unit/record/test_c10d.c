/* unit/record/test_c10d.c - the record in a c10d store: keys, sentinel, compare-and-set, waiting
 * for a change; and which node serves the store. */
#include "unit/store_unit.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/until.h"
#include "handler/host.h"
#include "handler/hosted.h"
#include "record/c10d.h"
#include "store/store.h"

#define KEY "torch.rendezvous.job"
#define SENTINEL "Y2FuaW1hZGFt"

/* --- fixture: a server, a file, and backends --- */

struct fixture {
    struct mst__hosted *hosted;
    char path[64];
    char urls[3][MST_HOSTED_URL_SIZE]; /* hash, tcp, file */
};
enum { HASH, TCP, FILE_ };

static int fixture_open(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    struct mst__endpoint endpoint = {.host = "127.0.0.1", .port = 0};
    struct mst_log log = {0};
    assert_ok(mst__hosted_start(&endpoint, &log, &f->hosted, &err));
    (void)snprintf(f->path, sizeof f->path, "/tmp/muster-test-XXXXXX");
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    (void)snprintf(f->urls[HASH], sizeof f->urls[HASH], "hash:");
    (void)mst__hosted_url(f->hosted, f->urls[TCP]);
    (void)snprintf(f->urls[FILE_], sizeof f->urls[FILE_], "file://%s", f->path);
    *state = f;
    return 0;
}

static int fixture_close(void **state)
{
    struct fixture *f = *state;
    mst__hosted_stop(f->hosted);
    assert_int_equal(unlink(f->path), 0);
    free(f);
    return 0;
}

/* A home on a new handle of @store's. */
static struct mst__record_home new_home(struct mst_store *store)
{
    struct mst_store *view = NULL;
    struct mst__record_home home;
    assert_ok(mst__store_new(store->storage, mst_bytes_str(store->storage->key_root), false, &view,
                             &err));
    assert_ok(mst__c10d_home_new(view, "job", "here", PLENTY_MS, &home, &err));
    return home;
}

static struct mst__until soon(void)
{
    return mst__until_in(PLENTY_MS);
}

static void stored_free(struct mst__stored *stored)
{
    mst_buffer_free(&stored->record);
    mst_buffer_free(&stored->token);
}

static struct mst_bytes bytes_of(const struct mst_buffer *buffer)
{
    return mst_bytes_of(buffer->data, buffer->size);
}

static struct mst__stored get(const struct mst__record_home *home)
{
    struct mst__stored stored = {0};
    assert_ok(home->ops->get_state(home->self, soon(), &stored, &err));
    return stored;
}

/* Store @text under @token, or NULL; whether that won. */
static bool set(const struct mst__record_home *home,
                const char *text,
                const struct mst_buffer *token,
                struct mst__stored *ret_stored)
{
    bool won = false;
    struct mst_bytes bytes = token == NULL ? mst_bytes_of(NULL, 0) : bytes_of(token);
    *ret_stored = (struct mst__stored){0};
    assert_ok(home->ops->set_state(home->self, STR(text), token == NULL ? NULL : &bytes, false,
                                   soon(), &won, ret_stored, &err));
    return won;
}

/* --- the record --- */

static void record_in(const char *url)
{
    struct mst_store *store = open_store(url);
    struct mst__record_home home = new_home(store);
    struct mst__stored stored = get(&home);
    assert_false(stored.exists);
    assert_value(store, KEY, STR(SENTINEL));

    struct mst__stored first;
    assert_true(set(&home, "one", NULL, &first));
    assert_value(store, KEY, STR("b25l"));
    assert_bytes_str(bytes_of(&first.token), "b25l");

    stored = get(&home);
    assert_true(stored.exists);
    assert_bytes_str(bytes_of(&stored.record), "one");
    assert_bytes_str(bytes_of(&stored.token), "b25l");
    stored_free(&stored);

    /* There is a record, so without a token nothing is stored. */
    assert_false(set(&home, "two", NULL, &stored));
    assert_true(stored.exists);
    assert_bytes_str(bytes_of(&stored.record), "one");
    stored_free(&stored);

    struct mst__stored second;
    assert_true(set(&home, "two!", &first.token, &second));
    assert_value(store, KEY, STR("dHdvIQ=="));
    assert_false(set(&home, "three", &first.token, &stored));
    assert_bytes_str(bytes_of(&stored.record), "two!");
    assert_bytes_str(bytes_of(&stored.token), "dHdvIQ==");
    stored_free(&stored);

    /* The store was wiped: nothing is stored under a token, and the sentinel is there again. */
    bool existed = false;
    assert_ok(mst_store_delete(store, STR(KEY), PLENTY_MS, &existed, &err));
    assert_true(existed);
    assert_false(set(&home, "three", &second.token, &stored));
    assert_false(stored.exists);
    assert_value(store, KEY, STR(SENTINEL));
    assert_false(set(&home, "three", &second.token, &stored));
    assert_false(stored.exists);
    assert_null(stored.token.data);
    stored_free(&first);
    stored_free(&second);

    /* A record that another one has put into the wiped store is found, too. */
    assert_ok(mst_store_delete(store, STR(KEY), PLENTY_MS, &existed, &err));
    stored = get(&home);
    assert_false(stored.exists);
    assert_true(set(&home, "four", NULL, &stored));
    stored_free(&stored);

    home.ops->close(home.self);
    mst_store_close(store);
}

static void record_in_each_store(void **state)
{
    struct fixture *f = *state;
    for (int i = HASH; i <= FILE_; i++) {
        record_in(f->urls[i]);
    }
}

static void what_is_no_base64(void **state)
{
    (void)state;
    struct mst_store *store = open_store("hash:");
    struct mst__record_home home = new_home(store);
    struct mst__stored stored = {0};
    assert_ok(mst_store_set(store, STR(KEY), STR("abcde"), PLENTY_MS, &err));
    assert_fails(home.ops->get_state(home.self, soon(), &stored, &err), MST_ESTATE, KEY);
    bool won = false;
    assert_fails(home.ops->set_state(home.self, STR("x"), NULL, false, soon(), &won, &stored, &err),
                 MST_ESTATE, "here");
    assert_null(stored.record.data);
    /* Characters outside the alphabet do not count, as with the peers. */
    assert_ok(mst_store_set(store, STR(KEY), STR("b2\n5l"), PLENTY_MS, &err));
    stored = get(&home);
    assert_bytes_str(bytes_of(&stored.record), "one");
    assert_bytes_str(bytes_of(&stored.token), "b2\n5l");
    stored_free(&stored);
    home.ops->close(home.self);
    mst_store_close(store);
}

/* Every allocation of a read and of a write fails once. */
static void record_without_memory(void **state)
{
    (void)state;
    struct mst_store *store = open_store("hash:");
    struct mst__record_home home = new_home(store);
    unsigned long failures = 0;
    for (unsigned long nth = 1;; nth++) {
        struct mst__stored stored = {0};
        bool won = false;
        mst__mem_fail_nth(nth);
        int rv = home.ops->get_state(home.self, soon(), &stored, NULL);
        if (rv == 0) {
            struct mst_bytes token = bytes_of(&stored.token);
            struct mst__stored written = {0};
            rv = home.ops->set_state(home.self, STR("one"), stored.exists ? &token : NULL, false,
                                     soon(), &won, &written, NULL);
            stored_free(&written);
        }
        bool failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        stored_free(&stored);
        if (!failed) {
            assert_int_equal(rv, 0);
            break;
        }
        assert_int_equal(rv, MST_ENOMEM);
        failures++;
    }
    assert_true(failures > 3);
    home.ops->close(home.self);
    mst_store_close(store);
}

/* --- changes --- */

struct waiter {
    pthread_t thread;
    const struct mst__record_home *home;
    const struct mst_bytes *token;
    int wake_fd;
    int rv;
};

static void *wait_change(void *arg)
{
    struct waiter *waiter = arg;
    struct mst_err ignored;
    struct mst__until until = mst__until_by(waiter->wake_fd, PLENTY_MS);
    waiter->rv =
        waiter->home->ops->wait_change(waiter->home->self, waiter->token, 0, until, &ignored);
    return NULL;
}

static int waited(struct waiter *waiter)
{
    assert_int_equal(pthread_join(waiter->thread, NULL), 0);
    return waiter->rv;
}

static void change_in(const char *url)
{
    struct mst_store *store = open_store(url);
    struct mst__record_home home = new_home(store);
    struct mst__stored stored = get(&home);
    assert_fails(home.ops->wait_change(home.self, NULL, 0, mst__until_in(SHORT_MS), &err),
                 MST_ETIMEOUT, KEY);

    struct waiter waiter = {.home = &home, .wake_fd = -1};
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_change, &waiter), 0);
    assert_true(set(&home, "one", NULL, &stored));
    assert_int_equal(waited(&waiter), 0);

    struct mst_bytes token = bytes_of(&stored.token);
    assert_ok(home.ops->wait_change(home.self, NULL, 0, soon(), &err));
    waiter.token = &token;
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_change, &waiter), 0);
    struct mst__stored second;
    assert_true(set(&home, "two", &stored.token, &second));
    assert_int_equal(waited(&waiter), 0);
    stored_free(&stored);

    /* Interrupted, and afterwards everything works as before. */
    token = bytes_of(&second.token);
    waiter.wake_fd = eventfd(1, EFD_CLOEXEC);
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_change, &waiter), 0);
    assert_int_equal(waited(&waiter), MST_ECANCELED);
    assert_int_equal(close(waiter.wake_fd), 0);
    waiter.wake_fd = -1;
    assert_fails(home.ops->wait_change(home.self, &token, 0, mst__until_in(SHORT_MS), &err),
                 MST_ETIMEOUT, KEY);
    stored_free(&second);

    /* Under a prefix it is the prefixed key. */
    struct mst_store *view = NULL;
    assert_ok(mst_store_prefix(store, STR("p"), &view, &err));
    assert_ok(mst_store_set(store, STR("p/k"), STR("v"), PLENTY_MS, &err));
    struct mst_bytes value = STR("v");
    assert_fails(mst__store_wait_change(view, STR("k"), &value, mst__until_in(SHORT_MS), &err),
                 MST_ETIMEOUT, "k");
    value = STR("w");
    assert_ok(mst__store_wait_change(view, STR("k"), &value, soon(), &err));
    assert_ok(mst__store_wait_change(view, STR("k"), NULL, soon(), &err));
    mst_store_close(view);
    home.ops->close(home.self);
    mst_store_close(store);
}

static void changes_are_told(void **state)
{
    struct fixture *f = *state;
    change_in(f->urls[HASH]);
    change_in(f->urls[TCP]);
}

static void files_tell_nothing(void **state)
{
    struct fixture *f = *state;
    struct mst_store *store = open_store(f->urls[FILE_]);
    assert_fails(mst__store_wait_change(store, STR("k"), NULL, soon(), &err), MST_ENOTSUP, "file");
    mst_store_close(store);
}

/* Return when another thread has the only connection of @store. */
static void await_connection_taken(struct mst_store *store)
{
    struct mst_store_stats stats = {.size = sizeof stats};
    struct mst__until until = soon();
    do {
        assert_value(store, KEY, STR(SENTINEL));
        assert_int_equal(mst_store_get_stats(store, &stats), 0);
        assert_true(!mst__until_is_over(until));
    } while (stats.connects < 2);
}

/* A server that goes away ends the wait, and the next wait learns what the next server supports. */
static void wait_outlives_no_server(void **state)
{
    struct fixture *f = *state;
    struct mst_store *store = open_store(f->urls[TCP]);
    struct mst__record_home home = new_home(store);
    struct mst__stored stored = get(&home);
    assert_false(stored.exists);
    assert_ok(home.ops->wait_change(home.self, &(struct mst_bytes){NULL, 0}, 0, soon(), &err));
    struct waiter waiter = {.home = &home, .wake_fd = -1};
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_change, &waiter), 0);
    await_connection_taken(store);
    struct mst__endpoint endpoint = {.host = "127.0.0.1"};
    endpoint.port = (uint16_t)mst__hosted_port(f->hosted);
    mst__hosted_stop(f->hosted);
    assert_int_equal(waited(&waiter), MST_ECONN);
    struct mst_log log = {0};
    assert_ok(mst__hosted_start(&endpoint, &log, &f->hosted, &err));
    /* The key is gone, which is a change. */
    assert_ok(home.ops->wait_change(home.self, NULL, 0, soon(), &err));
    stored = get(&home);
    assert_false(stored.exists);
    home.ops->close(home.self);
    mst_store_close(store);
}

/* --- who serves --- */

static struct mst_params *new_params(const char *endpoint, const char *options)
{
    struct mst_params *params = NULL;
    assert_ok(unit_params("c10d", endpoint, "job", 1, 1, NULL, &params, &err));
    assert_ok(mst_params_parse(params, options, &err));
    return params;
}

static struct mst_handler *new_handler(const char *endpoint, const char *options)
{
    struct mst_handler *handler = NULL;
    struct mst_params *params = new_params(endpoint, options);
    assert_ok(mst_handler_new(params, &handler, &err));
    mst_params_free(params);
    return handler;
}

/* Join alone and see that the record is in the store at @url. */
static void join_alone(struct mst_handler *handler, const char *url)
{
    struct mst_rendezvous got = {.size = sizeof got};
    assert_ok(mst_handler_next(handler, -1, &got, &err));
    assert_int_equal(got.world_size, 1);
    mst_store_close(got.store);
    if (url != NULL) {
        struct mst_store *store = open_store(url);
        struct mst_buffer value = {0};
        assert_ok(mst_store_try_get(store, STR(KEY), PLENTY_MS, &value, &err));
        assert_true(value.size > sizeof SENTINEL);
        mst_buffer_free(&value);
        mst_store_close(store);
    }
}

static void port_of_somebody_else(void **state)
{
    struct fixture *f = *state;
    char endpoint[64];
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", mst__hosted_port(f->hosted));
    /* The endpoint is here but taken: a client like the others. */
    struct mst_handler *handler = new_handler(endpoint, "");
    join_alone(handler, f->urls[TCP]);
    mst_handler_free(handler);
    /* Unless it must serve. */
    static const char *const options[] = {"is_host=true", "serve=always"};
    for (size_t i = 0; i < 2; i++) {
        struct mst_params *params = new_params(endpoint, options[i]);
        handler = NULL;
        assert_fails(mst_handler_new(params, &handler, &err), MST_ECONN, "must serve");
        assert_null(handler);
        mst_params_free(params);
    }
}

struct guest {
    struct mst__c10d settings;
    struct mst_params *params;
    struct mst__hosted *hosted;
    pthread_t thread;
    int rv;
};

static void *decide_who_serves(void *arg)
{
    struct guest *guest = arg;
    struct mst__endpoint endpoint;
    bool is_open = false;
    guest->rv = mst__hosted_begin(&guest->settings, guest->params, mst__until_in(PLENTY_MS),
                                  &guest->hosted, &endpoint, &is_open, NULL);
    return NULL;
}

/* A server that starts after the node has looked and before it has waited: the node is a client. */
static void gives_way(void **state)
{
    (void)state;
    struct mst_log log = {0};
    int held_fd = -1;
    struct mst__endpoint endpoint = {.host = "127.0.0.1", .port = hold_port(&held_fd)};
    struct mst__hosted *server = NULL;
    char text[MST_ENDPOINT_TEXT_SIZE];
    struct guest guest = {
        .params = new_params(mst__endpoint_format(&endpoint, text), ""),
        .settings = {.endpoint = endpoint, .give_way_ms = PLENTY_MS},
    };
    assert_int_equal(pthread_create(&guest.thread, NULL, decide_who_serves, &guest), 0);
    (void)poll(NULL, 0, 50); /* a node that does not wait has the port by now */
    assert_ok(mst__hosted_start(&endpoint, &log, &server, &err));
    assert_int_equal(pthread_join(guest.thread, NULL), 0);
    assert_int_equal(guest.rv, 0);
    assert_null(guest.hosted);
    mst__hosted_stop(server);
    /* No other server comes: it serves after all. */
    guest.settings.give_way_ms = 1;
    (void)decide_who_serves(&guest);
    assert_int_equal(guest.rv, 0);
    assert_non_null(guest.hosted);
    mst__hosted_stop(guest.hosted);
    mst_params_free(guest.params);
    assert_int_equal(close(held_fd), 0);
}

static void free_port(void **state)
{
    (void)state;
    struct mst_handler *handler = new_handler("localhost:0", "");
    join_alone(handler, NULL);
    mst_handler_free(handler);
    struct mst_params *params = new_params("localhost:0", "is_host=0");
    handler = NULL;
    assert_fails(mst_handler_new(params, &handler, &err), MST_EINVAL, "port 0");
    mst_params_free(params);
}

static void in_a_file(void **state)
{
    struct fixture *f = *state;
    struct mst_handler *handler = new_handler(f->path, "store_type=file");
    join_alone(handler, f->urls[FILE_]);
    mst_handler_free(handler);
    /* Without a path it is a temporary one, which goes with the handler. */
    char directory[] = "/tmp/muster-c10d-XXXXXX";
    const char *before = getenv("TMPDIR");
    char *kept = before == NULL ? NULL : strdup(before);
    assert_non_null(mkdtemp(directory));
    assert_int_equal(setenv("TMPDIR", directory, 1), 0);
    handler = new_handler("", "store_type=FILE");
    assert_int_equal(kept == NULL ? unsetenv("TMPDIR") : setenv("TMPDIR", kept, 1), 0);
    free(kept);
    join_alone(handler, NULL);
    assert_int_equal(rmdir(directory), -1);
    mst_handler_free(handler);
    assert_int_equal(rmdir(directory), 0);
}

static void creation_without_memory(void **state)
{
    struct fixture *f = *state;
    char endpoint[64];
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", mst__hosted_port(f->hosted));
    struct mst_params *params = new_params(endpoint, "is_host=0");
    unsigned long failures = 0;
    for (unsigned long nth = 1;; nth++) {
        struct mst_handler *handler = NULL;
        mst__mem_fail_nth(nth);
        int rv = mst_handler_new(params, &handler, NULL);
        bool failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        if (!failed) {
            assert_int_equal(rv, 0);
            mst_handler_free(handler);
            break;
        }
        assert_int_equal(rv, MST_ENOMEM);
        assert_null(handler);
        failures++;
    }
    assert_true(failures > 5);
    mst_params_free(params);
}

/* Numbers of this process: in order, and as short as peers write theirs. */
static void names_of_nodes(void **state)
{
    (void)state;
    int64_t first = mst__host_local_id();
    assert_in_range(first, 1, 1 << 30);
    assert_int_equal(mst__host_local_id(), first + 1);
    char name[64];
    char wanted[64];
    mst__host_node_name(NULL, "node7", sizeof name, name);
    (void)snprintf(wanted, sizeof wanted, "node7_%ld_%lld", (long)getpid(), (long long)first + 2);
    assert_string_equal(name, wanted);
    mst__host_node_name("given", "node7", sizeof name, name);
    assert_string_equal(name, "given");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(record_in_each_store, fixture_open, fixture_close),
        cmocka_unit_test(what_is_no_base64),
        cmocka_unit_test(record_without_memory),
        cmocka_unit_test_setup_teardown(changes_are_told, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(files_tell_nothing, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(wait_outlives_no_server, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(port_of_somebody_else, fixture_open, fixture_close),
        cmocka_unit_test(gives_way),
        cmocka_unit_test(free_port),
        cmocka_unit_test(names_of_nodes),
        cmocka_unit_test_setup_teardown(in_a_file, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(creation_without_memory, fixture_open, fixture_close),
    };
    return MST_RUN_TESTS(tests);
}
