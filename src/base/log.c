/* base/log.c - logfmt lines, and the same as JSON. */
#include "base/log.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
    log->fn(log->arg, level, line);
}

static bool log_is_plain(uint8_t c)
{
    return c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != '=';
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
    /* Ten bytes hold the longest escape and the quote, or an ellipsis; and the NUL. */
    for (size_t i = 0; i < text.size; i++) {
        if (at + 10 > MST_LOG_QUOTE_SIZE) {
            memcpy(ret_quoted + at, "...", 3);
            at += 3;
            break;
        }
        uint8_t c = text.data[i];
        if (c == '"' || c == '\\') {
            ret_quoted[at++] = '\\';
            ret_quoted[at++] = (char)c;
        } else if (c >= ' ' && c < 0x7f) {
            ret_quoted[at++] = (char)c;
        } else {
            /* The JSON spelling, so that one escape serves both formats. */
            (void)snprintf(ret_quoted + at, 7, "\\u%04x", (unsigned)c);
            at += 6;
        }
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

/* How far the value at @text reaches: to the next space, or to the closing quote. 0 when the quote
 * is missing, because the line was cut off inside the value. */
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

void mst__log_to_json(const char *line, char *ret_json, size_t ret_size)
{
    size_t at = 0;
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
        bool bare = log_is_number(value, value_size);
        const char *quote = bare || quoted ? "" : "\"";
        int length =
            snprintf(ret_json + at, ret_size - at, "%s\"%.*s\":%s%.*s%s", at == 0 ? "" : ",",
                     (int)name_size, field, quote, (int)value_size, value, quote);
        if (length < 0 || (size_t)length >= ret_size - at) {
            ret_json[at] = '\0';
            return;
        }
        at += (size_t)length;
        field = value + value_size;
    }
}
