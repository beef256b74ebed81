/* snapshot/fold.h - shortens lists of names: n[1-1999]. */
#ifndef MST_SNAPSHOT_FOLD_H
#define MST_SNAPSHOT_FOLD_H

#include "base/buf.h"

/* `node7` of `node7_4711_803`; all of it if it has another form. */
struct mst_bytes mst__fold_host(struct mst_bytes node);

/* Append @names, in which equal names and successive numbers are neighbours, separated by commas.
 * Three or more that differ in one number, each larger by one than the one before, are written as
 * `n[1-3]` or `n[08-10]`; equal ones once. After MST_NAMES_SHOWN parts follows the number of
 * remaining names. The first error is kept in @rv; later calls do nothing. */
void mst__fold_put(struct mst__buf *text, int *rv, const struct mst_bytes *names, size_t count);

#endif /* MST_SNAPSHOT_FOLD_H */
