/* store/open.c - opens the store of a URL: parses it, and makes the first handle.
 *
 * A prefix in the URL makes a second handle, which keeps the store open. */
#include "base/err.h"
#include "base/limits.h"
#include "base/require.h"
#include "base/sized.h"
#include "store/store.h"

void mst_store_options_init(struct mst_store_options *options, size_t size)
{
    static const struct mst_store_options defaults = {
        .size = sizeof defaults,
        .key_size_max = MST_KEY_SIZE_DEFAULT,
        .value_size_max = MST_VALUE_SIZE_DEFAULT,
    };
    mst__sized_init(options, size, &defaults, sizeof defaults);
}

/* Apply the caller's options to the defaults. */
static int options_take(const struct mst_store_options *given,
                        struct mst_store_options *ret_options,
                        struct mst_err *reterr)
{
    mst_store_options_init(ret_options, sizeof *ret_options);
    if (given == NULL) {
        return 0;
    }
    int rv = mst__sized_take(ret_options, sizeof *ret_options, given, "mst_store_options", reterr);
    if (rv != 0) {
        return rv;
    }
    if (ret_options->key_size_max < 1 || ret_options->key_size_max > MST_KEY_SIZE_MAX) {
        return mst__fail(reterr, MST_EINVAL, 0, "key_size_max %zu is not between 1 and %zu",
                         ret_options->key_size_max, MST_KEY_SIZE_MAX);
    }
    if (ret_options->value_size_max < 1 || ret_options->value_size_max > MST_VALUE_SIZE_MAX) {
        return mst__fail(reterr, MST_EINVAL, 0, "value_size_max %zu is not between 1 and %zu",
                         ret_options->value_size_max, MST_VALUE_SIZE_MAX);
    }
    return 0;
}

static int storage_open(const struct mst__url *url,
                        const struct mst_store_options *options,
                        struct mst__until until,
                        struct mst__storage **ret_storage,
                        struct mst_err *reterr)
{
    switch (url->scheme) {
        case MST_URL_TCP:
        case MST_URL_UNIX:
            return mst__tcp_open(url, options, until, ret_storage, reterr);
        case MST_URL_FILE:
            return mst__file_open(url, options, ret_storage, reterr);
        case MST_URL_ETCD2:
        case MST_URL_ETCD3:
#ifdef MST_WITH_ETCD
            return mst__etcd_open(url, options, until, ret_storage, reterr);
#else
            return mst__fail(reterr, MST_ENOTSUP, 0,
                             "this muster was built without etcd, so it has no %s:// stores",
                             url->scheme == MST_URL_ETCD2 ? "etcd2" : "etcd3");
#endif
        case MST_URL_HASH:
            break;
    }
    return mst__hash_open(options, ret_storage, reterr);
}

int mst_store_open(const char *url,
                   const struct mst_store_options *options,
                   int64_t timeout_ms,
                   struct mst_store **ret_store,
                   struct mst_err *reterr)
{
    MST_REQUIRE(url, reterr);
    MST_REQUIRE(ret_store, reterr);
    return mst__store_open(url, options, mst__until_in(timeout_ms), ret_store, reterr);
}

int mst__store_open(const char *url,
                    const struct mst_store_options *options,
                    struct mst__until until,
                    struct mst_store **ret_store,
                    struct mst_err *reterr)
{
    struct mst_store_options own_options;
    int rv = options_take(options, &own_options, reterr);
    if (rv != 0) {
        return rv;
    }
    struct mst__url parts;
    rv = mst__url_parse(url, &parts, reterr);
    if (rv != 0) {
        return rv;
    }
    struct mst__storage *storage = NULL;
    struct mst_store *store = NULL;
    rv = storage_open(&parts, &own_options, until, &storage, reterr);
    if (rv == 0) {
        rv = mst__store_first(storage, &store, reterr);
    }
    if (rv == 0 && parts.prefix != NULL) {
        struct mst_store *root = store;
        rv = mst_store_prefix(root, mst_bytes_of(parts.prefix, parts.prefix_size), &store, reterr);
        mst_store_close(root);
    }
    mst__url_close(&parts);
    if (rv == 0) {
        *ret_store = store;
    }
    return rv;
}
