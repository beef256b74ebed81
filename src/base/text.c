/* base/text.c - appends formatted and foreign text to a buffer. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/unicode.h"

void mst__text_put(struct mst__buf *text, int *rv, const char *format, ...)
{
    char part[MST_TEXT_PART_SIZE];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(part, sizeof part, format, args);
    va_end(args);
    size_t size = length < 0 ? 0 : (size_t)length < sizeof part ? (size_t)length : sizeof part - 1;
    if (*rv == 0) {
        *rv = mst__buf_append(text, mst_bytes_of(part, size));
    }
}

size_t mst__text_put_foreign(struct mst__buf *text, int *rv, struct mst_bytes foreign)
{
    size_t count = 0;
    char shown[MST_UNICODE_SHOWN_SIZE];
    size_t size;
    while ((size = mst__unicode_take_shown(&foreign, shown)) > 0) {
        if (*rv == 0) {
            *rv = mst__buf_append(text, mst_bytes_of(shown, size));
        }
        count += shown[0] == '\\' ? size : 1;
    }
    return count;
}

const char *mst__text_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}
