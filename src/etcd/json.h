/* etcd/json.h - JSON of etcd's two APIs and of the legacy rendezvous. Only json.c uses jansson.
 *
 * A getter returns whether the member exists and has the right type. 64-bit integers may be numbers
 * or decimal strings; both are read without passing through a double. */
#ifndef MST_ETCD_JSON_H
#define MST_ETCD_JSON_H

#include <muster/error.h>
#include <stdbool.h>

#include "base/buf.h"

#define MST_JSON_DEPTH_MAX 64

struct mst__json;

/* Parse @text, which must be one document. 0, MST_EPROTO with the error and its position,
 * MST_ENOMEM. */
int mst__json_parse(struct mst_bytes text, struct mst__json **ret_json, struct mst_err *reterr);

/* Release a document or a value that was created here. NULL is allowed. */
void mst__json_free(struct mst__json *json);

/* The member @name of an object; NULL if @json is NULL, not an object, or has no such member.
 * Borrowed. */
const struct mst__json *mst__json_member(const struct mst__json *json, const char *name);

/* The number of elements of an array; 0 if @json is NULL or not an array. Borrowed. */
size_t mst__json_count(const struct mst__json *json);
const struct mst__json *mst__json_at(const struct mst__json *json, size_t at);

bool mst__json_is_object(const struct mst__json *json);
bool mst__json_is_array(const struct mst__json *json);

/* Each returns false and writes nothing if @json is NULL or of another type. Text is borrowed and
 * may contain NUL. */
bool mst__json_text(const struct mst__json *json, struct mst_bytes *ret_text);
bool mst__json_int(const struct mst__json *json, int64_t *ret_value);
bool mst__json_uint(const struct mst__json *json, uint64_t *ret_value);
bool mst__json_bool(const struct mst__json *json, bool *ret_value);

/* --- writing --- */

/* NULL if out of memory, here and below. */
struct mst__json *mst__json_new_object(void);
struct mst__json *mst__json_new_array(void);
struct mst__json *mst__json_copy(const struct mst__json *json); /* deep */

/* Set a member of an object or append to an array (@name = NULL). All fail for a NULL @json: 0,
 * MST_ENOMEM, MST_EINVAL (text that is not UTF-8). add takes @child in any case. */
int mst__json_add(struct mst__json *json, const char *name, struct mst__json *child);
int mst__json_add_text(struct mst__json *json, const char *name, struct mst_bytes text);
int mst__json_add_base64(struct mst__json *json, const char *name, struct mst_bytes bytes);
int mst__json_add_int(struct mst__json *json, const char *name, int64_t value);
/* As a decimal string, which v3 accepts for 64-bit numbers. */
int mst__json_add_uint_text(struct mst__json *json, const char *name, uint64_t value);
int mst__json_add_bool(struct mst__json *json, const char *name, bool value);
int mst__json_remove(struct mst__json *json, const char *name);

/* Append the document to @buf, members in the order of their addition. Compact; with @is_spaced `",
 * "` and `": "` as separators. 0, MST_ELIMIT, MST_ENOMEM. */
int mst__json_write(const struct mst__json *json, bool is_spaced, struct mst__buf *buf);

#endif /* MST_ETCD_JSON_H */
