/* unit/base/test_sized.c - structs of two sizes: an older and a newer caller of this library. */
#include <string.h>

#include "base/limits.h"
#include "base/sized.h"
#include "unit/unit.h"

#define assert_ok(call) assert_int_equal((call), 0)
#define assert_fails(call, wanted, text)        \
    do {                                        \
        assert_int_equal((call), (wanted));     \
        assert_int_equal(err.code, (wanted));   \
        assert_non_null(strstr(err.msg, text)); \
    } while (0)

/* One struct as three versions of the library have it. */
struct old {
    size_t size;
    int first;
    int second;
};

struct now {
    size_t size;
    int first;
    int second;
    const char *third;
};

struct newer {
    size_t size;
    int first;
    int second;
    const char *third;
    uint64_t fourth[2];
};

static const struct now defaults = {.size = sizeof defaults, .first = 1, .second = 2, .third = "3"};

static void init_fills_as_far_as_the_caller_goes(void **state)
{
    (void)state;
    struct {
        struct old old;
        char beyond[32];
    } shorter;
    memset(&shorter, 0x5a, sizeof shorter);
    mst__sized_init(&shorter.old, sizeof shorter.old, &defaults, sizeof defaults);
    assert_int_equal(shorter.old.size, sizeof shorter.old);
    assert_int_equal(shorter.old.second, 2);
    for (size_t i = 0; i < sizeof shorter.beyond; i++) {
        assert_int_equal(shorter.beyond[i], 0x5a);
    }

    struct newer longer;
    memset(&longer, 0x5a, sizeof longer);
    mst__sized_init(&longer, sizeof longer, &defaults, sizeof defaults);
    assert_int_equal(longer.size, sizeof longer);
    assert_string_equal(longer.third, "3");
    assert_int_equal(longer.fourth[0], 0);
    assert_int_equal(longer.fourth[1], 0);

    mst__sized_init(&longer, sizeof longer, NULL, 0);
    assert_int_equal(longer.size, sizeof longer);
    assert_int_equal(longer.first, 0);

    longer.size = 7;
    mst__sized_init(&longer, sizeof longer.size - 1, &defaults, sizeof defaults);
    assert_int_equal(longer.size, 7); /* no room for a size, so nothing */
}

static void take_accepts_what_an_older_caller_has(void **state)
{
    (void)state;
    struct mst_err err = {0};
    struct old given = {.size = sizeof given, .first = 10, .second = 20};
    struct now taken = defaults;
    assert_ok(mst__sized_take(&taken, sizeof taken, &given, "mst_x", &err));
    assert_int_equal(taken.size, sizeof taken);
    assert_int_equal(taken.first, 10);
    assert_int_equal(taken.second, 20);
    assert_string_equal(taken.third, "3"); /* the default of an unknown field */
}

static void take_accepts_a_newer_caller_with_a_zero_tail(void **state)
{
    (void)state;
    struct mst_err err = {0};
    struct newer given = {.size = sizeof given, .first = 10, .third = "x"};
    struct now taken = defaults;
    assert_ok(mst__sized_take(&taken, sizeof taken, &given, "mst_x", &err));
    assert_int_equal(taken.size, sizeof taken);
    assert_string_equal(taken.third, "x");

    /* The last byte counts, too. */
    ((unsigned char *)&given)[sizeof given - 1] = 1;
    taken = defaults;
    assert_fails(mst__sized_take(&taken, sizeof taken, &given, "mst_x", &err), MST_ENOTSUP,
                 "struct mst_x of size");
    assert_memory_equal(&taken, &defaults, sizeof taken);
}

static void sizes_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    struct mst_err err = {0};
    struct now taken = defaults;
    static const size_t sizes[] = {0, sizeof(size_t) - 1, MST_SIZED_MAX + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct now given = {.size = sizes[i]};
        assert_fails(mst__sized_check(&given, "mst_x", &err), MST_EINVAL, "mst_x_init");
        assert_fails(mst__sized_take(&taken, sizeof taken, &given, "mst_x", &err), MST_EINVAL,
                     "mst_x_init");
        assert_memory_equal(&taken, &defaults, sizeof taken);
    }
    assert_ok(mst__sized_check(&defaults, "mst_x", &err));
}

static void give_writes_no_further_than_the_caller_goes(void **state)
{
    (void)state;
    struct {
        struct old old;
        char beyond[32];
    } shorter;
    memset(&shorter, 0x5a, sizeof shorter);
    shorter.old.size = sizeof shorter.old;
    mst__sized_give(&shorter.old, &defaults, sizeof defaults);
    assert_int_equal(shorter.old.size, sizeof shorter.old);
    assert_int_equal(shorter.old.second, 2);
    assert_int_equal(shorter.beyond[0], 0x5a);

    struct newer longer;
    memset(&longer, 0x5a, sizeof longer);
    longer.size = sizeof longer;
    mst__sized_give(&longer, &defaults, sizeof defaults);
    assert_int_equal(longer.size, sizeof longer);
    assert_int_equal(longer.first, 1);
    assert_int_equal(longer.fourth[1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_fills_as_far_as_the_caller_goes),
        cmocka_unit_test(take_accepts_what_an_older_caller_has),
        cmocka_unit_test(take_accepts_a_newer_caller_with_a_zero_tail),
        cmocka_unit_test(sizes_that_make_no_sense_are_refused),
        cmocka_unit_test(give_writes_no_further_than_the_caller_goes),
    };
    return MST_RUN_TESTS(tests);
}
