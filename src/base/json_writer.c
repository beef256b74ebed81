/* base/json_writer.c - writes JSON text. */
#include "base/json_writer.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/number.h"
#include "base/unicode.h"

void mst__json_writer_init(struct mst__json_writer *json, size_t size_max)
{
    *json = (struct mst__json_writer){0};
    mst__buf_init(&json->text, size_max);
}

void mst__json_writer_close(struct mst__json_writer *json)
{
    mst__buf_close(&json->text);
}

static void put(struct mst__json_writer *json, struct mst_bytes bytes)
{
    if (json->code == 0) {
        json->code = mst__buf_append(&json->text, bytes);
    }
}

/* The number of bytes at the start of @text that need no escape. */
static size_t count_plain(struct mst_bytes text)
{
    size_t size = 0;
    while (size < text.size && text.data[size] >= ' ' && text.data[size] < 0x7f &&
           text.data[size] != '"' && text.data[size] != '\\') {
        size++;
    }
    return size;
}

/* Write the first character of @text, escaped if necessary. Returns its size. */
static size_t put_char(struct mst__json_writer *json, struct mst_bytes text)
{
    uint32_t c = 0;
    char escape[8];
    size_t size = mst__unicode_next(text, &c);
    if (size == 0) {
        put(json, mst_bytes_str("\\ufffd"));
        return 1;
    }
    if (c == '"' || c == '\\') {
        (void)snprintf(escape, sizeof escape, "\\%c", (char)c); /* fits */
        put(json, mst_bytes_str(escape));
    } else if (!mst__unicode_is_shown(c)) {
        (void)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c & 0xffff); /* control
                                                                                   characters
                                                                                   only */
        put(json, mst_bytes_str(escape));
    } else {
        put(json, mst_bytes_of(text.data, size));
    }
    return size;
}

static void put_quoted(struct mst__json_writer *json, struct mst_bytes rest)
{
    put(json, mst_bytes_str("\""));
    while (rest.size > 0) {
        size_t size = count_plain(rest);
        if (size > 0) {
            put(json, mst_bytes_of(rest.data, size));
        } else {
            size = put_char(json, rest);
        }
        rest = mst__bytes_skip(rest, size);
    }
    put(json, mst_bytes_str("\""));
}

/* The text before a value: a comma, a name. */
static void put_name(struct mst__json_writer *json, const char *name)
{
    if (json->has_value) {
        put(json, mst_bytes_str(","));
    }
    json->has_value = true;
    if (name != NULL) {
        put_quoted(json, mst_bytes_str(name));
        put(json, mst_bytes_str(":"));
    }
}

void mst__json_put_begin(struct mst__json_writer *json, const char *name, char bracket)
{
    MST_ASSERT(bracket == '{' || bracket == '[');
    put_name(json, name);
    put(json, mst_bytes_of(&bracket, 1));
    json->has_value = false;
}

void mst__json_put_end(struct mst__json_writer *json, char bracket)
{
    MST_ASSERT(bracket == '}' || bracket == ']');
    put(json, mst_bytes_of(&bracket, 1));
    json->has_value = true;
}

void mst__json_put_text(struct mst__json_writer *json, const char *name, struct mst_bytes value)
{
    put_name(json, name);
    put_quoted(json, value);
}

void mst__json_put_number(struct mst__json_writer *json, const char *name, int64_t value)
{
    char text[MST_NUMBER_SIZE];
    put_name(json, name);
    put(json, mst_bytes_of(text, mst__number_format(value, text)));
}

void mst__json_put_real(struct mst__json_writer *json, const char *name, double value)
{
    char text[32];
    put_name(json, name);
    (void)snprintf(text, sizeof text, "%.6g", value); /* fits */
    put(json, mst_bytes_str(text));
}

void mst__json_put_micro(struct mst__json_writer *json, const char *name, int64_t value_us)
{
    char text[32];
    put_name(json, name);
    (void)snprintf(text, sizeof text, "%lld.%06lld", (long long)(value_us / 1000000),
                   (long long)(value_us % 1000000)); /* fits */
    put(json, mst_bytes_str(text));
}

void mst__json_put_bool(struct mst__json_writer *json, const char *name, bool value)
{
    put_name(json, name);
    put(json, mst_bytes_str(value ? "true" : "false"));
}

void mst__json_put_null(struct mst__json_writer *json, const char *name)
{
    put_name(json, name);
    put(json, mst_bytes_str("null"));
}
