/* agent/group.h - the processes of this node's workers: told what to do, and watched until they and
 * everything that they have started are gone. A process of ours is between them and us, see
 * agent/keeper.h. */
#ifndef MST_AGENT_GROUP_H
#define MST_AGENT_GROUP_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "agent/spawn.h"

/* How worker @worker has ended: an exit status, or a signal if that is not 0. That of the last one
 * is told when nothing is left of what workers have started. */
typedef void (*mst__group_ended_fn)(void *arg, uint32_t worker, int status, int signal);

struct mst__group_link;

struct mst__group {
    pid_t *pids; /* 0 = does not run */
    uint32_t count;
    uint32_t running_count;
    bool signals_all; /* stop signals go to process groups, not to leaders alone */
    mst__group_ended_fn ended;
    void *arg;

    uv_loop_t *loop;
    struct mst__group_link *link; /* to the keeper; NULL = there is none */
    uv_signal_t child;
    uv_timer_t sweep; /* active when a keeper was lost: what it had is ours */
    int64_t sweep_ms; /* until when that is waited for */
};

/* 0, MST_ENOMEM, MST_ESYS. Close it in any case. */
int mst__group_init(struct mst__group *group,
                    uv_loop_t *loop,
                    uint32_t count,
                    mst__group_ended_fn ended,
                    void *arg,
                    struct mst_err *reterr);

/* Close the handles, and kill what still runs; the memory goes with mst__group_close, behind the
 * loop's next turn. */
void mst__group_stop(struct mst__group *group);
void mst__group_close(struct mst__group *group);

/* Start all workers; none runs. As mst__spawn_worker for number @ret_failed: those before it run,
 * and those after it were not started. */
int mst__group_start(struct mst__group *group,
                     const struct mst__spawn_worker *spawns,
                     uint32_t *ret_failed,
                     struct mst_err *reterr);

/* Send @signal to @worker, or with UINT32_MAX to all that run. */
void mst__group_signal(struct mst__group *group, uint32_t worker, int signal);

/* Kill all that run, with their process groups. */
void mst__group_kill(struct mst__group *group);

#endif /* MST_AGENT_GROUP_H */
