/* net/job_client.h - a node's connection to the authority of its job.
 *
 * One thread at a time uses it. Waiting ends when it is woken (base/until.h); what has arrived
 * by then is not lost. */
#ifndef MST_NET_JOB_CLIENT_H
#define MST_NET_JOB_CLIENT_H

#include "net/client.h"
#include "wire/job.h"

struct mst__job_client; /* opaque */

/**
 * Connect to the server at @endpoint, make sure that it is one that knows of jobs, and switch to
 * frames. Tries once: whoever wants to wait for the server calls again.
 *
 * Returns 0; MST_ENOTSUP when the server is another one: torch's, or an older muster; MST_ECONN,
 * MST_ERESOLVE, MST_ETIMEOUT, MST_ECANCELED, MST_ENOMEM, MST_EPROTO. Messages name the endpoint.
 */
int mst__job_client_open(const struct mst__endpoint *endpoint,
                         struct mst__until until,
                         struct mst__job_client **ret_client,
                         struct mst_err *reterr);

/* Without a word. NULL is fine. */
void mst__job_client_close(struct mst__job_client *client);

/* Close, and make sure that what was sent has arrived, by @until at most. */
void mst__job_client_finish(struct mst__job_client *client, struct mst__until until);

/* Say @message; what the kernel does not take at once leaves in the next receive. 0; MST_ECONN, and
 * MST_ETIMEOUT and MST_ECANCELED when there is too much of that by @until, after which the
 * connection is of no use; MST_ELIMIT, MST_ENOMEM: nothing was sent. */
int mst__job_client_send(struct mst__job_client *client,
                         const struct mst__job_message *message,
                         struct mst__until until,
                         struct mst_err *reterr);

/**
 * Wait for the next message; it is valid until the next call.
 *
 * Returns 0; MST_ETIMEOUT and MST_ECANCELED, after which the connection is as good as before;
 * MST_ECONN, MST_EPROTO, MST_ELIMIT, MST_ENOMEM.
 */
int mst__job_client_receive(struct mst__job_client *client,
                            struct mst__until until,
                            struct mst__job_message *ret_message,
                            struct mst_err *reterr);

/* When anything last came, messages or not; 0 = nothing has. */
int64_t mst__job_client_heard_ms(const struct mst__job_client *client);

/* Ask the server at @endpoint one thing, on a connection for this alone: a CLOSE or a STATUS. The
 * answer is in @ret_message and valid until @ret_client is closed. A REFUSED is turned into its
 * error. */
int mst__job_client_ask(const struct mst__endpoint *endpoint,
                        const struct mst__job_message *question,
                        struct mst__until until,
                        struct mst__job_client **ret_client,
                        struct mst__job_message *ret_message,
                        struct mst_err *reterr);

/* A REFUSED as an error: its code, with its sentence. */
int mst__job_client_refused(const struct mst__job_message *message, struct mst_err *reterr);

#endif /* MST_NET_JOB_CLIENT_H */
