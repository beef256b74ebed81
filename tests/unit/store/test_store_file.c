/* unit/store/test_store_file.c - the file store's file: its bytes, and changes by others. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "unit/store_unit.h"

struct fixture {
    char directory[40];
    char path[80];
    char url[100];
};

static int fixture_open(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    (void)snprintf(fixture->directory, sizeof fixture->directory, "/tmp/muster-test-XXXXXX");
    assert_non_null(mkdtemp(fixture->directory));
    (void)snprintf(fixture->path, sizeof fixture->path, "%s/store", fixture->directory);
    (void)snprintf(fixture->url, sizeof fixture->url, "file://%s", fixture->path);
    *state = fixture;
    return 0;
}

static int fixture_close(void **state)
{
    struct fixture *fixture = *state;
    (void)unlink(fixture->path);
    assert_int_equal(rmdir(fixture->directory), 0);
    free(fixture);
    return 0;
}

static void write_file(const char *path, int flags, const char *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), (ssize_t)size);
    assert_int_equal(close(fd), 0);
}

static size_t read_file(const char *path, char *ret_bytes, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t got = read(fd, ret_bytes, size);
    assert_true(got >= 0);
    assert_int_equal(close(fd), 0);
    return (size_t)got;
}

/* Records as PyTorch's FileStore writes them. */
#define RECORD_K "\2\0\0\0/k\1\0\0\0v"
#define RECORD_N "\2\0\0\0/n\2\0\0\0-2"
#define RECORD_K_GONE "\3\0\0\0-/k\0\0\0\0"
#define RECORD_REFCOUNT "\11\0\0\0refcount/\1\0\0\0001"

static void test_bytes(void **state)
{
    struct fixture *fixture = *state;
    struct mst_store *store = open_store(fixture->url);
    /* Looking does not make a file. */
    assert_absent(store, "k");
    assert_int_equal(access(fixture->path, F_OK), -1);
    int64_t sum;
    bool existed;
    assert_ok(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err));
    assert_ok(mst_store_add(store, STR("n"), -2, PLENTY_MS, &sum, &err));
    assert_ok(mst_store_delete(store, STR("k"), PLENTY_MS, &existed, &err));
    assert_true(existed);
    assert_ok(mst_store_delete(store, STR("k"), PLENTY_MS, &existed, &err));
    assert_false(existed);
    static const char wanted[] = RECORD_K RECORD_N RECORD_K_GONE;
    char got[200];
    size_t size = read_file(fixture->path, got, sizeof got);
    assert_bytes(mst_bytes_of(got, size), mst_bytes_of(wanted, sizeof wanted - 1));
    mst_store_close(store);
}

static void test_reads_torch(void **state)
{
    struct fixture *fixture = *state;
    static const char log[] = RECORD_REFCOUNT RECORD_K RECORD_N RECORD_K_GONE;
    write_file(fixture->path, 0, log, sizeof log - 1);
    struct mst_store *store = open_store(fixture->url);
    assert_absent(store, "k");
    assert_value(store, "n", STR("-2"));
    int64_t count = 0;
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
    assert_int_equal(count, 2); /* torch counts its own key too */
    struct mst_keys keys = {0};
    assert_ok(mst_store_list(store, PLENTY_MS, &keys, &err));
    assert_int_equal(keys.count, 1);
    assert_bytes_str(keys.keys[0], "n");
    mst_keys_free(&keys);
    mst_store_close(store);
}

/* A writer that was killed in the middle of a record, at every possible point. */
static void test_torn_tail(void **state)
{
    struct fixture *fixture = *state;
    static const char record[] = RECORD_K;
    for (size_t torn = 1; torn < sizeof record - 1; torn++) {
        write_file(fixture->path, O_TRUNC, RECORD_N, sizeof RECORD_N - 1);
        write_file(fixture->path, O_APPEND, record, torn);
        struct mst_store *store = open_store(fixture->url);
        assert_absent(store, "k");
        assert_value(store, "n", STR("-2"));
        assert_ok(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err));
        assert_value(store, "k", STR("v"));
        mst_store_close(store);
        char got[100];
        size_t size = read_file(fixture->path, got, sizeof got);
        assert_bytes(mst_bytes_of(got, size), mst_bytes_of(RECORD_N RECORD_K, 12 + 11));
    }
}

/* The rest of a long record is cut off, also if a short one replaces it. */
static void test_long_torn_tail(void **state)
{
    struct fixture *fixture = *state;
    static const char torn[] = "\2\0\0\0/k\100\0\0\0" RECORD_K RECORD_K RECORD_K;
    write_file(fixture->path, 0, RECORD_N, sizeof RECORD_N - 1);
    write_file(fixture->path, O_APPEND, torn, sizeof torn - 1);
    struct mst_store *store = open_store(fixture->url);
    assert_absent(store, "k");
    assert_ok(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err));
    mst_store_close(store);
    char got[100];
    size_t size = read_file(fixture->path, got, sizeof got);
    assert_bytes(mst_bytes_of(got, size), mst_bytes_of(RECORD_N RECORD_K, 12 + 11));
}

/* A write that fails in the middle leaves nothing behind. */
static void test_file_full(void **state)
{
    struct fixture *fixture = *state;
    struct mst_store *store = open_store(fixture->url);
    assert_ok(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err));
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit full = {.rlim_cur = 11 + 30, .rlim_max = before.rlim_max};
    char value[100];
    memset(value, 'x', sizeof value);
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction usual;
    assert_int_equal(sigaction(SIGXFSZ, &ignore, &usual), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    int rv = mst_store_set(store, STR("n"), mst_bytes_of(value, sizeof value), PLENTY_MS, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(sigaction(SIGXFSZ, &usual, NULL), 0);
    assert_int_equal(rv, MST_ESYS);
    assert_int_equal(err.sys, EFBIG);
    char got[200];
    size_t size = read_file(fixture->path, got, sizeof got);
    assert_bytes(mst_bytes_of(got, size), mst_bytes_of(RECORD_K, 11));
    assert_value(store, "k", STR("v"));
    mst_store_close(store);
}

/* A foreign file is refused and not changed. */
static void test_not_a_store(void **state)
{
    struct fixture *fixture = *state;
    static const char text[] = "root:x:0:0:root:/root:/bin/bash\n";
    write_file(fixture->path, 0, text, sizeof text - 1);
    struct mst_store *store = open_store(fixture->url);
    assert_fails(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err), MST_EPROTO,
                 "is not a store");
    bool exist;
    struct mst_bytes key = STR("k");
    assert_fails(mst_store_check(store, &key, 1, PLENTY_MS, &exist, &err), MST_EPROTO, "offset 0");
    char got[100];
    size_t size = read_file(fixture->path, got, sizeof got);
    assert_bytes(mst_bytes_of(got, size), mst_bytes_of(text, sizeof text - 1));
    mst_store_close(store);
    char url[120];
    (void)snprintf(url, sizeof url, "file://%s", fixture->directory);
    assert_fails(mst_store_open(url, NULL, PLENTY_MS, &store, &err), MST_EINVAL,
                 "not a regular file");
    assert_fails(mst_store_open("file:///no/such/directory/store", NULL, PLENTY_MS, &store, &err),
                 MST_ESYS, "No such file");
}

static void test_two_handles(void **state)
{
    struct fixture *fixture = *state;
    struct mst_store *one = open_store(fixture->url);
    struct mst_store *two = open_store(fixture->url);
    int64_t sum = 0;
    for (int i = 1; i <= 20; i++) {
        assert_ok(mst_store_add(i % 2 == 0 ? one : two, STR("n"), 1, PLENTY_MS, &sum, &err));
        assert_int_equal(sum, i);
    }
    assert_ok(mst_store_set(one, STR("k"), STR("1"), PLENTY_MS, &err));
    assert_value(two, "k", STR("1"));
    assert_ok(mst_store_delete(two, STR("k"), PLENTY_MS, NULL, &err));
    assert_absent(one, "k");
    mst_store_close(one);
    mst_store_close(two);
}

/* The last of a torch job removes the file; the next job makes a new one under the name. */
static void test_replaced(void **state)
{
    struct fixture *fixture = *state;
    struct mst_store *store = open_store(fixture->url);
    assert_ok(mst_store_set(store, STR("old"), STR("1"), PLENTY_MS, &err));
    assert_value(store, "old", STR("1"));
    assert_int_equal(unlink(fixture->path), 0);
    assert_absent(store, "old");
    write_file(fixture->path, 0, RECORD_K RECORD_N, 11 + 12);
    assert_absent(store, "old");
    assert_value(store, "k", STR("v"));
    /* Replaced while we have it open: the inode differs, at any size. */
    char other[100];
    (void)snprintf(other, sizeof other, "%s.new", fixture->path);
    write_file(other, 0, RECORD_N RECORD_K_GONE RECORD_REFCOUNT, 12 + 11 + 18);
    assert_int_equal(rename(other, fixture->path), 0);
    assert_absent(store, "k");
    assert_value(store, "n", STR("-2"));
    /* Emptied in place. */
    assert_int_equal(truncate(fixture->path, 0), 0);
    assert_absent(store, "n");
    mst_store_close(store);
}

/* What was a file has become a device, which would take every write and keep none. */
static void test_no_file_any_more(void **state)
{
    const struct fixture *fixture = *state;
    struct mst_store *store = open_store(fixture->url);
    struct mst_buffer value = {0};
    assert_ok(mst_store_set(store, STR("a"), STR("1"), PLENTY_MS, &err));
    assert_int_equal(unlink(fixture->path), 0);
    assert_int_equal(symlink("/dev/null", fixture->path), 0);
    assert_fails(mst_store_set(store, STR("a"), STR("2"), PLENTY_MS, &err), MST_EINVAL,
                 "not a regular file");
    assert_fails(mst_store_try_get(store, STR("a"), PLENTY_MS, &value, &err), MST_EINVAL,
                 "not a regular file");
    mst_store_close(store);
}

/* A write goes into the file that has the name now, not into a removed one. */

/* Replaces the C library's, so that the file can be removed between opening and locking, as the
 * last process of a torch job may do. */
static const char *removed_before_lock;

int flock(int fd, int operation)
{
    if (removed_before_lock != NULL) {
        assert_int_equal(unlink(removed_before_lock), 0);
        removed_before_lock = NULL;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

static void test_removed_before_lock(void **state)
{
    struct fixture *fixture = *state;
    struct mst_store *store = open_store(fixture->url);
    assert_ok(mst_store_set(store, STR("old"), STR("1"), PLENTY_MS, &err));
    removed_before_lock = fixture->path;
    assert_ok(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err));
    assert_null(removed_before_lock);
    struct mst_store *other = open_store(fixture->url);
    assert_value(other, "k", STR("v"));
    assert_absent(other, "old");
    mst_store_close(other);
    removed_before_lock = fixture->path;
    assert_absent(store, "k");
    mst_store_close(store);
}

/* A held lock is waited for until the deadline. */
static void test_locked(void **state)
{
    struct fixture *fixture = *state;
    struct mst_store *store = open_store(fixture->url);
    assert_ok(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err));
    int fd = open(fixture->path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    struct mst_buffer value = {0};
    assert_fails(mst_store_try_get(store, STR("k"), SHORT_MS, &value, &err), MST_ETIMEOUT,
                 "locked");
    assert_fails(mst_store_set(store, STR("k"), STR("w"), SHORT_MS, &err), MST_ETIMEOUT, "locked");
    /* Readers do not exclude readers. */
    assert_int_equal(flock(fd, LOCK_SH), 0);
    assert_value(store, "k", STR("v"));
    assert_fails(mst_store_set(store, STR("k"), STR("w"), SHORT_MS, &err), MST_ETIMEOUT, "locked");
    assert_int_equal(flock(fd, LOCK_UN), 0);
    assert_ok(mst_store_set(store, STR("k"), STR("w"), PLENTY_MS, &err));
    assert_value(store, "k", STR("w"));
    assert_int_equal(close(fd), 0);
    mst_store_close(store);
}

/* Processes count together and lose nothing. */
static void test_processes(void **state)
{
    struct fixture *fixture = *state;
    enum { PROCESSES = 4, ADDS = 50 };
    pid_t children[PROCESSES];
    for (size_t i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            struct mst_store *store = NULL;
            int rv = mst_store_open(fixture->url, NULL, PLENTY_MS, &store, NULL);
            for (int n = 0; n < ADDS && rv == 0; n++) {
                int64_t sum;
                rv = mst_store_add(store, STR("n"), 1, PLENTY_MS, &sum, NULL);
            }
            mst_store_close(store);
            _exit(rv == 0 ? 0 : 1);
        }
    }
    struct mst_store *store = open_store(fixture->url);
    for (size_t i = 0; i < PROCESSES; i++) {
        int status = -1;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_value(store, "n", STR("200"));
    mst_store_close(store);
}

/* A value larger than one read, and one that spans many. */
static void test_large(void **state)
{
    struct fixture *fixture = *state;
    struct mst_store *store = open_store(fixture->url);
    size_t size = MST_VALUE_SIZE_DEFAULT;
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    }
    assert_ok(mst_store_set(store, STR("big"), mst_bytes_of(bytes, size), PLENTY_MS, &err));
    assert_ok(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err));
    struct mst_store *other = open_store(fixture->url);
    assert_value(other, "big", mst_bytes_of(bytes, size));
    assert_value(other, "k", STR("v"));
    mst_store_close(other);
    mst_store_close(store);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bytes, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_reads_torch, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_torn_tail, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_long_torn_tail, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_file_full, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_not_a_store, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_two_handles, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_replaced, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_no_file_any_more, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_removed_before_lock, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_locked, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_processes, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_large, fixture_open, fixture_close),
    };
    return MST_RUN_TESTS(tests);
}
