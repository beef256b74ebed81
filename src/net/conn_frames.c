/* net/conn_frames.c - framed connections: a node's messages, and its requests to the store.
 *
 * Messages are read and answered at once, whatever the store does: a node's place depends on them.
 * The bytes of all STOREs of a connection are one stream. It is served as another connection's is:
 * while replies are unsent it waits, in the connection's own buffer, and there is a bound for that.
 * What the server refuses ends the stream and not the connection:
 *
 *            a request is refused: STORE_END
 *   SERVED ----------------------------------> OVER
 *     ^                                          |
 *     +--- an empty STORE: an empty STORE_REPLY--+
 *
 * A node may send the empty STORE at any time, when whoever asked is gone. The empty STORE_REPLY
 * tells it that nothing of what was asked before will be answered any more. */
#include "base/assert.h"
#include "base/bytes.h"
#include "net/conn.h"

/* --- the stream of requests --- */

void mst__conn_free_store(struct mst__conn *conn)
{
    mst__buf_close(&conn->store);
    mst__kv_discharge(&conn->server->kv, conn->store_charged);
    conn->store_charged = 0;
    conn->store_wanted = 0;
}

/* Apply the requests at the front of @input until it is used up, output is pending, or one is
 * refused. Returns how many bytes were used. */
static size_t store_serve(struct mst__conn *conn, struct mst_bytes input)
{
    struct mst_server *server = conn->server;
    size_t used = 0;
    conn->store_wanted = 0;
    while (!conn->is_doomed && !conn->is_store_over && conn->replies.pending == 0) {
        if (mst__turn_is_over(server)) {
            if (used < input.size) {
                mst__conn_want_turn(conn);
            }
            break;
        }
        struct mst__command command;
        struct mst_err err;
        size_t size = 0;
        int rv = mst__wire_read_request(&conn->reader, &server->wire_limits,
                                        mst__bytes_skip(input, used), &command, &size, &err);
        if (rv == MST_WIRE_REQUEST && mst__kv_is_listing(&server->kv)) {
            mst__conn_want_turn(conn);
            break;
        }
        if (rv == MST_WIRE_REQUEST) {
            mst__conn_apply(conn, &command);
            used += size;
            if (mst__buf_size(&server->replies) >= MST_FLUSH_SIZE) {
                mst__conn_flush(conn);
            }
        } else if (rv == MST_WIRE_MORE) {
            conn->store_wanted = size;
            break;
        } else {
            mst__conn_reject(conn, rv == MST_ELIMIT ? MST_WHY_LIMIT : MST_WHY_PROTOCOL, "%s",
                             rv < 0 ? err.msg : "no request in a store frame");
        }
    }
    return used;
}

/* The stream of requests has ended, or begins anew: what it was waiting for is forgotten, as with a
 * connection. */
static void store_forget(struct mst__conn *conn)
{
    struct mst_server *server = conn->server;
    mst__conn_free_store(conn);
    conn->is_released = false; /* what it waited for was of the old stream */
    mst__wire_reader_restart(&conn->reader);
    if (mst__kv_is_listing(&server->kv)) {
        conn->is_store_stuck = true; /* it may be in a barrier, whose key it would take along */
        mst__conn_want_turn(conn);
        return;
    }
    conn->is_store_stuck = false;
    mst__kv_client_close(&server->kv, &conn->client);
    mst__kv_client_init(&conn->client);
    mst__conns_deliver(server); /* to those whom it has released, or left a barrier with */
}

/* Serve what is left in the connection's own buffer for the store. */
static void store_serve_own(struct mst__conn *conn)
{
    size_t used = 0;
    if (mst__buf_size(&conn->store) >= conn->store_wanted) {
        used = store_serve(conn, mst__buf_bytes(&conn->store));
    }
    if (used > 0) {
        mst__buf_consume(&conn->store, used);
        conn->store_ms = mst__server_now_ms(conn->server); /* that of the next one */
    }
    if (conn->is_store_over) {
        store_forget(conn);
    } else if (mst__buf_size(&conn->store) == 0) {
        mst__conn_free_store(conn);
    }
}

/* Keep @input, which cannot be served yet. */
static void store_keep(struct mst__conn *conn, struct mst_bytes input)
{
    struct mst_server *server = conn->server;
    size_t held_max = server->wire_limits.message_size_max;
    if (mst__buf_size(&conn->store) == 0) {
        conn->store_ms = mst__server_now_ms(server);
    }
    if (conn->replies.pending > 0 && mst__buf_size(&conn->store) + input.size > held_max) {
        mst__conn_reject(conn, MST_WHY_DOES_NOT_READ,
                         "more than %zu bytes of requests while replies are not read", held_max);
    } else if (mst__buf_append(&conn->store, input) != 0) {
        mst__conn_reject(conn, MST_WHY_MEMORY, "no memory for a request");
    } else if (!mst__conn_charge(server, &conn->store, &conn->store_charged)) {
        mst__conn_reject(conn, MST_WHY_LIMIT, "no room for a request of %zu bytes",
                         conn->store_wanted);
    }
}

/* The stream begins anew, and that is confirmed. */
static void store_begin(struct mst__conn *conn)
{
    static const uint8_t begun[] = {1, 0, 0, 0, MST_JOB_STORE_REPLY};
    mst__conn_flush(conn);
    mst__conn_drop_replies(conn);
    store_forget(conn);
    conn->is_store_over = false;
    mst__conn_send(conn, MST_SORT_PLAIN, mst_bytes_of(begun, sizeof begun), NULL);
}

/* More of the stream of requests. */
static void conn_serve_store(struct mst__conn *conn, struct mst_bytes input)
{
    if (input.size == 0) {
        store_begin(conn);
        return;
    }
    if (conn->is_store_over) {
        return; /* sent before it was heard of */
    }
    size_t used = mst__buf_size(&conn->store) == 0 ? store_serve(conn, input) : 0;
    input = mst__bytes_skip(input, used);
    if (input.size > 0 && !conn->is_store_over && !conn->is_doomed) {
        store_keep(conn, input);
    }
    if (conn->is_store_over) {
        store_forget(conn);
    }
}

/* --- frames --- */

/* Read and apply one frame: as mst__job_read, or MST_ECONN when the connection is doomed. */
static int conn_serve_frame(struct mst__conn *conn, struct mst_bytes input, size_t *ret_size)
{
    struct mst_server *server = conn->server;
    struct mst__job_message message;
    struct mst_err err;
    int rv = mst__job_read(input, server->wire_limits.message_size_max, &message, ret_size, &err);
    if (rv < 0) {
        mst__conn_flush(conn); /* what came before it is answered */
        mst__conn_doom(conn, rv == MST_ELIMIT ? MST_WHY_LIMIT : MST_WHY_PROTOCOL, "%s", err.msg);
        return MST_ECONN;
    }
    if (rv == 1 && message.type == MST_JOB_STORE) {
        bool is_listing = mst__kv_is_listing(&server->kv);
        if (message.u.text.size == 0 && (is_listing || mst__conn_store_waits(conn))) {
            conn->is_beginning = true; /* what was asked before is done before */
            if (is_listing) {
                mst__conn_want_turn(conn);
            }
            return 0;
        }
        conn_serve_store(conn, message.u.text);
        return rv;
    }
    mst__conn_gather(conn, MST_SORT_TOLD);
    size_t before = mst__buf_size(&server->replies);
    if (rv == 1 && !mst__job_take(server, conn, &conn->seat, &message, &err)) {
        mst__conn_flush(conn);
        mst__conn_doom(conn, err.code == MST_EPROTO ? MST_WHY_PROTOCOL : MST_WHY_LIMIT, "%s",
                       err.msg);
    }
    size_t after = mst__buf_size(&server->replies);
    server->kv.steps += MST_STEPS_MESSAGE + (after > before ? (after - before) / 64 : 0);
    return rv;
}

/* Read and apply the frames at the front of @input: how many bytes were used. */
static size_t serve_frames(struct mst__conn *conn, struct mst_bytes input)
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

size_t mst__conn_serve_frames(struct mst__conn *conn, struct mst_bytes input)
{
    struct mst_server *server = conn->server;
    size_t used = 0;
    do {
        conn->is_beginning = false;
        used += serve_frames(conn, mst__bytes_skip(input, used));
        if (mst__buf_size(&conn->store) > 0 && !conn->is_doomed) {
            /* Behind the messages, and with a share of its own: they do not wait for each other. */
            server->turns.end = server->kv.steps + MST_TURN_STEPS;
            store_serve_own(conn);
        }
    } while (conn->is_beginning && !mst__conn_store_waits(conn) && !conn->is_doomed &&
             !mst__kv_is_listing(&server->kv));
    return used;
}

/* --- what is left half done --- */

void mst__conn_end_stuck_store(struct mst__conn *conn)
{
    conn->is_store_stuck = false;
    if (mst__buf_size(&conn->store) > 0 && !conn->is_store_over) {
        int64_t now_ms = mst__server_now_ms(conn->server);
        mst__conn_reject(conn, MST_WHY_STUCK_REQUEST, "%zu bytes of a request in %lld ms",
                         mst__buf_size(&conn->store), (long long)(now_ms - conn->store_ms));
    }
    if (conn->is_store_over) {
        store_forget(conn); /* unless it has been begun anew meanwhile */
    }
}
