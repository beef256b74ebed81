/* core/authority_ranks.h - admission to a round, and ranks.
 *
 * If there are more nodes than the maximum, members of the last round come first, then nodes that
 * ask for a rank, then those that have waited longest.
 *
 * Ranks are 0 to n - 1. In this order of precedence:
 *   1. pinned: a node that asks for a rank below n gets it. If several ask for the same one, the
 *      node that had it in the last round, else the first in the order of 3; the others count as
 *      not pinned.
 *   2. sticky: a node that had a rank below n in the last round keeps it, unless it is pinned.
 *   3. the rest fills the free ranks upwards in the order of their labels, by the label keys of
 *      the run (rack before host, say), and of their names within equal labels. All compare in
 *      natural order, node2 before node10; a node without a label comes after those that have
 *      it. */
#ifndef MST_CORE_AUTHORITY_RANKS_H
#define MST_CORE_AUTHORITY_RANKS_H

#include "core/authority.h"

/* Natural order: runs of digits compare as numbers, other characters as bytes. A total order: equal
 * only if the bytes are. <0, 0, >0. */
int mst__natural_compare(struct mst_bytes a, struct mst_bytes b);

/* Write the indices of the admitted members to @chosen, in no particular order; returns their
 * number, at most @count_max. @chosen and @work have room for all members. */
uint32_t mst__authority_choose(struct mst__authority *authority,
                               uint32_t count_max,
                               uint32_t *chosen,
                               uint32_t *work);

/* Assign ranks to the members @chosen, which are reordered: @ret_roster gets their indices by rank.
 * Their previous ranks are in member->rank. */
void mst__authority_assign(struct mst__authority *authority,
                           uint32_t *chosen,
                           uint32_t count,
                           uint32_t *work,
                           uint32_t *ret_roster);

/* Number the workers of the members in @roster, by rank. @by_role and @work have room for
 * @count. */
void mst__authority_number_workers(struct mst__authority *authority,
                                   const uint32_t *roster,
                                   uint32_t count,
                                   uint32_t *by_role,
                                   uint32_t *work);

#endif /* MST_CORE_AUTHORITY_RANKS_H */
