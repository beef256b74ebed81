/* unit/base/test_err.c - error codes and messages. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "unit/unit.h"

static void every_code_has_a_name_and_a_text(void **state)
{
    (void)state;
    static const struct {
        int number;
        int code;
        const char *name;
    } rows[] = {
#define ROW(number, name, text) {number, MST_##name, #name},
        MST_ERR_MAP(ROW)
#undef ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        /* The numbers are ABI: from -1 down without a gap. */
        assert_int_equal(rows[i].number, -(int)i - 1);
        assert_int_equal(rows[i].code, rows[i].number);
        assert_string_equal(mst_errname(rows[i].code), rows[i].name);
        assert_true(strlen(mst_strerror(rows[i].code)) > 3);
    }
    assert_string_equal(mst_errname(0), "OK");
    assert_string_equal(mst_errname(-9999), "EUNDEFINED");
    assert_string_equal(mst_errname(1), "EUNDEFINED");
    assert_string_equal(mst_strerror(-9999), "number is no error code");
}

static void fail_fills_all(void **state)
{
    (void)state;
    struct mst_err err;
    assert_int_equal(mst__fail(&err, MST_ESYS, ENOENT, "open '%s'", "/x"), MST_ESYS);
    assert_int_equal(err.code, MST_ESYS);
    assert_int_equal(err.sys, ENOENT);
    assert_int_equal(err.domain, MST_DOMAIN_ERRNO);
    assert_true(mst__err_is_errno(&err, ENOENT));
    assert_false(mst__err_is_errno(&err, EPERM));
    assert_string_equal(err.msg, "open '/x': No such file or directory");
    assert_int_equal(mst__fail(&err, MST_EINVAL, 0, "port %d", 7), MST_EINVAL);
    assert_int_equal(err.sys, 0);
    assert_int_equal(err.domain, MST_DOMAIN_NONE);
    assert_string_equal(err.msg, "port 7");
    /* A number of another family is never an errno. */
    assert_int_equal(mst__fail_from(&err, MST_ECONN, MST_DOMAIN_CURL, ENOENT, "curl"), MST_ECONN);
    assert_int_equal(err.sys, ENOENT);
    assert_int_equal(err.domain, MST_DOMAIN_CURL);
    assert_string_equal(err.msg, "curl");
    assert_false(mst__err_is_errno(&err, ENOENT));
    assert_int_equal(mst__fail_from(NULL, MST_ECONN, MST_DOMAIN_CURL, 1, "nobody asks"), MST_ECONN);
    assert_int_equal(mst__fail(NULL, MST_EINVAL, 0, "nobody asks"), MST_EINVAL);
}

/* A call without a reason gets that of the code. */
static void memory_and_limits_say_so(void **state)
{
    (void)state;
    static const struct {
        int code, sys;
        const char *text, *message;
    } cases[] = {
        {MST_ENOMEM, 0, "3 keys", "out of memory (3 keys)"},
        {MST_ENOMEM, 0, "no memory for it", "no memory for it"},
        {MST_ENOMEM, ENOMEM, "list", "list: Cannot allocate memory"},
        {MST_ELIMIT, 0, "request of 9 bytes", "limit reached (request of 9 bytes)"},
        {MST_ELIMIT, 0, "9 keys, the limit is 8", "9 keys, the limit is 8"},
        {MST_ELIMIT, EMFILE, "accept", "accept: Too many open files"},
        {MST_EINVAL, 0, "3 keys", "3 keys"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst_err err;
        (void)mst__fail(&err, cases[i].code, cases[i].sys, "%s", cases[i].text);
        assert_string_equal(err.msg, cases[i].message);
    }
    char text[400];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    struct mst_err err;
    (void)mst__fail(&err, MST_ENOMEM, 0, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
    assert_int_equal(strncmp(err.msg, "out of memory (xxx", 18), 0);
    assert_string_equal(err.msg + sizeof err.msg - 4, "…"); /* as any message that is cut */
}

static void wrap_puts_context_before(void **state)
{
    (void)state;
    struct mst_err err;
    (void)mst__fail(&err, MST_ECONN, ECONNREFUSED, "connect to '%s'", "h:1");
    assert_int_equal(mst__err_wrap(&err, MST_ETIMEOUT, "get '%s'", "k"), MST_ETIMEOUT);
    assert_int_equal(err.code, MST_ETIMEOUT);
    assert_int_equal(err.sys, ECONNREFUSED);
    assert_int_equal(err.domain, MST_DOMAIN_ERRNO);
    assert_string_equal(err.msg, "get 'k': connect to 'h:1': Connection refused");
    assert_int_equal(mst__err_wrap(NULL, MST_ETIMEOUT, "nobody asks"), MST_ETIMEOUT);

    /* A passed error keeps its message: the text of the system is in it once. */
    struct mst_err passed;
    (void)mst__fail(&err, MST_ECONN, ECONNRESET, "receive");
    assert_int_equal(mst__err_pass(&passed, MST_ESYS, &err), MST_ESYS);
    assert_int_equal(passed.code, MST_ESYS);
    assert_int_equal(passed.sys, ECONNRESET);
    assert_int_equal(passed.domain, MST_DOMAIN_ERRNO);
    assert_string_equal(passed.msg, "receive: Connection reset by peer");
    assert_int_equal(mst__err_pass(NULL, MST_ESYS, &err), MST_ESYS);
}

/* For any lengths, the message ends inside its array. */
static void long_messages_are_cut(void **state)
{
    (void)state;
    char text[400];
    for (int length = 0; length < 399; length++) {
        memset(text, 'x', sizeof text);
        text[length] = '\0';
        struct mst_err err;
        memset(&err, 0x55, sizeof err);
        (void)mst__fail(&err, MST_ESYS, EACCES, "%s", text);
        size_t size = strnlen(err.msg, sizeof err.msg);
        assert_true(size < sizeof err.msg);
        assert_true(size >= (size_t)(length < 190 ? length : 190));
        (void)mst__err_wrap(&err, MST_ESYS, "%s", text);
        assert_true(strnlen(err.msg, sizeof err.msg) < sizeof err.msg);
    }
}

/* A message that is too long ends with a whole word, one of UTF-8 with a whole character. */
static void cut_at_words_and_characters(void **state)
{
    (void)state;
    char text[400];
    char wanted[400];
    for (size_t size = 150; size < 215; size++) {
        /* Words of five letters behind one that differs in size. */
        memset(text, 'a', size);
        for (size_t at = size % 6; at < size; at += 6) {
            text[at] = ' ';
        }
        (void)snprintf(text + size, sizeof text - size, " behind it");
        struct mst_err err;
        (void)mst__fail(&err, MST_EINVAL, 0, "%s", text);
        size_t length = strlen(err.msg);
        assert_true(length < sizeof err.msg);
        if (strlen(text) < sizeof err.msg) {
            assert_string_equal(err.msg, text);
            continue;
        }
        assert_string_equal(err.msg + length - 3, "…");
        assert_int_equal(memcmp(err.msg, text, length - 3), 0);
        assert_true(text[length - 3] == ' ');
        assert_true(length > sizeof err.msg - 4 - 12);
    }
    /* A word without an end is cut between two characters. */
    for (size_t before = 0; before < 4; before++) {
        memset(text, 'a', before);
        size_t size = before;
        while (size < 390) {
            memcpy(text + size, "\xe2\x82\xac", 3);
            size += 3;
        }
        text[size] = '\0';
        struct mst_err err;
        (void)mst__fail(&err, MST_EINVAL, 0, "%s", text);
        size_t length = strlen(err.msg);
        assert_string_equal(err.msg + length - 3, "…");
        assert_int_equal((length - 3 - before) % 3, 0);
        assert_true(length >= 194);
        (void)mst__err_wrap(&err, MST_EINVAL, "behind this");
        (void)snprintf(wanted, sizeof wanted, "behind this: %.*s…",
                       (int)(before + 3 * ((196 - 13 - before) / 3)), text);
        assert_string_equal(err.msg, wanted);
    }
}

/* Names are cut by a precision, which counts bytes. */
static void no_half_characters(void **state)
{
    (void)state;
    struct mst_err err;
    (void)mst__fail(&err, MST_EINVAL, 0, "run '%.4s' is %.1s", "ab\xe2\x82\xac", "\xc3\xa4");
    assert_string_equal(err.msg, "run 'ab' is ");
    (void)mst__fail(&err, MST_EINVAL, 0, "run '%.5s'", "ab\xe2\x82\xac");
    assert_string_equal(err.msg, "run 'ab\xe2\x82\xac'");
    (void)mst__fail(&err, MST_EINVAL, 0, "%.3s", "\xf0\x9f\x8c\x8d");
    assert_string_equal(err.msg, "");
}

/* In a separate process, whose stderr is a full pipe without a reader. */
static _Noreturn void fail_an_assertion(int stderr_fd)
{
    const struct rlimit none = {0, 0};
    char filler[4096] = "";
    (void)setrlimit(RLIMIT_CORE, &none);
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    (void)sigaction(SIGABRT, &usual, NULL);
    (void)dup2(stderr_fd, STDERR_FILENO);
    (void)fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
    while (write(STDERR_FILENO, filler, sizeof filler) > 0) {
    }
    (void)fcntl(STDERR_FILENO, F_SETFL, 0);
    MST_ASSERT(stderr_fd < 0);
    _exit(0);
}

/* Whatever peers have said: a message can be printed, and cut, and says the same in another one. */
static void foreign_text_is_visible(void **state)
{
    (void)state;
    struct mst_err err;
    (void)mst__fail(&err, MST_ECLOSED, 0, "closed: %s", "\x1b[2J\nx\xe2\x80\xae \xff\xc3\xb6");
    static const char message[] = "closed: \\x1b[2J\\x0ax\\xe2\\x80\\xae \\xff\xc3\xb6";
    assert_string_equal(err.msg, message);
    (void)mst__err_wrap(&err, MST_ECLOSED, "join \x07");
    assert_int_equal(strncmp(err.msg, "join \\x07: ", 11), 0);
    assert_string_equal(err.msg + 11, message);
    char bells[300];
    memset(bells, 7, sizeof bells);
    bells[sizeof bells - 1] = '\0';
    (void)mst__fail(&err, MST_ECLOSED, 0, "%s", bells);
    assert_int_equal(strncmp(err.msg, "\\x07\\x07", 8), 0);
    assert_in_range(strlen(err.msg), sizeof err.msg - 8, sizeof err.msg - 1);
}

static void assertion_does_not_wait_for_a_reader(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fail_an_assertion(ends[1]);
    }
    int status = 0;
    int64_t deadline_ms = mst__clock_deadline_ms(20000);
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 && mst__clock_ms() < deadline_ms) {
        (void)poll(NULL, 0, 10);
    }
    if (ended == 0) {
        (void)kill(child, SIGKILL);
        (void)waitpid(child, &status, 0);
    }
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(close(ends[1]), 0);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_name_and_a_text),
        cmocka_unit_test(fail_fills_all),
        cmocka_unit_test(memory_and_limits_say_so),
        cmocka_unit_test(wrap_puts_context_before),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(cut_at_words_and_characters),
        cmocka_unit_test(no_half_characters),
        cmocka_unit_test(foreign_text_is_visible),
        cmocka_unit_test(assertion_does_not_wait_for_a_reader),
    };
    return MST_RUN_TESTS(tests);
}
