/* unit/handler/test_params.c - parameters, their options, the settings made of them, and events as
 * JSON. */
#include "unit/store_unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/mem.h"
#include "handler/events.h"
#include "handler/params.h"
#include "handler/settings.h"

static struct mst_params *new_params(const char *endpoint, const char *options)
{
    struct mst_params *params = NULL;
    assert_ok(unit_params("c10d", endpoint, "job", 2, 4, NULL, &params, &err));
    assert_ok(mst_params_parse(params, options, &err));
    return params;
}

static void params_new(void **state)
{
    (void)state;
    struct mst_params *params = NULL;
    assert_ok(unit_params("c10d", "h:1", "job", 2, 4, "10.0.0.7", &params, &err));
    assert_string_equal(mst_params_backend(params), "c10d");
    assert_string_equal(mst_params_endpoint(params), "h:1");
    assert_string_equal(mst_params_run_id(params), "job");
    assert_string_equal(mst_params_local_addr(params), "10.0.0.7");
    assert_int_equal(mst_params_nodes_min(params), 2);
    assert_int_equal(mst_params_nodes_max(params), 4);
    mst_params_free(params);
    params = NULL;
    assert_ok(mst_params_new("c10d", NULL, &params, &err));
    assert_string_equal(mst_params_endpoint(params), "");
    assert_string_equal(mst_params_run_id(params), "");
    assert_null(mst_params_local_addr(params));
    assert_int_equal(mst_params_nodes_min(params), 0); /* nobody has said */
    mst_params_free(params);
    params = NULL;
    mst_params_free(NULL);
    assert_fails(mst_params_new("", "", &params, &err), MST_EINVAL, "backend");
    assert_null(params);
}

static void params_setters(void **state)
{
    (void)state;
    struct mst_params *params = new_params("h:1", "a=1,b=2,c=3");
    assert_ok(mst_params_set_endpoint(params, "i:2", &err));
    assert_string_equal(mst_params_endpoint(params), "i:2");
    assert_ok(mst_params_set_endpoint(params, NULL, &err));
    assert_string_equal(mst_params_endpoint(params), "");
    assert_ok(mst_params_set_local_addr(params, "me", &err));
    assert_string_equal(mst_params_local_addr(params), "me");
    assert_ok(mst_params_set_local_addr(params, NULL, &err));
    assert_null(mst_params_local_addr(params));
    assert_fails(mst_params_set_nodes(params, 0, -1, &err), MST_EINVAL, "nodes_min is 0");
    assert_fails(mst_params_set_nodes(params, 3, 2, &err), MST_EINVAL, "nodes_max is 2");
    assert_int_equal(mst_params_nodes_min(params), 2);
    assert_int_equal(mst_params_nodes_max(params), 4);

    mst_params_unset(params, "b");
    mst_params_unset(params, "b");
    assert_null(mst_params_text(params, "b", NULL));
    assert_string_equal(mst_params_text(params, "a", ""), "1");
    assert_string_equal(mst_params_text(params, "c", ""), "3");
    mst_params_unset(params, "c"); /* the last one */
    assert_null(mst_params_text(params, "c", NULL));
    assert_ok(mst_params_set(params, "b", "4", &err));
    assert_string_equal(mst_params_text(params, "b", ""), "4");
    mst_params_free(params);
}

/* Every handler refuses a job without limits, instead of beginning it with one node. */
static void limits_are_needed(void **state)
{
    (void)state;
    static const char *const backends[] = {"muster", "c10d", "static"};
    for (size_t i = 0; i < 3; i++) {
        struct mst_params *params = NULL;
        struct mst_handler *handler = NULL;
        assert_ok(mst_params_new(backends[i], "job", &params, &err));
        assert_ok(mst_params_set_endpoint(params, "127.0.0.1:0", &err));
        if (i == 2) {
            assert_ok(mst_params_set(params, "rank", "0", &err));
        }
        assert_fails(mst_handler_new(params, &handler, &err), MST_EINVAL, "nodes_min is 0");
        mst_params_free(params);
    }
}

static void options_set(void **state)
{
    (void)state;
    struct mst_params *params = new_params("", " a = 1 ,b=x=y,a=2");
    assert_string_equal(mst_params_text(params, "a", "none"), "2");
    assert_string_equal(mst_params_text(params, "b", "none"), "x=y");
    assert_string_equal(mst_params_text(params, "c", "none"), "none");
    assert_null(mst_params_text(params, "A", NULL));
    assert_ok(mst_params_set(params, "b", "", &err));
    assert_string_equal(mst_params_text(params, "b", "none"), "");
    /* An error at the end changes nothing. */
    assert_fails(mst_params_parse(params, "a=9,d=1,e", &err), MST_EINVAL, "'e' has no value");
    assert_fails(mst_params_parse(params, "a=9,,d=1", &err), MST_EINVAL, "no key");
    assert_string_equal(mst_params_text(params, "a", "none"), "2");
    assert_null(mst_params_text(params, "d", NULL));
    assert_ok(mst_params_parse(params, " ", &err));
    assert_fails(mst_params_set(params, "", "x", &err), MST_EINVAL, "name");
    /* As many options as allowed, and one more; a change does not count. */
    char key[16];
    for (int i = 2; i < MST_OPTIONS_MAX; i++) {
        (void)snprintf(key, sizeof key, "k%d", i);
        assert_ok(mst_params_set(params, key, "v", &err));
    }
    assert_fails(mst_params_set(params, "more", "v", &err), MST_ELIMIT, "'more'");
    assert_ok(mst_params_set(params, "k2", "w", &err));
    assert_string_equal(mst_params_text(params, "k2", NULL), "w");
    mst_params_free(params);
}

static void options_typed(void **state)
{
    (void)state;
    struct mst_params *params =
        new_params("", "yes=True,no=F,on=on,n=-1_0,big=9223372036854775808");
    bool flag = false;
    int64_t number = 0;
    assert_ok(mst_params_bool(params, "yes", false, &flag, &err));
    assert_true(flag);
    assert_ok(mst_params_bool(params, "no", true, &flag, &err));
    assert_false(flag);
    assert_ok(mst_params_bool(params, "unset", true, &flag, &err));
    assert_true(flag);
    assert_fails(mst_params_bool(params, "on", true, &flag, &err), MST_EINVAL, "'on'");
    assert_ok(mst_params_int(params, "n", 7, &number, &err));
    assert_int_equal(number, -10);
    assert_ok(mst_params_int(params, "unset", 7, &number, &err));
    assert_int_equal(number, 7);
    assert_fails(mst_params_int(params, "yes", 0, &number, &err), MST_EINVAL,
                 "option 'yes': 'True' is not a whole number");
    assert_fails(mst_params_int(params, "big", 0, &number, &err), MST_EINVAL, "too large");
    assert_int_equal(number, 7);
    mst_params_free(params);
}

static void options_duration(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms; /* -1 = refused */
    } cases[] = {
        {"10", 10000},
        {" 10 ", 10000},
        {"1_0", 10000},
        {"250ms", 250},
        {"10s", 10000},
        {"5m", 300000},
        {"2h", 7200000},
        {" 3s ", 3000},
        {"0", 0},
        {"0ms", 0},
        {"+2s", 2000},
        {"10 s", -1},
        {"1.5", 1500},
        {"1.5s", 1500},
        {" 0.25 ", 250},
        {"0.5ms", 1},
        {"2.5m", 150000},
        {"1.5 s", -1},
        {"1.", -1},
        {"-1.5", -1},
        {"s", -1},
        {"ms", -1},
        {"10S", -1},
        {"10d", -1},
        {"10sm", -1},
        {"", -1},
        {"1e3", -1},
        {"10us", -1},
        {"9223372036854775807", -1},
    };
    struct mst_params *params = new_params("", "");
    int64_t ms = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_ok(mst_params_set(params, "d", cases[i].text, &err));
        if (cases[i].ms < 0) {
            assert_fails(mst_params_duration_ms(params, "d", 1, &ms, &err), MST_EINVAL,
                         "option 'd'");
        } else {
            assert_ok(mst_params_duration_ms(params, "d", 1, &ms, &err));
            assert_int_equal(ms, cases[i].ms);
        }
    }
    assert_ok(mst_params_duration_ms(params, "unset", 4711, &ms, &err));
    assert_int_equal(ms, 4711);
    mst_params_free(params);
}

static void options_known(void **state)
{
    (void)state;
    static const char *const names[] = {"join_timeout", "rank"};
    static const struct mst__known known = MST_KNOWN(names);
    struct mst_params *params = new_params("", "rank=1,join_timeout=2");
    assert_ok(mst__params_check_known(params, &known, &err));
    assert_ok(mst_params_set(params, "join_timout", "3", &err));
    assert_fails(mst__params_check_known(params, &known, &err), MST_EINVAL,
                 "unknown option 'join_timout'; did you mean 'join_timeout'?");
    mst_params_free(params);
    params = new_params("", "join=1"); /* few of its letters, but the first ones */
    assert_fails(mst__params_check_known(params, &known, &err), MST_EINVAL,
                 "unknown option 'join'; did you mean 'join_timeout'?");
    mst_params_free(params);
    params = new_params("", "zzzzzz=1");
    assert_fails(mst__params_check_known(params, &known, &err), MST_EINVAL,
                 "unknown option 'zzzzzz'; known are: join_timeout, rank");
    mst_params_free(params);
}

struct lines {
    char text[400];
};

static void keep_line(void *arg, enum mst_log_level level, const char *line)
{
    struct lines *lines = arg;
    assert_int_equal(level, MST_LOG_WARN);
    size_t at = strlen(lines->text);
    (void)snprintf(lines->text + at, sizeof lines->text - at, "%s\n", line);
}

/* Bindings hand the same options to all backends, as torch does. */
static void unknown_options_ignored(void **state)
{
    (void)state;
    static const char *const names[] = {"join_timeout", "rank"};
    static const struct mst__known known = MST_KNOWN(names);
    struct lines lines = {""};
    struct mst_log log = {.fn = keep_line, .arg = &lines, .level = MST_LOG_WARN};
    struct mst_params *params = new_params("", "is_host=1,rank=1,my key=2");
    mst_params_log(params, &log);
    mst_params_ignore_unknown(params, true);
    assert_ok(mst__params_check_known(params, &known, &err));
    assert_non_null(strstr(lines.text, "ev=params.ignored backend=c10d option=is_host\n"));
    assert_non_null(strstr(lines.text, "option=\"my key\"\n"));
    assert_null(strstr(lines.text, "rank"));
    /* Known options are still checked, by every handler. */
    struct mst_handler *handler = NULL;
    static const char *const backends[] = {"static", "muster", "c10d"};
    for (size_t i = 0; i < 3; i++) {
        struct mst_params *of = NULL;
        assert_ok(unit_params(backends[i], "127.0.0.1:1", "job", 1, 1, NULL, &of, &err));
        assert_ok(mst_params_parse(of, "no_such_thing=1,is_host=0", &err));
        if (i == 0) {
            assert_ok(mst_params_set(of, "rank", "0", &err));
        }
        assert_fails(mst_handler_new(of, &handler, &err), MST_EINVAL, "unknown option");
        mst_params_log(of, &log);
        mst_params_ignore_unknown(of, true);
        lines.text[0] = '\0';
        assert_ok(mst_handler_new(of, &handler, &err));
        assert_non_null(strstr(lines.text, "option=no_such_thing\n"));
        mst_handler_free(handler);
        mst_params_free(of);
    }
    lines.text[0] = '\0';
    mst_params_log(params, NULL); /* no more lines */
    assert_ok(mst__params_check_known(params, &known, &err));
    assert_string_equal(lines.text, "");
    mst_params_ignore_unknown(params, false);
    assert_fails(mst__params_check_known(params, &known, &err), MST_EINVAL, "is_host");
    mst_params_free(params);
}

/* --- settings --- */

static void dynamic_settings(void **state)
{
    (void)state;
    struct mst__dynamic dynamic;
    struct mst_params *params = new_params("h:1", "timeout=900,use_libuv=0");
    assert_ok(mst__dynamic_read(params, &dynamic, &err));
    mst_params_free(params);
    assert_int_equal(dynamic.settings.nodes_min, 2);
    assert_int_equal(dynamic.settings.nodes_max, 4);
    assert_int_equal(dynamic.settings.join_us, 600000000);
    assert_int_equal(dynamic.settings.clock_skew_us, 60000000);
    assert_int_equal(dynamic.dialect, MST_RECORD_D4);
    params = new_params("h:1", "keep_alive_interval=500ms,clock_skew=0,state_dialect=D1");
    assert_ok(mst__dynamic_read(params, &dynamic, &err));
    mst_params_free(params);
    assert_int_equal(dynamic.settings.keep_alive_interval_us, 500000);
    assert_int_equal(dynamic.settings.clock_skew_us, 0);
    assert_int_equal(dynamic.dialect, MST_RECORD_D1);
}

static void dynamic_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *options, *named;
    } cases[] = {
        {"state_dialect=D5", "state_dialect"},
        {"state_dialect=4", "state_dialect"},
        {"clock_skew=-1", "'clock_skew' must be 0 or longer"},
        {"clock_skew=x", "clock_skew"},
        {"keep_alive_interval=0", "'keep_alive_interval' must be longer than 0"},
        {"keep_alive_max_attempt=0", "'keep_alive_max_attempt' must be 1 or more"},
        {"join_timeout=9223372036854775", "join_timeout"},
        {"join_timeout=0,last_call_timeout=x", "last_call_timeout"},
        {"timeout=soon", "option 'timeout'"},
        {"use_libuv=perhaps", "option 'use_libuv'"},
        {"last_cal_timeout=3", "did you mean 'last_call_timeout'"},
        {"rank=1", "unknown option 'rank'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__dynamic dynamic;
        struct mst_params *params = new_params("h:1", cases[i].options);
        assert_fails(mst__dynamic_read(params, &dynamic, &err), MST_EINVAL, cases[i].named);
        mst_params_free(params);
    }
}

static void c10d_options(void **state)
{
    (void)state;
    struct mst__c10d c10d;
    struct mst_params *params = new_params("[::1]", "read_timeout=250ms,is_host=no");
    assert_ok(mst__c10d_read(params, &c10d, &err));
    assert_string_equal(c10d.endpoint.host, "::1");
    assert_int_equal(c10d.endpoint.port, 29400);
    assert_int_equal(c10d.read_timeout_ms, 250);
    assert_true(c10d.is_host_known);
    assert_false(c10d.is_host);
    mst_params_free(params);
    params = new_params("h:99999", "is_host=maybe");
    assert_fails(mst__c10d_read(params, &c10d, &err), MST_EINVAL, "endpoint 'h:99999': port");
    mst_params_free(params);
    params = new_params("h", "is_host=maybe,read_timeout=0");
    assert_fails(mst__c10d_read(params, &c10d, &err), MST_EINVAL, "is_host");
    mst_params_free(params);
    static const struct {
        const char *options;
        bool is_known, is_host;
    } serve[] = {
        {"", false, false},
        {"serve=auto", false, false},
        {"serve=never", true, false},
        {"serve=Always", true, true},
        {"is_host=true", true, true},
        {"is_host=true,serve=never", true, false},
        {"is_host=true,serve=auto", false, false},
    };
    for (size_t i = 0; i < sizeof serve / sizeof serve[0]; i++) {
        params = new_params("h", serve[i].options);
        assert_ok(mst__c10d_read(params, &c10d, &err));
        assert_int_equal(c10d.is_host_known, serve[i].is_known);
        assert_int_equal(c10d.is_host_known && c10d.is_host, serve[i].is_host);
        mst_params_free(params);
    }
    params = new_params("h", "serve=perhaps");
    assert_fails(mst__c10d_read(params, &c10d, &err), MST_EINVAL,
                 "option 'serve': 'perhaps' is not auto, never or always");
    mst_params_free(params);
    params = new_params("h", "store_type=etcd");
    assert_fails(mst__c10d_read(params, &c10d, &err), MST_EINVAL, "'etcd' is neither tcp nor file");
    mst_params_free(params);
}

/* --- events --- */

static void read_line(int fd, char *ret_line, size_t size)
{
    ssize_t count = read(fd, ret_line, size - 1);
    assert_true(count > 0);
    ret_line[count] = '\0';
}

static void event_json(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    struct mst_event event = {
        .size = sizeof event,
        .name = "next_rendezvous",
        .run_id = "job \"7\"",
        .node = "n\xc3\xa4\xff_1_0",
        .message = "a\\b\nc",
        .state = MST_NODE_RUNNING,
        .round = 3,
        .rank = -1,
        .time_us = 1700000000123456,
    };
    char line[600];
    mst_event_json(&fds[1], &event);
    read_line(fds[0], line, sizeof line);
    assert_string_equal(line, "{\"name\":\"next_rendezvous\",\"run_id\":\"job \\\"7\\\"\","
                              "\"node\":\"n\xc3\xa4\\ufffd_1_0\",\"message\":\"a\\\\b\\u000ac\","
                              "\"node_state\":\"RUNNING\",\"round\":3,\"rank\":null,"
                              "\"time_us\":1700000000123456}\n");
    struct mst__events events = {.fn = mst_event_json, .arg = &fds[1], .run_id = "r", .node = "n"};
    /* The name of another node can be printed. */
    mst__event(&events, "keep_alive", MST_NODE_FAILED, -1, 2, "lost %s", "b\x1b[2J");
    read_line(fds[0], line, sizeof line);
    assert_non_null(
        strstr(line, "{\"name\":\"keep_alive\",\"run_id\":\"r\",\"node\":\"n\","
                     "\"message\":\"lost b\\\\x1b[2J\",\"node_state\":\"FAILED\",\"round\":null,"
                     "\"rank\":2,\"time_us\":"));
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
}

static atomic_bool has_signal;

static void on_signal(int number)
{
    (void)number;
    atomic_store(&has_signal, true);
}

/* A thread that tells an event while the pipe is full. */
struct teller {
    pthread_t thread;
    atomic_int tid; /* 0 = it has not begun */
    int fd;
};

static void *tell(void *arg)
{
    struct teller *teller = arg;
    struct mst__events events = {
        .fn = mst_event_json, .arg = &teller->fd, .run_id = "r", .node = "n"};
    atomic_store(&teller->tid, (int)syscall(SYS_gettid));
    mst__event(&events, "told", MST_NODE_RUNNING, 1, 2, "late");
    return NULL;
}

/* An event for which the reader has no room yet is told when it has, signal or not. */
static void interrupted_event(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_signal}; /* without SA_RESTART */
    struct sigaction before;
    struct teller teller = {.tid = 0};
    static char filler[1 << 20];
    char line[600];
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(fcntl(fds[1], F_SETFL, O_NONBLOCK), 0);
    ssize_t filled = 0;
    for (ssize_t wrote; (wrote = write(fds[1], filler, 4096)) > 0;) {
        filled += wrote;
    }
    assert_int_equal(fcntl(fds[1], F_SETFL, 0), 0);
    assert_in_range(filled, 4096, sizeof filler);
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    teller.fd = fds[1];
    assert_int_equal(pthread_create(&teller.thread, NULL, tell, &teller), 0);
    while (atomic_load(&teller.tid) == 0 || !unit_is_asleep(atomic_load(&teller.tid))) {
        (void)sched_yield();
    }
    assert_int_equal(pthread_kill(teller.thread, SIGUSR1), 0);
    while (!atomic_load(&has_signal)) {
        (void)sched_yield();
    }
    while (filled > 0) {
        ssize_t got = read(fds[0], filler, (size_t)filled);
        assert_true(got > 0);
        filled -= got;
    }
    assert_int_equal(pthread_join(teller.thread, NULL), 0);
    assert_int_equal(close(fds[1]), 0);
    read_line(fds[0], line, sizeof line);
    assert_non_null(strstr(line, "\"told\""));
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
}

/* --- memory --- */

/* All the calls that allocate; the first failure, or 0. */
static int make_all(void)
{
    struct mst_params *params = NULL;
    struct mst_params *copy = NULL;
    int rv = unit_params("c10d", "h:1", "job", 1, 1, "me", &params, NULL);
    if (rv == 0) {
        rv = mst_params_parse(params, "a=1,b=2,a=3", NULL);
    }
    if (rv == 0) {
        rv = mst_params_set(params, "a", "4", NULL);
    }
    if (rv == 0) {
        rv = mst__params_copy(params, &copy, NULL);
    }
    if (rv == 0) {
        assert_string_equal(mst_params_text(copy, "a", ""), "4");
    }
    mst_params_free(params);
    mst_params_free(copy);
    return rv;
}

static void out_of_memory(void **state)
{
    (void)state;
    struct mst__sweep sweep = {0};
    while (sweep_next(&sweep)) {
        sweep_end(&sweep, make_all());
    }
    assert_true(sweep.failures > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(params_new),        cmocka_unit_test(options_set),
        cmocka_unit_test(params_setters),    cmocka_unit_test(limits_are_needed),
        cmocka_unit_test(options_typed),     cmocka_unit_test(options_duration),
        cmocka_unit_test(options_known),     cmocka_unit_test(unknown_options_ignored),
        cmocka_unit_test(dynamic_settings),  cmocka_unit_test(dynamic_refuses),
        cmocka_unit_test(c10d_options),      cmocka_unit_test(event_json),
        cmocka_unit_test(interrupted_event), cmocka_unit_test(out_of_memory),
    };
    return MST_RUN_TESTS(tests);
}
