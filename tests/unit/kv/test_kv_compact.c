/* unit/kv/test_kv_compact.c - keys and values are moved together, and their pages go back.
 * test_kv_model.c tests the references to moved values. */
#include <stdio.h>

#include "base/limits.h"
#include "base/siphash.h"
#include "kv/entry.h"
#include "unit/unit.h"

enum { KEYS = 1 << 17, KEPT = 32, VALUE_SIZE = 150, PART_STEPS = 1000 };

static const uint8_t hash_key[MST_SIPHASH_KEY_SIZE] = {4};

static void command(struct mst__kv *kv, struct mst__kv_client *client, enum mst__op op, size_t i)
{
    char key[32];
    char value[VALUE_SIZE];
    int size = snprintf(key, sizeof key, "/%zu", i);
    memset(value, (int)(i % 256), sizeof value);
    struct mst__command command = {.op = op, .key = mst_bytes_of(key, (size_t)size)};
    if (op == MST_OP_SET) {
        command.value = mst_bytes_of(value, sizeof value);
    }
    struct mst__reply reply;
    assert_int_equal(mst__kv_apply(kv, client, &command, &reply), 0);
    if (op == MST_OP_GET) {
        assert_bytes(reply.bytes, mst_bytes_of(value, sizeof value));
    }
}

/* Of many keys every 32nd is left: too few that a page would be free without moving them. */
static void holes_go_back(void **state)
{
    (void)state;
    const struct mst__kv_limits limits = {
        .memory_max = MST_MIB(256), .reply_max = MST_MIB(1), .value_max = MST_MIB(1)};
    struct mst__kv kv;
    struct mst__kv_client client;
    mst__kv_init(&kv, &limits, hash_key);
    mst__kv_client_init(&client);
    size_t empty = mst__mem_resident();
    for (size_t i = 0; i < KEYS; i++) {
        command(&kv, &client, MST_OP_SET, i);
    }
    size_t full = mst__mem_resident();
    for (size_t i = 0; i < KEYS; i++) {
        if (i % KEPT != 0) {
            command(&kv, &client, MST_OP_DELETE, i);
        }
    }
    size_t holes = kv.slabs.free_size;
    size_t used = kv.memory_used;
    mst__kv_compact_begin(&kv);
    uint64_t before = kv.steps;
    while (mst__kv_compact(&kv, PART_STEPS, false)) {
        assert_in_range(kv.steps - before, PART_STEPS, PART_STEPS + 4);
        before = kv.steps;
    }
    assert_int_equal(kv.memory_used, used);
    for (size_t i = 0; i < KEYS; i += KEPT) {
        command(&kv, &client, MST_OP_GET, i);
    }
    if (!MST_MEM_IS_SANITIZED) {
        assert_true(holes > MST_MIB(32));
        assert_true(kv.slabs.free_size < holes / 16);
        assert_true(mst__mem_resident() - empty < (full - empty) / 8);
    }
    mst__kv_client_close(&kv, &client);
    mst__kv_close(&kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(holes_go_back)};
    return MST_RUN_TESTS(tests);
}
