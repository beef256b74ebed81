/* unit/cli/test_status_table.c - the table of a large job: nodes that share a line. */
#include "cli/status_table.h"

#include <stdio.h>

#include "base/limits.h"
#include "unit/unit.h"

enum { NODES = MST_STATUS_ROWS_MAX + 2 };

static struct mst_status_node nodes[NODES];
static char names[NODES][16];
static struct mst__buf text;

/* The table of a job whose members have the ranks first_rank, first_rank + 1 and so on, with the
 * last one changed by @last. */
static const char *table(int64_t first_rank, struct mst_status_node last)
{
    const struct mst_status_node *list[NODES];
    for (size_t i = 0; i < NODES; i++) {
        nodes[i] = (struct mst_status_node){.name = names[i],
                                            .address = "",
                                            .standing = MST_STATUS_NODE_MEMBER,
                                            .rank = first_rank + (int64_t)i,
                                            .has_heard = true,
                                            .heard_ms = 1000 + 100 * (int64_t)i,
                                            .cause = ""};
        (void)snprintf(names[i], sizeof names[i], "n%zu", i);
        list[i] = &nodes[i];
    }
    last.name = names[NODES - 1];
    last.address = last.cause = "";
    nodes[NODES - 1] = last;
    const struct mst_status job = {.run_id = "job",
                                   .exists = true,
                                   .document = "",
                                   .failure = "",
                                   .summary = "",
                                   .restarts_max = -1,
                                   .nodes = list,
                                   .node_count = NODES};
    int rv = 0;
    mst__buf_clear(&text);
    mst__status_table(&job, false, &text, &rv);
    assert_int_equal(rv, 0);
    assert_int_equal(mst__buf_append_u8(&text, '\0'), 0);
    return (const char *)mst__buf_bytes(&text).data;
}

static void groups(void **state)
{
    (void)state;
    struct mst_status_node last = {
        .standing = MST_STATUS_NODE_MEMBER, .rank = NODES, .has_heard = true, .heard_ms = 900};
    mst__buf_init(&text, 10000);
    assert_non_null(strstr(table(1, last), "member        42         1-42  n[0-41]; heard of 0.9 "
                                           "to 5.0 s ago\n"));
    /* Ranks with a gap are no range, nor are those of nodes without one. */
    last.rank = NODES + 1;
    assert_non_null(strstr(table(1, last), "member        42            -  n[0-41]; heard"));
    last.rank = -1;
    assert_non_null(strstr(table(0, last), "member        42            -  n[0-41]; heard"));
    /* If one was not heard of, how long ago that was is not known of all. */
    last.has_heard = false;
    assert_non_null(strstr(table(0, last), "-  n[0-41]\n"));
    /* One that is late is not among the others. */
    last.is_late = true;
    last.rank = NODES - 1;
    assert_non_null(strstr(table(0, last), "41         0-40  n[0-40]; heard"));
    assert_non_null(strstr(table(0, last), "member         1           41  n41, late\n"));
    mst__buf_close(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups),
    };
    return MST_RUN_TESTS(tests);
}
