/* base/number.h - the smaller and the larger of two numbers, and numbers as text: stored counters,
 * options. */
#ifndef MST_BASE_NUMBER_H
#define MST_BASE_NUMBER_H

#include <muster/types.h>
#include <stdbool.h>

#define MST_NUMBER_SIZE 20 /* "-9223372036854775808" */

static inline int64_t mst__min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t mst__max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Parse a decimal number as C's strtoll does: white space, a sign, digits; the rest is ignored.
 * False if there is no digit or the number does not fit. */
bool mst__number_parse_prefix(struct mst_bytes text, int64_t *ret_number);

/* Parse a decimal number that is the whole of @text and within @min … @max. */
bool mst__number_parse(struct mst_bytes text, int64_t min, int64_t max, int64_t *ret_number);

/* Parse a decimal number with an optional fraction, `1.5`, that is the whole of @text, without a
 * sign; the result is @factor (1 … 2^30) times the number, rounded up, so that only zero gives
 * zero. Digits after the ninth decimal round it up. False if it is malformed or does not fit. */
bool mst__number_parse_scaled(struct mst_bytes text, int64_t factor, int64_t *ret_number);

/* Parse a duration to milliseconds: 250ms, 1.5s, 5m, 2h; bare numbers are seconds. And a size in
 * bytes: 4096, 8K, 16M, 1G. False if malformed. */
bool mst__number_parse_duration(const char *text, int64_t *ret_ms);
bool mst__number_parse_size(const char *text, int64_t *ret_size);

/* Write @number in decimal; returns its length. No NUL. */
size_t mst__number_format(int64_t number, char ret_text[MST_NUMBER_SIZE]);

/* The value of the hexadecimal digit @c; -1 if it is none. */
int mst__number_hex_digit(uint8_t c);

#endif /* MST_BASE_NUMBER_H */
