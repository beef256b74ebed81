/* agent/events.h - events as lines of JSON: `--events FILE|fd:N`.
 *
 * Each line has `time` (seconds since 1970, microseconds behind the point), `event`, `host`, `pid`,
 * `run_id`, and what the event adds. A line is one write, so that several agents can share a file.
 * Lines that cannot be written are dropped and counted; the next one has `dropped`. */
#ifndef MST_AGENT_EVENTS_H
#define MST_AGENT_EVENTS_H

#include <muster/error.h>

#include "base/json_writer.h"

struct mst__events {
    int fd; /* -1 = none: everything below does nothing */
    bool is_own;
    const char *host, *run_id; /* borrowed */
    uint64_t dropped_count;
    struct mst__json_writer line;
};

/* @target is a path or "fd:N"; NULL = none. 0, MST_EINVAL, MST_ESYS. */
int mst__events_open(struct mst__events *events,
                     const char *target,
                     const char *host,
                     const char *run_id,
                     struct mst_err *reterr);
void mst__events_close(struct mst__events *events);

/* Begin a line, add to it with mst__json_put_*, and write it. NULL = nobody wants it: add
 * nothing, and do not end it. */
struct mst__json_writer *mst__events_begin(struct mst__events *events, const char *event);
void mst__events_end(struct mst__events *events);

#endif /* MST_AGENT_EVENTS_H */
