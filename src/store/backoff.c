/* store/backoff.c - growing pauses with jitter. */
#include "store/backoff.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/until.h"

void mst__backoff_init(struct mst__backoff *backoff, int64_t first_ms, int64_t max_ms)
{
    MST_ASSERT(first_ms > 0);
    MST_ASSERT(max_ms >= first_ms);
    backoff->is_seeded = false;
    backoff->pause_us = first_ms * 1000;
    backoff->pause_us_max = max_ms * 1000;
}

static void backoff_seed(struct mst__backoff *backoff)
{
    if (!backoff->is_seeded) {
        mst__prng_init(&backoff->prng, mst__clock_random_u64());
        backoff->is_seeded = true;
    }
}

bool mst__backoff_pause(struct mst__backoff *backoff, struct mst__until until)
{
    int64_t left_ms = mst__clock_left_ms(until.deadline_ms);
    if (left_ms <= 0) {
        return false;
    }
    backoff_seed(backoff);
    /* Between half of the pause and all of it. */
    int64_t half_us = backoff->pause_us / 2;
    int64_t pause_us = half_us + (int64_t)mst__prng_below(&backoff->prng, (uint64_t)half_us + 1);
    if (left_ms < pause_us / 1000 + 1) {
        pause_us = left_ms * 1000;
    }
    backoff->pause_us += half_us;
    if (backoff->pause_us > backoff->pause_us_max) {
        backoff->pause_us = backoff->pause_us_max;
    }
    return mst__until_pause(until.wake_fd, mst__clock_us() + pause_us);
}
