/* unit/kv/test_kv_steps.c - the cost of commands, in steps of the engine: proportional to their
 * input and effects, however much else the engine holds. Each test builds something large and
 * repeats a small command as often as it fits into one read of the server. */
#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/siphash.h"
#include "kv/entry.h"
#include "unit/unit.h"

/* Requests are at least so large that so many arrive at once, but LIST_KEYS, which is one byte. */
enum { AT_ONCE = 4096, CROWD = 20000, VALUE_SIZE = 1 << 23 };

struct fixture {
    struct mst__kv kv;
    struct mst__kv_client *clients; /* CROWD of them, and one */
};

static struct mst__kv_client *boss(struct fixture *f)
{
    return &f->clients[CROWD];
}

static void fixture_open(struct fixture *f)
{
    static const uint8_t hash_key[MST_SIPHASH_KEY_SIZE] = {5};
    const struct mst__kv_limits limits = {
        .memory_max = MST_GIB(1), .reply_max = MST_MIB(64), .value_max = VALUE_SIZE};
    mst__kv_init(&f->kv, &limits, hash_key);
    f->clients = mst__calloc(CROWD + 1, sizeof *f->clients);
    assert_non_null(f->clients);
    for (size_t i = 0; i <= CROWD; i++) {
        mst__kv_client_init(&f->clients[i]);
    }
}

/* How many notices there were. */
static size_t drain(struct fixture *f)
{
    size_t count = 0;
    struct mst__kv_notice notice;
    while (mst__kv_next_released(&f->kv) != NULL) {
    }
    while (mst__kv_next_notice(&f->kv, &notice)) {
        count++;
    }
    return count;
}

static void fixture_close(struct fixture *f)
{
    for (size_t i = 0; i <= CROWD; i++) {
        mst__kv_client_close(&f->kv, &f->clients[i]);
        (void)drain(f); /* news for the others */
    }
    mst__kv_close(&f->kv);
    mst__free(f->clients);
}

static struct mst__reply apply(struct fixture *f,
                               struct mst__kv_client *client,
                               const struct mst__command *command)
{
    struct mst__reply reply;
    assert_int_equal(mst__kv_apply(&f->kv, client, command, &reply), 0);
    return reply;
}

/* @command, @times over: how many steps. */
static uint64_t steps_of(struct fixture *f, const struct mst__command *command, int times)
{
    uint64_t before = f->kv.steps;
    for (int i = 0; i < times; i++) {
        (void)apply(f, boss(f), command);
        (void)drain(f);
    }
    return f->kv.steps - before;
}

static void wait_for(struct fixture *f, struct mst__kv_client *client, struct mst_bytes key)
{
    struct mst__buf items;
    mst__buf_init(&items, 1000);
    assert_int_equal(mst__buf_append_str(&items, key), 0);
    const struct mst__command command = {
        .op = MST_OP_WAIT, .count = 1, .items = mst__buf_bytes(&items)};
    assert_int_equal(apply(f, client, &command).kind, MST_REPLY_LATER);
    mst__buf_close(&items);
}

static struct mst_bytes numbered(const char *prefix, size_t number, char ret_text[32])
{
    return mst_bytes_of(ret_text, (size_t)snprintf(ret_text, 32, "%s%zu", prefix, number));
}

static void set(struct fixture *f, const char *key, struct mst_bytes value)
{
    const struct mst__command command = {
        .op = MST_OP_SET, .key = mst_bytes_str(key), .value = value};
    (void)apply(f, boss(f), &command);
    (void)drain(f);
}

static void the_large_value(struct fixture *f, const char *key)
{
    uint8_t *bytes = mst__calloc(1, VALUE_SIZE);
    assert_non_null(bytes);
    set(f, key, mst_bytes_of(bytes, VALUE_SIZE - AT_ONCE));
    mst__free(bytes);
}

/* Keys that are only waited for are not looked at. */
static void list_keys(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    for (size_t i = 0; i < CROWD; i++) {
        char text[32];
        wait_for(&f, &f.clients[i], numbered("/w", i, text));
    }
    set(&f, "/a", mst_bytes_str("1"));
    set(&f, "/b", mst_bytes_str("1"));
    const struct mst__command delete = {.op = MST_OP_DELETE, .key = mst_bytes_str("/a")};
    (void)apply(&f, boss(&f), &delete);
    const struct mst__command list = {.op = MST_OP_LIST_KEYS};
    assert_int_equal(apply(&f, boss(&f), &list).number, 1);
    assert_true(steps_of(&f, &list, MST_READ_SIZE) <= 2 * MST_READ_SIZE);
    fixture_close(&f);
}

/* A list is made in parts, and is the same in the end; it may be given up. */
static void list_in_parts(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    f.kv.limits.part_max = MST_KIB(4);
    for (size_t i = 0; i < CROWD; i++) {
        char text[32];
        set(&f, (const char *)numbered("/", i, text).data, mst_bytes_str("1"));
    }
    const struct mst__command list = {.op = MST_OP_LIST_KEYS};
    uint64_t before = f.kv.steps;
    struct mst__reply reply = apply(&f, boss(&f), &list);
    assert_int_equal(reply.number, CROWD);
    struct mst_bytes items = reply.bytes;
    size_t count = 0;
    size_t size = 0;
    for (;;) {
        struct mst_bytes key;
        assert_in_range(items.size, 1, MST_KIB(4) + 32);
        assert_in_range(f.kv.steps - before, 1, MST_KIB(4) / 8);
        before = f.kv.steps;
        size += items.size;
        while (mst__items_next(&items, &key)) {
            count++;
        }
        assert_int_equal(items.size, 0);
        if (!mst__kv_is_listing(&f.kv)) {
            break;
        }
        assert_int_equal(mst__kv_list_next(&f.kv, &items), 0);
    }
    assert_int_equal(count, CROWD);
    assert_int_equal(size, f.kv.keys_size);
    (void)apply(&f, boss(&f), &list);
    assert_true(mst__kv_is_listing(&f.kv));
    mst__kv_client_close(&f.kv, boss(&f));
    assert_false(mst__kv_is_listing(&f.kv));
    set(&f, "/x", mst_bytes_str("1"));
    fixture_close(&f);
}

/* A large value is hashed once for all readers, and again after a change. */
static void fingerprints(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    the_large_value(&f, "/v");
    const struct mst__command ask = {
        .op = MST_OP_WAIT_CHANGE, .key = mst_bytes_str("/v"), .number = 1};
    assert_int_equal(apply(&f, boss(&f), &ask).kind, MST_REPLY_STATUS);
    assert_true(steps_of(&f, &ask, AT_ONCE) <= 2 * AT_ONCE);
    const struct mst__command append = {
        .op = MST_OP_APPEND, .key = mst_bytes_str("/v"), .value = mst_bytes_str("x")};
    (void)apply(&f, boss(&f), &append);
    assert_in_range(steps_of(&f, &ask, 1), VALUE_SIZE / 1024 - 8, VALUE_SIZE / 1024 + 8);
    fixture_close(&f);
}

/* A write that changes nothing does not visit clients that wait for a change; one that does,
 * releases them. */
static void changes_that_are_none(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    set(&f, "/v", mst_bytes_str("same"));
    const struct mst__command wait = {
        .op = MST_OP_WAIT_CHANGE,
        .key = mst_bytes_str("/v"),
        .number = (int64_t)mst__fingerprint(mst_bytes_str("same")),
    };
    for (size_t i = 0; i < CROWD; i++) {
        assert_int_equal(apply(&f, &f.clients[i], &wait).kind, MST_REPLY_LATER);
    }
    struct mst__command write = {
        .op = MST_OP_SET, .key = mst_bytes_str("/v"), .value = mst_bytes_str("same")};
    assert_true(steps_of(&f, &write, AT_ONCE) <= 2 * AT_ONCE);
    write.op = MST_OP_COMPARE_SET;
    write.expected = write.value;
    assert_true(steps_of(&f, &write, AT_ONCE) <= 2 * AT_ONCE);
    write.value = mst_bytes_str("other");
    assert_true(steps_of(&f, &write, 1) >= CROWD);
    assert_false(mst__kv_is_waiting(&f.clients[0]));
    fixture_close(&f);
}

/* Items are for clients that wait for the key: the others are not visited. */
static void pushes(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    const struct mst__command barrier = {
        .op = MST_OP_BARRIER, .key = mst_bytes_str("/b"), .number = CROWD + 1};
    for (size_t i = 0; i < CROWD; i++) {
        assert_int_equal(apply(&f, &f.clients[i], &barrier).kind, MST_REPLY_LATER);
    }
    const struct mst__command push = {.op = MST_OP_QUEUE_PUSH, .key = mst_bytes_str("/b")};
    assert_true(steps_of(&f, &push, AT_ONCE) <= 2 * AT_ONCE);
    fixture_close(&f);
}

/* A client in a barrier that counts a key up and down wakes clients that wait for a change, and
 * does not visit the others in the barrier. */
static void barriers(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    const struct mst__command barrier = {
        .op = MST_OP_BARRIER, .key = mst_bytes_str("/b"), .number = CROWD + 1};
    for (size_t i = 0; i + 1 < CROWD; i++) {
        assert_int_equal(apply(&f, &f.clients[i], &barrier).kind, MST_REPLY_LATER);
    }
    assert_int_equal(apply(&f, boss(&f), &barrier).kind, MST_REPLY_LATER);
    char text[32];
    struct mst_bytes count = numbered("", CROWD, text);
    const struct mst__command wait = {.op = MST_OP_WAIT_CHANGE,
                                      .key = mst_bytes_str("/b"),
                                      .number = (int64_t)mst__fingerprint(count)};
    uint64_t steps = 0;
    for (int i = 0; i < AT_ONCE; i++) {
        assert_int_equal(apply(&f, &f.clients[CROWD - 1], &wait).kind, MST_REPLY_LATER);
        steps += steps_of(&f, &barrier, 1);
        assert_false(mst__kv_is_waiting(&f.clients[CROWD - 1]));
    }
    assert_true(steps <= 6 * AT_ONCE);
    fixture_close(&f);
}

static void watch(struct fixture *f, struct mst__kv_client *client, struct mst_bytes key)
{
    const struct mst__command command = {.op = MST_OP_WATCH, .key = key};
    assert_int_equal(apply(f, client, &command).status, MST_STATUS_WATCHING);
}

/* A repeated watch of a key counts once, and each change is reported once. */
static void watches_of_one_key(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < 2 * MST_WATCHES_MAX; j++) {
            watch(&f, &f.clients[i], mst_bytes_str("/k"));
        }
        assert_int_equal(f.clients[i].watches_count, 1);
    }
    const struct mst__command write = {
        .op = MST_OP_SET, .key = mst_bytes_str("/k"), .value = mst_bytes_str("v")};
    (void)apply(&f, boss(&f), &write);
    assert_int_equal(drain(&f), 4);
    assert_true(steps_of(&f, &write, AT_ONCE) <= 6 * AT_ONCE);
    fixture_close(&f);
}

/* A watcher goes without a look at the others. */
static void watchers_go(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    for (size_t i = 0; i < CROWD; i++) {
        watch(&f, &f.clients[i], mst_bytes_str("/k"));
        watch(&f, &f.clients[i], mst_bytes_str("/l"));
    }
    uint64_t before = f.kv.steps;
    /* From the middle outwards, so that neither end of a list is near. */
    for (size_t i = 0; i < CROWD; i++) {
        size_t index = i % 2 == 0 ? CROWD / 2 - 1 - i / 2 : CROWD / 2 + i / 2;
        mst__kv_client_close(&f.kv, &f.clients[index]);
    }
    assert_int_equal(f.kv.steps - before, 2 * CROWD + 2); /* and two entries */
    assert_int_equal(f.kv.memory_used, 0);
    fixture_close(&f);
}

/* Watchers that lost a notice are told without a search among all keys. */
static void notices_lost(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    for (size_t i = 0; i < CROWD; i++) {
        char text[32];
        set(&f, (const char *)numbered("/other", i, text).data, mst_bytes_str(""));
    }
    for (size_t i = 0; i < 1000; i++) {
        watch(&f, &f.clients[i], mst_bytes_str("/k"));
    }
    const struct mst__command write = {
        .op = MST_OP_SET, .key = mst_bytes_str("/k"), .value = mst_bytes_str("v")};
    uint64_t before = f.kv.steps;
    struct mst__reply reply;
    mst__mem_fail_nth(2); /* behind the block of the value */
    assert_int_equal(mst__kv_apply(&f.kv, boss(&f), &write, &reply), 0);
    assert_true(mst__mem_failed());
    mst__mem_fail_nth(0);
    /* One closes before it is told. */
    mst__kv_client_close(&f.kv, &f.clients[500]);
    assert_int_equal(drain(&f), 999);
    assert_true(f.kv.steps - before <= 2500);
    fixture_close(&f);
}

/* Released clients that close before they are told leave their list without a walk. */
static void released_go(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    for (size_t i = 0; i < CROWD; i++) {
        wait_for(&f, &f.clients[i], mst_bytes_str("/k"));
    }
    const struct mst__command write = {.op = MST_OP_SET, .key = mst_bytes_str("/k")};
    (void)apply(&f, boss(&f), &write);
    uint64_t before = f.kv.steps;
    for (size_t i = 1; i < CROWD; i += 2) {
        mst__kv_client_close(&f.kv, &f.clients[i]);
    }
    assert_int_equal(f.kv.steps - before, CROWD / 2);
    for (size_t i = 0; i < CROWD; i += 2) {
        assert_ptr_equal(mst__kv_next_released(&f.kv), &f.clients[i]);
    }
    assert_null(mst__kv_next_released(&f.kv));
    fixture_close(&f);
}

/* A value that grows byte by byte is not copied for each, be memory short or not. */
static void appends(void **state)
{
    (void)state;
    for (int is_short = 0; is_short < 2; is_short++) {
        struct fixture f;
        fixture_open(&f);
        the_large_value(&f, "/v");
        if (is_short) {
            f.kv.limits.memory_max = f.kv.memory_used + VALUE_SIZE + 100000;
        }
        const struct mst__command append = {
            .op = MST_OP_APPEND, .key = mst_bytes_str("/v"), .value = mst_bytes_str("x")};
        assert_true(steps_of(&f, &append, AT_ONCE) <= 2 * AT_ONCE + 2 * (VALUE_SIZE >> 10));
        fixture_close(&f);
    }
}

/* Copied and compared bytes count. */
static void bytes_count(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    uint64_t before = f.kv.steps;
    the_large_value(&f, "/v");
    assert_true(f.kv.steps - before >= (VALUE_SIZE - AT_ONCE) >> 10);
    struct mst__buf items;
    mst__buf_init(&items, 1000);
    assert_int_equal(mst__buf_append_str(&items, mst_bytes_str("/v")), 0);
    const struct mst__command get = {
        .op = MST_OP_MULTI_GET, .count = 1, .items = mst__buf_bytes(&items)};
    assert_true(steps_of(&f, &get, 1) >= (VALUE_SIZE - AT_ONCE) >> 10);
    mst__buf_close(&items);
    watch(&f, &f.clients[0], mst_bytes_str("/v"));
    const struct mst__command delete = {.op = MST_OP_DELETE, .key = mst_bytes_str("/v")};
    assert_true(steps_of(&f, &delete, 1) >= 2 * ((VALUE_SIZE - AT_ONCE) >> 10));
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_keys),
        cmocka_unit_test(list_in_parts),
        cmocka_unit_test(fingerprints),
        cmocka_unit_test(changes_that_are_none),
        cmocka_unit_test(pushes),
        cmocka_unit_test(barriers),
        cmocka_unit_test(watches_of_one_key),
        cmocka_unit_test(watchers_go),
        cmocka_unit_test(notices_lost),
        cmocka_unit_test(released_go),
        cmocka_unit_test(appends),
        cmocka_unit_test(bytes_count),
    };
    return MST_RUN_TESTS(tests);
}
