/* handler/host.h - this machine and its addresses: whether an endpoint is here, where to listen
 * for it, and what to tell others to call us. Decided by addresses; names are looked up forwards
 * only. */
#ifndef MST_HANDLER_HOST_H
#define MST_HANDLER_HOST_H

#include <muster/error.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/endpoint.h"
#include "base/until.h"

/**
 * Whether @endpoint's host is this machine: it resolves to a loopback address, to an address of one
 * of our interfaces, or to one that turns out to lead back here when bound and connected to; or it
 * is our host name. A name that cannot be resolved by @until is somebody else's.
 *
 * Returns 0, MST_ESYS, MST_ENOMEM.
 */
int mst__host_is_me(const struct mst__endpoint *endpoint,
                    struct mst__until until,
                    bool *ret_is_me,
                    struct mst_err *reterr);

/* Whether @host is written as a loopback address, or is `localhost`: then all nodes are here. */
bool mst__host_is_loopback(const char *host);

/* Where a server for @endpoint listens: an address of ours exactly as it was given, "" for the
 * loopback addresses of both families, `*` for a name or a foreign address. Never what a name
 * resolves to: on many machines that is 127.0.1.1 for their own. */
void mst__host_listen(const struct mst__endpoint *endpoint, char ret_host[MST_HOST_SIZE]);

/* Whether somebody listens at @endpoint, which is here, or begins to within @wait_ms. Nobody is
 * connected to. */
bool mst__host_is_taken(const struct mst__endpoint *endpoint, int64_t wait_ms);

/**
 * What others should call this machine: the address by which it reaches @endpoint. A loopback
 * address only if the endpoint is written as one, or there is no other.
 *
 * Returns 0, MST_ERESOLVE, MST_ETIMEOUT, MST_ESYS, MST_ENOMEM.
 */
int mst__host_advertise(const struct mst__endpoint *endpoint,
                        struct mst__until until,
                        char ret_host[MST_HOST_SIZE],
                        struct mst_err *reterr);

/* What this machine is called in names of nodes: @local_addr, or if that is NULL or empty, its own
 * name. Cut off when long. */
void mst__host_name(const char *local_addr, size_t size, char *ret_name);

/* A number for a new handler of this process: the first is drawn, so that processes which agree in
 * host name and process id, as those of containers do, have different ones; each further one is by
 * one larger. Any thread may call it. */
int64_t mst__host_local_id(void);

/* The name of a new node: @given, which was checked and is the node's also after a restart; NULL =
 * `host_pid_local_id`, cut off when long. */
void mst__host_node_name(const char *given, const char *local_addr, size_t size, char *ret_name);

#endif /* MST_HANDLER_HOST_H */
