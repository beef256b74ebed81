/* base/prng.h - a small generator with explicit state: the same seed gives the same sequence. For
 * jitter, tests and the simulator; not for secrets. */
#ifndef MST_BASE_PRNG_H
#define MST_BASE_PRNG_H

#include <stdint.h>

struct mst__prng {
    uint64_t state[2];
};

void mst__prng_init(struct mst__prng *prng, uint64_t seed);

uint64_t mst__prng_next(struct mst__prng *prng);

/* Uniform in 0 … @bound - 1; @bound > 0. */
uint64_t mst__prng_below(struct mst__prng *prng, uint64_t bound);

#endif /* MST_BASE_PRNG_H */
