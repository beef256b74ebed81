/* unit/authority/test_etcd_v3_keys.c - names and documents of `etcd-v3`. */
#include <inttypes.h>
#include <string.h>

#include "authority/etcd_v3_keys.h"
#include "base/mem.h"
#include "unit/unit.h"

/* --- names --- */

static void test_keys(void **state)
{
    (void)state;
    struct mst__etcd_v3_keys keys;
    assert_int_equal(mst__etcd_v3_keys_init(&keys, "a/b c%\xc3\xa4"), 0);
    assert_string_equal(keys.root, "/muster/a%2Fb%20c%25%C3%A4/");
    assert_string_equal(keys.round, "/muster/a%2Fb%20c%25%C3%A4/round");
    char *node = mst__etcd_v3_key_node(&keys, "x/y", 0xab);
    assert_string_equal(node, "/muster/a%2Fb%20c%25%C3%A4/n/x%2Fy/00000000000000ab");
    char *letter = mst__etcd_v3_key_letter(&keys, UINT64_MAX);
    assert_string_equal(letter, "/muster/a%2Fb%20c%25%C3%A4/a/ffffffffffffffff");
    char *store = mst__etcd_v3_key_store(&keys, 12, 34567);
    assert_string_equal(store, "/muster/a%2Fb%20c%25%C3%A4/kv/12.34567");
    char *stores = mst__etcd_v3_key_stores(&keys, 12); /* and not those of round 120 */
    assert_string_equal(stores, "/muster/a%2Fb%20c%25%C3%A4/kv/12.");
    uint64_t session = 0;
    assert_true(mst__etcd_v3_key_session(mst_bytes_str(node), &session));
    assert_true(session == 0xab);
    assert_true(mst__etcd_v3_key_session(mst_bytes_str(letter), &session));
    assert_true(session == UINT64_MAX);
    static const char *const strange[] = {"",
                                          "00000000000000ab",
                                          "/n/0000000000000ab",
                                          "/n/00000000000000AB",
                                          "/n/00000000000000a\n",
                                          "/n/x00000000000000ab"};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        assert_false(mst__etcd_v3_key_session(mst_bytes_str(strange[i]), &session));
    }
    mst__free(node);
    mst__free(letter);
    mst__free(store);
    mst__free(stores);
    mst__etcd_v3_keys_close(&keys);
}

/* --- documents --- */

static void test_node(void **state)
{
    (void)state;
    const struct mst__label labels[] = {{mst_bytes_str("rack"), mst_bytes_str("r1")},
                                        {mst_bytes_str("host"), mst_bytes_str("")}};
    const struct mst__announcement said = {
        .name = mst_bytes_str("node \xc3\xa4"),
        .incarnation = 99,
        .address = mst_bytes_str("10.0.0.1:29500"),
        .labels = labels,
        .labels_count = 2,
        .nodes_min = 2,
        .nodes_max = 4,
        .last_call_us = 30000000,
        .rank_by = mst_bytes_str("rack,host"),
        .pinned_rank = 3,
        .claim = {.epoch = UINT64_MAX, .round = 7, .world = 4, .rank = 2},
        .has_wall = true,
        .wall_us = INT64_C(1700000000000000),
        .budget = {.is_limited = true, .restarts_max = 3, .window_us = 60},
        .is_fixed = true,
    };
    const struct mst__etcd_v3_word word = {
        .is_said = true,
        .epoch = 12,
        .round = 7,
        .cause =
            {.worker = 1, .status = -7, .signal = 9, .wall_us = 5, .text = mst_bytes_str("boom")},
    };
    struct mst__buf buf;
    mst__buf_init(&buf, 1 << 16);
    assert_int_equal(mst__etcd_v3_node_write(&said, &word, true, &buf), 0);
    struct mst__etcd_v3_node node;
    struct mst_err err = {0};
    assert_int_equal(mst__etcd_v3_node_read(mst__buf_bytes(&buf), &node, &err), 0);
    assert_bytes(node.said.name, said.name);
    assert_true(node.said.incarnation == 99);
    assert_bytes(node.said.address, said.address);
    assert_bytes(node.said.rank_by, said.rank_by);
    assert_int_equal(node.said.labels_count, 2);
    assert_bytes_str(node.said.labels[0].key, "rack");
    assert_bytes_str(node.said.labels[1].value, "");
    assert_int_equal(node.said.nodes_min, 2);
    assert_int_equal(node.said.nodes_max, 4);
    assert_true(node.said.last_call_us == said.last_call_us);
    assert_int_equal(node.said.pinned_rank, 3);
    assert_true(node.said.claim.epoch == UINT64_MAX);
    assert_true(node.said.claim.round == 7);
    assert_int_equal(node.said.claim.rank, 2);
    assert_false(node.said.claim.holds);
    assert_true(node.said.wall_us == said.wall_us);
    assert_true(node.has_left);
    assert_int_equal(node.said.budget.restarts_max, 3);
    assert_int_equal(node.said.budget.window_us, 60);
    assert_true(node.said.is_fixed);
    assert_true(node.word.is_said);
    assert_false(node.word.is_finish);
    assert_int_equal(node.word.epoch, 12);
    assert_int_equal(node.word.round, 7);
    assert_int_equal(node.word.cause.worker, 1);
    assert_int_equal(node.word.cause.status, -7);
    assert_int_equal(node.word.cause.signal, 9);
    assert_int_equal(node.word.cause.wall_us, 5);
    assert_bytes_str(node.word.cause.text, "boom");
    mst__etcd_v3_node_close(&node);
    mst__buf_close(&buf);
    const struct mst__announcement broken = {.name = mst_bytes_str("\xff")};
    mst__buf_init(&buf, 1 << 16);
    assert_int_equal(mst__etcd_v3_node_write(&broken, &word, false, &buf), MST_EINVAL);
    mst__buf_close(&buf);
}

static void test_round(void **state)
{
    (void)state;
    char first[] = "a";
    char second[] = "b c";
    struct mst__etcd_v3_seat seats[] = {{.session = 5, .name = first},
                                        {.session = UINT64_MAX, .name = second}};
    bool is_gone[] = {true, false};
    const struct mst__etcd_v3_round round = {
        .state = MST_ETCD_V3_OPEN,
        .epoch = 77,
        .round = 9,
        .before = 8,
        .world = 2,
        .first_world = 3,
        .seats = seats,
        .address = "host:1",
        .why = MST_AUTHORITY_WHY_LEFT,
        .gone_count = 1,
        .is_gone = is_gone,
        .gone = "a",
    };
    struct mst__buf buf;
    mst__buf_init(&buf, 1 << 16);
    assert_int_equal(mst__etcd_v3_round_write(&round, &buf), 0);
    struct mst__etcd_v3_round again;
    struct mst_err err = {0};
    assert_int_equal(mst__etcd_v3_round_read(mst__buf_bytes(&buf), &again, &err), 0);
    assert_int_equal(again.state, MST_ETCD_V3_OPEN);
    assert_true(again.epoch == 77 && again.round == 9 && again.before == 8 && again.world == 2);
    assert_int_equal(again.first_world, 3);
    assert_false(again.is_sharded);
    assert_int_equal(mst__etcd_v3_round_rank(&again, UINT64_MAX), 1);
    assert_int_equal(mst__etcd_v3_round_rank(&again, 6), MST_AUTHORITY_RANK_NONE);
    assert_string_equal(again.seats[1].name, "b c");
    assert_string_equal(again.address, "host:1");
    assert_int_equal(again.why, MST_AUTHORITY_WHY_LEFT);
    assert_int_equal(again.gone_count, 1);
    assert_string_equal(again.gone, "a");
    assert_true(again.is_gone[0]);
    assert_false(again.is_gone[1]);
    mst__etcd_v3_round_close(&again);
    mst__buf_close(&buf);
}

/* The gone members of a large round are written in spans. */
static void test_round_spans(void **state)
{
    (void)state;
    static bool is_gone[1000];
    const struct mst__etcd_v3_round round = {.state = MST_ETCD_V3_OPEN,
                                             .epoch = 1,
                                             .round = 1,
                                             .world = 1000,
                                             .is_sharded = true,
                                             .is_gone = is_gone};
    is_gone[0] = true;
    is_gone[2] = true;
    for (size_t rank = 500; rank < 1000; rank++) {
        is_gone[rank] = true;
    }
    struct mst__buf buf;
    mst__buf_init(&buf, 1 << 16);
    assert_int_equal(mst__etcd_v3_round_write(&round, &buf), 0);
    assert_int_equal(mst__buf_append(&buf, mst_bytes_of("", 1)), 0);
    assert_non_null(strstr((const char *)mst__buf_bytes(&buf).data, "[[0,0],[2,2],[500,999]]"));
    struct mst_bytes text = mst__buf_bytes(&buf);
    text.size--;
    struct mst__etcd_v3_round again;
    struct mst_err err = {0};
    assert_int_equal(mst__etcd_v3_round_read(text, &again, &err), 0);
    assert_memory_equal(again.is_gone, is_gone, sizeof is_gone);
    assert_int_equal(again.first_world, 1000); /* there was no larger one */
    mst__etcd_v3_round_close(&again);
    mst__buf_close(&buf);
}

#define ROUND_OF_3(gone_ranks)                                                         \
    "{\"state\":\"open\",\"epoch\":\"1\",\"round\":1,\"before\":0,\"world\":3,\"gone_" \
    "ranks\":" gone_ranks "}"

static void test_refused(void **state)
{
    (void)state;
    static const char *const rounds[] = {
        "",
        "[]",
        "{}",
        "{\"state\":\"running\",\"epoch\":\"0\",\"round\":0,\"before\":0,\"world\":0}",
        "{\"state\":\"sleeping\",\"epoch\":\"1\",\"round\":1,\"before\":0,\"world\":1}",
        "{\"state\":\"open\",\"epoch\":\"1\",\"round\":-1,\"before\":0,\"world\":1}",
        "{\"state\":\"open\",\"epoch\":\"1\",\"round\":1,\"before\":0,\"world\":99999999}",
        ("{\"state\":\"open\",\"epoch\":\"1\",\"round\":1,\"before\":0,\"world\":2,"
         "\"members\":[[\"a\",\"0000000000000001\"]]}"),
        ("{\"state\":\"open\",\"epoch\":\"1\",\"round\":1,\"before\":0,\"world\":1,"
         "\"members\":[[\"a\",\"1\"]]}"),
        "{\"state\":\"open\",\"epoch\":\"1\",\"round\":1,\"before\":0,\"world\":1,\"why\":\"x\"}",
        ("{\"state\":\"open\",\"epoch\":\"1\",\"round\":1,\"before\":0,\"world\":1,"
         "\"restarts\":2,\"restarts_wall_us\":1,\"restarts_total\":1}"),
        ROUND_OF_3("[[0,3]]"),
        ROUND_OF_3("[[-1,0]]"),
        ROUND_OF_3("[[2,1]]"),
        ROUND_OF_3("[[1,1],[1,2]]"),
        ROUND_OF_3("[0]"),
    };
    struct mst_err err;
    for (size_t i = 0; i < sizeof rounds / sizeof rounds[0]; i++) {
        struct mst__etcd_v3_round round;
        assert_int_equal(mst__etcd_v3_round_read(mst_bytes_str(rounds[i]), &round, &err),
                         MST_EPROTO);
    }
    static const char *const letters[] = {"{}", "{\"kind\":\"none\"}", "{\"kind\":\"rank\"}",
                                          "{\"kind\":\"refused\",\"code\":5,\"text\":\"\"}"};
    for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++) {
        struct mst__etcd_v3_letter letter;
        assert_int_equal(mst__etcd_v3_letter_read(mst_bytes_str(letters[i]), &letter, &err),
                         MST_EPROTO);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),    cmocka_unit_test(test_node),
        cmocka_unit_test(test_round),   cmocka_unit_test(test_round_spans),
        cmocka_unit_test(test_refused),
    };
    return MST_RUN_TESTS(tests);
}
