/* unit/cli/test_port_file.c - the file with a server's port. */
#include "cli/port_file.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "unit/unit.h"

/* When there is no room for the file, nothing stays behind. */
static void no_room(void **state)
{
    (void)state;
    char directory[] = "/tmp/muster-port-XXXXXX";
    char path[PATH_MAX];
    struct mst__port_file file;
    struct mst_err err;
    struct rlimit before;
    assert_non_null(mkdtemp(directory));
    (void)snprintf(path, sizeof path, "%s/port", directory);
    assert_int_equal(mst__port_file_begin(&file, path, &err), 0);
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    assert_int_equal(sigaction(SIGXFSZ, &ignored, NULL), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    int rv = mst__port_file_write(&file, 1234, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(rv, MST_ESYS);
    mst__port_file_end(&file);
    assert_int_equal(rmdir(directory), 0); /* it is empty */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_room),
    };
    return MST_RUN_TESTS(tests);
}
