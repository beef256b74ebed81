/* unit/codec/test_pickle.c - records written and read: every dialect, random states, unknown
 * attributes, cut and changed bytes, failing allocations; the packed datetime and base64. */
#include "base/base64.h"
#include "base/prng.h"
#include "codec/datetime.h"
#include "unit/codec/pickle_unit.h"

/* --- states to write --- */

static mst__peer_id obtain(struct mst__state *state,
                           const char *addr,
                           int64_t pid,
                           int64_t local_id)
{
    struct mst__node node = {.addr = mst_bytes_str(addr), .pid = pid, .local_id = local_id};
    mst__peer_id id;
    assert_int_equal(mst__state_obtain(state, &node, &id), 0);
    return id;
}

/* A number of any size: small ones and those at the edges of the opcodes are not rare. */
static int64_t random_number(struct mst__prng *prng)
{
    uint64_t raw = mst__prng_next(prng) >> (mst__prng_next(prng) % 64);
    int64_t number = (int64_t)(mst__prng_next(prng) % 3 == 0 ? UINT64_C(1) << raw % 63 : raw);
    return mst__prng_next(prng) % 4 == 0 ? -number : number;
}

static int64_t random_time(struct mst__prng *prng)
{
    uint64_t span = (uint64_t)(MST_DATETIME_MAX_US - MST_DATETIME_MIN_US) + 1;
    return mst__prng_next(prng) % 8 == 0
               ? (mst__prng_next(prng) % 2 == 0 ? MST_DATETIME_MIN_US : MST_DATETIME_MAX_US)
               : MST_DATETIME_MIN_US + (int64_t)(mst__prng_next(prng) % span);
}

static void random_state(struct mst__prng *prng,
                         enum mst__record_dialect dialect,
                         size_t count,
                         struct mst__state *ret_state)
{
    static const char *const addrs[] = {"",
                                        "a",
                                        "node1.example.org",
                                        "2001:db8::1",
                                        "b\303\274cher",
                                        "\xf0\x9f\x8c\x8d",
                                        "\xed\xb3\xbf not UTF-8"};
    mst__state_init(ret_state);
    ret_state->dialect = dialect;
    ret_state->round = random_number(prng);
    ret_state->complete = mst__prng_next(prng) % 2 == 0;
    ret_state->closed = mst__prng_next(prng) % 2 == 0;
    ret_state->has_deadline = mst__prng_next(prng) % 2 == 0;
    ret_state->deadline_us = ret_state->has_deadline ? random_time(prng) : 0;
    if (mst__prng_next(prng) % 2 == 0) {
        ret_state->sealed_round = random_number(prng);
        ret_state->sealed_count = 1 + (int64_t)(mst__prng_next(prng) % 10000);
    }
    for (size_t i = 0; i < count; i++) {
        char addr[400];
        (void)snprintf(addr, sizeof addr, "%s%*s", addrs[mst__prng_next(prng) % 7],
                       mst__prng_next(prng) % 10 == 0 ? 300 : 0, "");
        mst__peer_id id = obtain(ret_state, addr, random_number(prng), random_number(prng));
        uint64_t where = mst__prng_next(prng);
        if (where % 2 == 0) {
            assert_int_equal(mst__state_put_participant(ret_state, id, random_number(prng)), 0);
        }
        if (where / 2 % 4 == 0) {
            assert_int_equal(mst__state_put_waiting(ret_state, id), 0);
        }
        if (where / 8 % 4 == 0 && dialect >= MST_RECORD_D3) {
            assert_int_equal(mst__state_put_spare(ret_state, id), 0);
        }
        if (where / 32 % 4 != 0) {
            assert_int_equal(mst__state_put_heartbeat(ret_state, id, random_time(prng)), 0);
            if (where / 128 % 2 == 0) {
                mst__state_mark(ret_state, id);
            }
        }
    }
}

/* How a reader sees an empty or nearly empty record. */
static enum mst__record_dialect dialect_seen(const struct mst__state *state)
{
    bool has_nodes = state->participants.count + state->waiting.count + state->spares.count +
                         state->heartbeats.count >
                     0;
    bool has_times = state->heartbeats.count > 0 || state->has_deadline;
    if (state->dialect == MST_RECORD_D2 && !has_nodes) {
        return MST_RECORD_D1;
    }
    return state->dialect == MST_RECORD_D3 && !has_times ? MST_RECORD_D4 : state->dialect;
}

static void write_state(struct mst__buf *output, const struct mst__state *state)
{
    mst__buf_init(output, MST_PICKLE_SIZE_MAX);
    assert_int_equal(mst__pickle_write(output, state), 0);
}

static void assert_round_trip(struct mst__state *state)
{
    struct mst__buf output;
    write_state(&output, state);
    struct mst__state again;
    assert_reads(&output, &again);
    state->dialect = dialect_seen(state);
    assert_true(mst__state_equal(state, &again));
    assert_true(mst__state_equal(&again, state));
    mst__state_close(&again);
}

/* --- writing and reading --- */

static void round_trip_random(void **state)
{
    (void)state;
    struct mst__prng prng;
    mst__prng_init(&prng, 20261);
    for (size_t i = 0; i < 2000; i++) {
        struct mst__state record;
        random_state(&prng, (enum mst__record_dialect)(1 + i % 4), mst__prng_next(&prng) % 9,
                     &record);
        assert_round_trip(&record);
        mst__state_close(&record);
    }
}

/* More than one group, and more in the memo than a byte can name. */
static void round_trip_many(void **state)
{
    (void)state;
    static const size_t counts[] = {255, 256, 999, 1000, 1001, 2000, 2001};
    struct mst__prng prng;
    mst__prng_init(&prng, 20262);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (int dialect = MST_RECORD_D1; dialect <= MST_RECORD_D4; dialect++) {
            struct mst__state record;
            mst__state_init(&record);
            record.dialect = (enum mst__record_dialect)dialect;
            for (size_t j = 0; j < counts[i]; j++) {
                mst__peer_id id = obtain(&record, "host", (int64_t)j, 0);
                assert_int_equal(mst__state_put_participant(&record, id, (int64_t)j), 0);
                assert_int_equal(mst__state_put_waiting(&record, id), 0);
                assert_int_equal(mst__state_put_heartbeat(&record, id, random_time(&prng)), 0);
            }
            assert_round_trip(&record);
            mst__state_close(&record);
        }
    }
}

/* The exact bytes, once, so that an error on both sides cannot hide. */
static void exact_bytes(void **state)
{
    (void)state;
    struct mst__state record;
    mst__state_init(&record);
    record.round = 300;
    record.sealed_round = 7;
    record.sealed_count = 2;
    mst__peer_id id = obtain(&record, "a", 70000, 0);
    assert_int_equal(mst__state_put_participant(&record, id, 1), 0);
    assert_int_equal(mst__state_put_heartbeat(&record, id, A_TIME_US), 0);
    mst__state_mark(&record, id);
    struct mst__buf output;
    write_state(&output, &record);
    struct mst__buf wanted;
    mst__buf_init(&wanted, MST_KIB(4));
    assemble_into(
        &wanted,
        "80 04 \"torch.distributed.elastic.rendezvous.dynamic_rendezvous\" 94 "
        "\"_RendezvousState\" 93 29 81 7d 28 \"round\" 4d 2c 01 \"complete\" 89 "
        "\"deadline\" 4e \"closed\" 89 \"participants\" 7d 28 68 00 \"_NodeDesc\" 93 29 81 "
        "7d 28 \"addr\" \"a\" \"pid\" 4a 70 11 01 00 \"local_id\" 4b 00 75 62 94 4b 01 75 "
        "\"wait_list\" 8f \"redundancy_list\" 8f \"last_heartbeats\" 7d 28 68 01 "
        "\"datetime\" 94 \"datetime\" 93 @bytes 68 02 \"timezone\" 93 68 02 \"timedelta\" "
        "93 4b 00 4b 00 4b 00 87 52 85 52 86 52 75 \"muster_nodes\" 8f 28 68 01 90 "
        "\"muster_seal\" 4b 07 4b 02 86 75 62 2e");
    assert_bytes(mst__buf_bytes(&output), mst__buf_bytes(&wanted));
    mst__buf_close(&wanted);
    mst__buf_close(&output);
    /* As 1.13 has it. */
    record.dialect = MST_RECORD_D1;
    record.sealed_count = 0;
    record.members[id].is_ours = false;
    write_state(&output, &record);
    mst__buf_init(&wanted, MST_KIB(4));
    assemble_into(
        &wanted,
        "80 04 \"torch.distributed.elastic.rendezvous.dynamic_rendezvous\" 94 "
        "\"_RendezvousState\" 93 29 81 7d 28 \"round\" 4d 2c 01 \"complete\" 89 "
        "\"deadline\" 4e \"closed\" 89 \"participants\" 7d 28 68 00 \"_NodeDesc\" 93 29 81 "
        "7d 28 \"fqdn\" \"a\" \"pid\" 4a 70 11 01 00 \"local_id\" 4b 00 75 62 94 4b 01 75 "
        "\"wait_list\" 8f \"last_heartbeats\" 7d 28 68 01 \"datetime\" \"datetime\" 93 "
        "@bytes 85 52 75 75 62 2e");
    assert_bytes(mst__buf_bytes(&output), mst__buf_bytes(&wanted));
    mst__buf_close(&wanted);
    mst__buf_close(&output);
    mst__state_close(&record);
}

static void integers(void **state)
{
    (void)state;
    static const int64_t numbers[] = {0,
                                      1,
                                      255,
                                      256,
                                      65535,
                                      65536,
                                      INT32_MAX,
                                      INT64_C(0x80000000),
                                      INT64_C(0xffffffff),
                                      INT64_C(0x7fffffffff),
                                      INT64_C(0x8000000000),
                                      INT64_MAX - 1,
                                      INT64_MAX,
                                      -1,
                                      -255,
                                      -65536,
                                      INT32_MIN,
                                      INT64_C(-0x80000001),
                                      INT64_C(-0x8000000000),
                                      INT64_C(-0x8000000001),
                                      INT64_MIN + 1,
                                      INT64_MIN};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct mst__state record;
        mst__state_init(&record);
        record.round = numbers[i];
        mst__peer_id id = obtain(&record, "n", numbers[i], numbers[i]);
        assert_int_equal(mst__state_put_participant(&record, id, numbers[i]), 0);
        assert_round_trip(&record);
        mst__state_close(&record);
    }
    /* Other forms of the same numbers, as others may write them. */
    static const struct {
        const char *words;
        int64_t number;
    } forms[] = {{"8a 00", 0},
                 {"8a 01 ff", -1},
                 {"8a 02 ff 00", 255},
                 {"8a 02 ff ff", -1},
                 {"4a ff ff ff ff", -1},
                 {"4a 05 00 00 00", 5},
                 {"4d 05 00", 5},
                 {"8a 0a 00 00 00 00 00 00 00 80 ff ff", INT64_MIN},
                 {"8a 09 ff ff ff ff ff ff ff 7f 00", INT64_MAX},
                 {"8a 05 00 00 00 80 00", INT64_C(0x80000000)}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct mst__buf input;
        RECORD(&input, "round", forms[i].words);
        struct mst__state record;
        assert_reads(&input, &record);
        assert_true(record.round == forms[i].number);
        mst__state_close(&record);
    }
}

/* A state that no peer could read is not written. */
static void unwritable(void **state)
{
    (void)state;
    struct mst__buf output;
    mst__buf_init(&output, MST_KIB(4));
    assert_int_equal(mst__buf_append_u8(&output, 'x'), 0);
    struct mst__state record;
    mst__state_init(&record);
    mst__peer_id id = obtain(&record, "n", 1, 0);
    record.has_deadline = true;
    record.deadline_us = MST_DATETIME_MAX_US + 1;
    assert_int_equal(mst__pickle_write(&output, &record), MST_EINVAL);
    record.deadline_us = MST_DATETIME_MAX_US;
    assert_int_equal(mst__state_put_heartbeat(&record, id, MST_DATETIME_MIN_US - 1), 0);
    assert_int_equal(mst__pickle_write(&output, &record), MST_EINVAL);
    assert_int_equal(mst__state_put_heartbeat(&record, id, MST_DATETIME_MIN_US), 0);
    assert_int_equal(mst__state_put_spare(&record, id), 0);
    record.dialect = MST_RECORD_D2;
    assert_int_equal(mst__pickle_write(&output, &record), MST_EINVAL);
    record.dialect = MST_RECORD_D3;
    mst__peer_id bad = obtain(&record, "\xff", 1, 0);
    assert_int_equal(mst__state_put_waiting(&record, bad), 0);
    assert_int_equal(mst__pickle_write(&output, &record), MST_EINVAL);
    assert_true(mst__state_drop_waiting(&record, bad));
    assert_bytes_str(mst__buf_bytes(&output), "x");
    assert_int_equal(mst__pickle_write(&output, &record), 0);
    size_t size = mst__buf_size(&output);
    mst__buf_close(&output);
    /* Too little room: nothing is left behind. */
    for (size_t size_max = 1; size_max < size - 1; size_max++) {
        mst__buf_init(&output, size_max);
        assert_int_equal(mst__buf_append_u8(&output, 'x'), 0);
        assert_int_equal(mst__pickle_write(&output, &record), MST_ELIMIT);
        assert_bytes_str(mst__buf_bytes(&output), "x");
        mst__buf_close(&output);
    }
    mst__state_close(&record);
}

/* --- reading what others write --- */

static void dialects(void **state)
{
    (void)state;
    static const struct {
        const char *changes[5];
        enum mst__record_dialect dialect;
    } cases[] = {
        {{"round", "4b 00"}, MST_RECORD_D4},
        {{"redundancy_list", ""}, MST_RECORD_D1},
        {{"redundancy_list", "", "deadline", "@naive"}, MST_RECORD_D1},
        {{"redundancy_list", "", "wait_list", "8f 28 @a1 90"}, MST_RECORD_D2},
        {{"redundancy_list", "", "wait_list", "8f 28 @f1 90"}, MST_RECORD_D1},
        {{"wait_list", "8f 28 @f1 90"}, MST_RECORD_D1},
        {{"wait_list", "8f 28 @a1 90"}, MST_RECORD_D4},
        {{"deadline", "@naive"}, MST_RECORD_D3},
        {{"deadline", "@aware"}, MST_RECORD_D4},
        {{"last_heartbeats", "7d @a1 @naive 73"}, MST_RECORD_D3},
        {{"last_heartbeats", "7d @a1 @aware 73"}, MST_RECORD_D4},
        {{"redundancy_list", "", "last_heartbeats", "7d @a1 @naive 73"}, MST_RECORD_D2},
        {{"redundancy_list", "", "last_heartbeats", "7d @f1 @naive 73"}, MST_RECORD_D1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__buf input;
        assemble_record(&input, cases[i].changes);
        struct mst__state record;
        assert_reads(&input, &record);
        assert_int_equal(record.dialect, cases[i].dialect);
        assert_round_trip(&record);
        mst__state_close(&record);
    }
}

/* The last value of a key counts, its first place stays. Equal nodes are one node, same object or
 * not. */
static void repeated_keys(void **state)
{
    (void)state;
    struct mst__buf input;
    RECORD(&input, "participants", "7d 28 @a1 4b 05 @b2 4b 06 @a1 4b 07 75", "wait_list",
           "8f 28 @b2 @b2 90", "last_heartbeats", "7d 28 @b2 @aware @a1 @aware 75 @b2 @aware 73");
    /* As a second value of the same attribute. */
    mst__buf_truncate(&input, mst__buf_size(&input) - 3);
    assemble_into(&input, "\"round\" 4b 09 75 62 2e");
    struct mst__state record;
    assert_reads(&input, &record);
    assert_int_equal(record.round, 9);
    assert_int_equal(record.participants.count, 2);
    assert_int_equal(record.participants.ids[0], member(&record, "a", 1));
    assert_int_equal(record.members[record.participants.ids[0]].rank, 7);
    assert_int_equal(record.members[record.participants.ids[1]].rank, 6);
    assert_int_equal(record.waiting.count, 1);
    assert_int_equal(record.heartbeats.count, 2);
    assert_int_equal(record.heartbeats.ids[0], member(&record, "b", 2));
    assert_true(record.members[record.heartbeats.ids[0]].heartbeat_us == A_TIME_US);
    mst__state_close(&record);
}

/* Protocol 3 has sets made of lists, numbers of its own in the memo, and no frames. */
static void protocol_3(void **state)
{
    (void)state;
    struct mst__buf input;
    RECORD(&input, "participants", "7d 71 00 @a1 71 01 4b 00 73", "wait_list",
           "@set 5d 71 02 28 @b2 72 03 00 00 00 68 01 65 85 71 04 52 71 05", "redundancy_list",
           "@set 5d 6a 03 00 00 00 61 85 52", "last_heartbeats", "7d 68 01 @aware 73");
    struct mst__state record;
    assert_reads(&input, &record);
    assert_int_equal(record.waiting.count, 2);
    assert_int_equal(record.spares.count, 1);
    assert_int_equal(record.spares.ids[0], member(&record, "b", 2));
    assert_int_equal(record.heartbeats.ids[0], member(&record, "a", 1));
    mst__state_close(&record);
}

/* MEMOIZE takes the number of places in use, also among numbers that were chosen. */
static void memo(void **state)
{
    (void)state;
    struct mst__buf input;
    /* 0 and 5 are taken, so MEMOIZE writes place 2; 5 is then overwritten. */
    RECORD(&input, "wait_list", "8f 71 00 28 @b2 71 05 @a1 94 90", "last_heartbeats",
           "7d 68 02 @aware 73 68 05 71 05 @aware 73");
    struct mst__state record;
    assert_reads(&input, &record);
    assert_int_equal(record.heartbeats.ids[0], member(&record, "a", 1));
    assert_int_equal(record.heartbeats.ids[1], member(&record, "b", 2));
    mst__state_close(&record);
}

/* The marks of our nodes. Peers do not update them: a node that is gone does not come back by
 * its mark. */
static void marks(void **state)
{
    (void)state;
    struct mst__buf input;
    static const char nodes[] = "8f 28 @a1 @b2 @node 7d 28 \"addr\" \"gone\" \"pid\" 4b 01 "
                                "\"local_id\" 4b 00 75 62 90";
    RECORD(&input, "participants", "7d @b2 4b 00 73", "last_heartbeats", "7d @a1 @aware 73",
           "muster_nodes", nodes);
    struct mst__state record;
    assert_reads(&input, &record);
    assert_true(record.members[member(&record, "a", 1)].is_ours);
    assert_false(record.members[member(&record, "b", 2)].is_ours); /* it has no heartbeat */
    assert_int_equal(record.members_count, 2);
    assert_int_equal(record.extra.size, 0);
    assert_round_trip(&record);
    mst__state_close(&record);
}

static void seal(void **state)
{
    (void)state;
    struct mst__buf input;
    RECORD(&input, "muster_seal", "4b 03 4b 04 86");
    struct mst__state record;
    assert_reads(&input, &record);
    assert_true(record.sealed_round == 3 && record.sealed_count == 4);
    assert_int_equal(record.extra.size, 0);
    assert_round_trip(&record);
    mst__state_close(&record);
}

/* --- what is carried along --- */

static void carried(void **state)
{
    (void)state;
    static const struct {
        const char *found;
        const char *kept;
    } cases[] = {
        {"4e", "4e"},
        {"88", "88"},
        {"89", "89"},
        {"4a 05 00 00 00", "4b 05"},
        {"8a 02 ff ff", "4a ff ff ff ff"},
        {"8a 05 01 02 03 04 05", "8a 05 01 02 03 04 05"},
        {"8a 0b 01 02 03 04 05 06 07 08 09 00 00", "8a 09 01 02 03 04 05 06 07 08 09"},
        {"47 40 04 00 00 00 00 00 00", "47 40 04 00 00 00 00 00 00"},
        {"58 02 00 00 00 'ab'", "\"ab\""},
        {"8d 02 00 00 00 00 00 00 00 'ab'", "\"ab\""},
        {"58 00 01 00 00 *256 78", "58 00 01 00 00 *256 78"},
        {"42 01 00 00 00 79", "43 01 79"},
        {"29", "29"},
        {"28 74", "29"},
        {"28 4e 74", "4e 85"},
        {"4e 88 86", "4e 88 86"},
        {"4e 4e 4e 87", "4e 4e 4e 87"},
        {"28 4e 4e 4e 4e 74", "28 4e 4e 4e 4e 74"},
        {"7d", "7d"},
        {"7d 4e 88 73", "7d 28 4e 88 75"},
        {"7d 28 \"k\" 4e 75 \"l\" 89 73", "7d 28 \"k\" 4e \"l\" 89 75"},
        {"5d", "5d"},
        {"5d 4e 61 88 61", "5d 28 4e 88 65"},
        {"8f", "8f"},
        {"8f 28 4e 90", "8f 28 4e 90"},
        {"@set 5d 4e 61 85 52", "8f 28 4e 90"},
        {"\"twice\" 94 68 00 86", "\"twice\" \"twice\" 86"},
        {"5d 28 5d 94 68 00 29 7d \"d\" 5d 4e 61 73 65",
         "5d 28 5d 5d 29 7d 28 \"d\" 5d 28 4e 65 75 65"},
        {"@naive", "@naive"},
        {"@aware", "@aware"},
        {"@utc", "@utc"},
        {"8f 28 @a1 90", "8f 28 @a1 90"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__buf input;
        RECORD(&input, "zz_future", cases[i].found, "deadline", "@aware");
        struct mst__state record;
        assert_reads(&input, &record);
        struct mst__buf wanted;
        mst__buf_init(&wanted, MST_KIB(4));
        assemble_into(&wanted, "\"zz_future\"");
        assemble_into(&wanted, cases[i].kept);
        assert_bytes(mst_bytes_of(record.extra.data, record.extra.size), mst__buf_bytes(&wanted));
        mst__buf_close(&wanted);
        assert_round_trip(&record);
        mst__state_close(&record);
    }
}

static void carried_twice(void **state)
{
    (void)state;
    struct mst__buf input;
    RECORD(&input, "x", "4b 01", "y", "4b 02", "x", "4b 03");
    struct mst__state record;
    assert_reads(&input, &record);
    assert_bytes_str(mst_bytes_of(record.extra.data, record.extra.size),
                     "\x8c\x01xK\x03\x8c\x01yK\x02");
    assert_round_trip(&record);
    mst__state_close(&record);
}

/* An agent of 1.13 that found an empty record of a newer one takes its list of spares along. */
static void carried_spares(void **state)
{
    (void)state;
    struct mst__buf input;
    RECORD(&input, "wait_list", "8f 28 @f1 90");
    struct mst__state record;
    assert_reads(&input, &record);
    assert_int_equal(record.dialect, MST_RECORD_D1);
    assert_bytes_str(mst_bytes_of(record.extra.data, record.extra.size),
                     "\x8c\x0fredundancy_list\x8f");
    assert_round_trip(&record);
    /* Where the dialect has such a list, the state's own counts. */
    record.dialect = MST_RECORD_D4;
    assert_int_equal(mst__state_put_spare(&record, member(&record, "a", 1)), 0);
    write_state(&input, &record);
    struct mst__state again;
    assert_reads(&input, &again);
    assert_int_equal(again.spares.count, 1);
    assert_int_equal(again.extra.size, 0);
    mst__state_close(&again);
    mst__state_close(&record);
}

/* --- damage --- */

/* A record that uses everything, with marks, frames and both kinds of memo. */
static void everything(struct mst__buf *output)
{
    RECORD(output, "participants", "7d 94 28 @a1 94 4b 00 @b2 71 07 4b 01 75", "wait_list",
           "@set 5d 68 01 61 85 52", "last_heartbeats",
           "95 0c 00 00 00 00 00 00 00 7d 68 01 @aware 73", "zz", "7d 28 \"k\" 5d 28 4e 88 65 75");
}

static void cut_anywhere(void **state)
{
    (void)state;
    struct mst__buf inputs[5];
    everything(&inputs[0]);
    struct mst__prng prng;
    mst__prng_init(&prng, 20263);
    for (size_t i = 1; i < 5; i++) {
        struct mst__state record;
        random_state(&prng, (enum mst__record_dialect)i, 6, &record);
        write_state(&inputs[i], &record);
        mst__state_close(&record);
    }
    for (size_t i = 0; i < 5; i++) {
        struct mst_bytes whole = mst__buf_bytes(&inputs[i]);
        struct mst__state record;
        assert_int_equal(read_exact(whole, &record), 0);
        mst__state_close(&record);
        for (size_t size = 0; size < whole.size; size++) {
            assert_int_equal(read_exact(mst_bytes_of(whole.data, size), &record), MST_EPROTO);
        }
        mst__buf_close(&inputs[i]);
    }
}

/* Any one byte changed to anything: refused, or read as something that can be written. */
static void change_anywhere(void **state)
{
    (void)state;
    struct mst__buf input;
    everything(&input);
    uint8_t *bytes = input.memory + input.start;
    for (size_t i = 0; i < mst__buf_size(&input); i++) {
        uint8_t before = bytes[i];
        for (int value = 0; value < 256; value++) {
            bytes[i] = (uint8_t)value;
            struct mst__state record;
            int rv = read_exact(mst__buf_bytes(&input), &record);
            if (rv == 0) {
                assert_round_trip(&record);
            } else {
                assert_true(rv == MST_EPROTO || rv == MST_ELIMIT);
            }
            mst__state_close(&record);
        }
        bytes[i] = before;
    }
    mst__buf_close(&input);
}

static void fault_sweep(void **state)
{
    (void)state;
    struct mst__buf input;
    everything(&input);
    struct mst__state record;
    for (unsigned long nth = 1;; nth++) {
        mst__state_init(&record);
        err = (struct mst_err){0};
        mst__mem_fail_nth(nth);
        int rv = mst__pickle_read(mst__buf_bytes(&input), &record, &err);
        bool has_failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        if (!has_failed) {
            assert_int_equal(rv, 0);
            assert_true(nth > 6);
            break;
        }
        assert_int_equal(rv, MST_ENOMEM);
        assert_int_equal(err.code, MST_ENOMEM);
        assert_int_equal(record.members_count, 0);
    }
    mst__buf_close(&input);
    struct mst__buf output;
    for (unsigned long nth = 1;; nth++) {
        mst__buf_init(&output, MST_KIB(64));
        mst__mem_fail_nth(nth);
        int rv = mst__pickle_write(&output, &record);
        bool has_failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        if (!has_failed) {
            assert_int_equal(rv, 0);
            assert_true(nth > 2);
            break;
        }
        assert_int_equal(rv, MST_ENOMEM);
        assert_int_equal(mst__buf_size(&output), 0);
        mst__buf_close(&output);
    }
    mst__buf_close(&output);
    mst__state_close(&record);
}

/* --- datetime, text, base64 --- */

/* Every day there is, and its first and last microsecond. */
static void all_days(void **state)
{
    (void)state;
    int64_t day_us = INT64_C(86400000000);
    uint8_t raw[MST_DATETIME_SIZE];
    uint8_t before[MST_DATETIME_SIZE] = {0};
    for (int64_t us = MST_DATETIME_MIN_US; us < MST_DATETIME_MAX_US; us += day_us) {
        int64_t again;
        assert_true(mst__datetime_write(us, raw));
        assert_true(memcmp(before, raw, sizeof raw) < 0); /* packed times sort like times */
        assert_true(mst__datetime_read(raw, &again) && again == us);
        memcpy(before, raw, sizeof raw);
        assert_true(mst__datetime_write(us + day_us - 1, raw));
        assert_true(memcmp(before, raw, 4) == 0);
        assert_true(mst__datetime_read(raw, &again) && again == us + day_us - 1);
    }
    assert_false(mst__datetime_write(MST_DATETIME_MIN_US - 1, raw));
    assert_false(mst__datetime_write(MST_DATETIME_MAX_US + 1, raw));
    assert_false(mst__datetime_write(INT64_MIN, raw));
    assert_false(mst__datetime_write(INT64_MAX, raw));
    assert_true(mst__datetime_write(A_TIME_US, raw));
    assert_memory_equal(raw, "\x07\xea\x05\x08\x0d\x25\x2d\x01\xe2\x40", sizeof raw);
    assert_true(mst__datetime_write(0, raw));
    assert_memory_equal(raw, "\x07\xb2\x01\x01\0\0\0\0\0\0", sizeof raw);
    assert_true(mst__datetime_write(-1, raw));
    assert_memory_equal(raw, "\x07\xb1\x0c\x1f\x17\x3b\x3b\x0f\x42\x3f", sizeof raw);
}

static void base64(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *bytes; /* NULL = refused */
    } cases[] = {
        {"", ""},
        {"Zg==", "f"},
        {"Zm8=", "\146o"},
        {"Zm9v", "foo"},
        {"Zm9vYg==", "foob"},
        {"Zm9vYmE=", "fooba"},
        {"Zm9vYmFy", "foobar"},
        {"+/+/", "\xfb\xff\xbf"},
        /* Python drops unknown attributes, and stops at the padding. */
        {"Zm\n9v\r\n", "foo"},
        {" Z g = = ", "f"},
        {"-_Zm9v", "foo"},
        {"Zg==Zm9v", "f"},
        {"Zm8=!", "\146o"},
        {"=Zm9v", "foo"},
        {"Z=m9v", "foo"},
        {"Zm9v=", "foo"},
        {"Zm=9v", "foo"},
        {"Z", NULL},
        {"Zg", NULL},
        {"Zg=", NULL},
        {"Zm8", NULL},
        {"Zm9vZ", NULL},
        {"Z===", NULL},
        {"Zm9vYg=", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__buf output;
        mst__buf_init(&output, MST_KIB(1));
        assert_int_equal(mst__buf_append_u8(&output, '>'), 0);
        int rv = mst__base64_read(&output, mst_bytes_str(cases[i].text));
        assert_int_equal(rv, cases[i].bytes == NULL ? MST_EPROTO : 0);
        mst__buf_consume(&output, 1);
        assert_bytes_str(mst__buf_bytes(&output), cases[i].bytes == NULL ? "" : cases[i].bytes);
        mst__buf_close(&output);
    }
    struct mst__prng prng;
    mst__prng_init(&prng, 20264);
    uint8_t bytes[70];
    for (size_t size = 0; size <= sizeof bytes; size++) {
        for (size_t i = 0; i < size; i++) {
            bytes[i] = (uint8_t)mst__prng_next(&prng);
        }
        struct mst__buf text;
        struct mst__buf again;
        mst__buf_init(&text, MST_KIB(1));
        mst__buf_init(&again, MST_KIB(1));
        assert_int_equal(mst__base64_write(&text, mst_bytes_of(bytes, size)), 0);
        assert_int_equal(mst__buf_size(&text), (size + 2) / 3 * 4);
        assert_int_equal(mst__base64_read(&again, mst__buf_bytes(&text)), 0);
        assert_bytes(mst__buf_bytes(&again), mst_bytes_of(bytes, size));
        mst__buf_close(&text);
        mst__buf_close(&again);
    }
    struct mst__buf small;
    mst__buf_init(&small, 7);
    assert_int_equal(mst__base64_write(&small, mst_bytes_str("four")), MST_ELIMIT);
    assert_int_equal(mst__base64_read(&small, mst_bytes_str("Zm9vYmFyZm9v")), MST_ELIMIT);
    mst__mem_fail_nth(1);
    assert_int_equal(mst__base64_write(&small, mst_bytes_str("foo")), MST_ENOMEM);
    mst__mem_fail_nth(0);
    assert_int_equal(mst__buf_size(&small), 0);
    mst__buf_close(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip_random),
        cmocka_unit_test(round_trip_many),
        cmocka_unit_test(exact_bytes),
        cmocka_unit_test(integers),
        cmocka_unit_test(unwritable),
        cmocka_unit_test(dialects),
        cmocka_unit_test(repeated_keys),
        cmocka_unit_test(protocol_3),
        cmocka_unit_test(memo),
        cmocka_unit_test(seal),
        cmocka_unit_test(marks),
        cmocka_unit_test(carried),
        cmocka_unit_test(carried_twice),
        cmocka_unit_test(carried_spares),
        cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(change_anywhere),
        cmocka_unit_test(fault_sweep),
        cmocka_unit_test(all_days),
        cmocka_unit_test(base64),
    };
    return MST_RUN_TESTS(tests);
}
