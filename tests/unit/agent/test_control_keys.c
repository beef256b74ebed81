/* unit/agent/test_control_keys.c - commands to a job and descriptions of nodes, as JSON. */
#include <string.h>

#include "agent/control_keys.h"
#include "base/limits.h"
#include "unit/unit.h"

static void commands(void **state)
{
    (void)state;
    static const struct mst__control_command cases[] = {
        {.kind = MST_CONTROL_RESTART, .within_ms = -1, .rank = -1, .lines = -1},
        {.kind = MST_CONTROL_DRAIN, .node = "a \"b\"", .within_ms = 1500, .rank = -1, .lines = -1},
        {.kind = MST_CONTROL_LOGS,
         .within_ms = -1,
         .rank = 7,
         .is_stderr = true,
         .lines = 20,
         .follows = true,
         .token = "abc"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__buf text;
        struct mst__control_command read;
        mst__buf_init(&text, 1000);
        assert_int_equal(mst__control_write(&cases[i], &text), 0);
        assert_true(mst__control_read(mst__buf_bytes(&text), &read));
        assert_int_equal(read.kind, cases[i].kind);
        assert_string_equal(read.node, cases[i].node);
        assert_int_equal(read.within_ms, cases[i].within_ms);
        assert_int_equal(read.rank, cases[i].rank);
        assert_int_equal(read.is_stderr, cases[i].is_stderr);
        assert_int_equal(read.lines, cases[i].lines);
        assert_int_equal(read.follows, cases[i].follows);
        assert_string_equal(read.token, cases[i].token);
        mst__buf_close(&text);
    }
    struct mst__control_command read;
    static const char *const wrong[] = {"", "x", "[]", "{}", "{\"do\": \"dance\"}", "{\"do\": 1}"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(mst__control_read(mst_bytes_str(wrong[i]), &read));
    }
    /* Long values are cut off. */
    char longest[600];
    (void)snprintf(longest, sizeof longest, "{\"do\":\"drain\",\"node\":\"%0500d\"}", 0);
    assert_true(mst__control_read(mst_bytes_str(longest), &read));
    assert_int_equal(strlen(read.node), sizeof read.node - 1);
}

static void worker_at(void *arg, int64_t i, struct mst__control_worker *ret_worker)
{
    (void)arg;
    *ret_worker = (struct mst__control_worker){
        .rank = 10 + i, .local_rank = i, .pid = 100 + i, .is_running = i % 2 == 0};
}

static void nodes(void **state)
{
    (void)state;
    const struct mst__control_node node = {.node = "n_1",
                                           .host = "h",
                                           .role = "r",
                                           .phase = "running",
                                           .log_dir = "/l",
                                           .pid = 5,
                                           .group_rank = 2,
                                           .generation = 3,
                                           .round = 4,
                                           .restarts = 1,
                                           .nodes_min = 6,
                                           .is_leaving = true,
                                           .workers_count = MST_NPROC_MAX};
    struct mst__buf text;
    struct mst__control_node read;
    struct mst__control_worker worker;
    mst__buf_init(&text, MST_CONTROL_NODE_SIZE_MAX); /* the most workers fit */
    assert_int_equal(mst__control_node_write(&node, worker_at, NULL, &text), 0);
    struct mst_bytes workers;
    assert_true(mst__control_node_read(mst__buf_bytes(&text), &read, &workers));
    assert_string_equal(read.node, "n_1");
    assert_string_equal(read.phase, "running");
    assert_string_equal(read.log_dir, "/l");
    assert_int_equal(read.group_rank, 2);
    assert_int_equal(read.generation, 3);
    assert_int_equal(read.restarts, 1);
    assert_int_equal(read.nodes_min, 6);
    assert_true(read.is_leaving);
    assert_int_equal(read.workers_count, MST_NPROC_MAX);
    int64_t count = 0;
    for (; mst__control_worker_next(&workers, &worker); count++) {
        assert_int_equal(worker.rank, 10 + count);
        assert_int_equal(worker.pid, 100 + count);
        assert_int_equal(worker.is_running, count % 2 == 0);
    }
    assert_int_equal(count, MST_NPROC_MAX);
    mst__buf_close(&text);
    assert_false(mst__control_node_read(mst_bytes_str("{}"), &read, &workers));
    assert_false(mst__control_node_read(mst_bytes_str("[1"), &read, &workers));
    assert_true(
        mst__control_node_read(mst_bytes_str("{\"node\":\"n\",\"workers\":3}"), &read, &workers));
    assert_false(mst__control_worker_next(&workers, &worker));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands),
        cmocka_unit_test(nodes),
    };
    return MST_RUN_TESTS(tests);
}
