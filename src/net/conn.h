/* net/conn.h - what the files of a server's connections share. */
#ifndef MST_NET_CONN_H
#define MST_NET_CONN_H

#include "net/server.h"

struct mst__chunk;

/* What is to be sent, and the kernel did not take. */
struct mst__output {
    struct mst__chunk *first, *last;
    size_t pending; /* bytes that are not written */
};

struct mst__conn {
    struct mst__polled io; /* first: what is polled is the connection */
    struct mst_server *server;
    struct mst__conn *prev, *next;                 /* of all connections */
    struct mst__conn *overdue_prev, *overdue_next; /* of those with something under way */
    struct mst__conn *doomed_next;                 /* also of those that are closed */
    struct mst__conn *line_prev, *line_next;       /* of those who stand in line, see conn_turn.c */
    struct mst__kv_client client;
    struct mst__job_seat seat;
    struct mst__wire_reader reader;
    struct mst__buf input; /* an unfinished request, or requests waiting for output to drain */
    size_t input_charged;  /* its memory, as counted by the engine */
    size_t input_wanted;   /* no use looking at less than this */
    int64_t input_ms;      /* when the request at its front began */
    size_t wait_used;      /* of the keys of a long WAIT at its front: bytes that were looked at */
    uint32_t wait_count;   /* and how many keys */
    struct mst__output output;
    uint64_t output_sent; /* bytes that the kernel was given */
    int64_t output_taken; /* of those, what the peer had when it was last looked at; -1 = never */
    int64_t output_ms;
    int64_t output_late_ms; /* how far the peer is behind with taking them */
    int64_t active_ms;      /* last time something arrived or drained */
    struct mst__stream_name peer;
    enum mst__why why;
    bool is_reading;
    bool is_in_line;
    bool is_input_waiting; /* for the next turn: it is not read meanwhile */
    bool is_resting;       /* the same: it was read enough in this turn */
    bool is_released;      /* its wait is over, and it is told so in its turn */
    bool is_overdue;       /* in the list of those with something under way */
    bool is_doomed;
    bool is_closing;
    bool is_served; /* on the stack: its requests are being applied */
    bool in_grace;  /* dialect A or B */
    bool is_framed; /* see wire/job.h */
};

static inline struct mst__conn *mst__conn_of(struct mst__kv_client *client)
{
    return (struct mst__conn *)((uintptr_t)client - offsetof(struct mst__conn, client));
}

/* --- conn.c --- */

/* @conn shall end, for reason @why; the format says more. The first reason counts. */
void mst__conn_doom(struct mst__conn *conn, enum mst__why why, const char *format, ...)
    MST_PRINTF(3, 4);

/* Hand what was gathered for @conn to the kernel. */
void mst__conn_flush(struct mst__conn *conn);

/* Read from @conn, or do not, as things are. */
void mst__conn_update_reading(struct mst__conn *conn);

/* Enter or leave the list of those with something under way. */
void mst__conn_update_overdue(struct mst__conn *conn);

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
    return conn->output.pending != 0;
}

/* Send @bytes, or queue them. @shared is what they lie in, if the engine has them, else NULL. What
 * is queued has a bound, because nothing is served while there is something. */
void mst__conn_send(struct mst__conn *conn, struct mst_bytes bytes, void *shared);

/* The same for what @conn has not asked for, of which there may be any amount: a peer that is too
 * far behind with reading it is doomed. */
void mst__conn_push(struct mst__conn *conn, struct mst_bytes bytes, void *shared);

/* What is written at once when the kernel has room again, which may be so for all of @conns_count
 * connections in one turn of the loop. */
static inline size_t mst__conn_piece_size(size_t conns_count)
{
    size_t size = MST_KIB(MST_LOOP_STEPS / MST_STEPS_SENT) / (conns_count == 0 ? 1 : conns_count);
    return size > MST_PIECE_SIZE       ? MST_PIECE_SIZE
           : size < MST_PIECE_SIZE_MIN ? MST_PIECE_SIZE_MIN
                                       : size;
}

/* Write what is queued, as far as the kernel takes it and there is time in this turn. */
void mst__conn_write(struct mst__conn *conn);

/* @conn closes. */
void mst__conn_free_output(struct mst__conn *conn);

/* Whether the peer of @conn takes its output too slowly. Time passes for it, and what it takes
 * gives it time back at the slowest rate: so it may be slow for ever, and stop for a while. */
bool mst__conn_output_is_late(struct mst__conn *conn, int64_t now_ms);

/* --- conn_frames.c --- */

/* Whether the messages of @conn, which is framed, have to wait: it does not read the answers. */
static inline bool mst__conn_is_deaf(const struct mst__conn *conn)
{
    return conn->output.pending > MST_TOLD_SIZE_MAX;
}

/* Read and apply the frames in @input until it is used up, the connection is deaf, or it is doomed.
 * Returns how many bytes were used. */
size_t mst__conn_serve_frames(struct mst__conn *conn, struct mst_bytes input);

#endif /* MST_NET_CONN_H */
