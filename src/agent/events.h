/* agent/events.h - events as lines of JSON: `--events FILE|fd:N`.
 *
 * Each line has `time` (seconds since 1970, with microseconds), `event`, `host`, `pid`, `run_id`,
 * and the members of the event. A line is one write, so that several agents can share a file. Lines
 * that cannot be written are dropped and counted; the next line has the count as `dropped`. */
#ifndef MST_AGENT_EVENTS_H
#define MST_AGENT_EVENTS_H

#include <muster/error.h>

#include "base/json_writer.h"

struct mst__events {
    int fd; /* -1 = none: the calls below do nothing */
    bool is_own;
    const char *host, *run_id; /* borrowed */
    uint64_t dropped_count;
    struct mst__json_writer line;
};

/* @target is a path or "fd:N"; NULL = none. Returns 0, MST_EINVAL or MST_ESYS. */
int mst__events_open(struct mst__events *events,
                     const char *target,
                     const char *host,
                     const char *run_id,
                     struct mst_err *reterr);
void mst__events_close(struct mst__events *events);

/* Begin a line. Add members with mst__json_put_*, then write the line with mst__events_end. Returns
 * NULL if there is no target; then neither is needed. */
struct mst__json_writer *mst__events_begin(struct mst__events *events, const char *event);
void mst__events_end(struct mst__events *events);

#endif /* MST_AGENT_EVENTS_H */
