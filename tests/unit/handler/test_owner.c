/* unit/handler/test_owner.c - the thread that owns the machine of a handler. */
#include "handler/owner.h"

#include <poll.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "unit/unit.h"

#define PLENTY_MS 30000
#define CANCEL_MS 10000
#define ROUNDS 100

struct machine {
    struct mst__owner owner;
    int joined_count;
    bool was_begun; /* when an outcome was told */
    atomic_bool is_watching, may_stop_watching;
    atomic_bool is_working;
    int result; /* of the task */
};

static int join(void *self, void *arg, struct mst_err *reterr)
{
    struct machine *machine = self;
    (void)arg;
    (void)reterr;
    machine->joined_count++;
    return 0;
}

static void tell(void *self)
{
    struct machine *machine = self;
    machine->was_begun = machine->was_begun || machine->owner.is_begun;
    mst__owner_ring(machine->owner.news_fd);
}

/* Until the test says so. */
static void watch(void *self)
{
    struct machine *machine = self;
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    atomic_store(&machine->is_watching, true);
    while (!atomic_load(&machine->may_stop_watching) && mst__clock_ms() < deadline_ms) {
        (void)poll(NULL, 0, 1);
    }
}

static void await_true(atomic_bool *flag)
{
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (!atomic_load(flag) && mst__clock_ms() < deadline_ms) {
        (void)poll(NULL, 0, 1);
    }
    assert_true(atomic_load(flag));
}

/* An application that hears that its round is there may want the next one at once. */
static void begun_again_at_once(void **state)
{
    (void)state;
    struct machine machine = {0};
    struct mst_err err;
    assert_int_equal(mst__owner_init(&machine.owner, watch, &machine, &err), 0);
    for (int i = 1; i <= ROUNDS; i++) {
        assert_int_equal(mst__owner_want(&machine.owner, join, tell, &err), 0);
        struct pollfd news = {.fd = machine.owner.news_fd, .events = POLLIN};
        assert_int_equal(poll(&news, 1, PLENTY_MS), 1);
        mst__owner_silence(machine.owner.news_fd);
        mst__owner_lock(&machine.owner);
        assert_int_equal(machine.joined_count, i);
        mst__owner_unlock(&machine.owner);
    }
    assert_false(machine.was_begun);
    mst__owner_stop(&machine.owner);
    mst__owner_close(&machine.owner);
}

#define WAITERS 32

struct waiter {
    pthread_t thread;
    struct machine *machine;
    atomic_size_t *waiting;
    int rv;
};

/* Nothing ever happens. */
static int look(void *self, void *arg, struct mst_err *reterr)
{
    struct waiter *waiter = arg;
    (void)self;
    (void)reterr;
    if (waiter->waiting != NULL) {
        atomic_fetch_add(waiter->waiting, 1);
        waiter->waiting = NULL;
    }
    return MST_ETIMEOUT;
}

static void *wait_for_news(void *arg)
{
    struct waiter *waiter = arg;
    struct mst_err err;
    waiter->rv =
        mst__owner_await(&waiter->machine->owner, CANCEL_MS, look, waiter->machine, waiter, &err);
    return NULL;
}

/* A cancellation ends all calls that wait, and none that comes later. So many threads cannot all
 * have noticed it before the first of them is gone. */
static void all_are_cancelled(void **state)
{
    (void)state;
    static struct waiter waiters[WAITERS];
    struct machine machine = {0};
    atomic_size_t waiting = 0;
    struct mst_err err;
    assert_int_equal(mst__owner_init(&machine.owner, watch, &machine, &err), 0);
    for (size_t i = 0; i < WAITERS; i++) {
        waiters[i] = (struct waiter){.machine = &machine, .waiting = &waiting};
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_for_news, &waiters[i]), 0);
    }
    int64_t deadline_ms = mst__clock_deadline_ms(CANCEL_MS);
    while (atomic_load(&waiting) < WAITERS && mst__clock_ms() < deadline_ms) {
        (void)poll(NULL, 0, 1);
    }
    mst__owner_cancel(&machine.owner);
    for (size_t i = 0; i < WAITERS; i++) {
        assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
    }
    for (size_t i = 0; i < WAITERS; i++) {
        assert_int_equal(waiters[i].rv, MST_ECANCELED);
    }
    struct waiter late = {.machine = &machine};
    assert_int_equal(mst__owner_await(&machine.owner, 1, look, &machine, &late, &err),
                     MST_ETIMEOUT);
    mst__owner_stop(&machine.owner);
    mst__owner_close(&machine.owner);
}

/* A task that works until it is cancelled. */
static int work(void *self, void *arg, struct mst_err *reterr)
{
    struct machine *machine = self;
    struct pollfd cancelled = {.fd = machine->owner.cancel_fd, .events = POLLIN};
    (void)arg;
    atomic_store(&machine->is_working, true);
    if (poll(&cancelled, 1, CANCEL_MS) != 1) {
        return MST_ETIMEOUT;
    }
    return machine->result == MST_ECANCELED ? mst__owner_fail_cancelled(reterr) : machine->result;
}

struct worker {
    pthread_t thread;
    struct machine *machine;
    int rv;
};

static void *run_task(void *arg)
{
    struct worker *worker = arg;
    struct mst__owner *owner = &worker->machine->owner;
    struct mst_err err;
    worker->rv = mst__owner_begin(owner, true, &err);
    if (worker->rv == 0) {
        worker->rv = mst__owner_run(owner, work, NULL, &err);
        mst__owner_end(owner);
    }
    return NULL;
}

static void start_task(struct worker *worker, struct machine *machine)
{
    *worker = (struct worker){.machine = machine};
    assert_int_equal(pthread_create(&worker->thread, NULL, run_task, worker), 0);
}

/* What a call that waits for 1 ms returns. */
static int await_shortly(struct machine *machine)
{
    struct waiter late = {.machine = machine};
    struct mst_err err;
    return mst__owner_await(&machine->owner, 1, look, machine, &late, &err);
}

static int tell_cancelled(void *self, void *arg, struct mst_err *reterr)
{
    struct machine *machine = self;
    (void)reterr;
    *(bool *)arg = mst__owner_is_cancelled(&machine->owner);
    return 0;
}

/* A cancellation ends the task of a call, and is over with that, for later tasks and calls. One
 * that no call has noticed, because its task was done all the same or because there was none, is
 * for the next call. */
static void one_call_is_cancelled(void **state)
{
    (void)state;
    static const int results[] = {MST_ECANCELED, 0};
    struct machine machine = {0};
    struct mst_err err;
    assert_int_equal(mst__owner_init(&machine.owner, watch, &machine, &err), 0);
    for (size_t i = 0; i < 2; i++) {
        struct worker worker;
        bool is_cancelled = true;
        machine.result = results[i];
        atomic_store(&machine.is_working, false);
        start_task(&worker, &machine);
        await_true(&machine.is_working);
        mst__owner_cancel(&machine.owner);
        assert_int_equal(pthread_join(worker.thread, NULL), 0);
        assert_int_equal(worker.rv, results[i]);
        assert_int_equal(await_shortly(&machine), results[i] == 0 ? MST_ECANCELED : MST_ETIMEOUT);
        assert_int_equal(mst__owner_begin(&machine.owner, true, &err), 0);
        assert_int_equal(mst__owner_run(&machine.owner, tell_cancelled, &is_cancelled, &err), 0);
        mst__owner_end(&machine.owner);
        assert_false(is_cancelled);
    }
    mst__owner_cancel(&machine.owner);
    assert_int_equal(await_shortly(&machine), MST_ECANCELED);
    assert_int_equal(await_shortly(&machine), MST_ETIMEOUT);
    mst__owner_stop(&machine.owner);
    mst__owner_close(&machine.owner);
}

/* A task that is cancelled before it begins ends as soon as it does. */
static void cancelled_before_it_begins(void **state)
{
    (void)state;
    struct machine machine = {.result = MST_ECANCELED};
    struct worker worker;
    struct mst_err err;
    assert_int_equal(mst__owner_init(&machine.owner, watch, &machine, &err), 0);
    assert_int_equal(mst__owner_want(&machine.owner, join, tell, &err), 0);
    assert_int_equal(mst__owner_await_begun(&machine.owner, PLENTY_MS, &err), 0);
    mst__owner_joined(&machine.owner, true);
    mst__owner_lock(&machine.owner);
    (void)pthread_cond_broadcast(&machine.owner.cond);
    mst__owner_unlock(&machine.owner);
    await_true(&machine.is_watching);
    start_task(&worker, &machine);
    mst__owner_cancel(&machine.owner);
    struct pollfd cancelled = {.fd = machine.owner.cancel_fd, .events = POLLIN};
    assert_int_equal(poll(&cancelled, 1, CANCEL_MS), 1);
    assert_false(atomic_load(&machine.is_working));
    atomic_store(&machine.may_stop_watching, true);
    int64_t begin_ms = mst__clock_ms();
    assert_int_equal(pthread_join(worker.thread, NULL), 0);
    assert_int_equal(worker.rv, MST_ECANCELED);
    assert_true(mst__clock_ms() - begin_ms < CANCEL_MS / 2);
    mst__owner_stop(&machine.owner);
    mst__owner_close(&machine.owner);
}

/* The descriptor of a begun round tells its end, and not that of the round before. */
static void end_of_a_begun_round(void **state)
{
    (void)state;
    struct machine machine = {0};
    struct mst_err err;
    assert_int_equal(mst__owner_init(&machine.owner, watch, &machine, &err), 0);
    struct pollfd over = {.fd = machine.owner.begun_fd, .events = POLLIN};
    for (int i = 0; i < 2; i++) {
        atomic_store(&machine.is_working, false);
        assert_int_equal(mst__owner_want(&machine.owner, work, tell, &err), 0);
        await_true(&machine.is_working);
        assert_int_equal(poll(&over, 1, 0), 0);
        assert_int_equal(mst__owner_await_begun(&machine.owner, 1, &err), MST_ETIMEOUT);
        assert_true(mst__owner_withdraw(&machine.owner));
        assert_int_equal(poll(&over, 1, PLENTY_MS), 1);
        assert_int_equal(mst__owner_await_begun(&machine.owner, PLENTY_MS, &err), 0);
    }
    mst__owner_stop(&machine.owner);
    mst__owner_close(&machine.owner);
}

/* A call that needs the present round begins only if there is one, and neither another call nor
 * another round has begun. */
static void only_in_a_quiet_round(void **state)
{
    (void)state;
    struct machine machine = {0};
    struct mst_err err;
    assert_int_equal(mst__owner_init(&machine.owner, watch, &machine, &err), 0);
    assert_false(mst__owner_try_begin(&machine.owner));
    assert_int_equal(mst__owner_want(&machine.owner, work, tell, &err), 0);
    await_true(&machine.is_working);
    mst__owner_joined(&machine.owner, true);
    assert_false(mst__owner_try_begin(&machine.owner));
    assert_true(mst__owner_is_busy(&machine.owner));
    assert_true(mst__owner_withdraw(&machine.owner));
    assert_false(mst__owner_is_busy(&machine.owner));
    assert_true(mst__owner_try_begin(&machine.owner));
    assert_false(mst__owner_try_begin(&machine.owner));
    mst__owner_end(&machine.owner);
    atomic_store(&machine.may_stop_watching, true);
    mst__owner_stop(&machine.owner);
    mst__owner_close(&machine.owner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begun_again_at_once),   cmocka_unit_test(all_are_cancelled),
        cmocka_unit_test(one_call_is_cancelled), cmocka_unit_test(cancelled_before_it_begins),
        cmocka_unit_test(end_of_a_begun_round),  cmocka_unit_test(only_in_a_quiet_round),
    };
    return MST_RUN_TESTS(tests);
}
