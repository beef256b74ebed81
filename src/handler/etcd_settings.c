/* handler/etcd_settings.c - options of `etcd`, `etcd-v2` and `etcd-v3` to settings. Values that
 * the peers refuse are refused. So are some that the peers ignore: certificates without https, a
 * key without its certificate, two names of one file with different values. A password never
 * appears in a message. */
#include "handler/etcd_settings.h"

#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/unicode.h"
#include "etcd/secret.h"
#include "handler/builtin.h"
#include "store/store.h"

#define DEFAULT_READ_MS 60000
#define DEFAULT_TIMEOUT_MS 600000
#define DEFAULT_LAST_CALL_MS 30000
#define DEFAULT_PREFIX "/torchelastic/p2p"

#define ETCD_OPTIONS                                                                    \
    "protocol", "cert", "key", "cacert", "ssl_cert", "ssl_cert_key", "ca_cert", "user", \
        "password", "password_file"

static const char *const v2_options[] = {MST_DYNAMIC_OPTIONS, ETCD_OPTIONS};
static const char *const v3_options[] = {MST_MUSTER_OPTIONS, ETCD_OPTIONS};
static const char *const legacy_options[] = {"timeout",      "last_call_timeout", "etcd_prefix",
                                             "read_timeout", "max_restarts",      ETCD_OPTIONS};
const struct mst__known mst__etcd_v2_known = MST_KNOWN(v2_options);
const struct mst__known mst__etcd_v3_known = MST_KNOWN(v3_options);
const struct mst__known mst__legacy_known = MST_KNOWN(legacy_options);

/* --- where --- */

/* `host[:port]`, several separated by commas. */
static int read_endpoints(const struct mst_params *params,
                          struct mst__etcd_settings *settings,
                          struct mst_err *reterr)
{
    const char *text = mst_params_endpoint(params);
    const char *rest = text;
    for (;;) {
        size_t size = strcspn(rest, ",");
        if (settings->endpoint_count == MST_HTTP_ENDPOINTS_MAX) {
            return mst__fail(reterr, MST_EINVAL, 0, "endpoint '%.60s': more than %d addresses",
                             text, MST_HTTP_ENDPOINTS_MAX);
        }
        struct mst_bytes part = mst__unicode_trim(mst_bytes_of(rest, size));
        if (part.size == 0 && strchr(text, ',') != NULL) {
            return mst__fail(reterr, MST_EINVAL, 0,
                             "endpoint '%.60s': an address is missing at a comma", text);
        }
        int rv = mst__endpoint_parse_default(
            part, MST_ETCD_PORT_DEFAULT, &settings->endpoints[settings->endpoint_count], reterr);
        if (rv == 0 && settings->endpoints[settings->endpoint_count].port == 0) {
            rv = mst__fail(reterr, MST_EINVAL, 0, "port 0 is not allowed");
        }
        if (rv != 0) {
            return mst__err_wrap(reterr, rv, "endpoint '%.60s'", text);
        }
        settings->endpoint_count++;
        if (rest[size] == '\0') {
            return 0;
        }
        rest += size + 1;
    }
}

/* --- TLS --- */

/* An option with two names; NULL if it is not set. */
static int read_either(const struct mst_params *params,
                       const char *name,
                       const char *other,
                       const char **ret_text,
                       struct mst_err *reterr)
{
    const char *text = mst_params_text(params, name, NULL);
    const char *again = mst_params_text(params, other, NULL);
    if (text != NULL && again != NULL && strcmp(text, again) != 0) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "options '%s' and '%s' are two names of one file; set one of them", name,
                         other);
    }
    *ret_text = text != NULL ? text : again;
    return 0;
}

static int read_files(const struct mst_params *params,
                      struct mst__etcd_settings *settings,
                      struct mst_err *reterr)
{
    const struct {
        const char *name, *other;
        const char **path;
    } files[] = {
        {"cert", "ssl_cert", &settings->cert_path},
        {"key", "ssl_cert_key", &settings->key_path},
        {"cacert", "ca_cert", &settings->ca_path},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        int rv = read_either(params, files[i].name, files[i].other, files[i].path, reterr);
        if (rv != 0) {
            return rv;
        }
        if (*files[i].path != NULL && !settings->is_tls) {
            bool is_other = mst_params_text(params, files[i].name, NULL) == NULL;
            return mst__fail(reterr, MST_EINVAL, 0,
                             "option '%s' is for TLS, which is off; set protocol=https",
                             is_other ? files[i].other : files[i].name);
        }
    }
    if (settings->key_path != NULL && settings->cert_path == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "a key without its certificate; set 'cert' (or 'ssl_cert'), too");
    }
    return 0;
}

/* The peers' legacy handler takes the two words only as they are; their other handler ignores
 * case and blanks around them. */
static int read_protocol(const struct mst_params *params,
                         bool is_strict,
                         bool *ret_tls,
                         struct mst_err *reterr)
{
    const char *text = mst_params_text(params, "protocol", "http");
    struct mst_bytes word = mst_bytes_str(text);
    if (!is_strict) {
        word = mst__unicode_trim(word);
    }
    static const char *const words[] = {"http", "https"};
    for (size_t i = 0; i < 2; i++) {
        size_t size = strlen(words[i]);
        if (word.size == size &&
            (is_strict ? strncmp((const char *)word.data, words[i], size)
                       : strncasecmp((const char *)word.data, words[i], size)) == 0) {
            *ret_tls = i == 1;
            return 0;
        }
    }
    return mst__fail(reterr, MST_EINVAL, 0, "option 'protocol': '%.60s' is neither http nor https",
                     text);
}

/* --- user and password --- */

static int read_password(const struct mst_params *params,
                         const char *user,
                         char **ret_password,
                         struct mst_err *reterr)
{
    const char *text = mst_params_text(params, "password", NULL);
    const char *path = mst_params_text(params, "password_file", NULL);
    if (text != NULL && path != NULL) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "options 'password' and 'password_file': set one of them");
    }
    if (text == NULL) {
        return mst__secret_password(user, path, ret_password, reterr);
    }
    *ret_password = mst__strdup(text);
    return *ret_password != NULL ? 0 : mst__fail(reterr, MST_ENOMEM, 0, "password");
}

static int read_user(const struct mst_params *params,
                     struct mst__etcd_settings *settings,
                     struct mst_err *reterr)
{
    settings->user = mst_params_text(params, "user", NULL);
    if (settings->user != NULL) {
        return read_password(params, settings->user, &settings->password, reterr);
    }
    static const char *const lonely[] = {"password", "password_file"};
    for (size_t i = 0; i < 2; i++) {
        if (mst_params_text(params, lonely[i], NULL) != NULL) {
            return mst__fail(reterr, MST_EINVAL, 0, "option '%s' without a 'user'", lonely[i]);
        }
    }
    return 0;
}

/* --- what both have --- */

static void settings_close(struct mst__etcd_settings *settings)
{
    mst__secret_free(settings->password);
    *settings = (struct mst__etcd_settings){0};
}

/* After a failure the caller must still close @settings. */
static int read_etcd(const struct mst_params *params,
                     bool is_strict,
                     struct mst__etcd_settings *settings,
                     struct mst_err *reterr)
{
    int rv = read_endpoints(params, settings, reterr);
    if (rv == 0) {
        rv = mst_params_duration_ms(params, "read_timeout", DEFAULT_READ_MS,
                                    &settings->read_timeout_ms, reterr);
    }
    if (rv == 0 && settings->read_timeout_ms <= 0) {
        rv = mst__fail(reterr, MST_EINVAL, 0, "option 'read_timeout' must be longer than 0");
    }
    if (rv == 0) {
        rv = read_protocol(params, is_strict, &settings->is_tls, reterr);
    }
    if (rv == 0) {
        rv = read_files(params, settings, reterr);
    }
    return rv == 0 ? read_user(params, settings, reterr) : rv;
}

struct mst__http_options mst__etcd_http(const struct mst__etcd_settings *settings,
                                        const struct mst_log *log)
{
    return (struct mst__http_options){
        .endpoints = settings->endpoints,
        .endpoint_count = settings->endpoint_count,
        .is_tls = settings->is_tls,
        .ca_path = settings->ca_path,
        .cert_path = settings->cert_path,
        .key_path = settings->key_path,
        .user = settings->user,
        .password = settings->password,
        .log = *log,
    };
}

int mst__etcd_store_new(const struct mst__http_options *http,
                        const char *root,
                        struct mst_store **ret_store,
                        struct mst_err *reterr)
{
    struct mst_store_options options;
    mst_store_options_init(&options, sizeof options);
    options.log = http->log;
    struct mst__storage *storage = NULL;
    int rv = mst__etcd2_new(http, root, &options, &storage, reterr);
    return rv == 0 ? mst__store_first(storage, ret_store, reterr) : rv;
}

/* --- etcd-v2 --- */

int mst__etcd_v2_read(const struct mst_params *params,
                      struct mst__etcd_v2_settings *ret_settings,
                      struct mst_err *reterr)
{
    struct mst__etcd_v2_settings settings = {0};
    int rv = mst__dynamic_read_known(params, &mst__etcd_v2_known, &settings.dynamic, reterr);
    if (rv == 0) {
        rv = read_etcd(params, false, &settings.etcd, reterr);
    }
    if (rv != 0) {
        mst__etcd_v2_settings_close(&settings);
        return rv;
    }
    *ret_settings = settings;
    return 0;
}

void mst__etcd_v2_settings_close(struct mst__etcd_v2_settings *settings)
{
    settings_close(&settings->etcd);
}

/* --- etcd-v3 --- */

int mst__etcd_v3_read(const struct mst_params *params,
                      struct mst__etcd_v3_settings *ret_settings,
                      struct mst_err *reterr)
{
    struct mst__etcd_v3_settings settings = {.job.pinned_rank = MST_AUTHORITY_RANK_NONE};
    struct mst__dynamic dynamic;
    int rv = mst__dynamic_read_known(params, &mst__etcd_v3_known, &dynamic, reterr);
    if (rv == 0) {
        settings.job.job = dynamic.settings;
        rv = mst__muster_read_node(params, &settings.job, reterr);
    }
    if (rv == 0) {
        rv = read_etcd(params, false, &settings.etcd, reterr);
    }
    if (rv != 0) {
        mst__etcd_v3_settings_close(&settings);
        return rv;
    }
    *ret_settings = settings;
    return 0;
}

void mst__etcd_v3_settings_close(struct mst__etcd_v3_settings *settings)
{
    settings_close(&settings->etcd);
}

/* --- the legacy handler --- */

/* etcd's keys begin with a slash. Without the slash a prefix would never match the keys of its
 * answers, so it is added. */
static int read_prefix(const struct mst_params *params, char **ret_prefix, struct mst_err *reterr)
{
    const char *text = mst_params_text(params, "etcd_prefix", DEFAULT_PREFIX);
    struct mst_bytes trimmed = mst__unicode_trim(mst_bytes_str(text));
    char *prefix = mst__malloc(trimmed.size + 2);
    if (prefix == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "option 'etcd_prefix'");
    }
    size_t size = 0;
    prefix[size++] = '/';
    for (size_t i = 0; i < trimmed.size; i++) {
        if (trimmed.data[i] != '/' || prefix[size - 1] != '/') {
            prefix[size++] = (char)trimmed.data[i];
        }
    }
    size -= size > 1 && prefix[size - 1] == '/' ? 1 : 0;
    prefix[size] = '\0';
    *ret_prefix = prefix;
    return 0;
}

static int read_times(const struct mst_params *params,
                      struct mst__legacy_settings *settings,
                      struct mst_err *reterr)
{
    int rv = mst_params_duration_ms(params, "timeout", DEFAULT_TIMEOUT_MS, &settings->timeout_ms,
                                    reterr);
    if (rv == 0) {
        rv = mst_params_duration_ms(params, "last_call_timeout", DEFAULT_LAST_CALL_MS,
                                    &settings->last_call_ms, reterr);
    }
    int64_t us;
    if (rv == 0 &&
        (settings->timeout_ms <= 0 || __builtin_mul_overflow(settings->timeout_ms, 1000, &us))) {
        rv = mst__fail(reterr, MST_EINVAL, 0,
                       "option 'timeout' must be longer than 0 and less than 292,000 years");
    }
    if (rv == 0 &&
        (settings->last_call_ms < 0 || __builtin_mul_overflow(settings->last_call_ms, 1000, &us))) {
        rv = mst__fail(reterr, MST_EINVAL, 0,
                       "option 'last_call_timeout' must be 0 or longer, and less than 292,000 "
                       "years");
    }
    return rv;
}

int mst__legacy_read(const struct mst_params *params,
                     struct mst__legacy_settings *ret_settings,
                     struct mst_err *reterr)
{
    struct mst__legacy_settings settings = {
        .nodes_min = mst_params_nodes_min(params),
        .nodes_max = mst_params_nodes_max(params),
    };
    int rv = mst__params_check_known(params, &mst__legacy_known, reterr);
    if (rv == 0) {
        rv = read_times(params, &settings, reterr);
    }
    if (rv == 0 && mst_params_run_id(params)[0] == '\0') {
        rv = mst__fail(reterr, MST_EINVAL, 0, "run_id is empty; every job needs one of its own");
    }
    if (rv == 0) {
        rv = mst__params_check_nodes(settings.nodes_min, settings.nodes_max, reterr);
    }
    if (rv == 0) {
        rv = read_etcd(params, true, &settings.etcd, reterr);
    }
    if (rv == 0) {
        rv = read_prefix(params, &settings.prefix, reterr);
    }
    if (rv == 0) {
        rv = mst__budget_read(params, &settings.budget, reterr);
    }
    if (rv != 0) {
        mst__legacy_settings_close(&settings);
        return rv;
    }
    *ret_settings = settings;
    return 0;
}

void mst__legacy_settings_close(struct mst__legacy_settings *settings)
{
    settings_close(&settings->etcd);
    mst__free(settings->prefix);
    *settings = (struct mst__legacy_settings){0};
}
