/* store/hash.c - a store inside this process: the server's engine behind a mutex.
 *
 * Every call is a client of the engine for as long as it lasts. A call that has to wait sleeps on a
 * condition of its own; whoever releases it rings. */
#include <pthread.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/until.h"
#include "kv/kv.h"
#include "store/store.h"
#include "wire/wire.h"

struct hash {
    struct mst__backend backend; /* first, so that one can be had from the other */
    pthread_mutex_t mutex;
    struct mst__kv kv;
};

struct hash_call {
    struct mst__kv_client client; /* first, as above */
    pthread_cond_t over_cond;
    bool is_waiting; /* over_cond exists */
    bool over;
};

/* Ring for everybody whose waiting the last command ended. */
static void hash_ring(struct hash *hash)
{
    struct mst__kv_client *client;
    while ((client = mst__kv_next_released(&hash->kv)) != NULL) {
        struct hash_call *call = (struct hash_call *)client;
        call->over = true;
        if (call->is_waiting) {
            (void)pthread_cond_signal(&call->over_cond); /* cannot fail */
        }
    }
}

/* Sleep until the call is over or the deadline passes. The mutex is held. */
static int hash_sleep(struct hash *hash,
                      struct hash_call *call,
                      struct mst__until until,
                      struct mst_err *reterr)
{
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes); /* none of these four fails on Linux */
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&call->over_cond, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    call->is_waiting = true;
    int rv = 0;
    while (rv == 0 && !call->over) {
        rv = mst__until_cond(until, &call->over_cond, &hash->mutex);
    }
    call->is_waiting = false;
    (void)pthread_cond_destroy(&call->over_cond);
    return rv == 0 ? 0
                   : mst__fail(reterr, rv, 0,
                               rv == MST_ECANCELED ? "interrupted"
                                                   : "not there when the deadline passed");
}

static int hash_apply(struct hash *hash,
                      struct hash_call *call,
                      const struct mst__command *command,
                      struct mst__until until,
                      struct mst__answer *result,
                      struct mst_err *reterr)
{
    struct mst__reply reply;
    int rv = mst__kv_apply(&hash->kv, &call->client, command, &reply);
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "%s", mst_strerror(rv));
    }
    result->reply = reply;
    if (reply.kind == MST_REPLY_LATER) {
        hash_ring(hash); /* coming to a barrier can release nobody, but a promise may be settled */
        return hash_sleep(hash, call, until, reterr);
    }
    rv = mst__answer_take(result, reply.bytes);
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "answer of %zu bytes", reply.bytes.size);
}

static int hash_execute(struct mst__backend *backend,
                        const struct mst__command *command,
                        struct mst__until until,
                        struct mst__answer *result,
                        struct mst_err *reterr)
{
    struct hash *hash = (struct hash *)backend;
    struct hash_call call = {.over = false};
    mst__kv_client_init(&call.client);
    (void)pthread_mutex_lock(&hash->mutex); /* a default mutex: cannot fail */
    int rv = hash_apply(hash, &call, command, until, result, reterr);
    mst__kv_client_close(&hash->kv, &call.client);
    hash_ring(hash);
    (void)pthread_mutex_unlock(&hash->mutex);
    return rv;
}

static void hash_free(struct mst__backend *backend)
{
    struct hash *hash = (struct hash *)backend;
    mst__kv_close(&hash->kv);
    (void)pthread_mutex_destroy(&hash->mutex); /* nobody holds it */
    mst__free(hash);
}

int mst__hash_open(const struct mst_store_options *options,
                   struct mst__backend **ret_backend,
                   struct mst_err *reterr)
{
    static const struct mst__backend_ops ops = {.execute = hash_execute, .free = hash_free};
    struct hash *hash = mst__calloc(1, sizeof *hash);
    if (hash == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "hash store");
    }
    hash->backend.ops = &ops;
    hash->backend.key_root = "";
    hash->backend.options = *options;
    atomic_init(&hash->backend.handles, 0);
    struct mst__wire_limits wire = mst__wire_limits(options->key_size_max, options->value_size_max);
    struct mst__kv_limits limits = {
        .memory_max = MST_MEMORY_DEFAULT,
        .reply_max = wire.message_size_max,
        .value_max = options->value_size_max,
    };
    uint8_t hash_key[MST_SIPHASH_KEY_SIZE];
    mst__clock_random(hash_key, sizeof hash_key);
    mst__kv_init(&hash->kv, &limits, hash_key);
    (void)pthread_mutex_init(&hash->mutex, NULL); /* never fails on Linux */
    *ret_backend = &hash->backend;
    return 0;
}
