/* record/c10d.h - the record of a rendezvous in a c10d store: TCPStore, ours or PyTorch's, or a
 * file. docs/protocol.md, "The record", describes keys and values. */
#ifndef MST_RECORD_C10D_H
#define MST_RECORD_C10D_H

#include "handler/hosted.h"
#include "handler/settings.h"
#include "record/home.h"

/* The value of the key if there is no record. */
#define MST_C10D_SENTINEL "Y2FuaW1hZGFt"

/**
 * Keep the record of @run_id in @store, which is taken and closed with the home. @where names it in
 * messages. Both texts are copied.
 *
 * Returns 0, MST_ENOMEM. The close operation releases the home.
 */
int mst__c10d_home_new(struct mst_store *store,
                       const char *run_id,
                       const char *where,
                       int64_t call_ms,
                       struct mst__record_home *ret_home,
                       struct mst_err *reterr);

#endif /* MST_RECORD_C10D_H */
