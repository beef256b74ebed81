/* agent/control_keys.h - the keys with which `muster ps`, `logs`, `restart` and `drain` reach
 * agents, in the store where the job meets, under the prefix `muster.run/RUN_ID`. Pure.
 *
 *   nodes/NODE         JSON: the state of the agent of NODE; removed when the agent ends
 *   commands/count     the number of commands so far
 *   commands/store     a random name of the store
 *   commands/N         JSON: command N; every agent reads all commands after its start
 *   replies/N          the node that executed command N; removed by the sender
 *   logs/TOKEN         a queue of pieces of a log: `d` and bytes, or `e` and a text at the end
 *   logs/TOKEN/alive   a number that the reader of the queue changes while it reads */
#ifndef MST_AGENT_CONTROL_KEYS_H
#define MST_AGENT_CONTROL_KEYS_H

#include <muster/error.h>
#include <stdbool.h>

#include "base/buf.h"

#define MST_CONTROL_PREFIX "muster.run/"
#define MST_CONTROL_COUNT "commands/count"
#define MST_CONTROL_STORE "commands/store"
#define MST_CONTROL_NODES "nodes/"
#define MST_CONTROL_KEY_SIZE 400

#define MST_CONTROL_MAP(X) \
    X(RESTART, "restart")  \
    X(DRAIN, "drain")      \
    X(LOGS, "logs")

enum mst__control_kind {
#define MST_CONTROL_ENUM(name, text) MST_CONTROL_##name,
    MST_CONTROL_MAP(MST_CONTROL_ENUM)
#undef MST_CONTROL_ENUM
};

/* Longer texts are cut off. */
struct mst__control_command {
    enum mst__control_kind kind;
    char node[256];    /* DRAIN: the name of the node or of its host */
    int64_t within_ms; /* DRAIN: time for its workers to end; -1 = as its options say */
    int64_t rank;      /* LOGS: rank of the worker */
    bool is_stderr;    /* LOGS */
    int64_t lines;     /* LOGS: the number of last lines; -1 = all */
    bool follows;      /* LOGS */
    char token[64];    /* LOGS: name of the queue */
};

/* Append the command as JSON. Returns 0, MST_ENOMEM or MST_ELIMIT. */
int mst__control_write(const struct mst__control_command *command, struct mst__buf *text);

/* Returns false if the text is malformed or a command of a later version. */
bool mst__control_read(struct mst_bytes text, struct mst__control_command *ret_command);

/* --- the state of a node --- */

struct mst__control_worker {
    int64_t rank, local_rank, pid;
    bool is_running;
};

/* Longer texts are cut off. */
struct mst__control_node {
    char node[256], host[256], role[128], phase[32], log_dir[512];
    int64_t pid, group_rank, generation, round, restarts, workers_count;
    int64_t nodes_min; /* of the job; 0 = not known */
    bool is_leaving;   /* it is drained, or its time ends */
};

/* Append a node and its workers as JSON. @worker_at fills in worker @i. Returns 0, MST_ENOMEM or
 * MST_ELIMIT. */
int mst__control_node_write(const struct mst__control_node *node,
                            void (*worker_at)(void *arg,
                                              int64_t i,
                                              struct mst__control_worker *ret_worker),
                            void *arg,
                            struct mst__buf *text);

/* Read a node. *ret_workers is borrowed from @text, for mst__control_worker_next. Returns false if
 * the text is malformed. */
bool mst__control_node_read(struct mst_bytes text,
                            struct mst__control_node *ret_node,
                            struct mst_bytes *ret_workers);

/* Take the next worker. Returns false if there is none left. */
bool mst__control_worker_next(struct mst_bytes *workers, struct mst__control_worker *ret_worker);

#endif /* MST_AGENT_CONTROL_KEYS_H */
