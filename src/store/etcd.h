/* store/etcd.h - what the two stores in an etcd share: which command is done how, when to try
 * again, and what a command that depends on the present value makes of it. */
#ifndef MST_STORE_ETCD_H
#define MST_STORE_ETCD_H

#include "base/err.h"
#include "store/backoff.h"
#include "store/store.h"

/* The attempts of one call. An etcd that is away, or has no leader, is tried again until the call's
 * deadline. */
struct mst__etcd_attempts {
    struct mst__until until;
    struct mst__backoff backoff;
    atomic_uint_fast64_t *retries; /* of the store, for its statistics */
    bool is_away;                  /* nobody was there when we tried last, */
    struct mst_err why;            /* which is the reason if then time is over */
};

void mst__etcd_attempts_init(struct mst__etcd_attempts *attempts,
                             struct mst__until until,
                             atomic_uint_fast64_t *retries);

/* The URL of a store of @scheme under @root: heap, NULL when out of memory. */
char *mst__etcd_url(const char *scheme, const struct mst__http_options *http, const char *root);

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

/* How a conditional write went. */
enum mst__etcd_outcome {
    MST_ETCD_DONE,
    MST_ETCD_LOST,      /* somebody else was faster, and ours will never be done */
    MST_ETCD_UNCHANGED, /* not done yet, and can be tried again */
};

/* What is a store's own in executing a command. @call is what it has given to mst__etcd_run. */
struct mst__etcd_ops {
    const char *name; /* "etcd2" */
    int (*set)(void *call);
    int (*get)(void *call, struct mst__answer *result);
    /* Before the first attempt at a change that depends on the present value. */
    int (*begin_change)(void *call);
    /* One attempt: ask mst__etcd_change, and write, if nobody else has written since. @value is for
     * the new value. @ret_is_over unless somebody has; always with an error. */
    int (*try_change)(void *call,
                      struct mst__buf *value,
                      struct mst__answer *result,
                      bool *ret_is_over);
    /* Which of the command's keys are missing, as strs in @missing. */
    int (*find_missing)(void *call, struct mst__buf *missing);
    int (*wait)(void *call);
    int (*wait_change)(void *call);
    /* How many keys there are, and which, as strs in @keys, unless that is NULL. */
    int (*list)(void *call, struct mst__buf *keys, int64_t *ret_count);
    /* NULL = it has no such operation. */
    int (*multi_set)(void *call);
    int (*multi_get)(void *call, struct mst__answer *result);
};

/* What the execute of a @storage does with @command; @attempts are those of @call. */
int mst__etcd_run(const struct mst__etcd_ops *ops,
                  void *call,
                  const struct mst__storage *storage,
                  const struct mst__command *command,
                  const struct mst__etcd_attempts *attempts,
                  struct mst__answer *result,
                  struct mst_err *reterr);

/* See by a first command whether somebody answers, has the API and lets us in: 0, or its error. */
int mst__etcd_probe(struct mst__storage *storage, struct mst__until until, struct mst_err *reterr);

/* Fill in @stats of a store at @where. */
void mst__etcd_stats(const atomic_uint_fast64_t *retries,
                     const char *where,
                     struct mst_store_stats *stats);

/* An error without more to say than its name, as a rule MST_ENOMEM or MST_ELIMIT. Returns @rv. */
static inline int mst__etcd_fail(int rv, struct mst_err *reterr)
{
    return mst__fail(reterr, rv, 0, "%s", mst_strerror(rv));
}

/* Append the key of an etcd2 store that @name, of an entry of its directory, stands for to @key.
 * False when it stands for none; @ret_code is then 0 or MST_ENOMEM. */
bool mst__etcd2_name_read(struct mst_bytes name, struct mst__buf *key, int *ret_code);

#endif /* MST_STORE_ETCD_H */
