/* net/job_log.h - the life of jobs in the log, and counted for the metrics page. */
#ifndef MST_NET_JOB_LOG_H
#define MST_NET_JOB_LOG_H

#include "core/job_message.h"

/* Bounds of the histogram of seconds until a round was complete; all else is beyond them. */
#define MST_JOB_SECONDS_MAP(X) \
    X("0.1", 100000)           \
    X("0.3", 300000)           \
    X("1", 1000000)            \
    X("3", 3000000)            \
    X("10", 10000000)          \
    X("30", 30000000)          \
    X("100", 100000000)        \
    X("300", 300000000)        \
    X("1000", 1000000000)
#define MST_JOB_SECONDS_COUNT 10

/* What has happened, of one job or of all. */
struct mst__job_tally {
    uint64_t rounds;                           /* completed here */
    uint64_t gathering_us;                     /* until they were, all together */
    uint64_t ended[MST_AUTHORITY_ENDED_COUNT]; /* sessions */
    uint64_t restarts;                         /* rounds that were over because work had failed */
    uint64_t outcomes[MST_JOB_OUTCOME_COUNT];  /* jobs that were closed */
};

/* A job's story. Zeroed, but for open_us: nothing has happened yet. */
struct mst__job_life {
    bool is_founded;                              /* a node was accepted */
    const struct mst__announcement *announcement; /* that is being given to the authority */
    int64_t open_us; /* since when nodes wait for a round; INT64_MAX = nobody does */
    struct mst__job_tally tally;
};

/* How jobs stand at the moment. */
struct mst__job_metrics {
    struct mst_bytes run_id; /* borrowed from the job */
    uint32_t standings[MST_STANDING_COUNT];
    struct mst__job_tally tally;
};

struct mst__jobs_metrics {
    size_t runs;    /* run ids that the server is the authority of */
    size_t members; /* nodes in all of them */
    uint64_t standings[MST_STANDING_COUNT];
    struct mst__job_tally tally;             /* of all that were ever here */
    uint64_t seconds[MST_JOB_SECONDS_COUNT]; /* rounds by how long they took to be complete */
    struct mst__job_metrics jobs[MST_METRICS_JOBS_MAX]; /* with nodes; the oldest ones */
    size_t jobs_count;
    size_t jobs_unlisted; /* with nodes, and not in @jobs */
};

struct mst__job;
struct mst_server;

/* Let the authority of @job, which @options are for, tell what happens. */
void mst__job_log_init(struct mst__job *job, struct mst__authority_options *options);

/* @announcement is given to the authority of @job, and then has been, which @is_accepted or not. */
void mst__job_log_announcing(struct mst__job *job, const struct mst__announcement *announcement);
void mst__job_log_announced(struct mst__job *job, bool is_accepted);

/* The node @id, which lives, says this; before the authority hears it. */
void mst__job_log_finish(const struct mst__job *job,
                         mst__authority_id id,
                         const struct mst__job_finish *finish);
void mst__job_log_restart(const struct mst__job *job,
                          mst__authority_id id,
                          const struct mst__job_restart *restart);

/* @job is forgotten. */
void mst__job_log_forgotten(const struct mst__job *job);

void mst__jobs_measure(const struct mst_server *server, struct mst__jobs_metrics *ret_metrics);

#endif /* MST_NET_JOB_LOG_H */
