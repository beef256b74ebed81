/* net/job_log.h - the life of jobs in the log and in the metrics. */
#ifndef MST_NET_JOB_LOG_H
#define MST_NET_JOB_LOG_H

#include "core/job_message.h"
#include "net/job_losses.h"

/* Upper bounds of the histogram of seconds until a round was complete. */
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

/* Counters of one job or of all. */
struct mst__job_tally {
    uint64_t rounds;                           /* completed here */
    uint64_t gathering_us;                     /* total time until they were complete */
    uint64_t ended[MST_AUTHORITY_ENDED_COUNT]; /* ended sessions */
    uint64_t restarts;                         /* rounds that ended with a failure */
    uint64_t outcomes[MST_JOB_OUTCOME_COUNT];  /* closed jobs */
};

/* The story of a job. Zeroed, except open_us: nothing has happened yet. */
struct mst__job_life {
    bool is_founded;                              /* a node was accepted */
    const struct mst__announcement *announcement; /* currently given to the authority */
    int64_t open_us; /* since when nodes wait for a round; INT64_MAX = none does */
    struct mst__job_tally tally;
    struct mst__job_losses losses;
};

/* The present state of jobs. */
struct mst__job_metrics {
    struct mst_bytes run_id; /* borrowed from the job */
    uint32_t standings[MST_STANDING_COUNT];
    struct mst__job_tally tally;
};

struct mst__jobs_metrics {
    size_t runs;    /* run ids of the server */
    size_t members; /* nodes in all of them */
    uint64_t standings[MST_STANDING_COUNT];
    struct mst__job_tally tally;             /* all jobs since the start */
    uint64_t seconds[MST_JOB_SECONDS_COUNT]; /* rounds by the time until they were complete */
    struct mst__job_metrics *jobs;           /* jobs with nodes; those that have changed last */
    size_t jobs_count;
    size_t jobs_unlisted; /* jobs with nodes that are not in @jobs */
};

struct mst__job;
struct mst_server;

/* Make the authority of @job, created with @options, report its events. */
void mst__job_log_init(struct mst__job *job, struct mst__authority_options *options);

/* Called before and after @announcement is given to the authority of @job; @is_accepted is the
 * result. */
void mst__job_log_announcing(struct mst__job *job, const struct mst__announcement *announcement);
void mst__job_log_announced(struct mst__job *job, bool is_accepted);

/* Called before the authority processes this message of the living node @id. */
void mst__job_log_finish(const struct mst__job *job,
                         mst__authority_id id,
                         const struct mst__job_finish *finish);
void mst__job_log_leaving(const struct mst__job *job,
                          mst__authority_id id,
                          const struct mst__job_leaving *leaving);
void mst__job_log_restart(const struct mst__job *job,
                          mst__authority_id id,
                          const struct mst__job_restart *restart);

/* @job is forgotten; without a story, nobody is told. */
void mst__job_log_forgotten(struct mst__job *job, bool has_story);

/* @jobs has room for MST_METRICS_JOBS_MAX jobs, or for all; the caller keeps it. */
void mst__jobs_measure(const struct mst_server *server,
                       struct mst__job_metrics *jobs,
                       struct mst__jobs_metrics *ret_metrics);

#endif /* MST_NET_JOB_LOG_H */
