/* unit/handler/test_hosted.c - a server of a node on a socket of its own, also without memory. */
#include "handler/hosted.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/endpoint.h"
#include "unit/unit.h"

/* The number of files in @path. */
static size_t count_files(const char *path)
{
    size_t count = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    assert_int_equal(closedir(directory), 0);
    return count;
}

/* Wherever the start fails, the directory of the socket does not stay; nor after the end. */
static void socket_leaves_nothing(void **state)
{
    (void)state;
    char directory[] = "/tmp/muster-hosted-XXXXXX";
    const struct mst_log log = {0};
    struct mst__sweep sweep = {0};
    assert_non_null(mkdtemp(directory));
    assert_int_equal(setenv("TMPDIR", directory, 1), 0);
    while (sweep_next(&sweep)) {
        struct mst__endpoint endpoint = {.host = MST_ENDPOINT_UNIX};
        struct mst__hosted *hosted = NULL;
        struct mst_err err = {0};
        int rv = mst__hosted_start(&endpoint, &log, &hosted, &err);
        sweep_end(&sweep, rv);
        if (rv == 0) {
            assert_int_equal(count_files(directory), 1);
            mst__hosted_place(hosted, &endpoint);
            assert_non_null(strstr(endpoint.host, directory));
            mst__hosted_stop(hosted);
        }
        assert_int_equal(count_files(directory), 0);
    }
    assert_true(sweep.failures > 1);
    assert_int_equal(rmdir(directory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(socket_leaves_nothing),
    };
    return MST_RUN_TESTS(tests);
}
