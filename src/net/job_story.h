/* net/job_story.h - what happens to a job, as log lines: of a server, and of its journal. */
#ifndef MST_NET_JOB_STORY_H
#define MST_NET_JOB_STORY_H

#include <muster/log.h>

#include "base/log.h"
#include "core/authority.h"

/* Whose. */
struct mst__story {
    const struct mst_log *log;
    const char *run_id;
    const struct mst__authority *authority;
};

/* The phase has changed. @took_us: how long a round that is complete was gathered for; -1 = not
 * known. */
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

/* The work of @id has failed; before the authority hears it. */
void mst__story_failed(const struct mst__story *story,
                       mst__authority_id id,
                       int64_t round,
                       const struct mst__cause *cause);

void mst__story_forgotten(const struct mst__story *story);

/* The name of the node @id, quoted, or that of nobody. */
const char *mst__story_node(const struct mst__story *story,
                            mst__authority_id id,
                            char ret_text[MST_LOG_QUOTE_SIZE]);

#endif /* MST_NET_JOB_STORY_H */
