/* agent/error_file.c - reads reports of failures and passes them on.
 *
 *   structured  {"message": {"message": TEXT, "errorCode": N, "extraInfo":
 *                {"py_callstack": TEXT, "timestamp": "SECONDS"}}}
 *   plain       {"message": TEXT, "timestamp": SECONDS} */
#include "agent/error_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/json_reader.h"
#include "base/limits.h"
#include "base/text.h"

/* Returns the text of member @name of @object, or NULL if there is none or memory runs out. */
static const char *text_member(struct mst_bytes object, const char *name, struct mst__arena *arena)
{
    struct mst_bytes value;
    struct mst__buf text;
    mst__buf_init(&text, MST_ERROR_FILE_SIZE_MAX * 3);
    const char *made = NULL;
    if (mst__json_read_member(object, name, &value) && mst__json_read_text(value, &text)) {
        made = mst__arena_text(arena, mst__buf_bytes(&text));
    }
    mst__buf_close(&text);
    return made;
}

/* Returns the number in member @name, which may be written as text; 0 if there is none. */
static int64_t number_member(struct mst_bytes object, const char *name)
{
    struct mst_bytes value;
    int64_t number = 0;
    if (!mst__json_read_member(object, name, &value)) {
        return 0;
    }
    if (value.size >= 2 && value.data[0] == '"') {
        value = mst_bytes_of(value.data + 1, value.size - 2);
    }
    return mst__json_read_number(value, &number) ? number : 0;
}

int mst__error_report_parse(struct mst_bytes text,
                            struct mst__arena *arena,
                            struct mst__error_report *ret_report,
                            struct mst_err *reterr)
{
    struct mst_bytes object;
    struct mst_bytes message;
    *ret_report = (struct mst__error_report){.call_stack = ""};
    if (mst__json_read_value(text, &object) && mst__json_read_member(object, "message", &message)) {
        struct mst_bytes extra;
        ret_report->is_structured = message.data[0] == '{';
        ret_report->is_plain = !ret_report->is_structured;
        ret_report->message =
            text_member(ret_report->is_structured ? message : object, "message", arena);
        ret_report->timestamp_s = number_member(object, "timestamp");
        ret_report->code = number_member(message, "errorCode");
        if (ret_report->is_structured && mst__json_read_member(message, "extraInfo", &extra)) {
            const char *stack = text_member(extra, "py_callstack", arena);
            ret_report->call_stack = stack == NULL ? "" : stack;
            ret_report->timestamp_s = number_member(extra, "timestamp");
        }
    }
    if (ret_report->message == NULL) {
        ret_report->is_structured = ret_report->is_plain = false;
        ret_report->message = mst__arena_text(arena, text);
    }
    return ret_report->message != NULL ? 0
                                       : mst__fail(reterr, MST_ENOMEM, 0, "report of a failure");
}

/* Read the beginning of the file, without blocking: it may be a FIFO. */
static int read_file(const char *path, struct mst__buf *text, struct mst_err *reterr)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return mst__fail(reterr, errno == ENOENT ? MST_ENOTFOUND : MST_ESYS, errno, "open '%.150s'",
                         path);
    }
    int rv = 0;
    ssize_t size = 0;
    do {
        size_t room = MST_ERROR_FILE_SIZE_MAX - mst__buf_size(text);
        uint8_t *to = room == 0 ? NULL : mst__buf_reserve(text, room < 4096 ? room : 4096, &rv);
        size = to == NULL ? 0 : read(fd, to, room < 4096 ? room : 4096);
        if (size > 0) {
            mst__buf_commit(text, (size_t)size);
        } else if (size < 0 && errno != EINTR) {
            rv = MST_ESYS;
        }
    } while (rv == 0 && size != 0);
    int saved_errno = errno;
    (void)close(fd); /* it was only read */
    if (rv != 0) {
        return mst__fail(reterr, rv, rv == MST_ESYS ? saved_errno : 0, "read '%.150s'", path);
    }
    return mst__buf_size(text) > 0 ? 0
                                   : mst__fail(reterr, MST_ENOTFOUND, 0, "'%.150s' is empty", path);
}

int mst__error_file_read(const char *path,
                         struct mst__arena *arena,
                         struct mst__error_report *ret_report,
                         struct mst_err *reterr)
{
    struct mst__buf text;
    mst__buf_init(&text, MST_ERROR_FILE_SIZE_MAX);
    int rv = read_file(path, &text, reterr);
    rv = rv == 0 ? mst__error_report_parse(mst__buf_bytes(&text), arena, ret_report, reterr) : rv;
    mst__buf_close(&text);
    return rv;
}

/* --- copying --- */

static int write_file(const char *path, struct mst_bytes text, struct mst_err *reterr)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0644);
    if (fd < 0) {
        return mst__fail(reterr, MST_ESYS, errno, "open '%.150s'", path);
    }
    int rv = 0;
    while (text.size > 0 && rv == 0) {
        ssize_t size = write(fd, text.data, text.size);
        if (size >= 0) {
            text = mst__bytes_skip(text, (size_t)size);
        } else if (errno != EINTR) {
            rv = mst__fail(reterr, MST_ESYS, errno, "write '%.150s'", path);
        }
    }
    if (close(fd) != 0 && rv == 0) {
        rv = mst__fail(reterr, MST_ESYS, errno, "write '%.150s'", path);
    }
    return rv;
}

/* Append @text, with `"errorCode": code` as the first member of the object at @message. */
static int put_code(struct mst_bytes text, struct mst_bytes message, int code, struct mst__buf *ret)
{
    size_t before = (size_t)(message.data - text.data) + 1;
    int rv = mst__buf_append(ret, mst_bytes_of(text.data, before));
    mst__text_put(ret, &rv, "\"errorCode\": %d, ", code);
    return rv == 0 ? mst__buf_append(ret, mst__bytes_skip(text, before)) : rv;
}

int mst__error_file_copy(const char *path, const char *target, int code, struct mst_err *reterr)
{
    struct mst__buf text;
    struct mst__buf made;
    mst__buf_init(&text, MST_ERROR_FILE_SIZE_MAX);
    mst__buf_init(&made, MST_ERROR_FILE_SIZE_MAX + 64);
    int rv = read_file(path, &text, reterr);
    struct mst_bytes object;
    struct mst_bytes message;
    struct mst_bytes present;
    struct mst_bytes copied = mst__buf_bytes(&text);
    bool is_structured = rv == 0 && mst__json_read_value(copied, &object) &&
                         mst__json_read_member(object, "message", &message) &&
                         message.data[0] == '{' && message.size > 2;
    if (is_structured && !mst__json_read_member(message, "errorCode", &present)) {
        rv = put_code(copied, message, code, &made);
        copied = mst__buf_bytes(&made);
        rv = rv == 0 ? 0 : mst__fail(reterr, rv, 0, "report of a failure");
    }
    rv = rv == 0 ? write_file(target, copied, reterr) : rv;
    mst__buf_close(&made);
    mst__buf_close(&text);
    return rv;
}
