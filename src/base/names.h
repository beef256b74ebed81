/* base/names.h - lists of names with ranges of numbers: `a,node[01-16,20],r[1-2]n[1-4]`. */
#ifndef MST_BASE_NAMES_H
#define MST_BASE_NAMES_H

#include <muster/error.h>

/* Called for each name, in order; what it returns but 0 ends the walk. */
typedef int (*mst__names_fn)(void *arg, const char *name, struct mst_err *reterr);

/**
 * Walk the names of @text, numbers with the leading zeros of the first one of a range.
 *
 * Returns 0, MST_EINVAL for a text that is no such list, or what @fn returned. Names may come
 * twice.
 */
int mst__names_walk(const char *text, mst__names_fn fn, void *arg, struct mst_err *reterr);

#endif /* MST_BASE_NAMES_H */
