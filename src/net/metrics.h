/* net/metrics.h - the server's counters in the text format of Prometheus. */
#ifndef MST_NET_METRICS_H
#define MST_NET_METRICS_H

#include "base/buf.h"
#include "net/server.h"

/* The values of the page, taken at one moment. */
struct mst__metrics {
    const char *version;
    size_t connections;
    size_t keys;
    size_t memory;
    size_t memory_max;
    uint64_t loop_us_longest; /* the longest turn of the loop in the last minute */
    bool is_full[MST_FULL_COUNT];
    struct mst__counters counters;
    struct mst__jobs_metrics jobs;
};

/* Append the page, text format 0.0.4, to @page: 0, MST_ELIMIT or MST_ENOMEM; on error @page is
 * unchanged. If not all jobs fit, it has fewer of them. */
int mst__metrics_render(const struct mst__metrics *metrics, struct mst__buf *page);

#endif /* MST_NET_METRICS_H */
