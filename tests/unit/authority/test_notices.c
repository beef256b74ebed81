/* unit/authority/test_notices.c - what the application hears of the notices of its member. */
#include "authority/notices.h"

#include "unit/handler/view_unit.h"

static struct mst__member member;
static struct mst_params *params;
static const struct mst__events events = {.run_id = "job", .node = "node"};
static struct mst__notices notices;

static int begin(void **state)
{
    struct mst_err err;
    (void)start(state);
    assert_int_equal(mst_params_new("muster", "job", &params, &err), 0);
    notices = (struct mst__notices){
        .member = &member, .events = &events, .params = params, .view = &view, .where = "server:1"};
    return 0;
}

static int end(void **state)
{
    mst_params_free(params);
    return stop(state);
}

static void take(enum mst__member_notice notice)
{
    const struct mst__member_effect effect = {
        .kind = MST_MEMBER_NOTICE, .notice = notice, .text = mst_bytes_str("")};
    mst__notices_take(&notices, &effect);
}

static void be_in_round(int64_t round)
{
    mst__notices_begin_round(&notices);
    complete(round);
    assert_notice(MST_NOTICE_COMPLETE, round);
}

/* The connection comes back while the node waits for its next round. What has ended the last one is
 * no news of the next. */
static void a_connection_brings_no_old_news(void **state)
{
    (void)state;
    be_in_round(1);
    take(MST_MEMBER_NOTICE_EXPELLED);
    assert_notice(MST_NOTICE_EXPELLED, 1);
    forget();
    take(MST_MEMBER_NOTICE_AGAIN);
    be_in_round(2);
    assert_nothing();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_connection_brings_no_old_news, begin, end),
    };
    return MST_RUN_TESTS(tests);
}
