/* base/arena.h - memory for a thing of many parts that is released as a whole. */
#ifndef MST_BASE_ARENA_H
#define MST_BASE_ARENA_H

#include <muster/types.h>

struct mst__arena_block;

/* Zeroed: empty. */
struct mst__arena {
    struct mst__arena_block *blocks; /* the one in use comes first */
    size_t size;                     /* of all blocks */
};

/* @size zeroed bytes, aligned for anything, or NULL. */
void *mst__arena_take(struct mst__arena *arena, size_t size);

/* A copy of @text with a NUL behind it, or NULL. */
char *mst__arena_text(struct mst__arena *arena, struct mst_bytes text);

/* Release everything. It can be used again. */
void mst__arena_close(struct mst__arena *arena);

#endif /* MST_BASE_ARENA_H */
