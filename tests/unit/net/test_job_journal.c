/* unit/net/test_job_journal.c - the journal of a server: which file grows, and for how long. */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "unit/net/conn_unit.h"
#include "wire/journal.h"

#define SIZE_MAX_OF_ONE MST_KIB(32)

struct unit_journal {
    char folder[64];
    char path[80];
    char old_path[90];
};

/* A disk that takes its time, as long as a test wants. */
static atomic_bool is_slow;
static atomic_int slow_count; /* of syncs that it has held up */

int fdatasync(int fd)
{
    (void)fd;
    if (atomic_load(&is_slow)) {
        atomic_fetch_add(&slow_count, 1);
        while (atomic_load(&is_slow)) {
            (void)poll(NULL, 0, 1);
        }
    }
    return 0;
}

static void journal_open(struct unit_journal *unit)
{
    (void)snprintf(unit->folder, sizeof unit->folder, "/tmp/muster-unit-XXXXXX");
    assert_non_null(mkdtemp(unit->folder));
    (void)snprintf(unit->path, sizeof unit->path, "%s/journal", unit->folder);
    (void)snprintf(unit->old_path, sizeof unit->old_path, "%s.1", unit->path);
}

static void journal_remove(const struct unit_journal *unit)
{
    (void)unlink(unit->path);
    (void)unlink(unit->old_path);
    assert_int_equal(rmdir(unit->folder), 0);
}

/* 0 = there is none. */
static size_t size_of(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 ? (size_t)about.st_size : 0;
}

static struct fixture *server_open(const struct unit_journal *unit, uint64_t size_max, void **state)
{
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    assert_int_equal(fixture_new(state, &options), 0);
    struct fixture *f = *state;
    assert_int_equal(mst__server_journal(f->server, unit->path, size_max, NULL), 0);
    return f;
}

/* A node with this name comes and goes. */
static void visit(struct fixture *f, const char *name, unsigned visits)
{
    const struct mst__job_message leave = {.type = MST_JOB_LEAVE};
    const struct mst__job_message announce = {
        .type = MST_JOB_ANNOUNCE,
        .u.announce = {.version = MST_JOB_VERSION,
                       .run_id = mst_bytes_str("job"),
                       .heartbeat_us = 1000000000,
                       .announcement = {.name = mst_bytes_str(name),
                                        .incarnation = 1,
                                        .session = 1,
                                        .expiry_us = 3000000000,
                                        .nodes_min = 1,
                                        .nodes_max = 1,
                                        .pinned_rank = MST_AUTHORITY_RANK_NONE}}};
    int fd = node_new(f);
    for (unsigned i = 0; i < visits; i++) {
        put_message(&f->bytes, &announce);
        put_message(&f->bytes, &leave);
    }
    send_all(f, fd);
    (void)close(fd);
    settle(f->server);
}

/* A server runs with the journal, nodes come and go, and it ends. */
static void run_once(const struct unit_journal *unit, unsigned visits)
{
    void *state = NULL;
    visit(server_open(unit, SIZE_MAX_OF_ONE, &state), "node", visits);
    assert_int_equal(fixture_close(&state), 0);
}

/* The size is that of the file, whoever has written it: a server that is restarted again and again
 * rotates it as well. */
static void size_holds_across_restarts(void **state)
{
    (void)state;
    struct unit_journal unit = {0};
    journal_open(&unit);
    size_t of_one = 0;
    for (unsigned i = 0; i < 20; i++) {
        size_t before = size_of(unit.path);
        run_once(&unit, 60);
        size_t after = size_of(unit.path);
        of_one = of_one == 0 ? after : of_one;
        assert_in_range(of_one, 1000, SIZE_MAX_OF_ONE / 4); /* so that it says something */
        assert_in_range(after, 1, SIZE_MAX_OF_ONE + 2 * of_one);
        /* Nothing is rotated early. */
        assert_true(after > before || before + of_one >= SIZE_MAX_OF_ONE);
    }
    assert_in_range(size_of(unit.old_path), SIZE_MAX_OF_ONE, SIZE_MAX_OF_ONE + 2 * of_one);
    journal_remove(&unit);
}

/* How many events each gap in the journal is said to have. Returns the number of gaps. */
static size_t read_gaps(const char *path, uint64_t *ret_counts, size_t count_max)
{
    size_t size = size_of(path);
    uint8_t *bytes = malloc(size);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_non_null(bytes);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, bytes, size), size);
    assert_int_equal(close(fd), 0);
    struct mst_bytes rest = mst_bytes_of(bytes, size);
    int64_t last_us = 0;
    size_t count = 0;
    while (rest.size > 0) {
        struct mst_bytes fields;
        struct mst__journal_record record;
        size_t used = 0;
        assert_int_equal(mst__journal_read(rest, &fields, &used), 1);
        assert_int_equal(mst__journal_decode(fields, &last_us, &record), 0);
        if (record.kind == MST_JOURNAL_GAP) {
            assert_in_range(count, 0, count_max - 1);
            ret_counts[count++] = record.u.count;
        }
        rest = mst__bytes_skip(rest, used);
    }
    free(bytes);
    return count;
}

/* The disk is too slow twice: each time the journal says how much is missing, since the last
 * time. */
static void each_gap_is_counted(void **state)
{
    (void)state;
    enum { VISITS = 500, ROUNDS = 60 };
    struct unit_journal unit = {0};
    void *server = NULL;
    uint64_t counts[2] = {0};
    char name[MST_AUTHORITY_NAME_SIZE_MAX + 1] = "";
    memset(name, 'n', sizeof name - 1);
    journal_open(&unit);
    struct fixture *f = server_open(&unit, MST_MIB(256), &server);
    visit(f, name, 1);
    for (size_t gap = 0; gap < 2; gap++) {
        size_t before = size_of(unit.path);
        int slow = atomic_load(&slow_count);
        atomic_store(&is_slow, true);
        while (atomic_load(&slow_count) == slow) {
            visit(f, name, 1); /* so that there is something to sync */
            (void)poll(NULL, 0, 10);
        }
        for (unsigned i = 0; i < ROUNDS; i++) {
            visit(f, name, VISITS);
        }
        atomic_store(&is_slow, false);
        int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
        while (size_of(unit.path) < before + MST_JOURNAL_BUFFER_SIZE / 2) {
            assert_true(mst__clock_ms() < end_ms);
            (void)poll(NULL, 0, 10);
        }
        visit(f, name, 1);
    }
    assert_int_equal(fixture_close(&server), 0);
    assert_int_equal(read_gaps(unit.path, counts, 2), 2);
    assert_in_range(counts[0], 1, (uint64_t)VISITS * ROUNDS * 4);
    assert_in_range(counts[1], counts[0] / 2, counts[0] + counts[0] / 2);
    journal_remove(&unit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_holds_across_restarts),
        cmocka_unit_test(each_gap_is_counted),
    };
    return MST_RUN_TESTS(tests);
}
