/* kv/sweep.c - removing keys that nobody needs any more, some at a time.
 *
 * There is no index of keys by prefix: it would cost every key memory and time. A sweep walks over
 * all entries instead, in the order of their making, so that it also comes by those that are made
 * while it is under way; the caller says how far it may go at once. */
#include "base/assert.h"
#include "base/limits.h"
#include "base/mem.h"
#include "kv/entry.h"

/* Memory of this size costs as much to give back as an entry does to look at. */
#define STEP_SIZE MST_KIB(4)

void mst__kv_sweep_begin(struct mst__kv *kv)
{
    kv->sweep_next = mst__map_first(&kv->map);
}

/* Give the items of @entry's queue back while @steps last. Returns how many are left of them. */
static size_t sweep_queue(struct mst__kv *kv, struct mst__kv_entry *entry, size_t steps)
{
    while (entry->queue.count > 0 && steps > 0) {
        size_t cost = 1 + entry->queue.first->size / STEP_SIZE;
        mst__kv_queue_drop(kv, entry);
        steps -= cost < steps ? cost : steps;
    }
    return steps;
}

/* @entry is dead: give back all that @steps allow. Returns how many are left of them. */
static size_t sweep_entry(struct mst__kv *kv, struct mst__kv_entry *entry, size_t steps)
{
    if (entry->block != NULL) {
        size_t cost = entry->changes_count + entry->block->u.capacity / STEP_SIZE;
        mst__kv_entry_delete(kv, entry);
        steps -= cost < steps ? cost : steps;
    }
    return sweep_queue(kv, entry, steps);
}

bool mst__kv_sweep(struct mst__kv *kv, size_t steps, mst__kv_is_dead_fn *is_dead, void *arg)
{
    struct mst__kv_entry *entry;
    MST_ASSERT(mst__buf_size(&kv->notices) == 0); /* all were taken */
    while (steps > 0 && (entry = kv->sweep_next) != NULL) {
        steps--;
        if ((entry->block != NULL || entry->queue.count > 0) && is_dead(arg, mst__map_key(entry))) {
            steps = sweep_entry(kv, entry, steps);
            if (entry->queue.count > 0) {
                break; /* to be gone on with */
            }
        }
        kv->sweep_next = mst__map_next(entry);
        mst__kv_entry_tidy(kv, entry);
    }
    return kv->sweep_next != NULL;
}
