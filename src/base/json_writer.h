/* base/json_writer.h - JSON text in the making. */
#ifndef MST_BASE_JSON_WRITER_H
#define MST_BASE_JSON_WRITER_H

#include <stdbool.h>

#include "base/buf.h"

/* One value in the making. The first error sticks, and what follows it is left out. */
struct mst__json_writer {
    struct mst__buf text;
    int code;       /* 0, or why the text is not whole */
    bool has_value; /* at this place: a comma comes before the next one */
};

/* @size_max is for the text. */
void mst__json_writer_init(struct mst__json_writer *json, size_t size_max);
void mst__json_writer_close(struct mst__json_writer *json);

/* An object ('{') or an array ('['), under @name; NULL at the top and within an array. The same
 * holds for the values below. */
void mst__json_put_begin(struct mst__json_writer *json, const char *name, char bracket);
void mst__json_put_end(struct mst__json_writer *json, char bracket);

/* What is not UTF-8 becomes the replacement character. */
void mst__json_put_text(struct mst__json_writer *json, const char *name, struct mst_bytes value);
void mst__json_put_number(struct mst__json_writer *json, const char *name, int64_t value);
/* Six digits count. @value is finite. */
void mst__json_put_real(struct mst__json_writer *json, const char *name, double value);
/* Microseconds, not negative, as seconds with six digits behind the point: all of them count. */
void mst__json_put_micro(struct mst__json_writer *json, const char *name, int64_t value_us);
void mst__json_put_bool(struct mst__json_writer *json, const char *name, bool value);
void mst__json_put_null(struct mst__json_writer *json, const char *name);

#endif /* MST_BASE_JSON_WRITER_H */
