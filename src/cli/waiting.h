/* cli/waiting.h - reports for the user while a node waits for its round. */
#ifndef MST_CLI_WAITING_H
#define MST_CLI_WAITING_H

#include "cli/rdzv.h"

struct mst__waiting; /* opaque */

/**
 * Prepare reports to standard error about waits in the rendezvous @params: how many nodes are
 * there, and which nodes of @expected (may be NULL) are missing. Both must outlive *ret_waiting.
 * During a wait, a thread observes the rendezvous from outside, like `muster status`.
 *
 * Returns 0, MST_EINVAL, MST_ENOMEM or MST_ESYS. Release with mst__waiting_free.
 */
int mst__waiting_new(const struct mst_params *params,
                     struct mst_expected *expected,
                     struct mst__waiting **ret_waiting,
                     struct mst_err *reterr);

/* Stop the thread, which takes up to about a second. Does nothing if @waiting is NULL. */
void mst__waiting_free(struct mst__waiting *waiting);

/* Begin a wait: report after 2 s, then at each change and every 10 s. */
void mst__waiting_begin(struct mst__waiting *waiting);

/* End the wait. Nothing is printed after the return. @is_late: the wait ended without a round in
 * join_timeout; print which nodes were there. */
void mst__waiting_end(struct mst__waiting *waiting, bool is_late);

#endif /* MST_CLI_WAITING_H */
