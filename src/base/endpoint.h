/* base/endpoint.h - where a store is: `host:port` and the URLs that mst_store_open takes. */
#ifndef MST_BASE_ENDPOINT_H
#define MST_BASE_ENDPOINT_H

#include <muster/error.h>
#include <stdbool.h>

/* A host name has at most 253 characters; a numeric address with a zone is shorter. */
#define MST_HOST_SIZE 256

struct mst__endpoint {
    char host[MST_HOST_SIZE]; /* without the brackets of an IPv6 address */
    uint16_t port;
};

#define MST_ENDPOINT_TEXT_SIZE (MST_HOST_SIZE + 8)

/* Read `host:port`, `1.2.3.4:port` or `[::1]:port`; port 1 … 65535. 0 or MST_EINVAL. */
int mst__endpoint_parse(struct mst_bytes text,
                        struct mst__endpoint *ret_endpoint,
                        struct mst_err *reterr);

/* The same for an address to listen on: port 0, a free one, is allowed, and so is the host `*`. */
int mst__endpoint_parse_listen(struct mst_bytes text,
                               struct mst__endpoint *ret_endpoint,
                               struct mst_err *reterr);

/**
 * Read the endpoint of a rendezvous as the peers do: blanks around it do not count, nothing at all
 * is `localhost`, without a port it is @port_default (-1 = there must be one), and IPv6 addresses
 * need no brackets. Where the peers split such an address at its last colon, we do not: `::1` is a
 * host without a port.
 *
 * Returns 0 or MST_EINVAL; the message begins with `port` when that is to blame.
 */
int mst__endpoint_parse_default(struct mst_bytes text,
                                int port_default,
                                struct mst__endpoint *ret_endpoint,
                                struct mst_err *reterr);

/* The way back, with brackets where they belong. Returns @ret_text. */
const char *mst__endpoint_format(const struct mst__endpoint *endpoint,
                                 char ret_text[MST_ENDPOINT_TEXT_SIZE]);

enum mst__url_scheme {
    MST_URL_TCP,   /* tcp://host:port[/prefix] */
    MST_URL_UNIX,  /* unix:///path */
    MST_URL_FILE,  /* file:///path */
    MST_URL_HASH,  /* hash: */
    MST_URL_ETCD2, /* etcd2://host:port[,host:port…][/directory] */
    MST_URL_ETCD3, /* etcd3://host:port[,host:port…][/root] */
};

#define MST_URL_ENDPOINTS_MAX 16

/* What only URLs of an etcd have. All texts are heap, without a NUL inside; NULL = not given. */
struct mst__url_etcd {
    struct mst__endpoint *endpoints; /* heap */
    size_t endpoint_count;
    bool is_tls;
    char *ca_path;
    char *cert_path;
    char *key_path;
    char *server_name;
    char *user;
    char *password_path;
    int64_t lease_s; /* of ETCD3; 0 = none */
};

/* A store's URL taken apart; all of them may have `?prefix=…`. Path, prefix and parameters may hold
 * `%XX` for any byte and are decoded here. */
struct mst__url {
    enum mst__url_scheme scheme;
    struct mst__endpoint endpoint; /* TCP */
    char *path;                    /* UNIX, FILE: heap, with a NUL behind it and none inside. ETCD2,
                                      ETCD3: "" or "/a/b", without a slash at its end */
    char *prefix;                  /* heap; NULL when there is none, which is not the same as "" */
    size_t prefix_size;
    struct mst__url_etcd etcd;
};

/* Read @text: 0, MST_EINVAL with a sentence that names the wrong part, or MST_ENOMEM. Released with
 * mst__url_close. */
int mst__url_parse(const char *text, struct mst__url *ret_url, struct mst_err *reterr);

/* @start, and behind it @path with %XX for what a URL cannot have: heap, NULL without memory. */
char *mst__url_text(const char *start, const char *path);

/* Release what @url holds. A zeroed one is fine. */
void mst__url_close(struct mst__url *url);

#endif /* MST_BASE_ENDPOINT_H */
