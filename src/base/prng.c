/* base/prng.c - xoroshiro128++ (Blackman and Vigna), seeded by splitmix64. */
#include "base/prng.h"

#include "base/assert.h"

static uint64_t prng_splitmix(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15U;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static uint64_t prng_rotate(uint64_t x, unsigned bits)
{
    return (x << bits) | (x >> (64 - bits));
}

void mst__prng_init(struct mst__prng *prng, uint64_t seed)
{
    uint64_t mix = seed;
    prng->state[0] = prng_splitmix(&mix);
    prng->state[1] = prng_splitmix(&mix);
}

uint64_t mst__prng_next(struct mst__prng *prng)
{
    uint64_t s0 = prng->state[0];
    uint64_t s1 = prng->state[1];
    uint64_t result = prng_rotate(s0 + s1, 17) + s0;
    s1 ^= s0;
    prng->state[0] = prng_rotate(s0, 49) ^ s1 ^ (s1 << 21);
    prng->state[1] = prng_rotate(s1, 28);
    return result;
}

uint64_t mst__prng_below(struct mst__prng *prng, uint64_t bound)
{
    MST_ASSERT(bound > 0);
    /* Reject the short last stretch, so that no value is favoured. */
    uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
    uint64_t value = mst__prng_next(prng);
    while (value >= limit) {
        value = mst__prng_next(prng);
    }
    return value % bound;
}
