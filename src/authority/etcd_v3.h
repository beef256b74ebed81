/* authority/etcd_v3.h - a look at a rendezvous of `etcd-v3` from outside. Writes nothing. */
#ifndef MST_AUTHORITY_ETCD_V3_H
#define MST_AUTHORITY_ETCD_V3_H

#include "authority/etcd_v3_authority.h"
#include "etcd/v3.h"
#include "handler/etcd_settings.h"

/* Access to a rendezvous, and the state of the last read. */
struct mst__etcd_v3_look {
    struct mst__etcd_v3_settings settings;
    struct mst__v3 *v3;
    struct mst__etcd_v3_keys keys;
    bool exists; /* there is a node, or a round was sealed */
    /* The authority's state, except the end of a last call, which only the authority knows. */
    struct mst__etcd_v3_authority authority;
    int64_t modified; /* the revision of the last change */
    size_t nodes;     /* keys of nodes */
};

/* Returns 0, MST_ENOMEM, or an error of mst__etcd_v3_read. @params must outlive @look, which
 * must be closed in any case. */
int mst__etcd_v3_look_open(struct mst__etcd_v3_look *look,
                           const struct mst_params *params,
                           struct mst_err *reterr);
void mst__etcd_v3_look_close(struct mst__etcd_v3_look *look);

/* Read it. Returns 0, MST_ESTATE if the data is not a rendezvous, MST_ENOMEM, or an error of
 * mst__v3_txn. */
int mst__etcd_v3_look_read(struct mst__etcd_v3_look *look,
                           struct mst__until until,
                           struct mst_err *reterr);

/* One sentence: what the job of @keys does or waits for. Returns as mst__etcd_v3_look_read. */
int mst__etcd_v3_describe(struct mst__v3 *v3,
                          const struct mst__etcd_v3_keys *keys,
                          struct mst__until until,
                          char *ret_text,
                          size_t ret_size,
                          struct mst_err *reterr);

#endif /* MST_AUTHORITY_ETCD_V3_H */
