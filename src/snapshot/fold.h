/* snapshot/fold.h - many names in few words: n[1-1999]. */
#ifndef MST_SNAPSHOT_FOLD_H
#define MST_SNAPSHOT_FOLD_H

#include "base/buf.h"

/* `node7` of `node7_4711_803`; all of it when it has another form. */
struct mst_bytes mst__fold_host(struct mst_bytes node);

/* Append @names, of which equal ones and successive numbers are neighbours, with commas between
 * them. Three or more that differ in one number, each larger by one than that before it, are told
 * as `n[1-3]` or `n[08-10]`; equal ones once. After MST_NAMES_SHOWN of such parts comes how many
 * names are left. The first error is kept in @rv, and nothing is done after it. */
void mst__fold_put(struct mst__buf *text, int *rv, const struct mst_bytes *names, size_t count);

#endif /* MST_SNAPSHOT_FOLD_H */
