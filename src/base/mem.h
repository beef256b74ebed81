/* base/mem.h - all allocations of the library, so that tests can fail the n-th one. */
#ifndef MST_BASE_MEM_H
#define MST_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

/* As malloc, calloc, realloc and free of the C library; NULL on failure, with @memory unchanged. */
void *mst__malloc(size_t size);
void *mst__calloc(size_t count, size_t size);
void *mst__realloc(void *memory, size_t size);
void mst__free(void *memory);

/* After mst__mem_tune, allocations of at least this size get their own pages; see base/slab.h for
 * the smaller ones of a server. */
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

/* A NUL-terminated copy of @size bytes, or NULL. */
char *mst__memdup(const void *data, size_t size);
/* A copy of @text, or NULL. */
char *mst__strdup(const char *text);

/* For a program that is only a server: large allocations get their own pages, which go back to the
 * system when freed and leave no holes. */
void mst__mem_tune(void);

/* Resident memory of the process in bytes; 0 = unknown, or distorted by a sanitizer. */
size_t mst__mem_resident(void);

/* Make the @nth allocation of this thread from now on fail (1 = the next one); 0 = none. */
void mst__mem_fail_nth(unsigned long nth);
/* Whether the next allocation must fail for that reason. */
bool mst__mem_must_fail(void);
/* Whether that allocation has failed since the last mst__mem_fail_nth. */
bool mst__mem_failed(void);

/* The fault belongs to a thread. A thread that works for another one adopts its fault and gives it
 * back, so that a test of the one covers the other: sets @fault here and returns the previous
 * one. */
struct mst__mem_fault {
    unsigned long countdown;
    bool is_reached;
};
struct mst__mem_fault mst__mem_fault_swap(struct mst__mem_fault fault);

#endif /* MST_BASE_MEM_H */
