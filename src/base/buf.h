/* base/buf.h - a growing byte buffer with a mandatory maximum.
 *
 * Bytes are appended at the end and consumed at the front. The caller owns the memory of the
 * struct: init, then close. A closed or zeroed buffer is empty and has no allocation. */
#ifndef MST_BASE_BUF_H
#define MST_BASE_BUF_H

#include <muster/types.h>
#include <stdbool.h>

struct mst__slabs;

struct mst__buf {
    uint8_t *memory;
    size_t start;             /* first byte not yet consumed */
    size_t end;               /* after the last byte */
    size_t capacity;          /* bytes allocated */
    size_t size_max;          /* end - start never exceeds this */
    struct mst__slabs *slabs; /* where the memory comes from; NULL = mst__malloc */
};

void mst__buf_init(struct mst__buf *buf, size_t size_max);
/* The same with memory from @slabs. */
void mst__buf_init_in(struct mst__buf *buf, size_t size_max, struct mst__slabs *slabs);

/* Release the memory; the buffer is empty and can be used again. */
void mst__buf_close(struct mst__buf *buf);

static inline size_t mst__buf_size(const struct mst__buf *buf)
{
    return buf->end - buf->start;
}

static inline struct mst_bytes mst__buf_bytes(const struct mst__buf *buf)
{
    /* Never NULL: memcpy and others do not accept NULL, even for zero bytes. */
    return mst_bytes_of(buf->memory == NULL ? (const uint8_t *)"" : buf->memory + buf->start,
                        mst__buf_size(buf));
}

/* Forget everything, keep the memory. */
static inline void mst__buf_clear(struct mst__buf *buf)
{
    buf->start = 0;
    buf->end = 0;
}

/* Make room for @size more bytes and return their address, or NULL with @ret_code set to MST_ELIMIT
 * or MST_ENOMEM; the buffer is then unchanged. The bytes count after mst__buf_commit. */
uint8_t *mst__buf_reserve(struct mst__buf *buf, size_t size, int *ret_code);
void mst__buf_commit(struct mst__buf *buf, size_t size);

/* Append; 0, MST_ELIMIT or MST_ENOMEM. On error the buffer is unchanged. @bytes may point into the
 * buffer itself only if the room was reserved before. */
int mst__buf_append(struct mst__buf *buf, struct mst_bytes bytes);
int mst__buf_append_u8(struct mst__buf *buf, uint8_t value);
int mst__buf_append_u32(struct mst__buf *buf, uint32_t value);
int mst__buf_append_u64(struct mst__buf *buf, uint64_t value);
/* A u64 length, then the bytes: the form of keys and values on the wire and in item lists. */
int mst__buf_append_str(struct mst__buf *buf, struct mst_bytes bytes);

/* Drop @size bytes at the front. */
void mst__buf_consume(struct mst__buf *buf, size_t size);

/* Keep only the first @size bytes: undoes appends. */
void mst__buf_truncate(struct mst__buf *buf, size_t size);

/* Move the bytes to a public buffer, with a NUL after them; @buf is empty afterwards. 0, or
 * MST_ENOMEM with nothing changed. */
int mst__buf_release(struct mst__buf *buf, struct mst_buffer *ret_buffer);

#endif /* MST_BASE_BUF_H */
