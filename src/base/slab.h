/* base/slab.h - small allocations whose memory goes back to the system piece by piece.
 *
 * Allocations of about the same size lie together in slabs of 64 KiB. A slab that becomes empty
 * gives its pages back at once, or serves allocations of another size. So no call costs more than
 * the bytes of a slab, however large the heap is and whatever was freed before: the C library's own
 * heap has to be searched for its holes as a whole. Large allocations are pages of their own. */
#ifndef MST_BASE_SLAB_H
#define MST_BASE_SLAB_H

#include <stddef.h>

#include "base/mem.h"

/* Classes of sizes: steps of 16 bytes up to 256, then 8 for each power of two, up to
 * MST_MEM_MAPPED_MIN. */
#define MST_SLAB_CLASSES 72

struct mst__slab;
struct mst__slab_region;

/* Zeroed: empty. Belongs to one thread at a time. */
struct mst__slabs {
    struct mst__slab *with_room[MST_SLAB_CLASSES]; /* slabs that are neither full nor empty */
    struct mst__slab *warm, *cold;                 /* empty ones, whose pages are here, or gone */
    size_t warm_count;
    struct mst__slab_region *regions;
    size_t free_size; /* bytes that are free in slabs that are not empty */
};

/* Nothing of it is used any more. It is empty then. */
void mst__slabs_close(struct mst__slabs *slabs);

/* As mst__malloc, mst__realloc and mst__free, which they are if @slabs is NULL; @size and @old_size
 * are what was asked for. With a sanitizer they are, too, so that it sees every allocation. */
void *mst__slab_malloc(struct mst__slabs *slabs, size_t size);
void *mst__slab_realloc(struct mst__slabs *slabs, void *memory, size_t old_size, size_t size);
void mst__slab_free(struct mst__slabs *slabs, void *memory, size_t size);

/* Whether @memory is in a slab that is mostly empty, so that it should be moved: another allocation
 * is in a slab that is fuller, or gets so. */
bool mst__slab_is_sparse(const struct mst__slabs *slabs, const void *memory, size_t size);

/* What an allocation of @size bytes takes from the system, for memory accounting. */
static inline size_t mst__slab_cost(size_t size)
{
    if (size >= MST_MEM_MAPPED_MIN) {
        return (size + 16 + 4095) & ~(size_t)4095; /* with what the C library puts before it */
    }
    if (size <= 256) {
        return size == 0 ? 16 : (size + 15) & ~(size_t)15;
    }
    size_t step = (size_t)1 << (63 - __builtin_clzll((unsigned long long)(size - 1)) - 3);
    return (size + step - 1) & ~(step - 1);
}

#endif /* MST_BASE_SLAB_H */
