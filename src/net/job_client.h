/* net/job_client.h - a node's connection to the authority of its job.
 *
 * One thread at a time uses it. A wait can be woken (base/until.h); input that has arrived by then
 * is not lost. */
#ifndef MST_NET_JOB_CLIENT_H
#define MST_NET_JOB_CLIENT_H

#include "net/client.h"
#include "wire/job.h"

struct mst__job_client; /* opaque */

/**
 * Connect to the server at @endpoint, check that it serves jobs, and switch to frames. Tries once;
 * call again to wait for the server.
 *
 * Returns 0; MST_ENOTSUP if the server is torch's or an older muster; MST_ECONN, MST_ERESOLVE,
 * MST_ETIMEOUT, MST_ECANCELED, MST_ENOMEM, MST_EPROTO. Messages name the endpoint.
 */
int mst__job_client_open(const struct mst__endpoint *endpoint,
                         struct mst__until until,
                         struct mst__job_client **ret_client,
                         struct mst_err *reterr);

/* Close at once. NULL is allowed. */
void mst__job_client_close(struct mst__job_client *client);

/* Close after all output has arrived, at the latest at @until. */
void mst__job_client_finish(struct mst__job_client *client, struct mst__until until);

/* Whether an idle connection, on which no message was sent yet, has not ended. */
bool mst__job_client_is_usable(const struct mst__job_client *client);

/* Send @message; the next receive sends what the kernel does not take at once. 0; MST_ECONN,
 * MST_ETIMEOUT or MST_ECANCELED if too much is unsent at @until, after which the connection is
 * unusable; MST_ELIMIT, MST_ENOMEM: nothing was sent. */
int mst__job_client_send(struct mst__job_client *client,
                         const struct mst__job_message *message,
                         struct mst__until until,
                         struct mst_err *reterr);

/**
 * Wait for the next message; it is valid until the next call.
 *
 * Returns 0; MST_ETIMEOUT and MST_ECANCELED, after which the connection is still usable; MST_ECONN,
 * MST_EPROTO, MST_ELIMIT, MST_ENOMEM.
 */
int mst__job_client_receive(struct mst__job_client *client,
                            struct mst__until until,
                            struct mst__job_message *ret_message,
                            struct mst_err *reterr);

/* When bytes last arrived; 0 = never. */
int64_t mst__job_client_heard_ms(const struct mst__job_client *client);

/* Send one CLOSE or STATUS to the server at @endpoint, on a separate connection. The answer is in
 * @ret_message and valid until @ret_client is closed. A REFUSED becomes an error. */
int mst__job_client_ask(const struct mst__endpoint *endpoint,
                        const struct mst__job_message *question,
                        struct mst__until until,
                        struct mst__job_client **ret_client,
                        struct mst__job_message *ret_message,
                        struct mst_err *reterr);

#endif /* MST_NET_JOB_CLIENT_H */
