/* unit/agent/test_report.c - the report of a failure, which may be about another machine. */
#include "agent/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/authority.h"
#include "unit/unit.h"

#define HEAD                                                         \
    "============================================================\n" \
    "train FAILED\n"                                                 \
    "------------------------------------------------------------\n" \
    "Root Cause (first observed failure):\n"                         \
    "[0]:\n"
#define FOOT "============================================================\n"

static struct mst__buf text;

static int setup(void **state)
{
    (void)state;
    mst__buf_init(&text, MST_REPORT_SIZE_MAX);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mst__buf_close(&text);
    return 0;
}

static void assert_report(const char *block, const char *shown)
{
    char expected[2000];
    (void)snprintf(expected, sizeof expected, "%s%s%s", HEAD, shown, FOOT);
    mst__buf_clear(&text);
    assert_int_equal(mst__report(&text, "train", mst_bytes_str(block)), 0);
    assert_int_equal(mst__buf_append_u8(&text, 0), 0);
    assert_string_equal((const char *)mst__buf_bytes(&text).data, expected);
}

static void test_plain_block(void **state)
{
    (void)state;
    const struct mst__failed_worker failed = {
        .rank = 5,
        .local_rank = 1,
        .pid = 77,
        .status = 3,
        .host = "h",
        .message = "ValueError: n\xc3\xb6\n\tat line 1",
        .tail = mst_bytes_str("one\ntwo\n"),
    };
    struct mst__buf block;
    mst__buf_init(&block, MST_AGENT_BLOCK_SIZE_MAX);
    assert_int_equal(mst__report_block(&block, &failed), 0);
    assert_int_equal(mst__buf_append_u8(&block, 0), 0);
    assert_report((const char *)mst__buf_bytes(&block).data, "  time      : ?.000000\n"
                                                             "  host      : h\n"
                                                             "  rank      : 5 (local_rank: 1)\n"
                                                             "  exitcode  : 3 (pid: 77)\n"
                                                             "  error_file: <N/A>\n"
                                                             "  traceback : ValueError: n\xc3\xb6\n"
                                                             "    \tat line 1\n"
                                                             "  stderr    : the last lines\n"
                                                             "    one\n"
                                                             "    two\n");
    mst__buf_close(&block);
}

/* The time has its microseconds, the first signal is one, and a traceback goes on after an empty
 * line. */
static void test_details(void **state)
{
    (void)state;
    const struct mst__failed_worker failed = {
        .signal = 1,
        .wall_us = 1700000000123456,
        .host = "h",
        .message = "first\n\nthird",
    };
    struct mst__buf block;
    mst__buf_init(&block, MST_AGENT_BLOCK_SIZE_MAX);
    assert_int_equal(setenv("TZ", "UTC0", 1), 0);
    assert_int_equal(mst__report_block(&block, &failed), 0);
    assert_int_equal(mst__buf_append_u8(&block, 0), 0);
    assert_report((const char *)mst__buf_bytes(&block).data,
                  "  time      : 2023-11-14_22:13:20.123456\n"
                  "  host      : h\n"
                  "  rank      : 0 (local_rank: 0)\n"
                  "  exitcode  : -1 (pid: 0): SIGHUP\n"
                  "  error_file: <N/A>\n"
                  "  traceback : first\n"
                  "    \n"
                  "    third\n");
    mst__buf_close(&block);
}

/* The block of another node can neither control the terminal nor look like another report. */
static void test_foreign_block(void **state)
{
    (void)state;
    assert_report(
        "  host      : \033[2J\033]0;x\007\n====\nRoot Cause:\r\n x\n\n\ty\x9b\xe2\x80\xae",
        "  host      : \\x1b[2J\\x1b]0;x\\x07\n"
        "    ====\n"
        "    Root Cause:\\x0d\n"
        "     x\n"
        "    \n"
        "    \ty\\x9b\\xe2\\x80\\xae\n");
}

static void test_foreign_cause(void **state)
{
    (void)state;
    const struct mst__cause cause = {
        .worker = MST_CAUSE_WORKER_NONE,
        .signal = 9,
        .node = mst_bytes_str("evil\033[1m\n====\nRoot Cause"),
        .text = mst_bytes_str("rank 1: \033[31mno"),
    };
    struct mst__buf block;
    mst__buf_init(&block, MST_AGENT_BLOCK_SIZE_MAX);
    assert_int_equal(mst__report_cause(&block, &cause), 0);
    assert_int_equal(mst__buf_append_u8(&block, 0), 0);
    assert_report((const char *)mst__buf_bytes(&block).data, "  time      : ?.000000\n"
                                                             "  node      : evil\\x1b[1m\n"
                                                             "    ====\n"
                                                             "    Root Cause\n"
                                                             "  exitcode  : -9: SIGKILL\n"
                                                             "  traceback : rank 1: \\x1b[31mno\n");
    mst__buf_close(&block);
}

/* The largest block still fits when every byte has to be made visible. */
static void test_size(void **state)
{
    (void)state;
    static const char bytes[] = {'\n', '\033'};
    char *block = mst__malloc(MST_AGENT_BLOCK_SIZE_MAX);
    assert_non_null(block);
    for (size_t i = 0; i < sizeof bytes; i++) {
        memset(block, bytes[i], MST_AGENT_BLOCK_SIZE_MAX);
        mst__buf_clear(&text);
        assert_int_equal(mst__report(&text, "train", mst_bytes_of(block, MST_AGENT_BLOCK_SIZE_MAX)),
                         0);
    }
    mst__free(block);
}

/* What fits is sent as it is. Of more, the first lines and the last ones, which say most. */
static void test_short(void **state)
{
    (void)state;
    char sent[91];
    char block[400];
    size_t used = 0;
    for (int i = 0; i < 20; i++) {
        used += (size_t)snprintf(block + used, sizeof block - used, "  line %02d\n", i); /* fits */
    }
    mst__report_shorten(mst_bytes_of(block, sizeof sent - 1), sent, sizeof sent);
    assert_int_equal(strlen(sent), sizeof sent - 1);
    assert_memory_equal(sent, block, sizeof sent - 1);
    mst__report_shorten(mst_bytes_of(block, used), sent, sizeof sent);
    assert_string_equal(sent, "  line 00\n  line 01\n    ...\n  line 14\n  line 15\n  line 16\n"
                              "  line 17\n  line 18\n  line 19\n");
    mst__report_shorten(mst_bytes_of(block, 0), sent, sizeof sent);
    assert_string_equal(sent, "");
    memset(block, 'x', sizeof block); /* one line */
    mst__report_shorten(mst_bytes_of(block, sizeof block), sent, sizeof sent);
    assert_int_equal(strlen(sent), sizeof sent - 1);
    assert_memory_equal(sent, "    ...\nxxx", 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plain_block, setup, teardown),
        cmocka_unit_test_setup_teardown(test_details, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign_block, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign_cause, setup, teardown),
        cmocka_unit_test_setup_teardown(test_size, setup, teardown),
        cmocka_unit_test(test_short),
    };
    return MST_RUN_TESTS(tests);
}
