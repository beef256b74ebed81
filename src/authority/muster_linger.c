/* authority/muster_linger.c - the end of a node that serves others. */
#include "authority/muster_self.h"
#include "base/clock.h"
#include "handler/stay.h"

/* Time for the answer of our own server. */
#define ANSWER_MS 2500

/* Nodes may need so long to hear that their round has begun. */
#define BEGUN_MS 2500

static struct mst__stay stay_of(struct mst__muster *muster)
{
    return (struct mst__stay){.hosted = muster->hosted,
                              .server = mst__muster_server(muster),
                              .where = muster->where,
                              .owner = &muster->head.owner,
                              .events = &muster->events,
                              .linger_ms = muster->settings.place.linger_ms,
                              .records_ms = MST_STAY_RECORDS_MS};
}

int mst__muster_linger(void *self, int64_t timeout_ms, struct mst_err *reterr)
{
    struct mst__muster *muster = self;
    struct mst__stay stay = stay_of(muster);
    int rv = mst__stay(&stay, timeout_ms, reterr);
    mst__stay_close(&stay);
    return rv;
}

/* Whether other nodes of our job should hear of its end before we leave: none, unless it is
 * closed or the round has only just begun. */
static bool is_awaited(void *arg)
{
    const struct mst__muster *muster = arg;
    struct mst__job_client *client = NULL;
    struct mst__job_status status;
    int64_t others = 0;
    int64_t waiting;
    if (mst__muster_ask_status(muster, ANSWER_MS, &client, &status, NULL) != 0) {
        return false;
    }
    bool is_new = muster->sealed_ms != 0 && mst__clock_ms() - muster->sealed_ms < BEGUN_MS;
    if (status.phase == MST_AUTHORITY_CLOSED || is_new) {
        mst__muster_count_nodes(muster, &status, &others, &waiting);
    }
    mst__job_client_close(client);
    return others > 0;
}

void mst__muster_part(struct mst__muster *muster)
{
    struct mst__stay stay = stay_of(muster);
    mst__stay_part(&stay, is_awaited, muster);
    mst__stay_close(&stay);
}
