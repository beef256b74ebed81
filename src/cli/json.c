/* cli/json.c - JSON lines for standard output. Nothing is buffered across lines: a reader at the
 * other end of a pipe sees each as soon as it is printed. */
#include "cli/json.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/number.h"
#include "base/unicode.h"

#define LINE_SIZE_MAX MST_MIB(16)

void mst__cli_json_init(struct mst__cli_json *json)
{
    *json = (struct mst__cli_json){0};
    mst__buf_init(&json->text, LINE_SIZE_MAX);
}

void mst__cli_json_close(struct mst__cli_json *json)
{
    mst__buf_close(&json->text);
}

static void put(struct mst__cli_json *json, struct mst_bytes bytes)
{
    if (json->code == 0) {
        json->code = mst__buf_append(&json->text, bytes);
    }
}

static void put_quoted(struct mst__cli_json *json, struct mst_bytes rest)
{
    put(json, mst_bytes_str("\""));
    while (rest.size > 0) {
        uint32_t c = 0;
        char escape[8];
        size_t size = mst__unicode_next(rest, &c);
        if (size == 0) {
            put(json, mst_bytes_str("\\ufffd"));
            size = 1;
        } else if (c == '"' || c == '\\') {
            (void)snprintf(escape, sizeof escape, "\\%c", (char)c); /* fits */
            put(json, mst_bytes_str(escape));
        } else if (!mst__unicode_is_shown(c)) {
            (void)snprintf(escape, sizeof escape, "\\u%04x",
                           (unsigned)c & 0xffff); /* all there is */
            put(json, mst_bytes_str(escape));
        } else {
            put(json, mst_bytes_of(rest.data, size));
        }
        rest = mst_bytes_of(rest.data + size, rest.size - size);
    }
    put(json, mst_bytes_str("\""));
}

/* What stands before every value: a comma, a name. */
static void put_name(struct mst__cli_json *json, const char *name)
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

void mst__cli_json_begin(struct mst__cli_json *json, const char *name, char bracket)
{
    MST_ASSERT(bracket == '{' || bracket == '[');
    put_name(json, name);
    put(json, mst_bytes_of(&bracket, 1));
    json->has_value = false;
}

void mst__cli_json_end(struct mst__cli_json *json, char bracket)
{
    MST_ASSERT(bracket == '}' || bracket == ']');
    put(json, mst_bytes_of(&bracket, 1));
    json->has_value = true;
}

void mst__cli_json_text(struct mst__cli_json *json, const char *name, struct mst_bytes value)
{
    put_name(json, name);
    put_quoted(json, value);
}

void mst__cli_json_number(struct mst__cli_json *json, const char *name, int64_t value)
{
    char text[MST_NUMBER_SIZE];
    put_name(json, name);
    put(json, mst_bytes_of(text, mst__number_format(value, text)));
}

void mst__cli_json_real(struct mst__cli_json *json, const char *name, double value)
{
    char text[32];
    put_name(json, name);
    (void)snprintf(text, sizeof text, "%.6g", value); /* fits */
    put(json, mst_bytes_str(text));
}

void mst__cli_json_bool(struct mst__cli_json *json, const char *name, bool value)
{
    put_name(json, name);
    put(json, mst_bytes_str(value ? "true" : "false"));
}

void mst__cli_json_null(struct mst__cli_json *json, const char *name)
{
    put_name(json, name);
    put(json, mst_bytes_str("null"));
}

size_t mst__cli_put_foreign(struct mst__buf *text, struct mst_bytes foreign, int *rv)
{
    size_t count = 0;
    char shown[MST_UNICODE_SHOWN_SIZE];
    size_t size;
    while ((size = mst__unicode_take_shown(&foreign, shown)) > 0) {
        if (*rv == 0) {
            *rv = mst__buf_append(text, mst_bytes_of(shown, size));
        }
        count += shown[0] == '\\' ? size : 1;
    }
    return count;
}

int mst__cli_write(struct mst_bytes text, struct mst_err *reterr)
{
    while (text.size > 0) {
        ssize_t written = write(STDOUT_FILENO, text.data, text.size);
        if (written >= 0) {
            text = mst_bytes_of(text.data + written, text.size - (size_t)written);
        } else if (errno == EAGAIN) {
            struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
            (void)poll(&out, 1, -1); /* whatever it says, the next write tells more */
        } else if (errno != EINTR) {
            return mst__fail(reterr, MST_ESYS, errno, "cannot write to standard output");
        }
    }
    return 0;
}

int mst__cli_json_print(struct mst__cli_json *json, struct mst_err *reterr)
{
    put(json, mst_bytes_str("\n"));
    int rv = json->code != 0 ? mst__fail(reterr, json->code, 0, "line for standard output")
                             : mst__cli_write(mst__buf_bytes(&json->text), reterr);
    mst__buf_clear(&json->text);
    json->code = 0;
    json->has_value = false;
    return rv;
}
