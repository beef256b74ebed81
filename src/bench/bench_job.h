/* bench/bench_job.h - thousands of nodes of backend `muster` in one process. */
#ifndef MST_BENCH_BENCH_JOB_H
#define MST_BENCH_BENCH_JOB_H

#include <muster/error.h>
#include <sys/types.h>

struct mst__bench_job_options {
    size_t nodes;
    int64_t steady_ms; /* how long to look at nodes at rest; 0 = not at all */
};

/* What was measured of nodes that meet, with whichever backend; below 0 = was not. */
struct mst__bench_figures {
    double join_s;
    double floor_s;
    double notice_s; /* from the death of a node until the last other one was told; with grace_s */
    double reform_s; /* from there until all have their ranks in the next round */
    double grace_s;  /* for which the server waits for a lost connection to come back */
    double steady_cpu_pct;     /* of one core, the server */
    double steady_bytes_per_s; /* of one node, both ways */
    double requests_per_node;  /* until all had their rank, but for watches */
    double watches_per_node;
    double memory_per_node; /* of the server, bytes */
};

#define MST_BENCH_FIGURES_NONE                 \
    (struct mst__bench_figures)                \
    {                                          \
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 \
    }

/* With a server of its own, in a process of its own. 0, MST_ESYS, MST_ECONN, MST_ETIMEOUT,
 * MST_EPROTO, MST_ESTATE (outcomes that do not fit), MST_ENOMEM. */
int mst__bench_job(const struct mst__bench_job_options *options,
                   struct mst__bench_figures *ret_figures,
                   struct mst_err *reterr);

/* The floor alone: so many connections to a bare server in a process of its own, one echo each. To
 * be called before there are threads. Returns as above. */
int mst__bench_floor(size_t nodes, double *ret_seconds, struct mst_err *reterr);

#endif /* MST_BENCH_BENCH_JOB_H */
