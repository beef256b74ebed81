/* net/resolve.h - resolves host names, with a deadline. */
#ifndef MST_NET_RESOLVE_H
#define MST_NET_RESOLVE_H

#include <muster/error.h>
#include <muster/log.h>
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

/* The full name of @endpoint's host, as the resolver has it. Returns 0 or the same codes. */
int mst__resolve_name(const struct mst__endpoint *endpoint,
                      struct mst__until until,
                      char ret_name[MST_HOST_SIZE],
                      struct mst_err *reterr);

/**
 * As mst__resolve, for a name that may not be known yet, such as that of a pod: ask again until
 * @until. The
 * first failure is logged; the last one is the error, after the time.
 *
 * Returns the same codes, or MST_ECANCELED.
 */
int mst__resolve_patiently(const struct mst__endpoint *endpoint,
                           struct mst__until until,
                           const struct mst_log *log,
                           struct addrinfo **ret_addresses,
                           struct mst_err *reterr);

#endif /* MST_NET_RESOLVE_H */
