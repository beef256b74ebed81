/* base/mem.h - all allocation goes through here, so that tests can fail the n-th one. */
#ifndef MST_BASE_MEM_H
#define MST_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

/* As malloc, calloc, realloc, free of the C library; NULL on failure, @memory is then unchanged. */
void *mst__malloc(size_t size);
void *mst__calloc(size_t count, size_t size);
void *mst__realloc(void *memory, size_t size);
void mst__free(void *memory);

/* A copy of @size bytes with a NUL behind them, or NULL. */
char *mst__memdup(const void *data, size_t size);
/* A copy of @text, or NULL. */
char *mst__strdup(const char *text);

/* Let the @nth allocation of this thread from now on fail (1 = the next one); 0 = none. */
void mst__mem_fail_nth(unsigned long nth);
/* Whether that allocation has been reached and failed since the last mst__mem_fail_nth. */
bool mst__mem_failed(void);

#endif /* MST_BASE_MEM_H */
