/* store/handle.c - handles of stores: creating, interrupting and closing them.
 *
 * An interrupt makes a descriptor readable that every wait of the handle's calls polls. It stays
 * readable until the last interrupted call has ended; new calls wait for that, so that an interrupt
 * never ends a call that began after it. Calls inside a wait function do not wait: the call that
 * they would wait for may be the one that runs the function. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/fork.h"
#include "base/mem.h"
#include "base/require.h"
#include "base/sized.h"
#include "base/thread.h"
#include "store/store.h"

/* --- making and closing --- */

static bool is_ours(const struct mst_store *store)
{
    return store->generation == mst__fork_generation();
}

static int check_process(const struct mst_store *store, struct mst_err *reterr)
{
    return is_ours(store)
               ? 0
               : mst__fail(reterr, MST_EINVAL, 0,
                           "the store was made by another process; open one in the child");
}

int mst__store_new(struct mst__storage *storage,
                   struct mst_bytes prefix,
                   bool is_view,
                   struct mst_store **ret_store,
                   struct mst_err *reterr)
{
    struct mst_store *store = mst__malloc(sizeof *store + prefix.size);
    if (store == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "store handle");
    }
    *store = (struct mst_store){
        .storage = storage,
        .generation = mst__fork_generation(),
        .is_view = is_view,
        .prefix_size = prefix.size,
    };
    atomic_init(&store->wake_fd, -1);
    atomic_init(&store->is_interrupted, false);
    atomic_init(&store->calls, 0);
    (void)pthread_mutex_init(&store->mutex, NULL); /* neither fails on Linux */
    mst__cond_init(&store->quiet_cond);
    if (prefix.size > 0) {
        memcpy(store->prefix, prefix.data, prefix.size);
    }
    atomic_fetch_add(&storage->handles, 1);
    *ret_store = store;
    return 0;
}

void mst__store_bind(struct mst_store *store, uint64_t epoch)
{
    store->epoch = epoch;
}

int mst__store_copy(const struct mst_store *store,
                    struct mst__storage *storage,
                    struct mst_store **ret_store,
                    struct mst_err *reterr)
{
    int rv = mst__store_new(storage, mst_bytes_of(store->prefix, store->prefix_size),
                            store->is_view, ret_store, reterr);
    if (rv == 0) {
        mst__store_bind(*ret_store, store->epoch);
    }
    return rv;
}

int mst__store_first(struct mst__storage *storage,
                     struct mst_store **ret_store,
                     struct mst_err *reterr)
{
    int rv = mst__store_new(storage, mst_bytes_str(storage->key_root), false, ret_store, reterr);
    if (rv != 0) {
        storage->ops->free(storage);
    }
    return rv;
}

int mst_store_prefix(struct mst_store *store,
                     struct mst_bytes prefix,
                     struct mst_store **ret_store,
                     struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_BYTES(prefix, reterr);
    MST_REQUIRE(ret_store, reterr);
    size_t key_size_max = store->storage->options.key_size_max;
    int rv = check_process(store, reterr);
    if (rv != 0) {
        return rv;
    }
    if (prefix.size >= key_size_max || store->prefix_size + 1 >= key_size_max - prefix.size) {
        return mst__fail(reterr, MST_ELIMIT, 0,
                         "prefix of %zu bytes behind one of %zu leaves no room for keys, whose "
                         "limit is %zu",
                         prefix.size, store->prefix_size, key_size_max);
    }
    struct mst__buf whole;
    mst__buf_init(&whole, key_size_max);
    rv = mst__buf_append(&whole, mst_bytes_of(store->prefix, store->prefix_size));
    if (rv == 0) {
        rv = mst__buf_append(&whole, prefix);
    }
    if (rv == 0) {
        rv = mst__buf_append_u8(&whole, '/');
    }
    if (rv == 0) {
        rv = mst__store_new(store->storage, mst__buf_bytes(&whole), true, ret_store, reterr);
    } else {
        rv = mst__fail(reterr, rv, 0, "prefix of %zu bytes", prefix.size);
    }
    if (rv == 0) {
        mst__store_bind(*ret_store, store->epoch);
    }
    mst__buf_close(&whole);
    return rv;
}

int mst_store_clone(struct mst_store *store, struct mst_store **ret_store, struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE(ret_store, reterr);
    struct mst__storage *storage = store->storage;
    int rv = check_process(store, reterr);
    if (rv == 0 && storage->ops->clone != NULL) {
        rv = storage->ops->clone(storage, &storage, reterr);
    }
    if (rv != 0) {
        return rv;
    }
    rv = mst__store_copy(store, storage, ret_store, reterr);
    if (rv != 0 && storage != store->storage) {
        storage->ops->free(storage);
    }
    return rv;
}

void mst_store_close(struct mst_store *store)
{
    if (store == NULL) {
        return;
    }
    struct mst__storage *storage = store->storage;
    /* At the fork, threads of the parent may have been anywhere, and the descriptors are closed in
     * the child: do not touch the storage. */
    bool has_storage = is_ours(store);
    if (has_storage && atomic_load(&store->wake_fd) >= 0) {
        (void)mst__fork_close(atomic_load(&store->wake_fd)); /* nothing can be lost */
    }
    if (has_storage) {
        MST_ASSERT(atomic_load(&store->calls) == 0);
        (void)pthread_cond_destroy(&store->quiet_cond); /* no thread waits any more */
        (void)pthread_mutex_destroy(&store->mutex);
    }
    mst__arrivals_free(store->arrivals);
    mst__free(store);
    if (has_storage && atomic_fetch_sub(&storage->handles, 1) == 1) {
        storage->ops->free(storage);
    }
}

/* --- properties --- */

const char *mst_store_url(const struct mst_store *store)
{
    return store == NULL ? "" : store->storage->url;
}

struct mst_bytes mst_store_key_prefix(const struct mst_store *store)
{
    if (store == NULL || !store->is_view) {
        return mst_bytes_of(NULL, 0);
    }
    size_t root_size = strlen(store->storage->key_root);
    /* Without the slash at its end. */
    return mst_bytes_of(store->prefix + root_size, store->prefix_size - root_size - 1);
}

void mst_store_stats_init(struct mst_store_stats *stats, size_t size)
{
    mst__sized_init(stats, size, NULL, 0);
}

int mst_store_get_stats(const struct mst_store *store, struct mst_store_stats *ret_stats)
{
    MST_REQUIRE(store, NULL);
    MST_REQUIRE(ret_stats, NULL);
    int rv = mst__sized_check(ret_stats, "mst_store_stats", NULL);
    rv = rv == 0 ? check_process(store, NULL) : rv;
    if (rv != 0) {
        return rv;
    }
    struct mst_store_stats stats = {.size = sizeof stats};
    if (store->storage->ops->stats != NULL) {
        store->storage->ops->stats(store->storage, &stats);
    }
    mst__sized_give(ret_stats, &stats, sizeof stats);
    return 0;
}

/* --- interrupting --- */

static void ring(int fd)
{
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* if the counter is full, it is readable already */
}

void mst_store_interrupt(struct mst_store *store)
{
    int errno_before = errno;              /* a signal handler must preserve it */
    if (store != NULL && is_ours(store)) { /* in a child the number may be that of another file */
        atomic_store(&store->is_interrupted, true);
        int fd = atomic_load(&store->wake_fd);
        if (fd >= 0) { /* else the call that creates it sees the flag */
            ring(fd);
        }
    }
    errno = errno_before;
}

/* Create wake_fd if necessary: 0 or MST_ESYS. Most handles of a rendezvous never need one. */
static int obtain_wake_fd(struct mst_store *store, struct mst_err *reterr)
{
    int none = -1;
    int fd = mst__fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (fd < 0) {
        return mst__fail(reterr, MST_ESYS, errno, "eventfd of a store handle");
    }
    if (!atomic_compare_exchange_strong(&store->wake_fd, &none, fd)) {
        (void)mst__fork_close(fd); /* another thread was faster */
    } else if (atomic_load(&store->is_interrupted)) {
        ring(fd);
    }
    return 0;
}

/* Wait until the interrupted calls have ended; returns store->calls. */
static size_t await_quiet(struct mst_store *store)
{
    size_t calls;
    (void)pthread_mutex_lock(&store->mutex); /* a default mutex: cannot fail */
    while (((calls = atomic_load(&store->calls)) & MST_STORE_QUIETING) != 0) {
        (void)pthread_cond_wait(&store->quiet_cond, &store->mutex);
    }
    (void)pthread_mutex_unlock(&store->mutex);
    return calls;
}

int mst__store_enter(struct mst_store *store, struct mst_err *reterr)
{
    int rv = check_process(store, reterr);
    if (rv == 0 && atomic_load(&store->wake_fd) < 0) {
        rv = obtain_wake_fd(store, reterr);
    }
    if (rv != 0) {
        return rv;
    }
    size_t calls = atomic_load(&store->calls);
    bool is_telling = mst__until_is_telling();
    do {
        /* Without a call under way, the last one is just silencing the descriptor. */
        bool is_quieting = is_telling ? calls == MST_STORE_QUIETING : calls >= MST_STORE_QUIETING;
        if (is_quieting) {
            calls = await_quiet(store);
        }
    } while (!atomic_compare_exchange_weak(&store->calls, &calls, calls + 1));
    return 0;
}

/* Whether the interrupt may have caused the result @rv of a call. */
static bool is_by_interrupt(const struct mst_store *store, int rv)
{
    return rv == MST_ECANCELED ||
           ((rv == MST_ETIMEOUT || rv == MST_ECONN || rv == MST_ERESOLVE || rv == MST_EUNKNOWN) &&
            mst__until_is_woken(store->wake_fd));
}

int mst__store_leave(struct mst_store *store, int rv, struct mst_err *reterr)
{
    bool is_interrupted = rv != 0 && is_by_interrupt(store, rv);
    if (is_interrupted && rv != MST_EUNKNOWN) {
        rv = mst__fail(reterr, MST_ECANCELED, 0, "interrupted");
    }
    if (is_interrupted) {
        atomic_fetch_or(&store->calls, MST_STORE_QUIETING);
    }
    size_t calls = atomic_fetch_sub(&store->calls, 1);
    MST_ASSERT((calls & ~MST_STORE_QUIETING) > 0);
    if (calls == (MST_STORE_QUIETING | 1)) {
        /* This is the last call, and no other begins before this is done. */
        uint64_t count;
        atomic_store(&store->is_interrupted, false);
        ssize_t size = read(store->wake_fd, &count, sizeof count);
        (void)size; /* it does not block; there may be nothing to read */
        (void)pthread_mutex_lock(&store->mutex);
        atomic_store(&store->calls, 0);
        (void)pthread_cond_broadcast(&store->quiet_cond); /* cannot fail */
        (void)pthread_mutex_unlock(&store->mutex);
    }
    return rv;
}

bool mst__store_is_interrupted(const struct mst_store *store)
{
    /* The flag saves a poll. If an ending call takes the flag for its own, the descriptor is still
     * readable, and the next call ends after it has sent its request. */
    return atomic_load(&store->is_interrupted) && mst__until_is_woken(store->wake_fd);
}
