/* net/job_client.c - a node's connection to the authority of its job.
 *
 * Messages go into the output buffer and leave at once as far as the kernel takes them; the next
 * receive sends the rest. So a sender never waits for a server that waits for us to read. */
#include "net/job_client.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/until.h"
#include "kv/kv.h"
#include "wire/wire.h"

/* A server that does not answer the greeting is not muster's; do not wait long. */
#define GREETING_MS 5000

/* Room for a status of tens of thousands of nodes. */
#define INPUT_SIZE_MAX MST_MIB(64)

/* After the deadline, input that has already arrived is still read, but not for ever if more keeps
 * arriving. */
#define LATE_READS_MAX 16

struct mst__job_client {
    struct mst__client conn;
    struct mst__buf output; /* not yet sent */
    size_t used;            /* bytes of the input in the last received message */
    int64_t heard_ms;       /* when bytes last arrived */
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

static int client_flush(struct mst__job_client *client,
                        struct mst__until until,
                        struct mst_err *reterr);

void mst__job_client_finish(struct mst__job_client *client, struct mst__until until)
{
    if (client == NULL) {
        return;
    }
    /* Closing a socket with unread input would discard our last output at the other end; so wait
     * for the other end to close. */
    struct mst__job_message message;
    if (client_flush(client, until, NULL) == 0 &&
        mst__stream_end(&client->conn.stream, false) == 0) {
        while (mst__job_client_receive(client, until, &message, NULL) == 0) {
        }
    }
    mst__job_client_close(client);
}

/* Add the server's name to the error of a call. */
static int fail_where(const struct mst__job_client *client, int rv, struct mst_err *reterr)
{
    return rv == 0 ? 0 : mst__err_wrap(reterr, rv, "job server %.60s", client->where);
}

/* Send all output before @until. */
static int client_flush(struct mst__job_client *client,
                        struct mst__until until,
                        struct mst_err *reterr)
{
    size_t sent = 0;
    int rv = mst__client_send(&client->conn, mst__buf_bytes(&client->output), until, &sent, reterr);
    mst__buf_consume(&client->output, sent);
    return fail_where(client, rv, reterr);
}

/* Send as much output as the kernel takes. */
static int client_push(struct mst__job_client *client, struct mst_err *reterr)
{
    struct mst_err err = {0};
    int rv = client_flush(client, mst__until_at(0), &err);
    return rv == 0 || rv == MST_ETIMEOUT || rv == MST_ECANCELED ? 0
                                                                : mst__err_pass(reterr, rv, &err);
}

static int put_check(struct mst__buf *output, const char *key)
{
    struct mst__command check = {.op = MST_OP_CHECK, .count = 1};
    int rv = mst__wire_write_request(output, MST_DIALECT_C, &check);
    return rv != 0 ? rv : mst__buf_append_str(output, mst_bytes_str(key));
}

/* Ask whether the server has a place for us, and whether it serves jobs, in the store protocol. */
static int put_greeting(struct mst__buf *output)
{
    int rv = mst__wire_write_validate(output);
    rv = rv != 0 ? rv : put_check(output, MST_KV_ANNOUNCEMENT_REFUSAL);
    return rv != 0 ? rv : put_check(output, MST_KV_ANNOUNCEMENT_JOB);
}

static int client_greet(struct mst__job_client *client,
                        struct mst__until until,
                        struct mst_err *reterr)
{
    int rv = put_greeting(&client->output);
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "greeting");
    }
    until = mst__until_sooner(until, mst__clock_deadline_ms(GREETING_MS));
    rv = client_flush(client, until, reterr);
    if (rv == 0) {
        rv = mst__client_receive(&client->conn, 1, until, reterr);
        rv = rv == 0 ? mst__client_admitted(&client->conn, 0, until, reterr) : rv;
        rv = rv == 0 ? mst__client_receive(&client->conn, 2, until, reterr) : rv;
        rv = fail_where(client, rv, reterr);
    }
    if (rv != 0) {
        return rv;
    }
    uint8_t status = mst__buf_bytes(&client->conn.input).data[1];
    mst__buf_consume(&client->conn.input, 2);
    if (status != 0) {
        return mst__fail(reterr, MST_ENOTSUP, 0,
                         "the server at %.60s does not serve jobs: it is torch's, or an older "
                         "muster; use backend c10d",
                         client->where);
    }
    rv = mst__buf_append_u8(&client->output, MST_WIRE_OPCODE_JOB); /* sent with the first frame */
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "greeting");
}

int mst__job_client_open(const struct mst__endpoint *endpoint,
                         struct mst__until until,
                         struct mst__job_client **ret_client,
                         struct mst_err *reterr)
{
    struct mst__job_client *client = mst__calloc(1, sizeof *client);
    if (client == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "connection");
    }
    (void)mst__endpoint_format(endpoint, client->where);
    mst__buf_init(&client->output, 2 * MST_JOB_SIZE_MAX + 64);
    client->conn.stream.fd = -1;
    int rv = mst__client_open(endpoint, INPUT_SIZE_MAX, until, &client->conn, reterr);
    rv = rv == MST_ETIMEOUT ? fail_where(client, rv, reterr) : rv; /* else it names the address */
    rv = rv == 0 ? client_greet(client, until, reterr) : rv;
    if (rv != 0) {
        mst__job_client_close(client);
        return rv;
    }
    *ret_client = client;
    return 0;
}

bool mst__job_client_is_usable(const struct mst__job_client *client)
{
    return mst__client_is_usable(&client->conn, false);
}

int mst__job_client_send(struct mst__job_client *client,
                         const struct mst__job_message *message,
                         struct mst__until until,
                         struct mst_err *reterr)
{
    int rv = mst__job_write(&client->output, message);
    if (rv == MST_ELIMIT && mst__buf_size(&client->output) > 0) {
        rv = client_flush(client, until, reterr);
        if (rv != 0) {
            return rv;
        }
        rv = mst__job_write(&client->output, message);
    }
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "message '%s'", mst__job_type_name(message->type));
    }
    return client_push(client, reterr);
}

int64_t mst__job_client_heard_ms(const struct mst__job_client *client)
{
    return client->heard_ms;
}

/* --- receiving --- */

/* Take a message from the input, if there is a complete one: as mst__job_read. */
static int client_next(struct mst__job_client *client,
                       struct mst__job_message *ret_message,
                       size_t *ret_wanted,
                       struct mst_err *reterr)
{
    struct mst_bytes bytes = mst__buf_bytes(&client->conn.input);
    int rv = mst__job_read(bytes, INPUT_SIZE_MAX - 64, ret_message, ret_wanted, reterr);
    client->used = rv == 1 ? *ret_wanted : 0;
    return rv;
}

/* Wait until input or output is possible, then receive until the input has @wanted bytes, or
 * send. */
static int client_turn(struct mst__job_client *client,
                       size_t wanted,
                       struct mst__until until,
                       struct mst_err *reterr)
{
    bool has_output = mst__buf_size(&client->output) > 0;
    int rv = mst__client_wait(&client->conn, true, has_output, until, reterr);
    if (rv != 0) {
        return rv == MST_ETIMEOUT ? 0 : rv;
    }
    rv = mst__client_read(&client->conn, wanted, reterr);
    client->heard_ms = mst__clock_ms();
    if (rv == 0 && has_output) {
        rv = client_push(client, reterr);
    }
    return rv;
}

int mst__job_client_receive(struct mst__job_client *client,
                            struct mst__until until,
                            struct mst__job_message *ret_message,
                            struct mst_err *reterr)
{
    mst__buf_consume(&client->conn.input, client->used);
    client->used = 0;
    for (unsigned late = 0;;) {
        size_t wanted = 0;
        int rv = client_next(client, ret_message, &wanted, reterr);
        if (rv == 1) {
            return 0;
        }
        size_t before = mst__buf_size(&client->conn.input);
        if (rv == 0) {
            rv = client_turn(client, wanted, until, reterr);
        }
        if (rv != 0) {
            return fail_where(client, rv, reterr);
        }
        bool is_late = mst__until_is_over(until);
        bool has_read = mst__buf_size(&client->conn.input) != before;
        if (is_late && (!has_read || ++late > LATE_READS_MAX)) {
            return fail_where(client, mst__fail(reterr, MST_ETIMEOUT, 0, "deadline passed"),
                              reterr);
        }
    }
}

int mst__job_client_ask(const struct mst__endpoint *endpoint,
                        const struct mst__job_message *question,
                        struct mst__until until,
                        struct mst__job_client **ret_client,
                        struct mst__job_message *ret_message,
                        struct mst_err *reterr)
{
    struct mst__job_client *client = NULL;
    int rv = mst__job_client_open(endpoint, until, &client, reterr);
    if (rv == 0) {
        rv = mst__job_client_send(client, question, until, reterr);
    }
    if (rv == 0) {
        rv = mst__job_client_receive(client, until, ret_message, reterr);
    }
    if (rv == 0 && ret_message->type == MST_JOB_REFUSED) {
        rv = mst__client_refused(ret_message, reterr);
    }
    if (rv != 0) {
        mst__job_client_close(client);
        return rv;
    }
    *ret_client = client;
    return 0;
}
