/* unit/base/test_number.c - numbers as text, both ways. */
#include <errno.h>
#include <stdlib.h>

#include "base/number.h"
#include "base/prng.h"
#include "unit/unit.h"

static bool prefix(const char *text, int64_t *ret_number)
{
    return mst__number_parse_prefix(mst_bytes_str(text), ret_number);
}

static void prefix_as_strtoll(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "0",
        "7",
        "-2",
        "+5",
        " 12abc",
        "\t\n\v\f\r 3",
        "00012",
        "-0",
        "1 2",
        "9223372036854775807",
        "-9223372036854775808",
        "12\xff",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        int64_t number = 99;
        assert_true(prefix(texts[i], &number));
        errno = 0;
        assert_true(number == strtoll(texts[i], NULL, 10));
        assert_int_equal(errno, 0);
    }
    static const char *const bad[] = {
        "",
        " ",
        "abc",
        "-",
        "+",
        "+-1",
        "--1",
        "- 1",
        "9223372036854775808",
        "-9223372036854775809",
        "99999999999999999999999999",
        "18446744073709551616",
        ".5",
        "x1",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t number = 99;
        assert_false(prefix(bad[i], &number));
        assert_int_equal(number, 99);
    }
    /* No NUL is needed, and a NUL is not a digit. */
    int64_t number = 0;
    assert_true(mst__number_parse_prefix(mst_bytes_of("123", 2), &number));
    assert_int_equal(number, 12);
    assert_true(mst__number_parse_prefix(mst_bytes_of("4\0005", 3), &number));
    assert_int_equal(number, 4);
    assert_false(mst__number_parse_prefix(mst_bytes_of(NULL, 0), &number));
}

static void whole_text_within_bounds(void **state)
{
    (void)state;
    int64_t number = 0;
    assert_true(mst__number_parse(mst_bytes_str("42"), 0, 42, &number));
    assert_int_equal(number, 42);
    assert_false(mst__number_parse(mst_bytes_str("43"), 0, 42, &number));
    assert_false(mst__number_parse(mst_bytes_str("-1"), 0, 42, &number));
    assert_false(mst__number_parse(mst_bytes_str("4x"), 0, 42, &number));
    assert_false(mst__number_parse(mst_bytes_str(" 4"), 0, 42, &number));
    assert_false(mst__number_parse(mst_bytes_str("4 "), 0, 42, &number));
    assert_false(mst__number_parse(mst_bytes_str(""), 0, 42, &number));
    assert_false(mst__number_parse(mst_bytes_str("-"), INT64_MIN, 42, &number));
    assert_int_equal(number, 42);
}

static void format_and_back(void **state)
{
    (void)state;
    struct mst__prng prng;
    mst__prng_init(&prng, 1);
    static const int64_t edges[] = {0, 1, -1, 9, 10, -10, INT64_MAX, INT64_MIN, INT64_MIN + 1};
    for (size_t i = 0; i < 10000; i++) {
        size_t edges_count = sizeof edges / sizeof edges[0];
        int64_t number = i < edges_count
                             ? edges[i]
                             : (int64_t)(mst__prng_next(&prng) >> mst__prng_below(&prng, 64));
        char text[MST_NUMBER_SIZE];
        size_t size = mst__number_format(number, text);
        char wanted[32];
        int wanted_size = snprintf(wanted, sizeof wanted, "%lld", (long long)number);
        assert_bytes(mst_bytes_of(text, size), mst_bytes_of(wanted, (size_t)wanted_size));
        int64_t back = 0;
        assert_true(mst__number_parse(mst_bytes_of(text, size), INT64_MIN, INT64_MAX, &back));
        assert_true(back == number);
    }
}

static void scaled_fractions(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t factor, number; /* -1 = refused */
    } cases[] = {
        {"2", 1000, 2000},
        {"1.5", 1000, 1500},
        {"0.25", 1000, 250},
        {"0.0001", 1000, 1}, /* not nothing */
        {"0.0000", 1000, 0},
        {"2.5", 60000, 150000},
        {"0.333333333", 3600000, 1200000},
        {"9223372036854775.807", 1000, INT64_MAX},
        {"9223372036854775.8071", 1000, -1},
        {"9223372036854776", 1000, -1},
        {"1.999999999", 1 << 30, 2147483647},
        {"1.0000000001", 1000, 1001},
        {"1.0000000000", 1000, 1000},
        {"0.30000000000000004", 1000, 301}, /* as Python writes 0.1 + 0.2 */
        {"0.9999999999", 1 << 30, 1 << 30},
        {"1.000000000x", 1000, -1},
        {"", 1000, -1},
        {".", 1000, -1},
        {".5", 1000, -1},
        {"1.", 1000, -1},
        {"1.5.", 1000, -1},
        {"-1.5", 1000, -1},
        {"+1", 1000, -1},
        {"1.-5", 1000, -1},
        {" 1", 1000, -1},
        {"1e3", 1000, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t number = -1;
        bool is_number =
            mst__number_parse_scaled(mst_bytes_str(cases[i].text), cases[i].factor, &number);
        assert_int_equal(is_number, cases[i].number >= 0);
        assert_true(number == cases[i].number);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefix_as_strtoll),
        cmocka_unit_test(whole_text_within_bounds),
        cmocka_unit_test(scaled_fractions),
        cmocka_unit_test(format_and_back),
    };
    return MST_RUN_TESTS(tests);
}
