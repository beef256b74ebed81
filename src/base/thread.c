/* base/thread.c - threads of the library, and what they wait for. */
#include "base/thread.h"

#include <signal.h>
#include <time.h>

int mst__thread_start(pthread_t *ret_thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all); /* these cannot fail with valid arguments */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(ret_thread, NULL, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

void mst__cond_init(pthread_cond_t *ret_cond)
{
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes); /* none of these fails on Linux */
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(ret_cond, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

void mst__cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_ms)
{
    const struct timespec until = {
        .tv_sec = (time_t)(deadline_ms / 1000),
        .tv_nsec = (long)(deadline_ms % 1000) * 1000000,
    };
    (void)pthread_cond_timedwait(cond, mutex, &until); /* either result is fine */
}
