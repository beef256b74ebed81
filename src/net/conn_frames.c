/* net/conn_frames.c - framed connections: a node's messages. */
#include "base/bytes.h"
#include "net/conn.h"

/* Refuse store requests in frames, which nodes of version 1 send. */
static bool refuse_store(struct mst_server *server)
{
    const struct mst__job_message end = {
        .type = MST_JOB_STORE_END,
        .u.text = mst_bytes_str("requests to the store need a connection of their own"),
    };
    return mst__job_write(&server->replies, &end) == 0;
}

/* Read and apply one frame: as mst__job_read, or MST_ECONN if the connection is doomed. */
static int conn_serve_frame(struct mst__conn *conn, struct mst_bytes input, size_t *ret_size)
{
    struct mst_server *server = conn->server;
    size_t before = mst__buf_size(&server->replies);
    struct mst__job_message message;
    struct mst_err err = {.code = MST_ENOMEM, .msg = "no memory for an answer"};
    int rv = mst__job_read(input, server->wire_limits.message_size_max, &message, ret_size, &err);
    bool is_fine = rv >= 0;
    if (rv == 1) {
        is_fine = message.type == MST_JOB_STORE
                      ? refuse_store(server)
                      : mst__job_take(server, conn, &conn->seat, &message, &err);
    }
    size_t after = mst__buf_size(&server->replies);
    server->kv.steps += MST_STEPS_MESSAGE + (after > before ? (after - before) / 64 : 0);
    if (!is_fine) {
        mst__conn_flush(conn); /* earlier messages are answered */
        mst__conn_doom(conn,
                       err.code == MST_EPROTO   ? MST_WHY_PROTOCOL
                       : err.code == MST_ENOMEM ? MST_WHY_MEMORY
                                                : MST_WHY_LIMIT,
                       "%s", err.msg);
        return MST_ECONN;
    }
    return rv;
}

size_t mst__conn_serve_frames(struct mst__conn *conn, struct mst_bytes input)
{
    struct mst_server *server = conn->server;
    size_t used = 0;
    while (!conn->is_doomed && !mst__conn_is_deaf(conn)) {
        if (mst__turn_is_over(server)) {
            conn->is_input_waiting = used < input.size;
            break;
        }
        size_t size = 0;
        int rv = conn_serve_frame(conn, mst__bytes_skip(input, used), &size);
        if (rv != 1) {
            conn->input_wanted = size;
            break;
        }
        used += size;
        if (mst__buf_size(&server->replies) >= MST_FLUSH_SIZE) {
            mst__conn_flush(conn);
        }
    }
    return used;
}
