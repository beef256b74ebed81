/* legacy/legacy_drive.h - carries out what the machine of a legacy rendezvous asks for, one
 * request to the etcd each.
 *
 * One thread at a time drives a machine, from the beginning of an operation to its end. */
#ifndef MST_LEGACY_LEGACY_DRIVE_H
#define MST_LEGACY_LEGACY_DRIVE_H

#include "core/legacy.h"
#include "etcd/v2.h"

/* What the driving thread was told. Plain data. */
struct mst__legacy_drive {
    struct mst__v2 *v2;
    /* Readable = end the operation. -1 = it cannot be interrupted. */
    int wake_fd;
    /* With it an interrupted operation takes back what it has entered; without, it is given up
     * where it is. */
    bool is_tidy;
    int64_t call_ms; /* how long one request may take at most */
    /* Told, when not NULL, why a request has failed, and with NULL that one has not again. */
    void (*on_reach)(void *arg, const struct mst_err *err);
    void *arg;
};

/**
 * Run @operation on @legacy, which is idle, until it has ended, and say how.
 *
 * Returns 0, MST_ECLOSED, MST_ETIMEOUT, MST_ECANCELED, MST_ECONN, MST_EINVAL (the others have other
 * limits), MST_ESTATE (what is stored is no such rendezvous); MST_EAUTH, MST_ENOTSUP, MST_EPROTO,
 * which no other attempt would make good; MST_ENOMEM or MST_ELIMIT. @legacy is idle again.
 * @ret_outcome is written on success; may be NULL.
 */
int mst__legacy_drive(const struct mst__legacy_drive *drive,
                      struct mst__legacy *legacy,
                      enum mst__legacy_operation operation,
                      int64_t deadline_us,
                      struct mst__legacy_outcome *ret_outcome,
                      struct mst_err *reterr);

#endif /* MST_LEGACY_LEGACY_DRIVE_H */
