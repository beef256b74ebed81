/* etcd/json.c - JSON with jansson.
 *
 * A struct mst__json is a json_t; no other file sees the library. Stricter than jansson: documents
 * are nested at most MST_JSON_DEPTH_MAX deep, members do not repeat, text may contain NUL, and
 * numbers beyond 64 bits are refused. */
#include "etcd/json.h"

#include <jansson.h>
#include <string.h>

#include "base/assert.h"
#include "base/base64.h"
#include "base/err.h"
#include "base/unicode.h"

static json_t *json_inside(struct mst__json *json)
{
    return (json_t *)(void *)json;
}

static const json_t *json_inside_const(const struct mst__json *json)
{
    return (const json_t *)(const void *)json;
}

static struct mst__json *json_outside(json_t *inside)
{
    return (struct mst__json *)(void *)inside;
}

/* --- reading --- */

/* The nesting of arrays and objects in @text, which may be malformed: at least the nesting that the
 * parser will find. */
static size_t json_depth(struct mst_bytes text)
{
    size_t depth = 0;
    size_t depth_max = 0;
    bool is_quoted = false;
    for (size_t i = 0; i < text.size; i++) {
        uint8_t c = text.data[i];
        if (is_quoted) {
            i += c == '\\' ? 1 : 0;
            is_quoted = c != '"';
        } else if (c == '"') {
            is_quoted = true;
        } else if (c == '[' || c == '{') {
            depth++;
            depth_max = depth > depth_max ? depth : depth_max;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return depth_max;
}

int mst__json_parse(struct mst_bytes text, struct mst__json **ret_json, struct mst_err *reterr)
{
    if (json_depth(text) > MST_JSON_DEPTH_MAX) {
        return mst__fail(reterr, MST_EPROTO, 0, "JSON is nested more than %d deep",
                         MST_JSON_DEPTH_MAX);
    }
    json_error_t error = {0};
    size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    const char *data = text.size == 0 ? "" : (const char *)text.data;
    json_t *root = json_loadb(data, text.size, flags, &error);
    if (root != NULL) {
        *ret_json = json_outside(root);
        return 0;
    }
    /* No text also means out of memory: jansson does not always set the code. */
    if (error.text[0] == '\0' || json_error_code(&error) == json_error_out_of_memory) {
        return mst__fail(reterr, MST_ENOMEM, 0, "JSON of %zu bytes", text.size);
    }
    return mst__fail(reterr, MST_EPROTO, 0, "invalid JSON at byte %d: %.120s", error.position,
                     error.text);
}

void mst__json_free(struct mst__json *json)
{
    json_decref(json_inside(json));
}

const struct mst__json *mst__json_member(const struct mst__json *json, const char *name)
{
    return json_outside(json_object_get(json_inside_const(json), name));
}

size_t mst__json_count(const struct mst__json *json)
{
    return json_array_size(json_inside_const(json));
}

const struct mst__json *mst__json_at(const struct mst__json *json, size_t at)
{
    return json_outside(json_array_get(json_inside_const(json), at));
}

bool mst__json_is_object(const struct mst__json *json)
{
    return json_is_object(json_inside_const(json));
}

bool mst__json_is_array(const struct mst__json *json)
{
    return json_is_array(json_inside_const(json));
}

bool mst__json_text(const struct mst__json *json, struct mst_bytes *ret_text)
{
    const json_t *inside = json_inside_const(json);
    if (!json_is_string(inside)) {
        return false;
    }
    *ret_text = mst_bytes_of(json_string_value(inside), json_string_length(inside));
    return true;
}

/* The number of up to @max that @text consists of. */
static bool json_digits(struct mst_bytes text, uint64_t max, uint64_t *ret_value)
{
    uint64_t value = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') {
            return false;
        }
        uint64_t digit = (uint64_t)(text.data[i] - '0');
        if (value > (max - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *ret_value = value;
    return text.size > 0;
}

bool mst__json_int(const struct mst__json *json, int64_t *ret_value)
{
    const json_t *inside = json_inside_const(json);
    if (json_is_integer(inside)) {
        *ret_value = json_integer_value(inside);
        return true;
    }
    struct mst_bytes text;
    if (!mst__json_text(json, &text)) {
        return false;
    }
    bool is_negative = text.size > 0 && text.data[0] == '-';
    if (is_negative) {
        text = mst_bytes_of(text.data + 1, text.size - 1);
    }
    uint64_t value = 0;
    if (!json_digits(text, (uint64_t)INT64_MAX + (is_negative ? 1 : 0), &value)) {
        return false;
    }
    *ret_value = (int64_t)(is_negative ? 0 - value : value);
    return true;
}

bool mst__json_uint(const struct mst__json *json, uint64_t *ret_value)
{
    const json_t *inside = json_inside_const(json);
    if (json_is_integer(inside)) {
        json_int_t value = json_integer_value(inside);
        if (value < 0) {
            return false;
        }
        *ret_value = (uint64_t)value;
        return true;
    }
    struct mst_bytes text;
    uint64_t value = 0;
    if (!mst__json_text(json, &text) || !json_digits(text, UINT64_MAX, &value)) {
        return false;
    }
    *ret_value = value;
    return true;
}

bool mst__json_bool(const struct mst__json *json, bool *ret_value)
{
    const json_t *inside = json_inside_const(json);
    if (!json_is_boolean(inside)) {
        return false;
    }
    *ret_value = json_is_true(inside);
    return true;
}

/* --- writing --- */

struct mst__json *mst__json_new_object(void)
{
    return json_outside(json_object());
}

struct mst__json *mst__json_new_array(void)
{
    return json_outside(json_array());
}

struct mst__json *mst__json_copy(const struct mst__json *json)
{
    return json_outside(json_deep_copy(json_inside_const(json)));
}

/* Add @child, which is taken in any case, to an object or array. */
static int json_put(struct mst__json *json, const char *name, json_t *child)
{
    if (child == NULL || json == NULL) {
        json_decref(child);
        return MST_ENOMEM;
    }
    if (name != NULL && !mst__unicode_is_utf8(mst_bytes_str(name))) {
        json_decref(child);
        return MST_EINVAL;
    }
    json_t *parent = json_inside(json);
    MST_ASSERT(name == NULL ? json_is_array(parent) : json_is_object(parent));
    int rv = name == NULL ? json_array_append_new(parent, child)
                          : json_object_set_new_nocheck(parent, name, child);
    return rv == 0 ? 0 : MST_ENOMEM;
}

int mst__json_add(struct mst__json *json, const char *name, struct mst__json *child)
{
    return json_put(json, name, json_inside(child));
}

int mst__json_add_text(struct mst__json *json, const char *name, struct mst_bytes text)
{
    if (!mst__unicode_is_utf8(text)) {
        return MST_EINVAL;
    }
    const char *data = text.size == 0 ? "" : (const char *)text.data;
    return json_put(json, name, json_stringn_nocheck(data, text.size));
}

int mst__json_add_base64(struct mst__json *json, const char *name, struct mst_bytes bytes)
{
    if (bytes.size > SIZE_MAX / 8) {
        return MST_ENOMEM;
    }
    struct mst__buf text;
    mst__buf_init(&text, bytes.size / 3 * 4 + 4);
    int rv = mst__base64_write(&text, bytes);
    if (rv == 0) {
        rv = mst__json_add_text(json, name, mst__buf_bytes(&text));
    }
    mst__buf_close(&text);
    return rv;
}

int mst__json_add_int(struct mst__json *json, const char *name, int64_t value)
{
    return json_put(json, name, json_integer(value));
}

int mst__json_add_uint_text(struct mst__json *json, const char *name, uint64_t value)
{
    char text[24];
    int length = snprintf(text, sizeof text, "%" PRIu64, value);
    return json_put(json, name, json_stringn_nocheck(text, (size_t)length));
}

int mst__json_add_bool(struct mst__json *json, const char *name, bool value)
{
    return json_put(json, name, json_boolean(value));
}

int mst__json_remove(struct mst__json *json, const char *name)
{
    if (json == NULL) {
        return MST_ENOMEM;
    }
    /* An absent member counts as removed. */
    (void)json_object_del(json_inside(json), name);
    return 0;
}

struct json_output {
    struct mst__buf *buf;
    int rv;
};

static int json_output_write(const char *data, size_t size, void *arg)
{
    struct json_output *output = arg;
    /* jansson ignores errors while it writes the names of members. */
    if (output->rv == 0) {
        output->rv = mst__buf_append(output->buf, mst_bytes_of(data, size));
    }
    return output->rv == 0 ? 0 : -1;
}

int mst__json_write(const struct mst__json *json, bool is_spaced, struct mst__buf *buf)
{
    if (json == NULL) {
        return MST_ENOMEM;
    }
    size_t size_before = mst__buf_size(buf);
    struct json_output output = {.buf = buf};
    size_t flags = JSON_ENCODE_ANY | (is_spaced ? 0 : JSON_COMPACT);
    int failed = json_dump_callback(json_inside_const(json), json_output_write, &output, flags);
    if (failed == 0 && output.rv == 0) {
        return 0;
    }
    mst__buf_truncate(buf, size_before);
    return output.rv != 0 ? output.rv : MST_ENOMEM;
}
