/* unit/agent/test_signal_survived.c - which signals would end a process. */
#include "agent/signal_survived.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "unit/unit.h"

/* Blocks SIGUSR1 (10), ignores SIGHUP (1), handles SIGUSR2 (12) and signal 64. */
static const char status[] = "Name:\tSigCgt: x\nState:\tS (sleeping)\n"
                             "SigQ:\t0/63433\nSigPnd:\t0000000000000400\n"
                             "ShdPnd:\t0000000000000000\nSigBlk:\t0000000000000200\n"
                             "SigIgn:\t0000000000000001\nSigCgt:\t8000000000000800\n";

static bool survives(int signal)
{
    return mst__signal_survival_in(mst_bytes_str(status), signal) == MST_SURVIVAL_SURE;
}

static void by_its_sets(void **state)
{
    (void)state;
    assert_true(survives(SIGUSR1));
    assert_true(survives(SIGHUP));
    assert_true(survives(SIGUSR2));
    assert_true(survives(64));
    assert_false(survives(SIGINT));
    assert_false(survives(SIGSEGV)); /* 11: only pending */
    assert_false(survives(SIGPIPE)); /* 13 */
    assert_false(survives(63));
}

static void by_its_usual_effect(void **state)
{
    (void)state;
    static const int harmless[] = {SIGCHLD, SIGCONT, SIGURG,  SIGWINCH,
                                   SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        assert_int_equal(mst__signal_survival_in(mst_bytes_str(""), harmless[i]),
                         MST_SURVIVAL_SURE);
    }
    assert_int_equal(mst__signal_survival_in(mst_bytes_str(""), SIGUSR1), MST_SURVIVAL_NONE);
    assert_int_equal(mst__signal_survival_in(mst_bytes_str("\nSigCgt:"), SIGUSR1),
                     MST_SURVIVAL_NONE);
}

/* A shell blocks all signals for a moment before it sleeps. */
static void blocked_for_a_moment(void **state)
{
    (void)state;
    static const char running[] = "Name:\tsh\nState:\tR (running)\n"
                                  "SigBlk:\tfffffffe7ffbfeff\nSigIgn:\t0000000000000000\n"
                                  "SigCgt:\t0000000000000800\n";
    assert_int_equal(mst__signal_survival_in(mst_bytes_str(running), SIGUSR1),
                     MST_SURVIVAL_BLOCKED);
    assert_int_equal(mst__signal_survival_in(mst_bytes_str(running), SIGUSR2), MST_SURVIVAL_SURE);
}

/* A process that never unblocks the signal fetches it, also if it is never seen asleep. */
static void blocked_and_computing(void **state)
{
    (void)state;
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    assert_int_equal(sigprocmask(SIG_BLOCK, &set, NULL), 0);
    assert_true(mst__signal_is_survived(getpid(), SIGUSR1)); /* whenever it looks */
    assert_int_equal(sigprocmask(SIG_UNBLOCK, &set, NULL), 0);
    assert_false(mst__signal_is_survived(getpid(), SIGUSR1));
}

static void on_signal(int number)
{
    (void)number; /* it is never sent */
}

static void of_a_process(void **state)
{
    (void)state;
    struct sigaction usual = {.sa_handler = SIG_DFL};
    struct sigaction handled = {.sa_handler = on_signal};
    assert_int_equal(sigaction(SIGUSR2, &usual, NULL), 0);
    assert_false(mst__signal_is_survived(getpid(), SIGUSR2));
    assert_int_equal(sigaction(SIGUSR2, &handled, NULL), 0);
    assert_true(mst__signal_is_survived(getpid(), SIGUSR2));
    assert_int_equal(sigaction(SIGUSR2, &usual, NULL), 0);
    assert_false(mst__signal_is_survived(getpid(), SIGUSR2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_its_sets),           cmocka_unit_test(by_its_usual_effect),
        cmocka_unit_test(of_a_process),          cmocka_unit_test(blocked_for_a_moment),
        cmocka_unit_test(blocked_and_computing),
    };
    return MST_RUN_TESTS(tests);
}
