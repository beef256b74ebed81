/* base/map.h - a map from byte strings to values, iterated in the order of insertion.
 *
 * The map owns its entries: one allocation holds key and value. All values of a map have one size,
 * and keep their address until removed. The order of iteration does not depend on the hash key, so
 * that runs can be repeated exactly. */
#ifndef MST_BASE_MAP_H
#define MST_BASE_MAP_H

#include <muster/types.h>
#include <stdbool.h>

#include "base/siphash.h"

struct mst__map_entry; /* opaque */
struct mst__slabs;

/* Each segment has as many buckets as all before it together, except the first: 2^31 in total. */
#define MST_MAP_SEGMENTS_MAX 27

struct mst__map {
    struct mst__map_entry *first, *last; /* in the order of insertion */
    struct mst__map_entry **segments[MST_MAP_SEGMENTS_MAX];
    size_t buckets_count;
    size_t entries_count;
    size_t value_size;
    struct mst__slabs *slabs; /* allocator of entries; NULL = mst__malloc */
    uint8_t hash_key[MST_SIPHASH_KEY_SIZE];
};

/* @hash_key is copied; it should be secret where peers choose the keys. */
void mst__map_init(struct mst__map *map,
                   size_t value_size,
                   const uint8_t hash_key[MST_SIPHASH_KEY_SIZE]);

/* The same with entries from @slabs. */
void mst__map_init_in(struct mst__map *map,
                      size_t value_size,
                      const uint8_t hash_key[MST_SIPHASH_KEY_SIZE],
                      struct mst__slabs *slabs);

/* Remove everything. The caller has released the memory that the values own. */
void mst__map_close(struct mst__map *map);

size_t mst__map_count(const struct mst__map *map);

/* The value under @key, or NULL. */
void *mst__map_get(const struct mst__map *map, struct mst_bytes key);

/* Insert @key (copied), which is not in the map, with a zeroed value. NULL if out of memory, with
 * the map unchanged. */
void *mst__map_add(struct mst__map *map, struct mst_bytes key);

/* The same in two steps, to add a key that was not found: the hash of @key is computed once. */
void *mst__map_find(const struct mst__map *map, struct mst_bytes key, unsigned *ret_hash);
void *mst__map_add_found(struct mst__map *map, struct mst_bytes key, unsigned hash);

/* Remove the entry of @value. */
void mst__map_remove(struct mst__map *map, void *value);

/* Move the entry of @value to other memory and return its new value. NULL if out of memory, with
 * nothing changed. */
void *mst__map_move(struct mst__map *map, void *value);

/* Whether the slab of the entry is mostly empty. */
bool mst__map_is_sparse(const struct mst__map *map, const void *value);

/* The key of the entry of @value. */
struct mst_bytes mst__map_key(const void *value);

/* Iterate: the first value, the value after @value; NULL at the end. */
void *mst__map_first(const struct mst__map *map);
void *mst__map_next(const void *value);

/* Bytes that an entry with a key of @key_size takes, including its share of the table: for memory
 * accounting. */
size_t mst__map_cost(const struct mst__map *map, size_t key_size);

#endif /* MST_BASE_MAP_H */
