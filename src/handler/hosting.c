/* handler/hosting.c - who serves the store or the authority at an endpoint. */
#include "handler/hosting.h"

#include "base/err.h"
#include "handler/host.h"
#include "handler/params.h"

/* Whether the endpoint is here is a question of names and interfaces, nothing that takes long. */
#define IS_ME_MS 5000

int mst__hosting_begin(const struct mst__c10d *settings,
                       const struct mst_params *params,
                       struct mst__hosted **ret_hosted,
                       struct mst__endpoint *ret_endpoint,
                       struct mst_err *reterr)
{
    *ret_hosted = NULL;
    bool is_me = settings->is_host;
    if (!settings->is_host_known) {
        int rv = mst__host_is_me(&settings->endpoint, mst__until_in(IS_ME_MS), &is_me, reterr);
        if (rv != 0) {
            return rv;
        }
    }
    bool as_server[MST_C10D_ATTEMPTS_MAX];
    size_t count = mst__c10d_attempts(settings, is_me, as_server);
    bool may_give_way = count > 1 && settings->endpoint.port != 0;
    if (as_server[0] &&
        !(may_give_way && mst__host_is_taken(&settings->endpoint, settings->give_way_ms))) {
        int rv = mst__hosted_start(&settings->endpoint, &params->log, ret_hosted, reterr);
        if (rv != 0 && (count == 1 || rv == MST_ENOMEM)) {
            return rv == MST_ENOMEM ? rv : mst__err_wrap(reterr, MST_ECONN, "this node must serve");
        }
    }
    *ret_endpoint = settings->endpoint;
    if (*ret_hosted != NULL) {
        char text[MST_HOSTED_URL_SIZE];
        struct mst__url url;
        int rv = mst__url_parse(mst__hosted_url(*ret_hosted, text), &url, reterr);
        if (rv != 0) {
            return rv;
        }
        *ret_endpoint = url.endpoint;
        mst__url_close(&url);
    } else if (settings->endpoint.port == 0) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "endpoint '%.60s': port 0 is for the node that serves the store, and "
                         "that is another one",
                         params->endpoint);
    }
    return 0;
}
