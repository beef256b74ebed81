/* base/arena.c - a list of blocks; a block has room for many parts, except a block for a large
 * one. */
#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"

#define BLOCK_SIZE MST_KIB(16)
#define ALIGNMENT 16

struct mst__arena_block {
    struct mst__arena_block *next;
    size_t used, capacity;
    _Alignas(ALIGNMENT) uint8_t memory[];
};

/* Add a block with room for at least @size bytes, at the head of the list. */
static struct mst__arena_block *arena_grow(struct mst__arena *arena, size_t size)
{
    size_t capacity = size > BLOCK_SIZE ? size : BLOCK_SIZE;
    struct mst__arena_block *block = mst__malloc(sizeof *block + capacity);
    if (block == NULL) {
        return NULL;
    }
    block->next = arena->blocks;
    block->used = 0;
    block->capacity = capacity;
    arena->blocks = block;
    arena->size += sizeof *block + capacity;
    return block;
}

static uint8_t *arena_reserve(struct mst__arena *arena, size_t size, size_t alignment)
{
    struct mst__arena_block *block = arena->blocks;
    size_t at = block == NULL ? 0 : (block->used + alignment - 1) / alignment * alignment;
    if (block == NULL || at > block->capacity || size > block->capacity - at) {
        if (size > SIZE_MAX / 2) {
            return NULL;
        }
        block = arena_grow(arena, size);
        at = 0;
    }
    if (block == NULL) {
        return NULL;
    }
    block->used = at + size;
    return block->memory + at;
}

void *mst__arena_take(struct mst__arena *arena, size_t size)
{
    uint8_t *memory = arena_reserve(arena, size, ALIGNMENT);
    return memory == NULL ? NULL : memset(memory, 0, size);
}

char *mst__arena_text(struct mst__arena *arena, struct mst_bytes text)
{
    char *copy = (char *)arena_reserve(arena, text.size + 1, 1);
    if (copy != NULL) {
        if (text.size > 0) {
            memcpy(copy, text.data, text.size);
        }
        copy[text.size] = '\0';
    }
    return copy;
}

void mst__arena_close(struct mst__arena *arena)
{
    while (arena->blocks != NULL) {
        struct mst__arena_block *block = arena->blocks;
        arena->blocks = block->next;
        mst__free(block);
    }
    arena->size = 0;
}
