/* agent/group.h - the processes of this node's workers: told what to do, and watched until they and
 * everything that they have started are gone.
 *
 * A worker leads a session. When it ends, what is left of its process group is killed. This process
 * is the reaper of all that is below it, so that processes which a worker has put elsewhere become
 * our children when their parents end; when the last worker has ended they are killed, and only
 * then is its end told. */
#ifndef MST_AGENT_GROUP_H
#define MST_AGENT_GROUP_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "agent/spawn.h"

/* How worker @worker has ended: an exit status, or a signal if that is not 0. */
typedef void (*mst__group_ended_fn)(void *arg, uint32_t worker, int status, int signal);

struct mst__group {
    pid_t *pids; /* 0 = does not run */
    uint32_t count;
    uint32_t running_count;
    bool signals_all; /* stop signals go to process groups, not to leaders alone */
    mst__group_ended_fn ended;
    void *arg;

    uv_signal_t child;
    uv_timer_t sweep;
    int64_t sweep_ms; /* until when what is left is waited for */
    bool has_last;    /* the end of the last worker is not told yet */
    uint32_t last;
    int last_status, last_signal;
};

/* 0, MST_ENOMEM, MST_ESYS. Close it in any case. */
int mst__group_init(struct mst__group *group,
                    uv_loop_t *loop,
                    uint32_t count,
                    mst__group_ended_fn ended,
                    void *arg,
                    struct mst_err *reterr);

/* Close the handles; the memory goes with mst__group_close, behind the loop's next turn. */
void mst__group_stop(struct mst__group *group);
void mst__group_close(struct mst__group *group);

/* Start @worker, which does not run. As mst__spawn_worker. */
int mst__group_start(struct mst__group *group,
                     uint32_t worker,
                     const struct mst__spawn_worker *spawn,
                     struct mst_err *reterr);

/* Send @signal to @worker, or with UINT32_MAX to all that run. */
void mst__group_signal(struct mst__group *group, uint32_t worker, int signal);

/* Kill all that run, with their process groups. */
void mst__group_kill(struct mst__group *group);

#endif /* MST_AGENT_GROUP_H */
