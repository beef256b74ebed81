/* agent/assign.h - the exchange of ranks through the store of a round.
 *
 * Each node says its role and how many workers it has; ranks are prefix sums in the order of the
 * nodes. The keys are those of torch's agents, see docs/protocol.md: the node of rank 0 reads what
 * all have said and tells each its part. torch's agents before 2.4 do not: each reads what all have
 * said. Where they may take part, all of it is written in both ways, and read in either. */
#ifndef MST_AGENT_ASSIGN_H
#define MST_AGENT_ASSIGN_H

#include <muster/rendezvous.h>
#include <stdbool.h>

#include "base/buf.h"

struct mst__assignment {
    int64_t first_rank, world_size;           /* of this node's workers; of all */
    int64_t role_first_rank, role_world_size; /* the same among those of the role */
    char master_addr[256];
    int64_t master_port;
};

struct mst__assign {
    const struct mst_rendezvous *round; /* which has a store */
    const char *role;
    int64_t nproc;
    bool is_shared; /* torch's agents may be in the round */
    int64_t timeout_ms;
};

/* 0; MST_ETIMEOUT, when a node does not answer; MST_ESTATE for an answer without ranks; errors of
 * the store, among them MST_ECANCELED when that was interrupted. */
int mst__assign(const struct mst__assign *assign,
                struct mst__assignment *ret_assignment,
                struct mst_err *reterr);

/* --- the messages as text; no I/O --- */

struct mst__role_info {
    struct mst_bytes role; /* as it stands in the JSON: compared, never shown */
    int64_t nproc;
};

/* Read `{"role": "default", "rank": 0, "local_world_size": 2}`, in any order and with any blanks,
 * within bounds. False = it is none. Borrows from @text. */
bool mst__role_info_read(struct mst_bytes text, struct mst__role_info *ret_info);

/* Read `[0, 4, 0, 4]`. */
bool mst__assigned_ranks_read(struct mst_bytes text, struct mst__assignment *ret_assignment);

/* The parts of all @count nodes, without the master. 0 or MST_ENOMEM. */
int mst__assign_compute(const struct mst__role_info *infos,
                        size_t count,
                        struct mst__assignment *ret_assignments);

/* Write @role as a JSON string of ASCII, as Python does, so that equal roles are equal text. 0,
 * MST_ELIMIT, MST_ENOMEM. */
int mst__role_write(struct mst__buf *text, const char *role);

#endif /* MST_AGENT_ASSIGN_H */
