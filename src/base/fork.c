/* base/fork.c - counts forks in the children, and closes there what belongs to the parent.
 *
 * The set of owned descriptors is an array of bits which threads change without a lock: the handler
 * of a fork may find any lock held by a thread that the child does not have. */
#include "base/fork.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/* Descriptors above are not closed in a child. The usual hard limit of a process is 2^20. */
#define FDS_MAX (1 << 20)
#define WORD_BITS 64

static atomic_uint generation;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic uint64_t owned[FDS_MAX / WORD_BITS];
static atomic_size_t words_used; /* no bit is set in the words from here on */

/* Only closing leaves the parent alone: a shutdown would end its connections, and an epoll_ctl
 * would change what it polls for. */
static void on_child(void)
{
    int errno_before = errno; /* of the caller of fork */
    size_t count = atomic_load(&words_used);
    atomic_fetch_add(&generation, 1);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = atomic_exchange(&owned[i], 0);
        for (int bit = 0; bits != 0; bit++, bits >>= 1) {
            if ((bits & 1) != 0) {
                (void)close((int)i * WORD_BITS + bit); /* the parent writes to it, we do not */
            }
        }
    }
    errno = errno_before;
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, on_child); /* if this fails, a child is not recognised as
                                                   one */
}

unsigned mst__fork_generation(void)
{
    (void)pthread_once(&once, watch_forks); /* valid arguments: cannot fail */
    return atomic_load(&generation);
}

int mst__fork_own(int fd)
{
    if (fd < 0 || fd >= FDS_MAX) {
        return fd;
    }
    (void)mst__fork_generation(); /* forks are watched from now on */
    size_t word = (size_t)fd / WORD_BITS;
    size_t used = atomic_load(&words_used);
    atomic_fetch_or(&owned[word], UINT64_C(1) << (fd % WORD_BITS));
    while (used <= word && !atomic_compare_exchange_weak(&words_used, &used, word + 1)) {
    }
    return fd;
}

void mst__fork_disown(int fd)
{
    if (fd >= 0 && fd < FDS_MAX) {
        atomic_fetch_and(&owned[fd / WORD_BITS], ~(UINT64_C(1) << (fd % WORD_BITS)));
    }
}

int mst__fork_close(int fd)
{
    mst__fork_disown(fd); /* the number may belong to another thread at once */
    return close(fd);
}
