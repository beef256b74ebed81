/* agent/console.c - writes without blocking. */
#include "agent/console.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"

#define ASKED_SIZE 4096 /* size of a write after a poll, which only tells that some bytes fit */
#define RETRY_MS 10     /* if the loop cannot poll */

void mst__console_init(struct mst__console *console,
                       uv_loop_t *loop,
                       int fd,
                       void (*on_room)(void *arg),
                       void *arg)
{
    *console = (struct mst__console){.fd = fd, .on_room = on_room, .arg = arg};
    mst__buf_init(&console->pending, MST_OUTPUT_CONSOLE_HARD_MAX);
    struct stat stat;
    bool is_known = fstat(fd, &stat) == 0;
    console->is_broken = !is_known;
    console->is_pipe = is_known && S_ISFIFO(stat.st_mode);
    if (is_known && (S_ISFIFO(stat.st_mode) || S_ISCHR(stat.st_mode))) {
        char path[40];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int own = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
        console->is_own = own >= 0;
        console->fd = own >= 0 ? own : fd;
    }
    console->is_asked = is_known && !console->is_own && !S_ISREG(stat.st_mode);
    int rv = uv_timer_init(loop, &console->timer);
    MST_ASSERT(rv == 0);
    console->timer.data = console;
    uv_unref((uv_handle_t *)&console->timer);
    /* uv_poll_init sets O_NONBLOCK, so it is only for a descriptor that is not shared. */
    console->has_poll = console->is_own && uv_poll_init(loop, &console->poll, console->fd) == 0;
    console->poll.data = console;
    console->handles_open = console->has_poll ? 2 : 1;
}

bool mst__console_put(struct mst__console *console, struct mst_bytes text)
{
    if (console->is_broken || mst__buf_append(&console->pending, text) != 0) {
        console->lost_count += text.size;
        return false;
    }
    return true;
}

/* A pipe accepts up to PIPE_BUF bytes as a whole or not at all. Each write has whole lines, so that
 * lines of other writers do not come between the parts of one line. */
static size_t whole_lines_size(struct mst_bytes text)
{
    size_t seen = text.size < PIPE_BUF ? text.size : PIPE_BUF;
    const uint8_t *newline = memrchr(text.data, '\n', seen);
    return newline == NULL ? text.size : (size_t)(newline - text.data) + 1;
}

/* Returns the number of written bytes, or -1 if none was written. */
static ssize_t try_write(struct mst__console *console)
{
    struct mst_bytes text = mst__buf_bytes(&console->pending);
    size_t size = console->is_pipe ? whole_lines_size(text) : text.size;
    if (console->is_asked) {
        struct pollfd out = {.fd = console->fd, .events = POLLOUT};
        if (poll(&out, 1, 0) != 1) {
            return -1;
        }
        size = size < ASKED_SIZE ? size : ASKED_SIZE;
    }
    ssize_t written = 0;
    do {
        written = write(console->fd, text.data, size);
    } while (written < 0 && errno == EINTR);
    if (written < 0 && errno != EAGAIN) {
        console->is_broken = true; /* nobody reads any more */
        console->lost_count += text.size;
        mst__buf_clear(&console->pending);
    }
    return written;
}

static void stop_waiting(struct mst__console *console)
{
    if (console->is_waiting) {
        console->is_waiting = false;
        if (console->has_poll) {
            (void)uv_poll_stop(&console->poll); /* cannot fail */
        }
        (void)uv_timer_stop(&console->timer); /* cannot fail */
    }
}

static void go_on(struct mst__console *console)
{
    mst__console_flush(console);
    if (console->on_room != NULL && !mst__console_is_full(console)) {
        console->on_room(console->arg);
    }
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
    (void)status; /* the write reports errors */
    (void)events;
    go_on(poll->data);
}

static void on_timer(uv_timer_t *timer)
{
    go_on(timer->data);
}

static void start_waiting(struct mst__console *console)
{
    if (console->is_waiting) {
        return;
    }
    console->is_waiting = true;
    if (!console->has_poll || uv_poll_start(&console->poll, UV_WRITABLE, on_writable) != 0) {
        (void)uv_timer_start(&console->timer, on_timer, RETRY_MS, RETRY_MS); /* cannot fail */
    }
}

void mst__console_flush(struct mst__console *console)
{
    while (mst__buf_size(&console->pending) > 0) {
        ssize_t written = try_write(console);
        if (written < 0) {
            break;
        }
        mst__buf_consume(&console->pending, (size_t)written);
    }
    if (mst__buf_size(&console->pending) == 0) {
        stop_waiting(console);
    } else {
        start_waiting(console);
    }
}

bool mst__console_is_full(const struct mst__console *console)
{
    return mst__buf_size(&console->pending) > MST_OUTPUT_CONSOLE_SIZE_MAX;
}

bool mst__console_is_empty(const struct mst__console *console)
{
    return mst__buf_size(&console->pending) == 0;
}

void mst__console_drain(struct mst__console *console, int64_t deadline_ms)
{
    mst__console_flush(console);
    int64_t left_ms = mst__clock_left_ms(deadline_ms);
    while (mst__buf_size(&console->pending) > 0 && left_ms > 0) {
        struct pollfd out = {.fd = console->fd, .events = POLLOUT};
        (void)poll(&out, 1, left_ms > 100 ? 100 : (int)left_ms); /* the write reports errors */
        mst__console_flush(console);
        left_ms = mst__clock_left_ms(deadline_ms);
    }
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct mst__console *console = handle->data;
    console->handles_open--;
    if (console->handles_open > 0) {
        return;
    }
    if (console->is_own) {
        (void)close(console->fd); /* all output was written or dropped */
    }
    mst__buf_close(&console->pending);
    console->on_closed(console->arg);
}

void mst__console_close(struct mst__console *console, void (*on_closed)(void *arg))
{
    stop_waiting(console);
    console->on_closed = on_closed;
    if (console->has_poll) {
        uv_close((uv_handle_t *)&console->poll, on_handle_closed);
    }
    uv_close((uv_handle_t *)&console->timer, on_handle_closed);
}
