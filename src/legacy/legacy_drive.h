/* legacy/legacy_drive.h - executes the effects of a legacy machine, each with one request to the
 * etcd.
 *
 * One thread at a time drives a machine, from the beginning of an operation to its end. */
#ifndef MST_LEGACY_LEGACY_DRIVE_H
#define MST_LEGACY_LEGACY_DRIVE_H

#include "core/legacy.h"
#include "etcd/v2.h"

/* The settings of the driving thread. Plain data. */
struct mst__legacy_drive {
    struct mst__v2 *v2;
    /* Readable = end the operation. -1 = it cannot be interrupted. */
    int wake_fd;
    /* An interrupted operation removes its entries; else it ends at once. */
    bool is_tidy;
    int64_t call_ms; /* time limit of one request */
    /* If not NULL, called with the error of a failed request, and with NULL when one succeeds
     * again. */
    void (*on_reach)(void *arg, const struct mst_err *err);
    void *arg;
};

/**
 * Run @operation on @legacy, which is idle, until it has ended.
 *
 * Returns 0, MST_ECLOSED, MST_ETIMEOUT, MST_ECANCELED, MST_ECONN, MST_EINVAL (the others have other
 * limits), MST_ESTATE (the data is not such a rendezvous); MST_EAUTH, MST_ENOTSUP, MST_EPROTO,
 * which a retry cannot cure; MST_ENOMEM or MST_ELIMIT. @legacy is idle again. @ret_outcome is
 * written on success; may be NULL.
 */
int mst__legacy_drive(const struct mst__legacy_drive *drive,
                      struct mst__legacy *legacy,
                      enum mst__legacy_operation operation,
                      int64_t deadline_us,
                      struct mst__legacy_outcome *ret_outcome,
                      struct mst_err *reterr);

#endif /* MST_LEGACY_LEGACY_DRIVE_H */
