/* unit/agent/test_watchdog.c - timers in the pipe of workers, and whom they end: real processes. */
#include "agent/watchdog.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "unit/unit.h"

enum { PROCESSES = 2, EXPIRIES_MAX = 8, TURNS = 100 };

static uv_loop_t loop;
static struct mst__watchdog watchdog;
static pid_t pids[PROCESSES]; /* each waits for a signal */
static pid_t foreign;         /* may not get one; 0 = none */
static int input;             /* the workers' end of the pipe */
static struct {
    pid_t pid;
    int signal;
} expiries[EXPIRIES_MAX];
static size_t expiries_count;

static bool is_own(void *arg, pid_t pid)
{
    (void)arg;
    return pid != foreign;
}

static void expired(void *arg, pid_t pid, int signal)
{
    (void)arg;
    assert_true(expiries_count < EXPIRIES_MAX);
    expiries[expiries_count].pid = pid;
    expiries[expiries_count].signal = signal;
    expiries_count++;
}

static int start(void **state)
{
    (void)state;
    struct mst_err err;
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "/tmp/muster-watchdog-%ld", (long)getpid());
    foreign = 0;
    expiries_count = 0;
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            (void)pause();
            _exit(1);
        }
    }
    if (uv_loop_init(&loop) != 0 ||
        mst__watchdog_open(&watchdog, &loop, path, is_own, expired, NULL, &err) != 0) {
        return 1;
    }
    input = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return input < 0;
}

static int stop(void **state)
{
    (void)state;
    (void)close(input);
    for (int i = 0; i < PROCESSES; i++) {
        (void)kill(pids[i], SIGKILL); /* it may have ended, but is not reaped */
        (void)waitpid(pids[i], NULL, 0);
    }
    mst__watchdog_stop(&watchdog);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    mst__watchdog_close(&watchdog);
    return uv_loop_close(&loop) != 0;
}

static void send_text(const char *text, size_t size)
{
    assert_int_equal(write(input, text, size), (ssize_t)size);
}

/* Append a timer to @text, which has @size bytes of room. */
static void add(char *text, size_t size, int process, const char *scope, int expiry_s, int signal)
{
    size_t used = strlen(text);
    (void)snprintf(text + used, size - used,
                   "{\"version\": 1, \"pid\": %ld, \"scope_id\": \"%s\", "
                   "\"expiration_time\": %d.5, \"signal\": %d}\n",
                   (long)pids[process], scope, expiry_s, signal);
}

static void turn(void)
{
    for (int i = 0; i < TURNS; i++) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
}

static bool has_ended(int process)
{
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)pids[process], &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid != 0;
}

/* The first timer of a process that expires ends it; its others are released, and no others. */
static void first_one_counts(void **state)
{
    (void)state;
    char text[1000] = "";
    add(text, sizeof text, 0, "second", 2, SIGTERM);
    add(text, sizeof text, 0, "first", 1, SIGUSR1);
    add(text, sizeof text, 1, "other", 3, 0);
    send_text(text, strlen(text));
    turn();
    assert_int_equal(expiries_count, 2);
    assert_int_equal(expiries[0].pid, pids[0]);
    assert_int_equal(expiries[0].signal, SIGUSR1);
    assert_int_equal(expiries[1].pid, pids[1]);
    assert_int_equal(expiries[1].signal, 0);
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)pids[0], &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(info.si_status, SIGUSR1);
    assert_false(has_ended(1));
}

/* A timer without a signal only reports: the others of its process stay. */
static void one_without_a_signal(void **state)
{
    (void)state;
    char text[1000] = "";
    add(text, sizeof text, 0, "reports", 1, 0);
    add(text, sizeof text, 0, "ends", 2, SIGUSR1);
    send_text(text, strlen(text));
    turn();
    assert_int_equal(expiries_count, 2);
    assert_int_equal(expiries[0].signal, 0);
    assert_int_equal(expiries[1].signal, SIGUSR1);
}

/* Workers run the same program, so their timers have the same names. */
static void same_name(void **state)
{
    (void)state;
    char text[1000] = "";
    add(text, sizeof text, 0, "step", 1, 0);
    add(text, sizeof text, 1, "step", 2, 0);
    send_text(text, strlen(text));
    turn();
    assert_int_equal(expiries_count, 2);
    assert_int_equal(expiries[0].pid, pids[0]);
    assert_int_equal(expiries[1].pid, pids[1]);
}

/* A worker cannot have other processes of the user killed, nor one that took a number over. */
static void only_own_processes(void **state)
{
    (void)state;
    char text[1000] = "";
    foreign = pids[0];
    add(text, sizeof text, 0, "s", 1, SIGKILL);
    add(text, sizeof text, 1, "s", 2, 0);
    send_text(text, strlen(text));
    turn();
    assert_int_equal(expiries_count, 1);
    assert_int_equal(expiries[0].pid, pids[1]);
    assert_false(has_ended(0));
}

static void long_line(void **state)
{
    (void)state;
    char text[1000] = "\n";
    char part[PIPE_BUF];
    memset(part, 'x', sizeof part);
    for (size_t size = 0; size < 2 * MST_WATCHDOG_LINE_SIZE_MAX; size += sizeof part) {
        send_text(part, sizeof part);
        turn();
    }
    add(text, sizeof text, 0, "s", 1, 0);
    send_text(text, strlen(text));
    turn();
    assert_int_equal(expiries_count, 1);
}

/* A line may come in parts. */
static void line_in_parts(void **state)
{
    (void)state;
    char text[1000] = "";
    add(text, sizeof text, 0, "s", 1, 0);
    send_text(text, strlen(text) / 2);
    turn();
    assert_int_equal(expiries_count, 0);
    send_text(text + strlen(text) / 2, strlen(text) - strlen(text) / 2);
    turn();
    assert_int_equal(expiries_count, 1);
}

/* A timer that is set again, or released, does not expire at its first time. */
static void set_again(void **state)
{
    (void)state;
    char text[1000] = "";
    add(text, sizeof text, 0, "s", 1, SIGKILL);
    add(text, sizeof text, 0, "s", 2000000000, SIGKILL);
    add(text, sizeof text, 1, "s", 1, SIGKILL);
    add(text, sizeof text, 1, "s", -1, SIGKILL);
    send_text(text, strlen(text));
    turn();
    assert_int_equal(expiries_count, 0);
    assert_int_equal(watchdog.count, 1);
    assert_false(has_ended(0));
    assert_false(has_ended(1));
}

/* Timers of an earlier generation do not count. */
static void forgotten(void **state)
{
    (void)state;
    char text[1000] = "";
    add(text, sizeof text, 0, "s", 1, SIGKILL);
    send_text(text, strlen(text));
    (void)uv_run(&loop, UV_RUN_NOWAIT); /* reads; timers expire in the next turn */
    assert_int_equal(watchdog.count, 1);
    mst__watchdog_forget(&watchdog);
    turn();
    assert_int_equal(expiries_count, 0);
    assert_false(has_ended(0));
}

/* A pipe that an agent has left is replaced, and no other file. */
static void file_of_somebody_else(void **state)
{
    (void)state;
    struct mst__watchdog other;
    struct mst_err err;
    char path[] = "/tmp/muster-watchdog-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    int rv = mst__watchdog_open(&other, &loop, path, is_own, expired, NULL, &err);
    if (rv == 0) {
        mst__watchdog_stop(&other); /* so that the loop ends */
    }
    assert_int_equal(rv, MST_ESYS);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(mst__watchdog_open(&other, &loop, path, is_own, expired, NULL, &err), 0);
    mst__watchdog_stop(&other);
    turn();
    mst__watchdog_close(&other);
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(first_one_counts, start, stop),
        cmocka_unit_test_setup_teardown(one_without_a_signal, start, stop),
        cmocka_unit_test_setup_teardown(same_name, start, stop),
        cmocka_unit_test_setup_teardown(only_own_processes, start, stop),
        cmocka_unit_test_setup_teardown(long_line, start, stop),
        cmocka_unit_test_setup_teardown(line_in_parts, start, stop),
        cmocka_unit_test_setup_teardown(set_again, start, stop),
        cmocka_unit_test_setup_teardown(forgotten, start, stop),
        cmocka_unit_test_setup_teardown(file_of_somebody_else, start, stop),
    };
    return MST_RUN_TESTS(tests);
}
