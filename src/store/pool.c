/* store/pool.c - connects, greets, and keeps connections.
 *
 * Every new connection starts with a greeting whose answer proves that a server answers and which
 * dialect it speaks (docs/protocol.md). A server of another dialect closes the connection at once,
 * without side effects:
 *
 *   C   VALIDATE, 4 times CANCEL_WAIT, CHECK of "muster.refusal"   answered 01 01 01 01, then 01
 *   B   CANCEL_WAIT, CHECK of "muster.wait_change"                 answered 01, then 01
 *   A   CHECK of no keys, CHECK of "muster.wait_change"            answered 00, then 01
 *
 * A server of muster answers the last CHECK with 00. In C it says from then on why it refuses a
 * request; a full one does so in place of this answer. In B and A nothing is wanted from it: it
 * speaks C, but was so full when it was greeted in C that it closed the connection. */
#include "store/pool.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "kv/kv.h"
#include "store/backoff.h"

/* Pauses between attempts to connect. */
#define POOL_CONNECT_MS_FIRST 20
#define POOL_CONNECT_MS_MAX 1000

/* How often a server must refuse the greeting of dialect C before it counts as an older one: a
 * connection can be lost by accident. */
#define POOL_PROBES 3

/* How long the answer to a greeting of B or A may take. A newer server could ignore it. */
#define POOL_LEGACY_GREETING_MS 2000

/* A larger output buffer is not kept. */
#define POOL_OUTPUT_KEPT MST_KIB(64)

/* Unconfirmed cancellations that a connection may have. */
#define POOL_UNCONFIRMED_MAX 16

void mst__pool_init(struct mst__pool *pool,
                    const struct mst__url *url,
                    const struct mst__wire_limits *limits,
                    const struct mst_log *log)
{
    *pool = (struct mst__pool){
        .endpoint = url->endpoint,
        .limits = *limits,
        .log = *log,
        .dialect = MST_DIALECT_UNKNOWN,
    };
    char text[MST_ENDPOINT_TEXT_SIZE];
    const char *path = mst__endpoint_path(&url->endpoint);
    (void)snprintf(pool->name, sizeof pool->name, "%s%.90s", path != NULL ? "unix://" : "tcp://",
                   path != NULL ? path
                                : mst__endpoint_format(&url->endpoint, text)); /* for people */
    (void)pthread_mutex_init(&pool->mutex, NULL); /* none of these fails on Linux */
    mst__cond_init(&pool->idle_cond);
    mst__cond_init(&pool->spare_cond);
}

static void conn_free(struct mst__pool_conn *conn)
{
    mst__client_close(&conn->client);
    mst__buf_close(&conn->output);
    mst__free(conn);
}

void mst__pool_close(struct mst__pool *pool)
{
    while (pool->idle != NULL) {
        struct mst__pool_conn *conn = pool->idle;
        pool->idle = conn->next;
        conn_free(conn);
        pool->open_count--;
    }
    MST_ASSERT(pool->open_count == 0);
    MST_ASSERT(pool->waiting_count == 0);
    (void)pthread_cond_destroy(&pool->idle_cond); /* no thread waits any more */
    (void)pthread_cond_destroy(&pool->spare_cond);
    (void)pthread_mutex_destroy(&pool->mutex);
}

uint64_t mst__pool_epoch(struct mst__pool *pool)
{
    (void)pthread_mutex_lock(&pool->mutex); /* a default mutex: cannot fail */
    uint64_t epoch = pool->epoch;
    (void)pthread_mutex_unlock(&pool->mutex);
    return epoch;
}

/* --- greeting --- */

/* The greeting of a dialect and its answer. */
static void greeting_of(enum mst__dialect dialect,
                        struct mst_bytes *ret_greeting,
                        struct mst_bytes *ret_answer)
{
    static const uint8_t greeting_c[] = {
        0x00, 0xce, 0xf7, 0x85, 0x3c, 0x0c, 0x0c, 0x0c, 0x0c, /* VALIDATE, CANCEL_WAIT */
        5,    1,    0,    0,    0,    0,    0,    0,    0,    /* CHECK of one key */
        14,   0,    0,    0,    0,    0,    0,    0,          /* of 14 bytes */
        'm',  'u',  's',  't',  'e',  'r',  '.',  'r',  'e',  'f', 'u', 's', 'a', 'l'};
    static_assert(sizeof MST_KV_ANNOUNCEMENT_REFUSAL - 1 == 14, "the key in this greeting");
    static const uint8_t answer_c[] = {1, 1, 1, 1};
    static const uint8_t greeting_b[] = {
        0x0b,                                       /* CANCEL_WAIT */
        4,    1,   0,   0,   0,   0,   0,   0,   0, /* CHECK of one key */
        18,   0,   0,   0,   0,   0,   0,   0,      /* of 18 bytes */
        'm',  'u', 's', 't', 'e', 'r', '.', 'w', 'a', 'i', 't', '_', 'c', 'h', 'a', 'n', 'g', 'e'};
    static const uint8_t greeting_a[] = {
        4,   0,   0,   0,   0,   0,   0,   0,   0, /* CHECK of no keys */
        4,   1,   0,   0,   0,   0,   0,   0,   0, /* CHECK of one key */
        18,  0,   0,   0,   0,   0,   0,   0,      /* of 18 bytes */
        'm', 'u', 's', 't', 'e', 'r', '.', 'w', 'a', 'i', 't', '_', 'c', 'h', 'a', 'n', 'g', 'e'};
    static_assert(sizeof MST_KV_ANNOUNCEMENT - 1 == 18, "the key in these greetings");
    static const uint8_t answer_b[] = {1, 1};
    static const uint8_t answer_a[] = {0, 1};
    if (dialect == MST_DIALECT_C) {
        *ret_greeting = mst_bytes_of(greeting_c, sizeof greeting_c);
        *ret_answer = mst_bytes_of(answer_c, sizeof answer_c);
    } else if (dialect == MST_DIALECT_B) {
        *ret_greeting = mst_bytes_of(greeting_b, sizeof greeting_b);
        *ret_answer = mst_bytes_of(answer_b, sizeof answer_b);
    } else {
        *ret_greeting = mst_bytes_of(greeting_a, sizeof greeting_a);
        *ret_answer = mst_bytes_of(answer_a, sizeof answer_a);
    }
}

/* The answer to the CHECK of the greeting, which follows @size bytes of the input and is taken: 0,
 * or MST_ECONN with the reason if the server has no place for us now. */
static int hear_admission(struct mst__client *client,
                          size_t size,
                          struct mst__until until,
                          bool *ret_closed,
                          struct mst_err *reterr)
{
    int rv = mst__client_receive(client, size + 1, until, reterr);
    *ret_closed = rv == MST_ECONN;
    rv = rv == 0 ? mst__client_admitted(client, size, until, reterr) : rv;
    if (rv == 0) {
        mst__buf_truncate(&client->input, size); /* what it tells is heard when it is told */
    }
    return rv;
}

/* Greet in @dialect. @ret_refused: the server closed the connection instead of answering. */
static int greet(struct mst__client *client,
                 enum mst__dialect dialect,
                 struct mst__until until,
                 bool *ret_refused,
                 struct mst_err *reterr)
{
    struct mst_bytes greeting;
    struct mst_bytes answer;
    greeting_of(dialect, &greeting, &answer);
    struct mst__until soon =
        dialect == MST_DIALECT_C
            ? until
            : mst__until_sooner(until, mst__clock_deadline_ms(POOL_LEGACY_GREETING_MS));
    size_t sent = 0;
    int rv = mst__client_send(client, greeting, soon, &sent, reterr);
    if (rv == 0) {
        rv = mst__client_receive(client, answer.size, soon, reterr);
    }
    *ret_refused = rv == MST_ECONN;
    if (rv == MST_ETIMEOUT && soon.deadline_ms < until.deadline_ms) {
        return mst__fail(reterr, MST_ECONN, 0, "no answer to the greeting of dialect %s",
                         mst__dialect_name(dialect));
    }
    struct mst_bytes input = mst__buf_bytes(&client->input);
    if (rv == 0 && dialect != MST_DIALECT_C && input.data[answer.size - 1] == MST_STATUS_READY) {
        return mst__fail(reterr, MST_ECONN, 0, "the server was full, and closed connections");
    }
    if (rv == 0 && !mst__bytes_start_with(input, answer)) {
        return mst__fail(reterr, MST_EPROTO, 0, "the peer is neither a PyTorch nor a muster store");
    }
    if (rv == 0 && dialect == MST_DIALECT_C) {
        rv = hear_admission(client, answer.size, soon, ret_refused, reterr);
    }
    if (rv != 0) {
        return rv == MST_ETIMEOUT ? mst__fail(reterr, rv, 0, "connected, but no answer in time")
                                  : rv;
    }
    mst__buf_clear(&client->input);
    return 0;
}

/* Connect once, and greet in @dialect. */
static int connect_as(struct mst__pool *pool,
                      enum mst__dialect dialect,
                      struct mst__until until,
                      struct mst__pool_conn *conn,
                      bool *ret_refused,
                      struct mst_err *reterr)
{
    *ret_refused = false;
    struct mst__client client;
    int rv =
        mst__client_open(&pool->endpoint, pool->limits.message_size_max, until, &client, reterr);
    if (rv != 0) {
        return rv;
    }
    rv = greet(&client, dialect, until, ret_refused, reterr);
    if (rv != 0) {
        mst__client_close(&client);
        return rv;
    }
    conn->client = client;
    conn->dialect = dialect;
    return 0;
}

/* Find the dialect, the newest first. Only a refusal counts; other failures say nothing. */
static int connect_probing(struct mst__pool *pool,
                           struct mst__until until,
                           struct mst__pool_conn *conn,
                           struct mst_err *reterr)
{
    bool refused = true;
    int rv = MST_ECONN;
    for (unsigned i = 0; i < POOL_PROBES && refused; i++) {
        rv = connect_as(pool, MST_DIALECT_C, until, conn, &refused, reterr);
    }
    if (refused) {
        rv = connect_as(pool, MST_DIALECT_B, until, conn, &refused, reterr);
    }
    if (refused) {
        rv = connect_as(pool, MST_DIALECT_A, until, conn, &refused, reterr);
    }
    if (refused) {
        return mst__fail(reterr, MST_ECONN, 0,
                         "it closes every connection: no store server, or one that is full");
    }
    return rv;
}

/* Connect once: in the dialect of the last server, or by probing. */
static int connect_once(struct mst__pool *pool,
                        struct mst__until until,
                        struct mst__pool_conn *conn,
                        struct mst_err *reterr)
{
    (void)pthread_mutex_lock(&pool->mutex);
    enum mst__dialect remembered = pool->dialect;
    (void)pthread_mutex_unlock(&pool->mutex);
    int rv;
    bool refused = false;
    if (remembered == MST_DIALECT_UNKNOWN) {
        rv = connect_probing(pool, until, conn, reterr);
    } else {
        rv = connect_as(pool, remembered, until, conn, &refused, reterr);
    }
    (void)pthread_mutex_lock(&pool->mutex);
    if (rv == 0) {
        pool->connects++;
        pool->dialect = conn->dialect;
        (void)snprintf(pool->peer, sizeof pool->peer, "%s%.120s",
                       strncmp(conn->client.peer, "unix:", 5) == 0 ? "" : "tcp://",
                       conn->client.peer); /* for people */
    } else if (rv != MST_ENOMEM && rv != MST_ETIMEOUT && rv != MST_ECANCELED) {
        /* The server may be replaced by another one. */
        pool->dialect = MST_DIALECT_UNKNOWN;
        pool->epoch++;
    }
    (void)pthread_mutex_unlock(&pool->mutex);
    return rv;
}

/* How many there are for calls that do not wait. With the mutex held. */
static size_t others_count(const struct mst__pool *pool)
{
    return pool->open_count - pool->connecting_count;
}

/* Whether there is a connection by now for a call that connects in vain. */
static bool pool_has_idle(struct mst__pool *pool, enum mst__pool_use use)
{
    (void)pthread_mutex_lock(&pool->mutex);
    bool has = use == MST_POOL_SHORT
                   ? pool->idle != NULL
                   : use == MST_POOL_WAIT && pool->idle != NULL && others_count(pool) > 1;
    (void)pthread_mutex_unlock(&pool->mutex);
    return has;
}

/* Connect repeatedly until the deadline, or until a connection has come back. @ret_done: there is a
 * new one. */
static int connect_until(struct mst__pool *pool,
                         enum mst__pool_use use,
                         struct mst__until until,
                         struct mst__pool_conn *conn,
                         bool *ret_done,
                         struct mst_err *reterr)
{
    *ret_done = false;
    struct mst__backoff backoff;
    mst__backoff_init(&backoff, POOL_CONNECT_MS_FIRST, POOL_CONNECT_MS_MAX);
    struct mst_err last = {0};
    for (unsigned attempts = 1;; attempts++) {
        struct mst_err err = {0};
        int rv = connect_once(pool, until, conn, &err);
        if (rv == 0) {
            char peer[MST_LOG_QUOTE_SIZE];
            mst__log(&pool->log, MST_LOG_DEBUG, "store.connected", "peer=%s dialect=%s attempts=%u",
                     mst__log_quote(mst_bytes_str(conn->client.peer), peer),
                     mst__dialect_name(conn->dialect), attempts);
            *ret_done = true;
            return 0;
        }
        /* An attempt that the deadline cut short has a less useful error than the one before. */
        if (rv != MST_ETIMEOUT || last.code == 0) {
            last = err;
        }
        bool again = rv == MST_ECONN || rv == MST_ERESOLVE;
        if (again && mst__backoff_pause(&backoff, until)) {
            char name[MST_LOG_QUOTE_SIZE];
            mst__log(&pool->log, MST_LOG_DEBUG, "store.connect_again", "to=%s attempts=%u",
                     mst__log_quote(mst_bytes_str(pool->name), name), attempts);
            if (pool_has_idle(pool, use)) {
                return 0;
            }
            continue;
        }
        mst__err_fill(reterr, last.code, 0, "connect to %s: %s (%u %s)", pool->name, last.msg,
                      attempts, attempts == 1 ? "attempt" : "attempts");
        mst__err_code(reterr, last.domain, last.sys); /* the message already has its text */
        return last.code;
    }
}

/* --- the pool --- */

/* Take an idle connection: the newest, which is most likely alive. */
static struct mst__pool_conn *take_idle(struct mst__pool *pool)
{
    struct mst__pool_conn *conn = pool->idle;
    if (conn != NULL) {
        pool->idle = conn->next;
        conn->next = NULL;
    }
    return conn;
}

/* Whether a call that waits must first make a connection for those that do not. Meanwhile the
 * others that wait make none: when descriptors run out, or places at the server, that connection is
 * there for the call that all wait for. With the mutex held. */
static int needs_spare(struct mst__pool *pool, struct mst__until until, bool *ret_needs_spare)
{
    int over = 0;
    while (pool->is_sparing && over == 0) {
        over = mst__until_cond(until, &pool->spare_cond, &pool->mutex);
    }
    bool needs = pool->waiting_count > 0 && others_count(pool) == 0;
    if (over == 0 && needs) {
        pool->is_sparing = true;
        pool->open_count++;
        pool->connecting_count++;
    }
    *ret_needs_spare = needs;
    return over;
}

/* A call that waits needs no turn: any number of them may be under way, since each may wait for a
 * call that is still to come. Only the first takes the last connection from the others. With the
 * mutex held. */
static struct mst__pool_conn *take_to_wait(struct mst__pool *pool)
{
    struct mst__pool_conn *idle = NULL;
    if (pool->waiting_count == 0 || others_count(pool) > 1) {
        idle = take_idle(pool);
    }
    if (idle != NULL) {
        pool->open_count--;
        idle->is_waiting = true;
    }
    pool->waiting_count++;
    return idle;
}

/* Wait for an idle connection, or for room for a new one, which is then counted. For a fresh one,
 * an idle one is closed to make room. NULL in @ret_conn means room. */
static int pool_reserve(struct mst__pool *pool,
                        enum mst__pool_use use,
                        struct mst__until until,
                        struct mst__pool_conn **ret_conn,
                        bool *ret_needs_spare)
{
    bool fresh = use == MST_POOL_FRESH;
    int rv = 0;
    int over = 0;
    *ret_conn = NULL;
    *ret_needs_spare = false;
    (void)pthread_mutex_lock(&pool->mutex); /* a default mutex: cannot fail */
    for (;;) {
        if (use == MST_POOL_WAIT) {
            rv = needs_spare(pool, until, ret_needs_spare);
            *ret_conn = rv == 0 && !*ret_needs_spare ? take_to_wait(pool) : NULL;
            break;
        }
        if (fresh && pool->open_count < MST_POOL_MAX) {
            pool->open_count++;
            pool->connecting_count++;
            break;
        }
        struct mst__pool_conn *idle = take_idle(pool);
        if (idle != NULL) {
            if (fresh) {
                conn_free(idle); /* we use its place */
                pool->connecting_count++;
            } else {
                *ret_conn = idle;
            }
            break;
        }
        if (pool->open_count < MST_POOL_MAX) {
            pool->open_count++;
            pool->connecting_count++;
            break;
        }
        if (over != 0) {
            rv = over;
            break;
        }
        over = mst__until_cond(until, &pool->idle_cond, &pool->mutex);
    }
    (void)pthread_mutex_unlock(&pool->mutex);
    return rv;
}

/* A call that does not wait has made a connection, or could not. */
static void pool_connected(struct mst__pool *pool)
{
    (void)pthread_mutex_lock(&pool->mutex);
    MST_ASSERT(pool->connecting_count > 0);
    pool->connecting_count--;
    (void)pthread_mutex_unlock(&pool->mutex);
}

static void pool_unreserve(struct mst__pool *pool, bool is_waiting)
{
    (void)pthread_mutex_lock(&pool->mutex);
    size_t *count = is_waiting ? &pool->waiting_count : &pool->open_count;
    MST_ASSERT(*count > 0);
    (*count)--;
    (void)pthread_cond_signal(&pool->idle_cond); /* cannot fail */
    (void)pthread_mutex_unlock(&pool->mutex);
}

void mst__pool_drop(struct mst__pool *pool, struct mst__pool_conn *conn)
{
    bool is_waiting = conn->is_waiting;
    conn_free(conn);
    pool_unreserve(pool, is_waiting);
}

void mst__pool_put(struct mst__pool *pool, struct mst__pool_conn *conn)
{
    if (conn->unconfirmed > POOL_UNCONFIRMED_MAX) {
        mst__pool_drop(pool, conn);
        return;
    }
    if (conn->output.capacity > POOL_OUTPUT_KEPT) {
        mst__buf_close(&conn->output);
    }
    (void)pthread_mutex_lock(&pool->mutex);
    bool is_kept = !conn->is_waiting || pool->open_count < MST_POOL_MAX;
    if (is_kept && conn->is_waiting) {
        conn->is_waiting = false;
        pool->waiting_count--;
        pool->open_count++;
    }
    if (is_kept) {
        conn->idle_ms = mst__clock_ms();
        conn->next = pool->idle;
        pool->idle = conn;
        (void)pthread_cond_signal(&pool->idle_cond); /* cannot fail */
    }
    (void)pthread_mutex_unlock(&pool->mutex);
    if (!is_kept) {
        mst__pool_drop(pool, conn);
    }
}

static struct mst__pool_conn *conn_new(const struct mst__pool *pool)
{
    struct mst__pool_conn *conn = mst__calloc(1, sizeof *conn);
    if (conn != NULL) {
        conn->client.stream.fd = -1;
        /* Room for a request and the small ones that go with it. */
        mst__buf_init(&conn->output,
                      pool->limits.message_size_max + pool->limits.key_size_max + 64);
    }
    return conn;
}

void mst__pool_prune(struct mst__pool *pool, int64_t idle_ms)
{
    int64_t before_ms = mst__clock_ms() - idle_ms;
    (void)pthread_mutex_lock(&pool->mutex);
    struct mst__pool_conn **link = &pool->idle; /* the newest first */
    if (*link != NULL && pool->waiting_count > 1) {
        link = &(*link)->next; /* it was made for other calls */
    }
    while (*link != NULL && (*link)->idle_ms > before_ms) {
        link = &(*link)->next;
    }
    struct mst__pool_conn *old = *link;
    *link = NULL;
    for (const struct mst__pool_conn *conn = old; conn != NULL; conn = conn->next) {
        pool->open_count--;
    }
    (void)pthread_cond_broadcast(&pool->idle_cond); /* cannot fail */
    (void)pthread_mutex_unlock(&pool->mutex);
    while (old != NULL) {
        struct mst__pool_conn *next = old->next;
        conn_free(old);
        old = next;
    }
}

/* Make a connection, which has its place. NULL in @ret_conn means that another one has come back,
 * which may serve instead. */
static int pool_connect(struct mst__pool *pool,
                        enum mst__pool_use use,
                        struct mst__until until,
                        struct mst__pool_conn **ret_conn,
                        struct mst_err *reterr)
{
    bool is_waiting = use == MST_POOL_WAIT;
    bool done = false;
    struct mst__pool_conn *conn = conn_new(pool);
    int rv = conn != NULL ? connect_until(pool, use, until, conn, &done, reterr)
                          : mst__fail(reterr, MST_ENOMEM, 0, "connection to %s", pool->name);
    if (!is_waiting) {
        pool_connected(pool);
    }
    if (conn == NULL) {
        pool_unreserve(pool, is_waiting);
        return rv;
    }
    conn->is_waiting = is_waiting;
    if (!done) {
        mst__pool_drop(pool, conn);
        return rv;
    }
    *ret_conn = conn;
    return 0;
}

int mst__pool_get(struct mst__pool *pool,
                  enum mst__pool_use use,
                  struct mst__until until,
                  struct mst__pool_conn **ret_conn,
                  struct mst_err *reterr)
{
    for (;;) {
        struct mst__pool_conn *conn = NULL;
        bool is_waiting = use == MST_POOL_WAIT;
        bool is_sparing;
        int rv = pool_reserve(pool, use, until, &conn, &is_sparing);
        if (rv != 0) {
            return is_waiting ? mst__fail(reterr, rv, 0, "not connected to %s", pool->name)
                              : mst__fail(reterr, rv, 0, "all %d connections to %s stayed in use",
                                          MST_POOL_MAX, pool->name);
        }
        if (conn != NULL) {
            if (mst__client_is_usable(&conn->client, conn->unconfirmed > 0)) {
                *ret_conn = conn;
                return 0;
            }
            mst__pool_drop(pool, conn); /* the server closed it while it was idle: harmless */
            continue;
        }
        if (!is_sparing) {
            rv = pool_connect(pool, use, until, &conn, reterr);
            if (rv == 0 && conn == NULL) {
                continue;
            }
            *ret_conn = conn;
            return rv;
        }
        rv = pool_connect(pool, MST_POOL_SHORT, until, &conn, reterr);
        if (conn != NULL) {
            mst__pool_put(pool, conn);
        }
        (void)pthread_mutex_lock(&pool->mutex);
        pool->is_sparing = false;
        (void)pthread_cond_broadcast(&pool->spare_cond); /* cannot fail */
        (void)pthread_mutex_unlock(&pool->mutex);
        if (rv != 0) {
            return rv;
        }
    }
}
