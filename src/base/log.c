/* base/log.c - logfmt lines, and the same as JSON. */
#include "base/log.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/unicode.h"

/* A log line is one line, even if unquoted text contained a newline. */
static void log_clean(char *line)
{
    size_t length = strlen(line);
    for (size_t at = 0; at < length;) {
        uint32_t c = 0;
        size_t size = mst__unicode_next(mst_bytes_of(line + at, length - at), &c);
        bool is_shown = size > 0 && mst__unicode_is_shown(c);
        size = size == 0 ? 1 : size;
        if (!is_shown) {
            memset(line + at, '?', size);
        }
        at += size;
    }
}

void mst__log(const struct mst_log *log,
              enum mst_log_level level,
              const char *event,
              const char *format,
              ...)
{
    if (!mst__log_wants(log, level)) {
        return;
    }
    char line[MST_LOG_LINE_SIZE];
    int length = snprintf(line, sizeof line, "ev=%s ", event);
    if (length < 0 || (size_t)length >= sizeof line) {
        return;
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line + length, sizeof line - (size_t)length, format, args);
    va_end(args);
    log_clean(line);
    log->fn(log->arg, level, line);
}

static bool log_is_plain(uint8_t c)
{
    return c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != '=';
}

/* Write one character of @text inside quotes: itself or its JSON escape, so that one escape serves
 * both formats. A byte that is not UTF-8 is escaped as Latin-1. Returns the length, at most
 * LOG_ESCAPE_SIZE. */
#define LOG_ESCAPE_SIZE 6
static size_t log_escape(struct mst_bytes *text, char *ret_escape)
{
    uint32_t c = 0;
    size_t size = mst__unicode_next(*text, &c);
    size_t length = size;
    if (size > 0 && (c == '"' || c == '\\')) {
        ret_escape[0] = '\\';
        ret_escape[1] = (char)c;
        length = 2;
    } else if (size > 0 && mst__unicode_is_shown(c)) {
        memcpy(ret_escape, text->data, size);
    } else {
        /* Characters that are not shown have at most 16 bits. */
        char hex[LOG_ESCAPE_SIZE + 1];
        (void)snprintf(hex, sizeof hex, "\\u%04x", size > 0 ? (unsigned)c & 0xffff : text->data[0]);
        memcpy(ret_escape, hex, LOG_ESCAPE_SIZE);
        length = LOG_ESCAPE_SIZE;
        size = size == 0 ? 1 : size;
    }
    *text = mst_bytes_of(text->data + size, text->size - size);
    return length;
}

const char *mst__log_quote(struct mst_bytes text, char ret_quoted[MST_LOG_QUOTE_SIZE])
{
    bool plain = text.size > 0 && text.size < MST_LOG_QUOTE_SIZE;
    for (size_t i = 0; plain && i < text.size; i++) {
        plain = log_is_plain(text.data[i]);
    }
    if (plain) {
        memcpy(ret_quoted, text.data, text.size);
        ret_quoted[text.size] = '\0';
        return ret_quoted;
    }
    size_t at = 0;
    ret_quoted[at++] = '"';
    while (text.size > 0) {
        /* After the longest escape there is room for an ellipsis, the quote and the NUL. */
        if (at + LOG_ESCAPE_SIZE + 5 > MST_LOG_QUOTE_SIZE) {
            memcpy(ret_quoted + at, "...", 3);
            at += 3;
            break;
        }
        at += log_escape(&text, ret_quoted + at);
    }
    ret_quoted[at++] = '"';
    ret_quoted[at] = '\0';
    return ret_quoted;
}

/* The JSON grammar for numbers, in its integer and simple decimal forms. */
static bool log_is_number(const char *text, size_t size)
{
    size_t i = size > 0 && text[0] == '-' ? 1 : 0;
    size_t digits = 0;
    bool leading_zero = i < size && text[i] == '0';
    for (; i < size && isdigit((unsigned char)text[i]) != 0; i++) {
        digits++;
    }
    if (digits == 0 || digits > 18 || (leading_zero && digits > 1)) {
        return false;
    }
    if (i == size) {
        return true;
    }
    if (text[i] != '.' || i + 1 == size) {
        return false;
    }
    for (i++; i < size; i++) {
        if (isdigit((unsigned char)text[i]) == 0) {
            return false;
        }
    }
    return true;
}

/* The length of the value at @text: up to the next space or the closing quote. 0 if the quote is
 * missing because the line was cut off inside the value. */
static size_t log_value_size(const char *text, bool *ret_quoted)
{
    *ret_quoted = text[0] == '"';
    if (!*ret_quoted) {
        return strcspn(text, " ");
    }
    size_t size = 1;
    while (text[size] != '\0' && text[size] != '"') {
        size += text[size] == '\\' && text[size + 1] != '\0' ? 2 : 1;
    }
    return text[size] == '"' ? size + 1 : 0;
}

/* Whether the backslash at @text begins an escape of ours. */
static bool log_is_escape(const char *text)
{
    if (text[1] == '"' || text[1] == '\\') {
        return true;
    }
    for (size_t i = 2; text[1] == 'u' && isxdigit((unsigned char)text[i]) != 0; i++) {
        if (i == 5) {
            return true;
        }
    }
    return false;
}

/* JSON text that is being written. */
struct log_json {
    char *text;
    size_t at;
    size_t size;
    bool is_full; /* something did not fit */
};

static void json_put(struct log_json *json, char c)
{
    if (json->at + 1 < json->size) {
        json->text[json->at++] = c;
    } else {
        json->is_full = true;
    }
}

/* A JSON string of @size bytes at @text; with @has_escapes, our escapes stay. */
static void json_put_string(struct log_json *json, const char *text, size_t size, bool has_escapes)
{
    json_put(json, '"');
    for (size_t i = 0; i < size; i++) {
        if (has_escapes && text[i] == '\\' && log_is_escape(text + i)) {
            json_put(json, text[i++]);
        } else if (text[i] == '"' || text[i] == '\\') {
            json_put(json, '\\');
        }
        json_put(json, text[i]);
    }
    json_put(json, '"');
}

static void json_put_value(struct log_json *json, const char *value, size_t size, bool quoted)
{
    if (quoted) {
        json_put_string(json, value + 1, size - 2, true);
    } else if (!log_is_number(value, size)) {
        json_put_string(json, value, size, false);
    } else {
        for (size_t i = 0; i < size; i++) {
            json_put(json, value[i]);
        }
    }
}

void mst__log_to_json(const char *line, char *ret_json, size_t ret_size)
{
    struct log_json json = {.text = ret_json, .size = ret_size};
    ret_json[0] = '\0';
    for (const char *field = line; *field != '\0';) {
        field += strspn(field, " ");
        size_t name_size = strcspn(field, "= ");
        if (name_size == 0 || field[name_size] != '=') {
            break;
        }
        const char *value = field + name_size + 1;
        bool quoted = false;
        size_t value_size = log_value_size(value, &quoted);
        if (quoted && value_size == 0) {
            break;
        }
        size_t before = json.at;
        if (before > 0) {
            json_put(&json, ',');
        }
        json_put_string(&json, field, name_size, false);
        json_put(&json, ':');
        json_put_value(&json, value, value_size, quoted);
        ret_json[json.is_full ? before : json.at] = '\0';
        if (json.is_full) {
            break;
        }
        field = value + value_size;
    }
}
