/* net/client.h - a blocking client connection with a deadline on every step.
 *
 * Deadlines are monotonic times, see base/clock.h. A connection belongs to one thread at a time. */
#ifndef MST_NET_CLIENT_H
#define MST_NET_CLIENT_H

#include <muster/error.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/endpoint.h"
#include "base/until.h"
#include "core/job_message.h"
#include "net/address.h"
#include "net/stream.h"

struct mst__client {
    struct mst__stream stream;
    bool has_more;         /* more may be readable than poll shows */
    struct mst__buf input; /* received, not yet consumed */
    char peer[MST_ADDRESS_SIZE];
};

/**
 * Connect once: resolve the name, try all addresses of both families, staggered, and keep the first
 * that answers. @input_max bounds the input buffer.
 *
 * Returns 0; MST_ERESOLVE, MST_ECONN (every address failed; the message has the last reason),
 * MST_ETIMEOUT, MST_EINVAL (the unix path is too long), MST_ESYS, MST_ENOMEM. Release with
 * mst__client_close.
 */
int mst__client_open(const struct mst__endpoint *endpoint,
                     size_t input_max,
                     struct mst__until until,
                     struct mst__client *ret_client,
                     struct mst_err *reterr);

/* Close and release. A client without a stream is allowed. */
void mst__client_close(struct mst__client *client);

/**
 * Send all of @bytes. @ret_sent is the number that the kernel accepted, also on failure.
 *
 * Returns 0, MST_ECONN if the peer is gone, MST_ETIMEOUT, MST_ESYS.
 */
int mst__client_send(struct mst__client *client,
                     struct mst_bytes bytes,
                     struct mst__until until,
                     size_t *ret_sent,
                     struct mst_err *reterr);

/* How often mst__client_send was called in this process. */
uint64_t mst__client_messages(void);

/**
 * Receive until client->input has at least @wanted bytes.
 *
 * Returns 0, MST_ECONN if the peer closed or reset the connection, MST_ETIMEOUT, MST_ELIMIT,
 * MST_ENOMEM, MST_ESYS. On error the bytes received so far stay in the input.
 */
int mst__client_receive(struct mst__client *client,
                        size_t wanted,
                        struct mst__until until,
                        struct mst_err *reterr);

/**
 * Whether the reply behind the first @at bytes of the input, of which one byte is there, is a
 * refusal (wire/refusal.h). Receives the rest of it.
 *
 * Returns 1 with @ret_message, which borrows from the input; 0 if it is a reply; errors as above,
 * and MST_EPROTO.
 */
int mst__client_hear_refusal(struct mst__client *client,
                             size_t at,
                             struct mst__until until,
                             struct mst__job_message *ret_message,
                             struct mst_err *reterr);

/* The same for the first CHECK of a connection: 0 if the server serves us, MST_ECONN with its
 * reason if it is full. */
int mst__client_admitted(struct mst__client *client,
                         size_t at,
                         struct mst__until until,
                         struct mst_err *reterr);

/* Convert @message, a REFUSED, to an error: its code and its sentence. */
int mst__client_refused(const struct mst__job_message *message, struct mst_err *reterr);

/* Wait until @client is readable or writable, as requested: 0, MST_ETIMEOUT, MST_ECANCELED,
 * MST_ESYS. */
int mst__client_wait(const struct mst__client *client,
                     bool reads,
                     bool writes,
                     struct mst__until until,
                     struct mst_err *reterr);

/* Receive once, without waiting, with room for client->input to reach @wanted bytes. 0 also if
 * nothing is there. Errors as above, except MST_ETIMEOUT. */
int mst__client_read(struct mst__client *client, size_t wanted, struct mst_err *reterr);

/* Whether an idle connection is still usable. Unexpected bytes make it unusable, unless
 * @expects_bytes. */
bool mst__client_is_usable(const struct mst__client *client, bool expects_bytes);

#endif /* MST_NET_CLIENT_H */
