/* status/look_muster.c - asks a server about its jobs: one request, one answer. Ages are by the
 * server's clock. */
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/require.h"
#include "handler/muster_settings.h"
#include "net/job_client.h"
#include "status/look.h"

struct look {
    const struct mst_params *params;
    struct mst__endpoint endpoint;
};

static int look_open(const struct mst_params *params,
                     int64_t nodes_min,
                     int64_t nodes_max,
                     void **ret_self,
                     struct mst_err *reterr)
{
    (void)nodes_min; /* the server has them */
    (void)nodes_max;
    struct mst__muster_settings settings;
    int rv = mst__muster_read(params, &settings, reterr);
    struct look *look = rv == 0 ? mst__calloc(1, sizeof *look) : NULL;
    if (look == NULL) {
        return rv != 0 ? rv : mst__fail(reterr, MST_ENOMEM, 0, "rendezvous");
    }
    look->params = params;
    look->endpoint = settings.place.endpoint;
    *ret_self = look;
    return 0;
}

static void look_close(void *self)
{
    mst__free(self);
}

/* The answer, of type @wanted, is valid until @ret_client is closed. Close it in any case. */
static int ask(const struct mst__endpoint *endpoint,
               const struct mst__job_message *question,
               enum mst__job_type wanted,
               int64_t timeout_ms,
               struct mst__job_client **ret_client,
               struct mst__job_message *ret_answer,
               struct mst_err *reterr)
{
    int rv = mst__job_client_ask(endpoint, question, mst__until_in(timeout_ms), ret_client,
                                 ret_answer, reterr);
    if (rv == 0 && ret_answer->type != wanted) {
        rv = mst__fail(reterr, MST_EPROTO, 0, "the server answered '%s' instead of '%s'",
                       mst__job_type_name(ret_answer->type), mst__job_type_name(wanted));
    }
    return rv;
}

static int look_read(void *self,
                     int64_t timeout_ms,
                     struct mst__snapshot **ret_snapshot,
                     struct mst_err *reterr)
{
    const struct look *look = self;
    const struct mst__job_message question = {
        .type = MST_JOB_STATUS,
        .u.question = {.run_id = mst_bytes_str(mst_params_run_id(look->params)),
                       .version = MST_JOB_VERSION}};
    struct mst__job_message answer;
    struct mst__job_client *client = NULL;
    struct mst_err err = {0};
    int rv =
        ask(&look->endpoint, &question, MST_JOB_STATUS_TOLD, timeout_ms, &client, &answer, &err);
    if (rv == MST_ENOTFOUND) {
        char summary[sizeof err.msg + 40];
        (void)snprintf(summary, sizeof summary, "There is no such rendezvous: %s.",
                       err.msg); /* fits */
        rv = mst__look_absent(look->params, summary, ret_snapshot, reterr);
    } else if (rv != 0) {
        (void)mst__err_pass(reterr, rv, &err);
    } else {
        *ret_snapshot =
            mst__snapshot_of_job(mst_params_backend(look->params), &answer.u.status, &rv);
        rv = rv == 0 ? 0 : mst__fail(reterr, rv, 0, "status");
    }
    mst__job_client_close(client);
    return rv;
}

static int look_shut(void *self,
                     const char *reason,
                     const char *owner,
                     int64_t timeout_ms,
                     struct mst_err *reterr)
{
    const struct look *look = self;
    const struct mst__job_message question = {
        .type = MST_JOB_CLOSE,
        .u.close = {.run_id = mst_bytes_str(mst_params_run_id(look->params)),
                    .reason = mst_bytes_str(reason),
                    .owner = mst_bytes_str(owner)},
    };
    struct mst__job_message answer;
    struct mst__job_client *client = NULL;
    int rv = ask(&look->endpoint, &question, MST_JOB_CLOSED, timeout_ms, &client, &answer, reterr);
    mst__job_client_close(client);
    return rv;
}

const struct mst__look_ops mst__look_muster = {
    .open = look_open,
    .read = look_read,
    .shut = look_shut,
    .close = look_close,
};

int mst_status_jobs(const char *endpoint,
                    int64_t timeout_ms,
                    struct mst_status_list **ret_list,
                    struct mst_err *reterr)
{
    MST_REQUIRE(ret_list, reterr);
    struct mst_params *params = NULL;
    struct mst__c10d place;
    int rv = mst_params_new("muster", "all", &params, reterr);
    rv = rv == 0 && endpoint != NULL ? mst_params_set_endpoint(params, endpoint, reterr) : rv;
    if (rv == 0) {
        rv = mst__c10d_read(params, &place, reterr);
    }
    mst_params_free(params);
    if (rv != 0) {
        return rv;
    }
    const struct mst__job_message question = {
        .type = MST_JOB_STATUS,
        .u.question = {.run_id = mst_bytes_of("", 0), .version = MST_JOB_VERSION}};
    struct mst__job_message answer;
    struct mst__job_client *client = NULL;
    rv = ask(&place.endpoint, &question, MST_JOB_JOBS_TOLD, timeout_ms, &client, &answer, reterr);
    if (rv == MST_ENOTFOUND) {
        rv = mst__fail(reterr, MST_ENOTSUP, 0,
                       "this server is an older release, which does not list its jobs");
    } else if (rv == 0) {
        *ret_list = mst__snapshot_of_jobs(&answer.u.list, &rv);
        rv = rv == 0 ? 0 : mst__fail(reterr, rv, 0, "list of jobs");
    }
    mst__job_client_close(client);
    return rv;
}
