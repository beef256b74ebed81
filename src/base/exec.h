/* base/exec.h - a child that becomes another program, and tells its parent if it cannot.
 *
 * We may have threads, so between fork and exec the child does nothing but system calls. All
 * signals are blocked there until it allows them: a handler of ours that ran in the child would
 * write to a pipe that is the parent's, too. What has failed comes through a pipe that exec
 * closes. */
#ifndef MST_BASE_EXEC_H
#define MST_BASE_EXEC_H

#include <muster/error.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

/* What the child does with @arg before it executes the program, and that: it returns only when it
 * cannot, with the reason in errno. @mask is of the signals that @parent blocks. */
typedef void (*mst__exec_fn)(const void *arg, pid_t parent, const sigset_t *mask);

/* Fork a child that is to become @program, and wait until it has, or cannot; it is collected then.
 * 0, or MST_ESYS with the errno of what has failed, the child's included, in reterr->sys. */
int mst__exec_start(mst__exec_fn become,
                    const void *arg,
                    const char *program,
                    pid_t *ret_pid,
                    struct mst_err *reterr);

/* --- in the child --- */

/* Have the kernel kill us when the thread ends that has forked us. A @parent that is gone already
 * ends us. False: errno. */
bool mst__exec_die_with(pid_t parent);

/* Signals have the usual effect again, and @mask those that are blocked. What the one above us
 * ignores stays ignored. */
void mst__exec_allow_signals(const sigset_t *mask);

/* A copy of @fd, or of its absence, -1, out of the way of 0, 1 and 2. */
int mst__exec_move_fd(int fd);

/* Make @fd what we have at @at. Both are above 2, or the same. False: errno. */
bool mst__exec_become_fd(int fd, int at);

/* Close all descriptors from @first on. */
void mst__exec_close_from(int first);

/* The same, but when the program is executed: the host program may have opened files without
 * close-on-exec. */
void mst__exec_close_from_on_exec(int first);

#endif /* MST_BASE_EXEC_H */
