/* record/home.h - the place of the record of a dynamic rendezvous.
 *
 * A home stores one record and replaces it only if it is still the one that was read. Several
 * threads may call at once. Each call ends by its @until. */
#ifndef MST_RECORD_HOME_H
#define MST_RECORD_HOME_H

#include <muster/error.h>
#include <muster/store.h>
#include <stdbool.h>

#include "base/until.h"
#include "handler/hosted.h"

/* A stored record. The token stands for exactly this content; only the home understands it. The
 * holder owns both and releases them with mst_buffer_free. */
struct mst__stored {
    bool exists;    /* there is a record; else both are empty */
    bool is_unread; /* not read, and both are empty */
    bool is_past;   /* from wait_change: more changes may have followed */
    struct mst_buffer record;
    struct mst_buffer token;
};

struct mst__record_home_ops {
    /**
     * Read the record.
     *
     * Returns 0; MST_ECONN and other errors of the store, which name it; MST_ESTATE if the data
     * is not a record; MST_ENOMEM. @ret_stored is written on success.
     */
    int (*get_state)(void *self,
                     struct mst__until until,
                     struct mst__stored *ret_stored,
                     struct mst_err *reterr);

    /**
     * Store @record if the stored one still matches @token; with NULL, if there is none. @ret_won:
     * it was stored, and @ret_stored has only its token. Otherwise @ret_stored is the record found
     * instead; with @may_be_unread, it may be unread if reading takes another request.
     *
     * Returns as get_state does; MST_EUNKNOWN if it may or may not have been stored.
     */
    int (*set_state)(void *self,
                     struct mst_bytes record,
                     const struct mst_bytes *token,
                     bool may_be_unread,
                     struct mst__until until,
                     bool *ret_won,
                     struct mst__stored *ret_stored,
                     struct mst_err *reterr);

    /**
     * Wait until the stored record no longer matches @token (NULL = no record). May return early.
     * It may miss the first @skip changes, if that saves work. NULL = not supported.
     *
     * Returns 0, MST_ETIMEOUT, MST_ENOTSUP if the store does not support it, or as get_state
     * does.
     */
    int (*wait_change)(void *self,
                       const struct mst_bytes *token,
                       uint64_t skip,
                       struct mst__until until,
                       struct mst_err *reterr);

    /* The store that the nodes share, for keys beside the record. Borrowed from the home. A
     * home that is lazy sends no request. */
    int (*store)(void *self,
                 struct mst__until until,
                 struct mst_store **ret_store,
                 struct mst_err *reterr);

    /* The server of the store, if it is this process's own, and where it is reached; NULL = another
     * process serves. It may begin to serve with a call of store. NULL = never. */
    const struct mst__hosted *(*hosted)(void *self, const struct mst__endpoint **ret_server);

    /* Release everything. No call may be under way. */
    void (*close)(void *self);
};

struct mst__record_home {
    const struct mst__record_home_ops *ops;
    void *self;
    const char *where; /* for messages: "tcp://node0:29400"; belongs to the home */
    int64_t call_ms;   /* time limit of one call */
    int64_t write_us;  /* the least time of a write; 0 = negligible */
    bool is_lazy;      /* only the first read shows whether a server is there */
    bool is_by_key;    /* its store is faster with one key at a time */
};

#endif /* MST_RECORD_HOME_H */
