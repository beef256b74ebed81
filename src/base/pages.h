/* base/pages.h - memory in whole pages, straight from the system. */
#ifndef MST_BASE_PAGES_H
#define MST_BASE_PAGES_H

#include <stddef.h>

/* @size zeroed bytes, a power of two and more than a page, at a multiple of @size; NULL when the
 * system has none. A page is resident once it is written to. */
void *mst__pages_map(size_t size);
void mst__pages_unmap(void *memory, size_t size);

/* The pages of @memory are not resident any more, and zeroed; they can be used as before. */
void mst__pages_give_back(void *memory, size_t size);

#endif /* MST_BASE_PAGES_H */
