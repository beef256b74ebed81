/* base/until.h - how long a call may wait, and what ends it before that.
 *
 * Waiting happens deep inside calls that are made of other calls, so both go down with them, by
 * value. A call that is woken fails with MST_ECANCELED, or as if its deadline had passed. */
#ifndef MST_BASE_UNTIL_H
#define MST_BASE_UNTIL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct mst__until {
    int64_t deadline_ms; /* monotonic */
    int wake_fd;         /* readable = end the call, an eventfd or the like; -1 = nothing does */
};

/* At @deadline_ms or @timeout_ms from now, and nothing wakes. */
struct mst__until mst__until_at(int64_t deadline_ms);
struct mst__until mst__until_in(int64_t timeout_ms);

/* @timeout_ms from now, or when @wake_fd wakes. */
struct mst__until mst__until_by(int wake_fd, int64_t timeout_ms);

/* The same with another deadline, or with @deadline_ms if that is sooner. */
struct mst__until mst__until_with(struct mst__until until, int64_t deadline_ms);
struct mst__until mst__until_sooner(struct mst__until until, int64_t deadline_ms);

/* Whether the deadline has passed. */
bool mst__until_is_over(struct mst__until until);

/* Poll's timeout: 0 when the deadline has passed; not longer than the thread may go without
 * mst__until_tell. */
int mst__until_poll_ms(struct mst__until until);

/* Have the thread do what it does while it waits, see <muster/wait.h>: whoever polls by himself
 * calls this when nothing has come. */
void mst__until_tell(void);

/* Wait until @fd is ready for @events: 0, MST_ETIMEOUT, MST_ECANCELED, or MST_ESYS and errno. */
int mst__until_ready(struct mst__until until, int fd, short events);

/* Wait for a while on @cond, which goes by the monotonic clock; whoever calls looks what has
 * changed, and calls again: 0, MST_ETIMEOUT, MST_ECANCELED. */
int mst__until_cond(struct mst__until until, pthread_cond_t *cond, pthread_mutex_t *mutex);

/* Pause until @until_us (monotonic), unless @wake_fd is readable: whether it was not. */
bool mst__until_pause(int wake_fd, int64_t until_us);

bool mst__until_is_woken(int wake_fd);

#endif /* MST_BASE_UNTIL_H */
