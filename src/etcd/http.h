/* etcd/http.h - HTTP/1.1 to an etcd with libcurl: kept connections, several endpoints, TLS, a
 * deadline on every call.
 *
 * Several threads may call at once; each call uses its own connection. A wait can be woken
 * (base/until.h). Only http_conn.c uses libcurl. */
#ifndef MST_ETCD_HTTP_H
#define MST_ETCD_HTTP_H

#include <muster/error.h>
#include <muster/log.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/endpoint.h"
#include "base/until.h"

#define MST_HTTP_ENDPOINTS_MAX 16

/* All values are copied; NULL = not set. */
struct mst__http_options {
    const struct mst__endpoint *endpoints; /* 1 … MST_HTTP_ENDPOINTS_MAX */
    size_t endpoint_count;
    bool is_tls;
    const char *ca_path;   /* NULL = the system's authorities */
    const char *cert_path; /* of this client; also holds the key if there is no key_path */
    const char *key_path;
    const char *server_name; /* the name in the certificate; NULL = the endpoint's host */
    const char *user;        /* v2: sent as HTTP basic with every path under /v2 */
    const char *password;
    size_t response_size_max; /* 0 = MST_HTTP_RESPONSE_SIZE_MAX */
    int64_t patience_ms;      /* 0 = MST_HTTP_PATIENCE_MS */
    size_t first; /* the endpoint to begin with: mst__http_current of a client of the same list */
    struct mst_log log;
};

#define MST_HTTP_RESPONSE_SIZE_MAX ((size_t)64 << 20)

/* The most that one attempt may take if there are other endpoints: longer than the election of a
 * leader, and short enough to try two members before a key of ten seconds expires. */
#define MST_HTTP_PATIENCE_MS 3000

struct mst__http;

/* Sends nothing. 0, MST_EINVAL (a file does not exist, for example), MST_ENOMEM. */
int mst__http_new(const struct mst__http_options *options,
                  struct mst__http **ret_http,
                  struct mst_err *reterr);

/* No call or stream may be under way. NULL is allowed. */
void mst__http_free(struct mst__http *http);

enum mst__http_method { MST_HTTP_GET, MST_HTTP_PUT, MST_HTTP_POST, MST_HTTP_DELETE };

struct mst__http_request {
    enum mst__http_method method;
    const char *path; /* "/v2/keys/a?wait=true", encoded */
    struct mst_bytes body;
    const char *content_type; /* NULL = no body */
    const char *token;        /* value of an Authorization header; NULL = none */
    bool needs_leader;        /* v3: a member without a leader refuses at once, and ends streams */
    bool is_watch;            /* answered when something happens; counted separately */
    /* May be sent again, to another endpoint, if it is unknown whether it was executed. */
    bool is_repeatable;
};

struct mst__http_response {
    int status;          /* 200 … */
    bool has_index;      /* the header X-Etcd-Index exists */
    uint64_t etcd_index; /* X-Etcd-Index */
    bool is_json;        /* by its Content-Type */
    struct mst__buf body;
};

void mst__http_response_init(struct mst__http_response *response);
void mst__http_response_close(struct mst__http_response *response);

/**
 * Send @request to the current endpoint and receive the whole answer. If the connection fails, or
 * is lost and the request is repeatable, the next endpoint is tried, until all have failed twice
 * with a growing pause between the rounds, or the deadline has passed. With several endpoints an
 * attempt has a part of the time, patience_ms at most; one that gets no answer counts as lost, and
 * is repeated until the deadline.
 *
 * Returns 0 for every answer, whatever its status. MST_ECONN: not executed, or repeatable.
 * MST_EUNKNOWN: sent, and the answer is missing or incomplete. MST_ETIMEOUT (not executed or
 * repeatable), MST_ECANCELED, MST_ERESOLVE, MST_EAUTH (TLS: certificates refused), MST_ELIMIT (the
 * answer is too large), MST_EPROTO (a repeatable request to a server that does not speak HTTP/1.1),
 * MST_EINVAL (a token or content type that cannot be a header), MST_ENOMEM. Messages name the
 * endpoint. After an endpoint's failure the next call begins with another one.
 */
int mst__http_call(struct mst__http *http,
                   const struct mst__http_request *request,
                   struct mst__until until,
                   struct mst__http_response *response,
                   struct mst_err *reterr);

/* Use the next endpoint: this one answers, but has no leader. */
void mst__http_rotate(struct mst__http *http);

/* The number of the current endpoint. */
size_t mst__http_current(const struct mst__http *http);

/* "http://node0:2379": the current endpoint, for messages. Valid as long as @http. */
const char *mst__http_where(const struct mst__http *http);

/* The number of requests sent, including streams and repetitions. */
uint64_t mst__http_requests(const struct mst__http *http);

/* Requests of all clients in this process, including repetitions. */
struct mst__http_totals {
    uint64_t requests; /* without watches */
    uint64_t watches;
};

struct mst__http_totals mst__http_totals(void);

/* --- streams --- */

struct mst__http_stream;

/**
 * Send @request and wait for the head of the answer; the body is read line by line. A status other
 * than 200 also makes a stream: its lines are the error.
 *
 * Returns as mst__http_call does. The stream has its own connection, with TCP keep-alive.
 */
int mst__http_stream_open(struct mst__http *http,
                          const struct mst__http_request *request,
                          struct mst__until until,
                          struct mst__http_stream **ret_stream,
                          struct mst_err *reterr);

int mst__http_stream_status(const struct mst__http_stream *stream);

/* The head of the answer; its body is empty. */
const struct mst__http_response *mst__http_stream_head(const struct mst__http_stream *stream);

/**
 * Wait for the next line, which is valid until the next call. A last line without a newline counts.
 *
 * Returns 0; MST_ETIMEOUT and MST_ECANCELED, after which the stream is still usable; MST_ENOTFOUND
 * at its regular end; MST_ECONN if it was cut off; MST_ELIMIT, MST_ENOMEM.
 */
int mst__http_stream_read(struct mst__http_stream *stream,
                          struct mst__until until,
                          struct mst_bytes *ret_line,
                          struct mst_err *reterr);

/* Whether the client uses another endpoint by now: that of the stream failed in another call. */
bool mst__http_stream_is_left(const struct mst__http_stream *stream);

/* The endpoint of the stream has failed: the next call uses another one. */
void mst__http_stream_leave(struct mst__http_stream *stream, const char *why);

/* NULL is allowed. */
void mst__http_stream_close(struct mst__http_stream *stream);

#endif /* MST_ETCD_HTTP_H */
