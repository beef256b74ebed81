/* core/authority_ranks.h - who gets into a round, and with which rank.
 *
 * Who gets in when there are more than the maximum: members of the last round first, then those who
 * ask for a rank, then whoever waits longest.
 *
 * Ranks are 0 to n - 1. In this order of precedence:
 *   1. pinned: who asks for a rank below n gets it. Of several that ask for the same one, the one
 *      that had it in the last round, else the first in the order of 3; the others count as not
 *      pinned.
 *   2. sticky: who had a rank below n in the last round keeps it, unless a pinned one has it now.
 *   3. the rest fill the free ranks upwards in the order of their labels, for the label keys that
 *      the run is ordered by (rack before host, say), and of their names within equal labels. All
 *      compare in natural order, node2 before node10; who lacks a label comes behind those who have
 *      it. */
#ifndef MST_CORE_AUTHORITY_RANKS_H
#define MST_CORE_AUTHORITY_RANKS_H

#include "core/authority.h"

/* Natural order: runs of digits compare as numbers, everything else as bytes. A total order: equal
 * only if the bytes are. <0, 0, >0. */
int mst__natural_compare(struct mst_bytes a, struct mst_bytes b);

/* Write the indices of those who get in to @chosen, in no particular order; the value is their
 * number, at most @count_max. @chosen and @work have room for all members. */
uint32_t mst__authority_choose(struct mst__authority *authority,
                               uint32_t count_max,
                               uint32_t *chosen,
                               uint32_t *work);

/* Give the members @chosen, which are reordered, ranks: @ret_roster is filled with their indices by
 * rank. Their previous ranks are in member->rank. */
void mst__authority_assign(struct mst__authority *authority,
                           uint32_t *chosen,
                           uint32_t count,
                           uint32_t *work,
                           uint32_t *ret_roster);

#endif /* MST_CORE_AUTHORITY_RANKS_H */
