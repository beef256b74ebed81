/* base/bytes.h - little-endian integers in byte strings, and comparing byte strings. */
#ifndef MST_BASE_BYTES_H
#define MST_BASE_BYTES_H

#include <muster/types.h>
#include <stdbool.h>
#include <string.h>

/* Copy the bytes, and swap them on a big-endian machine: compilers make one instruction of this,
 * but not of a loop. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define MST_LE64(value) (value)
#define MST_LE32(value) (value)
#else
#define MST_LE64(value) __builtin_bswap64(value)
#define MST_LE32(value) __builtin_bswap32(value)
#endif

static inline uint64_t mst__load_u64(const uint8_t *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return MST_LE64(value);
}

static inline uint32_t mst__load_u32(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return MST_LE32(value);
}

static inline void mst__store_u64(uint8_t *to, uint64_t value)
{
    uint64_t ordered = MST_LE64(value);
    memcpy(to, &ordered, sizeof ordered);
}

static inline void mst__store_u32(uint8_t *to, uint32_t value)
{
    uint32_t ordered = MST_LE32(value);
    memcpy(to, &ordered, sizeof ordered);
}

static inline bool mst__bytes_equal(struct mst_bytes a, struct mst_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static inline bool mst__bytes_start_with(struct mst_bytes bytes, struct mst_bytes prefix)
{
    return bytes.size >= prefix.size &&
           (prefix.size == 0 || memcmp(bytes.data, prefix.data, prefix.size) == 0);
}

static inline struct mst_bytes mst__bytes_skip(struct mst_bytes bytes, size_t count)
{
    return mst_bytes_of(bytes.data + count, bytes.size - count);
}

#endif /* MST_BASE_BYTES_H */
