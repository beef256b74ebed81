/* core/listening.h - the time up to which a driver has read everything from its nodes.
 *
 * A loop runs its timers before it reads. After a pause, a timer is due while heartbeats are still
 * unread in the sockets. So a timer decides nothing. It requests a look, and deadlines are judged
 * after that look, at the time up to which everything was read.
 *
 * A poll reads from known connections and accepts new ones, which the next poll reads. Hence after
 * a poll everything is known that had arrived when the poll before it began. */
#ifndef MST_CORE_LISTENING_H
#define MST_CORE_LISTENING_H

#include <stdint.h>

/* Plain data. Polls may be omitted; then less is known. */
struct mst__listening {
    int64_t poll_us;  /* when the last poll began */
    int64_t heard_us; /* everything that had arrived by then was read */
};

enum mst__listening_verdict {
    MST_LISTENING_LATER, /* not due yet */
    MST_LISTENING_POLL,  /* due; but poll again first, without waiting */
    MST_LISTENING_DUE,   /* due, and everything before was read: tick with heard_us */
};

void mst__listening_init(struct mst__listening *listening);

/* A poll begins. */
void mst__listening_poll(struct mst__listening *listening, int64_t now_us);

/* After a poll: whether the deadline @due_us can be judged. */
enum mst__listening_verdict mst__listening_judge(const struct mst__listening *listening,
                                                 int64_t due_us,
                                                 int64_t now_us);

#endif /* MST_CORE_LISTENING_H */
