/* etcd_local/ports.h - free ports that stay free until etcd has them.
 *
 * To bind port 0, close the socket and pass the number on leaves a gap in which anybody can get the
 * port. Ours stays bound without listening: the kernel gives it to nobody who asks for a free port,
 * and etcd, which like all Go programs may share an address, can still listen there. */
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
 * Returns 0; MST_EINVAL when @host is no address of this machine, or the unspecified one, which
 * nobody can connect to; MST_ERESOLVE; MST_ESYS with errno, EADDRINUSE when somebody else has it.
 */
int mst__port_hold(const char *host,
                   uint16_t number,
                   struct mst__port *ret_port,
                   struct mst_err *reterr);

/* Let go of it. A zeroed one, and one that is released, is fine. */
void mst__port_release(struct mst__port *port);

#define MST_PORTS_URLS_SIZE 1024

/* "http://127.0.0.1:2379,http://[::1]:2379": where to listen. Returns @ret_urls. */
const char *mst__port_urls(const struct mst__port *port,
                           bool is_tls,
                           char ret_urls[MST_PORTS_URLS_SIZE]);

#endif /* MST_ETCD_LOCAL_PORTS_H */
