/* net/metrics.c - a snapshot in, text out.
 *
 * Every operation and every reason is listed even at 0: a series that appears only with its first
 * event hides that event from rate(). */
#include "net/metrics.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/unicode.h"

/* A run id as a label value: each byte takes up to five characters, `\\xNN`. */
#define RUN_SIZE (5 * MST_METRICS_RUN_ID_SIZE_MAX + 1)

/* The longest line contains a run id. */
#define LINE_SIZE (RUN_SIZE + 160)

static int append_line(struct mst__buf *page, const char *format, ...) MST_PRINTF(2, 3);

static int append_line(struct mst__buf *page, const char *format, ...)
{
    char line[LINE_SIZE];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    MST_ASSERT(length > 0);
    MST_ASSERT((size_t)length < sizeof line);
    return mst__buf_append(page, mst_bytes_of(line, (size_t)length));
}

/* The header of a metric; its values follow. */
static int append_head(struct mst__buf *page, const char *name, const char *type, const char *help)
{
    int rv = append_line(page, "# HELP %s %s\n", name, help);
    return rv != 0 ? rv : append_line(page, "# TYPE %s %s\n", name, type);
}

static int append_metric(struct mst__buf *page,
                         const char *name,
                         const char *type,
                         const char *help,
                         uint64_t value)
{
    int rv = append_head(page, name, type, help);
    return rv != 0 ? rv : append_line(page, "%s %llu\n", name, (unsigned long long)value);
}

static int append_plain(const struct mst__metrics *metrics, struct mst__buf *page)
{
    const struct mst__counters *counters = &metrics->counters;
    const struct {
        const char *name, *type, *help;
        uint64_t value;
    } rows[] = {
        {"muster_connections", "gauge", "Connections of store clients that are open.",
         metrics->connections},
        {"muster_connections_accepted_total", "counter", "Connections accepted so far.",
         counters->accepted},
        {"muster_keys", "gauge", "Keys in the store.", metrics->keys},
        {"muster_memory_bytes", "gauge", "Memory of stored data and connections' buffers.",
         metrics->memory},
        {"muster_memory_limit_bytes", "gauge", "What that memory may grow to.",
         metrics->memory_max},
        {"muster_nodes", "gauge", "Nodes of rendezvous that this server decides.",
         metrics->jobs.members},
        {"muster_received_bytes_total", "counter", "Bytes received from store clients.",
         counters->bytes_in},
        {"muster_rendezvous", "gauge", "Rendezvous that this server decides.", metrics->jobs.runs},
        {"muster_sent_bytes_total", "counter", "Bytes sent to store clients.", counters->bytes_out},
        {"muster_turn_steps_max", "gauge", "Most work for one connection in a turn of the loop.",
         counters->turn_steps_max},
        {"muster_waits_released_total", "counter", "Waits that ended because their keys came.",
         counters->released},
    };
    int rv = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && rv == 0; i++) {
        rv = append_metric(page, rows[i].name, rows[i].type, rows[i].help, rows[i].value);
    }
    return rv;
}

static double seconds(uint64_t us)
{
    return (double)us / 1e6;
}

#define BOUND_TEXT(text, us) text,

/* A histogram: @counts for each of @bounds and beyond; @sum_us is the total. */
static int append_histogram(struct mst__buf *page,
                            const char *name,
                            const char *help,
                            const char *const *bounds,
                            const uint64_t *counts,
                            unsigned counts_count,
                            uint64_t sum_us)
{
    int rv = append_head(page, name, "histogram", help);
    unsigned long long count = 0;
    for (unsigned i = 0; i < counts_count && rv == 0; i++) {
        count += counts[i];
        rv = append_line(page, "%s_bucket{le=\"%s\"} %llu\n", name,
                         i == counts_count - 1 ? "+Inf" : bounds[i], count);
    }
    rv = rv != 0 ? rv : append_line(page, "%s_sum %.6f\n", name, seconds(sum_us));
    return rv != 0 ? rv : append_line(page, "%s_count %llu\n", name, count);
}

static int append_loop(const struct mst__metrics *metrics, struct mst__buf *page)
{
    const struct mst__counters *counters = &metrics->counters;
    static const char *const bounds[] = {MST_LOOP_SECONDS_MAP(BOUND_TEXT)};
    static const char longest[] = "muster_loop_turn_seconds_max";
    int rv =
        append_histogram(page, "muster_loop_turn_seconds",
                         "Turns of the event loop, without the time in which it waits.", bounds,
                         counters->loop_seconds, MST_LOOP_SECONDS_COUNT, counters->loop_us);
    rv = rv != 0 ? rv : append_head(page, longest, "gauge", "The longest of the last minute.");
    return rv != 0 ? rv
                   : append_line(page, "%s %.6f\n", longest, seconds(metrics->loop_us_longest));
}

static int append_full(const struct mst__metrics *metrics, struct mst__buf *page)
{
    static const char *const names[MST_FULL_COUNT] = {
        [MST_FULL_OF_CONNECTIONS] = "connections",
        [MST_FULL_OF_MEMORY] = "memory",
    };
    int rv = append_head(page, "muster_full", "gauge", "1 while there is no room for more.");
    for (unsigned of = 0; of < MST_FULL_COUNT && rv == 0; of++) {
        rv = append_line(page, "muster_full{of=\"%s\"} %d\n", names[of],
                         metrics->is_full[of] ? 1 : 0);
    }
    if (rv == 0) {
        rv = append_head(page, "muster_full_refused_total", "counter",
                         "Connections and requests that were refused because it was full.");
    }
    for (unsigned of = 0; of < MST_FULL_COUNT && rv == 0; of++) {
        rv = append_line(page, "muster_full_refused_total{of=\"%s\"} %llu\n", names[of],
                         (unsigned long long)metrics->counters.refused[of]);
    }
    return rv;
}

static int append_labelled(const struct mst__metrics *metrics, struct mst__buf *page)
{
    int rv = append_head(page, "muster_connections_closed_total", "counter",
                         "Connections that have ended, by reason.");
    for (unsigned why = 0; why < MST_WHY_COUNT && rv == 0; why++) {
        rv = append_line(page, "muster_connections_closed_total{why=\"%s\"} %llu\n",
                         mst__why_name((enum mst__why)why),
                         (unsigned long long)metrics->counters.closed[why]);
    }
    if (rv == 0) {
        rv = append_head(page, "muster_ops_total", "counter", "Requests served, by operation.");
    }
    for (unsigned op = 0; op < MST_OP_COUNT && rv == 0; op++) {
        rv = append_line(page, "muster_ops_total{op=\"%s\"} %llu\n", mst__op_name((enum mst__op)op),
                         (unsigned long long)metrics->counters.ops[op]);
    }
    if (rv == 0) {
        rv = append_head(page, "muster_build_info", "gauge", "The version that runs; always 1.");
    }
    if (rv == 0) {
        rv = append_line(page, "muster_build_info{version=\"%s\"} 1\n", metrics->version);
    }
    return rv;
}

/* --- jobs --- */

/* @run_id as a label value. The format has three escapes, none for control characters and bytes
 * that are not UTF-8. They are written as \xNN; a backslash is doubled before that, so that no two
 * run ids look alike. */
static void quote_run(struct mst_bytes run_id, char ret_quoted[RUN_SIZE])
{
    char shown[MST_UNICODE_SHOWN_SIZE];
    size_t at = 0;
    size_t size;
    while ((size = mst__unicode_take_shown(&run_id, shown)) > 0) {
        bool is_spelled = shown[0] == '\\' && size > 1;
        for (size_t i = 0; i < size; i++) {
            bool is_backslash = shown[i] == '\\';
            unsigned backslashes = is_backslash ? (is_spelled ? 1 : 3) : shown[i] == '"' ? 1 : 0;
            MST_ASSERT(at + backslashes + 1 < RUN_SIZE);
            memset(ret_quoted + at, '\\', backslashes);
            at += backslashes;
            ret_quoted[at++] = shown[i];
        }
    }
    ret_quoted[at] = '\0';
}

static int append_standings(const struct mst__jobs_metrics *jobs, struct mst__buf *page)
{
    int rv = append_head(page, "muster_nodes_standing", "gauge", "Nodes of all jobs, by standing.");
    for (unsigned i = 0; i < MST_STANDING_COUNT && rv == 0; i++) {
        if (i == MST_STANDING_GONE) {
            continue;
        }
        rv = append_line(page, "muster_nodes_standing{standing=\"%s\"} %llu\n",
                         mst__authority_standing_name((enum mst__authority_standing)i),
                         (unsigned long long)jobs->standings[i]);
    }
    return rv;
}

static int append_complete(const struct mst__jobs_metrics *jobs, struct mst__buf *page)
{
    static const char *const bounds[] = {MST_JOB_SECONDS_MAP(BOUND_TEXT)};
    return append_histogram(page, "muster_round_complete_seconds",
                            "From the first node that waits for a round until it is complete.",
                            bounds, jobs->seconds, MST_JOB_SECONDS_COUNT, jobs->tally.gathering_us);
}

/* Counters of all jobs since the start. */
static int append_totals(const struct mst__jobs_metrics *jobs, struct mst__buf *page)
{
    int rv = append_metric(page, "muster_rounds_total", "counter", "Rounds that were completed.",
                           jobs->tally.rounds);
    if (rv == 0) {
        rv = append_complete(jobs, page);
    }
    if (rv == 0) {
        rv = append_standings(jobs, page);
    }
    if (rv == 0) {
        rv = append_head(page, "muster_nodes_ended_total", "counter",
                         "Nodes that left, were lost or expelled, by cause.");
    }
    for (unsigned i = 0; i < MST_AUTHORITY_ENDED_COUNT && rv == 0; i++) {
        rv = append_line(page, "muster_nodes_ended_total{cause=\"%s\"} %llu\n",
                         mst__authority_ended_name((enum mst__authority_ended)i),
                         (unsigned long long)jobs->tally.ended[i]);
    }
    if (rv == 0) {
        rv = append_metric(page, "muster_restarts_total", "counter",
                           "Rounds that were over because work had failed.", jobs->tally.restarts);
    }
    if (rv == 0) {
        rv = append_head(page, "muster_jobs_closed_total", "counter",
                         "Jobs that were closed, by outcome.");
    }
    for (unsigned i = 0; i < MST_JOB_OUTCOME_COUNT && rv == 0; i++) {
        rv = append_line(page, "muster_jobs_closed_total{outcome=\"%s\"} %llu\n",
                         mst__job_outcome_name((enum mst__job_outcome)i),
                         (unsigned long long)jobs->tally.outcomes[i]);
    }
    return rv;
}

/* The families of series that each job has. */
enum job_family {
    JOB_ROUNDS,
    JOB_SECONDS,
    JOB_STANDINGS,
    JOB_ENDED,
    JOB_RESTARTS,
    JOB_FAMILIES_COUNT,
};

static int append_job(const struct mst__job_metrics *job,
                      enum job_family family,
                      struct mst__buf *page)
{
    char run[RUN_SIZE];
    int rv = 0;
    quote_run(job->run_id, run);
    if (family == JOB_ROUNDS) {
        return append_line(page, "muster_job_rounds_total{run=\"%s\"} %llu\n", run,
                           (unsigned long long)job->tally.rounds);
    }
    if (family == JOB_RESTARTS) {
        return append_line(page, "muster_job_restarts_total{run=\"%s\"} %llu\n", run,
                           (unsigned long long)job->tally.restarts);
    }
    if (family == JOB_SECONDS) {
        return append_line(page, "muster_job_gathering_seconds_total{run=\"%s\"} %.6f\n", run,
                           seconds(job->tally.gathering_us));
    }
    for (unsigned i = 0; family == JOB_STANDINGS && i < MST_STANDING_COUNT && rv == 0; i++) {
        if (i == MST_STANDING_GONE) {
            continue;
        }
        rv = append_line(page, "muster_job_nodes{run=\"%s\",standing=\"%s\"} %u\n", run,
                         mst__authority_standing_name((enum mst__authority_standing)i),
                         job->standings[i]);
    }
    for (unsigned i = 0; family == JOB_ENDED && i < MST_AUTHORITY_ENDED_COUNT && rv == 0; i++) {
        rv = append_line(page, "muster_job_nodes_ended_total{run=\"%s\",cause=\"%s\"} %llu\n", run,
                         mst__authority_ended_name((enum mst__authority_ended)i),
                         (unsigned long long)job->tally.ended[i]);
    }
    return rv;
}

/* The first @count jobs, one family after the other as the format requires. */
static int append_jobs(const struct mst__jobs_metrics *jobs, size_t count, struct mst__buf *page)
{
    static const struct {
        const char *name, *type, *help;
    } heads[JOB_FAMILIES_COUNT] = {
        [JOB_ROUNDS] = {"muster_job_rounds_total", "counter", "Rounds of a job with nodes."},
        [JOB_SECONDS] = {"muster_job_gathering_seconds_total", "counter",
                         "Time until its rounds were complete, all together."},
        [JOB_STANDINGS] = {"muster_job_nodes", "gauge", "Its nodes, by standing."},
        [JOB_ENDED] = {"muster_job_nodes_ended_total", "counter",
                       "Its nodes that left, were lost or expelled, by cause."},
        [JOB_RESTARTS] = {"muster_job_restarts_total", "counter",
                          "Its rounds that were over because work had failed."},
    };
    int rv = append_metric(page, "muster_jobs_unlisted", "gauge",
                           "Jobs with nodes that have no series of their own.",
                           jobs->jobs_unlisted + jobs->jobs_count - count);
    for (unsigned family = 0; family < JOB_FAMILIES_COUNT && rv == 0 && count > 0; family++) {
        rv = append_head(page, heads[family].name, heads[family].type, heads[family].help);
        for (size_t i = 0; i < count && rv == 0; i++) {
            rv = append_job(&jobs->jobs[i], (enum job_family)family, page);
        }
    }
    return rv;
}

int mst__metrics_render(const struct mst__metrics *metrics, struct mst__buf *page)
{
    size_t size_before = mst__buf_size(page);
    int rv = append_plain(metrics, page);
    if (rv == 0) {
        rv = append_loop(metrics, page);
    }
    if (rv == 0) {
        rv = append_full(metrics, page);
    }
    if (rv == 0) {
        rv = append_labelled(metrics, page);
    }
    if (rv == 0) {
        rv = append_totals(&metrics->jobs, page);
    }
    size_t size_fixed = mst__buf_size(page);
    size_t count = metrics->jobs.jobs_count;
    rv = rv != 0 ? rv : append_jobs(&metrics->jobs, count, page);
    while (rv == MST_ELIMIT && count > 0) {
        mst__buf_truncate(page, size_fixed);
        count /= 2;
        rv = append_jobs(&metrics->jobs, count, page);
    }
    if (rv != 0) {
        mst__buf_truncate(page, size_before);
    }
    return rv;
}
