/* agent/worker_env.h - the arguments and the whole environment of one worker. No I/O. */
#ifndef MST_AGENT_WORKER_ENV_H
#define MST_AGENT_WORKER_ENV_H

#include "agent/settings.h"

/* A worker's place in its round. Texts are borrowed; NULL = not known: the variable is not set, and
 * that of the error file is empty. */
struct mst__worker_place {
    int64_t rank, world_size;
    int64_t local_rank, local_world_size;
    int64_t group_rank, group_world_size;
    int64_t role_rank, role_world_size;
    const char *master_addr;
    int64_t master_port;
    bool use_agent_store; /* a store is served at that address */
    int64_t round;
    int64_t restart_count;
    int64_t generation;       /* the first is 1 */
    const char *start_reason; /* "first", "failure", ... */
    int64_t prev_world_size;  /* 0 = none */
    const char *store_url;    /* of the round's store */
    const char *error_file;
    const char *ack_file;
    const char *heartbeat_file;
    const char *timer_file; /* pipe of agent/watchdog.h */
};

/* In the arena; inherited variables are borrowed. */
struct mst__worker_command {
    char **argv;
    char **environment;
    size_t own_count; /* variables that are set here, the first ones in @environment */
};

/**
 * Make the command of the worker at @place. It inherits @inherited ("NAME=value", ended by NULL;
 * borrowed), except for variables that are set here.
 *
 * Returns 0, MST_EINVAL if CUDA_VISIBLE_DEVICES is too short for --virtual-local-rank, or
 * MST_ENOMEM.
 */
int mst__worker_command_make(const struct mst__run_settings *settings,
                             const struct mst__worker_place *place,
                             char *const *inherited,
                             struct mst__arena *arena,
                             struct mst__worker_command *ret_command,
                             struct mst_err *reterr);

#endif /* MST_AGENT_WORKER_ENV_H */
