/* base/interrupt.c - a descriptor per thread that ends its waits. */
#include "base/interrupt.h"

#include <poll.h>
#include <time.h>

#include "base/clock.h"

/* What interrupts the waits of this thread; -1 = nothing. */
static _Thread_local int interrupt_fd = -1;

int mst__interrupt_by(int fd)
{
    int before = interrupt_fd;
    interrupt_fd = fd;
    return before;
}

int mst__interrupt_fd(void)
{
    return interrupt_fd;
}

bool mst__interrupt_pause(int64_t until_us)
{
    for (;;) {
        int64_t left_us = until_us - mst__clock_ns() / 1000;
        bool is_over = left_us <= 0;
        struct timespec timeout = {
            .tv_sec = is_over ? 0 : (time_t)(left_us / 1000000),
            .tv_nsec = is_over ? 0 : (long)(left_us % 1000000) * 1000,
        };
        struct pollfd pollfd = {.fd = interrupt_fd, .events = POLLIN};
        int ready = ppoll(&pollfd, 1, &timeout, NULL); /* a descriptor below 0 is not looked at */
        if (ready > 0) {
            return false;
        }
        if (is_over || (ready == 0 && mst__clock_ns() / 1000 >= until_us)) {
            return true;
        }
    }
}

bool mst__interrupt_is_pending(void)
{
    return interrupt_fd >= 0 && !mst__interrupt_pause(0);
}
