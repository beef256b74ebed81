/* bench/generator/message.c - requests and their correct replies in each protocol.
 *
 * All are built beforehand, and all replies to one operation have the same size, so that the load
 * loop neither allocates nor parses. The floor gets requests and replies of exactly the sizes of
 * dialect C; see bench/floor.c for its eight-byte head. */
#include <muster/types.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "bench/generator/bench.h"
#include "wire/wire.h"

const char *mst__bench_op_name(enum mst__bench_op op)
{
    static const char *const names[MST_BENCH_OP_COUNT] = {
#define OP_NAME(name, text) [MST_BENCH_##name] = (text),
        MST_BENCH_OP_MAP(OP_NAME)
#undef OP_NAME
    };
    return names[op];
}

void mst__bench_message_init(struct mst__bench_message *message)
{
    mst__buf_init(&message->request, MST_MESSAGE_SIZE_MAX);
    mst__buf_init(&message->reply, MST_MESSAGE_SIZE_MAX);
    message->reply_known = 0;
}

void mst__bench_message_close(struct mst__bench_message *message)
{
    mst__buf_close(&message->request);
    mst__buf_close(&message->reply);
}

struct mst_bytes mst__bench_key(enum mst__bench_op op,
                                size_t index,
                                char ret_key[MST_BENCH_KEY_SIZE])
{
    /* The process id distinguishes two generators; fixed widths make all runs equal. */
    int size = snprintf(ret_key, MST_BENCH_KEY_SIZE, "/bench/%07d/%s/%06zu", (int)getpid(),
                        mst__bench_op_name(op), index);
    MST_ASSERT(size > 0 && size < MST_BENCH_KEY_SIZE);
    return mst_bytes_of(ret_key, (size_t)size);
}

/* --- torch --- */

static int torch_request(struct mst__bench_message *message,
                         enum mst__bench_protocol protocol,
                         enum mst__op op,
                         const struct mst__command *fields)
{
    struct mst__command command = *fields;
    command.op = op;
    enum mst__dialect dialect = protocol == MST_BENCH_TORCH_A ? MST_DIALECT_A : MST_DIALECT_C;
    return mst__wire_write_request(&message->request, dialect, &command);
}

static int torch_reply(struct mst__bench_message *message,
                       enum mst__reply_kind kind,
                       enum mst__status status,
                       struct mst_bytes bytes)
{
    struct mst__reply reply = {.kind = kind, .status = status, .bytes = bytes};
    return mst__wire_write_reply(&message->reply, &reply);
}

/* CHECK or WAIT for @count = 0 or 1 keys. */
static int torch_keys(struct mst__bench_message *message,
                      enum mst__bench_protocol protocol,
                      enum mst__op op,
                      struct mst_bytes key,
                      size_t count)
{
    struct mst__buf items;
    mst__buf_init(&items, MST_MESSAGE_SIZE_MAX);
    int rv = count == 0 ? 0 : mst__buf_append_str(&items, key);
    if (rv == 0) {
        struct mst__command command = {.count = count, .items = mst__buf_bytes(&items)};
        rv = torch_request(message, protocol, op, &command);
    }
    mst__buf_close(&items);
    if (rv != 0) {
        return rv;
    }
    return torch_reply(message, MST_REPLY_STATUS,
                       op == MST_OP_CHECK ? MST_STATUS_READY : MST_STATUS_STOP_WAITING,
                       mst_bytes_of(NULL, 0));
}

static int torch_op(struct mst__bench_message *message,
                    enum mst__bench_protocol protocol,
                    enum mst__bench_op op,
                    struct mst_bytes key,
                    struct mst_bytes value)
{
    struct mst__command command = {.key = key, .value = value, .expected = value, .number = 1};
    int rv = 0;
    switch (op) {
        case MST_BENCH_SET:
            /* A SET has no reply; a CHECK of no keys after it has, and costs almost nothing. */
            rv = torch_request(message, protocol, MST_OP_SET, &command);
            return rv != 0 ? rv : torch_keys(message, protocol, MST_OP_CHECK, key, 0);
        case MST_BENCH_CHECK:
            return torch_keys(message, protocol, MST_OP_CHECK, key, 1);
        case MST_BENCH_ADD:
            rv = torch_request(message, protocol, MST_OP_ADD, &command);
            return rv != 0 ? rv
                           : torch_reply(message, MST_REPLY_NUMBER, MST_STATUS_READY,
                                         mst_bytes_of(NULL, 0));
        case MST_BENCH_COMPARE_SET:
            rv = torch_request(message, protocol, MST_OP_COMPARE_SET, &command);
            break;
        case MST_BENCH_SET_GET:
            rv = torch_request(message, protocol, MST_OP_SET, &command);
            if (rv == 0) {
                rv = torch_request(message, protocol, MST_OP_GET, &command);
            }
            break;
        case MST_BENCH_GET:
            rv = torch_request(message, protocol, MST_OP_GET, &command);
            break;
    }
    return rv != 0 ? rv : torch_reply(message, MST_REPLY_BYTES, MST_STATUS_READY, value);
}

/* Convert a message of dialect C to one for the floor: the same sizes, with its head. */
static void floor_from_torch(struct mst__bench_message *message)
{
    size_t request_size = mst__buf_size(&message->request);
    size_t reply_size = mst__buf_size(&message->reply);
    MST_ASSERT(request_size >= 8);
    MST_ASSERT(request_size <= UINT32_MAX);
    MST_ASSERT(reply_size <= UINT32_MAX);
    uint8_t *head = message->request.memory + message->request.start;
    mst__store_u32(head, (uint32_t)request_size);
    mst__store_u32(head + 4, (uint32_t)reply_size);
    message->reply_known = 0;
}

/* Instead of the size of a reply: wait until all are released, or release all. */
#define FLOOR_HOLD (UINT32_C(1) << 31)
#define FLOOR_RELEASE (UINT32_C(1) << 30)

static void floor_set_reply(struct mst__bench_message *message, uint32_t reply)
{
    mst__store_u32(message->request.memory + message->request.start + 4, reply);
}

/* --- Redis --- */

static int redis_bulk(struct mst__buf *buf, struct mst_bytes bytes)
{
    char head[32];
    int size = snprintf(head, sizeof head, "$%zu\r\n", bytes.size);
    int rv = mst__buf_append(buf, mst_bytes_of(head, (size_t)size));
    if (rv == 0) {
        rv = mst__buf_append(buf, bytes);
    }
    return rv != 0 ? rv : mst__buf_append(buf, mst_bytes_str("\r\n"));
}

static int redis_array(struct mst__buf *buf, size_t count)
{
    char head[32];
    int size = snprintf(head, sizeof head, "*%zu\r\n", count);
    return mst__buf_append(buf, mst_bytes_of(head, (size_t)size));
}

static int redis_request(struct mst__bench_message *message,
                         const struct mst_bytes *words,
                         size_t count)
{
    int rv = redis_array(&message->request, count);
    for (size_t i = 0; rv == 0 && i < count; i++) {
        rv = redis_bulk(&message->request, words[i]);
    }
    return rv;
}

static int redis_reply_text(struct mst__bench_message *message, const char *text)
{
    return mst__buf_append(&message->reply, mst_bytes_str(text));
}

static int redis_op(struct mst__bench_message *message,
                    enum mst__bench_op op,
                    struct mst_bytes key,
                    struct mst_bytes value)
{
    struct mst_bytes words[5] = {mst_bytes_str("SET"), key, value};
    int rv = 0;
    switch (op) {
        case MST_BENCH_SET:
            rv = redis_request(message, words, 3);
            return rv != 0 ? rv : redis_reply_text(message, "+OK\r\n");
        case MST_BENCH_GET:
            words[0] = mst_bytes_str("GET");
            rv = redis_request(message, words, 2);
            break;
        case MST_BENCH_ADD:
            words[0] = mst_bytes_str("INCRBY");
            words[2] = mst_bytes_str("1");
            rv = redis_request(message, words, 3);
            return rv != 0 ? rv : redis_reply_text(message, ":" MST_BENCH_ADD_START "\r\n");
        case MST_BENCH_CHECK:
            words[0] = mst_bytes_str("EXISTS");
            rv = redis_request(message, words, 2);
            return rv != 0 ? rv : redis_reply_text(message, ":1\r\n");
        case MST_BENCH_COMPARE_SET:
            /* The nearest command: stores if the key exists, and answers the old value. It compares
             * nothing and gets one value, not two, so it is cheaper. */
            words[3] = mst_bytes_str("XX");
            words[4] = mst_bytes_str("GET");
            rv = redis_request(message, words, 5);
            break;
        case MST_BENCH_SET_GET:
            rv = redis_request(message, words, 3);
            if (rv == 0) {
                words[0] = mst_bytes_str("GET");
                rv = redis_request(message, words, 2);
            }
            if (rv == 0) {
                rv = redis_reply_text(message, "+OK\r\n");
            }
            break;
    }
    return rv != 0 ? rv : redis_bulk(&message->reply, value);
}

/* --- interface --- */

/* Finish a message: set the known part of the reply, and convert it for the floor. */
static void message_finish(struct mst__bench_message *message,
                           enum mst__bench_protocol protocol,
                           size_t reply_known)
{
    size_t reply_size = mst__buf_size(&message->reply);
    message->reply_known = reply_known < reply_size ? reply_known : reply_size;
    if (mst__bench_is_floor(protocol)) {
        floor_from_torch(message);
    }
}

int mst__bench_message_op(struct mst__bench_message *message,
                          enum mst__bench_protocol protocol,
                          enum mst__bench_op op,
                          struct mst_bytes key,
                          struct mst_bytes value)
{
    bool redis = protocol == MST_BENCH_REDIS;
    int rv =
        redis ? redis_op(message, op, key, value) : torch_op(message, protocol, op, key, value);
    if (rv == 0) {
        /* Only Redis's ':' is known of a sum. */
        message_finish(message, protocol, op != MST_BENCH_ADD ? SIZE_MAX : redis ? 1 : 0);
    }
    return rv;
}

int mst__bench_message_greeting(struct mst__bench_message *message,
                                enum mst__bench_protocol protocol)
{
    int rv = 0;
    if (protocol == MST_BENCH_REDIS) {
        struct mst_bytes word = mst_bytes_str("PING");
        rv = redis_request(message, &word, 1);
        if (rv == 0) {
            rv = redis_reply_text(message, "+PONG\r\n");
        }
    } else if (protocol == MST_BENCH_TORCH_C) {
        struct mst__command command = {.number = 0x7e57be9c};
        struct mst__reply reply = {.kind = MST_REPLY_ECHO, .number = command.number};
        rv = mst__wire_write_validate(&message->request);
        if (rv == 0) {
            rv = torch_request(message, protocol, MST_OP_PING, &command);
        }
        if (rv == 0) {
            rv = mst__wire_write_reply(&message->reply, &reply);
        }
    } else {
        rv = torch_keys(message, protocol, MST_OP_CHECK, mst_bytes_of(NULL, 0), 0);
    }
    if (rv == 0) {
        message_finish(message, protocol, SIZE_MAX);
    }
    return rv;
}

int mst__bench_message_delete(struct mst__bench_message *message,
                              enum mst__bench_protocol protocol,
                              struct mst_bytes key)
{
    int rv = 0;
    if (protocol == MST_BENCH_REDIS) {
        struct mst_bytes words[2] = {mst_bytes_str("DEL"), key};
        rv = redis_request(message, words, 2);
        if (rv == 0) {
            rv = redis_reply_text(message, ":1\r\n");
        }
    } else {
        struct mst__command command = {.key = key};
        rv = torch_request(message, protocol, MST_OP_DELETE, &command);
        if (rv == 0) {
            rv = torch_reply(message, MST_REPLY_NUMBER, MST_STATUS_READY, mst_bytes_of(NULL, 0));
        }
    }
    if (rv == 0) {
        message_finish(message, protocol, 0);
    }
    return rv;
}

int mst__bench_message_arrive(struct mst__bench_message *message,
                              enum mst__bench_protocol protocol,
                              struct mst_bytes counter)
{
    int rv = 0;
    if (protocol == MST_BENCH_REDIS) {
        struct mst_bytes words[2] = {mst_bytes_str("INCR"), counter};
        /* The size of the reply depends on the number: the caller looks for the end of the line. */
        return redis_request(message, words, 2);
    }
    if (protocol != MST_BENCH_TORCH_A) {
        rv = mst__wire_write_validate(&message->request);
    }
    struct mst__command command = {.key = counter, .number = 1};
    if (rv == 0) {
        rv = torch_request(message, protocol, MST_OP_ADD, &command);
    }
    if (rv == 0) {
        rv = torch_reply(message, MST_REPLY_NUMBER, MST_STATUS_READY, mst_bytes_of(NULL, 0));
    }
    if (rv == 0) {
        message_finish(message, protocol, 0);
    }
    return rv;
}

int mst__bench_message_wait(struct mst__bench_message *message,
                            enum mst__bench_protocol protocol,
                            struct mst_bytes key)
{
    int rv = 0;
    if (protocol == MST_BENCH_REDIS) {
        struct mst_bytes words[3] = {mst_bytes_str("BLPOP"), key, mst_bytes_str("0")};
        rv = redis_request(message, words, 3);
        if (rv == 0) {
            rv = redis_array(&message->reply, 2);
        }
        if (rv == 0) {
            rv = redis_bulk(&message->reply, key);
        }
        if (rv == 0) {
            rv = redis_bulk(&message->reply, mst_bytes_str("1"));
        }
    } else {
        rv = torch_keys(message, protocol, MST_OP_WAIT, key, 1);
    }
    if (rv == 0) {
        message_finish(message, protocol, SIZE_MAX);
    }
    if (rv == 0 && protocol == MST_BENCH_FLOOR_HOLD) {
        floor_set_reply(message, FLOOR_HOLD);
    }
    return rv;
}

int mst__bench_message_open(struct mst__bench_message *message,
                            enum mst__bench_protocol protocol,
                            struct mst_bytes key,
                            size_t count)
{
    int rv = 0;
    if (protocol != MST_BENCH_REDIS) {
        struct mst__command command = {.key = key, .value = mst_bytes_str("1")};
        rv = torch_request(message, protocol, MST_OP_SET, &command);
        if (rv == 0 && mst__bench_is_floor(protocol)) {
            floor_from_torch(message);
        }
        if (rv == 0 && protocol == MST_BENCH_FLOOR_HOLD) {
            floor_set_reply(message, FLOOR_RELEASE);
        }
        return rv;
    }
    rv = redis_array(&message->request, 2 + count);
    if (rv == 0) {
        rv = redis_bulk(&message->request, mst_bytes_str("RPUSH"));
    }
    if (rv == 0) {
        rv = redis_bulk(&message->request, key);
    }
    for (size_t i = 0; rv == 0 && i < count; i++) {
        rv = redis_bulk(&message->request, mst_bytes_str("1"));
    }
    char reply[32];
    (void)snprintf(reply, sizeof reply, ":%zu\r\n", count);
    if (rv == 0) {
        rv = redis_reply_text(message, reply);
    }
    if (rv == 0) {
        message_finish(message, protocol, SIZE_MAX);
    }
    return rv;
}
