/* codec/pickle.h - the record as a Python pickle, in the form of torch's agents.
 *
 * Pure. The reader is a stack machine for an allow-listed subset and never executes anything: no
 * class is looked up, no function is called. Everything outside the subset is refused. */
#ifndef MST_CODEC_PICKLE_H
#define MST_CODEC_PICKLE_H

#include <muster/error.h>

#include "base/buf.h"
#include "core/state.h"

/**
 * Read @bytes (a pickle, not base64) into @ret_state, which is initialised and empty.
 *
 * Returns 0; MST_EPROTO if it is not a record, with the position and the reason in @reterr;
 * MST_ELIMIT, MST_ENOMEM. On error @ret_state is empty. The dialect is detected; an empty record
 * that may be D3 or D4 counts as D4.
 */
int mst__pickle_read(struct mst_bytes bytes, struct mst__state *ret_state, struct mst_err *reterr);

/* Append @state as a pickle of protocol 4 in its dialect, compactly (with a memo for repeated
 * values), to @output: 0; MST_EINVAL if no peer could read it: a time outside the years 1 to 9999,
 * an address that is not UTF-8, spares in a dialect without them; MST_ELIMIT, MST_ENOMEM. On error
 * @output is unchanged. */
int mst__pickle_write(struct mst__buf *output, const struct mst__state *state);

#endif /* MST_CODEC_PICKLE_H */
