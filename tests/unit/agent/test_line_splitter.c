/* unit/agent/test_line_splitter.c - whole lines from pieces, and lines as they are shown. */
#include <string.h>

#include "agent/line_format.h"
#include "agent/line_splitter.h"
#include "base/limits.h"
#include "base/prng.h"
#include "unit/unit.h"

static struct mst__line_splitter splitter;

static int start(void **state)
{
    (void)state;
    mst__line_splitter_init(&splitter);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    mst__line_splitter_close(&splitter);
    return 0;
}

static void feed(const char *text)
{
    mst__line_splitter_feed(&splitter, mst_bytes_str(text));
}

static void assert_line(const char *text)
{
    struct mst__line line;
    assert_true(mst__line_splitter_next(&splitter, &line));
    assert_bytes_str(line.text, text);
    assert_true(line.is_first);
    assert_true(line.is_last);
}

static void assert_none(void)
{
    struct mst__line line;
    assert_false(mst__line_splitter_next(&splitter, &line));
}

static void pieces(void **state)
{
    (void)state;
    struct mst__line line;
    feed("one\ntwo\n\nth");
    assert_line("one");
    assert_line("two");
    assert_line("");
    assert_none();
    feed("r");
    assert_none();
    feed("ee\r\nfour");
    assert_line("three\r");
    assert_none();
    assert_true(mst__line_splitter_rest(&splitter, &line));
    assert_bytes_str(line.text, "four");
    assert_false(mst__line_splitter_rest(&splitter, &line));
    feed("\n");
    assert_line("");
    assert_none();
    assert_false(mst__line_splitter_rest(&splitter, &line));
}

static void long_lines(void **state)
{
    (void)state;
    static char text[3 * MST_OUTPUT_LINE_SIZE_MAX];
    struct mst__line line;
    memset(text, 'x', sizeof text);
    text[sizeof text - 10] = '\n';
    mst__line_splitter_feed(&splitter, mst_bytes_of(text, 100));
    assert_none();
    mst__line_splitter_feed(&splitter, mst_bytes_of(text + 100, sizeof text - 100));
    assert_true(mst__line_splitter_next(&splitter, &line));
    assert_int_equal(line.text.size, MST_OUTPUT_LINE_SIZE_MAX);
    assert_true(line.is_first);
    assert_false(line.is_last);
    assert_true(mst__line_splitter_next(&splitter, &line));
    assert_false(line.is_first);
    assert_false(line.is_last);
    assert_true(mst__line_splitter_next(&splitter, &line));
    assert_int_equal(line.text.size, MST_OUTPUT_LINE_SIZE_MAX - 10);
    assert_false(line.is_first);
    assert_true(line.is_last);
    assert_none();
    assert_true(mst__line_splitter_rest(&splitter, &line));
    assert_int_equal(line.text.size, 9);
    assert_true(line.is_first);
}

/* Any text in any pieces gives the same lines, also when memory runs out now and then: then in
 * more pieces. */
static void any_pieces(void **state)
{
    (void)state;
    struct mst__prng prng;
    mst__prng_init(&prng, 1);
    for (int round = 0; round < 300; round++) {
        char text[400];
        char made[500];
        size_t size = mst__prng_below(&prng, sizeof text);
        size_t made_size = 0;
        for (size_t i = 0; i < size; i++) {
            text[i] = "ab\n"[mst__prng_below(&prng, 3)];
        }
        mst__line_splitter_close(&splitter);
        mst__line_splitter_init(&splitter);
        struct mst__line line;
        for (size_t at = 0; at < size;) {
            size_t piece = 1 + mst__prng_below(&prng, size - at);
            mst__line_splitter_feed(&splitter, mst_bytes_of(text + at, piece));
            mst__mem_fail_nth(round % 2 == 0 ? 0 : 1 + mst__prng_below(&prng, 3));
            while (mst__line_splitter_next(&splitter, &line)) {
                memcpy(made + made_size, line.text.data, line.text.size);
                made_size += line.text.size;
                if (line.is_last) {
                    made[made_size++] = '\n';
                }
            }
            mst__mem_fail_nth(0);
            at += piece;
        }
        if (mst__line_splitter_rest(&splitter, &line)) {
            memcpy(made + made_size, line.text.data, line.text.size);
            made_size += line.text.size;
        }
        assert_bytes(mst_bytes_of(made, made_size), mst_bytes_of(text, size));
    }
}

/* --- format --- */

static const struct mst__line_source source =
    {.role = "trainer", .hostname = "h1", .rank = 12, .local_rank = 4, .generation = 3, .pid = 77};

static void assert_prefix(const char *template_text, const char *wanted)
{
    struct mst__buf text;
    mst__buf_init(&text, MST_OUTPUT_PREFIX_SIZE_MAX);
    assert_int_equal(mst__line_prefix(template_text, &source, 1790000000123456, &text), 0);
    assert_bytes_str(mst__buf_bytes(&text), wanted);
    mst__buf_close(&text);
}

static void prefixes(void **state)
{
    (void)state;
    assert_prefix("[${role_name}${local_rank}]:", "[trainer4]:");
    assert_prefix("${hostname} ${rank} ${pid} ${generation}> ", "h1 12 77 3> ");
    assert_prefix("${time}", "2026-09-21T14:13:20.123456Z");
    assert_prefix("${other} $ ${ ${rank", "${other} $ ${ ${rank");
    assert_prefix("", "");
    char longest[3000];
    char wanted[MST_OUTPUT_PREFIX_SIZE_MAX + 1];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    memset(wanted, 'x', sizeof wanted - 1);
    wanted[sizeof wanted - 1] = '\0';
    assert_prefix(longest, wanted);
}

static void as_json(void **state)
{
    (void)state;
    struct mst__json_writer json;
    mst__json_writer_init(&json, 4096);
    mst__line_json(&json, &source, 1790000000000001, mst_bytes_str("a \"b\"\t\xff"), true);
    assert_int_equal(json.code, 0);
    assert_bytes_str(mst__buf_bytes(&json.text),
                     "{\"ts\":1790000000.000001,\"level\":\"info\",\"host\":\"h1\",\"role\":"
                     "\"trainer\",\"rank\":12,\"local_rank\":4,\"generation\":3,\"stream\":"
                     "\"stdout\",\"msg\":\"a \\\"b\\\"\\u0009\\ufffd\",\"part\":true}");
    mst__json_writer_close(&json);
}

static void filters(void **state)
{
    (void)state;
    const char *const texts[] = {"loss", "aab", NULL};
    assert_true(mst__line_matches(mst_bytes_str("the loss is 3"), texts));
    assert_true(mst__line_matches(mst_bytes_str("aaab"), texts));
    assert_false(mst__line_matches(mst_bytes_str("los"), texts));
    assert_false(mst__line_matches(mst_bytes_str(""), texts));
    assert_false(mst__line_matches(mst_bytes_str("loss"), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pieces, start, stop),
        cmocka_unit_test_setup_teardown(long_lines, start, stop),
        cmocka_unit_test_setup_teardown(any_pieces, start, stop),
        cmocka_unit_test(prefixes),
        cmocka_unit_test(as_json),
        cmocka_unit_test(filters),
    };
    return MST_RUN_TESTS(tests);
}
