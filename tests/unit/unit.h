/* unit/unit.h - cmocka, and how every unit test ends. */
#ifndef MST_UNIT_UNIT_H
#define MST_UNIT_UNIT_H

#include <muster/error.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* After the four headers above, which it needs and does not include. */
#include <cmocka.h>

#include "base/bytes.h"
#include "base/mem.h"

static int mst__unit_skipped;

/* Leave the test that this is written in, which cannot run here, and say why. */
#define MST_SKIP(reason)                                   \
    do {                                                   \
        mst__unit_skipped++;                               \
        (void)printf("SKIP %s: %s\n", __func__, (reason)); \
        skip();                                            \
    } while (0)

/* Run the array @tests and print the count; returns the value of main. */
#define MST_RUN_TESTS(tests) \
    mst__unit_end(sizeof(tests) / sizeof(tests)[0], cmocka_run_group_tests((tests), NULL, NULL))

static inline int mst__unit_end(size_t count, int failed)
{
    int passed = (int)count - failed - mst__unit_skipped;
    (void)printf("%d passed, %d failed, %d skipped\n", passed, failed, mst__unit_skipped);
    return failed == 0 ? 0 : 1;
}

/* Bytes against a C string without its NUL, or against bytes. */
#define assert_bytes_str(bytes, text) \
    mst__unit_bytes((bytes), mst_bytes_str(text), __FILE__, __LINE__)
#define assert_bytes(bytes, wanted) mst__unit_bytes((bytes), (wanted), __FILE__, __LINE__)

static inline void mst__unit_bytes(struct mst_bytes bytes,
                                   struct mst_bytes wanted,
                                   const char *file,
                                   int line)
{
    if (!mst__bytes_equal(bytes, wanted)) {
        print_error("bytes differ: %zu are '%.*s', wanted %zu '%.*s'\n", bytes.size,
                    (int)bytes.size, bytes.size == 0 ? "" : (const char *)bytes.data, wanted.size,
                    (int)wanted.size, wanted.size == 0 ? "" : (const char *)wanted.data);
        _fail(file, line);
    }
}

/* A fault sweep: repeat an action, and fail its allocation 1, 2, … until there is none left to
 * fail.
 *
 *     struct mst__sweep sweep = {0};
 *     while (sweep_next(&sweep)) {
 *         int rv = something();
 *         sweep_end(&sweep, rv);
 *         free its results;
 *     }
 *     assert_true(sweep.failures > 10); the number that it needs at least */
struct mst__sweep {
    unsigned long failures; /* as many allocations there are */
    bool is_over;
};

#define SWEEP_MAX 10000

/* Between this and sweep_end an allocation fails. */
static inline bool sweep_next(struct mst__sweep *sweep)
{
    assert_true(sweep->failures < SWEEP_MAX);
    if (!sweep->is_over) {
        mst__mem_fail_nth(sweep->failures + 1);
    }
    return !sweep->is_over;
}

/* Nothing fails any more: the action must have reported the truth. */
static inline void sweep_end(struct mst__sweep *sweep, int rv)
{
    bool has_failed = mst__mem_failed();
    mst__mem_fail_nth(0);
    assert_int_equal(rv, has_failed ? MST_ENOMEM : 0);
    sweep->failures += has_failed ? 1 : 0;
    sweep->is_over = !has_failed;
}

#endif /* MST_UNIT_UNIT_H */
