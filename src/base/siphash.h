/* base/siphash.h - SipHash-1-3, a keyed hash: peers choose the keys of our maps, and without a
 * secret they could choose keys that collide. */
#ifndef MST_BASE_SIPHASH_H
#define MST_BASE_SIPHASH_H

#include <muster/types.h>

#define MST_SIPHASH_KEY_SIZE 16

uint64_t mst__siphash(const uint8_t key[MST_SIPHASH_KEY_SIZE], const void *data, size_t size);

/* Identifies a value where only its change matters (WAIT_CHANGE): the hash with a key of zeros,
 * never 0, which stands for no value. Values that collide on purpose only delay a node's next read
 * of the record. */
uint64_t mst__fingerprint(struct mst_bytes value);

#endif /* MST_BASE_SIPHASH_H */
