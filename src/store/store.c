/* store/store.c - the public calls, and everything that takes several commands.
 *
 * A struct call has the keys in the form of the storage, the deadline and the answer. Waiting for a
 * value, popping from an empty queue, and barriers and appends on servers without them are loops
 * over commands of a storage, and work alike on every store. */
#include "store/store.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/require.h"
#include "base/siphash.h"
#include "store/backoff.h"
#include "wire/wire.h"

/* Counts for the whole process, for benchmarks. */
static _Atomic uint64_t operations_total;
static _Atomic uint64_t waits_total;

int mst__answer_take(struct mst__answer *result, struct mst_bytes bytes)
{
    int rv = 0;
    if (bytes.size == 0) {
        return 0; /* cannot fail, because the command is done */
    }
    uint8_t *to = mst__buf_reserve(&result->memory, bytes.size + 1, &rv);
    if (to == NULL) {
        return rv;
    }
    memcpy(to, bytes.data, bytes.size);
    mst__buf_commit(&result->memory, bytes.size);
    result->reply.bytes = mst__buf_bytes(&result->memory);
    return 0;
}

/* --- one call --- */

struct call {
    struct mst_store *store;
    struct mst__until until;
    bool is_entered;       /* the handle can interrupt it */
    struct mst__buf items; /* the keys, and the values of MULTI_SET */
    struct mst__command command;
    struct mst__answer result;
    const char *name;           /* for messages: the name of the call, */
    struct mst_bytes shown_key; /* and its key, the first of several */
    size_t keys_count;
    struct mst_err *reterr;
};

/* Stands for the descriptor of the call's handle. */
#define HANDLE_FD (-2)

/* For calls of the application, which its handle can interrupt. Nested calls get the until of the
 * call. */
static struct mst__until by_handle(int64_t timeout_ms)
{
    return mst__until_by(HANDLE_FD, timeout_ms);
}

static int call_enter(struct call *call)
{
    struct mst_store *store = call->store;
    if (call->until.wake_fd != HANDLE_FD) {
        return 0;
    }
    int rv = mst__store_enter(store, call->reterr);
    if (rv != 0) {
        return rv;
    }
    call->is_entered = true;
    call->until.wake_fd = store->wake_fd;
    /* Before anything is sent that would then have no answer. */
    return store->storage->ops->is_remote && mst__store_is_interrupted(store)
               ? mst__fail(call->reterr, MST_ECANCELED, 0, "interrupted")
               : 0;
}

/* Set up a call of @op on @keys. Call call_end also on failure. */
static int call_begin(struct call *call,
                      struct mst_store *store,
                      enum mst__op op,
                      const struct mst_bytes *keys,
                      const struct mst_bytes *values,
                      size_t keys_count,
                      struct mst__until until,
                      struct mst_err *reterr)
{
    const struct mst_store_options *options = &store->storage->options;
    struct mst__wire_limits limits =
        mst__wire_limits(options->key_size_max, options->value_size_max);
    *call = (struct call){
        .store = store,
        .until = until,
        .command = {.op = op, .count = keys_count, .epoch = store->epoch},
        .name = mst__op_name(op),
        .shown_key = keys_count == 0 ? mst_bytes_of(NULL, 0) : keys[0],
        .keys_count = keys_count,
        .reterr = reterr,
    };
    mst__buf_init(&call->items, limits.message_size_max);
    mst__buf_init(&call->result.memory, limits.message_size_max);
    int rv = call_enter(call);
    if (rv == 0) {
        rv = mst__prefix_keys(store, keys, values, keys_count, &call->items, reterr);
    }
    if (rv != 0) {
        return rv;
    }
    call->command.items = mst__buf_bytes(&call->items);
    struct mst_bytes items = call->command.items;
    if (keys_count > 0) {
        bool there = mst__items_next(&items, &call->command.key);
        MST_ASSERT(there);
    }
    return 0;
}

static int call_check_value(const struct call *call, struct mst_bytes value)
{
    size_t value_size_max = call->store->storage->options.value_size_max;
    if (value.size <= value_size_max) {
        return 0;
    }
    return mst__fail(call->reterr, MST_ELIMIT, 0, "a value of %zu bytes exceeds the limit of %zu",
                     value.size, value_size_max);
}

struct mst__store_totals mst__store_totals(void)
{
    return (struct mst__store_totals){.operations = atomic_load(&operations_total),
                                      .waits = atomic_load(&waits_total)};
}

/* Execute @op with the call's keys and arguments. */
static int call_run(struct call *call, enum mst__op op)
{
    struct mst__storage *storage = call->store->storage;
    bool is_wait = op == MST_OP_WAIT || op == MST_OP_BARRIER || op == MST_OP_WAIT_CHANGE;
    atomic_fetch_add(is_wait ? &waits_total : &operations_total, 1);
    call->command.op = op;
    mst__buf_clear(&call->result.memory);
    call->result.reply = (struct mst__reply){0};
    return storage->ops->execute(storage, &call->command, call->until, &call->result, call->reterr);
}

/* Move the bytes of the answer to the caller. */
static int call_take_bytes(struct call *call, struct mst_buffer *ret_value)
{
    int rv = mst__buf_release(&call->result.memory, ret_value);
    return rv == 0 ? 0 : mst__fail(call->reterr, rv, 0, "value");
}

/* Release the call, and add its name and key to the error. Returns @rv. */
static int call_end(struct call *call, int rv)
{
    mst__buf_close(&call->items);
    mst__buf_close(&call->result.memory);
    if (call->is_entered) {
        rv = mst__store_leave(call->store, rv, call->reterr);
    }
    if (rv >= 0) {
        return rv;
    }
    if (call->keys_count == 0) {
        return mst__err_wrap(call->reterr, rv, "%s", call->name);
    }
    char key[MST_KEY_TEXT_SIZE];
    (void)mst__key_text(call->shown_key, key);
    if (call->keys_count == 1) {
        return mst__err_wrap(call->reterr, rv, "%s %s", call->name, key);
    }
    return mst__err_wrap(call->reterr, rv, "%s %s and %zu more", call->name, key,
                         call->keys_count - 1);
}

/* --- plain operations --- */

int mst__store_set(struct mst_store *store,
                   struct mst_bytes key,
                   struct mst_bytes value,
                   struct mst__until until,
                   struct mst_err *reterr)
{
    struct call call;
    int rv = call_begin(&call, store, MST_OP_SET, &key, NULL, 1, until, reterr);
    if (rv == 0) {
        rv = call_check_value(&call, value);
    }
    if (rv == 0) {
        call.command.value = value;
        rv = call_run(&call, MST_OP_SET);
    }
    return call_end(&call, rv);
}

int mst_store_set(struct mst_store *store,
                  struct mst_bytes key,
                  struct mst_bytes value,
                  int64_t timeout_ms,
                  struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_BYTES(key, reterr);
    MST_REQUIRE_BYTES(value, reterr);
    return mst__store_set(store, key, value, by_handle(timeout_ms), reterr);
}

int mst__store_add(struct mst_store *store,
                   struct mst_bytes key,
                   int64_t delta,
                   struct mst__until until,
                   int64_t *ret_sum,
                   struct mst_err *reterr)
{
    struct call call;
    int rv = call_begin(&call, store, MST_OP_ADD, &key, NULL, 1, until, reterr);
    if (rv == 0) {
        call.command.number = delta;
        rv = call_run(&call, MST_OP_ADD);
    }
    if (rv == 0) {
        *ret_sum = call.result.reply.number;
    }
    return call_end(&call, rv);
}

int mst_store_add(struct mst_store *store,
                  struct mst_bytes key,
                  int64_t delta,
                  int64_t timeout_ms,
                  int64_t *ret_sum,
                  struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_BYTES(key, reterr);
    MST_REQUIRE(ret_sum, reterr);
    return mst__store_add(store, key, delta, by_handle(timeout_ms), ret_sum, reterr);
}

int mst__store_check(struct mst_store *store,
                     const struct mst_bytes *keys,
                     size_t keys_count,
                     struct mst__until until,
                     bool *ret_exist,
                     struct mst_err *reterr)
{
    struct call call;
    int rv = call_begin(&call, store, MST_OP_CHECK, keys, NULL, keys_count, until, reterr);
    if (rv == 0) {
        rv = call_run(&call, MST_OP_CHECK);
    }
    if (rv == 0) {
        *ret_exist = call.result.reply.status == MST_STATUS_READY;
    }
    return call_end(&call, rv);
}

int mst_store_check(struct mst_store *store,
                    const struct mst_bytes *keys,
                    size_t keys_count,
                    int64_t timeout_ms,
                    bool *ret_exist,
                    struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_LIST(keys, keys_count, reterr);
    MST_REQUIRE(ret_exist, reterr);
    return mst__store_check(store, keys, keys_count, by_handle(timeout_ms), ret_exist, reterr);
}

int mst__store_wait(struct mst_store *store,
                    const struct mst_bytes *keys,
                    size_t keys_count,
                    struct mst__until until,
                    struct mst_err *reterr)
{
    struct call call;
    int rv = call_begin(&call, store, MST_OP_WAIT, keys, NULL, keys_count, until, reterr);
    if (rv == 0) {
        rv = call_run(&call, MST_OP_WAIT);
    }
    return call_end(&call, rv);
}

int mst_store_wait(struct mst_store *store,
                   const struct mst_bytes *keys,
                   size_t keys_count,
                   int64_t timeout_ms,
                   struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_LIST(keys, keys_count, reterr);
    return mst__store_wait(store, keys, keys_count, by_handle(timeout_ms), reterr);
}

int mst__store_wait_change(struct mst_store *store,
                           struct mst_bytes key,
                           const struct mst_bytes *value,
                           struct mst__until until,
                           struct mst_err *reterr)
{
    struct call call;
    int rv = call_begin(&call, store, MST_OP_WAIT_CHANGE, &key, NULL, 1, until, reterr);
    if (rv == 0) {
        call.command.number = value == NULL ? 0 : (int64_t)mst__fingerprint(*value);
        rv = call_run(&call, MST_OP_WAIT_CHANGE);
    }
    return call_end(&call, rv);
}

int mst__store_await(struct mst_store *store,
                     struct mst_bytes key,
                     int64_t timeout_ms,
                     struct mst_err *reterr)
{
    struct mst__until until = by_handle(timeout_ms);
    int rv = mst__store_wait_change(store, key, NULL, until, reterr);
    return rv == MST_ENOTSUP ? mst__store_wait(store, &key, 1, until, reterr) : rv;
}

/* The meaning of the answer to COMPARE_SET, see the table in docs/protocol.md. */
static enum mst_compare_set compare_set_outcome(const struct call *call)
{
    const struct mst__reply *reply = &call->result.reply;
    if (!reply->found && call->command.expected.size > 0) {
        return MST_COMPARE_SET_ABSENT;
    }
    return mst__bytes_equal(reply->bytes, call->command.value) ? MST_COMPARE_SET_DONE
                                                               : MST_COMPARE_SET_DIFFERS;
}

static int compare_set_run(struct call *call,
                           struct mst_bytes expected,
                           struct mst_bytes desired,
                           enum mst_compare_set *ret_outcome)
{
    int rv = call_check_value(call, expected);
    if (rv == 0) {
        rv = call_check_value(call, desired);
    }
    /* Reserve room for the answer first: a value that was set must not return MST_ENOMEM. */
    if (rv == 0 && mst__buf_reserve(&call->result.memory, desired.size + 1, &rv) == NULL) {
        rv = mst__fail(call->reterr, rv, 0, "answer of %zu bytes", desired.size);
    }
    if (rv == 0) {
        call->command.expected = expected;
        call->command.value = desired;
        rv = call_run(call, MST_OP_COMPARE_SET);
    }
    if (rv == 0) {
        *ret_outcome = compare_set_outcome(call);
    }
    return rv;
}

int mst__store_compare_set(struct mst_store *store,
                           struct mst_bytes key,
                           struct mst_bytes expected,
                           struct mst_bytes desired,
                           struct mst__until until,
                           enum mst_compare_set *ret_outcome,
                           struct mst_buffer *ret_value,
                           struct mst_err *reterr)
{
    struct call call;
    enum mst_compare_set outcome = MST_COMPARE_SET_DONE;
    int rv = call_begin(&call, store, MST_OP_COMPARE_SET, &key, NULL, 1, until, reterr);
    if (rv == 0) {
        rv = compare_set_run(&call, expected, desired, &outcome);
    }
    if (rv == 0 && ret_value != NULL) {
        if (outcome == MST_COMPARE_SET_ABSENT) {
            mst__buf_clear(&call.result.memory);
        }
        rv = call_take_bytes(&call, ret_value);
    }
    if (rv == 0) {
        *ret_outcome = outcome;
    }
    return call_end(&call, rv);
}

int mst_store_compare_set(struct mst_store *store,
                          struct mst_bytes key,
                          struct mst_bytes expected,
                          struct mst_bytes desired,
                          int64_t timeout_ms,
                          enum mst_compare_set *ret_outcome,
                          struct mst_buffer *ret_value,
                          struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_BYTES(key, reterr);
    MST_REQUIRE_BYTES(expected, reterr);
    MST_REQUIRE_BYTES(desired, reterr);
    MST_REQUIRE(ret_outcome, reterr);
    return mst__store_compare_set(store, key, expected, desired, by_handle(timeout_ms), ret_outcome,
                                  ret_value, reterr);
}

int mst__store_delete(struct mst_store *store,
                      struct mst_bytes key,
                      struct mst__until until,
                      bool *ret_existed,
                      struct mst_err *reterr)
{
    struct call call;
    int rv = call_begin(&call, store, MST_OP_DELETE, &key, NULL, 1, until, reterr);
    if (rv == 0) {
        rv = call_run(&call, MST_OP_DELETE);
    }
    if (rv == 0 && ret_existed != NULL) {
        *ret_existed = call.result.reply.number > 0;
    }
    return call_end(&call, rv);
}

int mst_store_delete(struct mst_store *store,
                     struct mst_bytes key,
                     int64_t timeout_ms,
                     bool *ret_existed,
                     struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_BYTES(key, reterr);
    return mst__store_delete(store, key, by_handle(timeout_ms), ret_existed, reterr);
}

int mst_store_num_keys(struct mst_store *store,
                       int64_t timeout_ms,
                       int64_t *ret_count,
                       struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE(ret_count, reterr);
    struct call call;
    int rv =
        call_begin(&call, store, MST_OP_NUM_KEYS, NULL, NULL, 0, by_handle(timeout_ms), reterr);
    if (rv == 0) {
        rv = call_run(&call, MST_OP_NUM_KEYS);
    }
    if (rv == 0) {
        *ret_count = call.result.reply.number;
    }
    return call_end(&call, rv);
}

int mst_store_list(struct mst_store *store,
                   int64_t timeout_ms,
                   struct mst_keys *ret_keys,
                   struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE(ret_keys, reterr);
    struct call call;
    int rv =
        call_begin(&call, store, MST_OP_LIST_KEYS, NULL, NULL, 0, by_handle(timeout_ms), reterr);
    if (rv == 0) {
        rv = call_run(&call, MST_OP_LIST_KEYS);
    }
    if (rv == 0) {
        rv = mst__prefix_strip(store, &call.result, ret_keys, reterr);
    }
    return call_end(&call, rv);
}

int mst_store_queue_push(struct mst_store *store,
                         struct mst_bytes key,
                         struct mst_bytes value,
                         int64_t timeout_ms,
                         struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_BYTES(key, reterr);
    MST_REQUIRE_BYTES(value, reterr);
    struct call call;
    int rv =
        call_begin(&call, store, MST_OP_QUEUE_PUSH, &key, NULL, 1, by_handle(timeout_ms), reterr);
    if (rv == 0) {
        rv = call_check_value(&call, value);
    }
    if (rv == 0) {
        call.command.value = value;
        rv = call_run(&call, MST_OP_QUEUE_PUSH);
    }
    return call_end(&call, rv);
}

int mst_store_queue_len(struct mst_store *store,
                        struct mst_bytes key,
                        int64_t timeout_ms,
                        int64_t *ret_count,
                        struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_BYTES(key, reterr);
    MST_REQUIRE(ret_count, reterr);
    struct call call;
    int rv =
        call_begin(&call, store, MST_OP_QUEUE_LEN, &key, NULL, 1, by_handle(timeout_ms), reterr);
    if (rv == 0) {
        rv = call_run(&call, MST_OP_QUEUE_LEN);
    }
    if (rv == 0) {
        *ret_count = call.result.reply.number;
    }
    return call_end(&call, rv);
}

/* --- waiting for a value --- */

/* A wait can end although the value is gone again or never existed: a queue satisfies a wait for
 * the key of the same name, and vice versa. Pause briefly, so as not to spin. */
#define AGAIN_MS_FIRST 1
#define AGAIN_MS_MAX 50

/* Execute @op, GET or QUEUE_POP, and report whether it found something. */
static int fetch_try(struct call *call, enum mst__op op, bool *ret_found)
{
    int rv = call_run(call, op);
    const struct mst__reply *reply = &call->result.reply;
    *ret_found = rv == 0 && (op == MST_OP_GET ? reply->found : reply->number > 0);
    return rv;
}

/* Check whether there is anything to fetch, without taking it. */
static int fetch_look(struct call *call, enum mst__op op, bool *ret_found)
{
    int rv = op == MST_OP_GET ? 0 : call_run(call, MST_OP_QUEUE_LEN);
    *ret_found = op == MST_OP_GET || (rv == 0 && call->result.reply.number > 0);
    return rv;
}

/* Execute @op, GET or QUEUE_POP; with @block repeatedly until it finds something. */
static int fetch(struct call *call, enum mst__op op, bool block)
{
    call->command.blocks = block && op == MST_OP_GET && call->store->storage->ops->can_block;
    struct mst__backoff backoff;
    mst__backoff_init(&backoff, AGAIN_MS_FIRST, AGAIN_MS_MAX);
    for (unsigned round = 0;; round++) {
        int rv = 0;
        bool found = true;
        if (round > 1) {
            /* An earlier wait ended in vain. A pop that the deadline cuts off may lose an item, so
             * check first from now on. */
            rv = fetch_look(call, op, &found);
        }
        if (rv == 0 && found) {
            rv = fetch_try(call, op, &found);
        }
        if (rv != 0 || found) {
            return rv;
        }
        if (!block) {
            return mst__fail(call->reterr, MST_ENOTFOUND, 0,
                             op == MST_OP_GET ? "no such key" : "the queue is empty");
        }
        rv = call_run(call, MST_OP_WAIT);
        if (rv != 0) {
            return rv;
        }
        if (round > 0 && !mst__backoff_pause(&backoff, call->until)) {
            return mst__fail(call->reterr, MST_ETIMEOUT, 0, "deadline passed");
        }
    }
}

int mst__store_fetch(struct mst_store *store,
                     struct mst_bytes key,
                     enum mst__op op,
                     bool block,
                     struct mst__until until,
                     struct mst_buffer *ret_value,
                     struct mst_err *reterr)
{
    struct call call;
    int rv = call_begin(&call, store, op, &key, NULL, 1, until, reterr);
    if (rv == 0) {
        rv = fetch(&call, op, block);
    }
    if (rv == 0) {
        rv = call_take_bytes(&call, ret_value);
    }
    return call_end(&call, rv);
}

int mst_store_get(struct mst_store *store,
                  struct mst_bytes key,
                  int64_t timeout_ms,
                  struct mst_buffer *ret_value,
                  struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_BYTES(key, reterr);
    MST_REQUIRE(ret_value, reterr);
    return mst__store_fetch(store, key, MST_OP_GET, true, by_handle(timeout_ms), ret_value, reterr);
}

int mst_store_try_get(struct mst_store *store,
                      struct mst_bytes key,
                      int64_t timeout_ms,
                      struct mst_buffer *ret_value,
                      struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_BYTES(key, reterr);
    MST_REQUIRE(ret_value, reterr);
    return mst__store_fetch(store, key, MST_OP_GET, false, by_handle(timeout_ms), ret_value,
                            reterr);
}

int mst_store_queue_pop(struct mst_store *store,
                        struct mst_bytes key,
                        bool block,
                        int64_t timeout_ms,
                        struct mst_buffer *ret_value,
                        struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_BYTES(key, reterr);
    MST_REQUIRE(ret_value, reterr);
    return mst__store_fetch(store, key, MST_OP_QUEUE_POP, block, by_handle(timeout_ms), ret_value,
                            reterr);
}

/* --- several keys --- */

static void buffers_free(struct mst_buffer *buffers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mst_buffer_free(&buffers[i]);
    }
}

/* Split the answer into @values. */
static int multi_get_split(struct call *call, struct mst_buffer *values)
{
    struct mst_bytes items = call->result.reply.bytes;
    for (size_t i = 0; i < call->keys_count; i++) {
        struct mst_bytes item;
        int rv = 0;
        if (!mst__items_next(&items, &item)) {
            rv = mst__fail(call->reterr, MST_EPROTO, 0, "answer with fewer values than keys");
        } else {
            values[i].data = (uint8_t *)mst__memdup(item.data, item.size);
            values[i].size = item.size;
            if (values[i].data == NULL) {
                rv = mst__fail(call->reterr, MST_ENOMEM, 0, "value of %zu bytes", item.size);
            }
        }
        if (rv != 0) {
            buffers_free(values, i);
            return rv;
        }
    }
    return 0;
}

static bool multi_get_has_empty(const struct call *call)
{
    struct mst_bytes items = call->result.reply.bytes;
    struct mst_bytes item;
    for (size_t i = 0; i < call->keys_count && mst__items_next(&items, &item); i++) {
        if (item.size == 0) {
            return true;
        }
    }
    return false;
}

/* Wait for all keys, then get them with one MULTI_GET. Servers answer a key that has vanished in
 * between with an empty value, so after an empty value check that the keys still exist. */
static int multi_get_run(struct call *call, struct mst_buffer *values)
{
    struct mst__backoff backoff;
    mst__backoff_init(&backoff, AGAIN_MS_FIRST, AGAIN_MS_MAX);
    for (;;) {
        int rv = call_run(call, MST_OP_WAIT);
        if (rv == 0) {
            rv = call_run(call, MST_OP_MULTI_GET);
        }
        if (rv != 0) {
            return rv;
        }
        bool sure = !multi_get_has_empty(call);
        rv = multi_get_split(call, values);
        if (rv != 0 || sure) {
            return rv;
        }
        rv = call_run(call, MST_OP_CHECK);
        if (rv == 0 && call->result.reply.status == MST_STATUS_READY) {
            return 0;
        }
        buffers_free(values, call->keys_count);
        if (rv != 0) {
            return rv;
        }
        if (!mst__backoff_pause(&backoff, call->until)) {
            return mst__fail(call->reterr, MST_ETIMEOUT, 0, "deadline passed");
        }
    }
}

/* One key at a time, for stores without MULTI_GET. */
static int multi_get_singly(struct mst_store *store,
                            const struct mst_bytes *keys,
                            size_t keys_count,
                            struct mst__until until,
                            struct mst_buffer *values,
                            struct mst_err *reterr)
{
    for (size_t i = 0; i < keys_count; i++) {
        int rv = mst__store_fetch(store, keys[i], MST_OP_GET, true, until, &values[i], reterr);
        if (rv != 0) {
            buffers_free(values, i);
            return rv;
        }
    }
    return 0;
}

int mst__store_multi_get(struct mst_store *store,
                         const struct mst_bytes *keys,
                         size_t keys_count,
                         struct mst__until until,
                         struct mst_buffer *ret_values,
                         struct mst_err *reterr)
{
    struct call call;
    if (keys_count == 0) {
        return 0;
    }
    struct mst_buffer *values = mst__calloc(keys_count, sizeof *values);
    if (values == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "multi_get of %zu keys", keys_count);
    }
    int rv = call_begin(&call, store, MST_OP_MULTI_GET, keys, NULL, keys_count, until, reterr);
    if (rv == 0) {
        rv = multi_get_run(&call, values);
    }
    rv = call_end(&call, rv);
    if (rv == MST_ENOTSUP) {
        rv = multi_get_singly(store, keys, keys_count, until, values, reterr);
    }
    if (rv == 0) {
        memcpy(ret_values, values, keys_count * sizeof *values);
    }
    mst__free(values);
    return rv;
}

int mst_store_multi_get(struct mst_store *store,
                        const struct mst_bytes *keys,
                        size_t keys_count,
                        int64_t timeout_ms,
                        struct mst_buffer *ret_values,
                        struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_LIST(keys, keys_count, reterr);
    if (keys_count > 0) {
        MST_REQUIRE(ret_values, reterr);
    }
    return mst__store_multi_get(store, keys, keys_count, by_handle(timeout_ms), ret_values, reterr);
}

int mst__store_multi_set(struct mst_store *store,
                         const struct mst_bytes *keys,
                         const struct mst_bytes *values,
                         size_t keys_count,
                         struct mst__until until,
                         struct mst_err *reterr)
{
    struct call call;
    int rv = call_begin(&call, store, MST_OP_MULTI_SET, keys, values, keys_count, until, reterr);
    if (rv == 0) {
        rv = call_run(&call, MST_OP_MULTI_SET);
    }
    if (rv == MST_ENOTSUP) {
        /* One at a time: PyTorch's MULTI_SET does not promise more. */
        rv = 0;
        struct mst_bytes items = call.command.items;
        while (rv == 0 && mst__items_next(&items, &call.command.key) &&
               mst__items_next(&items, &call.command.value)) {
            rv = call_run(&call, MST_OP_SET);
        }
    }
    return call_end(&call, rv);
}

int mst_store_multi_set(struct mst_store *store,
                        const struct mst_bytes *keys,
                        const struct mst_bytes *values,
                        size_t keys_count,
                        int64_t timeout_ms,
                        struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_LIST(keys, keys_count, reterr);
    MST_REQUIRE_LIST(values, keys_count, reterr);
    return mst__store_multi_set(store, keys, values, keys_count, by_handle(timeout_ms), reterr);
}

/* --- append --- */

/* For servers without APPEND: read, and write unless another client has written in between. As
 * everywhere in this protocol, two clients that append the same bytes to the same value at the same
 * time cannot be distinguished. */
static int append_by_compare_set(struct call *call, struct mst_bytes piece)
{
    struct mst__backoff backoff;
    mst__backoff_init(&backoff, AGAIN_MS_FIRST, AGAIN_MS_MAX);
    struct mst__buf whole;
    mst__buf_init(&whole, call->items.size_max);
    int rv = 0;
    for (;;) {
        mst__buf_clear(&whole);
        rv = call_run(call, MST_OP_GET);
        if (rv != 0) {
            break;
        }
        size_t old_size = call->result.reply.bytes.size;
        rv = mst__buf_append(&whole, call->result.reply.bytes);
        if (rv == 0) {
            rv = mst__buf_append(&whole, piece);
        }
        if (rv != 0) {
            rv = mst__fail(call->reterr, rv, 0, "value of %zu bytes", old_size + piece.size);
            break;
        }
        struct mst_bytes desired = mst__buf_bytes(&whole);
        enum mst_compare_set outcome;
        rv = compare_set_run(call, mst_bytes_of(desired.data, old_size), desired, &outcome);
        if (rv != 0 || outcome == MST_COMPARE_SET_DONE) {
            break;
        }
        if (!mst__backoff_pause(&backoff, call->until)) {
            rv = mst__fail(call->reterr, MST_ETIMEOUT, 0, "others kept changing the value");
            break;
        }
    }
    mst__buf_close(&whole);
    return rv;
}

int mst_store_append(struct mst_store *store,
                     struct mst_bytes key,
                     struct mst_bytes value,
                     int64_t timeout_ms,
                     struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_BYTES(key, reterr);
    MST_REQUIRE_BYTES(value, reterr);
    struct call call;
    int rv = call_begin(&call, store, MST_OP_APPEND, &key, NULL, 1, by_handle(timeout_ms), reterr);
    if (rv == 0) {
        rv = call_check_value(&call, value);
    }
    if (rv == 0) {
        call.command.value = value;
        rv = call_run(&call, MST_OP_APPEND);
        if (rv == MST_ENOTSUP) {
            rv = append_by_compare_set(&call, value);
        }
    }
    return call_end(&call, rv);
}

/* --- barrier --- */

int mst_store_barrier(struct mst_store *store,
                      struct mst_bytes key,
                      int64_t size,
                      int64_t timeout_ms,
                      struct mst_err *reterr)
{
    MST_REQUIRE(store, reterr);
    MST_REQUIRE_BYTES(key, reterr);
    struct call call;
    struct mst__until until = by_handle(timeout_ms);
    int rv = call_begin(&call, store, MST_OP_BARRIER, &key, NULL, 1, until, reterr);
    if (rv == 0) {
        call.command.number = size;
        rv = call_run(&call, MST_OP_BARRIER);
        if (rv == MST_ENOTSUP) {
            rv = mst__barrier_by_list(store, key, size, call.until, reterr);
        }
    }
    return call_end(&call, rv);
}
