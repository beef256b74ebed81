/* unit/handler/test_fork.c - what a forked child inherits of a process with handlers, stores and
 * servers: no descriptor, and objects that refuse to work and can be released. The parent notices
 * nothing. */
#include <errno.h>
#include <fcntl.h>
#include <muster/server.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fork.h"
#include "unit/node_unit.h"
#include "unit/server_unit.h"

#define FDS_MAX 1024

/* --- the descriptors of this process --- */

struct fds {
    char target[FDS_MAX][64]; /* "" = not open; "socket:[1234]", "anon_inode:[eventfd]" */
};

static void fds_look(struct fds *fds)
{
    for (int fd = 0; fd < FDS_MAX; fd++) {
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t size = readlink(path, fds->target[fd], sizeof fds->target[fd] - 1);
        fds->target[fd][size < 0 ? 0 : size] = '\0';
    }
}

static bool fds_have(const struct fds *fds, const char *target)
{
    bool has = false;
    for (int fd = 0; fd < FDS_MAX; fd++) {
        has = has || strcmp(fds->target[fd], target) == 0;
    }
    return has;
}

/* Say on standard error which descriptors are open here, were in the @parent, and were not
 * @before. Returns how many there are. libuv makes a new pipe in every child. */
static int fds_count_inherited(const struct fds *before, const struct fds *parent)
{
    static struct fds here;
    int count = 0;
    fds_look(&here);
    for (int fd = 0; fd < FDS_MAX; fd++) {
        const char *target = here.target[fd];
        if (target[0] != '\0' && before->target[fd][0] == '\0' && fds_have(parent, target)) {
            (void)fprintf(stderr, "the child has descriptor %d: %s\n", fd, target);
            count++;
        }
    }
    return count;
}

/* --- a process that has one of everything --- */

struct everything {
    struct fds before;
    struct fixture *f; /* a hosted server */
    struct node nodes[2];
    struct mst_server *server; /* one of our own, with a page; it runs in a thread */
    pthread_t thread;
    struct mst_store *stores[3]; /* a thread waits on each for "key" */
    pthread_t waiters[3];
};

static void *serve(void *arg)
{
    return mst_server_run(arg, NULL) == 0 ? NULL : arg;
}

static void *wait_for_key(void *arg)
{
    struct mst_bytes key = STR("key");
    return mst_store_wait(arg, &key, 1, PLENTY_MS, NULL) == 0 ? NULL : arg;
}

static void open_server(struct everything *all)
{
    const char *hosts[] = {"127.0.0.1"};
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    options.hosts = hosts;
    options.hosts_count = 1;
    options.port = 0;
    options.http_address = "127.0.0.1:0";
    int rv = mst_server_new(&options, &all->server, &err);
    if (rv == MST_ENOTSUP) { /* built without http */
        options.http_address = NULL;
        rv = mst_server_new(&options, &all->server, &err);
    }
    assert_ok(rv);
    assert_int_equal(pthread_create(&all->thread, NULL, serve, all->server), 0);
}

static void open_everything(struct everything *all)
{
    static char path[] = "/tmp/muster-fork-XXXXXX";
    char urls[3][128] = {"", "hash:", ""};
    void *state = NULL;
    (void)fixture_open(&state); /* libuv keeps a pipe from the first loop on */
    (void)fixture_close(&state);
    fds_look(&all->before);
    (void)fixture_open(&state);
    all->f = state;
    open_server(all);
    for (size_t i = 0; i < 2; i++) {
        struct mst_params *params =
            node_params("muster", all->f->text, 2, 2, NULL,
                        "is_host=0,last_call_timeout=50ms,keep_alive_interval=60,join_timeout=30");
        assert_ok(mst_handler_new(params, &all->nodes[i].handler, &err));
        mst_params_free(params);
        node_start(&all->nodes[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_ok(node_join(&all->nodes[i]));
        assert_ok(mst_store_set(all->nodes[i].got.store, STR("mine"), STR("1"), PLENTY_MS, &err));
    }
    (void)snprintf(urls[0], sizeof urls[0], "tcp://%s", all->f->text);
    assert_non_null(mkdtemp(path));
    (void)snprintf(urls[2], sizeof urls[2], "file://%s/store", path);
    for (size_t i = 0; i < 3; i++) {
        all->stores[i] = open_store(urls[i]);
        assert_ok(mst_store_set(all->stores[i], STR("first"), STR("1"), PLENTY_MS, &err));
        assert_int_equal(pthread_create(&all->waiters[i], NULL, wait_for_key, all->stores[i]), 0);
    }
}

/* It still works, as if nobody had forked. */
static void use_everything(struct everything *all)
{
    for (size_t i = 0; i < 3; i++) {
        void *failed = NULL;
        assert_ok(mst_store_set(all->stores[i], STR("key"), STR("v"), PLENTY_MS, &err));
        assert_int_equal(pthread_join(all->waiters[i], &failed), 0);
        assert_null(failed);
        mst_store_close(all->stores[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_value(all->nodes[i].got.store, "mine", STR("1"));
        assert_false(glance(all->nodes[i].handler).expelled);
        assert_int_equal(glance(all->nodes[i].handler).participants_lost, 0);
    }
    char url[64];
    (void)snprintf(url, sizeof url, "tcp://127.0.0.1:%d", mst_server_port(all->server));
    struct mst_store *store = open_store(url);
    assert_ok(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err));
    mst_store_close(store);
}

static void close_everything(struct everything *all)
{
    for (size_t i = 0; i < 2; i++) {
        mst_handler_free(all->nodes[i].handler);
        mst_store_close(all->nodes[i].got.store);
    }
    mst_server_stop(all->server);
    void *failed = NULL;
    assert_int_equal(pthread_join(all->thread, &failed), 0);
    assert_null(failed);
    mst_server_free(all->server);
    void *f = all->f;
    (void)fixture_close(&f);
}

/* --- the child --- */

static int count_calls_that_work(struct everything *all)
{
    int count = 0;
    struct mst_err told = {0};
    struct mst_changes changes = {.size = sizeof changes};
    count += mst_handler_poll(all->nodes[0].handler, 0, &changes, &told) != MST_EINVAL ||
             strstr(told.msg, "another process") == NULL;
    count += mst_store_set(all->nodes[0].got.store, STR("mine"), STR("2"), PLENTY_MS, &told) !=
                 MST_EINVAL ||
             strstr(told.msg, "another process") == NULL;
    count += mst_server_run(all->server, &told) != MST_EINVAL ||
             strstr(told.msg, "another process") == NULL;
    mst_handler_cancel(all->nodes[0].handler);
    mst_server_stop(all->server);
    mst_server_dump(all->server);
    for (size_t i = 0; i < 3; i++) {
        count +=
            mst_store_set(all->stores[i], STR("key"), STR("2"), PLENTY_MS, &told) != MST_EINVAL;
        mst_store_interrupt(all->stores[i]);
    }
    return count;
}

/* Release what the child has inherited; the numbers of its descriptors belong to other files by
 * now, which nothing may close or write to. Returns how many were. */
static int count_disturbed(struct everything *all, const struct fds *open_in_parent)
{
    int count = 0;
    int pairs[FDS_MAX][2];
    size_t pair_count = 0;
    for (int fd = 0; fd < FDS_MAX; fd++) {
        int last = -1;
        while (open_in_parent->target[fd][0] != '\0' && fcntl(fd, F_GETFD) < 0 && last < fd) {
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pairs[pair_count]) != 0) {
                return 1;
            }
            last = pairs[pair_count][1];
            pair_count++;
        }
    }
    count += count_calls_that_work(all);
    for (size_t i = 0; i < 2; i++) {
        mst_handler_free(all->nodes[i].handler);
        mst_store_close(all->nodes[i].got.store);
    }
    for (size_t i = 0; i < 3; i++) {
        mst_store_close(all->stores[i]);
    }
    mst_server_free(all->server);
    for (size_t i = 0; i < pair_count; i++) {
        for (size_t end = 0; end < 2; end++) {
            char byte;
            count += recv(pairs[i][end], &byte, 1, 0) >= 0 || errno != EAGAIN;
        }
    }
    return count + (pair_count == 0 ? 1 : 0);
}

/* New ones work in the child: a store of its own. */
static int count_failures_of_new_ones(const struct fixture *f)
{
    char url[128];
    struct mst_store *store = NULL;
    struct mst_buffer value = {0};
    (void)snprintf(url, sizeof url, "tcp://%s", f->text);
    int rv = mst_store_open(url, NULL, PLENTY_MS, &store, NULL);
    rv = rv == 0 ? mst_store_get(store, STR("first"), PLENTY_MS, &value, NULL) : rv;
    mst_buffer_free(&value);
    mst_store_close(store);
    return rv == 0 ? 0 : 1;
}

static void a_child_has_nothing_of_it(void **state)
{
    (void)state;
    static struct everything all;
    open_everything(&all);
    static struct fds open_now;
    fds_look(&open_now);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)alarm(60); /* a call that blocks must not hang the test */
        int code = fds_count_inherited(&all.before, &open_now) > 0 ? 1 : 0;
        code |= count_disturbed(&all, &open_now) > 0 ? 2 : 0;
        code |= count_failures_of_new_ones(all.f) > 0 ? 4 : 0;
        _exit(code);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    use_everything(&all);
    close_everything(&all);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* --- the set of descriptors --- */

/* What the child has of @fd. */
static bool child_has(int fd)
{
    int status = -1;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(fcntl(fd, F_GETFD) >= 0 ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) == 1;
}

/* Only what is owned is closed, whatever its number; a number that is free again is nobody's. */
static void only_what_is_owned(void **state)
{
    (void)state;
    int any = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int low = fcntl(any, F_DUPFD_CLOEXEC, 320); /* the first and last of a word of the set */
    int high = fcntl(any, F_DUPFD_CLOEXEC, 959);
    assert_true(low >= 320);
    assert_true(high >= 959);
    assert_true(child_has(low));
    assert_int_equal(mst__fork_own(high), high);
    assert_int_equal(mst__fork_own(low), low);
    assert_false(child_has(high));
    assert_false(child_has(low));
    mst__fork_disown(high);
    assert_true(child_has(high));
    assert_false(child_has(low));
    assert_int_equal(mst__fork_close(low), 0);
    assert_int_equal(fcntl(any, F_DUPFD_CLOEXEC, 320), low);
    assert_true(child_has(low));
    assert_int_equal(mst__fork_own(-1), -1);
    mst__fork_disown(-1);
    (void)close(low);
    (void)close(high);
    (void)close(any);
}

/* A socket that a library has closed unnoticed, and something else that has its number now. */
static void not_what_has_its_number(void **state)
{
    (void)state;
    int pair[2];
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(pipe(ends), 0);
    int high = fcntl(pair[0], F_DUPFD_CLOEXEC, 320); /* libuv takes low numbers in a child */
    assert_int_equal(mst__fork_own(high), high);
    assert_false(child_has(high));
    assert_int_equal(close(high), 0);
    assert_int_equal(dup2(ends[0], high), high);
    assert_true(child_has(high));
    assert_int_equal(mst__fork_close(high), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(close(pair[i]), 0);
        assert_int_equal(close(ends[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_has_nothing_of_it),
        cmocka_unit_test(only_what_is_owned),
        cmocka_unit_test(not_what_has_its_number),
    };
    return MST_RUN_TESTS(tests);
}
