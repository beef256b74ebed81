/* handler/registry.c - the backends of the process, by name. Entries are never removed, so a
 * creator may be called without the lock. */
#include <pthread.h>
#include <string.h>

#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/require.h"
#include "base/sized.h"
#include "handler/builtin.h"
#include "handler/handler.h"
#include "handler/registry.h"

struct entry {
    const char *name;
    mst_handler_creator creator;
    void *arg;
    const struct mst__known *known; /* options; NULL = not listed */
    bool is_checked;                /* check the options before calling the creator */
    uint32_t capabilities;
    const struct mst__look_ops *look; /* NULL = it has no way of its own */
};

#ifdef MST_WITH_ETCD
#define ETCD_V2_CREATE mst__etcd_v2_create
#define ETCD_V3_CREATE mst__etcd_v3_create
#define LEGACY_CREATE mst__legacy_create
#define ETCD_V2_KNOWN &mst__etcd_v2_known
#define ETCD_V3_KNOWN &mst__etcd_v3_known
#define LEGACY_KNOWN &mst__legacy_known
#define ETCD_V2_LOOK &mst__look_etcd_v2
#define ETCD_V3_LOOK &mst__look_etcd_v3
#define LEGACY_LOOK &mst__look_etcd
#else
/* The backend is known but was not built in. */
static int refuse(const struct mst_params *params,
                  void *arg,
                  struct mst_handler **ret_handler,
                  struct mst_err *reterr)
{
    (void)arg; /* the message is the same for all */
    (void)ret_handler;
    return mst__fail(reterr, MST_ENOTSUP, 0,
                     "backend '%.60s': this muster was built without etcd; build it with libcurl "
                     "and jansson",
                     mst_params_backend(params));
}
#define ETCD_V2_CREATE refuse
#define ETCD_V3_CREATE refuse
#define LEGACY_CREATE refuse
#define ETCD_V2_KNOWN NULL
#define ETCD_V3_KNOWN NULL
#define LEGACY_KNOWN NULL
#define ETCD_V2_LOOK NULL
#define ETCD_V3_LOOK NULL
#define LEGACY_LOOK NULL
#endif

#define MUSTER_CAN                                                                      \
    (MST_BACKEND_SERVER | MST_BACKEND_NAMES | MST_BACKEND_REASONS | MST_BACKEND_LISTS | \
     MST_BACKEND_COMMANDS)
#define C10D_CAN \
    (MST_BACKEND_SERVER | MST_BACKEND_SHARED | MST_BACKEND_NAMES | MST_BACKEND_COMMANDS)
#define ETCD_V2_CAN (MST_BACKEND_ETCD | MST_BACKEND_SHARED | MST_BACKEND_NAMES)
#define ETCD_V3_CAN \
    (MST_BACKEND_ETCD | MST_BACKEND_NAMES | MST_BACKEND_REASONS | MST_BACKEND_COMMANDS)
#define LEGACY_CAN (MST_BACKEND_ETCD | MST_BACKEND_SHARED)
#define STATIC_CAN (MST_BACKEND_SHARED | MST_BACKEND_GIVEN)

/* Their creators check the options themselves. */
static const struct entry builtins[] = {
    {"muster", mst__muster_create, NULL, &mst__muster_known, false, MUSTER_CAN, &mst__look_muster},
    {"c10d", mst__c10d_create, NULL, &mst__c10d_known, false, C10D_CAN, &mst__look_c10d},
    {"etcd-v2", ETCD_V2_CREATE, NULL, ETCD_V2_KNOWN, false, ETCD_V2_CAN, ETCD_V2_LOOK},
    {"etcd-v3", ETCD_V3_CREATE, NULL, ETCD_V3_KNOWN, false, ETCD_V3_CAN, ETCD_V3_LOOK},
    {"etcd", LEGACY_CREATE, NULL, LEGACY_KNOWN, false, LEGACY_CAN, LEGACY_LOOK},
    {"static", mst__static_create, NULL, &mst__static_known, false, STATIC_CAN, NULL},
};
#define BUILTINS_COUNT (sizeof builtins / sizeof builtins[0])

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* for both below */
static struct entry added[MST_REGISTRY_MAX];
static size_t added_count;

/* With the lock held. */
static const struct entry *find(const char *name)
{
    for (size_t i = 0; i < BUILTINS_COUNT; i++) {
        if (strcmp(builtins[i].name, name) == 0) {
            return &builtins[i];
        }
    }
    for (size_t i = 0; i < added_count; i++) {
        if (strcmp(added[i].name, name) == 0) {
            return &added[i];
        }
    }
    return NULL;
}

/* Copy the options of @backend: one block with the list, the names and their text. NULL = no
 * memory. */
static struct mst__known *copy_known(const struct mst_backend *backend)
{
    size_t list_size = backend->options_count * sizeof(char *);
    size_t size = sizeof(struct mst__known) + list_size;
    for (size_t i = 0; i < backend->options_count; i++) {
        size += strlen(backend->options[i]) + 1;
    }
    struct mst__known *known = mst__malloc(size);
    if (known == NULL) {
        return NULL;
    }
    const char **names = (const char **)(known + 1);
    char *text = (char *)(names + backend->options_count);
    for (size_t i = 0; i < backend->options_count; i++) {
        size_t name_size = strlen(backend->options[i]) + 1;
        names[i] = memcpy(text, backend->options[i], name_size);
        text += name_size;
    }
    *known = (struct mst__known){.names = names, .count = backend->options_count};
    return known;
}

/* With the lock held. */
static int add(const struct mst_backend *backend, struct mst_err *reterr)
{
    const struct entry *present = find(backend->name);
    if (present != NULL) {
        if (present->creator == backend->creator && present->arg == backend->arg) {
            return 0;
        }
        return mst__fail(reterr, MST_EINVAL, 0,
                         "backend '%.60s' already exists with another creator; choose another name",
                         backend->name);
    }
    if (added_count == MST_REGISTRY_MAX) {
        return mst__fail(reterr, MST_ELIMIT, 0,
                         "backend '%.60s': the limit of %d backends is reached", backend->name,
                         MST_REGISTRY_MAX);
    }
    char *name = mst__strdup(backend->name);
    struct mst__known *known = NULL;
    if (name != NULL && backend->options != NULL) {
        known = copy_known(backend);
    }
    if (name == NULL || (backend->options != NULL && known == NULL)) {
        mst__free(name);
        return mst__fail(reterr, MST_ENOMEM, 0, "backend '%.60s'", backend->name);
    }
    added[added_count++] = (struct entry){
        .name = name,
        .creator = backend->creator,
        .arg = backend->arg,
        .known = known,
        .is_checked = known != NULL,
        .capabilities = backend->capabilities,
    };
    return 0;
}

void mst_backend_init(struct mst_backend *backend, size_t size)
{
    mst__sized_init(backend, size, NULL, 0);
}

int mst_registry_add(const struct mst_backend *backend, struct mst_err *reterr)
{
    MST_REQUIRE(backend, reterr);
    struct mst_backend taken = {.size = sizeof taken};
    int rv = mst__sized_take(&taken, sizeof taken, backend, "mst_backend", reterr);
    if (rv != 0) {
        return rv;
    }
    if (taken.name == NULL || taken.name[0] == '\0') {
        return mst__fail(reterr, MST_EINVAL, 0, "a backend needs a name");
    }
    if (taken.creator == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "backend '%.60s' without a creator", taken.name);
    }
    for (size_t i = 0; taken.options != NULL && i < taken.options_count; i++) {
        if (taken.options[i] == NULL) {
            return mst__fail(reterr, MST_EINVAL, 0,
                             "mst_registry_add: backend->options[%zu] is NULL", i);
        }
    }
    (void)pthread_mutex_lock(&mutex); /* a default mutex: cannot fail */
    rv = add(&taken, reterr);
    (void)pthread_mutex_unlock(&mutex);
    return rv;
}

const char *const *mst_backend_options(const char *backend, size_t *ret_count)
{
    if (backend == NULL || ret_count == NULL) {
        if (ret_count != NULL) {
            *ret_count = 0;
        }
        return NULL;
    }
    (void)pthread_mutex_lock(&mutex);
    const struct entry *found = find(backend);
    const struct mst__known *known = found == NULL ? NULL : found->known;
    (void)pthread_mutex_unlock(&mutex);
    *ret_count = known == NULL ? 0 : known->count;
    return known == NULL ? NULL : known->names;
}

/* "unknown backend", with a list of the known ones. With the lock held. */
static int unknown(const char *name, struct mst_err *reterr)
{
    const char *names[BUILTINS_COUNT + MST_REGISTRY_MAX];
    size_t count = 0;
    for (size_t i = 0; i < BUILTINS_COUNT; i++) {
        names[count++] = builtins[i].name;
    }
    for (size_t i = 0; i < added_count; i++) {
        names[count++] = added[i].name;
    }
    char list[110];
    size_t at = 0;
    list[0] = '\0';
    for (size_t i = 0; i < count && at < sizeof list; i++) {
        int written = snprintf(list + at, sizeof list - at, "%s%s", i == 0 ? "" : ", ", names[i]);
        at += written < 0 ? 0 : (size_t)written;
    }
    const char *nearest = mst__nearest(name, names, count);
    if (nearest == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "unknown backend '%.30s'; known are: %s", name,
                         list);
    }
    return mst__fail(reterr, MST_EINVAL, 0,
                     "unknown backend '%.30s', did you mean '%.30s'? Known are: %s", name, nearest,
                     list);
}

uint32_t mst_backend_capabilities(const char *backend)
{
    if (backend == NULL) {
        return 0;
    }
    (void)pthread_mutex_lock(&mutex);
    const struct entry *found = find(backend);
    uint32_t capabilities = found == NULL ? 0 : found->capabilities;
    (void)pthread_mutex_unlock(&mutex);
    return capabilities;
}

bool mst__backend_can(const char *backend, enum mst_capability capability)
{
    return (mst_backend_capabilities(backend) & (uint32_t)capability) != 0;
}

bool mst__backend_has_option(const char *backend, const char *option)
{
    size_t count = 0;
    const char *const *names = mst_backend_options(backend, &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], option) == 0) {
            return true;
        }
    }
    return false;
}

int mst__backend_look(const char *backend,
                      const struct mst__look_ops **ret_ops,
                      struct mst_err *reterr)
{
    (void)pthread_mutex_lock(&mutex);
    const struct entry *found = find(backend);
    int rv = found == NULL ? unknown(backend, reterr) : 0;
    *ret_ops = found == NULL ? NULL : found->look;
    (void)pthread_mutex_unlock(&mutex);
    return rv;
}

int mst_handler_new(const struct mst_params *params,
                    struct mst_handler **ret_handler,
                    struct mst_err *reterr)
{
    MST_REQUIRE(params, reterr);
    MST_REQUIRE(ret_handler, reterr);
    const char *name = mst_params_backend(params);
    struct entry entry = {0};
    int rv = 0;
    (void)pthread_mutex_lock(&mutex);
    const struct entry *found = find(name);
    if (found == NULL) {
        rv = unknown(name, reterr);
    } else {
        entry = *found;
    }
    (void)pthread_mutex_unlock(&mutex);
    if (found == NULL) {
        return rv;
    }
    struct mst_handler *handler = NULL;
    if (entry.is_checked) {
        rv = mst__params_check_known(params, entry.known, reterr);
    }
    rv = rv == 0 ? entry.creator(params, entry.arg, &handler, reterr) : rv;
    if (rv != 0) {
        return rv;
    }
    if (handler == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "backend '%.60s' has made no handler", name);
    }
    rv = mst__handler_describe(handler, params, reterr);
    if (rv == 0 && strcmp(mst_handler_backend(handler), name) != 0) {
        rv = mst__fail(reterr, MST_EINVAL, 0, "the handler of backend '%.60s' calls itself '%.60s'",
                       name, mst_handler_backend(handler));
    }
    if (rv != 0) {
        mst_handler_free(handler);
        return rv;
    }
    *ret_handler = handler;
    return 0;
}
