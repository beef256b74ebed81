/* store/etcd3.c - a store in the v3 API of an etcd.
 *
 * Layout. With the root "/jobs/7" key k is "/jobs/7/k", with the value unchanged: one key per
 * entry, visible to etcdctl. Beside the entries, and not among them, are
 *
 *   /jobs/7!lease       the number of the lease of all keys, if one was requested
 *   /jobs/7!by/<store>  the number of the last conditional write of a store; removed at its close
 *
 * Changes that depend on the current value are transactions on the revision of the value that was
 * read, and each also puts its own number under the store's `!by` key. If the answer is lost, that
 * key and its history show whether the transaction was executed, whatever has become of the value
 * since. So such changes are executed exactly once; the result is unknown only if the history was
 * compacted in the meantime. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/siphash.h"
#include "etcd/v3.h"
#include "store/etcd.h"
#include "store/etcd3_lease.h"

/* Keys and values of one transaction. etcd's limit is 1.5 MiB, before base64. */
#define BATCH_SIZE_MAX MST_MIB(1)

/* Missing keys that are watched at the same time. */
#define WATCHED_MAX 64

/* How often a waiting call checks whether the lease is lost. */
#define LEASE_CHECK_MS 500

/* How long closing a store may take to clean up. */
#define CLOSE_MS 1000

struct etcd3 {
    struct mst__storage storage; /* first: the storage is cast to this struct */
    struct mst__v3 *v3;
    char *root;                     /* "/" or "/a/b/" */
    char *by;                       /* "/a/b!by/0123456789abcdef" */
    char *lease_key;                /* "/a/b!lease" */
    struct mst__etcd3_lease *lease; /* NULL = none was requested */
    atomic_uint_fast64_t changes;   /* numbers for conditional writes */
    atomic_uint_fast64_t retries;
};

/* One call of the store. */
struct call {
    struct etcd3 *etcd3;
    const struct mst__command *command;
    struct mst__etcd_attempts attempts;
    struct mst__buf names; /* names of the current keys, one after the other */
    struct mst__v3_result result;
    struct mst_err *reterr;
};

/* --- names --- */

/* Append the name of @key and return it; valid until the next one. */
static int call_name(struct call *call, struct mst_bytes key, struct mst_bytes *ret_name)
{
    size_t before = mst__buf_size(&call->names);
    int rv = mst__buf_append(&call->names, mst_bytes_str(call->etcd3->root));
    if (rv == 0) {
        rv = mst__buf_append(&call->names, key);
    }
    if (rv != 0) {
        return mst__etcd_fail(rv, call->reterr);
    }
    *ret_name = mst__bytes_skip(mst__buf_bytes(&call->names), before);
    return 0;
}

static int call_only_name(struct call *call, struct mst_bytes *ret_name)
{
    mst__buf_clear(&call->names);
    return call_name(call, call->command->key, ret_name);
}

/* Reserve room for the names of the next @count of @items (keys, or keys and values in turn), so
 * that the names returned by call_name stay valid. */
static int call_reserve(struct call *call, struct mst_bytes items, size_t count, bool has_values)
{
    size_t size = 1;
    struct mst_bytes key;
    struct mst_bytes value;
    for (size_t i = 0; i < count && mst__items_next(&items, &key); i++) {
        size += strlen(call->etcd3->root) + key.size;
        if (has_values) {
            (void)mst__items_next(&items, &value); /* they come in pairs */
        }
    }
    int rv = 0;
    mst__buf_clear(&call->names);
    return mst__buf_reserve(&call->names, size, &rv) != NULL ? 0 : mst__etcd_fail(rv, call->reterr);
}

/* --- requests --- */

static int64_t lease_id(const struct etcd3 *etcd3)
{
    return etcd3->lease == NULL ? 0 : mst__etcd3_lease_id(etcd3->lease);
}

/* An error of etcd, in terms of the store. */
static int call_refused(struct call *call, int rv, size_t size)
{
    struct etcd3 *etcd3 = call->etcd3;
    if (rv == MST_ENOTFOUND && etcd3->lease != NULL) {
        mst__etcd3_lease_lost(etcd3->lease);
        return mst__etcd3_lease_check(etcd3->lease, call->reterr);
    }
    if ((rv == MST_EINVAL || rv == MST_ELIMIT) && size > BATCH_SIZE_MAX) {
        return mst__fail(call->reterr, MST_ELIMIT, 0,
                         "%zu bytes exceed the limit of %s, which is 1.5 MiB unless its "
                         "--max-request-bytes is set",
                         size, mst__v3_where(etcd3->v3));
    }
    return rv;
}

/* A read-only transaction, repeated until a server answers. */
static int call_read(struct call *call, const struct mst__v3_txn *txn)
{
    int rv;
    do {
        rv = mst__v3_txn(call->etcd3->v3, txn, call->attempts.until, &call->result, call->reterr);
    } while (mst__etcd_again(&call->attempts, rv, call->reterr));
    return rv == 0 ? 0 : mst__etcd_read_failed(&call->attempts, rv, call->reterr);
}

static int call_range(struct call *call, const struct mst__v3_range *range)
{
    int rv;
    do {
        rv = mst__v3_range(call->etcd3->v3, range, call->attempts.until, &call->result,
                           call->reterr);
    } while (mst__etcd_again(&call->attempts, rv, call->reterr));
    if (rv == 0 && call->result.range_count != 1) {
        return mst__fail(call->reterr, MST_EPROTO, 0, "%s answered a range request without a range",
                         mst__v3_where(call->etcd3->v3));
    }
    return rv == 0 ? 0 : mst__etcd_read_failed(&call->attempts, rv, call->reterr);
}

/* Puts that may be repeated, in one transaction. */
static int call_put(struct call *call, const struct mst__v3_op *puts, size_t count, size_t size)
{
    struct mst__v3_txn txn = {.success = puts, .success_count = count};
    bool maybe_done = false;
    int rv;
    do {
        rv = count == 1 ? mst__v3_put(call->etcd3->v3, &puts[0].u.put, call->attempts.until,
                                      &call->result, call->reterr)
                        : mst__v3_txn(call->etcd3->v3, &txn, call->attempts.until, &call->result,
                                      call->reterr);
        maybe_done = maybe_done || rv == MST_EUNKNOWN;
    } while (mst__etcd_again(&call->attempts, rv, call->reterr));
    if (rv == 0) {
        return 0;
    }
    return mst__etcd_write_failed(&call->attempts, call_refused(call, rv, size), maybe_done,
                                  call->reterr);
}

/* The result of range @index of the last answer: NULL = nothing. */
static const struct mst__v3_kv *call_found(const struct call *call, size_t index)
{
    const struct mst__v3_result *result = &call->result;
    bool is_there = index < result->range_count && result->ranges[index].count > 0;
    return is_there ? &result->ranges[index].items[0] : NULL;
}

static struct mst_bytes kv_value(const struct mst__v3_kv *kv)
{
    return kv == NULL ? mst_bytes_of(NULL, 0) : mst_bytes_of(kv->value.data, kv->value.size);
}

static int64_t kv_revision(const struct mst__v3_kv *kv)
{
    return kv == NULL ? 0 : kv->mod_revision;
}

static struct mst__v3_op range_op(struct mst_bytes key)
{
    return (struct mst__v3_op){.kind = MST_V3_OP_RANGE, .u.range = {.key = key}};
}

/* --- conditional writes --- */

/* A conditional write, and its condition. */
struct change {
    struct mst_bytes key;
    int64_t revision;      /* of the key when it was read; 0 = absent */
    int64_t read_at;       /* revision of the store at that time */
    int64_t by_revision;   /* of the `!by` key when the result was unknown, */
    bool checks_by;        /* which then is part of the condition */
    struct mst_bytes name; /* number of the write */
    size_t size;           /* of key and value */
    struct mst__v3_op op;
};

/* Send the write once. If it lost, the answer has the current value. */
static int change_send(struct call *call,
                       const struct change *change,
                       enum mst__etcd_outcome *ret_outcome)
{
    struct mst_bytes by = mst_bytes_str(call->etcd3->by);
    struct mst__v3_compare compares[] = {
        {.key = change->key, .target = MST_V3_MOD, .number = change->revision},
        {.key = by, .target = MST_V3_MOD, .number = change->by_revision},
    };
    struct mst__v3_op success[] = {
        change->op,
        {.kind = MST_V3_OP_PUT,
         .u.put = {.key = by, .value = change->name, .lease = lease_id(call->etcd3)}},
    };
    struct mst__v3_op failure[] = {range_op(change->key)};
    struct mst__v3_txn txn = {
        .compares = compares,
        .compare_count = change->checks_by ? 2 : 1,
        .success = success,
        .success_count = 2,
        .failure = failure,
        .failure_count = 1,
    };
    int rv = mst__v3_txn(call->etcd3->v3, &txn, call->attempts.until, &call->result, call->reterr);
    if (rv != 0) {
        return call_refused(call, rv, change->size);
    }
    *ret_outcome = call->result.succeeded ? MST_ETCD_DONE : MST_ETCD_LOST;
    return 0;
}

/* Search the history of the `!by` key for our number, after the read of @change and up to revision
 * @until. */
static int change_scan(struct call *call,
                       const struct change *change,
                       int64_t until,
                       bool *ret_found)
{
    struct mst__v3_watched watched = {.key = mst_bytes_str(call->etcd3->by)};
    struct mst__v3_watch *watch = NULL;
    *ret_found = false;
    int rv =
        mst__v3_watch_new(call->etcd3->v3, &watched, 1, change->read_at + 1, &watch, call->reterr);
    int64_t seen = 0;
    while (rv == 0 && seen < until) {
        struct mst__v3_events events = {0};
        rv = mst__v3_watch_next(watch, call->attempts.until, &events, call->reterr);
        for (size_t i = 0; rv == 0 && i < events.count; i++) {
            const struct mst__v3_kv *kv = &events.items[i].kv;
            seen = kv->mod_revision;
            *ret_found = *ret_found || (!events.items[i].is_delete &&
                                        mst__bytes_equal(kv_value(kv), change->name));
        }
        mst__v3_events_close(&events);
    }
    mst__v3_watch_close(watch);
    return rv;
}

/* It is unknown whether our write was executed: find out. If not, the answer has the current
 * value. */
static int change_resolve(struct call *call,
                          struct change *change,
                          enum mst__etcd_outcome *ret_outcome)
{
    struct mst__v3_op reads[] = {range_op(change->key), range_op(mst_bytes_str(call->etcd3->by))};
    struct mst__v3_txn txn = {.success = reads, .success_count = 2};
    int rv = call_read(call, &txn);
    if (rv != 0) {
        return rv;
    }
    const struct mst__v3_kv *by = call_found(call, 1);
    int64_t by_revision = kv_revision(by);
    bool is_done = false;
    if (by_revision > change->read_at) {
        is_done = mst__bytes_equal(kv_value(by), change->name);
        /* Other threads have used the key since; our write may have come before theirs. */
        rv = is_done ? 0 : change_scan(call, change, by_revision, &is_done);
    }
    if (rv != 0) {
        return rv;
    }
    bool is_unchanged = kv_revision(call_found(call, 0)) == change->revision;
    *ret_outcome = is_done ? MST_ETCD_DONE : is_unchanged ? MST_ETCD_UNCHANGED : MST_ETCD_LOST;
    change->by_revision = by_revision;
    change->checks_by = true;
    return 0;
}

/* Execute @change if the key is unchanged. */
static int change_write(struct call *call,
                        struct change *change,
                        enum mst__etcd_outcome *ret_outcome)
{
    bool maybe_done = false;
    for (;;) {
        int rv = change_send(call, change, ret_outcome);
        if (rv == 0 && (!maybe_done || *ret_outcome == MST_ETCD_DONE)) {
            return 0;
        }
        maybe_done = maybe_done || rv == MST_EUNKNOWN;
        if (rv != 0 && !mst__etcd_again(&call->attempts, rv, call->reterr)) {
            return mst__etcd_write_failed(&call->attempts, rv, maybe_done, call->reterr);
        }
        if (maybe_done) {
            rv = change_resolve(call, change, ret_outcome);
            if (rv != 0) {
                return mst__etcd_write_failed(&call->attempts, rv, true, call->reterr);
            }
            if (*ret_outcome != MST_ETCD_UNCHANGED) {
                return 0;
            }
        }
    }
}

static int execute_begin_change(void *arg)
{
    struct call *call = arg;
    struct mst__v3_range range = {0};
    int rv = call_only_name(call, &range.key);
    return rv == 0 ? call_range(call, &range) : rv;
}

/* Compute the effect of the command on the value in the last answer, and execute it. */
static int execute_try_change(void *arg,
                              struct mst__buf *value,
                              struct mst__answer *result,
                              bool *ret_is_over)
{
    struct call *call = arg;
    struct mst_bytes key = mst__buf_bytes(&call->names);
    const struct mst__v3_kv *kv = call_found(call, 0);
    struct mst_bytes present = kv_value(kv);
    enum mst__etcd_change kind = MST_ETCD_KEEP;
    int rv = mst__etcd_change(call->command, kv == NULL ? NULL : &present, value, result, &kind,
                              call->reterr);
    *ret_is_over = rv != 0 || kind == MST_ETCD_KEEP;
    if (*ret_is_over) {
        return rv;
    }
    char number[24];
    (void)snprintf(number, sizeof number, "%" PRIu64,
                   (uint64_t)atomic_fetch_add(&call->etcd3->changes, 1) + 1); /* fits */
    struct change change = {
        .key = key,
        .revision = kv_revision(kv),
        .read_at = call->result.revision,
        .name = mst_bytes_str(number),
        .size = key.size + mst__buf_size(value),
    };
    if (kind == MST_ETCD_PUT) {
        change.op.kind = MST_V3_OP_PUT;
        change.op.u.put = (struct mst__v3_put){
            .key = key, .value = mst__buf_bytes(value), .lease = lease_id(call->etcd3)};
    } else {
        change.op.kind = MST_V3_OP_DELETE;
        change.op.u.del = (struct mst__v3_delete){.key = key};
    }
    enum mst__etcd_outcome outcome = MST_ETCD_LOST;
    rv = change_write(call, &change, &outcome);
    *ret_is_over = rv != 0 || outcome == MST_ETCD_DONE;
    return rv;
}

/* --- plain writes --- */

static int execute_set(void *arg)
{
    struct call *call = arg;
    struct mst_bytes key;
    int rv = call_only_name(call, &key);
    if (rv == 0) {
        struct mst__v3_op put = {
            .kind = MST_V3_OP_PUT,
            .u.put = {.key = key, .value = call->command->value, .lease = lease_id(call->etcd3)},
        };
        rv = call_put(call, &put, 1, key.size + call->command->value.size);
    }
    return rv;
}

/* How many of the pairs in @items fit into one transaction: at least one. */
static size_t batch_count(struct mst_bytes items)
{
    size_t size = 0;
    size_t count = 0;
    struct mst_bytes key;
    struct mst_bytes value;
    while (count < MST_V3_TXN_MAX && mst__items_next(&items, &key) &&
           mst__items_next(&items, &value)) {
        size += key.size + value.size;
        if (count > 0 && size > BATCH_SIZE_MAX) {
            break;
        }
        count++;
    }
    return count;
}

/* Add a pair to the batch; etcd refuses a repeated key, and the last value counts. */
static size_t batch_add(struct mst__v3_op *puts, size_t count, const struct mst__v3_put *put)
{
    size_t at = 0;
    while (at < count && !mst__bytes_equal(puts[at].u.put.key, put->key)) {
        at++;
    }
    puts[at] = (struct mst__v3_op){.kind = MST_V3_OP_PUT, .u.put = *put};
    return at == count ? count + 1 : count;
}

/* Each batch is one transaction: up to 128 keys and 1 MiB are set together, or not at all. */
static int execute_multi_set(void *arg)
{
    struct call *call = arg;
    struct mst_bytes items = call->command->items;
    struct mst__v3_op *puts = mst__calloc(MST_V3_TXN_MAX, sizeof *puts);
    if (puts == NULL) {
        return mst__etcd_fail(MST_ENOMEM, call->reterr);
    }
    int rv = 0;
    bool is_begun = false;
    while (rv == 0 && items.size > 0) {
        size_t pair_count = batch_count(items);
        size_t put_count = 0;
        size_t size = 0;
        rv = call_reserve(call, items, pair_count, true);
        for (size_t i = 0; rv == 0 && i < pair_count; i++) {
            struct mst_bytes key;
            struct mst__v3_put put = {.lease = lease_id(call->etcd3)};
            bool there = mst__items_next(&items, &key) && mst__items_next(&items, &put.value);
            MST_ASSERT(there);
            rv = call_name(call, key, &put.key);
            if (rv == 0) {
                put_count = batch_add(puts, put_count, &put);
                size += put.key.size + put.value.size;
            }
        }
        if (rv == 0) {
            rv = call_put(call, puts, put_count, size);
        }
        if (rv != 0 && is_begun) {
            rv = mst__err_wrap(call->reterr, MST_EUNKNOWN, "some of the keys are set; then");
        }
        is_begun = true;
    }
    mst__free(puts);
    return rv;
}

/* --- reading --- */

/* Read the next keys of @items, up to 128, in one transaction, and take them off; @ret_count is
 * their number. */
static int read_batch(struct call *call,
                      struct mst_bytes *items,
                      bool is_keys_only,
                      size_t *ret_count)
{
    struct mst__v3_op *reads = mst__calloc(MST_V3_TXN_MAX, sizeof *reads);
    if (reads == NULL) {
        return mst__etcd_fail(MST_ENOMEM, call->reterr);
    }
    size_t count = 0;
    struct mst_bytes key;
    int rv = call_reserve(call, *items, MST_V3_TXN_MAX, false);
    while (rv == 0 && count < MST_V3_TXN_MAX && mst__items_next(items, &key)) {
        struct mst_bytes name;
        rv = call_name(call, key, &name);
        if (rv == 0) {
            reads[count] = range_op(name);
            reads[count++].u.range.is_keys_only = is_keys_only;
        }
    }
    struct mst__v3_txn txn = {.success = reads, .success_count = count};
    rv = rv == 0 ? call_read(call, &txn) : rv;
    if (rv == 0 && call->result.range_count != count) {
        rv = mst__fail(call->reterr, MST_EPROTO, 0, "%s answered %zu ranges with %zu",
                       mst__v3_where(call->etcd3->v3), count, call->result.range_count);
    }
    mst__free(reads);
    *ret_count = count;
    return rv;
}

/* Each batch of up to 128 keys is a consistent read. */
static int execute_multi_get(void *arg, struct mst__answer *result)
{
    struct call *call = arg;
    struct mst_bytes items = call->command->items;
    int rv = 0;
    while (rv == 0 && items.size > 0) {
        size_t count = 0;
        rv = read_batch(call, &items, false, &count);
        for (size_t i = 0; rv == 0 && i < count; i++) {
            rv = mst__buf_append_str(&result->memory, kv_value(call_found(call, i)));
            rv = rv == 0 ? 0 : mst__etcd_fail(rv, call->reterr);
        }
    }
    result->reply =
        (struct mst__reply){.kind = MST_REPLY_ITEMS, .bytes = mst__buf_bytes(&result->memory)};
    return rv;
}

/* All keys under the root, without the root. */
static int execute_list(void *arg, struct mst__buf *keys, int64_t *ret_count)
{
    struct call *call = arg;
    struct mst_bytes root = mst_bytes_str(call->etcd3->root);
    struct mst__v3_range range = {.key = root, .span = MST_V3_PREFIX, .is_keys_only = true};
    int rv = call_range(call, &range);
    if (rv != 0) {
        return rv;
    }
    const struct mst__v3_kvs *kvs = &call->result.ranges[0];
    for (size_t i = 0; keys != NULL && rv == 0 && i < kvs->count; i++) {
        struct mst_bytes key = mst_bytes_of(kvs->items[i].key.data, kvs->items[i].key.size);
        if (!mst__bytes_start_with(key, root)) {
            return mst__fail(call->reterr, MST_EPROTO, 0,
                             "%s returned a key that was not requested",
                             mst__v3_where(call->etcd3->v3));
        }
        rv = mst__buf_append_str(keys, mst__bytes_skip(key, root.size));
    }
    *ret_count = (int64_t)kvs->count;
    return rv == 0 ? 0 : mst__etcd_fail(rv, call->reterr);
}

/* --- waiting --- */

/* The missing keys of the command, as strs in @missing. Up to 128 keys are read at one revision,
 * more at several; @ret_revision is the first. */
static int find_missing(struct call *call, struct mst__buf *missing, int64_t *ret_revision)
{
    struct mst_bytes items = call->command->items;
    struct mst_bytes keys = items;
    struct mst_bytes key;
    int rv = 0;
    mst__buf_clear(missing);
    *ret_revision = 0;
    while (rv == 0 && items.size > 0) {
        size_t count = 0;
        rv = read_batch(call, &items, true, &count);
        if (rv == 0 && *ret_revision == 0) {
            *ret_revision = call->result.revision;
        }
        for (size_t i = 0; rv == 0 && i < count && mst__items_next(&keys, &key); i++) {
            if (call_found(call, i) == NULL) {
                rv = mst__buf_append_str(missing, key);
                rv = rv == 0 ? 0 : mst__etcd_fail(rv, call->reterr);
            }
        }
    }
    return rv;
}

static int execute_find_missing(void *arg, struct mst__buf *missing)
{
    int64_t revision;
    return find_missing(arg, missing, &revision);
}

/* Keys that are watched in one stream until all have been put. */
struct waiting {
    struct mst__v3_watched watched[WATCHED_MAX];
    bool has_come[WATCHED_MAX];
    size_t count;
    size_t come_count;
};

static void waiting_note(struct waiting *waiting, const struct mst__v3_events *events)
{
    for (size_t e = 0; e < events->count; e++) {
        const struct mst__v3_kv *kv = &events->items[e].kv;
        struct mst_bytes key = mst_bytes_of(kv->key.data, kv->key.size);
        for (size_t i = 0; i < waiting->count; i++) {
            if (!events->items[e].is_delete && !waiting->has_come[i] &&
                mst__bytes_equal(waiting->watched[i].key, key)) {
                waiting->has_come[i] = true;
                waiting->come_count++;
            }
        }
    }
}

/* An error of a watch: 0 if the keys must be read again. */
static int watch_failed(struct call *call, int rv)
{
    if (rv == MST_ESTATE || mst__etcd_again(&call->attempts, rv, call->reterr)) {
        return 0; /* compacted, or lost */
    }
    if (rv == MST_ETIMEOUT) {
        return mst__fail(call->reterr, rv, 0, "not at %s when the deadline passed",
                         mst__v3_where(call->etcd3->v3));
    }
    return mst__etcd_read_failed(&call->attempts, rv, call->reterr);
}

/* The next events of @watch. Fails if the lease is lost, because the key can then never come. */
static int watch_next(struct call *call,
                      struct mst__v3_watch *watch,
                      struct mst__v3_events *ret_events)
{
    struct mst__etcd3_lease *lease = call->etcd3->lease;
    for (;;) {
        struct mst__until until = call->attempts.until;
        int64_t check_ms = mst__clock_deadline_ms(LEASE_CHECK_MS);
        bool is_last = lease == NULL || until.deadline_ms <= check_ms;
        int rv = mst__v3_watch_next(watch, is_last ? until : mst__until_with(until, check_ms),
                                    ret_events, call->reterr);
        if (is_last || (rv != MST_ETIMEOUT && rv != MST_ECONN)) {
            return rv;
        }
        int lease_rv = mst__etcd3_lease_check(lease, call->reterr);
        if (lease_rv != 0 || rv == MST_ECONN) {
            return lease_rv != 0 ? lease_rv : rv;
        }
    }
}

/* Watch the first of @missing from @revision on, until all of them have been put. 0 also if they
 * must be read again. */
static int wait_for_some(struct call *call, struct mst_bytes missing, int64_t revision)
{
    struct waiting *waiting = mst__calloc(1, sizeof *waiting);
    if (waiting == NULL) {
        return mst__etcd_fail(MST_ENOMEM, call->reterr);
    }
    struct mst__v3_watch *watch = NULL;
    struct mst_bytes key;
    int rv = call_reserve(call, missing, WATCHED_MAX, false);
    while (rv == 0 && waiting->count < WATCHED_MAX && mst__items_next(&missing, &key)) {
        rv = call_name(call, key, &waiting->watched[waiting->count].key);
        waiting->count++;
    }
    if (rv == 0) {
        rv = mst__v3_watch_new(call->etcd3->v3, waiting->watched, waiting->count, revision + 1,
                               &watch, call->reterr);
    }
    while (rv == 0 && waiting->come_count < waiting->count) {
        struct mst__v3_events events = {0};
        rv = watch_next(call, watch, &events);
        if (rv == 0) {
            waiting_note(waiting, &events);
        }
        mst__v3_events_close(&events);
    }
    mst__v3_watch_close(watch);
    mst__free(waiting);
    return rv == 0 ? 0 : watch_failed(call, rv);
}

static int execute_wait(void *arg)
{
    struct call *call = arg;
    struct mst__buf missing;
    int64_t revision = 0;
    mst__buf_init(&missing, call->command->items.size + 1);
    int rv = find_missing(call, &missing, &revision);
    while (rv == 0 && mst__buf_size(&missing) > 0) {
        rv = wait_for_some(call, mst__buf_bytes(&missing), revision);
        if (rv == 0) {
            rv = find_missing(call, &missing, &revision);
        }
    }
    mst__buf_close(&missing);
    return rv;
}

/* Any event of the watched key. */
static int wait_for_event(struct call *call,
                          struct mst_bytes key,
                          int64_t revision,
                          bool *ret_is_over)
{
    struct mst__v3_watched watched = {.key = key};
    struct mst__v3_watch *watch = NULL;
    struct mst__v3_events events = {0};
    int rv = mst__v3_watch_new(call->etcd3->v3, &watched, 1, revision + 1, &watch, call->reterr);
    if (rv == 0) {
        rv = watch_next(call, watch, &events);
    }
    *ret_is_over = rv == 0;
    mst__v3_events_close(&events);
    mst__v3_watch_close(watch);
    return rv == 0 ? 0 : watch_failed(call, rv);
}

static int execute_get(void *arg, struct mst__answer *result)
{
    struct call *call = arg;
    struct mst__v3_range range = {0};
    const struct mst__v3_kv *kv = NULL;
    int rv = call_only_name(call, &range.key);
    while (rv == 0) {
        rv = call_range(call, &range);
        kv = rv == 0 ? call_found(call, 0) : NULL;
        if (rv != 0 || kv != NULL || !call->command->blocks) {
            break;
        }
        bool is_event;
        rv = wait_for_event(call, range.key, call->result.revision, &is_event);
    }
    if (rv != 0) {
        return rv;
    }
    result->reply = (struct mst__reply){.kind = MST_REPLY_BYTES, .found = kv != NULL};
    rv = mst__answer_take(result, kv_value(kv));
    return rv == 0 ? 0 : mst__etcd_fail(rv, call->reterr);
}

static int execute_wait_change(void *arg)
{
    struct call *call = arg;
    bool is_over = false;
    struct mst__v3_range range = {0};
    int rv = call_only_name(call, &range.key);
    while (rv == 0 && !is_over) {
        rv = call_range(call, &range);
        if (rv != 0) {
            break;
        }
        const struct mst__v3_kv *kv = call_found(call, 0);
        uint64_t print = kv == NULL ? 0 : mst__fingerprint(kv_value(kv));
        is_over = (int64_t)print != call->command->number;
        if (!is_over) {
            rv = wait_for_event(call, range.key, call->result.revision, &is_over);
        }
    }
    return rv;
}

/* --- the storage --- */

static const struct mst__etcd_ops etcd3_ops = {
    .name = "etcd3",
    .set = execute_set,
    .get = execute_get,
    .begin_change = execute_begin_change,
    .try_change = execute_try_change,
    .find_missing = execute_find_missing,
    .wait = execute_wait,
    .wait_change = execute_wait_change,
    .list = execute_list,
    .multi_set = execute_multi_set,
    .multi_get = execute_multi_get,
};

static int etcd3_execute(struct mst__storage *storage,
                         const struct mst__command *command,
                         struct mst__until until,
                         struct mst__answer *result,
                         struct mst_err *reterr)
{
    struct etcd3 *etcd3 = (struct etcd3 *)storage;
    int rv = etcd3->lease == NULL ? 0 : mst__etcd3_lease_check(etcd3->lease, reterr);
    if (rv != 0) {
        return rv;
    }
    struct call call = {.etcd3 = etcd3, .command = command, .reterr = reterr};
    mst__etcd_attempts_init(&call.attempts, until, &etcd3->retries);
    mst__buf_init(&call.names,
                  MST_V3_TXN_MAX * (strlen(etcd3->root) + storage->options.key_size_max + 1) + 1);
    mst__v3_result_init(&call.result);
    rv = mst__etcd_run(&etcd3_ops, &call, storage, command, &call.attempts, result, reterr);
    mst__v3_result_close(&call.result);
    mst__buf_close(&call.names);
    return rv;
}

static void etcd3_stats(struct mst__storage *storage, struct mst_store_stats *stats)
{
    struct etcd3 *etcd3 = (struct etcd3 *)storage;
    mst__etcd_stats(&etcd3->retries, mst__v3_where(etcd3->v3), stats);
}

/* Delete our `!by` key, if there is one. If etcd is unreachable, it stays, which is harmless. */
static void forget_changes(struct etcd3 *etcd3)
{
    bool is_lost = etcd3->lease != NULL && mst__etcd3_lease_check(etcd3->lease, NULL) != 0;
    if (atomic_load(&etcd3->changes) == 0 || is_lost) {
        return;
    }
    struct mst__v3_delete del = {.key = mst_bytes_str(etcd3->by)};
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    (void)mst__v3_delete(etcd3->v3, &del, mst__until_in(CLOSE_MS), &result, NULL);
    mst__v3_result_close(&result);
}

static void etcd3_free(struct mst__storage *storage)
{
    struct etcd3 *etcd3 = (struct etcd3 *)storage;
    if (etcd3->v3 != NULL) {
        forget_changes(etcd3);
    }
    mst__etcd3_lease_close(etcd3->lease);
    mst__v3_free(etcd3->v3);
    mst__free(etcd3->root);
    mst__free(etcd3->storage.url);
    mst__free(etcd3->by);
    mst__free(etcd3->lease_key);
    mst__free(etcd3);
}

/* @root and @rest as one text, NULL if out of memory. */
static char *join(const char *root, const char *rest)
{
    size_t size = strlen(root) + strlen(rest) + 1;
    char *text = mst__malloc(size);
    if (text != NULL) {
        (void)snprintf(text, size, "%s%s", root, rest); /* fits */
    }
    return text;
}

static int make_names(struct etcd3 *etcd3, const char *root, struct mst_err *reterr)
{
    char by[32];
    (void)snprintf(by, sizeof by, "!by/%016" PRIx64, mst__clock_random_u64()); /* fits */
    etcd3->root = join(root, "/");
    etcd3->by = join(root, by);
    etcd3->lease_key = join(root, "!lease");
    bool is_made = etcd3->root != NULL && etcd3->by != NULL && etcd3->lease_key != NULL;
    return is_made ? 0 : mst__fail(reterr, MST_ENOMEM, 0, "etcd3 store '%s'", root);
}

int mst__etcd3_new(const struct mst__http_options *http,
                   const char *root,
                   const struct mst_store_options *options,
                   struct mst__storage **ret_storage,
                   struct mst_err *reterr)
{
    static const struct mst__storage_ops ops = {.execute = etcd3_execute,
                                                .can_block = true,
                                                .is_remote = true,
                                                .stats = etcd3_stats,
                                                .free = etcd3_free};
    struct etcd3 *etcd3 = mst__calloc(1, sizeof *etcd3);
    if (etcd3 == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "etcd3 store");
    }
    etcd3->storage.ops = &ops;
    etcd3->storage.key_root = "";
    etcd3->storage.options = *options;
    atomic_init(&etcd3->storage.handles, 0);
    atomic_init(&etcd3->changes, 0);
    atomic_init(&etcd3->retries, 0);
    int rv = make_names(etcd3, root, reterr);
    etcd3->storage.url = mst__etcd_url("etcd3", http, root);
    if (rv == 0 && etcd3->storage.url == NULL) {
        rv = mst__fail(reterr, MST_ENOMEM, 0, "etcd3 store '%s'", root);
    }
    if (rv == 0) {
        rv = mst__v3_new(http, &etcd3->v3, reterr);
    }
    if (rv != 0) {
        etcd3_free(&etcd3->storage);
        return rv;
    }
    *ret_storage = &etcd3->storage;
    return 0;
}

int mst__etcd3_open(const struct mst__http_options *http,
                    const char *root,
                    int64_t lease_s,
                    const struct mst_store_options *options,
                    struct mst__until until,
                    struct mst__storage **ret_storage,
                    struct mst_err *reterr)
{
    struct mst__storage *storage = NULL;
    int rv = mst__etcd3_new(http, root, options, &storage, reterr);
    if (rv != 0) {
        return rv;
    }
    struct etcd3 *etcd3 = (struct etcd3 *)storage;
    rv = mst__etcd_probe(storage, until, reterr);
    if (rv == 0 && lease_s > 0) {
        rv = mst__etcd3_lease_open(etcd3->v3, etcd3->lease_key, lease_s, until, &options->log,
                                   &etcd3->lease, reterr);
    }
    if (rv != 0) {
        etcd3_free(&etcd3->storage);
        return rv;
    }
    *ret_storage = &etcd3->storage;
    return 0;
}
