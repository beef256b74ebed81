/* handler/hosted.h - a server in a thread, for the node that hosts the store or the authority of
 * a rendezvous, and the choice of that node. */
#ifndef MST_HANDLER_HOSTED_H
#define MST_HANDLER_HOSTED_H

#include <muster/error.h>
#include <muster/log.h>

#include "base/endpoint.h"
#include "base/until.h"
#include "handler/settings.h"

struct mst__hosted; /* opaque */

/**
 * Serve a store at @endpoint, at the address of mst__host_listen; port 0 = a free one, `unix:` = a
 * socket that only this user can reach, in a directory of its own. It accepts connections when this
 * returns. @log is copied.
 *
 * Returns 0 or an error of mst_server_new; MST_ESYS with EADDRINUSE in reterr->sys if the port
 * is taken.
 */
int mst__hosted_start(const struct mst__endpoint *endpoint,
                      const struct mst_log *log,
                      struct mst__hosted **ret_hosted,
                      struct mst_err *reterr);

/* The port of the server; 0 for a unix socket. */
int mst__hosted_port(const struct mst__hosted *hosted);

/* Put the port or path of the server into the @endpoint that it was started with. */
void mst__hosted_place(const struct mst__hosted *hosted, struct mst__endpoint *endpoint);

#define MST_HOSTED_URL_SIZE (MST_ENDPOINT_TEXT_SIZE + 8)

/* The URL of a port for this process: `tcp://127.0.0.1:29400`. It needs no name and no route.
 * Returns @ret_url. */
const char *mst__hosted_url(const struct mst__hosted *hosted, char ret_url[MST_HOSTED_URL_SIZE]);

/* Remove all keys, including those in requests that have arrived. Connections stay. Returns 0
 * when it is done, or MST_ETIMEOUT if the server does not respond within MST_EMPTY_MS. */
int mst__hosted_empty(struct mst__hosted *hosted, struct mst_err *reterr);

/* Whether the server has ended because a `muster serve` wanted its port. From any thread. */
bool mst__hosted_gave_way(const struct mst__hosted *hosted);

/* Stop serving and release; waits for the thread, about a second at most. NULL is allowed. */
void mst__hosted_stop(struct mst__hosted *hosted);

/**
 * Serve the store at the endpoint of @settings if this node should: as the options serve or is_host
 * say, else if the endpoint is on this machine and no other server listens there within half a
 * second. Only then the server gives way to a `muster serve` that comes later, see net/give_way.h.
 * A node that loses the race for the port becomes a client. If the name of the endpoint is
 * not known yet, it is a client, too, and @ret_is_open: ask again before connecting. @ret_hosted,
 * NULL for a client, belongs to the caller also after an error; @ret_endpoint is the endpoint for
 * this process.
 *
 * Returns 0, MST_ECONN if this node must serve and cannot, MST_EINVAL for a client with port 0 or
 * `unix:`, MST_ESYS, MST_ENOMEM.
 */
int mst__hosted_begin(const struct mst__c10d *settings,
                      const struct mst_params *params,
                      struct mst__until until,
                      struct mst__hosted **ret_hosted,
                      struct mst__endpoint *ret_endpoint,
                      bool *ret_is_open,
                      struct mst_err *reterr);

#endif /* MST_HANDLER_HOSTED_H */
