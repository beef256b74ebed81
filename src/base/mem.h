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

/* What an allocation of @size bytes takes from the system, for memory accounting. It is how the C
 * library of GNU does it: 8 bytes before each, steps of 16, at least 32; and from
 * MST_MEM_MAPPED_MIN on, after mst__mem_tune, pages of their own. */
#define MST_MEM_MAPPED_MIN ((size_t)32 << 10)
static inline size_t mst__mem_cost(size_t size)
{
    if (size >= MST_MEM_MAPPED_MIN) {
        return (size + 16 + 4095) & ~(size_t)4095;
    }
    return size <= 24 ? 32 : (size + 8 + 15) & ~(size_t)15;
}

/* A copy of @size bytes with a NUL behind them, or NULL. */
char *mst__memdup(const void *data, size_t size);
/* A copy of @text, or NULL. */
char *mst__strdup(const char *text);

/* For a program that is a server and nothing else: large allocations get pages of their own, which
 * go back to the system when they are freed, and leave no holes. */
void mst__mem_tune(void);

/* Give the free pages between allocations back to the system. It looks at every hole. */
void mst__mem_trim(void);

/* The resident memory of the process in bytes; 0 = not known, or said by a sanitizer's own. */
size_t mst__mem_resident(void);

/* Let the @nth allocation of this thread from now on fail (1 = the next one); 0 = none. */
void mst__mem_fail_nth(unsigned long nth);
/* Whether that allocation has been reached and failed since the last mst__mem_fail_nth. */
bool mst__mem_failed(void);

/* Both are of a thread. One that works for another one takes its fault over and gives it back, so
 * that a test of the one covers the other: sets @fault here and returns what was set. */
struct mst__mem_fault {
    unsigned long countdown;
    bool is_reached;
};
struct mst__mem_fault mst__mem_fault_swap(struct mst__mem_fault fault);

#endif /* MST_BASE_MEM_H */
