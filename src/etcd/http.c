/* etcd/http.c - endpoints, kept connections, and failover.
 *
 * A caller takes an idle connection or makes a new one, drives it in its own thread and puts it
 * back, so calls never wait for each other.
 *
 * One rule for failures of all kinds: an endpoint that cannot be reached, breaks off or owes an
 * answer is left, and each attempt has only a part of the call's time, so that a member that hangs
 * leaves time for the others. */
#include "etcd/http.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <strings.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/until.h"
#include "etcd/http_conn.h"
#include "etcd/secret.h"

/* Rounds over all endpoints, and the pause after the first. */
#define HTTP_ROUNDS 2
#define HTTP_PAUSE_MS 100
#define HTTP_WHERE_SIZE (MST_ENDPOINT_TEXT_SIZE + 16)

/* An endpoint that owes an answer for so long is left; an attempt has at least this time. A call
 * with a shorter deadline says little about the endpoint by itself. */
#define HTTP_OWING_MS 500

/* An endpoint that was not left for this many times the patience is quiet: leaving it is news. */
#define HTTP_QUIET 10

struct http_endpoint {
    struct mst__endpoint endpoint;
    char where[HTTP_WHERE_SIZE];
    char base[HTTP_WHERE_SIZE + MST_HOST_SIZE];
    char *connect_to;
    struct mst__http_target target; /* the three above */
    _Atomic int64_t owing_ms;       /* begin of the first attempt without an answer; 0 = none */
    _Atomic int64_t left_ms;        /* when it was left; 0 = never */
};

struct mst__http {
    struct mst_log log;
    struct mst__http_setup setup;
    char *server_name;
    int64_t patience_ms;
    _Atomic uint64_t requests;

    struct http_endpoint endpoints[MST_HTTP_ENDPOINTS_MAX];
    size_t endpoint_count;
    _Atomic size_t current;

    pthread_mutex_t mutex; /* guards the fields below */
    struct mst__http_conn *idle[MST_POOL_MAX];
    size_t idle_count;
};

struct mst__http_stream {
    struct mst__http *http;
    struct mst__http_conn *conn;
    size_t at; /* its endpoint */
    struct mst__http_response head;
    size_t line_size; /* size of the returned line, newline included */
    size_t scanned;   /* bytes of the body without a newline */
};

void mst__http_response_init(struct mst__http_response *response)
{
    *response = (struct mst__http_response){0};
    mst__buf_init(&response->body, MST_HTTP_RESPONSE_SIZE_MAX);
}

void mst__http_response_close(struct mst__http_response *response)
{
    mst__buf_close(&response->body);
    response->status = 0;
    response->has_index = false;
    response->is_json = false;
}

/* --- connections --- */

/* Take an idle connection, or make a new one. */
static int http_take(struct mst__http *http,
                     struct mst__http_conn **ret_conn,
                     struct mst_err *reterr)
{
    (void)pthread_mutex_lock(&http->mutex); /* fails only for an invalid mutex; also below */
    struct mst__http_conn *conn = http->idle_count == 0 ? NULL : http->idle[--http->idle_count];
    (void)pthread_mutex_unlock(&http->mutex);
    if (conn == NULL) {
        return mst__http_conn_new(&http->setup, &http->requests, ret_conn, reterr);
    }
    *ret_conn = conn;
    return 0;
}

static void http_give_back(struct mst__http *http, struct mst__http_conn *conn)
{
    if (conn == NULL) {
        return;
    }
    mst__http_conn_end(conn);
    (void)pthread_mutex_lock(&http->mutex);
    bool is_kept = http->idle_count < MST_POOL_MAX;
    if (is_kept) {
        http->idle[http->idle_count++] = conn;
    }
    (void)pthread_mutex_unlock(&http->mutex);
    if (!is_kept) {
        mst__http_conn_free(conn);
    }
}

/* --- over all endpoints --- */

/* @from has failed: use the next endpoint, unless another thread has already switched. Only the
 * first of many turns is logged: while all endpoints fail, nothing changes. */
static void http_leave(struct mst__http *http, size_t from, const char *why)
{
    size_t count = http->endpoint_count;
    size_t next = (from + 1) % count;
    size_t expected = from;
    if (next == from || !atomic_compare_exchange_strong(&http->current, &expected, next)) {
        return;
    }
    struct http_endpoint *endpoint = &http->endpoints[from];
    int64_t now_ms = mst__clock_ms();
    int64_t before_ms = atomic_exchange(&endpoint->left_ms, now_ms);
    if (before_ms != 0 && now_ms - before_ms < HTTP_QUIET * http->patience_ms) {
        return;
    }
    char quoted[MST_LOG_QUOTE_SIZE];
    mst__log(&http->log, MST_LOG_WARN, "etcd.rotated", "from=%s to=%s why=%s",
             MST_LOG_TEXT(endpoint->where), MST_LOG_TEXT(http->endpoints[next].where),
             mst__log_quote(mst_bytes_str(why), quoted));
}

void mst__http_rotate(struct mst__http *http)
{
    http_leave(http, atomic_load(&http->current), "no leader");
}

/* A request under way. */
struct http_flight {
    struct mst__http_conn *conn;
    const struct mst__http_request *request;
    enum mst__http_until goal; /* DONE or HEAD */
    struct mst__http_response *response;
    size_t at;      /* endpoint of the last attempt */
    bool is_silent; /* that attempt ended without an answer, when its time was over */
};

/* The deadline of one attempt: the endpoints that were not tried in this round share the time that
 * is left. */
static struct mst__until http_share(const struct mst__http *http,
                                    size_t attempt,
                                    struct mst__until until)
{
    size_t count = http->endpoint_count;
    if (count == 1) {
        return until;
    }
    int64_t now_ms = mst__clock_ms();
    int64_t share_ms = (until.deadline_ms - now_ms) / (int64_t)(count - attempt % count);
    share_ms = mst__max(share_ms, HTTP_OWING_MS);
    share_ms = mst__min(share_ms, http->patience_ms);
    return mst__until_sooner(until, now_ms + share_ms);
}

/* An attempt that began at @begin_ms has got no answer in its time. */
static void http_owes(struct mst__http *http, size_t at, int64_t begin_ms, const char *why)
{
    struct http_endpoint *endpoint = &http->endpoints[at];
    int64_t since_ms = 0;
    if (atomic_compare_exchange_strong(&endpoint->owing_ms, &since_ms, begin_ms)) {
        since_ms = begin_ms;
    }
    int64_t most_ms = mst__min(http->patience_ms, HTTP_OWING_MS);
    if (mst__clock_ms() - since_ms >= most_ms) {
        http_leave(http, at, why);
    }
}

/* Send the request to the current endpoint, once. @until is that of the call, @share its part. */
static int http_attempt(struct mst__http *http,
                        struct http_flight *flight,
                        struct mst__until until,
                        struct mst__until share,
                        struct mst_err *reterr)
{
    struct mst__http_conn *conn = flight->conn;
    size_t at = atomic_load(&http->current);
    flight->at = at;
    flight->is_silent = false;
    int64_t begin_ms = mst__clock_ms();
    int rv = mst__http_conn_begin(conn, flight->request, &http->endpoints[at].target,
                                  flight->response, reterr);
    if (rv != 0) {
        return rv;
    }
    rv = mst__http_conn_drive(conn, flight->goal, share);
    bool is_enough = flight->goal == MST_HTTP_UNTIL_HEAD ? mst__http_conn_is_head_done(conn)
                                                         : mst__http_conn_is_ok(conn);
    if (rv == 0 && is_enough) {
        atomic_store(&http->endpoints[at].owing_ms, 0);
        return 0;
    }
    struct mst_err err;
    flight->is_silent = rv == MST_ETIMEOUT;
    rv = rv != 0 ? mst__http_conn_fail_wait(conn, rv, share.deadline_ms < until.deadline_ms, &err)
                 : mst__http_conn_fail(conn, &err);
    if (flight->is_silent) {
        http_owes(http, at, begin_ms, err.msg);
        return mst__err_pass(reterr, rv, &err);
    }
    if ((rv == MST_ECONN || rv == MST_EUNKNOWN) && mst__http_conn_is_suspect(conn) &&
        mst__http_conn_probe(conn, until, &err) != 0) {
        rv = MST_EAUTH;
    }
    if (rv == MST_ECONN || rv == MST_EUNKNOWN || rv == MST_ERESOLVE) {
        http_leave(http, at, err.msg);
    }
    return mst__err_pass(reterr, rv, &err);
}

/* Send the request until it is answered or a retry is pointless. */
static int http_persist(struct mst__http *http,
                        struct http_flight *flight,
                        struct mst__until until,
                        struct mst_err *reterr)
{
    size_t count = http->endpoint_count;
    size_t failed = 0; /* attempts that took no time */
    for (size_t attempt = 0;; attempt++) {
        if (mst__until_is_woken(until.wake_fd)) {
            return mst__fail(reterr, MST_ECANCELED, 0, "request to '%s' was cancelled",
                             mst__http_where(http));
        }
        if (mst__until_is_over(until)) {
            return mst__fail(reterr, MST_ETIMEOUT, 0,
                             "request to '%s' was not sent before its deadline",
                             mst__http_where(http));
        }
        int rv = http_attempt(http, flight, until, http_share(http, attempt, until), reterr);
        failed += flight->is_silent ? 0 : 1;
        if ((rv != MST_ECONN && rv != MST_ERESOLVE) || failed == HTTP_ROUNDS * count) {
            return rv;
        }
        bool is_round = !flight->is_silent && failed % count == 0;
        int64_t pause_ms = is_round ? HTTP_PAUSE_MS * (int64_t)(failed / count) : 0;
        int64_t until_ms = mst__clock_ms() + pause_ms;
        if (until_ms >= until.deadline_ms) {
            return rv;
        }
        /* A wake-up is checked above. */
        (void)mst__until_pause(until.wake_fd, until_ms * 1000);
    }
}

int mst__http_call(struct mst__http *http,
                   const struct mst__http_request *request,
                   struct mst__until until,
                   struct mst__http_response *response,
                   struct mst_err *reterr)
{
    struct http_flight flight = {
        .request = request, .goal = MST_HTTP_UNTIL_DONE, .response = response};
    int rv = http_take(http, &flight.conn, reterr);
    if (rv == 0) {
        rv = http_persist(http, &flight, until, reterr);
    }
    http_give_back(http, flight.conn);
    return rv;
}

/* --- streams --- */

int mst__http_stream_open(struct mst__http *http,
                          const struct mst__http_request *request,
                          struct mst__until until,
                          struct mst__http_stream **ret_stream,
                          struct mst_err *reterr)
{
    struct mst__http_stream *stream = mst__malloc(sizeof *stream);
    if (stream == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "stream from '%s'", mst__http_where(http));
    }
    *stream = (struct mst__http_stream){.http = http};
    mst__http_response_init(&stream->head);
    struct http_flight flight = {
        .request = request, .goal = MST_HTTP_UNTIL_HEAD, .response = &stream->head};
    int rv = http_take(http, &flight.conn, reterr);
    stream->conn = flight.conn;
    if (rv == 0) {
        rv = http_persist(http, &flight, until, reterr);
    }
    if (rv != 0) {
        mst__http_stream_close(stream);
        return rv;
    }
    stream->at = flight.at;
    *ret_stream = stream;
    return 0;
}

int mst__http_stream_status(const struct mst__http_stream *stream)
{
    return stream->head.status;
}

const struct mst__http_response *mst__http_stream_head(const struct mst__http_stream *stream)
{
    return &stream->head;
}

bool mst__http_stream_is_left(const struct mst__http_stream *stream)
{
    return atomic_load(&stream->http->current) != stream->at;
}

void mst__http_stream_leave(struct mst__http_stream *stream, const char *why)
{
    http_leave(stream->http, stream->at, why);
}

/* The next complete line, if it has already arrived. */
static bool http_stream_line(struct mst__http_stream *stream, struct mst_bytes *ret_line)
{
    struct mst_bytes bytes = mst__buf_bytes(&stream->head.body);
    struct mst_bytes fresh = mst__bytes_skip(bytes, stream->scanned);
    const uint8_t *end = fresh.size == 0 ? NULL : memchr(fresh.data, '\n', fresh.size);
    stream->scanned = bytes.size;
    bool is_last = end == NULL && mst__http_conn_is_ok(stream->conn);
    if (end == NULL && (!is_last || bytes.size == 0)) {
        return false;
    }
    size_t size = end == NULL ? bytes.size : (size_t)(end - bytes.data);
    stream->line_size = end == NULL ? size : size + 1;
    if (size > 0 && bytes.data[size - 1] == '\r') {
        size--;
    }
    *ret_line = mst_bytes_of(bytes.data, size);
    return true;
}

int mst__http_stream_read(struct mst__http_stream *stream,
                          struct mst__until until,
                          struct mst_bytes *ret_line,
                          struct mst_err *reterr)
{
    struct mst__http_conn *conn = stream->conn;
    const char *where = mst__http_conn_where(conn);
    mst__buf_consume(&stream->head.body, stream->line_size);
    if (stream->line_size > 0) {
        stream->line_size = 0;
        stream->scanned = 0;
    }
    while (!http_stream_line(stream, ret_line)) {
        if (mst__http_conn_is_ok(conn)) {
            return mst__fail(reterr, MST_ENOTFOUND, 0, "stream from '%s' has ended", where);
        }
        if (mst__http_conn_is_done(conn)) {
            int rv = mst__http_conn_fail(conn, reterr);
            return rv == MST_ELIMIT || rv == MST_ENOMEM
                       ? rv
                       : mst__err_wrap(reterr, MST_ECONN, "stream was cut off");
        }
        int rv = mst__http_conn_drive(conn, MST_HTTP_UNTIL_BODY, until);
        if (rv == MST_ETIMEOUT || rv == MST_ECANCELED) {
            return mst__fail(reterr, rv, 0, "stream from '%s': %s", where,
                             rv == MST_ETIMEOUT ? "nothing came before the deadline" : "cancelled");
        }
        if (rv != 0) {
            return mst__fail(reterr, MST_ECONN, 0, "stream from '%s': libcurl cannot wait for it",
                             where);
        }
    }
    return 0;
}

void mst__http_stream_close(struct mst__http_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    http_give_back(stream->http, stream->conn);
    mst__http_response_close(&stream->head);
    mst__free(stream);
}
/* --- the whole --- */

static bool is_ipv6(const char *host)
{
    return strchr(host, ':') != NULL;
}

/* "[::1]" for an IPv6 address, with its zone in URL form; else the host unchanged. */
static void url_host(const char *host, char *ret_text, size_t ret_size)
{
    const char *zone = is_ipv6(host) ? strchr(host, '%') : NULL;
    if (zone != NULL) {
        (void)snprintf(ret_text, ret_size, "[%.*s%%25%s]", (int)(zone - host), host, zone + 1);
    } else {
        (void)snprintf(ret_text, ret_size, is_ipv6(host) ? "[%s]" : "%s", host);
    }
}

/* Fill the endpoint at @at; 0 or MST_ENOMEM. */
static int http_set_endpoint(struct mst__http *http,
                             size_t at,
                             const struct mst__endpoint *endpoint)
{
    struct http_endpoint *to = &http->endpoints[at];
    const char *scheme = http->setup.is_tls ? "https" : "http";
    to->endpoint = *endpoint;
    char text[MST_ENDPOINT_TEXT_SIZE];
    (void)snprintf(to->where, sizeof to->where, "%s://%s", scheme,
                   mst__endpoint_format(endpoint, text));
    char host[MST_HOST_SIZE + 8];
    url_host(http->server_name == NULL ? endpoint->host : http->server_name, host, sizeof host);
    (void)snprintf(to->base, sizeof to->base, "%s://%s:%u", scheme, host, endpoint->port);
    to->target = (struct mst__http_target){.where = to->where, .base = to->base};
    if (http->server_name == NULL) {
        return 0;
    }
    char target[MST_HOST_SIZE + 8];
    (void)snprintf(target, sizeof target, is_ipv6(endpoint->host) ? "[%s]" : "%s", endpoint->host);
    size_t size = strlen(host) + strlen(target) + 32;
    to->connect_to = mst__malloc(size);
    if (to->connect_to == NULL) {
        return MST_ENOMEM;
    }
    (void)snprintf(to->connect_to, size, "%s:%u:%s:%u", host, endpoint->port, target,
                   endpoint->port);
    to->target.connect_to = to->connect_to;
    return 0;
}

/* Add an endpoint, unless it is known. */
static int http_add_endpoint(struct mst__http *http, const struct mst__endpoint *endpoint)
{
    for (size_t i = 0; i < http->endpoint_count; i++) {
        const struct mst__endpoint *known = &http->endpoints[i].endpoint;
        if (known->port == endpoint->port && strcasecmp(known->host, endpoint->host) == 0) {
            return 0;
        }
    }
    int rv = http_set_endpoint(http, http->endpoint_count, endpoint);
    http->endpoint_count += rv == 0;
    return rv;
}

size_t mst__http_current(const struct mst__http *http)
{
    return atomic_load(&http->current);
}

const char *mst__http_where(const struct mst__http *http)
{
    return http->endpoints[atomic_load(&http->current)].where;
}

uint64_t mst__http_requests(const struct mst__http *http)
{
    return atomic_load(&http->requests);
}

static int check_file(const char *path, const char *what, struct mst_err *reterr)
{
    if (path != NULL && access(path, R_OK) != 0) {
        return mst__fail(reterr, MST_EINVAL, errno, "%s '%s' cannot be read", what, path);
    }
    return 0;
}

static int check_options(const struct mst__http_options *options, struct mst_err *reterr)
{
    if (options->endpoint_count == 0 || options->endpoint_count > MST_HTTP_ENDPOINTS_MAX) {
        return mst__fail(reterr, MST_EINVAL, 0, "%zu endpoints of etcd: give 1 to %d",
                         options->endpoint_count, MST_HTTP_ENDPOINTS_MAX);
    }
    bool has_tls = options->ca_path != NULL || options->cert_path != NULL ||
                   options->key_path != NULL || options->server_name != NULL;
    if (has_tls && !options->is_tls) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "certificates are given, but the protocol is http: use https");
    }
    if (options->key_path != NULL && options->cert_path == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "key '%s' is given without its certificate",
                         options->key_path);
    }
    const char *name = options->server_name;
    if (name != NULL && (name[0] == '\0' || strlen(name) >= MST_HOST_SIZE)) {
        return mst__fail(reterr, MST_EINVAL, 0, "invalid server name '%.40s'", name);
    }
    if (options->password != NULL && options->user == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "a password is given without a user");
    }
    int rv = check_file(options->ca_path, "CA", reterr);
    rv = rv != 0 ? rv : check_file(options->cert_path, "certificate", reterr);
    return rv != 0 ? rv : check_file(options->key_path, "key", reterr);
}

/* Copy @text, unless it is NULL, to @ret_copy; false if out of memory. */
static bool copy_text(const char *text, char **ret_copy)
{
    *ret_copy = text == NULL ? NULL : mst__strdup(text);
    return text == NULL || *ret_copy != NULL;
}

int mst__http_new(const struct mst__http_options *options,
                  struct mst__http **ret_http,
                  struct mst_err *reterr)
{
    int rv = check_options(options, reterr);
    if (rv != 0) {
        return rv;
    }
    struct mst__http *http = mst__calloc(1, sizeof *http);
    if (http == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "client of etcd");
    }
    http->log = options->log;
    http->setup.is_tls = options->is_tls;
    http->setup.response_size_max =
        options->response_size_max == 0 ? MST_HTTP_RESPONSE_SIZE_MAX : options->response_size_max;
    http->patience_ms = options->patience_ms == 0 ? MST_HTTP_PATIENCE_MS : options->patience_ms;
    (void)pthread_mutex_init(&http->mutex, NULL); /* cannot fail with these attributes */
    bool is_copied = copy_text(options->ca_path, &http->setup.ca_path) &&
                     copy_text(options->cert_path, &http->setup.cert_path) &&
                     copy_text(options->key_path, &http->setup.key_path) &&
                     copy_text(options->server_name, &http->server_name) &&
                     copy_text(options->user, &http->setup.user) &&
                     copy_text(options->password, &http->setup.password);
    for (size_t i = 0; is_copied && i < options->endpoint_count; i++) {
        is_copied = http_add_endpoint(http, &options->endpoints[i]) == 0;
    }
    if (!is_copied) {
        mst__http_free(http);
        return mst__fail(reterr, MST_ENOMEM, 0, "client of etcd");
    }
    atomic_store(&http->current, options->first % http->endpoint_count);
    *ret_http = http;
    return 0;
}

void mst__http_free(struct mst__http *http)
{
    if (http == NULL) {
        return;
    }
    for (size_t i = 0; i < http->idle_count; i++) {
        mst__http_conn_free(http->idle[i]);
    }
    for (size_t i = 0; i < MST_HTTP_ENDPOINTS_MAX; i++) {
        mst__free(http->endpoints[i].connect_to);
    }
    mst__free(http->setup.ca_path);
    mst__free(http->setup.cert_path);
    mst__free(http->setup.key_path);
    mst__free(http->server_name);
    mst__free(http->setup.user);
    mst__secret_free(http->setup.password);
    (void)pthread_mutex_destroy(&http->mutex); /* no thread uses it */
    mst__free(http);
}
