/* base/require.h - the arguments of public calls that may not be NULL; <muster/error.h> has the
 * rule. Written at the beginning of a call. Return MST_EINVAL from the call that they stand in,
 * with an error that names the call and the argument. */
#ifndef MST_BASE_REQUIRE_H
#define MST_BASE_REQUIRE_H

#include <muster/error.h>
#include <muster/types.h>

#include "base/err.h"

#define MST_REQUIRE(argument, reterr)                                                       \
    do {                                                                                    \
        if ((argument) == NULL) {                                                           \
            return mst__fail(reterr, MST_EINVAL, 0, "%s: %s is NULL", __func__, #argument); \
        }                                                                                   \
    } while (0)

/* For a struct mst_bytes, which has data unless its size is 0. */
#define MST_REQUIRE_BYTES(bytes, reterr)                                                      \
    do {                                                                                      \
        if ((bytes).data == NULL && (bytes).size > 0) {                                       \
            return mst__fail(reterr, MST_EINVAL, 0, "%s: %s.data is NULL", __func__, #bytes); \
        }                                                                                     \
    } while (0)

/* For an array of @count struct mst_bytes, which may be NULL if there are none. */
#define MST_REQUIRE_LIST(list, count, reterr)                                           \
    do {                                                                                \
        int require_rv = mst__require_list((list), (count), __func__, #list, (reterr)); \
        if (require_rv != 0) {                                                          \
            return require_rv;                                                          \
        }                                                                               \
    } while (0)

int mst__require_list(const struct mst_bytes *list,
                      size_t count,
                      const char *call,
                      const char *name,
                      struct mst_err *reterr);

#endif /* MST_BASE_REQUIRE_H */
