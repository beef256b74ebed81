/* cli/log.c - a thread that writes log lines, behind a buffer.
 *
 * The mutex guards the buffer, the limit and the counters, and is never held during a system call
 * that can block. The descriptor belongs to the thread. */
#include "cli/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/unicode.h"
#include "cli/cli.h"

/* How often the exit checks whether the last lines are being written. */
#define FLUSH_LOOK_MS 10

#define LINE_SIZE (2 * MST_LOG_LINE_SIZE + 100)

/* The kernel gets whole lines in pieces of at most this size, which a pipe does not mix with other
 * lines. */
#define PIECE_SIZE PIPE_BUF

static_assert(LINE_SIZE <= PIECE_SIZE, "a line must be a piece at most");

struct cli_log {
    pthread_mutex_t mutex;
    pthread_t thread;
    struct mst__cli_log_options options;
    struct mst__log_limit limit;
    struct mst__buf lines;
    uint64_t dropped_count; /* lines without room, or that could not be written */
    uint64_t pieces_count;  /* pieces written */
    bool has_thread;
    bool is_closing;
    bool is_done;      /* the thread has ended, and the waiting caller frees the log */
    bool is_abandoned; /* no caller waits, and the thread frees the log */
    int wake_fd;       /* readable when the thread has work */
    int done_fd;       /* readable when the thread has ended */
    int fd;            /* where lines go */
    atomic_bool reopen_wanted;
};

/* A process has one stderr, and therefore one log. */
static struct cli_log *volatile opened;

/* --- lines --- */

/* Append @line in its final form. False if there is no room. */
static bool append_line(struct cli_log *log, enum mst_log_level level, const char *line)
{
    char stamp[MST_CLI_STAMP_SIZE];
    char text[LINE_SIZE];
    mst__cli_format_stamp(mst__clock_wall_us(), stamp);
    int length;
    if (log->options.is_json) {
        char json[2 * MST_LOG_LINE_SIZE];
        mst__log_to_json(line, json, sizeof json);
        length = snprintf(text, sizeof text, "{\"time\":\"%s\",\"level\":\"%s\",%s}\n", stamp,
                          mst__cli_log_level_name(level), json);
    } else {
        length =
            snprintf(text, sizeof text, "%s %s %s\n", stamp, mst__cli_log_level_name(level), line);
    }
    MST_ASSERT(length > 0 && (size_t)length < sizeof text);
    return mst__buf_append(&log->lines, mst_bytes_of(text, (size_t)length)) == 0;
}

static void put_line(struct cli_log *log, enum mst_log_level level, const char *line)
{
    if (!append_line(log, level, line)) {
        log->dropped_count++;
    }
}

/* Report dropped lines before anything else, if there is room. */
static void put_dropped(struct cli_log *log)
{
    char line[100];
    if (log->dropped_count == 0) {
        return;
    }
    (void)snprintf(line, sizeof line, "ev=log.dropped count=%llu",
                   (unsigned long long)log->dropped_count); /* fits */
    if (append_line(log, MST_LOG_WARN, line)) {
        log->dropped_count = 0;
    }
}

/* Append the summaries that are due at @now_us. */
static void put_summaries(struct cli_log *log, int64_t now_us)
{
    struct mst__log_summary summary;
    while (mst__log_limit_next(&log->limit, now_us, &summary)) {
        char line[200];
        (void)snprintf(line, sizeof line, "ev=log.suppressed event=%s count=%llu", summary.event,
                       (unsigned long long)summary.count); /* fits */
        put_line(log, summary.level, line);
    }
}

static void wake(int fd)
{
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* it fails only if the counter is full, and then it is readable */
}

static void *run(void *arg);

/* There is something to write. Most commands have nothing to say on stderr, and so no thread. With
 * the mutex. */
static void want_thread(struct cli_log *log)
{
    if (!log->has_thread) {
        log->has_thread = mst__thread_start(&log->thread, run, log) == 0; /* else the next tries */
    }
}

static void on_line(void *arg, enum mst_log_level level, const char *line)
{
    struct cli_log *log = arg;
    int64_t now_us = mst__clock_us();
    (void)pthread_mutex_lock(&log->mutex); /* cannot fail */
    put_summaries(log, now_us);
    bool is_limited = !log->options.is_unlimited && level > MST_LOG_DEBUG;
    if (!is_limited || mst__log_limit_take(&log->limit, level, line, now_us)) {
        put_dropped(log);
        put_line(log, level, line);
    }
    want_thread(log);
    (void)pthread_mutex_unlock(&log->mutex);
    wake(log->wake_fd);
}

/* Write to a stderr that is not the log's and may block: a line that is not accepted soon is lost.
 * A pipe with any room has room for it. */
static void say_soon(const char *text, size_t size)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&out, 1, MST_LOG_FLUSH_MS) > 0) {
        ssize_t written = write(STDERR_FILENO, text, size);
        (void)written; /* there is no way to report it */
    }
}

void mst__cli_say(const char *format, ...)
{
    char given[MST_LOG_LINE_SIZE];
    char text[LINE_SIZE];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(given, sizeof given, format, args); /* cut off when long */
    va_end(args);
    struct mst_bytes rest = mst_bytes_str(given);
    size_t size = 0;
    size_t length;
    char shown[MST_UNICODE_SHOWN_SIZE];
    while (size + sizeof shown < sizeof text &&
           (length = mst__unicode_take_shown(&rest, shown)) > 0) {
        memcpy(text + size, shown, length);
        size += length;
    }
    text[size++] = '\n';
    struct cli_log *log = opened;
    if (log == NULL) {
        (void)fwrite(text, 1, size, stderr); /* there is no way to report it */
        return;
    }
    if (log->options.path != NULL) {
        say_soon(text, size);
        return;
    }
    (void)pthread_mutex_lock(&log->mutex); /* cannot fail */
    if (mst__buf_append(&log->lines, mst_bytes_of(text, size)) != 0) {
        log->dropped_count++;
    }
    want_thread(log);
    (void)pthread_mutex_unlock(&log->mutex);
    wake(log->wake_fd);
}

/* --- the thread --- */

/* Take whole lines, up to the size of a piece, from the front of the buffer. */
static size_t take_piece(struct cli_log *log, char ret_piece[PIECE_SIZE])
{
    struct mst_bytes lines = mst__buf_bytes(&log->lines);
    size_t size = lines.size < PIECE_SIZE ? lines.size : PIECE_SIZE;
    while (size > 0 && lines.data[size - 1] != '\n') {
        size--;
    }
    memcpy(ret_piece, lines.data, size);
    mst__buf_consume(&log->lines, size);
    return size;
}

/* Write @piece; true if all was written. */
static bool write_piece(int fd, struct mst_bytes piece)
{
    while (piece.size > 0) {
        ssize_t written = write(fd, piece.data, piece.size);
        if (written >= 0) {
            piece = mst_bytes_of(piece.data + written, piece.size - (size_t)written);
        } else if (errno == EAGAIN) {
            struct pollfd out = {.fd = fd, .events = POLLOUT};
            (void)poll(&out, 1, -1); /* the next write reports errors */
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

static uint64_t count_lines(struct mst_bytes piece)
{
    uint64_t count = 0;
    for (size_t i = 0; i < piece.size; i++) {
        count += piece.data[i] == '\n' ? 1 : 0;
    }
    return count;
}

/* Sleep until there is work, or a summary is due. */
static void wait_for_lines(const struct cli_log *log, int64_t due_us)
{
    int timeout_ms = -1;
    if (due_us != INT64_MAX) {
        int64_t wait_us = due_us - mst__clock_us();
        timeout_ms = wait_us <= 0 ? 0 : (int)((wait_us + 999) / 1000); /* a second at most */
    }
    struct pollfd in = {.fd = log->wake_fd, .events = POLLIN};
    (void)poll(&in, 1, timeout_ms); /* the buffer is checked in any case */
    uint64_t count;
    ssize_t size = read(log->wake_fd, &count, sizeof count);
    (void)size; /* the buffer is checked in any case */
}

/* Open the file at @path to append to it, or -1. A pipe without a reader is an error; it does not
 * block. O_NONBLOCK affects only us, because we opened the file. */
static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
}

static void reopen(struct cli_log *log)
{
    const struct mst_log self = {.fn = on_line, .arg = log, .level = log->options.level};
    const char *path = log->options.path;
    if (path == NULL) {
        mst__log(&self, MST_LOG_INFO, "log.hangup", "to=stderr");
        return;
    }
    int fd = open_file(path);
    if (fd < 0) {
        mst__log(&self, MST_LOG_ERROR, "log.reopen_failed", "file=%s detail=%s", MST_LOG_TEXT(path),
                 MST_LOG_TEXT(strerror(errno)));
        return;
    }
    (void)close(log->fd); /* write has reported errors */
    log->fd = fd;
    mst__log(&self, MST_LOG_INFO, "log.reopened", "file=%s", MST_LOG_TEXT(path));
}

static void log_free(struct cli_log *log)
{
    if (log->options.path != NULL && log->fd >= 0) {
        (void)close(log->fd); /* as above */
    }
    if (log->wake_fd >= 0) {
        (void)close(log->wake_fd); /* nothing was written */
    }
    if (log->done_fd >= 0) {
        (void)close(log->done_fd); /* likewise */
    }
    mst__buf_close(&log->lines);
    (void)pthread_mutex_destroy(&log->mutex); /* no thread holds it */
    mst__free(log);
}

/* The last piece is written, or was given up. */
static void end_thread(struct cli_log *log)
{
    (void)pthread_mutex_lock(&log->mutex); /* cannot fail */
    bool is_abandoned = log->is_abandoned;
    log->is_done = true;
    if (!is_abandoned) {
        wake(log->done_fd);
    }
    (void)pthread_mutex_unlock(&log->mutex);
    if (is_abandoned) {
        log_free(log);
    }
}

static void *run(void *arg)
{
    struct cli_log *log = arg;
    char piece[PIECE_SIZE];
    bool is_over = false;
    while (!is_over) {
        if (atomic_exchange(&log->reopen_wanted, false)) {
            reopen(log);
        }
        (void)pthread_mutex_lock(&log->mutex); /* cannot fail */
        put_summaries(log, log->is_closing ? INT64_MAX : mst__clock_us());
        size_t size = take_piece(log, piece);
        is_over = size == 0 && log->is_closing;
        int64_t due_us = mst__log_limit_due_us(&log->limit);
        (void)pthread_mutex_unlock(&log->mutex);
        if (size == 0 && !is_over) {
            wait_for_lines(log, due_us);
        }
        bool is_written = write_piece(log->fd, mst_bytes_of(piece, size));
        (void)pthread_mutex_lock(&log->mutex);
        if (is_written) {
            log->pieces_count++;
            put_dropped(log);
        } else {
            /* Reported with the next line: a report now would fail as well. */
            log->dropped_count += count_lines(mst_bytes_of(piece, size));
        }
        is_over = is_over || log->is_abandoned;
        (void)pthread_mutex_unlock(&log->mutex);
    }
    end_thread(log);
    return NULL;
}

/* --- life --- */

int mst__cli_log_open(const struct mst__cli_log_options *options,
                      struct mst_log *ret_log,
                      struct mst_err *reterr)
{
    MST_ASSERT(opened == NULL);
    struct cli_log *log = mst__calloc(1, sizeof *log);
    if (log == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "out of memory (log)");
    }
    log->options = *options;
    log->fd = options->path == NULL ? STDERR_FILENO : open_file(options->path);
    int reason = errno;
    atomic_init(&log->reopen_wanted, false);
    (void)pthread_mutex_init(&log->mutex, NULL); /* cannot fail */
    mst__buf_init(&log->lines, MST_LOG_BUFFER_SIZE);
    log->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    log->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rv = 0;
    if (log->fd < 0) {
        rv = mst__fail(reterr, MST_ESYS, reason, "log file '%.100s'", options->path);
        goto fail;
    }
    if (log->wake_fd < 0 || log->done_fd < 0) {
        rv = mst__fail(reterr, MST_ESYS, errno, "eventfd (log)");
        goto fail;
    }
    /* A signal may reopen the file before the first line. */
    reason = options->path == NULL ? 0 : mst__thread_start(&log->thread, run, log);
    if (reason != 0) {
        rv = mst__fail(reterr, MST_ESYS, reason, "thread (log)");
        goto fail;
    }
    log->has_thread = options->path != NULL;
    opened = log;
    *ret_log = (struct mst_log){.fn = on_line, .arg = log, .level = options->level};
    return 0;
fail:
    log_free(log);
    return rv;
}

void mst__cli_log_reopen(void)
{
    struct cli_log *log = opened;
    if (log != NULL) {
        atomic_store(&log->reopen_wanted, true);
        wake(log->wake_fd);
    }
}

/* Whether the log's output would accept more. A file always does. */
static bool takes_more(const struct cli_log *log)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    return log->options.path != NULL || poll(&out, 1, 0) > 0;
}

/* Wait until the thread has written the last lines. A busy machine or a slow reader may delay it;
 * only a stderr that accepts nothing for MST_LOG_FLUSH_MS is given up. */
static void await_last_lines(struct cli_log *log)
{
    struct pollfd done = {.fd = log->done_fd, .events = POLLIN};
    int64_t end_ms = mst__clock_deadline_ms(MST_LOG_FLUSH_MAX_MS);
    int64_t stuck_ms = mst__clock_deadline_ms(MST_LOG_FLUSH_MS);
    uint64_t pieces_seen = 0;
    while (poll(&done, 1, FLUSH_LOOK_MS) <= 0 && mst__clock_ms() < end_ms &&
           mst__clock_ms() < stuck_ms) {
        (void)pthread_mutex_lock(&log->mutex); /* cannot fail */
        uint64_t pieces_count = log->pieces_count;
        (void)pthread_mutex_unlock(&log->mutex);
        if (pieces_count != pieces_seen || takes_more(log)) {
            stuck_ms = mst__clock_deadline_ms(MST_LOG_FLUSH_MS);
        }
        pieces_seen = pieces_count;
    }
}

void mst__cli_log_close(void)
{
    struct cli_log *log = opened;
    if (log == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&log->mutex); /* cannot fail */
    log->is_closing = true;
    bool has_thread = log->has_thread;
    (void)pthread_mutex_unlock(&log->mutex);
    opened = NULL;
    if (!has_thread) { /* there is nothing to write, or no thread could be had */
        (void)run(log);
        log_free(log);
        return;
    }
    wake(log->wake_fd);
    await_last_lines(log);
    pthread_t thread = log->thread;
    (void)pthread_mutex_lock(&log->mutex);
    bool is_done = log->is_done;
    log->is_abandoned = !is_done;
    (void)pthread_mutex_unlock(&log->mutex);
    if (is_done) {
        (void)pthread_join(thread, NULL); /* the thread is about to exit */
        log_free(log);
    } else {
        /* It waits for the reader of stderr, and ends with the process at the latest. */
        (void)pthread_detach(thread); /* it owns its memory now */
    }
}
