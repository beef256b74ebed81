/* agent/keeper.h - the process between the agent and its workers, which lets no process of the
 * workers outlive the agent.
 *
 * Each generation has a keeper: a fork of the agent that starts the workers, passes signals on to
 * them and reports their ends, through a pair of pipes. The keeper is the reaper of all processes
 * below it: a process that a worker moved into another session becomes a child of the keeper when
 * its parent ends. When the last worker has ended, the keeper kills all processes that are left,
 * and only then reports that end. When the pipes close, the agent is gone for whatever reason, and
 * the keeper kills everything.
 *
 *   muster run ── pipes ── keeper ─┬─ worker 0 ── ...
 *                                  └─ worker 1 ── ...
 *
 * If the keeper itself is killed, the kernel kills its workers (PR_SET_PDEATHSIG), and the
 * processes that they leave become children of the agent. If both are killed, these processes stay:
 * therefore the keeper shares neither its process group nor its name nor its command line with the
 * agent. The kernel does not kill workers that have changed their user or run a set-uid program. */
#ifndef MST_AGENT_KEEPER_H
#define MST_AGENT_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/spawn.h"

/* Messages of a keeper. Each is one write, which a pipe keeps whole. */
enum mst__keeper_word_kind {
    MST_KEEPER_STARTED, /* @worker runs as @pid */
    MST_KEEPER_FAILED,  /* @worker was not started, for reason @err, nor were those after it */
    MST_KEEPER_ENDED,   /* @worker ended with @status, or with @signal if that is not 0 */
};

struct mst__keeper_word {
    enum mst__keeper_word_kind kind;
    uint32_t worker;
    pid_t pid;
    int status, signal;
    struct mst_err err;
};

/* An order to the keeper: send @signal to @worker (UINT32_MAX = all) or to its process group. */
struct mst__keeper_order {
    uint32_t worker;
    int signal;
    bool to_group;
};

/* The agent's ends. A read of @words_fd blocks, a write to @orders_fd does not. Messages are
 * whole. */
struct mst__keeper_pipes {
    int words_fd, orders_fd;
};

/* Fork a keeper that starts @spawns. @pids has @count entries for the keeper, which writes to its
 * copy. Returns 0 or MST_ESYS. */
int mst__keeper_start(const struct mst__spawn_worker *spawns,
                      pid_t *pids,
                      uint32_t count,
                      struct mst__keeper_pipes *ret_pipes,
                      struct mst_err *reterr);

/* Close the pipes. A keeper that still has workers kills them. */
void mst__keeper_let_go(const struct mst__keeper_pipes *pipes);

/* --- processes that workers leave behind --- */

/* Kill all children of this process. */
void mst__keeper_kill_children(void);

/* Reap the children that have ended. Returns whether no child is left. */
bool mst__keeper_is_childless(void);

#endif /* MST_AGENT_KEEPER_H */
