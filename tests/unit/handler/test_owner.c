/* unit/handler/test_owner.c - the thread that owns the machine of a handler. */
#include "handler/owner.h"

#include <poll.h>

#include "unit/unit.h"

#define PLENTY_MS 30000
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begun_again_at_once),
    };
    return MST_RUN_TESTS(tests);
}
