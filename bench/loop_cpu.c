/* bench/loop_cpu.c - loaded before libuv: the server's turns in CPU time of its thread.
 *
 * A turn of the loop is what passes without the time in which it waits. Here everything counts as
 * waiting in which the thread has no processor, so that other programs change nothing. */
#include <stdint.h>
#include <time.h>

struct uv_loop_s;
uint64_t uv_metrics_idle_time(struct uv_loop_s *loop);

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now); /* both clocks are always there */
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t uv_metrics_idle_time(struct uv_loop_s *loop)
{
    (void)loop; /* its own thread asks */
    return now_ns(CLOCK_MONOTONIC) - now_ns(CLOCK_THREAD_CPUTIME_ID);
}
