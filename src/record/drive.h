/* record/drive.h - carries out the effects of a session: reads, writes, waits.
 *
 * One thread at a time drives a session, from the beginning of an operation to its end. It holds
 * no lock, so a slow store delays only this thread. */
#ifndef MST_RECORD_DRIVE_H
#define MST_RECORD_DRIVE_H

#include "core/session.h"
#include "handler/events.h"
#include "record/home.h"

/* The settings of the driving thread. Plain data. */
struct mst__drive {
    const struct mst__record_home *home;
    const struct mst__events *events;
    /* Readable = end the operation. -1 = it cannot be interrupted. */
    int wake_fd;
    /* An interrupted operation removes its entries from the record, if that is quick; else it
     * ends at once. */
    bool is_tidy;
    /* Count the finished ones among the members of the sealed round that are no longer in
     * @state. Returns 0 or an error of the store. NULL = none has finished. */
    int (*count_finished)(void *self,
                          const struct mst__state *state,
                          int64_t *ret_count,
                          struct mst_err *reterr);
    void *self;
};

/**
 * Run @operation on @session, which is idle, until it has ended.
 *
 * Returns 0, MST_ECLOSED, MST_ETIMEOUT, MST_ESPARE, MST_ECONN, MST_ESTATE, MST_ECANCELED,
 * MST_EAUTH, MST_ENOTSUP, MST_ENOMEM or MST_ELIMIT; @session is idle again. @ret_outcome is
 * written on success; may be NULL.
 */
int mst__drive(const struct mst__drive *drive,
               struct mst__session *session,
               enum mst__operation operation,
               int64_t deadline_us,
               struct mst__outcome *ret_outcome,
               struct mst_err *reterr);

/* Wait until the record differs from the one that @session, which is idle, has read. Returns 0
 * if it may have changed or the wait has failed, MST_ETIMEOUT at @until_us, MST_ECANCELED if
 * interrupted. */
int mst__drive_wait(const struct mst__drive *drive, struct mst__session *session, int64_t until_us);

#endif /* MST_RECORD_DRIVE_H */
