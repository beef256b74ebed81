/* handler/hosted.c - mst_server in a thread. The thread only runs the loop; everything else,
 * errors of binding too, happens in the caller's. */
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
#include "net/server.h"

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
    /* A server for every address is asked for at one that every machine has. */
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
        (void)pthread_join(hosted->thread, NULL); /* a thread of ours that nobody else joins */
    }
    mst_server_free(hosted->server);
    mst__free(hosted);
}
