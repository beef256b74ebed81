/* unit/base/test_json_reader.c - reading values from JSON, and nothing beyond its end. */
#include <string.h>

#include "base/json_reader.h"
#include "base/limits.h"
#include "base/prng.h"
#include "unit/unit.h"

static void values(void **state)
{
    (void)state;
    static const char *const good[] = {
        "{}",         "[]",           " {\"a\": [1, {\"b\": null}], \"c\": \"}\"} ",
        "\"x\\\"y\"", "-1.5e3",       "true",
        "NaN",        "[[],[[]],{}]",
    };
    static const char *const bad[] = {
        "",      "{",    "}",   "{\"a\"}",  "{\"a\":}", "{\"a\":1",  "[1 2]", "{a:1}",
        "\"abc", "{} x", "[1,", "\"a\nb\"", "nul",      "{\"a\":1]", "+",     "[,]",
    };
    struct mst_bytes value;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(mst__json_read_value(mst_bytes_str(good[i]), &value));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (mst__json_read_value(mst_bytes_str(bad[i]), &value)) {
            print_error("'%s' was taken\n", bad[i]);
            fail();
        }
    }
    char deep[2 * MST_JSON_DEPTH_MAX + 4];
    memset(deep, '[', MST_JSON_DEPTH_MAX + 1);
    memset(deep + MST_JSON_DEPTH_MAX + 1, ']', MST_JSON_DEPTH_MAX + 1);
    assert_false(mst__json_read_value(mst_bytes_of(deep, 2 * (MST_JSON_DEPTH_MAX + 1)), &value));
    assert_true(mst__json_read_value(mst_bytes_of(deep + 1, 2 * MST_JSON_DEPTH_MAX), &value));
}

static void members(void **state)
{
    (void)state;
    struct mst_bytes object = mst_bytes_str("{ \"a\" : 1, \"b\":{\"a\":2}, \"a\": [3 , 4] }");
    struct mst_bytes value;
    assert_true(mst__json_read_member(object, "a", &value));
    assert_bytes_str(value, "[3 , 4]");
    assert_true(mst__json_read_member(object, "b", &value));
    assert_bytes_str(value, "{\"a\":2}");
    assert_false(mst__json_read_member(object, "c", &value));
    assert_false(mst__json_read_member(mst_bytes_str("[1]"), "a", &value));
    struct mst_bytes rest = mst_bytes_str("[[3] , \"x\",[]]");
    static const char *const items[] = {"[3]", "\"x\"", "[]"};
    assert_true(mst__json_read_begin(&rest));
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
        assert_true(mst__json_read_item(&rest, &value));
        assert_bytes_str(value, items[i]);
    }
    assert_false(mst__json_read_item(&rest, &value));
    assert_false(mst__json_read_begin(&object));
}

static void texts(void **state)
{
    (void)state;
    struct mst__buf text;
    mst__buf_init(&text, 100);
    assert_true(mst__json_read_text(
        mst_bytes_str("\"a\\n\\\"\\\\\\/\\u00e4\\ud83d\\ude00\\ud83dx\\q\\u12\""), &text));
    assert_bytes_str(mst__buf_bytes(&text),
                     "a\n\"\\/\xc3\xa4\xf0\x9f\x98\x80\xef\xbf\xbdx\xef\xbf\xbd\xef\xbf\xbd"
                     "12");
    mst__buf_clear(&text);
    assert_false(mst__json_read_text(mst_bytes_str("1"), &text));
    assert_false(mst__json_read_text(mst_bytes_str(""), &text));
    mst__buf_close(&text);
}

static void numbers(void **state)
{
    (void)state;
    int64_t number = 0;
    assert_true(mst__json_read_number(mst_bytes_str("-12.9"), &number));
    assert_int_equal(number, -12);
    assert_true(mst__json_read_micro(mst_bytes_str("1.2345678"), &number));
    assert_int_equal(number, 1234567);
    assert_true(mst__json_read_micro(mst_bytes_str("-1"), &number));
    assert_int_equal(number, -1000000);
    assert_true(mst__json_read_number(mst_bytes_str("99999999999999999999"), &number));
    assert_true(number == INT64_MAX);
    assert_false(mst__json_read_number(mst_bytes_str("\"1\""), &number));
    assert_false(mst__json_read_number(mst_bytes_str("1e5"), &number));
    assert_false(mst__json_read_number(mst_bytes_str("-"), &number));
}

/* Any bytes: nothing is read behind them, which the sanitizers see. */
static void any_bytes(void **state)
{
    (void)state;
    struct mst__prng prng;
    mst__prng_init(&prng, 7);
    for (int i = 0; i < 20000; i++) {
        size_t size = mst__prng_below(&prng, 24);
        uint8_t *tight = mst__malloc(size == 0 ? 1 : size); /* nothing behind it */
        for (size_t j = 0; j < size; j++) {
            tight[j] = (uint8_t) "{}[]\":,\\u1a \n"[mst__prng_below(&prng, 13)];
        }
        struct mst_bytes bytes = mst_bytes_of(tight, size);
        struct mst_bytes value;
        struct mst__buf out;
        mst__buf_init(&out, 1000);
        (void)mst__json_read_value(bytes, &value);
        (void)mst__json_read_member(bytes, "u", &value);
        (void)mst__json_read_text(bytes, &out);
        for (bool more = mst__json_read_begin(&bytes); more;) {
            more = mst__json_read_item(&bytes, &value);
        }
        mst__buf_close(&out);
        mst__free(tight);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),  cmocka_unit_test(members),   cmocka_unit_test(texts),
        cmocka_unit_test(numbers), cmocka_unit_test(any_bytes),
    };
    return MST_RUN_TESTS(tests);
}
