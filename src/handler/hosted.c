/* handler/hosted.c - mst_server in a thread. The thread only runs the loop; all else, including
 * binding, happens in the caller's thread. */
#include "handler/hosted.h"

#include <errno.h>
#include <muster/server.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "handler/host.h"
#include "handler/params.h"
#include "net/give_way.h"
#include "net/server.h"

/* Time to find out whether the endpoint is here: a lookup of names and interfaces. */
#define IS_ME_MS 5000

struct mst__hosted {
    struct mst_server *server;
    struct mst_log log;
    pthread_t thread;
    bool is_running;
    char directory[sizeof((struct sockaddr_un *)NULL)->sun_path]; /* ours; empty = none */
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

/* --- a socket of its own --- */

static int bind_in(struct mst__hosted *hosted,
                   const char *parent,
                   const struct mst_server_options *options,
                   struct mst_err *reterr)
{
    static const char name[] = "/socket";
    char *directory = hosted->directory;
    size_t room = sizeof hosted->directory - sizeof name;
    int size = snprintf(directory, room, "%s/muster_XXXXXX", parent);
    int rv = 0;
    if (parent[0] != '/' || size < 0 || (size_t)size >= room) {
        rv =
            mst__fail(reterr, MST_ESYS, ENAMETOOLONG, "'%.100s' cannot have a unix socket", parent);
    } else if (mkdtemp(directory) == NULL) {
        rv = mst__fail(reterr, MST_ESYS, errno, "mkdir '%.100s'", directory);
    }
    if (rv != 0) {
        directory[0] = '\0';
        return rv;
    }
    char host[MST_HOST_SIZE];
    const char *hosts[] = {host};
    (void)snprintf(host, sizeof host, MST_ENDPOINT_UNIX "%s%s", directory, name); /* fits */
    struct mst_server_options own = *options;
    own.hosts = hosts;
    own.hosts_count = 1;
    rv = mst_server_new(&own, &hosted->server, reterr);
    if (rv != 0) {
        (void)rmdir(directory);
        directory[0] = '\0';
    }
    return rv;
}

/* Listen on a socket in a directory of its own, which nobody else may enter. A directory for it may
 * be read-only, have a long name or no sockets: then the next one is tried. A directory that a
 * killed process has left behind does no harm, because each has another name. */
static int bind_own(struct mst__hosted *hosted,
                    const struct mst_server_options *options,
                    struct mst_err *reterr)
{
    const char *const parents[] = {getenv("TMPDIR"), "/tmp", getenv("XDG_RUNTIME_DIR"), "/dev/shm"};
    int rv = MST_ESYS;
    for (size_t i = 0; i < sizeof parents / sizeof parents[0] && rv != 0 && rv != MST_ENOMEM; i++) {
        if (parents[i] != NULL && parents[i][0] != '\0') {
            rv = bind_in(hosted, parents[i], options, reterr);
        }
    }
    return rv == 0 || rv == MST_ENOMEM
               ? rv
               : mst__err_wrap(reterr, rv, "no place for a unix socket; set TMPDIR");
}

/* --- life --- */

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
    bool is_path = mst__endpoint_path(endpoint) != NULL;
    int rv = is_path && mst__endpoint_is_own(endpoint)
                 ? bind_own(hosted, &options, reterr)
                 : mst_server_new(&options, &hosted->server, reterr);
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

void mst__hosted_place(const struct mst__hosted *hosted, struct mst__endpoint *endpoint)
{
    endpoint->port = (uint16_t)mst__hosted_port(hosted);
    if (hosted->directory[0] != '\0') {
        (void)snprintf(endpoint->host, sizeof endpoint->host, "%s",
                       mst_server_address(hosted->server, 0)); /* unix:/path, which fits */
    }
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

bool mst__hosted_gave_way(const struct mst__hosted *hosted)
{
    return mst__give_way_is_done(hosted->server);
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
    if (hosted->directory[0] != '\0') {
        (void)rmdir(hosted->directory); /* the socket is gone */
    }
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
    bool may_give_way = count > 1 && !mst__endpoint_is_own(&settings->endpoint);
    if (as_server[0] &&
        !(may_give_way && mst__host_is_taken(&settings->endpoint, settings->give_way_ms))) {
        int rv = mst__hosted_start(&settings->endpoint, &params->log, ret_hosted, reterr);
        if (rv != 0 && (count == 1 || rv == MST_ENOMEM)) {
            return rv == MST_ENOMEM ? rv : mst__err_wrap(reterr, MST_ECONN, "this node must serve");
        }
        if (*ret_hosted != NULL && may_give_way) {
            mst__give_way_allow((*ret_hosted)->server);
        }
    }
    *ret_endpoint = settings->endpoint;
    if (*ret_hosted != NULL && mst__endpoint_path(ret_endpoint) != NULL) {
        mst__hosted_place(*ret_hosted, ret_endpoint);
    } else if (*ret_hosted != NULL) {
        char text[MST_HOSTED_URL_SIZE];
        struct mst__url url;
        int rv = mst__url_parse(mst__hosted_url(*ret_hosted, text), &url, reterr);
        if (rv != 0) {
            return rv;
        }
        *ret_endpoint = url.endpoint;
        mst__url_close(&url);
    } else if (mst__endpoint_is_own(&settings->endpoint)) {
        return mst__fail(
            reterr, MST_EINVAL, 0,
            "endpoint '%.60s': %s is only for the node that serves the store", params->endpoint,
            mst__endpoint_path(ret_endpoint) != NULL ? "a socket of its own" : "port 0");
    }
    return 0;
}
