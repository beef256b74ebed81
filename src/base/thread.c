/* base/thread.c - threads of the library. */
#include "base/thread.h"

#include <signal.h>

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
