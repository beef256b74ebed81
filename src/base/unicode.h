/* base/unicode.h - as much of Unicode as it takes to read options and endpoints like the peers. */
#ifndef MST_BASE_UNICODE_H
#define MST_BASE_UNICODE_H

#include <muster/types.h>
#include <stdbool.h>

/* Read the first character of @text, which is UTF-8: its size in bytes, or 0 when there is none or
 * it is malformed. */
size_t mst__unicode_next(struct mst_bytes text, uint32_t *ret_char);

/* A letter, a digit or another numeral of any script, or the underscore. */
bool mst__unicode_is_word(uint32_t c);

/* A blank of any kind; the control characters 1C to 1F count as such. */
bool mst__unicode_is_space(uint32_t c);

/* The value of a decimal digit of any script, or -1. */
int mst__unicode_digit(uint32_t c);

/* @text without the blanks around it. */
struct mst_bytes mst__unicode_trim(struct mst_bytes text);

#endif /* MST_BASE_UNICODE_H */
