/* snapshot/snapshot_job.c - snapshots of a job and of a list of jobs, from messages of a server. */
#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "snapshot/snapshot.h"

/* The sentence of a failure. */
#define CAUSE_SIZE 640

static enum mst__snapshot_list list_of(const struct mst__job_member *member)
{
    switch ((enum mst__authority_standing)member->standing) {
        case MST_STANDING_MEMBER:
        case MST_STANDING_CALLED:
        case MST_STANDING_FINISHED:
            return MST_SNAPSHOT_MEMBERS;
        case MST_STANDING_GATHERED:
        case MST_STANDING_QUEUED:
            return MST_SNAPSHOT_WAITING;
        case MST_STANDING_SPARE:
            return MST_SNAPSHOT_SPARES;
        case MST_STANDING_GONE:
            break;
    }
    return MST_SNAPSHOT_GONE;
}

static void take_labels(struct mst__snapshot *snapshot,
                        const struct mst__job_detail *detail,
                        struct mst_status_node *node)
{
    struct mst_status_label *labels =
        detail->labels_count == 0
            ? NULL
            : mst__arena_take(&snapshot->arena, detail->labels_count * sizeof *labels);
    if (labels == NULL) {
        snapshot->code = detail->labels_count == 0 ? snapshot->code : MST_ENOMEM;
        return;
    }
    for (uint32_t i = 0; i < detail->labels_count; i++) {
        labels[i].key = mst__snapshot_text(snapshot, detail->labels[i].key);
        labels[i].value = mst__snapshot_text(snapshot, detail->labels[i].value);
    }
    node->labels = labels;
    node->label_count = detail->labels_count;
}

static void take_member(struct mst__snapshot *snapshot,
                        const struct mst__job_status *told,
                        const struct mst__job_member *member,
                        const struct mst__job_detail *detail)
{
    struct mst_status_node *node = mst__snapshot_add(snapshot, list_of(member));
    if (node == NULL) {
        return;
    }
    bool is_gone = member->standing == MST_STANDING_GONE;
    node->name = mst__snapshot_text(snapshot, member->name);
    node->address = mst__snapshot_text(snapshot, member->address);
    node->standing = (enum mst_status_standing)member->standing;
    node->rank = member->rank == MST_AUTHORITY_RANK_NONE ? -1 : (int64_t)member->rank;
    node->incarnation = member->incarnation;
    node->has_heard = member->silent_us >= 0;
    node->heard_ms = node->has_heard ? member->silent_us / 1000 : 0;
    node->is_late = !is_gone && mst__snapshot_is_late(member->silent_us, told->heartbeat_us);
    node->has_skew = member->has_skew;
    node->skew_ms = member->has_skew ? member->skew_us / 1000 : 0;
    node->cause = is_gone ? mst__job_gone_name((enum mst__job_gone)detail->gone) : "";
    take_labels(snapshot, detail, node);
}

static void take_members(struct mst__snapshot *snapshot, const struct mst__job_status *told)
{
    struct mst_bytes rest = told->members;
    struct mst_bytes details = told->details;
    struct mst__job_member member;
    /* A member takes some bytes, so the size of the message bounds the count. */
    size_t count = told->member_count < rest.size ? told->member_count : rest.size;
    mst__snapshot_expect_nodes(snapshot, count);
    while (snapshot->status.node_count < count && snapshot->code == 0 &&
           mst__job_member_next(&rest, &member)) {
        struct mst__job_detail detail;
        (void)mst__job_detail_next(&details, &detail); /* an older server does not send it */
        take_member(snapshot, told, &member, &detail);
    }
}

static void copy_text(char *to, size_t size, struct mst_bytes text)
{
    (void)snprintf(to, size, "%.*s", (int)(text.size < size ? text.size : size - 1),
                   (const char *)text.data);
}

static void take_cause(struct mst__snapshot *snapshot, const struct mst__cause *told)
{
    struct mst_cause *cause = mst__arena_take(&snapshot->arena, sizeof *cause);
    char sentence[CAUSE_SIZE];
    if (cause == NULL) {
        snapshot->code = MST_ENOMEM;
        return;
    }
    cause->rank = told->rank == MST_AUTHORITY_RANK_NONE ? -1 : (int64_t)told->rank;
    cause->worker = told->worker == MST_CAUSE_WORKER_NONE ? -1 : (int64_t)told->worker;
    cause->exit_status = told->status;
    cause->signal = (int)told->signal;
    cause->time_us = told->wall_us;
    copy_text(cause->node, sizeof cause->node, told->node);
    copy_text(cause->text, sizeof cause->text, told->text);
    mst__cause_describe(told, sentence, sizeof sentence);
    snapshot->status.cause = cause;
    snapshot->status.failure = mst__snapshot_text(snapshot, mst_bytes_str(sentence));
}

/* The outcome of a closed job; unknown numbers are those of a later release. */
static enum mst_outcome outcome_of(uint32_t phase, uint32_t outcome)
{
    static const enum mst_outcome outcomes[MST_JOB_OUTCOME_COUNT] = {
        MST_OUTCOME_CLOSED, MST_OUTCOME_FINISHED, MST_OUTCOME_FAILED};
    bool is_known = phase == MST_AUTHORITY_CLOSED && outcome < MST_JOB_OUTCOME_COUNT;
    return is_known ? outcomes[outcome] : MST_OUTCOME_NONE;
}

static void take_numbers(struct mst_status *status, const struct mst__job_status *told)
{
    int64_t gathered = 0;
    for (size_t i = 0; i < status->node_count; i++) {
        gathered += status->nodes[i]->standing == MST_STATUS_NODE_GATHERED ? 1 : 0;
    }
    bool is_open = status->phase == MST_STATUS_OPEN;
    status->needed = is_open && told->nodes_min > gathered ? told->nodes_min - gathered : 0;
    status->has_last_call = is_open && told->last_call_left_us != INT64_MAX;
    status->last_call_ms = status->has_last_call ? told->last_call_left_us / 1000 : 0;
    if (told->budget.is_limited) {
        status->restarts_max = told->budget.restarts_max;
        status->restarts_left = told->restarts < told->budget.restarts_max
                                    ? told->budget.restarts_max - told->restarts
                                    : 0;
    }
    status->restarts_window_ms = told->budget.window_us / 1000;
}

struct mst__snapshot *mst__snapshot_of_job(const char *backend,
                                           const struct mst__job_status *told,
                                           int *ret_code)
{
    struct mst__snapshot *snapshot = mst__snapshot_new(backend, told->run_id);
    if (snapshot == NULL) {
        *ret_code = MST_ENOMEM;
        return NULL;
    }
    struct mst_status *status = &snapshot->status;
    status->exists = true;
    status->phase = (enum mst_status_phase)told->phase;
    status->round = told->round;
    status->round_next = told->round_next;
    status->epoch = told->epoch;
    status->world_size = told->world;
    status->nodes_min = told->nodes_min;
    status->nodes_max = told->nodes_max;
    status->outcome = outcome_of(told->phase, told->end.outcome);
    status->finished = told->finished;
    status->restarts = told->restarts;
    status->restarts_total = told->restarts_total;
    status->closed_by = mst__snapshot_text(snapshot, told->owner);
    status->reason = mst__snapshot_text(snapshot, told->reason);
    status->summary = mst__snapshot_text(snapshot, told->sentence);
    status->is_cut = told->is_cut;
    take_members(snapshot, told);
    take_numbers(status, told);
    if (told->end.has_cause) {
        take_cause(snapshot, &told->end.cause);
    }
    *ret_code = mst__snapshot_end(snapshot);
    if (*ret_code != 0) {
        mst__snapshot_free(snapshot);
        return NULL;
    }
    return snapshot;
}

/* --- lists of jobs --- */

static struct mst__snapshot_list_of_jobs *list_whole(struct mst_status_list *list)
{
    return (struct mst__snapshot_list_of_jobs *)list; /* its first member */
}

void mst_status_list_free(struct mst_status_list *list)
{
    if (list != NULL) {
        mst__arena_close(&list_whole(list)->arena);
        mst__free(list_whole(list));
    }
}

size_t mst__snapshot_list_size(const struct mst_status_list *list)
{
    return sizeof(struct mst__snapshot_list_of_jobs) +
           ((const struct mst__snapshot_list_of_jobs *)(const void *)list)->arena.size;
}

static struct mst_status_entry *take_entry(struct mst__arena *arena,
                                           const struct mst__job_entry *told)
{
    struct mst_status_entry *entry = mst__arena_take(arena, sizeof *entry);
    const char *run_id = mst__arena_text(arena, told->run_id);
    const char *reason = mst__arena_text(arena, told->reason);
    if (entry == NULL || run_id == NULL || reason == NULL) {
        return NULL;
    }
    *entry = (struct mst_status_entry){
        .size = sizeof *entry,
        .run_id = run_id,
        .phase = (enum mst_status_phase)told->phase,
        .epoch = told->epoch,
        .round = told->round,
        .world_size = told->world,
        .nodes_min = told->nodes_min,
        .nodes_max = told->nodes_max,
        .members = told->members,
        .waiting = told->waiting,
        .spares = told->spares,
        .finished = told->finished,
        .outcome = outcome_of(told->phase, told->outcome),
        .reason = reason,
    };
    return entry;
}

struct mst_status_list *mst__snapshot_of_jobs(const struct mst__job_list *told, int *ret_code)
{
    struct mst__snapshot_list_of_jobs *whole = mst__calloc(1, sizeof *whole);
    struct mst_bytes rest = told->jobs;
    struct mst__job_entry job;
    /* A job takes some bytes, so the size of the message bounds the count. */
    size_t count = told->count < rest.size ? told->count : rest.size;
    *ret_code = MST_ENOMEM;
    if (whole == NULL) {
        return NULL;
    }
    struct mst_status_list *list = &whole->list;
    const struct mst_status_entry **jobs =
        mst__arena_take(&whole->arena, (count + 1) * sizeof(struct mst_status_entry *));
    list->size = sizeof *list;
    list->server = mst__arena_text(&whole->arena, told->server);
    list->job_total = told->total;
    list->jobs = jobs;
    bool is_whole = jobs != NULL && list->server != NULL;
    while (is_whole && list->job_count < count && mst__job_entry_next(&rest, &job)) {
        jobs[list->job_count] = take_entry(&whole->arena, &job);
        is_whole = jobs[list->job_count++] != NULL;
    }
    if (!is_whole) {
        mst_status_list_free(list);
        return NULL;
    }
    *ret_code = 0;
    return list;
}
