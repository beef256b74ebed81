/* base/percent.h - `%XX` in URLs, keys and names of directories.
 *
 * Letters and digits stand for themselves, and so do the other characters that a caller calls
 * plain; all else is written as `%` with two hexadecimal digits. */
#ifndef MST_BASE_PERCENT_H
#define MST_BASE_PERCENT_H

#include "base/buf.h"

/* What names consist of. */
#define MST_PERCENT_NAME "._-"

/* Whether @byte stands for itself: a letter, a digit or one of @plain. */
bool mst__percent_is_plain(uint8_t byte, const char *plain);

/* Append @bytes, encoded. 0, MST_ELIMIT or MST_ENOMEM. */
int mst__percent_append(struct mst__buf *buf, struct mst_bytes bytes, const char *plain);

/* Write @bytes, encoded, and a NUL to @ret_text, cut off between two of them if @size has no room
 * for more. Returns the length; three times the bytes and the NUL always fit. */
size_t mst__percent_write(struct mst_bytes bytes, const char *plain, char *ret_text, size_t size);

/* Take the first byte, encoded or not, off @text, which is not empty. False, with nothing taken, if
 * it is a `%` without two hexadecimal digits. */
bool mst__percent_take(struct mst_bytes *text, uint8_t *ret_byte);

#endif /* MST_BASE_PERCENT_H */
