/* cli/look_job.h - a rendezvous of backend `muster`, as its server tells it, and told. */
#ifndef MST_CLI_LOOK_JOB_H
#define MST_CLI_LOOK_JOB_H

#include "cli/json.h"
#include "cli/rdzv.h"

/* As mst__look_open, _read and _close, for the backend `muster`. */
int mst__look_job_open(struct mst__look *look,
                       const struct mst_params *params,
                       struct mst_err *reterr);
int mst__look_job_read(struct mst__look *look,
                       int64_t timeout_ms,
                       bool *ret_changed,
                       struct mst_err *reterr);
void mst__look_job_close(struct mst__look *look);

/* As mst__look_group and _nodes. */
void mst__look_job_group(const struct mst__look *look, struct mst__look_group *ret_group);
void mst__look_job_nodes(const struct mst__look *look, mst__look_node_fn fn, void *arg);

/* Append what the rendezvous does or waits for, as the authority says it. 0, MST_ELIMIT,
 * MST_ENOMEM. */
int mst__look_job_summary(const struct mst__look *look, struct mst__buf *text);

/* Append the rest of the line that names it, and the table of its nodes. The same. */
int mst__look_job_table(const struct mst__look *look, struct mst__buf *text);

/* Put the members of an object that say the same as those of another rendezvous. */
void mst__look_job_json(const struct mst__look *look, struct mst__cli_json *json);

/* Close the rendezvous @params for good. 0, MST_ENOTFOUND when there is none, or as
 * mst__look_job_read does. */
int mst__look_job_shut(const struct mst_params *params,
                       const char *reason,
                       int64_t timeout_ms,
                       struct mst_err *reterr);

#endif /* MST_CLI_LOOK_JOB_H */
