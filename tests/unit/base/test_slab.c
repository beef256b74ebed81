/* unit/base/test_slab.c - small allocations: each has its own bytes, and all give back their
 * pages. */
#include <string.h>

#include "base/prng.h"
#include "base/slab.h"
#include "unit/unit.h"

/* The counted size of an allocation is its real size: the next one begins there. */
static void cost_is_what_is_taken(void **state)
{
    (void)state;
    if (MST_MEM_IS_SANITIZED) {
        MST_SKIP("a sanitizer sees every allocation");
    }
    for (size_t size = 0; size < MST_MEM_MAPPED_MIN; size += size < 600 ? 1 : 37) {
        struct mst__slabs slabs = {0};
        uint8_t *first = mst__slab_malloc(&slabs, size);
        uint8_t *second = mst__slab_malloc(&slabs, size);
        assert_non_null(first);
        assert_non_null(second);
        assert_int_equal(second - first, mst__slab_cost(size));
        assert_true(mst__slab_cost(size) >= size);
        assert_true(mst__slab_cost(size) <= size + size / 8 + 16);
        mst__slab_free(&slabs, first, size);
        mst__slab_free(&slabs, second, size);
        mst__slabs_close(&slabs);
    }
    assert_int_equal(mst__slab_cost(MST_MEM_MAPPED_MIN), MST_MEM_MAPPED_MIN + 4096);
}

struct piece {
    uint8_t *memory;
    size_t size;
    uint8_t mark;
};

static size_t random_size(struct mst__prng *prng)
{
    size_t bits = 1 + mst__prng_below(prng, 16);
    return mst__prng_below(prng, (uint64_t)1 << bits);
}

static void piece_check(const struct piece *piece, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        assert_int_equal(piece->memory[i], piece->mark);
    }
}

/* Allocate, move and free in any order: no other allocation writes to it. */
static void bytes_are_ones_own(void **state)
{
    (void)state;
    enum { PIECES = 2000, STEPS = 20000 };
    static struct piece pieces[PIECES];
    struct mst__slabs slabs = {0};
    struct mst__prng prng;
    mst__prng_init(&prng, 7);
    for (size_t step = 0; step < STEPS; step++) {
        struct piece *piece = &pieces[mst__prng_below(&prng, PIECES)];
        size_t size = random_size(&prng);
        if (piece->memory == NULL) {
            piece->memory = mst__slab_malloc(&slabs, size);
        } else if (size > 0 && mst__prng_below(&prng, 3) == 0) {
            piece->memory = mst__slab_realloc(&slabs, piece->memory, piece->size, size);
            piece_check(piece, piece->size < size ? piece->size : size);
        } else {
            piece_check(piece, piece->size);
            mst__slab_free(&slabs, piece->memory, piece->size);
            piece->memory = NULL;
            continue;
        }
        assert_non_null(piece->memory);
        assert_int_equal((uintptr_t)piece->memory % 16, 0);
        piece->size = size;
        piece->mark = (uint8_t)step;
        memset(piece->memory, piece->mark, size);
    }
    for (size_t i = 0; i < PIECES; i++) {
        if (pieces[i].memory != NULL) {
            piece_check(&pieces[i], pieces[i].size);
            mst__slab_free(&slabs, pieces[i].memory, pieces[i].size);
        }
    }
    mst__slabs_close(&slabs);
}

/* Memory goes back while it is being freed, not all at the end, wherever it lies; the rest can
 * be used for another size. */
static void pages_go_back_bit_by_bit(void **state)
{
    (void)state;
    if (mst__mem_resident() == 0) {
        MST_SKIP("a sanitizer keeps freed memory");
    }
    enum { COUNT = 1 << 18, SIZE = 240 };
    static uint8_t *pieces[COUNT];
    struct mst__slabs slabs = {0};
    size_t before = mst__mem_resident();
    size_t whole = (size_t)COUNT * SIZE;
    for (size_t i = 0; i < COUNT; i++) {
        pieces[i] = mst__slab_malloc(&slabs, SIZE);
        assert_non_null(pieces[i]);
        memset(pieces[i], 1, SIZE);
    }
    assert_true(mst__mem_resident() > before + whole);
    for (size_t i = 0; i < COUNT / 2; i++) {
        mst__slab_free(&slabs, pieces[i], SIZE);
    }
    assert_true(mst__mem_resident() < before + whole * 5 / 8);
    for (size_t i = 0; i < COUNT / 4; i++) {
        pieces[i] = mst__slab_malloc(&slabs, 2 * SIZE);
        assert_non_null(pieces[i]);
        memset(pieces[i], 1, 2 * SIZE);
    }
    assert_true(mst__mem_resident() < before + whole * 9 / 8);
    for (size_t i = 0; i < COUNT; i++) {
        if (i < COUNT / 4 || i >= COUNT / 2) {
            mst__slab_free(&slabs, pieces[i], i < COUNT / 4 ? 2 * SIZE : SIZE);
        }
    }
    assert_true(mst__mem_resident() < before + whole / 8);
    mst__slabs_close(&slabs);
}

/* An allocation of a slab can be made to fail like any other, and existing ones stay. */
static void an_allocation_fails(void **state)
{
    (void)state;
    struct mst__slabs slabs = {0};
    uint8_t *memory = mst__slab_malloc(&slabs, 100);
    assert_non_null(memory);
    memset(memory, 'x', 100);
    mst__mem_fail_nth(1);
    assert_null(mst__slab_malloc(&slabs, 100));
    assert_true(mst__mem_failed());
    mst__mem_fail_nth(1);
    assert_null(mst__slab_realloc(&slabs, memory, 100, 1000));
    mst__mem_fail_nth(0);
    assert_int_equal(memory[99], 'x');
    mst__slab_free(&slabs, memory, 100);
    mst__slab_free(&slabs, NULL, 100);
    mst__slabs_close(&slabs);
}

/* Without slabs they are the ordinary ones. */
static void there_may_be_none(void **state)
{
    (void)state;
    uint8_t *memory = mst__slab_realloc(NULL, NULL, 0, 100);
    assert_non_null(memory);
    memset(memory, 'x', 100);
    memory = mst__slab_realloc(NULL, memory, 100, 100000);
    assert_non_null(memory);
    assert_int_equal(memory[99], 'x');
    mst__free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cost_is_what_is_taken),    cmocka_unit_test(bytes_are_ones_own),
        cmocka_unit_test(pages_go_back_bit_by_bit), cmocka_unit_test(an_allocation_fails),
        cmocka_unit_test(there_may_be_none),
    };
    return MST_RUN_TESTS(tests);
}
