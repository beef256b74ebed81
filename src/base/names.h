/* base/names.h - lists of names with ranges of numbers: `a,node[01-16,20],r[1-2]n[1-4]`. */
#ifndef MST_BASE_NAMES_H
#define MST_BASE_NAMES_H

#include <muster/error.h>

/* Called for each name, in order; a result other than 0 ends the walk. */
typedef int (*mst__names_fn)(void *arg, const char *name, struct mst_err *reterr);

/**
 * Walk the names of @text. Numbers have the leading zeros of the first number of their range.
 *
 * Returns 0, MST_EINVAL for a malformed list, or the result of @fn. Names may repeat.
 */
int mst__names_walk(const char *text, mst__names_fn fn, void *arg, struct mst_err *reterr);

#endif /* MST_BASE_NAMES_H */
