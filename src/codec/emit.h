/* codec/emit.h - writes single opcodes to memory that has room for them; returns the position after
 * them. */
#ifndef MST_CODEC_EMIT_H
#define MST_CODEC_EMIT_H

#include <muster/types.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "codec/opcode.h"

/* The maximum size of an integer, and of text or bytes besides their content. */
#define MST_EMIT_INT_SIZE 10
#define MST_EMIT_BYTES_SIZE 5
#define MST_EMIT_GET_SIZE 5

static inline uint8_t *mst__emit_raw(uint8_t *to, const void *data, size_t size)
{
    if (size > 0) {
        memcpy(to, data, size);
    }
    return to + size;
}

static inline uint8_t *mst__emit_u32(uint8_t *to, uint8_t opcode, uint32_t argument)
{
    to[0] = opcode;
    mst__store_u32(to + 1, argument);
    return to + 5;
}

/* The shortest form, as Python writes it. */
static inline uint8_t *mst__emit_int(uint8_t *to, int64_t number)
{
    if (number >= 0 && number <= UINT8_MAX) {
        *to++ = MST_PICKLE_BININT1;
        *to++ = (uint8_t)number;
        return to;
    }
    if (number >= 0 && number <= UINT16_MAX) {
        *to++ = MST_PICKLE_BININT2;
        *to++ = (uint8_t)number;
        *to++ = (uint8_t)(number >> 8);
        return to;
    }
    if (number >= INT32_MIN && number <= INT32_MAX) {
        return mst__emit_u32(to, MST_PICKLE_BININT, (uint32_t)number);
    }
    uint64_t raw = (uint64_t)number;
    uint64_t magnitude = number < 0 ? ~raw : raw;
    uint8_t size = 4;
    while (size < 8 && magnitude >> (8 * size - 1) != 0) {
        size++;
    }
    *to++ = MST_PICKLE_LONG1;
    *to++ = size;
    for (uint8_t i = 0; i < size; i++) {
        *to++ = (uint8_t)(raw >> (8 * i));
    }
    return to;
}

static inline uint8_t *mst__emit_sized(uint8_t *to,
                                       uint8_t short_opcode,
                                       uint8_t long_opcode,
                                       struct mst_bytes bytes)
{
    MST_ASSERT(bytes.size <= UINT32_MAX);
    if (bytes.size <= UINT8_MAX) {
        *to++ = short_opcode;
        *to++ = (uint8_t)bytes.size;
    } else {
        to = mst__emit_u32(to, long_opcode, (uint32_t)bytes.size);
    }
    return mst__emit_raw(to, bytes.data, bytes.size);
}

static inline uint8_t *mst__emit_text(uint8_t *to, struct mst_bytes text)
{
    return mst__emit_sized(to, MST_PICKLE_SHORT_BINUNICODE, MST_PICKLE_BINUNICODE, text);
}

static inline uint8_t *mst__emit_bytes(uint8_t *to, struct mst_bytes bytes)
{
    return mst__emit_sized(to, MST_PICKLE_SHORT_BINBYTES, MST_PICKLE_BINBYTES, bytes);
}

/* The value of the memo at @index. */
static inline uint8_t *mst__emit_get(uint8_t *to, uint32_t index)
{
    if (index <= UINT8_MAX) {
        *to++ = MST_PICKLE_BINGET;
        *to++ = (uint8_t)index;
        return to;
    }
    return mst__emit_u32(to, MST_PICKLE_LONG_BINGET, index);
}

#endif /* MST_CODEC_EMIT_H */
