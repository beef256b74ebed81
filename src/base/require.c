/* base/require.c - refuses lists of bytes with NULL in them. */
#include "base/require.h"

int mst__require_list(const struct mst_bytes *list,
                      size_t count,
                      const char *call,
                      const char *name,
                      struct mst_err *reterr)
{
    if (list == NULL && count > 0) {
        return mst__fail(reterr, MST_EINVAL, 0, "%s: %s is NULL", call, name);
    }
    for (size_t i = 0; i < count; i++) {
        if (list[i].data == NULL && list[i].size > 0) {
            return mst__fail(reterr, MST_EINVAL, 0, "%s: %s[%zu].data is NULL", call, name, i);
        }
    }
    return 0;
}
