/* record/etcd_v2.h - the record of a rendezvous in one key of an etcd, through its v2 API, as
 * torch's `etcd-v2` stores it: base64 of the same pickle as in c10d, with a TTL of two hours. */
#ifndef MST_RECORD_ETCD_V2_H
#define MST_RECORD_ETCD_V2_H

#include "etcd/v2.h"
#include "handler/etcd_settings.h"
#include "record/home.h"

/* The key of the record without the run id, and the directory of the nodes' store, which all
 * jobs share. */
#define MST_ETCD_V2_RECORD "/torch/elastic/rendezvous/"
#define MST_ETCD_V2_STORE "/torch/elastic/store"

/**
 * Keep the record of the rendezvous @params, which are copied, in their etcd. No request is sent.
 * @ret_dynamic: the other settings.
 *
 * Returns 0, MST_ENOMEM, or an error of mst__etcd_v2_read. The close operation releases the
 * home.
 */
int mst__etcd_v2_home_new(const struct mst_params *params,
                          struct mst__record_home *ret_home,
                          struct mst__dynamic *ret_dynamic,
                          struct mst_err *reterr);

/**
 * Remove the keys of all rounds of @run_id whose last write was at or before the etcd's index
 * @index_max: there was no record then.
 *
 * Returns 0 or an error of mst__v2_get or mst__v2_delete.
 */
int mst__etcd_v2_sweep(struct mst__v2 *v2,
                       const char *run_id,
                       uint64_t index_max,
                       struct mst__until until,
                       const struct mst_log *log,
                       struct mst_err *reterr);

#endif /* MST_RECORD_ETCD_V2_H */
