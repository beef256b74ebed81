/* net/conn.c - connections of the store server.
 *
 * Bytes arrive in a buffer that all connections share and are served from there; only what is left
 * of an unfinished request is copied into the connection's own buffer. Replies to everything that
 * arrived together are gathered and written at once. What the kernel does not take at once is
 * queued, and until it is gone the connection is neither read nor served: so a peer that does not
 * read costs a bounded amount of memory and disturbs nobody. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/address.h"
#include "net/server.h"

/* How long a DELETE of dialect A may turn out to be the start of an APPEND of dialect B. */
#define CONN_GRACE_MS 50

/* Room that is read into at once when a large request is under way. */
#define CONN_READ_AHEAD MST_MIB(1)

struct mst__conn {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    struct mst_server *server;
    struct mst__conn *prev, *next;                 /* all connections */
    struct mst__conn *overdue_prev, *overdue_next; /* those with something under way */
    struct mst__conn *doomed_next;
    struct mst__kv_client client;
    struct mst__wire_reader reader;
    struct mst__buf input;  /* an unfinished request, or requests waiting for output to drain */
    size_t input_charged;   /* of its memory, as counted by the engine */
    size_t input_wanted;    /* no use looking at less than this */
    size_t output_pending;  /* queued bytes */
    int64_t active_ms;      /* last time something arrived or drained */
    struct sockaddr_storage_small {
        sa_family_t family;
        uint8_t rest[26]; /* of a sockaddr_in or sockaddr_in6 */
    } peer;
    bool is_overdue; /* in the list of those with something under way */
    bool is_doomed;
    bool is_closing;
    bool is_reading;
    bool in_grace; /* waits for A or B */
    enum mst__why why;
    char *detail; /* of the reason, heap or NULL */
};

static_assert(sizeof(struct sockaddr_in6) <= sizeof(struct sockaddr_storage_small),
              "a peer's address must fit");

/* Output that the kernel did not take at once. */
struct chunk {
    uv_write_t request;
    struct mst__conn *conn;
    size_t size;
    uint8_t bytes[];
};

static const char *why_name(enum mst__why why)
{
    static const char *const names[MST_WHY_COUNT] = {
#define WHY_NAME(name, text, level) [MST_WHY_##name] = (text),
        MST_WHY_MAP(WHY_NAME)
#undef WHY_NAME
    };
    return names[why];
}

static enum mst_log_level why_level(enum mst__why why)
{
    static const enum mst_log_level levels[MST_WHY_COUNT] = {
#define WHY_LEVEL(name, text, level) [MST_WHY_##name] = MST_LOG_##level,
        MST_WHY_MAP(WHY_LEVEL)
#undef WHY_LEVEL
    };
    return levels[why];
}
