/* etcd/curl.c - loading libcurl. */
#include "etcd/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

#define CURL_LIBRARY "libcurl.so.4"

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static struct mst__curl loaded;
static bool is_loaded;
static char load_problem[128];

static bool load_function(void *library, const char *name, void *ret_function)
{
    void *symbol = dlsym(library, name);
    /* A pointer to a function in the clothes of one to data: POSIX has it no other way. */
    memcpy(ret_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void load(void)
{
    void *library = dlopen(CURL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    bool is_whole = library != NULL;
#define CURL_LOAD(name) is_whole = is_whole && load_function(library, "curl_" #name, &loaded.name);
    MST_CURL_MAP(CURL_LOAD)
#undef CURL_LOAD
    if (!is_whole) {
        const char *problem = dlerror();
        (void)snprintf(load_problem, sizeof load_problem, "%s",
                       problem == NULL ? "incomplete" : problem); /* cut off when long */
        return;
    }
    CURLcode rc = loaded.global_init(CURL_GLOBAL_DEFAULT);
    if (rc != CURLE_OK) {
        (void)snprintf(load_problem, sizeof load_problem, "%s", loaded.easy_strerror(rc));
        return;
    }
    is_loaded = true;
}

const struct mst__curl *mst__curl(struct mst_err *reterr)
{
    (void)pthread_once(&load_once, load); /* cannot fail with a proper once */
    if (!is_loaded) {
        (void)mst__fail(reterr, MST_ENOTSUP, 0, "etcd needs " CURL_LIBRARY ", and: %s",
                        load_problem);
        return NULL;
    }
    return &loaded;
}
