/* net/microhttpd.c - loading libmicrohttpd. */
#include "net/microhttpd.h"

#include <pthread.h>

#include "base/err.h"
#include "base/library.h"

#define MICROHTTPD_LIBRARY "libmicrohttpd.so.12"

struct mst__microhttpd mst__mhd;

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static bool is_loaded;
static char load_problem[MST_LIBRARY_PROBLEM_SIZE];

static void load(void)
{
    const struct mst__library_function functions[] = {
#define MICROHTTPD_FUNCTION(name) {"MHD_" #name, &mst__mhd.name},
        MST_MICROHTTPD_MAP(MICROHTTPD_FUNCTION)
#undef MICROHTTPD_FUNCTION
    };
    is_loaded = mst__library_load(MICROHTTPD_LIBRARY, functions,
                                  sizeof functions / sizeof functions[0], load_problem);
}

int mst__microhttpd_load(struct mst_err *reterr)
{
    (void)pthread_once(&load_once, load); /* cannot fail with a proper once */
    return is_loaded ? 0
                     : mst__fail(reterr, MST_ENOTSUP, 0,
                                 "the page needs " MICROHTTPD_LIBRARY ", and: %s", load_problem);
}
