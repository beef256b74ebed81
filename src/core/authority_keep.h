/* core/authority_keep.h - what a store keeps of an authority, and how the next one continues from
 * it.
 *
 * For drivers whose sessions outlive their authority, as keys in an etcd do. The store keeps the
 * current round with the sessions of its seats, and the last announcement of every session. Pure,
 * as core/authority.h: the drivers of the product and of the simulator decide nothing of this.
 *
 * Here the session of an announcement is a number that grows with each new session, and equal
 * incarnations are one process: its newest session counts, the older ones are over. */
#ifndef MST_CORE_AUTHORITY_KEEP_H
#define MST_CORE_AUTHORITY_KEEP_H

#include "core/authority.h"

/* The last sealed round. The driver has its seats. */
struct mst__kept {
    uint64_t epoch;
    int64_t round; /* 0 = none yet */
    uint32_t world;
    uint32_t first_world;        /* of the first round of these nodes; 0 = not known */
    bool is_over;                /* the next round gathers */
    enum mst__authority_why why; /* if it is over */
    uint32_t waiting;            /* if it runs: nodes that want in, with room for them */
    uint32_t restarts;           /* of the budget, used in this window */
    uint32_t restarts_total;     /* of the job, at least those */
    int64_t restarts_age_us;     /* age of the window */
    const bool *is_finished;     /* by rank: its work was done; NULL = none. Input of a rebuild */
    bool has_cause;              /* if it is over: work has failed */
    struct mst__cause cause;     /* borrowed */
};

/* The form in which the current round is kept. False if it concerns no session: returned nodes know
 * that it is over, and others were never in it. */
bool mst__authority_kept(const struct mst__authority *authority, struct mst__kept *ret_kept);

/* Find the sessions of the current round that have ended, no matter which process has their place
 * now. @sessions: the holders of the seats at the seal, by rank; 0 = none. Returns their number. */
uint32_t mst__authority_gone(const struct mst__authority *authority,
                             const uint64_t *sessions,
                             bool *ret_is_gone);

/* Add the finished members of the current round to @is_finished, which may already have some: a
 * node that is gone may have told a predecessor. Returns the number of finished members. */
uint32_t mst__authority_finished(const struct mst__authority *authority, bool *is_finished);

/* The stored state of a session. */
struct mst__kept_session {
    struct mst_bytes node; /* the same for all sessions of a node, and for no others; borrowed */
    uint64_t incarnation;
    uint64_t session;
    uint32_t rank;   /* its seat in the round, or MST_AUTHORITY_RANK_NONE */
    bool is_back;    /* it has come back from the round */
    bool is_ended;   /* it has left, or the round says that it is gone */
    bool has_word;   /* it has stored how its work in a round ended */
    bool has_failed; /* and that is a failure in this round */
};

/* A driver's actions on a session, by its index. Both take the effects. 0, also if it was refused,
 * or an error. */
struct mst__kept_driver {
    /* Announce it with the event KEPT, with @claim instead of its own unless that is NULL. */
    int (*announce)(void *arg, size_t index, const struct mst__claim *claim);
    /* Send its word, with the event FINISHED or FAILED. */
    int (*say)(void *arg, size_t index);
    void *arg;
};

/* Whether a session that has stored something new, with @claim, announces itself, or only reports
 * its work and stays in its round. @is_known: it was announced before. The report comes first in
 * any case. */
bool mst__kept_announces(bool has_word, const struct mst__claim *claim, bool is_known);

/**
 * Continue, as a new authority, from the stored state: from @round, unless it is NULL, with
 * @sessions, oldest first.
 *
 * The result is the predecessor's state: a round that is over stays over, only its members at the
 * seal have a seat in it, and the next round never includes a process whose node has a newer one.
 * Reports that the predecessor may have missed are processed; a node that failed and is back waits
 * after its failure.
 *
 * Returns 0, MST_EINVAL, MST_ENOMEM, or an error of the driver; then the authority is unusable.
 */
int mst__authority_rebuild(struct mst__authority *authority,
                           const struct mst__kept *round,
                           const struct mst__kept_session *sessions,
                           size_t count,
                           const struct mst__kept_driver *driver,
                           int64_t now_us);

#endif /* MST_CORE_AUTHORITY_KEEP_H */
