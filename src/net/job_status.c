/* net/job_status.c - the status of jobs, for the protocol and for HTTP. */
#include "net/job_status.h"

#include <muster/version.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/nearest.h"
#include "net/conn.h"
#include "net/give_way.h"
#include "net/server.h"
#include "wire/job_status.h"

#define ID_SHOWN 40      /* bytes of a run id in a sentence */
#define WORD_COMPARED 63 /* bytes of a run id that are compared */

/* --- unknown run ids --- */

/* The nearest run ids, in the order of their distance. */
struct similar {
    const struct mst__job *jobs[MST_JOBS_SIMILAR_MAX];
    size_t distances[MST_JOBS_SIMILAR_MAX];
    size_t count;
};

static void similar_add(struct similar *similar, const struct mst__job *job, size_t distance)
{
    size_t at = similar->count;
    while (at > 0 && similar->distances[at - 1] > distance) {
        at--;
    }
    if (at == MST_JOBS_SIMILAR_MAX) {
        return;
    }
    similar->count += similar->count < MST_JOBS_SIMILAR_MAX ? 1 : 0;
    for (size_t i = similar->count - 1; i > at; i--) {
        similar->jobs[i] = similar->jobs[i - 1];
        similar->distances[i] = similar->distances[i - 1];
    }
    similar->jobs[at] = job;
    similar->distances[at] = distance;
}

static int fail_unknown(const struct mst_server *server,
                        struct mst_bytes run_id,
                        struct mst_err *reterr)
{
    char word[WORD_COMPARED + 1];
    char near[MST_JOBS_SIMILAR_MAX * (ID_SHOWN + 4) + sizeof "; similar: "] = "";
    struct similar similar = {.count = 0};
    size_t left = MST_JOBS_COMPARED_MAX;
    size_t size = run_id.size < WORD_COMPARED ? run_id.size : WORD_COMPARED;
    (void)snprintf(word, sizeof word, "%.*s", (int)run_id.size, (const char *)run_id.data);
    for (void *value = mst__map_first(&server->jobs.map); value != NULL && left > 0;
         value = mst__map_next(value), left--) {
        const struct mst__job *job = *(struct mst__job **)value;
        size_t distance = mst__nearest_distance(word, job->run_id);
        if (distance <= 1 + size / 3 && distance < size) {
            similar_add(&similar, job, distance);
        }
    }
    size_t used = 0;
    for (size_t i = 0; i < similar.count; i++) {
        used += (size_t)snprintf(near + used, sizeof near - used, "%s'%.*s'",
                                 i == 0 ? "; similar: " : ", ", ID_SHOWN,
                                 similar.jobs[i]->run_id); /* fits */
    }
    return mst__fail(reterr, MST_ENOTFOUND, 0, "no node has joined run '%.*s'%s", ID_SHOWN, word,
                     near);
}

/* --- one job --- */

/* Append a node that was lost in an earlier round; true if there was room. */
static bool add_lost(const struct mst__job_losses *losses,
                     size_t index,
                     uint32_t version,
                     struct mst__job_status_room *room,
                     struct mst__job_status *status)
{
    const struct mst__job_member told = {
        .name = mst__job_losses_name(losses, index),
        .standing = MST_STANDING_GONE,
        .rank = MST_AUTHORITY_RANK_NONE,
        .silent_us = mst__clock_us() - losses->nodes[index].lost_us,
    };
    const struct mst__job_detail detail = {.gone = MST_JOB_GONE_LOST};
    size_t before = mst__buf_size(&room->members);
    if (mst__job_member_write(&room->members, &told) != 0) {
        return false;
    }
    if (version >= MST_JOB_VERSION_LIST && mst__job_detail_write(&room->details, &detail) != 0) {
        mst__buf_truncate(&room->members, before);
        return false;
    }
    status->member_count++;
    return true;
}

/* The authority knows the lost nodes of its last round, and has told them. Add those of earlier
 * rounds, and how many more there were. */
static void add_all_lost(const struct mst__job *job,
                         uint32_t version,
                         struct mst__job_status_room *room,
                         struct mst__job_status *status)
{
    const struct mst__job_losses *losses = &job->life.losses;
    size_t size = sizeof room->sentence;
    size_t used = strlen(room->sentence);
    size_t count = 0;
    for (size_t i = losses->count; i-- > 0;) {
        if (losses->nodes[i].round >= job->authority.round) {
            continue;
        }
        status->is_cut = status->is_cut || !add_lost(losses, i, version, room, status);
        struct mst_bytes name = mst__job_losses_name(losses, i);
        used += (size_t)snprintf(room->sentence + used, size - used, "%s%.*s (round %lld)",
                                 count == 0 ? "; lost before: " : ", ", (int)name.size,
                                 (const char *)name.data, (long long)losses->nodes[i].round);
        used = used < size ? used : size - 1; /* cut off */
        count++;
    }
    if (losses->unlisted > 0) {
        (void)snprintf(room->sentence + used, size - used, "%s%llu%s", /* as above */
                       count == 0 ? "; lost before: " : " and ",
                       (unsigned long long)losses->unlisted, count == 0 ? "" : " more");
    }
    status->members = mst__buf_bytes(&room->members);
    status->details = mst__buf_bytes(&room->details);
    status->sentence = mst_bytes_str(room->sentence);
}

/* The longest heartbeat interval of the connected nodes. */
static int64_t longest_heartbeat_us(const struct mst__job *job)
{
    int64_t longest_us = 0;
    const struct mst__authority_member *member;
    uint32_t cursor = 0;
    while ((member = mst__authority_next_member(&job->authority, &cursor)) != NULL) {
        const struct mst__conn *conn = member->driver;
        if (conn != NULL && conn->seat.heartbeat_us > longest_us) {
            longest_us = conn->seat.heartbeat_us;
        }
    }
    return longest_us;
}

/* The status borrows from @job and @room, which the caller closes. */
static void job_status(const struct mst__job *job,
                       uint32_t version,
                       struct mst__job_status_room *room,
                       struct mst__job_status *ret_status)
{
    /* Leaves room in the frame for the other list and some KiB of texts. */
    mst__job_status_room_init(room, job->server->wire_limits.message_size_max / 4);
    mst__job_status_fill(&job->authority, version, mst__clock_us(), true, room, ret_status);
    add_all_lost(job, version, room, ret_status);
    ret_status->run_id = mst_bytes_of(job->run_id, job->run_id_size);
    ret_status->heartbeat_us = longest_heartbeat_us(job);
}

int mst__job_snapshot(const struct mst_server *server,
                      struct mst_bytes run_id,
                      struct mst__snapshot **ret_snapshot,
                      struct mst_err *reterr)
{
    const struct mst__job *job = mst__job_find(server, run_id);
    struct mst__job_status_room room;
    struct mst__job_status status;
    int rv;
    if (job == NULL) {
        return fail_unknown(server, run_id, reterr);
    }
    job_status(job, MST_JOB_VERSION, &room, &status);
    *ret_snapshot = mst__snapshot_of_job("muster", &status, &rv);
    mst__job_status_room_close(&room);
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "no memory for the status");
}

/* --- all of them --- */

/* @ret_list borrows from @jobs, which the caller closes. */
static void jobs_list(const struct mst_server *server,
                      struct mst__buf *jobs,
                      struct mst__job_list *ret_list)
{
    mst__buf_init(jobs, server->wire_limits.message_size_max / 2);
    *ret_list = (struct mst__job_list){.server = mst_bytes_str(mst_version()),
                                       .total = (uint32_t)mst__map_count(&server->jobs.map)};
    for (void *value = mst__map_first(&server->jobs.map);
         value != NULL && ret_list->count < MST_JOBS_LISTED_MAX; value = mst__map_next(value)) {
        const struct mst__job *job = *(struct mst__job **)value;
        struct mst__job_entry entry;
        mst__job_entry_fill(&job->authority, &entry);
        entry.run_id = mst_bytes_of(job->run_id, job->run_id_size);
        if (mst__job_entry_write(jobs, &entry) != 0) {
            break; /* the total shows that there are more */
        }
        ret_list->count++;
    }
    ret_list->jobs = mst__buf_bytes(jobs);
}

int mst__jobs_snapshot(const struct mst_server *server,
                       struct mst_status_list **ret_list,
                       struct mst_err *reterr)
{
    struct mst__buf jobs;
    struct mst__job_list list;
    int rv;
    jobs_list(server, &jobs, &list);
    *ret_list = mst__snapshot_of_jobs(&list, &rv);
    mst__buf_close(&jobs);
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "no memory for the list of jobs");
}

/* --- answers --- */

static int answer_list(const struct mst_server *server,
                       const struct mst__conn *conn,
                       struct mst__buf *output)
{
    struct mst__buf jobs;
    struct mst__job_message message = {.type = MST_JOB_JOBS_TOLD};
    jobs_list(server, &jobs, &message.u.list);
    message.u.list.gives_way = mst__give_way_is_for(conn);
    int rv = mst__job_write(output, &message);
    mst__buf_close(&jobs);
    return rv;
}

int mst__job_answer_status(const struct mst_server *server,
                           const struct mst__conn *conn,
                           struct mst_bytes run_id,
                           uint32_t version,
                           struct mst__buf *output,
                           struct mst_err *reterr)
{
    if (run_id.size == 0 && version >= MST_JOB_VERSION_LIST) {
        return answer_list(server, conn, output);
    }
    const struct mst__job *job = mst__job_find(server, run_id);
    if (job == NULL) {
        return fail_unknown(server, run_id, reterr);
    }
    struct mst__job_status_room room;
    struct mst__job_message message = {.type = MST_JOB_STATUS_TOLD};
    job_status(job, version, &room, &message.u.status);
    int rv = mst__job_write(output, &message);
    mst__job_status_room_close(&room);
    return rv;
}
