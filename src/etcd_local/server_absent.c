/* etcd_local/server_absent.c - replaces server.c in a build without etcd. */
#include <muster/etcd.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/require.h"
#include "base/sized.h"

void mst_etcd_options_init(struct mst_etcd_options *options, size_t size)
{
    static const struct mst_etcd_options defaults = {
        .size = sizeof defaults, .host = "localhost", .cancel_fd = -1};
    mst__sized_init(options, size, &defaults, sizeof defaults);
}

int mst_etcd_server_start(const struct mst_etcd_options *options,
                          int64_t timeout_ms,
                          struct mst_etcd_server **ret_server,
                          struct mst_err *reterr)
{
    MST_REQUIRE(ret_server, reterr);
    (void)options;
    (void)timeout_ms;
    return mst__fail(reterr, MST_ENOTSUP, 0, "this muster was built without etcd");
}

/* There is never a server. */

const char *mst_etcd_server_endpoint(const struct mst_etcd_server *server)
{
    MST_ASSERT(server == NULL);
    return "";
}

uint16_t mst_etcd_server_port(const struct mst_etcd_server *server)
{
    MST_ASSERT(server == NULL);
    return 0;
}

const char *mst_etcd_server_version(const struct mst_etcd_server *server)
{
    MST_ASSERT(server == NULL);
    return "";
}

int mst_etcd_server_pid(const struct mst_etcd_server *server)
{
    MST_ASSERT(server == NULL);
    return 0;
}

bool mst_etcd_server_is_running(struct mst_etcd_server *server, struct mst_err *reterr)
{
    MST_ASSERT(server == NULL);
    (void)mst__fail(reterr, MST_ENOTSUP, 0, "this muster was built without etcd");
    return false;
}

void mst_etcd_server_stop(struct mst_etcd_server *server)
{
    MST_ASSERT(server == NULL);
}
