/* base/log_limit.h - limits the log lines of one event per second.
 *
 * Peers decide how often some events happen. Lines beyond the limit are counted and reported in one
 * summary, so that a flood makes a bounded log and hides no other event. Pure: time is an
 * argument. */
#ifndef MST_BASE_LOG_LIMIT_H
#define MST_BASE_LOG_LIMIT_H

#include <muster/log.h>
#include <stdbool.h>

#include "base/limits.h"

#define MST_LOG_EVENT_SIZE 48

/* One event. Zeroed: nothing was logged yet. */
struct mst__log_limit_event {
    char name[MST_LOG_EVENT_SIZE];
    int64_t passed_us[MST_LOG_LINES_PER_SECOND]; /* times of the last lines; a ring */
    uint64_t passed_count;
    uint64_t suppressed_count; /* since the last summary */
    int64_t suppressed_us;     /* when the first of them came */
    enum mst_log_level level;  /* the highest of them */
};

/* All events. Zeroed: none. */
struct mst__log_limit {
    struct mst__log_limit_event events[MST_LOG_EVENTS_MAX];
    size_t events_count;
};

struct mst__log_summary {
    const char *event; /* borrowed from the limit */
    enum mst_log_level level;
    uint64_t count;
};

/* Whether @line, which begins with `ev=NAME`, may be logged at @now_us. If not, it is counted. */
bool mst__log_limit_take(struct mst__log_limit *limit,
                         enum mst_log_level level,
                         const char *line,
                         int64_t now_us);

/* Get a summary that is due at @now_us: a second after the first line that it counts. False if
 * there is none. INT64_MAX gets all. */
bool mst__log_limit_next(struct mst__log_limit *limit,
                         int64_t now_us,
                         struct mst__log_summary *ret_summary);

/* When the next summary is due; INT64_MAX = none. */
int64_t mst__log_limit_due_us(const struct mst__log_limit *limit);

#endif /* MST_BASE_LOG_LIMIT_H */
