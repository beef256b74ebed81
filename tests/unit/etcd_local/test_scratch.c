/* unit/etcd_local/test_scratch.c - which directories and files stay when an etcd has ended. */
#include "etcd_local/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/unit.h"

static char root[] = "/tmp/muster-scratch-XXXXXX";
static char dir[64], member[80], other[80];
static struct mst__scratch scratch;
static struct mst_err err;

static int start(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/muster-scratch-XXXXXX");
    if (mkdtemp(root) == NULL) {
        return 1;
    }
    (void)snprintf(dir, sizeof dir, "%s/data", root);
    (void)snprintf(member, sizeof member, "%s/member", dir);
    (void)snprintf(other, sizeof other, "%s/other", dir);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    (void)rmdir(member); /* what there is of these */
    (void)rmdir(other);
    (void)rmdir(dir);
    return rmdir(root);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* An etcd with the data directory @dir writes there, and ends; the data is kept if @is_kept. */
static void use(bool is_kept)
{
    assert_int_equal(mst__scratch_open(dir, NULL, &scratch, &err), 0);
    assert_int_equal(mst__scratch_next(&scratch, 0, &err), 0);
    assert_string_equal(scratch.path, dir);
    (void)mkdir(member, 0700);
    mst__scratch_close(&scratch, is_kept);
}

static void made_directory(void **state)
{
    (void)state;
    use(false);
    assert_false(exists(dir));
    use(true);
    assert_true(exists(member));
}

/* A directory of the caller stays, even if it is empty. */
static void directory_of_the_caller(void **state)
{
    (void)state;
    assert_int_equal(mkdir(dir, 0700), 0);
    use(false);
    assert_false(exists(member));
    assert_true(exists(dir));
    assert_int_equal(mkdir(other, 0700), 0);
    use(false);
    assert_false(exists(member));
    assert_true(exists(other));
}

static void data_of_the_caller(void **state)
{
    (void)state;
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(mkdir(member, 0700), 0);
    use(false);
    assert_true(exists(member));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(made_directory, start, stop),
        cmocka_unit_test_setup_teardown(directory_of_the_caller, start, stop),
        cmocka_unit_test_setup_teardown(data_of_the_caller, start, stop),
    };
    return MST_RUN_TESTS(tests);
}
