/* wire/request.c - requests: bytes to commands for the server, commands to bytes for the client.
 *
 * Reading never acts on a part of a request, and checks every length before memory is allocated for
 * it. A request with many keys is not scanned again from its start when more bytes arrive: the
 * reader remembers its position. */
#include <stdio.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/limits.h"
#include "wire/opcode.h"
#include "wire/wire.h"

const char *mst__dialect_name(enum mst__dialect dialect)
{
    switch (dialect) {
        case MST_DIALECT_LEGACY:
            return "legacy";
        case MST_DIALECT_A:
            return "A";
        case MST_DIALECT_B:
            return "B";
        case MST_DIALECT_C:
            return "C";
        case MST_DIALECT_UNKNOWN:
            break;
    }
    return "unknown";
}

struct mst__wire_limits mst__wire_limits(size_t key_size_max, size_t value_size_max)
{
    MST_ASSERT(key_size_max <= MST_KEY_SIZE_MAX);
    MST_ASSERT(value_size_max <= MST_VALUE_SIZE_MAX);
    /* The largest request with a fixed number of fields is COMPARE_SET: opcode, three lengths. */
    size_t largest = 1 + 3 * 8 + key_size_max + 2 * value_size_max;
    return (struct mst__wire_limits){
        .key_size_max = key_size_max,
        .value_size_max = value_size_max,
        .message_size_max = largest > MST_MESSAGE_SIZE_MAX ? largest : MST_MESSAGE_SIZE_MAX,
    };
}

void mst__wire_reader_init(struct mst__wire_reader *reader)
{
    *reader = (struct mst__wire_reader){.dialect = MST_DIALECT_UNKNOWN};
}

void mst__wire_settle_a(struct mst__wire_reader *reader)
{
    MST_ASSERT(reader->dialect == MST_DIALECT_LEGACY);
    reader->dialect = MST_DIALECT_A;
}

void mst__wire_read_again(struct mst__wire_reader *reader, size_t size)
{
    MST_ASSERT(reader->items_left == 0);
    reader->items_end = size;
}

/* The position in a request. `end` is the known size of the request so far. */
struct cursor {
    struct mst_bytes input;
    size_t end;
};

/* Skip @size bytes; they start at @ret_start. False if they have not all arrived. */
static bool cursor_skip(struct cursor *cursor, size_t size, size_t *ret_start)
{
    *ret_start = cursor->end;
    cursor->end += size;
    return cursor->end <= cursor->input.size;
}

static int cursor_u64(struct cursor *cursor, uint64_t *ret_value)
{
    size_t start;
    if (!cursor_skip(cursor, 8, &start)) {
        return MST_WIRE_MORE;
    }
    *ret_value = mst__load_u64(cursor->input.data + start);
    return MST_WIRE_REQUEST;
}

static int cursor_str(struct cursor *cursor,
                      const char *what,
                      size_t size_max,
                      struct mst_bytes *ret_str,
                      struct mst_err *reterr)
{
    uint64_t size = 0;
    int rv = cursor_u64(cursor, &size);
    if (rv != MST_WIRE_REQUEST) {
        return rv;
    }
    if (size > size_max) {
        return mst__fail(reterr, MST_ELIMIT, 0, "%s of %llu bytes, the limit is %zu", what,
                         (unsigned long long)size, size_max);
    }
    size_t start;
    if (!cursor_skip(cursor, (size_t)size, &start)) {
        return MST_WIRE_MORE;
    }
    *ret_str = mst_bytes_of(cursor->input.data + start, (size_t)size);
    return MST_WIRE_REQUEST;
}

/* The count of a request with many items; called once per request. */
static int items_begin(struct mst__wire_reader *reader,
                       struct cursor *cursor,
                       unsigned strs_per_item,
                       struct mst_err *reterr)
{
    uint64_t count = 0;
    int rv = cursor_u64(cursor, &count);
    if (rv != MST_WIRE_REQUEST) {
        return rv;
    }
    if (count > MST_ITEMS_MAX) {
        return mst__fail(reterr, MST_ELIMIT, 0, "%llu keys in one request, the limit is %d",
                         (unsigned long long)count, MST_ITEMS_MAX);
    }
    reader->items_left = count * strs_per_item;
    reader->items_end = cursor->end;
    return MST_WIRE_REQUEST;
}

/* Keys, or keys and values in turn; resumes at the end of the last call. */
static int read_items(struct mst__wire_reader *reader,
                      const struct mst__wire_limits *limits,
                      struct cursor *cursor,
                      unsigned strs_per_item,
                      struct mst__command *command,
                      struct mst_err *reterr)
{
    size_t count_start = cursor->end;
    int rv = MST_WIRE_REQUEST;
    MST_ASSERT(reader->items_end == 0 || reader->items_end >= count_start + 8); /* of this one */
    if (reader->items_end == 0) {
        rv = items_begin(reader, cursor, strs_per_item, reterr);
    }
    while (rv == MST_WIRE_REQUEST && reader->items_left > 0) {
        cursor->end = reader->items_end;
        bool is_value = strs_per_item == 2 && reader->items_left % 2 == 1;
        struct mst_bytes str;
        rv = cursor_str(cursor, is_value ? "value" : "key",
                        is_value ? limits->value_size_max : limits->key_size_max, &str, reterr);
        if (rv >= 0 && cursor->end > limits->message_size_max) {
            rv = mst__fail(reterr, MST_ELIMIT, 0, "request of more than %zu bytes",
                           limits->message_size_max);
        }
        if (rv == MST_WIRE_REQUEST) {
            reader->items_end = cursor->end;
            reader->items_left--;
        }
    }
    if (rv == MST_WIRE_REQUEST) {
        size_t items_start = count_start + 8;
        MST_ASSERT(reader->items_end <= cursor->input.size);
        cursor->end = reader->items_end;
        command->count = mst__load_u64(cursor->input.data + count_start);
        command->items =
            mst_bytes_of(cursor->input.data + items_start, reader->items_end - items_start);
    }
    return rv;
}

static int read_number(struct cursor *cursor, struct mst__command *command)
{
    uint64_t number = 0;
    int rv = cursor_u64(cursor, &number);
    command->number = (int64_t)number;
    return rv;
}

static int read_nonce(struct cursor *cursor, struct mst__command *command)
{
    size_t start;
    if (!cursor_skip(cursor, 4, &start)) {
        return MST_WIRE_MORE;
    }
    command->number = mst__load_u32(cursor->input.data + start);
    return MST_WIRE_REQUEST;
}

/* Everything after the opcode. */
static int read_fields(struct mst__wire_reader *reader,
                       const struct mst__wire_limits *limits,
                       struct cursor *cursor,
                       struct mst__command *command,
                       struct mst_err *reterr)
{
    enum mst__wire_shape shape = mst__opcode_of(command->op)->shape;
    switch (shape) {
        case MST_SHAPE_EMPTY:
            return MST_WIRE_REQUEST;
        case MST_SHAPE_NONCE:
            return read_nonce(cursor, command);
        case MST_SHAPE_KEYS:
            return read_items(reader, limits, cursor, 1, command, reterr);
        case MST_SHAPE_PAIRS:
            return read_items(reader, limits, cursor, 2, command, reterr);
        case MST_SHAPE_KEY:
        case MST_SHAPE_KEY_NUMBER:
        case MST_SHAPE_KEY_VALUE:
        case MST_SHAPE_KEY_VALUE_VALUE:
            break;
    }
    int rv = cursor_str(cursor, "key", limits->key_size_max, &command->key, reterr);
    if (rv != MST_WIRE_REQUEST || shape == MST_SHAPE_KEY) {
        return rv;
    }
    if (shape == MST_SHAPE_KEY_NUMBER) {
        return read_number(cursor, command);
    }
    if (shape == MST_SHAPE_KEY_VALUE_VALUE) {
        rv = cursor_str(cursor, "value", limits->value_size_max, &command->expected, reterr);
        if (rv != MST_WIRE_REQUEST) {
            return rv;
        }
    }
    return cursor_str(cursor, "value", limits->value_size_max, &command->value, reterr);
}

/* What an unknown opcode suggests about its sender, for the log. */
static const char *opcode_hint(const struct mst__wire_reader *reader, struct mst_bytes input)
{
    if (reader->greeted) {
        return "";
    }
    static const char *const methods[] = {"GET ", "POST", "HEAD", "PUT ", "OPTI", "PRI "};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        struct mst_bytes method = mst_bytes_str(methods[i]);
        if (mst__bytes_start_with(input, method) || mst__bytes_start_with(method, input)) {
            return ", looks like HTTP";
        }
    }
    return input.data[0] == 0x16 ? ", looks like TLS" : ", not a TCPStore client";
}

/* Opcodes 7 and 8 differ between A and B (docs/protocol.md, "A or B"). */
static int settle_legacy(struct mst__wire_reader *reader,
                         const struct mst__wire_limits *limits,
                         struct mst_bytes input,
                         size_t *ret_size,
                         struct mst_err *reterr)
{
    uint8_t opcode = input.data[0];
    MST_ASSERT(reader->dialect == MST_DIALECT_LEGACY);
    if (opcode == 7) {
        /* Only A's second connection begins with a WATCH; a client of B first creates what it
         * deletes. */
        reader->dialect = reader->greeted ? MST_DIALECT_B : MST_DIALECT_A;
    } else if (opcode >= 9) {
        reader->dialect = MST_DIALECT_B;
    } else if (opcode == 8) {
        struct cursor cursor = {.input = input, .end = 1};
        struct mst_bytes key;
        int rv = cursor_str(&cursor, "key", limits->key_size_max, &key, reterr);
        if (rv != MST_WIRE_REQUEST) {
            *ret_size = cursor.end;
            return rv;
        }
        if (cursor.end == input.size) {
            *ret_size = cursor.end + 1;
            return MST_WIRE_EITHER;
        }
        reader->dialect = MST_DIALECT_B;
    }
    MST_ASSERT(reader->dialect != MST_DIALECT_LEGACY || opcode < 7);
    return MST_WIRE_REQUEST;
}

/* Check whether the connection starts with VALIDATE. As the length of a legacy SET's key, the magic
 * would be far above any limit, so this is unambiguous. */
static int read_start(struct mst__wire_reader *reader,
                      const struct mst__wire_limits *limits,
                      struct mst_bytes input,
                      size_t *ret_size,
                      struct mst_err *reterr)
{
    MST_ASSERT(!reader->greeted);
    MST_ASSERT(reader->items_end == 0);
    if (input.data[0] != 0) {
        reader->dialect = MST_DIALECT_LEGACY;
        return MST_WIRE_REQUEST;
    }
    *ret_size = MST_WIRE_VALIDATE_SIZE;
    if (input.size < MST_WIRE_VALIDATE_SIZE) {
        return MST_WIRE_MORE;
    }
    uint32_t magic = mst__load_u32(input.data + 1);
    if (magic == MST_WIRE_MAGIC) {
        reader->dialect = MST_DIALECT_C;
        reader->greeted = true;
        return MST_WIRE_VALIDATE;
    }
    /* The lower half of a key's length is enough to see that it is too large. */
    if (magic > limits->key_size_max) {
        return mst__fail(reterr, MST_EPROTO, 0,
                         "starts with 0x%08x: neither VALIDATE nor the length of a key", magic);
    }
    reader->dialect = MST_DIALECT_LEGACY;
    return MST_WIRE_REQUEST;
}

/* Read one request of a connection whose dialect is known, at least as far as needed. */
static int read_command(struct mst__wire_reader *reader,
                        const struct mst__wire_limits *limits,
                        struct mst_bytes input,
                        struct mst__command *ret_command,
                        size_t *ret_size,
                        struct mst_err *reterr)
{
    enum mst__dialect table =
        reader->dialect == MST_DIALECT_LEGACY ? MST_DIALECT_B : reader->dialect;
    struct mst__command command = {0};
    if (!mst__opcode_find(table, input.data[0], &command.op)) {
        return mst__fail(reterr, MST_EPROTO, 0, "unknown opcode 0x%02x%s", input.data[0],
                         opcode_hint(reader, input));
    }
    struct cursor cursor = {.input = input, .end = 1};
    int rv = read_fields(reader, limits, &cursor, &command, reterr);
    *ret_size = cursor.end;
    if (rv == MST_WIRE_REQUEST) {
        MST_ASSERT(cursor.end <= input.size);
        *ret_command = command;
        reader->greeted = true;
        reader->items_end = 0;
    } else {
        /* It must never wait for bytes that are already there. */
        MST_ASSERT(rv < 0 || cursor.end > input.size);
    }
    return rv;
}

int mst__wire_read_request(struct mst__wire_reader *reader,
                           const struct mst__wire_limits *limits,
                           struct mst_bytes input,
                           struct mst__command *ret_command,
                           size_t *ret_size,
                           struct mst_err *reterr)
{
    *ret_size = 1;
    if (input.size == 0) {
        return MST_WIRE_MORE;
    }
    if (MST_UNLIKELY(reader->dialect == MST_DIALECT_UNKNOWN)) {
        int rv = read_start(reader, limits, input, ret_size, reterr);
        if (rv != MST_WIRE_REQUEST) {
            return rv;
        }
    }
    if (MST_UNLIKELY(reader->dialect == MST_DIALECT_LEGACY)) {
        int rv = settle_legacy(reader, limits, input, ret_size, reterr);
        if (rv != MST_WIRE_REQUEST) {
            return rv;
        }
    }
    if (MST_UNLIKELY(input.data[0] == MST_WIRE_OPCODE_JOB && reader->dialect == MST_DIALECT_C)) {
        return MST_WIRE_JOB;
    }
    return read_command(reader, limits, input, ret_command, ret_size, reterr);
}

int mst__wire_write_validate(struct mst__buf *output)
{
    uint8_t raw[MST_WIRE_VALIDATE_SIZE] = {0};
    mst__store_u32(raw + 1, MST_WIRE_MAGIC);
    return mst__buf_append(output, mst_bytes_of(raw, sizeof raw));
}

bool mst__wire_has_op(enum mst__dialect dialect, enum mst__op op)
{
    return mst__opcode_in(dialect, op) != MST_OPCODE_NONE;
}

static int write_fields(struct mst__buf *output, const struct mst__command *command)
{
    enum mst__wire_shape shape = mst__opcode_of(command->op)->shape;
    int rv = 0;
    switch (shape) {
        case MST_SHAPE_EMPTY:
            return 0;
        case MST_SHAPE_NONCE:
            return mst__buf_append_u32(output, (uint32_t)command->number);
        case MST_SHAPE_KEYS:
        case MST_SHAPE_PAIRS:
            rv = mst__buf_append_u64(output, command->count);
            return rv != 0 ? rv : mst__buf_append(output, command->items);
        case MST_SHAPE_KEY:
        case MST_SHAPE_KEY_NUMBER:
        case MST_SHAPE_KEY_VALUE:
        case MST_SHAPE_KEY_VALUE_VALUE:
            break;
    }
    rv = mst__buf_append_str(output, command->key);
    if (rv != 0 || shape == MST_SHAPE_KEY) {
        return rv;
    }
    if (shape == MST_SHAPE_KEY_NUMBER) {
        return mst__buf_append_u64(output, (uint64_t)command->number);
    }
    MST_ASSERT(shape == MST_SHAPE_KEY_VALUE || shape == MST_SHAPE_KEY_VALUE_VALUE);
    if (shape == MST_SHAPE_KEY_VALUE_VALUE) {
        rv = mst__buf_append_str(output, command->expected);
    }
    return rv != 0 ? rv : mst__buf_append_str(output, command->value);
}

int mst__wire_write_request(struct mst__buf *output,
                            enum mst__dialect dialect,
                            const struct mst__command *command)
{
    uint8_t opcode = mst__opcode_in(dialect, command->op);
    if (opcode == MST_OPCODE_NONE) {
        return MST_ENOTSUP;
    }
    size_t size_before = mst__buf_size(output);
    int rv = mst__buf_append_u8(output, opcode);
    if (rv == 0) {
        rv = write_fields(output, command);
    }
    if (rv != 0) {
        mst__buf_truncate(output, size_before);
    }
    return rv;
}
