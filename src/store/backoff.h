/* store/backoff.h - growing, random pauses, so that many waiting clients do not all return at the
 * same time. */
#ifndef MST_STORE_BACKOFF_H
#define MST_STORE_BACKOFF_H

#include <stdbool.h>

#include "base/prng.h"
#include "base/until.h"

struct mst__backoff {
    struct mst__prng prng;
    bool is_seeded; /* seeded at the first pause, which most calls never need */
    int64_t pause_us;
    int64_t pause_us_max;
};

/* The first pause is about @first_ms, each one is longer, none exceeds @max_ms. */
void mst__backoff_init(struct mst__backoff *backoff, int64_t first_ms, int64_t max_ms);

/* Pause, but not beyond @until. False, at once, if that has passed or is woken. */
bool mst__backoff_pause(struct mst__backoff *backoff, struct mst__until until);

#endif /* MST_STORE_BACKOFF_H */
