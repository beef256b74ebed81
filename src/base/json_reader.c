/* base/json_reader.c - scans JSON. Every function accepts any bytes and reads none beyond them. */
#include "base/json_reader.h"

#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/number.h"

#define REPLACEMENT 0xfffd

static bool is_one_of(uint8_t c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

static struct mst_bytes skip_blanks(struct mst_bytes text)
{
    while (text.size > 0 && is_one_of(text.data[0], " \t\r\n")) {
        text = mst__bytes_skip(text, 1);
    }
    return text;
}

/* Each scan returns the size of the token at the beginning of @text; 0 = there is none. */

static size_t scan_string(struct mst_bytes text)
{
    if (text.size == 0 || text.data[0] != '"') {
        return 0;
    }
    for (size_t i = 1; i < text.size; i++) {
        if (text.data[i] == '"') {
            return i + 1;
        }
        if (text.data[i] < 0x20) {
            return 0;
        }
        i += text.data[i] == '\\' ? 1 : 0;
    }
    return 0;
}

static size_t scan_word(struct mst_bytes text)
{
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t size = strlen(words[i]);
        if (text.size >= size && memcmp(text.data, words[i], size) == 0) {
            return size;
        }
    }
    return 0;
}

static size_t scan_number(struct mst_bytes text)
{
    size_t size = 0;
    bool has_digit = false;
    while (size < text.size && is_one_of(text.data[size], "+-.eE0123456789")) {
        has_digit = has_digit || (text.data[size] >= '0' && text.data[size] <= '9');
        size++;
    }
    return has_digit ? size : 0;
}

static size_t scan_scalar(struct mst_bytes text)
{
    size_t size = scan_string(text);
    size = size != 0 ? size : scan_word(text);
    return size != 0 ? size : scan_number(text);
}

/* Find the end of any value, without recursion: brackets are remembered as bits. */
static size_t scan_value(struct mst_bytes whole)
{
    bool is_object[MST_JSON_DEPTH_MAX];
    size_t depth = 0;
    struct mst_bytes text = whole;
    bool wants_value = true;
    do {
        text = skip_blanks(text);
        if (text.size == 0) {
            return 0;
        }
        uint8_t c = text.data[0];
        bool is_close = depth > 0 && c == (is_object[depth - 1] ? '}' : ']');
        size_t size = 1;
        if (is_close) {
            depth--;
            wants_value = false;
        } else if (!wants_value) {
            if (c != ',') {
                return 0;
            }
            wants_value = true;
            text = mst__bytes_skip(text, 1);
            continue;
        } else {
            if (depth > 0 && is_object[depth - 1]) {
                size = scan_string(text);
                text = skip_blanks(mst__bytes_skip(text, size));
                if (size == 0 || text.size == 0 || text.data[0] != ':') {
                    return 0;
                }
                text = skip_blanks(mst__bytes_skip(text, 1));
                c = text.size == 0 ? 0 : text.data[0];
            }
            if ((c == '{' || c == '[') && depth < MST_JSON_DEPTH_MAX) {
                is_object[depth++] = c == '{';
                size = 1;
            } else {
                size = scan_scalar(text);
                wants_value = false;
            }
        }
        if (size == 0) {
            return 0;
        }
        text = mst__bytes_skip(text, size);
    } while (depth > 0 || wants_value);
    return whole.size - text.size;
}

bool mst__json_read_value(struct mst_bytes text, struct mst_bytes *ret_value)
{
    text = skip_blanks(text);
    size_t size = scan_value(text);
    if (size == 0 || skip_blanks(mst__bytes_skip(text, size)).size > 0) {
        return false;
    }
    *ret_value = mst_bytes_of(text.data, size);
    return true;
}

/* Skip a value and the comma after it. */
static struct mst_bytes skip_value(struct mst_bytes rest, size_t size)
{
    rest = skip_blanks(mst__bytes_skip(rest, size));
    return rest.size > 0 && rest.data[0] == ',' ? skip_blanks(mst__bytes_skip(rest, 1)) : rest;
}

bool mst__json_read_member(struct mst_bytes object, const char *name, struct mst_bytes *ret_value)
{
    size_t name_size = strlen(name);
    bool is_found = false;
    struct mst_bytes rest = object;
    if (rest.size == 0 || rest.data[0] != '{') {
        return false;
    }
    rest = skip_blanks(mst__bytes_skip(rest, 1));
    for (;;) {
        size_t key_size = scan_string(rest);
        struct mst_bytes key = mst_bytes_of(rest.data, key_size);
        rest = skip_blanks(mst__bytes_skip(rest, key_size));
        if (key_size == 0 || rest.size == 0) {
            return is_found;
        }
        rest = skip_blanks(mst__bytes_skip(rest, 1)); /* the colon */
        size_t size = scan_value(rest);
        if (size == 0) {
            return is_found;
        }
        if (key_size == name_size + 2 && memcmp(key.data + 1, name, name_size) == 0) {
            *ret_value = mst_bytes_of(rest.data, size);
            is_found = true;
        }
        rest = skip_value(rest, size);
    }
}

bool mst__json_read_begin(struct mst_bytes *array)
{
    if (array->size == 0 || array->data[0] != '[') {
        return false;
    }
    *array = skip_blanks(mst__bytes_skip(*array, 1));
    return true;
}

bool mst__json_read_item(struct mst_bytes *rest, struct mst_bytes *ret_value)
{
    size_t size = scan_value(*rest);
    if (size == 0) {
        return false;
    }
    *ret_value = mst_bytes_of(rest->data, size);
    *rest = skip_value(*rest, size);
    return true;
}

/* --- text --- */

static bool put_char(struct mst__buf *text, uint32_t c)
{
    uint8_t bytes[4];
    size_t size = 0;
    if (c < 0x80) {
        bytes[size++] = (uint8_t)c;
    } else if (c < 0x800) {
        bytes[size++] = (uint8_t)(0xc0 | c >> 6);
    } else if (c < 0x10000) {
        bytes[size++] = (uint8_t)(0xe0 | c >> 12);
        bytes[size++] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
    } else {
        bytes[size++] = (uint8_t)(0xf0 | c >> 18);
        bytes[size++] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
        bytes[size++] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
    }
    if (c >= 0x80) {
        bytes[size++] = (uint8_t)(0x80 | (c & 0x3f));
    }
    return mst__buf_append(text, mst_bytes_of(bytes, size)) == 0;
}

/* Four hexadecimal digits at @at of @value; -1 = there are none. */
static int32_t read_hex(struct mst_bytes value, size_t at)
{
    int32_t number = 0;
    for (size_t i = 0; i < 4; i++) {
        int digit = at + i < value.size ? mst__number_hex_digit(value.data[at + i]) : -1;
        if (digit < 0) {
            return -1;
        }
        number = number * 16 + digit;
    }
    return number;
}

/* `\uXXXX`, or a pair of them, at @at, which is after the `u`; @ret_at is after it. */
static uint32_t read_unicode(struct mst_bytes value, size_t at, size_t *ret_at)
{
    int32_t high = read_hex(value, at);
    *ret_at = at + (high < 0 ? 0 : 4);
    if (high < 0xd800 || high > 0xdfff) {
        return high < 0 ? REPLACEMENT : (uint32_t)high;
    }
    bool has_low = high < 0xdc00 && at + 5 < value.size && value.data[at + 4] == '\\' &&
                   value.data[at + 5] == 'u';
    int32_t low = has_low ? read_hex(value, at + 6) : -1;
    if (low < 0xdc00 || low > 0xdfff) {
        return REPLACEMENT;
    }
    *ret_at = at + 10;
    return 0x10000U + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
}

bool mst__json_read_text(struct mst_bytes value, struct mst__buf *text)
{
    static const char escapes[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    if (scan_string(value) != value.size || value.size == 0) {
        return false;
    }
    size_t end = value.size - 1;
    for (size_t at = 1; at < end;) {
        const uint8_t *slash = memchr(value.data + at, '\\', end - at);
        size_t plain = slash == NULL ? end - at : (size_t)(slash - (value.data + at));
        if (mst__buf_append(text, mst_bytes_of(value.data + at, plain)) != 0) {
            return false;
        }
        at += plain;
        if (at >= end) {
            break;
        }
        char letter = (char)value.data[at + 1];
        const char *escape = memchr(escapes, letter, sizeof escapes - 1);
        uint32_t c = REPLACEMENT;
        size_t next = at + 2;
        if (escape != NULL) {
            c = (uint8_t)meanings[escape - escapes];
        } else if (letter == 'u') {
            c = read_unicode(mst_bytes_of(value.data, end), at + 2, &next);
        }
        if (!put_char(text, c)) {
            return false;
        }
        at = next;
    }
    return true;
}

/* --- numbers --- */

/* @value, without an exponent, times 10 to the power of @places. */
static bool read_scaled(struct mst_bytes value, int places, int64_t *ret_number)
{
    bool is_negative = value.size > 0 && value.data[0] == '-';
    size_t at = is_negative ? 1 : 0;
    int64_t number = 0;
    bool has_digit = false;
    int behind = -1; /* digits after the point so far; -1 = before it */
    for (; at < value.size; at++) {
        uint8_t c = value.data[at];
        if (c == '.' && behind < 0) {
            behind = 0;
        } else if (c >= '0' && c <= '9') {
            has_digit = true;
            if (behind >= places) {
                continue;
            }
            behind += behind >= 0 ? 1 : 0;
            bool fits = number <= (INT64_MAX - 9) / 10;
            number = fits ? number * 10 + (c - '0') : INT64_MAX;
        } else {
            return false; /* an exponent: not used for times and codes */
        }
    }
    for (int i = behind < 0 ? 0 : behind; i < places; i++) {
        number = number <= INT64_MAX / 10 ? number * 10 : INT64_MAX;
    }
    *ret_number = is_negative ? -number : number;
    return has_digit;
}

bool mst__json_read_number(struct mst_bytes value, int64_t *ret_number)
{
    return read_scaled(value, 0, ret_number);
}

bool mst__json_read_micro(struct mst_bytes value, int64_t *ret_micro)
{
    return read_scaled(value, 6, ret_micro);
}
