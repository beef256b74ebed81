/* cli/waiting.h - what a node that waits for its round tells of it: who is there and who is not. */
#ifndef MST_CLI_WAITING_H
#define MST_CLI_WAITING_H

#include "cli/rdzv.h"

struct mst__waiting; /* opaque */

/**
 * Prepare to tell on standard error what the rendezvous @params waits for, and of @expected (may
 * be NULL) who is missing. Both outlive it. A thread of its own looks at the rendezvous from
 * outside, as `muster status` does, for as long as somebody waits.
 *
 * Returns 0, MST_ENOMEM, MST_ESYS. Released with mst__waiting_free.
 */
int mst__waiting_new(const struct mst_params *params,
                     struct mst_expected *expected,
                     struct mst__waiting **ret_waiting,
                     struct mst_err *reterr);

/* Returns when its thread has ended, within a second or so. NULL is fine. */
void mst__waiting_free(struct mst__waiting *waiting);

/* We wait from now on: tell after 2 s, at each change, and every 10 s. */
void mst__waiting_begin(struct mst__waiting *waiting);

/* It is over: nothing is told after this returns. With @is_late, the time was over before there was
 * a round: then first who had been there. */
void mst__waiting_end(struct mst__waiting *waiting, bool is_late);

#endif /* MST_CLI_WAITING_H */
