/* agent/control_store.h - the store in which a job is asked, with the keys of control_keys.h. */
#ifndef MST_AGENT_CONTROL_STORE_H
#define MST_AGENT_CONTROL_STORE_H

#include <muster/rendezvous.h>
#include <muster/store.h>

/* Where the keys of a job are. */
enum mst__control_kind_of_store {
    MST_CONTROL_NOWHERE, /* agents take no commands */
    MST_CONTROL_SERVER,  /* in the store of the server, beside the rounds */
    MST_CONTROL_ETCD,    /* in a store of their own at the etcd, which has no queues */
};
enum mst__control_kind_of_store mst__control_store_kind(const char *backend);

/* A handle beside @store, which is any handle on the server, with a connection of its own. Nothing
 * is asked of the server yet. 0, MST_ENOMEM. */
int mst__control_store_beside(struct mst_store *store,
                              const char *run_id,
                              struct mst_store **ret_store,
                              struct mst_err *reterr);

/* The store of the job that @params name. 0, MST_ENOTSUP for a backend without one, MST_EINVAL, or
 * an error of the store. */
int mst__control_store_open(const struct mst_params *params,
                            int64_t timeout_ms,
                            struct mst_store **ret_store,
                            struct mst_err *reterr);

#endif /* MST_AGENT_CONTROL_STORE_H */
