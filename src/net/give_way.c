/* net/give_way.c - the end of a node's server in favour of a `muster serve`. */
#include "net/give_way.h"

#include "base/err.h"
#include "base/log.h"
#include "net/conn.h"

void mst__give_way_allow(struct mst_server *server)
{
    atomic_store(&server->gives_way, true);
}

bool mst__give_way_is_done(const struct mst_server *server)
{
    return atomic_load(&server->gave_way);
}

static bool serves_others(const struct mst_server *server)
{
    for (size_t i = 0; i < server->listeners_count; i++) {
        if (!mst__stream_is_loopback(&server->listeners[i].io.stream)) {
            return true;
        }
    }
    return false;
}

bool mst__give_way_is_for(const struct mst__conn *conn)
{
    const struct mst_server *server = conn->server;
    if (!atomic_load(&server->gives_way)) {
        return false;
    }
    enum mst__stream_peer peer = mst__stream_peer(&conn->io.stream);
    return peer == MST_STREAM_HERE || (peer == MST_STREAM_LOOPBACK && !serves_others(server));
}

bool mst__give_way_take(const struct mst__conn *conn, struct mst_err *reterr)
{
    struct mst_server *server = conn->server;
    if (!mst__give_way_is_for(conn)) {
        (void)mst__fail(reterr, MST_EPROTO, 0, "this server does not give way to this peer");
        return false;
    }
    if (!atomic_exchange(&server->gave_way, true)) {
        char text[MST_ADDRESS_SIZE];
        mst__stream_name_format(&conn->peer, text);
        mst__log(&server->options.log, MST_LOG_WARN, "server.gives_way",
                 "port=%d peer=%s connections=%zu", server->port, text, server->conns_count);
        mst_server_stop(server);
    }
    return true;
}
