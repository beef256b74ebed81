/* base/fork.h - lets a forked child recognise objects of its parent, and closes their descriptors
 * in it. A child that kept a connection open would hide the death of its parent. */
#ifndef MST_BASE_FORK_H
#define MST_BASE_FORK_H

/* A number that differs between a child and its parent. Faster than getpid, which is a system call.
 * In a signal handler only after a first call elsewhere. */
unsigned mst__fork_generation(void);

/* From now on forked children close @fd at once. Returns @fd, also if it is negative. */
int mst__fork_own(int fd);

/* Before somebody else closes @fd, which is owned. */
void mst__fork_disown(int fd);

/* Close @fd, which is owned. Returns as close. */
int mst__fork_close(int fd);

#endif /* MST_BASE_FORK_H */
