/* etcd/v3.h - the v3 API of etcd through its JSON gateway: ranges, transactions, leases, watches.
 *
 * Several threads may call at once. A write whose result is unknown is never repeated
 * (MST_EUNKNOWN): the caller reads and decides. */
#ifndef MST_ETCD_V3_H
#define MST_ETCD_V3_H

#include "etcd/http.h"

struct mst__v3;

/* User and password of the options are those of v3: the client requests a token, and renews it when
 * it has expired. It finds the path (/v3, /v3beta, /v3alpha) by trying. */
int mst__v3_new(const struct mst__http_options *options,
                struct mst__v3 **ret_v3,
                struct mst_err *reterr);
void mst__v3_free(struct mst__v3 *v3);
const char *mst__v3_where(const struct mst__v3 *v3);
size_t mst__v3_current(const struct mst__v3 *v3); /* see mst__http_current */

/* The number of requests sent, including watches. */
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
    bool is_more; /* there are more */
};

/* The end of a range */
enum mst__v3_span {
    MST_V3_KEY,    /* only this key */
    MST_V3_PREFIX, /* all keys that begin with it; all keys if it is empty */
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
    enum mst__v3_span span; /* with a prefix, all keys must satisfy it */
    enum mst__v3_target target;
    enum mst__v3_relation relation;
    int64_t number;         /* for all targets except VALUE */
    struct mst_bytes value; /* for VALUE */
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
    /* One for each operation of the executed branch: the result of a range, empty for others. A
     * plain range has one. */
    struct mst__v3_kvs *ranges;
    size_t range_count;
    int64_t deleted; /* number of keys */
};

void mst__v3_result_init(struct mst__v3_result *result);
void mst__v3_result_close(struct mst__v3_result *result);

/**
 * Common to all calls: 0; MST_ECONN, MST_ETIMEOUT, MST_ECANCELED; MST_EUNKNOWN (a write may have
 * been executed); MST_EAUTH; MST_ENOTFOUND (no such lease); MST_ENOTSUP (no JSON gateway);
 * MST_EINVAL (etcd refuses the request), MST_EPROTO, MST_ELIMIT, MST_ENOMEM. The caller initialises
 * @result; the call empties it first. If an endpoint has no leader or is lost, reads are repeated
 * with others until the deadline; so are writes that an endpoint refused at once for lack of a
 * leader.
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

/* @lease: in the wanted id, or 0; out the id. The granted TTL may be longer than requested. Without
 * an id the request may be repeated: an unused lease expires. */
int mst__v3_lease_grant(struct mst__v3 *v3,
                        int64_t ttl_s,
                        struct mst__until until,
                        int64_t *lease,
                        int64_t *ret_ttl_s,
                        struct mst_err *reterr);
/* Each returns MST_ENOTFOUND if the lease is gone. */
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
    bool is_delete; /* kv has only key and mod_revision then */
    struct mst__v3_kv kv;
};

struct mst__v3_events {
    struct mst__v3_event *items;
    size_t count;
    int64_t revision; /* the revision of the events */
};

void mst__v3_events_close(struct mst__v3_events *events);

/* A range; one stream may watch several. */
struct mst__v3_watched {
    struct mst_bytes key;
    enum mst__v3_span span;
    bool is_without_puts;
};

/**
 * Watch from revision @from, which is included (0 = from now on, which is the first read); the keys
 * are copied. It connects at the first read, and again whenever the stream ends or its endpoint has
 * no leader or does not answer: no event is missed, and none is seen twice. One thread at a time
 * reads it; close it before freeing @v3.
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
 * Wait for events, at least one. They belong to one revision. With several ranges, the events of
 * one revision may come in several pieces, one for each range, and one range may be ahead of
 * another. An event in several ranges is reported once. The caller closes @ret_events.
 *
 * Returns 0; MST_ETIMEOUT, MST_ECANCELED; MST_ESTATE if the revision was compacted: read the keys
 * and make a new watch from there; MST_ECONN if no endpoint could be reached before the deadline;
 * MST_EAUTH, MST_ENOTSUP, MST_EPROTO, MST_ELIMIT, MST_ENOMEM. The watch stays usable after all
 * errors except MST_ESTATE.
 */
int mst__v3_watch_next(struct mst__v3_watch *watch,
                       struct mst__until until,
                       struct mst__v3_events *ret_events,
                       struct mst_err *reterr);
/* NULL is allowed. */
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
