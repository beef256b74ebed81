/* base/syscalls.h - system calls of Linux for which older C libraries, and musl, lack a function, a
 * header or a number. The numbers are the same on every architecture but alpha.
 *
 * Each returns -1 with errno ENOSYS on a kernel without it. */
#ifndef MST_BASE_SYSCALLS_H
#define MST_BASE_SYSCALLS_H

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* Linux 5.3 */
#endif
#ifndef SYS_close_range
#define SYS_close_range 436 /* Linux 5.9 */
#endif

/* A flag of close_range, Linux 5.11. */
#define MST_CLOSE_RANGE_CLOEXEC (1U << 2)

/* Open a descriptor that is readable once the process has ended. */
static inline int mst__pidfd_open(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0U);
}

/* Close the descriptors from @first on, or with the flag mark them. May be used after a fork. */
static inline int mst__close_range_from(unsigned first, unsigned flags)
{
    return (int)syscall(SYS_close_range, first, ~0U, flags);
}

#endif /* MST_BASE_SYSCALLS_H */
