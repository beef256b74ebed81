/* unit/base/test_log.c - log lines, quoting, and the way to JSON. */
#include "base/log.h"

#include "base/prng.h"
#include "base/unicode.h"
#include "unit/unit.h"

struct sink {
    int count;
    enum mst_log_level level;
    char line[MST_LOG_LINE_SIZE];
};

static void sink_line(void *arg, enum mst_log_level level, const char *line)
{
    struct sink *sink = arg;
    sink->count++;
    sink->level = level;
    (void)snprintf(sink->line, sizeof sink->line, "%s", line);
}

static void lines_reach_the_sink_by_level(void **state)
{
    (void)state;
    struct sink sink = {0};
    struct mst_log log = {.fn = sink_line, .arg = &sink, .level = MST_LOG_WARN};
    mst__log(&log, MST_LOG_INFO, "conn.closed", "peer=%s", "1.2.3.4:5");
    assert_int_equal(sink.count, 0);
    mst__log(&log, MST_LOG_ERROR, "conn.closed", "peer=%s why=%s", "1.2.3.4:5", "limit");
    assert_int_equal(sink.count, 1);
    assert_int_equal(sink.level, MST_LOG_ERROR);
    assert_string_equal(sink.line, "ev=conn.closed peer=1.2.3.4:5 why=limit");
    struct mst_log silent = {0};
    mst__log(&silent, MST_LOG_ERROR, "x", "y=%d", 1);
}

static void long_lines_are_cut(void **state)
{
    (void)state;
    struct sink sink = {0};
    struct mst_log log = {.fn = sink_line, .arg = &sink};
    char text[3000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    mst__log(&log, MST_LOG_INFO, "e", "t=%s", text);
    assert_int_equal(strlen(sink.line), MST_LOG_LINE_SIZE - 1);
}

static const char *quote(const char *text, size_t size)
{
    static char quoted[MST_LOG_QUOTE_SIZE];
    /* Garbage beyond the end would show. */
    memset(quoted, 'Z', sizeof quoted);
    return mst__log_quote(mst_bytes_of(text, size), quoted);
}

static void quoting(void **state)
{
    (void)state;
    assert_string_equal(quote("plain-1.2:3/x", 13), "plain-1.2:3/x");
    assert_string_equal(quote("", 0), "\"\"");
    assert_string_equal(quote("two words", 9), "\"two words\"");
    assert_string_equal(quote("a=b", 3), "\"a=b\"");
    assert_string_equal(quote("q\"\\", 3), "\"q\\\"\\\\\"");
    assert_string_equal(quote("\n\0\xff", 3), "\"\\u000a\\u0000\\u00ff\"");
    assert_string_equal(quote("\x1b[2J", 4), "\"\\u001b[2J\"");
    /* Text stays text; control characters of the second set and turned directions do not. */
    assert_string_equal(quote("n\xc3\xb6tig", 6), "\"n\xc3\xb6tig\"");
    assert_string_equal(quote("\xc2\x9b", 2), "\"\\u009b\"");
    assert_string_equal(quote("\xe2\x80\xae", 3), "\"\\u202e\"");
    assert_string_equal(quote("\xc3", 1), "\"\\u00c3\"");
}

/* Any bytes of any length: inside the array, and closed. */
static void quoting_stays_inside(void **state)
{
    (void)state;
    static const char fills[] = {'x', ' ', '"', '\n'};
    for (size_t f = 0; f < sizeof fills; f++) {
        char text[600];
        memset(text, fills[f], sizeof text);
        for (size_t size = 0; size < sizeof text; size++) {
            const char *quoted = quote(text, size);
            size_t length = strnlen(quoted, MST_LOG_QUOTE_SIZE);
            assert_true(length < MST_LOG_QUOTE_SIZE);
            if (quoted[0] == '"') {
                assert_int_equal(quoted[length - 1], '"');
            } else {
                assert_int_equal(length, size);
            }
        }
    }
}

static const char *json(const char *line)
{
    static char text[200];
    mst__log_to_json(line, text, sizeof text);
    return text;
}

static void to_json(void **state)
{
    (void)state;
    assert_string_equal(json("ev=a.b peer=[::1]:5 n=3 f=-1.25 why=\"two words\""),
                        "\"ev\":\"a.b\",\"peer\":\"[::1]:5\",\"n\":3,\"f\":-1.25,"
                        "\"why\":\"two words\"");
    /* No numbers for JSON: they stay text. */
    assert_string_equal(json("a=007 b=1. c=- d=1234567890123456789 e=0x10 f=1.2.3 g="),
                        "\"a\":\"007\",\"b\":\"1.\",\"c\":\"-\",\"d\":\"1234567890123456789\","
                        "\"e\":\"0x10\",\"f\":\"1.2.3\",\"g\":\"\"");
    assert_string_equal(json("a=\"x\\\"y \\\\\" b=0"), "\"a\":\"x\\\"y \\\\\",\"b\":0");
    /* Quotes and backslashes where ours do not put them. */
    assert_string_equal(json("a=x\"y\\z b=\"\\q\\u12\""),
                        "\"a\":\"x\\\"y\\\\z\",\"b\":\"\\\\q\\\\u12\"");
    assert_string_equal(json(""), "");
    assert_string_equal(json("no fields here"), "");
}

/* A line that was cut off inside a quoted value loses that value, not its shape. */
static void to_json_of_a_cut_line(void **state)
{
    (void)state;
    assert_string_equal(json("a=1 b=\"cut"), "\"a\":1");
    assert_string_equal(json("a=1 b=\""), "\"a\":1");
    assert_string_equal(json("a=1 b=\"cut\\\""), "\"a\":1");
    assert_string_equal(json("a=1 b=\"cut\\"), "\"a\":1");
    assert_string_equal(json("a=1 b=\"cut\\u00"), "\"a\":1");
    assert_string_equal(json("a=1 b"), "\"a\":1");
}

static void to_json_fits(void **state)
{
    (void)state;
    const char *line = "ev=x a=1 b=\"two words\" c=three";
    const char *whole = "\"ev\":\"x\",\"a\":1,\"b\":\"two words\",\"c\":\"three\"";
    for (size_t size = 1; size <= strlen(whole) + 1; size++) {
        char text[100];
        memset(text, 'Z', sizeof text);
        mst__log_to_json(line, text, size);
        size_t length = strnlen(text, sizeof text);
        assert_true(length < size);
        /* Whole members only. */
        assert_memory_equal(text, whole, length);
        assert_true(whole[length] == '\0' || whole[length] == ',' || length == 0);
        assert_true((size == strlen(whole) + 1) == (whole[length] == '\0'));
    }
}

/* --- text from anywhere --- */

/* No byte of @text can do anything but be shown. */
static void check_shown(const char *text)
{
    struct mst_bytes rest = mst_bytes_str(text);
    while (rest.size > 0) {
        uint32_t c = 0;
        size_t size = mst__unicode_next(rest, &c);
        assert_true(size > 0);
        assert_true(mst__unicode_is_shown(c));
        rest = mst_bytes_of(rest.data + size, rest.size - size);
    }
}

/* The end of the JSON string at @text. */
static const char *skip_string(const char *text)
{
    assert_int_equal(*text, '"');
    for (text++; *text != '"'; text++) {
        assert_true(*text != '\0');
        if (*text != '\\') {
            continue;
        }
        text++;
        assert_true(*text == '"' || *text == '\\' || *text == 'u');
        for (int i = 0; *text == 'u' && i < 4; i++) {
            assert_true(strchr("0123456789abcdefABCDEF", text[1 + i]) != NULL);
            assert_true(text[1 + i] != '\0');
        }
    }
    return text + 1;
}

/* @text is members of a JSON object. Returns how many. */
static size_t check_members(const char *text)
{
    size_t count = 0;
    while (*text != '\0') {
        text = skip_string(text);
        assert_int_equal(*text++, ':');
        text = *text == '"' ? skip_string(text) : text + strspn(text, "-.0123456789");
        count++;
        if (*text != '\0') {
            assert_int_equal(*text++, ',');
            assert_true(*text != '\0');
        }
    }
    return count;
}

/* Random bytes, with more of those that are special here. */
static size_t random_text(struct mst__prng *prng, char *ret_text, size_t size_max)
{
    static const char special[] = "\"\\ =u\x1b\n\r\x7f\xc2\x9b\xe2\x80\xae\xc3\xff"
                                  "0x";
    size_t size = (size_t)mst__prng_below(prng, size_max);
    for (size_t i = 0; i < size; i++) {
        ret_text[i] = mst__prng_below(prng, 2) == 0
                          ? special[mst__prng_below(prng, sizeof special - 1)]
                          : (char)(1 + mst__prng_below(prng, 255));
    }
    ret_text[size] = '\0';
    return size;
}

/* Any line is one line of text, its quoted values are whole, and its JSON is valid. */
static void no_text_breaks_a_line(void **state)
{
    (void)state;
    struct mst__prng prng;
    mst__prng_init(&prng, 20);
    for (int i = 0; i < 4000; i++) {
        struct sink sink = {0};
        struct mst_log log = {.fn = sink_line, .arg = &sink};
        char text[300];
        char json_text[3 * MST_LOG_LINE_SIZE];
        (void)random_text(&prng, text, sizeof text);
        mst__log(&log, MST_LOG_INFO, "e", "text=%s n=1", MST_LOG_TEXT(text));
        check_shown(sink.line);
        mst__log_to_json(sink.line, json_text, sizeof json_text);
        assert_int_equal(check_members(json_text), 3);
        assert_non_null(strstr(json_text, ",\"n\":1"));
        /* And if a caller forgets to quote. */
        mst__log(&log, MST_LOG_INFO, "e", "text=%s n=1", text);
        check_shown(sink.line);
        mst__log_to_json(sink.line, json_text, sizeof json_text);
        assert_true(check_members(json_text) >= 1);
    }
}

static void people_see_what_there_is(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } rows[] = {
        {"a b", "a b"},
        {"back\\slash", "back\\slash"},
        {"\x1b[2J", "\\x1b[2J"},
        {"a\r\nb\t", "a\\x0d\\x0ab\\x09"},
        {"\x7f\xff", "\\x7f\\xff"},
        {"n\xc3\xb6tig \xf0\x9f\x98\x80", "n\xc3\xb6tig \xf0\x9f\x98\x80"},
        {"\xc2\x9b", "\\xc2\\x9b"},
        {"\xe2\x80\xae\xe2\x80\xa8", "\\xe2\\x80\\xae\\xe2\\x80\\xa8"},
        {"\xc3", "\\xc3"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"}, /* a surrogate */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mst_bytes rest = mst_bytes_str(rows[i].text);
        char all[100] = "";
        char shown[MST_UNICODE_SHOWN_SIZE];
        size_t size;
        size_t at = 0;
        while ((size = mst__unicode_take_shown(&rest, shown)) > 0) {
            assert_int_equal(size, strlen(shown));
            memcpy(all + at, shown, size + 1);
            at += size;
        }
        assert_string_equal(all, rows[i].shown);
        check_shown(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_reach_the_sink_by_level),
        cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(quoting),
        cmocka_unit_test(quoting_stays_inside),
        cmocka_unit_test(to_json),
        cmocka_unit_test(to_json_of_a_cut_line),
        cmocka_unit_test(to_json_fits),
        cmocka_unit_test(no_text_breaks_a_line),
        cmocka_unit_test(people_see_what_there_is),
    };
    return MST_RUN_TESTS(tests);
}
