/* store/store.h - shared by the files of the stores.
 *
 * A handle (struct mst_store) is a prefix and a storage. Handles share a storage, which lives until
 * the last of them is closed. A storage has one operation: execute a command before a deadline.
 * Everything that takes several commands, such as waiting for a value or barriers without server
 * support, is written once, in store.c. */
#ifndef MST_STORE_STORE_H
#define MST_STORE_STORE_H

#include <muster/store.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/command.h"
#include "base/endpoint.h"
#include "base/until.h"

/* An answer that outlives the exchange: reply.bytes is the content of memory. */
struct mst__answer {
    struct mst__reply reply;
    struct mst__buf memory;
};

/* Copy @bytes to @result, with room for a NUL after them: 0, MST_ELIMIT, MST_ENOMEM. */
int mst__answer_take(struct mst__answer *result, struct mst_bytes bytes);

struct mst__storage;

struct mst__storage_ops {
    /**
     * Execute @command, whose keys have their prefix and are within the limits. GET sets
     * reply.found and does not block, unless the command says so and can_block is set. COMPARE_SET
     * sets reply.found if the key existed. WAIT, BARRIER and WAIT_CHANGE block and answer when they
     * are over; MST_ETIMEOUT at the deadline. @result is written on success; its memory is empty
     * before the call.
     *
     * Returns 0 or an error of muster/store.h; MST_ENOTSUP if the storage lacks the operation.
     */
    int (*execute)(struct mst__storage *storage,
                   const struct mst__command *command,
                   struct mst__until until,
                   struct mst__answer *result,
                   struct mst_err *reterr);
    bool can_block; /* GET can block, which is cheaper than GET, WAIT and GET */
    bool is_remote; /* every command waits for an answer */
    /* Make another storage of the same store, with its own connections; NULL = handles share this
     * one, whose calls hold no connections. */
    int (*clone)(struct mst__storage *storage,
                 struct mst__storage **ret_storage,
                 struct mst_err *reterr);
    /* Fill in the known values; the rest is zeroed. NULL if there are none. */
    void (*stats)(struct mst__storage *storage, struct mst_store_stats *stats);
    void (*free)(struct mst__storage *storage);
};

struct mst__storage {
    const struct mst__storage_ops *ops;
    char *url;            /* heap; without prefix, password and lease */
    const char *key_root; /* the start of every user key: "/" or "" */
    struct mst_store_options options;
    atomic_size_t handles;
};

/* Make a storage; the caller is its first holder. The storage of mst__tcp_new connects with the
 * first command. */
int mst__tcp_new(const struct mst__url *url,
                 const struct mst_store_options *options,
                 struct mst__storage **ret_storage,
                 struct mst_err *reterr);
int mst__tcp_open(const struct mst__url *url,
                  const struct mst_store_options *options,
                  struct mst__until until,
                  struct mst__storage **ret_storage,
                  struct mst_err *reterr);

/* For handles of a tcp store: close connections that have been idle for @idle_ms. */
void mst__tcp_prune(struct mst_store *store, int64_t idle_ms);

int mst__file_open(const struct mst__url *url,
                   const struct mst_store_options *options,
                   struct mst__storage **ret_storage,
                   struct mst_err *reterr);
int mst__hash_open(const struct mst_store_options *options,
                   struct mst__storage **ret_storage,
                   struct mst_err *reterr);

struct mst__http_options;

/* The same in an etcd at @http, with keys in the directory or under the root @root: "" or "/a/b".
 * @http and @root are copied. With @lease_s > 0 the keys live as long as the stores on that root,
 * see etcd3_lease.h. MST_ENOTSUP if this library was built without etcd. */
int mst__etcd2_open(const struct mst__http_options *http,
                    const char *root,
                    const struct mst_store_options *options,
                    struct mst__until until,
                    struct mst__storage **ret_storage,
                    struct mst_err *reterr);
/* The same without a request to the etcd, for callers that already use it. */
int mst__etcd2_new(const struct mst__http_options *http,
                   const char *root,
                   const struct mst_store_options *options,
                   struct mst__storage **ret_storage,
                   struct mst_err *reterr);
/* Without a lease; the first request is that of the first command. */
int mst__etcd3_new(const struct mst__http_options *http,
                   const char *root,
                   const struct mst_store_options *options,
                   struct mst__storage **ret_storage,
                   struct mst_err *reterr);
int mst__etcd3_open(const struct mst__http_options *http,
                    const char *root,
                    int64_t lease_s,
                    const struct mst_store_options *options,
                    struct mst__until until,
                    struct mst__storage **ret_storage,
                    struct mst_err *reterr);
/* Either, depending on @url. */
int mst__etcd_open(const struct mst__url *url,
                   const struct mst_store_options *options,
                   struct mst__until until,
                   struct mst__storage **ret_storage,
                   struct mst_err *reterr);

/* Counts of all stores in this process, for benchmarks. */
struct mst__store_totals {
    uint64_t operations; /* commands that are answered at once */
    uint64_t waits;
};

struct mst__store_totals mst__store_totals(void);

/**
 * Wait until the value under @key differs from @value (NULL = until it exists). May return early,
 * and may miss a change that was undone at once.
 *
 * Returns 0, MST_ETIMEOUT at @until, MST_ECANCELED, MST_ECONN if the connection was lost,
 * MST_ENOTSUP if the store, or its server, does not report changes.
 */
int mst__store_wait_change(struct mst_store *store,
                           struct mst_bytes key,
                           const struct mst_bytes *value,
                           struct mst__until until,
                           struct mst_err *reterr);

/**
 * Wait until @key exists, like mst_store_wait, but with the errors of mst__store_wait_change: a
 * server that was restarted has lost all keys, and the caller has to know. May return early. A
 * store that does not report changes waits as mst_store_wait does.
 */
int mst__store_await(struct mst_store *store,
                     struct mst_bytes key,
                     int64_t timeout_ms,
                     struct mst_err *reterr);

/* The calls of the same names in muster/store.h, with @until. */
int mst__store_set(struct mst_store *store,
                   struct mst_bytes key,
                   struct mst_bytes value,
                   struct mst__until until,
                   struct mst_err *reterr);
int mst__store_add(struct mst_store *store,
                   struct mst_bytes key,
                   int64_t delta,
                   struct mst__until until,
                   int64_t *ret_sum,
                   struct mst_err *reterr);
int mst__store_check(struct mst_store *store,
                     const struct mst_bytes *keys,
                     size_t keys_count,
                     struct mst__until until,
                     bool *ret_exist,
                     struct mst_err *reterr);
int mst__store_wait(struct mst_store *store,
                    const struct mst_bytes *keys,
                    size_t keys_count,
                    struct mst__until until,
                    struct mst_err *reterr);
int mst__store_delete(struct mst_store *store,
                      struct mst_bytes key,
                      struct mst__until until,
                      bool *ret_existed,
                      struct mst_err *reterr);
int mst__store_compare_set(struct mst_store *store,
                           struct mst_bytes key,
                           struct mst_bytes expected,
                           struct mst_bytes desired,
                           struct mst__until until,
                           enum mst_compare_set *ret_outcome,
                           struct mst_buffer *ret_value,
                           struct mst_err *reterr);
int mst__store_multi_get(struct mst_store *store,
                         const struct mst_bytes *keys,
                         size_t keys_count,
                         struct mst__until until,
                         struct mst_buffer *ret_values,
                         struct mst_err *reterr);
int mst__store_multi_set(struct mst_store *store,
                         const struct mst_bytes *keys,
                         const struct mst_bytes *values,
                         size_t keys_count,
                         struct mst__until until,
                         struct mst_err *reterr);

/* Execute @op, GET or QUEUE_POP; with @block wait for a value. */
int mst__store_fetch(struct mst_store *store,
                     struct mst_bytes key,
                     enum mst__op op,
                     bool block,
                     struct mst__until until,
                     struct mst_buffer *ret_value,
                     struct mst_err *reterr);

/* A call was interrupted; the last one to end resets wake_fd. */
#define MST_STORE_QUIETING (SIZE_MAX / 2 + 1)

struct mst_store {
    struct mst__storage *storage;
    unsigned generation;        /* of the process that created it, see base/fork.h */
    atomic_int wake_fd;         /* readable = interrupted; -1 = the first call creates it */
    atomic_bool is_interrupted; /* wake_fd is, or will soon be, readable */
    atomic_size_t calls;        /* calls under way, plus MST_STORE_QUIETING */
    pthread_mutex_t mutex;      /* to wait until the interrupted calls have ended */
    pthread_cond_t quiet_cond;
    struct mst__arrival *arrivals; /* participants of barriers, see barrier.c; guarded by mutex */
    uint64_t epoch;                /* of the round that it is for, see mst__store_bind; 0 = none */
    bool is_view;                  /* has its own prefix */
    size_t prefix_size;
    char prefix[]; /* all prefixes, after the storage's key_root */
};

/* --- handle.c --- */

/* Make a handle, one more holder of @storage on success. */
int mst__store_new(struct mst__storage *storage,
                   struct mst_bytes prefix,
                   bool is_view,
                   struct mst_store **ret_store,
                   struct mst_err *reterr);

/* mst_store_open with another limit of the wait. */
int mst__store_open(const char *url,
                    const struct mst_store_options *options,
                    struct mst__until until,
                    struct mst_store **ret_store,
                    struct mst_err *reterr);

/* Make the first handle of a new @storage: it sees all user keys. On failure the storage is freed.
 * 0, MST_ENOMEM. */
int mst__store_first(struct mst__storage *storage,
                     struct mst_store **ret_store,
                     struct mst_err *reterr);

/* Make another handle on the keys of @store, in its @storage or in a clone of that. */
int mst__store_copy(const struct mst_store *store,
                    struct mst__storage *storage,
                    struct mst_store **ret_store,
                    struct mst_err *reterr);

/* Make @store the store of a round with @epoch: its calls, and those of views and clones made
 * later, fail with MST_ECLOSED at a muster server that has not sealed the round itself, because a
 * server loses all keys when it restarts. 0 = any server will do. No call may be under way. */
void mst__store_bind(struct mst_store *store, uint64_t epoch);

/* Begin a call of the application on @store: 0, MST_EINVAL in a forked child, MST_ESYS. */
int mst__store_enter(struct mst_store *store, struct mst_err *reterr);

/* End the call. Returns @rv, or MST_ECANCELED if it was interrupted. */
int mst__store_leave(struct mst_store *store, int rv, struct mst_err *reterr);

/* Whether the next call that waits will be interrupted. */
bool mst__store_is_interrupted(const struct mst_store *store);

/* --- barrier.c --- */

/* The barrier of a store whose storage has no BARRIER, see muster/store.h. */
int mst__barrier_by_list(struct mst_store *store,
                         struct mst_bytes key,
                         int64_t size,
                         struct mst__until until,
                         struct mst_err *reterr);

struct mst__arrival;

void mst__arrivals_free(struct mst__arrival *arrivals);

/* --- prefix.c --- */

/* Append @count keys, each followed by its value if @values is not NULL, in the form of the
 * storage: strs with the prefix. Checks the limits. 0, MST_ELIMIT, MST_ENOMEM. */
int mst__prefix_keys(const struct mst_store *store,
                     const struct mst_bytes *keys,
                     const struct mst_bytes *values,
                     size_t count,
                     struct mst__buf *items,
                     struct mst_err *reterr);

/* Select the keys of @store in the reply to a LIST_KEYS, without the prefix. Takes the memory of
 * @result on success. 0, MST_EPROTO, MST_ENOMEM. */
int mst__prefix_strip(const struct mst_store *store,
                      struct mst__answer *result,
                      struct mst_keys *ret_keys,
                      struct mst_err *reterr);

#define MST_KEY_TEXT_SIZE 64

/* @key for a message: in quotes, unusual bytes escaped, cut off if long. Returns @ret_text. */
const char *mst__key_text(struct mst_bytes key, char ret_text[MST_KEY_TEXT_SIZE]);

#endif /* MST_STORE_STORE_H */
