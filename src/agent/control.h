/* agent/control.h - commands to a running agent, and its state, through the job's store: for
 * `muster ps`, `logs`, `restart` and `drain`.
 *
 * A thread has a connection of its own, on which it waits for the next command. Logs are sent by
 * it, too: nothing here can hold up the loop. A store that cannot be reached is tried again; the
 * job does not need any of this. */
#ifndef MST_AGENT_CONTROL_H
#define MST_AGENT_CONTROL_H

#include <muster/rendezvous.h>
#include <muster/store.h>
#include <uv.h>

#include "agent/control_keys.h"

struct mst__control; /* opaque */

/* Called on the loop: whether this node carries the command out, RESTART or DRAIN. */
typedef bool (*mst__control_fn)(void *arg, const struct mst__control_command *command);

/* Begin, for a backend whose agents listen. @store is any handle on the store of the job; it is
 * used for the call only. @params are borrowed for the life of the control. @node is the name of
 * this node. 0, MST_ENOMEM, MST_ESYS. */
int mst__control_new(uv_loop_t *loop,
                     struct mst_store *store,
                     const struct mst_params *params,
                     const char *node,
                     mst__control_fn fn,
                     void *arg,
                     struct mst__control **ret_control,
                     struct mst_err *reterr);

/* The present state of the node; @text is copied, and so is @log_dir, "" = no files. The workers of
 * generation @generation have ranks @first_rank and up. NULL @control is fine. */
void mst__control_publish(struct mst__control *control,
                          struct mst_bytes text,
                          const char *log_dir,
                          int64_t generation,
                          int64_t first_rank,
                          int64_t workers_count);

/* Say that the node is gone, within MST_CONTROL_END_MS, and end. The memory goes when the loop has
 * closed the handle: run it once more. NULL is fine. */
void mst__control_free(struct mst__control *control);

#endif /* MST_AGENT_CONTROL_H */
