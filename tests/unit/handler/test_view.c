/* unit/handler/test_view.c - what a handler tells its application, and when. */
#include "handler/view.h"

#include <poll.h>

#include "unit/unit.h"

static struct mst__owner owner;
static struct mst__view view;

static void watch(void *self)
{
    (void)self;
}

static int start(void **state)
{
    struct mst_err err;
    (void)state;
    assert_int_equal(mst__owner_init(&owner, watch, NULL, &err), 0);
    mst__view_init(&view, &owner);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    mst__owner_stop(&owner);
    mst__view_close(&view);
    mst__owner_close(&owner);
    return 0;
}

static void assert_notice(enum mst_notice_kind kind, int64_t round)
{
    struct mst_notice *notice;
    struct mst_err err;
    assert_int_equal(mst__view_take(&view, 0, &notice, &err), 0);
    assert_int_equal(notice->kind, kind);
    assert_int_equal(notice->round, round);
    mst_notice_free(notice);
}

/* Nothing to take, and nothing that wakes an event loop. */
static void assert_nothing(void)
{
    struct mst_notice *notice;
    struct mst_err err;
    struct pollfd news = {.fd = owner.news_fd, .events = POLLIN};
    assert_int_equal(poll(&news, 1, 0), 0);
    assert_int_equal(mst__view_take(&view, 0, &notice, &err), MST_ETIMEOUT);
}

/* A server may seal a round and expel the node in one breath: the first news is the round. */
static void changes_wait_for_the_round(void **state)
{
    (void)state;
    const struct mst_changes changes = {.size = sizeof changes, .expelled = true};
    mst__view_publish(&view, &changes);
    assert_nothing();
    mst__owner_lock(&owner);
    mst__view_complete(&view, 7);
    mst__owner_unlock(&owner);
    assert_notice(MST_NOTICE_COMPLETE, 7);
    assert_notice(MST_NOTICE_EXPELLED, 7);
    assert_nothing();
}

static void no_changes_of_a_round_that_failed(void **state)
{
    (void)state;
    const struct mst_changes changes = {.size = sizeof changes, .closed = true};
    const struct mst_err err = {.code = MST_ECLOSED};
    mst__view_publish(&view, &changes);
    mst__owner_lock(&owner);
    mst__view_fail(&view, &err);
    mst__owner_unlock(&owner);
    assert_notice(MST_NOTICE_FAILED, -1);
    assert_nothing();
}

/* A round that is forgotten takes its news along. */
static void news_go_with_their_round(void **state)
{
    (void)state;
    const struct mst_changes changes = {.size = sizeof changes, .participants_lost = 1};
    mst__owner_lock(&owner);
    mst__view_complete(&view, 7);
    mst__owner_unlock(&owner);
    mst__view_lost(&view, mst_bytes_str("gone"), 1, false);
    mst__view_publish(&view, &changes);
    owner.thread = pthread_self(); /* only the owner may reset */
    mst__view_reset(&view);
    assert_nothing();
    struct mst_changes now = {.size = sizeof now};
    assert_false(mst__view_get(&view, &now));
}

/* Nodes that waited and have gone again are no news. */
static void waiting_nodes_go(void **state)
{
    (void)state;
    struct mst_changes changes = {.size = sizeof changes, .nodes_waiting = 1};
    mst__owner_lock(&owner);
    mst__view_complete(&view, 7);
    mst__owner_unlock(&owner);
    assert_notice(MST_NOTICE_COMPLETE, 7);
    mst__view_publish(&view, &changes);
    changes.nodes_waiting = 2;
    mst__view_publish(&view, &changes);
    assert_notice(MST_NOTICE_WAITING, 7);
    assert_nothing();
    changes.nodes_waiting = 3;
    mst__view_publish(&view, &changes);
    changes.nodes_waiting = 0;
    mst__view_publish(&view, &changes);
    assert_nothing();
    changes.nodes_waiting = 1;
    mst__view_publish(&view, &changes);
    assert_notice(MST_NOTICE_WAITING, 7);
    assert_nothing();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(changes_wait_for_the_round, start, stop),
        cmocka_unit_test_setup_teardown(no_changes_of_a_round_that_failed, start, stop),
        cmocka_unit_test_setup_teardown(news_go_with_their_round, start, stop),
        cmocka_unit_test_setup_teardown(waiting_nodes_go, start, stop),
    };
    return MST_RUN_TESTS(tests);
}
