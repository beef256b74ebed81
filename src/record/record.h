/* record/record.h - the handler of the dynamic rendezvous: nodes edit one shared record. */
#ifndef MST_RECORD_RECORD_H
#define MST_RECORD_RECORD_H

#include <muster/rendezvous.h>

#include "handler/settings.h"
#include "record/home.h"

struct mst__record_options {
    struct mst__record_home home;
    struct mst__dynamic dynamic;
    const struct mst__endpoint *endpoint; /* the route to it leads to the other nodes; NULL = a
                                           * file */
    int64_t linger_ms;                    /* a node that serves stays so long for others */
};

/**
 * Make a handler. The home is taken on success; the rest of @options and @params is copied.
 *
 * Returns 0, MST_ENOMEM, MST_ESYS.
 */
int mst__record_handler(const struct mst_params *params,
                        const struct mst__record_options *options,
                        struct mst_handler **ret_handler,
                        struct mst_err *reterr);

#endif /* MST_RECORD_RECORD_H */
