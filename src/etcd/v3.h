/* etcd/v3.h - the v3 API of etcd through its JSON gateway: ranges, transactions, leases, watches.
 *
 * Calls may come from several threads. A write whose outcome is unknown is never sent again
 * (MST_EUNKNOWN): the caller reads and decides. */
#ifndef MST_ETCD_V3_H
#define MST_ETCD_V3_H

#include "etcd/http.h"

struct mst__v3;

/* The options' user and password are v3's here: a token is asked for, and renewed when it has
 * expired. The path (/v3, /v3beta, /v3alpha) is found out by trying. */
int mst__v3_new(const struct mst__http_options *options,
                struct mst__v3 **ret_v3,
                struct mst_err *reterr);
void mst__v3_free(struct mst__v3 *v3);
const char *mst__v3_where(const struct mst__v3 *v3);

/* How many requests were sent, watches included. */
uint64_t mst__v3_requests(const struct mst__v3 *v3);

struct mst__v3_kv {
    struct mst_buffer key;
    struct mst_buffer value;
    int64_t create_revision;
    int64_t mod_revision;
    int64_t version;
    int64_t lease;
};

struct mst__v3_kvs {
    struct mst__v3_kv *items;
    size_t count;
    bool is_more; /* the limit was reached */
};

/* The end of a range */
enum mst__v3_span {
    MST_V3_KEY,    /* this key alone */
    MST_V3_PREFIX, /* all that begin with it; with an empty one all there are */
};

enum mst__v3_sort { MST_V3_UNSORTED, MST_V3_OLDEST_FIRST, MST_V3_NEWEST_FIRST, MST_V3_BY_KEY };

struct mst__v3_range {
    struct mst_bytes key;
    enum mst__v3_span span;
    int64_t limit;               /* 0 = none */
    enum mst__v3_sort sort;      /* by creation */
    int64_t create_revision_max; /* 0 = any */
    bool is_keys_only;
    bool is_serializable; /* may be stale, and works without a quorum */
};

struct mst__v3_put {
    struct mst_bytes key;
    struct mst_bytes value;
    int64_t lease; /* 0 = none */
};

struct mst__v3_delete {
    struct mst_bytes key;
    enum mst__v3_span span;
};

enum mst__v3_target { MST_V3_VERSION, MST_V3_CREATE, MST_V3_MOD, MST_V3_VALUE, MST_V3_LEASE };
enum mst__v3_relation { MST_V3_EQUAL, MST_V3_GREATER, MST_V3_LESS, MST_V3_NOT_EQUAL };

struct mst__v3_compare {
    struct mst_bytes key;
    enum mst__v3_span span; /* with a prefix all of them must fulfil it */
    enum mst__v3_target target;
    enum mst__v3_relation relation;
    int64_t number;         /* with all targets but VALUE */
    struct mst_bytes value; /* with VALUE */
};

enum mst__v3_op_kind { MST_V3_OP_RANGE, MST_V3_OP_PUT, MST_V3_OP_DELETE };

struct mst__v3_op {
    enum mst__v3_op_kind kind;
    union {
        struct mst__v3_range range;
        struct mst__v3_put put;
        struct mst__v3_delete del;
    } u;
};

/* etcd's default limit on each of the three lists of a transaction. */
#define MST_V3_TXN_MAX 128

struct mst__v3_txn {
    const struct mst__v3_compare *compares;
    size_t compare_count;
    const struct mst__v3_op *success;
    size_t success_count;
    const struct mst__v3_op *failure;
    size_t failure_count;
};

struct mst__v3_result {
    int64_t revision; /* of the header */
    bool succeeded;   /* of a transaction */
    /* One for each operation of the branch that was taken: what a range found, empty for others. A
     * plain range has one. */
    struct mst__v3_kvs *ranges;
    size_t range_count;
    int64_t deleted; /* keys, in all */
};

void mst__v3_result_init(struct mst__v3_result *result);
void mst__v3_result_close(struct mst__v3_result *result);

/**
 * Common to all calls: 0; MST_ECONN, MST_ETIMEOUT, MST_ECANCELED; MST_EUNKNOWN (a write may have
 * been executed); MST_EAUTH; MST_ENOTFOUND (no such lease); MST_ENOTSUP (no JSON gateway here);
 * MST_EINVAL (etcd refuses the request), MST_EPROTO, MST_ELIMIT, MST_ENOMEM. @result is initialised
 * by the caller and emptied first. Reads are repeated with other endpoints until the deadline when
 * one has no leader or is lost; so are writes that the endpoint refused for want of a leader before
 * it did anything.
 */
int mst__v3_range(struct mst__v3 *v3,
                  const struct mst__v3_range *range,
                  struct mst__until until,
                  struct mst__v3_result *result,
                  struct mst_err *reterr);
int mst__v3_put(struct mst__v3 *v3,
                const struct mst__v3_put *put,
                struct mst__until until,
                struct mst__v3_result *result,
                struct mst_err *reterr);
int mst__v3_delete(struct mst__v3 *v3,
                   const struct mst__v3_delete *del,
                   struct mst__until until,
                   struct mst__v3_result *result,
                   struct mst_err *reterr);
/* A transaction without puts and deletes counts as a read. */
int mst__v3_txn(struct mst__v3 *v3,
                const struct mst__v3_txn *txn,
                struct mst__until until,
                struct mst__v3_result *result,
                struct mst_err *reterr);

/* --- leases --- */

/* @lease: in the wanted id, or 0; out the id. The granted TTL may be longer than asked for. Without
 * an id it may be sent again: a lease that was granted in vain expires. */
int mst__v3_lease_grant(struct mst__v3 *v3,
                        int64_t ttl_s,
                        struct mst__until until,
                        int64_t *lease,
                        int64_t *ret_ttl_s,
                        struct mst_err *reterr);
/* Each: MST_ENOTFOUND when the lease is gone. */
int mst__v3_lease_keep_alive(struct mst__v3 *v3,
                             int64_t lease,
                             struct mst__until until,
                             int64_t *ret_ttl_s,
                             struct mst_err *reterr);
int mst__v3_lease_revoke(struct mst__v3 *v3,
                         int64_t lease,
                         struct mst__until until,
                         struct mst_err *reterr);
int mst__v3_lease_time_to_live(struct mst__v3 *v3,
                               int64_t lease,
                               struct mst__until until,
                               int64_t *ret_ttl_s,
                               struct mst_err *reterr);

/* --- watching --- */

struct mst__v3_watch;

struct mst__v3_event {
    bool is_delete; /* then kv holds key and mod_revision only */
    struct mst__v3_kv kv;
};

struct mst__v3_events {
    struct mst__v3_event *items;
    size_t count;
    int64_t revision; /* at which they happened */
};

void mst__v3_events_close(struct mst__v3_events *events);

/* Several ranges may be watched in one stream. */
struct mst__v3_watched {
    struct mst_bytes key;
    enum mst__v3_span span;
    bool is_without_puts;
};

/**
 * Watch from revision @from (the next one to be seen; 0 = from now on, which is when it is first
 * read); the keys are copied. Connects when first read, and again whenever the stream ends, its
 * endpoint has no leader or does not answer any more: nothing is missed, and nothing seen twice.
 * One thread at a time reads it; it is closed before @v3 is freed.
 *
 * Returns 0, MST_EINVAL (no range or too many, an empty key), MST_ENOMEM.
 */
int mst__v3_watch_new(struct mst__v3 *v3,
                      const struct mst__v3_watched *watched,
                      size_t count,
                      int64_t from,
                      struct mst__v3_watch **ret_watch,
                      struct mst_err *reterr);

/**
 * Wait for events, at least one. They are those of one revision; with several ranges those of one
 * revision may come in several pieces, one for each range, and one range may be ahead of another.
 * An event that is in several ranges is told once. The caller closes @ret_events.
 *
 * Returns 0; MST_ETIMEOUT, MST_ECANCELED; MST_ESTATE when the revision was compacted away: the
 * caller reads the keys and makes a new watch from there; MST_ECONN when no endpoint could be
 * reached until the deadline; MST_EAUTH, MST_ENOTSUP, MST_EPROTO, MST_ELIMIT, MST_ENOMEM. After all
 * but MST_ESTATE it can be read on.
 */
int mst__v3_watch_next(struct mst__v3_watch *watch,
                       struct mst__until until,
                       struct mst__v3_events *ret_events,
                       struct mst_err *reterr);
/* NULL is fine. */
void mst__v3_watch_close(struct mst__v3_watch *watch);

/* --- the server --- */

struct mst__v3_status {
    char version[32];
    uint64_t leader; /* member id; 0 = none */
    uint64_t member;
    int64_t db_size;
};

int mst__v3_status(struct mst__v3 *v3,
                   struct mst__until until,
                   struct mst__v3_status *ret_status,
                   struct mst_err *reterr);

/* For maintenance and tests. */
int mst__v3_compact(struct mst__v3 *v3,
                    int64_t revision,
                    struct mst__until until,
                    struct mst_err *reterr);

#endif /* MST_ETCD_V3_H */
