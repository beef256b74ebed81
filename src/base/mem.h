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

/* Allocations from this size on get pages of their own after mst__mem_tune; see base/slab.h for the
 * smaller ones of a server. */
#define MST_MEM_MAPPED_MIN ((size_t)32 << 10)

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MST_MEM_IS_SANITIZED true
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MST_MEM_IS_SANITIZED true
#endif
#ifndef MST_MEM_IS_SANITIZED
#define MST_MEM_IS_SANITIZED false
#endif

/* A copy of @size bytes with a NUL behind them, or NULL. */
char *mst__memdup(const void *data, size_t size);
/* A copy of @text, or NULL. */
char *mst__strdup(const char *text);

/* For a program that is a server and nothing else: large allocations get pages of their own, which
 * go back to the system when they are freed, and leave no holes. */
void mst__mem_tune(void);

/* The resident memory of the process in bytes; 0 = not known, or said by a sanitizer's own. */
size_t mst__mem_resident(void);

/* Let the @nth allocation of this thread from now on fail (1 = the next one); 0 = none. */
void mst__mem_fail_nth(unsigned long nth);
/* Whether the allocation that is about to be made has to fail for that reason. */
bool mst__mem_must_fail(void);
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
