/* unit/cli/test_cli_log.c - the log of a command, with a pipe as its stderr that is not read. */
#include "cli/log.h"

#include <errno.h>
#include <fcntl.h>
#include <muster/error.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "base/limits.h"
#include "unit/unit.h"

#define OUTPUT_SIZE (2 * MST_LOG_BUFFER_SIZE)

static struct fixture {
    int reader;
    int stderr_before;
    char output[OUTPUT_SIZE];
    size_t size;
} f;

/* stderr becomes a small pipe. */
static int set_up(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 4096);
    f.reader = ends[0];
    f.size = 0;
    f.stderr_before = dup(STDERR_FILENO);
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    (void)close(ends[1]);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)dup2(f.stderr_before, STDERR_FILENO);
    (void)close(f.stderr_before);
    (void)close(f.reader);
    return 0;
}

/* Read until @text has come. */
static void read_until(const char *text)
{
    while (strstr(f.output, text) == NULL || f.size == 0) {
        assert_true(f.size < OUTPUT_SIZE - 1);
        ssize_t size = read(f.reader, f.output + f.size, OUTPUT_SIZE - 1 - f.size);
        assert_true(size > 0);
        f.size += (size_t)size;
        f.output[f.size] = '\0';
    }
}

static unsigned long count_lines(const char *text)
{
    unsigned long count = 0;
    for (const char *at = f.output; (at = strstr(at, text)) != NULL; at++) {
        count++;
    }
    return count;
}

static void open_log(const struct mst__cli_log_options *options, struct mst_log *ret_log)
{
    struct mst_err err;
    assert_int_equal(mst__cli_log_open(options, ret_log, &err), 0);
}

/* Lines that find no room are dropped and counted; earlier and later ones come out. */
static void a_full_buffer_drops_and_counts(void **state)
{
    (void)state;
    enum { LINES = 8000 };
    struct mst__cli_log_options options = {.is_unlimited = true};
    struct mst_log log;
    open_log(&options, &log);
    for (int i = 0; i < LINES; i++) {
        log.fn(log.arg, MST_LOG_INFO, "ev=full number=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    }
    read_until("ev=log.dropped count=");
    read_until("ev=log.dropped count=");
    log.fn(log.arg, MST_LOG_INFO, "ev=last number=1");
    read_until("ev=last number=1\n");
    mst__cli_log_close();
    unsigned long dropped = 0;
    for (const char *at = f.output; (at = strstr(at, "ev=log.dropped count=")) != NULL;) {
        at += strlen("ev=log.dropped count=");
        dropped += strtoul(at, NULL, 10);
    }
    assert_true(dropped > 0);
    assert_int_equal(count_lines("ev=full ") + dropped, LINES);
}

/* The pipe is not read: the end comes nevertheless, and again after another log was opened. */
static void the_end_does_not_wait_for_a_reader(void **state)
{
    (void)state;
    struct mst__cli_log_options options = {.is_unlimited = true};
    for (int i = 0; i < 2; i++) {
        struct mst_log log;
        open_log(&options, &log);
        for (int line = 0; line < 1000; line++) {
            log.fn(log.arg, MST_LOG_INFO, "ev=full number=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
        }
        mst__cli_say("muster: an error");
        mst__cli_log_close();
    }
    /* The two threads still wait for stderr. They end when the pipe is closed. */
}

/* With a file as the log, errors still go to stderr, and do not wait for it either. */
static void an_error_does_not_wait_for_a_reader(void **state)
{
    (void)state;
    char path[] = "/tmp/muster-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct mst__cli_log_options options = {.path = path};
    struct mst_log log;
    open_log(&options, &log);
    mst__cli_say("muster: the first error");
    read_until("muster: the first error\n");
    char filler[4096] = "";
    assert_int_equal(write(STDERR_FILENO, filler, sizeof filler), sizeof filler);
    mst__cli_say("muster: an error");
    mst__cli_log_close();
    assert_int_equal(close(fd), 0);
    assert_int_equal(unlink(path), 0);
}

/* A reader that is slow gets everything, although that takes longer than a stderr that is stuck is
 * waited for. */
static void *read_slowly(void *arg)
{
    const char *last = arg;
    while (strstr(f.output, last) == NULL) {
        (void)poll(NULL, 0, MST_LOG_FLUSH_MS / 4);
        ssize_t size = read(f.reader, f.output + f.size, 4096);
        f.size += size > 0 ? (size_t)size : 0;
        f.output[f.size] = '\0';
        if (size <= 0) {
            break;
        }
    }
    return NULL;
}

static void a_slow_reader_gets_all(void **state)
{
    (void)state;
    enum { LINES = 400 };
    struct mst__cli_log_options options = {.is_unlimited = true};
    struct mst_log log;
    pthread_t reader;
    char last[] = "ev=last number=1\n";
    f.output[0] = '\0';
    open_log(&options, &log);
    assert_int_equal(pthread_create(&reader, NULL, read_slowly, last), 0);
    for (int i = 0; i < LINES; i++) {
        log.fn(log.arg, MST_LOG_INFO, "ev=slow number=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    }
    log.fn(log.arg, MST_LOG_INFO, "ev=last number=1");
    mst__cli_log_close();
    (void)close(STDERR_FILENO); /* the reader does not wait for dropped lines */
    assert_int_equal(pthread_join(reader, NULL), 0);
    assert_int_equal(count_lines("ev=slow "), LINES);
    assert_int_equal(count_lines("ev=last "), 1);
}

/* Log lines and others come in the order in which they were put, and all before the end. */
static void the_last_lines_come_out(void **state)
{
    (void)state;
    struct mst__cli_log_options options = {.is_json = true};
    struct mst_log log;
    open_log(&options, &log);
    for (int i = 0; i < 25; i++) {
        log.fn(log.arg, MST_LOG_WARN, "ev=a number=1");
    }
    log.fn(log.arg, MST_LOG_DEBUG, "ev=b number=1");
    mst__cli_say("muster: %s", "an error");
    mst__cli_log_close();
    read_until("log.suppressed");
    assert_int_equal(count_lines("\"level\":\"warn\",\"ev\":\"a\",\"number\":1}\n"), 20);
    const char *error = strstr(f.output, "\nmuster: an error\n");
    const char *debug = strstr(f.output, "\"ev\":\"b\"");
    const char *summary =
        strstr(f.output, "\"ev\":\"log.suppressed\",\"event\":\"a\",\"count\":5}\n");
    assert_non_null(error);
    assert_non_null(summary);
    assert_true(debug < error && error < summary);
    mst__cli_say("muster: %s", "without a log");
    read_until("muster: without a log\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_buffer_drops_and_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_last_lines_come_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_error_does_not_wait_for_a_reader, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_slow_reader_gets_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_end_does_not_wait_for_a_reader, set_up, tear_down),
    };
    return MST_RUN_TESTS(tests);
}
