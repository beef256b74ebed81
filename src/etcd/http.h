/* etcd/http.h - HTTP/1.1 to an etcd over libcurl: connections that are kept, several endpoints,
 * TLS, a deadline on everything.
 *
 * Calls may come from several threads at once; each uses a connection of its own. Waiting ends when
 * it is woken (base/until.h). All use of libcurl is in http_conn.c. */
#ifndef MST_ETCD_HTTP_H
#define MST_ETCD_HTTP_H

#include <muster/error.h>
#include <muster/log.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/endpoint.h"
#include "base/until.h"

#define MST_HTTP_ENDPOINTS_MAX 16

/* Who and how. Everything is copied; NULL = none. */
struct mst__http_options {
    const struct mst__endpoint *endpoints; /* 1 … MST_HTTP_ENDPOINTS_MAX */
    size_t endpoint_count;
    bool is_tls;
    const char *ca_path;   /* without it the system's authorities count */
    const char *cert_path; /* of this client; holds the key, too, when there is no key_path */
    const char *key_path;
    const char *server_name; /* what the certificate must be for; NULL = the endpoint's host */
    const char *user;        /* of v2: sent as HTTP basic with every call of a path under /v2 */
    const char *password;
    size_t response_size_max; /* 0 = MST_HTTP_RESPONSE_SIZE_MAX */
    int64_t patience_ms;      /* 0 = MST_HTTP_PATIENCE_MS */
    struct mst_log log;
};

#define MST_HTTP_RESPONSE_SIZE_MAX ((size_t)64 << 20)

/* Longer than etcd itself takes to give up on its leader, which is 7 s. */
#define MST_HTTP_PATIENCE_MS 10000

struct mst__http;

/* Nothing is sent yet. 0, MST_EINVAL (no such file, among others), MST_ENOMEM. */
int mst__http_new(const struct mst__http_options *options,
                  struct mst__http **ret_http,
                  struct mst_err *reterr);

/* No call or stream is under way. NULL is fine. */
void mst__http_free(struct mst__http *http);

enum mst__http_method { MST_HTTP_GET, MST_HTTP_PUT, MST_HTTP_POST, MST_HTTP_DELETE };

struct mst__http_request {
    enum mst__http_method method;
    const char *path; /* "/v2/keys/a?wait=true", encoded already */
    struct mst_bytes body;
    const char *content_type; /* NULL = no body */
    const char *token;        /* value of an Authorization header; NULL = none */
    bool needs_leader; /* of v3: a member that knows no leader refuses at once, and ends streams */
    bool is_watch;     /* is answered when something happens: counted apart */
    /* May be sent again, to another endpoint, when nobody knows whether it was executed. */
    bool is_repeatable;
};

struct mst__http_response {
    int status;          /* 200 … */
    bool has_index;      /* X-Etcd-Index was there */
    uint64_t etcd_index; /* X-Etcd-Index */
    bool is_json;        /* by its Content-Type */
    struct mst__buf body;
};

void mst__http_response_init(struct mst__http_response *response);
void mst__http_response_close(struct mst__http_response *response);

/**
 * Send @request to the current endpoint and receive the whole answer. When the connection cannot be
 * made, or is lost and the request is repeatable, the next endpoint is tried, until all have failed
 * twice with a growing pause between the rounds, or the deadline has passed.
 *
 * Returns 0 for every answer, whatever its status. MST_ECONN: not executed by anybody, or
 * repeatable. MST_EUNKNOWN: sent, and the answer did not come or not completely. MST_ETIMEOUT (not
 * executed or repeatable), MST_ECANCELED, MST_ERESOLVE, MST_EAUTH (TLS: certificates refused),
 * MST_ELIMIT (answer too large), MST_EPROTO (a repeatable request, and whoever answered does not
 * speak HTTP/1.1), MST_EINVAL (a token or content type that cannot be a header), MST_ENOMEM.
 * Messages name the endpoint.
 *
 * With several endpoints one that does not answer for patience_ms counts as lost.
 */
int mst__http_call(struct mst__http *http,
                   const struct mst__http_request *request,
                   struct mst__until until,
                   struct mst__http_response *response,
                   struct mst_err *reterr);

/* Go on with the next endpoint: this one answers, but has no leader. */
void mst__http_rotate(struct mst__http *http);

/* "http://node0:2379": the current endpoint, for messages. Valid as long as @http. */
const char *mst__http_where(const struct mst__http *http);

/* One more endpoint, unless it is one already: 0, or MST_ELIMIT when there are too many. */
int mst__http_add_endpoint(struct mst__http *http, const struct mst__endpoint *endpoint);

/* How many requests were sent, streams and repetitions included. */
uint64_t mst__http_requests(const struct mst__http *http);

/* What all clients of this process have sent, repetitions included. */
struct mst__http_totals {
    uint64_t requests; /* but for watches */
    uint64_t watches;
};

struct mst__http_totals mst__http_totals(void);

/* --- answers without end --- */

struct mst__http_stream;

/**
 * Send @request and wait for the head of the answer; the body is read line by line. For a status
 * other than 200 the stream is made as well: its lines are the error.
 *
 * Returns as mst__http_call does. The stream has a connection of its own, with TCP keep-alive.
 */
int mst__http_stream_open(struct mst__http *http,
                          const struct mst__http_request *request,
                          struct mst__until until,
                          struct mst__http_stream **ret_stream,
                          struct mst_err *reterr);

int mst__http_stream_status(const struct mst__http_stream *stream);

/* What is known from the head; its body is empty. */
const struct mst__http_response *mst__http_stream_head(const struct mst__http_stream *stream);

/**
 * Wait for the next line, which is valid until the next call. A last line without a newline counts.
 *
 * Returns 0; MST_ETIMEOUT and MST_ECANCELED, after which the stream can be read on; MST_ENOTFOUND
 * at its regular end; MST_ECONN when it was cut off; MST_ELIMIT, MST_ENOMEM.
 */
int mst__http_stream_read(struct mst__http_stream *stream,
                          struct mst__until until,
                          struct mst_bytes *ret_line,
                          struct mst_err *reterr);

/* NULL is fine. */
void mst__http_stream_close(struct mst__http_stream *stream);

#endif /* MST_ETCD_HTTP_H */
