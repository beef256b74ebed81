/* unit/base/test_mem.c - the memory of a process. */
#include "base/mem.h"
#include "unit/unit.h"

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
    assert_true(mst__mem_resident() < before + size / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resident_memory),
    };
    return MST_RUN_TESTS(tests);
}
