/* unit/handler/test_head.c - the calls that all handlers share, with a machine that does nothing by
 * itself: freeing at any time, forks, and threads that ask for a round at the same time. */
#include "handler/head.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "unit/node_unit.h"

#define SOON_MS 10000

/* One is static, as all that threads use: a test that fails leaves them behind. */
struct toy {
    struct mst__head head; /* first: it is the handler */
    struct mst__events events;
    struct mst_params *params;
    atomic_bool may_join;
    atomic_bool is_joining, is_watching;
    int joined, left; /* how often */
};

/* Joins as soon as the test lets it. */
static int toy_join(void *self,
                    int64_t timeout_ms,
                    struct mst_rendezvous *ret,
                    struct mst_err *reterr)
{
    struct toy *toy = self;
    struct pollfd cancelled = {.fd = toy->head.owner.cancel_fd, .events = POLLIN};
    int64_t deadline_ms = mst__clock_deadline_ms(SOON_MS);
    (void)timeout_ms;
    atomic_store(&toy->is_joining, true);
    while (!atomic_load(&toy->may_join) && mst__clock_ms() < deadline_ms) {
        if (poll(&cancelled, 1, 1) == 1) {
            return mst__owner_fail_cancelled(reterr);
        }
    }
    ret->round = toy->joined++;
    ret->world_size = 1;
    return mst_store_open("hash:", NULL, SOON_MS, &ret->store, reterr);
}

static int toy_leave(void *self, void *arg, struct mst_err *reterr)
{
    struct toy *toy = self;
    (void)arg;
    (void)reterr;
    mst__owner_joined(&toy->head.owner, false);
    toy->left++;
    return 0;
}

/* Tasks, and other calls, that do nothing. */
static int toy_task(void *self, void *arg, struct mst_err *reterr)
{
    (void)self;
    (void)arg;
    (void)reterr;
    return 0;
}

static int toy_call(void *self, struct mst_err *reterr)
{
    (void)self;
    (void)reterr;
    return 0;
}

static int toy_look(void *self, bool *ret_closed, int64_t *ret_waiting, struct mst_err *reterr)
{
    (void)self;
    (void)reterr;
    *ret_closed = false;
    *ret_waiting = 0;
    return 0;
}

static bool toy_serves(void *self)
{
    return self == NULL;
}

static int toy_linger(void *self, int64_t timeout_ms, struct mst_err *reterr)
{
    (void)self;
    (void)timeout_ms;
    (void)reterr;
    return 0;
}

static void toy_watch(void *self)
{
    struct toy *toy = self;
    struct pollfd stop = {.fd = toy->head.owner.stop_fd, .events = POLLIN};
    atomic_store(&toy->is_watching, true);
    (void)poll(&stop, 1, SOON_MS);
}

/* The test looks at the counts afterwards: the toy is its own. */
static void toy_free(void *self)
{
    struct toy *toy = self;
    mst__head_stop(&toy->head);
    mst__head_close(&toy->head);
    mst_params_free(toy->params);
}

static const struct mst__head_ops toy_ops = {
    .join = toy_join,
    .connect = toy_task,
    .look = toy_look,
    .leave = toy_leave,
    .say = toy_task,
    .serves = toy_serves,
    .linger = toy_linger,
    .set_closed = toy_call,
    .shutdown = toy_call,
    .free = toy_free,
};

static struct mst_handler *toy_open(struct toy *toy)
{
    struct mst_handler *handler = NULL;
    *toy = (struct toy){.may_join = false};
    toy->params = node_params("toy", "host:1", 1, 1, NULL, "");
    assert_ok(mst__head_init(&toy->head, &toy_ops, toy_watch, toy, &err));
    toy->head.leave_ms = SOON_MS;
    mst__head_identify(&toy->head, toy->params, "node", &toy->events);
    assert_ok(mst__head_wrap(&toy->head, &handler, &err));
    return handler;
}

static void await_true(atomic_bool *flag)
{
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (!atomic_load(flag) && mst__clock_ms() < deadline_ms) {
        (void)poll(NULL, 0, 1);
    }
    assert_true(atomic_load(flag));
}

static void await_waiters(struct toy *toy, size_t count)
{
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    size_t waiters = 0;
    while (waiters != count && mst__clock_ms() < deadline_ms) {
        mst__owner_lock(&toy->head.owner);
        waiters = toy->head.owner.waiters;
        mst__owner_unlock(&toy->head.owner);
        (void)poll(NULL, 0, 1);
    }
    assert_int_equal(waiters, count);
}

/* A handler can be freed before its first call, while it waits for a round, in a round, which it
 * leaves, and after that. */
static void freed_at_any_time(void **state)
{
    (void)state;
    int64_t begin_ms = mst__clock_ms();
    for (int step = 0; step < 4; step++) {
        static struct toy toy;
        struct mst_handler *handler = toy_open(&toy);
        if (step > 0) {
            assert_ok(mst_handler_begin(handler, -1, &err));
            await_true(&toy.is_joining);
        }
        if (step > 1) {
            atomic_store(&toy.may_join, true);
            await_true(&toy.is_watching);
        }
        if (step > 2) {
            assert_ok(mst_handler_leave(handler, &err));
        }
        mst_handler_free(handler);
        assert_int_equal(toy.joined, step > 1 ? 1 : 0);
        assert_int_equal(toy.left, step > 1 ? 1 : 0);
    }
    assert_true(mst__clock_ms() - begin_ms < SOON_MS / 2);
}

/* Two threads that wait at the same time get the same round, each with a store of its own; the
 * machine has joined once. A cancellation ends both, and the round is withdrawn once. */
static void two_get_the_same_round(void **state)
{
    (void)state;
    for (int is_cancelled = 0; is_cancelled < 2; is_cancelled++) {
        static struct toy toy;
        struct mst_handler *handler = toy_open(&toy);
        static struct node nodes[2];
        for (size_t i = 0; i < 2; i++) {
            nodes[i] = (struct node){.handler = handler};
            node_start(&nodes[i]);
        }
        await_waiters(&toy, 2);
        if (is_cancelled) {
            mst_handler_cancel(handler);
        } else {
            atomic_store(&toy.may_join, true);
        }
        for (size_t i = 0; i < 2; i++) {
            assert_int_equal(node_join(&nodes[i]), is_cancelled ? MST_ECANCELED : 0);
            assert_int_equal(nodes[i].got.round, 0);
        }
        if (!is_cancelled) {
            assert_ptr_not_equal(nodes[0].got.store, nodes[1].got.store);
            node_drop_store(&nodes[0]);
            node_drop_store(&nodes[1]);
        }
        assert_int_equal(toy.joined, is_cancelled ? 0 : 1);
        struct mst_rendezvous round = {.size = sizeof round};
        if (is_cancelled) {
            assert_fails(mst_handler_round(handler, &round, &err), MST_EINVAL, "no round");
        }
        mst_handler_free(handler);
        assert_int_equal(toy.left, is_cancelled ? 0 : 1);
    }
}

/* How many calls of the forked child do not return MST_EINVAL, which it gets for all that would
 * need the thread or the connections of its parent. */
static int count_wrong(struct mst_handler *handler)
{
    struct mst_rendezvous round = {.size = sizeof round};
    struct mst_changes changes = {.size = sizeof changes};
    struct mst_failure failure;
    struct mst_notice *notice = NULL;
    bool is = false;
    int64_t waiting = 0;
    mst_failure_init(&failure, sizeof failure);
    const int results[] = {
        mst_handler_connect(handler, 0, &err),
        mst_handler_begin(handler, 0, &err),
        mst_handler_take(handler, 0, &notice, &err),
        mst_handler_await(handler, 0, &is, &err),
        mst_handler_abandon(handler, &err),
        mst_handler_round(handler, &round, &err),
        mst_handler_next(handler, 0, &round, &err),
        mst_handler_is_closed(handler, &is, &err),
        mst_handler_set_closed(handler, &err),
        mst_handler_nodes_waiting(handler, &waiting, &err),
        mst_handler_poll(handler, 0, &changes, &err),
        mst_handler_leave(handler, &err),
        mst_handler_shutdown(handler, &err),
        mst_handler_linger(handler, 0, &err),
        mst_handler_finish(handler, 0, "", &err),
        mst_handler_restart(handler, &failure, &err),
    };
    int count = mst_handler_fd(handler) == -1 ? 0 : 1;
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        count += results[i] == MST_EINVAL ? 0 : 1;
    }
    mst_handler_cancel(handler);
    return count;
}

/* A child that is forked while the owner works, a thread waits and the lock is held can free the
 * handler, and no more; its parent notices nothing. */
static void a_child_may_only_free(void **state)
{
    (void)state;
    static struct toy toy;
    struct mst_handler *handler = toy_open(&toy);
    static struct node node;
    node = (struct node){.handler = handler};
    node_start(&node);
    await_true(&toy.is_joining);
    await_waiters(&toy, 1);
    mst__owner_lock(&toy.head.owner);
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(60); /* a call that blocks must not hang the test */
        int count = count_wrong(handler);
        mst_handler_free(handler);
        _exit(count + toy.left);
    }
    mst__owner_unlock(&toy.head.owner);
    int status = -1;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    atomic_store(&toy.may_join, true);
    assert_int_equal(node_join(&node), 0);
    node_drop_store(&node);
    mst_handler_free(handler);
    assert_int_equal(toy.joined, 1);
    assert_int_equal(toy.left, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(freed_at_any_time),
        cmocka_unit_test(two_get_the_same_round),
        cmocka_unit_test(a_child_may_only_free),
    };
    return MST_RUN_TESTS(tests);
}
