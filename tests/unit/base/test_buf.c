/* unit/base/test_buf.c - the bounded buffer. */
#include "base/buf.h"
#include "base/mem.h"
#include "muster/error.h"
#include "unit/unit.h"

static void appends_and_consumes(void **state)
{
    (void)state;
    struct mst__buf buf;
    mst__buf_init(&buf, 1000);
    assert_int_equal(mst__buf_append(&buf, mst_bytes_str("abc")), 0);
    assert_int_equal(mst__buf_append(&buf, mst_bytes_str("")), 0);
    assert_int_equal(mst__buf_append_u8(&buf, 'd'), 0);
    assert_bytes_str(mst__buf_bytes(&buf), "abcd");
    mst__buf_consume(&buf, 3);
    assert_bytes_str(mst__buf_bytes(&buf), "d");
    mst__buf_consume(&buf, 1);
    assert_int_equal(mst__buf_size(&buf), 0);
    assert_int_equal(buf.start, 0);
    mst__buf_close(&buf);
}

static void integers_are_little_endian(void **state)
{
    (void)state;
    struct mst__buf buf;
    mst__buf_init(&buf, 1000);
    assert_int_equal(mst__buf_append_u32(&buf, 0x3C85F7CEU), 0);
    assert_int_equal(mst__buf_append_u64(&buf, 0x0102030405060708U), 0);
    assert_bytes(mst__buf_bytes(&buf),
                 mst_bytes_of("\xce\xf7\x85\x3c\x08\x07\x06\x05\x04\x03\x02\x01", 12));
    mst__buf_clear(&buf);
    assert_int_equal(mst__buf_append_str(&buf, mst_bytes_str("/k")), 0);
    assert_bytes(mst__buf_bytes(&buf), mst_bytes_of("\x02\0\0\0\0\0\0\0/k", 10));
    mst__buf_close(&buf);
}

static void limit_is_exact(void **state)
{
    (void)state;
    struct mst__buf buf;
    mst__buf_init(&buf, 10);
    assert_int_equal(mst__buf_append(&buf, mst_bytes_str("0123456789")), 0);
    assert_int_equal(mst__buf_append_u8(&buf, 'x'), MST_ELIMIT);
    assert_bytes_str(mst__buf_bytes(&buf), "0123456789");
    mst__buf_consume(&buf, 8);
    /* Consumed bytes make room again. */
    assert_int_equal(mst__buf_append_u64(&buf, 0), 0);
    assert_int_equal(mst__buf_append_u8(&buf, 'x'), MST_ELIMIT);
    assert_int_equal(mst__buf_size(&buf), 10);
    assert_true(buf.capacity <= 256);
    mst__buf_close(&buf);
}

static void grows_and_moves_to_front(void **state)
{
    (void)state;
    struct mst__buf buf;
    mst__buf_init(&buf, 100000);
    uint64_t in = 0;
    uint64_t out = 0;
    for (int round = 0; round < 2000; round++) {
        for (int i = 0; i < 3; i++) {
            assert_int_equal(mst__buf_append_u64(&buf, in++), 0);
        }
        for (int i = 0; i < 2; i++) {
            assert_true(mst__load_u64(mst__buf_bytes(&buf).data) == out);
            mst__buf_consume(&buf, 8);
            out++;
        }
    }
    assert_int_equal(mst__buf_size(&buf), (in - out) * 8);
    mst__buf_close(&buf);
    /* Closed is empty, and usable. */
    assert_int_equal(mst__buf_size(&buf), 0);
    assert_int_equal(mst__buf_append_u8(&buf, 1), 0);
    mst__buf_close(&buf);
}

static void reserve_and_truncate(void **state)
{
    (void)state;
    struct mst__buf buf;
    mst__buf_init(&buf, 64);
    int rv = 0;
    uint8_t *to = mst__buf_reserve(&buf, 64, &rv);
    assert_non_null(to);
    memset(to, 'a', 64);
    mst__buf_commit(&buf, 5);
    assert_bytes_str(mst__buf_bytes(&buf), "aaaaa");
    mst__buf_truncate(&buf, 2);
    assert_bytes_str(mst__buf_bytes(&buf), "aa");
    assert_null(mst__buf_reserve(&buf, 63, &rv));
    assert_int_equal(rv, MST_ELIMIT);
    assert_null(mst__buf_reserve(&buf, SIZE_MAX, &rv));
    assert_int_equal(rv, MST_ELIMIT);
    mst__buf_close(&buf);
}

static void releases_to_the_caller(void **state)
{
    (void)state;
    struct mst_buffer out = {0};
    struct mst__buf buf;
    mst__buf_init(&buf, 300);
    assert_int_equal(mst__buf_release(&buf, &out), 0);
    assert_int_equal(out.size, 0);
    assert_int_equal(out.data[0], '\0');
    mst_buffer_free(&out);
    /* Full to the last byte: the NUL needs room of its own. */
    for (int i = 0; i < 256; i++) {
        assert_int_equal(mst__buf_append_u8(&buf, 'x'), 0);
    }
    mst__buf_consume(&buf, 1);
    assert_int_equal(mst__buf_append_u8(&buf, 'y'), 0);
    assert_int_equal(mst__buf_release(&buf, &out), 0);
    assert_int_equal(out.size, 256);
    assert_int_equal(out.data[255], 'y');
    assert_int_equal(out.data[256], '\0');
    assert_int_equal(mst__buf_size(&buf), 0);
    mst_buffer_free(&out);
    assert_null(out.data);
}

static void out_of_memory_changes_nothing(void **state)
{
    (void)state;
    struct mst__buf buf;
    mst__buf_init(&buf, 10000);
    mst__mem_fail_nth(1);
    assert_int_equal(mst__buf_append_u8(&buf, 1), MST_ENOMEM);
    assert_int_equal(mst__buf_size(&buf), 0);
    uint8_t raw[256];
    memset(raw, 7, sizeof raw);
    assert_int_equal(mst__buf_append(&buf, mst_bytes_of(raw, sizeof raw)), 0);
    mst__mem_fail_nth(1);
    assert_int_equal(mst__buf_append_str(&buf, mst_bytes_str("more")), MST_ENOMEM);
    assert_true(mst__mem_failed());
    assert_bytes(mst__buf_bytes(&buf), mst_bytes_of(raw, sizeof raw));
    struct mst_buffer out = {0};
    mst__mem_fail_nth(1);
    assert_int_equal(mst__buf_release(&buf, &out), MST_ENOMEM);
    assert_bytes(mst__buf_bytes(&buf), mst_bytes_of(raw, sizeof raw));
    mst__mem_fail_nth(0);
    mst__buf_close(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_and_consumes),
        cmocka_unit_test(integers_are_little_endian),
        cmocka_unit_test(limit_is_exact),
        cmocka_unit_test(grows_and_moves_to_front),
        cmocka_unit_test(reserve_and_truncate),
        cmocka_unit_test(releases_to_the_caller),
        cmocka_unit_test(out_of_memory_changes_nothing),
    };
    return MST_RUN_TESTS(tests);
}
