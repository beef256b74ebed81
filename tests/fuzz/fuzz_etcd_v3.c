/* fuzz/fuzz_etcd_v3.c - any bytes as an answer of etcd's v3 API.
 *
 * The first byte of the input chooses the request, the second the operations of a transaction or
 * the HTTP status of an error; the rest is the answer. An accepted answer must be complete. */
#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "etcd/v3_message.h"

enum asked { RANGE, PUT, DELETE, TXN, LEASE, KEEP_ALIVE, TOKEN, STATUS, ERROR, LINE, ASKED };

#define OPS_MAX 4

static void assert_kv(const struct mst__v3_kv *kv)
{
    MST_ASSERT(kv->key.size > 0);
    MST_ASSERT(kv->key.data[kv->key.size] == '\0');
    MST_ASSERT(kv->value.data[kv->value.size] == '\0');
}

static void assert_refused(int rv, const struct mst_err *err)
{
    MST_ASSERT(rv == MST_EPROTO || rv == MST_ENOMEM || rv == MST_ELIMIT);
    MST_ASSERT(err->code == rv);
    MST_ASSERT(err->msg[0] != '\0');
}

static void assert_error(const struct mst__v3_error *error)
{
    MST_ASSERT(error->code < 0);
    MST_ASSERT(!error->is_untried || error->fate == MST_V3_TRANSIENT);
    for (size_t i = 0; error->message[i] != '\0'; i++) {
        MST_ASSERT(i < sizeof error->message - 1);
        MST_ASSERT((uint8_t)error->message[i] >= ' ');
    }
}

static void read_result(enum asked asked, uint8_t shape, struct mst_bytes body)
{
    /* Two bits are one operation. */
    struct mst__v3_op ops[OPS_MAX] = {0};
    for (size_t i = 0; i < OPS_MAX; i++) {
        ops[i].kind = (enum mst__v3_op_kind)((shape >> 2 * i & 3) % 3);
    }
    struct mst__v3_txn txn = {.success = ops,
                              .success_count = shape % (OPS_MAX + 1),
                              .failure = ops,
                              .failure_count = OPS_MAX - shape % (OPS_MAX + 1)};
    struct mst__v3_result result;
    struct mst_err err = {0};
    mst__v3_result_init(&result);
    int rv = asked == RANGE    ? mst__v3_read_range(body, &result, &err)
             : asked == PUT    ? mst__v3_read_put(body, &result, &err)
             : asked == DELETE ? mst__v3_read_delete(body, &result, &err)
                               : mst__v3_read_txn(body, &txn, &result, &err);
    if (rv != 0) {
        assert_refused(rv, &err);
        MST_ASSERT(result.ranges == NULL);
        MST_ASSERT(result.range_count == 0);
        return;
    }
    MST_ASSERT(result.revision > 0);
    if (asked == TXN) {
        MST_ASSERT(result.range_count ==
                   (result.succeeded ? txn.success_count : txn.failure_count));
    }
    for (size_t i = 0; i < result.range_count; i++) {
        for (size_t k = 0; k < result.ranges[i].count; k++) {
            assert_kv(&result.ranges[i].items[k]);
        }
    }
    mst__v3_result_close(&result);
}

static void read_line(struct mst_bytes body)
{
    struct mst__v3_line line;
    struct mst_err err = {0};
    int rv = mst__v3_read_line(body, &line, &err);
    if (rv != 0) {
        assert_refused(rv, &err);
    } else {
        MST_ASSERT(line.kind != MST_V3_LINE_EVENTS || line.event_count > 0);
        for (size_t i = 0; i < line.event_count; i++) {
            assert_kv(&line.events[i].kv);
            MST_ASSERT(line.events[i].kv.mod_revision > 0);
        }
        if (line.kind == MST_V3_LINE_ERROR || line.kind == MST_V3_LINE_CANCELED) {
            assert_error(&line.error);
        }
    }
    mst__v3_line_close(&line);
}

static void read_other(enum asked asked, struct mst_bytes body)
{
    struct mst_err err = {0};
    struct mst__v3_lease lease = {0};
    struct mst__v3_status status;
    char *token = NULL;
    int rv = 0;
    switch (asked) {
        case LEASE:
        case KEEP_ALIVE:
            rv = asked == LEASE ? mst__v3_read_lease(body, &lease, &err)
                                : mst__v3_read_keep_alive(body, &lease, &err);
            MST_ASSERT(rv != 0 || lease.id != 0);
            break;
        case TOKEN:
            rv = mst__v3_read_token(body, &token, &err);
            MST_ASSERT((rv == 0) == (token != NULL));
            MST_ASSERT(rv != 0 || token[0] > ' ');
            mst__free(token);
            break;
        default:
            rv = mst__v3_read_status(body, &status, &err);
            break;
    }
    if (rv != 0) {
        assert_refused(rv, &err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    enum asked asked = (enum asked)(data[0] % ASKED);
    struct mst_bytes body = mst_bytes_of(data + 2, size - 2);
    struct mst__v3_error error;
    int status = data[1] == 0 ? 200 : 100 + 4 * data[1];
    switch (asked) {
        case RANGE:
        case PUT:
        case DELETE:
        case TXN:
            read_result(asked, data[1], body);
            break;
        case ERROR:
            if (mst__v3_read_error(status, body, &error)) {
                assert_error(&error);
            } else {
                MST_ASSERT(status == 200);
            }
            break;
        case LINE:
            read_line(body);
            break;
        default:
            read_other(asked, body);
            break;
    }
    return 0;
}
