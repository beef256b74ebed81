/* base/until.c - waiting against a deadline and a descriptor. */
#include "base/until.h"

#include <errno.h>
#include <muster/error.h>
#include <muster/wait.h>
#include <poll.h>
#include <time.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/number.h"
#include "base/thread.h"

/* A condition cannot be signalled by a descriptor, so the descriptor is checked this often. */
#define SLICE_MS 20

#define POLL_MS_MAX 1000000

/* The wait function of each thread. */
static _Thread_local mst_wait_fn on_wait;
static _Thread_local void *on_wait_arg;
static _Thread_local bool is_telling;

void mst_on_wait(mst_wait_fn fn, void *arg)
{
    on_wait = fn;
    on_wait_arg = arg;
}

void mst__until_tell(void)
{
    if (on_wait != NULL) {
        bool was_telling = is_telling; /* the calls that it makes wait, too */
        is_telling = true;
        on_wait(on_wait_arg);
        is_telling = was_telling;
    }
}

bool mst__until_is_telling(void)
{
    return is_telling;
}

/* The longest single wait of this thread. */
static int64_t wait_ms_max(void)
{
    return on_wait != NULL ? MST_ON_WAIT_MS : POLL_MS_MAX;
}

struct mst__until mst__until_at(int64_t deadline_ms)
{
    return (struct mst__until){.deadline_ms = deadline_ms, .wake_fd = -1};
}

struct mst__until mst__until_in(int64_t timeout_ms)
{
    return mst__until_at(mst__clock_deadline_ms(timeout_ms));
}

struct mst__until mst__until_by(int wake_fd, int64_t timeout_ms)
{
    return (struct mst__until){.deadline_ms = mst__clock_deadline_ms(timeout_ms),
                               .wake_fd = wake_fd};
}

struct mst__until mst__until_with(struct mst__until until, int64_t deadline_ms)
{
    until.deadline_ms = deadline_ms;
    return until;
}

struct mst__until mst__until_sooner(struct mst__until until, int64_t deadline_ms)
{
    return deadline_ms < until.deadline_ms ? mst__until_with(until, deadline_ms) : until;
}

bool mst__until_is_over(struct mst__until until)
{
    return mst__clock_ms() >= until.deadline_ms;
}

int mst__until_poll_ms(struct mst__until until)
{
    return (int)mst__min(mst__clock_left_ms(until.deadline_ms), wait_ms_max());
}

int mst__until_ready(struct mst__until until, int fd, short events)
{
    for (;;) {
        struct pollfd pollfds[] = {{.fd = fd, .events = events},
                                   {.fd = until.wake_fd, .events = POLLIN}};
        int timeout_ms = mst__until_poll_ms(until);
        int ready = poll(pollfds, 2, timeout_ms); /* poll ignores a negative descriptor */
        if (ready > 0) {
            return pollfds[0].revents != 0 ? 0 : MST_ECANCELED;
        }
        if (ready < 0 && errno != EINTR) {
            return MST_ESYS;
        }
        if (ready == 0 && timeout_ms == 0) {
            return MST_ETIMEOUT;
        }
        mst__until_tell();
    }
}

int mst__until_cond(struct mst__until until, pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    if (mst__until_is_over(until)) {
        return MST_ETIMEOUT;
    }
    if (mst__until_is_woken(until.wake_fd)) {
        return MST_ECANCELED;
    }
    int64_t slice_ms = until.wake_fd < 0 ? wait_ms_max() : SLICE_MS;
    int64_t end_ms = mst__until_sooner(until, mst__clock_deadline_ms(slice_ms)).deadline_ms;
    mst__cond_wait_until(cond, mutex, end_ms);
    if (on_wait != NULL) {
        /* The function may need the same mutex. */
        (void)pthread_mutex_unlock(mutex);
        mst__until_tell();
        (void)pthread_mutex_lock(mutex);
    }
    return 0;
}

bool mst__until_pause(int wake_fd, int64_t until_us)
{
    for (;;) {
        int64_t left_us = until_us - mst__clock_us();
        bool is_over = left_us <= 0;
        left_us = mst__min(left_us, wait_ms_max() * 1000);
        struct timespec timeout = {
            .tv_sec = is_over ? 0 : (time_t)(left_us / 1000000),
            .tv_nsec = is_over ? 0 : (long)(left_us % 1000000) * 1000,
        };
        struct pollfd pollfd = {.fd = wake_fd, .events = POLLIN};
        int ready = ppoll(&pollfd, 1, &timeout, NULL); /* ppoll ignores a negative descriptor */
        if (ready > 0) {
            return false;
        }
        if (is_over) {
            return true;
        }
        mst__until_tell();
    }
}

bool mst__until_is_woken(int wake_fd)
{
    return wake_fd >= 0 && !mst__until_pause(wake_fd, 0);
}
