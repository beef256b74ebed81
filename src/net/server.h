/* net/server.h - what the files of the server share. */
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

/* Why a connection ended: its name in the log, and how loud. */
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

/* Bounds of the histogram of how long turns of the loop took; all else is beyond them. */
#define MST_LOOP_SECONDS_MAP(X) \
    X("0.001", 1000)            \
    X("0.01", 10000)            \
    X("0.05", 50000)            \
    X("0.1", 100000)            \
    X("1", 1000000)
#define MST_LOOP_SECONDS_COUNT 6

struct mst__counters {
    uint64_t accepted;
    uint64_t loop_us;     /* in turns of the loop, without waiting for something to happen */
    uint64_t loop_us_max; /* the longest one */
    uint64_t loop_seconds[MST_LOOP_SECONDS_COUNT]; /* turns by how long they took */
    uint64_t turn_steps_max; /* the most that one connection has cost in one turn of the loop */
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t released; /* waits that ended with their keys */
    uint64_t ops[MST_OP_COUNT];
    uint64_t closed[MST_WHY_COUNT];
};

struct mst__listener {
    struct mst__polled io; /* first: what is polled is the listener */
    struct mst_server *server;
    bool has_path; /* of a unix socket, which goes with it */
    char address[MST_ADDRESS_SIZE];
};

/* See server_empty.c. */
struct mst__empty {
    uv_mutex_t mutex;            /* guards `last`, `wanted` and `done` */
    uv_cond_t cond;              /* `done` has changed */
    uint64_t last;               /* wishes have numbers */
    uint64_t wanted;             /* the wish that somebody waits for; 0 = none */
    uint64_t done;               /* the last one that was carried out */
    uv_idle_t idle;              /* active while there is a wish */
    uint64_t number;             /* the wish that is being carried out */
    unsigned turns;              /* of the loop since it was seen */
    uint64_t bytes_in, accepted; /* as they were at the last turn */
};

struct mst__conn;
struct mst__http;

/* Who stands in line, see conn_turn.c. */
struct mst__turns {
    struct mst__conn *first, *last;
    size_t count;
    uv_idle_t idle;     /* active while somebody does */
    uv_prepare_t clock; /* each turn of the loop ends here */
    uint64_t ended_ns;  /* the last one */
    uint64_t waited_ns; /* by then, all together */
    uint64_t end;       /* of the turn that is being taken, in steps of the engine */
    uint64_t begun;     /* the turn of the loop, in the same */
    unsigned accepts;   /* in this turn of the loop */
    unsigned pushes;    /* the same, to others than the one being served */
};

struct mst_server {
    struct mst_server_options options; /* hosts, listen_fds, http_address are not kept */
    struct mst__wire_limits wire_limits;
    uv_loop_t loop;
    bool loop_is_open;
    struct mst__poller poller; /* of listeners and connections */
    int spare_fd;              /* given up to turn a caller away when there are no others; -1 */
    uv_async_t wake;           /* somebody wants a stop or a dump */
    atomic_bool stop_wanted;
    atomic_bool dump_wanted;
    bool stopping;
    int64_t stop_began_ms;
    int64_t ahead_ms;  /* tests turn the clock forward with it */
    uv_timer_t sweep;  /* runs while something may become overdue */
    uv_timer_t grace;  /* runs while a connection may be of dialect A or B */
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
    char *run_id;            /* the only one that is served; NULL = any */
    struct mst__conn *conns; /* all of them */
    size_t conns_count;
    struct mst__conn *overdue; /* those with half a request or unsent output */
    struct mst__conn *doomed;  /* to be closed when the command under way is done with */
    struct mst__conn *closed;  /* to be freed when the turn of the loop is over */
    struct mst__turns turns;
    struct mst__buf replies; /* of the connection being served */
    struct mst__buf notice;  /* for those who watch the same key; its bytes, and what they lie in */
    struct mst_bytes notice_bytes;
    void *notice_shared; /* by the engine, or NULL */
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

/* Something may become overdue: let the sweep timer run. */
void mst__server_want_sweep(struct mst_server *server);

/* A connection may be of dialect A or B: let the grace timer run. */
void mst__server_want_grace(struct mst_server *server);

/* --- server_empty.c --- */

/* Remove all keys and queues, those included whose bytes have arrived by now; returns when it is
 * done. @server runs, in another thread, and is not being stopped. From one thread at a time.
 *
 * Returns 0 or MST_ETIMEOUT: the loop does not get to it. It does not do it later, either, unless
 * it has begun. */
int mst__server_empty(struct mst_server *server, int64_t deadline_ms, struct mst_err *reterr);

/* 0 or an error of libuv. */
int mst__empty_open(struct mst_server *server);
/* The loop is about to end. */
void mst__empty_stop(struct mst_server *server);
/* The loop has ended. */
void mst__empty_close(struct mst_server *server);
/* The loop was woken: see whether it was for this. */
void mst__empty_look(struct mst_server *server);

/* --- heap.c --- */

void mst__heap_open(struct mst_server *server);
/* The loop is about to end. */
void mst__heap_stop(struct mst_server *server);

/* The process belongs to the server: from now on its resident memory is held near the limit. */
void mst__heap_watch(struct mst_server *server);

/* Of a limit of @memory_max, how much must not be used, when the process has @resident bytes, and
 * had @base before it stored anything. */
size_t mst__heap_withheld(size_t resident, size_t base, size_t memory_max);

/* --- conn.c --- */

/* @stream, which is taken, has come from @listener; @peer is its name. */
void mst__conn_accept(struct mst__listener *listener,
                      struct mst__stream stream,
                      const struct mst__stream_name *peer);

/* The turn of the loop is over: free the connections that were closed in it. */
void mst__conns_free_closed(struct mst_server *server);

/* Send @frames to @conn, which is framed and not being served. */
void mst__conn_tell(struct mst__conn *conn, struct mst_bytes frames);

/* End @conn, which cannot be told what it should know, or need not be told any more. */
void mst__conn_give_up(struct mst__conn *conn, enum mst__why why, const char *detail);

/* @conn's session is over. */
void mst__conn_unseat(struct mst__conn *conn);

/* Close the connections that were given up; when there are many, some of them now. */
void mst__conns_close_doomed(struct mst_server *server);

/* Close the connections that are overdue at @now_ms; whether any may become so. */
bool mst__conns_sweep(struct mst_server *server, int64_t now_ms);

/* Decide for dialect A where the peer has been silent long enough. */
void mst__conns_settle(struct mst_server *server, int64_t now_ms);

/* The server stops: close the connections with nothing under way, or with @force all of them. */
void mst__conns_shut_down(struct mst_server *server, bool force);

/* --- conn_turn.c --- */

void mst__turns_open(struct mst_server *server);
/* The loop is about to end. */
void mst__turns_stop(struct mst_server *server);
/* Somebody stands in line. */
void mst__turns_want(struct mst_server *server);
/* Whether all that is left must wait for another turn of the loop. */
static inline bool mst__turns_is_over(const struct mst_server *server)
{
    return server->kv.steps - server->turns.begun >= MST_LOOP_STEPS;
}
/* Whether the connection that is being served has had its turn. */
static inline bool mst__turn_is_over(const struct mst_server *server)
{
    return server->kv.steps >= server->turns.end || mst__kv_has_notices(&server->kv);
}
/* Somebody is to be written to: whether that must wait for another turn. */
bool mst__turns_is_full(struct mst_server *server);

/* --- listen.c --- */

/* Open all listeners that @options ask for. On error what was opened is left to
 * mst__listen_close. */
int mst__listen_open(struct mst_server *server,
                     const struct mst_server_options *options,
                     struct mst_err *reterr);

/* Stop accepting. */
void mst__listen_close(struct mst_server *server);

#endif /* MST_NET_SERVER_H */
