/* agent/group.h - the processes of this node's workers: starts and signals them, and watches them
 * until they and all processes that they started have ended. A keeper is between the workers and
 * the agent, see agent/keeper.h. */
#ifndef MST_AGENT_GROUP_H
#define MST_AGENT_GROUP_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "agent/spawn.h"

/* Called when worker @worker has ended, with an exit status, or with a signal if that is not 0. The
 * end of the last worker is reported after all processes that workers started have ended. */
typedef void (*mst__group_ended_fn)(void *arg, uint32_t worker, int status, int signal);

struct mst__group_link;

struct mst__group {
    pid_t *pids; /* 0 = not running */
    uint32_t count;
    uint32_t running_count;
    bool signals_all; /* stop signals go to process groups, not only to their leaders */
    mst__group_ended_fn ended;
    void *arg;

    uv_loop_t *loop;
    struct mst__group_link *link; /* to the keeper; NULL = none */
    uv_signal_t child;
    uv_timer_t sweep; /* active after a keeper was lost: its processes are our children now */
    int64_t sweep_ms; /* deadline of the sweep */
};

/* Returns 0, MST_ENOMEM or MST_ESYS. Stop and close the group even if this fails. */
int mst__group_init(struct mst__group *group,
                    uv_loop_t *loop,
                    uint32_t count,
                    mst__group_ended_fn ended,
                    void *arg,
                    struct mst_err *reterr);

/* Close the handles and kill the running workers. mst__group_close frees the memory; call it after
 * the loop's next turn. */
void mst__group_stop(struct mst__group *group);
void mst__group_close(struct mst__group *group);

/* Start all workers. None may be running. Returns 0, or the error of worker *ret_failed: the
 * workers before it run, those after it were not started. */
int mst__group_start(struct mst__group *group,
                     const struct mst__spawn_worker *spawns,
                     uint32_t *ret_failed,
                     struct mst_err *reterr);

/* Send @signal to @worker, or to all running workers if @worker is UINT32_MAX. */
void mst__group_signal(struct mst__group *group, uint32_t worker, int signal);

/* Kill all running workers and their process groups. */
void mst__group_kill(struct mst__group *group);

#endif /* MST_AGENT_GROUP_H */
