/* cli/output.c - errors and log lines on stderr. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/cli.h"

int mst__cli_fail(const struct mst_err *err)
{
    (void)fprintf(stderr, "muster: %s\n", err->msg);
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
        case MST_ESPARE:
            return MST_EXIT_SPARE;
        case MST_ESTATE:
            return MST_EXIT_STATE;
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
    (void)fprintf(stderr, "%s: %s\n`%s --help` lists what there is.\n", command, text, command);
    return MST_EXIT_USAGE;
}

static const char *const level_names[] = {"debug", "info", "warn", "error"};

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

#define STAMP_SIZE 40

/* 2026-01-31T12:00:00.123456Z */
static void format_stamp(char ret_stamp[STAMP_SIZE])
{
    int64_t now_us = mst__clock_wall_us();
    time_t seconds = (time_t)(now_us / 1000000);
    struct tm parts;
    char text[24] = "";
    if (gmtime_r(&seconds, &parts) != NULL) {
        (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts); /* always fits */
    }
    (void)snprintf(ret_stamp, STAMP_SIZE, "%s.%06dZ", text, (int)(now_us % 1000000));
}

void mst__cli_log_text(void *arg, enum mst_log_level level, const char *line)
{
    (void)arg; /* stderr is the only place */
    char stamp[STAMP_SIZE];
    format_stamp(stamp);
    (void)fprintf(stderr, "%s %s %s\n", stamp, level_names[level], line);
}

void mst__cli_log_json(void *arg, enum mst_log_level level, const char *line)
{
    (void)arg; /* as above */
    char stamp[STAMP_SIZE];
    char json[2 * MST_LOG_LINE_SIZE];
    format_stamp(stamp);
    mst__log_to_json(line, json, sizeof json);
    (void)fprintf(stderr, "{\"time\":\"%s\",\"level\":\"%s\",%s}\n", stamp, level_names[level],
                  json);
}
