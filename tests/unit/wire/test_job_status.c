/* unit/wire/test_job_status.c - the status of an authority: counts, standings, what does not
 * fit. */
#include "base/bytes.h"
#include "base/limits.h"
#include "unit/core/authority_unit.h"
#include "wire/job_status.h"

static struct mst__job_status_room room;

static struct mst__job_status status_of(const struct unit_run *run, uint32_t version)
{
    struct mst__job_status status;
    mst__job_status_fill(&run->authority, version, run->now_us, true, &room, &status);
    return status;
}

/* The standing of @name in @status, and how its session has ended. */
static struct mst__job_member member_of(const struct mst__job_status *status,
                                        const char *name,
                                        uint32_t *ret_gone)
{
    struct mst_bytes members = status->members;
    struct mst_bytes details = status->details;
    struct mst__job_member member;
    struct mst__job_detail detail = {.gone = MST_JOB_GONE_NOT};
    while (mst__job_member_next(&members, &member)) {
        (void)mst__job_detail_next(&details, &detail); /* an early version has none */
        if (mst__bytes_equal(member.name, mst_bytes_str(name))) {
            *ret_gone = detail.gone;
            return member;
        }
    }
    fail_msg("'%s' is not in the status", name);
    return (struct mst__job_member){.rank = 0};
}

static void run_three(struct unit_run *run)
{
    run_init(run, 3, 4);
    run_join(run, "a");
    run_join(run, "b");
    run_join(run, "c");
    run_pass(run, 30 * SECOND_US, true);
    assert_told(run, "sealed 7/1 of 3 at a a=0 b=1 c=2; ");
}

/* Work that is done counts, whether its node is here or gone. */
static void finished(void **state)
{
    (void)state;
    struct unit_run run;
    uint32_t gone = MST_JOB_GONE_LOST;
    run_three(&run);
    assert_int_equal(run_finish(&run, "a"), 0);
    assert_int_equal(run_finish(&run, "b"), 0);
    run_leave(&run, "a");
    run.now_us += SECOND_US;
    struct mst__job_status status = status_of(&run, MST_JOB_VERSION);
    assert_int_equal(status.finished, 2);
    struct mst__job_member b = member_of(&status, "b", &gone);
    assert_int_equal(b.standing, MST_STANDING_FINISHED);
    assert_int_equal(gone, MST_JOB_GONE_NOT);
    assert_int_equal(member_of(&status, "a", &gone).standing, MST_STANDING_GONE);
    assert_int_equal(gone, MST_JOB_GONE_FINISHED);
    struct mst__job_entry entry;
    mst__job_entry_fill(&run.authority, &entry);
    assert_int_equal(entry.finished, 2);
    assert_int_equal(entry.members, 2);
    /* A reader of the first version knows no finished members. */
    status = status_of(&run, MST_JOB_VERSION_FINISH - 1);
    assert_int_equal(member_of(&status, "b", &gone).standing, MST_STANDING_MEMBER);
    run_close(&run);
}

/* The nodes of an open job, those of a running one and its spares, and how long they are silent. */
static void counted(void **state)
{
    (void)state;
    struct unit_run run;
    struct mst__job_entry entry;
    uint32_t gone;
    run_init(&run, 2, 2);
    run_join(&run, "a");
    mst__job_entry_fill(&run.authority, &entry);
    assert_int_equal(entry.waiting, 1);
    assert_int_equal(entry.members + entry.spares, 0);
    run_join(&run, "b");
    run_join(&run, "c");
    mst__job_entry_fill(&run.authority, &entry);
    assert_int_equal(entry.members, 2);
    assert_int_equal(entry.waiting, 0);
    assert_int_equal(entry.spares, 1);
    run.now_us += 3 * SECOND_US;
    struct mst__job_status status = status_of(&run, MST_JOB_VERSION);
    assert_int_equal(status.member_count, 3);
    assert_int_equal(member_of(&status, "c", &gone).silent_us, 3 * SECOND_US);
    run_close(&run);
}

/* Who waits beside a running round is counted, and so are its members once it is over. */
static void counted_between_rounds(void **state)
{
    (void)state;
    struct unit_run run;
    struct mst__job_entry entry;
    run_three(&run);
    run_join(&run, "d");
    mst__job_entry_fill(&run.authority, &entry);
    assert_int_equal(entry.members, 3);
    assert_int_equal(entry.waiting, 1);
    run_leave(&run, "a");
    mst__job_entry_fill(&run.authority, &entry);
    assert_int_equal(entry.members, 2);
    assert_int_equal(entry.waiting, 1);
    run_close(&run);
}

/* Before the first round the epoch is that of the authority. A job that does not grow has a lower
 * maximum once it has begun. */
static void first_and_later(void **state)
{
    (void)state;
    struct unit_run run;
    struct mst__job_entry entry;
    run_init(&run, 3, 4);
    run.is_fixed = true;
    run_join(&run, "a");
    struct mst__job_status status = status_of(&run, MST_JOB_VERSION);
    mst__job_entry_fill(&run.authority, &entry);
    assert_int_equal(status.epoch, UNIT_EPOCH);
    assert_int_equal(entry.epoch, UNIT_EPOCH);
    assert_int_equal(status.nodes_max, 4);
    run_join(&run, "b");
    run_join(&run, "c");
    run_pass(&run, 30 * SECOND_US, true);
    status = status_of(&run, MST_JOB_VERSION);
    mst__job_entry_fill(&run.authority, &entry);
    assert_int_equal(status.world, 3);
    assert_int_equal(status.nodes_max, 3);
    assert_int_equal(entry.nodes_max, 3);
    run_close(&run);
}

/* A node that was heard after the time of the status is not silent. Without times nothing that
 * depends on them is told. */
static void times(void **state)
{
    (void)state;
    struct unit_run run;
    uint32_t gone;
    run_init(&run, 1, 2);
    run_join(&run, "a");
    run.now_us -= SECOND_US;
    struct mst__job_status status = status_of(&run, MST_JOB_VERSION);
    assert_int_equal(member_of(&status, "a", &gone).silent_us, 0);
    assert_int_equal(status.last_call_left_us, 31 * SECOND_US);
    mst__job_status_fill(&run.authority, MST_JOB_VERSION, run.now_us, false, &room, &status);
    assert_int_equal(member_of(&status, "a", &gone).silent_us, -1);
    assert_true(status.last_call_left_us == INT64_MAX);
    run_close(&run);
}

/* With room for some nodes only, each that is listed is whole. */
static void cut(void **state)
{
    (void)state;
    struct unit_run run;
    run_three(&run);
    struct mst__job_status status = status_of(&run, MST_JOB_VERSION);
    assert_false(status.is_cut);
    assert_int_equal(status.member_count, 3);
    for (size_t max = 1; max < status.details.size; max++) {
        room.details.size_max = max;
        struct mst__job_status small = status_of(&run, MST_JOB_VERSION);
        assert_true(small.is_cut);
        assert_in_range(small.member_count, 0, 2);
        struct mst_bytes members = small.members;
        struct mst__job_member member;
        uint32_t count = 0;
        while (mst__job_member_next(&members, &member)) {
            count++;
        }
        assert_int_equal(count, small.member_count);
    }
    run_close(&run);
}

static int room_open(void **state)
{
    (void)state;
    mst__job_status_room_init(&room, MST_KIB(64));
    return 0;
}

static int room_close(void **state)
{
    (void)state;
    mst__job_status_room_close(&room);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, room_open, room_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(finished),        CASE(counted), CASE(counted_between_rounds),
        CASE(first_and_later), CASE(times),   CASE(cut),
    };
    return MST_RUN_TESTS(tests);
}
