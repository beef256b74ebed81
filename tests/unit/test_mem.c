/* unit/test_mem.c - what allocations cost. */
#include <malloc.h>

#include "base/mem.h"
#include "unit/unit.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* What is counted for an allocation is what the C library takes for it. A rest of up to 16 bytes
 * that it cannot use otherwise is not counted; and a large one may need no pages of its own. */
static void cost_is_the_librarys(void **state)
{
    (void)state;
    mst__mem_tune();
    for (size_t size = 0; size < 3 * MST_MEM_MAPPED_MIN; size += size < 300 ? 1 : 997) {
        void *memory = mst__malloc(size);
        assert_non_null(memory);
        size_t taken = malloc_usable_size(memory) + 8; /* which it keeps before them */
        size_t cost = mst__mem_cost(size);
        if (size < MST_MEM_MAPPED_MIN) {
            assert_in_range(taken, cost, cost + 16);
        } else {
            assert_in_range(cost, taken, size + 16 + 4095);
        }
        mst__free(memory);
    }
}
#else
static void cost_is_the_librarys(void **state)
{
    (void)state;
    MST_SKIP("another allocator");
}
#endif

/* Memory that was touched is resident, and a large piece is not after it was freed. */
static void resident_memory(void **state)
{
    (void)state;
    mst__mem_tune();
    size_t before = mst__mem_resident();
    if (before == 0) {
        MST_SKIP("a sanitizer keeps freed memory");
    }
    size_t size = (size_t)64 << 20;
    uint8_t *memory = mst__malloc(size);
    assert_non_null(memory);
    memset(memory, 1, size);
    assert_true(mst__mem_resident() >= before + size / 2);
    mst__free(memory);
    mst__mem_trim();
    assert_true(mst__mem_resident() < before + size / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cost_is_the_librarys),
        cmocka_unit_test(resident_memory),
    };
    return MST_RUN_TESTS(tests);
}
