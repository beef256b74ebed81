/* agent/keeper.h - the process between us and our workers, which lets nothing of them outlive us.
 *
 * One keeper for each generation: a fork of this process that starts the workers, passes signals on
 * to them and tells of their ends, through a pair of pipes. It is the reaper of all that is below
 * it, so that processes which a worker has put into other sessions become its children when their
 * parents end. When the last worker has ended it kills what is left, and only then tells of that
 * end. When the pipes close we are gone, however that happened, and it kills everything.
 *
 *   muster run ── pipes ── keeper ─┬─ worker 0 ── ...
 *                                  └─ worker 1 ── ...
 *
 * When the keeper itself is killed, the kernel kills its workers (PR_SET_PDEATHSIG), and what they
 * have left becomes ours. */
#ifndef MST_AGENT_KEEPER_H
#define MST_AGENT_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/spawn.h"

/* Messages of a keeper, each in one write that a pipe keeps whole. */
enum mst__keeper_word_kind {
    MST_KEEPER_STARTED, /* @worker, as @pid */
    MST_KEEPER_FAILED,  /* @worker cannot be started, and those after it were not: @err */
    MST_KEEPER_ENDED,   /* @worker: @status, or @signal if that is not 0 */
};

struct mst__keeper_word {
    enum mst__keeper_word_kind kind;
    uint32_t worker;
    pid_t pid;
    int status, signal;
    struct mst_err err;
};

/* What it is told: send @signal to @worker, UINT32_MAX = all, or to its process group. */
struct mst__keeper_order {
    uint32_t worker;
    int signal;
    bool to_group;
};

/* Our ends: to be read, which blocks, and to be written, which does not. What is there is whole. */
struct mst__keeper_pipes {
    int words_fd, orders_fd;
};

/* Fork a keeper that starts @spawns. @pids is memory for @count of them. 0, MST_ESYS. */
int mst__keeper_start(const struct mst__spawn_worker *spawns,
                      pid_t *pids,
                      uint32_t count,
                      struct mst__keeper_pipes *ret_pipes,
                      struct mst_err *reterr);

/* Close them. A keeper that still has workers kills them. */
void mst__keeper_let_go(const struct mst__keeper_pipes *pipes);

/* --- processes that workers leave behind --- */

/* Kill all children of this process. */
void mst__keeper_kill_children(void);

/* Take away children that have ended; whether there is none any more. */
bool mst__keeper_is_childless(void);

#endif /* MST_AGENT_KEEPER_H */
