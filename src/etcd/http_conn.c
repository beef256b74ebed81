/* etcd/http_conn.c - one request at a time, with libcurl. No other file uses libcurl.
 *
 * libcurl repeats a request if a kept connection turns out to be dead, which must not happen to a
 * write. conn_before_request forbids it, unless no byte had left. The same callback shows whether
 * anything was sent.
 *
 * SIGPIPE: libcurl passes MSG_NOSIGNAL; since 7.88 also below TLS, where it provides OpenSSL's
 * write function. */
#include "etcd/http_conn.h"

#include <stdatomic.h>
#include <stdio.h>
#include <strings.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/carried.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fork.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/until.h"
#include "etcd/curl.h"

/* Time to reach a host, TLS included. */
#define HTTP_CONNECT_MS 5000
/* All headers of one answer. */
#define HTTP_HEAD_SIZE_MAX MST_KIB(64)
/* Idle connections: first probe and interval of the others. */
#define HTTP_KEEPALIVE_S 15L
#define HTTP_KEEPALIVE_STEP_S 5L

/* Counts for the whole process, for benchmarks. */
static _Atomic uint64_t requests_total;
static _Atomic uint64_t watches_total;

struct mst__http_conn {
    const struct mst__curl *curl;
    const struct mst__http_setup *setup;
    _Atomic uint64_t *counter;
    CURL *easy;
    CURLM *multi;
    char error[CURL_ERROR_SIZE];

    /* Of the current request */
    struct curl_slist *headers;
    struct curl_slist *connect_to;
    struct mst__http_response *response;
    const struct mst__http_target *target;
    bool is_repeatable;
    bool is_watch;
    bool is_added;     /* in multi */
    bool is_head_done; /* all headers have arrived */
    bool is_done;      /* result is valid */
    CURLcode result;
    unsigned requests; /* how often libcurl began to send it */
    size_t head_size;
    int failure; /* set by a callback: MST_ELIMIT, MST_ENOMEM */
};

/* --- answers --- */

static size_t conn_on_body(char *data, size_t size, size_t count, void *arg)
{
    struct mst__http_conn *conn = arg;
    conn->failure = mst__buf_append(&conn->response->body, mst_bytes_of(data, size * count));
    return conn->failure == 0 ? size * count : 0;
}

/* The value of the header @name if @line is that header, without blanks around it. */
static bool header_value(struct mst_bytes line, const char *name, struct mst_bytes *ret_value)
{
    size_t size = strlen(name);
    if (line.size <= size || line.data[size] != ':' ||
        strncasecmp((const char *)line.data, name, size) != 0) {
        return false;
    }
    struct mst_bytes value = mst__bytes_skip(line, size + 1);
    while (value.size > 0 && (value.data[0] == ' ' || value.data[0] == '\t')) {
        value = mst__bytes_skip(value, 1);
    }
    while (value.size > 0 && value.data[value.size - 1] <= ' ') {
        value.size--;
    }
    *ret_value = value;
    return true;
}

static bool header_number(struct mst_bytes text, uint64_t *ret_number)
{
    uint64_t number = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' ||
            __builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(text.data[i] - '0'), &number)) {
            return false;
        }
    }
    *ret_number = number;
    return text.size > 0;
}

static size_t conn_on_header(char *data, size_t size, size_t count, void *arg)
{
    struct mst__http_conn *conn = arg;
    struct mst__http_response *response = conn->response;
    struct mst_bytes line = mst_bytes_of(data, size * count);
    conn->head_size += line.size;
    if (conn->head_size > HTTP_HEAD_SIZE_MAX) {
        conn->failure = MST_ELIMIT;
        return 0;
    }
    struct mst_bytes value;
    if (mst__bytes_start_with(line, mst_bytes_str("HTTP/"))) {
        response->has_index = false;
        response->is_json = false;
    } else if (header_value(line, "X-Etcd-Index", &value)) {
        response->has_index = header_number(value, &response->etcd_index);
    } else if (header_value(line, "Content-Type", &value)) {
        static const char json[] = "application/json";
        response->is_json = value.size >= sizeof json - 1 &&
                            strncasecmp((const char *)value.data, json, sizeof json - 1) == 0;
    } else if (line.size <= 2 && !conn->is_head_done) {
        /* The empty line. Further ones, after the trailers of a chunked body, change nothing. */
        long status = 0;
        (void)conn->curl->easy_getinfo(conn->easy, CURLINFO_RESPONSE_CODE,
                                       &status); /* cannot fail */
        response->status = (int)status;
        conn->is_head_done = status >= 200; /* another head follows a 100 */
    }
    return line.size;
}

/* Whether a byte of the request has left; the receiver may have executed it. */
static bool conn_is_sent(const struct mst__http_conn *conn)
{
    long size = 0;
    (void)conn->curl->easy_getinfo(conn->easy, CURLINFO_REQUEST_SIZE, &size); /* cannot fail */
    return conn->requests > 0 && size > 0;
}

/* Called when the connection is established and the request is about to be sent. */
static int conn_before_request(void *arg,
                               char *remote_ip,
                               char *local_ip,
                               int remote_port,
                               int local_port)
{
    (void)remote_ip;
    (void)local_ip;
    (void)remote_port;
    (void)local_port;
    struct mst__http_conn *conn = arg;
    if (!conn->is_repeatable && conn_is_sent(conn)) {
        return CURL_PREREQFUNC_ABORT;
    }
    conn->requests++;
    atomic_fetch_add(conn->counter, 1);
    atomic_fetch_add(conn->is_watch ? &watches_total : &requests_total, 1);
    return CURL_PREREQFUNC_OK;
}

struct mst__http_totals mst__http_totals(void)
{
    return (struct mst__http_totals){.requests = atomic_load(&requests_total),
                                     .watches = atomic_load(&watches_total)};
}

/* --- connections --- */

/* May be called when only the connection is left. */
static int conn_close_socket(void *arg, curl_socket_t fd)
{
    (void)arg;
    mst__carried_keep(fd);
    return mst__fork_close(fd);
}

static int conn_own_socket(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    (void)arg;
    (void)purpose; /* there is one */
    (void)mst__fork_own(fd);
    return CURL_SOCKOPT_OK;
}

void mst__http_conn_free(struct mst__http_conn *conn)
{
    if (conn == NULL) {
        return;
    }
    if (conn->easy != NULL) {
        conn->curl->easy_cleanup(conn->easy);
    }
    if (conn->multi != NULL) {
        (void)conn->curl->multi_cleanup(conn->multi); /* fails only for an invalid handle */
    }
    conn->curl->slist_free_all(conn->headers);
    conn->curl->slist_free_all(conn->connect_to);
    mst__free(conn);
}

/* Options of all requests of a connection. */
static CURLcode conn_set_up(struct mst__http_conn *conn)
{
    const struct mst__http_setup *setup = conn->setup;
    CURL *easy = conn->easy;
    CURLcode rc = CURLE_OK;
#define SET(option, value)                                     \
    do {                                                       \
        if (rc == CURLE_OK) {                                  \
            rc = conn->curl->easy_setopt(easy, option, value); \
        }                                                      \
    } while (0)
    SET(CURLOPT_ERRORBUFFER, conn->error);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_NOPROGRESS, 1L);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_NOPROXY, "*");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_USERAGENT, "muster");
    SET(CURLOPT_TCP_NODELAY, 1L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_TCP_KEEPIDLE, HTTP_KEEPALIVE_S);
    SET(CURLOPT_TCP_KEEPINTVL, HTTP_KEEPALIVE_STEP_S);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)HTTP_CONNECT_MS);
    SET(CURLOPT_WRITEFUNCTION, conn_on_body);
    SET(CURLOPT_WRITEDATA, conn);
    SET(CURLOPT_HEADERFUNCTION, conn_on_header);
    SET(CURLOPT_HEADERDATA, conn);
    SET(CURLOPT_PREREQFUNCTION, conn_before_request);
    SET(CURLOPT_PREREQDATA, conn);
    SET(CURLOPT_SOCKOPTFUNCTION, conn_own_socket);
    SET(CURLOPT_CLOSESOCKETFUNCTION, conn_close_socket);
    SET(CURLOPT_PRIVATE, conn);
    if (setup->is_tls) {
        SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
        SET(CURLOPT_SSL_VERIFYPEER, 1L);
        SET(CURLOPT_SSL_VERIFYHOST, 2L);
    }
    if (setup->ca_path != NULL) {
        /* Only this one: the system's authorities do not apply to a private cluster. */
        SET(CURLOPT_CAINFO, setup->ca_path);
        SET(CURLOPT_CAPATH, NULL);
    }
#if LIBCURL_VERSION_NUM >= 0x075700
    if (rc == CURLE_OK) {
        /* Otherwise each end of a request waits for the lookup of a name, whatever its deadline. An
         * older libcurl may be loaded, which does not know this. */
        (void)conn->curl->easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    }
#endif
    if (setup->cert_path != NULL) {
        SET(CURLOPT_SSLCERT, setup->cert_path);
        SET(CURLOPT_SSLKEY, setup->key_path != NULL ? setup->key_path : setup->cert_path);
    }
#undef SET
    return rc;
}

int mst__http_conn_new(const struct mst__http_setup *setup,
                       _Atomic uint64_t *counter,
                       struct mst__http_conn **ret_conn,
                       struct mst_err *reterr)
{
    const struct mst__curl *curl = mst__curl(reterr);
    if (curl == NULL) {
        return MST_ENOTSUP;
    }
    struct mst__http_conn *conn = mst__malloc(sizeof *conn);
    if (conn == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "connection to etcd");
    }
    *conn = (struct mst__http_conn){.curl = curl, .setup = setup, .counter = counter};
    conn->easy = conn->curl->easy_init();
    conn->multi = conn->curl->multi_init();
    int rv = MST_ENOMEM;
    if (conn->easy == NULL || conn->multi == NULL) {
        mst__err_fill(reterr, rv, 0, "connection to etcd: libcurl could not be set up");
        goto fail;
    }
    CURLcode rc = conn_set_up(conn);
    if (rc != CURLE_OK) {
        rv = rc == CURLE_OUT_OF_MEMORY ? MST_ENOMEM : MST_ENOTSUP;
        mst__err_fill(reterr, rv, 0, "connection to etcd: libcurl refuses an option: %s",
                      conn->curl->easy_strerror(rc));
        mst__err_code(reterr, MST_DOMAIN_CURL, (int)rc);
        goto fail;
    }
    *ret_conn = conn;
    return 0;
fail:
    mst__http_conn_free(conn);
    return rv;
}

void mst__http_conn_end(struct mst__http_conn *conn)
{
    if (conn->is_added) {
        (void)conn->curl->multi_remove_handle(conn->multi, conn->easy); /* it was added */
        conn->is_added = false;
    }
    (void)conn->curl->easy_setopt(conn->easy, CURLOPT_HTTPHEADER, NULL); /* removing never fails */
    (void)conn->curl->easy_setopt(conn->easy, CURLOPT_CONNECT_TO, NULL);
    (void)conn->curl->easy_setopt(conn->easy, CURLOPT_COPYPOSTFIELDS, NULL);
    conn->curl->slist_free_all(conn->headers);
    conn->curl->slist_free_all(conn->connect_to);
    conn->headers = NULL;
    conn->connect_to = NULL;
    conn->response = NULL;
}

/* --- one request --- */

static CURLcode conn_add_header(struct mst__http_conn *conn, const char *name, const char *value)
{
    size_t size = strlen(name) + strlen(value) + 1;
    char *text = mst__malloc(size);
    if (text == NULL) {
        return CURLE_OUT_OF_MEMORY;
    }
    (void)snprintf(text, size, "%s%s", name, value);
    struct curl_slist *headers = conn->curl->slist_append(conn->headers, text);
    mst__free(text);
    if (headers == NULL) {
        return CURLE_OUT_OF_MEMORY;
    }
    conn->headers = headers;
    return CURLE_OK;
}

static CURLcode conn_set_headers(struct mst__http_conn *conn,
                                 const struct mst__http_request *request)
{
    CURLcode rc = conn_add_header(conn, "Expect:", "");
    if (rc == CURLE_OK) {
        rc = request->content_type == NULL
                 ? conn_add_header(conn, "Content-Type:", "")
                 : conn_add_header(conn, "Content-Type: ", request->content_type);
    }
    if (rc == CURLE_OK && request->token != NULL) {
        rc = conn_add_header(conn, "Authorization: ", request->token);
    }
    if (rc == CURLE_OK && request->needs_leader) {
        rc = conn_add_header(conn, "Grpc-Metadata-Hasleader: ", "true");
    }
    return rc != CURLE_OK ? rc
                          : conn->curl->easy_setopt(conn->easy, CURLOPT_HTTPHEADER, conn->headers);
}

/* Set the method, and the body if there is one. The body is copied: a stream outlives the call. */
static CURLcode conn_set_method(struct mst__http_conn *conn,
                                const struct mst__http_request *request)
{
    static const char *const names[] = {
        [MST_HTTP_GET] = "GET",
        [MST_HTTP_PUT] = "PUT",
        [MST_HTTP_POST] = "POST",
        [MST_HTTP_DELETE] = "DELETE",
    };
    CURL *easy = conn->easy;
    bool has_body = request->method == MST_HTTP_PUT || request->method == MST_HTTP_POST;
    MST_ASSERT(has_body || request->body.size == 0);
    CURLcode rc = has_body ? conn->curl->easy_setopt(easy, CURLOPT_POST, 1L)
                           : conn->curl->easy_setopt(easy, CURLOPT_HTTPGET, 1L);
    if (rc == CURLE_OK) {
        rc = conn->curl->easy_setopt(easy, CURLOPT_CUSTOMREQUEST, names[request->method]);
    }
    if (rc == CURLE_OK && has_body) {
        rc = conn->curl->easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                                     (curl_off_t)request->body.size);
    }
    if (rc == CURLE_OK && has_body) {
        rc = conn->curl->easy_setopt(easy, CURLOPT_COPYPOSTFIELDS,
                                     request->body.size == 0 ? (const void *)""
                                                             : request->body.data);
    }
    return rc;
}

/* User and password are for v2 only; v3 has tokens. */
static CURLcode conn_set_user(struct mst__http_conn *conn, const struct mst__http_request *request)
{
    const struct mst__http_setup *setup = conn->setup;
    bool has_user = setup->user != NULL && request->token == NULL &&
                    mst__bytes_start_with(mst_bytes_str(request->path), mst_bytes_str("/v2/"));
    CURLcode rc = conn->curl->easy_setopt(conn->easy, CURLOPT_HTTPAUTH,
                                          has_user ? CURLAUTH_BASIC : CURLAUTH_NONE);
    if (rc == CURLE_OK) {
        rc = conn->curl->easy_setopt(conn->easy, CURLOPT_USERNAME, has_user ? setup->user : NULL);
    }
    if (rc == CURLE_OK) {
        const char *password = setup->password == NULL ? "" : setup->password;
        rc = conn->curl->easy_setopt(conn->easy, CURLOPT_PASSWORD, has_user ? password : NULL);
    }
    return rc;
}

static CURLcode conn_set_url(struct mst__http_conn *conn, const struct mst__http_request *request)
{
    const struct mst__http_target *target = conn->target;
    size_t size = strlen(target->base) + strlen(request->path) + 1;
    char *url = mst__malloc(size);
    if (url == NULL) {
        return CURLE_OUT_OF_MEMORY;
    }
    (void)snprintf(url, size, "%s%s", target->base, request->path);
    CURLcode rc = conn->curl->easy_setopt(conn->easy, CURLOPT_URL, url);
    mst__free(url);
    if (rc == CURLE_OK && target->connect_to != NULL) {
        conn->connect_to = conn->curl->slist_append(NULL, target->connect_to);
        rc = conn->connect_to == NULL
                 ? CURLE_OUT_OF_MEMORY
                 : conn->curl->easy_setopt(conn->easy, CURLOPT_CONNECT_TO, conn->connect_to);
    }
    return rc;
}

/* Prepare the request and pass it to libcurl. */
static CURLcode conn_add(struct mst__http_conn *conn, const struct mst__http_request *request)
{
    CURLcode rc = conn_set_url(conn, request);
    if (rc == CURLE_OK) {
        rc = conn_set_method(conn, request);
    }
    if (rc == CURLE_OK) {
        rc = conn_set_headers(conn, request);
    }
    if (rc == CURLE_OK) {
        rc = conn_set_user(conn, request);
    }
    if (rc == CURLE_OK) {
        conn->is_added = conn->curl->multi_add_handle(conn->multi, conn->easy) == CURLM_OK;
        rc = conn->is_added ? CURLE_OK : CURLE_OUT_OF_MEMORY;
    }
    return rc;
}

/* Whether @text is safe as the value of a header. */
static bool is_header_value(const char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) {
            return false;
        }
    }
    return true;
}

int mst__http_conn_begin(struct mst__http_conn *conn,
                         const struct mst__http_request *request,
                         const struct mst__http_target *target,
                         struct mst__http_response *response,
                         struct mst_err *reterr)
{
    MST_ASSERT(request->path[0] == '/');
    mst__http_conn_end(conn);
    conn->target = target;
    conn->response = response;
    conn->is_repeatable = request->is_repeatable;
    conn->is_watch = request->is_watch;
    conn->is_head_done = false;
    conn->is_done = false;
    conn->requests = 0;
    conn->head_size = 0;
    conn->failure = 0;
    conn->error[0] = '\0';
    mst__buf_clear(&response->body);
    response->body.size_max = conn->setup->response_size_max;
    response->status = 0;
    response->has_index = false;
    response->etcd_index = 0;
    response->is_json = false;
    if (!is_header_value(request->token) || !is_header_value(request->content_type)) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "token or content type for '%s' holds a control character", target->where);
    }
    CURLcode rc = conn_add(conn, request);
    if (rc != CURLE_OK) {
        return mst__fail_from(reterr, rc == CURLE_OUT_OF_MEMORY ? MST_ENOMEM : MST_EINVAL,
                              MST_DOMAIN_CURL, (int)rc, "request to '%s': %s", target->where,
                              conn->curl->easy_strerror(rc));
    }
    return 0;
}

int mst__http_conn_drive(struct mst__http_conn *conn,
                         enum mst__http_until goal,
                         struct mst__until until)
{
    size_t size_before = mst__buf_size(&conn->response->body);
    for (;;) {
        int running = 0;
        if (conn->curl->multi_perform(conn->multi, &running) != CURLM_OK) {
            return MST_ESYS;
        }
        int left = 0;
        for (CURLMsg *msg; (msg = conn->curl->multi_info_read(conn->multi, &left)) != NULL;) {
            if (msg->msg == CURLMSG_DONE) {
                conn->is_done = true;
                conn->result = msg->data.result;
            }
        }
        if (conn->is_done && conn->result == CURLE_OK && !conn->is_head_done) {
            conn->result = CURLE_PARTIAL_FILE; /* cut off inside the head: libcurl reports
                                                  success */
        }
        if (conn->is_done || (goal == MST_HTTP_UNTIL_HEAD && conn->is_head_done) ||
            (goal == MST_HTTP_UNTIL_BODY && mst__buf_size(&conn->response->body) > size_before)) {
            return 0;
        }
        if (mst__until_is_over(until)) {
            return MST_ETIMEOUT;
        }
        struct curl_waitfd wake = {.fd = until.wake_fd, .events = CURL_WAIT_POLLIN};
        int ready = 0;
        CURLMcode rc = conn->curl->multi_poll(conn->multi, &wake, wake.fd >= 0 ? 1 : 0,
                                              mst__until_poll_ms(until), &ready);
        if (rc != CURLM_OK) {
            return MST_ESYS;
        }
        if (ready == 0) {
            mst__until_tell();
        }
        if (wake.fd >= 0 && wake.revents != 0) {
            return MST_ECANCELED;
        }
    }
}
bool mst__http_conn_is_head_done(const struct mst__http_conn *conn)
{
    return conn->is_head_done;
}

bool mst__http_conn_is_done(const struct mst__http_conn *conn)
{
    return conn->is_done;
}

bool mst__http_conn_is_ok(const struct mst__http_conn *conn)
{
    return conn->is_done && conn->result == CURLE_OK;
}

const char *mst__http_conn_where(const struct mst__http_conn *conn)
{
    return conn->target->where;
}

/* --- errors --- */

/* Whether a certificate, ours or the server's, was refused. With TLS 1.3 the refusal of ours comes
 * as an alert instead of the answer, recognisable only by its text. */
static bool conn_is_refused(const struct mst__http_conn *conn)
{
    switch (conn->result) {
        case CURLE_PEER_FAILED_VERIFICATION:
        case CURLE_SSL_CERTPROBLEM:
        case CURLE_SSL_CACERT_BADFILE:
        case CURLE_SSL_ISSUER_ERROR:
        case CURLE_SSL_INVALIDCERTSTATUS:
            return true;
        case CURLE_SSL_CONNECT_ERROR:
        case CURLE_RECV_ERROR:
        case CURLE_SEND_ERROR:
            return conn->setup->is_tls && strstr(conn->error, "alert") != NULL &&
                   (strstr(conn->error, "certificate") != NULL ||
                    strstr(conn->error, "unknown ca") != NULL);
        default:
            return false;
    }
}

bool mst__http_conn_is_suspect(const struct mst__http_conn *conn)
{
    long connects = 0;
    (void)conn->curl->easy_getinfo(conn->easy, CURLINFO_NUM_CONNECTS, &connects); /* cannot fail */
    return conn->setup->is_tls && conn->is_done && connects > 0 && conn->head_size == 0 &&
           (conn->result == CURLE_SEND_ERROR || conn->result == CURLE_RECV_ERROR ||
            conn->result == CURLE_GOT_NOTHING);
}

int mst__http_conn_probe(const struct mst__http_conn *conn,
                         struct mst__until until,
                         struct mst_err *reterr)
{
    int64_t connect_ms = mst__clock_ms() + HTTP_CONNECT_MS;
    struct mst__http_request request = {.method = MST_HTTP_GET, .path = "/"};
    struct mst__http_response response;
    mst__http_response_init(&response);
    struct mst__http_conn *probe = NULL;
    int rv = mst__http_conn_new(conn->setup, conn->counter, &probe, NULL);
    /* Before TLS 1.3, a certificate is refused inside the handshake, so the result is certain. */
    if (rv == 0 &&
        conn->curl->easy_setopt(probe->easy, CURLOPT_SSLVERSION,
                                (long)CURL_SSLVERSION_TLSv1_2 |
                                    (long)CURL_SSLVERSION_MAX_TLSv1_2) == CURLE_OK &&
        conn->curl->easy_setopt(probe->easy, CURLOPT_CONNECT_ONLY, 1L) == CURLE_OK &&
        mst__http_conn_begin(probe, &request, conn->target, &response, NULL) == 0 &&
        mst__http_conn_drive(probe, MST_HTTP_UNTIL_DONE, mst__until_sooner(until, connect_ms)) ==
            0 &&
        conn_is_refused(probe)) {
        rv = mst__http_conn_fail(probe, reterr);
    }
    if (probe != NULL) {
        mst__http_conn_end(probe);
    }
    mst__http_conn_free(probe);
    mst__http_response_close(&response);
    return rv == MST_EAUTH ? rv : 0;
}

static int conn_code(const struct mst__http_conn *conn)
{
    if (conn->failure != 0) {
        return conn->failure;
    }
    if (conn_is_refused(conn)) {
        return MST_EAUTH;
    }
    bool is_sent = conn_is_sent(conn);
    switch (conn->result) {
        case CURLE_OUT_OF_MEMORY:
            return is_sent && !conn->is_repeatable ? MST_EUNKNOWN : MST_ENOMEM;
        case CURLE_URL_MALFORMAT:
            return MST_EINVAL;
        case CURLE_COULDNT_RESOLVE_HOST:
            return MST_ERESOLVE;
        case CURLE_UNSUPPORTED_PROTOCOL:
        case CURLE_WEIRD_SERVER_REPLY:
        case CURLE_BAD_CONTENT_ENCODING:
            return conn->is_repeatable ? MST_EPROTO : MST_EUNKNOWN;
        default:
            return is_sent && !conn->is_repeatable ? MST_EUNKNOWN : MST_ECONN;
    }
}

/* The error text of libcurl, or a better one. */
static const char *conn_reason(const struct mst__http_conn *conn)
{
    switch (conn->result) {
        case CURLE_ABORTED_BY_CALLBACK: /* set by conn_before_request */
            return "closed by it";
        case CURLE_GOT_NOTHING:
            return conn->setup->is_tls ? "closed by it" : "closed by it; does it want TLS?";
        default:
            return conn->error[0] != '\0' ? conn->error : conn->curl->easy_strerror(conn->result);
    }
}

int mst__http_conn_fail(const struct mst__http_conn *conn, struct mst_err *reterr)
{
    int code = conn_code(conn);
    const char *where = conn->target->where;
    const char *reason = conn_reason(conn);
    long os_errno = 0;
    (void)conn->curl->easy_getinfo(conn->easy, CURLINFO_OS_ERRNO, &os_errno); /* cannot fail */
    switch (code) {
        case MST_ELIMIT:
            mst__err_fill(reterr, code, 0, "answer of '%s' is larger than %zu bytes", where,
                          conn->setup->response_size_max);
            break;
        case MST_EUNKNOWN:
            mst__err_fill(reterr, code, 0,
                          "connection to '%s' was lost before the answer to a write: %s", where,
                          reason);
            break;
        case MST_EAUTH:
            mst__err_fill(reterr, code, 0, "TLS with '%s', see the CA, certificate and key: %s",
                          where, reason);
            break;
        default:
            mst__err_fill(reterr, code, 0, "request to '%s': %s", where, reason);
            break;
    }
    if (os_errno != 0) {
        mst__err_code(reterr, MST_DOMAIN_ERRNO, (int)os_errno);
    } else if (conn->result != CURLE_OK) {
        mst__err_code(reterr, MST_DOMAIN_CURL, (int)conn->result);
    }
    return code;
}

int mst__http_conn_fail_wait(const struct mst__http_conn *conn,
                             int rv,
                             bool is_patience,
                             struct mst_err *reterr)
{
    const char *where = conn->target->where;
    if (rv == MST_ECANCELED) {
        return mst__fail(reterr, rv, 0, "request to '%s' was cancelled", where);
    }
    bool is_sent = conn_is_sent(conn);
    bool is_unknown = is_sent && !conn->is_repeatable;
    if (rv != MST_ETIMEOUT) {
        return mst__fail(reterr, is_unknown ? MST_EUNKNOWN : MST_ECONN, 0,
                         "request to '%s': libcurl cannot wait for it", where);
    }
    const char *what = is_sent ? "no answer from" : "no connection to";
    if (is_patience) {
        return mst__fail(reterr, is_unknown ? MST_EUNKNOWN : MST_ECONN, 0, "%s '%s' for too long",
                         what, where);
    }
    return mst__fail(reterr, is_unknown ? MST_EUNKNOWN : MST_ETIMEOUT, 0,
                     "%s '%s' before the deadline", what, where);
}
