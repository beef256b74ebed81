/* kv/compact.c - moves keys and values together, a part at a time.
 *
 * Freed allocations leave holes, and a slab gives its pages back only when it is empty. A walk over
 * all entries moves allocations out of mostly empty slabs. Entries that are referenced stay in
 * place, and so do values that are being sent: they are few, or end soon. */
#include <string.h>

#include "base/assert.h"
#include "kv/entry.h"

void mst__kv_compact_begin(struct mst__kv *kv)
{
    kv->compact_next = mst__map_first(&kv->map);
}

static void compact_value(struct mst__kv *kv, struct mst__kv_entry *entry, bool moves_all)
{
    struct mst__kv_block *block = entry->block;
    if (block == NULL || block->holders > 1) {
        return;
    }
    size_t size = sizeof *block + block->u.capacity;
    if (!moves_all && !mst__slab_is_sparse(&kv->slabs, block, size)) {
        return;
    }
    struct mst__kv_block *moved = mst__slab_malloc(&kv->slabs, size);
    if (moved != NULL) {
        kv->steps += 1 + mst__kv_steps_of(block->size);
        memcpy(moved, block, sizeof *block + block->size);
        entry->block = moved;
        mst__slab_free(&kv->slabs, block, size);
    }
}

/* Whether only the engine's own lists refer to @entry. */
static bool entry_can_move(const struct mst__kv_entry *entry)
{
    return !mst__kv_entry_is_waited_for(entry) && entry->watches == NULL &&
           entry->queue.promised_count == 0 && entry->pins == 0;
}

static void entry_move(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    bool is_alone = entry->key_next == entry;
    struct mst__kv_entry *moved = mst__map_move(&kv->map, entry);
    if (moved == NULL) {
        return;
    }
    kv->steps++;
    if (moved->block != NULL) {
        moved->key_next = is_alone ? moved : moved->key_next;
        moved->key_prev = is_alone ? moved : moved->key_prev;
        moved->key_next->key_prev = moved;
        moved->key_prev->key_next = moved;
        kv->keys = kv->keys == entry ? moved : kv->keys;
    }
    kv->sweep_next = kv->sweep_next == entry ? moved : kv->sweep_next;
}

bool mst__kv_compact(struct mst__kv *kv, uint64_t steps, bool moves_all)
{
    uint64_t end = kv->steps + steps;
    struct mst__kv_entry *entry;
    MST_ASSERT(!mst__kv_is_busy(kv));
    while (kv->steps < end && (entry = kv->compact_next) != NULL) {
        kv->steps++;
        kv->compact_next = mst__map_next(entry);
        compact_value(kv, entry, moves_all);
        if (entry_can_move(entry) && (moves_all || mst__map_is_sparse(&kv->map, entry))) {
            entry_move(kv, entry);
        }
    }
    return kv->compact_next != NULL;
}
