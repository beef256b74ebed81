/* base/endpoint.h - addresses of stores: `host:port` and the URLs of mst_store_open. */
#ifndef MST_BASE_ENDPOINT_H
#define MST_BASE_ENDPOINT_H

#include <muster/error.h>
#include <stdbool.h>

/* A host name has at most 253 characters; a numeric address with a zone is shorter. */
#define MST_HOST_SIZE 256

struct mst__endpoint {
    char host[MST_HOST_SIZE]; /* without the brackets of an IPv6 address; or unix:/path */
    uint16_t port;            /* 0 with a path */
};

/* What a path begins with, as an endpoint and as an address to listen on. */
#define MST_ENDPOINT_UNIX "unix:"

#define MST_ENDPOINT_TEXT_SIZE (MST_HOST_SIZE + 8)

/* Parse `host:port`, `1.2.3.4:port` or `[::1]:port`; port 1 … 65535. 0 or MST_EINVAL. */
int mst__endpoint_parse(struct mst_bytes text,
                        struct mst__endpoint *ret_endpoint,
                        struct mst_err *reterr);

/* The same for an address to listen on: also port 0, which means a free one, and the host `*`. */
int mst__endpoint_parse_listen(struct mst_bytes text,
                               struct mst__endpoint *ret_endpoint,
                               struct mst_err *reterr);

/**
 * Parse the endpoint of a rendezvous as the peers do: blanks around it are ignored, an empty text
 * is `localhost`, a missing port is @port_default (-1 = the port is mandatory), and IPv6 addresses
 * need no brackets. Unlike the peers, we do not split such an address at its last colon: `::1` is a
 * host without a port.
 *
 * Returns 0 or MST_EINVAL; the message begins with `port` if the port is wrong.
 */
int mst__endpoint_parse_default(struct mst_bytes text,
                                int port_default,
                                struct mst__endpoint *ret_endpoint,
                                struct mst_err *reterr);

/* The same for the endpoint of a server, which may also be a unix socket: `unix:/path`, or `unix:`
 * for one of its own. */
int mst__endpoint_parse_server(struct mst_bytes text,
                               int port_default,
                               struct mst__endpoint *ret_endpoint,
                               struct mst_err *reterr);

/* The path of a unix socket, "" for `unix:`; NULL for a host. */
const char *mst__endpoint_path(const struct mst__endpoint *endpoint);

/* Whether it is port 0 or `unix:`: one that the server finds, and nobody else knows before. */
bool mst__endpoint_is_own(const struct mst__endpoint *endpoint);

/* Format the endpoint, with brackets around an IPv6 address. Returns @ret_text. */
const char *mst__endpoint_format(const struct mst__endpoint *endpoint,
                                 char ret_text[MST_ENDPOINT_TEXT_SIZE]);

/* The URL of a store there: heap, NULL if out of memory. */
char *mst__endpoint_url(const struct mst__endpoint *endpoint);

enum mst__url_scheme {
    MST_URL_TCP,   /* tcp://host:port[/prefix] */
    MST_URL_UNIX,  /* unix:///path */
    MST_URL_FILE,  /* file:///path */
    MST_URL_HASH,  /* hash: */
    MST_URL_ETCD2, /* etcd2://host:port[,host:port…][/directory] */
    MST_URL_ETCD3, /* etcd3://host:port[,host:port…][/root] */
};

#define MST_URL_ENDPOINTS_MAX 16

/* Parameters of an etcd's URL. All texts are on the heap, without a NUL inside; NULL = not
 * given. */
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

/* The parts of a store's URL; every URL may have `?prefix=…`. `%XX` in path, prefix and parameters
 * is decoded. */
struct mst__url {
    enum mst__url_scheme scheme;
    struct mst__endpoint endpoint; /* TCP, UNIX */
    char *path;                    /* UNIX, FILE: heap, NUL-terminated, without a NUL inside. ETCD2,
                                      ETCD3: "" or "/a/b", without a slash at its end */
    char *prefix;                  /* heap; NULL if there is none, which differs from "" */
    size_t prefix_size;
    struct mst__url_etcd etcd;
};

/* Parse @text: 0, MST_EINVAL with a message that names the wrong part, or MST_ENOMEM. Release the
 * result with mst__url_close. */
int mst__url_parse(const char *text, struct mst__url *ret_url, struct mst_err *reterr);

/* @start followed by @path, with %XX for characters that a URL cannot contain: heap, NULL if out of
 * memory. */
char *mst__url_text(const char *start, const char *path);

/* Release the memory of @url, which may be zeroed. */
void mst__url_close(struct mst__url *url);

#endif /* MST_BASE_ENDPOINT_H */
