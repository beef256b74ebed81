/* unit/store/store_suite.h - the duties of every store. A program per kind of store calls these
 * with empty stores of its kind. */
#ifndef MST_UNIT_STORE_SUITE_H
#define MST_UNIT_STORE_SUITE_H

#include <pthread.h>

#include "unit/store_unit.h"

/* Each leaves keys behind. */
void suite_values(struct mst_store *store);
void suite_numbers(struct mst_store *store);
void suite_compare_and_set(struct mst_store *store);
void suite_several_keys(struct mst_store *store);
void suite_timeouts(struct mst_store *store);
/* One thread waits while others add. */
void suite_threads(struct mst_store *store);
void suite_barriers(struct mst_store *store);
void suite_barriers_again(struct mst_store *store);

/* Handles; that of pops is for stores with queues. */
void suite_interrupt(struct mst_store *store);
void suite_on_wait(struct mst_store *store);
int suite_on_wait_teardown(void **state);
void suite_interrupt_in_order(struct mst_store *store);
void suite_interrupt_barrier(struct mst_store *store);
void suite_interrupt_pop(struct mst_store *store);
void suite_clone(struct mst_store *store);
void suite_fork(struct mst_store *store);

/* These open the stores themselves; the first leaves keys behind. */
void suite_prefixes(const char *url);
void suite_limits(const char *url, bool has_own_limits);
/* Fail the n-th allocation of opening and of every call, for all n: the call fails with
 * MST_ENOMEM, or succeeds if the memory was not essential, and the store keeps working. The file
 * @grows_path is removed each time, unless it is NULL. */
void suite_out_of_memory(const char *url, bool has_queues, const char *grows_path);

/* A thread in suite_wait_for_value. */
struct suite_waiter {
    struct mst_store *store;
    pthread_t thread;
    const char *key;
    bool is_pop;
    int rv;
    char got[32];
};

void *suite_wait_for_value(void *waiter);

#endif /* MST_UNIT_STORE_SUITE_H */
