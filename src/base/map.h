/* base/map.h - byte strings to values, iterated in the order of insertion.
 *
 * The map owns its entries: one allocation holds key and value. Values have one size per map and
 * keep their address until removed. Iteration order is the order of insertion, whatever the hash
 * key, so that runs can be repeated exactly. */
#ifndef MST_BASE_MAP_H
#define MST_BASE_MAP_H

#include <muster/types.h>
#include <stdbool.h>

#include "base/siphash.h"

struct mst__map_entry; /* opaque */
struct mst__slabs;

/* Each has as many buckets as all before it, but for the first: 2^31 in all. */
#define MST_MAP_SEGMENTS_MAX 27

struct mst__map {
    struct mst__map_entry *first, *last; /* in the order of insertion */
    struct mst__map_entry **segments[MST_MAP_SEGMENTS_MAX];
    size_t buckets_count;
    size_t entries_count;
    size_t value_size;
    struct mst__slabs *slabs; /* where entries come from; NULL = mst__malloc */
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

/* Remove everything. The caller has released what the values own. */
void mst__map_close(struct mst__map *map);

size_t mst__map_count(const struct mst__map *map);

/* The value under @key, or NULL. */
void *mst__map_get(const struct mst__map *map, struct mst_bytes key);

/* Insert @key (copied), which is not in the map, with a zeroed value. NULL when out of memory; the
 * map is then unchanged. */
void *mst__map_add(struct mst__map *map, struct mst_bytes key);

/* The same in two halves, for who adds what was not found: the hash of @key is computed once. */
void *mst__map_find(const struct mst__map *map, struct mst_bytes key, unsigned *ret_hash);
void *mst__map_add_found(struct mst__map *map, struct mst_bytes key, unsigned hash);

/* Remove the entry whose value is @value. */
void mst__map_remove(struct mst__map *map, void *value);

/* Put the entry whose value is @value into other memory: where its value is now. NULL when there is
 * none; nothing has changed then. */
void *mst__map_move(struct mst__map *map, void *value);

/* Whether the slab of that entry is mostly empty. */
bool mst__map_is_sparse(const struct mst__map *map, const void *value);

/* The key of the entry whose value is @value. */
struct mst_bytes mst__map_key(const void *value);

/* Iterate: the first value, the one behind @value; NULL at the end. */
void *mst__map_first(const struct mst__map *map);
void *mst__map_next(const void *value);

/* Bytes that an entry with a key of @key_size costs, its share of the table included: for memory
 * accounting. */
size_t mst__map_cost(const struct mst__map *map, size_t key_size);

#endif /* MST_BASE_MAP_H */
