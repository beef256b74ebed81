/* snapshot/snapshot.c - creates, sorts and compares snapshots. */
#include "snapshot/snapshot.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/siphash.h"
#include "core/authority_ranks.h"

/* The values of the header equal those of the authority. */
#define SAME_PHASE(number, name, text) \
    static_assert((int)MST_STATUS_##name == (int)MST_AUTHORITY_##name, "as it is told");
MST_STATUS_PHASE_MAP(SAME_PHASE)
#define SAME_STANDING(number, name, text) \
    static_assert((int)MST_STATUS_NODE_##name == (int)MST_STANDING_##name, "as it is told");
MST_STATUS_STANDING_MAP(SAME_STANDING)

/* A node and its part of the list. */
struct entry {
    struct mst_status_node node;
    enum mst__snapshot_list list;
};

const char *mst_status_phase_name(enum mst_status_phase phase)
{
    return mst__authority_phase_name((enum mst__authority_phase)phase);
}

const char *mst_status_standing_name(enum mst_status_standing standing)
{
    return mst__authority_standing_name((enum mst__authority_standing)standing);
}

const char *mst_status_outcome_name(enum mst_outcome outcome)
{
    switch (outcome) {
        case MST_OUTCOME_NONE:
            break;
        case MST_OUTCOME_CLOSED:
            return mst__job_outcome_name(MST_JOB_OUTCOME_ASKED);
        case MST_OUTCOME_FINISHED:
            return mst__job_outcome_name(MST_JOB_OUTCOME_FINISHED);
        case MST_OUTCOME_FAILED:
            return mst__job_outcome_name(MST_JOB_OUTCOME_FAILED);
    }
    return "undefined";
}

/* --- life --- */

struct mst__snapshot *mst__snapshot_new(const char *backend, struct mst_bytes run_id)
{
    struct mst__snapshot *snapshot = mst__calloc(1, sizeof *snapshot);
    if (snapshot == NULL) {
        return NULL;
    }
    struct mst_status *status = &snapshot->status;
    *status = (struct mst_status){
        .size = sizeof *status,
        .backend = mst__snapshot_text(snapshot, mst_bytes_str(backend)),
        .run_id = mst__snapshot_text(snapshot, run_id),
        .closed_by = "",
        .reason = "",
        .dialect = "",
        .document = "",
        .failure = "",
        .summary = "",
        .restarts_max = -1,
        .restarts_left = -1,
    };
    if (snapshot->code != 0) {
        mst__snapshot_free(snapshot);
        return NULL;
    }
    return snapshot;
}

void mst__snapshot_free(struct mst__snapshot *snapshot)
{
    if (snapshot != NULL) {
        mst__arena_close(&snapshot->arena);
        mst__free(snapshot);
    }
}

struct mst__snapshot *mst__snapshot_of(struct mst_status *status)
{
    return (struct mst__snapshot *)status; /* its first member */
}

size_t mst__snapshot_size(const struct mst__snapshot *snapshot)
{
    return sizeof *snapshot + snapshot->arena.size;
}

void mst_status_free(struct mst_status *status)
{
    mst__snapshot_free(mst__snapshot_of(status));
}

const char *mst__snapshot_text(struct mst__snapshot *snapshot, struct mst_bytes text)
{
    const char *copy = text.size == 0 ? "" : mst__arena_text(&snapshot->arena, text);
    if (copy == NULL) {
        snapshot->code = MST_ENOMEM;
        return "";
    }
    return copy;
}

/* --- nodes --- */

void mst__snapshot_expect_nodes(struct mst__snapshot *snapshot, size_t count)
{
    MST_ASSERT(snapshot->nodes == NULL);
    snapshot->nodes =
        count > SIZE_MAX / sizeof(struct entry)
            ? NULL
            : mst__arena_take(&snapshot->arena, (count + 1) * sizeof(struct mst_status_node *));
    if (snapshot->nodes == NULL) {
        snapshot->code = MST_ENOMEM;
        return;
    }
    snapshot->nodes_max = count;
    snapshot->status.nodes = snapshot->nodes;
}

struct mst_status_node *mst__snapshot_add(struct mst__snapshot *snapshot,
                                          enum mst__snapshot_list list)
{
    struct mst_status *status = &snapshot->status;
    if (snapshot->code != 0 || status->node_count == snapshot->nodes_max) {
        return NULL;
    }
    struct entry *entry = mst__arena_take(&snapshot->arena, sizeof *entry);
    if (entry == NULL) {
        snapshot->code = MST_ENOMEM;
        return NULL;
    }
    size_t *const counts[MST_SNAPSHOT_LIST_COUNT] = {&status->member_count, &status->waiting_count,
                                                     &status->spare_count, &status->gone_count};
    (*counts[list])++;
    entry->list = list;
    entry->node = (struct mst_status_node){
        .size = sizeof entry->node,
        .name = "",
        .address = "",
        .rank = -1,
        .cause = "",
        .pid = -1,
        .local_id = -1,
    };
    snapshot->nodes[status->node_count++] = &entry->node;
    return &entry->node;
}

static int compare_nodes(const void *a, const void *b)
{
    const struct mst_status_node *x = *(const struct mst_status_node *const *)a;
    const struct mst_status_node *y = *(const struct mst_status_node *const *)b;
    enum mst__snapshot_list x_list = ((const struct entry *)(const void *)x)->list;
    enum mst__snapshot_list y_list = ((const struct entry *)(const void *)y)->list;
    if (x_list != y_list) {
        return x_list < y_list ? -1 : 1;
    }
    if (x_list == MST_SNAPSHOT_MEMBERS && x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return mst__natural_compare(mst_bytes_str(x->name), mst_bytes_str(y->name));
}

int mst__snapshot_end(struct mst__snapshot *snapshot)
{
    if (snapshot->status.node_count > 0) {
        qsort(snapshot->nodes, snapshot->status.node_count, sizeof(struct mst_status_node *),
              compare_nodes);
    }
    return snapshot->code;
}

void mst_status_filter(struct mst_status *status,
                       bool (*keep)(void *arg, const struct mst_status_node *node),
                       void *arg)
{
    if (status == NULL || keep == NULL) {
        return;
    }
    struct mst__snapshot *snapshot = mst__snapshot_of(status);
    size_t *const counts[MST_SNAPSHOT_LIST_COUNT] = {&status->member_count, &status->waiting_count,
                                                     &status->spare_count, &status->gone_count};
    size_t kept = 0;
    for (size_t i = 0; i < status->node_count; i++) {
        const struct mst_status_node *node = snapshot->nodes[i];
        if (keep(arg, node)) {
            snapshot->nodes[kept++] = node;
        } else {
            (*counts[((const struct entry *)(const void *)node)->list])--;
        }
    }
    status->node_count = kept;
}

static bool has_rank(void *arg, const struct mst_status_node *node)
{
    (void)arg;
    return node->rank >= 0;
}

static int compare_ranks(const void *a, const void *b)
{
    const struct mst_status_node *x = *(const struct mst_status_node *const *)a;
    const struct mst_status_node *y = *(const struct mst_status_node *const *)b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

bool mst__snapshot_keep_round(struct mst__snapshot *snapshot, uint64_t epoch, int64_t round)
{
    struct mst_status *status = &snapshot->status;
    if (!status->exists || status->epoch != epoch || status->round != round) {
        return false;
    }
    mst_status_filter(status, has_rank, NULL);
    if (status->node_count > 0) {
        qsort(snapshot->nodes, status->node_count, sizeof(struct mst_status_node *), compare_ranks);
    }
    return status->node_count > 0;
}

bool mst__snapshot_is_late(int64_t silent_us, int64_t interval_us)
{
    return interval_us > 0 && interval_us < INT64_MAX / 2 &&
           silent_us > interval_us + interval_us / 2;
}

/* --- changes --- */

/* Add @size bytes to the mark. */
static uint64_t mark_bytes(uint64_t mark, const void *data, size_t size)
{
    uint8_t key[MST_SIPHASH_KEY_SIZE] = {0};
    mst__store_u64(key, mark);
    mst__store_u64(key + 8, size);
    return mst__siphash(key, data, size);
}

static uint64_t mark_text(uint64_t mark, const char *text)
{
    return mark_bytes(mark, text, strlen(text));
}

static uint64_t mark_node(uint64_t mark, const struct mst_status_node *node)
{
    const int64_t numbers[] = {(int64_t)node->standing, node->rank, (int64_t)node->incarnation,
                               node->is_late};
    mark = mark_bytes(mark, numbers, sizeof numbers);
    return mark_text(mark_text(mark, node->name), node->address);
}

uint64_t mst__snapshot_mark(const struct mst_status *status)
{
    const int64_t numbers[] = {
        (int64_t)status->exists,
        (int64_t)status->phase,
        (int64_t)status->epoch,
        status->round,
        status->round_next,
        status->world_size,
        status->nodes_min,
        status->nodes_max,
        status->has_last_call,
        status->finished,
        status->restarts_total,
        status->restarts_max,
        (int64_t)status->outcome,
        (int64_t)status->member_count,
        (int64_t)status->waiting_count,
        status->is_cut,
    };
    uint64_t mark = mark_bytes(0, numbers, sizeof numbers);
    mark = mark_text(mark, status->reason);
    mark = mark_text(mark, status->document);
    mark = mark_text(mark, status->dialect);
    for (size_t i = 0; i < status->node_count; i++) {
        mark = mark_node(mark, status->nodes[i]);
    }
    return mark;
}
