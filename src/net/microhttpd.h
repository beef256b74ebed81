/* net/microhttpd.h - libmicrohttpd, loaded with the first page of metrics.
 *
 * It brings GnuTLS along. Most processes of ours have no page, nodes above all. */
#ifndef MST_NET_MICROHTTPD_H
#define MST_NET_MICROHTTPD_H

#include <microhttpd.h>
#include <muster/error.h>

/* The functions that we use, by their names without "MHD_". */
#define MST_MICROHTTPD_MAP(X)        \
    X(add_response_header)           \
    X(create_response_from_buffer)   \
    X(create_response_from_callback) \
    X(destroy_response)              \
    X(get_connection_info)           \
    X(get_daemon_info)               \
    X(get_timeout)                   \
    X(queue_response)                \
    X(run)                           \
    X(start_daemon)                  \
    X(stop_daemon)

struct mst__microhttpd {
#define MICROHTTPD_MEMBER(name) __typeof__(MHD_##name) *name;
    MST_MICROHTTPD_MAP(MICROHTTPD_MEMBER)
#undef MICROHTTPD_MEMBER
};

/* To be used after mst__microhttpd_load has returned 0. */
extern struct mst__microhttpd mst__mhd;

/* Load it, once for the process. 0, or MST_ENOTSUP when it is not there, or not as it must be. From
 * any thread. */
int mst__microhttpd_load(struct mst_err *reterr);

#endif /* MST_NET_MICROHTTPD_H */
