/* core/listening.c - the time up to which a driver has read everything from its nodes. */
#include "core/listening.h"

#include "base/assert.h"

void mst__listening_init(struct mst__listening *listening)
{
    *listening = (struct mst__listening){.poll_us = INT64_MIN, .heard_us = INT64_MIN};
}

void mst__listening_poll(struct mst__listening *listening, int64_t now_us)
{
    MST_ASSERT(now_us >= listening->poll_us);
    listening->heard_us = listening->poll_us;
    listening->poll_us = now_us;
}

enum mst__listening_verdict mst__listening_judge(const struct mst__listening *listening,
                                                 int64_t due_us,
                                                 int64_t now_us)
{
    if (due_us > now_us) {
        return MST_LISTENING_LATER;
    }
    return due_us > listening->heard_us ? MST_LISTENING_POLL : MST_LISTENING_DUE;
}
