/* base/json_writer.h - writes JSON text. */
#ifndef MST_BASE_JSON_WRITER_H
#define MST_BASE_JSON_WRITER_H

#include <stdbool.h>

#include "base/buf.h"

/* One value that is being written. The first error sticks; later calls do nothing. */
struct mst__json_writer {
    struct mst__buf text;
    int code;       /* 0, or why the text is incomplete */
    bool has_value; /* a comma is needed before the next value */
};

/* @size_max limits the text. */
void mst__json_writer_init(struct mst__json_writer *json, size_t size_max);
void mst__json_writer_close(struct mst__json_writer *json);

/* Begin an object ('{') or an array ('[') under @name; NULL at the top and in an array, also for
 * the values below. */
void mst__json_put_begin(struct mst__json_writer *json, const char *name, char bracket);
void mst__json_put_end(struct mst__json_writer *json, char bracket);

/* Bytes that are not UTF-8 become the replacement character. */
void mst__json_put_text(struct mst__json_writer *json, const char *name, struct mst_bytes value);
void mst__json_put_number(struct mst__json_writer *json, const char *name, int64_t value);
/* Six significant digits. @value is finite. */
void mst__json_put_real(struct mst__json_writer *json, const char *name, double value);
/* Microseconds, not negative, as seconds with six decimals. */
void mst__json_put_micro(struct mst__json_writer *json, const char *name, int64_t value_us);
void mst__json_put_bool(struct mst__json_writer *json, const char *name, bool value);
void mst__json_put_null(struct mst__json_writer *json, const char *name);

#endif /* MST_BASE_JSON_WRITER_H */
