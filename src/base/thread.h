/* base/thread.h - threads of the library. */
#ifndef MST_BASE_THREAD_H
#define MST_BASE_THREAD_H

#include <pthread.h>

/* Start a thread with all signals blocked: they belong to the program's own threads. 0 or an errno,
 * as pthread_create. */
int mst__thread_start(pthread_t *ret_thread, void *(*run)(void *arg), void *arg);

#endif /* MST_BASE_THREAD_H */
