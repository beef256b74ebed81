/* rendezvous/c10d.h - the record of a rendezvous in a c10d store: TCPStore, ours or PyTorch's, or a
 * file. docs/protocol.md, "The record", describes keys and values. */
#ifndef MST_RENDEZVOUS_C10D_H
#define MST_RENDEZVOUS_C10D_H

#include "rendezvous/backend.h"
#include "rendezvous/hosted.h"
#include "rendezvous/settings.h"

/* What stands under the key while there is no record. */
#define MST_C10D_SENTINEL "Y2FuaW1hZGFt"

/**
 * Keep the record of @run_id in @store, which is taken and closed with the backend. @where is what
 * messages call it. Both texts are copied. For those who have a store already.
 *
 * Returns 0, MST_ENOMEM. The backend is released by its close.
 */
int mst__c10d_backend_new(struct mst_store *store,
                          const char *run_id,
                          const char *where,
                          int64_t call_ms,
                          struct mst__record_backend *ret_backend,
                          struct mst_err *reterr);

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
int mst__c10d_host(const struct mst__c10d *settings,
                   const struct mst_params *params,
                   struct mst__hosted **ret_hosted,
                   struct mst__endpoint *ret_endpoint,
                   struct mst_err *reterr);

#endif /* MST_RENDEZVOUS_C10D_H */
