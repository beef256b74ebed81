/* record/record_self.h - shared by the files of the dynamic handler.
 *
 * The session belongs to the owner (handler/owner.h). Calls other than next and leave read the
 * published state or use a separate session. */
#ifndef MST_RECORD_RECORD_SELF_H
#define MST_RECORD_RECORD_SELF_H

#include "base/prng.h"
#include "handler/ending.h"
#include "handler/head.h"
#include "record/drive.h"
#include "record/record.h"

/* The first pause after a failed watch. */
#define MST_RECORD_AGAIN_US 100000

struct mst__record {
    struct mst__head head;
    struct mst_params *params;
    struct mst__record_home home;
    struct mst__dynamic dynamic;
    char addr[MST_HOST_SIZE];
    char node_text[MST_BOOTSTRAP_NODE_SIZE];
    struct mst__node node;
    struct mst__events events;
    char where[MST_ENDPOINT_TEXT_SIZE]; /* of the store that others use; empty = a file */
    int64_t linger_ms;
    bool is_host_told; /* the event that this node serves */

    /* Used by the owner. */
    struct mst__session session;
    struct mst__peers lost;
    struct mst__ending ending;
    struct mst__prng prng;
    int64_t again_us;  /* the next pause after a failure */
    int64_t spread_us; /* delay of the next heartbeat */

    struct mst__bootstrap bootstrap;
};

/* --- record_watch.c: what the view tells --- */

/* Publish how the last read of the record differs from the joined round; @err (may be NULL) is
 * the reason if it could not be read. Returns 0 or MST_ENOMEM. The owner. */
int mst__record_publish(struct mst__record *record,
                        const struct mst_err *err,
                        struct mst__changes *ret_changes);

/* --- record_watch.c: watching --- */

/* One look or one heartbeat, when it is due: an mst__owner_watch_fn. */
void mst__record_watch(void *arg);

/* One look or one heartbeat now; a failure is published. The owner. */
void mst__record_operate(struct mst__record *record, int wake_fd, enum mst__operation operation);

/* Choose the delay of the next heartbeat. The owner. */
void mst__record_spread(struct mst__record *record);

#endif /* MST_RECORD_RECORD_SELF_H */
