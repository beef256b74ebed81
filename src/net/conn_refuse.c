/* net/conn_refuse.c - telling a client why it is refused.
 *
 * A store client that has asked gets a refusal in place of a reply (wire/refusal.h), and then the
 * end of the stream. Closing at once would lose the words: if the peer is still sending, the kernel
 * answers with a reset, which discards what the peer has not read. So the stream stays open until
 * the peer closes it, and what arrives is thrown away.
 *
 * A full server accepts some connections beyond its maximum to tell their clients. Such an extra
 * connection is served only as far as a client of muster goes to ask; any other request ends it.
 *
 * Extra connections and streams of refused peers share a reserve of places, and each has little
 * time. When the reserve is used up, connections are closed without words. */
#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "net/conn.h"
#include "wire/refusal.h"

/* The start of a client has fewer bytes. */
#define EXTRA_INPUT_MAX 256

/* --- the reserve --- */

static bool spare_is_free(const struct mst__spare *spare)
{
    return spare->conn == NULL && spare->io.stream.fd < 0;
}

static struct mst__spare *spare_find(struct mst_server *server, const struct mst__conn *conn)
{
    for (size_t i = 0; i < MST_SPARES_MAX; i++) {
        struct mst__spare *spare = &server->spares[i];
        if (conn != NULL ? spare->conn == conn : spare_is_free(spare)) {
            return spare;
        }
    }
    return NULL;
}

/* A free place, counted from now on; NULL if there is none. */
static struct mst__spare *spare_take(struct mst_server *server)
{
    struct mst__spare *spare = spare_find(server, NULL);
    if (spare != NULL) {
        spare->due_ms = mst__server_now_ms(server) + MST_SPARE_MS;
        server->spares_count++;
        mst__server_want_sweep(server);
    }
    return spare;
}

static void spare_close(struct mst__spare *spare)
{
    mst__polled_close(&spare->server->poller, &spare->io);
    spare->server->spares_count--;
}

/* Throw away what the peer sends, until it closes. */
static void on_ready(struct mst__polled *polled, bool can_read, bool can_write)
{
    struct mst__spare *spare = (struct mst__spare *)polled;
    struct mst_server *server = spare->server;
    (void)can_read; /* only reading is requested */
    (void)can_write;
    server->kv.steps += MST_STEPS_READ;
    ssize_t size = 0;
    for (size_t total = 0; total < MST_TURN_READ_SIZE; total += (size_t)size) {
        size = mst__stream_read(&polled->stream, server->read_memory, sizeof server->read_memory);
        if (size == -EAGAIN) {
            return;
        }
        if (size <= 0) {
            spare_close(spare);
            return;
        }
        server->counters.bytes_in += (uint64_t)size;
    }
}

void mst__spares_open(struct mst_server *server)
{
    for (size_t i = 0; i < MST_SPARES_MAX; i++) {
        server->spares[i] = (struct mst__spare){.server = server,
                                                .io = {.on_ready = on_ready, .stream = {.fd = -1}}};
    }
}

void mst__spares_close(struct mst_server *server)
{
    for (size_t i = 0; i < MST_SPARES_MAX; i++) {
        struct mst__spare *spare = &server->spares[i];
        MST_ASSERT(spare->conn == NULL);
        if (!spare_is_free(spare)) {
            spare_close(spare);
        }
    }
}

void mst__spares_sweep(struct mst_server *server, int64_t now_ms)
{
    for (size_t i = 0; i < MST_SPARES_MAX && server->spares_count > 0; i++) {
        struct mst__spare *spare = &server->spares[i];
        if (spare_is_free(spare) || now_ms < spare->due_ms) {
            continue;
        }
        if (spare->conn != NULL) {
            char text[MST_FULL_TEXT_SIZE];
            mst__full_connections_text(server, text);
            mst__conn_doom(spare->conn, MST_WHY_TOO_MANY, "%s", text);
        } else {
            spare_close(spare);
        }
    }
}

/* --- the last words --- */

/* The code and the reason in a refusal. */
static int code_of(enum mst__why why, enum mst__refusal *ret_refusal)
{
    *ret_refusal = why == MST_WHY_TOO_MANY ? MST_REFUSAL_FULL
                   : why == MST_WHY_MEMORY ? MST_REFUSAL_MEMORY
                                           : MST_REFUSAL_MALFORMED;
    return why == MST_WHY_NOT_A_NUMBER ? MST_ETYPE
           : why == MST_WHY_PROTOCOL   ? MST_EPROTO
                                       : MST_ELIMIT;
}

void mst__conn_turn_down(struct mst__conn *conn, enum mst__why why, const char *format, ...)
{
    char detail[sizeof((struct mst_err *)0)->msg];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    if (conn->client.asks_why && !conn->is_framed && !conn->is_doomed) {
        enum mst__refusal refusal;
        int code = code_of(why, &refusal);
        conn->has_last_words = mst__wire_write_refusal(&conn->server->replies, code, refusal,
                                                       mst_bytes_str(detail)) == 0;
    }
    mst__conn_flush(conn); /* earlier requests are answered */
    mst__conn_doom(conn, why, "%s", detail);
}

void mst__conn_close_stream(struct mst__conn *conn)
{
    struct mst_server *server = conn->server;
    struct mst__poller *poller = &server->poller;
    struct mst__spare *spare = NULL;
    if (conn->is_extra) {
        spare = spare_find(server, conn);
        MST_ASSERT(spare != NULL);
        spare->conn = NULL;
        server->extras_count--;
        server->spares_count--;
    }
    spare = conn->has_last_words ? spare_take(server) : NULL;
    if (spare == NULL) {
        mst__polled_close(poller, &conn->io);
        return;
    }
    (void)mst__stream_end(&conn->io.stream, false); /* fails only if the peer is gone */
    if (mst__polled_move(poller, &conn->io, &spare->io) != 0) {
        server->spares_count--;
    }
}

/* --- beyond the maximum --- */

size_t mst__conns_places(const struct mst_server *server)
{
    MST_ASSERT(server->conns_count >= server->extras_count);
    size_t count = server->conns_count - server->extras_count;
    size_t max = server->options.connections_max;
    return count < max ? max - count : 0;
}

void mst__conn_be_extra(struct mst__conn *conn)
{
    struct mst_server *server = conn->server;
    struct mst__spare *spare = spare_take(server);
    char text[MST_FULL_TEXT_SIZE];
    mst__full_refuse_conn(server, text);
    if (spare == NULL) {
        mst__conn_doom(conn, MST_WHY_TOO_MANY, "%s", text);
        return;
    }
    spare->conn = conn;
    server->extras_count++;
    conn->is_extra = true;
}

/* Whether @command is part of the start of a client of muster; it is then answered. */
static bool extra_answer(struct mst__conn *conn, const struct mst__command *command)
{
    struct mst_bytes items = command->items;
    struct mst_bytes key = {.data = NULL};
    if (command->op == MST_OP_CANCEL_WAIT) {
        const struct mst__reply reply = {.kind = MST_REPLY_STATUS,
                                         .status = MST_STATUS_WAIT_CANCELED};
        return mst__wire_write_reply(&conn->server->replies, &reply) == 0;
    }
    conn->client.asks_why = command->op == MST_OP_CHECK && command->count == 1 &&
                            mst__items_next(&items, &key) &&
                            mst__bytes_equal(key, mst_bytes_str(MST_KV_ANNOUNCEMENT_REFUSAL));
    return false;
}

size_t mst__conn_serve_extra(struct mst__conn *conn, struct mst_bytes input)
{
    struct mst_server *server = conn->server;
    size_t used = 0;
    while (!conn->is_doomed) {
        struct mst__command command;
        struct mst_err err;
        size_t size = 0;
        int rv = mst__wire_read_request(&conn->reader, &server->wire_limits,
                                        mst__bytes_skip(input, used), &command, &size, &err);
        server->kv.steps++;
        if (rv == MST_WIRE_MORE && input.size < EXTRA_INPUT_MAX) {
            conn->input_wanted = size < EXTRA_INPUT_MAX ? size : EXTRA_INPUT_MAX;
            break;
        }
        used += rv > 0 ? size : 0;
        if (rv != MST_WIRE_VALIDATE && (rv != MST_WIRE_REQUEST || !extra_answer(conn, &command))) {
            char text[MST_FULL_TEXT_SIZE];
            mst__full_connections_text(server, text);
            mst__conn_turn_down(conn, MST_WHY_TOO_MANY, "%s", text);
        }
    }
    mst__conn_flush(conn);
    return used;
}
