/* net/job_status.h - answers status requests about jobs. */
#ifndef MST_NET_JOB_STATUS_H
#define MST_NET_JOB_STATUS_H

#include "net/job.h"
#include "snapshot/snapshot.h"

/* Append the answer to a STATUS for @run_id, empty for all, from the peer of @conn, of protocol
 * @version, 0 = the first. 0, MST_ENOTFOUND with a sentence that names similar ids, MST_ELIMIT,
 * MST_ENOMEM. */
int mst__job_answer_status(const struct mst_server *server,
                           const struct mst__conn *conn,
                           struct mst_bytes run_id,
                           uint32_t version,
                           struct mst__buf *output,
                           struct mst_err *reterr);

/* The same as a snapshot; also MST_ENOMEM. */
int mst__job_snapshot(const struct mst_server *server,
                      struct mst_bytes run_id,
                      struct mst__snapshot **ret_snapshot,
                      struct mst_err *reterr);
int mst__jobs_snapshot(const struct mst_server *server,
                       struct mst_status_list **ret_list,
                       struct mst_err *reterr);

#endif /* MST_NET_JOB_STATUS_H */
