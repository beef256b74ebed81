/* handler/settings.c - options to settings. All durations are converted before the first one is
 * range-checked, and both come before run id and limits: of several mistakes the peers and we
 * report the same one. Unlike the peers we refuse unknown options and a keep-alive interval of
 * 0, which would keep a processor busy or declare every node dead. */
#include "handler/settings.h"

#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/unicode.h"
#include "handler/builtin.h"

#define C10D_PORT_DEFAULT 29400
#define DEFAULT_READ_MS 60000
#define GIVE_WAY_MS 500 /* a server that starts together with its nodes listens by then */
#define DEFAULT_LINGER_MS (24 * 3600 * INT64_C(1000))
#define DEFAULT_SKEW_MS 60000
#define DEFAULT_INTERVAL_MS 5000
#define DEFAULT_ATTEMPTS 3

/* The last one chooses a server implementation of the peers; it has no effect here. */
static const char *const c10d_options[] = {MST_DYNAMIC_OPTIONS, "store_type", "serve",
                                           "is_host",           "linger",     "use_libuv"};
const struct mst__known mst__c10d_known = MST_KNOWN(c10d_options);

static int out_of_range(const char *key, const char *rule, struct mst_err *reterr)
{
    return mst__fail(reterr, MST_EINVAL, 0, "option '%s' must be %s", key, rule);
}

/* Milliseconds to microseconds; a time out of range is refused, not cut off. */
static int to_us(const char *key, int64_t ms, int64_t *ret_us, struct mst_err *reterr)
{
    if (__builtin_mul_overflow(ms, 1000, ret_us)) {
        return out_of_range(key, "less than 292,000 years", reterr);
    }
    return 0;
}

static int read_timeouts(const struct mst_params *params,
                         struct mst__settings *settings,
                         struct mst_err *reterr)
{
    const struct {
        const char *key;
        int64_t default_ms;
        int64_t *us;
    } timeouts[] = {
        {"join_timeout", 600000, &settings->join_us},
        {"last_call_timeout", 30000, &settings->last_call_us},
        {"close_timeout", 30000, &settings->close_us},
        {"heartbeat_timeout", 5000, &settings->heartbeat_us},
    };
    size_t count = sizeof timeouts / sizeof timeouts[0];
    int rv = 0;
    for (size_t i = 0; i < count && rv == 0; i++) {
        int64_t ms = 0;
        rv = mst_params_duration_ms(params, timeouts[i].key, timeouts[i].default_ms, &ms, reterr);
        if (rv == 0) {
            rv = to_us(timeouts[i].key, ms, timeouts[i].us, reterr);
        }
    }
    for (size_t i = 0; i < count && rv == 0; i++) {
        if (*timeouts[i].us <= 0) {
            rv = out_of_range(timeouts[i].key, "longer than 0", reterr);
        }
    }
    return rv;
}

static int read_keep_alive(const struct mst_params *params,
                           struct mst__settings *settings,
                           struct mst_err *reterr)
{
    int64_t interval_ms = 0;
    int rv = mst_params_duration_ms(params, "keep_alive_interval", DEFAULT_INTERVAL_MS,
                                    &interval_ms, reterr);
    if (rv == 0) {
        rv = to_us("keep_alive_interval", interval_ms, &settings->keep_alive_interval_us, reterr);
    }
    if (rv == 0) {
        rv = mst_params_int(params, "keep_alive_max_attempt", DEFAULT_ATTEMPTS,
                            &settings->keep_alive_max_attempt, reterr);
    }
    if (rv == 0 && interval_ms <= 0) {
        rv = out_of_range("keep_alive_interval", "longer than 0", reterr);
    }
    if (rv == 0 && settings->keep_alive_max_attempt <= 0) {
        rv = out_of_range("keep_alive_max_attempt", "1 or more", reterr);
    }
    return rv;
}

static int read_dialect(const struct mst_params *params,
                        enum mst__record_dialect *ret_dialect,
                        struct mst_err *reterr)
{
    const char *text = mst_params_text(params, "state_dialect", "D4");
    if (strlen(text) != 2 || (text[0] != 'D' && text[0] != 'd') || text[1] < '1' || text[1] > '4') {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "option 'state_dialect': '%.40s' is not D1 (torch 1.9 to 1.13), D2 (to "
                         "2.2), D3 (to 2.5) or D4 (from 2.6)",
                         text);
    }
    *ret_dialect = (enum mst__record_dialect)(text[1] - '0');
    return 0;
}

int mst__budget_read(const struct mst_params *params,
                     struct mst__budget *ret_budget,
                     struct mst_err *reterr)
{
    int64_t count;
    int64_t window_ms;
    int64_t window_us = 0;
    int rv = mst__params_rate(params, "max_restarts", &count, &window_ms, reterr);
    if (rv == 0 && count >= UINT32_MAX) {
        rv = out_of_range("max_restarts", "less than 4294967295", reterr);
    }
    if (rv == 0) {
        rv = to_us("max_restarts", window_ms, &window_us, reterr);
    }
    if (rv == 0 && count >= 0) {
        *ret_budget = (struct mst__budget){
            .is_limited = true, .restarts_max = (uint32_t)count, .window_us = window_us};
    }
    return rv;
}

/* Options without effect must still have valid values. */
static int check_unused(const struct mst_params *params, struct mst_err *reterr)
{
    int64_t ms;
    bool flag;
    int rv = mst_params_duration_ms(params, "timeout", 0, &ms, reterr);
    return rv != 0 ? rv : mst_params_bool(params, "use_libuv", true, &flag, reterr);
}

/* mst_params_new has checked the limits already; handlers do not rely on that. */
static int check_group(const struct mst_params *params, struct mst_err *reterr)
{
    int64_t nodes_min = mst_params_nodes_min(params);
    int64_t nodes_max = mst_params_nodes_max(params);
    if (mst_params_run_id(params)[0] == '\0') {
        return mst__fail(reterr, MST_EINVAL, 0, "run_id is empty; every job needs one of its own");
    }
    return mst__params_check_nodes(nodes_min, nodes_max, reterr);
}

int mst__dynamic_read(const struct mst_params *params,
                      struct mst__dynamic *ret_dynamic,
                      struct mst_err *reterr)
{
    return mst__dynamic_read_known(params, &mst__c10d_known, ret_dynamic, reterr);
}

int mst__dynamic_read_known(const struct mst_params *params,
                            const struct mst__known *known,
                            struct mst__dynamic *ret_dynamic,
                            struct mst_err *reterr)
{
    struct mst__dynamic dynamic = {
        .settings = {.nodes_min = mst_params_nodes_min(params),
                     .nodes_max = mst_params_nodes_max(params)},
    };
    int64_t skew_ms = 0;
    int rv = mst__params_check_known(params, known, reterr);
    if (rv == 0) {
        rv = read_timeouts(params, &dynamic.settings, reterr);
    }
    if (rv == 0) {
        rv = read_keep_alive(params, &dynamic.settings, reterr);
    }
    if (rv == 0) {
        rv = check_group(params, reterr);
    }
    if (rv == 0) {
        rv = mst_params_duration_ms(params, "clock_skew", DEFAULT_SKEW_MS, &skew_ms, reterr);
    }
    if (rv == 0 && skew_ms < 0) {
        rv = out_of_range("clock_skew", "0 or longer", reterr);
    }
    if (rv == 0) {
        rv = to_us("clock_skew", skew_ms, &dynamic.settings.clock_skew_us, reterr);
    }
    if (rv == 0) {
        rv = mst__budget_read(params, &dynamic.settings.budget, reterr);
    }
    if (rv == 0) {
        rv = read_dialect(params, &dynamic.dialect, reterr);
    }
    if (rv == 0) {
        rv = check_unused(params, reterr);
    }
    if (rv == 0) {
        *ret_dynamic = dynamic;
    }
    return rv;
}

/* --- c10d --- */

static bool is_word(struct mst_bytes text, const char *word)
{
    return text.size == strlen(word) && strncasecmp((const char *)text.data, word, text.size) == 0;
}

/* Whether this node serves: `serve` is our option, `is_host` the peers', which has no third
 * value. */
static int read_serve(const struct mst_params *params,
                      struct mst__c10d *c10d,
                      struct mst_err *reterr)
{
    const char *serve = mst_params_text(params, "serve", NULL);
    c10d->is_host_known = serve != NULL || mst_params_text(params, "is_host", NULL) != NULL;
    int rv = mst_params_bool(params, "is_host", false, &c10d->is_host, reterr);
    if (rv != 0 || serve == NULL) {
        return rv;
    }
    struct mst_bytes word = mst__unicode_trim(mst_bytes_str(serve));
    c10d->is_host_known = !is_word(word, "auto");
    c10d->is_host = is_word(word, "always");
    if (c10d->is_host_known && !c10d->is_host && !is_word(word, "never")) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "option 'serve': '%.60s' is not auto, never or always", serve);
    }
    return 0;
}

static int read_tcp(const struct mst_params *params, struct mst__c10d *c10d, struct mst_err *reterr)
{
    const char *endpoint = mst_params_endpoint(params);
    int rv = mst__endpoint_parse_server(mst_bytes_str(endpoint), C10D_PORT_DEFAULT, &c10d->endpoint,
                                        reterr);
    if (rv != 0) {
        return mst__err_wrap(reterr, rv, "endpoint '%.60s'", endpoint);
    }
    rv = read_serve(params, c10d, reterr);
    if (rv == 0) {
        rv = mst_params_duration_ms(params, "read_timeout", DEFAULT_READ_MS, &c10d->read_timeout_ms,
                                    reterr);
    }
    if (rv == 0 && c10d->read_timeout_ms <= 0) {
        rv = out_of_range("read_timeout", "longer than 0", reterr);
    }
    if (rv == 0) {
        rv = mst_params_duration_ms(params, "linger", DEFAULT_LINGER_MS, &c10d->linger_ms, reterr);
    }
    if (rv == 0 && c10d->linger_ms < 0) {
        rv = out_of_range("linger", "0 or longer", reterr);
    }
    return rv;
}

int mst__c10d_read(const struct mst_params *params,
                   struct mst__c10d *ret_c10d,
                   struct mst_err *reterr)
{
    const char *text = mst_params_text(params, "store_type", "tcp");
    struct mst_bytes type = mst__unicode_trim(mst_bytes_str(text));
    struct mst__c10d c10d = {.read_timeout_ms = DEFAULT_READ_MS, .give_way_ms = GIVE_WAY_MS};
    int rv = 0;
    if (is_word(type, "file")) {
        c10d.is_file = true;
        c10d.path = mst_params_endpoint(params);
    } else if (is_word(type, "tcp")) {
        rv = read_tcp(params, &c10d, reterr);
    } else {
        rv = mst__fail(reterr, MST_EINVAL, 0,
                       "option 'store_type': '%.60s' is neither tcp nor file", text);
    }
    if (rv == 0) {
        *ret_c10d = c10d;
    }
    return rv;
}

size_t mst__c10d_attempts(const struct mst__c10d *c10d,
                          bool host_is_me,
                          bool ret_as_server[MST_C10D_ATTEMPTS_MAX])
{
    ret_as_server[0] = c10d->is_host_known ? c10d->is_host : host_is_me;
    ret_as_server[1] = false;
    return !c10d->is_host_known && host_is_me ? 2 : 1;
}
