/* etcd_local/ports.h - free ports that stay reserved until etcd listens on them.
 *
 * Binding port 0, closing the socket and passing the number on leaves a gap in which another
 * program can get the port. Ours stays bound without listening: the kernel does not give it to
 * programs that ask for a free port, and etcd, which like all Go programs sets SO_REUSEADDR, can
 * still listen there. */
#ifndef MST_ETCD_LOCAL_PORTS_H
#define MST_ETCD_LOCAL_PORTS_H

#include <muster/error.h>
#include <stdbool.h>
#include <sys/socket.h>

/* Addresses of one host name. */
#define MST_PORTS_ADDRESSES_MAX 8

struct mst__ports_address {
    struct sockaddr_storage address;
    socklen_t size;
};

/* One port, on every address of a host. */
struct mst__port {
    uint16_t number;
    struct mst__ports_address addresses[MST_PORTS_ADDRESSES_MAX];
    int fds[MST_PORTS_ADDRESSES_MAX]; /* until released */
    size_t count;
};

/**
 * Hold port @number, or a free one if that is 0, on every address that @host has on this machine.
 *
 * Returns 0; MST_EINVAL if @host is no address of this machine, or is the unspecified address,
 * which clients cannot connect to; MST_ERESOLVE; MST_ESYS with errno, EADDRINUSE if the port is
 * taken.
 */
int mst__port_hold(const char *host,
                   uint16_t number,
                   struct mst__port *ret_port,
                   struct mst_err *reterr);

/* Release it. Zeroed and released ones are allowed. */
void mst__port_release(struct mst__port *port);

#define MST_PORTS_URLS_SIZE 1024

/* "http://127.0.0.1:2379,http://[::1]:2379": the URLs to listen on. Returns @ret_urls. */
const char *mst__port_urls(const struct mst__port *port,
                           bool is_tls,
                           char ret_urls[MST_PORTS_URLS_SIZE]);

#endif /* MST_ETCD_LOCAL_PORTS_H */
