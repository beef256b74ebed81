/* vectors/vectors_endpoint.c - lines with a `kind`: endpoints, option strings, typed options,
 * parameters, settings of a handler, attempts at a c10d store.
 *
 * The lines say what the peers do. Here is where we answer otherwise, and why; everywhere else, in
 * what is marked `lenient` too, we agree.
 *   bare IPv6 addresses      are hosts without a port; what merely looks like one is no host
 *   zones (fe80::1%eth0)     are part of an address
 *   newline behind a host    is part of no host
 *   names beyond 255 bytes   are refused, because no resolver takes them
 *   keep-alive of 0 or less  is refused: it would spin, or declare everybody dead
 *   unknown options          are refused by name; `timeout` is known, because launchers pass it
 *   numbers beyond 64 bits   are refused
 *   fractions of a second    are taken
 * Options are text here. A Python value stands for the text that a caller would write instead: 1
 * and 0 for booleans where a number is asked for; None for an option that is not set, except where
 * the peers refuse None, and there it is the word. Floats have no such text: the peers cut them off
 * when they come as numbers and refuse them when they come as text, and so do we, seconds apart. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "handler/params.h"
#include "handler/settings.h"
#include "vectors/vectors.h"

struct reason {
    char *why;
    size_t size;
};

#define DIFFER(reason, ...) vectors_differ((reason)->why, (reason)->size, __VA_ARGS__)

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* The reason why the peers' answer is none of ours, or "" . */
static const char *defect_of(const json_t *line)
{
    const char *defect = vectors_text(line, "defect");
    return defect == NULL ? "" : defect;
}

static struct mst_bytes bytes_of(const json_t *text)
{
    return mst_bytes_of(json_string_value(text), json_string_length(text));
}

/* Whether @err, which came with @code, is a refusal whose message begins with @start. */
static int check_refused(int code,
                         const struct mst_err *err,
                         const char *start,
                         struct reason *reason)
{
    if (code != MST_EINVAL || err->code != code) {
        return DIFFER(reason, "gives %s, wanted EINVAL about '%s'", mst_errname(code), start);
    }
    if (!starts_with(err->msg, start)) {
        return DIFFER(reason, "message '%s' does not begin with '%s'", err->msg, start);
    }
    return 0;
}

/* --- endpoint --- */

struct wanted_endpoint {
    const char *error; /* "port", "host" or NULL */
    char host[MST_HOST_SIZE * 2];
    int64_t port;
};

/* What follows `]:`, else the default. */
static int64_t zone_port(const char *text, int64_t port_default)
{
    const char *colon = strstr(text, "]:");
    return colon == NULL ? port_default : strtoll(colon + 2, NULL, 10);
}

/* Our own answers, by the mark on the line. False when we agree with the peer. */
static bool own_endpoint(const json_t *line, struct wanted_endpoint *wanted)
{
    const char *defect = defect_of(line);
    const char *lenient = vectors_text(line, "lenient");
    const char *text = vectors_text(line, "in");
    struct in6_addr address;
    if (starts_with(defect, "bare IPv6") || starts_with(defect, "valid ")) {
        wanted->error = inet_pton(AF_INET6, text, &address) == 1 ? NULL : "host";
        wanted->port = vectors_int(line, "default");
        (void)snprintf(wanted->host, sizeof wanted->host, "%s", text);
        return true;
    }
    if (starts_with(defect, "zone id")) {
        wanted->error = NULL;
        wanted->port = zone_port(text, vectors_int(line, "default"));
        size_t brackets = text[0] == '[' ? 1 : 0;
        (void)snprintf(wanted->host, sizeof wanted->host, "%.*s",
                       (int)strcspn(text + brackets, "]"), text + brackets);
        return true;
    }
    bool is_newline = starts_with(defect, "a newline at the end of the host");
    bool is_long = lenient != NULL && starts_with(lenient, "name longer than DNS");
    wanted->error = "host";
    return is_newline || is_long;
}

static void peers_endpoint(const json_t *line, struct wanted_endpoint *wanted)
{
    const char *host = vectors_text(line, "host");
    wanted->error = vectors_text(line, "error");
    wanted->port = vectors_int(line, "port");
    (void)snprintf(wanted->host, sizeof wanted->host, "%s", host == NULL ? "" : host);
}

static int check_endpoint(const json_t *line, struct reason *reason)
{
    struct wanted_endpoint wanted = {0};
    if (!own_endpoint(line, &wanted)) {
        peers_endpoint(line, &wanted);
    }
    struct mst__endpoint endpoint = {0};
    struct mst_err err = {0};
    int code = mst__endpoint_parse_default(bytes_of(json_object_get(line, "in")),
                                           (int)vectors_int(line, "default"), &endpoint, &err);
    if (wanted.error != NULL) {
        bool about_port = starts_with(err.msg, "port");
        if (code != MST_EINVAL || about_port != (strcmp(wanted.error, "port") == 0)) {
            return DIFFER(reason, "gives %s '%s', wanted an error about the %s",
                          code == 0 ? "host" : mst_errname(code),
                          code == 0 ? endpoint.host : err.msg, wanted.error);
        }
        return 0;
    }
    if (code != 0) {
        return DIFFER(reason, "refused: %s", err.msg);
    }
    if (strcmp(endpoint.host, wanted.host) != 0 || endpoint.port != wanted.port) {
        return DIFFER(reason, "host '%s' port %u, wanted '%s' %" PRId64, endpoint.host,
                      endpoint.port, wanted.host, wanted.port);
    }
    return 0;
}

/* --- options --- */

static struct mst_params *new_params(const char *endpoint)
{
    struct mst_params *params = NULL;
    if (mst_params_new("c10d", "run", &params, NULL) == 0 &&
        mst_params_set_endpoint(params, endpoint, NULL) != 0) {
        mst_params_free(params);
        return NULL;
    }
    return params; /* NULL is checked */
}

static int compare_options(const json_t *wanted,
                           const struct mst__param_options *options,
                           struct reason *reason)
{
    if (json_array_size(wanted) != options->count) {
        return DIFFER(reason, "%zu options, wanted %zu", options->count, json_array_size(wanted));
    }
    for (size_t i = 0; i < options->count; i++) {
        const struct mst__param_option *option = &options->list[i];
        const json_t *pair = json_array_get(wanted, i);
        if (!mst__bytes_equal(mst_bytes_of(option->key, option->key_size),
                              bytes_of(json_array_get(pair, 0))) ||
            !mst__bytes_equal(mst_bytes_of(option->value, option->value_size),
                              bytes_of(json_array_get(pair, 1)))) {
            return DIFFER(reason, "option %zu is %.60s=%.60s", i, option->key, option->value);
        }
    }
    return 0;
}

static int check_config(const json_t *line, struct reason *reason)
{
    struct mst_params *params = new_params("");
    if (params == NULL) {
        return DIFFER(reason, "out of memory");
    }
    const char *error = vectors_text(line, "error");
    struct mst_err err = {0};
    int code = mst__params_parse(params, bytes_of(json_object_get(line, "in")), &err);
    int rv = 0;
    if (error == NULL) {
        rv = code != 0 ? DIFFER(reason, "refused: %s", err.msg)
                       : compare_options(json_object_get(line, "out"), &params->options, reason);
    } else {
        char start[160] = "format of ";
        if (strcmp(error, "value") == 0) {
            (void)snprintf(start, sizeof start, "option '%.60s' has no value",
                           vectors_text(line, "key"));
        }
        rv = check_refused(code, &err, start, reason);
        if (rv == 0 && params->options.count > 0) {
            rv = DIFFER(reason, "%zu options were set all the same", params->options.count);
        }
    }
    mst_params_free(params);
    return rv;
}

/* Set option @key to the text that stands for the Python value @value; @is_number tells what it
 * will be asked for. */
static int set_value(struct mst_params *params,
                     const char *key,
                     const json_t *value,
                     bool is_number)
{
    char text[64];
    if (json_is_string(value)) {
        /* Through a sized copy: a NUL in it is not its end. */
        struct mst_bytes bytes = bytes_of(value);
        int rv = mst_params_set(params, key, json_string_value(value), NULL);
        struct mst__param_option *option = &params->options.list[params->options.count - 1];
        if (rv == 0 && option->value_size != bytes.size) {
            mst__free(option->value);
            option->value = mst__memdup(bytes.data, bytes.size);
            if (option->value == NULL) {
                return -1;
            }
            option->value_size = bytes.size;
        }
        return rv;
    }
    if (json_is_boolean(value)) {
        bool yes = json_is_true(value);
        (void)snprintf(text, sizeof text, "%s",
                       is_number ? (yes ? "1" : "0") : (yes ? "True" : "False"));
    } else if (json_is_integer(value)) {
        (void)snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else if (json_is_real(value)) {
        (void)snprintf(text, sizeof text, "%.1f", json_real_value(value));
    } else {
        (void)snprintf(text, sizeof text, "%s", json_is_null(value) ? "None" : "[]");
    }
    return mst_params_set(params, key, text, NULL);
}

/* Ask for option `o`: 0 with *@ret_number, or the code with @err. */
static int get_value(const struct mst_params *params,
                     const json_t *line,
                     bool is_bool,
                     int64_t *ret_number,
                     struct mst_err *err)
{
    const json_t *fallback = json_object_get(line, "default");
    if (is_bool) {
        bool value = false;
        int code = mst_params_bool(params, "o", json_is_true(fallback), &value, err);
        *ret_number = value ? 1 : 0;
        return code;
    }
    return mst_params_int(params, "o", json_integer_value(fallback), ret_number, err);
}

static int compare_value(const json_t *line,
                         const struct mst_params *params,
                         bool is_bool,
                         struct reason *reason)
{
    const char *type = vectors_text(line, "type");
    const json_t *out = json_object_get(line, "out");
    if (strcmp(type, "none") == 0 || (strcmp(type, "missing") == 0 && json_is_null(out))) {
        return mst_params_text(params, "o", NULL) == NULL ? 0 : DIFFER(reason, "is set");
    }
    int64_t number = 0;
    struct mst_err err = {0};
    int code = get_value(params, line, is_bool, &number, &err);
    bool is_refused = vectors_text(line, "error") != NULL || vectors_bool(line, "big") ||
                      strcmp(type, "float") == 0;
    if (is_refused) {
        return check_refused(code, &err, "option 'o'", reason);
    }
    if (code != 0) {
        return DIFFER(reason, "refused: %s", err.msg);
    }
    int64_t wanted = is_bool ? (json_is_true(out) ? 1 : 0) : (int64_t)json_integer_value(out);
    return number == wanted ? 0
                            : DIFFER(reason, "gives %" PRId64 ", wanted %" PRId64, number, wanted);
}

static int check_typed(const json_t *line, bool is_bool, struct reason *reason)
{
    struct mst_params *params = new_params("");
    const char *type = vectors_text(line, "type");
    if (params == NULL || type == NULL) {
        mst_params_free(params);
        return DIFFER(reason, "out of memory, or no type");
    }
    int rv = 0;
    if (strcmp(type, "missing") != 0 && strcmp(type, "none") != 0 &&
        set_value(params, "o", json_object_get(line, "in"), !is_bool) != 0) {
        rv = DIFFER(reason, "the value cannot be set");
    }
    if (rv == 0) {
        rv = compare_value(line, params, is_bool, reason);
    }
    mst_params_free(params);
    return rv;
}

static int check_bool(const json_t *line, struct reason *reason)
{
    return check_typed(line, true, reason);
}

static int check_int(const json_t *line, struct reason *reason)
{
    return check_typed(line, false, reason);
}

/* --- parameters --- */

static int check_params(const json_t *line, struct reason *reason)
{
    struct mst_params *params = NULL;
    struct mst_err err = {0};
    const char *backend = vectors_text(line, "backend");
    int code = mst_params_new(backend == NULL ? "" : backend, "run", &params, &err);
    if (code == 0) {
        code =
            mst_params_set_nodes(params, vectors_int(line, "min"), vectors_int(line, "max"), &err);
    }
    mst_params_free(params);
    const char *error = vectors_text(line, "error");
    if (error == NULL) {
        return code == 0 ? 0 : DIFFER(reason, "refused: %s", err.msg);
    }
    const char *start = strcmp(error, "min") == 0   ? "nodes_min is "
                        : strcmp(error, "max") == 0 ? "nodes_max is "
                                                    : "backend missing";
    return check_refused(code, &err, start, reason);
}

/* --- handler --- */

/* Set all of `options`; where the peers take None for the default, it is one that is not set. */
static int set_options(struct mst_params *params, const json_t *options)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)options, key, value)
    {
        bool is_default = json_is_null(value) && strstr(key, "_timeout") != NULL;
        if (!is_default && set_value(params, key, value, true) != 0) {
            return -1;
        }
    }
    return 0;
}

/* What the message about a refused handler begins with; NULL when it is to be made. */
static const char *handler_refusal(const json_t *line, char *start, size_t start_size)
{
    const char *defect = defect_of(line);
    const char *about = vectors_text(line, "about");
    const char *option = json_object_iter_key(
        json_object_iter((json_t *)(uintptr_t)json_object_get(line, "options")));
    if (starts_with(defect, "interval of zero")) {
        return "option 'keep_alive_interval'";
    }
    if (starts_with(defect, "attempt count of zero")) {
        return "option 'keep_alive_max_attempt'";
    }
    if (starts_with(defect, "unknown option") && strcmp(option, "timeout") != 0) {
        (void)snprintf(start, start_size, "unknown option '%s'", option);
        return start;
    }
    if (vectors_text(line, "error") == NULL) {
        return NULL;
    }
    if (about == NULL) {
        return "option '"; /* the peer does not say which */
    }
    if (strcmp(about, "run_id") == 0) {
        return "run_id is empty";
    }
    if (strcmp(about, "min") == 0 || strcmp(about, "max") == 0) {
        (void)snprintf(start, start_size, "nodes_%s is ", about);
    } else {
        (void)snprintf(start, start_size, "option '%s'", about);
    }
    return start;
}

static int compare_settings(const json_t *wanted,
                            const struct mst__settings *got,
                            struct reason *reason)
{
    const struct {
        const char *name;
        int64_t value;
    } fields[] = {
        {"min", got->nodes_min},
        {"max", got->nodes_max},
        {"join", got->join_us},
        {"last_call", got->last_call_us},
        {"close", got->close_us},
        {"heartbeat", got->heartbeat_us},
        {"keep_alive_interval", got->keep_alive_interval_us},
        {"keep_alive_max_attempt", got->keep_alive_max_attempt},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (!json_is_integer(json_object_get(wanted, fields[i].name)) ||
            vectors_int(wanted, fields[i].name) != fields[i].value) {
            return DIFFER(reason, "%s is %" PRId64 ", wanted %" PRId64, fields[i].name,
                          fields[i].value, vectors_int(wanted, fields[i].name));
        }
    }
    return 0;
}

/* The microseconds of a duration with a fraction, like 1.5, which the peers refuse; 0 when it is
 * something else. */
static int64_t fraction_us(const json_t *line)
{
    const char *about = vectors_text(line, "about");
    if (about == NULL ||
        (strstr(about, "_timeout") == NULL && strcmp(about, "keep_alive_interval") != 0)) {
        return 0;
    }
    const char *text = json_string_value(json_object_get(json_object_get(line, "options"), about));
    if (text == NULL || strspn(text, "0123456789.") != strlen(text)) {
        return 0;
    }
    const char *dot = strchr(text, '.');
    if (dot == NULL || dot == text || dot[1] == '\0' || strchr(dot + 1, '.') != NULL) {
        return 0;
    }
    return (int64_t)(strtod(text, NULL) * 1e6);
}

/* What the one option of a line came to. */
static int64_t setting_us(const char *option, const struct mst__settings *settings)
{
    return strcmp(option, "join_timeout") == 0        ? settings->join_us
           : strcmp(option, "last_call_timeout") == 0 ? settings->last_call_us
           : strcmp(option, "close_timeout") == 0     ? settings->close_us
           : strcmp(option, "heartbeat_timeout") == 0 ? settings->heartbeat_us
                                                      : settings->keep_alive_interval_us;
}

static int check_handler(const json_t *line, struct reason *reason)
{
    struct mst_params *params = NULL;
    if (mst_params_new("c10d", vectors_text(line, "run_id"), &params, NULL) != 0 ||
        set_options(params, json_object_get(line, "options")) != 0) {
        mst_params_free(params);
        return DIFFER(reason, "the parameters cannot be made");
    }
    /* Past the check of mst_params_set_nodes: here that of the handler is looked at. */
    params->nodes_min = vectors_int(line, "min");
    params->nodes_max = vectors_int(line, "max");
    struct mst__dynamic dynamic;
    struct mst_err err = {0};
    int code = mst__dynamic_read(params, &dynamic, &err);
    mst_params_free(params);
    int64_t wanted_us = fraction_us(line);
    if (wanted_us > 0) {
        int64_t got_us = code == 0 ? setting_us(vectors_text(line, "about"), &dynamic.settings) : 0;
        return got_us == wanted_us
                   ? 0
                   : DIFFER(reason, "gives %" PRId64 " us, wanted %" PRId64, got_us, wanted_us);
    }
    char start_memory[100];
    const char *start = handler_refusal(line, start_memory, sizeof start_memory);
    if (start != NULL) {
        return check_refused(code, &err, start, reason);
    }
    if (code != 0) {
        return DIFFER(reason, "refused: %s", err.msg);
    }
    return compare_settings(json_object_get(line, "settings"), &dynamic.settings, reason);
}

/* --- c10d --- */

static bool attempt_fails(const json_t *line, size_t attempt)
{
    size_t i;
    json_t *index;
    json_array_foreach(json_object_get(line, "fail"), i, index)
    {
        if (json_integer_value(index) == (json_int_t)attempt) {
            return true;
        }
    }
    return false;
}

static int compare_attempt(const json_t *line,
                           const json_t *wanted,
                           const struct mst__c10d *c10d,
                           bool as_server,
                           struct reason *reason)
{
    const char *path = vectors_text(wanted, "path");
    if (path != NULL || c10d->is_file) {
        bool same = path != NULL && c10d->is_file && strcmp(path, c10d->path) == 0;
        return same ? 0 : DIFFER(reason, "path '%s'", c10d->is_file ? c10d->path : "(none)");
    }
    const char *host = vectors_text(wanted, "host");
    int64_t port = vectors_int(wanted, "port");
    if (starts_with(defect_of(line), "bare IPv6")) {
        host = vectors_text(line, "endpoint");
        port = 29400;
    }
    if (host == NULL || strcmp(host, c10d->endpoint.host) != 0 || port != c10d->endpoint.port) {
        return DIFFER(reason, "host '%s' port %u", c10d->endpoint.host, c10d->endpoint.port);
    }
    if (vectors_bool(wanted, "server") != as_server) {
        return DIFFER(reason, "attempt as %s", as_server ? "server" : "client");
    }
    if (vectors_int(wanted, "timeout") != c10d->read_timeout_ms * 1000) {
        return DIFFER(reason, "timeout of %" PRId64 " ms", c10d->read_timeout_ms);
    }
    return 0;
}

/* Make the attempts as the c10d handler does, with the line's word for how each ends. */
static int compare_attempts(const json_t *line, const struct mst__c10d *c10d, struct reason *reason)
{
    const json_t *wanted = json_object_get(line, "attempts");
    bool as_server[MST_C10D_ATTEMPTS_MAX] = {false};
    size_t count =
        c10d->is_file ? 1 : mst__c10d_attempts(c10d, vectors_bool(line, "host_is_me"), as_server);
    bool succeeded = false;
    size_t made = 0;
    while (made < count && !succeeded) {
        if (made >= json_array_size(wanted)) {
            return DIFFER(reason, "attempt %zu is one too many", made);
        }
        int rv = compare_attempt(line, json_array_get(wanted, made), c10d, as_server[made], reason);
        if (rv != 0) {
            return rv;
        }
        succeeded = !attempt_fails(line, made);
        made++;
    }
    if (made != json_array_size(wanted)) {
        return DIFFER(reason, "%zu attempts, wanted %zu", made, json_array_size(wanted));
    }
    const char *error = vectors_text(line, "error");
    bool wants_error = error != NULL && strcmp(error, "connection") == 0;
    return succeeded != wants_error ? 0 : DIFFER(reason, "succeeded: %d", succeeded);
}

static int check_c10d(const json_t *line, struct reason *reason)
{
    const char *endpoint = vectors_text(line, "endpoint");
    struct mst_params *params = new_params(endpoint == NULL ? "" : endpoint);
    if (params == NULL || set_options(params, json_object_get(line, "options")) != 0) {
        mst_params_free(params);
        return DIFFER(reason, "the parameters cannot be made");
    }
    struct mst__c10d c10d;
    struct mst_err err = {0};
    int code = mst__c10d_read(params, &c10d, &err);
    const char *error = vectors_text(line, "error");
    int rv = 0;
    if (error != NULL && strcmp(error, "value") == 0) {
        rv = check_refused(code, &err, "", reason);
    } else if (code != 0) {
        rv = DIFFER(reason, "refused: %s", err.msg);
    } else {
        rv = compare_attempts(line, &c10d, reason);
    }
    mst_params_free(params);
    return rv;
}

int vectors_endpoint_line(const json_t *line, char *why, size_t why_size)
{
    static const struct {
        const char *kind;
        int (*check)(const json_t *line, struct reason *reason);
    } kinds[] = {
        {"endpoint", check_endpoint}, {"config", check_config}, {"bool", check_bool},
        {"int", check_int},           {"params", check_params}, {"handler", check_handler},
        {"c10d", check_c10d},
    };
    struct reason reason = {.why = why, .size = why_size};
    const char *kind = vectors_text(line, "kind");
    for (size_t i = 0; kind != NULL && i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kind, kinds[i].kind) == 0) {
            return kinds[i].check(line, &reason);
        }
    }
    return DIFFER(&reason, "unknown kind '%s'", kind == NULL ? "" : kind);
}
