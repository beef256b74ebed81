/* unit/handler/test_view.c - what a handler tells its application, and when. */
#include "unit/handler/view_unit.h"

/* The members of the round are told that @name is lost, as the only one since the last news. */
static void assert_only_lost(const char *name)
{
    struct mst_notice *notice;
    struct mst_err err;
    assert_int_equal(mst__view_take(&view, 0, &notice, &err), 0);
    assert_int_equal(notice->kind, MST_NOTICE_LOST);
    assert_int_equal(notice->node_count, 1);
    assert_string_equal(notice->nodes[0].name, name);
    mst_notice_free(notice);
}

static void lose(const char *name, int64_t count)
{
    const struct mst_changes changes = {.size = sizeof changes, .participants_lost = count};
    mst__view_lost(&view, mst_bytes_str(name), 1, false);
    mst__view_publish(&view, &changes);
}

/* A node without a name is told once, by its rank. Without that there is nothing to tell. */
static void a_lost_node_has_a_name_or_a_rank(void **state)
{
    (void)state;
    const struct mst_changes changes = {.size = sizeof changes, .participants_lost = 3};
    static const int64_t ranks[] = {1, 2, 1, -1};
    struct mst_notice *notice;
    struct mst_err err;
    complete(7);
    assert_notice(MST_NOTICE_COMPLETE, 7);
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        mst__view_lost(&view, mst_bytes_of("", 0), ranks[i], false);
    }
    mst__view_publish(&view, &changes);
    assert_int_equal(mst__view_take(&view, 0, &notice, &err), 0);
    assert_int_equal(notice->node_count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(notice->nodes[i].name, "");
        assert_int_equal(notice->nodes[i].rank, ranks[i]);
    }
    mst_notice_free(notice);
}

/* A server may seal a round and expel the node in one breath: the first news is the round. */
static void changes_wait_for_the_round(void **state)
{
    (void)state;
    const struct mst_changes changes = {.size = sizeof changes, .expelled = true};
    mst__view_publish(&view, &changes);
    assert_nothing();
    complete(7);
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
    complete(7);
    mst__view_lost(&view, mst_bytes_str("gone"), 1, false);
    mst__view_publish(&view, &changes);
    forget();
    assert_nothing();
    struct mst_changes now = {.size = sizeof now};
    assert_false(mst__view_get(&view, &now));
}

/* Nodes that waited and have gone again are no news. */
static void waiting_nodes_go(void **state)
{
    (void)state;
    struct mst_changes changes = {.size = sizeof changes, .nodes_waiting = 1};
    complete(7);
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

/* A round that nobody asks for any more. */
static void outcome_that_is_not_wanted(void **state)
{
    (void)state;
    complete(7);
    assert_true(mst__view_forget(&view));
    assert_nothing();
    assert_false(mst__view_forget(&view));
}

/* The first news of a kind keeps its place, and each node is named once. */
static void news_come_in_order(void **state)
{
    (void)state;
    struct mst_changes changes = {.size = sizeof changes, .nodes_waiting = 1};
    complete(7);
    assert_notice(MST_NOTICE_COMPLETE, 7);
    mst__view_publish(&view, &changes);
    changes.participants_lost = 1;
    mst__view_publish(&view, &changes);
    changes.nodes_waiting = 2;
    mst__view_publish(&view, &changes);
    assert_notice(MST_NOTICE_WAITING, 7);
    assert_notice(MST_NOTICE_LOST, 7);
    assert_nothing();
}

static void nodes_are_named_once(void **state)
{
    (void)state;
    struct mst_changes now;
    struct mst_err err;
    complete(7);
    assert_notice(MST_NOTICE_COMPLETE, 7);
    lose("a", 1);
    assert_only_lost("a");
    lose("b", 2);
    assert_only_lost("b");
    lose("c", 3);
    assert_int_equal(mst__view_poll(&view, 0, &now, &err), 0);
    assert_nothing();
    lose("d", 4);
    assert_only_lost("d");
    lose("e", 5);
    forget();
    complete(8);
    assert_notice(MST_NOTICE_COMPLETE, 8);
    lose("f", 1);
    assert_only_lost("f");
    assert_nothing();
}

/* Only the last state counts, and a round begins with a reachable authority. */
static void reachable_or_not(void **state)
{
    (void)state;
    const struct mst_err trouble = {.code = MST_ECONN};
    struct mst_changes now;
    struct mst_err err;
    complete(7);
    assert_notice(MST_NOTICE_COMPLETE, 7);
    mst__view_reach(&view, &trouble);
    mst__view_reach(&view, NULL);
    mst__view_reach(&view, &trouble);
    assert_notice(MST_NOTICE_UNREACHABLE, 7);
    assert_nothing();
    mst__view_reach(&view, NULL);
    assert_notice(MST_NOTICE_REACHABLE, 7);
    mst__view_reach(&view, &trouble);
    assert_int_equal(mst__view_poll(&view, 0, &now, &err), MST_ETIMEOUT); /* it tells no trouble */
    assert_nothing();
    forget();
    complete(8);
    assert_notice(MST_NOTICE_COMPLETE, 8);
    mst__view_reach(&view, &trouble);
    assert_notice(MST_NOTICE_UNREACHABLE, 8);
}

/* Whoever is in no round has no use for it. */
static void unreachable_without_a_round(void **state)
{
    (void)state;
    const struct mst_err away = {.code = MST_ECONN};
    mst__view_reach(&view, &away);
    assert_nothing();
    assert_false(mst__view_is_old(&view));
    complete(1);
    assert_notice(MST_NOTICE_COMPLETE, 1);
    mst__view_reach(&view, &away);
    assert_notice(MST_NOTICE_UNREACHABLE, 1);
}

/* Before others tell it. */
static void closed_by_itself(void **state)
{
    (void)state;
    struct mst_changes now;
    complete(1);
    assert_true(mst__view_get(&view, &now));
    assert_false(now.closed);
    mst__view_set_closed(&view);
    assert_true(mst__view_get(&view, &now));
    assert_true(now.closed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(changes_wait_for_the_round, start, stop),
        cmocka_unit_test_setup_teardown(no_changes_of_a_round_that_failed, start, stop),
        cmocka_unit_test_setup_teardown(news_go_with_their_round, start, stop),
        cmocka_unit_test_setup_teardown(waiting_nodes_go, start, stop),
        cmocka_unit_test_setup_teardown(outcome_that_is_not_wanted, start, stop),
        cmocka_unit_test_setup_teardown(news_come_in_order, start, stop),
        cmocka_unit_test_setup_teardown(nodes_are_named_once, start, stop),
        cmocka_unit_test_setup_teardown(a_lost_node_has_a_name_or_a_rank, start, stop),
        cmocka_unit_test_setup_teardown(reachable_or_not, start, stop),
        cmocka_unit_test_setup_teardown(unreachable_without_a_round, start, stop),
        cmocka_unit_test_setup_teardown(closed_by_itself, start, stop),
    };
    return MST_RUN_TESTS(tests);
}
