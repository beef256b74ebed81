/* agent/control.h - commands to a running agent, and its state, through the job's store: for
 * `muster ps`, `logs`, `restart` and `drain`.
 *
 * A thread waits for commands on its own connection, and sends logs over it, so that none of this
 * delays the loop. It tries again if the store cannot be reached; the job does not depend on it. */
#ifndef MST_AGENT_CONTROL_H
#define MST_AGENT_CONTROL_H

#include <muster/rendezvous.h>
#include <muster/store.h>
#include <uv.h>

#include "agent/control_keys.h"

struct mst__control; /* opaque */

/* Called on the loop. Returns whether this node executes the command, RESTART or DRAIN. */
typedef bool (*mst__control_fn)(void *arg, const struct mst__control_command *command);

/* Begin to listen; the backend must support commands. @store is any handle of the job's store, used
 * during the call only. @params must outlive the control. @node is the name of this node.
 * Returns 0, MST_ENOMEM or MST_ESYS. */
int mst__control_new(uv_loop_t *loop,
                     struct mst_store *store,
                     const struct mst_params *params,
                     const char *node,
                     mst__control_fn fn,
                     void *arg,
                     struct mst__control **ret_control,
                     struct mst_err *reterr);

/* Publish the state of the node. @text and @log_dir are copied; "" = no log files. The workers of
 * generation @generation have ranks from @first_rank on. Does nothing if @control is NULL. */
void mst__control_publish(struct mst__control *control,
                          struct mst_bytes text,
                          const char *log_dir,
                          int64_t generation,
                          int64_t first_rank,
                          int64_t workers_count);

/* Publish that the node is gone, within MST_CONTROL_GONE_MS, and end. The memory is freed by the
 * loop's next turn, so run the loop once more. Does nothing if @control is NULL. */
void mst__control_free(struct mst__control *control);

#endif /* MST_AGENT_CONTROL_H */
