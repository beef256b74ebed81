/* cli/job.h - the common part of the commands for a running job. */
#ifndef MST_CLI_JOB_H
#define MST_CLI_JOB_H

#include "agent/control_keys.h"
#include "cli/rdzv.h"

/* The job that the options name. */
struct mst__cli_job {
    struct mst__rdzv rdzv;
    int64_t timeout_ms; /* for each step; 0 = not given, until mst__cli_job_main */
    int64_t end_ms;     /* how long `stop` waits for the agents' end */
    struct mst_params *params;
    struct mst_store *store; /* the job's keys, see agent/control_keys.h */
    const char *instead;     /* advice for backends whose agents take no commands */
    bool needs_queue;        /* the store must have queues; an etcd has none */
};

#define MST_CLI_JOB_DEFAULTS(name, advice)                   \
    {                                                        \
        .rdzv = {MST_RDZV_DEFAULTS(name)}, .instead = advice \
    }

#define MST_CLI_JOB_OPTIONS_WITH(job, timeout_help)                                     \
    MST_RDZV_OPTIONS((job).rdzv, "Which job. Required, here or as MUSTER_RDZV_ID."),    \
    {                                                                                   \
        "timeout", "DURATION", timeout_help, MST_OPTION_DURATION, &(job).timeout_ms, 1, \
            (int64_t)86400 * 1000                                                       \
    }
#define MST_CLI_JOB_OPTIONS(job) \
    MST_CLI_JOB_OPTIONS_WITH(job, "How long to wait for the job. Default 10s.")

/* The action of a command. */
struct mst__cli_job_act {
    /* Carry out the command with the open job. @argument is the first one that is not an option, or
     * NULL. Returns the exit code. */
    int (*fn)(const struct mst__cli_job *job, const char *argument, void *arg);
    /* Called before fn; may be NULL. Returns an error for a missing option, or NULL. */
    const char *(*missing)(const void *arg);
    void *arg;
};

/* Read the options, open the store of the job, call @act, and close the store. Returns the exit
 * code. */
int mst__cli_job_main(struct mst__cli_job *job,
                      const struct mst__usage *usage,
                      const struct mst__cli_job_act *act,
                      int argc,
                      char **argv);

/* Print @err, with advice. Returns the exit code for it. */
int mst__cli_job_fail(const struct mst__cli_job *job, const struct mst_err *err);

/* Send @command and wait until a node carries it out. @ret_node is the name of that node. Returns
 * 0, MST_ETIMEOUT if no node answers, or an error of the store. */
int mst__cli_job_ask(const struct mst__cli_job *job,
                     const struct mst__control_command *command,
                     struct mst_buffer *ret_node,
                     struct mst_err *reterr);

#endif /* MST_CLI_JOB_H */
