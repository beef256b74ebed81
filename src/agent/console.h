/* agent/console.h - a descriptor to which all parts write, without blocking.
 *
 * Output that the descriptor does not accept is kept, up to a bound, and written later. Other
 * programs often share stdout and stderr, so O_NONBLOCK must not be set on them. A pipe or a
 * terminal is opened again through /proc. Writes to a file do not wait. On any other descriptor,
 * each write is small and follows a poll. */
#ifndef MST_AGENT_CONSOLE_H
#define MST_AGENT_CONSOLE_H

#include <muster/types.h>
#include <stdbool.h>
#include <uv.h>

#include "base/buf.h"

struct mst__console {
    int fd;
    bool is_own;   /* @fd was opened again, nonblocking */
    bool is_asked; /* poll before each write */
    bool is_pipe;
    bool is_broken;
    bool is_waiting; /* @poll or @timer is active */
    struct mst__buf pending;
    uint64_t lost_count; /* bytes */
    uv_poll_t poll;
    bool has_poll;
    uv_timer_t timer; /* used if the loop cannot poll @fd */
    void (*on_room)(void *arg);
    void *arg;
    size_t handles_open;
    void (*on_closed)(void *arg);
};

/* The caller owns @fd. If @on_room is not NULL, it is called in the loop after pending output was
 * written, unless the console is still full. */
void mst__console_init(struct mst__console *console,
                       uv_loop_t *loop,
                       int fd,
                       void (*on_room)(void *arg),
                       void *arg);

/* Append @text to the pending output. Writes nothing yet. Returns false if too much is pending or
 * the descriptor is broken; then @text is dropped and counted. */
bool mst__console_put(struct mst__console *console, struct mst_bytes text);

/* Write as much as the descriptor accepts now. */
void mst__console_flush(struct mst__console *console);

/* Whether too much output is pending, so that pipes should not be read. */
bool mst__console_is_full(const struct mst__console *console);
bool mst__console_is_empty(const struct mst__console *console);

/* Write the pending output, until @deadline_ms of the monotonic clock. Blocks. */
void mst__console_drain(struct mst__console *console, int64_t deadline_ms);

/* Close the console. Pending output is lost. @on_closed is called in the loop, with the argument of
 * mst__console_init; only then may the caller free the memory. */
void mst__console_close(struct mst__console *console, void (*on_closed)(void *arg));

#endif /* MST_AGENT_CONSOLE_H */
