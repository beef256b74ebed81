/* cli/output.c - lines on stdout, errors on stderr, and log levels. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json_writer.h"
#include "cli/cli.h"
#include "cli/log.h"

int mst__cli_fail(const struct mst_err *err)
{
    mst__cli_say("muster: %s", err->msg);
    switch (err->code) {
        case MST_EINVAL:
            return MST_EXIT_USAGE;
        case MST_ENOTFOUND:
            return MST_EXIT_ABSENT;
        case MST_ETIMEOUT:
            return MST_EXIT_TIMEOUT;
        case MST_ECONN:
        case MST_ERESOLVE:
            return MST_EXIT_CONNECT;
        case MST_EUNKNOWN:
            return MST_EXIT_UNKNOWN;
        case MST_ECLOSED:
            return MST_EXIT_CLOSED;
        case MST_EFINISHED:
            return MST_EXIT_OK; /* the work was done */
        case MST_ESPARE:
            return MST_EXIT_SPARE;
        case MST_ESTATE:
            return MST_EXIT_STATE;
        case MST_EEXPELLED:
            return MST_EXIT_EXPELLED;
        default:
            return MST_EXIT_FAILED;
    }
}

int mst__cli_usage_error(const char *command, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    mst__cli_say("%s: %s", command, text);
    mst__cli_say("See `%s --help`.", command);
    return MST_EXIT_USAGE;
}

void mst__cli_format_stamp(int64_t wall_us, char ret_stamp[MST_CLI_STAMP_SIZE])
{
    time_t seconds = (time_t)(wall_us / 1000000);
    struct tm parts;
    char text[24] = "";
    if (gmtime_r(&seconds, &parts) != NULL) {
        (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts); /* fits until 9999 */
    }
    (void)snprintf(ret_stamp, MST_CLI_STAMP_SIZE, "%s.%06dZ", text, (int)(wall_us % 1000000));
}

static const char *const level_names[] = {"debug", "info", "warn", "error"};

const char *mst__cli_log_level_name(enum mst_log_level level)
{
    return level_names[level];
}

bool mst__cli_log_level(const char *text, enum mst_log_level *ret_level)
{
    for (unsigned i = 0; i < sizeof level_names / sizeof level_names[0]; i++) {
        if (strcmp(text, level_names[i]) == 0) {
            *ret_level = (enum mst_log_level)i;
            return true;
        }
    }
    return false;
}

int mst__cli_write(struct mst_bytes text, struct mst_err *reterr)
{
    while (text.size > 0) {
        ssize_t written = write(STDOUT_FILENO, text.data, text.size);
        if (written >= 0) {
            text = mst_bytes_of(text.data + written, text.size - (size_t)written);
        } else if (errno == EAGAIN) {
            struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
            (void)poll(&out, 1, -1); /* the next write reports errors */
        } else if (errno != EINTR) {
            return mst__fail(reterr, MST_ESYS, errno, "cannot write to standard output");
        }
    }
    return 0;
}

int mst__cli_json_print(struct mst__json_writer *json, struct mst_err *reterr)
{
    int rv = json->code != 0 ? json->code : mst__buf_append_u8(&json->text, '\n');
    rv = rv != 0 ? mst__fail(reterr, rv, 0, "line for standard output")
                 : mst__cli_write(mst__buf_bytes(&json->text), reterr);
    mst__buf_clear(&json->text);
    json->code = 0;
    json->has_value = false;
    return rv;
}
