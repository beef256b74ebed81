/* core/listening.h - until when a driver knows all that its nodes have said.
 *
 * A loop runs its timers before it reads what has arrived. After a pause the timer is due while the
 * words that would have kept nodes alive are still in the sockets. So a timer decides nothing. It
 * asks for a look, and what is due is judged behind that look, at the time up to which everything
 * was read.
 *
 * A poll reads what has arrived on known connections and takes in new ones; what has come over
 * those is read by the next poll. Hence behind a poll everything is known that had arrived when the
 * poll before it began. */
#ifndef MST_CORE_LISTENING_H
#define MST_CORE_LISTENING_H

#include <stdint.h>

/* Plain data. Polls may be left out; then less is known than could be. */
struct mst__listening {
    int64_t poll_us;  /* when the last poll began */
    int64_t heard_us; /* everything that had arrived by then was read */
};

enum mst__listening_verdict {
    MST_LISTENING_LATER, /* it is not due yet */
    MST_LISTENING_POLL,  /* it is; but poll again first, without waiting */
    MST_LISTENING_DUE,   /* it is, and everything of before was read: tick with heard_us */
};

void mst__listening_init(struct mst__listening *listening);

/* A poll begins. */
void mst__listening_poll(struct mst__listening *listening, int64_t now_us);

/* Behind a poll: whether what was to happen at @due_us can be judged. */
enum mst__listening_verdict mst__listening_judge(const struct mst__listening *listening,
                                                 int64_t due_us,
                                                 int64_t now_us);

#endif /* MST_CORE_LISTENING_H */
