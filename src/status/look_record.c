/* status/look_record.c - jobs with a record in a store: backend `c10d`, and the common part with
 * `etcd-v2`. Writes nothing, and creates no file. */
#include "status/look_record.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/endpoint.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "codec/pickle.h"
#include "handler/settings.h"
#include "record/c10d.h"
#include "status/look.h"

int mst__look_record(const struct mst_params *params,
                     const struct mst__settings *settings,
                     struct mst_bytes pickle,
                     struct mst__snapshot **ret_snapshot,
                     struct mst_err *reterr)
{
    struct mst__state state;
    mst__state_init(&state);
    int rv = pickle.size == 0 ? 0 : mst__pickle_read(pickle, &state, reterr);
    if (rv == MST_EPROTO) {
        reterr->code = MST_ESTATE;
        rv = mst__err_wrap(reterr, MST_ESTATE, "the data of '%.80s' is not a rendezvous",
                           mst_params_run_id(params));
    } else if (rv == 0) {
        *ret_snapshot = mst__snapshot_of_record(
            mst_params_backend(params), mst_bytes_str(mst_params_run_id(params)), &state,
            pickle.size > 0, settings, mst__clock_wall_us(), &rv);
        rv = rv == 0 ? 0 : mst__fail(reterr, rv, 0, "status");
    }
    mst__state_close(&state);
    return rv;
}

/* --- the store of c10d --- */

struct look {
    const struct mst_params *params;
    struct mst_store *store; /* NULL while there is none */
    struct mst__c10d place;
    struct mst__settings settings;
};

static int look_open(const struct mst_params *params,
                     int64_t nodes_min,
                     int64_t nodes_max,
                     void **ret_self,
                     struct mst_err *reterr)
{
    struct mst__dynamic dynamic;
    struct mst__c10d place;
    int rv = mst__dynamic_read(params, &dynamic, reterr);
    rv = rv == 0 ? mst__c10d_read(params, &place, reterr) : rv;
    if (rv == 0 && place.is_file && place.path[0] == '\0') {
        rv = mst__fail(reterr, MST_EINVAL, 0, "the endpoint is missing: the path of the file");
    }
    struct look *look = rv == 0 ? mst__calloc(1, sizeof *look) : NULL;
    if (look == NULL) {
        return rv != 0 ? rv : mst__fail(reterr, MST_ENOMEM, 0, "rendezvous");
    }
    *look = (struct look){.params = params, .place = place, .settings = dynamic.settings};
    look->settings.nodes_min = nodes_min;
    look->settings.nodes_max = nodes_max;
    *ret_self = look;
    return 0;
}

static void look_close(void *self)
{
    struct look *look = self;
    mst_store_close(look->store);
    mst__free(look);
}

/* The URL of @path, made absolute: heap. */
static int file_url(const char *path, char **ret_url, struct mst_err *reterr)
{
    char absolute[2 * PATH_MAX] = "";
    if (path[0] != '/' && getcwd(absolute, PATH_MAX) == NULL) {
        return mst__fail(reterr, MST_ESYS, errno, "current directory");
    }
    size_t used = strlen(absolute);
    (void)snprintf(absolute + used, sizeof absolute - used, "%s%s", path[0] == '/' ? "" : "/",
                   path); /* fits: access knows @path */
    *ret_url = mst__url_text("file://", absolute);
    return *ret_url != NULL ? 0 : mst__fail(reterr, MST_ENOMEM, 0, "path '%.100s'", path);
}

/* A missing file is not an error: there is no store. */
static int connect_file(struct look *look, struct mst_err *reterr)
{
    const char *path = look->place.path;
    if (access(path, F_OK) != 0) {
        return errno == ENOENT ? 0 : mst__fail(reterr, MST_ESYS, errno, "file '%.100s'", path);
    }
    char *url = NULL;
    int rv = file_url(path, &url, reterr);
    rv = rv == 0 ? mst_store_open(url, NULL, 0, &look->store, reterr) : rv;
    mst__free(url);
    return rv;
}

static int connect_tcp(struct look *look, int64_t timeout_ms, struct mst_err *reterr)
{
    char *url = mst__endpoint_url(&look->place.endpoint);
    if (url == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "rendezvous");
    }
    struct mst_store_options options;
    mst_store_options_init(&options, sizeof options);
    options.value_size_max = MST_VALUE_SIZE_MAX; /* reading allocates only what is there */
    int rv = mst_store_open(url, &options, timeout_ms, &look->store, reterr);
    mst__free(url);
    return rv;
}

/* The text under the key of the record. 0, MST_ENOTFOUND, or an error of the store. */
static int read_text(struct look *look,
                     int64_t timeout_ms,
                     struct mst_buffer *ret_text,
                     struct mst_err *reterr)
{
    struct mst__buf key;
    int rv = 0;
    if (look->store == NULL) {
        rv = look->place.is_file ? connect_file(look, reterr)
                                 : connect_tcp(look, timeout_ms, reterr);
    }
    if (rv != 0 || look->store == NULL) {
        return rv != 0 ? rv : MST_ENOTFOUND;
    }
    mst__buf_init(&key, MST_KEY_SIZE_MAX);
    rv = mst__buf_append(&key, mst_bytes_str(MST_RECORD_PREFIX));
    rv = rv == 0 ? mst__buf_append(&key, mst_bytes_str(mst_params_run_id(look->params))) : rv;
    rv = rv != 0
             ? mst__fail(reterr, rv, 0, "run id '%.60s'", mst_params_run_id(look->params))
             : mst_store_try_get(look->store, mst__buf_bytes(&key), timeout_ms, ret_text, reterr);
    mst__buf_close(&key);
    return rv;
}

static int look_read(void *self,
                     int64_t timeout_ms,
                     struct mst__snapshot **ret_snapshot,
                     struct mst_err *reterr)
{
    struct look *look = self;
    struct mst_buffer value = {0};
    struct mst_err err = {0};
    int rv = read_text(look, timeout_ms, &value, &err);
    if (rv == MST_ENOTFOUND) {
        return mst__look_absent(look->params, MST_LOOK_NONE, ret_snapshot, reterr);
    }
    struct mst__buf pickle;
    mst__buf_init(&pickle, MST_VALUE_SIZE_MAX);
    struct mst_bytes text = mst_bytes_of(value.data, value.size);
    bool is_none = mst__bytes_equal(text, mst_bytes_str(MST_C10D_SENTINEL));
    if (rv == 0 && !is_none) {
        rv = mst__base64_read(&pickle, text);
        bool is_other = rv == MST_EPROTO || (rv == 0 && mst__buf_size(&pickle) == 0);
        rv = is_other  ? mst__fail(&err, MST_ESTATE, 0,
                                   "the data at '" MST_RECORD_PREFIX "%.80s' is not a rendezvous",
                                   mst_params_run_id(look->params))
             : rv == 0 ? 0
                       : mst__fail(&err, rv, 0, "record");
    }
    if (rv == 0) {
        rv = mst__look_record(look->params, &look->settings, mst__buf_bytes(&pickle), ret_snapshot,
                              &err);
    }
    mst__buf_close(&pickle);
    mst_buffer_free(&value);
    return rv == 0 ? 0 : mst__err_pass(reterr, rv, &err);
}

const struct mst__look_ops mst__look_c10d = {
    .open = look_open,
    .read = look_read,
    .close = look_close,
};
