/* record/c10d.c - the record in a c10d store.
 *
 * The key always exists: a sentinel stands for no record, so that a compare-and-set has a value
 * to compare with. If the store has lost its data, the first node that notices writes the
 * sentinel again. The token of a record is its stored text. */
#include "record/c10d.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/until.h"
#include "handler/builtin.h"
#include "handler/hosted.h"
#include "handler/params.h"
#include "handler/settings.h"
#include "net/resolve.h"
#include "record/record.h"
#include "store/store.h"

struct c10d {
    char *key;
    char *where;
    char *path;       /* of a file store */
    bool is_path_own; /* a temporary file that only we know */
    struct mst__url url;
    struct mst_params *params; /* a copy; the place borrows from it */
    struct mst__c10d place;
    bool is_open; /* the endpoint's name is not known yet: this node may serve when it is */
    struct mst_log log;
    pthread_mutex_t mutex; /* guards all below; what is above changes only while is_opening */
    pthread_cond_t cond;
    bool is_opening;            /* a thread opens the store, without the lock */
    struct mst__hosted *hosted; /* NULL = another process serves the store */
    struct mst_store *store;
};

/* --- the store --- */

static int open_storage(struct c10d *c10d,
                        const struct mst_store_options *options,
                        struct mst__until until,
                        struct mst__storage **ret_storage,
                        struct mst_err *reterr)
{
    return c10d->url.scheme == MST_URL_FILE
               ? mst__file_open(&c10d->url, options, ret_storage, reterr)
               : mst__tcp_open(&c10d->url, options, until, ret_storage, reterr);
}

/* Wait until the name of the endpoint is known: nodes may start before the one that it means. That
 * one finds it out here, and serves. */
static int settle(struct c10d *c10d, struct mst__until until, struct mst_err *reterr)
{
    struct mst__hosted *hosted = NULL;
    struct addrinfo *addresses = NULL;
    bool is_name =
        c10d->url.scheme == MST_URL_TCP && mst__endpoint_path(&c10d->url.endpoint) == NULL;
    int rv =
        is_name ? mst__resolve_patiently(&c10d->url.endpoint, until, &c10d->log, &addresses, reterr)
                : 0;
    if (addresses != NULL) {
        freeaddrinfo(addresses);
    }
    if (rv == 0 && c10d->is_open) {
        rv = mst__hosted_begin(&c10d->place, c10d->params, until, &hosted, &c10d->url.endpoint,
                               &c10d->is_open, reterr);
        (void)pthread_mutex_lock(&c10d->mutex); /* a default mutex: cannot fail */
        c10d->hosted = hosted;
        (void)pthread_mutex_unlock(&c10d->mutex);
    }
    return rv;
}

static int open_store(struct c10d *c10d,
                      struct mst__until until,
                      struct mst_store **ret_store,
                      struct mst_err *reterr)
{
    struct mst_store_options options;
    mst_store_options_init(&options, sizeof options);
    options.log = c10d->log;
    struct mst__storage *storage = NULL;
    int rv = settle(c10d, until, reterr);
    rv = rv == 0 ? open_storage(c10d, &options, until, &storage, reterr) : rv;
    return rv == 0 ? mst__store_first(storage, ret_store, reterr) : rv;
}

/* Wait while another thread opens the store, until our own deadline. With the mutex held. */
static void await_opening(struct c10d *c10d, struct mst__until until)
{
    while (c10d->is_opening && mst__until_cond(until, &c10d->cond, &c10d->mutex) == 0) {
    }
}

/* Open the store on first use: its server may start last. */
static int c10d_store(void *self,
                      struct mst__until until,
                      struct mst_store **ret_store,
                      struct mst_err *reterr)
{
    struct c10d *c10d = self;
    int rv = 0;
    (void)pthread_mutex_lock(&c10d->mutex); /* a default mutex: cannot fail */
    await_opening(c10d, until);
    if (c10d->store == NULL && c10d->is_opening) {
        rv = mst__fail(reterr, MST_ETIMEOUT, 0, "%s: not connected when the deadline passed",
                       c10d->where);
    } else if (c10d->store == NULL) {
        struct mst_store *store = NULL;
        c10d->is_opening = true;
        (void)pthread_mutex_unlock(&c10d->mutex);
        rv = open_store(c10d, until, &store, reterr);
        (void)pthread_mutex_lock(&c10d->mutex);
        c10d->is_opening = false;
        c10d->store = store;
        (void)pthread_cond_broadcast(&c10d->cond); /* cannot fail */
    }
    *ret_store = c10d->store;
    (void)pthread_mutex_unlock(&c10d->mutex);
    return rv;
}

/* --- the record --- */

static bool is_sentinel(struct mst_bytes value)
{
    return mst__bytes_equal(value, mst_bytes_str(MST_C10D_SENTINEL));
}

/* Decode the stored text @value, which is taken, into a record. */
static int decode(const struct c10d *c10d,
                  struct mst_buffer *value,
                  struct mst__stored *ret_stored,
                  struct mst_err *reterr)
{
    struct mst_bytes text = mst_bytes_of(value->data, value->size);
    if (is_sentinel(text)) {
        mst_buffer_free(value);
        *ret_stored = (struct mst__stored){.exists = false};
        return 0;
    }
    struct mst__buf record;
    mst__buf_init(&record, MST_PICKLE_SIZE_MAX);
    struct mst__stored stored = {.exists = true};
    int rv = mst__base64_read(&record, text);
    if (rv == 0) {
        rv = mst__buf_release(&record, &stored.record);
    }
    mst__buf_close(&record);
    if (rv != 0) {
        mst_buffer_free(value);
        return mst__fail(reterr, rv == MST_EPROTO ? MST_ESTATE : rv, 0,
                         "%s: the data under '%.60s' is not a rendezvous record", c10d->where,
                         c10d->key);
    }
    stored.token = *value;
    *value = (struct mst_buffer){NULL, 0};
    *ret_stored = stored;
    return 0;
}

/* compare_set; @ret_value is the value afterwards, the sentinel if the key did not exist. */
static int compare_set(struct c10d *c10d,
                       struct mst_store *store,
                       struct mst_bytes expected,
                       struct mst_bytes desired,
                       struct mst__until until,
                       struct mst_buffer *ret_value,
                       struct mst_err *reterr)
{
    enum mst_compare_set outcome;
    struct mst_bytes key = mst_bytes_str(c10d->key);
    int rv =
        mst__store_compare_set(store, key, expected, desired, until, &outcome, ret_value, reterr);
    if (rv != 0 || outcome != MST_COMPARE_SET_ABSENT) {
        return rv;
    }
    mst_buffer_free(ret_value);
    struct mst_bytes nothing = mst_bytes_of(NULL, 0);
    return mst__store_compare_set(store, key, nothing, mst_bytes_str(MST_C10D_SENTINEL), until,
                                  &outcome, ret_value, reterr);
}

static int c10d_get_state(void *self,
                          struct mst__until until,
                          struct mst__stored *ret_stored,
                          struct mst_err *reterr)
{
    struct c10d *c10d = self;
    struct mst_store *store = NULL;
    struct mst_buffer value = {NULL, 0};
    int rv = c10d_store(c10d, until, &store, reterr);
    if (rv == 0) {
        rv = mst__store_fetch(store, mst_bytes_str(c10d->key), MST_OP_GET, false, until, &value,
                              reterr);
    }
    if (rv == MST_ENOTFOUND) {
        rv = compare_set(c10d, store, mst_bytes_of(NULL, 0), mst_bytes_str(MST_C10D_SENTINEL),
                         until, &value, reterr);
    }
    return rv != 0 ? rv : decode(c10d, &value, ret_stored, reterr);
}

static int c10d_set_state(void *self,
                          struct mst_bytes record,
                          const struct mst_bytes *token,
                          bool may_be_unread,
                          struct mst__until until,
                          bool *ret_won,
                          struct mst__stored *ret_stored,
                          struct mst_err *reterr)
{
    (void)may_be_unread; /* the reply has it */
    struct c10d *c10d = self;
    struct mst_store *store = NULL;
    struct mst_buffer value = {NULL, 0};
    struct mst__buf text;
    mst__buf_init(&text, MST_VALUE_SIZE_MAX);
    int rv = c10d_store(c10d, until, &store, reterr);
    if (rv == 0) {
        rv = mst__base64_write(&text, record);
        rv = rv == 0 ? 0 : mst__fail(reterr, rv, 0, "record of %zu bytes", record.size);
    }
    struct mst_bytes desired = mst__buf_bytes(&text);
    struct mst_bytes expected = token == NULL ? mst_bytes_str(MST_C10D_SENTINEL) : *token;
    if (rv == 0) {
        rv = compare_set(c10d, store, expected, desired, until, &value, reterr);
    }
    if (rv == 0) {
        bool won = mst__bytes_equal(mst_bytes_of(value.data, value.size), desired);
        if (won) {
            *ret_stored = (struct mst__stored){.exists = true, .token = value};
        } else {
            rv = decode(c10d, &value, ret_stored, reterr);
        }
        *ret_won = won;
    }
    mst__buf_close(&text);
    return rv;
}

static int c10d_wait_change(void *self,
                            const struct mst_bytes *token,
                            uint64_t skip,
                            struct mst__until until,
                            struct mst_err *reterr)
{
    (void)skip; /* the store compares values and does not count changes */
    struct c10d *c10d = self;
    struct mst_store *store = NULL;
    struct mst_bytes sentinel = mst_bytes_str(MST_C10D_SENTINEL);
    int rv = c10d_store(c10d, until, &store, reterr);
    return rv != 0 ? rv
                   : mst__store_wait_change(store, mst_bytes_str(c10d->key),
                                            token == NULL ? &sentinel : token, until, reterr);
}

static const struct mst__hosted *c10d_hosted(void *self, const struct mst__endpoint **ret_server)
{
    struct c10d *c10d = self;
    (void)pthread_mutex_lock(&c10d->mutex); /* a default mutex: cannot fail */
    const struct mst__hosted *hosted = c10d->hosted;
    (void)pthread_mutex_unlock(&c10d->mutex);
    *ret_server = &c10d->url.endpoint;
    return hosted;
}

static void c10d_close(void *self)
{
    struct c10d *c10d = self;
    if (c10d == NULL) {
        return;
    }
    mst_store_close(c10d->store);
    mst__hosted_stop(c10d->hosted);
    if (c10d->is_path_own) {
        (void)unlink(c10d->path); /* ours; it may be gone already */
    }
    (void)pthread_cond_destroy(&c10d->cond); /* no thread waits any more */
    (void)pthread_mutex_destroy(&c10d->mutex);
    mst__free(c10d->key);
    mst__free(c10d->where);
    mst__free(c10d->path);
    mst_params_free(c10d->params);
    mst__free(c10d);
}

static const struct mst__record_home_ops c10d_ops = {
    .get_state = c10d_get_state,
    .set_state = c10d_set_state,
    .wait_change = c10d_wait_change,
    .store = c10d_store,
    .hosted = c10d_hosted,
    .close = c10d_close,
};

/* --- making one --- */

static struct c10d *c10d_new(const char *run_id, const char *where)
{
    struct c10d *c10d = mst__calloc(1, sizeof *c10d);
    if (c10d == NULL) {
        return NULL;
    }
    (void)pthread_mutex_init(&c10d->mutex, NULL); /* none of these fails on Linux */
    mst__cond_init(&c10d->cond);
    size_t key_size = sizeof MST_RECORD_PREFIX + strlen(run_id);
    c10d->key = mst__malloc(key_size);
    c10d->where = mst__strdup(where);
    if (c10d->key == NULL || c10d->where == NULL) {
        c10d_close(c10d);
        return NULL;
    }
    (void)snprintf(c10d->key, key_size, MST_RECORD_PREFIX "%s", run_id); /* sized to fit */
    return c10d;
}

int mst__c10d_home_new(struct mst_store *store,
                       const char *run_id,
                       const char *where,
                       int64_t call_ms,
                       struct mst__record_home *ret_home,
                       struct mst_err *reterr)
{
    struct c10d *c10d = c10d_new(run_id, where);
    if (c10d == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "rendezvous '%.60s'", run_id);
    }
    c10d->store = store;
    *ret_home = (struct mst__record_home){
        .ops = &c10d_ops, .self = c10d, .where = c10d->where, .call_ms = call_ms};
    return 0;
}

static int use_tcp(struct c10d *c10d, const struct mst_params *params, struct mst_err *reterr)
{
    c10d->url = (struct mst__url){.scheme = MST_URL_TCP};
    int rv = mst__params_copy(params, &c10d->params, reterr);
    rv = rv == 0 ? mst__c10d_read(c10d->params, &c10d->place, reterr) : rv;
    return rv == 0 ? mst__hosted_begin(&c10d->place, c10d->params, mst__until_at(INT64_MAX),
                                       &c10d->hosted, &c10d->url.endpoint, &c10d->is_open, reterr)
                   : rv;
}

/* Make the file of a rendezvous without a path: for one node only. */
static int make_file(struct c10d *c10d, struct mst_err *reterr)
{
    const char *directory = getenv("TMPDIR");
    if (directory == NULL || directory[0] == '\0') {
        directory = "/tmp";
    }
    size_t size = strlen(directory) + sizeof "/muster-rendezvous-XXXXXX";
    c10d->path = mst__malloc(size);
    if (c10d->path == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "temporary file");
    }
    (void)snprintf(c10d->path, size, "%s/muster-rendezvous-XXXXXX", directory); /* sized to fit */
    int fd = mkostemp(c10d->path, O_CLOEXEC);
    if (fd < 0) {
        return mst__fail(reterr, MST_ESYS, errno, "make a temporary file '%s'", c10d->path);
    }
    (void)close(fd); /* nothing was written */
    c10d->is_path_own = true;
    return 0;
}

static int use_file(struct c10d *c10d, const struct mst__c10d *settings, struct mst_err *reterr)
{
    int rv = 0;
    if (settings->path[0] == '\0') {
        rv = make_file(c10d, reterr);
    } else {
        c10d->path = mst__strdup(settings->path);
        rv = c10d->path != NULL ? 0 : mst__fail(reterr, MST_ENOMEM, 0, "path");
    }
    c10d->url = (struct mst__url){.scheme = MST_URL_FILE, .path = c10d->path};
    return rv;
}

int mst__c10d_create(const struct mst_params *params,
                     void *arg,
                     struct mst_handler **ret_handler,
                     struct mst_err *reterr)
{
    (void)arg; /* the same for all */
    struct mst__dynamic dynamic;
    struct mst__c10d settings;
    int rv = mst__dynamic_read(params, &dynamic, reterr);
    if (rv == 0) {
        rv = mst__c10d_read(params, &settings, reterr);
    }
    if (rv != 0) {
        return rv;
    }
    char where[MST_ENDPOINT_TEXT_SIZE + 8];
    char text[MST_ENDPOINT_TEXT_SIZE];
    (void)snprintf(where, sizeof where, "%s%.*s",
                   settings.is_file                                 ? "file://"
                   : mst__endpoint_path(&settings.endpoint) != NULL ? ""
                                                                    : "tcp://",
                   MST_ENDPOINT_TEXT_SIZE - 1,
                   settings.is_file ? settings.path
                                    : mst__endpoint_format(&settings.endpoint, text));
    struct mst__record_home home;
    rv = mst__c10d_home_new(NULL, params->run_id, where, settings.read_timeout_ms, &home, reterr);
    if (rv != 0) {
        return rv;
    }
    struct c10d *c10d = home.self;
    c10d->log = params->log;
    rv = settings.is_file ? use_file(c10d, &settings, reterr) : use_tcp(c10d, params, reterr);
    if (rv != 0) {
        c10d_close(c10d);
        return rv;
    }
    if (c10d->hosted != NULL) {
        mst__hosted_place(c10d->hosted, &settings.endpoint);
    }
    const struct mst__record_options options = {
        .home = home,
        .dynamic = dynamic,
        .endpoint = settings.is_file ? NULL : &settings.endpoint,
        .linger_ms = settings.linger_ms,
    };
    rv = mst__record_handler(params, &options, ret_handler, reterr);
    if (rv != 0) {
        c10d_close(c10d);
    }
    return rv;
}
