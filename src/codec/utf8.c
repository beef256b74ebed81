/* codec/utf8.c - checks UTF-8; runs of ASCII, the common case, eight bytes at a time. */
#include "codec/utf8.h"

#include "base/bytes.h"

#define NOT_ASCII UINT64_C(0x8080808080808080)

/* The size of the character at @at, 0 if it is malformed. */
static size_t utf8_size(const uint8_t *at, size_t left)
{
    uint8_t first = at[0];
    if (first < 0x80) {
        return 1;
    }
    size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || left < size) {
        return 0;
    }
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    /* Overlong, or beyond the last code point. */
    if ((first == 0xe0 && at[1] < 0xa0) || (first == 0xf0 && at[1] < 0x90) ||
        (first == 0xf4 && at[1] > 0x8f)) {
        return 0;
    }
    return size;
}

bool mst__utf8_is_valid(struct mst_bytes bytes)
{
    size_t offset = 0;
    while (offset < bytes.size) {
        if (bytes.size - offset >= 8 && (mst__load_u64(bytes.data + offset) & NOT_ASCII) == 0) {
            offset += 8;
            continue;
        }
        size_t size = utf8_size(bytes.data + offset, bytes.size - offset);
        if (size == 0) {
            return false;
        }
        offset += size;
    }
    return true;
}
