/* store/tcp.c - a store behind a server that speaks the TCPStore protocol.
 *
 * The protocol has no error replies: a server that refuses a request closes the connection. So
 * every lost connection needs an explanation, and answer_loss finds it:
 *   - a request that was not sent completely was not executed and is repeated;
 *   - a request that is harmless to repeat is repeated;
 *   - for an operation that older servers lack, a harmless one of its kind is tried;
 *     WAIT_CHANGE and BARRIER are sent only to servers that have announced them;
 *   - after an ADD or BARRIER, the value may not be a number: check;
 *   - otherwise the result is unknown, and the caller is told so.
 *
 * SET and similar requests have no reply. A CHECK of no keys follows them in the same write; its
 * answer confirms that the server has them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/number.h"
#include "kv/kv.h"
#include "store/backoff.h"
#include "store/pool.h"
#include "store/store.h"
#include "wire/opcode.h"
#include "wire/refusal.h"
#include "wire/wire.h"

/* Pauses before a request is repeated. */
#define TCP_AGAIN_MS_FIRST 10
#define TCP_AGAIN_MS_MAX 500

/* After so many closed connections, the server refuses the request. */
#define TCP_CLOSES_MAX 5

/* Connections on which an operation must be refused before the server counts as without it. */
#define TCP_REFUSALS 3

/* A request of this size may have exceeded the server's limits. */
#define TCP_LARGE_REQUEST MST_KIB(8)

/* Not a user's key: those begin with a slash. */
#define TCP_PROBE_KEY "muster/probe"

enum tcp_ability { TCP_UNTRIED, TCP_PRESENT, TCP_MISSING };

/* Newer operations and our own extensions, grouped by the feature of the server. */
enum tcp_feature { TCP_QUEUES, TCP_LIST, TCP_BARRIER, TCP_CHANGES, TCP_FEATURES_COUNT };

struct tcp {
    struct mst__storage storage; /* first: the storage is cast to this struct */
    struct mst__pool pool;
    atomic_uint_fast64_t retries;
    atomic_bool get_closes; /* this server closes the connection on a GET of an absent key */
    pthread_mutex_t mutex;  /* guards everything below */
    uint64_t epoch;         /* epoch of the pool when the abilities were found */
    enum tcp_ability abilities[TCP_FEATURES_COUNT];
};

/* A request under way. */
struct exchange {
    struct tcp *tcp;
    const struct mst__command *command;
    struct mst__until until;
    struct mst__pool_conn *conn;
    size_t request_size; /* bytes of the output that must have left for it to be executed */
    bool connected;      /* there was a connection to send it on */
    bool maybe_executed; /* that much has left */
    bool answered;       /* a part of the answer has arrived */
    bool cancelled;      /* a wait was cancelled, and the server told */
    bool is_refused;     /* it is not for this server, and was not sent */
    bool is_turned_down; /* the server has said why it does not do it */
    bool lacks_memory;   /* which is that its memory is full */
    bool keep;           /* the connection is usable */
};

/* --- the parts of an exchange --- */

/* See whether the input begins with a refusal in place of the reply: 0 if not, else its code. The
 * server has done nothing then. */
static int hear_refusal(struct exchange *exchange, struct mst_err *reterr)
{
    struct mst__job_message message;
    int rv =
        mst__client_hear_refusal(&exchange->conn->client, 0, exchange->until, &message, reterr);
    if (rv != 1) {
        return rv;
    }
    exchange->is_turned_down = true;
    exchange->lacks_memory = message.u.refused.refusal == MST_REFUSAL_MEMORY;
    exchange->maybe_executed = false;
    exchange->answered = true;
    return mst__client_refused(&message, reterr);
}

/* Read the outstanding confirmations of cancelled waits. */
static int read_confirmations(struct exchange *exchange, struct mst_err *reterr)
{
    struct mst__pool_conn *conn = exchange->conn;
    while (conn->unconfirmed > 0) {
        int rv = mst__client_receive(&conn->client, 1, exchange->until, reterr);
        if (rv != 0) {
            return rv;
        }
        rv = hear_refusal(exchange, reterr);
        if (rv != 0) {
            return rv;
        }
        uint8_t byte = mst__buf_bytes(&conn->client.input).data[0];
        if (byte > 1) {
            return mst__fail(reterr, MST_EPROTO, 0, "status byte 0x%02x for CANCEL_WAIT", byte);
        }
        mst__buf_consume(&conn->client.input, 1);
        conn->unconfirmed -= byte;
    }
    return 0;
}

/* Read the reply to @command. It borrows from the connection's input; consume @ret_size bytes after
 * use. */
static int read_reply(struct exchange *exchange,
                      const struct mst__command *command,
                      struct mst__reply *ret_reply,
                      size_t *ret_size,
                      struct mst_err *reterr)
{
    struct mst__client *client = &exchange->conn->client;
    int rv = read_confirmations(exchange, reterr);
    if (rv != 0) {
        return rv;
    }
    for (;;) {
        struct mst_bytes input = mst__buf_bytes(&client->input);
        if (MST_UNLIKELY(input.size > 0 && input.data[0] == MST_WIRE_REFUSAL_FIRST)) {
            rv = hear_refusal(exchange, reterr);
            if (rv != 0) {
                return rv;
            }
            input = mst__buf_bytes(&client->input);
        }
        exchange->answered = exchange->answered || input.size > 0;
        rv = mst__wire_read_reply(command, &exchange->tcp->pool.limits, input, ret_reply, ret_size,
                                  reterr);
        if (rv != MST_WIRE_MORE) {
            return rv < 0 ? rv : 0;
        }
        rv = mst__client_receive(client, *ret_size, exchange->until, reterr);
        if (rv != 0) {
            exchange->answered = exchange->answered || mst__buf_size(&client->input) > 0;
            return rv;
        }
    }
}

/* Read a reply that is one status byte. */
static int read_status(struct exchange *exchange,
                       enum mst__op op,
                       enum mst__status *ret_status,
                       struct mst_err *reterr)
{
    struct mst__command command = {.op = op};
    struct mst__reply reply;
    size_t size = 0;
    int rv = read_reply(exchange, &command, &reply, &size, reterr);
    if (rv == 0) {
        *ret_status = reply.status;
        mst__buf_consume(&exchange->conn->client.input, size);
    }
    return rv;
}

static int put_request(struct exchange *exchange,
                       const struct mst__command *command,
                       struct mst_err *reterr)
{
    struct mst__pool_conn *conn = exchange->conn;
    int rv = mst__wire_write_request(&conn->output, conn->dialect, command);
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "request");
}

/* CHECK of one key, written without a copied list of keys. */
static int put_check(struct exchange *exchange, struct mst_bytes key, struct mst_err *reterr)
{
    struct mst__command check = {.op = MST_OP_CHECK, .count = 1};
    int rv = put_request(exchange, &check, reterr);
    if (rv == 0) {
        rv = mst__buf_append_str(&exchange->conn->output, key);
        rv = rv == 0 ? 0 : mst__fail(reterr, rv, 0, "request");
    }
    return rv;
}

/* Send the output. */
static int send_output(struct exchange *exchange, struct mst_err *reterr)
{
    struct mst__pool_conn *conn = exchange->conn;
    size_t sent = 0;
    int rv = mst__client_send(&conn->client, mst__buf_bytes(&conn->output), exchange->until, &sent,
                              reterr);
    if (sent >= exchange->request_size) {
        exchange->maybe_executed = true;
    }
    mst__buf_clear(&conn->output);
    return rv;
}

/* --- the server of a round --- */

static int ask_epoch(struct exchange *exchange,
                     bool *ret_tells,
                     bool *ret_has,
                     struct mst_err *reterr)
{
    char text[sizeof MST_KV_ANNOUNCEMENT_EPOCH + MST_NUMBER_SIZE + 1];
    enum mst__status tells = MST_STATUS_NOT_READY;
    enum mst__status has = MST_STATUS_NOT_READY;
    (void)snprintf(text, sizeof text, MST_KV_ANNOUNCEMENT_EPOCH ".%" PRIu64,
                   exchange->command->epoch); /* fits */
    int rv = put_check(exchange, mst_bytes_str(MST_KV_ANNOUNCEMENT_EPOCH), reterr);
    if (rv == 0) {
        rv = put_check(exchange, mst_bytes_str(text), reterr);
    }
    if (rv == 0) {
        rv = send_output(exchange, reterr);
    }
    if (rv == 0) {
        rv = read_status(exchange, MST_OP_CHECK, &tells, reterr);
    }
    if (rv == 0) {
        rv = read_status(exchange, MST_OP_CHECK, &has, reterr);
    }
    *ret_tells = tells == MST_STATUS_READY;
    *ret_has = has == MST_STATUS_READY;
    /* Nothing of the command itself has been sent. */
    exchange->maybe_executed = false;
    exchange->answered = false;
    return rv;
}

/* A server begins without keys. So a command for the keys of a round is sent only to the server
 * that has sealed the round. Servers that do not tell their epochs get all commands. */
static int check_epoch(struct exchange *exchange, struct mst_err *reterr)
{
    struct mst__pool_conn *conn = exchange->conn;
    bool tells = false;
    bool has = false;
    if (exchange->command->epoch == conn->epoch || exchange->command->epoch == 0 ||
        conn->is_untelling || conn->dialect != MST_DIALECT_C) {
        return 0;
    }
    int rv = ask_epoch(exchange, &tells, &has, reterr);
    if (rv != 0) {
        return rv;
    }
    conn->is_untelling = !tells;
    if (tells && !has) {
        exchange->is_refused = true;
        return mst__fail(reterr, MST_ECLOSED, 0,
                         "the server restarted: the keys of this round are gone; "
                         "the next round has a store again");
    }
    conn->epoch = exchange->command->epoch;
    return 0;
}

/* --- GET --- */

/* CHECK shows whether the key exists; the reply to GET does not. */
static int exchange_check(struct exchange *exchange, bool *ret_exists, struct mst_err *reterr)
{
    enum mst__status status = MST_STATUS_NOT_READY;
    int rv = put_check(exchange, exchange->command->key, reterr);
    if (rv == 0) {
        rv = send_output(exchange, reterr);
    }
    if (rv == 0) {
        rv = read_status(exchange, MST_OP_CHECK, &status, reterr);
    }
    *ret_exists = status == MST_STATUS_READY;
    return rv;
}

/* The key existed and GET found nothing: the value is empty, or the key was deleted in between, and
 * may exist again. COMPARE_SET with a value that is never stored decides in one step and changes
 * nothing: for an absent key, the answer is the expected value. */
static int read_at_once(struct exchange *exchange,
                        struct mst__answer *result,
                        struct mst_err *reterr)
{
    uint8_t random[16];
    mst__clock_random(random, sizeof random);
    struct mst_bytes nobodys = mst_bytes_of(random, sizeof random);
    struct mst__command command = {.op = MST_OP_COMPARE_SET,
                                   .key = exchange->command->key,
                                   .expected = nobodys,
                                   .value = nobodys};
    struct mst__reply reply;
    size_t size = 0;
    int rv = put_request(exchange, &command, reterr);
    if (rv == 0) {
        rv = send_output(exchange, reterr);
    }
    if (rv == 0) {
        rv = read_reply(exchange, &command, &reply, &size, reterr);
    }
    if (rv != 0) {
        return rv;
    }
    bool found = !mst__bytes_equal(reply.bytes, nobodys);
    rv = found ? mst__answer_take(result, reply.bytes) : 0;
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "value of %zu bytes", reply.bytes.size);
    }
    mst__buf_consume(&exchange->conn->client.input, size);
    result->reply = (struct mst__reply){
        .kind = MST_REPLY_BYTES, .bytes = mst__buf_bytes(&result->memory), .found = found};
    return 0;
}

/* Read the value after a CHECK that returned @exists. */
static int read_value(struct exchange *exchange,
                      bool exists,
                      struct mst__answer *result,
                      struct mst_err *reterr)
{
    struct mst__reply reply;
    size_t size = 0;
    int rv = read_reply(exchange, exchange->command, &reply, &size, reterr);
    if (rv == MST_ECONN && !exists) {
        /* An older server. Use two steps from now on. */
        atomic_store(&exchange->tcp->get_closes, true);
        exchange->keep = false;
        result->reply = (struct mst__reply){.kind = MST_REPLY_BYTES, .found = false};
        return 0;
    }
    if (rv != 0) {
        return rv;
    }
    rv = mst__answer_take(result, reply.bytes);
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "value of %zu bytes", reply.bytes.size);
    }
    bool found = reply.bytes.size > 0;
    mst__buf_consume(&exchange->conn->client.input, size);
    if (exists && !found) {
        return read_at_once(exchange, result, reterr);
    }
    result->reply = (struct mst__reply){
        .kind = MST_REPLY_BYTES, .bytes = mst__buf_bytes(&result->memory), .found = found};
    return rv;
}

static int exchange_get(struct exchange *exchange,
                        struct mst__answer *result,
                        struct mst_err *reterr)
{
    bool exists = false;
    int rv = 0;
    if (atomic_load(&exchange->tcp->get_closes) || exchange->conn->dialect == MST_DIALECT_A) {
        rv = exchange_check(exchange, &exists, reterr);
        if (rv != 0 || !exists) {
            result->reply = (struct mst__reply){.kind = MST_REPLY_BYTES, .found = false};
            return rv;
        }
        rv = put_request(exchange, exchange->command, reterr);
        if (rv == 0) {
            rv = send_output(exchange, reterr);
        }
        return rv != 0 ? rv : read_value(exchange, true, result, reterr);
    }
    rv = put_check(exchange, exchange->command->key, reterr);
    if (rv == 0) {
        rv = put_request(exchange, exchange->command, reterr);
    }
    if (rv == 0) {
        rv = send_output(exchange, reterr);
    }
    enum mst__status status = MST_STATUS_NOT_READY;
    if (rv == 0) {
        rv = read_status(exchange, MST_OP_CHECK, &status, reterr);
    }
    return rv != 0 ? rv : read_value(exchange, status == MST_STATUS_READY, result, reterr);
}

/* --- all other operations --- */

/* A participant leaves a barrier. The confirmation tells whether it has left, or whether the
 * barrier was complete before: 0, or @rv after it has left. Without a confirmation nobody can
 * tell, and the connection is closed. */
static int leave_barrier(struct exchange *exchange, int rv, struct mst_err *reterr)
{
    struct mst__pool_conn *conn = exchange->conn;
    exchange->until = mst__until_in(MST_BARRIER_LEAVE_MS);
    conn->unconfirmed--; /* first those of earlier waits */
    int received = read_confirmations(exchange, reterr);
    conn->unconfirmed++;
    if (received == 0) {
        received = mst__client_receive(&conn->client, 1, exchange->until, reterr);
    }
    if (received != 0) {
        exchange->cancelled = false;
        return mst__fail(
            reterr, MST_EUNKNOWN, 0, "%s, and %s does not tell whether it was complete",
            rv == MST_ETIMEOUT ? "deadline passed" : "interrupted", exchange->tcp->pool.name);
    }
    uint8_t byte = mst__buf_bytes(&conn->client.input).data[0]; /* 00, or the confirmation 01 */
    if (byte != 0) {
        return rv;
    }
    mst__buf_consume(&conn->client.input, 1);
    return 0;
}

/* The deadline of a WAIT or BARRIER has passed, or the call was woken, as @rv says: cancel it and
 * return. The confirmation is read when the connection is used next. */
static int exchange_cancel(struct exchange *exchange, int rv, struct mst_err *reterr)
{
    struct mst__pool_conn *conn = exchange->conn;
    struct mst__command cancel = {.op = MST_OP_CANCEL_WAIT};
    struct mst_err ignored;
    size_t sent = 0;
    if (mst__wire_has_op(conn->dialect, MST_OP_CANCEL_WAIT) &&
        put_request(exchange, &cancel, &ignored) == 0) {
        /* If it cannot be sent at once, closing the connection has the same effect. */
        exchange->cancelled = mst__client_send(&conn->client, mst__buf_bytes(&conn->output),
                                               mst__until_at(0), &sent, &ignored) == 0;
        conn->unconfirmed++;
        mst__buf_clear(&conn->output);
    }
    if (exchange->command->op == MST_OP_BARRIER && exchange->cancelled) {
        int left = leave_barrier(exchange, rv, reterr);
        if (left != rv) {
            return left;
        }
    }
    if (rv != MST_ETIMEOUT) {
        return mst__fail(reterr, rv, 0, "interrupted");
    }
    enum mst__op op = exchange->command->op;
    return mst__fail(reterr, MST_ETIMEOUT, 0, "%s when the deadline passed",
                     op == MST_OP_WAIT          ? "not there"
                     : op == MST_OP_WAIT_CHANGE ? "the same"
                                                : "not complete");
}

static bool is_blocking(enum mst__op op)
{
    return op == MST_OP_WAIT || op == MST_OP_BARRIER || op == MST_OP_WAIT_CHANGE;
}

/* Whether the key existed before a COMPARE_SET; only the client can tell from the answer. */
static bool compare_set_found(const struct mst__command *command, struct mst_bytes value)
{
    return !(command->expected.size > 0 && mst__bytes_equal(value, command->expected) &&
             !mst__bytes_equal(command->expected, command->value));
}

static int exchange_plain(struct exchange *exchange,
                          struct mst__answer *result,
                          struct mst_err *reterr)
{
    const struct mst__command *command = exchange->command;
    struct mst__command check = {.op = MST_OP_CHECK};
    bool has_reply = mst__opcode_of(command->op)->reply != MST_REPLY_NONE;
    int rv = put_request(exchange, command, reterr);
    exchange->request_size = mst__buf_size(&exchange->conn->output);
    if (rv == 0 && !has_reply) {
        rv = put_request(exchange, &check, reterr);
    }
    if (rv == 0) {
        rv = send_output(exchange, reterr);
    }
    struct mst__reply reply = {.kind = MST_REPLY_NONE};
    size_t size = 0;
    if (rv == 0) {
        rv = read_reply(exchange, has_reply ? command : &check, &reply, &size, reterr);
        if ((rv == MST_ETIMEOUT || rv == MST_ECANCELED) && is_blocking(command->op) &&
            !exchange->answered) {
            return exchange_cancel(exchange, rv, reterr);
        }
    }
    if (rv != 0) {
        return rv;
    }
    result->reply = reply;
    rv = mst__answer_take(result, reply.bytes);
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "answer of %zu bytes", reply.bytes.size);
    }
    result->reply.bytes = mst__buf_bytes(&result->memory);
    result->reply.found =
        command->op != MST_OP_COMPARE_SET || compare_set_found(command, reply.bytes);
    mst__buf_consume(&exchange->conn->client.input, size);
    return 0;
}

/* One attempt on one connection. */
static int exchange_run(struct exchange *exchange,
                        bool fresh,
                        struct mst__answer *result,
                        struct mst_err *reterr)
{
    struct mst__pool *pool = &exchange->tcp->pool;
    *exchange = (struct exchange){
        .tcp = exchange->tcp,
        .command = exchange->command,
        .until = exchange->until,
        .request_size = 1,
    };
    enum mst__op op = exchange->command->op;
    enum mst__pool_use use = fresh             ? MST_POOL_FRESH
                             : is_blocking(op) ? MST_POOL_WAIT
                                               : MST_POOL_SHORT;
    int rv = mst__pool_get(pool, use, exchange->until, &exchange->conn, reterr);
    if (rv != 0) {
        return rv;
    }
    if (mst__until_is_over(exchange->until)) {
        mst__pool_put(pool, exchange->conn);
        return mst__fail(reterr, MST_ETIMEOUT, 0, "%s: deadline passed before anything was sent",
                         pool->name);
    }
    exchange->connected = true;
    exchange->keep = true;
    if (!mst__wire_has_op(exchange->conn->dialect, op)) {
        rv = mst__fail(reterr, MST_ENOTSUP, 0, "the server at %s has no %s (dialect %s)",
                       pool->name, mst__op_name(op), mst__dialect_name(exchange->conn->dialect));
        mst__pool_put(pool, exchange->conn);
        return rv;
    }
    mst__buf_clear(&exchange->conn->output);
    rv = check_epoch(exchange, reterr);
    if (rv == 0) {
        rv = op == MST_OP_GET ? exchange_get(exchange, result, reterr)
                              : exchange_plain(exchange, result, reterr);
    }
    if (exchange->keep && (rv == 0 || exchange->cancelled || exchange->is_refused)) {
        mst__pool_put(pool, exchange->conn);
    } else {
        mst__pool_drop(pool, exchange->conn);
    }
    exchange->conn = NULL;
    return rv == 0 ? 0 : mst__err_wrap(reterr, rv, "%s", pool->name);
}

/* --- lost connections --- */

static bool is_idempotent(enum mst__op op)
{
    switch (op) {
        case MST_OP_ADD:
        case MST_OP_COMPARE_SET:
        case MST_OP_DELETE:
        case MST_OP_APPEND:
        case MST_OP_QUEUE_PUSH:
        case MST_OP_QUEUE_POP:
        case MST_OP_BARRIER:
            return false;
        default:
            return true;
    }
}

static bool is_write(enum mst__op op)
{
    return !is_idempotent(op) || op == MST_OP_SET || op == MST_OP_MULTI_SET;
}

/* The feature of @op, TCP_FEATURES_COUNT if every server has it. */
static enum tcp_feature feature_of(enum mst__op op)
{
    switch (op) {
        case MST_OP_QUEUE_PUSH:
        case MST_OP_QUEUE_POP:
        case MST_OP_QUEUE_LEN:
            return TCP_QUEUES;
        case MST_OP_LIST_KEYS:
            return TCP_LIST;
        default:
            return TCP_FEATURES_COUNT;
    }
}

static enum tcp_ability ability_get(struct tcp *tcp, enum tcp_feature feature)
{
    uint64_t epoch = mst__pool_epoch(&tcp->pool);
    (void)pthread_mutex_lock(&tcp->mutex); /* a default mutex: cannot fail */
    if (tcp->epoch != epoch) {
        /* The server was unreachable and may have been replaced. */
        tcp->epoch = epoch;
        memset(tcp->abilities, 0, sizeof tcp->abilities);
    }
    enum tcp_ability ability = tcp->abilities[feature];
    (void)pthread_mutex_unlock(&tcp->mutex);
    return ability;
}

static void ability_set(struct tcp *tcp, enum tcp_feature feature, enum tcp_ability ability)
{
    (void)pthread_mutex_lock(&tcp->mutex);
    tcp->abilities[feature] = ability;
    (void)pthread_mutex_unlock(&tcp->mutex);
}

/* Execute a harmless operation of @feature: the length of a queue, the list of keys. Fails with
 * MST_ECONN only if a server has closed a connection, not if there is none. */
static int feature_probe(struct tcp *tcp,
                         enum tcp_feature feature,
                         struct mst__until until,
                         bool *ret_answered)
{
    static const enum mst__op ops[TCP_FEATURES_COUNT] = {
        [TCP_QUEUES] = MST_OP_QUEUE_LEN,
        [TCP_LIST] = MST_OP_LIST_KEYS,
    };
    struct mst__command command = {.op = ops[feature], .key = mst_bytes_str(TCP_PROBE_KEY)};
    struct exchange exchange = {.tcp = tcp, .command = &command, .until = until};
    struct mst__answer result = {0};
    mst__buf_init(&result.memory, tcp->pool.limits.message_size_max);
    struct mst_err ignored;
    int rv = exchange_run(&exchange, true, &result, &ignored);
    *ret_answered = rv == 0 || exchange.answered;
    mst__buf_close(&result.memory);
    return rv == MST_ECONN && !exchange.connected ? MST_ETIMEOUT : rv;
}

/* The server closed the connection on an operation of @feature: find out whether it lacks it. */
static enum tcp_ability feature_find_out(struct tcp *tcp,
                                         enum tcp_feature feature,
                                         struct mst__until until)
{
    enum tcp_ability ability = ability_get(tcp, feature);
    for (unsigned refusals = 0; ability == TCP_UNTRIED && refusals < TCP_REFUSALS; refusals++) {
        bool answered = false;
        int rv = feature_probe(tcp, feature, until, &answered);
        if (answered) {
            ability = TCP_PRESENT;
        } else if (rv == MST_ENOTSUP) {
            return TCP_MISSING; /* it now speaks an older dialect */
        } else if (rv != MST_ECONN) {
            return TCP_UNTRIED;
        }
    }
    if (ability == TCP_UNTRIED) {
        ability = TCP_MISSING;
    }
    ability_set(tcp, feature, ability);
    return ability;
}

/* Whether the value under @key exists and is not a number. */
static bool is_not_a_number(struct tcp *tcp, struct mst_bytes key, struct mst__until until)
{
    struct mst__command command = {.op = MST_OP_GET, .key = key};
    struct exchange exchange = {.tcp = tcp, .command = &command, .until = until};
    struct mst__answer result = {0};
    mst__buf_init(&result.memory, tcp->pool.limits.message_size_max);
    struct mst_err ignored;
    int64_t number;
    bool answer = exchange_run(&exchange, false, &result, &ignored) == 0 && result.reply.found &&
                  !mst__number_parse_prefix(mst__buf_bytes(&result.memory), &number);
    mst__buf_close(&result.memory);
    return answer;
}

static int fail_missing(const struct tcp *tcp, enum mst__op op, struct mst_err *reterr)
{
    return mst__fail(reterr, MST_ENOTSUP, 0, "the server at %s has no %s", tcp->pool.name,
                     mst__op_name(op));
}

static int fail_unknown(const struct exchange *exchange, int rv, struct mst_err *reterr)
{
    return mst__fail(
        reterr, MST_EUNKNOWN, 0,
        "%s after the request was sent to %s; it may or may not have been done%s",
        rv == MST_ETIMEOUT    ? "deadline passed"
        : rv == MST_ECANCELED ? "interrupted"
                              : "connection lost",
        exchange->tcp->pool.name,
        exchange->request_size > TCP_LARGE_REQUEST ? ", or exceed a limit of the server" : "");
}

/* The connection was lost in an attempt: 0 = retry, or the error to return. */
static int answer_loss(struct exchange *exchange, unsigned closes, struct mst_err *reterr)
{
    struct tcp *tcp = exchange->tcp;
    enum mst__op op = exchange->command->op;
    enum tcp_feature feature = feature_of(op);
    bool maybe_executed = exchange->maybe_executed;
    if (op == MST_OP_BARRIER) {
        ability_set(tcp, TCP_BARRIER, TCP_UNTRIED); /* the server may have been replaced */
    }
    if (op == MST_OP_WAIT_CHANGE) {
        /* The caller reads the value next, and the server may have been replaced by then: check for
         * the opcode again before using it. */
        ability_set(tcp, TCP_CHANGES, TCP_UNTRIED);
        return mst__fail(reterr, MST_ECONN, 0, "connection to %s lost", tcp->pool.name);
    }
    if (maybe_executed && !exchange->answered && feature != TCP_FEATURES_COUNT &&
        feature_find_out(tcp, feature, exchange->until) == TCP_MISSING) {
        return fail_missing(tcp, op, reterr);
    }
    if (maybe_executed && !is_idempotent(op)) {
        if ((op == MST_OP_ADD || op == MST_OP_BARRIER) &&
            is_not_a_number(tcp, exchange->command->key, exchange->until)) {
            return mst__fail(reterr, MST_ETYPE, 0, "the value at %s is not a number",
                             tcp->pool.name);
        }
        return fail_unknown(exchange, MST_ECONN, reterr);
    }
    if (closes >= TCP_CLOSES_MAX) {
        return mst__fail(reterr, maybe_executed && is_write(op) ? MST_EUNKNOWN : MST_ECONN, 0,
                         "the server at %s closed the connection on this request %u times; its "
                         "memory, or its limits on keys and values, may be the cause",
                         tcp->pool.name, closes);
    }
    return 0;
}

/* The error of a request that is given up. A write that may have been executed in any attempt must
 * not be reported as not executed. */
static int give_up(const struct exchange *exchange,
                   int rv,
                   bool ever_executed,
                   struct mst_err *reterr)
{
    enum mst__op op = exchange->command->op;
    if ((rv == MST_ETIMEOUT || rv == MST_ECANCELED) && exchange->maybe_executed &&
        !is_idempotent(op) && !is_blocking(op)) {
        return fail_unknown(exchange, rv, reterr);
    }
    bool is_undone = rv == MST_ECONN || rv == MST_ERESOLVE || exchange->is_turned_down;
    if (is_undone && ever_executed && is_write(op)) {
        return mst__err_wrap(reterr, MST_EUNKNOWN,
                             "connection lost, it may or may not have been done; then");
    }
    return rv;
}

static int tcp_execute(struct mst__storage *storage,
                       const struct mst__command *command,
                       struct mst__until until,
                       struct mst__answer *result,
                       struct mst_err *reterr)
{
    struct tcp *tcp = (struct tcp *)storage;
    enum tcp_feature feature = feature_of(command->op);
    if (feature != TCP_FEATURES_COUNT && ability_get(tcp, feature) == TCP_MISSING) {
        return fail_missing(tcp, command->op, reterr);
    }
    struct exchange exchange = {.tcp = tcp, .command = command, .until = until};
    struct mst__backoff backoff;
    mst__backoff_init(&backoff, TCP_AGAIN_MS_FIRST, TCP_AGAIN_MS_MAX);
    bool ever_executed = false;
    for (unsigned closes = 1;; closes++) {
        mst__buf_clear(&result->memory);
        int rv = exchange_run(&exchange, false, result, reterr);
        ever_executed = ever_executed || exchange.maybe_executed;
        if (rv == 0) {
            return 0;
        }
        bool again = exchange.lacks_memory && closes < TCP_CLOSES_MAX; /* others may make room */
        if (rv == MST_ECONN && exchange.connected && !exchange.is_turned_down) {
            rv = answer_loss(&exchange, closes, reterr);
            again = rv == 0;
            if (rv == 0) {
                rv = mst__fail(reterr, MST_ECONN, 0, "connection to %s lost, deadline passed",
                               tcp->pool.name);
            }
        }
        if (again && mst__backoff_pause(&backoff, until)) {
            atomic_fetch_add(&tcp->retries, 1);
            mst__log(&tcp->pool.log, MST_LOG_INFO, "store.again", "op=%s closes=%u",
                     mst__op_name(command->op), closes);
            continue;
        }
        return give_up(&exchange, rv, ever_executed, reterr);
    }
}

/* Servers with WAIT_CHANGE, or with our kind of BARRIER, pretend to have the key @announcement.
 * Others never get an @op. */
static int find_announced(struct tcp *tcp,
                          enum mst__op op,
                          const char *announcement,
                          struct mst__until until,
                          struct mst_err *reterr)
{
    enum tcp_feature feature = op == MST_OP_BARRIER ? TCP_BARRIER : TCP_CHANGES;
    enum tcp_ability ability = ability_get(tcp, feature);
    if (ability == TCP_UNTRIED) {
        struct mst__command command = {.op = MST_OP_CHECK, .count = 1};
        struct mst__buf items;
        struct mst__answer result = {0};
        mst__buf_init(&items, MST_KIB(1));
        mst__buf_init(&result.memory, MST_KIB(1));
        int rv = mst__buf_append_str(&items, mst_bytes_str(announcement));
        if (rv == 0) {
            command.items = mst__buf_bytes(&items);
            rv = tcp_execute(&tcp->storage, &command, until, &result, reterr);
        } else {
            rv = mst__fail(reterr, rv, 0, "request");
        }
        mst__buf_close(&items);
        if (rv != 0) {
            return rv;
        }
        ability = result.reply.status == MST_STATUS_READY ? TCP_PRESENT : TCP_MISSING;
        ability_set(tcp, feature, ability);
    }
    return ability == TCP_PRESENT ? 0 : fail_missing(tcp, op, reterr);
}

/* Execute any operation of the storage. */
static int tcp_run(struct mst__storage *storage,
                   const struct mst__command *command,
                   struct mst__until until,
                   struct mst__answer *result,
                   struct mst_err *reterr)
{
    int rv = 0;
    if (MST_UNLIKELY(command->op == MST_OP_WAIT_CHANGE)) {
        rv = find_announced((struct tcp *)storage, command->op, MST_KV_ANNOUNCEMENT, until, reterr);
    } else if (MST_UNLIKELY(command->op == MST_OP_BARRIER)) {
        rv = find_announced((struct tcp *)storage, command->op, MST_KV_ANNOUNCEMENT_BARRIER, until,
                            reterr);
    }
    if (rv != 0) {
        return rv;
    }
    return tcp_execute(storage, command, until, result, reterr);
}

void mst__tcp_prune(struct mst_store *store, int64_t idle_ms)
{
    MST_ASSERT(store->storage->ops->execute == tcp_run);
    mst__pool_prune(&((struct tcp *)store->storage)->pool, idle_ms);
}

static void tcp_stats(struct mst__storage *storage, struct mst_store_stats *stats)
{
    struct tcp *tcp = (struct tcp *)storage;
    stats->retries = atomic_load(&tcp->retries);
    (void)pthread_mutex_lock(&tcp->pool.mutex);
    stats->connects = tcp->pool.connects;
    memcpy(stats->peer, tcp->pool.peer, sizeof stats->peer);
    if (tcp->pool.dialect != MST_DIALECT_UNKNOWN) {
        (void)snprintf(stats->dialect, sizeof stats->dialect, "%s",
                       mst__dialect_name(tcp->pool.dialect)); /* fits */
    }
    (void)pthread_mutex_unlock(&tcp->pool.mutex);
}

static void tcp_free(struct mst__storage *storage)
{
    struct tcp *tcp = (struct tcp *)storage;
    mst__pool_close(&tcp->pool);
    (void)pthread_mutex_destroy(&tcp->mutex); /* not held any more */
    mst__free(tcp->storage.url);
    mst__free(tcp);
}

static int tcp_clone(struct mst__storage *storage,
                     struct mst__storage **ret_storage,
                     struct mst_err *reterr)
{
    const struct mst__pool *pool = &((struct tcp *)storage)->pool;
    const struct mst__url url = {
        .scheme = MST_URL_TCP,
        .endpoint = pool->endpoint,
    };
    return mst__tcp_new(&url, &storage->options, ret_storage, reterr);
}

int mst__tcp_new(const struct mst__url *url,
                 const struct mst_store_options *options,
                 struct mst__storage **ret_storage,
                 struct mst_err *reterr)
{
    static const struct mst__storage_ops ops = {.execute = tcp_run,
                                                .is_remote = true,
                                                .clone = tcp_clone,
                                                .stats = tcp_stats,
                                                .free = tcp_free};
    struct tcp *tcp = mst__calloc(1, sizeof *tcp);
    char *own_url = mst__endpoint_url(&url->endpoint);
    if (tcp == NULL || own_url == NULL) {
        mst__free(tcp);
        mst__free(own_url);
        return mst__fail(reterr, MST_ENOMEM, 0, "tcp store");
    }
    tcp->storage.url = own_url;
    tcp->storage.ops = &ops;
    tcp->storage.key_root = options->bare_keys ? "" : "/";
    tcp->storage.options = *options;
    atomic_init(&tcp->storage.handles, 0);
    atomic_init(&tcp->retries, 0);
    atomic_init(&tcp->get_closes, false);
    (void)pthread_mutex_init(&tcp->mutex, NULL); /* never fails on Linux */
    struct mst__wire_limits limits =
        mst__wire_limits(options->key_size_max, options->value_size_max);
    mst__pool_init(&tcp->pool, url, &limits, &options->log);
    *ret_storage = &tcp->storage;
    return 0;
}

int mst__tcp_open(const struct mst__url *url,
                  const struct mst_store_options *options,
                  struct mst__until until,
                  struct mst__storage **ret_storage,
                  struct mst_err *reterr)
{
    struct mst__storage *storage = NULL;
    int rv = mst__tcp_new(url, options, &storage, reterr);
    if (rv != 0) {
        return rv;
    }
    struct mst__pool *pool = &((struct tcp *)storage)->pool;
    struct mst__pool_conn *conn = NULL;
    rv = mst__pool_get(pool, MST_POOL_FRESH, until, &conn, reterr);
    if (rv != 0) {
        tcp_free(storage);
        return rv;
    }
    mst__pool_put(pool, conn);
    *ret_storage = storage;
    return 0;
}
