/* store/hash.c - a store inside this process: the server's engine behind a mutex.
 *
 * Every call is a client of the engine while it lasts. A call that must wait has an eventfd, which
 * poll watches together with everything else that ends the wait; the thread that releases the call
 * signals it. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fork.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/until.h"
#include "kv/kv.h"
#include "store/store.h"
#include "wire/wire.h"

struct hash {
    struct mst__storage storage; /* first: the storage is cast to this struct */
    pthread_mutex_t mutex;
    struct mst__kv kv;
};

struct hash_call {
    struct mst__kv_client client; /* first, as above */
    int over_fd;                  /* readable = over; -1 = not waiting */
    bool over;
};

/* Signal all calls whose wait the last command has ended. */
static void hash_ring(struct hash *hash)
{
    struct mst__kv_client *client;
    while ((client = mst__kv_next_released(&hash->kv)) != NULL) {
        struct hash_call *call = (struct hash_call *)client;
        call->over = true;
        if (call->over_fd >= 0) {
            (void)eventfd_write(call->over_fd, 1); /* from 0 to 1: cannot fail */
        }
    }
}

/* Sleep until the wait is over or timed out. The mutex is held, except while sleeping. */
static int hash_sleep(struct hash *hash,
                      struct hash_call *call,
                      struct mst__until until,
                      struct mst_err *reterr)
{
    if (call->over) {
        return 0;
    }
    call->over_fd = mst__fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (call->over_fd < 0) {
        return mst__fail(reterr, MST_ESYS, errno, "eventfd to wait with");
    }
    (void)pthread_mutex_unlock(&hash->mutex);
    int rv = mst__until_ready(until, call->over_fd, POLLIN);
    int sys = errno;
    (void)pthread_mutex_lock(&hash->mutex); /* a default mutex: cannot fail */
    (void)mst__fork_close(call->over_fd);   /* nothing can be lost */
    call->over_fd = -1;
    if (call->over) {
        return 0;
    }
    return mst__fail(reterr, rv, rv == MST_ESYS ? sys : 0,
                     rv == MST_ECANCELED  ? "interrupted"
                     : rv == MST_ETIMEOUT ? "not there when the deadline passed"
                                          : "poll");
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
        hash_ring(hash); /* entering a barrier releases no call, but may settle a promise */
        return hash_sleep(hash, call, until, reterr);
    }
    rv = mst__answer_take(result, reply.bytes);
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "answer of %zu bytes", reply.bytes.size);
}

static int hash_execute(struct mst__storage *storage,
                        const struct mst__command *command,
                        struct mst__until until,
                        struct mst__answer *result,
                        struct mst_err *reterr)
{
    struct hash *hash = (struct hash *)storage;
    struct hash_call call = {.over_fd = -1};
    mst__kv_client_init(&call.client);
    (void)pthread_mutex_lock(&hash->mutex); /* a default mutex: cannot fail */
    int rv = hash_apply(hash, &call, command, until, result, reterr);
    mst__kv_client_close(&hash->kv, &call.client);
    hash_ring(hash);
    (void)pthread_mutex_unlock(&hash->mutex);
    return rv;
}

static void hash_free(struct mst__storage *storage)
{
    struct hash *hash = (struct hash *)storage;
    mst__kv_close(&hash->kv);
    (void)pthread_mutex_destroy(&hash->mutex); /* no thread holds it */
    mst__free(hash->storage.url);
    mst__free(hash);
}

int mst__hash_open(const struct mst_store_options *options,
                   struct mst__storage **ret_storage,
                   struct mst_err *reterr)
{
    static const struct mst__storage_ops ops = {.execute = hash_execute, .free = hash_free};
    struct hash *hash = mst__calloc(1, sizeof *hash);
    char *own_url = mst__strdup("hash:");
    if (hash == NULL || own_url == NULL) {
        mst__free(hash);
        mst__free(own_url);
        return mst__fail(reterr, MST_ENOMEM, 0, "hash store");
    }
    hash->storage.url = own_url;
    hash->storage.ops = &ops;
    hash->storage.key_root = "";
    hash->storage.options = *options;
    atomic_init(&hash->storage.handles, 0);
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
    *ret_storage = &hash->storage;
    return 0;
}
