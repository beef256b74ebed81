/* net/server.h - shared by the files of the server. */
#ifndef MST_NET_SERVER_H
#define MST_NET_SERVER_H

#include <muster/server.h>
#include <stdatomic.h>
#include <uv.h>

#include "base/limits.h"
#include "kv/kv.h"
#include "net/address.h"
#include "net/job.h"
#include "net/poller.h"
#include "wire/wire.h"

/* Why a connection ended: its name in the log, and the log level. */
#define MST_WHY_MAP(X)                        \
    X(PEER_CLOSED, "peer_closed", DEBUG)      \
    X(PEER_RESET, "peer_reset", DEBUG)        \
    X(HALF_REQUEST, "half_request", WARN)     \
    X(PROTOCOL, "protocol", WARN)             \
    X(LIMIT, "limit", WARN)                   \
    X(MEMORY, "memory", ERROR)                \
    X(NOT_A_NUMBER, "not_a_number", WARN)     \
    X(STUCK_REQUEST, "stuck_request", WARN)   \
    X(DOES_NOT_READ, "does_not_read", WARN)   \
    X(IDLE, "idle", INFO)                     \
    X(TOO_MANY, "too_many_connections", WARN) \
    X(SILENT, "silent", INFO)                 \
    X(SUPERSEDED, "superseded", DEBUG)        \
    X(SHUTDOWN, "shutdown", DEBUG)

enum mst__why {
#define WHY_ENUM(name, text, level) MST_WHY_##name,
    MST_WHY_MAP(WHY_ENUM)
#undef WHY_ENUM
};
#define MST_WHY_COUNT (MST_WHY_SHUTDOWN + 1)

/* "protocol" for MST_WHY_PROTOCOL. */
const char *mst__why_name(enum mst__why why);

/* What a server may be full of. */
enum mst__full_of { MST_FULL_OF_CONNECTIONS, MST_FULL_OF_MEMORY };
#define MST_FULL_COUNT (MST_FULL_OF_MEMORY + 1)

/* Upper bounds of the histogram of turns of the loop. */
#define MST_LOOP_SECONDS_MAP(X) \
    X("0.001", 1000)            \
    X("0.01", 10000)            \
    X("0.05", 50000)            \
    X("0.1", 100000)            \
    X("1", 1000000)
#define MST_LOOP_SECONDS_COUNT 6

struct mst__counters {
    uint64_t accepted;
    uint64_t loop_us;     /* time in turns of the loop, without the waits */
    uint64_t loop_us_max; /* the longest turn of all */
    uint64_t loop_seconds[MST_LOOP_SECONDS_COUNT]; /* turns by their time */
    uint64_t turn_steps_max; /* the most steps of one connection in one turn */
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t released; /* waits that ended with their keys */
    uint64_t ops[MST_OP_COUNT];
    uint64_t closed[MST_WHY_COUNT];
    uint64_t refused[MST_FULL_COUNT]; /* requests, announcements and connections */
};

struct mst__listener {
    struct mst__polled io; /* first: a polled stream is cast to its listener */
    struct mst_server *server;
    bool has_path; /* a unix socket, removed with the listener */
    char address[MST_ADDRESS_SIZE];
};

/* See server_empty.c. */
struct mst__empty {
    uv_mutex_t mutex;            /* guards `last`, `wanted` and `done` */
    uv_cond_t cond;              /* `done` has changed */
    uint64_t last;               /* requests are numbered */
    uint64_t wanted;             /* the request that a thread waits for; 0 = none */
    uint64_t done;               /* the last completed one */
    uv_idle_t idle;              /* active while there is a request */
    uint64_t number;             /* the current request */
    unsigned turns;              /* turns of the loop since it was seen */
    uint64_t bytes_in, accepted; /* as of the last turn */
};

struct mst__conn;
struct mst__http;

/* The longest turn that ended in a span of time. */
struct mst__longest {
    uint64_t span; /* its number on the loop's clock */
    uint64_t turn_us;
};

/* The line of connections, see conn_turn.c. */
struct mst__turns {
    struct mst__conn *first, *last;
    size_t count;
    uv_idle_t idle;                              /* active while the line is not empty */
    uv_prepare_t clock;                          /* runs at the end of each turn of the loop */
    uint64_t ended_ns;                           /* end of the last turn */
    uint64_t waited_ns;                          /* total wait until then */
    struct mst__longest longest[MST_LOOP_SPANS]; /* by the number of the span */
    uint64_t end;     /* end of the current turn of a connection, in steps of the engine */
    uint64_t begun;   /* start of the turn of the loop, in steps of the engine */
    unsigned accepts; /* in this turn of the loop */
    unsigned pushes;  /* writes to other connections than the current one, in this turn */
};

/* See full.c. */
struct mst__full {
    size_t lacked; /* what did not fit into memory; 0 = there is room */
    int64_t logged_ms[MST_FULL_COUNT];
};

/* A place of the reserve, see conn_refuse.c: for a connection, or only for its stream. */
struct mst__spare {
    struct mst__polled io; /* first: a polled stream is cast to its place */
    struct mst_server *server;
    struct mst__conn *conn; /* beyond the maximum; NULL = none */
    int64_t due_ms;
};

/* See conn_silent.c. */
struct mst__silents {
    struct mst__conn *first, *last; /* those that have sent nothing yet, the oldest first */
    struct mst__map old_hosts;      /* a host to the number of its connections of dialect A or B */
};

struct mst_server {
    struct mst_server_options options; /* hosts, listen_fds, http_address are not kept */
    struct mst__wire_limits wire_limits;
    uv_loop_t loop;
    bool loop_is_open;
    struct mst__poller poller; /* listeners and connections */
    int spare_fd;              /* reserved, to turn away a peer when there are no others; -1 */
    unsigned generation;       /* of the process that made it, see base/fork.h */
    uv_async_t wake;           /* a thread requests a stop or a dump */
    atomic_bool stop_wanted;
    atomic_bool dump_wanted;
    atomic_bool gives_way; /* see give_way.h */
    atomic_bool gave_way;
    bool stopping;
    int64_t stop_began_ms;
    int64_t ahead_ms;  /* tests advance the clock with it */
    uv_timer_t sweep;  /* active while a connection may become overdue */
    uv_timer_t grace;  /* active while a connection may be of dialect A or B */
    uv_prepare_t heap; /* see heap.c */
    size_t heap_base;
    size_t heap_seen_used;
    uint64_t heap_seen_freed;
    uint64_t heap_compacted_freed;
    uv_timer_t heap_compact;
    size_t grace_count;
    struct mst__listener listeners[MST_LISTENERS_MAX];
    size_t listeners_count;
    struct mst__http *http;      /* NULL = none */
    int64_t accept_complaint_ms; /* when a failed accept was last logged */
    int port;
    struct mst__kv kv;
    struct mst__jobs jobs;
    char *run_id;            /* the only run id that is served; NULL = any */
    struct mst__conn *conns; /* all connections */
    size_t conns_count;
    struct mst__conn *overdue; /* those with an unfinished request or unsent output */
    struct mst__conn *doomed;  /* to be closed after the current command */
    struct mst__conn *closed;  /* to be freed at the end of the turn of the loop */
    struct mst__turns turns;
    struct mst__full full;
    struct mst__silents silents;
    struct mst__spare spares[MST_SPARES_MAX];
    size_t spares_count;     /* places in use */
    size_t extras_count;     /* those of connections */
    struct mst__buf replies; /* replies of the current connection */
    struct mst__buf notice;  /* the current notice for watchers: its bytes, */
    struct mst_bytes notice_bytes;
    void *notice_shared; /* and the engine's block that holds them, or NULL */
    int notice_rv;       /* 0, or why there are no bytes */
    struct mst__counters counters;
    struct mst__empty empty;
    uint8_t read_memory[MST_READ_SIZE];
};

/* --- server.c --- */

/* The time of this turn of the loop. */
static inline int64_t mst__server_now_ms(const struct mst_server *server)
{
    return (int64_t)uv_now(&server->loop) + server->ahead_ms;
}

/* Start the sweep timer: a connection may become overdue. */
void mst__server_want_sweep(struct mst_server *server);

/* Start the grace timer: a connection may be of dialect A or B. */
void mst__server_want_grace(struct mst_server *server);

/* --- server_empty.c --- */

/* Remove all keys and queues, including those whose bytes have arrived by now; returns when done.
 * @server runs in another thread and is not being stopped. One caller at a time.
 *
 * Returns 0 or MST_ETIMEOUT if the loop does not get to it. It is then not done later, unless it
 * has begun. */
int mst__server_empty(struct mst_server *server, int64_t deadline_ms, struct mst_err *reterr);

/* 0 or an error of libuv. */
int mst__empty_open(struct mst_server *server);
/* The loop is about to end. */
void mst__empty_stop(struct mst_server *server);
/* The loop has ended. */
void mst__empty_close(struct mst_server *server);
/* Called when the loop was woken: check for a request. */
void mst__empty_look(struct mst_server *server);

/* --- heap.c --- */

void mst__heap_open(struct mst_server *server);
/* The loop is about to end. */
void mst__heap_stop(struct mst_server *server);

/* The process belongs to the server: keep its resident memory near the limit from now on. */
void mst__heap_watch(struct mst_server *server);

/* The part of the limit @memory_max that must not be used if the process has @resident bytes, and
 * had @base before it stored anything. */
size_t mst__heap_withheld(size_t resident, size_t base, size_t memory_max);

/* --- full.c --- */

/* A sentence that says of what a server is full. */
#define MST_FULL_TEXT_SIZE 192

void mst__full_init(struct mst_server *server);

/* Whether @server has no place for another connection, or no memory: the sentence, about memory if
 * both. */
bool mst__full_text(const struct mst_server *server, char ret_text[MST_FULL_TEXT_SIZE]);
bool mst__full_is_of(const struct mst_server *server, enum mst__full_of of);
void mst__full_connections_text(const struct mst_server *server, char ret_text[MST_FULL_TEXT_SIZE]);

/* A connection is refused: count and log it. */
void mst__full_refuse_conn(struct mst_server *server, char ret_text[MST_FULL_TEXT_SIZE]);

/* If something has not fitted into memory since the last call or turn, a request is refused for
 * that: count and log it. False otherwise. The request has @own bytes that become free with it. */
bool mst__full_refuse_memory(struct mst_server *server,
                             size_t own,
                             char ret_text[MST_FULL_TEXT_SIZE]);

/* The turn of the loop is over: see whether memory is still full. */
void mst__full_turn(struct mst_server *server);

/* --- conn.c --- */

/* Accept @stream, which is taken, from @listener; @peer is its name. */
void mst__conn_accept(struct mst__listener *listener,
                      struct mst__stream stream,
                      const struct mst__stream_name *peer);

/* The turn of the loop is over: free the connections that were closed in it. */
void mst__conns_free_closed(struct mst_server *server);

/* Send @frames to @conn, which is framed and not being served. */
void mst__conn_tell(struct mst__conn *conn, struct mst_bytes frames);

/* End @conn: a message to it is lost, or no further one is needed. */
void mst__conn_give_up(struct mst__conn *conn, enum mst__why why, const char *detail);

/* @conn's session is over. */
void mst__conn_unseat(struct mst__conn *conn);

/* Close doomed connections; if there are many, some of them now. */
void mst__conns_close_doomed(struct mst_server *server);

/* Close the connections that are overdue at @now_ms. True if others may become overdue. */
bool mst__conns_sweep(struct mst_server *server, int64_t now_ms);

/* Decide for dialect A if the peer has been silent long enough. */
void mst__conns_settle(struct mst_server *server, int64_t now_ms);

/* The server stops: close connections without pending input or output, or with @force all. */
void mst__conns_shut_down(struct mst_server *server, bool force);

/* --- conn_turn.c --- */

void mst__turns_open(struct mst_server *server);
/* The loop is about to end. */
void mst__turns_stop(struct mst_server *server);
/* The longest turn of the loop that ended within the last minute, or up to a span more. */
uint64_t mst__turns_longest_us(const struct mst_server *server, uint64_t now_ns);
/* A connection is in the line. */
void mst__turns_want(struct mst_server *server);
/* Whether the rest must wait for another turn of the loop. */
static inline bool mst__turns_is_over(const struct mst_server *server)
{
    return server->kv.steps - server->turns.begun >= MST_LOOP_STEPS;
}
/* Whether the current connection has used its share. */
static inline bool mst__turn_is_over(const struct mst_server *server)
{
    return server->kv.steps >= server->turns.end || mst__kv_has_notices(&server->kv);
}
/* Count a write to another connection; true if it must wait for another turn. */
bool mst__turns_is_full(struct mst_server *server);

/* --- listen.c --- */

/* Open all listeners of @options. On error, call mst__listen_close for those already open. */
int mst__listen_open(struct mst_server *server,
                     const struct mst_server_options *options,
                     struct mst_err *reterr);

/* Stop accepting. */
void mst__listen_close(struct mst_server *server);

#endif /* MST_NET_SERVER_H */
