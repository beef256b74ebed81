/* base/mem.c - allocation with a countdown for fault injection. The countdown belongs to a thread,
 * so that a test can fail one side of a conversation only. */
#include "base/mem.h"

#include <fcntl.h>
#include <muster/types.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/assert.h"

static _Thread_local unsigned long fail_countdown;
static _Thread_local bool fail_reached;

bool mst__mem_must_fail(void)
{
    if (MST_LIKELY(fail_countdown == 0)) {
        return false;
    }
    fail_countdown--;
    if (fail_countdown > 0) {
        return false;
    }
    fail_reached = true;
    return true;
}

void *mst__malloc(size_t size)
{
    return mst__mem_must_fail() ? NULL : malloc(size);
}

void *mst__calloc(size_t count, size_t size)
{
    return mst__mem_must_fail() ? NULL : calloc(count, size);
}

void *mst__realloc(void *memory, size_t size)
{
    MST_ASSERT(size > 0);
    return mst__mem_must_fail() ? NULL : realloc(memory, size);
}

void mst__free(void *memory)
{
    free(memory);
}

char *mst__memdup(const void *data, size_t size)
{
    if (size == SIZE_MAX) {
        return NULL;
    }
    char *copy = mst__malloc(size + 1);
    if (copy == NULL) {
        return NULL;
    }
    if (size > 0) {
        memcpy(copy, data, size);
    }
    copy[size] = '\0';
    return copy;
}

char *mst__strdup(const char *text)
{
    return mst__memdup(text, strlen(text));
}

void mst__mem_tune(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, (int)MST_MEM_MAPPED_MIN); /* without it, the heap stays as it
                                                                 is */
#endif
}

size_t mst__mem_resident(void)
{
    char text[128];
    ssize_t size = -1;
    int fd = MST_MEM_IS_SANITIZED ? -1 : open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        size = read(fd, text, sizeof text - 1);
        (void)close(fd); /* the descriptor was only read */
    }
    if (size <= 0) {
        return 0;
    }
    text[size] = '\0';
    /* Pages: all, resident, … */
    const char *second = strchr(text, ' ');
    long page_size = sysconf(_SC_PAGESIZE);
    return second == NULL || page_size < 0 ? 0
                                           : (size_t)strtoull(second, NULL, 10) * (size_t)page_size;
}

struct mst__mem_fault mst__mem_fault_swap(struct mst__mem_fault fault)
{
    const struct mst__mem_fault before = {.countdown = fail_countdown, .is_reached = fail_reached};
    fail_countdown = fault.countdown;
    fail_reached = fault.is_reached;
    return before;
}

void mst__mem_fail_nth(unsigned long nth)
{
    fail_countdown = nth;
    fail_reached = false;
}

bool mst__mem_failed(void)
{
    return fail_reached;
}

void mst_buffer_free(struct mst_buffer *buffer)
{
    if (buffer != NULL) {
        mst__free(buffer->data);
        *buffer = (struct mst_buffer){0};
    }
}
