/* base/number.c - decimal text to numbers and back, without locales and without a NUL. */
#include "base/number.h"

#include <string.h>

#include "base/assert.h"

#define FRACTION_DIGITS_MAX 9
#define FACTOR_MAX (1 << 30) /* a fraction of the longest precision times this still fits */

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

/* The number that @text consists of; false if it is empty or has other characters. */
static bool number_digits(struct mst_bytes text, int64_t *ret_number)
{
    return text.size > 0 && text.data[0] >= '0' && text.data[0] <= '9' &&
           number_scan(text, ret_number) == text.size;
}

bool mst__number_parse_scaled(struct mst_bytes text, int64_t factor, int64_t *ret_number)
{
    MST_ASSERT(factor >= 1 && factor <= FACTOR_MAX);
    const uint8_t *point = text.size == 0 ? NULL : memchr(text.data, '.', text.size);
    size_t whole_size = point == NULL ? text.size : (size_t)(point - text.data);
    int64_t whole = 0;
    int64_t number = 0;
    if (!number_digits(mst_bytes_of(text.data, whole_size), &whole) ||
        __builtin_mul_overflow(whole, factor, &number)) {
        return false;
    }
    if (point != NULL) {
        struct mst_bytes digits = mst_bytes_of(point + 1, text.size - whole_size - 1);
        int64_t fraction = 0;
        int64_t scale = 1;
        struct mst_bytes more = {0};
        if (digits.size > FRACTION_DIGITS_MAX) {
            more =
                mst_bytes_of(digits.data + FRACTION_DIGITS_MAX, digits.size - FRACTION_DIGITS_MAX);
            digits.size = FRACTION_DIGITS_MAX;
        }
        if (!number_digits(digits, &fraction)) {
            return false;
        }
        bool is_more = false;
        for (size_t i = 0; i < more.size; i++) {
            if (more.data[i] < '0' || more.data[i] > '9') {
                return false;
            }
            is_more = is_more || more.data[i] != '0';
        }
        fraction += is_more ? 1 : 0;
        for (size_t i = 0; i < digits.size; i++) {
            scale *= 10;
        }
        int64_t part = (fraction * factor + scale - 1) / scale;
        if (__builtin_add_overflow(number, part, &number)) {
            return false;
        }
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

/* A number of the characters @digits followed by one of @units. */
static bool number_with_unit(const char *text,
                             const char *digits,
                             const char *const *units,
                             const int64_t *factors,
                             size_t units_count,
                             int64_t *ret_number)
{
    size_t size = strspn(text, digits);
    for (size_t i = 0; i < units_count; i++) {
        if (strcmp(text + size, units[i]) == 0) {
            return mst__number_parse_scaled(mst_bytes_of(text, size), factors[i], ret_number);
        }
    }
    return false;
}

bool mst__number_parse_duration(const char *text, int64_t *ret_ms)
{
    static const char *const units[] = {"", "ms", "s", "m", "h"};
    static const int64_t factors[] = {1000, 1, 1000, 60000, 3600000};
    return number_with_unit(text, "0123456789.", units, factors, 5, ret_ms);
}

bool mst__number_parse_size(const char *text, int64_t *ret_size)
{
    static const char *const units[] = {"", "K", "M", "G", "KiB", "MiB", "GiB"};
    static const int64_t factors[] = {1, 1 << 10, 1 << 20, 1 << 30, 1 << 10, 1 << 20, 1 << 30};
    return number_with_unit(text, "0123456789", units, factors, 7, ret_size);
}
