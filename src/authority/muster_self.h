/* authority/muster_self.h - what the files of the handler `muster` share.
 *
 * The owner's machine (handler/owner.h) is the connection to the authority, with what we know of
 * our place. A connection that is lost is made anew, and our place claimed again; the authority
 * gives us a while for that. */
#ifndef MST_AUTHORITY_MUSTER_SELF_H
#define MST_AUTHORITY_MUSTER_SELF_H

#include "handler/head.h"
#include "handler/hosted.h"
#include "handler/muster_settings.h"
#include "net/job_client.h"
#include "store/backoff.h"
#include "store/store.h"

struct mst__muster {
    struct mst__head head;
    struct mst_params *params; /* a copy, which the settings borrow from */
    struct mst__muster_settings settings;
    struct mst__hosted *hosted;         /* NULL = somebody else serves */
    struct mst__endpoint endpoint;      /* where we reach the server */
    char where[MST_ENDPOINT_TEXT_SIZE]; /* what messages call it */
    char node[MST_AUTHORITY_NAME_SIZE_MAX + 1];
    struct mst__events events;
    uint64_t incarnation;
    uint64_t session;
    struct mst_store *store; /* of all rounds: those that are handed out are views of it */

    /* The owner: the connection. */
    struct mst__job_client *client; /* NULL = there is none */
    bool is_welcome;                /* the announcement on it was accepted */
    bool is_hurried;                /* connect at once: the last connection was a good one */
    bool is_cut_told;               /* that it is lost has been told */
    struct mst__backoff backoff;
    int64_t beat_ms;   /* when to say something; INT64_MAX = nothing to keep alive */
    int64_t beats;     /* since the server was last asked to answer */
    int64_t answer_ms; /* when it must have; INT64_MAX = it was not asked */
    struct mst__prng prng;

    /* The owner: our place. */
    struct mst__claim claim;    /* the last round that we were told of; holds = we are in it */
    bool is_over;               /* the place is gone, or the run: there is nothing to claim */
    bool is_waited_for;         /* REOPENED: somebody has come back from the round */
    int64_t left;               /* REOPENED: who has left it, if that was told */
    struct mst_changes changes; /* how the round has changed */

    /* Whoever is busy. */
    int64_t sealed_ms;                    /* when the last round began; 0 = there was none */
    char addr[MST_HOST_SIZE];             /* what others call this machine; empty = not known yet */
    char address[MST_ENDPOINT_TEXT_SIZE]; /* and the port that is reserved for our workers */
};

/* Pauses between attempts to connect. */
#define MST_MUSTER_AGAIN_MS 50
#define MST_MUSTER_AGAIN_MS_MAX 1000

/* Time for a message of a few bytes; the socket has room for those. */
#define MST_MUSTER_SEND_MS 2000

/* --- muster_link.c: the connection. The owner. --- */

/* Connect and announce ourselves, if that is not done; one attempt, after a pause when the last one
 * failed. 0, MST_ECANCELED, MST_ETIMEOUT when @deadline_ms has passed in the pause, MST_ENOTSUP for
 * a server that is no authority, MST_ECONN and others where another attempt is worthwhile. */
int mst__muster_reach(struct mst__muster *muster, int64_t deadline_ms, struct mst_err *reterr);

/* Say that we want the next round, or with claim.holds that we are in one. 0, or the connection is
 * of no use any more. */
int mst__muster_announce(struct mst__muster *muster, struct mst_err *reterr);

/* Wait for a message and keep our session alive. 0, MST_ETIMEOUT, MST_ECANCELED; anything else: the
 * connection is of no use any more. */
int mst__muster_wait(struct mst__muster *muster,
                     int64_t deadline_ms,
                     struct mst__job_message *ret_message,
                     struct mst_err *reterr);

/* A WELCOME came. */
void mst__muster_welcomed(struct mst__muster *muster, const struct mst__job_message *message);

/* The connection is of no use any more, for the reason @err. */
void mst__muster_drop(struct mst__muster *muster, const struct mst_err *err);

/* Take leave and close the connection. 0, or MST_ECONN when nobody could be told. */
int mst__muster_part(struct mst__muster *muster, int64_t deadline_ms, struct mst_err *reterr);

/* --- muster_watch.c: being in a round --- */

/* An mst__owner_fn. */
void mst__muster_watch(void *arg);

/* Say @question, a CLOSE, and wait until all is closed, watching meanwhile. 0; MST_ETIMEOUT;
 * MST_ECONN, there is no connection, or not any more. The owner. */
int mst__muster_close(struct mst__muster *muster,
                      const struct mst__job_message *question,
                      int64_t deadline_ms,
                      struct mst_err *reterr);

/* A round begins for us. The owner. */
void mst__muster_begin_round(struct mst__muster *muster, const struct mst__job_round *round);

#endif /* MST_AUTHORITY_MUSTER_SELF_H */
