/* wire/round_key.h - the keys of a round in the store of the server that is its authority.
 *
 * Nodes write them and the server removes them, so both must know whose a key is. The name has all
 * three: the run, because it can be read by people; the epoch, because a run that was forgotten
 * begins with round 1 again; the round. */
#ifndef MST_WIRE_ROUND_KEY_H
#define MST_WIRE_ROUND_KEY_H

#include <muster/types.h>
#include <stdbool.h>

#include "base/limits.h"

/* `muster.`, the run id with each byte as `%2F` at worst, two numbers with their dots, NUL. */
#define MST_ROUND_PREFIX_SIZE (7 + 3 * MST_JOB_RUN_ID_SIZE_MAX + 2 * 21 + 1)

/* `muster.job.1751234567890123.4`, what the keys of the round begin with, before a slash. @run_id
 * has MST_JOB_RUN_ID_SIZE_MAX bytes at most. */
void mst__round_prefix(struct mst_bytes run_id,
                       uint64_t epoch,
                       int64_t round,
                       char ret_text[MST_ROUND_PREFIX_SIZE]);

/* Whose a key is. */
struct mst__round_key {
    uint64_t epoch;
    int64_t round;
    size_t run_id_size;
    uint8_t run_id[MST_JOB_RUN_ID_SIZE_MAX];
};

/* Read @key, as it is on the wire: `/muster.job.1751234567890123.4/MASTER_ADDR`. False for all keys
 * that mst__round_prefix has not begun. */
bool mst__round_key_read(struct mst_bytes key, struct mst__round_key *ret_key);

#endif /* MST_WIRE_ROUND_KEY_H */
