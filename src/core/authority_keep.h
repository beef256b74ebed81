/* core/authority_keep.h - what a store keeps of an authority, and how the next one goes on from it.
 *
 * For drivers whose sessions outlive their authority, as keys in an etcd do. The store keeps the
 * current round with the sessions that have its seats, and of every session what it said last.
 * Pure, as core/authority.h is: the drivers of the product and of the simulator decide nothing of
 * this.
 *
 * Here the session of an announcement is a number that grows with each session that is created,
 * and equal incarnations are one process: of its sessions the newest counts, the older ones are
 * over. */
#ifndef MST_CORE_AUTHORITY_KEEP_H
#define MST_CORE_AUTHORITY_KEEP_H

#include "core/authority.h"

/* The round that was sealed last. Its seats are the driver's. */
struct mst__kept {
    uint64_t epoch;
    int64_t round; /* 0 = none was sealed yet */
    uint32_t world;
    bool is_over;                /* the next one gathers */
    enum mst__authority_why why; /* of one that is over */
    uint32_t waiting;            /* of one that runs: so many want in and there is room */
    uint32_t restarts;           /* of the budget, used in this window */
    uint32_t restarts_total;     /* of the job, not fewer than those */
    int64_t restarts_age_us;     /* since when, ago */
    const bool *is_finished;     /* by rank: its work was done; NULL = nobody's. To rebuild from */
    bool has_cause;              /* of one that is over: work has failed */
    struct mst__cause cause;     /* borrowed */
};

/* How the current round is to be kept. False when there is nobody to tell of it: who has come back
 * knows that it is over, and others were never in it. */
bool mst__authority_kept(const struct mst__authority *authority, struct mst__kept *ret_kept);

/* Which sessions of the current round have ended, whoever is in their places by now. @sessions: who
 * had the seats when it was sealed, by rank; 0 = none that is there. How many. */
uint32_t mst__authority_gone(const struct mst__authority *authority,
                             const uint64_t *sessions,
                             bool *ret_is_gone);

/* Whose work in the current round is done, besides those who are set in @is_finished already: who
 * is gone may have said so to a predecessor. How many have finished. */
uint32_t mst__authority_finished(const struct mst__authority *authority, bool *is_finished);

/* What is kept of a session. */
struct mst__kept_session {
    struct mst_bytes node; /* the same for all sessions of a node, and for no others; borrowed */
    uint64_t incarnation;
    uint64_t session;
    uint32_t rank;   /* its seat in the round, or MST_AUTHORITY_RANK_NONE */
    bool is_back;    /* it has come back from the round */
    bool is_ended;   /* it has left, or the round says that it is gone */
    bool has_word;   /* it has said how its work in a round has ended, and stored that itself */
    bool has_failed; /* and that is a failure in this round */
};

/* What a driver does with a session, by its index. Both take the effects. 0, also when it was
 * refused, or an error. */
struct mst__kept_driver {
    /* Announce it with the event KEPT, with @claim instead of what it says itself unless that is
     * NULL. */
    int (*announce)(void *arg, size_t index, const struct mst__claim *claim);
    /* Its word, with the event FINISHED or FAILED. */
    int (*say)(void *arg, size_t index);
    void *arg;
};

/* What a session has stored anew: whether it announces itself with that, @claim, or has only said a
 * word of its work and stays where it is. @is_known: it was announced before. The word comes first
 * either way. */
bool mst__kept_announces(bool has_word, const struct mst__claim *claim, bool is_known);

/**
 * Go on, as a new authority, from what is kept: from @round, unless it is NULL, with @sessions,
 * oldest first.
 *
 * Then all is as the predecessor would have it: a round that is over stays over, nobody sits in it
 * who did not when it was sealed, and the next one is sealed with no process whose node has a newer
 * one. Words that the predecessor may not have heard are heard; who has failed and is back waits
 * behind its failure.
 *
 * Returns 0, MST_EINVAL, MST_ENOMEM, or an error of the driver; then the authority is of no use.
 */
int mst__authority_rebuild(struct mst__authority *authority,
                           const struct mst__kept *round,
                           const struct mst__kept_session *sessions,
                           size_t count,
                           const struct mst__kept_driver *driver,
                           int64_t now_us);

#endif /* MST_CORE_AUTHORITY_KEEP_H */
