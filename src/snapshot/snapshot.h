/* snapshot/snapshot.h - a snapshot of a job in the making. Pure: who makes one brings what it has
 * read. The server makes them for its page, the client's side for programs and commands. */
#ifndef MST_SNAPSHOT_SNAPSHOT_H
#define MST_SNAPSHOT_SNAPSHOT_H

#include <muster/status.h>

#include "base/arena.h"
#include "base/json_writer.h"
#include "core/settings.h"
#include "core/state.h"
#include "wire/job.h"

/* In which part of the list a node is. */
enum mst__snapshot_list {
    MST_SNAPSHOT_MEMBERS,
    MST_SNAPSHOT_WAITING,
    MST_SNAPSHOT_SPARES,
    MST_SNAPSHOT_GONE,
};
#define MST_SNAPSHOT_LIST_COUNT (MST_SNAPSHOT_GONE + 1)

/* What mst_status is the beginning of. */
struct mst__snapshot {
    struct mst_status status;
    struct mst__arena arena;
    const struct mst_status_node **nodes; /* in the arena */
    size_t nodes_max;
    int code; /* the first error of what was put in */
};

/* An empty one, of a job that does not exist. NULL when there is no memory. */
struct mst__snapshot *mst__snapshot_new(const char *backend, struct mst_bytes run_id);
void mst__snapshot_free(struct mst__snapshot *snapshot);

/* The one that @status is the beginning of. */
struct mst__snapshot *mst__snapshot_of(struct mst_status *status);

/* The memory that it takes. */
size_t mst__snapshot_size(const struct mst__snapshot *snapshot);

/* A copy that lives as long as the snapshot; "" after an error. */
const char *mst__snapshot_text(struct mst__snapshot *snapshot, struct mst_bytes text);

/* There will be up to @count nodes. */
void mst__snapshot_expect_nodes(struct mst__snapshot *snapshot, size_t count);

/* A node of which nothing is known yet; NULL after an error, or beyond the number that was said. */
struct mst_status_node *mst__snapshot_add(struct mst__snapshot *snapshot,
                                          enum mst__snapshot_list list);

/* Everything is in: sort the nodes. 0, or the first error. */
int mst__snapshot_end(struct mst__snapshot *snapshot);

/* Keep the members of the round (@epoch, @round), by rank, those who are gone since included, and
 * nobody else. @epoch is 0 where the backend has none. False when the snapshot is of another
 * round. */
bool mst__snapshot_keep_round(struct mst__snapshot *snapshot, uint64_t epoch, int64_t round);

/* A number that is another one when something has changed, for which time that passes does not
 * count. */
uint64_t mst__snapshot_mark(const struct mst_status *status);

/* Whether a node that was last heard of @silent_us ago is late when it has something to say every
 * @interval_us: half a turn beyond the one that is due. */
bool mst__snapshot_is_late(int64_t silent_us, int64_t interval_us);

/* --- what it is made of --- */

/* As an authority tells it: the snapshot, of which the job exists, or NULL and the code. */
struct mst__snapshot *mst__snapshot_of_job(const char *backend,
                                           const struct mst__job_status *told,
                                           int *ret_code);

/* As a record says it at @now_us of the wall clock, for nodes that were given @settings; limits of
 * 0 are not known. The same. */
struct mst__snapshot *mst__snapshot_of_record(const char *backend,
                                              struct mst_bytes run_id,
                                              const struct mst__state *state,
                                              bool has_state,
                                              const struct mst__settings *settings,
                                              int64_t now_us,
                                              int *ret_code);

/* --- JSON --- */

/* Where one is that writes a snapshot in parts. Zeroed: at its beginning. */
struct mst__snapshot_cursor {
    size_t node; /* the next one */
    unsigned list;
    bool is_begun, is_done;
};

/* Append a part of about @size bytes to @json. True when that was the last one, or after an error,
 * which is in @json. */
bool mst__snapshot_json(const struct mst_status *status,
                        size_t size,
                        struct mst__snapshot_cursor *cursor,
                        struct mst__json_writer *json);

/* --- lists of jobs --- */

/* What mst_status_list is the beginning of. */
struct mst__snapshot_list_of_jobs {
    struct mst_status_list list;
    struct mst__arena arena;
};

/* From what a server tells; NULL and the code. Freed with mst_status_list_free. */
struct mst_status_list *mst__snapshot_of_jobs(const struct mst__job_list *told, int *ret_code);

size_t mst__snapshot_list_size(const struct mst_status_list *list);

/* The same as mst__snapshot_json. */
bool mst__snapshot_list_json(const struct mst_status_list *list,
                             size_t size,
                             struct mst__snapshot_cursor *cursor,
                             struct mst__json_writer *json);

#endif /* MST_SNAPSHOT_SNAPSHOT_H */
