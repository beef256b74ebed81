/* store/etcd.c - the common part of the two stores in an etcd. */
#include "store/etcd.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/until.h"
#include "etcd/http.h"
#include "etcd/secret.h"

/* Pauses between attempts, after the HTTP client has tried all endpoints. */
#define ETCD_AGAIN_MS_FIRST 20
#define ETCD_AGAIN_MS_MAX 500

/* Pauses after a lost race, so that the others can finish. */
#define RACE_MS_FIRST 2
#define RACE_MS_MAX 100

static_assert(MST_URL_ENDPOINTS_MAX <= MST_HTTP_ENDPOINTS_MAX,
              "all endpoints of a URL must fit into the client");

/* --- opening by URL --- */

int mst__etcd_open(const struct mst__url *url,
                   const struct mst_store_options *options,
                   struct mst__until until,
                   struct mst__storage **ret_storage,
                   struct mst_err *reterr)
{
    const struct mst__url_etcd *etcd = &url->etcd;
    char *password = NULL;
    if (etcd->user != NULL) {
        int rv = mst__secret_password(etcd->user, etcd->password_path, &password, reterr);
        if (rv != 0) {
            return rv;
        }
    }
    struct mst__http_options http = {
        .endpoints = etcd->endpoints,
        .endpoint_count = etcd->endpoint_count,
        .is_tls = etcd->is_tls,
        .ca_path = etcd->ca_path,
        .cert_path = etcd->cert_path,
        .key_path = etcd->key_path,
        .server_name = etcd->server_name,
        .user = etcd->user,
        .password = password,
        .log = options->log,
    };
    int rv =
        url->scheme == MST_URL_ETCD2
            ? mst__etcd2_open(&http, url->path, options, until, ret_storage, reterr)
            : mst__etcd3_open(&http, url->path, etcd->lease_s, options, until, ret_storage, reterr);
    mst__secret_free(password);
    return rv;
}

/* Append @between and the encoded @part to @text, which is released; NULL stays NULL. */
static char *url_add(char *text, const char *between, const char *part)
{
    char *encoded = text == NULL ? NULL : mst__url_text(between, part);
    size_t size = encoded == NULL ? 0 : strlen(text) + strlen(encoded) + 1;
    char *longer = encoded == NULL ? NULL : mst__malloc(size);
    if (longer != NULL) {
        (void)snprintf(longer, size, "%s%s", text, encoded); /* fits */
    }
    mst__free(encoded);
    mst__free(text);
    return longer;
}

char *mst__etcd_url(const char *scheme, const struct mst__http_options *http, const char *root)
{
    const struct {
        const char *name;
        const char *value;
    } parameters[] = {
        {"tls", http->is_tls ? "1" : NULL}, {"cacert", http->ca_path},
        {"cert", http->cert_path},          {"key", http->key_path},
        {"server_name", http->server_name}, {"user", http->user},
    };
    char *text = mst__url_text(scheme, "://");
    for (size_t i = 0; text != NULL && i < http->endpoint_count; i++) {
        char endpoint[MST_ENDPOINT_TEXT_SIZE];
        text = url_add(text, i == 0 ? "" : ",", "");
        text = url_add(text, mst__endpoint_format(&http->endpoints[i], endpoint), "");
    }
    text = url_add(text, "", root);
    bool is_first = true;
    for (size_t i = 0; i < sizeof parameters / sizeof parameters[0]; i++) {
        if (parameters[i].value != NULL) {
            text = url_add(text, is_first ? "?" : "&", parameters[i].name);
            text = url_add(text, "=", parameters[i].value);
            is_first = false;
        }
    }
    return text;
}

/* --- attempts --- */

void mst__etcd_attempts_init(struct mst__etcd_attempts *attempts,
                             struct mst__until until,
                             atomic_uint_fast64_t *retries)
{
    *attempts = (struct mst__etcd_attempts){.until = until, .retries = retries};
    mst__backoff_init(&attempts->backoff, ETCD_AGAIN_MS_FIRST, ETCD_AGAIN_MS_MAX);
}

bool mst__etcd_again(struct mst__etcd_attempts *attempts, int rv, const struct mst_err *err)
{
    if (rv != MST_ECONN && rv != MST_EUNKNOWN) {
        attempts->is_away = attempts->is_away && rv != 0;
        return false;
    }
    attempts->is_away = rv == MST_ECONN;
    if (err != NULL) {
        attempts->why = *err;
    }
    if (!mst__backoff_pause(&attempts->backoff, attempts->until)) {
        return false;
    }
    atomic_fetch_add(attempts->retries, 1);
    return true;
}

int mst__etcd_read_failed(const struct mst__etcd_attempts *attempts, int rv, struct mst_err *reterr)
{
    if (rv == MST_ETIMEOUT && attempts->is_away) {
        rv = mst__err_pass(reterr, MST_ECONN, &attempts->why);
    }
    if (rv == MST_ECONN && mst__until_is_woken(attempts->until.wake_fd)) {
        return mst__fail(reterr, MST_ECANCELED, 0, "interrupted");
    }
    return rv;
}

int mst__etcd_write_failed(const struct mst__etcd_attempts *attempts,
                           int rv,
                           bool maybe_done,
                           struct mst_err *reterr)
{
    if (!maybe_done) {
        return mst__etcd_read_failed(attempts, rv, reterr);
    }
    return rv == MST_EUNKNOWN
               ? rv
               : mst__err_wrap(reterr, MST_EUNKNOWN, "it may or may not have been done; then");
}

/* --- changes that depend on the current value --- */

static int change_add(const struct mst__command *command,
                      const struct mst_bytes *present,
                      struct mst__buf *value,
                      struct mst__answer *result,
                      enum mst__etcd_change *ret_change)
{
    int64_t number = 0;
    if (present != NULL && !mst__number_parse_prefix(*present, &number)) {
        return MST_ETYPE;
    }
    /* Overflow wraps, as in every other store. */
    number = (int64_t)((uint64_t)number + (uint64_t)command->number);
    result->reply = (struct mst__reply){.kind = MST_REPLY_NUMBER, .number = number};
    char text[MST_NUMBER_SIZE];
    struct mst_bytes sum = mst_bytes_of(text, mst__number_format(number, text));
    /* Adding 0 is a common way to read a counter. */
    bool is_same = present != NULL && mst__bytes_equal(*present, sum);
    *ret_change = is_same ? MST_ETCD_KEEP : MST_ETCD_PUT;
    return mst__buf_append(value, sum);
}

static int change_append(const struct mst__command *command,
                         const struct mst_bytes *present,
                         struct mst__buf *value,
                         struct mst__answer *result,
                         enum mst__etcd_change *ret_change)
{
    result->reply = (struct mst__reply){.kind = MST_REPLY_NONE};
    *ret_change = MST_ETCD_PUT;
    int rv = present == NULL ? 0 : mst__buf_append(value, *present);
    return rv != 0 ? rv : mst__buf_append(value, command->value);
}

static int change_compare_set(const struct mst__command *command,
                              const struct mst_bytes *present,
                              struct mst__buf *value,
                              struct mst__answer *result,
                              enum mst__etcd_change *ret_change)
{
    bool matches = present == NULL ? command->expected.size == 0
                                   : mst__bytes_equal(*present, command->expected);
    result->reply =
        (struct mst__reply){.kind = MST_REPLY_BYTES, .found = matches || present != NULL};
    *ret_change = matches ? MST_ETCD_PUT : MST_ETCD_KEEP;
    if (!matches) {
        return present == NULL ? 0 : mst__answer_take(result, *present);
    }
    int rv = mst__buf_append(value, command->value);
    return rv != 0 ? rv : mst__answer_take(result, command->value);
}

int mst__etcd_change(const struct mst__command *command,
                     const struct mst_bytes *present,
                     struct mst__buf *value,
                     struct mst__answer *result,
                     enum mst__etcd_change *ret_change,
                     struct mst_err *reterr)
{
    mst__buf_clear(value);
    mst__buf_clear(&result->memory);
    int rv = 0;
    switch (command->op) {
        case MST_OP_ADD:
            rv = change_add(command, present, value, result, ret_change);
            break;
        case MST_OP_APPEND:
            rv = change_append(command, present, value, result, ret_change);
            break;
        case MST_OP_COMPARE_SET:
            rv = change_compare_set(command, present, value, result, ret_change);
            break;
        default:
            MST_ASSERT(command->op == MST_OP_DELETE);
            result->reply =
                (struct mst__reply){.kind = MST_REPLY_NUMBER, .number = present == NULL ? 0 : 1};
            *ret_change = present == NULL ? MST_ETCD_KEEP : MST_ETCD_DELETE;
            break;
    }
    return rv == 0 ? 0 : mst__etcd_fail(rv, reterr);
}

/* --- executing a command --- */

/* A command that is being executed. */
struct run {
    const struct mst__etcd_ops *ops;
    void *call;
    const struct mst__command *command;
    struct mst__answer *result;
    struct mst_err *reterr;
};

static struct mst__reply reply_status(uint8_t status)
{
    return (struct mst__reply){.kind = MST_REPLY_STATUS, .status = status};
}

/* ADD, APPEND, COMPARE_SET, DELETE: repeat until no other client has changed the value in
 * between. */
static int run_change(const struct run *run, size_t value_size_max, struct mst__until until)
{
    struct mst__backoff backoff;
    mst__backoff_init(&backoff, RACE_MS_FIRST, RACE_MS_MAX);
    struct mst__buf value;
    mst__buf_init(&value, run->command->op == MST_OP_ADD ? MST_NUMBER_SIZE : value_size_max);
    int rv = run->ops->begin_change(run->call);
    while (rv == 0) {
        bool is_over = false;
        rv = run->ops->try_change(run->call, &value, run->result, &is_over);
        if (is_over) {
            break;
        }
        if (!mst__backoff_pause(&backoff, until)) {
            rv = mst__fail(run->reterr, MST_ETIMEOUT, 0, "others kept changing the value");
        }
    }
    mst__buf_close(&value);
    return rv;
}

static int run_check(const struct run *run)
{
    struct mst__buf missing;
    mst__buf_init(&missing, run->command->items.size + 1);
    int rv = run->ops->find_missing(run->call, &missing);
    run->result->reply =
        reply_status(mst__buf_size(&missing) == 0 ? MST_STATUS_READY : MST_STATUS_NOT_READY);
    mst__buf_close(&missing);
    return rv;
}

static int run_list(const struct run *run)
{
    struct mst__buf *keys = &run->result->memory;
    bool is_list = run->command->op == MST_OP_LIST_KEYS;
    int64_t count = 0;
    int rv = run->ops->list(run->call, is_list ? keys : NULL, &count);
    run->result->reply = (struct mst__reply){
        .kind = is_list ? MST_REPLY_LIST : MST_REPLY_NUMBER,
        .number = count,
        .bytes = mst__buf_bytes(keys),
    };
    return rv;
}

static int run_lacks(const struct run *run)
{
    return mst__fail(run->reterr, MST_ENOTSUP, 0, "an %s store has no %s", run->ops->name,
                     mst__op_name(run->command->op));
}

int mst__etcd_run(const struct mst__etcd_ops *ops,
                  void *call,
                  const struct mst__storage *storage,
                  const struct mst__command *command,
                  const struct mst__etcd_attempts *attempts,
                  struct mst__answer *result,
                  struct mst_err *reterr)
{
    const struct run run = {
        .ops = ops, .call = call, .command = command, .result = result, .reterr = reterr};
    switch (command->op) {
        case MST_OP_SET:
            result->reply = (struct mst__reply){.kind = MST_REPLY_NONE};
            return ops->set(call);
        case MST_OP_GET:
            return ops->get(call, result);
        case MST_OP_ADD:
        case MST_OP_APPEND:
        case MST_OP_COMPARE_SET:
        case MST_OP_DELETE:
            return run_change(&run, storage->options.value_size_max, attempts->until);
        case MST_OP_MULTI_SET:
            result->reply = (struct mst__reply){.kind = MST_REPLY_NONE};
            return ops->multi_set == NULL ? run_lacks(&run) : ops->multi_set(call);
        case MST_OP_MULTI_GET:
            return ops->multi_get == NULL ? run_lacks(&run) : ops->multi_get(call, result);
        case MST_OP_CHECK:
            return run_check(&run);
        case MST_OP_WAIT:
            result->reply = reply_status(MST_STATUS_STOP_WAITING);
            return ops->wait(call);
        case MST_OP_WAIT_CHANGE:
            result->reply = reply_status(MST_STATUS_STOP_WAITING);
            return ops->wait_change(call);
        case MST_OP_NUM_KEYS:
        case MST_OP_LIST_KEYS:
            return run_list(&run);
        default:
            return run_lacks(&run);
    }
}

int mst__etcd_probe(struct mst__storage *storage, struct mst__until until, struct mst_err *reterr)
{
    const struct mst__command command = {.op = MST_OP_GET};
    struct mst__answer ignored = {0};
    mst__buf_init(&ignored.memory, storage->options.value_size_max + 1);
    int rv = storage->ops->execute(storage, &command, until, &ignored, reterr);
    mst__buf_close(&ignored.memory);
    return rv;
}

void mst__etcd_stats(const atomic_uint_fast64_t *retries,
                     const char *where,
                     struct mst_store_stats *stats)
{
    stats->retries = atomic_load(retries);
    (void)snprintf(stats->peer, sizeof stats->peer, "%.120s", where); /* fits */
}
