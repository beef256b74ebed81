/* golden/model.h - a store server without sockets: bytes go in per connection, in any pieces,
 * and the server's actions come out as events. Codec and engine are the real ones; only the
 * network is missing. Golden scripts and fuzz targets run on it. */
#ifndef MST_GOLDEN_MODEL_H
#define MST_GOLDEN_MODEL_H

#include "kv/kv.h"
#include "wire/wire.h"

#define MST_MODEL_CONNS_MAX 16

enum mst__model_event_kind {
    MST_MODEL_COMMAND, /* command: a whole request was read and is about to be applied */
    MST_MODEL_REPLY,   /* reply, bytes: its encoding on the wire */
    MST_MODEL_NOTICE,  /* bytes: a notification of a watched key */
    MST_MODEL_CLOSED,  /* err: the server closes the connection */
};

/* Everything is borrowed for the call. */
struct mst__model_event {
    enum mst__model_event_kind kind;
    size_t conn;
    const struct mst__command *command;
    const struct mst__reply *reply;
    struct mst_bytes bytes;
    const struct mst_err *err;
};

typedef void (*mst__model_event_cb)(void *arg, const struct mst__model_event *event);

struct mst__model_conn {
    struct mst__kv_client client;
    struct mst__wire_reader reader;
    struct mst__buf input;
    size_t input_wanted;
    bool is_open;
    bool in_grace; /* dialect A or B: the next bytes or their absence will show */
};

struct mst__model {
    struct mst__kv kv;
    struct mst__wire_limits wire_limits;
    struct mst__model_conn conns[MST_MODEL_CONNS_MAX];
    struct mst__buf output; /* of one event */
    mst__model_event_cb cb;
    void *cb_arg;
};

struct mst__model_limits {
    size_t key_size_max;
    size_t value_size_max;
    size_t message_size_max; /* 0 = as for a server with these keys and values */
    size_t memory_max;
};

void mst__model_init(struct mst__model *model,
                     const struct mst__model_limits *limits,
                     mst__model_event_cb cb,
                     void *arg);

/* Close all connections, delete all stored values, and assert that nothing is left: no key, no
 * entry, no byte counted as used. */
void mst__model_close(struct mst__model *model);

/* Open connection @conn, which is closed. */
void mst__model_open(struct mst__model *model, size_t conn);

/* Bytes arrive on @conn; if it is closed they are lost. */
void mst__model_feed(struct mst__model *model, size_t conn, struct mst_bytes bytes);

/* Nothing more has arrived on @conn for a while. */
void mst__model_settle(struct mst__model *model, size_t conn);

/* The peer of @conn closes it. */
void mst__model_hang_up(struct mst__model *model, size_t conn);

/* Assert the invariants between two commands. */
void mst__model_check(const struct mst__model *model);

#endif /* MST_GOLDEN_MODEL_H */
