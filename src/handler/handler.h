/* handler/handler.h - what the registry tells a handler. */
#ifndef MST_HANDLER_HANDLER_H
#define MST_HANDLER_HANDLER_H

#include <muster/rendezvous.h>

/* Remember backend and run id of @params for a handler that does not tell them itself. 0 or
 * MST_ENOMEM. */
int mst__handler_name(struct mst_handler *handler, const struct mst_params *params);

#endif /* MST_HANDLER_HANDLER_H */
