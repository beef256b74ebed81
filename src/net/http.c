/* net/http.c - metrics, health and jobs: libmicrohttpd on the server's own loop and thread.
 *
 * libmicrohttpd watches its sockets with its own epoll descriptor. The loop watches that descriptor
 * and, with a timer, the work that libmicrohttpd wants to do without an event; both only call
 * MHD_run, which never blocks. The store's connections are not involved.
 *
 * The number of connections and the memory of each are bounded. A connection has a deadline for its
 * first request and then for each further one, however busy it is meanwhile. If there are too many
 * connections, the one with the earliest deadline must go. So clients that never finish lock out no
 * other. libmicrohttpd has timeouts for silence only: a connection that must go is shut down, and
 * libmicrohttpd notices that. A page is made from a snapshot of the counters on request, so
 * requests to the store cost nothing extra. Answers about jobs are also made from a snapshot, in
 * parts, as they are sent; few are under way at the same time. The memory of long answers counts
 * under the server's limit. */
#include "net/http.h"

#include <errno.h>
#include <muster/version.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/endpoint.h"
#include "base/fork.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/percent.h"
#include "net/address.h"
#include "net/job_status.h"
#include "net/metrics.h"
#include "net/microhttpd.h"
#include "net/server.h"

/* From the end of the previous request to the end of the answer. */
#define HTTP_DEADLINE_MS 10000

/* Connections that libmicrohttpd accepts beyond the limit, while others are being shut down. */
#define HTTP_SPARE 16

/* Without descriptors libmicrohttpd would try to accept in a busy loop; we retry at this
 * interval. */
#define HTTP_RETRY_MS 100

#define TEXT_PLAIN "text/plain; charset=utf-8"
#define TEXT_METRICS "text/plain; version=0.0.4; charset=utf-8"
#define TEXT_JSON "application/json"

/* JSON made of a snapshot in one turn of the loop: well below a millisecond. */
#define SNAPSHOT_PART_SIZE MST_KIB(16)

static const char index_text[] = "muster " MST_VERSION "\n"
                                 "\n"
                                 "/metrics  counters of the store, for Prometheus\n"
                                 "/healthz  200 while the store is served, 503 while it stops\n"
                                 "/readyz   200 while there is room, 503 with the reason if not\n"
                                 "/jobs     all jobs, as JSON\n"
                                 "/jobs/ID  one of them\n";

/* One connection, in the order of deadlines. */
struct http_conn {
    struct http_conn *prev, *next;
    int64_t due_ms;
    struct mst__stream stream; /* belongs to libmicrohttpd */
    bool is_shut;
};

struct mst__http {
    struct mst_server *server;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;   /* on the daemon's epoll descriptor, */
    int epoll_fd;     /* which the daemon closes, */
    int listener_fd;  /* as it closes this one; -1 = none yet, for both */
    uv_timer_t timer; /* when the daemon wants to run without an event, or a deadline is due */
    uv_idle_t again;  /* run again in the next turn: a timer of 0 ms would run in this one */
    struct http_conn conns[MST_HTTP_CONNECTIONS_MAX + HTTP_SPARE];
    struct http_conn *conns_free; /* linked by next */
    struct http_conn *conns_first, *conns_last;
    unsigned conns_count; /* those that are not shut down */
    unsigned handles_count;
    unsigned snapshots_count; /* being sent */
    bool accepted;            /* a connection was accepted since this was cleared */
    char address[MST_ADDRESS_SIZE];
};

/* --- answers --- */

/* A response with a copy of @body. NULL if out of memory. */
static struct MHD_Response *response_new(const char *type, struct mst_bytes body)
{
    void *data = (void *)(uintptr_t)body.data; /* it is only read */
    struct MHD_Response *response =
        mst__mhd.create_response_from_buffer(body.size, data, MHD_RESPMEM_MUST_COPY);
    if (response != NULL &&
        mst__mhd.add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) != MHD_YES) {
        mst__mhd.destroy_response(response);
        return NULL;
    }
    return response;
}

/* MHD_NO, which ends the connection, if out of memory. */
static enum MHD_Result answer(struct MHD_Connection *connection,
                              unsigned status,
                              const char *type,
                              struct mst_bytes body)
{
    struct MHD_Response *response = response_new(type, body);
    if (response == NULL) {
        return MHD_NO;
    }
    enum MHD_Result result = mst__mhd.queue_response(connection, status, response);
    mst__mhd.destroy_response(response); /* the connection has its own reference */
    return result;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection,
                                   unsigned status,
                                   const char *text)
{
    return answer(connection, status, TEXT_PLAIN, mst_bytes_str(text));
}

static enum MHD_Result answer_wrong_method(struct MHD_Connection *connection)
{
    struct MHD_Response *response =
        response_new(TEXT_PLAIN, mst_bytes_str("only GET and HEAD are understood here\n"));
    if (response == NULL) {
        return MHD_NO;
    }
    enum MHD_Result result =
        mst__mhd.add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    if (result == MHD_YES) {
        result = mst__mhd.queue_response(connection, MHD_HTTP_METHOD_NOT_ALLOWED, response);
    }
    mst__mhd.destroy_response(response); /* as above */
    return result;
}

/* --- long answers --- */

/* The metrics, or a snapshot of one job or of all, that is being sent. */
struct answer {
    struct mst__http *http;
    struct mst__snapshot *job;
    struct mst_status_list *jobs;
    struct mst__snapshot_cursor cursor;
    struct mst__json_writer json; /* made and not yet sent */
    bool is_whole;                /* all text is made */
    size_t charged;               /* its memory, charged to the engine */
};

static void answer_free(void *arg)
{
    struct answer *state = arg;
    mst__kv_discharge(&state->http->server->kv, state->charged);
    state->http->snapshots_count -= state->job != NULL || state->jobs != NULL ? 1 : 0;
    mst__snapshot_free(state->job);
    mst_status_list_free(state->jobs);
    mst__json_writer_close(&state->json);
    mst__free(state);
}

/* Called by libmicrohttpd for the next bytes. */
static ssize_t answer_read(void *arg, uint64_t position, char *bytes, size_t size)
{
    struct answer *state = arg;
    (void)position; /* called in order */
    if (mst__buf_size(&state->json.text) == 0 && !state->is_whole) {
        state->is_whole = state->job != NULL
                              ? mst__snapshot_json(&state->job->status, SNAPSHOT_PART_SIZE,
                                                   &state->cursor, &state->json)
                              : mst__snapshot_list_json(state->jobs, SNAPSHOT_PART_SIZE,
                                                        &state->cursor, &state->json);
        if (state->is_whole && state->json.code == 0) {
            state->json.code = mst__buf_append_u8(&state->json.text, '\n');
        }
    }
    if (state->json.code != 0) {
        return MHD_CONTENT_READER_END_WITH_ERROR; /* out of memory: the reader sees that the answer
                                                     is cut */
    }
    struct mst_bytes ready = mst__buf_bytes(&state->json.text);
    size_t count = ready.size < size ? ready.size : size;
    if (count == 0) {
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    memcpy(bytes, ready.data, count);
    mst__buf_consume(&state->json.text, count);
    return (ssize_t)count;
}

static enum MHD_Result answer_error(struct MHD_Connection *connection,
                                    unsigned status,
                                    const char *message)
{
    struct mst__json_writer json;
    mst__json_writer_init(&json, MST_KIB(4));
    mst__json_put_begin(&json, NULL, '{');
    mst__json_put_text(&json, "error", mst_bytes_str(message));
    mst__json_put_end(&json, '}');
    int rv = json.code != 0 ? json.code : mst__buf_append_u8(&json.text, '\n');
    enum MHD_Result result =
        rv != 0 ? MHD_NO : answer(connection, status, TEXT_JSON, mst__buf_bytes(&json.text));
    mst__json_writer_close(&json);
    return result;
}

/* Charge the memory of @state, @size bytes, to the engine, until it is sent. */
static bool answer_charge(struct answer *state, size_t size)
{
    bool fits = mst__kv_charge(&state->http->server->kv, size);
    state->charged = fits ? size : 0;
    if (!fits) {
        state->http->server->kv.memory_lacked = 0; /* no client was refused for that */
    }
    return fits;
}

/* Send @state, which is taken; @size bytes, or MHD_SIZE_UNKNOWN. MHD_NO if out of memory. */
static enum MHD_Result answer_send(struct MHD_Connection *connection,
                                   struct answer *state,
                                   const char *type,
                                   uint64_t size)
{
    struct MHD_Response *response = mst__mhd.create_response_from_callback(
        size, SNAPSHOT_PART_SIZE, answer_read, state, answer_free);
    if (response == NULL) {
        answer_free(state);
        return MHD_NO;
    }
    enum MHD_Result result =
        mst__mhd.add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (result == MHD_YES) {
        result = mst__mhd.queue_response(connection, MHD_HTTP_OK, response);
    }
    mst__mhd.destroy_response(response); /* the last holder frees @state */
    return result;
}

/* --- metrics --- */

static int metrics_write(const struct mst__http *http, bool lists_jobs, struct mst__buf *page)
{
    const struct mst_server *server = http->server;
    struct mst__metrics metrics = {
        .version = mst_version(),
        .connections = server->conns_count,
        .keys = server->kv.keys_count,
        .memory = server->kv.memory_used,
        .memory_max = server->kv.limits.memory_max,
        .loop_us_longest = mst__turns_longest_us(server, uv_hrtime()),
        .is_full = {mst__full_is_of(server, MST_FULL_OF_CONNECTIONS),
                    mst__full_is_of(server, MST_FULL_OF_MEMORY)},
        .counters = server->counters,
    };
    struct mst__job_metrics *jobs = mst__calloc(MST_METRICS_JOBS_MAX, sizeof *jobs);
    if (jobs == NULL) {
        return MST_ENOMEM;
    }
    mst__jobs_measure(server, jobs, &metrics.jobs);
    if (!lists_jobs) {
        metrics.jobs.jobs_unlisted += metrics.jobs.jobs_count;
        metrics.jobs.jobs_count = 0;
    }
    int rv = mst__metrics_render(&metrics, page);
    mst__free(jobs);
    return rv;
}

/* The page is needed most when memory is full: it then comes without series of jobs. */
static enum MHD_Result answer_metrics(struct mst__http *http, struct MHD_Connection *connection)
{
    struct answer *state = mst__calloc(1, sizeof *state);
    int rv = state == NULL ? MST_ENOMEM : 0;
    if (rv == 0) {
        state->http = http;
        state->is_whole = true;
        mst__json_writer_init(&state->json, MST_HTTP_PAGE_SIZE_MAX);
        rv = metrics_write(http, true, &state->json.text);
    }
    if (rv == 0 && !answer_charge(state, state->json.text.capacity)) {
        mst__buf_close(&state->json.text);
        rv = metrics_write(http, false, &state->json.text);
    }
    if (rv == 0) {
        return answer_send(connection, state, TEXT_METRICS, mst__buf_size(&state->json.text));
    }
    if (state != NULL) {
        answer_free(state);
    }
    return answer_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory for the metrics\n");
}

/* --- jobs --- */

/* Decode %XX in @path to @ret_bytes; other text is copied. Cut off beyond the size of a run id. */
static struct mst_bytes run_id_of(const char *path, uint8_t ret_bytes[MST_JOB_RUN_ID_SIZE_MAX + 1])
{
    struct mst_bytes text = mst_bytes_str(path);
    size_t size = 0;
    while (text.size > 0 && size <= MST_JOB_RUN_ID_SIZE_MAX) {
        if (!mst__percent_take(&text, &ret_bytes[size])) {
            ret_bytes[size] = '%';
            text = mst__bytes_skip(text, 1);
        }
        size++;
    }
    return mst_bytes_of(ret_bytes, size);
}

/* Keep paths encoded: a run id may contain any bytes. */
static size_t keep_escaped(void *arg, struct MHD_Connection *connection, char *text)
{
    (void)arg;
    (void)connection;
    return strlen(text);
}

/* @path is the text after "/jobs/"; empty = all jobs. */
static enum MHD_Result answer_jobs(struct mst__http *http,
                                   struct MHD_Connection *connection,
                                   const char *path)
{
    if (http->snapshots_count == MST_HTTP_SNAPSHOTS_MAX) {
        return answer_error(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                            "too many ask for jobs at this moment; ask again");
    }
    struct answer *state = mst__calloc(1, sizeof *state);
    if (state == NULL) {
        return MHD_NO;
    }
    struct mst_err err;
    state->http = http;
    mst__json_writer_init(&state->json, MST_KIB(64));
    uint8_t run_id[MST_JOB_RUN_ID_SIZE_MAX + 1];
    int rv = *path == '\0'
                 ? mst__jobs_snapshot(http->server, &state->jobs, &err)
                 : mst__job_snapshot(http->server, run_id_of(path, run_id), &state->job, &err);
    if (rv != 0) {
        answer_free(state);
        return answer_error(connection,
                            rv == MST_ENOTFOUND ? MHD_HTTP_NOT_FOUND : MHD_HTTP_SERVICE_UNAVAILABLE,
                            err.msg);
    }
    http->snapshots_count++;
    if (!answer_charge(state, state->job != NULL ? mst__snapshot_size(state->job)
                                                 : mst__snapshot_list_size(state->jobs))) {
        answer_free(state);
        return answer_error(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                            "no memory for a snapshot of this size");
    }
    return answer_send(connection, state, TEXT_JSON, MHD_SIZE_UNKNOWN);
}

/* --- requests --- */

/* Whether the server takes new clients and their data, which is not whether it is alive: a restart
 * would not help a full server, and would lose its keys. */
static enum MHD_Result answer_ready(struct mst__http *http, struct MHD_Connection *connection)
{
    char text[MST_FULL_TEXT_SIZE];
    char line[MST_FULL_TEXT_SIZE + 1];
    if (http->server->stopping) {
        return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "stopping\n");
    }
    if (!mst__full_text(http->server, text)) {
        return answer_text(connection, MHD_HTTP_OK, "ok\n");
    }
    (void)snprintf(line, sizeof line, "%s\n", text); /* fits */
    return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, line);
}

static enum MHD_Result answer_path(struct mst__http *http,
                                   struct MHD_Connection *connection,
                                   const char *path)
{
    if (strcmp(path, "/metrics") == 0) {
        return answer_metrics(http, connection);
    }
    if (strcmp(path, "/healthz") == 0) {
        return http->server->stopping
                   ? answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "stopping\n")
                   : answer_text(connection, MHD_HTTP_OK, "ok\n");
    }
    if (strcmp(path, "/readyz") == 0) {
        return answer_ready(http, connection);
    }
    if (strcmp(path, "/") == 0) {
        return answer_text(connection, MHD_HTTP_OK, index_text);
    }
    if (strcmp(path, "/jobs") == 0) {
        return answer_jobs(http, connection, "");
    }
    if (strncmp(path, "/jobs/", 6) == 0) {
        return answer_jobs(http, connection, path + 6);
    }
    return answer_text(connection, MHD_HTTP_NOT_FOUND,
                       "there is /metrics, /healthz, /readyz, /jobs and /jobs/ID, nothing else\n");
}

/* Called when the headers have arrived, for each piece of a body, and at the end. */
static enum MHD_Result on_request(void *arg,
                                  struct MHD_Connection *connection,
                                  const char *path,
                                  const char *method,
                                  const char *version,
                                  const char *body,
                                  size_t *body_size,
                                  void **state)
{
    (void)version; /* libmicrohttpd distinguishes 1.0 and 1.1 */
    (void)body;
    struct mst__http *http = arg;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return answer_wrong_method(connection);
    }
    if (*state == NULL) {
        *state = http; /* answering before the end would close the connection */
        return MHD_YES;
    }
    if (*body_size > 0) {
        return MHD_NO; /* no request here has a body, and it might be endless */
    }
    return answer_path(http, connection, path);
}

/* --- connections --- */

static void conns_remove(struct mst__http *http, struct http_conn *conn)
{
    if (conn->prev == NULL) {
        http->conns_first = conn->next;
    } else {
        conn->prev->next = conn->next;
    }
    if (conn->next == NULL) {
        http->conns_last = conn->prev;
    } else {
        conn->next->prev = conn->prev;
    }
    http->conns_count -= conn->is_shut ? 0 : 1;
}

/* Give @conn time for a request from now on; it is the last to be due. */
static void conns_append(struct mst__http *http, struct http_conn *conn)
{
    conn->due_ms = mst__server_now_ms(http->server) + HTTP_DEADLINE_MS;
    conn->prev = http->conns_last;
    conn->next = NULL;
    if (http->conns_last == NULL) {
        http->conns_first = conn;
    } else {
        http->conns_last->next = conn;
    }
    http->conns_last = conn;
    http->conns_count += conn->is_shut ? 0 : 1;
}

/* The connection with the earliest deadline that is not shut down; NULL if there is none. */
static struct http_conn *conns_next_due(const struct mst__http *http)
{
    struct http_conn *conn = http->conns_first;
    while (conn != NULL && conn->is_shut) {
        conn = conn->next;
    }
    return conn;
}

static void conns_shut(struct mst__http *http, struct http_conn *conn)
{
    (void)mst__stream_end(&conn->stream, true); /* fails only if the peer is gone */
    conn->is_shut = true;
    http->conns_count--;
}

/* Shut down connections whose deadline has passed, and the next ones if there are too many. */
static void conns_sweep(struct mst__http *http)
{
    int64_t now_ms = mst__server_now_ms(http->server);
    struct http_conn *conn;
    while ((conn = conns_next_due(http)) != NULL &&
           (conn->due_ms <= now_ms || http->conns_count > MST_HTTP_CONNECTIONS_MAX)) {
        conns_shut(http, conn);
    }
}

static void on_connection(void *arg,
                          struct MHD_Connection *connection,
                          void **state,
                          enum MHD_ConnectionNotificationCode code)
{
    struct mst__http *http = arg;
    struct http_conn *conn = *state;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (conn != NULL) {
            conns_remove(http, conn);
            conn->next = http->conns_free;
            http->conns_free = conn;
        }
        return;
    }
    http->accepted = true;
    const union MHD_ConnectionInfo *info =
        mst__mhd.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    MST_ASSERT(info != NULL);
    conn = http->conns_free;
    MST_ASSERT(conn != NULL); /* there is one for each connection of libmicrohttpd */
    http->conns_free = conn->next;
    *conn = (struct http_conn){.stream = {.fd = info->connect_fd}};
    *state = conn;
    conns_append(http, conn);
    conns_sweep(http);
}

/* A request is over: the next one has its own deadline. */
static void on_completed(void *arg,
                         struct MHD_Connection *connection,
                         void **state,
                         enum MHD_RequestTerminationCode code)
{
    (void)state;
    (void)code;
    struct mst__http *http = arg;
    const union MHD_ConnectionInfo *info =
        mst__mhd.get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_conn *conn = info == NULL ? NULL : info->socket_context;
    if (conn != NULL) {
        conns_remove(http, conn);
        conns_append(http, conn);
    }
}

/* --- on the loop --- */

static void on_timer(uv_timer_t *timer);
static void on_again(uv_idle_t *again);
static void on_poll(uv_poll_t *poll, int status, int events);

static void http_start_poll(struct mst__http *http)
{
    int rv = uv_poll_start(&http->poll, UV_READABLE, on_poll);
    MST_ASSERT(rv == 0);
}

static void http_start_timer(struct mst__http *http, uint64_t wait_ms)
{
    int rv = wait_ms == 0 ? uv_idle_start(&http->again, on_again)
                          : uv_timer_start(&http->timer, on_timer, wait_ms, 0);
    MST_ASSERT(rv == 0);
}

static unsigned connections_count(struct mst__http *http)
{
    const union MHD_DaemonInfo *info =
        mst__mhd.get_daemon_info(http->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    MST_ASSERT(info != NULL);
    return info->num_connections;
}

static void http_run(struct mst__http *http)
{
    unsigned count_before = connections_count(http);
    conns_sweep(http);
    (void)mst__mhd.run(http->daemon); /* fails only for a daemon with threads */
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    const struct http_conn *due = conns_next_due(http);
    bool is_wanted = mst__mhd.get_timeout(http->daemon, &wait_ms) == MHD_YES;
    if (connections_count(http) < count_before) {
        wait_ms = 0; /* at its limit, it accepts more only in its next run */
    } else if (due != NULL) {
        int64_t due_ms = due->due_ms - mst__server_now_ms(http->server);
        uint64_t left_ms = due_ms < 0 ? 0 : (uint64_t)due_ms;
        wait_ms = is_wanted && wait_ms < left_ms ? wait_ms : left_ms;
    } else if (!is_wanted) {
        (void)uv_timer_stop(&http->timer); /* always returns 0 */
        return;
    }
    http_start_timer(http, wait_ms);
}

static void on_timer(uv_timer_t *timer)
{
    struct mst__http *http = timer->data;
    if (uv_is_active((const uv_handle_t *)&http->poll) == 0) {
        http_start_poll(http); /* on_poll has paused it */
    }
    http_run(http);
}

static void on_again(uv_idle_t *again)
{
    struct mst__http *http = again->data;
    (void)uv_idle_stop(again); /* always returns 0 */
    http_run(http);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status; /* MHD_run finds the socket, whatever the event */
    (void)events;
    struct mst__http *http = poll->data;
    bool was_empty = connections_count(http) == 0;
    http->accepted = false;
    http_run(http);
    if (was_empty && !http->accepted) {
        /* A connection could not be accepted, because there are no descriptors left. */
        (void)uv_poll_stop(poll); /* these always return 0 */
        (void)uv_idle_stop(&http->again);
        http_start_timer(http, HTTP_RETRY_MS);
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct mst__http *http = handle->data;
    http->handles_count--;
    if (http->handles_count == 0) {
        mst__free(http);
    }
}

/* --- life --- */

/* Listen on the first address of the name that belongs to this machine. */
static int listen_host(struct mst__http *http,
                       const char *host,
                       const char *port,
                       bool ipv6_only,
                       struct mst__stream *ret_listener,
                       struct mst_err *reterr)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int rv = getaddrinfo(host, port, &hints, &found);
    if (rv != 0) {
        return mst__fail_from(reterr, rv == EAI_MEMORY ? MST_ENOMEM : MST_ERESOLVE, MST_DOMAIN_GAI,
                              rv, "host '%s' to listen on: %s", host, gai_strerror(rv));
    }
    for (struct addrinfo *info = found; info != NULL; info = info->ai_next) {
        rv = mst__stream_listen(info->ai_addr, info->ai_addrlen, ipv6_only, ret_listener);
        if (rv == 0) {
            break;
        }
        mst__address_format(info->ai_addr, info->ai_addrlen, http->address);
        rv = mst__fail(reterr, MST_ESYS, -rv, "listen on '%s'", http->address);
        if (!mst__err_is_errno(reterr, EADDRNOTAVAIL) && !mst__err_is_errno(reterr, EAFNOSUPPORT)) {
            break; /* an address of this machine, with another problem */
        }
    }
    freeaddrinfo(found);
    return rv;
}

static int http_listen(struct mst__http *http,
                       const char *address,
                       struct mst__stream *ret_listener,
                       struct mst_err *reterr)
{
    struct mst__endpoint endpoint;
    int rv = mst__endpoint_parse_listen(mst_bytes_str(address), &endpoint, reterr);
    if (rv != 0) {
        return rv;
    }
    char port[8];
    (void)snprintf(port, sizeof port, "%u", endpoint.port); /* fits */
    /* As for the store: `*` is every address of both families, or IPv4 only if the kernel has no
     * IPv6, and `::` includes IPv4 unless told otherwise. */
    if (strcmp(endpoint.host, "*") == 0) {
        rv = listen_host(http, "::", port, false, ret_listener, reterr);
        if (rv != 0 && mst__err_is_errno(reterr, EAFNOSUPPORT)) {
            rv = listen_host(http, "0.0.0.0", port, true, ret_listener, reterr);
        }
        return rv;
    }
    bool ipv6_only = http->server->options.ipv6_only || strcmp(endpoint.host, "::") != 0;
    return listen_host(http, endpoint.host, port, ipv6_only, ret_listener, reterr);
}

/* @listener is taken. */
static int http_start_daemon(struct mst__http *http,
                             struct mst__stream *listener,
                             struct mst_err *reterr)
{
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_LISTEN_SOCKET, listener->fd, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, MST_HTTP_CONNECTIONS_MAX + HTTP_SPARE, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, (intptr_t)MST_HTTP_REQUEST_SIZE_MAX, NULL},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, http},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, http},
        {MHD_OPTION_UNESCAPE_CALLBACK, (intptr_t)keep_escaped, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    errno = 0;
    http->daemon = mst__mhd.start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, http,
                                         MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    if (http->daemon == NULL) {
        int reason = errno;
        mst__stream_close(listener); /* a daemon that did not start leaves it open */
        return mst__fail(reterr, MST_ESYS, reason, "start libmicrohttpd");
    }
    http->listener_fd = listener->fd;
    return 0;
}

static int http_open_handles(struct mst__http *http, struct mst_err *reterr)
{
    uv_loop_t *loop = &http->server->loop;
    const union MHD_DaemonInfo *info =
        mst__mhd.get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (info == NULL || info->epoll_fd < 0) {
        return mst__fail(reterr, MST_ENOTSUP, 0, "this libmicrohttpd was built without epoll");
    }
    int rv = uv_poll_init(loop, &http->poll, info->epoll_fd);
    if (rv != 0) {
        return mst__fail(reterr, MST_ESYS, -rv, "watch the sockets of libmicrohttpd");
    }
    (void)mst__fork_own(info->epoll_fd);
    http->epoll_fd = info->epoll_fd;
    http->poll.data = http;
    http->handles_count++;
    rv = uv_timer_init(loop, &http->timer);
    MST_ASSERT(rv == 0);
    http->timer.data = http;
    http->handles_count++;
    rv = uv_idle_init(loop, &http->again);
    MST_ASSERT(rv == 0);
    http->again.data = http;
    http->handles_count++;
    http_start_poll(http);
    return 0;
}

int mst__http_open(struct mst_server *server,
                   const char *address,
                   struct mst__http **ret_http,
                   struct mst_err *reterr)
{
    int rv = mst__microhttpd_load(reterr);
    if (rv != 0) {
        return mst__err_wrap(reterr, rv, "http address '%.80s'", address);
    }
    struct mst__http *http = mst__calloc(1, sizeof *http);
    if (http == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "http address '%.80s'", address);
    }
    http->server = server;
    http->epoll_fd = -1;
    http->listener_fd = -1;
    for (size_t i = 0; i < sizeof http->conns / sizeof http->conns[0]; i++) {
        http->conns[i].next = http->conns_free;
        http->conns_free = &http->conns[i];
    }
    struct mst_err err = {0}; /* the cause is used below */
    struct mst__stream listener = {.fd = -1};
    rv = http_listen(http, address, &listener, &err);
    if (rv == 0) {
        int port = 0;
        (void)mst__stream_local(&listener, http->address, &port); /* keeps the requested text on
                                                                     failure */
        rv = http_start_daemon(http, &listener, &err);
    }
    if (rv == 0) {
        rv = http_open_handles(http, &err);
    }
    if (rv != 0) {
        mst__http_close(http);
        if (reterr != NULL) {
            *reterr = err;
        }
        return mst__err_wrap(reterr, rv, "http address '%.80s'", address);
    }
    *ret_http = http;
    return 0;
}

const char *mst__http_address(const struct mst__http *http)
{
    return http == NULL ? NULL : http->address;
}

void mst__http_close(struct mst__http *http)
{
    if (http == NULL) {
        return;
    }
    bool has_handles = http->handles_count > 0;
    if (has_handles) {
        /* Close this before the daemon closes the watched descriptor. */
        uv_close((uv_handle_t *)&http->poll, on_closed);
        uv_close((uv_handle_t *)&http->timer, on_closed);
        uv_close((uv_handle_t *)&http->again, on_closed);
    }
    if (http->daemon != NULL) {
        mst__fork_disown(http->epoll_fd);
        mst__fork_disown(http->listener_fd);
        mst__mhd.stop_daemon(http->daemon);
    }
    if (!has_handles) {
        mst__free(http);
    }
}
