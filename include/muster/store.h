/* muster/store.h - a shared key-value store, with the calls of PyTorch's c10d stores.
 *
 * Keys and values are arbitrary bytes. The timeout of a call, in milliseconds, limits the whole
 * call: connecting, retrying, waiting. Arguments are borrowed for the call. The caller releases
 * returned buffers with mst_buffer_free.
 *
 * Threads: a store may be used from several threads at once; a thread that waits for a key does not
 * delay the others, however many wait. After fork, every call on a parent's store returns
 * MST_EINVAL in the child, except mst_store_close, which releases its memory and does not affect
 * the parent. The child has no descriptor of the store: they are closed at the fork.
 *
 * Errors common to all calls: MST_EINVAL, MST_ENOMEM, MST_ELIMIT (a key, value or reply exceeds a
 * limit), MST_ETIMEOUT, MST_ECONN (nothing was done), MST_EUNKNOWN (connection lost or timeout
 * after a write was sent: it may or may not have been done), MST_ESYS, MST_EPROTO, MST_ENOTSUP (the
 * store or its server lacks the operation), MST_EAUTH (refused by etcd), MST_ECANCELED (see
 * mst_store_interrupt), MST_ECLOSED (the keys are gone for ever, see below). A set that fails with
 * MST_ETIMEOUT or MST_ECANCELED may still be done. On error no output is written. The store remains
 * usable, except after MST_ECLOSED.
 *
 * The keys of a muster server end with it. The store of a round of backend `muster` notices: after
 * a restart of the server, all its calls fail with MST_ECLOSED. A store opened by URL does not: its
 * calls continue with the keys of whichever server answers. */
#ifndef MST_STORE_H
#define MST_STORE_H

#include <muster/error.h>
#include <muster/log.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mst_store; /* opaque */

struct mst_store_options {
    size_t size; /* sizeof(struct mst_store_options), see mst_store_options_init */
    size_t key_size_max;
    size_t value_size_max;
    struct mst_log log;
    /** Use keys exactly as the server or the file stores them. Otherwise each is prefixed with `/`,
     * as in PyTorch's stores; PyTorch's internal keys have none. No effect on etcd and `hash:`. */
    bool bare_keys;
};

/** Fill @options with the defaults. @size is `sizeof *options`. Thread-safe; cannot fail. */
MST_API void mst_store_options_init(struct mst_store_options *options, size_t size);

/**
 * Open a store: `tcp://host:port` (ours or PyTorch's server), `tcp://[::1]:29500`,
 * `unix:///path` (our server), `file:///path` (shared by processes on one file system), `hash:`
 * (inside this process). `/prefix` at the end of a tcp URL, or `?prefix=…` of any, puts every key
 * under that prefix, as mst_store_prefix does.
 *
 * In an etcd: `etcd2://host:port/directory` (its v2 API, one directory, as torch's EtcdStore on
 * that prefix) and `etcd3://host:port/root` (its v3 API, keys below the root). Several endpoints
 * of one cluster have commas between them. Parameters, with `?` first and `&` between them:
 * `prefix`; `tls=1`, `cacert`, `cert`, `key` (also spelled `ca_cert`, `ssl_cert`, `ssl_cert_key`)
 * and `server_name` for TLS; `user` and `password_file`, without which the password is that of the
 * environment variable MUSTER_ETCD_PASSWORD; `lease=SECONDS` of etcd3, rounded up: all keys share a
 * lease that the stores on that root keep alive, each with a thread. The keys expire this long
 * after the last store is gone. If the lease is lost, and all keys with it, every call fails with
 * MST_ECLOSED. MST_ENOTSUP if muster was built without etcd.
 *
 * Stores over tcp and in an etcd connect here; all addresses of the name are tried until the
 * timeout. @options may be NULL. The caller releases @ret_store with mst_store_close.
 *
 * Returns 0, MST_EINVAL for an invalid URL, MST_ERESOLVE, or a common error.
 */
MST_API int mst_store_open(const char *url,
                           const struct mst_store_options *options,
                           int64_t timeout_ms,
                           struct mst_store **ret_store,
                           struct mst_err *reterr);

/** A view of @store in which key `k` stands for `prefix/k`, as PyTorch's PrefixStore. It shares
 * @store's connections, and either may be closed first. Returns 0, MST_ENOMEM, MST_ELIMIT or
 * MST_EINVAL (in a forked child). */
MST_API int mst_store_prefix(struct mst_store *store,
                             struct mst_bytes prefix,
                             struct mst_store **ret_store,
                             struct mst_err *reterr);

/** Another handle on the same keys. Over tcp it opens its own connections, the first with its first
 * call; handles of other stores share their resources. Either may be closed first.
 * Returns as mst_store_prefix. */
MST_API int mst_store_clone(struct mst_store *store,
                            struct mst_store **ret_store,
                            struct mst_err *reterr);

/** The URL of @store without prefix, password and lease, such as "tcp://node0:29400". The URL of a
 * `hash:` store does not identify it. Valid as long as @store. Thread-safe, also after fork. */
MST_API const char *mst_store_url(const struct mst_store *store);

/** The prefix of @store: "a/b" for prefix `b` on top of `a`. NULL data = no prefix, which differs
 * from an empty one. Another client finds the same keys by URL and prefix, for example PyTorch's:
 * PrefixStore(prefix, TCPStore(host, port, is_master=False)). Valid as long as @store. */
MST_API struct mst_bytes mst_store_key_prefix(const struct mst_store *store);

/**
 * End the calls that are waiting on this handle; other handles of the store are not affected. The
 * calls return MST_ECANCELED, or MST_EUNKNOWN if a write was sent and not yet answered. If no call
 * is waiting, the next one that would wait returns MST_ECANCELED instead and does nothing; every
 * call to a server or an etcd waits. Later calls work as before. mst_store_open cannot be
 * interrupted.
 *
 * Thread-safe and async-signal-safe; cannot fail. Must not be called while @store is being closed.
 */
MST_API void mst_store_interrupt(struct mst_store *store);

/** Release the handle. No other call on it may be under way. @store may be NULL. */
MST_API void mst_store_close(struct mst_store *store);

/** Set @key. On success the server has stored it. */
MST_API int mst_store_set(struct mst_store *store,
                          struct mst_bytes key,
                          struct mst_bytes value,
                          int64_t timeout_ms,
                          struct mst_err *reterr);

/** Wait until @key exists and get its value. */
MST_API int mst_store_get(struct mst_store *store,
                          struct mst_bytes key,
                          int64_t timeout_ms,
                          struct mst_buffer *ret_value,
                          struct mst_err *reterr);

/** Get the value of @key if it exists now, else MST_ENOTFOUND. */
MST_API int mst_store_try_get(struct mst_store *store,
                              struct mst_bytes key,
                              int64_t timeout_ms,
                              struct mst_buffer *ret_value,
                              struct mst_err *reterr);

/** Add @delta to the decimal number under @key; an absent key counts as 0. MST_ETYPE if the value
 * is not a number. */
MST_API int mst_store_add(struct mst_store *store,
                          struct mst_bytes key,
                          int64_t delta,
                          int64_t timeout_ms,
                          int64_t *ret_sum,
                          struct mst_err *reterr);

/** Whether all of @keys exist. */
MST_API int mst_store_check(struct mst_store *store,
                            const struct mst_bytes *keys,
                            size_t keys_count,
                            int64_t timeout_ms,
                            bool *ret_exist,
                            struct mst_err *reterr);

/** Wait until all of @keys exist. */
MST_API int mst_store_wait(struct mst_store *store,
                           const struct mst_bytes *keys,
                           size_t keys_count,
                           int64_t timeout_ms,
                           struct mst_err *reterr);

enum mst_compare_set {
    MST_COMPARE_SET_DONE,    /* the key had the expected value, or an empty one was expected and
                                there was no key: it has the desired one now */
    MST_COMPARE_SET_DIFFERS, /* the key has another value, which is returned */
    MST_COMPARE_SET_ABSENT,  /* there is no key and a value was expected */
};

/** Set @key to @desired if its value is @expected; an empty @expected also stands for "absent".
 * @ret_value (may be NULL) is the value of the key afterwards, empty if absent. A key that already
 * has @desired counts as DONE, whatever was expected, because the protocol does not distinguish the
 * two. For the same reason, if @expected equals @desired, a tcp store reports DONE for ABSENT. To
 * learn which client has set a key, let each one use a different value. */
MST_API int mst_store_compare_set(struct mst_store *store,
                                  struct mst_bytes key,
                                  struct mst_bytes expected,
                                  struct mst_bytes desired,
                                  int64_t timeout_ms,
                                  enum mst_compare_set *ret_outcome,
                                  struct mst_buffer *ret_value,
                                  struct mst_err *reterr);

/** Delete @key; @ret_existed (may be NULL) tells whether it was there. */
MST_API int mst_store_delete(struct mst_store *store,
                             struct mst_bytes key,
                             int64_t timeout_ms,
                             bool *ret_existed,
                             struct mst_err *reterr);

/** The number of keys in the whole store, regardless of the prefix. */
MST_API int mst_store_num_keys(struct mst_store *store,
                               int64_t timeout_ms,
                               int64_t *ret_count,
                               struct mst_err *reterr);

/** Append to the value of @key, which counts as empty when absent. */
MST_API int mst_store_append(struct mst_store *store,
                             struct mst_bytes key,
                             struct mst_bytes value,
                             int64_t timeout_ms,
                             struct mst_err *reterr);

/** Wait until all of @keys exist and get their values, in order, into @ret_values, an array of
 * @keys_count buffers which the caller releases one by one. */
MST_API int mst_store_multi_get(struct mst_store *store,
                                const struct mst_bytes *keys,
                                size_t keys_count,
                                int64_t timeout_ms,
                                struct mst_buffer *ret_values,
                                struct mst_err *reterr);

/** Set all of @keys to @values. Atomic in a file, and in etcd3 up to 128 keys and 1 MiB. */
MST_API int mst_store_multi_set(struct mst_store *store,
                                const struct mst_bytes *keys,
                                const struct mst_bytes *values,
                                size_t keys_count,
                                int64_t timeout_ms,
                                struct mst_err *reterr);

/** A list of keys, released with mst_keys_free. */
struct mst_keys {
    struct mst_bytes *keys;
    size_t count;
    struct mst_buffer memory; /* the memory of the keys */
};

/** Release the memory of @keys (may be NULL) and empty it. A zeroed list is allowed. */
MST_API void mst_keys_free(struct mst_keys *keys);

/** All keys under the store's prefix, without it, in no particular order. */
MST_API int mst_store_list(struct mst_store *store,
                           int64_t timeout_ms,
                           struct mst_keys *ret_keys,
                           struct mst_err *reterr);

/** Put @value at the end of the queue @key. */
MST_API int mst_store_queue_push(struct mst_store *store,
                                 struct mst_bytes key,
                                 struct mst_bytes value,
                                 int64_t timeout_ms,
                                 struct mst_err *reterr);

/** Take the first value of the queue @key. If it is empty: with @block, wait until the timeout,
 * else MST_ENOTFOUND. */
MST_API int mst_store_queue_pop(struct mst_store *store,
                                struct mst_bytes key,
                                bool block,
                                int64_t timeout_ms,
                                struct mst_buffer *ret_value,
                                struct mst_err *reterr);

/** The number of values in the queue @key; 0 if it does not exist. */
MST_API int mst_store_queue_len(struct mst_store *store,
                                struct mst_bytes key,
                                int64_t timeout_ms,
                                int64_t *ret_count,
                                struct mst_err *reterr);

/** Wait until @size participants have reached the barrier @key. After that the next @size of them
 * can use it again. @size must be the same for all.
 *
 * Each call is one participant, also if several threads call at once on one handle. A call that
 * fails leaves the barrier: it does not count, however often it is repeated, unless the barrier was
 * complete before; then the call succeeds. Leaving takes up to a second beyond the timeout. After
 * MST_EUNKNOWN the participant may still count, or the barrier may be complete; the next call for
 * @key on the same handle then continues the failed one. At a muster server that next call is a new
 * participant, because the server forgets those whose connection ends. There a participant that is
 * killed does not count either. It does in a file, in an etcd and with servers of PyTorch and of
 * muster 0.2, where a barrier consists of keys under @key, see docs/protocol.md.
 *
 * MST_ETYPE if one of these keys has another value; MST_ELIMIT if 64 failed barriers of the handle
 * may still count it. */
MST_API int mst_store_barrier(struct mst_store *store,
                              struct mst_bytes key,
                              int64_t size,
                              int64_t timeout_ms,
                              struct mst_err *reterr);

/** Counters of a store handle, for diagnosis. */
struct mst_store_stats {
    size_t size;       /* sizeof(struct mst_store_stats), see mst_store_stats_init */
    uint64_t connects; /* connections made */
    uint64_t retries;  /* requests sent again after a lost connection */
    char peer[128];    /* the last peer of a tcp store: "tcp://127.0.0.1:29500" */
    char dialect[8];   /* of that peer: "A", "B" or "C"; empty for other stores */
};

/** Clear @stats and set its size. @size is `sizeof *stats`. Thread-safe; cannot fail. */
MST_API void mst_store_stats_init(struct mst_store_stats *stats, size_t size);

/** The counters of @store. Returns 0, or MST_EINVAL for an invalid size. */
MST_API int mst_store_get_stats(const struct mst_store *store, struct mst_store_stats *ret_stats);

#ifdef __cplusplus
}
#endif
#endif /* MST_STORE_H */
