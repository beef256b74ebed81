/* fuzz/fuzz_server.c - any bytes on three connections of a server.
 *
 * The input is a list of pieces: a byte that chooses connection and action, a byte that is the
 * length, the bytes. Each connection starts in the dialect of this target (FUZZ_DIALECT:
 * MST_DIALECT_A, _B or _C), or without a greeting if the input says so. The limits are small, so
 * that they are reached. Every input runs twice, in its pieces and byte by byte: all events must
 * be the same. At the end everything is deleted and no byte may still be counted as used. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "golden/model.h"

#ifndef FUZZ_DIALECT
#error "FUZZ_DIALECT says which dialect the connections start in"
#endif

enum { CONNS = 3 };

/* Actions of a piece. */
enum { HANG_UP, SILENCE, STRANGER, FEED_FIRST, ACTIONS = 16 };

struct run {
    struct mst__model model;
    bool bytewise;
    size_t fed_size;
    size_t output_size;
    uint8_t digest[8];
};

static const uint8_t digest_key[MST_SIPHASH_KEY_SIZE];

static void run_digest(struct run *run, struct mst_bytes bytes)
{
    uint8_t both[16];
    uint64_t hash = mst__siphash(digest_key, bytes.data, bytes.size);
    memcpy(both, run->digest, 8);
    memcpy(both + 8, &hash, 8);
    hash = mst__siphash(digest_key, both, sizeof both);
    memcpy(run->digest, &hash, 8);
}

static void on_event(void *arg, const struct mst__model_event *event)
{
    struct run *run = arg;
    uint8_t head[2] = {(uint8_t)event->kind, (uint8_t)event->conn};
    run_digest(run, mst_bytes_of(head, sizeof head));
    run_digest(run, event->bytes);
    run->output_size += event->bytes.size;
    if (event->kind == MST_MODEL_COMMAND) {
        /* The command is read to its last byte, so that invented bytes are noticed. */
        run_digest(run, event->command->key);
        run_digest(run, event->command->value);
        run_digest(run, event->command->expected);
        run_digest(run, event->command->items);
        MST_ASSERT(event->command->op < MST_OP_COUNT);
    }
    if (event->kind == MST_MODEL_CLOSED) {
        MST_ASSERT(event->err->code < 0);
        /* Not the text: for an unknown protocol it depends on the bytes seen so far. */
        run_digest(run, mst_bytes_of(&event->err->code, sizeof event->err->code));
    }
}

static void feed(struct run *run, size_t conn, struct mst_bytes bytes)
{
    run->fed_size += bytes.size;
    if (!run->bytewise) {
        mst__model_feed(&run->model, conn, bytes);
        return;
    }
    for (size_t i = 0; i < bytes.size; i++) {
        mst__model_feed(&run->model, conn, mst_bytes_of(bytes.data + i, 1));
    }
}

/* Open a connection and bring it to the dialect, through the protocol. */
static void greet(struct run *run, size_t conn)
{
    mst__model_open(&run->model, conn);
    if (FUZZ_DIALECT == MST_DIALECT_C) {
        feed(run, conn, mst_bytes_of("\0\xce\xf7\x85\x3c", 5));
    } else if (FUZZ_DIALECT == MST_DIALECT_B) {
        feed(run, conn, mst_bytes_of("\x0b", 1));
    } else {
        feed(run, conn, mst_bytes_of("\x08\0\0\0\0\0\0\0\0", 9));
        mst__model_settle(&run->model, conn);
    }
}

static void run_input(struct run *run, struct mst_bytes input)
{
    static const struct mst__model_limits limits = {
        .key_size_max = 40, .value_size_max = 100, .message_size_max = 600, .memory_max = 6000};
    mst__model_init(&run->model, &limits, on_event, run);
    for (size_t i = 0; i < CONNS; i++) {
        greet(run, i);
    }
    for (size_t at = 0; at + 2 <= input.size;) {
        size_t conn = input.data[at] % CONNS;
        unsigned action = input.data[at] / CONNS % ACTIONS;
        size_t size = input.data[at + 1];
        at += 2;
        if (action == SILENCE) {
            mst__model_settle(&run->model, conn);
        } else if (action == HANG_UP || !run->model.conns[conn].is_open) {
            mst__model_hang_up(&run->model, conn);
            greet(run, conn);
        } else if (action == STRANGER) {
            mst__model_hang_up(&run->model, conn);
            mst__model_open(&run->model, conn);
        }
        if (action >= STRANGER) {
            size = size < input.size - at ? size : input.size - at;
            feed(run, conn, mst_bytes_of(input.data + at, size));
            at += size;
        }
        mst__model_check(&run->model);
    }
    /* A request of one byte can return a whole message, and no byte more than that. */
    MST_ASSERT(run->output_size <= (run->fed_size + 1) * 1000);
    mst__model_close(&run->model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct run whole;
    static struct run bytewise;
    memset(&whole, 0, sizeof whole);
    memset(&bytewise, 0, sizeof bytewise);
    bytewise.bytewise = true;
    run_input(&whole, mst_bytes_of(data, size));
    run_input(&bytewise, mst_bytes_of(data, size));
    MST_ASSERT(whole.output_size == bytewise.output_size);
    MST_ASSERT(memcmp(whole.digest, bytewise.digest, sizeof whole.digest) == 0);
    return 0;
}
