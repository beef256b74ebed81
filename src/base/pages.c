/* base/pages.c - memory in whole pages, straight from the system. */
#include "base/pages.h"

#include <stdint.h>
#include <sys/mman.h>

#include "base/assert.h"

void *mst__pages_map(size_t size)
{
    MST_ASSERT((size & (size - 1)) == 0);
    /* Twice the size contains an aligned block; the rest is unmapped. */
    uint8_t *memory = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    size_t before = (size - ((uintptr_t)memory & (size - 1))) & (size - 1);
    if (before > 0) {
        mst__pages_unmap(memory, before);
    }
    mst__pages_unmap(memory + before + size, size - before);
    /* A huge page would be resident as a whole. On kernels without huge pages the call fails, which
     * is fine. */
    (void)madvise(memory + before, size, MADV_NOHUGEPAGE);
    return memory + before;
}

void mst__pages_unmap(void *memory, size_t size)
{
    int rv = munmap(memory, size);
    MST_ASSERT(rv == 0);
}

void mst__pages_give_back(void *memory, size_t size)
{
    int rv = madvise(memory, size, MADV_DONTNEED);
    MST_ASSERT(rv == 0);
}
