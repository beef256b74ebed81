/* unit/net/test_job_losses.c - the list of the nodes of a job that were lost last. */
#include "net/job_losses.h"
#include "unit/unit.h"

static void add(struct mst__job_losses *losses, const char *name, int64_t round)
{
    mst__job_losses_add(losses, mst_bytes_str(name), round, round * 1000);
}

static void expect(const struct mst__job_losses *losses,
                   size_t index,
                   const char *name,
                   int64_t round)
{
    assert_true(index < losses->count);
    assert_bytes_str(mst__job_losses_name(losses, index), name);
    assert_int_equal(losses->nodes[index].round, round);
    assert_int_equal(losses->nodes[index].lost_us, round * 1000);
}

static void last_ones_are_kept(void **state)
{
    (void)state;
    struct mst__job_losses losses = {0};
    for (int64_t i = 0; i < MST_JOB_LOST_MAX + 3; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "node%lld", (long long)i);
        add(&losses, name, i);
    }
    assert_int_equal(losses.count, MST_JOB_LOST_MAX);
    assert_int_equal(losses.unlisted, 3);
    expect(&losses, 0, "node3", 3);
    expect(&losses, MST_JOB_LOST_MAX - 1, "node10", 10);
}

/* Names have a bound together as well, and each fits. */
static void long_names_are_fewer(void **state)
{
    (void)state;
    struct mst__job_losses losses = {0};
    char name[MST_AUTHORITY_NAME_SIZE_MAX + 1] = {0};
    add(&losses, "short", 1);
    for (int c = 'a'; c < 'e'; c++) {
        memset(name, c, MST_AUTHORITY_NAME_SIZE_MAX);
        add(&losses, name, c);
    }
    assert_int_equal(losses.count, 2);
    assert_int_equal(losses.unlisted, 3);
    expect(&losses, 1, name, 'd');
    memset(name, 'c', MST_AUTHORITY_NAME_SIZE_MAX);
    expect(&losses, 0, name, 'c');
}

/* A node is there once, and not at all after it has come back. */
static void nodes_are_there_once(void **state)
{
    (void)state;
    struct mst__job_losses losses = {0};
    add(&losses, "a", 1);
    add(&losses, "bb", 2);
    add(&losses, "c", 3);
    add(&losses, "a", 4);
    assert_int_equal(losses.count, 3);
    expect(&losses, 0, "bb", 2);
    expect(&losses, 2, "a", 4);
    mst__job_losses_forget(&losses, mst_bytes_str("c"));
    mst__job_losses_forget(&losses, mst_bytes_str("b"));
    assert_int_equal(losses.count, 2);
    expect(&losses, 0, "bb", 2);
    expect(&losses, 1, "a", 4);
    assert_int_equal(losses.unlisted, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_ones_are_kept),
        cmocka_unit_test(long_names_are_fewer),
        cmocka_unit_test(nodes_are_there_once),
    };
    return MST_RUN_TESTS(tests);
}
