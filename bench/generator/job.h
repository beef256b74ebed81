/* bench/generator/job.h - thousands of nodes of backend `muster` in one process. */
#ifndef MST_BENCH_JOB_H
#define MST_BENCH_JOB_H

#include <muster/error.h>
#include <sys/types.h>

struct mst__bench_job_options {
    size_t nodes;
    int64_t steady_ms; /* how long to observe idle nodes; 0 = not at all */
};

/* Measured values of a meeting, with any backend; below 0 = not measured. */
struct mst__bench_figures {
    double join_s;
    double floor_s;
    double notice_s; /* from the death of a node until the last other one is notified; includes
                        grace_s */
    double reform_s; /* from there until all have their ranks in the next round */
    double grace_s;  /* how long the server waits for a lost connection to come back */
    double steady_cpu_pct;     /* percent of one core, of the server */
    double steady_bytes_per_s; /* of one node, sent and received */
    double requests_per_node;  /* until all had their rank, without watches */
    double watches_per_node;
    double memory_per_node; /* of the server, bytes */
};

#define MST_BENCH_FIGURES_NONE                 \
    (struct mst__bench_figures)                \
    {                                          \
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 \
    }

/* Measure with its own server in a separate process. 0, MST_ESYS, MST_ECONN, MST_ETIMEOUT,
 * MST_EPROTO, MST_ESTATE (inconsistent outcomes), MST_ENOMEM. */
int mst__bench_job(const struct mst__bench_job_options *options,
                   struct mst__bench_figures *ret_figures,
                   struct mst_err *reterr);

/* Only the floor: as many connections to a bare server in a separate process, one echo each. Call
 * it before there are threads. Returns as above. */
int mst__bench_floor(size_t nodes, double *ret_seconds, struct mst_err *reterr);

#endif /* MST_BENCH_JOB_H */
