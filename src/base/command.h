/* base/command.h - requests to a store and their replies, independent of the transport.
 *
 * The wire codec makes commands from bytes, the key-value engine applies them, stores send them.
 * All byte strings in a command or a reply are borrowed. */
#ifndef MST_BASE_COMMAND_H
#define MST_BASE_COMMAND_H

#include <muster/types.h>
#include <stdbool.h>

#include "base/buf.h"

#define MST_OP_MAP(X)             \
    X(SET, "set")                 \
    X(COMPARE_SET, "compare_set") \
    X(GET, "get")                 \
    X(ADD, "add")                 \
    X(CHECK, "check")             \
    X(WAIT, "wait")               \
    X(NUM_KEYS, "num_keys")       \
    X(WATCH, "watch")             \
    X(DELETE, "delete")           \
    X(APPEND, "append")           \
    X(MULTI_GET, "multi_get")     \
    X(MULTI_SET, "multi_set")     \
    X(CANCEL_WAIT, "cancel_wait") \
    X(PING, "ping")               \
    X(QUEUE_PUSH, "queue_push")   \
    X(QUEUE_POP, "queue_pop")     \
    X(QUEUE_LEN, "queue_len")     \
    X(LIST_KEYS, "list_keys")     \
    X(BARRIER, "barrier")         \
    X(WAIT_CHANGE, "wait_change")

enum mst__op {
#define OP_ENUM(name, text) MST_OP_##name,
    MST_OP_MAP(OP_ENUM)
#undef OP_ENUM
};
#define MST_OP_COUNT (MST_OP_WAIT_CHANGE + 1)

/* "compare_set" for MST_OP_COMPARE_SET. */
const char *mst__op_name(enum mst__op op);

struct mst__command {
    enum mst__op op;
    struct mst_bytes key;
    struct mst_bytes value;    /* the value; desired of COMPARE_SET */
    struct mst_bytes expected; /* COMPARE_SET */
    int64_t number;            /* delta of ADD, size of BARRIER, nonce of PING, fingerprint of
                                  WAIT_CHANGE */
    bool blocks;               /* GET inside one process: wait for a value */
    uint64_t count;            /* keys of CHECK, WAIT, MULTI_GET; pairs of MULTI_SET */
    struct mst_bytes items;    /* the keys, or keys and values in turn, as strs: u64 size, bytes */
    bool is_begun;             /* WAIT: these are more keys of a WAIT that has begun */
    bool goes_on;              /* WAIT: more keys follow; the wait is not over before */
    uint64_t epoch; /* only for the server with this epoch; 0 = for any. Not on the wire. */
};

enum mst__reply_kind {
    MST_REPLY_NONE,   /* SET and friends */
    MST_REPLY_STATUS, /* status */
    MST_REPLY_NUMBER, /* number */
    MST_REPLY_BYTES,  /* bytes */
    MST_REPLY_ITEMS,  /* count strs in bytes; the client knows count */
    MST_REPLY_LIST,   /* number of strs, then the strs in bytes */
    MST_REPLY_POP,    /* number = length before the pop; bytes if it is > 0 */
    MST_REPLY_ECHO,   /* number as u32 */
    MST_REPLY_LATER,  /* a STATUS follows when the wait is over */
};

enum mst__status {
    MST_STATUS_READY,         /* CHECK: every key exists */
    MST_STATUS_NOT_READY,     /* CHECK: a key is absent */
    MST_STATUS_STOP_WAITING,  /* WAIT, BARRIER, WAIT_CHANGE: over */
    MST_STATUS_WAIT_CANCELED, /* CANCEL_WAIT */
    MST_STATUS_WATCHING,      /* WATCH: registered */
};

struct mst__reply {
    enum mst__reply_kind kind;
    enum mst__status status;
    int64_t number;
    struct mst_bytes bytes;
    void *shared; /* the block that holds @bytes, for mst__kv_hold; NULL = copy them */
    bool found;   /* GET, COMPARE_SET: the key existed. Not on the wire. */
};

/* Take the next str off the front of @items into @ret_item. False if there is no complete one. */
bool mst__items_next(struct mst_bytes *items, struct mst_bytes *ret_item);

#endif /* MST_BASE_COMMAND_H */
