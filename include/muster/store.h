/* muster/store.h - a shared key-value store, with the calls of PyTorch's c10d stores.
 *
 * Keys and values are any bytes. Every call has a timeout in milliseconds that bounds all of it:
 * connecting, retrying, waiting. A store may be used from several threads at once; a thread that
 * waits for a key does not hold up the others. Text and bytes that are passed are borrowed for the
 * call; a buffer that is returned is the caller's, to be released with mst_buffer_free. In a child
 * process after fork every call on a store of the parent returns MST_EINVAL; open another one
 * there. mst_store_close releases the handle's memory in the child, and what the parent uses is as
 * it was.
 *
 * Errors common to all calls: MST_EINVAL, MST_ENOMEM, MST_ELIMIT (a key, value or reply beyond a
 * limit), MST_ETIMEOUT, MST_ECONN (nothing was done), MST_EUNKNOWN (the connection was lost, or the
 * time was over, after a write was sent: it may or may not have been done), MST_ESYS, MST_EPROTO,
 * MST_ENOTSUP (this store, or the server behind it, lacks the operation), MST_EAUTH (an etcd that
 * does not know or trust us), MST_ECANCELED (see mst_store_interrupt). A set that ends in
 * MST_ETIMEOUT or MST_ECANCELED may still be done. On error no output has been written and the
 * store can be used on; only after MST_ECLOSED (see below) it cannot. */
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
    /** Keys are as the server or the file has them. Else, as with PyTorch's stores, a `/` goes in
     * front of each: what PyTorch keeps for itself has none. Stores in an etcd and `hash:` have no
     * such slash. */
    bool bare_keys;
};

/** Fill @options, which the caller has @size bytes of, with the defaults: call it with
 * `sizeof options`. From any thread; it cannot fail. */
MST_API void mst_store_options_init(struct mst_store_options *options, size_t size);

/**
 * Open a store: `tcp://host:port` (ours or PyTorch's server), `tcp://[::1]:29500`,
 * `unix:///path` (our server), `file:///path` (shared by processes on one file system), `hash:`
 * (inside this process). An URL may end in `/prefix` for tcp, `?prefix=…` for all: then every key
 * is put under that prefix, as with mst_store_prefix.
 *
 * In an etcd: `etcd2://host:port/directory` (its v2 API, one directory, as torch's EtcdStore on
 * that prefix) and `etcd3://host:port/root` (its v3 API, keys below the root). Several endpoints
 * of one cluster have commas between them. Parameters, with `?` first and `&` between them:
 * `prefix`; `tls=1`, `cacert`, `cert`, `key` (also spelled `ca_cert`, `ssl_cert`, `ssl_cert_key`)
 * and `server_name` for TLS; `user` and `password_file`, without which the password is that of the
 * environment variable MUSTER_ETCD_PASSWORD; `lease=SECONDS` of etcd3, rounded up: all keys are on
 * one lease, which all stores on that root keep alive from a thread of their own, so that the keys
 * go when the last of them has been gone for so long. When that lease is lost, with all keys,
 * every call ends in MST_ECLOSED. Without the meson feature `etcd` they are MST_ENOTSUP.
 *
 * A tcp store connects here, trying all addresses of the name again and again until @timeout_ms is
 * over, and so does a store in an etcd. @options may be NULL. The caller releases @ret_store with
 * mst_store_close.
 *
 * Returns 0, MST_EINVAL for an URL that makes no sense, MST_ERESOLVE, or a common error.
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

/** Another handle on the same keys. Over tcp it has connections of its own, of which the first is
 * made with its first call; other stores share what is behind them. Either may be closed first.
 * Returns as mst_store_prefix. */
MST_API int mst_store_clone(struct mst_store *store,
                            struct mst_store **ret_store,
                            struct mst_err *reterr);

/** Where @store is, as mst_store_open takes it, but without prefix, password and lease:
 * "tcp://node0:29400". That of a `hash:` store names no particular one. Valid as long as @store;
 * from any thread, also in a forked child. */
MST_API const char *mst_store_url(const struct mst_store *store);

/** The prefix of @store: "a/b" when `b` was put on top of `a`. NULL data = it has none, which is
 * not the same as an empty one. With URL and prefix another client finds the same keys, for example
 * PyTorch's: PrefixStore(prefix, TCPStore(host, port, is_master=False)). As valid as the URL. */
MST_API struct mst_bytes mst_store_key_prefix(const struct mst_store *store);

/**
 * End the calls that wait now on this handle, not on others of the same store: they return
 * MST_ECANCELED, or MST_EUNKNOWN when a write was sent and not yet answered. If none waits, the
 * next call that would wait ends so, before it has done anything; a call on a server or an etcd
 * always waits. Either way that is all: the calls after it work as before. mst_store_open cannot be
 * interrupted.
 *
 * From any thread, and from a signal handler: it is async-signal-safe and cannot fail. Not while
 * @store is being closed.
 */
MST_API void mst_store_interrupt(struct mst_store *store);

/** Release the handle. No call on it is under way. NULL is fine. */
MST_API void mst_store_close(struct mst_store *store);

/** Set @key. When this returns 0 the server has it. */
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

/** Add @delta to the decimal number under @key, which counts as 0 when absent. MST_ETYPE when it
 * is no number. */
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
 * @ret_value (may be NULL) is the value of the key afterwards, empty when absent. A key that has
 * @desired already counts as DONE, whatever was expected: the protocol answers both alike. For the
 * same reason, when @expected equals @desired a tcp store cannot tell DONE from ABSENT and says
 * DONE. Where it matters who has set a key, let everybody set a value of his own. */
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

/** How many keys the whole store has, whatever the prefix. */
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

/** Set all of @keys to @values: in a file and, up to 128 keys and 1 MiB, in etcd3 at once, so that
 * nobody sees some of them only. */
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
    struct mst_buffer memory; /* what the keys point into */
};

/** Release what @keys holds and empty it. A zeroed list is fine. */
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

/** Take the front of the queue @key. With @block wait for one until the timeout, else
 * MST_ENOTFOUND when it is empty. */
MST_API int mst_store_queue_pop(struct mst_store *store,
                                struct mst_bytes key,
                                bool block,
                                int64_t timeout_ms,
                                struct mst_buffer *ret_value,
                                struct mst_err *reterr);

/** How many values the queue @key has; 0 when there is none. */
MST_API int mst_store_queue_len(struct mst_store *store,
                                struct mst_bytes key,
                                int64_t timeout_ms,
                                int64_t *ret_count,
                                struct mst_err *reterr);

/** Wait until @size participants have come to the barrier @key. A key serves one barrier. On a
 * muster server a participant whose call ends before it is complete does not count; with PyTorch's
 * servers, in a file and under a prefix, where barriers are made of keys as PyTorch makes them, it
 * does. */
MST_API int mst_store_barrier(struct mst_store *store,
                              struct mst_bytes key,
                              int64_t size,
                              int64_t timeout_ms,
                              struct mst_err *reterr);

/** What a store handle has been through, for diagnosis. */
struct mst_store_stats {
    size_t size;       /* sizeof(struct mst_store_stats), see mst_store_stats_init */
    uint64_t connects; /* connections made */
    uint64_t retries;  /* requests sent again after a lost connection */
    char peer[128];    /* whom a tcp store last talked to: "tcp://127.0.0.1:29500" */
    char dialect[8];   /* of that peer: "A", "B" or "C"; empty for other stores */
};

/** Empty @stats and note in it that the caller has @size bytes: `sizeof stats`.
 * From any thread; it cannot fail. */
MST_API void mst_store_stats_init(struct mst_store_stats *stats, size_t size);

/** What @store has been through until now. Returns 0, or MST_EINVAL for a size that makes no
 * sense. */
MST_API int mst_store_get_stats(const struct mst_store *store, struct mst_store_stats *ret_stats);

#ifdef __cplusplus
}
#endif
#endif /* MST_STORE_H */
