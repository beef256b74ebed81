/* wire/reply.c - replies: to bytes for the server, from bytes for the client. */
#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/limits.h"
#include "wire/opcode.h"
#include "wire/wire.h"

static uint8_t status_byte(enum mst__status status)
{
    switch (status) {
        case MST_STATUS_READY:
        case MST_STATUS_STOP_WAITING:
            return 0;
        case MST_STATUS_NOT_READY:
        case MST_STATUS_WAIT_CANCELED:
            return 1;
        case MST_STATUS_WATCHING:
            break;
    }
    MST_ASSERT(status == MST_STATUS_WATCHING);
    return 3;
}

static int write_number_and(struct mst__buf *output, int64_t number, struct mst_bytes rest)
{
    int rv = 0;
    if (rest.size > SIZE_MAX - 8) {
        return MST_ELIMIT;
    }
    uint8_t *to = mst__buf_reserve(output, 8 + rest.size, &rv);
    if (to == NULL) {
        return rv;
    }
    mst__store_u64(to, (uint64_t)number);
    if (rest.size > 0) {
        memcpy(to + 8, rest.data, rest.size);
    }
    mst__buf_commit(output, 8 + rest.size);
    return 0;
}

static int write_pop(struct mst__buf *output, const struct mst__reply *reply)
{
    size_t size_before = mst__buf_size(output);
    int rv = mst__buf_append_u64(output, (uint64_t)reply->number);
    MST_ASSERT(reply->number > 0 || reply->bytes.size == 0);
    if (rv == 0 && reply->number > 0) {
        rv = mst__buf_append_str(output, reply->bytes);
    }
    if (rv != 0) {
        mst__buf_truncate(output, size_before);
    }
    return rv;
}

int mst__wire_write_reply(struct mst__buf *output, const struct mst__reply *reply)
{
    switch (reply->kind) {
        case MST_REPLY_NONE:
        case MST_REPLY_LATER:
            return 0;
        case MST_REPLY_STATUS:
            return mst__buf_append_u8(output, status_byte(reply->status));
        case MST_REPLY_NUMBER:
            return mst__buf_append_u64(output, (uint64_t)reply->number);
        case MST_REPLY_BYTES:
            return mst__buf_append_str(output, reply->bytes);
        case MST_REPLY_ITEMS:
            return mst__buf_append(output, reply->bytes);
        case MST_REPLY_LIST:
            return write_number_and(output, reply->number, reply->bytes);
        case MST_REPLY_POP:
            return write_pop(output, reply);
        case MST_REPLY_ECHO:
            break;
    }
    MST_ASSERT(reply->kind == MST_REPLY_ECHO);
    return mst__buf_append_u32(output, (uint32_t)reply->number);
}

int mst__wire_write_reply_head(struct mst__buf *output, const struct mst__reply *reply)
{
    size_t size_before = mst__buf_size(output);
    int rv = 0;
    /* Replies whose bytes are sent separately. */
    MST_ASSERT(reply->kind == MST_REPLY_POP || reply->kind == MST_REPLY_LIST ||
               reply->kind == MST_REPLY_BYTES || reply->kind == MST_REPLY_ITEMS);
    if (reply->kind == MST_REPLY_POP || reply->kind == MST_REPLY_LIST) {
        rv = mst__buf_append_u64(output, (uint64_t)reply->number);
    }
    if (rv == 0 && (reply->kind == MST_REPLY_POP || reply->kind == MST_REPLY_BYTES)) {
        rv = mst__buf_append_u64(output, reply->bytes.size);
    }
    if (rv != 0) {
        mst__buf_truncate(output, size_before);
    }
    return rv;
}

int mst__wire_write_notice(struct mst__buf *output,
                           enum mst__notice_kind kind,
                           struct mst_bytes key,
                           struct mst_bytes old_value,
                           struct mst_bytes new_value)
{
    size_t size_before = mst__buf_size(output);
    int rv = mst__buf_append_u8(output, (uint8_t)kind);
    if (rv == 0) {
        rv = mst__buf_append_str(output, key);
    }
    if (rv == 0) {
        rv = mst__buf_append_str(output, old_value);
    }
    if (rv == 0) {
        rv = mst__buf_append_str(output, new_value);
    }
    if (rv != 0) {
        mst__buf_truncate(output, size_before);
    }
    return rv;
}

/* --- client side --- */

static int read_status(const struct mst__command *command,
                       uint8_t byte,
                       struct mst__reply *reply,
                       struct mst_err *reterr)
{
    switch (command->op) {
        case MST_OP_CHECK:
            reply->status = byte == 0 ? MST_STATUS_READY : MST_STATUS_NOT_READY;
            break;
        case MST_OP_CANCEL_WAIT:
            reply->status = byte == 0 ? MST_STATUS_STOP_WAITING : MST_STATUS_WAIT_CANCELED;
            break;
        case MST_OP_WATCH:
            reply->status = MST_STATUS_WATCHING;
            return byte == 3 ? MST_WIRE_REQUEST
                             : mst__fail(reterr, MST_EPROTO, 0, "status byte 0x%02x", byte);
        default:
            reply->status = MST_STATUS_STOP_WAITING;
            return byte == 0 ? MST_WIRE_REQUEST
                             : mst__fail(reterr, MST_EPROTO, 0, "status byte 0x%02x", byte);
    }
    return byte <= 1 ? MST_WIRE_REQUEST
                     : mst__fail(reterr, MST_EPROTO, 0, "status byte 0x%02x", byte);
}

/* @count strs from @start on; sets reply->bytes to all of them, or for one to its content. */
static int read_strs(const struct mst__wire_limits *limits,
                     struct mst_bytes input,
                     size_t start,
                     uint64_t count,
                     struct mst__reply *reply,
                     size_t *ret_size,
                     struct mst_err *reterr)
{
    size_t end = start;
    for (uint64_t i = 0; i < count; i++) {
        if (input.size < end + 8) {
            *ret_size = end + 8;
            return MST_WIRE_MORE;
        }
        uint64_t size = mst__load_u64(input.data + end);
        if (size > limits->message_size_max || end + 8 + size > limits->message_size_max) {
            return mst__fail(reterr, MST_ELIMIT, 0, "reply of more than %zu bytes",
                             limits->message_size_max);
        }
        end += 8 + (size_t)size;
        if (input.size < end) {
            *ret_size = end;
            return MST_WIRE_MORE;
        }
    }
    MST_ASSERT(start <= end);
    MST_ASSERT(end <= input.size);
    reply->bytes = mst_bytes_of(input.data + start, end - start);
    *ret_size = end;
    return MST_WIRE_REQUEST;
}

static int read_number_and_strs(const struct mst__wire_limits *limits,
                                struct mst_bytes input,
                                struct mst__reply *reply,
                                size_t *ret_size,
                                struct mst_err *reterr)
{
    if (input.size < 8) {
        *ret_size = 8;
        return MST_WIRE_MORE;
    }
    reply->number = (int64_t)mst__load_u64(input.data);
    *ret_size = 8;
    uint64_t count = 0;
    if (reply->kind == MST_REPLY_LIST) {
        if (reply->number < 0) {
            return mst__fail(reterr, MST_EPROTO, 0, "list of %lld keys", (long long)reply->number);
        }
        count = (uint64_t)reply->number;
    } else if (reply->kind == MST_REPLY_POP && reply->number > 0) {
        count = 1;
    }
    return count == 0 ? MST_WIRE_REQUEST
                      : read_strs(limits, input, 8, count, reply, ret_size, reterr);
}

int mst__wire_read_reply(const struct mst__command *command,
                         const struct mst__wire_limits *limits,
                         struct mst_bytes input,
                         struct mst__reply *ret_reply,
                         size_t *ret_size,
                         struct mst_err *reterr)
{
    struct mst__reply reply = {.kind = mst__opcode_of(command->op)->reply};
    int rv = MST_WIRE_REQUEST;
    *ret_size = 0;
    switch (reply.kind) {
        case MST_REPLY_NONE:
        case MST_REPLY_LATER:
            break;
        case MST_REPLY_STATUS:
            *ret_size = 1;
            rv = input.size < 1 ? MST_WIRE_MORE
                                : read_status(command, input.data[0], &reply, reterr);
            break;
        case MST_REPLY_ECHO:
            *ret_size = 4;
            rv = input.size < 4 ? MST_WIRE_MORE : MST_WIRE_REQUEST;
            reply.number = rv == MST_WIRE_MORE ? 0 : mst__load_u32(input.data);
            break;
        case MST_REPLY_BYTES:
            rv = read_strs(limits, input, 0, 1, &reply, ret_size, reterr);
            break;
        case MST_REPLY_ITEMS:
            rv = read_strs(limits, input, 0, command->count, &reply, ret_size, reterr);
            break;
        case MST_REPLY_NUMBER:
        case MST_REPLY_LIST:
        case MST_REPLY_POP:
            rv = read_number_and_strs(limits, input, &reply, ret_size, reterr);
            break;
    }
    MST_ASSERT(rv < 0 || (rv == MST_WIRE_REQUEST) == (*ret_size <= input.size));
    if (rv == MST_WIRE_REQUEST) {
        if (reply.kind == MST_REPLY_BYTES || (reply.kind == MST_REPLY_POP && reply.number > 0)) {
            reply.bytes = mst__bytes_skip(reply.bytes, 8);
        }
        *ret_reply = reply;
    }
    return rv;
}
