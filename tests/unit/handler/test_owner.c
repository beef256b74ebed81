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

static void watch(void *self)
{
    (void)self;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begun_again_at_once),
        cmocka_unit_test(all_are_cancelled),
    };
    return MST_RUN_TESTS(tests);
}
