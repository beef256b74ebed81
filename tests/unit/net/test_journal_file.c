/* unit/net/test_journal_file.c - the file of a journal and its thread: cuts, failures, an end. */
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "net/journal_file.h"
#include "unit/unit.h"

struct unit_file {
    char folder[64];
    char path[80];
    char old_path[90];
    struct mst__journal_file *file;
};

static const struct mst_log no_log = {.fn = NULL};

/* How long the thread may take for anything. */
#define PATIENCE_MS 20000

/* Calls of fdatasync, and the size of the file at each: what a loss of power leaves. */
static atomic_uint syncs;
static atomic_llong synced_sizes[64];

int fdatasync(int fd)
{
    struct stat about;
    assert_int_equal(fstat(fd, &about), 0);
    int rv = (int)syscall(SYS_fdatasync, fd);
    unsigned index = atomic_load(&syncs); /* one thread at a time */
    assert_in_range(index, 0, sizeof synced_sizes / sizeof synced_sizes[0] - 1);
    atomic_store(&synced_sizes[index], (long long)about.st_size);
    atomic_store(&syncs, index + 1);
    return rv;
}

static void unit_open(struct unit_file *unit)
{
    (void)snprintf(unit->folder, sizeof unit->folder, "/tmp/muster-unit-XXXXXX");
    assert_non_null(mkdtemp(unit->folder));
    (void)snprintf(unit->path, sizeof unit->path, "%s/journal", unit->folder);
    (void)snprintf(unit->old_path, sizeof unit->old_path, "%s.1", unit->path);
    uint64_t size = 1;
    assert_int_equal(mst__journal_file_open(unit->path, &no_log, &unit->file, &size, NULL), 0);
    assert_int_equal(size, 0);
}

static void unit_remove(struct unit_file *unit)
{
    (void)unlink(unit->path);
    (void)unlink(unit->old_path);
    assert_int_equal(rmdir(unit->folder), 0);
}

static void append_begin(struct unit_file *unit, const char *software)
{
    const struct mst__journal_begin begin = {.version = MST_JOURNAL_VERSION,
                                             .software = mst_bytes_str(software)};
    struct mst__journal *journal = mst__journal_file_lock(unit->file);
    assert_int_equal(mst__journal_write_begin(journal, &begin), 0);
    mst__journal_file_unlock(unit->file);
}

/* The content of each BEGIN in the file at @path, separated by blanks. */
static void assert_begins(const char *path, const char *wanted)
{
    uint8_t bytes[4096];
    char found[200] = "";
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t got = read(fd, bytes, sizeof bytes);
    assert_true(got >= 0);
    (void)close(fd);
    struct mst_bytes rest = mst_bytes_of(bytes, (size_t)got);
    while (rest.size > 0) {
        struct mst_bytes fields;
        struct mst__journal_record record;
        size_t size = 0;
        int64_t last_us = 0;
        assert_int_equal(mst__journal_read(rest, &fields, &size), 1);
        assert_int_equal(mst__journal_decode(fields, &last_us, &record), 0);
        assert_int_equal(record.kind, MST_JOURNAL_BEGIN);
        size_t length = strlen(found);
        (void)snprintf(found + length, sizeof found - length, "%.*s ",
                       (int)record.u.begin.software.size,
                       (const char *)record.u.begin.software.data);
        rest = mst_bytes_of(rest.data + size, rest.size - size);
    }
    assert_string_equal(found, wanted);
}

static void writes_and_rotates(void **state)
{
    (void)state;
    struct unit_file unit = {.file = NULL};
    unit_open(&unit);
    append_begin(&unit, "a");
    append_begin(&unit, "b");
    (void)mst__journal_file_lock(unit.file);
    assert_true(mst__journal_file_cut(unit.file, true));
    assert_false(mst__journal_file_cut(unit.file, true));
    mst__journal_file_unlock(unit.file);
    append_begin(&unit, "c");
    mst__journal_file_close(unit.file);
    assert_begins(unit.old_path, "a b ");
    assert_begins(unit.path, "c ");
    struct stat about;
    assert_int_equal(stat(unit.path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    /* It is appended to. */
    uint64_t size = 0;
    assert_int_equal(mst__journal_file_open(unit.path, &no_log, &unit.file, &size, NULL), 0);
    assert_int_equal(size, about.st_size);
    append_begin(&unit, "d");
    mst__journal_file_close(unit.file);
    assert_begins(unit.path, "c d ");
    unit_remove(&unit);
}

/* A failed write leaves no part of a record, nor of the records appended before the failure was
 * known; the gap is reported once. */
static void fails_whole(void **state)
{
    (void)state;
    struct unit_file unit = {.file = NULL};
    struct rlimit limit;
    unit_open(&unit);
    append_begin(&unit, "a");
    struct stat about = {.st_size = 0};
    while (about.st_size == 0) {
        assert_int_equal(stat(unit.path, &about), 0);
    }
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    struct rlimit less = {.rlim_cur = (rlim_t)about.st_size + 10, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    append_begin(&unit, "b");
    bool has_failed = false;
    while (!has_failed) {
        append_begin(&unit, "lost");
        (void)mst__journal_file_lock(unit.file);
        has_failed = mst__journal_file_take_failed(unit.file);
        mst__journal_file_unlock(unit.file);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    (void)mst__journal_file_lock(unit.file);
    assert_false(mst__journal_file_take_failed(unit.file));
    mst__journal_file_unlock(unit.file);
    append_begin(&unit, "c");
    mst__journal_file_close(unit.file);
    assert_begins(unit.path, "a c ");
    unit_remove(&unit);
}

static atomic_uint complaints;

static void note_log(void *arg, enum mst_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    if (strstr(line, "ev=journal.failed") != NULL) {
        atomic_fetch_add(&complaints, 1);
    }
}

/* Append until a write has failed. */
static void await_failure(struct unit_file *unit)
{
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    bool has_failed = false;
    while (!has_failed) {
        assert_true(mst__clock_ms() < end_ms);
        append_begin(unit, "lost");
        (void)poll(NULL, 0, 1);
        (void)mst__journal_file_lock(unit->file);
        has_failed = mst__journal_file_take_failed(unit->file);
        mst__journal_file_unlock(unit->file);
    }
}

static long long size_of(const char *path);

/* Each outage of the disk is logged once, however long it lasts. */
static void complains_once(void **state)
{
    (void)state;
    const struct mst_log log = {.fn = note_log, .level = MST_LOG_DEBUG};
    struct unit_file unit = {.file = NULL};
    struct rlimit limit;
    uint64_t size;
    unit_open(&unit);
    mst__journal_file_close(unit.file);
    assert_int_equal(mst__journal_file_open(unit.path, &log, &unit.file, &size, NULL), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    for (unsigned i = 1; i <= 2; i++) {
        long long before = size_of(unit.path);
        append_begin(&unit, "a");
        while (size_of(unit.path) == before) {
            (void)poll(NULL, 0, 1);
        }
        struct rlimit less = {.rlim_cur = (rlim_t)size_of(unit.path) + 10,
                              .rlim_max = limit.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
        await_failure(&unit);
        if (i == 1) {
            await_failure(&unit);
        }
        assert_int_equal(atomic_load(&complaints), i);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    }
    mst__journal_file_close(unit.file);
    unit_remove(&unit);
}

static void await_syncs(unsigned count)
{
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    while (atomic_load(&syncs) < count) {
        assert_true(mst__clock_ms() < end_ms);
    }
}

static long long size_of(const char *path)
{
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    return (long long)about.st_size;
}

/* What was written reaches the disk soon, also if nothing follows it; before the file is left; and
 * at the end. */
static void is_synced(void **state)
{
    (void)state;
    struct unit_file unit = {.file = NULL};
    unit_open(&unit);
    unsigned before = atomic_load(&syncs);
    append_begin(&unit, "a");
    await_syncs(before + 1); /* the last one was long ago */
    append_begin(&unit, "b");
    await_syncs(before + 2); /* in its time, while the thread has nothing to do */
    assert_int_equal(atomic_load(&synced_sizes[before + 1]), size_of(unit.path));
    append_begin(&unit, "c");
    (void)mst__journal_file_lock(unit.file);
    assert_true(mst__journal_file_cut(unit.file, true));
    mst__journal_file_unlock(unit.file);
    await_syncs(before + 3);
    append_begin(&unit, "d");
    mst__journal_file_close(unit.file);
    assert_begins(unit.old_path, "a b c ");
    assert_begins(unit.path, "d ");
    assert_int_equal(atomic_load(&synced_sizes[before + 2]), size_of(unit.old_path));
    assert_int_equal(atomic_load(&synced_sizes[atomic_load(&syncs) - 1]), size_of(unit.path));
    unit_remove(&unit);
}

/* A full buffer stays full until the thread has taken its content. */
static void gets_room_again(void **state)
{
    (void)state;
    struct unit_file unit = {.file = NULL};
    unit_open(&unit);
    struct mst__journal *journal = mst__journal_file_lock(unit.file);
    size_t size_max = journal->output.size_max;
    assert_int_equal(size_max, MST_JOURNAL_BUFFER_SIZE);
    mst__journal_file_set_full(unit.file);
    assert_true(mst__journal_file_is_full(unit.file));
    mst__journal_file_unlock(unit.file);
    append_begin(&unit, "a");
    bool is_full = true;
    while (is_full) {
        (void)mst__journal_file_lock(unit.file);
        is_full = mst__journal_file_is_full(unit.file);
        mst__journal_file_unlock(unit.file);
    }
    mst__journal_file_close(unit.file);
    assert_begins(unit.path, "a ");
    unit_remove(&unit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_and_rotates), cmocka_unit_test(fails_whole),
        cmocka_unit_test(complains_once),     cmocka_unit_test(is_synced),
        cmocka_unit_test(gets_room_again),
    };
    return MST_RUN_TESTS(tests);
}
