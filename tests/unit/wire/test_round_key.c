/* unit/wire/test_round_key.c - the keys of a round: each round has its own prefix, for any run
 * id, and a key shows its round. */
#include <stdio.h>
#include <string.h>

#include "unit/unit.h"
#include "wire/round_key.h"

/* The key `x/y` of a round, as it is on the wire. */
static struct mst_bytes make_key(struct mst_bytes run_id, uint64_t epoch, int64_t round)
{
    static char key[MST_ROUND_PREFIX_SIZE + 8];
    char prefix[MST_ROUND_PREFIX_SIZE];
    mst__round_prefix(run_id, epoch, round, prefix);
    (void)snprintf(key, sizeof key, "/%s/x/y", prefix);
    return mst_bytes_str(key);
}

static void text(void **state)
{
    (void)state;
    char prefix[MST_ROUND_PREFIX_SIZE];
    mst__round_prefix(mst_bytes_str("my-job_1.a"), 1751234567890123, 4, prefix);
    assert_string_equal(prefix, "muster.my-job_1.a.1751234567890123.4");
    mst__round_prefix(mst_bytes_str("a/b %\xc3\xa4"), 1, 2, prefix);
    assert_string_equal(prefix, "muster.a%2Fb%20%25%C3%A4.1.2");
}

static void there_and_back(void **state)
{
    (void)state;
    char longest[MST_JOB_RUN_ID_SIZE_MAX];
    memset(longest, '/', sizeof longest);
    const struct mst_bytes run_ids[] = {
        mst_bytes_str("job"),
        mst_bytes_str("a.5"),
        mst_bytes_str("a.5.6"),
        mst_bytes_str("."),
        mst_bytes_str("1"),
        mst_bytes_str("a/b"),
        mst_bytes_str("%2F"),
        mst_bytes_of("\0\xff", 2),
        mst_bytes_str("..1"),
        mst_bytes_str("/1.2/"),
        mst_bytes_of(longest, sizeof longest),
    };
    const uint64_t epochs[] = {1, 10, UINT64_MAX};
    const int64_t rounds[] = {1, 20, INT64_MAX};
    for (size_t i = 0; i < sizeof run_ids / sizeof run_ids[0]; i++) {
        for (size_t j = 0; j < 3; j++) {
            struct mst__round_key key;
            assert_true(mst__round_key_read(make_key(run_ids[i], epochs[j], rounds[j]), &key));
            assert_true(key.epoch == epochs[j]);
            assert_true(key.round == rounds[j]);
            assert_bytes(mst_bytes_of(key.run_id, key.run_id_size), run_ids[i]);
        }
    }
}

/* No key of others, and no two ways to write one. */
static void others(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "",
        "/",
        "/muster.",
        "/muster./x",
        "/muster.job.1.2",
        "muster.job.1.2/x",
        "/muster.job.1/x",
        "/muster.1.2/x",
        "/muster..1.2/x",
        "/muster.job.1./x",
        "/muster.job..2/x",
        "/muster.job.01.2/x",
        "/muster.job.1.02/x",
        "/muster.job.1.-2/x",
        "/muster.job.1.2x/x",
        "/muster.job.18446744073709551616.2/x",
        "/muster.job.1.9223372036854775808/x",
        "/muster.jo b.1.2/x",
        "/muster.job%2.1.2/x",
        "/muster.job%.1.2/x",
        "/muster.job%G0.1.2/x",
        "/muster.join/finished",
        "/torch.rendezvous.job.1/x",
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct mst__round_key key;
        if (mst__round_key_read(mst_bytes_str(keys[i]), &key)) {
            fail_msg("'%s' is taken for a key of a round", keys[i]);
        }
    }
    char longest[3 * MST_ROUND_PREFIX_SIZE];
    struct mst__round_key key;
    memset(longest, 'a', sizeof longest);
    struct mst_bytes begin = mst_bytes_str("/muster.");
    struct mst_bytes end = mst_bytes_str(".1.2/x");
    memcpy(longest, begin.data, begin.size);
    memcpy(longest + sizeof longest - end.size, end.data, end.size);
    assert_false(mst__round_key_read(mst_bytes_of(longest, sizeof longest), &key));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(others),
    };
    return MST_RUN_TESTS(tests);
}
