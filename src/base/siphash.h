/* base/siphash.h - SipHash-1-3, a keyed hash: remote peers choose our map's keys, and without a
 * secret they could choose them to collide. */
#ifndef MST_BASE_SIPHASH_H
#define MST_BASE_SIPHASH_H

#include <muster/types.h>

#define MST_SIPHASH_KEY_SIZE 16

uint64_t mst__siphash(const uint8_t key[MST_SIPHASH_KEY_SIZE], const void *data, size_t size);

#endif /* MST_BASE_SIPHASH_H */
