/* unit/net/test_resolve.c - lookups of names in other threads, of which there are only so many at
 * a time. */
#include "net/resolve.h"

#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "unit/unit.h"

#define PLENTY_MS 20000

/* More than there may be at a time. */
#define LOOKUPS 200

/* A lookup that has ended makes room for the next one: those that succeed, and those that fail. */
static void ended_lookups_make_room(void **state)
{
    (void)state;
    struct mst__endpoint here = {.host = "localhost", .port = 7};
    struct mst__endpoint nowhere = {.port = 7};
    struct mst_err err;
    memset(nowhere.host, 'x', 100); /* longer than a part of a name: nobody is asked */
    for (int i = 0; i < LOOKUPS; i++) {
        struct addrinfo *addresses = NULL;
        int rv = mst__resolve(&here, mst__until_in(PLENTY_MS), &addresses, &err);
        if (rv != 0) {
            fail_msg("lookup %d: %s", i, err.msg);
        }
        freeaddrinfo(addresses);
        assert_int_equal(mst__resolve(&nowhere, mst__until_in(PLENTY_MS), &addresses, &err),
                         MST_ERESOLVE);
        assert_null(strstr(err.msg, "earlier lookups"));
    }
}

/* The same of those that nobody waits for, once they have ended. */
static void unawaited_lookups_make_room(void **state)
{
    (void)state;
    const struct mst__endpoint here = {.host = "localhost", .port = 7};
    struct addrinfo *addresses = NULL;
    struct mst_err err;
    for (int i = 0; i < LOOKUPS; i++) {
        int rv = mst__resolve(&here, mst__until_at(0), &addresses, &err);
        assert_true(rv == 0 || rv == MST_ETIMEOUT || rv == MST_ERESOLVE); /* too many at once */
        if (rv == 0) {
            freeaddrinfo(addresses);
        }
    }
    int64_t end_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (mst__resolve(&here, mst__until_in(PLENTY_MS), &addresses, &err) != 0) {
        assert_true(mst__clock_ms() < end_ms);
        (void)poll(NULL, 0, 1);
    }
    freeaddrinfo(addresses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ended_lookups_make_room),
        cmocka_unit_test(unawaited_lookups_make_room),
    };
    return MST_RUN_TESTS(tests);
}
