/* kv/kv.c - the engine: entries, memory, and one function per operation.
 *
 * Invariants: an entry in the map has a value, a queue item, a waiting client, a promise or a
 * watcher; keys_count is the number of entries with a value; memory_used keeps to the limit. */
#include "kv/kv.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "kv/entry.h"

/* Memory of finished replies and notices that is kept for the next ones. */
#define KV_KEPT_MAX MST_MIB(1)

void mst__kv_client_init(struct mst__kv_client *client)
{
    *client = (struct mst__kv_client){0};
}

void mst__kv_init(struct mst__kv *kv,
                  const struct mst__kv_limits *limits,
                  const uint8_t hash_key[MST_SIPHASH_KEY_SIZE])
{
    *kv = (struct mst__kv){.limits = *limits};
    mst__map_init(&kv->map, sizeof(struct mst__kv_entry), hash_key);
    mst__buf_init(&kv->items, limits->reply_max);
    mst__buf_init(&kv->notices, MST_BACKLOG_SIZE_MAX + 4 * limits->value_max);
}

void mst__kv_close(struct mst__kv *kv)
{
    for (struct mst__kv_entry *entry = mst__map_first(&kv->map); entry != NULL;
         entry = mst__map_next(entry)) {
        MST_ASSERT(entry->waiting_first == NULL);
        mst__kv_queue_free(&entry->queue);
        mst__free(entry->value);
    }
    mst__map_close(&kv->map);
    mst__buf_close(&kv->items);
    mst__buf_close(&kv->notices);
    mst__free(kv->popped);
    kv->popped = NULL;
}

/* --- entries --- */

bool mst__kv_has_room(const struct mst__kv *kv, size_t size)
{
    MST_ASSERT(kv->memory_used <= kv->limits.memory_max);
    return size <= kv->limits.memory_max - kv->memory_used;
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
}

int mst__kv_entry_obtain(struct mst__kv *kv, struct mst_bytes key, struct mst__kv_entry **ret_entry)
{
    struct mst__kv_entry *entry = mst__map_get(&kv->map, key);
    if (entry == NULL) {
        size_t cost = mst__map_overhead(&kv->map) + key.size;
        if (!mst__kv_has_room(kv, cost)) {
            return MST_ELIMIT;
        }
        entry = mst__map_add(&kv->map, key);
        if (entry == NULL) {
            return MST_ENOMEM;
        }
        kv->memory_used += cost;
    }
    *ret_entry = entry;
    return 0;
}

void mst__kv_entry_tidy(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    if (entry->exists || entry->waiting_first != NULL || entry->queue.count > 0 ||
        entry->queue.promised_count > 0 || entry->watches != NULL) {
        return;
    }
    size_t cost = mst__map_overhead(&kv->map) + mst__map_key(entry).size + entry->capacity;
    MST_ASSERT(kv->memory_used >= cost);
    kv->memory_used -= cost;
    mst__free(entry->value);
    mst__map_remove(&kv->map, entry);
}

struct mst_bytes mst__kv_entry_value(const struct mst__kv_entry *entry)
{
    return mst_bytes(entry->value, entry->size);
}

int mst__kv_entry_reserve(struct mst__kv *kv, struct mst__kv_entry *entry, size_t size)
{
    if (size <= entry->capacity) {
        return 0;
    }
    /* Room for a counter to grow its digits without a new allocation. */
    size_t capacity = size < 16 ? 16 : size;
    size_t growth = capacity - entry->capacity;
    if (!mst__kv_has_room(kv, growth)) {
        return MST_ELIMIT;
    }
    uint8_t *value = mst__realloc(entry->value, capacity);
    if (value == NULL) {
        return MST_ENOMEM;
    }
    entry->value = value;
    entry->capacity = capacity;
    kv->memory_used += growth;
    return 0;
}

void mst__kv_entry_put(struct mst__kv *kv, struct mst__kv_entry *entry, struct mst_bytes value)
{
    MST_ASSERT(value.size <= entry->capacity);
    if (MST_UNLIKELY(entry->watches != NULL)) {
        mst__kv_notify(kv, entry, entry->exists ? MST_KV_UPDATED : MST_KV_CREATED, value);
    }
    if (value.size > 0 && value.data != entry->value) {
        memcpy(entry->value, value.data, value.size);
    }
    entry->size = value.size;
    if (!entry->exists) {
        entry->exists = true;
        kv->keys_count++;
    }
}

void mst__kv_entry_drop(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    MST_ASSERT(entry->exists);
    MST_ASSERT(kv->keys_count > 0);
    if (MST_UNLIKELY(entry->watches != NULL)) {
        mst__kv_notify(kv, entry, MST_KV_DELETED, mst_bytes(NULL, 0));
    }
    kv->memory_used -= entry->capacity;
    mst__free(entry->value);
    entry->value = NULL;
    entry->size = 0;
    entry->capacity = 0;
    entry->exists = false;
    entry->made_by_barrier = false;
    kv->keys_count--;
}

int mst__kv_entry_number(const struct mst__kv_entry *entry, int64_t *ret_number)
{
    *ret_number = 0;
    if (entry->exists && !mst__number_parse_prefix(mst__kv_entry_value(entry), ret_number)) {
        return MST_ETYPE;
    }
    return 0;
}

/* --- operations --- */

/* Give back the room that the value of @entry does not need. */
static void entry_fit(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    size_t capacity = entry->size < 16 ? 16 : entry->size;
    if (!entry->exists) {
        kv->memory_used -= entry->capacity;
        mst__free(entry->value);
        entry->value = NULL;
        entry->capacity = 0;
        return;
    }
    if (entry->capacity <= capacity) {
        return;
    }
    uint8_t *value = mst__realloc(entry->value, capacity);
    if (value == NULL) {
        return; /* the larger block serves as well */
    }
    kv->memory_used -= entry->capacity - capacity;
    entry->value = value;
    entry->capacity = capacity;
}

/* A small value in the place of a large one gives the memory back. */
static void entry_shrink(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    if (entry->capacity >= 1024 && entry->size <= entry->capacity / 4) {
        entry_fit(kv, entry);
    }
}

/* The end of every write that is not BARRIER's: a barrier's count is no longer its own. */
static void entry_written(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    entry->writes++;
    entry->made_by_barrier = false;
    entry_shrink(kv, entry);
}

static void entry_written_wake(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    entry_written(kv, entry);
    mst__kv_wake_all(kv, entry);
}

/* Find or make the entry under @key with room for @size bytes of value. */
static int entry_prepare(struct mst__kv *kv,
                         struct mst_bytes key,
                         size_t size,
                         struct mst__kv_entry **ret_entry)
{
    struct mst__kv_entry *entry = NULL;
    int rv = mst__kv_entry_obtain(kv, key, &entry);
    if (rv != 0) {
        return rv;
    }
    MST_ASSERT(entry != NULL);
    rv = mst__kv_entry_reserve(kv, entry, size);
    if (rv != 0) {
        mst__kv_entry_tidy(kv, entry);
        return rv;
    }
    *ret_entry = entry;
    return 0;
}

static int kv_set(struct mst__kv *kv, struct mst_bytes key, struct mst_bytes value)
{
    struct mst__kv_entry *entry = NULL;
    int rv = entry_prepare(kv, key, value.size, &entry);
    if (rv != 0) {
        return rv;
    }
    mst__kv_entry_put(kv, entry, value);
    entry_written_wake(kv, entry);
    return 0;
}

static void kv_get(const struct mst__kv *kv, struct mst_bytes key, struct mst__reply *ret_reply)
{
    const struct mst__kv_entry *entry = mst__map_get(&kv->map, key);
    bool found = entry != NULL && entry->exists;
    /* PyTorch's default server answers an absent key with an empty value; so do we. */
    *ret_reply = (struct mst__reply){
        .kind = MST_REPLY_BYTES,
        .bytes = found ? mst__kv_entry_value(entry) : mst_bytes(NULL, 0),
        .found = found,
    };
}

static int kv_add(struct mst__kv *kv, const struct mst__command *command, struct mst__reply *reply)
{
    struct mst__kv_entry *entry = NULL;
    int rv = mst__kv_entry_obtain(kv, command->key, &entry);
    if (rv != 0) {
        return rv;
    }
    int64_t number = 0;
    rv = mst__kv_entry_number(entry, &number);
    if (rv == 0) {
        rv = mst__kv_entry_reserve(kv, entry, MST_NUMBER_SIZE);
    }
    if (rv != 0) {
        mst__kv_entry_tidy(kv, entry);
        return rv;
    }
    /* Overflow wraps around, as with every PyTorch server. */
    number = (int64_t)((uint64_t)number + (uint64_t)command->number);
    char text[MST_NUMBER_SIZE];
    mst__kv_entry_put(kv, entry, mst_bytes(text, mst__number_format(number, text)));
    entry_written_wake(kv, entry);
    *reply = (struct mst__reply){.kind = MST_REPLY_NUMBER, .number = number};
    return 0;
}

static int kv_compare_set(struct mst__kv *kv,
                          const struct mst__command *command,
                          struct mst__reply *reply)
{
    struct mst__kv_entry *entry = mst__map_get(&kv->map, command->key);
    bool found = entry != NULL && entry->exists;
    *reply = (struct mst__reply){.kind = MST_REPLY_BYTES, .found = found};
    bool matches = found ? mst__bytes_equal(mst__kv_entry_value(entry), command->expected)
                         : command->expected.size == 0;
    if (!matches) {
        /* For an absent key PyTorch's clients are told what they expected: they rely on it. */
        reply->bytes = found ? mst__kv_entry_value(entry) : command->expected;
        return 0;
    }
    int rv = found ? mst__kv_entry_reserve(kv, entry, command->value.size)
                   : entry_prepare(kv, command->key, command->value.size, &entry);
    if (rv != 0) {
        return rv;
    }
    mst__kv_entry_put(kv, entry, command->value);
    entry_written(kv, entry);
    if (!found) {
        mst__kv_wake_all(kv, entry);
    } else if (MST_UNLIKELY(entry->changes_count > 0)) {
        mst__kv_wake_changes(kv, entry);
    }
    reply->bytes = command->value;
    return 0;
}

static int kv_append(struct mst__kv *kv, const struct mst__command *command)
{
    const struct mst__kv_entry *present = mst__map_get(&kv->map, command->key);
    size_t old_size = present != NULL && present->exists ? present->size : 0;
    if (command->value.size > kv->limits.value_max ||
        old_size > kv->limits.value_max - command->value.size) {
        return MST_ELIMIT;
    }
    size_t size = old_size + command->value.size;
    struct mst__kv_entry *entry = NULL;
    /* Some spare room, so that a value built piece by piece is not copied for every piece. */
    int rv = entry_prepare(kv, command->key, size + old_size / 2, &entry);
    if (rv == MST_ELIMIT) {
        rv = entry_prepare(kv, command->key, size, &entry);
    }
    if (rv != 0) {
        return rv;
    }
    if (command->value.size > 0) {
        memcpy(entry->value + old_size, command->value.data, command->value.size);
    }
    mst__kv_entry_put(kv, entry, mst_bytes(entry->value, size));
    entry_written_wake(kv, entry);
    return 0;
}

static int64_t kv_delete(struct mst__kv *kv, struct mst_bytes key)
{
    struct mst__kv_entry *entry = mst__map_get(&kv->map, key);
    if (entry == NULL || !entry->exists) {
        return 0;
    }
    mst__kv_entry_drop(kv, entry);
    entry->writes++;
    if (MST_UNLIKELY(entry->changes_count > 0)) {
        mst__kv_wake_changes(kv, entry);
    }
    mst__kv_entry_tidy(kv, entry);
    return 1;
}

static enum mst__status kv_check(const struct mst__kv *kv, const struct mst__command *command)
{
    struct mst_bytes items = command->items;
    struct mst_bytes key;
    for (uint64_t i = 0; i < command->count && mst__items_next(&items, &key); i++) {
        if (!mst__kv_entry_is_ready(mst__map_get(&kv->map, key))) {
            bool is_announced = kv->announces && command->count == 1 &&
                                (mst__bytes_equal(key, mst_bytes_str(MST_KV_ANNOUNCEMENT)) ||
                                 mst__bytes_equal(key, mst_bytes_str(MST_KV_ANNOUNCEMENT_JOB)));
            return is_announced ? MST_STATUS_READY : MST_STATUS_NOT_READY;
        }
    }
    return MST_STATUS_READY;
}

static int kv_multi_get(struct mst__kv *kv,
                        const struct mst__command *command,
                        struct mst__reply *ret_reply)
{
    mst__buf_clear(&kv->items);
    struct mst_bytes items = command->items;
    struct mst_bytes key;
    for (uint64_t i = 0; i < command->count && mst__items_next(&items, &key); i++) {
        struct mst__reply one;
        kv_get(kv, key, &one);
        int rv = mst__buf_append_str(&kv->items, one.bytes);
        if (rv != 0) {
            return rv;
        }
    }
    *ret_reply = (struct mst__reply){.kind = MST_REPLY_ITEMS, .bytes = mst__buf_bytes(&kv->items)};
    return 0;
}

static int kv_list_keys(struct mst__kv *kv, struct mst__reply *ret_reply)
{
    mst__buf_clear(&kv->items);
    for (const struct mst__kv_entry *entry = mst__map_first(&kv->map); entry != NULL;
         entry = mst__map_next(entry)) {
        int rv = entry->exists ? mst__buf_append_str(&kv->items, mst__map_key(entry)) : 0;
        if (rv != 0) {
            return rv;
        }
    }
    *ret_reply = (struct mst__reply){.kind = MST_REPLY_LIST,
                                     .number = (int64_t)kv->keys_count,
                                     .bytes = mst__buf_bytes(&kv->items)};
    return 0;
}

/* The first half of MULTI_SET: everything that can fail. Entries get room for their new values but
 * keep the old ones. On error those that came into being are removed again. */
static int multi_set_prepare(struct mst__kv *kv, const struct mst__command *command)
{
    struct mst_bytes items = command->items;
    struct mst_bytes key;
    struct mst_bytes value;
    int rv = 0;
    uint64_t done = 0;
    while (rv == 0 && done < command->count && mst__items_next(&items, &key) &&
           mst__items_next(&items, &value)) {
        struct mst__kv_entry *entry = NULL;
        rv = entry_prepare(kv, key, value.size, &entry);
        done += rv == 0 ? 1 : 0;
    }
    if (rv == 0) {
        return 0;
    }
    items = command->items;
    for (uint64_t i = 0; i < done && mst__items_next(&items, &key); i++) {
        (void)mst__items_next(&items, &value); /* the first pass has seen that it is there */
        struct mst__kv_entry *entry = mst__map_get(&kv->map, key);
        if (entry != NULL) { /* a key named twice is gone already */
            entry_fit(kv, entry);
            mst__kv_entry_tidy(kv, entry);
        }
    }
    return rv;
}

/* All or nothing: other clients never see a part of it. */
static int kv_multi_set(struct mst__kv *kv, const struct mst__command *command)
{
    int rv = multi_set_prepare(kv, command);
    if (rv != 0) {
        return rv;
    }
    struct mst_bytes items = command->items;
    struct mst_bytes key;
    struct mst_bytes value;
    for (uint64_t i = 0;
         i < command->count && mst__items_next(&items, &key) && mst__items_next(&items, &value);
         i++) {
        struct mst__kv_entry *entry = mst__map_get(&kv->map, key);
        MST_ASSERT(entry != NULL);
        mst__kv_entry_put(kv, entry, value);
    }
    /* Waiters go on only now, so that a client that waits for one of the keys finds all of them. */
    items = command->items;
    for (uint64_t i = 0; i < command->count && mst__items_next(&items, &key); i++) {
        (void)mst__items_next(&items, &value);
        entry_written_wake(kv, mst__map_get(&kv->map, key));
    }
    return 0;
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
            *reply = (struct mst__reply){.kind = MST_REPLY_STATUS, .status = kv_check(kv, command)};
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
            return kv_list_keys(kv, reply);
        case MST_OP_BARRIER:
            return mst__kv_barrier(kv, client, command, reply);
        case MST_OP_WAIT_CHANGE:
            break;
    }
    MST_ASSERT(command->op == MST_OP_WAIT_CHANGE);
    return mst__kv_wait_change(kv, client, command, reply);
}

/* One large reply shall not cost memory for ever; nobody borrows from it any more. */
static void buf_trim(struct mst__buf *buf)
{
    if (MST_UNLIKELY(buf->capacity > KV_KEPT_MAX)) {
        mst__buf_close(buf);
    }
}

int mst__kv_apply(struct mst__kv *kv,
                  struct mst__kv_client *client,
                  const struct mst__command *command,
                  struct mst__reply *ret_reply)
{
    struct mst__reply reply;
    buf_trim(&kv->items);
    MST_ASSERT(mst__buf_size(&kv->notices) == 0); /* all were taken */
    buf_trim(&kv->notices);
    bool was_promised = client->promised != NULL;
    int rv = kv_dispatch(kv, client, command, &reply);
    if (MST_UNLIKELY(was_promised)) {
        mst__kv_settle_promise(kv, client);
    }
    if (rv != 0) {
        return rv;
    }
    *ret_reply = reply;
    return 0;
}

void mst__kv_client_close(struct mst__kv *kv, struct mst__kv_client *client)
{
    /* Leaving a barrier changes a key, and who is going wants no notice of it. */
    mst__kv_unwatch_all(kv, client);
    mst__kv_cancel_wait(kv, client);
    if (client->promised != NULL) {
        mst__kv_settle_promise(kv, client);
    }
    if (client->released) {
        struct mst__kv_client **link = &kv->released_first;
        struct mst__kv_client *before = NULL;
        while (*link != client) {
            before = *link;
            link = &before->released_next;
        }
        *link = client->released_next;
        if (kv->released_last == client) {
            kv->released_last = before;
        }
        client->released = false;
    }
}

struct mst__kv_client *mst__kv_next_released(struct mst__kv *kv)
{
    struct mst__kv_client *client = kv->released_first;
    if (client != NULL) {
        MST_ASSERT(client->released);
        kv->released_first = client->released_next;
        if (kv->released_first == NULL) {
            kv->released_last = NULL;
        }
        client->released_next = NULL;
        client->released = false;
    }
    return client;
}
