/* base/percent.c - writes and reads `%XX`. */
#include "base/percent.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/number.h"

#define ENCODED_SIZE 3

bool mst__percent_is_plain(uint8_t byte, const char *plain)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || (byte != 0 && strchr(plain, byte) != NULL);
}

/* Returns the size of @ret_encoded. */
static size_t byte_encode(uint8_t byte, const char *plain, char ret_encoded[ENCODED_SIZE])
{
    static const char digits[] = "0123456789ABCDEF";
    if (mst__percent_is_plain(byte, plain)) {
        ret_encoded[0] = (char)byte;
        return 1;
    }
    ret_encoded[0] = '%';
    ret_encoded[1] = digits[byte >> 4];
    ret_encoded[2] = digits[byte & 15];
    return ENCODED_SIZE;
}

int mst__percent_append(struct mst__buf *buf, struct mst_bytes bytes, const char *plain)
{
    int rv = 0;
    for (size_t i = 0; i < bytes.size && rv == 0; i++) {
        char encoded[ENCODED_SIZE];
        size_t size = byte_encode(bytes.data[i], plain, encoded);
        rv = mst__buf_append(buf, mst_bytes_of(encoded, size));
    }
    return rv;
}

size_t mst__percent_write(struct mst_bytes bytes, const char *plain, char *ret_text, size_t size)
{
    MST_ASSERT(size > 0);
    size_t used = 0;
    for (size_t i = 0; i < bytes.size; i++) {
        char encoded[ENCODED_SIZE];
        size_t encoded_size = byte_encode(bytes.data[i], plain, encoded);
        if (encoded_size >= size - used) {
            break;
        }
        memcpy(ret_text + used, encoded, encoded_size);
        used += encoded_size;
    }
    ret_text[used] = '\0';
    return used;
}

bool mst__percent_take(struct mst_bytes *text, uint8_t *ret_byte)
{
    MST_ASSERT(text->size > 0);
    uint8_t byte = text->data[0];
    size_t size = 1;
    if (byte == '%') {
        int high = text->size < ENCODED_SIZE ? -1 : mst__number_hex_digit(text->data[1]);
        int low = high < 0 ? -1 : mst__number_hex_digit(text->data[2]);
        if (low < 0) {
            return false;
        }
        byte = (uint8_t)(high * 16 + low);
        size = ENCODED_SIZE;
    }
    *ret_byte = byte;
    *text = mst__bytes_skip(*text, size);
    return true;
}
