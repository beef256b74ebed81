/* base/map.c - a hash table that grows by one bucket at a time (linear hashing).
 *
 * An entry is one allocation: header, value, key. There are as many buckets as entries: an addition
 * that would make fewer splits the next bucket in turn. So no addition costs more than others,
 * however large the table is; a table that is copied when full stops a server with millions of keys
 * for a second. Buckets never move. They lie in segments, each as large as all before it; the
 * highest bit of a bucket's number gives its segment. */
#include "base/map.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/slab.h"

/* Size of the first segment. */
#define BUCKETS_MIN ((size_t)32)
#define BUCKETS_MIN_LOG2 5

struct mst__map_entry {
    struct mst__map_entry *chain; /* the next entry of the bucket */
    struct mst__map_entry *prev, *next;
    unsigned hash;
    uint32_t key_size;
    uint8_t *key; /* after the value */
    max_align_t value[];
};

static struct mst__map_entry *map_entry_of(const void *value)
{
    return (struct mst__map_entry *)((uintptr_t)value - offsetof(struct mst__map_entry, value));
}

static unsigned map_hash(const struct mst__map *map, struct mst_bytes key)
{
    return (unsigned)mst__siphash(map->hash_key, key.data, key.size);
}

/* --- buckets --- */

static unsigned segment_of(size_t bucket)
{
    return bucket < BUCKETS_MIN ? 0
                                : (unsigned)(63 - __builtin_clzll((unsigned long long)bucket)) -
                                      BUCKETS_MIN_LOG2 + 1;
}

/* The first bucket of @segment, and the number of its buckets. */
static size_t segment_size(unsigned segment)
{
    return segment == 0 ? BUCKETS_MIN : BUCKETS_MIN << (segment - 1);
}

static struct mst__map_entry **bucket_at(const struct mst__map *map, size_t bucket)
{
    unsigned segment = segment_of(bucket);
    size_t index = segment == 0 ? bucket : bucket - segment_size(segment);
    return &map->segments[segment][index];
}

/* Use as many bits of the hash as a power of two above the number of buckets needs. If the result
 * is beyond the last bucket, its entries are still in the bucket that will be split into it. */
static struct mst__map_entry **bucket_of(const struct mst__map *map, unsigned hash)
{
    size_t last = map->buckets_count - 1;
    size_t mask = ((size_t)2 << (63 - __builtin_clzll((unsigned long long)last))) - 1;
    size_t bucket = hash & mask;
    return bucket_at(map, bucket <= last ? bucket : bucket & (mask >> 1));
}

static bool map_reserve(struct mst__map *map, unsigned segment)
{
    if (map->segments[segment] == NULL) {
        map->segments[segment] = mst__calloc(segment_size(segment), sizeof(void *));
    }
    return map->segments[segment] != NULL;
}

/* Add one bucket. It takes its entries from the bucket that had them, in their order. If out of
 * memory, the chains become longer. */
static void map_split(struct mst__map *map)
{
    size_t bucket = map->buckets_count;
    unsigned segment = segment_of(bucket);
    if (segment >= MST_MAP_SEGMENTS_MAX || !map_reserve(map, segment)) {
        return;
    }
    size_t bit = segment_size(segment);
    struct mst__map_entry **from = bucket_at(map, bucket - bit);
    struct mst__map_entry **to = bucket_at(map, bucket);
    map->buckets_count++;
    while (*from != NULL) {
        struct mst__map_entry *entry = *from;
        if ((entry->hash & bit) == 0) {
            from = &entry->chain;
            continue;
        }
        *from = entry->chain;
        entry->chain = NULL;
        *to = entry;
        to = &entry->chain;
    }
}

/* Free all segments except the first @kept. */
static void map_free_segments(struct mst__map *map, unsigned kept)
{
    for (unsigned i = kept; i < MST_MAP_SEGMENTS_MAX && map->segments[i] != NULL; i++) {
        mst__free(map->segments[i]);
        map->segments[i] = NULL;
    }
    map->buckets_count = kept == 0 ? 0 : BUCKETS_MIN;
}

/* --- the map --- */

void mst__map_init(struct mst__map *map,
                   size_t value_size,
                   const uint8_t hash_key[MST_SIPHASH_KEY_SIZE])
{
    *map = (struct mst__map){.value_size = value_size};
    memcpy(map->hash_key, hash_key, sizeof map->hash_key);
}

void mst__map_init_in(struct mst__map *map,
                      size_t value_size,
                      const uint8_t hash_key[MST_SIPHASH_KEY_SIZE],
                      struct mst__slabs *slabs)
{
    mst__map_init(map, value_size, hash_key);
    map->slabs = slabs;
}

static size_t entry_size(const struct mst__map *map, size_t key_size)
{
    return sizeof(struct mst__map_entry) + map->value_size + key_size;
}

static void entry_free(const struct mst__map *map, struct mst__map_entry *entry)
{
    mst__slab_free(map->slabs, entry, entry_size(map, entry->key_size));
}

void mst__map_close(struct mst__map *map)
{
    while (map->first != NULL) {
        struct mst__map_entry *entry = map->first;
        map->first = entry->next;
        entry_free(map, entry);
    }
    map->last = NULL;
    map->entries_count = 0;
    map_free_segments(map, 0);
}

size_t mst__map_count(const struct mst__map *map)
{
    return map->entries_count;
}

void *mst__map_get(const struct mst__map *map, struct mst_bytes key)
{
    unsigned hash;
    return mst__map_find(map, key, &hash);
}

void *mst__map_find(const struct mst__map *map, struct mst_bytes key, unsigned *ret_hash)
{
    *ret_hash = map_hash(map, key);
    struct mst__map_entry *entry = map->entries_count == 0 ? NULL : *bucket_of(map, *ret_hash);
    while (entry != NULL && (entry->hash != *ret_hash ||
                             !mst__bytes_equal(mst_bytes_of(entry->key, entry->key_size), key))) {
        entry = entry->chain;
    }
    return entry == NULL ? NULL : entry->value;
}

void *mst__map_add(struct mst__map *map, struct mst_bytes key)
{
    return mst__map_add_found(map, key, map_hash(map, key));
}

void *mst__map_add_found(struct mst__map *map, struct mst_bytes key, unsigned hash)
{
    MST_ASSERT(key.size <= UINT32_MAX);
    if (!map_reserve(map, 0)) {
        return NULL;
    }
    struct mst__map_entry *entry = mst__slab_malloc(map->slabs, entry_size(map, key.size));
    if (entry == NULL) {
        return NULL;
    }
    memset(entry, 0, sizeof *entry + map->value_size);
    entry->key = (uint8_t *)entry->value + map->value_size;
    entry->key_size = (uint32_t)key.size;
    if (key.size > 0) {
        memcpy(entry->key, key.data, key.size);
    }
    entry->hash = hash;
    if (map->buckets_count == 0) {
        map->buckets_count = BUCKETS_MIN;
    } else if (map->entries_count >= map->buckets_count) {
        map_split(map);
    }
    struct mst__map_entry **bucket = bucket_of(map, hash);
    entry->chain = *bucket;
    *bucket = entry;
    entry->prev = map->last;
    if (map->last == NULL) {
        map->first = entry;
    } else {
        map->last->next = entry;
    }
    map->last = entry;
    map->entries_count++;
    return entry->value;
}

/* Put @next and @prev, which are @entry or its neighbours, in the place of @entry. */
static void order_replace(struct mst__map *map,
                          const struct mst__map_entry *entry,
                          struct mst__map_entry *next,
                          struct mst__map_entry *prev)
{
    if (entry->prev == NULL) {
        map->first = next;
    } else {
        entry->prev->next = next;
    }
    if (entry->next == NULL) {
        map->last = prev;
    } else {
        entry->next->prev = prev;
    }
}

/* The pointer to @entry in its bucket. */
static struct mst__map_entry **chain_link(const struct mst__map *map,
                                          const struct mst__map_entry *entry)
{
    struct mst__map_entry **link = bucket_of(map, entry->hash);
    while (*link != entry) {
        MST_ASSERT(*link != NULL);
        link = &(*link)->chain;
    }
    return link;
}

bool mst__map_is_sparse(const struct mst__map *map, const void *value)
{
    const struct mst__map_entry *entry = map_entry_of(value);
    return mst__slab_is_sparse(map->slabs, entry, entry_size(map, entry->key_size));
}

void *mst__map_move(struct mst__map *map, void *value)
{
    struct mst__map_entry *entry = map_entry_of(value);
    size_t size = entry_size(map, entry->key_size);
    struct mst__map_entry *moved = mst__slab_malloc(map->slabs, size);
    if (moved == NULL) {
        return NULL;
    }
    memcpy(moved, entry, size);
    moved->key = (uint8_t *)moved->value + map->value_size;
    *chain_link(map, entry) = moved;
    order_replace(map, entry, moved, moved);
    entry_free(map, entry);
    return moved->value;
}

void mst__map_remove(struct mst__map *map, void *value)
{
    struct mst__map_entry *entry = map_entry_of(value);
    *chain_link(map, entry) = entry->chain;
    order_replace(map, entry, entry->next, entry->prev);
    entry_free(map, entry);
    map->entries_count--;
    if (map->entries_count == 0) {
        map_free_segments(map, 1); /* the large ones are no longer needed */
    }
}

struct mst_bytes mst__map_key(const void *value)
{
    const struct mst__map_entry *entry = map_entry_of(value);
    return mst_bytes_of(entry->key, entry->key_size);
}

void *mst__map_first(const struct mst__map *map)
{
    return map->first == NULL ? NULL : map->first->value;
}

void *mst__map_next(const void *value)
{
    const struct mst__map_entry *entry = map_entry_of(value);
    return entry->next == NULL ? NULL : entry->next->value;
}

size_t mst__map_cost(const struct mst__map *map, size_t key_size)
{
    return mst__slab_cost(entry_size(map, key_size)) +
           sizeof(struct mst__map_entry *); /* a bucket */
}
