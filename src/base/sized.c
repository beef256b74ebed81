/* base/sized.c - copies between structs of different sizes. */
#include "base/sized.h"

#include <string.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/limits.h"

static size_t size_of(const void *given)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

int mst__sized_check(const void *given, const char *name, struct mst_err *reterr)
{
    size_t size = size_of(given);
    if (size < sizeof size || size > MST_SIZED_MAX) {
        return mst__fail(reterr, MST_EINVAL, 0, "size %zu of struct %s; set it up with %s_init",
                         size, name, name);
    }
    return 0;
}

void mst__sized_init(void *to, size_t size, const void *defaults, size_t defaults_size)
{
    if (to == NULL || size < sizeof size) {
        return;
    }
    memset(to, 0, size);
    if (defaults != NULL) {
        memcpy(to, defaults, size < defaults_size ? size : defaults_size);
    }
    memcpy(to, &size, sizeof size);
}

int mst__sized_take(void *to,
                    size_t to_size,
                    const void *given,
                    const char *name,
                    struct mst_err *reterr)
{
    int rv = mst__sized_check(given, name, reterr);
    if (rv != 0) {
        return rv;
    }
    size_t size = size_of(given);
    for (size_t i = to_size; i < size; i++) {
        if (((const unsigned char *)given)[i] != 0) {
            return mst__fail(reterr, MST_ENOTSUP, 0,
                             "struct %s of size %zu has a field set that this muster, with size "
                             "%zu, does not know; use a newer one",
                             name, size, to_size);
        }
    }
    memcpy(to, given, size < to_size ? size : to_size);
    memcpy(to, &to_size, sizeof to_size);
    return 0;
}

void mst__sized_give(void *ret, const void *from, size_t from_size)
{
    size_t size = size_of(ret);
    MST_ASSERT(size >= sizeof size);
    MST_ASSERT(size <= MST_SIZED_MAX);
    mst__sized_init(ret, size, from, from_size);
}
