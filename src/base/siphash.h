/* base/siphash.h - SipHash-1-3, a keyed hash: remote peers choose our map's keys, and without a
 * secret they could choose them to collide. */
#ifndef MST_BASE_SIPHASH_H
#define MST_BASE_SIPHASH_H

#include <muster/types.h>

#define MST_SIPHASH_KEY_SIZE 16

uint64_t mst__siphash(const uint8_t key[MST_SIPHASH_KEY_SIZE], const void *data, size_t size);

/* What a value is told from another one by where only its change matters (WAIT_CHANGE): the hash
 * with a key of zeros, and never 0, which stands for no value. Who makes two values collide on
 * purpose delays a node's next look at the record, and nothing else. */
uint64_t mst__fingerprint(struct mst_bytes value);

#endif /* MST_BASE_SIPHASH_H */
