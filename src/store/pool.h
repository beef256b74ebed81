/* store/pool.h - the connections of a tcp store: one per thread inside a call, kept for later
 * calls. Greets servers, and recognises their dialect.
 *
 * At most MST_POOL_MAX are open for calls that are answered at once, and idle; a further call waits
 * for its turn. Calls that wait for something are not among them: another call may have to end
 * their wait. If several wait, one more connection is open for that call. */
#ifndef MST_STORE_POOL_H
#define MST_STORE_POOL_H

#include <muster/log.h>
#include <pthread.h>

#include "net/client.h"
#include "wire/wire.h"

struct mst__pool_conn {
    struct mst__client client;
    struct mst__pool_conn *next; /* next idle connection */
    enum mst__dialect dialect;
    bool is_waiting; /* in a call that waits, and counted there */
    int64_t idle_ms; /* since when it is idle */
    /* Cancelled waits that the server has not yet confirmed: each with a 01, perhaps after the 00
     * of a wait that ended at the last moment. */
    unsigned unconfirmed;
    uint64_t epoch;    /* the server is known to have this epoch; 0 = it was not asked */
    bool is_untelling; /* it does not tell its epochs */
    struct mst__buf output;
};

struct mst__pool {
    struct mst__endpoint endpoint;
    char name[100]; /* tcp://host:port, for messages */
    struct mst__wire_limits limits;
    struct mst_log log;
    pthread_mutex_t mutex; /* guards everything below */
    pthread_cond_t idle_cond;
    struct mst__pool_conn *idle;
    size_t open_count;         /* idle, and in calls that are answered at once */
    size_t connecting_count;   /* of these: not there yet */
    size_t waiting_count;      /* in calls that wait */
    bool is_sparing;           /* one of these makes a connection for the other calls first */
    pthread_cond_t spare_cond; /* and has done so, or could not */
    enum mst__dialect dialect; /* of the last server; UNKNOWN = probe */
    uint64_t epoch;            /* incremented when the server may have been replaced */
    uint64_t connects;
    char peer[128];
};

/* Does not connect. */
void mst__pool_init(struct mst__pool *pool,
                    const struct mst__url *url,
                    const struct mst__wire_limits *limits,
                    const struct mst_log *log);

/* No connection may be in use. */
void mst__pool_close(struct mst__pool *pool);

enum mst__pool_use {
    MST_POOL_SHORT, /* for a request that is answered at once */
    MST_POOL_FRESH, /* the same, on a new connection */
    MST_POOL_WAIT,  /* for a request that waits for something */
};

/**
 * Get a connection: an idle one that is still usable, or a new one. Retries to connect as long as
 * @until allows.
 *
 * Returns 0; MST_ECONN, MST_ERESOLVE, MST_ETIMEOUT (no server answered), MST_EPROTO (another kind
 * of server answered), MST_EINVAL, MST_ESYS, MST_ENOMEM. Return it with mst__pool_put or
 * mst__pool_drop.
 */
int mst__pool_get(struct mst__pool *pool,
                  enum mst__pool_use use,
                  struct mst__until until,
                  struct mst__pool_conn **ret_conn,
                  struct mst_err *reterr);

/* Return a connection on which only cancellations are outstanding. */
void mst__pool_put(struct mst__pool *pool, struct mst__pool_conn *conn);

/* Close a connection that is no longer usable. */
void mst__pool_drop(struct mst__pool *pool, struct mst__pool_conn *conn);

/* Close connections that have been idle for @idle_ms. */
void mst__pool_prune(struct mst__pool *pool, int64_t idle_ms);

/* The current epoch. */
uint64_t mst__pool_epoch(struct mst__pool *pool);

#endif /* MST_STORE_POOL_H */
