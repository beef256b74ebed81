/* net/http.h - the server's page of metrics, health and jobs; optional at build time. */
#ifndef MST_NET_HTTP_H
#define MST_NET_HTTP_H

#include <muster/error.h>

#include "base/err.h"

struct mst_server;
struct mst__http;

#ifdef MST_WITH_HTTP

/**
 * Serve the page on @address, `host:port` (port 0 = a free one), on the loop of @server.
 *
 * Returns 0; MST_EINVAL for a malformed address, MST_ERESOLVE, MST_ESYS, MST_ENOMEM. On error,
 * closing handles may be left on the loop, which must run before it is closed.
 */
int mst__http_open(struct mst_server *server,
                   const char *address,
                   struct mst__http **ret_http,
                   struct mst_err *reterr);

/* Its address: `127.0.0.1:9090`, `[::1]:9090`. Owned by @http. */
const char *mst__http_address(const struct mst__http *http);

/* Close all its connections; the loop releases its memory. NULL is allowed. */
void mst__http_close(struct mst__http *http);

#else

static inline int mst__http_open(struct mst_server *server,
                                 const char *address,
                                 struct mst__http **ret_http,
                                 struct mst_err *reterr)
{
    (void)server; /* without the feature, it cannot be opened */
    (void)ret_http;
    return mst__fail(reterr, MST_ENOTSUP, 0,
                     "http address '%.100s': this muster was built without "
                     "http; build it with -Dhttp=enabled",
                     address);
}

static inline const char *mst__http_address(const struct mst__http *http)
{
    (void)http; /* without the feature, it is always NULL */
    return NULL;
}

static inline void mst__http_close(struct mst__http *http)
{
    (void)http; /* without the feature, it is always NULL */
}

#endif /* MST_WITH_HTTP */

#endif /* MST_NET_HTTP_H */
