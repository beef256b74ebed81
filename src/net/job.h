/* net/job.h - the server as the authority of jobs: run ids, their nodes' connections, and what is
 * told to whom.
 *
 * conn.c hands over the messages of framed connections and tells when one ends; the decisions are
 * core/authority's. What is to be told is gathered over a turn of the loop and leaves in one write
 * per connection. */
#ifndef MST_NET_JOB_H
#define MST_NET_JOB_H

#include <uv.h>

#include "base/map.h"
#include "core/authority.h"
#include "core/listening.h"
#include "net/job_journal.h"
#include "net/job_keys.h"
#include "net/job_log.h"
#include "wire/job.h"

struct mst_server;
struct mst__conn;

/* One run id. */
struct mst__job {
    struct mst_server *server;
    struct mst__authority authority;
    struct mst__job_life life;
    struct mst__job_journaled journaled;
    uv_timer_t timer;
    struct mst__job *dirty_next;
    bool is_dirty;        /* has effects to be sent, something due, or another time to wake up at */
    int64_t keys_round;   /* the round at which keys were last looked at, see job_keys.h */
    int64_t heartbeat_us; /* how often its nodes say something, the slowest of them */
    int64_t idle_us;      /* since when nobody is there; INT64_MAX = somebody is */
    struct mst__job_idle *idle; /* the list that it is in; NULL = in none */
    struct mst__job *idle_prev, *idle_next;
    bool is_crowded_out; /* is forgotten before its time, unless somebody has come */
    size_t charged;      /* its memory, as counted by the engine */
    size_t run_id_size;
    char run_id[];
};

/* Jobs without nodes, who was left first comes first. */
struct mst__job_idle {
    struct mst__job *first, *last;
};

/* A connection's place in a job. Zeroed: none. */
struct mst__job_seat {
    struct mst__job *job;
    mst__authority_id id;
    uint64_t contact; /* how many connections were accepted with this one */
    uint32_t founded; /* run ids that nobody knew before this connection named them */
};

/* All jobs of a server. */
struct mst__jobs {
    struct mst__map map;         /* run id to struct mst__job pointer */
    struct mst__job_idle barren; /* of those that are idle: without any round */
    struct mst__job_idle left;   /* with one, whose number is remembered */
    size_t idle_count;
    struct mst__job *dirty;
    /* Active while there are dirty ones. */
    uv_idle_t awake;      /* the loop does not sleep */
    uv_prepare_t polling; /* before a poll */
    uv_check_t polled;    /* behind it */
    struct mst__listening listening;
    uint64_t epoch;
    struct mst__buf shared; /* frames for many */
    struct mst__job_keys keys;
    struct mst__job_journal *journal;        /* NULL = none */
    uint64_t told;                           /* frames sent to nodes, but for replies */
    struct mst__job_tally tally;             /* of all that were ever here */
    uint64_t seconds[MST_JOB_SECONDS_COUNT]; /* rounds by how long they took to be complete */
};

void mst__jobs_open(struct mst_server *server);

/* The loop is about to end: nothing of this keeps it running any more. */
void mst__jobs_stop(struct mst_server *server);

/* The loop has ended. */
void mst__jobs_close(struct mst_server *server);

/* The job of @run_id, or NULL. */
struct mst__job *mst__job_find(const struct mst_server *server, struct mst_bytes run_id);

/* @message came from @conn, whose place is @seat. Answers are appended to server->replies. False,
 * with a sentence, when the message has no place here and the connection shall end. */
bool mst__job_take(struct mst_server *server,
                   struct mst__conn *conn,
                   struct mst__job_seat *seat,
                   const struct mst__job_message *message,
                   struct mst_err *reterr);

/* Something has arrived on @conn, which has a place: its node is alive, whenever that is served. */
void mst__job_heard(const struct mst__job_seat *seat);

/* @conn ends. */
void mst__job_leave_seat(const struct mst__conn *conn, struct mst__job_seat *seat);

#endif /* MST_NET_JOB_H */
