/* handler/hosted.h - a server in a thread of its own, for the node that hosts the store or the
 * authority of a rendezvous, and which node that is. */
#ifndef MST_HANDLER_HOSTED_H
#define MST_HANDLER_HOSTED_H

#include <muster/error.h>
#include <muster/log.h>

#include "base/endpoint.h"
#include "handler/settings.h"

struct mst__hosted; /* opaque */

/**
 * Serve a store at @endpoint, where mst__host_listen says; port 0 = a free one. It is reachable
 * when this returns. @log is copied.
 *
 * Returns 0 or an error of mst_server_new; MST_ESYS with EADDRINUSE in reterr->sys when somebody
 * else has the port.
 */
int mst__hosted_start(const struct mst__endpoint *endpoint,
                      const struct mst_log *log,
                      struct mst__hosted **ret_hosted,
                      struct mst_err *reterr);

/* The port it listens on. */
int mst__hosted_port(const struct mst__hosted *hosted);

#define MST_HOSTED_URL_SIZE (MST_ENDPOINT_TEXT_SIZE + 8)

/* How this process itself reaches it: `tcp://127.0.0.1:29400`. Needs no name and no route. Returns
 * @ret_url. */
const char *mst__hosted_url(const struct mst__hosted *hosted, char ret_url[MST_HOSTED_URL_SIZE]);

/* Remove all keys, also those that have arrived and are not there yet; returns when it is done.
 * Connections stay. 0 or MST_ETIMEOUT, when the server does not get to it within MST_EMPTY_MS. */
int mst__hosted_empty(struct mst__hosted *hosted, struct mst_err *reterr);

/* Stop serving and release; returns once the thread has ended, within a second or so. NULL is
 * fine. */
void mst__hosted_stop(struct mst__hosted *hosted);

/**
 * Serve the store at the endpoint of @settings if that is up to us: as the options serve or
 * is_host say, else if the endpoint is here and nobody else serves there, nor begins to within half
 * a second. Whoever guesses and loses the race for the port is a client as the others are.
 * @ret_hosted, NULL for a client, is the caller's also after an error; @ret_endpoint is where this
 * process reaches the store.
 *
 * Returns 0, MST_ECONN when we should and could not, MST_EINVAL for a client of port 0, MST_ESYS,
 * MST_ENOMEM.
 */
int mst__hosted_begin(const struct mst__c10d *settings,
                      const struct mst_params *params,
                      struct mst__hosted **ret_hosted,
                      struct mst__endpoint *ret_endpoint,
                      struct mst_err *reterr);

#endif /* MST_HANDLER_HOSTED_H */
