/* unit/wire/test_wire.c - the codec: every operation in every dialect there and back, cut at
 * every byte; limits; input that is not a TCPStore request; replies as a client reads them. The
 * vectors of real clients are golden scripts. */
#include "base/limits.h"
#include "base/mem.h"
#include "muster/error.h"
#include "unit/unit.h"
#include "wire/opcode.h"
#include "wire/wire.h"

static const enum mst__dialect dialects[] = {MST_DIALECT_A, MST_DIALECT_B, MST_DIALECT_C};

/* The numbers as the protocol defines them, apart from the table under test; -1 = there is none. */
static const int opcode_numbers[MST_OP_COUNT][3] = {
    [MST_OP_SET] = {0, 0, 1},
    [MST_OP_COMPARE_SET] = {1, 1, 2},
    [MST_OP_GET] = {2, 2, 3},
    [MST_OP_ADD] = {3, 3, 4},
    [MST_OP_CHECK] = {4, 4, 5},
    [MST_OP_WAIT] = {5, 5, 6},
    [MST_OP_NUM_KEYS] = {6, 6, 7},
    [MST_OP_WATCH] = {7, -1, -1},
    [MST_OP_DELETE] = {8, 7, 8},
    [MST_OP_APPEND] = {-1, 8, 9},
    [MST_OP_MULTI_GET] = {-1, 9, 10},
    [MST_OP_MULTI_SET] = {-1, 10, 11},
    [MST_OP_CANCEL_WAIT] = {-1, 11, 12},
    [MST_OP_PING] = {-1, -1, 13},
    [MST_OP_QUEUE_PUSH] = {-1, -1, 14},
    [MST_OP_QUEUE_POP] = {-1, -1, 15},
    [MST_OP_QUEUE_LEN] = {-1, -1, 16},
    [MST_OP_LIST_KEYS] = {-1, -1, 17},
    [MST_OP_BARRIER] = {-1, -1, 18},
    [MST_OP_WAIT_CHANGE] = {-1, -1, 0x41},
};

static void opcodes(void **state)
{
    (void)state;
    for (size_t d = 0; d < 3; d++) {
        int found = 0;
        int wanted = 0;
        for (int opcode = 0; opcode < 256; opcode++) {
            enum mst__op op;
            if (mst__opcode_find(dialects[d], (uint8_t)opcode, &op)) {
                found++;
                assert_int_equal(opcode_numbers[op][d], opcode);
            }
        }
        for (enum mst__op op = 0; op < MST_OP_COUNT; op++) {
            bool has = opcode_numbers[op][d] >= 0;
            wanted += has ? 1 : 0;
            assert_int_equal(mst__wire_has_op(dialects[d], op), has);
            assert_int_equal(mst__opcode_in(dialects[d], op),
                             has ? opcode_numbers[op][d] : MST_OPCODE_NONE);
        }
        assert_int_equal(found, wanted);
    }
    assert_false(mst__wire_has_op(MST_DIALECT_LEGACY, MST_OP_SET));
    assert_false(mst__wire_has_op(MST_DIALECT_UNKNOWN, MST_OP_SET));
}

static const struct mst__wire_limits limits = {.key_size_max = 32,
                                               .value_size_max = 64,
                                               .message_size_max = 256};

/* One command of every operation, with different bytes in every field. */
static struct mst__command sample(enum mst__op op, struct mst__buf *items)
{
    struct mst__command command = {.op = op};
    mst__buf_clear(items);
    switch (mst__opcode_of(op)->shape) {
        case MST_SHAPE_EMPTY:
            break;
        case MST_SHAPE_NONCE:
            command.number = 0xfedcba98;
            break;
        case MST_SHAPE_KEY_VALUE_VALUE:
            command.expected = mst_bytes_of("\x01\0e", 3);
            /* fall through */
        case MST_SHAPE_KEY_VALUE:
            command.value = mst_bytes_str("the value");
            /* fall through */
        case MST_SHAPE_KEY:
            command.key = mst_bytes_str("/key");
            break;
        case MST_SHAPE_KEY_NUMBER:
            command.key = mst_bytes_str("/counter");
            command.number = -2;
            break;
        case MST_SHAPE_KEYS:
        case MST_SHAPE_PAIRS:
            command.count = op == MST_OP_MULTI_SET ? 2 : 4;
            assert_int_equal(mst__buf_append_str(items, mst_bytes_str("/a")), 0);
            assert_int_equal(mst__buf_append_str(items, mst_bytes_str("")), 0);
            assert_int_equal(mst__buf_append_str(items, mst_bytes_str("/long/er/key")), 0);
            assert_int_equal(mst__buf_append_str(items, mst_bytes_str("/c")), 0);
            command.items = mst__buf_bytes(items);
            break;
    }
    return command;
}

static void assert_command(const struct mst__command *is, const struct mst__command *wanted)
{
    assert_int_equal(is->op, wanted->op);
    assert_bytes(is->key, wanted->key);
    assert_bytes(is->value, wanted->value);
    assert_bytes(is->expected, wanted->expected);
    assert_true(is->number == wanted->number);
    assert_true(is->count == wanted->count);
    assert_bytes(is->items, wanted->items);
}

/* Bring a fresh reader to @dialect through the protocol. */
static void reader_enter(struct mst__wire_reader *reader, enum mst__dialect dialect)
{
    mst__wire_reader_init(reader);
    struct mst__command command;
    size_t size = 0;
    struct mst_err err;
    if (dialect == MST_DIALECT_C) {
        struct mst_bytes validate = mst_bytes_of("\0\xce\xf7\x85\x3c", 5);
        assert_int_equal(mst__wire_read_request(reader, &limits, validate, &command, &size, &err),
                         MST_WIRE_VALIDATE);
        assert_int_equal(size, 5);
    } else if (dialect == MST_DIALECT_B) {
        assert_int_equal(
            mst__wire_read_request(reader, &limits, mst_bytes_of("\x0b", 1), &command, &size, &err),
            MST_WIRE_REQUEST);
    } else {
        struct mst_bytes delete_ = mst_bytes_of("\x08\0\0\0\0\0\0\0\0", 9);
        assert_int_equal(mst__wire_read_request(reader, &limits, delete_, &command, &size, &err),
                         MST_WIRE_EITHER);
        mst__wire_settle_a(reader);
        assert_int_equal(mst__wire_read_request(reader, &limits, delete_, &command, &size, &err),
                         MST_WIRE_REQUEST);
        assert_int_equal(command.op, MST_OP_DELETE);
    }
    assert_int_equal(reader->dialect, dialect);
}

/* Read @bytes as they grow from @first on, each time from a block of exactly that size. */
static void read_growing(struct mst__wire_reader *reader,
                         struct mst_bytes bytes,
                         size_t first,
                         const struct mst__command *wanted)
{
    struct mst__command command;
    size_t size = 0;
    size_t promised = 0;
    for (size_t have = first; have <= bytes.size; have++) {
        char *copy = mst__memdup(bytes.data, have);
        /* Without the NUL that memdup adds. */
        copy = mst__realloc(copy, have == 0 ? 1 : have);
        int rv = mst__wire_read_request(reader, &limits, mst_bytes_of(copy, have), &command, &size,
                                        NULL);
        if (have < bytes.size) {
            assert_int_equal(rv, MST_WIRE_MORE);
            assert_true(size > have);
            assert_true(size <= bytes.size);
            /* The requested bytes were really needed. */
            assert_true(size >= promised);
            promised = size;
        } else {
            assert_int_equal(rv, MST_WIRE_REQUEST);
            assert_int_equal(size, bytes.size);
            assert_command(&command, wanted);
        }
        mst__free(copy);
    }
}

static void requests_there_and_back(void **state)
{
    (void)state;
    struct mst__buf items;
    struct mst__buf out;
    mst__buf_init(&items, 1000);
    mst__buf_init(&out, 1000);
    for (size_t d = 0; d < 3; d++) {
        for (enum mst__op op = 0; op < MST_OP_COUNT; op++) {
            struct mst__command command = sample(op, &items);
            mst__buf_clear(&out);
            int rv = mst__wire_write_request(&out, dialects[d], &command);
            if (opcode_numbers[op][d] < 0) {
                assert_int_equal(rv, MST_ENOTSUP);
                assert_int_equal(mst__buf_size(&out), 0);
                continue;
            }
            assert_int_equal(rv, 0);
            struct mst_bytes bytes = mst__buf_bytes(&out);
            assert_int_equal(bytes.data[0], opcode_numbers[op][d]);
            struct mst__wire_reader reader;
            for (size_t first = 0; first <= bytes.size; first++) {
                reader_enter(&reader, dialects[d]);
                read_growing(&reader, bytes, first, &command);
            }
            /* And again on the same connection: nothing is left of the request before. */
            read_growing(&reader, bytes, 0, &command);
        }
    }
    mst__buf_close(&items);
    mst__buf_close(&out);
}

/* With more behind it a request takes its own bytes only. */
static void requests_one_by_one(void **state)
{
    (void)state;
    struct mst__buf items;
    struct mst__buf out;
    mst__buf_init(&items, 1000);
    mst__buf_init(&out, 10000);
    size_t ends[MST_OP_COUNT] = {0};
    for (enum mst__op op = 0; op < MST_OP_COUNT; op++) {
        struct mst__command command = sample(op, &items);
        if (op != MST_OP_WATCH) {
            assert_int_equal(mst__wire_write_request(&out, MST_DIALECT_C, &command), 0);
        }
        ends[op] = mst__buf_size(&out);
    }
    struct mst__wire_reader reader;
    reader_enter(&reader, MST_DIALECT_C);
    size_t at = 0;
    for (enum mst__op op = 0; op < MST_OP_COUNT; op++) {
        if (op == MST_OP_WATCH) {
            continue;
        }
        struct mst__command command;
        size_t size = 0;
        assert_int_equal(mst__wire_read_request(&reader, &limits,
                                                mst__bytes_skip(mst__buf_bytes(&out), at), &command,
                                                &size, NULL),
                         MST_WIRE_REQUEST);
        struct mst__command wanted = sample(op, &items);
        assert_command(&command, &wanted);
        at += size;
        assert_int_equal(at, ends[op]);
    }
    mst__buf_close(&items);
    mst__buf_close(&out);
}

static int read_hex(enum mst__dialect dialect, const char *hex, struct mst_err *reterr)
{
    uint8_t raw[512];
    size_t size = 0;
    for (const char *c = hex; *c != '\0'; c++) {
        if (*c == ' ') {
            continue;
        }
        unsigned byte = 0;
        assert_int_equal(sscanf(c, "%2x", &byte), 1);
        raw[size++] = (uint8_t)byte;
        c++;
    }
    struct mst__wire_reader reader;
    if (dialect == MST_DIALECT_UNKNOWN) {
        mst__wire_reader_init(&reader);
    } else {
        reader_enter(&reader, dialect);
    }
    struct mst__command command;
    size_t taken = 0;
    return mst__wire_read_request(&reader, &limits, mst_bytes_of(raw, size), &command, &taken,
                                  reterr);
}

static void limits_are_exact(void **state)
{
    (void)state;
    struct mst_err err = {0};
    /* Keys of 32, 33 and 2^64 - 1 bytes: refused by their length before a byte of them is there. */
    assert_int_equal(read_hex(MST_DIALECT_C, "03 2000000000000000", &err), MST_WIRE_MORE);
    assert_int_equal(read_hex(MST_DIALECT_C, "03 2100000000000000", &err), MST_ELIMIT);
    assert_string_equal(err.msg, "key of 33 bytes, the limit is 32");
    assert_int_equal(read_hex(MST_DIALECT_C, "03 ffffffffffffffff", &err), MST_ELIMIT);
    assert_int_equal(read_hex(MST_DIALECT_C, "01 0000000000000000 4000000000000000", &err),
                     MST_WIRE_MORE);
    assert_int_equal(read_hex(MST_DIALECT_C, "01 0000000000000000 4100000000000000", &err),
                     MST_ELIMIT);
    assert_string_equal(err.msg, "value of 65 bytes, the limit is 64");
    /* Keys in a request: 131072, one more, and so many that the product would overflow. */
    assert_int_equal(read_hex(MST_DIALECT_C, "05 0000020000000000", &err), MST_WIRE_MORE);
    assert_int_equal(read_hex(MST_DIALECT_C, "05 0100020000000000", &err), MST_ELIMIT);
    assert_int_equal(read_hex(MST_DIALECT_C, "0b 0000000000000080", &err), MST_ELIMIT);
    /* A value in a MULTI_SET may be longer than a key, but a key may not. */
    assert_int_equal(
        read_hex(MST_DIALECT_C, "0b 0100000000000000 0000000000000000 4000000000000000", &err),
        MST_WIRE_MORE);
    assert_int_equal(read_hex(MST_DIALECT_C, "0b 0100000000000000 2100000000000000", &err),
                     MST_ELIMIT);
}

static void whole_message_is_limited(void **state)
{
    (void)state;
    struct mst__buf out;
    mst__buf_init(&out, 10000);
    struct mst__wire_reader reader;
    reader_enter(&reader, MST_DIALECT_C);
    assert_int_equal(mst__buf_append_u8(&out, 5), 0);
    assert_int_equal(mst__buf_append_u64(&out, 100), 0);
    struct mst__command command;
    struct mst_err err = {0};
    size_t size = 0;
    int rv = MST_WIRE_MORE;
    while (rv == MST_WIRE_MORE) {
        /* A reader that let more than the limit pass would be seen here. */
        assert_true(mst__buf_size(&out) <= limits.message_size_max);
        assert_int_equal(mst__buf_append_str(&out, mst_bytes_str("/key/of/20/bytes/abc")), 0);
        rv = mst__wire_read_request(&reader, &limits, mst__buf_bytes(&out), &command, &size, &err);
    }
    assert_int_equal(rv, MST_ELIMIT);
    assert_string_equal(err.msg, "limit reached (request of more than 256 bytes)");
    /* It is refused by the length of its last key, before a byte of that is there. */
    mst__buf_clear(&out);
    reader_enter(&reader, MST_DIALECT_C);
    assert_int_equal(mst__buf_append_u8(&out, 5), 0);
    assert_int_equal(mst__buf_append_u64(&out, 100), 0);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(mst__buf_append_str(&out, mst_bytes_str("/key/of/20/bytes/abc")), 0);
    }
    assert_int_equal(
        mst__wire_read_request(&reader, &limits, mst__buf_bytes(&out), &command, &size, &err),
        MST_WIRE_MORE);
    assert_int_equal(mst__buf_append_u64(&out, 20), 0);
    assert_int_equal(
        mst__wire_read_request(&reader, &limits, mst__buf_bytes(&out), &command, &size, &err),
        MST_ELIMIT);
    mst__buf_close(&out);
}

static void server_limits_hold_any_request(void **state)
{
    (void)state;
    struct mst__wire_limits small = mst__wire_limits(8, 8);
    assert_int_equal(small.message_size_max, MST_MESSAGE_SIZE_MAX);
    struct mst__wire_limits large = mst__wire_limits(MST_KEY_SIZE_MAX, MST_VALUE_SIZE_MAX);
    assert_true(large.message_size_max >= 25 + MST_KEY_SIZE_MAX + 2 * MST_VALUE_SIZE_MAX);
}

static void strangers(void **state)
{
    (void)state;
    static const struct {
        enum mst__dialect dialect;
        const char *hex;
        const char *msg;
    } rows[] = {
        {MST_DIALECT_UNKNOWN, "ff", "unknown opcode 0xff, not a TCPStore client"},
        {MST_DIALECT_UNKNOWN, "47455420", "unknown opcode 0x47, looks like HTTP"},
        {MST_DIALECT_UNKNOWN, "47", "unknown opcode 0x47, looks like HTTP"},
        {MST_DIALECT_UNKNOWN, "504f5354", "unknown opcode 0x50, looks like HTTP"},
        {MST_DIALECT_UNKNOWN, "16030100", "unknown opcode 0x16, looks like TLS"},
        {MST_DIALECT_UNKNOWN, "0c", "unknown opcode 0x0c, not a TCPStore client"},
        {MST_DIALECT_UNKNOWN, "00 01020304",
         "starts with 0x04030201: neither VALIDATE nor the length of a key"},
        {MST_DIALECT_C, "00 cef7853c", "unknown opcode 0x00"},
        {MST_DIALECT_C, "13", "unknown opcode 0x13"},
        {MST_DIALECT_A, "09", "unknown opcode 0x09"},
        {MST_DIALECT_B, "0c", "unknown opcode 0x0c"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mst_err err = {0};
        assert_int_equal(read_hex(rows[i].dialect, rows[i].hex, &err), MST_EPROTO);
        assert_string_equal(err.msg, rows[i].msg);
        assert_int_equal(err.code, MST_EPROTO);
    }
}

static void dialect_names(void **state)
{
    (void)state;
    assert_string_equal(mst__dialect_name(MST_DIALECT_UNKNOWN), "unknown");
    assert_string_equal(mst__dialect_name(MST_DIALECT_LEGACY), "legacy");
    assert_string_equal(mst__dialect_name(MST_DIALECT_A), "A");
    assert_string_equal(mst__dialect_name(MST_DIALECT_B), "B");
    assert_string_equal(mst__dialect_name(MST_DIALECT_C), "C");
}

static void validate_spelling(void **state)
{
    (void)state;
    struct mst__buf out;
    mst__buf_init(&out, 100);
    assert_int_equal(mst__wire_write_validate(&out), 0);
    assert_bytes(mst__buf_bytes(&out), mst_bytes_of("\0\xce\xf7\x85\x3c", 5));
    mst__buf_close(&out);
}

/* --- replies --- */

/* A reply of the kind that @op has, with strs of its own. */
static struct mst__reply sample_reply(const struct mst__command *command, struct mst__buf *items)
{
    struct mst__reply reply = {.kind = mst__opcode_of(command->op)->reply};
    mst__buf_clear(items);
    switch (reply.kind) {
        case MST_REPLY_STATUS:
            reply.status = command->op == MST_OP_CHECK         ? MST_STATUS_NOT_READY
                           : command->op == MST_OP_CANCEL_WAIT ? MST_STATUS_WAIT_CANCELED
                           : command->op == MST_OP_WATCH       ? MST_STATUS_WATCHING
                                                               : MST_STATUS_STOP_WAITING;
            break;
        case MST_REPLY_NUMBER:
            reply.number = -5;
            break;
        case MST_REPLY_BYTES:
            reply.bytes = mst_bytes_of("a\0b", 3);
            break;
        case MST_REPLY_POP:
            reply.number = 3;
            reply.bytes = mst_bytes_str("item");
            break;
        case MST_REPLY_ECHO:
            reply.number = 0x89abcdef;
            break;
        case MST_REPLY_LIST:
            reply.number = 2;
            /* fall through */
        case MST_REPLY_ITEMS: {
            uint64_t count = reply.kind == MST_REPLY_LIST ? 2 : command->count;
            for (uint64_t i = 0; i < count; i++) {
                assert_int_equal(mst__buf_append_str(items, mst_bytes_of("xyz", i % 4)), 0);
            }
            reply.bytes = mst__buf_bytes(items);
            break;
        }
        case MST_REPLY_NONE:
        case MST_REPLY_LATER:
            break;
    }
    return reply;
}

static void replies_there_and_back(void **state)
{
    (void)state;
    struct mst__buf request_items;
    struct mst__buf reply_items;
    struct mst__buf out;
    mst__buf_init(&request_items, 1000);
    mst__buf_init(&reply_items, 1000);
    mst__buf_init(&out, 1000);
    for (enum mst__op op = 0; op < MST_OP_COUNT; op++) {
        struct mst__command command = sample(op, &request_items);
        struct mst__reply wanted = sample_reply(&command, &reply_items);
        mst__buf_clear(&out);
        assert_int_equal(mst__wire_write_reply(&out, &wanted), 0);
        struct mst_bytes bytes = mst__buf_bytes(&out);
        for (size_t have = 0; have <= bytes.size; have++) {
            char *copy = mst__realloc(mst__memdup(bytes.data, have), have == 0 ? 1 : have);
            struct mst__reply reply = {0};
            size_t size = 0;
            int rv = mst__wire_read_reply(&command, &limits, mst_bytes_of(copy, have), &reply,
                                          &size, NULL);
            if (have < bytes.size) {
                assert_int_equal(rv, MST_WIRE_MORE);
                assert_in_range(size, have + 1, bytes.size);
            } else {
                assert_int_equal(rv, MST_WIRE_REQUEST);
                assert_int_equal(size, bytes.size);
                assert_int_equal(reply.kind, wanted.kind);
                assert_int_equal(reply.status, wanted.status);
                assert_true(reply.number == wanted.number);
                assert_bytes(reply.bytes, wanted.bytes);
            }
            mst__free(copy);
        }
    }
    mst__buf_close(&request_items);
    mst__buf_close(&reply_items);
    mst__buf_close(&out);
}

static int read_reply_bytes(enum mst__op op, uint64_t count, const char *bytes, size_t size)
{
    struct mst__command command = {.op = op, .count = count};
    struct mst__reply reply;
    size_t taken = 0;
    struct mst_err err = {0};
    int rv =
        mst__wire_read_reply(&command, &limits, mst_bytes_of(bytes, size), &reply, &taken, &err);
    if (rv < 0) {
        assert_int_equal(err.code, rv);
        assert_true(err.msg[0] != '\0');
    }
    return rv;
}

static void status_bytes_are_checked(void **state)
{
    (void)state;
    static const struct {
        enum mst__op op;
        int highest;
        int lowest;
    } rows[] = {{MST_OP_CHECK, 1, 0},       {MST_OP_WAIT, 0, 0},        {MST_OP_BARRIER, 0, 0},
                {MST_OP_WAIT_CHANGE, 0, 0}, {MST_OP_CANCEL_WAIT, 1, 0}, {MST_OP_WATCH, 3, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int byte = 0; byte < 256; byte++) {
            char raw = (char)byte;
            bool fine = byte >= rows[i].lowest && byte <= rows[i].highest;
            assert_int_equal(read_reply_bytes(rows[i].op, 0, &raw, 1),
                             fine ? MST_WIRE_REQUEST : MST_EPROTO);
        }
    }
}

static void cancel_may_meet_the_end_of_the_wait(void **state)
{
    (void)state;
    struct mst__command command = {.op = MST_OP_CANCEL_WAIT};
    struct mst__reply reply;
    size_t size = 0;
    assert_int_equal(
        mst__wire_read_reply(&command, &limits, mst_bytes_of("\0\1", 2), &reply, &size, NULL),
        MST_WIRE_REQUEST);
    assert_int_equal(reply.status, MST_STATUS_STOP_WAITING);
    assert_int_equal(size, 1);
    assert_int_equal(
        mst__wire_read_reply(&command, &limits, mst_bytes_of("\1", 1), &reply, &size, NULL),
        MST_WIRE_REQUEST);
    assert_int_equal(reply.status, MST_STATUS_WAIT_CANCELED);
}

static void replies_are_limited(void **state)
{
    (void)state;
    static const char huge[] = "\xff\xff\xff\xff\xff\xff\xff\xff";
    assert_int_equal(read_reply_bytes(MST_OP_GET, 0, huge, 8), MST_ELIMIT);
    assert_int_equal(read_reply_bytes(MST_OP_GET, 0, "\xf8\0\0\0\0\0\0\0", 8), MST_WIRE_MORE);
    assert_int_equal(read_reply_bytes(MST_OP_GET, 0, "\xf9\0\0\0\0\0\0\0", 8), MST_ELIMIT);
    assert_int_equal(read_reply_bytes(MST_OP_MULTI_GET, 2, huge, 8), MST_ELIMIT);
    assert_int_equal(read_reply_bytes(MST_OP_LIST_KEYS, 0, huge, 8), MST_EPROTO);
    /* Many empty keys in a list are refused when they fill the message, not counted for ever. */
    char raw[300] = {0};
    memset(raw + 1, 0x7f, 7);
    assert_int_equal(read_reply_bytes(MST_OP_LIST_KEYS, 0, raw, 200), MST_WIRE_MORE);
    assert_int_equal(read_reply_bytes(MST_OP_LIST_KEYS, 0, raw, sizeof raw), MST_ELIMIT);
    /* An empty queue, or a length that makes no sense: no item follows. */
    assert_int_equal(read_reply_bytes(MST_OP_QUEUE_POP, 0, raw + 100, 8), MST_WIRE_REQUEST);
    assert_int_equal(read_reply_bytes(MST_OP_QUEUE_POP, 0, huge, 8), MST_WIRE_REQUEST);
}

static void notices(void **state)
{
    (void)state;
    struct mst__buf out;
    mst__buf_init(&out, 100);
    assert_int_equal(mst__wire_write_notice(&out, MST_NOTICE_DELETED, mst_bytes_str("k"),
                                            mst_bytes_str("old"), mst_bytes_of(NULL, 0)),
                     0);
    assert_bytes(mst__buf_bytes(&out),
                 mst_bytes_of("\x02\x01\0\0\0\0\0\0\0k\x03\0\0\0\0\0\0\0old\0\0\0\0\0\0\0\0", 29));
    /* A message that does not fit is not written in part. */
    char large[60] = {0};
    assert_int_equal(mst__wire_write_notice(&out, MST_NOTICE_UPDATED, mst_bytes_str("k"),
                                            mst_bytes_str("old"),
                                            mst_bytes_of(large, sizeof large)),
                     MST_ELIMIT);
    assert_int_equal(mst__buf_size(&out), 29);
    mst__buf_close(&out);
}

/* Each write meets a failing allocation and a buffer that is too small by one: the output is then
 * as it was. */
static void writes_fail_cleanly(void **state)
{
    (void)state;
    struct mst__buf items;
    struct mst__buf reply_items;
    struct mst__buf whole;
    mst__buf_init(&items, 1000);
    mst__buf_init(&reply_items, 1000);
    mst__buf_init(&whole, 1000);
    for (enum mst__op op = 0; op < MST_OP_COUNT; op++) {
        struct mst__command command = sample(op, &items);
        struct mst__reply reply = sample_reply(&command, &reply_items);
        enum mst__dialect dialect = op == MST_OP_WATCH ? MST_DIALECT_A : MST_DIALECT_C;
        for (int is_reply = 0; is_reply < 2; is_reply++) {
            mst__buf_clear(&whole);
            assert_int_equal(is_reply ? mst__wire_write_reply(&whole, &reply)
                                      : mst__wire_write_request(&whole, dialect, &command),
                             0);
            size_t size = mst__buf_size(&whole);
            for (size_t room = 1; room < size; room++) {
                struct mst__buf out;
                mst__buf_init(&out, room);
                assert_int_equal(is_reply ? mst__wire_write_reply(&out, &reply)
                                          : mst__wire_write_request(&out, dialect, &command),
                                 MST_ELIMIT);
                assert_int_equal(mst__buf_size(&out), 0);
                mst__buf_close(&out);
            }
            struct mst__buf out;
            mst__buf_init(&out, 1000);
            mst__mem_fail_nth(1);
            int rv = is_reply ? mst__wire_write_reply(&out, &reply)
                              : mst__wire_write_request(&out, dialect, &command);
            assert_int_equal(rv, size > 0 ? MST_ENOMEM : 0);
            assert_int_equal(mst__buf_size(&out), 0);
            mst__mem_fail_nth(0);
            mst__buf_close(&out);
        }
    }
    mst__buf_close(&items);
    mst__buf_close(&reply_items);
    mst__buf_close(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opcodes),
        cmocka_unit_test(requests_there_and_back),
        cmocka_unit_test(requests_one_by_one),
        cmocka_unit_test(limits_are_exact),
        cmocka_unit_test(whole_message_is_limited),
        cmocka_unit_test(server_limits_hold_any_request),
        cmocka_unit_test(strangers),
        cmocka_unit_test(dialect_names),
        cmocka_unit_test(validate_spelling),
        cmocka_unit_test(replies_there_and_back),
        cmocka_unit_test(status_bytes_are_checked),
        cmocka_unit_test(cancel_may_meet_the_end_of_the_wait),
        cmocka_unit_test(replies_are_limited),
        cmocka_unit_test(notices),
        cmocka_unit_test(writes_fail_cleanly),
    };
    return MST_RUN_TESTS(tests);
}
