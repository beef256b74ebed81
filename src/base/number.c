/* base/number.c - decimal text to numbers and back, without locales and without a NUL. */
#include "base/number.h"

#include <string.h>

#include "base/assert.h"

static bool number_is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Where the number in @text ends; 0 if there is none. */
static size_t number_scan(struct mst_bytes text, int64_t *ret_number)
{
    size_t at = 0;
    while (at < text.size && number_is_space(text.data[at])) {
        at++;
    }
    bool negative = at < text.size && text.data[at] == '-';
    if (at < text.size && (text.data[at] == '-' || text.data[at] == '+')) {
        at++;
    }
    /* The magnitude of the smallest number is one more than that of the largest. */
    uint64_t magnitude_max = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    uint64_t magnitude = 0;
    size_t digits_start = at;
    for (; at < text.size && text.data[at] >= '0' && text.data[at] <= '9'; at++) {
        uint64_t digit = (uint64_t)(text.data[at] - '0');
        if (magnitude > (magnitude_max - digit) / 10) {
            return 0;
        }
        magnitude = magnitude * 10 + digit;
    }
    if (at == digits_start) {
        return 0;
    }
    *ret_number = (int64_t)(negative ? 0 - magnitude : magnitude);
    return at;
}

bool mst__number_parse_prefix(struct mst_bytes text, int64_t *ret_number)
{
    int64_t number = 0;
    if (number_scan(text, &number) == 0) {
        return false;
    }
    *ret_number = number;
    return true;
}

bool mst__number_parse(struct mst_bytes text, int64_t min, int64_t max, int64_t *ret_number)
{
    int64_t number = 0;
    if (text.size == 0 || number_is_space(text.data[0]) ||
        number_scan(text, &number) != text.size || number < min || number > max) {
        return false;
    }
    *ret_number = number;
    return true;
}

size_t mst__number_format(int64_t number, char ret_text[MST_NUMBER_SIZE])
{
    char reversed[MST_NUMBER_SIZE];
    uint64_t magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    size_t count = 0;
    do {
        reversed[count++] = (char)('0' + magnitude % 10);
        magnitude /= 10;
    } while (magnitude > 0);
    if (number < 0) {
        reversed[count++] = '-';
    }
    MST_ASSERT(count <= MST_NUMBER_SIZE);
    for (size_t i = 0; i < count; i++) {
        ret_text[i] = reversed[count - 1 - i];
    }
    return count;
}

int mst__number_hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}
