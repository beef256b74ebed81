/* record/home.h - where the record of a dynamic rendezvous is kept.
 *
 * A home stores one record and replaces it only if it is still the one that was read. Calls may
 * come from several threads at once. Each ends by its @until. */
#ifndef MST_RECORD_HOME_H
#define MST_RECORD_HOME_H

#include <muster/error.h>
#include <muster/store.h>
#include <stdbool.h>

#include "base/until.h"

/* The record of a run is called this and the run id; the prefix of the keys of a round is this, the
 * run id, a dot and the round. */
#define MST_RECORD_PREFIX "torch.rendezvous."

/* In place of the round, for the keys of the job. */
#define MST_RECORD_JOB "work"

/* What is stored. The token stands for exactly this content and means nothing to anybody but the
 * home. Both are the holder's, to be released with mst_buffer_free. */
struct mst__stored {
    bool exists;    /* there is a record; else both are empty */
    bool is_unread; /* nobody has looked, and both are empty */
    struct mst_buffer record;
    struct mst_buffer token;
};

struct mst__record_home_ops {
    /**
     * Read the record.
     *
     * Returns 0; MST_ECONN and other errors of the store, which name it; MST_ESTATE when what is
     * stored cannot be a record; MST_ENOMEM. @ret_stored is written on success.
     */
    int (*get_state)(void *self,
                     struct mst__until until,
                     struct mst__stored *ret_stored,
                     struct mst_err *reterr);

    /**
     * Store @record if what is stored is still what @token stands for; without one (NULL), if there
     * is no record. @ret_won tells whether it is stored now, and then only the token of @ret_stored
     * is filled; otherwise @ret_stored is what is there instead, or, with @may_be_unread and where
     * it would have to be asked for, unread.
     *
     * Returns as get_state does; MST_EUNKNOWN when it may have been stored or not.
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
     * Wait until what is stored is no longer what @token stands for (NULL = no record). May return
     * early. The first @skip changes since then need not be noticed, where that saves work. NULL
     * when the home cannot.
     *
     * Returns 0, MST_ETIMEOUT, MST_ENOTSUP when the store behind it cannot, or as get_state does.
     */
    int (*wait_change)(void *self,
                       const struct mst_bytes *token,
                       uint64_t skip,
                       struct mst__until until,
                       struct mst_err *reterr);

    /* The store that the nodes share, for keys beside the record. Borrowed from the home. With
     * @is_lazy nobody is asked for this. */
    int (*store)(void *self,
                 struct mst__until until,
                 struct mst_store **ret_store,
                 struct mst_err *reterr);

    /* Release everything. No call is under way. */
    void (*close)(void *self);
};

struct mst__record_home {
    const struct mst__record_home_ops *ops;
    void *self;
    const char *where; /* for messages: "tcp://node0:29400". The home's own. */
    int64_t call_ms;   /* how long one call may take */
    int64_t write_us;  /* what a write takes at least; 0 = next to nothing */
    bool is_lazy;      /* whether somebody serves it shows with the first reading */
    bool is_by_key;    /* its store is quicker with one key at a time than with several */
};

#endif /* MST_RECORD_HOME_H */
