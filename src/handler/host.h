/* handler/host.h - this machine's addresses: whether an endpoint is here, where to listen for
 * it, and the address to publish. Addresses decide; names are resolved forwards only. */
#ifndef MST_HANDLER_HOST_H
#define MST_HANDLER_HOST_H

#include <muster/error.h>
#include <muster/log.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/endpoint.h"
#include "base/until.h"

/**
 * Whether @endpoint's host is this machine: it resolves to a loopback address, to an address of one
 * of our interfaces, or to one that can be bound and connected to from here; or it is our host
 * name, in short or in full. A unix socket is not: of two nodes that begin together each could take
 * the socket of the other for one that was left behind.
 *
 * Returns 0; MST_ERESOLVE or MST_ETIMEOUT if the name is not known, perhaps only not yet; MST_ESYS,
 * MST_ENOMEM.
 */
int mst__host_is_me(const struct mst__endpoint *endpoint,
                    struct mst__until until,
                    bool *ret_is_me,
                    struct mst_err *reterr);

/* Whether @host is a loopback address or `localhost`: then all nodes are on this machine. */
bool mst__host_is_loopback(const char *host);

/* Where a server for @endpoint listens: one of our addresses or a unix socket as given, "" for the
 * loopback addresses of both families, `*` for a name or a foreign address. Never the address of
 * a name: many machines resolve their own name to 127.0.1.1. */
void mst__host_listen(const struct mst__endpoint *endpoint, char ret_host[MST_HOST_SIZE]);

/* Whether a socket listens at @endpoint, on this machine, or begins to within @wait_ms. It makes
 * no connection. */
bool mst__host_is_taken(const struct mst__endpoint *endpoint, int64_t wait_ms);

/**
 * The address of this machine for others: that from which it reaches @endpoint. A loopback address
 * only if the endpoint is written as one, or there is no other. A name that is not known is asked
 * for again until @until, see mst__resolve_patiently.
 *
 * Returns 0, MST_ERESOLVE, MST_ETIMEOUT, MST_ECANCELED, MST_ESYS, MST_ENOMEM.
 */
int mst__host_advertise(const struct mst__endpoint *endpoint,
                        struct mst__until until,
                        const struct mst_log *log,
                        char ret_host[MST_HOST_SIZE],
                        struct mst_err *reterr);

/* The host part of node names: @local_addr, or if that is NULL or empty, the host name. Cut off
 * when long. */
void mst__host_name(const char *local_addr, size_t size, char *ret_name);

/* A number for a new handler of this process. The first is drawn at random, so that processes
 * with the same host name and process id, such as those of containers, differ; each further one
 * is larger by one. Any thread may call it. */
int64_t mst__host_local_id(void);

/* The name of a new node: @given, which was checked and stays the same after a restart; NULL =
 * `host_pid_local_id`, cut off when long. */
void mst__host_node_name(const char *given, const char *local_addr, size_t size, char *ret_name);

#endif /* MST_HANDLER_HOST_H */
