/* agent/report.c - the layout of a report. */
#include "agent/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/signal_name.h"
#include "base/text.h"
#include "core/authority.h"

#define LINE_SIZE 600
#define RULE_SIZE 60

static int put(struct mst__buf *text, const char *format, ...) MST_PRINTF(2, 3);

static int put(struct mst__buf *text, const char *format, ...)
{
    char line[LINE_SIZE];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    size = size < LINE_SIZE ? size : LINE_SIZE - 1;
    return mst__buf_append(text, mst_bytes_of(line, size < 0 ? 0 : (size_t)size));
}

/* Append @message; lines after the first are indented. */
static int put_lines(struct mst__buf *text, struct mst_bytes message)
{
    int rv = 0;
    for (bool is_first = true; rv == 0 && (message.size > 0 || is_first); is_first = false) {
        const uint8_t *end = message.size == 0 ? NULL : memchr(message.data, '\n', message.size);
        size_t size = end == NULL ? message.size : (size_t)(end - message.data);
        rv = is_first ? 0 : mst__buf_append(text, mst_bytes_str("    "));
        rv = rv == 0 ? mst__buf_append(text, mst_bytes_of(message.data, size)) : rv;
        rv = rv == 0 ? mst__buf_append(text, mst_bytes_str("\n")) : rv;
        message = mst__bytes_skip(message, end == NULL ? size : size + 1);
    }
    return rv;
}

static int put_rule(struct mst__buf *text, char c)
{
    char rule[RULE_SIZE + 1];
    memset(rule, c, RULE_SIZE);
    rule[RULE_SIZE] = '\n';
    return mst__buf_append(text, mst_bytes_of(rule, sizeof rule));
}

void mst__report_signal(int signal, char ret_name[MST_SIGNAL_NAME_SIZE])
{
    const char *name = mst__signal_name(signal);
    if (name != NULL) {
        (void)snprintf(ret_name, MST_SIGNAL_NAME_SIZE, "%s", name);
    } else {
        (void)snprintf(ret_name, MST_SIGNAL_NAME_SIZE, "signal %d", signal);
    }
}

/* Append the local time with microseconds, as torchrun does. */
static int put_time(struct mst__buf *text, int64_t wall_us)
{
    time_t seconds = (time_t)(wall_us / 1000000);
    struct tm local;
    char stamp[40] = "?";
    if (wall_us > 0 && localtime_r(&seconds, &local) != NULL) {
        (void)strftime(stamp, sizeof stamp, "%Y-%m-%d_%H:%M:%S", &local);
    }
    return put(text, "  time      : %s.%06d\n", stamp, (int)(wall_us > 0 ? wall_us % 1000000 : 0));
}

static int put_exit(struct mst__buf *text, int status, int signal, const char *more)
{
    char name[MST_SIGNAL_NAME_SIZE];
    if (signal == 0) {
        return put(text, "  exitcode  : %d%s\n", status, more);
    }
    mst__report_signal(signal, name);
    return put(text, "  exitcode  : -%d%s: %s\n", signal, more, name);
}

int mst__report_block(struct mst__buf *text, const struct mst__failed_worker *failed)
{
    char pid[40];
    (void)snprintf(pid, sizeof pid, " (pid: %lld)", (long long)failed->pid);
    int rv = put_time(text, failed->wall_us);
    rv = rv == 0 ? put(text, "  host      : %s\n", failed->host) : rv;
    rv = rv == 0 ? put(text, "  rank      : %lld (local_rank: %lld)\n", (long long)failed->rank,
                       (long long)failed->local_rank)
                 : rv;
    rv = rv == 0 ? put_exit(text, failed->status, failed->signal, pid) : rv;
    rv = rv == 0 ? put(text, "  error_file: %s\n",
                       failed->error_file == NULL ? "<N/A>" : failed->error_file)
                 : rv;
    if (rv == 0 && failed->message[0] != '\0') {
        rv = put(text, "  traceback : ");
        rv = rv == 0 ? put_lines(text, mst_bytes_str(failed->message)) : rv;
    }
    if (rv == 0 && failed->tail.size > 0) {
        rv = put(text, "  stderr    : the last lines\n    ");
        rv = rv == 0 ? put_lines(text, failed->tail) : rv;
    }
    return rv;
}

/* The size of the lines at the front of @block that have @size_max bytes. */
static size_t whole_lines(struct mst_bytes block, size_t size_max)
{
    size_t size = size_max;
    while (size > 0 && block.data[size - 1] != '\n') {
        size--;
    }
    return size;
}

void mst__report_shorten(struct mst_bytes block, char *ret_text, size_t size)
{
    static const char left_out[] = "    ...\n";
    struct mst_bytes head = block;
    struct mst_bytes tail = mst_bytes_of("", 0);
    if (block.size >= size) {
        /* What happened is at the front; why it did is the end of a trace, or of what was said. */
        head.size = whole_lines(block, size / 4);
        tail = mst__bytes_skip(block, block.size - (size - sizeof left_out - head.size));
        const uint8_t *end = memchr(tail.data, '\n', tail.size);
        tail = end == NULL ? tail : mst__bytes_skip(tail, (size_t)(end - tail.data) + 1);
    }
    int used = snprintf(ret_text, size, "%.*s%s%.*s", (int)head.size, (const char *)head.data,
                        block.size < size ? "" : left_out, (int)tail.size, (const char *)tail.data);
    MST_ASSERT(used >= 0 && (size_t)used < size);
}

int mst__report_cause(struct mst__buf *text, const struct mst__cause *cause)
{
    int rv = put_time(text, cause->wall_us);
    rv = rv == 0 ? put(text, "  node      : %.*s\n", (int)cause->node.size,
                       (const char *)cause->node.data)
                 : rv;
    if (rv == 0 && cause->worker != MST_CAUSE_WORKER_NONE) {
        rv = put(text, "  local_rank: %u\n", cause->worker);
    }
    rv = rv == 0 ? put_exit(text, cause->status, (int)cause->signal, "") : rv;
    rv = rv == 0 ? put(text, "  traceback : ") : rv;
    return rv == 0 ? put_lines(text, cause->text) : rv;
}

/* Append a line of a block, without its newline. Tabs stay: stack traces have them. */
static int put_visible(struct mst__buf *text, struct mst_bytes line)
{
    bool is_indented = line.size >= 2 && line.data[0] == ' ' && line.data[1] == ' ';
    int rv = mst__buf_append(text, mst_bytes_str(is_indented ? "" : "    "));
    while (rv == 0 && line.size > 0) {
        const uint8_t *tab = memchr(line.data, '\t', line.size);
        size_t size = tab == NULL ? line.size : (size_t)(tab - line.data);
        (void)mst__text_put_foreign(text, &rv, mst_bytes_of(line.data, size));
        rv = rv == 0 && tab != NULL ? mst__buf_append_u8(text, '\t') : rv;
        line = mst__bytes_skip(line, tab == NULL ? size : size + 1);
    }
    return rv == 0 ? mst__buf_append_u8(text, '\n') : rv;
}

static int put_block(struct mst__buf *text, struct mst_bytes block)
{
    int rv = 0;
    while (rv == 0 && block.size > 0) {
        const uint8_t *end = memchr(block.data, '\n', block.size);
        size_t size = end == NULL ? block.size : (size_t)(end - block.data);
        rv = put_visible(text, mst_bytes_of(block.data, size));
        block = mst__bytes_skip(block, end == NULL ? size : size + 1);
    }
    return rv;
}

int mst__report(struct mst__buf *text, const char *program, struct mst_bytes block)
{
    int rv = put_rule(text, '=');
    rv = rv == 0 ? put(text, "%s FAILED\n", program) : rv;
    rv = rv == 0 ? put_rule(text, '-') : rv;
    rv = rv == 0 ? put(text, "Root Cause (first observed failure):\n[0]:\n") : rv;
    rv = rv == 0 ? put_block(text, block) : rv;
    return rv == 0 ? put_rule(text, '=') : rv;
}
