/* handler/hosting.h - who serves the store or the authority at an endpoint. */
#ifndef MST_HANDLER_HOSTING_H
#define MST_HANDLER_HOSTING_H

#include "handler/hosted.h"
#include "handler/settings.h"

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
int mst__hosting_begin(const struct mst__c10d *settings,
                       const struct mst_params *params,
                       struct mst__hosted **ret_hosted,
                       struct mst__endpoint *ret_endpoint,
                       struct mst_err *reterr);

#endif /* MST_HANDLER_HOSTING_H */
