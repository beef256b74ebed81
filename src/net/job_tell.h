/* net/job_tell.h - effects of an authority as frames. */
#ifndef MST_NET_JOB_TELL_H
#define MST_NET_JOB_TELL_H

#include "net/job.h"

/* Send everything that is to be told in @job. Connections may be doomed by it. */
void mst__job_tell(struct mst__job *job);

/* Append what is known of @job at @now_us to @output as a STATUS_TOLD, for who knows @version of
 * the protocol, 0 = the first; @size_max is for the frame. 0, MST_ELIMIT, MST_ENOMEM. */
int mst__job_tell_status(struct mst__job *job,
                         uint32_t version,
                         int64_t now_us,
                         size_t size_max,
                         struct mst__buf *output);

#endif /* MST_NET_JOB_TELL_H */
