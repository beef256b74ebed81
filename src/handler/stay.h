/* handler/stay.h - the end of a node that serves others: its server ends with it, so it stays until
 * no node needs the server any more. Jobs of every backend that meet there count. */
#ifndef MST_HANDLER_STAY_H
#define MST_HANDLER_STAY_H

#include "handler/events.h"
#include "handler/hosted.h"
#include "handler/owner.h"
#include "net/job_client.h"

/* Jobs that are named in a sentence, and bytes of their ids. */
#define MST_STAY_NAMED_MAX 3
#define MST_STAY_ID_SHOWN 40

/* Records that have not changed for so long are those of dead nodes. By default these are twelve
 * heartbeats. */
#define MST_STAY_RECORDS_MS 60000

/* The nodes that meet at the server. */
struct mst__needs {
    uint64_t nodes;   /* of open jobs */
    uint64_t parting; /* of closed jobs but ours */
    uint64_t jobs;    /* open ones with nodes */
    /* "run 'a' (2 nodes), run 'b' (1 node)" */
    char names[MST_STAY_NAMED_MAX * (MST_STAY_ID_SHOWN + 60) + 60];
};

/* The caller fills in the first part, clears the rest, and closes it. All is borrowed. */
struct mst__stay {
    const struct mst__hosted *hosted;   /* the server of this node */
    const struct mst__endpoint *server; /* where this process reaches it */
    const char *where;                  /* its name in messages */
    struct mst__owner *owner;
    const struct mst__events *events;
    int64_t linger_ms;  /* the time of the option linger */
    int64_t records_ms; /* MST_STAY_RECORDS_MS */

    struct mst__job_client *client; /* to the server; NULL = not yet */
    struct mst_store *store;        /* the same */
    struct mst__needs needs;        /* of the last look */
    uint64_t records;               /* identifies the records of that look */
    int64_t changed_ms;             /* when they were seen to change */
    int64_t timeout_ms;
    bool is_told;
};

/* Wait until no node needs the server, see mst_handler_linger. Returns as that does. */
int mst__stay(struct mst__stay *stay, int64_t timeout_ms, struct mst_err *reterr);

/* The server is about to end. A node that has not read its last messages would take that for a
 * failure: wait until all nodes of other closed jobs have left, and @is_needed (may be NULL) says
 * no, or until they had time to read. */
void mst__stay_part(struct mst__stay *stay, bool (*is_needed)(void *arg), void *arg);

void mst__stay_close(struct mst__stay *stay);

#endif /* MST_HANDLER_STAY_H */
