/* base/clock.h - the only place that reads clocks and the system's randomness. Pure rooms must not
 * include it; they get time and random bytes as arguments. */
#ifndef MST_BASE_CLOCK_H
#define MST_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Monotonic time. */
int64_t mst__clock_ms(void);
int64_t mst__clock_us(void);
int64_t mst__clock_ns(void);

/* The time @timeout_ms from now, saturating; a negative timeout counts as 0. */
int64_t mst__clock_deadline_ms(int64_t timeout_ms);

/* The time from now to @deadline_ms; 0 if it has passed. */
int64_t mst__clock_left_ms(int64_t deadline_ms);

/* Wall-clock time in microseconds since 1970, for timestamps. */
int64_t mst__clock_wall_us(void);

/* Fill @size bytes from the kernel's generator. */
void mst__clock_random(void *ret_bytes, size_t size);
uint64_t mst__clock_random_u64(void);

#endif /* MST_BASE_CLOCK_H */
