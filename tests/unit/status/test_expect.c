/* unit/status/test_expect.c - names of expected nodes: ranges, and missing ones. */
#include "base/mem.h"
#include "snapshot/snapshot.h"
#include "unit/unit.h"

static struct mst_err err;

/* A snapshot of a job with @nodes, ended by NULL. */
static struct mst_status *job_of(const char *const *nodes)
{
    struct mst__snapshot *snapshot = mst__snapshot_new("muster", mst_bytes_str("job"));
    assert_non_null(snapshot);
    mst__snapshot_expect_nodes(snapshot, 20);
    for (; *nodes != NULL; nodes++) {
        struct mst_status_node *node = mst__snapshot_add(snapshot, MST_SNAPSHOT_MEMBERS);
        assert_non_null(node);
        node->name = *nodes;
    }
    assert_int_equal(mst__snapshot_end(snapshot), 0);
    return &snapshot->status;
}

/* All names with commas between them. */
static void list(const char *const *names, size_t count, char *ret_text, size_t size)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < count && used < size; i++) {
        used +=
            (size_t)snprintf(ret_text + used, size - used, "%s%s", used == 0 ? "" : ",", names[i]);
    }
}

/* The nodes of @expected that are missing among @nodes, and those never seen. */
static void assert_missing(struct mst_expected *expected,
                           const char *const *nodes,
                           const char *missing,
                           const char *unseen)
{
    char names[200];
    struct mst_status *status = job_of(nodes);
    assert_int_equal(mst_status_expect(status, expected, &err), 0);
    list(status->missing, status->missing_count, names, sizeof names);
    assert_string_equal(names, missing);
    list(status->unseen, status->unseen_count, names, sizeof names);
    assert_string_equal(names, unseen);
    mst_status_free(status);
}

static const char *const nobody[] = {NULL};

static void ranges(void **state)
{
    (void)state;
    static const struct {
        const char *text, *names;
    } cases[] = {
        {"a", "a"},
        {"a,b-c,d_1", "a,b-c,d_1"},
        {"node[1-3]", "node1,node2,node3"},
        {"node[8-11]", "node8,node9,node10,node11"},
        {"node[08-11]", "node08,node09,node10,node11"},
        {"n[1,3,5-6]x,y", "n1x,n3x,n5x,n6x,y"},
        {"r[1-2]n[1-2]", "r1n1,r1n2,r2n1,r2n2"},
        {"[7]", "7"},
        {"a[0-0]", "a0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst_expected *expected = NULL;
        assert_int_equal(mst_expected_new(cases[i].text, &expected, &err), 0);
        assert_missing(expected, nobody, cases[i].names, cases[i].names);
        mst_expected_free(expected);
    }
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *said;
    } cases[] = {
        {"", MST_EINVAL, "not a name"},
        {"a,,b", MST_EINVAL, "not a name"},
        {"a b", MST_EINVAL, "'a b': not a name"},
        {"a]", MST_EINVAL, "not a name"},
        {"a[1", MST_EINVAL, "'a[1': missing ']'"},
        {"a[", MST_EINVAL, "'a[': missing ']'"},
        {"a[]", MST_EINVAL, "no numbers"},
        {"a[x]", MST_EINVAL, "'ax': not a range"},
        {"a[3-1]", MST_EINVAL, "'a3-1': not a range"},
        {"a[1-]", MST_EINVAL, "not a range"},
        {"a[-1]", MST_EINVAL, "not a range"},
        {"a[+1]", MST_EINVAL, "not a range"},
        {"a[1-9999999999]", MST_EINVAL, "not a range"},
        {"a[1-2],a2", MST_EINVAL, "'a2': given twice"},
        {"a[1-999999999]", MST_ELIMIT, "65536"},
        {"a[1-60000],b[1-60000]", MST_ELIMIT, "65536"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst_expected *expected = NULL;
        assert_int_equal(mst_expected_new(cases[i].text, &expected, &err), cases[i].code);
        if (strstr(err.msg, cases[i].said) == NULL) {
            fail_msg("'%s' says: %s", cases[i].text, err.msg);
        }
    }
    /* Of brackets without end, and names that are too long. */
    char text[2000];
    struct mst_expected *expected = NULL;
    for (size_t i = 0; i + 3 < sizeof text; i += 3) {
        memcpy(text + i, "[1]", 4);
    }
    assert_int_equal(mst_expected_new(text, &expected, &err), MST_EINVAL);
    assert_non_null(strstr(err.msg, "the name is too long"));
}

static void who_is_there(void **state)
{
    (void)state;
    struct mst_expected *expected = NULL;
    assert_int_equal(mst_expected_new("node[1-4],worker_7_8", &expected, &err), 0);
    /* The last ones are others. */
    static const char *const some[] = {"node1_4711_803",
                                       "node2.cluster.example_1_0",
                                       "worker_7_8",
                                       "node33_1_0",
                                       "node3x_1_0",
                                       "node4_1",
                                       "_1_0",
                                       "",
                                       NULL};
    assert_missing(expected, some, "node3,node4", "node3,node4");
    assert_true(mst_expected_has(expected, "node1_4711_803"));
    assert_false(mst_expected_has(expected, "node33_1_0"));
    /* Nodes that were seen once are remembered. */
    static const char *const another[] = {"node4", NULL};
    assert_missing(expected, another, "node1,node2,node3,worker_7_8", "node3");
    mst_expected_free(expected);
}

/* A gone node is missing; without names no node can be expected. */
static void who_is_not(void **state)
{
    (void)state;
    struct mst_expected *expected = NULL;
    assert_int_equal(mst_expected_new("a,b", &expected, &err), 0);
    struct mst__snapshot *snapshot = mst__snapshot_new("muster", mst_bytes_str("job"));
    mst__snapshot_expect_nodes(snapshot, 1);
    struct mst_status_node *node = mst__snapshot_add(snapshot, MST_SNAPSHOT_GONE);
    assert_non_null(node);
    node->name = "a";
    node->standing = MST_STATUS_NODE_GONE;
    assert_int_equal(mst_status_expect(&snapshot->status, expected, &err), 0);
    assert_int_equal(snapshot->status.missing_count, 2);
    snapshot->status.backend = "etcd";
    assert_int_equal(mst_status_expect(&snapshot->status, expected, &err), MST_ENOTSUP);
    mst__snapshot_free(snapshot);
    mst_expected_free(expected);
}

static void without_memory(void **state)
{
    (void)state;
    int rv = MST_ENOMEM;
    for (unsigned long nth = 1; rv == MST_ENOMEM; nth++) {
        struct mst_expected *expected = NULL;
        mst__mem_fail_nth(nth);
        rv = mst_expected_new("node[1-3]", &expected, &err);
        bool has_failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        assert_int_equal(rv, has_failed ? MST_ENOMEM : 0);
        mst_expected_free(expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),         cmocka_unit_test(refused),
        cmocka_unit_test(who_is_there),   cmocka_unit_test(who_is_not),
        cmocka_unit_test(without_memory),
    };
    return MST_RUN_TESTS(tests);
}
