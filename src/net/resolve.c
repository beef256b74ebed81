/* net/resolve.c - getaddrinfo has no deadline, so it resolves names in a separate thread.
 *
 * The caller and the thread share a job; the last one to release it frees it. A caller whose
 * deadline passes returns, and the thread ends when the resolver does. The number of such threads
 * is bounded. */
#include "net/resolve.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/until.h"

#define RESOLVERS_MAX 64

/* Pauses between two lookups of a name that is not known yet. */
#define AGAIN_MS_MIN 100
#define AGAIN_MS_MAX 1000

static atomic_int resolvers_count;

struct resolve_job {
    pthread_mutex_t mutex;
    pthread_cond_t done_cond;
    unsigned holders;
    bool done;
    int status; /* of getaddrinfo */
    struct addrinfo *addresses;
    char host[MST_HOST_SIZE];
    char service[8];
    int flags;
};

static int lookup(const char *host, const char *service, int flags, struct addrinfo **ret_addresses)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV | flags,
    };
    return getaddrinfo(host, service, &hints, ret_addresses);
}

static void job_release(struct resolve_job *job)
{
    (void)pthread_mutex_lock(&job->mutex); /* a default mutex: cannot fail */
    job->holders--;
    bool last = job->holders == 0;
    (void)pthread_mutex_unlock(&job->mutex);
    if (!last) {
        return;
    }
    if (job->addresses != NULL) {
        freeaddrinfo(job->addresses);
    }
    (void)pthread_cond_destroy(&job->done_cond); /* no thread waits any more */
    (void)pthread_mutex_destroy(&job->mutex);
    mst__free(job);
}

static void *job_run(void *arg)
{
    struct resolve_job *job = arg;
    struct addrinfo *addresses = NULL;
    int status = lookup(job->host, job->service, job->flags, &addresses);
    (void)pthread_mutex_lock(&job->mutex);
    job->status = status;
    job->addresses = status == 0 ? addresses : NULL;
    job->done = true;
    (void)pthread_cond_signal(&job->done_cond);
    (void)pthread_mutex_unlock(&job->mutex);
    job_release(job);
    atomic_fetch_sub(&resolvers_count, 1);
    return NULL;
}

static struct resolve_job *job_new(const struct mst__endpoint *endpoint, int flags)
{
    struct resolve_job *job = mst__calloc(1, sizeof *job);
    if (job == NULL) {
        return NULL;
    }
    (void)pthread_mutex_init(&job->mutex, NULL); /* never fails on Linux */
    mst__cond_init(&job->done_cond);
    memcpy(job->host, endpoint->host, sizeof job->host);
    (void)snprintf(job->service, sizeof job->service, "%u", endpoint->port); /* fits */
    job->flags = flags;
    job->holders = 1;
    return job;
}

static int job_start(struct resolve_job *job)
{
    pthread_t thread;
    job->holders++;
    int status = mst__thread_start(&thread, job_run, job);
    if (status == 0) {
        (void)pthread_detach(thread); /* no thread waits for its end */
    } else {
        job->holders--;
    }
    return status;
}

static bool job_wait(struct resolve_job *job, struct mst__until until)
{
    (void)pthread_mutex_lock(&job->mutex);
    while (!job->done && mst__until_cond(until, &job->done_cond, &job->mutex) == 0) {
    }
    bool done = job->done;
    (void)pthread_mutex_unlock(&job->mutex);
    return done;
}

static int resolve_failed(const char *host, int status, struct mst_err *reterr)
{
    if (status == EAI_MEMORY) {
        return mst__fail(reterr, MST_ENOMEM, 0, "resolve '%s'", host);
    }
    return mst__fail_from(reterr, MST_ERESOLVE, MST_DOMAIN_GAI, status, "resolve '%s': %s", host,
                          gai_strerror(status));
}

/* mst__resolve with flags of getaddrinfo. */
static int resolve(const struct mst__endpoint *endpoint,
                   int flags,
                   struct mst__until until,
                   struct addrinfo **ret_addresses,
                   struct mst_err *reterr)
{
    char service[8];
    (void)snprintf(service, sizeof service, "%u", endpoint->port); /* fits */
    int status = lookup(endpoint->host, service, AI_NUMERICHOST, ret_addresses);
    if (status == 0) {
        return 0;
    }
    if (status != EAI_NONAME) {
        return resolve_failed(endpoint->host, status, reterr);
    }
    if (atomic_fetch_add(&resolvers_count, 1) >= RESOLVERS_MAX) {
        atomic_fetch_sub(&resolvers_count, 1);
        return mst__fail(reterr, MST_ERESOLVE, 0,
                         "resolve '%s': %d earlier lookups have not ended yet; is the name server "
                         "reachable?",
                         endpoint->host, RESOLVERS_MAX);
    }
    struct resolve_job *job = job_new(endpoint, flags);
    if (job == NULL) {
        atomic_fetch_sub(&resolvers_count, 1);
        return mst__fail(reterr, MST_ENOMEM, 0, "resolve '%s'", endpoint->host);
    }
    int rv = 0;
    status = job_start(job);
    if (status != 0) {
        atomic_fetch_sub(&resolvers_count, 1);
        rv = mst__fail(reterr, MST_ESYS, status, "start a thread to resolve '%s'", endpoint->host);
    } else if (!job_wait(job, until)) {
        rv = mst__fail(reterr, MST_ETIMEOUT, 0, "resolve '%s': no answer in time", endpoint->host);
    } else if (job->status != 0) {
        rv = resolve_failed(endpoint->host, job->status, reterr);
    } else {
        *ret_addresses = job->addresses;
        job->addresses = NULL;
    }
    job_release(job);
    return rv;
}

int mst__resolve(const struct mst__endpoint *endpoint,
                 struct mst__until until,
                 struct addrinfo **ret_addresses,
                 struct mst_err *reterr)
{
    return resolve(endpoint, 0, until, ret_addresses, reterr);
}

int mst__resolve_name(const struct mst__endpoint *endpoint,
                      struct mst__until until,
                      char ret_name[MST_HOST_SIZE],
                      struct mst_err *reterr)
{
    struct addrinfo *addresses = NULL;
    int rv = resolve(endpoint, AI_CANONNAME, until, &addresses, reterr);
    if (rv == 0) {
        const char *name = addresses->ai_canonname;
        (void)snprintf(ret_name, MST_HOST_SIZE, "%s", name == NULL ? endpoint->host : name);
        freeaddrinfo(addresses);
    }
    return rv;
}

int mst__resolve_patiently(const struct mst__endpoint *endpoint,
                           struct mst__until until,
                           const struct mst_log *log,
                           struct addrinfo **ret_addresses,
                           struct mst_err *reterr)
{
    int64_t begin_ms = mst__clock_ms();
    int64_t pause_ms = AGAIN_MS_MIN;
    struct mst_err err = {0};
    int rv = mst__resolve(endpoint, until, ret_addresses, &err);
    if (rv == MST_ERESOLVE) {
        mst__log(log, MST_LOG_WARN, "resolve.again", "host=%s for_ms=%lld detail=%s",
                 MST_LOG_TEXT(endpoint->host), (long long)(until.deadline_ms - begin_ms),
                 MST_LOG_TEXT(err.msg));
    }
    while (rv == MST_ERESOLVE && !mst__until_is_over(until)) {
        struct mst__until next = mst__until_sooner(until, mst__clock_deadline_ms(pause_ms));
        if (!mst__until_pause(until.wake_fd, next.deadline_ms * 1000)) {
            return mst__fail(reterr, MST_ECANCELED, 0, "resolve '%s': interrupted", endpoint->host);
        }
        pause_ms = pause_ms * 2 < AGAIN_MS_MAX ? pause_ms * 2 : AGAIN_MS_MAX;
        struct mst_err again = {0};
        rv = mst__resolve(endpoint, until, ret_addresses, &again);
        if (rv != MST_ETIMEOUT) {
            err = again; /* else the last answer says more */
        }
        rv = rv == MST_ETIMEOUT ? MST_ERESOLVE : rv;
    }
    if (rv == MST_ERESOLVE) {
        char reason[sizeof err.msg];
        (void)snprintf(reason, sizeof reason, "%s", err.msg);
        return mst__fail_from(reterr, rv, err.domain, err.sys, "%s, for %lld s; is the name right?",
                              reason, (long long)(mst__clock_ms() - begin_ms + 500) / 1000);
    }
    return rv == 0 ? 0 : mst__err_pass(reterr, rv, &err);
}
