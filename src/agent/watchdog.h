/* agent/watchdog.h - timers that workers set through a pipe, as torch's file timer does.
 *
 * A worker writes lines of JSON into the named pipe $TORCHELASTIC_TIMER_FILE:
 *
 *   {"version": 1, "pid": 7, "scope_id": "step", "expiration_time": 1700000000.5, "signal": 9}
 *
 * A timer is known by process and scope; the time is in seconds since 1970, and a negative one
 * releases it. A process whose timer expires gets the signal, or, if that is not above 0, is only
 * told of. Processes outside of the workers' sessions are none of ours. */
#ifndef MST_AGENT_WATCHDOG_H
#define MST_AGENT_WATCHDOG_H

#include <muster/error.h>
#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "base/buf.h"

/* Whether @pid may be signalled. */
typedef bool (*mst__watchdog_own_fn)(void *arg, pid_t pid);
/* A timer of @pid has expired, and it got @signal; 0 = nothing. */
typedef void (*mst__watchdog_expired_fn)(void *arg, pid_t pid, int signal);

struct mst__watchdog_timer {
    pid_t pid;
    uint64_t scope; /* a hash of it */
    int64_t expiry_us;
    int signal;
};

struct mst__watchdog {
    uv_loop_t *loop; /* NULL = there is none */
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

/* Make the pipe at @path; NULL = in the directory for temporary files. What is at @path is removed
 * if it is a pipe. 0, MST_ESYS, MST_ENOMEM, MST_EINVAL. */
int mst__watchdog_open(struct mst__watchdog *watchdog,
                       uv_loop_t *loop,
                       const char *path,
                       mst__watchdog_own_fn is_own,
                       mst__watchdog_expired_fn expired,
                       void *arg,
                       struct mst_err *reterr);

/* Forget all timers: a generation is over. */
void mst__watchdog_forget(struct mst__watchdog *watchdog);

/* Remove the pipe and close the handles; the memory goes with mst__watchdog_close, behind the next
 * turn of the loop. Zeroed is fine for both. */
void mst__watchdog_stop(struct mst__watchdog *watchdog);
void mst__watchdog_close(struct mst__watchdog *watchdog);

/* --- without I/O --- */

/* Read one line. */
bool mst__watchdog_read(struct mst_bytes line, struct mst__watchdog_timer *ret_timer);

#endif /* MST_AGENT_WATCHDOG_H */
