/* unit/core/test_core_state.c - the record: order of maps, copies, ranks, failing allocations;
 * refused actions. The tables themselves are in the vectors. */
#include "base/limits.h"
#include "core/apply.h"
#include "unit/core/core_unit.h"

static struct mst__node numbered(size_t number, char text[32])
{
    (void)snprintf(text, 32, "node-%zu", number);
    return node_named(text, (int64_t)number % 7);
}

static void maps_keep_their_order(void **unused)
{
    (void)unused;
    struct mst__state state;
    mst__state_init(&state);
    mst__peer_id a = state_enter(&state, node_named("a", 1));
    mst__peer_id b = state_enter(&state, node_named("b", 1));
    mst__peer_id c = state_enter(&state, node_named("c", 1));
    assert_int_equal(state_enter(&state, node_named("b", 1)), b);
    assert_int_equal(mst__state_put_heartbeat(&state, c, 1), 0);
    assert_int_equal(mst__state_put_heartbeat(&state, a, 2), 0);
    assert_int_equal(mst__state_put_heartbeat(&state, b, 3), 0);
    assert_int_equal(mst__state_put_heartbeat(&state, c, 4), 0); /* keeps its place */
    assert_int_equal(state.heartbeats.count, 3);
    assert_int_equal(state.heartbeats.ids[0], c);
    assert_true(state.members[c].heartbeat_us == 4);
    assert_true(mst__state_drop_heartbeat(&state, c));
    assert_false(mst__state_drop_heartbeat(&state, c));
    assert_int_equal(mst__state_put_heartbeat(&state, c, 5), 0); /* a new one goes to the end */
    assert_int_equal(state.heartbeats.ids[0], a);
    assert_int_equal(state.heartbeats.ids[1], b);
    assert_int_equal(state.heartbeats.ids[2], c);
    mst__state_close(&state);
}

static void nodes_differ_in_each_part(void **unused)
{
    (void)unused;
    struct mst__state state;
    mst__state_init(&state);
    struct mst__node node = {.addr = mst_bytes_str("a"), .pid = 1, .local_id = 2};
    mst__peer_id id = state_enter(&state, node);
    struct mst__node other = node;
    other.addr = mst_bytes_str("a\xc3\xa9");
    assert_int_equal(mst__state_find(&state, &other), MST_PEER_NONE);
    other = node;
    other.pid = -1;
    assert_int_equal(mst__state_find(&state, &other), MST_PEER_NONE);
    other = node;
    other.local_id = 1;
    assert_int_equal(mst__state_find(&state, &other), MST_PEER_NONE);
    assert_int_equal(mst__state_find(&state, &node), id);
    struct mst__node empty = {.addr = mst_bytes_of(NULL, 0), .pid = 1, .local_id = 2};
    assert_int_equal(mst__state_find(&state, &empty), MST_PEER_NONE);
    assert_int_not_equal(state_enter(&state, empty), id);
    char text[16];
    mst__node_format(&node, text, sizeof text);
    assert_string_equal(text, "a_1_2");
    mst__node_format(&node, text, 4);
    assert_string_equal(text, "a_1");
    mst__state_close(&state);
}

/* Many members, all found again, in a copy too, which is independent of its source. */
static void copies_are_equal_and_apart(void **unused)
{
    (void)unused;
    enum { COUNT = 1000 };
    struct mst__state state;
    struct mst__state copy;
    char text[32];
    mst__state_init(&state);
    mst__state_init(&copy);
    for (size_t i = 0; i < COUNT; i++) {
        mst__peer_id id = state_enter(&state, numbered(i, text));
        assert_int_equal(mst__state_put_heartbeat(&state, id, (int64_t)i), 0);
        assert_int_equal(i % 3 == 0   ? mst__state_put_participant(&state, id, 0)
                         : i % 3 == 1 ? mst__state_put_waiting(&state, id)
                                      : mst__state_put_spare(&state, id),
                         0);
    }
    mst__state_mark(&state, 1);
    state.extra = token_of(7);
    state.sealed_round = 3;
    state.sealed_count = 4;
    assert_int_equal(mst__state_copy(&copy, &state), 0);
    assert_true(mst__state_equal(&copy, &state));
    mst__state_close(&state);
    for (size_t i = 0; i < COUNT; i++) {
        struct mst__node node = numbered(i, text);
        mst__peer_id id = mst__state_find(&copy, &node);
        assert_int_equal(id, i);
        assert_true(copy.members[id].heartbeat_us == (int64_t)i);
    }
    mst__state_move(&state, &copy);
    assert_int_equal(copy.members_count, 0);
    assert_int_equal(state.members_count, COUNT);
    assert_int_equal(mst__state_copy(&copy, &state), 0);
    /* Sets have no order; each other difference counts. */
    mst__peer_id first = copy.waiting.ids[0];
    assert_true(mst__state_drop_waiting(&copy, first));
    assert_false(mst__state_equal(&copy, &state));
    assert_int_equal(mst__state_put_waiting(&copy, first), 0);
    assert_true(mst__state_equal(&copy, &state));
    assert_true(copy.members[1].is_ours);
    copy.members[1].is_ours = false;
    assert_false(mst__state_equal(&copy, &state));
    mst__state_mark(&copy, 1);
    assert_true(mst__state_equal(&copy, &state));
    copy.sealed_count = 5;
    assert_false(mst__state_equal(&copy, &state));
    copy.sealed_count = 4;
    copy.dialect = MST_RECORD_D3;
    assert_false(mst__state_equal(&copy, &state));
    /* The mark goes with the heartbeat, and does not come again with another one. */
    assert_true(mst__state_drop_heartbeat(&copy, 1));
    assert_int_equal(mst__state_put_heartbeat(&copy, 1, 1), 0);
    assert_false(copy.members[1].is_ours);
    mst__state_close(&copy);
    mst__state_close(&state);
}

static void the_number_of_members_is_limited(void **unused)
{
    (void)unused;
    struct mst__state state;
    char text[32];
    mst__state_init(&state);
    for (size_t i = 0; i < MST_MEMBERS_MAX; i++) {
        (void)state_enter(&state, numbered(i, text));
    }
    struct mst__node node = numbered(MST_MEMBERS_MAX, text);
    mst__peer_id id;
    assert_int_equal(mst__state_obtain(&state, &node, &id), MST_ELIMIT);
    assert_int_equal(mst__state_find(&state, &node), MST_PEER_NONE);
    struct mst__settings settings = settings_of(1, 2);
    struct mst__applied applied;
    assert_int_equal(
        mst__apply(&state, MST_ACTION_ADD_TO_PARTICIPANTS, &node, &settings, 0, &applied),
        MST_ELIMIT);
    mst__state_close(&state);
}

/* Each allocation of building and copying fails once; nothing leaks, a failed copy is empty, a
 * failed action changes nothing. */
static void failing_allocations(void **unused)
{
    (void)unused;
    struct mst__settings settings = settings_of(10, 10);
    struct mst__state state;
    struct mst__state copy;
    struct mst__applied applied;
    char text[32];
    unsigned long failures = 0;
    mst__state_init(&state);
    mst__state_init(&copy);
    for (size_t i = 0; i < 10; i++) {
        struct mst__node node = numbered(i, text);
        enum mst__action actions[] = {MST_ACTION_ADD_TO_WAIT_LIST,
                                      MST_ACTION_ADD_TO_REDUNDANCY_LIST,
                                      MST_ACTION_ADD_TO_PARTICIPANTS};
        for (size_t k = 0; k < 3; k++) {
            for (unsigned long nth = 1;; nth++) {
                mst__mem_fail_nth(nth);
                int rv = mst__state_copy(&copy, &state);
                if (rv == 0) {
                    rv = mst__apply(&state, actions[k], &node, &settings, 5, &applied);
                }
                bool has_failed = mst__mem_failed();
                mst__mem_fail_nth(0);
                if (rv == 0) {
                    break;
                }
                failures++;
                assert_true(has_failed);
                assert_int_equal(rv, MST_ENOMEM);
                if (copy.members_count > 0) {
                    assert_true(mst__state_equal(&copy, &state));
                }
            }
        }
    }
    assert_true(failures > 100);
    assert_true(state.complete);
    assert_int_equal(state.participants.count, 10);
    mst__state_close(&copy);
    mst__state_close(&state);
}

/* A participant without a heartbeat, as the peers may leave one, is added again. */
static void failed_addition_keeps_the_rank(void **unused)
{
    (void)unused;
    struct mst__settings settings = settings_of(1, 4);
    struct mst__state state;
    struct mst__applied applied;
    struct mst__node node = node_named("a", 1);
    mst__peer_id id;
    mst__state_init(&state);
    assert_int_equal(mst__state_obtain(&state, &node, &id), 0);
    assert_int_equal(mst__state_put_participant(&state, id, 3), 0);
    mst__mem_fail_nth(1);
    int rv = mst__apply(&state, MST_ACTION_ADD_TO_PARTICIPANTS, &node, &settings, 5, &applied);
    mst__mem_fail_nth(0);
    assert_int_equal(rv, MST_ENOMEM);
    assert_true(state.members[id].is_participant);
    assert_false(state.members[id].has_heartbeat);
    assert_int_equal(state.members[id].rank, 3);
    mst__state_close(&state);
}

/* Cases in which the peers raise a KeyError after half a change. */
static void removing_what_is_not_there_is_refused(void **unused)
{
    (void)unused;
    struct mst__settings settings = settings_of(1, 2);
    struct mst__state state;
    struct mst__state copy;
    struct mst__applied applied;
    mst__state_init(&state);
    mst__state_init(&copy);
    struct mst__node a = node_named("a", 1);
    struct mst__node b = node_named("b", 1);
    state_add_participant(&state, a, 0, 5);
    assert_int_equal(mst__state_put_waiting(&state, state_enter(&state, b)), 0);
    assert_int_equal(mst__state_copy(&copy, &state), 0);
    const struct {
        enum mst__action action;
        const struct mst__node *node;
    } refused[] = {
        {MST_ACTION_REMOVE_FROM_PARTICIPANTS, &b},
        {MST_ACTION_REMOVE_FROM_WAIT_LIST, &b}, /* it has no heartbeat */
        {MST_ACTION_REMOVE_FROM_WAIT_LIST, &a},
        {MST_ACTION_REMOVE_FROM_REDUNDANCY_LIST, &a},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(
            mst__apply(&state, refused[i].action, refused[i].node, &settings, 9, &applied),
            MST_EINVAL);
        assert_true(mst__state_equal(&copy, &state));
    }
    mst__state_close(&copy);
    mst__state_close(&state);
}

static void ranks_go_by_address_bytes_then_numbers(void **unused)
{
    (void)unused;
    struct mst__state state;
    mst__state_init(&state);
    static const char *const addresses[] = {"node2", "node10", "Node", "node", "n\xc3\xa9"};
    static const int64_t ranks[] = {3, 2, 0, 1, 4};
    for (size_t i = 0; i < 5; i++) {
        state_add_participant(&state, node_named(addresses[i], 1), 9, 0);
    }
    assert_int_equal(mst__state_assign_ranks(&state), 0);
    for (size_t i = 0; i < 5; i++) {
        assert_true(state.members[state.participants.ids[i]].rank == ranks[i]);
    }
    mst__mem_fail_nth(1);
    assert_int_equal(mst__state_assign_ranks(&state), MST_ENOMEM);
    mst__mem_fail_nth(0);
    mst__state_close(&state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_keep_their_order),
        cmocka_unit_test(nodes_differ_in_each_part),
        cmocka_unit_test(copies_are_equal_and_apart),
        cmocka_unit_test(the_number_of_members_is_limited),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(failed_addition_keeps_the_rank),
        cmocka_unit_test(removing_what_is_not_there_is_refused),
        cmocka_unit_test(ranks_go_by_address_bytes_then_numbers),
    };
    return MST_RUN_TESTS(tests);
}
