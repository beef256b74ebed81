/* unit/authority/test_notices.c - what a node tells its application about a round: counts that
 * several messages of the authority make up, and no news twice. */
#include "authority/notices.h"

#include "unit/handler/view_unit.h"

static struct mst_params *params;
static const struct mst__member member = {.claim = {.round = 3, .rank = 0, .world = 4}};
static const struct mst__events events = {.run_id = "job", .node = "a"};
static struct mst__notices notices;

static int begin(void **state)
{
    struct mst_err err;
    (void)start(state);
    assert_int_equal(mst_params_new("muster", "job", &params, &err), 0);
    notices = (struct mst__notices){
        .member = &member, .events = &events, .params = params, .view = &view, .where = "here"};
    mst__notices_begin_round(&notices);
    return 0;
}

static int end(void **state)
{
    mst_params_free(params);
    return stop(state);
}

static void take(enum mst__member_notice notice, const struct mst__job_message *message)
{
    const struct mst__member_effect effect = {
        .kind = MST_MEMBER_NOTICE, .notice = notice, .message = message, .text = mst_bytes_str("")};
    mst__notices_take(&notices, &effect);
}

static void take_lost(const char *name, uint32_t rank, uint32_t total)
{
    const struct mst__job_message message = {.type = MST_JOB_LOST,
                                             .u.lost = {.round = 3,
                                                        .count = 1,
                                                        .total = total,
                                                        .named = 1,
                                                        .names = {mst_bytes_str(name)},
                                                        .ranks = {rank}}};
    take(MST_MEMBER_NOTICE_LOST, &message);
}

static void take_reopened(enum mst__authority_why why, const char *name, uint32_t rank)
{
    const struct mst__job_message message = {
        .type = MST_JOB_REOPENED,
        .u.reopened = {
            .round_next = 4, .why = (uint32_t)why, .rank = rank, .name = mst_bytes_str(name)}};
    take(MST_MEMBER_NOTICE_REOPENED, &message);
}

static void take_waiting(uint32_t count)
{
    const struct mst__job_message message = {.type = MST_JOB_WAITING, .u.waiting.count = count};
    take(MST_MEMBER_NOTICE_WAITING, &message);
}

static struct mst_changes changes(void)
{
    mst__owner_lock(&owner);
    owner.is_joined = true;
    mst__owner_unlock(&owner);
    struct mst_changes now;
    assert_true(mst__view_get(&view, &now));
    return now;
}

/* A node that has left is told with the end of the round, those that are lost in a total. */
static void left_and_lost_add_up(void **state)
{
    (void)state;
    take_reopened(MST_AUTHORITY_WHY_LEFT, "b", 1);
    assert_int_equal(changes().participants_lost, 1);
    take_lost("c", 2, 1);
    assert_int_equal(changes().participants_lost, 2);
    take_lost("c", 2, 1); /* told again, on another connection */
    assert_int_equal(changes().participants_lost, 2);
    take_lost("d", 3, 2);
    assert_int_equal(changes().participants_lost, 3);
    mst__notices_begin_round(&notices);
    take_lost("d", 3, 1);
    assert_int_equal(changes().participants_lost, 1);
}

/* A node whose leaving others count as a loss is not counted by its rank, too. */
static void losses_count_once(void **state)
{
    (void)state;
    take_lost("b", 1, 1);
    take_reopened(MST_AUTHORITY_WHY_LEFT, "b", MST_AUTHORITY_RANK_NONE);
    assert_int_equal(changes().participants_lost, 1);
    take_reopened(MST_AUTHORITY_WHY_LOST, "b", 1);
    assert_int_equal(changes().participants_lost, 1);
}

/* A member that has come back for the next round waits, also if the others are not counted. */
static void returned_member_waits(void **state)
{
    (void)state;
    take_reopened(MST_AUTHORITY_WHY_RETURNED, "b", 1);
    assert_int_equal(changes().nodes_waiting, 1);
    take_waiting(0);
    assert_int_equal(changes().nodes_waiting, 1);
    take_waiting(3);
    assert_int_equal(changes().nodes_waiting, 3);
    mst__notices_begin_round(&notices);
    assert_int_equal(changes().nodes_waiting, 0);
    take_waiting(2);
    take_waiting(0);
    assert_int_equal(changes().nodes_waiting, 0);
}

/* A member that fails is one of those that wait then. */
static void failed_member_hides_nobody(void **state)
{
    (void)state;
    take_waiting(3);
    take_reopened(MST_AUTHORITY_WHY_FAILED, "b", 1);
    assert_int_equal(changes().nodes_waiting, 3);
}

/* The connection comes back while the node waits for its next round. What has ended the last one is
 * no news of the next. */
static void a_connection_brings_no_old_news(void **state)
{
    (void)state;
    complete(3);
    assert_notice(MST_NOTICE_COMPLETE, 3);
    take(MST_MEMBER_NOTICE_EXPELLED, NULL);
    assert_notice(MST_NOTICE_EXPELLED, 3);
    forget();
    take(MST_MEMBER_NOTICE_AGAIN, NULL);
    mst__notices_begin_round(&notices);
    complete(4);
    assert_notice(MST_NOTICE_COMPLETE, 4);
    assert_nothing();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(left_and_lost_add_up, begin, end),
        cmocka_unit_test_setup_teardown(losses_count_once, begin, end),
        cmocka_unit_test_setup_teardown(returned_member_waits, begin, end),
        cmocka_unit_test_setup_teardown(failed_member_hides_nobody, begin, end),
        cmocka_unit_test_setup_teardown(a_connection_brings_no_old_news, begin, end),
    };
    return MST_RUN_TESTS(tests);
}
