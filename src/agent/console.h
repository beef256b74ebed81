/* agent/console.h - a descriptor that all parts write to, without waiting for it.
 *
 * What it does not take is kept, up to a bound, and written when it does. stdout and stderr are
 * often shared with other programs, so that O_NONBLOCK must not be set on them: a pipe or a
 * terminal is opened again through /proc, files do not wait, and for anything else we ask before
 * each write and write little. */
#ifndef MST_AGENT_CONSOLE_H
#define MST_AGENT_CONSOLE_H

#include <muster/types.h>
#include <stdbool.h>
#include <uv.h>

#include "base/buf.h"

struct mst__console {
    int fd;
    bool is_own;   /* opened again, nonblocking */
    bool is_asked; /* poll before each write */
    bool is_pipe;
    bool is_broken;
    bool is_waiting; /* for the loop to say that it takes more */
    struct mst__buf pending;
    uint64_t lost_count; /* bytes */
    uv_poll_t poll;
    bool has_poll;
    uv_timer_t timer; /* where the loop cannot poll */
    void (*on_room)(void *arg);
    void *arg;
    size_t handles_open;
    void (*on_closed)(void *arg);
};

/* @fd stays the caller's. @on_room is called in the loop when what was kept has been written. */
void mst__console_init(struct mst__console *console,
                       uv_loop_t *loop,
                       int fd,
                       void (*on_room)(void *arg),
                       void *arg);

/* Put @text behind what waits; false when that is too much, or it cannot be written any more: it is
 * dropped and counted. Nothing is written yet. */
bool mst__console_put(struct mst__console *console, struct mst_bytes text);

/* Write as much as it takes now. */
void mst__console_flush(struct mst__console *console);

/* Whether pipes should not be read, because too much waits. */
bool mst__console_is_full(const struct mst__console *console);
bool mst__console_is_empty(const struct mst__console *console);

/* Write what waits, up to a deadline of the monotonic clock; blocks. */
void mst__console_drain(struct mst__console *console, int64_t deadline_ms);

/* The memory is the caller's again in @on_closed, in the loop. What waits is lost. */
void mst__console_close(struct mst__console *console, void (*on_closed)(void *arg));

#endif /* MST_AGENT_CONSOLE_H */
