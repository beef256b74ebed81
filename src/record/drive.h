/* record/drive.h - carries out what a session asks for: reads, writes, waits.
 *
 * One thread at a time drives a session, from the beginning of an operation to its end. Nothing in
 * here holds a lock, so that a slow store holds up nobody but the driver. */
#ifndef MST_RECORD_DRIVE_H
#define MST_RECORD_DRIVE_H

#include "core/session.h"
#include "handler/events.h"
#include "record/home.h"

/* What the driving thread was told. Plain data. */
struct mst__drive {
    const struct mst__record_home *home;
    const struct mst__events *events;
    /* Readable = end the operation. -1 = it cannot be interrupted. */
    int wake_fd;
    /* With it an interrupted operation takes back what it has entered into the record, if that is
     * quick; without, it fails at once and leaves everything as it is. */
    bool is_tidy;
    /* How many of the members that the seal of @state counts, and that are not there, have
     * finished: 0, or an error of the store. NULL = nobody can tell, and none has. */
    int (*count_finished)(void *self,
                          const struct mst__state *state,
                          int64_t *ret_count,
                          struct mst_err *reterr);
    void *self;
};

/**
 * Run @operation on @session, which is idle, until it has ended, and say how.
 *
 * Returns 0, MST_ECLOSED, MST_ETIMEOUT, MST_ESPARE, MST_ECONN, MST_ESTATE, MST_ECANCELED,
 * MST_EAUTH, MST_ENOTSUP, MST_ENOMEM or MST_ELIMIT; @session is idle again. @ret_outcome is written
 * on success; may be NULL.
 */
int mst__drive(const struct mst__drive *drive,
               struct mst__session *session,
               enum mst__operation operation,
               int64_t deadline_us,
               struct mst__outcome *ret_outcome,
               struct mst_err *reterr);

/* Wait until the record is no longer the one that @session, which is idle, knows, until @until_us
 * or until interrupted: MST_ETIMEOUT, MST_ECANCELED, 0 when it is worth looking, also when waiting
 * has failed. */
int mst__drive_wait(const struct mst__drive *drive, struct mst__session *session, int64_t until_us);

/* Monotonic time in microseconds. */
int64_t mst__drive_now_us(void);

#endif /* MST_RECORD_DRIVE_H */
