/* net/metrics.c - a snapshot goes in, text comes out; nothing else is touched.
 *
 * Every operation and every reason is listed even at 0: a series that appears only with its first
 * event hides that event from rate(). */
#include "net/metrics.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"

/* The longest line is a HELP line below. */
#define LINE_SIZE 160

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
    return mst__buf_append(page, mst_bytes(line, (size_t)length));
}

/* What a metric is; its values follow. */
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
         metrics->members},
        {"muster_received_bytes_total", "counter", "Bytes received from store clients.",
         counters->bytes_in},
        {"muster_rendezvous", "gauge", "Rendezvous that this server decides.", metrics->runs},
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

int mst__metrics_render(const struct mst__metrics *metrics, struct mst__buf *page)
{
    size_t size_before = mst__buf_size(page);
    int rv = append_plain(metrics, page);
    if (rv == 0) {
        rv = append_labelled(metrics, page);
    }
    if (rv != 0) {
        mst__buf_truncate(page, size_before);
    }
    return rv;
}
