/* unit/test_log.c - log lines, quoting, and the way to JSON. */
#include "base/log.h"
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
    return mst__log_quote(mst_bytes(text, size), quoted);
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
}

/* Whatever comes, of whatever length: inside the array, and closed. */
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
    };
    return MST_RUN_TESTS(tests);
}
