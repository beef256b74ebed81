/* fuzz/fuzz_client.c - any bytes as a server's answers.
 *
 * The first byte of the input chooses the operation, the second its number of keys; the rest is
 * the stream of answers, read one after another until an error or the end. Each answer is read
 * from the whole stream and from every short prefix of it: the result must be the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "wire/wire.h"

static const struct mst__wire_limits limits = {.key_size_max = 40,
                                               .value_size_max = 100,
                                               .message_size_max = 300};

static void assert_same(const struct mst__reply *a, const struct mst__reply *b)
{
    MST_ASSERT(a->kind == b->kind);
    MST_ASSERT(a->status == b->status);
    MST_ASSERT(a->number == b->number);
    MST_ASSERT(mst__bytes_equal(a->bytes, b->bytes));
}

/* Walk the strs of a reply with many of them: accepted ones are well-formed. */
static void assert_whole(const struct mst__command *command, const struct mst__reply *reply)
{
    uint64_t count = reply->kind == MST_REPLY_ITEMS  ? command->count
                     : reply->kind == MST_REPLY_LIST ? (uint64_t)reply->number
                                                     : 0;
    struct mst_bytes items = reply->bytes;
    for (uint64_t i = 0; i < count; i++) {
        struct mst_bytes item;
        bool is_there = mst__items_next(&items, &item);
        MST_ASSERT(is_there);
    }
    if (reply->kind == MST_REPLY_ITEMS || reply->kind == MST_REPLY_LIST) {
        MST_ASSERT(items.size == 0);
    }
}

/* Read one answer from growing prefixes of @input. */
static int read_growing(const struct mst__command *command,
                        struct mst_bytes input,
                        struct mst__reply *ret_reply,
                        size_t *ret_size)
{
    size_t wanted = 0;
    for (size_t have = 0; have <= input.size; have++) {
        size_t size = 0;
        int rv = mst__wire_read_reply(command, &limits, mst_bytes_of(input.data, have), ret_reply,
                                      &size, NULL);
        if (rv != MST_WIRE_MORE) {
            *ret_size = size;
            return rv;
        }
        MST_ASSERT(size > have);
        MST_ASSERT(size >= wanted);
        MST_ASSERT(size <= limits.message_size_max + 8);
        wanted = size;
    }
    *ret_size = wanted;
    return MST_WIRE_MORE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    struct mst__command command = {.op = (enum mst__op)(data[0] % MST_OP_COUNT), .count = data[1]};
    struct mst_bytes input = mst_bytes_of(data + 2, size - 2);
    for (;;) {
        struct mst__reply whole = {0};
        struct mst__reply grown = {0};
        struct mst_err err = {0};
        size_t whole_size = 0;
        size_t grown_size = 0;
        int rv = mst__wire_read_reply(&command, &limits, input, &whole, &whole_size, &err);
        int grown_rv = read_growing(&command, input, &grown, &grown_size);
        MST_ASSERT(rv == grown_rv);
        if (rv < 0) {
            MST_ASSERT(err.code == rv);
            MST_ASSERT(err.msg[0] != '\0');
            return 0;
        }
        MST_ASSERT(whole_size == grown_size);
        if (rv == MST_WIRE_MORE) {
            return 0;
        }
        MST_ASSERT(whole_size <= input.size);
        assert_same(&whole, &grown);
        assert_whole(&command, &whole);
        if (whole_size == 0) {
            return 0; /* an operation without an answer */
        }
        input = mst__bytes_skip(input, whole_size);
    }
}
