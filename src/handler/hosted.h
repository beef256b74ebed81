/* handler/hosted.h - a store server in a thread of its own, for the node that hosts one. */
#ifndef MST_HANDLER_HOSTED_H
#define MST_HANDLER_HOSTED_H

#include <muster/error.h>
#include <muster/log.h>

#include "base/endpoint.h"

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

#endif /* MST_HANDLER_HOSTED_H */
