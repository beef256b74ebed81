/* etcd/http_conn.h - one request at a time, over connections that are kept. Hides libcurl. A
 * connection belongs to one thread at a time. */
#ifndef MST_ETCD_HTTP_CONN_H
#define MST_ETCD_HTTP_CONN_H

#include "etcd/http.h"

/* Settings of all requests; NULL = not set. Must outlive the connections. */
struct mst__http_setup {
    bool is_tls;
    char *ca_path;
    char *cert_path;
    char *key_path;
    char *user;
    char *password;
    size_t response_size_max;
};

/* The target of a request. Must outlive it. */
struct mst__http_target {
    const char *where;      /* "https://node0:2379", for messages */
    const char *base;       /* start of URLs, with the name in the certificate */
    const char *connect_to; /* where to connect instead; NULL = as in the URL */
};

struct mst__http_conn;

/* @counter counts the requests that were sent. 0, MST_ENOMEM, MST_ENOTSUP. */
int mst__http_conn_new(const struct mst__http_setup *setup,
                       _Atomic uint64_t *counter,
                       struct mst__http_conn **ret_conn,
                       struct mst_err *reterr);
/* NULL is allowed. */
void mst__http_conn_free(struct mst__http_conn *conn);

/* Prepare @request and clear @response, which must outlive the request. 0, MST_ENOMEM,
 * MST_EINVAL. */
int mst__http_conn_begin(struct mst__http_conn *conn,
                         const struct mst__http_request *request,
                         const struct mst__http_target *target,
                         struct mst__http_response *response,
                         struct mst_err *reterr);

/* End the request. A connection in the middle of an answer is closed. */
void mst__http_conn_end(struct mst__http_conn *conn);

enum mst__http_until { MST_HTTP_UNTIL_DONE, MST_HTTP_UNTIL_HEAD, MST_HTTP_UNTIL_BODY };

/* Continue until the request is done or, with another goal, until the head has arrived or the body
 * has grown. 0, MST_ETIMEOUT, MST_ECANCELED, MST_ESYS, without a message. */
int mst__http_conn_drive(struct mst__http_conn *conn,
                         enum mst__http_until goal,
                         struct mst__until until);

bool mst__http_conn_is_head_done(const struct mst__http_conn *conn);
bool mst__http_conn_is_done(const struct mst__http_conn *conn);
/* Whether the request is done and succeeded. */
bool mst__http_conn_is_ok(const struct mst__http_conn *conn);
const char *mst__http_conn_where(const struct mst__http_conn *conn);

/* The code and the message of a request that is done and failed. */
int mst__http_conn_fail(const struct mst__http_conn *conn, struct mst_err *reterr);

/* The same for an unfinished request; @rv is the result of mst__http_conn_drive. @is_patience:
 * patience_ms has passed, not the caller's deadline. */
int mst__http_conn_fail_wait(const struct mst__http_conn *conn,
                             int rv,
                             bool is_patience,
                             struct mst_err *reterr);

/* Whether the error may mean that the server refuses our certificate: with TLS 1.3 that shows only
 * after the handshake, if the connection does not break before. */
bool mst__http_conn_is_suspect(const struct mst__http_conn *conn);

/* Connect again and send nothing: MST_EAUTH if our certificate is refused, else 0. */
int mst__http_conn_probe(const struct mst__http_conn *conn,
                         struct mst__until until,
                         struct mst_err *reterr);

#endif /* MST_ETCD_HTTP_CONN_H */
