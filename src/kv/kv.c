/* kv/kv.c - the engine: entries, memory, and one function per operation.
 *
 * Invariants: an entry in the map has a value, a queue item, a waiting client, a promise or a
 * watcher; keys_count is the number of entries with a value; memory_used is within the limit. */
#include "kv/kv.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "kv/entry.h"

/* The minimum capacity of a value: a counter can grow, and a barrier can count down, without a new
 * block. */
#define VALUE_CAPACITY_MIN ((size_t)24)
static_assert(VALUE_CAPACITY_MIN >= MST_NUMBER_SIZE, "every value's block holds a number");

void mst__kv_client_init(struct mst__kv_client *client)
{
    *client = (struct mst__kv_client){0};
}

void mst__kv_init(struct mst__kv *kv,
                  const struct mst__kv_limits *limits,
                  const uint8_t hash_key[MST_SIPHASH_KEY_SIZE])
{
    *kv = (struct mst__kv){.limits = *limits};
    mst__map_init_in(&kv->map, sizeof(struct mst__kv_entry), hash_key, &kv->slabs);
    kv->items.charged = MST_KEPT_SIZE_MAX;
    kv->notices.charged = MST_KEPT_SIZE_MAX;
    mst__buf_init(&kv->items.buf, limits->reply_max);
    mst__buf_init(&kv->notices.buf, MST_BACKLOG_SIZE_MAX + 4 * limits->value_max);
}

/* --- entries --- */

bool mst__kv_has_room(struct mst__kv *kv, size_t size)
{
    MST_ASSERT(kv->memory_used <= kv->limits.memory_max);
    if (MST_LIKELY(size <= mst__kv_room(kv))) {
        return true;
    }
    kv->memory_lacked = size;
    return false;
}

bool mst__kv_charge(struct mst__kv *kv, size_t size)
{
    if (!mst__kv_has_room(kv, size)) {
        return false;
    }
    kv->memory_used += size;
    return true;
}

void mst__kv_discharge(struct mst__kv *kv, size_t size)
{
    MST_ASSERT(kv->memory_used >= size);
    kv->memory_used -= size;
    kv->memory_freed += size;
}

int mst__kv_buf_charge(struct mst__kv *kv, struct mst__kv_buf *buf)
{
    size_t growth = buf->buf.capacity - buf->charged;
    if (!mst__kv_charge(kv, growth)) {
        return MST_ELIMIT;
    }
    buf->charged += growth;
    return 0;
}

void mst__kv_buf_close(struct mst__kv *kv, struct mst__kv_buf *buf)
{
    mst__buf_close(&buf->buf);
    mst__kv_discharge(kv, buf->charged - MST_KEPT_SIZE_MAX);
    buf->charged = MST_KEPT_SIZE_MAX;
}

static int entry_make(struct mst__kv *kv,
                      struct mst_bytes key,
                      unsigned hash,
                      struct mst__kv_entry **ret_entry)
{
    size_t cost = mst__map_cost(&kv->map, key.size);
    if (!mst__kv_has_room(kv, cost)) {
        return MST_ELIMIT;
    }
    kv->steps++;
    *ret_entry = mst__map_add_found(&kv->map, key, hash);
    if (*ret_entry == NULL) {
        return MST_ENOMEM;
    }
    kv->memory_used += cost;
    return 0;
}

int mst__kv_entry_obtain(struct mst__kv *kv, struct mst_bytes key, struct mst__kv_entry **ret_entry)
{
    unsigned hash;
    *ret_entry = mst__map_find(&kv->map, key, &hash);
    return MST_LIKELY(*ret_entry != NULL) ? 0 : entry_make(kv, key, hash, ret_entry);
}

void mst__kv_entry_tidy(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    if (entry->block != NULL || mst__kv_entry_is_waited_for(entry) || entry->queue.count > 0 ||
        entry->queue.promised_count > 0 || entry->watches != NULL || entry->pins > 0) {
        return;
    }
    kv->steps++;
    mst__kv_discharge(kv, mst__map_cost(&kv->map, mst__map_key(entry).size));
    if (kv->sweep_next == entry) {
        kv->sweep_next = mst__map_next(entry);
    }
    if (kv->compact_next == entry) {
        kv->compact_next = mst__map_next(entry);
    }
    mst__map_remove(&kv->map, entry);
}

static size_t block_cost(size_t capacity)
{
    return mst__slab_cost(sizeof(struct mst__kv_block) + capacity);
}

static size_t value_capacity(size_t size)
{
    return size < VALUE_CAPACITY_MIN ? VALUE_CAPACITY_MIN : size;
}

int mst__kv_block_new(struct mst__kv *kv, size_t capacity, struct mst__kv_block **ret_block)
{
    if (capacity > UINT32_MAX || !mst__kv_has_room(kv, block_cost(capacity))) {
        return MST_ELIMIT;
    }
    struct mst__kv_block *block = mst__slab_malloc(&kv->slabs, sizeof *block + capacity);
    if (block == NULL) {
        return MST_ENOMEM;
    }
    block->u.capacity = capacity;
    block->size = 0;
    block->holders = 1;
    kv->memory_used += block_cost(capacity);
    *ret_block = block;
    return 0;
}

static void block_free(struct mst__kv *kv, struct mst__kv_block *block)
{
    kv->steps += mst__kv_steps_of(block->u.capacity) / 4; /* a large block has its own pages */
    mst__kv_discharge(kv, block_cost(block->u.capacity));
    mst__slab_free(&kv->slabs, block, sizeof *block + block->u.capacity);
}

static void block_release(struct mst__kv *kv, struct mst__kv_block *block)
{
    MST_ASSERT(block->holders > 0);
    block->holders--;
    if (block->holders == 0) {
        block_free(kv, block);
    }
}

void mst__kv_hold(struct mst__kv *kv, void *shared)
{
    (void)kv; /* symmetric to the other direction */
    struct mst__kv_block *block = shared;
    MST_ASSERT(block->holders < UINT32_MAX);
    block->holders++;
}

void *mst__kv_share(struct mst__kv *kv, struct mst_bytes bytes, struct mst_bytes *ret_bytes)
{
    struct mst__kv_block *block = NULL;
    if (mst__kv_block_new(kv, bytes.size, &block) != 0) {
        return NULL;
    }
    kv->steps += mst__kv_steps_of(bytes.size);
    memcpy(block->bytes, bytes.data, bytes.size);
    *ret_bytes = mst_bytes_of(block->bytes, bytes.size);
    return block;
}

void mst__kv_release(struct mst__kv *kv, void *shared)
{
    block_release(kv, shared);
}

/* Whether a value of @size bytes may be written to @block. */
static bool block_will_do(const struct mst__kv_block *block, size_t size)
{
    return block != NULL && size <= block->u.capacity && block->holders == 1;
}

int mst__kv_entry_room(struct mst__kv *kv,
                       const struct mst__kv_entry *entry,
                       size_t size,
                       struct mst__kv_block **ret_room)
{
    if (MST_LIKELY(entry != NULL && block_will_do(entry->block, size))) {
        *ret_room = entry->block;
        return 0;
    }
    return mst__kv_block_new(kv, value_capacity(size), ret_room);
}

/* The size of the key of @entry in a list. */
static size_t key_item_size(const struct mst__kv_entry *entry)
{
    return sizeof(uint64_t) + mst__map_key(entry).size;
}

static void keys_enter(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    MST_ASSERT(!mst__kv_is_listing(kv));
    struct mst__kv_entry *first = kv->keys == NULL ? entry : kv->keys;
    entry->key_next = first;
    entry->key_prev = kv->keys == NULL ? entry : first->key_prev;
    entry->key_prev->key_next = entry;
    first->key_prev = entry;
    kv->keys = first;
    kv->keys_count++;
    kv->keys_size += key_item_size(entry);
}

static void keys_leave(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    MST_ASSERT(!mst__kv_is_listing(kv));
    MST_ASSERT(kv->keys_count > 0);
    kv->keys_count--;
    kv->keys_size -= key_item_size(entry);
    entry->key_prev->key_next = entry->key_next;
    entry->key_next->key_prev = entry->key_prev;
    if (kv->keys == entry) {
        kv->keys = kv->keys_count == 0 ? NULL : entry->key_next;
    }
}

void mst__kv_entry_put(struct mst__kv *kv,
                       struct mst__kv_entry *entry,
                       struct mst__kv_block *room,
                       struct mst_bytes value)
{
    MST_ASSERT(value.size <= room->u.capacity);
    MST_ASSERT(room->holders == 1);
    if (MST_UNLIKELY(entry->watches != NULL)) {
        mst__kv_notify(kv, entry, entry->block != NULL ? MST_KV_UPDATED : MST_KV_CREATED, value);
    }
    if (value.size > 0 && value.data != room->bytes) {
        memcpy(room->bytes, value.data, value.size);
    }
    room->size = (uint32_t)value.size;
    entry->fingerprint_is_old = true;
    if (room == entry->block) {
        return;
    }
    if (entry->block != NULL) {
        block_release(kv, entry->block);
    } else {
        keys_enter(kv, entry);
    }
    entry->block = room;
}

void mst__kv_entry_drop(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    MST_ASSERT(entry->block != NULL);
    if (MST_UNLIKELY(entry->watches != NULL)) {
        mst__kv_notify(kv, entry, MST_KV_DELETED, mst_bytes_of(NULL, 0));
    }
    block_release(kv, entry->block);
    entry->block = NULL;
    entry->made_by_barrier = false;
    entry->fingerprint_is_old = true;
    keys_leave(kv, entry);
}

static void forget_popped(struct mst__kv *kv)
{
    if (MST_UNLIKELY(kv->popped != NULL)) {
        block_release(kv, kv->popped);
        kv->popped = NULL;
    }
}

void mst__kv_close(struct mst__kv *kv)
{
    for (struct mst__kv_entry *entry = mst__map_first(&kv->map); entry != NULL;
         entry = mst__map_next(entry)) {
        MST_ASSERT(!mst__kv_entry_is_waited_for(entry));
        mst__kv_queue_free(kv, &entry->queue);
        if (entry->block != NULL) {
            block_release(kv, entry->block);
        }
    }
    mst__map_close(&kv->map);
    mst__kv_buf_close(kv, &kv->items);
    mst__kv_buf_close(kv, &kv->notices);
    forget_popped(kv);
    mst__slabs_close(&kv->slabs);
}

int mst__kv_entry_number(const struct mst__kv_entry *entry, int64_t *ret_number)
{
    *ret_number = 0;
    if (entry->block != NULL && !mst__number_parse_prefix(mst__kv_entry_value(entry), ret_number)) {
        return MST_ETYPE;
    }
    return 0;
}

/* --- operations --- */

/* Free the room that the value of @entry does not need. The value has just been written, so it is
 * not shared. */
static void entry_fit(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    struct mst__kv_block *block = entry->block;
    size_t before = block->u.capacity;
    size_t capacity = value_capacity(block->size);
    block = mst__slab_realloc(&kv->slabs, block, sizeof *block + before, sizeof *block + capacity);
    if (block == NULL) {
        return; /* keep the larger block */
    }
    block->u.capacity = capacity;
    entry->block = block;
    mst__kv_discharge(kv, block_cost(before) - block_cost(capacity));
}

/* The end of every write except those of BARRIER: the count no longer belongs to the barrier. */
static void entry_written(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    entry->writes++;
    entry->made_by_barrier = false;
    /* A small value in place of a large one frees the memory. */
    if (MST_UNLIKELY(entry->block->u.capacity >= 1024 &&
                     entry->block->size <= entry->block->u.capacity / 4)) {
        entry_fit(kv, entry);
    }
}

static void entry_written_wake(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    entry_written(kv, entry);
    if (MST_UNLIKELY(mst__kv_entry_is_waited_for(entry))) {
        mst__kv_wake_all(kv, entry);
    }
}

/* Find or create the entry under @key and get room for a value of @size bytes. */
static int entry_prepare(struct mst__kv *kv,
                         struct mst_bytes key,
                         size_t size,
                         struct mst__kv_entry **ret_entry,
                         struct mst__kv_block **ret_room)
{
    unsigned hash;
    struct mst__kv_entry *entry = mst__map_find(&kv->map, key, &hash);
    *ret_entry = entry;
    if (MST_LIKELY(entry != NULL && block_will_do(entry->block, size))) {
        *ret_room = entry->block;
        return 0;
    }
    int rv = entry == NULL ? entry_make(kv, key, hash, ret_entry) : 0;
    if (rv != 0) {
        return rv;
    }
    rv = mst__kv_entry_room(kv, *ret_entry, size, ret_room);
    if (rv != 0) {
        mst__kv_entry_tidy(kv, *ret_entry);
    }
    return rv;
}

static int kv_set(struct mst__kv *kv, struct mst_bytes key, struct mst_bytes value)
{
    struct mst__kv_entry *entry = NULL;
    struct mst__kv_block *room = NULL;
    int rv = entry_prepare(kv, key, value.size, &entry, &room);
    if (rv != 0) {
        return rv;
    }
    mst__kv_entry_put(kv, entry, room, value);
    entry_written_wake(kv, entry);
    return 0;
}

/* The value of @entry as a reply. */
static void reply_value(struct mst__reply *reply, const struct mst__kv_entry *entry)
{
    reply->bytes = mst__kv_entry_value(entry);
    reply->shared = reply->bytes.size >= MST_SHARED_SIZE_MIN ? entry->block : NULL;
}

static void kv_get(const struct mst__kv *kv, struct mst_bytes key, struct mst__reply *ret_reply)
{
    const struct mst__kv_entry *entry = mst__map_get(&kv->map, key);
    bool found = entry != NULL && entry->block != NULL;
    /* As PyTorch's default server, answer an absent key with an empty value. */
    ret_reply->kind = MST_REPLY_BYTES;
    ret_reply->found = found;
    if (found) {
        reply_value(ret_reply, entry);
    }
}

static int kv_add(struct mst__kv *kv, const struct mst__command *command, struct mst__reply *reply)
{
    struct mst__kv_entry *entry = NULL;
    int rv = mst__kv_entry_obtain(kv, command->key, &entry);
    if (rv != 0) {
        return rv;
    }
    int64_t number = 0;
    struct mst__kv_block *room = NULL;
    rv = mst__kv_entry_number(entry, &number);
    if (rv == 0) {
        rv = mst__kv_entry_room(kv, entry, MST_NUMBER_SIZE, &room);
    }
    if (rv != 0) {
        mst__kv_entry_tidy(kv, entry);
        return rv;
    }
    /* Overflow wraps, as with every PyTorch server. */
    number = (int64_t)((uint64_t)number + (uint64_t)command->number);
    char text[MST_NUMBER_SIZE];
    mst__kv_entry_put(kv, entry, room, mst_bytes_of(text, mst__number_format(number, text)));
    entry_written_wake(kv, entry);
    reply->kind = MST_REPLY_NUMBER;
    reply->number = number;
    return 0;
}

static int kv_compare_set(struct mst__kv *kv,
                          const struct mst__command *command,
                          struct mst__reply *reply)
{
    struct mst__kv_entry *entry = mst__map_get(&kv->map, command->key);
    bool found = entry != NULL && entry->block != NULL;
    reply->kind = MST_REPLY_BYTES;
    reply->found = found;
    bool matches = found ? mst__bytes_equal(mst__kv_entry_value(entry), command->expected)
                         : command->expected.size == 0;
    if (!matches) {
        /* For an absent key, the answer is the expected value: PyTorch's clients rely on it. */
        reply->bytes = command->expected;
        if (found) {
            reply_value(reply, entry);
        }
        return 0;
    }
    struct mst__kv_block *room = NULL;
    int rv = found ? mst__kv_entry_room(kv, entry, command->value.size, &room)
                   : entry_prepare(kv, command->key, command->value.size, &entry, &room);
    if (rv != 0) {
        return rv;
    }
    mst__kv_entry_put(kv, entry, room, command->value);
    entry_written(kv, entry);
    if (!found) {
        mst__kv_wake_all(kv, entry);
    } else {
        mst__kv_wake_changes(kv, entry);
    }
    reply->bytes = command->value;
    return 0;
}

/* Spare room for a value that grows from @old_size to @size bytes, so that a value that is built
 * piece by piece is not copied for every piece; if memory is short, half of the rest. */
static size_t append_spare(const struct mst__kv *kv, size_t old_size, size_t size)
{
    size_t left = mst__kv_room(kv);
    size_t spare = left > block_cost(size) ? (left - block_cost(size)) / 2 : 0;
    spare = spare > old_size / 2 ? old_size / 2 : spare;
    return spare > kv->limits.value_max - size ? kv->limits.value_max - size : spare;
}

static int kv_append(struct mst__kv *kv, const struct mst__command *command)
{
    struct mst__kv_entry *present = mst__map_get(&kv->map, command->key);
    size_t old_size = present == NULL ? 0 : mst__kv_entry_value(present).size;
    if (command->value.size > kv->limits.value_max ||
        old_size > kv->limits.value_max - command->value.size) {
        return MST_ELIMIT;
    }
    size_t size = old_size + command->value.size;
    struct mst__kv_entry *entry = NULL;
    struct mst__kv_block *room = NULL;
    if (old_size > 0 && block_will_do(present->block, size)) {
        entry = present;
        room = present->block;
    } else {
        int rv =
            entry_prepare(kv, command->key, size + append_spare(kv, old_size, size), &entry, &room);
        if (rv != 0) {
            return rv;
        }
    }
    MST_ASSERT(room != NULL);
    if (old_size > 0 && room != entry->block) {
        kv->steps += mst__kv_steps_of(old_size);
        memcpy(room->bytes, entry->block->bytes, old_size);
    }
    if (command->value.size > 0) {
        memcpy(room->bytes + old_size, command->value.data, command->value.size);
    }
    mst__kv_entry_put(kv, entry, room, mst_bytes_of(room->bytes, size));
    entry_written_wake(kv, entry);
    return 0;
}

void mst__kv_entry_delete(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    mst__kv_entry_drop(kv, entry);
    entry->writes++;
    mst__kv_wake_changes(kv, entry);
}

static int64_t kv_delete(struct mst__kv *kv, struct mst_bytes key)
{
    struct mst__kv_entry *entry = mst__map_get(&kv->map, key);
    if (entry == NULL || entry->block == NULL) {
        return 0;
    }
    mst__kv_entry_delete(kv, entry);
    mst__kv_entry_tidy(kv, entry);
    return 1;
}

/* Whether this server pretends to have @key. */
static bool is_announced(const struct mst__kv *kv, struct mst_bytes key)
{
    const struct mst_bytes epochs = mst_bytes_str(MST_KV_ANNOUNCEMENT_EPOCH ".");
    int64_t epoch = 0;
    if (!kv->announces) {
        return false;
    }
    if (mst__bytes_start_with(key, epochs)) {
        return mst__number_parse(mst__bytes_skip(key, epochs.size), 1, INT64_MAX, &epoch) &&
               (uint64_t)epoch >= kv->epoch_first && (uint64_t)epoch < kv->epoch_end;
    }
    return mst__bytes_equal(key, mst_bytes_str(MST_KV_ANNOUNCEMENT)) ||
           mst__bytes_equal(key, mst_bytes_str(MST_KV_ANNOUNCEMENT_JOB)) ||
           mst__bytes_equal(key, mst_bytes_str(MST_KV_ANNOUNCEMENT_BARRIER)) ||
           mst__bytes_equal(key, mst_bytes_str(MST_KV_ANNOUNCEMENT_EPOCH)) ||
           mst__bytes_equal(key, mst_bytes_str(MST_KV_ANNOUNCEMENT_REFUSAL));
}

static enum mst__status kv_check(const struct mst__kv *kv,
                                 struct mst__kv_client *client,
                                 const struct mst__command *command)
{
    struct mst_bytes items = command->items;
    struct mst_bytes key;
    for (uint64_t i = 0; i < command->count && mst__items_next(&items, &key); i++) {
        if (!mst__kv_entry_is_ready(mst__map_get(&kv->map, key))) {
            if (command->count != 1 || !is_announced(kv, key)) {
                return MST_STATUS_NOT_READY;
            }
            client->asks_why = client->asks_why ||
                               mst__bytes_equal(key, mst_bytes_str(MST_KV_ANNOUNCEMENT_REFUSAL));
            return MST_STATUS_READY;
        }
    }
    return MST_STATUS_READY;
}

static int kv_multi_get(struct mst__kv *kv,
                        const struct mst__command *command,
                        struct mst__reply *ret_reply)
{
    mst__buf_clear(&kv->items.buf);
    struct mst_bytes items = command->items;
    struct mst_bytes key;
    for (uint64_t i = 0; i < command->count && mst__items_next(&items, &key); i++) {
        const struct mst__kv_entry *entry = mst__map_get(&kv->map, key);
        struct mst_bytes value = entry == NULL ? mst_bytes_of(NULL, 0) : mst__kv_entry_value(entry);
        int rv = mst__kv_buf_append_str(kv, &kv->items, value);
        if (rv != 0) {
            mst__kv_buf_close(kv, &kv->items);
            return rv;
        }
    }
    kv->steps += mst__kv_steps_of(mst__buf_size(&kv->items.buf));
    *ret_reply =
        (struct mst__reply){.kind = MST_REPLY_ITEMS, .bytes = mst__buf_bytes(&kv->items.buf)};
    return 0;
}

int mst__kv_list_next(struct mst__kv *kv, struct mst_bytes *ret_items)
{
    MST_ASSERT(mst__kv_is_listing(kv));
    size_t part_max = kv->limits.part_max == 0 ? SIZE_MAX : kv->limits.part_max;
    size_t left = kv->list_left;
    mst__buf_clear(&kv->items.buf);
    while (left > 0 && mst__buf_size(&kv->items.buf) < part_max) {
        int rv = mst__kv_buf_append_str(kv, &kv->items, mst__map_key(kv->list_next));
        if (rv != 0) {
            mst__kv_buf_close(kv, &kv->items);
            mst__kv_list_end(kv);
            return rv;
        }
        kv->list_next = kv->list_next->key_next;
        left--;
    }
    kv->steps += kv->list_left - left + mst__kv_steps_of(mst__buf_size(&kv->items.buf));
    kv->list_left = left;
    if (left == 0) {
        mst__kv_list_end(kv);
    }
    *ret_items = mst__buf_bytes(&kv->items.buf);
    return 0;
}

void mst__kv_list_end(struct mst__kv *kv)
{
    kv->list_client = NULL;
    kv->list_next = NULL;
    kv->list_left = 0;
}

static int kv_list_keys(struct mst__kv *kv,
                        struct mst__kv_client *client,
                        struct mst__reply *ret_reply)
{
    if (kv->keys_size > kv->limits.reply_max) {
        return MST_ELIMIT;
    }
    kv->list_client = client;
    kv->list_next = kv->keys;
    kv->list_left = kv->keys_count;
    *ret_reply = (struct mst__reply){.kind = MST_REPLY_LIST, .number = (int64_t)kv->keys_count};
    return mst__kv_list_next(kv, &ret_reply->bytes);
}

/* A pair of MULTI_SET that is ready to be stored. Its entry is pinned. */
struct multi_set_pair {
    struct mst__kv_entry *entry;
    struct mst__kv_block *room; /* NULL = use the entry's own block */
    struct mst_bytes value;
};

/* The first half of MULTI_SET: everything that can fail. Existing values stay; on error, new
 * entries are removed. */
static int multi_set_prepare(struct mst__kv *kv,
                             const struct mst__command *command,
                             struct multi_set_pair *pairs)
{
    struct mst_bytes items = command->items;
    uint64_t done = 0;
    int rv = 0;
    while (rv == 0 && done < command->count) {
        struct mst_bytes key = {0};
        struct multi_set_pair *pair = &pairs[done];
        bool whole = mst__items_next(&items, &key) && mst__items_next(&items, &pair->value);
        MST_ASSERT(whole); /* the reader has counted them */
        rv = entry_prepare(kv, key, pair->value.size, &pair->entry, &pair->room);
        if (rv == 0) {
            pair->room = pair->room == pair->entry->block ? NULL : pair->room;
            pair->entry->pins++;
            done++;
        }
    }
    while (rv != 0 && done > 0) {
        const struct multi_set_pair *pair = &pairs[--done];
        if (pair->room != NULL) {
            block_release(kv, pair->room);
        }
        pair->entry->pins--;
        mst__kv_entry_tidy(kv, pair->entry);
    }
    return rv;
}

/* All or nothing: other clients never see a part of it. */
static int kv_multi_set(struct mst__kv *kv, const struct mst__command *command)
{
    struct multi_set_pair *pairs = NULL;
    size_t size = (size_t)command->count * sizeof *pairs;
    if (size == 0) {
        return 0;
    }
    if (!mst__kv_charge(kv, mst__slab_cost(size))) {
        return MST_ELIMIT;
    }
    pairs = mst__malloc(size);
    int rv = pairs == NULL ? MST_ENOMEM : multi_set_prepare(kv, command, pairs);
    for (uint64_t i = 0; rv == 0 && i < command->count; i++) {
        /* A repeated key may have another, larger block by now. */
        struct mst__kv_block *room = pairs[i].room == NULL ? pairs[i].entry->block : pairs[i].room;
        mst__kv_entry_put(kv, pairs[i].entry, room, pairs[i].value);
        pairs[i].entry->pins--;
    }
    /* Wake clients only now, so that a client that waits for one of the keys finds all of them. */
    for (uint64_t i = 0; rv == 0 && i < command->count; i++) {
        entry_written_wake(kv, pairs[i].entry);
    }
    mst__free(pairs);
    mst__kv_discharge(kv, mst__slab_cost(size));
    return rv;
}

static int kv_dispatch(struct mst__kv *kv,
                       struct mst__kv_client *client,
                       const struct mst__command *command,
                       struct mst__reply *reply)
{
    *reply = (struct mst__reply){.kind = MST_REPLY_NONE};
    switch (command->op) {
        case MST_OP_SET:
            return kv_set(kv, command->key, command->value);
        case MST_OP_COMPARE_SET:
            return kv_compare_set(kv, command, reply);
        case MST_OP_GET:
            kv_get(kv, command->key, reply);
            return 0;
        case MST_OP_ADD:
            return kv_add(kv, command, reply);
        case MST_OP_CHECK:
            reply->kind = MST_REPLY_STATUS;
            reply->status = kv_check(kv, client, command);
            return 0;
        case MST_OP_WAIT:
            return mst__kv_wait(kv, client, command, reply);
        case MST_OP_NUM_KEYS:
            *reply =
                (struct mst__reply){.kind = MST_REPLY_NUMBER, .number = (int64_t)kv->keys_count};
            return 0;
        case MST_OP_WATCH:
            *reply = (struct mst__reply){.kind = MST_REPLY_STATUS, .status = MST_STATUS_WATCHING};
            return mst__kv_watch(kv, client, command->key);
        case MST_OP_DELETE:
            *reply = (struct mst__reply){.kind = MST_REPLY_NUMBER,
                                         .number = kv_delete(kv, command->key)};
            return 0;
        case MST_OP_APPEND:
            return kv_append(kv, command);
        case MST_OP_MULTI_GET:
            return kv_multi_get(kv, command, reply);
        case MST_OP_MULTI_SET:
            return kv_multi_set(kv, command);
        case MST_OP_CANCEL_WAIT:
            mst__kv_cancel_wait(kv, client);
            *reply =
                (struct mst__reply){.kind = MST_REPLY_STATUS, .status = MST_STATUS_WAIT_CANCELED};
            return 0;
        case MST_OP_PING:
            *reply = (struct mst__reply){.kind = MST_REPLY_ECHO, .number = command->number};
            return 0;
        case MST_OP_QUEUE_PUSH:
            return mst__kv_queue_push(kv, command);
        case MST_OP_QUEUE_POP:
            mst__kv_queue_pop(kv, command, reply);
            return 0;
        case MST_OP_QUEUE_LEN:
            *reply = (struct mst__reply){.kind = MST_REPLY_NUMBER,
                                         .number = mst__kv_queue_count(kv, command->key)};
            return 0;
        case MST_OP_LIST_KEYS:
            return kv_list_keys(kv, client, reply);
        case MST_OP_BARRIER:
            return mst__kv_barrier(kv, client, command, reply);
        case MST_OP_WAIT_CHANGE:
            break;
    }
    MST_ASSERT(command->op == MST_OP_WAIT_CHANGE);
    return mst__kv_wait_change(kv, client, command, reply);
}

/* Free a large reply, so that it does not cost memory for ever; no reply borrows from it any
 * more. */
static void buf_trim(struct mst__kv *kv, struct mst__kv_buf *buf)
{
    if (MST_UNLIKELY(buf->buf.capacity > MST_KEPT_SIZE_MAX)) {
        mst__kv_buf_close(kv, buf);
    }
}

int mst__kv_apply(struct mst__kv *kv,
                  struct mst__kv_client *client,
                  const struct mst__command *command,
                  struct mst__reply *ret_reply)
{
    buf_trim(kv, &kv->items);
    MST_ASSERT(!mst__kv_is_listing(kv));
    MST_ASSERT(mst__buf_size(&kv->notices.buf) == 0); /* all were taken */
    buf_trim(kv, &kv->notices);
    forget_popped(kv);
    kv->steps += 1 + command->count +
                 mst__kv_steps_of(command->key.size + command->value.size + command->expected.size +
                                  command->items.size);
    bool was_promised = client->promised != NULL;
    int rv = kv_dispatch(kv, client, command, ret_reply);
    if (MST_UNLIKELY(was_promised && rv == 0)) {
        mst__kv_settle_promise(kv, client);
    }
    return rv;
}

static void released_leave(struct mst__kv *kv, struct mst__kv_client *client)
{
    MST_ASSERT(client->released);
    kv->steps++;
    if (client->released_prev == NULL) {
        kv->released_first = client->released_next;
    } else {
        client->released_prev->released_next = client->released_next;
    }
    if (client->released_next == NULL) {
        kv->released_last = client->released_prev;
    } else {
        client->released_next->released_prev = client->released_prev;
    }
    client->released = false;
}

void mst__kv_client_close(struct mst__kv *kv, struct mst__kv_client *client)
{
    forget_popped(kv);
    if (kv->list_client == client) {
        mst__kv_list_end(kv);
    }
    /* Leaving a barrier changes a key; a closing client needs no notice of that. */
    mst__kv_unwatch_all(kv, client);
    mst__kv_cancel_wait(kv, client);
    if (client->promised != NULL) {
        mst__kv_settle_promise(kv, client);
    }
    if (client->released) {
        released_leave(kv, client);
    }
}

struct mst__kv_client *mst__kv_next_released(struct mst__kv *kv)
{
    struct mst__kv_client *client = kv->released_first;
    if (client != NULL) {
        released_leave(kv, client);
    }
    return client;
}
