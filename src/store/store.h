/* store/store.h - what the files of the stores share.
 *
 * A handle (struct mst_store) is a prefix and a storage. Handles of one storage share it: it lives
 * until the last of them is closed. A storage knows one thing: to execute a command by a deadline.
 * Everything made of several commands - waiting for a value, barriers without server support - is
 * written once, in store.c. */
#ifndef MST_STORE_STORE_H
#define MST_STORE_STORE_H

#include <muster/store.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/command.h"
#include "base/endpoint.h"
#include "base/until.h"

/* An answer that outlives the exchange: reply.bytes is all of what memory holds. */
struct mst__answer {
    struct mst__reply reply;
    struct mst__buf memory;
};

/* Put a copy of @bytes into @result, with room for a NUL behind it: 0, MST_ELIMIT, MST_ENOMEM. */
int mst__answer_take(struct mst__answer *result, struct mst_bytes bytes);

struct mst__storage;

struct mst__storage_ops {
    /**
     * Execute @command, whose keys are the storage's own (prefixed already) and within the limits.
     * GET tells by reply.found whether there was a value and does not block, unless the command
     * says so and can_block is set: then there is one. COMPARE_SET tells by it whether there was a
     * key. WAIT, BARRIER and WAIT_CHANGE block and answer once they are over; MST_ETIMEOUT at the
     * deadline. @result is written on success; its memory is empty when called.
     *
     * Returns 0 or an error of muster/store.h; MST_ENOTSUP when the storage lacks the operation.
     */
    int (*execute)(struct mst__storage *storage,
                   const struct mst__command *command,
                   struct mst__until until,
                   struct mst__answer *result,
                   struct mst_err *reterr);
    bool can_block; /* a GET, with less work than a GET, a WAIT and another GET are */
    bool is_remote; /* every command waits for an answer */
    /* Make another storage of the same store, with connections of its own; NULL = handles share
     * this one, which has no connections that a call holds. */
    int (*clone)(struct mst__storage *storage,
                 struct mst__storage **ret_storage,
                 struct mst_err *reterr);
    /* Fill in what the storage knows; the rest is zeroed. NULL when it knows nothing. */
    void (*stats)(struct mst__storage *storage, struct mst_store_stats *stats);
    void (*free)(struct mst__storage *storage);
};

struct mst__storage {
    const struct mst__storage_ops *ops;
    char *url;            /* heap; without prefix, password and lease */
    const char *key_root; /* what precedes every user's key: "/" or "" */
    struct mst_store_options options;
    atomic_size_t handles;
};

/* Make a storage; the caller becomes its first holder. mst__tcp_new makes one that is connected
 * with the first command. */
int mst__tcp_new(const struct mst__url *url,
                 const struct mst_store_options *options,
                 struct mst__storage **ret_storage,
                 struct mst_err *reterr);
int mst__tcp_open(const struct mst__url *url,
                  const struct mst_store_options *options,
                  struct mst__until until,
                  struct mst__storage **ret_storage,
                  struct mst_err *reterr);

/* For handles on a tcp store: close connections that have been idle for @idle_ms. */
void mst__tcp_prune(struct mst_store *store, int64_t idle_ms);

int mst__file_open(const struct mst__url *url,
                   const struct mst_store_options *options,
                   struct mst__storage **ret_storage,
                   struct mst_err *reterr);
int mst__hash_open(const struct mst_store_options *options,
                   struct mst__storage **ret_storage,
                   struct mst_err *reterr);

struct mst__http_options;

/* The same in an etcd, reached as @http says, with keys in the directory or under the root @root:
 * "" or "/a/b". @http and @root are copied. With @lease_s > 0 the keys live as long as stores on
 * that root do, see etcd3_lease.h. MST_ENOTSUP when this library was built without etcd. */
int mst__etcd2_open(const struct mst__http_options *http,
                    const char *root,
                    const struct mst_store_options *options,
                    struct mst__until until,
                    struct mst__storage **ret_storage,
                    struct mst_err *reterr);
/* The same without asking the etcd anything: for those who talk to it already. */
int mst__etcd2_new(const struct mst__http_options *http,
                   const char *root,
                   const struct mst_store_options *options,
                   struct mst__storage **ret_storage,
                   struct mst_err *reterr);
/* Without a lease; nothing is asked before the first command. */
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
/* Either, as @url says. */
int mst__etcd_open(const struct mst__url *url,
                   const struct mst_store_options *options,
                   struct mst__until until,
                   struct mst__storage **ret_storage,
                   struct mst_err *reterr);

/* What all stores of this process were asked to execute, for those who measure it. */
struct mst__store_totals {
    uint64_t operations; /* that answer at once */
    uint64_t waits;
};

struct mst__store_totals mst__store_totals(void);

/**
 * Wait until the value under @key is not @value any more (NULL = until there is one). May return
 * early, and later than a change that was undone at once.
 *
 * Returns 0, MST_ETIMEOUT at @until, MST_ECANCELED, MST_ECONN when the connection was lost in
 * it, MST_ENOTSUP when the store, or the server behind it, does not tell of changes.
 */
int mst__store_wait_change(struct mst_store *store,
                           struct mst_bytes key,
                           const struct mst_bytes *value,
                           struct mst__until until,
                           struct mst_err *reterr);

/* The calls of the same names as muster/store.h has them, that end by @until. */
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

/* GET or QUEUE_POP, as @op says; with @block it waits for a value. */
int mst__store_fetch(struct mst_store *store,
                     struct mst_bytes key,
                     enum mst__op op,
                     bool block,
                     struct mst__until until,
                     struct mst_buffer *ret_value,
                     struct mst_err *reterr);

/* One of the calls was interrupted, and the last one to end has to silence wake_fd. */
#define MST_STORE_QUIETING (SIZE_MAX / 2 + 1)

struct mst_store {
    struct mst__storage *storage;
    unsigned generation;        /* of the process that has made it, see base/fork.h */
    atomic_int wake_fd;         /* readable = interrupted; -1 = the first call makes it */
    atomic_bool is_interrupted; /* wake_fd is, or soon will be, worth looking at */
    atomic_size_t calls;        /* under way, and MST_STORE_QUIETING */
    pthread_mutex_t mutex;      /* for waiting until that is over */
    pthread_cond_t quiet_cond;
    bool is_view; /* has a prefix of its own */
    size_t prefix_size;
    char prefix[]; /* all of them, and the storage's key_root in front */
};

/* --- handle.c --- */

/* Make a handle. It becomes one more holder of @storage on success. */
int mst__store_new(struct mst__storage *storage,
                   struct mst_bytes prefix,
                   bool is_view,
                   struct mst_store **ret_store,
                   struct mst_err *reterr);

/* The first handle on a @storage that was just made: it sees all keys of its users. On failure the
 * storage is freed. 0, MST_ENOMEM. */
int mst__store_first(struct mst__storage *storage,
                     struct mst_store **ret_store,
                     struct mst_err *reterr);

/* Begin a call of the application on @store: 0, MST_EINVAL in a forked child, MST_ESYS. */
int mst__store_enter(struct mst_store *store, struct mst_err *reterr);

/* End it. Returns @rv, or MST_ECANCELED when it was interrupted. */
int mst__store_leave(struct mst_store *store, int rv, struct mst_err *reterr);

/* Whether the next call that waits will be interrupted. */
bool mst__store_is_interrupted(const struct mst_store *store);

/* --- prefix.c --- */

/* Append @count keys, with @values behind each when that is not NULL, as the storage knows them:
 * strs with the prefix. Checks the limits. 0, MST_ELIMIT, MST_ENOMEM. */
int mst__prefix_keys(const struct mst_store *store,
                     const struct mst_bytes *keys,
                     const struct mst_bytes *values,
                     size_t count,
                     struct mst__buf *items,
                     struct mst_err *reterr);

/* The keys in the reply to a LIST_KEYS that are @store's, without the prefix. Takes @result's
 * memory on success. 0, MST_EPROTO, MST_ENOMEM. */
int mst__prefix_strip(const struct mst_store *store,
                      struct mst__answer *result,
                      struct mst_keys *ret_keys,
                      struct mst_err *reterr);

#define MST_KEY_TEXT_SIZE 64

/* @key for a message: in quotes, unusual bytes escaped, cut off when long. Returns @ret_text. */
const char *mst__key_text(struct mst_bytes key, char ret_text[MST_KEY_TEXT_SIZE]);

#endif /* MST_STORE_STORE_H */
