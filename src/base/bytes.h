/* base/bytes.h - little-endian integers in byte strings, and comparing byte strings. */
#ifndef MST_BASE_BYTES_H
#define MST_BASE_BYTES_H

#include <muster/types.h>
#include <stdbool.h>
#include <string.h>

static inline uint64_t mst__load_u64(const uint8_t *from)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < 8; i++) {
        value |= (uint64_t)from[i] << (8 * i);
    }
    return value;
}

static inline uint32_t mst__load_u32(const uint8_t *from)
{
    uint32_t value = 0;
    for (unsigned i = 0; i < 4; i++) {
        value |= (uint32_t)from[i] << (8 * i);
    }
    return value;
}

static inline void mst__store_u64(uint8_t *to, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
}

static inline void mst__store_u32(uint8_t *to, uint32_t value)
{
    for (unsigned i = 0; i < 4; i++) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
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
    return mst_bytes(bytes.data + count, bytes.size - count);
}

#endif /* MST_BASE_BYTES_H */
