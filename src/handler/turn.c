/* handler/turn.c - the machine of a handler goes from hand to hand. */
#include "handler/turn.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"

/* Somebody who waits for another call looks up so often, for a cancellation does not ring here. */
#define SLICE_MS 20

/* --- eventfds --- */

bool mst__turn_is_rung(int fd)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    return poll(&pollfd, 1, 0) > 0;
}

void mst__turn_ring(int fd)
{
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* it fails only when the counter is full, and then the descriptor is readable */
}

void mst__turn_silence(int fd)
{
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got; /* nothing there is fine */
}

bool mst__turn_is_cancelled(const struct mst__turn *turn)
{
    return mst__turn_is_rung(turn->cancel_fd);
}

void mst__turn_cancel(struct mst__turn *turn)
{
    int before = errno;
    mst__turn_ring(turn->cancel_fd);
    mst__turn_ring(turn->news_fd);
    errno = before;
}

bool mst__turn_await_news(const struct mst__turn *turn, int64_t deadline_ms)
{
    int64_t left_ms = deadline_ms - mst__clock_ms();
    if (left_ms <= 0) {
        return false;
    }
    struct pollfd pollfds[] = {{.fd = turn->news_fd, .events = POLLIN},
                               {.fd = turn->cancel_fd, .events = POLLIN}};
    /* Interrupted or not: the caller looks at everything again. */
    (void)poll(pollfds, 2, left_ms > INT32_MAX ? INT32_MAX : (int)left_ms);
    return true;
}

/* --- making one --- */

int mst__turn_init(struct mst__turn *turn,
                   mst__turn_fn watch,
                   void *watch_arg,
                   struct mst_err *reterr)
{
    *turn = (struct mst__turn){
        .cancel_fd = -1, .stop_fd = -1, .news_fd = -1, .watch = watch, .watch_arg = watch_arg};
    (void)pthread_mutex_init(&turn->mutex, NULL); /* none of these fails on Linux */
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&turn->cond, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    int *fds[] = {&turn->cancel_fd, &turn->stop_fd, &turn->news_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        *fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (*fds[i] < 0) {
            return mst__fail(reterr, MST_ESYS, errno, "eventfd");
        }
    }
    return 0;
}

void mst__turn_close(struct mst__turn *turn)
{
    const int fds[] = {turn->cancel_fd, turn->stop_fd, turn->news_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]); /* an eventfd: nothing to lose */
        }
    }
    (void)pthread_cond_destroy(&turn->cond); /* nobody waits any more */
    (void)pthread_mutex_destroy(&turn->mutex);
}

/* --- the watcher --- */

/* Take turns as long as there is something to keep alive and nobody else wants the machine. */
static void *run(void *arg)
{
    struct mst__turn *turn = arg;
    mst__turn_lock(turn);
    while (!turn->is_ending) {
        if (turn->is_driven || turn->is_wanted || !turn->is_joined) {
            (void)pthread_cond_wait(&turn->cond, &turn->mutex);
            continue;
        }
        turn->is_driven = true;
        turn->is_watching = true;
        while (!turn->is_ending && !turn->is_wanted && turn->is_joined) {
            mst__turn_unlock(turn);
            turn->watch(turn->watch_arg);
            mst__turn_lock(turn);
        }
        turn->is_driven = false;
        turn->is_watching = false;
        mst__turn_silence(turn->stop_fd);
        (void)pthread_cond_broadcast(&turn->cond); /* cannot fail */
    }
    mst__turn_unlock(turn);
    return NULL;
}

/* With all signals blocked: they are for the program's own threads. */
int mst__turn_start(struct mst__turn *turn, struct mst_err *reterr)
{
    if (turn->has_thread) {
        return 0;
    }
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* valid arguments: cannot fail */
    int status = pthread_create(&turn->thread, NULL, run, turn);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    turn->has_thread = status == 0;
    return status == 0 ? 0 : mst__fail(reterr, MST_ESYS, status, "start a thread");
}

void mst__turn_stop(struct mst__turn *turn)
{
    if (!turn->has_thread) {
        return;
    }
    mst__turn_lock(turn);
    turn->is_ending = true;
    mst__turn_ring(turn->stop_fd);
    (void)pthread_cond_broadcast(&turn->cond); /* cannot fail */
    mst__turn_unlock(turn);
    (void)pthread_join(turn->thread, NULL); /* a thread of ours that nobody else joins */
    turn->has_thread = false;
}

/* --- taking the machine --- */

/* Wait for a change of what the mutex guards, but not for long. */
static void wait_slice(struct mst__turn *turn)
{
    int64_t until_ms = mst__clock_ms() + SLICE_MS;
    struct timespec until = {
        .tv_sec = (time_t)(until_ms / 1000),
        .tv_nsec = (long)(until_ms % 1000) * 1000000,
    };
    (void)pthread_cond_timedwait(&turn->cond, &turn->mutex, &until); /* the caller looks */
}

/* Make the watcher let go of the machine. With the lock held. */
static void take(struct mst__turn *turn)
{
    turn->is_wanted = true;
    if (turn->is_watching) {
        mst__turn_ring(turn->stop_fd);
    }
    while (turn->is_driven) {
        (void)pthread_cond_wait(&turn->cond, &turn->mutex); /* it was interrupted */
    }
    turn->is_driven = true;
}

int mst__turn_begin(struct mst__turn *turn, bool may_cancel, struct mst_err *reterr)
{
    int rv = 0;
    mst__turn_lock(turn);
    while (turn->is_busy && rv == 0) {
        wait_slice(turn);
        rv = may_cancel && mst__turn_is_cancelled(turn) ? mst__turn_fail_cancelled(reterr) : 0;
    }
    if (rv == 0) {
        turn->is_busy = true;
        take(turn);
    }
    mst__turn_unlock(turn);
    return rv;
}

bool mst__turn_try_begin(struct mst__turn *turn)
{
    mst__turn_lock(turn);
    bool is_free = turn->is_joined && !turn->is_busy;
    if (is_free) {
        turn->is_busy = true;
        take(turn);
    }
    mst__turn_unlock(turn);
    return is_free;
}

void mst__turn_release(struct mst__turn *turn, bool is_joined)
{
    mst__turn_lock(turn);
    turn->is_driven = false;
    turn->is_wanted = false;
    turn->is_joined = is_joined;
    (void)pthread_cond_broadcast(&turn->cond); /* cannot fail */
    mst__turn_unlock(turn);
}

void mst__turn_take_back(struct mst__turn *turn)
{
    mst__turn_lock(turn);
    turn->is_joined = false;
    take(turn);
    mst__turn_unlock(turn);
}

void mst__turn_end(struct mst__turn *turn)
{
    mst__turn_lock(turn);
    turn->is_busy = false;
    (void)pthread_cond_broadcast(&turn->cond); /* cannot fail */
    mst__turn_unlock(turn);
}

bool mst__turn_is_busy(struct mst__turn *turn)
{
    mst__turn_lock(turn);
    bool is_busy = turn->is_busy;
    mst__turn_unlock(turn);
    return is_busy;
}

void mst__turn_retire(struct mst__turn *turn)
{
    if (mst__turn_is_busy(turn)) {
        return;
    }
    int rv = mst__turn_begin(turn, false, NULL);
    MST_ASSERT(rv == 0); /* it cannot be cancelled */
    mst__turn_release(turn, false);
    mst__turn_end(turn);
}
