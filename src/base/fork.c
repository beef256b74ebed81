/* base/fork.c - counts forks, in the children. */
#include "base/fork.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_uint generation;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void on_child(void)
{
    atomic_fetch_add(&generation, 1);
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
