/* handler/hosted.c - mst_server in a thread. The thread only runs the loop; all else, including
 * binding, happens in the caller's thread. */
#include "handler/hosted.h"

#include <muster/server.h>
#include <pthread.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "handler/host.h"
#include "handler/params.h"
#include "net/server.h"

/* Time to find out whether the endpoint is here: a lookup of names and interfaces. */
#define IS_ME_MS 5000

struct mst__hosted {
    struct mst_server *server;
    struct mst_log log;
    pthread_t thread;
    bool is_running;
};

static void *serve(void *arg)
{
    struct mst__hosted *hosted = arg;
    struct mst_err err = {0};
    if (mst_server_run(hosted->server, &err) != 0) {
        char detail[MST_LOG_QUOTE_SIZE];
        mst__log(&hosted->log, MST_LOG_ERROR, "hosted.failed", "port=%d detail=%s",
                 mst_server_port(hosted->server), mst__log_quote(mst_bytes_str(err.msg), detail));
    }
    return NULL;
}

int mst__hosted_start(const struct mst__endpoint *endpoint,
                      const struct mst_log *log,
                      struct mst__hosted **ret_hosted,
                      struct mst_err *reterr)
{
    char text[MST_ENDPOINT_TEXT_SIZE];
    (void)mst__endpoint_format(endpoint, text);
    struct mst__hosted *hosted = mst__malloc(sizeof *hosted);
    if (hosted == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "host a store at '%s'", text);
    }
    *hosted = (struct mst__hosted){.log = *log};
    char host[MST_HOST_SIZE];
    mst__host_listen(endpoint, host);
    const char *hosts[] = {host};
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    options.hosts = hosts;
    options.hosts_count = host[0] == '\0' ? 0 : 1;
    options.port = endpoint->port;
    options.log = *log;
    int rv = mst_server_new(&options, &hosted->server, reterr);
    if (rv == 0) {
        int status = mst__thread_start(&hosted->thread, serve, hosted);
        hosted->is_running = status == 0;
        rv = status == 0 ? 0 : mst__fail(reterr, MST_ESYS, status, "start a thread");
    }
    if (rv != 0) {
        mst__hosted_stop(hosted);
        return mst__err_wrap(reterr, rv, "host a store at '%s'", text);
    }
    *ret_hosted = hosted;
    return 0;
}

int mst__hosted_port(const struct mst__hosted *hosted)
{
    return mst_server_port(hosted->server);
}

const char *mst__hosted_url(const struct mst__hosted *hosted, char ret_url[MST_HOSTED_URL_SIZE])
{
    const char *address = mst_server_address(hosted->server, 0);
    struct mst_bytes any4 = mst_bytes_str("0.0.0.0:");
    struct mst_bytes any6 = mst_bytes_str("[::]:");
    /* A server on all addresses is reached at the loopback address. */
    if (mst__bytes_start_with(mst_bytes_str(address), any4) ||
        mst__bytes_start_with(mst_bytes_str(address), any6)) {
        (void)snprintf(ret_url, MST_HOSTED_URL_SIZE, "tcp://127.0.0.1:%d",
                       mst__hosted_port(hosted)); /* fits, and so does the other */
    } else {
        (void)snprintf(ret_url, MST_HOSTED_URL_SIZE, "tcp://%s", address);
    }
    return ret_url;
}

int mst__hosted_empty(struct mst__hosted *hosted, struct mst_err *reterr)
{
    return mst__server_empty(hosted->server, mst__clock_deadline_ms(MST_EMPTY_MS), reterr);
}

void mst__hosted_stop(struct mst__hosted *hosted)
{
    if (hosted == NULL) {
        return;
    }
    if (hosted->is_running) {
        mst_server_stop(hosted->server);
        (void)pthread_join(hosted->thread, NULL); /* ours, and only joined here */
    }
    mst_server_free(hosted->server);
    mst__free(hosted);
}

/* --- who hosts --- */

int mst__hosted_begin(const struct mst__c10d *settings,
                      const struct mst_params *params,
                      struct mst__until until,
                      struct mst__hosted **ret_hosted,
                      struct mst__endpoint *ret_endpoint,
                      bool *ret_is_open,
                      struct mst_err *reterr)
{
    *ret_hosted = NULL;
    *ret_is_open = false;
    bool is_me = settings->is_host;
    if (!settings->is_host_known) {
        until = mst__until_sooner(until, mst__clock_deadline_ms(IS_ME_MS));
        int rv = mst__host_is_me(&settings->endpoint, until, &is_me, reterr);
        *ret_is_open = rv == MST_ERESOLVE || rv == MST_ETIMEOUT;
        if (rv != 0 && !*ret_is_open) {
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
                         "endpoint '%.60s': port 0 is only for the node that serves the store",
                         params->endpoint);
    }
    return 0;
}
