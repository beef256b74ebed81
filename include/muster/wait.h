/* muster/wait.h - what a thread does while a call of it waits.
 *
 * For runtimes whose handlers of signals run between two steps of a program and not in the middle
 * of a call: Python, Ruby, R. While their main thread waits inside the library, a function of
 * theirs is called now and then. It runs the handlers that are due, and if one of them wants the
 * call to end, it calls mst_store_interrupt or mst_handler_cancel. */
#ifndef MST_WAIT_H
#define MST_WAIT_H

#include <muster/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Called by a thread that waits inside a call of the library. It may make any call of the library
 * that this thread could make if it did not wait, but not release the handle that it waits on. */
typedef void (*mst_wait_fn)(void *arg);

/** Have @fn called while calls of the calling thread wait: when a signal has interrupted the wait,
 * and every 50 ms at the latest. It counts for this thread only, until it is called again; NULL =
 * nothing is called, which is the default. It cannot fail. A forked child keeps it. */
MST_API void mst_on_wait(mst_wait_fn fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif /* MST_WAIT_H */
