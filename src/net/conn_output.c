/* net/conn_output.c - output of a connection that the kernel did not take at once.
 *
 * Values of the engine are not copied: the chunk holds a reference. */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "net/conn.h"

/* Small output is collected in chunks of this size. */
#define CHUNK_SIZE_MIN MST_KIB(4)

struct mst__chunk {
    struct mst__chunk *next;
    void *shared; /* the referenced block; NULL = own memory */
    const uint8_t *bytes;
    size_t size;
    size_t at; /* bytes already written */
    size_t capacity;
    bool is_full; /* nothing is added to it */
    uint8_t own[];
};

static size_t chunk_cost(size_t capacity)
{
    return mst__slab_cost(sizeof(struct mst__chunk) + capacity);
}

static void chunk_free(struct mst__kv *kv, struct mst__chunk *chunk)
{
    if (chunk->shared != NULL) {
        mst__kv_release(kv, chunk->shared);
    }
    mst__kv_discharge(kv, chunk_cost(chunk->capacity));
    mst__slab_free(&kv->slabs, chunk, sizeof *chunk + chunk->capacity);
}

/* --- writing --- */

/* Write @bytes as far as the kernel takes them; returns the number. */
static size_t conn_try(struct mst__conn *conn, struct mst_bytes bytes)
{
    ssize_t took = mst__stream_write(&conn->io.stream, bytes);
    if (took < 0) {
        if (took != -EAGAIN) {
            mst__conn_doom(conn, MST_WHY_PEER_RESET, "write: %s", uv_strerror((int)took));
        }
        return 0;
    }
    conn->output_sent += (uint64_t)took;
    conn->server->counters.bytes_out += (uint64_t)took;
    conn->server->kv.steps += MST_STEPS_SENT * ((uint64_t)took >> 10);
    return (size_t)took;
}

static void conn_want_write(struct mst__conn *conn, bool is_wanted)
{
    if (conn->io.wants_write != is_wanted && !conn->is_closing) {
        int rv = mst__polled_want(&conn->server->poller, &conn->io, conn->is_reading, is_wanted);
        if (rv != 0) {
            mst__conn_doom(conn, MST_WHY_MEMORY, "poll: %s", uv_strerror(rv));
        }
    }
}

/* Many peers may read at the same time, so output is written in pieces, with a next piece in the
 * same turn only if there is time. */
void mst__conn_write(struct mst__conn *conn)
{
    struct mst_server *server = conn->server;
    struct mst__output *output = &conn->output;
    size_t piece = mst__conn_piece_size(server->conns_count);
    while (output->first != NULL && !conn->is_doomed && !conn->is_closing) {
        if (mst__turns_is_over(server)) {
            conn_want_write(conn, false);
            mst__conn_want_turn(conn);
            return;
        }
        struct mst__chunk *chunk = output->first;
        size_t size = chunk->size - chunk->at;
        size = size < piece ? size : piece;
        server->kv.steps += MST_STEPS_WRITE;
        size_t took = conn_try(conn, mst_bytes_of(chunk->bytes + chunk->at, size));
        chunk->at += took;
        output->pending -= took;
        if (chunk->at == chunk->size) {
            output->first = chunk->next;
            output->last = output->first == NULL ? NULL : output->last;
            chunk_free(&server->kv, chunk);
        }
        if (took < size) {
            conn_want_write(conn, true);
            return;
        }
    }
    conn_want_write(conn, false);
}

/* --- queueing --- */

/* A chunk with its own room for @capacity bytes, charged to the limit; NULL if there is no
 * memory. */
static struct mst__chunk *chunk_new(struct mst__conn *conn, size_t capacity)
{
    struct mst__kv *kv = &conn->server->kv;
    if (!mst__kv_charge(kv, chunk_cost(capacity))) {
        return NULL;
    }
    struct mst__chunk *chunk = mst__slab_malloc(&kv->slabs, sizeof *chunk + capacity);
    if (chunk == NULL) {
        mst__kv_discharge(kv, chunk_cost(capacity));
        return NULL;
    }
    *chunk = (struct mst__chunk){.capacity = capacity, .bytes = chunk->own};
    return chunk;
}

/* Queue @bytes, which are in the block @shared unless that is NULL; false if out of memory. */
static bool output_put(struct mst__conn *conn, struct mst_bytes bytes, void *shared)
{
    struct mst__output *output = &conn->output;
    struct mst__chunk *chunk = output->last;
    if (chunk == NULL || shared != NULL || chunk->is_full ||
        bytes.size > chunk->capacity - chunk->size) {
        /* The first chunk has exactly the needed size: usually there is no second. */
        bool is_first = chunk == NULL || bytes.size >= CHUNK_SIZE_MIN;
        size_t capacity = is_first ? bytes.size : CHUNK_SIZE_MIN;
        chunk = chunk_new(conn, shared == NULL ? capacity : 0);
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

/* Queue bytes that the kernel did not take or, with @is_late, that wait for another turn. */
static void conn_queue(struct mst__conn *conn, struct mst_bytes bytes, void *shared, bool is_late)
{
    struct mst_server *server = conn->server;
    bool was_idle = !mst__conn_has_output(conn);
    if (!output_put(conn, bytes, shared)) {
        mst__conn_doom(conn, MST_WHY_MEMORY, "no memory for %zu bytes of unsent output",
                       bytes.size);
        return;
    }
    if (was_idle) {
        conn->output_taken = -1;
        conn->output_ms = mst__server_now_ms(server);
        conn->output_late_ms = 0;
    }
    if (is_late) {
        mst__conn_want_turn(conn);
    } else {
        conn_want_write(conn, true);
    }
    mst__conn_update_reading(conn);
    mst__conn_update_overdue(conn);
}

/* --- sending --- */

void mst__conn_send(struct mst__conn *conn, struct mst_bytes bytes, void *shared)
{
    if (conn->is_doomed || conn->is_closing || bytes.size == 0) {
        return;
    }
    size_t sent = MST_LIKELY(!mst__conn_has_output(conn)) ? conn_try(conn, bytes) : 0;
    if (MST_UNLIKELY(sent < bytes.size) && !conn->is_doomed) {
        conn_queue(conn, mst__bytes_skip(bytes, sent), shared, false);
    }
}

void mst__conn_push(struct mst__conn *conn, struct mst_bytes bytes, void *shared)
{
    size_t pending = conn->output.pending;
    if (pending > MST_BACKLOG_SIZE_MAX) {
        mst__conn_doom(conn, MST_WHY_DOES_NOT_READ, "%zu bytes unsent", pending);
        return;
    }
    if (!mst__conn_has_output(conn) && !conn->is_doomed && !conn->is_closing &&
        mst__turns_is_full(conn->server)) {
        conn_queue(conn, bytes, shared, true);
    } else {
        mst__conn_send(conn, bytes, shared);
    }
}

/* --- the end of it --- */

void mst__conn_free_output(struct mst__conn *conn)
{
    struct mst__output *output = &conn->output;
    while (output->first != NULL) {
        struct mst__chunk *chunk = output->first;
        output->first = chunk->next;
        chunk_free(&conn->server->kv, chunk);
    }
    *output = (struct mst__output){0};
}

/* --- too slow --- */

bool mst__conn_output_is_late(struct mst__conn *conn, int64_t now_ms)
{
    /* Bytes that have reached the peer's machine; the rest is here or in the kernel. */
    int64_t taken = (int64_t)conn->output_sent - (int64_t)mst__stream_unsent(&conn->io.stream);
    int64_t more = conn->output_taken < 0 ? 0 : taken - conn->output_taken;
    int64_t earned_ms = more * 1000 / (int64_t)MST_RATE_MIN;
    int64_t late_ms = conn->output_late_ms + (now_ms - conn->output_ms) - earned_ms;
    conn->output_late_ms = late_ms > 0 ? late_ms : 0;
    conn->output_taken = taken;
    conn->output_ms = now_ms;
    return late_ms >= conn->server->options.request_timeout_ms;
}
