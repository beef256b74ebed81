/* cli/waiting.c - observes the rendezvous while the handler waits, and prints reports.
 *
 * The cost of a look grows with the number of nodes, and so does the number of looks. The interval
 * is such that all nodes together request at most LOOK_NODES_PER_S names per second, and a tenth of
 * that from an etcd. */
#include "cli/waiting.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/thread.h"
#include "cli/log.h"
#include "handler/registry.h"
#include "handler/settings.h"
#include "snapshot/fold.h"

#define TELL_FIRST_MS 2000
#define TELL_AGAIN_MS 10000

#define LOOK_MS_MIN 1000
#define LOOK_NODES_PER_S 100000
#define LOOK_TIMEOUT_MS 1000

#define JOIN_MS_DEFAULT 600000 /* the default of the handlers */
#define TEXT_SIZE_MAX MST_KIB(16)

struct mst__waiting {
    const struct mst_params *params;
    struct mst_expected *expected; /* NULL = none given */
    char where[200];
    int64_t nodes_per_s; /* names that all waiting nodes together may request */
    int64_t join_ms;
    pthread_t thread;
    bool is_running; /* the thread */
    pthread_mutex_t mutex;
    pthread_cond_t cond;

    /* Guarded by the mutex. */
    uint64_t wait; /* number of the current wait */
    bool is_waiting;
    bool is_late; /* the thread must still report which nodes were there */
    bool is_stopping;
    int64_t began_ms;

    /* Used by the thread only. */
    struct mst_status_watch *watch;
    struct mst_status *status; /* the last one; NULL = none yet */
    bool is_blind;             /* the rendezvous cannot be observed */
    bool has_round;            /* a round runs, and this node waits for a place in it */
    int64_t look_ms, tell_ms;
    struct mst__buf text; /* the current report */
    struct mst__buf told; /* the last printed report */
    int64_t most;         /* the largest number of nodes seen */
    struct mst__buf most_names;
};

/* --- texts --- */

/* Append "4", or "4 to 8". */
static void put_limits(const struct mst__waiting *waiting, struct mst__buf *text, int *rv)
{
    int64_t nodes_min = mst_params_nodes_min(waiting->params);
    int64_t nodes_max = mst_params_nodes_max(waiting->params);
    mst__text_put(text, rv, "%" PRId64, nodes_min);
    if (nodes_max > nodes_min) {
        mst__text_put(text, rv, " to %" PRId64, nodes_max);
    }
}

/* Numbers of nodes. */
struct group {
    bool is_running; /* a round runs */
    int64_t here;    /* in the running or the open round */
    int64_t waiting; /* for the round after the running one */
};

static struct group count_group(const struct mst_status *status)
{
    struct group group = {.is_running = status->phase == MST_STATUS_RUNNING ||
                                        status->phase == MST_STATUS_RECLAIMING};
    for (size_t i = 0; i < status->node_count; i++) {
        switch (status->nodes[i]->standing) {
            case MST_STATUS_NODE_MEMBER:
            case MST_STATUS_NODE_CALLED:
            case MST_STATUS_NODE_FINISHED:
                /* While a round is open, nodes that are still in the last one do not count. */
                group.here += group.is_running ? 1 : 0;
                break;
            case MST_STATUS_NODE_GATHERED:
                group.here += group.is_running ? 0 : 1;
                break;
            case MST_STATUS_NODE_QUEUED:
            case MST_STATUS_NODE_SPARE:
                group.waiting += group.is_running ? 1 : 0;
                break;
            case MST_STATUS_NODE_GONE:
                break;
        }
    }
    return group;
}

/* Append @names, folded. */
static void put_names(struct mst__buf *text, int *rv, const char *const *names, size_t count)
{
    struct mst_bytes *list = mst__calloc(count + 1, sizeof *list);
    for (size_t i = 0; i < count && list != NULL; i++) {
        list[i] = mst_bytes_str(names[i]);
    }
    if (list != NULL) {
        mst__fold_put(text, rv, list, count);
    }
    *rv = *rv == 0 && list == NULL ? MST_ENOMEM : *rv;
    mst__free(list);
}

static void put_group(struct mst__waiting *waiting,
                      const struct group *group,
                      struct mst__buf *text,
                      int *rv)
{
    const struct mst_status *status = waiting->status;
    int64_t missing = mst_params_nodes_min(waiting->params) - group->here;
    if (status->exists && status->phase == MST_STATUS_CLOSED) {
        mst__text_put(text, rv, "the rendezvous is closed");
    } else if (group->is_running) {
        mst__text_put(text, rv,
                      "round %" PRId64 " runs with %" PRId64 " node%s, %" PRId64
                      " waiting for the next",
                      status->round, group->here, group->here == 1 ? "" : "s", group->waiting);
    } else {
        mst__text_put(text, rv, "%" PRId64 " of ", group->here);
        put_limits(waiting, text, rv);
        mst__text_put(text, rv, " nodes here, ");
        if (missing > 0) {
            mst__text_put(text, rv, "%" PRId64 " missing", missing);
        } else {
            mst__text_put(text, rv, "last call for more");
        }
    }
    if (status->missing_count > 0) {
        bool is_all = !group->is_running && (int64_t)status->missing_count == missing;
        mst__text_put(text, rv, is_all ? ": " : "; not here: ");
        put_names(text, rv, status->missing, status->missing_count);
    }
}

/* --- looking --- */

/* Keep the names of the largest group. */
static void take_names(struct mst__waiting *waiting)
{
    const struct mst_status *status = waiting->status;
    size_t count = status->node_count - status->gone_count; /* gone nodes are last */
    struct mst__buf text;
    int rv = 0;
    if ((int64_t)count < waiting->most) {
        return;
    }
    const char **names = mst__calloc(count + 1, sizeof *names);
    mst__buf_init(&text, TEXT_SIZE_MAX);
    for (size_t i = 0; i < count && names != NULL; i++) {
        names[i] = status->nodes[i]->name;
    }
    if (names != NULL) {
        put_names(&text, &rv, names, count);
        mst__buf_close(&waiting->most_names);
        waiting->most_names = text;
        waiting->most = (int64_t)count;
    }
    mst__free(names);
}

static int64_t look_again_ms(const struct mst__waiting *waiting, int64_t nodes)
{
    nodes = nodes > MST_AUTHORITY_MEMBERS_MAX ? MST_AUTHORITY_MEMBERS_MAX : nodes;
    int64_t ms = nodes * nodes * 1000 / waiting->nodes_per_s;
    return ms < LOOK_MS_MIN ? LOOK_MS_MIN : ms;
}

static int look_read(struct mst__waiting *waiting, struct mst_err *reterr)
{
    int rv = 0;
    struct mst_status *status = NULL;
    if (waiting->watch == NULL) {
        rv = mst_status_watch_new(waiting->params, &waiting->watch, reterr);
        waiting->is_blind = rv == MST_ENOTSUP || rv == MST_EINVAL;
    }
    if (rv == 0) {
        rv = mst_status_watch_next(waiting->watch, 0, LOOK_TIMEOUT_MS, 0, &status, reterr);
        rv = rv == MST_ETIMEOUT && waiting->status != NULL ? 0 : rv;
    }
    if (rv == 0 && status != NULL) {
        mst_status_free(waiting->status);
        waiting->status = status;
        if (waiting->expected != NULL) {
            rv = mst_status_expect(status, waiting->expected, reterr);
        }
    }
    return rv;
}

/* Look at the job, and write a report to @waiting->text. */
static void look(struct mst__waiting *waiting)
{
    struct mst_err err = {0};
    int rv = look_read(waiting, &err);
    int code = 0;
    waiting->has_round = false;
    mst__buf_clear(&waiting->text);
    if (waiting->is_blind) {
        return;
    }
    if (rv != 0) {
        mst__text_put(&waiting->text, &code, "who is here cannot be seen: %s", err.msg);
        waiting->look_ms =
            mst__clock_deadline_ms(look_again_ms(waiting, mst_params_nodes_max(waiting->params)));
        return;
    }
    struct group group = count_group(waiting->status);
    waiting->has_round = group.is_running;
    take_names(waiting);
    put_group(waiting, &group, &waiting->text, &code);
    if (code != 0) {
        mst__buf_clear(&waiting->text); /* out of memory: the next look reports */
    }
    waiting->look_ms = mst__clock_deadline_ms(look_again_ms(waiting, group.here + group.waiting));
}

/* --- telling --- */

static void say(const struct mst__buf *line)
{
    struct mst_bytes bytes = mst__buf_bytes(line);
    mst__cli_say("%.*s", (int)bytes.size, (const char *)bytes.data); /* cut off if long */
}

static void tell(struct mst__waiting *waiting, int64_t waited_ms)
{
    struct mst__buf line;
    int rv = 0;
    mst__buf_init(&line, 2 * TEXT_SIZE_MAX);
    mst__text_put(&line, &rv, "muster: waiting %" PRId64 " s", waited_ms / 1000);
    if (mst__buf_size(&waiting->text) > 0) {
        mst__text_put(&line, &rv, ": ");
        rv = rv == 0 ? mst__buf_append(&line, mst__buf_bytes(&waiting->text)) : rv;
    } else {
        mst__text_put(&line, &rv, " for ");
        put_limits(waiting, &line, &rv);
        mst__text_put(&line, &rv, " nodes");
    }
    mst__text_put(&line, &rv, " (%s)", waiting->where);
    if (rv == 0) {
        say(&line);
    }
    mst__buf_close(&line);
    mst__buf_clear(&waiting->told);
    (void)mst__buf_append(&waiting->told, mst__buf_bytes(&waiting->text)); /* else printed again */
    waiting->tell_ms = mst__clock_deadline_ms(TELL_AGAIN_MS);
}

static void tell_late(struct mst__waiting *waiting)
{
    struct mst__buf line;
    int rv = 0;
    if (waiting->most == 0) {
        return;
    }
    mst__buf_init(&line, 2 * TEXT_SIZE_MAX);
    mst__text_put(&line, &rv, "muster: %" PRId64 " node%s had been here: ", waiting->most,
                  waiting->most == 1 ? "" : "s");
    rv = rv == 0 ? mst__buf_append(&line, mst__buf_bytes(&waiting->most_names)) : rv;
    if (waiting->status != NULL && waiting->status->unseen_count > 0) {
        mst__text_put(&line, &rv, "; never seen: ");
        put_names(&line, &rv, waiting->status->unseen, waiting->status->unseen_count);
    }
    if (rv == 0) {
        say(&line);
    }
    mst__buf_close(&line);
}

/* --- the thread --- */

/* Begin a new wait. The first look comes before the first line, or before half of a short
 * join_timeout is over. In a large group, the first looks are spread at random. */
static void start_wait(struct mst__waiting *waiting, int64_t began_ms)
{
    int64_t spread_ms = look_again_ms(waiting, mst_params_nodes_max(waiting->params)) - LOOK_MS_MIN;
    int64_t first_ms = TELL_FIRST_MS < waiting->join_ms / 2 ? TELL_FIRST_MS : waiting->join_ms / 2;
    if (spread_ms > 0) {
        first_ms += (int64_t)(mst__clock_random_u64() % (uint64_t)spread_ms);
    }
    waiting->look_ms = began_ms + first_ms;
    waiting->tell_ms = began_ms + TELL_FIRST_MS;
    waiting->most = 0;
    mst__buf_clear(&waiting->most_names);
    mst__buf_clear(&waiting->text);
    mst__buf_clear(&waiting->told);
}

/* Process the current wait. The caller holds the lock, which is released during a look. */
static void wait_on(struct mst__waiting *waiting)
{
    int64_t now_ms = mst__clock_ms();
    uint64_t wait = waiting->wait;
    if (!waiting->is_blind && now_ms >= waiting->look_ms) {
        (void)pthread_mutex_unlock(&waiting->mutex);
        look(waiting);
        (void)pthread_mutex_lock(&waiting->mutex);
    }
    now_ms = mst__clock_ms();
    int64_t waited_ms = now_ms - waiting->began_ms;
    /* Only a spare waits longer than join_timeout. Any other node has withdrawn by now, and the
     * last look may not have seen it. */
    bool is_over = waited_ms >= waiting->join_ms && !waiting->has_round;
    bool has_changed =
        !mst__bytes_equal(mst__buf_bytes(&waiting->text), mst__buf_bytes(&waiting->told));
    bool is_due = waited_ms >= TELL_FIRST_MS && (has_changed || now_ms >= waiting->tell_ms);
    if (is_over) {
        waiting->tell_ms = now_ms + TELL_AGAIN_MS;
    } else if (waiting->is_waiting && waiting->wait == wait && is_due) {
        tell(waiting, waited_ms);
    }
}

static void *watch(void *arg)
{
    struct mst__waiting *waiting = arg;
    uint64_t wait = 0;
    (void)pthread_mutex_lock(&waiting->mutex);
    while (!waiting->is_stopping) {
        if (waiting->wait != wait) {
            wait = waiting->wait;
            start_wait(waiting, waiting->began_ms);
        }
        if (waiting->is_late) {
            (void)pthread_mutex_unlock(&waiting->mutex);
            if (!waiting->is_blind) {
                look(waiting);
            }
            tell_late(waiting);
            (void)pthread_mutex_lock(&waiting->mutex);
            waiting->is_late = false;
            (void)pthread_cond_broadcast(&waiting->cond);
        } else if (!waiting->is_waiting) {
            (void)pthread_cond_wait(&waiting->cond, &waiting->mutex);
        } else {
            wait_on(waiting);
            int64_t until_ms = waiting->is_blind || waiting->tell_ms < waiting->look_ms
                                   ? waiting->tell_ms
                                   : waiting->look_ms;
            if (waiting->is_waiting && waiting->wait == wait && !waiting->is_stopping) {
                mst__cond_wait_until(&waiting->cond, &waiting->mutex, until_ms);
            }
        }
    }
    (void)pthread_mutex_unlock(&waiting->mutex);
    return NULL;
}

/* --- for the caller --- */

static void name_where(struct mst__waiting *waiting)
{
    const char *backend = mst_params_backend(waiting->params);
    const char *endpoint = mst_params_endpoint(waiting->params);
    struct mst__c10d place;
    char text[MST_ENDPOINT_TEXT_SIZE];
    const char *kind = "at";
    waiting->nodes_per_s = LOOK_NODES_PER_S;
    if (mst__backend_can(backend, MST_BACKEND_ETCD)) {
        kind = "etcd";
        waiting->nodes_per_s = LOOK_NODES_PER_S / 10;
        endpoint = endpoint[0] == '\0' ? "localhost:2379" : endpoint;
    } else if (mst__backend_can(backend, MST_BACKEND_SERVER) &&
               mst__c10d_read(waiting->params, &place, NULL) == 0) {
        kind = place.is_file ? "file" : "server";
        endpoint = place.is_file ? place.path : mst__endpoint_format(&place.endpoint, text);
        waiting->is_blind = !place.is_file && mst__endpoint_is_own(&place.endpoint);
    }
    (void)snprintf(waiting->where, sizeof waiting->where, "%s %s", kind, endpoint); /* cut off */
}

static int start_thread(struct mst__waiting *waiting, struct mst_err *reterr)
{
    int status = mst__thread_start(&waiting->thread, watch, waiting);
    waiting->is_running = status == 0;
    return status == 0 ? 0 : mst__fail(reterr, MST_ESYS, status, "start a thread");
}

int mst__waiting_new(const struct mst_params *params,
                     struct mst_expected *expected,
                     struct mst__waiting **ret_waiting,
                     struct mst_err *reterr)
{
    struct mst__waiting *waiting = mst__calloc(1, sizeof *waiting);
    if (waiting == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "report of a wait");
    }
    waiting->params = params;
    waiting->expected = expected;
    mst__buf_init(&waiting->text, TEXT_SIZE_MAX);
    mst__buf_init(&waiting->told, TEXT_SIZE_MAX);
    mst__buf_init(&waiting->most_names, TEXT_SIZE_MAX);
    name_where(waiting);
    mst__cond_init(&waiting->cond);
    (void)pthread_mutex_init(&waiting->mutex, NULL);
    int rv =
        mst_params_duration_ms(params, "join_timeout", JOIN_MS_DEFAULT, &waiting->join_ms, reterr);
    rv = rv == 0 ? start_thread(waiting, reterr) : rv;
    if (rv != 0) {
        mst__waiting_free(waiting);
        return rv;
    }
    *ret_waiting = waiting;
    return 0;
}

void mst__waiting_free(struct mst__waiting *waiting)
{
    if (waiting == NULL) {
        return;
    }
    if (waiting->is_running) {
        (void)pthread_mutex_lock(&waiting->mutex);
        waiting->is_stopping = true;
        (void)pthread_cond_broadcast(&waiting->cond);
        (void)pthread_mutex_unlock(&waiting->mutex);
        (void)pthread_join(waiting->thread, NULL); /* cannot fail: joined only here */
    }
    mst_status_watch_free(waiting->watch);
    mst_status_free(waiting->status);
    mst__buf_close(&waiting->text);
    mst__buf_close(&waiting->told);
    mst__buf_close(&waiting->most_names);
    (void)pthread_cond_destroy(&waiting->cond);
    (void)pthread_mutex_destroy(&waiting->mutex);
    mst__free(waiting);
}

void mst__waiting_begin(struct mst__waiting *waiting)
{
    (void)pthread_mutex_lock(&waiting->mutex);
    waiting->wait++;
    waiting->is_waiting = true;
    waiting->began_ms = mst__clock_ms();
    (void)pthread_cond_broadcast(&waiting->cond);
    (void)pthread_mutex_unlock(&waiting->mutex);
}

void mst__waiting_end(struct mst__waiting *waiting, bool is_late)
{
    (void)pthread_mutex_lock(&waiting->mutex);
    waiting->is_waiting = false;
    waiting->is_late = is_late;
    (void)pthread_cond_broadcast(&waiting->cond);
    while (waiting->is_late) {
        (void)pthread_cond_wait(&waiting->cond, &waiting->mutex);
    }
    (void)pthread_mutex_unlock(&waiting->mutex);
}
