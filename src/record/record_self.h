/* record/record_self.h - what the files of the dynamic handler share.
 *
 * The session is the owner's (handler/owner.h). What the application may call apart from next and
 * leave works on what the owner has published, or with a session of its own. */
#ifndef MST_RECORD_RECORD_SELF_H
#define MST_RECORD_RECORD_SELF_H

#include "base/prng.h"
#include "handler/ending.h"
#include "handler/head.h"
#include "record/drive.h"
#include "record/record.h"

/* The first pause after a failure to watch. */
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
    bool is_host; /* the store goes when we go */

    /* The owner. */
    struct mst__session session;
    struct mst__peers lost;
    struct mst__ending ending;
    struct mst__prng prng;
    int64_t again_us;  /* the next pause after a failure */
    int64_t spread_us; /* by how much the next beat is put off */

    struct mst__bootstrap bootstrap;
};

/* --- record_watch.c: what the view tells --- */

/* Tell how the record as last read differs from the round that was joined; @err (may be NULL) says
 * why it could not be read. 0 or MST_ENOMEM. The owner. */
int mst__record_publish(struct mst__record *record,
                        const struct mst_err *err,
                        struct mst__changes *ret_changes);

/* --- record_watch.c: watching --- */

/* One look or one beat, when it is time for it: an mst__owner_watch_fn. */
void mst__record_watch(void *arg);

/* One look or one beat now; what fails is told. The owner. */
void mst__record_operate(struct mst__record *record, int wake_fd, enum mst__operation operation);

/* Choose by how much the next beat is put off. The owner. */
void mst__record_spread(struct mst__record *record);

#endif /* MST_RECORD_RECORD_SELF_H */
