/* unit/base/test_unicode.c - what is UTF-8, and what Python takes for it. */
#include "base/unicode.h"
#include "unit/unit.h"

static void texts(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "a",
                                       "\x7f",
                                       "\xc2\x80",
                                       "\xdf\xbf",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xef\xbf\xbf",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf",
                                       "12345678\xc3\xa4"};
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc0\xaf",
                                      "\xc1\xbf",
                                      "\xc2",
                                      "\xc2g",
                                      "\xe0\x9f\xbf",
                                      "\xe1\x80",
                                      "\xe1\x80g",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "12345678\xc3"};
    static const char *const surrogates[] = {"\xed\xa0\x80", "\xed\xbf\xbf",
                                             "12345678\xed\xb2\x80z"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(mst__unicode_is_utf8(mst_bytes_str(good[i])));
        assert_true(mst__unicode_is_pickled(mst_bytes_str(good[i])));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(mst__unicode_is_utf8(mst_bytes_str(bad[i])));
        assert_false(mst__unicode_is_pickled(mst_bytes_str(bad[i])));
    }
    for (size_t i = 0; i < sizeof surrogates / sizeof surrogates[0]; i++) {
        assert_false(mst__unicode_is_utf8(mst_bytes_str(surrogates[i])));
        assert_true(mst__unicode_is_pickled(mst_bytes_str(surrogates[i])));
    }
    assert_true(mst__unicode_is_utf8(mst_bytes_of("a\0\xf0\x9f\x98\x80", 6)));
}

/* Each character, in its one form, is that character; a surrogate is none. */
static void every_character(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        const uint8_t forms[4][4] = {
            {(uint8_t)c},
            {(uint8_t)(0xc0 | c >> 6), (uint8_t)(0x80 | (c & 0x3f))},
            {(uint8_t)(0xe0 | c >> 12), (uint8_t)(0x80 | (c >> 6 & 0x3f)),
             (uint8_t)(0x80 | (c & 0x3f))},
            {(uint8_t)(0xf0 | c >> 18), (uint8_t)(0x80 | (c >> 12 & 0x3f)),
             (uint8_t)(0x80 | (c >> 6 & 0x3f)), (uint8_t)(0x80 | (c & 0x3f))},
        };
        size_t size = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        bool is_surrogate = c >= 0xd800 && c <= 0xdfff;
        uint32_t decoded = 0;
        struct mst_bytes text = mst_bytes_of(forms[size - 1], size);
        assert_int_equal(mst__unicode_next(text, &decoded), is_surrogate ? 0 : size);
        assert_int_equal(decoded, is_surrogate ? 0 : c);
        assert_int_equal(mst__unicode_is_utf8(text), !is_surrogate);
        assert_true(mst__unicode_is_pickled(text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(every_character),
    };
    return MST_RUN_TESTS(tests);
}
