/* handler/owner.c - the thread that owns the machine of a handler. */
#include "handler/owner.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

/* Somebody who waits for another call looks up so often, for a cancellation does not ring here. */
#define SLICE_MS 20

struct mst__owner_task {
    mst__owner_task_fn fn;
    void *arg;
    struct mst_err *reterr;
    struct mst__mem_fault fault; /* of the one who waits */
    bool is_done;
    int rv;
};

/* --- eventfds --- */

static bool is_rung(int fd)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    return poll(&pollfd, 1, 0) > 0;
}

void mst__owner_ring(int fd)
{
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* it fails only when the counter is full, and then the descriptor is readable */
}

void mst__owner_silence(int fd)
{
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got; /* nothing there is fine */
}

bool mst__owner_is_cancelled(const struct mst__owner *owner)
{
    return is_rung(owner->cancel_fd);
}

void mst__owner_cancel(struct mst__owner *owner)
{
    int before = errno;
    mst__owner_ring(owner->cancel_fd);
    mst__owner_ring(owner->news_fd);
    errno = before;
}

bool mst__owner_await_news(const struct mst__owner *owner, int64_t deadline_ms)
{
    int64_t left_ms = deadline_ms - mst__clock_ms();
    if (left_ms <= 0) {
        return false;
    }
    struct pollfd pollfds[] = {{.fd = owner->news_fd, .events = POLLIN},
                               {.fd = owner->cancel_fd, .events = POLLIN}};
    /* Interrupted or not: the caller looks at everything again. */
    (void)poll(pollfds, 2, left_ms > INT32_MAX ? INT32_MAX : (int)left_ms);
    return true;
}

/* --- making one --- */

int mst__owner_init(struct mst__owner *owner,
                    mst__owner_watch_fn watch,
                    void *self,
                    struct mst_err *reterr)
{
    *owner = (struct mst__owner){
        .cancel_fd = -1, .stop_fd = -1, .news_fd = -1, .watch = watch, .self = self};
    (void)pthread_mutex_init(&owner->mutex, NULL); /* none of these fails on Linux */
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&owner->cond, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    int *fds[] = {&owner->cancel_fd, &owner->stop_fd, &owner->news_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        *fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (*fds[i] < 0) {
            return mst__fail(reterr, MST_ESYS, errno, "eventfd");
        }
    }
    return 0;
}

void mst__owner_close(struct mst__owner *owner)
{
    const int fds[] = {owner->cancel_fd, owner->stop_fd, owner->news_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]); /* an eventfd: nothing to lose */
        }
    }
    (void)pthread_cond_destroy(&owner->cond); /* nobody waits any more */
    (void)pthread_mutex_destroy(&owner->mutex);
}

/* --- the thread --- */

/* With the lock held, but not while the task is done. */
static void do_task(struct mst__owner *owner)
{
    struct mst__owner_task *task = owner->task;
    mst__owner_silence(owner->stop_fd);
    mst__owner_unlock(owner);
    const struct mst__mem_fault own = mst__mem_fault_swap(task->fault);
    int rv = task->fn(owner->self, task->arg, task->reterr);
    task->fault = mst__mem_fault_swap(own);
    mst__owner_lock(owner);
    task->rv = rv;
    task->is_done = true;
    owner->task = NULL;
    (void)pthread_cond_broadcast(&owner->cond); /* cannot fail */
}

static void *work(void *arg)
{
    struct mst__owner *owner = arg;
    mst__owner_lock(owner);
    while (!owner->is_ending) {
        if (owner->task != NULL) {
            do_task(owner);
        } else if (owner->is_joined) {
            mst__owner_unlock(owner);
            owner->watch(owner->self);
            mst__owner_lock(owner);
        } else {
            (void)pthread_cond_wait(&owner->cond, &owner->mutex);
        }
    }
    mst__owner_unlock(owner);
    return NULL;
}

/* With all signals blocked: they are for the program's own threads. With the lock held. */
static int start(struct mst__owner *owner, struct mst_err *reterr)
{
    if (owner->has_thread) {
        return 0;
    }
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* valid arguments: cannot fail */
    int status = pthread_create(&owner->thread, NULL, work, owner);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    owner->has_thread = status == 0;
    return status == 0 ? 0 : mst__fail(reterr, MST_ESYS, status, "start a thread");
}

void mst__owner_stop(struct mst__owner *owner)
{
    if (!owner->has_thread) {
        return;
    }
    mst__owner_lock(owner);
    owner->is_ending = true;
    mst__owner_ring(owner->stop_fd);
    (void)pthread_cond_broadcast(&owner->cond); /* cannot fail */
    mst__owner_unlock(owner);
    (void)pthread_join(owner->thread, NULL); /* a thread of ours that nobody else joins */
    owner->has_thread = false;
}

/* --- calls --- */

/* Wait for a change of what the mutex guards, but not for long. */
static void wait_slice(struct mst__owner *owner)
{
    int64_t until_ms = mst__clock_ms() + SLICE_MS;
    struct timespec until = {
        .tv_sec = (time_t)(until_ms / 1000),
        .tv_nsec = (long)(until_ms % 1000) * 1000000,
    };
    (void)pthread_cond_timedwait(&owner->cond, &owner->mutex, &until); /* the caller looks */
}

int mst__owner_begin(struct mst__owner *owner, bool may_cancel, struct mst_err *reterr)
{
    int rv = 0;
    mst__owner_lock(owner);
    while (owner->is_busy && rv == 0) {
        wait_slice(owner);
        rv = may_cancel && mst__owner_is_cancelled(owner) ? mst__owner_fail_cancelled(reterr) : 0;
    }
    owner->is_busy = owner->is_busy || rv == 0;
    mst__owner_unlock(owner);
    return rv;
}

bool mst__owner_try_begin(struct mst__owner *owner)
{
    mst__owner_lock(owner);
    bool is_free = owner->is_joined && !owner->is_busy;
    owner->is_busy = owner->is_busy || is_free;
    mst__owner_unlock(owner);
    return is_free;
}

void mst__owner_end(struct mst__owner *owner)
{
    mst__owner_lock(owner);
    MST_ASSERT(owner->is_busy);
    owner->is_busy = false;
    (void)pthread_cond_broadcast(&owner->cond); /* cannot fail */
    mst__owner_unlock(owner);
}

bool mst__owner_is_busy(struct mst__owner *owner)
{
    mst__owner_lock(owner);
    bool is_busy = owner->is_busy;
    mst__owner_unlock(owner);
    return is_busy;
}

int mst__owner_run(struct mst__owner *owner,
                   mst__owner_task_fn task,
                   void *arg,
                   struct mst_err *reterr)
{
    struct mst__owner_task posted = {.fn = task, .arg = arg, .reterr = reterr};
    mst__owner_lock(owner);
    MST_ASSERT(owner->is_busy);
    MST_ASSERT(owner->task == NULL);
    int rv = start(owner, reterr);
    if (rv == 0) {
        posted.fault = mst__mem_fault_swap(posted.fault);
        owner->task = &posted;
        mst__owner_ring(owner->stop_fd);
        (void)pthread_cond_broadcast(&owner->cond); /* cannot fail */
        while (!posted.is_done) {
            (void)pthread_cond_wait(&owner->cond, &owner->mutex); /* each task has a deadline */
        }
        (void)mst__mem_fault_swap(posted.fault); /* there was none meanwhile */
        rv = posted.rv;
    }
    mst__owner_unlock(owner);
    return rv;
}

void mst__owner_joined(struct mst__owner *owner, bool is_joined)
{
    mst__owner_lock(owner);
    owner->is_joined = is_joined;
    mst__owner_unlock(owner);
}

/* A task. */
static int stop_watching(void *self, void *arg, struct mst_err *reterr)
{
    (void)self;
    (void)reterr; /* nothing fails */
    mst__owner_joined(arg, false);
    return 0;
}

void mst__owner_retire(struct mst__owner *owner)
{
    if (!mst__owner_try_begin(owner)) {
        return;
    }
    (void)mst__owner_run(owner, stop_watching, owner, NULL); /* there is a thread, for it watches */
    mst__owner_end(owner);
}
