/* base/map.c - uthash behind our interface. No other file sees its macros.
 *
 * An entry is one allocation: header, value, key. uthash's default hash is unkeyed and its default
 * answer to a failed allocation is exit(); both are replaced here. */
#include "base/map.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/mem.h"

/* uthash's macros take the hash from a variable of this name in the calling function. */
#define HASH_FUNCTION(key, size, hash) \
    ((hash) = (unsigned)mst__siphash(map->hash_key, (key), (size)))
/* An empty key may have no address, and memcmp wants one whatever the size. */
#define HASH_KEYCMP(a, b, size) ((size) == 0 ? 0 : memcmp((a), (b), (size)))
#define HASH_NONFATAL_OOM 1
#define uthash_malloc(size) mst__malloc(size)
#define uthash_free(memory, size) mst__free(memory)
#define uthash_nonfatal_oom(entry) (out_of_memory = true)
#include <uthash.h>

struct mst__map_entry {
    UT_hash_handle hh;
    max_align_t value[];
};

static struct mst__map_entry *map_entry_of(const void *value)
{
    return (struct mst__map_entry *)((uintptr_t)value - offsetof(struct mst__map_entry, value));
}

void mst__map_init(struct mst__map *map,
                   size_t value_size,
                   const uint8_t hash_key[MST_SIPHASH_KEY_SIZE])
{
    *map = (struct mst__map){.value_size = value_size};
    memcpy(map->hash_key, hash_key, sizeof map->hash_key);
}

void mst__map_close(struct mst__map *map)
{
    struct mst__map_entry *entry;
    struct mst__map_entry *next;
    HASH_ITER(hh, map->entries, entry, next) {
        HASH_DEL(map->entries, entry);
        mst__free(entry);
    }
}

size_t mst__map_count(const struct mst__map *map)
{
    return HASH_COUNT(map->entries);
}

void *mst__map_get(const struct mst__map *map, struct mst_bytes key)
{
    struct mst__map_entry *entry = NULL;
    HASH_FIND(hh, map->entries, key.data, key.size, entry);
    return entry == NULL ? NULL : entry->value;
}

void *mst__map_find(const struct mst__map *map, struct mst_bytes key, unsigned *ret_hash)
{
    struct mst__map_entry *entry = NULL;
    HASH_VALUE(key.data, key.size, *ret_hash);
    HASH_FIND_BYHASHVALUE(hh, map->entries, key.data, key.size, *ret_hash, entry);
    return entry == NULL ? NULL : entry->value;
}

void *mst__map_add(struct mst__map *map, struct mst_bytes key)
{
    unsigned hash;
    HASH_VALUE(key.data, key.size, hash);
    return mst__map_add_found(map, key, hash);
}

void *mst__map_add_found(struct mst__map *map, struct mst_bytes key, unsigned hash)
{
    MST_ASSERT(key.size <= UINT32_MAX);
    struct mst__map_entry *entry = mst__malloc(sizeof *entry + map->value_size + key.size);
    if (entry == NULL) {
        return NULL;
    }
    memset(entry, 0, sizeof *entry + map->value_size);
    uint8_t *key_copy = (uint8_t *)entry->value + map->value_size;
    if (key.size > 0) {
        memcpy(key_copy, key.data, key.size);
    }
    bool out_of_memory = false;
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, map->entries, key_copy, (unsigned)key.size, hash, entry);
    if (out_of_memory) {
        mst__free(entry);
        return NULL;
    }
    return entry->value;
}

void mst__map_remove(struct mst__map *map, void *value)
{
    struct mst__map_entry *entry = map_entry_of(value);
    HASH_DEL(map->entries, entry);
    mst__free(entry);
}

struct mst_bytes mst__map_key(const void *value)
{
    const struct mst__map_entry *entry = map_entry_of(value);
    return mst_bytes(entry->hh.key, entry->hh.keylen);
}

void *mst__map_first(const struct mst__map *map)
{
    return map->entries == NULL ? NULL : map->entries->value;
}

void *mst__map_next(const void *value)
{
    const struct mst__map_entry *entry = map_entry_of(value);
    struct mst__map_entry *next = entry->hh.next;
    return next == NULL ? NULL : next->value;
}

size_t mst__map_cost(const struct mst__map *map, size_t key_size)
{
    return mst__mem_cost(sizeof(struct mst__map_entry) + map->value_size + key_size) +
           sizeof(UT_hash_bucket); /* there are never more buckets than there were entries */
}
