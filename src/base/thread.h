/* base/thread.h - threads of the library, and what they wait for. */
#ifndef MST_BASE_THREAD_H
#define MST_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* Start a thread with all signals blocked: they belong to the program's own threads. 0 or an errno,
 * as pthread_create. */
int mst__thread_start(pthread_t *ret_thread, void *(*run)(void *arg), void *arg);

/* Make a condition. No other file calls pthread_cond_init: timed waits would use the wall clock and
 * last for hours when it is set back. */
void mst__cond_init(pthread_cond_t *ret_cond);

/* Wait until @cond is signalled or until @deadline_ms (monotonic). It may end early: the caller
 * checks what it waits for. */
void mst__cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_ms);

#endif /* MST_BASE_THREAD_H */
