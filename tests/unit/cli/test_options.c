/* unit/cli/test_options.c - options of the commands: spellings, durations, sizes. */
#include "cli/cli.h"
#include "unit/unit.h"

static void durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms; /* -1 = refused */
    } cases[] = {
        {"10", 10000},   {"1.5", 1500},  {"1.5s", 1500},
        {"0.25", 250},   {"250ms", 250}, {"2.5m", 150000},
        {"2h", 7200000}, {"0", 0},       {"0.1ms", 1},
        {"", -1},        {"s", -1},      {"1.5x", -1},
        {"1.", -1},      {".5", -1},     {"-1", -1},
        {"1 s", -1},     {"1,5", -1},    {"99999999999999999h", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t ms = -1;
        assert_int_equal(mst__option_duration(cases[i].text, &ms), cases[i].ms >= 0);
        assert_int_equal(ms, cases[i].ms);
    }
}

/* Bytes have no parts. */
static void sizes(void **state)
{
    (void)state;
    int64_t size = -1;
    assert_true(mst__option_size("8K", &size));
    assert_int_equal(size, 8192);
    assert_true(mst__option_size("2GiB", &size));
    assert_int_equal(size, (int64_t)2 << 30);
    assert_false(mst__option_size("1.5", &size));
    assert_false(mst__option_size("1.5K", &size));
}

struct words {
    const char *text;
    int64_t number, count, duration_ms;
    bool flag;
    struct mst__option_list list;
    int arguments;
};

/* Parse @line, whose words are separated by single blanks. */
static bool parse(const char *line, struct words *ret, int *ret_exit)
{
    *ret = (struct words){0};
    const struct mst__option options[] = {
        {"log-level", "LEVEL", "", MST_OPTION_TEXT, &ret->text, 0, 0},
        {"nodes-max", "N", "", MST_OPTION_NUMBER, &ret->number, 0, 99},
        {"count", "N", "", MST_OPTION_NUMBER, &ret->count, 0, 0},
        {"stop-the-clock", "TIME", "", MST_OPTION_DURATION, &ret->duration_ms, 0, 0},
        {"is-it", NULL, "", MST_OPTION_FLAG, &ret->flag, 0, 0},
        {"conf", "K=V", "", MST_OPTION_LIST, &ret->list, 0, 0},
    };
    const struct mst__usage usage = {
        .command = "test",
        .synopsis = "",
        .text = "",
        .options = options,
        .options_count = sizeof options / sizeof options[0],
        .arguments_max = SIZE_MAX,
    };
    static char text[2000];
    char *argv[200];
    int argc = 0;
    (void)snprintf(text, sizeof text, "%s", line);
    for (char *at = text; at != NULL && argc < 199; argc++) {
        argv[argc] = at;
        at = strchr(at, ' ');
        if (at != NULL) {
            *at++ = '\0';
        }
    }
    argv[argc] = NULL;
    return mst__options_parse(&usage, argc, argv, &ret->arguments, ret_exit);
}

static void underscores_for_dashes(void **state)
{
    (void)state;
    struct words got;
    int exit_code = 0;
    assert_true(
        parse("x --log_level=a_b-c --nodes_max 7 --stop_the_clock 1.5 --is_it", &got, &exit_code));
    assert_string_equal(got.text, "a_b-c"); /* values stay as they are */
    assert_int_equal(got.number, 7);
    assert_int_equal(got.duration_ms, 1500);
    assert_true(got.flag);
    assert_true(
        parse("x --log-level a --nodes-max 8 --conf a_b=c_d -- --log_level", &got, &exit_code));
    assert_string_equal(got.text, "a");
    assert_int_equal(got.number, 8);
    assert_string_equal(got.list.values[0], "a_b=c_d");
    assert_int_equal(got.arguments, 8);
    /* A beginning that fits both spellings fits one option. */
    assert_true(parse("x --log b --nodes 3", &got, &exit_code));
    assert_string_equal(got.text, "b");
    assert_int_equal(got.number, 3);
    assert_false(parse("x --log_lvel b", &got, &exit_code));
    assert_int_equal(exit_code, MST_EXIT_USAGE);
    assert_false(parse("x --is_it=1", &got, &exit_code));
    assert_false(parse("x --nodes_max", &got, &exit_code));
    assert_false(parse("x --nodes_max 100", &got, &exit_code));
}

/* Both ends of a range belong to it; one without an end begins at 0. */
static void ranges(void **state)
{
    (void)state;
    struct words got;
    int exit_code = 0;
    assert_true(parse("x --nodes-max 0", &got, &exit_code));
    assert_true(parse("x --nodes-max 99", &got, &exit_code));
    assert_int_equal(got.number, 99);
    assert_false(parse("x --nodes-max -1", &got, &exit_code));
    assert_true(parse("x --count 9223372036854775807", &got, &exit_code));
    assert_true(got.count == INT64_MAX);
    assert_false(parse("x --count -1", &got, &exit_code));
    assert_int_equal(exit_code, MST_EXIT_USAGE);
}

/* As many values as there is room for, and not one more. */
static void many_values(void **state)
{
    (void)state;
    static const char option[] = " --conf a=b";
    char line[1000] = "x";
    struct words got;
    int exit_code = 0;
    for (size_t i = 0; i <= MST_OPTION_LIST_MAX; i++) {
        (void)snprintf(line + 1 + i * (sizeof option - 1), sizeof option, "%s", option);
    }
    assert_false(parse(line, &got, &exit_code));
    line[1 + MST_OPTION_LIST_MAX * (sizeof option - 1)] = '\0';
    assert_true(parse(line, &got, &exit_code));
    assert_int_equal(got.list.count, MST_OPTION_LIST_MAX);
    line[strlen(line)] = ' '; /* again */
    assert_false(parse(line, &got, &exit_code));
    assert_int_equal(exit_code, MST_EXIT_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations),
        cmocka_unit_test(sizes),
        cmocka_unit_test(underscores_for_dashes),
        cmocka_unit_test(ranges),
        cmocka_unit_test(many_values),
    };
    return MST_RUN_TESTS(tests);
}
