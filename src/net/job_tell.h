/* net/job_tell.h - encodes effects of an authority as frames. */
#ifndef MST_NET_JOB_TELL_H
#define MST_NET_JOB_TELL_H

#include "net/job.h"

/* Send all pending effects of @job. May doom connections. */
void mst__job_tell(struct mst__job *job);

#endif /* MST_NET_JOB_TELL_H */
