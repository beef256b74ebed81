/* authority/muster_self.h - shared by the files of the handler `muster`.
 *
 * The owner (handler/owner.h) drives a member machine (core/member.h) over the connection to the
 * server: muster_link.c carries out its effects and feeds it the results. */
#ifndef MST_AUTHORITY_MUSTER_SELF_H
#define MST_AUTHORITY_MUSTER_SELF_H

#include "authority/notices.h"
#include "core/member.h"
#include "handler/head.h"
#include "handler/hosted.h"
#include "handler/muster_settings.h"
#include "net/job_client.h"
#include "store/store.h"

struct mst__muster {
    struct mst__head head;
    struct mst_params *params; /* a copy; the settings borrow from it */
    struct mst__muster_settings settings;
    struct mst__hosted *hosted;         /* NULL = another process serves */
    bool is_open;                       /* or this one: the endpoint's name is not known yet */
    bool is_way_told;                   /* the event that ours has given way */
    struct mst__endpoint endpoint;      /* of the server, see mst__muster_server */
    const struct mst__hosted *near;     /* our server, if it is reached there; NULL = by its name */
    char where[MST_ENDPOINT_TEXT_SIZE]; /* its name in messages */
    char node[MST_AUTHORITY_NAME_SIZE_MAX + 1];
    struct mst__events events;
    struct mst_store *store; /* of all rounds; the application gets views of it */
    const struct mst__endpoint *store_endpoint;

    /* Used by the owner. */
    struct mst__member member;
    struct mst__job_client *client;       /* NULL = there is none */
    struct mst__job_client *early;        /* connected before it was needed; NULL = none */
    int64_t connected_us;                 /* with one of these: since when */
    int64_t part_ms;                      /* time to leave */
    int part_rv;                          /* and the result */
    char addr[MST_HOST_SIZE];             /* our address for others; empty = not known yet */
    char address[MST_ENDPOINT_TEXT_SIZE]; /* the port that is reserved for our workers */

    struct mst__notices notices;

    /* Used by the owner: the last round. */
    struct mst__job_round round;         /* its address is @master */
    char master[MST_ENDPOINT_TEXT_SIZE]; /* rank 0's */
    int64_t sealed_ms;                   /* when it began; 0 = there was none */
    bool is_private;                     /* a job of one node at a port that no other node knows */
};

/* Time for a message of a few bytes; the socket has room for those. */
#define MST_MUSTER_SEND_MS 2000

/* --- muster.c --- */

/* Ask for the status of the job, on a connection of its own; it is valid until @ret_client is
 * closed. MST_ENOTFOUND: no such job. */
int mst__muster_ask_status(const struct mst__muster *muster,
                           int64_t timeout_ms,
                           struct mst__job_client **ret_client,
                           struct mst__job_status *ret_status,
                           struct mst_err *reterr);

/* Count the nodes besides us, and the nodes that wait for a round. */
void mst__muster_count_nodes(const struct mst__muster *muster,
                             const struct mst__job_status *status,
                             int64_t *ret_others,
                             int64_t *ret_waiting);

/* Where the server is now. Any thread may ask. */
const struct mst__endpoint *mst__muster_server(const struct mst__muster *muster);

/* Whether this node serves: it has begun to, and has not given way. */
bool mst__muster_serves(const struct mst__muster *muster);

/* Report that this node serves, if it does; that it has given way. */
void mst__muster_tell_host(struct mst__muster *muster);
void mst__muster_tell_way(struct mst__muster *muster);

/* --- muster_linger.c --- */

/* Wait until no node needs our server, see mst_handler_linger. @self is the handler. */
int mst__muster_linger(void *self, int64_t timeout_ms, struct mst_err *reterr);

/* Our server is about to end. A node that has not read its last messages would take that for a
 * failure: wait until all nodes have left or had time to read. */
void mst__muster_part(struct mst__muster *muster);

/* --- muster_link.c: the owner --- */

/* Make the member, which wants no round yet. */
void mst__muster_member(struct mst__muster *muster);

/* Feed @event with the present time, and carry out its effects. @self is the handler, as in
 * struct mst__wait. */
void mst__muster_step(void *self, struct mst__member_event event);

/* Connect before the first round. A task; @until is a struct mst__until. */
int mst__muster_connect(void *self, void *until, struct mst_err *reterr);

/* Wait for news, at most until @until, and feed it to the member. */
void mst__muster_turn(void *self, struct mst__until until);

/* Drop the connection because of @err. */
void mst__muster_cut(struct mst__muster *muster, const struct mst_err *err);

#endif /* MST_AUTHORITY_MUSTER_SELF_H */
