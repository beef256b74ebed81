/* wire/job_status.h - what an authority knows of its run, as it is told to who asks. */
#ifndef MST_WIRE_JOB_STATUS_H
#define MST_WIRE_JOB_STATUS_H

#include "wire/job.h"

/* Where the texts and the packed lists of a status are. */
struct mst__job_status_room {
    struct mst__buf members;
    struct mst__buf details;
    char sentence[1000];
};

/* @size_max is for each of the lists; what does not fit is left out. */
void mst__job_status_room_init(struct mst__job_status_room *room, size_t size_max);
void mst__job_status_room_close(struct mst__job_status_room *room);

/* Fill in @ret_status for who knows @version of the protocol, 0 = the first, but for run_id and
 * heartbeat_us. @has_times: the authority is the one that decides, so that it knows when it heard
 * of whom. It borrows from @authority and @room, which is emptied first. */
void mst__job_status_fill(const struct mst__authority *authority,
                          uint32_t version,
                          int64_t now_us,
                          bool has_times,
                          struct mst__job_status_room *room,
                          struct mst__job_status *ret_status);

/* The same in short, but for run_id. */
void mst__job_entry_fill(const struct mst__authority *authority, struct mst__job_entry *ret_entry);

#endif /* MST_WIRE_JOB_STATUS_H */
