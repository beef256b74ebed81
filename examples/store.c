/* examples/store.c - a store client: values, numbers, waiting, compare-and-set, lists, queues.
 *
 * Usage: store URL
 *
 * URL is that of a server of muster or PyTorch, such as tcp://127.0.0.1:29500; or hash: for a
 * store in this process, or file:///path. */
#include <inttypes.h>
#include <muster/muster.h>
#include <stdio.h>

#define TIMEOUT_MS 5000

/* Each returns 0 or an error, with its sentence in @err. */

static int values(struct mst_store *store, struct mst_err *err)
{
    struct mst_buffer value = {0};
    int rv = mst_store_set(store, mst_bytes_str("colour"), mst_bytes_str("green"), TIMEOUT_MS, err);
    if (rv == 0) {
        /* It waits until the key is set; mst_store_try_get does not. */
        rv = mst_store_get(store, mst_bytes_str("colour"), TIMEOUT_MS, &value, err);
    }
    if (rv == 0) {
        printf("colour is %.*s\n", (int)value.size, (const char *)value.data);
        mst_buffer_free(&value);
    }
    return rv;
}

static int numbers(struct mst_store *store, struct mst_err *err)
{
    int64_t sum = 0;
    int rv = mst_store_add(store, mst_bytes_str("visits"), 1, TIMEOUT_MS, &sum, err);
    if (rv == 0) {
        printf("this is visit %" PRId64 "\n", sum);
    }
    return rv;
}

/* Of several nodes, one becomes the leader. */
static int leader(struct mst_store *store, struct mst_err *err)
{
    enum mst_compare_set outcome;
    struct mst_buffer now = {0};
    int rv = mst_store_compare_set(store, mst_bytes_str("leader"), mst_bytes_str(""),
                                   mst_bytes_str("me"), TIMEOUT_MS, &outcome, &now, err);
    if (rv == 0) {
        printf("the leader is %.*s\n", (int)now.size, (const char *)now.data);
        mst_buffer_free(&now);
    }
    return rv;
}

static int missing(struct mst_store *store, struct mst_err *err)
{
    struct mst_bytes key = mst_bytes_str("nobody sets this");
    int rv = mst_store_wait(store, &key, 1, 50, err);
    printf("waiting for a key: %s\n", mst_errname(rv));
    return rv == MST_ETIMEOUT ? 0 : rv;
}

static int list(struct mst_store *store, struct mst_err *err)
{
    struct mst_keys keys = {0};
    int rv = mst_store_list(store, TIMEOUT_MS, &keys, err);
    if (rv == MST_ENOTSUP) {
        printf("this server lists no keys\n"); /* PyTorch's before 2.11 */
        return 0;
    }
    if (rv == 0) {
        printf("%zu keys under the prefix\n", keys.count);
        mst_keys_free(&keys);
    }
    return rv;
}

static int queue(struct mst_store *store, struct mst_err *err)
{
    struct mst_bytes key = mst_bytes_str("jobs");
    int rv = mst_store_queue_push(store, key, mst_bytes_str("sweep"), TIMEOUT_MS, err);
    struct mst_buffer value = {0};
    if (rv == 0) {
        rv = mst_store_queue_pop(store, key, true, TIMEOUT_MS, &value, err);
    }
    if (rv == 0) {
        printf("next job: %.*s\n", (int)value.size, (const char *)value.data);
        mst_buffer_free(&value);
    }
    return rv;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "Usage: %s URL\n", argv[0]);
        return 2;
    }
    struct mst_err err = {0};
    struct mst_store *whole = NULL;
    struct mst_store *store = NULL;
    int rv = mst_store_open(argv[1], NULL, TIMEOUT_MS, &whole, &err);
    if (rv == 0) {
        /* Only our own keys, with other users in the same store. */
        rv = mst_store_prefix(whole, mst_bytes_str("example"), &store, &err);
    }
    static int (*const parts[])(struct mst_store *, struct mst_err *) = {values,  numbers, leader,
                                                                         missing, list,    queue};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && rv == 0; i++) {
        rv = parts[i](store, &err);
    }
    if (rv != 0) {
        (void)fprintf(stderr, "store: %s\n", err.msg);
    }
    mst_store_close(store);
    mst_store_close(whole);
    return rv == 0 ? 0 : 1;
}
