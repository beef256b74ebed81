/* base/until.h - how long a call may wait, and what ends the wait earlier.
 *
 * Waits happen deep inside nested calls, so both are passed down, by value. A call that is woken
 * fails with MST_ECANCELED, or as if its deadline had passed. */
#ifndef MST_BASE_UNTIL_H
#define MST_BASE_UNTIL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct mst__until {
    int64_t deadline_ms; /* monotonic */
    int wake_fd;         /* readable = end the call, for example an eventfd; -1 = none */
};

/* At @deadline_ms, or @timeout_ms from now; cannot be woken. */
struct mst__until mst__until_at(int64_t deadline_ms);
struct mst__until mst__until_in(int64_t timeout_ms);

/* @timeout_ms from now, or when @wake_fd is readable. */
struct mst__until mst__until_by(int wake_fd, int64_t timeout_ms);

/* The same with another deadline, or with @deadline_ms if that is earlier. */
struct mst__until mst__until_with(struct mst__until until, int64_t deadline_ms);
struct mst__until mst__until_sooner(struct mst__until until, int64_t deadline_ms);

/* Whether the deadline has passed. */
bool mst__until_is_over(struct mst__until until);

/* A timeout for poll: 0 if the deadline has passed; at most the time until mst__until_tell is
 * due. */
int mst__until_poll_ms(struct mst__until until);

/* Call the wait function of this thread, see <muster/wait.h>. A caller that polls by itself calls
 * this when nothing has arrived. */
void mst__until_tell(void);

/* Whether this thread is inside its wait function, and so inside a call that waits. */
bool mst__until_is_telling(void);

/* Wait until @fd is ready for @events: 0, MST_ETIMEOUT, MST_ECANCELED, or MST_ESYS with errno. */
int mst__until_ready(struct mst__until until, int fd, short events);

/* Wait a while on @cond, which uses the monotonic clock: 0, MST_ETIMEOUT, MST_ECANCELED. The caller
 * checks its condition and calls again. */
int mst__until_cond(struct mst__until until, pthread_cond_t *cond, pthread_mutex_t *mutex);

/* Sleep until @until_us (monotonic) or until @wake_fd is readable. Returns false if it was
 * readable. */
bool mst__until_pause(int wake_fd, int64_t until_us);

bool mst__until_is_woken(int wake_fd);

#endif /* MST_BASE_UNTIL_H */
