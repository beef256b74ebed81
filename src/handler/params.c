/* handler/params.c - the parameters of a rendezvous, and options as text, boolean, whole number
 * and duration. Types follow the peers, so that a `--rdzv-conf` means the same here and there;
 * only durations with a unit or a fraction are ours. */
#include "handler/params.h"

#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/number.h"
#include "base/require.h"
#include "base/unicode.h"

/* --- options --- */

static void options_close(struct mst__param_options *options)
{
    for (size_t i = 0; i < options->count; i++) {
        mst__free(options->list[i].key);
        mst__free(options->list[i].value);
    }
    mst__free(options->list);
    *options = (struct mst__param_options){0};
}

static struct mst__param_option *options_find(const struct mst__param_options *options,
                                              struct mst_bytes key)
{
    for (size_t i = 0; i < options->count; i++) {
        struct mst__param_option *option = &options->list[i];
        if (mst__bytes_equal(mst_bytes_of(option->key, option->key_size), key)) {
            return option;
        }
    }
    return NULL;
}

/* Make room for one more. 0, MST_ELIMIT or MST_ENOMEM. */
static int options_grow(struct mst__param_options *options)
{
    if (options->count < options->capacity) {
        return 0;
    }
    if (options->count == MST_OPTIONS_MAX) {
        return MST_ELIMIT;
    }
    size_t capacity = options->capacity == 0 ? 8 : options->capacity * 2;
    struct mst__param_option *list = mst__realloc(options->list, capacity * sizeof *list);
    if (list == NULL) {
        return MST_ENOMEM;
    }
    options->list = list;
    options->capacity = capacity;
    return 0;
}

/* Both are copied; after a failure nothing has changed. */
static int options_set(struct mst__param_options *options,
                       struct mst_bytes key,
                       struct mst_bytes value)
{
    char *new_value = mst__memdup(value.data, value.size);
    if (new_value == NULL) {
        return MST_ENOMEM;
    }
    struct mst__param_option *option = options_find(options, key);
    if (option != NULL) {
        mst__free(option->value);
        option->value = new_value;
        option->value_size = value.size;
        return 0;
    }
    int rv = options_grow(options);
    char *new_key = rv == 0 ? mst__memdup(key.data, key.size) : NULL;
    if (new_key == NULL) {
        mst__free(new_value);
        return rv == 0 ? MST_ENOMEM : rv;
    }
    options->list[options->count++] = (struct mst__param_option){
        .key = new_key,
        .key_size = key.size,
        .value = new_value,
        .value_size = value.size,
    };
    return 0;
}

/* Add all of @from to @to, which is released on failure. */
static int options_copy(struct mst__param_options *to, const struct mst__param_options *from)
{
    for (size_t i = 0; i < from->count; i++) {
        const struct mst__param_option *option = &from->list[i];
        int rv = options_set(to, mst_bytes_of(option->key, option->key_size),
                             mst_bytes_of(option->value, option->value_size));
        if (rv != 0) {
            options_close(to);
            return rv;
        }
    }
    return 0;
}

/* The message for the error @code of options_set about @key. */
static int options_fail(int code, struct mst_bytes key, struct mst_err *reterr)
{
    if (code == MST_ELIMIT) {
        return mst__fail(reterr, code, 0, "option '%.*s': the limit of %d options is reached",
                         (int)(key.size > 60 ? 60 : key.size), (const char *)key.data,
                         MST_OPTIONS_MAX);
    }
    return mst__fail(reterr, code, 0, "option '%.*s'", (int)(key.size > 60 ? 60 : key.size),
                     (const char *)key.data);
}

/* --- making one --- */

int mst__params_check_nodes(int64_t nodes_min, int64_t nodes_max, struct mst_err *reterr)
{
    if (nodes_min < 1) {
        return mst__fail(reterr, MST_EINVAL, 0, "nodes_min is %" PRId64 ", it must be 1 or more",
                         nodes_min);
    }
    if (nodes_max < nodes_min) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "nodes_max is %" PRId64 ", it must not be less than nodes_min, %" PRId64,
                         nodes_max, nodes_min);
    }
    return 0;
}

/* Replace the text @field by a copy of @text, which may be NULL. After a failure nothing has
 * changed. */
static int replace_text(char **field, const char *text, const char *what, struct mst_err *reterr)
{
    char *copy = text == NULL ? NULL : mst__strdup(text);
    if (text != NULL && copy == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "%s", what);
    }
    mst__free(*field);
    *field = copy;
    return 0;
}

int mst_params_set_endpoint(struct mst_params *params, const char *endpoint, struct mst_err *reterr)
{
    MST_REQUIRE(params, reterr);
    return replace_text(&params->endpoint, endpoint == NULL ? "" : endpoint, "endpoint", reterr);
}

int mst_params_set_local_addr(struct mst_params *params,
                              const char *local_addr,
                              struct mst_err *reterr)
{
    MST_REQUIRE(params, reterr);
    return replace_text(&params->local_addr, local_addr, "local address", reterr);
}

int mst_params_new(const char *backend,
                   const char *run_id,
                   struct mst_params **ret_params,
                   struct mst_err *reterr)
{
    MST_REQUIRE(backend, reterr);
    MST_REQUIRE(ret_params, reterr);
    if (backend[0] == '\0') {
        return mst__fail(reterr, MST_EINVAL, 0, "backend missing; name one, such as c10d");
    }
    struct mst_params *params = mst__calloc(1, sizeof *params);
    if (params == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "parameters");
    }
    int rv = replace_text(&params->backend, backend, "backend", reterr);
    rv = rv == 0 ? replace_text(&params->run_id, run_id == NULL ? "" : run_id, "run id", reterr)
                 : rv;
    rv = rv == 0 ? mst_params_set_endpoint(params, NULL, reterr) : rv;
    if (rv != 0) {
        mst_params_free(params);
        return rv;
    }
    *ret_params = params;
    return 0;
}

void mst_params_free(struct mst_params *params)
{
    if (params == NULL) {
        return;
    }
    options_close(&params->options);
    mst__free(params->backend);
    mst__free(params->endpoint);
    mst__free(params->run_id);
    mst__free(params->local_addr);
    mst__free(params);
}

int mst__params_copy(const struct mst_params *params,
                     struct mst_params **ret_params,
                     struct mst_err *reterr)
{
    struct mst_params *copy = NULL;
    int rv = mst_params_new(params->backend, params->run_id, &copy, reterr);
    rv = rv == 0 ? mst_params_set_endpoint(copy, params->endpoint, reterr) : rv;
    rv = rv == 0 ? mst_params_set_local_addr(copy, params->local_addr, reterr) : rv;
    if (rv == 0 && (rv = options_copy(&copy->options, &params->options)) != 0) {
        rv = mst__fail(reterr, rv, 0, "parameters");
    }
    if (rv != 0) {
        mst_params_free(copy);
        return rv;
    }
    copy->nodes_min = params->nodes_min;
    copy->nodes_max = params->nodes_max;
    copy->ignores_unknown = params->ignores_unknown;
    copy->on_event = params->on_event;
    copy->on_event_arg = params->on_event_arg;
    copy->log = params->log;
    *ret_params = copy;
    return 0;
}

void mst_params_ignore_unknown(struct mst_params *params, bool ignores)
{
    if (params != NULL) {
        params->ignores_unknown = ignores;
    }
}

void mst_params_on_event(struct mst_params *params, mst_event_fn fn, void *arg)
{
    if (params != NULL) {
        params->on_event = fn;
        params->on_event_arg = arg;
    }
}

void mst_params_log(struct mst_params *params, const struct mst_log *log)
{
    static const struct mst_log none = {.fn = NULL};
    if (params != NULL) {
        params->log = log == NULL ? none : *log;
    }
}

const char *mst_params_backend(const struct mst_params *params)
{
    return params == NULL ? "" : params->backend;
}

const char *mst_params_endpoint(const struct mst_params *params)
{
    return params == NULL ? "" : params->endpoint;
}

const char *mst_params_run_id(const struct mst_params *params)
{
    return params == NULL ? "" : params->run_id;
}

const char *mst_params_local_addr(const struct mst_params *params)
{
    return params == NULL ? NULL : params->local_addr;
}

int64_t mst_params_nodes_min(const struct mst_params *params)
{
    return params == NULL ? 0 : params->nodes_min;
}

int64_t mst_params_nodes_max(const struct mst_params *params)
{
    return params == NULL ? 0 : params->nodes_max;
}

int mst_params_set_nodes(struct mst_params *params,
                         int64_t nodes_min,
                         int64_t nodes_max,
                         struct mst_err *reterr)
{
    MST_REQUIRE(params, reterr);
    int rv = mst__params_check_nodes(nodes_min, nodes_max, reterr);
    if (rv == 0) {
        params->nodes_min = nodes_min;
        params->nodes_max = nodes_max;
    }
    return rv;
}

/* --- setting options --- */

int mst_params_set(struct mst_params *params,
                   const char *key,
                   const char *value,
                   struct mst_err *reterr)
{
    MST_REQUIRE(params, reterr);
    MST_REQUIRE(key, reterr);
    MST_REQUIRE(value, reterr);
    if (key[0] == '\0') {
        return mst__fail(reterr, MST_EINVAL, 0, "an option needs a name");
    }
    int rv = options_set(&params->options, mst_bytes_str(key), mst_bytes_str(value));
    return rv == 0 ? 0 : options_fail(rv, mst_bytes_str(key), reterr);
}

void mst_params_unset(struct mst_params *params, const char *key)
{
    if (params == NULL || key == NULL) {
        return;
    }
    struct mst__param_options *options = &params->options;
    struct mst__param_option *option = options_find(options, mst_bytes_str(key));
    if (option == NULL) {
        return;
    }
    mst__free(option->key);
    mst__free(option->value);
    size_t behind = options->count - (size_t)(option - options->list) - 1;
    memmove(option, option + 1, behind * sizeof *option);
    options->count--;
}

/* Take `part` of `part,part` from the front of @rest. */
static struct mst_bytes next_part(struct mst_bytes *rest, char separator, bool *ret_found)
{
    const uint8_t *at = rest->size == 0 ? NULL : memchr(rest->data, separator, rest->size);
    *ret_found = at != NULL;
    struct mst_bytes part =
        mst_bytes_of(rest->data, at == NULL ? rest->size : (size_t)(at - rest->data));
    *rest = mst__bytes_skip(*rest, part.size + (at == NULL ? 0 : 1));
    return part;
}

/* Set the option of @part, `key=value`. */
static int parse_part(struct mst__param_options *options,
                      struct mst_bytes part,
                      struct mst_err *reterr)
{
    struct mst_bytes rest = part;
    bool has_value;
    struct mst_bytes key = mst__unicode_trim(next_part(&rest, '=', &has_value));
    struct mst_bytes value = mst__unicode_trim(rest);
    if (key.size == 0) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "format of '%.*s': no key; options are written key=value,key=value",
                         (int)(part.size > 60 ? 60 : part.size), (const char *)part.data);
    }
    if (!has_value || value.size == 0) {
        return mst__fail(reterr, MST_EINVAL, 0, "option '%.*s' has no value; write %.*s=VALUE",
                         (int)(key.size > 60 ? 60 : key.size), (const char *)key.data,
                         (int)(key.size > 60 ? 60 : key.size), (const char *)key.data);
    }
    int rv = options_set(options, key, value);
    return rv == 0 ? 0 : options_fail(rv, key, reterr);
}

int mst__params_parse(struct mst_params *params, struct mst_bytes text, struct mst_err *reterr)
{
    struct mst_bytes rest = mst__unicode_trim(text);
    if (rest.size == 0) {
        return 0;
    }
    /* Into a copy, so that an error sets nothing. */
    struct mst__param_options options = {0};
    int rv = options_copy(&options, &params->options);
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "options");
    }
    bool more = true;
    while (rv == 0 && more) {
        rv = parse_part(&options, next_part(&rest, ',', &more), reterr);
    }
    if (rv != 0) {
        options_close(&options);
        return rv;
    }
    options_close(&params->options);
    params->options = options;
    return 0;
}

int mst_params_parse(struct mst_params *params, const char *text, struct mst_err *reterr)
{
    MST_REQUIRE(params, reterr);
    MST_REQUIRE(text, reterr);
    return mst__params_parse(params, mst_bytes_str(text), reterr);
}

/* --- reading options --- */

const char *mst_params_text(const struct mst_params *params, const char *key, const char *fallback)
{
    if (params == NULL || key == NULL) {
        return fallback;
    }
    const struct mst__param_option *option = options_find(&params->options, mst_bytes_str(key));
    return option == NULL ? fallback : option->value;
}

static char lower(uint8_t c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static bool is_one_of(const struct mst__param_option *option,
                      const char *const *words,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        while (at < option->value_size && words[i][at] != '\0' &&
               lower((uint8_t)option->value[at]) == words[i][at]) {
            at++;
        }
        if (at == option->value_size && words[i][at] == '\0') {
            return true;
        }
    }
    return false;
}

int mst_params_bool(const struct mst_params *params,
                    const char *key,
                    bool fallback,
                    bool *ret,
                    struct mst_err *reterr)
{
    MST_REQUIRE(params, reterr);
    MST_REQUIRE(key, reterr);
    MST_REQUIRE(ret, reterr);
    static const char *const yes[] = {"1", "true", "t", "yes", "y"};
    static const char *const no[] = {"0", "false", "f", "no", "n"};
    const struct mst__param_option *option = options_find(&params->options, mst_bytes_str(key));
    if (option == NULL) {
        *ret = fallback;
    } else if (is_one_of(option, yes, sizeof yes / sizeof yes[0])) {
        *ret = true;
    } else if (is_one_of(option, no, sizeof no / sizeof no[0])) {
        *ret = false;
    } else {
        return mst__fail(reterr, MST_EINVAL, 0, "option '%.60s': '%.60s' is neither true nor false",
                         key, option->value);
    }
    return 0;
}

/* The digits of a whole number, with single underscores between them. The sum is kept negative,
 * because that range is larger by one. */
static bool read_digits(struct mst_bytes text, int64_t *ret_negative, bool *ret_fits)
{
    bool after_digit = false;
    *ret_negative = 0;
    *ret_fits = true;
    while (text.size > 0) {
        uint32_t c = 0;
        size_t size = mst__unicode_next(text, &c);
        int digit = size == 0 ? -1 : mst__unicode_digit(c);
        if (digit < 0 && !(after_digit && c == '_' && text.size > 1)) {
            return false;
        }
        if (digit >= 0 && (__builtin_mul_overflow(*ret_negative, 10, ret_negative) ||
                           __builtin_sub_overflow(*ret_negative, digit, ret_negative))) {
            *ret_fits = false;
            *ret_negative = 0;
        }
        after_digit = digit >= 0;
        text = mst__bytes_skip(text, size);
    }
    return after_digit;
}

enum int_kind { INT_GOOD, INT_BAD, INT_TOO_LARGE };

/* Parse a whole number as Python does: blanks around it, a sign, leading zeros, underscores
 * between digits, digits of any script. 1C to 1F are blanks elsewhere, but not here. */
static enum int_kind read_int(struct mst_bytes text, int64_t *ret)
{
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] >= 0x1c && text.data[i] <= 0x1f) {
            return INT_BAD;
        }
    }
    text = mst__unicode_trim(text);
    bool is_negative = text.size > 0 && text.data[0] == '-';
    if (text.size > 0 && (is_negative || text.data[0] == '+')) {
        text = mst__bytes_skip(text, 1);
    }
    int64_t negative;
    bool fits;
    if (!read_digits(text, &negative, &fits)) {
        return INT_BAD;
    }
    if (!fits || (!is_negative && negative == INT64_MIN)) {
        return INT_TOO_LARGE;
    }
    *ret = is_negative ? negative : -negative;
    return INT_GOOD;
}

static int int_too_large(const char *key, const char *value, struct mst_err *reterr)
{
    return mst__fail(reterr, MST_EINVAL, 0, "option '%.60s': %.60s is too large", key, value);
}

int mst_params_int(const struct mst_params *params,
                   const char *key,
                   int64_t fallback,
                   int64_t *ret,
                   struct mst_err *reterr)
{
    MST_REQUIRE(params, reterr);
    MST_REQUIRE(key, reterr);
    MST_REQUIRE(ret, reterr);
    const struct mst__param_option *option = options_find(&params->options, mst_bytes_str(key));
    if (option == NULL) {
        *ret = fallback;
        return 0;
    }
    int64_t number = 0;
    switch (read_int(mst_bytes_of(option->value, option->value_size), &number)) {
        case INT_GOOD:
            *ret = number;
            return 0;
        case INT_TOO_LARGE:
            return int_too_large(key, option->value, reterr);
        case INT_BAD:
            break;
    }
    return mst__fail(reterr, MST_EINVAL, 0, "option '%.60s': '%.60s' is not a whole number", key,
                     option->value);
}

/* Cut the unit off @text and return it in milliseconds; 0 if no unit follows a digit. */
static int64_t take_unit(struct mst_bytes *text)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        size_t size = strlen(units[i].name);
        if (text->size > size && memcmp(text->data + text->size - size, units[i].name, size) == 0 &&
            mst__unicode_digit(text->data[text->size - size - 1]) >= 0) {
            text->size -= size;
            return units[i].ms;
        }
    }
    return 0;
}

/* @text, the value of @option or a part of it, as a duration. */
static int read_duration(const struct mst__param_option *option,
                         struct mst_bytes text,
                         int64_t *ret_ms,
                         struct mst_err *reterr)
{
    int64_t number = 0;
    int64_t unit_ms = 1000;
    enum int_kind kind = read_int(text, &number);
    if (kind == INT_BAD) {
        text = mst__unicode_trim(text);
        int64_t taken_ms = take_unit(&text);
        unit_ms = taken_ms == 0 ? unit_ms : taken_ms;
        kind = taken_ms == 0 ? INT_BAD : read_int(text, &number);
    }
    if (kind == INT_BAD && mst__number_parse_scaled(text, unit_ms, ret_ms)) {
        return 0;
    }
    if (kind == INT_BAD) {
        return mst__fail(
            reterr, MST_EINVAL, 0,
            "option '%.60s': '%.60s' is not a duration; write seconds, or a unit as in "
            "250ms, 1.5s, 5m, 2h",
            option->key, option->value);
    }
    if (kind == INT_TOO_LARGE || __builtin_mul_overflow(number, unit_ms, &number)) {
        return int_too_large(option->key, option->value, reterr);
    }
    *ret_ms = number;
    return 0;
}

int mst_params_duration_ms(const struct mst_params *params,
                           const char *key,
                           int64_t fallback_ms,
                           int64_t *ret_ms,
                           struct mst_err *reterr)
{
    MST_REQUIRE(params, reterr);
    MST_REQUIRE(key, reterr);
    MST_REQUIRE(ret_ms, reterr);
    const struct mst__param_option *option = options_find(&params->options, mst_bytes_str(key));
    if (option == NULL) {
        *ret_ms = fallback_ms;
        return 0;
    }
    return read_duration(option, mst_bytes_of(option->value, option->value_size), ret_ms, reterr);
}

int mst__params_rate(const struct mst_params *params,
                     const char *key,
                     int64_t *ret_count,
                     int64_t *ret_window_ms,
                     struct mst_err *reterr)
{
    const struct mst__param_option *option = options_find(&params->options, mst_bytes_str(key));
    *ret_count = -1;
    *ret_window_ms = 0;
    if (option == NULL) {
        return 0;
    }
    struct mst_bytes count = mst_bytes_of(option->value, option->value_size);
    const uint8_t *slash = count.size == 0 ? NULL : memchr(count.data, '/', count.size);
    struct mst_bytes window = {.size = 0};
    if (slash != NULL) {
        window = mst__bytes_skip(count, (size_t)(slash - count.data) + 1);
        count.size = (size_t)(slash - count.data);
    }
    int64_t number = 0;
    int64_t window_ms = 0;
    int rv = slash == NULL ? 0 : read_duration(option, window, &window_ms, reterr);
    if (rv != 0) {
        return rv;
    }
    if (read_int(count, &number) != INT_GOOD || number < 0 || (slash != NULL && window_ms <= 0)) {
        return mst__fail(
            reterr, MST_EINVAL, 0,
            "option '%.60s': '%.60s' is not a number such as 3, or a rate such as 3/1h", key,
            option->value);
    }
    *ret_count = number;
    *ret_window_ms = window_ms;
    return 0;
}

/* Join @words with commas, cut off when @ret_text is full. */
static void join_words(const char *const *words, size_t count, char *ret_text, size_t ret_size)
{
    size_t at = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < count && at < ret_size; i++) {
        int written = snprintf(ret_text + at, ret_size - at, "%s%s", i == 0 ? "" : ", ", words[i]);
        at += written < 0 ? 0 : (size_t)written;
    }
}

int mst__params_check_known(const struct mst_params *params,
                            const struct mst__known *known,
                            struct mst_err *reterr)
{
    for (size_t i = 0; i < params->options.count; i++) {
        const struct mst__param_option *option = &params->options.list[i];
        bool found = false;
        for (size_t k = 0; k < known->count && !found; k++) {
            found = mst__bytes_equal(mst_bytes_of(option->key, option->key_size),
                                     mst_bytes_str(known->names[k]));
        }
        if (found) {
            continue;
        }
        if (params->ignores_unknown) {
            char key[MST_LOG_QUOTE_SIZE];
            mst__log(&params->log, MST_LOG_WARN, "params.ignored", "backend=%s option=%s",
                     params->backend,
                     mst__log_quote(mst_bytes_of(option->key, option->key_size), key));
            continue;
        }
        const char *nearest = mst__nearest(option->key, known->names, known->count);
        if (nearest != NULL) {
            return mst__fail(reterr, MST_EINVAL, 0, "unknown option '%.60s'; did you mean '%s'?",
                             option->key, nearest);
        }
        char words[sizeof reterr->msg]; /* a longer list is cut off, and ends with an ellipsis */
        join_words(known->names, known->count, words, sizeof words);
        return mst__fail(reterr, MST_EINVAL, 0, "unknown option '%.40s'; known are: %s",
                         option->key, words);
    }
    return 0;
}
