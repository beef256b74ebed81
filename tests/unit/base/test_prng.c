/* unit/base/test_prng.c - the generator repeats itself exactly and is uniform. */
#include "base/prng.h"
#include "unit/unit.h"

/* The sequence is part of what a seed means: a replay depends on it. */
static void known_sequence(void **state)
{
    (void)state;
    struct mst__prng prng = {.state = {1, 2}};
    /* By hand from the definition: rotl(1 + 2, 17) + 1. */
    assert_true(mst__prng_next(&prng) == (UINT64_C(3) << 17) + 1);
    /* The state becomes rotl(1, 49) ^ 3 ^ (3 << 21) and rotl(3, 28). */
    assert_true(prng.state[0] == ((UINT64_C(1) << 49) ^ 3 ^ (UINT64_C(3) << 21)));
    assert_true(prng.state[1] == UINT64_C(3) << 28);
}

static void same_seed_same_sequence(void **state)
{
    (void)state;
    struct mst__prng a;
    struct mst__prng b;
    struct mst__prng c;
    mst__prng_init(&a, 42);
    mst__prng_init(&b, 42);
    mst__prng_init(&c, 43);
    int differ = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t value = mst__prng_next(&a);
        assert_true(value == mst__prng_next(&b));
        differ += value != mst__prng_next(&c);
    }
    assert_true(differ > 990);
    /* A seed of 0 is as good as any. */
    mst__prng_init(&a, 0);
    assert_true(mst__prng_next(&a) != 0 || mst__prng_next(&a) != 0);
}

static void below_is_uniform(void **state)
{
    (void)state;
    struct mst__prng prng;
    mst__prng_init(&prng, 7);
    int counts[10] = {0};
    for (int i = 0; i < 100000; i++) {
        uint64_t value = mst__prng_below(&prng, 10);
        assert_true(value < 10);
        counts[value]++;
    }
    for (int i = 0; i < 10; i++) {
        /* Six standard deviations. */
        assert_in_range(counts[i], 10000 - 570, 10000 + 570);
    }
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(mst__prng_below(&prng, 1), 0);
        assert_true(mst__prng_below(&prng, UINT64_MAX) < UINT64_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_sequence),
        cmocka_unit_test(same_seed_same_sequence),
        cmocka_unit_test(below_is_uniform),
    };
    return MST_RUN_TESTS(tests);
}
