/* record/etcd_v2.c - the record in an etcd v2 key.
 *
 * The token is the key's modifiedIndex. A key that has expired or was deleted is no record, so a
 * write bound to it loses, like any other late write.
 *
 * Waiting is a long poll from the index at which the record last matched the token. An
 * unreachable etcd is asked again until the call's deadline, if the request cannot have been
 * executed. */
#include "record/etcd_v2.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/until.h"
#include "etcd/v2.h"
#include "handler/builtin.h"
#include "handler/params.h"
#include "record/record.h"

/* Every write renews it; a read does not. */
#define TTL_S 7200

/* Pauses between attempts to reach an etcd. */
#define AGAIN_MS_FIRST 50
#define AGAIN_MS_MAX 500

/* etcd writes to disk before it answers. */
#define WRITE_US 3000

struct etcd_v2 {
    struct mst__v2 *v2;
    char *key;
    char *where;
    struct mst_params *params; /* a copy; the settings borrow from it */
    struct mst__etcd_v2_settings settings;
    atomic_bool is_in_doubt; /* the result of a write is unknown: the next read asks the whole
                              * cluster */
    pthread_mutex_t mutex;   /* guards all below */
    uint64_t seen_modified;  /* modifiedIndex at the last read; 0 = no record */
    uint64_t seen_index;     /* the etcd's index then */
    uint64_t swept_index;    /* keys of an earlier run are removed up to here */
    struct mst_store *store; /* NULL = not opened yet */
    /* An unused answer about the record and its time; the next read takes it. */
    bool has_fresh;
    int64_t fresh_ms;
    struct mst__v2_answer fresh;
};

/* --- reaching it --- */

/* Pause after the error @rv. Returns whether to try again: not if woken. A name may be known
 * later. */
static bool try_again(int rv, struct mst__until until, int64_t *pause_ms)
{
    if (rv != MST_ECONN && rv != MST_ERESOLVE) {
        return false;
    }
    int64_t until_ms = mst__clock_ms() + *pause_ms;
    *pause_ms = *pause_ms * 2 > AGAIN_MS_MAX ? AGAIN_MS_MAX : *pause_ms * 2;
    return until_ms < until.deadline_ms && mst__until_pause(until.wake_fd, until_ms * 1000);
}

/* How long such an answer can be used. */
#define FRESH_MS 20

/* Keep @answer, which is emptied, for the next read. */
static void keep_fresh(struct etcd_v2 *etcd, struct mst__v2_answer *answer)
{
    (void)pthread_mutex_lock(&etcd->mutex); /* a default mutex: cannot fail */
    struct mst__v2_answer before = etcd->fresh;
    etcd->fresh = *answer;
    etcd->has_fresh = true;
    etcd->fresh_ms = mst__clock_ms();
    (void)pthread_mutex_unlock(&etcd->mutex);
    *answer = before;
    mst__v2_answer_close(answer);
}

/* Take the kept answer, if it is fresh. */
static bool take_fresh(struct etcd_v2 *etcd, struct mst__v2_answer *answer)
{
    (void)pthread_mutex_lock(&etcd->mutex);
    bool is_good = etcd->has_fresh && mst__clock_ms() - etcd->fresh_ms <= FRESH_MS;
    etcd->has_fresh = false;
    if (is_good) {
        struct mst__v2_answer empty = *answer;
        *answer = etcd->fresh;
        etcd->fresh = empty;
    }
    (void)pthread_mutex_unlock(&etcd->mutex);
    return is_good;
}

/* Read the key. */
static int read_key(struct etcd_v2 *etcd,
                    struct mst__until until,
                    struct mst__v2_answer *answer,
                    struct mst_err *reterr)
{
    int64_t pause_ms = AGAIN_MS_FIRST;
    bool is_in_doubt = atomic_load(&etcd->is_in_doubt);
    int rv;
    do {
        rv = mst__v2_get(etcd->v2, etcd->key, false, is_in_doubt, until, answer, reterr);
    } while (try_again(rv, until, &pause_ms));
    if (rv == MST_EUNKNOWN) {
        rv = MST_ECONN; /* a read changes nothing, so its result is not in doubt */
        if (reterr != NULL) {
            reterr->code = rv;
        }
    }
    if (rv == 0 && is_in_doubt) {
        atomic_store(&etcd->is_in_doubt, false);
    }
    return rv;
}

/* The store, or NULL if it is not open. */
static struct mst_store *store_of(struct etcd_v2 *etcd)
{
    (void)pthread_mutex_lock(&etcd->mutex); /* a default mutex: cannot fail */
    struct mst_store *store = etcd->store;
    (void)pthread_mutex_unlock(&etcd->mutex);
    return store;
}

/* Open the store on first use, without a lock: if two threads do so at once, one closes its own. */
static int etcd_v2_store(void *self,
                         struct mst__until until,
                         struct mst_store **ret_store,
                         struct mst_err *reterr)
{
    (void)until.deadline_ms; /* no request is sent */
    struct etcd_v2 *etcd = self;
    struct mst_store *store = NULL;
    if (store_of(etcd) == NULL) {
        struct mst__http_options http = mst__etcd_http(&etcd->settings.etcd, &etcd->params->log);
        http.first = mst__v2_current(etcd->v2);
        int rv = mst__etcd_store_new(&http, MST_ETCD_V2_STORE, &store, reterr);
        if (rv != 0) {
            return rv;
        }
    }
    (void)pthread_mutex_lock(&etcd->mutex);
    if (etcd->store == NULL) {
        etcd->store = store;
        store = NULL;
    }
    *ret_store = etcd->store;
    (void)pthread_mutex_unlock(&etcd->mutex);
    mst_store_close(store);
    return 0;
}

/* --- the record --- */

/* Remember that the record had the modifiedIndex @modified at the etcd's index @index. */
static void index_note(struct etcd_v2 *etcd, uint64_t modified, uint64_t index)
{
    (void)pthread_mutex_lock(&etcd->mutex); /* a default mutex: cannot fail */
    if (index >= etcd->seen_index) {
        etcd->seen_modified = modified;
        etcd->seen_index = index;
    }
    (void)pthread_mutex_unlock(&etcd->mutex);
}

static int make_token(uint64_t modified, struct mst_buffer *ret_token, struct mst_err *reterr)
{
    char text[24];
    int size = snprintf(text, sizeof text, "%" PRIu64, modified); /* fits */
    ret_token->data = (uint8_t *)mst__memdup(text, (size_t)size);
    ret_token->size = (size_t)size;
    return ret_token->data != NULL ? 0 : mst__fail(reterr, MST_ENOMEM, 0, "token");
}

/* Parse a token of make_token. */
static uint64_t read_token(const struct mst_bytes *token)
{
    uint64_t modified = 0;
    for (size_t i = 0; token != NULL && i < token->size; i++) {
        modified = modified * 10 + (uint64_t)(token->data[i] - '0');
    }
    return modified;
}

static int fail_directory(const struct etcd_v2 *etcd, struct mst_err *reterr)
{
    return mst__fail(reterr, MST_ESTATE, 0,
                     "%s: '%.80s' is a directory: there is a job whose run id is this one, a slash "
                     "and more; choose another run id",
                     etcd->where, etcd->key);
}

/* An unexpected answer of the etcd. */
static int fail_answer(const struct etcd_v2 *etcd,
                       const struct mst__v2_answer *answer,
                       struct mst_err *reterr)
{
    if (answer->code == MST_V2_NOT_FILE) {
        return fail_directory(etcd, reterr);
    }
    return mst__fail(reterr, MST_ESTATE, 0, "%s: '%.60s' cannot hold a record: %s (%s)",
                     etcd->where, etcd->key, answer->message, answer->cause);
}

static int decode(const struct etcd_v2 *etcd,
                  const struct mst__v2_node *node,
                  struct mst__stored *ret_stored,
                  struct mst_err *reterr)
{
    if (node->is_dir) {
        return fail_directory(etcd, reterr);
    }
    struct mst__buf record;
    mst__buf_init(&record, MST_PICKLE_SIZE_MAX);
    struct mst__stored stored = {.exists = true};
    int rv = mst__base64_read(&record, mst_bytes_of(node->value.data, node->value.size));
    if (rv == 0) {
        rv = mst__buf_release(&record, &stored.record);
    }
    mst__buf_close(&record);
    if (rv != 0) {
        return mst__fail(reterr, rv == MST_EPROTO ? MST_ESTATE : rv, 0,
                         "%s: the data under '%.80s' is not a rendezvous record", etcd->where,
                         etcd->key);
    }
    rv = make_token(node->modified, &stored.token, reterr);
    if (rv != 0) {
        mst_buffer_free(&stored.record);
        return rv;
    }
    *ret_stored = stored;
    return 0;
}

static int etcd_v2_get_state(void *self,
                             struct mst__until until,
                             struct mst__stored *ret_stored,
                             struct mst_err *reterr)
{
    struct etcd_v2 *etcd = self;
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    bool is_fresh = !atomic_load(&etcd->is_in_doubt) && take_fresh(etcd, &answer);
    int rv = is_fresh ? 0 : read_key(etcd, until, &answer, reterr);
    if (rv == 0 && answer.code == MST_V2_NOT_FOUND) {
        index_note(etcd, 0, answer.index);
        *ret_stored = (struct mst__stored){.exists = false};
    } else if (rv == 0 && answer.code != MST_V2_OK) {
        rv = fail_answer(etcd, &answer, reterr);
    } else if (rv == 0) {
        index_note(etcd, answer.node.modified, answer.index);
        rv = decode(etcd, &answer.node, ret_stored, reterr);
        ret_stored->is_past = rv == 0 && is_fresh;
    }
    mst__v2_answer_close(&answer);
    return rv;
}

/* Send the conditional write; again if it cannot have been executed. */
static int write_key(struct etcd_v2 *etcd,
                     struct mst_bytes text,
                     const struct mst_bytes *token,
                     struct mst__until until,
                     struct mst__v2_answer *answer,
                     struct mst_err *reterr)
{
    const struct mst__v2_write write = {
        .key = etcd->key,
        .condition = token == NULL ? MST_V2_IF_ABSENT : MST_V2_IF_INDEX,
        .previous_index = read_token(token),
        .value = text,
        .ttl_s = TTL_S,
    };
    int64_t pause_ms = AGAIN_MS_FIRST;
    int rv;
    do {
        rv = mst__v2_put(etcd->v2, &write, until, answer, reterr);
    } while (try_again(rv, until, &pause_ms));
    if (rv == MST_EUNKNOWN || rv == MST_ECANCELED) {
        atomic_store(&etcd->is_in_doubt, true);
    }
    return rv;
}

/* Before the first write of a record, remove the keys of an earlier run with this run id. A
 * failure is only logged: if the etcd is unreachable, the write fails as well. */
static void sweep_old_run(struct etcd_v2 *etcd, struct mst__until until)
{
    (void)pthread_mutex_lock(&etcd->mutex);
    bool is_due = etcd->seen_modified == 0 && etcd->seen_index > etcd->swept_index;
    uint64_t index = etcd->seen_index;
    etcd->swept_index = is_due ? index : etcd->swept_index;
    (void)pthread_mutex_unlock(&etcd->mutex);
    struct mst_err err = {0};
    if (is_due && mst__etcd_v2_sweep(etcd->v2, etcd->params->run_id, index, until,
                                     &etcd->params->log, &err) != 0) {
        char detail[MST_LOG_QUOTE_SIZE];
        mst__log(&etcd->params->log, MST_LOG_WARN, "rendezvous.not_swept", "detail=%s",
                 mst__log_quote(mst_bytes_str(err.msg), detail));
    }
}

static int etcd_v2_set_state(void *self,
                             struct mst_bytes record,
                             const struct mst_bytes *token,
                             bool may_be_unread,
                             struct mst__until until,
                             bool *ret_won,
                             struct mst__stored *ret_stored,
                             struct mst_err *reterr)
{
    struct etcd_v2 *etcd = self;
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    struct mst__buf text;
    mst__buf_init(&text, MST_VALUE_SIZE_MAX);
    if (token == NULL) {
        sweep_old_run(etcd, until);
    }
    int rv = mst__base64_write(&text, record);
    rv = rv == 0 ? write_key(etcd, mst__buf_bytes(&text), token, until, &answer, reterr)
                 : mst__fail(reterr, rv, 0, "record of %zu bytes", record.size);
    bool is_lost = false;
    if (rv == 0) {
        switch (answer.code) {
            case MST_V2_OK:
                index_note(etcd, answer.node.modified, answer.node.modified);
                *ret_stored = (struct mst__stored){.exists = true};
                *ret_won = true;
                rv = make_token(answer.node.modified, &ret_stored->token, reterr);
                break;
            case MST_V2_EXISTS:
            case MST_V2_COMPARE_FAILED:
            case MST_V2_NOT_FOUND: /* it has expired or was deleted */
                is_lost = true;
                break;
            default:
                rv = fail_answer(etcd, &answer, reterr);
                break;
        }
    }
    mst__buf_close(&text);
    mst__v2_answer_close(&answer);
    if (is_lost) {
        *ret_won = false;
        *ret_stored = (struct mst__stored){.is_unread = may_be_unread};
    }
    if (is_lost && !may_be_unread) {
        rv = etcd_v2_get_state(etcd, until, ret_stored, reterr);
    }
    return rv;
}

/* --- waiting --- */

/* The first index of an event that means another record than @modified; 0 = it is known to be
 * another already. */
static uint64_t wait_from(struct etcd_v2 *etcd, uint64_t modified)
{
    (void)pthread_mutex_lock(&etcd->mutex);
    bool is_seen = etcd->seen_modified == modified;
    bool is_past = !is_seen && etcd->seen_index > modified && modified != 0;
    uint64_t index = is_seen ? etcd->seen_index : modified;
    (void)pthread_mutex_unlock(&etcd->mutex);
    return is_past ? 0 : index + 1;
}

static int etcd_v2_wait_change(void *self,
                               const struct mst_bytes *token,
                               uint64_t skip,
                               struct mst__until until,
                               struct mst_err *reterr)
{
    struct etcd_v2 *etcd = self;
    uint64_t modified = read_token(token);
    uint64_t from = wait_from(etcd, modified);
    from += from == 0 ? 0 : skip; /* every change raises the index of the whole etcd */
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    int rv = 0;
    while (rv == 0 && from != 0) {
        rv = mst__v2_wait(etcd->v2, etcd->key, false, from, until, &answer, reterr);
        if (rv != 0 || answer.code != MST_V2_INDEX_CLEARED) {
            break;
        }
        /* The etcd no longer has the events since then: read the key, and watch from its index
         * on. */
        rv = read_key(etcd, until, &answer, reterr);
        if (rv == 0) {
            uint64_t now = answer.code == MST_V2_OK ? answer.node.modified : 0;
            index_note(etcd, now, answer.index);
            from = now == modified ? answer.index + 1 : 0;
        }
    }
    bool is_value = rv == 0 && from != 0 && answer.code == MST_V2_OK && !answer.node.is_dir &&
                    answer.action != MST_V2_DELETE && answer.action != MST_V2_EXPIRE &&
                    answer.action != MST_V2_COMPARE_AND_DELETE;
    if (is_value) {
        keep_fresh(etcd, &answer); /* the event has the record as it was then */
    }
    mst__v2_answer_close(&answer);
    if (rv == MST_ECONN || rv == MST_EUNKNOWN) {
        /* The caller's next read reports the error. Pause first, so that an etcd that accepts
         * requests and drops polls is not flooded. */
        until = mst__until_sooner(until, mst__clock_deadline_ms(AGAIN_MS_FIRST));
        (void)mst__until_pause(until.wake_fd, until.deadline_ms * 1000);
    }
    return rv;
}

/* --- making one --- */

static void etcd_v2_close(void *self)
{
    struct etcd_v2 *etcd = self;
    if (etcd == NULL) {
        return;
    }
    if (etcd->v2 != NULL) {
        char key[MST_LOG_QUOTE_SIZE];
        mst__log(&etcd->params->log, MST_LOG_DEBUG, "etcd.requests", "key=%s count=%" PRIu64,
                 mst__log_quote(mst_bytes_str(etcd->key), key), mst__v2_requests(etcd->v2));
    }
    mst_store_close(etcd->store);
    mst__v2_answer_close(&etcd->fresh);
    mst__v2_free(etcd->v2);
    (void)pthread_mutex_destroy(&etcd->mutex); /* not held any more */
    mst__etcd_v2_settings_close(&etcd->settings);
    mst_params_free(etcd->params);
    mst__free(etcd->key);
    mst__free(etcd->where);
    mst__free(etcd);
}

static const struct mst__record_home_ops etcd_v2_ops = {
    .get_state = etcd_v2_get_state,
    .set_state = etcd_v2_set_state,
    .wait_change = etcd_v2_wait_change,
    .store = etcd_v2_store,
    .close = etcd_v2_close,
};

static int name(struct etcd_v2 *etcd, struct mst_err *reterr)
{
    const struct mst__etcd_settings *settings = &etcd->settings.etcd;
    const char *run_id = etcd->params->run_id;
    size_t key_size = sizeof MST_ETCD_V2_RECORD + strlen(run_id);
    size_t where_size = MST_ENDPOINT_TEXT_SIZE + 16;
    char text[MST_ENDPOINT_TEXT_SIZE];
    etcd->key = mst__malloc(key_size);
    etcd->where = mst__malloc(where_size);
    if (etcd->key == NULL || etcd->where == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "rendezvous '%.60s'", run_id);
    }
    (void)snprintf(etcd->key, key_size, MST_ETCD_V2_RECORD "%s", run_id); /* both fit */
    (void)snprintf(etcd->where, where_size, "%s://%s", settings->is_tls ? "https" : "http",
                   mst__endpoint_format(&settings->endpoints[0], text));
    return 0;
}

static int prepare(struct etcd_v2 *etcd, const struct mst_params *params, struct mst_err *reterr)
{
    int rv = mst__params_copy(params, &etcd->params, reterr);
    if (rv == 0) {
        rv = mst__etcd_v2_read(etcd->params, &etcd->settings, reterr);
    }
    if (rv == 0) {
        rv = name(etcd, reterr);
    }
    if (rv == 0) {
        const struct mst__http_options http =
            mst__etcd_http(&etcd->settings.etcd, &etcd->params->log);
        rv = mst__v2_new(&http, &etcd->v2, reterr);
    }
    return rv;
}

int mst__etcd_v2_home_new(const struct mst_params *params,
                          struct mst__record_home *ret_home,
                          struct mst__dynamic *ret_dynamic,
                          struct mst_err *reterr)
{
    struct etcd_v2 *etcd = mst__calloc(1, sizeof *etcd);
    if (etcd == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "rendezvous");
    }
    (void)pthread_mutex_init(&etcd->mutex, NULL); /* never fails on Linux */
    int rv = prepare(etcd, params, reterr);
    if (rv != 0) {
        etcd_v2_close(etcd);
        return rv;
    }
    *ret_dynamic = etcd->settings.dynamic;
    *ret_home = (struct mst__record_home){
        .ops = &etcd_v2_ops,
        .self = etcd,
        .where = etcd->where,
        .call_ms = etcd->settings.etcd.read_timeout_ms,
        .write_us = WRITE_US,
        .is_lazy = true,
        .is_by_key = true, /* reading several lists the store of all jobs */
    };
    return 0;
}

int mst__etcd_v2_create(const struct mst_params *params,
                        void *arg,
                        struct mst_handler **ret_handler,
                        struct mst_err *reterr)
{
    (void)arg; /* the same for all */
    struct mst__record_options options = {0};
    int rv = mst__etcd_v2_home_new(params, &options.home, &options.dynamic, reterr);
    if (rv != 0) {
        return rv;
    }
    const struct etcd_v2 *etcd = options.home.self;
    options.endpoint = &etcd->settings.etcd.endpoints[0];
    rv = mst__record_handler(params, &options, ret_handler, reterr);
    if (rv != 0) {
        etcd_v2_close(options.home.self);
    }
    return rv;
}
