/* cli/look_v3.h - a rendezvous of backend `etcd-v3`, told as the server of backend `muster` tells
 * one of its own: both are the same machine's. */
#ifndef MST_CLI_LOOK_V3_H
#define MST_CLI_LOOK_V3_H

#include <muster/rendezvous.h>

#include "wire/job.h"

struct mst__look_v3;

/* @params outlive it. 0, MST_EINVAL, MST_ENOMEM. */
int mst__look_v3_open(const struct mst_params *params,
                      struct mst__look_v3 **ret_look,
                      struct mst_err *reterr);
/* NULL is fine. */
void mst__look_v3_close(struct mst__look_v3 *look);

/* Read it. @ret_status is valid until the next call. 0, MST_ENOTFOUND when there is none,
 * MST_ESTATE when what is there is no rendezvous, or an error of the etcd. */
int mst__look_v3_read(struct mst__look_v3 *look,
                      int64_t timeout_ms,
                      struct mst__job_status *ret_status,
                      struct mst_err *reterr);

/* Close it for good. The same. */
int mst__look_v3_shut(struct mst__look_v3 *look,
                      const char *reason,
                      const char *owner,
                      int64_t timeout_ms,
                      struct mst_err *reterr);

#endif /* MST_CLI_LOOK_V3_H */
