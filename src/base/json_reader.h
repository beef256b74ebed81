/* base/json_reader.h - a look into JSON that others have written. Pure; nothing is allocated, and
 * nothing is built: a value is the piece of text that it is. */
#ifndef MST_BASE_JSON_READER_H
#define MST_BASE_JSON_READER_H

#include <muster/types.h>
#include <stdbool.h>

#include "base/buf.h"

/* The whole of @text is one value, perhaps with blanks around it: that value. False when it is not
 * JSON, or nested deeper than MST_JSON_DEPTH_MAX. */
bool mst__json_read_value(struct mst_bytes text, struct mst_bytes *ret_value);

/* The value of member @name of the object @object; the last one if there are several. Names with
 * escapes are compared as they are written. False when it is no object or has no such member. */
bool mst__json_read_member(struct mst_bytes object, const char *name, struct mst_bytes *ret_value);

/* Walk an array: begin with the array, which becomes what is left of it, and take items until there
 * is none. False at the end, and when it is no array. */
bool mst__json_read_begin(struct mst_bytes *array);
bool mst__json_read_item(struct mst_bytes *rest, struct mst_bytes *ret_value);

/* Append the characters of a string to @text; a lone half of a surrogate pair becomes the
 * replacement character. False when @value is no string, or @text takes no more. */
bool mst__json_read_text(struct mst_bytes value, struct mst__buf *text);

/* A number, fractions cut off, saturating. False when @value is none. And the same in
 * millionths. */
bool mst__json_read_number(struct mst_bytes value, int64_t *ret_number);
bool mst__json_read_micro(struct mst_bytes value, int64_t *ret_micro);

#endif /* MST_BASE_JSON_READER_H */
