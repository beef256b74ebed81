/* agent/control_store.c - opens the store of a job's commands, at its server or its etcd. */
#include "agent/control_store.h"

#include <stdio.h>

#include "agent/control_keys.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/percent.h"
#include "handler/etcd_settings.h"
#include "handler/params.h"
#include "handler/registry.h"
#include "handler/settings.h"
#include "store/store.h"

enum mst__control_kind_of_store mst__control_store_kind(const char *backend)
{
    if (!mst__backend_can(backend, MST_BACKEND_COMMANDS)) {
        return MST_CONTROL_NOWHERE;
    }
    return mst__backend_can(backend, MST_BACKEND_ETCD) ? MST_CONTROL_ETCD : MST_CONTROL_SERVER;
}

/* --- at a server --- */

static int open_prefix(struct mst_store *all,
                       const char *run_id,
                       struct mst_store **ret_store,
                       struct mst_err *reterr)
{
    char prefix[sizeof MST_CONTROL_PREFIX + MST_JOB_RUN_ID_SIZE_MAX];
    (void)snprintf(prefix, sizeof prefix, MST_CONTROL_PREFIX "%s", run_id);
    int rv = mst_store_prefix(all, mst_bytes_str(prefix), ret_store, reterr);
    mst_store_close(all);
    return rv;
}

int mst__control_store_beside(struct mst_store *store,
                              const char *run_id,
                              struct mst_store **ret_store,
                              struct mst_err *reterr)
{
    struct mst__storage *storage = store->storage;
    struct mst_store *all = NULL;
    int rv = 0;
    if (storage->ops->clone != NULL) {
        rv = storage->ops->clone(storage, &storage, reterr);
        rv = rv == 0 ? mst__store_first(storage, &all, reterr) : rv;
    } else {
        rv = mst__store_new(storage, mst_bytes_str(storage->key_root), false, &all, reterr);
    }
    return rv == 0 ? open_prefix(all, run_id, ret_store, reterr) : rv;
}

static int open_server(const struct mst_params *params,
                       struct mst__until until,
                       struct mst_store **ret_store,
                       struct mst_err *reterr)
{
    struct mst__c10d place;
    struct mst_store *all = NULL;
    int rv = mst__c10d_read(params, &place, reterr);
    if (rv == 0 && place.is_file) {
        rv = mst__fail(reterr, MST_ENOTSUP, 0,
                       "agents that meet in a file take no commands; those at a server do");
    }
    char *url = rv == 0 ? mst__endpoint_url(&place.endpoint) : NULL;
    if (rv == 0 && url == NULL) {
        rv = mst__fail(reterr, MST_ENOMEM, 0, "store of a job's commands");
    }
    rv = rv == 0 ? mst__store_open(url, NULL, until, &all, reterr) : rv;
    mst__free(url);
    return rv == 0 ? open_prefix(all, mst_params_run_id(params), ret_store, reterr) : rv;
}

/* --- at an etcd --- */

#ifdef MST_WITH_ETCD

/* The name of a job's directory. */
static void etcd_root(const char *run_id, char *ret_root, size_t size)
{
    size_t used = (size_t)snprintf(ret_root, size, "/" MST_CONTROL_PREFIX); /* fits */
    (void)mst__percent_write(mst_bytes_str(run_id), MST_PERCENT_NAME, ret_root + used, size - used);
}

/* Read the settings of @params. Commands have no limits of the job; they do not matter here. */
static int read_etcd(const struct mst_params *params,
                     struct mst_params **ret_copy,
                     struct mst__etcd_v3_settings *ret_settings,
                     struct mst_err *reterr)
{
    int rv = mst__params_copy(params, ret_copy, reterr);
    if (rv == 0 && mst_params_nodes_max(params) == 0) {
        rv = mst_params_set_nodes(*ret_copy, 1, 1, reterr);
    }
    return rv == 0 ? mst__etcd_v3_read(*ret_copy, ret_settings, reterr) : rv;
}

/* The keys have a lease that all agents keep alive, so they end with the last agent. */
static int open_etcd(const struct mst_params *params,
                     struct mst__until until,
                     struct mst_store **ret_store,
                     struct mst_err *reterr)
{
    char root[sizeof MST_CONTROL_PREFIX + 3 * MST_JOB_RUN_ID_SIZE_MAX + 2];
    const struct mst_log log = {0};
    struct mst_params *copy = NULL;
    struct mst__etcd_v3_settings settings = {0};
    struct mst_store_options options;
    struct mst__storage *storage = NULL;
    mst_store_options_init(&options, sizeof options);
    etcd_root(mst_params_run_id(params), root, sizeof root);
    int rv = read_etcd(params, &copy, &settings, reterr);
    if (rv == 0) {
        const struct mst__http_options http = mst__etcd_http(&settings.etcd, &log);
        rv = mst__etcd3_open(&http, root, MST_CONTROL_LEASE_S, &options, until, &storage, reterr);
    }
    mst__etcd_v3_settings_close(&settings);
    mst_params_free(copy);
    return rv == 0 ? mst__store_first(storage, ret_store, reterr) : rv;
}

#else

static int open_etcd(const struct mst_params *params,
                     struct mst__until until,
                     struct mst_store **ret_store,
                     struct mst_err *reterr)
{
    (void)until;
    (void)ret_store;
    return mst__fail(reterr, MST_ENOTSUP, 0,
                     "backend '%.60s': this muster was built without etcd; build it with libcurl "
                     "and jansson",
                     mst_params_backend(params));
}

#endif /* MST_WITH_ETCD */

int mst__control_store_open(const struct mst_params *params,
                            struct mst__until until,
                            struct mst_store **ret_store,
                            struct mst_err *reterr)
{
    switch (mst__control_store_kind(mst_params_backend(params))) {
        case MST_CONTROL_SERVER:
            return open_server(params, until, ret_store, reterr);
        case MST_CONTROL_ETCD:
            return open_etcd(params, until, ret_store, reterr);
        case MST_CONTROL_NOWHERE:
            break;
    }
    return mst__fail(reterr, MST_ENOTSUP, 0,
                     "agents of backend '%.40s' take no commands; those of muster, etcd-v3 "
                     "and c10d do",
                     mst_params_backend(params));
}
