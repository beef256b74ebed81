/* base/slab.c - small allocations whose memory goes back to the system in pieces.
 *
 * Slabs come in regions of 64. The first slab of a region holds the description of the others, so
 * that an address leads to its slab, and a slab without pages is still described. A slab is filled
 * from its start; freed allocations are reused first. */
#include "base/slab.h"

#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/pages.h"

#define SLAB_SIZE MST_KIB(64)
#define REGION_SLABS 64
#define REGION_SIZE (REGION_SLABS * SLAB_SIZE)

/* Empty slabs that keep their pages for the next allocations: 1 MiB. */
#define WARM_MAX 16

struct mst__slab {
    struct mst__slab *prev, *next; /* in its list */
    void *freed;                   /* the first freed allocation; each points to the next */
    uint16_t used;                 /* live allocations */
    uint16_t begun;                /* allocations that were ever used */
    uint16_t capacity;
    uint8_t class;
};

struct mst__slab_region {
    struct mst__slab_region *next;
    struct mst__slab slabs[REGION_SLABS]; /* the first one is this struct */
};
static_assert(sizeof(struct mst__slab_region) <= SLAB_SIZE, "it is in the place of a slab");
static_assert(SLAB_SIZE / 16 <= UINT16_MAX, "allocations of a slab can be counted");
static_assert(2 * MST_MEM_MAPPED_MIN <= SLAB_SIZE, "two of the largest fit into a slab");

static unsigned class_of(size_t size)
{
    if (size <= 256) {
        return size == 0 ? 0 : (unsigned)((size + 15) / 16 - 1);
    }
    unsigned log2 = 63 - (unsigned)__builtin_clzll((unsigned long long)(size - 1));
    return 16 + (log2 - 8) * 8 + (unsigned)((size - 1) >> (log2 - 3)) - 8;
}

static size_t class_size(unsigned class)
{
    return class < 16 ? (size_t)16 * (class + 1)
                      : ((size_t)9 + (class - 16) % 8) << ((class - 16) / 8 + 5);
}

static uint8_t *slab_memory(const struct mst__slab *slab)
{
    uintptr_t region = (uintptr_t)slab & ~(uintptr_t)(REGION_SIZE - 1);
    size_t index = (size_t)(slab - ((struct mst__slab_region *)region)->slabs);
    return (uint8_t *)region + index * SLAB_SIZE;
}

static struct mst__slab *slab_of(const void *memory)
{
    uintptr_t region = (uintptr_t)memory & ~(uintptr_t)(REGION_SIZE - 1);
    size_t index = ((uintptr_t)memory - region) / SLAB_SIZE;
    return &((struct mst__slab_region *)region)->slabs[index];
}

static void list_enter(struct mst__slab **list, struct mst__slab *slab)
{
    slab->prev = NULL;
    slab->next = *list;
    if (*list != NULL) {
        (*list)->prev = slab;
    }
    *list = slab;
}

static void list_leave(struct mst__slab **list, struct mst__slab *slab)
{
    if (slab->prev == NULL) {
        *list = slab->next;
    } else {
        slab->prev->next = slab->next;
    }
    if (slab->next != NULL) {
        slab->next->prev = slab->prev;
    }
}

static bool slabs_add_region(struct mst__slabs *slabs)
{
    struct mst__slab_region *region = mst__pages_map(REGION_SIZE);
    if (region == NULL) {
        return false;
    }
    region->next = slabs->regions;
    slabs->regions = region;
    for (size_t i = REGION_SLABS - 1; i > 0; i--) { /* so that the lowest is first */
        list_enter(&slabs->cold, &region->slabs[i]);
    }
    return true;
}

/* Turn an empty slab into one of @class; NULL if out of memory. */
static struct mst__slab *slabs_begin(struct mst__slabs *slabs, unsigned class)
{
    struct mst__slab *slab = slabs->warm;
    if (slab != NULL) {
        list_leave(&slabs->warm, slab);
        slabs->warm_count--;
    } else if (slabs->cold != NULL || slabs_add_region(slabs)) {
        slab = slabs->cold;
        list_leave(&slabs->cold, slab);
    } else {
        return NULL;
    }
    slab->class = (uint8_t) class;
    slab->capacity = (uint16_t)(SLAB_SIZE / class_size(class));
    slab->freed = NULL;
    slab->begun = 0;
    slabs->free_size += slab->capacity * class_size(class);
    list_enter(&slabs->with_room[class], slab);
    return slab;
}

static void slabs_end(struct mst__slabs *slabs, struct mst__slab *slab)
{
    list_leave(&slabs->with_room[slab->class], slab);
    slabs->free_size -= slab->capacity * class_size(slab->class);
    if (slabs->warm_count < WARM_MAX) {
        list_enter(&slabs->warm, slab);
        slabs->warm_count++;
    } else {
        list_enter(&slabs->cold, slab);
        mst__pages_give_back(slab_memory(slab), SLAB_SIZE);
    }
}

static bool is_in_slab(const struct mst__slabs *slabs, size_t size)
{
    return !MST_MEM_IS_SANITIZED && slabs != NULL && size < MST_MEM_MAPPED_MIN;
}

void *mst__slab_malloc(struct mst__slabs *slabs, size_t size)
{
    if (!is_in_slab(slabs, size)) {
        return mst__malloc(size);
    }
    unsigned class = class_of(size);
    struct mst__slab *slab = slabs->with_room[class];
    if (mst__mem_must_fail() || (slab == NULL && (slab = slabs_begin(slabs, class)) == NULL)) {
        return NULL;
    }
    uint8_t *memory = slab->freed;
    if (memory != NULL) {
        memcpy(&slab->freed, memory, sizeof slab->freed);
    } else {
        MST_ASSERT(slab->begun < slab->capacity);
        memory = slab_memory(slab) + slab->begun * class_size(class);
        slab->begun++;
    }
    slab->used++;
    slabs->free_size -= class_size(class);
    if (slab->used == slab->capacity) {
        list_leave(&slabs->with_room[class], slab);
    }
    return memory;
}

void mst__slab_free(struct mst__slabs *slabs, void *memory, size_t size)
{
    if (memory == NULL || !is_in_slab(slabs, size)) {
        mst__free(memory);
        return;
    }
    struct mst__slab *slab = slab_of(memory);
    MST_ASSERT(slab->class == class_of(size));
    MST_ASSERT(slab->used > 0);
    memcpy(memory, &slab->freed, sizeof slab->freed);
    slab->freed = memory;
    if (slab->used == slab->capacity) {
        list_enter(&slabs->with_room[slab->class], slab);
    }
    slab->used--;
    slabs->free_size += class_size(slab->class);
    if (slab->used == 0) {
        slabs_end(slabs, slab);
    }
}

void *mst__slab_realloc(struct mst__slabs *slabs, void *memory, size_t old_size, size_t size)
{
    bool was_in_slab = memory != NULL && is_in_slab(slabs, old_size);
    bool will_be = is_in_slab(slabs, size);
    if (!was_in_slab && !will_be) {
        return mst__realloc(memory, size);
    }
    void *moved = mst__slab_malloc(slabs, size);
    if (moved != NULL && memory != NULL) {
        memcpy(moved, memory, old_size < size ? old_size : size);
        mst__slab_free(slabs, memory, old_size);
    }
    return moved;
}

bool mst__slab_is_sparse(const struct mst__slabs *slabs, const void *memory, size_t size)
{
    if (!is_in_slab(slabs, size)) {
        return false;
    }
    const struct mst__slab *slab = slab_of(memory);
    return slab->used < slab->capacity - slab->capacity / 4 &&
           slab != slabs->with_room[slab->class]; /* the next allocation would be in it, too */
}

void mst__slabs_close(struct mst__slabs *slabs)
{
    while (slabs->regions != NULL) {
        struct mst__slab_region *region = slabs->regions;
        slabs->regions = region->next;
        for (size_t i = 1; i < REGION_SLABS; i++) {
            MST_ASSERT(region->slabs[i].used == 0); /* nothing leaks */
        }
        mst__pages_unmap(region, REGION_SIZE);
    }
    *slabs = (struct mst__slabs){0};
}
