/* wire/refusal.h - why a server refuses a request of a store client, in place of the reply.
 *
 * The store protocol has no error replies, so only a client that has asked gets one
 * (docs/protocol.md, "Refusals"). A refusal is a number that begins no reply, and a REFUSED of
 * wire/job.h. Pure. */
#ifndef MST_WIRE_REFUSAL_H
#define MST_WIRE_REFUSAL_H

#include "wire/job.h"

/* The first byte of a refusal, which is no status, and the size of the number. */
#define MST_WIRE_REFUSAL_FIRST 0xff
#define MST_WIRE_REFUSAL_HEAD_SIZE 8

/* Append a refusal with @code, an MST_E code: 0, MST_ELIMIT, MST_ENOMEM; @output is then
 * unchanged. */
int mst__wire_write_refusal(struct mst__buf *output,
                            int code,
                            enum mst__refusal refusal,
                            struct mst_bytes text);

/**
 * Read a refusal from the front of @input, which begins with MST_WIRE_REFUSAL_FIRST.
 *
 * Returns 1 with @ret_message, a REFUSED that borrows from @input, and the size in @ret_size; 0 if
 * @ret_size bytes are needed; MST_ENOTFOUND if it is a reply; MST_EPROTO, MST_ELIMIT.
 */
int mst__wire_read_refusal(struct mst_bytes input,
                           struct mst__job_message *ret_message,
                           size_t *ret_size,
                           struct mst_err *reterr);

#endif /* MST_WIRE_REFUSAL_H */
