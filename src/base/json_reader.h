/* base/json_reader.h - reads JSON without allocating or building anything: a value is a piece of
 * the text. Pure. */
#ifndef MST_BASE_JSON_READER_H
#define MST_BASE_JSON_READER_H

#include <muster/types.h>
#include <stdbool.h>

#include "base/buf.h"

/* The value that makes up @text, without the blanks around it. False if @text is not JSON, or is
 * nested deeper than MST_JSON_DEPTH_MAX. */
bool mst__json_read_value(struct mst_bytes text, struct mst_bytes *ret_value);

/* The value of member @name of @object; the last one if there are several. Names are compared
 * without decoding escapes. False if @object is not an object or has no such member. */
bool mst__json_read_member(struct mst_bytes object, const char *name, struct mst_bytes *ret_value);

/* Iterate over an array: `begin` enters @array, which then holds the rest, and `next` takes an
 * item. False at the end, or if it is not an array. */
bool mst__json_read_begin(struct mst_bytes *array);
bool mst__json_read_item(struct mst_bytes *rest, struct mst_bytes *ret_value);

/* Append the characters of a string to @text; an unpaired surrogate becomes the replacement
 * character. False if @value is not a string, or @text is full. */
bool mst__json_read_text(struct mst_bytes value, struct mst__buf *text);

/* A number, fraction cut off, saturating. False if @value is not a number. And the same in
 * millionths. */
bool mst__json_read_number(struct mst_bytes value, int64_t *ret_number);
bool mst__json_read_micro(struct mst_bytes value, int64_t *ret_micro);

#endif /* MST_BASE_JSON_READER_H */
