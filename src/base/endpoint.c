/* base/endpoint.c - parses endpoints and store URLs, without touching the network. */
#include "base/endpoint.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/percent.h"
#include "base/unicode.h"

/* The index of the first @c in @bytes; bytes.size if there is none. */
static size_t bytes_find(struct mst_bytes bytes, char c)
{
    const uint8_t *at = bytes.size == 0 ? NULL : memchr(bytes.data, c, bytes.size);
    return at == NULL ? bytes.size : (size_t)(at - bytes.data);
}

/* The index of the last @c; bytes.size if there is none. */
static size_t bytes_find_last(struct mst_bytes bytes, char c)
{
    size_t at = bytes.size;
    while (at > 0 && bytes.data[at - 1] != (uint8_t)c) {
        at--;
    }
    return at == 0 ? bytes.size : at - 1;
}

static struct mst_bytes bytes_head(struct mst_bytes bytes, size_t size)
{
    return mst_bytes_of(bytes.data, size);
}

static int parse_port(struct mst_bytes text,
                      int64_t port_min,
                      uint16_t *ret_port,
                      struct mst_err *reterr)
{
    int64_t port = 0;
    bool all_digits = text.size > 0;
    for (size_t i = 0; i < text.size; i++) {
        all_digits = all_digits && text.data[i] >= '0' && text.data[i] <= '9';
    }
    if (!all_digits || !mst__number_parse(text, port_min, 65535, &port)) {
        return mst__fail(reterr, MST_EINVAL, 0, "port '%.*s' is not a number from %d to 65535",
                         (int)(text.size > 40 ? 40 : text.size), (const char *)text.data,
                         (int)port_min);
    }
    *ret_port = (uint16_t)port;
    return 0;
}

/* An IPv6 address, with or without the zone of a link-local address. */
static bool is_ipv6(struct mst_bytes host)
{
    size_t percent = bytes_find(host, '%');
    char text[INET6_ADDRSTRLEN];
    if (percent >= sizeof text || percent == host.size - 1) {
        return false;
    }
    for (size_t i = percent + 1; i < host.size; i++) {
        uint8_t c = host.data[i];
        if (c >= 0x80 || !(mst__unicode_is_word(c) || c == '.' || c == '-' || c == '~')) {
            return false;
        }
    }
    memcpy(text, host.data, percent);
    text[percent] = '\0';
    struct in6_addr address;
    return strlen(text) == percent && inet_pton(AF_INET6, text, &address) == 1;
}

/* Only characters of names in any script and of addresses; others would fail later, with a worse
 * message. */
static bool host_is_sane(struct mst_bytes host)
{
    if (host.size > 0 && is_ipv6(host)) {
        return true;
    }
    struct mst_bytes rest = host;
    while (rest.size > 0) {
        uint32_t c = 0;
        size_t size = mst__unicode_next(rest, &c);
        if (size == 0 || !(mst__unicode_is_word(c) || c == '.' || c == ':' || c == '-')) {
            return false;
        }
        rest = mst__bytes_skip(rest, size);
    }
    return host.size > 0;
}

/* Combine the parts. The port is checked first, as the peers do. With @is_listener the host may be
 * `*`. */
static int take_parts(struct mst_bytes host,
                      struct mst_bytes port_text,
                      int64_t port_min,
                      bool is_listener,
                      struct mst__endpoint *ret_endpoint,
                      struct mst_err *reterr)
{
    struct mst__endpoint endpoint = {0};
    int rv = parse_port(port_text, port_min, &endpoint.port, reterr);
    if (rv != 0) {
        return rv;
    }
    if (host.size >= MST_HOST_SIZE) {
        return mst__fail(reterr, MST_EINVAL, 0, "host name of %zu characters, the limit is %d",
                         host.size, MST_HOST_SIZE - 1);
    }
    bool is_everywhere = is_listener && mst__bytes_equal(host, mst_bytes_str("*"));
    if (!is_everywhere && !host_is_sane(host)) {
        return mst__fail(reterr, MST_EINVAL, 0, "'%.*s' is not a host name",
                         (int)(host.size > 80 ? 80 : host.size), (const char *)host.data);
    }
    memcpy(endpoint.host, host.data, host.size);
    *ret_endpoint = endpoint;
    return 0;
}

/* Split `[address]:port` or `host:port`; @ret_port_text starts after the colon. */
static int split_endpoint(struct mst_bytes text,
                          struct mst_bytes *ret_host,
                          struct mst_bytes *ret_port_text,
                          struct mst_err *reterr)
{
    int shown = (int)(text.size > 80 ? 80 : text.size);
    const char *start = (const char *)text.data;
    struct mst_bytes rest;
    if (text.size > 0 && text.data[0] == '[') {
        size_t close = bytes_find(text, ']');
        if (close == text.size) {
            return mst__fail(reterr, MST_EINVAL, 0, "'%.*s' lacks the closing bracket", shown,
                             start);
        }
        *ret_host = mst_bytes_of(text.data + 1, close - 1);
        rest = mst__bytes_skip(text, close + 1);
    } else {
        size_t colon = bytes_find(text, ':');
        *ret_host = bytes_head(text, colon);
        rest = mst__bytes_skip(text, colon);
        if (rest.size > 1 && bytes_find(mst__bytes_skip(rest, 1), ':') < rest.size - 1) {
            return mst__fail(reterr, MST_EINVAL, 0,
                             "'%.*s' has several colons; an IPv6 address goes into brackets, as "
                             "in [::1]:29500",
                             shown, start);
        }
    }
    if (ret_host->size == 0) {
        return mst__fail(reterr, MST_EINVAL, 0, "'%.*s' names no host", shown, start);
    }
    if (rest.size == 0 || rest.data[0] != ':') {
        return mst__fail(reterr, MST_EINVAL, 0, "'%.*s' lacks a port, as in host:29500", shown,
                         start);
    }
    *ret_port_text = mst__bytes_skip(rest, 1);
    return 0;
}

static int parse_endpoint(struct mst_bytes text,
                          bool is_listener,
                          struct mst__endpoint *ret_endpoint,
                          struct mst_err *reterr)
{
    struct mst_bytes host = {0};
    struct mst_bytes port_text = {0};
    int rv = split_endpoint(text, &host, &port_text, reterr);
    if (rv != 0) {
        return rv;
    }
    return take_parts(host, port_text, is_listener ? 0 : 1, is_listener, ret_endpoint, reterr);
}

int mst__endpoint_parse(struct mst_bytes text,
                        struct mst__endpoint *ret_endpoint,
                        struct mst_err *reterr)
{
    return parse_endpoint(text, false, ret_endpoint, reterr);
}

int mst__endpoint_parse_listen(struct mst_bytes text,
                               struct mst__endpoint *ret_endpoint,
                               struct mst_err *reterr)
{
    return parse_endpoint(text, true, ret_endpoint, reterr);
}

/* --- endpoints of a rendezvous, parsed as the peers do --- */

#define PORT_DIGITS_MAX 5

/* Whether @host is an IPv6 address whose end was taken for a port. */
static bool is_torn(struct mst_bytes host)
{
    size_t size = host.size;
    return size > 0 && host.data[size - 1] == ':' && (size == 1 || host.data[size - 2] != ':');
}

/* Split at the last colon. A whole text in brackets and an IPv6 address have no port; the data of
 * @ret_port_text is then NULL. */
static void split_at_last_colon(struct mst_bytes text,
                                struct mst_bytes *ret_host,
                                struct mst_bytes *ret_port_text)
{
    size_t colon = text.size;
    bool in_brackets = text.data[0] == '[' && text.data[text.size - 1] == ']';
    if (!in_brackets && !is_ipv6(text)) {
        colon = bytes_find_last(text, ':');
    }
    *ret_host = bytes_head(text, colon);
    *ret_port_text = mst_bytes_of(NULL, 0);
    if (colon < text.size) {
        *ret_port_text = mst__bytes_skip(text, colon + 1);
    }
    if (ret_host->size > 1 && ret_host->data[0] == '[' &&
        ret_host->data[ret_host->size - 1] == ']') {
        *ret_host = mst_bytes_of(ret_host->data + 1, ret_host->size - 2);
    }
}

int mst__endpoint_parse_default(struct mst_bytes text,
                                int port_default,
                                struct mst__endpoint *ret_endpoint,
                                struct mst_err *reterr)
{
    struct mst_bytes trimmed = mst__unicode_trim(text);
    struct mst_bytes host = mst_bytes_str("localhost");
    struct mst_bytes port_text = mst_bytes_of(NULL, 0);
    if (trimmed.size > 0) {
        split_at_last_colon(trimmed, &host, &port_text);
    }
    char default_text[MST_NUMBER_SIZE];
    if (port_text.data == NULL && port_default >= 0) {
        port_text = mst_bytes_of(default_text, mst__number_format(port_default, default_text));
    } else if (port_text.data == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "port missing; write it after the host, as in host:29500");
    }
    if (port_text.size > PORT_DIGITS_MAX) {
        return mst__fail(reterr, MST_EINVAL, 0, "port '%.*s' has more than %d digits",
                         (int)(port_text.size > 40 ? 40 : port_text.size),
                         (const char *)port_text.data, PORT_DIGITS_MAX);
    }
    struct mst__endpoint endpoint;
    int rv = take_parts(host, port_text, 0, false, &endpoint, reterr);
    if (rv != 0) {
        return rv;
    }
    if (trimmed.size > 0 && trimmed.data[0] != '[' && is_torn(host)) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "'%s' is not a host name; an IPv6 address goes into brackets, as in "
                         "[::1]:29500",
                         endpoint.host);
    }
    *ret_endpoint = endpoint;
    return 0;
}

/* --- unix sockets --- */

static int take_path(const char *path, struct mst__endpoint *ret_endpoint, struct mst_err *reterr)
{
    struct mst__endpoint endpoint = {.port = 0};
    int size = snprintf(endpoint.host, sizeof endpoint.host, MST_ENDPOINT_UNIX "%s", path);
    if (size < 0 || (size_t)size >= sizeof endpoint.host) {
        return mst__fail(reterr, MST_EINVAL, 0, "unix path of %zu characters is too long",
                         strlen(path));
    }
    *ret_endpoint = endpoint;
    return 0;
}

int mst__endpoint_parse_server(struct mst_bytes text,
                               int port_default,
                               struct mst__endpoint *ret_endpoint,
                               struct mst_err *reterr)
{
    struct mst_bytes trimmed = mst__unicode_trim(text);
    struct mst_bytes scheme = mst_bytes_str(MST_ENDPOINT_UNIX);
    char path[MST_HOST_SIZE];
    bool is_unix =
        mst__bytes_start_with(trimmed, scheme) &&
        (trimmed.size == scheme.size || trimmed.data[scheme.size] == '/'); /* else a host */
    if (!is_unix) {
        return mst__endpoint_parse_default(text, port_default, ret_endpoint, reterr);
    }
    size_t size = trimmed.size - scheme.size;
    if (size >= sizeof path || memchr(trimmed.data, '\0', trimmed.size) != NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "'%.*s…' is no path of a unix socket",
                         (int)(trimmed.size > 40 ? 40 : trimmed.size), (const char *)trimmed.data);
    }
    memcpy(path, trimmed.data + scheme.size, size);
    path[size] = '\0';
    return take_path(path, ret_endpoint, reterr);
}

const char *mst__endpoint_path(const struct mst__endpoint *endpoint)
{
    size_t size = strlen(MST_ENDPOINT_UNIX);
    bool is_unix = strncmp(endpoint->host, MST_ENDPOINT_UNIX, size) == 0 &&
                   (endpoint->host[size] == '/' || endpoint->host[size] == '\0');
    return is_unix ? endpoint->host + size : NULL;
}

bool mst__endpoint_is_own(const struct mst__endpoint *endpoint)
{
    const char *path = mst__endpoint_path(endpoint);
    return path != NULL ? path[0] == '\0' : endpoint->port == 0;
}

const char *mst__endpoint_format(const struct mst__endpoint *endpoint,
                                 char ret_text[MST_ENDPOINT_TEXT_SIZE])
{
    bool brackets = strchr(endpoint->host, ':') != NULL;
    if (mst__endpoint_path(endpoint) != NULL) {
        (void)snprintf(ret_text, MST_ENDPOINT_TEXT_SIZE, "%s", endpoint->host); /* fits */
        return ret_text;
    }
    (void)snprintf(ret_text, MST_ENDPOINT_TEXT_SIZE, "%s%s%s:%u", brackets ? "[" : "",
                   endpoint->host, brackets ? "]" : "", endpoint->port); /* the text has room for
                                                                            it */
    return ret_text;
}

/* --- URLs --- */

#define URL_FORMS                                                                         \
    "tcp://host:port[/prefix], unix:///path, file:///path, hash:, etcd2://host:port/dir " \
    "and etcd3://"

/* Decode `%XX` into a new string; @what is for the message. */
static int decode(struct mst_bytes text,
                  const char *what,
                  char **ret_decoded,
                  size_t *ret_size,
                  struct mst_err *reterr)
{
    char *decoded = mst__malloc(text.size + 1);
    if (decoded == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "%s of %zu bytes", what, text.size);
    }
    size_t size = 0;
    while (text.size > 0) {
        uint8_t c;
        if (!mst__percent_take(&text, &c)) {
            mst__free(decoded);
            return mst__fail(reterr, MST_EINVAL, 0,
                             "the %s has a '%%' without two hexadecimal digits; a percent "
                             "sign is written %%25",
                             what);
        }
        decoded[size++] = (char)c;
    }
    decoded[size] = '\0';
    *ret_decoded = decoded;
    *ret_size = size;
    return 0;
}

/* The query after `?`: only `prefix=` is known. */
static int parse_query(struct mst_bytes query, struct mst__url *url, struct mst_err *reterr)
{
    struct mst_bytes name = mst_bytes_str("prefix=");
    if (!mst__bytes_start_with(query, name)) {
        return mst__fail(reterr, MST_EINVAL, 0, "unknown parameter '%.*s'; known is prefix=…",
                         (int)(query.size > 40 ? 40 : query.size), (const char *)query.data);
    }
    struct mst_bytes value = mst__bytes_skip(query, name.size);
    if (bytes_find(value, '&') < value.size) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "more than one parameter; known is prefix=… ('&' in it is written %%26)");
    }
    if (url->prefix != NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "a prefix in the path and one in the parameter");
    }
    return decode(value, "prefix", &url->prefix, &url->prefix_size, reterr);
}

/* `host:port[/prefix]` */
static int parse_authority(struct mst_bytes rest, struct mst__url *url, struct mst_err *reterr)
{
    size_t slash = bytes_find(rest, '/');
    int rv = mst__endpoint_parse(bytes_head(rest, slash), &url->endpoint, reterr);
    if (rv == 0 && slash + 1 < rest.size) {
        rv = decode(mst__bytes_skip(rest, slash + 1), "prefix", &url->prefix, &url->prefix_size,
                    reterr);
    }
    return rv;
}

/* `/path` after `unix://` or `file://` */
static int parse_path(struct mst_bytes rest, struct mst__url *url, struct mst_err *reterr)
{
    const char *scheme = url->scheme == MST_URL_UNIX ? "unix" : "file";
    if (rest.size < 2 || rest.data[0] != '/') {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "the path is not absolute; write %s:///path, with three slashes", scheme);
    }
    size_t size = 0;
    int rv = decode(rest, "path", &url->path, &size, reterr);
    if (rv == 0 && strlen(url->path) != size) {
        rv = mst__fail(reterr, MST_EINVAL, 0, "the path has a NUL in it");
    }
    return rv == 0 && url->scheme == MST_URL_UNIX ? take_path(url->path, &url->endpoint, reterr)
                                                  : rv;
}

/* --- URLs of an etcd --- */

/* The longest lease in seconds: a year. etcd raises less than 2 to 2. */
#define LEASE_S_MAX 31536000

/* The text of a parameter or path as a C string. */
static int decode_text(struct mst_bytes value,
                       const char *what,
                       char **ret_text,
                       struct mst_err *reterr)
{
    size_t size = 0;
    char *text = NULL;
    int rv = decode(value, what, &text, &size, reterr);
    if (rv == 0 && strlen(text) != size) {
        rv = mst__fail(reterr, MST_EINVAL, 0, "the %s has a NUL in it", what);
    }
    if (rv != 0) {
        mst__free(text);
        return rv;
    }
    *ret_text = text;
    return 0;
}

/* Make "/a/b" of "/a//b/": in etcd these are different directories. */
static int tidy_path(char *path, struct mst_err *reterr)
{
    size_t to = 0;
    for (size_t from = 0; path[from] != '\0'; from++) {
        if (path[from] != '/' || (path[from + 1] != '/' && path[from + 1] != '\0')) {
            path[to++] = path[from];
        }
    }
    path[to] = '\0';
    for (const char *part = strchr(path, '/'); part != NULL; part = strchr(part + 1, '/')) {
        size_t size = strcspn(part + 1, "/");
        if ((size == 1 && part[1] == '.') || (size == 2 && part[1] == '.' && part[2] == '.')) {
            return mst__fail(reterr, MST_EINVAL, 0, "'.' and '..' have no meaning in the path '%s'",
                             path);
        }
    }
    return 0;
}

/* `host:port[,host:port…][/path]` */
static int parse_etcd_authority(struct mst_bytes rest, struct mst__url *url, struct mst_err *reterr)
{
    size_t slash = bytes_find(rest, '/');
    struct mst_bytes hosts = bytes_head(rest, slash);
    if (bytes_find(hosts, '@') < hosts.size) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "a user or password before the host would be visible to everybody; write "
                         "?user=NAME and password_file=PATH, or set MUSTER_ETCD_PASSWORD");
    }
    url->etcd.endpoints = mst__calloc(MST_URL_ENDPOINTS_MAX, sizeof *url->etcd.endpoints);
    if (url->etcd.endpoints == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "endpoints");
    }
    for (bool is_last = false; !is_last;) {
        size_t comma = bytes_find(hosts, ',');
        is_last = comma == hosts.size;
        if (url->etcd.endpoint_count == MST_URL_ENDPOINTS_MAX) {
            return mst__fail(reterr, MST_EINVAL, 0, "more than %d endpoints",
                             MST_URL_ENDPOINTS_MAX);
        }
        int rv = mst__endpoint_parse(bytes_head(hosts, comma),
                                     &url->etcd.endpoints[url->etcd.endpoint_count], reterr);
        if (rv != 0) {
            return rv;
        }
        url->etcd.endpoint_count++;
        hosts = is_last ? hosts : mst__bytes_skip(hosts, comma + 1);
    }
    int rv = decode_text(mst__bytes_skip(rest, slash), "path", &url->path, reterr);
    return rv == 0 ? tidy_path(url->path, reterr) : rv;
}

/* A text parameter; each has the names that the peers use. */
static char **etcd_text_of(struct mst__url_etcd *etcd, struct mst_bytes name)
{
    const struct {
        const char *name;
        char **text;
    } texts[] = {
        {"cacert", &etcd->ca_path},
        {"ca_cert", &etcd->ca_path},
        {"cert", &etcd->cert_path},
        {"ssl_cert", &etcd->cert_path},
        {"key", &etcd->key_path},
        {"ssl_cert_key", &etcd->key_path},
        {"server_name", &etcd->server_name},
        {"user", &etcd->user},
        {"password_file", &etcd->password_path},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (mst__bytes_equal(name, mst_bytes_str(texts[i].name))) {
            return texts[i].text;
        }
    }
    return NULL;
}

/* The parameters of an etcd's URL that are not texts. */
struct etcd_switches {
    bool has_tls;
    bool has_lease;
};

static int parse_etcd_parameter(struct mst_bytes name,
                                struct mst_bytes value,
                                struct mst__url *url,
                                struct etcd_switches *switches,
                                struct mst_err *reterr)
{
    struct mst__url_etcd *etcd = &url->etcd;
    int shown = (int)(name.size > 40 ? 40 : name.size);
    char **text = etcd_text_of(etcd, name);
    bool is_prefix = mst__bytes_equal(name, mst_bytes_str("prefix"));
    bool is_tls = mst__bytes_equal(name, mst_bytes_str("tls"));
    bool is_lease = mst__bytes_equal(name, mst_bytes_str("lease"));
    if ((text != NULL && *text != NULL) || (is_prefix && url->prefix != NULL) ||
        (is_tls && switches->has_tls) || (is_lease && switches->has_lease)) {
        return mst__fail(reterr, MST_EINVAL, 0, "'%.*s' is given twice", shown,
                         (const char *)name.data);
    }
    if (text != NULL && value.size == 0) {
        return mst__fail(reterr, MST_EINVAL, 0, "'%.*s=' has no value", shown,
                         (const char *)name.data);
    }
    if (text != NULL) {
        return decode_text(value, "parameter", text, reterr);
    }
    if (is_prefix) {
        return decode(value, "prefix", &url->prefix, &url->prefix_size, reterr);
    }
    if (is_tls) {
        switches->has_tls = true;
        etcd->is_tls = mst__bytes_equal(value, mst_bytes_str("1"));
        if (!etcd->is_tls && !mst__bytes_equal(value, mst_bytes_str("0"))) {
            return mst__fail(reterr, MST_EINVAL, 0, "tls is 0 or 1");
        }
        return 0;
    }
    if (is_lease && url->scheme == MST_URL_ETCD3) {
        switches->has_lease = true;
        /* etcd has whole seconds only. */
        if (!mst__number_parse_scaled(value, 1, &etcd->lease_s) || etcd->lease_s < 1 ||
            etcd->lease_s > LEASE_S_MAX) {
            return mst__fail(reterr, MST_EINVAL, 0, "lease is not a number of seconds from 1 to %d",
                             LEASE_S_MAX);
        }
        return 0;
    }
    if (is_lease) {
        return mst__fail(reterr, MST_EINVAL, 0, "only etcd3:// has leases");
    }
    return mst__fail(reterr, MST_EINVAL, 0,
                     "unknown parameter '%.*s'; known are prefix, tls, cacert, cert, key, "
                     "server_name, user, password_file and, with etcd3, lease",
                     shown, (const char *)name.data);
}

/* Check that the parameters fit together. */
static int check_etcd(struct mst__url_etcd *etcd,
                      const struct etcd_switches *switches,
                      struct mst_err *reterr)
{
    bool has_files = etcd->ca_path != NULL || etcd->cert_path != NULL || etcd->key_path != NULL ||
                     etcd->server_name != NULL;
    if (has_files && switches->has_tls && !etcd->is_tls) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "cacert, cert, key and server_name make no sense with tls=0");
    }
    etcd->is_tls = etcd->is_tls || has_files;
    if (etcd->key_path != NULL && etcd->cert_path == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "key without cert");
    }
    if (etcd->password_path != NULL && etcd->user == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "password_file without user");
    }
    return 0;
}

/* The query after `?` in the URL of an etcd: `name=value`, separated by `&`. */
static int parse_etcd_query(struct mst_bytes query, struct mst__url *url, struct mst_err *reterr)
{
    struct etcd_switches switches = {0};
    int rv = 0;
    for (bool is_last = false; rv == 0 && !is_last;) {
        size_t end = bytes_find(query, '&');
        is_last = end == query.size;
        struct mst_bytes parameter = bytes_head(query, end);
        size_t equals = bytes_find(parameter, '=');
        struct mst_bytes value = equals == parameter.size ? mst_bytes_of(NULL, 0)
                                                          : mst__bytes_skip(parameter, equals + 1);
        rv = parse_etcd_parameter(bytes_head(parameter, equals), value, url, &switches, reterr);
        query = is_last ? query : mst__bytes_skip(query, end + 1);
    }
    return rv == 0 ? check_etcd(&url->etcd, &switches, reterr) : rv;
}

static int parse_parts(struct mst_bytes text, struct mst__url *url, struct mst_err *reterr)
{
    static const struct {
        const char *start;
        enum mst__url_scheme scheme;
    } schemes[] = {
        {"tcp://", MST_URL_TCP}, {"unix://", MST_URL_UNIX},   {"file://", MST_URL_FILE},
        {"hash:", MST_URL_HASH}, {"etcd2://", MST_URL_ETCD2}, {"etcd3://", MST_URL_ETCD3},
    };
    size_t question = bytes_find(text, '?');
    struct mst_bytes front = bytes_head(text, question);
    size_t i = 0;
    size_t count = sizeof schemes / sizeof schemes[0];
    while (i < count && !mst__bytes_start_with(front, mst_bytes_str(schemes[i].start))) {
        i++;
    }
    if (i == count) {
        return mst__fail(reterr, MST_EINVAL, 0, "unknown scheme, known are: " URL_FORMS);
    }
    url->scheme = schemes[i].scheme;
    struct mst_bytes rest = mst__bytes_skip(front, strlen(schemes[i].start));
    int rv = 0;
    switch (url->scheme) {
        case MST_URL_TCP:
            rv = parse_authority(rest, url, reterr);
            break;
        case MST_URL_UNIX:
        case MST_URL_FILE:
            rv = parse_path(rest, url, reterr);
            break;
        case MST_URL_HASH:
            if (rest.size > 0) {
                rv = mst__fail(reterr, MST_EINVAL, 0, "only ?prefix=… may follow 'hash:'");
            }
            break;
        case MST_URL_ETCD2:
        case MST_URL_ETCD3:
            rv = parse_etcd_authority(rest, url, reterr);
            break;
    }
    if (rv != 0 || question == text.size) {
        return rv;
    }
    struct mst_bytes query = mst__bytes_skip(text, question + 1);
    bool is_etcd = url->scheme == MST_URL_ETCD2 || url->scheme == MST_URL_ETCD3;
    return is_etcd ? parse_etcd_query(query, url, reterr) : parse_query(query, url, reterr);
}

int mst__url_parse(const char *text, struct mst__url *ret_url, struct mst_err *reterr)
{
    struct mst__url url = {0};
    int rv = parse_parts(mst_bytes_str(text), &url, reterr);
    if (rv != 0) {
        mst__url_close(&url);
        /* The text before an `@` may be a password, which must not appear in a message. */
        const char *at = strrchr(text, '@');
        return mst__err_wrap(reterr, rv, "URL '%s%.60s'", at == NULL ? "" : "...",
                             at == NULL ? text : at);
    }
    *ret_url = url;
    return 0;
}

char *mst__url_text(const char *start, const char *path)
{
    size_t size = strlen(start) + 3 * strlen(path) + 1;
    char *text = mst__malloc(size);
    if (text != NULL) {
        size_t used = (size_t)snprintf(text, size, "%s", start);
        (void)mst__percent_write(mst_bytes_str(path), "-._~/:,[]=", text + used, size - used);
    }
    return text;
}

char *mst__endpoint_url(const struct mst__endpoint *endpoint)
{
    char text[MST_ENDPOINT_TEXT_SIZE];
    char url[MST_ENDPOINT_TEXT_SIZE + 8];
    const char *path = mst__endpoint_path(endpoint);
    if (path != NULL) {
        return mst__url_text("unix://", path);
    }
    (void)snprintf(url, sizeof url, "tcp://%s", mst__endpoint_format(endpoint, text)); /* fits */
    return mst__strdup(url);
}

void mst__url_close(struct mst__url *url)
{
    mst__free(url->path);
    mst__free(url->prefix);
    mst__free(url->etcd.endpoints);
    mst__free(url->etcd.ca_path);
    mst__free(url->etcd.cert_path);
    mst__free(url->etcd.key_path);
    mst__free(url->etcd.server_name);
    mst__free(url->etcd.user);
    mst__free(url->etcd.password_path);
    *url = (struct mst__url){0};
}
