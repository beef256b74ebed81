/* agent/scheduler.h - the job and this node, by the variables of a batch system or orchestrator.
 *
 * Read from variables, by a function that tests fake. Each value remembers the variable it comes
 * from. Values that are wrong or missing are left out: a setting that needs one says so. */
#ifndef MST_AGENT_SCHEDULER_H
#define MST_AGENT_SCHEDULER_H

#include <muster/error.h>
#include <stdbool.h>

#include "agent/environment.h"
#include "base/arena.h"

struct mst__scheduler_value {
    const char *text;   /* NULL = not known */
    const char *origin; /* the variable, or a few words */
};

struct mst__scheduler {
    const char *name; /* "Slurm", "Kubernetes", ...; NULL = none */
    struct mst__scheduler_value id;
    struct mst__scheduler_value nnodes;
    struct mst__scheduler_value node_rank;
    struct mst__scheduler_value endpoint; /* host of the first node */
    struct mst__scheduler_value nproc;
    struct mst__scheduler_value cpus;     /* per node or task */
    struct mst__scheduler_value end_time; /* seconds since 1970 at which the job is killed */
    struct mst__scheduler_value hosts;    /* list with ranges, as mst__hosts_parse takes it */
    struct mst__scheduler_value topology;
    bool is_slurm;
};

/* Texts are of @environment, or of @arena. @hostname is this machine's. 0 or MST_ENOMEM. A
 * scheduler that is not there leaves everything zeroed. */
int mst__scheduler_read(struct mst__env environment,
                        const char *hostname,
                        struct mst__arena *arena,
                        struct mst__scheduler *ret_scheduler,
                        struct mst_err *reterr);

#endif /* MST_AGENT_SCHEDULER_H */
