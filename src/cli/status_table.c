/* cli/status_table.c - the tables of `muster status`. */
#include "cli/status_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"
#include "core/authority_ranks.h"
#include "snapshot/fold.h"

/* Smaller differences of clocks are not shown. */
#define SKEW_MS_SHOWN 1000

/* --- one line per node --- */

/* Append @value in a column of @width characters. */
static void put_column(struct mst__buf *text, int *rv, const char *value, size_t width)
{
    size_t length = mst__text_put_foreign(text, rv, mst_bytes_str(value));
    mst__text_put(text, rv, "%*s  ", (int)(length < width ? width - length : 0), "");
}

static void put_heard(struct mst__buf *text, int *rv, const struct mst_status_node *node)
{
    if (!node->has_heard) {
        mst__text_put(text, rv, "-");
    } else if (node->heard_ms < 0) {
        mst__text_put(text, rv, "%.1f s ahead of our clock", -(double)node->heard_ms / 1e3);
    } else {
        mst__text_put(text, rv, "%.1f s ago", (double)node->heard_ms / 1e3);
    }
    mst__text_put(text, rv, "%s", node->is_late ? ", late" : "");
    if (node->has_skew && (node->skew_ms > SKEW_MS_SHOWN || node->skew_ms < -SKEW_MS_SHOWN)) {
        mst__text_put(text, rv, ", its clock is %.1f s %s", (double)llabs(node->skew_ms) / 1e3,
                      node->skew_ms > 0 ? "ahead" : "behind");
    }
    mst__text_put(text, rv, "%s%s", node->cause[0] == '\0' ? "" : ", ", node->cause);
    for (size_t i = 0; i < node->label_count; i++) {
        mst__text_put(text, rv, "%s", i == 0 ? "  " : ";");
        (void)mst__text_put_foreign(text, rv, mst_bytes_str(node->labels[i].key));
        mst__text_put(text, rv, "=");
        (void)mst__text_put_foreign(text, rv, mst_bytes_str(node->labels[i].value));
    }
}

/* Whether addresses add to the names: in a record, the name of a node contains its address. */
static bool has_addresses(const struct mst_status *job)
{
    for (size_t i = 0; i < job->node_count; i++) {
        const struct mst_status_node *node = job->nodes[i];
        if (strncmp(node->name, node->address, strlen(node->address)) != 0) {
            return true;
        }
    }
    return false;
}

static void put_nodes(const struct mst_status *job, struct mst__buf *text, int *rv)
{
    size_t name_width = 4;
    size_t address_width = 7;
    bool shows_addresses = has_addresses(job);
    for (size_t i = 0; i < job->node_count; i++) {
        size_t name_size = strlen(job->nodes[i]->name);
        size_t address_size = strlen(job->nodes[i]->address);
        name_width = name_size > name_width ? name_size : name_width;
        address_width = address_size > address_width ? address_size : address_width;
    }
    mst__text_put(text, rv, "%-8s  %5s  %-*s  ", "", "rank", (int)name_width, "node");
    if (shows_addresses) {
        mst__text_put(text, rv, "%-*s  ", (int)address_width, "address");
    }
    mst__text_put(text, rv, "heard of\n");
    for (size_t i = 0; i < job->node_count; i++) {
        const struct mst_status_node *node = job->nodes[i];
        char rank[24] = "-";
        if (node->rank >= 0) {
            (void)snprintf(rank, sizeof rank, "%" PRId64, node->rank); /* fits */
        }
        mst__text_put(text, rv, "%-8s  %5s  ", mst_status_standing_name(node->standing), rank);
        put_column(text, rv, node->name[0] == '\0' ? "-" : node->name, name_width);
        if (shows_addresses) {
            put_column(text, rv, node->address, address_width);
        }
        put_heard(text, rv, node);
        mst__text_put(text, rv, "\n");
    }
}

/* --- one line per standing --- */

/* Nodes of the same standing; late ones are separate. */
struct group {
    struct mst_bytes *names; /* heap, with room for all nodes of the job */
    size_t count;
    int64_t rank_min, rank_max; /* -1 = a node has none */
    bool has_heard;             /* for all of them */
    int64_t heard_min, heard_max;
};

static void group_add(struct group *group, const struct mst_status_node *node)
{
    bool is_first = group->count == 0;
    group->names[group->count++] = mst__fold_host(mst_bytes_str(node->name));
    group->rank_min = is_first || node->rank < group->rank_min ? node->rank : group->rank_min;
    group->rank_max = is_first || node->rank > group->rank_max ? node->rank : group->rank_max;
    group->has_heard = (is_first || group->has_heard) && node->has_heard;
    group->heard_min =
        is_first || node->heard_ms < group->heard_min ? node->heard_ms : group->heard_min;
    group->heard_max =
        is_first || node->heard_ms > group->heard_max ? node->heard_ms : group->heard_max;
}

static int compare_names(const void *a, const void *b)
{
    return mst__natural_compare(*(const struct mst_bytes *)a, *(const struct mst_bytes *)b);
}

static void put_group(const struct group *group,
                      enum mst_status_standing standing,
                      bool is_late,
                      struct mst__buf *text,
                      int *rv)
{
    char ranks[64] = "-";
    bool is_range =
        group->rank_min >= 0 && (size_t)(group->rank_max - group->rank_min) + 1 == group->count;
    if (is_range && group->count == 1) {
        (void)snprintf(ranks, sizeof ranks, "%" PRId64, group->rank_min); /* fits */
    } else if (is_range) {
        (void)snprintf(ranks, sizeof ranks, "%" PRId64 "-%" PRId64, group->rank_min,
                       group->rank_max); /* fits */
    }
    mst__text_put(text, rv, "%-8s  %6zu  %11s  ", mst_status_standing_name(standing), group->count,
                  ranks);
    qsort(group->names, group->count, sizeof group->names[0], compare_names);
    mst__fold_put(text, rv, group->names, group->count);
    if (group->has_heard) {
        mst__text_put(text, rv, "; heard of %.1f to %.1f s ago", (double)group->heard_min / 1e3,
                      (double)group->heard_max / 1e3);
    }
    mst__text_put(text, rv, "%s\n", is_late ? ", late" : "");
}

static void put_groups(const struct mst_status *job, struct mst__buf *text, int *rv)
{
    static const enum mst_status_standing order[] = {
        MST_STATUS_NODE_MEMBER,   MST_STATUS_NODE_FINISHED, MST_STATUS_NODE_CALLED,
        MST_STATUS_NODE_GATHERED, MST_STATUS_NODE_QUEUED,   MST_STATUS_NODE_SPARE,
        MST_STATUS_NODE_GONE,
    };
    struct group group = {.names = mst__calloc(job->node_count, sizeof *group.names)};
    if (group.names == NULL) {
        *rv = MST_ENOMEM;
        return;
    }
    mst__text_put(text, rv, "%-8s  %6s  %11s  %s\n", "", "nodes", "ranks", "which");
    for (size_t i = 0; i < 2 * sizeof order / sizeof order[0]; i++) {
        enum mst_status_standing standing = order[i / 2];
        bool is_late = i % 2 == 1;
        group.count = 0;
        for (size_t at = 0; at < job->node_count; at++) {
            const struct mst_status_node *node = job->nodes[at];
            if (node->standing == standing && node->is_late == is_late) {
                group_add(&group, node);
            }
        }
        if (group.count > 0) {
            put_group(&group, standing, is_late, text, rv);
        }
    }
    mst__free(group.names);
}

/* --- the whole --- */

/* The outcome of a closed job says more than its phase. */
static const char *phase_of(enum mst_status_phase phase, enum mst_outcome outcome)
{
    bool is_over = outcome == MST_OUTCOME_FINISHED || outcome == MST_OUTCOME_FAILED;
    return is_over ? mst_status_outcome_name(outcome) : mst_status_phase_name(phase);
}

/* ", 1 of 3 restarts used, 5 in all"; and, on a separate line, the last failure. */
static void put_restarts(const struct mst_status *job, struct mst__buf *text, int *rv)
{
    if (job->restarts_max >= 0) {
        mst__text_put(text, rv, ", %" PRId64 " of %" PRId64 " restarts used", job->restarts,
                      job->restarts_max);
    } else if (job->restarts > 0) {
        mst__text_put(text, rv, ", %" PRId64 " restart%s", job->restarts,
                      mst__text_plural((uint64_t)job->restarts));
    }
    if (job->restarts_total > job->restarts) {
        mst__text_put(text, rv, ", %" PRId64 " in all", job->restarts_total);
    }
    if (job->cause != NULL) {
        mst__text_put(text, rv, "\nlast failure: ");
        (void)mst__text_put_foreign(text, rv, mst_bytes_str(job->failure));
    }
}

void mst__status_table(const struct mst_status *job, bool all, struct mst__buf *text, int *rv)
{
    mst__text_put(text, rv, "rendezvous ");
    (void)mst__text_put_foreign(text, rv, mst_bytes_str(job->run_id));
    if (job->exists) {
        mst__text_put(text, rv, ": round %" PRId64, job->round);
        if (job->epoch != 0) {
            mst__text_put(text, rv, " of epoch %" PRIu64, job->epoch);
        }
        mst__text_put(text, rv, ", %s", phase_of(job->phase, job->outcome));
        if (job->document[0] != '\0') {
            mst__text_put(text, rv, " (%s)", job->document);
        }
        if (job->nodes_max > 0) {
            mst__text_put(text, rv, ", %" PRId64 " to %" PRId64 " nodes", job->nodes_min,
                          job->nodes_max);
        }
        put_restarts(job, text, rv);
    }
    mst__text_put(text, rv, "\n");
    if (!all && job->node_count > MST_STATUS_ROWS_MAX) {
        put_groups(job, text, rv);
    } else if (job->node_count > 0) {
        put_nodes(job, text, rv);
    }
    (void)mst__text_put_foreign(text, rv, mst_bytes_str(job->summary));
    mst__text_put(text, rv, "%s\n", job->is_cut ? " There are more nodes than those." : "");
}

void mst__status_list_table(const struct mst_status_list *list, struct mst__buf *text, int *rv)
{
    size_t width = 2;
    for (size_t i = 0; i < list->job_count; i++) {
        size_t size = strlen(list->jobs[i]->run_id);
        width = size > width ? size : width;
    }
    mst__text_put(text, rv, "%-*s  %-10s  %6s  %6s  %9s  %7s  %6s\n", (int)width, "id", "phase",
                  "round", "nodes", "of", "waiting", "spares");
    for (size_t i = 0; i < list->job_count; i++) {
        const struct mst_status_entry *job = list->jobs[i];
        char limits[48] = "-";
        if (job->nodes_max > 0) {
            (void)snprintf(limits, sizeof limits, "%" PRId64 ":%" PRId64, job->nodes_min,
                           job->nodes_max); /* fits */
        }
        put_column(text, rv, job->run_id, width);
        mst__text_put(text, rv,
                      "%-10s  %6" PRId64 "  %6" PRId64 "  %9s  %7" PRId64 "  %6" PRId64 "\n",
                      phase_of(job->phase, job->outcome), job->round, job->members, limits,
                      job->waiting, job->spares);
    }
    if (list->job_total > (int64_t)list->job_count) {
        mst__text_put(text, rv, "and %" PRId64 " more\n",
                      list->job_total - (int64_t)list->job_count);
    } else if (list->job_count == 0) {
        mst__text_put(text, rv, "The server has no jobs.\n");
    }
}
