/* base/text.h - builds text for people. */
#ifndef MST_BASE_TEXT_H
#define MST_BASE_TEXT_H

#include "base/buf.h"

/* Append formatted text to @text, cut off at MST_TEXT_PART_SIZE - 1 bytes. The first error is kept
 * in @rv; later calls do nothing. */
#define MST_TEXT_PART_SIZE 1024
void mst__text_put(struct mst__buf *text, int *rv, const char *format, ...) MST_PRINTF(3, 4);

/* Append untrusted text in the form of mst__unicode_take_shown; otherwise the same. Returns the
 * number of characters. */
size_t mst__text_put_foreign(struct mst__buf *text, int *rv, struct mst_bytes foreign);

/* "" for 1, else "s". */
const char *mst__text_plural(uint64_t count);

#endif /* MST_BASE_TEXT_H */
