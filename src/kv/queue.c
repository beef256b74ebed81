/* kv/queue.c - first-in first-out queues, one per key, separate from the key's value. */
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/mem.h"
#include "kv/entry.h"

int mst__kv_queue_push(struct mst__kv *kv, const struct mst__command *command)
{
    struct mst__kv_entry *entry = NULL;
    int rv = mst__kv_entry_obtain(kv, command->key, &entry);
    if (rv != 0) {
        return rv;
    }
    struct mst__kv_block *item = NULL;
    rv = mst__kv_block_new(kv, command->value.size, &item);
    if (rv != 0) {
        mst__kv_entry_tidy(kv, entry);
        return rv;
    }
    item->u.next = NULL;
    item->size = (uint32_t)command->value.size;
    if (item->size > 0) {
        memcpy(item->bytes, command->value.data, item->size);
    }
    struct mst__kv_queue *queue = &entry->queue;
    if (queue->last == NULL) {
        queue->first = item;
    } else {
        queue->last->u.next = item;
    }
    queue->last = item;
    queue->count++;
    mst__kv_wake_one(kv, entry);
    return 0;
}

/* Take the first item, which exists, out of @entry's queue. The caller holds it. */
static struct mst__kv_block *queue_take(struct mst__kv_entry *entry)
{
    struct mst__kv_queue *queue = &entry->queue;
    struct mst__kv_block *item = queue->first;
    MST_ASSERT(item != NULL);
    MST_ASSERT(queue->count > 0);
    queue->first = item->u.next;
    if (queue->first == NULL) {
        queue->last = NULL;
    }
    queue->count--;
    MST_ASSERT((queue->count == 0) == (queue->first == NULL));
    item->u.capacity = item->size;
    return item;
}

void mst__kv_queue_drop(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    mst__kv_release(kv, queue_take(entry));
}

void mst__kv_queue_pop(struct mst__kv *kv,
                       const struct mst__command *command,
                       struct mst__reply *ret_reply)
{
    struct mst__kv_entry *entry = mst__map_get(&kv->map, command->key);
    *ret_reply = (struct mst__reply){.kind = MST_REPLY_POP, .number = 0};
    if (entry == NULL || entry->queue.count == 0) {
        return;
    }
    ret_reply->number = (int64_t)entry->queue.count;
    struct mst__kv_block *item = queue_take(entry);
    ret_reply->bytes = mst_bytes_of(item->bytes, item->size);
    ret_reply->shared = item->size >= MST_SHARED_SIZE_MIN ? item : NULL;
    /* The reply borrows the bytes, which live until the next command. */
    MST_ASSERT(kv->popped == NULL);
    kv->popped = item;
    mst__kv_entry_tidy(kv, entry);
}

int64_t mst__kv_queue_count(const struct mst__kv *kv, struct mst_bytes key)
{
    const struct mst__kv_entry *entry = mst__map_get(&kv->map, key);
    return entry == NULL ? 0 : (int64_t)entry->queue.count;
}

void mst__kv_queue_free(struct mst__kv *kv, struct mst__kv_queue *queue)
{
    while (queue->first != NULL) {
        struct mst__kv_block *item = queue->first;
        queue->first = item->u.next;
        mst__slab_free(&kv->slabs, item, sizeof *item + item->size);
    }
}
