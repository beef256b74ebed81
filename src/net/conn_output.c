/* net/conn_output.c - what a connection has to send and the kernel did not take at once.
 *
 * There are two queues, and one write under way at most. What jobs tell goes before replies: it is
 * little, and a node's place in its round depends on it. Replies are in the order of their
 * requests. On a framed connection they are a stream of bytes, which is cut into STORE_REPLY frames
 * only when it is written, so that messages can go in between however large a reply is.
 *
 *                      told      frames, as they are
 *   next write  <---
 *                      replies   plain: bytes, as they are
 *                                framed: a piece of the stream with a head of its own; before
 *                                anything else the rest of a frame that has begun
 *
 * A value that the engine has is not copied: the chunk holds it. */
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "net/conn.h"

/* What is queued in small parts is gathered in chunks of this size. */
#define CHUNK_SIZE_MIN MST_KIB(4)

/* Output that small can be sent without asking for room first: nearly always the kernel takes it
 * whole. */
#define SURELY_TAKEN_SIZE MST_KIB(4)

struct mst__chunk {
    uv_write_t request;
    struct mst__conn *conn;
    struct mst__chunk *next;
    enum mst__sort sort;
    void *shared; /* what the bytes lie in, held; NULL = own */
    const uint8_t *bytes;
    size_t size;
    size_t at;      /* what was written before it */
    size_t writing; /* what is being written, without the head */
    size_t capacity;
    bool is_full; /* nothing is added to it */
    uint8_t head[MST_JOB_HEAD_SIZE];
    uint8_t own[];
};

static struct mst__output *output_of(struct mst__conn *conn, enum mst__sort sort)
{
    return sort == MST_SORT_TOLD ? &conn->told : &conn->replies;
}

static size_t chunk_cost(size_t capacity)
{
    return mst__mem_cost(sizeof(struct mst__chunk) + capacity);
}

static void chunk_free(struct mst__chunk *chunk)
{
    struct mst__kv *kv = &chunk->conn->server->kv;
    if (chunk->shared != NULL) {
        mst__kv_release(kv, chunk->shared);
    }
    mst__kv_discharge(kv, chunk_cost(chunk->capacity));
    mst__free(chunk);
}

/* The first chunk of @output has been written, or is given up. */
static void output_shift(struct mst__output *output)
{
    struct mst__chunk *chunk = output->first;
    output->first = chunk->next;
    if (output->first == NULL) {
        output->last = NULL;
    }
    output->pending -= chunk->size - chunk->at;
    chunk_free(chunk);
}

/* --- writing --- */

static void on_written(uv_write_t *request, int status);

/* The size of the write that is under way. */
static size_t chunk_written(const struct mst__chunk *chunk)
{
    return chunk->writing + (chunk->sort == MST_SORT_STREAM ? sizeof chunk->head : 0);
}

/* Begin with the next write, if none is under way. libuv writes it when the kernel has room: many
 * peers may read at the same time, so that it is a piece, and in the same turn of the loop another
 * one only while there is time. */
static void conn_write_next(struct mst__conn *conn)
{
    struct mst_server *server = conn->server;
    struct mst__chunk *reply = conn->replies.first;
    bool has_begun = reply != NULL && reply->sort == MST_SORT_PLAIN;
    struct mst__chunk *chunk = has_begun || conn->told.first == NULL ? reply : conn->told.first;
    if (conn->writing != NULL || chunk == NULL || conn->is_doomed) {
        return;
    }
    if (mst__turns_is_over(server)) {
        mst__conn_want_turn(conn);
        return;
    }
    size_t size = chunk->size - chunk->at;
    size_t piece = mst__conn_piece_size(server->conns_count);
    size = size < piece ? size : piece;
    server->kv.steps += MST_STEPS_WRITE + MST_STEPS_SENT * (size >> 10);
    uv_buf_t bufs[2];
    unsigned count = 0;
    if (chunk->sort == MST_SORT_STREAM) {
        mst__store_u32(chunk->head, (uint32_t)size + 1);
        chunk->head[4] = MST_JOB_STORE_REPLY;
        bufs[count++] = uv_buf_init((char *)chunk->head, sizeof chunk->head);
    }
    bufs[count++] = uv_buf_init((char *)(uintptr_t)(chunk->bytes + chunk->at), (unsigned)size);
    chunk->request.data = chunk;
    int rv = uv_write(&chunk->request, &conn->uv.stream, bufs, count, on_written);
    if (rv != 0) {
        mst__conn_doom(conn, MST_WHY_PEER_RESET, "write: %s", uv_strerror(rv));
        return;
    }
    chunk->writing = size;
    conn->writing = chunk;
    conn->output_sent += chunk_written(chunk);
}

static void on_written(uv_write_t *request, int status)
{
    struct mst__chunk *chunk = request->data;
    struct mst__conn *conn = chunk->conn;
    struct mst__output *output = output_of(conn, chunk->sort);
    bool was_reply = chunk->sort != MST_SORT_TOLD;
    conn->writing = NULL;
    if (conn->is_closing) {
        chunk_free(chunk); /* the rest was freed when it began to close */
        return;
    }
    MST_ASSERT(output->first == chunk);
    conn->server->counters.bytes_out += status == 0 ? chunk_written(chunk) : 0;
    chunk->at += chunk->writing;
    output->pending -= chunk->writing;
    if (chunk->at == chunk->size) {
        output_shift(output);
    }
    if (status != 0) {
        mst__conn_doom(conn, MST_WHY_PEER_RESET, "write: %s", uv_strerror(status));
    }
    conn_write_next(conn);
    mst__conn_drained(conn, was_reply);
}

/* --- queueing --- */

/* A chunk with room for @capacity bytes of its own, and charged; NULL when there is no room. */
static struct mst__chunk *chunk_new(struct mst__conn *conn, enum mst__sort sort, size_t capacity)
{
    struct mst__kv *kv = &conn->server->kv;
    if (!mst__kv_charge(kv, chunk_cost(capacity))) {
        return NULL;
    }
    struct mst__chunk *chunk = mst__malloc(sizeof *chunk + capacity);
    if (chunk == NULL) {
        mst__kv_discharge(kv, chunk_cost(capacity));
        return NULL;
    }
    *chunk =
        (struct mst__chunk){.conn = conn, .sort = sort, .capacity = capacity, .bytes = chunk->own};
    return chunk;
}

/* Put @bytes, which lie in @shared if that is not NULL, behind what is queued; false when there is
 * no memory. */
static bool output_put(struct mst__conn *conn,
                       enum mst__sort sort,
                       struct mst_bytes bytes,
                       void *shared)
{
    struct mst__output *output = output_of(conn, sort);
    struct mst__chunk *chunk = output->last;
    if (chunk == NULL || shared != NULL || chunk->is_full || chunk->sort != sort ||
        bytes.size > chunk->capacity - chunk->size) {
        /* The first one is as large as it must be: most often there is no second. */
        bool is_first = chunk == NULL || bytes.size >= CHUNK_SIZE_MIN;
        size_t capacity = is_first ? bytes.size : CHUNK_SIZE_MIN;
        chunk = chunk_new(conn, sort, shared == NULL ? capacity : 0);
        if (chunk == NULL) {
            return false;
        }
        if (output->last == NULL) {
            output->first = chunk;
        } else {
            output->last->next = chunk;
        }
        output->last = chunk;
    }
    if (shared != NULL) {
        mst__kv_hold(&conn->server->kv, shared);
        chunk->shared = shared;
        chunk->bytes = bytes.data;
        chunk->size = bytes.size;
        chunk->is_full = true;
    } else {
        memcpy(chunk->own + chunk->size, bytes.data, bytes.size);
        chunk->size += bytes.size;
    }
    output->pending += bytes.size;
    return true;
}

static int64_t conn_taken(const struct mst__conn *conn);

/* Queue what the kernel did not take, or, with @is_late, is to get in another turn. */
static void conn_queue(struct mst__conn *conn,
                       enum mst__sort sort,
                       struct mst_bytes bytes,
                       void *shared,
                       bool is_late)
{
    struct mst_server *server = conn->server;
    bool was_idle = !mst__conn_has_output(conn);
    if (!output_put(conn, sort, bytes, shared)) {
        if (sort == MST_SORT_STREAM) {
            mst__conn_end_stream(conn, MST_WHY_MEMORY, "no memory for replies that are not read");
        } else {
            mst__conn_doom(conn, MST_WHY_MEMORY, "no memory for %zu bytes of unsent output",
                           bytes.size);
        }
        return;
    }
    if (was_idle) {
        conn->output_taken = conn_taken(conn);
        conn->output_ms = mst__server_now_ms(server);
        conn->output_late_ms = 0;
    }
    if (is_late) {
        mst__conn_want_turn(conn);
    } else {
        conn_write_next(conn);
    }
    mst__conn_update_reading(conn);
    mst__conn_update_overdue(conn);
}

/* --- sending --- */

/* Write what the kernel takes of @bufs: how much that is. */
static size_t conn_try(struct mst__conn *conn, const uv_buf_t *bufs, unsigned count)
{
    int rv = uv_try_write(&conn->uv.stream, bufs, count);
    if (rv < 0) {
        if (rv != UV_EAGAIN) {
            mst__conn_doom(conn, MST_WHY_PEER_RESET, "write: %s", uv_strerror(rv));
        }
        return 0;
    }
    conn->output_sent += (uint64_t)rv;
    conn->server->counters.bytes_out += (uint64_t)rv;
    conn->server->kv.steps += MST_STEPS_SENT * ((uint64_t)rv >> 10);
    return (size_t)rv;
}

/* Send a piece of the stream of replies as a frame; nothing is queued. Of a frame that has begun,
 * the rest is queued as it is. */
static void conn_send_piece(struct mst__conn *conn, struct mst_bytes piece)
{
    uint8_t head[MST_JOB_HEAD_SIZE];
    mst__store_u32(head, (uint32_t)piece.size + 1);
    head[4] = MST_JOB_STORE_REPLY;
    const uv_buf_t bufs[] = {uv_buf_init((char *)head, sizeof head),
                             uv_buf_init((char *)(uintptr_t)piece.data, (unsigned)piece.size)};
    size_t sent = conn_try(conn, bufs, 2);
    if (conn->is_doomed || sent == sizeof head + piece.size) {
        return;
    }
    if (sent == 0) {
        conn_queue(conn, MST_SORT_STREAM, piece, NULL, false);
        return;
    }
    if (sent < sizeof head) {
        conn_queue(conn, MST_SORT_PLAIN, mst_bytes_of(head + sent, sizeof head - sent), NULL,
                   false);
        sent = sizeof head;
    }
    if (!conn->is_doomed) {
        conn_queue(conn, MST_SORT_PLAIN, mst__bytes_skip(piece, sent - sizeof head), NULL, false);
    }
}

/* Whether there is room to queue all of @size bytes: a frame that was begun cannot be given up. */
static bool conn_has_room(struct mst__conn *conn, size_t size)
{
    struct mst__kv *kv = &conn->server->kv;
    size_t cost = 2 * chunk_cost(CHUNK_SIZE_MIN) + chunk_cost(size);
    if (size <= SURELY_TAKEN_SIZE) {
        return true;
    }
    if (!mst__kv_charge(kv, cost)) {
        return false;
    }
    mst__kv_discharge(kv, cost);
    return true;
}

static void conn_send_stream(struct mst__conn *conn, struct mst_bytes bytes, void *shared)
{
    if (conn->is_store_over) {
        return;
    }
    if (shared == NULL && !conn_has_room(conn, bytes.size)) {
        mst__conn_end_stream(conn, MST_WHY_MEMORY, "no memory for a reply that is not read");
        return;
    }
    while (shared == NULL && bytes.size > 0 && !mst__conn_has_output(conn) && !conn->is_doomed &&
           !conn->is_store_over) {
        size_t size = bytes.size < MST_PIECE_SIZE ? bytes.size : MST_PIECE_SIZE;
        conn_send_piece(conn, mst_bytes_of(bytes.data, size));
        bytes = mst__bytes_skip(bytes, size);
    }
    if (bytes.size > 0 && !conn->is_doomed && !conn->is_store_over) {
        conn_queue(conn, MST_SORT_STREAM, bytes, shared, false);
    }
}

void mst__conn_send(struct mst__conn *conn,
                    enum mst__sort sort,
                    struct mst_bytes bytes,
                    void *shared)
{
    if (conn->is_doomed || conn->is_closing || bytes.size == 0) {
        return;
    }
    if (sort == MST_SORT_STREAM) {
        conn_send_stream(conn, bytes, shared);
        return;
    }
    size_t sent = 0;
    if (MST_LIKELY(!mst__conn_has_output(conn))) {
        uv_buf_t buf = uv_buf_init((char *)(uintptr_t)bytes.data, (unsigned)bytes.size);
        sent = conn_try(conn, &buf, 1);
    }
    if (MST_UNLIKELY(sent < bytes.size) && !conn->is_doomed) {
        conn_queue(conn, sort, mst__bytes_skip(bytes, sent), shared, false);
    }
}

void mst__conn_push(struct mst__conn *conn,
                    enum mst__sort sort,
                    struct mst_bytes bytes,
                    void *shared)
{
    size_t pending = output_of(conn, sort)->pending;
    if (pending > MST_BACKLOG_SIZE_MAX) {
        mst__conn_doom(conn, MST_WHY_DOES_NOT_READ, "%zu bytes unsent", pending);
        return;
    }
    if (!mst__conn_has_output(conn) && !conn->is_doomed && !conn->is_closing &&
        mst__turns_is_full(conn->server)) {
        conn_queue(conn, sort, bytes, shared, true);
    } else {
        mst__conn_send(conn, sort, bytes, shared);
    }
}

void mst__conn_write(struct mst__conn *conn)
{
    conn_write_next(conn);
}

/* --- the end of it --- */

static void output_free(struct mst__output *output, const struct mst__chunk *writing)
{
    while (output->first != NULL) {
        struct mst__chunk *chunk = output->first;
        output->first = chunk->next;
        if (chunk != writing) {
            chunk_free(chunk);
        }
    }
    *output = (struct mst__output){0};
}

void mst__conn_free_output(struct mst__conn *conn)
{
    output_free(&conn->told, conn->writing);
    output_free(&conn->replies, conn->writing);
}

void mst__conn_drop_replies(struct mst__conn *conn)
{
    struct mst__output *output = &conn->replies;
    struct mst__chunk **link = &output->first;
    output->last = NULL;
    while (*link != NULL) {
        struct mst__chunk *chunk = *link;
        if (chunk->sort == MST_SORT_STREAM) {
            /* Of the one that is being written a frame has begun. */
            size_t kept = chunk == conn->writing ? chunk->writing : 0;
            output->pending -= chunk->size - chunk->at - kept;
            chunk->size = chunk->at + kept;
            chunk->is_full = true;
        }
        if (chunk->at == chunk->size) {
            *link = chunk->next;
            chunk_free(chunk);
        } else {
            output->last = chunk;
            link = &chunk->next;
        }
    }
}

/* --- too slow --- */

/* How many bytes the peer's machine has. What it has not yet got is here or in the kernel. */
static int64_t conn_taken(const struct mst__conn *conn)
{
    uv_os_fd_t fd = -1;
    int unsent = 0;
    if (uv_fileno(&conn->uv.handle, &fd) == 0 && ioctl(fd, SIOCOUTQ, &unsent) != 0) {
        unsent = 0; /* then what the kernel has counts as taken */
    }
    size_t queued = uv_stream_get_write_queue_size(&conn->uv.stream);
    return (int64_t)conn->output_sent - (int64_t)queued - unsent;
}

bool mst__conn_output_is_late(struct mst__conn *conn, int64_t now_ms)
{
    int64_t taken = conn_taken(conn);
    int64_t earned_ms = (taken - conn->output_taken) * 1000 / (int64_t)MST_RATE_MIN;
    int64_t late_ms = conn->output_late_ms + (now_ms - conn->output_ms) - earned_ms;
    conn->output_late_ms = late_ms > 0 ? late_ms : 0;
    conn->output_taken = taken;
    conn->output_ms = now_ms;
    return late_ms >= conn->server->options.request_timeout_ms;
}
