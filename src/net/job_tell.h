/* net/job_tell.h - effects of an authority as frames. */
#ifndef MST_NET_JOB_TELL_H
#define MST_NET_JOB_TELL_H

#include "net/job.h"

/* Send everything that is to be told in @job. Connections may be doomed by it. */
void mst__job_tell(struct mst__job *job);

#endif /* MST_NET_JOB_TELL_H */
