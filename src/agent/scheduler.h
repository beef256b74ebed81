/* agent/scheduler.h - the job and this node, as described by a batch system or orchestrator in its
 * variables.
 *
 * The environment is a function, which tests replace. Each value has the name of its variable.
 * Values that are wrong or missing are left out; a setting that needs one reports that. */
#ifndef MST_AGENT_SCHEDULER_H
#define MST_AGENT_SCHEDULER_H

#include <muster/error.h>
#include <stdbool.h>

#include "agent/environment.h"
#include "base/arena.h"

struct mst__scheduler_value {
    const char *text;   /* NULL = not known */
    const char *origin; /* name of the variable, or a few words */
};

struct mst__scheduler {
    const char *name; /* "Slurm", "Kubernetes", ...; NULL = none */
    struct mst__scheduler_value id;
    struct mst__scheduler_value nnodes;
    struct mst__scheduler_value node_rank;
    struct mst__scheduler_value endpoint; /* host of the first node */
    struct mst__scheduler_value nproc;
    struct mst__scheduler_value cpus;     /* per node or task */
    struct mst__scheduler_value end_time; /* when the job is killed, in seconds since 1970 */
    struct mst__scheduler_value hosts;    /* list with ranges, for mst__hosts_parse */
    struct mst__scheduler_value topology;
    /* If nodes have several tasks: the place of this one on its node, and how many are there. */
    struct mst__scheduler_value local_rank, local_size;
    /* This is a batch script, which runs on one of so many nodes; nnodes is not known then. */
    struct mst__scheduler_value batch_nodes;
    const char *slurm_job; /* for squeue; NULL = not Slurm */
};

/* Read the variables of the scheduler. Texts belong to @environment or are in @arena. @hostname is
 * this machine's. Without a scheduler, @ret_scheduler is zeroed. Returns 0 or MST_ENOMEM. */
int mst__scheduler_read(struct mst__env environment,
                        const char *hostname,
                        struct mst__arena *arena,
                        struct mst__scheduler *ret_scheduler,
                        struct mst_err *reterr);

#endif /* MST_AGENT_SCHEDULER_H */
