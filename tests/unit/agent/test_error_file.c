/* unit/agent/test_error_file.c - reports of failed workers: both shapes, and anything else. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/error_file.h"
#include "base/limits.h"
#include "unit/unit.h"

static struct mst__arena arena;
static char directory[] = "/tmp/muster-error-XXXXXX";

static int start(void **state)
{
    (void)state;
    return mkdtemp(directory) == NULL;
}

static int stop(void **state)
{
    (void)state;
    mst__arena_close(&arena);
    return rmdir(directory);
}

static struct mst__error_report parse(const char *text)
{
    struct mst__error_report report;
    assert_int_equal(mst__error_report_parse(mst_bytes_str(text), &arena, &report, NULL), 0);
    return report;
}

static void shapes(void **state)
{
    (void)state;
    struct mst__error_report report =
        parse("{\"message\": {\"message\": \"ValueError: \\u00e4\\n\", \"errorCode\": 7,"
              "\"extraInfo\": {\"py_callstack\": \"Traceback\", \"timestamp\": \"1790000000\"}}}");
    assert_true(report.is_structured);
    assert_string_equal(report.message, "ValueError: \xc3\xa4\n");
    assert_string_equal(report.call_stack, "Traceback");
    assert_int_equal(report.timestamp_s, 1790000000);
    assert_int_equal(report.code, 7);
    report = parse("{\"message\": \"it broke\", \"timestamp\": 12}");
    assert_true(report.is_plain);
    assert_string_equal(report.message, "it broke");
    assert_string_equal(report.call_stack, "");
    assert_int_equal(report.timestamp_s, 12);
    report = parse("{\"message\": \"no time\"}");
    assert_int_equal(report.timestamp_s, 0);
}

/* Any content gives a message, and it is the written one. */
static void anything(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "Segmentation fault", "{\"message\": ",
        "{\"other\": 1}",     "[]",
        "{\"message\": 5}",   "{\"message\": {\"message\": null}}",
        "{\"message\": {}}",  "\xff\xfe",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct mst__error_report report = parse(texts[i]);
        assert_false(report.is_structured);
        assert_false(report.is_plain);
        assert_string_equal(report.message, texts[i]);
    }
}

static const char *path_of(const char *name)
{
    static char paths[2][100];
    static int at;
    at = 1 - at;
    (void)snprintf(paths[at], sizeof paths[at], "%s/%s", directory, name);
    return paths[at];
}

static void write_text(const char *path, const char *text, size_t size)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void files(void **state)
{
    (void)state;
    struct mst__error_report report;
    struct mst_err err;
    assert_int_equal(mst__error_file_read(path_of("absent"), &arena, &report, &err), MST_ENOTFOUND);
    const char *path = path_of("error.json");
    write_text(path, "", 0);
    assert_int_equal(mst__error_file_read(path, &arena, &report, &err), MST_ENOTFOUND);
    static char huge[2 * MST_ERROR_FILE_SIZE_MAX];
    memset(huge, 'x', sizeof huge);
    write_text(path, huge, sizeof huge);
    assert_int_equal(mst__error_file_read(path, &arena, &report, &err), 0);
    assert_int_equal(strlen(report.message), MST_ERROR_FILE_SIZE_MAX);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* there is no writer: it must not wait */
    assert_int_equal(mst__error_file_read(path, &arena, &report, &err), MST_ENOTFOUND);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mst__error_file_read(directory, &arena, &report, &err), MST_ESYS);
}

static void assert_text(const char *path, const char *wanted)
{
    char text[200];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t size = fread(text, 1, sizeof text - 1, file);
    text[size] = '\0';
    assert_string_equal(text, wanted);
    assert_int_equal(fclose(file), 0);
}

static void copies(void **state)
{
    (void)state;
    static const char structured[] = "{\"message\": {\"message\": \"m\"}}";
    static const char plain[] = "{\"message\": \"m\"}";
    struct mst__error_report report;
    const char *from = path_of("from");
    const char *to = path_of("to");
    write_text(from, structured, sizeof structured - 1);
    assert_int_equal(mst__error_file_copy(from, to, 85, NULL), 0);
    assert_int_equal(mst__error_file_read(to, &arena, &report, NULL), 0);
    assert_true(report.is_structured);
    assert_int_equal(report.code, 85);
    static const char coded[] = "{\"message\": {\"message\": \"m\", \"errorCode\": 7}}";
    write_text(from, coded, sizeof coded - 1);
    assert_int_equal(mst__error_file_copy(from, to, 85, NULL), 0);
    assert_text(to, coded);
    static const char empty[] = "{\"message\": {}}";
    write_text(from, empty, sizeof empty - 1);
    assert_int_equal(mst__error_file_copy(from, to, 85, NULL), 0);
    assert_text(to, empty);
    write_text(from, plain, sizeof plain - 1);
    assert_int_equal(mst__error_file_copy(from, to, 85, NULL), 0);
    assert_int_equal(mst__error_file_read(to, &arena, &report, NULL), 0);
    assert_true(report.is_plain);
    assert_int_equal(unlink(from), 0);
    assert_int_equal(unlink(to), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(anything),
        cmocka_unit_test(files),
        cmocka_unit_test(copies),
    };
    return mst__unit_end(sizeof tests / sizeof tests[0],
                         cmocka_run_group_tests(tests, start, stop));
}
