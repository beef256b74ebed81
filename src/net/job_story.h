/* net/job_story.h - log lines about a job, for the server and for `muster replay`. */
#ifndef MST_NET_JOB_STORY_H
#define MST_NET_JOB_STORY_H

#include <muster/log.h>

#include "base/log.h"
#include "core/authority.h"

/* The job and its log. */
struct mst__story {
    const struct mst_log *log;
    const char *run_id;
    const struct mst__authority *authority;
};

/* Log a change of the phase. @took_us: how long a complete round gathered; -1 = not known. */
void mst__story_moved(const struct mst__story *story,
                      enum mst__authority_phase from,
                      enum mst__authority_phase to,
                      enum mst__authority_why why,
                      int64_t round,
                      int64_t took_us);

/* An mst__authority_ended_fn. */
void mst__story_ended(const struct mst__story *story,
                      const struct mst__authority_member *member,
                      enum mst__authority_ended how,
                      uint32_t count);

/* Log the failure of @id, before the authority processes it. */
void mst__story_failed(const struct mst__story *story,
                       mst__authority_id id,
                       int64_t round,
                       const struct mst__cause *cause);

void mst__story_forgotten(const struct mst__story *story);

/* The quoted name of the node @id, or that of no node. */
const char *mst__story_node(const struct mst__story *story,
                            mst__authority_id id,
                            char ret_text[MST_LOG_QUOTE_SIZE]);

#endif /* MST_NET_JOB_STORY_H */
