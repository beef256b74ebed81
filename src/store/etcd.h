/* store/etcd.h - the common part of the two stores in an etcd: how to execute each command, when to
 * retry, and the result of commands that depend on the current value. */
#ifndef MST_STORE_ETCD_H
#define MST_STORE_ETCD_H

#include "base/err.h"
#include "store/backoff.h"
#include "store/store.h"

/* The attempts of one call. An etcd that is unreachable or has no leader is retried until the
 * call's deadline. */
struct mst__etcd_attempts {
    struct mst__until until;
    struct mst__backoff backoff;
    atomic_uint_fast64_t *retries; /* of the store, for its statistics */
    bool is_away;                  /* the last attempt reached no server; */
    struct mst_err why;            /* the reason, reported at the deadline */
};

void mst__etcd_attempts_init(struct mst__etcd_attempts *attempts,
                             struct mst__until until,
                             atomic_uint_fast64_t *retries);

/* The URL of a store of @scheme under @root: heap, NULL if out of memory. */
char *mst__etcd_url(const char *scheme, const struct mst__http_options *http, const char *root);

/* Whether to retry a request that returned @rv; if so, this call has paused. */
bool mst__etcd_again(struct mst__etcd_attempts *attempts, int rv, const struct mst_err *err);

/* The error of a read that is given up. Returns the code. */
int mst__etcd_read_failed(const struct mst__etcd_attempts *attempts,
                          int rv,
                          struct mst_err *reterr);

/* The error of a write that is given up; MST_EUNKNOWN with @maybe_done, if one of its attempts may
 * have been executed. Returns the code. */
int mst__etcd_write_failed(const struct mst__etcd_attempts *attempts,
                           int rv,
                           bool maybe_done,
                           struct mst_err *reterr);

/* The effect of a command on its key. */
enum mst__etcd_change {
    MST_ETCD_KEEP, /* none: the answer is ready */
    MST_ETCD_PUT,
    MST_ETCD_DELETE,
};

/**
 * Compute the effect of @command - ADD, APPEND, COMPARE_SET or DELETE - on @present (NULL = no such
 * key): the change, the new value of a PUT in @value, and the answer in @result, which is valid if
 * the change is made before any other.
 *
 * Returns 0, MST_ETYPE, MST_ELIMIT, MST_ENOMEM.
 */
int mst__etcd_change(const struct mst__command *command,
                     const struct mst_bytes *present,
                     struct mst__buf *value,
                     struct mst__answer *result,
                     enum mst__etcd_change *ret_change,
                     struct mst_err *reterr);

/* The result of a conditional write. */
enum mst__etcd_outcome {
    MST_ETCD_DONE,
    MST_ETCD_LOST,      /* another client was faster; ours will never be executed */
    MST_ETCD_UNCHANGED, /* not executed yet; can be retried */
};

/* The operations that differ between the stores. @call is the argument of mst__etcd_run. */
struct mst__etcd_ops {
    const char *name; /* "etcd2" */
    int (*set)(void *call);
    int (*get)(void *call, struct mst__answer *result);
    /* Called before the first attempt at a change that depends on the current value. */
    int (*begin_change)(void *call);
    /* One attempt: call mst__etcd_change, and write unless another client has written since. @value
     * is room for the new value. @ret_is_over is false if another client has; always true with an
     * error. */
    int (*try_change)(void *call,
                      struct mst__buf *value,
                      struct mst__answer *result,
                      bool *ret_is_over);
    /* The missing keys of the command, as strs in @missing. */
    int (*find_missing)(void *call, struct mst__buf *missing);
    int (*wait)(void *call);
    int (*wait_change)(void *call);
    /* The number of keys, and the keys as strs in @keys unless that is NULL. */
    int (*list)(void *call, struct mst__buf *keys, int64_t *ret_count);
    /* NULL = not supported. */
    int (*multi_set)(void *call);
    int (*multi_get)(void *call, struct mst__answer *result);
};

/* Execute @command of @storage; @attempts are those of @call. */
int mst__etcd_run(const struct mst__etcd_ops *ops,
                  void *call,
                  const struct mst__storage *storage,
                  const struct mst__command *command,
                  const struct mst__etcd_attempts *attempts,
                  struct mst__answer *result,
                  struct mst_err *reterr);

/* Execute a first command to check that the server answers, has the API and accepts us: 0 or its
 * error. */
int mst__etcd_probe(struct mst__storage *storage, struct mst__until until, struct mst_err *reterr);

/* Fill @stats of a store at @where. */
void mst__etcd_stats(const atomic_uint_fast64_t *retries,
                     const char *where,
                     struct mst_store_stats *stats);

/* Fill @reterr with the text of @rv, usually MST_ENOMEM or MST_ELIMIT. Returns @rv. */
static inline int mst__etcd_fail(int rv, struct mst_err *reterr)
{
    return mst__fail(reterr, rv, 0, "%s", mst_strerror(rv));
}

/* Append the key that @name, of an entry in the directory of an etcd2 store, stands for to @key.
 * False if it stands for none; @ret_code is then 0 or MST_ENOMEM. */
bool mst__etcd2_name_read(struct mst_bytes name, struct mst__buf *key, int *ret_code);

#endif /* MST_STORE_ETCD_H */
