/* net/job.h - the server as the authority of jobs: run ids, the connections of their nodes, and
 * messages to them.
 *
 * conn.c delivers the messages of framed connections and reports their end; core/authority decides.
 * Messages are collected over a turn of the loop and leave in one write per connection. */
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
    bool is_dirty;              /* has effects to send, a deadline, or a new time to wake up at */
    int64_t keys_round;         /* the round at the last check of keys, see job_keys.h */
    int64_t idle_us;            /* since when it has no nodes; INT64_MAX = it has some */
    struct mst__job_idle *idle; /* its list of idle jobs; NULL = none */
    struct mst__job *idle_prev, *idle_next;
    struct mst__job *older, *newer; /* in the order of their last changes */
    bool is_crowded_out;            /* forgotten early unless a node has come */
    uint32_t seats_count;           /* connections with a seat in it; 0 when it is forgotten */
    size_t charged;                 /* its memory, charged to the engine */
    size_t run_id_size;
    char run_id[];
};

/* Jobs without nodes, those that have been so the longest first. */
struct mst__job_idle {
    struct mst__job *first, *last;
};

/* A connection's place in a job. Zeroed: none. A doomed connection has none, because the job may be
 * forgotten before it is closed; and while the session lives, no other connection has its seat. */
struct mst__job_seat {
    struct mst__job *job;
    mst__authority_id id;
    uint64_t contact;     /* the number of this connection among all accepted ones */
    int64_t heartbeat_us; /* the interval of the node's heartbeats */
    uint32_t founded;     /* new run ids that this connection has named */
};

/* All jobs of a server. */
struct mst__jobs {
    struct mst__map map;         /* run id to struct mst__job pointer */
    struct mst__job *newest;     /* the one that has changed last */
    struct mst__job_idle barren; /* idle jobs without a round */
    struct mst__job_idle left;   /* idle jobs with a round, whose number is remembered */
    size_t idle_count;
    struct mst__job *dirty;
    /* Active while a job is dirty. */
    uv_idle_t awake;      /* the loop does not sleep */
    uv_prepare_t polling; /* before a poll */
    uv_check_t polled;    /* after it */
    struct mst__listening listening;
    uint64_t epoch;
    struct mst__buf shared; /* frames for several nodes */
    struct mst__job_keys keys;
    struct mst__job_journal *journal;        /* NULL = none */
    uint64_t told;                           /* frames sent to nodes, without replies */
    struct mst__job_tally tally;             /* all jobs since the start */
    uint64_t seconds[MST_JOB_SECONDS_COUNT]; /* rounds by the time until they were complete */
};

void mst__jobs_open(struct mst_server *server);

/* The loop is about to end: close all handles. */
void mst__jobs_stop(struct mst_server *server);

/* The loop has ended. */
void mst__jobs_close(struct mst_server *server);

/* The job of @run_id, or NULL. */
struct mst__job *mst__job_find(const struct mst_server *server, struct mst_bytes run_id);

/* Process @message from @conn, whose seat is @seat. Answers are appended to server->replies. False,
 * with a sentence, if the message is not allowed here and the connection must end. */
bool mst__job_take(struct mst_server *server,
                   struct mst__conn *conn,
                   struct mst__job_seat *seat,
                   const struct mst__job_message *message,
                   struct mst_err *reterr);

/* Bytes have arrived on the connection of @seat: its node is alive, even if they are served
 * later. */
void mst__job_heard(const struct mst__job_seat *seat);

/* @conn, whose seat is @seat, ends. */
void mst__job_leave_seat(const struct mst__conn *conn, struct mst__job_seat *seat);

/* The session of @seat is over, and its node is told. */
void mst__job_clear_seat(struct mst__job_seat *seat);

#endif /* MST_NET_JOB_H */
