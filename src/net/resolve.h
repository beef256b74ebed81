/* net/resolve.h - resolves host names, with a deadline. */
#ifndef MST_NET_RESOLVE_H
#define MST_NET_RESOLVE_H

#include <muster/error.h>
#include <netdb.h>

#include "base/endpoint.h"
#include "base/until.h"

/**
 * Resolve the stream addresses of @endpoint, of both families. A numeric address is used as it is.
 * Release @ret_addresses with freeaddrinfo.
 *
 * Returns 0, MST_ERESOLVE, MST_ETIMEOUT, MST_ENOMEM, MST_ESYS.
 */
int mst__resolve(const struct mst__endpoint *endpoint,
                 struct mst__until until,
                 struct addrinfo **ret_addresses,
                 struct mst_err *reterr);

#endif /* MST_NET_RESOLVE_H */
