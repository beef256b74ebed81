/* golden/model.c - the server's loop of reading, applying and answering, as in net/conn.c.
 *
 * A connection is closed at its first error. Closing one may release others and leave notices,
 * so deliveries are made after every command and every close. */
#include "golden/model.h"

#include <string.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "kv/entry.h"

void mst__model_init(struct mst__model *model,
                     const struct mst__model_limits *limits,
                     mst__model_event_cb cb,
                     void *arg)
{
    static const uint8_t hash_key[MST_SIPHASH_KEY_SIZE] = {7};
    memset(model, 0, sizeof *model);
    model->cb = cb;
    model->cb_arg = arg;
    model->wire_limits = mst__wire_limits(limits->key_size_max, limits->value_size_max);
    if (limits->message_size_max != 0) {
        model->wire_limits.message_size_max = limits->message_size_max;
    }
    struct mst__kv_limits kv_limits = {
        .memory_max = limits->memory_max,
        .reply_max = model->wire_limits.message_size_max,
        .value_max = limits->value_size_max,
    };
    mst__kv_init(&model->kv, &kv_limits, hash_key);
    model->kv.announces = true;
    /* A list of keys is its count and the largest body that the engine makes. */
    mst__buf_init(&model->output, model->wire_limits.message_size_max + 8 + limits->key_size_max +
                                      2 * limits->value_size_max + 32);
}

static void emit(struct mst__model *model, const struct mst__model_event *event)
{
    if (model->cb != NULL) {
        model->cb(model->cb_arg, event);
    }
}

static size_t conn_index(struct mst__model *model, const struct mst__kv_client *client)
{
    for (size_t i = 0; i < MST_MODEL_CONNS_MAX; i++) {
        if (&model->conns[i].client == client) {
            return i;
        }
    }
    MST_ASSERT(client == NULL); /* the engine made a client up */
    return 0;
}

static void deliver(struct mst__model *model);
static void conn_fail(struct mst__model *model, size_t conn, const struct mst_err *err);

static void conn_close(struct mst__model *model, size_t conn)
{
    model->conns[conn].is_open = false;
    mst__kv_client_close(&model->kv, &model->conns[conn].client);
    mst__buf_close(&model->conns[conn].input);
    deliver(model);
}

static void conn_fail(struct mst__model *model, size_t conn, const struct mst_err *err)
{
    emit(model, &(struct mst__model_event){.kind = MST_MODEL_CLOSED, .conn = conn, .err = err});
    conn_close(model, conn);
}

/* 0, or an error of mst__wire_write_reply. */
static int conn_reply(struct mst__model *model, size_t conn, const struct mst__reply *reply)
{
    mst__buf_clear(&model->output);
    int rv = mst__wire_write_reply(&model->output, reply);
    if (rv == 0 && mst__buf_size(&model->output) > 0) {
        emit(model, &(struct mst__model_event){.kind = MST_MODEL_REPLY,
                                               .conn = conn,
                                               .reply = reply,
                                               .bytes = mst__buf_bytes(&model->output)});
    }
    return rv;
}

/* Deliver the effects of the last command to others. */
static void deliver(struct mst__model *model)
{
    static const struct mst__reply stop = {.kind = MST_REPLY_STATUS,
                                           .status = MST_STATUS_STOP_WAITING};
    struct mst__kv_client *client;
    while ((client = mst__kv_next_released(&model->kv)) != NULL) {
        size_t conn = conn_index(model, client);
        MST_ASSERT(model->conns[conn].is_open);
        MST_ASSERT(!mst__kv_is_waiting(client));
        int rv = conn_reply(model, conn, &stop);
        MST_ASSERT(rv == 0); /* one byte fits */
    }
    struct mst__kv_notice notice;
    while (mst__kv_next_notice(&model->kv, &notice)) {
        size_t conn = conn_index(model, notice.client);
        MST_ASSERT(model->conns[conn].is_open);
        if (notice.change == MST_KV_LOST) {
            struct mst_err err;
            (void)mst__fail(&err, MST_ENOMEM, 0, "notice"); /* fills err */
            conn_fail(model, conn, &err);
            continue;
        }
        enum mst__notice_kind kind = notice.change == MST_KV_CREATED   ? MST_NOTICE_CREATED
                                     : notice.change == MST_KV_DELETED ? MST_NOTICE_DELETED
                                                                       : MST_NOTICE_UPDATED;
        mst__buf_clear(&model->output);
        int rv = mst__wire_write_notice(&model->output, kind, notice.key, notice.old_value,
                                        notice.new_value);
        MST_ASSERT(rv == 0); /* the buffer has room for the largest key and two values */
        emit(model, &(struct mst__model_event){.kind = MST_MODEL_NOTICE,
                                               .conn = conn,
                                               .bytes = mst__buf_bytes(&model->output)});
    }
}

static void conn_apply(struct mst__model *model, size_t conn, const struct mst__command *command)
{
    struct mst__model_conn *self = &model->conns[conn];
    emit(model,
         &(struct mst__model_event){.kind = MST_MODEL_COMMAND, .conn = conn, .command = command});
    /* A client of dialect A ends a wait without a message; its next request shows it. */
    if (self->reader.dialect != MST_DIALECT_C && mst__kv_is_waiting(&self->client)) {
        mst__kv_cancel_wait(&model->kv, &self->client);
    }
    struct mst__reply reply;
    int rv = mst__kv_apply(&model->kv, &self->client, command, &reply);
    if (rv == 0) {
        rv = conn_reply(model, conn, &reply);
    }
    deliver(model);
    if (rv != 0) {
        struct mst_err err;
        (void)mst__fail(&err, rv, 0, "%s", mst__op_name(command->op)); /* fills err */
        conn_fail(model, conn, &err);
    }
}

void mst__model_open(struct mst__model *model, size_t conn)
{
    MST_ASSERT(conn < MST_MODEL_CONNS_MAX);
    struct mst__model_conn *self = &model->conns[conn];
    MST_ASSERT(!self->is_open);
    memset(self, 0, sizeof *self);
    mst__kv_client_init(&self->client);
    mst__wire_reader_init(&self->reader);
    mst__buf_init(&self->input, SIZE_MAX / 8);
    self->is_open = true;
}

/* Serve all whole requests that have arrived. */
static void conn_serve(struct mst__model *model, size_t conn)
{
    struct mst__model_conn *self = &model->conns[conn];
    self->in_grace = false;
    while (self->is_open) {
        struct mst_bytes input = mst__buf_bytes(&self->input);
        struct mst__command command;
        struct mst_err err;
        size_t size = 0;
        int rv = mst__wire_read_request(&self->reader, &model->wire_limits, input, &command, &size,
                                        &err);
        if (rv < 0) {
            conn_fail(model, conn, &err);
            return;
        }
        if (rv == MST_WIRE_MORE || rv == MST_WIRE_EITHER) {
            /* A request for no more bytes than there are would never end. */
            MST_ASSERT(size > input.size);
            self->input_wanted = size;
            self->in_grace = rv == MST_WIRE_EITHER;
            return;
        }
        MST_ASSERT(size > 0);
        MST_ASSERT(size <= input.size);
        if (rv == MST_WIRE_REQUEST) {
            conn_apply(model, conn, &command);
        }
        if (self->is_open) {
            mst__buf_consume(&self->input, size);
        }
    }
}

void mst__model_feed(struct mst__model *model, size_t conn, struct mst_bytes bytes)
{
    struct mst__model_conn *self = &model->conns[conn];
    if (!self->is_open || bytes.size == 0) {
        return;
    }
    int rv = mst__buf_append(&self->input, bytes);
    MST_ASSERT(rv == 0); /* scripts and fuzz inputs are small */
    conn_serve(model, conn);
}

void mst__model_settle(struct mst__model *model, size_t conn)
{
    struct mst__model_conn *self = &model->conns[conn];
    if (self->is_open && self->in_grace) {
        mst__wire_settle_a(&self->reader);
        conn_serve(model, conn);
    }
}

void mst__model_hang_up(struct mst__model *model, size_t conn)
{
    if (model->conns[conn].is_open) {
        conn_close(model, conn);
    }
}

void mst__model_check(const struct mst__model *model)
{
    const struct mst__kv *kv = &model->kv;
    MST_ASSERT(kv->memory_used <= kv->limits.memory_max);
    size_t keys = 0;
    size_t bytes = 0;
    for (const struct mst__kv_entry *entry = mst__map_first(&kv->map); entry != NULL;
         entry = mst__map_next(entry)) {
        bool in_use = mst__kv_entry_exists(entry) || mst__kv_entry_is_waited_for(entry) ||
                      entry->queue.count > 0 || entry->queue.promised_count > 0 ||
                      entry->watches != NULL;
        MST_ASSERT(in_use);
        MST_ASSERT(entry->block == NULL || entry->block->size <= entry->block->u.capacity);
        /* No client sleeps beside a queue with enough items. */
        bool asleep = entry->lines[MST_KV_LINE_KEY] != NULL;
        MST_ASSERT(!asleep || entry->queue.count <= entry->queue.promised_count);
        keys += mst__kv_entry_exists(entry) ? 1 : 0;
        bytes += mst__map_cost(&kv->map, mst__map_key(entry).size);
        bytes += entry->block == NULL
                     ? 0
                     : mst__slab_cost(sizeof *entry->block + entry->block->u.capacity);
    }
    MST_ASSERT(keys == kv->keys_count);
    MST_ASSERT(bytes <= kv->memory_used);
}

/* Delete the content of @entry, and so the entry. */
static void erase(struct mst__model *model,
                  struct mst__kv_client *client,
                  const struct mst__kv_entry *entry)
{
    size_t count_before = mst__map_count(&model->kv.map);
    uint8_t key[MST_KIB(8)];
    struct mst_bytes borrowed = mst__map_key(entry);
    MST_ASSERT(borrowed.size <= sizeof key);
    if (borrowed.size > 0) {
        memcpy(key, borrowed.data, borrowed.size);
    }
    size_t items_count = entry->queue.count;
    struct mst__command command = {.op = MST_OP_QUEUE_POP, .key = mst_bytes_of(key, borrowed.size)};
    struct mst__reply reply;
    for (size_t i = 0; i < items_count; i++) {
        int rv = mst__kv_apply(&model->kv, client, &command, &reply);
        MST_ASSERT(rv == 0);
        MST_ASSERT(reply.number == (int64_t)(items_count - i));
    }
    command.op = MST_OP_DELETE;
    int rv = mst__kv_apply(&model->kv, client, &command, &reply);
    MST_ASSERT(rv == 0);
    MST_ASSERT(mst__map_count(&model->kv.map) == count_before - 1);
}

void mst__model_close(struct mst__model *model)
{
    model->cb = NULL;
    for (size_t i = 0; i < MST_MODEL_CONNS_MAX; i++) {
        mst__model_hang_up(model, i);
    }
    mst__model_check(model);
    struct mst__kv_client client;
    mst__kv_client_init(&client);
    const struct mst__kv_entry *entry;
    while ((entry = mst__map_first(&model->kv.map)) != NULL) {
        erase(model, &client, entry);
    }
    mst__kv_client_close(&model->kv, &client);
    MST_ASSERT(model->kv.keys_count == 0);
    MST_ASSERT(model->kv.memory_used == 0);
    mst__kv_close(&model->kv);
    mst__buf_close(&model->output);
}
