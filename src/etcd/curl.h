/* etcd/curl.h - libcurl, loaded with the first connection to an etcd.
 *
 * libcurl needs some thirty libraries, whose loading costs milliseconds and megabytes in every
 * process that is linked with it. Most nodes use no etcd and do not pay for it. */
#ifndef MST_ETCD_CURL_H
#define MST_ETCD_CURL_H

#include <curl/curl.h>
#include <muster/error.h>

/* The functions in use, by their names without "curl_". */
#define MST_CURL_MAP(X)    \
    X(easy_cleanup)        \
    X(easy_getinfo)        \
    X(easy_init)           \
    X(easy_setopt)         \
    X(easy_strerror)       \
    X(global_init)         \
    X(multi_add_handle)    \
    X(multi_cleanup)       \
    X(multi_info_read)     \
    X(multi_init)          \
    X(multi_perform)       \
    X(multi_poll)          \
    X(multi_remove_handle) \
    X(slist_append)        \
    X(slist_free_all)

struct mst__curl {
#define CURL_MEMBER(name) __typeof__(curl_##name) *name;
    MST_CURL_MAP(CURL_MEMBER)
#undef CURL_MEMBER
};

/* Load libcurl, once per process: NULL with MST_ENOTSUP in @reterr if it is missing or incomplete.
 * From any thread. */
const struct mst__curl *mst__curl(struct mst_err *reterr);

#endif /* MST_ETCD_CURL_H */
