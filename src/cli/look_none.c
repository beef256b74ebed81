/* cli/look_none.c - in place of look_etcd.c where muster is built without etcd: a look at one
 * cannot be opened, so that the rest is never asked for anything. */
#include "base/assert.h"
#include "base/err.h"
#include "cli/look_etcd.h"
#include "cli/look_v3.h"

int mst__look_etcd_open(struct mst__look *look,
                        const struct mst_params *params,
                        struct mst_err *reterr)
{
    MST_ASSERT(look->etcd == NULL);
    return mst__fail(reterr, MST_EINVAL, 0,
                     "backend '%.60s': this muster was built without etcd; build it with libcurl "
                     "and jansson",
                     mst_params_backend(params));
}

int mst__look_etcd_read(struct mst__look *look,
                        int64_t timeout_ms,
                        bool *ret_changed,
                        struct mst_err *reterr)
{
    (void)timeout_ms; /* nothing is read */
    (void)ret_changed;
    MST_ASSERT(look->etcd == NULL);
    return mst__fail(reterr, MST_ENOTSUP, 0, "this muster was built without etcd");
}

void mst__look_etcd_close(struct mst__look *look)
{
    MST_ASSERT(look->etcd == NULL);
}

void mst__look_legacy_group(const struct mst__look *look, struct mst__look_group *ret_group)
{
    (void)ret_group;
    MST_ASSERT(look->is_legacy);
}

void mst__look_legacy_nodes(const struct mst__look *look, mst__look_node_fn fn, void *arg)
{
    (void)fn;
    (void)arg;
    MST_ASSERT(look->is_legacy);
}

int mst__look_legacy_summary(const struct mst__look *look,
                             int64_t nodes_min,
                             int64_t nodes_max,
                             struct mst__buf *text)
{
    (void)nodes_min;
    (void)nodes_max;
    (void)text;
    MST_ASSERT(look->is_legacy);
    return MST_ENOTSUP;
}

int mst__look_legacy_table(const struct mst__look *look, struct mst__buf *text)
{
    (void)text;
    MST_ASSERT(look->is_legacy);
    return MST_ENOTSUP;
}

void mst__look_legacy_json(const struct mst__look *look, struct mst__cli_json *json)
{
    (void)json;
    MST_ASSERT(look->is_legacy);
}

int mst__look_v3_open(const struct mst_params *params,
                      struct mst__look_v3 **ret_look,
                      struct mst_err *reterr)
{
    MST_ASSERT(*ret_look == NULL);
    return mst__fail(reterr, MST_EINVAL, 0,
                     "backend '%.60s': this muster was built without etcd; build it with libcurl "
                     "and jansson",
                     mst_params_backend(params));
}

void mst__look_v3_close(struct mst__look_v3 *look)
{
    MST_ASSERT(look == NULL);
}

int mst__look_v3_read(struct mst__look_v3 *look,
                      int64_t timeout_ms,
                      struct mst__job_status *ret_status,
                      struct mst_err *reterr)
{
    (void)timeout_ms; /* nothing is read */
    (void)ret_status;
    MST_ASSERT(look == NULL);
    return mst__fail(reterr, MST_ENOTSUP, 0, "this muster was built without etcd");
}

int mst__look_v3_shut(struct mst__look_v3 *look,
                      const char *reason,
                      const char *owner,
                      int64_t timeout_ms,
                      struct mst_err *reterr)
{
    (void)reason; /* nothing is closed */
    (void)owner;
    (void)timeout_ms;
    MST_ASSERT(look == NULL);
    return mst__fail(reterr, MST_ENOTSUP, 0, "this muster was built without etcd");
}
