/* agent/control_store.h - the store of a job's commands, with the keys of control_keys.h. */
#ifndef MST_AGENT_CONTROL_STORE_H
#define MST_AGENT_CONTROL_STORE_H

#include <muster/rendezvous.h>
#include <muster/store.h>

#include "base/until.h"

/* Where the keys of a job are. */
enum mst__control_kind_of_store {
    MST_CONTROL_NOWHERE, /* agents take no commands */
    MST_CONTROL_SERVER,  /* in the store of the server, beside the rounds */
    MST_CONTROL_ETCD,    /* in a store of their own at the etcd, which has no queues */
};
enum mst__control_kind_of_store mst__control_store_kind(const char *backend);

/* Open a handle beside @store, which may be any handle on the server. The new handle has its own
 * connection. Sends nothing to the server yet. Returns 0 or MST_ENOMEM. */
int mst__control_store_beside(struct mst_store *store,
                              const char *run_id,
                              struct mst_store **ret_store,
                              struct mst_err *reterr);

/* Open the store of the job that @params describe. Returns 0, MST_ENOTSUP if its agents take no
 * commands, MST_EINVAL, or an error of the store. */
int mst__control_store_open(const struct mst_params *params,
                            struct mst__until until,
                            struct mst_store **ret_store,
                            struct mst_err *reterr);

#endif /* MST_AGENT_CONTROL_STORE_H */
