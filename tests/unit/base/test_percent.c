/* unit/base/test_percent.c - `%XX`, both ways. */
#include "base/percent.h"

#include <string.h>

#include "unit/unit.h"

static void plain_and_encoded(void **state)
{
    (void)state;
    char text[64];
    assert_int_equal(mst__percent_write(mst_bytes_str("aZ09/._-~"), "._-", text, sizeof text), 13);
    assert_string_equal(text, "aZ09%2F._-%7E");
    assert_int_equal(mst__percent_write(mst_bytes_of("\0\xff%", 3), "/", text, sizeof text), 9);
    assert_string_equal(text, "%00%FF%25");
    assert_int_equal(mst__percent_write(mst_bytes_of("", 0), "", text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_true(mst__percent_is_plain('/', "./"));
    assert_false(mst__percent_is_plain('/', "."));
    assert_false(mst__percent_is_plain('\0', "."));
}

/* Text without room is cut off before the byte that no longer fits, never inside its `%XX`. */
static void cut(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "a", "a", "a", "a%2F", "a%2Fb", "a%2Fb"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char text[8];
        memset(text, 'x', sizeof text);
        assert_int_equal(mst__percent_write(mst_bytes_str("a/b"), "", text, i + 1),
                         strlen(texts[i]));
        assert_string_equal(text, texts[i]);
        assert_int_equal(text[i + 1], 'x');
    }
}

static void appended(void **state)
{
    (void)state;
    struct mst__buf buf;
    mst__buf_init(&buf, 8);
    assert_int_equal(mst__buf_append_u8(&buf, '/'), 0);
    assert_int_equal(mst__percent_append(&buf, mst_bytes_str("a /"), "/"), 0);
    assert_bytes(mst__buf_bytes(&buf), mst_bytes_str("/a%20/"));
    assert_int_equal(mst__percent_append(&buf, mst_bytes_str(" "), "/"), MST_ELIMIT);
    mst__buf_close(&buf);
}

static void every_byte_there_and_back(void **state)
{
    (void)state;
    for (int i = 0; i < 256; i++) {
        const uint8_t byte = (uint8_t)i;
        uint8_t back = 0;
        char text[4];
        size_t size = mst__percent_write(mst_bytes_of(&byte, 1), "", text, sizeof text);
        struct mst_bytes rest = mst_bytes_of(text, size);
        assert_true(mst__percent_take(&rest, &back));
        assert_int_equal(rest.size, 0);
        assert_int_equal(back, byte);
    }
}

static void taken(void **state)
{
    (void)state;
    struct mst_bytes rest = mst_bytes_str("/%2f+");
    uint8_t byte = 0;
    assert_true(mst__percent_take(&rest, &byte) && byte == '/');
    assert_true(mst__percent_take(&rest, &byte) && byte == '/');
    assert_true(mst__percent_take(&rest, &byte) && byte == '+');
    assert_int_equal(rest.size, 0);
    static const char *const bad[] = {"%", "%2", "%2g", "%g2", "%%20"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rest = mst_bytes_str(bad[i]);
        assert_false(mst__percent_take(&rest, &byte));
        assert_int_equal(rest.size, strlen(bad[i]));
    }
    rest = mst_bytes_of("%25", 2); /* the last digit is outside */
    assert_false(mst__percent_take(&rest, &byte));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_and_encoded),
        cmocka_unit_test(cut),
        cmocka_unit_test(appended),
        cmocka_unit_test(every_byte_there_and_back),
        cmocka_unit_test(taken),
    };
    return MST_RUN_TESTS(tests);
}
