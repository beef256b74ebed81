/* unit/base/test_exec.c - children that become other programs. */
#include "base/exec.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/unit.h"

/* @arg: the arguments of a program, up to NULL. */
static void become(const void *arg, pid_t parent, const sigset_t *mask)
{
    const char *const *argv = arg;
    (void)parent;
    mst__exec_allow_signals(mask);
    (void)execv(argv[0], (char *const *)(uintptr_t)argv); /* it changes no argument */
}

/* A program that cannot be run is an error of the call, and nothing is left of the child. */
static void missing_program(void **state)
{
    (void)state;
    const char *argv[] = {"/none/such", NULL};
    struct mst_err err = {0};
    pid_t pid = -1;
    assert_int_equal(mst__exec_start(become, argv, argv[0], &pid, &err), MST_ESYS);
    assert_int_equal(err.sys, ENOENT);
    assert_int_equal(pid, -1);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

/* Our own SIG_IGN of SIGPIPE ends with the process, another one does not. */
static void signals(void **state)
{
    (void)state;
    static const struct {
        int number;
        const char *script;
        bool is_ended;
    } rows[] = {
        {SIGPIPE, "kill -PIPE $$", true},
        {SIGHUP, "kill -HUP $$", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct sigaction ignored = {.sa_handler = SIG_IGN};
        struct sigaction before;
        const char *argv[] = {"/bin/sh", "-c", rows[i].script, NULL};
        struct mst_err err = {0};
        pid_t pid = -1;
        int status = -1;
        assert_int_equal(sigaction(rows[i].number, &ignored, &before), 0);
        assert_int_equal(mst__exec_start(become, argv, argv[0], &pid, &err), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(WIFSIGNALED(status) && WTERMSIG(status) == rows[i].number,
                         rows[i].is_ended);
        assert_int_equal(WIFEXITED(status) && WEXITSTATUS(status) == 0, !rows[i].is_ended);
        assert_int_equal(sigaction(rows[i].number, &before, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_program),
        cmocka_unit_test(signals),
    };
    return MST_RUN_TESTS(tests);
}
