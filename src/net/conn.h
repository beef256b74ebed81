/* net/conn.h - shared by the files of a server's connections. */
#ifndef MST_NET_CONN_H
#define MST_NET_CONN_H

#include "net/server.h"

struct mst__chunk;

/* Output that the kernel did not take. */
struct mst__output {
    struct mst__chunk *first, *last;
    size_t pending; /* unsent bytes */
};

struct mst__conn {
    struct mst__polled io; /* first: a polled stream is cast to its connection */
    struct mst_server *server;
    struct mst__conn *prev, *next;                 /* list of all connections */
    struct mst__conn *overdue_prev, *overdue_next; /* list of those with pending input or output */
    struct mst__conn *doomed_next;                 /* also in the list of closed ones */
    struct mst__conn *line_prev, *line_next;       /* the line of conn_turn.c */
    struct mst__conn *silent_prev, *silent_next;   /* the list of conn_silent.c */
    struct mst__kv_client client;
    struct mst__job_seat seat;
    struct mst__wire_reader reader;
    struct mst__buf input; /* an unfinished request, or requests waiting for output to drain */
    size_t input_charged;  /* its memory, charged to the engine */
    size_t input_wanted;   /* do not parse fewer bytes than this */
    int64_t input_ms;      /* when the first request in it began */
    size_t wait_used;      /* long WAIT at its front: bytes of keys that were examined */
    uint32_t wait_count;   /* and their number */
    struct mst__output output;
    uint64_t output_sent; /* bytes given to the kernel */
    int64_t output_taken; /* of those, bytes that the peer had at the last check; -1 = none yet */
    int64_t output_ms;
    int64_t output_late_ms; /* how far the peer is behind with reading */
    int64_t active_ms;      /* last time that bytes arrived or were sent */
    struct mst__stream_name peer;
    enum mst__why why;
    bool is_reading;
    bool is_in_line;
    bool is_input_waiting; /* its input waits for the next turn; it is not read meanwhile */
    bool is_resting;       /* it was read enough in this turn */
    bool is_released;      /* its wait is over; it is told in its turn */
    bool is_overdue;       /* in the list of those with pending input or output */
    bool is_doomed;
    bool is_closing;
    bool is_served;      /* on the stack: its requests are being applied */
    bool in_grace;       /* dialect A or B is undecided */
    bool is_framed;      /* see wire/job.h */
    bool is_silent;      /* in the list of those that have sent nothing yet */
    bool is_of_old;      /* counted for its host as of dialect A or B */
    bool is_extra;       /* beyond the maximum; see conn_refuse.c */
    bool has_last_words; /* the peer was told why it ends, and has yet to read it */
};

static inline struct mst__conn *mst__conn_of(struct mst__kv_client *client)
{
    return (struct mst__conn *)((uintptr_t)client - offsetof(struct mst__conn, client));
}

/* --- conn.c --- */

/* End @conn for reason @why; the format adds details. The first reason counts. */
void mst__conn_doom(struct mst__conn *conn, enum mst__why why, const char *format, ...)
    MST_PRINTF(3, 4);

/* Write the collected replies of @conn. */
void mst__conn_flush(struct mst__conn *conn);

/* Start or stop reading from @conn, depending on its state. */
void mst__conn_update_reading(struct mst__conn *conn);

/* Add @conn to, or remove it from, the list of those with pending input or output. */
void mst__conn_update_overdue(struct mst__conn *conn);

/* Answer clients whose wait is over, notify watchers, and close doomed connections. */
void mst__conns_deliver(struct mst_server *server);

/* Serve waiting input as far as possible now. */
void mst__conn_take_turn(struct mst__conn *conn);

/* --- conn_refuse.c --- */

void mst__spares_open(struct mst_server *server);
/* The loop is about to end, and has no connections. */
void mst__spares_close(struct mst_server *server);
/* Close those whose time is over. */
void mst__spares_sweep(struct mst_server *server, int64_t now_ms);

/* End @conn, whose next reply is due, for reason @why, and tell a peer that has asked; the format
 * adds details. */
void mst__conn_turn_down(struct mst__conn *conn, enum mst__why why, const char *format, ...)
    MST_PRINTF(3, 4);

/* Close the stream of @conn, at once or when the peer has read the last words. */
void mst__conn_close_stream(struct mst__conn *conn);

/* How many more connections @server may accept. */
size_t mst__conns_places(const struct mst_server *server);

/* @conn, which is new, has no place: it is there to be told so, or doomed. */
void mst__conn_be_extra(struct mst__conn *conn);

/* Serve what an extra connection may send; returns the number of bytes used. */
size_t mst__conn_serve_extra(struct mst__conn *conn, struct mst_bytes input);

/* --- conn_silent.c --- */

void mst__silents_open(struct mst_server *server);
void mst__silents_close(struct mst_server *server);

/* @conn is new, or has sent something. */
void mst__silent_enter(struct mst__conn *conn);
void mst__silent_leave(struct mst__conn *conn);

/* @conn closes. */
void mst__silent_end(struct mst__conn *conn);

/* The dialect of @conn is not C: connections from its host may have to stay silent. */
void mst__silent_know_old(struct mst__conn *conn);

/* Whether a connection was silent for so long that it may lose its place. */
bool mst__silent_is_due(const struct mst_server *server);

/* End one of those; false if there is none. */
bool mst__silent_make_room(struct mst_server *server);

/* --- conn_turn.c --- */

/* Give @conn a turn in the next turn of the loop. */
void mst__conn_want_turn(struct mst__conn *conn);
void mst__conn_leave_line(struct mst__conn *conn);

/* Continue the list of keys that is being sent, for one share of steps. */
void mst__list_go_on(struct mst_server *server);
/* End that list if it is for @conn. */
void mst__list_leave(struct mst__conn *conn);

/* --- conn_output.c --- */

static inline bool mst__conn_has_output(const struct mst__conn *conn)
{
    return conn->output.pending != 0;
}

/* Send @bytes, or queue them. @shared is the block of the engine that holds them, or NULL. The
 * queue is bounded, because no request is served while there is output. */
void mst__conn_send(struct mst__conn *conn, struct mst_bytes bytes, void *shared);

/* The same for unsolicited output, which is unbounded: a peer that is too far behind with reading
 * is doomed. */
void mst__conn_push(struct mst__conn *conn, struct mst_bytes bytes, void *shared);

/* The size of a single write when the kernel has room again, which may happen for all of
 * @conns_count connections in one turn of the loop. */
static inline size_t mst__conn_piece_size(size_t conns_count)
{
    size_t size = MST_KIB(MST_LOOP_STEPS / MST_STEPS_SENT) / (conns_count == 0 ? 1 : conns_count);
    return size > MST_PIECE_SIZE       ? MST_PIECE_SIZE
           : size < MST_PIECE_SIZE_MIN ? MST_PIECE_SIZE_MIN
                                       : size;
}

/* Write queued output, as far as the kernel takes it and this turn allows. */
void mst__conn_write(struct mst__conn *conn);

/* Free the queue of @conn, which closes. */
void mst__conn_free_output(struct mst__conn *conn);

/* Whether the peer of @conn reads too slowly. Its time runs down while output is pending, and the
 * bytes that it reads give it back time at the minimum rate. So it may be slow for ever, and may
 * pause for a while. */
bool mst__conn_output_is_late(struct mst__conn *conn, int64_t now_ms);

/* --- conn_frames.c --- */

/* Whether the messages of @conn, which is framed, must wait because it does not read the
 * answers. */
static inline bool mst__conn_is_deaf(const struct mst__conn *conn)
{
    return conn->output.pending > MST_TOLD_SIZE_MAX;
}

/* Read and apply the frames in @input until it is used up, the connection is deaf, or it is doomed.
 * Returns the number of bytes used. */
size_t mst__conn_serve_frames(struct mst__conn *conn, struct mst_bytes input);

#endif /* MST_NET_CONN_H */
