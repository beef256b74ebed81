/* net/conn.c - connections of the store server.
 *
 * Bytes are read into memory that all connections share and are served from there; only the rest of
 * an unfinished request is copied into the connection's own buffer. The replies to one read are
 * collected and written at once. Output that the kernel does not take is queued (conn_output.c);
 * until it is sent, the connection is neither read nor served. So a peer that does not read costs a
 * bounded amount of memory and disturbs no other. A framed connection (conn_frames.c) is read until
 * much is queued: a node's place depends on its messages.
 *
 * A connection that must end while a command is applied is doomed first and closed after the
 * command, because the engine may still deliver effects of the command to it. Its node's job is
 * told at once. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/conn.h"
#include "wire/opcode.h"

/* How long a DELETE of dialect A may turn out to be the start of an APPEND of dialect B. */
#define CONN_GRACE_MS 50

/* Memory for replies that is kept for the next connection. */
#define CONN_REPLIES_KEPT MST_MIB(1)

/* A reply of this size is written separately, from the engine's memory. */
#define CONN_LARGE_SIZE MST_KIB(64)

/* A queued reply of this size gets its own chunk, which costs as much as copying 4 KiB. */
#define CONN_SHARED_SIZE MST_KIB(8)

const char *mst__why_name(enum mst__why why)
{
    static const char *const names[MST_WHY_COUNT] = {
#define WHY_NAME(name, text, level) [MST_WHY_##name] = (text),
        MST_WHY_MAP(WHY_NAME)
#undef WHY_NAME
    };
    return names[why];
}

static enum mst_log_level why_level(enum mst__why why)
{
    static const enum mst_log_level levels[MST_WHY_COUNT] = {
#define WHY_LEVEL(name, text, level) [MST_WHY_##name] = MST_LOG_##level,
        MST_WHY_MAP(WHY_LEVEL)
#undef WHY_LEVEL
    };
    return levels[why];
}

/* --- the end of a connection --- */

/* Log why @conn ended, in one line. */
static void log_end(struct mst__conn *conn, enum mst__why why, const char *detail)
{
    const struct mst_log *log = &conn->server->options.log;
    enum mst_log_level level = why_level(why);
    if (!mst__log_wants(log, level)) {
        return;
    }
    char peer[MST_ADDRESS_SIZE];
    char quoted[MST_LOG_QUOTE_SIZE];
    mst__stream_name_format(&conn->peer, peer);
    mst__log(log, level, "conn.closed", "peer=%s dialect=%s why=%s detail=%s", peer,
             mst__dialect_name(conn->reader.dialect), mst__why_name(why),
             mst__log_quote(mst_bytes_str(detail), quoted));
}

void mst__conn_doom(struct mst__conn *conn, enum mst__why why, const char *format, ...)
{
    if (conn->is_doomed || conn->is_closing) {
        return;
    }
    conn->why = why;
    conn->is_doomed = true;
    mst__job_leave_seat(conn, &conn->seat);
    mst__list_leave(conn);
    conn->doomed_next = conn->server->doomed;
    conn->server->doomed = conn;
    mst__conn_update_reading(conn);
    char detail[sizeof((struct mst_err *)0)->msg];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    log_end(conn, why, detail);
}

static void conn_leave_overdue(struct mst__conn *conn)
{
    if (!conn->is_overdue) {
        return;
    }
    if (conn->overdue_prev == NULL) {
        conn->server->overdue = conn->overdue_next;
    } else {
        conn->overdue_prev->overdue_next = conn->overdue_next;
    }
    if (conn->overdue_next != NULL) {
        conn->overdue_next->overdue_prev = conn->overdue_prev;
    }
    conn->is_overdue = false;
}

void mst__conn_update_overdue(struct mst__conn *conn)
{
    bool under_way = mst__buf_size(&conn->input) > 0 || mst__conn_has_output(conn) ||
                     conn->is_released || conn->server->kv.list_client == &conn->client;
    if (under_way == conn->is_overdue) {
        return;
    }
    if (!under_way) {
        conn_leave_overdue(conn);
        return;
    }
    struct mst_server *server = conn->server;
    conn->overdue_prev = NULL;
    conn->overdue_next = server->overdue;
    if (server->overdue != NULL) {
        server->overdue->overdue_prev = conn;
    }
    server->overdue = conn;
    conn->is_overdue = true;
    mst__server_want_sweep(server);
}

static void conn_end_grace(struct mst__conn *conn)
{
    if (conn->in_grace) {
        conn->in_grace = false;
        conn->server->grace_count--;
    }
}

static void conn_free_input(struct mst__conn *conn)
{
    mst__buf_close(&conn->input);
    mst__kv_discharge(&conn->server->kv, conn->input_charged);
    conn->input_charged = 0;
}

void mst__conns_free_closed(struct mst_server *server)
{
    while (server->closed != NULL) {
        struct mst__conn *conn = server->closed;
        server->closed = conn->doomed_next;
        mst__free(conn);
    }
}

static void conn_close(struct mst__conn *conn)
{
    struct mst_server *server = conn->server;
    MST_ASSERT(!conn->is_closing);
    MST_ASSERT(!conn->is_served);
    MST_ASSERT(conn->seat.job == NULL);
    conn->is_closing = true;
    server->counters.closed[conn->why]++;
    server->kv.steps += MST_STEPS_CLOSE;
    conn_leave_overdue(conn);
    mst__conn_leave_line(conn);
    conn_end_grace(conn);
    mst__kv_client_close(&server->kv, &conn->client);
    conn_free_input(conn);
    mst__conn_free_output(conn);
    mst__silent_end(conn);
    if (conn->prev == NULL) {
        server->conns = conn->next;
    } else {
        conn->prev->next = conn->next;
    }
    if (conn->next != NULL) {
        conn->next->prev = conn->prev;
    }
    mst__conn_close_stream(conn);
    conn->doomed_next = server->closed;
    server->closed = conn;
    server->conns_count--;
}

/* --- output --- */

void mst__conn_flush(struct mst__conn *conn)
{
    struct mst__buf *replies = &conn->server->replies;
    mst__conn_send(conn, mst__buf_bytes(replies), NULL);
    mst__buf_clear(replies);
    if (replies->capacity > CONN_REPLIES_KEPT) {
        mst__buf_close(replies); /* a large reply must not cost memory for ever */
    }
}

/* The protocol has no error replies: end @conn for reason @why; the format adds details. */
static void conn_reject(struct mst__conn *conn, enum mst__why why, const char *format, ...)
    MST_PRINTF(3, 4);

static void conn_reject(struct mst__conn *conn, enum mst__why why, const char *format, ...)
{
    char detail[sizeof((struct mst_err *)0)->msg];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    mst__conn_flush(conn); /* earlier requests are answered */
    mst__conn_doom(conn, why, "%s", detail);
}

/* Append to the replies of the current connection. */
static void conn_reply(struct mst__conn *conn, const struct mst__reply *reply)
{
    struct mst__buf *replies = &conn->server->replies;
    /* If output is queued, a large reply becomes a chunk of the queue, without a copy. */
    bool is_large =
        reply->bytes.size >= CONN_LARGE_SIZE ||
        (reply->bytes.size >= CONN_SHARED_SIZE && reply->shared && mst__conn_has_output(conn));
    conn->server->kv.steps += is_large ? 0 : reply->bytes.size >> 10;
    int rv = is_large ? mst__wire_write_reply_head(replies, reply)
                      : mst__wire_write_reply(replies, reply);
    if (rv == 0 && is_large) {
        mst__conn_flush(conn);
        mst__conn_send(conn, reply->bytes, reply->shared);
    } else if (rv == MST_ELIMIT) {
        conn_reject(conn, MST_WHY_LIMIT, "reply larger than %zu bytes",
                    conn->server->wire_limits.message_size_max);
    } else if (rv != 0) {
        conn_reject(conn, MST_WHY_MEMORY, "no memory for a reply");
    }
}

/* --- effects on other connections --- */

/* Tell @conn, which is not being served, that its wait is over. */
static void conn_release(struct mst__conn *conn)
{
    static const uint8_t stop_byte = 0;
    conn->is_released = false;
    mst__conn_send(conn, mst_bytes_of(&stop_byte, 1), NULL);
}

/* Answer the clients whose wait is over. */
static void deliver_releases(struct mst_server *server)
{
    static const struct mst__reply stop = {.kind = MST_REPLY_STATUS,
                                           .status = MST_STATUS_STOP_WAITING};
    struct mst__kv_client *client;
    while ((client = mst__kv_next_released(&server->kv)) != NULL) {
        struct mst__conn *conn = mst__conn_of(client);
        server->counters.released++;
        server->kv.steps += MST_STEPS_WRITE;
        if (conn->is_served) {
            conn_reply(conn, &stop); /* after the rest of its own list */
        } else if (MST_UNLIKELY(mst__turns_is_full(server))) {
            conn->is_released = true;
            mst__conn_want_turn(conn);
            mst__conn_update_overdue(conn);
        } else {
            conn_release(conn);
        }
    }
}

/* Encode @notice, the first one of its change, as it goes to every watcher: 0, MST_ELIMIT,
 * MST_ENOMEM. */
static int notice_write(struct mst_server *server, const struct mst__kv_notice *notice)
{
    struct mst__buf *bytes = &server->notice;
    enum mst__notice_kind kind = notice->change == MST_KV_CREATED   ? MST_NOTICE_CREATED
                                 : notice->change == MST_KV_DELETED ? MST_NOTICE_DELETED
                                                                    : MST_NOTICE_UPDATED;
    mst__buf_clear(bytes);
    int rv = mst__wire_write_notice(bytes, kind, notice->key, notice->old_value, notice->new_value);
    server->notice_bytes = mst__buf_bytes(bytes);
    if (rv == 0 && server->notice_bytes.size >= MST_SHARED_SIZE_MIN) {
        server->notice_shared =
            mst__kv_share(&server->kv, server->notice_bytes, &server->notice_bytes);
        rv = server->notice_shared == NULL ? MST_ELIMIT : 0;
        mst__buf_close(bytes); /* a large notice must not cost memory for ever */
    }
    server->notice_rv = rv;
    return rv;
}

static void notice_forget(struct mst_server *server)
{
    if (server->notice_shared != NULL) {
        mst__kv_release(&server->kv, server->notice_shared);
        server->notice_shared = NULL;
    }
}

/* Notify watchers until this turn of the loop is over; with @is_ending drop the notices instead. No
 * command is applied while a watcher is left to notify. */
static void deliver_notices(struct mst_server *server, bool is_ending)
{
    struct mst__kv_notice notice;
    while ((is_ending || !mst__turns_is_over(server)) &&
           mst__kv_next_notice(&server->kv, &notice)) {
        struct mst__conn *conn = mst__conn_of(notice.client);
        if (notice.is_first) {
            notice_forget(server);
            (void)notice_write(server, &notice); /* checked for each watcher */
        }
        if (notice.change == MST_KV_LOST || server->notice_rv != 0) {
            mst__conn_doom(conn, MST_WHY_MEMORY, "no memory for the notice of a watched key");
        }
        if (conn->is_doomed) {
            continue;
        }
        server->kv.steps += MST_STEPS_WRITE;
        if (!conn->is_served) {
            mst__conn_push(conn, server->notice_bytes, server->notice_shared);
        } else if (mst__buf_append(&server->replies, server->notice_bytes) != 0) {
            mst__conn_doom(conn, MST_WHY_MEMORY, "no memory for the notice of a watched key");
        }
    }
    if (!mst__kv_has_notices(&server->kv)) {
        notice_forget(server);
    } else {
        mst__turns_want(server);
    }
}

/* Close doomed connections, for up to @steps. A close may release other clients, which are then
 * answered. */
static void close_doomed(struct mst_server *server, uint64_t steps)
{
    uint64_t start = server->kv.steps;
    struct mst__conn **link = &server->doomed;
    bool is_ending = steps == UINT64_MAX;
    deliver_notices(server, is_ending);
    while (*link != NULL && !mst__kv_is_busy(&server->kv)) {
        struct mst__conn *conn = *link;
        if (conn->is_served) {
            link = &conn->doomed_next; /* still on the stack; closed later */
            continue;
        }
        if (server->kv.steps - start >= steps) {
            mst__turns_want(server); /* for the others */
            break;
        }
        if (!mst__kv_shed_wait(&server->kv, &conn->client)) {
            continue;
        }
        *link = conn->doomed_next;
        conn_close(conn);
        deliver_releases(server);
        deliver_notices(server, is_ending); /* a client that left a barrier has changed its key */
        link = &server->doomed;             /* the list may have grown at its start */
    }
}

void mst__conns_close_doomed(struct mst_server *server)
{
    close_doomed(server, MST_TURN_STEPS);
}

void mst__conns_deliver(struct mst_server *server)
{
    deliver_releases(server);
    deliver_notices(server, false);
    if (MST_UNLIKELY(server->doomed != NULL)) {
        mst__conns_close_doomed(server);
    }
}

/* --- input --- */

static void conn_refuse(struct mst__conn *conn, const struct mst__command *command, int code)
{
    const char *op = mst__op_name(command->op);
    char text[MST_FULL_TEXT_SIZE];
    if (command->op == MST_OP_MULTI_GET) { /* in the middle of its reply */
        conn_reject(conn, code == MST_ELIMIT ? MST_WHY_LIMIT : MST_WHY_MEMORY,
                    "no room for the reply to %s", op);
    } else if (code == MST_ETYPE) {
        mst__conn_turn_down(conn, MST_WHY_NOT_A_NUMBER, "%s: the value is not a number", op);
    } else if (code != MST_ELIMIT) {
        mst__conn_turn_down(conn, MST_WHY_MEMORY, "no memory for %s", op);
    } else if (mst__full_refuse_memory(conn->server, conn->input_charged, text)) {
        mst__conn_turn_down(conn, MST_WHY_MEMORY, "%s", text);
    } else {
        mst__conn_turn_down(conn, MST_WHY_LIMIT, "%s would exceed a limit", op);
    }
}

/* MULTI_GET is answered as a series of GETs, and large values are sent without a copy. */
static int conn_multi_get(struct mst__conn *conn, const struct mst__command *command)
{
    struct mst_server *server = conn->server;
    struct mst__command get = {.op = MST_OP_GET};
    struct mst_bytes items = command->items;
    size_t room = server->wire_limits.message_size_max;
    for (uint64_t i = 0; i < command->count && mst__items_next(&items, &get.key); i++) {
        struct mst__reply reply;
        int rv = mst__kv_apply(&server->kv, &conn->client, &get, &reply);
        if (rv == 0 && (room < 8 || reply.bytes.size > room - 8)) {
            rv = MST_ELIMIT;
        }
        if (rv != 0) {
            return rv;
        }
        room -= 8 + reply.bytes.size;
        conn_reply(conn, &reply);
        if (mst__buf_size(&server->replies) >= MST_FLUSH_SIZE) {
            mst__conn_flush(conn);
        }
    }
    return 0;
}

/* Whether @command ends the wait of @conn. A client of dialect A gives up a wait silently. It sends
 * one request at a time, so its next request shows that. */
static bool conn_gives_up(const struct mst__conn *conn, const struct mst__command *command)
{
    return mst__kv_is_waiting(&conn->client) && !command->is_begun &&
           (conn->reader.dialect != MST_DIALECT_C || command->op == MST_OP_CANCEL_WAIT ||
            command->op == MST_OP_WAIT || command->op == MST_OP_BARRIER ||
            command->op == MST_OP_WAIT_CHANGE);
}

static void conn_apply(struct mst__conn *conn, const struct mst__command *command)
{
    struct mst_server *server = conn->server;
    server->counters.ops[command->op] += command->is_begun ? 0 : 1;
    if (MST_UNLIKELY(conn_gives_up(conn, command)) && conn->reader.dialect != MST_DIALECT_C) {
        mst__kv_cancel_wait(&server->kv, &conn->client); /* for other operations the engine does
                                                            it */
    }
    struct mst__reply reply;
    int rv = 0;
    if (MST_UNLIKELY(command->op == MST_OP_MULTI_GET)) {
        rv = conn_multi_get(conn, command);
    } else {
        rv = mst__kv_apply(&server->kv, &conn->client, command, &reply);
        if (MST_LIKELY(rv == 0)) {
            conn_reply(conn, &reply);
        }
        if (MST_UNLIKELY(mst__kv_is_listing(&server->kv))) {
            mst__turns_want(server); /* for the rest */
        }
    }
    if (MST_UNLIKELY(rv != 0)) {
        conn_refuse(conn, command, rv);
    }
    mst__conns_deliver(server);
}

/* Apply the next part of a WAIT for many keys. True if it was the last one. */
static bool conn_apply_part(struct mst__conn *conn, const struct mst__command *command)
{
    struct mst__command part = *command;
    struct mst_bytes rest = mst__bytes_skip(command->items, conn->wait_used);
    struct mst_bytes left = rest;
    struct mst_bytes key;
    uint64_t keys_left = command->count - conn->wait_count;
    part.is_begun = conn->wait_count > 0;
    part.goes_on = keys_left > MST_WAIT_PART;
    part.count = part.goes_on ? MST_WAIT_PART : keys_left;
    for (uint64_t i = 0; i < part.count; i++) {
        bool whole = mst__items_next(&left, &key);
        MST_ASSERT(whole); /* the reader has counted them */
    }
    part.items = mst_bytes_of(rest.data, rest.size - left.size);
    conn->wait_used += part.items.size;
    conn->wait_count += (uint32_t)part.count;
    conn_apply(conn, &part);
    return !part.goes_on;
}

/* Apply @command, of @size bytes, as far as this turn allows. True if it is done. */
static bool conn_apply_some(struct mst__conn *conn, const struct mst__command *command, size_t size)
{
    bool is_long = command->op == MST_OP_WAIT && command->count > MST_WAIT_PART;
    bool is_done = true;
    if (MST_UNLIKELY(conn->wait_count == 0 && conn_gives_up(conn, command))) {
        is_done = mst__kv_shed_wait(&conn->server->kv, &conn->client);
    }
    if (MST_LIKELY(!is_long)) {
        if (MST_LIKELY(is_done)) {
            conn_apply(conn, command);
        }
        return is_done;
    }
    is_done = is_done && conn_apply_part(conn, command);
    if (is_done) {
        conn->wait_used = 0;
        conn->wait_count = 0;
    } else {
        mst__wire_read_again(&conn->reader, size);
    }
    return is_done;
}

/* The next byte, or a pause, tells dialect A from dialect B. */
static void conn_begin_grace(struct mst__conn *conn)
{
    if (!conn->in_grace) {
        conn->in_grace = true;
        conn->server->grace_count++;
        mst__server_want_grace(conn->server);
    }
}

/* Switch @conn to frames. A late reply of the store would be taken for a frame. */
static void conn_begin_frames(struct mst__conn *conn)
{
    conn->is_framed = true;
    if (mst__kv_is_waiting(&conn->client) || conn->client.watches_count > 0) {
        conn_reject(conn, MST_WHY_PROTOCOL, "messages from a connection that waits for keys");
    }
}

/* Read and apply the requests in @input until it is used up, output is pending, or the connection
 * is doomed. Returns the number of bytes used. */
static size_t conn_serve_requests(struct mst__conn *conn, struct mst_bytes input)
{
    struct mst_server *server = conn->server;
    size_t used = 0;
    uint64_t start = server->kv.steps;
    server->turns.end = start + MST_TURN_STEPS;
    if (MST_UNLIKELY(conn->is_released)) {
        conn_release(conn); /* before the reply to its next request */
    }
    conn->is_served = true;
    conn->is_input_waiting = false;
    conn_end_grace(conn);
    while (!conn->is_doomed && !mst__conn_has_output(conn) && !conn->is_framed) {
        if (MST_UNLIKELY(mst__turn_is_over(server))) {
            conn->is_input_waiting = used < input.size;
            break;
        }
        struct mst__command command;
        struct mst_err err;
        size_t size = 0;
        int rv = mst__wire_read_request(&conn->reader, &server->wire_limits,
                                        mst__bytes_skip(input, used), &command, &size, &err);
        bool is_request = rv == MST_WIRE_REQUEST || rv == MST_WIRE_JOB;
        if (MST_UNLIKELY(mst__kv_is_listing(&server->kv)) && is_request) {
            conn->is_input_waiting = true;
            break;
        }
        if (MST_LIKELY(rv == MST_WIRE_REQUEST)) {
            if (MST_UNLIKELY(!conn_apply_some(conn, &command, size))) {
                conn->is_input_waiting = true;
                break;
            }
            used += size;
            if (mst__buf_size(&server->replies) >= MST_FLUSH_SIZE) {
                mst__conn_flush(conn);
            }
        } else if (rv == MST_WIRE_VALIDATE) {
            used += size;
        } else if (rv == MST_WIRE_JOB) {
            conn_begin_frames(conn);
            used += size;
        } else if (rv < 0) {
            enum mst__why why = rv == MST_ELIMIT ? MST_WHY_LIMIT : MST_WHY_PROTOCOL;
            mst__conn_turn_down(conn, why, "%s", err.msg);
        } else {
            conn->input_wanted = size;
            if (rv == MST_WIRE_EITHER) {
                conn_begin_grace(conn);
            }
            break;
        }
    }
    if (conn->is_framed) {
        used += mst__conn_serve_frames(conn, mst__bytes_skip(input, used));
    }
    mst__conn_flush(conn);
    conn->is_served = false;
    if (MST_UNLIKELY(conn->is_input_waiting) && !conn->is_doomed) {
        conn->input_wanted = 0;
        mst__conn_want_turn(conn);
    }
    if (server->kv.steps - start > server->counters.turn_steps_max) {
        server->counters.turn_steps_max = server->kv.steps - start;
    }
    return used;
}

/* Serve @input as far as possible now; returns the number of bytes used. */
static size_t conn_serve(struct mst__conn *conn, struct mst_bytes input)
{
    if (MST_UNLIKELY(conn->is_extra)) {
        return mst__conn_serve_extra(conn, input);
    }
    if (MST_UNLIKELY(mst__turns_is_over(conn->server) || mst__kv_has_notices(&conn->server->kv))) {
        conn->is_input_waiting = true;
        conn->input_wanted = 0;
        mst__conn_want_turn(conn);
        return 0;
    }
    size_t used = conn_serve_requests(conn, input);
    if (MST_UNLIKELY(conn->reader.dialect != MST_DIALECT_C)) {
        mst__silent_know_old(conn);
    }
    return used;
}

/* Charge the connection's own buffer to the memory limit. */
static void conn_charge_input(struct mst__conn *conn)
{
    struct mst__kv *kv = &conn->server->kv;
    size_t capacity = conn->input.capacity;
    size_t cost = capacity == 0 ? 0 : mst__slab_cost(capacity);
    if (cost <= conn->input_charged) {
        return;
    }
    if (!mst__kv_charge(kv, cost - conn->input_charged)) {
        char text[MST_FULL_TEXT_SIZE];
        bool is_refused = mst__full_refuse_memory(conn->server, conn->input_charged, text);
        MST_ASSERT(is_refused);
        /* A CHECK may confirm a write, which has been done: its client must not hear otherwise. */
        if (mst__buf_bytes(&conn->input).data[0] == mst__opcode_of(MST_OP_CHECK)->c) {
            mst__conn_doom(conn, MST_WHY_MEMORY, "%s", text);
        } else {
            mst__conn_turn_down(conn, MST_WHY_MEMORY, "%s", text);
        }
        return;
    }
    conn->input_charged = cost;
}

/* Copy the rest of @input, which is in shared memory, to the connection's own buffer. */
static void conn_keep(struct mst__conn *conn, struct mst_bytes input)
{
    if (input.size == 0 || conn->is_doomed) {
        return;
    }
    int rv = mst__buf_append(&conn->input, input);
    if (rv != 0) {
        mst__conn_doom(conn, MST_WHY_MEMORY, "no memory for a request");
        return;
    }
    conn->input_ms = conn->active_ms;
    conn_charge_input(conn);
}

static void conn_serve_own(struct mst__conn *conn)
{
    size_t used = conn_serve(conn, mst__buf_bytes(&conn->input));
    if (used > 0) {
        mst__buf_consume(&conn->input, used);
        conn->input_ms = mst__server_now_ms(conn->server); /* the time of the next request */
    }
    if (mst__buf_size(&conn->input) == 0) {
        conn_free_input(conn);
    }
}

/* Decide after every event how the connection continues. */
static void conn_settle(struct mst__conn *conn)
{
    struct mst_server *server = conn->server;
    if (!conn->is_doomed) {
        mst__conn_update_reading(conn);
        mst__conn_update_overdue(conn);
    }
    if (server->doomed != NULL && mst__turns_is_over(server)) {
        mst__turns_want(server); /* many are ending: close the rest in another turn */
    } else if (server->doomed != NULL) {
        mst__conns_close_doomed(server);
    }
}

/* Memory to read into: shared by all connections, or after the unfinished request of @conn. NULL if
 * out of memory. */
static uint8_t *conn_room(struct mst__conn *conn, size_t *ret_size)
{
    struct mst_server *server = conn->server;
    size_t have = mst__buf_size(&conn->input);
    if (have == 0) {
        *ret_size = sizeof server->read_memory;
        return server->read_memory;
    }
    size_t room = conn->input_wanted > have ? conn->input_wanted - have : 1;
    room = room > MST_TURN_READ_SIZE ? MST_TURN_READ_SIZE : room;
    room = room < MST_KIB(4) ? MST_KIB(4) : room;
    int rv = 0;
    *ret_size = room;
    return mst__buf_reserve(&conn->input, room, &rv);
}

/* @conn cannot be read any more. @reason is an errno, or 0 if the peer has closed. */
static void conn_ended(struct mst__conn *conn, int reason)
{
    if (mst__buf_size(&conn->input) > 0 && !conn->in_grace) {
        mst__conn_doom(conn, MST_WHY_HALF_REQUEST, "left after %zu bytes of a request",
                       mst__buf_size(&conn->input));
    } else if (reason == 0) {
        mst__conn_doom(conn, MST_WHY_PEER_CLOSED, "closed by the peer");
    } else {
        mst__conn_doom(conn, MST_WHY_PEER_RESET, "read: %s", uv_strerror(-reason));
    }
}

/* Serve the @size bytes that were read into @memory. */
static void conn_take(struct mst__conn *conn, uint8_t *memory, size_t size)
{
    struct mst_server *server = conn->server;
    conn->active_ms = mst__server_now_ms(server);
    server->counters.bytes_in += size;
    if (MST_UNLIKELY(conn->is_silent)) {
        mst__silent_leave(conn);
    }
    if (conn->seat.job != NULL) {
        mst__job_heard(&conn->seat);
    }
    if (memory == server->read_memory) {
        struct mst_bytes input = mst_bytes_of(memory, size);
        size_t used = conn_serve(conn, input);
        conn_keep(conn, mst__bytes_skip(input, used));
    } else {
        mst__buf_commit(&conn->input, size);
        conn_charge_input(conn);
        if (!conn->is_doomed && mst__buf_size(&conn->input) >= conn->input_wanted) {
            conn_serve_own(conn);
        }
    }
    conn_settle(conn);
}

/* Read until a read does not fill its buffer, or until @conn has used its share of the turn. */
static void conn_read(struct mst__conn *conn)
{
    size_t total = 0;
    while (conn->is_reading) {
        size_t room = 0;
        uint8_t *memory = conn_room(conn, &room);
        if (memory == NULL) {
            mst__conn_doom(conn, MST_WHY_MEMORY, "no memory for a request");
            conn_settle(conn);
            return;
        }
        ssize_t size = mst__stream_read(&conn->io.stream, memory, room);
        if (size == -EAGAIN) {
            return;
        }
        if (size <= 0) {
            conn_ended(conn, (int)-size);
            conn_settle(conn);
            return;
        }
        total += (size_t)size;
        conn_take(conn, memory, (size_t)size);
        if ((size_t)size < room) {
            return;
        }
        if (total >= MST_TURN_READ_SIZE && conn->is_reading) {
            conn->is_resting = true;
            mst__conn_want_turn(conn);
            conn_settle(conn);
            return;
        }
    }
}

/* Some output has been written, perhaps not all. */
static void conn_drained(struct mst__conn *conn)
{
    int64_t now_ms = mst__server_now_ms(conn->server);
    conn->active_ms = now_ms;
    if (!conn->is_reading) {
        conn->input_ms = now_ms; /* the request was not processed meanwhile */
    }
    if (!conn->is_in_line) {
        mst__conn_take_turn(conn);
    } else {
        conn_settle(conn);
    }
}

static void on_ready(struct mst__polled *polled, bool can_read, bool can_write)
{
    struct mst__conn *conn = (struct mst__conn *)polled;
    conn->server->kv.steps += MST_STEPS_READ;
    if (can_write) {
        mst__conn_write(conn);
        conn_drained(conn);
    }
    if (can_read) {
        conn_read(conn);
    }
}

void mst__conn_update_reading(struct mst__conn *conn)
{
    bool is_wanted = !conn->is_doomed && !conn->is_closing && !conn->is_input_waiting &&
                     !conn->is_resting &&
                     (conn->is_framed ? !mst__conn_is_deaf(conn) : !mst__conn_has_output(conn));
    if (MST_LIKELY(is_wanted == conn->is_reading)) {
        return;
    }
    conn->is_reading = is_wanted;
    if (!conn->is_closing) {
        int rv =
            mst__polled_want(&conn->server->poller, &conn->io, is_wanted, conn->io.wants_write);
        if (rv != 0) {
            mst__conn_doom(conn, MST_WHY_MEMORY, "poll: %s", uv_strerror(rv));
        }
    }
}

void mst__conn_take_turn(struct mst__conn *conn)
{
    conn->is_resting = false;
    if (!conn->is_doomed && conn->is_released) {
        conn->server->kv.steps += MST_STEPS_WRITE;
        conn_release(conn);
    }
    mst__conn_write(conn);
    if (!conn->is_doomed && mst__buf_size(&conn->input) > 0) {
        conn_serve_own(conn);
    }
    conn_settle(conn);
}

/* --- the start of a connection --- */

static struct mst__conn *conn_new(struct mst_server *server)
{
    struct mst__conn *conn = mst__calloc(1, sizeof *conn);
    if (conn == NULL) {
        return NULL;
    }
    conn->server = server;
    conn->active_ms = mst__server_now_ms(server);
    mst__kv_client_init(&conn->client);
    mst__wire_reader_init(&conn->reader);
    /* Room for bytes read ahead of a message, and the message. */
    mst__buf_init_in(&conn->input, server->wire_limits.message_size_max + MST_TURN_READ_SIZE,
                     &server->kv.slabs);
    conn->io.on_ready = on_ready;
    conn->next = server->conns;
    if (server->conns != NULL) {
        server->conns->prev = conn;
    }
    server->conns = conn;
    server->conns_count++;
    return conn;
}

void mst__conn_accept(struct mst__listener *listener,
                      struct mst__stream stream,
                      const struct mst__stream_name *peer)
{
    struct mst_server *server = listener->server;
    bool has_place = mst__conns_places(server) > 0 || mst__silent_make_room(server);
    struct mst__conn *conn = conn_new(server);
    if (conn == NULL) {
        mst__log(&server->options.log, MST_LOG_ERROR, "conn.refused", "why=memory listener=%s",
                 MST_LOG_TEXT(listener->address));
        mst__stream_close(&stream);
        return;
    }
    conn->io.stream = stream;
    conn->peer = *peer;
    conn->seat.contact = ++server->counters.accepted;
    if (has_place) {
        mst__silent_enter(conn);
    } else {
        mst__conn_be_extra(conn);
    }
    if (server->options.idle_timeout_ms > 0) {
        mst__server_want_sweep(server);
    }
    conn_settle(conn);
}

/* --- all connections --- */

/* Whether the request at the front of the input of @conn is too late: it has the request timeout,
 * plus the time that its known bytes need at the minimum rate. */
static bool conn_input_is_late(const struct mst__conn *conn, int64_t now_ms)
{
    size_t have = mst__buf_size(&conn->input);
    size_t size = have > conn->input_wanted ? have : conn->input_wanted;
    int64_t bytes_ms = (int64_t)size * 1000 / (int64_t)MST_RATE_MIN;
    return have > 0 && conn->is_reading &&
           now_ms - conn->input_ms - bytes_ms >= conn->server->options.request_timeout_ms;
}

static void sweep_overdue(struct mst_server *server, int64_t now_ms)
{
    for (struct mst__conn *conn = server->overdue; conn != NULL; conn = conn->overdue_next) {
        if (mst__conn_has_output(conn) && mst__conn_output_is_late(conn, now_ms)) {
            mst__conn_doom(conn, MST_WHY_DOES_NOT_READ, "%zu bytes unsent, taken too slowly",
                           conn->output.pending);
        }
        if (conn_input_is_late(conn, now_ms)) {
            mst__conn_doom(conn, MST_WHY_STUCK_REQUEST, "%zu bytes of a request in %lld ms",
                           mst__buf_size(&conn->input), (long long)(now_ms - conn->input_ms));
        }
    }
}

bool mst__conns_sweep(struct mst_server *server, int64_t now_ms)
{
    sweep_overdue(server, now_ms);
    int64_t idle_ms = server->options.idle_timeout_ms;
    for (struct mst__conn *conn = server->conns; idle_ms > 0 && conn != NULL; conn = conn->next) {
        /* A client that waits for a key is not idle: the server owes it an answer. */
        bool is_member = conn->seat.job != NULL;
        if (now_ms - conn->active_ms >= idle_ms && !mst__kv_is_waiting(&conn->client) &&
            !is_member) {
            mst__conn_doom(conn, MST_WHY_IDLE, "silent for %lld ms", (long long)idle_ms);
        }
    }
    mst__spares_sweep(server, now_ms);
    mst__conns_close_doomed(server);
    return server->overdue != NULL || server->spares_count > 0 ||
           (idle_ms > 0 && server->conns != NULL);
}

void mst__conns_settle(struct mst_server *server, int64_t now_ms)
{
    /* Connections in grace have an unfinished request, so they are in this list. */
    struct mst__conn *next;
    for (struct mst__conn *conn = server->overdue; conn != NULL; conn = next) {
        next = conn->overdue_next;
        if (conn->in_grace && now_ms - conn->active_ms >= CONN_GRACE_MS) {
            mst__wire_settle_a(&conn->reader);
            conn_serve_own(conn);
            if (!conn->is_doomed) {
                mst__conn_update_reading(conn);
                mst__conn_update_overdue(conn);
            }
        }
    }
    mst__conns_close_doomed(server);
}

void mst__conns_shut_down(struct mst_server *server, bool force)
{
    for (struct mst__conn *conn = server->conns; conn != NULL; conn = conn->next) {
        if (force || !conn->is_overdue) {
            mst__conn_doom(conn, MST_WHY_SHUTDOWN, "the server stops");
        }
    }
    close_doomed(server, force ? UINT64_MAX : MST_TURN_STEPS);
}

/* --- for the jobs --- */

void mst__conn_tell(struct mst__conn *conn, struct mst_bytes frames)
{
    MST_ASSERT(!conn->is_served);
    mst__conn_push(conn, frames, NULL);
}

void mst__conn_give_up(struct mst__conn *conn, enum mst__why why, const char *detail)
{
    mst__conn_doom(conn, why, "%s", detail);
}

void mst__conn_unseat(struct mst__conn *conn)
{
    mst__job_clear_seat(&conn->seat);
}
