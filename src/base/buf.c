/* base/buf.c - bounded byte buffer.
 * Invariant: start <= end <= capacity, end - start <= size_max. */
#include "base/buf.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/slab.h"

#define BUF_CAPACITY_MIN ((size_t)256)

void mst__buf_init(struct mst__buf *buf, size_t size_max)
{
    MST_ASSERT(size_max > 0);
    MST_ASSERT(size_max <= SIZE_MAX / 4);
    *buf = (struct mst__buf){.size_max = size_max};
}

void mst__buf_init_in(struct mst__buf *buf, size_t size_max, struct mst__slabs *slabs)
{
    mst__buf_init(buf, size_max);
    buf->slabs = slabs;
}

void mst__buf_close(struct mst__buf *buf)
{
    mst__slab_free(buf->slabs, buf->memory, buf->capacity);
    *buf = (struct mst__buf){.size_max = buf->size_max, .slabs = buf->slabs};
}

static void buf_move_to_front(struct mst__buf *buf)
{
    size_t size = mst__buf_size(buf);
    if (size > 0) {
        memmove(buf->memory, buf->memory + buf->start, size);
    }
    buf->start = 0;
    buf->end = size;
}

static int buf_grow(struct mst__buf *buf, size_t needed)
{
    size_t capacity = buf->capacity < BUF_CAPACITY_MIN ? BUF_CAPACITY_MIN : buf->capacity;
    while (capacity < needed) {
        capacity *= 2;
    }
    if (capacity > buf->size_max && needed <= buf->size_max) {
        capacity = buf->size_max;
    }
    uint8_t *memory = mst__slab_realloc(buf->slabs, buf->memory, buf->capacity, capacity);
    if (memory == NULL) {
        return MST_ENOMEM;
    }
    buf->memory = memory;
    buf->capacity = capacity;
    return 0;
}

uint8_t *mst__buf_reserve(struct mst__buf *buf, size_t size, int *ret_code)
{
    MST_ASSERT(buf->size_max > 0);
    MST_ASSERT(buf->start <= buf->end);
    if (MST_LIKELY(buf->memory != NULL && size <= buf->capacity - buf->end &&
                   size <= buf->size_max - mst__buf_size(buf))) {
        return buf->memory + buf->end;
    }
    if (size > buf->size_max - mst__buf_size(buf)) {
        *ret_code = MST_ELIMIT;
        return NULL;
    }
    if (buf->start > 0) {
        buf_move_to_front(buf);
    }
    size_t needed = buf->end + size;
    if (buf->memory == NULL || needed > buf->capacity) {
        int rv = buf_grow(buf, needed);
        if (rv != 0) {
            *ret_code = rv;
            return NULL;
        }
    }
    return buf->memory + buf->end;
}

void mst__buf_commit(struct mst__buf *buf, size_t size)
{
    MST_ASSERT(size <= buf->capacity - buf->end);
    buf->end += size;
}

int mst__buf_append(struct mst__buf *buf, struct mst_bytes bytes)
{
    if (bytes.size == 0) {
        return 0;
    }
    int rv = 0;
    uint8_t *to = mst__buf_reserve(buf, bytes.size, &rv);
    if (to == NULL) {
        return rv;
    }
    memcpy(to, bytes.data, bytes.size);
    mst__buf_commit(buf, bytes.size);
    return 0;
}

int mst__buf_append_u8(struct mst__buf *buf, uint8_t value)
{
    return mst__buf_append(buf, mst_bytes_of(&value, 1));
}

int mst__buf_append_u32(struct mst__buf *buf, uint32_t value)
{
    uint8_t raw[4];
    mst__store_u32(raw, value);
    return mst__buf_append(buf, mst_bytes_of(raw, sizeof raw));
}

int mst__buf_append_u64(struct mst__buf *buf, uint64_t value)
{
    uint8_t raw[8];
    mst__store_u64(raw, value);
    return mst__buf_append(buf, mst_bytes_of(raw, sizeof raw));
}

int mst__buf_append_str(struct mst__buf *buf, struct mst_bytes bytes)
{
    if (bytes.size > SIZE_MAX - 8) {
        return MST_ELIMIT;
    }
    int rv = 0;
    uint8_t *to = mst__buf_reserve(buf, 8 + bytes.size, &rv);
    if (to == NULL) {
        return rv;
    }
    mst__store_u64(to, bytes.size);
    if (bytes.size > 0) {
        memcpy(to + 8, bytes.data, bytes.size);
    }
    mst__buf_commit(buf, 8 + bytes.size);
    return 0;
}

void mst__buf_consume(struct mst__buf *buf, size_t size)
{
    MST_ASSERT(size <= mst__buf_size(buf));
    buf->start += size;
    if (buf->start == buf->end) {
        mst__buf_clear(buf);
    }
}

void mst__buf_truncate(struct mst__buf *buf, size_t size)
{
    MST_ASSERT(size <= mst__buf_size(buf));
    buf->end = buf->start + size;
}

int mst__buf_release(struct mst__buf *buf, struct mst_buffer *ret_buffer)
{
    MST_ASSERT(buf->slabs == NULL); /* the public buffer does not know slabs */
    buf_move_to_front(buf);
    if (buf->end == buf->capacity) {
        int rv = buf_grow(buf, buf->end + 1);
        if (rv != 0) {
            return rv;
        }
    }
    buf->memory[buf->end] = '\0';
    *ret_buffer = (struct mst_buffer){.data = buf->memory, .size = buf->end};
    buf->memory = NULL;
    mst__buf_close(buf);
    return 0;
}
