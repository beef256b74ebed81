/* base/text.h - text for people in the making. */
#ifndef MST_BASE_TEXT_H
#define MST_BASE_TEXT_H

#include "base/buf.h"

/* Append to @text what a format makes, cut off at MST_TEXT_PART_SIZE - 1 bytes. The first error is
 * kept in @rv, and nothing is done after it. */
#define MST_TEXT_PART_SIZE 1024
void mst__text_put(struct mst__buf *text, int *rv, const char *format, ...) MST_PRINTF(3, 4);

/* Append text that anybody may have written, as mst__unicode_take_shown has it. The same. Returns
 * how many characters that makes. */
size_t mst__text_put_foreign(struct mst__buf *text, int *rv, struct mst_bytes foreign);

/* "" for one, "s" for any other number. */
const char *mst__text_plural(uint64_t count);

#endif /* MST_BASE_TEXT_H */
