/* store/etcd3_lease.c - finds, grants and keeps the lease of a job's keys. */
#include "store/etcd3_lease.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/thread.h"
#include "base/until.h"
#include "store/backoff.h"

/* Pauses while another store grants a lease, or an old lease expires. */
#define LEASE_LOOK_MS_FIRST 10
#define LEASE_LOOK_MS_MAX 250

/* After a failed keep-alive, unless a third of the TTL is less. */
#define LEASE_AGAIN_MS 1000

/* Time to revoke an unused lease, which would also expire by itself. */
#define LEASE_REVOKE_MS 2000

struct mst__etcd3_lease {
    struct mst__v3 *v3;
    struct mst_log log;
    char *key;
    int64_t id;
    int64_t ttl_s;
    atomic_bool is_lost;
    int stop_fd; /* readable when the thread must end; -1 = no thread */
    bool has_thread;
    pthread_t thread;
};

int64_t mst__etcd3_lease_id(const struct mst__etcd3_lease *lease)
{
    return lease->id;
}

void mst__etcd3_lease_lost(struct mst__etcd3_lease *lease)
{
    if (!atomic_exchange(&lease->is_lost, true)) {
        mst__log(&lease->log, MST_LOG_ERROR, "store.lease_lost", "lease=%" PRIx64 " ttl_s=%" PRId64,
                 (uint64_t)lease->id, lease->ttl_s);
    }
}

int mst__etcd3_lease_check(struct mst__etcd3_lease *lease, struct mst_err *reterr)
{
    if (!atomic_load(&lease->is_lost)) {
        return 0;
    }
    return mst__fail(reterr, MST_ECLOSED, 0,
                     "the lease %" PRIx64 " at %s was lost, and all keys of the job with it; etcd "
                     "was not reached for %" PRId64 " s, or the lease was revoked",
                     (uint64_t)lease->id, mst__v3_where(lease->v3), lease->ttl_s);
}

/* --- keeping it alive --- */

static int64_t interval_ms(const struct mst__etcd3_lease *lease)
{
    return lease->ttl_s * 1000 / 3;
}

static void *keep_alive(void *arg)
{
    struct mst__etcd3_lease *lease = arg;
    bool is_stalled = false;
    int64_t pause_ms = interval_ms(lease);
    while (!atomic_load(&lease->is_lost) &&
           mst__until_pause(lease->stop_fd, mst__clock_us() + pause_ms * 1000)) {
        struct mst_err err = {0};
        int64_t ttl_s = 0;
        int rv = mst__v3_lease_keep_alive(
            lease->v3, lease->id, mst__until_by(lease->stop_fd, interval_ms(lease)), &ttl_s, &err);
        if (rv == MST_ENOTFOUND) {
            mst__etcd3_lease_lost(lease);
        } else if (rv == MST_ECANCELED) {
            break;
        } else if (rv != 0 && !is_stalled) {
            char quoted[MST_LOG_QUOTE_SIZE];
            mst__log(&lease->log, MST_LOG_WARN, "store.lease_stalled", "lease=%" PRIx64 " error=%s",
                     (uint64_t)lease->id, mst__log_quote(mst_bytes_str(err.msg), quoted));
        } else if (rv == 0 && is_stalled) {
            mst__log(&lease->log, MST_LOG_INFO, "store.lease_kept", "lease=%" PRIx64,
                     (uint64_t)lease->id);
        }
        is_stalled = rv != 0;
        pause_ms = interval_ms(lease);
        if (is_stalled && pause_ms > LEASE_AGAIN_MS) {
            pause_ms = LEASE_AGAIN_MS;
        }
    }
    return NULL;
}

static int start_thread(struct mst__etcd3_lease *lease, struct mst_err *reterr)
{
    lease->stop_fd = mst__fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (lease->stop_fd < 0) {
        return mst__fail(reterr, MST_ESYS, errno, "eventfd");
    }
    int status = mst__thread_start(&lease->thread, keep_alive, lease);
    if (status != 0) {
        return mst__fail(reterr, MST_ESYS, status, "thread for the lease");
    }
    lease->has_thread = true;
    return 0;
}

void mst__etcd3_lease_close(struct mst__etcd3_lease *lease)
{
    if (lease == NULL) {
        return;
    }
    if (lease->has_thread) {
        uint64_t one = 1;
        (void)!write(lease->stop_fd, &one, sizeof one); /* the counter is far from its limit */
        (void)pthread_join(lease->thread, NULL);        /* only we join this thread */
    }
    if (lease->stop_fd >= 0) {
        (void)mst__fork_close(lease->stop_fd); /* an eventfd: nothing can be lost */
    }
    mst__free(lease->key);
    mst__free(lease);
}

/* --- finding or granting it --- */

/* Read the number in the key, 0 if there is none. */
static int find(struct mst__etcd3_lease *lease,
                struct mst__until until,
                int64_t *ret_id,
                struct mst_err *reterr)
{
    struct mst__v3_range range = {.key = mst_bytes_str(lease->key), .span = MST_V3_KEY};
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    int rv = mst__v3_range(lease->v3, &range, until, &result, reterr);
    *ret_id = 0;
    if (rv == 0 && result.range_count > 0 && result.ranges[0].count > 0) {
        const struct mst_buffer *value = &result.ranges[0].items[0].value;
        if (!mst__number_parse(mst_bytes_of(value->data, value->size), 1, INT64_MAX, ret_id)) {
            rv = mst__fail(reterr, MST_EPROTO, 0, "'%s' at %s is not the number of a lease",
                           lease->key, mst__v3_where(lease->v3));
        }
    }
    mst__v3_result_close(&result);
    return rv;
}

/* Put our number under the key if it is absent. A read shows whether that succeeded: after a lost
 * answer that is the only way, and otherwise it is one small request. */
static int publish(struct mst__etcd3_lease *lease,
                   int64_t id,
                   struct mst__until until,
                   struct mst_err *reterr)
{
    char text[MST_NUMBER_SIZE];
    struct mst_bytes key = mst_bytes_str(lease->key);
    struct mst__v3_compare compare = {.key = key, .target = MST_V3_CREATE};
    struct mst__v3_op put = {
        .kind = MST_V3_OP_PUT,
        .u.put = {.key = key,
                  .value = mst_bytes_of(text, mst__number_format(id, text)),
                  .lease = id},
    };
    struct mst__v3_txn txn = {
        .compares = &compare, .compare_count = 1, .success = &put, .success_count = 1};
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    int rv = mst__v3_txn(lease->v3, &txn, until, &result, reterr);
    mst__v3_result_close(&result);
    return rv;
}

/* Grant a lease and try to make it the job's. @ret_id is the job's lease, or 0: try again. */
static int grant(struct mst__etcd3_lease *lease,
                 struct mst__until until,
                 int64_t *ret_id,
                 struct mst_err *reterr)
{
    int64_t id = 0;
    int64_t ttl_s = 0;
    *ret_id = 0;
    int rv = mst__v3_lease_grant(lease->v3, lease->ttl_s, until, &id, &ttl_s, reterr);
    if (rv != 0) {
        return rv;
    }
    int64_t found = 0;
    rv = publish(lease, id, until, reterr);
    if (rv == 0 || rv == MST_EUNKNOWN) {
        rv = find(lease, until, &found, reterr);
    }
    if (rv == 0 && found != id) {
        /* An attempt whose answer was lost may still be executed: the key goes with the lease. */
        struct mst_err ignored;
        (void)mst__v3_lease_revoke(lease->v3, id, mst__until_in(LEASE_REVOKE_MS), &ignored);
    }
    *ret_id = rv == 0 && found == id ? id : 0;
    return rv;
}

static int lease_join(struct mst__etcd3_lease *lease,
                      struct mst__until until,
                      struct mst_err *reterr)
{
    struct mst__backoff backoff;
    mst__backoff_init(&backoff, LEASE_LOOK_MS_FIRST, LEASE_LOOK_MS_MAX);
    for (;;) {
        int64_t id = 0;
        int64_t ttl_s = lease->ttl_s;
        int rv = find(lease, until, &id, reterr);
        if (rv == 0 && id == 0) {
            rv = grant(lease, until, &id, reterr);
        }
        if (rv == 0 && id != 0) {
            rv = mst__v3_lease_keep_alive(lease->v3, id, until, &ttl_s, reterr);
        }
        if (rv == 0 && id != 0) {
            lease->id = id;
            lease->ttl_s = ttl_s < 1 ? 1 : ttl_s;
            return 0;
        }
        /* It has just expired: its key is about to go as well. */
        bool is_passing = rv == 0 || rv == MST_ENOTFOUND || rv == MST_ECONN || rv == MST_EUNKNOWN;
        if (!is_passing) {
            return rv;
        }
        if (!mst__backoff_pause(&backoff, until)) {
            return rv == MST_ECONN
                       ? rv
                       : mst__fail(reterr, MST_ETIMEOUT, 0, "no lease at %s by the deadline",
                                   mst__v3_where(lease->v3));
        }
    }
}

int mst__etcd3_lease_open(struct mst__v3 *v3,
                          const char *key,
                          int64_t ttl_s,
                          struct mst__until until,
                          const struct mst_log *log,
                          struct mst__etcd3_lease **ret_lease,
                          struct mst_err *reterr)
{
    struct mst__etcd3_lease *lease = mst__calloc(1, sizeof *lease);
    if (lease == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "lease");
    }
    lease->v3 = v3;
    lease->log = *log;
    lease->ttl_s = ttl_s;
    lease->stop_fd = -1;
    atomic_init(&lease->is_lost, false);
    lease->key = mst__strdup(key);
    int rv = lease->key != NULL ? 0 : mst__fail(reterr, MST_ENOMEM, 0, "lease");
    if (rv == 0) {
        rv = lease_join(lease, until, reterr);
    }
    if (rv == 0) {
        rv = start_thread(lease, reterr);
    }
    if (rv != 0) {
        mst__etcd3_lease_close(lease);
        return rv;
    }
    *ret_lease = lease;
    return 0;
}
