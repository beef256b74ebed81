/* base/exec.h - a child that becomes another program, or reports why it cannot.
 *
 * The process may have threads, so between fork and exec the child makes only system calls. It
 * blocks all signals until it allows them: a signal handler that ran in the child would write to a
 * pipe that it shares with the parent. A failure is reported through a pipe that exec closes. */
#ifndef MST_BASE_EXEC_H
#define MST_BASE_EXEC_H

#include <muster/error.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

/* Prepare the child with @arg and execute the program. Returns only on failure, with the reason in
 * errno. @mask holds the signals that @parent blocks. */
typedef void (*mst__exec_fn)(const void *arg, pid_t parent, const sigset_t *mask);

/* Fork a child that becomes @program, and wait until it has, or has failed; a failed child is
 * reaped. 0, or MST_ESYS with the errno of the failed call, in parent or child, in reterr->sys. */
int mst__exec_start(mst__exec_fn become,
                    const void *arg,
                    const char *program,
                    pid_t *ret_pid,
                    struct mst_err *reterr);

/* --- in the child --- */

/* Have the kernel kill the child when the thread that forked it ends. Exits if @parent is gone
 * already. False: errno. */
bool mst__exec_die_with(pid_t parent);

/* Restore the default effect of signals, and block those of @mask. Signals that our parent ignores
 * stay ignored. */
void mst__exec_allow_signals(const sigset_t *mask);

/* A copy of @fd above 2; -1 stays -1. */
int mst__exec_move_fd(int fd);

/* Make @at a copy of @fd. Both are above 2, or the same. False: errno. */
bool mst__exec_become_fd(int fd, int at);

/* Close all descriptors from @first on. */
void mst__exec_close_from(int first);

/* The same at exec: the host program may have opened files without close-on-exec. */
void mst__exec_close_from_on_exec(int first);

#endif /* MST_BASE_EXEC_H */
