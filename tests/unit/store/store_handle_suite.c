/* unit/store/store_handle_suite.c - the duties of every handle on a store: interrupted calls
 * end, clones, URLs, and refusal in a forked child. */
#include <muster/wait.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/until.h"
#include "store/store.h"
#include "unit/store/store_suite.h"

/* --- interrupts --- */

static void waiter_start(struct suite_waiter *waiter, struct mst_store *store, const char *key)
{
    *waiter = (struct suite_waiter){.store = store, .key = key};
    assert_int_equal(pthread_create(&waiter->thread, NULL, suite_wait_for_value, waiter), 0);
}

static void waiter_end(struct suite_waiter *waiter, int wanted)
{
    assert_int_equal(pthread_join(waiter->thread, NULL), 0);
    assert_int_equal(waiter->rv, wanted);
}

/* Return when @count calls on @store are under way. */
static void await_calls(struct mst_store *store, size_t count)
{
    struct mst__until until = mst__until_in(PLENTY_MS);
    while (atomic_load(&store->calls) < count) {
        assert_false(mst__until_is_over(until));
        (void)mst__until_pause(-1, 0);
    }
}

static struct mst_store *signalled_store;

static void on_signal(int number)
{
    (void)number;
    mst_store_interrupt(signalled_store);
}

/* What a thread does while it waits: use the store, and at the second time end the wait. Its own
 * calls may have to wait, too, and then it is called again. */
static int told;
static bool is_inside;

static void on_wait(void *arg)
{
    struct mst_store *store = arg;
    if (is_inside) {
        return;
    }
    is_inside = true;
    told++;
    assert_ok(mst_store_set(store, STR("told"), STR("v"), PLENTY_MS, &err));
    if (told == 2) {
        mst_store_interrupt(store);
    }
    is_inside = false;
}

/* One that goes on after it has ended the wait: its calls belong to the wait, and end with it. */
static void on_wait_and_on(void *arg)
{
    struct mst_store *store = arg;
    int wanted = store->storage->ops->is_remote ? MST_ECANCELED : 0;
    if (is_inside) {
        return;
    }
    is_inside = true;
    mst_store_interrupt(store);
    for (int i = 0; i < 3; i++) {
        int64_t sum = 0;
        assert_int_equal(mst_store_add(store, STR("on"), 1, PLENTY_MS, &sum, &err), wanted);
    }
    is_inside = false;
}

int suite_on_wait_teardown(void **state)
{
    (void)state;
    mst_on_wait(NULL, NULL); /* also after a failure: the store is gone */
    is_inside = false;
    return 0;
}

void suite_on_wait(struct mst_store *store)
{
    struct mst_bytes key = STR("never");
    struct mst_err wait_err = {0};
    told = 0;
    mst_on_wait(on_wait, store);
    assert_int_equal(mst_store_wait(store, &key, 1, PLENTY_MS, &wait_err), MST_ECANCELED);
    assert_true(told >= 2);
    mst_on_wait(on_wait_and_on, store);
    assert_int_equal(mst_store_wait(store, &key, 1, PLENTY_MS, &wait_err), MST_ECANCELED);
    mst_on_wait(NULL, NULL);
    assert_value(store, "told", STR("v"));
    told = 0;
    assert_fails(mst_store_wait(store, &key, 1, SHORT_MS, &err), MST_ETIMEOUT, "never");
    assert_int_equal(told, 0);
}

#define WAITERS 3

void suite_interrupt(struct mst_store *store)
{
    struct suite_waiter waiters[WAITERS];
    struct mst_bytes key = STR("never");
    /* The very first call, too. */
    mst_store_interrupt(store);
    assert_fails(mst_store_wait(store, &key, 1, PLENTY_MS, &err), MST_ECANCELED, "never");
    /* From another thread: all calls that wait, and no later one. */
    for (size_t i = 0; i < WAITERS; i++) {
        waiter_start(&waiters[i], store, "never");
    }
    await_calls(store, WAITERS);
    mst_store_interrupt(store);
    for (size_t i = 0; i < WAITERS; i++) {
        waiter_end(&waiters[i], MST_ECANCELED);
    }
    assert_ok(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err));
    assert_value(store, "k", STR("v"));
    assert_fails(mst_store_wait(store, &key, 1, SHORT_MS, &err), MST_ETIMEOUT, "never");

    /* If no call waits, the next one that would; two interrupts count once. */
    mst_store_interrupt(store);
    mst_store_interrupt(store);
    assert_fails(mst_store_wait(store, &key, 1, PLENTY_MS, &err), MST_ECANCELED, "interrupted");
    assert_value(store, "k", STR("v"));

    /* A write that is ended before it began was not done. */
    int64_t sum = 0;
    mst_store_interrupt(store);
    if (store->storage->ops->is_remote) {
        assert_fails(mst_store_add(store, STR("n"), 1, PLENTY_MS, &sum, &err), MST_ECANCELED, "n");
    } else {
        assert_fails(mst_store_wait(store, &key, 1, PLENTY_MS, &err), MST_ECANCELED, "never");
    }
    assert_ok(mst_store_add(store, STR("n"), 1, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, 1);

    /* From a signal handler. */
    struct sigaction action = {.sa_handler = on_signal};
    struct sigaction before;
    signalled_store = store;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    waiter_start(&waiters[0], store, "never");
    assert_int_equal(pthread_kill(waiters[0].thread, SIGUSR1), 0);
    waiter_end(&waiters[0], MST_ECANCELED);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);

    /* Other handles on the same store do not notice. */
    struct mst_store *view = NULL;
    assert_ok(mst_store_prefix(store, STR("view"), &view, &err));
    mst_store_interrupt(view);
    assert_value(store, "k", STR("v"));
    assert_fails(mst_store_wait(view, &key, 1, PLENTY_MS, &err), MST_ECANCELED, "never");
    mst_store_close(view);
}

static void *meet(void *arg)
{
    struct suite_waiter *waiter = arg;
    waiter->rv = mst_store_barrier(waiter->store, STR(waiter->key), 2, PLENTY_MS, NULL);
    return NULL;
}

/* A participant of a barrier ends soon, and does not count. */
void suite_interrupt_barrier(struct mst_store *store)
{
    struct suite_waiter waiter = {.store = store, .key = "meet"};
    const struct mst_bytes keys[] = {STR("meet"), STR("meet/participants")}; /* of either kind */
    struct mst__until until = mst__until_in(PLENTY_MS);
    assert_int_equal(pthread_create(&waiter.thread, NULL, meet, &waiter), 0);
    for (bool has_come = false; !has_come;) {
        assert_false(mst__until_is_over(until));
        assert_ok(mst_store_check(store, &keys[0], 1, PLENTY_MS, &has_come, &err));
        if (!has_come) {
            assert_ok(mst_store_check(store, &keys[1], 1, PLENTY_MS, &has_come, &err));
        }
    }
    int64_t begin_ms = mst__clock_ms();
    mst_store_interrupt(store);
    waiter_end(&waiter, MST_ECANCELED);
    assert_in_range(mst__clock_ms() - begin_ms, 0, PLENTY_MS / 2);
    assert_fails(mst_store_barrier(store, STR("meet"), 2, SHORT_MS, &err), MST_ETIMEOUT, "meet");
}

/* While one of the calls that an interrupt found under way is not over, those that come are let
 * wait, and not ended. */
void suite_interrupt_in_order(struct mst_store *store)
{
    struct suite_waiter first;
    struct suite_waiter second;
    assert_ok(mst__store_enter(store, &err)); /* a call that takes its time */
    waiter_start(&first, store, "order");
    await_calls(store, 2);
    mst_store_interrupt(store);
    waiter_end(&first, MST_ECANCELED);
    waiter_start(&second, store, "order");
    (void)mst__until_pause(-1, mst__clock_us() + SHORT_MS * 1000);
    assert_int_equal(mst__store_leave(store, 0, &err), 0);
    assert_ok(mst_store_set(store, STR("order"), STR("v"), PLENTY_MS, &err));
    waiter_end(&second, 0);
}

void suite_interrupt_pop(struct mst_store *store)
{
    struct suite_waiter waiter = {.store = store, .key = "queue", .is_pop = true};
    struct mst__until until = mst__until_in(PLENTY_MS);
    uint64_t waits = mst__store_totals().waits;
    assert_int_equal(pthread_create(&waiter.thread, NULL, suite_wait_for_value, &waiter), 0);
    /* Not while it asks for an item, which then might get lost: that is MST_EUNKNOWN. */
    while (mst__store_totals().waits == waits) {
        assert_false(mst__until_is_over(until));
    }
    mst_store_interrupt(store);
    waiter_end(&waiter, MST_ECANCELED);
    /* It has left the queue. */
    assert_ok(mst_store_queue_push(store, STR("queue"), STR("item"), PLENTY_MS, &err));
    struct mst_buffer item = {0};
    assert_ok(mst_store_queue_pop(store, STR("queue"), false, PLENTY_MS, &item, &err));
    mst_buffer_free(&item);
}

/* --- what a handle is --- */

void suite_clone(struct mst_store *store)
{
    struct mst_store *view = NULL;
    struct mst_store *clone = NULL;
    struct mst_store *again = NULL;
    assert_ok(mst_store_prefix(store, STR("a b"), &view, &err));
    assert_ok(mst_store_set(view, STR("k"), STR("v"), PLENTY_MS, &err));
    assert_ok(mst_store_clone(view, &clone, &err));
    mst_store_interrupt(view); /* of which the clone knows nothing */
    mst_store_close(view);
    assert_value(clone, "k", STR("v"));
    /* By URL and prefix anybody finds the keys, if they are not in this process alone. */
    struct mst_bytes prefix = mst_store_key_prefix(clone);
    if (strcmp(mst_store_url(clone), "hash:") != 0) {
        struct mst_store *root = open_store(mst_store_url(clone));
        assert_null(mst_store_key_prefix(root).data);
        assert_ok(mst_store_prefix(root, prefix, &again, &err));
        assert_value(again, "k", STR("v"));
        mst_store_close(again);
        mst_store_close(root);
    }
    mst_store_close(clone);
}

/* --- fork --- */

/* In the child: how many calls did not fail as they should. */
static int count_wrong(struct mst_store *store)
{
    struct mst_err child_err = {0};
    struct mst_store *other = NULL;
    struct mst_store_stats stats;
    mst_store_stats_init(&stats, sizeof stats);
    int wrong = mst_store_set(store, STR("k"), STR("child"), PLENTY_MS, &child_err) != MST_EINVAL ||
                strstr(child_err.msg, "another process") == NULL;
    wrong += mst_store_prefix(store, STR("p"), &other, &child_err) != MST_EINVAL;
    wrong += mst_store_clone(store, &other, &child_err) != MST_EINVAL;
    wrong += mst_store_get_stats(store, &stats) != MST_EINVAL;
    wrong += mst_store_url(store) == NULL;
    mst_store_interrupt(store);
    mst_store_close(store);
    return wrong;
}

void suite_fork(struct mst_store *store)
{
    struct suite_waiter waiter;
    struct mst_bytes key = STR("forked");
    waiter_start(&waiter, store, "forked");
    await_calls(store, 1);
    assert_ok(mst_store_set(store, STR("k"), STR("parent"), PLENTY_MS, &err));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(count_wrong(store));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    /* Nothing has changed, also for the waiting thread. */
    assert_value(store, "k", STR("parent"));
    assert_ok(mst_store_set(store, key, STR("v"), PLENTY_MS, &err));
    waiter_end(&waiter, 0);
}
