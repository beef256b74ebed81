/* base/slab.h - small allocations whose memory goes back to the system in pieces.
 *
 * Allocations of about the same size share slabs of 64 KiB. A slab that becomes empty gives its
 * pages back at once, or serves allocations of another size. So no call costs more than the bytes
 * of a slab, however large the heap is; the C library's heap must be searched for holes as a whole.
 * Large allocations get their own pages. */
#ifndef MST_BASE_SLAB_H
#define MST_BASE_SLAB_H

#include <stddef.h>

#include "base/mem.h"

/* Size classes: steps of 16 bytes up to 256, then 8 for each power of two, up to
 * MST_MEM_MAPPED_MIN. */
#define MST_SLAB_CLASSES 72

struct mst__slab;
struct mst__slab_region;

/* Zeroed: empty. Belongs to one thread at a time. */
struct mst__slabs {
    struct mst__slab *with_room[MST_SLAB_CLASSES]; /* slabs that are neither full nor empty */
    struct mst__slab *warm, *cold;                 /* empty slabs with pages, and without */
    size_t warm_count;
    struct mst__slab_region *regions;
    size_t free_size; /* free bytes in slabs that are not empty */
};

/* Release all regions. No allocation may be left; @slabs is empty then. */
void mst__slabs_close(struct mst__slabs *slabs);

/* As mst__malloc, mst__realloc and mst__free, which are used if @slabs is NULL; @size and @old_size
 * are the requested sizes. They are also used under a sanitizer, so that it sees every
 * allocation. */
void *mst__slab_malloc(struct mst__slabs *slabs, size_t size);
void *mst__slab_realloc(struct mst__slabs *slabs, void *memory, size_t old_size, size_t size);
void mst__slab_free(struct mst__slabs *slabs, void *memory, size_t size);

/* Whether the slab of @memory is mostly empty, so that @memory should be moved to a fuller one. */
bool mst__slab_is_sparse(const struct mst__slabs *slabs, const void *memory, size_t size);

/* Bytes that an allocation of @size takes from the system, for memory accounting. */
static inline size_t mst__slab_cost(size_t size)
{
    if (size >= MST_MEM_MAPPED_MIN) {
        return (size + 16 + 4095) & ~(size_t)4095; /* with the header of the C library */
    }
    if (size <= 256) {
        return size == 0 ? 16 : (size + 15) & ~(size_t)15;
    }
    size_t step = (size_t)1 << (63 - __builtin_clzll((unsigned long long)(size - 1)) - 3);
    return (size + step - 1) & ~(step - 1);
}

#endif /* MST_BASE_SLAB_H */
