/* unit/etcd/test_json.c - JSON as etcd speaks it, read and written. */
#include "base/err.h"
#include "base/mem.h"
#include "etcd/json.h"
#include "unit/unit.h"

static struct mst__json *parse(const char *text)
{
    struct mst__json *json = NULL;
    struct mst_err err = {0};
    int rv = mst__json_parse(mst_bytes_str(text), &json, &err);
    if (rv != 0) {
        fail_msg("'%s': %s", text, err.msg);
    }
    return json;
}

static void refuse(struct mst_bytes text, const char *part)
{
    struct mst__json *json = NULL;
    struct mst_err err = {0};
    assert_int_equal(mst__json_parse(text, &json, &err), MST_EPROTO);
    assert_int_equal(err.code, MST_EPROTO);
    assert_null(json);
    if (strstr(err.msg, part) == NULL) {
        fail_msg("'%.*s' is refused with: %s", (int)text.size, (const char *)text.data, err.msg);
    }
}

static void assert_written(const struct mst__json *json, bool is_spaced, const char *wanted)
{
    struct mst__buf buf;
    mst__buf_init(&buf, 4096);
    assert_int_equal(mst__json_write(json, is_spaced, &buf), 0);
    assert_bytes_str(mst__buf_bytes(&buf), wanted);
    mst__buf_close(&buf);
}

static void test_members(void **state)
{
    (void)state;
    struct mst__json *json = parse("{\"a\": {\"b\": [1, \"two\", true]}, \"n\": null}");
    const struct mst__json *list = mst__json_member(mst__json_member(json, "a"), "b");
    assert_true(mst__json_is_object(json));
    assert_false(mst__json_is_array(json));
    assert_true(mst__json_is_array(list));
    assert_int_equal(mst__json_count(list), 3);
    assert_int_equal(mst__json_count(json), 0);
    int64_t number = 0;
    assert_true(mst__json_int(mst__json_at(list, 0), &number));
    assert_int_equal(number, 1);
    struct mst_bytes text;
    assert_true(mst__json_text(mst__json_at(list, 1), &text));
    assert_bytes_str(text, "two");
    bool flag = false;
    assert_true(mst__json_bool(mst__json_at(list, 2), &flag));
    assert_true(flag);

    /* Missing values, and values of another type. */
    assert_null(mst__json_at(list, 3));
    assert_null(mst__json_member(list, "b"));
    assert_null(mst__json_member(json, "c"));
    assert_null(mst__json_member(NULL, "c"));
    assert_false(mst__json_int(NULL, &number));
    assert_false(mst__json_text(mst__json_at(list, 0), &text));
    assert_false(mst__json_bool(mst__json_member(json, "n"), &flag));
    assert_false(mst__json_int(mst__json_member(json, "n"), &number));
    mst__json_free(json);
    mst__json_free(NULL);
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t as_int;
        uint64_t as_uint;
        bool is_int;
        bool is_uint;
    } cases[] = {
        {"0", 0, 0, true, true},
        {"\"0\"", 0, 0, true, true},
        {"9223372036854775807", INT64_MAX, INT64_MAX, true, true},
        {"-9223372036854775808", INT64_MIN, 0, true, false},
        {"\"9223372036854775807\"", INT64_MAX, INT64_MAX, true, true},
        {"\"-9223372036854775808\"", INT64_MIN, 0, true, false},
        {"\"9223372036854775808\"", 0, (uint64_t)INT64_MAX + 1, false, true},
        {"\"18446744073709551615\"", 0, UINT64_MAX, false, true},
        {"\"18446744073709551616\"", 0, 0, false, false},
        {"\"99999999999999999999\"", 0, 0, false, false},
        {"\"-9223372036854775809\"", 0, 0, false, false},
        /* 2^53 + 1, which no double can hold. */
        {"9007199254740993", 9007199254740993, 9007199254740993, true, true},
        {"-1", -1, 0, true, false},
        {"\"\"", 0, 0, false, false},
        {"\"-\"", 0, 0, false, false},
        {"\" 1\"", 0, 0, false, false},
        {"\"+1\"", 0, 0, false, false},
        {"\"1x\"", 0, 0, false, false},
        {"\"1.0\"", 0, 0, false, false},
        {"1.0", 0, 0, false, false},
        {"1e3", 0, 0, false, false},
        {"true", 0, 0, false, false},
        {"[]", 0, 0, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__json *json = parse(cases[i].text);
        int64_t as_int = 77;
        uint64_t as_uint = 77;
        if (mst__json_int(json, &as_int) != cases[i].is_int ||
            mst__json_uint(json, &as_uint) != cases[i].is_uint) {
            fail_msg("'%s' is taken for something else", cases[i].text);
        }
        assert_int_equal(as_int, cases[i].is_int ? cases[i].as_int : 77);
        assert_int_equal(as_uint, cases[i].is_uint ? cases[i].as_uint : 77);
        mst__json_free(json);
    }
}

static void test_text(void **state)
{
    (void)state;
    struct mst__json *json = parse("\"a\\u0000b \\ud83d\\ude00 \xc3\xa4\"");
    struct mst_bytes text;
    assert_true(mst__json_text(json, &text));
    assert_bytes(text, mst_bytes_of("a\0b \xf0\x9f\x98\x80 \xc3\xa4", 11));
    mst__json_free(json);
}

static void test_refused(void **state)
{
    (void)state;
    refuse(mst_bytes_of("", 0), "invalid JSON");
    refuse(mst_bytes_str("404 page not found\n"), "invalid JSON");
    refuse(mst_bytes_str("{\"a\": 1"), "invalid JSON");
    refuse(mst_bytes_str("{\"a\": 1}}"), "at byte 9");
    refuse(mst_bytes_str("{\"a\": 1} {}"), "invalid JSON");
    refuse(mst_bytes_str("{\"a\": 1, \"a\": 2}"), "duplicate");
    refuse(mst_bytes_str("[NaN]"), "invalid JSON");
    refuse(mst_bytes_str("[9223372036854775808]"), "too big");
    refuse(mst_bytes_str("[1e999]"), "overflow");
    refuse(mst_bytes_str("\"\xff\""), "invalid JSON");
    refuse(mst_bytes_str("\"\\ud800\""), "invalid JSON");
    refuse(mst_bytes_str("{\"a\\u0000\": 1}"), "invalid JSON");
    refuse(mst_bytes_of("{}\0", 3), "invalid JSON");
}

static void test_depth(void **state)
{
    (void)state;
    char text[2 * (MST_JSON_DEPTH_MAX + 1) + 1];
    for (size_t depth = MST_JSON_DEPTH_MAX; depth <= MST_JSON_DEPTH_MAX + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        text[2 * depth] = '\0';
        if (depth == MST_JSON_DEPTH_MAX) {
            mst__json_free(parse(text));
        } else {
            refuse(mst_bytes_str(text), "nested more than 64 deep");
        }
    }
    /* Brackets in text are text; the quote behind a backslash does not end it. */
    char quoted[200] = "\"\\\\\\\"";
    memset(quoted + 5, '[', 100);
    quoted[105] = '"';
    mst__json_free(parse(quoted));
}

static struct mst__json *build(void)
{
    struct mst__json *json = mst__json_new_object();
    struct mst__json *list = mst__json_new_array();
    int rv = mst__json_add_text(json, "z", mst_bytes_str("\"q\" \xc3\xa4"));
    rv = rv != 0 ? rv : mst__json_add_base64(json, "b", mst_bytes_of("\0\xff", 2));
    rv = rv != 0 ? rv : mst__json_add_base64(json, "e", mst_bytes_of(NULL, 0));
    rv = rv != 0 ? rv : mst__json_add_int(json, "i", INT64_MIN);
    rv = rv != 0 ? rv : mst__json_add_uint_text(json, "u", UINT64_MAX);
    rv = rv != 0 ? rv : mst__json_add_bool(json, "t", true);
    rv = rv != 0 ? rv : mst__json_add_int(list, NULL, 1);
    rv = rv != 0 ? rv : mst__json_add_bool(list, NULL, false);
    int rv_add = mst__json_add(json, "a", list);
    if (rv != 0 || rv_add != 0) {
        mst__json_free(json);
        return NULL;
    }
    return json;
}

static void test_write(void **state)
{
    (void)state;
    struct mst__json *json = build();
    assert_non_null(json);
    /* In the order in which they came. */
    assert_written(json, false,
                   "{\"z\":\"\\\"q\\\" \xc3\xa4\",\"b\":\"AP8=\",\"e\":\"\","
                   "\"i\":-9223372036854775808,\"u\":\"18446744073709551615\",\"t\":true,"
                   "\"a\":[1,false]}");
    struct mst__json *copy = mst__json_copy(json);
    assert_int_equal(mst__json_remove(json, "z"), 0);
    assert_int_equal(mst__json_remove(json, "b"), 0);
    assert_int_equal(mst__json_remove(json, "e"), 0);
    assert_int_equal(mst__json_remove(json, "i"), 0);
    assert_int_equal(mst__json_remove(json, "absent"), 0);
    assert_int_equal(mst__json_add_int(json, "t", 5), 0); /* replaces the old value */
    assert_written(json, true, "{\"u\": \"18446744073709551615\", \"t\": 5, \"a\": [1, false]}");
    /* The copy has not changed. */
    bool flag = false;
    assert_true(mst__json_bool(mst__json_member(copy, "t"), &flag));
    assert_non_null(mst__json_member(copy, "z"));
    mst__json_free(copy);
    mst__json_free(json);
}

static void test_write_refused(void **state)
{
    (void)state;
    struct mst__json *json = mst__json_new_object();
    assert_int_equal(mst__json_add_text(json, "a", mst_bytes_str("\xff")), MST_EINVAL);
    assert_int_equal(mst__json_add_int(json, "\xff", 1), MST_EINVAL);
    assert_written(json, false, "{}");
    /* A value that could not be made is missing, and every user of it fails. */
    assert_int_equal(mst__json_add_int(NULL, "a", 1), MST_ENOMEM);
    assert_int_equal(mst__json_add(json, "a", NULL), MST_ENOMEM);
    assert_int_equal(mst__json_add(NULL, "a", mst__json_new_array()), MST_ENOMEM);
    assert_int_equal(mst__json_remove(NULL, "a"), MST_ENOMEM);
    struct mst__buf buf;
    mst__buf_init(&buf, 10);
    assert_int_equal(mst__json_write(NULL, false, &buf), MST_ENOMEM);
    /* Too long: the buffer is as it was. */
    assert_int_equal(mst__buf_append(&buf, mst_bytes_str("before")), 0);
    assert_int_equal(mst__json_add_int(json, "a", 1), 0);
    assert_int_equal(mst__json_write(json, false, &buf), MST_ELIMIT);
    assert_bytes_str(mst__buf_bytes(&buf), "before");
    mst__buf_close(&buf);
    mst__json_free(json);
}

/* Each of our own allocations fails once; those of jansson are its own affair. */
static void test_faults(void **state)
{
    (void)state;
    struct mst__sweep sweep = {0};
    while (sweep_next(&sweep)) {
        struct mst__buf buf;
        mst__buf_init(&buf, 4096);
        struct mst__json *json = build();
        int rv = mst__json_write(json, false, &buf);
        sweep_end(&sweep, rv);
        assert_true(rv != 0 ? mst__buf_size(&buf) == 0 : mst__buf_size(&buf) > 100);
        mst__json_free(json);
        mst__buf_close(&buf);
    }
    assert_true(sweep.failures > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members),       cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_text),          cmocka_unit_test(test_refused),
        cmocka_unit_test(test_depth),         cmocka_unit_test(test_write),
        cmocka_unit_test(test_write_refused), cmocka_unit_test(test_faults),
    };
    return MST_RUN_TESTS(tests);
}
