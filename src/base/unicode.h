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

/* Whether a terminal shows @c as a character and does nothing else: no control character of either
 * set, no separator of lines, nothing that turns the direction of what follows. */
bool mst__unicode_is_shown(uint32_t c);

/* A character as it is shown to people, NUL included: four bytes, each as `\xNN`. */
#define MST_UNICODE_SHOWN_SIZE 17

/* Take the first character from @text, which holds any bytes, and write to @ret_shown what can be
 * shown of it: itself, or its bytes as `\xNN`. Text from elsewhere is printed through this. Returns
 * the length of @ret_shown; 0 when @text is empty. */
size_t mst__unicode_take_shown(struct mst_bytes *text, char ret_shown[MST_UNICODE_SHOWN_SIZE]);

/* @text without the blanks around it. */
struct mst_bytes mst__unicode_trim(struct mst_bytes text);

#endif /* MST_BASE_UNICODE_H */
