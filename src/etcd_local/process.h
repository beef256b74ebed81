/* etcd_local/process.h - a child process that does not outlive us; the end of its output is kept.
 *
 * With PR_SET_PDEATHSIG the kernel kills a child when the thread that made it ends, and a
 * caller's thread may end before its etcd should. So each process has a thread of ours, which
 * starts it, reads its output and collects it. */
#ifndef MST_ETCD_LOCAL_PROCESS_H
#define MST_ETCD_LOCAL_PROCESS_H

#include <muster/error.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/until.h"

struct mst__process;

/* Size of the kept output. */
#define MST_PROCESS_TAIL_SIZE 4096

/* How a process ended. */
struct mst__process_end {
    bool is_known; /* false: other code of this program has collected it */
    bool is_signal;
    int number; /* exit status or signal */
};

/**
 * Run @argv, whose first word is a path. Its output goes to @output_fd, or with -1 to us, and its
 * end is kept. @environment NULL = ours. All are borrowed for the call.
 *
 * Returns 0; MST_ESYS if it cannot be run, MST_ENOMEM. Release it with mst__process_free.
 */
int mst__process_start(char *const *argv,
                       char *const *environment,
                       int output_fd,
                       struct mst__process **ret_process,
                       struct mst_err *reterr);

/* Kill it if it runs, and release it. NULL is allowed. */
void mst__process_free(struct mst__process *process);

pid_t mst__process_pid(const struct mst__process *process);

/* Whether it has ended, and how. Exact: a zombie has ended. */
bool mst__process_has_ended(struct mst__process *process, struct mst__process_end *ret_end);

/* Wait for its end. Returns 0, MST_ETIMEOUT, MST_ECANCELED (woken). */
int mst__process_wait(struct mst__process *process, struct mst__until until);

/* End it and its process group: SIGTERM, and SIGKILL after @grace_ms. Returns when it has ended. */
void mst__process_stop(struct mst__process *process, int64_t grace_ms);

/* The end of its output so far, with a NUL; returns its size. Nothing if the output goes
 * elsewhere. */
size_t mst__process_tail(struct mst__process *process, char ret_tail[MST_PROCESS_TAIL_SIZE + 1]);

#define MST_PROCESS_END_SIZE 100

/* "ended with exit status 1", "was killed by signal 9 (Killed)". Returns @ret_text. */
const char *mst__process_describe(const struct mst__process_end *end,
                                  char ret_text[MST_PROCESS_END_SIZE]);

/* Shorten the end of @tail to one line of at most @size - 1 characters: whole lines if they fit,
 * joined by " | ", only printable characters. Returns @ret_words. */
const char *mst__process_last_words(const char *tail, char *ret_words, size_t size);

#endif /* MST_ETCD_LOCAL_PROCESS_H */
