/* base/number.h - numbers as text: how counters are stored, how options are read. */
#ifndef MST_BASE_NUMBER_H
#define MST_BASE_NUMBER_H

#include <muster/types.h>
#include <stdbool.h>

#define MST_NUMBER_SIZE 20 /* "-9223372036854775808" */

/* Read a decimal number as C's strtoll does: white space, a sign, digits; what follows is ignored.
 * False when there is no digit or the number does not fit. */
bool mst__number_parse_prefix(struct mst_bytes text, int64_t *ret_number);

/* Read a decimal number that is the whole of @text and lies within @min … @max. */
bool mst__number_parse(struct mst_bytes text, int64_t min, int64_t max, int64_t *ret_number);

/* Read a decimal number that may have a fraction, `1.5`, and is the whole of @text, without a sign;
 * the result is @factor (1 … 2^30) times as much. Parts of one count as one, so that only zero is
 * zero; what follows the ninth digit behind the point counts as one more there. False when it is
 * none or does not fit. */
bool mst__number_parse_scaled(struct mst_bytes text, int64_t factor, int64_t *ret_number);

/* Read a duration in milliseconds: 250ms, 1.5s, 5m, 2h; bare numbers are seconds. And a size in
 * bytes: 4096, 8K, 16M, 1G. False when it is none. */
bool mst__number_parse_duration(const char *text, int64_t *ret_ms);
bool mst__number_parse_size(const char *text, int64_t *ret_size);

/* Write @number in decimal; returns its length. No NUL. */
size_t mst__number_format(int64_t number, char ret_text[MST_NUMBER_SIZE]);

/* What the hexadecimal digit @c stands for; -1 when it is none. */
int mst__number_hex_digit(uint8_t c);

#endif /* MST_BASE_NUMBER_H */
