/* etcd/v3.c - calls of the v3 API.
 *
 * Every call goes through v3_call, which tries the path prefixes, gets a token if there is a user,
 * and repeats requests that may be repeated. A write is repeated only if it was certainly not
 * executed: its path did not exist, its token was invalid, or the member refused it at once for
 * lack of a leader. */
#include "etcd/v3.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/until.h"
#include "etcd/secret.h"
#include "etcd/v3_self.h"

/* Path prefixes: since 3.4, in 3.3, earlier. There is no request for the version: a missing path
 * fails, and nothing was done. */
static const char *const prefixes[] = {"/v3", "/v3beta", "/v3alpha"};
#define PREFIX_COUNT ((unsigned)(sizeof prefixes / sizeof prefixes[0]))

#define PAUSE_MS_FIRST 50
#define PAUSE_MS_MAX 1000

/* A token that is refused right after it was issued will not become valid. */
#define RENEWALS_MAX 2

struct mst__v3 {
    struct mst__http *http;
    struct mst_log log;
    char *user; /* NULL = none */
    char *password;
    pthread_mutex_t mutex; /* guards the fields below; not held during a request */
    pthread_cond_t changed;
    unsigned prefix;
    bool has_token; /* or none is needed */
    bool is_asking; /* a thread is requesting one */
    char *token;
    uint64_t token_serial; /* incremented with every change */
};

struct mst__http *mst__v3_http(struct mst__v3 *v3)
{
    return v3->http;
}

const struct mst_log *mst__v3_log(const struct mst__v3 *v3)
{
    return &v3->log;
}

static void lock(struct mst__v3 *v3)
{
    (void)pthread_mutex_lock(&v3->mutex); /* fails only for an invalid mutex; also below */
}

static void unlock(struct mst__v3 *v3)
{
    (void)pthread_mutex_unlock(&v3->mutex);
}

/* --- the prefix --- */

/* The prefix of @access does not exist: use one that this operation has not tried. */
static int next_prefix(struct mst__v3 *v3,
                       const struct mst__v3_access *access,
                       const struct mst__v3_error *error,
                       struct mst__v3_trial *trial,
                       struct mst_err *reterr)
{
    trial->prefixes |= 1U << access->prefix;
    for (unsigned i = 0; i < PREFIX_COUNT; i++) {
        if ((trial->prefixes & 1U << i) == 0) {
            lock(v3);
            v3->prefix = i;
            unlock(v3);
            return 0;
        }
    }
    lock(v3);
    v3->prefix = 0; /* the next operation may reach another server */
    unlock(v3);
    return mst__fail(
        reterr, MST_ENOTSUP, 0,
        "'%s' has no v3 JSON gateway (%.60s): is it an etcd without --enable-grpc-gateway=false?",
        mst__http_where(v3->http), error->message);
}

/* --- the token --- */

/* Request a token with user and password. NULL with 0: this etcd needs none. */
static int authenticate(struct mst__v3 *v3,
                        const char *prefix,
                        struct mst__until until,
                        char **ret_token,
                        struct mst__v3_error *ret_error,
                        struct mst_err *reterr)
{
    char path[MST_V3_PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/auth/authenticate", prefix);
    struct mst__buf body;
    mst__buf_init(&body, MST_V3_REQUEST_SIZE_MAX);
    struct mst__http_response response;
    mst__http_response_init(&response);
    *ret_token = NULL;
    *ret_error = (struct mst__v3_error){0};
    int rv = mst__v3_write_authenticate(&body, v3->user, v3->password);
    if (rv != 0) {
        mst__err_fill(reterr, rv, 0, "user and password for etcd: %s",
                      rv == MST_EINVAL ? "they must be UTF-8" : mst_strerror(rv));
        goto out;
    }
    const struct mst__http_request request = {
        .method = MST_HTTP_POST,
        .path = path,
        .body = mst__buf_bytes(&body),
        .content_type = "application/json",
        .needs_leader = true,
        .is_repeatable = true, /* a second token is harmless */
    };
    rv = mst__http_call(v3->http, &request, until, &response, reterr);
    if (rv != 0) {
        rv = mst__err_wrap(reterr, rv, "authenticate as '%.40s'", v3->user);
        goto out;
    }
    struct mst_bytes answer = mst__buf_bytes(&response.body);
    if (!mst__v3_read_error(response.status, answer, ret_error)) {
        rv = mst__v3_read_token(answer, ret_token, reterr);
    } else if (ret_error->grpc == 9) {
        rv = 0; /* authentication is not enabled */
    } else {
        bool is_password = ret_error->grpc == 3;
        ret_error->code = is_password ? MST_EAUTH : ret_error->code;
        rv = mst__fail(reterr, ret_error->code, 0, "authenticate as '%.40s' with '%.60s': %.80s",
                       v3->user, mst__http_where(v3->http), ret_error->message);
    }
out:
    if (body.memory != NULL) {
        explicit_bzero(body.memory, body.capacity); /* the password */
    }
    mst__buf_close(&body);
    mst__http_response_close(&response);
    return rv;
}

/* Wait until the thread that requests a token is done, or @until. */
static int wait_for_token(struct mst__v3 *v3, struct mst__until until, struct mst_err *reterr)
{
    while (v3->is_asking) {
        int rv = mst__until_cond(until, &v3->changed, &v3->mutex);
        if (rv != 0) {
            return mst__fail(reterr, rv, 0, "authenticate as '%.40s': %s", v3->user,
                             mst_strerror(rv));
        }
    }
    return 0;
}

/* Get a token if there is a user. One thread requests it, the others wait. */
static int get_token(struct mst__v3 *v3,
                     const char *prefix,
                     struct mst__until until,
                     struct mst__v3_error *ret_error,
                     struct mst_err *reterr)
{
    *ret_error = (struct mst__v3_error){0};
    lock(v3);
    int rv = v3->has_token ? 0 : wait_for_token(v3, until, reterr);
    if (rv != 0 || v3->has_token) {
        unlock(v3);
        return rv;
    }
    v3->is_asking = true;
    unlock(v3);
    char *token = NULL;
    rv = authenticate(v3, prefix, until, &token, ret_error, reterr);
    lock(v3);
    if (rv == 0) {
        mst__secret_free(v3->token);
        v3->token = token;
        v3->token_serial++;
        v3->has_token = true;
    }
    v3->is_asking = false;
    (void)pthread_cond_broadcast(&v3->changed); /* fails only for an invalid condition */
    unlock(v3);
    return rv;
}

/* The token with number @serial is no longer valid. */
static void drop_token(struct mst__v3 *v3, uint64_t serial)
{
    lock(v3);
    if (v3->token_serial == serial) {
        v3->has_token = false;
    }
    unlock(v3);
}

/* --- access --- */

void mst__v3_access_close(struct mst__v3_access *access)
{
    mst__secret_free(access->token);
    access->token = NULL;
}

/* Get a token; retry if the etcd has no leader, or with another prefix. */
static int access_token(struct mst__v3 *v3,
                        struct mst__v3_access *access,
                        struct mst__until until,
                        struct mst_err *reterr)
{
    struct mst__v3_trial trial = {0};
    for (;;) {
        lock(v3);
        access->prefix = v3->prefix;
        unlock(v3);
        struct mst__v3_error error;
        int rv = get_token(v3, prefixes[access->prefix], until, &error, reterr);
        bool is_repeated =
            rv != 0 && (error.fate == MST_V3_TRANSIENT || error.fate == MST_V3_NO_PATH);
        if (!is_repeated) {
            return rv;
        }
        rv = mst__v3_recover(v3, access, &error, false, until, &trial, reterr);
        if (rv != 0) {
            return mst__err_wrap(reterr, rv, "authenticate as '%.40s'", v3->user);
        }
    }
}

int mst__v3_access(struct mst__v3 *v3,
                   const char *path,
                   bool has_token,
                   struct mst__until until,
                   struct mst__v3_access *access,
                   struct mst_err *reterr)
{
    mst__v3_access_close(access);
    int rv = has_token && v3->user != NULL ? access_token(v3, access, until, reterr) : 0;
    if (rv != 0) {
        return rv;
    }
    lock(v3);
    access->prefix = v3->prefix;
    access->token_serial = v3->token_serial;
    bool is_copied = true;
    if (has_token && v3->token != NULL) {
        access->token = mst__strdup(v3->token);
        is_copied = access->token != NULL;
    }
    unlock(v3);
    if (!is_copied) {
        return mst__fail(reterr, MST_ENOMEM, 0, "token of etcd");
    }
    /* Before 3.4, lease calls that go through the log are below /kv. */
    bool is_moved = access->prefix != 0 &&
                    (strcmp(path, "/lease/revoke") == 0 || strcmp(path, "/lease/timetolive") == 0);
    int size = snprintf(access->path, sizeof access->path, "%s%s%s", prefixes[access->prefix],
                        is_moved ? "/kv" : "", path);
    MST_ASSERT(size > 0 && size < (int)sizeof access->path);
    return 0;
}

/* --- errors --- */

int64_t mst__v3_pause_until_ms(struct mst__v3_trial *trial)
{
    trial->pause_ms = trial->pause_ms == 0 ? PAUSE_MS_FIRST : trial->pause_ms * 2;
    trial->pause_ms = trial->pause_ms < PAUSE_MS_MAX ? trial->pause_ms : PAUSE_MS_MAX;
    return mst__clock_ms() + trial->pause_ms;
}

bool mst__v3_pause(struct mst__v3_trial *trial, struct mst__until until)
{
    int64_t until_ms = mst__v3_pause_until_ms(trial);
    return until_ms < until.deadline_ms && mst__until_pause(until.wake_fd, until_ms * 1000);
}

int mst__v3_recover(struct mst__v3 *v3,
                    const struct mst__v3_access *access,
                    const struct mst__v3_error *error,
                    bool is_write,
                    struct mst__until until,
                    struct mst__v3_trial *trial,
                    struct mst_err *reterr)
{
    const char *where = mst__http_where(v3->http);
    switch (error->fate) {
        case MST_V3_NO_PATH:
            return next_prefix(v3, access, error, trial, reterr);
        case MST_V3_TOKEN:
            if (v3->user == NULL) {
                return mst__fail(reterr, MST_EAUTH, 0,
                                 "'%.60s' requires a user and a password: %.80s", where,
                                 error->message);
            }
            drop_token(v3, access->token_serial);
            if (trial->renewals == RENEWALS_MAX) {
                return mst__fail(reterr, MST_EAUTH, 0, "'%.60s' refuses user '%.40s': %.80s", where,
                                 v3->user, error->message);
            }
            trial->renewals++;
            return 0;
        case MST_V3_TRANSIENT:
            if (is_write && !error->is_untried) {
                return mst__fail(reterr, MST_EUNKNOWN, 0,
                                 "'%.60s': %.80s; it may or may not have been executed", where,
                                 error->message);
            }
            mst__http_rotate(v3->http);
            if (mst__v3_pause(trial, until)) {
                return 0;
            }
            if (mst__until_is_woken(until.wake_fd)) {
                return mst__fail(reterr, MST_ECANCELED, 0, "request to '%.60s' was cancelled",
                                 where);
            }
            return mst__fail(reterr, MST_ETIMEOUT, 0, "'%.60s' until the deadline: %.80s", where,
                             error->message);
        case MST_V3_REFUSED:
            break;
    }
    return mst__fail(reterr, error->code, 0, "'%.60s': %.120s", where, error->message);
}

/* --- calls --- */

/* Properties of a call. */
enum v3_trait {
    V3_WRITE = 1,      /* must not be executed twice */
    V3_STREAM = 2,     /* the answer is a stream of one message */
    V3_LEADERLESS = 4, /* also answered by a member without a leader */
    V3_TOKENLESS = 8,  /* needs no token */
};

struct v3_call {
    const char *name; /* for messages */
    const char *path;
    unsigned traits;
    struct mst__buf body;
    struct mst__http_response response;
};

static void v3_call_init(struct v3_call *call, const char *name, const char *path, unsigned traits)
{
    *call = (struct v3_call){.name = name, .path = path, .traits = traits};
    mst__buf_init(&call->body, MST_V3_REQUEST_SIZE_MAX);
    mst__http_response_init(&call->response);
}

static void v3_call_close(struct v3_call *call)
{
    mst__buf_close(&call->body);
    mst__http_response_close(&call->response);
}

static struct mst_bytes v3_call_answer(const struct v3_call *call)
{
    return mst__buf_bytes(&call->response.body);
}

/* Send the call once. 0 if it was answered: with @ret_error if @ret_is_error. */
static int v3_call_once(struct mst__v3 *v3,
                        struct v3_call *call,
                        const struct mst__v3_access *access,
                        struct mst__until until,
                        bool *ret_is_error,
                        struct mst__v3_error *ret_error,
                        struct mst_err *reterr)
{
    struct mst__http_request request = {
        .method = MST_HTTP_POST,
        .path = access->path,
        .body = mst__buf_bytes(&call->body),
        .content_type = "application/json",
        .token = access->token,
        .needs_leader = (call->traits & V3_LEADERLESS) == 0,
        .is_repeatable = (call->traits & V3_WRITE) == 0,
    };
    int rv = mst__http_call(v3->http, &request, until, &call->response, reterr);
    if (rv != 0) {
        return rv;
    }
    /* Callers parse an answer of status 200; only in a stream it may be an error. */
    bool is_plain = call->response.status == 200 && (call->traits & V3_STREAM) == 0;
    *ret_is_error =
        !is_plain && mst__v3_read_error(call->response.status, v3_call_answer(call), ret_error);
    return 0;
}

/* Send the body, whose construction returned @rv, until it is answered. */
static int v3_call(struct mst__v3 *v3,
                   struct v3_call *call,
                   int rv,
                   struct mst__until until,
                   struct mst_err *reterr)
{
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "etcd %s: the request cannot be made: %s", call->name,
                         rv == MST_EINVAL ? "a key is empty or a number negative"
                                          : mst_strerror(rv));
    }
    bool is_write = (call->traits & V3_WRITE) != 0;
    bool has_token = (call->traits & V3_TOKENLESS) == 0;
    struct mst__v3_trial trial = {0};
    struct mst__v3_access access = {0};
    bool is_error;
    do {
        struct mst__v3_error error;
        is_error = false;
        rv = mst__v3_access(v3, call->path, has_token, until, &access, reterr);
        if (rv == 0) {
            rv = v3_call_once(v3, call, &access, until, &is_error, &error, reterr);
        }
        if (rv == 0 && is_error) {
            rv = mst__v3_recover(v3, &access, &error, is_write, until, &trial, reterr);
        }
    } while (rv == 0 && is_error);
    mst__v3_access_close(&access);
    return rv == 0 ? 0 : mst__err_wrap(reterr, rv, "etcd %s", call->name);
}

/* The result of parsing the answer, with the name of the call. A write was executed, even if the
 * answer is malformed. */
static int v3_call_done(struct v3_call *call, int rv, struct mst_err *reterr)
{
    if (rv == MST_EPROTO && (call->traits & V3_WRITE) != 0) {
        rv = MST_EUNKNOWN;
    }
    return rv == 0 ? 0 : mst__err_wrap(reterr, rv, "etcd %s", call->name);
}

int mst__v3_range(struct mst__v3 *v3,
                  const struct mst__v3_range *range,
                  struct mst__until until,
                  struct mst__v3_result *result,
                  struct mst_err *reterr)
{
    mst__v3_result_close(result);
    struct v3_call call;
    v3_call_init(&call, "range", "/kv/range", range->is_serializable ? V3_LEADERLESS : 0);
    int rv = v3_call(v3, &call, mst__v3_write_range(&call.body, range), until, reterr);
    if (rv == 0) {
        rv = mst__v3_read_range(v3_call_answer(&call), result, reterr);
        rv = v3_call_done(&call, rv, reterr);
    }
    v3_call_close(&call);
    return rv;
}

int mst__v3_put(struct mst__v3 *v3,
                const struct mst__v3_put *put,
                struct mst__until until,
                struct mst__v3_result *result,
                struct mst_err *reterr)
{
    mst__v3_result_close(result);
    struct v3_call call;
    v3_call_init(&call, "put", "/kv/put", V3_WRITE);
    int rv = v3_call(v3, &call, mst__v3_write_put(&call.body, put), until, reterr);
    if (rv == 0) {
        rv = mst__v3_read_put(v3_call_answer(&call), result, reterr);
        rv = v3_call_done(&call, rv, reterr);
    }
    v3_call_close(&call);
    return rv;
}

int mst__v3_delete(struct mst__v3 *v3,
                   const struct mst__v3_delete *del,
                   struct mst__until until,
                   struct mst__v3_result *result,
                   struct mst_err *reterr)
{
    mst__v3_result_close(result);
    struct v3_call call;
    v3_call_init(&call, "delete", "/kv/deleterange", V3_WRITE);
    int rv = v3_call(v3, &call, mst__v3_write_delete(&call.body, del), until, reterr);
    if (rv == 0) {
        rv = mst__v3_read_delete(v3_call_answer(&call), result, reterr);
        rv = v3_call_done(&call, rv, reterr);
    }
    v3_call_close(&call);
    return rv;
}

int mst__v3_txn(struct mst__v3 *v3,
                const struct mst__v3_txn *txn,
                struct mst__until until,
                struct mst__v3_result *result,
                struct mst_err *reterr)
{
    mst__v3_result_close(result);
    struct v3_call call;
    v3_call_init(&call, "transaction", "/kv/txn", mst__v3_txn_is_read(txn) ? 0 : V3_WRITE);
    int rv = v3_call(v3, &call, mst__v3_write_txn(&call.body, txn), until, reterr);
    if (rv == 0) {
        rv = mst__v3_read_txn(v3_call_answer(&call), txn, result, reterr);
        rv = v3_call_done(&call, rv, reterr);
    }
    v3_call_close(&call);
    return rv;
}

/* --- leases --- */

int mst__v3_lease_grant(struct mst__v3 *v3,
                        int64_t ttl_s,
                        struct mst__until until,
                        int64_t *lease,
                        int64_t *ret_ttl_s,
                        struct mst_err *reterr)
{
    struct v3_call call;
    /* A second lease without a given id is harmless: it expires. */
    v3_call_init(&call, "lease grant", "/lease/grant", *lease == 0 ? 0 : V3_WRITE);
    int rv = mst__v3_write_lease(&call.body, ttl_s, *lease);
    rv = v3_call(v3, &call, rv, until, reterr);
    if (rv == 0) {
        struct mst__v3_lease granted = {0};
        rv = mst__v3_read_lease(v3_call_answer(&call), &granted, reterr);
        rv = v3_call_done(&call, rv, reterr);
        if (rv == 0) {
            *lease = granted.id;
            *ret_ttl_s = granted.ttl_s;
        }
    }
    v3_call_close(&call);
    return rv;
}

/* Query @lease; MST_ENOTFOUND if it is gone. It lives if its TTL is at least @ttl_s_min. */
static int lease_ask(struct mst__v3 *v3,
                     struct v3_call *call,
                     int64_t lease,
                     int64_t ttl_s_min,
                     struct mst__until until,
                     int64_t *ret_ttl_s,
                     struct mst_err *reterr)
{
    int rv = lease == 0 ? MST_EINVAL : mst__v3_write_lease(&call->body, 0, lease);
    rv = v3_call(v3, call, rv, until, reterr);
    if (rv == 0) {
        struct mst__v3_lease answer = {0};
        struct mst_bytes body = v3_call_answer(call);
        rv = (call->traits & V3_STREAM) != 0 ? mst__v3_read_keep_alive(body, &answer, reterr)
                                             : mst__v3_read_lease(body, &answer, reterr);
        if (rv == 0 && answer.ttl_s < ttl_s_min) {
            rv = mst__fail(reterr, MST_ENOTFOUND, 0, "lease %lld is gone", (long long)lease);
        }
        rv = v3_call_done(call, rv, reterr);
        if (rv == 0) {
            *ret_ttl_s = answer.ttl_s;
        }
    }
    v3_call_close(call);
    return rv;
}

int mst__v3_lease_keep_alive(struct mst__v3 *v3,
                             int64_t lease,
                             struct mst__until until,
                             int64_t *ret_ttl_s,
                             struct mst_err *reterr)
{
    struct v3_call call;
    v3_call_init(&call, "lease keep-alive", "/lease/keepalive", V3_STREAM);
    return lease_ask(v3, &call, lease, 1, until, ret_ttl_s, reterr);
}

int mst__v3_lease_time_to_live(struct mst__v3 *v3,
                               int64_t lease,
                               struct mst__until until,
                               int64_t *ret_ttl_s,
                               struct mst_err *reterr)
{
    struct v3_call call;
    v3_call_init(&call, "lease time-to-live", "/lease/timetolive", 0);
    return lease_ask(v3, &call, lease, 0, until, ret_ttl_s, reterr);
}

int mst__v3_lease_revoke(struct mst__v3 *v3,
                         int64_t lease,
                         struct mst__until until,
                         struct mst_err *reterr)
{
    struct v3_call call;
    v3_call_init(&call, "lease revoke", "/lease/revoke", V3_WRITE);
    int rv = lease == 0 ? MST_EINVAL : mst__v3_write_lease(&call.body, 0, lease);
    rv = v3_call(v3, &call, rv, until, reterr);
    v3_call_close(&call);
    return rv;
}

/* --- the server --- */

int mst__v3_status(struct mst__v3 *v3,
                   struct mst__until until,
                   struct mst__v3_status *ret_status,
                   struct mst_err *reterr)
{
    struct v3_call call;
    v3_call_init(&call, "status", "/maintenance/status", V3_LEADERLESS | V3_TOKENLESS);
    int rv = mst__buf_append(&call.body, mst_bytes_str("{}"));
    rv = v3_call(v3, &call, rv, until, reterr);
    if (rv == 0) {
        rv = mst__v3_read_status(v3_call_answer(&call), ret_status, reterr);
        rv = v3_call_done(&call, rv, reterr);
    }
    v3_call_close(&call);
    return rv;
}

int mst__v3_compact(struct mst__v3 *v3,
                    int64_t revision,
                    struct mst__until until,
                    struct mst_err *reterr)
{
    struct v3_call call;
    v3_call_init(&call, "compaction", "/kv/compaction", V3_WRITE);
    int rv = v3_call(v3, &call, mst__v3_write_compact(&call.body, revision), until, reterr);
    v3_call_close(&call);
    return rv;
}

/* --- the client --- */

int mst__v3_new(const struct mst__http_options *options,
                struct mst__v3 **ret_v3,
                struct mst_err *reterr)
{
    struct mst__v3 *v3 = mst__malloc(sizeof *v3);
    if (v3 == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "client of etcd");
    }
    *v3 = (struct mst__v3){.log = options->log};
    (void)pthread_mutex_init(&v3->mutex, NULL); /* none of these fails on Linux */
    mst__cond_init(&v3->changed);
    struct mst__http_options http_options = *options;
    http_options.user = NULL;
    http_options.password = NULL;
    int rv = 0;
    if (options->user != NULL) {
        v3->user = mst__strdup(options->user);
        v3->password = mst__strdup(options->password == NULL ? "" : options->password);
        if (v3->user == NULL || v3->password == NULL) {
            rv = mst__fail(reterr, MST_ENOMEM, 0, "client of etcd");
        }
    } else if (options->password != NULL) {
        rv = mst__fail(reterr, MST_EINVAL, 0, "a password for etcd is given without a user");
    }
    rv = rv != 0 ? rv : mst__http_new(&http_options, &v3->http, reterr);
    if (rv != 0) {
        mst__v3_free(v3);
        return rv;
    }
    *ret_v3 = v3;
    return 0;
}

void mst__v3_free(struct mst__v3 *v3)
{
    if (v3 == NULL) {
        return;
    }
    mst__http_free(v3->http);
    mst__free(v3->user);
    mst__secret_free(v3->password);
    mst__secret_free(v3->token);
    (void)pthread_cond_destroy(&v3->changed); /* no thread waits */
    (void)pthread_mutex_destroy(&v3->mutex);
    mst__free(v3);
}

size_t mst__v3_current(const struct mst__v3 *v3)
{
    return mst__http_current(v3->http);
}

const char *mst__v3_where(const struct mst__v3 *v3)
{
    return mst__http_where(v3->http);
}

uint64_t mst__v3_requests(const struct mst__v3 *v3)
{
    return mst__http_requests(v3->http);
}
