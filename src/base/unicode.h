/* base/unicode.h - UTF-8, and the part of Unicode that is needed to parse options and endpoints as
 * the peers do. */
#ifndef MST_BASE_UNICODE_H
#define MST_BASE_UNICODE_H

#include <muster/types.h>
#include <stdbool.h>

/* Decode the first UTF-8 character of @text: its size in bytes, or 0 if @text is empty or
 * malformed. */
size_t mst__unicode_next(struct mst_bytes text, uint32_t *ret_char);

/* Whether @text is UTF-8. */
bool mst__unicode_is_utf8(struct mst_bytes text);

/* The same, as Python's pickles have it, with lone surrogates: a host name that is not UTF-8
 * contains them. */
bool mst__unicode_is_pickled(struct mst_bytes text);

/* A letter, a digit or another numeral of any script, or the underscore. */
bool mst__unicode_is_word(uint32_t c);

/* A blank of any kind; control characters 1C to 1F count as blanks. */
bool mst__unicode_is_space(uint32_t c);

/* The value of a decimal digit of any script, or -1. */
int mst__unicode_digit(uint32_t c);

/* Whether a terminal shows @c as a character without side effects: not a control character, not a
 * line separator, not a change of the text direction. */
bool mst__unicode_is_shown(uint32_t c);

/* Size of a character as shown to people, NUL included: four bytes, each as `\xNN`. */
#define MST_UNICODE_SHOWN_SIZE 17

/* Take the first character of @text, which may hold any bytes, and write it to @ret_shown in a form
 * that can be printed: itself, or its bytes as `\xNN`. All untrusted text is printed through this.
 * Returns the length of @ret_shown; 0 if @text is empty. */
size_t mst__unicode_take_shown(struct mst_bytes *text, char ret_shown[MST_UNICODE_SHOWN_SIZE]);

/* Write all of @text to @ret_text in that form, cut off between two characters if it has no room in
 * @size bytes with a NUL. */
void mst__unicode_show(struct mst_bytes text, char *ret_text, size_t size);

/* @text without leading and trailing blanks. */
struct mst_bytes mst__unicode_trim(struct mst_bytes text);

#endif /* MST_BASE_UNICODE_H */
