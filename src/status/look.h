/* status/look.h - inspects a job of each backend. */
#ifndef MST_STATUS_LOOK_H
#define MST_STATUS_LOOK_H

#include <muster/rendezvous.h>

#include "snapshot/snapshot.h"

/* The sentence for a record that does not exist. */
#define MST_LOOK_NONE "There is no such rendezvous: nobody has tried to join it yet."

struct mst__look_ops {
    /* @params must outlive @ret_self; @nodes_min and @nodes_max, 0 if not given, replace those of
     * @params. Sends no request. */
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
    /* Close an existing job. NULL: a handler must do it, and there is no place for a reason. */
    int (*shut)(void *self,
                const char *reason,
                const char *owner,
                int64_t timeout_ms,
                struct mst_err *reterr);
    void (*close)(void *self);
};

/* Those of the built-in backends are in the registry, see handler/builtin.h. This one is for a
 * backend without its own: it asks a handler, which knows little. */
extern const struct mst__look_ops mst__look_handler;

/* A job that does not exist, with @summary as its sentence. 0 or MST_ENOMEM. */
int mst__look_absent(const struct mst_params *params,
                     const char *summary,
                     struct mst__snapshot **ret_snapshot,
                     struct mst_err *reterr);

#endif /* MST_STATUS_LOOK_H */
