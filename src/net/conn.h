/* net/conn.h - what the files of a server's connections share. */
#ifndef MST_NET_CONN_H
#define MST_NET_CONN_H

#include <netinet/in.h>

#include "net/server.h"

/* What is sent, and where it goes when it must wait. */
enum mst__sort {
    MST_SORT_PLAIN,  /* with the replies, as it is */
    MST_SORT_STREAM, /* with the replies, in STORE_REPLYs: the replies of a framed connection */
    MST_SORT_TOLD,   /* frames, before replies */
};

struct mst__chunk;

/* A queue of what is to be sent. */
struct mst__output {
    struct mst__chunk *first, *last;
    size_t pending; /* bytes that are not written */
};

struct mst__conn {
    union mst__stream uv;
    struct mst_server *server;
    struct mst__conn *prev, *next;                 /* of all connections */
    struct mst__conn *overdue_prev, *overdue_next; /* of those with something under way */
    struct mst__conn *doomed_next;
    struct mst__conn *line_prev, *line_next; /* of those who stand in line, see conn_turn.c */
    struct mst__kv_client client;
    struct mst__job_seat seat;
    struct mst__wire_reader reader;
    struct mst__buf input;      /* an unfinished request, or requests waiting for output to drain */
    size_t input_charged;       /* its memory, as counted by the engine */
    size_t input_wanted;        /* no use looking at less than this */
    int64_t input_ms;           /* when the request at its front began */
    struct mst__output told;    /* what jobs have told it, and is not sent */
    struct mst__output replies; /* the same of replies; framed: without the heads of frames */
    struct mst__chunk *writing; /* of either, being written; NULL = none */
    uint64_t output_sent;       /* bytes that libuv was given */
    int64_t output_taken; /* of those, what the peer had when it was last looked at, and when */
    int64_t output_ms;
    int64_t output_late_ms; /* how far the peer is behind with taking them */
    int64_t active_ms;      /* last time something arrived or drained */
    struct mst__buf store;  /* framed: what is left of the stream of requests in its STOREs */
    size_t store_charged;   /* its memory, as counted by the engine */
    size_t store_wanted;    /* no use looking at less than this */
    int64_t store_ms;       /* when the request at its front began */
    union {
        struct sockaddr any;
        struct sockaddr_in in4;
        struct sockaddr_in6 in6;
    } peer;
    enum mst__why why;
    bool is_reading;
    bool is_in_line;
    bool is_input_waiting; /* for the next turn: it is not read meanwhile */
    bool is_resting;       /* the same: it was read enough in this turn */
    bool is_store_stuck;   /* framed: half a request has been there for too long */
    bool is_beginning;     /* framed: the stream begins anew when its requests are done */
    bool is_released;      /* its wait is over, and it is told so in its turn */
    bool has_ended;        /* framed: the peer has closed, and its last requests wait */
    bool is_overdue;       /* in the list of those with something under way */
    bool is_doomed;
    bool is_closing;
    bool is_served;     /* on the stack: its requests are being applied */
    bool in_grace;      /* dialect A or B */
    bool is_framed;     /* see wire/job.h */
    bool is_store_over; /* framed: a request was refused, the node has yet to begin anew */
};

static inline struct mst__conn *mst__conn_of(struct mst__kv_client *client)
{
    return (struct mst__conn *)((uintptr_t)client - offsetof(struct mst__conn, client));
}

/* --- conn.c --- */

/* @conn shall end, for reason @why; the format says more. The first reason counts. */
void mst__conn_doom(struct mst__conn *conn, enum mst__why why, const char *format, ...)
    MST_PRINTF(3, 4);

/* A request cannot be served, for reason @why; the format says more. There are no replies for that:
 * a connection ends. Of a node's only the stream of requests does, for its place in a round has
 * nothing to do with what is asked of the store. */
void mst__conn_reject(struct mst__conn *conn, enum mst__why why, const char *format, ...)
    MST_PRINTF(3, 4);

/* Apply @command for @conn, and hand out what comes of it. */
void mst__conn_apply(struct mst__conn *conn, const struct mst__command *command);

/* What is gathered next for @conn is of this sort. */
void mst__conn_gather(struct mst__conn *conn, enum mst__sort sort);

/* Hand what was gathered for @conn to the kernel. */
void mst__conn_flush(struct mst__conn *conn);

/* Output has been written, not necessarily all of it; @was_reply: from the queue of replies. */
void mst__conn_drained(struct mst__conn *conn, bool was_reply);

/* Read from @conn, or do not, as things are. */
void mst__conn_update_reading(struct mst__conn *conn);

/* The stream of requests of @conn, which is framed, is over: tell it why. */
void mst__conn_end_stream(struct mst__conn *conn, enum mst__why why, const char *detail);

/* Whether a request of @size bytes, as far as is known, that began at @since_ms is too late: it has
 * the request timeout, and the time that its bytes need at the slowest rate. */
bool mst__conn_is_late(const struct mst_server *server,
                       int64_t now_ms,
                       int64_t since_ms,
                       size_t size);

/* Enter or leave the list of those with something under way. */
void mst__conn_update_overdue(struct mst__conn *conn);

/* Count the memory of a connection's own buffer, of which @charged is; false when there is no
 * room. */
bool mst__conn_charge(struct mst_server *server, const struct mst__buf *buf, size_t *charged);

/* Answer those whose waiting is over, tell those who watch, and close who was doomed. */
void mst__conns_deliver(struct mst_server *server);

/* Serve what waits, as far as that is possible now. */
void mst__conn_take_turn(struct mst__conn *conn);

/* --- conn_turn.c --- */

/* There is more to do for @conn, in the next turn of the loop. */
void mst__conn_want_turn(struct mst__conn *conn);
void mst__conn_leave_line(struct mst__conn *conn);

/* Go on with the list of keys that is being made, for one share of steps. */
void mst__list_go_on(struct mst_server *server);
/* @conn does not want the rest of it any more, if it is for @conn. */
void mst__list_leave(struct mst__conn *conn);

/* --- conn_output.c --- */

static inline bool mst__conn_has_output(const struct mst__conn *conn)
{
    return (conn->told.pending | conn->replies.pending) != 0;
}

/* Send @bytes, or queue them. @shared is what they lie in, if the engine has them, else NULL. What
 * is queued has a bound, because nothing is served while there is something. */
void mst__conn_send(struct mst__conn *conn,
                    enum mst__sort sort,
                    struct mst_bytes bytes,
                    void *shared);

/* The same for what @conn has not asked for, of which there may be any amount: a peer that is too
 * far behind with reading it is doomed. */
void mst__conn_push(struct mst__conn *conn,
                    enum mst__sort sort,
                    struct mst_bytes bytes,
                    void *shared);

/* What libuv writes when the kernel has room again, which may be so for all of @conns_count
 * connections in one turn of the loop. */
static inline size_t mst__conn_piece_size(size_t conns_count)
{
    size_t size = MST_KIB(MST_LOOP_STEPS / MST_STEPS_SENT) / (conns_count == 0 ? 1 : conns_count);
    return size > MST_PIECE_SIZE       ? MST_PIECE_SIZE
           : size < MST_PIECE_SIZE_MIN ? MST_PIECE_SIZE_MIN
                                       : size;
}

/* Begin to write what is queued. */
void mst__conn_write(struct mst__conn *conn);

/* @conn closes. */
void mst__conn_free_output(struct mst__conn *conn);

/* Nobody wants the replies any more that are queued for @conn, which is framed. */
void mst__conn_drop_replies(struct mst__conn *conn);

/* Whether the peer of @conn takes its output too slowly. Time passes for it, and what it takes
 * gives it time back at the slowest rate: so it may be slow for ever, and stop for a while. */
bool mst__conn_output_is_late(struct mst__conn *conn, int64_t now_ms);

/* --- conn_frames.c --- */

/* Whether the messages of @conn, which is framed, have to wait: it does not read the answers. */
static inline bool mst__conn_is_deaf(const struct mst__conn *conn)
{
    return conn->told.pending > MST_TOLD_SIZE_MAX;
}

/* Read and apply the frames in @input until it is used up, the connection is deaf, or it is doomed.
 * Returns how many bytes were used. */
size_t mst__conn_serve_frames(struct mst__conn *conn, struct mst_bytes input);

void mst__conn_free_store(struct mst__conn *conn);

/* Half a request has been in the stream for too long: end it. */
void mst__conn_end_stuck_store(struct mst__conn *conn);

/* Whether the stream has requests that wait for output to leave, or for a turn, and not for the
 * rest of one. */
static inline bool mst__conn_store_waits(const struct mst__conn *conn)
{
    size_t size = mst__buf_size(&conn->store);
    return size > 0 && (conn->replies.pending > 0 || size >= conn->store_wanted);
}

#endif /* MST_NET_CONN_H */
