/* wire/job_status.h - makes the status of a run from its authority. */
#ifndef MST_WIRE_JOB_STATUS_H
#define MST_WIRE_JOB_STATUS_H

#include "wire/job.h"

/* Memory for the texts and the packed lists of a status. */
struct mst__job_status_room {
    struct mst__buf members;
    struct mst__buf details;
    char sentence[1000];
};

/* @size_max limits each list; the rest is left out. */
void mst__job_status_room_init(struct mst__job_status_room *room, size_t size_max);
void mst__job_status_room_close(struct mst__job_status_room *room);

/* Fill @ret_status for a reader of protocol @version, 0 = the first, except run_id and
 * heartbeat_us. @has_times: this authority decides, so it knows when it heard each node. It borrows
 * from @authority and @room, which is emptied first. */
void mst__job_status_fill(const struct mst__authority *authority,
                          uint32_t version,
                          int64_t now_us,
                          bool has_times,
                          struct mst__job_status_room *room,
                          struct mst__job_status *ret_status);

/* The same in short, except run_id. */
void mst__job_entry_fill(const struct mst__authority *authority, struct mst__job_entry *ret_entry);

#endif /* MST_WIRE_JOB_STATUS_H */
