/* base/fork.c - counts forks in the children, and closes there what belongs to the parent.
 *
 * The set of owned descriptors is an array of bits which threads change without a lock: the handler
 * of a fork may find any lock held by a thread that the child does not have. libcurl closes a
 * socket whose connect is interrupted without telling us, and its number may then belong to
 * anything: a pipe of a worker, a file of the program. So what a number stood for is remembered. */
#include "base/fork.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

/* Descriptors above are not closed in a child. The usual hard limit of a process is 2^20. */
#define FDS_MAX (1 << 20)
#define WORD_BITS 64

static atomic_uint generation;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic uint64_t owned[FDS_MAX / WORD_BITS];
static atomic_size_t words_used;             /* no bit is set in the words from here on */
static _Atomic uint64_t identities[FDS_MAX]; /* of owned ones; only pages in use take memory */

/* A number for what @fd stands for; others have another one while it is open. 0 if it is closed. */
static uint64_t identity_of(int fd)
{
    struct stat info;
    return fstat(fd, &info) != 0 ? 0 : (uint64_t)info.st_ino ^ (uint64_t)info.st_dev << 48;
}

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
            int fd = (int)i * WORD_BITS + bit;
            if ((bits & 1) != 0 && identity_of(fd) == atomic_load(&identities[fd])) {
                (void)close(fd); /* the parent writes to it, we do not */
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
    atomic_store(&identities[fd], identity_of(fd));
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
