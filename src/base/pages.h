/* base/pages.h - memory in whole pages, straight from the system. */
#ifndef MST_BASE_PAGES_H
#define MST_BASE_PAGES_H

#include <stddef.h>

/* @size zeroed bytes at a multiple of @size, which is a power of two and more than a page; NULL if
 * out of memory. A page is resident once it is written. */
void *mst__pages_map(size_t size);
void mst__pages_unmap(void *memory, size_t size);

/* Give the pages of @memory back to the system. They read as zeros and can be used again. */
void mst__pages_give_back(void *memory, size_t size);

#endif /* MST_BASE_PAGES_H */
