/* base/fork.h - lets a forked child recognise objects of its parent. */
#ifndef MST_BASE_FORK_H
#define MST_BASE_FORK_H

/* A number that differs between a child and its parent. Faster than getpid, which is a system call.
 * In a signal handler only after a first call elsewhere. */
unsigned mst__fork_generation(void);

#endif /* MST_BASE_FORK_H */
