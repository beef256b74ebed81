/* handler/owner.c - the thread that owns the machine of a handler. */
#include "handler/owner.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fork.h"
#include "base/thread.h"
#include "base/until.h"

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
    (void)got; /* empty already: fine */
}

bool mst__owner_is_cancelled(const struct mst__owner *owner)
{
    return is_rung(owner->cancel_fd);
}

/* --- making one --- */

int mst__owner_init(struct mst__owner *owner,
                    mst__owner_watch_fn watch,
                    void *self,
                    struct mst_err *reterr)
{
    *owner = (struct mst__owner){.watch = watch, .self = self};
    (void)pthread_mutex_init(&owner->mutex, NULL); /* none of these fails on Linux */
    mst__cond_init(&owner->cond);
    int *fds[] = {&owner->cancel_fd, &owner->call_fd, &owner->stop_fd, &owner->news_fd,
                  &owner->begun_fd};
    int rv = 0;
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        *fds[i] = rv == 0 ? mst__fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) : -1;
        rv = rv == 0 && *fds[i] < 0 ? mst__fail(reterr, MST_ESYS, errno, "eventfd") : rv;
    }
    return rv;
}

void mst__owner_close(struct mst__owner *owner)
{
    MST_ASSERT(!owner->has_thread);
    const int fds[] = {owner->cancel_fd, owner->call_fd, owner->stop_fd, owner->news_fd,
                       owner->begun_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            (void)mst__fork_close(fds[i]); /* an eventfd: nothing can be lost */
        }
    }
    (void)pthread_cond_destroy(&owner->cond); /* no thread waits any more */
    (void)pthread_mutex_destroy(&owner->mutex);
}

/* --- the thread --- */

/* The lock is held: by the caller, who says so. */
static void assert_locked(struct mst__owner *owner)
{
    MST_ASSERT(pthread_mutex_trylock(&owner->mutex) == EBUSY);
}

/* Whether this is the owner's thread, which must not wait for itself. With the lock held. */
static bool is_owner(struct mst__owner *owner)
{
    assert_locked(owner);
    return owner->has_thread && pthread_equal(owner->thread, pthread_self());
}

/* With the lock held, except while @task runs. */
static void do_task(struct mst__owner *owner, struct mst__owner_task *task)
{
    assert_locked(owner);
    /* Whoever posts rings with the lock held, so what is posted later rings again. */
    mst__owner_silence(owner->stop_fd);
    if (task->is_cancelled) {
        /* Before it began; the task before it may have silenced the descriptor since. */
        mst__owner_ring(owner->cancel_fd);
    }
    mst__owner_unlock(owner);
    const struct mst__mem_fault own = mst__mem_fault_swap(task->fault);
    int rv = task->fn(owner->self, task->arg, task->reterr);
    task->fault = mst__mem_fault_swap(own);
    mst__owner_lock(owner);
    task->rv = rv;
    /* Only now: what comes next, a task, the watching or a call, was not cancelled. */
    mst__owner_silence(owner->cancel_fd);
    (void)pthread_cond_broadcast(&owner->cond); /* cannot fail */
}

static void *work(void *arg)
{
    struct mst__owner *owner = arg;
    mst__owner_lock(owner);
    while (!owner->is_ending) {
        if (owner->task != NULL) {
            /* It is on the stack of its caller, who returns when it is forgotten here. */
            do_task(owner, owner->task);
            MST_ASSERT(owner->task != NULL);
            owner->task = NULL;
        } else if (owner->is_begun) {
            do_task(owner, &owner->begun);
            MST_ASSERT(owner->is_begun);
            owner->is_begun = false;
            owner->tell_begun(owner->self);
            mst__owner_ring(owner->begun_fd);
        } else if (owner->is_joined) {
            mst__owner_unlock(owner); /* what is posted from now on rings stop_fd for the watch */
            owner->watch(owner->self);
            mst__owner_lock(owner);
        } else {
            (void)pthread_cond_wait(&owner->cond, &owner->mutex);
        }
    }
    mst__owner_unlock(owner);
    return NULL;
}

/* With the lock held. */
static int start(struct mst__owner *owner, struct mst_err *reterr)
{
    assert_locked(owner);
    if (owner->has_thread) {
        return 0;
    }
    int status = mst__thread_start(&owner->thread, work, owner);
    owner->has_thread = status == 0;
    return status == 0 ? 0 : mst__fail(reterr, MST_ESYS, status, "start a thread");
}

void mst__owner_stop(struct mst__owner *owner)
{
    if (!owner->has_thread) {
        return;
    }
    mst__owner_lock(owner);
    MST_ASSERT(owner->waiters == 0);
    MST_ASSERT(owner->task == NULL);
    owner->is_ending = true;
    /* The owner may be in the task of a begun round, in its watch, or wait for the condition. */
    mst__owner_ring(owner->cancel_fd);
    mst__owner_ring(owner->stop_fd);
    (void)pthread_cond_broadcast(&owner->cond); /* cannot fail */
    mst__owner_unlock(owner);
    (void)pthread_join(owner->thread, NULL); /* ours, and only joined here */
    owner->has_thread = false;
}

/* --- calls that may block --- */

void mst__owner_cancel(struct mst__owner *owner)
{
    int before = errno;
    /* In this order: who hears the bell sees the number. No lock, for a signal handler. */
    (void)atomic_fetch_add(&owner->cancels, 1);
    mst__owner_ring(owner->call_fd);
    errno = before;
}

/* A call that may block begins. Returns the number of the last cancellation that is not for it.
 * With the lock held. */
static uint64_t call_enter(struct mst__owner *owner)
{
    assert_locked(owner);
    owner->waiters++;
    return owner->served;
}

static bool call_is_cancelled(struct mst__owner *owner, uint64_t base)
{
    return atomic_load(&owner->cancels) != base;
}

/* The descriptor stays readable until a call has returned the last cancellation, and all that are
 * to return it have seen it; not longer, or calls that begin later would not sleep. With the lock
 * held. */
static void calls_silence(struct mst__owner *owner)
{
    if (owner->behind > 0 || call_is_cancelled(owner, owner->served)) {
        return;
    }
    mst__owner_silence(owner->call_fd);
    if (call_is_cancelled(owner, owner->served)) {
        mst__owner_ring(owner->call_fd); /* it came meanwhile, and other calls wait */
    }
}

/* The call of @base waits no more. With the lock held. */
static void call_leave(struct mst__owner *owner, uint64_t base)
{
    assert_locked(owner);
    MST_ASSERT(owner->waiters > 0);
    owner->waiters--;
    if (base != owner->served) {
        MST_ASSERT(owner->behind > 0);
        owner->behind--;
    }
    MST_ASSERT(owner->behind <= owner->waiters);
    calls_silence(owner);
}

/* A call that has left returns MST_ECANCELED. All that wait now began before the cancellation was
 * returned, so it is for them as well. With the lock held. */
static void call_serve(struct mst__owner *owner)
{
    assert_locked(owner);
    uint64_t cancels = atomic_load(&owner->cancels);
    MST_ASSERT(owner->served <= cancels);
    if (owner->served != cancels) { /* else others have returned it, and calls began since then */
        owner->served = cancels;
        owner->behind = owner->waiters;
    }
    calls_silence(owner);
}

/* The call of @base leaves and returns. With the lock held. */
static void call_exit(struct mst__owner *owner, uint64_t base, bool is_cancelled)
{
    call_leave(owner, base);
    if (is_cancelled) {
        call_serve(owner);
    }
}

/* Wait until @look has a result. It is called whenever @news_fd is readable (-1 = never), and after
 * @period_ms. */
static int await_result(struct mst__owner *owner,
                        struct mst__until until,
                        int news_fd,
                        int64_t period_ms,
                        mst__owner_look_fn look,
                        void *self,
                        void *arg,
                        struct mst_err *reterr)
{
    mst__owner_lock(owner);
    uint64_t base = call_enter(owner);
    mst__owner_unlock(owner);
    int rv = look(self, arg, reterr);
    bool is_cancelled = false;
    while (rv == MST_ETIMEOUT && !mst__until_is_over(until) && !is_cancelled) {
        struct pollfd pollfds[] = {{.fd = news_fd, .events = POLLIN},
                                   {.fd = owner->call_fd, .events = POLLIN}};
        struct mst__until turn = mst__until_sooner(until, mst__clock_deadline_ms(period_ms));
        /* Before each wait: another thread may have taken what made the descriptor readable. */
        is_cancelled = call_is_cancelled(owner, base);
        /* If interrupted, look again. */
        if (!is_cancelled && poll(pollfds, 2, mst__until_poll_ms(turn)) <= 0) {
            mst__until_tell();
        }
        rv = look(self, arg, reterr);
    }
    /* A call with a result returns that; the cancellation is for the others, or the next. */
    is_cancelled = is_cancelled && rv == MST_ETIMEOUT;
    mst__owner_lock(owner);
    call_exit(owner, base, is_cancelled);
    mst__owner_unlock(owner);
    return is_cancelled ? mst__owner_fail_cancelled(reterr) : rv;
}

int mst__owner_await(struct mst__owner *owner,
                     int64_t timeout_ms,
                     mst__owner_look_fn look,
                     void *self,
                     void *arg,
                     struct mst_err *reterr)
{
    return await_result(owner, mst__until_in(timeout_ms), owner->news_fd, INT64_MAX, look, self,
                        arg, reterr);
}

int mst__owner_await_slowly(struct mst__owner *owner,
                            int64_t timeout_ms,
                            int64_t period_ms,
                            mst__owner_look_fn look,
                            void *self,
                            void *arg,
                            struct mst_err *reterr)
{
    return await_result(owner, mst__until_in(timeout_ms), -1, period_ms, look, self, arg, reterr);
}

/* Another call than ours was cancelled, and its thread needs the lock. */
static void let_it_go(struct mst__owner *owner)
{
    mst__owner_unlock(owner);
    (void)sched_yield(); /* cannot fail */
    mst__owner_lock(owner);
}

/* Wait for a change of the guarded state, with the lock held. Returns whether the call of @base
 * was cancelled. */
static bool call_wait(struct mst__owner *owner, uint64_t base)
{
    const struct mst__until until = mst__until_by(owner->call_fd, INT64_MAX);
    if (call_is_cancelled(owner, base)) {
        return true;
    }
    if (mst__until_cond(until, &owner->cond, &owner->mutex) == MST_ECANCELED) {
        let_it_go(owner);
    }
    return call_is_cancelled(owner, base);
}

/* Wait until the begun round is over, with the lock held. Returns whether the call of @base was
 * cancelled. */
static bool call_wait_begun(struct mst__owner *owner, uint64_t base, struct mst__until until)
{
    if (call_is_cancelled(owner, base)) {
        return true;
    }
    mst__owner_unlock(owner);
    int rv = mst__until_ready(until, owner->begun_fd, POLLIN);
    mst__owner_lock(owner);
    if (rv == MST_ECANCELED && !call_is_cancelled(owner, base)) {
        let_it_go(owner);
    }
    return call_is_cancelled(owner, base);
}

/* --- calls that change our membership --- */

int mst__owner_begin(struct mst__owner *owner, bool may_cancel, struct mst_err *reterr)
{
    bool is_cancelled = false;
    mst__owner_lock(owner);
    if (may_cancel) {
        uint64_t base = call_enter(owner);
        while (owner->is_busy && !is_cancelled) {
            is_cancelled = call_wait(owner, base);
        }
        is_cancelled = is_cancelled && owner->is_busy;
        call_exit(owner, base, is_cancelled);
    } else {
        while (owner->is_busy) {
            (void)pthread_cond_wait(&owner->cond, &owner->mutex); /* each call has a deadline */
        }
    }
    owner->is_busy = true; /* if we are cancelled, it is so already, by the other call */
    mst__owner_unlock(owner);
    return is_cancelled ? mst__owner_fail_cancelled(reterr) : 0;
}

bool mst__owner_try_begin(struct mst__owner *owner)
{
    mst__owner_lock(owner);
    bool is_free = owner->is_joined && !owner->is_busy && !owner->is_begun;
    owner->is_busy = owner->is_busy || is_free;
    mst__owner_unlock(owner);
    return is_free;
}

void mst__owner_end(struct mst__owner *owner)
{
    mst__owner_lock(owner);
    MST_ASSERT(owner->is_busy);
    MST_ASSERT(owner->task == NULL); /* only the busy call posts, and it has waited */
    owner->is_busy = false;
    (void)pthread_cond_broadcast(&owner->cond); /* cannot fail */
    mst__owner_unlock(owner);
}

bool mst__owner_is_busy(struct mst__owner *owner)
{
    mst__owner_lock(owner);
    bool is_busy = owner->is_busy || owner->is_begun;
    mst__owner_unlock(owner);
    return is_busy;
}

/* Wake the owner: it waits for the condition, or watches. With the lock held. */
static void post(struct mst__owner *owner)
{
    assert_locked(owner);
    MST_ASSERT(owner->has_thread);
    mst__owner_ring(owner->stop_fd);
    (void)pthread_cond_broadcast(&owner->cond); /* cannot fail */
}

/* Cancel @task, which is posted or runs. A begun round that it waits for ends, too: the caller
 * expects an end soon. With the lock held. */
static void end_task(struct mst__owner *owner, struct mst__owner_task *task)
{
    assert_locked(owner);
    MST_ASSERT(task == owner->task || task == &owner->begun);
    task->is_cancelled = true;
    mst__owner_ring(owner->cancel_fd);
}

int mst__owner_run(struct mst__owner *owner,
                   mst__owner_task_fn task,
                   void *arg,
                   struct mst_err *reterr)
{
    struct mst__owner_task posted = {.fn = task, .arg = arg, .reterr = reterr};
    mst__owner_lock(owner);
    MST_ASSERT(!is_owner(owner));
    MST_ASSERT(!owner->is_ending);
    MST_ASSERT(owner->is_busy);
    MST_ASSERT(owner->task == NULL);
    int rv = start(owner, reterr);
    if (rv == 0) {
        uint64_t base = call_enter(owner);
        bool is_cancelled = false;
        posted.fault = mst__mem_fault_swap(posted.fault);
        owner->task = &posted;
        post(owner);
        while (owner->task == &posted && !is_cancelled) {
            is_cancelled = call_wait(owner, base);
        }
        call_leave(owner, base);
        /* If it was done all the same, the owner may be in a begun round, which goes on. */
        if (owner->task == &posted) {
            end_task(owner, &posted);
        }
        while (owner->task == &posted) {
            (void)pthread_cond_wait(&owner->cond, &owner->mutex); /* it ends soon */
        }
        (void)mst__mem_fault_swap(posted.fault); /* there was none meanwhile */
        rv = posted.rv;
        if (is_cancelled && rv == MST_ECANCELED) {
            call_serve(owner);
        } /* else the cancellation is for another call */
    }
    mst__owner_unlock(owner);
    return rv;
}

/* --- the round that is begun --- */

int mst__owner_want(struct mst__owner *owner,
                    mst__owner_task_fn task,
                    mst__owner_tell_fn tell,
                    struct mst_err *reterr)
{
    mst__owner_lock(owner);
    int rv = start(owner, reterr);
    if (rv == 0 && !owner->is_begun) {
        owner->begun = (struct mst__owner_task){.fn = task};
        owner->begun.fault = mst__mem_fault_swap(owner->begun.fault);
        owner->is_begun = true;
        mst__owner_silence(owner->begun_fd);
        owner->tell_begun = tell;
        post(owner);
    }
    mst__owner_unlock(owner);
    return rv;
}

int mst__owner_await_begun(struct mst__owner *owner, int64_t timeout_ms, struct mst_err *reterr)
{
    const struct mst__until until = mst__until_by(owner->call_fd, timeout_ms);
    bool is_cancelled = false;
    mst__owner_lock(owner);
    uint64_t base = call_enter(owner);
    /* If another thread begins the next round before this one has looked, it is waited for, too:
     * the handler has only the last result. */
    while (owner->is_begun && !is_cancelled && !mst__until_is_over(until)) {
        is_cancelled = call_wait_begun(owner, base, until);
    }
    is_cancelled = is_cancelled && owner->is_begun;
    bool is_late = owner->is_begun && !is_cancelled;
    call_exit(owner, base, is_cancelled);
    mst__owner_unlock(owner);
    if (is_late) {
        return mst__fail(reterr, MST_ETIMEOUT, 0, "the round is not complete yet");
    }
    return is_cancelled ? mst__owner_fail_cancelled(reterr) : 0;
}

bool mst__owner_withdraw(struct mst__owner *owner)
{
    mst__owner_lock(owner);
    MST_ASSERT(!is_owner(owner));
    MST_ASSERT(owner->task == NULL); /* else it would end as well */
    bool was_begun = owner->is_begun;
    if (was_begun) {
        end_task(owner, &owner->begun);
    }
    while (owner->is_begun) {
        (void)pthread_cond_wait(&owner->cond, &owner->mutex); /* it ends soon */
    }
    mst__owner_unlock(owner);
    return was_begun;
}

void mst__owner_joined(struct mst__owner *owner, bool is_joined)
{
    mst__owner_lock(owner);
    MST_ASSERT(is_owner(owner));
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
    (void)mst__owner_run(owner, stop_watching, owner, NULL); /* it watches, so there is a thread */
    mst__owner_end(owner);
}
