/* unit/net/test_job_journal.c - the journal of a server: which file grows, and for how long. */
#include <stdlib.h>
#include <sys/stat.h>

#include "unit/net/conn_unit.h"

#define SIZE_MAX_OF_ONE MST_KIB(32)

struct unit_journal {
    char folder[64];
    char path[80];
    char old_path[90];
};

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

/* A server runs with the journal, nodes come and go, and it ends. */
static void run_once(const struct unit_journal *unit, unsigned visits)
{
    void *state = NULL;
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    assert_int_equal(fixture_new(&state, &options), 0);
    struct fixture *f = state;
    assert_int_equal(mst__server_journal(f->server, unit->path, SIZE_MAX_OF_ONE, NULL), 0);
    const struct mst__job_message leave = {.type = MST_JOB_LEAVE};
    const struct mst__job_message announce = {
        .type = MST_JOB_ANNOUNCE,
        .u.announce = {.version = MST_JOB_VERSION,
                       .run_id = mst_bytes_str("job"),
                       .heartbeat_us = 1000000000,
                       .announcement = {.name = mst_bytes_str("node"),
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_holds_across_restarts),
    };
    return MST_RUN_TESTS(tests);
}
