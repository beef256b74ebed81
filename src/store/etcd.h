/* store/etcd.h - what the two stores in an etcd share: when to try again, and what a command that
 * depends on the present value makes of it. */
#ifndef MST_STORE_ETCD_H
#define MST_STORE_ETCD_H

#include "store/backoff.h"
#include "store/store.h"

/* The attempts of one call. An etcd that is away, or has no leader, is tried again until the call's
 * deadline. */
struct mst__etcd_attempts {
    int64_t deadline_ms;
    struct mst__backoff backoff;
    atomic_uint_fast64_t *retries; /* of the store, for its statistics */
    bool is_away;                  /* nobody was there when we tried last, */
    struct mst_err why;            /* which is the reason if then time is over */
};

void mst__etcd_attempts_init(struct mst__etcd_attempts *attempts,
                             int64_t deadline_ms,
                             atomic_uint_fast64_t *retries);

/* Whether a request that ended in @rv is worth another attempt; if so it has paused. */
bool mst__etcd_again(struct mst__etcd_attempts *attempts, int rv, const struct mst_err *err);

/* The error of a read that was given up. Returns the code. */
int mst__etcd_read_failed(const struct mst__etcd_attempts *attempts,
                          int rv,
                          struct mst_err *reterr);

/* The error of a write that was given up, @maybe_done when one of its attempts may have been
 * executed: then that is what the caller is told. Returns the code. */
int mst__etcd_write_failed(const struct mst__etcd_attempts *attempts,
                           int rv,
                           bool maybe_done,
                           struct mst_err *reterr);

/* What a command does to its key. */
enum mst__etcd_change {
    MST_ETCD_KEEP, /* nothing: the answer is there */
    MST_ETCD_PUT,
    MST_ETCD_DELETE,
};

/**
 * Work out what @command - ADD, APPEND, COMPARE_SET or DELETE - makes of @present (NULL = there is
 * no such key): the change, for a PUT the new value in @value, and the answer in @result, which
 * holds if the change is made before anybody else makes one.
 *
 * Returns 0, MST_ETYPE, MST_ELIMIT, MST_ENOMEM.
 */
int mst__etcd_change(const struct mst__command *command,
                     const struct mst_bytes *present,
                     struct mst__buf *value,
                     struct mst__answer *result,
                     enum mst__etcd_change *ret_change,
                     struct mst_err *reterr);

#endif /* MST_STORE_ETCD_H */
