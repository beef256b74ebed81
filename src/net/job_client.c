/* net/job_client.c - a node's connection to the authority of its job. */
#include "net/job_client.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "kv/kv.h"
#include "wire/wire.h"

/* A server that does not answer the greeting is none of ours; it need not be waited for long. */
#define GREETING_MS 5000

/* A status of tens of thousands of nodes. */
#define INPUT_SIZE_MAX MST_MIB(64)

struct mst__job_client {
    struct mst__client conn;
    struct mst__buf output;
    size_t used; /* of the input, by the message that was received last */
    char where[MST_ENDPOINT_TEXT_SIZE];
};

void mst__job_client_close(struct mst__job_client *client)
{
    if (client == NULL) {
        return;
    }
    mst__client_close(&client->conn);
    mst__buf_close(&client->output);
    mst__free(client);
}

void mst__job_client_finish(struct mst__job_client *client, int64_t deadline_ms)
{
    if (client == NULL) {
        return;
    }
    /* To close with something unread in the socket would throw away at the other end what we have
     * just sent; so wait for the other end to close. */
    struct mst__job_message message;
    if (shutdown(client->conn.fd, SHUT_WR) == 0) {
        while (mst__job_client_receive(client, deadline_ms, &message, NULL) == 0) {
        }
    }
    mst__job_client_close(client);
}

/* Name the server in the error of a call. */
static int fail_where(const struct mst__job_client *client, int rv, struct mst_err *reterr)
{
    return rv == 0 ? 0 : mst__err_wrap(reterr, rv, "job server %.60s", client->where);
}

static int client_flush(struct mst__job_client *client, int64_t deadline_ms, struct mst_err *reterr)
{
    size_t sent = 0;
    int rv = mst__client_send(&client->conn, mst__buf_bytes(&client->output), deadline_ms, &sent,
                              reterr);
    mst__buf_clear(&client->output);
    return fail_where(client, rv, reterr);
}

/* The question whether the server knows of jobs, as a store would ask it. */
static int put_greeting(struct mst__buf *output)
{
    struct mst__buf items;
    mst__buf_init(&items, 64);
    int rv = mst__buf_append_str(&items, mst_bytes_str(MST_KV_ANNOUNCEMENT_JOB));
    struct mst__command check = {.op = MST_OP_CHECK, .count = 1, .items = mst__buf_bytes(&items)};
    rv = rv != 0 ? rv : mst__wire_write_validate(output);
    rv = rv != 0 ? rv : mst__wire_write_request(output, MST_DIALECT_C, &check);
    mst__buf_close(&items);
    return rv;
}

static int client_greet(struct mst__job_client *client, int64_t deadline_ms, struct mst_err *reterr)
{
    int rv = put_greeting(&client->output);
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "greeting");
    }
    int64_t greeting_ms = mst__clock_deadline_ms(GREETING_MS);
    greeting_ms = greeting_ms < deadline_ms ? greeting_ms : deadline_ms;
    rv = client_flush(client, greeting_ms, reterr);
    if (rv == 0) {
        rv = fail_where(client, mst__client_receive(&client->conn, 1, greeting_ms, reterr), reterr);
    }
    if (rv != 0) {
        return rv;
    }
    uint8_t status = mst__buf_bytes(&client->conn.input).data[0];
    mst__buf_consume(&client->conn.input, 1);
    if (status != 0) {
        return mst__fail(reterr, MST_ENOTSUP, 0,
                         "the store at %.60s is no authority of jobs: it is torch's, or an older "
                         "muster; use backend c10d with it",
                         client->where);
    }
    rv = mst__buf_append_u8(&client->output, MST_WIRE_OPCODE_JOB); /* sent with the first frame */
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "greeting");
}

int mst__job_client_open(const struct mst__endpoint *endpoint,
                         int64_t deadline_ms,
                         struct mst__job_client **ret_client,
                         struct mst_err *reterr)
{
    struct mst__job_client *client = mst__calloc(1, sizeof *client);
    if (client == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "connection");
    }
    (void)mst__endpoint_format(endpoint, client->where);
    mst__buf_init(&client->output, MST_JOB_SIZE_MAX + 64);
    client->conn.fd = -1;
    const struct mst__target target = {.endpoint = *endpoint};
    int rv = mst__client_open(&target, INPUT_SIZE_MAX, deadline_ms, &client->conn, reterr);
    rv = rv == 0 ? client_greet(client, deadline_ms, reterr) : rv;
    if (rv != 0) {
        mst__job_client_close(client);
        return rv;
    }
    *ret_client = client;
    return 0;
}

int mst__job_client_send(struct mst__job_client *client,
                         const struct mst__job_message *message,
                         int64_t deadline_ms,
                         struct mst_err *reterr)
{
    int rv = mst__job_write(&client->output, message);
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "message '%s'", mst__job_type_name(message->type));
    }
    return client_flush(client, deadline_ms, reterr);
}

int mst__job_client_receive(struct mst__job_client *client,
                            int64_t deadline_ms,
                            struct mst__job_message *ret_message,
                            struct mst_err *reterr)
{
    mst__buf_consume(&client->conn.input, client->used);
    client->used = 0;
    for (;;) {
        size_t size = 0;
        int rv = mst__job_read(mst__buf_bytes(&client->conn.input), INPUT_SIZE_MAX - 64,
                               ret_message, &size, reterr);
        if (rv == 1) {
            client->used = size;
            return 0;
        }
        if (rv == 0) {
            rv = mst__client_receive(&client->conn, size, deadline_ms, reterr);
        }
        if (rv != 0) {
            return fail_where(client, rv, reterr);
        }
    }
}

int mst__job_client_refused(const struct mst__job_message *message, struct mst_err *reterr)
{
    MST_ASSERT(message->type == MST_JOB_REFUSED);
    struct mst_bytes text = message->u.refused.text;
    int code = message->u.refused.code;
    /* A code of a later release is not ours to interpret. */
    bool is_known = code < 0 && strcmp(mst_errname(code), "EUNDEFINED") != 0;
    return mst__fail(reterr, is_known ? code : MST_EPROTO, 0, "%.*s",
                     (int)(text.size < 160 ? text.size : 160), (const char *)text.data);
}

int mst__job_client_ask(const struct mst__endpoint *endpoint,
                        const struct mst__job_message *question,
                        int64_t deadline_ms,
                        struct mst__job_client **ret_client,
                        struct mst__job_message *ret_message,
                        struct mst_err *reterr)
{
    struct mst__job_client *client = NULL;
    int rv = mst__job_client_open(endpoint, deadline_ms, &client, reterr);
    if (rv == 0) {
        rv = mst__job_client_send(client, question, deadline_ms, reterr);
    }
    if (rv == 0) {
        rv = mst__job_client_receive(client, deadline_ms, ret_message, reterr);
    }
    if (rv == 0 && ret_message->type == MST_JOB_REFUSED) {
        rv = mst__job_client_refused(ret_message, reterr);
    }
    if (rv != 0) {
        mst__job_client_close(client);
        return rv;
    }
    *ret_client = client;
    return 0;
}
