/* net/client.h - a blocking client connection in which every step has a deadline.
 *
 * Deadlines are points in monotonic time, see base/clock.h. Names are resolved forwards only. A
 * connection belongs to one thread at a time. */
#ifndef MST_NET_CLIENT_H
#define MST_NET_CLIENT_H

#include <muster/error.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/endpoint.h"
#include "base/until.h"
#include "net/address.h"
#include "net/stream.h"

/* Whom to connect to. */
struct mst__target {
    struct mst__endpoint endpoint;
    const char *unix_path; /* borrowed; when not NULL it counts instead of the endpoint */
};

struct mst__client {
    struct mst__stream stream;
    bool has_more;         /* there may be more to read, which a poll need not show */
    struct mst__buf input; /* received, not yet consumed */
    char peer[MST_ADDRESS_SIZE];
};

/**
 * Connect, one round: resolve the name, try all addresses of both families, staggered, and keep the
 * first that answers. @input_max bounds the input buffer.
 *
 * Returns 0; MST_ERESOLVE, MST_ECONN (every address failed; the last reason is told), MST_ETIMEOUT,
 * MST_EINVAL (a unix path that is too long), MST_ESYS, MST_ENOMEM. Released with mst__client_close.
 */
int mst__client_open(const struct mst__target *target,
                     size_t input_max,
                     struct mst__until until,
                     struct mst__client *ret_client,
                     struct mst_err *reterr);

/* Close and release. A client without a stream is fine. */
void mst__client_close(struct mst__client *client);

/**
 * Send all of @bytes. @ret_sent is how many the kernel took, on failure too.
 *
 * Returns 0, MST_ECONN when the peer is gone, MST_ETIMEOUT, MST_ESYS.
 */
int mst__client_send(struct mst__client *client,
                     struct mst_bytes bytes,
                     struct mst__until until,
                     size_t *ret_sent,
                     struct mst_err *reterr);

/* How often mst__client_send was called in this process, by whomever. */
uint64_t mst__client_messages(void);

/**
 * Receive until client->input has at least @wanted bytes.
 *
 * Returns 0, MST_ECONN when the peer closed or reset the connection, MST_ETIMEOUT, MST_ELIMIT,
 * MST_ENOMEM, MST_ESYS. What arrived before stays in the input.
 */
int mst__client_receive(struct mst__client *client,
                        size_t wanted,
                        struct mst__until until,
                        struct mst_err *reterr);

/* Wait until @client can be read or written, whichever is wanted: 0, MST_ETIMEOUT, MST_ECANCELED,
 * MST_ESYS. */
int mst__client_wait(const struct mst__client *client,
                     bool reads,
                     bool writes,
                     struct mst__until until,
                     struct mst_err *reterr);

/* Receive once, what there is, with room for client->input to get to @wanted bytes. That nothing is
 * there is fine. Errors as above, but for MST_ETIMEOUT. */
int mst__client_read(struct mst__client *client, size_t wanted, struct mst_err *reterr);

/* Whether an idle connection is still good. Bytes that nobody asked for speak against it, unless
 * @expects_bytes. */
bool mst__client_is_usable(const struct mst__client *client, bool expects_bytes);

#endif /* MST_NET_CLIENT_H */
