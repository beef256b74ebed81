/* unit/base/test_siphash.c - SipHash-1-3 against another implementation. The values are those of
 * CPython 3.11, whose hash of bytes is SipHash-1-3, for the keys of PYTHONHASHSEED=0 and =7. */
#include "base/siphash.h"
#include "unit/unit.h"

static const uint8_t key_zero[MST_SIPHASH_KEY_SIZE];
static const uint8_t key_seven[MST_SIPHASH_KEY_SIZE] = {
    0x3d, 0x0e, 0x6f, 0x80, 0xa1, 0x74, 0xc8, 0x12, 0x4f, 0x78, 0xd2, 0xf9, 0xd2, 0x89, 0x0a, 0x47,
};

static void known_values(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t zero;
        uint64_t seven;
    } rows[] = {
        {"a", 0x407448d2b89b1813, 0x58fddb5aae8c3c14},
        {"abc", 0xc03bc3a0042630f2, 0x9879e56a35b4c0c0},
        {"12345678", 0x3489982430560a87, 0x2252aef54e709d3d},
        {"hello, rendezvous", 0x9e6c164d46737371, 0xe3216a5a5591b614},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(mst__siphash(key_zero, rows[i].text, strlen(rows[i].text)) == rows[i].zero);
        assert_true(mst__siphash(key_seven, rows[i].text, strlen(rows[i].text)) == rows[i].seven);
    }
    uint8_t counting[63];
    for (size_t i = 0; i < sizeof counting; i++) {
        counting[i] = (uint8_t)i;
    }
    assert_true(mst__siphash(key_zero, counting, sizeof counting) == 0x385d3e39e5f37359);
    assert_true(mst__siphash(key_seven, counting, sizeof counting) == 0xb1eaa0579bb21aa3);
}

static void depends_on_key_length_and_every_bit(void **state)
{
    (void)state;
    uint8_t data[24] = {0};
    uint64_t base = mst__siphash(key_zero, data, sizeof data);
    assert_true(mst__siphash(key_seven, data, sizeof data) != base);
    for (size_t i = 0; i < sizeof data; i++) {
        assert_true(mst__siphash(key_zero, data, i) != base);
        for (int bit = 0; bit < 8; bit++) {
            data[i] = (uint8_t)(1 << bit);
            assert_true(mst__siphash(key_zero, data, sizeof data) != base);
        }
        data[i] = 0;
    }
    assert_true(mst__siphash(key_zero, NULL, 0) == mst__siphash(key_zero, "", 0));
}

/* On the wire, so both sides and every release must agree. */
static void fingerprints(void **state)
{
    (void)state;
    assert_true(mst__fingerprint(mst_bytes_of(NULL, 0)) == 0xd1fba762150c532c);
    assert_true(mst__fingerprint(mst_bytes_str("1")) == 0xa0bead804318e255);
    assert_true(mst__fingerprint(mst_bytes_str("Y2FuaW1hZGFt")) == 0xe8328679a5c21b8b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fingerprints),
        cmocka_unit_test(known_values),
        cmocka_unit_test(depends_on_key_length_and_every_bit),
    };
    return MST_RUN_TESTS(tests);
}
