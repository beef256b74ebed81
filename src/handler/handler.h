/* handler/handler.h - between the registry and a handler. */
#ifndef MST_HANDLER_HANDLER_H
#define MST_HANDLER_HANDLER_H

#include <muster/rendezvous.h>

/* Remember the @params that @handler was made from; they are copied. 0 or MST_ENOMEM. */
int mst__handler_describe(struct mst_handler *handler,
                          const struct mst_params *params,
                          struct mst_err *reterr);

/* The parameters of mst__handler_describe; NULL if the registry has not made the handler. */
const struct mst_params *mst__handler_params(const struct mst_handler *handler);

/* Calls of muster/rendezvous.h within @timeout_ms, for the end of a process. A handler that is not
 * made with mst__head_wrap decides itself how long they take. */
int mst__handler_leave(struct mst_handler *handler, int64_t timeout_ms, struct mst_err *reterr);
int mst__handler_finish(struct mst_handler *handler,
                        int status,
                        const char *text,
                        int64_t timeout_ms,
                        struct mst_err *reterr);
int mst__handler_leaving(struct mst_handler *handler,
                         int64_t in_ms,
                         int64_t timeout_ms,
                         struct mst_err *reterr);
int mst__handler_restart(struct mst_handler *handler,
                         const struct mst_failure *failure,
                         int64_t timeout_ms,
                         struct mst_err *reterr);

#endif /* MST_HANDLER_HANDLER_H */
