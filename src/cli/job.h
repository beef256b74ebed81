/* cli/job.h - what the commands that talk to a running job share. */
#ifndef MST_CLI_JOB_H
#define MST_CLI_JOB_H

#include "agent/control_keys.h"
#include "cli/rdzv.h"

/* A job, as the options say. */
struct mst__cli_job {
    struct mst__rdzv rdzv;
    int64_t timeout_ms;
    struct mst_params *params;
    struct mst_store *store; /* of its keys, see agent/control_keys.h */
    const char *instead;     /* what to do where agents listen to nobody */
    bool needs_queue;        /* of the store; an etcd has none */
};

#define MST_CLI_JOB_DEFAULTS(name, advice)                                            \
    {                                                                                 \
        .rdzv = {MST_RDZV_DEFAULTS(name)}, .timeout_ms = 10 * 1000, .instead = advice \
    }

#define MST_CLI_JOB_OPTIONS(job)                                                                  \
    MST_RDZV_OPTIONS((job).rdzv, "Which job. Required, here or as MUSTER_RDZV_ID."),              \
    {                                                                                             \
        "timeout", "DURATION", "How long to wait for the job. Default 10s.", MST_OPTION_DURATION, \
            &(job).timeout_ms, 1, (int64_t)86400 * 1000                                           \
    }

/* What a command does. */
struct mst__cli_job_act {
    /* With the job open, and the first argument that is no option, NULL if there is none: what to
     * exit with. */
    int (*fn)(const struct mst__cli_job *job, const char *argument, void *arg);
    /* Before that: what the options lack, or NULL. The function is optional. */
    const char *(*missing)(const void *arg);
    void *arg;
};

/* Read the options, open the store of the job, act, and close it: what to exit with. */
int mst__cli_job_main(struct mst__cli_job *job,
                      const struct mst__usage *usage,
                      const struct mst__cli_job_act *act,
                      int argc,
                      char **argv);

/* Print @err, with advice; returns the exit code that fits. */
int mst__cli_job_fail(const struct mst__cli_job *job, const struct mst_err *err);

/* Send @command and wait for the node that carries it out: its name. 0, or an error of the store;
 * MST_ETIMEOUT when no node answers. */
int mst__cli_job_ask(const struct mst__cli_job *job,
                     const struct mst__control_command *command,
                     struct mst_buffer *ret_node,
                     struct mst_err *reterr);

#endif /* MST_CLI_JOB_H */
