/* history.h - the requests of clients on one key and their results, and whether some order of the
 * operations explains them.
 *
 * Linearizability is local: a history is linearizable if that of every key is. So a history here
 * is that of one key, and its state is "absent" or a text. */
#ifndef MST_TESTS_HISTORY_H
#define MST_TESTS_HISTORY_H

#include <muster/store.h>
#include <stdint.h>
#include <stdio.h>

#define MST_HISTORY_FOREVER INT64_MAX

enum mst__history_kind {
    MST_HISTORY_SET,
    MST_HISTORY_GET,
    MST_HISTORY_ADD,
    MST_HISTORY_COMPARE_SET,
    MST_HISTORY_DELETE,
    MST_HISTORY_APPEND,
    MST_HISTORY_CHECK,
};

struct mst__history_op {
    enum mst__history_kind kind;
    int thread;
    int64_t invoke_ns;
    int64_t return_ns; /* MST_HISTORY_FOREVER: may take effect at any time after invoke_ns */
    bool is_optional;  /* it may never have taken effect */
    bool has_result;   /* false: its result is not known */

    char *value;    /* SET, APPEND, desired of COMPARE_SET; heap or NULL */
    char *expected; /* COMPARE_SET */
    int64_t delta;  /* ADD */

    char *seen;   /* GET, COMPARE_SET: the value after it, NULL = absent */
    bool existed; /* DELETE, CHECK */
    int64_t sum;  /* ADD */
    enum mst_compare_set outcome;
};

struct mst__history {
    struct mst__history_op *ops;
    size_t count, capacity;
};

/* Append @op; its texts are taken. Aborts if out of memory. */
void mst__history_add(struct mst__history *history, const struct mst__history_op *op);

void mst__history_close(struct mst__history *history);

void mst__history_print(const struct mst__history *history, FILE *out);

enum mst__history_verdict {
    MST_HISTORY_FINE,
    MST_HISTORY_BROKEN,  /* no order explains it */
    MST_HISTORY_TOO_BIG, /* gave up */
};

/* Search for an order of @history's operations, each between its invocation and its return, that
 * explains every result, starting with an absent key. @ret_steps counts the states tried. */
enum mst__history_verdict mst__history_judge(struct mst__history *history, size_t *ret_steps);

#endif /* MST_TESTS_HISTORY_H */
