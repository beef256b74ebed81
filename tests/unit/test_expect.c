/* unit/test_expect.c - names of nodes that should come: ranges, and who is there. */
#include "base/mem.h"
#include "cli/expect.h"
#include "unit/unit.h"

static struct mst_err err;

/* All names with commas between them. */
static void list(const struct mst__expect *expect, char *ret_text, size_t size)
{
    size_t used = 0;
    ret_text[0] = '\0';
    const struct mst__expected *at = mst__map_first(&expect->map);
    for (; at != NULL && used < size; at = mst__map_next(at)) {
        struct mst_bytes name = mst__map_key(at);
        used += (size_t)snprintf(ret_text + used, size - used, "%s%.*s", used == 0 ? "" : ",",
                                 (int)name.size, (const char *)name.data);
    }
}

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
        struct mst__expect expect;
        char names[200];
        assert_int_equal(mst__expect_parse(cases[i].text, &expect, &err), 0);
        list(&expect, names, sizeof names);
        assert_string_equal(names, cases[i].names);
        mst__expect_close(&expect);
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
        {"", MST_EINVAL, "is no name"},
        {"a,,b", MST_EINVAL, "is no name"},
        {"a b", MST_EINVAL, "'a b': is no name"},
        {"a]", MST_EINVAL, "is no name"},
        {"a[1", MST_EINVAL, "lacks a ']'"},
        {"a[", MST_EINVAL, "lacks a ']'"},
        {"a[]", MST_EINVAL, "no numbers"},
        {"a[x]", MST_EINVAL, "'ax': is no range"},
        {"a[3-1]", MST_EINVAL, "'a3-1': is no range"},
        {"a[1-]", MST_EINVAL, "no range"},
        {"a[-1]", MST_EINVAL, "no range"},
        {"a[+1]", MST_EINVAL, "no range"},
        {"a[1-9999999999]", MST_EINVAL, "no range"},
        {"a[1-2],a2", MST_EINVAL, "'a2': is there twice"},
        {"a[1-999999999]", MST_ELIMIT, "65536"},
        {"a[1-60000],b[1-60000]", MST_ELIMIT, "65536"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__expect expect;
        assert_int_equal(mst__expect_parse(cases[i].text, &expect, &err), cases[i].code);
        if (strstr(err.msg, cases[i].said) == NULL) {
            fail_msg("'%s' says: %s", cases[i].text, err.msg);
        }
        mst__expect_close(&expect);
    }
    /* Of brackets without end, and names that are too long. */
    char text[2000];
    struct mst__expect expect;
    for (size_t i = 0; i + 3 < sizeof text; i += 3) {
        memcpy(text + i, "[1]", 4);
    }
    assert_int_equal(mst__expect_parse(text, &expect, &err), MST_EINVAL);
    assert_non_null(strstr(err.msg, "longer than a name can be"));
    mst__expect_close(&expect);
}

static void who_is_there(void **state)
{
    (void)state;
    struct mst__expect expect;
    struct mst__buf text;
    int rv = 0;
    mst__buf_init(&text, 4096);
    assert_int_equal(mst__expect_parse("node[1-4],worker_7_8", &expect, &err), 0);
    assert_int_equal(mst__expect_missing(&expect, false), 5);
    mst__expect_begin(&expect);
    mst__expect_see(&expect, mst_bytes_str("node1_4711_803"));
    mst__expect_see(&expect, mst_bytes_str("node2.cluster.example_1_0"));
    mst__expect_see(&expect, mst_bytes_str("worker_7_8"));
    /* These are others. */
    mst__expect_see(&expect, mst_bytes_str("node33_1_0"));
    mst__expect_see(&expect, mst_bytes_str("node3x_1_0"));
    mst__expect_see(&expect, mst_bytes_str("node4_1"));
    mst__expect_see(&expect, mst_bytes_str("_1_0"));
    mst__expect_see(&expect, mst_bytes_str(""));
    assert_int_equal(mst__expect_missing(&expect, false), 2);
    mst__expect_put_missing(&expect, false, &text, &rv);
    assert_bytes(mst__buf_bytes(&text), mst_bytes_str("node3, node4"));
    /* Who has been there is remembered. */
    mst__expect_begin(&expect);
    mst__expect_see(&expect, mst_bytes_str("node4"));
    assert_int_equal(mst__expect_missing(&expect, false), 4);
    mst__buf_clear(&text);
    mst__expect_put_missing(&expect, true, &text, &rv);
    assert_bytes(mst__buf_bytes(&text), mst_bytes_str("node3"));
    mst__expect_close(&expect);
    /* Of many the first ones are named. */
    assert_int_equal(mst__expect_parse("n[1-50]", &expect, &err), 0);
    mst__buf_clear(&text);
    mst__expect_put_missing(&expect, false, &text, &rv);
    struct mst_bytes told = mst__buf_bytes(&text);
    static const char end[] = "n19, n20 and 30 more";
    assert_true(told.size > sizeof end);
    assert_bytes(mst_bytes_of(told.data + told.size - (sizeof end - 1), sizeof end - 1),
                 mst_bytes_str(end));
    assert_int_equal(rv, 0);
    mst__expect_close(&expect);
    mst__buf_close(&text);
}

static void without_memory(void **state)
{
    (void)state;
    int rv = MST_ENOMEM;
    for (unsigned long nth = 1; rv == MST_ENOMEM; nth++) {
        struct mst__expect expect;
        mst__mem_fail_nth(nth);
        rv = mst__expect_parse("node[1-3]", &expect, &err);
        bool has_failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        assert_int_equal(rv, has_failed ? MST_ENOMEM : 0);
        mst__expect_close(&expect);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),
        cmocka_unit_test(refused),
        cmocka_unit_test(who_is_there),
        cmocka_unit_test(without_memory),
    };
    return MST_RUN_TESTS(tests);
}
