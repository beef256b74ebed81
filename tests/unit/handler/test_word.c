/* unit/handler/test_word.c - what the application says about its work, as it goes to the job. */
#include "handler/work.h"

#include <string.h>

#include "base/clock.h"
#include "unit/unit.h"

static struct mst__cause cause_of(struct mst_failure failure)
{
    static struct mst__word word;
    failure.size = sizeof failure;
    failure.text = failure.text == NULL ? "" : failure.text;
    mst__word_restart(&word, &failure);
    return word.cause;
}

/* The first worker is one, and -1 is none; no field is taken for another. */
static void fields(void **state)
{
    (void)state;
    const struct mst_failure failure = {
        .worker = 3, .exit_status = -4, .signal = 5, .time_us = 6, .text = "seven"};
    struct mst__cause cause = cause_of(failure);
    assert_int_equal(cause.worker, 3);
    assert_int_equal(cause.status, -4);
    assert_int_equal(cause.signal, 5);
    assert_int_equal(cause.wall_us, 6);
    assert_bytes_str(cause.text, "seven");
    assert_int_equal(cause_of((struct mst_failure){.worker = 0}).worker, 0);
    assert_int_equal(cause_of((struct mst_failure){.worker = -1}).worker, MST_CAUSE_WORKER_NONE);
    assert_int_equal(cause_of((struct mst_failure){.signal = -9}).signal, 0);
}

/* It keeps its lines, and ends at a character. */
static void report_of_a_failure(void **state)
{
    (void)state;
    static const char begin[] = {'a', '\n', '\t', 'b', '\x1b'};
    static const char end[] = "\xc3\xa9"; /* half of it would fit */
    char report[MST_AUTHORITY_REPORT_SIZE_MAX + 10];
    memset(report, 'x', sizeof report);
    memcpy(report, begin, sizeof begin);
    memcpy(report + MST_AUTHORITY_REPORT_SIZE_MAX - 1, end, sizeof end);
    struct mst__cause cause = cause_of((struct mst_failure){.report = report});
    assert_int_equal(cause.report.size, MST_AUTHORITY_REPORT_SIZE_MAX - 1);
    assert_memory_equal(cause.report.data, report, cause.report.size);
    assert_int_equal(cause_of((struct mst_failure){.worker = 1}).report.size, 0);
}

/* Without a time it is now. */
static void time_of_a_failure(void **state)
{
    (void)state;
    int64_t before_us = mst__clock_wall_us();
    int64_t told_us = cause_of((struct mst_failure){.worker = 1}).wall_us;
    assert_in_range(told_us, before_us, before_us + 60000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields),
        cmocka_unit_test(report_of_a_failure),
        cmocka_unit_test(time_of_a_failure),
    };
    return MST_RUN_TESTS(tests);
}
