/* unit/base/test_map.c - the hash map: content, order of iteration, failing allocations. */
#include "base/map.h"
#include "base/mem.h"
#include "base/prng.h"
#include "unit/unit.h"

static const uint8_t hash_key[MST_SIPHASH_KEY_SIZE] = {1, 2, 3};

static struct mst_bytes key_of(uint64_t number, char text[32])
{
    int size = snprintf(text, 32, "key-%llu", (unsigned long long)number);
    return mst_bytes_of(text, (size_t)size);
}

static void add_get_remove(void **state)
{
    (void)state;
    struct mst__map map;
    mst__map_init(&map, sizeof(int), hash_key);
    assert_null(mst__map_first(&map));
    assert_null(mst__map_get(&map, mst_bytes_str("a")));
    int *a = mst__map_add(&map, mst_bytes_str("a"));
    assert_non_null(a);
    assert_int_equal(*a, 0);
    *a = 7;
    int *nul = mst__map_add(&map, mst_bytes_of("a\0", 2));
    assert_ptr_not_equal(nul, a);
    assert_ptr_equal(mst__map_get(&map, mst_bytes_str("a")), a);
    assert_ptr_equal(mst__map_get(&map, mst_bytes_of("a\0", 2)), nul);
    assert_bytes(mst__map_key(nul), mst_bytes_of("a\0", 2));
    assert_int_equal(mst__map_count(&map), 2);
    mst__map_remove(&map, a);
    assert_null(mst__map_get(&map, mst_bytes_str("a")));
    assert_ptr_equal(mst__map_get(&map, mst_bytes_of("a\0", 2)), nul);
    mst__map_remove(&map, nul);
    assert_int_equal(mst__map_count(&map), 0);
    assert_null(mst__map_first(&map));
    mst__map_close(&map);
}

static void the_empty_key_is_a_key(void **state)
{
    (void)state;
    struct mst__map map;
    mst__map_init(&map, 1, hash_key);
    assert_null(mst__map_get(&map, mst_bytes_of(NULL, 0)));
    void *value = mst__map_add(&map, mst_bytes_of(NULL, 0));
    assert_ptr_equal(mst__map_get(&map, mst_bytes_of(NULL, 0)), value);
    assert_ptr_equal(mst__map_get(&map, mst_bytes_str("")), value);
    assert_int_equal(mst__map_key(value).size, 0);
    mst__map_close(&map);
}

/* Values do not move when the table grows, and iteration is the order of insertion for any hash
 * key. */
static void many_keys_in_order(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    static uint64_t *values[COUNT];
    for (uint8_t seed = 0; seed < 2; seed++) {
        uint8_t key[MST_SIPHASH_KEY_SIZE] = {seed};
        struct mst__map map;
        mst__map_init(&map, sizeof(uint64_t), key);
        char text[32];
        for (uint64_t i = 0; i < COUNT; i++) {
            values[i] = mst__map_add(&map, key_of(i, text));
            assert_non_null(values[i]);
            *values[i] = i;
        }
        for (uint64_t i = 0; i < COUNT; i += 3) {
            mst__map_remove(&map, values[i]);
        }
        uint64_t next = 1;
        for (uint64_t *value = mst__map_first(&map); value != NULL; value = mst__map_next(value)) {
            assert_true(*value == next);
            assert_bytes(mst__map_key(value), key_of(next, text));
            assert_ptr_equal(mst__map_get(&map, key_of(next, text)), values[next]);
            next += next % 3 == 2 ? 2 : 1;
        }
        assert_int_equal(mst__map_count(&map), COUNT - (COUNT + 2) / 3);
        mst__map_close(&map);
        assert_int_equal(mst__map_count(&map), 0);
    }
}

/* No addition moves more than a few entries, in a table of any size: it is never copied. It
 * allocates with every doubling, and then the new part is empty. */
static void growth_is_gradual(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    struct mst__map map;
    mst__map_init(&map, sizeof(uint64_t), hash_key);
    char text[32];
    for (uint64_t i = 0; i < COUNT; i++) {
        size_t before = map.buckets_count;
        assert_non_null(mst__map_add(&map, key_of(i, text)));
        assert_true(i == 0 || map.buckets_count - before <= 1);
    }
    assert_int_equal(map.buckets_count, COUNT);
    assert_null(mst__map_get(&map, key_of(COUNT, text)));
    for (uint64_t i = 0; i < COUNT; i++) {
        void *value = mst__map_get(&map, key_of(i, text));
        assert_non_null(value);
        mst__map_remove(&map, value);
        assert_null(mst__map_get(&map, key_of(i, text)));
    }
    assert_in_range(map.buckets_count, 1, 64); /* the memory is given back */
    assert_non_null(mst__map_add(&map, mst_bytes_str("again")));
    assert_non_null(mst__map_get(&map, mst_bytes_str("again")));
    mst__map_close(&map);
}

/* Each allocation fails once; a failed insertion leaves the map as it was. */
static void failing_allocations(void **state)
{
    (void)state;
    struct mst__map map;
    mst__map_init(&map, sizeof(uint64_t), hash_key);
    char text[32];
    unsigned long failures = 0;
    for (uint64_t i = 0; i < 2000; i++) {
        for (unsigned long nth = 1;; nth++) {
            mst__mem_fail_nth(nth);
            uint64_t *value = mst__map_add(&map, key_of(i, text));
            if (value != NULL) {
                *value = i;
                break;
            }
            assert_true(mst__mem_failed());
            failures++;
            assert_int_equal(mst__map_count(&map), i);
            assert_null(mst__map_get(&map, key_of(i, text)));
            if (i > 0) {
                assert_non_null(mst__map_get(&map, key_of(i - 1, text)));
            }
        }
        mst__mem_fail_nth(0);
    }
    assert_true(failures >= 2000);
    uint64_t next = 0;
    for (uint64_t *value = mst__map_first(&map); value != NULL; value = mst__map_next(value)) {
        assert_true(*value == next);
        next++;
    }
    assert_true(next == 2000);
    mst__map_close(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_get_remove),      cmocka_unit_test(the_empty_key_is_a_key),
        cmocka_unit_test(many_keys_in_order),  cmocka_unit_test(growth_is_gradual),
        cmocka_unit_test(failing_allocations),
    };
    return MST_RUN_TESTS(tests);
}
