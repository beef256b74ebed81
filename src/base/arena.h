/* base/arena.h - memory for an object of many parts that are released together. */
#ifndef MST_BASE_ARENA_H
#define MST_BASE_ARENA_H

#include <muster/types.h>

struct mst__arena_block;

/* Zeroed: empty. */
struct mst__arena {
    struct mst__arena_block *blocks; /* the block in use is first */
    size_t size;                     /* of all blocks */
};

/* @size zeroed bytes, aligned for anything, or NULL. */
void *mst__arena_take(struct mst__arena *arena, size_t size);

/* A NUL-terminated copy of @text, or NULL. */
char *mst__arena_text(struct mst__arena *arena, struct mst_bytes text);

/* Release everything. The arena can be used again. */
void mst__arena_close(struct mst__arena *arena);

#endif /* MST_BASE_ARENA_H */
