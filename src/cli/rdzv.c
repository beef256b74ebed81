/* cli/rdzv.c - options to parameters, and reading a record without taking part. */
#include "cli/rdzv.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/base64.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "cli/log.h"
#include "cli/look_etcd.h"
#include "cli/look_job.h"
#include "codec/pickle.h"
#include "handler/host.h"
#include "handler/settings.h"
#include "net/job_client.h"

/* Where the peers keep the record, and what stands there before anybody has joined. */
#define RECORD_KEY "torch.rendezvous."
#define RECORD_NONE "Y2FuaW1hZGFt"

#define NODE_SIZE 320 /* the name of a node in a record, as it is shown */

/* How long whoever has a port may take to say what it is. */
#define TAKEN_MS 1000

/* --- parameters --- */

bool mst__rdzv_nodes(const char *text, int64_t *ret_min, int64_t *ret_max)
{
    size_t length = strcspn(text, ":");
    if (!mst__number_parse(mst_bytes_of(text, length), INT64_MIN, INT64_MAX, ret_min)) {
        return false;
    }
    *ret_max = *ret_min;
    return text[length] == '\0' ||
           mst__number_parse(mst_bytes_str(text + length + 1), INT64_MIN, INT64_MAX, ret_max);
}

/* --- errors --- */

void mst__rdzv_advise(const struct mst_err *err, const struct mst__endpoint *endpoint)
{
    if (err->code != MST_ECONN || !mst__err_is_errno(err, ECONNREFUSED)) {
        return;
    }
    char text[MST_ENDPOINT_TEXT_SIZE];
    bool is_here = mst__host_is_loopback(endpoint->host);
    mst__cli_say("muster: nobody serves at %s; start a server%s%s with: muster serve%s --port %d",
                 mst__endpoint_format(endpoint, text), is_here ? "" : " on ",
                 is_here ? "" : endpoint->host, is_here ? "" : " --host '*'", endpoint->port);
}

void mst__rdzv_advise_taken(const struct mst_err *err, const char *host, int64_t port)
{
    if (!mst__err_is_errno(err, EADDRINUSE) || port == 0) {
        return;
    }
    struct mst__endpoint endpoint = {.port = (uint16_t)port};
    bool is_any = strcmp(host, "*") == 0 || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
    (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", is_any ? "localhost" : host);
    const struct mst__job_message question = {.type = MST_JOB_STATUS,
                                              .u.close.run_id = mst_bytes_str("muster")};
    struct mst__job_message answer;
    struct mst__job_client *client = NULL;
    int rv =
        mst__job_client_ask(&endpoint, &question, mst__until_in(TAKEN_MS), &client, &answer, NULL);
    mst__job_client_close(client);
    if (rv == 0 || rv == MST_ENOTFOUND || rv == MST_EINVAL) {
        mst__cli_say("muster: port %d belongs to another muster: a `muster serve`, or a node of "
                     "`muster join` that serves; start the server before its nodes, or join with "
                     "--serve never",
                     endpoint.port);
    }
}

/* Replace every @from in the message by @to, as far as that fits. */
static void replace_words(struct mst_err *err, const char *from, const char *to)
{
    size_t from_size = strlen(from);
    struct mst_bytes with = mst_bytes_str(to);
    char *at = err->msg;
    while ((at = strstr(at, from)) != NULL) {
        size_t rest_size = strlen(at + from_size) + 1;
        if (with.size + rest_size > sizeof err->msg - (size_t)(at - err->msg)) {
            return;
        }
        memmove(at + with.size, at + from_size, rest_size);
        memcpy(at, with.data, with.size);
        at += with.size;
    }
}

int mst__rdzv_fail(const struct mst__rdzv *rdzv,
                   const struct mst_params *params,
                   const struct mst_err *err)
{
    /* The library's names, and what they are called here. */
    static const char *const words[][2] = {
        {"nodes_min", "MIN of --nnodes"},
        {"nodes_max", "MAX of --nnodes"},
        {"run_id", "--rdzv-id"},
        {"option '", "--rdzv-conf option '"},
    };
    struct mst_err told = *err;
    bool is_url = mst__rdzv_is_url(rdzv);
    for (size_t i = 0; i < sizeof words / sizeof words[0] && err->code == MST_EINVAL && !is_url;
         i++) {
        replace_words(&told, words[i][0], words[i][1]);
    }
    int exit_code = mst__cli_fail(&told);
    const char *backend = params == NULL ? "" : mst_params_backend(params);
    struct mst__c10d place;
    if ((strcmp(backend, "muster") == 0 || strcmp(backend, "c10d") == 0) &&
        mst__c10d_read(params, &place, NULL) == 0 && !place.is_file) {
        mst__rdzv_advise(err, &place.endpoint);
    }
    return exit_code;
}

const char *mst__rdzv_backend(const struct mst__rdzv *rdzv)
{
    return rdzv->backend == NULL ? "muster" : rdzv->backend;
}

bool mst__rdzv_has_authority(const char *backend)
{
    return strcmp(backend, "muster") == 0 || strcmp(backend, "etcd-v3") == 0;
}

bool mst__rdzv_is_url(const struct mst__rdzv *rdzv)
{
    return strstr(rdzv->endpoint, "://") != NULL;
}

/* What the URL says, and options besides it: limits replace the URL's, but a job and a backend that
 * are not the URL's are a mistake. */
static int params_from_url(const struct mst__rdzv *rdzv,
                           int64_t nodes_min,
                           int64_t nodes_max,
                           struct mst_params **ret_params,
                           struct mst_err *reterr)
{
    struct mst_params *params = NULL;
    int rv = mst_params_from_url(rdzv->endpoint, &params, reterr);
    if (rv != 0) {
        return rv;
    }
    if (rdzv->run_id != NULL && strcmp(rdzv->run_id, mst_params_run_id(params)) != 0) {
        rv = mst__fail(reterr, MST_EINVAL, 0, "--rdzv-id is '%.40s' and '%.40s' in the endpoint",
                       rdzv->run_id, mst_params_run_id(params));
    } else if (rdzv->backend != NULL && strcmp(rdzv->backend, mst_params_backend(params)) != 0) {
        rv = mst__fail(reterr, MST_EINVAL, 0,
                       "--rdzv-backend is '%.40s' and '%.40s' in the endpoint", rdzv->backend,
                       mst_params_backend(params));
    } else if (nodes_max != 0) {
        rv = mst_params_set_nodes(params, nodes_min, nodes_max, reterr);
    }
    if (rv != 0) {
        mst_params_free(params);
        return rv;
    }
    *ret_params = params;
    return 0;
}

bool mst__rdzv_params(const struct mst__rdzv *rdzv,
                      int64_t nodes_min,
                      int64_t nodes_max,
                      const char *local_addr,
                      struct mst_params **ret_params,
                      int *ret_exit)
{
    struct mst_params *params = NULL;
    struct mst_err err;
    int rv = 0;
    if (mst__rdzv_is_url(rdzv)) {
        rv = params_from_url(rdzv, nodes_min, nodes_max, &params, &err);
    } else if (rdzv->run_id == NULL || rdzv->run_id[0] == '\0') {
        *ret_exit = mst__cli_usage_error(rdzv->command, "--rdzv-id is missing: which job is it?");
        return false;
    } else {
        rv = mst_params_new(mst__rdzv_backend(rdzv), rdzv->run_id, &params, &err);
        rv = rv == 0 ? mst_params_set_endpoint(params, rdzv->endpoint, &err) : rv;
        rv = rv == 0 ? mst_params_set_nodes(params, nodes_min, nodes_max, &err) : rv;
    }
    rv = rv == 0 ? mst_params_set_local_addr(params, local_addr, &err) : rv;
    for (size_t i = 0; i < rdzv->conf.count && rv == 0; i++) {
        rv = mst_params_parse(params, rdzv->conf.values[i], &err);
    }
    if (rv != 0) {
        mst_params_free(params);
        *ret_exit = mst__rdzv_fail(rdzv, NULL, &err);
        return false;
    }
    *ret_params = params;
    return true;
}

/* --- the store behind it --- */

/* @path as an URL: absolute, with everything unusual as %XX. */
static int file_url(const char *path, struct mst__buf *url, struct mst_err *reterr)
{
    char here[PATH_MAX] = "";
    if (path[0] != '/' && getcwd(here, sizeof here) == NULL) {
        return mst__fail(reterr, MST_ESYS, errno, "current directory");
    }
    const char *parts[] = {here, path[0] == '/' ? "" : "/", path};
    int rv = mst__buf_append(url, mst_bytes_str("file://"));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        for (const char *c = parts[i]; *c != '\0' && rv == 0; c++) {
            char escaped[4];
            bool is_usual = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') ||
                            (*c >= 'A' && *c <= 'Z') || strchr("/._-", *c) != NULL;
            (void)snprintf(escaped, sizeof escaped, is_usual ? "%c" : "%%%02X",
                           (unsigned char)*c); /* fits */
            rv = mst__buf_append(url, mst_bytes_str(escaped));
        }
    }
    rv = rv == 0 ? mst__buf_append_u8(url, 0) : rv;
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "path '%.100s'", path);
}

static int open_file(struct mst__look *look, struct mst_err *reterr)
{
    const char *path = look->path;
    if (path[0] == '\0') {
        return mst__fail(reterr, MST_EINVAL, 0, "--rdzv-endpoint is missing: the path of the file");
    }
    if (access(path, F_OK) != 0) {
        return errno == ENOENT ? 0 : mst__fail(reterr, MST_ESYS, errno, "file '%.100s'", path);
    }
    struct mst__buf url;
    mst__buf_init(&url, 3 * (size_t)PATH_MAX + 64);
    int rv = file_url(path, &url, reterr);
    if (rv == 0) {
        rv = mst_store_open((const char *)mst__buf_bytes(&url).data, NULL, 0, &look->store, reterr);
    }
    mst__buf_close(&url);
    return rv;
}

static int open_tcp(struct mst__look *look,
                    const struct mst__endpoint *endpoint,
                    int64_t timeout_ms,
                    struct mst_err *reterr)
{
    char text[MST_ENDPOINT_TEXT_SIZE];
    char url[MST_ENDPOINT_TEXT_SIZE + 8];
    (void)snprintf(url, sizeof url, "tcp://%s", mst__endpoint_format(endpoint, text)); /* fits */
    struct mst_store_options options;
    mst_store_options_init(&options, sizeof options);
    options.value_size_max = MST_VALUE_SIZE_MAX; /* reading costs what is there */
    return mst_store_open(url, &options, timeout_ms, &look->store, reterr);
}

static int look_key(struct mst__look *look, const char *run_id, struct mst_err *reterr)
{
    struct mst__buf key;
    mst__buf_init(&key, MST_KEY_SIZE_MAX);
    int rv = mst__buf_append(&key, mst_bytes_str(RECORD_KEY));
    rv = rv == 0 ? mst__buf_append(&key, mst_bytes_str(run_id)) : rv;
    rv = rv == 0 ? mst__buf_release(&key, &look->key) : rv;
    mst__buf_close(&key);
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "run id '%.60s'", run_id);
}

int mst__look_open(struct mst__look *look,
                   const struct mst_params *params,
                   int64_t timeout_ms,
                   struct mst_err *reterr)
{
    *look = (struct mst__look){0};
    mst__state_init(&look->state);
    const char *backend = mst_params_backend(params);
    if (strcmp(backend, "static") == 0) {
        return mst__fail(
            reterr, MST_ENOTSUP, 0,
            "a static rendezvous has no record: rank and size of every node are given");
    }
    if (mst__rdzv_has_authority(backend)) {
        return mst__look_job_open(look, params, reterr);
    }
    if (strcmp(backend, "etcd") == 0 || strcmp(backend, "etcd-v2") == 0) {
        return mst__look_etcd_open(look, params, reterr);
    }
    if (strcmp(backend, "c10d") != 0) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "unknown backend '%.60s'; known are: muster, c10d, etcd-v2, etcd-v3, etcd",
                         backend);
    }
    struct mst__dynamic dynamic;
    struct mst__c10d c10d;
    int rv = mst__dynamic_read(params, &dynamic, reterr);
    rv = rv == 0 ? mst__c10d_read(params, &c10d, reterr) : rv;
    rv = rv == 0 ? look_key(look, mst_params_run_id(params), reterr) : rv;
    if (rv != 0) {
        return rv;
    }
    look->settings = dynamic.settings;
    look->path = c10d.is_file ? c10d.path : NULL;
    return c10d.is_file ? open_file(look, reterr)
                        : open_tcp(look, &c10d.endpoint, timeout_ms, reterr);
}

/* --- the record --- */

/* The pickle is in base64, unless it was taken out of it already. */
static int decode_value(struct mst__look *look, struct mst_err *reterr)
{
    struct mst_bytes value = mst_bytes_of(look->value.data, look->value.size);
    if (look->etcd != NULL) {
        return mst__pickle_read(value, &look->state, reterr);
    }
    struct mst__buf pickle;
    mst__buf_init(&pickle, MST_VALUE_SIZE_MAX);
    int rv = mst__base64_read(&pickle, value);
    if (rv != 0) {
        (void)mst__fail(reterr, rv, 0, "base64 of the wrong length");
    } else {
        rv = mst__pickle_read(mst__buf_bytes(&pickle), &look->state, reterr);
    }
    mst__buf_close(&pickle);
    return rv;
}

static int decode(struct mst__look *look, struct mst_err *reterr)
{
    struct mst_bytes value = mst_bytes_of(look->value.data, look->value.size);
    mst__state_close(&look->state);
    mst__state_init(&look->state);
    look->has_state = false;
    bool is_none =
        value.size == strlen(RECORD_NONE) && memcmp(value.data, RECORD_NONE, value.size) == 0;
    if (!look->exists || is_none) {
        return 0;
    }
    int rv = decode_value(look, reterr);
    look->has_state = rv == 0;
    if (rv != 0) {
        mst_buffer_free(&look->value); /* so that the next reading does not take it for the same */
        look->exists = false;
    }
    if (rv == MST_EPROTO) {
        reterr->code = MST_ESTATE;
        rv = mst__err_wrap(reterr, MST_ESTATE, "what is stored under '%.80s' is no rendezvous",
                           look->etcd != NULL ? "the key of this job"
                                              : (const char *)look->key.data);
    }
    return rv;
}

int mst__look_read(struct mst__look *look,
                   int64_t timeout_ms,
                   bool *ret_changed,
                   struct mst_err *reterr)
{
    if (look->job != NULL) {
        bool has_changed = false;
        int result = mst__look_job_read(look, timeout_ms, &has_changed, reterr);
        if (ret_changed != NULL) {
            *ret_changed = has_changed;
        }
        return result;
    }
    if (look->etcd != NULL) {
        bool has_changed = false;
        int result = mst__look_etcd_read(look, timeout_ms, &has_changed, reterr);
        if (ret_changed != NULL) {
            *ret_changed = has_changed;
        }
        return result == 0 && has_changed && !look->is_legacy ? decode(look, reterr) : result;
    }
    struct mst_buffer value = {0};
    int rv = look->store == NULL ? open_file(look, reterr) : 0;
    if (rv == 0) {
        rv = look->store == NULL
                 ? MST_ENOTFOUND
                 : mst_store_try_get(look->store, mst_bytes_of(look->key.data, look->key.size),
                                     timeout_ms, &value, reterr);
    }
    if (rv != 0 && rv != MST_ENOTFOUND) {
        return rv;
    }
    bool exists = rv == 0;
    bool is_same = exists == look->exists && value.size == look->value.size &&
                   (value.size == 0 || memcmp(value.data, look->value.data, value.size) == 0);
    mst_buffer_free(&look->value);
    look->value = value;
    look->exists = exists;
    if (ret_changed != NULL) {
        *ret_changed = !is_same;
    }
    return is_same ? 0 : decode(look, reterr);
}

void mst__look_group(const struct mst__look *look, struct mst__look_group *ret_group)
{
    *ret_group = (struct mst__look_group){0};
    if (!look->exists) {
        return;
    }
    if (look->is_legacy) {
        mst__look_legacy_group(look, ret_group);
        return;
    }
    if (look->job != NULL) {
        mst__look_job_group(look, ret_group);
        return;
    }
    const struct mst__state *state = &look->state;
    *ret_group = (struct mst__look_group){
        .is_closed = state->closed,
        .is_running = state->complete,
        .round = state->round,
        .here = (int64_t)state->participants.count,
        .waiting = (int64_t)(state->waiting.count + state->spares.count),
    };
}

void mst__look_nodes(const struct mst__look *look, mst__look_node_fn fn, void *arg)
{
    if (!look->exists) {
        return;
    }
    if (look->is_legacy) {
        mst__look_legacy_nodes(look, fn, arg);
        return;
    }
    if (look->job != NULL) {
        mst__look_job_nodes(look, fn, arg);
        return;
    }
    for (size_t i = 0; i < look->state.members_count; i++) {
        char name[NODE_SIZE];
        mst__node_format(&look->state.members[i].node, name, sizeof name);
        fn(arg, mst_bytes_str(name));
    }
}

bool mst__look_is_late(int64_t silent_us, int64_t interval_us)
{
    return interval_us > 0 && interval_us < INT64_MAX / 2 &&
           silent_us > interval_us + interval_us / 2;
}

void mst__look_close(struct mst__look *look)
{
    mst__look_etcd_close(look);
    mst__look_job_close(look);
    mst_store_close(look->store);
    mst_buffer_free(&look->key);
    mst_buffer_free(&look->value);
    mst__state_close(&look->state);
    *look = (struct mst__look){0};
}
