/* cli/waiting.h - reports what a node that waits for its round waits for. */
#ifndef MST_CLI_WAITING_H
#define MST_CLI_WAITING_H

#include "cli/rdzv.h"

struct mst__waiting; /* opaque */

/**
 * Prepare to report on standard error what the rendezvous @params waits for, and which of @expected
 * (may be NULL) are missing. Both must outlive it. A thread looks at the rendezvous from outside,
 * as `muster status` does, during a wait.
 *
 * Returns 0, MST_ENOMEM, MST_ESYS. Release with mst__waiting_free.
 */
int mst__waiting_new(const struct mst_params *params,
                     struct mst_expected *expected,
                     struct mst__waiting **ret_waiting,
                     struct mst_err *reterr);

/* Returns when its thread has ended, within about a second. NULL is allowed. */
void mst__waiting_free(struct mst__waiting *waiting);

/* A wait begins: report after 2 s, at each change, and every 10 s. */
void mst__waiting_begin(struct mst__waiting *waiting);

/* The wait is over: nothing is printed after this returns. With @is_late, the time was over before
 * there was a round: first print which nodes were there. */
void mst__waiting_end(struct mst__waiting *waiting, bool is_late);

#endif /* MST_CLI_WAITING_H */
