/* etcd/curl.c - loads libcurl. */
#include "etcd/curl.h"

#include <pthread.h>
#include <stdio.h>

#include "base/err.h"
#include "base/library.h"

#define CURL_LIBRARY "libcurl.so.4"

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static struct mst__curl loaded;
static bool is_loaded;
static char load_problem[MST_LIBRARY_PROBLEM_SIZE];

static void load(void)
{
    const struct mst__library_function functions[] = {
#define CURL_FUNCTION(name) {"curl_" #name, &loaded.name},
        MST_CURL_MAP(CURL_FUNCTION)
#undef CURL_FUNCTION
    };
    if (!mst__library_load(CURL_LIBRARY, functions, sizeof functions / sizeof functions[0],
                           load_problem)) {
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
