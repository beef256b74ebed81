/* unit/record/test_drive.c - the loop between a session and a home that fails, is late, or answers
 * in between: what it asks, for how long, and how it ends. */
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "codec/pickle.h"
#include "record/drive.h"
#include "unit/core/core_unit.h"

#define CALL_MS 60000

/* A home with one record, and answers that are prepared. */
struct place {
    struct mst__state record;
    uint64_t version; /* 0 = there is no record */
    int reads, writes, waits;
    int read_code;       /* of the next reading */
    int write_code;      /* of the next write, */
    bool is_written;     /* which arrives all the same */
    int wake_fd;         /* is made readable by the next write; -1 = not */
    int64_t deadline_ms; /* of the last call */
    int64_t until_ms;    /* of the last wait */
};

static struct mst_buffer token_copy(const struct place *place)
{
    return token_of(place->version);
}

static void stored_of(const struct place *place, struct mst__stored *ret_stored)
{
    struct mst__buf pickle;
    *ret_stored = (struct mst__stored){.exists = place->version != 0};
    if (!ret_stored->exists) {
        return;
    }
    mst__buf_init(&pickle, MST_PICKLE_SIZE_MAX);
    assert_int_equal(mst__pickle_write(&pickle, &place->record), 0);
    struct mst_bytes bytes = mst__buf_bytes(&pickle);
    ret_stored->record =
        (struct mst_buffer){(uint8_t *)mst__memdup(bytes.data, bytes.size), bytes.size};
    ret_stored->token = token_copy(place);
    mst__buf_close(&pickle);
}

static int place_code(int *code)
{
    int rv = *code;
    *code = 0;
    return rv;
}

static int place_get(void *self,
                     struct mst__until until,
                     struct mst__stored *ret_stored,
                     struct mst_err *reterr)
{
    struct place *place = self;
    place->reads++;
    place->deadline_ms = until.deadline_ms;
    int rv = place_code(&place->read_code);
    if (rv != 0) {
        *reterr = (struct mst_err){.code = rv};
        return rv;
    }
    stored_of(place, ret_stored);
    return 0;
}

static int place_set(void *self,
                     struct mst_bytes record,
                     const struct mst_bytes *token,
                     bool may_be_unread,
                     struct mst__until until,
                     bool *ret_won,
                     struct mst__stored *ret_stored,
                     struct mst_err *reterr)
{
    struct place *place = self;
    uint64_t version = 0;
    (void)may_be_unread;
    place->writes++;
    place->deadline_ms = until.deadline_ms;
    if (token != NULL) {
        memcpy(&version, token->data, sizeof version);
    }
    *ret_won = version == place->version;
    int rv = place_code(&place->write_code);
    if (*ret_won && (rv == 0 || place->is_written)) {
        mst__state_close(&place->record);
        assert_int_equal(mst__pickle_read(record, &place->record, reterr), 0);
        place->version++;
    }
    if (place->wake_fd >= 0) {
        assert_int_equal(write(place->wake_fd, "", 1), 1);
        place->wake_fd = -1;
    }
    if (rv != 0) {
        *reterr = (struct mst_err){.code = rv};
        return rv;
    }
    if (*ret_won) {
        *ret_stored = (struct mst__stored){.exists = true, .token = token_copy(place)};
    } else {
        stored_of(place, ret_stored);
    }
    return 0;
}

static int place_wait(void *self,
                      const struct mst_bytes *token,
                      uint64_t skip,
                      struct mst__until until,
                      struct mst_err *reterr)
{
    struct place *place = self;
    (void)token;
    (void)skip;
    (void)reterr;
    place->waits++;
    place->until_ms = until.deadline_ms;
    return MST_ENOTSUP;
}

static const struct mst__record_home_ops place_ops = {.get_state = place_get,
                                                      .set_state = place_set,
                                                      .wait_change = place_wait};

/* --- a node --- */

struct bench {
    struct place place;
    struct mst__record_home home;
    struct mst__events events;
    struct mst__session session;
    struct mst__drive drive;
    struct mst__outcome outcome;
    struct mst_err err;
    int fds[2];
};

static int setup(void **state)
{
    static struct bench bench;
    bench = (struct bench){.place = {.wake_fd = -1}, .events = {.run_id = "job", .node = "b_1_0"}};
    mst__state_init(&bench.place.record);
    bench.home = (struct mst__record_home){
        .ops = &place_ops, .self = &bench.place, .where = "here", .call_ms = CALL_MS};
    if (pipe(bench.fds) != 0) {
        return -1;
    }
    bench.drive = (struct mst__drive){
        .home = &bench.home, .events = &bench.events, .wake_fd = bench.fds[0], .is_tidy = true};
    *state = &bench;
    return 0;
}

static int teardown(void **state)
{
    struct bench *bench = *state;
    mst__session_close(&bench->session);
    mst__state_close(&bench->place.record);
    (void)close(bench->fds[0]);
    (void)close(bench->fds[1]);
    return 0;
}

static void bench_node(struct bench *bench, int64_t nodes_min, int64_t nodes_max)
{
    struct mst__session_options options = {
        .node = node_named("b", 1),
        .settings = settings_of(nodes_min, nodes_max),
        .dialect = MST_RECORD_D4,
        .can_watch = true,
    };
    options.settings.last_call_us = 0;
    assert_int_equal(mst__session_init(&bench->session, &options), 0);
}

static int bench_drive(struct bench *bench, enum mst__operation operation, int64_t limit_ms)
{
    bench->err = (struct mst_err){0};
    return mst__drive(&bench->drive, &bench->session, operation, mst__clock_us() + limit_ms * 1000,
                      &bench->outcome, &bench->err);
}

/* --- writes --- */

/* It is not known whether a write has arrived: the record tells, and either way the node joins. */
static void a_write_in_doubt_is_read(void **state)
{
    struct bench *bench = *state;
    bench_node(bench, 1, 1);
    bench->place.write_code = MST_EUNKNOWN;
    bench->place.is_written = true;
    assert_int_equal(bench_drive(bench, MST_OPERATION_NEXT, 60000), 0);
    assert_int_equal(bench->place.writes, 1);
    assert_int_equal(bench->place.reads, 2);
    bench->place.write_code = MST_EUNKNOWN;
    bench->place.is_written = false;
    assert_int_equal(bench_drive(bench, MST_OPERATION_NEXT, 60000), 0);
    assert_int_equal(bench->place.writes, 3);
}

/* A write that has not arrived for certain is not looked for. */
static void a_failed_write_ends_it(void **state)
{
    struct bench *bench = *state;
    bench_node(bench, 1, 1);
    bench->place.write_code = MST_ECONN;
    assert_int_equal(bench_drive(bench, MST_OPERATION_NEXT, 60000), MST_ECONN);
    assert_int_equal(bench->place.reads, 1);
}

/* Who is interrupted while its write completes the round has joined. */
static void interrupted_but_joined(void **state)
{
    struct bench *bench = *state;
    bench_node(bench, 1, 1);
    bench->place.wake_fd = bench->fds[1];
    bench->place.write_code = MST_ECANCELED;
    bench->place.is_written = true;
    assert_int_equal(bench_drive(bench, MST_OPERATION_NEXT, 60000), 0);
    assert_true(bench->outcome.world == 1);
}

/* --- errors --- */

/* Some errors of a store are told as they are: trying again does not help. All others are that it
 * is out of reach. */
static void errors_of_the_home(void **state)
{
    struct bench *bench = *state;
    static const int codes[][2] = {
        {MST_ENOMEM, MST_ENOMEM},  {MST_ELIMIT, MST_ELIMIT},   {MST_ESTATE, MST_ESTATE},
        {MST_EAUTH, MST_EAUTH},    {MST_ENOTSUP, MST_ENOTSUP}, {MST_ECONN, MST_ECONN},
        {MST_ETIMEOUT, MST_ECONN}, {MST_ERESOLVE, MST_ECONN},
    };
    bench_node(bench, 1, 1);
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        bench->place.read_code = codes[i][0];
        assert_int_equal(bench_drive(bench, MST_OPERATION_POLL, 1000), codes[i][1]);
        assert_int_equal(bench->err.code, codes[i][1]);
    }
}

/* --- time --- */

/* A server that starts last is waited for as long as for the nodes; once it has answered, each call
 * has its own time. A call that joins has some time after the end, to take the entry back. */
static void times_of_calls(void **state)
{
    struct bench *bench = *state;
    bench_node(bench, 1, 1);
    bench->home.is_lazy = true;
    int64_t now_ms = mst__clock_ms();
    bench->place.read_code = MST_ECONN;
    assert_int_equal(bench_drive(bench, MST_OPERATION_NEXT, 3600000), MST_ECONN);
    assert_true(bench->place.deadline_ms >= now_ms + 3500000);
    assert_int_equal(bench_drive(bench, MST_OPERATION_NEXT, 3600000), 0);
    bench->session.trip_us = 1; /* a clock may be too coarse for it */
    bench->place.read_code = MST_ECONN;
    assert_int_equal(bench_drive(bench, MST_OPERATION_NEXT, 3600000), MST_ECONN);
    assert_true(bench->place.deadline_ms < now_ms + 600000);
}

/* The time of a spare's join is long over; its calls have time all the same. */
static void calls_of_a_spare(void **state)
{
    struct bench *bench = *state;
    bench_node(bench, 1, 1);
    state_add_participant(&bench->place.record, node_named("p", 1), 0, mst__clock_wall_us());
    bench->place.record.complete = true;
    bench->place.version = 1;
    bench->place.read_code = MST_ECONN;
    assert_int_equal(bench_drive(bench, MST_OPERATION_JOIN, -100000), MST_ECONN);
    assert_true(bench->place.deadline_ms >= mst__clock_ms() + 2000);
    assert_true(bench->place.deadline_ms <= mst__clock_ms() + 5000);
}

/* A wait does not end before its time, and is given up for good where it is not supported. */
static void waits_without_watching(void **state)
{
    struct bench *bench = *state;
    bench_node(bench, 1, 1);
    int64_t until_us = mst__clock_us() + 1500;
    until_us += until_us % 1000 == 0 ? 1 : 0;
    assert_int_equal(mst__drive_wait(&bench->drive, &bench->session, until_us), 0);
    assert_true(bench->place.until_ms * 1000 >= until_us);
    assert_int_equal(bench->place.waits, 1);
    assert_int_equal(mst__drive_wait(&bench->drive, &bench->session, until_us), MST_ETIMEOUT);
    assert_int_equal(bench->place.waits, 1);
    assert_true(mst__clock_us() >= until_us);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_write_in_doubt_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_write_ends_it, setup, teardown),
        cmocka_unit_test_setup_teardown(interrupted_but_joined, setup, teardown),
        cmocka_unit_test_setup_teardown(errors_of_the_home, setup, teardown),
        cmocka_unit_test_setup_teardown(times_of_calls, setup, teardown),
        cmocka_unit_test_setup_teardown(calls_of_a_spare, setup, teardown),
        cmocka_unit_test_setup_teardown(waits_without_watching, setup, teardown),
    };
    return MST_RUN_TESTS(tests);
}
