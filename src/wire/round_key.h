/* wire/round_key.h - the keys of a round in the store of its authority's server.
 *
 * Nodes write them and the server removes them, so both must know the round of a key. The name
 * contains the run, for people; the epoch, because a forgotten run begins with round 1 again; and
 * the round. */
#ifndef MST_WIRE_ROUND_KEY_H
#define MST_WIRE_ROUND_KEY_H

#include <muster/types.h>
#include <stdbool.h>

#include "base/limits.h"

/* `muster.`, the run id with each byte as `%2F` at worst, two numbers with their dots, NUL. */
#define MST_ROUND_PREFIX_SIZE (7 + 3 * MST_JOB_RUN_ID_SIZE_MAX + 2 * 21 + 1)

/* `muster.job.1751234567890123.4`, the start of the round's keys, before a slash. @run_id has at
 * most MST_JOB_RUN_ID_SIZE_MAX bytes. */
void mst__round_prefix(struct mst_bytes run_id,
                       uint64_t epoch,
                       int64_t round,
                       char ret_text[MST_ROUND_PREFIX_SIZE]);

/* The round of a key. */
struct mst__round_key {
    uint64_t epoch;
    int64_t round;
    size_t run_id_size;
    uint8_t run_id[MST_JOB_RUN_ID_SIZE_MAX];
};

/* Parse @key in its form on the wire: `/muster.job.1751234567890123.4/MASTER_ADDR`. False for keys
 * without a prefix of mst__round_prefix. */
bool mst__round_key_read(struct mst_bytes key, struct mst__round_key *ret_key);

#endif /* MST_WIRE_ROUND_KEY_H */
