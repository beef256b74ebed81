/* unit/kv/kv_unit.h - all that a key-value engine holds, as bytes that can be compared. */
#ifndef MST_UNIT_KV_UNIT_H
#define MST_UNIT_KV_UNIT_H

#include "base/buf.h"
#include "kv/kv.h"

/* Everything that a command can change: values and their blocks, queues, lines of waiting
 * clients, watches, promises, lists, counters. @ret_text is initialised and belongs to the
 * caller. Derived values, such as fingerprints, are left out. */
void mst__kv_snapshot(const struct mst__kv *kv,
                      const struct mst__kv_client *clients,
                      size_t clients_count,
                      struct mst__buf *ret_text);

/* Move a part of everything, in @steps steps, in which allocation @failure fails: nothing else
 * changes. */
void mst__kv_check_compact(struct mst__kv *kv,
                           const struct mst__kv_client *clients,
                           size_t clients_count,
                           unsigned long failure,
                           uint64_t steps);

/* As mst__kv_apply; a WAIT for more than @keys keys is made in two parts, unless the first part
 * may leave notices, as it does with a barrier that is left. */
int mst__kv_apply_parts(struct mst__kv *kv,
                        struct mst__kv_client *client,
                        const struct mst__command *command,
                        uint64_t keys,
                        struct mst__reply *ret_reply);

#endif /* MST_UNIT_KV_UNIT_H */
