/* etcd/http_conn.h - one request at a time, and the connections that are kept from earlier ones.
 * All use of libcurl is behind this. A connection belongs to one thread at a time. */
#ifndef MST_ETCD_HTTP_CONN_H
#define MST_ETCD_HTTP_CONN_H

#include "etcd/http.h"

/* What all requests share; NULL = none. Outlives the connections. */
struct mst__http_setup {
    bool is_tls;
    char *ca_path;
    char *cert_path;
    char *key_path;
    char *user;
    char *password;
    size_t response_size_max;
};

/* Where a request goes. Outlives it. */
struct mst__http_target {
    const char *where;      /* "https://node0:2379", for people */
    const char *base;       /* of URLs: with the name in the certificate */
    const char *connect_to; /* where to go instead of there; NULL = there */
};

struct mst__http_conn;

/* @counter counts the requests that were sent. 0, MST_ENOMEM, MST_ENOTSUP. */
int mst__http_conn_new(const struct mst__http_setup *setup,
                       _Atomic uint64_t *counter,
                       struct mst__http_conn **ret_conn,
                       struct mst_err *reterr);
/* NULL is fine. */
void mst__http_conn_free(struct mst__http_conn *conn);

/* Make @request ready, and @response empty; the latter outlives the request. 0, MST_ENOMEM,
 * MST_EINVAL. */
int mst__http_conn_begin(struct mst__http_conn *conn,
                         const struct mst__http_request *request,
                         const struct mst__http_target *target,
                         struct mst__http_response *response,
                         struct mst_err *reterr);

/* End the request. The connection that is in the middle of an answer is closed by this. */
void mst__http_conn_end(struct mst__http_conn *conn);

enum mst__http_until { MST_HTTP_UNTIL_DONE, MST_HTTP_UNTIL_HEAD, MST_HTTP_UNTIL_BODY };

/* Go on until the request is done, or earlier: when the head is there, or more of the body than at
 * the beginning. 0, MST_ETIMEOUT, MST_ECANCELED, MST_ESYS; nothing is filled in. */
int mst__http_conn_drive(struct mst__http_conn *conn,
                         enum mst__http_until goal,
                         struct mst__until until);

bool mst__http_conn_is_head_done(const struct mst__http_conn *conn);
bool mst__http_conn_is_done(const struct mst__http_conn *conn);
/* Whether it is done and went well. */
bool mst__http_conn_is_ok(const struct mst__http_conn *conn);
const char *mst__http_conn_where(const struct mst__http_conn *conn);

/* The code and the sentence for a request that is done and did not go well. */
int mst__http_conn_fail(const struct mst__http_conn *conn, struct mst_err *reterr);

/* The same for one that is not done, @rv being what mst__http_conn_drive said. @is_patience: it was
 * not the caller's deadline that has passed. */
int mst__http_conn_fail_wait(const struct mst__http_conn *conn,
                             int rv,
                             bool is_patience,
                             struct mst_err *reterr);

/* Whether it ended as it does when the other side refuses our certificate: with TLS 1.3 we only
 * learn of that after the handshake, if the connection does not break down before. */
bool mst__http_conn_is_suspect(const struct mst__http_conn *conn);

/* Connect once more, send nothing, and see: MST_EAUTH when our certificate is refused, else 0. */
int mst__http_conn_probe(const struct mst__http_conn *conn,
                         struct mst__until until,
                         struct mst_err *reterr);

#endif /* MST_ETCD_HTTP_CONN_H */
