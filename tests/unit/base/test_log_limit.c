/* unit/base/test_log_limit.c - floods of log lines are cut and summed up. */
#include "base/log_limit.h"

#include "base/prng.h"
#include "unit/unit.h"

#define SECOND_US 1000000

static struct mst__log_limit limit;

static int reset(void **state)
{
    (void)state;
    limit = (struct mst__log_limit){0};
    return 0;
}

static bool take(const char *line, int64_t now_us)
{
    return mst__log_limit_take(&limit, MST_LOG_WARN, line, now_us);
}

static void a_flood_is_cut_and_summed_up(void **state)
{
    (void)state;
    int passed = 0;
    for (int i = 0; i < 1000; i++) {
        passed += take("ev=conn.closed peer=x", 5000 + i) ? 1 : 0;
    }
    assert_int_equal(passed, MST_LOG_LINES_PER_SECOND);
    int64_t first_us = 5000 + MST_LOG_LINES_PER_SECOND;
    assert_int_equal(mst__log_limit_due_us(&limit), first_us + SECOND_US);
    struct mst__log_summary summary;
    assert_false(mst__log_limit_next(&limit, first_us + SECOND_US - 1, &summary));
    assert_true(mst__log_limit_next(&limit, first_us + SECOND_US, &summary));
    assert_string_equal(summary.event, "conn.closed");
    assert_int_equal(summary.count, 1000 - MST_LOG_LINES_PER_SECOND);
    assert_int_equal(summary.level, MST_LOG_WARN);
    /* Told once. */
    assert_false(mst__log_limit_next(&limit, INT64_MAX, &summary));
    assert_int_equal(mst__log_limit_due_us(&limit), INT64_MAX);
    assert_true(take("ev=conn.closed peer=x", first_us + SECOND_US));
}

static void events_do_not_share_a_limit(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        (void)take("ev=conn.closed peer=x", 0);
    }
    assert_false(take("ev=conn.closed", 0));
    assert_true(take("ev=conn.close why=x", 0));
    assert_true(take("ev=conn.closed.not why=x", 0));
    assert_true(take("no event", 0));
}

/* Of several summaries the earliest decides, in whichever order the events came first. */
static void the_earliest_summary_is_due(void **state)
{
    (void)state;
    for (int i = 0; i <= MST_LOG_LINES_PER_SECOND; i++) {
        (void)take("ev=early", 1000);
    }
    for (int i = 0; i <= MST_LOG_LINES_PER_SECOND; i++) {
        (void)take("ev=late", 2000);
    }
    assert_int_equal(mst__log_limit_due_us(&limit), 1000 + SECOND_US);
    struct mst__log_summary summary;
    assert_true(mst__log_limit_next(&limit, 1000 + SECOND_US, &summary));
    assert_string_equal(summary.event, "early");
    assert_false(mst__log_limit_next(&limit, 1000 + SECOND_US, &summary));
    assert_int_equal(mst__log_limit_due_us(&limit), 2000 + SECOND_US);
}

static void the_summary_has_the_highest_level(void **state)
{
    (void)state;
    for (int i = 0; i < MST_LOG_LINES_PER_SECOND; i++) {
        (void)take("ev=e", 0);
    }
    (void)mst__log_limit_take(&limit, MST_LOG_INFO, "ev=e", 1);
    (void)mst__log_limit_take(&limit, MST_LOG_ERROR, "ev=e", 2);
    (void)mst__log_limit_take(&limit, MST_LOG_INFO, "ev=e", 3);
    struct mst__log_summary summary;
    assert_true(mst__log_limit_next(&limit, INT64_MAX, &summary));
    assert_int_equal(summary.level, MST_LOG_ERROR);
    assert_int_equal(summary.count, 3);
    /* The next summary begins anew. */
    (void)mst__log_limit_take(&limit, MST_LOG_INFO, "ev=e", 4);
    assert_true(mst__log_limit_next(&limit, INT64_MAX, &summary));
    assert_int_equal(summary.level, MST_LOG_INFO);
    assert_int_equal(summary.count, 1);
}

/* Random times: in no second, wherever it begins, do more lines pass; and every line either passes
 * or is in a summary. */
static void no_second_has_more(void **state)
{
    (void)state;
    enum { LINES = 5000 };
    static int64_t passed_us[LINES];
    size_t passed = 0;
    uint64_t told = 0;
    struct mst__prng prng;
    mst__prng_init(&prng, 4711);
    int64_t now_us = 0;
    for (int i = 0; i < LINES; i++) {
        bool is_pause = mst__prng_below(&prng, 200) == 0;
        now_us += (int64_t)mst__prng_below(&prng, is_pause ? 3 * SECOND_US : SECOND_US / 20);
        struct mst__log_summary summary;
        while (mst__log_limit_next(&limit, now_us, &summary)) {
            told += summary.count;
        }
        if (take("ev=x", now_us)) {
            passed_us[passed++] = now_us;
        }
    }
    struct mst__log_summary summary;
    while (mst__log_limit_next(&limit, INT64_MAX, &summary)) {
        told += summary.count;
    }
    assert_int_equal(passed + told, LINES);
    assert_true(passed > 100);
    assert_true(told > 100);
    for (size_t i = MST_LOG_LINES_PER_SECOND; i < passed; i++) {
        assert_true(passed_us[i] - passed_us[i - MST_LOG_LINES_PER_SECOND] >= SECOND_US);
    }
}

/* More events than there are entries: the rest share one. */
static void too_many_events(void **state)
{
    (void)state;
    size_t passed = 0;
    for (int i = 0; i < 1000; i++) {
        char line[100];
        (void)snprintf(line, sizeof line, "ev=event.%d x=1", i);
        passed += take(line, 0) ? 1 : 0;
    }
    assert_int_equal(passed, MST_LOG_EVENTS_MAX - 1 + MST_LOG_LINES_PER_SECOND);
    struct mst__log_summary summary;
    assert_true(mst__log_limit_next(&limit, INT64_MAX, &summary));
    assert_string_equal(summary.event, "other");
    assert_int_equal(summary.count, 1000 - passed);
    /* A name that is longer than an entry holds. */
    reset(NULL);
    char line[3 * MST_LOG_EVENT_SIZE] = "ev=";
    memset(line + 3, 'x', sizeof line - 4);
    assert_true(take(line, 0));
    assert_int_equal(limit.events_count, 1);
    assert_true(take(line, 0));
    assert_int_equal(limit.events_count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_flood_is_cut_and_summed_up, reset),
        cmocka_unit_test_setup(events_do_not_share_a_limit, reset),
        cmocka_unit_test_setup(the_earliest_summary_is_due, reset),
        cmocka_unit_test_setup(the_summary_has_the_highest_level, reset),
        cmocka_unit_test_setup(no_second_has_more, reset),
        cmocka_unit_test_setup(too_many_events, reset),
    };
    return MST_RUN_TESTS(tests);
}
