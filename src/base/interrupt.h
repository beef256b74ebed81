/* base/interrupt.h - how a thread that waits for somebody else is told to stop.
 *
 * Waiting happens deep inside calls that are made of other calls, so this is a property of the
 * thread and no argument. Everything that waits for the network looks at it. */
#ifndef MST_BASE_INTERRUPT_H
#define MST_BASE_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

/* From now on everything in which this thread waits for the network, also in the stores, fails as
 * soon as @fd, an eventfd or the like, is readable: with MST_ECANCELED, or as if the deadline had
 * passed. -1 = nothing does. Returns what it was before. */
int mst__interrupt_by(int fd);

/* What interrupts this thread, for those who wait by poll; -1 = nothing does. */
int mst__interrupt_fd(void);

/* Pause until @until_us (monotonic), unless this thread is interrupted: whether it was not. */
bool mst__interrupt_pause(int64_t until_us);

bool mst__interrupt_is_pending(void);

#endif /* MST_BASE_INTERRUPT_H */
