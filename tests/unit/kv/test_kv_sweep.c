/* unit/kv/test_kv_sweep.c - dead keys are removed in parts: the size of a part, changes between
 * two parts, and the news for waiting and watching clients. */
#include <stdio.h>

#include "base/limits.h"
#include "base/siphash.h"
#include "kv/entry.h"
#include "unit/unit.h"

enum { KEYS = 1000 };

static const uint8_t hash_key[MST_SIPHASH_KEY_SIZE] = {3};

struct fixture {
    struct mst__kv kv;
    struct mst__kv_client writer;
    struct mst__kv_client other;
    size_t asked; /* how often it was asked whether a key is dead */
};

static void fixture_open(struct fixture *f)
{
    const struct mst__kv_limits limits = {
        .memory_max = MST_MIB(64), .reply_max = MST_MIB(1), .value_max = MST_MIB(1)};
    *f = (struct fixture){.asked = 0};
    mst__kv_init(&f->kv, &limits, hash_key);
    mst__kv_client_init(&f->writer);
    mst__kv_client_init(&f->other);
}

static void fixture_close(struct fixture *f)
{
    mst__kv_client_close(&f->kv, &f->writer);
    mst__kv_client_close(&f->kv, &f->other);
    mst__kv_close(&f->kv);
}

static struct mst__reply apply(struct fixture *f,
                               struct mst__kv_client *client,
                               const struct mst__command *command)
{
    struct mst__reply reply = {0};
    assert_int_equal(mst__kv_apply(&f->kv, client, command, &reply), 0);
    return reply;
}

static void write_key(struct fixture *f, enum mst__op op, const char *key, const char *value)
{
    const struct mst__command command = {
        .op = op, .key = mst_bytes_str(key), .value = mst_bytes_str(value)};
    (void)apply(f, &f->writer, &command);
}

static int64_t ask(struct fixture *f, enum mst__op op, const char *key)
{
    const struct mst__command command = {.op = op, .key = mst_bytes_str(key)};
    return apply(f, &f->writer, &command).number;
}

static bool exists(const struct fixture *f, const char *key)
{
    return mst__kv_entry_is_ready(mst__map_get(&f->kv.map, mst_bytes_str(key)));
}

/* Keys with a `d` behind the slash are dead. */
static bool is_dead(void *arg, struct mst_bytes key)
{
    struct fixture *f = arg;
    f->asked++;
    return key.size > 1 && key.data[1] == 'd';
}

static bool sweep(struct fixture *f, size_t steps)
{
    return mst__kv_sweep(&f->kv, steps, is_dead, f);
}

static void sweep_all(struct fixture *f, size_t steps)
{
    mst__kv_sweep_begin(&f->kv);
    while (sweep(f, steps)) {
    }
}

/* KEYS keys, every second one dead. */
static void fill(struct fixture *f)
{
    char key[16];
    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(key, sizeof key, "/%c%d", i % 2 == 0 ? 'd' : 'k', i);
        write_key(f, MST_OP_SET, key, "value");
    }
}

static void the_dead_go_and_their_memory(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fill(&f);
    size_t with_all = f.kv.memory_used;
    sweep_all(&f, 7);
    assert_int_equal(f.kv.keys_count, KEYS / 2);
    assert_int_equal(mst__map_count(&f.kv.map), KEYS / 2);
    assert_true(f.kv.memory_used <= with_all / 2 + KEYS);
    assert_true(exists(&f, "/k1"));
    assert_false(exists(&f, "/d0"));
    sweep_all(&f, 7); /* nothing is left to do */
    assert_int_equal(f.kv.keys_count, KEYS / 2);
    fixture_close(&f);
}

/* Keys that are moved together between two parts are met all the same. */
static void while_keys_move(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fill(&f);
    mst__kv_sweep_begin(&f.kv);
    while (sweep(&f, 5)) {
        mst__kv_compact_begin(&f.kv);
        while (mst__kv_compact(&f.kv, 1000, true)) {
        }
    }
    assert_int_equal(f.asked, KEYS);
    assert_int_equal(f.kv.keys_count, KEYS / 2);
    assert_false(exists(&f, "/d998"));
    fixture_close(&f);
}

static void one_part_is_bounded(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    fill(&f);
    mst__kv_sweep_begin(&f.kv);
    size_t parts = 1;
    while (f.asked = 0, sweep(&f, 10)) {
        assert_in_range(f.asked, 1, 10);
        parts++;
    }
    /* Half of them are removed, which is a step more for each. */
    assert_in_range(parts, KEYS / 10 + 1, (KEYS + KEYS / 2) / 10 + 1);
    fixture_close(&f);
}

/* A large value counts for more than a small one, and so does each item of a queue. */
static void large_values_and_queues_count(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    static uint8_t large[MST_KIB(400)];
    const struct mst__command set = {
        .op = MST_OP_SET, .key = mst_bytes_str("/d"), .value = mst_bytes_of(large, sizeof large)};
    (void)apply(&f, &f.writer, &set);
    write_key(&f, MST_OP_SET, "/k", "");
    mst__kv_sweep_begin(&f.kv);
    assert_true(sweep(&f, 50)); /* the value alone is worth 100 */
    assert_int_equal(f.asked, 1);
    assert_false(sweep(&f, 50));
    for (int i = 0; i < 25; i++) {
        write_key(&f, MST_OP_QUEUE_PUSH, "/dq", "item");
    }
    mst__kv_sweep_begin(&f.kv);
    assert_true(sweep(&f, 12)); /* two keys, and the first ten items */
    assert_int_equal(ask(&f, MST_OP_QUEUE_LEN, "/dq"), 15);
    assert_true(sweep(&f, 11));
    assert_int_equal(ask(&f, MST_OP_QUEUE_LEN, "/dq"), 5);
    assert_false(sweep(&f, 11));
    assert_int_equal(mst__map_count(&f.kv.map), 1);
    fixture_close(&f);
}

/* Between two parts anything may go, also the key that is the next, and come. */
static void others_go_on_between_two_parts(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    write_key(&f, MST_OP_SET, "/k0", "");
    write_key(&f, MST_OP_SET, "/d1", "");
    write_key(&f, MST_OP_SET, "/d2", "");
    write_key(&f, MST_OP_SET, "/k3", "");
    mst__kv_sweep_begin(&f.kv);
    assert_true(sweep(&f, 1));
    assert_int_equal(ask(&f, MST_OP_DELETE, "/d1"), 1);
    assert_int_equal(ask(&f, MST_OP_DELETE, "/d2"), 1);
    write_key(&f, MST_OP_SET, "/d4", "");
    assert_true(sweep(&f, 1));
    assert_int_equal(ask(&f, MST_OP_DELETE, "/k0"), 1);
    assert_false(sweep(&f, 9));
    assert_true(exists(&f, "/k3"));
    assert_int_equal(mst__map_count(&f.kv.map), 1);
    assert_int_equal(ask(&f, MST_OP_DELETE, "/k3"), 1);
    assert_false(sweep(&f, 9)); /* over is over */
    fixture_close(&f);
}

/* A client that waits for a change of a dead key hears of it; one that waits for the key itself
 * goes on waiting. */
static void those_who_wait(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    write_key(&f, MST_OP_SET, "/d", "v");
    const struct mst__kv_entry *entry = mst__map_get(&f.kv.map, mst_bytes_str("/d"));
    struct mst__command wait = {.op = MST_OP_WAIT_CHANGE, .key = mst_bytes_str("/d")};
    assert_int_equal(apply(&f, &f.other, &wait).kind, MST_REPLY_STATUS); /* it is not absent */
    wait.number = (int64_t)mst__siphash((const uint8_t[MST_SIPHASH_KEY_SIZE]){0},
                                        entry->block->bytes, entry->block->size);
    assert_int_equal(apply(&f, &f.other, &wait).kind, MST_REPLY_LATER);
    sweep_all(&f, 100);
    assert_ptr_equal(mst__kv_next_released(&f.kv), &f.other);
    assert_null(mst__kv_next_released(&f.kv));
    struct mst__buf items;
    mst__buf_init(&items, 100);
    assert_int_equal(mst__buf_append_str(&items, mst_bytes_str("/d")), 0);
    const struct mst__command again = {
        .op = MST_OP_WAIT, .count = 1, .items = mst__buf_bytes(&items)};
    assert_int_equal(apply(&f, &f.other, &again).kind, MST_REPLY_LATER);
    sweep_all(&f, 100);
    assert_null(mst__kv_next_released(&f.kv));
    assert_true(mst__kv_is_waiting(&f.other));
    mst__buf_close(&items);
    fixture_close(&f);
}

static void those_who_watch(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    write_key(&f, MST_OP_SET, "/d", "v");
    const struct mst__command watch = {.op = MST_OP_WATCH, .key = mst_bytes_str("/d")};
    (void)apply(&f, &f.other, &watch);
    sweep_all(&f, 100);
    struct mst__kv_notice notice;
    assert_true(mst__kv_next_notice(&f.kv, &notice));
    assert_int_equal(notice.change, MST_KV_DELETED);
    assert_bytes_str(notice.key, "/d");
    assert_false(mst__kv_next_notice(&f.kv, &notice));
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_dead_go_and_their_memory),
        cmocka_unit_test(while_keys_move),
        cmocka_unit_test(one_part_is_bounded),
        cmocka_unit_test(large_values_and_queues_count),
        cmocka_unit_test(others_go_on_between_two_parts),
        cmocka_unit_test(those_who_wait),
        cmocka_unit_test(those_who_watch),
    };
    return MST_RUN_TESTS(tests);
}
