/* muster/wait.h - a callback while a call waits.
 *
 * For language runtimes that run signal handlers between two steps of a program and not inside a
 * call: Python, Ruby, R. While the main thread waits inside the library, the callback runs the
 * pending handlers. To end the call, a handler calls mst_store_interrupt or mst_handler_cancel. */
#ifndef MST_WAIT_H
#define MST_WAIT_H

#include <muster/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Called in the thread that waits. It may call the library, but must not release the handle that
 * the thread waits on. If one of its own calls waits, it is called again inside that call. An
 * interrupt of the call that waits ends its own calls on the same handle, too. */
typedef void (*mst_wait_fn)(void *arg);

/** Call @fn whenever calls of this thread wait: after a signal, and at least every 50 ms. Affects
 * the calling thread only, until set again; @fn may be NULL, the default: none. Cannot fail. A
 * forked child keeps it. */
MST_API void mst_on_wait(mst_wait_fn fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif /* MST_WAIT_H */
