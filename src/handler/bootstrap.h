/* handler/bootstrap.h - where the workers of a round find their store: MASTER_ADDR, MASTER_PORT.
 *
 * Rank 0 serves a store and writes its address under the prefix of every round; the others read it
 * there. The server follows rank 0: it starts when a node becomes rank 0, stays while it is, and
 * stops when another one is. */
#ifndef MST_HANDLER_BOOTSTRAP_H
#define MST_HANDLER_BOOTSTRAP_H

#include <muster/log.h>
#include <muster/store.h>

#include "base/endpoint.h"
#include "handler/hosted.h"

#define MST_BOOTSTRAP_NODE_SIZE (MST_HOST_SIZE + 48)

struct mst__bootstrap_info {
    char addr[MST_HOST_SIZE]; /* empty = nobody has told */
    int port;
};

/* Plain data, the fields are its own. */
struct mst__bootstrap {
    const char *local_addr;        /* what others call us; NULL = to be found out */
    struct mst__endpoint endpoint; /* whom we reach the others by */
    struct mst_log log;
    bool is_shared; /* workers use the server of rank 0 and start none */
    struct mst__hosted *hosted;
    /* What was last read, and who had written it: a torch agent tells once and never again. */
    struct mst__bootstrap_info info;
    char node[MST_BOOTSTRAP_NODE_SIZE];
};

/* @local_addr (may be NULL) is borrowed as long as @bootstrap lives. @endpoint NULL = there is
 * none: the rendezvous is in a file. */
void mst__bootstrap_init(struct mst__bootstrap *bootstrap,
                         const char *local_addr,
                         const struct mst__endpoint *endpoint,
                         const struct mst_log *log);

/**
 * Keep a free port for our workers: bound in both families and not listened on until @ret_fd is
 * closed, which is up to the caller; and say where it is, @ret_address. Others call us @local_addr,
 * or if that is NULL or empty, by the address from which we reach @endpoint. That does not change
 * while we live, so @addr remembers it: empty = not known yet.
 *
 * Returns 0, MST_EINVAL for a @local_addr that is too long, MST_ESYS, or as mst__host_advertise.
 */
int mst__bootstrap_reserve(const char *local_addr,
                           const struct mst__endpoint *endpoint,
                           int wake_fd,
                           char addr[MST_HOST_SIZE],
                           int *ret_fd,
                           char ret_address[MST_ENDPOINT_TEXT_SIZE],
                           struct mst_err *reterr);

/**
 * The round is left for the next one: empty the workers' store, if we serve one. It stays where it
 * is, because torch's agents do not ask twice. Before we enter the record again: the next round is
 * not complete before that, so that none of its workers can have written anything.
 *
 * Returns 0 or MST_ETIMEOUT, when that store's server does not get to it.
 */
int mst__bootstrap_leave(struct mst__bootstrap *bootstrap, struct mst_err *reterr);

/* Stop the server. */
void mst__bootstrap_close(struct mst__bootstrap *bootstrap);

/* One round, as it was completed. */
struct mst__bootstrap_round {
    struct mst_store *store; /* its prefix; borrowed */
    int64_t rank;
    const char *master; /* which node is rank 0 */
    int64_t call_ms;    /* for one call of the store */
    int64_t wait_ms;    /* how long to wait for rank 0 to tell */
    bool is_repeated;   /* agents of this kind tell in every round, and of another port each time */
    bool is_by_key;     /* the store is quicker with one key at a time */
    int wake_fd;        /* readable = give up */
    /* Keeps the node alive while it waits, and looks at the round. When to be called again (ms), or
     * 0: rank 0 will not tell any more. */
    int64_t (*watch)(void *self);
    void *self;
};

/**
 * Tell (rank 0) or find out (others) where the workers' store is. When rank 0 does not tell in
 * time, or is seen to be lost before it has told, @ret_info is what it told in an earlier round if
 * that still holds, else empty: that is no error.
 *
 * Returns 0, an error of the store, MST_ESYS when no server could be started, MST_ENOMEM.
 */
int mst__bootstrap_run(struct mst__bootstrap *bootstrap,
                       const struct mst__bootstrap_round *round,
                       struct mst__bootstrap_info *ret_info,
                       struct mst_err *reterr);

#endif /* MST_HANDLER_BOOTSTRAP_H */
