/* base/base64.c - base64 as Python's b64encode and b64decode have it. */
#include "base/base64.h"

#include "base/assert.h"

#define PADDING '='
#define NO_DIGIT 0xff

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int mst__base64_write(struct mst__buf *output, struct mst_bytes bytes)
{
    if (bytes.size > SIZE_MAX / 2) {
        return MST_ELIMIT;
    }
    size_t size = (bytes.size + 2) / 3 * 4;
    int rv = 0;
    uint8_t *to = mst__buf_reserve(output, size, &rv);
    if (to == NULL) {
        return rv;
    }
    const uint8_t *from = bytes.data;
    size_t left = bytes.size;
    for (; left >= 3; left -= 3, from += 3, to += 4) {
        uint32_t group = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 8 | from[2];
        to[0] = (uint8_t)digits[group >> 18];
        to[1] = (uint8_t)digits[group >> 12 & 63];
        to[2] = (uint8_t)digits[group >> 6 & 63];
        to[3] = (uint8_t)digits[group & 63];
    }
    if (left > 0) {
        uint32_t group = (uint32_t)from[0] << 16 | (left == 2 ? (uint32_t)from[1] << 8 : 0);
        to[0] = (uint8_t)digits[group >> 18];
        to[1] = (uint8_t)digits[group >> 12 & 63];
        to[2] = left == 2 ? (uint8_t)digits[group >> 6 & 63] : PADDING;
        to[3] = PADDING;
    }
    mst__buf_commit(output, size);
    return 0;
}

static void base64_values(uint8_t ret_values[256])
{
    memset(ret_values, NO_DIGIT, 256);
    for (uint8_t i = 0; i < 64; i++) {
        ret_values[(uint8_t)digits[i]] = i;
    }
}

int mst__base64_read(struct mst__buf *output, struct mst_bytes text)
{
    int rv = 0;
    uint8_t *start = mst__buf_reserve(output, text.size / 4 * 3 + 3, &rv);
    if (start == NULL) {
        return rv;
    }
    uint8_t values[256];
    base64_values(values);
    uint8_t *to = start;
    const uint8_t *at = text.data;
    size_t left = text.size;
    uint32_t group = 0;
    unsigned count = 0; /* digits in the group */
    unsigned padding = 0;
    while (left > 0) {
        if (count == 0 && left >= 4 &&
            (values[at[0]] | values[at[1]] | values[at[2]] | values[at[3]]) < 64) {
            group = (uint32_t)values[at[0]] << 18 | (uint32_t)values[at[1]] << 12 |
                    (uint32_t)values[at[2]] << 6 | values[at[3]];
            *to++ = (uint8_t)(group >> 16);
            *to++ = (uint8_t)(group >> 8);
            *to++ = (uint8_t)group;
            at += 4;
            left -= 4;
            padding = 0;
            continue;
        }
        uint8_t character = *at++;
        left--;
        if (character == PADDING) {
            /* A complete group with padding ends the text, whatever follows. */
            if (count >= 2 && count + ++padding >= 4) {
                mst__buf_commit(output, (size_t)(to - start));
                return 0;
            }
            continue;
        }
        uint8_t value = values[character];
        if (value == NO_DIGIT) {
            continue;
        }
        padding = 0;
        group = (group << 6 | value) & 0xffffff;
        count = (count + 1) % 4;
        /* The byte that this digit completes. */
        if (count != 1) {
            *to++ = (uint8_t)(count == 2 ? group >> 4 : count == 3 ? group >> 2 : group);
        }
    }
    if (count != 0) {
        return MST_EPROTO;
    }
    mst__buf_commit(output, (size_t)(to - start));
    return 0;
}
