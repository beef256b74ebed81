/* store/etcd3_lease.h - the lease of all keys of a job.
 *
 * Its number is in a key beside the store's keys, which is on the lease itself and ends with it.
 * The first store that requests a lease grants it; the others find it there. Each store keeps it
 * alive with a thread, so it ends one TTL after the last of them. No store revokes it, because
 * others may be about to come. */
#ifndef MST_STORE_ETCD3_LEASE_H
#define MST_STORE_ETCD3_LEASE_H

#include "etcd/v3.h"

struct mst__etcd3_lease;

/**
 * Find the lease whose number is under @key (copied), or grant one of @ttl_s seconds, and keep it
 * alive from now on. @v3 must outlive the lease; @log is copied.
 *
 * Returns 0, MST_ESYS, MST_ENOMEM, or an error of etcd/v3.h.
 */
int mst__etcd3_lease_open(struct mst__v3 *v3,
                          const char *key,
                          int64_t ttl_s,
                          struct mst__until until,
                          const struct mst_log *log,
                          struct mst__etcd3_lease **ret_lease,
                          struct mst_err *reterr);

/* Stop keeping it alive. NULL is allowed. */
void mst__etcd3_lease_close(struct mst__etcd3_lease *lease);

/* Its number, never 0. */
int64_t mst__etcd3_lease_id(const struct mst__etcd3_lease *lease);

/* 0, or MST_ECLOSED once the lease, and with it every key, is known to be gone; this is final. */
int mst__etcd3_lease_check(struct mst__etcd3_lease *lease, struct mst_err *reterr);

/* etcd has reported that the lease does not exist. */
void mst__etcd3_lease_lost(struct mst__etcd3_lease *lease);

#endif /* MST_STORE_ETCD3_LEASE_H */
