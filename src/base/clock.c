/* base/clock.c - clocks and randomness of the system. */
#include "base/clock.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>

#include "base/assert.h"

int64_t mst__clock_ns(void)
{
    struct timespec now;
    MST_ASSERT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t mst__clock_us(void)
{
    return mst__clock_ns() / 1000;
}

int64_t mst__clock_ms(void)
{
    return mst__clock_ns() / 1000000;
}

int64_t mst__clock_deadline_ms(int64_t timeout_ms)
{
    int64_t now_ms = mst__clock_ms();
    if (timeout_ms <= 0) {
        return now_ms;
    }
    return timeout_ms > INT64_MAX - now_ms ? INT64_MAX : now_ms + timeout_ms;
}

int64_t mst__clock_left_ms(int64_t deadline_ms)
{
    int64_t now_ms = mst__clock_ms();
    return deadline_ms > now_ms ? deadline_ms - now_ms : 0;
}

int64_t mst__clock_wall_us(void)
{
    struct timespec now;
    MST_ASSERT(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void mst__clock_random(void *ret_bytes, size_t size)
{
    uint8_t *at = ret_bytes;
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0) {
            MST_ASSERT(errno == EINTR);
            continue;
        }
        at += got;
        size -= (size_t)got;
    }
}

uint64_t mst__clock_random_u64(void)
{
    uint64_t random;
    mst__clock_random(&random, sizeof random);
    return random;
}
