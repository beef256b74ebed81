/* snapshot/snapshot.h - builds snapshots of jobs. Pure: the caller brings what it has read. The
 * server makes them for HTTP, the client for programs and commands. */
#ifndef MST_SNAPSHOT_SNAPSHOT_H
#define MST_SNAPSHOT_SNAPSHOT_H

#include <muster/status.h>

#include "base/arena.h"
#include "base/json_writer.h"
#include "core/settings.h"
#include "core/state.h"
#include "wire/job.h"

/* The part of the list that a node is in. */
enum mst__snapshot_list {
    MST_SNAPSHOT_MEMBERS,
    MST_SNAPSHOT_WAITING,
    MST_SNAPSHOT_SPARES,
    MST_SNAPSHOT_GONE,
};
#define MST_SNAPSHOT_LIST_COUNT (MST_SNAPSHOT_GONE + 1)

/* The whole struct of a public mst_status. */
struct mst__snapshot {
    struct mst_status status;
    struct mst__arena arena;
    const struct mst_status_node **nodes; /* in the arena */
    size_t nodes_max;
    int code; /* the first error */
};

/* An empty snapshot, of a job that does not exist. NULL if out of memory. */
struct mst__snapshot *mst__snapshot_new(const char *backend, struct mst_bytes run_id);
void mst__snapshot_free(struct mst__snapshot *snapshot);

/* The snapshot of @status. */
struct mst__snapshot *mst__snapshot_of(struct mst_status *status);

/* Its size in memory. */
size_t mst__snapshot_size(const struct mst__snapshot *snapshot);

/* A copy that lives as long as the snapshot; "" after an error. */
const char *mst__snapshot_text(struct mst__snapshot *snapshot, struct mst_bytes text);

/* Reserve room for up to @count nodes. */
void mst__snapshot_expect_nodes(struct mst__snapshot *snapshot, size_t count);

/* Add an empty node; NULL after an error, or beyond the reserved number. */
struct mst_status_node *mst__snapshot_add(struct mst__snapshot *snapshot,
                                          enum mst__snapshot_list list);

/* Finish: sort the nodes. 0, or the first error. */
int mst__snapshot_end(struct mst__snapshot *snapshot);

/* Keep only the members of the round (@epoch, @round), by rank, including those that are gone.
 * @epoch is 0 if the backend has none. False if the snapshot is of another round. */
bool mst__snapshot_keep_round(struct mst__snapshot *snapshot, uint64_t epoch, int64_t round);

/* A number that changes when the job changes; ages do not count. */
uint64_t mst__snapshot_mark(const struct mst_status *status);

/* Whether a node with a heartbeat every @interval_us that was silent for @silent_us is late: by
 * half an interval. */
bool mst__snapshot_is_late(int64_t silent_us, int64_t interval_us);

/* --- sources --- */

/* From the status of an authority, of an existing job; or NULL and the code. */
struct mst__snapshot *mst__snapshot_of_job(const char *backend,
                                           const struct mst__job_status *told,
                                           int *ret_code);

/* From a record at @now_us of the wall clock, for nodes with @settings; limits of 0 are not known.
 * The same. */
struct mst__snapshot *mst__snapshot_of_record(const char *backend,
                                              struct mst_bytes run_id,
                                              const struct mst__state *state,
                                              bool has_state,
                                              const struct mst__settings *settings,
                                              int64_t now_us,
                                              int *ret_code);

/* --- JSON --- */

/* The position of a writer in parts. Zeroed: at the start. */
struct mst__snapshot_cursor {
    size_t node; /* the next one */
    unsigned list;
    bool is_begun, is_done;
};

/* Append a part of about @size bytes to @json. True if it was the last one, or after an error,
 * which is in @json. */
bool mst__snapshot_json(const struct mst_status *status,
                        size_t size,
                        struct mst__snapshot_cursor *cursor,
                        struct mst__json_writer *json);

/* --- lists of jobs --- */

/* The whole struct of a public mst_status_list. */
struct mst__snapshot_list_of_jobs {
    struct mst_status_list list;
    struct mst__arena arena;
};

/* From the list of a server; NULL and the code. Release with mst_status_list_free. */
struct mst_status_list *mst__snapshot_of_jobs(const struct mst__job_list *told, int *ret_code);

size_t mst__snapshot_list_size(const struct mst_status_list *list);

/* As mst__snapshot_json. */
bool mst__snapshot_list_json(const struct mst_status_list *list,
                             size_t size,
                             struct mst__snapshot_cursor *cursor,
                             struct mst__json_writer *json);

#endif /* MST_SNAPSHOT_SNAPSHOT_H */
