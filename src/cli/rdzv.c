/* cli/rdzv.c - converts options to parameters, and adds advice to errors. */
#include "cli/rdzv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/number.h"
#include "cli/log.h"
#include "handler/host.h"
#include "handler/registry.h"
#include "handler/settings.h"

/* How long the program that has a port may take to identify itself. */
#define TAKEN_MS 1000

/* --- parameters --- */

/* The value of an option: @given on the command line, or a variable's. */
static const char *or_variable(const char *given, const char *ours, const char *torchs)
{
    if (given != NULL && *given != '\0') {
        return given;
    }
    const char *text = getenv(ours);
    text = text != NULL && *text != '\0' ? text : getenv(torchs);
    return text != NULL && *text != '\0' ? text : given;
}

void mst__rdzv_complete(struct mst__rdzv *rdzv)
{
    rdzv->endpoint = or_variable(rdzv->endpoint, "MUSTER_RDZV_ENDPOINT", "PET_RDZV_ENDPOINT");
    if (!mst__rdzv_is_url(rdzv)) {
        rdzv->backend = or_variable(rdzv->backend, "MUSTER_RDZV_BACKEND", "PET_RDZV_BACKEND");
        rdzv->run_id = or_variable(rdzv->run_id, "MUSTER_RDZV_ID", "PET_RDZV_ID");
    }
}

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
    if (mst__endpoint_path(endpoint) != NULL) {
        mst__cli_say("muster: no server listens at %s; start one with: muster serve --host %s",
                     endpoint->host, endpoint->host);
        return;
    }
    if (mst__host_is_taken(endpoint, 0)) {
        mst__cli_say("muster: port %d belongs to a program that accepts no connections there; "
                     "choose another port",
                     endpoint->port);
        return;
    }
    char text[MST_ENDPOINT_TEXT_SIZE];
    bool is_here = mst__host_is_loopback(endpoint->host);
    mst__cli_say("muster: no server listens at %s; start one%s%s with: muster serve%s --port %d",
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
    char text[MST_ENDPOINT_TEXT_SIZE];
    struct mst_status_list *list = NULL;
    int rv = mst_status_jobs(mst__endpoint_format(&endpoint, text), TAKEN_MS, &list, NULL);
    mst_status_list_free(list);
    if (rv == 0) {
        mst__cli_say("muster: port %d belongs to another muster, which does not give way: a "
                     "`muster serve`, or a node that serves; start the server before its nodes, or "
                     "join with "
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
    /* The library's names, and those of the command line. */
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
    if (mst__backend_can(backend, MST_BACKEND_SERVER) &&
        mst__c10d_read(params, &place, NULL) == 0 && !place.is_file) {
        mst__rdzv_advise(err, &place.endpoint);
    }
    return exit_code;
}

const char *mst__rdzv_backend(const struct mst__rdzv *rdzv)
{
    return rdzv->backend == NULL ? "muster" : rdzv->backend;
}

bool mst__rdzv_is_url(const struct mst__rdzv *rdzv)
{
    return strstr(rdzv->endpoint, "://") != NULL;
}

/* Combine the URL with the options: limits replace those of the URL; another job or backend is an
 * error. */
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
        if (rv == 0 && nodes_max != 0) {
            rv = mst_params_set_nodes(params, nodes_min, nodes_max, &err);
        }
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
