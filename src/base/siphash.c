/* base/siphash.c - SipHash with one compression and three finalisation rounds (Aumasson and
 * Bernstein, "SipHash: a fast short-input PRF", 2012). */
#include "base/siphash.h"

#include "base/bytes.h"

struct siphash {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t siphash_rotate(uint64_t x, unsigned bits)
{
    return (x << bits) | (x >> (64 - bits));
}

static inline void siphash_round(struct siphash *s)
{
    s->v0 += s->v1;
    s->v1 = siphash_rotate(s->v1, 13) ^ s->v0;
    s->v0 = siphash_rotate(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = siphash_rotate(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = siphash_rotate(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = siphash_rotate(s->v1, 17) ^ s->v2;
    s->v2 = siphash_rotate(s->v2, 32);
}

uint64_t mst__siphash(const uint8_t key[MST_SIPHASH_KEY_SIZE], const void *data, size_t size)
{
    uint64_t k0 = mst__load_u64(key);
    uint64_t k1 = mst__load_u64(key + 8);
    struct siphash s = {k0 ^ 0x736f6d6570736575U, k1 ^ 0x646f72616e646f6dU,
                        k0 ^ 0x6c7967656e657261U, k1 ^ 0x7465646279746573U};
    const uint8_t *at = data;
    size_t left = size;
    for (; left >= 8; left -= 8, at += 8) {
        uint64_t word = mst__load_u64(at);
        s.v3 ^= word;
        siphash_round(&s);
        s.v0 ^= word;
    }
    uint64_t last = (uint64_t)size << 56;
    for (size_t i = 0; i < left; i++) {
        last |= (uint64_t)at[i] << (8 * i);
    }
    s.v3 ^= last;
    siphash_round(&s);
    s.v0 ^= last;
    s.v2 ^= 0xff;
    siphash_round(&s);
    siphash_round(&s);
    siphash_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

uint64_t mst__fingerprint(struct mst_bytes value)
{
    static const uint8_t key[MST_SIPHASH_KEY_SIZE];
    uint64_t hash = mst__siphash(key, value.data, value.size);
    return hash == 0 ? 1 : hash;
}
