/* agent/assign.h - the ranks of a node's workers: from the authority, with the round, or, with
 * backends that have none, by an exchange through the store of the round.
 *
 * In the exchange each node writes its role and its number of workers. Ranks are prefix sums in the
 * order of the nodes. The keys are those of torch's agents, which may be in the round, see
 * docs/protocol.md: the node of rank 0 reads the values of all nodes and writes the ranks of each
 * node. With torch's agents before 2.4, each node reads the values of all nodes instead. A node
 * writes both forms and reads either. */
#ifndef MST_AGENT_ASSIGN_H
#define MST_AGENT_ASSIGN_H

#include <muster/rendezvous.h>
#include <stdbool.h>

#include "base/buf.h"

struct mst__assignment {
    int64_t first_rank, world_size; /* of this node's first worker; number of all workers */
    int64_t role_first_rank, role_world_size; /* both within the role */
    char master_addr[256];
    int64_t master_port;
};

struct mst__assign {
    const struct mst_rendezvous *round; /* must have a store */
    const char *role;
    int64_t nproc;
    int64_t timeout_ms;
};

/* Get the ranks; without a request if the round has them, and the address of the workers' store.
 * Returns 0; MST_ETIMEOUT if a node does not answer; MST_ESTATE if an answer is
 * malformed; or an error of the store, such as MST_ECANCELED if the store was interrupted. */
int mst__assign(const struct mst__assign *assign,
                struct mst__assignment *ret_assignment,
                struct mst_err *reterr);

/* --- the messages as text; no I/O --- */

struct mst__role_info {
    struct mst_bytes role; /* with its JSON escapes; only compared, never shown */
    int64_t nproc;
};

/* Read `{"role": "default", "rank": 0, "local_world_size": 2}`, with members in any order and any
 * blanks. The role is borrowed from @text. Returns false if the text is malformed or a number is
 * out of range. */
bool mst__role_info_read(struct mst_bytes text, struct mst__role_info *ret_info);

/* Read `[0, 4, 0, 4]`. Returns false if the text is malformed or a number is out of range. */
bool mst__assigned_ranks_read(struct mst_bytes text, struct mst__assignment *ret_assignment);

/* Compute the ranks of all @count nodes, without the address of the workers' store. Returns 0 or
 * MST_ENOMEM. */
int mst__assign_compute(const struct mst__role_info *infos,
                        size_t count,
                        struct mst__assignment *ret_assignments);

/* Append @role as a JSON string in ASCII, as Python writes it, so that equal roles have equal text.
 * Returns 0, MST_ELIMIT or MST_ENOMEM. */
int mst__role_write(struct mst__buf *text, const char *role);

#endif /* MST_AGENT_ASSIGN_H */
