/* unit/handler/test_work.c - how work ends, of the handlers that meet at our own server; the
 * options. */
#include "handler/settings.h"
#include "handler/work.h"
#include "unit/handler/work_suite.h"
#include "unit/node_unit.h"
#include "unit/server_unit.h"

static void budget(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t restarts_max;
        int64_t window_us;
    } good[] = {{"0", 0, 0},
                {" 3 ", 3, 0},
                {"3/1h", 3, 3600000000},
                {"2 / 1.5s", 2, 1500000},
                {"7/10", 7, 10000000}};
    static const char *const wrong[] = {"",      "-1",  "x",     "3/",      "3/0",
                                        "3/-1s", "/1h", "1/2/3", "3 per h", "4294967295"};
    struct mst_params *params = node_params("muster", "host:1", 1, 1, NULL, "");
    struct mst__budget read = {.is_limited = false};
    assert_ok(mst__budget_read(params, &read, &err));
    assert_false(read.is_limited);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_ok(mst_params_set(params, "max_restarts", good[i].text, &err));
        assert_ok(mst__budget_read(params, &read, &err));
        assert_true(read.is_limited);
        assert_int_equal(read.restarts_max, good[i].restarts_max);
        assert_int_equal(read.window_us, good[i].window_us);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_ok(mst_params_set(params, "max_restarts", wrong[i], &err));
        assert_fails(mst__budget_read(params, &read, &err), MST_EINVAL, "max_restarts");
    }
    mst_params_free(params);
}

/* Texts are cut off between two characters, and are never longer than allowed. */
static void long_texts(void **state)
{
    (void)state;
    static const char *const last[] = {"x", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t size = 1; size <= 4; size++) {
        for (size_t room = 0; room <= 4; room++) {
            char text[MST_AUTHORITY_CAUSE_SIZE_MAX + 16];
            struct mst__word word;
            size_t before = MST_AUTHORITY_CAUSE_SIZE_MAX - room;
            memset(text, 'a', before);
            (void)snprintf(text + before, sizeof text - before, "%s%s", last[size - 1],
                           room == 0 ? "bbb" : "");
            mst__word_finish(&word, 0, text);
            size_t fits = size <= room ? before + size : before;
            assert_int_equal(word.cause.text.size, fits);
            assert_int_equal(strlen(word.text), fits);
            assert_memory_equal(word.text, text, fits);
        }
    }
}

/* What is not shown becomes a blank, however many bytes it has; so does a byte that is no text. */
static void hidden_texts(void **state)
{
    (void)state;
    struct mst__word word;
    mst__word_finish(&word, 0,
                     "a\x1b[2Jb\nc\xe2\x80\xae"
                     "d\xff\xfe\xc3\xa4");
    assert_string_equal(word.text, "a [2Jb c d  \xc3\xa4");
    assert_int_equal(word.cause.text.size, strlen(word.text));
}

/* A backend without finish and restart fails with MST_ENOTSUP. */
static void no_words(void **state)
{
    (void)state;
    struct mst_params *params = node_params("static", "127.0.0.1:1", 1, 1, NULL, "rank=0");
    struct mst_handler *handler = NULL;
    struct mst_failure failure;
    mst_failure_init(&failure, sizeof failure);
    assert_ok(mst_handler_new(params, &handler, &err));
    assert_fails(mst_handler_finish(handler, 0, NULL, &err), MST_ENOTSUP, "static");
    assert_fails(mst_handler_restart(handler, &failure, &err), MST_ENOTSUP, "static");
    mst_handler_free(handler);
    mst_params_free(params);
}

int main(void)
{
    void *state = NULL;
    (void)fixture_open(&state);
    const struct fixture *f = state;
    static const char options[] =
        "is_host=0,join_timeout=20,last_call_timeout=50ms,keep_alive_interval=400ms";
    const struct work_suite suites[] = {
        {.backend = "muster", .endpoint = f->text, .options = options, .has_authority = true},
        {.backend = "c10d", .endpoint = f->text, .options = options},
    };
    struct CMUnitTest tests[4 + 2 * WORK_SUITE_TESTS] = {
        cmocka_unit_test(budget),
        cmocka_unit_test(long_texts),
        cmocka_unit_test(hidden_texts),
        cmocka_unit_test(no_words),
    };
    for (size_t i = 0; i < 2; i++) {
        work_suite_add(&suites[i], tests + 4 + i * WORK_SUITE_TESTS);
    }
    int rv = MST_RUN_TESTS(tests);
    (void)fixture_close(&state);
    return rv;
}
