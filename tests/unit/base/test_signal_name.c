/* unit/base/test_signal_name.c - names of signals, both ways. */
#include <signal.h>

#include "base/signal_name.h"
#include "unit/unit.h"

static int number(const char *name)
{
    return mst__signal_number(mst_bytes_str(name));
}

static void numbers_of_names(void **state)
{
    (void)state;
    assert_int_equal(number("SIGTERM"), SIGTERM);
    assert_int_equal(number("usr1"), SIGUSR1);
    assert_int_equal(number("9"), SIGKILL);
    assert_int_equal(number("0"), 0);
    assert_int_equal(number(""), 0);
    assert_int_equal(number("SIG"), 0);
}

/* No signal is without a name, but the real-time signals and the numbers that the C library keeps
 * for itself. */
static void names_of_numbers(void **state)
{
    (void)state;
    assert_string_equal(mst__signal_name(SIGSEGV), "SIGSEGV");
    for (int i = 1; i < 32; i++) {
        const char *name = mst__signal_name(i);
        assert_non_null(name);
        assert_int_equal(number(name), i);
    }
    assert_null(mst__signal_name(0));
    assert_null(mst__signal_name(32));
    assert_null(mst__signal_name(SIGRTMIN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_names),
        cmocka_unit_test(names_of_numbers),
    };
    return MST_RUN_TESTS(tests);
}
