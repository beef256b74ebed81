/* net/lane.h - the lane: how a store of this process uses a node's connection to its authority.
 *
 * A pair of sockets. The far end is the store's: to it, a connection like any other. What arrives
 * at the near end goes out in STORE frames, and what the STORE_REPLYs bring is written to it, by
 * whoever waits on the node's connection at the moment (job_client.c). All requests of a connection
 * are one stream, so there is one lane at a time:
 *
 *            open             its reader is gone or stuck, STORE_END
 *   CLEAN ----------> OPEN -------------------------------------------> OVER
 *     ^                                                                   |
 *     +------------- empty STORE_REPLY, answer to an empty STORE ---------+
 *
 * In OVER replies are thrown away. Nothing is ever kept for a reader that does not read: the node's
 * connection is not read for a while, and then the lane is over. */
#ifndef MST_NET_LANE_H
#define MST_NET_LANE_H

#include <muster/error.h>

#include "base/buf.h"

enum mst__lane_state { MST_LANE_CLEAN, MST_LANE_OPEN, MST_LANE_OVER };

struct mst__lane {
    enum mst__lane_state state;
    int fd;             /* OPEN: the near end; else -1 */
    bool is_last;       /* nothing more is taken: the connection is about to be closed */
    bool is_asked;      /* OVER: the empty STORE is in the output */
    size_t body_left;   /* of the STORE_REPLY at the front of the input */
    int64_t stall_ms;   /* how long the reader may take nothing */
    int64_t give_up_ms; /* when that is over; INT64_MAX = it takes what comes */
};

void mst__lane_init(struct mst__lane *lane);
void mst__lane_close(struct mst__lane *lane);

/* Open a lane that is CLEAN; the far end is the caller's. 0 or MST_ESYS. */
int mst__lane_open(struct mst__lane *lane, int64_t stall_ms, int *ret_fd, struct mst_err *reterr);

/* The lane is over, if it is open. */
void mst__lane_end(struct mst__lane *lane);

/* Take what has come from the far end, or what is due when the lane is over, and append it to
 * @output as a STORE. Something is always taken when there is. 0, MST_ENOMEM or MST_ELIMIT; the
 * lane is then as it was. */
int mst__lane_take(struct mst__lane *lane, struct mst__buf *output);

/* A STORE_REPLY with a body of @size has begun. Whether it is the one that makes the lane CLEAN. */
bool mst__lane_reply(struct mst__lane *lane, size_t size);

/* Pass on what @input has of its body; whether that was all of it. */
bool mst__lane_pass(struct mst__lane *lane, struct mst__buf *input);

/* Whether what is at the front of the input has to wait for the reader. */
static inline bool mst__lane_is_stuck(const struct mst__lane *lane)
{
    return lane->give_up_ms != INT64_MAX;
}

/* Whether the server is to be asked to begin anew. */
static inline bool mst__lane_is_due(const struct mst__lane *lane)
{
    return lane->state == MST_LANE_OVER && !lane->is_asked && !lane->is_last;
}

/* What to poll the near end for; 0 = nothing. @has_room: more could be taken. */
short mst__lane_events(const struct mst__lane *lane, bool has_room);

#endif /* MST_NET_LANE_H */
