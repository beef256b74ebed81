/* agent/control_keys.h - the keys by which `muster ps`, `logs`, `restart` and `drain` talk to
 * agents, in the store where the job meets, under the prefix `muster.run/RUN_ID`. Pure.
 *
 *   nodes/NODE         the state of the agent of NODE, JSON; removed when it ends
 *   commands/count     how many commands there were
 *   commands/N         command N, JSON; agents read all of them, from the count at their start on
 *   replies/N          the node that has executed it; removed by the sender
 *   logs/TOKEN         a queue of pieces of a log: `d` and bytes, or `e` and a text at the end
 *   logs/TOKEN/alive   a number that the reader of that queue changes while it reads   */
#ifndef MST_AGENT_CONTROL_KEYS_H
#define MST_AGENT_CONTROL_KEYS_H

#include <muster/error.h>
#include <stdbool.h>

#include "base/buf.h"

#define MST_CONTROL_PREFIX "muster.run/"
#define MST_CONTROL_COUNT "commands/count"
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

/* Texts are cut off at their sizes when they are written. */
struct mst__control_command {
    enum mst__control_kind kind;
    char node[256];    /* DRAIN: its name, or its host's */
    int64_t within_ms; /* DRAIN: how long its workers have; -1 = as its options say */
    int64_t rank;      /* LOGS: of the worker */
    bool is_stderr;    /* LOGS */
    int64_t lines;     /* LOGS: so many of the last ones; -1 = all */
    bool follows;      /* LOGS */
    char token[64];    /* LOGS: of the queue */
};

/* Append it as JSON. 0, MST_ENOMEM, MST_ELIMIT. */
int mst__control_write(const struct mst__control_command *command, struct mst__buf *text);

/* False when it is none, or one of a later version. */
bool mst__control_read(struct mst_bytes text, struct mst__control_command *ret_command);

/* --- the state of a node --- */

struct mst__control_worker {
    int64_t rank, local_rank, pid;
    bool is_running;
};

/* Texts are borrowed when it is written, and of a buffer when it is read. */
struct mst__control_node {
    char node[256], host[256], role[128], phase[32], log_dir[512];
    int64_t pid, group_rank, generation, round, restarts, workers_count;
};

/* Append a node and its workers, of which @worker_at fills in number i. 0, MST_ENOMEM,
 * MST_ELIMIT. */
int mst__control_node_write(const struct mst__control_node *node,
                            void (*worker_at)(void *arg,
                                              int64_t i,
                                              struct mst__control_worker *ret_worker),
                            void *arg,
                            struct mst__buf *text);

/* Read the node, and @ret_workers for walking its workers. False when it is none. */
bool mst__control_node_read(struct mst_bytes text,
                            struct mst__control_node *ret_node,
                            struct mst_bytes *ret_workers);

/* Take the next worker; false when there is no more. */
bool mst__control_worker_next(struct mst_bytes *workers, struct mst__control_worker *ret_worker);

#endif /* MST_AGENT_CONTROL_KEYS_H */
