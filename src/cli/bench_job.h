/* cli/bench_job.h - thousands of nodes of backend `muster` in one process. */
#ifndef MST_CLI_BENCH_JOB_H
#define MST_CLI_BENCH_JOB_H

#include <muster/error.h>
#include <stdbool.h>
#include <sys/types.h>

struct mst__bench_job_options {
    size_t nodes;
    int64_t steady_ms; /* how long to look at nodes at rest; 0 = not at all */
    bool floor;        /* measure connections with one echo each, too */
};

/* What was measured; below 0 = was not. */
struct mst__bench_job_result {
    double join_s;
    double floor_s;
    double notice_s; /* from the death of a node until the last other one was told; with grace_s */
    double reform_s; /* from there until all have their ranks in the next round */
    double grace_s;  /* for which the server waits for a lost connection to come back */
    double steady_cpu_pct;     /* of one core, the server */
    double steady_bytes_per_s; /* of one node, both ways */
    double requests_per_node;  /* until it had its rank */
    double memory_per_node;    /* of the server, bytes */
};

/* With a server of its own, in a process of its own. 0, MST_ESYS, MST_ECONN, MST_ETIMEOUT,
 * MST_EPROTO, MST_ESTATE (outcomes that do not fit), MST_ENOMEM. */
int mst__bench_job(const struct mst__bench_job_options *options,
                   struct mst__bench_job_result *ret_result,
                   struct mst_err *reterr);

#endif /* MST_CLI_BENCH_JOB_H */
