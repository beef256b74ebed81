/* base/fork.h - how a forked child knows that something was made by its parent. */
#ifndef MST_BASE_FORK_H
#define MST_BASE_FORK_H

/* A number that is another one in a child than in its parent. Quicker than getpid, which is a call
 * of the kernel; from a signal handler only after a first call elsewhere. */
unsigned mst__fork_generation(void);

#endif /* MST_BASE_FORK_H */
