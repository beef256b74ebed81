/* status/look.h - how a job of each backend is looked at. */
#ifndef MST_STATUS_LOOK_H
#define MST_STATUS_LOOK_H

#include <muster/rendezvous.h>

#include "snapshot/snapshot.h"

/* What is said of a record that nobody has written yet. */
#define MST_LOOK_NONE "There is no such rendezvous: nobody has tried to join it yet."

struct mst__look_ops {
    /* @params outlive @ret_self; @nodes_min and @nodes_max are 0 when they were not given, in place
     * of those of @params. Nobody is asked yet. */
    int (*open)(const struct mst_params *params,
                int64_t nodes_min,
                int64_t nodes_max,
                void **ret_self,
                struct mst_err *reterr);
    /* 0, also for a job that does not exist, or as mst_status_job does. */
    int (*read)(void *self,
                int64_t timeout_ms,
                struct mst__snapshot **ret_snapshot,
                struct mst_err *reterr);
    /* Close a job that exists. NULL: a handler has to, and there is no place for a reason. */
    int (*shut)(void *self,
                const char *reason,
                const char *owner,
                int64_t timeout_ms,
                struct mst_err *reterr);
    void (*close)(void *self);
};

extern const struct mst__look_ops mst__look_muster;
extern const struct mst__look_ops mst__look_c10d;
extern const struct mst__look_ops mst__look_etcd_v2;
extern const struct mst__look_ops mst__look_etcd_v3;
extern const struct mst__look_ops mst__look_etcd;

/* A job that does not exist, for which @summary is the sentence. 0 or MST_ENOMEM. */
int mst__look_absent(const struct mst_params *params,
                     const char *summary,
                     struct mst__snapshot **ret_snapshot,
                     struct mst_err *reterr);

#endif /* MST_STATUS_LOOK_H */
