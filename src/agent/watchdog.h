/* agent/watchdog.h - timers that workers set through a pipe, as with torch's file timer.
 *
 * A worker writes lines of JSON into the named pipe $TORCHELASTIC_TIMER_FILE:
 *
 *   {"version": 1, "pid": 7, "scope_id": "step", "expiration_time": 1700000000.5, "signal": 9}
 *
 * Process and scope identify a timer. The time is in seconds since 1970; a negative one releases
 * the timer. When a timer expires, its process gets the signal; if that is not above 0, the expiry
 * is only reported. Processes outside the workers' sessions are ignored. */
#ifndef MST_AGENT_WATCHDOG_H
#define MST_AGENT_WATCHDOG_H

#include <muster/error.h>
#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "base/buf.h"

/* Whether @pid may be signalled. */
typedef bool (*mst__watchdog_own_fn)(void *arg, pid_t pid);
/* A timer of @pid has expired. The process got @signal; 0 = none. */
typedef void (*mst__watchdog_expired_fn)(void *arg, pid_t pid, int signal);

struct mst__watchdog_timer {
    pid_t pid;
    uint64_t scope; /* hash of scope_id */
    int64_t expiry_us;
    int signal;
};

struct mst__watchdog {
    uv_loop_t *loop; /* NULL = not open */
    int fd;
    char path[4096];
    uv_poll_t poll;
    uv_timer_t timer;
    struct mst__buf input;
    struct mst__watchdog_timer *timers;
    size_t count;
    mst__watchdog_own_fn is_own;
    mst__watchdog_expired_fn expired;
    void *arg;
};

/* Make the pipe at @path, or in the directory for temporary files if @path is NULL. Replaces a pipe
 * that is at @path. Returns 0, MST_ESYS, MST_ENOMEM, or MST_EINVAL if the path is too long. */
int mst__watchdog_open(struct mst__watchdog *watchdog,
                       uv_loop_t *loop,
                       const char *path,
                       mst__watchdog_own_fn is_own,
                       mst__watchdog_expired_fn expired,
                       void *arg,
                       struct mst_err *reterr);

/* Forget all timers: a generation is over. */
void mst__watchdog_forget(struct mst__watchdog *watchdog);

/* Remove the pipe and close the handles. After the next turn of the loop, mst__watchdog_close
 * releases the memory. Both accept a zeroed watchdog. */
void mst__watchdog_stop(struct mst__watchdog *watchdog);
void mst__watchdog_close(struct mst__watchdog *watchdog);

/* --- without I/O --- */

/* Parse one line. Returns false if it is not a timer. */
bool mst__watchdog_read(struct mst_bytes line, struct mst__watchdog_timer *ret_timer);

#endif /* MST_AGENT_WATCHDOG_H */
