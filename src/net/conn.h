/* net/conn.h - what the files of a server's connections share. */
#ifndef MST_NET_CONN_H
#define MST_NET_CONN_H

#include <netinet/in.h>

#include "net/server.h"

struct mst__conn {
    union mst__stream uv;
    struct mst_server *server;
    struct mst__conn *prev, *next;                 /* of all connections */
    struct mst__conn *overdue_prev, *overdue_next; /* of those with something under way */
    struct mst__conn *doomed_next;
    struct mst__kv_client client;
    struct mst__job_seat seat;
    struct mst__wire_reader reader;
    struct mst__buf input; /* an unfinished request, or requests waiting for output to drain */
    size_t input_charged;  /* its memory, as counted by the engine */
    size_t input_wanted;   /* no use looking at less than this */
    int64_t input_ms;      /* when the request at its front began */
    size_t output_pending; /* queued bytes */
    uint64_t output_total; /* bytes to be sent so far, queued ones too */
    int64_t output_taken;  /* of those, what the peer had when it was last looked at, and when */
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
    bool is_overdue; /* in the list of those with something under way */
    bool is_doomed;
    bool is_closing;
    bool is_served;     /* on the stack: its requests are being applied */
    bool in_grace;      /* dialect A or B */
    bool is_framed;     /* see wire/job.h */
    bool is_store_over; /* framed: a request was refused, the node has yet to begin anew */
};

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

/* The STORE_REPLY that is being gathered, if there is one, is complete. */
void mst__conn_reply_end(struct mst_server *server);

/* Hand the gathered replies of @conn to the kernel. */
void mst__conn_flush(struct mst__conn *conn);

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

/* --- conn_frames.c --- */

/* Read and apply the frames in @input until it is used up, output is pending, or the connection is
 * doomed. Returns how many bytes were used. */
size_t mst__conn_serve_frames(struct mst__conn *conn, struct mst_bytes input);

void mst__conn_free_store(struct mst__conn *conn);

/* End the streams in which half a request has been left for too long at @now_ms. */
void mst__conns_sweep_stores(struct mst_server *server, int64_t now_ms);

#endif /* MST_NET_CONN_H */
