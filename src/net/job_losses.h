/* net/job_losses.h - the nodes of a job that were lost last, in any round. Its authority forgets
 * them with the next one. */
#ifndef MST_NET_JOB_LOSSES_H
#define MST_NET_JOB_LOSSES_H

#include <muster/error.h>
#include <stdint.h>

#include "base/limits.h"

/* One of them; its name is @name_size bytes of the list's texts. */
struct mst__job_loss {
    int64_t round;
    int64_t lost_us;
    size_t name_size;
};

/* The oldest first. Zeroed: empty. */
struct mst__job_losses {
    size_t count;
    uint64_t unlisted; /* lost earlier, or without a name */
    struct mst__job_loss nodes[MST_JOB_LOST_MAX];
    size_t names_size;
    char names[MST_JOB_LOST_NAMES_SIZE];
};

/* The member @name of @round is lost. The oldest ones make room. */
void mst__job_losses_add(struct mst__job_losses *losses,
                         struct mst_bytes name,
                         int64_t round,
                         int64_t lost_us);

/* The node @name is there again. */
void mst__job_losses_forget(struct mst__job_losses *losses, struct mst_bytes name);

/* The name of the node @index. */
struct mst_bytes mst__job_losses_name(const struct mst__job_losses *losses, size_t index);

#endif /* MST_NET_JOB_LOSSES_H */
