/* handler/bootstrap.h - the address of the workers' store: MASTER_ADDR, MASTER_PORT.
 *
 * Rank 0 serves a store and writes its address under the prefix of every round; the other nodes
 * read it there. The server starts when a node becomes rank 0 and stops when another node is. */
#ifndef MST_HANDLER_BOOTSTRAP_H
#define MST_HANDLER_BOOTSTRAP_H

#include <muster/log.h>
#include <muster/store.h>

#include "base/endpoint.h"
#include "handler/hosted.h"

#define MST_BOOTSTRAP_NODE_SIZE (MST_HOST_SIZE + 48)

struct mst__bootstrap_info {
    char addr[MST_HOST_SIZE]; /* empty = rank 0 has not published it */
    int port;
};

/* Plain data; it owns its fields. */
struct mst__bootstrap {
    const char *local_addr;        /* the address that others use; NULL = find it */
    struct mst__endpoint endpoint; /* the route to it leads to the others */
    struct mst_log log;
    bool is_shared; /* workers use the server of rank 0 and start none */
    struct mst__hosted *hosted;
    /* The last answer and the node that wrote it: a torch agent publishes only once. */
    struct mst__bootstrap_info info;
    char node[MST_BOOTSTRAP_NODE_SIZE];
};

/* @local_addr (may be NULL) is borrowed for the life of @bootstrap. @endpoint NULL = none: the
 * rendezvous is in a file. */
void mst__bootstrap_init(struct mst__bootstrap *bootstrap,
                         const char *local_addr,
                         const struct mst__endpoint *endpoint,
                         const struct mst_log *log);

/**
 * Reserve a free port for our workers: bound in both families, without listening, until the caller
 * closes @ret_fd. @ret_address is its address: @local_addr, or if that is NULL or empty, the
 * address from which we reach @endpoint. That does not change while we live, so @addr caches it:
 * empty = not known yet. A name that is not known yet is asked for until @until, and @log says so.
 *
 * Returns 0, MST_EINVAL for a @local_addr that is too long, MST_ESYS, or an error of
 * mst__host_advertise.
 */
int mst__bootstrap_reserve(const char *local_addr,
                           const struct mst__endpoint *endpoint,
                           struct mst__until until,
                           const struct mst_log *log,
                           char addr[MST_HOST_SIZE],
                           int *ret_fd,
                           char ret_address[MST_ENDPOINT_TEXT_SIZE],
                           struct mst_err *reterr);

/**
 * The round is left for the next one: empty the workers' store, if we serve one. Its address stays
 * the same, because torch's agents do not ask twice. Call this before the node enters the record
 * again: no worker of the next round can have written by then.
 *
 * Returns 0, or MST_ETIMEOUT if the store's server does not respond.
 */
int mst__bootstrap_leave(struct mst__bootstrap *bootstrap, struct mst_err *reterr);

/* Stop the server. */
void mst__bootstrap_close(struct mst__bootstrap *bootstrap);

/* A completed round. */
struct mst__bootstrap_round {
    struct mst_store *store; /* its prefix; borrowed */
    int64_t rank;
    const char *master; /* the name of rank 0 */
    int64_t call_ms;    /* for one call of the store */
    int64_t wait_ms;    /* how long to wait for rank 0 to publish */
    bool is_repeated;   /* its agents publish in every round, with another port each time */
    bool is_by_key;     /* the store is faster with one key at a time */
    int wake_fd;        /* readable = give up */
    /* Keeps the node alive while it waits, and looks at the round. Returns when to call it again
     * (ms), or 0: rank 0 will not publish any more. */
    int64_t (*watch)(void *self);
    void *self;
};

/**
 * Publish (rank 0) or read (others) the address of the workers' store. If rank 0 does not publish
 * in time, or is lost before, @ret_info is the address of an earlier round if that is still valid,
 * else empty: that is no error.
 *
 * Returns 0, an error of the store, MST_ESYS if the server does not start, MST_ENOMEM.
 */
int mst__bootstrap_run(struct mst__bootstrap *bootstrap,
                       const struct mst__bootstrap_round *round,
                       struct mst__bootstrap_info *ret_info,
                       struct mst_err *reterr);

#endif /* MST_HANDLER_BOOTSTRAP_H */
