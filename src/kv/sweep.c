/* kv/sweep.c - removes keys that are no longer needed, a part at a time.
 *
 * There is no index of keys by prefix: it would cost every key memory and time. A sweep walks over
 * all entries in the order of their creation, so that it also reaches entries that are created
 * meanwhile; the caller limits each part. */
#include "base/assert.h"
#include "kv/entry.h"

void mst__kv_sweep_begin(struct mst__kv *kv)
{
    kv->sweep_next = mst__map_first(&kv->map);
}

/* @entry is dead: remove its value, and items of its queue until @end steps are done. */
static void sweep_entry(struct mst__kv *kv, struct mst__kv_entry *entry, uint64_t end)
{
    if (entry->block != NULL) {
        kv->steps += mst__kv_steps_of(entry->block->u.capacity);
        mst__kv_entry_delete(kv, entry);
    }
    while (entry->queue.count > 0 && kv->steps < end) {
        kv->steps += 1 + mst__kv_steps_of(entry->queue.first->size);
        mst__kv_queue_drop(kv, entry);
    }
}

bool mst__kv_sweep(struct mst__kv *kv, uint64_t steps, mst__kv_is_dead_fn *is_dead, void *arg)
{
    uint64_t end = kv->steps + steps;
    struct mst__kv_entry *entry;
    MST_ASSERT(mst__buf_size(&kv->notices.buf) == 0); /* all were taken */
    while (kv->steps < end && (entry = kv->sweep_next) != NULL) {
        kv->steps++;
        if ((entry->block != NULL || entry->queue.count > 0) && is_dead(arg, mst__map_key(entry))) {
            sweep_entry(kv, entry, end);
            if (entry->queue.count > 0) {
                break; /* continued in the next part */
            }
        }
        kv->sweep_next = mst__map_next(entry);
        mst__kv_entry_tidy(kv, entry);
    }
    return kv->sweep_next != NULL;
}
